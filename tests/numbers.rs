//! Numbers that must be exact on every device: random ones to the bit of their documentation, signs of
//! zeros, indices beyond every axis. Flows in: the façade; flows out: comparisons with plain Rust.

use monoglot::Config;
use monoglot::compiler::uop::Scalar;
use monoglot::compiler::uop::fold::threefry;
use monoglot::prelude::*;
use std::sync::Mutex;

/// The default device and the seed are the process's: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Every device that is here, and lower levels; the last two of the CPU have no fused multiply-add.
const DEVICES: &[&str] = if cfg!(target_arch = "x86_64") {
    &[
        "CPU",
        "CPU:X86:x86-64-v3",
        "CPU:X86:x86-64-v2",
        "CPU:C:x86-64",
        "INTERP",
        "INTERP:GPU",
    ]
} else {
    &["CPU", "INTERP", "INTERP:GPU"]
};

fn on_each(mut f: impl FnMut(&str)) {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    for device in DEVICES {
        Config {
            device: Some((*device).into()),
            ..Config::default()
        }
        .set();
        f(device);
    }
}

fn bits(t: &Tensor) -> Vec<u32> {
    let values = t.to_vec::<f32>().expect("f32 values");
    values.into_iter().map(f32::to_bits).collect()
}

/// `normal` as the documentation of `random.rs` has it.
fn normal(word: u64) -> f32 {
    let k = (word >> 40) as i32;
    let j = (word >> 8 & 0xff_ffff) as i32;
    let polynomial = |x: f32, c: &[f32]| {
        c.iter()
            .rev()
            .skip(1)
            .fold(c[c.len() - 1], |p, c| p * x + c)
    };
    let from = ((1 << 24) - k) as f32;
    let at = from.to_bits() as i32 - 0x3f35_04f3;
    let e = ((at >> 23) - 24) as f32;
    let f = f32::from_bits(((at & 0x7f_ffff) + 0x3f35_04f3) as u32) - 1.0;
    let p = polynomial(
        f,
        &[
            -0.6666663,
            0.50001615,
            -0.40004572,
            0.33249193,
            -0.28362426,
            0.26256806,
            -0.2576281,
            0.15720421,
        ],
    );
    let log = e * -1.3862915 + (-2.0 * f + (f * f + (f * f * f * p + e * -2.8572135e-6)));
    let t = (((j - (1 << 23)).abs() - (1 << 22)) as f32) * 2f32.powi(-24);
    let c = polynomial(
        t * t,
        &[6.2831855, -41.34168, 81.602234, -76.57499, 39.71092],
    );
    log.sqrt() * (t * c)
}

#[test]
fn random_floats_are_the_documented_bits_on_every_device() {
    let n = 3000;
    let u = |i: u64| (threefry(i, 11) >> 40) as f32 * 2f32.powi(-24);
    let standard: Vec<u32> = (0..n).map(|i| normal(threefry(i, 11)).to_bits()).collect();
    let scaled: Vec<u32> = (n..2 * n)
        .map(|i| (normal(threefry(i, 11)) * 0.3 + 1.7).to_bits())
        .collect();
    let uniform: Vec<u32> = (2 * n..3 * n)
        .map(|i| (u(i) * 5.1 + -1.3).to_bits())
        .collect();
    on_each(|device| {
        Tensor::manual_seed(11);
        let shape = [n as i64];
        assert_eq!(bits(&Tensor::randn(shape)), standard, "randn on {device}");
        let x = Tensor::normal(shape, 1.7, 0.3);
        assert_eq!(bits(&x), scaled, "normal on {device}");
        let x = Tensor::uniform(shape, -1.3, 3.8);
        assert_eq!(bits(&x), uniform, "uniform on {device}");
    });
}

#[test]
fn the_documented_normal_is_near_the_true_one() {
    for i in 0..200_000u64 {
        let w = threefry(i, 3);
        let u = (w >> 40) as f64;
        let v = (w >> 8 & 0xff_ffff) as f64;
        let scale = 2f64.powi(-24);
        let r = (-2.0 * (-u * scale).ln_1p()).sqrt();
        let want = r * (std::f64::consts::TAU * v * scale).cos();
        let error = (f64::from(normal(w)) - want).abs();
        assert!(
            error <= 4e-7 * r.max(1e-30),
            "{w:x}: {want} is off by {error}"
        );
    }
}

