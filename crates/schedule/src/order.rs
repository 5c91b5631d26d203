//! Assigns in place, and an order that respects every hazard. Flows in: kernels over buffers that are
//! each written once; flows out: kernels in order, some of which write a PARAM's storage.
//!
//! A kernel whose result is the next version of a donated PARAM may write its storage if it reads that
//! PARAM only where it writes it, and if nothing that reads the PARAM has to run after it. What tells
//! whether assertions hold runs before it, but where that is computed from what it writes. What nobody needs
//! any more may be written over row by row, too, where a row is read before it is written (`rows`).

use crate::checks::Word;
use crate::kernel::{Call, Callee, Calls, changed, number_params};
use crate::rows;
use monoglot_uop::{Device, Op, Result, Target, UOp};
use rustc_hash::FxHashMap;
use std::sync::Arc;

pub(crate) fn order(
    mut all: Calls,
    donated: &[bool],
    words: &[Word],
    target: &dyn Fn(Device) -> Result<Arc<Target>>,
) -> Result<Calls> {
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
                || !reads_where_it_writes(&all.calls[k], &nodes(&all.calls[k]), out, param)
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
    overwrite(&mut all, words.len(), target)?;
    // What is left of kernels that write a part, and which of their arguments it reads.
    let mut known: FxHashMap<UOp, Option<(UOp, Vec<usize>)>> = FxHashMap::default();
    for call in &mut all.calls {
        let Callee::Compute(sink) = &mut call.callee else {
            continue;
        };
        if !known.contains_key(sink) {
            let outs = (0..call.outs).collect();
            let part = changed(sink)?.map(|part| number_params(&part, outs, |l| l as usize));
            known.insert(sink.clone(), part);
        }
        if let Some((part, left)) = known[sink].clone() {
            *sink = part;
            call.args = left.into_iter().map(|l| call.args[l]).collect();
        }
    }
    Ok(all)
}

/// Buffers of fewer bytes are not worth a kernel of another form, nor is any that of a kernel of more nodes.
const WORTH: i64 = 1 << 16;
const LONG: usize = 1 << 9;

/// Let kernels write over an input that nobody needs any more, where they read it only where they write, or by whole
/// rows on machines whose threads need not share one. The last `words` outputs have storage of their own.
fn overwrite(
    all: &mut Calls,
    words: usize,
    target: &dyn Fn(Device) -> Result<Arc<Target>>,
) -> Result<()> {
    let mut last = vec![0; all.inputs + all.nodes.len()];
    for (k, call) in all.calls.iter().enumerate() {
        call.args.iter().for_each(|&a| last[a] = k);
    }
    let wanted = all.outputs.len() - words;
    let mut kept = vec![None; last.len()];
    for (i, o) in all.outputs.iter().enumerate() {
        kept[o.slot] = Some(i < wanted);
    }
    for k in 0..all.calls.len() {
        // The kernel's nodes, once somebody asks for them.
        let mut known: Option<Vec<UOp>> = None;
        let machine = target(all.calls[k].device)?;
        for out in 0..all.calls[k].outs {
            let call = &all.calls[k];
            let slot = call.args[out];
            if slot < all.inputs || kept[slot] == Some(false) {
                continue;
            }
            let dies = |&s: &usize| {
                let dies = s >= all.inputs && last[s] == k && kept[s].is_none();
                dies && alike(all, slot, s, kept[slot].is_some())
            };
            let read = call.args[call.outs..].iter().copied();
            let mut dying: Vec<usize> = read.filter(dies).collect();
            // Storage that looks the same everywhere makes equal kernels of equal layers.
            let other = |s: &usize| {
                all.nodes[s - all.inputs].shape() != all.nodes[slot - all.inputs].shape()
            };
            dying.sort_by_key(other);
            let dying = dying.into_iter().find(|&s| {
                let nodes = known.get_or_insert_with(|| nodes(call));
                nodes.len() <= LONG && {
                    reads_where_it_writes(call, nodes, out, s)
                        || !machine.workgroups && reads_rows_first(call, nodes, s, machine.threads)
                }
            });
            let Some(dying) = dying else {
                continue;
            };
            last[dying] = last[slot];
            kept[dying] = kept[slot];
            in_place(all, k, slot, dying);
            known = None;
        }
    }
    Ok(())
}

/// Whether two stored nodes need the same storage; and look alike, where one is seen from outside.
fn alike(all: &Calls, a: usize, b: usize, seen: bool) -> bool {
    let a = &all.nodes[a - all.inputs];
    let b = &all.nodes[b - all.inputs];
    let same = match (a.shape() == b.shape(), a.shape().ints(), b.shape().ints()) {
        (true, ..) => true,
        (false, Some(a), Some(b)) => !seen && a.iter().product::<i64>() == b.iter().product(),
        _ => false,
    };
    same && a.dtype() == b.dtype() && a.shape().max_len() * a.dtype().bytes() as i64 >= WORTH
}

/// The kernel that writes a buffer.
fn maker(all: &Calls, slot: usize) -> usize {
    let writes = |k: &Call| k.args[..k.outs].contains(&slot);
    let found = all.calls.iter().position(writes);
    found.expect("every output that is no PARAM is written")
}

/// For each kernel, those that must run before it.
pub(crate) fn dependencies(all: &Calls) -> Vec<Vec<usize>> {
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

/// The nodes of a kernel; none of what is no kernel.
fn nodes(k: &Call) -> Vec<UOp> {
    match &k.callee {
        Callee::Compute(sink) => sink.toposort(),
        Callee::Copy(_) | Callee::Own(_) | Callee::Nothing => Vec::new(),
        Callee::Function(_) | Callee::Loop(_) => Vec::new(),
    }
}

/// Whether a kernel of these nodes reads a buffer only where it writes that of its output `out`.
fn reads_where_it_writes(k: &Call, nodes: &[UOp], out: usize, param: usize) -> bool {
    if nodes.is_empty() {
        return false;
    }
    let Some(local) = k.args.iter().position(|&a| a == param) else {
        return true;
    };
    let Some(written) = store(nodes, out).map(|s| &s.src()[0].src()[1]) else {
        return false;
    };
    reads(nodes, local).all(|u| {
        let index = &u.src()[1];
        index == written || index.op() == Op::Where && index.src()[1] == *written
    })
}

/// Whether a kernel of these nodes, shared by so many threads, reads each row of a buffer before it writes one of its
/// only output.
fn reads_rows_first(k: &Call, nodes: &[UOp], param: usize, threads: usize) -> bool {
    let local = k.args.iter().position(|&a| a == param);
    let (Some(local), Some(store), 1) = (local, store(nodes, 0), k.outs) else {
        return false;
    };
    let reads: Vec<&UOp> = reads(nodes, local).collect();
    rows::are_read_first(nodes, store, &reads, threads)
}

/// Whether an address is of the argument of this number.
fn is_of(u: &UOp, argument: usize) -> bool {
    let buffer = u.src()[0].buffer_arg();
    buffer.is_some_and(|b| b.slot as usize == argument)
}

fn store(nodes: &[UOp], argument: usize) -> Option<&UOp> {
    let stores = |u: &&UOp| u.op() == Op::Store && is_of(&u.src()[0], argument);
    nodes.iter().find(stores)
}

fn reads(nodes: &[UOp], argument: usize) -> impl Iterator<Item = &UOp> {
    let reads = move |u: &&UOp| u.op() == Op::Index && is_of(u, argument);
    nodes.iter().filter(reads)
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
pub(crate) fn topological(before: &[Vec<usize>]) -> Vec<usize> {
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
