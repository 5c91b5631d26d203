//! Functions of real numbers on UOps: flows in, a value of f32 or f64 (narrower floats come as f32);
//! out, a composition of the dialect's ops whose error is a few units in the last place, also at the
//! ends of the range, at infinities and for NaN.
//!
//! Coefficients are minimax fits of our own. A function whose derivative has a simple form says so
//! with a `Shortcut`; the parts would give the same values.

use crate::coefficients::*;
use crate::promote::constant_of;
use monoglot_uop::gradient::{cos as cosine, scale};
use monoglot_uop::node::{Flow, Rule, Shortcut};
use monoglot_uop::{DType, Op, UOp};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, FRAC_PI_2, FRAC_PI_4, LN_2, LOG2_E, PI};

/// A value whose derivative by `inputs` is known; the rule is told them and `params`.
pub(crate) fn known(y: UOp, inputs: &[&UOp], params: &[i64], rule: Rule) -> UOp {
    let inputs = inputs.iter().map(|&u| u.clone()).collect();
    y.with_shortcut(Shortcut {
        inputs,
        params: params.into(),
        rule,
    })
}

/// The input of a derivative's rule, and the value computed from it once more: of the same bits where one is looked for
/// in the other, also where only one of the two is stored and the other computed by another kernel than before.
pub(crate) fn afresh(f: &Flow<'_>) -> (UOp, UOp) {
    let x = f.inputs[0].unary(Op::Detach);
    let map = [(f.inputs[0].clone(), x.clone())].into_iter().collect();
    let y = f.y.substitute(&map);
    (x, y)
}

/// A function of x whose derivative is known: `known!(value, x, |y, x, g| what flows to x)`.
macro_rules! known {
    ($value:expr, $input:expr, |$y:pat_param, $x:pat_param, $g:pat_param| $d:expr) => {
        known($value, &[$input], &[], |f| {
            let $y = f.y;
            let $x = &f.inputs[0];
            let $g = f.g;
            Ok(vec![Some($d)])
        })
    };
}

/// Σ cᵢ xⁱ by Horner's rule, every step rounded once.
fn polynomial(x: &UOp, c: &[f64]) -> UOp {
    let (last, rest) = c.split_last().expect("coefficients");
    rest.iter()
        .rev()
        .fold(x.like(*last), |acc, &c| acc.mul_acc(x, &x.like(c)))
}

fn by_width(x: &UOp, single: &[f64], double: &[f64]) -> UOp {
    polynomial(
        x,
        if x.dtype() == DType::F64 {
            double
        } else {
            single
        },
    )
}

/// 1/x.
pub(crate) fn recip(x: &UOp) -> UOp {
    x.unary(Op::Recip)
}

/// a/b.
pub(crate) fn div(a: &UOp, b: &UOp) -> UOp {
    a.binary(Op::Div, b)
}

/// The bits of a float as an integer, which has its sign.
pub(crate) fn word(x: &UOp) -> UOp {
    x.bitcast([DType::I8, DType::I16, DType::I32, DType::I64][x.dtype().bytes().ilog2() as usize])
}

/// |x|, with derivative 0 at 0; of −0 it is 0.
pub(crate) fn abs(x: &UOp) -> UOp {
    if x.dtype().is_unsigned() || x.dtype() == DType::Bool {
        return x.clone();
    }
    let y = if x.dtype().is_float() {
        let w = word(x);
        (&w & &w.like(i64::MAX >> (64 - w.dtype().bits()))).bitcast(x.dtype())
    } else {
        x.max_(&x.unary(Op::Neg))
    };
    known!(y, x, |_, x, g| g * &sign(x))
}

/// −1, 0 or 1; 0 for NaN.
pub(crate) fn sign(x: &UOp) -> UOp {
    let zero = x.like(0);
    let up = zero.lt(x).select(&x.like(1), &zero);
    if x.dtype().is_unsigned() {
        up
    } else {
        x.lt(&zero).select(&x.like(-1), &up)
    }
}

