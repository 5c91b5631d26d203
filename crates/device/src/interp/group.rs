//! Threads that run together: the threads of a workgroup take turns, each until it waits; what they
//! wait for (a barrier by all, a matrix product by a warp) is done when all have come to it. A CPU
//! thread is a group of one. Flows in: decoded code and the launch's buffers; flows out: what the
//! threads stored, or the first fault and where it happened. Invariant: no thread passes a barrier
//! before all have come to it.

use super::WARP;
use super::decode::{BARRIER, Decoded, Start, poison};
use super::machine::{At, Buf, Frame, Ins};
use super::race::Watch;
use crate::kernel::Arguments;
use half::{bf16, f16};
use monoglot_uop::{AddrSpace, DType, Fragment, ProgramInfo, TcInfo};

/// What is wrong where some lanes of a warp do something else than its matrix product.
const PARTED: &str = "a matrix product is not reached by all 32 lanes of a warp";

/// The threads of one workgroup, used for one after the other.
pub(super) struct Group<'a> {
    code: &'a Decoded,
    /// Values of the variables.
    vars: &'a [i64],
    frames: Vec<Frame>,
    /// The register files, which the frames point into.
    _regs: Vec<u64>,
    locals: Vec<Local>,
    watch: Box<Watch>,
}

/// A LOCAL buffer.
struct Local {
    /// What its words are before anything is stored.
    fill: u64,
    words: Vec<u64>,
}

