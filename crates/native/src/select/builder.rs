//! Where instructions are put while a program is selected: a scope for each loop and condition that is open. Flows
//! in: instructions, and for which scope; flows out: one list. Always: what is put into an outer scope while an
//! inner one is open stands before the inner one, so that it is worked out once.

use crate::code::{Again, Class, Code, Cond, Constant, Do, Ins, Level, Mem, Operand, Reg, Width};
use crate::table::Vector;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};

/// The registers of a value: one, or as many as its lanes fill.
pub(super) type Parts = SmallVec<[Reg; 2]>;

/// What an address begins with: a buffer, by its number.
pub(super) type Base = u32;

/// What a scope has worked out, and keeps for whoever asks again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Memo {
    /// A constant of so many bytes.
    Pool(Constant, Width),
    /// A number.
    Number(i64),
    /// The address of a buffer's first element.
    Base(Base),
    /// A buffer's address plus multiples of values, by their places in the list.
    Pointer(Base, SmallVec<[(u32, i64); 4]>),
    /// A multiple of a value, in 64 bits.
    Multiple(u32, i64),
}

/// A comparison of integers of a width.
#[derive(Copy, Clone, Debug)]
pub(super) struct Test {
    pub(super) cond: Cond,
    pub(super) width: Width,
    pub(super) a: Reg,
    pub(super) b: Operand,
}

/// Comparisons that hold together.
pub(super) type Tests = SmallVec<[Test; 2]>;

/// What a scope is.
pub(super) enum Kind {
    /// The function.
    Function,
    /// A loop: its counter, where it begins, where it ends, and how often it turns at most, where that is known and no counter is
    /// negative.
    Loop {
        counter: Reg,
        first: Operand,
        end: Operand,
        most: Option<i64>,
        width: Width,
        guarded: bool,
    },
    /// A condition: what is jumped past unless all of these hold.
    If(Tests),
    /// A phase: what is jumped past where a register is not this number.
    Phase(Reg, i64),
    /// One of two versions: what is jumped past where a register is not 0, or where it is.
    Version(Reg, bool),
}

struct Scope {
    kind: Kind,
    /// What stands before the last part of its instructions: nothing moves as scopes inside are closed.
    parts: Vec<Vec<Ins>>,
    ins: Vec<Ins>,
    /// What stands at the end of each turn.
    latch: Vec<Ins>,
    memo: FxHashMap<Memo, Reg>,
}

impl Scope {
    /// Put what another scope holds, and what stands at the end of its turns, behind this one's instructions.
    fn take_in(&mut self, inner: Scope) {
        self.parts.push(std::mem::take(&mut self.ins));
        self.parts.extend(inner.parts);
        self.parts.extend([inner.ins, inner.latch]);
    }
}

/// See above.
pub(super) struct Builder {
    pub(super) level: Level,
    pub(super) code: Code,
    /// Registers that are written more than once.
    pub(super) variables: FxHashSet<Reg>,
    /// The instruction of the program that is being selected.
    pub(super) mark: u32,
    scopes: Vec<Scope>,
    pool: FxHashMap<Constant, u32>,
    labels: i64,
}

impl Builder {
    pub(super) fn new(level: Level) -> Builder {
        let mut b = Builder {
            level,
            code: Code::default(),
            variables: FxHashSet::default(),
            mark: u32::MAX,
            scopes: Vec::new(),
            pool: FxHashMap::default(),
            labels: 0,
        };
        b.push(Kind::Function);
        b
    }

    /// Bytes of a vector register.
    pub(super) fn vector_bytes(&self) -> usize {
        self.level.vector_bytes()
    }

    /// The number of the innermost open scope.
    pub(super) fn innermost(&self) -> usize {
        self.scopes.len() - 1
    }

    /// The number of the innermost open loop; 0 where there is none.
    pub(super) fn innermost_loop(&self) -> usize {
        let is_loop = |s: &Scope| matches!(s.kind, Kind::Loop { .. });
        self.scopes.iter().rposition(is_loop).unwrap_or(0)
    }

