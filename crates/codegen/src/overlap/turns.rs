//! The list of a loop over rows whose rows are written a turn later. Flows in: a plan; flows out: the list. Always: an
//! instruction stands where all that it takes has come, and once.

use super::{Guest, Plan};
use crate::graph::{Srcs, group, node};
use monoglot_uop::linear::{address, lanes, storage_of};
use monoglot_uop::{AddrSpace, Arg, AxisType, DType, Op, Shape, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// What instructions became.
type Names = FxHashMap<UOp, UOp>;

/// A number of the row before.
struct Waiting {
    /// What it is in the turn in which it is made, by its name before.
    value: UOp,
    /// Where it waits.
    place: UOp,
    /// What stands before the loop, so that there is one in the first turn.
    first: Vec<UOp>,
}

/// See the module.
pub(super) struct Turns<'a> {
    plan: &'a Plan<'a>,
    /// Where instructions of a row stand.
    places: FxHashMap<&'a UOp, usize>,
    out: Vec<UOp>,
    /// The scope in which each instruction stands, those that are open, and how many there were.
    scope_of: FxHashMap<UOp, usize>,
    opened: Vec<usize>,
    scopes: usize,
    /// Whether something would stand twice.
    twice: bool,
    /// What instructions are for the row that is worked out, and for the one that is written.
    front: Names,
    back: Names,
    /// The loop over rows, and whether there is a row to be written.
    turn: UOp,
    written: UOp,
    waiting: Vec<Waiting>,
    /// The numbers of loops and of REG storage that are free.
    loops: u32,
    slots: u64,
}

impl<'a> Turns<'a> {
    /// The list; None where an instruction would stand twice.
    pub(super) fn list(plan: &'a Plan<'a>) -> Option<Vec<UOp>> {
        let list = plan.list;
        let rows = plan.rows;
        let body = list.iter().enumerate().take(rows.end).skip(rows.begin);
        let ranges = list.iter().filter_map(UOp::range_arg);
        let slots = list.iter().filter_map(|u| u.buffer_arg()).map(|b| b.slot);
        let range = &list[rows.begin];
        let end = UOp::int(plan.count + 1, range.dtype());
        let turn = range.with_src(vec![end]);
        let zero = UOp::int(0, range.dtype());
        let mut turns = Turns {
            plan,
            places: body.map(|(i, u)| (u, i)).collect(),
            out: Vec::with_capacity(list.len() * 5 / 4),
            scope_of: FxHashMap::default(),
            opened: vec![0],
            scopes: 0,
            twice: false,
            front: Names::default(),
            back: Names::default(),
            written: node(Op::CmpLt, [zero, turn.clone()]),
            turn,
            waiting: Vec::new(),
            loops: ranges.map(|(id, _)| id + 1).max().unwrap_or(0),
            slots: slots.max().unwrap_or(0) + 1,
        };
        turns.all();
        (!turns.twice).then_some(turns.out)
    }

    fn all(&mut self) {
        let plan = self.plan;
        let list = plan.list;
        let (before, rest) = list.split_at(plan.rows.begin);
        for u in before {
            self.put(u);
        }
        self.begin();
        let guests = [Some(&plan.writer), plan.filler.as_ref()];
        let in_guest = |i: usize| {
            let mut guests = guests.iter().flatten();
            guests.any(|g| (g.own.begin..=g.own.end).contains(&i))
        };
        let host = plan.host[0].0;
        for (i, u) in (plan.rows.begin..).zip(rest).skip(1) {
            if in_guest(i) {
                continue;
            }
            if i == host.begin {
                self.take_from_before();
            }
            if i == plan.rows.end {
                self.wait_for_next(u);
                continue;
            }
            if i < host.end && self.follows_filler(u) {
                continue;
            }
            let new = self.renamed(u, &self.front);
            self.put(&new);
            if new != *u {
                self.front.insert(u.clone(), new.clone());
            }
            if i == plan.innermost().begin {
                self.guests();
            }
            if i == host.end {
                self.all_is_filled(&new);
            }
        }
        self.begin_waiting();
    }

