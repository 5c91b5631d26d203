//! Registers that found no place: constants are made again where they are read, others are kept in the frame. Flows
//! in: code and the registers; flows out: code that does not mention them, in whose instructions memory or numbers
//! stand instead or registers that live from one instruction to the next. Always: an instruction has one source in
//! memory at most, and only where it admits one.

use super::spans::{NONE, Span, Spans};
use crate::code::{Again, Class, Code, Do, Ins, Operand, Reg, RegInfo, UNMARKED, Width};
use crate::table::{Form, Vector};
use smallvec::{SmallVec, smallvec};

/// Where the value of a register is instead.
#[derive(Clone, Debug)]
enum Kept {
    /// In its register.
    Register,
    /// In the frame.
    Slot(u32),
    /// Nowhere: this instruction makes it.
    Again(Again, Box<Ins>),
    /// Nowhere, and nothing reads it.
    Unread,
}

/// Whether a register's value can be made again: what writes it first, and always, makes a constant.
pub(super) fn can_be_made_again(code: &Code, number: usize, span: &Span) -> bool {
    let made = || {
        let ins = &code.ins[span.first as usize / 2];
        let constant = match ins.op {
            Do::Vector(Vector::Load) => matches!(ins.src[0], Operand::Pool(_)),
            Do::Zero | Do::Immediate => true,
            _ => false,
        };
        constant && ins.dst == Some(Reg(number as u32))
    };
    code.regs[number].again.is_some() && made()
}

/// Folds each constant that is read once, as often as it is made, into the instruction that reads it, where that
/// takes one; forgets those that nothing reads. Their spans are gone with that, the instructions that make them are
/// in the code still; they are what comes back.
pub(super) fn fold_single_uses(code: &mut Code, spans: &mut Spans) -> Vec<Reg> {
    let mut gone = Vec::new();
    for number in 0..code.regs.len() {
        let Some(again) = code.regs[number].again else {
            continue;
        };
        let span = &mut spans.of[number];
        if span.start == NONE || span.reads > 1 || !can_be_made_again(code, number, span) {
            continue;
        }
        let folded = span.reads == 0
            || span.first_loop == span.last_loop && {
                let wide = code.ins[span.first as usize / 2].width == Width::W64;
                let reader = &mut code.ins[span.last as usize / 2];
                fold(reader, Reg(number as u32), &with_constant(again, wide))
            };
        if folded {
            span.start = NONE;
            gone.push(Reg(number as u32));
        }
    }
    gone
}

/// What stands in an instruction instead of a register.
pub(super) enum Instead {
    Memory(Operand),
    /// A number, and whether its register has it in all its 64 bits.
    Number(i64, bool),
}

fn with_constant(again: Again, wide: bool) -> Instead {
    match again {
        Again::Pool(constant) => Instead::Memory(Operand::Pool(constant)),
        Again::Number(number) => Instead::Number(number, wide),
    }
}

/// Puts memory or a number in the place of a register that an instruction mentions once; false where it takes none.
pub(super) fn fold(ins: &mut Ins, reg: Reg, instead: &Instead) -> bool {
    let mut mentions = 0;
    ins.reads(|r| mentions += u32::from(r == reg));
    if mentions != 1 {
        return false;
    }
    // A load of all of a place in the frame is always one that was put in.
    let loads = matches!(ins.op, Do::Load64 | Do::Vector(Vector::Load));
    if loads && matches!(instead, Instead::Memory(Operand::Slot(_))) {
        return false;
    }
    let (operand, source) = match *instead {
        Instead::Memory(operand) => {
            let taken = ins.src.iter().any(is_memory);
            let addend = ins.src.get(2) == Some(&Operand::Reg(reg)) && ins.may_be_memory(2);
            let source = if addend { Some(2) } else { ins.memory_source() };
            (operand, source.filter(|_| !taken))
        }
        Instead::Number(number, wide) => {
            let fits = i32::try_from(number).is_ok();
            let same = ins.width == Width::W32 || wide || number >= 0;
            let source = takes_number(ins.op) && fits && same;
            (Operand::Imm(number), source.then_some(1))
        }
    };
    let Some(source) = source else {
        return false;
    };
    let is_register = |s: usize| matches!(ins.src[s], Operand::Reg(_));
    if source == 1 && ins.src[0] == Operand::Reg(reg) && commutes(ins.op) && is_register(1) {
        ins.src.swap(0, 1);
    }
    let found = ins.src[source] == Operand::Reg(reg);
    if found {
        ins.src[source] = operand;
    }
    found
}

