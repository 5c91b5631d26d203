//! Functions against f64. Flows in: arguments of every size, also at the ends of their domains; flows out: comparisons.

mod common;

use common::{f32s, ints, on_interpreter};
use monoglot_tensor::{DType, PadMode, Reduction, Result, Tensor};

#[test]
fn functions_are_within_a_few_ulp() {
    on_interpreter();
    type Case = (
        &'static str,
        fn(&Tensor) -> Tensor,
        fn(f64) -> f64,
        f64,
        f64,
        f64,
    );
    let cases: &[Case] = &[
        ("exp", Tensor::exp, f64::exp, -87.0, 88.0, 5.0),
        ("expm1", Tensor::expm1, f64::exp_m1, -20.0, 20.0, 6.0),
        ("expm1 near", Tensor::expm1, f64::exp_m1, -1e-3, 1e-3, 4.0),
        ("log", Tensor::log, f64::ln, 1e-30, 1e4, 4.0),
        ("log1p", Tensor::log1p, f64::ln_1p, -0.9, 3.0, 6.0),
        ("log1p near", Tensor::log1p, f64::ln_1p, -1e-4, 1e-4, 4.0),
        ("tan", Tensor::tan, f64::tan, -10.0, 10.0, 8.0),
        ("asin", Tensor::asin, f64::asin, -1.0, 1.0, 5.0),
        ("acos", Tensor::acos, f64::acos, -1.0, 0.999, 6.0),
        ("acos near 1", Tensor::acos, f64::acos, 0.999, 1.0, 6.0),
        ("atan", Tensor::atan, f64::atan, -20.0, 20.0, 5.0),
        ("sinh", Tensor::sinh, f64::sinh, -88.0, 88.0, 8.0),
        ("sinh near", Tensor::sinh, f64::sinh, -1e-2, 1e-2, 6.0),
        ("cosh", Tensor::cosh, f64::cosh, -88.0, 88.0, 8.0),
        ("tanh", Tensor::tanh, f64::tanh, -12.0, 12.0, 6.0),
        ("tanh near", Tensor::tanh, f64::tanh, -1e-3, 1e-3, 4.0),
        ("asinh", Tensor::asinh, f64::asinh, -50.0, 50.0, 8.0),
        ("asinh far", Tensor::asinh, f64::asinh, 1e7, 1e30, 6.0),
        ("acosh", Tensor::acosh, f64::acosh, 1.0, 50.0, 8.0),
        ("atanh", Tensor::atanh, f64::atanh, -0.999, 0.999, 8.0),
        (
            "sigmoid",
            Tensor::sigmoid,
            |x| 1.0 / (1.0 + (-x).exp()),
            -20.0,
            20.0,
            25.0,
        ),
    ];
    for &(name, f, exact, low, high, ulps) in cases {
        let n = 4001;
        let xs: Vec<f32> = (0..n)
            .map(|i| (low + (high - low) * i as f64 / (n - 1) as f64) as f32)
            .collect();
        for (x, y) in xs.iter().zip(f32s(&f(&Tensor::new(&xs, [n])))) {
            let want = exact(*x as f64);
            let unit = f64::from(want.abs().max(1e-37) as f32) * 2f64.powi(-23);
            let off = (y as f64 - want).abs() / unit;
            assert!(
                off <= ulps || y as f64 == want,
                "{name}({x}) = {y}, not {want}: {off:.1} ulp"
            );
        }
        let ends = Tensor::new(&[f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0], [4]);
        for (x, y) in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0]
            .iter()
            .zip(f32s(&f(&ends)))
        {
            let want = exact(*x);
            let same =
                want.is_nan() && y.is_nan() || (y as f64 - want).abs() < 1e-6 || y as f64 == want;
            assert!(same, "{name}({x}) = {y}, not {want}");
        }
        // In f64 nearly all digits.
        let xs: Vec<f64> = (0..101)
            .map(|i| low + (high - low) * i as f64 / 100.0)
            .collect();
        let got: Vec<f64> = f(&Tensor::new(&xs, [101])).to_vec().expect("f64 values");
        for (x, y) in xs.iter().zip(got) {
            let want = exact(*x);
            let off = (y - want).abs() / want.abs().max(1e-300);
            assert!(
                off < 2e-13 || (y - want).abs() < 1e-300,
                "{name}({x}) = {y} in f64, not {want}"
            );
        }
    }
}