/// `y` with the sign of x, also where that is −0 (y ≥ 0).
fn signed(y: &UOp, x: &UOp) -> UOp {
    let sign = word(x);
    let sign = &sign & &sign.like(i64::MIN >> (64 - sign.dtype().bits()));
    (word(y) | sign).bitcast(x.dtype())
}

/// e^x where speed counts and x is not far from 0: the error grows with |x|, to 5·10⁻⁶ at the end of
/// f32's range where the target does not contract x·log₂e with the reduction inside EXP2.
pub(crate) fn exp_near(x: &UOp) -> UOp {
    known!((x * LOG2_E).unary(Op::Exp2), x, |y, _, g| g * y)
}

/// What ln 2 is more than the nearest f64.
const LN_2_REST: f64 = 2.319_046_813_846_299_6e-17;

/// e^x: 2^t with t = x·log₂e rounded, corrected by what that rounding lost, x − t·ln 2, for which ln 2 is in two parts.
pub(crate) fn exp(x: &UOp) -> UOp {
    let t = x.mul_rounded(&x.like(LOG2_E));
    let rest = match x.dtype() {
        DType::F64 => LN_2_REST,
        _ => LN_2 - f64::from(LN_2 as f32),
    };
    let lost = t.mul_acc(&x.like(-LN_2), x);
    let lost = t.mul_acc(&x.like(-rest), &lost);
    // As much as 1 is lost only where 2^t is 0 or ∞ already (there it may also be ∞ − ∞).
    let fix = (&lost * &lost)
        .lt(&x.like(1.0))
        .select(&(&lost + 1.0), &x.like(1.0));
    known!(t.unary(Op::Exp2) * fix, x, |y, _, g| g * y)
}

/// ln x.
pub(crate) fn log(x: &UOp) -> UOp {
    known!(x.unary(Op::Log2) * LN_2, x, |_, x, g| div(g, x))
}

/// ln(1 + x): the logarithm of the rounded sum, plus what the rounding lost.
pub(crate) fn log1p(x: &UOp) -> UOp {
    let u = x + 1.0;
    let lost = div(&(x - &(&u - 1.0)), &u);
    let y = log(&u) + lost.eq_(&lost).select(&lost, &x.like(0.0));
    known!(y, x, |_, x, g| div(g, &(x + 1.0)))
}

/// e^x − 1.
pub(crate) fn expm1(x: &UOp) -> UOp {
    let p = by_width(x, EXPM1_SINGLE, EXPM1_DOUBLE);
    let near = p.mul_acc(&(x * x), x);
    let y = abs(x).lt(&x.like(0.5)).select(&near, &(exp(x) - 1.0));
    // Not y + 1, which has no digits of eˣ left where that is small.
    known!(y, x, |_, x, g| g * &exp(x))
}

/// 1 / (1 + e^−x), from e^−|x|, which does not overflow.
pub(crate) fn sigmoid(x: &UOp) -> UOp {
    let below = x.lt(&x.like(0.0));
    let e = exp_near(&below.select(x, &x.unary(Op::Neg)));
    let y = div(&below.select(&e, &x.like(1.0)), &(&e + 1.0));
    known!(y, x, |y, _, g| g * &(y * &(y.like(1.0) - y)))
}

/// tanh x: in f32 a rational function of x, in f64 from e^(−2|x|) − 1.
pub(crate) fn tanh(x: &UOp) -> UOp {
    let y = if x.dtype() == DType::F64 {
        let t = expm1(&(abs(x) * -2.0));
        signed(&div(&abs(&t), &(&t + 2.0)), x)
    } else {
        // The quotient at the limit is 1 exactly, fused or not.
        let c = clamped(x, 9.07);
        let u = &c * &c;
        div(&(c * polynomial(&u, TANH_P)), &polynomial(&u, TANH_Q))
    };
    known!(y, x, |y, _, g| g * &(y.like(1.0) - &(y * y)))
}

/// x between −limit and limit; NaN stays.
fn clamped(x: &UOp, limit: f64) -> UOp {
    let low = x.lt(&x.like(-limit)).select(&x.like(-limit), x);
    x.like(limit).lt(&low).select(&x.like(limit), &low)
}