fn is_memory(source: &Operand) -> bool {
    match source {
        Operand::Mem(_) | Operand::Each(_) | Operand::Pool(_) | Operand::Slot(_) => true,
        Operand::Reg(_) | Operand::Imm(_) => false,
    }
}

/// Whether the second source may be a number.
fn takes_number(op: Do) -> bool {
    let arithmetic = matches!(op, Do::Add | Do::Sub | Do::Mul | Do::And | Do::Or | Do::Xor);
    let shift = matches!(op, Do::Shl | Do::Shr | Do::Sar);
    arithmetic || shift || matches!(op, Do::Compare(_) | Do::Next | Do::SkipIf(_))
}

/// Whether the first and the second source may change places.
fn commutes(op: Do) -> bool {
    match op {
        Do::Add | Do::Mul | Do::And | Do::Or | Do::Xor => true,
        Do::Vector(Vector::DotW | Vector::DotBF16) => true,
        Do::Vector(v) => matches!(v.form(), Form::ThreeCommuting | Form::Fma),
        _ => false,
    }
}

/// Rewrites code so that it does not mention the spilled registers, and neither makes those that are gone.
pub(super) fn spill(
    code: &mut Code,
    spans: &Spans,
    spilled: &[Reg],
    gone: &[Reg],
    origin: &mut Vec<Reg>,
    slots: &mut u32,
) {
    let mut kept = vec![Kept::Register; code.regs.len()];
    for reg in gone {
        kept[reg.0 as usize] = Kept::Unread;
    }
    for reg in spilled {
        let number = reg.0 as usize;
        let span = &spans.of[number];
        kept[number] = match code.regs[number].again {
            Some(again) if can_be_made_again(code, number, span) => {
                let made = code.ins[span.first as usize / 2].clone();
                Kept::Again(again, Box::new(made))
            }
            _ => {
                *slots += 1;
                Kept::Slot(*slots - 1)
            }
        };
    }
    let instructions = std::mem::take(&mut code.ins);
    let mut rewrite = Rewrite {
        out: Vec::with_capacity(instructions.len() * 5 / 4),
        late: Vec::new(),
        kept,
        regs: &mut code.regs,
        origin,
        recent: SmallVec::new(),
        number: 0,
    };
    for ins in instructions {
        rewrite.instruction(ins);
    }
    rewrite.out.append(&mut rewrite.late);
    code.ins = rewrite.out;
}

struct Rewrite<'a> {
    out: Vec<Ins>,
    /// Stores of arguments: they wait until the last argument is taken.
    late: Vec<Ins>,
    kept: Vec<Kept>,
    regs: &'a mut Vec<RegInfo>,
    origin: &'a mut Vec<Reg>,
    /// What was loaded or written a short while ago, by which register it is in still, and when that was.
    recent: SmallVec<[(Reg, Reg, u32); 8]>,
    /// Instructions that have passed.
    number: u32,
}

/// For how many instructions what was loaded or written stays in its register, and how many such there are of a class.
const STAYS: u32 = 6;
const RECENT: usize = 3;

