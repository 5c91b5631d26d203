//! What a register tile costs. Flows in: what a kernel does, and by how much each axis is unrolled;
//! flows out: cycles, estimated as the greatest of what loads, arithmetic and latency take.
//! Invariant: only ratios between tiles of one kernel mean anything.

use super::features::{Access, Features, Mask, Reduction, TANGLED};
use crate::build::NEAR;
use crate::graph::bits;
use monoglot_uop::Target;
use monoglot_uop::rules::gcd;
use smallvec::SmallVec;

/// Cycles from a fused multiply-add to one that needs its result.
const LATENCY: f64 = 4.0;
/// What masks cost at the ends of a row, as a share.
const ENDS: f64 = 1.05;
/// Simple operations for each element of a vector put together from scattered places.
const GATHER: f64 = 1.75;
/// Simple operations for each vector of sums of which many are folded to lanes of one.
const TRANSPOSE: f64 = 4.0;
/// Loads or stores for a vector of elements that are neighbours along another axis, beside those of its neighbours.
const TURNED: f64 = 2.0;
/// Loads for a vector of elements that are two apart.
const APART: f64 = 3.0;
/// The same where what lies between them is in the tile, too.
const PAIRED: f64 = 1.5;
/// The same where lanes lie in the other order.
const REVERSED: f64 = 2.0;
/// Cycles of an operation that the next waits for, where a third to a half of them stand aside.
const STEP: f64 = 2.0;
/// Cycles to fold one half of a vector's lanes with the other.
const HALVED: f64 = 10.0;
/// Instructions that a core has in flight: of sums shorter than that, the next begin meanwhile.
const WINDOW: f64 = 200.0;
/// Cycles lost where a loop ends, and terms of a block of a sum that waits for memory.
const LEAVE: f64 = 8.0;
const TERMS: f64 = 16.0;
/// Bytes after which addresses fall into one set of the first cache, and the lines a set holds.
const ALIAS: i64 = 4096;
const WAYS: i64 = 8;
/// Bytes of a line of memory, and cycles to fetch one from the second cache, and from beyond that.
const LINE: f64 = 64.0;
const NEARBY: f64 = 4.0;
const FAR: f64 = 12.0;
/// Bytes of a page, the runs of memory in one that are fetched ahead, and those in all pages beyond the last cache.
pub(super) const PAGE: f64 = 4096.0;
const RUNS: f64 = 4.0;
const STREAMS: f64 = 16.0;
/// Bytes of memory that a core moves in a cycle.
pub(super) const BANDWIDTH: f64 = 8.0;
/// Bytes that a core moves in a cycle from beyond each cache.
const MOVED: [f64; 3] = [32.0, 12.0, 8.0];
/// The part of what takes less time that is not done while what takes most is.
const BESIDE: f64 = 0.5;
/// Most instructions of one innermost iteration, so that the code stays small.
const BODY: f64 = 320.0;

/// How many copies of an iteration stand side by side, along each axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tile {
    pub(super) factor: Vec<i64>,
    /// The axis along which vectors lie.
    pub(super) lane: Option<usize>,
    /// Axes along which vectors lie where values do not vary with that one: no value varies with two of them.
    pub(super) beside: Mask,
}

/// One level of the loop nest: what an iteration of it executes.
#[derive(Default)]
struct Level {
    loops: Mask,
    loads: f64,
    stores: f64,
    ops: f64,
    latency: f64,
    registers: f64,
    /// Cycles for lines that are gone before they are read again.
    fetched: f64,
    /// Terms that an iteration adds to each sum.
    chain: f64,
    /// Whether sums are done in blocks of a few terms, each a loop.
    blocks: bool,
    /// Cycles from the first to the last of what waits for each other.
    depth: f64,
}

/// What is done once for each slice.
#[derive(Default)]
struct Slice {
    instructions: f64,
    depth: f64,
    cycles: f64,
}

impl Slice {
    fn add(&mut self, instructions: f64, depth: f64, cycles: f64) {
        self.instructions += instructions;
        self.depth += depth;
        self.cycles += cycles;
    }

    /// Cycles in which nothing is done, as no more slices are in flight than these few instructions make.
    fn idle(&self) -> f64 {
        let at_once = (WINDOW / self.instructions.max(1.0)).max(1.0);
        (self.depth / at_once - self.cycles).max(0.0)
    }
}

