//! The specs of what holds compiled work: the schedule, a LINEAR of CALLs, and the PROGRAM. Flows
//! in: a graph at this border; flows out: a `Scheduled`, or, through a back end, a `Program`, or
//! every fault that it has.
//!
//! Schedule:
//! 1. The root is a LINEAR whose sources are CALLs with their `CallInfo`, and loops around some of them, also one
//!    in another: a RANGE before them, and after them the END that closes it. Arguments vary with no other loop.
//!    No tags.
//! 2. A CALL's body is a kernel, a PROGRAM, a CUSTOMFUNCTION, or a copy (COPY, LOAD or STORE). Every
//!    kernel among them obeys the kernel's spec, and every PROGRAM its own.
//! 3. A kernel's PARAMs have arguments: of their dtype, and of at least as many elements. Arguments are
//!    storage, views of storage, variables or constants; positions that `CallInfo` names exist.
//!
//! Program:
//! 4. The sources are SINK, LINEAR, SOURCE and perhaps BINARY, in this order, with `ProgramInfo`.
//! 5. The linear program obeys its spec.
//! 6. Sizes and threads are at least 1, and those of the list's hardware indices; slots that `ProgramInfo`
//!    names are PARAMs of the kernel or the list, and it names the list's variables.

use super::tensor::{COMPILED, argument, params};
use super::{Verifier, kernel, linear, need, storage};
use crate::arg::{Arg, ProgramInfo};
use crate::node::UOp;
use crate::op::Op;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;

pub(super) fn check_schedule(c: &mut Verifier) {
    let root = c.root;
    if root.op() != Op::Linear {
        return c.fault(root, "a schedule is a LINEAR of CALLs");
    }
    let mut bodies: FxHashMap<usize, Vec<&UOp>> = FxHashMap::default();
    let mut open: Vec<&UOp> = Vec::new();
    for u in root.src() {
        match u.op() {
            Op::Call => {}
            Op::Range => {
                need!(c, u, !open.contains(&u) => "a loop within itself");
                open.push(u);
                continue;
            }
            Op::End => {
                let closes = u.src().get(1);
                let innermost = open.pop();
                need!(c, u, innermost.is_some() && closes == innermost =>
                    "it does not close the innermost loop that is open");
                continue;
            }
            _ => {
                c.fault(u, format!("a schedule holds CALLs, not {}", u.op().name()));
                continue;
            }
        }
        for arg in &u.src()[1..] {
            let around = arg.ranges().iter().all(|r| open.contains(&r));
            need!(c, u, around => "an argument varies with a loop that is not around it");
        }
        let body = &u.src()[0];
        if let Entry::Vacant(new) = bodies.entry(body.address()) {
            let kernel = match body.op() {
                Op::Sink => Some(body),
                Op::Program => body.src().first(),
                _ => None,
            };
            new.insert(kernel.map(params).unwrap_or_default());
            match body.op() {
                Op::Sink => within(c, body, |c| kernel::check(c, false)),
                Op::Program => within(c, body, check_program),
                op => need!(c, u, COMPILED.contains(op) => "{} cannot be its body", op.name()),
            }
        }
        call(c, u, &bodies[&body.address()]);
    }
    for range in open {
        c.fault(range, "a loop that does not end");
    }
}

/// Verify a part as a root of its own; its faults are the whole's.
fn within<'a>(c: &mut Verifier<'a>, part: &'a UOp, check: impl Fn(&mut Verifier<'a>)) {
    let root = std::mem::replace(&mut c.root, part);
    check(c);
    c.root = root;
}

fn call<'a>(c: &mut Verifier<'a>, u: &'a UOp, params: &[&'a UOp]) {
    need!(c, u, u.tag() == 0 => "a tag is left");
    let n = u.src().len() - 1;
    match u.arg() {
        Arg::Call(info) => {
            for i in info.outs.iter().chain(&info.ins) {
                need!(c, u, *i < n => "argument {i} of {n} is named");
            }
        }
        _ => c.fault(u, "a CALL says what it writes and reads"),
    }
    for p in params {
        let Some((k, arg)) = argument(c, u, p) else {
            continue;
        };
        let has = arg.shape();
        let needs = p.shape();
        need!(c, u, has.max_len() >= needs.max_len() =>
            "argument {k} has shape {has}, its PARAM {needs}");
        if p.addrspace().is_some() {
            let stored = arg.addrspace().is_some() || storage(arg).is_some();
            need!(c, u, stored => "argument {k} is a value, not storage");
        }
    }
}

pub(super) fn check_program(c: &mut Verifier) {
    check_record(c);
    if let Some(program) = c.root.src().get(1).filter(|u| u.op() == Op::Linear) {
        within(c, program, linear::check);
    }
}

/// All but the linear program itself.
pub(super) fn check_record(c: &mut Verifier) {
    let root = c.root;
    let Arg::Program(info) = root.arg() else {
        return c.fault(root, "a PROGRAM has its ProgramInfo");
    };
    const ORDER: [Op; 4] = [Op::Sink, Op::Linear, Op::Source, Op::Binary];
    let ops = || root.src().iter().map(UOp::op);
    let ordered = ops().eq(ORDER.into_iter().take(root.src().len()));
    if root.op() != Op::Program || !ordered {
        return c.fault(root, "a PROGRAM is (SINK, LINEAR, SOURCE, BINARY?)");
    }
    let sizes = info.global_size.iter().chain(&info.local_size);
    let mut sizes = sizes.chain([&info.threads]);
    need!(c, root, sizes.all(|&n| n > 0) => "a size is less than 1");
    let Some(program) = root.src().get(1) else {
        return c.fault(root, "there is no linear program");
    };
    for u in program.src().iter().filter(|u| u.op() == Op::Special) {
        let said = size(info, u);
        let fits = said.is_some() && said == u.src().first().and_then(UOp::as_int);
        need!(c, u, fits => "the record says {said:?} of it");
    }
    let slot = |u: &UOp| Some(u.buffer_arg()?.slot as usize);
    for u in program.src().iter().filter(|u| u.is_variable()) {
        let named = slot(u).is_some_and(|s| info.vars.contains(&s));
        need!(c, u, named => "the record does not name this variable");
    }
    // What the kernel names, its program may have found a constant for.
    let kernel = root.src()[0].toposort();
    let params = kernel
        .iter()
        .chain(program.src())
        .filter(|u| u.op() == Op::Param);
    let slots: FxHashSet<usize> = params.filter_map(slot).collect();
    for slot in info.outs.iter().chain(&info.ins).chain(&info.vars) {
        need!(c, root, slots.contains(slot) =>
            "slot {slot} is named, and no PARAM of the kernel has it");
    }
}

/// How many values a record says that a hardware index has.
fn size(info: &ProgramInfo, special: &UOp) -> Option<i64> {
    let Arg::Text(name) = special.arg() else {
        return None;
    };
    let axis = || name.get(4..)?.parse::<usize>().ok();
    match name.get(..4) {
        Some("gidx") => info.global_size.get(axis()?).copied(),
        Some("lidx") => info.local_size.get(axis()?).copied(),
        _ => (&**name == "tid").then_some(info.threads),
    }
}
