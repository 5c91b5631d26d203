//! A LINEAR program into instructions. Every value gets a place in the register file that is its
//! own; constants are in the file from the start; lanes of a vector, BITCASTs and addresses cost
//! nothing, as they only name places. Flows in: the program and its record; flows out: the
//! instructions, what is in the file at the start, and the table of buffers. Invariant: what
//! `machine` asks of registers holds.

use super::machine::{Ins, RUN, Run};
use super::memory::{copies, copy, ended, loops, pause, splats, unless, wait};
use super::ops::{Pair, arithmetic, cast, dot, folded, pack, select, tiles};
use crate::kernel::Signature;
use monoglot_uop::fold::defined;
use monoglot_uop::linear::{address, gathered, lanes, operands};
use monoglot_uop::op::Class;
use monoglot_uop::{
    AddrSpace, Arg, DType, Error, ErrorKind, Op, ProgramInfo, Result, Scalar, TcInfo, UOp,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// What a buffer of the program is.
pub(crate) struct BufInfo {
    pub(crate) slot: u32,
    pub(crate) space: AddrSpace,
    /// Elements.
    pub(crate) len: u64,
    pub(crate) dtype: DType,
    /// REG: its place in the file.
    pub(crate) offset: u32,
}

/// What a register holds when a thread starts.
pub(crate) enum Start {
    /// The k-th variable of the launch.
    Variable(usize),
    /// `gidx` (0–2), `lidx` (3–5) or the CPU thread's number (6).
    Special(usize),
}

/// A program ready to run.
#[derive(Default)]
pub(crate) struct Decoded {
    pub(crate) code: Vec<Ins>,
    /// The register file of a thread that starts, as words.
    pub(crate) image: Vec<u64>,
    pub(crate) starts: Vec<(u32, DType, Start)>,
    /// Global buffers first, in the order of their slots.
    pub(crate) bufs: Vec<BufInfo>,
    /// Units of the WMMAs, by the instruction's `x`.
    pub(crate) units: Vec<Arc<TcInfo>>,
}

/// `x` of a waiting instruction that is a BARRIER.
pub(crate) const BARRIER: u32 = u32::MAX;

/// Decode a program. `groups`: threads of a workgroup run side by side, so barriers wait.
///
/// # Errors
/// `Unsupported` for an op that has no meaning here, `Verify` for a list that is out of order.
pub(crate) fn decode(linear: &UOp, info: &ProgramInfo, groups: bool) -> Result<Decoded> {
    let mut d = Decoder {
        groups,
        ..Decoder::default()
    };
    for u in linear.src() {
        operands(u, |o| {
            d.read.insert(o);
        });
    }
    d.find_buffers(linear, info);
    for u in linear.src() {
        d.instruction(u, info)?;
    }
    d.emit(ended, 0, [0; 3], 0, 0);
    Ok(d.out)
}

#[derive(Default)]
pub(super) struct Decoder<'a> {
    pub(super) out: Decoded,
    pub(super) groups: bool,
    /// What any instruction reads.
    read: FxHashSet<&'a UOp>,
    /// Where values are.
    places: FxHashMap<&'a UOp, u32>,
    consts: FxHashMap<(u64, DType, usize), u32>,
    pub(super) buf_of: FxHashMap<&'a UOp, u32>,
    /// Open loops and conditions: where they stand in the code.
    open: Vec<usize>,
    /// Where the run of instructions since the last `pause` starts.
    paused: usize,
}

impl<'a> Decoder<'a> {
    fn find_buffers(&mut self, linear: &'a UOp, info: &ProgramInfo) {
        for need in Signature::of(linear, info).needs() {
            let slot = need.slot;
            let of_slot = |u: &UOp| u.buffer_arg().is_some_and(|b| b.slot == slot as u64);
            let storage = |u: &&UOp| u.op() == Op::Param && !u.shape().is_empty() && of_slot(u);
            let param = linear.src().iter().find(storage);
            self.add_buffer(param, slot as u32, AddrSpace::Global, 0);
        }
        for u in linear.src().iter().filter(|u| u.op() == Op::Buffer) {
            let Some(b) = u.buffer_arg() else { continue };
            let space = b.addrspace.unwrap_or(AddrSpace::Reg);
            let mut offset = 0;
            if space == AddrSpace::Reg {
                offset = self.fresh(u.shape().max_len().max(0) as usize * b.dtype.bytes());
                // What is read before it is written shows.
                self.out.image[offset as usize / 8..].fill(poison(b.dtype));
            }
            self.add_buffer(Some(u), b.slot as u32, space, offset);
        }
    }

