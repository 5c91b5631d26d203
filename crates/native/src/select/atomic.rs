//! Additions to elements of memory that other threads add to as well. Flows in: an ATOMICADD of a scalar; flows
//! out: one instruction for an integer; for a float a loop, which tries until nobody has come between. Invariant:
//! no addition is lost.

use super::builder::{Builder, Kind};
use super::{Selector, Shape};
use crate::code::{Class, Do, Mem, Operand, Reg, Width};
use crate::table::Vector;
use monoglot_uop::linear::lanes;
use monoglot_uop::{DType, Result, UOp};

impl<'a> Selector<'a> {
    /// ATOMICADD.
    pub(super) fn atomic(&mut self, u: &'a UOp) -> Result<()> {
        let a = self.address_of(u)?;
        let d = a.buffer.dtype();
        let scalar = a.lanes == 0 && matches!(d.bytes(), 4 | 8);
        let gate = u.src().get(2).filter(|g| !self.holds(g));
        if !scalar || gate.is_some_and(|g| lanes(g) > 0) {
            return Err(self.unsupported(u));
        }
        let shape = Shape {
            n: 0,
            bytes: d.bytes(),
        };
        let value = self.scalar(&u.src()[1])?;
        let tests = gate.map(|g| self.tests(g)).transpose()?;
        let place = self.places(u, shape)?[0];
        let add = |b: &mut Builder| match d.is_float() {
            true => add_float(b, d, place, value),
            false => {
                let src = [Operand::Mem(place), Operand::Reg(value)];
                b.put(Do::AddAtomic, width(d), None, &src);
            }
        };
        match tests {
            None => add(&mut self.b),
            Some(tests) => {
                self.b.push(Kind::If(tests));
                add(&mut self.b);
                self.b.pop();
            }
        }
        Ok(())
    }
}

fn width(d: DType) -> Width {
    match d.bytes() {
        4 => Width::W32,
        _ => Width::W64,
    }
}

/// Read the element, add to it, and put the sum there if it is what was read still; else again. The loop's counter
/// is 1 where that is done, and 0 where it is not.
fn add_float(b: &mut Builder, d: DType, place: Mem, value: Reg) {
    let w = width(d);
    let (load, to_vector, sum, to_general) = match d.bytes() {
        4 => (
            Do::Load32,
            Vector::MoveGprD,
            Vector::AddSs,
            Vector::MoveVecD,
        ),
        _ => (
            Do::Load64,
            Vector::MoveGprQ,
            Vector::AddSd,
            Vector::MoveVecQ,
        ),
    };
    let counter = b.code.reg(Class::General, 8);
    b.variables.insert(counter);
    b.push(Kind::Loop {
        counter,
        first: Operand::Imm(0),
        end: Operand::Imm(1),
        most: None,
        width: Width::W32,
        guarded: false,
    });
    let place = Operand::Mem(place);
    let old = b.general(load, w, &[place]);
    let number = b.vector(to_vector, Width::X, &[Operand::Reg(old)]);
    let sum = b.of(sum, Width::X, &[number, value], None);
    let new = b.general_of(to_general, Width::X, &[Operand::Reg(sum)]);
    let src = [place, Operand::Reg(old), Operand::Reg(new)];
    let done = b.general(Do::Exchange, w, &src);
    // The end of a turn adds 1.
    let before = b.general(Do::Sub, Width::W32, &[Operand::Reg(done), Operand::Imm(1)]);
    b.put(Do::Move, Width::W32, Some(counter), &[Operand::Reg(before)]);
    b.pop();
}
