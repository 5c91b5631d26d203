//! Products of matrices and vectors, and attention. Flows in: nothing; flows out: workloads, whose sizes are
//! in their names: rows × what is summed over × columns.

use super::{DType, Result, Sizes, Tensor, Work, Workload, computing, count, moving, normal};
use super::{one, values};
use monoglot_roofline::Arithmetic;

/// See the module.
pub(super) fn all() -> Vec<Workload> {
    vec![
        gemm("gemm_f32_64", [64, 64, 64]),
        gemm("gemm_f32_128", [128, 128, 128]),
        gemm("gemm_f32_256", [256, 256, 256]),
        gemm("gemm_f32_512", [512, 512, 512]),
        gemm("gemm_f32_1024", [1024, 1024, 1024]),
        gemm("gemm_f32_2048", [2048, 2048, 2048]),
        gemm("gemm_f32_4096", [4096, 4096, 4096]),
        gemm("gemm_f32_1023", [1023, 1023, 1023]),
        gemm("gemm_f32_2047x1531x777", [2047, 1531, 777]),
        gemm("gemm_f32_64x4096x64", [64, 4096, 64]),
        gemm("gemm_f32_4096x64x4096", [4096, 64, 4096]),
        gemm("gemm_f32_8x4096x4096", [8, 4096, 4096]),
        oriented("gemm_f32_nt_8x4096x4096", [8, 4096, 4096], [false, true]),
        oriented("gemm_f32_nt_1024", [1024, 1024, 1024], [false, true]),
        oriented("gemm_f32_tn_1024", [1024, 1024, 1024], [true, false]),
        oriented("gemm_f32_tt_1024", [1024, 1024, 1024], [true, true]),
        batched("gemm_f32_64x_128x64x128", 64, [128, 64, 128]),
        gemm_bf16("gemm_bf16_1024", 1024),
        gemm_bf16("gemm_bf16_2048", 2048),
        gemm_bf16("gemm_bf16_4096", 4096),
        gemm_i8("gemm_i8_1024", 1024),
        gemm_i8("gemm_i8_2048", 2048),
        gemm_i8("gemm_i8_4096", 4096),
        gemv("gemv_4096", 4096),
        gemv_t("gemv_t_4096", 4096),
        attention("attention_12x64_128", [12, 64, 128]),
        attention("attention_12x64_512", [12, 64, 512]),
        attention("attention_12x64_2048", [12, 64, 2048]),
        causal("attention_12x64_128_causal", [12, 64, 128]),
        causal("attention_12x64_512_causal", [12, 64, 512]),
        causal("attention_12x64_2048_causal", [12, 64, 2048]),
        causal_grad("attention_1024_causal_grad", [12, 64, 1024]),
    ]
}

/// Of (m, k) by (k, n).
fn product([m, k, n]: [i64; 3]) -> Work {
    computing(
        2.0 * count(&[m, k, n]),
        count(&[m, k]) + count(&[k, n]),
        count(&[m, n]),
    )
}

/// (m, k) by (k, n), both as they are.
pub(super) fn gemm(name: &'static str, sizes: [i64; 3]) -> Workload {
    oriented(name, sizes, [false, false])
}

/// (m, k) by (k, n), either stored the other way round.
pub(super) fn oriented(name: &'static str, sizes: [i64; 3], turned: [bool; 2]) -> Workload {
    let stored = |turned: bool, [rows, columns]: [i64; 2]| {
        if turned {
            [columns, rows]
        } else {
            [rows, columns]
        }
    };
    let [m, k, n] = sizes;
    let a = stored(turned[0], [m, k]);
    let b = stored(turned[1], [k, n]);
    let inputs = |s: &Sizes| vec![normal(&s[..2]), normal(&s[2..4])];
    let of: fn(&[Tensor], &Sizes) -> Result<Vec<Tensor>> = match turned {
        [false, false] => |x, _| one(x[0].matmul(&x[1])),
        [false, true] => |x, _| one(x[0].matmul(&x[1].t())),
        [true, false] => |x, _| one(x[0].t().matmul(&x[1])),
        [true, true] => |x, _| one(x[0].t().matmul(&x[1].t())),
    };
    values(name, product(sizes), &[a, b].concat(), inputs, of)
}

