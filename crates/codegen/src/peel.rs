//! Turns at which a mask may not hold stand apart. Flows in: a kernel whose ranges are closed once, over flat
//! storage; flows out: the same kernel, in which a loop whose masks hold but for some of its first or last turns
//! runs over the others, which need no mask, and what those turns do stands beside it. Rows of an odd length and
//! edges that are padded so cost what others do.
//!
//! Masks are not looked at again: where a counter's interval says that they hold, rules leave them out. Invariant:
//! each turn is done once; effects of one loop depend on no other turn of it.

use crate::build::combine;
use crate::graph::{Srcs, group, rebuild};
use crate::loops::{self, fresh, is_loop, kind, next_id};
use crate::scratch;
use monoglot_uop::rules::{conjuncts, constraints};
use monoglot_uop::{Arg, DType, Op, Result, UOp, rules};
use rustc_hash::{FxHashMap, FxHashSet};

/// Most nodes of a body that is repeated, its copies counted.
const NODES: i64 = 256;

/// What those along the longest axis count for at most, as they are lanes of vectors.
const VECTOR: i64 = 4;

/// Most loops of a kernel that has been taken apart: loops inside are repeated by each part of those around them.
const LOOPS: usize = 64;

/// The turns of a loop at which all lanes count: from one up to another.
struct Sure {
    from: i64,
    to: i64,
    /// All turns.
    turns: i64,
    /// How many loops are closed inside.
    nested: usize,
}

/// See the module.
///
/// # Errors
/// None for a kernel that obeys its spec.
pub(crate) fn peel(kernel: &UOp) -> Result<UOp> {
    let ops = kernel.ops_below();
    let compares = ops.contains(Op::CmpLt) || ops.contains(Op::CmpEq);
    if !compares || ops.contains(Op::Barrier) {
        return Ok(kernel.clone());
    }
    let nodes = kernel.toposort();
    // The lanes of a warp turn alike.
    let warps = |u: &UOp| u.op() == Op::Wmma && u.dot().is_none();
    if ops.contains(Op::Wmma) && nodes.iter().any(warps) {
        return Ok(kernel.clone());
    }
    let carried = scratch::carried(&nodes);
    let mut closed: FxHashMap<&UOp, Vec<&UOp>> = FxHashMap::default();
    for u in nodes.iter().filter(|u| closes(u)) {
        for r in u.src()[1..].iter().filter(|r| is_loop(r)) {
            closed.entry(r).or_default().push(u);
        }
    }
    closed.retain(|range, _| !carried.contains(*range));
    let sure = |(range, by): (&UOp, Vec<&UOp>)| Some((range.clone(), Sure::of(range, &by)?));
    let mut all: FxHashMap<UOp, Sure> = closed.into_iter().filter_map(sure).collect();
    while let Some(most) = all.values().map(|s| s.nested).max() {
        let new = in_parts(kernel, &all)?;
        let loops = new.nodes().into_iter().filter(|u| is_loop(u)).count();
        if loops <= LOOPS {
            let known = rules::kernel().rewrite(&new)?;
            let settled = rebuild(&known, |u, src| Ok(settled(u, src)))?;
            // Where a part's condition leaves one turn, a sum is over fewer loops than others that shared them.
            return Ok(loops::part_reduces(&rules::kernel().rewrite(&settled)?));
        }
        // The innermost loops turn most.
        all.retain(|_, s| s.nested < most);
    }
    Ok(kernel.clone())
}

/// A kernel in which these loops are taken apart.
fn in_parts(kernel: &UOp, all: &FxHashMap<UOp, Sure>) -> Result<UOp> {
    let mut names = Names {
        id: next_id(kernel),
        places: FxHashMap::default(),
    };
    rebuild(kernel, |u, src| {
        let new = u.with_src(src);
        let own = u.src().iter().skip(1).filter(|_| closes(u));
        Ok(match own.filter_map(|r| Some((r, all.get(r)?))).next() {
            Some((range, sure)) => sure.part(&new, range, &mut names),
            None => new,
        })
    })
}

