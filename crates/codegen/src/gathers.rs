//! Rows at places that come from data are asked for before they are read. Flows in: a LINEAR; flows out: the same
//! list, where a loop that reads a row at a place which its turn reads elsewhere (an embedding's id) reads the place of
//! a later turn, too, and asks for the lines of that row: by a LOAD whose place is LOCAL, and whose value nobody
//! needs. Invariant: no value is another one.
//!
//! What a core fetches ahead by itself goes on where the last row ended, so every row would begin with a wait.

use crate::asks::{LINE, Loop, UNDER_WAY, asking, insert, plain};
use crate::graph::node;
use monoglot_uop::linear::address;
use monoglot_uop::marks::NodeMap;
use monoglot_uop::rules::Affine;
use monoglot_uop::{Arg, DType, Op, Target, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Most turns between asking and reading.
const TURNS: i128 = 16;
/// Most nodes that lead to a place.
const NODES: usize = 64;

/// A LOAD of a part of a row.
struct Part<'a> {
    /// Its place in the list.
    at: usize,
    load: &'a UOp,
    /// The turns of the loops over the row.
    turns: i128,
    /// What leads from the places that are read to its own.
    cone: FxHashSet<&'a UOp>,
    places: Vec<&'a UOp>,
}

/// Have rows asked for while others are read.
pub(crate) fn ask(linear: UOp, target: &Target) -> UOp {
    let list = linear.src();
    if !list.iter().any(|u| is_far(u, target)) {
        return linear;
    }
    let mut after: FxHashMap<usize, Vec<UOp>> = FxHashMap::default();
    let mut numbers: Vec<UOp> = Vec::new();
    let rows = rows(list, target).into_iter();
    for (at, node) in rows
        .flat_map(|(over, parts)| asked(list, over, &parts, target))
        .flatten()
    {
        match at {
            Some(at) => after.entry(at).or_default().push(node),
            None => numbers.push(node),
        }
    }
    insert(linear, numbers, after)
}

/// Whether this is storage that the last cache does not hold.
fn is_far(u: &UOp, target: &Target) -> bool {
    let elements = || u.shape().max_ints().iter().product::<i64>() as i128;
    u.op() == Op::Param && elements() * u.dtype().bytes() as i128 > target.caches[2] as i128
}

/// The parts of rows, one for each line, by the loop over the rows.
fn rows<'a>(list: &'a [UOp], target: &Target) -> BTreeMap<Loop, Vec<Part<'a>>> {
    let mut open: Vec<(Loop, &UOp)> = Vec::new();
    let mut rows: BTreeMap<Loop, Vec<Part>> = BTreeMap::new();
    let mut lines = FxHashSet::default();
    for (at, load) in list.iter().enumerate() {
        match load.op() {
            Op::Range => open.push((at, load)),
            Op::End => drop(open.pop()),
            _ => {}
        }
        if let Some((over, part, line)) = Part::of(at, load, &open, target)
            && lines.insert(line)
        {
            rows.entry(over).or_default().push(part);
        }
    }
    rows
}

