//! Gradients of random small programs against differences in f64, and of programs that are deep or
//! wide, in a small stack. Flows in: seeds; flows out: a failed test that names the program.

use monoglot_tensor::{Conv, DType, Dims, PadMode, Reduction, Tensor, jit};

/// No compiler is waited for.
fn on_interpreter() {
    monoglot_engine::set_default_device(monoglot_tensor::Device::new("INTERP"));
}

struct Random(u64);

impl Random {
    fn next(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// One op on a (2, 3) tensor of f64 that gives another, smooth where values are likely to be.
fn op(k: u64, x: &Tensor, y: &Tensor) -> Tensor {
    match k {
        0 => x.tanh() + y,
        1 => x * y,
        2 => (x * 0.3).exp() - y,
        3 => (x * x + 1.0).sqrt(),
        4 => x.softmax(1) * 2.0,
        5 => x - x.mean([0, 1], true),
        6 => x.gelu(),
        7 => x.sigmoid() / (y * y + 1.0),
        8 => x.cumsum(1),
        9 => x.flip([0, 1]) * y,
        10 => x.t().reshape([2, 3]).sin(),
        11 => x.matmul(&y.t()).matmul(x) * 0.2,
        12 => x
            .pad(&[[1, 0], [0, 2]], PadMode::Constant(0.5))
            .index((1.., 2..)),
        13 => x.maximum(y),
        14 => x.gt(y).select(x.square(), y.cos()),
        15 => x.log_softmax(0),
        16 => x.layer_norm([3], None, None, 1e-3),
        17 => Tensor::cat(&[x, y], 1).narrow(1, 2, 3),
        18 => Tensor::stack(&[&x.sum(0, false), &y.max(0, false)], 0),
        19 => x.logsumexp(1, true) + y.prod(0, true) * 0.1,
        20 => x.softplus(2.0) - y.logsigmoid(),
        21 => x.sort(1, true) + y,
        22 => x.roll([1, 1], [0, 1]).elu(1.2),
        23 => x.cumprod(1) * 0.5 + y.atan(),
        24 => x.var(0, true, 0) * y,
        25 => (x * 0.1).asin() + (y * 0.1).tan() + x.asinh(),
        26 => x.erf() * y.silu(),
        27 => x.logaddexp(y),
        28 => x.attention(y, x, None, false),
        _ => x
            .repeat_interleave(2, 0)
            .narrow(0, 1, 2)
            .index((.., monoglot_tensor::Index::step(None, None, -1))),
    }
}

fn program(seed: u64, x: &Tensor, y: &Tensor) -> Tensor {
    let mut r = Random(seed.wrapping_mul(0x9e3779b97f4a7c15) + 1);
    let mut values = vec![x.clone(), y.clone()];
    for _ in 0..6 {
        let a = r.next(values.len() as u64) as usize;
        let b = values.len() - 1;
        let k = r.next(30);
        values.push(op(k, &values[b], &values[a]));
    }
    let w = Tensor::new(&[0.3f64, -0.7, 1.1, 0.9, -0.4, 0.6], [2, 3]);
    (&values[values.len() - 1] * &w).sum(.., false)
}

fn check(name: &str, of: impl Fn(&Tensor, &Tensor) -> Tensor, xs: [f64; 6], ys: [f64; 6]) {
    let t = |v: &[f64; 6]| Tensor::new(v, [2, 3]);
    let x = t(&xs);
    let y = t(&ys);
    let loss = of(&x, &y);
    let grads = loss
        .gradient(&[&x, &y])
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    for (k, g) in grads.iter().enumerate() {
        let got = g.to_vec::<f64>().unwrap_or_else(|e| panic!("{name}: {e}"));
        for i in 0..6 {
            let at = |d: f64| {
                let mut a = xs;
                let mut b = ys;
                if k == 0 {
                    a[i] += d
                } else {
                    b[i] += d
                }
                of(&t(&a), &t(&b)).item::<f64>().expect("runs")
            };
            let h = 1e-5;
            let want = (at(h) - at(-h)) / (2.0 * h);
            assert!(
                (got[i] - want).abs() < 1e-5 * (1.0 + want.abs()),
                "{name} d{k}[{i}]: {} {want}",
                got[i]
            );
        }
    }
}

#[test]
fn every_op_and_random_programs() {
    on_interpreter();
    let xs = [0.31, -0.92, 1.27, 0.55, -1.41, 0.08];
    let ys = [0.77, 0.13, -0.64, 1.09, -0.35, 1.52];
    let w = Tensor::new(&[0.3f64, -0.7, 1.1, 0.9, -0.4, 0.6], [2, 3]);
    for k in 0..30 {
        // An op may use one of the two only.
        check(
            &format!("op {k}"),
            |x, y| (op(k, x, y) * &w).sum(.., false) + (x * y).sum(.., false),
            xs,
            ys,
        );
    }
    for seed in 0..60 {
        check(
            &format!("program {seed}"),
            |x, y| program(seed, x, y) + (x * y).sum(.., false),
            xs,
            ys,
        );
    }
}

#[test]
fn convolutions_pools_and_losses() {
    on_interpreter();
    let xs = [0.31, -0.92, 1.27, 0.55, -1.41, 0.08];
    let ys = [0.77, 0.13, -0.64, 1.09, -0.35, 1.52];
    let how = Conv {
        stride: Dims(vec![1]),
        padding: Dims(vec![2]),
        ..Conv::default()
    };
    check(
        "conv",
        |x, y| {
            x.reshape([1, 1, 6])
                .conv(&y.reshape([2, 1, 3]), None, &how)
                .square()
                .sum(.., false)
        },
        xs,
        ys,
    );
    let how = Conv {
        stride: Dims(vec![2]),
        padding: Dims(vec![1]),
        dilation: Dims(vec![2]),
        ..Conv::default()
    };
    check(
        "strided",
        |x, y| {
            x.reshape([1, 1, 6])
                .conv(&y.reshape([2, 1, 3]), None, &how)
                .square()
                .sum(.., false)
        },
        xs,
        ys,
    );
    check(
        "transposed",
        |x, y| {
            x.reshape([1, 2, 3])
                .conv_transpose(&y.reshape([2, 1, 3]), None, &how)
                .square()
                .sum(.., false)
        },
        xs,
        ys,
    );
    check(
        "pools",
        |x, y| {
            (x.max_pool([1, 2], [1, 1], 0, 1) * y.avg_pool([1, 2], [1, 1], 0, true)).sum(.., false)
        },
        xs,
        ys,
    );
    let how = Conv {
        stride: Dims(vec![2, 1]),
        padding: Dims(vec![1, 2]),
        dilation: Dims(vec![1, 2]),
        groups: 2,
        output_padding: Dims(vec![1, 0]),
    };
    let twice = |y: Tensor, x: &Tensor, w: &Tensor| {
        let first = (y.square().sum(.., false) * 0.5).gradient(&[x, w]).unwrap();
        first
            .iter()
            .map(|g| (g * g).sin().sum(.., false))
            .reduce(|a, b| a + b)
            .unwrap()
    };
    check(
        "conv2d twice",
        |x, w| {
            let all = Tensor::cat(&[x, &(x * 0.7)], 1).reshape([1, 2, 3, 2]);
            twice(all.conv2d(&w.reshape([2, 1, 1, 3]), None, &how), x, w)
        },
        xs,
        ys,
    );
    check(
        "transposed twice",
        |x, w| {
            twice(
                x.reshape([1, 2, 3, 1])
                    .conv_transpose(&w.reshape([2, 1, 1, 3]), None, &how),
                x,
                w,
            )
        },
        xs,
        ys,
    );
    check(
        "overlapping pools twice",
        |x, w| {
            twice(
                x.reshape([1, 1, 2, 3]).max_pool([2, 2], [1, 1], 1, 1)
                    * w.narrow(0, 0, 1).sum(.., false),
                x,
                w,
            )
        },
        xs,
        ys,
    );
    let classes = Tensor::new(&[2i32, 0], [2]);
    check(
        "loss",
        |x, y| (x * y).cross_entropy(&classes, Reduction::Mean, 0.1),
        xs,
        ys,
    );
    check(
        "gather",
        |x, y| (x.gather(1, &classes.reshape([2, 1])) * y).sum(.., false),
        xs,
        ys,
    );
    check(
        "select",
        |x, y| (x.index_select(1, &classes) * y.narrow(1, 0, 2)).sum(.., false),
        xs,
        ys,
    );
}

/// Of overlapping windows with equals, infinities and NaN, each gives to its first: as loops over them say.
#[test]
fn windows_that_overlap_give_their_gradient_to_the_first_of_equals() {
    on_interpreter();
    let mut random = Random(7);
    // Height, width, then kernel, stride and padding of both axes.
    let cases = [
        [7, 6, 3, 3, 2, 2, 1, 1],
        [8, 9, 3, 2, 2, 1, 0, 1],
        [5, 8, 5, 3, 1, 2, 2, 0],
        [6, 7, 3, 2, 1, 3, 1, 1],
        [4, 11, 2, 5, 2, 4, 0, 2],
    ];
    for [h, w, kh, kw, sh, sw, ph, pw] in cases {
        let value = |k| match k {
            0 => f32::NAN,
            1 | 2 => f32::NEG_INFINITY,
            k => (k / 3) as f32,
        };
        let x: Vec<f32> = (0..2 * h * w).map(|_| value(random.next(16))).collect();
        let [oh, ow] = [(h + 2 * ph - kh) / sh + 1, (w + 2 * pw - kw) / sw + 1];
        let g: Vec<f32> = (0..2 * oh * ow)
            .map(|_| 1.0 + random.next(9) as f32)
            .collect();
        let mut wanted = vec![0.0; x.len()];
        for (i, g) in g.iter().enumerate() {
            let [n, y, c] = [i as i64 / (oh * ow), i as i64 / ow % oh, i as i64 % ow];
            let all = (0..kh * kw).map(|k| [y * sh - ph + k / kw, c * sw - pw + k % kw]);
            let there = all.filter(|&[y, c]| (0..h).contains(&y) && (0..w).contains(&c));
            let places: Vec<usize> = there.map(|[y, c]| ((n * h + y) * w + c) as usize).collect();
            let top = |a: f32, b: f32| if a.is_nan() || a >= b { a } else { b };
            let top = places.iter().map(|&p| x[p]).fold(f32::NEG_INFINITY, top);
            let hit = |p: &&usize| x[**p] == top || x[**p].is_nan();
            if let Some(&p) = places.iter().find(hit) {
                wanted[p] += g;
            }
        }
        let x = Tensor::new(&x, [1, 2, h, w]);
        let g = Tensor::new(&g, [1, 2, oh, ow]);
        let y = x.max_pool([kh, kw], [sh, sw], [ph, pw], 1);
        let got = y.gradient_with(&g, &[&x]).unwrap().remove(0);
        assert_eq!(got.to_vec::<f32>().unwrap(), wanted, "{h}x{w} by {kh}x{kw}");
    }
}

#[test]
fn a_pool_gives_its_gradient_to_the_first_of_equals() {
    on_interpreter();
    let nan = f32::NAN;
    let x = Tensor::new(&[3.0f32, 3.0, 1.0, nan, 2.0, nan, 0.0, 5.0, 5.0], [9]);
    let y = x.max_pool([2], [2], 0, 1);
    // As an array of pairs, equals share; the two are not one value.
    let shared = x.narrow(0, 0, 8).reshape([4, 2]).max(1, false);
    let got = y
        .sum(.., false)
        .gradient(&[&x])
        .unwrap()
        .remove(0)
        .to_vec::<f32>()
        .unwrap();
    assert_eq!(got, [1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    let got = shared
        .sum(.., false)
        .gradient(&[&x])
        .unwrap()
        .remove(0)
        .to_vec::<f32>()
        .unwrap();
    assert_eq!(got[..2], [0.5, 0.5]);
    let y = y.to_vec::<f32>().unwrap();
    assert!(y[0] == 3.0 && y[1].is_nan() && y[2].is_nan() && y[3] == 5.0);
    // One value made twice: the gradient by the padded tensor is found as well.
    let x = Tensor::new(&[1.0f32, -2.0, 4.0], [1, 1, 3]);
    let w = Tensor::new(&[0.5f32, 2.0], [1, 1, 2]);
    let padded = x.pad(&[[0, 0], [0, 0], [1, 1]], PadMode::Constant(0.0));
    let whole = x.conv(
        &w,
        None,
        &Conv {
            padding: Dims(vec![1]),
            ..Conv::default()
        },
    );
    let same = padded.conv(&w, None, &Conv::default());
    let got = same
        .sum(.., false)
        .gradient(&[&padded])
        .unwrap()
        .remove(0)
        .to_vec::<f32>()
        .unwrap();
    assert_eq!(got, [0.5, 2.5, 2.5, 2.5, 2.0]);
    assert_eq!(
        whole.to_vec::<f32>().unwrap(),
        same.to_vec::<f32>().unwrap()
    );
}

#[test]
fn the_second_derivative_of_a_network() {
    on_interpreter();
    let x = Tensor::new(&[0.3f64, -0.8, 0.5], [3]);
    let first = x
        .tanh()
        .square()
        .sum(.., false)
        .gradient(&[&x])
        .unwrap()
        .remove(0);
    let second = first
        .sum(.., false)
        .gradient(&[&x])
        .unwrap()
        .remove(0)
        .to_vec::<f64>()
        .unwrap();
    for (x, got) in [0.3f64, -0.8, 0.5].iter().zip(second) {
        let t = x.tanh();
        let s = 1.0 - x.tanh().powi(2);
        let want = 2.0 * s * s - 4.0 * t * t * s;
        assert!((got - want).abs() < 1e-12, "{got} {want}");
    }
}

#[test]
fn deep_and_wide_programs_in_a_small_stack() {
    on_interpreter();
    let work = || {
        let x = Tensor::new(&[1.0f32; 16], [16]);
        let mut y = x.clone();
        for _ in 0..10_000 {
            y = y * 0.9999 + 0.0001;
        }
        let g = y.sum(.., false).gradient(&[&x]).unwrap().remove(0);
        assert!((g.to_vec::<f32>().unwrap()[3] - 0.36786).abs() < 1e-4);
        let mut y = x.clone();
        for _ in 0..500 {
            y = y.tanh();
        }
        let g = y.sum(.., false).gradient(&[&x]).unwrap().remove(0);
        assert!(g.to_vec::<f32>().unwrap()[0] > 0.0);
        let parts: Vec<Tensor> = (0..3000).map(|i| &x * i).collect();
        let s = Tensor::stack(&parts.iter().collect::<Vec<_>>(), 0).sum(.., false);
        let g = s.gradient(&[&x]).unwrap().remove(0);
        assert_eq!(g.to_vec::<f32>().unwrap()[0], (0..3000).sum::<i32>() as f32);
    };
    let small = std::thread::Builder::new()
        .stack_size(512 << 10)
        .spawn(work)
        .expect("starts");
    small.join().expect("no overflow");
}

#[test]
fn what_has_no_gradient_says_so() {
    on_interpreter();
    let x = Tensor::ones([2]).parameter();
    let floor = x.floor().sum(.., false).gradient(&[&x]).unwrap().remove(0);
    assert_eq!(floor.to_vec::<f32>().unwrap(), [0.0, 0.0]);
    assert!((&x * 2.0).gradient(&[&x]).is_err());
    let counts = x.cast(DType::I32).sum(.., false);
    assert!(counts.gradient(&[&x]).is_err());
    let other = Tensor::ones([2]).parameter();
    assert!(x.sum(.., false).gradient(&[&other]).is_err());
}

/// Sums over one range inside one another have a range of their own each.
#[test]
fn a_sort_of_what_is_sorted() {
    on_interpreter();
    let x = Tensor::new(&[3.0f32, -1.0, 4.0, 1.5, -5.0, 9.0, 2.0, 6.0], [8]);
    let w = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [6]);
    let (top, _) = x.sort(-1, false).topk(6, 0, true);
    let picked = x.gather(0, &Tensor::new(&[7i32, 0, 0, 4, 2], [5]));
    let g = ((top * w).sum(.., false) + picked.sum(.., false))
        .gradient(&[&x])
        .unwrap();
    assert_eq!(
        g[0].to_vec::<f32>().unwrap(),
        [6.0, 0.0, 4.0, 6.0, 1.0, 1.0, 5.0, 3.0]
    );
}

/// What else was written down in the process changes no gradient.
#[test]
fn derivatives_that_are_known_stay_with_their_function() {
    on_interpreter();
    let of = |y: &Tensor, x: &Tensor| {
        y.sum(.., false).gradient(&[x]).unwrap()[0]
            .to_vec::<f32>()
            .unwrap()
    };
    let x = Tensor::new(&[1.0f32, 0.0, -1.0], [3]);
    let y = x.maximum(0.0);
    let z = x.relu();
    assert_eq!(of(&y, &x), [1.0, 0.5, 0.0]);
    assert_eq!(of(&z, &x), [1.0, 0.0, 0.0]);
    assert_eq!(of(&(&y + &z), &x), [2.0, 0.5, 0.0]);
    // ln x is written as log₂ x · ln 2, and here that factor is what is asked for.
    let p = Tensor::new(&[1.0f32, 2.0, 3.0], [3]);
    let l = p.log2();
    let y = &l * std::f64::consts::LN_2;
    let _ln = p.log();
    assert_eq!(of(&y, &l), [std::f32::consts::LN_2; 3]);
    assert_eq!(of(&p.log(), &p)[1], 0.5);
}

/// What a mask leaves out has no part in a gradient, whatever it is.
#[test]
fn nothing_flows_through_what_is_left_out() {
    let x = Tensor::new(&[2.0f32, f32::INFINITY, f32::NAN], [3]);
    let w = Tensor::new(&[3.0f32, 5.0, 7.0], [3]);
    let counts = Tensor::new(&[true, false, false], [3]);
    let loss = counts.select(&(&x * &w), 0.0).sum(.., false);
    let gradients = loss.gradient(&[&w, &x]).unwrap();
    assert_eq!(gradients[0].to_vec::<f32>().unwrap(), [2.0, 0.0, 0.0]);
    assert_eq!(gradients[1].to_vec::<f32>().unwrap(), [3.0, 0.0, 0.0]);
}

/// What nothing flows through is a value of its own, also where it lies in storage.
#[test]
fn what_is_detached_stays_so_when_it_is_realized() {
    let f32s = |t: &Tensor| t.to_vec::<f32>().unwrap();
    let x = Tensor::new(&[0.5f32, -1.0], [2]);
    x.realize().unwrap();
    type Way = fn(&Tensor) -> Tensor;
    let ways: [(&str, Way); 8] = [
        ("detach", |w| w.detach()),
        ("of a multiple", |w| (w * 1.0).detach()),
        ("a multiple of it", |w| w.detach() * 1.0),
        ("reshaped", |w| w.detach().reshape([1, 2]).reshape([2])),
        ("assigned", |w| Tensor::zeros([2]).assign(w.detach())),
        ("twice", |w| w.detach().detach()),
        ("captured", |w| {
            let detached = jit(|w: &Tensor| w.detach()).unwrap();
            detached.call(w).unwrap()
        }),
        ("of parts", |w| {
            let part = w.narrow(0, 0, 1).detach();
            part.realize().unwrap();
            Tensor::cat(&[&part, &w.narrow(0, 1, 1).detach()], 0)
        }),
    ];
    for (name, way) in ways {
        for realized in [false, true] {
            let w = Tensor::new(&[1.0f32, 2.0], [2]).parameter();
            if realized {
                w.realize().unwrap();
            }
            let old = way(&w);
            old.realize().unwrap();
            w.realize().unwrap();
            let loss = (&w * 2.0 + &old * 3.0).sum(.., false);
            let g = loss.gradient(&[&w, &old]).unwrap();
            assert_eq!(f32s(&g[0]), [2.0; 2], "{name}, {realized}");
            assert_eq!(f32s(&g[1]), [3.0; 2], "{name}, {realized}");
            w.assign(&w + 1.0).realize().unwrap();
            assert_eq!(f32s(&old), [1.0, 2.0], "{name}, {realized}");
        }
    }
    let y = &x * 5.0;
    let same = y.detach();
    Tensor::realize_all(&[&y, &same]).unwrap();
    let g = (&y * 2.0 + &same * 3.0)
        .sum(.., false)
        .gradient(&[&y])
        .unwrap();
    assert_eq!(f32s(&g[0]), [2.0; 2]);
}

/// A parameter owns its value: nothing flows to what it was made of, realized or not.
#[test]
fn nothing_flows_through_what_a_parameter_begins_as() {
    on_interpreter();
    let f32s = |t: &Tensor| t.to_vec::<f32>().unwrap();
    for realized in [false, true] {
        let a = Tensor::new(&[1.0f32, 2.0], [2]).parameter();
        let b = (&a * 3.0).parameter();
        if realized {
            Tensor::realize_all(&[&a, &b]).unwrap();
        }
        let loss = (&b * &b + &a).sum(.., false);
        let g = loss.gradient(&[&a, &b]).unwrap();
        assert_eq!(f32s(&g[0]), [1.0; 2], "{realized}");
        assert_eq!(f32s(&g[1]), [6.0, 12.0], "{realized}");
    }
}
