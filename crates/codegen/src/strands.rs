//! Lines that are asked for in several places at once. Flows in: the lines that a turn of a loop reads; flows out: how far
//! from each of them the line is that the turn asks for instead. Invariant: all turns together ask for each line, and for
//! as many as they read.
//!
//! What a core fetches by itself goes on within a page, so of lines that follow each other few are under way, however
//! many of them are asked for. A part that is asked for as several strands, each of whole pages, has as many times more.

use crate::asks::LINE;
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

    /// Whether a turn reads more than one piece of neighbours.
    pub(crate) fn are_apart(&self) -> bool {
        self.all.windows(2).any(|w| w[1].number != w[0].number + 1)
    }

    /// All that the loops read, as a part; None where lines do not follow each other, where turns do not go into strands,
    /// and where there is one alone.
    pub(crate) fn strands(&self) -> Option<Strands> {
        self.of_turns(self.turns, self.turn.clone())
    }

    /// The same of the pages that are read after those of a turn, one for each strand; None where there are no others, too.
    pub(crate) fn pages(&self) -> Option<Strands> {
        let turns = STRANDS * PAGE * self.turns_of_line() / self.all.len() as i128;
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

    /// How many turns read one line: several, where a turn reads a part of one.
    fn turns_of_line(&self) -> i128 {
        LINE / (self.step * self.bytes).clamp(1, LINE)
    }

    fn of_turns(&self, end: i128, mut turn: Affine) -> Option<Strands> {
        let each = self.all.len() as i128;
        let part = self.turns_of_line();
        let follow = !self.are_apart() && self.step * self.bytes * part == each * LINE;
        let turns = end / part;
        if part > 1 {
            let line = quotient(&turn.build(), part);
            turn = Affine::number(turn.dtype, 0);
            turn.term(&line, 1)?;
        }
        let lines = turns * each;
        let rounds = |count: i128| count % each == 0 && turns % (count / each) == 0;
        let fits = |count: &i128| {
            lines >= count * PAGE && lines % count == 0 && (each % count == 0 || rounds(*count))
        };
        let count = [STRANDS, STRANDS / 2].into_iter().find(fits)?;
        (follow && end % part == 0).then_some(Strands {
            count,
            long: lines / count,
            each,
            from: Affine::number(turn.dtype, 0),
            end,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opt::tests::support::{param, ranges};
    use monoglot_uop::DType;
    use rustc_hash::FxHashMap;

    /// The lines that the turns of two loops ask for, of a storage of f32 of which each turn reads so many lines, or every
    /// so many turns one, and how many of the first asks are of different pages.
    fn asked(
        [outer, inner]: [i64; 2],
        each: i64,
        part: i64,
        pages: bool,
    ) -> Option<(Vec<i64>, usize)> {
        let elements = LINE as i64 / 4;
        let step = each * elements / part;
        let r = ranges(&[outer, inner], &[]);
        let storage = param(0, &[2 * outer * inner * step], DType::F32);
        let turn = &(&r[0] * &r[0].like(inner)) + &r[1];
        let loads: Vec<UOp> = (0..each)
            .map(|k| &(&turn * &turn.like(step)) + &turn.like(k * elements))
            .map(|at| node(Op::Load, [storage.at(&[at])]))
            .collect();
        let loops = [(&r[1], step as i128), (&r[0], (inner * step) as i128)];
        let mut lines = Lines::of(&loops, 4);
        for (k, load) in loads.iter().enumerate() {
            lines.add(k, load, k as i128 * elements as i128);
        }
        let strands = if pages {
            lines.pages()
        } else {
            lines.strands()
        }?;
        let mut asked = Vec::new();
        for t in 0..strands.end as i64 {
            let here =
                [(&r[0], t / inner), (&r[1], t % inner)].map(|(r, n)| (r.clone(), r.like(n)));
            let here = FxHashMap::from_iter(here);
            for (k, line) in lines.all.iter().enumerate() {
                let index = address(&line.load.src()[0])?.index;
                let at = index + &lines.apart(k, &strands)?.build();
                asked.push(at.substitute(&here).simplify().as_int()? / elements);
            }
        }
        let mut first: Vec<i64> = asked[..16].iter().map(|l| l / PAGE as i64).collect();
        first.sort_unstable();
        first.dedup();
        Some((asked, first.len()))
    }

    #[test]
    fn each_line_is_asked_for_and_several_pages_at_a_time() {
        let whole = [
            ([1, 256], 1, 1),
            ([50, 20], 2, 1),
            ([3, 128], 4, 1),
            ([7, 64], 8, 1),
            ([5, 32], 16, 1),
            ([1, 130], 1, 1),
            ([4, 128], 1, 2),
            ([1, 1024], 1, 4),
        ];
        for (turns, each, part) in whole {
            let (mut lines, places) = asked(turns, each, part, false).unwrap();
            assert!(places >= 2, "{turns:?} × {each} / {part}: {places}");
            lines.sort_unstable();
            let all = (0..turns[0] * turns[1] * each).map(|t| t / part);
            assert_eq!(lines, Vec::from_iter(all));
        }
        for (inner, each, part) in [
            (1024, 1, 1),
            (700, 2, 1),
            (128, 4, 1),
            (100, 8, 1),
            (2048, 1, 2),
        ] {
            let (mut lines, places) = asked([1, inner], each, part, true).unwrap();
            assert_eq!(places, 4, "{inner} × {each} / {part}");
            lines.sort_unstable();
            let next = 4 * PAGE as i64;
            let all = (0..lines.len() as i64).map(|t| next + t / part);
            assert_eq!(lines, Vec::from_iter(all));
            assert!(lines[lines.len() - 1] < inner * each / part);
        }
    }

    #[test]
    fn what_is_short_or_odd_is_one_strand() {
        for (inner, each, part) in [
            (127, 1, 1),
            (255, 3, 1),
            (129, 1, 1),
            (16, 4, 1),
            (255, 1, 2),
        ] {
            let one = asked([1, inner], each, part, false);
            assert!(one.is_none(), "{inner} × {each} / {part}");
        }
        for (inner, each, part) in [(511, 1, 1), (127, 4, 1), (900, 3, 1), (1023, 1, 2)] {
            let one = asked([1, inner], each, part, true);
            assert!(one.is_none(), "{inner} × {each} / {part}");
        }
    }
}
