//! Instructions on general registers in bytes. Flows in: an instruction whose registers have numbers; flows out:
//! one machine instruction or a few. Always: every source is read before the destination is written; what is
//! kept in between is in rax, rcx and rdx alone.

use super::buffer::broken;
use super::emitter::Address;
use super::emitter::Argument;
use super::emitter::Emitter;
use super::emitter::RAX;
use super::emitter::RCX;
use super::emitter::RDX;
use super::emitter::Source;
use super::emitter::byte;
use super::emitter::general;
use super::emitter::wide;
use super::emitter::word;
use crate::code::Cond;
use crate::code::Do;
use crate::code::Ins;
use crate::code::Level;
use iced_x86::Code;
use iced_x86::OpKind;
use iced_x86::Register;
use monoglot_uop::Result;

/// dst = a.
pub(super) fn copy(e: &mut Emitter<'_>, wide: bool, dst: u8, a: u8) -> Result<()> {
    if dst == a {
        return Ok(());
    }
    let code = if wide {
        Code::Mov_r64_rm64
    } else {
        Code::Mov_r32_rm32
    };
    e.emit(code, &[register(dst, wide), register(a, wide)])
}

/// dst = a number, in the fewest bytes. Flags do not outlive an instruction of the list.
pub(super) fn immediate(e: &mut Emitter<'_>, ins: &Ins) -> Result<()> {
    let dst = e.destination_general(ins)?;
    let number = e.nth_number(ins, 0)?;
    if number == 0 {
        return clear(e, dst);
    }
    if u32::try_from(number).is_ok() {
        let number = Argument::Immediate(OpKind::Immediate32, number);
        return e.emit(Code::Mov_r32_imm32, &[register(dst, false), number]);
    }
    if i32::try_from(number).is_ok() {
        let number = Argument::Immediate(OpKind::Immediate32to64, number);
        return e.emit(Code::Mov_rm64_imm32, &[register(dst, true), number]);
    }
    let number = Argument::Immediate(OpKind::Immediate64, number);
    e.emit(Code::Mov_r64_imm64, &[register(dst, true), number])
}

/// A load, or the same of a register.
pub(super) fn load(e: &mut Emitter<'_>, ins: &Ins) -> Result<()> {
    let dst = e.destination_general(ins)?;
    let source = e.nth(ins, 0)?;
    let (code, wide) = match ins.op {
        Do::Load8U => (Code::Movzx_r32_rm8, false),
        Do::Load8S => (Code::Movsx_r32_rm8, false),
        Do::Load16U => (Code::Movzx_r32_rm16, false),
        Do::Load16S => (Code::Movsx_r32_rm16, false),
        Do::Load32 => (Code::Mov_r32_rm32, false),
        Do::Load64 => (Code::Mov_r64_rm64, true),
        Do::Extend32 => (Code::Movsxd_r64_rm32, true),
        op => return Err(broken(format!("{op:?} is no load"))),
    };
    let source = match (source, ins.op) {
        (Source::General(a), Do::Load8U | Do::Load8S) => Argument::Register(byte(a)),
        (Source::General(a), Do::Load16U | Do::Load16S) => Argument::Register(word(a)),
        (Source::General(a), Do::Load64) if a == dst => return Ok(()),
        (Source::General(a), Do::Load64) => register(a, true),
        (Source::General(a), _) => register(a, false),
        (Source::Memory(address), _) => Argument::Memory(address),
        _ => return Err(broken(format!("a load of {source:?}"))),
    };
    e.emit(code, &[register(dst, wide), source])
}

/// A store of a register's low bits, or of a number's.
pub(super) fn store(e: &mut Emitter<'_>, ins: &Ins) -> Result<()> {
    let address = Argument::Memory(e.nth_address(ins, 0)?);
    let (code, value) = match e.nth(ins, 1)? {
        Source::General(b) => match ins.op {
            Do::Store8 => (Code::Mov_rm8_r8, Argument::Register(byte(b))),
            Do::Store16 => (Code::Mov_rm16_r16, Argument::Register(word(b))),
            Do::Store32 => (Code::Mov_rm32_r32, register(b, false)),
            _ => (Code::Mov_rm64_r64, register(b, true)),
        },
        Source::Immediate(i) => {
            let (code, kind) = match ins.op {
                Do::Store8 => (Code::Mov_rm8_imm8, OpKind::Immediate8),
                Do::Store16 => (Code::Mov_rm16_imm16, OpKind::Immediate16),
                Do::Store32 => (Code::Mov_rm32_imm32, OpKind::Immediate32),
                _ => (Code::Mov_rm64_imm32, OpKind::Immediate32to64),
            };
            let number = match ins.op {
                Do::Store64 => number(i, true)?,
                _ => i as i32,
            };
            (code, Argument::Immediate(kind, i64::from(number)))
        }
        other => return Err(broken(format!("a store of {other:?}"))),
    };
    e.emit(code, &[address, value])
}

