//! Random structured codes. Flows in: seeds; flows out: whether each, allocated, passes the checker and runs as before.

use crate::build::{Build, allocated};
use monoglot_native::code::*;
use monoglot_native::table::Vector;

/// Numbers that look random (xorshift of 64 bits).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 20) % count as u64) as usize
    }
}

/// What is open, with how many registers were defined when it was opened: those alone are defined behind a skip.
enum Open {
    Loop(i64),
    Skip(i64, [usize; 2]),
}

struct Make {
    b: Build,
    random: Random,
    level: Level,
    general: Vec<Reg>,
    vector: Vec<Reg>,
    constants: Vec<Reg>,
    open: Vec<Open>,
}

impl Make {
    /// One that is defined; new ones more often than old ones, so that some die early.
    fn general(&mut self) -> Reg {
        let count = self.general.len();
        let last = count.min(4);
        match self.random.below(3) {
            0 => self.general[count - 1 - self.random.below(last)],
            _ => self.general[self.random.below(count)],
        }
    }

    fn vector(&mut self) -> Reg {
        let count = self.vector.len();
        let last = count.min(4);
        match self.random.below(3) {
            0 => self.vector[count - 1 - self.random.below(last)],
            _ => self.vector[self.random.below(count)],
        }
    }

    /// What an instruction writes: one that is there, or a new one.
    fn written(&mut self, class: Class) -> (Reg, bool) {
        let reg = match class {
            Class::General => self.general(),
            Class::Vector => self.vector(),
        };
        if self.random.below(2) == 0 && !self.constants.contains(&reg) {
            return (reg, false);
        }
        let new = match class {
            Class::General => self.b.general(),
            Class::Vector => self.b.vector(),
        };
        (new, true)
    }

    fn define(&mut self, (reg, new): (Reg, bool)) {
        if new {
            match self.b.code.regs[reg.0 as usize].class {
                Class::General => self.general.push(reg),
                Class::Vector => self.vector.push(reg),
            }
        }
    }

    fn memory(&mut self) -> Operand {
        Operand::Mem(Mem {
            base: self.general(),
            index: (self.random.below(2) == 0).then(|| (self.general(), 4)),
            displacement: self.random.below(100) as i32,
        })
    }

    fn put(&mut self, op: Do, width: Width, class: Class, src: &[Operand]) {
        let written = self.written(class);
        self.b.put(op, width, Some(written.0), src);
        self.define(written);
    }

    fn general_instruction(&mut self) {
        let a = Operand::Reg(self.general());
        let c = Operand::Reg(self.general());
        let b = match self.random.below(4) {
            0 => Operand::Imm(self.random.below(50) as i64),
            1 => self.memory(),
            _ => c,
        };
        let width = match self.random.below(3) {
            0 => Width::W32,
            _ => Width::W64,
        };
        let both = [Do::Add, Do::Sub, Do::Mul, Do::Xor, Do::Compare(Cond::Below)];
        let general = Class::General;
        match self.random.below(9) {
            0..=3 => {
                let op = both[self.random.below(both.len())];
                self.put(op, width, general, &[a, b]);
            }
            4 => self.put(Do::Div, width, general, &[a, c]),
            5 => {
                let other = Operand::Reg(self.general());
                self.put(Do::Select, Width::W64, general, &[a, c, other]);
            }
            6 => self.put(Do::Move, Width::W64, general, &[a]),
            7 => match self.random.below(2) {
                0 => self.put(Do::Load32, Width::W32, general, &[a]),
                _ => self.put(Do::Load64, Width::W64, general, &[a]),
            },
            _ => {
                let m = self.memory();
                self.put(Do::Load64, Width::W64, general, &[m]);
            }
        }
    }

    fn vector_instruction(&mut self) {
        let a = Operand::Reg(self.vector());
        let b = match self.random.below(5) {
            0 if self.level > Level::V2 => self.memory(),
            1 if self.level > Level::V3 => match self.memory() {
                Operand::Mem(element) => Operand::Each(element),
                other => other,
            },
            _ => Operand::Reg(self.vector()),
        };
        let c = Operand::Reg(self.vector());
        let width = self.b.width();
        let vector = Class::Vector;
        match self.random.below(10) {
            0 => self.put(Do::Vector(Vector::AddPs), width, vector, &[a, b]),
            1 => self.put(Do::Vector(Vector::SubPs), width, vector, &[a, b]),
            3 if self.level > Level::V2 => {
                self.put(Do::Vector(Vector::FmaPs), width, vector, &[a, b, c]);
            }
            4 if self.level > Level::V2 => {
                self.put(Do::Vector(Vector::ChoosePs), width, vector, &[c, b, a]);
            }
            5 => self.put(Do::Move, width, vector, &[a]),
            6 => {
                let src = [a, Operand::Imm(3)];
                self.put(Do::Vector(Vector::ShlDImm), width, vector, &src);
            }
            2 => self.put(Do::Vector(Vector::Load), width, vector, &[a]),
            7 => self.put(Do::Vector(Vector::MoveMaskPs), width, Class::General, &[a]),
            8 => {
                // A temporary that is moved to what it was made of, as sums are.
                let sum = self.vector();
                let t = self.b.vector();
                self.b.put(
                    Do::Vector(Vector::MulPs),
                    width,
                    Some(t),
                    &[Operand::Reg(sum), b],
                );
                if self.random.below(3) == 0 {
                    self.vector_instruction();
                }
                match self.constants.contains(&sum) {
                    true => self.vector.push(t),
                    false => self.b.copy(sum, t),
                }
            }
            _ => {
                let m = self.memory();
                self.put(Do::Vector(Vector::Load), width, vector, &[m]);
            }
        }
    }

