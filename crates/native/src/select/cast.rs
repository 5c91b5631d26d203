//! CAST and BITCAST. A float becomes an integer by rounding to zero, past the ends the nearest of them, NaN becomes
//! 0. Flows in: the operand; flows out: registers. Invariant: what it computes is what `fold` does.

use super::builder::{Parts, one, splat};
use super::scalar::{ORDERED, by_type};
use super::{Selector, Shape};
use crate::code::{Class, Cond, Do, Level, Operand, Reg, Width};
use crate::table::Vector;
use monoglot_uop::linear::lanes;
use monoglot_uop::{DType, Op, Result, Scalar, UOp};

/// The dtype as which narrow floats are moved.
fn moved(d: DType) -> DType {
    match d {
        DType::F16 | DType::BF16 => DType::U16,
        DType::F8E4M3 | DType::F8E5M2 => DType::U8,
        d => d,
    }
}

impl<'a> Selector<'a> {
    /// CAST.
    pub(super) fn cast(&mut self, u: &'a UOp) -> Result<Parts> {
        let a = &u.src()[0];
        let from = a.dtype();
        let to = u.dtype();
        if lanes(u) > 0 {
            return self.cast_lanes(u, a, from, to);
        }
        let reg = self.scalar(a)?;
        Ok(one(self.cast_scalar(u, reg, from, to)?))
    }

    /// A scalar as one of another dtype.
    fn cast_scalar(&mut self, u: &UOp, reg: Reg, from: DType, to: DType) -> Result<Reg> {
        let src = [Operand::Reg(reg)];
        let wide = |d: DType| d.bytes() == 8;
        if from == to {
            return Ok(self.b.stable(reg));
        }
        let float = |d: DType| matches!(d, DType::F32 | DType::F64);
        Ok(match (from, to) {
            (DType::F16, _) => {
                let vector = self.b.of(Vector::MoveGprD, Width::X, &[reg], None);
                let single = self.b.of(Vector::CvtPh2Ps, Width::X, &[vector], None);
                self.cast_scalar(u, single, DType::F32, to)?
            }
            (DType::F32, DType::F16) => self.half_of(reg),
            (DType::F64, DType::F16) => {
                let single = self.odd(reg);
                self.half_of(single)
            }
            (_, DType::F16) => {
                let single = self.cast_scalar(u, reg, from, DType::F32)?;
                self.half_of(single)
            }
            (d, DType::Bool) if float(d) => {
                let zero = self.float_number(d, 0.0);
                self.float_compare(d, [reg, zero], 4)
            }
            (d, DType::Bool) => {
                let w = if wide(d) { Width::W64 } else { Width::W32 };
                let zero = [Operand::Reg(reg), Operand::Imm(0)];
                self.b.general(Do::Compare(Cond::NotEqual), w, &zero)
            }
            (DType::F32, DType::F64) => self.b.of(Vector::CvtSs2Sd, Width::X, &[reg], None),
            (DType::F64, DType::F32) => self.b.of(Vector::CvtSd2Ss, Width::X, &[reg], None),
            (d, i) if float(d) && i.is_int() => {
                let within = super::cast::within(&u.src()[0], i);
                self.integer_from(reg, d, i, within)
            }
            (DType::U64, d) if float(d) => self.unsigned_to_float(reg, d),
            (i, d) if float(d) => {
                let op = match (i, d) {
                    (DType::I64 | DType::U32, DType::F32) => Vector::CvtSi64Ss,
                    (DType::I64 | DType::U32, _) => Vector::CvtSi64Sd,
                    (_, DType::F32) => Vector::CvtSi32Ss,
                    _ => Vector::CvtSi32Sd,
                };
                self.b.vector(op, Width::X, &src)
            }
            (from, to) if to.is_int() => {
                if wide(to) && !wide(from) {
                    let signed = from != DType::Bool && !from.is_unsigned();
                    let op = if signed { Do::Extend32 } else { Do::Load32 };
                    return Ok(self.b.general(op, Width::W64, &src));
                }
                let low = if wide(from) && to.bytes() == 4 {
                    self.b.general(Do::Load32, Width::W32, &src)
                } else {
                    self.b.stable(reg)
                };
                // An extended value of a narrower type, or of the same bits, may be extended otherwise in this one.
                self.extended(low, to)
            }
            _ => return Err(self.unsupported(u)),
        })
    }