/// dst = a with b, of which x86 overwrites a.
pub(super) fn arithmetic(e: &mut Emitter<'_>, ins: &Ins) -> Result<()> {
    let wide = wide(ins)?;
    let dst = e.destination_general(ins)?;
    let a = e.nth_general(ins, 0)?;
    let b = e.nth(ins, 1)?;
    match (ins.op, b) {
        (Do::Mul, Source::Immediate(i)) => return multiply_by(e, wide, dst, a, number(i, wide)?),
        (Do::Add, Source::Immediate(i)) if dst != a => {
            return address_sum(e, wide, dst, Address::of(a, number(i, wide)?));
        }
        (Do::Sub, Source::Immediate(i)) if dst != a => {
            // The least number has no negative.
            if let Some(negative) = number(i, wide)?.checked_neg() {
                return address_sum(e, wide, dst, Address::of(a, negative));
            }
        }
        (Do::Add, Source::General(b)) if dst != a && dst != b => {
            // r13 as a base takes a byte more.
            let [base, index] = if a == 13 { [b, a] } else { [a, b] };
            let sum = Address {
                index: Some((index, 1)),
                ..Address::of(base, 0)
            };
            return address_sum(e, wide, dst, sum);
        }
        _ => {}
    }
    if dst == a {
        return in_place(e, ins.op, wide, dst, b);
    }
    if b == Source::General(dst) && ins.op == Do::Sub {
        e.emit(negate(wide), &[register(dst, wide)])?;
        return in_place(e, Do::Add, wide, dst, Source::General(a));
    }
    if b == Source::General(dst) {
        return in_place(e, ins.op, wide, dst, Source::General(a));
    }
    let target = if b.mentions(dst) { RAX } else { dst };
    copy(e, wide, target, a)?;
    in_place(e, ins.op, wide, target, b)?;
    copy(e, wide, dst, target)
}

/// dst = a shifted.
pub(super) fn shift(e: &mut Emitter<'_>, ins: &Ins) -> Result<()> {
    let wide = wide(ins)?;
    let dst = e.destination_general(ins)?;
    let a = e.nth_general(ins, 0)?;
    // By a number and by cl, of 32 and of 64 bits; by a register, the same.
    let (plain, by_register) = match ins.op {
        Do::Shl => (
            [
                Code::Shl_rm32_imm8,
                Code::Shl_rm64_imm8,
                Code::Shl_rm32_CL,
                Code::Shl_rm64_CL,
            ],
            [Code::VEX_Shlx_r32_rm32_r32, Code::VEX_Shlx_r64_rm64_r64],
        ),
        Do::Shr => (
            [
                Code::Shr_rm32_imm8,
                Code::Shr_rm64_imm8,
                Code::Shr_rm32_CL,
                Code::Shr_rm64_CL,
            ],
            [Code::VEX_Shrx_r32_rm32_r32, Code::VEX_Shrx_r64_rm64_r64],
        ),
        _ => (
            [
                Code::Sar_rm32_imm8,
                Code::Sar_rm64_imm8,
                Code::Sar_rm32_CL,
                Code::Sar_rm64_CL,
            ],
            [Code::VEX_Sarx_r32_rm32_r32, Code::VEX_Sarx_r64_rm64_r64],
        ),
    };
    let which = usize::from(wide);
    match e.nth(ins, 1)? {
        Source::Immediate(count) => {
            let mask = if wide { 63 } else { 31 };
            let count = Argument::Immediate(OpKind::Immediate8, count & mask);
            copy(e, wide, dst, a)?;
            e.emit(plain[which], &[register(dst, wide), count])
        }
        Source::General(count) if e.level >= Level::V3 => {
            let count = register(count, wide);
            let operands = [register(dst, wide), register(a, wide), count];
            e.emit(by_register[which], &operands)
        }
        Source::General(count) => {
            copy(e, false, RCX, count)?;
            copy(e, wide, dst, a)?;
            let count = Argument::Register(Register::CL);
            e.emit(plain[2 + which], &[register(dst, wide), count])
        }
        other => Err(broken(format!("a shift by {other:?}"))),
    }
}

