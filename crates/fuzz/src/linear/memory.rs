//! Random storage and accesses. Flows in: what there is; flows out: loads, stores, storage. Invariant: what is
//! accessed is within its buffer, by its interval or because a gate says so.

use super::maker::Maker;
use super::{INTEGERS, WIDTHS};
use monoglot_uop::linear::lanes;
use monoglot_uop::{AddrSpace, Arg, DType, Op, UOp};

/// An address and what guards it.
struct Place {
    address: UOp,
    gate: Option<UOp>,
}

impl Maker {
    /// A dtype that storage has.
    fn stored(&mut self) -> DType {
        match self.dice.roll(8) {
            0 if self.rules.half => DType::F16,
            _ => self.dtype(),
        }
    }

    /// An argument that is storage.
    pub(super) fn add_param(&mut self) {
        let d = self.stored();
        let len = 32 + self.dice.roll(40) as i64;
        let p = self.param(d, len);
        self.buffers.push(p);
    }

    /// A variable, of small numbers or any.
    pub(super) fn add_variable(&mut self) {
        let d = [DType::I32, DType::I64][self.dice.roll(2) as usize];
        match self.dice.roll(4) {
            0 => {
                let d = self.dtype();
                self.argument(d, vec![UOp::dims(&[])]);
            }
            1 => {
                self.variable(d, -5, 9);
            }
            _ => {
                self.variable(d, 0, 6);
            }
        }
    }

    /// Storage of the program's own, which begins with values.
    pub(super) fn add_scratch(&mut self) -> Option<()> {
        let d = match self.dice.roll(8) {
            0 => DType::Bool,
            _ => self.dtype(),
        };
        let w = *self.dice.pick(&WIDTHS) as i64;
        let n = 2 + self.dice.roll(14) as i64;
        let (shape, space) = match self.dice.roll(8) {
            0..2 => (vec![1], AddrSpace::Reg),
            2..4 => (vec![1, w], AddrSpace::Reg),
            4 => (vec![n + 8], AddrSpace::Reg),
            5 => (vec![1 + n / 4, w], AddrSpace::Reg),
            _ => (vec![n + 32], AddrSpace::Local),
        };
        let flat = shape.len() == 1 && shape[0] > 1;
        let refused = space == AddrSpace::Local || flat && !self.rules.beyond_c;
        if d == DType::Bool && refused {
            return None;
        }
        let b = self.scratch(d, &shape, space);
        let width = if shape.len() > 1 { w as usize } else { 0 };
        if shape[0] == 1 {
            let at = self.int(0, DType::I32);
            let value = self.any(d, width);
            let address = self.address(&b, &at, width)?;
            self.put(Op::Store, &[address, value], Arg::None)?;
        } else {
            // Every element, in a loop of its own.
            let end = self.int(shape[0], DType::I32);
            let value = self.any(d, width);
            let r = self.open_loop(&end, None)?;
            let put = self
                .address(&b, &r, width)
                .and_then(|address| self.put(Op::Store, &[address, value], Arg::None));
            self.close();
            put?;
        }
        self.buffers.push(b);
        Some(())
    }

    /// INDEX or SHRINK of storage under a new name.
    fn address(&mut self, buffer: &UOp, at: &UOp, n: usize) -> Option<UOp> {
        let named = self.named(buffer)?;
        if n == 0 || buffer.shape().len() > 1 {
            return self.put(Op::Index, &[named, at.clone()], Arg::None);
        }
        let list = |v: UOp| UOp::new(Op::Stack, vec![v], Arg::None);
        let size = UOp::int(n as i64, DType::I32);
        self.put(
            Op::Shrink,
            &[named, list(at.clone()), list(size)],
            Arg::None,
        )
    }

    /// An integer without bounds of its own that is as good as any.
    fn raw(&mut self, d: DType) -> Option<UOp> {
        let counters = self.counters();
        let mut sum: Option<UOp> = None;
        for c in counters.iter().rev().take(3) {
            if self.dice.roll(4) == 0 {
                continue;
            }
            let c = self.widened(c, d)?;
            let by = [1, 1, 2, 3, 4, 8, 7, -1, -2, 16][self.dice.roll(10) as usize];
            let term = match by {
                1 => c,
                -1 => self.put(Op::Neg, &[c], Arg::None)?,
                2 if self.dice.roll(2) == 0 => {
                    let by = self.int(1, d);
                    self.put(Op::Shl, &[c, by], Arg::None)?
                }
                by => {
                    let by = self.int(by, d);
                    self.put(Op::Mul, &[c, by], Arg::None)?
                }
            };
            sum = Some(match sum {
                None => term,
                Some(s) => {
                    let op = [Op::Add, Op::Sub][self.dice.roll(2) as usize];
                    self.put(op, &[s, term], Arg::None)?
                }
            });
        }
        if sum.is_none() || self.dice.roll(3) == 0 {
            let from = *self.dice.pick(&INTEGERS);
            let more = self.any(from, 0);
            let more = self.widened(&more, d)?;
            sum = Some(match sum {
                None => more,
                Some(s) => self.put(Op::Add, &[s, more], Arg::None)?,
            });
        }
        sum
    }

