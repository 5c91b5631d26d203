//! A LINEAR program into instructions. Every value gets a place in the register file for as long as it
//! is used; constants are in the file from the start; lanes of a vector, BITCASTs and addresses cost
//! nothing, as they only name places.

use super::machine::{Ins, RUN, Run};
use super::memory::{Gate, copies, copy, ended, loads, loops, pause, splats, stores, unless, wait};
use super::ops::{arithmetic, cast, folded, pack, select, truth};
use super::race::touch;
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
    let mut d = Decoder {
        list,
        groups,
        at: FxHashMap::default(),
        last: vec![0; list.len()],
        places: vec![NOWHERE; list.len()],
        code: Vec::with_capacity(list.len()),
        image: Vec::new(),
        consts: FxHashMap::default(),
        free: FxHashMap::default(),
        due: vec![Vec::new(); list.len() + 1],
        starts: Vec::new(),
        bufs: Vec::new(),
        buf_of: FxHashMap::default(),
        units: Vec::new(),
        open: Vec::new(),
        paused: 0,
    };
    d.at.extend(list.iter().enumerate().map(|(i, u)| (u, i)));
    d.find_lives();
    d.find_buffers(linear, info);
    for (i, u) in list.iter().enumerate() {
        d.instruction(i, u, info)?;
        d.release(i);
    }
    d.emit(ended, 0, [0; 3], 0, 0);
    Ok(Code { code: d.code, image: d.image, starts: d.starts, bufs: d.bufs, units: d.units })
}

const NOWHERE: u32 = u32::MAX;

struct Decoder<'a> {
    list: &'a [UOp],
    groups: bool,
    at: FxHashMap<&'a UOp, usize>,
    /// The last position that reads each value; 0 where none does.
    last: Vec<usize>,
    places: Vec<u32>,
    code: Vec<Ins>,
    image: Vec<u64>,
    consts: FxHashMap<(u64, DType, usize), u32>,
    free: FxHashMap<usize, Vec<u32>>,
    /// Registers to give back after each position: where, words.
    due: Vec<Vec<(u32, usize)>>,
    starts: Vec<(u32, DType, Start)>,
    bufs: Vec<BufInfo>,
    buf_of: FxHashMap<&'a UOp, u32>,
    units: Vec<Arc<TcInfo>>,
    /// Open loops and conditions: where they stand in the code.
    open: Vec<usize>,
    /// Where the run of instructions since the last `pause` starts.
    paused: usize,
}

/// Storage, element and lanes of an address; None for values.
fn address(u: &UOp) -> Option<(&UOp, &UOp, usize)> {
    if !matches!(u.op(), Op::Index | Op::Shrink) || u.src().len() < 2 {
        return None;
    }
    let mut b = &u.src()[0];
    while b.op() == Op::After {
        b = &b.src()[0];
    }
    if !matches!(b.op(), Op::Param | Op::Buffer) || b.shape().is_empty() {
        return None;
    }
    let index = match (u.op(), u.src()[1].op()) {
        (Op::Shrink, Op::Stack) => &u.src()[1].src()[0],
        _ => &u.src()[1],
    };
    Some((b, index, lanes(u)))
}

fn lanes(u: &UOp) -> usize {
    u.shape().first().and_then(|d| d.as_int()).unwrap_or(0) as usize
}

/// Values that `u` reads.
fn operands<'a>(u: &'a UOp, mut f: impl FnMut(&'a UOp)) {
    match u.op() {
        Op::Load | Op::Store => {
            if let Some((_, index, _)) = address(&u.src()[0]) {
                f(index);
            }
            u.src()[1..].iter().for_each(f);
        }
        Op::Index | Op::Shrink => {
            if address(u).is_none() {
                f(&u.src()[0]);
            }
        }
        Op::End => u.src()[1..].iter().for_each(f),
        Op::Param | Op::Buffer | Op::Const | Op::Special | Op::Sink | Op::Barrier | Op::EndIf => {}
        _ => u.src().iter().for_each(f),
    }
}

