//! A LINEAR program into instructions. Every value gets a place in the register file for as long as it
//! is used; constants are in the file from the start; lanes of a vector, BITCASTs and addresses cost
//! nothing, as they only name places.

use super::lives::last_reads;
use super::machine::{Ins, RUN, Run};
use super::memory::{copies, copy, ended, loops, pause, splats, unless, wait};
use super::ops::{arithmetic, cast, folded, pack, select, truth};
use monoglot_uop::linear::{address, lanes};
use monoglot_uop::{AddrSpace, Arg, DType, Error, ErrorKind, Op, ProgramInfo, Result, Scalar, TcInfo, UOp};
use rustc_hash::FxHashMap;
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
pub(crate) struct Code {
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
pub(crate) fn decode(linear: &UOp, info: &ProgramInfo, groups: bool) -> Result<Code> {
    let list = linear.src();
    let at = list.iter().enumerate().map(|(i, u)| (u, i)).collect();
    let mut d = Decoder {
        list,
        groups,
        last: last_reads(list, &at),
        at,
        places: vec![NOWHERE; list.len()],
        code: Vec::with_capacity(list.len()),
        due: vec![Vec::new(); list.len() + 1],
        ..Decoder::default()
    };
    d.find_buffers(linear, info);
    for (i, u) in list.iter().enumerate() {
        d.instruction(i, u, info)?;
        d.release(i);
    }
    d.emit(ended, 0, [0; 3], 0, 0);
    Ok(Code { code: d.code, image: d.image, starts: d.starts, bufs: d.bufs, units: d.units })
}

const NOWHERE: u32 = u32::MAX;

#[derive(Default)]
pub(super) struct Decoder<'a> {
    list: &'a [UOp],
    pub(super) groups: bool,
    at: FxHashMap<&'a UOp, usize>,
    /// The last position that reads each value; 0 where none does.
    pub(super) last: Vec<usize>,
    pub(super) places: Vec<u32>,
    code: Vec<Ins>,
    image: Vec<u64>,
    consts: FxHashMap<(u64, DType, usize), u32>,
    free: FxHashMap<usize, Vec<u32>>,
    /// Registers to give back after each position: where, words.
    due: Vec<Vec<(u32, usize)>>,
    starts: Vec<(u32, DType, Start)>,
    pub(super) bufs: Vec<BufInfo>,
    pub(super) buf_of: FxHashMap<&'a UOp, u32>,
    units: Vec<Arc<TcInfo>>,
    /// Open loops and conditions: where they stand in the code.
    open: Vec<usize>,
    /// Where the run of instructions since the last `pause` starts.
    paused: usize,
}

impl<'a> Decoder<'a> {
    fn find_buffers(&mut self, linear: &UOp, info: &ProgramInfo) {
        for (slot, _) in crate::runtime::storage_params(linear, info) {
            let param = self.list.iter().find(|u| {
                u.op() == Op::Param
                    && !u.shape().is_empty()
                    && u.buffer_arg().is_some_and(|b| b.slot == slot as u64)
            });
            let id = self.bufs.len() as u32;
            let (len, dtype) = param.map_or((0, DType::U8), |p| (p.shape().max_len() as u64, p.dtype()));
            self.bufs.push(BufInfo { slot: slot as u32, space: AddrSpace::Global, len, dtype, offset: 0 });
            if let Some(p) = param {
                self.buf_of.insert(p, id);
            }
        }
        for u in self.list.iter().filter(|u| u.op() == Op::Buffer) {
            let Some(b) = u.buffer_arg() else { continue };
            let (len, dtype) = (u.shape().max_len().max(0) as u64, b.dtype);
            let (space, mut offset) = (b.addrspace.unwrap_or(AddrSpace::Reg), 0);
            if space == AddrSpace::Reg {
                let words = (len as usize * dtype.bytes()).div_ceil(8);
                offset = self.fresh(words);
                // What is read before it is written shows.
                self.image[offset as usize / 8..][..words].fill(poison(dtype));
            }
            self.buf_of.insert(u, self.bufs.len() as u32);
            self.bufs.push(BufInfo { slot: b.slot as u32, space, len, dtype, offset });
        }
    }

    /// New words of the register file.
    fn fresh(&mut self, words: usize) -> u32 {
        let at = self.image.len();
        self.image.resize(at + words.max(1), 0);
        at as u32 * 8
    }

    /// A register of so many bytes, given back after position `until`.
    pub(super) fn register(&mut self, bytes: usize, until: usize) -> u32 {
        let words = bytes.div_ceil(8).max(1);
        let at = match self.free.get_mut(&words).and_then(Vec::pop) {
            Some(at) => at,
            None => self.fresh(words),
        };
        self.due[until.min(self.list.len())].push((at, words));
        at
    }

