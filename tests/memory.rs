//! The memory plans of the models that `monoglot compile` knows. Flows in: their schedules; flows out: a failed
//! test where storage in use at once overlaps, or where a plan takes more than 5 % above what it has to.

use monoglot::compiler::schedule::{Plan, Schedule, Timings, callify, schedule};
use monoglot::compiler::uop::{Device, Dim, Op, Shape, UOp};
use monoglot::compiler::{device, engine};
use monoglot::models::{Block, Workload, graph};
use monoglot::nn::{Module, without_data};
use monoglot::{Config, DType, Result, Tensor, function};
use std::ops::RangeInclusive;
use std::sync::Arc;

fn planned(model: Workload) -> Result<Schedule> {
    let layers = model.has_layers().then_some(6);
    let graph = graph(model, layers, engine::default_device())?;
    let roots: Vec<UOp> = graph.roots.iter().map(|t| t.uop()).collect::<Result<_>>()?;
    scheduled(&roots)
}

fn scheduled(roots: &[UOp]) -> Result<Schedule> {
    let home = engine::default_device();
    let (function, _) = callify(roots, |_| true)?;
    let target = |d: Device| Ok(Arc::new(device::open(d)?.target().clone()));
    schedule(&function, home, &target, &mut Timings::default())
}

/// For each buffer its bytes, and the calls that use it: read off the calls themselves.
fn lives(schedule: &Schedule) -> Vec<(usize, RangeInclusive<usize>)> {
    let mut out: Vec<(usize, RangeInclusive<usize>)> = Vec::new();
    for (k, call) in schedule.linear.src().iter().enumerate() {
        for arg in call.src()[1..].iter().filter(|a| a.op() == Op::Buffer) {
            let number = arg.buffer_arg().expect("a BUFFER says which").slot as usize;
            assert!(number <= out.len(), "numbers are those of first use");
            if number == out.len() {
                out.push((0, k..=k));
            }
            let bytes = arg.shape().max_len() as usize * arg.dtype().bytes();
            let first = *out[number].1.start();
            out[number] = (out[number].0.max(bytes), first..=k);
        }
    }
    let last = schedule.linear.src().len();
    for (number, a) in schedule.plan.allocations.iter().enumerate() {
        if a.output {
            out[number].1 = *out[number].1.start()..=last;
        }
    }
    out
}

fn nothing_in_use_overlaps(plan: &Plan, lives: &[(usize, RangeInclusive<usize>)]) {
    for (i, (bytes, life)) in lives.iter().enumerate() {
        let a = &plan.allocations[i];
        assert!(a.bytes >= *bytes && a.offset + a.bytes <= plan.memories[a.memory].bytes);
        for (j, (_, other)) in lives[..i].iter().enumerate() {
            let b = &plan.allocations[j];
            let at_once = life.start() <= other.end() && other.start() <= life.end();
            let apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
            assert!(!at_once || a.memory != b.memory || apart, "{a:?} {b:?}");
        }
    }
}

/// The most that is in use at a call.
fn least(lives: &[(usize, RangeInclusive<usize>)], calls: usize) -> usize {
    let at = |call: usize| {
        let in_use = lives.iter().filter(|(_, life)| life.contains(&call));
        in_use.map(|(bytes, _)| bytes).sum()
    };
    (0..calls).map(at).max().unwrap_or(0)
}

/// Compiled alone, and for a machine that is the same everywhere.
fn on_null() {
    Config {
        device: Some("NULL:X86:x86-64-v3".into()),
        threads: Some(2),
        ..Config::default()
    }
    .set();
}

/// Scores of n by n, the rows of x weighed by them, and what flows back to x.
fn weighed(x: &Tensor) -> Result<Schedule> {
    let scores = x.matmul(&x.t()).softmax(-1).contiguous();
    let y = scores.matmul(x).contiguous().tanh();
    let g = y.square().sum(.., false).gradient(&[x])?.remove(0);
    scheduled(&[y.uop()?, g.uop()?])
}