type Levels = SmallVec<[Level; 4]>;

impl Tile {
    /// Nothing unrolled.
    pub(super) fn single(features: &Features) -> Tile {
        Tile {
            factor: vec![1; features.extent.len()],
            lane: None,
            beside: 0,
        }
    }

    /// Whether vectors lie along an axis.
    pub(super) fn is_lane(&self, axis: usize) -> bool {
        self.lane == Some(axis) || self.beside >> axis & 1 == 1
    }

    /// The axis among these along which vectors lie.
    fn lane_among(&self, axes: Mask) -> Option<usize> {
        let beside = || bits(axes & self.beside).next();
        self.lane.filter(|l| axes >> l & 1 == 1).or_else(beside)
    }

    /// Iterations left over an axis; a padded one has one that is not full.
    fn turns(&self, features: &Features, k: usize) -> f64 {
        match self.factor[k] {
            1 => features.extent[k] as f64,
            f => ((features.extent[k] + f - 1) / f) as f64,
        }
    }

    /// How many of so many threads can be kept busy, at best, by splitting one of the outer loops.
    pub(super) fn busy(&self, features: &Features, threads: i64) -> f64 {
        let parts = |k: usize| {
            let n = (features.extent[k] + self.factor[k] - 1) / self.factor[k];
            part(n, threads).map_or(1.0, |p| p.1)
        };
        bits(features.outer & features.known)
            .map(parts)
            .fold(1.0, f64::max)
    }

    /// The axis along which results have lanes once those of the tile are folded: the last one that is
    /// unrolled, where all results are stored along it (`select::epilogue`).
    fn after(&self, features: &Features, unrolled: Mask) -> Option<usize> {
        let lane = self.lane.filter(|_| self.beside == 0)?;
        let mut sums = features.reductions.iter();
        let stores = features.accesses.iter().filter(|a| a.store);
        let axis = bits(unrolled & features.outer).last()?;
        let along =
            |a: &Access| a.stride[axis] == 1 && self.factor[axis] as usize * a.bytes >= NEAR;
        let all = sums.all(|r| r.closes >> lane & 1 == 1) && stores.clone().all(along);
        all.then_some(axis)
    }

    /// Estimated cycles of the whole kernel on one thread, those in which its memory is read and written
    /// among them.
    pub(super) fn duration(&self, features: &Features, target: &Target) -> f64 {
        let all = (0..features.extent.len()).fold(0, |m, k| m | 1 << k);
        let bytes = features
            .accesses
            .iter()
            .map(|a| footprint(features, self, a, all));
        let cycles = self.cycles(features, target).unwrap_or(f64::INFINITY);
        cycles.max(bytes.sum::<f64>() / BANDWIDTH)
    }

    /// Estimated cycles of the whole kernel on one thread, its memory's among them, of a tile that is given:
    /// however large its code.
    pub(super) fn whole(&self, features: &Features, target: &Target) -> f64 {
        let core = self
            .estimate(features, target)
            .cycles(Mask::MAX, f64::INFINITY);
        let mut order: Vec<usize> = bits(features.outer).collect();
        order.extend(bits(features.closed() & !features.outer));
        order.retain(|&k| features.extent[k] > self.factor[k]);
        let core = core.unwrap_or(f64::INFINITY);
        if !features.fills.is_empty() {
            // Loops that stand side by side have no one order.
            return core;
        }
        let waited = target.caches.iter().zip(MOVED).map(|(cache, bytes)| {
            let moved = moved(features, self, &order, 0, *cache as f64 * 0.75);
            moved / bytes
        });
        let all: f64 = core + waited.clone().sum::<f64>();
        let most = waited.fold(core, f64::max);
        most + BESIDE * (all - most)
    }

    /// Estimated cycles of the whole kernel; None where the code would grow too large.
    pub(super) fn cycles(&self, features: &Features, target: &Target) -> Option<f64> {
        self.cycles_within(Mask::MAX, features, target)
    }

    /// The same of the loops over any of these axes alone.
    pub(super) fn cycles_within(
        &self,
        within: Mask,
        features: &Features,
        target: &Target,
    ) -> Option<f64> {
        self.estimate(features, target).cycles(within, BODY)
    }

