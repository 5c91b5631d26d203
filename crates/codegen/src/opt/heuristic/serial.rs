//! Reductions that an axis carries along, or whose elements name its turns: SCAN and SCATTER, and what such
//! kernels get besides. Flows in: a kernel; flows out: Opts, added to those chosen, and whether there are any.
//! Invariant: nothing here that folds depends on the number of threads.
//!
//! A scan's axis turns in order. Where the loops inside of it are contiguous, they are vectors, and what they
//! carry is as much as the first cache holds; where it is contiguous itself, it is innermost, and rows stand
//! side by side, so that their sums wait for each other. A scatter's destinations are parts, each of which goes through
//! all indices: as few as what is gained by a nearer cache pays for.

use super::cpu::{THREADED, threads};
use super::{Chosen, inner, outermost};
use crate::build::NEAR;
use crate::graph::bits;
use crate::loops::kind;
use crate::opt::cost::beside;
use crate::opt::features::{Access, Features, Mask};
use crate::opt::scan::{self, Running};
use crate::opt::scatter::{self, Placed};
use crate::scratch::place;
use monoglot_uop::rules::Affine;
use monoglot_uop::{AxisType, Op, OptOp, UOp};

/// Most reductions of a kernel that are treated so: each brings loops of its own.
const TOGETHER: usize = 12;
/// Turns from which on an axis carries a sum rather than fold it anew.
const TURNS: i64 = 8;
/// Vectors of destinations with which an index is compared in the time in which it is followed.
const COMPARED: i64 = 4;
/// Rows whose scans stand side by side.
const ROWS: i64 = 8;
/// Vectors of a row that are done together.
const VECTORS: i64 = 4;
/// Bytes that memory takes at a time.
const LINE: usize = 64;
/// Cycles for each element that is put in its place.
const PLACED: f64 = 4.0;
/// Cycles for an index that a part goes past, and those lost where nothing foresees whether it is the part's own.
const PASSED: f64 = 5.0;
const MISTAKEN: f64 = 20.0;
/// Cycles to fetch a line of destinations from each cache but the first, and from memory, as others are under way.
const FETCHED: [f64; 3] = [1.5, 5.0, 30.0];

pub(super) fn choose(chosen: &mut Chosen) -> bool {
    let nodes = chosen.nest.nodes.clone();
    let nodes = &nodes[..];
    if !nodes.iter().any(|u| u.op() == Op::Reduce) {
        return false;
    }
    let axes = super::super::ranges(nodes);
    let loops = axes
        .iter()
        .enumerate()
        .filter(|(_, r)| kind(r) == AxisType::Loop);
    // The innermost first: it is the contiguous one more often than not.
    for (at, axis) in loops.rev() {
        let Some(turns) = axis.src()[0].as_int().filter(|&n| n > TURNS) else {
            continue;
        };
        let folds = |u: &&UOp| u.op() == Op::Reduce && u.ranges().contains(axis);
        let folds = nodes.iter().filter(folds).count();
        if !(1..=TOGETHER).contains(&folds) {
            continue;
        }
        let running = scan::along(nodes, axis);
        let mut fork = chosen.fork();
        let done = if running.len() == folds {
            scan(&mut fork, at, &running)
        } else {
            let placed = scatter::along(nodes, axis);
            if placed.len() != folds || !pays(&placed, turns, chosen) {
                continue;
            }
            scatter(&mut fork, at, axis, &placed)
        };
        // What was put in order for it is of no use to anything else.
        if done {
            *chosen = fork;
        }
        return done;
    }
    false
}

/// Whether following indices costs less than comparing each with all.
fn pays(placed: &[Placed], turns: i64, chosen: &Chosen) -> bool {
    let lanes = |p: &Placed| chosen.target.lanes(p.masked.reduce.dtype()) as i64;
    let few = |p: &Placed| p.inside.is_empty() && turns <= COMPARED * lanes(p);
    !chosen.target.workgroups && !placed.iter().all(few)
}

