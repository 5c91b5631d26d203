//! From code whose registers have numbers to bytes. Flows in: the code after allocation and the level; flows out:
//! the bytes of the function, its constants after them, and where each instruction's bytes start. Always: each
//! instruction reads all its sources before it writes; equal code gives equal bytes; time is linear.

mod buffer;
mod choices;
mod control;
mod emitter;
mod frame;
mod general;
mod masked;
mod masks;
mod row;
mod tile;
mod vector;

use crate::code::Allocated;
use crate::code::Cond;
use crate::code::Do;
use crate::code::Ins;
use crate::code::Level;
use crate::code::Width;
use buffer::broken;
use choices::Choices;
use control::Labels;
use emitter::Emitter;
use emitter::Source;
use frame::Frame;
use iced_x86::Code;
use masks::Masks;
use monoglot_uop::Error;
use monoglot_uop::ErrorKind;
use monoglot_uop::Result;

/// A function in bytes, to be laid at a multiple of 64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// The instructions, then the constants that they use, from the next multiple of 64 on.
    pub bytes: Vec<u8>,
    /// Where an instruction's bytes start, and its number in the list, in order of both. An instruction without
    /// bytes is not there; what comes before the first mark is the beginning of the function.
    pub marks: Vec<(u32, u32)>,
    /// Bytes that are instructions.
    pub text: usize,
    /// Bytes of each constant.
    pub constant: usize,
}

/// The bytes of a function. `Verify` where an instruction has an operand that the machine does not, `Unsupported`
/// where its frame would be more than 1 MiB.
pub fn encode(code: &Allocated, level: Level) -> Result<Encoded> {
    let mut e = Emitter::new(code, level)?;
    let masks = Masks::of(&e)?;
    let mut labels = Labels::default();
    let frame = Frame::of(code, level)?;
    let list = &code.code.ins;
    if list.last().is_none_or(|ins| ins.op != Do::Return) {
        return Err(broken("the code does not end with a return"));
    }
    frame.enter(&mut e)?;
    let choices = Choices::of(list, code.code.regs.len());
    let mut flags: Option<(&Ins, Cond)> = None;
    for (number, ins) in list.iter().enumerate() {
        e.buffer.mark(number as u32);
        let compared = flags.take();
        flags = (choices.condition(ins, list.get(number + 1))).map(|condition| (ins, condition));
        if flags.is_some() {
            continue;
        }
        let done = match ins.op {
            Do::Select if let Some((compared, condition)) = compared => {
                general::choose(&mut e, compared, condition, ins)
            }
            Do::Loop => labels.top(&mut e, ins, &list[number + 1..]),
            Do::Next => labels.next(&mut e, ins),
            Do::SkipIf(condition) => labels.skip(&mut e, ins, condition),
            Do::Land => labels.land(&mut e, ins),
            Do::Argument(k) => frame::argument(&mut e, ins, k),
            Do::Return => frame.leave(&mut e),
            _ => straight(&mut e, &masks, ins),
        };
        done.map_err(|error| named(error, number, ins))?;
    }
    let laid = e.buffer.finish(&code.code.pool, level.slot_bytes())?;
    Ok(Encoded {
        bytes: laid.bytes,
        marks: laid.marks,
        text: laid.text,
        constant: level.slot_bytes(),
    })
}

/// An instruction that goes on to the next.
fn straight(e: &mut Emitter<'_>, masks: &Masks, ins: &Ins) -> Result<()> {
    match ins.op {
        Do::Vector(vector) => vector::row(e, masks, ins, vector),
        Do::Move => copy(e, ins),
        Do::Immediate => general::immediate(e, ins),
        Do::Zero => match e.destination(ins)? {
            dst @ Source::Vector(_) => vector::zero(e, dst),
            other => Err(broken(format!("{other:?} is no vector register"))),
        },
        Do::Load8U | Do::Load8S | Do::Load16U | Do::Load16S => general::load(e, ins),
        Do::Load32 | Do::Load64 | Do::Extend32 => general::load(e, ins),
        Do::Store8 | Do::Store16 | Do::Store32 | Do::Store64 => general::store(e, ins),
        Do::Add | Do::Sub | Do::Mul | Do::And | Do::Or | Do::Xor => general::arithmetic(e, ins),
        Do::Shl | Do::Shr | Do::Sar => general::shift(e, ins),
        Do::Neg | Do::Not => general::unary(e, ins),
        Do::Address => general::address(e, ins),
        Do::Div | Do::Rem | Do::DivU | Do::RemU => general::divide(e, ins),
        Do::Compare(condition) => general::compare(e, ins, condition),
        Do::Select => general::select(e, ins),
        Do::AddAtomic => general::add_atomic(e, ins),
        Do::Exchange => general::exchange(e, ins),
        Do::Prefetch => general::prefetch(e, ins),
        Do::Fence => e.emit(Code::Sfence, &[]),
        Do::TileConfigure | Do::TileRelease | Do::TileZero => tile::tile(e, ins),
        Do::TileLoad | Do::TileStore | Do::TileDot(_) => tile::tile(e, ins),
        Do::Loop | Do::Next | Do::SkipIf(_) | Do::Land | Do::Argument(_) | Do::Return => {
            Err(broken("a jump, an argument or a return here"))
        }
    }
}

/// dst = a, as many bytes as are read of it.
fn copy(e: &mut Emitter<'_>, ins: &Ins) -> Result<()> {
    let dst = e.destination(ins)?;
    let a = e.nth(ins, 0)?;
    let bytes = ins
        .dst
        .and_then(|register| e.code.code.regs.get(register.0 as usize))
        .map_or(64, |info| info.bytes);
    match (dst, a) {
        (Source::General(dst), Source::General(a)) => general::copy(e, bytes > 4, dst, a),
        (Source::Vector(_), Source::Vector(_)) => {
            row::copy_of(e, dst, a, Width::of_vector(bytes as usize))
        }
        _ => Err(broken(format!("a move from {a:?} to {dst:?}"))),
    }
}

/// The error with the instruction that it is of.
fn named(error: Error, number: usize, ins: &Ins) -> Error {
    match error.kind() {
        ErrorKind::Verify { message, .. } => {
            broken(format!("instruction {number}, {ins:?}: {message}"))
        }
        _ => error,
    }
}
