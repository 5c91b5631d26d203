//! How a function begins and ends: the registers that its caller keeps, the frame, the arguments. Flows in: the
//! places of all registers; flows out: the first and the last instructions. Always: the stack is as it was when
//! the function returns; the frame lies at a multiple of its places' bytes below rbp; nothing below rsp is used.

use super::buffer::broken;
use super::emitter::Address;
use super::emitter::Argument;
use super::emitter::Emitter;
use super::emitter::RAX;
use super::emitter::RBP;
use super::emitter::RCX;
use super::emitter::RDX;
use super::emitter::RSP;
use super::general::copy;
use super::general::register;
use crate::code::Allocated;
use crate::code::Do;
use crate::code::Ins;
use crate::code::Level;
use crate::code::Place;
use iced_x86::Code;
use iced_x86::OpKind;
use monoglot_uop::ErrorKind;
use monoglot_uop::Result;

/// The most bytes of a frame: what a thread's stack has for certain, without a look at each page.
const LARGEST: i64 = 1 << 20;

/// The general registers that a caller finds as they were, without rbp.
const KEPT: [u8; 5] = [3, 12, 13, 14, 15];

/// rdi and rsi, where the caller leaves the first two arguments.
const RDI: u8 = 7;
const RSI: u8 = 6;

/// What a function keeps.
pub(super) struct Frame {
    pushed: Vec<u8>,
    slots: u32,
    /// Bytes of each of the slots.
    slot: i64,
    /// By number of the argument: it is read.
    arguments: [bool; 3],
}

impl Frame {
    /// What the code needs; `Unsupported`, where that is a frame of more than 1 MiB.
    pub(super) fn of(code: &Allocated, level: Level) -> Result<Frame> {
        let slot = level.slot_bytes() as i64;
        if i64::from(code.slots) * slot > LARGEST {
            return Err(ErrorKind::Unsupported {
                op: "frame".into(),
                message: format!("{} places of {slot} bytes are more than 1 MiB", code.slots),
            }
            .into());
        }
        let mut used = [false; 16];
        for place in &code.places {
            if let Place::General(number) = place {
                used[usize::from(number & 15)] = true;
            }
        }
        let mut pushed: Vec<u8> = KEPT.to_vec();
        pushed.retain(|number| used[usize::from(*number)]);
        if code.slots > 0 {
            pushed.push(RBP);
        }
        let mut arguments = [false; 3];
        for ins in &code.code.ins {
            match ins.op {
                Do::Argument(k) if k < 3 => arguments[usize::from(k)] = true,
                Do::Argument(k) => return Err(broken(format!("there is no argument {k}"))),
                _ => {}
            }
        }
        Ok(Frame {
            pushed,
            slots: code.slots,
            slot,
            arguments,
        })
    }

    /// The beginning. The first word of the stack says where it was before the frame, which what is
    /// aligned does not.
    pub(super) fn enter(&self, e: &mut Emitter<'_>) -> Result<()> {
        for number in &self.pushed {
            e.emit(Code::Push_r64, &[register(*number, true)])?;
        }
        if self.slots > 0 {
            let bytes = self.slot * (i64::from(self.slots) + 1);
            let below = Argument::Memory(Address::of(RBP, -bytes as i32));
            let first = Argument::Memory(Address::of(RSP, 0));
            let align = Argument::Immediate(OpKind::Immediate8to64, -self.slot);
            copy(e, true, RAX, RSP)?;
            copy(e, true, RBP, RSP)?;
            e.emit(Code::And_rm64_imm8, &[register(RBP, true), align])?;
            e.emit(Code::Lea_r64_m, &[register(RSP, true), below])?;
            e.emit(Code::Mov_rm64_r64, &[first, register(RAX, true)])?;
        }
        // The third is where it stays.
        if self.arguments[0] {
            copy(e, true, RAX, RDI)?;
        }
        if self.arguments[1] {
            copy(e, false, RCX, RSI)?;
        }
        Ok(())
    }

    /// The end.
    pub(super) fn leave(&self, e: &mut Emitter<'_>) -> Result<()> {
        if e.ymm {
            e.emit(Code::VEX_Vzeroupper, &[])?;
        }
        if self.slots > 0 {
            let first = Argument::Memory(Address::of(RSP, 0));
            e.emit(Code::Mov_r64_rm64, &[register(RSP, true), first])?;
        }
        for number in self.pushed.iter().rev() {
            e.emit(Code::Pop_r64, &[register(*number, true)])?;
        }
        e.emit(Code::Retnq, &[])
    }
}

/// dst = an argument, from where the beginning left it.
pub(super) fn argument(e: &mut Emitter<'_>, ins: &Ins, k: u8) -> Result<()> {
    let dst = e.destination_general(ins)?;
    match k {
        0 => copy(e, true, dst, RAX),
        1 => copy(e, false, dst, RCX),
        _ => copy(e, true, dst, RDX),
    }
}
