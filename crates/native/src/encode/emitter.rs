//! From sources of instructions to operands of the machine. Flows in: encodings with registers by number,
//! addresses and numbers; flows out: the instructions appended to the buffer. Always: a register of the
//! allocator's that is scratch here, or of the other class, is an error.

use super::buffer::Buffer;
use super::buffer::broken;
use crate::code::Allocated;
use crate::code::Ins;
use crate::code::Level;
use crate::code::Operand;
use crate::code::Place;
use crate::code::Reg;
use crate::code::Width;
use iced_x86::Code;
use iced_x86::Instruction;
use iced_x86::OpKind;
use iced_x86::Register;
use monoglot_uop::Result;

/// The scratch register of SSE4.2.
pub(super) const SCRATCH: Source = Source::Vector(15);

/// The general registers that are scratch, as the machine counts them.
pub(super) const RAX: u8 = 0;
pub(super) const RCX: u8 = 1;
pub(super) const RDX: u8 = 2;
pub(super) const RSP: u8 = 4;
pub(super) const RBP: u8 = 5;

/// Those and what the frame needs, a bit each.
const NOT_FOR_VALUES: u16 = 1 << RAX | 1 << RCX | 1 << RDX | 1 << RSP | 1 << RBP;

/// A source or destination whose registers have numbers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    General(u8),
    Vector(u8),
    Memory(Address),
    Immediate(i64),
    /// The mask register of that number.
    Mask(u8),
}

/// `[base + index·scale + displacement]`, or a constant of the pool.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) base: u8,
    pub(super) index: Option<(u8, u8)>,
    pub(super) displacement: i32,
    pub(super) constant: Option<u32>,
    /// Whether the element there is in every lane.
    pub(super) each: bool,
}

impl Address {
    /// What a register points to, so many bytes on.
    pub(super) fn of(base: u8, displacement: i32) -> Address {
        Address {
            base,
            index: None,
            displacement,
            constant: None,
            each: false,
        }
    }

    fn mentions(&self, register: u8) -> bool {
        let base = self.constant.is_none() && self.base == register;
        base || self.index.is_some_and(|(index, _)| index == register)
    }
}

impl Source {
    /// If it is a vector register past the first sixteen.
    pub(super) fn is_upper(&self) -> bool {
        matches!(self, Source::Vector(16..))
    }

    /// If it is an element in every lane, which encodings of AVX-512 alone have.
    pub(super) fn is_each(&self) -> bool {
        matches!(self, Source::Memory(address) if address.each)
    }

    /// If it reads the general register.
    pub(super) fn mentions(&self, register: u8) -> bool {
        match self {
            Source::General(own) => *own == register,
            Source::Memory(address) => address.mentions(register),
            Source::Vector(_) | Source::Immediate(_) | Source::Mask(_) => false,
        }
    }
}

/// An operand as the machine has it.
#[derive(Copy, Clone, Debug)]
pub(super) enum Argument {
    Register(Register),
    Memory(Address),
    Immediate(OpKind, i64),
}

/// The general register of that number, of so many bits.
pub(super) fn general(number: u8, wide: bool) -> Register {
    let first = if wide { Register::RAX } else { Register::EAX };
    first + u32::from(number)
}

/// Its low 16 bits.
pub(super) fn word(number: u8) -> Register {
    Register::AX + u32::from(number)
}

/// Its low 8 bits. iced has AH to BH after the first four.
pub(super) fn byte(number: u8) -> Register {
    let skip = if number < 4 { 0 } else { 4 };
    Register::AL + u32::from(number) + skip
}

/// The lanes that an instruction writes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Under {
    /// All.
    None,
    /// Those of a mask register; the others stay.
    Merging(u8),
    /// Those of a mask register; the others become 0.
    Zeroing(u8),
}

/// The mask register that is scratch within an instruction.
pub(super) const MASK: u8 = 1;

/// The mask register of that number.
pub(super) fn mask(number: u8) -> Register {
    Register::K0 + u32::from(number)
}

/// If an instruction on general registers works on 64 bits.
pub(super) fn wide(ins: &Ins) -> Result<bool> {
    match ins.width {
        Width::W32 => Ok(false),
        Width::W64 => Ok(true),
        Width::X | Width::Y | Width::Z => Err(broken("general registers have 32 or 64 bits")),
    }
}

/// The code while it is made.
pub(super) struct Emitter<'a> {
    pub(super) code: &'a Allocated,
    pub(super) level: Level,
    pub(super) buffer: Buffer,
    /// A register of more than 16 bytes was named.
    pub(super) ymm: bool,
    /// Whether what is appended locks its memory.
    lock: bool,
}

