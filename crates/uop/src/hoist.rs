//! Scans that do less each time. Flows in: a graph with scans; flows out: the same values, where
//!
//! 1. what nobody takes of a scan is not computed;
//! 2. what is gathered, but does not depend on the carries, is computed for all times at once;
//! 3. a carry that stays what it is, is an argument that is the same each time;
//! 4. a carry that is a sum of what each time adds, and is read for nothing else, is one sum after the scan, over
//!    what was gathered: the gradient of a weight is one product instead of one each time that is added to it.
//!
//! The last is done where that means to move fewer bytes: what is gathered for it, beyond what is gathered anyhow,
//! is less than the sum, which each time would read and write. Of all that could be gathered it is a least cut
//! between what depends on the carries and what is added. Reductions that the scan does anyhow are not done again.
//! Sums of narrow floats stay as they are, since they round each time.

use crate::arg::{Arg, ReduceOp, ScanInfo};
use crate::cut::{NEVER, Net};
use crate::dtype::DType;
use crate::error::Result;
use crate::function::{
    abstracted_behind, each_graph, own_range, own_sources, params, remade, scan, slot, taken,
};
use crate::graph::ordered;
use crate::marks::{NodeMap, NodeSet};
use crate::node::{Srcs, UOp};
use crate::op::Op;
use crate::shape::Shape;
use crate::times::{Line, at_all, is_for_all};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::ops::Range;

/// See the module.
///
/// # Errors
/// Where the arguments of a scan do not fit its body.
pub fn hoisted(roots: &[UOp]) -> Result<Vec<UOp>> {
    each_graph(roots, lighter)
}

/// One graph, but for the bodies in it.
fn lighter(roots: &[UOp]) -> Result<Vec<UOp>> {
    let mut wanted: FxHashMap<&UOp, FxHashSet<usize>> = FxHashMap::default();
    for u in ordered(roots, own_sources) {
        if let Some((function, i)) = taken(u)
            && matches!(function.arg(), Arg::Scan(_))
        {
            wanted.entry(function).or_default().insert(i);
        }
    }
    let mut lighter: FxHashMap<&UOp, Lighter> = FxHashMap::default();
    for (function, wanted) in &wanted {
        if let Arg::Scan(info) = function.arg() {
            lighter.extend(Lighter::of(&function.src()[0], info, wanted)?.map(|l| (*function, l)));
        }
    }
    if lighter.is_empty() {
        return Ok(roots.to_vec());
    }
    let mut values: FxHashMap<UOp, Vec<Option<UOp>>> = FxHashMap::default();
    remade(roots, own_range, |u, src| {
        if let Some(lighter) = lighter.get(u) {
            values.insert(u.clone(), lighter.values(&src[1..], u.src()[0].src())?);
            return Ok(u.clone());
        }
        let known = taken(u).and_then(|(f, i)| values.get(f)?.get(i)?.clone());
        known.map_or_else(|| u.try_with_src(src), Ok)
    })
}

/// A scan that does less.
struct Lighter {
    body: UOp,
    info: ScanInfo,
    /// The arguments that are left, by number.
    arguments: Vec<usize>,
    /// The arguments of the one before that were its slices.
    slices: Range<usize>,
    /// The PARAMs of the body before, each with its number.
    params: Vec<(UOp, usize)>,
    /// What is gathered, and the value that it is.
    gathered: Vec<(UOp, usize)>,
    /// The values of the one before.
    values: Vec<How>,
}

/// What a value of a scan has become.
#[derive(Clone)]
enum How {
    /// Nobody takes it.
    Nothing,
    /// This one.
    Value(usize),
    /// It is the argument.
    Argument,
    /// It is computed for all times at once.
    Each,
    /// These are added to the argument, for all times.
    Sum(Vec<UOp>),
}

