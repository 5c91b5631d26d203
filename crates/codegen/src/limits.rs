//! Loops end where nothing is left to do. Flows in: a kernel whose ranges are closed once, over flat storage;
//! flows out: the same kernel in which a loop of a reduction runs over what its mask lets through, a loop that
//! fills storage of the kernel's own over what is read of it, and a sum's loop leaves its mask to the turns at
//! which the mask holds for some lanes and not for all. A causal attention so does half of what one without a
//! mask does.
//!
//! A mask says Σ k·x ≤ 0 of the loops around, the loop's own counter and lanes. Solved for the counter, with what
//! stands inside at its least, it is where the loop may end; with that at its greatest, up to where all lanes
//! count. Invariant: a turn that is left out would have combined identities, or filled what no one reads.

use crate::graph::rebuild;
use crate::loops::{self, is_loop};
use crate::opt::masked::Masked;
use monoglot_uop::rules::{Affine, conjuncts, constraints};
use monoglot_uop::{Arg, DType, Op, Ranges, Result, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// Fewest turns of a loop that is worth it.
const TURNS: i64 = 16;
/// The same where no mask is left in the loop.
const FEW: i64 = 2;

/// Turns that are worth doing: from one expression of the loops around up to another; None stands for the
/// loop's own ends.
#[derive(Clone, Default, PartialEq)]
struct Span {
    from: Option<UOp>,
    to: Option<UOp>,
}

impl Span {
    fn is_whole(&self) -> bool {
        self.from.is_none() && self.to.is_none()
    }

    /// The RANGE over these turns.
    fn of(&self, range: &UOp) -> UOp {
        let to = self.to.as_ref().unwrap_or(&range.src()[0]);
        let src: SmallVec<[UOp; 2]> = [to].into_iter().chain(&self.from).cloned().collect();
        range.with_src(&src[..])
    }
}

/// See the module.
pub(crate) fn limit(kernel: &UOp) -> Result<UOp> {
    if !has_masks(kernel) {
        return Ok(kernel.clone());
    }
    let nodes = kernel.toposort();
    let mut spans: Vec<(UOp, Span)> = Vec::new();
    let mut cuts: FxHashMap<&UOp, Cut> = FxHashMap::default();
    let mut known: FxHashMap<&UOp, Vec<UOp>> = FxHashMap::default();
    for (range, sums) in closed_by(&nodes) {
        let Some(span) = common_span(range, &sums) else {
            continue;
        };
        let short = turns(range, sums[0]) < TURNS;
        let [sum] = sums[..] else {
            spans.extend((!short).then(|| (range.clone(), span)));
            continue;
        };
        let implied = implied(range, sum, &span);
        let is_padding = *sum.src()[0].arg() == Arg::Padding;
        if implied.is_empty() && (is_padding || short) {
            continue;
        }
        match Cut::of(sum, range, &span).filter(|_| implied.is_empty()) {
            Some(cut) => {
                cuts.insert(sum, cut);
            }
            None => {
                known.entry(sum).or_default().extend(implied);
                spans.push((range.clone(), span));
            }
        }
    }
    if spans.is_empty() && cuts.is_empty() {
        return Ok(kernel.clone());
    }
    fills(&nodes, &mut spans);
    let mut next = loops::next_id(kernel);
    let mut new = rebuild(kernel, |u, src| {
        let new = u.with_src(src);
        Ok(match (cuts.get(u), known.get(u)) {
            (Some(cut), _) => cut.apply(&new, &mut next),
            (None, Some(conditions)) => without(&new, conditions),
            _ => new,
        })
    })?;
    // Where one loop ends may follow from another that ends earlier now.
    while let Some((range, span)) = spans.pop() {
        let place = FxHashMap::from_iter([(range.clone(), span.of(&range))]);
        new = new.substitute(&place);
        for (_, other) in &mut spans {
            for end in [&mut other.from, &mut other.to].into_iter().flatten() {
                *end = end.substitute(&place);
            }
        }
    }
    Ok(new)
}

/// Terms of a sum in all turns of one of its loops.
fn turns(range: &UOp, sum: &UOp) -> i64 {
    let own = sum.src()[1..].iter().filter(|r| is_loop(r));
    let inside = own.filter(|r| loops::depth(r) >= loops::depth(range));
    inside.map(|r| r.src()[0].vmax()).product()
}

/// Loops of reductions, each with the REDUCEs that close it.
fn closed_by(nodes: &[UOp]) -> Vec<(&UOp, Vec<&UOp>)> {
    let mut all: Vec<(&UOp, Vec<&UOp>)> = Vec::new();
    for u in nodes.iter().filter(|u| u.op() == Op::Reduce) {
        for r in u.src()[1..].iter().filter(|r| is_loop(r)) {
            match all.iter_mut().find(|(range, _)| *range == r) {
                Some((_, sums)) => sums.push(u),
                None => all.push((r, vec![u])),
            }
        }
    }
    all.retain(|(r, _)| r.src()[0].vmax() >= FEW);
    all
}

/// The conditions of a sum that hold in all of these turns of a loop, whatever stands inside: all that speak of
/// the loop, or none.
fn implied(range: &UOp, sum: &UOp, span: &Span) -> Vec<UOp> {
    let Some(masked) = Masked::of(sum) else {
        return Vec::new();
    };
    let speaks = |c: &&UOp| c.ranges().contains(range);
    let of_loop: Vec<UOp> = masked.conditions.iter().filter(speaks).cloned().collect();
    let around = sum.ranges();
    let holds = |c: &UOp| {
        let sure = solved(range, std::slice::from_ref(c), &around, true);
        let within = |own: &Option<UOp>, all: &Option<UOp>| own.is_none() || own == all;
        let one = constraints(c).len() == 1 && !sure.is_whole();
        one && within(&sure.from, &span.from) && within(&sure.to, &span.to)
    };
    if of_loop.iter().all(holds) {
        of_loop
    } else {
        Vec::new()
    }
}

/// A sum without conditions that are known to hold. What is read keeps its gate: intervals alone do not tell that it
/// is inside.
fn without(sum: &UOp, conditions: &[UOp]) -> UOp {
    let Some(masked) = Masked::of(sum) else {
        return sum.clone();
    };
    let left = masked.conditions.iter().filter(|c| !conditions.contains(c));
    let value = match left.cloned().reduce(|a, b| a & b) {
        Some(gate) => {
            let choice = gate.select(&masked.value, &masked.identity());
            match masked.is_padding() {
                true => choice.with_arg(Arg::Padding),
                false => choice,
            }
        }
        None => masked.value.clone(),
    };
    sum.with_src([&[value], &sum.src()[1..]].concat())
}

/// Whether some sum may have a mask.
fn has_masks(kernel: &UOp) -> bool {
    let ops = kernel.ops_below();
    ops.contains(Op::Reduce) && ops.contains(Op::Where)
}

/// The kernel in which what a mask asks alike in all turns of its sum is asked behind it, once.
pub(crate) fn asked_once(kernel: &UOp) -> Result<UOp> {
    if !has_masks(kernel) {
        return Ok(kernel.clone());
    }
    rebuild(kernel, |u, src| {
        let new = u.with_src(src);
        Ok(behind(&new).unwrap_or(new))
    })
}

/// A sum behind which stands what its mask asks alike in all turns; None where it asks nothing so. What may be left out
/// (`Arg::Padding`) costs nothing where it stands.
fn behind(sum: &UOp) -> Option<UOp> {
    let masked = Masked::of(sum).filter(|m| !m.is_padding())?;
    let turns = |c: &&UOp| masked.closes().iter().any(|r| c.ranges().contains(r));
    let alike = masked.conditions.iter().filter(|c| !turns(c)).cloned();
    let alike: Vec<UOp> = alike.collect();
    let asked = alike.iter().cloned().reduce(|a, b| a & b)?;
    Some(asked.select(&without(sum, &alike), &masked.identity()))
}

/// The turns that all of these reductions want, if they want the same, and not all.
fn common_span(range: &UOp, sums: &[&UOp]) -> Option<Span> {
    let span = |sum: &UOp| {
        let masked = Masked::of(sum)?;
        let span = solved(range, &masked.conditions, &sum.ranges(), false);
        Some(span).filter(|s| !s.is_whole())
    };
    let first = span(sums[0])?;
    let same = sums[1..].iter().all(|s| span(s).as_ref() == Some(&first));
    same.then_some(first)
}

/// The turns of a loop in which conditions hold: somewhere inside of it, or everywhere. `around` are the ranges
/// around it.
fn solved(range: &UOp, conditions: &[UOp], around: &[UOp], everywhere: bool) -> Span {
    let mut span = Span::default();
    let end = &range.src()[0];
    for sum in conditions.iter().flat_map(constraints) {
        let Some(&(_, k)) = sum.terms.iter().find(|t| t.0 == *range) else {
            continue;
        };
        // k·range + rest ≤ 0.
        let others = sum.terms.iter().filter(|t| t.0 != *range);
        let mut rest = Affine::number(DType::Index, sum.constant);
        if others
            .map(|t| settle(&mut rest, t, around, !everywhere))
            .any(|r| r.is_none())
        {
            continue;
        }
        let step = k.abs();
        let mut bound = Affine::number(DType::Index, if k > 0 { step } else { step - 1 });
        let added = bound.plus(&rest, -k.signum());
        let varies = !bound.terms.is_empty();
        let Some(turns) = added
            .filter(|()| varies)
            .and_then(|()| quotient(&bound, step))
        else {
            continue;
        };
        let turns = at_most(&turns, end);
        let side = if k > 0 { &mut span.to } else { &mut span.from };
        // What ends it first, or begins it last, is enough; of several, one is told.
        if (turns.vmin() < end.vmax() || k < 0) && side.is_none() {
            *side = Some(turns);
        }
    }
    span
}

/// Add a term to a sum of what stands around: as it is, or the least of it, or the greatest. Threads of a
/// workgroup turn alike, since they may wait for each other in a loop.
fn settle(sum: &mut Affine, term: &(UOp, i128), around: &[UOp], least: bool) -> Option<()> {
    let (atom, k) = term;
    let open = atom.ranges();
    let known = open.iter().all(|r| is_loop(r) && around.contains(r));
    let plain = !atom.ops_below().contains(Op::Load) && !atom.ops_below().contains(Op::Reduce);
    if known && plain && !loops::is_local(atom) {
        let mut one = Affine::number(DType::Index, 0);
        one.add(atom, *k)?;
        return sum.plus(&one, 1);
    }
    let (lo, hi) = atom.bounds();
    let ends = (lo as i128 * k, hi as i128 * k);
    let end = if least {
        ends.0.min(ends.1)
    } else {
        ends.0.max(ends.1)
    };
    sum.plus(&Affine::number(DType::Index, end), 1)
}

/// ⌊sum / step⌋, or 0 where the sum is negative.
fn quotient(sum: &Affine, step: i128) -> Option<UOp> {
    let sum = sum.build_by(|atom| atom.ranges().iter().map(loops::depth).max());
    let least = UOp::index_const(0);
    let sum = if sum.vmin() < 0 {
        sum.binary(Op::Max, &least)
    } else {
        sum
    };
    let step = i64::try_from(step).ok()?;
    Some(if step == 1 { sum } else { sum / step }.simplify())
}

/// The lesser of both, so that its interval says that it is.
fn at_most(turns: &UOp, end: &UOp) -> UOp {
    if turns.vmax() <= end.vmin() {
        return turns.clone();
    }
    let least = match end.as_int() {
        Some(_) => turns.clone(),
        None => turns.lt(end).select(turns, end),
    };
    let most = UOp::index_const(end.vmax());
    let over = (&most - &least).binary(Op::Max, &UOp::index_const(0));
    (&most - &over).simplify()
}

/// How a REDUCE becomes two, one of which needs no condition on the counter.
struct Cut {
    range: UOp,
    /// The turns of both, and whether all lanes count in them; those in which they do come first.
    parts: [(Span, bool); 2],
}

impl Cut {
    /// None where the loop is not the outermost of the reduction's, or no condition says of a turn that all lanes count.
    fn of(sum: &UOp, range: &UOp, span: &Span) -> Option<Cut> {
        let masked = Masked::of(sum)?;
        let own = || masked.closes().iter().filter(|r| is_loop(r));
        if own().min_by_key(|r| loops::depth(r)) != Some(range) {
            return None;
        }
        // Storage that is filled in the loop would be filled twice.
        let below = masked.value.toposort();
        let filled = |u: &UOp| u.op() == Op::End && own().any(|r| u.ranges().contains(r));
        if below.iter().any(filled) {
            return None;
        }
        let varies = |c: &&UOp| c.ranges().contains(range);
        let mut bound = masked.conditions.iter().filter(varies);
        let one = bound.next().filter(|_| bound.next().is_none())?;
        let sure = solved(range, std::slice::from_ref(one), &sum.ranges(), true);
        // Turns in which all count there may be none of.
        let end = range.src()[0].vmax();
        let never = sure.from.as_ref().is_some_and(|from| from.vmin() >= end)
            || sure.to.as_ref().is_some_and(|to| to.vmax() <= 0);
        if never {
            return None;
        }
        let between = |from: &Option<UOp>, to: &Option<UOp>| Span {
            from: from.clone(),
            to: to.clone(),
        };
        let parts = match (&span.from, &span.to, &sure.from, &sure.to) {
            (None, Some(_), None, cut @ Some(_)) => {
                [(between(&None, cut), true), (between(cut, &span.to), false)]
            }
            (Some(_), None, cut @ Some(_), None) => [
                (between(cut, &None), true),
                (between(&span.from, cut), false),
            ],
            _ => return None,
        };
        Some(Cut {
            range: range.clone(),
            parts,
        })
    }

    /// The reduction in two; it is as it was but for what stands below.
    fn apply(&self, sum: &UOp, next: &mut u32) -> UOp {
        let Some(masked) = Masked::of(sum) else {
            return sum.clone();
        };
        let mut part = |(span, all): &(Span, bool)| {
            let counter = loops::fresh(&span.of(&self.range), loops::kind(&self.range), next);
            let left = |c: &&UOp| !all || !c.ranges().contains(&self.range);
            let conditions = masked.conditions.iter().filter(left);
            let value = match conditions.cloned().reduce(|a, b| a & b) {
                Some(gate) => gate.select(&masked.value, &masked.identity()),
                None => masked.value.clone(),
            };
            let mut over = FxHashMap::from_iter([(self.range.clone(), counter)]);
            // Each turn has what the mask lets through of it.
            let around = [&sum.ranges()[..], std::slice::from_ref(&self.range)].concat();
            for r in masked.closes().iter().filter(|r| is_loop(r)) {
                let some = (!all).then(|| solved(r, &masked.conditions, &around, false));
                if !over.contains_key(r) {
                    let turns = some.unwrap_or_default().of(r).substitute(&over);
                    over.insert(r.clone(), loops::fresh(&turns, loops::kind(r), next));
                }
            }
            // What is folded in each turn is folded in two loops now, which are closed once each.
            for u in value.nodes() {
                if u.op() != Op::Reduce || !u.ranges().contains(&self.range) {
                    continue;
                }
                for r in u.src()[1..].iter().filter(|r| r.op() == Op::Range) {
                    if !over.contains_key(r) {
                        let own = loops::fresh(&r.substitute(&over), loops::kind(r), next);
                        over.insert(r.clone(), own);
                    }
                }
            }
            sum.with_src([&[value], &sum.src()[1..]].concat())
                .substitute(&over)
        };
        let [first, second] = &self.parts;
        crate::build::combine(masked.op, &part(first), &part(second))
    }
}

/// The greatest of places, as a sum over the ranges around, and the greatest of their negatives; None where that is not
/// known.
type Wanted = [Option<Affine>; 2];

/// Add what loops that fill storage of the kernel's own need not do, given that masks let through no more of
/// it than the readers' conditions say.
fn fills(nodes: &[UOp], spans: &mut Vec<(UOp, Span)>) {
    let mut users: FxHashMap<&UOp, SmallVec<[&UOp; 4]>> = FxHashMap::default();
    for u in nodes {
        u.src()
            .iter()
            .for_each(|s| users.entry(s).or_default().push(u));
    }
    // What is wanted of each place that is filled, by the STORE: those who read it come first.
    let mut wanted: FxHashMap<&UOp, Wanted> = FxHashMap::default();
    for end in nodes.iter().rev().filter(|u| u.op() == Op::End) {
        let Some(fill) = Fill::of(end) else { continue };
        let most = [false, true].map(|least| fill.most_wanted(&users, &wanted, least));
        spans.extend(fill.turns(&most));
        wanted.insert(fill.store, most);
    }
}

/// Loops that fill storage.
struct Fill<'a> {
    /// What closes the outermost.
    end: &'a UOp,
    store: &'a UOp,
    /// Where it stores.
    place: &'a UOp,
    around: Ranges,
}