/// So many of (m, k) by (k, n).
pub(super) fn batched(name: &'static str, batch: i64, sizes: [i64; 3]) -> Workload {
    let [m, k, n] = sizes;
    let each = product(sizes);
    let times = batch as f64;
    let work = Work {
        operations: times * each.operations,
        reads: times * each.reads,
        writes: times * each.writes,
        ..each
    };
    let inputs = |s: &Sizes| vec![normal(&s[..3]), normal(&s[3..])];
    let of = |x: &[Tensor], _: &Sizes| one(x[0].matmul(&x[1]));
    values(name, work, &[batch, m, k, batch, k, n], inputs, of)
}

/// bf16 in and out.
pub(super) fn gemm_bf16(name: &'static str, n: i64) -> Workload {
    let square = count(&[n, n]);
    let work = Work {
        arithmetic: Arithmetic::Bf16,
        reads: 2.0 * 2.0 * square,
        writes: 2.0 * square,
        ..product([n, n, n])
    };
    let inputs = |s: &Sizes| {
        let short = || normal(&[s[0], s[0]]).cast(DType::BF16);
        vec![short(), short()]
    };
    values(name, work, &[n], inputs, |x, _| one(x[0].matmul(&x[1])))
}

/// i8 in, i32 out.
pub(super) fn gemm_i8(name: &'static str, n: i64) -> Workload {
    let square = count(&[n, n]);
    let work = Work {
        arithmetic: Arithmetic::I8,
        reads: 2.0 * square,
        writes: 4.0 * square,
        ..product([n, n, n])
    };
    let inputs = |s: &Sizes| {
        let small = || Tensor::randint(vec![s[0], s[0]], -100, 100).cast(DType::I8);
        vec![small(), small()]
    };
    values(name, work, &[n], inputs, |x, _| {
        let [a, b] = [&x[0], &x[1]].map(|t| t.cast(DType::I32));
        one(a.matmul(&b))
    })
}

/// A square matrix by a vector.
pub(super) fn gemv(name: &'static str, n: i64) -> Workload {
    let of = |x: &[Tensor], _: &Sizes| one(x[0].matmul(&x[1]));
    values(name, vector(n), &[n], square_and_vector, of)
}

/// The transpose of a square matrix by a vector.
pub(super) fn gemv_t(name: &'static str, n: i64) -> Workload {
    let of = |x: &[Tensor], _: &Sizes| one(x[0].t().matmul(&x[1]));
    values(name, vector(n), &[n], square_and_vector, of)
}

fn square_and_vector(s: &Sizes) -> Vec<Tensor> {
    vec![normal(&[s[0], s[0]]), normal(&[s[0]])]
}

fn vector(n: i64) -> Work {
    let square = count(&[n, n]);
    Work {
        operations: 2.0 * square,
        ..moving(square + n as f64, n as f64)
    }
}

/// Heads of a width over a sequence, batch 1.
pub(super) fn attention(name: &'static str, sizes: [i64; 3]) -> Workload {
    let [_, _, length] = sizes;
    let work = attended(sizes, count(&[length, length]));
    values(name, work, &sizes, heads, |x, _| {
        one(x[0].attention(&x[1], &x[2], None, false))
    })
}

/// The same, each place seeing those up to itself; the others are not counted.
pub(super) fn causal(name: &'static str, sizes: [i64; 3]) -> Workload {
    let [_, _, length] = sizes;
    let work = attended(sizes, count(&[length, length + 1]) / 2.0);
    values(name, work, &sizes, heads, |x, _| {
        one(x[0].attention(&x[1], &x[2], None, true))
    })
}

/// The same with its gradients by queries, keys and values: seven products where it has two.
pub(super) fn causal_grad(name: &'static str, sizes: [i64; 3]) -> Workload {
    let [heads, width, length] = sizes;
    let pairs = count(&[length, length + 1]) / 2.0;
    let each = count(&sizes);
    let products = 14.0 * pairs * count(&[heads, width]);
    let work = computing(products, 4.0 * each, 4.0 * each);
    let inputs = |s: &Sizes| (0..4).map(|_| normal(&[1, s[0], s[2], s[1]])).collect();
    values(name, work, &sizes, inputs, |x, _| {
        let y = x[0].attention(&x[1], &x[2], None, true);
        let mut all = y.gradient_with(&x[3], &[&x[0], &x[1], &x[2]])?;
        all.push(y);
        Ok(all)
    })
}

fn heads(s: &Sizes) -> Vec<Tensor> {
    let one = || normal(&[1, s[0], s[2], s[1]]);
    vec![one(), one(), one()]
}

/// Both products over so many pairs of places.
fn attended(sizes: [i64; 3], pairs: f64) -> Work {
    let [heads, width, _] = sizes;
    let each = count(&sizes);
    computing(4.0 * pairs * count(&[heads, width]), 3.0 * each, each)
}
