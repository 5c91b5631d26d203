//! CPUs: a register tile, the order of the loops, threads, parts for the last cache. Flows in: what
//! a kernel does, as numbers, and the machine's; flows out: Opts, added to those chosen. Invariant:
//! how a reduction is unrolled does not depend on the number of threads.

use super::{Chosen, Weighed, inner, outermost};
use crate::graph::bits;
use crate::opt::cost::{Tile, part, read_again, traffic};
use crate::opt::features::{Access, Features, Mask};
use monoglot_uop::{AxisType, OptOp, Target};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::{OnceCell, RefCell};

/// Cycles of one thread below which others are not asked: several times what it takes to wake one.
pub(super) const THREADED: f64 = 65_536.0;
/// Streams of memory that are read at once.
const STREAMS: i64 = 4;
/// Largest factor of an axis that is not the vectors'.
pub(super) const MOST: i64 = 16;
/// Longest windows that are unrolled whole to begin with, as neighbours read the same.
const WINDOW: i64 = 8;
/// Most vectors of an axis that no number of whole vectors divides.
const WHOLE: i64 = 8;
/// What a byte from beyond the first cache costs, where one from beyond the second costs 1.
const NEARER: f64 = 0.25;
/// Bytes that are written side by side where what is read is not: lines by themselves take memory longer.
const BESIDE: i64 = 256;
/// How many numbers of parts are tried.
const TRIED: usize = 1 << 16;
/// How many times as many cycles a tile may be estimated at and still be preferred for its size.
pub(super) const GAIN: f64 = 0.97;
/// How many times as many cycles fewer copies may be estimated at that share nothing, and loops that turn as often as others.
pub(super) const SLIGHT: f64 = 1.07;

/// How a kernel is arranged where it is no blocked product. It is searched for when it is first asked about.
pub(super) struct Plan<'a> {
    features: &'a Features,
    target: &'a Target,
    found: OnceCell<Found>,
}

/// What the search finds.
struct Found {
    tile: Tile,
    /// The axis of which the tile's turns are far apart.
    apart: Option<usize>,
}

impl<'a> Plan<'a> {
    pub(super) fn of(features: &'a Features, target: &'a Target) -> Plan<'a> {
        Plan {
            features,
            target,
            found: OnceCell::new(),
        }
    }

    fn found(&self) -> &Found {
        self.found.get_or_init(|| {
            let tile = best(self.features, self.target);
            match streams(self.features, &tile, self.target) {
                Some((axis, tile)) => Found {
                    apart: Some(axis),
                    tile,
                },
                None => Found { apart: None, tile },
            }
        })
    }

    /// Cycles of one thread, where others share them.
    pub(super) fn shared(&self) -> Option<f64> {
        if self.target.threads <= 1 {
            return None;
        }
        let cycles = self.found().tile.duration(self.features, self.target);
        (cycles >= THREADED).then_some(cycles)
    }

    /// Estimated cycles of one thread.
    pub(super) fn cycles(&self) -> f64 {
        let cycles = self.found().tile.cycles(self.features, self.target);
        cycles.unwrap_or(f64::INFINITY)
    }

    pub(super) fn choose(&self, chosen: &mut Chosen) {
        let Found { tile, apart } = self.found();
        let order = order(self.features, tile, chosen.target);
        arrange_apart(self.features, tile, &order, *apart, chosen);
        let _ = neighbours(self.features, tile, chosen);
        block(self.features, tile, &order, chosen);
    }
}

/// Whether a kernel is worth sharing by threads.
fn is_shared(features: &Features, tile: &Tile, target: &Target) -> bool {
    target.threads > 1 && tile.duration(features, target) >= THREADED
}

/// How many parts of a loop there are for each thread at most, and the fewest cycles of such a part: to hand one out takes
/// a few hundred.
const SMALLER: i64 = 4;
const PART: f64 = 2e5;

