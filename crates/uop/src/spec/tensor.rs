//! The tensor graph's spec: what users write, before and after Callify.
//!
//! 1. Only ops of the tensor language occur: no RANGE, END, LOCAL or REG storage, nothing of codegen
//!    (a CALL's body is another stage's); no tags; args fit; a CONST is a value of its dtype, and no
//!    CONST is INVALID.
//! 2. Operands of an elementwise op have its shape; only a CONST of shape () is exempt.
//! 3. A BUFFER is GLOBAL and has a device; a PARAM is GLOBAL, or an `index` variable of shape ().
//! 4. Shapes and offsets are vectors of integers, and sizes are not negative.
//! 5. REDUCE folds axes, ascending, and closes no ranges. FLIP's flags are within the rank. PAD's fill is
//!    a value of its dtype.
//! 6. A STORE goes to GLOBAL storage or a view of it, of the value's dtype and shape (a CONST is exempt);
//!    its gate is bool.
//! 7. Effects are sources only of what orders effects; what AFTER, GROUP and SINK order are effects, or
//!    values to be realized.
//! 8. FUNCTION's body is a TUPLE; each PARAM of it has an argument of its dtype and, where both are
//!    known, its shape. A CALL's body is a TUPLE, a kernel, a PROGRAM, a CUSTOMFUNCTION, or a copy.
//! 9. GETTUPLE takes from a TUPLE, a FUNCTION or a CALL.
//! 10. COPY names a device. CAST and BITCAST are to a dtype that has values.

use super::{Check, Walk, is_dims};
use crate::arg::{AddrSpace, Arg};
use crate::dtype::DType;
use crate::node::UOp;
use crate::op::{Group, Op, OpSet};
use crate::scalar::Scalar;
use crate::shape::Shape;
use rustc_hash::FxHashMap;
use std::sync::OnceLock;

fn ops() -> OpSet {
    static OPS: OnceLock<OpSet> = OnceLock::new();
    *OPS.get_or_init(|| {
        OpSet::filter(|op| match op.group() {
            Group::Codegen => false,
            Group::Ordering => matches!(op, Op::After | Op::Group | Op::Sink),
            _ => true,
        })
    })
}

/// Bodies of a CALL that another spec covers.
const COMPILED: OpSet =
    OpSet::of(&[Op::Sink, Op::Program, Op::CustomFunction, Op::Copy, Op::Load, Op::Store]);

/// What a tensor graph's walk enters: not the compiled bodies of CALLs.
fn sources(u: &UOp) -> &[UOp] {
    let skip = (u.op() == Op::Call && COMPILED.contains(u.src()[0].op())) as usize;
    &u.src()[skip..]
}

pub(super) fn check(c: &mut Check) {
    let walk = Walk::new(std::slice::from_ref(c.root), sources);
    let mut bodies: FxHashMap<usize, Vec<&UOp>> = FxHashMap::default();
    for &u in &walk.nodes {
        c.any(u, ops());
        node(c, u);
        if u.op().is_elementwise() && !u.shape().is_empty() {
            for s in u.src().iter().filter(|s| s.shape().is_empty() && s.op() != Op::Const) {
                let name = s.op().name();
                c.fault(u, format!("an operand of shape () is a {name}; only a CONST may be, others EXPAND"));
            }
        }
        if matches!(u.op(), Op::Function | Op::Call) {
            call(c, u, &mut bodies);
        }
    }
}