#[test]
fn sorting_keeps_the_sign_of_zero() {
    let zeros = |n: usize| -> Vec<f32> {
        (0..n)
            .map(|i| [-0.0, 0.0, f32::NEG_INFINITY, 3.0, -0.0][i % 5])
            .collect()
    };
    on_each(|device| {
        // Both ways of sorting; the order is stable, so it is that of a plain stable sort.
        for n in [7, 200] {
            let x = zeros(n);
            let t = Tensor::new(&x, [n as i64]);
            for descending in [false, true] {
                let mut want = x.clone();
                want.sort_by(|a, b| {
                    let order = a.partial_cmp(b).expect("no NaN");
                    if descending { order.reverse() } else { order }
                });
                let want: Vec<u32> = want.iter().map(|v| v.to_bits()).collect();
                let got = bits(&t.sort(0, descending));
                assert_eq!(got, want, "{n} on {device}, descending: {descending}");
                let (top, _) = t.topk(5, 0, descending);
                assert_eq!(bits(&top), want[..5], "topk of {n} on {device}");
            }
        }
    });
}

/// Where the first k stand, NaN greatest, both zeros equal, what is equal in its order.
fn expected<T: PartialOrd + Copy>(x: &[T], k: usize, largest: bool) -> Vec<i32> {
    let mut at: Vec<i32> = (0..x.len() as i32).collect();
    at.sort_by(|&a, &b| {
        let [a, b] = [a, b].map(|i| x[i as usize]);
        let nan = |v: T| v.partial_cmp(&v).is_none();
        let order = a.partial_cmp(&b).unwrap_or(nan(a).cmp(&nan(b)));
        if largest { order.reverse() } else { order }
    });
    at.truncate(k);
    at
}

/// Quotients and remainders by known numbers, which are rounded down, at the ends of each type and beside multiples.
#[test]
fn integers_are_divided_by_known_numbers_downwards() {
    use DType::*;
    let edges: Vec<i128> = (0..64)
        .flat_map(|k| [(1i128 << k) - 1, 1 << k, (1 << k) + 1])
        .flat_map(|n| [n, -n])
        .chain(-300..300)
        .collect();
    on_each(|device| {
        for d in [I8, I16, I32, I64, U8, U16, U32, U64] {
            let all = d.min().to_i128()..=d.max().to_i128();
            let fits = |n: &i128| all.contains(n);
            let numbers: Vec<i128> = edges.iter().copied().filter(fits).collect();
            let bits: Vec<i64> = numbers.iter().map(|&n| n as i64).collect();
            let x = Tensor::new(&bits, [bits.len()]).cast(d);
            x.realize().expect("it runs");
            for by in [1i64, 3, 7, 8, 100, 127, 641, -1, -2, -7, i32::MAX as i64] {
                if !fits(&by.into()) {
                    continue;
                }
                let divisor = Tensor::scalar(by).cast(d);
                let divided = [x.floor_div(&divisor), x.modulo(&divisor)];
                let got = divided.map(|t| t.cast(I64).to_vec::<i64>().expect("it runs"));
                for (k, &n) in numbers.iter().enumerate() {
                    let by = i128::from(by);
                    let down = n.div_euclid(by) - i128::from(by < 0 && n.rem_euclid(by) != 0);
                    // The least number by -1 wraps.
                    let down = if fits(&down) { down } else { n };
                    let want = [down, n.wrapping_sub(down.wrapping_mul(by))].map(|v| v as i64);
                    let want = if down == n && by == -1 {
                        [n as i64, 0]
                    } else {
                        want
                    };
                    assert_eq!([got[0][k], got[1][k]], want, "{d} {n} by {by} on {device}");
                }
            }
        }
    });
}

