//! What the simplifier makes of index expressions: known results, and random index maps compared
//! with what they were at every point. Flows in: expressions; flows out: comparisons.

use monoglot_uop::effort::Effort;
use monoglot_uop::{AxisType, DType, Op, ReduceOp, Scalar, UOp};
use rustc_hash::FxHashMap;

fn range(n: i64, id: u32) -> UOp {
    UOp::range(n, id, AxisType::Loop)
}

/// Whether both have one value at every point of these ranges.
fn agree(a: &UOp, b: &UOp, ranges: &[UOp]) {
    let bounds: Vec<i64> = ranges.iter().map(|r| r.vmax() + 1).collect();
    let mut at = vec![0i64; ranges.len()];
    loop {
        let values: FxHashMap<UOp, Scalar> = ranges
            .iter()
            .cloned()
            .zip(at.iter().map(|&v| Scalar::Int(v as i128)))
            .collect();
        let x = a.sym_eval(&values).unwrap();
        let y = b.sym_eval(&values).unwrap();
        assert_eq!(x, y, "at {at:?}:\n{}\n{}", show(a), show(b));
        let Some(k) = (0..at.len()).rev().find(|&k| at[k] + 1 < bounds[k]) else {
            return;
        };
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
    assert_eq!(
        s,
        expect,
        "{}\nbecame {}\nnot    {}",
        show(&u),
        show(&s),
        show(&expect)
    );
}

#[test]
fn sums_collect_their_terms() {
    let i = range(5, 0);
    let j = range(7, 1);
    check(&j + &i, &i + &j, &[i.clone(), j.clone()]);
    check(
        (&i * 3) + (&j + &i) + 2 + (&j * -1) + 5,
        &i * 4 + 7,
        &[i.clone(), j.clone()],
    );
    check((&i + 3) - &i, UOp::index_const(3), &[i.clone()]);
    check((&i + &j) * 2 + &j, &i * 2 + &j * 3, &[i.clone(), j.clone()]);
}

#[test]
fn divisions_take_numerators_apart() {
    let i = range(5, 0);
    let j = range(12, 1);
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
fn quotients_by_great_numbers_come_to_an_end() {
    let r = range(100, 0);
    let ranges = [r.clone()];
    // What is no sum, and may be less than 0.
    let part = r
        .lt(&UOp::index_const(50))
        .select(&UOp::index_const(-7), &(&r * &r));
    let divisors = [
        1 << 29,
        (1 << 30) - 7,
        1 << 30,
        (1 << 31) - 1,
        1 << 31,
        1 << 40,
    ];
    for dtype in [DType::I32, DType::I64, DType::U64, DType::Index] {
        let fits = |n: i64| dtype != DType::I32 || i32::try_from(n).is_ok();
        let signed = dtype != DType::U64;
        for c in divisors.into_iter().filter(|&c| fits(c)) {
            let begins = [-7, 0, 5, c - 50, c / 2, 50 - c, -c, 3 * c - 9];
            for begin in begins
                .into_iter()
                .filter(|&b| fits(b) && (signed || b >= 0))
            {
                for (varies, step) in [(&r, 1), (&r, 4), (&r, -3), (&part, 1), (&part, 4)] {
                    let x = (&(varies * step) + begin).cast(dtype);
                    if !signed && begin < 300 && (step < 0 || *varies == part) {
                        continue;
                    }
                    let q = &x / c;
                    let m = &x % c;
                    let before = Effort::so_far();
                    agree(&q, &q.simplify(), &ranges);
                    agree(&m, &m.simplify(), &ranges);
                    let rewrites = Effort::since(before).rewrites;
                    assert!(rewrites < 100, "{}: {rewrites}", show(&q));
                }
            }
        }
    }
}

#[test]
fn digits_reunite() {
    let i = range(16, 0);
    let j = range(9, 1);
    let x = &i * 17 + &j;
    let both = [i.clone(), j.clone()];
    check(
        (&x / 12) * 12 + ((&x / 4) % 3) * 4 + &x % 4,
        x.clone().simplify(),
        &both,
    );
    check(((&x / 4) % 3) * 4 + &x % 4, (&i * 5 + &j) % 12, &both);
    check((&x / 12) * 3 + (&x / 4) % 3, (&x / 4).simplify(), &both);
}

#[test]
fn comparisons_keep_what_matters() {
    let i = range(5, 0);
    let j = range(12, 1);
    let both = [i.clone(), j.clone()];
    check(
        (&i + 3).lt(&UOp::index_const(5)),
        i.lt(&UOp::index_const(2)),
        &both,
    );
    check(
        (&i * 12 + &j).lt(&UOp::index_const(24)),
        i.lt(&UOp::index_const(2)),
        &both,
    );
    check(
        (&j / 4).lt(&UOp::index_const(2)),
        j.lt(&UOp::index_const(8)),
        &both,
    );
    check(
        (&i * 12 + &j).lt(&UOp::index_const(60)),
        UOp::bool(true),
        &both,
    );
    check(
        (&i * 3).lt(&UOp::index_const(7)),
        i.lt(&UOp::index_const(3)),
        &both,
    );
    check(
        (UOp::index_const(4) - &i).lt(&UOp::index_const(2)),
        UOp::index_const(2).lt(&i),
        &both,
    );
    check(
        i.ge(&UOp::index_const(2)),
        UOp::index_const(1).lt(&i),
        &both,
    );
    check(
        (&i * 12 + &j).eq_(&UOp::index_const(17)),
        i.eq_(&UOp::index_const(1)) & j.eq_(&UOp::index_const(5)),
        &both,
    );
    check(
        &i.ge(&UOp::index_const(2)) & &i.lt(&UOp::index_const(2)),
        UOp::bool(false),
        &both,
    );
    check(
        &i.ge(&UOp::index_const(2)) & &i.lt(&UOp::index_const(3)),
        i.eq_(&UOp::index_const(2)),
        &both,
    );
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
    assert_eq!(
        (&y + 100).lt(&y.like(0)).simplify(),
        y.lt(&y.like(-100)).simplify()
    );
}

/// Numbers that look random, the same in every run.
struct Random(u64);
impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 += 1;
        (monoglot_uop::fold::threefry(self.0, 0x5eed) % n as u64) as usize
    }
}

