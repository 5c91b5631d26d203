//! Registers of the machine for those without number, in the order in which they come into use. Flows in: code, its
//! spans; flows out: a place for each, and those that found none. Always: two whose spans overlap get two registers
//! (but for shares that the spans allow), and what was put in for the frame always gets one.
//!
//! In the order of starts so few registers are needed as spans overlap at most, so that nothing goes to the frame
//! without need. Where too many overlap, the one goes that is cheapest in the frame: a mention in a loop costs 8
//! times one around it, a constant that can be made again costs less, and one that stays long relieves more.

use super::spans::{NONE, Spans};
use crate::code::{Class, Code, Do, Ins, Level, Operand, Place, Reg};
use crate::table::Form;
use smallvec::SmallVec;

/// The general registers in the order of preference: those first that a function need not keep for its caller.
pub(super) const GENERAL: [u8; 11] = [6, 7, 8, 9, 10, 11, 3, 12, 13, 14, 15];

/// How a constant's cost compares with that of a value that must be stored.
const CONSTANT: f32 = 0.4;

/// And that of what is written again and again: from turn to turn somebody waits for it.
const CARRIED: f32 = 4.0;

/// Half positions beyond which a longer stay relieves no more: so a long stay outweighs two levels of loops never.
const RELIEF: u32 = 16;

/// No register of the machine.
const NOWHERE: u8 = u8::MAX;

/// What came of it.
#[derive(Debug)]
pub(super) struct Assigned {
    /// By number of the register.
    pub(super) places: Vec<Place>,
    /// Those that must go to the frame.
    pub(super) spilled: Vec<Reg>,
}

/// Gives the registers places. Those from the number `tiny` on are never spilled.
pub(super) fn assign(code: &Code, spans: &Spans, level: Level, tiny: u32) -> Assigned {
    let mut general = Bank::new(GENERAL.len());
    let mut vector = Bank::new(level.vector_registers() as usize);
    let mut numbers = vec![NOWHERE; code.regs.len()];
    let mut spilled = Vec::new();
    for &number in &spans.order {
        let span = &spans.of[number as usize];
        if span.start == NONE || span.into != NONE {
            continue;
        }
        let class = code.regs[number as usize].class;
        let bank = match class {
            Class::General => &mut general,
            Class::Vector => &mut vector,
        };
        let segments = segments(spans, number);
        let free = bank.free(&segments);
        let chosen = if free != 0 {
            let wish = wish(code, spans, &numbers, number, level, class);
            wish.choose(free)
        } else {
            let own = price(code, spans, number, span.end - span.start);
            let (cheapest, cost) = bank.cheapest(code, spans, &segments, tiny);
            if number < tiny && own < cost {
                spilled.push(Reg(number));
                continue;
            }
            spilled.extend(bank.evict(cheapest, &segments));
            cheapest
        };
        bank.take(chosen, &segments, number);
        numbers[number as usize] = chosen as u8;
    }
    let places = (0..code.regs.len() as u32)
        .map(
            |number| match numbers[holder(spans, number) as usize] as usize {
                chosen if chosen == NOWHERE as usize => Place::Nowhere,
                chosen => match code.regs[number as usize].class {
                    Class::General => Place::General(GENERAL[chosen]),
                    Class::Vector => Place::Vector(chosen as u8),
                },
            },
        )
        .collect();
    Assigned { places, spilled }
}

/// The register whose place this one has.
fn holder(spans: &Spans, number: u32) -> u32 {
    let mut holder = number;
    while spans.of[holder as usize].into != NONE {
        holder = spans.of[holder as usize].into;
    }
    holder
}

/// The half positions at which a register is in one of the machine's: those of its span, but for where it waits.
fn segments(spans: &Spans, number: u32) -> Segments {
    let span = &spans.of[number as usize];
    let mut out = Segments::new();
    let mut start = span.start;
    for &(from, to) in spans.gaps.get(&number).into_iter().flatten() {
        if from > start && to < span.end {
            out.push((start, from - 1));
            start = to + 1;
        }
    }
    out.push((start, span.end));
    out
}

/// From one half position to another, in order.
type Segments = SmallVec<[(u32, u32); 2]>;

/// What keeping a register in the frame costs, by what it relieves.
fn price(code: &Code, spans: &Spans, number: u32, stays: u32) -> f32 {
    let relief = stays.clamp(1, RELIEF);
    let factor = match code.regs[number as usize].again {
        Some(_) => CONSTANT,
        None if spans.of[number as usize].writes > 1 => CARRIED,
        None => 1.0,
    };
    spans.of[number as usize].cost * factor / relief as f32
}

/// The registers of the machine of one class, by preference.
struct Bank {
    count: usize,
    /// When each is taken, and by whom, as far as that is not over.
    taken: [Vec<(u32, u32, u32)>; 32],
    /// The first half position from which on each is free.
    over: [u32; 32],
    /// A bit for each that has a holder who waits in the frame meanwhile, or had: it may be free before.
    gaps: u32,
}

impl Bank {
    fn new(count: usize) -> Bank {
        Bank {
            count,
            taken: Default::default(),
            over: [0; 32],
            gaps: 0,
        }
    }