/// Integers as narrower floats: rounded once, where a rounding to f32 or f64 on the way would be halfway between two.
#[test]
fn integers_become_floats_by_one_rounding() {
    use DType::*;
    let beside = |n: i128| [n - 1, n, n + 1];
    // With so many bits, halfway between two of which the lower is even or odd, and what is just beside that.
    let halfway = |bits: u32, above: u32| {
        let even = ((1i128 << bits) + 2) << above;
        let half = 1i128 << above >> 1;
        [even + half, even + (1 << above) + half]
    };
    let numbers: Vec<i128> = [8, 11, 24, 53]
        .into_iter()
        .flat_map(|bits| (1..63 - bits).flat_map(move |above| halfway(bits - 1, above)))
        .chain((0..64).map(|k| 1 << k))
        .flat_map(beside)
        .flat_map(|n| [n, -n])
        .collect();
    on_each(|device| {
        for from in [I8, U8, I16, U16, I32, U32, I64, U64] {
            let all = from.min().to_i128()..=from.max().to_i128();
            let fits = |n: &&i128| all.contains(n);
            let numbers: Vec<i128> = numbers.iter().filter(fits).copied().collect();
            let bits: Vec<i64> = numbers.iter().map(|&n| n as i64).collect();
            let x = Tensor::new(&bits, [bits.len()]).cast(from);
            x.realize().expect("it runs");
            for to in [F16, BF16, F8E4M3, F8E5M2, F32, F64] {
                let got = x.cast(to).cast(F64).to_vec::<f64>().expect("it runs");
                for (&n, got) in numbers.iter().zip(got) {
                    let want = Scalar::Int(n).cast(to).to_f64();
                    assert_eq!(got, want, "{n} of {from} to {to} on {device}");
                }
            }
        }
    });
}

/// Elements of 8 bytes of which many have one half in common, of either sign, in order and back, of rows and of columns.
#[test]
fn elements_of_eight_bytes_are_in_order_by_all_of_their_bits() {
    let n = 150i64;
    let wide: Vec<i64> = (0..2 * n)
        .map(|i| match i % 9 {
            0 => i64::MIN + i % 4,
            1 => i64::MAX - i % 4,
            _ => {
                ((i * 41 % 5 - 2) << 32)
                    + [0, 1, -1, 0x7fff_ffff, 0x8000_0000][(i * 7 % 5) as usize]
            }
        })
        .collect();
    let bits: Vec<u64> = wide.iter().map(|&v| v as u64).collect();
    let floats: Vec<f64> = bits.iter().map(|&v| f64::from_bits(v)).collect();
    fn found<T: monoglot::Element + PartialOrd + Copy>(x: &[T], n: i64, device: &str) {
        let rows = Tensor::new(x, [2, n]);
        for descending in [false, true] {
            let got = rows
                .argsort(1, descending)
                .to_vec::<i32>()
                .expect("it runs");
            let down = rows.t().argsort(0, descending).t().contiguous();
            assert_eq!(down.to_vec::<i32>().expect("it runs"), got, "{device}");
            for (row, got) in x.chunks(n as usize).zip(got.chunks(n as usize)) {
                assert_eq!(got, expected(row, n as usize, descending), "{device}");
            }
        }
    }
    on_each(|device| {
        found(&wide, n, device);
        found(&bits, n, device);
        found(&floats, n, device);
    });
}

