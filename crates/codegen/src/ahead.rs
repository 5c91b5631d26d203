//! What is asked for before it is read. Flows in: a LINEAR, the bytes that its kernel moves and the target; flows
//! out: the same list, with a LOAD whose place is LOCAL, and whose value nobody needs, for each line that the next
//! turn of a loop will read while this turn reads its own again. Invariant: no value is another one.
//!
//! A loop over slices that goes through each of them several times (a statistic first, then what it is for) waits
//! for memory in its first pass, and leaves it idle in those that find the slice in a cache. So the second pass asks
//! for the slice of the next turn, if the second cache holds both, and the last one not what all turns read.

use crate::graph::node;
use monoglot_uop::linear::{Address, address};
use monoglot_uop::rules::Affine;
use monoglot_uop::{AddrSpace, Arg, DType, Op, Target, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Bytes that come at a time.
const LINE: i128 = 64;

/// A loop, by the place of its RANGE in the list.
type Loop = usize;

/// What a slice is known by: the loop over slices, the storage, and where this turn's begins.
type Slice = (Loop, u64, Vec<(usize, i128)>);

/// A LOAD that reads a slice again.
struct Again<'a> {
    /// Its place in the list.
    at: usize,
    index: &'a UOp,
    storage: &'a UOp,
    /// The loop over slices, and the elements from a slice to the next one.
    over: Loop,
    range: &'a UOp,
    step: i128,
}

/// Have slices asked for while those before them are read again.
pub(crate) fn ask(linear: UOp, moved: u64, target: &Target) -> UOp {
    let fits = moved <= target.caches[2] as u64;
    if fits || !target.arranged || target.workgroups {
        return linear;
    }
    let again = reads(linear.src(), target);
    if again.is_empty() {
        return linear;
    }
    let mut known: FxHashSet<UOp> = linear.src().iter().cloned().collect();
    let mut numbers: Vec<UOp> = Vec::new();
    let mut after: FxHashMap<Loop, Vec<UOp>> = FxHashMap::default();
    for read in again {
        let Some(next) = read.next(&known) else {
            continue;
        };
        known.extend(next.at_the_load.iter().cloned());
        for number in next.numbers {
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        let gates = after.entry(read.over).or_default();
        if !gates.contains(&next.gate) {
            gates.push(next.gate);
        }
        after.entry(read.at).or_default().extend(next.at_the_load);
    }
    let mut list = numbers.clone();
    for (i, u) in linear.src().iter().enumerate() {
        if !numbers.contains(u) {
            list.push(u.clone());
        }
        list.extend(after.remove(&i).into_iter().flatten());
    }
    linear.with_src(list)
}

/// The LOADs of second passes, one for each line.
fn reads<'a>(list: &'a [UOp], target: &Target) -> Vec<Again<'a>> {
    let mut open: Vec<(Loop, &UOp)> = Vec::new();
    // The first two loops in which each slice is read.
    let mut passes: FxHashMap<Slice, (Loop, Loop)> = FxHashMap::default();
    // The lines that are asked for, by the loop and where they are but for a constant.
    let mut lines: FxHashSet<(Loop, Slice, i128)> = FxHashSet::default();
    let mut again = Vec::new();
    for (i, u) in list.iter().enumerate() {
        match u.op() {
            Op::Range => open.push((i, u)),
            Op::End => drop(open.pop()),
            Op::Load => {
                let Some((a, place)) = plain(u) else { continue };
                let bytes = a.buffer.dtype().bytes() as i128;
                // Both slices at once, beside what else is done.
                let most = target.caches[1] as i128 / 2;
                for pair in open.windows(2).rev() {
                    let (over, inside) = (pair[0], pair[1].0);
                    let Some(step) = step(&place, over.1) else {
                        continue;
                    };
                    let slot = a.buffer.buffer_arg().map_or(0, |b| b.slot);
                    let slice = (over.0, slot, begin(&place, &open, over.0));
                    let seen = passes.entry(slice.clone()).or_insert((inside, inside));
                    if seen.0 == seen.1 {
                        seen.1 = inside;
                    }
                    let (first, second) = *seen;
                    if first == inside || second != inside || step.abs() * bytes > most {
                        continue;
                    }
                    let line = place.constant * bytes / LINE;
                    let around = open.last().map_or(0, |l| l.0);
                    if lines.insert((around, slice, line)) {
                        again.push(Again {
                            at: i,
                            index: a.index,
                            storage: &u.src()[0].src()[0],
                            over: over.0,
                            range: over.1,
                            step,
                        });
                    }
                    break;
                }
            }
            _ => {}
        }
    }
    again
}

/// The address of a LOAD from memory that happens whatever holds, and where it is.
fn plain(load: &UOp) -> Option<(Address<'_>, Affine)> {
    let a = address(&load.src()[0])?;
    if load.src().len() > 1 || load.src()[0].src()[0].op() != Op::Param {
        return None;
    }
    let mut place = Affine::number(DType::Index, 0);
    place.add(a.index, 1)?;
    let counts = |t: &(UOp, i128)| matches!(t.0.op(), Op::Range | Op::Special);
    place.terms.iter().all(counts).then_some((a, place))
}

/// By how much a place grows at a turn of a loop.
fn step(place: &Affine, range: &UOp) -> Option<i128> {
    place.terms.iter().find(|t| t.0 == *range).map(|t| t.1)
}

/// The part of a place that the loops inside of one leave as it is, but for the constant.
fn begin(place: &Affine, open: &[(Loop, &UOp)], over: Loop) -> Vec<(usize, i128)> {
    let inside = |u: &UOp| open.iter().any(|l| l.0 > over && l.1 == u);
    let outside = place.terms.iter().filter(|t| !inside(&t.0));
    let mut begin: Vec<_> = outside.map(|t| (t.0.address(), t.1)).collect();
    begin.sort_unstable();
    begin
}

/// What asks for an element of the next slice.
struct Next {
    /// Constants, which stand before all else.
    numbers: [UOp; 3],
    /// Whether there is a next slice, which is known where the loop's turn begins.
    gate: UOp,
    at_the_load: [UOp; 3],
}

impl Again<'_> {
    /// What asks for the same element of the next slice; None where a part of it is computed already, or where it
    /// is no number of the index's type.
    fn next(&self, known: &FxHashSet<UOp>) -> Option<Next> {
        let step = i64::try_from(self.step).ok()?;
        let (lo, hi) = self.index.bounds();
        let (least, most) = match self.index.dtype() {
            DType::I32 => (i32::MIN as i64, i32::MAX as i64),
            _ => (i64::MIN, i64::MAX),
        };
        if lo.checked_add(step)? < least || hi.checked_add(step)? > most {
            return None;
        }
        let step = UOp::int(step, self.index.dtype());
        let last = UOp::int(self.range.vmax(), self.range.dtype());
        let gate = node(Op::CmpLt, [self.range.clone(), last.clone()]);
        let index = node(Op::Add, [self.index.clone(), step.clone()]);
        let to = self.storage.at(&[index.clone()]);
        let zero = UOp::constant(to.dtype().zero(), to.dtype());
        let near = Arg::Place(None, Some(AddrSpace::Local));
        let src = vec![to.clone(), zero.clone(), gate.clone()];
        let line = UOp::new(Op::Load, src, near);
        let free = [&gate, &index, &to].iter().all(|u| !known.contains(u));
        free.then_some(Next {
            numbers: [step, last, zero],
            gate,
            at_the_load: [index, to, line],
        })
    }
}