    /// Whether a register of the machine is taken at any of these half positions by somebody else.
    fn overlapping(&self, i: usize, segments: &Segments) -> impl Iterator<Item = &(u32, u32, u32)> {
        self.taken[i].iter().filter(|&&(start, end, _)| {
            let meets = |&(from, to): &(u32, u32)| from <= end && start <= to;
            segments.iter().any(meets)
        })
    }

    /// A bit for each that is free.
    fn free(&self, segments: &Segments) -> u32 {
        let from = segments[0].0;
        let mut free = 0;
        for (i, &over) in self.over[..self.count].iter().enumerate() {
            free |= u32::from(over <= from) << i;
        }
        for i in (0..self.count).filter(|i| self.gaps >> i & 1 == 1) {
            let is = self.overlapping(i, segments).next().is_none();
            free |= u32::from(is) << i;
        }
        free
    }

    /// The one whose holders are best kept in the frame instead, and what that costs.
    fn cheapest(&self, code: &Code, spans: &Spans, segments: &Segments, tiny: u32) -> (usize, f32) {
        let at = segments[0].0;
        let mut best: Option<(f32, u32, usize)> = None;
        for i in 0..self.count {
            let mut cost = 0.0;
            let mut until = 0;
            let mut may = true;
            let mut last = None;
            // A holder's segments follow each other: it is counted once.
            for &(_, end, number) in self.overlapping(i, segments) {
                may &= number < tiny;
                if last != Some(number) {
                    cost += price(code, spans, number, (end + 1).saturating_sub(at));
                }
                last = Some(number);
                until = until.max(end);
            }
            let better = best
                .is_none_or(|(least, longest, _)| cost < least || cost == least && until > longest);
            if may && better {
                best = Some((cost, until, i));
            }
        }
        let (cost, _, i) =
            best.expect("an instruction mentions fewer registers than the machine has");
        (i, cost)
    }

    /// Take a register of the machine from those who have it at these half positions.
    fn evict(&mut self, i: usize, segments: &Segments) -> Vec<Reg> {
        let mut out: Vec<u32> = self.overlapping(i, segments).map(|t| t.2).collect();
        out.sort_unstable();
        out.dedup();
        let taken = &mut self.taken[i];
        taken.retain(|t| !out.contains(&t.2));
        self.over[i] = taken.iter().map(|t| t.1 + 1).max().unwrap_or(0);
        out.into_iter().map(Reg).collect()
    }

    fn take(&mut self, i: usize, segments: &Segments, number: u32) {
        let now = segments[0].0;
        let taken = &mut self.taken[i];
        taken.retain(|&(_, end, _)| end >= now);
        taken.extend(segments.iter().map(|&(from, to)| (from, to, number)));
        let end = segments.last().map_or(now, |s| s.1);
        self.over[i] = self.over[i].max(end + 1);
        self.gaps |= u32::from(segments.len() > 1) << i;
    }
}

/// Which registers of the machine a destination had best get.
#[derive(Default)]
struct Wish {
    best: [u32; 3],
    avoid: u32,
}

impl Wish {
    fn choose(&self, free: u32) -> usize {
        let best = self.best.iter().map(|bit| bit & free);
        let apart = free & !self.avoid;
        let wished = best.chain([apart, free]).find(|&bits| bits != 0);
        wished.unwrap_or(free).trailing_zeros() as usize
    }
}

/// The wish for a register at the instruction that writes it first.
fn wish(
    code: &Code,
    spans: &Spans,
    numbers: &[u8],
    number: u32,
    level: Level,
    class: Class,
) -> Wish {
    let span = &spans.of[number as usize];
    let mut wish = Wish::default();
    if span.start.is_multiple_of(2) {
        return wish;
    }
    let ins = &code.ins[span.start as usize / 2];
    let bit = |source: usize| match ins.src.get(source) {
        Some(Operand::Reg(r)) if code.regs[r.0 as usize].class == class => {
            match numbers[holder(spans, r.0) as usize] {
                NOWHERE => 0,
                chosen => 1 << chosen,
            }
        }
        _ => 0,
    };
    let (sources, avoid) = wished_sources(ins, level);
    for (best, &source) in wish.best.iter_mut().zip(sources) {
        *best = bit(source);
    }
    wish.avoid = avoid.map_or(0, bit);
    wish
}

/// The sources whose register the destination had best have, the best first, and one whose it had best not have.
fn wished_sources(ins: &Ins, level: Level) -> (&'static [usize], Option<usize>) {
    match ins.op {
        Do::Move | Do::Neg | Do::Not | Do::Load32 => (&[0], None),
        Do::Add | Do::Mul | Do::And | Do::Or | Do::Xor => (&[0, 1], None),
        Do::Sub | Do::Shl | Do::Shr | Do::Sar => (&[0], Some(1)),
        Do::Select => (&[2, 1], Some(0)),
        Do::Vector(v) => match (v.form(), level) {
            (Form::Fma, _) => (&[2, 0, 1], None),
            (Form::Dot, _) => (&[2], None),
            (Form::MaskFma, _) => (&[3], None),
            (Form::Table, _) => (&[0, 1], Some(2)),
            (Form::ThreeCommuting, Level::V2) => (&[0, 1], None),
            (Form::Three, Level::V2) => (&[0], Some(1)),
            (Form::ShiftImm, Level::V2) => (&[0], None),
            _ => (&[], None),
        },
        _ => (&[], None),
    }
}
