//! Instances of patterns: scalars of every dtype, with and without bounds, and small expressions of
//! them. Flows in: a pattern and a source of random numbers; flows out: nodes that it matches.

use monoglot_uop::rewrite::pattern::{MAX_VARS, Pat};
use monoglot_uop::{AddrSpace, Arg, AxisType, BufferArg, DType, Op, OpSet, Shape, UOp};

/// Numbers that look random, the same in every run, and what is to be made with them.
pub(crate) struct Random {
    state: u64,
    /// Dtypes of values, those more often that come more often.
    pub(crate) dtypes: &'static [DType],
    /// How deep expressions for a variable are.
    pub(crate) depth: usize,
}

impl Random {
    pub(crate) fn new(state: u64) -> Random {
        Random {
            state,
            dtypes: DTYPES,
            depth: 2,
        }
    }
    pub(crate) fn bits(&mut self) -> u64 {
        self.state += 1;
        monoglot_uop::fold::threefry(self.state, 0xc0ffee)
    }
    pub(crate) fn dtype(&mut self) -> DType {
        self.of(self.dtypes)
    }
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }
    pub(crate) fn within(&mut self, lo: i64, hi: i64) -> i64 {
        lo + self.below((hi - lo + 1) as usize) as i64
    }
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
    pub(crate) fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// Every dtype of a value; those in which most rules work come more often.
pub(crate) const DTYPES: &[DType] = &[
    DType::Index,
    DType::Index,
    DType::Index,
    DType::Index,
    DType::Bool,
    DType::Bool,
    DType::I8,
    DType::U8,
    DType::I32,
    DType::I32,
    DType::I16,
    DType::I64,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F32,
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::F8E4M3,
    DType::F8E5M2,
];

/// A leaf of any dtype: RANGE, or PARAM of shape () with or without bounds.
pub(crate) fn leaf(r: &mut Random, d: DType) -> UOp {
    let slot = r.below(3) as u64;
    if d == DType::Index {
        return match r.below(5) {
            0 | 1 => UOp::range(r.within(1, 12), slot as u32, AxisType::Loop),
            2 => UOp::variable(slot, -(r.below(10) as i64), r.below(10) as i64),
            3 => UOp::variable(slot, 1, r.within(1, 9)),
            _ => UOp::variable(slot, -(1 << 20), 1 << 20),
        };
    }
    if d.is_int() && r.chance(40) {
        let lo = if d.is_unsigned() {
            r.within(0, 4)
        } else {
            r.within(-6, 6)
        };
        return bounded(slot, d, lo, lo + r.within(1, 9));
    }
    UOp::param(slot, &Shape::SCALAR, d, None)
}

/// A scalar argument with bounds.
pub(crate) fn bounded(slot: u64, d: DType, lo: i64, hi: i64) -> UOp {
    let arg = BufferArg {
        slot,
        version: 1,
        dtype: d,
        device: None,
        addrspace: Some(AddrSpace::Global),
    };
    UOp::new(
        Op::Param,
        vec![UOp::dims(&[]), UOp::int(lo, d), UOp::int(hi, d)],
        Arg::Buffer(arg),
    )
}

/// A constant that is likely to matter.
pub(crate) fn constant(r: &mut Random, d: DType) -> UOp {
    match d {
        DType::Bool => UOp::bool(r.chance(50)),
        d if d.is_float() => {
            let v = r.of(&[
                0.0,
                -0.0,
                1.0,
                -1.0,
                0.5,
                2.0,
                3.0,
                -7.0,
                100.0,
                f64::INFINITY,
                f64::NAN,
                1e-3,
            ]);
            UOp::float(v, d)
        }
        d => {
            let v = match r.below(8) {
                0..4 => r.within(-3, 4),
                4 => r.within(-20, 20),
                5 => (1 << r.below(8)) - r.within(0, 1),
                6 if d == DType::Index => r.within(-(1 << 16), 1 << 16),
                6 => d.max().to_i128() as i64 - r.within(0, 1),
                _ if d == DType::Index => r.within(1, 12),
                _ => d.min().to_i128() as i64 + r.within(0, 1),
            };
            UOp::int(v, d)
        }
    }
}

/// A small expression.
pub(crate) fn expression(r: &mut Random, d: DType, depth: usize) -> UOp {
    if depth == 0 || r.chance(45) {
        return if r.chance(20) {
            constant(r, d)
        } else {
            leaf(r, d)
        };
    }
    match d {
        DType::Bool => {
            let from = r.dtype();
            let a = expression(r, from, depth - 1);
            let b = expression(r, from, depth - 1);
            match r.below(6) {
                0 => expression(r, DType::Bool, depth - 1).unary(Op::Not),
                1 => expression(r, DType::Bool, depth - 1) & expression(r, DType::Bool, depth - 1),
                2 => a.ne_(&b),
                3 => a.eq_(&b),
                4 => a.lt(&constant(r, from)),
                _ => a.lt(&b),
            }
        }
        d => {
            let a = expression(r, d, depth - 1);
            let b = expression(r, d, depth - 1);
            match r.below(12) {
                0 => a * constant(r, d),
                1 => a + constant(r, d),
                2 if d.is_int() => a / UOp::int(r.within(1, 12), d),
                3 if d.is_int() => a % UOp::int(r.within(1, 12), d),
                4 => a.max_(&b),
                5 => expression(r, DType::Bool, depth - 1).select(&a, &b),
                6 => {
                    let from = r.dtype();
                    expression(r, from, depth - 1).cast(d)
                }
                7 => a * constant(r, d) + b,
                8 if d.is_int() => a - b,
                9 => expression(r, DType::Bool, depth - 1).select(&constant(r, d), &constant(r, d)),
                _ => a + b,
            }
        }
    }
}