    /// Append an instruction, unless it stands there already.
    fn put(&mut self, u: &UOp) {
        if matches!(u.op(), Op::End | Op::EndIf) {
            self.opened.pop();
        }
        match self.scope_of.get(u) {
            Some(scope) => {
                self.twice |= !self.opened.contains(scope);
                return;
            }
            None => {
                let scope = self.opened.last().copied().unwrap_or(0);
                self.scope_of.insert(u.clone(), scope);
            }
        }
        self.out.push(u.clone());
        if matches!(u.op(), Op::Range | Op::If) {
            self.scopes += 1;
            self.opened.push(self.scopes);
        }
    }

    /// Append what an op makes of values, constants among them.
    fn make(&mut self, op: Op, src: [UOp; 2]) -> UOp {
        for s in src.iter().filter(|s| s.op() == Op::Const) {
            self.put(s);
        }
        let new = node(op, src);
        self.put(&new);
        new
    }

    fn number(&self, n: i64) -> UOp {
        UOp::int(n, self.turn.dtype())
    }

    /// An instruction over what its sources became.
    fn renamed(&self, u: &UOp, names: &Names) -> UOp {
        let rows = &self.plan.list[self.plan.rows.begin];
        let new = |s: &UOp| match names.get(s) {
            Some(_) if u.op() == Op::After && s == rows => self.turn.clone(),
            Some(new) => new.clone(),
            // The vector of an offset is no instruction.
            None if s.op() == Op::Stack && s.src().iter().any(|e| names.contains_key(e)) => {
                let all = s.src().iter().map(|e| names.get(e).unwrap_or(e).clone());
                s.with_src(all.collect::<Srcs>())
            }
            None => s.clone(),
        };
        u.with_src(u.src().iter().map(new).collect::<Srcs>())
    }

    /// Open the loop over rows. In its last turn it works on the last row again.
    fn begin(&mut self) {
        let turn = self.turn.clone();
        self.put(&turn.src()[0].clone());
        self.put(&self.number(0));
        self.put(&turn);
        let last = self.number(self.plan.count - 1);
        let left = self.make(Op::Sub, [last.clone(), turn.clone()]);
        let left = self.make(Op::Max, [left, self.number(0)]);
        let front = self.make(Op::Sub, [last, left]);
        let before = self.make(Op::Sub, [turn, self.number(1)]);
        let back = self.make(Op::Max, [before, self.number(0)]);
        let range = self.plan.list[self.plan.rows.begin].clone();
        self.front.insert(range.clone(), front);
        self.back.insert(range, back);
        let written = self.written.clone();
        self.put(&written);
    }

    /// What the writer takes from the row before.
    fn take_from_before(&mut self) {
        let plan = self.plan;
        for u in plan.writer.own.body(plan.list) {
            if storage_of(u).is_some() {
                self.left(u);
                continue;
            }
            for s in u.src() {
                self.before(s);
            }
        }
    }

    /// A value or an address in the row before: made again of what the loop's turn says, or as it waited.
    fn before(&mut self, u: &UOp) -> UOp {
        if let Some(known) = self.back.get(u) {
            return known.clone();
        }
        let begin = self.plan.writer.own.begin;
        let outside = |u: &UOp| self.places.get(u).is_some_and(|&i| i < begin);
        // The vector of an offset is no instruction.
        let element = u.op() == Op::Stack && u.src().iter().all(outside);
        let listed = self.places.contains_key(u);
        if !outside(u) && (listed || !element) {
            return u.clone();
        }
        if storage_of(u).is_some() {
            return self.left(u);
        }
        let new = if address(u).is_some() || self.is_plain(u) {
            let src: Srcs = u.src().iter().map(|s| self.before(s)).collect();
            u.with_src(src)
        } else {
            self.waited(u)
        };
        self.put(&new);
        self.back.insert(u.clone(), new.clone());
        new
    }

    /// Storage as the row before left it.
    fn left(&mut self, u: &UOp) -> UOp {
        let storage = u.named().clone();
        let new = match storage.op() {
            Op::Buffer => storage.after(&[self.turn.clone()]),
            _ => storage,
        };
        self.put(&new);
        self.back.insert(u.clone(), new.clone());
        new
    }

