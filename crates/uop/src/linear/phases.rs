//! Phases: what the threads of a CPU do between BARRIERs. Flows in: a linear program; flows out: programs
//! that stand alone, each to be run by all threads before the next begins, however few workers there are.
//!
//! Invariant, which the spec checks: nothing but memory that is no thread's own goes from one phase to the
//! next. What an earlier phase has worked out of arguments, hardware indices and constants is worked out
//! again.

use crate::arg::Arg;
use crate::marks::NodeMap;
use crate::node::{Srcs, UOp};
use crate::op::Op;
use rustc_hash::FxHashSet;

/// Whether the BARRIERs of this program are between threads of a CPU, as it has their number. Those of a
/// workgroup wait for each other instead.
pub fn has_phases(program: &UOp) -> bool {
    let is = |op: Op| move |u: &UOp| u.op() == op;
    let thread = |u: &UOp| matches!(u.arg(), Arg::Text(name) if &**name == "tid");
    let mut specials = program.src().iter().filter(|u| is(Op::Special)(u));
    program.src().iter().any(is(Op::Barrier)) && specials.any(thread)
}

/// How many phases a program has.
pub fn phase_count(program: &UOp) -> usize {
    if !has_phases(program) {
        return 1;
    }
    let barriers = program.src().iter().filter(|u| u.op() == Op::Barrier);
    barriers.count() + 1
}

/// The phases of a program, in order; the program itself where it has one.
pub fn phases(program: &UOp) -> Vec<UOp> {
    if !has_phases(program) {
        return vec![program.clone()];
    }
    let list = program.src();
    let mut out = Vec::new();
    let mut start = 0;
    for part in list.split(|u| u.op() == Op::Barrier) {
        let end = start + part.len();
        out.push(phase(list, start, end));
        start = end + 1;
    }
    out
}

/// The instructions from `start` to `end`, after what they need of those before.
fn phase(list: &[UOp], start: usize, end: usize) -> UOp {
    let mut needed: FxHashSet<&UOp> = FxHashSet::default();
    for (i, u) in list[..end].iter().enumerate().rev() {
        if i >= start || needed.contains(u) && is_repeated(u) {
            needed.extend(u.src());
        }
    }
    // Every phase takes the program's arguments.
    let kept = |u: &&UOp| u.op() == Op::Param || needed.contains(*u) && is_repeated(u);
    let before = list[..start].iter().filter(kept);
    // What the others are called: names of storage lose the effects that they stood behind.
    let gone: FxHashSet<&UOp> = list[..start].iter().filter(|u| !is_repeated(u)).collect();
    let mut named: NodeMap<&UOp, UOp> = NodeMap::new();
    let mut out: Vec<UOp> = Vec::new();
    for u in before.chain(&list[start..end]) {
        let left = u.src().iter().filter(|s| !gone.contains(s));
        let src: Srcs = left.map(|s| named.get(s).unwrap_or(s).clone()).collect();
        if u.op() == Op::After && src.len() == 1 {
            named.insert(u, src[0].clone());
            continue;
        }
        let new = if src[..] == *u.src() {
            u.clone()
        } else {
            u.with_src(src)
        };
        named.insert(u, new.clone());
        out.push(new);
    }
    UOp::new(Op::Linear, out, Arg::None)
}

/// Whether an instruction can be done again in another phase: it neither reads nor changes memory, nor is
/// it part of a loop.
pub(crate) fn is_repeated(u: &UOp) -> bool {
    let names = matches!(
        u.op(),
        Op::Const | Op::Param | Op::Buffer | Op::Special | Op::Stack | Op::Index | Op::Shrink
    );
    let values = matches!(u.op(), Op::After | Op::Bitcast | Op::Shuffle);
    names || values || u.op().is_elementwise()
}
