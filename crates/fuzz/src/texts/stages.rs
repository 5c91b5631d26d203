//! A text through every stage that its spec lets it into. Flows in: a text; flows out: how far it came, or
//! what is wrong with the compiler.

use crate::check::Inputs;
use crate::program::Dice;
use crate::run::{CompiledKernels, Scheduled, difference};
use monoglot_codegen::{lower, lower_shaped, render};
use monoglot_device::{Runtime, open};
use monoglot_engine::backend;
use monoglot_oracle::eval::{Value, eval};
use monoglot_oracle::eval_kernel::eval_kernel;
use monoglot_oracle::random;
use monoglot_uop::linear::storage_of;
use monoglot_uop::spec::{
    Expanded, Lowered, verify_expanded, verify_kernel, verify_linear, verify_program,
    verify_scheduled, verify_tensor,
};
use monoglot_uop::text::{parse_many, print_many};
use monoglot_uop::{Arg, Device, Op, OpSet, Program, Result, Target, UOp};
use std::sync::Arc;

/// What became of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It does not parse.
    Unread,
    /// It parses, and no spec takes it.
    Refused,
    /// A spec takes it, and a later pass has a typed error.
    Failed,
    /// It went through all passes.
    Passed,
    /// Its values were computed and compared.
    Compared,
}

/// A failure of the compiler, as text.
type Checked<T> = std::result::Result<T, String>;

/// Most iterations of what is run, and bytes of what it touches.
const ITERATIONS: i64 = 100_000;
const BYTES: i64 = 1 << 20;
/// Most nodes of a graph whose kernels are all lowered.
const NODES: usize = 4000;

/// Ops after which values may differ between devices by more than rounding.
const ROUGH: OpSet = OpSet::of(&[
    Op::Exp2,
    Op::Log2,
    Op::Sin,
    Op::Pow,
    Op::Recip,
    Op::Sqrt,
    Op::Div,
    Op::MulAcc,
    Op::Trunc,
]);

pub(super) struct Stages {
    targets: Vec<(Device, Arc<Target>)>,
    interpreters: Vec<Arc<dyn Runtime>>,
}

impl Stages {
    pub(super) fn new() -> Result<Stages> {
        let mut targets = Vec::new();
        let mut interpreters = Vec::new();
        for name in ["NULL:C:x86-64-v3", "INTERP", "INTERP:GPU"] {
            let device = Device::new(name);
            let runtime = open(device)?;
            targets.push((device, Arc::new(runtime.target().clone())));
            if name.starts_with("INTERP") {
                interpreters.push(runtime.clone());
            }
        }
        Ok(Stages {
            targets,
            interpreters,
        })
    }

    pub(super) fn target(&self, i: usize) -> (Device, &Arc<Target>) {
        let (device, target) = &self.targets[i % self.targets.len()];
        (*device, target)
    }

    pub(super) fn run(&self, text: &str, stage: &mut dyn FnMut(&str)) -> Checked<Seen> {
        stage("parse");
        let Ok(roots) = parse_many(text) else {
            return Ok(Seen::Unread);
        };
        stage("print");
        comes_back(&roots)?;
        let mut seen = Seen::Refused;
        let one = |roots: &[UOp]| match roots {
            [root] => Some(root.clone()),
            _ => None,
        };
        if let Some(root) = one(&roots) {
            stage("verify");
            let _ = verify_program(root.clone());
            let best = |seen: Seen, next: Seen| if next as u8 > seen as u8 { next } else { seen };
            if let Ok(list) = verify_linear(root.clone()) {
                seen = best(seen, self.linear(&list, stage)?);
            }
            if let Ok(shaped) = verify_expanded(root.clone()) {
                seen = best(seen, self.shaped(&shaped, stage));
            }
            if verify_kernel(root.clone()).is_ok() {
                seen = best(seen, self.kernel(&root, stage)?);
            }
            if let Ok(scheduled) = verify_scheduled(root.clone()) {
                for call in scheduled.src().iter().take(8) {
                    if call.src()[0].op() == Op::Sink {
                        seen = best(seen, self.kernel(&call.src()[0], stage)?);
                    }
                }
            }
        }
        let is_tuple = |u: &UOp| u.op() == Op::Sink && *u.arg() == Arg::None && u.tag() == 0;
        let roots = match one(&roots).filter(is_tuple) {
            Some(sink) => sink.src().to_vec(),
            None => roots,
        };
        stage("verify tensors");
        let Ok(sink) = UOp::try_new(Op::Sink, roots.clone(), Arg::None) else {
            return Ok(seen);
        };
        if verify_tensor(sink).is_ok() && !roots.is_empty() {
            seen = self.tensors(&roots, stage)?;
        }
        Ok(seen)
    }

