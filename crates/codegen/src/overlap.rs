//! A row is written while the next one is worked out. Flows in: a LINEAR, some of whose STOREs pass the caches by;
//! flows out: the same list, in which a loop over rows, whose last loop inside does nothing but write, has the turns
//! of that one among those of a loop that works on the row after. Invariant: what is written where stays.
//!
//! A core that writes past the caches waits for memory, and one that works on a row in a cache leaves memory idle.
//! So the loop over rows turns once more: each turn writes the row of the turn before, and the last works for nobody.
//! What the writer reads of the row's own storage it reads before the next row's takes its place, and numbers of the
//! row before wait in REG storage.

mod turns;

use crate::nests::Loop;
use crate::streams::place;
use monoglot_uop::linear::address;
use monoglot_uop::{AddrSpace, Arg, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use turns::Turns;

/// Rows from which on one turn more is cheap.
const ROWS: i64 = 32;

/// See the module.
pub(crate) fn rows(linear: UOp) -> UOp {
    let list = linear.src();
    let other = |u: &UOp| matches!(u.op(), Op::If | Op::Barrier | Op::AtomicAdd | Op::Wmma);
    let past = |u: &UOp| u.op() == Op::Store && *u.arg() != Arg::None;
    if list.iter().any(other) || !list.iter().any(past) {
        return linear;
    }
    let loops = Loop::all(list);
    let plan = loops.iter().find_map(|rows| Plan::of(list, &loops, rows));
    match plan.and_then(|plan| Turns::list(&plan)) {
        Some(list) => linear.with_src(list),
        None => linear,
    }
}

/// The STOREs of a loop.
fn stores<'a>(l: &Loop, list: &'a [UOp]) -> impl Iterator<Item = &'a UOp> {
    l.body(list).iter().filter(|u| u.op() == Op::Store)
}

/// Whether a loop reads some of this storage.
fn reads(l: &Loop, list: &[UOp], storage: &FxHashSet<&UOp>) -> bool {
    let mut loads = l.body(list).iter().filter(|u| u.op() == Op::Load);
    loads.any(|u| accessed(u).is_some_and(|b| storage.contains(b)))
}

/// The storage that a LOAD or STORE is of.
fn accessed(u: &UOp) -> Option<&UOp> {
    let access = matches!(u.op(), Op::Load | Op::Store);
    let to = u.src().first().filter(|_| access)?;
    address(to).map(|a| a.buffer)
}

/// Whether nothing that a loop changes in storage of the program's own is read elsewhere, nor in another run of the loop:
/// the turn for nobody may change it once more.
fn keeps_to_itself(list: &[UOp], loops: &[Loop], rows: &Loop) -> bool {
    let own = |u: &&UOp| u.op() == Op::Buffer;
    let mut first: FxHashMap<&UOp, Op> = FxHashMap::default();
    for u in rows.body(list) {
        if let Some(storage) = accessed(u).filter(own) {
            first.entry(storage).or_insert(u.op());
        }
    }
    let changed: FxHashSet<&UOp> = stores(rows, list)
        .filter_map(accessed)
        .filter(own)
        .collect();
    let nested = loops.iter().any(|l| l.contains(rows.begin));
    let carried = |b: &&UOp| first.get(b) == Some(&Op::Load);
    let mut outside = list[..rows.begin].iter().chain(&list[rows.end..]);
    let read = |u: &UOp| u.op() == Op::Load && accessed(u).is_some_and(|b| changed.contains(b));
    !(nested && changed.iter().any(carried) || outside.any(read))
}

/// A loop that has its turns among those of another one: so many in each.
struct Guest<'a> {
    own: &'a Loop,
    times: i64,
}

/// How a loop over rows is to be.
struct Plan<'a> {
    list: &'a [UOp],
    rows: &'a Loop,
    /// How many rows there are.
    count: i64,
    /// The loop that writes.
    writer: Guest<'a>,
    /// The loop that fills what the writer reads, where that is not the host.
    filler: Option<Guest<'a>>,
    /// The loops of the host, the outermost first, and which of its turns, counted through, is the first of a turn of each.
    host: Vec<(&'a Loop, i64)>,
}