impl<'a> Decoder<'a> {
    /// How long each value lives. What is read inside a loop that its definition stands outside of
    /// lives until the loop ends; a value that only names a part of another keeps that alive.
    fn find_lives(&mut self) {
        let list = self.list;
        let mut ends = vec![usize::MAX; list.len()];
        let (mut open, mut inside) = (Vec::new(), Vec::with_capacity(list.len()));
        for (i, u) in list.iter().enumerate() {
            if matches!(u.op(), Op::End | Op::EndIf)
                && let Some(start) = open.pop()
            {
                ends[start] = i;
            }
            inside.push(open.clone());
            if matches!(u.op(), Op::Range | Op::If) {
                open.push(i);
            }
        }
        for i in (0..list.len()).rev() {
            let u = &list[i];
            let void = u.op().is_void() || u.op() == Op::Range;
            if self.last[i] == 0 && !void {
                continue;
            }
            let part = match u.op() {
                Op::Index | Op::Shrink | Op::Bitcast => self.last[i],
                Op::Stack if u.src().len() == 1 => self.last[i],
                _ => i,
            };
            operands(u, |o| {
                let Some(&k) = self.at.get(o) else { return };
                // The outermost loop around the reader that does not hold the definition.
                let outer = inside[i].iter().find(|&&l| l > k && list[l].op() == Op::Range);
                let until = outer.map_or(i, |&l| if ends[l] == usize::MAX { list.len() } else { ends[l] });
                self.last[k] = self.last[k].max(until).max(part);
            });
        }
        for (i, u) in list.iter().enumerate() {
            if u.op() == Op::Range && ends[i] != usize::MAX {
                // The counter and the bound are read by the END.
                self.last[i] = self.last[i].max(ends[i]);
                if let Some(&k) = self.at.get(&u.src()[0]) {
                    self.last[k] = self.last[k].max(ends[i]);
                }
            }
        }
    }

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
            let space = b.addrspace.unwrap_or(AddrSpace::Reg);
            let offset = match space {
                AddrSpace::Reg => self.fresh((len as usize * dtype.bytes()).div_ceil(8)),
                _ => 0,
            };
            if space == AddrSpace::Reg {
                // What is read before it is written shows.
                let words = (len as usize * dtype.bytes()).div_ceil(8);
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
    fn register(&mut self, bytes: usize, until: usize) -> u32 {
        let words = bytes.div_ceil(8).max(1);
        let at = match self.free.get_mut(&words).and_then(Vec::pop) {
            Some(at) => at,
            None => self.fresh(words),
        };
        self.due[until.min(self.list.len())].push((at, words));
        at
    }

    /// Give back what is not read after position `i`.
    fn release(&mut self, i: usize) {
        for (at, words) in std::mem::take(&mut self.due[i]) {
            self.free.entry(words).or_default().push(at);
        }
    }

    fn constant(&mut self, v: Scalar, d: DType, n: usize) -> u32 {
        let bits = v.to_bits(d);
        if let Some(&at) = self.consts.get(&(bits, d, n)) {
            return at;
        }
        let (size, n_lanes) = (d.bytes().max(1), n.max(1));
        let at = self.fresh((size * n_lanes).div_ceil(8));
        let mut bytes = vec![0u8; (size * n_lanes).next_multiple_of(8)];
        bytes.chunks_mut(size).take(n_lanes).for_each(|c| c.copy_from_slice(&bits.to_le_bytes()[..size]));
        for (k, word) in bytes.chunks_exact(8).enumerate() {
            let mut w = [0; 8];
            w.copy_from_slice(word);
            self.image[at as usize / 8 + k] = u64::from_le_bytes(w);
        }
        self.consts.insert((bits, d, n), at);
        at
    }

    fn emit(&mut self, run: Run, dst: u32, operands: [u32; 3], n: usize, x: u32) {
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
    fn operand(&mut self, u: &UOp, n: usize, i: usize) -> Result<u32> {
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
                self.places[i] = self.register(d.bytes(), self.last[i].max(i));
                let counter = self.places[i];
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
            Op::Barrier => {
                if self.groups {
                    self.emit(wait, 0, [0; 3], 0, BARRIER);
                }
            }
            Op::Wmma => {
                let Arg::Wmma(unit) = u.arg() else { return Err(unsupported(u)) };
                let mut at = [0; 3];
                for (k, s) in src.iter().enumerate() {
                    at[k] = self.operand(s, 0, i)?;
                }
                self.places[i] = self.register(n * d.bytes(), self.last[i]);
                let x = self.units.len() as u32;
                self.units.push(unit.clone());
                self.emit(wait, self.places[i], at, n, x);
            }
            Op::Load => self.load(i, u)?,
            Op::Store => self.store(i, u)?,
            Op::Stack => self.stack(i, u)?,
            Op::Index | Op::Shrink => {
                if address(u).is_none() {
                    self.pick(i, u)?;
                }
            }
            Op::Bitcast => {
                let from = self.operand(&src[0], n, i)?;
                self.places[i] = from;
                if d == DType::Bool && src[0].dtype() != DType::Bool {
                    self.places[i] = self.register(n.max(1), self.last[i]);
                    let dst = self.places[i];
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

    fn pair(&mut self, pair: Option<(Run, Run)>, dst: u32, operands: [u32; 3], n: usize) {
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
        let dst = self.register(n.max(1) * d.bytes(), self.last[i]);
        self.places[i] = dst;
        let from = src[0].dtype();
        match u.op() {
            Op::Where if scalar_choice => {
                // One bool for all lanes: take one branch whole.
                let bytes = (n * d.bytes()) as u32;
                self.room(4);
                let here = self.code.len() as u32;
                self.emit(unless, 0, [at[0], 0, 0], 0, here + 3);
                self.emit(copy, dst, [at[1], 0, 0], 0, bytes);
                let never = self.constant(Scalar::Bool(false), DType::Bool, 0);
                self.emit(unless, 0, [never, 0, 0], 0, here + 4);
                self.emit(copy, dst, [at[2], 0, 0], 0, bytes);
            }
            Op::Where => self.pair(select(d.bytes()), dst, at, n),
            op => {
                let own = if op == Op::Cast { cast(from, d) } else { arithmetic(op, from) };
                match own {
                    Some(_) => self.pair(own, dst, at, n),
                    None => self.emit(folded, dst, at, n, pack(op, from, d)),
                }
            }
        }
        Ok(())
    }

    fn buffer(&self, b: &UOp) -> Result<u32> {
        self.buf_of.get(b).copied().ok_or_else(|| {
            ErrorKind::Verify { stage: "linear".into(), message: format!("{b:?} does not stand in the list") }
                .into()
        })
    }

    /// Where element `index` of a buffer in registers is, when the index is known.
    fn known(&self, buf: u32, index: &UOp, n: usize) -> Option<u32> {
        let (b, i) = (&self.bufs[buf as usize], index.as_int()?);
        let inside = i >= 0 && i as u64 + n.max(1) as u64 <= b.len;
        (b.space == AddrSpace::Reg && inside).then(|| b.offset + i as u32 * b.dtype.bytes() as u32)
    }

    fn load(&mut self, i: usize, u: &UOp) -> Result<()> {
        let Some((b, index, _)) = address(&u.src()[0]) else { return Err(unsupported(u)) };
        let (n, d, buf) = (lanes(u), u.dtype(), self.buffer(b)?);
        let rows = b.shape().len() > 1;
        let size = d.bytes();
        if let (true, Some(at)) = (u.src().len() == 1, self.known(buf, &scaled(index, n, rows), n)) {
            let dst = self.register(n.max(1) * size, self.last[i]);
            self.places[i] = dst;
            let bytes = n.max(1) * size;
            self.emit(copies(bytes), dst, [at, 0, 0], 0, bytes as u32);
            return Ok(());
        }
        let (at, index_type) = self.index(index, n, rows, i)?;
        let mut gate = Gate::None;
        let mut regs = [at, 0, 0];
        if let [_, alt, g] = u.src() {
            gate = if lanes(g) > 0 { Gate::Lanes } else { Gate::Scalar };
            regs = [at, self.operand(g, 0, i)?, self.operand(alt, n, i)?];
        }
        let dst = self.register(n.max(1) * size, self.last[i]);
        self.places[i] = dst;
        self.watch(buf, regs, index_type, gate, n, false);
        self.emit(loads(size, index_type, gate), dst, regs, n, buf);
        if d == DType::Bool && self.bufs[buf as usize].space == AddrSpace::Global {
            // Bytes of a user's file may be other than 0 and 1.
            self.pair(truth(), dst, [dst, 0, 0], n);
        }
        Ok(())
    }

    fn store(&mut self, i: usize, u: &UOp) -> Result<()> {
        let Some((b, index, n)) = address(&u.src()[0]) else { return Err(unsupported(u)) };
        let (d, buf) = (b.dtype(), self.buffer(b)?);
        let rows = b.shape().len() > 1;
        let value = self.operand(&u.src()[1], n, i)?;
        if let (None, Some(at)) = (u.src().get(2), self.known(buf, &scaled(index, n, rows), n)) {
            let bytes = n.max(1) * d.bytes();
            self.emit(copies(bytes), at, [value, 0, 0], 0, bytes as u32);
            return Ok(());
        }
        let (at, index_type) = self.index(index, n, rows, i)?;
        let mut gate = Gate::None;
        let mut regs = [at, 0, value];
        if let Some(g) = u.src().get(2) {
            gate = if lanes(g) > 0 { Gate::Lanes } else { Gate::Scalar };
            regs[1] = self.operand(g, 0, i)?;
        }
        self.watch(buf, regs, index_type, gate, n, true);
        self.emit(stores(d.bytes(), index_type, gate), 0, regs, n, buf);
        Ok(())
    }

    /// The register of an index; of a buffer of vectors, of the first lane's element.
    fn index(&mut self, index: &UOp, n: usize, rows: bool, i: usize) -> Result<(u32, DType)> {
        let (at, d) = (self.operand(index, 0, i)?, index.dtype());
        if !rows {
            return Ok((at, d));
        }
        let width = self.constant(Scalar::Int(n as i128), d, 0);
        let dst = self.register(8, i);
        self.pair(arithmetic(Op::Mul, d), dst, [at, width, 0], 1);
        Ok((dst, d))
    }

    /// Note an access to LOCAL memory before it happens.
    fn watch(&mut self, buf: u32, regs: [u32; 3], index: DType, gate: Gate, n: usize, write: bool) {
        if !self.groups || self.bufs[buf as usize].space != AddrSpace::Local {
            return;
        }
        let flags = write as u32
            | ((index.bytes() == 8) as u32 * 2)
            | ((gate != Gate::None) as u32 * 4)
            | ((gate == Gate::Lanes) as u32 * 8);
        self.emit(touch, 0, [regs[0], regs[1], flags], n, buf);
    }

    fn stack(&mut self, i: usize, u: &UOp) -> Result<()> {
        let (n, size, src) = (lanes(u), u.dtype().bytes(), u.src());
        let Some(first) = src.first() else { return Ok(()) };
        if src.iter().all(|s| s == first) {
            if let Some(v) = first.const_value() {
                self.places[i] = self.constant(v, u.dtype(), n);
                return Ok(());
            }
            let from = self.operand(first, 0, i)?;
            self.places[i] = from;
            if n > 1 {
                let dst = self.register(n * size, self.last[i]);
                self.places[i] = dst;
                self.emit(splats(size), dst, [from, 0, 0], n, 0);
            }
            return Ok(());
        }
        let dst = self.register(n * size, self.last[i]);
        self.places[i] = dst;
        for (k, s) in src.iter().enumerate() {
            let from = self.operand(s, 0, i)?;
            self.emit(copies(size), dst + (k * size) as u32, [from, 0, 0], 0, size as u32);
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
        if lanes(u) == 0 {
            self.places[i] = from + (lane(at)? * size) as u32;
        } else if u.op() == Op::Shrink {
            let first = if at.op() == Op::Stack { &at.src()[0] } else { at };
            self.places[i] = from + (lane(first)? * size) as u32;
        } else {
            let dst = self.register(lanes(u) * size, self.last[i]);
            self.places[i] = dst;
            for (k, c) in at.src().iter().enumerate() {
                let lane = lane(c)?;
                self.emit(
                    copies(size),
                    dst + (k * size) as u32,
                    [from + (lane * size) as u32, 0, 0],
                    0,
                    size as u32,
                );
            }
        }
        Ok(())
    }
}

/// A constant row of a buffer of vectors as a constant element.
fn scaled(index: &UOp, n: usize, rows: bool) -> UOp {
    match (rows, index.as_int()) {
        (true, Some(k)) => UOp::int(k * n as i64, DType::I64),
        _ => index.clone(),
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

fn unsupported(u: &UOp) -> Error {
    let message = format!("the interpreter does not run {u:?}");
    ErrorKind::Unsupported { op: u.op().name().into(), message }.into()
}