    fn estimate<'a>(&'a self, features: &'a Features, target: &'a Target) -> Estimate<'a> {
        let unrolled = (0..self.factor.len()).filter(|&k| self.factor[k] != 1);
        let unrolled = unrolled.fold(0, |m, k| m | 1 << k);
        Estimate {
            tile: self,
            features,
            target,
            unrolled,
            turns: (0..self.factor.len())
                .map(|k| self.turns(features, k))
                .collect(),
            closed: features.closed(),
            after: self.after(features, unrolled),
        }
    }
}

/// A tile on its features and machine.
struct Estimate<'a> {
    tile: &'a Tile,
    features: &'a Features,
    target: &'a Target,
    /// Axes of which the tile has more than one element.
    unrolled: Mask,
    /// Iterations left, by axis.
    turns: SmallVec<[f64; 16]>,
    /// Axes that reductions close.
    closed: Mask,
    /// The axis of lanes of what comes after sums across lanes.
    after: Option<usize>,
}

impl Estimate<'_> {
    /// Iterations left over these axes.
    fn iterations(&self, mask: Mask) -> f64 {
        bits(mask).map(|k| self.turns[k]).product()
    }

    /// The axis along which what varies with these has lanes.
    fn lane(&self, varies: Mask) -> Option<usize> {
        let across = self.tile.lane_among(varies);
        let closed = varies & self.closed != 0;
        let after = self.after.filter(|l| varies >> l & 1 == 1 && !closed);
        across.or(after)
    }

    /// Vectors or elements in a tile of what varies with these axes.
    fn copies(&self, mask: Mask, bytes: usize) -> f64 {
        self.copies_along(self.lane(mask), mask, bytes)
    }

    /// The same where lanes lie along this axis.
    fn copies_along(&self, lane: Option<usize>, mask: Mask, bytes: usize) -> f64 {
        let Estimate { tile, target, .. } = *self;
        let others = bits(mask & self.unrolled)
            .filter(|k| Some(*k) != lane)
            .map(|k| tile.factor[k] as f64)
            .product::<f64>();
        others
            * lane.map_or(1.0, |l| {
                chunks(tile.factor[l], (target.vector_bytes / bytes.max(1)).max(1))
            })
    }

    /// Loads or stores for one access in a tile.
    fn accesses(&self, a: &Access) -> f64 {
        let Estimate {
            tile,
            features,
            target,
            ..
        } = *self;
        let lane = self.lane(a.varies);
        let mut copies = self.copies(a.varies, a.bytes) * self.distinct(a, lane);
        let turned = lane.is_some_and(|l| self.turned(a, l));
        for _ in bits(a.varies).filter(|&k| Some(k) != lane && !turned && self.collide(a, k)) {
            copies *= 3.0;
        }
        let Some(l) = lane else {
            return copies;
        };
        let padded = features.extent[l] % tile.factor[l] != 0;
        // Which lanes of a whole row are inside is known: only the vectors at its ends have masks.
        let masked = match padded || a.gate >> l & 1 == 1 {
            true if self.is_whole(l) => ENDS,
            true => 2.0,
            false => 1.0,
        };
        match a.stride[l] {
            _ if masked == 1.0 && self.paired(a, l) => PAIRED * copies,
            // A row more is another stream of memory, a vector more in a row is not.
            2 if !a.store && masked == 1.0 => APART * copies,
            -1 if !a.store && masked == 1.0 => REVERSED * copies,
            1 | 0 => {
                let rows = self.copies(a.varies & !(1 << l), a.bytes);
                copies * masked * self.crossing(a, l) + 0.1 * rows
            }
            _ if turned => {
                let along = bits(a.varies & self.unrolled).find(|&k| matches!(a.stride[k], 1 | -1));
                TURNED * copies + masked * self.copies_along(along, a.varies, a.bytes)
            }
            _ => {
                let lanes = target.vector_bytes / a.bytes.max(1);
                copies * (tile.factor[l].min(lanes as i64) as f64) * GATHER
            }
        }
    }

    /// Operations that put vectors of what a sum takes in together, beside the loads of their elements.
    fn put_together(&self, a: &Access, loads: f64) -> f64 {
        let summed = a.loops & self.closed != 0 && !a.store;
        match self.lane(a.varies) {
            Some(l) if summed && !matches!(a.stride[l], -1..=2 | TANGLED) => loads / GATHER,
            _ => 0.0,
        }
    }

    /// Whether the tile has all of an axis.
    fn is_whole(&self, axis: usize) -> bool {
        self.tile.factor[axis] == self.features.extent[axis]
    }

    /// Whether elements are two apart along the lanes, and what lies between them is another axis of two, whole in the
    /// tile.
    fn paired(&self, a: &Access, lane: usize) -> bool {
        let between = || self.features.between(lane) & a.varies & self.unrolled;
        a.stride[lane] == 2 && bits(between()).any(|k| a.stride[k] == 1)
    }

    /// Lines that a vector of windows reads: those that are shifted by less than a vector lie in two as often as not, the
    /// more so the longer vectors are.
    fn crossing(&self, a: &Access, lane: usize) -> f64 {
        let lanes = (self.target.vector_bytes / a.bytes.max(1)).max(1) as i64;
        let shifts = |k: usize| a.stride[k] != TANGLED && a.stride[k] % lanes != 0;
        let closes = bits(a.varies & self.closed).filter(|k| *k != lane);
        let mut windows = closes.filter(|j| a.window(*j, lane).is_some());
        match !a.store && a.stride[lane] == 1 && windows.any(shifts) {
            true => 1.0 + (lanes * a.bytes as i64) as f64 / LINE,
            false => 1.0,
        }
    }

    /// The part of what a tile reads that no other part of it reads too, where windows overlap; all of what several
    /// sums of the tile read anyway, as a convolution's channels do.
    fn distinct(&self, a: &Access, lane: Option<usize>) -> f64 {
        let Estimate { tile, closed, .. } = *self;
        let mut sums = self.features.reductions.iter();
        if sums.any(|r| r.open & !a.varies != 0) {
            return 1.0;
        }
        let axes = a.varies & self.unrolled & !lane.map_or(0, |l| 1 << l);
        let overlap = |j: usize, k: usize| {
            let [within, steps] = [tile.factor[j], tile.factor[k]];
            let far = a.window(j, k).filter(|far| *far < within)?;
            Some((far * (steps - 1) + within) as f64 / (within * steps) as f64)
        };
        let of_sum = bits(axes & closed).filter(|_| !a.store);
        let with = |j: usize| bits(axes & !closed).find_map(|k| overlap(j, k));
        of_sum.filter_map(with).product()
    }

    /// Whether elements are neighbours along another axis of the tile than the lanes': not where a reduction
    /// would be kept waiting for what moves them.
    fn turned(&self, a: &Access, lane: usize) -> bool {
        let near = (NEAR / a.bytes.max(1)).max(2) as i64;
        let fits = |k: usize| self.tile.factor[k] % near == 0;
        let whole = |k: usize| self.tile.factor[k] == self.features.extent[k] && !a.store;
        let back = |k: usize| a.stride[k] == -1 && whole(k) && a.gate == 0;
        let near = |k: usize| a.gate >> k & 1 == 0 && (a.stride[k] == 1 || back(k));
        let along = |k: usize| k != lane && near(k) && fits(k);
        let moves = a.varies & self.closed == 0;
        moves && fits(lane) && bits(a.varies).any(along)
    }

    /// As [`Tile::cycles_within`], where no iteration has more instructions than this.
    fn cycles(&self, within: Mask, body: f64) -> Option<f64> {
        let Estimate {
            tile,
            features,
            target,
            ..
        } = *self;
        let mut levels = Levels::new();
        let closed = self.closed;
        let counts = |loops: Mask| within == Mask::MAX || loops & within != 0;
        for a in features.accesses.iter().filter(|a| counts(a.loops)) {
            let n = self.accesses(a);
            let level = level(&mut levels, a.loops);
            if a.store {
                level.stores += n
            } else {
                level.loads += n;
                level.ops += self.put_together(a, n);
                level.fetched += n * self.fetched(a);
            }
        }
        for w in features.work.iter().filter(|w| counts(w.loops)) {
            let level = level(&mut levels, w.loops);
            level.ops += w.ops * self.copies(w.varies, w.bytes);
            level.depth += w.ops * STEP;
        }
        // Slices of which each is folded across lanes.
        let mut slices = None;
        for (i, r) in features.reductions.iter().enumerate() {
            if ![r.inside, r.around].into_iter().any(counts) {
                continue;
            }
            let across = tile.lane_among(r.closes);
            let with_lane = r.open | across.map_or(0, |l| 1 << l);
            let sums = self.copies(with_lane, r.bytes);
            let chain: f64 = bits(r.closes)
                .filter(|k| Some(*k) != across)
                .map(|k| tile.factor[k] as f64)
                .product();
            let inner = level(&mut levels, r.inside);
            inner.latency = inner.latency.max(LATENCY * chain);
            inner.chain = inner.chain.max(chain);
            inner.blocks |= r.blocks;
            // A sum of blocks stands beside that of the block, and what it lost beside that.
            let kept = if r.blocks { 3.0 * sums } else { sums };
            inner.registers += kept + self.held(r);
            let before = &features.reductions[..i];
            if before.iter().all(|b| b.closes != r.closes) {
                inner.registers += self.unchanged(r);
            }
            // Lanes are folded once the loop is done.
            if let Some(lane) = across {
                let outer = level(&mut levels, r.around);
                let lanes = (target.vector_bytes / r.bytes.max(1)).min(tile.factor[lane] as usize);
                outer.depth += HALVED * (lanes as f64).log2();
                slices = slices.or(Some(self.iterations(r.around)));
                outer.ops += match self.after {
                    Some(_) => TRANSPOSE * sums,
                    None => sums + 8.0 * self.copies(r.open, r.bytes),
                };
            }
        }
        let mut sum = 0.0;
        let mut slice = Slice::default();
        for l in levels.iter().filter(|l| counts(l.loops)) {
            if l.loads + l.stores + l.ops > body {
                return None;
            }
            // What has no register is written and read for each term.
            let spilled = (l.registers + 2.0 - target.registers as f64).max(0.0);
            let spilled = 2.0 * spilled * l.chain.max(1.0);
            let instructions = l.loads + l.stores + l.ops + 3.0;
            let issued = instructions / 6.0;
            let turns = self.iterations(l.loops & closed);
            let at_once = WINDOW / (instructions * turns);
            let busy = (l.loads / 2.0)
                .max(l.stores)
                .max(l.ops / 2.0)
                .max(l.latency / at_once.max(1.0));
            let busy = busy.max(l.fetched) + spilled;
            let times = self.iterations(l.loops);
            let innermost = 63 - (l.loops & closed).leading_zeros() as i64;
            let trips = if innermost < 0 {
                f64::INFINITY
            } else {
                self.iterations(1 << innermost)
            };
            let left = if trips > 1.0 {
                times / trips * LEAVE
            } else {
                0.0
            };
            let left = if l.blocks {
                left.max(times / TERMS * LEAVE)
            } else {
                left
            };
            let cycles = busy.max(issued);
            sum += times * cycles + left;
            if slices == Some(times) {
                slice.add(instructions, l.depth, cycles);
            }
        }
        sum += slices.unwrap_or(0.0) * slice.idle();
        let missed = |a: &Access| self.missed(a) + self.unforeseen(a);
        let missed: f64 = features.accesses.iter().map(missed).sum();
        Some(sum + self.iterations(features.outer) * missed)
    }

    /// Whether the copies along an axis fall into fewer places of the first cache than they need.
    fn collide(&self, a: &Access, k: usize) -> bool {
        let rows = self.tile.factor[k];
        rows > WAYS && rows > beside(a.stride[k].saturating_mul(a.bytes as i64))
    }

    /// Cycles in which an iteration of the innermost loop fetches lines that are gone before what else they
    /// hold is needed: the loop steps over more of them than a cache holds, or they collide.
    fn missed(&self, a: &Access) -> f64 {
        let Estimate {
            tile,
            features,
            target,
            ..
        } = *self;
        if !features.reductions.is_empty() {
            return 0.0;
        }
        let left = |k: &usize| features.extent[*k] > tile.factor[*k];
        let inner = bits(features.outer).filter(left).last();
        let Some(inner) = inner.filter(|k| a.varies >> k & 1 == 1) else {
            return 0.0;
        };
        if bits(a.varies).any(|k| a.stride[k] == TANGLED) {
            return 0.0;
        }
        let part = |k: usize| (a.stride[k].unsigned_abs() as f64 * a.bytes as f64 / LINE).min(1.0);
        let lines: f64 = bits(a.varies)
            .map(|k| (tile.factor[k] as f64 * part(k)).max(1.0))
            .product();
        let stepped = self.iterations(1 << inner) * lines;
        let bytes = |k: usize| a.stride[k].saturating_mul(a.bytes as i64);
        let second = target.caches[1] as i64;
        let (gone, far) = if part(inner) < 1.0 {
            let rows = &tile.factor;
            let beyond = |k: usize| rows[k] > WAYS && rows[k] > held(second, bytes(k));
            let collide = bits(a.varies).any(|k| self.collide(a, k));
            (collide, bits(a.varies).any(beyond))
        } else {
            let beyond = stepped > held(second, bytes(inner)) as f64;
            (stepped * LINE > target.caches[0] as f64 / 2.0, beyond)
        };
        let each = if far { FAR } else { NEARBY };
        if gone { lines * each } else { 0.0 }
    }

    /// Cycles to fetch a line of rows that a sum goes through side by side, and that outer loops go through again, where
    /// the places of a cache into which they fall hold fewer.
    fn fetched(&self, a: &Access) -> f64 {
        let Estimate {
            tile,
            features,
            target,
            closed,
            ..
        } = *self;
        let lane = self.lane(a.varies);
        let others = a.varies & !lane.map_or(0, |l| 1 << l);
        let beside = bits(others & !closed).any(|k| tile.factor[k] > 1);
        let again = features.outer & !a.varies != 0;
        if !again || !beside || a.varies & closed == 0 {
            return 0.0;
        }
        let mut lines = 1.0;
        let mut steps = SmallVec::<[i128; 8]>::new();
        for k in bits(others) {
            if a.stride[k] == TANGLED {
                return 0.0;
            }
            let n = match closed >> k & 1 {
                1 => features.extent[k],
                _ => tile.factor[k],
            };
            let step = a.stride[k].saturating_abs().saturating_mul(a.bytes as i64);
            lines *= (n as f64 * (step as f64 / LINE).min(1.0)).max(1.0);
            steps.extend((n > 1).then_some(i128::from(step)));
        }
        let along = lane.filter(|l| closed >> l & 1 == 1);
        let length = along.map_or(1.0, |l| features.extent[l] as f64 * a.bytes as f64 / LINE);
        let slice = lines * length * LINE;
        let gone = |cache: usize, period: i64| {
            let apart = steps.iter().fold(period.into(), |g, &s| gcd(g, s));
            let held = (WAYS * period) as f64 / (apart as f64).max(LINE);
            lines > held && 2.0 * held * LINE <= cache as f64
        };
        let [first, second, _] = target.caches;
        match (gone(second, second as i64 / WAYS), gone(first, ALIAS)) {
            (true, _) => FAR,
            (_, true) => NEARBY,
            // The first cache does not hold a slice that goes along its terms.
            _ if along.is_some() && 2.0 * slice > first as f64 => LINE / MOVED[0],
            _ => 0.0,
        }
    }

    /// Cycles for lines from beyond the second cache that nothing fetches ahead, of what is read once: a tile goes
    /// through more rows of a page than are followed, or more rows of memory.
    fn unforeseen(&self, a: &Access) -> f64 {
        let features = self.features;
        let factor = &self.tile.factor;
        let Some(lane) = self.lane(a.varies) else {
            return 0.0;
        };
        let once = features.outer & !a.varies == 0 && !features.reductions.is_empty();
        if a.store || !once || a.size <= self.target.caches[1] as i64 {
            return 0.0;
        }
        let bytes = |k: usize| a.stride[k].unsigned_abs() as f64 * a.bytes as f64;
        // Rows that are read whole go on from one to the next.
        let row = factor[lane] as f64 * bytes(lane);
        let apart = |k: &usize| *k != lane && a.stride[*k] != TANGLED && bytes(*k) > row;
        let rows = |most: f64| -> f64 {
            bits(a.varies & features.known)
                .filter(|k| apart(k) && (LINE..most).contains(&bytes(*k)))
                .map(|k| factor[k] as f64)
                .product()
        };
        let far = rows(f64::INFINITY) > STREAMS;
        let rows = rows(if far { f64::INFINITY } else { PAGE });
        let lines = rows * row / LINE;
        if rows <= RUNS { 0.0 } else { FAR * lines }
    }

    /// Registers for operands of a reduction that reads overlapping windows of one: its vectors pass by, each once, and
    /// what they are multiplied by is held for all steps (`linearize`), in each length of vectors.
    fn held_by(&self, r: &Reduction, windows: &Access, lane: Option<usize>) -> f64 {
        let Estimate { tile, target, .. } = *self;
        let lanes = (target.vector_bytes / windows.bytes.max(1)).max(1) as i64;
        let lengths =
            |l: usize| 1 + i64::from(tile.factor[l] > lanes && tile.factor[l] % lanes != 0);
        let lengths = lane.map_or(1, lengths) as f64;
        let others = self.features.accesses.iter();
        let others =
            others.filter(|a| !a.store && a.varies & r.closes != 0 && !std::ptr::eq(*a, windows));
        let held: f64 = others
            .map(|a| lengths * self.copies(a.varies, a.bytes))
            .sum();
        held + 1.0
    }

    /// Registers for values that the innermost loop of a reduction does not change.
    fn unchanged(&self, r: &Reduction) -> f64 {
        let loops = bits(r.closes).filter(|&k| self.turns[k] > 1.0);
        let Some(innermost) = loops.last() else {
            return 0.0;
        };
        let by = |varies: Mask| varies >> innermost & 1 == 1;
        let steady = self.features.steady.iter();
        let stays = steady.filter(|s| by(s.users) && !by(s.varies));
        stays.map(|s| self.copies(s.varies, s.bytes)).sum()
    }

    /// Registers for operands of a reduction: one operand is held whole, the others pass by. Where several sums
    /// of the tile read the same vectors, these are what is held (`cpu::unrolled`).
    fn held(&self, r: &Reduction) -> f64 {
        let Estimate { tile, features, .. } = *self;
        let mut least = 64.0f64;
        for a in &features.accesses {
            if a.store || a.varies & r.closes == 0 {
                continue;
            }
            let open = a.varies & !r.closes;
            let lane = tile.lane_among(open);
            if self.distinct(a, lane) < 1.0 {
                return self.held_by(r, a, lane);
            }
            let copies = self.copies_along(lane, open, a.bytes);
            if lane.is_some() && bits(r.open & !a.varies).any(|k| tile.factor[k] > 1) {
                return copies;
            }
            least = least.min(copies);
        }
        least
    }
}