impl<'a> Plan<'a> {
    /// None for a loop that is no such loop over rows.
    fn of(list: &'a [UOp], loops: &'a [Loop], rows: &'a Loop) -> Option<Plan<'a>> {
        let count = rows.turns.filter(|n| *n >= ROWS)?;
        let (&last, before) = rows.inside.split_last()?;
        let writer = &loops[last];
        let past = |u: &UOp| *u.arg() != Arg::None;
        let own = |u: &UOp| accessed(u).is_some_and(|b| b.op() == Op::Buffer);
        let mut others = list[rows.begin..writer.begin]
            .iter()
            .chain(&list[writer.end..rows.end]);
        let only_it = others.all(|u| u.op() != Op::Store || own(u));
        let only_past = stores(writer, list).next().is_some() && stores(writer, list).all(past);
        if !writer.inside.is_empty()
            || !only_it
            || !only_past
            || !keeps_to_itself(list, loops, rows)
        {
            return None;
        }
        let filled =
            |l: &Loop| -> FxHashSet<&UOp> { stores(l, list).filter_map(accessed).collect() };
        let inner = || before.iter().map(|k| &loops[*k]);
        let fillers: Vec<&Loop> = inner()
            .filter(|l| reads(writer, list, &filled(l)))
            .collect();
        let host = |host: &'a Loop, filler| Plan {
            list,
            rows,
            count,
            writer: Guest {
                own: writer,
                times: 0,
            },
            filler,
            host: vec![(host, 1)],
        };
        match fillers[..] {
            // The one with the most to do.
            [] => {
                let most = inner().max_by_key(|l| l.end - l.begin)?;
                host(most, None).fitting(loops)
            }
            [filler] => {
                // Whoever reads next what is filled can do so at once.
                let mut behind = inner().filter(|l| l.begin > filler.end);
                let reader = behind.find(|l| reads(l, list, &filled(filler)));
                let guest = || Guest {
                    own: filler,
                    times: 0,
                };
                let beside = reader.and_then(|r| host(r, Some(guest())).fitting(loops));
                beside.or_else(|| host(filler, None).fitting(loops))
            }
            _ => None,
        }
    }

    /// With the loops of the host and how often guests turn in each turn; None where these do not fit.
    fn fitting(mut self, loops: &'a [Loop]) -> Option<Plan<'a>> {
        self.host = self.host[0].0.nest(loops)?;
        let outermost = self.host[0];
        let all = outermost.1 * outermost.0.turns?;
        for guest in [&mut self.writer].into_iter().chain(&mut self.filler) {
            let turns = guest.own.turns.filter(|n| n % all == 0)?;
            guest.times = turns / all;
            if !guest.own.inside.is_empty() {
                return None;
            }
        }
        self.is_sound(all).then_some(self)
    }

    fn innermost(&self) -> &'a Loop {
        self.host[self.host.len() - 1].0
    }

    /// Whether what the writer reads and the rows change is in LOCAL storage, of which each of all turns fills and
    /// reads a part of its own, these being in order; who else reads it comes behind the host.
    fn is_sound(&self, all: i64) -> bool {
        let list = self.list;
        let stores = list[self.rows.begin..self.rows.end].iter();
        let changed: FxHashSet<&UOp> = stores
            .filter(|u| u.op() == Op::Store)
            .filter_map(accessed)
            .collect();
        let guests = || [&self.writer].into_iter().chain(&self.filler);
        let bodies = guests().flat_map(|g| g.own.body(list));
        let of_guests: FxHashSet<&UOp> = bodies.filter_map(accessed).collect();
        let both = |b: &&UOp| changed.contains(b) && of_guests.contains(b);
        let ours = |b: &&UOp| b.op() == Op::Buffer && both(b);
        let accesses = list
            .iter()
            .enumerate()
            .take(self.rows.end)
            .skip(self.rows.begin);
        for (i, access) in accesses {
            let Some(storage) = accessed(access).filter(ours) else {
                continue;
            };
            let guest = guests().find(|g| g.own.contains(i));
            let part = storage.shape().max_len() / all;
            let (order, step) = match guest {
                Some(guest) => (vec![(guest.own, 1)], part / guest.times),
                None if self.innermost().contains(i) => (self.host.clone(), part),
                None if i > self.host[0].0.end => continue,
                None => return false,
            };
            let local = storage.buffer_arg().and_then(|b| b.addrspace) == Some(AddrSpace::Local);
            let whole = step * guest.map_or(1, |g| g.times) * all == storage.shape().max_len();
            if !local || !whole || !self.is_in_order(access, &order, step) {
                return false;
            }
        }
        true
    }

