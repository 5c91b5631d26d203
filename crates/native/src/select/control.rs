//! Loops. Flows in: a RANGE; flows out: an open scope with a counter. Invariant: a loop that may not turn is passed.

use super::builder::{Kind, Test, Tests, one};
use super::integer::{condition, width};
use super::{Selector, Value};
use crate::code::{Class, Cond, Operand, Width};
use monoglot_uop::linear::{lanes, operands};
use monoglot_uop::{DType, Op, Result, UOp};

/// Most comparisons of a condition, and most instructions that are looked through for the end of one.
const PARTS: usize = 4;
const SEGMENT: usize = 64;

impl<'a> Selector<'a> {
    /// Close the loop of a RANGE, and the condition around it, where it has one of its own.
    pub(super) fn end(&mut self, range: &UOp) {
        self.b.pop();
        let under = self.under.last();
        if under.is_some_and(|&(i, _)| self.list[i] == *range) {
            self.under.pop();
            self.b.pop();
        }
    }

    /// Whether a gate is that of a condition that is open.
    pub(super) fn holds(&self, gate: &UOp) -> bool {
        let place = self.listing.place(gate);
        self.under.iter().any(|&(_, gate)| Some(gate) == place)
    }

    /// The place of the one gate, known before a loop, of everything that the loop stores: where it does not hold the
    /// loop does nothing.
    fn gate_of_all(&self, i: usize) -> Option<usize> {
        let mut depth = 0;
        let mut gate = None;
        for u in &self.list[i..] {
            match u.op() {
                Op::Range => depth += 1,
                Op::End => depth -= 1,
                Op::Barrier | Op::AtomicAdd => return None,
                Op::Store => {
                    let own = u.src().get(2).filter(|g| lanes(g) == 0)?;
                    let place = self.listing.place(own).filter(|&k| k < i)?;
                    if gate.is_some_and(|g| g != place) {
                        return None;
                    }
                    gate = Some(place);
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        gate
    }

    /// The comparisons that hold where a gate does: those of a conjunction one by one, as a jump takes them; one that is
    /// the same in all turns of a loop is worked out before it.
    pub(super) fn tests(&mut self, gate: &UOp) -> Result<Tests> {
        let mut tests = Tests::new();
        let mut open = vec![gate.clone()];
        while let Some(u) = open.pop() {
            let s = u.src();
            let both = u.op() == Op::And && open.len() + tests.len() < PARTS;
            if both && !self.is_before(&u) {
                open.extend(s.iter().rev().cloned());
                continue;
            }
            let compared = s.first().map_or(DType::Void, UOp::dtype);
            let cond = condition(u.op(), compared).filter(|_| compared.is_int());
            tests.push(match cond {
                Some(cond) => {
                    let turned = s[0].op() == Op::Const;
                    let [a, b] = if turned {
                        [&s[1], &s[0]]
                    } else {
                        [&s[0], &s[1]]
                    };
                    Test {
                        cond: if turned { cond.turned() } else { cond },
                        width: width(compared),
                        a: self.scalar(a)?,
                        b: match self.integer_source(b)? {
                            Operand::Imm(n) => Operand::Imm(n),
                            _ => Operand::Reg(self.scalar(b)?),
                        },
                    }
                }
                _ => Test {
                    cond: Cond::NotEqual,
                    width: Width::W32,
                    a: self.scalar(&u)?,
                    b: Operand::Imm(0),
                },
            });
        }
        Ok(tests)
    }

    /// Whether a value stands before the innermost loop.
    fn is_before(&self, u: &UOp) -> bool {
        let place = self.listing.place(u);
        place.is_some_and(|i| (self.scope_of[i] as usize) < self.b.innermost_loop())
    }

    /// Open a condition around a gated load, the stores under the same gate that stand with it in one block, and what
    /// lies between, where nothing of that is used further on: so it is asked once, and nothing is done for nobody.
    pub(super) fn open_segment(&mut self, i: usize) -> Result<()> {
        let list: &'a [UOp] = self.list;
        let u = &list[i];
        let [_, _, gate] = u.src() else {
            return Ok(());
        };
        if u.op() != Op::Load || lanes(gate) > 0 || self.holds(gate) {
            return Ok(());
        }
        let Some(place) = self.listing.place(gate) else {
            return Ok(());
        };
        let mut end = None;
        let mut last = i;
        for (k, u) in list.iter().enumerate().skip(i).take(SEGMENT) {
            match u.op() {
                Op::Range | Op::End | Op::If | Op::EndIf | Op::Barrier => break,
                Op::Store if u.src().get(2) == Some(gate) => end = Some(k),
                Op::Store | Op::AtomicAdd => break,
                _ => {}
            }
            if u.op() != Op::Store && !u.op().is_void() {
                last = last.max(self.uses.last(k));
            }
            if end == Some(k) && last <= k {
                self.settle(i, k)?;
                let tests = self.tests(gate)?;
                self.b.push(Kind::If(tests));
                self.under.push((k, place));
                return Ok(());
            }
        }
        Ok(())
    }

    /// Work out what stands before instructions, is asked for first in them, and further on too.
    fn settle(&mut self, first: usize, last: usize) -> Result<()> {
        let list: &'a [UOp] = self.list;
        let mut wanted: Vec<usize> = Vec::new();
        for u in &list[first..=last] {
            let mut open = |s: &'a UOp| wanted.extend(self.listing.place(s.named()));
            operands(u, |s| {
                open(s);
                s.src().iter().for_each(&mut open);
            });
        }
        for k in wanted {
            let waits = k < first && self.uses.is_deferred(k) && self.uses.last(k) > last;
            if waits && matches!(self.values[k], Value::Deferred) {
                self.parts(&list[k])?;
            }
        }
        Ok(())
    }

    /// Close the condition that ends with an instruction.
    pub(super) fn close_segment(&mut self, i: usize) {
        let ends = |&(k, _): &(usize, usize)| k == i && self.list[i].op() == Op::Store;
        if self.under.last().is_some_and(ends) {
            self.under.pop();
            self.b.pop();
        }
    }

    /// Open the loop of a RANGE.
    pub(super) fn begin(&mut self, i: usize) -> Result<()> {
        let list: &'a [UOp] = self.list;
        if let Some(gate) = self.gate_of_all(i)
            && !self.holds(&list[gate])
        {
            let tests = self.tests(&list[gate])?;
            self.b.push(Kind::If(tests));
            self.under.push((i, gate));
        }
        let u = &list[i];
        let wide = u.dtype() == DType::I64;
        let width = if wide { Width::W64 } else { Width::W32 };
        let end = self.integer_source(&u.src()[0])?;
        let mut first = match u.src().get(1) {
            Some(first) => self.integer_source(first)?,
            None => Operand::Imm(0),
        };
        if !matches!(first, Operand::Imm(_)) {
            first = Operand::Reg(self.scalar(&u.src()[1])?);
        }
        let guarded = match (first, end) {
            (Operand::Imm(first), Operand::Imm(end)) => end <= first,
            _ => true,
        };
        // Only registers and numbers last through the loop.
        let end = match end {
            Operand::Imm(_) => end,
            _ => Operand::Reg(self.scalar(&u.src()[0])?),
        };
        let counter = self.b.code.reg(Class::General, 8);
        let most = Some(u.bounds()).filter(|(first, _)| *first >= 0);
        self.b.variables.insert(counter);
        self.b.push(Kind::Loop {
            counter,
            first,
            end,
            most: most.map(|(first, last)| last.saturating_sub(first).saturating_add(1)),
            width,
            guarded,
        });
        self.scope_of[i] = self.b.innermost() as u32;
        self.values[i] = Value::Parts(one(counter));
        Ok(())
    }
}