fn node<'a>(c: &mut Check<'a>, u: &'a UOp) {
    match (u.op(), u.arg()) {
        (Op::Const, _) if u.is_invalid() => c.fault(u, "INVALID belongs in the indices of kernels"),
        (Op::Buffer, Arg::Buffer(b)) => {
            if b.addrspace != Some(AddrSpace::Global) {
                c.fault(u, "a tensor's storage is GLOBAL");
            }
            if b.device.is_none() {
                c.fault(u, "a BUFFER has a device");
            }
            dims(c, u, 0, "shape");
        }
        (Op::Param, Arg::Buffer(b)) => {
            let variable = b.addrspace.is_none() && b.dtype == DType::Index && u.shape().is_empty();
            if !variable && b.addrspace != Some(AddrSpace::Global) {
                c.fault(u, "a PARAM is GLOBAL, or an index variable of shape ()");
            }
            dims(c, u, 0, "shape");
        }
        (Op::Reshape | Op::Expand, _) => dims(c, u, 1, "shape"),
        (Op::Pad | Op::Shrink, _) => {
            dims(c, u, 1, "offset");
            dims(c, u, 2, "shape");
            if let Arg::Fill(v) = u.arg() {
                let typed = match v {
                    Scalar::Bool(_) => u.dtype() == DType::Bool,
                    Scalar::Int(_) => u.dtype().is_int(),
                    Scalar::Float(_) => u.dtype().is_float(),
                    Scalar::Invalid => false,
                };
                if !typed {
                    c.fault(u, format!("the fill {v:?} is no value of {}", u.dtype()));
                }
            }
        }
        (Op::Flip, Arg::Flags(bits)) if u.shape().len() < 64 && bits >> u.shape().len() != 0 => {
            c.fault(u, format!("it flips an axis beyond its {} axes", u.shape().len()));
        }
        (Op::Reduce, Arg::Reduce(_, axes)) => {
            if u.src().len() > 1 {
                c.fault(u, "a tensor is reduced over axes, not ranges");
            }
            if !axes.windows(2).all(|w| w[0] < w[1]) {
                c.fault(u, format!("the axes {axes:?} do not ascend"));
            }
        }
        (Op::Store, _) => store(c, u),
        (Op::After | Op::Group | Op::Sink, _) => {
            let skip = (u.op() == Op::After) as usize;
            if u.op() == Op::After && u.dtype() == DType::Void {
                c.fault(u, "AFTER gives a value");
            }
            if u.op() != Op::Sink && u.src()[skip..].iter().any(|s| s.op() == Op::Const) {
                c.fault(u, "a CONST is no effect to wait for");
            }
        }
        (Op::GetTuple, _) if !matches!(u.src()[0].op(), Op::Tuple | Op::Function | Op::Call) => {
            c.fault(u, format!("{} is no tuple", u.src()[0].op().name()));
        }
        (Op::Copy, Arg::Place(None, _)) => c.fault(u, "COPY names no device"),
        (Op::Cast | Op::Bitcast, Arg::DType(DType::Void)) => c.fault(u, "void has no values"),
        _ => {}
    }
}

fn dims<'a>(c: &mut Check<'a>, u: &'a UOp, i: usize, what: &str) {
    let Some(s) = u.src().get(i) else { return };
    if !is_dims(s) {
        return c.fault(u, format!("the {what} is no vector of integers"));
    }
    let parts = if s.op() == Op::Stack { s.src() } else { std::slice::from_ref(s) };
    if parts.iter().any(|d| d.vmin() < 0) {
        c.fault(u, format!("the {what} may be negative"));
    }
}

fn store<'a>(c: &mut Check<'a>, u: &'a UOp) {
    let (to, value) = (&u.src()[0], &u.src()[1]);
    if to.addrspace() != Some(AddrSpace::Global) {
        c.fault(u, "a STORE goes to storage or a view of it");
    }
    if to.dtype() != value.dtype() {
        c.fault(u, format!("a {} is stored as {}", value.dtype(), to.dtype()));
    }
    if to.shape() != value.shape() && value.op() != Op::Const {
        c.fault(u, format!("shape {} is stored into shape {}", value.shape(), to.shape()));
    }
    if u.src().get(2).is_some_and(|g| g.dtype() != DType::Bool) {
        c.fault(u, "the gate is no bool");
    }
}

/// The body, and its PARAMs against the arguments.
fn call<'a>(c: &mut Check<'a>, u: &'a UOp, bodies: &mut FxHashMap<usize, Vec<&'a UOp>>) {
    let (body, args) = (&u.src()[0], &u.src()[1..]);
    let compiled = COMPILED.contains(body.op());
    if body.op() != Op::Tuple && !(u.op() == Op::Call && compiled) {
        return c.fault(u, format!("{} cannot be its body", body.op().name()));
    }
    if compiled {
        return;
    }
    let params = bodies.entry(body.address()).or_insert_with(|| params(body));
    let mut faults = Vec::new();
    for p in params.iter() {
        let Some(b) = p.buffer_arg() else { continue };
        let Some(arg) = args.get(b.slot as usize) else {
            faults.push(format!("PARAM {} of the body has no argument", b.slot));
            continue;
        };
        if arg.dtype() != p.dtype() {
            faults.push(format!("argument {} is {}, its PARAM {}", b.slot, arg.dtype(), p.dtype()));
        }
        if !may_equal(arg.shape(), p.shape()) {
            faults.push(format!("argument {} has shape {}, its PARAM {}", b.slot, arg.shape(), p.shape()));
        }
    }
    faults.into_iter().for_each(|f| c.fault(u, f));
}

fn may_equal(a: &Shape, b: &Shape) -> bool {
    a.len() == b.len()
        && a.iter().zip(b.iter()).all(|(a, b)| match (a.as_int(), b.as_int()) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        })
}

/// The PARAMs that belong to a body: not those inside the bodies of calls in it.
pub(super) fn params(body: &UOp) -> Vec<&UOp> {
    const CALLS: OpSet = OpSet::of(&[Op::Function, Op::Call]);
    let own = |u: &'_ UOp| CALLS.contains(u.op()) as usize;
    let walk = Walk::new(std::slice::from_ref(body), |u| &u.src()[own(u)..]);
    walk.nodes.into_iter().filter(|u| u.op() == Op::Param).collect()
}
