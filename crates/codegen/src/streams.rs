//! Which vectors are written past the caches. Flows in: a LINEAR whose storage caches do not keep (`is_kept`);
//! flows out: the same list, where a STORE to GLOBAL memory names that as its place if nothing is lost by
//! its lines not being in a cache. Invariant: what is written where, and in which order, stays.
//!
//! A line that is written through the caches is read first, and lies where something else could. That is of use
//! where somebody reads it before it is driven out, so only a kernel whose storage caches do not hold streams what it
//! writes, and only storage that it does not read. Lines have to be written whole: by the vectors of one turn of the
//! loop around them, or by one vector after the other in its turns. A vector of a line whose places are multiples of
//! half of it is written in halves.
//!
//! A store that passes the caches holds up those behind it. Where a kernel reads storage of its own across the vectors
//! that it wrote there, each read waits for these stores, so none passes.

use crate::graph::rebuild;
use monoglot_uop::linear::{Address, address};
use monoglot_uop::rules::Affine;
use monoglot_uop::{AddrSpace, Arg, DType, Op, Result, Target, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Bytes that are written to memory at a time, and those at multiples of which a store is of one piece.
const LINE: i128 = 64;
const PIECE: i128 = 32;
/// Vectors that a core reads or computes, several threads at once, while memory takes a line that is written, and while a
/// line comes from the last cache.
const WORK: f64 = 20.0;
const READ: f64 = 4.0;
/// Lines from which on a run may begin or end within one: half of that is written by others, and waits for memory.
const LONG: i128 = 256;

/// A STORE whose place is a sum of multiples of loops' numbers.
struct Write<'a> {
    store: &'a UOp,
    /// Elements of the vector, and the bytes of each.
    lanes: i128,
    bytes: i128,
    /// The loops and what the place grows by at a turn of each, but for a constant.
    terms: Vec<(&'a UOp, i128)>,
    constant: i128,
    /// The loop around it, and what it grows by in that.
    inner: Option<(&'a UOp, i128)>,
    /// Its number among the loop's writes to the storage.
    turn: usize,
}

/// Loops around an instruction, by their number in the list.
type Loop = usize;

/// Whether what a kernel writes stays in caches that hold all of its storage that it reads or writes, of which it moves
/// more than half of the last cache: they do for several threads, which together write faster than memory takes it. One
/// thread waits for each line that it writes to be read first, and several that work on each line for longer than memory
/// takes it leave caches that are nearly full to what is read.
pub(crate) fn is_kept(linear: &UOp, target: &Target) -> bool {
    let [_, second, last] = target.caches;
    let most = last + target.threads.min(target.cores) * second;
    let moved = Moved::of(linear.src());
    let full = moved.storage > (last / 4 * 3) as f64 && moved.work() >= WORK;
    target.threads > 1 && moved.storage <= most as f64 && !full
}

/// What a kernel moves.
#[derive(Default)]
struct Moved {
    /// Bytes of storage that it reads or writes: of a table of which it looks up rows, these.
    storage: f64,
    /// Vectors that are read or computed.
    vectors: f64,
    /// Lines that are written.
    lines: f64,
}

impl Moved {
    fn of(list: &[UOp]) -> Moved {
        let mut turns = vec![1.0];
        let mut moved = Moved::default();
        let mut bytes: FxHashMap<&UOp, f64> = FxHashMap::default();
        for u in list {
            let times = turns[turns.len() - 1];
            match u.op() {
                Op::Special => turns[0] *= (u.vmax() + 1) as f64,
                Op::Range => turns.push(times * (u.vmax() + 1) as f64),
                Op::End => drop(turns.pop()),
                Op::Load | Op::Store | Op::AtomicAdd => {
                    let of = address(&u.src()[0]).filter(|a| a.buffer.op() == Op::Param);
                    if let Some(a) = of {
                        let now = times * (a.lanes.max(1) * a.buffer.dtype().bytes()) as f64;
                        *bytes.entry(a.buffer).or_default() += now;
                        match u.op() {
                            Op::Store => moved.lines += now / LINE as f64,
                            _ => moved.vectors += times,
                        }
                    }
                }
                op if op.is_elementwise() && !u.shape().is_empty() => moved.vectors += times,
                _ => {}
            }
        }
        for (param, now) in bytes {
            moved.storage += now.min(param.shape().max_len() as f64 * param.dtype().bytes() as f64);
        }
        moved
    }

    /// Vectors that are read or computed for each line that is written.
    fn work(&self) -> f64 {
        (self.vectors + READ * (self.storage / LINE as f64 - self.lines)) / self.lines
    }
}

/// Name the STOREs that pass the caches by.
///
/// # Errors
/// None for a list that obeys its spec.
pub(crate) fn mark(linear: UOp) -> Result<UOp> {
    let streams = chosen(linear.src());
    if streams.is_empty() {
        return Ok(linear);
    }
    let past = Arg::Place(None, Some(AddrSpace::Global));
    rebuild(&linear, |u, src| {
        let same = src[..] == *u.src();
        let new = if same { u.clone() } else { u.with_src(src) };
        Ok(match streams.contains(u) {
            true => new.with_arg(past.clone()),
            false => new,
        })
    })
}

/// The STOREs that are to.
fn chosen(list: &[UOp]) -> FxHashSet<&UOp> {
    let mut open: Vec<(Loop, Option<&UOp>)> = Vec::new();
    let mut read: FxHashSet<&UOp> = FxHashSet::default();
    let mut writes: BTreeMap<(Loop, u64), Vec<Write>> = BTreeMap::new();
    for (i, u) in list.iter().enumerate() {
        match u.op() {
            Op::Range => open.push((i, Some(u))),
            Op::If => open.push((i, None)),
            Op::End | Op::EndIf => drop(open.pop()),
            Op::Load | Op::AtomicAdd => {
                let from = address(&u.src()[0]);
                if from.as_ref().is_some_and(crosses) {
                    return FxHashSet::default();
                }
                read.extend(from.map(|a| a.buffer));
            }
            Op::Store => {
                if let Some(a) = address(&u.src()[0])
                    && let Some(slot) = a.buffer.buffer_arg().map(|b| b.slot)
                    && a.buffer.op() == Op::Param
                    && let Some(write) = Write::of(u, &a, &open)
                {
                    let inside = open.last().map_or(0, |l| l.0);
                    let others = writes.entry((inside, slot)).or_default();
                    let turn = others.len();
                    others.push(Write { turn, ..write });
                }
            }
            _ => {}
        }
    }
    let storage = |w: &Write| address(&w.store.src()[0]).is_some_and(|a| read.contains(a.buffer));
    let free = writes.into_values().filter(|w| !storage(&w[0]));
    free.flat_map(whole_lines).collect()
}

/// Whether a vector of storage of the kernel's own lies in several of those that are written there.
fn crosses(a: &Address) -> bool {
    let lanes = a.lanes.max(1) as i128;
    let whole = |place: Affine| {
        let terms = place.terms.iter().map(|t| t.1);
        terms.chain([place.constant]).all(|k| k % lanes == 0)
    };
    a.buffer.addrspace() == Some(AddrSpace::Local) && !place(a.index).is_some_and(whole)
}

/// An index as a sum of multiples of what it is made of.
pub(crate) fn multiples(index: &UOp) -> Option<Affine> {
    let mut place = Affine::number(DType::Index, 0);
    place.add(index, 1)?;
    Some(place)
}

/// The same where these are the numbers of loops and threads; None where it is something else.
pub(crate) fn place(index: &UOp) -> Option<Affine> {
    let counts = |t: &(UOp, i128)| matches!(t.0.op(), Op::Range | Op::Special);
    multiples(index).filter(|place| place.terms.iter().all(counts))
}

impl<'a> Write<'a> {
    /// One that goes on by whole vectors in each of the loops around it.
    fn of(store: &'a UOp, a: &Address<'a>, open: &[(Loop, Option<&'a UOp>)]) -> Option<Write<'a>> {
        let lanes = a.lanes as i128;
        let bytes = a.buffer.dtype().bytes() as i128;
        if store.src().len() > 2 || lanes == 0 || !matches!(lanes * bytes, 16 | 32 | 64) {
            return None;
        }
        let place = place(a.index)?;
        let step = |r: &UOp| place.terms.iter().find(|t| t.0 == *r).map(|t| t.1);
        let loops = open.iter().map(|l| l.1.and_then(|r| Some((r, step(r)?))));
        let mut terms: Vec<(&UOp, i128)> = loops.collect::<Option<_>>()?;
        let inner = terms.last().copied();
        let vectors = |k: i128| k % lanes.min(PIECE / bytes) == 0;
        let fits = place.terms.iter().all(|t| vectors(t.1));
        terms.sort_by_key(|t| t.0.address());
        (fits && vectors(place.constant)).then_some(Write {
            store,
            lanes,
            bytes,
            terms,
            constant: place.constant,
            inner,
            turn: 0,
        })
    }

    fn end(&self) -> i128 {
        self.constant + self.lanes
    }

    /// Whether lines begin where it does.
    fn begins(&self) -> bool {
        let whole = |k: i128| k * self.bytes % LINE == 0;
        whole(self.constant) && self.terms.iter().all(|t| whole(t.1))
    }
}

/// How often a loop turns; once where nobody knows.
fn turns(range: &UOp) -> i128 {
    let known = range.src().first().and_then(UOp::const_value);
    known.map_or(1, |n| n.to_i128())
}

/// Whether the loop's next turn goes on with a run of so many elements, and what all turns write shares few lines with
/// others: it is one run, long, or begins and ends where lines do. Loops around may go on with it.
fn goes_on(run: &Write, length: i128) -> bool {
    let Some((inner, _)) = run.inner.filter(|t| t.1 == length) else {
        return false;
    };
    let mut all = length * turns(inner);
    let mut others = run.terms.clone();
    others.retain(|t| t.0 != inner);
    while let Some(k) = others.iter().position(|t| t.1 == all) {
        all *= turns(others.swap_remove(k).0);
    }
    let whole = |k: i128| k * run.bytes % LINE == 0;
    let borders = whole(run.constant) && whole(all) && others.iter().all(|t| whole(t.1));
    others.is_empty() || borders || all * run.bytes >= LONG * LINE
}

/// Those of a loop's writes to one storage that are whole lines: runs of neighbours one after the other (few lines
/// can be put together at a time), or a run that the loop's next turn goes on with.
fn whole_lines<'a>(mut writes: Vec<Write<'a>>) -> Vec<&'a UOp> {
    writes.sort_by(|a, b| {
        let terms = |w: &Write| -> Vec<(usize, i128)> {
            w.terms.iter().map(|t| (t.0.address(), t.1)).collect()
        };
        (terms(a), a.constant).cmp(&(terms(b), b.constant))
    });
    let runs: Vec<&[Write]> = writes
        .chunk_by(|a, b| a.terms == b.terms && a.end() == b.constant)
        .collect();
    let length = |run: &[Write]| run.last().map_or(0, Write::end) - run[0].constant;
    let whole = |run: &&&[Write]| {
        let in_turn = run.windows(2).all(|w| w[0].turn + 1 == w[1].turn);
        let lines = in_turn && run[0].begins() && length(run) * run[0].bytes % LINE == 0;
        lines || runs.len() == 1 && goes_on(&run[0], length(run))
    };
    let all = runs.iter().filter(whole).flat_map(|run| run.iter());
    all.map(|w| w.store).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use monoglot_uop::text::parse;

    /// Vectors of so many lanes in rows of so many, `apart` elements from each other, behind the first `begin`; what is
    /// written there is read from the kernel's own storage, `own` elements behind where such vectors begin.
    fn vectors(lanes: i64, row: i64, apart: i64, begin: i64, own: i64) -> usize {
        let text = format!(
            "LINEAR {{
              p0 = PARAM[0, f32, GLOBAL] (8000000,)
              b0 = BUFFER[0, f32, LOCAL] (8000000,)
              {lanes}i32 {row}i32 {apart}i32 {begin}i32 900i32 {own}i32
              r0 = RANGE[0, LOOP] 900i32
              %0 = MUL r0 {apart}
              r1 = RANGE[1, LOOP] {row}i32
              %1 = MUL r1 {lanes}
              %2 = ADD %0 %1
              %3 = ADD %2 {begin}
              %4 = ADD %1 {own}
              %5 = SHRINK b0 (%4,) ({lanes}i32,)
              %6 = LOAD %5
              %7 = SHRINK p0 (%3,) ({lanes}i32,)
              %8 = STORE %7 %6
              %9 = END %8 r1
              %10 = END %9 r0
            }}"
        );
        let linear = parse(&text).expect("it is a list");
        chosen(linear.src()).len()
    }

    fn rows(row: i64, apart: i64, begin: i64) -> usize {
        vectors(8, row, apart, begin, 0)
    }

    #[test]
    fn vectors_of_a_line_may_begin_in_the_middle_of_one() {
        // Rows that follow each other: 12 · 16 elements and half a line, and a quarter of one.
        assert_eq!(vectors(16, 12, 192, 8, 0), 1);
        assert_eq!(vectors(16, 12, 200, 0, 0), 0);
        assert_eq!(vectors(16, 12, 192, 4, 0), 0);
    }

    /// Of a table of 32 MB, so many rows are looked up and written elsewhere.
    fn is_gathered_in_caches(rows: i64) -> bool {
        let text = format!(
            "LINEAR {{
              256i32 16i32
              p0 = PARAM[0, f32, GLOBAL] ({},)
              p1 = PARAM[1, i32, GLOBAL] ({rows},)
              p2 = PARAM[2, f32, GLOBAL] (8000000,)
              r0 = RANGE[0, LOOP] {rows}i32
              %0 = INDEX p1 r0
              %1 = LOAD %0
              %2 = MUL %1 256
              %3 = MUL r0 256
              r1 = RANGE[1, LOOP] 16i32
              %4 = MUL r1 16
              %5 = ADD %2 %4
              %6 = ADD %3 %4
              %7 = SHRINK p2 (%5,) (16i32,)
              %8 = LOAD %7
              %9 = SHRINK p0 (%6,) (16i32,)
              %10 = STORE %9 %8
              %11 = END %10 r1
              %12 = END %11 r0
            }}",
            rows * 256
        );
        let target = Target {
            threads: 2,
            cores: 2,
            caches: [32 << 10, 1 << 20, 16 << 20],
            ..crate::opt::tests::support::target(false)
        };
        is_kept(&parse(&text).expect("it is a list"), &target)
    }

    /// What is read is not more for each line because threads share the lines.
    #[test]
    fn lines_of_all_threads_count() {
        let text = "LINEAR {
              8i32 1000i32 16i32
              p0 = PARAM[0, f32, GLOBAL] (128000,)
              p1 = PARAM[1, f32, GLOBAL] (128000,)
              %0 = SPECIAL[\"tid\"] 8i32
              %1 = MUL %0 1000
              r0 = RANGE[0, LOOP] 1000i32
              %2 = ADD %1 r0
              %3 = MUL %2 16
              %4 = SHRINK p1 (%3,) (16i32,)
              %5 = LOAD %4
              %6 = SHRINK p0 (%3,) (16i32,)
              %7 = STORE %6 %5
              %8 = END %7 r0
            }";
        let moved = Moved::of(parse(text).expect("it is a list").src());
        assert_eq!(moved.lines, 8000.0);
        assert_eq!(moved.work(), 1.0 + READ);
    }

    #[test]
    fn of_a_table_what_is_looked_up_counts() {
        assert!(is_gathered_in_caches(8192));
        assert!(!is_gathered_in_caches(9400));
    }

    #[test]
    fn nothing_passes_what_is_read_across_vectors_that_were_written() {
        for own in [0, 16] {
            assert_eq!(vectors(16, 12, 192, 0, own), 1);
        }
        for own in [2, 8] {
            assert_eq!(vectors(16, 12, 192, 0, own), 0);
        }
    }

    #[test]
    fn short_rows_that_share_lines_with_others_stay() {
        // Whole lines; rows that follow each other, whatever they begin with; a part of each that is whole lines.
        assert_eq!(rows(16, 128, 0), 1);
        assert_eq!(rows(17, 136, 0), 1);
        assert_eq!(rows(17, 136, 8), 1);
        assert_eq!(rows(14, 128, 16), 1);
        // What others write beside it is in the same lines.
        assert_eq!(rows(15, 136, 8), 0);
        assert_eq!(rows(15, 128, 0), 0);
        assert_eq!(rows(14, 128, 8), 0);
        // Of long rows that is little.
        assert_eq!(rows(900, 7208, 8), 1);
    }
}
