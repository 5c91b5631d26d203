//! Several turns of an innermost loop between jumps. Flows in: code whose registers have numbers; flows out: the same
//! code, whose short innermost loops jump less often, or not at all. Always: each turn does what it did, in the order in
//! which it did it; what is read after a loop is what it was.
//!
//! A register that a turn moves on by a number, after all that it addresses by it, is moved on once for all turns
//! between jumps: those past the first have its steps in their displacements. Where nobody knows how often a loop turns, its
//! counter is ahead by all turns between jumps but one, so that it is compared with the end as it was; the turns left are a
//! loop of their own. What is written and read in a turn alone has
//! in each the name of a register of its own, of the same place: with AVX-512 a mask is told by who reads its name.

use crate::code::{
    Allocated, Cond, Do, Ins, Level, Operand, Place, Reg, Width, innermost, is_straight,
};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// Instructions between jumps at most: what keeps them decoded holds a few thousand.
const BETWEEN: usize = 160;
/// Turns between jumps at most: a jump and what counts are then a small part of what they do.
const TURNS: i64 = 4;
/// Turns at most that are no loop.
const FEW: i64 = 8;
/// Turns of a loop, of which nobody knows how often it turns, at most: where fewer are all there can be, asking costs more.
const MANY: i64 = 16;
/// General registers of the machine.
const GENERAL: usize = 16;

/// Has innermost loops that are short jump less often.
pub(crate) fn unroll(code: &mut Allocated, level: Level) {
    let mut loops = innermost(&code.code.ins);
    loops.retain(|l| l.len() <= BETWEEN && is_straight(&code.code.ins[l.clone()]));
    if loops.is_empty() {
        return;
    }
    let mentions = mentions(&code.code.ins, code.places.len());
    let mut labels = labels(&code.code.ins);
    let count = code.code.ins.len();
    let mut old = std::mem::take(&mut code.code.ins).into_iter();
    let mut new = Vec::with_capacity(2 * count);
    let mut from = 0;
    for l in loops {
        new.extend(old.by_ref().take(l.start - from));
        from = l.end;
        let all: Vec<Ins> = old.by_ref().take(l.len()).collect();
        let Some(mut several) = Loop::of(&new, &all, &code.places, &mentions) else {
            new.extend(all);
            continue;
        };
        if level == Level::V4 {
            several.name(&all, &mentions);
        }
        several.write(&all, &mut labels, &mut new);
        for r in several.names() {
            code.code.regs.push(code.code.regs[r.0 as usize]);
            code.places.push(code.places[r.0 as usize]);
            code.origin.push(code.origin[r.0 as usize]);
        }
    }
    new.extend(old);
    code.code.ins = new;
}

/// The first number that no loop or jump has.
fn labels(all: &[Ins]) -> i64 {
    let placed = all.iter().filter(|i| matches!(i.op, Do::Loop | Do::Land));
    let numbers = placed.filter_map(|i| match i.src[0] {
        Operand::Imm(number) => Some(number),
        _ => None,
    });
    numbers.max().map_or(0, |most| most + 1)
}

/// How often instructions mention each register.
fn mentions(all: &[Ins], registers: usize) -> Vec<u32> {
    let mut count = vec![0; registers];
    for ins in all {
        let mut one = |r: Reg| count[r.0 as usize] += 1;
        ins.reads(&mut one);
        ins.dst.into_iter().for_each(one);
    }
    count
}

/// An innermost loop of which several turns stand between jumps.
struct Loop<'a> {
    /// By number of the register, what is moved on once for all of these.
    moved: [Option<Moved>; GENERAL],
    /// By how much a turn moves its counter on.
    step: i64,
    /// Where the counter begins, and how often the loop turns.
    known: Option<[i64; 2]>,
    /// Turns between jumps.
    at_once: i64,
    /// By number of a register of the list, the machine's.
    places: &'a [Place],
    /// What is written and read in a turn alone, in order.
    own: FxHashMap<Reg, u32>,
}

/// A register that a turn moves on.
#[derive(Copy, Clone)]
struct Moved {
    /// The instruction of a turn that does, and by how much.
    at: usize,
    step: i64,
    /// How many turns it is ahead of them.
    ahead: i64,
    /// Whether something besides the loop reads it.
    is_read_after: bool,
    /// The number that it is in the first turn, and where that is set, if the loop is all that wants it and never jumps.
    begins: Option<(usize, i64)>,
}

