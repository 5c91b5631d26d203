//! Does allocated code do what the code before did? Flows in: both; flows out: nothing, or what is wrong first, with
//! the instruction. Always: this shares nothing with what it checks, and what it passes reads of every register the
//! value that was written to that register last.
//!
//! Both codes are walked side by side. What was put in is known by what it is: a load of a place in the frame, a
//! store to one, a constant made again; every other instruction of one is an instruction of the other. The walk
//! follows for each register of the machine and each place in the frame whose values it holds: a write to it makes
//! it hold another, a write of a value makes all that held the older one hold it no more. Where ways meet, at the top
//! of a loop and where skips land, a place holds what it holds on all of them; the walk is repeated until the
//! tops of loops stay as they are.

mod held;
mod same;

use crate::code::{Allocated, Class, Code, Do, Ins, Level, Operand, Place, Reg};
use crate::table::Vector;
use held::{Held, Home};
use rustc_hash::FxHashMap;
use same::Same;

/// What allocation made of code, against that code.
pub fn check(before: &Code, after: &Allocated, level: Level) -> Result<(), String> {
    registers(before, after)?;
    for (at, ins) in after.code.ins.iter().enumerate() {
        places(before, after, level, ins).map_err(|what| told(at, ins, &what))?;
    }
    let same = Same::new(before, after);
    let mut tops = Vec::new();
    loop {
        let mut walk = Walk::new(&same, tops);
        walk.all()?;
        if !walk.changed {
            return Ok(());
        }
        tops = walk.tops;
    }
}

fn told(at: usize, ins: &Ins, what: &str) -> String {
    format!("instruction {at}: {what}: {ins:?}")
}

/// The lists of registers and constants agree.
fn registers(before: &Code, after: &Allocated) -> Result<(), String> {
    let count = after.code.regs.len();
    if after.places.len() != count || after.origin.len() != count || count < before.regs.len() {
        return Err("the lists of registers are of different lengths".to_owned());
    }
    for (number, (origin, info)) in after.origin.iter().zip(&after.code.regs).enumerate() {
        let Some(was) = before.regs.get(origin.0 as usize) else {
            return Err(format!("register {number} was none before"));
        };
        if number < before.regs.len() && origin.0 as usize != number {
            return Err(format!(
                "register {number} was itself before, not {origin:?}"
            ));
        }
        if was.class != info.class {
            return Err(format!("register {number} is of another class than before"));
        }
    }
    if before.pool != after.code.pool {
        return Err("the pool is another".to_owned());
    }
    Ok(())
}

/// The registers of an instruction have places that may be given, its places in the frame exist, and memory stands
/// where memory may.
fn places(before: &Code, after: &Allocated, level: Level, ins: &Ins) -> Result<(), String> {
    let mut wrong = None;
    let mut place = |r: Reg| {
        let Some(&place) = after.places.get(r.0 as usize) else {
            wrong = Some(format!("{r:?} does not exist"));
            return;
        };
        let may = match (place, after.code.regs[r.0 as usize].class) {
            (Place::General(n), Class::General) => matches!(n, 3 | 6..=15),
            (Place::Vector(n), Class::Vector) => n < level.vector_registers(),
            _ => false,
        };
        if !may {
            wrong = Some(format!("{r:?} cannot be in {place:?}"));
        }
    };
    ins.reads(&mut place);
    ins.dst.into_iter().for_each(&mut place);
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    if ins.width.bytes() > level.vector_bytes() {
        return Err(format!(
            "there are no vectors of {} bytes",
            ins.width.bytes()
        ));
    }
    let mut in_memory = 0;
    for (source, operand) in ins.src.iter().enumerate() {
        let there = match *operand {
            Operand::Slot(slot) if slot >= after.slots => {
                return Err(format!("the frame has no place {slot}"));
            }
            Operand::Pool(constant) if constant as usize >= before.pool.len() => {
                return Err(format!("the pool has no constant {constant}"));
            }
            Operand::Mem(_) | Operand::Each(_) | Operand::Pool(_) | Operand::Slot(_) => true,
            Operand::Reg(_) | Operand::Imm(_) => false,
        };
        in_memory += u32::from(there);
        let slot = matches!(operand, Operand::Slot(_));
        if slot && !ins.may_be_memory(source) {
            return Err(format!("source {source} cannot be in the frame"));
        }
    }
    if in_memory > 1 {
        return Err("two sources are memory".to_owned());
    }
    Ok(())
}

