//! Smaller programs that fail as a program does. Flows in: a program and what says whether one fails; flows out: one
//! that fails and of which no part can be taken. Invariant: only what the verifier takes is tried.

use super::maker::{Made, record};
use monoglot_uop::linear::{address, lanes};
use monoglot_uop::spec::verify_linear;
use monoglot_uop::{Arg, Op, Scalar, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// What becomes of an instruction.
#[derive(Clone)]
enum Change {
    Gone,
    Value(UOp),
}

/// The smallest that was found.
pub(super) fn shrink(made: &Made, seed: u64, fails: &mut dyn FnMut(&Made) -> bool) -> Made {
    let mut best = made.clone();
    // Parts of the list first, half of it and less, then instructions by themselves.
    let mut part = best.linear.src().len().max(2) / 2;
    loop {
        let mut better = false;
        let mut at = 0;
        while at < best.linear.src().len() {
            for changes in candidates(&best.linear, at, part) {
                let Some(linear) = changed(&best.linear, &changes) else {
                    continue;
                };
                let smaller = linear.src().len() < best.linear.src().len();
                if !smaller || verify_linear(linear.clone()).is_err() || !begins(&linear) {
                    continue;
                }
                let info = record(&linear, seed);
                let next = Made { linear, info };
                if fails(&next) {
                    best = next;
                    better = true;
                    break;
                }
            }
            at += part;
        }
        if part > 1 {
            part /= 2;
        } else if !better {
            return best;
        }
    }
}

/// What may be tried with the instructions from a place on.
fn candidates(linear: &UOp, at: usize, part: usize) -> Vec<FxHashMap<UOp, Change>> {
    let list = linear.src();
    let end = (at + part).min(list.len());
    let gone = |u: &UOp| (u.clone(), Change::Gone);
    let stores = || list[at..end].iter().filter(|u| u.op() == Op::Store);
    if part > 1 {
        return vec![stores().map(gone).collect()];
    }
    let u = &list[at];
    let mut out: Vec<FxHashMap<UOp, Change>> = Vec::new();
    match u.op() {
        Op::Store | Op::Barrier => out.push([gone(u)].into_iter().collect()),
        Op::Range | Op::If => {
            let close = list.iter().position(|e| {
                e.op() == Op::EndIf && e.src()[0] == *u
                    || e.op() == Op::End && e.src().get(1) == Some(u)
            });
            let Some(close) = close else { return out };
            // All of it, or the loop or condition alone.
            let body = list[at..=close]
                .iter()
                .filter(|u| u.dtype() == monoglot_uop::DType::Void || u.op() == Op::Range);
            let mut all: FxHashMap<UOp, Change> = body.map(gone).collect();
            let mut alone: FxHashMap<UOp, Change> =
                [gone(u), gone(&list[close])].into_iter().collect();
            if u.op() == Op::Range {
                let first = u.src().get(1).cloned();
                let zero = UOp::int(0, u.dtype());
                let value = Change::Value(first.unwrap_or(zero));
                all.insert(u.clone(), value.clone());
                alone.insert(u.clone(), value);
            }
            out.extend([all, alone]);
        }
        Op::Const | Op::Param | Op::Buffer | Op::Index | Op::Shrink | Op::After => {}
        _ if u.dtype() != monoglot_uop::DType::Void => {
            // One of its operands, or a constant.
            let same = u
                .src()
                .iter()
                .filter(|s| s.dtype() == u.dtype() && s.shape() == u.shape());
            let mut values: Vec<UOp> = same.cloned().collect();
            if lanes(u) == 0 {
                for v in [0, 1] {
                    values.push(UOp::constant(Scalar::Int(v), u.dtype()));
                }
            } else {
                let zero = UOp::constant(u.dtype().zero(), u.dtype());
                values.push(UOp::new(Op::Stack, vec![zero; lanes(u)], Arg::None));
            }
            for v in values {
                out.push([(u.clone(), Change::Value(v))].into_iter().collect());
            }
        }
        _ => {}
    }
    out
}

/// The program with changes, without what nothing uses.
fn changed(linear: &UOp, changes: &FxHashMap<UOp, Change>) -> Option<UOp> {
    let nothing = UOp::new(Op::Group, vec![], Arg::None);
    let mut map: FxHashMap<UOp, Option<UOp>> = FxHashMap::default();
    let mut out: Vec<UOp> = Vec::new();
    let mut seen: FxHashSet<UOp> = FxHashSet::default();
    for u in linear.src() {
        let new = match changes.get(u) {
            Some(Change::Gone) => {
                map.insert(u.clone(), None);
                continue;
            }
            Some(Change::Value(v)) => mapped(v, &map, &nothing)?,
            None => mapped(u, &map, &nothing)?,
        };
        // The machine traps at a division by 0.
        if matches!(new.op(), Op::TruncDiv | Op::TruncMod) && !divides(&new.src()[1]) {
            return None;
        }
        let fresh =
            !seen.contains(&new) && (changes.get(u).is_none() || !linear.src().contains(&new));
        // A constant stands first, wherever it comes from.
        if fresh && new.op() != Op::Const {
            let lacks = new
                .src()
                .iter()
                .filter(|s| s.op() == Op::Const && !seen.contains(*s));
            let lacks: Vec<UOp> = lacks.cloned().collect();
            if matches!(new.op(), Op::Stack) {
                for c in lacks {
                    seen.insert(c.clone());
                    out.insert(0, c);
                }
            }
            seen.insert(new.clone());
            out.push(new.clone());
        } else if fresh {
            seen.insert(new.clone());
            out.insert(0, new.clone());
        }
        map.insert(u.clone(), Some(new));
    }
    // Without what nothing uses.
    loop {
        let used: FxHashSet<&UOp> = out.iter().flat_map(|u| deep(u)).collect();
        let keeps = |u: &UOp| {
            let effect = matches!(
                u.op(),
                Op::Store | Op::Range | Op::End | Op::If | Op::EndIf | Op::Barrier | Op::Sink
            );
            let prefetch = u.op() == Op::Load && *u.arg() != Arg::None;
            effect || prefetch || used.contains(u)
        };
        let keep: Vec<bool> = out.iter().map(keeps).collect();
        if keep.iter().all(|&k| k) {
            break;
        }
        let mut at = keep.into_iter();
        out.retain(|_| at.next().unwrap_or(true));
    }
    UOp::try_new(Op::Linear, out, Arg::None).ok()
}

/// Whether storage of a program's own that is read is written first, all of it.
fn begins(linear: &UOp) -> bool {
    let list = linear.src();
    let of = |u: &UOp| address(u.src()[0].named()).map(|a| a.buffer.clone());
    let mut known: FxHashSet<UOp> = FxHashSet::default();
    let mut depth = 0;
    for u in list {
        match u.op() {
            Op::If | Op::Range => depth += 1,
            Op::EndIf | Op::End => depth -= 1,
            Op::Load | Op::Store => {
                let Some(b) = of(u).filter(|b| b.op() == Op::Buffer) else {
                    continue;
                };
                let Some(a) = address(u.src()[0].named()) else {
                    continue;
                };
                let len = b.shape()[0].max();
                let all = match a.index.op() {
                    Op::Range => depth == 1 && a.index.src()[0].as_int() == Some(len),
                    _ => depth == 0 && len == 1,
                };
                let all = all && u.op() == Op::Store && u.src().len() == 2;
                if !known.contains(&b) && !all {
                    return false;
                }
                known.insert(b);
            }
            _ => {}
        }
    }
    true
}

/// Whether a divisor is none that is 0, as one can see.
fn divides(u: &UOp) -> bool {
    let (lo, hi) = u.bounds();
    let odd = |c: &UOp| c.as_int().is_some_and(|c| c % 2 != 0);
    let apart = lo > 0 || hi < 0;
    let is = |u: &UOp| u.op() == Op::Or && u.src().iter().any(odd);
    // WHERE(b = 0, −1, b).
    let other = u.op() == Op::Where && {
        let gate = &u.src()[0];
        gate.op() == Op::CmpEq && gate.src()[0] == u.src()[2] && gate.src()[1].as_int() == Some(0)
    };
    let lanes = u.op() == Op::Stack && u.src().iter().all(|s| s.as_int().is_some_and(|v| v != 0));
    apart || is(u) || other || lanes
}

/// The sources of an instruction, and those of lists that are no instructions.
fn deep(u: &UOp) -> Vec<&UOp> {
    let mut out: Vec<&UOp> = u.src().iter().collect();
    for s in u.src().iter().filter(|s| s.op() == Op::Stack) {
        out.extend(s.src());
    }
    out
}

/// An instruction with what its sources have become.
fn mapped(u: &UOp, map: &FxHashMap<UOp, Option<UOp>>, nothing: &UOp) -> Option<UOp> {
    if let Some(known) = map.get(u) {
        return known.clone();
    }
    let mut src: Vec<UOp> = Vec::new();
    for (i, s) in u.src().iter().enumerate() {
        match map.get(s) {
            Some(Some(new)) => src.push(new.clone()),
            Some(None) if matches!(u.op(), Op::After | Op::If) && i > 0 => {}
            Some(None) if matches!(u.op(), Op::Barrier | Op::Group) => {}
            Some(None) if u.op() == Op::End && i == 0 => src.push(nothing.clone()),
            Some(None) => return None,
            // A list that is no instruction.
            None if s.op() == Op::Stack => {
                let inner = s.src().iter().map(|x| match map.get(x) {
                    Some(new) => new.clone(),
                    None => Some(x.clone()),
                });
                let inner: Option<Vec<UOp>> = inner.collect();
                src.push(s.try_with_src(inner?).ok()?);
            }
            None => src.push(s.clone()),
        }
    }
    if u.op() == Op::After && src.len() == 1 {
        return Some(src[0].clone());
    }
    u.try_with_src(src).ok()
}
