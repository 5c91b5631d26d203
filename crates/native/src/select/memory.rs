//! Storage: loads, stores and their gates, storage that is registers. Flows in: LOAD and STORE; flows out: their
//! instructions. Invariant: an access happens only where its gate holds, and touches the bytes of its lanes alone.

use super::builder::{Builder, Parts, one};
use super::uses::is_register;
use super::{Selector, Shape, is_constant};
use crate::code::{Class, Cond, Do, Level, Mem, Operand, Reg, Width};
use crate::table::Vector;
use monoglot_uop::linear::{Address, address, lanes};
use monoglot_uop::{Arg, DType, Op, Result, UOp};

impl<'a> Selector<'a> {
    /// The registers of storage that is registers.
    fn register(&mut self, buffer: &'a UOp) -> Parts {
        if let Some(parts) = self.registers.get(buffer) {
            return parts.clone();
        }
        let d = buffer.dtype();
        let n = buffer.shape().get(1).map_or(0, |n| n.max()) as usize;
        let bytes = d.bytes();
        let shape = Shape { n, bytes };
        let count = self.count(shape);
        let parts: Parts = if n == 0 {
            let class = Self::class(d);
            one(self
                .b
                .code
                .reg(class, if class == Class::General { 8 } else { 16 }))
        } else {
            let size = self.width(shape).bytes();
            let new = |_| self.b.code.reg(Class::Vector, size);
            (0..count).map(new).collect()
        };
        self.b.variables.extend(parts.iter().copied());
        self.registers.insert(buffer, parts.clone());
        parts
    }