/// The tile of a kernel that reads more than the second cache holds, row after row, each once, as that of several rows
/// that are far apart, and the axis of these: each is a stream of memory of its own, which goes on from row to row. Of
/// rows that follow each other the streams are short, and several in a page. Where there are few rows, parts of one are
/// far apart: the axis is that of the row.
fn streams(features: &Features, tile: &Tile, target: &Target) -> Option<(usize, Tile)> {
    let [sum] = &features.reductions[..] else {
        return None;
    };
    let lane = tile.lane.filter(|&k| sum.closes >> k & 1 == 1)?;
    let all = features.outer | sum.closes;
    let far = |a: &&Access| a.size > target.caches[1] as i64;
    let mut large = features.accesses.iter().filter(far);
    let rows = large.next().filter(|_| large.next().is_none())?;
    // A sum over several axes jumps from one piece of its row to the next.
    let whole = sum.closes.count_ones() == 1;
    let long = whole && bits(features.outer & !features.known).next().is_none();
    // Those that are used again are used by all of a tile at once.
    let again = all & !rows.varies;
    let again_in = |k: usize| features.outer >> k & 1 == 1 && features.extent[k] <= MOST;
    let used = bits(again).all(again_in);
    let once = !rows.store && used && rows.gate == 0 && rows.stride[lane] == 1;
    if !once || !long || !features.fills.is_empty() || features.mirrored != 0 {
        return None;
    }
    let axis = bits(features.outer & !again).max_by_key(|&k| rows.stride[k]);
    let several = axis.filter(|&k| features.extent[k] >= STREAMS * STREAMS);
    let axis = several.unwrap_or(lane);
    let mut new = tile.clone();
    bits(features.outer).for_each(|k| new.factor[k] = 1);
    bits(again).for_each(|k| new.factor[k] = features.extent[k]);
    new.factor[axis] = STREAMS;
    let uses = features.count(again) as i64;
    // Each stream's part of the row, where there are too few rows.
    let part = features.extent[lane] / if axis == lane { STREAMS } else { 1 };
    let vectors =
        |f: i64| f * STREAMS * uses * rows.bytes.max(sum.bytes) as i64 / target.vector_bytes as i64;
    let fit = |f: &i64| part % f == 0 && vectors(*f) * 2 <= target.registers as i64;
    let lanes = lane_factors(features, lane, target).into_iter().filter(fit);
    new.factor[lane] = lanes.max()?;
    if again != 0
        && new.factor[lane] * (rows.bytes.max(sum.bytes) as i64) < target.vector_bytes as i64
    {
        return None;
    }
    let whole = axis != lane || features.extent[lane] % STREAMS == 0;
    whole.then_some((axis, new))
}

/// Unroll the loops into a tile, put those that are left in order, and let threads share one of these.
pub(super) fn arrange(features: &Features, tile: &Tile, order: &[usize], chosen: &mut Chosen) {
    arrange_apart(features, tile, order, None, chosen);
}

