//! Packing: places for blocks that are each in use for a while, as low as can be. Flows in: blocks with their
//! steps, and rooms that may be used until a step; flows out: a place for each block, and the bytes of the
//! memory for those that are in no room. Invariant: blocks that are in use at one step do not overlap.
//!
//! Finding the least is hard (it is strip packing), so several orders are tried and the best is taken:
//! by size, by size times duration, by the step at which most is in use, and in the order of time. Each block goes into the smallest gap
//! that it fits among those placed before it (Pisarchyk and Lee, "Efficient memory management for deep neural
//! net inference", 2020).

use std::cmp::Reverse;

/// What is to be placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// How much.
    pub(super) bytes: usize,
    /// The first and the last step that use it.
    pub(super) steps: (usize, usize),
}

/// Memory that is there anyhow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// How much.
    pub(super) bytes: usize,
    /// The first step at which it is no longer to be had.
    pub(super) until: usize,
}

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    /// The room, by number; None for the memory that blocks have for themselves.
    pub(super) room: Option<usize>,
    /// The byte there at which it begins.
    pub(super) offset: usize,
}

/// Where all blocks are.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    /// By block.
    pub(super) places: Vec<Place>,
    /// The bytes of the memory that blocks have for themselves.
    pub(super) bytes: usize,
}

/// Blocks beyond which only the order of time is tried, whose work grows with what is in use at a step.
const MANY: usize = 4096;

pub(super) fn pack(blocks: &[Block], rooms: &[Room]) -> Packed {
    let mut all: Vec<usize> = (0..blocks.len()).collect();
    let bytes = |&i: &usize| Reverse(blocks[i].bytes);
    let steps = |&i: &usize| blocks[i].steps;
    all.sort_by_key(|i| (steps(i).0, bytes(i)));
    let mut best = in_order(blocks, rooms, &all, Way::Time);
    if blocks.len() > MANY {
        return best;
    }
    let least = least(blocks, rooms);
    let duration = |i: &usize| steps(i).1 - steps(i).0 + 1;
    let area = |i: &usize| Reverse(blocks[*i].bytes.saturating_mul(duration(i)));
    let fullest = at_its_fullest(blocks);
    type Order<'a> = &'a dyn Fn(&mut [usize]);
    let orders: [Order; 4] = [
        &|all| all.sort_by_key(|i| (bytes(i), steps(i))),
        &|all| all.sort_by_key(|i| (area(i), steps(i))),
        &|all| all.sort_by_key(|i| (Reverse(fullest[*i]), bytes(i))),
        &|all| all.sort_by_key(|i| (Reverse(duration(i)), bytes(i))),
    ];
    for order in orders {
        order(&mut all);
        for way in [Way::OwnFirst, Way::RoomsFirst] {
            if best.bytes <= least || way == Way::RoomsFirst && rooms.is_empty() {
                continue;
            }
            let other = in_order(blocks, rooms, &all, way);
            if other.bytes < best.bytes {
                best = other;
            }
        }
    }
    best
}

/// How blocks are placed one after the other.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// In gaps of what blocks have for themselves, then in rooms, then behind what is there.
    OwnFirst,
    /// In rooms, then in gaps, then behind what is there.
    RoomsFirst,
    /// As the first, for blocks in the order of their first steps: what has ended is forgotten.
    Time,
}

/// No packing takes less than this: the most that is in use at a step, and is in no room.
fn least(blocks: &[Block], rooms: &[Room]) -> usize {
    let open = |s: usize| {
        let open = rooms.iter().filter(|r| r.until > s);
        open.map(|r| r.bytes).sum::<usize>()
    };
    let sums = sums(blocks).into_iter().enumerate();
    sums.map(|(s, n)| n.saturating_sub(open(s)))
        .max()
        .unwrap_or(0)
}