fn count<'a>(ranges: impl IntoIterator<Item = &'a UOp>) -> i64 {
    let turns = ranges.into_iter().map(|r| r.src()[0].vmax());
    turns.fold(1, i64::saturating_mul)
}

/// Parts of a loop, outermost, that are no longer than `most`, each of whole `units`, and a multiple of
/// `threads`; the place of what is left of it.
fn parts(
    chosen: &mut Chosen,
    at: usize,
    most: i64,
    units: i64,
    why: &'static str,
) -> Option<usize> {
    let n = chosen.nest.axes[at].extent()?;
    if n <= most {
        return Some(at);
    }
    let threads = chosen.target.threads as i64;
    let least = (n + most - 1) / most;
    let least = (least + threads - 1) / threads * threads;
    let whole = |p: &i64| n % (p * units) == 0;
    let even = (least..=(2 * least).min(n))
        .step_by(threads as usize)
        .find(whole);
    let factor = even.unwrap_or(least);
    if even.is_none() {
        let multiple = factor * units;
        chosen.add(OptOp::PadTo { multiple }, at, "parts of an odd extent");
    }
    let done = chosen.add(outermost(factor, AxisType::Loop), at, why);
    done.then_some(at + 1)
}

fn scatter(chosen: &mut Chosen, at: usize, axis: &UOp, placed: &[Placed]) -> bool {
    let turns = axis.src()[0].vmax();
    let bytes = |p: &Placed| count(&p.inside) * p.masked.reduce.dtype().bytes() as i64;
    let row: i64 = placed.iter().map(bytes).sum();
    let folded = |p: &Placed| count(p.masked.closes()) * count(&p.inside);
    let elements: i64 = placed.iter().map(folded).sum();
    let others = count(&placed[0].around(axis));
    let arranged = chosen.target.arranged;
    let at = if arranged {
        let named: Vec<[i64; 2]> = placed.iter().map(named).collect();
        let [indices, lines] = [0, 1].map(|k| named.iter().map(|n| n[k] as f64).sum::<f64>());
        let filled = Filled {
            turns,
            row,
            indices,
            lines,
            threads: (chosen.target.threads as i64 / others.max(1)).max(1),
            caches: chosen.target.caches.map(|c| c as f64 / 2.0),
        };
        let most = filled.at_once();
        parts(chosen, at, most, 1, "destinations that a cache holds")
    } else {
        Some(at)
    };
    let why = "what is folded names where it goes";
    let Some(at) = at.filter(|&at| chosen.add(OptOp::Scatter, at, why)) else {
        return false;
    };
    if arranged {
        let around = around(chosen, at);
        vectors(chosen);
        let cycles = PLACED * elements as f64 + turns as f64 * row as f64 / 4.0;
        share(chosen, &around, cycles * others as f64);
    }
    true
}

/// How many indices a part of the destinations goes past, and the lines of destinations that these name.
fn named(placed: &Placed) -> [i64; 2] {
    let varies = |r: &&UOp| placed.turn.ranges().contains(r);
    let (told, each): (Vec<_>, Vec<_>) = placed.inside.iter().partition(varies);
    let indices = count(placed.masked.closes()).saturating_mul(count(told));
    let bytes = count(each) * placed.masked.reduce.dtype().bytes() as i64;
    [
        indices,
        indices.saturating_mul(bytes.div_euclid(LINE as i64) + 1),
    ]
}

/// Destinations, and what is put there.
struct Filled {
    turns: i64,
    /// Bytes of a turn's.
    row: i64,
    /// Indices, and the lines that they name.
    indices: f64,
    lines: f64,
    /// Threads that share the parts.
    threads: i64,
    /// Bytes of each cache that may be used.
    caches: [f64; 3],
}