    fn half_of(&mut self, single: Reg) -> Reg {
        let half = self.b.of(Vector::CvtPs2Ph, Width::X, &[single], Some(0));
        let word = self
            .b
            .general_of(Vector::MoveVecD, Width::X, &[Operand::Reg(half)]);
        self.b
            .general(Do::Load16U, Width::W32, &[Operand::Reg(word)])
    }

    /// An f64 as the f32 next to it toward zero whose last bit is set, unless it is one: what a half is rounded from,
    /// as if it were rounded once.
    fn odd(&mut self, double: Reg) -> Reg {
        let b = &mut self.b;
        let near = b.of(Vector::CvtSd2Ss, Width::X, &[double], None);
        let back = b.of(Vector::CvtSs2Sd, Width::X, &[near], None);
        let sign = b.constant(splat(1 << 63, 8), Width::X);
        let size = b.of(Vector::AndNotPs, Width::X, &[sign, double], None);
        let back_size = b.of(Vector::AndNotPs, Width::X, &[sign, back], None);
        let over = self.float_compare(DType::F64, [size, back_size], 1);
        let exact = self.float_compare(DType::F64, [size, back_size], 4);
        let b = &mut self.b;
        let word = b.general_of(Vector::MoveVecD, Width::X, &[Operand::Reg(near)]);
        let below = b.general(
            Do::Sub,
            Width::W32,
            &[Operand::Reg(word), Operand::Reg(over)],
        );
        let set = b.general(
            Do::Or,
            Width::W32,
            &[Operand::Reg(below), Operand::Reg(exact)],
        );
        // NaN is not equal to itself, and stays what it is.
        let nan = self.float_compare(DType::F64, [double, double], 3);
        let b = &mut self.b;
        let src = [Operand::Reg(nan), Operand::Reg(word), Operand::Reg(set)];
        let word = b.general(Do::Select, Width::W64, &src);
        b.of(Vector::MoveGprD, Width::X, &[word], None)
    }

    /// A u64 as a float: past the signed numbers half of it, with its last bit kept, is converted and doubled.
    fn unsigned_to_float(&mut self, reg: Reg, d: DType) -> Reg {
        let b = &mut self.b;
        let from = Operand::Reg(reg);
        let half = b.general(Do::Shr, Width::W64, &[from, Operand::Imm(1)]);
        let last = b.general(Do::And, Width::W64, &[from, Operand::Imm(1)]);
        let half = b.general(
            Do::Or,
            Width::W64,
            &[Operand::Reg(half), Operand::Reg(last)],
        );
        let great = b.general(
            Do::Compare(Cond::Less),
            Width::W64,
            &[from, Operand::Imm(0)],
        );
        let src = [Operand::Reg(great), Operand::Reg(half), from];
        let signed = b.general(Do::Select, Width::W64, &src);
        let convert = by_type(d, Vector::CvtSi64Ss, Vector::CvtSi64Sd);
        let value = b.vector(convert, Width::X, &[Operand::Reg(signed)]);
        let add = by_type(d, Vector::AddSs, Vector::AddSd);
        let twice = b.of(add, Width::X, &[value, value], None);
        let mask = self.scalar_mask(great);
        self.b
            .of(Vector::Choose, Width::X, &[mask, twice, value], None)
    }

