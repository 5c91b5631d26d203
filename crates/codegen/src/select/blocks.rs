//! Long sums in blocks. Flows in: a legalised kernel, its table, and which axes are lanes; flows out: the
//! kernel in which a long REDUCE that adds floats is a REDUCE of REDUCEs over a range split in two, and
//! which of the outer ones carry what their additions round away. REDUCEs that share a loop still do.
//!
//! A float that grows while it is added to loses the ends of what is added. In a block an accumulator
//! takes only so many terms. A sum that reads as much as it adds waits for memory and has short blocks; where
//! there are many of those, what their sum loses is added apart (the two-sum of Knuth, TAOCP 2, 4.2.2).
//! A register tile, which reads each element for many results, has longer blocks and plain sums.
//!
//! Invariant: where blocks begin depends on extents, dtypes and the tile alone. What is left over where
//! no block size divides the extent is a REDUCE of its own.

use super::layout::{Layout, product, takes_in};
use super::table::{Loops, Table};
use crate::build::{bits_type, combine};
use crate::graph::{Srcs, rebuild};
use crate::loops::{depth, fresh, kind, next_id};
use monoglot_uop::marks::NodeMap;
use monoglot_uop::{Arg, Op, ReduceOp, Result, Target, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Terms that an accumulator takes in a block of a sum that waits for memory.
const SHORT: i64 = 16;
/// Terms that one takes in a block of a register tile, at least, and blocks of a tile, at most.
const LONG: i64 = 256;
const MOST: i64 = 64;

/// A kernel in blocks, and the REDUCEs that carry.
pub(super) struct Blocks {
    pub(super) kernel: UOp,
    pub(super) carried: FxHashSet<UOp>,
}

/// How the ranges of a group of REDUCEs become those of blocks and those around them.
#[derive(Default)]
struct Cut {
    outer: Vec<UOp>,
    inner: Vec<UOp>,
    /// What takes the place of ranges that are split, or numbered anew.
    places: FxHashMap<UOp, UOp>,
    rest: Option<Rest>,
    carries: bool,
}

/// What is left over where no block size divides the extent.
struct Rest {
    ranges: Vec<UOp>,
    /// What takes the place of the ranges that the blocks run over.
    places: FxHashMap<UOp, UOp>,
}

/// The kernel in blocks; None where no sum is long.
pub(super) fn split(t: &Table, layout: &Layout, target: &Target) -> Result<Option<Blocks>> {
    let Some(kernel) = t.nodes.last().filter(|_| !t.groups.is_empty()) else {
        return Ok(None);
    };
    let mut id = next_id(kernel);
    let mut groups: Vec<&Vec<u32>> = t.groups.values().collect();
    groups.sort_unstable();
    let mut cuts: Vec<Cut> = Vec::new();
    let mut cut_of: NodeMap<&UOp, usize> = NodeMap::new();
    for members in groups {
        if let Some(cut) = Group::of(t, layout, target, members).and_then(|g| g.cut(&mut id)) {
            let member = |&i: &u32| (&t.nodes[i as usize], cuts.len());
            cut_of.extend(members.iter().map(member));
            cuts.push(cut);
        }
    }
    if cuts.is_empty() {
        return Ok(None);
    }
    let mut carried = FxHashSet::default();
    let kernel = rebuild(kernel, |u, src| {
        Ok(match cut_of.get(u) {
            Some(&k) => cuts[k].apply(u, &src[0], layout, &mut carried),
            None => match cuts.iter().find_map(|c| c.places.get(u)) {
                Some(place) => place.clone(),
                None => u.with_src(src),
            },
        })
    })?;
    Ok(Some(Blocks { kernel, carried }))
}

impl Cut {
    /// The REDUCE `u` of x in blocks. Lanes are kept apart until all blocks are done.
    fn apply(&self, u: &UOp, x: &UOp, layout: &Layout, carried: &mut FxHashSet<UOp>) -> UOp {
        let Arg::Reduce(op, axes) = u.arg() else {
            return u.clone();
        };
        let (lanes, others): (Vec<u8>, Vec<u8>) =
            axes.iter().partition(|a| layout.is_lane[**a as usize]);
        let over = |x: &UOp, axes: &[u8], ranges: &[UOp]| {
            if axes.is_empty() && ranges.is_empty() {
                return x.clone();
            }
            let src: Srcs = [x].into_iter().chain(ranges).cloned().collect();
            UOp::new(Op::Reduce, src, Arg::Reduce(*op, axes.into()))
        };
        let sum = over(&over(x, &others, &self.inner), &lanes, &self.outer);
        if self.carries && *op == ReduceOp::Add && u.dtype().is_float() {
            carried.insert(sum.clone());
        }
        match &self.rest {
            Some(rest) => {
                let left = over(&x.substitute(&rest.places), axes, &rest.ranges);
                combine(*op, &sum, &left)
            }
            None => sum,
        }
    }
}

/// REDUCEs that share a loop, one of which adds floats.
struct Group {
    /// Outermost first, with the extents that are known.
    ranges: Vec<UOp>,
    extents: Vec<Option<i64>>,
    /// Terms that an accumulator takes in one iteration.
    terms: i64,
    /// Whether elements are read for many results each.
    tile: bool,
    /// Whether another loop stands inside.
    nests: bool,
}

impl Group {
    fn of(t: &Table, layout: &Layout, target: &Target, members: &[u32]) -> Option<Group> {
        let mut ranges: Vec<UOp> = t.nodes[members[0] as usize].src()[1..].to_vec();
        ranges.sort_by_key(depth);
        let mask: Loops = (0..t.ranges.len())
            .filter(|&k| ranges.contains(&t.nodes[t.ranges[k] as usize]))
            .fold(0, |m, k| m | 1 << k);
        let inside = |i: usize| t.loops[i] & mask != 0;
        // What has an effect in the loop stays as it is.
        let effect = |i: usize| matches!(t.nodes[i].op(), Op::Store | Op::Barrier | Op::End);
        if (0..t.len()).any(|i| effect(i) && inside(i)) {
            return None;
        }
        let adds = |i: &usize| {
            matches!(t.nodes[*i].arg(), Arg::Reduce(ReduceOp::Add, _))
                && t.nodes[*i].dtype().is_float()
        };
        let sums: Vec<usize> = members.iter().map(|&i| i as usize).filter(adds).collect();
        let value = |i: usize| t.src[i][0] as usize;
        let terms = |i: usize| -> i64 {
            // A unit of tiles adds up a tile's terms before it adds them to the sum.
            if layout.tiled.as_ref().is_some_and(|tiled| tiled.is(i)) {
                return 1;
            }
            let before = &t.dims[value(i)];
            let after = &t.dims[i];
            (0..t.rank)
                .filter(|&k| !layout.is_lane[k])
                .map(|k| i64::from(before[k] / after[k].max(1)))
                .product()
        };
        let elements = |i: usize| t.dims[i].iter().map(|&n| i64::from(n)).product::<i64>();
        let read_again = |product: usize, mut factor: usize| {
            while matches!(t.nodes[factor].op(), Op::Expand | Op::Cast) {
                factor = t.src[factor][0] as usize;
            }
            elements(factor) < elements(product)
        };
        let tile = |&i: &usize| {
            let v = product(t, i);
            let factors = || t.src[v].iter().all(|&f| read_again(v, f as usize));
            let fuses = || takes_in(&t.nodes[i], &t.nodes[v], target);
            t.nodes[v].op() == Op::Wmma || fuses() && factors()
        };
        let other = |g: &Vec<u32>| g != members && g.iter().any(|&i| inside(i as usize));
        Some(Group {
            extents: ranges.iter().map(extent).collect(),
            ranges,
            terms: sums.iter().map(|&i| terms(i)).max()?.max(1),
            tile: sums.iter().all(tile),
            nests: t.groups.values().any(other),
        })
    }

    /// How it is cut, if it is long.
    fn cut(&self, id: &mut u32) -> Option<Cut> {
        let turns = self.ranges.iter().map(|r| r.vmax() - r.vmin() + 1);
        let trips = turns.fold(1i64, i64::saturating_mul);
        let block = if self.tile {
            LONG.max(trips.saturating_mul(self.terms) / MOST)
        } else {
            SHORT
        };
        let wanted = (block / self.terms).max(1);
        // The innermost loops that a block holds whole.
        let mut held = 1;
        let mut k = self.ranges.len();
        while k > 0 && self.extents[k - 1].is_some_and(|e| held * e <= wanted * 3 / 2) {
            held *= self.extents[k - 1]?;
            k -= 1;
        }
        let (around, whole) = self.ranges.split_at(k);
        let (range, around) = around.split_last()?;
        // So many blocks that their own sum is long.
        let blocks = trips.saturating_mul(self.terms) / block;
        let carries = !self.tile && blocks > SHORT;
        if wanted / held < 2 {
            return Some(Cut {
                outer: self.ranges[..k].to_vec(),
                inner: whole.to_vec(),
                carries,
                ..Cut::default()
            });
        }
        let Some(n) = self.extents[k - 1] else {
            return self.cut_somewhere(k - 1, wanted / held, carries, id);
        };
        let factor = divisor(n, wanted / held).or_else(|| {
            let near = wanted / held * 3 / 4..=wanted / held * 3 / 2;
            near.min_by_key(|f| n % f).filter(|_| !self.nests)
        })?;
        let mut anew = |r: &UOp| (r.clone(), fresh(r, kind(r), id));
        let sized = |r: &UOp, n: i64| r.with_src(vec![int(n, r)]);
        // Loops inside of others have the greater numbers.
        let high = sized(&anew(range).1, n / factor);
        let low = sized(&anew(range).1, factor);
        let inner: Vec<(UOp, UOp)> = whole.iter().map(&mut anew).collect();
        let place = &high * factor + &low;
        let left = n % factor;
        // The rest has ranges of its own: those around, what is left of the one that is split, those inside.
        let mut rest = Rest {
            ranges: Vec::new(),
            places: FxHashMap::default(),
        };
        for r in around {
            let (old, new) = anew(r);
            rest.ranges.push(new.clone());
            rest.places.insert(old, new);
        }
        let mut at = int(n - left, range);
        if left > 1 {
            let over = sized(&anew(range).1, left);
            at = &over + &at;
            rest.ranges.push(over);
        }
        rest.places.insert(place.clone(), at);
        for (_, r) in &inner {
            let (old, new) = anew(r);
            rest.ranges.push(new.clone());
            rest.places.insert(old, new);
        }
        let outer = around.iter().cloned().chain([high]);
        let inside = inner.iter().map(|(_, new)| new.clone());
        Some(Cut {
            outer: outer.collect(),
            inner: [low].into_iter().chain(inside).collect(),
            places: inner.into_iter().chain([(range.clone(), place)]).collect(),
            rest: Some(rest).filter(|_| left > 0),
            carries,
        })
    }
}

impl Group {
    /// How it is cut where only the kernel knows how long the innermost of its loops is, in which nothing stands:
    /// in blocks of so many terms, and what is left of them.
    fn cut_somewhere(&self, k: usize, most: i64, carries: bool, id: &mut u32) -> Option<Cut> {
        let (range, around) = self
            .ranges
            .split_last()
            .filter(|_| k + 1 == self.ranges.len())?;
        let [end] = range.src() else { return None };
        let bits = most.ilog2();
        // Loops that end where those around them say stay together.
        let one_of = |r: &UOp| self.ranges.contains(r);
        let bound = |r: &UOp| r.src().iter().any(|s| s.ranges().iter().any(one_of));
        if self.nests || range.vmax() < 2 << bits || self.ranges.iter().any(bound) {
            return None;
        }
        let blocks = end.binary(Op::Shr, &UOp::int(bits.into(), bits_type(end.dtype())));
        let first = &blocks * (1 << bits);
        let mut counter = |src: &[UOp]| fresh(&range.with_src(src), kind(range), id);
        let high = counter(&[blocks]);
        let low = counter(&[int(1 << bits, range)]);
        let place = &(&high * (1 << bits)) + &low;
        // What is left of each turn of the loops around has such of its own.
        let mut left: Vec<UOp> = Vec::new();
        let mut places = FxHashMap::default();
        for r in around {
            left.push(fresh(r, kind(r), id));
            places.extend(left.last().map(|new| (r.clone(), new.clone())));
        }
        let over = fresh(&range.with_src(vec![end.clone(), first]), kind(range), id);
        places.insert(place.clone(), over.clone());
        left.push(over);
        Some(Cut {
            outer: around.iter().cloned().chain([high]).collect(),
            inner: vec![low],
            places: FxHashMap::from_iter([(range.clone(), place)]),
            rest: Some(Rest {
                ranges: left,
                places,
            }),
            carries,
        })
    }
}

/// How many turns a loop has, where that is known.
fn extent(range: &UOp) -> Option<i64> {
    let [end] = range.src() else { return None };
    end.as_int()
}

/// A number in the type in which a range counts.
fn int(n: i64, range: &UOp) -> UOp {
    UOp::int(n, range.dtype())
}

/// The divisor of n nearest to `want`, if one is within a factor of 2.
fn divisor(n: i64, want: i64) -> Option<i64> {
    let far = |f: &i64| (*f as f64 / want as f64).ln().abs();
    ((want / 2).max(2)..=want * 2)
        .filter(|f| n % f == 0 && n / f > 1)
        .min_by(|a, b| far(a).total_cmp(&far(b)))
}