    /// Whether a value is made of the numbers of turns alone.
    fn is_plain(&self, u: &UOp) -> bool {
        let mut open: Vec<&UOp> = vec![u];
        let mut seen: FxHashSet<&UOp> = FxHashSet::default();
        while let Some(u) = open.pop() {
            let inside = self.places.contains_key(u) || u.op() == Op::Stack;
            if !inside || u.op() == Op::Range || !seen.insert(u) {
                continue;
            }
            if !u.op().is_elementwise() && !matches!(u.op(), Op::Stack | Op::Cast | Op::Bitcast) {
                return false;
            }
            open.extend(u.src());
        }
        true
    }

    /// A value of the row before, out of the REG storage in which it waited.
    fn waited(&mut self, value: &UOp) -> UOp {
        let n = lanes(value);
        let dims = [1, n as i64];
        let shape = Shape::of(if n == 0 { &dims[..1] } else { &dims });
        let storage = UOp::scratch(self.slots, &shape, value.dtype(), AddrSpace::Reg);
        self.slots += 1;
        let zero = UOp::int(0, DType::I32);
        let begin = storage.at(std::slice::from_ref(&zero));
        let none = UOp::constant(value.dtype().zero(), value.dtype());
        let store = begin.store(&none);
        let filled = storage.after(&[store.clone(), self.turn.clone()]);
        let place = filled.at(std::slice::from_ref(&zero));
        self.put(&filled);
        self.put(&place);
        self.waiting.push(Waiting {
            value: value.clone(),
            place: place.clone(),
            first: vec![zero, storage, begin, none, store],
        });
        node(Op::Load, [place])
    }

    /// Before the loop over rows: the storage in which numbers wait, and that there are none at first.
    fn begin_waiting(&mut self) {
        let mut out: Vec<UOp> = Vec::with_capacity(self.out.len());
        for u in std::mem::take(&mut self.out) {
            if u == self.turn {
                out.extend(self.waiting.iter().flat_map(|w| w.first.clone()));
            }
            out.push(u);
        }
        // A constant may have stood there, or further on.
        let mut seen: FxHashSet<UOp> = FxHashSet::default();
        out.retain(|u| u.op() != Op::Const || seen.insert(u.clone()));
        self.out = out;
    }

    /// Close the loop over rows: numbers wait for the next one.
    fn wait_for_next(&mut self, end: &UOp) {
        let effect = &end.src()[0];
        let mut effects = vec![self.front.get(effect).unwrap_or(effect).clone()];
        let store = |w: &Waiting| w.place.store(self.front.get(&w.value).unwrap_or(&w.value));
        let stores: Vec<UOp> = self.waiting.iter().map(store).collect();
        for store in stores {
            self.put(&store);
            effects.push(store);
        }
        let all = group(effects);
        if all.op() == Op::Group {
            self.put(&all);
        }
        let new = end.with_src(vec![all, self.turn.clone()]);
        self.put(&new);
        self.front.insert(end.clone(), new);
    }

    /// Whether it is storage as the filler left it.
    fn follows_filler(&self, u: &UOp) -> bool {
        let filler = self.plan.filler.as_ref();
        let end = filler.map(|f| &self.plan.list[f.own.end]);
        u.op() == Op::After && end.is_some_and(|end| u.src()[1..].contains(end))
    }

    /// The filler has filled what the host's turn reads, or all: this is known by its effect.
    fn filled(&mut self, effect: &UOp) {
        let plan = self.plan;
        let Some(filler) = &plan.filler else { return };
        let end = &plan.list[filler.own.end];
        self.front.insert(end.clone(), effect.clone());
        let behind = &plan.list[filler.own.end..plan.host[0].0.end];
        for view in behind {
            if self.follows_filler(view) {
                let new = self.renamed(view, &self.front);
                self.put(&new);
                self.front.insert(view.clone(), new);
            }
        }
    }

    /// The host has turned for the last time.
    fn all_is_filled(&mut self, end: &UOp) {
        self.filled(end);
        let writer = &self.plan.list[self.plan.writer.own.end];
        self.front.insert(writer.clone(), end.clone());
    }

    /// In a turn of the host: what the turns of its guests do.
    fn guests(&mut self) {
        let plan = self.plan;
        let turn = self.host_turn();
        self.write(&turn);
        if let Some(filler) = &plan.filler {
            let effect = self.fill(filler, &turn);
            self.filled(&effect);
        }
    }

