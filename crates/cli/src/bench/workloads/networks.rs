//! Networks: inference and training steps, as a user calls them. Flows in: nothing; flows out: workloads. What
//! is counted as moved is every weight once.

use super::{Call, Result, Tensor, Workload, call, computing, moving, normal, numbers};
use char_transformer::CharTransformer;
use monoglot::nn::{Adam, AdamW, Lstm, Module, Optimizer, Sgd};
use monoglot::{DType, Reduction, Size, Variable, jit, models};

// The example's own network, so that what is timed is what users are shown.
#[allow(dead_code)]
#[path = "../../../../../examples/char_transformer.rs"]
mod char_transformer;

/// See the module.
pub(super) fn all() -> Vec<Workload> {
    vec![
        minilm("minilm_b1_s128", 1, false),
        minilm("minilm_b1_captured_s128", 1, true),
        minilm("minilm_b32_s128", 32, false),
        call(
            "gpt2_decode_ctx128",
            moving(GPT2_WEIGHTS + CACHED, 0.0),
            gpt2_decode,
        ),
        decode("gpt2_decode_captured_ctx128", DType::F32),
        decode("gpt2_decode_bf16_ctx128", DType::BF16),
        prefill("gpt2_prefill_128", false),
        prefill("gpt2_prefill_captured_128", true),
        call("mnist_train_b512", computing(MNIST, 0.0, 0.0), mnist),
        call(
            "char_transformer_step_b16x64",
            computing(CHARACTERS, 0.0, 0.0),
            characters,
        ),
        call(
            "char_transformer_write_256",
            moving(256.0 * LETTER, 0.0),
            letters,
        ),
        lstm("lstm_train_50_b32", 50),
        lstm("lstm_train_500_b32", 500),
    ]
}

/// A training step of an LSTM from 64 numbers to 128, by a scan over so many times of 32 sequences.
fn lstm(name: &'static str, times: i64) -> Workload {
    let products = 2.0 * 32.0 * 512.0 * (64.0 + 128.0);
    let work = computing(3.0 * times as f64 * products, 0.0, 0.0);
    call(name, work, move || {
        let net = Lstm::new(64, 128);
        net.realize()?;
        let sgd = Sgd::new(&net, 0.01);
        let xs = normal(&[times, 32, 64]);
        xs.realize()?;
        let step = jit(move |xs: &Tensor| -> Result<Tensor> {
            let (all, _) = net.forward(xs)?;
            let loss = all.square().mean(.., false);
            sgd.step(&loss)?;
            Ok(loss)
        })?;
        Ok(Box::new(move || step.call(&xs).map(drop)))
    })
}

/// Six layers of 384 with 1536 inside, over 128 tokens: written down in each call, or captured, as peers that compile a
/// model before they run it do.
fn minilm(name: &'static str, batch: i64, captured: bool) -> Workload {
    let width = 384.0;
    let inner = 1536.0;
    let tokens = 128.0;
    let weights = 4.0 * width * width + 2.0 * width * inner;
    let of_token = 2.0 * weights + 4.0 * tokens * width;
    let work = computing(6.0 * batch as f64 * tokens * of_token, 6.0 * weights, 0.0);
    call(name, work, move || {
        let net = models::Bert::minilm(6);
        net.realize()?;
        let ids: Vec<i32> = (0..128 * batch)
            .map(|i| (1000 + i * 7919 % 20000) as i32)
            .collect();
        let ids = Tensor::new(&ids, [batch, 128]);
        if !captured {
            return Ok(Box::new(move || net.forward(&ids).realize()));
        }
        let forward = jit(move |ids: &Tensor| net.forward(ids))?;
        Ok(Box::new(move || forward.call(&ids).map(drop)))
    })
}

/// Every weight once, the word embedding as the logits' matrix included.
const GPT2_WEIGHTS: f64 = 12.0 * 12.0 * 768.0 * 768.0 + 50257.0 * 768.0;
/// Keys and values of 128 tokens.
const CACHED: f64 = 2.0 * 12.0 * 128.0 * 768.0;
const PREFILL: f64 =
    128.0 * 12.0 * (24.0 * 768.0 * 768.0 + 4.0 * 128.0 * 768.0) + 2.0 * 768.0 * 50257.0;