/// A node of which the gates are known, and effects that are none.
fn settled(u: &UOp, src: Srcs) -> UOp {
    let none = |s: &UOp| s.op() == Op::Group && s.src().is_empty();
    let gate = src.get(2).and_then(UOp::const_value).map(|c| c.truthy());
    match (u.op(), gate) {
        (Op::Load, Some(true)) => u.with_src(&src[..1]),
        (Op::Load, Some(false)) => src[1].clone(),
        (Op::Store, Some(true)) => u.with_src(&src[..2]),
        (Op::Store, Some(false)) => group(Vec::new()),
        (Op::End, _) if none(&src[0]) => src[0].clone(),
        (Op::After, _) if src[1..].iter().all(none) => src[0].clone(),
        (Op::Group, _) => group(src.into_vec()),
        (Op::After | Op::Sink, _) => {
            let some = src.into_iter().filter(|s| !none(s));
            u.with_src(some.collect::<Srcs>())
        }
        _ => u.with_src(src),
    }
}

fn closes(u: &UOp) -> bool {
    matches!(u.op(), Op::Reduce | Op::End)
}

impl Sure {
    /// None where nothing is won, or the body is too large, fills storage of its own or overwrites what it reads.
    fn of(range: &UOp, by: &[&UOp]) -> Option<Sure> {
        let [end] = range.src() else { return None };
        let turns = end.as_int().filter(|n| *n > 1)?;
        let mut sure = Sure {
            from: 0,
            to: turns,
            turns,
            nested: 0,
        };
        for u in by {
            let body = u.src()[0].nodes();
            let inside: Vec<&UOp> = body
                .iter()
                .copied()
                .filter(|n| n.ranges().contains(range))
                .collect();
            let loops = u.src()[1..].iter().filter(|r| is_loop(r)).count();
            // Storage that a loop inside fills would be filled by each part's own.
            let closed = inside.iter().filter(|n| closes(n));
            let closed = closed.flat_map(|n| &n.src()[1..]);
            let own: FxHashSet<&UOp> = closed.chain([range]).collect();
            let fills =
                |n: &&UOp| n.op() == Op::After && n.ranges().iter().any(|r| own.contains(r));
            let fills = body.iter().any(fills);
            // A loop inside that begins or ends where this one's turn says.
            let told = inside.iter().any(|n| n.op() == Op::Range && *n != range);
            // Loops inside are copied with it, and those beside it are not.
            let nested = inside.iter().filter(|n| closes(n)).count();
            sure.nested = sure.nested.max(nested);
            let beside = |n: &&UOp| closes(n) && !n.ranges().contains(range);
            let mixed = nested > 0 && body.iter().any(beside);
            if loops > 1 || fills || told || mixed || overwrites(&inside) || size(&inside) > NODES {
                return None;
            }
            let gates = inside.iter().filter_map(|n| match n.op() {
                Op::Where => n.src().first(),
                Op::Load | Op::Store => n.src().get(2),
                _ => None,
            });
            for condition in gates.flat_map(conjuncts) {
                sure.take(range, &condition);
            }
        }
        let some = sure.from > 0 || sure.to < turns;
        (some && sure.from < sure.to).then_some(sure)
    }

    /// Only turns at which a condition holds, if those are most.
    fn take(&mut self, range: &UOp, condition: &UOp) {
        for sum in constraints(condition) {
            let Some(&(_, k)) = sum.terms.iter().find(|t| t.0 == *range) else {
                continue;
            };
            let others = sum.terms.iter().filter(|t| t.0 != *range);
            if others.clone().any(|t| t.0.ranges().contains(range)) {
                continue;
            }
            // k·range + rest ≤ 0 for the greatest that the rest is.
            let greatest = |t: &(UOp, i128)| {
                let (lo, hi) = t.0.bounds();
                (lo as i128 * t.1).max(hi as i128 * t.1)
            };
            let rest = sum.constant + others.map(greatest).sum::<i128>();
            let all = self.turns as i128;
            let (from, to) = if k > 0 {
                (0, (-rest).div_euclid(k) + 1)
            } else {
                (-(-rest).div_euclid(-k), all)
            };
            let most = to.min(all) - from.max(0) >= (all + 1) / 2;
            let from = self.from.max(from.max(0) as i64);
            let to = self.to.min(to.min(all) as i64);
            // Not where what was taken before holds at none of them.
            if most && from < to {
                self.from = from;
                self.to = to;
            }
        }
    }

