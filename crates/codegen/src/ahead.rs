//! What is asked for before it is read. Flows in: a LINEAR whose kernel moves more than the last cache of the
//! target holds; flows out: the same list, with a LOAD whose place is LOCAL, and whose value nobody needs, for each
//! line that the next turn of a loop reads, where this turn reads its own again. Invariant: no value is another one.
//!
//! A loop over slices that goes through each of them several times (a statistic first, then what it is for) waits
//! for memory in its first pass, and leaves it idle in those that find the slice in a cache. So the second pass asks
//! for the slice of the next turn, if the second cache holds both.

use crate::graph::node;
use crate::strands::Lines;
use crate::streams::place;
use monoglot_uop::linear::address;
use monoglot_uop::rules::Affine;
use monoglot_uop::{AddrSpace, Arg, Op, Target, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Bytes that come at a time.
pub(crate) const LINE: i128 = 64;
/// Bytes that are under way: more than memory delivers while one line is waited for.
pub(crate) const UNDER_WAY: i128 = 8192;

/// Fewest bytes of a turn that are worth asking for.
pub(crate) const LEAST: i128 = 16;
/// Most lines between neighbours of a row: what is further is another row.
pub(crate) const NEXT: i128 = 4;

/// A loop, by the place of its RANGE in the list.
pub(crate) type Loop = usize;

/// What a slice is known by: the loop over slices, the storage, and where this turn's begins.
type Slice = (Loop, u64, Vec<(usize, i128)>);

/// What a loop reads again of a slice.
struct Again<'a> {
    /// The loop over slices, and the elements from a slice to the next one.
    over: (Loop, &'a UOp),
    step: i128,
    lines: Lines<'a>,
}

/// Have slices asked for while those before them are read again.
pub(crate) fn ask(linear: UOp, target: &Target) -> UOp {
    let again = reads(linear.src(), target);
    if again.is_empty() {
        return linear;
    }
    let known: FxHashSet<&UOp> = linear.src().iter().collect();
    let mut numbers: Vec<UOp> = Vec::new();
    let mut after: FxHashMap<Loop, Vec<UOp>> = FxHashMap::default();
    for Again { over, step, lines } in &again {
        let strands = lines.strands();
        for (k, line) in lines.all.iter().enumerate() {
            let Some(a) = address(&line.load.src()[0]) else {
                continue;
            };
            let apart = strands.as_ref().and_then(|s| lines.apart(k, s));
            let mut by = apart.unwrap_or(Affine::number(a.index.dtype(), 0));
            by.constant += step;
            let later = Later::by(line.load, &by.build(), over.1, 1, None);
            if let Some(later) = later.filter(|l| l.all().all(|u| !known.contains(u))) {
                numbers.extend(later.numbers);
                after.entry(over.0).or_default().extend(later.gate);
                after.entry(line.at).or_default().extend(later.line);
            }
        }
    }
    insert(linear, numbers, after)
}

/// What asks for an element that a LOAD reads in a later turn of a loop.
pub(crate) struct Later {
    /// Constants.
    pub(crate) numbers: Vec<UOp>,
    /// Whether there is one.
    pub(crate) gate: Vec<UOp>,
    /// What stands at the LOAD.
    pub(crate) line: Vec<UOp>,
}

impl Later {
    /// So many turns later, a turn being that many elements, where the condition holds besides, if there is one. None
    /// where there are fewer turns, or where the place is no number of the index's type.
    pub(crate) fn of(
        load: &UOp,
        range: &UOp,
        step: i128,
        turns: i128,
        besides: Option<&UOp>,
    ) -> Option<Later> {
        let index = address(&load.src()[0])?.index;
        let by = UOp::int((step * turns) as i64, index.dtype());
        Later::by(load, &by, range, turns, besides)
    }

    /// So many elements further, in all but so many last turns of a loop.
    pub(crate) fn by(
        load: &UOp,
        elements: &UOp,
        range: &UOp,
        last: i128,
        besides: Option<&UOp>,
    ) -> Option<Later> {
        let end = range.vmax() as i128 + 1 - last;
        let a = address(&load.src()[0]).filter(|_| end > 0)?;
        let end = UOp::int(end as i64, range.dtype());
        let there = node(Op::CmpLt, [range.clone(), end.clone()]);
        let index = node(Op::Add, [a.index.clone(), elements.clone()]);
        let sum = |of: fn(&UOp) -> i64| of(a.index) as i128 + of(elements) as i128;
        let [least, most] = [sum(|u| u.bounds().0), sum(|u| u.bounds().1)];
        let (lowest, highest) = index.bounds();
        let wraps = (lowest as i128) < least || highest as i128 > most;
        let to = a.buffer.at(std::slice::from_ref(&index));
        let both = besides.map(|c| node(Op::And, [c.clone(), there.clone()]));
        let gate: Vec<UOp> = [there].into_iter().chain(both).collect();
        let (asked, zero) = asking(&to, gate.last()?);
        let counts = |u: &UOp| matches!(u.op(), Op::Range | Op::Special);
        let mut nodes = elements.toposort_gated(|u| !counts(u));
        let own: FxHashSet<UOp> = a.index.toposort_gated(|u| !counts(u)).into_iter().collect();
        nodes.retain(|u| !own.contains(u) && !counts(u));
        let (numbers, mut line): (Vec<UOp>, Vec<UOp>) =
            nodes.into_iter().partition(|u| u.op() == Op::Const);
        line.extend([index, to, asked]);
        let numbers = numbers.into_iter().chain([end, zero]).collect();
        (!wraps).then_some(Later {
            numbers,
            gate,
            line,
        })
    }

    /// All but the constants.
    pub(crate) fn all(&self) -> impl Iterator<Item = &UOp> {
        self.gate.iter().chain(&self.line)
    }
}

/// A LINEAR with constants before all else and other instructions behind those at these places, each once.
pub(crate) fn insert(linear: UOp, numbers: Vec<UOp>, mut after: FxHashMap<usize, Vec<UOp>>) -> UOp {
    let mut list = numbers;
    for (i, u) in linear.src().iter().enumerate() {
        list.push(u.clone());
        list.extend(after.remove(&i).into_iter().flatten());
    }
    let mut seen: FxHashSet<UOp> = FxHashSet::default();
    list.retain(|u| seen.insert(u.clone()));
    linear.with_src(list)
}

/// What asks for the line of an element, if there is one, and the constant that it needs.
pub(crate) fn asking(to: &UOp, gate: &UOp) -> (UOp, UOp) {
    let zero = UOp::constant(to.dtype().zero(), to.dtype());
    let src = vec![to.clone(), zero.clone(), gate.clone()];
    let near = Arg::Place(None, Some(AddrSpace::Local));
    (UOp::new(Op::Load, src, near), zero)
}

/// What is read in second passes.
fn reads<'a>(list: &'a [UOp], target: &Target) -> Vec<Again<'a>> {
    let mut open: Vec<(Loop, &UOp)> = Vec::new();
    // The first two loops in which each slice is read.
    let mut passes: FxHashMap<Slice, (Loop, Loop)> = FxHashMap::default();
    // What is asked for already, by the innermost loop.
    let mut parts: FxHashMap<(Loop, Slice), usize> = FxHashMap::default();
    let mut again: Vec<Again> = Vec::new();
    for (at, load) in list.iter().enumerate() {
        match load.op() {
            Op::Range => open.push((at, load)),
            Op::End => drop(open.pop()),
            _ => {}
        }
        let Some((slot, bytes, place)) = plain(load) else {
            continue;
        };
        let steps = |range: &UOp| place.terms.iter().find(|t| t.0 == *range).map(|t| t.1);
        for pair in open.windows(2).rev() {
            let over = pair[0];
            let inside = pair[1].0;
            let Some(step) = steps(over.1) else {
                continue;
            };
            let slice = (over.0, slot, begin(&place, &open, over.0));
            let seen = passes.entry(slice.clone()).or_insert((inside, inside));
            if seen.0 == seen.1 {
                seen.1 = inside;
            }
            // Both slices at once, beside what else is done.
            let fits = step.abs() * bytes <= target.caches[1] as i128 / 2;
            if seen.0 == inside || seen.1 != inside || !fits {
                continue;
            }
            let inner = open.iter().rev().take_while(|l| l.0 > over.0);
            let part = *parts
                .entry((open[open.len() - 1].0, slice))
                .or_insert_with(|| {
                    let loops: Vec<_> = inner.map(|l| (l.1, steps(l.1).unwrap_or(0))).collect();
                    let lines = Lines::of(&loops, bytes);
                    again.push(Again { over, step, lines });
                    again.len() - 1
                });
            again[part].lines.add(at, load, place.constant);
            break;
        }
    }
    again
}

