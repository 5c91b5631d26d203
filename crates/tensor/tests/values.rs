//! Values: functions against f64, indexing against plain loops, scans, sorting, random numbers.
//! Flows in: arguments, also at the ends of their ranges; flows out: comparisons.

use monoglot_tensor::{Conv, DType, Index, Interpolation, PadMode, Tensor};

/// No compiler is waited for.
fn on_interpreter() {
    monoglot_engine::set_default_device(monoglot_tensor::Device::new("INTERP"));
}

fn f32s(t: &Tensor) -> Vec<f32> {
    t.to_vec().expect("f32 values")
}
fn ints(t: &Tensor) -> Vec<i32> {
    t.to_vec().expect("i32 values")
}

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

/// Products, a number and other values in one sum: each product is a sum of its own, and the rest another.
#[test]
fn sums_of_products_and_numbers() {
    on_interpreter();
    let values = |n: i64| -> Vec<f32> { (0..n).map(|i| (i * 7 % 11 - 5) as f32).collect() };
    let [a, b, c] = [12, 15, 60].map(values);
    let x = Tensor::new(&a, [4, 3, 1]);
    let y = Tensor::new(&b, [3, 5]);
    let z = Tensor::new(&c, [4, 3, 5]);
    let term = |i: usize, k: usize, j: usize| [a[i * 3 + k] * b[k * 5 + j], c[(i * 3 + k) * 5 + j]];
    let cases: [(&str, Tensor, f32, f32); 4] = [
        ("a number", &x * &y + 2.0, 0.0, 2.0),
        (
            "a number first",
            (&x * &y * 1.0 + 2.0) + &x * &y * 0.0,
            0.0,
            2.0,
        ),
        ("a value", &x * &y + &z, 1.0, 0.0),
        ("both", &z + 3.0 + &x * &y, 1.0, 3.0),
    ];
    for (name, all, of_z, number) in cases {
        let got = f32s(&all.sum(1, false));
        let sum = |e: usize| {
            let terms = (0..3).map(|k| term(e / 5, k, e % 5));
            terms.map(|[p, z]| p + of_z * z + number).sum::<f32>()
        };
        assert_eq!(got, (0..20).map(sum).collect::<Vec<_>>(), "{name}");
    }
}