impl<'a> Group<'a> {
    pub(super) fn new(code: &'a Decoded, args: &'a Arguments<'_>, threads: usize) -> Group<'a> {
        let words = code.image.len();
        let mut g = Group {
            code,
            vars: args.vars,
            frames: Vec::with_capacity(threads),
            _regs: vec![0; words * threads],
            locals: Vec::new(),
            watch: Box::default(),
        };
        for b in code.bufs.iter().filter(|b| b.space == AddrSpace::Local) {
            let size = (b.len as usize * b.dtype.bytes()).div_ceil(8);
            g.locals.push(Local {
                fill: poison(b.dtype),
                words: vec![0; size],
            });
        }
        let watch: *mut Watch = &mut *g.watch;
        let file = g._regs.as_mut_ptr();
        for t in 0..threads {
            // SAFETY: each thread has `words` words of the file.
            let regs = unsafe { file.add(t * words) }.cast::<u8>();
            let mut global = args.ptrs.iter();
            let mut local = g.locals.iter_mut();
            let buf = |b: &super::decode::BufInfo| {
                let none = std::ptr::null_mut();
                let ptr = match b.space {
                    AddrSpace::Global => global.next().copied().unwrap_or(none),
                    AddrSpace::Local => local.next().map_or(none, |l| l.words.as_mut_ptr().cast()),
                    // SAFETY: the decoder placed the buffer within the file.
                    AddrSpace::Reg => unsafe { regs.add(b.offset as usize) },
                };
                let len = if ptr.is_null() { 0 } else { b.len };
                Buf {
                    ptr,
                    len,
                    reads: 0,
                    slot: b.slot,
                }
            };
            let bufs = code.bufs.iter().map(buf).collect();
            g.frames.push(Frame {
                regs,
                bufs,
                fault: None,
                at: At::Ended,
                code: code.code.as_ptr(),
                thread: t as u32,
                watch,
            });
        }
        g
    }

    /// Run the unit-th workgroup (or CPU thread) to its end.
    pub(super) fn run(
        &mut self,
        unit: usize,
        info: &ProgramInfo,
        groups: bool,
    ) -> Result<(), String> {
        for local in &mut self.locals {
            local.words.fill(local.fill);
        }
        self.watch.clear();
        for t in 0..self.frames.len() {
            self.start(t, unit, info, groups);
        }
        loop {
            for warp in 0..self.frames.len().div_ceil(WARP) {
                self.run_warp(warp)?;
            }
            let first = self.frames[0].at;
            if let Some(f) = self.frames.iter().find(|f| f.at != first) {
                return Err(format!(
                    "a barrier is not reached by every thread of the workgroup: thread 0 {}, thread {} {}",
                    where_to(first),
                    f.thread,
                    where_to(f.at)
                ));
            }
            let At::Waits(barrier) = first else {
                return Ok(());
            };
            self.watch.clear();
            for f in &mut self.frames {
                f.at = At::Next(barrier + 1);
            }
        }
    }

    /// Add what was read of each global buffer.
    pub(super) fn add_reads(&self, reads: &mut [u64]) {
        for f in &self.frames {
            // Global buffers come first, in the order of the arguments.
            for (all, b) in reads.iter_mut().zip(&f.bufs) {
                *all += b.reads;
            }
        }
    }

    fn start(&mut self, t: usize, unit: usize, info: &ProgramInfo, groups: bool) {
        let words = self.code.image.len();
        let file = self.frames[t].regs.cast::<u64>();
        // SAFETY: a thread's part of the file has as many words as the image, and no one runs on it now.
        unsafe { std::ptr::copy_nonoverlapping(self.code.image.as_ptr(), file, words) };
        let position = |n: usize, dims: &[i64; 3], axis: usize| {
            let dims = dims.map(|d| d.max(1) as usize);
            (n / dims[..axis].iter().product::<usize>() % dims[axis]) as i64
        };
        for (at, d, start) in &self.code.starts {
            let value = match *start {
                Start::Variable(k) => self.vars.get(k).copied().unwrap_or(0),
                Start::Special(6) => unit as i64,
                Start::Special(_) if !groups => 0,
                Start::Special(k @ 0..=2) => position(unit, &info.global_size, k),
                Start::Special(k) => position(t, &info.local_size, k - 3),
            };
            let word = if d.bytes() == 4 {
                value as i32 as u32 as u64
            } else {
                value as u64
            };
            // SAFETY: the decoder placed the value within the file.
            unsafe { *file.add(*at as usize / 8) = word };
        }
        self.frames[t].at = At::Next(0);
    }

    /// Run the threads of a warp until each waits at a barrier or has ended; matrix products on the way.
    fn run_warp(&mut self, warp: usize) -> Result<(), String> {
        let lanes = warp * WARP..((warp + 1) * WARP).min(self.frames.len());
        loop {
            for f in &mut self.frames[lanes.clone()] {
                // SAFETY: the frame was made for this code, and its registers are its own.
                unsafe { f.go() };
                if f.at == At::Failed {
                    return Err(f.fault.take().unwrap_or_else(|| "stopped".into()));
                }
            }
            let code = &self.code.code;
            let product = |f: &Frame| matches!(f.at, At::Waits(k) if code[k].x != BARRIER);
            let warp = &self.frames[lanes.clone()];
            if !warp.iter().any(product) {
                return Ok(());
            }
            let first = warp[0].at;
            let together = warp.len() == WARP && warp.iter().all(|f| f.at == first);
            let At::Waits(k) = first else {
                return Err(PARTED.into());
            };
            if !together {
                return Err(PARTED.into());
            }
            let ins = code[k];
            self.multiply(&ins, lanes.clone())?;
            for f in &mut self.frames[lanes.clone()] {
                f.at = At::Next(k + 1);
            }
        }
    }

    /// d = acc + a·b, of matrices that lie over the lanes as the unit's fragments say.
    fn multiply(&mut self, ins: &Ins, lanes: std::ops::Range<usize>) -> Result<(), String> {
        let unit: &TcInfo = &self.code.units[ins.x as usize];
        let [of_a, of_b] = unit.dtypes_in;
        let floats = |d: DType| matches!(d, DType::F16 | DType::BF16 | DType::F32);
        let known = floats(of_a)
            && floats(of_b)
            && unit.dtype_out == DType::F32
            && unit.threads == WARP as i64;
        if !known || i64::from(ins.n) != unit.c.elements() {
            return Err(format!("the interpreter has no matrix unit {}", unit.name));
        }
        let [m, n, k] = unit.dims.map(|d| d as usize);
        let read = |at: u32, d: DType, f: &Fragment, columns: usize, size: usize| {
            let mut matrix = vec![0f32; size];
            for (lane, frame) in self.frames[lanes.clone()].iter().enumerate() {
                for e in 0..f.elements() {
                    let (row, column) = f.place(lane as i64, e);
                    let e = e as usize;
                    // SAFETY: a vector of as many elements of that type, by the decoder's invariant.
                    let value = unsafe {
                        match d {
                            DType::F16 => (*frame.reg::<f16>(at).add(e)).to_f32(),
                            DType::BF16 => (*frame.reg::<bf16>(at).add(e)).to_f32(),
                            _ => *frame.reg::<f32>(at).add(e),
                        }
                    };
                    matrix[row as usize * columns + column as usize] = value;
                }
            }
            matrix
        };
        let a = read(ins.a, of_a, &unit.a, k, m * k);
        let b = read(ins.b, of_b, &unit.b, n, k * n);
        let c = read(ins.c, DType::F32, &unit.c, n, m * n);
        for (lane, frame) in self.frames[lanes].iter().enumerate() {
            for e in 0..unit.c.elements() {
                let (row, column) = unit.c.place(lane as i64, e);
                let row = row as usize;
                let column = column as usize;
                let products = (0..k).map(|j| a[row * k + j] * b[j * n + column]);
                let sum = products.fold(c[row * n + column], |sum, p| sum + p);
                // SAFETY: the result is a vector of as many f32.
                unsafe { *frame.reg::<f32>(ins.dst).add(e as usize) = sum };
            }
        }
        Ok(())
    }
}

fn where_to(at: At) -> String {
    match at {
        At::Waits(k) => format!("waits at instruction {k}"),
        _ => "has ended".into(),
    }
}
