//! What is asked for before it is read. Flows in: a LINEAR whose kernel moves more than the last cache of the
//! target holds; flows out: the same list, with a LOAD whose place is LOCAL, and whose value nobody needs, for each
//! line that the next turn of a loop reads, where this turn reads its own again. Invariant: no value is another one.
//!
//! A loop over slices that goes through each of them several times (a statistic first, then what it is for) waits
//! for memory in its first pass, and leaves it idle in those that find the slice in a cache. So the second pass asks
//! for the slice of the next turn, if the second cache holds both.

use crate::graph::node;
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

/// A LOAD that reads a slice again.
struct Again<'a> {
    /// Its place in the list.
    at: usize,
    load: &'a UOp,
    /// The loop over slices, and the elements from a slice to the next one.
    over: (Loop, &'a UOp),
    step: i128,
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
    for read in &again {
        let (over, range) = read.over;
        let later = Later::of(read.load, range, read.step, 1, None);
        if let Some(later) = later.filter(|l| l.all().all(|u| !known.contains(u))) {
            numbers.extend(later.numbers);
            after.entry(over).or_default().extend(later.gate);
            after.entry(read.at).or_default().extend(later.line);
        }
    }
    insert(linear, numbers, after)
}

/// What asks for the element that a LOAD reads some turns of a loop later.
pub(crate) struct Later {
    /// Constants.
    pub(crate) numbers: Vec<UOp>,
    /// Whether there is one.
    pub(crate) gate: Vec<UOp>,
    /// What stands at the LOAD.
    pub(crate) line: [UOp; 3],
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
        let end = range.vmax() as i128 + 1 - turns;
        let a = address(&load.src()[0]).filter(|_| end > 0)?;
        let by = UOp::int((step * turns) as i64, a.index.dtype());
        let end = UOp::int(end as i64, range.dtype());
        let there = node(Op::CmpLt, [range.clone(), end.clone()]);
        let index = node(Op::Add, [a.index.clone(), by.clone()]);
        let wraps = index.bounds().0 as i128 != a.index.bounds().0 as i128 + step * turns;
        let to = a.buffer.at(std::slice::from_ref(&index));
        let both = besides.map(|c| node(Op::And, [c.clone(), there.clone()]));
        let gate: Vec<UOp> = [there].into_iter().chain(both).collect();
        let (line, zero) = asking(&to, gate.last()?);
        (!wraps).then_some(Later {
            numbers: vec![by, end, zero],
            gate,
            line: [index, to, line],
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

/// The LOADs of second passes, one for each line.
fn reads<'a>(list: &'a [UOp], target: &Target) -> Vec<Again<'a>> {
    let mut open: Vec<(Loop, &UOp)> = Vec::new();
    // The first two loops in which each slice is read.
    let mut passes: FxHashMap<Slice, (Loop, Loop)> = FxHashMap::default();
    // The lines that are asked for, by the loop and where they are but for a constant.
    let mut lines: FxHashSet<(Loop, Slice, i128)> = FxHashSet::default();
    let mut again = Vec::new();
    for (at, load) in list.iter().enumerate() {
        match load.op() {
            Op::Range => open.push((at, load)),
            Op::End => drop(open.pop()),
            _ => {}
        }
        let Some((slot, bytes, place)) = plain(load) else {
            continue;
        };
        for pair in open.windows(2).rev() {
            let over = pair[0];
            let inside = pair[1].0;
            let Some(&(_, step)) = place.terms.iter().find(|t| t.0 == *over.1) else {
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
            let line = place.constant * bytes / LINE;
            let around = open.last().map_or(0, |l| l.0);
            if lines.insert((around, slice, line)) {
                again.push(Again {
                    at,
                    load,
                    over,
                    step,
                });
            }
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
