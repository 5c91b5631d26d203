//! Stratified checks of every decomposition, which folds to its result where its argument is a
//! constant. The reference is the platform's f64; `xtask ulp` does all 2^32 arguments of f32. Flows
//! in: arguments of every size and sign; flows out: a failed test where an error is greater than
//! the op table says.

use crate::native::Native;
use crate::opt::tests::support::target;
use monoglot_uop::op::Transcendental;
use monoglot_uop::{Arg, DType, Op, OpSet, Scalar, Shape, Target, UOp, fold};

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn uniform(&mut self, a: f64, b: f64) -> f64 {
        a + (b - a) * (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn with_fma() -> Target {
    Target {
        native: OpSet::of(&[Op::MulAcc, Op::Sub, Op::CmpEq]),
        ..target(false)
    }
}

fn run(t: &Target, op: Op, d: DType, args: &[f64]) -> f64 {
    let args: Vec<UOp> = args.iter().map(|&x| UOp::float(x, d)).collect();
    let out = Native { target: t }.op(op, &args).unwrap();
    out.const_value()
        .unwrap_or_else(|| panic!("{op:?} does not fold: {out:?}"))
        .to_f64()
}

/// Error in units of the last place of the format, where `want` is better known.
fn ulps(got: f64, want: f64, d: DType) -> f64 {
    let (mantissa, least, most) = if d == DType::F32 {
        (23, -126, 127)
    } else {
        (52, -1022, 1023)
    };
    let near = d.from_f64(want).to_f64();
    if near.is_nan() || got.is_nan() {
        return if near.is_nan() && got.is_nan() {
            0.0
        } else {
            f64::INFINITY
        };
    }
    if near.to_bits() == got.to_bits() {
        return 0.0;
    }
    if near == 0.0 && got == 0.0 || near.is_infinite() && want.is_infinite() {
        return f64::INFINITY;
    }
    let e = (((want.to_bits() >> 52) & 0x7ff) as i32 - 1023).clamp(least, most);
    let got = if got.is_infinite() {
        2f64.powi(most).copysign(got) * 2.0
    } else {
        got
    };
    (got - want).abs() / 2f64.powi(e) * 2f64.powi(mantissa)
}

const SPECIAL: [f64; 30] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    -2.0,
    3.0,
    -3.0,
    0.5,
    -0.5,
    1.5,
    0.9999999,
    -0.9999999,
    1.0000001,
    7.0,
    1e-40,
    -1e-40,
    1e30,
    1e38,
    16777215.0,
    -16777217.0,
    9007199254740993.0,
    5e-324,
    1.7e308,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    128.0,
    -150.0,
    1e-7,
];

fn strata(rng: &mut Rng, d: DType) -> Vec<f64> {
    let bits =
        |r: u64| Scalar::from_bits(if d == DType::F32 { r & 0xffff_ffff } else { r }, d).to_f64();
    let mut all: Vec<f64> = SPECIAL.iter().map(|&x| d.from_f64(x).to_f64()).collect();
    for _ in 0..400 {
        for x in [
            bits(rng.next()),
            rng.uniform(-152.0, 130.0),
            rng.uniform(-4.0, 4.0),
            1.0 + rng.uniform(-1e-4, 1e-4),
            (rng.next() % 100_000) as f64 * std::f64::consts::PI,
        ] {
            all.push(d.from_f64(x).to_f64());
        }
    }
    all
}

/// What the functions of a float give, as f64.
fn functions(x: f64) -> Vec<(Op, f64)> {
    let all = Transcendental::ALL.iter();
    all.map(|&f| (f.op(), fold::transcendental(f, x)))
        .chain([(Op::Sqrt, x.sqrt())])
        .collect()
}

#[test]
fn powers_of_what_is_at_most_0_are_within_their_bound() {
    let t = with_fma();
    let native = Native { target: &t };
    let mut rng = Rng(2);
    for (d, slack) in [(DType::F32, 0.0), (DType::F64, 1.0)] {
        let below = (0..2000).map(|_| rng.uniform(-1100.0, 0.0));
        let single = (0..4000).map(|i| -f64::from(i) * 0.04);
        let mut all: Vec<f64> = strata(&mut Rng(3), d);
        all.extend(below.chain(single).map(|x| d.from_f64(x).to_f64()));
        // Every second power, those of subnormals among them.
        all.extend((0..2200).map(|i| -f64::from(i) * 0.5));
        for x in all.into_iter().filter(|x| x.is_nan() || *x <= 0.0) {
            let out = super::math(&native, &UOp::float(x, d));
            let out = out.unwrap().exp2_below(&UOp::float(x, d));
            let got = out.const_value().unwrap().to_f64();
            let bound = Op::Exp2.traits().ulps + slack;
            let error = ulps(got, fold::transcendental(Transcendental::Exp2, x), d);
            assert!(error <= bound, "{d} {x:e}: {got:e}, {error} ulp");
        }
    }
}

#[test]
fn powers_of_what_is_at_most_0_are_those_of_anything_to_the_bit() {
    let t = with_fma();
    let native = Native { target: &t };
    let mut rng = Rng(4);
    for d in [DType::F32, DType::F64] {
        let mut all: Vec<f64> = strata(&mut Rng(5), d);
        all.extend((0..4000).map(|_| d.from_f64(rng.uniform(-1200.0, 0.0)).to_f64()));
        all.extend((0..2400).map(|i| -f64::from(i) * 0.5));
        for x in all.into_iter().filter(|x| x.is_nan() || *x <= 0.0) {
            for by in [1.0, std::f64::consts::LOG2_E, 0.5, 1e-3, 1e300] {
                let factors = [x, by].map(|v| UOp::float(v, d));
                let product = UOp::new(Op::Mul, factors.to_vec(), Arg::None);
                let argument = if by == 1.0 { &factors[0] } else { &product };
                let math = super::math(&native, argument).unwrap();
                let all = [math.exp2(argument), math.exp2_below(argument)];
                let [one, other] = all.map(|u| u.simplify().const_value().unwrap().to_f64());
                let same = one.to_bits() == other.to_bits() || one.is_nan() && other.is_nan();
                assert!(same, "{d} {x:e} times {by}: {one:e}, {other:e}");
            }
        }
    }
}

#[test]
fn every_stratum_is_within_its_bound() {
    let t = with_fma();
    let mut rng = Rng(1);
    for (d, slack) in [(DType::F32, 0.0), (DType::F64, 1.0)] {
        for x in strata(&mut rng, d) {
            for (op, want) in functions(x) {
                let got = run(&t, op, d, &[x]);
                let bound = op.traits().ulps;
                assert!(
                    ulps(got, want, d) <= bound + slack,
                    "{op:?} {d} {x:e}: {got:e}, not {want:e}"
                );
            }
        }
    }
}

/// The greatest numbers of each binade are where the digits of 1/pi that a range begins with have most to do.
#[test]
fn sines_are_within_their_bound_at_the_end_of_each_binade() {
    let fused = with_fma();
    let plain = target(false);
    let mut rng = Rng(6);
    for e in -3..128 {
        let all = (0..40).map(|_| rng.uniform(1.98, 2.0) * 2f64.powi(e));
        for x in all
            .map(|x| DType::F32.from_f64(x).to_f64())
            .filter(|x| x.is_finite())
        {
            for t in [&fused, &plain] {
                let got = run(t, Op::Sin, DType::F32, &[-x]);
                let off = ulps(got, (-x).sin(), DType::F32);
                assert!(off <= Op::Sin.traits().ulps, "{x:e}: {got:e}, {off} ulp");
            }
        }
    }
}

#[test]
fn powers_are_right_for_zeros_infinities_and_negative_bases() {
    let t = with_fma();
    let mut rng = Rng(3);
    let mut pairs: Vec<(f64, f64)> = SPECIAL
        .iter()
        .flat_map(|&x| SPECIAL.map(|y| (x, y)))
        .collect();
    for _ in 0..300 {
        let x = f32::from_bits(rng.next() as u32 & 0x7fff_ffff) as f64;
        pairs.push((x, rng.uniform(-150.0, 128.0) / x.log2()));
        pairs.push((-rng.uniform(0.5, 3.0), (rng.next() % 400) as f64 - 200.0));
        pairs.push((-rng.uniform(0.5, 3.0), rng.uniform(-100.0, 100.0)));
    }
    for d in [DType::F32, DType::F64] {
        for &(x, y) in &pairs {
            let x = d.from_f64(x).to_f64();
            let y = d.from_f64(y).to_f64();
            let got = run(&t, Op::Pow, d, &[x, y]);
            let want = x.powf(y);
            assert!(
                ulps(got, want, d) <= 2.0,
                "{x:e}^{y:e} in {d}: {got:e}, not {want:e}"
            );
        }
    }
}

#[test]
fn without_fused_multiply_add_the_errors_stay_small() {
    let t = Target {
        native: OpSet::EMPTY,
        ..target(false)
    };
    let mut rng = Rng(5);
    for x in strata(&mut rng, DType::F32) {
        for (op, want) in functions(x).into_iter().filter(|(op, _)| *op != Op::Sqrt) {
            let got = run(&t, op, DType::F32, &[x]);
            let bound = op.traits().ulps;
            assert!(
                ulps(got, want, DType::F32) <= bound + 0.7,
                "{op:?} {x:e}: {got:e}, not {want:e}"
            );
        }
    }
}

#[test]
fn threefry_is_that_of_fold() {
    let t = with_fma();
    let mut rng = Rng(9);
    for _ in 0..50 {
        let c = rng.next();
        let k = rng.next();
        let word = |x: u64| UOp::constant(Scalar::Int(x as i128), DType::U64);
        let got = Native { target: &t }
            .op(Op::Threefry, &[word(c), word(k)])
            .unwrap();
        assert_eq!(
            got.const_value(),
            Some(Scalar::Int(fold::threefry(c, k) as i128))
        );
    }
}

#[test]
fn what_a_target_lacks_is_made_of_primitives() {
    let bare = Target {
        native: OpSet::EMPTY,
        ..target(false)
    };
    let legal = Native { target: &bare };
    let leaves = OpSet::of(&[Op::Param, Op::Const, Op::Index, Op::Stack]);
    let allowed = OpSet::PRIMITIVES.union(leaves);
    for &op in Op::ALL
        .iter()
        .filter(|op| OpSet::ELEMENTWISE.contains(**op))
    {
        // Floor divisions of integers go by the intervals of the node as it was: `integer` makes them.
        let dtypes: &[DType] = match op {
            Op::Idiv | Op::Mod => &[DType::F32, DType::F64],
            Op::Pow => &[DType::F32, DType::F64],
            _ => &[DType::I32, DType::U64, DType::F32, DType::F64],
        };
        for &d in dtypes.iter().filter(|d| op.traits().operands.take(**d)) {
            let value =
                |k: u64| UOp::param(k, &Shape::of(&[4]), d, None).at(&[UOp::index_const(0)]);
            let mut s: Vec<UOp> = (0..op.arity().0 as u64).map(value).collect();
            if op == Op::Where {
                s[0] = s[1].lt(&s[2]);
            }
            if op == Op::Cast {
                continue;
            }
            let made = legal
                .op(op, &s)
                .unwrap_or_else(|e| panic!("{op:?} {d}: {e}"));
            let below = made.ops_below();
            let foreign: Vec<&Op> = Op::ALL
                .iter()
                .filter(|&&o| below.contains(o) && !allowed.contains(o))
                .collect();
            assert!(foreign.is_empty(), "{op:?} of {d} needs {foreign:?}");
        }
    }
}