    /// A float as an integer: rounded to zero, the nearest end past the ends, 0 for NaN.
    pub(super) fn integer_from(&mut self, reg: Reg, d: DType, to: DType, within: bool) -> Reg {
        let narrow = by_type(d, Vector::CvttSs32, Vector::CvttSd32);
        let wide = by_type(d, Vector::CvttSs64, Vector::CvttSd64);
        let eight = to.bytes() == 8;
        if within && to != DType::U64 {
            let op = if eight || to == DType::U32 {
                wide
            } else {
                narrow
            };
            let word = self.b.general_of(op, Width::X, &[Operand::Reg(reg)]);
            return self.truncated(word, to);
        }
        let least = to.min().to_i128();
        let most = to.max().to_i128();
        // What is below the least, NaN, and what is past the greatest are replaced.
        let low = self.float_number(d, least as f64);
        let past = self.float_number(d, (most + 1) as f64);
        let word = if to == DType::U64 {
            let middle = self.float_number(d, (1u64 << 63) as f64);
            let sub = by_type(d, Vector::SubSs, Vector::SubSd);
            let less = self.b.of(sub, Width::X, &[reg, middle], None);
            let high = self.b.general_of(wide, Width::X, &[Operand::Reg(less)]);
            let sign = self.b.number(i64::MIN);
            let src = [Operand::Reg(high), Operand::Reg(sign)];
            let high = self.b.general(Do::Xor, Width::W64, &src);
            let low = self.b.general_of(wide, Width::X, &[Operand::Reg(reg)]);
            let great = self.float_compare(d, [middle, reg], 2);
            let src = [Operand::Reg(great), Operand::Reg(high), Operand::Reg(low)];
            self.b.general(Do::Select, Width::W64, &src)
        } else {
            self.b.general_of(wide, Width::X, &[Operand::Reg(reg)])
        };
        let word = self.truncated(word, to);
        let above = self.float_compare(d, [past, reg], 2);
        let inside = self.float_compare(d, [low, reg], 2);
        let ordered = self.float_compare(d, [reg, reg], ORDERED);
        let number =
            |s: &mut Self, v: i128| s.b.number(super::canonical(Scalar::Int(v).to_bits(to), to));
        let greatest = number(self, most);
        let smallest = number(self, least);
        let b = &mut self.b;
        let zero = b.number(0);
        let select = |b: &mut super::builder::Builder, c: Reg, x: Reg, y: Reg| {
            let src = [Operand::Reg(c), Operand::Reg(x), Operand::Reg(y)];
            b.general(Do::Select, Width::W64, &src)
        };
        let word = select(b, inside, word, smallest);
        let word = select(b, above, greatest, word);
        select(b, ordered, word, zero)
    }

    /// A word of 64 bits as a narrower integer.
    fn truncated(&mut self, word: Reg, to: DType) -> Reg {
        match to.bytes() {
            8 => word,
            4 => self
                .b
                .general(Do::Load32, Width::W32, &[Operand::Reg(word)]),
            _ => self.extended(word, to),
        }
    }