    /// Open a scope.
    pub(super) fn push(&mut self, kind: Kind) {
        self.scopes.push(Scope {
            kind,
            parts: Vec::new(),
            ins: Vec::new(),
            latch: Vec::new(),
            memo: FxHashMap::default(),
        });
    }

    /// Close the innermost scope: what it holds stands in the next.
    pub(super) fn pop(&mut self) {
        let Some(mut scope) = self.scopes.pop() else {
            return;
        };
        let Some(outer) = self.scopes.last_mut() else {
            self.scopes.push(scope);
            return;
        };
        let mark = self.mark;
        let label = Operand::Imm(self.labels);
        self.labels += 1;
        let control = |op: Do, width: Width, dst: Option<Reg>, src: &[Operand]| {
            Self::ins(op, width, dst, src, mark)
        };
        let skip = |cond: Cond, a: Operand, width: Width, b: Operand| {
            control(Do::SkipIf(cond), width, None, &[a, b, label])
        };
        let land = control(Do::Land, Width::W64, None, &[label]);
        let pass = |outer: &mut Scope, inner: Scope, tests: Tests| {
            for t in tests {
                let a = Operand::Reg(t.a);
                outer.ins.push(skip(t.cond.inverse(), a, t.width, t.b));
            }
            outer.take_in(inner);
            outer.ins.push(land.clone());
        };
        let number = |cond: Cond, a: Reg, number: i64| Test {
            cond,
            width: Width::W32,
            a,
            b: Operand::Imm(number),
        };
        match std::mem::replace(&mut scope.kind, Kind::Function) {
            Kind::Function => {}
            Kind::Loop {
                counter,
                first,
                end,
                most,
                width,
                guarded,
            } => {
                let begin = match first {
                    Operand::Imm(_) => Do::Immediate,
                    _ => Do::Move,
                };
                outer
                    .ins
                    .push(control(begin, width, Some(counter), &[first]));
                let here = Operand::Reg(counter);
                if guarded {
                    outer.ins.push(skip(Cond::GreaterEqual, here, width, end));
                }
                let mut top = control(Do::Loop, width, None, &[label]);
                top.src.extend(most.map(Operand::Imm));
                outer.ins.push(top);
                outer.take_in(scope);
                let one = Operand::Imm(1);
                outer
                    .ins
                    .push(control(Do::Add, width, Some(counter), &[here, one]));
                outer
                    .ins
                    .push(control(Do::Next, width, None, &[here, end, label]));
                if guarded {
                    outer.ins.push(land);
                }
            }
            Kind::If(tests) => pass(outer, scope, tests),
            Kind::Version(rest, zero) => {
                let cond = if zero { Cond::Equal } else { Cond::NotEqual };
                pass(outer, scope, smallvec![number(cond, rest, 0)]);
            }
            Kind::Phase(phase, of) => {
                pass(outer, scope, smallvec![number(Cond::Equal, phase, of)]);
            }
        }
    }

    /// The code.
    pub(super) fn finish(mut self) -> Code {
        while self.scopes.len() > 1 {
            self.pop();
        }
        let parts = |scope: Scope| scope.parts.into_iter().chain([scope.ins]);
        let all: Vec<Vec<Ins>> = self.scopes.into_iter().flat_map(parts).collect();
        self.code.ins.reserve(all.iter().map(Vec::len).sum());
        self.code.ins.extend(all.into_iter().flatten());
        self.code
    }

    /// The loop of a scope: its counter, where it begins, and the width of both.
    pub(super) fn loop_of(&self, scope: usize) -> Option<(Reg, Operand, Width)> {
        match self.scopes.get(scope)?.kind {
            Kind::Loop {
                counter,
                first,
                width,
                ..
            } => Some((counter, first, width)),
            _ => None,
        }
    }

    /// What a scope keeps.
    pub(super) fn kept(&self, scope: usize, memo: &Memo) -> Option<Reg> {
        self.scopes.get(scope)?.memo.get(memo).copied()
    }

