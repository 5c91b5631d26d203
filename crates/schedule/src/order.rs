//! Assigns in place, and an order that respects every hazard. Flows in: kernels over buffers that are
//! each written once; flows out: kernels in order, some of which write a PARAM's storage.
//!
//! A kernel whose result is the next version of a donated PARAM may write its storage if it reads that
//! PARAM only where it writes it, and if nothing that reads the PARAM has to run after it. What tells
//! whether assertions hold runs before it, but where that is computed from what it writes.

use crate::checks::Word;
use crate::kernel::{Call, Callee, Calls, number_params};
use monoglot_uop::{Op, Result, UOp};

pub(crate) fn order(mut all: Calls, donated: &[bool], words: &[Word]) -> Result<Calls> {
    let mut before = dependencies(&all);
    let wanted = all.outputs.len() - words.len();
    let makers: Vec<usize> = all.outputs[wanted..]
        .iter()
        .map(|o| maker(&all, o.slot))
        .collect();
    for k in 0..all.calls.len() {
        for out in 0..all.calls[k].outs {
            let slot = all.calls[k].args[out];
            let Some(param) = slot
                .checked_sub(all.inputs)
                .and_then(|i| donor(&all.nodes[i], donated))
            else {
                continue;
            };
            let readers: Vec<usize> = (0..all.calls.len())
                .filter(|&r| r != k && all.calls[r].args[all.calls[r].outs..].contains(&param))
                .collect();
            let taken = all.calls.iter().any(|o| o.args[..o.outs].contains(&param))
                || all.outputs.iter().any(|o| o.slot == param);
            if taken
                || !reads_where_it_writes(&all.calls[k], out, param)
                || readers.iter().any(|&r| reaches(&before, r, k))
            {
                continue;
            }
            // A value that is lost to a check after it must be one that somebody asked for.
            let shown = all.outputs[..wanted].iter().any(|o| o.slot == slot);
            let (later, first): (Vec<usize>, Vec<usize>) =
                (0..words.len()).partition(|&w| reaches(&before, makers[w], k));
            if later
                .iter()
                .any(|&w| !shown || !words[w].after.contains(&param))
            {
                continue;
            }
            before[k].extend(readers);
            before[k].extend(first.iter().map(|&w| makers[w]));
            in_place(&mut all, k, slot, param);
        }
    }
    let sequence = topological(&before);
    let mut kernels: Vec<Option<Call>> = all.calls.into_iter().map(Some).collect();
    all.calls = sequence
        .into_iter()
        .filter_map(|i| kernels[i].take())
        .collect();
    Ok(all)
}

/// The kernel that writes a buffer.
fn maker(all: &Calls, slot: usize) -> usize {
    let writes = |k: &Call| k.args[..k.outs].contains(&slot);
    let found = all.calls.iter().position(writes);
    found.expect("every output that is no PARAM is written")
}

/// For each kernel, those that must run before it.
fn dependencies(all: &Calls) -> Vec<Vec<usize>> {
    let mut writer = vec![None; all.inputs + all.nodes.len()];
    let mut before = Vec::with_capacity(all.calls.len());
    for (i, k) in all.calls.iter().enumerate() {
        // Sources come first, and what begins an output that it goes on with.
        before.push(k.args.iter().filter_map(|&a| writer[a]).collect());
        for &a in &k.args[..k.outs] {
            writer[a] = Some(i);
        }
    }
    before
}

/// The donated PARAM whose next version a stored node is.
fn donor(node: &UOp, donated: &[bool]) -> Option<usize> {
    if node.op() != Op::After {
        return None;
    }
    let base = &node.src()[0];
    let slot = base.buffer_arg()?.slot as usize;
    let is_donated = base.op() == Op::Param && donated.get(slot) == Some(&true);
    (is_donated && base.shape() == node.shape()).then_some(slot)
}

fn reads_where_it_writes(k: &Call, out: usize, param: usize) -> bool {
    let Callee::Compute(sink) = &k.callee else {
        return false;
    };
    let Some(local) = k.args.iter().position(|&a| a == param) else {
        return true;
    };
    let nodes = sink.toposort();
    let of = |u: &UOp, slot: usize| {
        u.src()[0]
            .buffer_arg()
            .is_some_and(|b| b.slot as usize == slot)
    };
    let store = nodes
        .iter()
        .find(|u| u.op() == Op::Store && of(&u.src()[0], out));
    let Some(written) = store.map(|s| &s.src()[0].src()[1]) else {
        return false;
    };
    nodes
        .iter()
        .filter(|u| u.op() == Op::Index && of(u, local))
        .all(|u| {
            let index = &u.src()[1];
            index == written || index.op() == Op::Where && index.src()[1] == *written
        })
}

/// Whether `from` comes after `to` in every order.
fn reaches(before: &[Vec<usize>], from: usize, to: usize) -> bool {
    let mut seen = vec![false; before.len()];
    let mut stack = vec![from];
    while let Some(k) = stack.pop() {
        if k == to {
            return true;
        }
        if !std::mem::replace(&mut seen[k], true) {
            stack.extend(&before[k]);
        }
    }
    false
}

/// Let kernel `k` write `param` instead of `slot`; who reads `slot` reads `param` from then on.
fn in_place(all: &mut Calls, k: usize, slot: usize, param: usize) {
    for kernel in &mut all.calls {
        for a in kernel.args.iter_mut().filter(|a| **a == slot) {
            *a = param;
        }
    }
    for o in all.outputs.iter_mut().filter(|o| o.slot == slot) {
        o.slot = param;
    }
    // Read and written under one number, so that later stages see that they are one buffer.
    let kernel = &mut all.calls[k];
    if let Callee::Compute(sink) = &kernel.callee {
        let outs = kernel.args[..kernel.outs].to_vec();
        let (sink, args) = number_params(sink, outs, |l| kernel.args[l as usize]);
        kernel.callee = Callee::Compute(sink);
        kernel.args = args;
    }
}

/// Calls in an order in which each comes after what it needs; ties keep the order given.
fn topological(before: &[Vec<usize>]) -> Vec<usize> {
    let mut waiting: Vec<usize> = before.iter().map(Vec::len).collect();
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); before.len()];
    for (k, list) in before.iter().enumerate() {
        for &b in list {
            after[b].push(k);
        }
    }
    let mut ready: std::collections::BinaryHeap<std::cmp::Reverse<usize>> = (0..before.len())
        .filter(|&k| waiting[k] == 0)
        .map(std::cmp::Reverse)
        .collect();
    let mut out = Vec::with_capacity(before.len());
    while let Some(std::cmp::Reverse(k)) = ready.pop() {
        out.push(k);
        for &next in &after[k] {
            waiting[next] -= 1;
            if waiting[next] == 0 {
                ready.push(std::cmp::Reverse(next));
            }
        }
    }
    out
}