/// Whatever pair is contracted first, the sum is the same: of whole numbers, exactly.
#[test]
fn sums_of_many_factors_in_any_order() {
    on_interpreter();
    let sizes = |letter: char| 2 + (letter as i64 - 'a' as i64) % 3;
    let factor = |letters: &str, k: usize| {
        let shape: Vec<i64> = letters.chars().map(sizes).collect();
        let n: i64 = shape.iter().product();
        let values: Vec<f64> = (0..n)
            .map(|i| ((i + k as i64) * 7 % 11 - 5) as f64)
            .collect();
        (values.clone(), Tensor::new(&values, shape))
    };
    for equation in [
        "ab,bc,cd->ad",
        "ab,cd,bc->da",
        "a,b,c,d->ca",
        "ab,ab,b->a",
        "abc,c,b,ad->d",
        "ab,bc,cd,de,ef,fa->be",
        "a,ab,abc->",
    ] {
        let (left, right) = equation.split_once("->").expect("a result");
        let terms: Vec<&str> = left.split(',').collect();
        let factors: Vec<_> = terms
            .iter()
            .enumerate()
            .map(|(k, t)| factor(t, k))
            .collect();
        let tensors: Vec<&Tensor> = factors.iter().map(|f| &f.1).collect();
        let got: Vec<f64> = Tensor::einsum(equation, &tensors).to_vec().expect("values");
        let place = |letters: &str, at: &[i64; 6]| {
            letters
                .chars()
                .fold(0, |all, c| all * sizes(c) + at[(c as u8 - b'a') as usize])
        };
        let mut want = vec![0.0; got.len()];
        let used = |k: usize| {
            if left.contains((b'a' + k as u8) as char) {
                sizes((b'a' + k as u8) as char)
            } else {
                1
            }
        };
        let all: i64 = (0..6).map(used).product();
        for mut turn in 0..all {
            let at: [i64; 6] = std::array::from_fn(|k| {
                let digit = turn % used(k);
                turn /= used(k);
                digit
            });
            let product = terms
                .iter()
                .zip(&factors)
                .map(|(t, f)| f.0[place(t, &at) as usize]);
            want[place(right, &at) as usize] += product.product::<f64>();
        }
        assert_eq!(got, want, "{equation}");
    }
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
fn slices_are_pythons() {
    on_interpreter();
    let n = 7;
    let t = Tensor::arange(0, n, 1);
    let ends = [
        None,
        Some(-9),
        Some(-7),
        Some(-3),
        Some(-1),
        Some(0),
        Some(2),
        Some(6),
        Some(7),
        Some(11),
    ];
    for start in ends {
        for stop in ends {
            for step in [i64::MIN, -8, -3, -2, -1, 1, 2, 3, 8, i64::MAX] {
                let clamp = |v: Option<i64>, missing: i64| -> i64 {
                    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
                    v.map_or(missing, |v| {
                        (if v < 0 { v + n } else { v }).clamp(low, high)
                    })
                };
                let (a, b) = if step > 0 { (0, n) } else { (n - 1, -1) };
                let mut at = clamp(start, a);
                let end = clamp(stop, b);
                let mut want = Vec::new();
                while if step > 0 { at < end } else { at > end } {
                    want.push(at as i32);
                    at = at.saturating_add(step);
                }
                let got = t.index(Index::step(start, stop, step));
                assert_eq!(ints(&got), want, "{start:?}:{stop:?}:{step}");
            }
        }
    }
}

#[test]
fn index_tensors_and_what_is_out_of_range() {
    on_interpreter();
    let t = Tensor::arange(0, 24, 1).reshape([2, 3, 4]);
    let shape = |t: &Tensor| t.shape().unwrap();
    assert_eq!(ints(&t.index((1, .., 3))), [15, 19, 23]);
    assert_eq!(
        shape(&t.index((Index::NewAxis, 0, Index::Rest, 1..3))),
        [1, 3, 2]
    );
    let i = Tensor::new(&[2i64, -1, 0, 5], [2, 2]);
    let got = t.index((0, &i));
    assert_eq!(shape(&got), [2, 2, 4]);
    assert_eq!(
        ints(&got),
        [8, 9, 10, 11, 8, 9, 10, 11, 0, 1, 2, 3, 0, 0, 0, 0]
    );
    let r = Tensor::new(&[0i32, 1], [2]);
    let c = Tensor::new(&[2i32, 0], [2]);
    assert_eq!(ints(&t.index((&r, &c))), [8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!(shape(&t.index((&r, .., &c))), [2, 3]);
    assert_eq!(ints(&t.index((&r, .., &c))), [2, 6, 10, 12, 16, 20]);
    assert!(t.index(2).check().is_err() && t.index((0, 0, 0, 0)).check().is_err());
    let x = Tensor::new(&[1.0f32, 2.0, 3.0], [3]);
    let j = Tensor::new(&[0i32, 7, 2, -5], [4]);
    assert_eq!(f32s(&x.gather(0, &j)), [1.0, 0.0, 3.0, 0.0]);
    let v = Tensor::new(&[10.0f32, 20.0, 30.0, 40.0], [4]);
    assert_eq!(f32s(&x.scatter(0, &j, &v)), [10.0, 2.0, 30.0]);
    let twice = Tensor::new(&[1i32, 1, 0, 9], [4]);
    assert_eq!(f32s(&x.scatter(0, &twice, &v)), [30.0, 20.0, 3.0]);
    assert_eq!(f32s(&x.scatter_add(0, &twice, &v)), [31.0, 32.0, 3.0]);
    assert_eq!(
        ints(&t.index((0, 0)).pad(&[[2, 1]], PadMode::Reflect)),
        [2, 1, 0, 1, 2, 3, 2]
    );
}

#[test]
fn narrow_indices_bools_and_nothing_to_do() {
    on_interpreter();
    // Index dtypes that cannot count to the axis's end.
    let t = Tensor::arange(0, 700, 1);
    let u = Tensor::new(&[5u8, 255, 0], [3]);
    let s = Tensor::new(&[5i8, 127, -1], [3]);
    assert_eq!(ints(&t.gather(0, &u)), [5, 255, 0]);
    assert_eq!(ints(&t.gather(0, &s)), [5, 127, 0]);
    assert_eq!(ints(&t.index_select(0, &u)), [5, 255, 0]);
    assert_eq!(ints(&t.index(&s)), [5, 127, 699]);
    assert_eq!(ints(&u.one_hot(300).sum(.., false).cast(DType::I32)), [3]);
    assert_eq!(
        ints(
            &Tensor::arange(0, 300, 1)
                .scatter(0, &u, &Tensor::new(&[-1i32, -2, -3], [3]))
                .narrow(0, 254, 3)
        ),
        [254, -2, 256]
    );
    let wide = Tensor::arange(0, 2 * 300, 1)
        .reshape([2, 300])
        .cast(DType::F32);
    let classes = Tensor::new(&[156u8, 3], [2]);
    assert_eq!(
        f32s(&wide.nll_loss(&classes, monoglot_tensor::Reduction::None)),
        [-156.0, -303.0]
    );
    assert_eq!(
        f32s(&wide.nll_loss(&classes, monoglot_tensor::Reduction::Mean)),
        [-229.5]
    );
    // Bools are gathered, scattered and sorted like others.
    let b = Tensor::new(&[true, false, false, true], [4]);
    let bools = |t: &Tensor| t.to_vec::<bool>().expect("bools");
    let j = Tensor::new(&[3i32, 1, 0, 9], [4]);
    assert_eq!(bools(&b.gather(0, &j)), [true, false, true, false]);
    assert_eq!(
        bools(&b.scatter(
            0,
            &Tensor::new(&[1i32, 1], [2]),
            &Tensor::new(&[false, true], [2])
        )),
        [true, true, false, true]
    );
    assert_eq!(bools(&b.sort(0, false)), [false, false, true, true]);
    // No index changes nothing.
    let x = Tensor::new(&[1.0f32, 2.0], [2]);
    let none = Tensor::new::<i32>(&[], [0]);
    assert_eq!(f32s(&x.scatter(0, &none, &Tensor::zeros([0]))), [1.0, 2.0]);
    assert_eq!(
        f32s(&x.scatter_add(0, &none, &Tensor::zeros([0]))),
        [1.0, 2.0]
    );
    assert!(f32s(&x.gather(0, &none)).is_empty());
    assert!(f32s(&x.index(&none)).is_empty());
    let t = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [2, 2, 2]);
    assert_eq!(f32s(&Tensor::einsum("iii->i", &[&t])), [1.0, 8.0]);
    assert_eq!(f32s(&Tensor::einsum("...i->i", &[&t])), [16.0, 20.0]);
}

#[test]
fn scans_of_every_length() {
    on_interpreter();
    for n in [0usize, 1, 2, 5, 14, 15, 16, 17, 100, 300] {
        let v: Vec<i32> = (0..n).map(|i| (i * 37 % 11) as i32 - 5).collect();
        let t = Tensor::new(&v, [n]);
        let mut sum = 0i64;
        let sums: Vec<i64> = v
            .iter()
            .map(|&x| {
                sum += x as i64;
                sum
            })
            .collect();
        assert_eq!(t.cumsum(0).to_vec::<i64>().unwrap(), sums, "{n}");
        let mut top = i32::MIN;
        let tops: Vec<i32> = v
            .iter()
            .map(|&x| {
                top = top.max(x);
                top
            })
            .collect();
        assert_eq!(ints(&t.cummax(0)), tops, "{n}");
        let mut product = 1i64;
        let products: Vec<i64> = v
            .iter()
            .map(|&x| {
                product = product.wrapping_mul(x as i64);
                product
            })
            .collect();
        assert_eq!(t.cumprod(0).to_vec::<i64>().unwrap(), products, "{n}");
    }
}

#[test]
fn sorting_is_stable_and_puts_nan_last() {
    on_interpreter();
    for n in [1usize, 2, 7, 64, 65, 100] {
        let mut v: Vec<f32> = (0..n).map(|i| (i * 7919 % 13) as f32).collect();
        v[n / 2] = f32::NAN;
        v[n / 3] = f32::NEG_INFINITY;
        let t = Tensor::new(&v, [n]);
        for descending in [false, true] {
            let mut order: Vec<usize> = (0..n).collect();
            order.sort_by(|&a, &b| {
                let (x, y) = if descending {
                    (v[b], v[a])
                } else {
                    (v[a], v[b])
                };
                x.partial_cmp(&y)
                    .unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()))
            });
            let (got, from) = t.sorted(0, descending);
            let want: Vec<i32> = order.iter().map(|&i| i as i32).collect();
            assert_eq!(ints(&from), want, "{n} {descending}");
            let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(
                bits(&f32s(&got)),
                bits(&order.iter().map(|&i| v[i]).collect::<Vec<_>>()),
                "{n}"
            );
        }
    }
    let (top, at) = Tensor::new(&[3i32, 9, 1, 9, 4], [5]).topk(3, 0, true);
    assert_eq!((ints(&top), ints(&at)), (vec![9, 9, 4], vec![1, 3, 4]));
}

