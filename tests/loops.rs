//! Loops as people write them: a new literal, offset or batch in every step. Flows in: the façade;
//! flows out: values against plain Rust, and the engine's counters, which are the process's: nothing
//! else is tested in this one, and its parts run one after the other.

use monoglot::counters;
use monoglot::prelude::*;

/// What a loop compiled: programs, of which generalised, and kernels.
#[derive(Debug)]
struct Made {
    programs: u64,
    kernels: u64,
}

fn made(f: impl FnOnce()) -> Made {
    let before = counters();
    f();
    let after = counters();
    Made {
        programs: after.schedules - before.schedules,
        kernels: after.compiled - before.compiled,
    }
}

/// A loop of one kernel a step compiles it at most so often.
fn at_most(most: u64, what: &str, f: impl FnOnce()) {
    let made = made(f);
    assert!(made.kernels <= most, "{what}: {made:?}");
    assert!(made.programs <= most, "{what}: {made:?}");
}

fn numbers(n: usize) -> (Vec<f32>, Tensor) {
    let data: Vec<f32> = (0..n).map(|i| (i % 251) as f32 - 100.0).collect();
    let t = Tensor::new(&data, [n]);
    (data, t)
}

fn f32s(t: &Tensor) -> Vec<f32> {
    t.to_vec().expect("a value")
}

fn literals() {
    let (data, x) = numbers(37);
    at_most(2, "a * k", || {
        for step in 0..1000 {
            let k = step as f32 * 0.37 - 3.0;
            let want: Vec<f32> = data.iter().map(|v| v * k).collect();
            assert_eq!(f32s(&(&x * k)), want, "times {k}");
        }
    });
    at_most(2, "(a + k) / j", || {
        for step in 0..100 {
            let k = step as f32;
            let j = 2.0 + step as f32;
            let want: Vec<f32> = data.iter().map(|v| (v + k) / j).collect();
            assert_eq!(f32s(&((&x + k) / j)), want);
        }
    });
    at_most(2, "where", || {
        for k in 0..100 {
            let want: Vec<f32> = data
                .iter()
                .map(|&v| if v < k as f32 { k as f32 } else { v })
                .collect();
            let got = x.lt(k).select(k as f32, &x);
            assert_eq!(f32s(&got), want);
        }
    });
    at_most(2, "clamp", || {
        for k in 1..100 {
            let want: Vec<f32> = data.iter().map(|&v| v.clamp(-k as f32, k as f32)).collect();
            assert_eq!(f32s(&x.clamp(-k as f64, k as f64)), want);
        }
    });
    at_most(2, "full", || {
        for k in 0..100 {
            assert_eq!(f32s(&Tensor::full([5], k as f32)), [k as f32; 5]);
        }
    });
    at_most(2, "full of one", || {
        for k in 0..100 {
            assert_eq!(f32s(&Tensor::full([1], k as f32)), [k as f32]);
        }
    });
    // √x, x, x², x³ and x⁴ are programs of their own.
    at_most(6, "pow", || {
        for k in 0..40 {
            let k = k as f32 * 0.25;
            let got = f32s(&Tensor::new(&[4f32, 9.0], [2]).pow(k));
            for (got, base) in got.iter().zip([4f32, 9.0]) {
                assert!((got / base.powf(k) - 1.0).abs() < 1e-5, "{base}^{k}: {got}");
            }
        }
    });
    let long = Tensor::new(&[i64::MAX, -5, 7, 1 << 40], [4]);
    at_most(2, "integers", || {
        for k in 0i64..100 {
            let k = k * k * k * 1_000_003 - 7;
            let want = [i64::MAX, -5, 7, 1 << 40].map(|v: i64| v.wrapping_mul(k).wrapping_add(k));
            assert_eq!((&long * k + k).to_vec::<i64>().unwrap(), want, "{k}");
        }
    });
    at_most(2, "floor division", || {
        for k in 0i64..50 {
            let k = k - 20;
            let want = [i64::MAX, -5, 7, 1 << 40].map(|v: i64| match k {
                0 => 0,
                k => v.div_euclid(k) - (k < 0 && v.rem_euclid(k) != 0) as i64,
            });
            assert_eq!(long.floor_div(k).to_vec::<i64>().unwrap(), want, "{k}");
        }
    });
    for dtype in [
        DType::F16,
        DType::BF16,
        DType::F64,
        DType::I8,
        DType::U16,
        DType::U64,
    ] {
        let x = Tensor::new(&[1i32, 2, 3], [3]).cast(dtype);
        x.realize().unwrap();
        at_most(4, "dtypes", || {
            for k in 0..30i32 {
                let got = (&x * k).cast(DType::I32).to_vec::<i32>().unwrap();
                assert_eq!(got, [k, 2 * k, 3 * k], "{dtype} {k}");
            }
        });
    }
}