/// A view, as a map from its index to that of its source.
#[derive(Clone, Debug)]
enum Move {
    Reshape(Vec<i64>, Vec<i64>),
    Permute(Vec<usize>),
    Flip(Vec<bool>, Vec<i64>),
    Shrink(Vec<i64>),
    Pad(Vec<i64>, Vec<i64>),
    Expand(Vec<bool>),
}

fn flat(index: &[UOp], shape: &[i64]) -> UOp {
    let mut out = UOp::index_const(0);
    for (i, n) in index.iter().zip(shape) {
        out = out * *n + i;
    }
    out
}

fn unflat(flat: &UOp, shape: &[i64]) -> Vec<UOp> {
    let mut stride = 1;
    let mut out = Vec::new();
    for n in shape.iter().rev() {
        out.push((flat / stride) % *n);
        stride *= n;
    }
    out.reverse();
    out
}

impl Move {
    fn index(&self, at: &[UOp], gates: &mut Vec<UOp>) -> Vec<UOp> {
        match self {
            Move::Reshape(from, to) => unflat(&flat(at, to), from),
            Move::Permute(order) => {
                let mut out = at.to_vec();
                order.iter().zip(at).for_each(|(&a, i)| out[a] = i.clone());
                out
            }
            Move::Flip(which, shape) => {
                let flip = |((i, f), n): ((&UOp, &bool), &i64)| {
                    if *f { i * -1 + (n - 1) } else { i.clone() }
                };
                at.iter().zip(which).zip(shape).map(flip).collect()
            }
            Move::Shrink(offsets) => at.iter().zip(offsets).map(|(i, o)| i + *o).collect(),
            Move::Pad(offsets, from) => {
                for ((i, o), n) in at.iter().zip(offsets).zip(from) {
                    gates.push(i.lt(&UOp::index_const(*o)).ne_(&UOp::bool(true)));
                    gates.push(i.lt(&UOp::index_const(o + n)));
                }
                at.iter().zip(offsets).map(|(i, o)| i - *o).collect()
            }
            Move::Expand(which) => at
                .iter()
                .zip(which)
                .map(|(i, e)| if *e { UOp::index_const(0) } else { i.clone() })
                .collect(),
        }
    }
}

/// Sizes with this product, in a random order of factors.
fn factors(random: &mut Random, mut n: i64) -> Vec<i64> {
    let mut out = Vec::new();
    while n > 1 && out.len() < 4 {
        let divisors: Vec<i64> = (2..=n).filter(|d| n % d == 0).collect();
        let d = divisors[random.below(divisors.len())];
        out.push(d);
        n /= d;
    }
    out.push(n);
    out
}

