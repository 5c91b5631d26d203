//! Every node in the target's types and ops. Flows in: an expanded kernel in the dialect (index, floor
//! division, narrow floats, decomposed ops); flows out: the same shapes in machine types and native
//! ops. Invariant: no dtype `index` and no float narrower than the target computes with is left, save
//! in storage; an op outside `target.native` has been decomposed.
//!
//! The width of an index is chosen where it is computed: i32 where the interval of every operand and
//! of the result fits, i64 elsewhere (DESIGN 3). A narrow float is held as the f32 of its value.

use super::build::{alu, bitcast, cast};
use crate::decompose;
use crate::graph::{Srcs, node};
use monoglot_uop::{AddrSpace, Arg, DType, Error, ErrorKind, Op, ReduceOp, Result, Scalar, Target, UOp};
use rustc_hash::FxHashMap;
use smallvec::smallvec;

/// Bring a kernel into the target's types and ops.
pub(crate) fn legalize(kernel: &UOp, target: &Target) -> Result<UOp> {
    let legal = Legal { target };
    let topo = kernel.toposort();
    let mut done: FxHashMap<&UOp, UOp> = FxHashMap::default();
    for u in &topo {
        let src: Srcs = u.src().iter().map(|s| done[s].clone()).collect();
        let new = legal.node(u, src)?;
        done.insert(u, new);
    }
    Ok(done[kernel].clone())
}

/// Builds nodes out of what a target has.
pub(crate) struct Legal<'a> {
    pub(crate) target: &'a Target,
}

fn fits_i32((lo, hi): (i64, i64)) -> bool {
    lo >= i32::MIN as i64 && hi <= i32::MAX as i64
}

fn width(u: &UOp) -> DType {
    if fits_i32(u.bounds()) { DType::I32 } else { DType::I64 }
}