    /// The next buffer; one that only the program's record names has no node.
    fn add_buffer(&mut self, u: Option<&'a UOp>, slot: u32, space: AddrSpace, offset: u32) {
        if let Some(u) = u {
            self.buf_of.insert(u, self.out.bufs.len() as u32);
        }
        self.out.bufs.push(BufInfo {
            slot,
            space,
            len: u.map_or(0, |u| u.shape().max_len().max(0) as u64),
            dtype: u.map_or(DType::U8, UOp::dtype),
            offset,
        });
    }

    /// A new register of so many bytes.
    pub(super) fn fresh(&mut self, bytes: usize) -> u32 {
        let at = self.out.image.len();
        self.out.image.resize(at + bytes.div_ceil(8).max(1), 0);
        at as u32 * 8
    }

    /// The register of a value of so many bytes.
    pub(super) fn result(&mut self, u: &'a UOp, bytes: usize) -> u32 {
        let at = self.fresh(bytes);
        self.places.insert(u, at);
        at
    }

    pub(super) fn constant(&mut self, v: Scalar, d: DType, n: usize) -> u32 {
        let bits = v.to_bits(d);
        if let Some(&at) = self.consts.get(&(bits, d, n)) {
            return at;
        }
        let size = d.bytes().max(1);
        let n_lanes = n.max(1);
        let at = self.fresh(size * n_lanes);
        for byte in (at as usize..).step_by(size).take(n_lanes) {
            self.out.image[byte / 8] |= bits << (8 * (byte % 8));
        }
        self.consts.insert((bits, d, n), at);
        at
    }

    pub(super) fn emit(&mut self, run: Run, dst: u32, operands: [u32; 3], n: usize, x: u32) {
        let [a, b, c] = operands;
        self.room(1);
        self.out.code.push(Ins {
            run,
            dst,
            a,
            b,
            c,
            n: n as u32,
            x,
        });
    }

    /// See to it that the next `n` instructions stand in a row.
    fn room(&mut self, n: usize) {
        if self.out.code.len() + n - self.paused >= RUN {
            self.out.code.push(Ins {
                run: pause,
                dst: 0,
                a: 0,
                b: 0,
                c: 0,
                n: 0,
                x: 0,
            });
            self.paused = self.out.code.len();
        }
    }

    /// Where an operand is, with as many lanes as an instruction wants (0: as it is).
    pub(super) fn operand(&mut self, u: &UOp, n: usize) -> Result<u32> {
        if let Some(v) = u.const_value() {
            return Ok(self.constant(v, u.dtype(), n));
        }
        let Some(&place) = self.places.get(u) else {
            let message = format!("{u:?} is used before it stands in the list");
            return Err(ErrorKind::Verify {
                stage: "linear".into(),
                message,
            }
            .into());
        };
        if n == 0 || lanes(u) > 0 {
            return Ok(place);
        }
        let size = u.dtype().bytes();
        let dst = self.fresh(size * n);
        self.emit(splats(size), dst, [place, 0, 0], n, 0);
        Ok(dst)
    }