    /// Have a scope keep something.
    pub(super) fn keep(&mut self, scope: usize, memo: Memo, reg: Reg) {
        if let Some(scope) = self.scopes.get_mut(scope) {
            scope.memo.insert(memo, reg);
        }
    }

    fn ins(op: Do, width: Width, dst: Option<Reg>, src: &[Operand], mark: u32) -> Ins {
        Ins {
            op,
            width,
            dst,
            src: src.iter().copied().collect(),
            mark,
        }
    }

    /// An instruction at the end of the innermost scope.
    pub(super) fn put(&mut self, op: Do, width: Width, dst: Option<Reg>, src: &[Operand]) {
        let scope = self.innermost();
        self.put_in(scope, op, width, dst, src);
    }

    /// An instruction at the end of a scope.
    pub(super) fn put_in(
        &mut self,
        scope: usize,
        op: Do,
        width: Width,
        dst: Option<Reg>,
        src: &[Operand],
    ) {
        let mark = self.mark;
        if let Some(scope) = self.scopes.get_mut(scope) {
            scope.ins.push(Self::ins(op, width, dst, src, mark));
        }
    }

    /// An instruction at the end of each turn of a loop.
    pub(super) fn put_latch(&mut self, scope: usize, op: Do, dst: Reg, src: &[Operand]) {
        let mark = self.mark;
        if let Some(scope) = self.scopes.get_mut(scope) {
            let ins = Self::ins(op, Width::W64, Some(dst), src, mark);
            scope.latch.push(ins);
        }
    }

    /// A new general register with the value of an instruction.
    pub(super) fn general(&mut self, op: Do, width: Width, src: &[Operand]) -> Reg {
        let scope = self.innermost();
        self.general_in(scope, op, width, src)
    }

    /// The same in a scope.
    pub(super) fn general_in(
        &mut self,
        scope: usize,
        op: Do,
        width: Width,
        src: &[Operand],
    ) -> Reg {
        let dst = self.code.reg(Class::General, 8);
        self.put_in(scope, op, width, Some(dst), src);
        dst
    }

    /// A new vector register with the value of a vector instruction.
    pub(super) fn vector(&mut self, v: Vector, width: Width, src: &[Operand]) -> Reg {
        let dst = self.code.reg(Class::Vector, width.bytes());
        self.put(Do::Vector(v), width, Some(dst), src);
        dst
    }

    /// The same of registers, with an immediate where one is given.
    pub(super) fn of(&mut self, v: Vector, width: Width, regs: &[Reg], imm: Option<i64>) -> Reg {
        let mut src: SmallVec<[Operand; 4]> = regs.iter().map(|&r| Operand::Reg(r)).collect();
        src.extend(imm.map(Operand::Imm));
        self.vector(v, width, &src)
    }

    /// A general register that holds what a vector instruction makes.
    pub(super) fn general_of(&mut self, v: Vector, width: Width, src: &[Operand]) -> Reg {
        self.general(Do::Vector(v), width, src)
    }

    /// A copy in a register of its own.
    pub(super) fn copy(&mut self, from: Reg) -> Reg {
        let info = self.code.regs[from.0 as usize];
        let dst = self.code.reg(info.class, info.bytes as usize);
        self.put(Do::Move, Width::W64, Some(dst), &[Operand::Reg(from)]);
        dst
    }

    /// A register that keeps its value: the same, or a copy of one that is written again.
    pub(super) fn stable(&mut self, reg: Reg) -> Reg {
        if self.variables.contains(&reg) {
            self.copy(reg)
        } else {
            reg
        }
    }

    /// The scope in which constants are made: the function, a phase, a version.
    fn root(&self) -> usize {
        let opens =
            |s: &&Scope| matches!(s.kind, Kind::Function | Kind::Phase(..) | Kind::Version(..));
        self.scopes.iter().take_while(opens).count() - 1
    }

