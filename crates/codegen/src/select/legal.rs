//! Every node in the target's types and ops. Flows in: an expanded kernel in the dialect (index, floor
//! division, narrow floats, decomposed ops); flows out: the same shapes in machine types and native
//! ops. Invariant: no dtype `index` and no float narrower than the target computes with is left, save
//! in storage; an op outside `target.native` has been decomposed.
//!
//! The width of an index is chosen where it is computed: i32 where the interval of every operand and
//! of the result fits, i64 elsewhere (DESIGN 3). A narrow float is held as the f32 of its value.

use crate::build::{alu, bitcast, cast};
use crate::decompose;
use crate::graph::{Srcs, node, rebuild};
use crate::memory::in_registers;
use crate::native::Native;
use monoglot_uop::op::{Arithmetic, Class, Comparison, Ternary, Unary};
use monoglot_uop::{
    AddrSpace, Arg, DType, Error, ErrorKind, Op, OpSet, ReduceOp, Result, Target, UOp,
};

/// Bring a kernel into the target's types and ops.
pub(crate) fn legalize(kernel: &UOp, target: &Target) -> Result<UOp> {
    let legal = Native { target };
    rebuild(kernel, |u, src| legal.node(u, src))
}

fn fits_i32((lo, hi): (i64, i64)) -> bool {
    lo >= i32::MIN as i64 && hi <= i32::MAX as i64
}

fn width(u: &UOp) -> DType {
    if fits_i32(u.bounds()) {
        DType::I32
    } else {
        DType::I64
    }
}

