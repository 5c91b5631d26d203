//! What calls give. Flows in: functions of tensors; flows out: their values, against the functions'.

use monoglot::prelude::*;

fn f32s(t: &Tensor) -> Vec<f32> {
    t.to_vec().expect("f32 values")
}

fn ramp(n: usize, from: f32) -> Tensor {
    let values: Vec<f32> = (0..n).map(|i| from + i as f32).collect();
    Tensor::new(&values, [n])
}

#[test]
fn calls_give_what_the_function_gives() -> Result<()> {
    let step = jit(|x: Tensor, y: Tensor| &x * 2.0 + y.sum(0, true))?;
    for k in 0..4 {
        let x = ramp(4, k as f32);
        let y = ramp(4, 10.0 * k as f32);
        let got = step.call((&x, &y))?;
        assert_eq!(f32s(&got), f32s(&(&x * 2.0 + y.sum(0, true))));
    }
    assert_eq!(step.programs(), 1);
    Ok(())
}

#[test]
fn arguments_and_results_are_trees() -> Result<()> {
    let step = jit(
        |xs: Vec<Tensor>, [a, b]: [Tensor; 2], c: Option<Tensor>, n: usize| {
            let mut sum = a + b;
            for x in &xs {
                sum = sum + x;
            }
            let more = c.as_ref().map(|c| c * n as f32);
            (sum, (more, n + 1))
        },
    )?;
    let t = |v: f32| Tensor::new(&[v], [1]);
    let (sum, (more, n)) = step.call((vec![t(1.0), t(2.0)], [t(3.0), t(4.0)], Some(t(5.0)), 2))?;
    assert_eq!(sum.item::<f32>()?, 10.0);
    assert_eq!(more.expect("passed").item::<f32>()?, 10.0);
    assert_eq!(n, 3);
    let (sum, (more, n)) = step.call((vec![t(1.0)], [t(3.0), t(4.0)], None::<Tensor>, 7))?;
    assert_eq!(sum.item::<f32>()?, 8.0);
    assert!(more.is_none());
    assert_eq!(n, 8);
    assert_eq!(step.programs(), 2);
    Ok(())
}

#[test]
fn closures_by_reference_and_single_arguments() -> Result<()> {
    let double = jit(|x: &Tensor| x * 2.0)?;
    let x = ramp(3, 0.0);
    assert_eq!(f32s(&double.call(&x)?), [0., 2., 4.]);
    assert_eq!(f32s(&double.call((x,))?), [0., 2., 4.]);
    let three = jit(|| -> Result<Tensor> { Ok(Tensor::ones([2]) * 3.0) })?;
    assert_eq!(f32s(&three.call(())?), [3., 3.]);
    let scaled = jit(|x: Tensor, by: Tensor| x * by)?;
    for by in [2.0f32, -1.0, 0.5] {
        assert_eq!(f32s(&scaled.call((ramp(2, 1.0), by))?), [by, 2.0 * by]);
    }
    assert_eq!(scaled.programs(), 1);
    Ok(())
}

#[test]
fn functions_that_compute_nothing() -> Result<()> {
    let same = jit(|x: &Tensor| x.clone())?;
    let x = ramp(3, 1.0);
    for _ in 0..2 {
        assert_eq!(f32s(&same.call(&x)?), [1., 2., 3.]);
    }
    let nothing = jit(|| ())?;
    nothing.call(())?;
    let ignores = jit(|_: &Tensor, n: usize| n * 2)?;
    assert_eq!(ignores.call((&x, 4))?, 8);
    let empty = jit(|x: &Tensor| (x * 2.0, x.sum(.., false)))?;
    for n in [0, 2, 0] {
        let (y, sum) = empty.call(ramp(n, 1.0))?;
        assert_eq!(y.shape()?, [n]);
        assert_eq!(
            sum.item::<f32>()?,
            (0..n).map(|i| i as f32 + 1.0).sum::<f32>()
        );
    }
    Ok(())
}

#[test]
fn a_long_function_is_no_deeper_than_a_short_one() -> Result<()> {
    let long = jit(|x: &Tensor| (0..20_000).fold(x.clone(), |y, k| y + (k % 3) as f32))?;
    for k in 0..2 {
        let x = ramp(2, k as f32);
        let got = f32s(&long.call(&x)?);
        let all = (0..20_000).map(|k| (k % 3) as f32).sum::<f32>();
        assert_eq!(got, [k as f32 + all, k as f32 + 1.0 + all]);
    }
    assert_eq!(long.programs(), 1);
    Ok(())
}

#[test]
fn many_kinds_of_calls_keep_so_many_programs() -> Result<()> {
    let step = jit(|x: &Tensor, n: usize| x + n as f64)?;
    let x = ramp(2, 0.0);
    for n in 0..140 {
        assert_eq!(f32s(&step.call((&x, n))?), [n as f32, n as f32 + 1.0]);
    }
    assert_eq!(step.programs(), 128);
    assert_eq!(f32s(&step.call((&x, 3))?), [3., 4.]);
    step.clear();
    assert_eq!(step.programs(), 0);
    assert_eq!(f32s(&step.call((&x, 3))?), [3., 4.]);
    Ok(())
}