/// The level of these loops.
fn level(levels: &mut Levels, loops: Mask) -> &mut Level {
    let at = levels.iter().position(|l| l.loops == loops);
    let at = at.unwrap_or_else(|| {
        levels.push(Level {
            loops,
            ..Level::default()
        });
        levels.len() - 1
    });
    &mut levels[at]
}

/// Into how many equal parts to cut a loop of `n` for these threads, and how many that keeps busy.
pub(super) fn part(n: i64, threads: i64) -> Option<(i64, f64)> {
    let mut best: Option<(i64, f64)> = None;
    // As many parts as threads, or somewhat more where that does not divide.
    for parts in (threads..=(8 * threads).min(n)).filter(|p| n % p == 0) {
        let rounds = (parts + threads - 1) / threads;
        let busy = parts as f64 / rounds as f64;
        if best.is_none_or(|b| busy > b.1 * 1.05) {
            best = Some((parts, busy));
        }
    }
    best
}

/// Rows so many bytes apart of which the first cache holds a line each.
pub(super) fn beside(step: i64) -> i64 {
    held(WAYS * ALIAS, step)
}

/// The same of a cache of so many bytes, `WAYS` at least. Rows so far apart that as many as a set holds, or twice or
/// four times as many, begin in the same set, or hardly past it, share it.
fn held(cache: i64, step: i64) -> i64 {
    let period = (cache / WAYS).max(64);
    let mut share = 1;
    while share < period / 64 {
        let apart = step.saturating_abs().saturating_mul(share);
        let past = (apart % period).min(period - apart % period);
        if past * WAYS < 64 && apart.saturating_add(past) >= period {
            break;
        }
        share *= 2;
    }
    share * cache / period
}