impl Rewrite<'_> {
    fn instruction(&mut self, mut ins: Ins) {
        self.number += 1;
        let now = self.number;
        self.recent.retain(|r| r.2 + STAYS >= now);
        if ins.op.is_control() {
            self.recent.clear();
        }
        if !matches!(ins.op, Do::Argument(_)) {
            self.out.append(&mut self.late);
        }
        if self.waits(&ins) {
            return;
        }
        let mut spilled: SmallVec<[Reg; 8]> = SmallVec::new();
        ins.reads(|r| {
            let elsewhere = !matches!(self.kept[r.0 as usize], Kept::Register);
            if elsewhere && !spilled.contains(&r) {
                spilled.push(r);
            }
        });
        // Numbers first: a source that became one leaves none that could be memory.
        spilled
            .sort_by_key(|r| !matches!(self.kept[r.0 as usize], Kept::Again(Again::Number(_), _)));
        for reg in spilled {
            self.source(&mut ins, reg);
        }
        self.destination(ins);
    }

    /// Whether it only has a register wait in the frame (`split`) that is there all the time now.
    fn waits(&self, ins: &Ins) -> bool {
        let reg = match (ins.op, &ins.src[..], ins.dst) {
            (Do::Load64 | Do::Vector(Vector::Load), [Operand::Slot(_)], Some(reg)) => reg,
            (_, [Operand::Slot(_), Operand::Reg(reg)], None) => *reg,
            _ => return false,
        };
        matches!(self.kept[reg.0 as usize], Kept::Slot(_))
    }

    /// Takes one register out of the sources.
    fn source(&mut self, ins: &mut Ins, reg: Reg) {
        let number = reg.0 as usize;
        let instead = match &self.kept[number] {
            Kept::Slot(slot) => Instead::Memory(Operand::Slot(*slot)),
            Kept::Again(again, made) => with_constant(*again, made.width == Width::W64),
            Kept::Register | Kept::Unread => return,
        };
        if let Some(&(_, tiny, _)) = self.recent.iter().find(|r| r.0 == reg) {
            return rename(ins, reg, tiny);
        }
        if fold(ins, reg, &instead) {
            return;
        }
        let tiny = self.tiny(reg);
        // What the end of a loop read is in its register in the loop alone.
        if matches!(self.kept[number], Kept::Slot(_)) && ins.op != Do::Next {
            self.remember(reg, tiny);
        }
        let reload = match &self.kept[number] {
            Kept::Again(_, made) => Ins {
                dst: Some(tiny),
                ..(**made).clone()
            },
            Kept::Slot(slot) => load(*slot, tiny, self.regs[number]),
            Kept::Register | Kept::Unread => return,
        };
        self.out.push(reload);
        rename(ins, reg, tiny);
    }

    /// A register's value is in another for a while.
    fn remember(&mut self, reg: Reg, tiny: Reg) {
        let class = self.regs[reg.0 as usize].class;
        self.recent.retain(|r| r.0 != reg);
        let same = |r: &(Reg, Reg, u32), regs: &[RegInfo]| regs[r.0.0 as usize].class == class;
        let count = self.recent.iter().filter(|r| same(r, self.regs)).count();
        if count >= RECENT
            && let Some(oldest) = self.recent.iter().position(|r| same(r, self.regs))
        {
            self.recent.remove(oldest);
        }
        self.recent.push((reg, tiny, self.number));
    }

    /// Appends the instruction, and a store of what it writes where that is kept in the frame.
    fn destination(&mut self, mut ins: Ins) {
        let Some(dst) = ins.dst else {
            self.out.push(ins);
            return;
        };
        match self.kept[dst.0 as usize] {
            Kept::Register => self.out.push(ins),
            Kept::Again(..) | Kept::Unread => {}
            Kept::Slot(slot) => {
                let tiny = self.tiny(dst);
                let kept = store(slot, tiny, self.regs[dst.0 as usize]);
                let argument = matches!(ins.op, Do::Argument(_));
                ins.dst = Some(tiny);
                if !argument {
                    self.remember(dst, tiny);
                }
                self.out.push(ins);
                match argument {
                    true => self.late.push(kept),
                    false => self.out.push(kept),
                }
            }
        }
    }

    /// A register of the same kind that lives from one instruction to the next.
    fn tiny(&mut self, reg: Reg) -> Reg {
        let info = self.regs[reg.0 as usize];
        self.regs.push(RegInfo {
            again: None,
            lasting: false,
            ..info
        });
        self.origin.push(self.origin[reg.0 as usize]);
        self.kept.push(Kept::Register);
        Reg(self.regs.len() as u32 - 1)
    }
}

/// Have an instruction read one register for another.
fn rename(ins: &mut Ins, reg: Reg, other: Reg) {
    for source in &mut ins.src {
        source.rename(|r| if r == reg { other } else { r });
    }
}

fn whole(info: RegInfo) -> Width {
    match info.class {
        Class::General => Width::W64,
        Class::Vector => Width::of_vector(info.bytes as usize),
    }
}

pub(super) fn load(slot: u32, dst: Reg, info: RegInfo) -> Ins {
    Ins {
        op: match info.class {
            Class::General => Do::Load64,
            Class::Vector => Do::Vector(Vector::Load),
        },
        width: whole(info),
        dst: Some(dst),
        src: smallvec![Operand::Slot(slot)],
        mark: UNMARKED,
    }
}

pub(super) fn store(slot: u32, from: Reg, info: RegInfo) -> Ins {
    Ins {
        op: match info.class {
            Class::General => Do::Store64,
            Class::Vector => Do::Vector(Vector::Store),
        },
        width: whole(info),
        dst: None,
        src: smallvec![Operand::Slot(slot), Operand::Reg(from)],
        mark: UNMARKED,
    }
}