/// The error function: in f32 a rational function of x; in f64 a series in x² below 1 and e^(−x²)
/// times a polynomial in 1/(1 + x/2) above.
pub(crate) fn erf(x: &UOp) -> UOp {
    let y = if x.dtype() == DType::F64 {
        let a = abs(&clamped(x, 6.0));
        let u = &clamped(x, 1.0);
        let near = u * &polynomial(&(u * u), ERF_NEAR);
        let t = recip(&a.mul_acc(&x.like(0.5), &x.like(1.0))) - 0.45;
        let far = x.like(1.0) - exp(&(&a * &a).unary(Op::Neg)) * polynomial(&t, ERFC_FAR);
        a.lt(&x.like(1.0)).select(&near, &signed(&far, x))
    } else {
        let c = clamped(x, 4.0);
        let u = &c * &c;
        // The quotient is a unit in the last place beyond 1 where it is nearly that.
        clamped(
            &div(&(c * polynomial(&u, ERF_P)), &polynomial(&u, ERF_Q)),
            1.0,
        )
    };
    known!(y, x, |_, x, g| scale(
        &(g * &exp(&(x * x).unary(Op::Neg))),
        FRAC_2_SQRT_PI
    ))
}

/// cos x.
pub(crate) fn cos(x: &UOp) -> UOp {
    known!(cosine(x), x, |_, x, g| scale(
        &(g * &x.unary(Op::Sin)),
        -1.0
    ))
}

/// tan x: the cosine as sin 2x / (2 sin x), which is exact to the last bits also next to poles and far out.
/// Where 2x overflows it is 1 − 2 sin²(x/2), which is not next to poles.
pub(crate) fn tan(x: &UOp) -> UOp {
    let s = x.unary(Op::Sin);
    let twice = x * 2.0;
    let far = abs(&twice).eq_(&x.like(f64::INFINITY));
    let t = far.select(&(x * 0.5), &twice).unary(Op::Sin);
    let cos = far.select(
        &(&t * &t).mul_acc(&x.like(-2.0), &x.like(1.0)),
        &div(&t, &(&s * 2.0)),
    );
    let y = s.eq_(&s.like(0.0)).select(&s, &div(&s, &cos));
    known!(y, x, |y, _, g| g * &((y * y) + 1.0))
}

/// arctan x: arguments above 1 by their reciprocal, above tan(π/8) turned by π/4.
pub(crate) fn atan(x: &UOp) -> UOp {
    let a = abs(x);
    let over = x.like(1.0).lt(&a);
    let t = over.select(&recip(&a), &a);
    let mid = x.like(0.41421356237309503).lt(&t);
    let u = mid.select(&div(&(&t - 1.0), &(&t + 1.0)), &t);
    let z = &u * &u;
    let p = by_width(&z, ATAN_SINGLE, ATAN_DOUBLE);
    let r = p.mul_acc(&(&z * &u), &u) + mid.select(&x.like(FRAC_PI_4), &x.like(0.0));
    let y = signed(&over.select(&(x.like(FRAC_PI_2) - &r), &r), x);
    known!(y, x, |_, x, g| div(g, &((x * x) + 1.0)))
}

/// For asin and acos: whether |x| > 1/2, and arcsin |x| there halved, as arcsin √((1 − |x|)/2).
fn arc(x: &UOp) -> (UOp, UOp) {
    let a = abs(x);
    let big = x.like(0.5).lt(&a);
    let z = big.select(&a.mul_acc(&x.like(-0.5), &x.like(0.5)), &(&a * &a));
    let s = big.select(&z.unary(Op::Sqrt), &a);
    let p = by_width(&z, ASIN_SINGLE, ASIN_DOUBLE);
    (big, p.mul_acc(&(&z * &s), &s))
}