#[test]
fn random_numbers_are_as_documented() {
    on_interpreter();
    use monoglot_uop::fold::threefry;
    let _alone = RANDOM.lock().unwrap_or_else(|e| e.into_inner());
    Tensor::manual_seed(7);
    let a = Tensor::rand([3]);
    let b = Tensor::randint([2, 2], -3, 5);
    for (i, u) in f32s(&a).iter().enumerate() {
        assert_eq!(*u, (threefry(i as u64, 7) >> 40) as f32 * 2f32.powi(-24));
    }
    for (i, v) in ints(&b).iter().enumerate() {
        assert_eq!(
            *v as i64,
            -3 + (((threefry(3 + i as u64, 7) >> 32) * 8) >> 32) as i64
        );
    }
    Tensor::manual_seed(7);
    assert_eq!(f32s(&Tensor::rand([3])), f32s(&a));
    let n = Tensor::randn([4000]);
    let mean = n.mean(.., false).item::<f32>().unwrap();
    let std = n.std(.., false, 1).item::<f32>().unwrap();
    assert!(
        mean.abs() < 0.05 && (std - 1.0).abs() < 0.05,
        "{mean} {std}"
    );
    let mut p = ints(&Tensor::permutation(200));
    assert!(p.windows(2).any(|w| w[1] < w[0]));
    p.sort_unstable();
    assert_eq!(p, (0..200).collect::<Vec<_>>());
    let d = f32s(&Tensor::ones([1000]).dropout(0.25));
    let zeros = d.iter().filter(|v| **v == 0.0).count();
    assert!(
        (200..300).contains(&zeros) && d.iter().all(|v| *v == 0.0 || (*v - 4.0 / 3.0).abs() < 1e-6)
    );
}