    /// A number in a general register.
    pub(super) fn number(&mut self, value: i64) -> Reg {
        let scope = self.root();
        if let Some(reg) = self.kept(scope, &Memo::Number(value)) {
            return reg;
        }
        let reg = self.general_in(scope, Do::Immediate, Width::W64, &[Operand::Imm(value)]);
        self.code.regs[reg.0 as usize].again = Some(Again::Number(value));
        self.keep(scope, Memo::Number(value), reg);
        reg
    }

    /// A constant without what no vector of the level has.
    fn kept_bytes(&self, constant: Constant) -> Constant {
        let mut kept = constant;
        kept[self.level.slot_bytes()..].fill(0);
        kept
    }

    /// The number of a constant in the pool.
    pub(super) fn pooled(&mut self, constant: Constant) -> u32 {
        let code = &mut self.code;
        *self.pool.entry(constant).or_insert_with(|| {
            code.pool.push(constant);
            code.pool.len() as u32 - 1
        })
    }

    /// A constant in a vector register.
    pub(super) fn constant(&mut self, constant: Constant, width: Width) -> Reg {
        let scope = self.root();
        let constant = self.kept_bytes(constant);
        let memo = Memo::Pool(constant, width);
        if let Some(reg) = self.kept(scope, &memo) {
            return reg;
        }
        let k = self.pooled(constant);
        let reg = self.code.reg(Class::Vector, width.bytes());
        if constant == [0; 64] {
            self.put_in(scope, Do::Zero, width, Some(reg), &[]);
        } else {
            let load = Do::Vector(Vector::Load);
            self.put_in(scope, load, width, Some(reg), &[Operand::Pool(k)]);
        }
        self.code.regs[reg.0 as usize].again = Some(Again::Pool(k));
        self.keep(scope, memo, reg);
        reg
    }

    /// Whether a register is the constant 0, in all bytes.
    pub(super) fn is_zero(&self, reg: Reg) -> bool {
        let code = &self.code;
        match code.regs[reg.0 as usize].again {
            Some(Again::Pool(k)) => code.pool[k as usize] == [0; 64],
            _ => false,
        }
    }

    /// The bits of a lane in every lane of so many bytes.
    pub(super) fn splat_bits(&mut self, bits: u64, lane: usize, width: Width) -> Reg {
        let constant = splat(bits, lane);
        self.constant(constant, width)
    }

    /// Memory at a register.
    pub(super) fn at(base: Reg, displacement: i32) -> Operand {
        Operand::Mem(Mem {
            base,
            index: None,
            displacement,
        })
    }

    /// Instructions that are passed unless all of these hold.
    pub(super) fn under(&mut self, tests: &Tests, then: impl FnOnce(&mut Builder)) {
        let label = Operand::Imm(self.labels);
        self.labels += 1;
        for t in tests {
            let src = [Operand::Reg(t.a), t.b, label];
            self.put(Do::SkipIf(t.cond.inverse()), t.width, None, &src);
        }
        then(self);
        self.put(Do::Land, Width::W64, None, &[label]);
    }

    /// Instructions that are passed where a register stands so to a number.
    pub(super) fn skip(
        &mut self,
        cond: Cond,
        a: Reg,
        number: i64,
        then: impl FnOnce(&mut Builder),
    ) {
        let label = Operand::Imm(self.labels);
        self.labels += 1;
        let src = [Operand::Reg(a), Operand::Imm(number), label];
        self.put(Do::SkipIf(cond), Width::W32, None, &src);
        then(self);
        self.put(Do::Land, Width::W64, None, &[label]);
    }
}

/// A constant of equal lanes.
pub(super) fn splat(bits: u64, lane: usize) -> Constant {
    let mut constant = [0; 64];
    let bytes = bits.to_le_bytes();
    for (i, b) in constant.iter_mut().enumerate() {
        *b = bytes[i % lane];
    }
    constant
}

/// One register.
pub(super) fn one(reg: Reg) -> Parts {
    smallvec![reg]
}
