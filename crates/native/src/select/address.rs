//! Addresses: a buffer, and an index that is a sum of multiples of counters and of other integers. What a loop
//! counts becomes a register that moves on with it; the rest is worked out in the scope of its deepest part, once.
//! Flows in: INDEX or SHRINK of storage; flows out: memory. Invariant: sums are in 64 bits, where what the program
//! adds up in 32 does not wrap.

use super::Selector;
use super::builder::{Base, Builder, Memo};
use crate::code::{Class, Do, Mem, Operand, Reg, Width};
use monoglot_uop::linear::{Address, address};
use monoglot_uop::{DType, Op, Result, UOp};
use smallvec::{SmallVec, smallvec};

/// A sum of multiples of instructions' values, by their places in the list, and a number.
#[derive(Clone, Debug, Default)]
pub(super) struct Form {
    terms: SmallVec<[(u32, i64); 4]>,
    number: i64,
}

/// Most terms of a form: more are a value of their own.
const TERMS: usize = 8;

impl Form {
    fn number(number: i64) -> Form {
        Form {
            terms: SmallVec::new(),
            number,
        }
    }

    fn term(i: usize) -> Form {
        Form {
            terms: smallvec![(i as u32, 1)],
            number: 0,
        }
    }

    fn plus(&self, other: &Form, times: i64) -> Option<Form> {
        let mut sum = self.clone();
        sum.number = sum.number.checked_add(other.number.checked_mul(times)?)?;
        for &(i, c) in &other.terms {
            let c = c.checked_mul(times)?;
            match sum.terms.iter_mut().find(|t| t.0 == i) {
                Some(t) => t.1 = t.1.checked_add(c)?,
                None => sum.terms.push((i, c)),
            }
        }
        sum.terms.retain(|t| t.1 != 0);
        (sum.terms.len() <= TERMS).then_some(sum)
    }

    fn times(&self, by: i64) -> Option<Form> {
        Form::default().plus(self, by)
    }
}

/// Whether a result may have wrapped: its interval is that of the whole dtype.
fn may_wrap(u: &UOp) -> bool {
    u.min_max()
        .is_none_or(|(lo, hi)| lo == u.dtype().min() && hi == u.dtype().max())
}