#[test]
fn powers_of_integers_count_every_bit_of_the_exponent() {
    on_interpreter();
    let bases = [0u64, 1, 2, 3, 10, u64::MAX];
    for exponent in [0, 1, 5, (1 << 62) + 1, 1 << 63, (1 << 63) + 1, u64::MAX] {
        let want = bases.map(|b| {
            let squares = std::iter::successors(Some(b), |s| Some(s.wrapping_mul(*s)));
            let bits = squares.take(64).enumerate();
            let counted = bits.filter(|(i, _)| exponent >> i & 1 == 1);
            counted.fold(1, |product: u64, (_, s)| product.wrapping_mul(s))
        });
        let exponents = Tensor::new(&[exponent; 6], [6]);
        let powers = Tensor::new(&bases, [6]).pow(&exponents);
        assert_eq!(powers.to_vec::<u64>().unwrap(), want, "to the {exponent}");
    }
}

#[test]
fn powers_that_are_products_are_powers() {
    on_interpreter();
    let mut xs = vec![f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, -0.0];
    let sizes = (-4600..4600).map(|i| 10f64.powf(f64::from(i) / 120.0) as f32);
    xs.extend(sizes.flat_map(|x| [x, -x]));
    let n = xs.len() as i64;
    for exponent in [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 1.5] {
        let powers = f32s(&Tensor::new(&xs, [n]).pow(exponent));
        for (&x, y) in xs.iter().zip(powers) {
            let exact = f64::from(x).powf(exponent);
            let want = exact as f32;
            let unit = f64::from(want.abs().max(f32::MIN_POSITIVE)) * 2f64.powi(-23);
            let near = (f64::from(y) - exact).abs() <= 2.0 * unit;
            let same = y == want && (y != 0.0 || y.is_sign_negative() == want.is_sign_negative());
            let nan = y.is_nan() && want.is_nan();
            let ends = !want.is_finite() || want == 0.0;
            assert!(
                nan || same || near && !ends,
                "{x:e}^{exponent} = {y:e}, not {want:e}"
            );
        }
    }
    let narrow = Tensor::new(&[1.1f32, -3.0, 7.3], [3]).cast(DType::BF16);
    let rounded_once = narrow
        .cast(DType::F32)
        .pow(3)
        .cast(DType::BF16)
        .cast(DType::F32);
    assert_eq!(f32s(&narrow.pow(3).cast(DType::F32)), f32s(&rounded_once));
}

