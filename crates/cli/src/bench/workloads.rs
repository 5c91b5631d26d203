//! The workloads, as a user would write them, with the work that each one is scored by:
//! floating-point operations, or the bytes that must be moved at least (every input read once,
//! every output written once). Names, shapes and amounts are those of the peers' scripts. Flows in:
//! nothing but their names; flows out: for each its amount of work and a step that computes it once
//! more.

use monoglot::nn::{Adam, LayerNorm, Module, Optimizer};
use monoglot::{Conv, DType, Reduction, Result, Tensor, models};

/// How much a workload does.
pub(super) enum Amount {
    /// Floating-point operations, or those of integers where a product is of integers.
    Flops(f64),
    /// Bytes moved.
    Bytes(f64),
}

use Amount::{Bytes, Flops};

/// Builds an expression and realizes it.
type Step = Box<dyn FnMut() -> Result<()>>;

/// A workload.
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) amount: Amount,
    /// Makes the inputs; what it returns is timed.
    pub(super) prepare: fn() -> Result<Step>,
}

const M16: usize = 1 << 24;
const F32: f64 = 4.0;
const SQUARE: f64 = 4096.0 * 4096.0;
/// Output elements of the convolutions: a batch of 8, 64 channels of 56×56.
const IMAGES: f64 = 8.0 * 64.0 * 56.0 * 56.0;

const fn cube(n: usize) -> f64 {
    2.0 * (n * n * n) as f64
}

macro_rules! workloads {
    ($($name:literal $kind:ident($amount:expr) $prepare:expr;)*) => {
        /// Every workload, in the order of the peers' tables.
        pub(super) const ALL: &[Workload] =
            &[$(Workload { name: $name, amount: $kind($amount), prepare: || $prepare },)*];
    };
}

workloads! {
    "gemm_f32_256" Flops(cube(256)) gemm(256);
    "gemm_f32_512" Flops(cube(512)) gemm(512);
    "gemm_f32_1024" Flops(cube(1024)) gemm(1024);
    "gemm_f32_2048" Flops(cube(2048)) gemm(2048);
    "gemm_f32_4096" Flops(cube(4096)) gemm(4096);
    "gemm_bf16_1024" Flops(cube(1024)) gemm_bf16(1024);
    "gemm_bf16_2048" Flops(cube(2048)) gemm_bf16(2048);
    "gemm_bf16_4096" Flops(cube(4096)) gemm_bf16(4096);
    "gemm_i8_1024" Flops(cube(1024)) gemm_i8(1024);
    "gemm_i8_2048" Flops(cube(2048)) gemm_i8(2048);
    "gemm_i8_4096" Flops(cube(4096)) gemm_i8(4096);
    "gemv_4096" Bytes(F32 * SQUARE) {
        let a = normal([4096, 4096])?;
        let x = normal([4096])?;
        step(move || a.matmul(&x))
    };
    "chain_16M" Bytes(3.0 * F32 * M16 as f64) {
        let x = normal([M16])?;
        let y = normal([M16])?;
        step(move || (&x * 2.0 + 1.0).relu().exp() * &y)
    };
    "sum_16M" Bytes(F32 * M16 as f64) {
        let x = normal([M16])?;
        step(move || x.sum(.., false))
    };
    "max_16M" Bytes(F32 * M16 as f64) {
        let x = normal([M16])?;
        step(move || x.max(.., false))
    };
    "softmax_4096x4096" Bytes(2.0 * F32 * SQUARE) {
        let x = normal([4096, 4096])?;
        step(move || x.softmax(1))
    };
    "layernorm_4096x1024" Bytes(2.0 * F32 * 4096.0 * 1024.0) {
        let x = normal([4096, 1024])?;
        let norm = LayerNorm::new(1024);
        norm.realize()?;
        step(move || norm.forward(&x))
    };
    "transpose_4096" Bytes(2.0 * F32 * SQUARE) {
        let x = normal([4096, 4096])?;
        step(move || x.t().contiguous())
    };
    "cumsum_4096" Bytes(2.0 * F32 * SQUARE) {
        let x = normal([4096, 4096])?;
        step(move || x.cumsum(1))
    };
    "embedding_8192x512" Bytes(2.0 * F32 * 8192.0 * 512.0) {
        let table = normal([32768, 512])?;
        let rows = numbers([8192], 32768)?;
        step(move || table.index_select(0, &rows))
    };
    "conv3x3_64_64" Flops(2.0 * IMAGES * 64.0 * 9.0) conv([8, 64, 56, 56], [64, 64, 3, 3], 1);
    "conv1x1_256_64" Flops(2.0 * IMAGES * 256.0) conv([8, 256, 56, 56], [64, 256, 1, 1], 1);
    "dwconv3x3_64" Bytes(2.0 * F32 * IMAGES) conv([8, 64, 56, 56], [64, 1, 3, 3], 64);
    "minilm_b1_s128" Flops(bert_flops(1.0)) minilm(1);
    "minilm_b32_s128" Flops(bert_flops(32.0)) minilm(32);
    "gpt2_decode_ctx128" Bytes(GPT2_BYTES) {
        let net = models::Gpt2::small(12);
        let cache = net.cache(256);
        let one = Tensor::new(&[1234i32], [1, 1]);
        net.realize()?;
        Ok(Box::new(move || {
            let logits = net.decode(&one, &cache, 128);
            Tensor::realize_all(&cache.iter().flat_map(|c| c.tensors()).chain([&logits]).collect::<Vec<_>>())
        }))
    };
    "gpt2_prefill_128" Flops(GPT2_PREFILL_FLOPS) {
        let net = models::Gpt2::small(12);
        let ids = Tensor::new(&(0..128).collect::<Vec<i32>>(), [1, 128]);
        net.realize()?;
        step(move || net.next(&ids))
    };
    "mnist_train_b512" Flops(MNIST_FLOPS) {
        let net = models::ConvNet::new();
        let adam = Adam::new(&net, 1e-3);
        let x = normal([512, 1, 28, 28])?;
        let y = numbers([512], 10)?;
        Ok(Box::new(move || adam.step(&net.forward(&x).cross_entropy(&y, Reduction::Mean, 0.0))))
    };
}

