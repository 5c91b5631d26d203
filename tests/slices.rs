//! What goes through a slice several times (a softmax, a normalisation, one that nobody named) is one
//! kernel along any axis, whose values are those of plain loops. Flows in: the façade; flows out:
//! comparisons with f64 on every device here, and counts on NULL, for one kind of machine.

use monoglot::compiler::engine::{compile, default_device};
use monoglot::prelude::*;
use monoglot::{Config, Device};
use std::sync::Mutex;

/// The default device is the process's: one at a time.
static ONE: Mutex<()> = Mutex::new(());

fn on(device: &str) {
    Config {
        device: Some(device.into()),
        ..Config::default()
    }
    .set();
}

/// Something done to every slice along an axis, and to one of them as plain loops.
struct Case {
    name: &'static str,
    of: fn(&Tensor, i64) -> Tensor,
    plain: fn(&[f64]) -> Vec<f64>,
}

fn exps(x: &[f64]) -> (Vec<f64>, f64) {
    let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let e: Vec<f64> = x.iter().map(|v| (v - top).exp()).collect();
    let sum = e.iter().sum();
    (e, sum)
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let (e, sum) = exps(x);
    e.iter().map(|v| v / sum).collect()
}

/// The softmax of a slice and its gradient for these weights of the results.
fn softmax_gradient(x: &[f64]) -> Vec<f64> {
    let y = softmax(x);
    let g: Vec<f64> = (0..x.len()).map(|i| i as f64 * 0.01).collect();
    let dot: f64 = y.iter().zip(&g).map(|(y, g)| y * g).sum();
    y.iter().zip(&g).map(|(y, g)| y * (g - dot)).collect()
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

fn variance(x: &[f64]) -> f64 {
    let m = mean(x);
    x.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / x.len() as f64
}

/// 0, 1, … along an axis of a tensor's shape.
fn places(x: &Tensor, axis: i64) -> Tensor {
    let shape = x.shape().expect("well-formed");
    let n = shape[axis as usize];
    let mut wide = vec![1; shape.len()];
    wide[axis as usize] = n;
    let places = Tensor::arange(0, n as i64, 1).cast(DType::F32);
    places.reshape(wide).expand(shape)
}

fn cases() -> Vec<Case> {
    let case = |name, of, plain| Case { name, of, plain };
    vec![
        case("softmax", |x, a| x.softmax(a), softmax),
        case(
            "softmax by hand",
            |x, a| {
                let e = (x - x.max(a, true)).exp();
                &e / e.sum(a, true)
            },
            softmax,
        ),
        case(
            "log_softmax",
            |x, a| x.log_softmax(a),
            |x| softmax(x).iter().map(|v| v.ln()).collect(),
        ),
        case(
            "logsumexp",
            |x, a| x.logsumexp(a, false),
            |x| {
                let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                vec![top + exps(x).1.ln()]
            },
        ),
        case(
            "layer norm",
            |x, a| {
                let z = x - x.mean(a, true);
                &z / ((&z * &z).mean(a, true) + 1e-5).sqrt()
            },
            |x| {
                let m = mean(x);
                let root = (variance(x) + 1e-5).sqrt();
                x.iter().map(|v| (v - m) / root).collect()
            },
        ),
        case(
            "rms norm",
            |x, a| x * ((x * x).mean(a, true) + 1e-5).rsqrt(),
            |x| {
                let square = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
                x.iter().map(|v| v / (square + 1e-5).sqrt()).collect()
            },
        ),
        case("variance", |x, a| x.var(a, false, 0), |x| vec![variance(x)]),
        case(
            "softmax of capped scores",
            |x, a| ((x / 2.0).tanh() * 2.0).softmax(a),
            |x| softmax(&x.iter().map(|v| (v / 2.0).tanh() * 2.0).collect::<Vec<_>>()),
        ),
        case(
            "softmax with a slope",
            |x, a| (x - places(x, a) * 0.125).softmax(a),
            |x| {
                let sloped = x.iter().enumerate().map(|(i, v)| v - i as f64 * 0.125);
                softmax(&sloped.collect::<Vec<_>>())
            },
        ),
        case(
            "a normalisation without a name",
            |x, a| {
                let c = x - (x.max(a, true) - x.mean(a, true)) * 0.5;
                &c / (c.abs().sum(a, true) + 0.5) + (&c * &c).max(a, true).sqrt()
            },
            |x| {
                let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let away = (top - mean(x)) * 0.5;
                let c: Vec<f64> = x.iter().map(|v| v - away).collect();
                let sum = c.iter().map(|v| v.abs()).sum::<f64>() + 0.5;
                let far = c.iter().map(|v| v.abs()).fold(0.0, f64::max);
                c.iter().map(|v| v / sum + far).collect()
            },
        ),
        case(
            "a softmax's gradient",
            |x, a| {
                let loss = (x.softmax(a) * places(x, a) * 0.01).sum(.., false);
                loss.gradient(&[x]).expect("a gradient").remove(0)
            },
            softmax_gradient,
        ),
    ]
}

/// What loops give, for every slice along an axis of an array of two.
fn loops(x: &[f32], shape: [usize; 2], axis: usize, plain: fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let [rows, columns] = shape;
    let slices = [columns, rows][axis];
    let mut out: Vec<(usize, f64)> = Vec::new();
    for s in 0..slices {
        let place = |i: usize| [i * columns + s, s * columns + i][axis];
        let slice: Vec<f64> = (0..shape[axis]).map(|i| x[place(i)].into()).collect();
        let result = plain(&slice);
        let single = result.len() == 1 && shape[axis] > 1;
        let at = |i: usize| if single { s } else { place(i) };
        out.extend(result.iter().enumerate().map(|(i, v)| (at(i), *v)));
    }
    out.sort_by_key(|(at, _)| *at);
    out.into_iter().map(|(_, v)| v).collect()
}

/// Numbers from -3 to 3, the same every time.
fn numbers(count: usize) -> Vec<f32> {
    let next = |i: usize| (i as u32).wrapping_mul(2_654_435_761) >> 8;
    let to = |n: u32| n as f32 / (1u32 << 24) as f32 * 6.0 - 3.0;
    (0..count).map(|i| to(next(i + 1))).collect()
}

fn agrees(device: &str, shapes: &[[usize; 2]]) {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    on(device);
    for case in cases() {
        for &shape in shapes {
            let values = numbers(shape[0] * shape[1]);
            for axis in [0, 1] {
                let x = Tensor::new(&values, shape.map(|n| n as i64)).to(Device::new(device));
                let y = (case.of)(&x, axis as i64).contiguous();
                let got = y.to_vec::<f32>().expect("it runs");
                let want = loops(&values, shape, axis, case.plain);
                assert_eq!(got.len(), want.len());
                for (i, (g, w)) in got.iter().zip(&want).enumerate() {
                    let near = (f64::from(*g) - w).abs() <= 2e-5 * (1.0 + w.abs());
                    let name = case.name;
                    assert!(
                        near,
                        "{name} of {shape:?} along {axis} at {i}: {g}, not {w}"
                    );
                }
            }
        }
    }
}

#[test]
fn slices_agree_with_plain_loops_on_the_cpu() {
    let shapes = [
        [3, 7],
        [5, 33],
        [17, 129],
        [65, 64],
        [130, 257],
        [1, 1000],
        [301, 2],
        [96, 1500],
    ];
    agrees("CPU", &shapes);
}

#[test]
fn slices_agree_with_plain_loops_in_the_interpreter() {
    agrees("INTERP", &[[3, 7], [17, 33], [70, 40]]);
}

#[test]
fn slices_agree_with_plain_loops_in_workgroups() {
    agrees("INTERP:GPU", &[[3, 7], [17, 33], [70, 40]]);
}

#[test]
fn what_goes_through_a_slice_several_times_is_one_kernel() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    on("NULL:C:x86-64-v3");
    for shape in [[4096, 4096], [64, 256], [3, 7], [1, 30_000], [1000, 777]] {
        for axis in [0, 1] {
            for case in cases() {
                let x = Tensor::empty(shape, DType::F32, default_device());
                let y = (case.of)(&x, axis);
                let n = compile(&[y.uop().expect("well-formed")]).expect("it compiles");
                let name = case.name;
                assert_eq!(n.kernels, 1, "{name} of {shape:?} along {axis}");
            }
        }
    }
}

