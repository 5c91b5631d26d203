//! Rows that a kernel writes over those that it reads. Flows in: a kernel and a PARAM of it; flows out: the same, that
//! reads each row of it whole, and once, into storage of its own, before it writes the row's elements.
//!
//! Invariant: a turn of the loops that are outermost reads of the PARAM what that turn writes, and nothing else: a row
//! is the elements that a turn writes, and a kernel writes each element once.

use super::number_ranges;
use super::ranges::unused_number;
use monoglot_uop::{AddrSpace, AxisType, Op, Shape, Target, UOp};
use rustc_hash::FxHashMap;

/// The kernel of one store that holds the rows of this PARAM; None where it reads other elements of it than those of
/// the row that it writes, or where a row does not fit.
pub(crate) fn held(sink: &UOp, nodes: &[UOp], param: u64, target: &Target) -> Option<UOp> {
    let [end] = sink.src() else {
        return None;
    };
    let scratch = nodes.iter().any(|u| u.op() == Op::Buffer);
    let (store, loops) = end.src().split_first().filter(|_| end.op() == Op::End)?;
    if scratch || store.op() != Op::Store || target.workgroups {
        return None;
    }
    let written = &store.src()[0].src()[1];
    let plain = |index: &UOp| !index.ops_below().contains(Op::Index);
    let slot = |u: &UOp| u.src()[0].buffer_arg().map(|b| b.slot);
    let read = |u: &&UOp| u.op() == Op::Index && slot(u) == Some(param);
    let reads: Vec<&UOp> = nodes.iter().filter(read).collect();
    let given = written.ranges();
    if !plain(written) || !loops.iter().all(|r| given.contains(r)) {
        return None;
    }
    // The loops that every read is in: their turns are the rows.
    let around = |r: &&UOp| reads.iter().all(|u| u.ranges().contains(*r));
    let rows: Vec<&UOp> = loops.iter().filter(around).collect();
    let within: Vec<UOp> = loops
        .iter()
        .filter(|r| !rows.contains(r))
        .cloned()
        .collect();
    let extents: Option<Vec<i64>> = within.iter().map(|r| r.src()[0].as_int()).collect();
    let dims = Shape::of(&extents?);
    let first = reads.first()?;
    let bytes = dims.max_len() as usize * first.dtype().bytes() * target.lanes(first.dtype());
    if rows.is_empty() || within.is_empty() || bytes > target.local_bytes {
        return None;
    }
    let storage = UOp::scratch(
        0,
        &Shape::of(&[dims.max_len()]),
        first.dtype(),
        AddrSpace::Local,
    );
    let next = unused_number(nodes);
    let own: Vec<UOp> = within
        .iter()
        .zip(next..)
        .map(|(r, number)| UOp::range(r.src()[0].as_int().unwrap_or(1), number, AxisType::Loop))
        .collect();
    let renamed = within.iter().cloned().zip(own.iter().cloned()).collect();
    let row = first.src()[0].at(&[written.substitute(&renamed)]);
    let filled = storage.after(&[storage.at(&[linear(&dims, &own)]).store(&row).end(&own)]);
    let mut values = FxHashMap::default();
    for &u in &reads {
        let mut names = FxHashMap::default();
        if !matches(written, &u.src()[1], &within, &mut names) {
            return None;
        }
        let place: Option<Vec<UOp>> = within.iter().map(|r| names.get(r).cloned()).collect();
        values.insert(u.clone(), filled.at(&[linear(&dims, &place?)]));
    }
    Some(number_ranges(&super::shared_first(
        &sink.substitute(&values),
    )))
}

/// The place of an element in storage of these extents.
fn linear(dims: &Shape, indices: &[UOp]) -> UOp {
    let extents = dims.ints().unwrap_or_default();
    let zero = UOp::index_const(0);
    let place = indices
        .iter()
        .zip(extents)
        .fold(zero, |place, (i, n)| &(&place * n) + i);
    place.simplify()
}

/// Whether `read` is `written` where loops within a row have other names, which are added to `names`.
fn matches(written: &UOp, read: &UOp, within: &[UOp], names: &mut FxHashMap<UOp, UOp>) -> bool {
    if within.contains(written) {
        let alike = read.op() == Op::Range && read.src() == written.src();
        return alike && names.entry(written.clone()).or_insert_with(|| read.clone()) == read;
    }
    let inner = written.ranges().iter().any(|r| within.contains(r));
    if !inner {
        return written == read;
    }
    let alike = written.op() == read.op()
        && written.arg() == read.arg()
        && written.dtype() == read.dtype()
        && written.src().len() == read.src().len();
    let both = written.src().iter().zip(read.src());
    alike && both.into_iter().all(|(w, r)| matches(w, r, within, names))
}