    /// The register of the value at position `i`, of so many bytes.
    pub(super) fn result(&mut self, i: usize, bytes: usize) -> u32 {
        self.places[i] = self.register(bytes, self.last[i].max(i));
        self.places[i]
    }

    /// Give back what is not read after position `i`.
    fn release(&mut self, i: usize) {
        for (at, words) in std::mem::take(&mut self.due[i]) {
            self.free.entry(words).or_default().push(at);
        }
    }

    pub(super) fn constant(&mut self, v: Scalar, d: DType, n: usize) -> u32 {
        let bits = v.to_bits(d);
        if let Some(&at) = self.consts.get(&(bits, d, n)) {
            return at;
        }
        let (size, n_lanes) = (d.bytes().max(1), n.max(1));
        let at = self.fresh((size * n_lanes).div_ceil(8));
        for byte in (at as usize..).step_by(size).take(n_lanes) {
            self.image[byte / 8] |= bits << (8 * (byte % 8));
        }
        self.consts.insert((bits, d, n), at);
        at
    }

    pub(super) fn emit(&mut self, run: Run, dst: u32, operands: [u32; 3], n: usize, x: u32) {
        let [a, b, c] = operands;
        self.room(1);
        self.code.push(Ins { run, dst, a, b, c, n: n as u32, x });
    }

    /// See to it that the next `n` instructions stand in a row.
    fn room(&mut self, n: usize) {
        if self.code.len() + n - self.paused >= RUN {
            self.code.push(Ins { run: pause, dst: 0, a: 0, b: 0, c: 0, n: 0, x: 0 });
            self.paused = self.code.len();
        }
    }

    /// Where an operand is, with as many lanes as the instruction at `i` wants (0: as it is).
    pub(super) fn operand(&mut self, u: &UOp, n: usize, i: usize) -> Result<u32> {
        if let Some(v) = u.const_value() {
            return Ok(self.constant(v, u.dtype(), n));
        }
        let place = self.at.get(u).map_or(NOWHERE, |&k| self.places[k]);
        if place == NOWHERE {
            let message = format!("{u:?} is used before it stands in the list");
            return Err(ErrorKind::Verify { stage: "linear".into(), message }.into());
        }
        if n == 0 || lanes(u) > 0 {
            return Ok(place);
        }
        let size = u.dtype().bytes();
        let dst = self.register(size * n, i);
        self.emit(splats(size), dst, [place, 0, 0], n, 0);
        Ok(dst)
    }

    fn instruction(&mut self, i: usize, u: &'a UOp, info: &ProgramInfo) -> Result<()> {
        let (n, d) = (lanes(u), u.dtype());
        let src = u.src();
        if self.last[i] == 0 && !u.op().is_void() && u.op() != Op::Range {
            return Ok(());
        }
        match u.op() {
            Op::Const => self.places[i] = self.constant(u.const_value().unwrap_or(Scalar::Int(0)), d, 0),
            Op::Buffer | Op::Sink | Op::Group | Op::After => {}
            Op::Param => {
                if let (true, Some(b)) = (u.shape().is_empty(), u.buffer_arg()) {
                    let k = info.vars.iter().position(|&v| v as u64 == b.slot).unwrap_or(usize::MAX);
                    self.starting(i, d, Start::Variable(k));
                }
            }
            Op::Special => {
                let Arg::Text(name) = u.arg() else { return Err(unsupported(u)) };
                let (kind, axis) = name.split_at(name.len().min(4));
                let which = match (kind, axis.parse::<usize>()) {
                    ("gidx", Ok(k @ 0..=2)) => k,
                    ("lidx", Ok(k @ 0..=2)) => k + 3,
                    ("tid", _) => 6,
                    _ => return Err(unsupported(u)),
                };
                self.starting(i, d, Start::Special(which));
            }
            Op::Range => {
                let bound = self.operand(&src[0], 0, i)?;
                let counter = self.result(i, d.bytes());
                self.emit(loops(d).0, counter, [bound, 0, 0], 0, 0);
                self.open.push(self.code.len() - 1);
            }
            Op::If => {
                let gate = self.operand(&src[0], 0, i)?;
                self.emit(unless, 0, [gate, 0, 0], 0, 0);
                self.open.push(self.code.len() - 1);
            }
            Op::End | Op::EndIf => {
                let Some(start) = self.open.pop() else { return Err(unsupported(u)) };
                if u.op() == Op::End {
                    let begin = self.code[start];
                    let d = src[1].dtype();
                    self.emit(loops(d).1, begin.dst, [begin.a, 0, 0], 0, start as u32 + 1);
                }
                self.code[start].x = self.code.len() as u32;
            }
            Op::Barrier if self.groups => self.emit(wait, 0, [0; 3], 0, BARRIER),
            Op::Barrier => {}
            Op::Wmma => {
                let Arg::Wmma(unit) = u.arg() else { return Err(unsupported(u)) };
                let mut at = [0; 3];
                for (k, s) in src.iter().enumerate() {
                    at[k] = self.operand(s, 0, i)?;
                }
                let dst = self.result(i, n * d.bytes());
                self.emit(wait, dst, at, n, self.units.len() as u32);
                self.units.push(unit.clone());
            }
            Op::Load => self.load(i, u)?,
            Op::Store => self.store(i, u)?,
            Op::Stack => self.stack(i, u)?,
            Op::Index | Op::Shrink if address(u).is_some() => {}
            Op::Index | Op::Shrink => self.pick(i, u)?,
            Op::Bitcast => {
                let from = self.operand(&src[0], n, i)?;
                self.places[i] = from;
                if d == DType::Bool && src[0].dtype() != DType::Bool {
                    let dst = self.result(i, n.max(1));
                    self.pair(truth(), dst, [from, 0, 0], n);
                }
            }
            op if op.is_elementwise() => self.elementwise(i, u)?,
            _ => return Err(unsupported(u)),
        }
        Ok(())
    }