impl Selector<'_> {
    /// The form of an integer.
    fn form(&mut self, u: &UOp) -> Form {
        if let Some(number) = u.as_int() {
            return Form::number(number);
        }
        let Some(i) = self.listing.place(u.named()) else {
            return Form::number(0);
        };
        if let Some(form) = &self.forms[i] {
            return form.clone();
        }
        // Operands stand before their users: those whose forms are not known are worked out first, without recursion.
        let mut open = vec![i];
        while let Some(&k) = open.last() {
            let u = &self.list[k];
            let unknown = |s: &UOp| {
                let place = self.listing.place(s.named())?;
                self.forms[place].is_none().then_some(place)
            };
            let before = open.len();
            if is_sum(u) {
                open.extend(u.src().iter().filter_map(unknown));
            }
            if open.len() == before {
                self.forms[k] = Some(self.sum(k));
                open.pop();
            }
        }
        self.forms[i].clone().unwrap_or_default()
    }

    fn known(&self, u: &UOp) -> Option<Form> {
        match u.as_int() {
            Some(number) => Some(Form::number(number)),
            None => self.forms[self.listing.place(u.named())?].clone(),
        }
    }

    /// The form of an instruction whose operands' forms are known.
    fn sum(&self, i: usize) -> Form {
        let u = &self.list[i];
        let of = |k: usize| self.known(&u.src()[k]);
        let number = |k: usize| u.src()[k].as_int();
        let form = || match u.op() {
            Op::Add => of(0)?.plus(&of(1)?, 1),
            Op::Sub => of(0)?.plus(&of(1)?, -1),
            Op::Neg => of(0)?.times(-1),
            Op::Mul => match (number(0), number(1)) {
                (_, Some(by)) => of(0)?.times(by),
                (Some(by), _) => of(1)?.times(by),
                _ => None,
            },
            Op::MulAcc => match (number(0), number(1)) {
                (_, Some(by)) => of(2)?.plus(&of(0)?, by),
                (Some(by), _) => of(2)?.plus(&of(1)?, by),
                _ => None,
            },
            Op::Shl => of(0)?.times(1i64.checked_shl(number(1)?.try_into().ok()?)?),
            Op::Cast => of(0),
            _ => None,
        };
        match is_sum(u) {
            true => form().unwrap_or_else(|| Form::term(i)),
            false => Form::term(i),
        }
    }

    /// The memory that an access's address names, so many bytes on.
    pub(super) fn memory_of(&mut self, access: &UOp, by: i64) -> Result<Mem> {
        let place = access.src()[0].named();
        match address(place) {
            Some(a) => self.memory(&a, by),
            None => Err(self.unsupported(access)),
        }
    }

    /// The memory at an address, so many bytes on.
    pub(super) fn memory(&mut self, a: &Address, by: i64) -> Result<Mem> {
        let d = a.buffer.dtype();
        let mut unit = d.bytes().max(1) as i64;
        if a.rows() {
            unit *= a.buffer.shape()[1].max();
        }
        let (base, start) = self.base(a.buffer)?;
        let form = self.form(a.index);
        let bytes = form.times(unit).unwrap_or_default();
        let displacement = bytes.number.wrapping_add(start).wrapping_add(by);
        let mut terms = bytes.terms;
        terms.sort_by_key(|&(i, _)| self.depth(i));
        let mut mem = self.sum_of(base, &terms)?;
        match i32::try_from(displacement) {
            Ok(d) => mem.displacement = d,
            Err(_) => {
                let far = self.b.number(displacement);
                let src = [Operand::Reg(mem.base), Operand::Reg(far)];
                mem.base = self.b.general(Do::Add, Width::W64, &src);
            }
        }
        Ok(mem)
    }

    /// Whether an address is a multiple of so many bytes from where its buffer begins, as one can see.
    pub(super) fn is_multiple(&mut self, a: &Address, of: i64) -> bool {
        let unit = a.buffer.dtype().bytes() as i64;
        let Some(form) = self.form(a.index).times(unit) else {
            return false;
        };
        let terms = form.terms.iter().map(|t| t.1);
        terms.chain([form.number]).all(|by| by % of == 0)
    }

    /// Counters before other values of their loop, outer loops before inner ones.
    fn depth(&self, i: u32) -> (u32, bool, u32) {
        let counter = self.list[i as usize].op() == Op::Range;
        (self.scope_of[i as usize], !counter, i)
    }

    /// The number of a buffer as the base of addresses, and the bytes before its first element.
    fn base(&mut self, buffer: &UOp) -> Result<(Base, i64)> {
        let Some(b) = buffer.buffer_arg() else {
            return Err(self.unsupported(buffer));
        };
        if buffer.op() == Op::Buffer {
            let offset = self.entry.layout.offsets.get(buffer).copied();
            let offset = offset.ok_or_else(|| self.unsupported(buffer))?;
            return Ok((Base::MAX, offset as i64));
        }
        let k = self.entry.slots.iter().position(|&s| s == b.slot);
        let k = k.ok_or_else(|| self.unsupported(buffer))?;
        Ok((k as Base, 0))
    }

    /// The register of a base.
    pub(super) fn base_register(&mut self, base: Base) -> Reg {
        if base == Base::MAX {
            return self.entry.own;
        }
        let memo = Memo::Base(base);
        if let Some(reg) = self.b.kept(0, &memo) {
            return reg;
        }
        let from = Builder::at(self.entry.arguments, 8 * base as i32);
        let reg = self.b.general_in(0, Do::Load64, Width::W64, &[from]);
        self.b.keep(0, memo, reg);
        reg
    }

    /// Memory at a base and multiples of values, the deepest last.
    fn sum_of(&mut self, base: Base, terms: &[(u32, i64)]) -> Result<Mem> {
        let Some((&(i, by), rest)) = terms.split_last() else {
            return Ok(Mem {
                base: self.base_register(base),
                index: None,
                displacement: 0,
            });
        };
        let pointer = self.pointer(base, rest)?;
        let index = match by {
            1 | 2 | 4 | 8 => (self.wide(i)?, by as u8),
            _ => (self.multiple(i, by)?, 1),
        };
        Ok(Mem {
            base: pointer,
            index: Some(index),
            displacement: 0,
        })
    }

    /// A register that holds a base and multiples of values. In the scope of the deepest of them: where that is a
    /// loop's counter, the register moves on at the end of each turn.
    fn pointer(&mut self, base: Base, terms: &[(u32, i64)]) -> Result<Reg> {
        // From the first term on, as far as nothing is known.
        let memo = |n: usize| Memo::Pointer(base, terms[..n].iter().copied().collect());
        let scope = |s: &Self, n: usize| s.scope_of[terms[n - 1].0 as usize] as usize;
        let mut known = 0;
        let mut at = None;
        for n in (1..=terms.len()).rev() {
            if let Some(reg) = self.b.kept(scope(self, n), &memo(n)) {
                known = n;
                at = Some(reg);
                break;
            }
        }
        let mut pointer = match at {
            Some(reg) => reg,
            None => self.base_register(base),
        };
        for n in known + 1..=terms.len() {
            let (i, by) = terms[n - 1];
            let scope = scope(self, n);
            pointer = if self.list[i as usize].op() == Op::Range {
                self.moving(scope, Some(pointer), by)
            } else {
                let mem = match by {
                    1 | 2 | 4 | 8 => (self.wide(i)?, by as u8),
                    _ => (self.multiple(i, by)?, 1),
                };
                let sum = Mem {
                    base: pointer,
                    index: Some(mem),
                    displacement: 0,
                };
                let src = [Operand::Mem(sum)];
                self.b.general_in(scope, Do::Address, Width::W64, &src)
            };
            self.b.keep(scope, memo(n), pointer);
        }
        Ok(pointer)
    }

    /// A register that begins at another (or 0) plus a multiple of where a loop begins, and moves on with it.
    fn moving(&mut self, scope: usize, from: Option<Reg>, by: i64) -> Reg {
        let before = scope - 1;
        let reg = self.b.code.reg(Class::General, 8);
        self.b.variables.insert(reg);
        let begin = match self.b.loop_of(scope) {
            Some((_, Operand::Imm(first), _)) => Operand::Imm(first.wrapping_mul(by)),
            Some((_, Operand::Reg(first), width)) => {
                let src = [Operand::Reg(first)];
                let wide = match width {
                    Width::W64 => first,
                    _ => self.b.general_in(before, Do::Extend32, Width::W64, &src),
                };
                let by = self.b.number(by);
                let src = [Operand::Reg(wide), Operand::Reg(by)];
                Operand::Reg(self.b.general_in(before, Do::Mul, Width::W64, &src))
            }
            _ => Operand::Imm(0),
        };
        let begin = match begin {
            Operand::Imm(n) if i32::try_from(n).is_err() => Operand::Reg(self.b.number(n)),
            begin => begin,
        };
        match (from, begin) {
            (None, Operand::Imm(_)) => {
                self.b
                    .put_in(before, Do::Immediate, Width::W64, Some(reg), &[begin]);
            }
            (None, _) => self
                .b
                .put_in(before, Do::Move, Width::W64, Some(reg), &[begin]),
            (Some(from), Operand::Imm(0)) => {
                let from = [Operand::Reg(from)];
                self.b
                    .put_in(before, Do::Move, Width::W64, Some(reg), &from);
            }
            (Some(from), _) => {
                let src = [Operand::Reg(from), begin];
                self.b.put_in(before, Do::Add, Width::W64, Some(reg), &src);
            }
        }
        let step = match i32::try_from(by) {
            Ok(_) => Operand::Imm(by),
            Err(_) => Operand::Reg(self.b.number(by)),
        };
        self.b
            .put_latch(scope, Do::Add, reg, &[Operand::Reg(reg), step]);
        reg
    }

    /// A value in 64 bits.
    fn wide(&mut self, i: u32) -> Result<Reg> {
        let u = &self.list[i as usize];
        let scope = self.scope_of[i as usize] as usize;
        if u.op() == Op::Range {
            let counter = self.b.loop_of(scope).map(|l| l.0);
            let counter = counter.ok_or_else(|| self.unsupported(u))?;
            // What is not negative in 32 bits is itself in 64.
            if u.dtype() == DType::I64 || u.vmin() >= 0 {
                return Ok(counter);
            }
        }
        let memo = Memo::Multiple(i, 1);
        if let Some(reg) = self.b.kept(scope, &memo) {
            return Ok(reg);
        }
        let value = self.scalar(u)?;
        let reg = match u.dtype() {
            DType::I64 | DType::U64 => return Ok(value),
            d if d.is_unsigned() || u.vmin() >= 0 => return Ok(value),
            _ => {
                let src = [Operand::Reg(value)];
                self.b.general_in(scope, Do::Extend32, Width::W64, &src)
            }
        };
        if u.op() != Op::Range {
            self.b.keep(scope, memo, reg);
        }
        Ok(reg)
    }

    /// A multiple of a value, in 64 bits.
    fn multiple(&mut self, i: u32, by: i64) -> Result<Reg> {
        let u = &self.list[i as usize];
        let scope = self.scope_of[i as usize] as usize;
        let memo = Memo::Multiple(i, by);
        if let Some(reg) = self.b.kept(scope, &memo) {
            return Ok(reg);
        }
        let reg = if u.op() == Op::Range {
            self.moving(scope, None, by)
        } else {
            let wide = self.wide(i)?;
            let by = match i32::try_from(by) {
                Ok(_) => Operand::Imm(by),
                Err(_) => Operand::Reg(self.b.number(by)),
            };
            let src = [Operand::Reg(wide), by];
            self.b.general_in(scope, Do::Mul, Width::W64, &src)
        };
        self.b.keep(scope, memo, reg);
        Ok(reg)
    }
}

/// Whether an integer is a sum of multiples of its operands: none of it wraps.
fn is_sum(u: &UOp) -> bool {
    let op = matches!(
        u.op(),
        Op::Add | Op::Sub | Op::Neg | Op::Mul | Op::MulAcc | Op::Shl | Op::Cast
    );
    if !op || u.dtype() == DType::Bool || !u.dtype().is_int() || u.dtype().bytes() < 4 {
        return false;
    }
    if u.op() == Op::Cast {
        let from = u.src()[0].dtype();
        let widens = matches!(from, DType::I32 | DType::I64) && u.dtype() == DType::I64;
        return widens;
    }
    u.shape().is_empty() && matches!(u.dtype(), DType::I32 | DType::I64) && !may_wrap(u)
}