impl Lighter {
    /// What is left of a scan of which these values are wanted; None where that is all.
    fn of(body: &UOp, info: &ScanInfo, wanted: &FxHashSet<usize>) -> Result<Option<Lighter>> {
        let values = body.src();
        let own: Vec<(UOp, usize)> = params(body)
            .into_iter()
            .filter_map(|p| Some((slot(&p)?, p)))
            .map(|(k, p)| (p, k))
            .collect();
        let live = live(values, info, wanted, &own);
        let step = Step::new(values, info, &own, &live);
        let mut how: Vec<How> = vec![How::Nothing; values.len()];
        let mut gathered: Vec<UOp> = Vec::new();
        let mut carries: Vec<usize> = Vec::new();
        let mut sums: Vec<usize> = Vec::new();
        for &i in &live {
            match i < info.carries {
                true if is_still(values, i, &own) => how[i] = How::Argument,
                true if step.added[i].is_some() => sums.push(i),
                true => carries.push(i),
                false if step.is_free(&values[i]) => how[i] = How::Each,
                false => gathered.push(values[i].clone()),
            }
        }
        sums.sort_by_key(|&i| (Reverse(bytes(&values[i])), i));
        for i in sums {
            let terms = step.added[i].clone().unwrap_or_default();
            match step.cut(&terms, &gathered, bytes(&values[i])) {
                Some(more) => {
                    gathered.extend(more);
                    how[i] = How::Sum(terms);
                }
                None => carries.push(i),
            }
        }
        carries.sort();
        let is_all =
            carries.len() == info.carries && gathered.len() + carries.len() == values.len();
        if is_all {
            return Ok(None);
        }
        let mut next: Vec<UOp> = Vec::new();
        for (k, &i) in carries.iter().enumerate() {
            how[i] = How::Value(k);
            next.push(values[i].clone());
        }
        let mut place: Vec<(UOp, usize)> = Vec::new();
        for u in gathered {
            if !place.iter().any(|(known, _)| *known == u) {
                place.push((u.clone(), next.len()));
                next.push(u);
            }
        }
        for &i in live.iter().filter(|i| **i >= info.carries) {
            if let (How::Nothing, Some((_, at))) =
                (&how[i], place.iter().find(|(u, _)| *u == values[i]))
            {
                how[i] = How::Value(*at);
            }
        }
        let slices = info.carries..info.carries + info.slices;
        let read: NodeSet = set(&next);
        let param = |k: usize| own.iter().find(|(_, slot)| *slot == k).map(|(p, _)| p);
        let mut first: Vec<UOp> = Vec::new();
        let mut arguments: Vec<usize> = Vec::new();
        for &k in &carries {
            let like = &values[k];
            let fresh = || UOp::param(k as u64, like.shape(), like.dtype(), like.device());
            first.push(param(k).cloned().unwrap_or_else(fresh));
            arguments.push(k);
        }
        for k in slices.clone() {
            if let Some(p) = param(k).filter(|p| read.contains(p)) {
                first.push(p.clone());
                arguments.push(k);
            }
        }
        let named: Vec<UOp> = own.iter().map(|(p, _)| p.clone()).collect();
        let made = abstracted_behind(&first, &next, &named)?;
        let info = ScanInfo {
            carries: carries.len(),
            slices: first.len() - carries.len(),
            ..*info
        };
        arguments.extend(made.arguments[first.len()..].iter().filter_map(slot));
        Ok(Some(Lighter {
            body: made.body,
            info,
            arguments,
            slices,
            params: own,
            gathered: place,
            values: how,
        }))
    }

    /// The values over these arguments.
    fn values(&self, arguments: &[UOp], values: &[UOp]) -> Result<Vec<Option<UOp>>> {
        let length = self.info.length;
        let taken: Vec<UOp> = self
            .arguments
            .iter()
            .map(|&k| arguments[k].clone())
            .collect();
        let left = match self.body.src().is_empty() {
            true => Vec::new(),
            false => scan(&self.body, &taken, self.info)?,
        };
        let mut known: FxHashMap<UOp, Line> = FxHashMap::default();
        for (p, k) in &self.params {
            let argument = arguments[*k].clone();
            known.insert(
                p.clone(),
                match self.slices.contains(k) {
                    true => Line::Each(argument),
                    false => Line::Same(argument),
                },
            );
        }
        for (u, at) in &self.gathered {
            known.insert(u.clone(), Line::Each(left[*at].clone()));
        }
        let value = |(i, how): (usize, &How)| -> Result<Option<UOp>> {
            Ok(match how {
                How::Nothing => None,
                How::Value(k) => Some(left[*k].clone()),
                How::Argument => Some(arguments[i].clone()),
                How::Each => {
                    let line = at_all(std::slice::from_ref(&values[i]), &known, length)?.remove(0);
                    Some(line.each(length)?)
                }
                How::Sum(terms) => {
                    let begin = &arguments[i];
                    let mut sum = Some(begin.clone()).filter(|b| !is_zero(b));
                    for term in terms {
                        let part = summed(term, &known, length)?;
                        // A number that is added to every element.
                        let part = match part.shape().is_empty() {
                            true => part.broadcast(begin.shape()),
                            false => part,
                        };
                        sum = Some(sum.map_or(part.clone(), |s| s + part));
                    }
                    sum
                }
            })
        };
        self.values.iter().enumerate().map(value).collect()
    }
}