#[test]
fn exponentials_of_every_size() {
    on_interpreter();
    let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    const SELU_ALPHA: f64 = 1.6732632423543772;
    const SELU_SCALE: f64 = 1.0507009873554805;
    type Case<'a> = (&'a str, fn(&Tensor) -> Tensor, &'a dyn Fn(f64) -> f64);
    let cases: &[Case] = &[
        ("exp", Tensor::exp, &f64::exp),
        ("expm1", Tensor::expm1, &f64::exp_m1),
        ("sigmoid", Tensor::sigmoid, &|x| 1.0 / (1.0 + (-x).exp())),
        ("softplus", |t| t.softplus(1.0), &softplus),
        ("logsigmoid", Tensor::logsigmoid, &|x| -softplus(-x)),
        ("mish", Tensor::mish, &|x| x * softplus(x).tanh()),
        ("elu", |t| t.elu(1.5), &|x| {
            if x > 0.0 { x } else { 1.5 * x.exp_m1() }
        }),
        ("selu", Tensor::selu, &|x| {
            SELU_SCALE * if x > 0.0 { x } else { SELU_ALPHA * x.exp_m1() }
        }),
        ("logaddexp", |t| t.logaddexp(0.0), &softplus),
        ("logaddexp apart", |t| t.logaddexp(-t), &|x| {
            x.abs() + (-2.0 * x.abs()).exp().ln_1p()
        }),
        ("tanh", Tensor::tanh, &f64::tanh),
    ];
    let sizes = |low: i32, high: f64| {
        (low * 50..)
            .map(|i| 10f64.powf(f64::from(i) / 50.0))
            .take_while(move |x| *x < high)
    };
    let single: Vec<f32> = sizes(-45, 3.4e38)
        .chain([5e8, 2.5e38])
        .flat_map(|x| [x as f32, -x as f32])
        .collect();
    let double: Vec<f64> = sizes(-323, 1.79e308)
        .chain([6.3e16])
        .flat_map(|x| [x, -x])
        .collect();
    for (name, f, exact) in cases {
        for (x, y) in single
            .iter()
            .zip(f32s(&f(&Tensor::new(&single, [single.len()]))))
        {
            let y = f64::from(y);
            let want = f64::from(exact(f64::from(*x)) as f32);
            let near = (y - want).abs() <= 6e-6 * want.abs() + 1e-37;
            assert!(y == want || near, "{name}({x:e}) = {y:e}, not {want:e}");
        }
        let got: Vec<f64> = f(&Tensor::new(&double, [double.len()]))
            .to_vec()
            .expect("f64 values");
        for (x, y) in double.iter().zip(got) {
            let want = exact(*x);
            let near = (y - want).abs() <= 3e-13 * want.abs() + 1e-306;
            assert!(
                y == want || near,
                "{name}({x:e}) = {y:e} in f64, not {want:e}"
            );
        }
    }
    assert!(f32s(&Tensor::new(&[f32::NAN], [1]).exp())[0].is_nan());
}

#[test]
fn tangents_of_the_last_binade() {
    on_interpreter();
    let xs: Vec<f64> = (0..400)
        .map(|i| 1.6e38 + f64::from(i) * 4.5e35)
        .flat_map(|x| [x, -x])
        .collect();
    let single: Vec<f32> = xs.iter().map(|x| *x as f32).collect();
    for (x, y) in single.iter().zip(f32s(&Tensor::new(&single, [800]).tan())) {
        let y = f64::from(y);
        let want = f64::from(*x).tan();
        assert!(
            (y - want).abs() <= 1e-6 * (1.0 + want * want),
            "tan {x:e} = {y}, not {want}"
        );
    }
    let double: Vec<f64> = xs.iter().map(|x| x * 5e269).collect();
    for (x, y) in double
        .iter()
        .zip(Tensor::new(&double, [800]).tan().to_vec::<f64>().unwrap())
    {
        let want = x.tan();
        assert!(
            (y - want).abs() <= 1e-14 * (1.0 + want * want),
            "tan {x:e} = {y}, not {want}"
        );
    }
}

#[test]
fn erf_and_gelu() {
    on_interpreter();
    // Abramowitz and Stegun's table.
    let t = Tensor::new(&[0.0f64, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, -1.0, 7.0], [9]);
    let want = [
        0.0,
        0.1124629160,
        0.5204998778,
        0.8427007929,
        0.9661051465,
        0.9953222650,
        0.9999779095,
        -0.8427007929,
        1.0,
    ];
    for (a, b) in t.erf().to_vec::<f64>().unwrap().iter().zip(want) {
        assert!((a - b).abs() < 2e-10, "{a} {b}");
    }
    for (a, b) in f32s(&t.cast(DType::F32).erf()).iter().zip(want) {
        assert!((*a as f64 - b).abs() < 3e-7, "{a} {b}");
    }
}

