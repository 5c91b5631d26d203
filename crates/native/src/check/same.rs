//! When an instruction of allocated code is one of the code before. Flows in: both codes; flows out: the sources that
//! it had before, or that it is another. Always: a constant counts as one only where its one instruction makes what is
//! said of its register.

use crate::code::{Again, Allocated, Class, Code, Do, Ins, Mem, Operand, Reg, Width};
use crate::table::{Form, Vector};
use smallvec::SmallVec;

/// Both codes, and the constants of the first.
pub(super) struct Same<'a> {
    pub(super) before: &'a Code,
    pub(super) after: &'a Allocated,
    /// By register the instruction that makes it, where it is a constant.
    constants: Vec<Option<&'a Ins>>,
}

impl<'a> Same<'a> {
    pub(super) fn new(before: &'a Code, after: &'a Allocated) -> Same<'a> {
        let mut writes = vec![0u32; before.regs.len()];
        for dst in before.ins.iter().filter_map(|ins| ins.dst) {
            writes[dst.0 as usize] += 1;
        }
        let mut constants = vec![None; before.regs.len()];
        for ins in &before.ins {
            if let Some(dst) = ins.dst
                && writes[dst.0 as usize] == 1
                && makes_what_is_said(before, ins, dst)
            {
                constants[dst.0 as usize] = Some(ins);
            }
        }
        Same {
            before,
            after,
            constants,
        }
    }

    pub(super) fn is_constant(&self, reg: Reg) -> bool {
        self.constants[reg.0 as usize].is_some()
    }

    /// Whether an instruction of the code before makes a constant.
    pub(super) fn constant(&self, ins: &Ins) -> bool {
        ins.dst.is_some_and(|dst| self.is_constant(dst))
    }

    /// Whether an instruction makes this constant.
    pub(super) fn makes(&self, ins: &Ins, reg: Reg) -> bool {
        let Some(made) = self.constants[reg.0 as usize] else {
            return false;
        };
        let source = match (made.src.first(), ins.src.first()) {
            (Some(Operand::Pool(a)), Some(Operand::Pool(b))) => self.equal_constants(*a, *b),
            (a, b) => a == b,
        };
        ins.op == made.op && ins.width == made.width && ins.src.len() == made.src.len() && source
    }

    fn equal_constants(&self, a: u32, b: u32) -> bool {
        let pool = &self.before.pool;
        matches!((pool.get(a as usize), pool.get(b as usize)), (Some(a), Some(b)) if a == b)
    }

    /// Whether a load or store between the frame and a register moves all of this register that is read.
    pub(super) fn moves_all(&self, ins: &Ins, reg: Reg) -> bool {
        let info = self.before.regs[reg.0 as usize];
        match (info.class, ins.width) {
            (Class::General, width) => width == Width::W64,
            (Class::Vector, width) => {
                let vector = matches!(width, Width::X | Width::Y | Width::Z);
                vector && info.bytes as usize <= width.bytes()
            }
        }
    }

    /// The sources of an instruction of the code before in the order of those of the one after, where they are
    /// the same but for where registers are.
    pub(super) fn sources(&self, was: &Ins, ins: &Ins) -> Option<SmallVec<[Operand; 4]>> {
        let dst = match (was.dst, ins.dst) {
            (Some(was), Some(dst)) => was == self.after.origin[dst.0 as usize],
            (None, None) => true,
            _ => false,
        };
        if was.op != ins.op || was.width != ins.width || was.src.len() != ins.src.len() || !dst {
            return None;
        }
        let agree = |sources: &[Operand]| {
            let mut pairs = sources.iter().zip(&ins.src).enumerate();
            pairs.all(|(i, (was, is))| self.operand(was, is, (i, ins)))
        };
        let mut sources = was.src.clone();
        if agree(&sources) {
            return Some(sources);
        }
        if may_change_places(was.op) {
            sources.swap(0, 1);
            if agree(&sources) {
                return Some(sources);
            }
        }
        None
    }

    /// Whether a source is what it was.
    fn operand(&self, was: &Operand, is: &Operand, (source, ins): (usize, &Ins)) -> bool {
        let renamed = |was: Reg, is: Reg| self.after.origin[is.0 as usize] == was;
        match (*was, *is) {
            (Operand::Reg(was), Operand::Reg(is)) => renamed(was, is),
            (Operand::Reg(_), Operand::Slot(_)) => true,
            (Operand::Reg(was), Operand::Pool(constant)) => {
                let again = self.before.regs[was.0 as usize].again;
                let equal = |k| self.equal_constants(k, constant);
                let said = matches!(again, Some(Again::Pool(k)) if equal(k));
                said && self.is_constant(was) && ins.may_be_memory(source)
            }
            (Operand::Reg(was), Operand::Imm(number)) => {
                let Some(made) = self.constants[was.0 as usize] else {
                    return false;
                };
                let said = self.before.regs[was.0 as usize].again == Some(Again::Number(number));
                let extended = number >= 0 || made.width == Width::W64;
                let read = ins.width == Width::W32 || extended;
                said && read && i32::try_from(number).is_ok() && may_be_number(ins.op, source)
            }
            (Operand::Mem(was), Operand::Mem(is)) | (Operand::Each(was), Operand::Each(is)) => {
                let index = match (was.index, is.index) {
                    (Some((was, a)), Some((is, b))) => renamed(was, is) && a == b,
                    (None, None) => true,
                    _ => false,
                };
                let Mem { displacement, .. } = was;
                renamed(was.base, is.base) && index && displacement == is.displacement
            }
            (was, is) => was == is,
        }
    }
}

/// Whether an instruction is one of those that make constants, and its register's value is said to be what it makes.
fn makes_what_is_said(code: &Code, ins: &Ins, dst: Reg) -> bool {
    let Some(again) = code.regs[dst.0 as usize].again else {
        return false;
    };
    let constant = |k: u32| code.pool.get(k as usize);
    match (ins.op, ins.src.first(), again) {
        (Do::Vector(Vector::Load), Some(&Operand::Pool(made)), Again::Pool(said)) => {
            constant(made).is_some() && constant(made) == constant(said)
        }
        (Do::Zero, None, Again::Pool(said)) => constant(said) == Some(&[0; 64]),
        (Do::Immediate, Some(&Operand::Imm(made)), Again::Number(said)) => made == said,
        _ => false,
    }
}

/// Whether an instruction does the same with its first two sources in the other order.
fn may_change_places(op: Do) -> bool {
    match op {
        Do::Vector(Vector::DotW | Vector::DotBF16) => true,
        Do::Vector(v) => v.form() == Form::ThreeCommuting || v.form() == Form::Fma,
        _ => matches!(op, Do::Add | Do::Mul | Do::And | Do::Or | Do::Xor),
    }
}

/// Whether a source may be a number instead of a register.
fn may_be_number(op: Do, source: usize) -> bool {
    let may = match op {
        Do::Sub | Do::Shl | Do::Shr | Do::Sar | Do::Compare(_) => true,
        Do::Next | Do::SkipIf(_) => true,
        Do::Vector(_) => false,
        _ => may_change_places(op),
    };
    may && source == 1
}