/// A condition that stands for the whole of a slice, under which its elements are conditions themselves.
#[test]
fn slices_of_conditions_have_statistics() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    for device in ["CPU", "INTERP"] {
        on(device);
        let x = Tensor::new(&[1f32, -1.0, 2.0, 3.0, -2.0, -1.0], [2, 3]);
        let positive = x.gt(0.0);
        let padded = positive.pad(&[[1, 0], [0, 0]], PadMode::Constant(0.0));
        let some = positive.bitwise_and(Tensor::arange(0, 3, 1).lt(2));
        let picked = positive.index((.., &Tensor::new(&[0i32, 2, 1, 1], [4])));
        let spread = |mask: &Tensor, axis| mask.cast(DType::F32).std(axis, false, 0);
        let third = 2f32.sqrt() / 3.0;
        let cases = [
            ("padded", spread(&padded, 1), vec![0.0, third, third]),
            ("some", spread(&some, 1), vec![third, third]),
            ("some, down", spread(&some, 0), vec![0.0, 0.0, 0.0]),
            ("picked, down", spread(&picked, 0), vec![0.0, 0.5, 0.0, 0.0]),
        ];
        for (name, got, want) in cases {
            let got = got.to_vec::<f32>().expect("it compiles");
            let near = got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 1e-6);
            assert!(
                near && got.len() == want.len(),
                "{device}: {name}: {got:?}, not {want:?}"
            );
        }
    }
}