#[test]
fn remainders_and_rounding() {
    on_interpreter();
    let a = Tensor::new(&[7.0f32, -7.0, 7.0, -7.0, 1.0, 5.5, 0.0, -1.0], [8]);
    let b = Tensor::new(
        &[
            3.0f32,
            3.0,
            -3.0,
            -3.0,
            0.1,
            f32::INFINITY,
            2.0,
            f32::INFINITY,
        ],
        [8],
    );
    assert_eq!(f32s(&a.modulo(&b))[..4], [1.0, 2.0, -2.0, -1.0]);
    assert_eq!(f32s(&a.fmod(&b))[..4], [1.0, -1.0, 1.0, -1.0]);
    assert_eq!(f32s(&a.floor_div(&b))[..5], [2.0, -3.0, -3.0, 2.0, 9.0]);
    assert_eq!(f32s(&a.fmod(&b))[5..], [5.5, 0.0, -1.0]);
    let i = |v: &[i32]| Tensor::new(v, [v.len()]);
    let x = i(&[7, -7, 7, -7, 5, i32::MIN]);
    let y = i(&[3, 3, -3, -3, 0, -1]);
    assert_eq!(ints(&x.floor_div(&y)), [2, -3, -3, 2, 0, i32::MIN]);
    assert_eq!(ints(&x.trunc_div(&y)), [2, -2, -2, 2, 0, i32::MIN]);
    assert_eq!(ints(&x.modulo(&y)), [1, 2, -2, -1, 5, 0]);
    assert_eq!(ints(&x.fmod(&y)), [1, -1, 1, -1, 5, 0]);
    let h = Tensor::new(&[0.5f32, 1.5, -0.5, -2.5, 2.4, 1e10, -0.4], [7]);
    assert_eq!(f32s(&h.round()), [0.0, 2.0, 0.0, -2.0, 2.0, 1e10, 0.0]);
    assert_eq!(
        ints(&i(&[-128, 5]).minimum(i(&[3, i32::MIN]))),
        [-128, i32::MIN]
    );
}

#[test]
fn remainders_are_exact_whatever_the_quotient() {
    on_interpreter();
    // Rust's % is C's fmod, which is exact.
    let floored = |r: f32, b: f32| {
        if r != 0.0 && (r < 0.0) != (b < 0.0) {
            r + b
        } else {
            r
        }
    };
    let mut state = 1u64;
    let mut random = |low: f64, high: f64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let size = 10f64.powf(low + (high - low) * (state >> 11) as f64 / 2f64.powi(53));
        if state >> 10 & 1 == 1 { size } else { -size }
    };
    let mut pairs = vec![
        (1e10, 3.0),
        (-1e10, 3.0),
        (3e38, 3.0),
        (1e38, 0.7),
        (6.0, 3.0),
        (3e38, 1.5),
    ];
    pairs.extend((0..20_000).map(|_| (random(-38.0, 38.5), random(-38.0, 38.5))));
    let (a, b): (Vec<f32>, Vec<f32>) = pairs
        .iter()
        .map(|(a, b)| (*a as f32, *b as f32))
        .filter(|(a, b)| a.is_finite() && (a / b).is_finite())
        .unzip();
    let n = a.len();
    let x = Tensor::new(&a, [n]);
    let y = Tensor::new(&b, [n]);
    let r = f32s(&x.fmod(&y));
    let m = f32s(&x.modulo(&y));
    let q = f32s(&x.floor_div(&y));
    for i in 0..n {
        let a = a[i];
        let b = b[i];
        assert_eq!(r[i], a % b, "fmod({a:e}, {b:e})");
        let want = floored(a % b, b);
        assert_eq!(m[i], want, "modulo({a:e}, {b:e})");
        let whole = ((f64::from(a) - f64::from(want)) / f64::from(b)).round();
        assert!(
            (f64::from(q[i]) - whole).abs() <= 2e-7 * whole.abs(),
            "floor_div({a:e}, {b:e}) = {}",
            q[i]
        );
    }
    let (a, b): (Vec<f64>, Vec<f64>) = (0..20_000)
        .map(|_| (random(-20.0, 70.0), random(-20.0, 70.0)))
        .unzip();
    let got: Vec<f64> = Tensor::new(&a, [20_000])
        .fmod(Tensor::new(&b, [20_000]))
        .to_vec()
        .unwrap();
    for (i, r) in got.into_iter().enumerate() {
        assert_eq!(r, a[i] % b[i], "fmod({:e}, {:e}) in f64", a[i], b[i]);
    }
    assert_eq!(
        f32s(&Tensor::new(&[1e10f32, -1e10], [2]).modulo(3.0)),
        [1.0, 2.0]
    );
}