/// The values that are wanted, and the carries that these take, in order.
fn live(
    values: &[UOp],
    info: &ScanInfo,
    wanted: &FxHashSet<usize>,
    own: &[(UOp, usize)],
) -> Vec<usize> {
    let mut live: Vec<usize> = wanted.iter().copied().collect();
    let mut seen = NodeSet::new();
    let mut at = 0;
    while at < live.len() {
        let i = live[at];
        at += 1;
        let open = |u: &UOp| !seen.contains(u);
        let nodes: Vec<&UOp> = match open(&values[i]) {
            true => ordered(std::slice::from_ref(&values[i]), own_sources),
            false => Vec::new(),
        };
        for u in nodes {
            if seen.insert(u)
                && u.op() == Op::Param
                && let Some((_, k)) = own.iter().find(|(p, _)| p == u)
                && *k < info.carries
                && !live.contains(k)
            {
                live.push(*k);
            }
        }
    }
    live.sort();
    live
}

/// Whether a carry is the same each time.
fn is_still(values: &[UOp], carry: usize, own: &[(UOp, usize)]) -> bool {
    own.iter().any(|(p, k)| *k == carry && *p == values[carry])
}

fn set(roots: &[UOp]) -> NodeSet<'_> {
    let mut set = NodeSet::new();
    for u in ordered(roots, own_sources) {
        set.insert(u);
    }
    set
}

/// What is known of the nodes of one time.
struct Step<'a> {
    /// For each carry what is added to it, where it is a sum of that and nothing else reads it.
    added: Vec<Option<Vec<UOp>>>,
    /// For each node that differs from time to time whether it can be had for all times at once without a thing
    /// being gathered.
    free: NodeMap<&'a UOp, bool>,
    /// The reductions that are done each time, whatever becomes of sums.
    kept: NodeSet<'a>,
}

