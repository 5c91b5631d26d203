//! Rows that a kernel has read before it writes over them. Flows in: a kernel's nodes, the STORE that it ends with, and
//! reads of the storage that would be overwritten; flows out: whether the results stay what they are.
//!
//! A row is what the kernel writes in one turn of its outer loops: `x[i, j]` for every `j`. Where each row is read
//! only in the turn that writes it, and what is read for all of it (a sum, a greatest element) is known before its first
//! element is written, the row may lie where it was. Which loops stay around which is then a part of the kernel's
//! meaning: `opt` in the codegen room keeps the loops inside a row inside.

use monoglot_uop::rules::Affine;
use monoglot_uop::{Op, UOp};
use rustc_hash::FxHashSet;

/// A place in storage: the sum of steps times ranges, and a constant.
struct Place {
    terms: Vec<(UOp, i128)>,
    constant: i128,
}

impl Place {
    /// None where it is another kind of sum, or where a range varies.
    fn of(index: &UOp) -> Option<Place> {
        let sum = Affine::of(unguarded(index))?;
        let counts = |(r, step): &(UOp, i128)| {
            r.op() == Op::Range && r.src()[0].as_int().is_some() && *step > 0
        };
        sum.terms.iter().all(counts).then(|| Place {
            terms: sum.terms.to_vec(),
            constant: sum.constant,
        })
    }

    /// The terms over ranges for which this holds.
    fn over(&self, holds: impl Fn(&UOp) -> bool) -> Vec<(UOp, i128)> {
        let terms = self.terms.iter().filter(|(r, _)| holds(r));
        terms.cloned().collect()
    }

    /// The first and the last place where the ranges of `rows` stand still.
    fn within(&self, rows: &[UOp]) -> (i128, i128) {
        let own = self.over(|r| !rows.contains(r));
        (
            self.constant,
            self.constant + own.iter().map(span).sum::<i128>(),
        )
    }
}

/// An index without the condition under which it is one.
fn unguarded(index: &UOp) -> &UOp {
    match index.op() {
        Op::Where if index.src()[2].is_invalid() => &index.src()[1],
        _ => index,
    }
}

/// Whether two sums have the same terms.
fn same(a: &[(UOp, i128)], b: &[(UOp, i128)]) -> bool {
    a.len() == b.len() && a.iter().all(|t| b.contains(t))
}

/// How far a term reaches.
fn span((range, step): &(UOp, i128)) -> i128 {
    step * i128::from(range.vmax())
}

/// Whether a kernel that stores so may do it where these reads are from, which are not all where it writes. There
/// are enough rows for so many threads.
pub(crate) fn are_read_first(nodes: &[UOp], store: &UOp, reads: &[&UOp], threads: usize) -> bool {
    rows(nodes, store, reads).is_some_and(|rows| {
        let count: i64 = rows.iter().map(|r| r.vmax() + 1).product();
        count >= PARTS * threads as i64
    })
}

/// Rows for each thread: loops inside rows cannot be shared.
const PARTS: i64 = 8;

/// The loops whose turns write a row each.
fn rows(nodes: &[UOp], store: &UOp, reads: &[&UOp]) -> Option<Vec<UOp>> {
    let [end] = nodes.last()?.src() else {
        return None;
    };
    let [effect, loops @ ..] = end.src() else {
        return None;
    };
    if end.op() != Op::End || effect != store {
        return None;
    }
    let written = Place::of(&store.src()[0].src()[1])?;
    // Each element is written once.
    if loops
        .iter()
        .any(|r| !written.terms.iter().any(|t| t.0 == *r))
    {
        return None;
    }
    let places: Vec<Place> = reads
        .iter()
        .map(|r| Place::of(&r.src()[1]))
        .collect::<Option<_>>()?;
    let is_loop = |r: &UOp| loops.contains(r);
    let whole = |p: &&Place| p.terms.iter().any(|t| !is_loop(&t.0));
    let elsewhere = |p: &Place| p.constant != written.constant || !same(&p.terms, &written.terms);
    if places.iter().any(|p| !whole(&p) && elsewhere(p)) {
        return None;
    }
    let rows = places.iter().find(whole)?.over(is_loop);
    let around: Vec<UOp> = rows.iter().map(|(r, _)| r.clone()).collect();
    let inside: Vec<&UOp> = loops.iter().filter(|r| !around.contains(r)).collect();
    let number = |r: &UOp| r.range_arg().map(|(number, _)| number);
    if around.iter().map(number).max() >= inside.iter().map(|r| number(r)).min() {
        return None;
    }
    let mut bounds = written.within(&around);
    for p in &places {
        let own = p.over(|r| around.contains(r));
        if !same(&own, &rows) {
            return None;
        }
        let (first, last) = p.within(&around);
        bounds = (bounds.0.min(first), bounds.1.max(last));
    }
    let steps = written.over(|r| around.contains(r));
    let apart = !steps.is_empty() && same(&steps, &rows) && are_apart(steps, bounds.1 - bounds.0);
    (apart && known_before(nodes, end, reads, &around, loops)).then_some(around)
}

/// Whether turns of loops with these steps, each over so many places, share none.
fn are_apart(mut steps: Vec<(UOp, i128)>, mut reach: i128) -> bool {
    steps.sort_by_key(|t| t.1);
    steps.iter().all(|t| {
        let apart = t.1 > reach;
        reach += span(t);
        apart
    })
}

/// Whether what is read over more loops than those of an element's own place is known once for each turn of `around`:
/// no loop inside a row is around such a read.
fn known_before(nodes: &[UOp], end: &UOp, reads: &[&UOp], around: &[UOp], loops: &[UOp]) -> bool {
    let mut open: FxHashSet<&UOp> = FxHashSet::default();
    for u in nodes.iter().take_while(|u| *u != end) {
        let ranges = u.ranges();
        let begins = reads.contains(&u) && ranges.iter().any(|r| !loops.contains(r));
        if !begins && !u.src().iter().any(|s| open.contains(s)) {
            continue;
        }
        let more = || ranges.iter().any(|r| !around.contains(r));
        if !begins && !more() {
            continue;
        }
        if ranges
            .iter()
            .any(|r| loops.contains(r) && !around.contains(r))
        {
            return false;
        }
        open.insert(u);
    }
    true
}
