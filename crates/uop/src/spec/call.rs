//! The specs of what holds compiled work: the schedule, a LINEAR of CALLs, and the PROGRAM.
//!
//! Schedule:
//! 1. The root is a LINEAR whose sources are CALLs with their `CallInfo`; no tags.
//! 2. A CALL's body is a kernel, a PROGRAM, a CUSTOMFUNCTION, or a copy (COPY, LOAD or STORE). Every
//!    kernel among them obeys the kernel's spec, and every PROGRAM its own.
//! 3. A kernel's PARAMs have arguments: of their dtype, and of at least as many elements. Arguments are
//!    storage, views of storage, variables or constants; positions that `CallInfo` names exist.
//!
//! Program:
//! 4. The sources are SINK, LINEAR, SOURCE and perhaps BINARY, in this order, with `ProgramInfo`.
//! 5. The linear program obeys its spec.
//! 6. Sizes and threads are at least 1; slots that `ProgramInfo` names are PARAMs of the linear program.

use super::{Check, kernel, linear, storage, tensor};
use crate::arg::Arg;
use crate::node::UOp;
use crate::op::{Op, OpSet};
use rustc_hash::{FxHashMap, FxHashSet};

const BODIES: OpSet = OpSet::of(&[Op::Sink, Op::Program, Op::CustomFunction, Op::Copy, Op::Load, Op::Store]);

pub(super) fn check_schedule(c: &mut Check) {
    let root = c.root;
    if root.op() != Op::Linear {
        return c.fault(root, "a schedule is a LINEAR of CALLs");
    }
    let mut bodies: FxHashMap<usize, Vec<&UOp>> = FxHashMap::default();
    for u in root.src() {
        if u.op() != Op::Call {
            c.fault(u, format!("a schedule holds CALLs, not {}", u.op().name()));
            continue;
        }
        let body = &u.src()[0];
        let mut new = false;
        let params = bodies.entry(body.address()).or_insert_with(|| {
            new = true;
            match body.op() {
                Op::Sink => tensor::params(body),
                Op::Program => tensor::params(&body.src()[0]),
                _ => Vec::new(),
            }
        });
        call(c, u, params);
        if !new {
            continue;
        }
        match body.op() {
            Op::Sink => within(c, body, kernel::check_scalar),
            Op::Program => within(c, body, check_program),
            op if !BODIES.contains(op) => c.fault(u, format!("{} cannot be its body", op.name())),
            _ => {}
        }
    }
}

/// Verify a part as a root of its own; its faults are the whole's.
fn within<'a>(c: &mut Check<'a>, part: &'a UOp, check: impl Fn(&mut Check<'a>)) {
    let mut inner = Check::new(c.stage, part);
    check(&mut inner);
    c.faults.append(&mut inner.faults);
}

fn call<'a>(c: &mut Check<'a>, u: &'a UOp, params: &[&'a UOp]) {
    if u.tag() != 0 {
        c.fault(u, "a tag is left");
    }
    let args = &u.src()[1..];
    match u.arg() {
        Arg::Call(info) => {
            if let Some(i) = info.outs.iter().chain(&info.ins).find(|&&i| i >= args.len()) {
                c.fault(u, format!("argument {i} of {} is named", args.len()));
            }
        }
        _ => c.fault(u, "a CALL says what it writes and reads"),
    }
    for p in params {
        let Some(b) = p.buffer_arg() else { continue };
        let Some(arg) = args.get(b.slot as usize) else {
            c.fault(u, format!("PARAM {} of the body has no argument", b.slot));
            continue;
        };
        if arg.dtype() != p.dtype() && b.addrspace.is_some() {
            c.fault(u, format!("argument {} is {}, its PARAM {}", b.slot, arg.dtype(), p.dtype()));
        }
        if arg.shape().max_len() < p.shape().max_len() {
            let (has, needs) = (arg.shape(), p.shape());
            c.fault(u, format!("argument {} has shape {has}, its PARAM {needs}", b.slot));
        }
        if b.addrspace.is_some() && !is_storage(arg) {
            c.fault(u, format!("argument {} is a value, not storage", b.slot));
        }
    }
}

fn is_storage(u: &UOp) -> bool {
    u.addrspace().is_some() || storage(u).is_some()
}

pub(super) fn check_program(c: &mut Check) {
    let root = c.root;
    let Arg::Program(info) = root.arg() else {
        return c.fault(root, "a PROGRAM has its ProgramInfo");
    };
    const ORDER: [Op; 4] = [Op::Sink, Op::Linear, Op::Source, Op::Binary];
    if root.op() != Op::Program
        || root.src().iter().map(UOp::op).ne(ORDER[..root.src().len().min(4)].iter().copied())
    {
        return c.fault(root, "a PROGRAM is (SINK, LINEAR, SOURCE, BINARY?)");
    }
    let sizes = info.global_size.iter().chain(&info.local_size).chain([&info.threads]);
    if sizes.into_iter().any(|&n| n < 1) {
        c.fault(root, "a size is less than 1");
    }
    let Some(program) = root.src().get(1) else { return c.fault(root, "there is no linear program") };
    within(c, program, linear::check);
    let slots: FxHashSet<usize> = program
        .src()
        .iter()
        .filter(|u| u.op() == Op::Param)
        .filter_map(|u| Some(u.buffer_arg()?.slot as usize))
        .collect();
    for slot in info.outs.iter().chain(&info.ins).chain(&info.vars).filter(|s| !slots.contains(s)) {
        c.fault(root, format!("slot {slot} is named, and no PARAM of the program has it"));
    }
}