/// The same, where the tile's turns of one axis are far apart.
fn arrange_apart(
    features: &Features,
    tile: &Tile,
    order: &[usize],
    apart: Option<usize>,
    chosen: &mut Chosen,
) {
    let cycles = tile.duration(features, chosen.target);
    let shared = is_shared(features, tile, chosen.target);
    let machine = chosen.target;
    for k in bits(features.known) {
        let f = tile.factor[k];
        if f > 1 && features.extent[k] % f != 0 {
            // Whole parts for the threads cost no more masks than whole vectors.
            let threads = chosen.target.threads as i64;
            let alone = shared && tile.busy(features, threads) < 1.5;
            let even =
                alone && features.outer >> k & 1 == 1 && features.extent[k] >= 64 * f * threads;
            let f = if even { f * threads } else { f };
            if let Some(at) = chosen.axis(k, features.kind(k)) {
                chosen.add(OptOp::PadTo { multiple: f }, at, "vectors of an odd extent");
            }
        }
    }
    swap(features, tile, order, chosen);
    for k in unrolled(features, tile) {
        let f = tile.factor[k];
        let outer = features.outer >> k & 1 == 1;
        if f <= 1 {
            continue;
        }
        let target = if outer {
            AxisType::Upcast
        } else {
            AxisType::Unroll
        };
        let far = chosen
            .axis(k, features.kind(k))
            .filter(|_| apart == Some(k));
        if let Some(at) = far {
            let why = match outer {
                true => "rows far apart are streams of memory that go on",
                false => "parts of a row are streams of memory",
            };
            let streams = if outer { f } else { STREAMS };
            chosen.add(outermost(streams, features.kind(k)), at, why);
            if !outer {
                chosen.add(inner(streams, target), at, "streams that are read at once");
            }
        }
        let why = match (tile.is_lane(k), outer) {
            (true, true) => "vectors along the contiguous axis",
            (true, false) => "vectors of partial results",
            (false, true) => "registers reuse what the axis does not vary",
            (false, false) => "fewer iterations, each with more to do",
        };
        if let Some(at) = chosen.axis(k, features.kind(k)) {
            chosen.add(inner(f, target), at, why);
            chosen.by(|| weighed(features, tile, k, machine));
        }
    }
    if shared && turned(features, tile).is_some() {
        threads(order, cycles, chosen);
    } else if shared {
        even_threads(order, None, cycles, chosen);
    }
}

/// The axes of a tile in the order in which they are unrolled: the lanes last, so that they are the innermost;
/// before them those along which vectors are read. What passes by one at a time is then used at once with each
/// of the vectors, which stay in registers: the other way round, compilers keep all of it.
fn unrolled(features: &Features, tile: &Tile) -> Vec<usize> {
    let mut axes: Vec<usize> = bits(features.known).collect();
    axes.sort_by_key(|&k| tile.is_lane(k));
    let Some(lane) = tile.lane else { return axes };
    let vectors = |a: &&Access| !a.store && a.varies >> lane & 1 == 1;
    let read = features.accesses.iter().filter(vectors);
    let along = read.fold(0, |m, a| m | a.varies);
    axes.sort_by_key(|&k| (k == lane, along >> k & 1 == 1));
    axes
}

/// The tile's cost and that of tiles which differ along one axis.
fn weighed(features: &Features, tile: &Tile, axis: usize, target: &Target) -> Weighed {
    let n = features.extent[axis];
    let lane = tile.is_lane(axis);
    let mut factors: Vec<i64> = (1..=MOST.min(n)).filter(|f| n % f == 0).collect();
    if lane {
        factors = lane_factors(features, axis, target);
        factors.push(1);
    }
    factors.retain(|&f| f != tile.factor[axis]);
    let other = |f: i64| {
        let mut other = tile.clone();
        other.factor[axis] = f;
        if lane && f == 1 {
            other.lane = other.lane.filter(|k| *k != axis);
            other.beside &= !(1 << axis);
        }
        Some((f.to_string(), other.cycles(features, target)?))
    };
    let cycles = tile.cycles(features, target).unwrap_or(f64::INFINITY);
    Weighed::new(
        cycles,
        "cycles",
        factors.into_iter().filter_map(other).collect(),
    )
}

/// The tile of least cost, without copies that gain next to nothing: code that is repeated has more to keep in
/// registers than an estimate knows of, and may be too long to be taken apart by its masks.
fn best(features: &Features, target: &Target) -> Tile {
    let estimates = Estimates::new(features, target);
    let mut tile = least(&estimates);
    let threads = target.threads as i64;
    let closed = features.closed();
    // A factor that is read once for all copies is worth its registers.
    let shares = |k: usize| {
        let once = |a: &Access| !a.store && a.varies & closed != 0 && a.varies >> k & 1 == 0;
        features.accesses.iter().any(once)
    };
    for k in bits(features.outer & features.known & !features.mirrored) {
        let cycles = estimates.shared_by(threads, &tile);
        let Some(cycles) = cycles.filter(|_| !shares(k) && !tile.is_lane(k)) else {
            continue;
        };
        let f = tile.factor[k];
        let enough = |&g: &i64| {
            let mut smaller = tile.clone();
            smaller.factor[k] = g;
            let cost = estimates.shared_by(threads, &smaller);
            features.extent[k] % g == 0 && cost.is_some_and(|c| c <= cycles * SLIGHT)
        };
        tile.factor[k] = (1..f).find(enough).unwrap_or(f);
    }
    tile
}

