//! Run a schedule call by call on byte buffers. Flows in: a schedule, the bytes of its PARAMs and
//! something that runs one kernel; flows out: the value of every root.

use monoglot_codegen::lower;
use monoglot_device::{Kernel, Runtime};
use monoglot_engine::backend;
use monoglot_oracle::eval::{Value, eval};
use monoglot_schedule::{Memory, Plan, Schedule, Timings, callify, lift, schedule};
use monoglot_uop::{Arg, Device, Error, ErrorKind, Op, Opt, Result, Target, UOp};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Runs one kernel on its buffers and the words of its variables, by slot.
pub type Run<'a> = dyn FnMut(&UOp, &mut [Vec<u8>], &Words) -> Result<()> + 'a;

/// The words of variables, each with its slot.
pub type Words = [(u64, i64)];

/// A program scheduled for one device.
pub struct Scheduled {
    /// The BUFFERs that its PARAMs stand for.
    pub params: Vec<UOp>,
    /// The words of its variables, numbered after the PARAMs.
    pub words: Vec<(u64, i64)>,
    /// Its calls.
    pub schedule: Schedule,
}

impl Scheduled {
    /// Schedule these roots for a target; generalised, with a variable for every constant and offset.
    pub fn new(
        roots: &[UOp],
        device: Device,
        target: &Arc<Target>,
        generalised: bool,
    ) -> Result<Scheduled> {
        let (mut function, arguments) = callify(roots, |_| true)?;
        let params = arguments.buffers;
        let mut words = Vec::new();
        if generalised {
            (function, words) = lift(&function).widest(&function);
        }
        let words = (params.len() as u64..).zip(words).collect();
        let schedule = schedule(
            &function,
            device,
            &|_| Ok(target.clone()),
            &mut Timings::default(),
        )?;
        Ok(Scheduled {
            params,
            words,
            schedule,
        })
    }

    /// The different kernels, in order of first use.
    pub fn kernels(&self) -> Vec<UOp> {
        let mut out: Vec<UOp> = Vec::new();
        for call in self.schedule.linear.src() {
            let body = &call.src()[0];
            if body.op() == Op::Sink && !out.contains(body) {
                out.push(body.clone());
            }
        }
        out
    }

    /// The values of the roots; `run` is given each kernel and its buffers.
    pub fn run(&self, params: &[Vec<u8>], run: &mut Run) -> Result<Vec<Value>> {
        let mut params = params.to_vec();
        // A variable has no buffer.
        params.resize(params.len() + self.words.len(), Vec::new());
        let plan = &self.schedule.plan;
        let memory = |m: &Memory| vec![0xa5; m.bytes];
        let mut memories: Vec<Vec<u8>> = plan.memories.iter().map(memory).collect();
        for call in self.schedule.linear.src() {
            let body = &call.src()[0];
            let args = &call.src()[1..];
            let mut bufs: Vec<Vec<u8>> = args
                .iter()
                .map(|a| store(a, plan, &mut params, &mut memories).to_vec())
                .collect();
            let word = |a: &UOp| {
                let slot = a.buffer_arg()?.slot;
                self.words.iter().find(|w| a.is_variable() && w.0 == slot)
            };
            let words = (0..).zip(args).filter_map(|(k, a)| Some((k, word(a)?.1)));
            let words: Vec<(u64, i64)> = words.collect();
            if body.op() == Op::Copy {
                let part = &body.src()[0];
                let start = part.dims_src(1)[0].to_uop().with_words(&words)?;
                let from = start.as_int().unwrap_or(0) as usize * part.dtype().bytes();
                let bytes = part.shape().max_len() as usize * part.dtype().bytes();
                bufs[0] = bufs[1][from..from + bytes].to_vec();
            } else {
                run(body, &mut bufs, &words)?;
            }
            let Arg::Call(info) = call.arg() else {
                continue;
            };
            for &o in &info.outs {
                store(&args[o], plan, &mut params, &mut memories).copy_from_slice(&bufs[o]);
            }
        }
        let mut leaf = |u: &UOp| {
            let bytes = store(u, plan, &mut params, &mut memories);
            let shape = u.sizes("leaf")?;
            let len = shape.iter().product::<i64>() as usize * u.dtype().bytes();
            Value::from_bytes(&bytes[..len], &shape, u.dtype())
        };
        let outputs = self.schedule.outputs.iter();
        let outputs = outputs.map(|view| view.with_words(&self.words));
        eval(&outputs.collect::<Result<Vec<UOp>>>()?, &mut leaf)
    }
}