/// A random view of something of this shape, and the view's shape.
fn view(random: &mut Random, shape: &[i64], invertible: bool) -> (Move, Vec<i64>) {
    let len: i64 = shape.iter().product();
    match random.below(if invertible { 3 } else { 6 }) {
        0 => {
            let to = factors(random, len);
            (Move::Reshape(shape.to_vec(), to.clone()), to)
        }
        1 => {
            let mut order: Vec<usize> = (0..shape.len()).collect();
            (1..order.len()).for_each(|i| order.swap(i, random.below(i + 1)));
            let to = order.iter().map(|&a| shape[a]).collect();
            (Move::Permute(order), to)
        }
        2 => (
            Move::Flip(
                shape.iter().map(|_| random.below(2) == 0).collect(),
                shape.to_vec(),
            ),
            shape.to_vec(),
        ),
        3 => {
            let to: Vec<i64> = shape
                .iter()
                .map(|n| 1 + random.below(*n as usize) as i64)
                .collect();
            let at = shape
                .iter()
                .zip(&to)
                .map(|(n, m)| random.below((n - m + 1) as usize) as i64)
                .collect();
            (Move::Shrink(at), to)
        }
        4 if len < 40 => {
            let at: Vec<i64> = shape.iter().map(|_| random.below(3) as i64).collect();
            let to = shape
                .iter()
                .zip(&at)
                .map(|(n, o)| n + o + random.below(2) as i64)
                .collect();
            (Move::Pad(at, shape.to_vec()), to)
        }
        _ => {
            let which: Vec<bool> = shape.iter().map(|n| *n == 1 && len < 60).collect();
            let to = shape
                .iter()
                .zip(&which)
                .map(|(n, e)| if *e { 3 } else { *n })
                .collect();
            (Move::Expand(which), to)
        }
    }
}

#[test]
fn random_index_maps_keep_their_values() {
    let mut random = Random(1);
    for _ in 0..400 {
        let len = [12, 24, 30, 36][random.below(4)];
        let first = factors(&mut random, len);
        let mut shape = first.clone();
        let mut moves = Vec::new();
        for _ in 0..1 + random.below(6) {
            let (m, to) = view(&mut random, &shape, false);
            if to.iter().product::<i64>() > 200 {
                continue;
            }
            moves.push(m);
            shape = to;
        }
        let ranges: Vec<UOp> = shape
            .iter()
            .enumerate()
            .map(|(i, n)| range(*n, i as u32))
            .collect();
        let mut at = ranges.clone();
        let mut gates = Vec::new();
        // As rangeify does it: each step is simplified before the next.
        let mut simple = ranges.clone();
        let mut simple_gates: Vec<UOp> = Vec::new();
        for m in moves.iter().rev() {
            at = m.index(&at, &mut gates);
            let mut own = Vec::new();
            simple = m
                .index(&simple, &mut own)
                .iter()
                .map(UOp::simplify)
                .collect();
            simple_gates.extend(own.iter().map(UOp::simplify));
        }
        let whole = flat(&at, &first);
        agree(&whole, &whole.simplify(), &ranges);
        agree(&whole, &flat(&simple, &first).simplify(), &ranges);
        let gate = gates.into_iter().fold(UOp::bool(true), |a, b| a & b);
        agree(&gate, &gate.simplify(), &ranges);
        agree(
            &gate,
            &simple_gates
                .into_iter()
                .fold(UOp::bool(true), |a, b| a & b)
                .simplify(),
            &ranges,
        );
        // With the gate known, the index may only change where the gate does not hold.
        let gated = whole.simplify().valid(&gate.simplify());
        let known = monoglot_uop::rules::kernel().rewrite(&gated).unwrap();
        let or_else = |u: &UOp| {
            if u.src().len() == 3 && u.src()[2].is_invalid() {
                u.src()[0].select(&u.src()[1], &UOp::index_const(-7))
            } else {
                u.clone()
            }
        };
        let a = gate.select(&whole, &UOp::index_const(-7));
        let b = or_else(&known);
        if !gate.simplify().is_bool(false) {
            agree(&a, &b, &ranges);
        }
    }
}

#[test]
fn a_view_and_its_inverse_vanish() {
    let mut random = Random(77);
    let mut left = 0;
    for _ in 0..300 {
        let len = [12, 24, 30, 36, 64][random.below(5)];
        let first = factors(&mut random, len);
        let mut shape = first.clone();
        let mut moves = Vec::new();
        let mut back = Vec::new();
        for _ in 0..1 + random.below(4) {
            let (m, to) = view(&mut random, &shape, true);
            back.push(match &m {
                Move::Reshape(from, to) => Move::Reshape(to.clone(), from.clone()),
                Move::Permute(order) => {
                    let mut inverse = order.clone();
                    order.iter().enumerate().for_each(|(i, &a)| inverse[a] = i);
                    Move::Permute(inverse)
                }
                m => m.clone(),
            });
            moves.push(m);
            shape = to;
        }
        moves.extend(back.into_iter().rev());
        // What the kernel rules make of a RANGE of one step is 0.
        let axis = |(i, n): (usize, &i64)| {
            if *n == 1 {
                UOp::index_const(0)
            } else {
                range(*n, i as u32)
            }
        };
        let ranges: Vec<UOp> = first.iter().enumerate().map(axis).collect();
        let mut at = ranges.clone();
        for m in moves.iter().rev() {
            at = m
                .index(&at, &mut Vec::new())
                .iter()
                .map(UOp::simplify)
                .collect();
        }
        let open: Vec<UOp> = ranges
            .iter()
            .filter(|r| r.as_int().is_none())
            .cloned()
            .collect();
        agree(&flat(&at, &first), &flat(&ranges, &first), &open);
        if at != ranges {
            left += 1;
            println!(
                "{moves:?}\n{}",
                at.iter().map(show).collect::<Vec<_>>().join("\n")
            );
        }
    }
    assert_eq!(left, 0, "views and their inverses that leave something");
}

