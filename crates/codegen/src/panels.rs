//! Rows that are far from each other are asked for before they are read. Flows in: a LINEAR; flows out: the same list,
//! where loops that only copy rows of storage to LOCAL storage, and loops over long parts of rows, ask for the lines of a
//! later row while they read one: by a LOAD whose place is LOCAL, and whose value nobody needs. Invariant: no value is
//! another one.
//!
//! What a core fetches ahead by itself goes on where the last row ended, so every row of a panel, and every part of a row
//! that others have the rest of, would begin with a wait.

use crate::asks::{
    Asks, LEAST, LINE, Later, Loop, NEXT, Turned, UNDER_WAY, at_turn, copies, is_far,
};
use crate::graph::node;
use crate::meanwhile;
use crate::streams::place;
use monoglot_uop::linear::address;
use monoglot_uop::{Op, Target, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Most turns between asking and reading.
const TURNS: i128 = 32;
/// Most turns of a loop over vectors of rows around that along them.
const FEW: i128 = 4;
/// Fewest turns over a row that is not copied but worked with.
const LONG: i128 = 16;

/// A LOAD of a part of a row.
struct Part<'a> {
    /// Its place in the list.
    at: usize,
    load: &'a UOp,
    /// The loop over rows, and the elements from a row to the next one.
    over: (Loop, &'a UOp),
    step: i128,
    /// Bytes of the storage.
    size: i128,
    /// Turns of the loop over the row, and the place before that loop, or else of the LOAD.
    turns: i128,
    before: usize,
    /// Turns of a loop around that one, over vectors of rows.
    beside: i128,
    /// The loop over the row, where there is one.
    inside: Option<&'a UOp>,
}

/// Have rows asked for while others are copied.
pub(crate) fn ask(linear: UOp, target: &Target) -> UOp {
    let (linear, copied) = meanwhile::ask(linear, target);
    let mut parts = parts(linear.src(), target);
    parts.retain(|p| !copied.contains(p.inside.unwrap_or(p.over.1)));
    if parts.is_empty() {
        return linear;
    }
    let mut asks = Asks::of(linear.src());
    for rows in parts.chunk_by(|a, b| a.over.0 == b.over.0) {
        let row: i128 = rows.iter().map(|p| p.turns * p.beside * LINE).sum();
        let ahead = (UNDER_WAY / row).clamp(1, TURNS);
        if 2 * ahead * row > target.caches[1] as i128 {
            continue;
        }
        let mut turned = FxHashMap::default();
        for part in rows {
            if let Some(later) = part.later(ahead, &mut turned) {
                let inside = part.inside.map_or(part.over.0, |_| part.before + 1);
                asks.add(later, inside, part.before, part.at);
            }
        }
    }
    asks.put(&linear)
}

/// The parts of rows that are copied, one for each line.
fn parts<'a>(list: &'a [UOp], target: &Target) -> Vec<Part<'a>> {
    let mut open: Vec<(Loop, &UOp)> = Vec::new();
    let mut parts: Vec<Part> = Vec::new();
    // Where the innermost loop began, the parts before it, and whether it only copies.
    let mut innermost = None;
    let mut lines = FxHashSet::default();
    for (at, u) in list.iter().enumerate() {
        match u.op() {
            Op::Range => {
                open.push((at, u));
                innermost = Some((at, parts.len(), true));
            }
            Op::If | Op::EndIf | Op::AtomicAdd => {
                if let Some((_, before, false)) = innermost.take() {
                    parts.truncate(before);
                }
            }
            Op::Store if !copies(u) => {
                if let Some((_, _, only_copies)) = &mut innermost {
                    *only_copies = false;
                }
            }
            Op::Load if innermost.is_some() => {
                if let Some((part, line)) = Part::of(at, u, &open, target)
                    && lines.insert(line)
                {
                    parts.push(part);
                }
            }
            Op::End => {
                open.pop();
                if let Some((_, before, false)) = innermost.take() {
                    let long = |p: &Part| p.inside.is_some() && p.turns >= LONG;
                    let far = |p: &Part| 2 * p.size > target.caches[2] as i128;
                    if !parts[before..].iter().all(|p| long(p) && far(p)) {
                        parts.truncate(before);
                    }
                }
            }
            _ => {}
        }
    }
    parts
}

