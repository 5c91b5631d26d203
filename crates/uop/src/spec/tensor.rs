//! The tensor graph's spec: what users write, before and after Callify. Flows in: a graph at this
//! border; flows out: `Tensors`, or every fault that it has.
//!
//! 1. Only ops of the tensor language occur: no RANGE, END, LOCAL or REG storage, nothing of codegen
//!    (a CALL's body is another stage's); no tags; args fit; a CONST is a value of its dtype. INVALID
//!    occurs as in kernels: in the indices of an INDEX.
//! 2. Operands of an elementwise op have its shape; only constants and variables of shape () are exempt.
//! 3. A BUFFER is GLOBAL and has a device; a PARAM is GLOBAL, or a variable of shape (): an `index` with
//!    bounds, or of another dtype without. Slots are keys: PARAMs of one slot are one node, but for
//!    variables that are bound. Those of a function number its arguments.
//! 4. A value has at most 64 axes. Shapes and offsets are vectors of numbers that are known before anything runs, constants or
//!    arithmetic on variables in `index`, and sizes are not negative.
//! 5. REDUCE folds axes, ascending, and closes no ranges. FLIP's flags are within the rank. PAD's fill is
//!    a value of its dtype.
//! 6. A STORE goes to GLOBAL storage, to what its AFTER names, or to a view of either that shows no element
//!    twice (no EXPAND, STACK or INDEX), of the value's dtype and shape (a CONST is exempt); its gate is bool.
//! 7. Effects are sources only of what orders effects; what AFTER, GROUP and SINK order are effects, or
//!    values to be realized. AFTER waits for something.
//! 8. FUNCTION's body is a TUPLE; each PARAM of it has an argument of its dtype and, where both are
//!    known, its shape; of a scan the slices have its length, and the next carries are like the carries. A CALL's
//!    body is a TUPLE, a kernel, a PROGRAM, a CUSTOMFUNCTION, or a copy.
//!    The arguments of a CUSTOMFUNCTION are its outputs and then its inputs; its kernel obeys the kernel's
//!    spec, stores to each output, and reads what it has written only after something (AFTER).
//! 9. GETTUPLE takes from a TUPLE, a FUNCTION or a CALL.
//! 10. COPY names a device. CAST and BITCAST are to a dtype that has values.
//! 11. No value of dtype `index` is kept: no BUFFER, CONTIGUOUS, COPY or root is of it.

use super::kernel::{self, invalid};
use super::{Verifier, is_stored, is_value, need, ops_of};
use crate::arg::{AddrSpace, Arg};
use crate::dtype::DType;
use crate::function::own_sources;
use crate::graph::ordered;
use crate::node::UOp;
use crate::op::{Op, OpSet};
use crate::own::{FunctionBody, FunctionInfo};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::written::written;
use rustc_hash::{FxHashMap, FxHashSet};
use std::slice::from_ref;

/// Bodies of a CALL that another spec covers.
pub(super) const COMPILED: OpSet = {
    use Op::*;
    OpSet::of(&[Sink, Program, CustomFunction, Copy, Load, Store])
};

/// Ops whose value no constant gives.
const DATA: OpSet = OpSet::of(&[Op::Buffer, Op::Function, Op::Call]);

/// Whether this is a value of what is in storage, not of constants and variables alone.
fn is_data(u: &UOp) -> bool {
    u.ops_below().intersects(DATA) || u.device().is_some() || u.addrspace().is_some()
}

/// What a tensor graph's walk enters: not the compiled bodies of CALLs.
fn sources(u: &UOp) -> &[UOp] {
    let skip = (u.op() == Op::Call && COMPILED.contains(u.src()[0].op())) as usize;
    &u.src()[skip..]
}

pub(super) fn check(c: &mut Verifier) {
    let ops = ops_of('t');
    let root = c.root;
    let mut own: Vec<&UOp> = Vec::new();
    let calls = root.ops_below().contains(Op::Function) || root.ops_below().contains(Op::Call);
    if calls {
        own = params(root);
    }
    let kept = if root.op() == Op::Sink {
        root.src()
    } else {
        from_ref(root)
    };
    for u in kept.iter().filter(|u| u.dtype() == DType::Index) {
        c.fault(u, "a value of dtype index is no root");
    }
    let mut bodies: FxHashMap<usize, Vec<&UOp>> = FxHashMap::default();
    for u in ordered(from_ref(c.root), sources) {
        c.any(u, ops);
        invalid(c, u);
        node(c, u);
        if u.op() == Op::Param && !calls {
            own.push(u);
        }
        for store in u.src().iter().filter(|s| s.op() == Op::Store) {
            let to = &store.src()[0];
            let own = u.op() == Op::After && to.views_of(&u.src()[0]).is_some();
            let stored = matches!(to.viewed().op(), Op::Buffer | Op::Param);
            let fits = own || stored && to.addrspace() == Some(AddrSpace::Global);
            need!(c, u, fits =>
                "a STORE goes to storage, to what its AFTER names, or to a view of it");
            let mut view = to;
            while view.op().is_movement() && *view != u.src()[0] {
                let once = !matches!(view.op(), Op::Expand | Op::Stack | Op::Index);
                let name = view.op().name();
                need!(c, u, once => "a STORE through {name}, which may show an element twice");
                let Some(below) = view.src().first() else {
                    break;
                };
                view = below;
            }
        }
        if u.op().is_elementwise() && !u.shape().is_empty() {
            let single = |s: &&UOp| s.shape().is_empty() && is_data(s);
            for s in u.src().iter().filter(single) {
                let name = s.op().name();
                c.fault(
                    u,
                    format!(
                        "an operand of shape () is a {name}; only a constant or a variable may be, others EXPAND"
                    ),
                );
            }
        }
        if matches!(u.op(), Op::Function | Op::Call) {
            call(c, u, &mut bodies);
        }
    }
    slots(c, &own);
}

