//! What passes that ask ahead share: lines that are asked for by a LOAD whose place is LOCAL, and whose value nobody needs.
//! Flows in: what reads, and how much later; flows out: what asks, and the list with it. Invariant: no value is another one.

use crate::graph::{Srcs, node};
use crate::streams::place;
use monoglot_uop::linear::address;
use monoglot_uop::marks::NodeMap;
use monoglot_uop::rules::Affine;
use monoglot_uop::{AddrSpace, Arg, Op, Target, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Bytes that come at a time.
pub(crate) const LINE: i128 = 64;
/// Bytes that are under way: more than memory delivers while one line is waited for.
pub(crate) const UNDER_WAY: i128 = 8192;

/// Fewest bytes of a turn that are worth asking for.
pub(crate) const LEAST: i128 = 16;
/// Most lines between neighbours of a row: what is further is another row.
pub(crate) const NEXT: i128 = 4;

/// A loop, by the place of its RANGE in the list.
pub(crate) type Loop = usize;

/// Places of another turn of a loop, each with what is new in it.
pub(crate) type Turned = FxHashMap<UOp, (UOp, Vec<UOp>)>;

/// What asks for an element that a LOAD reads in a later turn of a loop.
pub(crate) struct Later {
    /// Constants.
    pub(crate) numbers: Vec<UOp>,
    /// Whether there is one, or what else is the same in all turns of an inner loop.
    pub(crate) gate: Vec<UOp>,
    /// What stands at the LOAD.
    pub(crate) line: Vec<UOp>,
}

impl Later {
    /// So many turns later, a turn being that many elements, where the condition holds besides, if there is one. None
    /// where there are fewer turns, or where the place is no number of the index's type.
    pub(crate) fn of(
        load: &UOp,
        range: &UOp,
        step: i128,
        turns: i128,
        besides: Option<&UOp>,
    ) -> Option<Later> {
        let index = address(&load.src()[0])?.index;
        let by = UOp::int((step * turns) as i64, index.dtype());
        Later::by(load, &by, range, turns, besides)
    }

    /// So many elements further, in all but so many last turns of a loop.
    pub(crate) fn by(
        load: &UOp,
        elements: &UOp,
        range: &UOp,
        last: i128,
        besides: Option<&UOp>,
    ) -> Option<Later> {
        let end = range.vmax() as i128 + 1 - last;
        let a = address(&load.src()[0]).filter(|_| end > 0)?;
        let end = UOp::int(end as i64, range.dtype());
        let there = node(Op::CmpLt, [range.clone(), end.clone()]);
        let index = node(Op::Add, [a.index.clone(), elements.clone()]);
        let sum = |of: fn(&UOp) -> i64| of(a.index) as i128 + of(elements) as i128;
        let [least, most] = [sum(|u| u.bounds().0), sum(|u| u.bounds().1)];
        let (lowest, highest) = index.bounds();
        let wraps = (lowest as i128) < least || highest as i128 > most;
        let to = a.buffer.at(std::slice::from_ref(&index));
        let both = besides.map(|c| node(Op::And, [c.clone(), there.clone()]));
        let gate: Vec<UOp> = [there].into_iter().chain(both).collect();
        let (asked, zero) = asking(&to, gate.last()?);
        let counts = |u: &UOp| matches!(u.op(), Op::Range | Op::Special);
        let mut nodes = elements.toposort_gated(|u| !counts(u));
        let own: FxHashSet<UOp> = a.index.toposort_gated(|u| !counts(u)).into_iter().collect();
        nodes.retain(|u| !own.contains(u) && !counts(u));
        let (numbers, mut line): (Vec<UOp>, Vec<UOp>) =
            nodes.into_iter().partition(|u| u.op() == Op::Const);
        line.extend([index, to, asked]);
        let numbers = numbers.into_iter().chain([end, zero]).collect();
        (!wraps).then_some(Later {
            numbers,
            gate,
            line,
        })
    }

    /// What a LOAD reads so many turns later, or in the last one: no jump stands before what asks, as it would where that
    /// is done under a condition. What an inner loop does not change comes first, as a gate does.
    pub(crate) fn in_turn(
        load: &UOp,
        range: &UOp,
        turns: i128,
        inside: &UOp,
        turned: &mut Turned,
    ) -> Option<Later> {
        let a = address(&load.src()[0]).filter(|_| turns <= range.vmax() as i128)?;
        let (base, by) = match a.index.src() {
            [base, by] if a.index.op() == Op::Add && by.op() == Op::Const => (base, Some(by)),
            _ => (a.index, None),
        };
        if !turned.contains_key(base) {
            let last = range.like(range.vmax());
            let left = &range.like(range.vmax() - turns as i64) - range;
            let turn = &last - &left.binary(Op::Max, &range.like(0));
            let place = at_turn(base, range, turn)?;
            let own: FxHashSet<UOp> = base.toposort().into_iter().collect();
            let mut nodes = place.toposort_gated(|u| !own.contains(u));
            nodes.retain(|u| !own.contains(u));
            turned.insert(base.clone(), (place, nodes));
        }
        let (place, nodes) = turned.get(base)?;
        let near = Arg::Place(None, Some(AddrSpace::Local));
        let mut nodes = nodes.clone();
        let place = match by {
            Some(by) => node(Op::Add, [place.clone(), by.clone()]),
            None => place.clone(),
        };
        let to = a.buffer.at(std::slice::from_ref(&place));
        nodes.extend([place, to.clone(), UOp::new(Op::Load, vec![to], near)]);
        let (numbers, nodes): (Vec<UOp>, Vec<UOp>) =
            nodes.into_iter().partition(|u| u.op() == Op::Const);
        let varies = |u: &UOp| u.op() == Op::Load || u.ranges().contains(inside);
        let (line, gate) = nodes.into_iter().partition(varies);
        Some(Later {
            numbers,
            gate,
            line,
        })
    }
}

/// What is asked for in a list.
pub(crate) struct Asks<'a> {
    /// Where each instruction stands, and the end of the loop or condition that it stands in.
    known: NodeMap<&'a UOp, (usize, usize)>,
    /// With which loop others are asked.
    within: FxHashMap<UOp, Loop>,
    numbers: Vec<UOp>,
    after: FxHashMap<usize, Vec<UOp>>,
}