    fn widened(&mut self, u: &UOp, d: DType) -> Option<UOp> {
        if u.dtype() == d {
            return Some(u.clone());
        }
        self.put(Op::Cast, &[u.clone()], Arg::DType(d))
    }

    /// An integer from 0 to `limit`.
    fn index(&mut self, limit: i64) -> Option<UOp> {
        let d = [DType::I32, DType::I32, DType::I64][self.dice.roll(3) as usize];
        if limit == 0 || self.dice.roll(5) == 0 {
            let at = self.dice.roll(limit as u64 + 1) as i64;
            return Some(self.int(at, d));
        }
        let raw = self.raw(d)?;
        let (lo, hi) = raw.bounds();
        let fits = |u: &UOp| u.vmin() >= 0 && u.vmax() <= limit;
        if fits(&raw) && self.dice.roll(3) > 0 {
            let room = limit - hi;
            if room == 0 || self.dice.roll(2) == 0 {
                return Some(raw);
            }
            let by = 1 + self.dice.roll(room as u64) as i64;
            let by = self.int(by, d);
            let moved = self.put(Op::Add, &[raw, by], Arg::None)?;
            return fits(&moved).then_some(moved);
        }
        if lo > -1000 && hi < 1000 && hi - lo <= limit {
            let by = self.int(-lo, d);
            let moved = self.put(Op::Add, &[raw, by], Arg::None)?;
            return fits(&moved).then_some(moved);
        }
        let at = if self.dice.roll(3) == 0 {
            let most = self.int(i32::MAX as i64, d);
            let size = self.int(limit + 1, d);
            let low = self.put(Op::And, &[raw, most], Arg::None)?;
            self.put(Op::TruncMod, &[low, size], Arg::None)?
        } else {
            let bits = 63 - (limit as u64 + 1).leading_zeros();
            let most = self.int((1 << bits) - 1, d);
            self.put(Op::And, &[raw, most], Arg::None)?
        };
        fits(&at).then_some(at)
    }

    /// Where `n` lanes of a buffer are, maybe behind a gate.
    fn place_in(&mut self, buffer: &UOp, n: usize) -> Option<Place> {
        let rows = buffer.shape().len() > 1;
        let size = buffer.shape().first().map_or(0, |s| s.max());
        let one = if rows { 1 } else { n.max(1) as i64 };
        if size < one {
            return None;
        }
        let last = size - one;
        let roll = self.dice.roll(6);
        if roll > 1 {
            let at = self.index(last)?;
            let address = self.address(buffer, &at, n)?;
            let gate = match self.dice.roll(5) {
                0 => Some(self.any(DType::Bool, 0)),
                1 if n > 0 => Some(self.any(DType::Bool, n)),
                _ => None,
            };
            return Some(Place { address, gate });
        }
        // Anywhere near, where a gate says that it is inside.
        let d = [DType::I32, DType::I64][self.dice.roll(2) as usize];
        let raw = self.raw(d)?;
        let most = self.int(127, d);
        let back = self.int(20, d);
        let low = self.put(Op::And, &[raw, most], Arg::None)?;
        let at = self.put(Op::Sub, &[low, back], Arg::None)?;
        let address = self.address(buffer, &at, n)?;
        let by_lane = n > 0 && !rows && roll == 0;
        let (at, end) = if by_lane {
            let numbers: Vec<UOp> = (0..n as i64).map(|k| self.int(k, d)).collect();
            let numbers = self.put(Op::Stack, &numbers, Arg::None)?;
            let all = self.splat(&at, n)?;
            (self.put(Op::Add, &[all, numbers], Arg::None)?, size)
        } else {
            (at, last + 1)
        };
        let end = self.int(end, d);
        let minus = self.int(-1, d);
        let below = self.put(Op::CmpLt, &[at.clone(), end], Arg::None)?;
        let above = self.put(Op::CmpLt, &[minus, at], Arg::None)?;
        let mut gate = self.put(Op::And, &[above, below], Arg::None)?;
        if self.dice.roll(3) == 0 {
            let other = self.any(DType::Bool, if by_lane { n } else { 0 });
            if lanes(&other) == lanes(&gate) {
                gate = self.put(Op::And, &[gate, other], Arg::None)?;
            }
        }
        Some(Place {
            address,
            gate: Some(gate),
        })
    }

    /// Lanes of an access to a buffer.
    fn lanes_in(&mut self, buffer: &UOp) -> usize {
        match buffer.shape().get(1) {
            Some(w) => w.max() as usize,
            None => self.width(),
        }
    }