impl Native<'_> {
    fn node(&self, u: &UOp, mut src: Srcs) -> Result<UOp> {
        Ok(match u.op() {
            Op::Const if u.is_invalid() => {
                return Err(bad("the invalid index outside the gate of an access"));
            }
            Op::Const => match u.arg() {
                Arg::Const(v, DType::Index) => UOp::constant(*v, width(u)),
                Arg::Const(v, d) => UOp::constant(*v, self.held(*d)),
                _ => u.clone(),
            },
            Op::Param if u.is_variable() && u.dtype() != DType::Index => {
                self.decode(&self.storage(u), u.dtype())
            }
            Op::Param | Op::Buffer => self.storage(u),
            // The extents of shapes are not values.
            Op::Reshape | Op::Expand => node(u.op(), [src[0].clone(), u.src()[1].clone()]),
            Op::Stack => {
                let wide = u.dtype() == DType::Index && src.iter().any(|s| s.dtype() == DType::I64);
                let d = if wide {
                    DType::I64
                } else {
                    src.first().map_or(DType::I32, UOp::dtype)
                };
                u.with_src(src.iter().map(|s| cast(s, d)).collect::<Srcs>())
            }
            Op::Range | Op::Special => {
                // A counter is as wide as what it counts to.
                let counter = width(&u.src()[0]);
                u.with_src(src.iter().map(|s| cast(s, counter)).collect::<Srcs>())
            }
            // Registers hold what is computed, but bools as bytes: an array of them may be read by vectors.
            Op::Load if in_registers(&src[0]) && u.dtype() != DType::Bool => node(Op::Load, src),
            Op::Store if in_registers(&src[0]) && u.src()[1].dtype() != DType::Bool => {
                node(Op::Store, src)
            }
            Op::Load => {
                if src.len() > 1 {
                    src[1] = self.encode(&src[1], u.dtype());
                }
                self.decode(&node(Op::Load, src), u.dtype())
            }
            Op::Store | Op::AtomicAdd => {
                src[1] = self.encode(&src[1], u.src()[0].dtype());
                node(u.op(), src)
            }
            Op::Cast => self.convert(&src[0], &u.src()[0], u),
            Op::Bitcast => {
                let from = u.src()[0].dtype();
                let to = u.dtype();
                let bits = self.encode(&src[0], from);
                self.decode(&bitcast(&bits, self.stored(to)), to)
            }
            Op::Reduce => self.reduce(u, src),
            Op::Wmma => {
                let Arg::Wmma(info) = u.arg() else {
                    return Err(bad("WMMA without a matrix unit"));
                };
                let types = match info.word() {
                    Some(word) => [word, word, info.dtype_out],
                    None => [info.dtypes_in[0], info.dtypes_in[1], info.dtype_out],
                };
                for (s, d) in src.iter_mut().zip(types) {
                    *s = cast(s, d);
                }
                cast(&u.with_src(src), self.held(u.dtype()))
            }
            op if op.is_elementwise() => self.elementwise(u, &src)?,
            Op::Contiguous | Op::Detach | Op::ContiguousBackward => src[0].clone(),
            _ => u.with_src(src),
        })
    }

    /// PARAM and BUFFER in the type that memory has; variables in the width of their interval.
    fn storage(&self, u: &UOp) -> UOp {
        let Some(b) = u.buffer_arg() else {
            return u.clone();
        };
        let dtype = match b.addrspace {
            None if b.dtype == DType::Index => width(u),
            Some(AddrSpace::Reg) if b.dtype != DType::Bool => self.held(b.dtype),
            _ => self.stored(b.dtype),
        };
        u.with_arg(Arg::Buffer(monoglot_uop::BufferArg { dtype, ..*b }))
    }

    fn reduce(&self, u: &UOp, mut src: Srcs) -> UOp {
        let d = u.dtype();
        if d == DType::Index {
            let wide = width(u) == DType::I64 || src[0].dtype() == DType::I64;
            src[0] = cast(&src[0], if wide { DType::I64 } else { DType::I32 });
        }
        let rounds = !matches!(u.arg(), Arg::Reduce(ReduceOp::Max, _));
        let sum = u.with_src(src);
        if rounds { self.round(&sum, d) } else { sum }
    }

    fn elementwise(&self, u: &UOp, src: &[UOp]) -> Result<UOp> {
        let old = u.src();
        let values = if u.op() == Op::Where { 1 } else { 0 };
        let d = old[values].dtype();
        let mut s: Srcs = src.iter().cloned().collect();
        if d == DType::Index {
            let wide = old[values..].iter().any(|o| !fits_i32(o.bounds()))
                || u.dtype() == DType::Index && !fits_i32(u.bounds());
            let want = if wide { DType::I64 } else { DType::I32 };
            for x in &mut s[values..] {
                *x = cast(x, want);
            }
        }
        let interval = |i: usize| old.get(i).map_or((0, 0), UOp::bounds);
        let new = match u.op() {
            _ if d == DType::Bool && u.op() != Op::Where => self.logic(u.op(), &s)?,
            Op::Idiv if !d.is_float() => self.idiv(&s[0], &s[1], interval(0), interval(1)),
            Op::Mod if !d.is_float() => self.modulo(&s[0], &s[1], interval(0), interval(1)),
            Op::Shl | Op::Shr => self.shift(u.op(), &s[0], &s[1], interval(1)),
            Op::Pow if !d.is_float() => self.int_pow(&s[0], &s[1], interval(1)),
            Op::Trunc if !d.is_float() => s[0].clone(),
            Op::Exp2 if *u.arg() == Arg::Below && !self.has(Op::Exp2) => {
                decompose::exp2_below(self, &s[0]).ok_or_else(|| unsupported(u.op()))?
            }
            Op::Mul if *u.arg() == Arg::Rounded => u.with_src(s),
            Op::Where if *u.arg() == Arg::Padding => u.with_src(s),
            op => self.op(op, &s)?,
        };
        let exact =
            matches!(u.op(), Op::Neg | Op::Max | Op::Where | Op::Trunc) || u.op().is_comparison();
        Ok(if exact { new } else { self.round(&new, d) })
    }

    /// An elementwise op on machine types, out of native ones.
    pub(crate) fn op(&self, op: Op, s: &[UOp]) -> Result<UOp> {
        let a = &s[0];
        let d = s[0].dtype();
        let b = s.get(1).unwrap_or(a);
        if self.has(op) || OpSet::PRIMITIVES.contains(op) {
            return Ok(alu(op, s));
        }
        Ok(match op.class() {
            Class::Unary(unary) => match unary {
                Unary::Neg if d.is_float() => self.mul(a, &UOp::float(-1.0, d)),
                Unary::Neg => self.sub(&UOp::int(0, d), a),
                Unary::Not => self.xor(a, &UOp::int(-1, d)),
                Unary::Recip => self.recip(a),
                Unary::Sqrt => decompose::sqrt(self, a).ok_or_else(|| unsupported(op))?,
                Unary::Trunc => return Err(unsupported(op)),
            },
            Class::Transcendental(function) => {
                decompose::transcendental(self, function, a).ok_or_else(|| unsupported(op))?
            }
            Class::Arithmetic(binary) => match binary {
                Arithmetic::Sub => self.sub(a, b),
                Arithmetic::Max => self.max(a, b),
                Arithmetic::Pow => decompose::pow(self, a, b).ok_or_else(|| unsupported(op))?,
                Arithmetic::Threefry => decompose::threefry(self, a, b),
                Arithmetic::Idiv if d.is_float() => self.floor(&self.div(a, b))?,
                Arithmetic::Mod if d.is_float() => self.float_mod(a, b)?,
                // Of integers by their intervals, which only the node as it was has.
                Arithmetic::Idiv | Arithmetic::Mod => return Err(unsupported(op)),
                Arithmetic::Add | Arithmetic::Mul | Arithmetic::Div => return Err(unsupported(op)),
                Arithmetic::Xor | Arithmetic::Or | Arithmetic::And => return Err(unsupported(op)),
                Arithmetic::Shl | Arithmetic::Shr => return Err(unsupported(op)),
                Arithmetic::TruncDiv | Arithmetic::TruncMod => return Err(unsupported(op)),
            },
            Class::Comparison(order) => match order {
                Comparison::CmpGt => self.cmplt(b, a),
                Comparison::CmpGe => self.op(Op::CmpLe, &[b.clone(), a.clone()])?,
                Comparison::CmpLe if d.is_float() => self.or(&self.cmplt(a, b), &self.equal(a, b)),
                Comparison::CmpLe => self.not(&self.cmplt(b, a)),
                Comparison::CmpEq => self.equal(a, b),
                Comparison::CmpLt | Comparison::CmpNe => return Err(unsupported(op)),
            },
            Class::Ternary(Ternary::MulAcc) => self.mulacc(a, b, &s[2]),
            _ => return Err(unsupported(op)),
        })
    }

    /// a where a is NaN; b where only b is.
    fn max(&self, a: &UOp, b: &UOp) -> UOp {
        let not_less = self.not(&self.cmplt(a, b));
        let first = if a.dtype().is_float() {
            self.or(&self.and(&not_less, &self.equal(b, b)), &self.cmpne(a, a))
        } else {
            not_less
        };
        self.select(&first, a, b)
    }

    /// Bools by the truth tables of `fold`.
    fn logic(&self, op: Op, s: &[UOp]) -> Result<UOp> {
        let a = &s[0];
        let b = s.get(1).unwrap_or(a);
        Ok(match op.class() {
            Class::Unary(unary) => match unary {
                Unary::Not => self.not(a),
                Unary::Neg | Unary::Trunc => a.clone(),
                Unary::Recip | Unary::Sqrt => return Err(unsupported(op)),
            },
            Class::Arithmetic(binary) => match binary {
                Arithmetic::Add | Arithmetic::Or | Arithmetic::Max => self.or(a, b),
                Arithmetic::Mul | Arithmetic::And | Arithmetic::Idiv => self.and(a, b),
                Arithmetic::Xor => self.xor(a, b),
                Arithmetic::Mod => self.and(a, &self.not(b)),
                Arithmetic::Sub | Arithmetic::Div | Arithmetic::Pow => return Err(unsupported(op)),
                Arithmetic::Shl | Arithmetic::Shr => return Err(unsupported(op)),
                Arithmetic::TruncDiv | Arithmetic::TruncMod => return Err(unsupported(op)),
                Arithmetic::Threefry => return Err(unsupported(op)),
            },
            Class::Comparison(order) => match order {
                Comparison::CmpNe => self.xor(a, b),
                Comparison::CmpEq => self.not(&self.xor(a, b)),
                Comparison::CmpGt => self.and(a, &self.not(b)),
                Comparison::CmpLt => self.and(&self.not(a), b),
                Comparison::CmpLe => self.or(&self.not(a), b),
                Comparison::CmpGe => self.or(a, &self.not(b)),
            },
            Class::Ternary(Ternary::MulAcc) => self.or(&self.and(a, b), &s[2]),
            _ => return Err(unsupported(op)),
        })
    }

    fn floor(&self, x: &UOp) -> Result<UOp> {
        let t = self.trunc(x);
        Ok(self.select(
            &self.cmplt(x, &t),
            &self.add(&t, &UOp::float(-1.0, x.dtype())),
            &t,
        ))
    }

    /// The float remainder with the divisor's sign; exact while the quotient is an integer of the format.
    fn float_mod(&self, a: &UOp, b: &UOp) -> Result<UOp> {
        let o = self;
        let zero = &UOp::float(0.0, a.dtype());
        let minus = |x: &UOp| o.sub(&UOp::float(-0.0, a.dtype()), x);
        let abs = |x: &UOp| o.select(&o.cmplt(x, zero), &minus(x), x);
        let q = o.trunc(&o.div(a, b));
        let r = o.mulacc(&minus(&q), b, a);
        // The rounded quotient may be one too far from zero.
        let size = abs(b);
        let negative = o.cmplt(a, zero);
        let step = o.select(&negative, &minus(&size), &size);
        let over = o.select(&negative, &o.cmplt(zero, &r), &o.cmplt(&r, zero));
        let r = o.select(&over, &o.add(&r, &step), &r);
        let small = o.and(&o.equal(&q, zero), &o.cmplt(&abs(a), &size));
        let r = o.select(&small, a, &r);
        let apart = o.xor(&o.cmplt(&r, zero), &o.cmplt(b, zero));
        Ok(o.select(&o.and(&o.cmpne(&r, zero), &apart), &o.add(&r, b), &r))
    }

    /// CAST between dtypes as they are held.
    fn convert(&self, x: &UOp, old: &UOp, u: &UOp) -> UOp {
        let from = old.dtype();
        let to = u.dtype();
        match to {
            DType::Index => {
                let exact = from.is_int() || from == DType::Bool;
                cast(
                    x,
                    if exact && fits_i32(old.bounds()) {
                        DType::I32
                    } else {
                        DType::I64
                    },
                )
            }
            DType::Bool => self.cmpne(x, &UOp::constant(x.dtype().zero(), x.dtype())),
            to if self.held(to) != to => self.narrow(x, from, to),
            to => cast(x, to),
        }
    }
}

fn bad(message: &str) -> Error {
    ErrorKind::Verify {
        stage: "select".into(),
        message: message.into(),
    }
    .into()
}

fn unsupported(op: Op) -> Error {
    ErrorKind::Unsupported {
        op: op.name().into(),
        message: "the target has no such operation".into(),
    }
    .into()
}