/// Whether this is storage that the second cache does not hold.
pub(crate) fn is_far(u: &UOp, target: &Target) -> bool {
    let bytes = || u.shape().max_len() as i128 * u.dtype().bytes() as i128;
    u.op() == Op::Param && bytes() > target.caches[1] as i128
}

/// Whether a STORE is to LOCAL storage.
pub(crate) fn copies(store: &UOp) -> bool {
    let to = address(&store.src()[0]).map(|a| a.buffer.addrspace());
    to == Some(Some(AddrSpace::Local))
}

/// The storage, bytes of an element and place of a LOAD from memory that happens whatever holds.
pub(crate) fn plain(load: &UOp) -> Option<(u64, i128, Affine)> {
    if load.op() != Op::Load || load.src().len() > 1 {
        return None;
    }
    let a = address(&load.src()[0])?;
    let buffer = load.src()[0].src()[0].buffer_arg()?;
    let param = load.src()[0].src()[0].op() == Op::Param;
    let bytes = buffer.dtype.bytes() as i128;
    param.then_some((buffer.slot, bytes, place(a.index)?))
}

/// The part of a place that the loops inside of one leave as it is, but for the constant.
fn begin(place: &Affine, open: &[(Loop, &UOp)], over: Loop) -> Vec<(usize, i128)> {
    let inside = |u: &UOp| open.iter().any(|l| l.0 > over && l.1 == u);
    let outside = place.terms.iter().filter(|t| !inside(&t.0));
    let mut begin: Vec<_> = outside.map(|t| (t.0.address(), t.1)).collect();
    begin.sort_unstable();
    begin
}
