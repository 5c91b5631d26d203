//! ATOMICADDs of a program that one thread runs. Flows in: a LINEAR; flows out: the same, where nobody else runs it
//! at the same time with a LOAD, an ADD and a STORE in place of each: what a launch writes is its own.
//! Invariant: each LOAD stands behind what was added before it.

use crate::graph::{Srcs, node};
use monoglot_uop::linear::address;
use monoglot_uop::{Arg, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};

/// See the module.
pub(crate) fn alone(linear: &UOp) -> UOp {
    let list = linear.src();
    let has = |op: Op| list.iter().any(|u| u.op() == op);
    if !has(Op::AtomicAdd) || has(Op::Special) {
        return linear.clone();
    }
    let mut new: FxHashMap<&UOp, UOp> = FxHashMap::default();
    // By storage, what was added last.
    let mut last: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut out = List::default();
    for u in list {
        let src: Srcs = u
            .src()
            .iter()
            .map(|s| new.get(s).unwrap_or(s).clone())
            .collect();
        let mut now = u.with_src(src.clone());
        if u.op() == Op::AtomicAdd
            && let Some(a) = address(&src[0])
        {
            let before: Vec<UOp> = last.get(a.buffer).cloned().into_iter().collect();
            let storage = src[0].src()[0].after(&before);
            let place = storage.at(&src[0].src()[1..]);
            let gate: Option<&UOp> = src.get(2);
            let mut read: Srcs = smallvec![place.clone()];
            if let Some(gate) = gate {
                let zero = UOp::constant(place.dtype().zero(), place.dtype());
                out.put(zero.clone());
                read.extend([zero, gate.clone()]);
            }
            let load = node(Op::Load, read);
            let sum = node(Op::Add, [load.clone(), src[1].clone()]);
            let written = [place.clone(), sum.clone()]
                .into_iter()
                .chain(gate.cloned());
            now = node(Op::Store, written);
            last.insert(a.buffer.clone(), now.clone());
            for u in [storage, place, load, sum] {
                out.put(u);
            }
        }
        if now != *u {
            new.insert(u, now.clone());
        }
        out.put(now);
    }
    UOp::new(Op::Linear, out.list, Arg::None)
}

/// Instructions in order, each once.
#[derive(Default)]
struct List {
    list: SmallVec<[UOp; 3]>,
    has: FxHashSet<UOp>,
}

impl List {
    fn put(&mut self, u: UOp) {
        if self.has.insert(u.clone()) {
            self.list.push(u);
        }
    }
}