    /// Whether a turn of these loops, counted through, accesses so many elements alone, those behind the ones of the
    /// turn before.
    fn is_in_order(&self, access: &UOp, order: &[(&Loop, i64)], step: i64) -> bool {
        let Some(a) = address(&access.src()[0]) else {
            return false;
        };
        let Some(place) = place(a.index) else {
            return false;
        };
        let end = place.constant + a.lanes.max(1) as i128;
        let mut steps = order
            .iter()
            .map(|(l, first)| (&self.list[l.begin], (first * step) as i128));
        let known = place.terms.len() == order.len();
        let agrees =
            |(range, by): (&UOp, i128)| place.terms.iter().any(|t| t.0 == *range && t.1 == by);
        place.constant >= 0 && end <= step as i128 && known && steps.all(agrees)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use monoglot_uop::spec::verify_linear;
    use monoglot_uop::{AxisType, DType, Shape};

    /// Rows of which one loop fills storage and another writes what is in it, past the caches. A number counts the
    /// rows, and is stored behind them where that is asked; `around` is a loop around all.
    fn counted(read: bool, around: bool) -> UOp {
        let mut list: Vec<UOp> = Vec::new();
        let mut put = |u: UOp| {
            if !list.contains(&u) {
                list.push(u.clone());
            }
            u
        };
        let number = |n: i64| UOp::int(n, DType::I32);
        let zero = put(number(0));
        let lanes = 8;
        let array = |slot: u64, n: i64| UOp::param(slot, &Shape::of(&[n]), DType::F32, None);
        let [out, x, total] = [(0, 2560), (1, 2560), (2, 1)].map(|(slot, n)| put(array(slot, n)));
        let kept = put(UOp::scratch(
            0,
            &Shape::of(&[64]),
            DType::F32,
            AddrSpace::Local,
        ));
        let count = put(UOp::scratch(
            1,
            &Shape::of(&[1]),
            DType::F32,
            AddrSpace::Reg,
        ));
        for n in [1, 2, 8, 40, 64] {
            put(number(n));
        }
        let none = put(UOp::float(0.0, DType::F32));
        let one = put(UOp::float(1.0, DType::F32));
        let outer = UOp::range(2i64, 9, AxisType::Loop).with_src(vec![number(2)]);
        let range = |n: i64, id: u32| UOp::range(n, id, AxisType::Loop).with_src(vec![number(n)]);
        let begin = put(count.at(std::slice::from_ref(&zero)));
        let begin = put(begin.store(&none));
        if around {
            put(outer.clone());
        }
        let r = put(range(40, 1));
        let counted = put(count.after(&[begin, r.clone()]));
        let counted = put(counted.at(std::slice::from_ref(&zero)));
        let row = put(UOp::new(Op::Mul, vec![r.clone(), number(64)], Arg::None));
        let vector = |storage: &UOp, at: &UOp| {
            let list = UOp::new(Op::Stack, vec![at.clone()], Arg::None);
            let size = UOp::new(Op::Stack, vec![number(lanes)], Arg::None);
            UOp::new(Op::Shrink, vec![storage.clone(), list, size], Arg::None)
        };
        let load = |to: &UOp| UOp::new(Op::Load, vec![to.clone()], Arg::None);
        let fill = put(range(8, 2));
        let at = put(UOp::new(Op::Mul, vec![fill.clone(), number(8)], Arg::None));
        let from = put(UOp::new(Op::Add, vec![row.clone(), at.clone()], Arg::None));
        let from = put(vector(&x, &from));
        let value = put(load(&from));
        let to = put(vector(&kept, &at));
        let store = put(to.store(&value));
        let filled = put(UOp::new(Op::End, vec![store, fill], Arg::None));
        let before = put(load(&counted));
        let more = put(UOp::new(Op::Add, vec![before, one], Arg::None));
        let more = put(counted.store(&more));
        let write = put(range(8, 3));
        let full = put(kept.after(&[filled]));
        let at = put(UOp::new(Op::Mul, vec![write.clone(), number(8)], Arg::None));
        let value = put(vector(&full, &at));
        let value = put(load(&value));
        let to = put(UOp::new(Op::Add, vec![row, at], Arg::None));
        let to = put(vector(&out, &to));
        let past = Arg::Place(None, Some(AddrSpace::Global));
        let store = put(to.store(&value).with_arg(past));
        let written = put(UOp::new(Op::End, vec![store, write], Arg::None));
        let all = put(UOp::new(Op::Group, vec![more, written], Arg::None));
        let mut end = put(UOp::new(Op::End, vec![all, r], Arg::None));
        if around {
            end = put(UOp::new(Op::End, vec![end, outer], Arg::None));
        }
        if read {
            let last = put(count.after(&[end.clone()]));
            let last = put(last.at(std::slice::from_ref(&zero)));
            let last = put(load(&last));
            let to = put(total.at(std::slice::from_ref(&zero)));
            put(to.store(&last));
        }
        UOp::new(Op::Linear, list, Arg::None)
    }

    #[test]
    fn what_is_read_behind_the_rows_is_as_it_was() {
        let turned = |linear: UOp| {
            let linear = verify_linear(linear).expect("it is a list").into_inner();
            let new = rows(linear.clone());
            verify_linear(new.clone()).expect("it is a list yet");
            new != linear
        };
        assert!(turned(counted(false, false)));
        assert!(!turned(counted(true, false)));
        assert!(!turned(counted(false, true)));
    }
}
