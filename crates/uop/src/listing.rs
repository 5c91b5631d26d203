//! A linear program with what every back end asks of it: which values are worth a name (a variable,
//! a register) of their own and which are part of the one instruction that uses them, and how wide
//! the lanes of masks are. Flows in: the verified program; flows out: for each instruction its
//! place, its name if it has one, and the width of its mask.
//!
//! Invariants: a load is part of its user only if nothing is stored between the two, and nothing moves
//! into or out of a loop; an instruction that may need an operand more than once never has a part in it.

use crate::dtype::DType;
use crate::linear::{gathered, lanes, reads, splat};
use crate::marks::NodeMap;
use crate::node::UOp;
use crate::op::{Op, Repeats};
use crate::spec::Lowered;

/// Whether `u` may need an operand more than once, or takes a lane of it.
fn wants_names(u: &UOp) -> bool {
    let wide = lanes(u) > 0;
    match u.op() {
        Op::Stack | Op::Shuffle | Op::Index | Op::Shrink => true,
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
    /// Part of its user.
    inline: bool,
    depth: u8,
    /// Where it runs: its own position, or that of the instruction that it is part of.
    place: u32,
    /// How many scopes, and how many changes of memory, stand before it.
    scope: u32,
    memory: u32,
    /// Bytes of a mask's lanes.
    mask: u8,
}

/// See above.
pub struct Listing<'a> {
    program: &'a Lowered,
    list: &'a [UOp],
    at: NodeMap<&'a UOp, u32>,
    items: Vec<Item>,
}

/// Instructions that are parts of others nest this deep at most.
const DEPTH: u8 = 5;

impl<'a> Listing<'a> {
    /// The listing of a program.
    pub fn of(program: &'a Lowered) -> Listing<'a> {
        let list = program.src();
        let at: NodeMap<&UOp, u32> = list.iter().zip(0..).collect();
        let mut items = vec![Item::default(); list.len()];
        // A scope ends with any control; memory may change with any store as well.
        let mut scope = 0u32;
        let mut memory = 0u32;
        for (i, u) in list.iter().enumerate() {
            let control = matches!(
                u.op(),
                Op::Range | Op::End | Op::If | Op::EndIf | Op::Barrier
            );
            scope += control as u32;
            memory += (control || matches!(u.op(), Op::Store | Op::AtomicAdd)) as u32;
            items[i] = Item {
                mask: mask_bytes(u, &at, &items),
                scope,
                memory,
                ..Item::default()
            };
        }
        for (i, u) in list.iter().enumerate().rev() {
            let effect =
                u.op().is_void() || matches!(u.op(), Op::Range | Op::Wmma | Op::Custom | Op::Ins);
            if !effect && items[i].uses == 0 {
                continue;
            }
            let user = items[items[i].place as usize].clone();
            let item = &mut items[i];
            let cheap = u.op() == Op::Const || u.op() == Op::Stack && splat(u).is_some();
            // A user's own position and depth were set when it was visited, as users stand later.
            // Nothing is stored between a load and its user, which itself may be a store.
            let writer = list[item.place as usize].op();
            let stores = matches!(writer, Op::Store | Op::AtomicAdd) as u32;
            let movable = item.scope == user.scope
                && (u.op() != Op::Load || item.memory + stores == user.memory);
            item.inline = !effect
                && (cheap || item.inline && item.uses == 1 && movable && item.depth < DEPTH);
            if !item.inline || effect {
                item.place = i as u32;
                item.depth = 0;
            }
            let place = item.place;
            let depth = item.depth;
            let named = wants_names(u);
            reads(u, |o| {
                if let Some(&k) = at.get(o) {
                    let o = &mut items[k as usize];
                    o.uses += 1;
                    o.inline = !named;
                    o.place = place;
                    o.depth = depth + 1;
                }
            });
        }
        Listing {
            program,
            list,
            at,
            items,
        }
    }

    /// The program itself.
    pub fn program(&self) -> &'a Lowered {
        self.program
    }

    /// The instructions, in order.
    pub fn instructions(&self) -> &'a [UOp] {
        self.list
    }

    /// The position of an instruction; None for what is none, such as constant offsets.
    pub fn place(&self, u: &UOp) -> Option<usize> {
        self.at.get(u).map(|&k| k as usize)
    }

    /// Whether the i-th instruction gives a value that has a name: it is used, and not part of its user.
    pub fn is_named(&self, i: usize) -> bool {
        !self.items[i].inline && self.items[i].uses > 0
    }

    /// Bytes of the lanes of a vector of bools: of what was compared, as most machines have it.
    pub fn mask(&self, u: &UOp) -> usize {
        let mask = self.place(u).map_or(1, |k| self.items[k].mask);
        mask.max(1) as usize
    }
}

/// Width of the lanes of a vector of bools.
fn mask_bytes(u: &UOp, at: &NodeMap<&UOp, u32>, items: &[Item]) -> u8 {
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
        Op::Load | Op::Stack | Op::Shuffle | Op::Bitcast => match gathered(u) {
            Some(([a, b], _)) => of(a).max(of(b)).max(1),
            None => 1,
        },
        _ => u.src().iter().map(of).max().unwrap_or(1).max(1),
    }
}