    fn instruction(&mut self, u: &'a UOp, info: &ProgramInfo) -> Result<()> {
        let n = lanes(u);
        let d = u.dtype();
        let src = u.src();
        let effect = u.op().is_void() || matches!(u.op().class(), Class::Order(_) | Class::Code(_));
        if !self.read.contains(u) && !effect {
            return Ok(());
        }
        match u.op() {
            // A constant is put where it is used.
            Op::Const | Op::Buffer | Op::Sink | Op::Group | Op::After => {}
            Op::Param => {
                if let Some(b) = u.buffer_arg().filter(|_| u.shape().is_empty()) {
                    let number = info.vars.iter().position(|&v| v as u64 == b.slot);
                    let number = number.unwrap_or(usize::MAX);
                    self.starting(u, d, Start::Variable(number));
                }
            }
            Op::Special => {
                let Arg::Text(name) = u.arg() else {
                    return Err(unsupported(u));
                };
                let (kind, axis) = name.split_at(name.len().min(4));
                let which = match (kind, axis.parse::<usize>()) {
                    ("gidx", Ok(k @ 0..=2)) => k,
                    ("lidx", Ok(k @ 0..=2)) => k + 3,
                    ("tid", _) => 6,
                    _ => return Err(unsupported(u)),
                };
                self.starting(u, d, Start::Special(which));
            }
            Op::Range => {
                let bound = self.operand(&src[0], 0)?;
                let first = match src.get(1) {
                    Some(first) => self.operand(first, 0)?,
                    None => self.constant(Scalar::Int(0), d, 0),
                };
                let counter = self.result(u, d.bytes());
                self.emit(loops(d).0, counter, [bound, first, 0], 0, 0);
                self.open.push(self.out.code.len() - 1);
            }
            Op::If => {
                let gate = self.operand(&src[0], 0)?;
                self.emit(unless, 0, [gate, 0, 0], 0, 0);
                self.open.push(self.out.code.len() - 1);
            }
            Op::End | Op::EndIf => {
                let Some(start) = self.open.pop() else {
                    return Err(unsupported(u));
                };
                if u.op() == Op::End {
                    let begin = self.out.code[start];
                    let d = src[1].dtype();
                    self.emit(loops(d).1, begin.dst, [begin.a, 0, 0], 0, start as u32 + 1);
                }
                self.out.code[start].x = self.out.code.len() as u32;
            }
            Op::Barrier if self.groups => self.emit(wait, 0, [0; 3], 0, BARRIER),
            Op::Barrier => {}
            Op::Wmma => {
                let Arg::Wmma(unit) = u.arg() else {
                    return Err(unsupported(u));
                };
                if unit.word().is_some() {
                    let at = [
                        self.operand(&src[0], n)?,
                        self.operand(&src[1], n)?,
                        self.operand(&src[2], n)?,
                    ];
                    let dst = self.result(u, n.max(1) * d.bytes());
                    if unit.tile().is_some() {
                        let product = tiles(unit).ok_or_else(|| unsupported(u))?;
                        self.emit(product, dst, at, n, 0);
                        return Ok(());
                    }
                    let product = dot(unit).ok_or_else(|| unsupported(u))?;
                    self.pair(product, dst, at, n, 0);
                    return Ok(());
                }
                let at = [
                    self.operand(&src[0], 0)?,
                    self.operand(&src[1], 0)?,
                    self.operand(&src[2], 0)?,
                ];
                let dst = self.result(u, n * d.bytes());
                self.emit(wait, dst, at, n, self.out.units.len() as u32);
                self.out.units.push(unit.clone());
            }
            Op::Load | Op::Store => self.access(u)?,
            Op::AtomicAdd => self.atomic(u)?,
            Op::Stack => self.stack(u)?,
            Op::Shuffle => self.shuffle(u)?,
            Op::Index | Op::Shrink if address(u).is_some() => {}
            Op::Index | Op::Shrink => self.pick(u)?,
            Op::Bitcast => {
                let from = self.operand(&src[0], n)?;
                self.places.insert(u, from);
                if d == DType::Bool && src[0].dtype() != DType::Bool {
                    let dst = self.result(u, n.max(1));
                    let truth = cast(DType::U8, d).ok_or_else(|| unsupported(u))?;
                    self.pair(truth, dst, [from, 0, 0], n, 0);
                }
            }
            op if op.is_elementwise() => self.elementwise(u)?,
            _ => return Err(unsupported(u)),
        }
        Ok(())
    }

    fn starting(&mut self, u: &'a UOp, d: DType, start: Start) {
        let at = self.result(u, 8);
        self.out.starts.push((at, d, start));
    }

    /// An instruction by its number of lanes.
    pub(super) fn pair(&mut self, pair: Pair, dst: u32, operands: [u32; 3], n: usize, x: u32) {
        let (one, many) = pair;
        self.emit(if n <= 1 { one } else { many }, dst, operands, n, x);
    }