    /// Schedule, lower, and run where it is small.
    fn tensors(&self, roots: &[UOp], stage: &mut dyn FnMut(&str)) -> Checked<Seen> {
        let mut seen = Seen::Passed;
        for (i, (device, target)) in self.targets.iter().enumerate() {
            for generalised in [false, true] {
                stage(&format!(
                    "schedule for {device:?}, generalised: {generalised}"
                ));
                let scheduled = match Scheduled::new(roots, *device, target, generalised) {
                    Ok(scheduled) => scheduled,
                    Err(_) => {
                        seen = Seen::Failed;
                        continue;
                    }
                };
                let kernels = scheduled.kernels();
                for kernel in kernels.iter().take(12) {
                    stage(&format!("lower for {device:?}"));
                    let made = lower(
                        kernel,
                        target,
                        backend(target.dialect),
                        None,
                        &mut |_, _| {},
                    );
                    if made.is_err() {
                        seen = Seen::Failed;
                    }
                }
                if i == 1 && seen == Seen::Passed && is_small(roots, &scheduled) {
                    stage("compare");
                    self.compare(roots, &scheduled)?;
                    seen = Seen::Compared;
                }
            }
        }
        Ok(seen)
    }

    /// The tensor oracle against the kernel oracle and the interpreter.
    fn compare(&self, roots: &[UOp], scheduled: &Scheduled) -> Checked<()> {
        let data = Inputs::of(&scheduled.params, 0);
        // What the oracle cannot say is not compared.
        let Ok(want) = eval(roots, &mut |u: &UOp| data.leaf(u)) else {
            return Ok(());
        };
        let by_oracle = scheduled.run(&data.bytes, &mut |k, bufs, words| {
            eval_kernel(k, bufs, words).map(|_| ())
        });
        let all = scheduled.kernels().into_iter().map(|k| (k, None));
        let compiled = CompiledKernels::new(self.interpreters[0].clone(), &all.collect::<Vec<_>>());
        let compiled = compiled.map_err(|e| format!("what was lowered does not compile: {e}"))?;
        let by_interp = scheduled.run(&data.bytes, &mut |k, b, w| compiled.run(k, b, w));
        if !is_exact(roots) {
            return Ok(());
        }
        for (who, got) in [("the kernel oracle", by_oracle), ("INTERP", by_interp)] {
            let got = got.map_err(|e| format!("{who}: {e}"))?;
            same(&want, &got).map_err(|e| format!("{who}: {e}"))?;
        }
        Ok(())
    }

    /// A kernel for every target, with the Opts that the heuristic chooses, without, and with some.
    fn kernel(&self, kernel: &UOp, stage: &mut dyn FnMut(&str)) -> Checked<Seen> {
        if kernel.toposort().len() > NODES {
            return Ok(Seen::Passed);
        }
        let mut seen = Seen::Passed;
        for (i, (device, target)) in self.targets.iter().enumerate() {
            stage(&format!("Opts for {device:?}"));
            let drawn = random::sample(kernel, target, kernel.structural_hash());
            for opts in [None, Some(Vec::new()), Some(drawn)] {
                stage(&format!("lower for {device:?} with {opts:?}"));
                let to = backend(target.dialect);
                let made = lower(kernel, target, to, opts.as_deref(), &mut |_, _| {});
                match made {
                    Ok((program, _)) if i > 0 => self.launch(&program, i - 1, stage)?,
                    Ok(_) => {}
                    Err(_) => seen = Seen::Failed,
                }
            }
        }
        Ok(seen)
    }

    fn shaped(&self, shaped: &Expanded, stage: &mut dyn FnMut(&str)) -> Seen {
        let mut seen = Seen::Passed;
        for (device, target) in &self.targets {
            stage(&format!("lower the shaped form for {device:?}"));
            if lower_shaped(shaped.clone(), target, backend(target.dialect)).is_err() {
                seen = Seen::Failed;
            }
        }
        seen
    }

    fn linear(&self, list: &Lowered, stage: &mut dyn FnMut(&str)) -> Checked<Seen> {
        let mut seen = Seen::Passed;
        for (i, (device, target)) in self.targets.iter().enumerate() {
            stage(&format!("render for {device:?}"));
            match render(list.clone(), target, backend(target.dialect)) {
                Ok(program) if i > 0 => self.launch(&program, i - 1, stage)?,
                Ok(_) => {}
                Err(_) => seen = Seen::Failed,
            }
        }
        Ok(seen)
    }

