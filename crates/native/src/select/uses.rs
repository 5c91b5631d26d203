//! Who uses what an instruction gives. Flows in: a listing; flows out: how often each value is used, and which
//! values are worked out where they are used first. Invariant: memory that a value is loaded from is not
//! written between the place where it stands and the one where it is worked out, and no loop lies between.

use super::shift::rotation;
use crate::code::Level;
use monoglot_uop::linear::{address, lanes, reads, splat};
use monoglot_uop::{AddrSpace, Arg, Listing, Op, UOp};

/// See above.
pub(super) struct Uses {
    counts: Vec<u32>,
    deferred: Vec<bool>,
    last: Vec<u32>,
    /// Whether a use is in another scope.
    leaves: Vec<bool>,
}

/// Whether an access is of REG storage that is registers.
pub(super) fn is_register(buffer: &UOp) -> bool {
    let reg = buffer.buffer_arg().and_then(|b| b.addrspace) == Some(AddrSpace::Reg);
    reg && buffer.op() == Op::Buffer && buffer.shape().first().is_some_and(|n| n.is(1))
}

/// The scalar condition under which an instruction does what it does.
fn gate(u: &UOp) -> Option<&UOp> {
    let gate = match u.op() {
        Op::Load | Op::Store | Op::AtomicAdd => u.src().get(2),
        Op::If => u.src().first(),
        _ => None,
    };
    gate.filter(|g| lanes(g) == 0)
}

/// The integers that a condition compares: it is asked anew where it is wanted (`tests`).
fn compared(gate: &UOp, used: &mut impl FnMut(&UOp)) {
    if gate.op() == Op::And {
        gate.src().iter().for_each(|g| compared(g, used));
    } else if gate.op().is_elementwise() {
        let integers = gate.src().iter().filter(|s| s.dtype().is_int());
        integers.for_each(used);
    }
}

impl Uses {
    pub(super) fn of(listing: &Listing, level: Level) -> Uses {
        let list = listing.instructions();
        let n = list.len();
        let mut scope = vec![0u32; n];
        let mut memory = vec![0u32; n];
        let mut open: Vec<u32> = Vec::new();
        let mut epoch = 0;
        for (i, u) in list.iter().enumerate() {
            let control = matches!(
                u.op(),
                Op::Range | Op::End | Op::If | Op::EndIf | Op::Barrier
            );
            if matches!(u.op(), Op::End | Op::EndIf) {
                open.pop();
            }
            scope[i] = open.last().copied().unwrap_or(0);
            memory[i] = epoch;
            if matches!(u.op(), Op::Range | Op::If) {
                open.push(i as u32 + 1);
            }
            let stores = matches!(u.op(), Op::Store | Op::AtomicAdd)
                && address(&u.src()[0]).is_none_or(|a| !is_register(a.buffer));
            epoch += (control || stores) as u32;
        }
        let mut counts = vec![0u32; n];
        let mut last = vec![0u32; n];
        let mut leaves = vec![false; n];
        // Where a value is asked for first, and in which scope.
        let mut first = vec![u32::MAX; n];
        let mut deferred = vec![false; n];
        for (i, u) in list.iter().enumerate().rev() {
            let effect = u.op().is_void() || u.op() == Op::Range;
            let prefetch = u.op() == Op::Load && *u.arg() != Arg::None;
            if counts[i] == 0 && !effect && !prefetch {
                continue;
            }
            let mut here = i;
            let plain_load = u.op() == Op::Load
                && u.src().len() == 1
                && address(&u.src()[0]).is_some_and(|a| !is_register(a.buffer));
            let of_load = || {
                splat(u)
                    .and_then(|s| listing.place(s))
                    .is_some_and(|k| list[k].op() == Op::Load && list[k].src().len() == 1)
            };
            let candidate = plain_load || u.op() == Op::Stack && of_load();
            if candidate && counts[i] > 0 && first[i] != u32::MAX {
                let at = first[i] as usize;
                if scope[at] == scope[i] && memory[at] == memory[i] {
                    deferred[i] = true;
                    here = at;
                }
            }
            let mut used = |o: &UOp| {
                let Some(k) = listing.place(o.named()) else {
                    return;
                };
                counts[k] += 1;
                last[k] = last[k].max(here as u32);
                leaves[k] |= scope[k] != scope[i];
                first[k] = first[k].min(here as u32);
            };
            match rotation(u, level) {
                Some((x, _)) => used(x),
                None => reads(u, &mut used),
            }
            gate(u).into_iter().for_each(|g| compared(g, &mut used));
        }
        Uses {
            counts,
            deferred,
            last,
            leaves,
        }
    }

    /// How often a value is used.
    pub(super) fn count(&self, i: usize) -> u32 {
        self.counts[i]
    }

    /// Whether a value is worked out where it is used first.
    pub(super) fn is_deferred(&self, i: usize) -> bool {
        self.deferred[i]
    }

    /// The place of the last use.
    pub(super) fn last(&self, i: usize) -> usize {
        self.last[i] as usize
    }

    /// Whether a use is in another scope than the value.
    pub(super) fn leaves(&self, i: usize) -> bool {
        self.leaves[i]
    }
}