    fn elementwise(&mut self, u: &'a UOp) -> Result<()> {
        let n = lanes(u);
        let d = u.dtype();
        let src = u.src();
        let mut at = [0; 3];
        let scalar_choice = u.op() == Op::Where && lanes(&src[0]) == 0 && n > 0;
        for (k, s) in src.iter().enumerate() {
            at[k] = self.operand(s, if scalar_choice && k == 0 { 0 } else { n })?;
        }
        let dst = self.result(u, n.max(1) * d.bytes());
        let from = src[0].dtype();
        if scalar_choice {
            // One bool for all lanes: what is right unless it holds, then what is right where it does.
            let bytes = (n * d.bytes()) as u32;
            self.room(3);
            let end = self.out.code.len() as u32 + 3;
            self.emit(copy, dst, [at[2], 0, 0], 0, bytes);
            self.emit(unless, 0, [at[0], 0, 0], 0, end);
            self.emit(copy, dst, [at[1], 0, 0], 0, bytes);
            return Ok(());
        }
        let own = match u.op() {
            Op::Where => select(d.bytes()),
            Op::Cast => cast(from, d),
            op => arithmetic(op, from),
        };
        let x = pack(u.op(), from, d);
        match own {
            Some(own) => self.pair(own, dst, at, n, x),
            None if defined(u.op(), from, d) => self.emit(folded, dst, at, n, x),
            None => return Err(unsupported(u)),
        }
        Ok(())
    }

    fn stack(&mut self, u: &'a UOp) -> Result<()> {
        let n = lanes(u);
        let size = u.dtype().bytes();
        let src = u.src();
        let Some(first) = src.first() else {
            return Ok(());
        };
        if src.iter().all(|s| s == first) {
            let at = self.operand(first, if n > 1 { n } else { 0 })?;
            self.places.insert(u, at);
            return Ok(());
        }
        let dst = self.result(u, n * size);
        for (s, to) in src.iter().zip((dst..).step_by(size)) {
            let from = self.operand(s, 0)?;
            self.emit(copies(size), to, [from, 0, 0], 0, size as u32);
        }
        Ok(())
    }

    /// Lanes of two vectors are copied.
    fn shuffle(&mut self, u: &'a UOp) -> Result<()> {
        let Some((of, picks)) = gathered(u) else {
            return Err(unsupported(u));
        };
        let size = u.dtype().bytes();
        let n = lanes(of[0]);
        let from = [self.operand(of[0], 0)?, self.operand(of[1], 0)?];
        let dst = self.result(u, picks.len() * size);
        for (pick, to) in picks.into_iter().zip((dst..).step_by(size)) {
            let pick = pick as usize;
            let from = from[pick / n] + (pick % n * size) as u32;
            self.emit(copies(size), to, [from, 0, 0], 0, size as u32);
        }
        Ok(())
    }

    /// Lanes of a vector: one, or a run, is a place within it; a list is copied.
    fn pick(&mut self, u: &'a UOp) -> Result<()> {
        let v = &u.src()[0];
        let at = &u.src()[1];
        let size = u.dtype().bytes();
        let from = self.operand(v, 0)?;
        let lane = |c: &UOp| match c.as_int() {
            Some(k) if k >= 0 && (k as usize) < lanes(v).max(1) => Ok(k as usize),
            _ => Err(unsupported(u)),
        };
        if lanes(u) == 0 || u.op() == Op::Shrink {
            let first = if at.op() == Op::Stack {
                &at.src()[0]
            } else {
                at
            };
            self.places.insert(u, from + (lane(first)? * size) as u32);
            return Ok(());
        }
        let dst = self.result(u, lanes(u) * size);
        for (k, c) in at.src().iter().enumerate() {
            let from = from + (lane(c)? * size) as u32;
            self.emit(
                copies(size),
                dst + (k * size) as u32,
                [from, 0, 0],
                0,
                size as u32,
            );
        }
        Ok(())
    }
}

/// Words that stand out when they are read: NaNs, or bytes of 0xAA.
pub(crate) fn poison(d: DType) -> u64 {
    match d {
        DType::Bool => 0,
        d if d.is_float() => u64::MAX,
        _ => 0xaaaa_aaaa_aaaa_aaaa,
    }
}

pub(super) fn unsupported(u: &UOp) -> Error {
    let message = format!("the interpreter does not run {u:?}");
    ErrorKind::Unsupported {
        op: u.op().name().into(),
        message,
    }
    .into()
}