/// The seed is one for the process.
static RANDOM: std::sync::Mutex<()> = std::sync::Mutex::new(());

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
fn places_beyond_31_bits_are_counted() {
    on_interpreter();
    let one = Tensor::ones([1]);
    let joined = Tensor::cat(&[&one.expand([2_500_000_000i64]), &Tensor::zeros([100])], 0);
    assert_eq!(
        f32s(&joined.index((2_499_999_999i64..2_500_000_001i64,))),
        [1.0, 0.0]
    );
    let steps =
        Tensor::linspace(0.0, 1.0, 3_000_000_001).index((Index::step(None, None, 750_000_000),));
    for (k, v) in f32s(&steps).into_iter().enumerate() {
        assert!((v - 0.25 * k as f32).abs() < 1e-6, "{k}: {v}");
    }
    assert_eq!(
        f32s(&Tensor::arange_of(0.0, 3e9, 1.0, DType::F32).index((-1,))),
        [3e9]
    );
    let low = Tensor::ones([1, 1]).expand([3_000_000_000i64, 2]).tril(0);
    assert_eq!(f32s(&low.index((2_999_999_999i64,))), [1.0, 1.0]);
    let hot = Tensor::new(&[7], [1]).one_hot(4_294_967_296);
    assert_eq!(ints(&hot.index((0, 4_294_967_291i64))), [0]);
    assert_eq!(ints(&hot.index((0, 7))), [1]);
    let far = one
        .expand([4_294_967_296i64])
        .gather(0, &Tensor::new(&[-5], [1]));
    assert_eq!(f32s(&far), [0.0]);
    let long = |a, b, s| Tensor::arange(a, b, s).to_vec::<i64>().unwrap();
    assert_eq!(
        long(3_000_000_000, 3_000_000_003, 1),
        [3_000_000_000, 3_000_000_001, 3_000_000_002]
    );
    assert_eq!(
        long(i64::MAX - 3, i64::MAX, 2),
        [i64::MAX - 3, i64::MAX - 1]
    );
    assert_eq!(ints(&Tensor::arange(5, -2, -3)), [5, 2, -1]);
    assert!(ints(&Tensor::arange(5, 5, -3)).is_empty());
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

#[test]
fn long_axes_are_resampled() {
    on_interpreter();
    let n = 60_000;
    let x = Tensor::arange(0, n, 1).reshape([1, 1, -1]);
    let far = x
        .interpolate(n + 30_000, Interpolation::Nearest)
        .index((0, 0, 80_000..80_003));
    assert_eq!(ints(&far), [53_333, 53_334, 53_334]);
}

#[test]
fn axes_are_resampled_by_every_mode() {
    on_interpreter();
    let x = Tensor::new(&[1.0f32, 4.0, 2.0, 8.0, 5.0], [5]);
    for (how, n, want) in [
        (Interpolation::NearestExact, 3, &[1.0, 2.0, 5.0][..]),
        (Interpolation::Area, 3, &[2.5, 14.0 / 3.0, 6.5]),
        (
            Interpolation::Linear {
                align_corners: true,
            },
            3,
            &[1.0, 2.0, 5.0],
        ),
        (
            Interpolation::Cubic {
                align_corners: false,
            },
            3,
            &[2.0555556, 2.0, 6.277_778],
        ),
        (
            Interpolation::Cubic {
                align_corners: true,
            },
            9,
            &[1.0, 2.6875, 4.0, 2.71875, 2.0, 5.09375, 8.0, 7.0625, 5.0],
        ),
    ] {
        let got = x.interpolate(n, how).to_vec::<f32>().unwrap();
        let near = got
            .iter()
            .zip(want)
            .all(|(g, w): (&f32, &f32)| (g - w).abs() < 1e-5);
        assert!(
            got.len() == want.len() && near,
            "{how:?}: {got:?}, not {want:?}"
        );
    }
}

/// Sums of products so long that they are done in parts.
#[test]
fn long_correlations_are_exact() {
    let n = 20_480usize;
    let shifts = 160;
    let x: Vec<i32> = (0..n + shifts - 1)
        .map(|i| (i * i % 97) as i32 - 48)
        .collect();
    let g: Vec<i32> = (0..n).map(|i| (i * 7 % 23) as i32 - 11).collect();
    let on_cpu = |v: &[i32]| Tensor::new(v, [v.len()]).to(monoglot_tensor::Device::new("CPU"));
    let got = (on_cpu(&x).unfold(0, n as i64, 1) * on_cpu(&g)).sum(1, false);
    let want = |s: usize| {
        g.iter()
            .zip(&x[s..])
            .map(|(a, b)| (a * b) as i64)
            .sum::<i64>()
    };
    assert_eq!(
        got.to_vec::<i64>().unwrap(),
        (0..shifts).map(want).collect::<Vec<_>>()
    );
}

/// What is computed in two places rounds alike in both, or what is equal would differ.
#[test]
fn ties_of_sums_are_found() {
    for device in ["CPU", "INTERP"] {
        for (rows, n) in [(5, 300), (3, 37), (16, 1000), (900, 7), (700, 300)] {
            let values: Vec<f32> = (0..rows * n)
                .map(|i| ((i * 7919) % 1013) as f32 * 0.37 - 100.0)
                .collect();
            let x = Tensor::new(&values, [rows, n]).to(monoglot_tensor::Device::new(device));
            let sums = x.sum(1, false);
            let (top, at) = sums.topk(rows as i64, 0, true);
            let sorted = sums.sort(0, true);
            assert_eq!(f32s(&top), f32s(&sorted));
            assert_eq!(
                f32s(&sums.index_select(0, &at)),
                f32s(&top),
                "{device} {rows} {n}"
            );
            let few = sums.topk(5.min(rows as i64), 0, true);
            assert_eq!(f32s(&few.0), f32s(&sorted)[..5.min(rows as usize)]);
            assert_eq!(
                f32s(&sums.index_select(0, &few.1)),
                f32s(&few.0),
                "{device} {rows} {n}"
            );
            let soft = x.softmax(1);
            assert!(
                f32s(&soft.ge(soft.max(1, true)).cast(DType::F32).sum(1, false))
                    .iter()
                    .all(|&c| c >= 1.0)
            );
        }
    }
}

/// Places that only a remainder, a maximum or a stored value keeps within the table.
#[test]
fn computed_places_are_in_bounds() {
    for device in ["CPU", "INTERP", "INTERP:GPU"] {
        let on = |t: Tensor| t.to(monoglot_tensor::Device::new(device));
        let table = on(Tensor::arange(0, 97, 1));
        for n in [1i64, 3, 33, 40] {
            let values: Vec<i32> = (0..n as i32).map(|i| i * 7919 - 500).collect();
            let ids = on(Tensor::new(&values, [n]));
            let by = |f: &dyn Fn(i32) -> i32| values.iter().map(|&v| f(v)).collect::<Vec<i32>>();
            assert_eq!(
                ints(&table.index_select(0, &(&ids % 97))),
                by(&|v| v.rem_euclid(97))
            );
            assert_eq!(
                ints(&table.index_select(0, &(ids.abs() % 40))),
                by(&|v| v.abs() % 40)
            );
            let most = by(&|v| v.rem_euclid(16)).into_iter().max();
            assert_eq!(
                ints(&table.index_select(0, &(&ids % 16).max(0, true))),
                [most.unwrap()]
            );
            // Several tables and a result of its own: the places are stored.
            let places = &ids % 97;
            let tables = (0..6).map(|k| (&table + k).index_select(0, &places));
            let sums = tables.reduce(|a, b| a + b).unwrap();
            Tensor::realize_all(&[&sums, &places]).unwrap();
            assert_eq!(ints(&sums), by(&|v| 6 * v.rem_euclid(97) + 15));
        }
    }
}

/// Sums of integers are exact, whatever phases of a stride are summed by themselves.
#[test]
fn transposed_convolutions_are_sums_over_all_taps() {
    for device in ["CPU", "INTERP"] {
        let on = |t: Tensor| t.to(monoglot_tensor::Device::new(device));
        let axes = [
            // elements, taps, stride, padding, more at the end
            [4i64, 3, 2, 1, 1],
            [3, 5, 2, 2, 0],
            [5, 4, 3, 1, 2],
            [2, 7, 3, 4, 0],
            [3, 1, 2, 0, 1],
            [2, 2, 4, 1, 3],
            [1, 6, 4, 0, 0],
            [4, 3, 1, 1, 0],
        ];
        for (a, b) in axes.iter().zip(axes.iter().cycle().skip(3)) {
            let [groups, cin, cout] = [2i64, 2, 3];
            let places = |[m, k, s, p, more]: [i64; 5]| (m - 1) * s + k - 2 * p + more;
            let [ny, nx] = [places(*a), places(*b)];
            let whole = |n: i64, by: i64| (0..n).map(move |i| (i * by % 11 - 5) as f32);
            let x: Vec<f32> = whole(groups * cin * a[0] * b[0], 7).collect();
            let w: Vec<f32> = whole(groups * cin * cout * a[1] * b[1], 5).collect();
            let mut sums = vec![0f32; (groups * cout * ny * nx) as usize];
            for (i, xi) in x.iter().enumerate() {
                let i = i as i64;
                let [channel, iy, ix] = [i / (a[0] * b[0]), i / b[0] % a[0], i % b[0]];
                for j in 0..cout * a[1] * b[1] {
                    let [to, ky, kx] = [j / (a[1] * b[1]), j / b[1] % a[1], j % b[1]];
                    let [y, x] = [iy * a[2] + ky - a[3], ix * b[2] + kx - b[3]];
                    if (0..ny).contains(&y) && (0..nx).contains(&x) {
                        let to = (channel / cin * cout + to) * ny * nx + y * nx + x;
                        sums[to as usize] += xi * w[(channel * cout * a[1] * b[1] + j) as usize];
                    }
                }
            }
            let how = Conv {
                stride: [a[2], b[2]].into(),
                padding: [a[3], b[3]].into(),
                output_padding: [a[4], b[4]].into(),
                groups,
                ..Conv::default()
            };
            let x = on(Tensor::new(&x, [1, groups * cin, a[0], b[0]]));
            let w = on(Tensor::new(&w, [groups * cin, cout, a[1], b[1]]));
            let y = x.conv_transpose(&w, None, &how);
            assert_eq!(y.to_vec::<f32>().unwrap(), sums, "{device} {a:?} {b:?}");
        }
    }
}

/// What is folded along one axis first, kept beside its readers or not, is what a window holds.
#[test]
fn pools_fold_what_their_windows_hold() {
    for device in ["CPU", "INTERP", "INTERP:GPU"] {
        let on = |t: Tensor| t.to(monoglot_tensor::Device::new(device));
        for (k, s, p) in [
            (2i64, 2i64, 0i64),
            (3, 2, 0),
            (3, 2, 1),
            (3, 1, 1),
            (5, 3, 2),
        ] {
            let [planes, ny, nx] = [80i64, 13, 18];
            let x: Vec<f32> = (0..planes * ny * nx)
                .map(|i| (i * 31 % 257 - 128) as f32)
                .collect();
            let [oy, ox] = [ny, nx].map(|n| (n + 2 * p - k) / s + 1);
            let mut most = Vec::new();
            let mut mean = Vec::new();
            for at in 0..planes * oy * ox {
                let [plane, y, x0] = [at / (oy * ox), at / ox % oy, at % ox];
                let inside = (0..k * k).filter_map(|j| {
                    let [y, x] = [y * s + j / k - p, x0 * s + j % k - p];
                    let there = (0..ny).contains(&y) && (0..nx).contains(&x);
                    there.then(|| x + nx * (y + ny * plane))
                });
                let inside = inside.map(|i| x[i as usize]);
                most.push(inside.clone().fold(f32::NEG_INFINITY, f32::max));
                mean.push(inside.sum::<f32>() / (k * k) as f32);
            }
            let x = on(Tensor::new(&x, [1, planes, ny, nx]));
            assert_eq!(
                f32s(&x.max_pool([k, k], [s, s], [p, p], 1)),
                most,
                "{k} {s} {p}"
            );
            let got = f32s(&x.avg_pool([k, k], [s, s], [p, p], true));
            for (a, b) in got.iter().zip(&mean) {
                assert!((a - b).abs() < 1e-3, "{device} {k} {s} {p}: {a} {b}");
            }
        }
    }
}

/// A depthwise convolution's padding is kept with each plane.
#[test]
fn planes_by_their_own_weights_are_padded() {
    for device in ["CPU", "INTERP", "INTERP:GPU"] {
        let on = |t: Tensor| t.to(monoglot_tensor::Device::new(device));
        let [planes, n] = [72i64, 11];
        let whole = |n: i64, by: i64| (0..n).map(move |i| (i * by % 13 - 6) as f32);
        let x: Vec<f32> = whole(planes * n * n, 29).collect();
        let w: Vec<f32> = whole(planes * 9, 5).collect();
        let sum = |at: i64| -> f32 {
            let [plane, y, x0] = [at / (n * n), at / n % n, at % n];
            let tap = |j: i64| {
                let [y, x1] = [y + j / 3 - 1, x0 + j % 3 - 1];
                let there = (0..n).contains(&y) && (0..n).contains(&x1);
                let at = (plane * n + y) * n + x1;
                let product = || x[at as usize] * w[(plane * 9 + j) as usize];
                if there { product() } else { 0.0 }
            };
            (0..9).map(tap).sum()
        };
        let sums: Vec<f32> = (0..planes * n * n).map(sum).collect();
        let how = Conv {
            padding: 1.into(),
            groups: planes,
            ..Conv::default()
        };
        let x = on(Tensor::new(&x, [1, planes, n, n]));
        let w = on(Tensor::new(&w, [planes, 1, 3, 3]));
        assert_eq!(f32s(&x.conv2d(&w, None, &how)), sums, "{device}");
    }
}