impl Filled {
    /// Turns of a part, so that all are filled soonest.
    fn at_once(&self) -> i64 {
        let bytes = self.turns.saturating_mul(self.row.max(1));
        let least = bytes.div_euclid(scatter::MOST) + 1;
        // More than what a cache holds, or threads share, are more to go past and nothing nearer.
        let held = self.caches.map(|c| (bytes as f64 / c).ceil() as i64);
        let numbers = [1, self.threads].into_iter().chain(held);
        let numbers = numbers.map(|n| n.max(least).min(self.turns));
        let best = numbers.min_by(|&a, &b| self.cycles(a).total_cmp(&self.cycles(b)));
        let best = best.unwrap_or(least).max(1);
        ((self.turns + best - 1) / best).max(1)
    }

    /// Cycles of the thread that does most, where there are so many parts. Each goes past all indices, and which are its
    /// own nothing foresees.
    fn cycles(&self, parts: i64) -> f64 {
        let at_once = parts.min(self.threads) as f64;
        let each = ((parts + self.threads - 1) / self.threads) as f64;
        let mistaken = if parts > 1 { MISTAKEN / at_once } else { 0.0 };
        let bytes = self.turns as f64 * self.row as f64;
        // They are set, and read when all is there.
        let lines = self.lines + 2.0 * bytes / LINE as f64;
        let fetched = lines * self.fetched(bytes / parts as f64, at_once);
        let placed = PLACED * self.lines + fetched;
        self.indices * (PASSED * each + mistaken) + placed / at_once
    }

    /// Cycles to fetch a line of one of several parts that are filled at once.
    fn fetched(&self, part: f64, at_once: f64) -> f64 {
        let [first, second, last] = self.caches;
        let [nearby, far, beyond] = FETCHED;
        match part {
            p if p <= first => 0.0,
            p if p <= second => nearby,
            p if p * at_once <= last => far,
            _ => beyond,
        }
    }
}

fn scan(chosen: &mut Chosen, at: usize, running: &[Running]) -> bool {
    let why = "each turn folds one element more than the last";
    let Some(last) = chosen.last_loop() else {
        return false;
    };
    let lane = lanes(chosen).first().map(|&(of, _)| of);
    let inside = lane.and_then(|of| chosen.axis(of, AxisType::Loop));
    let inside = inside.filter(|&i| i > at && !chosen.target.workgroups);
    let elements = bits(all(chosen)).map(|k| chosen.nest.ranges[k].src()[0].vmax() as f64);
    let elements = elements.product::<f64>() * running.len() as f64;
    if !chosen.target.arranged {
        return chosen.add(OptOp::Scan { turns: 1 }, at, why);
    }
    let Some(inside) = inside else {
        if at != last {
            chosen.add(OptOp::Swap { with: last }, at, "a scan's axis innermost");
        }
        let rows = rows(chosen, last);
        let turns = rows.and_then(|(_, few)| together(chosen, last, few, running));
        let turns = turns.unwrap_or(1);
        if !chosen.add(OptOp::Scan { turns }, last, why) {
            return false;
        }
        if !chosen.target.workgroups {
            let around = around(chosen, last);
            if let Some((at, few)) = rows {
                let why = "rows whose sums do not wait for each other";
                chosen.add(inner(few, AxisType::Upcast), at, why);
            }
            share(chosen, &around, elements);
        }
        return true;
    };
    let lanes = chosen.target.vector_bytes as i64 / 8;
    let others = (chosen.nest.axes[at + 1..=last].iter().enumerate())
        .filter(|(k, _)| at + 1 + k != inside)
        .fold(1, |n, (_, a)| n * a.extent().unwrap_or(1));
    let most = chosen.target.caches[0] as i64 / 16 / running.len() as i64 / others;
    // Where nothing else is, columns are for threads to share.
    let threads = chosen.target.threads as i64;
    let alone = elements >= THREADED && around(chosen, at).is_empty();
    let share_of = chosen.nest.axes[inside]
        .extent()
        .map_or(most, |n| n / threads);
    let most = if alone { most.min(share_of) } else { most };
    let most = (most / lanes * lanes).max(lanes);
    let why_parts = "a part of a row that the first cache holds";
    let Some(now) = parts(chosen, inside, most, lanes, why_parts) else {
        return false;
    };
    let at = at + now - inside;
    if !chosen.add(OptOp::Scan { turns: 1 }, at, why) {
        return false;
    }
    let around = around(chosen, at);
    vectors(chosen);
    share(chosen, &around, elements);
    true
}