#[test]
fn functions_at_the_ends_of_their_domains() {
    on_interpreter();
    let of = |f: fn(&Tensor) -> Tensor, x: f32| f32s(&f(&Tensor::new(&[x], [1])))[0];
    let gelu = Tensor::gelu_tanh;
    // Next to a pole and far out, the cosine keeps its digits.
    for x in [std::f32::consts::FRAC_PI_2, -1.57, 4.712389, 1e6, 8388609.0] {
        let y = of(Tensor::tan, x);
        let want = f64::from(x).tan();
        assert!(
            (f64::from(y) - want).abs() <= 1e-6 * want.abs(),
            "tan {x} = {y}, not {want}"
        );
    }
    for x in [0.5f32, -1.0, -3.0, -1e20] {
        assert!(of(Tensor::acosh, x).is_nan(), "acosh {x}");
    }
    assert_eq!(
        [
            of(gelu, -1e4),
            of(Tensor::tanh, 20.0),
            of(Tensor::tanh, -1e20)
        ],
        [0.0, 1.0, -1.0]
    );
    // Signs of zeros count.
    let zeros = Tensor::new(&[0.0f32, -0.0], [2]);
    for t in [
        zeros.clone(),
        zeros.cast(DType::F16),
        zeros.cast(DType::F64),
    ] {
        assert_eq!(f32s(&(1.0 / t.abs()).cast(DType::F32)), [f32::INFINITY; 2]);
        let signs = (1.0 / t.flip([0]).copysign(&t)).cast(DType::F32);
        assert_eq!(f32s(&signs), [f32::INFINITY, f32::NEG_INFINITY]);
    }
    // The quotient is that of the exact values; a zero divisor has infinities.
    let t = |v: &[f32]| Tensor::new(v, [v.len()]);
    let a = t(&[-7.0, 7.0, -1e-20, -6.0]);
    let b = t(&[2.0, -2.0, 1.0, 3.0]);
    assert_eq!(f32s(&a.floor_div(&b)), [-4.0, -4.0, -1.0, -2.0]);
    let a = t(&[1.0, 3e38, -3e38, f32::INFINITY]);
    let b = t(&[0.0, 1e-10, 1e-10, 0.0]);
    assert_eq!(
        f32s(&a.floor_div(&b)),
        [1.0, 1.0, -1.0, 1.0].map(|s| s * f32::INFINITY)
    );
    assert!(f32s(&t(&[f32::INFINITY]).floor_div(2.0))[0].is_nan());
}

#[test]
fn literals_are_not_rounded_to_narrow_floats_before_they_count() {
    on_interpreter();
    let of = |t: Tensor| t.cast(DType::F32).to_vec::<f32>().unwrap()[0];
    let t = |v: f32| Tensor::new(&[v], [1]).cast(DType::F16);
    assert!((of(t(0.001) * 65536.0) - 65.56).abs() < 0.05);
    assert!((of(t(100.0) / 1e5) - 0.001).abs() < 1e-6);
    assert_eq!(of(t(0.0) * 1e6), 0.0);
    assert_eq!(of(1e5 - t(6e4)), 40_000.0);
    assert_eq!((t(2.0) * 0.1).dtype().unwrap(), DType::F16);
    assert!(t(6e4).lt(7e4).to_vec::<bool>().unwrap()[0]);
    // Comparisons are with the nearest value of the tensor's dtype.
    for d in [DType::F16, DType::BF16] {
        let t = Tensor::new(&[0.1f32], [1]).cast(d);
        let same = [
            t.eq(0.1),
            t.le(0.1),
            t.ge(0.1),
            t.ne(0.1).logical_not(),
            t.eq(Tensor::full([0i64; 0], 0.1f32)),
        ];
        for (i, b) in same.iter().enumerate() {
            assert!(b.to_vec::<bool>().unwrap()[0], "comparison {i} in {d}");
        }
    }
}