    fn cast_lanes(&mut self, u: &'a UOp, a: &'a UOp, from: DType, to: DType) -> Result<Parts> {
        let n = lanes(u);
        let own = match from {
            DType::Bool => Shape {
                n,
                bytes: self.listing.mask(a),
            },
            d => Shape {
                n,
                bytes: d.bytes(),
            },
        };
        let shape = self.shape(u);
        let float = |d: DType| matches!(d, DType::F32 | DType::F64);
        let w = self.width(own);
        match (from, to) {
            _ if from == to => {
                let parts = self.vector_parts(a, own)?;
                return Ok(parts.iter().map(|&r| self.b.stable(r)).collect());
            }
            (DType::Bool, d) => {
                // A mask keeps the bits of 1.
                let wide = Shape {
                    n,
                    bytes: moved(d).bytes(),
                };
                let masks = self.vector_parts(a, wide)?;
                let one = d.one().to_bits(d);
                let w = self.width(wide);
                let one = self.b.splat_bits(one, wide.bytes, w);
                return Ok(masks
                    .iter()
                    .map(|&m| self.b.of(Vector::And, w, &[m, one], None))
                    .collect());
            }
            (d, DType::Bool) if d != DType::F16 => {
                let parts = self.vector_parts(a, own)?;
                let zero = self.b.constant([0; 64], w);
                let mut out = Parts::new();
                for &p in &parts {
                    out.push(if float(d) {
                        let op = by_type(d, Vector::CmpPs, Vector::CmpPd);
                        self.b.of(op, w, &[p, zero], Some(4))
                    } else {
                        let equal = [
                            Vector::CmpEqB,
                            Vector::CmpEqW,
                            Vector::CmpEqD,
                            Vector::CmpEqQ,
                        ];
                        let equal = equal[own.bytes.trailing_zeros() as usize];
                        let is = self.b.of(equal, w, &[p, zero], None);
                        let ones = self.b.splat_bits(u64::MAX, 8, w);
                        self.b.of(Vector::Xor, w, &[is, ones], None)
                    });
                }
                return Ok(out);
            }
            (f, t) if f.is_int() && t.is_int() => {
                let parts = self.vector_parts(a, own)?;
                let resized = self.resize(&parts, own, shape.bytes, !f.is_unsigned());
                return Ok(resized.iter().map(|&r| self.b.stable(r)).collect());
            }
            _ => {}
        }
        if let Some(parts) = self.convert(a, own, to)? {
            return Ok(parts);
        }
        // A mask has lanes of its own width.
        self.each_lane(u, shape, |s, r| s.cast_scalar(u, r[0], from, to))
    }

    /// Conversions that have instructions.
    fn convert(&mut self, a: &'a UOp, own: Shape, to: DType) -> Result<Option<Parts>> {
        let from = a.dtype();
        let n = own.n;
        let words = Shape { n, bytes: 4 };
        let longs = Shape { n, bytes: 8 };
        Ok(Some(match (from, to) {
            (i, DType::F32) if i.is_int() && (i.bytes() < 4 || i == DType::I32) => {
                let parts = self.vector_parts(a, own)?;
                let parts = self.resize(&parts, own, 4, !i.is_unsigned());
                self.each(Vector::CvtDQ2Ps, words, &parts)
            }
            (i, DType::F64) if i.is_int() && (i.bytes() < 4 || i == DType::I32) => {
                let parts = self.vector_parts(a, own)?;
                let parts = self.resize(&parts, own, 4, !i.is_unsigned());
                self.spread_out(Vector::CvtDQ2Pd, &parts, words, 8)
            }
            (DType::F32, DType::F64) => {
                let parts = self.vector_parts(a, own)?;
                self.spread_out(Vector::CvtPs2Pd, &parts, own, 8)
            }
            (DType::F64, DType::F32) => {
                let parts = self.vector_parts(a, own)?;
                self.draw_in(Vector::CvtPd2Ps, None, &parts, own, 4)
            }
            (DType::F16, DType::F32) => {
                let parts = self.vector_parts(a, own)?;
                self.spread_out(Vector::CvtPh2Ps, &parts, own, 4)
            }
            (DType::F32, DType::F16) => {
                let parts = self.vector_parts(a, own)?;
                self.draw_in(Vector::CvtPs2Ph, Some(0), &parts, own, 2)
            }
            (DType::F32, i) if i.is_int() && (i.bytes() < 4 || i == DType::I32) => {
                let parts = self.vector_parts(a, own)?;
                let within = within(a, i);
                let of = self.words_from(&parts, own, i, within);
                self.resize(&of, words, i.bytes(), true)
            }
            (DType::F64, i) if i.is_int() && i.bytes() <= 4 => {
                let parts = self.vector_parts(a, own)?;
                let of = self.words_of_doubles(&parts, own, i, within(a, i));
                self.resize(&of, words, i.bytes(), true)
            }
            (DType::F32, DType::U32) => {
                let parts = self.vector_parts(a, own)?;
                let parts = self.spread_out(Vector::CvtPs2Pd, &parts, own, 8);
                self.words_of_doubles(&parts, longs, to, within(a, to))
            }
            (DType::F64, DType::I64 | DType::U64) => {
                let parts = self.vector_parts(a, own)?;
                self.longs_of_doubles(&parts, longs, to)
            }
            (DType::F32, DType::I64 | DType::U64) => {
                let parts = self.vector_parts(a, own)?;
                let parts = self.spread_out(Vector::CvtPs2Pd, &parts, own, 8);
                self.longs_of_doubles(&parts, longs, to)
            }
            (DType::I64, DType::F32) => {
                let parts = self.vector_parts(a, own)?;
                self.singles_of_longs(&parts, longs)
            }
            (DType::I64 | DType::U64, DType::F64) => {
                let parts = self.vector_parts(a, own)?;
                self.doubles_of_longs(&parts, longs, from == DType::I64)
            }
            (DType::U32, DType::F32 | DType::F64) => {
                let parts = self.vector_parts(a, own)?;
                let parts = self.resize(&parts, own, 8, false);
                let doubles = self.doubles_of_longs(&parts, longs, false);
                match to {
                    DType::F32 => self.draw_in(Vector::CvtPd2Ps, None, &doubles, longs, 4),
                    _ => doubles,
                }
            }
            _ => return Ok(None),
        }))
    }

