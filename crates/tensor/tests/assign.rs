//! Assignment: snapshots, views, overlap, errors; parameters and gradients through them. Flows in:
//! small tensors; flows out: comparisons with what was replaced by hand.

use monoglot_tensor::{Index, Tensor};

fn f32s(t: &Tensor) -> Vec<f32> {
    t.to_vec().expect("f32 values")
}

fn numbers() -> Tensor {
    Tensor::new(&[1.0f32, 2.0, 3.0, 4.0, 5.0], [5])
}

#[test]
fn what_was_written_before_keeps_the_old_value() {
    let t = numbers();
    let before = &t * 10.0;
    let clone = t.clone();
    t.assign(&(&t + 1.0));
    assert_eq!(f32s(&before), [10.0, 20.0, 30.0, 40.0, 50.0]);
    assert_eq!(f32s(&clone), [2.0, 3.0, 4.0, 5.0, 6.0]);
    t.realize().unwrap();
    t.assign(0.5);
    assert_eq!(f32s(&clone), [0.5; 5]);
    assert_eq!(f32s(&before), [10.0, 20.0, 30.0, 40.0, 50.0]);
}

#[test]
fn a_view_writes_what_it_views() {
    let t = numbers().reshape([5, 1]).contiguous();
    let column = t.squeeze(1);
    let odd = column.index(Index::step(1, None, 2));
    odd.assign(-1.0);
    assert_eq!(f32s(&t), [1.0, -1.0, 3.0, -1.0, 5.0]);
    assert_eq!(f32s(&odd), [-1.0, -1.0]);
    // Again, through the base as it is now; another view of it adds to its slice.
    odd.assign(&odd * 3.0);
    let head = t.narrow(0, 0, 2);
    head.assign(&head + 10.0);
    assert_eq!(f32s(&t), [11.0, 7.0, 3.0, -3.0, 5.0]);
}

#[test]
fn overlapping_views_read_before_they_write() {
    let t = numbers();
    t.set_at(1.., t.index(..4));
    assert_eq!(f32s(&t), [1.0, 1.0, 2.0, 3.0, 4.0]);
    let t = numbers();
    t.set_at(..4, t.index(1..));
    assert_eq!(f32s(&t), [2.0, 3.0, 4.0, 5.0, 5.0]);
    let t = numbers();
    t.index(Index::step(None, None, -1)).assign(&t);
    assert_eq!(f32s(&t), [5.0, 4.0, 3.0, 2.0, 1.0]);
    let t = numbers();
    t.realize().unwrap();
    t.set_at(Index::step(None, None, 2), 1);
    t.set_at(0, 9.0);
    assert_eq!(f32s(&t), [9.0, 2.0, 1.0, 4.0, 1.0]);
}

#[test]
fn what_does_not_fit_is_an_error_at_the_users_line() {
    let t = numbers();
    let line = line!() + 1;
    t.assign(Tensor::ones([3]));
    let e = t.check().expect_err("five are not three");
    assert_eq!(
        e.location().map(|l| (l.file(), l.line())),
        Some((file!(), line))
    );
    let wide = Tensor::ones([1, 3]).expand([4, 3]);
    let e = wide.assign(2.0).check().expect_err("four rows are one");
    assert!(e.to_string().contains("EXPAND"), "{e}");
    let t = numbers();
    let e = t
        .set_at(&Tensor::new(&[0i32], [1]), 1.0)
        .check()
        .expect_err("no view");
    assert!(e.to_string().contains("scatter"), "{e}");
}

#[test]
fn gradients_stop_at_what_was_replaced() {
    let x = numbers();
    let v = Tensor::new(&[7.0f32, 8.0], [2]);
    let y = &x * 1.0;
    y.set_at(1..3, &v);
    let loss = (&y * &y).sum(.., false);
    let g = loss.gradient(&[&x, &v]).unwrap();
    assert_eq!(f32s(&g[0]), [2.0, 0.0, 0.0, 8.0, 10.0]);
    assert_eq!(f32s(&g[1]), [14.0, 16.0]);
}

