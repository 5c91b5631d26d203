//! Ranges in the shape that loops like: one that is only used in parts is split where it is divided,
//! neighbours that every index walks as one are merged. Flows in and out: a kernel of one store.

use monoglot_uop::marks::NodeMap;
use monoglot_uop::rules::Affine;
use monoglot_uop::{AxisType, Op, Result, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// The kernel with one range split or two merged; None where there is nothing to do.
pub(super) fn reshape(sink: &UOp) -> Result<Option<UOp>> {
    let nodes = sink.toposort();
    if let Some(next) = split(sink, &nodes) {
        return Ok(Some(next));
    }
    Ok(merge(sink, &nodes))
}

/// Split every range that is divided by (or taken modulo) a divisor of its extent.
fn split(sink: &UOp, nodes: &[UOp]) -> Option<UOp> {
    let mut cut: Vec<(UOp, i64)> = Vec::new();
    for u in nodes {
        let (Op::Idiv | Op::Mod, [r, c]) = (u.op(), u.src()) else {
            continue;
        };
        let (Op::Range, Some(c)) = (r.op(), c.as_int()) else {
            continue;
        };
        let Some(n) = r.src()[0].as_int() else {
            continue;
        };
        if c <= 1 || n % c != 0 || c >= n {
            continue;
        }
        match cut.iter_mut().find(|(x, _)| x == r) {
            // The finest cut first; coarser ones follow in the next round.
            Some((_, best)) => *best = c.min(*best),
            None => cut.push((r.clone(), c)),
        }
    }
    if cut.is_empty() {
        return None;
    }
    let mut next = unused_number(nodes);
    let mut values = FxHashMap::default();
    let mut parts = FxHashMap::default();
    for (r, c) in cut {
        let n = r.src()[0].as_int()?;
        let t = r.range_arg()?.1;
        let outer = UOp::range(n / c, next, t);
        let inner = UOp::range(c, next + 1, t);
        next += 2;
        values.insert(r.clone(), &outer * c + &inner);
        parts.insert(r, vec![outer, inner]);
    }
    Some(replace(sink, &values, &parts))
}

/// The first number after those of all ranges.
pub(super) fn unused_number(nodes: &[UOp]) -> u32 {
    let used = nodes.iter().filter_map(|u| u.range_arg());
    used.map(|(id, _)| id + 1).max().unwrap_or(0)
}

/// Put values in place of ranges, and in the lists of what END and REDUCE close the new ranges.
pub(super) fn replace(
    sink: &UOp,
    values: &FxHashMap<UOp, UOp>,
    parts: &FxHashMap<UOp, Vec<UOp>>,
) -> UOp {
    sink.rebuild(
        values,
        |_| true,
        |u, src| {
            if !matches!(u.op(), Op::End | Op::Reduce) {
                return u.with_src(src);
            }
            let mut closing = vec![src[0].clone()];
            for r in &u.src()[1..] {
                for new in parts.get(r).map_or(std::slice::from_ref(r), |p| p) {
                    if !closing[1..].contains(new) {
                        closing.push(new.clone());
                    }
                }
            }
            u.with_src(closing)
        },
    )
}

/// Merge one pair of neighbours that every index walks as `a·n + b`.
fn merge(sink: &UOp, nodes: &[UOp]) -> Option<UOp> {
    let mut pairs: Vec<(UOp, UOp)> = Vec::new();
    for u in nodes
        .iter()
        .filter(|u| matches!(u.op(), Op::End | Op::Reduce))
    {
        for w in u.src()[1..].windows(2) {
            let pair = (w[0].clone(), w[1].clone());
            if !pairs.contains(&pair) {
                pairs.push(pair);
            }
        }
    }
    let reads = nodes.iter().filter(|u| u.op() == Op::Index);
    let indices = reads
        .map(|u| Affine::of(&u.src()[1]))
        .collect::<Option<Vec<_>>>()?;
    pairs.retain(|(a, b)| mergeable(a, b, nodes, &indices));
    let (a, b) = pairs.into_iter().next()?;
    let na = a.src()[0].as_int()?;
    let nb = b.src()[0].as_int()?;
    let t = a.range_arg()?.1;
    let merged = UOp::range(na.checked_mul(nb)?, unused_number(nodes), t);
    let values = FxHashMap::from_iter([(a.clone(), &merged / nb), (b.clone(), &merged % nb)]);
    let parts = FxHashMap::from_iter([(a, vec![merged.clone()]), (b, vec![merged])]);
    Some(replace(sink, &values, &parts))
}

fn mergeable(a: &UOp, b: &UOp, nodes: &[UOp], indices: &[Affine]) -> bool {
    let (Some((_, t)), Some((_, s))) = (a.range_arg(), b.range_arg()) else {
        return false;
    };
    let Some(n) = b.src()[0].as_int() else {
        return false;
    };
    if t != s || a == b || !matches!(t, AxisType::Loop | AxisType::Reduce) {
        return false;
    }
    let coefficient = |l: &Affine, r: &UOp| {
        let term = l.terms.iter().find(|(x, _)| x == r);
        term.map_or(0, |(_, k)| *k)
    };
    let walks_as_one = |l: &Affine| coefficient(l, a) == i128::from(n) * coefficient(l, b);
    if !indices.iter().all(walks_as_one) {
        return false;
    }
    // Every use is one of those terms: a sum in an index, a product with a constant in such a sum, or
    // the list of what is closed (where both stand side by side).
    let plain = plain_users(nodes);
    for u in nodes {
        for (i, s) in u.src().iter().enumerate() {
            if s != a && s != b {
                continue;
            }
            let fine = match u.op() {
                Op::End | Op::Reduce if i > 0 => {
                    u.src().windows(2).any(|w| w[0] == *a && w[1] == *b)
                }
                _ => plain.contains(u),
            };
            if !fine {
                return false;
            }
        }
    }
    true
}

/// Nodes used only as the index of a buffer, or as a term of one.
fn plain_users(nodes: &[UOp]) -> FxHashSet<&UOp> {
    let mut users: NodeMap<&UOp, Vec<&UOp>> = NodeMap::new();
    for u in nodes {
        for s in u.src() {
            users.get_or_insert_with(s, Vec::new).push(u);
        }
    }
    let mut plain: FxHashSet<&UOp> = FxHashSet::default();
    for u in nodes.iter().rev() {
        let all =
            |fine: &dyn Fn(&UOp) -> bool| users.get(u).is_some_and(|l| l.iter().all(|x| fine(x)));
        let ok = match u.op() {
            Op::Index => true,
            Op::Add => all(&|x| plain.contains(x)),
            Op::Mul if u.src()[1].as_int().is_some() => {
                all(&|x| x.op() == Op::Add && plain.contains(x) || x.op() == Op::Index)
            }
            _ => false,
        };
        if ok {
            plain.insert(u);
        }
    }
    plain
}
