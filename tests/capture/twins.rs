//! Tensors that are equal when a function is traced, and differ later. Flows in: such tensors, passed or reached, read or
//! written; flows out: values and states, against those of the function uncaptured.

use monoglot::function;
use monoglot::prelude::*;

fn f32s(t: &Tensor) -> Vec<f32> {
    t.to_vec().expect("f32 values")
}

#[test]
fn an_argument_that_was_equal_to_what_is_reached() -> Result<()> {
    let w = Tensor::new(&[1f32, 2.0], [2]).parameter();
    for realized in [false, true] {
        if realized {
            w.realize()?;
        }
        let less = jit(|x: &Tensor| x - &w)?;
        let times = function(|x: &Tensor| x * &w);
        let first = [w.reshape([2]), w.narrow(0, 0, 2), w.clone()];
        for x in &first {
            assert_eq!(f32s(&less.call(x)?), [0.0; 2]);
            let y = times.call(x)?;
            let z = times.call(&(&y + 1.0))?;
            assert_eq!(f32s(&z), [2.0, 10.0]);
            let g = z.sum(.., false).gradient(&[&w])?;
            assert_eq!(f32s(&g[0]), [4.0, 13.0]);
        }
        let other = Tensor::new(&[10f32, 20.0], [2]);
        assert_eq!(f32s(&less.call(&other)?), [9.0, 18.0]);
    }
    Ok(())
}

#[test]
fn states_that_begin_alike_are_written_each() -> Result<()> {
    let bias = Tensor::new(&[1f32, 2.0], [2]);
    let begins: [&dyn Fn() -> Tensor; 4] = [
        &|| Tensor::zeros([2]) + &bias,
        &|| Tensor::ones([2]),
        &|| bias.detach(),
        &|| bias.contiguous(),
    ];
    for (k, begin) in begins.iter().enumerate() {
        let begun = f32s(&begin());
        let h = begin();
        let c = begin();
        let step = jit(|x: &Tensor| {
            h.assign(&h + x);
            c.assign(&c + x * 10.0);
            (&h * 1.0, &c * 1.0)
        })?;
        let one = Tensor::ones([2]);
        let program = step.program(&one)?;
        for turn in 1..4 {
            let after = |by: i32| -> Vec<f32> {
                let all = begun.iter();
                all.map(|b| b + (turn * by) as f32).collect()
            };
            let given = program.call([one.clone()])?;
            assert_eq!(f32s(&given[0]), after(1), "{k}, a program's turn {turn}");
            assert_eq!(f32s(&given[1]), after(10), "{k}, a program's turn {turn}");
            step.call(&one)?;
            assert_eq!(f32s(&h), after(1), "{k}, turn {turn}");
            assert_eq!(f32s(&c), after(10), "{k}, turn {turn}");
        }
        let both = jit(|a: &Tensor, b: &Tensor| {
            a.assign(a + 1.0);
            b.assign(b * 3.0);
        })?;
        let pair = [begin(), begin()];
        both.call((&pair[0], &pair[1]))?;
        let first: Vec<f32> = begun.iter().map(|v| v + 1.0).collect();
        let second: Vec<f32> = begun.iter().map(|v| v * 3.0).collect();
        assert_eq!(f32s(&pair[0]), first, "{k}");
        assert_eq!(f32s(&pair[1]), second, "{k}");
    }
    Ok(())
}

/// A tensor that is only read stays, though what is written had its value and is written in place where it can be.
#[test]
fn what_is_read_stays_beside_its_twin_that_is_written() -> Result<()> {
    for assigned in [false, true] {
        for reads_first in [false, true] {
            let read = Tensor::new(&[1f32, 2.0], [2]);
            let seen = Tensor::zeros([2]);
            if assigned {
                read.assign(&read);
            }
            let twin = Tensor::zeros([2]).rebind(&read);
            let step = jit(|x: &Tensor| {
                if reads_first {
                    seen.assign(&read);
                }
                twin.assign(&twin - x);
                seen.assign(&seen + &read);
            })?;
            step.call(Tensor::full([2], 3f32))?;
            assert_eq!(f32s(&read), [1.0, 2.0], "{assigned}, {reads_first}");
            assert_eq!(f32s(&twin), [-2.0, -1.0], "{assigned}, {reads_first}");
            step.call(Tensor::full([2], 3f32))?;
            assert_eq!(f32s(&read), [1.0, 2.0], "{assigned}, {reads_first}");
            assert_eq!(f32s(&twin), [-5.0, -4.0], "{assigned}, {reads_first}");
        }
    }
    Ok(())
}

#[test]
fn what_is_written_is_passed_as_a_view_of_all_of_it() -> Result<()> {
    let p = Tensor::new(&[1f32, 2.0], [2]).parameter();
    let q = p.narrow(0, 0, 2);
    let add = jit(|x: &Tensor| {
        p.assign(&p + x);
    })?;
    add.call(&q)?;
    assert_eq!(f32s(&p), [2.0, 4.0]);
    add.call(Tensor::full([2], 100f32))?;
    assert_eq!(f32s(&p), [102.0, 104.0]);
    Ok(())
}

#[test]
fn a_view_of_a_view_that_was_passed_writes_through_both() -> Result<()> {
    for assigned in [false, true] {
        let base = Tensor::new(&[1f32, 2.0, 3.0, 4.0], [2, 2]);
        if assigned {
            base.set_at(0, 5.0);
        }
        let part = base.flip(0);
        let row = jit(|x: &Tensor| x.index(0))?;
        let first = row.call(&part)?;
        first.assign(Tensor::new(&[7f32, 8.0], [2]));
        let above = if assigned { [5.0; 2] } else { [1.0, 2.0] };
        assert_eq!(f32s(&base), [&above[..], &[7.0, 8.0]].concat());
    }
    Ok(())
}