/// The tile of least cost. What it folds is chosen first, for one thread: the order in which a sum adds
/// depends on it, and must not depend on how many threads there are.
fn least(estimates: &Estimates) -> Tile {
    let Estimates {
        features, target, ..
    } = *estimates;
    let mut single = Tile::single(features);
    // What reads the same elements does so once.
    bits(features.mirrored).for_each(|k| single.factor[k] = features.extent[k]);
    let free = features.known & !features.mirrored;
    let (alone, _) = search(estimates, 1, free, &single);
    let folded = |k: usize| features.outer >> k & 1 == 0;
    if target.threads == 1 || alone.duration(features, target) < THREADED {
        return alone;
    }
    let mut fixed = single;
    for k in bits(features.known).filter(|&k| folded(k)) {
        fixed.factor[k] = alone.factor[k];
    }
    fixed.lane = alone.lane.filter(|&k| folded(k));
    let threads = target.threads as i64;
    // Where it keeps all of them busy, it is best for all.
    if alone.busy(features, threads) > 0.95 * threads as f64 {
        return alone;
    }
    let free = free & features.outer;
    let (anew, cycles) = search(estimates, threads, free, &fixed);
    // Of tiles that cost as much, that of one thread reads less again.
    let estimate = |t: &Tile| estimates.shared_by(threads, t);
    let (grown, more) = climb(features, free, alone, target, &estimate);
    if cycles < more * GAIN { anew } else { grown }
}

/// Of each factor, the elements of a tile of sums along lanes from which a climb begins.
const SQUARE: i64 = 4;

/// The tile of least cost that climbing along these axes finds from each choice of vectors, where none
/// is fixed, and its cost.
fn search(estimates: &Estimates, threads: i64, free: Mask, fixed: &Tile) -> (Tile, f64) {
    let features = estimates.features;
    let target = estimates.target;
    let estimate = |t: &Tile| estimates.shared_by(threads, t);
    let climb = |tile: Tile| climb(features, free, tile, target, &estimate);
    let mut best = climb(fixed.clone());
    if fixed.lane.is_some() {
        return best;
    }
    for k in bits(free) {
        for f in lane_factors(features, k, target) {
            let mut tile = fixed.clone();
            tile.factor[k] = f;
            tile.lane = Some(k);
            let windows = features.windows(WINDOW, k) & free;
            let mut whole = tile.clone();
            bits(windows).for_each(|j| whole.factor[j] = features.extent[j]);
            // Rows that end in part of a vector have no registers left for that.
            let even = f % (target.vector_bytes / 4).max(1) as i64 == 0;
            let between = features.between(k) & free;
            let mut pairs = tile.clone();
            bits(between).for_each(|j| pairs.factor[j] = features.extent[j]);
            // Of sums along lanes, few of each factor's are better than many of one.
            let square = (features.outer >> k & 1 == 0).then(|| {
                let mut square = tile.clone();
                for j in bits(free & features.outer) {
                    let divides = |f: &i64| features.extent[j] % f == 0;
                    square.factor[j] = (1..=SQUARE).rfind(divides).unwrap_or(1);
                }
                square
            });
            let more = [
                (windows != 0 && even).then_some(whole),
                (between != 0).then_some(pairs),
                square,
            ];
            for start in [Some(tile)].into_iter().chain(more) {
                let Some(next) = start.map(climb) else {
                    continue;
                };
                if next.1 < best.1 * GAIN {
                    best = next;
                }
            }
        }
    }
    best
}