/// Six layers of 384 with 1536 inside, over 128 tokens.
const fn bert_flops(batch: f64) -> f64 {
    let d = 384.0;
    let inner = 1536.0;
    let t = 128.0;
    6.0 * batch * t * (2.0 * (4.0 * d * d + 2.0 * d * inner) + 4.0 * t * d)
}

/// Every weight once, the word embedding as the logits' matrix included, and the cached keys and values.
const GPT2_BYTES: f64 =
    F32 * (12.0 * 12.0 * 768.0 * 768.0 + 50257.0 * 768.0) + 2.0 * F32 * 12.0 * 128.0 * 768.0;
const GPT2_PREFILL_FLOPS: f64 =
    128.0 * 12.0 * (24.0 * 768.0 * 768.0 + 4.0 * 128.0 * 768.0) + 2.0 * 768.0 * 50257.0;

/// Forward and both gradients of every layer, but for the first one's input.
const MNIST_FLOPS: f64 = {
    let first = 32.0 * 25.0 * 24.0 * 24.0;
    let forward = first
        + 32.0 * 32.0 * 25.0 * 20.0 * 20.0
        + 32.0 * 64.0 * 9.0 * 8.0 * 8.0
        + 64.0 * 64.0 * 9.0 * 6.0 * 6.0
        + 576.0 * 10.0;
    2.0 * 512.0 * (3.0 * forward - first)
};

fn step(build: impl Fn() -> Tensor + 'static) -> Result<Step> {
    Ok(Box::new(move || build().realize()))
}

fn normal<const N: usize>(shape: [usize; N]) -> Result<Tensor> {
    realized(Tensor::randn(shape))
}

fn realized(x: Tensor) -> Result<Tensor> {
    x.realize()?;
    Ok(x)
}

/// Whole numbers below `limit`, spread evenly by a stride that has no factor in common with it.
fn numbers<const N: usize>(shape: [usize; N], limit: usize) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    let values: Vec<i32> = (0..n).map(|i| (i * 7919 % limit) as i32).collect();
    let x = Tensor::new(&values, shape);
    x.check()?;
    Ok(x)
}

fn gemm(n: usize) -> Result<Step> {
    let a = normal([n, n])?;
    let b = normal([n, n])?;
    step(move || a.matmul(&b))
}

/// bf16 in and out.
fn gemm_bf16(n: usize) -> Result<Step> {
    let short = || realized(Tensor::randn([n, n]).cast(DType::BF16));
    let a = short()?;
    let b = short()?;
    step(move || a.matmul(&b))
}

/// i8 in, i32 out.
fn gemm_i8(n: usize) -> Result<Step> {
    let small = || realized(Tensor::randint([n, n], -100, 100).cast(DType::I8));
    let a = small()?;
    let b = small()?;
    step(move || a.cast(DType::I32).matmul(&b.cast(DType::I32)))
}

fn conv(x: [usize; 4], w: [usize; 4], groups: i64) -> Result<Step> {
    let how = Conv {
        padding: (w[2] / 2).into(),
        groups,
        ..Conv::default()
    };
    let x = normal(x)?;
    let w = normal(w)?;
    step(move || x.conv2d(&w, None, &how))
}

fn minilm(batch: usize) -> Result<Step> {
    let net = models::Bert::minilm(6);
    net.realize()?;
    let ids: Vec<i32> = (0..128 * batch)
        .map(|i| (1000 + i * 7919 % 20000) as i32)
        .collect();
    let ids = Tensor::new(&ids, [batch, 128]);
    step(move || net.forward(&ids))
}
