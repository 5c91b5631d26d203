//! Code before it is bytes: a list of machine instructions over registers without number. Flows in: what
//! selection appends; flows out: the list, the classes of its registers, its constants. Always: every
//! instruction reads its sources before it writes its destination, whatever registers they get; jumps nest.

use crate::table::{Form, Vector};
use smallvec::SmallVec;
use std::ops::Range;

/// The instruction sets that code is made for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// x86-64-v2: SSE4.2, vectors of 16 bytes.
    V2,
    /// x86-64-v3: AVX2 and FMA, vectors of 32 bytes.
    V3,
    /// x86-64-v4: AVX-512 F, BW, DQ and VL, vectors of 64 bytes, twice as many registers.
    V4,
}

impl Level {
    /// The bytes of the widest vectors.
    pub fn vector_bytes(self) -> usize {
        match self {
            Level::V2 => 16,
            Level::V3 => 32,
            Level::V4 => 64,
        }
    }

    /// The vector registers that values are in, from 0 on.
    pub fn vector_registers(self) -> u8 {
        match self {
            Level::V2 => 15,
            Level::V3 => 16,
            Level::V4 => 32,
        }
    }

    /// The bytes of a place in the frame, and of a constant.
    pub fn slot_bytes(self) -> usize {
        self.vector_bytes().max(32)
    }
}

/// A register before allocation. A program may write one several times; what it holds is what was written last.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg(pub u32);

/// The registers of a machine that a value can be in.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A general register. Values narrower than 32 bits are extended to 32 by their sign; those of 32 bits leave the upper half 0.
    General,
    /// A vector register; scalars of floats are in the first lane.
    Vector,
}

/// Bytes of a vector that an instruction works on, or of a general register.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 32 bits of a general register.
    W32,
    /// 64 bits of a general register.
    W64,
    /// A vector register's 16 bytes.
    X,
    /// A vector register's 32 bytes.
    Y,
    /// A vector register's 64 bytes.
    Z,
}

impl Width {
    /// The bytes.
    pub fn bytes(self) -> usize {
        match self {
            Width::W32 => 4,
            Width::W64 => 8,
            Width::X => 16,
            Width::Y => 32,
            Width::Z => 64,
        }
    }

    /// The narrowest width of vectors with room for so many bytes.
    pub fn of_vector(bytes: usize) -> Width {
        match bytes {
            0..=16 => Width::X,
            17..=32 => Width::Y,
            _ => Width::Z,
        }
    }
}

/// What an address is made of: `[base + index·scale + displacement]`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mem {
    /// A general register.
    pub base: Reg,
    /// A general register, and 1, 2, 4 or 8.
    pub index: Option<(Reg, u8)>,
    /// Bytes.
    pub displacement: i32,
}

/// A source of an instruction.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// What stands in memory.
    Mem(Mem),
    /// The element that stands in memory, in every lane: of a source of a vector instruction whose encodings of AVX-512
    /// say so, that may be memory.
    Each(Mem),
    /// A constant of the pool, by its number.
    Pool(u32),
    /// A place in the frame, by its number: only allocation makes these.
    Slot(u32),
    /// A number: an immediate, the predicate of a comparison, a label.
    Imm(i64),
}

/// Conditions between two integers.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Cond {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    /// The same of unsigned ones.
    Below,
    BelowEqual,
    Above,
    AboveEqual,
}

impl Cond {
    /// The condition that holds where this one does not.
    pub fn inverse(self) -> Cond {
        match self {
            Cond::Equal => Cond::NotEqual,
            Cond::NotEqual => Cond::Equal,
            Cond::Less => Cond::GreaterEqual,
            Cond::LessEqual => Cond::Greater,
            Cond::Greater => Cond::LessEqual,
            Cond::GreaterEqual => Cond::Less,
            Cond::Below => Cond::AboveEqual,
            Cond::BelowEqual => Cond::Above,
            Cond::Above => Cond::BelowEqual,
            Cond::AboveEqual => Cond::Below,
        }
    }

    /// The condition that holds of the integers the other way round where this one holds.
    pub fn turned(self) -> Cond {
        match self {
            Cond::Equal => Cond::Equal,
            Cond::NotEqual => Cond::NotEqual,
            Cond::Less => Cond::Greater,
            Cond::LessEqual => Cond::GreaterEqual,
            Cond::Greater => Cond::Less,
            Cond::GreaterEqual => Cond::LessEqual,
            Cond::Below => Cond::Above,
            Cond::BelowEqual => Cond::AboveEqual,
            Cond::Above => Cond::Below,
            Cond::AboveEqual => Cond::BelowEqual,
        }
    }
}