/// arcsin x.
pub(crate) fn asin(x: &UOp) -> UOp {
    let (big, p) = arc(x);
    let y = signed(
        &big.select(&p.mul_acc(&x.like(-2.0), &x.like(FRAC_PI_2)), &p),
        x,
    );
    known!(y, x, |_, x, g| div(g, &below_one(x).unary(Op::Sqrt)))
}

/// arccos x, exact near 1.
pub(crate) fn acos(x: &UOp) -> UOp {
    let (big, p) = arc(x);
    let twice = &p * 2.0;
    let below = x.lt(&x.like(0.0));
    let far = below.select(&(x.like(PI) - &twice), &twice);
    let near = x.like(FRAC_PI_2) - &signed(&p, x);
    known!(big.select(&far, &near), x, |_, x, g| scale(
        &div(g, &below_one(x).unary(Op::Sqrt)),
        -1.0
    ))
}

/// 1 − x², by its factors.
fn below_one(x: &UOp) -> UOp {
    (x.like(1.0) - x) * (x + 1.0)
}

/// sinh x: from e^|x| − 1 where e^|x| is finite, and beyond from e^(|x|/2) squared.
pub(crate) fn sinh(x: &UOp) -> UOp {
    let a = abs(x);
    let t = expm1(&clamped(&a, 20.0));
    let near = (&t + &div(&t, &(&t + 1.0))) * 0.5;
    let y = signed(&a.lt(&x.like(20.0)).select(&near, &half_exp(&a)), x);
    known!(y, x, |_, x, g| g * &cosh(x))
}

/// cosh x.
pub(crate) fn cosh(x: &UOp) -> UOp {
    let a = abs(x);
    let e = exp(&clamped(&a, 20.0));
    let near = (&e + &recip(&e)) * 0.5;
    let y = a.lt(&x.like(20.0)).select(&near, &half_exp(&a));
    known!(y, x, |_, x, g| g * &sinh(x))
}

/// e^a / 2, finite as long as it can be.
fn half_exp(a: &UOp) -> UOp {
    let h = exp(&(a * 0.5));
    (&h * 0.5) * h
}

/// arsinh x.
pub(crate) fn asinh(x: &UOp) -> UOp {
    let a = abs(x);
    let s = a.mul_acc(&a, &x.like(1.0)).unary(Op::Sqrt);
    let near = log1p(&(&a + &div(&(&a * &a), &(s + 1.0))));
    let y = signed(&a.lt(&x.like(1e8)).select(&near, &(log(&a) + LN_2)), x);
    known!(y, x, |_, x, g| div(
        g,
        &x.mul_acc(x, &x.like(1.0)).unary(Op::Sqrt)
    ))
}

/// arcosh x.
pub(crate) fn acosh(x: &UOp) -> UOp {
    let t = x - 1.0;
    // Two roots: their product is NaN below 1, where (t + 2)·t is positive again.
    let near = log1p(&(&t + &((&t + 2.0).unary(Op::Sqrt) * t.unary(Op::Sqrt))));
    let y = x.lt(&x.like(1e8)).select(&near, &(log(x) + LN_2));
    known!(y, x, |_, x, g| div(
        g,
        &((x - 1.0).unary(Op::Sqrt) * (x + 1.0).unary(Op::Sqrt))
    ))
}

/// artanh x.
pub(crate) fn atanh(x: &UOp) -> UOp {
    let a = abs(x);
    let y = signed(&(log1p(&div(&(&a * 2.0), &(x.like(1.0) - &a))) * 0.5), x);
    known!(y, x, |_, x, g| div(g, &below_one(x)))
}

/// ln(1 + e^x).
pub(crate) fn softplus(x: &UOp) -> UOp {
    let zero = x.like(0.0);
    let y = x.lt(&zero).select(&zero, x) + log1p(&exp(&abs(x).unary(Op::Neg)));
    known!(y, x, |_, x, g| g * &sigmoid(x))
}

/// x · Φ(x), Φ the normal distribution's.
pub(crate) fn gelu(x: &UOp) -> UOp {
    (x * 0.5) * (erf(&(x * FRAC_1_SQRT_2)) + 1.0)
}