impl Emitter<'_> {
    pub(super) fn new(code: &Allocated, level: Level) -> Result<Emitter<'_>> {
        Ok(Emitter {
            code,
            level,
            buffer: Buffer::new(code.code.ins.len())?,
            ymm: false,
            lock: false,
        })
    }

    /// Append an instruction during which no other thread gets at its memory.
    pub(super) fn emit_locked(&mut self, code: Code, arguments: &[Argument]) -> Result<()> {
        self.lock = true;
        let done = self.emit(code, arguments);
        self.lock = false;
        done
    }

    /// Append an instruction.
    pub(super) fn emit(&mut self, code: Code, arguments: &[Argument]) -> Result<()> {
        self.emit_under(code, arguments, Under::None)
    }

    /// The same for the lanes of a mask register alone.
    pub(super) fn emit_under(
        &mut self,
        code: Code,
        arguments: &[Argument],
        under: Under,
    ) -> Result<()> {
        let mut instruction = Instruction::new();
        let mut constant = None;
        instruction.set_code(code);
        instruction.set_has_lock_prefix(self.lock);
        for (operand, argument) in (0..).zip(arguments) {
            match *argument {
                Argument::Register(register) => {
                    self.ymm |= register.is_ymm() || register.is_zmm();
                    instruction
                        .try_set_op_register(operand, register)
                        .map_err(broken)?;
                    instruction.set_op_kind(operand, OpKind::Register);
                }
                Argument::Memory(address) => {
                    instruction.set_op_kind(operand, OpKind::Memory);
                    constant = address.constant;
                    instruction.set_is_broadcast(address.each);
                    set_memory(&mut instruction, &address);
                }
                Argument::Immediate(kind, value) => {
                    instruction.set_op_kind(operand, kind);
                    instruction
                        .try_set_immediate_i64(operand, value)
                        .map_err(broken)?;
                }
            }
        }
        if let Under::Merging(number) | Under::Zeroing(number) = under {
            instruction.set_op_mask(mask(number));
            instruction.set_zeroing_masking(under == Under::Zeroing(number));
        }
        self.buffer.push(&instruction, constant)
    }

    /// What the machine has for a source.
    pub(super) fn source(&self, operand: &Operand) -> Result<Source> {
        Ok(match *operand {
            Operand::Reg(register) => self.register(register)?,
            Operand::Mem(memory) | Operand::Each(memory) => Source::Memory(Address {
                base: self.general(memory.base)?,
                index: match memory.index {
                    Some((index, scale)) => Some((self.general(index)?, scale)),
                    None => None,
                },
                displacement: memory.displacement,
                constant: None,
                each: matches!(operand, Operand::Each(_)),
            }),
            Operand::Pool(constant) => Source::Memory(Address {
                constant: Some(constant),
                ..Address::of(0, 0)
            }),
            Operand::Slot(slot) if slot < self.code.slots => {
                let bytes = self.level.slot_bytes() as i64;
                let displacement = -bytes * (i64::from(slot) + 1);
                Source::Memory(Address::of(RBP, displacement as i32))
            }
            Operand::Slot(slot) => return Err(broken(format!("the frame has no place {slot}"))),
            Operand::Imm(number) => Source::Immediate(number),
        })
    }

    /// The source of that number.
    pub(super) fn nth(&self, ins: &Ins, number: usize) -> Result<Source> {
        match ins.src.get(number) {
            Some(operand) => self.source(operand),
            None => Err(broken(format!("there is no source {number}"))),
        }
    }

    /// The source of that number, which is a general register.
    pub(super) fn nth_general(&self, ins: &Ins, number: usize) -> Result<u8> {
        match self.nth(ins, number)? {
            Source::General(register) => Ok(register),
            other => Err(broken(format!("{other:?} is no general register"))),
        }
    }

    /// The source of that number, which is memory.
    pub(super) fn nth_address(&self, ins: &Ins, number: usize) -> Result<Address> {
        match self.nth(ins, number)? {
            Source::Memory(address) => Ok(address),
            other => Err(broken(format!("{other:?} is no memory"))),
        }
    }

    /// The source of that number, which is a number.
    pub(super) fn nth_number(&self, ins: &Ins, number: usize) -> Result<i64> {
        match self.nth(ins, number)? {
            Source::Immediate(value) => Ok(value),
            other => Err(broken(format!("{other:?} is no number"))),
        }
    }

    /// Where the destination is.
    pub(super) fn destination(&self, ins: &Ins) -> Result<Source> {
        match ins.dst {
            Some(register) => self.register(register),
            None => Err(broken("there is no destination")),
        }
    }

    /// The destination, which is a general register.
    pub(super) fn destination_general(&self, ins: &Ins) -> Result<u8> {
        match self.destination(ins)? {
            Source::General(register) => Ok(register),
            other => Err(broken(format!("{other:?} is no general register"))),
        }
    }

    /// Where a register is.
    fn register(&self, register: Reg) -> Result<Source> {
        match self.code.places.get(register.0 as usize) {
            Some(&Place::General(number)) => {
                if number > 15 || NOT_FOR_VALUES >> number & 1 == 1 {
                    return Err(broken(format!(
                        "general register {number} is not for values"
                    )));
                }
                Ok(Source::General(number))
            }
            Some(&Place::Vector(number)) => {
                let source = Source::Vector(number);
                if number >= self.level.vector_registers() {
                    return Err(broken(format!(
                        "vector register {number} is not for values"
                    )));
                }
                Ok(source)
            }
            Some(Place::Nowhere) | None => {
                Err(broken(format!("register {} is nowhere", register.0)))
            }
        }
    }

    fn general(&self, register: Reg) -> Result<u8> {
        match self.register(register)? {
            Source::General(number) => Ok(number),
            other => Err(broken(format!("{other:?} in an address"))),
        }
    }
}

fn set_memory(instruction: &mut Instruction, address: &Address) {
    if address.constant.is_some() {
        instruction.set_memory_base(Register::RIP);
        return;
    }
    instruction.set_memory_base(general(address.base, true));
    if let Some((index, scale)) = address.index {
        instruction.set_memory_index(general(index, true));
        instruction.set_memory_index_scale(u32::from(scale));
    }
    if address.displacement != 0 {
        instruction.set_memory_displ_size(1);
        instruction.set_memory_displacement64(i64::from(address.displacement) as u64);
    }
}
