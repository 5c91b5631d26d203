//! Runs code on symbols: a value is a hash of what made it. Flows in: code before or after allocation; flows out: what
//! it does to memory, in order. Always: branches go by the hash of what they compare, so that both codes go one way.

use monoglot_native::code::*;
use monoglot_native::table::Vector;
use rustc_hash::FxHashMap;
use std::hash::{Hash, Hasher};

/// Turns of loops in a run, beyond which every loop ends.
const TURNS: u32 = 60;

fn hash(of: impl Hash) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    of.hash(&mut hasher);
    // What is hashed last would else be found in few bits.
    hasher.finish().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (hasher.finish() >> 29)
}

struct Run<'a, P: Fn(Reg) -> usize> {
    code: &'a Code,
    place: P,
    registers: Vec<u64>,
    /// A value, and the bytes of it that were stored.
    slots: FxHashMap<u32, (u64, usize)>,
    written: Vec<u64>,
    turns: u32,
    seed: u64,
}

pub(crate) fn before(code: &Code, seed: u64) -> Vec<u64> {
    let run = Run {
        code,
        place: |r: Reg| r.0 as usize,
        registers: (0..code.regs.len() as u64)
            .map(|i| hash((i, "before")))
            .collect(),
        slots: FxHashMap::default(),
        written: Vec::new(),
        turns: 0,
        seed,
    };
    run.all()
}

pub(crate) fn after(after: &Allocated, seed: u64) -> Vec<u64> {
    let run = Run {
        code: &after.code,
        place: |r: Reg| match after.places[r.0 as usize] {
            Place::General(n) => n as usize,
            Place::Vector(n) => 16 + n as usize,
            Place::Nowhere => panic!("{r:?} is nowhere"),
        },
        registers: (0..48).map(|i| hash((i, "after"))).collect(),
        slots: FxHashMap::default(),
        written: Vec::new(),
        turns: 0,
        seed,
    };
    run.all()
}

impl<P: Fn(Reg) -> usize> Run<'_, P> {
    fn all(mut self) -> Vec<u64> {
        let mut at = 0;
        while at < self.code.ins.len() {
            at = self.one(at);
        }
        self.written
    }

    fn value(&self, r: Reg) -> u64 {
        self.registers[(self.place)(r)]
    }

    fn address(&self, m: &Mem) -> u64 {
        let index = m.index.map(|(r, scale)| (self.value(r), scale));
        hash((self.value(m.base), index, m.displacement))
    }

    fn source(&self, source: &Operand, width: Width) -> u64 {
        match source {
            Operand::Reg(r) => self.value(*r),
            Operand::Mem(m) => hash((self.address(m), self.written.len())),
            Operand::Each(m) => hash(("each", self.address(m), self.written.len())),
            Operand::Pool(k) => hash(("constant", self.code.pool[*k as usize])),
            Operand::Imm(number) => hash(("number", number)),
            Operand::Slot(slot) => match self.slots.get(slot) {
                Some((value, bytes)) if width.bytes() <= *bytes => *value,
                other => hash(("nothing", other)),
            },
        }
    }

    /// Runs one instruction; which is next.
    fn one(&mut self, at: usize) -> usize {
        let ins = &self.code.ins[at];
        let stores = matches!(
            ins.op,
            Do::Store8 | Do::Store16 | Do::Store32 | Do::Store64 | Do::Vector(Vector::Store)
        );
        if let (true, Some(Operand::Slot(slot))) = (stores, ins.src.first()) {
            let value = self.source(&ins.src[1], ins.width);
            self.slots.insert(*slot, (value, ins.width.bytes()));
            return at + 1;
        }
        if let (true, Some(Operand::Mem(m))) = (stores, ins.src.first()) {
            let value = self.source(&ins.src[1], ins.width);
            let stored = hash((self.address(m), value, format!("{:?}", ins.op)));
            self.written.push(stored);
            return at + 1;
        }
        let values: Vec<u64> = ins.src.iter().map(|s| self.source(s, ins.width)).collect();
        match ins.op {
            Do::Loop | Do::Land | Do::Return => at + 1,
            Do::Next => {
                self.turns += 1;
                let on = hash((values, self.seed)).is_multiple_of(4) || self.turns > TURNS;
                self.written.push(u64::from(on));
                match on {
                    true => at + 1,
                    false => self.find(Do::Loop, ins.src[2]) + 1,
                }
            }
            Do::SkipIf(_) => match hash((values, self.seed)) % 2 {
                0 => at + 1,
                _ => self.find(Do::Land, ins.src[2]),
            },
            _ => {
                let value = self.result(ins, values);
                if let Some(dst) = ins.dst {
                    let place = (self.place)(dst);
                    self.registers[place] = value;
                }
                at + 1
            }
        }
    }

    fn find(&self, op: Do, label: Operand) -> usize {
        let here = |ins: &Ins| ins.op == op && ins.src[0] == label;
        self.code.ins.iter().position(here).expect("a label")
    }

    fn result(&self, ins: &Ins, mut values: Vec<u64>) -> u64 {
        let commutes = match ins.op {
            Do::Move | Do::Immediate => return values[0],
            Do::Load64 if !matches!(ins.src[0], Operand::Mem(_)) => return values[0],
            Do::Vector(Vector::Load) if !matches!(ins.src[0], Operand::Mem(_)) => return values[0],
            Do::Zero => return hash(("constant", [0u8; 64])),
            Do::Add | Do::Mul | Do::And | Do::Or | Do::Xor => true,
            Do::Vector(Vector::FmaPs | Vector::AddPs | Vector::MulPs) => true,
            _ => false,
        };
        if commutes && values[0] > values[1] {
            values.swap(0, 1);
        }
        hash((ins.op, ins.width, values))
    }
}