    /// A load of a buffer.
    pub(super) fn load_of(&mut self, buffer: &UOp, n: usize) -> Option<UOp> {
        let d = buffer.dtype();
        let place = self.place_in(buffer, n)?;
        let mut src = vec![place.address];
        if let Some(gate) = place.gate {
            let alt = match self.dice.roll(2) {
                0 => self.operand(d, n),
                _ => {
                    let zero = UOp::constant(d.zero(), d);
                    self.constant(zero)
                }
            };
            src.extend([alt, gate]);
        }
        self.value(Op::Load, &src, Arg::None)
    }

    /// A load of some buffer.
    pub(super) fn load(&mut self) -> Option<UOp> {
        let buffer = self.dice.pick(&self.buffers.clone()).clone();
        let n = self.lanes_in(&buffer);
        self.load_of(&buffer, n)
    }

    /// A load of a buffer of a dtype.
    pub(super) fn load_any(&mut self, d: DType, n: usize) -> Option<UOp> {
        let width = |b: &UOp| b.shape().get(1).map_or(n, |w| w.max() as usize);
        let fits = |b: &&UOp| b.dtype() == d && width(b) == n;
        let all: Vec<UOp> = self.buffers.iter().filter(fits).cloned().collect();
        let buffer = self
            .dice
            .pick(all.get(..).filter(|a| !a.is_empty())?)
            .clone();
        // An index that needs a value of this kind would ask for another load.
        let last = buffer.shape()[0].max()
            - if buffer.shape().len() > 1 {
                1
            } else {
                n.max(1) as i64
            };
        if last < 0 {
            return None;
        }
        let at = self.dice.roll(last as u64 + 1) as i64;
        let at = self.int(at, DType::I32);
        let address = self.address(&buffer, &at, n)?;
        self.value(Op::Load, &[address], Arg::None)
    }

    /// A store into some buffer.
    pub(super) fn store(&mut self) -> Option<()> {
        let buffer = self.dice.pick(&self.buffers.clone()).clone();
        let n = self.lanes_in(&buffer);
        let value = self.operand(buffer.dtype(), n);
        self.store_into(&buffer, n, value)
    }

    pub(super) fn store_into(&mut self, buffer: &UOp, n: usize, value: UOp) -> Option<()> {
        let place = self.place_in(buffer, n)?;
        let whole = place.gate.is_none() && n > 1 && buffer.op() == Op::Param;
        let arg = match whole && self.dice.roll(6) == 0 && self.rules.beyond_c {
            true => Arg::Place(None, Some(AddrSpace::Global)),
            false => Arg::None,
        };
        let mut src = vec![place.address, value];
        src.extend(place.gate);
        self.put(Op::Store, &src, arg)?;
        Some(())
    }

    /// Ask for a line.
    pub(super) fn prefetch(&mut self) -> Option<()> {
        let params: Vec<UOp> = self
            .buffers
            .iter()
            .filter(|b| b.op() == Op::Param)
            .cloned()
            .collect();
        let buffer = self
            .dice
            .pick(params.get(..).filter(|p| !p.is_empty())?)
            .clone();
        let place = self.place_in(&buffer, 0)?;
        if place.gate.is_some() {
            return None;
        }
        self.put(
            Op::Load,
            &[place.address],
            Arg::Place(None, Some(AddrSpace::Local)),
        )?;
        Some(())
    }

    /// What a register holds, with something done to it.
    pub(super) fn accumulate(&mut self) -> Option<()> {
        let is = |b: &&UOp| {
            b.buffer_arg()
                .is_some_and(|b| b.addrspace == Some(AddrSpace::Reg))
                && b.shape()[0].is(1)
        };
        let all: Vec<UOp> = self.buffers.iter().filter(is).cloned().collect();
        let buffer = self
            .dice
            .pick(all.get(..).filter(|a| !a.is_empty())?)
            .clone();
        let d = buffer.dtype();
        let n = buffer.shape().get(1).map_or(0, |w| w.max() as usize);
        let at = self.int(0, DType::I32);
        let address = self.address(&buffer, &at, n)?;
        let mut new = self.put(Op::Load, &[address.clone()], Arg::None)?;
        for _ in 0..1 + self.dice.roll(4) {
            let x = self.any(d, n);
            let old = new.clone();
            new = if d == DType::Bool {
                self.put(Op::Xor, &[old, x], Arg::None)?
            } else if d.is_float() && self.contracts {
                self.greatest(&[old, x])?
            } else if d == DType::I32 && n > 1 && self.dice.roll(4) == 0 {
                self.dot(old, n)?
            } else if self.rules.fused && self.dice.roll(3) == 0 {
                let y = self.operand(d, n);
                self.put(Op::MulAcc, &[x, y, old], Arg::None)?
            } else {
                let pair = self.either(old, x);
                self.put(Op::Add, &pair, Arg::None)?
            };
            // What has been added so far is seldom of use elsewhere.
            if self.dice.roll(6) == 0 {
                self.offer(&new);
            }
        }
        self.put(Op::Store, &[address, new], Arg::None)?;
        Some(())
    }
}