    fn store(&mut self) {
        let m = self.memory();
        match self.random.below(2) {
            0 => {
                let from = Operand::Reg(self.general());
                self.b.put(Do::Store64, Width::W64, None, &[m, from]);
            }
            _ => {
                let from = Operand::Reg(self.vector());
                let width = self.b.width();
                self.b
                    .put(Do::Vector(Vector::Store), width, None, &[m, from]);
            }
        }
    }

    fn constant(&mut self) {
        let constant = match self.random.below(2) {
            0 => {
                let byte = self.random.below(4) as u8;
                let reg = self.b.constant(byte);
                self.vector.push(reg);
                reg
            }
            _ => {
                let number = self.random.below(1 << 20) as i64 - (1 << 19);
                let number = number << (8 * self.random.below(4));
                let reg = self.b.number(number);
                if self.random.below(2) == 0 && i32::try_from(number).is_ok() {
                    self.b.code.ins.last_mut().expect("the number").width = Width::W32;
                }
                self.general.push(reg);
                reg
            }
        };
        self.constants.push(constant);
    }

    fn control(&mut self) {
        let a = self.general();
        let b = match self.random.below(3) {
            0 => Operand::Imm(9),
            _ => Operand::Reg(self.general()),
        };
        let ends = self.open.len() > 3 || self.random.below(2) == 0;
        match self.open.pop() {
            Some(Open::Loop(label)) if ends => self.b.next(label, a, b),
            Some(Open::Skip(label, [general, vector])) if ends => {
                self.b.land(label);
                self.general.truncate(general);
                self.vector.truncate(vector);
            }
            open => {
                self.open.extend(open);
                match self.random.below(5) {
                    0 | 1 => {
                        let label = self.b.label();
                        self.b.skip(label, Cond::Less, a, b);
                        let defined = [self.general.len(), self.vector.len()];
                        self.open.push(Open::Skip(label, defined));
                    }
                    _ => {
                        let label = self.b.open();
                        self.open.push(Open::Loop(label));
                    }
                }
            }
        }
    }
}

/// Code of about so many instructions.
pub(crate) fn code(seed: u64, length: usize, level: Level) -> Code {
    let mut b = Build::new(level);
    let general: Vec<Reg> = (0..3).map(|k| b.argument(k)).collect();
    let vector = vec![b.load(general[0], 0)];
    let mut make = Make {
        b,
        random: Random::new(seed),
        level,
        general,
        vector,
        constants: Vec::new(),
        open: Vec::new(),
    };
    let pressure = 2 + make.random.below(60);
    for _ in 0..pressure {
        match make.random.below(4) {
            0 => make.constant(),
            1 => make.general_instruction(),
            _ => make.vector_instruction(),
        }
    }
    while make.b.code.ins.len() < length {
        match make.random.below(20) {
            0..=1 => make.control(),
            2..=4 => make.store(),
            5 => make.constant(),
            6..=11 => make.general_instruction(),
            _ => make.vector_instruction(),
        }
    }
    while !make.open.is_empty() {
        let count = make.open.len();
        make.control();
        if make.open.len() > count {
            make.store();
        }
    }
    for _ in 0..10 {
        make.store();
    }
    make.b.end()
}

#[test]
fn random_codes_are_allocated_rightly() {
    for seed in 0..4000 {
        let level = [Level::V2, Level::V3, Level::V4][seed as usize % 3];
        let length = 20 + (seed as usize * 7) % 180;
        allocated(&code(seed, length, level), level);
    }
}

#[test]
fn long_random_codes_are_allocated_rightly() {
    for seed in 0..2 {
        for level in [Level::V2, Level::V3, Level::V4] {
            allocated(&code(seed + 100_000, 20_000, level), level);
        }
    }
}