/// One token after 128.
fn gpt2_decode() -> Result<Call> {
    let net = models::Gpt2::small(12);
    let cache = net.cache(256);
    let token = Tensor::new(&[1234i32], [1, 1]);
    net.realize()?;
    Ok(Box::new(move || {
        let logits = net.decode(&token, &cache, 128);
        let cached = cache.iter().flat_map(|c| c.tensors());
        Tensor::realize_all(&cached.chain([&logits]).collect::<Vec<_>>())
    }))
}

/// One token after 128, by a captured step whose position is a variable, as it is used to write one token after
/// another.
fn decode(name: &'static str, dtype: DType) -> Workload {
    let size = dtype.bytes() as f64;
    let elements = GPT2_WEIGHTS * size / 4.0 + CACHED;
    call(name, moving(elements, 0.0), move || {
        let net = models::Gpt2::small(12);
        net.realize()?;
        net.cast(dtype)?;
        let cache = net.cache(256);
        let token = Tensor::new(&[1234i32], [1, 1]);
        let place = Variable::new(0..=255)?.bind(128)?;
        let step = jit(move |id: &Tensor, place: &Size| {
            let scores = net.decode(id, &cache, place);
            scores.flatten(0, -1).argmax(0, false).reshape([1, 1])
        })?;
        Ok(Box::new(move || step.call((&token, &place)).map(drop)))
    })
}

/// 128 tokens at once; as `minilm`.
fn prefill(name: &'static str, captured: bool) -> Workload {
    let work = computing(PREFILL, GPT2_WEIGHTS, 0.0);
    call(name, work, move || {
        let net = models::Gpt2::small(12);
        let ids = Tensor::new(&(0..128).collect::<Vec<i32>>(), [1, 128]);
        net.realize()?;
        if !captured {
            return Ok(Box::new(move || net.next(&ids).realize()));
        }
        let next = jit(move |ids: &Tensor| net.next(ids))?;
        Ok(Box::new(move || next.call(&ids).map(drop)))
    })
}

/// Forward and both gradients of every layer, but for the first one's input.
const MNIST: f64 = {
    let first = 32.0 * 25.0 * 24.0 * 24.0;
    let forward = first
        + 32.0 * 32.0 * 25.0 * 20.0 * 20.0
        + 32.0 * 64.0 * 9.0 * 8.0 * 8.0
        + 64.0 * 64.0 * 9.0 * 6.0 * 6.0
        + 576.0 * 10.0;
    2.0 * 512.0 * (3.0 * forward - first)
};

/// A training step of 512 images.
fn mnist() -> Result<Call> {
    let net = models::ConvNet::new();
    let adam = Adam::new(&net, 1e-3);
    let x = normal(&[512, 1, 28, 28]);
    let y = numbers(&[512], 10);
    x.realize()?;
    Ok(Box::new(move || {
        adam.step(&net.forward(&x).cross_entropy(&y, Reduction::Mean, 0.0))
    }))
}

/// Three layers of 128 over 16 sequences of 64 letters, of which a letter sees half; 128 letters there are.
/// Forward and both gradients.
const CHARACTERS: f64 = {
    let width = 128.0;
    let length = 64.0;
    let layer = 2.0 * 12.0 * width * width + 4.0 * width * (length + 1.0) / 2.0;
    let head = 2.0 * width * 128.0;
    3.0 * 16.0 * length * (3.0 * layer + head)
};

/// Every weight of three layers of 128 and of the scores, and half of what is kept of 256 letters.
const LETTER: f64 = 3.0 * (12.0 * 128.0 * 128.0 + 2.0 * 128.0 * 128.0) + 128.0 * 128.0;

/// 256 letters of the example, one by one, from one.
fn letters() -> Result<Call> {
    let net = CharTransformer::new(3, 128, 4, 256, 128);
    net.realize()?;
    Ok(Box::new(move || net.write("t", 256).map(drop)))
}

/// A training step of the example `char_transformer`.
fn characters() -> Result<Call> {
    let net = CharTransformer::new(3, 128, 4, 64, 128);
    let adam = AdamW::new(&net, 1e-3, 0.01);
    let text = char_transformer::corpus(10_000);
    let starts: Vec<i32> = (0..16).map(|k| 500 * k).collect();
    let (inputs, targets) = char_transformer::batch(&text, &starts);
    Ok(Box::new(move || adam.step(&net.loss(&inputs, &targets))))
}