impl<'a> Asks<'a> {
    pub(crate) fn of(list: &'a [UOp]) -> Asks<'a> {
        Asks {
            known: places(list),
            within: FxHashMap::default(),
            numbers: Vec::new(),
            after: FxHashMap::default(),
        }
    }

    /// Ask in a loop: the gate stands behind one instruction, the rest behind another. Nothing is asked where a part of it
    /// is computed elsewhere, or the gate needs what cannot be seen there.
    pub(crate) fn add(&mut self, later: Later, inside: Loop, before: usize, at: usize) {
        let alone = |u: &UOp| self.within.get(u).is_none_or(|with| *with == inside);
        let seen = |&(at, end): &(usize, usize)| at <= before && before < end;
        let there = |s: &UOp| self.known.get(s).is_none_or(seen);
        let early = |u: &UOp| there(u) && alone(u) && u.src().iter().all(there);
        let new = |u: &UOp| !self.known.contains_key(u) && alone(u);
        if later.gate.iter().all(early) && later.line.iter().all(new) {
            let own = later.gate.iter().chain(&later.line);
            self.within.extend(own.map(|u| (u.clone(), inside)));
            self.numbers.extend(later.numbers);
            self.after.entry(before).or_default().extend(later.gate);
            self.after.entry(at).or_default().extend(later.line);
        }
    }

    /// The list with all that.
    pub(crate) fn put(self, linear: &UOp) -> UOp {
        match self.after.is_empty() {
            true => linear.clone(),
            false => insert(linear.clone(), self.numbers, self.after),
        }
    }
}

/// A LINEAR with constants before all else and other instructions behind those at these places, each once. What asks in two
/// loops, one behind the other, by what is the same in both has that in the first alone: what is not seen where it is
/// wanted is not put there, nor what needs it.
pub(crate) fn insert(linear: UOp, numbers: Vec<UOp>, after: FxHashMap<usize, Vec<UOp>>) -> UOp {
    let own: NodeMap<&UOp, (usize, usize)> = places(linear.src());
    // What stands already, and up to where it is seen.
    let mut seen: NodeMap<&UOp, usize> = NodeMap::new();
    let mut list: Vec<&UOp> = Vec::new();
    for number in &numbers {
        if seen.insert(number, usize::MAX).is_none() {
            list.push(number);
        }
    }
    for (i, u) in linear.src().iter().enumerate() {
        let end = own.get(u).map_or(usize::MAX, |place| place.1);
        if !seen.contains_key(u) {
            list.push(u);
            seen.insert(u, end);
        }
        for new in after.get(&i).into_iter().flatten() {
            let there = |s: &UOp| seen.get(s).is_some_and(|&end| i < end);
            let later = own.get(new).is_none_or(|place| place.0 < end);
            if !seen.contains_key(new) && later && new.src().iter().all(there) {
                list.push(new);
                seen.insert(new, end);
            }
        }
    }
    linear.with_src(list.into_iter().cloned().collect::<Srcs>())
}

/// Where each instruction stands, and the end of the loop or condition that is open behind it.
fn places(list: &[UOp]) -> NodeMap<&UOp, (usize, usize)> {
    let mut ends = vec![usize::MAX];
    let place = |(at, u): (usize, _)| {
        let known = (u, (at, ends.last().copied().unwrap_or(usize::MAX)));
        match UOp::op(u) {
            Op::End | Op::EndIf => ends.push(at),
            Op::Range | Op::If => drop(ends.pop()),
            _ => {}
        }
        known
    };
    list.iter().enumerate().rev().map(place).collect()
}

/// What asks for the line of an element, if there is one, and the constant that it needs.
pub(crate) fn asking(to: &UOp, gate: &UOp) -> (UOp, UOp) {
    let zero = UOp::constant(to.dtype().zero(), to.dtype());
    let src = vec![to.clone(), zero.clone(), gate.clone()];
    let near = Arg::Place(None, Some(AddrSpace::Local));
    (UOp::new(Op::Load, src, near), zero)
}

/// What a loop's counter is in, at another turn of it. Other counters stay: so do those that begin or end where that
/// loop's turn says, as none but theirs is the loop around. None where it would be beyond its storage there.
pub(crate) fn at_turn(u: &UOp, range: &UOp, turn: UOp) -> Option<UOp> {
    let known = FxHashMap::from_iter([(range.clone(), turn)]);
    let new = |u: &UOp, src: Srcs| u.try_with_src(src);
    u.try_rebuild(&known, |u| u.op() != Op::Range, new).ok()
}

/// Whether this is memory that the second cache does not hold.
pub(crate) fn is_far(u: &UOp, target: &Target) -> bool {
    u.op() == Op::Param && is_beyond(u, target)
}

/// Whether the second cache does not hold this storage.
pub(crate) fn is_beyond(storage: &UOp, target: &Target) -> bool {
    let bytes = storage.shape().max_len() as i128 * storage.dtype().bytes() as i128;
    bytes > target.caches[1] as i128
}

/// Whether a STORE is to LOCAL storage.
pub(crate) fn copies(store: &UOp) -> bool {
    let to = address(&store.src()[0]).map(|a| a.buffer.addrspace());
    to == Some(Some(AddrSpace::Local))
}

/// The storage, bytes of an element and place of a LOAD from memory that happens whatever holds.
pub(crate) fn plain(load: &UOp) -> Option<(u64, i128, Affine)> {
    if load.op() != Op::Load || load.src().len() > 1 {
        return None;
    }
    let a = address(&load.src()[0])?;
    let buffer = load.src()[0].src()[0].buffer_arg()?;
    let param = load.src()[0].src()[0].op() == Op::Param;
    let bytes = buffer.dtype.bytes() as i128;
    param.then_some((buffer.slot, bytes, place(a.index)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use monoglot_uop::DType;

    /// What two loops would ask with one gate stands in the first alone: it may not be seen from the other.
    #[test]
    fn a_gate_is_of_one_loop() {
        let numbers: Vec<UOp> = (0..6).map(|n| UOp::int(n, DType::I32)).collect();
        let linear = UOp::new(Op::Linear, numbers.clone(), Arg::None);
        let sum = |a: &UOp, b: &UOp| node(Op::Add, [a.clone(), b.clone()]);
        let gate = sum(&numbers[0], &numbers[1]);
        let later = |k: usize| Later {
            numbers: Vec::new(),
            gate: vec![gate.clone()],
            line: vec![sum(&gate, &numbers[k])],
        };
        let mut asks = Asks::of(linear.src());
        asks.add(later(2), 3, 2, 3);
        asks.add(later(4), 5, 4, 5);
        // What comes later is no operand of a gate.
        let late = Later {
            gate: vec![sum(&numbers[0], &numbers[5])],
            ..later(2)
        };
        asks.add(late, 3, 2, 3);
        let list = asks.put(&linear);
        let mut want = numbers.clone();
        want.insert(3, gate.clone());
        want.insert(5, sum(&gate, &numbers[2]));
        assert_eq!(list.src(), want);
        assert_eq!(Asks::of(linear.src()).put(&linear), linear);
    }

    /// What another pass put into a loop is no gate behind that loop, and one that stands before both is.
    #[test]
    fn a_gate_is_seen_where_it_stands() {
        let [one, two] = [1, 2].map(|n| UOp::int(n, DType::I32));
        let range = UOp::new(
            Op::Range,
            vec![two.clone()],
            Arg::Range(0, monoglot_uop::AxisType::Loop),
        );
        let gate = node(Op::Add, [one.clone(), two.clone()]);
        let end = crate::graph::group(Vec::new()).end(std::slice::from_ref(&range));
        let asked = |list: [&UOp; 5]| {
            let linear = UOp::new(Op::Linear, list.map(UOp::clone).to_vec(), Arg::None);
            let later = Later {
                numbers: Vec::new(),
                gate: vec![gate.clone()],
                line: vec![node(Op::Mul, [gate.clone(), two.clone()])],
            };
            let mut asks = Asks::of(linear.src());
            asks.add(later, 4, 4, 4);
            asks.put(&linear).src().len()
        };
        assert_eq!(asked([&one, &two, &range, &gate, &end]), 5);
        assert_eq!(asked([&one, &two, &gate, &range, &end]), 6);
    }
}