/// The slots of the graph's own PARAMs.
fn slots<'a>(c: &mut Verifier<'a>, params: &[&'a UOp]) {
    let mut taken: FxHashSet<u64> = FxHashSet::default();
    for u in params.iter().filter(|u| u.bound_to().is_none()) {
        let Some(b) = u.buffer_arg() else { continue };
        let slot = b.slot;
        need!(c, u, taken.insert(slot) => "another PARAM has slot {slot} too");
        if let Some(most) = c.arguments.filter(|&most| slot >= most) {
            c.fault(u, format!("slot {slot} of a function of {most} arguments"));
        }
    }
}

fn node<'a>(c: &mut Verifier<'a>, u: &'a UOp) {
    use Op::*;
    let s = u.src();
    let rank = u.shape().len();
    need!(c, u, rank <= 64 => "{rank} axes, where 64 are the most");
    match (u.op(), u.arg()) {
        (Buffer, Arg::Buffer(b)) => {
            need!(c, u, b.addrspace == Some(AddrSpace::Global) => "a tensor's storage is GLOBAL");
            need!(c, u, b.device.is_some() => "a BUFFER has a device");
            need!(c, u, is_stored(b.dtype) => "a BUFFER of {}", b.dtype);
            c.dims(u, 0, "shape");
        }
        (Param, _) => c.param(u),
        (Reshape | Expand, _) => c.dims(u, 1, "shape"),
        (Pad | Shrink, _) => {
            c.dims(u, 1, "offset");
            c.dims(u, 2, "shape");
            if let Arg::Fill(v) = u.arg() {
                let typed = is_value(*v, u.dtype()) && *v != Scalar::Invalid;
                need!(c, u, typed => "the fill {v:?} is no value of {}", u.dtype());
            }
        }
        (Flip, Arg::Flags(bits)) => {
            need!(c, u, rank > 63 || bits >> rank == 0 =>
                "it flips an axis beyond its {rank} axes");
        }
        (Reduce, Arg::Reduce(_, axes)) => {
            need!(c, u, s.len() == 1 => "a tensor is reduced over axes, not ranges");
            need!(c, u, axes.is_sorted_by(|a, b| a < b) => "the axes {axes:?} do not ascend");
        }
        (Store, _) => store(c, u),
        (After | Group, _) => {
            need!(c, u, u.op() == Group || u.dtype() != DType::Void => "AFTER gives a value");
            let waits = &s[(u.op() == After) as usize..];
            need!(c, u, u.op() == Group || !waits.is_empty() => "AFTER waits for nothing");
            need!(c, u, waits.iter().all(|s| s.op() != Const) =>
                "a CONST is no effect to wait for");
        }
        (GetTuple, _) => {
            need!(c, u, matches!(s[0].op(), Tuple | Function | Call) =>
                "{} is no tuple", s[0].op().name());
        }
        (Copy | Contiguous, arg) => {
            let named = !matches!(arg, Arg::Place(None, _));
            need!(c, u, named => "COPY names no device");
            let name = u.op().name();
            need!(c, u, is_stored(u.dtype()) => "{name} of {}", u.dtype());
        }
        (Cast | Bitcast, Arg::DType(d)) => need!(c, u, *d != DType::Void => "void has no values"),
        _ => {}
    }
}

fn store<'a>(c: &mut Verifier<'a>, u: &'a UOp) {
    let to = &u.src()[0];
    let value = &u.src()[1];
    let one = value.op() == Op::Const || value.is_variable();
    let fits = to.shape() == value.shape() || one;
    need!(c, u, fits => "shape {} is stored into shape {}", value.shape(), to.shape());
    c.stored(u);
}