/// What an instruction does. Sources are listed as `a, b, c`; `r/m` may be a register or memory (pool and frame
/// among it), `i` an immediate of 32 bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Do {
    /// A row of the table of vectors.
    Vector(Vector),
    /// dst = a, registers of one class.
    Move,
    /// dst = the k-th argument of the function: a pointer to the arguments of the kernel, the thread's number,
    /// a pointer to the thread's own storage. These stand first, in order.
    Argument(u8),
    /// dst = i, of 64 bits.
    Immediate,
    /// dst = 0 in a vector register.
    Zero,
    /// dst = a (r/m), of 8 or 16 bits, extended to 32 without and with the sign.
    Load8U,
    /// As above.
    Load8S,
    /// As above.
    Load16U,
    /// As above.
    Load16S,
    /// dst = a (r/m) of 32 bits; the upper half becomes 0.
    Load32,
    /// dst = a (r/m) of 64 bits.
    Load64,
    /// dst = a (r/m) of 32 bits, extended to 64 by its sign.
    Extend32,
    /// memory a = b, so many low bits.
    Store8,
    /// As above.
    Store16,
    /// As above.
    Store32,
    /// As above.
    Store64,
    /// dst = a + b (r/m/i), and so on.
    Add,
    /// As above.
    Sub,
    /// As above: the low half of the product.
    Mul,
    /// As above.
    And,
    /// As above.
    Or,
    /// As above.
    Xor,
    /// dst = a shifted by b (r/i), of which the low 5 or 6 bits count.
    Shl,
    /// As above, without the sign.
    Shr,
    /// As above, with the sign.
    Sar,
    /// dst = −a.
    Neg,
    /// dst = the complement of a.
    Not,
    /// dst = the address a, which is memory.
    Address,
    /// dst = a / b rounded to zero (r/r): signed.
    Div,
    /// The remainder.
    Rem,
    /// Unsigned.
    DivU,
    /// As above.
    RemU,
    /// dst = 1 where a stands so to b (r/m/i), else 0.
    Compare(Cond),
    /// dst = b where a is not 0, else c: registers, 64 bits.
    Select,
    /// memory a += b, of 32 or 64 bits, whatever other threads do to it.
    AddAtomic,
    /// dst = 1 where memory a was b, of 32 or 64 bits, and is c from now on, else 0; whatever other threads do to it.
    Exchange,
    /// Ask for the line of memory a.
    Prefetch,
    /// Stores that passed the caches are seen before all that follows.
    Fence,
    /// Registers of tiles have the rows and bytes that a constant a of the pool says.
    TileConfigure,
    /// They are not used any more.
    TileRelease,
    /// The tile a (a number, as in all of these) = 0.
    TileZero,
    /// The tile b = the rows of memory a, whose index is how far they are from each other.
    TileLoad,
    /// The rows of memory a = the tile b.
    TileStore,
    /// The tile a += b · c, tiles of words.
    TileDot(TileDot),
    /// The top of the loop i, which turns so often at most (the second source, where that is known and its counter never
    /// negative).
    Loop,
    /// a < b (r/m/i), signed, in the width: to the top of the loop i (the third source), else on. It ends the loop.
    Next,
    /// On to `Land` i (the third source) where a (register) stands so to b (r/m/i).
    SkipIf(Cond),
    /// Where the `SkipIf`s of i (the first source) come to.
    Land,
    /// The end; code goes on to here alone.
    Return,
}

impl Do {
    /// Whether what follows may run more or less often than what stands before.
    pub(crate) fn is_control(self) -> bool {
        matches!(self, Do::Loop | Do::Next | Do::SkipIf(_) | Do::Land)
    }
}

/// The elements of the words of two tiles: of floats, of bytes with (S) and without (U) a sign.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum TileDot {
    BF16,
    SS,
    SU,
    US,
    UU,
}

impl Operand {
    /// The registers that are read for it, those of an address among them.
    pub fn reads(&self, mut f: impl FnMut(Reg)) {
        match *self {
            Operand::Reg(r) => f(r),
            Operand::Mem(m) | Operand::Each(m) => {
                f(m.base);
                m.index.into_iter().for_each(|(r, _)| f(r));
            }
            Operand::Pool(_) | Operand::Slot(_) | Operand::Imm(_) => {}
        }
    }