    /// An instruction on every register.
    pub(super) fn each(&mut self, op: Vector, shape: Shape, parts: &[Reg]) -> Parts {
        let w = self.width(shape);
        parts
            .iter()
            .map(|&p| self.b.of(op, w, &[p], None))
            .collect()
    }

    /// Conversions to wider lanes, of the low lanes of a register.
    pub(super) fn spread_out(
        &mut self,
        op: Vector,
        parts: &[Reg],
        from: Shape,
        to: usize,
    ) -> Parts {
        let shape = Shape {
            n: from.n,
            bytes: to,
        };
        let w = self.width(shape);
        let per = self.per_part(shape);
        let per_from = self.per_part(from);
        let mut out = Parts::new();
        for k in 0..self.count(shape) {
            let start = k * per;
            let part = parts[start / per_from];
            let low = self.low_bytes(part, start % per_from * from.bytes, per * from.bytes);
            out.push(self.b.of(op, w, &[low], None));
        }
        out
    }

    /// Conversions to lanes half as wide, whose halves are put together.
    pub(super) fn draw_in(
        &mut self,
        op: Vector,
        imm: Option<i64>,
        parts: &[Reg],
        from: Shape,
        to: usize,
    ) -> Parts {
        let w = self.width(from);
        let shape = Shape {
            n: from.n,
            bytes: to,
        };
        let mut halves: Vec<Reg> = Vec::new();
        for &p in parts {
            halves.push(self.b.of(op, w, &[p], imm));
        }
        if halves.len() == 1 {
            return halves.into_iter().collect();
        }
        if self.b.level >= Level::V4 {
            return self.side_by_side(halves.into_iter().collect(), 32);
        }
        // Each holds half of a register: of 16 bytes where that has 32, else of 8.
        let join = if self.width(shape) == Width::Y {
            Vector::Insert128
        } else {
            Vector::UnpackLowQDQ
        };
        let imm = (join == Vector::Insert128).then_some(1);
        let width = self.width(shape);
        let pair = |p: &[Reg]| self.b.of(join, width, &[p[0], p[p.len() - 1]], imm);
        halves.chunks(2).map(pair).collect()
    }