/// The body, and its PARAMs against the arguments.
fn call<'a>(c: &mut Verifier<'a>, u: &'a UOp, bodies: &mut FxHashMap<usize, Vec<&'a UOp>>) {
    let body = &u.src()[0];
    let compiled = COMPILED.contains(u.src()[0].op());
    if body.op() != Op::Tuple && !(u.op() == Op::Call && compiled) {
        return c.fault(u, format!("{} cannot be its body", body.op().name()));
    }
    if let Some(info) = FunctionInfo::of(body) {
        own(c, u, info);
    }
    if compiled {
        return;
    }
    scan(c, u);
    for p in bodies.entry(body.address()).or_insert_with(|| params(body)) {
        let Some((k, arg)) = argument(c, u, p) else {
            continue;
        };
        let has = &taken_apart(u, k as usize, arg.shape());
        let wants = p.shape();
        need!(c, u, may_equal(has, wants) => "argument {k} has shape {has}, its PARAM {wants}");
    }
}

/// What a FUNCTION that is called again and again takes and gives.
fn scan<'a>(c: &mut Verifier<'a>, u: &'a UOp) {
    let Arg::Scan(info) = u.arg() else { return };
    let arguments = u.src().len() - 1;
    let apart = info.carries.checked_add(info.slices);
    let fits = info.length > 0
        && apart.is_some_and(|n| n <= arguments)
        && info.carries <= u.src()[0].src().len();
    need!(c, u, fits => "{info:?} of {arguments} arguments");
    if !fits {
        return;
    }
    for (k, (carry, next)) in u.src()[1..=info.carries]
        .iter()
        .zip(u.src()[0].src())
        .enumerate()
    {
        let same = carry.dtype() == next.dtype() && may_equal(carry.shape(), next.shape());
        need!(c, u, same => "carry {k} is {}{}, and then {}{}",
            carry.dtype(), carry.shape(), next.dtype(), next.shape());
    }
    for slice in &u.src()[1 + info.carries..1 + info.carries + info.slices] {
        let long = slice.shape().first().is_some_and(|d| d.is(info.length));
        need!(c, u, long => "a slice of shape {} for {} times", slice.shape(), info.length);
    }
}

/// The shape of argument k as the body sees it.
fn taken_apart(call: &UOp, k: usize, shape: &Shape) -> Shape {
    match call.arg() {
        Arg::Scan(info) if k >= info.carries && k < info.carries + info.slices => {
            Shape::new(shape.iter().skip(1).cloned())
        }
        _ => shape.clone(),
    }
}

/// A CALL of a CUSTOMFUNCTION: outputs first, each argument as the kernel has it.
fn own<'a>(c: &mut Verifier<'a>, u: &'a UOp, info: &'a FunctionInfo) {
    let Arg::Call(call) = u.arg() else {
        return c.fault(u, "a CALL says what it writes and reads");
    };
    let outs = call.outs.len();
    let all = call.outs.iter().chain(&call.ins);
    let ordered = all.copied().eq(0..u.src().len() - 1) && outs > 0;
    need!(c, u, ordered => "its arguments are the outputs, at least one, and then the inputs");
    need!(c, u, info.begins.iter().all(|&k| k < outs) => "an output is told of that is none");
    for s in u.src()[1..]
        .iter()
        .filter(|s| !is_stored(s.dtype()) && !s.is_variable())
    {
        c.fault(u, format!("an argument is of {}", s.dtype()));
    }
    let FunctionBody::Kernel(kernel) = &info.body else {
        return;
    };
    let root = std::mem::replace(&mut c.root, kernel);
    kernel::check_own(c);
    c.root = root;
    for p in params(kernel) {
        let Some((k, arg)) = argument(c, u, p) else {
            continue;
        };
        let has = arg.shape();
        let wants = p.shape();
        need!(c, u, has.max_len() == wants.max_len() =>
            "argument {k} has shape {has}, its PARAM {wants}");
        let there = p.addrspace().is_none() || p.device() == Some(info.device);
        need!(c, u, there => "PARAM {k} is not on the device of the function");
    }
    if let Err(why) = written(kernel, outs) {
        c.fault(u, why);
    }
}

/// The number and argument of a PARAM of the body of a call.
pub(super) fn argument<'a>(c: &mut Verifier<'a>, call: &'a UOp, p: &UOp) -> Option<(u64, &'a UOp)> {
    let slot = p.buffer_arg()?.slot;
    let arg = call.src()[1..].get(slot as usize);
    need!(c, call, arg.is_some() => "PARAM {slot} of the body has no argument");
    let arg = arg?;
    need!(c, call, arg.dtype() == p.dtype() =>
        "argument {slot} is {}, its PARAM {}", arg.dtype(), p.dtype());
    Some((slot, arg))
}

fn may_equal(a: &Shape, b: &Shape) -> bool {
    let known = |(a, b): (&crate::Dim, &crate::Dim)| a.as_int().zip(b.as_int());
    let mut both = a.iter().zip(b.iter()).filter_map(known);
    a.len() == b.len() && both.all(|(a, b)| a == b)
}

/// The PARAMs that belong to a body: not those inside the bodies of calls in it.
pub(super) fn params(body: &UOp) -> Vec<&UOp> {
    let nodes = ordered(from_ref(body), own_sources);
    nodes.into_iter().filter(|u| u.op() == Op::Param).collect()
}