impl<'a> Part<'a> {
    /// One of a row that is read in a loop of its own, the loop over such rows, and what its line is known by.
    #[allow(clippy::type_complexity)]
    fn of(
        at: usize,
        load: &'a UOp,
        open: &[(Loop, &'a UOp)],
        target: &Target,
    ) -> Option<(Loop, Part<'a>, (Loop, Vec<(usize, i128)>, i128))> {
        let a = address(load.src().first().filter(|_| load.op() == Op::Load)?)?;
        let from = Some(a.buffer).filter(|b| is_far(b, target))?;
        // Of lanes that are each asked whether they are there, no line is.
        let own = load.src().get(2);
        if own.is_some_and(|gate| !gate.shape().is_empty()) {
            return None;
        }
        let bytes = from.dtype().bytes() as i128;
        let mut cone: FxHashSet<&UOp> = FxHashSet::default();
        let mut places = Vec::new();
        let mut stack = vec![a.index];
        stack.extend(own);
        while let Some(u) = stack.pop() {
            match u.op() {
                _ if !cone.insert(u) => {}
                Op::Load => places.push(u),
                _ => stack.extend(u.src()),
            }
        }
        let around = |place: &&UOp| {
            let (_, _, index) = plain(place).filter(|_| place.shape().is_empty())?;
            let reads = |l: &&(Loop, &'a UOp)| index.terms.iter().any(|t| t.0 == *l.1);
            open.iter().rev().find(reads).copied()
        };
        let (over, outer) = around(places.first()?)?;
        let inside = open.last().filter(|l| l.0 != over)?.0;
        let one = places.iter().all(|p| around(p) == Some((over, outer)));
        if !one || cone.len() > NODES || cone.contains(outer) {
            return None;
        }
        let within = open.iter().filter(|l| l.0 > over);
        let part = Part {
            at,
            load,
            turns: within.map(|l| l.1.vmax() as i128 + 1).product(),
            cone,
            places,
        };
        let mut place = Affine::number(DType::Index, 0);
        place.add(a.index, 1)?;
        let mut known = vec![(from.address(), 0)];
        known.extend(place.terms.iter().map(|t| (t.0.address(), t.1)));
        Some((over, part, (inside, known, place.constant * bytes / LINE)))
    }
}

/// What is put behind which instruction (constants: before all) for these parts of a loop's rows; None where the
/// second cache does not hold what is under way, or where a part of it is computed already.
fn asked(
    list: &[UOp],
    over: Loop,
    parts: &[Part],
    target: &Target,
) -> Option<Vec<(Option<usize>, UOp)>> {
    let range = &list[over];
    let row: i128 = parts.iter().map(|p| p.turns.saturating_mul(LINE)).sum();
    let turns = (UNDER_WAY / row.max(1)).clamp(1, TURNS);
    let end = range.vmax() as i128 + 1 - turns;
    if end <= 0 || row.saturating_mul(2 * turns) > target.caches[1] as i128 {
        return None;
    }
    let end = UOp::int(end as i64, range.dtype());
    let there = node(Op::CmpLt, [range.clone(), end.clone()]);
    let mut new = vec![(None, end), (Some(over), there.clone())];
    let mut later: NodeMap<&UOp, UOp> = NodeMap::new();
    for part in parts {
        let begin = new.len();
        for (at, u) in list.iter().enumerate().take(part.at).skip(over) {
            if !part.cone.contains(u) || later.contains_key(u) {
                continue;
            }
            let next = if part.places.contains(&u) {
                let a = address(&u.src()[0])?;
                let (_, _, place) = plain(u)?;
                let step = place.terms.iter().find(|t| t.0 == *range)?.1 * turns;
                let by = UOp::int(step as i64, a.index.dtype());
                let index = node(Op::Add, [a.index.clone(), by.clone()]);
                if index.bounds().0 as i128 != a.index.bounds().0 as i128 + step {
                    return None;
                }
                let from = a.buffer.at(std::slice::from_ref(&index));
                let (read, zero) = asking(&from, &there);
                new.extend([(None, by), (None, zero)]);
                new.extend([(Some(at), index), (Some(at), from)]);
                read.with_arg(Arg::None)
            } else if u.src().iter().any(|s| later.contains_key(s)) {
                let of = |s: &UOp| later.get(s).unwrap_or(s).clone();
                u.with_src(u.src().iter().map(of).collect::<Vec<_>>())
            } else {
                continue;
            };
            new.push((Some(at), next.clone()));
            later.insert(u, next);
        }
        let a = address(&part.load.src()[0])?;
        let mut gate = there.clone();
        if let Some(own) = part.load.src().get(2) {
            let own = later.get(own).unwrap_or(own).clone();
            gate = node(Op::And, [own, there.clone()]);
            new.push((Some(part.at), gate.clone()));
        }
        let to = a.buffer.at(std::slice::from_ref(later.get(a.index)?));
        let (line, zero) = asking(&to, &gate);
        new.extend([(None, zero), (Some(part.at), to), (Some(part.at), line)]);
        let known = |n: &(Option<usize>, UOp)| n.0.is_some() && list.contains(&n.1);
        if new[begin..].iter().any(known) {
            return None;
        }
    }
    Some(new)
}