impl<'a> Step<'a> {
    fn new(values: &'a [UOp], info: &ScanInfo, own: &[(UOp, usize)], live: &[usize]) -> Step<'a> {
        let number: FxHashMap<&UOp, usize> = own.iter().map(|(p, k)| (p, *k)).collect();
        let mut users: FxHashMap<&UOp, usize> = FxHashMap::default();
        let nodes = ordered(values, own_sources);
        let mut wanted = NodeSet::new();
        for &i in live {
            *users.entry(&values[i]).or_default() += 1;
            for u in ordered(std::slice::from_ref(&values[i]), own_sources) {
                if wanted.insert(u) {
                    for s in own_sources(u) {
                        *users.entry(s).or_default() += 1;
                    }
                }
            }
        }
        let mut added: Vec<Option<Vec<UOp>>> = vec![None; info.carries];
        for (p, k) in own.iter().filter(|(_, k)| live.contains(k)) {
            if *k < info.carries && sums_well(values[*k].dtype()) {
                added[*k] = terms(&values[*k], p, &users);
            }
        }
        let firm = |i: &&usize| added.get(**i).is_none_or(Option::is_none);
        let mut varies = NodeSet::new();
        let mut carried = NodeSet::new();
        for &u in &nodes {
            let own = number
                .get(u)
                .filter(|k| **k >= info.carries || *u != values[**k]);
            let slot = own.copied().unwrap_or(usize::MAX);
            let sources = own_sources(u);
            if slot < info.carries || sources.iter().any(|s| carried.contains(s)) {
                carried.insert(u);
            }
            if slot < info.carries + info.slices || sources.iter().any(|s| varies.contains(s)) {
                varies.insert(u);
            }
        }
        // What is gathered stays within the scan only where it depends on a carry.
        let mut kept = NodeSet::new();
        let stays = |i: &&usize| **i < info.carries || carried.contains(&values[**i]);
        for &i in live.iter().filter(firm).filter(stays) {
            for u in ordered(std::slice::from_ref(&values[i]), own_sources) {
                if u.op() == Op::Reduce {
                    kept.insert(u);
                }
            }
        }
        let mut free: NodeMap<&UOp, bool> = NodeMap::new();
        for &u in &nodes {
            if !varies.contains(u) {
                continue;
            }
            let slice = number.contains_key(u);
            let sources = || own_sources(u).iter().all(|s| free.get(s) != Some(&false));
            let is_free = match carried.contains(u) {
                true => false,
                false => slice || is_for_all(u) && !kept.contains(u) && sources(),
            };
            free.insert(u, is_free);
        }
        Step { added, free, kept }
    }

    /// Whether a value can be had for all times at once.
    fn is_free(&self, u: &UOp) -> bool {
        self.free.get(u) != Some(&false)
    }

    /// What is gathered besides for these terms; None where that is as much as the bytes of their sum.
    fn cut(&self, terms: &[UOp], gathered: &[UOp], sum: i64) -> Option<Vec<UOp>> {
        let mut nodes = ordered(terms, |u| match self.is_free(u) {
            true => &[],
            false => own_sources(u),
        });
        nodes.retain(|u| !self.is_free(u));
        let number: FxHashMap<&UOp, usize> = nodes.iter().copied().zip(0..).collect();
        let mut net = Net::new(nodes.len());
        for (v, u) in nodes.iter().enumerate() {
            let cost = match (gathered.contains(u), u.op().is_movement()) {
                (true, _) => 1,
                (false, true) => bytes(u).saturating_mul(2),
                (false, false) => bytes(u),
            };
            net.edge(Net::enters(v), Net::leaves(v), cost.clamp(1, NEVER / 2));
            let inside = self.kept.contains(u) || !is_for_all(u);
            if inside {
                net.edge(Net::FROM, Net::enters(v), NEVER);
                continue;
            }
            for s in own_sources(u).iter().filter_map(|s| number.get(s)) {
                net.edge(Net::leaves(*s), Net::enters(v), NEVER);
            }
        }
        for t in terms.iter().filter_map(|t| number.get(t)) {
            net.edge(Net::leaves(*t), Net::TO, NEVER);
        }
        let cut = nodes.iter().zip(net.cut()).filter(|(_, is)| *is);
        let more: Vec<UOp> = cut
            .map(|(u, _)| (*u).clone())
            .filter(|u| !gathered.contains(u))
            .collect();
        let cost = more.iter().fold(0i64, |n, u| n.saturating_add(bytes(u)));
        let fits = more.iter().all(|u| u.shape().ints().is_some());
        (fits && (more.is_empty() || cost < sum)).then_some(more)
    }
}

/// What is added to a PARAM, where a value is that and nothing else reads the PARAM, or a sum on the way.
fn terms(value: &UOp, param: &UOp, users: &FxHashMap<&UOp, usize>) -> Option<Vec<UOp>> {
    let once = |u: &UOp| users.get(u) == Some(&1);
    let mut reaches = NodeSet::new();
    for u in ordered(std::slice::from_ref(value), own_sources) {
        if u == param || own_sources(u).iter().any(|s| reaches.contains(s)) {
            reaches.insert(u);
        }
    }
    let mut terms = Vec::new();
    let mut u = value;
    while u != param {
        let (Op::Add, [a, b]) = (u.op(), u.src()) else {
            return None;
        };
        let (next, term) = match (reaches.contains(a), reaches.contains(b)) {
            (true, false) => (a, b),
            (false, true) => (b, a),
            _ => return None,
        };
        if !once(u) || !once(next) {
            return None;
        }
        terms.push(term.clone());
        u = next;
    }
    (!terms.is_empty()).then_some(terms)
}

/// Whether sums of this dtype may be regrouped.
fn sums_well(dtype: DType) -> bool {
    dtype.is_int() || dtype.is_float() && dtype.bytes() >= 4
}

/// The sum of a node over all times.
fn summed(term: &UOp, known: &FxHashMap<UOp, Line>, length: i64) -> Result<UOp> {
    // A sum over the times goes below what only moves elements, to a sum that it becomes one with.
    let mut views: Vec<&UOp> = Vec::new();
    let mut u = term;
    let moves = |u: &UOp| {
        let moves = matches!(u.op(), Op::Reshape | Op::Permute | Op::Flip | Op::Expand);
        moves && !known.contains_key(u)
    };
    while moves(u) {
        views.push(u);
        u = &u.src()[0];
    }
    let line = at_all(std::slice::from_ref(u), known, length)?.remove(0);
    let mut sum = match line {
        Line::Same(u) => &u * &u.like(length),
        Line::Each(all) => {
            let own = Shape::new(all.shape()[1..].iter().cloned());
            all.reduce(ReduceOp::Add, &[0])?.reshape(&own)?
        }
    };
    for view in views.into_iter().rev() {
        // Sizes are those of what is around, as what is summed is.
        let mut src = Srcs::from(&[sum][..]);
        for size in at_all(&view.src()[1..], known, length)? {
            let (Line::Same(u) | Line::Each(u)) = size;
            src.push(u);
        }
        sum = view.try_with_src(src)?;
    }
    Ok(sum)
}

/// Whether all elements are 0.
fn is_zero(u: &UOp) -> bool {
    let mut u = u;
    while matches!(u.op(), Op::Reshape | Op::Expand) {
        u = &u.src()[0];
    }
    u.const_value().is_some_and(|v| v.is_zero())
}

/// How many bytes a node has each time; more than anything where they vary.
fn bytes(u: &UOp) -> i64 {
    let elements = u.shape().ints().map(|n| n.iter().product::<i64>());
    elements.map_or(NEVER, |n| n.saturating_mul(u.dtype().bytes() as i64))
}