/// What a line is known by: the innermost loop, what its place is but for a constant, and its number.
type Line = (Loop, Vec<(usize, i128)>, i128);

impl<'a> Part<'a> {
    /// One of a row of storage that the second cache does not hold, and its line.
    fn of(
        at: usize,
        load: &'a UOp,
        open: &[(Loop, &'a UOp)],
        target: &Target,
    ) -> Option<(Part<'a>, Line)> {
        let a = address(&load.src()[0])?;
        let bytes = a.buffer.dtype().bytes() as i128;
        let size = a.buffer.shape().max_len() as i128 * bytes;
        if !is_far(a.buffer, target) || (a.lanes as i128 * bytes) < LEAST {
            return None;
        }
        let place = place(a.index)?;
        let step = |l: &(Loop, &UOp)| place.terms.iter().find(|t| t.0 == *l.1).map(|t| t.1);
        let along = |l: &(Loop, &UOp)| step(l).is_some_and(|n| n.abs() * bytes <= NEXT * LINE);
        let inside = open.last()?;
        let next = step(inside)?;
        let row = along(inside);
        let count = |l: &(Loop, &UOp)| l.1.vmax() as i128 + 1;
        let around = || open.iter().rev().skip(1);
        // Rows of a few vectors, which the loop around them goes on with: those of its next turn.
        let beside = around().next().filter(|l| row && count(l) <= FEW);
        let goes_on = |l: &&(Loop, &UOp)| {
            let outer = around().nth(1).and_then(step);
            outer.is_some() && outer == step(l).map(|n| n * count(l))
        };
        let beside = beside.filter(goes_on);
        let over = match row {
            true => *around().nth(usize::from(beside.is_some()))?,
            false => *inside,
        };
        let (turns, before) = match row {
            true => (count(inside), inside.0 - 1),
            false => (1, at),
        };
        let beside = beside.map_or(1, count);
        let step = step(&over)?;
        // Rows that follow each other are one.
        let apart = step != next * turns;
        let mut known = vec![(a.buffer.address(), 0)];
        known.extend(place.terms.iter().map(|t| (t.0.address(), t.1)));
        let line = (inside.0, known, place.constant * bytes / LINE);
        (apart || !row).then_some((
            Part {
                at,
                load,
                over,
                step,
                size,
                turns,
                before,
                beside,
                inside: row.then_some(inside.1),
            },
            line,
        ))
    }

    /// What asks for the same element so many rows later. None where whether it is read depends on more than the row.
    fn later(&self, rows: i128, turned: &mut Turned) -> Option<Later> {
        let (_, range) = self.over;
        let Some(own) = self.load.src().get(2) else {
            return match self.inside {
                Some(inside) => Later::in_turn(self.load, range, rows, inside, turned),
                None => Later::of(self.load, range, self.step, rows, None),
            };
        };
        let number = UOp::int(rows as i64, range.dtype());
        let row = node(Op::Add, [range.clone(), number.clone()]);
        let condition = self.at_row(own, &row)?;
        let mut later = Later::of(self.load, range, self.step, rows, Some(&condition))?;
        let known = own.toposort();
        let parts = condition.toposort().into_iter();
        let parts = parts.filter(|u| u.op() != Op::Const && !known.contains(u));
        later.gate = parts.chain(later.gate).collect();
        later.numbers.push(number);
        Some(later)
    }

    /// A condition that the loops over the row leave as it is, for another row.
    fn at_row(&self, condition: &UOp, row: &UOp) -> Option<UOp> {
        let range = self.over.1;
        let nodes = condition.toposort();
        let plain = |u: &UOp| {
            u.op().is_elementwise() || matches!(u.op(), Op::Const | Op::Range | Op::Special)
        };
        let inner = |u: &UOp| u.op() == Op::Range && self.inside == Some(u);
        if !condition.shape().is_empty() || nodes.iter().any(|u| !plain(u) || inner(u)) {
            return None;
        }
        at_turn(condition, range, row.clone())
    }
}