impl Legal<'_> {
    /// Whether an op stays a node.
    pub(crate) fn has(&self, op: Op) -> bool {
        self.target.native.contains(op)
    }

    /// An op that every target has, folded on constants.
    pub(crate) fn primitive(&self, op: Op, src: &[UOp]) -> UOp {
        alu(op, src)
    }

    /// CAST between machine types.
    pub(crate) fn converted(&self, x: &UOp, to: DType) -> UOp {
        cast(x, to)
    }

    /// BITCAST between machine types of one width.
    pub(crate) fn reinterpreted(&self, x: &UOp, to: DType) -> UOp {
        bitcast(x, to)
    }

    /// a·b + c, rounded once where the target can.
    pub(crate) fn fused(&self, a: &UOp, b: &UOp, c: &UOp) -> UOp {
        match self.has(Op::MulAcc) {
            true => alu(Op::MulAcc, &[a.clone(), b.clone(), c.clone()]),
            false => alu(Op::Add, &[alu(Op::Mul, &[a.clone(), b.clone()]), c.clone()]),
        }
    }

    /// The dtype in which a value of `d` is computed.
    pub(super) fn held(&self, d: DType) -> DType {
        if d.is_float() && d.compute_type() != d && !self.target.arithmetic.contains(&d) {
            DType::F32
        } else {
            d
        }
    }

    fn node(&self, u: &UOp, src: Srcs) -> Result<UOp> {
        Ok(match u.op() {
            Op::Const => match u.arg() {
                Arg::Const(Scalar::Invalid, _) => {
                    return Err(bad("the invalid index outside the gate of an access"));
                }
                Arg::Const(v, DType::Index) => UOp::constant(*v, width(u)),
                Arg::Const(v, d) => UOp::constant(*v, self.held(*d)),
                _ => u.clone(),
            },
            Op::Param | Op::Buffer => self.storage(u),
            // The extents of shapes are not values.
            Op::Reshape | Op::Expand => node(u.op(), [src[0].clone(), u.src()[1].clone()]),
            Op::Stack => {
                let wide = src.iter().any(|s| s.dtype() == DType::I64);
                let d = if u.dtype() == DType::Index && wide {
                    DType::I64
                } else {
                    src.first().map_or(DType::I32, UOp::dtype)
                };
                u.with_src(src.iter().map(|s| cast(s, d)).collect::<Srcs>())
            }
            Op::Range | Op::Special => {
                let bound = cast(&src[0], width(&u.src()[0]));
                u.with_src(smallvec![bound] as Srcs)
            }
            Op::Load => {
                let d = u.dtype();
                let mut src = src;
                if src.len() > 1 {
                    src[1] = self.encode(&src[1], d);
                }
                let value = UOp::new(Op::Load, src, u.arg().clone());
                self.decode(&value, d)
            }
            Op::Store => {
                let mut src = src;
                src[1] = self.encode(&src[1], u.src()[0].dtype());
                UOp::new(Op::Store, src, Arg::None)
            }
            Op::Cast => self.convert(&src[0], &u.src()[0], u),
            Op::Bitcast => {
                let (from, to) = (u.src()[0].dtype(), u.dtype());
                let bits = self.encode(&src[0], from);
                self.decode(&same_width(&bits, self.stored(to)), to)
            }
            Op::Reduce => self.reduce(u, src),
            Op::Wmma => {
                let Arg::Wmma(info) = u.arg() else { return Err(bad("WMMA without a matrix unit")) };
                let src: Srcs = smallvec![
                    cast(&src[0], info.dtype_in),
                    cast(&src[1], info.dtype_in),
                    cast(&src[2], info.dtype_out)
                ];
                cast(&u.with_src(src), self.held(u.dtype()))
            }
            op if op.is_elementwise() => self.elementwise(u, &src)?,
            Op::Contiguous | Op::Detach | Op::ContiguousBackward => src[0].clone(),
            _ => u.with_src(src),
        })
    }

    /// PARAM and BUFFER in the type that memory has; variables in the width of their interval.
    fn storage(&self, u: &UOp) -> UOp {
        let Some(b) = u.buffer_arg() else { return u.clone() };
        let dtype = match b.addrspace {
            None if b.dtype == DType::Index => width(u),
            Some(AddrSpace::Reg) => self.held(b.dtype),
            _ => self.stored(b.dtype),
        };
        if dtype == b.dtype {
            u.clone()
        } else {
            u.with_arg(Arg::Buffer(monoglot_uop::BufferArg { dtype, ..*b }))
        }
    }

    fn reduce(&self, u: &UOp, src: Srcs) -> UOp {
        let (d, mut src) = (u.dtype(), src);
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
            s[values..].iter_mut().for_each(|x| *x = cast(x, want));
        }
        let interval = |i: usize| old.get(i).map_or((0, 0), UOp::bounds);
        let new = match u.op() {
            _ if d == DType::Bool && u.op() != Op::Where => self.logic(u.op(), &s)?,
            Op::Idiv if !d.is_float() => self.idiv(&s[0], &s[1], interval(0), interval(1)),
            Op::Mod if !d.is_float() => self.modulo(&s[0], &s[1], interval(0), interval(1)),
            Op::Shl | Op::Shr => self.shift(u.op(), &s[0], &s[1], interval(1)),
            Op::Pow if !d.is_float() => self.int_pow(&s[0], &s[1], interval(1)),
            Op::Trunc if !d.is_float() => s[0].clone(),
            op => self.op(op, &s)?,
        };
        let exact = matches!(u.op(), Op::Neg | Op::Max | Op::Where | Op::Trunc) || u.op().is_comparison();
        Ok(if exact { new } else { self.round(&new, d) })
    }

    /// An elementwise op on machine types, out of native ones.
    pub(crate) fn op(&self, op: Op, s: &[UOp]) -> Result<UOp> {
        let d = s[0].dtype();
        Ok(match op {
            Op::Threefry => decompose::threefry(self, &s[0], &s[1]),
            Op::Idiv if d.is_float() => self.floor(&self.op(Op::Div, s)?)?,
            Op::Mod if d.is_float() => self.float_mod(&s[0], &s[1])?,
            op if self.has(op) => alu(op, s),
            Op::Neg if d.is_float() => alu(Op::Mul, &[s[0].clone(), UOp::float(-1.0, d)]),
            Op::Neg => self.minus(&UOp::int(0, d), &s[0]),
            Op::Sub => self.minus(&s[0], &s[1]),
            Op::Not => alu(Op::Xor, &[s[0].clone(), UOp::int(-1, d)]),
            Op::Div => alu(Op::Mul, &[s[0].clone(), self.op(Op::Recip, &s[1..])?]),
            Op::Recip => alu(Op::Div, &[UOp::float(1.0, d), s[0].clone()]),
            Op::CmpGt => alu(Op::CmpLt, &[s[1].clone(), s[0].clone()]),
            Op::CmpEq => self.equal(&s[0], &s[1]),
            Op::CmpLe | Op::CmpGe => {
                let (a, b) = if op == Op::CmpLe { (&s[0], &s[1]) } else { (&s[1], &s[0]) };
                if d.is_float() {
                    alu(Op::Or, &[alu(Op::CmpLt, &[a.clone(), b.clone()]), self.equal(a, b)])
                } else {
                    self.not(&alu(Op::CmpLt, &[b.clone(), a.clone()]))
                }
            }
            Op::MulAcc => self.fused(&s[0], &s[1], &s[2]),
            Op::Exp2 | Op::Log2 | Op::Sin | Op::Sqrt | Op::Pow => {
                decompose::transcendental(self, op, s).ok_or_else(|| unsupported(op))?
            }
            // The rest are what every target has.
            Op::Add | Op::Mul | Op::CmpLt | Op::CmpNe | Op::And | Op::Or | Op::Xor | Op::Where => alu(op, s),
            Op::Max => alu(Op::Where, &[self.not_less_or_nan(&s[0], &s[1]), s[0].clone(), s[1].clone()]),
            op => return Err(unsupported(op)),
        })
    }

    /// Bools by the truth tables of `fold`.
    fn logic(&self, op: Op, s: &[UOp]) -> Result<UOp> {
        let not = |x: &UOp| self.not(x);
        Ok(match op {
            Op::Add | Op::Or | Op::Max => alu(Op::Or, s),
            Op::Mul | Op::And | Op::Idiv => alu(Op::And, s),
            Op::Xor | Op::CmpNe => alu(Op::Xor, s),
            Op::CmpEq => not(&alu(Op::Xor, s)),
            Op::Not => not(&s[0]),
            Op::Neg | Op::Trunc => s[0].clone(),
            Op::Mod | Op::CmpGt => alu(Op::And, &[s[0].clone(), not(&s[1])]),
            Op::CmpLt => alu(Op::And, &[not(&s[0]), s[1].clone()]),
            Op::CmpLe => alu(Op::Or, &[not(&s[0]), s[1].clone()]),
            Op::CmpGe => alu(Op::Or, &[s[0].clone(), not(&s[1])]),
            Op::MulAcc => alu(Op::Or, &[alu(Op::And, &s[..2]), s[2].clone()]),
            op => return Err(unsupported(op)),
        })
    }

    pub(super) fn not(&self, x: &UOp) -> UOp {
        if self.has(Op::Not) {
            alu(Op::Not, std::slice::from_ref(x))
        } else {
            alu(Op::Xor, &[x.clone(), UOp::bool(true)])
        }
    }

    pub(super) fn equal(&self, a: &UOp, b: &UOp) -> UOp {
        let s = [a.clone(), b.clone()];
        if self.has(Op::CmpEq) { alu(Op::CmpEq, &s) } else { self.not(&alu(Op::CmpNe, &s)) }
    }

    pub(crate) fn minus(&self, a: &UOp, b: &UOp) -> UOp {
        if self.has(Op::Sub) {
            return alu(Op::Sub, &[a.clone(), b.clone()]);
        }
        alu(Op::Add, &[a.clone(), alu(Op::Mul, &[b.clone(), UOp::constant(Scalar::Int(-1), b.dtype())])])
    }

    fn not_less_or_nan(&self, a: &UOp, b: &UOp) -> UOp {
        let not_less = self.not(&alu(Op::CmpLt, &[a.clone(), b.clone()]));
        if !a.dtype().is_float() {
            return not_less;
        }
        // a where a is NaN; b where only b is.
        let b_fine = self.equal(b, b);
        alu(Op::Or, &[alu(Op::And, &[not_less, b_fine]), alu(Op::CmpNe, &[a.clone(), a.clone()])])
    }

    fn floor(&self, x: &UOp) -> Result<UOp> {
        let t = self.op(Op::Trunc, std::slice::from_ref(x))?;
        let less = alu(Op::Add, &[t.clone(), UOp::float(-1.0, x.dtype())]);
        Ok(alu(Op::Where, &[alu(Op::CmpLt, &[x.clone(), t.clone()]), less, t]))
    }

    /// The float remainder with the divisor's sign; exact while the quotient is an integer of the format.
    fn float_mod(&self, a: &UOp, b: &UOp) -> Result<UOp> {
        let zero = UOp::float(0.0, a.dtype());
        let less = |x: &UOp, y: &UOp| alu(Op::CmpLt, &[x.clone(), y.clone()]);
        let add = |x: &UOp, y: &UOp| alu(Op::Add, &[x.clone(), y.clone()]);
        let minus = |x: &UOp| self.minus(&UOp::float(-0.0, a.dtype()), x);
        let abs = |x: &UOp| alu(Op::Where, &[less(x, &zero), minus(x), x.clone()]);
        let q = self.op(Op::Trunc, &[self.op(Op::Div, &[a.clone(), b.clone()])?])?;
        let r = self.fused(&minus(&q), b, a);
        // The rounded quotient may be one too far from zero.
        let size = abs(b);
        let step = alu(Op::Where, &[less(a, &zero), minus(&size), size.clone()]);
        let over = alu(Op::Where, &[less(a, &zero), less(&zero, &r), less(&r, &zero)]);
        let r = alu(Op::Where, &[over, add(&r, &step), r]);
        let small = alu(Op::And, &[self.equal(&q, &zero), less(&abs(a), &size)]);
        let r = alu(Op::Where, &[small, a.clone(), r]);
        let apart = alu(Op::Xor, &[less(&r, &zero), less(b, &zero)]);
        let fix = alu(Op::And, &[alu(Op::CmpNe, &[r.clone(), zero.clone()]), apart]);
        Ok(alu(Op::Where, &[fix, add(&r, b), r]))
    }

    /// CAST between dtypes as they are held.
    fn convert(&self, x: &UOp, old: &UOp, u: &UOp) -> UOp {
        let (from, to) = (old.dtype(), u.dtype());
        match to {
            DType::Index => {
                let exact = from.is_int() || from == DType::Bool;
                cast(x, if exact && fits_i32(old.bounds()) { DType::I32 } else { DType::I64 })
            }
            DType::Bool => alu(Op::CmpNe, &[x.clone(), UOp::constant(x.dtype().zero(), x.dtype())]),
            to if self.held(to) != to => self.narrow(x, from, to),
            to => cast(x, to),
        }
    }
}

fn same_width(x: &UOp, to: DType) -> UOp {
    if x.dtype() == to { x.clone() } else { bitcast(x, to) }
}

fn bad(message: &str) -> Error {
    ErrorKind::Verify { stage: "select".into(), message: message.into() }.into()
}

fn unsupported(op: Op) -> Error {
    ErrorKind::Unsupported { op: op.name().into(), message: "the target has no such operation".into() }.into()
}
