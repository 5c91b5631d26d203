//! Products of bytes and of 16-bit integers, which are dot products of words, on every device. Flows in: the façade;
//! flows out: comparisons with plain loops, to the bit.

use monoglot::prelude::*;
use monoglot::{Config, Conv};
use std::sync::Mutex;

/// The default device is the process's: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

fn on_each(mut f: impl FnMut(&str)) {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    for device in ["CPU", "CPU:C", "CPU:X86:x86-64-v2", "INTERP", "INTERP:GPU"] {
        let usable = cfg!(target_arch = "x86_64") || !device.contains("X86");
        if usable {
            Config {
                device: Some(device.into()),
                ..Config::default()
            }
            .set();
            f(device);
        }
    }
}

/// Integers of so many bits, of which many are the least or the greatest.
fn edges(n: i64, low: i64, high: i64, seed: u64) -> Vec<i64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        match state >> 61 {
            0 | 1 => low,
            2 => high,
            _ => low + ((state >> 20) % (high - low + 1) as u64) as i64,
        }
    };
    (0..n).map(|_| next()).collect()
}

/// A matrix of a dtype.
fn matrix(values: &[i64], shape: [i64; 2], dtype: DType) -> Tensor {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|v| v.to_le_bytes()[..dtype.bytes()].to_vec())
        .collect();
    Tensor::from_bytes(&bytes, shape, dtype)
}

fn bounds(dtype: DType) -> (i64, i64) {
    match dtype {
        DType::I8 => (-128, 127),
        DType::U8 => (0, 255),
        _ => (-32768, 32767),
    }
}

/// a·b of (m, k) and (k, n), modulo 2³².
fn product(a: &[i64], b: &[i64], [m, k, n]: [i64; 3]) -> Vec<i32> {
    let [m, k, n] = [m as usize, k as usize, n as usize];
    let one = |i: usize, j: usize| {
        (0..k).fold(0i32, |sum, x| {
            sum.wrapping_add((a[i * k + x] * b[x * n + j]) as i32)
        })
    };
    (0..m)
        .flat_map(|i| (0..n).map(move |j| (i, j)))
        .map(|(i, j)| one(i, j))
        .collect()
}

#[test]
fn products_are_those_of_loops_to_the_bit() {
    let dtypes = [
        (DType::I8, DType::I8),
        (DType::U8, DType::I8),
        (DType::I8, DType::U8),
        (DType::I16, DType::I16),
    ];
    on_each(|device| {
        for shape in [
            [24, 16, 32],
            [13, 7, 9],
            [5, 1, 40],
            [64, 33, 17],
            [70, 129, 95],
            [4, 254, 8],
        ] {
            let [m, k, n] = shape;
            for (of_a, of_b) in dtypes {
                let [(low_a, high_a), (low_b, high_b)] = [of_a, of_b].map(bounds);
                let a = edges(m * k, low_a, high_a, 3);
                let b = edges(k * n, low_b, high_b, 5);
                let want = product(&a, &b, shape);
                let wide = |t: Tensor| t.cast(DType::I32);
                let left = wide(matrix(&a, [m, k], of_a));
                let right = wide(matrix(&b, [k, n], of_b));
                let got = left.matmul(&right).to_vec::<i32>().unwrap();
                assert!(got == want, "{device}: {of_a}·{of_b} of {shape:?}");
                // Both operands turned.
                let turned = |values: &[i64], rows: i64, columns: i64| -> Vec<i64> {
                    let at = |i: i64| values[((i % rows) * columns + i / rows) as usize];
                    (0..rows * columns).map(at).collect()
                };
                let left = wide(matrix(&turned(&a, m, k), [k, m], of_a)).t();
                let right = wide(matrix(&turned(&b, k, n), [n, k], of_b)).t();
                let got = left.matmul(&right).to_vec::<i32>().unwrap();
                assert!(got == want, "{device}: turned {of_a}·{of_b} of {shape:?}");
            }
        }
    });
}

/// Sums of products that are all the greatest there are: of bytes nothing saturates, of 16 bits a pair wraps.
#[test]
fn nothing_saturates() {
    on_each(|device| {
        let [m, k, n] = [8, 66, 16];
        for dtype in [DType::I8, DType::I16] {
            let least = bounds(dtype).0;
            let a = vec![least; (m * k) as usize];
            let b = vec![least; (k * n) as usize];
            let left = matrix(&a, [m, k], dtype).cast(DType::I32);
            let right = matrix(&b, [k, n], dtype).cast(DType::I32);
            let got = left.matmul(&right).to_vec::<i32>().unwrap();
            assert!(got == product(&a, &b, [m, k, n]), "{device}: {dtype}");
        }
    });
}

/// What is quantised around a zero point, a part of a larger matrix, and something done to the sums.
#[test]
fn factors_are_words_by_their_intervals() {
    on_each(|device| {
        let [m, k, n] = [20, 30, 24];
        let a = edges(m * (k + 3), 0, 255, 7);
        let b = edges(k * n, -128, 127, 9);
        let inner: Vec<i64> = (0..m * k)
            .map(|i| a[(i / k * (k + 3) + i % k + 1) as usize] - 131)
            .collect();
        let whole = matrix(&a, [m, k + 3], DType::U8);
        let left = whole.index((.., 1..k + 1)).cast(DType::I32) - 131;
        let right = matrix(&b, [k, n], DType::I8).cast(DType::I32);
        let got = (left.matmul(&right) * 3 + 1).to_vec::<i32>().unwrap();
        let want = product(&inner, &b, [m, k, n]);
        let want: Vec<i32> = want
            .iter()
            .map(|v| v.wrapping_mul(3).wrapping_add(1))
            .collect();
        assert!(got == want, "{device}");
    });
}

/// Convolutions, whose sums have several axes and whose edges are masked.
#[test]
fn convolutions_are_those_of_loops_to_the_bit() {
    on_each(|device| {
        let [channels, out, size] = [6, 20, 9];
        let x = edges(2 * channels * size * size, -128, 127, 11);
        let w = edges(out * channels * 9, -128, 127, 13);
        let wide = |values: &[i64], shape: [i64; 4]| {
            let bytes: Vec<u8> = values.iter().map(|v| *v as u8).collect();
            Tensor::from_bytes(&bytes, shape, DType::I8).cast(DType::I32)
        };
        for stride in [1, 2] {
            let how = Conv {
                padding: 1.into(),
                stride: stride.into(),
                ..Conv::default()
            };
            let left = wide(&x, [2, channels, size, size]);
            let right = wide(&w, [out, channels, 3, 3]);
            let got = left.conv2d(&right, None, &how).to_vec::<i32>().unwrap();
            let side = (size - 1) / stride + 1;
            let inside = |at: i64| (0..size).contains(&at);
            let one = |image: i64, o: i64, row: i64, column: i64| {
                let mut sum = 0;
                for c in 0..channels {
                    for k in 0..9 {
                        let y = row * stride + k / 3 - 1;
                        let z = column * stride + k % 3 - 1;
                        if inside(y) && inside(z) {
                            let at = ((image * channels + c) * size + y) * size + z;
                            sum += x[at as usize] * w[((o * channels + c) * 9 + k) as usize];
                        }
                    }
                }
                sum as i32
            };
            let places = 0..2 * out * side * side;
            let want: Vec<i32> = places
                .map(|i| {
                    one(
                        i / (out * side * side),
                        i / (side * side) % out,
                        i / side % side,
                        i % side,
                    )
                })
                .collect();
            assert!(got == want, "{device}: stride {stride}");
        }
    });
}