/// Numbers of lanes to try along an axis: divisors up to four vectors; where none is of whole vectors, all of
/// a short axis, and whole vectors that need padding; none where nothing lies side by side along it.
pub(super) fn lane_factors(features: &Features, axis: usize, target: &Target) -> Vec<i64> {
    let beside = |a: &Access| bits(features.mirrored).any(|k| a.stride[k] == 1);
    let along = features.accesses.iter();
    let along = along.filter(|a| a.stride[axis] == 1 || beside(a));
    let n = features.extent[axis];
    let Some(bytes) = along.map(|a| a.bytes).max().filter(|_| n > 1) else {
        return Vec::new();
    };
    let lanes = (target.vector_bytes / bytes.max(1)).max(1) as i64;
    let mut all: Vec<i64> = (2..=(4 * lanes).min(n))
        .filter(|f| n % f == 0 && (f % 4 == 0 || *f == n))
        .collect();
    if !all.iter().any(|f| f % lanes == 0) {
        all.extend(Some(n).filter(|n| (4 * lanes + 1..=WHOLE * lanes).contains(n)));
        let least = (lanes.min(n) as u64).next_power_of_two().max(4) as i64;
        all.extend(
            [least, 4 * lanes]
                .into_iter()
                .filter(|f| n % f != 0 && *f < 2 * n),
        );
    }
    all
}

/// Estimates of tiles of one kernel, each made once: climbs that begin apart meet.
pub(super) struct Estimates<'a> {
    features: &'a Features,
    target: &'a Target,
    /// The axes of the loops that count.
    within: Mask,
    known: RefCell<FxHashMap<Known, Option<f64>>>,
}

/// A tile: its factors, and the axes of its vectors.
type Known = (SmallVec<[i64; 16]>, Option<usize>, Mask);

impl<'a> Estimates<'a> {
    pub(super) fn new(features: &'a Features, target: &'a Target) -> Estimates<'a> {
        Estimates::within(Mask::MAX, features, target)
    }

    /// Of the loops over any of these axes alone.
    pub(super) fn within(
        within: Mask,
        features: &'a Features,
        target: &'a Target,
    ) -> Estimates<'a> {
        Estimates {
            features,
            target,
            within,
            known: RefCell::default(),
        }
    }

    /// Cycles of the kernel where so many threads share it.
    pub(super) fn shared_by(&self, threads: i64, tile: &Tile) -> Option<f64> {
        let key = (SmallVec::from_slice(&tile.factor), tile.lane, tile.beside);
        let mut known = self.known.borrow_mut();
        let estimate = known
            .entry(key)
            .or_insert_with(|| tile.cycles_within(self.within, self.features, self.target));
        let cycles = (*estimate)?;
        if threads == 1 {
            return Some(cycles);
        }
        Some(cycles / tile.busy(self.features, threads))
    }
}

/// Take the step along one of these axes that helps most, until none does: what was enlarged before others were may
/// be made smaller again.
pub(super) fn climb(
    features: &Features,
    free: Mask,
    mut tile: Tile,
    target: &Target,
    estimate: &dyn Fn(&Tile) -> Option<f64>,
) -> (Tile, f64) {
    let mut cycles = estimate(&tile).unwrap_or(f64::INFINITY);
    for _ in 0..16 {
        let mut next: Option<(usize, i64, f64)> = None;
        for k in bits(free) {
            if tile.is_lane(k) {
                continue;
            }
            let n = features.extent[k];
            let f = tile.factor[k];
            let smaller = (1..f).rev().filter(|g| n % g == 0);
            let larger = (f + 1..=MOST.min(n)).filter(|g| n % g == 0);
            // Vectors that are read along it, and turned, may go past its end.
            let along = |a: &Access| !a.store && a.stride[k] == 1;
            let turned = tile.lane.is_some() && f == 1 && features.outer >> k & 1 == 1;
            let whole = if turned && features.accesses.iter().any(along) {
                lane_factors(features, k, target)
            } else {
                Vec::new()
            };
            let past = whole
                .into_iter()
                .filter(|g| n % g != 0 && *g <= MOST && 4 * g <= n);
            let larger = larger.chain(past);
            // More copies than are too many are, too; vectors that are turned are less code.
            let mut most = i64::MAX;
            for g in smaller.chain(larger) {
                if g > most && n % g == 0 {
                    continue;
                }
                tile.factor[k] = g;
                let Some(c) = estimate(&tile) else {
                    most = if g > f { most.min(g) } else { most };
                    continue;
                };
                if c < next.map_or(cycles * GAIN, |n| n.2) {
                    next = Some((k, g, c));
                }
            }
            tile.factor[k] = f;
        }
        let Some((k, other, fewer)) = next else {
            break;
        };
        tile.factor[k] = other;
        cycles = fewer;
    }
    (tile, cycles)
}

