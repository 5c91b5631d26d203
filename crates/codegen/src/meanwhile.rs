//! Panels are asked for while others are worked with. Flows in: a LINEAR; flows out: the same list, where lines of the
//! panel that is copied next are asked for between runs of terms of this one's tiles, and the RANGEs of the loops that
//! copy such panels. Invariant: no value is another one.
//!
//! ```text
//! over       a panel after the other
//!   fill     copies one
//!   tiles    works with it
//!     runs   here
//!       terms
//! ```
//!
//! Memory would be idle while a core adds, and the core while it copies. A core has few lines under way at a time, so some
//! are asked for in each run: those of some turns of `fill` in each tile, or some of each turn's, which is fewer at once.

use crate::asks::{LEAST, LINE, asking, copies, insert, is_far};
use crate::graph::node;
use crate::nests::Loop;
use crate::streams::place;
use monoglot_uop::linear::address;
use monoglot_uop::rules::Affine;
use monoglot_uop::{Op, Target, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Most lines that a run asks for.
pub(crate) const AT_ONCE: i64 = 8;

/// Have panels asked for meanwhile.
pub(crate) fn ask(linear: UOp, target: &Target) -> (UOp, Vec<UOp>) {
    let list = linear.src();
    if !list.iter().any(|u| is_far(u, target)) {
        return (linear, Vec::new());
    }
    let loops = Loop::all(list);
    let panels = loops
        .iter()
        .flat_map(|over| Panel::all(list, &loops, over, target));
    let mut numbers = Vec::new();
    let mut after: FxHashMap<usize, Vec<UOp>> = FxHashMap::default();
    let mut copied = Vec::new();
    for panel in panels {
        let asked = panel.asked();
        let Some(asked) = asked.filter(|a| a.may_stand(list, &loops, panel.runs)) else {
            continue;
        };
        // What is the same in all runs is worked out before them, and what is made of the panel's number alone, which others
        // that are asked for may be made of, too, before its tiles.
        let run = &list[panel.runs.begin..panel.runs.end];
        let ranges: Vec<&UOp> = run.iter().filter(|u| u.op() == Op::Range).collect();
        let same = |u: &UOp| !u.ranges().iter().any(|r| ranges.contains(&r));
        let (same, other): (Vec<UOp>, Vec<UOp>) = asked.list.into_iter().partition(same);
        let mut early = vec![panel.over.clone()];
        for u in &same {
            if (u.src().iter()).all(|s| s.op() == Op::Const || early.contains(s)) {
                early.push(u.clone());
            }
        }
        after
            .entry(panel.begin)
            .or_default()
            .extend(early.split_off(1));
        after.entry(panel.runs.begin - 1).or_default().extend(same);
        after.entry(panel.runs.begin).or_default().extend(other);
        numbers.extend(asked.numbers);
        copied.push(panel.fill.clone());
    }
    if after.is_empty() {
        return (linear, copied);
    }
    (insert(linear, numbers, after), copied)
}

/// A panel, by the RANGEs of its loops.
struct Panel<'a> {
    /// The place of `over`.
    begin: usize,
    over: &'a UOp,
    fill: &'a UOp,
    tiles: &'a UOp,
    runs: &'a Loop,
    /// The number of a run, of all that a tile has.
    run: UOp,
    /// What a turn of `fill` reads, in order.
    lines: Vec<Line<'a>>,
}

/// A line of storage that the second cache does not hold.
struct Line<'a> {
    load: &'a UOp,
    place: Affine,
}

/// Which lines a run asks for.
enum Share {
    /// All of some turns of `fill`, of which each tile does so many.
    Turns { tile: i64, run: i64 },
    /// So many of those of a turn of `fill` that has the run's number. They are as far apart.
    Lines { each: i64, step: i128 },
}