/// A few are found in groups, many by sorting: both are the beginning of the order.
#[test]
fn the_first_few_are_those_of_the_whole_order() {
    let n = 300i64;
    let floats: Vec<f64> = (0..n)
        .map(|i| match i % 11 {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            3 => -0.0,
            4 => 0.0,
            _ => ((i * 37) % 23 - 11) as f64 * 0.75,
        })
        .collect();
    let wide: Vec<i64> = (0..n)
        .map(|i| match i % 7 {
            0 => i64::MIN,
            1 => i64::MAX,
            _ => (i * 41) % 31 - 15,
        })
        .collect();
    on_each(|device| {
        let real = Tensor::new(&floats, [n]);
        let whole = Tensor::new(&wide, [n]);
        use DType::*;
        for largest in [false, true] {
            let found = |x: Tensor| {
                let (v, from) = x.topk(3, 0, largest);
                let text = |t: Tensor| {
                    let all = t.cast(F64).to_vec::<f64>().expect("it runs");
                    all.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>()
                };
                let there = x.index_select(0, &from);
                assert_eq!(text(v), text(there), "{x:?}");
                from.to_vec::<i32>().expect("it runs")
            };
            for d in [F64, F32, F16] {
                let x: Vec<f64> = real.cast(d).cast(F64).to_vec().expect("it runs");
                assert_eq!(
                    found(real.cast(d)),
                    expected(&x, 3, largest),
                    "{d} on {device}"
                );
            }
            for d in [I64, I32, I8, U32, U8, Bool] {
                let x: Vec<i64> = whole.cast(d).cast(I64).to_vec().expect("it runs");
                assert_eq!(
                    found(whole.cast(d)),
                    expected(&x, 3, largest),
                    "{d} on {device}"
                );
            }
            let x: Vec<u64> = whole.cast(U64).to_vec().expect("it runs");
            assert_eq!(found(whole.cast(U64)), expected(&x, 3, largest), "{device}");
            // Along another axis than the last one.
            let x = real.reshape([75, 4]);
            let columns = x.topk(2, 0, largest).1.to_vec::<i32>().expect("it runs");
            for c in 0..4 {
                let column: Vec<f64> = floats[c..].iter().step_by(4).copied().collect();
                let got = [columns[c], columns[4 + c]];
                assert_eq!(got[..], expected(&column, 2, largest), "{c} on {device}");
            }
        }
        let x = Tensor::new(&(0..n).map(|i| (i * 7 % n) as f32).collect::<Vec<_>>(), [n]);
        let weights = Tensor::new(&[1f32, 10.0, 100.0], [3]);
        let g = (x.topk(3, 0, true).0 * &weights)
            .sum(.., false)
            .gradient(&[&x])
            .expect("the first few have a gradient")
            .remove(0)
            .to_vec::<f32>()
            .expect("it runs");
        for (place, want) in [(299, 1.0), (298, 10.0), (297, 100.0)] {
            let i = (0..n)
                .position(|i| i * 7 % n == place)
                .expect("7 divides no 300");
            assert_eq!(g[i], want, "{place} on {device}");
        }
        assert_eq!(g.iter().sum::<f32>(), 111.0);
    });
}

/// Rows whose lengths are no multiples of their groups, of which several levels are needed, where most elements
/// are equal to others and many are what a group is filled up with.
#[test]
fn the_first_of_many_are_found_among_the_groups_of_the_first() {
    let rows = 4;
    let n = 1003;
    let place = |i: usize| i * 7919 % 1000;
    let mut whole: Vec<i32> = (0..rows * n)
        .map(|i| match place(i) {
            0..300 => i32::MIN,
            300..303 => i32::MAX,
            p => (p % 40) as i32 - 20,
        })
        .collect();
    let mut real: Vec<f32> = (0..rows * n)
        .map(|i| match place(i) {
            0..300 => f32::NEG_INFINITY,
            300..303 => f32::NAN,
            303..310 => -f32::NAN,
            310..500 => f32::INFINITY,
            p => (p % 5) as f32 * -0.0,
        })
        .collect();
    // A row whose least elements are the last: nothing stands behind them.
    for i in 0..n {
        whole[(rows - 1) * n + i] = (n - i) as i32;
        real[(rows - 1) * n + i] = (n - i) as f32;
    }
    fn check<T: PartialOrd + Copy>(x: &[T], t: &Tensor, n: usize, what: &str) {
        let rows = x.len() / n;
        for (k, largest) in [(1, true), (1, false), (6, true), (20, false), (70, true)] {
            let of_row = |x: &[T]| expected(x, k, largest);
            let want: Vec<i32> = x.chunks(n).flat_map(of_row).collect();
            let (v, from) = t.topk(k as i64, 1, largest);
            let got: Vec<i32> = from.to_vec().expect("it runs");
            assert_eq!(got, want, "{k} of {what}, largest: {largest}");
            let all = t.cast(DType::F32).to_vec::<f32>().expect("it runs");
            let there = |(i, &p): (usize, &i32)| all[i / k * n + p as usize].to_bits();
            let there: Vec<u32> = got.iter().enumerate().map(there).collect();
            assert_eq!(bits(&v.cast(DType::F32)), there, "{k} of {what}");
            // The same rows as columns.
            let (v, columns) = t.transpose(0, 1).topk(k as i64, 0, largest);
            assert_eq!(v.shape().expect("one"), [k, rows]);
            let got: Vec<i32> = columns.transpose(0, 1).to_vec().expect("it runs");
            assert_eq!(got, want, "{k} of columns of {what}");
        }
    }
    let shape = [rows as i64, n as i64];
    on_each(|device| {
        check(
            &whole,
            &Tensor::new(&whole, shape),
            n,
            &format!("i32 on {device}"),
        );
        check(
            &real,
            &Tensor::new(&real, shape),
            n,
            &format!("f32 on {device}"),
        );
    });
}