/// dst = −a, or the complement of a.
pub(super) fn unary(e: &mut Emitter<'_>, ins: &Ins) -> Result<()> {
    let wide = wide(ins)?;
    let dst = e.destination_general(ins)?;
    let a = e.nth_general(ins, 0)?;
    let code = match (ins.op, wide) {
        (Do::Neg, _) => negate(wide),
        (_, false) => Code::Not_rm32,
        (_, true) => Code::Not_rm64,
    };
    copy(e, wide, dst, a)?;
    e.emit(code, &[register(dst, wide)])
}

/// dst = an address.
pub(super) fn address(e: &mut Emitter<'_>, ins: &Ins) -> Result<()> {
    let dst = e.destination_general(ins)?;
    let address = e.nth_address(ins, 0)?;
    address_sum(e, true, dst, address)
}

/// dst = a / b, or what is left; rax and rdx are the machine's choice.
pub(super) fn divide(e: &mut Emitter<'_>, ins: &Ins) -> Result<()> {
    let wide = wide(ins)?;
    let dst = e.destination_general(ins)?;
    let a = e.nth_general(ins, 0)?;
    let b = e.nth_general(ins, 1)?;
    let (signed, result) = match ins.op {
        Do::Div => (true, RAX),
        Do::Rem => (true, RDX),
        Do::DivU => (false, RAX),
        _ => (false, RDX),
    };
    copy(e, wide, RAX, a)?;
    match (signed, wide) {
        (true, false) => e.emit(Code::Cdq, &[])?,
        (true, true) => e.emit(Code::Cqo, &[])?,
        (false, _) => clear(e, RDX)?,
    }
    let code = match (signed, wide) {
        (true, false) => Code::Idiv_rm32,
        (true, true) => Code::Idiv_rm64,
        (false, false) => Code::Div_rm32,
        (false, true) => Code::Div_rm64,
    };
    e.emit(code, &[register(b, wide)])?;
    copy(e, wide, dst, result)
}

/// memory a += b, at once.
pub(super) fn add_atomic(e: &mut Emitter<'_>, ins: &Ins) -> Result<()> {
    let wide = wide(ins)?;
    let address = Argument::Memory(e.nth_address(ins, 0)?);
    let b = e.nth_general(ins, 1)?;
    let code = match wide {
        true => Code::Add_rm64_r64,
        false => Code::Add_rm32_r32,
    };
    e.emit_locked(code, &[address, register(b, wide)])
}

/// dst = 1 where memory a was b, and is c now, else 0; that b is in rax is the machine's choice.
pub(super) fn exchange(e: &mut Emitter<'_>, ins: &Ins) -> Result<()> {
    let wide = wide(ins)?;
    let dst = e.destination_general(ins)?;
    let address = Argument::Memory(e.nth_address(ins, 0)?);
    let b = e.nth_general(ins, 1)?;
    let c = e.nth_general(ins, 2)?;
    copy(e, wide, RAX, b)?;
    let code = match wide {
        true => Code::Cmpxchg_rm64_r64,
        false => Code::Cmpxchg_rm32_r32,
    };
    e.emit_locked(code, &[address, register(c, wide)])?;
    let done = Argument::Register(byte(RAX));
    e.emit(Code::Sete_rm8, &[done])?;
    e.emit(Code::Movzx_r32_rm8, &[register(dst, false), done])
}

/// dst = 1 where a stands so to b, else 0.
pub(super) fn compare(e: &mut Emitter<'_>, ins: &Ins, condition: Cond) -> Result<()> {
    let dst = e.destination_general(ins)?;
    let a = e.nth_general(ins, 0)?;
    let read = a == dst || e.nth(ins, 1)?.mentions(dst);
    let code = match condition {
        Cond::Equal => Code::Sete_rm8,
        Cond::NotEqual => Code::Setne_rm8,
        Cond::Less => Code::Setl_rm8,
        Cond::LessEqual => Code::Setle_rm8,
        Cond::Greater => Code::Setg_rm8,
        Cond::GreaterEqual => Code::Setge_rm8,
        Cond::Below => Code::Setb_rm8,
        Cond::BelowEqual => Code::Setbe_rm8,
        Cond::Above => Code::Seta_rm8,
        Cond::AboveEqual => Code::Setae_rm8,
    };
    if read {
        flags(e, ins)?;
        e.emit(code, &[Argument::Register(byte(RAX))])?;
        let operands = [register(dst, false), Argument::Register(byte(RAX))];
        return e.emit(Code::Movzx_r32_rm8, &operands);
    }
    // It is quicker to clear the register before.
    clear(e, dst)?;
    flags(e, ins)?;
    e.emit(code, &[Argument::Register(byte(dst))])
}