/// One walk over both codes.
struct Walk<'a> {
    same: &'a Same<'a>,
    /// How far the walk has come in the code before.
    next: usize,
    held: Held,
    /// What holds at the tops of the loops, in their order.
    tops: Vec<Held>,
    /// Whether a top has become another.
    changed: bool,
    /// The loops around, each by its place in `tops` and its label.
    around: Vec<(usize, Operand)>,
    /// Loops that were met.
    loops: usize,
    /// What holds where skips go on, by label.
    skips: FxHashMap<Operand, Held>,
}

impl<'a> Walk<'a> {
    fn new(same: &'a Same<'a>, tops: Vec<Held>) -> Walk<'a> {
        Walk {
            same,
            next: 0,
            held: Held::new(same.after.slots as usize),
            tops,
            changed: false,
            around: Vec::new(),
            loops: 0,
            skips: FxHashMap::default(),
        }
    }

    fn all(&mut self) -> Result<(), String> {
        for (at, ins) in self.same.after.code.ins.iter().enumerate() {
            self.instruction(ins).map_err(|what| told(at, ins, &what))?;
        }
        self.pass_constants();
        match self.same.before.ins.get(self.next) {
            Some(left) => Err(format!("nothing is left of {left:?}")),
            None if self.around.is_empty() => Ok(()),
            None => Err("a loop does not end".to_owned()),
        }
    }

    /// Constants may be made anywhere and any number of times: those before are passed, those after are looked at
    /// for what they make.
    fn pass_constants(&mut self) {
        let ins = &self.same.before.ins;
        while ins
            .get(self.next)
            .is_some_and(|ins| self.same.constant(ins))
        {
            self.next += 1;
        }
    }

    fn instruction(&mut self, ins: &Ins) -> Result<(), String> {
        if let Some(made) = ins.dst
            && self.same.is_constant(self.origin(made))
        {
            if !self.same.makes(ins, self.origin(made)) {
                return Err(format!("this is not the constant {:?}", self.origin(made)));
            }
            self.held.make(self.home(made), self.origin(made));
            return Ok(());
        }
        if reloads(ins) {
            return self.reload(ins);
        }
        if spills(ins) {
            return self.spill(ins);
        }
        self.pass_constants();
        let Some(was) = self.same.before.ins.get(self.next) else {
            return Err("nothing should be here".to_owned());
        };
        match self.same.sources(was, ins) {
            Some(sources) => {
                self.next += 1;
                self.matched(ins, &sources)
            }
            None => Err(format!("this should be {was:?}")),
        }
    }

    fn origin(&self, reg: Reg) -> Reg {
        self.same.after.origin[reg.0 as usize]
    }

    fn home(&self, reg: Reg) -> Home {
        match self.same.after.places[reg.0 as usize] {
            Place::General(number) => Home::General(number),
            Place::Vector(number) => Home::Vector(number),
            Place::Nowhere => Home::Nowhere,
        }
    }

    fn holds(&self, reg: Reg) -> Result<(), String> {
        let home = self.home(reg);
        let origin = self.origin(reg);
        match self.held.holds(home, origin) {
            true => Ok(()),
            false => Err(format!("{home:?} does not hold {origin:?}")),
        }
    }

    fn sources(&self, ins: &Ins, sources: &[Operand]) -> Result<(), String> {
        let mut all = Ok(());
        ins.reads(|r| {
            if all.is_ok() {
                all = self.holds(r);
            }
        });
        all?;
        for (source, was) in ins.src.iter().zip(sources) {
            if let (Operand::Slot(slot), Operand::Reg(was)) = (source, was)
                && !self.held.holds(Home::Slot(*slot), *was)
            {
                return Err(format!("place {slot} of the frame does not hold {was:?}"));
            }
        }
        Ok(())
    }

    /// An instruction that was there before.
    fn matched(&mut self, ins: &Ins, sources: &[Operand]) -> Result<(), String> {
        self.sources(ins, sources)?;
        if let Some(dst) = ins.dst {
            match (ins.op, ins.src.first()) {
                (Do::Move, Some(&Operand::Reg(from))) => {
                    let from = self.home(from);
                    self.held
                        .copy(from, self.home(dst), Some(self.origin(dst)), |_| true);
                }
                _ => self.held.write(self.home(dst), self.origin(dst)),
            }
        }
        match ins.op {
            Do::Loop => self.enter(ins.src[0]),
            Do::Next => self.again(ins.src[2]),
            Do::SkipIf(_) => {
                match self.skips.get_mut(&ins.src[2]) {
                    Some(held) => {
                        held.meet(&self.held);
                    }
                    None => {
                        self.skips.insert(ins.src[2], self.held.clone());
                    }
                }
                Ok(())
            }
            Do::Land => {
                if let Some(held) = self.skips.remove(&ins.src[0]) {
                    self.held.meet(&held);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn enter(&mut self, label: Operand) -> Result<(), String> {
        match self.tops.get_mut(self.loops) {
            Some(top) => {
                self.changed |= top.meet(&self.held);
                self.held = top.clone();
            }
            None => self.tops.push(self.held.clone()),
        }
        self.around.push((self.loops, label));
        self.loops += 1;
        Ok(())
    }

    fn again(&mut self, label: Operand) -> Result<(), String> {
        match self.around.pop() {
            Some((top, opened)) if opened == label => {
                self.changed |= self.tops[top].meet(&self.held);
                Ok(())
            }
            _ => Err("this ends another loop than the one around".to_owned()),
        }
    }

    fn reload(&mut self, ins: &Ins) -> Result<(), String> {
        let Operand::Slot(slot) = ins.src[0] else {
            return Err("a load without a place in the frame".to_owned());
        };
        let dst = ins.dst.ok_or("a load without a register")?;
        let origin = self.origin(dst);
        if !self.held.holds(Home::Slot(slot), origin) {
            return Err(format!(
                "place {slot} of the frame does not hold {origin:?}"
            ));
        }
        let same = self.same;
        let home = self.home(dst);
        self.held
            .copy(Home::Slot(slot), home, None, |r| same.moves_all(ins, r));
        self.holds(dst)
    }

    fn spill(&mut self, ins: &Ins) -> Result<(), String> {
        let [Operand::Slot(slot), Operand::Reg(from)] = ins.src[..] else {
            return Err("a store of no register".to_owned());
        };
        self.holds(from)?;
        let same = self.same;
        let home = self.home(from);
        self.held
            .copy(home, Home::Slot(slot), None, |r| same.moves_all(ins, r));
        match self.held.holds(Home::Slot(slot), self.origin(from)) {
            true => Ok(()),
            false => Err(format!("a part of {from:?} is not stored")),
        }
    }
}

/// A load of a place in the frame, whole.
fn reloads(ins: &Ins) -> bool {
    let op = matches!(ins.op, Do::Load64 | Do::Vector(Vector::Load));
    op && matches!(ins.src[..], [Operand::Slot(_)])
}

/// A store to a place in the frame, whole.
fn spills(ins: &Ins) -> bool {
    let op = matches!(ins.op, Do::Store64 | Do::Vector(Vector::Store));
    op && matches!(ins.src[..], [Operand::Slot(_), Operand::Reg(_)])
}