fn store<'a>(
    arg: &UOp,
    plan: &Plan,
    params: &'a mut [Vec<u8>],
    memories: &'a mut [Vec<u8>],
) -> &'a mut [u8] {
    let slot = arg.buffer_arg().map_or(0, |b| b.slot as usize);
    if arg.op() == Op::Param {
        return &mut params[slot];
    }
    let place = &plan.allocations[slot];
    &mut memories[place.memory][place.offset..][..place.bytes]
}

/// Kernels compiled for a device.
pub struct CompiledKernels {
    device: Arc<dyn Runtime>,
    kernels: FxHashMap<UOp, Arc<dyn Kernel>>,
}

impl CompiledKernels {
    /// Lower (with these Opts, or those the heuristic chooses) and compile kernels, all at once.
    pub fn new(
        device: Arc<dyn Runtime>,
        kernels: &[(UOp, Option<Vec<Opt>>)],
    ) -> Result<CompiledKernels> {
        let mut programs = Vec::with_capacity(kernels.len());
        for (k, opts) in kernels {
            programs.push(
                lower(
                    k,
                    device.target(),
                    backend(device.target().dialect),
                    opts.as_deref(),
                    &mut |_, _| {},
                )?
                .0,
            );
        }
        let compiled = device.compile(&programs)?;
        let kernels = kernels
            .iter()
            .map(|(k, _)| k.clone())
            .zip(compiled)
            .collect();
        Ok(CompiledKernels { device, kernels })
    }

    /// No kernels.
    pub fn none(device: Arc<dyn Runtime>) -> CompiledKernels {
        CompiledKernels {
            device,
            kernels: FxHashMap::default(),
        }
    }

    /// Run one of them; `bufs` are by slot, those of variables not used.
    pub fn run(&self, kernel: &UOp, bufs: &mut [Vec<u8>], words: &Words) -> Result<()> {
        let missing = || {
            Error::new(ErrorKind::Run {
                message: "a kernel that was not compiled".into(),
            })
        };
        let compiled = self.kernels.get(kernel).ok_or_else(missing)?;
        let is_word = |slot: usize| words.iter().any(|w| w.0 == slot as u64);
        let mut storages = Vec::with_capacity(bufs.len());
        for (_, b) in bufs.iter().enumerate().filter(|(slot, _)| !is_word(*slot)) {
            let s = self.device.alloc(b.len())?;
            self.device.upload(&s, 0, b)?;
            storages.push(s);
        }
        // Words come in the order of their slots.
        let vars: Vec<i64> = words.iter().map(|w| w.1).collect();
        self.device.launch(compiled, &storages, &vars)?;
        let buffers = bufs.iter_mut().enumerate();
        let buffers = buffers.filter(|(slot, _)| !is_word(*slot));
        for ((_, b), s) in buffers.zip(&storages) {
            self.device.download(s, 0, b)?;
        }
        Ok(())
    }
}

/// The first element in which two values differ by more than rounding, as text.
pub fn difference(want: &Value, got: &Value) -> Option<String> {
    use monoglot_uop::Scalar::Float;
    for i in 0..want.len() {
        let same = match (want.get(i), got.get(i)) {
            (Float(a), Float(b)) => {
                a == b
                    || a.is_nan() && b.is_nan()
                    || (a - b).abs() <= 2e-3 * a.abs().max(1.0) && a.is_finite()
            }
            (a, b) => a == b,
        };
        if !same {
            return Some(format!(
                "element {i} is {:?}, not {:?}",
                got.get(i),
                want.get(i)
            ));
        }
    }
    None
}