/// The outer loops, outermost first, in the order that brings least from beyond the second cache, and
/// from beyond the first.
fn order(features: &Features, tile: &Tile, target: &Target) -> Vec<usize> {
    let mut natural: Vec<usize> = bits(features.outer)
        .filter(|&k| features.extent[k] > tile.factor[k])
        .collect();
    if let Some([to, from]) = turned(features, tile) {
        // Lines that are read one after the other are fetched ahead, and whole lines can be written anywhere.
        natural.sort_by_key(|&k| if k == from { (from.max(to), 1) } else { (k, 0) });
        return natural;
    }
    if natural.len() < 2 || natural.len() > 4 || features.reductions.is_empty() {
        return natural;
    }
    let beyond = |o: &[usize], level: usize| {
        let cache = target.caches[level] as f64 * 0.75;
        traffic(features, tile, o, cache)
    };
    let bytes = |o: &[usize]| beyond(o, 1) + NEARER * beyond(o, 0);
    let mut best = natural.clone();
    let mut least = bytes(&natural);
    let mut all = vec![Vec::new()];
    for _ in 0..natural.len() {
        let longer = |o: &Vec<usize>| -> Vec<Vec<usize>> {
            let rest = natural.iter().filter(|k| !o.contains(k));
            rest.map(|k| o.iter().copied().chain([*k]).collect())
                .collect()
        };
        all = all.iter().flat_map(longer).collect();
    }
    for o in all {
        let b = bytes(&o);
        if b < least * 0.8 {
            best = o;
            least = b;
        }
    }
    best
}

/// The axes of a kernel that only turns its tiles: those along which it writes, and along which it reads.
fn turned(features: &Features, tile: &Tile) -> Option<[usize; 2]> {
    let along = |a: &Access, k: usize| a.stride[k] == 1 && tile.factor[k] > 1;
    let axis = |store: bool| {
        let mut all = features.accesses.iter().filter(|a| a.store == store);
        let axis = bits(features.outer).find(|&k| all.clone().next().is_some_and(|a| along(a, k)));
        axis.filter(|&k| all.all(|a| along(a, k)))
    };
    let axes = [axis(true)?, axis(false)?];
    (axes[0] != axes[1] && features.reductions.is_empty()).then_some(axes)
}

/// Where tiles are turned, write a few lines that are neighbours one after the other.
fn neighbours(features: &Features, tile: &Tile, chosen: &mut Chosen) -> Option<()> {
    let [to, from] = turned(features, tile)?;
    chosen.axis(from, AxisType::Loop)?;
    let at = chosen.axis(to, AxisType::Loop)?;
    let bytes = features.accesses.iter().find(|a| a.store)?.bytes as i64;
    let tiles = chosen.nest.axes[at].extent()?;
    let fits = |few: &i64| tiles % few == 0 && *few < tiles;
    let few = (2..=BESIDE / (tile.factor[to] * bytes)).rev().find(fits)?;
    let split = inner(few, AxisType::Loop);
    chosen
        .add(split, at, "lines written side by side")
        .then_some(())
}