/// A literal says nothing of the width, also beside a scalar, which is weak beside what has axes.
#[test]
fn literals_beside_scalars_take_their_dtype() {
    on_interpreter();
    let all: [fn(&Tensor, f64) -> Tensor; 16] = [
        |t, v| t + v,
        |t, v| v - t,
        |t, v| t * v,
        |t, v| v / t,
        |t, v| v % t,
        |t, v| t % v,
        |t, v| t.pow(v),
        |t, v| t.maximum(v),
        |t, v| t.minimum(v),
        |t, v| t.atan2(v),
        |t, v| t.fmod(v),
        |t, v| t.lerp(&(t * 2), v),
        |t, v| t.lt(1).select(t, v),
        |t, v| t.lt(1).select(v, t),
        |t, v| t.masked_fill(&t.lt(1), v),
        |t, v| t.clamp(v, None),
    ];
    for d in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for v in [0.1, 1.5, f64::NAN, 1e5, 1e-8] {
            for (k, f) in all.iter().enumerate() {
                let of = |shape: &[i64]| f(&Tensor::full(shape, 0.7f64).cast(d), v);
                let scalar = of(&[]);
                let vector = of(&[1]);
                assert_eq!(scalar.dtype().unwrap(), d, "{k} with {v}");
                let number = |t: &Tensor| {
                    t.cast(DType::F64)
                        .to_vec::<f64>()
                        .unwrap_or_else(|e| panic!("{k} {d} {v} {e}"))[0]
                };
                let [a, b] = [&scalar, &vector].map(number);
                assert!(
                    a == b || (a.is_nan() && b.is_nan()),
                    "{k} of {d} with {v}: {a}, {b}"
                );
            }
        }
    }
    // A scalar that is a tensor is as wide as it is.
    let wide = Tensor::full([0i64; 0], 0.1f32);
    let half = |shape: &[i64]| Tensor::full(shape, 0.7f32).cast(DType::F16);
    assert_eq!((half(&[]) + &wide).dtype().unwrap(), DType::F32);
    assert_eq!((half(&[1]) + &wide).dtype().unwrap(), DType::F16);
}

/// The share of smoothing that each class has is as exact as the probabilities are.
#[test]
fn smoothed_probabilities_keep_their_dtype() {
    on_interpreter();
    let x = [0.3f64, -1.2, 0.7, 2.1, -0.4, 0.9, 1.4, -2.2];
    let p = [0.1f64, 0.2, 0.3, 0.4, 0.25, 0.05, 0.6, 0.1];
    let smoothing = 0.1;
    let rows = x.chunks(4).zip(p.chunks(4)).map(|(x, p)| {
        let log = x.iter().map(|v| v.exp()).sum::<f64>().ln();
        let terms = x.iter().zip(p);
        let term = |(x, p): (&f64, &f64)| (log - x) * (p * (1.0 - smoothing) + smoothing / 4.0);
        terms.map(term).sum::<f64>()
    });
    let want = rows.sum::<f64>() / 2.0;
    let [x, p] = [x, p].map(|v| Tensor::new(&v, [2, 4]));
    let loss = x.cross_entropy(&p, Reduction::Mean, smoothing);
    let got = loss.item::<f64>().expect("a number");
    assert!((got - want).abs() < 1e-14, "{got}, not {want}");
}