/// The bytes in use at each step.
fn sums(blocks: &[Block]) -> Vec<usize> {
    let end = blocks.iter().map(|b| b.steps.1 + 1).max().unwrap_or(0);
    let mut change = vec![0isize; end + 1];
    for b in blocks {
        change[b.steps.0] += b.bytes as isize;
        change[b.steps.1 + 1] -= b.bytes as isize;
    }
    change.pop();
    let mut now = 0;
    let running = change.iter().map(|c| {
        now += c;
        now as usize
    });
    running.collect()
}

/// For each block, the most that is in use at one of its steps.
fn at_its_fullest(blocks: &[Block]) -> Vec<usize> {
    let sums = sums(blocks);
    let most = |b: &Block| sums[b.steps.0..=b.steps.1].iter().max().copied();
    blocks.iter().map(|b| most(b).unwrap_or(0)).collect()
}

/// What is placed in one memory: its first byte, the one behind it, the block.
type Placed = Vec<(usize, usize, usize)>;

/// Place blocks in this order.
fn in_order(blocks: &[Block], rooms: &[Room], order: &[usize], way: Way) -> Packed {
    let nowhere = Place {
        room: None,
        offset: 0,
    };
    let mut places = vec![nowhere; blocks.len()];
    let mut own: Placed = Vec::new();
    let mut within: Vec<Placed> = vec![Vec::new(); rooms.len()];
    let mut top = 0;
    for &i in order {
        let block = &blocks[i];
        if block.bytes == 0 {
            continue;
        }
        let meets = |placed: &&(usize, usize, usize)| {
            let other = &blocks[placed.2];
            other.steps.0 <= block.steps.1 && block.steps.0 <= other.steps.1
        };
        if way == Way::Time {
            own.retain(|p| blocks[p.2].steps.1 >= block.steps.0);
        }
        let in_gap = || {
            let offset = gap(own.iter().filter(meets), block.bytes, top);
            offset.map(|offset| (None, offset))
        };
        let in_room = || {
            let mut found: Option<(usize, usize)> = None;
            for (r, room) in rooms.iter().enumerate() {
                let fits = room.bytes >= block.bytes && room.until > block.steps.1;
                let smaller = found.is_none_or(|(best, _)| room.bytes < rooms[best].bytes);
                if fits && smaller {
                    let gap = gap(within[r].iter().filter(meets), block.bytes, room.bytes);
                    found = gap.map(|offset| (r, offset)).or(found);
                }
            }
            found.map(|(r, offset)| (Some(r), offset))
        };
        let found = match way {
            Way::RoomsFirst => in_room().or_else(in_gap),
            Way::OwnFirst | Way::Time => in_gap().or_else(in_room),
        };
        // Behind all that it meets, where nothing else is left.
        let (place, offset) = found.unwrap_or_else(|| {
            let ends = own.iter().filter(meets).map(|p| p.1);
            (None, ends.max().unwrap_or(0))
        });
        places[i] = Place {
            room: place,
            offset,
        };
        let list = place.map_or(&mut own, |r| &mut within[r]);
        let at = list.partition_point(|p| p.0 < offset);
        list.insert(at, (offset, offset + block.bytes, i));
        if place.is_none() {
            top = top.max(offset + block.bytes);
        }
    }
    Packed { places, bytes: top }
}

/// The first byte of the smallest gap below `top` between what is placed, in ascending order.
fn gap<'a>(
    placed: impl Iterator<Item = &'a (usize, usize, usize)>,
    bytes: usize,
    top: usize,
) -> Option<usize> {
    let mut end = 0;
    let mut best: Option<(usize, usize)> = None;
    let mut consider = |from: usize, to: usize| {
        let room = to.saturating_sub(from);
        if room >= bytes && best.is_none_or(|(least, _)| room < least) {
            best = Some((room, from));
        }
    };
    for p in placed {
        consider(end, p.0);
        end = end.max(p.1);
    }
    consider(end, top);
    best.map(|(_, from)| from)
}