/// gelu's approximation by tanh(√(2/π)·(x + 0.044715·x³)).
pub(crate) fn gelu_tanh(x: &UOp) -> UOp {
    let c = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
    let inner = (x * x).mul_acc(&x.like(0.044715 * c), &x.like(c)) * x;
    (x * 0.5) * (tanh(&inner) + 1.0)
}

/// Toward −∞.
pub(crate) fn floor(x: &UOp) -> UOp {
    let t = x.unary(Op::Trunc);
    x.lt(&t).select(&(&t - 1.0), &t)
}

/// Toward ∞.
pub(crate) fn ceil(x: &UOp) -> UOp {
    let t = x.unary(Op::Trunc);
    t.lt(x).select(&(&t + 1.0), &t)
}

/// To the nearest integer, halves to the even one: beside a power of two whose last place is 1 nothing else fits.
pub(crate) fn round(x: &UOp) -> UOp {
    let places = if x.dtype() == DType::F64 { 52 } else { 23 };
    let whole = x.like(2f64.powi(places));
    let size = abs(x);
    let near = signed(&(&(&size + &whole) - &whole), x);
    let y = size.lt(&whole).select(&near, x);
    known!(y, x, |_, x, _| x.like(0.0).broadcast(x.shape()))
}

/// The remainder of truncated division, with the sign of a; NaN where b = 0. It is exact where
/// a/b is finite and, in f64, below 2³¹⁸; it is NaN where a/b overflows.
pub(crate) fn fmod(a: &UOp, b: &UOp) -> UOp {
    let zero = a.like(0.0);
    // What the rounded quotient leaves is a float; each time the quotient has 24 digits less (53 in f64).
    let r = (0..6).fold(a.clone(), |r, _| {
        div(&r, b).unary(Op::Trunc).unary(Op::Neg).mul_acc(b, &r)
    });
    // The last quotient may be one too far from zero, or one too near.
    let size = abs(b);
    let below = a.lt(&zero);
    let step = below.select(&size.unary(Op::Neg), &size);
    let over = below.select(&zero.lt(&r), &r.lt(&zero));
    let under = size.binary(Op::CmpLe, &abs(&r));
    let r = over.select(&(&r + &step), &under.select(&(&r - &step), &r));
    known(abs(a).lt(&size).select(a, &r), &[a, b], &[], |f| {
        let quotient = div(&f.inputs[0], &f.inputs[1]).unary(Op::Trunc);
        Ok(vec![Some(f.g.clone()), Some(quotient.unary(Op::Neg) * f.g)])
    })
}

/// The remainder of floored division, with the sign of b.
pub(crate) fn floor_mod(a: &UOp, b: &UOp) -> UOp {
    let (r, other) = fmod_and_side(a, b);
    other.select(&(&r + b), &r)
}

/// `fmod`, and whether floored division goes one further: the remainder has the other sign.
fn fmod_and_side(a: &UOp, b: &UOp) -> (UOp, UOp) {
    let r = fmod(a, b);
    let zero = a.like(0.0);
    let other = r.lt(&zero).ne_(&b.lt(&zero)) & r.ne_(&zero);
    (r, other)
}

/// ⌊a/b⌋ of the exact quotient; a/b where b = 0 or where it overflows.
pub(crate) fn floor_div(a: &UOp, b: &UOp) -> UOp {
    let (r, other) = fmod_and_side(a, b);
    let q = round(&div(&(a - &r), b));
    let q = other.select(&(&q - 1.0), &q);
    let whole = div(a, b).unary(Op::Detach);
    let infinity = a.like(f64::INFINITY);
    let over = abs(&whole).eq_(&infinity) & abs(a).lt(&infinity);
    (over | b.eq_(&b.like(0.0))).select(&whole, &q)
}

