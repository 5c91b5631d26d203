//! Compositions (`arange`, `windows`) against what they say, through the evaluator. Flows in:
//! sizes; flows out: comparisons.

use monoglot_oracle::eval::{Data, Value, eval};
use monoglot_uop::{DType, Error, UOp};

fn ints(u: &UOp) -> (Vec<i64>, Vec<i64>) {
    let none = &mut |u: &UOp| Err(Error::argument(u.op().name(), "no leaf"));
    let Value { shape, data, .. } = eval(std::slice::from_ref(u), none)
        .expect("evaluates")
        .remove(0);
    match data {
        Data::Int(v) => (shape, v.to_vec()),
        _ => (shape, vec![]),
    }
}

#[test]
fn arange_counts() {
    for n in [0, 1, 2, 7, 2050] {
        assert_eq!(
            ints(&UOp::arange(n, DType::I32)).1,
            (0..n).collect::<Vec<_>>()
        );
    }
}

#[test]
fn windows_read_what_they_should() {
    for n in 1..9 {
        for (k, s, d) in (0..125).map(|c| (c % 5 + 1, c / 5 % 5 + 1, c / 25 + 1)) {
            let w = UOp::arange(n, DType::I32).windows(k, s, d);
            if (k - 1) * d >= n {
                assert!(w.is_err());
                continue;
            }
            let o = (n - (k - 1) * d - 1) / s + 1;
            let want = (0..o)
                .flat_map(|i| (0..k).map(move |j| i * s + j * d))
                .collect();
            assert_eq!(
                ints(&w.expect("fits")),
                (vec![o, k], want),
                "{n} {k} {s} {d}"
            );
        }
    }
}