    /// The number of the host's turn.
    fn host_turn(&mut self) -> UOp {
        let plan = self.plan;
        let mut sum: Option<UOp> = None;
        for (level, first) in &plan.host {
            let range = plan.list[level.begin].clone();
            let by = UOp::int(*first, range.dtype());
            let part = match first {
                1 => range,
                _ => self.make(Op::Mul, [range, by]),
            };
            sum = Some(match sum {
                Some(sum) => self.make(Op::Add, [sum, part]),
                None => part,
            });
        }
        sum.expect("a host is a loop")
    }

    /// The number of a guest's first turn in one of the host's.
    fn first(&mut self, guest: &Guest, turn: &UOp) -> UOp {
        match guest.times {
            1 => turn.clone(),
            times => self.make(Op::Mul, [turn.clone(), UOp::int(times, turn.dtype())]),
        }
    }

    /// The number of a guest's turn, and the loop over those in one of the host's, where there are several.
    fn open(&mut self, guest: &Guest, first: UOp) -> (UOp, Option<UOp>) {
        if guest.times == 1 {
            return (first, None);
        }
        let times = UOp::int(guest.times, first.dtype());
        let own = &self.plan.list[guest.own.begin];
        let kind = own.range_arg().map_or(AxisType::Loop, |(_, kind)| kind);
        let range = own.with_src(vec![times]);
        let range = range.with_arg(Arg::Range(self.loops, kind));
        self.loops += 1;
        self.put(&range);
        let number = self.make(Op::Add, [first, range.clone()]);
        (number, Some(range))
    }

    /// Fill the storage's part of a turn.
    fn fill(&mut self, filler: &Guest, turn: &UOp) -> UOp {
        let plan = self.plan;
        let first = self.first(filler, turn);
        let (number, range) = self.open(filler, first);
        let mut names = self.front.clone();
        names.insert(plan.list[filler.own.begin].clone(), number);
        for u in filler.own.body(plan.list) {
            let new = self.renamed(u, &names);
            self.put(&new);
            names.insert(u.clone(), new);
        }
        let effect = &plan.list[filler.own.end].src()[0];
        let effect = names.get(effect).unwrap_or(effect).clone();
        match range {
            Some(range) => {
                let end = node(Op::End, [effect, range]);
                self.put(&end);
                end
            }
            None => effect,
        }
    }

    /// Write a turn's part of the row before, if there is one. Places are worked out before that is asked: others may
    /// need them.
    fn write(&mut self, turn: &UOp) {
        let plan = self.plan;
        let writer = &plan.writer;
        let condition = node(Op::If, [self.written.clone()]);
        let first = self.first(writer, turn);
        let apart = writer.times == 1;
        if !apart {
            self.put(&condition);
        }
        let (number, range) = self.open(writer, first);
        let mut names = self.back.clone();
        names.insert(plan.list[writer.own.begin].clone(), number);
        // What depends on memory, as it was before.
        let mut late: FxHashSet<&UOp> = FxHashSet::default();
        for u in writer.own.body(plan.list) {
            let depends = u.src().iter().any(|s| late.contains(s));
            if depends || matches!(u.op(), Op::Load | Op::Store | Op::Group) {
                late.insert(u);
            }
        }
        let body = writer.own.body(plan.list);
        let (after, before): (Vec<&UOp>, Vec<&UOp>) = body.iter().partition(|u| late.contains(u));
        self.copy(&before, &mut names);
        if apart {
            self.put(&condition);
        }
        self.copy(&after, &mut names);
        if let Some(range) = range {
            let effect = &plan.list[writer.own.end].src()[0];
            let effect = names.get(effect).unwrap_or(effect).clone();
            self.put(&node(Op::End, [effect, range]));
        }
        self.put(&node(Op::EndIf, [condition]));
    }

    /// Append instructions by other names.
    fn copy(&mut self, all: &[&UOp], names: &mut Names) {
        for u in all {
            if names.contains_key(*u) {
                continue;
            }
            let new = self.renamed(u, names);
            self.put(&new);
            names.insert((*u).clone(), new);
        }
    }
}