#[test]
fn an_element_that_was_sorted_has_its_own_gradient() {
    on_each(|device| {
        let x = Tensor::new(&[2f32, f32::NEG_INFINITY, -0.0, f32::NAN, 1.0], [5]);
        let weights = Tensor::new(&[1f32, 10.0, 100.0, 1000.0, 10000.0], [5]);
        let g = (x.sort(0, false) * &weights)
            .sum(.., false)
            .gradient(&[&x])
            .expect("a sort has a gradient")
            .remove(0);
        let got = g.to_vec::<f32>().expect("it runs");
        assert_eq!(got, [1000.0, 1.0, 10.0, 10000.0, 100.0], "on {device}");
    });
}

#[test]
fn unsigned_indices_beyond_every_axis_read_zero() {
    on_each(|device| {
        let x = Tensor::arange(1, 7, 1).cast(DType::F32).reshape([2, 3]);
        let far = Tensor::new(&[u64::MAX, 0, u64::MAX - 1, 1, 1 << 63, 1 << 62], [6]);
        let rows = x.index(&far).to_vec::<f32>().expect("it runs");
        let want = [
            0., 0., 0., 1., 2., 3., 0., 0., 0., 4., 5., 6., 0., 0., 0., 0., 0., 0.,
        ];
        assert_eq!(rows, want, "rows on {device}");
        let both = x.index((&far, &far)).to_vec::<f32>().expect("it runs");
        assert_eq!(both, [0., 1., 0., 5., 0., 0.], "both axes on {device}");
        let column = x.index_select(1, &far).to_vec::<f32>().expect("it runs");
        let want = [0., 1., 0., 2., 0., 0., 0., 4., 0., 5., 0., 0.];
        assert_eq!(column, want, "columns on {device}");
    });
}

/// The relative error of sums of f32 against sums in f64, the greatest of all.
fn off(got: &Tensor, want: impl Iterator<Item = f64>) -> f64 {
    let got = got.to_vec::<f32>().expect("it runs");
    let error = |(g, w): (&f32, f64)| (f64::from(*g) - w).abs() / w.abs();
    got.iter().zip(want).map(error).fold(0.0, f64::max)
}

/// Numbers in [0, 1) that no pattern of additions favours.
fn spread(n: usize) -> Vec<f32> {
    (0..n as u64)
        .map(|i| (threefry(i, 5) >> 40) as f32 * 2f32.powi(-24))
        .collect()
}

#[test]
fn long_sums_are_nearly_as_exact_as_their_dtype() {
    on_each(|device| {
        let rows = 6480;
        let x = spread(rows * 64);
        let t = Tensor::new(&x, [rows as i64, 64]);
        let at = |i: usize, j: usize| f64::from(x[i * 64 + j]);
        let column = |j: usize| (0..rows).map(|i| at(i, j)).sum::<f64>();
        let error = off(&t.sum(0, false), (0..64).map(column));
        assert!(error < 2e-7, "columns on {device}: {error}");
        let error = off(
            &t.sum(.., false),
            std::iter::once((0..64).map(column).sum()),
        );
        assert!(error < 2e-7, "all on {device}: {error}");
        // No block divides a prime, nor a prime times lanes.
        for n in [31, 6481, 10007, 100_003] {
            let x = spread(n);
            let t = Tensor::new(&x, [n as i64]);
            let exact = |f: &dyn Fn(f64) -> f64| x.iter().map(|&v| f(f64::from(v))).sum::<f64>();
            let error = off(&t.sum(.., false), std::iter::once(exact(&|v| v)));
            assert!(error < 2e-7, "{n} on {device}: {error}");
            let squares = (&t * &t).sum(.., false);
            let error = off(&squares, std::iter::once(exact(&|v| v * v)));
            assert!(error < 2e-7, "squares of {n} on {device}: {error}");
            // One term again and again loses the same end each time: sixteen times in a block.
            let same = Tensor::full([n as i64], 0.1f32).contiguous();
            same.realize().expect("it runs");
            let want = n as f64 * f64::from(0.1f32);
            let error = off(&same.sum(.., false), std::iter::once(want));
            assert!(error < 4e-7, "{n} times 0.1 on {device}: {error}");
        }
    });
}