/// Found by random expressions: two variables that look alike to the canonical order.
#[test]
fn equalities_of_alike_variables_settle() {
    let a = UOp::variable(0, -100, 100);
    let b = UOp::variable(1, -100, 100);
    for u in [
        (&b * 27806 + 24159).eq_(&a),
        a.eq_(&(&b * 27806 + 24159)),
        (&b + 3).eq_(&a),
        (&a - &b).ne_(&b),
    ] {
        let s = u.simplify();
        assert_eq!(monoglot_uop::rules::symbolic().rewrite(&u).unwrap(), s);
        assert_eq!(s.simplify(), s);
    }
}

/// Found by the rule check: an index from data can be as large as 64 bits, and one more is too large.
#[test]
fn no_sum_is_made_up_that_leaves_64_bits() {
    let e = UOp::param(0, &monoglot_uop::Shape::SCALAR, DType::I64, None).cast(DType::Index);
    let r = range(11, 0);
    let most = [
        (e.src()[0].clone(), Scalar::Int(i64::MAX as i128)),
        (r.clone(), Scalar::Int(5)),
    ];
    let values: FxHashMap<UOp, Scalar> = most.into_iter().collect();
    for u in [e.ge(&r), (&e + -3).ne_(&(&r * -1)), (&e * -1) / 31] {
        let parts = u.simplify().toposort();
        for part in parts
            .iter()
            .filter(|p| p.dtype() == DType::Index && p.op() != Op::Stack)
        {
            let v = part.sym_eval(&values).unwrap();
            assert!(v.as_int().is_some(), "{v:?} in {}", show(&u.simplify()));
        }
    }
}

/// Products of a counter and lengths that vary, each as often as one likes, have one form.
#[test]
fn products_of_lengths_have_one_form() {
    let lengths = [UOp::variable(0, 1, 64), UOp::variable(1, 1, 8)];
    let [n, m] = &lengths;
    for r in [range(2, 0), range(7, 5)] {
        let products = [
            vec![&r, n, n],
            vec![n, n, &r],
            vec![&r, n, m, n],
            vec![n, &r, m, m],
            vec![n, &r, n, &r],
        ];
        for mut factors in products {
            let last = factors.len() - 1;
            let mut forms = Vec::new();
            for turn in 0..factors.len() {
                factors.rotate_left(1);
                let left = factors[1..].iter().fold(factors[0].clone(), |a, b| a * *b);
                let right = factors[..last]
                    .iter()
                    .rev()
                    .fold(factors[last].clone(), |a, b| *b * &a);
                forms.extend([left.simplify(), right.simplify()]);
                assert!(
                    forms.iter().all(|f| *f == forms[0]),
                    "{turn}: {}",
                    show(&left)
                );
            }
        }
    }
}

/// How many turns of a loop have a remainder above a number, over two periods: as the gradient of a roll asks.
#[test]
fn counts_of_remainders_need_no_loop() {
    for (begin, n, above) in [(4, 9, 3), (0, 9, 2), (3, 7, 5), (1, 12, 11)] {
        let i = range(4, 0);
        let k = UOp::range(5i64, 1, AxisType::Reduce);
        let remainder = |k: &UOp| UOp::index_const(above).lt(&((&i + k + begin) % n));
        let one = UOp::int(1, DType::Index);
        let counted = remainder(&k).select(&one, &one.like(0));
        let sum = counted.reduce_ranges(ReduceOp::Add, std::slice::from_ref(&k));
        let sum = monoglot_uop::rules::kernel().rewrite(&sum).unwrap();
        assert!(!sum.ops_below().contains(Op::Reduce), "{}", show(&sum));
        let all = (0..5).map(|k| remainder(&UOp::index_const(k)).select(&one, &one.like(0)));
        agree(&all.reduce(|a, b| a + b).unwrap(), &sum, &[i]);
    }
}
