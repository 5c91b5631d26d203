//! Lines that are asked for in several places at once. Flows in: the lines that a turn of a loop reads; flows out: how far
//! from each of them the line is that the turn asks for instead. Invariant: all turns together ask for each line once.
//!
//! What a core fetches by itself goes on within a page, so of lines that follow each other few are under way, however
//! many of them are asked for. A part that is asked for as several strands, each of whole pages, has as many times more.

use crate::ahead::LINE;
use crate::graph::node;
use monoglot_uop::linear::address;
use monoglot_uop::rules::Affine;
use monoglot_uop::{Op, UOp};

/// Strands of a part.
const STRANDS: i128 = 4;
/// Lines of a page, the least of a strand.
const PAGE: i128 = 4096 / LINE;

/// A line that a loop reads.
pub(crate) struct Line<'a> {
    /// The place in the list of the first LOAD of it.
    pub(crate) at: usize,
    pub(crate) load: &'a UOp,
    /// Its number, and the first element that is read of it, where all loops are at 0.
    number: i128,
    first: i128,
}

/// The lines that a turn of a loop reads of one storage.
pub(crate) struct Lines<'a> {
    /// The number of the turn, through the loops around that go on where this one ends, and how many there are.
    turn: Affine,
    turns: i128,
    /// Elements from a turn to the next one, and bytes of an element.
    pub(crate) step: i128,
    bytes: i128,
    /// In the order of their numbers.
    pub(crate) all: Vec<Line<'a>>,
}

/// A part of storage that is asked for as strands: each is as long, and begins where the one before it ends.
pub(crate) struct Strands {
    count: i128,
    /// Lines of one.
    long: i128,
    /// Lines of a turn.
    each: i128,
    /// The number of the turn among those that ask for the part.
    turn: Affine,
    /// Lines from where the loops begin to the part.
    from: Affine,
    /// The first turn whose part is none that the loops read.
    pub(crate) end: i128,
}

impl<'a> Lines<'a> {
    /// None yet, of the first of these loops, which is inside of the others, each with the elements that a turn of it goes
    /// on by.
    pub(crate) fn of(loops: &[(&UOp, i128)], bytes: i128) -> Lines<'a> {
        let mut lines = Lines {
            turn: Affine::number(loops[0].0.dtype(), 0),
            turns: 1,
            step: loops[0].1,
            bytes,
            all: Vec::new(),
        };
        for (range, step) in loops {
            let turns = range.src()[0].as_int().filter(|_| range.src().len() == 1);
            let goes_on = *step == lines.step * lines.turns;
            let (Some(turns), true) = (turns, goes_on) else {
                break;
            };
            if lines.turn.term(range, lines.turns).is_none() {
                break;
            }
            lines.turns *= turns as i128;
        }
        lines
    }

    /// One more LOAD, at this place in the list, which reads from this element on where all loops are at 0.
    pub(crate) fn add(&mut self, at: usize, load: &'a UOp, first: i128) {
        let number = (first * self.bytes).div_euclid(LINE);
        let place = self.all.binary_search_by_key(&number, |l| l.number);
        if let Err(place) = place {
            let line = Line {
                at,
                load,
                number,
                first,
            };
            self.all.insert(place, line);
        }
    }

    /// All that the loops read, as a part; None where lines do not follow each other, where turns do not go into strands,
    /// and where there is one alone.
    pub(crate) fn strands(&self) -> Option<Strands> {
        self.of_turns(self.turns, self.turn.clone())
    }

    /// The same of the pages that are read after those of a turn, one for each strand; None where there are no others, too.
    pub(crate) fn pages(&self) -> Option<Strands> {
        let turns = STRANDS * PAGE / self.all.len() as i128;
        let parts = self.turns / turns.max(1);
        if parts < 2 || !(turns as u128).is_power_of_two() {
            return None;
        }
        let turn = self.turn.build();
        let mut within = Affine::number(turn.dtype(), 0);
        within.term(&remainder(&turn, turns), 1)?;
        let mut strands = self.of_turns(turns, within)?;
        strands.from.constant = STRANDS * PAGE;
        strands.from.term(&quotient(&turn, turns), STRANDS * PAGE)?;
        strands.end = (parts - 1) * turns;
        Some(strands)
    }

    fn of_turns(&self, turns: i128, turn: Affine) -> Option<Strands> {
        let each = self.all.len() as i128;
        let beside = self.all.windows(2).all(|w| w[1].number == w[0].number + 1);
        let follow = beside && self.step * self.bytes == each * LINE;
        let lines = turns * each;
        let rounds = |count: i128| count % each == 0 && turns % (count / each) == 0;
        let fits = |count: &i128| {
            lines >= count * PAGE && lines % count == 0 && (each % count == 0 || rounds(*count))
        };
        let count = [STRANDS, STRANDS / 2].into_iter().find(fits)?;
        follow.then_some(Strands {
            count,
            long: lines / count,
            each,
            from: Affine::number(turn.dtype, 0),
            end: turns,
            turn,
        })
    }

    /// Elements from the `k`th line that a turn reads to the one that it asks for.
    pub(crate) fn apart(&self, k: usize, strands: &Strands) -> Option<Affine> {
        let line = &self.all[k];
        let index = address(&line.load.src()[0])?.index;
        let mut elements = Affine::number(self.turn.dtype, self.all[0].first - line.first);
        elements.plus(&strands.line(k as i128)?, LINE / self.bytes)?;
        elements.plus(&self.turn, -self.step)?;
        (index.dtype() == self.turn.dtype).then_some(elements)
    }
}

impl Strands {
    /// The line that a turn asks for where its own is the `k`th of its lines, counted from where the loops begin.
    fn line(&self, k: i128) -> Option<Affine> {
        let mut line = self.from.clone();
        let along = self.each / self.count;
        if along > 0 {
            line.constant += k / along * self.long + k % along;
            line.plus(&self.turn, along)?;
            return Some(line);
        }
        // Several turns go by until it is each strand's again.
        let round = self.count / self.each;
        let turn = self.turn.build();
        line.constant += k * self.long;
        line.term(&quotient(&turn, round), 1)?;
        line.term(&remainder(&turn, round), self.each * self.long)?;
        Some(line)
    }
}

/// A number that is not negative over a power of two.
fn quotient(u: &UOp, by: i128) -> UOp {
    let shift = UOp::int(by.ilog2() as i64, u.dtype());
    node(Op::Shr, [u.clone(), shift])
}

/// What is left of it.
fn remainder(u: &UOp, by: i128) -> UOp {
    let mask = UOp::int(by as i64 - 1, u.dtype());
    node(Op::And, [u.clone(), mask])
}