#[test]
fn sixteen_of_4096_take_what_sixteen_take() -> Result<()> {
    on_null();
    let device = engine::default_device();
    let empty = |sizes: &Shape| Tensor::from_uop(UOp::buffer(sizes, DType::F32, device));
    let length = UOp::variable(0, 1, 4096);
    let of = |n: Dim| weighed(&empty(&Shape::new([n, Dim::Int(64)])));
    let varying = of(Dim::Sym(length.bind_to(4096)))?.plan;
    for n in [16, 100, 1024, 4096] {
        let layout = varying.layout(&[(1, n)])?;
        let used: usize = layout.memories.iter().map(|m| m.1).sum();
        let mut steps = vec![0; varying.in_use(device).len()];
        for (i, a) in varying.allocations.iter().enumerate() {
            let bytes = match &a.size {
                Some(size) => size.sym_infer(&[(1, n)])? as usize,
                None => a.bytes,
            };
            assert!(layout.offsets[i] + bytes <= layout.memories[a.memory].1);
            // An output has its memory from the beginning.
            let first = if a.output { 0 } else { a.steps.0 };
            let last = if a.output { steps.len() - 1 } else { a.steps.1 };
            steps[first..=last].iter_mut().for_each(|s| *s += bytes);
        }
        let least = steps.into_iter().max().unwrap_or(0);
        assert!(used as f64 <= least as f64 * 1.05, "{n}: {used} of {least}");
        // The kernels of one length may write in place where those of all do not.
        let plain = of(Dim::Int(n))?.plan.peak(device);
        assert!(used <= plain * 3 / 2, "{n}: {used} and {plain}");
    }
    Ok(())
}

/// The peak of the plan of a step of GPT-2's blocks, without the gradients that are asked for. Their calls keep what
/// gradients read, or their arguments alone. They are so wide that a product is no work to do again by itself.
fn stacked(layers: usize, checkpoint: bool) -> Result<usize> {
    const WIDTH: usize = 256;
    let blocks: Vec<Block> = without_data(|| (0..layers).map(|_| Block::new(WIDTH, 4)).collect());
    let mut x = Tensor::empty([2, 256, WIDTH], DType::F32, engine::default_device());
    for block in &blocks {
        let f = function(|x: &Tensor| block.forward(x, None, 0));
        let f = if checkpoint { f.checkpoint() } else { f };
        x = f.call(&x)?;
    }
    let loss = x.square().mean(.., false);
    let parameters: Vec<Tensor> = blocks.iter().flat_map(|b| b.parameters()).collect();
    let mut roots = vec![loss.clone()];
    roots.extend(loss.gradient(&parameters.iter().collect::<Vec<_>>())?);
    let roots: Vec<UOp> = roots.iter().map(|t| t.uop()).collect::<Result<_>>()?;
    let plan = scheduled(&roots)?.plan;
    let gradients: usize = roots.iter().map(|r| r.shape().max_len() as usize * 4).sum();
    Ok(plan.peak(plan.devices()[0]) - gradients)
}

#[test]
fn a_checkpoint_keeps_what_is_passed_alone() -> Result<()> {
    on_null();
    let argument = 2 * 256 * 256 * 4;
    let grows = |checkpoint| -> Result<usize> {
        Ok((stacked(12, checkpoint)? - stacked(4, checkpoint)?) / 8)
    };
    let again = grows(true)?;
    assert!(again <= argument + argument / 8, "{again} of {argument}");
    let kept = grows(false)?;
    assert!(kept > 4 * argument, "{kept} of {argument}");
    let least = stacked(12, true)?;
    let most = stacked(12, false)?;
    assert!(2 * least < most, "{least} of {most}");
    Ok(())
}

#[test]
fn plans_are_within_a_twentieth_of_what_is_in_use() -> Result<()> {
    on_null();
    for model in Workload::ALL {
        let schedule = planned(model)?;
        let plan = &schedule.plan;
        let lives = lives(&schedule);
        let calls = schedule.linear.src().len();
        nothing_in_use_overlaps(plan, &lives);
        let peak = plan.peak(plan.devices()[0]) as f64;
        let most = least(&lives, calls) as f64;
        let name = model.name();
        assert!(peak >= most, "{name}");
        assert!(peak <= most * 1.05, "{name}: {peak} of {most}");
        let apart: usize = lives.iter().map(|(bytes, _)| bytes).sum();
        assert!(peak < apart as f64 * 0.9, "{name}: {peak} of {apart}");
    }
    Ok(())
}
