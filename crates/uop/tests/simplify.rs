//! What the simplifier makes of index expressions: known results, and random index maps compared with
//! what they were at every point.

use monoglot_uop::{AxisType, DType, Scalar, UOp};
use rustc_hash::FxHashMap;

fn range(n: i64, id: u32) -> UOp {
    UOp::range(n, id, AxisType::Loop)
}

/// Whether both have one value at every point of these ranges.
fn agree(a: &UOp, b: &UOp, ranges: &[UOp]) {
    let bounds: Vec<i64> = ranges.iter().map(|r| r.vmax() + 1).collect();
    let mut at = vec![0i64; ranges.len()];
    loop {
        let values: FxHashMap<UOp, Scalar> =
            ranges.iter().cloned().zip(at.iter().map(|&v| Scalar::Int(v as i128))).collect();
        let (x, y) = (a.sym_eval(&values).unwrap(), b.sym_eval(&values).unwrap());
        assert_eq!(x, y, "at {at:?}:\n{}\n{}", show(a), show(b));
        let Some(k) = (0..at.len()).rev().find(|&k| at[k] + 1 < bounds[k]) else { return };
        at[k] += 1;
        at[k + 1..].fill(0);
    }
}

/// An expression, readably.
fn show(u: &UOp) -> String {
    if let Some(v) = u.const_value() {
        return match v {
            Scalar::Int(i) => i.to_string(),
            v => format!("{v:?}"),
        };
    }
    if let Some((id, _)) = u.range_arg() {
        return format!("r{id}");
    }
    let s: Vec<String> = u.src().iter().map(show).collect();
    format!("{}({})", u.op().name(), s.join(", "))
}

fn check(u: UOp, expect: UOp, ranges: &[UOp]) {
    let s = u.simplify();
    agree(&u, &s, ranges);
    let expect = expect.simplify();
    assert_eq!(s, expect, "{}\nbecame {}\nnot    {}", show(&u), show(&s), show(&expect));
}

#[test]
fn sums_collect_their_terms() {
    let (i, j) = (range(5, 0), range(7, 1));
    check(&j + &i, &i + &j, &[i.clone(), j.clone()]);
    check((&i * 3) + (&j + &i) + 2 + (&j * -1) + 5, &i * 4 + 7, &[i.clone(), j.clone()]);
    check((&i + 3) - &i, UOp::index_const(3), &[i.clone()]);
    check((&i + &j) * 2 + &j, &i * 2 + &j * 3, &[i.clone(), j.clone()]);
}

#[test]
fn divisions_take_numerators_apart() {
    let (i, j) = (range(5, 0), range(12, 1));
    let both = [i.clone(), j.clone()];
    check((&i * 12 + &j) / 12, i.clone(), &both);
    check((&i * 12 + &j) % 12, j.clone(), &both);
    check(((&i * 12 + &j) / 4) % 3, &j / 4, &both);
    check((&i * 24 + &j) / 36, (&i * 2) / 3, &both);
    check((&j / 2) / 3, &j / 6, &both);
    check((&j % 6) % 3, &j % 3, &both);
    check((&j % 6) / 3, (&j / 3) % 2, &both);
    check((&j / 4) * 4 + &j % 4, j.clone(), &both);
    check((&j / 4) * 12 + (&j % 4) * 3, &j * 3, &both);
    check((&i * 5) % 12 % 5 * 0 + &j, j.clone(), &both);
    check((&j - 20) / 12, (&j + 4) / 12 + -2, &both);
    check((UOp::index_const(11) - &j) % 12, &j * -1 + 11, &both);
    check((&j * -1) / -3, &j / 3, &both);
    check(&i / 0, UOp::index_const(0), &both);
    check(&i % 0, i.clone(), &both);
}

#[test]
fn digits_reunite() {
    let (i, j) = (range(16, 0), range(9, 1));
    let x = &i * 17 + &j;
    let both = [i.clone(), j.clone()];
    check((&x / 12) * 12 + ((&x / 4) % 3) * 4 + &x % 4, x.clone().simplify(), &both);
    check(((&x / 4) % 3) * 4 + &x % 4, (&i * 5 + &j) % 12, &both);
    check((&x / 12) * 3 + (&x / 4) % 3, (&x / 4).simplify(), &both);
}

#[test]
fn comparisons_keep_what_matters() {
    let (i, j) = (range(5, 0), range(12, 1));
    let both = [i.clone(), j.clone()];
    check((&i + 3).lt(&UOp::index_const(5)), i.lt(&UOp::index_const(2)), &both);
    check((&i * 12 + &j).lt(&UOp::index_const(24)), i.lt(&UOp::index_const(2)), &both);
    check((&j / 4).lt(&UOp::index_const(2)), j.lt(&UOp::index_const(8)), &both);
    check((&i * 12 + &j).lt(&UOp::index_const(60)), UOp::bool(true), &both);
    check((&i * 3).lt(&UOp::index_const(7)), i.lt(&UOp::index_const(3)), &both);
    check((UOp::index_const(4) - &i).lt(&UOp::index_const(2)), UOp::index_const(2).lt(&i), &both);
    check(i.ge(&UOp::index_const(2)), UOp::index_const(1).lt(&i), &both);
    check(
        (&i * 12 + &j).eq_(&UOp::index_const(17)),
        i.eq_(&UOp::index_const(1)) & j.eq_(&UOp::index_const(5)),
        &both,
    );
    check(&i.ge(&UOp::index_const(2)) & &i.lt(&UOp::index_const(2)), UOp::bool(false), &both);
    check(&i.ge(&UOp::index_const(2)) & &i.lt(&UOp::index_const(3)), i.eq_(&UOp::index_const(2)), &both);
    check(i.lt(&j) & j.lt(&i), UOp::bool(false), &both);
    check(i.lt(&j) | j.lt(&(&i + 1)), UOp::bool(true), &both);
}

#[test]
fn bounds_are_exact_beyond_f64() {
    // 2a < 2^54 + 1 is a < 2^53 + 1.
    let a = UOp::variable(0, 0, 1 << 60);
    let got = (&a * 2).lt(&UOp::index_const((1 << 54) + 1)).simplify();
    assert_eq!(got, a.lt(&UOp::index_const((1 << 53) + 1)));
}

#[test]
fn data_integers_wrap() {
    let x = UOp::param(0, &monoglot_uop::Shape::SCALAR, DType::I8, None);
    // (x + 100) < 0 must not become x < -100: 100 + 100 wraps.
    let u = (&x + 100).lt(&x.like(0));
    assert_eq!(u.simplify(), u);
    let y = x.cast(DType::I32);
    assert_eq!((&y + 100).lt(&y.like(0)).simplify(), y.lt(&y.like(-100)).simplify());
}