impl<'a> Loop<'a> {
    /// The loop that these instructions are, from its top to its end, after those that came before.
    fn of(before: &[Ins], all: &[Ins], places: &'a [Place], mentions: &[u32]) -> Option<Loop<'a>> {
        let [top, turn @ .., next] = all else {
            return None;
        };
        let [Operand::Reg(counter), end, _] = next.src[..] else {
            return None;
        };
        let uses = Use::all(turn, places);
        let counts = uses[general(places, counter)?];
        let moved = counts.moved.filter(|_| !counts.written);
        let step = moved.map(|(_, step)| step).filter(|step| *step > 0)?;
        let is_same = |r: Reg| {
            let end = general(places, r).map(|r| uses[r]);
            end.is_some_and(|u| u.moved.is_none() && !u.written)
        };
        let known = match (set_before(before, places, counter), end) {
            (Some((_, first)), Operand::Imm(end)) if first >= 0 => {
                Some([first, (end - first + step - 1) / step])
            }
            (_, Operand::Imm(_)) => None,
            (_, Operand::Reg(r)) if is_same(r) => None,
            _ => return None,
        };
        let once = uses.iter().filter(|u| u.once().is_some()).count();
        let most = (BETWEEN / (turn.len() - once).max(1)) as i64;
        let mut several = [TURNS, TURNS / 2].into_iter().filter(|n| *n <= most);
        let at_once = match (known, top.src.get(1)) {
            (Some([_, turns]), _) if turns <= FEW.min(most) => turns,
            (Some([_, turns]), _) => several.find(|n| 2 * n <= turns)?,
            (None, Some(Operand::Imm(MANY..))) => {
                several.next().filter(|_| counts.once().is_some())?
            }
            _ => return None,
        };
        let whole = known.is_some_and(|[_, turns]| turns == at_once);
        let moved = |u: Use| {
            let (at, step) = u.once()?;
            let r = turn[at].dst?;
            let begins = set_before(before, places, r);
            // Besides the turns, the end of the loop and where it is set.
            let inside = u.mentions + u32::from(r == counter);
            let is_read_after = mentions[r.0 as usize] > inside + u32::from(begins.is_some());
            let ahead = match known.is_none() && r == counter {
                true => at_once - 1,
                false => 0,
            };
            Some(Moved {
                at,
                step,
                ahead,
                is_read_after,
                begins: begins.filter(|_| whole && !is_read_after && !u.is_base),
            })
        };
        let several = Loop {
            moved: uses.map(moved),
            step,
            known,
            at_once,
            places,
            own: FxHashMap::default(),
        };
        // What reaches the first and the last turn reaches those between.
        let reached = |ins: &Ins| {
            let mut turns = [0, at_once - 1].into_iter();
            turns.all(|k| several.later(ins, k, 0).is_some())
        };
        let mut moved = several.moved.iter().flatten();
        let small = moved.all(|m| i32::try_from(m.step * at_once).is_ok());
        (small && turn.iter().all(reached)).then_some(several)
    }

    /// Find what is written in a turn before it is read, and mentioned nowhere else.
    fn name(&mut self, all: &[Ins], mentions: &[u32]) {
        let mut here: FxHashMap<Reg, (u32, bool)> = FxHashMap::default();
        let mut written = Vec::new();
        for ins in all {
            ins.reads(|r| here.entry(r).or_insert((0, false)).0 += 1);
            if let Some(dst) = ins.dst {
                let one = here.entry(dst).or_insert_with(|| {
                    written.push(dst);
                    (0, true)
                });
                one.0 += 1;
            }
        }
        written.retain(|r| here[r] == (mentions[r.0 as usize], true));
        self.own = written.into_iter().zip(0..).collect();
    }

    /// Of each register that is named in turns past the first, what it is in that.
    fn names(&self) -> Vec<Reg> {
        let mut own: Vec<(u32, Reg)> = self.own.iter().map(|(r, k)| (*k, *r)).collect();
        own.sort_unstable();
        let more = match self.known {
            Some([_, turns]) => self.at_once + turns % self.at_once - 1,
            None => self.at_once,
        };
        let all = (0..more).flat_map(|_| &own);
        all.map(|(_, r)| *r).collect()
    }

    /// Append the loop, and what turns are left after those that all stand between jumps.
    fn write(&self, all: &[Ins], labels: &mut i64, new: &mut Vec<Ins>) {
        let [top, turn @ .., next] = all else {
            return;
        };
        let Some([first, turns]) = self.known else {
            self.ask_first(all, labels, new);
            return;
        };
        if turns == self.at_once {
            let begins = self.moved.iter().flatten().filter_map(|m| m.begins);
            let mut unread: Vec<usize> = begins.map(|(at, _)| at).collect();
            unread.sort_unstable();
            for at in unread.into_iter().rev() {
                new.remove(at);
            }
            self.several(turn, 0..turns, true, new);
            return;
        }
        let left = turns % self.at_once;
        new.push(top.clone());
        self.several(turn, 0..self.at_once, false, new);
        let mut next = next.clone();
        next.src[1] = Operand::Imm(first + self.step * (turns - left));
        new.push(next);
        self.several(turn, self.at_once..self.at_once + left, true, new);
    }

    /// The same where it is not known how often the loop turns: as long as so many turns are left, all at once, then one by
    /// one. Numbers of 32 bits are counted and compared as ones of 64, which none is ahead of: none is negative.
    fn ask_first(&self, all: &[Ins], labels: &mut i64, new: &mut Vec<Ins>) {
        let [top, turn @ .., next] = all else {
            return;
        };
        let [Operand::Reg(counter), end, _] = next.src[..] else {
            return;
        };
        let own = *labels;
        *labels += 3;
        let here = Operand::Reg(counter);
        let made = |op: Do, width: Width, src: &[Operand]| Ins {
            op,
            width,
            dst: None,
            src: src.iter().copied().collect(),
            mark: next.mark,
        };
        let ahead = self.step * (self.at_once - 1);
        let moved = |by: i64| Ins {
            dst: Some(counter),
            ..made(Do::Add, Width::W64, &[here, Operand::Imm(by)])
        };
        let pass = |width: Width, label: i64| {
            let skip = Do::SkipIf(Cond::GreaterEqual);
            made(skip, width, &[here, end, Operand::Imm(label)])
        };
        new.push(moved(ahead));
        new.push(pass(Width::W64, own + 1));
        new.push(made(Do::Loop, Width::W64, &[Operand::Imm(own)]));
        self.several(turn, 1..1 + self.at_once, false, new);
        new.push(made(Do::Next, Width::W64, &[here, end, Operand::Imm(own)]));
        new.push(made(Do::Land, Width::W64, &[Operand::Imm(own + 1)]));
        new.push(moved(-ahead));
        new.push(pass(next.width, own + 2));
        new.push(top.clone());
        new.extend_from_slice(turn);
        new.push(next.clone());
        new.push(made(Do::Land, Width::W64, &[Operand::Imm(own + 2)]));
    }

    /// Append turns, named by these numbers, which are the last ones or go on to a jump.
    fn several(&self, turn: &[Ins], named: Range<i64>, last: bool, new: &mut Vec<Ins>) {
        let count = named.end - named.start;
        for (k, name) in named.enumerate() {
            for (at, ins) in turn.iter().enumerate() {
                let Some(moved) = self.moved.iter().flatten().find(|m| m.at == at) else {
                    let there = self.later(ins, k as i64, name);
                    new.push(there.expect("what reaches the last turn reaches this one"));
                    continue;
                };
                if k as i64 + 1 == count && (moved.is_read_after || !last) {
                    let mut ins = ins.clone();
                    ins.src[1] = Operand::Imm(moved.step * count);
                    new.push(ins);
                }
            }
        }
    }

    /// An instruction as it is so many turns later, in the turn that is named by a number; None where its displacement would
    /// not go so far.
    fn later(&self, ins: &Ins, turns: i64, named: i64) -> Option<Ins> {
        let mut ins = ins.clone();
        let name = |r: Reg| match self.own.get(&r).filter(|_| named > 0) {
            Some(k) => {
                let before = (named - 1) as usize * self.own.len();
                Reg((self.places.len() + before) as u32 + k)
            }
            None => r,
        };
        for source in &mut ins.src {
            if let Operand::Mem(m) | Operand::Each(m) = source {
                let base = self.moved(m.base);
                let mut further = base.map_or(0, |base| base.step * (turns - base.ahead));
                if let Some((index, scale)) = m.index
                    && let Some(moved) = self.moved(index)
                {
                    let begins = moved.begins.map(|(_, number)| number);
                    let there = moved.step * (turns - moved.ahead) + begins.unwrap_or(0);
                    further += there * i64::from(scale);
                    m.index = m.index.filter(|_| begins.is_none());
                }
                m.displacement = (i64::from(m.displacement) + further).try_into().ok()?;
            }
            source.rename(name);
        }
        ins.dst = ins.dst.map(name);
        Some(ins)
    }

    /// What is moved on once for all.
    fn moved(&self, r: Reg) -> Option<&Moved> {
        self.moved[general(self.places, r)?].as_ref()
    }
}

/// Where a register is set last, in the straight stretch that instructions end with, if that is to a number, and to which.
fn set_before(before: &[Ins], places: &[Place], r: Reg) -> Option<(usize, i64)> {
    let straight = before.iter().enumerate().rev();
    let mut straight = straight.take_while(|(_, ins)| !ins.op.is_control());
    let place = general(places, r);
    let (at, ins) = straight.find(|(_, ins)| written(places, ins) == place)?;
    match (ins.op, &ins.src[..]) {
        (Do::Immediate, [Operand::Imm(number)]) if ins.dst == Some(r) => Some((at, *number)),
        _ => None,
    }
}

/// What a turn does to a general register.
#[derive(Copy, Clone, Default)]
struct Use {
    /// The first instruction that moves it on, and by how much.
    moved: Option<(usize, i64)>,
    /// The last instruction that addresses by it.
    addresses: Option<usize>,
    /// Whether an address begins with it.
    is_base: bool,
    /// Whether it is written besides, and read.
    written: bool,
    read: bool,
    /// How often it is mentioned.
    mentions: u32,
}

impl Use {
    /// What a turn does to each of them.
    fn all(turn: &[Ins], places: &[Place]) -> [Use; GENERAL] {
        let mut uses = [Use::default(); GENERAL];
        for (at, ins) in turn.iter().enumerate() {
            note(&mut uses, at, ins, places);
        }
        uses
    }