    /// Interpret a program that is small; a fault of its own is a typed error.
    fn launch(&self, program: &Program, i: usize, stage: &mut dyn FnMut(&str)) -> Checked<()> {
        let runtime = &self.interpreters[i];
        stage("decode");
        let Ok(compiled) = runtime.compile(std::slice::from_ref(program)) else {
            return Ok(());
        };
        let Some(list) = program.src().get(1).filter(|list| is_short(list)) else {
            return Ok(());
        };
        stage("run");
        let Arg::Program(info) = program.arg() else {
            return Ok(());
        };
        let mut slots: Vec<usize> = info.outs.iter().chain(&info.ins).copied().collect();
        slots.sort_unstable();
        slots.dedup();
        let param = |slot: usize, value: bool| {
            let of_slot = |u: &&UOp| {
                let same = u.buffer_arg().is_some_and(|b| b.slot as usize == slot);
                u.op() == Op::Param && same && u.is_variable() == value
            };
            list.src().iter().find(of_slot)
        };
        let mut dice = Dice::new(list.structural_hash());
        let mut bufs = Vec::new();
        for slot in slots {
            let bytes =
                param(slot, false).map_or(0, |p| p.shape().max_len() * p.dtype().bytes() as i64);
            let Ok(storage) = runtime.alloc(bytes.max(0) as usize) else {
                return Ok(());
            };
            let data: Vec<u8> = (0..bytes.max(0)).map(|_| dice.roll(3) as u8).collect();
            let _ = runtime.upload(&storage, 0, &data);
            bufs.push(storage);
        }
        let word = |slot: &usize| param(*slot, true).map_or(0, |p| p.vmin().max(0).min(p.vmax()));
        let vars: Vec<i64> = info.vars.iter().map(word).collect();
        let _ = runtime.launch(&compiled[0], &bufs, &vars);
        Ok(())
    }
}

/// What was read is printed, and read again, as the same.
fn comes_back(roots: &[UOp]) -> Checked<()> {
    let text = print_many(roots);
    let back = match parse_many(&text) {
        Ok(back) => back,
        Err(e) => return Err(format!("what is printed does not parse: {e}\n{text}")),
    };
    let fresh = roots.iter().any(|r| r.ops_below().contains(Op::Buffer));
    let same = if fresh {
        print_many(&back) == text
    } else {
        back == roots
    };
    if same {
        Ok(())
    } else {
        Err(format!("what is printed parses to something else:\n{text}"))
    }
}

fn same(want: &[Value], got: &[Value]) -> Checked<()> {
    for (r, (w, g)) in want.iter().zip(got).enumerate() {
        if let Some(d) = difference(w, g) {
            return Err(format!("root {r}: {d}"));
        }
    }
    Ok(())
}

/// Whether graph and kernels are quick to evaluate.
fn is_small(roots: &[UOp], scheduled: &Scheduled) -> bool {
    let nodes = UOp::sink(roots).toposort();
    let leaves = nodes
        .iter()
        .all(|u| u.op() != Op::Param && u.shape().ints().is_some());
    let sizes = nodes.iter().all(|u| u.shape().max_len() <= 4096);
    let bytes = scheduled
        .schedule
        .plan
        .memories
        .iter()
        .map(|m| m.bytes as i64);
    let storage = bytes.fold(0i64, i64::saturating_add) <= BYTES;
    let short = |k: &UOp| iterations(&k.toposort()) <= ITERATIONS;
    nodes.len() <= 500 && leaves && sizes && storage && scheduled.kernels().iter().all(short)
}

/// Whether all devices give the same but for the order of sums.
fn is_exact(roots: &[UOp]) -> bool {
    let rough = |u: &UOp| match u.op() {
        // Of floats, they depend on the sign of a zero.
        Op::Idiv | Op::Mod => u.dtype().is_float(),
        op => ROUGH.contains(op),
    };
    !UOp::sink(roots).toposort().iter().any(rough)
}

/// Iterations if every loop stood in every other.
fn iterations(nodes: &[UOp]) -> i64 {
    let loops = nodes
        .iter()
        .filter(|u| matches!(u.op(), Op::Range | Op::Special));
    loops.fold(1i64, |n, r| n.saturating_mul(r.vmax().saturating_add(1)))
}

/// Whether a list is quick to interpret.
fn is_short(list: &UOp) -> bool {
    let bytes = |u: &UOp| u.shape().max_len().saturating_mul(u.dtype().bytes() as i64);
    let storage = list.src().iter().filter(|u| storage_of(u).is_some());
    let storage = storage.fold(0i64, |n, u| n.saturating_add(bytes(u)));
    let work = iterations(list.src()).saturating_mul(list.src().len() as i64);
    work <= 20 * ITERATIONS && storage <= BYTES
}