/// Vectors for `n` elements, at most `lanes` each: whole ones, then powers of two.
pub(super) fn chunks(n: i64, lanes: usize) -> f64 {
    let lanes = lanes as i64;
    (n / lanes + (n % lanes).count_ones() as i64) as f64
}

/// Bytes of memory that an access touches while the loops `inside` run, around the tile.
fn footprint(features: &Features, tile: &Tile, a: &Access, inside: Mask) -> f64 {
    let mut elements = 1.0f64;
    let mut span = 1.0f64;
    let mut dense = false;
    for k in bits(a.varies) {
        let n = if inside >> k & 1 == 1 {
            features.extent[k]
        } else {
            tile.factor[k]
        } as f64;
        elements *= n;
        match a.stride[k] {
            TANGLED => span = f64::INFINITY,
            s => {
                span += s.unsigned_abs() as f64 * (n - 1.0);
                dense |= s.unsigned_abs() <= 1 && n > 1.0;
            }
        }
    }
    let line = if dense { a.bytes as f64 } else { LINE };
    (elements.min(span) * line).min(a.size.max(1) as f64)
}

/// Bytes that the innermost of the outer loops reads, and reads again for others around it.
pub(super) fn read_again(features: &Features, tile: &Tile, order: &[usize]) -> f64 {
    let Some((&inner, around)) = order.split_last() else {
        return 0.0;
    };
    let inside = features
        .reductions
        .iter()
        .fold(1 << inner, |m, r| m | r.closes);
    let again = |a: &&Access| {
        !a.store && a.varies >> inner & 1 == 1 && around.iter().any(|k| a.varies >> k & 1 == 0)
    };
    features
        .accesses
        .iter()
        .filter(again)
        .map(|a| footprint(features, tile, a, inside))
        .sum()
}