/// The angle of the point (x, y); its gradient at the origin is 0.
pub(crate) fn atan2(y: &UOp, x: &UOp) -> UOp {
    let ax = abs(x);
    let ay = abs(y);
    let zero = x.like(0.0);
    let steep = ax.lt(&ay);
    let small = steep.select(&ax, &ay);
    let large = steep.select(&ay, &ax);
    // 0/0 is 0, ∞/∞ is 1.
    let q = small.eq_(&large).select(&x.like(1.0), &div(&small, &large));
    let q = large.eq_(&zero).select(&zero, &q);
    let t = atan(&q);
    let t = steep.select(&(x.like(FRAC_PI_2) - &t), &t);
    let left = x.lt(&zero) | (x.eq_(&zero) & recip(x).lt(&zero));
    let t = left.select(&(x.like(PI) - &t), &t);
    let down = y.lt(&zero) | (y.eq_(&zero) & recip(y).lt(&zero));
    let nan = x.ne_(x) | y.ne_(y);
    let r = nan.select(&(x + y), &down.select(&t.unary(Op::Neg), &t));
    known(r, &[y, x], &[], |f| {
        let y = &f.inputs[0];
        let x = &f.inputs[1];
        let size = y.mul_acc(y, &(x * x));
        let d = size.eq_(&size.like(0.0)).select(&size, &div(f.g, &size));
        Ok(vec![Some(&d * x), Some(scale(&(&d * y), -1.0))])
    })
}

/// a^b; where the exponent is a number that few products, a quotient or a root give, those.
pub(crate) fn pow(a: &UOp, b: &UOp) -> UOp {
    match constant_of(b) {
        Some(b) => pow_number(a, b.to_f64()),
        None => a.binary(Op::Pow, b),
    }
}

fn pow_number(a: &UOp, b: f64) -> UOp {
    // A power of −0 is one of 0, and one of −∞ is one of ∞.
    let root = || {
        let zero = a.like(0.0);
        let all = a.eq_(&a.like(f64::NEG_INFINITY));
        let positive = all.select(&a.like(f64::INFINITY), &a.eq_(&zero).select(&zero, a));
        positive.unary(Op::Sqrt)
    };
    let twice = 2.0 * b;
    let y = match twice as i64 {
        _ if twice.fract() != 0.0 => return a.binary(Op::Pow, &a.like(b)),
        -4 => recip(a) * recip(a),
        -2 => recip(a),
        -1 => recip(&root()),
        1 => root(),
        2 => return a.clone(),
        4 => a * a,
        6 => a * a * a,
        8 => (a * a) * (a * a),
        _ => return a.binary(Op::Pow, &a.like(b)),
    };
    known(y, &[a], &[twice as i64], |f| {
        let b = f.params[0] as f64 / 2.0;
        let slope = scale(&pow_number(&f.inputs[0], b - 1.0), b);
        Ok(vec![Some(f.g * &slope)])
    })
}

/// ln(e^a + e^b).
pub(crate) fn logaddexp(a: &UOp, b: &UOp) -> UOp {
    let apart = a.ne_(b).select(&abs(&(a - b)), &a.like(0.0));
    let r = a.max_(b) + log1p(&exp(&apart.unary(Op::Neg)));
    known(r, &[a, b], &[], |f| {
        let d = &f.inputs[0] - &f.inputs[1];
        Ok(vec![
            Some(f.g * &sigmoid(&d)),
            Some(f.g * &sigmoid(&d.unary(Op::Neg))),
        ])
    })
}

/// a + w·(b − a), from the end that w is nearer to.
pub(crate) fn lerp(a: &UOp, b: &UOp, w: &UOp) -> UOp {
    let apart = b - a;
    let rest = w.like(1.0) - w;
    let from_a = w.mul_acc(&apart, a);
    let from_b = rest.unary(Op::Neg).mul_acc(&apart, b);
    let y = abs(w).lt(&w.like(0.5)).select(&from_a, &from_b);
    known(y, &[a, b, w], &[], |f| {
        let a = &f.inputs[0];
        let b = &f.inputs[1];
        let w = &f.inputs[2];
        Ok(vec![
            Some(f.g * &(w.like(1.0) - w)),
            Some(f.g * w),
            Some(f.g * &(b - a)),
        ])
    })
}