#[test]
fn sums_that_overflow_or_meet_infinities_say_so() {
    on_each(|device| {
        let sum = |value: &dyn Fn(usize) -> f32| {
            let x: Vec<f32> = (0..5000).map(value).collect();
            Tensor::new(&x, [5000])
                .sum(.., false)
                .item::<f32>()
                .expect("it runs")
        };
        assert_eq!(sum(&|_| f32::MAX), f32::INFINITY, "{device}");
        let one = |v: f32| move |i: usize| if i == 4000 { v } else { 1.0 };
        assert_eq!(sum(&one(f32::NEG_INFINITY)), f32::NEG_INFINITY, "{device}");
        assert!(sum(&one(f32::NAN)).is_nan(), "{device}");
        let both = |i: usize| {
            if i.is_multiple_of(2) {
                f32::INFINITY
            } else {
                f32::NEG_INFINITY
            }
        };
        assert!(sum(&both).is_nan(), "{device}");
    });
}

#[test]
fn long_products_are_summed_in_blocks() {
    on_each(|device| {
        let n = 8;
        let k = 8192;
        let x = spread(n * k);
        let y = spread(2 * n * k)[n * k..].to_vec();
        let a = Tensor::new(&x, [n as i64, k as i64]);
        let b = Tensor::new(&y, [k as i64, n as i64]);
        let at = |i: usize| {
            let row = i / n;
            let column = i % n;
            let term = |j: usize| f64::from(x[row * k + j]) * f64::from(y[j * n + column]);
            (0..k).map(term).sum::<f64>()
        };
        let error = off(&a.matmul(&b), (0..n * n).map(at));
        assert!(error < 1e-6, "on {device}: {error}");
    });
}

/// What is two places apart is read as vectors, which begin and end where it does.
#[test]
fn every_other_element_is_right_for_every_length() {
    on_each(|device| {
        for pairs in [3, 4, 5, 16, 17, 33, 64] {
            for dtype in [DType::F32, DType::F64, DType::I8, DType::F16] {
                let list: Vec<f64> = (0..2 * pairs).map(|i| (i * 5 % 61) as f64 - 30.0).collect();
                let x = Tensor::new(&list, [2 * pairs]).cast(dtype);
                x.realize().unwrap();
                let two = x.reshape([pairs, 2]);
                for place in 0..2 {
                    let got = two.narrow(1, place, 1).reshape([pairs]) * 2.0;
                    let got = got.cast(DType::F64).to_vec::<f64>().unwrap();
                    let want: Vec<f64> = (0..pairs).map(|i| list[2 * i + place] * 2.0).collect();
                    assert_eq!(got, want, "{device} {dtype:?} {pairs}, {place}");
                }
                let most = two.max(1, false).cast(DType::F64).to_vec::<f64>().unwrap();
                let want: Vec<f64> = list.chunks(2).map(|c| c[0].max(c[1])).collect();
                assert_eq!(most, want, "{device} {dtype:?} {pairs}");
            }
        }
    });
}