impl<'a> Panel<'a> {
    /// Those that a loop copies and works with, if the second cache holds two of them beside what else is done.
    fn all(list: &'a [UOp], loops: &'a [Loop], over: &'a Loop, target: &Target) -> Vec<Panel<'a>> {
        let inside: Vec<&Loop> = over.inside.iter().map(|&l| &loops[l]).collect();
        let fills = inside
            .iter()
            .enumerate()
            .filter(|(_, l)| only_copies(l, list));
        let panels = fills.filter_map(|(at, fill)| {
            let mut after = inside[at + 1..].iter();
            let (tiles, (runs, run)) =
                after.find_map(|tiles| Some((tiles, runs(list, loops, tiles)?)))?;
            let lines = lines(list, fill, &list[over.begin], target);
            let bytes = lines.len() as i128 * fill.turns? as i128 * LINE;
            let fits = !lines.is_empty() && 4 * bytes <= target.caches[1] as i128;
            let counted = over.turns.and(tiles.turns);
            counted.filter(|_| fits).map(|_| Panel {
                begin: over.begin,
                over: &list[over.begin],
                fill: &list[fill.begin],
                tiles: &list[tiles.begin],
                runs,
                run,
                lines,
            })
        });
        panels.collect()
    }

    /// How often a panel's loops turn that fill it, and are over tiles and runs.
    fn turns(&self) -> [i64; 3] {
        [self.fill, self.tiles, &self.run].map(|r| r.vmax() + 1)
    }

    /// The share of a run, so that it asks for least.
    fn share(&self) -> Option<Share> {
        let [fill, tiles, runs] = self.turns();
        let lines = self.lines.len() as i64;
        let in_parts = |n: i64| (n + tiles - 1) / tiles;
        let turns = in_parts(fill);
        let each = in_parts(lines);
        let step = self.step().filter(|_| runs >= fill && each <= AT_ONCE);
        let run = (turns + runs - 1) / runs;
        let all = (run * lines <= AT_ONCE).then_some(Share::Turns { tile: turns, run });
        match step.filter(|_| all.is_none() || each < lines) {
            Some(step) => Some(Share::Lines { each, step }),
            None => all,
        }
    }

    /// Elements from each line to the next one.
    fn step(&self) -> Option<i128> {
        let [first, .., last] = &self.lines[..] else {
            return Some(0);
        };
        let step = (last.place.constant - first.place.constant) / (self.lines.len() as i128 - 1);
        let even = |w: &[Line]| {
            let apart = w[1].place.constant - w[0].place.constant;
            let storage = [0, 1].map(|k| &w[k].load.src()[0].src()[0]);
            apart == step && storage[0] == storage[1] && w[1].place.terms == w[0].place.terms
        };
        self.lines.windows(2).all(even).then_some(step)
    }

    /// What asks for a run's share of the next panel. None where no run is short enough, or a place is no number of its type.
    fn asked(&self) -> Option<Asked> {
        let [fills, tiles, runs] = self.turns();
        let share = self.share()?;
        let next = plus(self.over, 1);
        let there = below(&next, self.over.vmax() + 1);
        let among = |count: i64| match runs > count {
            true => node(Op::And, [there.clone(), below(&self.run, count)]),
            false => there.clone(),
        };
        let at = |turn: &UOp| {
            let turn = (self.fill.clone(), turn.clone());
            FxHashMap::from_iter([(self.over.clone(), next.clone()), turn])
        };
        let mut asked = Asked::default();
        let (each, step) = match share {
            Share::Lines { each, step } => (each, step),
            Share::Turns { tile, run } => {
                let gate = among((tile + run - 1) / run);
                let first = node(Op::Add, [times(self.tiles, tile), times(&self.run, run)]);
                for k in 0..run {
                    let turn = plus(&first, k);
                    let gate = match tile * tiles > fills || tile % run != 0 {
                        true => node(Op::And, [gate.clone(), below(&turn, fills)]),
                        false => gate.clone(),
                    };
                    for line in &self.lines {
                        asked.line(line, line.index()?.substitute(&at(&turn)), &gate)?;
                    }
                }
                return Some(asked);
            }
        };
        let gate = among(fills);
        let first = self.lines[0].index()?.substitute(&at(&self.run));
        (first.dtype() == self.tiles.dtype()).then_some(())?;
        let of_tile = node(Op::Add, [first, times(self.tiles, each * step as i64)]);
        let count = self.lines.len() as i64;
        for k in 0..each {
            let there = match each * tiles > count {
                true => {
                    let number = plus(&times(self.tiles, each), k);
                    node(Op::And, [gate.clone(), below(&number, count)])
                }
                false => gate.clone(),
            };
            asked.line(&self.lines[0], plus(&of_tile, k * step as i64), &there)?;
        }
        Some(asked)
    }
}

impl Line<'_> {
    fn index(&self) -> Option<&UOp> {
        Some(address(&self.load.src()[0])?.index)
    }
}