    /// What moves it on, where that may be done once for several turns.
    fn once(self) -> Option<(usize, i64)> {
        let moved = self.moved.filter(|_| !self.written && !self.read);
        moved.filter(|(at, _)| self.addresses < Some(*at))
    }
}

/// Add what an instruction does to registers.
fn note(uses: &mut [Use; GENERAL], at: usize, ins: &Ins, places: &[Place]) {
    let general = |r: Reg| general(places, r);
    let to = written(places, ins);
    let moves = match (ins.op, &ins.src[..]) {
        (Do::Add, [Operand::Reg(r), Operand::Imm(step)]) if ins.dst == Some(*r) => Some(*step),
        _ => None,
    };
    if let Some(to) = to {
        uses[to].mentions += 1;
        match moves {
            Some(step) if uses[to].moved.is_none() => uses[to].moved = Some((at, step)),
            _ => uses[to].written = true,
        }
    }
    ins.reads(|r| general(r).into_iter().for_each(|r| uses[r].mentions += 1));
    // Rows of a tile are so far from each other: that is no part of where the first one lies.
    let tile = matches!(ins.op, Do::TileLoad | Do::TileStore);
    for source in &ins.src {
        match source {
            Operand::Reg(r) if moves.is_none() => {
                general(*r).into_iter().for_each(|r| uses[r].read = true);
            }
            Operand::Mem(m) | Operand::Each(m) => {
                if let Some(base) = general(m.base) {
                    uses[base].addresses = Some(at);
                    uses[base].is_base = true;
                }
                if let Some(index) = m.index.and_then(|(r, _)| general(r)) {
                    uses[index].addresses = Some(at);
                    uses[index].read |= tile;
                }
            }
            _ => {}
        }
    }
}

/// The machine's number of the general register that an instruction writes.
fn written(places: &[Place], ins: &Ins) -> Option<usize> {
    ins.dst.and_then(|dst| general(places, dst))
}

/// The machine's number of a general register.
fn general(places: &[Place], r: Reg) -> Option<usize> {
    match places.get(r.0 as usize) {
        Some(Place::General(number)) => Some((*number).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