/// Bytes from beyond a cache of this size, when the outer loops run in this order (outermost first)
/// around the tile and the reductions.
pub(super) fn traffic(features: &Features, tile: &Tile, order: &[usize], cache: f64) -> f64 {
    moved(features, tile, order, features.closed(), cache)
}

/// The same, these axes being inside of all loops.
fn moved(features: &Features, tile: &Tile, order: &[usize], closed: Mask, cache: f64) -> f64 {
    let inside = |n: usize| {
        order[order.len() - n..]
            .iter()
            .fold(closed, |m, k| m | 1 << k)
    };
    // How many of the innermost loops fit.
    let bytes = |n: usize| {
        features
            .accesses
            .iter()
            .map(|a| footprint(features, tile, a, inside(n)))
            .sum::<f64>()
    };
    let fits = (0..=order.len())
        .take_while(|&n| bytes(n) <= cache)
        .last()
        .unwrap_or(0);
    let mut sum = 0.0;
    for a in &features.accesses {
        let bytes = footprint(features, tile, a, inside(fits));
        let mut times = 1.0;
        let mut stays = bytes <= cache / 2.0;
        for &k in order[..order.len() - fits].iter().rev() {
            stays &= a.varies >> k & 1 == 0;
            if !stays {
                times *= (features.extent[k] / tile.factor[k]) as f64;
            }
        }
        sum += bytes * times;
    }
    sum
}

/// Cycles below which no schedule gets: those of all arithmetic in whole vectors, or of all bytes once.
pub(super) fn least(features: &Features, target: &Target) -> f64 {
    let vectors = |varies: Mask, bytes: usize| {
        features.count(varies) / (target.vector_bytes / bytes.max(1)).max(1) as f64
    };
    let works = features.work.iter();
    let work: f64 = works.map(|w| w.ops * vectors(w.varies, w.bytes)).sum();
    let all = (0..features.extent.len()).fold(0, |m, k| m | 1 << k);
    let tile = Tile::single(features);
    let accesses = features.accesses.iter();
    let bytes: f64 = accesses.map(|a| footprint(features, &tile, a, all)).sum();
    // As fast as the nearest memory that holds all of them.
    let beyond = target.caches.iter().rposition(|c| bytes > *c as f64);
    let moved = beyond.map_or(0.0, |level| bytes / MOVED[level]);
    (work / 2.0).max(moved)
}