fn offsets() {
    let (data, xs) = numbers(32 * 1000);
    xs.realize().unwrap();
    let sum = |from: usize, n: usize| data[from..from + n].iter().sum::<f32>();
    at_most(2, "narrow", || {
        for i in 0..1000 {
            let batch = xs.narrow(0, i * 32, 32);
            assert_eq!(
                batch.sum(.., false).item::<f32>().unwrap(),
                sum(i as usize * 32, 32)
            );
        }
    });
    at_most(2, "index", || {
        for i in 0..1000usize {
            let batch = xs.index((i * 32..i * 32 + 32,));
            assert_eq!(f32s(&(&batch * 2.0))[5], 2.0 * data[i * 32 + 5]);
        }
    });
    at_most(2, "contiguous", || {
        for i in 0..0 {
            let batch = xs.narrow(0, i * 32, 32).contiguous();
            assert_eq!(f32s(&batch), data[i as usize * 32..i as usize * 32 + 32]);
        }
    });
    at_most(3, "offsets that lower their divisor", || {
        for from in [0, 640, 64, 7, 33, 31_000, 1] {
            let batch = xs.narrow(0, from, 100);
            assert_eq!(
                batch.sum(.., false).item::<f32>().unwrap(),
                sum(from as usize, 100)
            );
        }
    });
    at_most(2, "one element", || {
        for (i, v) in data.iter().enumerate().take(100) {
            assert_eq!((xs.index(i) + 1.0).item::<f32>().unwrap(), v + 1.0);
        }
    });
    let rows = xs.reshape([100, 320]);
    at_most(3, "rows and columns", || {
        for (i, j) in [(0, 0), (3, 17), (99, 319), (5, 5), (0, 1), (1, 0)] {
            let got = rows.narrow(0, i, 1).narrow(1, j, 1) * 3.0;
            assert_eq!(f32s(&got), [3.0 * data[(i * 320 + j) as usize]]);
        }
    });
    at_most(2, "padding", || {
        for i in 0..20 {
            let got = f32s(
                &Tensor::new(&[1f32, 2.0], [2])
                    .pad(&[[i, 20 - i]], monoglot::PadMode::Constant(0.0)),
            );
            assert_eq!(
                (got[i as usize], got[i as usize + 1], got.len()),
                (1.0, 2.0, 22)
            );
        }
    });
}

/// Parts of a file, and copies between devices, go from where they lie: a step moves its part alone.
fn copies() {
    let (data, xs) = numbers(1024);
    xs.realize().unwrap();
    at_most(4, "to another device", || {
        for i in 0..32i64 {
            let part = xs.narrow(0, i * 32, 32).to(Device::new("INTERP"));
            assert_eq!(f32s(&(part * 2.0))[3], 2.0 * data[i as usize * 32 + 3]);
        }
    });
    let path = std::env::temp_dir().join(format!("monoglot-loops-{}", std::process::id()));
    let bytes: Vec<u8> = data.iter().flat_map(|v| v.to_le_bytes()).collect();
    std::fs::write(&path, bytes).unwrap();
    let file = Tensor::open(&path, DType::F32);
    at_most(2, "from a file", || {
        for i in [3i64, 0, 7, 1, 31, 2] {
            let part = file.narrow(0, i * 32, 32).to(Device::new("CPU"));
            assert_eq!(f32s(&part), data[i as usize * 32..i as usize * 32 + 32]);
        }
    });
    std::fs::remove_file(&path).unwrap();
}

/// Reads and writes at offsets that vary, of one buffer: every pair of places, overlapping or not.
fn writes() {
    let n = 8i64;
    // Two structures: where both are one place, they are one node.
    let pairs = made(|| {
        for to in 0..=n - 3 {
            for from in 0..=n - 3 {
                let mut want: Vec<f32> = (0..n).map(|v| v as f32).collect();
                let t = Tensor::new(&want, [n]);
                t.realize().unwrap();
                let read = t.narrow(0, from, 3) * 10.0;
                t.narrow(0, to, 3).assign(&t.narrow(0, from, 3) + 1.0);
                Tensor::realize_all(&[&t, &read]).unwrap();
                let old = want.clone();
                for k in 0..3 {
                    want[to as usize + k] = old[from as usize + k] + 1.0;
                }
                assert_eq!(f32s(&t), want, "{from} to {to}");
                let ten = |v: &f32| v * 10.0;
                let part = &old[from as usize..from as usize + 3];
                assert_eq!(f32s(&read), part.iter().map(ten).collect::<Vec<_>>());
            }
        }
    });
    assert!(pairs.programs <= 6, "{pairs:?}");
    let t = Tensor::zeros([64]);
    t.realize().unwrap();
    at_most(3, "one place a step", || {
        for i in 0..64i64 {
            t.narrow(0, i, 1).assign(i as f32 * 0.5);
            t.realize().unwrap();
        }
    });
    let want: Vec<f32> = (0..64).map(|i| i as f32 * 0.5).collect();
    assert_eq!(f32s(&t), want);
}

struct Mlp {
    first: Linear,
    second: Linear,
}
module!(Mlp { first, second });

/// A training step on a slice compiles no more than one on rows that an index tensor names.
fn training() {
    Tensor::manual_seed(3);
    let net = Mlp {
        first: Linear::new(16, 32),
        second: Linear::new(32, 4),
    };
    let sgd = Sgd::new(&net, 0.05);
    let xs = Tensor::randn([320, 16]);
    let ys = Tensor::new(&(0..320).map(|i| i % 4).collect::<Vec<i32>>(), [320]);
    Tensor::realize_all(&[&xs, &ys]).unwrap();
    let step = |i: i64| {
        let x = xs.narrow(0, i * 32, 32);
        let y = ys.narrow(0, i * 32, 32);
        let hidden = net.first.forward(&x).relu();
        let loss = net
            .second
            .forward(&hidden)
            .cross_entropy(&y, Reduction::Mean, 0.0);
        sgd.step(&loss).unwrap();
        loss.item::<f32>().unwrap()
    };
    let first = made(|| _ = step(0));
    let second = made(|| _ = step(1));
    assert!(second.kernels <= first.kernels, "{first:?} {second:?}");
    let later = made(|| {
        for i in 0..30 {
            step(i % 10);
        }
    });
    assert_eq!((later.programs, later.kernels), (0, 0), "{later:?}");
}

#[test]
fn loops_compile_their_steps_twice_at_most() {
    literals();
    offsets();
    copies();
    writes();
    training();
}