/// Compare the first two sources of an instruction.
pub(super) fn flags(e: &mut Emitter<'_>, ins: &Ins) -> Result<()> {
    let wide = wide(ins)?;
    let a = e.nth_general(ins, 0)?;
    match e.nth(ins, 1)? {
        // The flags are those of a comparison with 0.
        Source::Immediate(0) => test(e, wide, a),
        b => {
            let codes = [
                Code::Cmp_r32_rm32,
                Code::Cmp_r64_rm64,
                Code::Cmp_rm32_imm8,
                Code::Cmp_rm64_imm8,
                Code::Cmp_rm32_imm32,
                Code::Cmp_rm64_imm32,
            ];
            two(e, codes, wide, a, b)
        }
    }
}

/// dst = b where a is not 0, else c.
pub(super) fn select(e: &mut Emitter<'_>, ins: &Ins) -> Result<()> {
    let dst = e.destination_general(ins)?;
    let a = e.nth_general(ins, 0)?;
    let b = e.nth_general(ins, 1)?;
    let c = e.nth_general(ins, 2)?;
    test(e, wide(ins).unwrap_or(true), a)?;
    if dst == b {
        return e.emit(
            Code::Cmove_r64_rm64,
            &[register(dst, true), register(c, true)],
        );
    }
    // A move leaves the flags alone, and a is read already.
    copy(e, true, dst, c)?;
    e.emit(
        Code::Cmovne_r64_rm64,
        &[register(dst, true), register(b, true)],
    )
}

/// dst = b of the choice where a comparison holds, else c.
pub(super) fn choose(
    e: &mut Emitter<'_>,
    compared: &Ins,
    condition: Cond,
    choice: &Ins,
) -> Result<()> {
    let dst = e.destination_general(choice)?;
    let b = e.nth_general(choice, 1)?;
    let c = e.nth_general(choice, 2)?;
    flags(e, compared)?;
    let turned = dst == b;
    let other = if turned { c } else { b };
    if !turned {
        // A move leaves the flags alone, and what was compared is read already.
        copy(e, true, dst, c)?;
    }
    let condition = if turned {
        condition.inverse()
    } else {
        condition
    };
    let code = match condition {
        Cond::Equal => Code::Cmove_r64_rm64,
        Cond::NotEqual => Code::Cmovne_r64_rm64,
        Cond::Less => Code::Cmovl_r64_rm64,
        Cond::LessEqual => Code::Cmovle_r64_rm64,
        Cond::Greater => Code::Cmovg_r64_rm64,
        Cond::GreaterEqual => Code::Cmovge_r64_rm64,
        Cond::Below => Code::Cmovb_r64_rm64,
        Cond::BelowEqual => Code::Cmovbe_r64_rm64,
        Cond::Above => Code::Cmova_r64_rm64,
        Cond::AboveEqual => Code::Cmovae_r64_rm64,
    };
    e.emit(code, &[register(dst, true), register(other, true)])
}

/// Ask for a line, to the second cache: it comes there without taking one of the few places in which the first waits
/// for lines, and what runs meanwhile keeps those.
pub(super) fn prefetch(e: &mut Emitter<'_>, ins: &Ins) -> Result<()> {
    let address = e.nth_address(ins, 0)?;
    e.emit(Code::Prefetcht1_m8, &[Argument::Memory(address)])
}

/// A general register as an operand.
pub(super) fn register(number: u8, wide: bool) -> Argument {
    Argument::Register(general(number, wide))
}

/// dst = 0; flags go.
fn clear(e: &mut Emitter<'_>, dst: u8) -> Result<()> {
    let dst = register(dst, false);
    e.emit(Code::Xor_r32_rm32, &[dst, dst])
}

/// The immediate of 32 bits that a number is.
fn number(i: i64, wide: bool) -> Result<i32> {
    match (i32::try_from(i), wide) {
        (Ok(number), _) => Ok(number),
        // The 32 bits without a sign are as good.
        (Err(_), false) if u32::try_from(i).is_ok() => Ok(i as i32),
        _ => Err(broken(format!("{i} is no immediate of 32 bits"))),
    }
}

fn negate(wide: bool) -> Code {
    if wide { Code::Neg_rm64 } else { Code::Neg_rm32 }
}