    pub(super) fn address_of(&self, u: &'a UOp) -> Result<Address<'a>> {
        let place = address(u.src()[0].named()).ok_or_else(|| self.unsupported(u))?;
        // A register of one scalar is no vector of one lane.
        let fits = !is_register(place.buffer) || place.lanes == 0 || place.rows();
        fits.then_some(place).ok_or_else(|| self.unsupported(u))
    }

    /// The registers of a LOAD's value.
    pub(super) fn load(&mut self, i: usize) -> Result<Parts> {
        let list: &'a [UOp] = self.list;
        let u = &list[i];
        let a = self.address_of(u)?;
        let shape = self.shape(u);
        if is_register(a.buffer) {
            let held = self.load_register(i, &a, shape)?;
            let [_, alt, gate] = u.src() else {
                return Ok(held);
            };
            let other = match shape.n {
                0 => self.parts(alt)?,
                _ => self.vector_parts(alt, shape)?,
            };
            return self.chosen(gate, &held, &other, shape);
        }
        let parts = self.load_bytes_of(u, shape)?;
        if u.dtype() != DType::Bool || shape.n == 0 {
            return Ok(parts);
        }
        // Of bools memory holds 0 and 1.
        let w = self.width(shape);
        let zero = self.b.constant([0; 64], w);
        let masks = parts
            .iter()
            .map(|&p| self.b.of(Vector::SubB, w, &[zero, p], None));
        Ok(masks.collect())
    }

    /// The registers of a vector as memory holds it.
    fn stored_parts(&mut self, u: &'a UOp, shape: Shape) -> Result<Parts> {
        if shape.n == 0 {
            return self.parts(u);
        }
        let parts = self.vector_parts(u, shape)?;
        if u.dtype() != DType::Bool {
            return Ok(parts);
        }
        let w = self.width(shape);
        let one = self.b.splat_bits(1, 1, w);
        let bytes = parts
            .iter()
            .map(|&p| self.b.of(Vector::And, w, &[p, one], None));
        Ok(bytes.collect())
    }

    /// What a LOAD of memory gives, as memory holds it.
    fn load_bytes_of(&mut self, u: &'a UOp, shape: Shape) -> Result<Parts> {
        let Some(gate) = u.src().get(2).filter(|g| !self.holds(g)) else {
            return self.load_plain(u, shape);
        };
        let alt = &u.src()[1];
        if lanes(gate) == 0 {
            let tests = self.tests(gate)?;
            let other = self.stored_parts(alt, shape)?;
            let places = self.places(u, shape)?;
            let out: Parts = other.iter().map(|&r| self.b.copy(r)).collect();
            self.b.variables.extend(out.iter().copied());
            let d = u.dtype();
            let per = self.per_part(shape) * shape.bytes;
            self.b.under(&tests, |b| {
                for (&to, &from) in out.iter().zip(&places) {
                    if shape.n == 0 {
                        load_scalar(b, d, from, to);
                    } else {
                        load_bytes(b, per, from, to);
                    }
                }
            });
            return Ok(out);
        }
        self.load_masked(u, gate, alt, shape)
    }

    /// Where the registers of a value lie in memory.
    pub(super) fn places(&mut self, access: &'a UOp, shape: Shape) -> Result<Vec<Mem>> {
        let bytes = self.b.vector_bytes();
        let count = if shape.n == 0 { 1 } else { self.count(shape) };
        let first = self.memory_of(access, 0)?;
        let mut out = Vec::with_capacity(count);
        for k in 0..count {
            let by = (k * bytes) as i32;
            out.push(match first.displacement.checked_add(by) {
                Some(displacement) => Mem {
                    displacement,
                    ..first
                },
                None => self.memory_of(access, by as i64)?,
            });
        }
        Ok(out)
    }

    fn load_plain(&mut self, u: &'a UOp, shape: Shape) -> Result<Parts> {
        let places = self.places(u, shape)?;
        let d = u.dtype();
        if shape.n == 0 {
            let to = self.new_scalar(d);
            load_scalar(&mut self.b, d, places[0], to);
            return Ok(one(to));
        }
        let per = self.per_part(shape) * shape.bytes;
        let mut parts = Parts::new();
        for from in places {
            let bytes = Width::of_vector(per).bytes();
            let to = self.b.code.reg(Class::Vector, bytes);
            load_bytes(&mut self.b, per, from, to);
            self.b.code.regs[to.0 as usize].lasting = self.lasts(u);
            parts.push(to);
        }
        Ok(parts)
    }

    /// Whether a LOAD is of memory that the program does not write.
    pub(super) fn lasts(&self, u: &UOp) -> bool {
        let from = address(u.src()[0].named()).map(|a| a.buffer);
        let slot = from.and_then(UOp::buffer_arg).map(|b| b.slot);
        from.is_some_and(|from| from.op() == Op::Param)
            && slot.is_some_and(|slot| !self.entry.written.contains(&slot))
    }

    fn new_scalar(&mut self, d: DType) -> Reg {
        match Self::class(d) {
            Class::General => self.b.code.reg(Class::General, 8),
            Class::Vector => self.b.code.reg(Class::Vector, 16),
        }
    }

    /// A general register with a scalar of memory.
    pub(super) fn load_general(&mut self, d: DType, from: Operand) -> Reg {
        self.b.general(load_op(d), Width::W64, &[from])
    }

    fn load_register(&mut self, i: usize, a: &Address<'a>, shape: Shape) -> Result<Parts> {
        let parts = self.register(a.buffer);
        // The value is what the register holds now: the register itself, if it is not written before the last use.
        let next = self.list[i + 1..].iter().position(|s| {
            s.op() == Op::Store && address(s.src()[0].named()).is_some_and(|w| w.buffer == a.buffer)
        });
        let next = next.map_or(usize::MAX, |k| i + 1 + k);
        let integer = shape.n == 0 && Self::class(a.buffer.dtype()) == Class::General;
        if !integer && !self.uses.leaves(i) && self.uses.last(i) <= next {
            return Ok(parts);
        }
        Ok(parts.iter().map(|&r| self.b.copy(r)).collect())
    }

    /// The lanes that a mask keeps.
    fn load_masked(
        &mut self,
        u: &'a UOp,
        gate: &'a UOp,
        alt: &'a UOp,
        shape: Shape,
    ) -> Result<Parts> {
        let places = self.places(u, shape)?;
        let width = self.width(shape);
        let bytes = self.per_part(shape) * shape.bytes;
        let masks = self.vector_parts(gate, shape)?;
        let others = self.stored_parts(alt, shape)?;
        let all = monoglot_uop::linear::splat(alt).unwrap_or(alt);
        let zero = all.op() == Op::Const && self.lane_bits(all) == 0;
        let level = self.b.level;
        let op = match shape.bytes {
            4 if level > Level::V2 => Some(Vector::MaskLoad4),
            8 if level > Level::V2 => Some(Vector::MaskLoad8),
            1 if level > Level::V3 => Some(Vector::MaskLoad1),
            2 if level > Level::V3 => Some(Vector::MaskLoad2),
            _ => None,
        };
        let mut out = Parts::new();
        for (k, &from) in places.iter().enumerate() {
            let mask = masks[k];
            if let Some(op) = op {
                // Lanes past those of a short vector have masks of 0.
                let mask = match is_constant(gate) {
                    true => mask,
                    false => self.only_lanes(mask, bytes, width),
                };
                let src = [Operand::Reg(mask), Operand::Mem(from)];
                let got = self.b.vector(op, width, &src);
                out.push(match zero {
                    true => got,
                    false => self
                        .b
                        .of(Vector::Choose, width, &[mask, got, others[k]], None),
                });
                continue;
            }
            let n = bytes / shape.bytes;
            let to = self.b.copy(others[k]);
            self.b.variables.insert(to);
            let bits = self.lane_bits_of(mask, shape.bytes, width);
            for lane in 0..n {
                let bit = self.bit(bits, lane);
                let place = Mem {
                    displacement: from.displacement + (lane * shape.bytes) as i32,
                    ..from
                };
                let at = lane * shape.bytes;
                self.b.skip(Cond::Equal, bit, 0, |b| {
                    insert_from(b, to, width, shape.bytes, at, place);
                });
            }
            out.push(to);
        }
        Ok(out)
    }

    /// A mask without what stands past so many bytes.
    fn only_lanes(&mut self, mask: Reg, bytes: usize, width: Width) -> Reg {
        if bytes == width.bytes() {
            return mask;
        }
        let mut keep = [0; 64];
        keep[..bytes].fill(0xff);
        let keep = self.b.constant(keep, width);
        self.b.of(Vector::And, width, &[mask, keep], None)
    }

    /// The signs of a mask's lanes as bits of a general register, one (of masks of 2 bytes, two) a lane.
    fn lane_bits_of(&mut self, mask: Reg, lane: usize, width: Width) -> (Reg, usize) {
        let (op, step) = match lane {
            4 => (Vector::MoveMaskPs, 1),
            8 => (Vector::MoveMaskPd, 1),
            2 => (Vector::MoveMaskB, 2),
            _ => (Vector::MoveMaskB, 1),
        };
        (self.b.general_of(op, width, &[Operand::Reg(mask)]), step)
    }

    fn bit(&mut self, (bits, step): (Reg, usize), lane: usize) -> Reg {
        let bit = 1i64 << (lane * step);
        let bit = bit as i32 as i64;
        let src = [Operand::Reg(bits), Operand::Imm(bit)];
        self.b.general(Do::And, Width::W32, &src)
    }

    /// STORE.
    pub(super) fn store(&mut self, u: &'a UOp) -> Result<()> {
        let a = self.address_of(u)?;
        let value = &u.src()[1];
        let shape = Shape {
            n: a.lanes,
            bytes: a.buffer.dtype().bytes(),
        };
        let gate = u.src().get(2).filter(|g| !self.holds(g));
        if is_register(a.buffer) {
            return self.store_register(&a, value, gate, shape);
        }
        let parts = self.stored_parts(value, shape)?;
        let d = a.buffer.dtype();
        let per = self.per_part(shape) * shape.bytes;
        match gate {
            Some(gate) if lanes(gate) > 0 => return self.store_masked(u, gate, &parts, shape),
            Some(gate) => {
                let tests = self.tests(gate)?;
                let places = self.places(u, shape)?;
                self.b.under(&tests, |b| {
                    for (&from, &to) in parts.iter().zip(&places) {
                        store_part(b, d, shape.n, per, to, from);
                    }
                });
            }
            None if *u.arg() != Arg::None
                && per >= 16
                && self.past
                && self.is_multiple(&a, per.min(32) as i64) =>
            {
                let places = self.places(u, shape)?;
                let whole = self.is_multiple(&a, per as i64);
                for (&from, &to) in parts.iter().zip(&places) {
                    match to.displacement.checked_add(32).filter(|_| !whole) {
                        // Half a line begins here.
                        Some(displacement) => {
                            let high = self.low_bytes(from, 32, 32);
                            self.store_past(to, from, Width::Y);
                            self.store_past(Mem { displacement, ..to }, high, Width::Y);
                        }
                        None if whole => self.store_past(to, from, self.width(shape)),
                        None => store_part(&mut self.b, d, shape.n, per, to, from),
                    }
                }
            }
            None => {
                let places = self.places(u, shape)?;
                for (&from, &to) in parts.iter().zip(&places) {
                    store_part(&mut self.b, d, shape.n, per, to, from);
                }
            }
        }
        Ok(())
    }

    fn store_past(&mut self, to: Mem, from: Reg, width: Width) {
        let src = [Operand::Mem(to), Operand::Reg(from)];
        self.b.put(Do::Vector(Vector::StorePast), width, None, &src);
    }

    fn store_register(
        &mut self,
        a: &Address<'a>,
        value: &'a UOp,
        gate: Option<&'a UOp>,
        shape: Shape,
    ) -> Result<()> {
        let to = self.register(a.buffer);
        let from = match shape.n {
            0 => self.parts(value)?,
            _ => self.vector_parts(value, shape)?,
        };
        let width = self.width(shape);
        let moves = |b: &mut Builder| {
            for (&to, &from) in to.iter().zip(&from) {
                match b.is_zero(from) {
                    true => b.put(Do::Zero, width, Some(to), &[]),
                    false => b.put(Do::Move, width, Some(to), &[Operand::Reg(from)]),
                }
            }
        };
        match gate {
            None => moves(&mut self.b),
            Some(gate) if lanes(gate) == 0 => {
                let gate = self.scalar(gate)?;
                self.b.skip(Cond::Equal, gate, 0, moves);
            }
            Some(gate) => {
                let masks = self.vector_parts(gate, shape)?;
                for ((&to, &from), &mask) in to.iter().zip(&from).zip(&masks) {
                    let new = self.b.of(Vector::Choose, width, &[mask, from, to], None);
                    self.b.put(Do::Move, width, Some(to), &[Operand::Reg(new)]);
                }
            }
        }
        Ok(())
    }

    fn store_masked(
        &mut self,
        u: &'a UOp,
        gate: &'a UOp,
        parts: &[Reg],
        shape: Shape,
    ) -> Result<()> {
        let places = self.places(u, shape)?;
        let width = self.width(shape);
        let bytes = self.per_part(shape) * shape.bytes;
        let masks = self.vector_parts(gate, shape)?;
        let level = self.b.level;
        let op = match shape.bytes {
            4 if level > Level::V2 => Some(Vector::MaskStore4),
            8 if level > Level::V2 => Some(Vector::MaskStore8),
            1 if level > Level::V3 => Some(Vector::MaskStore1),
            2 if level > Level::V3 => Some(Vector::MaskStore2),
            _ => None,
        };
        let n = bytes / shape.bytes;
        for (k, &to) in places.iter().enumerate() {
            let mask = masks[k];
            let bits = self.lane_bits_of(mask, shape.bytes, width);
            if let Some(op) = op {
                let mask = self.only_lanes(mask, bytes, width);
                let src = [Operand::Mem(to), Operand::Reg(mask), Operand::Reg(parts[k])];
                let masked = |b: &mut Builder| b.put(Do::Vector(op), width, None, &src);
                if bytes < 16 || level > Level::V3 {
                    masked(&mut self.b);
                    continue;
                }
                // Some machines take as long for a masked store as for all its lanes one by one.
                let all = (1i64 << n) - 1;
                let whole = [Operand::Mem(to), Operand::Reg(parts[k])];
                self.b.skip(Cond::NotEqual, bits.0, all, |b| {
                    b.put(Do::Vector(Vector::Store), width, None, &whole);
                });
                self.b.skip(Cond::Equal, bits.0, all, masked);
                continue;
            }
            for lane in 0..n {
                let bit = self.bit(bits, lane);
                let place = Mem {
                    displacement: to.displacement + (lane * shape.bytes) as i32,
                    ..to
                };
                let from = parts[k];
                self.b.skip(Cond::Equal, bit, 0, |b| {
                    extract_to(b, from, width, shape.bytes, lane * shape.bytes, place);
                });
            }
        }
        Ok(())
    }

    /// Ask for the line of a LOAD whose value is not used.
    pub(super) fn prefetch(&mut self, u: &'a UOp) -> Result<()> {
        let tests = match u.src().get(2) {
            Some(gate) => Some(self.tests(gate)?),
            None => None,
        };
        let place = [Operand::Mem(self.memory_of(u, 0)?)];
        let ask = |b: &mut Builder| b.put(Do::Prefetch, Width::W64, None, &place);
        match tests {
            Some(tests) => self.b.under(&tests, ask),
            None => ask(&mut self.b),
        }
        Ok(())
    }
}

/// The load of a scalar that is in a general register.
fn load_op(d: DType) -> Do {
    match d {
        DType::I8 => Do::Load8S,
        DType::I16 => Do::Load16S,
        d => match d.bytes() {
            1 => Do::Load8U,
            2 => Do::Load16U,
            4 => Do::Load32,
            _ => Do::Load64,
        },
    }
}

fn load_scalar(b: &mut Builder, d: DType, from: Mem, to: Reg) {
    let src = [Operand::Mem(from)];
    match d {
        DType::F32 => b.put(Do::Vector(Vector::Load4F), Width::X, Some(to), &src),
        DType::F64 => b.put(Do::Vector(Vector::Load8), Width::X, Some(to), &src),
        d => b.put(load_op(d), Width::W64, Some(to), &src),
    }
}

/// A vector register with so many bytes of memory, the rest of it 0.
fn load_bytes(b: &mut Builder, bytes: usize, from: Mem, to: Reg) {
    let src = [Operand::Mem(from)];
    let vector = match bytes {
        16 | 32 | 64 => Vector::Load,
        8 => Vector::Load8,
        4 => Vector::Load4,
        _ => {
            let op = if bytes == 2 { Do::Load16U } else { Do::Load8U };
            let word = b.general(op, Width::W64, &src);
            let src = [Operand::Reg(word)];
            return b.put(Do::Vector(Vector::MoveGprD), Width::X, Some(to), &src);
        }
    };
    let width = Width::of_vector(bytes);
    b.put(Do::Vector(vector), width, Some(to), &src);
}

/// A scalar (n is 0), or a vector register's low bytes, into memory.
fn store_part(b: &mut Builder, d: DType, n: usize, bytes: usize, to: Mem, from: Reg) {
    let src = [Operand::Mem(to), Operand::Reg(from)];
    if n == 0 && b.code.regs[from.0 as usize].class == Class::General {
        return b.put(store_op(d.bytes()), Width::W64, None, &src);
    }
    let vector = match if n == 0 { d.bytes() } else { bytes } {
        4 => Vector::Store4,
        8 => Vector::Store8,
        16 | 32 | 64 => Vector::Store,
        narrow => {
            let src = [Operand::Reg(from)];
            let word = b.general_of(Vector::MoveVecD, Width::X, &src);
            let src = [Operand::Mem(to), Operand::Reg(word)];
            return b.put(store_op(narrow), Width::W64, None, &src);
        }
    };
    let width = Width::of_vector(bytes);
    b.put(Do::Vector(vector), width, None, &src);
}

fn store_op(bytes: usize) -> Do {
    match bytes {
        1 => Do::Store8,
        2 => Do::Store16,
        4 => Do::Store32,
        _ => Do::Store64,
    }
}

/// A lane of memory into a register of several lanes, at so many bytes.
fn insert_from(b: &mut Builder, to: Reg, width: Width, lane: usize, at: usize, from: Mem) {
    let op = match lane {
        1 => Vector::InsertB,
        2 => Vector::InsertW,
        4 => Vector::InsertD,
        _ => Vector::InsertQ,
    };
    let within = Operand::Imm(((at % 16) / lane) as i64);
    let half = match width {
        Width::Y if at >= 16 => b.vector(
            Vector::Extract128,
            Width::Y,
            &[Operand::Reg(to), Operand::Imm(1)],
        ),
        _ => to,
    };
    let src = [Operand::Reg(half), Operand::Mem(from), within];
    if width != Width::Y {
        return b.put(Do::Vector(op), Width::X, Some(to), &src);
    }
    let half = b.vector(op, Width::X, &src);
    let which = Operand::Imm((at / 16) as i64);
    let src = [Operand::Reg(to), Operand::Reg(half), which];
    b.put(Do::Vector(Vector::Insert128), Width::Y, Some(to), &src);
}

/// A lane of a register into memory.
fn extract_to(b: &mut Builder, from: Reg, width: Width, lane: usize, at: usize, to: Mem) {
    let half = match width {
        Width::Y if at >= 16 => b.vector(
            Vector::Extract128,
            Width::Y,
            &[Operand::Reg(from), Operand::Imm(1)],
        ),
        _ => from,
    };
    let op = match lane {
        1 => Vector::ExtractB,
        2 => Vector::ExtractW,
        4 => Vector::ExtractD,
        _ => Vector::ExtractQ,
    };
    let within = Operand::Imm(((at % 16) / lane) as i64);
    let word = b.general_of(op, Width::X, &[Operand::Reg(half), within]);
    let src = [Operand::Mem(to), Operand::Reg(word)];
    b.put(store_op(lane), Width::W64, None, &src);
}