/// Exchange loops until they stand in this order.
fn swap(features: &Features, tile: &Tile, order: &[usize], chosen: &mut Chosen) {
    let target = chosen.target;
    let beyond = |o: &[usize]| traffic(features, tile, o, target.caches[1] as f64 * 0.75);
    let mut natural = order.to_vec();
    natural.sort();
    let mut places: Vec<usize> = order
        .iter()
        .filter_map(|&k| chosen.axis(k, features.kind(k)))
        .collect();
    places.sort();
    for (&k, &want) in order.iter().zip(&places) {
        let Some(at) = chosen.axis(k, features.kind(k)) else {
            continue;
        };
        if at != want {
            chosen.add(
                OptOp::Swap { with: want },
                at,
                "outer loops in the order of least traffic",
            );
            let before = || vec![("as they were".to_string(), beyond(&natural))];
            chosen.by(|| Weighed::new(beyond(order), "B", before()));
        }
    }
}

/// Share the loop that divides best among the threads; one alone takes so many cycles.
pub(super) fn threads(order: &[usize], cycles: f64, chosen: &mut Chosen) {
    share(order, None, cycles, 1, chosen);
}

/// The same in parts that are smaller than a thread's share, where each is still long: who is slowed by others has
/// fewer of them. Not for what only turns its tiles, and waits for memory alone: its parts begin anew in lines all over.
/// Where a tile has so many turns of a loop, a part of it has whole tiles.
pub(super) fn even_threads(
    order: &[usize],
    turns: Option<(usize, i64)>,
    cycles: f64,
    chosen: &mut Chosen,
) {
    share(order, turns, cycles, SMALLER, chosen);
}

/// In parts for each thread, at most so many.
fn share(
    order: &[usize],
    turns: Option<(usize, i64)>,
    cycles: f64,
    most: i64,
    chosen: &mut Chosen,
) {
    let threads = chosen.target.threads as i64;
    let mut best = None;
    let mut most_busy = 0.0;
    for &k in order {
        let Some(at) = chosen.axis(k, AxisType::Loop) else {
            continue;
        };
        let turns = turns.map_or(1, |(of, turns)| if of == k { turns } else { 1 });
        let n = chosen.nest.axes[at].extent().map(|n| n / turns);
        if let Some(n) = n
            && let Some((parts, busy)) = part(n, threads)
            && busy > most_busy * 1.05
        {
            let long = |p: &i64| n % p == 0 && cycles / *p as f64 >= PART;
            let smaller = (2..=most).rev().map(|m| m * parts).find(long);
            best = Some((at, smaller.unwrap_or(parts)));
            most_busy = busy;
        }
    }
    if let Some((at, factor)) = best.filter(|_| most_busy > 1.2) {
        let split = outermost(factor, AxisType::Thread);
        chosen.add(split, at, "each thread takes a part of a loop that divides");
        let alone = || vec![("one thread".to_string(), cycles)];
        chosen.by(|| Weighed::new(cycles / most_busy, "cycles", alone()));
    }
}

/// Cut the innermost of the outer loops in parts, outermost, such that a quarter of the last cache holds
/// what others read again of each.
fn block(features: &Features, tile: &Tile, order: &[usize], chosen: &mut Chosen) {
    let bytes = read_again(features, tile, order);
    let cache = chosen.target.caches[2] as f64 / 4.0;
    let at = order
        .last()
        .and_then(|&k| chosen.axis(k, AxisType::Loop))
        .filter(|_| bytes > cache);
    let Some((at, n)) = at.and_then(|at| Some((at, chosen.nest.axes[at].extent()?))) else {
        return;
    };
    let least = ((bytes / cache).ceil() as i64).max(2);
    if let Some(factor) = (least..n).take(TRIED).find(|f| n % f == 0) {
        let split = outermost(factor, AxisType::Loop);
        chosen.add(
            split,
            at,
            "parts of a loop whose reads the last cache holds",
        );
        let whole = || vec![("whole".to_string(), bytes)];
        chosen.by(|| Weighed::new(bytes / factor as f64, "B", whole()));
    }
}
