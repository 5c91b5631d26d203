//! Run a schedule call by call on byte buffers. Flows in: a schedule, the bytes of its PARAMs and
//! something that runs one kernel; flows out: the value of every root.

use monoglot_codegen::lower;
use monoglot_device::{Kernel, Runtime};
use monoglot_oracle::eval::{Value, eval};
use monoglot_schedule::{Function, Schedule, Timings, callify, schedule};
use monoglot_uop::{Arg, Device, Error, ErrorKind, Op, Opt, Result, Target, UOp};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Runs one kernel on its buffers.
pub type Run<'a> = dyn FnMut(&UOp, &mut [Vec<u8>]) -> Result<()> + 'a;

/// A program scheduled for one device.
pub struct Plan {
    /// The roots over PARAMs.
    pub function: Function,
    /// Its calls.
    pub schedule: Schedule,
}

impl Plan {
    /// Schedule these roots for a target.
    pub fn new(roots: &[UOp], device: Device, target: &Arc<Target>) -> Result<Plan> {
        let function = callify(roots, |_| true)?;
        let schedule = schedule(
            &function,
            device,
            &|_| Ok(target.clone()),
            &mut Timings::default(),
        )?;
        Ok(Plan { function, schedule })
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
        let mut places: Vec<Vec<u8>> = self
            .schedule
            .places
            .iter()
            .map(|p| vec![0xa5; p.bytes])
            .collect();
        for call in self.schedule.linear.src() {
            let (body, args) = (&call.src()[0], &call.src()[1..]);
            let mut bufs: Vec<Vec<u8>> = args
                .iter()
                .map(|a| store(a, &mut params, &mut places).clone())
                .collect();
            if body.op() == Op::Copy {
                let part = &body.src()[0];
                let from =
                    part.dims_src(1)[0].as_int().unwrap_or(0) as usize * part.dtype().bytes();
                let bytes = part.shape().max_len() as usize * part.dtype().bytes();
                bufs[0] = bufs[1][from..from + bytes].to_vec();
            } else {
                run(body, &mut bufs)?;
            }
            let Arg::Call(info) = call.arg() else {
                continue;
            };
            for &o in &info.outs {
                *store(&args[o], &mut params, &mut places) = std::mem::take(&mut bufs[o]);
            }
        }
        let mut leaf = |u: &UOp| {
            let bytes = store(u, &mut params, &mut places);
            let shape = u.sizes("leaf")?;
            let len = shape.iter().product::<i64>() as usize * u.dtype().bytes();
            Value::from_bytes(&bytes[..len], &shape, u.dtype())
        };
        eval(&self.schedule.outputs, &mut leaf)
    }
}

fn store<'a>(arg: &UOp, params: &'a mut [Vec<u8>], places: &'a mut [Vec<u8>]) -> &'a mut Vec<u8> {
    let slot = arg.buffer_arg().map_or(0, |b| b.slot as usize);
    if arg.op() == Op::Param {
        &mut params[slot]
    } else {
        &mut places[slot]
    }
}

/// Kernels compiled for a device.
pub struct Compiled {
    device: Arc<dyn Runtime>,
    kernels: FxHashMap<UOp, Arc<dyn Kernel>>,
}

impl Compiled {
    /// Lower (with these Opts, or those the heuristic chooses) and compile kernels, all at once.
    pub fn new(device: Arc<dyn Runtime>, kernels: &[(UOp, Option<Vec<Opt>>)]) -> Result<Compiled> {
        let mut programs = Vec::with_capacity(kernels.len());
        for (k, opts) in kernels {
            programs.push(lower(k, device.target(), opts.as_deref(), &mut |_, _| {})?.0);
        }
        let compiled = device.compile(&programs)?;
        let kernels = kernels
            .iter()
            .map(|(k, _)| k.clone())
            .zip(compiled)
            .collect();
        Ok(Compiled { device, kernels })
    }

    /// No kernels.
    pub fn none(device: Arc<dyn Runtime>) -> Compiled {
        Compiled {
            device,
            kernels: FxHashMap::default(),
        }
    }

    /// Run one of them.
    pub fn run(&self, kernel: &UOp, bufs: &mut [Vec<u8>]) -> Result<()> {
        let missing = || {
            Error::new(ErrorKind::Run {
                message: "a kernel that was not compiled".into(),
            })
        };
        let compiled = self.kernels.get(kernel).ok_or_else(missing)?;
        let mut storages = Vec::with_capacity(bufs.len());
        for b in bufs.iter() {
            let s = self.device.alloc(b.len())?;
            self.device.upload(&s, 0, b)?;
            storages.push(s);
        }
        compiled.launch(&storages, &[])?;
        for (b, s) in bufs.iter_mut().zip(&storages) {
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
