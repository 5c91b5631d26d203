//! A row is written while the next one is worked out. Flows in: a LINEAR, some of whose STOREs pass the caches by;
//! flows out: the same list, in which a loop over rows, whose last loop inside does nothing but write, has the turns
//! of that one among those of a loop that works on the row after. Invariant: what is written where stays.
//!
//! A core that writes past the caches waits for memory, and one that works on a row in a cache leaves memory idle.
//! So the loop over rows turns once more: each turn writes the row of the turn before, and the last works for nobody.
//! What the writer reads of the row's own storage it reads before the next row's takes its place, and numbers of the
//! row before wait in REG storage.

mod turns;

use crate::streams::place;
use monoglot_uop::linear::address;
use monoglot_uop::{AddrSpace, Arg, Op, UOp};
use rustc_hash::FxHashSet;
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

/// A loop of a list.
struct Loop {
    /// The places of its RANGE and its END.
    begin: usize,
    end: usize,
    /// The loops directly inside, in order, by their places among all.
    inside: Vec<usize>,
    /// How often it turns, where that is known and it counts from 0.
    turns: Option<i64>,
}

impl Loop {
    fn all(list: &[UOp]) -> Vec<Loop> {
        let mut loops: Vec<Loop> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        for (i, u) in list.iter().enumerate() {
            if u.op() == Op::Range {
                let own = loops.len();
                if let Some(&around) = open.last() {
                    loops[around].inside.push(own);
                }
                open.push(own);
                let turns = u.src()[0].as_int().filter(|_| u.src().len() == 1);
                loops.push(Loop {
                    begin: i,
                    end: i,
                    inside: Vec::new(),
                    turns: turns.filter(|n| *n > 0),
                });
            }
            if u.op() == Op::End
                && let Some(own) = open.pop()
            {
                loops[own].end = i;
            }
        }
        loops
    }

    fn contains(&self, place: usize) -> bool {
        self.begin < place && place < self.end
    }

    fn body<'a>(&self, list: &'a [UOp]) -> &'a [UOp] {
        &list[self.begin + 1..self.end]
    }

    fn stores<'a>(&self, list: &'a [UOp]) -> impl Iterator<Item = &'a UOp> {
        self.body(list).iter().filter(|u| u.op() == Op::Store)
    }

    /// Whether it reads some of this storage.
    fn reads(&self, list: &[UOp], storage: &FxHashSet<&UOp>) -> bool {
        let mut loads = self.body(list).iter().filter(|u| u.op() == Op::Load);
        loads.any(|u| accessed(u).is_some_and(|b| storage.contains(b)))
    }
}

/// The storage that a LOAD or STORE is of.
fn accessed(u: &UOp) -> Option<&UOp> {
    let access = matches!(u.op(), Op::Load | Op::Store);
    let to = u.src().first().filter(|_| access)?;
    address(to).map(|a| a.buffer)
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
        let only_past = writer.stores(list).next().is_some() && writer.stores(list).all(past);
        if !writer.inside.is_empty() || !only_it || !only_past {
            return None;
        }
        let filled =
            |l: &Loop| -> FxHashSet<&UOp> { l.stores(list).filter_map(accessed).collect() };
        let mut fillers = before.iter().map(|k| &loops[*k]);
        let fillers: Vec<&Loop> = fillers
            .by_ref()
            .filter(|l| writer.reads(list, &filled(l)))
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
        let inner = before.iter().map(|k| &loops[*k]);
        match fillers[..] {
            // The one with the most to do.
            [] => {
                let most = inner.max_by_key(|l| l.end - l.begin)?;
                host(most, None).fitting(loops)
            }
            [filler] => {
                // Whoever reads next what is filled can do so at once.
                let mut behind = inner.filter(|l| l.begin > filler.end);
                let reader = behind.find(|l| l.reads(list, &filled(filler)));
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
        while let [only] = self.host.last()?.0.inside[..] {
            self.host.push((&loops[only], 1));
        }
        if !self.innermost().inside.is_empty() {
            return None;
        }
        let mut all = 1;
        for (level, first) in self.host.iter_mut().rev() {
            *first = all;
            all *= level.turns?;
        }
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
        let of_guest = |b: &UOp| {
            let mut all = guests().flat_map(|g| g.own.body(list));
            all.any(|u| accessed(u) == Some(b))
        };
        let ours = |b: &&UOp| b.op() == Op::Buffer && changed.contains(b) && of_guest(b);
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