/// The loops of the kernel.
fn all(chosen: &Chosen) -> Mask {
    let is_loop = |k: &usize| kind(&chosen.nest.ranges[*k]) == AxisType::Loop;
    (0..chosen.nest.ranges.len())
        .filter(is_loop)
        .fold(0, |m, k| m | 1 << k)
}

/// Rows side by side, each with a sum of its own, as many as the first cache holds a line of: the axis, and how
/// many.
fn rows(chosen: &Chosen, scan: usize) -> Option<(usize, i64)> {
    let features = Features::of(&chosen.nest.kernel())?;
    let cache = chosen.target.caches[0] as i64;
    for at in (0..scan).rev() {
        let axis = &chosen.nest.axes[at];
        let Some(n) = axis.extent().filter(|_| axis.kind() == AxisType::Loop) else {
            continue;
        };
        let of_row = |a: &&Access| a.varies >> at & 1 == 1 && a.size > cache;
        let streams = features.accesses.iter().filter(of_row);
        let held = streams
            .clone()
            .map(|a| beside(a.stride[at].saturating_mul(a.bytes as i64)));
        let most = held.min().unwrap_or(ROWS) / streams.count().max(1) as i64;
        if let Some(f) = (2..=most.min(ROWS)).rev().find(|f| n % f == 0) {
            return Some((at, f));
        }
    }
    None
}

/// Turns of a scan that are taken at a time, where vectors along it become vectors of so many rows: as many as
/// fill a line, which is written whole.
fn together(chosen: &Chosen, scan: usize, rows: i64, running: &[Running]) -> Option<i64> {
    let axis = &chosen.nest.axes[scan];
    let (_, bytes) = *lanes(chosen).iter().find(|l| l.0 == axis.of)?;
    let held = |r: &Running| scan::held(r.masked.op, r.masked.reduce.dtype(), chosen.target);
    let widest = running.iter().map(|r| held(r).bytes()).max()?;
    let vector = chosen.target.vector_bytes / widest;
    let near = NEAR / bytes;
    let fits = rows.count_ones() == 1 && (near.max(2)..=vector).contains(&(rows as usize));
    let n = axis
        .extent()
        .filter(|_| fits && !chosen.target.workgroups)?;
    let mut turns = (LINE / bytes) as i64;
    while turns > 1 && n % turns != 0 {
        turns /= 2;
    }
    (turns >= near.max(2) as i64).then_some(turns)
}

/// The loops along which stores lie one element after the other, and how wide those are, of the kernel as it
/// was before the last Opts of other kinds than SCAN and SCATTER.
fn lanes(chosen: &Chosen) -> Vec<(usize, usize)> {
    let nest = &chosen.nest;
    let mut out: Vec<(usize, usize)> = Vec::new();
    for store in nest.nodes.iter().filter(|u| u.op() == Op::Store) {
        let address = &store.src()[0];
        let Some(sum) = address.src().last().and_then(|i| Affine::of(place(i))) else {
            continue;
        };
        let one = sum.terms.iter().find(|t| t.1 == 1 && t.0.op() == Op::Range);
        let of = one.and_then(|(r, _)| nest.ranges.iter().position(|x| x == r));
        let bytes = address.dtype().bytes();
        match of.and_then(|of| out.iter_mut().find(|o| o.0 == of)) {
            Some((_, widest)) => *widest = bytes.max(*widest),
            None => out.extend(of.map(|of| (of, bytes))),
        }
    }
    out
}

