//! What of a LINEAR program becomes a variable in C and what is written where it is used, and the
//! helpers that read a list: addresses, lanes, lists of lanes.
//!
//! Invariant: a load is written at its user only if nothing is stored between the two, and nothing moves
//! into or out of a loop.

use monoglot_uop::linear::{self, lanes, storage_of};
use monoglot_uop::op::Repeats;
use monoglot_uop::{DType, Op, UOp};
use rustc_hash::FxHashMap;

/// The CONST that all sources of a STACK are, or the one node they all are.
pub(super) fn splat(u: &UOp) -> Option<&UOp> {
    let first = u.src().first()?;
    (u.op() == Op::Stack && u.src().iter().all(|s| s == first)).then_some(first)
}

/// A STACK of lanes of at most two vectors of one length: the vectors, and each lane's number.
pub(super) fn gathered(u: &UOp) -> Option<(&UOp, &UOp, Vec<i64>)> {
    if u.op() != Op::Stack || u.src().len() < 2 {
        return None;
    }
    let (mut from, mut picks): (Vec<&UOp>, Vec<i64>) =
        (Vec::new(), Vec::with_capacity(u.src().len()));
    for s in u.src() {
        let lane = if s.op() == Op::Index && s.src().len() == 2 {
            s.src()[1].as_int()?
        } else {
            return None;
        };
        let v = &s.src()[0];
        if storage_of(v).is_some() || from.first().is_some_and(|f| f.shape() != v.shape()) {
            return None;
        }
        let which = from.iter().position(|f| *f == v).unwrap_or_else(|| {
            from.push(v);
            from.len() - 1
        });
        if which > 1 {
            return None;
        }
        picks.push(lane + (which * lanes(v)) as i64);
    }
    Some((from[0], from[from.len() - 1], picks))
}

/// Visit the values that the text of `u` mentions.
fn operands<'a>(u: &'a UOp, mut f: impl FnMut(&'a UOp)) {
    if let Some(s) = splat(u) {
        f(s);
    } else if let Some((a, b, _)) = gathered(u) {
        f(a);
        if a != b {
            f(b);
        }
    } else {
        linear::operands(u, f);
    }
}

/// The text of `u` may mention an operand more than once, or needs a name to take a lane of.
fn wants_names(u: &UOp) -> bool {
    let wide = lanes(u) > 0;
    match u.op() {
        Op::Stack | Op::Index | Op::Shrink => true,
        Op::Cast => u.src()[0].dtype().is_float() && !u.dtype().is_float(),
        Op::Load | Op::Store => u.src().len() > 2 && lanes(&u.src()[0]) > 0,
        op => match op.traits().repeats {
            Repeats::Never => false,
            Repeats::Vectors => wide,
            Repeats::Always => true,
        },
    }
}

#[derive(Clone, Default)]
struct Item {
    uses: u32,
    /// Written inside its user.
    inline: bool,
    depth: u8,
    /// Where its text stands: its own position, or that of the statement it is inlined into.
    place: u32,
    /// How many scopes, and how many changes of memory, stand before it.
    scope: u32,
    memory: u32,
    /// Bytes of a mask's lanes.
    mask: u8,
    name: u32,
}

/// What is written where.
pub(super) struct Plan {
    at: FxHashMap<UOp, u32>,
    items: Vec<Item>,
}

/// Nested expressions stay within this many operators.
const DEPTH: u8 = 5;

impl Plan {
    pub(super) fn new(list: &[UOp]) -> Plan {
        let at: FxHashMap<UOp, u32> = list
            .iter()
            .enumerate()
            .map(|(i, u)| (u.clone(), i as u32))
            .collect();
        let mut items = vec![Item::default(); list.len()];
        // A scope ends with any control; memory may change with any store as well.
        let (mut scope, mut memory) = (0u32, 0u32);
        for (i, u) in list.iter().enumerate() {
            let control = matches!(
                u.op(),
                Op::Range | Op::End | Op::If | Op::EndIf | Op::Barrier
            );
            scope += control as u32;
            memory += (control || u.op() == Op::Store) as u32;
            items[i] = Item {
                mask: mask_bytes(u, &at, &items),
                scope,
                memory,
                ..Item::default()
            };
        }
        for (i, u) in list.iter().enumerate().rev() {
            let effect = u.op().is_void() || matches!(u.op(), Op::Range | Op::Wmma | Op::Custom);
            if !effect && items[i].uses == 0 {
                continue;
            }
            let user = items[items[i].place as usize].clone();
            let item = &mut items[i];
            let cheap = u.op() == Op::Const || u.op() == Op::Stack && splat(u).is_some();
            // A user's own position and depth were set when it was visited, as users stand later.
            // Nothing is stored between a load and its user, which itself may be a store.
            let stores = (list[item.place as usize].op() == Op::Store) as u32;
            let movable = item.scope == user.scope
                && (u.op() != Op::Load || item.memory + stores == user.memory);
            item.inline = !effect
                && (cheap || item.inline && item.uses == 1 && movable && item.depth < DEPTH);
            if !item.inline || effect {
                item.place = i as u32;
                item.depth = 0;
            }
            let (place, depth, named) = (item.place, item.depth, wants_names(u));
            operands(u, |o| {
                if let Some(&k) = at.get(o) {
                    let o = &mut items[k as usize];
                    o.uses += 1;
                    o.inline = !named;
                    o.place = place;
                    o.depth = depth + 1;
                }
            });
        }
        Plan { at, items }
    }

    /// Whether the i-th instruction gets a variable.
    pub(super) fn is_variable(&self, i: usize) -> bool {
        !self.items[i].inline && self.items[i].uses > 0
    }

    /// Note the variable of the i-th instruction.
    pub(super) fn set_name(&mut self, i: usize, name: u32) {
        self.items[i].name = name;
    }

    /// The variable of a value; 0 where it has none.
    pub(super) fn name(&self, u: &UOp) -> u32 {
        self.at.get(u).map_or(0, |&k| self.items[k as usize].name)
    }

    /// Bytes of the lanes of a mask.
    pub(super) fn mask(&self, u: &UOp) -> usize {
        self.at
            .get(u)
            .map_or(1, |&k| self.items[k as usize].mask)
            .max(1) as usize
    }
}

/// Width of the lanes of a vector of bools.
fn mask_bytes(u: &UOp, at: &FxHashMap<UOp, u32>, items: &[Item]) -> u8 {
    if u.dtype() != DType::Bool || u.shape().is_empty() {
        return 0;
    }
    let of = |s: &UOp| at.get(s).map_or(0, |&k| items[k as usize].mask);
    match u.op() {
        _ if (u.op().is_comparison() || u.op() == Op::Cast)
            && u.src()[0].dtype() != DType::Bool =>
        {
            u.src()[0].dtype().bytes() as u8
        }
        Op::Where => of(&u.src()[1]).max(of(&u.src()[2])).max(1),
        Op::Load | Op::Stack | Op::Bitcast => match gathered(u) {
            Some((a, b, _)) => of(a).max(of(b)).max(1),
            None => 1,
        },
        _ => u.src().iter().map(of).max().unwrap_or(1).max(1),
    }
}