/// Weights and biases meet what was computed before it is rounded.
#[test]
fn halves_are_rounded_once() {
    on_interpreter();
    for dtype in [DType::BF16, DType::F16] {
        let of = |values: &[f32], shape: &[i64]| Tensor::new(values, shape).cast(dtype);
        let tiny = if dtype == DType::BF16 { 256.0 } else { 2048.0 };
        let x = of(&[1.0, 1.0], &[1, 2]);
        let y = x.linear(&of(&[1.0, 1.0 / tiny], &[1, 2]), Some(&of(&[-1.0], &[1])));
        assert_eq!(y.dtype().unwrap(), dtype);
        assert_eq!(f32s(&y.cast(DType::F32)), [1.0 / tiny]);
        let ramp: Vec<f32> = (0..48).map(|i| ((i * 37) % 29) as f32 / 7.0).collect();
        let x = of(&ramp, &[2, 6, 4]);
        let last = [of(&ramp[3..7], &[4]), of(&ramp[9..13], &[4])];
        let each = [of(&ramp[3..9], &[6]), of(&ramp[20..26], &[6])];
        type Norm = fn(&Tensor, &Tensor, &Tensor) -> Tensor;
        let norms: [(Norm, &[Tensor; 2]); 3] = [
            (|x, w, b| x.layer_norm([4], Some(w), Some(b), 1e-5), &last),
            (|x, w, b| x.rms_norm([4], Some(w), 1e-5) + b * 0.0, &last),
            (|x, w, b| x.group_norm(3, Some(w), Some(b), 1e-5), &each),
        ];
        for (k, (norm, [w, b])) in norms.iter().enumerate() {
            let wide = [&x, w, b].map(|t| t.cast(DType::F32));
            let want = norm(&wide[0], &wide[1], &wide[2]).cast(dtype);
            let got = norm(&x, w, b);
            assert_eq!(got.dtype().unwrap(), dtype);
            let got = f32s(&got.cast(DType::F32));
            assert_eq!(got, f32s(&want.cast(DType::F32)), "{dtype}, norm {k}");
        }
    }
}

#[test]
fn means_of_losses_in_half_types_are_rounded_once() -> Result<()> {
    on_interpreter();
    // Their sum is past what f16 holds.
    let target = Tensor::zeros([40_000]).cast(DType::I32);
    for (dtype, want) in [(DType::F16, 1.9459), (DType::BF16, 1.9453)] {
        let x = Tensor::zeros([40_000, 7]).cast(dtype);
        let losses = [
            x.cross_entropy(&target, Reduction::Mean, 0.0),
            x.cross_entropy(&target, Reduction::Mean, 0.1),
            x.log_softmax(1).nll_loss(&target, Reduction::Mean),
        ];
        for loss in losses {
            assert_eq!(loss.dtype()?, dtype);
            let loss = loss.cast(DType::F32).item::<f32>()?;
            assert!((loss - want).abs() < 2e-3, "{dtype}: {loss}");
        }
    }
    Ok(())
}

#[test]
fn all_is_dropped_also_what_is_no_number() -> Result<()> {
    on_interpreter();
    let x = Tensor::new(&[1f32, f32::INFINITY, f32::NAN], [3]);
    assert_eq!(x.dropout(1.0).to_vec::<f32>()?, [0.0; 3]);
    for p in [0.0, 0.5, 1.0] {
        let e = Tensor::arange(0, 3, 1).dropout(p).check().unwrap_err();
        assert!(e.to_string().contains("takes floats"), "{e}");
    }
    Ok(())
}

/// Padding with the least number of a dtype is how ids are padded: comparisons with it may not turn round.
#[test]
fn what_is_padded_with_the_ends_of_a_dtype_is_sorted() -> Result<()> {
    on_interpreter();
    let bytes: Vec<u8> = (0..32 * 8).map(|i| (i * 7919 % 251) as u8).collect();
    let pads = [
        (DType::U8, 0.0),
        (DType::I8, -128.0),
        (DType::I32, f64::from(i32::MIN)),
        (DType::I32, f64::from(i32::MAX)),
    ];
    for (dtype, pad) in pads {
        let x = Tensor::new(&bytes, [32, 8]).cast(dtype);
        let padded = x.pad(&[[2, 1], [2, 2]], PadMode::Constant(pad));
        let own = padded.contiguous();
        own.realize()?;
        for descending in [false, true] {
            let numbers = |t: &Tensor| t.cast(DType::I64).to_vec::<i64>();
            assert_eq!(
                numbers(&padded.sort(0, descending))?,
                numbers(&own.sort(0, descending))?
            );
            assert_eq!(
                numbers(&padded.argsort(0, descending))?,
                numbers(&own.argsort(0, descending))?
            );
            let top = |t: &Tensor| numbers(&t.topk(3, 0, descending).1);
            assert_eq!(top(&padded)?, top(&own)?);
        }
    }
    Ok(())
}