/// Sums across lanes become lanes of the results, which is where mistakes of order would be: small integers,
/// so that every sum is exact.
#[test]
fn what_comes_after_a_product_is_right_for_every_shape() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let shapes = [
        (16, 256, 64),
        (4, 24, 32),
        (3, 12, 48),
        (2, 20, 33),
        (5, 7, 64),
        (1, 40, 128),
        (8, 4, 16),
    ];
    let value = |i: usize| (i * 7 % 11) as f64 - 5.0;
    for device in DEVICES.iter().filter(|d| d.starts_with("CPU")) {
        Config {
            device: Some((*device).into()),
            ..Config::default()
        }
        .set();
        for (rows, columns, terms) in shapes {
            for dtype in [DType::F32, DType::F64, DType::I32] {
                let numbers = |n: usize, shape: [usize; 2]| {
                    let list: Vec<f64> = (0..n).map(value).collect();
                    Tensor::new(&list, shape).cast(dtype)
                };
                let x = numbers(rows * terms, [rows, terms]);
                let w = numbers(columns * terms, [columns, terms]);
                let b = numbers(columns, [1, columns]);
                let r = numbers(rows * columns, [rows, columns]);
                Tensor::realize_all(&[&x, &w, &b, &r]).unwrap();
                let y = (x.matmul(&w.t()) + &b).relu() * 2.0 + &r;
                let products = x.reshape([rows, 1, terms]) * w.reshape([1, columns, terms]);
                let most = products.max(2, false) + &r;
                let got = (
                    y.cast(DType::F64).to_vec::<f64>().unwrap(),
                    most.cast(DType::F64).to_vec::<f64>().unwrap(),
                );
                for i in 0..rows * columns {
                    let row = i / columns;
                    let column = i % columns;
                    let product = |k: usize| value(row * terms + k) * value(column * terms + k);
                    let sum: f64 = (0..terms).map(product).sum();
                    let want = (sum + value(column)).max(0.0) * 2.0 + value(i);
                    let place = format!("{device} {dtype:?} {rows}x{terms}x{columns} at {i}");
                    assert_eq!(got.0[i], want, "{place}");
                    let highest = (0..terms).map(product).fold(f64::MIN, f64::max);
                    assert_eq!(got.1[i], highest + value(i), "{place}");
                }
            }
        }
    }
}

#[test]
fn reductions_over_one_range_keep_one_loop() {
    on_each(|device| {
        let x = spread(10_007 * 3);
        let t = Tensor::new(&x, [10_007, 3]);
        let both = Tensor::stack(&[&t.sum(0, false), &t.max(0, false)], 0);
        let column = |j: usize| x.iter().skip(j).step_by(3).copied();
        let sums = (0..3).map(|j| column(j).map(f64::from).sum::<f64>());
        let tops = (0..3).map(|j| f64::from(column(j).fold(0.0, f32::max)));
        let error = off(&both, sums.chain(tops));
        assert!(error < 2e-7, "on {device}: {error}");
    });
}

/// Powers of differences from the greatest times a factor so small that what makes them 0 is no number.
#[test]
fn powers_of_differences_by_any_factor() {
    let row = [
        0.0f32,
        -1.0,
        f32::NEG_INFINITY,
        -3e38,
        -2e37,
        0.0,
        -7.0,
        -1e30,
    ];
    on_each(|device| {
        let x = Tensor::new(&row, [1, 8]);
        for factor in [1e-38, 1e-37, 4e-37, 5e-37, 1e-3, 1.0, 3.0, 1e30] {
            let powers = ((&x - x.max(1, true)) * factor).exp2();
            let powers = powers.to_vec::<f32>().expect("it runs");
            for (got, x) in powers.into_iter().zip(row) {
                let want = (f64::from(x) * f64::from(factor as f32)).exp2();
                let near = (f64::from(got) - want).abs() <= 1e-6 * want + 1e-44;
                assert!(
                    near,
                    "{device}: {x:e} times {factor:e}: {got:e}, not {want:e}"
                );
            }
        }
    });
}

/// What leaves nothing of a number, by a literal and by what is known of an element only as an interval, in
/// other widths and beside other lanes.
#[test]
fn shifts_past_the_width_leave_nothing() {
    let words: Vec<u16> = (0..37).map(|i| i % 3).collect();
    on_each(|device| {
        let bytes = Tensor::new(&[201u8; 37], [37]);
        let words = Tensor::new(&words, [37]);
        let far = bytes.maximum(10);
        for (how, nothing) in [
            ("<< 10", bytes.shl(10)),
            (">> 8", bytes.shr(8)),
            ("<< at least 10", bytes.shl(&far)),
            (">> at least 10", bytes.shr(&far)),
        ] {
            let chosen = words.ne(0).select(nothing.cast(DType::U16), &words + 7);
            let chosen = chosen.to_vec::<u16>().expect("it runs");
            let want: Vec<u16> = (0..37).map(|i| if i % 3 == 0 { 7 } else { 0 }).collect();
            assert_eq!(chosen, want, "{device}: {how}");
            let sum = (nothing.cast(DType::I32) + words.cast(DType::I32)).to_vec::<i32>();
            let want: Vec<i32> = (0..37).map(|i| i % 3).collect();
            assert_eq!(sum.expect("it runs"), want, "{device}: {how}");
        }
    });
}