/// The innermost loop of a tile's that has others inside, and the number of its turn: parts of the sum may be around.
fn runs<'a>(list: &[UOp], loops: &'a [Loop], tiles: &Loop) -> Option<(&'a Loop, UOp)> {
    let around = |l: &Loop| {
        let mut inside = l.inside.iter().map(|&l| &loops[l]);
        inside.find(|l| !l.inside.is_empty())
    };
    let mut runs = around(tiles)?;
    let mut run = list[runs.begin].clone();
    while let Some(inner) = around(runs) {
        runs.turns?;
        let turn = &list[inner.begin];
        run = node(Op::Add, [times(&run, inner.turns?), turn.clone()]);
        runs = inner;
    }
    runs.turns?;
    Some((runs, run))
}

/// Whether a loop only copies, to LOCAL storage.
fn only_copies(fill: &Loop, list: &[UOp]) -> bool {
    let body = fill.body(list);
    let mut stores = body.iter().filter(|u| u.op() == Op::Store).peekable();
    let branches = |u: &UOp| matches!(u.op(), Op::If | Op::AtomicAdd);
    let plain = fill.inside.is_empty() && !body.iter().any(branches);
    plain && stores.peek().is_some() && stores.all(copies)
}

/// The lines that a turn reads whatever holds, of storage that the second cache does not hold, each once.
fn lines<'a>(list: &'a [UOp], fill: &Loop, over: &UOp, target: &Target) -> Vec<Line<'a>> {
    let mut seen = FxHashSet::default();
    let loads = fill
        .body(list)
        .iter()
        .filter(|u| u.op() == Op::Load && u.src().len() == 1);
    let found = loads.filter_map(|load| {
        let a = address(&load.src()[0])?;
        let bytes = a.buffer.dtype().bytes() as i128;
        let vectors = a.lanes as i128 * bytes >= LEAST;
        let place = place(a.index).filter(|_| vectors && is_far(a.buffer, target))?;
        let varies = place.terms.iter().any(|t| t.0 == *over);
        let terms = place.terms.iter().map(|t| (t.0.address(), t.1));
        let known: Vec<_> = terms.chain([(a.buffer.address(), 0)]).collect();
        let new = varies && seen.insert((known, place.constant * bytes / LINE));
        new.then_some(Line { load, place })
    });
    let mut lines: Vec<Line> = found.collect();
    lines.sort_by_key(|l| l.place.constant);
    lines
}

/// Constants, and what stands in a run.
#[derive(Default)]
struct Asked {
    numbers: Vec<UOp>,
    list: Vec<UOp>,
}

impl Asked {
    /// Ask for the line of an element. None where its place may be no number of the index's type.
    fn line(&mut self, line: &Line, index: UOp, gate: &UOp) -> Option<()> {
        let place = place(&index)?;
        let most = |t: &(UOp, i128)| t.1.abs() * t.0.vmax() as i128;
        let reach = place.constant.abs() + place.terms.iter().map(most).sum::<i128>();
        (reach >> (8 * index.dtype().bytes() - 1) == 0).then_some(())?;
        let buffer = address(&line.load.src()[0])?.buffer;
        let to = buffer.at(std::slice::from_ref(&index));
        let (load, _) = asking(&to, gate);
        let arithmetic = |u: &UOp| u.op().is_elementwise() || u.op() == to.op() || *u == load;
        for u in load.toposort().into_iter().filter(arithmetic) {
            let numbers = u.src().iter().filter(|s| s.op() == Op::Const);
            self.numbers.extend(numbers.cloned());
            self.list.push(u);
        }
        Some(())
    }

    /// Whether each instruction is new, or stands where a run may read it, or in a run, before which it may stand.
    fn may_stand(&self, list: &[UOp], loops: &[Loop], runs: &Loop) -> bool {
        let places: FxHashMap<&UOp, usize> = list.iter().zip(0..).collect();
        let closed = |at: usize| {
            let ended = |l: &Loop| l.contains(at) && !l.contains(runs.begin + 1);
            at > runs.end || loops.iter().any(ended)
        };
        let mut stand = self.list.iter().filter_map(|u| places.get(u));
        !stand.any(|at| closed(*at))
    }
}

fn plus(u: &UOp, n: i64) -> UOp {
    match n {
        0 => u.clone(),
        _ => node(Op::Add, [u.clone(), UOp::int(n, u.dtype())]),
    }
}

fn times(u: &UOp, n: i64) -> UOp {
    match n {
        1 => u.clone(),
        _ => node(Op::Mul, [u.clone(), UOp::int(n, u.dtype())]),
    }
}

fn below(u: &UOp, end: i64) -> UOp {
    node(Op::CmpLt, [u.clone(), UOp::int(end, u.dtype())])
}