    /// f32 as i32 within the interval of an integer type of at most 32 bits.
    fn words_from(&mut self, parts: &[Reg], of: Shape, to: DType, within: bool) -> Parts {
        let w = self.width(of);
        let mut out = Parts::new();
        let least = self
            .b
            .splat_bits((to.min().to_i128() as f32).to_bits() as u64, 4, w);
        let most = self
            .b
            .splat_bits((to.max().to_i128() as f32).to_bits() as u64, 4, w);
        for &p in parts {
            let b = &mut self.b;
            if within {
                out.push(b.of(Vector::CvttPs2DQ, w, &[p], None));
                continue;
            }
            let ordered = b.of(Vector::CmpPs, w, &[p, p], Some(ORDERED));
            let word = if to == DType::I32 {
                // Past the ends the machine gives the least: turned to the greatest where it is above.
                let great = b.of(Vector::CmpPs, w, &[most, p], Some(2));
                let word = b.of(Vector::CvttPs2DQ, w, &[p], None);
                b.of(Vector::Xor, w, &[word, great], None)
            } else {
                let x = b.of(Vector::MaxPs, w, &[p, least], None);
                let x = b.of(Vector::MinPs, w, &[x, most], None);
                b.of(Vector::CvttPs2DQ, w, &[x], None)
            };
            out.push(b.of(Vector::And, w, &[word, ordered], None));
        }
        out
    }

    /// BITCAST: the same bits; of a byte to a bool, whether it is not 0.
    pub(super) fn bitcast(&mut self, u: &'a UOp) -> Result<Parts> {
        let a = &u.src()[0];
        let from = a.dtype();
        let to = u.dtype();
        let bools = (from == DType::Bool, to == DType::Bool);
        let n = lanes(u);
        if n > 0 {
            return match bools {
                (true, false) => {
                    let bytes = Shape { n, bytes: 1 };
                    let masks = self.vector_parts(a, bytes)?;
                    let w = self.width(bytes);
                    let one = self.b.splat_bits(1, 1, w);
                    Ok(masks
                        .iter()
                        .map(|&m| self.b.of(Vector::And, w, &[m, one], None))
                        .collect())
                }
                (false, true) => {
                    let bytes = Shape { n, bytes: 1 };
                    let parts = self.vector_parts(a, bytes)?;
                    let w = self.width(bytes);
                    let zero = self.b.constant([0; 64], w);
                    let ones = self.b.splat_bits(u64::MAX, 8, w);
                    let mut out = Parts::new();
                    for &p in &parts {
                        let is = self.b.of(Vector::CmpEqB, w, &[p, zero], None);
                        out.push(self.b.of(Vector::Xor, w, &[is, ones], None));
                    }
                    Ok(out)
                }
                _ => {
                    let shape = self.shape(u);
                    let parts = self.vector_parts(a, shape)?;
                    Ok(parts.iter().map(|&r| self.b.stable(r)).collect())
                }
            };
        }
        let reg = self.scalar(a)?;
        let src = [Operand::Reg(reg)];
        let wide = to.bytes() == 8;
        Ok(one(match (Self::class(from), Self::class(to)) {
            _ if bools == (false, true) => {
                let zero = [src[0], Operand::Imm(0)];
                self.b
                    .general(Do::Compare(Cond::NotEqual), Width::W32, &zero)
            }
            (Class::General, Class::Vector) => {
                let op = if wide {
                    Vector::MoveGprQ
                } else {
                    Vector::MoveGprD
                };
                self.b.vector(op, Width::X, &src)
            }
            (Class::Vector, Class::General) => {
                let op = if wide {
                    Vector::MoveVecQ
                } else {
                    Vector::MoveVecD
                };
                self.b.general_of(op, Width::X, &src)
            }
            (Class::General, Class::General) => {
                let reg = self.b.stable(reg);
                self.extended(reg, to)
            }
            _ => self.b.stable(reg),
        }))
    }
}

/// Whether the interval of a float is within that of an integer type.
fn within(a: &UOp, to: DType) -> bool {
    if a.op() == Op::Const {
        return false;
    }
    let least = to.min().to_i128();
    let most = to.max().to_i128();
    let fits = |v: Scalar| v.to_f64() >= least as f64 && v.to_f64() < most as f64 + 1.0;
    a.min_max().is_some_and(|(lo, hi)| fits(lo) && fits(hi))
}