/// Odd functions keep the sign of zero, and the error function stays within ±1.
#[test]
fn functions_keep_signs_and_bounds() {
    type Function = fn(&Tensor) -> Tensor;
    let odd: [(&str, Function); 8] = [
        ("sin", Tensor::sin),
        ("tanh", Tensor::tanh),
        ("erf", Tensor::erf),
        ("sinh", Tensor::sinh),
        ("asinh", Tensor::asinh),
        ("asin", Tensor::asin),
        ("atan", Tensor::atan),
        ("atanh", Tensor::atanh),
    ];
    on_each(|device| {
        let zeros = Tensor::new(&[0.0f64, -0.0], [2]);
        for (name, function) in odd {
            for dtype in [DType::F32, DType::F64] {
                let y = function(&zeros.cast(dtype)).reciprocal();
                let y = y.cast(DType::F64).to_vec::<f64>().expect("it runs");
                assert_eq!(
                    y,
                    [f64::INFINITY, f64::NEG_INFINITY],
                    "{device}: {name} {dtype}"
                );
            }
        }
        let n = 1 << 14;
        let x: Vec<f32> = (0..n).map(|i| 3.0 + i as f32 * (3.0 / n as f32)).collect();
        let x = Tensor::new(&x, [n]);
        let erf = x.erf().max(.., false).item::<f32>().expect("it runs");
        assert_eq!(erf, 1.0, "{device}");
        let below = x
            .neg()
            .gelu()
            .max(.., false)
            .item::<f32>()
            .expect("it runs");
        assert!(below <= 0.0, "{device}: {below}");
    });
}

/// Bounds that a dtype does not have bound nothing.
#[test]
fn bounds_below_zero_are_none_of_what_is_never_negative() {
    on_each(|device| {
        let x = Tensor::new(&[0u8, 1, 5, 255], [4]);
        let got = x.hardtanh().to_vec::<u8>().expect("it runs");
        assert_eq!(got, [0, 1, 1, 1], "{device}");
        let got = x.clamp(-1.0, 7.0).to_vec::<u8>().expect("it runs");
        assert_eq!(got, [0, 1, 5, 7], "{device}");
        let got = x.ne(0).hardtanh().to_vec::<bool>().expect("it runs");
        assert_eq!(got, [false, true, true, true], "{device}");
        let got = x
            .cast(DType::I8)
            .hardtanh()
            .to_vec::<i8>()
            .expect("it runs");
        assert_eq!(got, [0, 1, 1, -1], "{device}");
    });
}

/// However few rows there are, what a softmax of a product is made of is one number: its rows sum to 1, and the
/// logarithm of the largest share of large scores is that of 1.
#[test]
fn shares_of_a_product_sum_to_one() {
    on_each(|device| {
        for (rows, terms) in [(1, 2), (3, 9), (5, 3), (5, 16), (6, 16), (9, 16), (40, 33)] {
            Tensor::manual_seed(3);
            let x = Tensor::randn([rows, terms]) * 40.0;
            x.realize().expect("it can be computed");
            let w = Tensor::randn([terms, 7]);
            w.realize().expect("it can be computed");
            let shares = x.matmul(&w).softmax(-1);
            shares.realize().expect("it can be computed");
            for sum in shares.sum(-1, false).to_vec::<f32>().expect("f32 values") {
                assert!((sum - 1.0).abs() <= 3e-7, "{device} {rows} {terms}: {sum}");
            }
            let largest = x.matmul(&w).log_softmax(-1).max(-1, false);
            for log in largest.to_vec::<f32>().expect("f32 values") {
                assert!(log <= 0.0, "{device} {rows} {terms}: {log}");
            }
        }
    });
}
