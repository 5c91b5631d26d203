//! The loops of a list. Flows in: a LINEAR's instructions; flows out: where each loop begins and ends, and those inside.

use monoglot_uop::{Op, UOp};

/// A loop of a list.
pub(crate) struct Loop {
    /// The places of its RANGE and its END.
    pub(crate) begin: usize,
    pub(crate) end: usize,
    /// The loops directly inside, in order, by their places among all.
    pub(crate) inside: Vec<usize>,
    /// How often it turns, where that is known and it counts from 0.
    pub(crate) turns: Option<i64>,
}

impl Loop {
    /// All loops, in the order of their RANGEs.
    pub(crate) fn all(list: &[UOp]) -> Vec<Loop> {
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

    /// Whether an instruction stands between its RANGE and its END.
    pub(crate) fn contains(&self, place: usize) -> bool {
        self.begin < place && place < self.end
    }

    /// What stands between them.
    pub(crate) fn body<'a>(&self, list: &'a [UOp]) -> &'a [UOp] {
        &list[self.begin + 1..self.end]
    }

    /// The loops of which each is the only one inside the last, from this one on, and the first turn, counted through,
    /// of each one's turn; None where the innermost holds several, or how often one turns is not known.
    pub(crate) fn nest<'a>(&'a self, loops: &'a [Loop]) -> Option<Vec<(&'a Loop, i64)>> {
        let mut nest = vec![(self, 1)];
        while let [only] = nest.last()?.0.inside[..] {
            nest.push((&loops[only], 1));
        }
        if !nest.last()?.0.inside.is_empty() {
            return None;
        }
        let mut all = 1;
        for (level, first) in nest.iter_mut().rev() {
            *first = all;
            all *= level.turns?;
        }
        Some(nest)
    }
}