fn test(e: &mut Emitter<'_>, wide: bool, a: u8) -> Result<()> {
    let code = if wide {
        Code::Test_rm64_r64
    } else {
        Code::Test_rm32_r32
    };
    e.emit(code, &[register(a, wide), register(a, wide)])
}

/// dst = an address, or its low 32 bits.
fn address_sum(e: &mut Emitter<'_>, wide: bool, dst: u8, address: Address) -> Result<()> {
    let plain = address.constant.is_none() && address.index.is_none();
    if plain && address.displacement == 0 {
        return copy(e, wide, dst, address.base);
    }
    let code = if wide {
        Code::Lea_r64_m
    } else {
        Code::Lea_r32_m
    };
    e.emit(code, &[register(dst, wide), Argument::Memory(address)])
}

fn multiply_by(e: &mut Emitter<'_>, wide: bool, dst: u8, a: u8, i: i32) -> Result<()> {
    let small = i8::try_from(i).is_ok();
    let (code, kind) = match (wide, small) {
        (false, true) => (Code::Imul_r32_rm32_imm8, OpKind::Immediate8to32),
        (false, false) => (Code::Imul_r32_rm32_imm32, OpKind::Immediate32),
        (true, true) => (Code::Imul_r64_rm64_imm8, OpKind::Immediate8to64),
        (true, false) => (Code::Imul_r64_rm64_imm32, OpKind::Immediate32to64),
    };
    let i = Argument::Immediate(kind, i64::from(i));
    e.emit(code, &[register(dst, wide), register(a, wide), i])
}

/// dst = dst with b.
fn in_place(e: &mut Emitter<'_>, op: Do, wide: bool, dst: u8, b: Source) -> Result<()> {
    let codes = match op {
        Do::Add => [
            Code::Add_r32_rm32,
            Code::Add_r64_rm64,
            Code::Add_rm32_imm8,
            Code::Add_rm64_imm8,
            Code::Add_rm32_imm32,
            Code::Add_rm64_imm32,
        ],
        Do::Sub => [
            Code::Sub_r32_rm32,
            Code::Sub_r64_rm64,
            Code::Sub_rm32_imm8,
            Code::Sub_rm64_imm8,
            Code::Sub_rm32_imm32,
            Code::Sub_rm64_imm32,
        ],
        // A product by a number has an encoding of its own.
        Do::Mul => [
            Code::Imul_r32_rm32,
            Code::Imul_r64_rm64,
            Code::INVALID,
            Code::INVALID,
            Code::INVALID,
            Code::INVALID,
        ],
        Do::And => [
            Code::And_r32_rm32,
            Code::And_r64_rm64,
            Code::And_rm32_imm8,
            Code::And_rm64_imm8,
            Code::And_rm32_imm32,
            Code::And_rm64_imm32,
        ],
        Do::Or => [
            Code::Or_r32_rm32,
            Code::Or_r64_rm64,
            Code::Or_rm32_imm8,
            Code::Or_rm64_imm8,
            Code::Or_rm32_imm32,
            Code::Or_rm64_imm32,
        ],
        Do::Xor => [
            Code::Xor_r32_rm32,
            Code::Xor_r64_rm64,
            Code::Xor_rm32_imm8,
            Code::Xor_rm64_imm8,
            Code::Xor_rm32_imm32,
            Code::Xor_rm64_imm32,
        ],
        op => return Err(broken(format!("{op:?} is no arithmetic"))),
    };
    two(e, codes, wide, dst, b)
}

/// An instruction of two operands, by what the second is: a register or memory, a number of 8 bits, of 32.
fn two(e: &mut Emitter<'_>, codes: [Code; 6], wide: bool, a: u8, b: Source) -> Result<()> {
    let which = usize::from(wide);
    let (code, b) = match b {
        Source::General(b) => (codes[which], register(b, wide)),
        Source::Memory(address) => (codes[which], Argument::Memory(address)),
        Source::Immediate(i) => {
            let i = number(i, wide)?;
            let small = i8::try_from(i).is_ok();
            let (code, kind) = match (small, wide) {
                (true, false) => (codes[2], OpKind::Immediate8to32),
                (true, true) => (codes[3], OpKind::Immediate8to64),
                (false, false) => (codes[4], OpKind::Immediate32),
                (false, true) => (codes[5], OpKind::Immediate32to64),
            };
            (code, Argument::Immediate(kind, i64::from(i)))
        }
        Source::Vector(_) | Source::Mask(_) => {
            return Err(broken("a vector register where a general one is"));
        }
    };
    e.emit(code, &[register(a, wide), b])
}
