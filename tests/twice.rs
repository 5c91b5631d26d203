//! What two kernels compute of one expression is the same to the bit, so that an element is found among those that it
//! was taken from: in one a power is known to be at most 1, in another it is not. And what one knows of the other's
//! rounding is so on every device. Flows in: the façade; flows out: counts of elements that are equal, places, errors.

use monoglot::Config;
use monoglot::prelude::*;
use std::sync::Mutex;

/// The default device is the process's: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Those with fused multiply-adds, one without, and the interpreter.
const DEVICES: &[&str] = if cfg!(target_arch = "x86_64") {
    &["CPU", "CPU:X86:x86-64-v3", "CPU:X86:x86-64-v2", "INTERP"]
} else {
    &["CPU", "INTERP"]
};

fn on_each(mut f: impl FnMut(&str) -> Result<()>) -> Result<()> {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    for device in DEVICES {
        Config {
            device: Some((*device).into()),
            ..Config::default()
        }
        .set();
        f(device)?;
    }
    Ok(())
}

fn values(shape: &[i64]) -> Tensor {
    let n: i64 = shape.iter().product();
    let data = (0..n).map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 300.0);
    Tensor::new(&data.collect::<Vec<_>>(), shape.to_vec())
}

/// Powers of what is at most 0, of several kinds.
type Powers = [(&'static str, fn(&Tensor) -> Tensor); 4];

const POWERS: Powers = [
    ("softmax", |x| x.softmax(1)),
    ("exp", |x| (x - x.max(1, true)).exp()),
    ("exp2", |x| (x - x.max(1, true)).exp2()),
    ("a multiple's exp", |x| ((x - x.max(1, true)) * 0.3).exp()),
];

#[test]
fn the_least_of_a_row_is_one_of_its_elements() -> Result<()> {
    on_each(|device| {
        for (name, powers) in POWERS {
            for shape in [[1, 3], [8, 12], [4, 37], [32, 7]] {
                let p = powers(&values(&shape));
                let found = p.eq(p.min(1, true)).sum(.., false).item::<i64>()?;
                assert!(found >= shape[0], "{device}: {name} {shape:?}: {found}");
            }
        }
        Ok(())
    })
}

#[test]
fn what_the_least_is_added_to_has_its_gradient() -> Result<()> {
    on_each(|device| {
        let b = Tensor::zeros([1]).parameter();
        let least = (values(&[8, 12]).softmax(1) + &b).min(1, false);
        let gradient = least.sum(.., false).gradient(&[&b])?;
        assert_eq!(gradient[0].item::<f32>()?, 8.0, "{device}");
        Ok(())
    })
}

#[test]
fn shares_beside_a_length_that_varies_have_one_place_each() -> Result<()> {
    on_each(|device| {
        for columns in [2, 4, 9] {
            let x = values(&[2, 3, columns]).dynamic(2, 1..=9);
            let shares = x.softmax(1);
            let places = shares.argsort(1, true).sort(1, false).to_vec::<i32>()?;
            let columns = columns as usize;
            for (i, place) in places.iter().enumerate() {
                assert_eq!(*place as usize, i / columns % 3, "{device}: {places:?}");
            }
            let least = shares.sort(1, true).min(.., false).item::<f32>()?;
            assert!(least > 0.0, "{device}: {columns}: {least}");
        }
        Ok(())
    })
}

/// An exponential's argument is rounded before the power is taken, since what that lost is put right behind it.
#[test]
fn exponentials_lose_nothing_twice() -> Result<()> {
    on_each(|device| {
        // Without fused multiply-adds what was lost is not known as well.
        let fused = !device.ends_with("v2");
        let [single_bound, double_bound] = if fused { [2.0, 2.0] } else { [36.0, 64.0] };
        for columns in [1, 7, 40] {
            let rows = 320 / columns;
            let at = |i: i64| (i * 7919 % 1601) as f64 / 10.0 - 80.0;
            let data: Vec<f32> = (0..rows * columns).map(|i| at(i) as f32).collect();
            let x = Tensor::new(&data, [rows, columns]);
            let most = data.iter().copied().fold(f32::MIN, f32::max);
            // In units of the dtype's epsilon, relative to what is right.
            let worst = |got: Tensor, of: &dyn Fn(f32) -> f64, epsilon: f64| -> Result<f64> {
                let got = got.cast(DType::F64).to_vec::<f64>()?;
                let off = |(g, x): (&f64, &f32)| (g / of(*x) - 1.0).abs() / epsilon;
                Ok(got.iter().zip(&data).map(off).fold(0.0, f64::max))
            };
            let exp = |x: f32| f64::from(x).exp();
            let epsilon = f64::from(f32::EPSILON);
            let found = worst(x.exp(), &exp, epsilon)?;
            assert!(found < single_bound, "{device}: exp of f32: {found}");
            let found = worst(x.cast(DType::F64).exp(), &exp, f64::EPSILON)?;
            assert!(found < double_bound, "{device}: exp of f64: {found}");
            let below = ((&x - x.max(.., true)) * 0.5).exp();
            let found = worst(below, &|x| exp((x - most) * 0.5), epsilon)?;
            assert!(
                found < single_bound,
                "{device}: of what is at most 0: {found}"
            );
        }
        Ok(())
    })
}

/// Of several rows, what is greatest in each, in ways of which each has a gradient that finds it again.
type Greatest = [(&'static str, fn(&Tensor) -> Tensor); 6];

const GREATEST: Greatest = [
    ("max", |x| x.max(0, true)),
    ("min", |x| x.min(0, true)),
    ("cummax", |x| x.cummax(0)),
    ("max_pool", |x| x.max_pool(3, 3, 0, 1)),
    ("max_pool of windows that overlap", |x| {
        x.max_pool(3, 1, 1, 1)
    }),
    ("clamp", |x| x.clamp(-0.1, 0.1)),
];

/// Whether there is something in a gradient, and it is that of `plain`.
fn is_that(found: &Tensor, plain: &[f32], what: &str) -> Result<()> {
    let found = found.to_vec::<f32>()?;
    let size = plain.iter().fold(0f32, |m, v| m.max(v.abs()));
    assert!(size > 1e-3, "{what}: nothing flows");
    for (i, (f, p)) in found.iter().zip(plain).enumerate() {
        assert!((f - p).abs() < 1e-3 * size, "{what}: {i}: {f}, not {p}");
    }
    Ok(())
}

/// One of them is kept, and what it was found among is computed by another kernel than before.
#[test]
fn the_greatest_of_what_is_computed_again_has_its_gradient() -> Result<()> {
    on_each(|device| {
        for (name, greatest) in GREATEST {
            for rows in [3, 17, 46] {
                let what = format!("{device}: {name} of {rows} rows");
                Tensor::manual_seed(rows as u64);
                let x = Tensor::randn([rows, 17]);
                let k = Tensor::randn([17, 65]);
                let v = Tensor::randn([65, 9]);
                Tensor::realize_all(&[&x, &k, &v])?;
                let among = |x: &Tensor| x.matmul(&k).softmax(-1).matmul(&v);
                let net =
                    |x: &Tensor| greatest(&among(x).reshape([1, 1, rows, 9]).squeeze(0).squeeze(0));
                let weight = |y: &Tensor| -> Result<Tensor> {
                    let n = y.numel()? as i64;
                    Ok((y.flatten(0, -1) * (Tensor::arange(1, n + 1, 1) * 0.1)).sum(.., false))
                };
                let plain = weight(&net(&x))?.gradient(&[&x])?.remove(0);
                let plain = plain.to_vec::<f32>()?;

                let f = function(|x: &Tensor| net(x));
                let twice = weight(&f.call(&x)?)? + weight(&f.call(&(&x * 1.0))?)? * 0.0;
                is_that(
                    &twice.gradient(&[&x])?[0],
                    &plain,
                    &format!("{what}, in a function"),
                )?;

                let y = net(&x);
                let loss = weight(&y)?;
                let same = net(&x);
                same.realize()?;
                is_that(&loss.gradient(&[&x])?[0], &plain, &format!("{what}, kept"))?;
            }
        }
        Ok(())
    })
}

#[test]
fn the_place_of_the_greatest_is_found_beside_one_that_is_kept() -> Result<()> {
    on_each(|device| {
        for seed in 0..4 {
            Tensor::manual_seed(seed);
            let x = Tensor::randn([9, 17]);
            let k = Tensor::randn([17, 65]);
            let v = Tensor::randn([65, 33]);
            Tensor::realize_all(&[&x, &k, &v])?;
            let scores = x.matmul(&k).softmax(-1).matmul(&v);
            let right = scores.argmax(1, false).to_vec::<i32>()?;
            let least = scores.argmin(1, false).to_vec::<i32>()?;
            let kept = [
                scores.max(1, true),
                scores.min(1, true),
                scores.max(1, false),
            ];
            Tensor::realize_all(&kept.iter().collect::<Vec<_>>())?;
            assert_eq!(scores.argmax(1, false).to_vec::<i32>()?, right, "{device}");
            assert_eq!(scores.argmin(1, false).to_vec::<i32>()?, least, "{device}");
            let all = scores.to_vec::<f32>()?;
            for (row, place) in right.iter().enumerate() {
                let row = &all[33 * row..][..33];
                let greatest = row.iter().fold(f32::MIN, |m, v| m.max(*v));
                assert!(
                    greatest - row[*place as usize] < 1e-4,
                    "{device}: {row:?} {place}"
                );
            }
        }
        Ok(())
    })
}