/// What a pattern's variables are, while it is instantiated.
pub(crate) type Bound = [Option<UOp>; MAX_VARS];

/// A scalar expression that fits the pattern's ops; None where the dice gave something ill-typed.
pub(crate) fn instance(p: &Pat, d: DType, r: &mut Random, bound: &mut Bound) -> Option<UOp> {
    match p {
        Pat::Literal(l) => Some(UOp::constant(*l, d)),
        Pat::Var(i, ops) => {
            if let Some(known) = &bound[*i] {
                return Some(known.clone());
            }
            let u = variable(*ops, d, r)?;
            bound[*i] = Some(u.clone());
            Some(u)
        }
        Pat::Node { ops, src, bind, .. } => {
            let list: Vec<Op> = Op::ALL
                .iter()
                .copied()
                .filter(|&op| ops.contains(op))
                .collect();
            let op = r.of(&list);
            let u = node(op, src, d, r, bound)?;
            if let Some(i) = bind {
                bound[*i] = Some(u.clone());
            }
            Some(u)
        }
    }
}

fn variable(ops: OpSet, d: DType, r: &mut Random) -> Option<UOp> {
    if ops.contains(Op::Add) {
        return Some(expression(r, d, r.depth));
    }
    if ops.contains(Op::Const) {
        let invalid = d == DType::Index && r.chance(15);
        return Some(if invalid {
            UOp::invalid()
        } else {
            constant(r, d)
        });
    }
    None
}

fn node(op: Op, src: &[Pat], d: DType, r: &mut Random, bound: &mut Bound) -> Option<UOp> {
    let (count, _) = op.arity();
    let compared = r.dtype();
    let arg = if matches!(op, Op::Cast | Op::Bitcast) {
        Arg::DType(d)
    } else {
        Arg::None
    };
    let want = |i: usize, r: &mut Random| match op {
        Op::Where if i == 0 => DType::Bool,
        Op::Cast => r.dtype(),
        Op::Bitcast => loop {
            let from = r.dtype();
            if from.bytes() == d.bytes() {
                break from;
            }
        },
        op if op.is_comparison() => compared,
        _ => d,
    };
    if op == Op::Range {
        let n = match src.first()? {
            Pat::Var(i, _) => {
                let n = UOp::index_const(r.within(1, 3));
                bound[*i] = Some(n.clone());
                n
            }
            _ => return None,
        };
        return Some(UOp::new(Op::Range, vec![n], Arg::Range(7, AxisType::Loop)));
    }
    if !meaningful(op, d) || !op.is_elementwise() && op != Op::Bitcast {
        return None;
    }
    let mut sources = Vec::new();
    for i in 0..count.max(src.len()) {
        let w = want(i, r);
        sources.push(match src.get(i) {
            Some(p) => instance(p, w, r, bound)?,
            // Sources that the pattern does not look at: often constants, or a rule about them never fires.
            None if r.chance(40) => constant(r, w),
            None => expression(r, w, r.depth),
        });
    }
    UOp::try_new(op, sources, arg).ok()
}

/// Whether the op gives values of this dtype.
pub(crate) fn meaningful(op: Op, d: DType) -> bool {
    match op {
        op if op.is_comparison() => d == DType::Bool,
        Op::Neg | Op::Idiv | Op::Mod | Op::MulAcc => d != DType::Bool,
        Op::Cast => true,
        op if op.is_elementwise() => op.traits().operands.take(d),
        _ => true,
    }
}

/// An index with divisions under a gate that bounds its ranges: chance alone hardly makes one.
pub(crate) fn gated(r: &mut Random) -> UOp {
    let i = UOp::range(r.within(2, 12), 0, AxisType::Loop);
    let j = UOp::range(r.within(2, 12), 1, AxisType::Loop);
    let c = |r: &mut Random| UOp::index_const(r.within(-2, 14));
    let affine = |r: &mut Random| &i * r.within(-3, 3) + &j * r.within(-1, 4) + r.within(-9, 9);
    let mut gate = affine(r).lt(&c(r)).simplify();
    for _ in 0..r.below(3) {
        gate = gate & c(r).lt(&affine(r)).simplify();
    }
    let mut index = affine(r) / r.within(2, 9);
    for _ in 0..r.below(3) {
        index = match r.below(3) {
            0 => index + affine(r) % r.within(2, 9),
            1 => index % r.within(2, 9),
            _ => (index + affine(r)).max_(&c(r)),
        };
    }
    gate.select(&index.simplify(), &UOp::invalid())
}