/// Vectors along what is stored.
fn vectors(chosen: &mut Chosen) {
    for (of, bytes) in lanes(chosen) {
        let lanes = (chosen.target.vector_bytes / bytes.max(1)).max(1) as i64;
        let at = chosen.axis(of, AxisType::Loop);
        let Some((at, n)) = at.and_then(|at| Some((at, chosen.nest.axes[at].extent()?))) else {
            continue;
        };
        let whole = (1..=VECTORS).rev().map(|v| v * lanes).find(|f| n % f == 0);
        let part = || (4..lanes).rev().find(|f| n % f == 0);
        let factor = if n <= lanes {
            Some(0)
        } else {
            whole.or_else(part)
        };
        if let Some(factor) = factor.filter(|_| n > 1) {
            let why = "vectors along the contiguous axis";
            chosen.add(inner(factor, AxisType::Upcast), at, why);
        }
    }
}

/// The loops outside of one.
fn around(chosen: &Chosen, at: usize) -> Vec<usize> {
    let axes = chosen.nest.axes[..at].iter();
    axes.filter(|a| a.kind() == AxisType::Loop)
        .map(|a| a.of)
        .collect()
}

/// Threads for what takes so many cycles.
fn share(chosen: &mut Chosen, around: &[usize], cycles: f64) {
    if chosen.target.threads > 1 && cycles >= THREADED {
        threads(around, cycles, chosen);
    }
}

#[cfg(test)]
mod tests {
    use crate::opt::choose;
    use crate::opt::tests::support::*;
    use monoglot_uop::{AxisType, DType, OptOp, ReduceOp};

    /// What a row shares is folded before it, and the row is done in vectors: no part is cut for a scan that is none.
    #[test]
    fn a_row_beside_what_came_before_it_is_vectors() {
        let [blocks, each] = [16, 6250];
        let r = ranges(&[blocks, each], &[blocks]);
        let at = [linear(&[(&r[0], each), (&r[1], 1)])];
        let place = |slot| param(slot, &[blocks * each], DType::F32).at(&at);
        let other = param(2, &[blocks], DType::F32).at(&r[2..]);
        let earlier = r[2].lt(&r[0]).select(&other, &other.like(0.0));
        let sum = earlier.reduce_ranges(ReduceOp::Add, &r[2..]);
        let kernel = sink(&[place(0).store(&(place(1) + sum)).end(&r[..2])]);
        let opts = choose(&kernel, &target(false));
        let cut = |kind: AxisType| {
            let splits = opts.iter().filter(move |o| match o.op {
                OptOp::Split { target, .. } => target == kind,
                _ => false,
            });
            splits.map(|o| o.axis).collect::<Vec<_>>()
        };
        assert_eq!(cut(AxisType::Loop), []);
        assert_eq!(cut(AxisType::Upcast), [1]);
        check_on(&kernel, &opts, &target(false));
    }

    /// Each part goes past all indices: few of them fill parts that a near cache holds, many fill all at once, as far as
    /// storage of a kernel's own goes.
    #[test]
    fn destinations_are_parts_where_few_indices_are() {
        let mut machine = target(false);
        machine.caches = [32 << 10, 256 << 10, 32 << 20];
        let mut parts = |rows: i64, width: i64, count: i64, threads: usize| {
            machine.threads = threads;
            let top = |o: &monoglot_uop::Opt| match o.op {
                OptOp::Split {
                    factor,
                    target: AxisType::Loop,
                    top: true,
                } => Some(factor),
                _ => None,
            };
            let opts = choose(&placed(rows, width, count), &machine);
            assert!(opts.iter().any(|o| o.op == OptOp::Scatter), "{opts:?}");
            opts.iter().find_map(top).unwrap_or(1)
        };
        for threads in [1, 2] {
            assert_eq!(parts(1 << 18, 1, 1 << 18, threads), 1);
            assert_eq!(parts(1 << 20, 1, 1 << 20, threads), 1);
            assert!(parts(30_000, 128, 1024, threads) > 16);
            assert!(parts(1 << 23, 1, 1 << 20, threads) >= 2);
        }
    }
}