impl<'a> Fill<'a> {
    fn of(end: &'a UOp) -> Option<Fill<'a>> {
        let mut store = end;
        while store.op() == Op::End {
            store = &store.src()[0];
        }
        let address = store.src().first().filter(|_| store.op() == Op::Store)?;
        let own = address.op() == Op::Index && address.src()[0].op() == Op::Buffer;
        own.then(|| Fill {
            end,
            store,
            place: &address.src()[1],
            around: end.ranges(),
        })
    }

    /// The greatest place of it that is read, or the greatest negative.
    fn most_wanted(
        &self,
        users: &FxHashMap<&UOp, SmallVec<[&'a UOp; 4]>>,
        wanted: &FxHashMap<&UOp, Wanted>,
        negative: bool,
    ) -> Option<Affine> {
        let mut most: Option<Affine> = None;
        for filled in users.get(self.end)? {
            if filled.op() != Op::After {
                return None;
            }
            for address in users.get(filled)? {
                let place = address.src().get(1).filter(|_| address.op() == Op::Index)?;
                let mut seen: FxHashSet<&UOp> = FxHashSet::default();
                let mut open: SmallVec<[(&UOp, &UOp); 8]> = SmallVec::new();
                let above = |u: &'a UOp| users.get(u).into_iter().flatten().map(move |v| (u, *v));
                open.extend(above(address));
                while let Some((u, user)) = open.pop() {
                    let bound = match user.op() {
                        Op::Load if user.src()[0] == *u => None,
                        Op::Where => self.bound(place, &chosen_where(user, u), negative),
                        Op::Store if user.src()[1] == *u => {
                            let here = user.src()[0].src().get(1) == Some(place);
                            let ends = wanted.get(user);
                            let ends = ends.filter(|_| here && user.src().len() == 2)?;
                            Some(ends[negative as usize].clone()?)
                        }
                        Op::Reduce if user.src()[0] == *u => None,
                        op if op.is_elementwise() => None,
                        _ => return None,
                    };
                    match bound {
                        Some(bound) => most = Some(greater(most, bound)?),
                        None if !seen.insert(user) => {}
                        None => open.extend(above(user)),
                    }
                }
            }
        }
        most
    }

    /// What is greatest of a place, or of its negative, where conditions hold.
    fn bound(&self, place: &UOp, conditions: &[UOp], negative: bool) -> Option<Affine> {
        let at = signed(place, negative)?;
        let around = |u: &UOp| u.ranges().iter().all(|r| self.around.contains(r));
        let (inner, k) = at.terms.iter().find(|t| is_loop(&t.0) && !around(&t.0))?;
        conditions.iter().flat_map(constraints).find_map(|c| {
            let (_, by) = c.terms.iter().find(|t| t.0 == *inner)?;
            let factor = Some(k / by).filter(|f| *f > 0 && k % by == 0)?;
            let mut left = at.clone();
            left.plus(&c, -factor)?;
            // Other loops that are left would be bounded by their ends alone.
            let loose = |t: &&(UOp, i128)| is_loop(&t.0) && !around(&t.0);
            if left.terms.iter().any(|t| loose(&t)) {
                return None;
            }
            let mut most = Affine::number(DType::Index, left.constant);
            for term in &left.terms {
                settle(&mut most, term, &self.around, false)?;
            }
            (!most.terms.is_empty()).then_some(most)
        })
    }

    /// The loop of which a turn is the farthest step, and its turns if no other places are wanted.
    fn turns(&self, wanted: &Wanted) -> Option<(UOp, Span)> {
        let at = Affine::of(self.place)?;
        let own = |t: &&(UOp, i128)| is_loop(&t.0) && !self.around.contains(&t.0) && t.1 > 0;
        let (range, k) = at.terms.iter().filter(own).max_by_key(|t| t.1)?;
        let end = &range.src()[0];
        // Of k·range + rest: ⌊(most + k − rest) / k⌋ turns, of which those below ⌈(least − rest) / k⌉ do nothing.
        let step = |most: &Affine, begins: bool| {
            let ahead = if begins { k - 1 } else { *k };
            let mut left = Affine::number(DType::Index, ahead - at.constant);
            left.plus(most, if begins { -1 } else { 1 })?;
            for (atom, by) in at.terms.iter().filter(|t| t.0 != *range) {
                settle(&mut left, &(atom.clone(), -by), &self.around, begins)?;
            }
            Some(at_most(&quotient(&left, *k)?, end))
        };
        let [to, from] = wanted;
        let span = Span {
            from: from.as_ref().and_then(|least| step(least, true)),
            to: to.as_ref().and_then(|most| step(most, false)),
        };
        let span = Span {
            from: span.from.filter(|turns| turns.vmax() > 0),
            to: span.to.filter(|turns| turns.vmin() < end.vmax()),
        };
        (end.vmax() >= TURNS && !span.is_whole()).then(|| (range.clone(), span))
    }
}

/// A place, or its negative.
fn signed(place: &UOp, negative: bool) -> Option<Affine> {
    let at = Affine::of(place)?;
    let mut signed = Affine::number(DType::Index, 0);
    signed.plus(&at, if negative { -1 } else { 1 })?;
    Some(signed)
}

/// The conditions under which a WHERE is this one of its sources.
fn chosen_where(choice: &UOp, source: &UOp) -> SmallVec<[UOp; 4]> {
    let [condition, yes, no] = choice.src() else {
        return SmallVec::new();
    };
    match (yes == source, no == source) {
        _ if condition == source => SmallVec::new(),
        (true, false) => conjuncts(condition),
        (false, true) => conjuncts(&condition.unary(Op::Not).simplify()),
        _ => SmallVec::new(),
    }
}

/// The greater of two sums that differ by a number.
fn greater(a: Option<Affine>, b: Affine) -> Option<Affine> {
    let Some(a) = a else { return Some(b) };
    let mut less = b.clone();
    less.plus(&a, -1)?;
    let above = less.constant > 0;
    less.terms.is_empty().then_some(if above { b } else { a })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opt::tests::support::{param, ranges, sink};
    use monoglot_uop::ReduceOp;

    /// A mask that does not vary with a sum's turns is asked behind it, and the rest of it within.
    #[test]
    fn what_turns_have_in_common_is_asked_once() {
        let r = ranges(&[8, 8], &[32]);
        let at = |slot, by: &UOp| param(slot, &[8, 32], DType::F32).at(&[by.clone(), r[2].clone()]);
        let product = at(1, &r[0]) * at(2, &r[1]);
        let below = r[1].lt(&(&r[0] + 1));
        let some = r[2].lt(&(&r[0] + 20));
        let zero = product.like(0.0);
        for (mask, within) in [(below.clone(), None), (&below & &some, Some(some))] {
            let value = mask.select(&product, &zero);
            let sum = value.reduce_ranges(ReduceOp::Add, &r[2..]);
            let out = param(0, &[8, 8], DType::F32).at(&r[..2]);
            let kernel = sink(&[out.store(&sum).end(&r[..2])]);
            let nodes = asked_once(&kernel).expect("a kernel").toposort();
            let store = nodes.iter().find(|u| u.op() == Op::Store).expect("one");
            let choice = &store.src()[1];
            assert_eq!(choice.src()[0], below);
            let left = &choice.src()[1].src()[0];
            let expected = match within {
                Some(some) => some.select(&product, &zero),
                None => product.clone(),
            };
            assert_eq!(*left, expected);
        }
    }

    /// Terms in few runs of many, up to a row's own: runs that all rows of a tile want whole ask nothing, and of those behind
    /// them there are as many terms as some row wants.
    #[test]
    fn a_sum_in_runs_is_cut_at_its_outermost_loop() {
        let r = ranges(&[512], &[8, 64]);
        let term = &r[1] * 64 + &r[2];
        let at =
            |slot, by: &UOp| param(slot, &[512, 512], DType::F32).at(&[by.clone(), term.clone()]);
        let product = at(1, &r[0]) * at(2, &r[0]);
        let mask = term.lt(&(&r[0] + 1));
        let value = mask.select(&product, &product.like(0.0));
        let sum = value.reduce_ranges(ReduceOp::Add, &r[1..]);
        let out = param(0, &[512], DType::F32).at(&r[..1]);
        let kernel = sink(&[out.store(&sum).end(&r[..1])]);
        let nodes = limit(&kernel).expect("a kernel").toposort();
        let sums: Vec<&UOp> = nodes.iter().filter(|u| u.op() == Op::Reduce).collect();
        let [whole, some] = sums[..] else {
            panic!("{} sums", sums.len());
        };
        let [whole, some] = match whole.src()[0].op() {
            Op::Where => [some, whole],
            _ => [whole, some],
        };
        assert_eq!(whole.src()[0].op(), Op::Mul);
        assert_eq!(some.src()[0].op(), Op::Where);
        let ends = |sum: &UOp| {
            sum.src()[1..]
                .iter()
                .map(|r| r.src()[0].as_int())
                .collect::<Vec<_>>()
        };
        assert_eq!(ends(whole), [None, Some(64)]);
        assert_eq!(ends(some), [None, None]);
        let begins = |sum: &UOp| sum.src()[1].src().len();
        assert_eq!([begins(whole), begins(some)], [1, 2]);
    }
}