    /// What closes the range, in parts.
    fn part(&self, u: &UOp, range: &UOp, names: &mut Names) -> UOp {
        let parts = [(0, self.from), (self.from, self.to), (self.to, self.turns)];
        let parts = parts.into_iter().filter(|(from, to)| from < to);
        let parts = parts.map(|(from, to)| names.turns(u, range, from, to));
        match u.arg() {
            Arg::Reduce(op, _) => parts.reduce(|a, b| combine(*op, &a, &b)),
            _ => Some(group(parts.collect())),
        }
        .unwrap_or_else(|| u.clone())
    }
}

/// What takes the place of ranges in parts of loops: REDUCEs that share one share its parts.
struct Names {
    id: u32,
    /// By a range and the turn at which a part of it begins.
    places: FxHashMap<(UOp, i64), FxHashMap<UOp, UOp>>,
}

impl Names {
    /// What closes the range, for these turns of it alone. What it closes, and what is closed inside, is its own.
    fn turns(&mut self, u: &UOp, range: &UOp, from: i64, to: i64) -> UOp {
        let id = &mut self.id;
        let places = self.places.entry((range.clone(), from)).or_default();
        let counter = fresh(range, kind(range), id).with_src(vec![UOp::index_const(to - from)]);
        let counter = places
            .entry(range.clone())
            .or_insert(counter + from)
            .clone();
        let body = &u.src()[0];
        let inside = body.toposort();
        let around = |n: &&UOp| closes(n) && n.ranges().contains(range);
        let nested = nested(body);
        let inner = inside.iter().filter(around).chain(&nested);
        let closed: FxHashSet<&UOp> = inner.flat_map(|u| &u.src()[1..]).collect();
        // One that ends where another one's turn says comes after that.
        for r in inside.iter().filter(|r| is_loop(r) && closed.contains(r)) {
            if !places.contains_key(r) {
                let own = fresh(&r.substitute(places), kind(r), id);
                places.insert(r.clone(), own);
            }
        }
        let own = counter.ranges();
        let place = |r: &UOp| if r == range { &own[0] } else { r }.clone();
        let closed = u.src()[1..].iter().map(place);
        let src = [body.substitute(places)].into_iter().chain(closed);
        u.with_src(src.collect::<Vec<_>>())
    }
}

/// The ENDs that an effect consists of.
fn nested(effect: &UOp) -> Vec<UOp> {
    let mut out = Vec::new();
    let mut open = vec![effect.clone()];
    while let Some(u) = open.pop() {
        match u.op() {
            Op::End => {
                open.push(u.src()[0].clone());
                out.push(u);
            }
            Op::Group => open.extend(u.src().iter().cloned()),
            _ => {}
        }
    }
    out
}

/// Whether some storage is read and written.
fn overwrites(nodes: &[&UOp]) -> bool {
    let storage = |op: Op| {
        let address = nodes.iter().filter(move |n| n.op() == op);
        address.map(|n| n.src()[0].src()[0].named())
    };
    storage(Op::Store).any(|written| storage(Op::Load).any(|read| read == written))
}

/// How many nodes these are with all their copies, of which those along the longest axis are taken for the lanes of
/// vectors. What only says where something lies is mostly known by then.
fn size(nodes: &[&UOp]) -> i64 {
    let copies = |n: &&UOp| -> i64 {
        let ranges = n.ranges();
        let unrolled = ranges.iter().filter(|r| !is_loop(r));
        let extents = unrolled.map(|r| r.vmax() + 1);
        let longest = extents.clone().max().unwrap_or(1);
        extents.product::<i64>() / longest * longest.min(VECTOR)
    };
    let places = |n: &UOp| n.op() == Op::Index || n.dtype() == DType::Index;
    let works = nodes.iter().filter(|n| !places(n));
    works.map(copies).sum()
}