#[test]
fn equal_parameters_have_gradients_of_their_own() {
    let a = Tensor::ones([2]).parameter();
    let b = Tensor::ones([2]).parameter();
    let loss = (&a * 2.0 + &b * 3.0).sum(.., false);
    let g = loss.gradient(&[&a, &b]).unwrap();
    assert_eq!((f32s(&g[0]), f32s(&g[1])), (vec![2.0; 2], vec![3.0; 2]));
    let constant = Tensor::ones([2]);
    let e = (&constant + Tensor::ones([2]))
        .sum(.., false)
        .gradient(&[&constant])
        .expect_err("which of the two");
    assert!(e.to_string().contains("parameter"), "{e}");
    let c = &a * 1.5;
    let d = &a * 1.5;
    let e = (&c + &d)
        .sum(.., false)
        .gradient(&[&c, &d])
        .expect_err("one node");
    assert!(e.to_string().contains("one and the same"), "{e}");
    assert_eq!(e.location().map(|l| l.file()), Some(file!()));
    // A step of training: the next one starts from leaves.
    Tensor::realize_all(&[&a, &b]).unwrap();
    for step in 1..4 {
        let loss = (&a * &a).sum(.., false);
        let g = loss.gradient(&[&a]).unwrap();
        a.assign(&(&a - &g[0] * 0.25));
        a.realize().unwrap();
        assert_eq!(f32s(&a), [0.5f32.powi(step); 2]);
    }
    let early = (&a * 2.0).sum(.., false);
    a.assign(1.0).realize().unwrap();
    let e = early.gradient(&[&a]).expect_err("another value now");
    assert!(e.to_string().contains("realized, assigned or given"), "{e}");
}

#[test]
fn contiguous_is_storage_of_its_own() {
    let views: [fn(&Tensor) -> Tensor; 6] = [
        |t| t.clone(),
        |t| t.reshape([2, 2]),
        |t| t.reshape([2, 2]).flatten(0, -1),
        |t| t.narrow(0, 1, 2),
        |t| t.narrow(0, 1, 2).contiguous().reshape([2, 1]),
        |t| t.reshape([2, 2]).narrow(0, 1, 1).contiguous(),
    ];
    let data = [1f32, 2., 3., 4.];
    for (k, view) in views.iter().enumerate() {
        let t = Tensor::new(&data, [4]);
        let realized = view(&t).contiguous();
        let lazy = view(&t).contiguous();
        let want = f32s(&view(&Tensor::new(&data, [4])));
        realized.realize().unwrap();
        assert_eq!(f32s(&realized), want, "view {k}");
        assert!(!realized.to_string().contains("view"), "{realized}");
        // The base is nobody else's: it is assigned to in place, and what was read from it stays.
        t.assign(9.0).realize().unwrap();
        let plus: Vec<f32> = want.iter().map(|x| x + 1.0).collect();
        assert_eq!(f32s(&(&realized + 1.0)), plus, "view {k}");
        assert_eq!(f32s(&(&lazy + 1.0)), plus, "view {k}");
        assert_eq!(f32s(&t), [9.0; 4]);
        // Nor does writing to one change the other.
        realized.assign(-1.0).realize().unwrap();
        assert_eq!(f32s(&t), [9.0; 4]);
    }
}

/// An assignment: to which of two tensors, how many elements, where to and where from, and what.
type Assignment = [usize; 5];

/// Parts of two tensors are assigned numbers and parts of each other, the same again with other numbers: what a kernel
/// no longer reads once it writes a part alone is no argument of it.
#[test]
fn parts_are_assigned_parts_of_others() {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut roll = |n: usize| {
        let next = seed.wrapping_mul(6_364_136_223_846_793_005);
        seed = next.wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    for _ in 0..200 {
        let size = 4 + roll(4);
        let numbers = |by: f32| -> Vec<f32> { (0..size).map(|i| i as f32 * by + 1.0).collect() };
        let mut plain = [numbers(1.0), numbers(-0.5)];
        let tensors = [0, 1].map(|k| Tensor::new(&plain[k], [size as i64]));
        let list: Vec<Assignment> = (0..2 + roll(3))
            .map(|_| {
                let count = 1 + roll(3);
                let at = [0, 1].map(|_| roll(size - count + 1));
                [roll(2), count, at[0], at[1], roll(3)]
            })
            .collect();
        for turn in 0..3 {
            for (k, &[to, count, at, from, what]) in list.iter().enumerate() {
                let part = |k: usize, at: usize| tensors[k].narrow(0, at as i64, count as i64);
                let there = plain[1 - to][from..from + count].to_vec();
                let (value, values) = match what {
                    0 => {
                        let number = (turn * 10 + k) as f32;
                        (
                            Tensor::scalar(number).expand([count as i64]),
                            vec![number; count],
                        )
                    }
                    1 => {
                        let values = there.iter().rev().copied().collect();
                        (part(1 - to, from).flip(0), values)
                    }
                    _ => {
                        let values = there.iter().map(|v| v * 2.0).collect();
                        (part(1 - to, from) * 2.0, values)
                    }
                };
                part(to, at).assign(value);
                plain[to][at..at + count].copy_from_slice(&values);
            }
            let [a, b] = &tensors;
            let done = Tensor::realize_all(&[a, b]);
            assert!(done.is_ok(), "{list:?}, turn {turn}: {done:?}");
            for (t, want) in tensors.iter().zip(&plain) {
                assert_eq!(f32s(t), *want, "{list:?}, turn {turn}");
            }
        }
    }
}