    /// Has it read other registers.
    pub fn rename(&mut self, name: impl Fn(Reg) -> Reg) {
        match self {
            Operand::Reg(r) => *r = name(*r),
            Operand::Mem(m) | Operand::Each(m) => {
                m.base = name(m.base);
                if let Some((index, _)) = &mut m.index {
                    *index = name(*index);
                }
            }
            Operand::Pool(_) | Operand::Slot(_) | Operand::Imm(_) => {}
        }
    }
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ins {
    /// What it does.
    pub op: Do,
    /// On how much.
    pub width: Width,
    /// What it writes.
    pub dst: Option<Reg>,
    /// What it reads.
    pub src: SmallVec<[Operand; 4]>,
    /// The place in the program's list of what it is of; it does nothing.
    pub mark: u32,
}

impl Ins {
    /// The source that may be memory, a constant of the pool or a place in the frame instead of a register. With
    /// SSE4.2 a vector in memory lies at a multiple of its bytes: constants and frames do, other memory may not.
    pub fn memory_source(&self) -> Option<usize> {
        match self.op {
            Do::Vector(v) if v.registers_only() => None,
            Do::Vector(v) => match v.form() {
                Form::Two | Form::Pass => Some(0),
                Form::Three | Form::ThreeCommuting => Some(1),
                Form::Fma | Form::Dot | Form::Choose => Some(1),
                Form::Table | Form::MaskFma => Some(2),
                Form::MaskLoad => Some(1),
                Form::Store | Form::MaskStore => Some(0),
                Form::ShiftImm | Form::Extract | Form::Extract0 => None,
            },
            Do::Load8U | Do::Load8S | Do::Load16U | Do::Load16S => Some(0),
            Do::Load32 | Do::Load64 | Do::Extend32 => Some(0),
            Do::Store8 | Do::Store16 | Do::Store32 | Do::Store64 => Some(0),
            Do::Add | Do::Sub | Do::Mul | Do::And | Do::Or | Do::Xor => Some(1),
            Do::Compare(_) | Do::Next | Do::SkipIf(_) => Some(1),
            Do::Address | Do::Prefetch | Do::AddAtomic | Do::Exchange => Some(0),
            _ => None,
        }
    }

    /// Whether a source may be memory instead of a register, where no other one is: that of `memory_source`, and what a
    /// fused product is added to.
    pub fn may_be_memory(&self, source: usize) -> bool {
        let fused = matches!(self.op, Do::Vector(v) if v.form() == Form::Fma);
        self.memory_source() == Some(source) || fused && source == 2
    }

    /// The registers that it reads, those of addresses among them.
    pub fn reads(&self, mut f: impl FnMut(Reg)) {
        self.src.iter().for_each(|s| s.reads(&mut f));
    }
}

/// How a register's value can be made again instead of being kept.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Again {
    /// It is a constant of the pool, all its bytes, which may stand as `Operand::Pool` where memory may.
    Pool(u32),
    /// It is a number in a general register.
    Number(i64),
}

/// What is known of a register.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RegInfo {
    /// Where it can be.
    pub class: Class,
    /// Bytes of what it holds that are read: 4 or 8 of a general one, up to 64 of a vector.
    pub bytes: u8,
    /// Its value, where that is a constant: it is written once, by a `Load` of the pool, a `Zero` or an `Immediate`.
    pub again: Option<Again>,
    /// Whether it holds what memory has that the code does not write.
    pub lasting: bool,
}

/// A constant of the pool: as many of the bytes as are read, the others are 0.
pub type Constant = [u8; 64];

/// A function over registers without number.
#[derive(Clone, Debug, Default)]
pub struct Code {
    /// The instructions.
    pub ins: Vec<Ins>,
    /// By number of the register.
    pub regs: Vec<RegInfo>,
    /// By number of the constant.
    pub pool: Vec<Constant>,
}

impl Code {
    /// A register of its own.
    pub fn reg(&mut self, class: Class, bytes: usize) -> Reg {
        self.regs.push(RegInfo {
            class,
            bytes: bytes as u8,
            again: None,
            lasting: false,
        });
        Reg(self.regs.len() as u32 - 1)
    }
}

/// The loops that have none inside, each from its top to the jump back.
pub(crate) fn innermost(all: &[Ins]) -> Vec<Range<usize>> {
    let mut loops = Vec::new();
    let mut top = None;
    for (at, ins) in all.iter().enumerate() {
        match ins.op {
            Do::Loop => top = Some(at),
            Do::Next => loops.extend(top.take().map(|top| top..at + 1)),
            _ => {}
        }
    }
    loops
}

/// Whether nothing in a loop jumps before its end.
pub(crate) fn is_straight(body: &[Ins]) -> bool {
    let mut inside = body[1..body.len() - 1].iter();
    !inside.any(|ins| ins.op.is_control())
}

/// The mark of an instruction that is of none of the program's.
pub const UNMARKED: u32 = u32::MAX;

/// What a register is after allocation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The general register of that number, as the machine counts them.
    General(u8),
    /// The vector register of that number.
    Vector(u8),
    /// None: it is nowhere mentioned.
    Nowhere,
}

/// Code whose registers have numbers.
#[derive(Clone, Debug, Default)]
pub struct Allocated {
    /// The code, with what was put in to keep registers in the frame: loads of a `Slot` (`Load64`, `Load` of the
    /// vector's width) and stores to one (`Store64`, `Store`, whose first source is the `Slot`).
    pub code: Code,
    /// By number of the register.
    pub places: Vec<Place>,
    /// The register that one was before it was kept in the frame or made again, by number: itself, where it was not.
    pub origin: Vec<Reg>,
    /// Places in the frame, each of `Level::slot_bytes` at a multiple of them.
    pub slots: u32,
}