    fn starting(&mut self, i: usize, d: DType, start: Start) {
        // Kept for the whole program: it is written once, when the thread starts.
        self.places[i] = self.fresh(1);
        self.starts.push((self.places[i], d, start));
    }

    pub(super) fn pair(&mut self, pair: Option<(Run, Run)>, dst: u32, operands: [u32; 3], n: usize) {
        if let Some((one, many)) = pair {
            self.emit(if n <= 1 { one } else { many }, dst, operands, n, 0);
        }
    }

    fn elementwise(&mut self, i: usize, u: &UOp) -> Result<()> {
        let (n, d, src) = (lanes(u), u.dtype(), u.src());
        let mut at = [0; 3];
        let scalar_choice = u.op() == Op::Where && lanes(&src[0]) == 0 && n > 0;
        for (k, s) in src.iter().enumerate() {
            at[k] = self.operand(s, if scalar_choice && k == 0 { 0 } else { n }, i)?;
        }
        let dst = self.result(i, n.max(1) * d.bytes());
        let from = src[0].dtype();
        if scalar_choice {
            // One bool for all lanes: what is right unless it holds, then what is right where it does.
            let bytes = (n * d.bytes()) as u32;
            self.room(3);
            let end = self.code.len() as u32 + 3;
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
        match own {
            Some(_) => self.pair(own, dst, at, n),
            None => self.emit(folded, dst, at, n, pack(u.op(), from, d)),
        }
        Ok(())
    }

    fn stack(&mut self, i: usize, u: &UOp) -> Result<()> {
        let (n, size, src) = (lanes(u), u.dtype().bytes(), u.src());
        let Some(first) = src.first() else { return Ok(()) };
        if src.iter().all(|s| s == first) {
            self.places[i] = self.operand(first, if n > 1 { n } else { 0 }, self.last[i].max(i))?;
            return Ok(());
        }
        let dst = self.result(i, n * size);
        for (s, to) in src.iter().zip((dst..).step_by(size)) {
            let from = self.operand(s, 0, i)?;
            self.emit(copies(size), to, [from, 0, 0], 0, size as u32);
        }
        Ok(())
    }

    /// Lanes of a vector: one, or a run, is a place within it; a list is copied.
    fn pick(&mut self, i: usize, u: &UOp) -> Result<()> {
        let (v, at, size) = (&u.src()[0], &u.src()[1], u.dtype().bytes());
        let from = self.operand(v, 0, i)?;
        let lane = |c: &UOp| match c.as_int() {
            Some(k) if k >= 0 && (k as usize) < lanes(v).max(1) => Ok(k as usize),
            _ => Err(unsupported(u)),
        };
        if lanes(u) == 0 || u.op() == Op::Shrink {
            let first = if at.op() == Op::Stack { &at.src()[0] } else { at };
            self.places[i] = from + (lane(first)? * size) as u32;
            return Ok(());
        }
        let dst = self.result(i, lanes(u) * size);
        for (k, c) in at.src().iter().enumerate() {
            let from = from + (lane(c)? * size) as u32;
            self.emit(copies(size), dst + (k * size) as u32, [from, 0, 0], 0, size as u32);
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
    ErrorKind::Unsupported { op: u.op().name().into(), message }.into()
}
