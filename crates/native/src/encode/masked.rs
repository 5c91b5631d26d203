//! Rows whose encoding in AVX-512 has a mask register, or an order of its own. Flows in: a row whose registers have
//! numbers; flows out: a few machine instructions. Always: a vector of masks stays one outside, but where a mask
//! register of its own has it; a mask register and rax are scratch; every source is read before the destination is
//! written.

use super::buffer::broken;
use super::emitter::Address;
use super::emitter::Argument;
use super::emitter::Emitter;
use super::emitter::MASK;
use super::emitter::RAX;
use super::emitter::RSP;
use super::emitter::Source;
use super::emitter::Under;
use super::emitter::mask;
use super::general::register;
use super::row::Row;
use super::row::copy_of;
use super::row::width_of;
use crate::code::Width;
use crate::table::Form;
use crate::table::Kind;
use crate::table::Vector;
use iced_x86::Code;
use iced_x86::OpKind;
use monoglot_uop::Result;

/// Where a mask is that has a register of its own.
#[derive(Copy, Clone, Debug)]
pub(super) struct Held {
    /// The mask register.
    pub(super) register: u8,
    /// Bytes of the lanes that its bits stand for.
    pub(super) lane: usize,
}

/// Encodings by the bytes of lanes, for vectors of 16, 32 and 64 bytes.
type Codes = [[Code; 3]; 4];

/// Masks of lanes from a mask register.
const FROM_BITS: Codes = [
    [
        Code::EVEX_Vpmovm2b_xmm_kr,
        Code::EVEX_Vpmovm2b_ymm_kr,
        Code::EVEX_Vpmovm2b_zmm_kr,
    ],
    [
        Code::EVEX_Vpmovm2w_xmm_kr,
        Code::EVEX_Vpmovm2w_ymm_kr,
        Code::EVEX_Vpmovm2w_zmm_kr,
    ],
    [
        Code::EVEX_Vpmovm2d_xmm_kr,
        Code::EVEX_Vpmovm2d_ymm_kr,
        Code::EVEX_Vpmovm2d_zmm_kr,
    ],
    [
        Code::EVEX_Vpmovm2q_xmm_kr,
        Code::EVEX_Vpmovm2q_ymm_kr,
        Code::EVEX_Vpmovm2q_zmm_kr,
    ],
];

/// A mask register from the signs of lanes.
const TO_BITS: Codes = [
    [
        Code::EVEX_Vpmovb2m_kr_xmm,
        Code::EVEX_Vpmovb2m_kr_ymm,
        Code::EVEX_Vpmovb2m_kr_zmm,
    ],
    [
        Code::EVEX_Vpmovw2m_kr_xmm,
        Code::EVEX_Vpmovw2m_kr_ymm,
        Code::EVEX_Vpmovw2m_kr_zmm,
    ],
    [
        Code::EVEX_Vpmovd2m_kr_xmm,
        Code::EVEX_Vpmovd2m_kr_ymm,
        Code::EVEX_Vpmovd2m_kr_zmm,
    ],
    [
        Code::EVEX_Vpmovq2m_kr_xmm,
        Code::EVEX_Vpmovq2m_kr_ymm,
        Code::EVEX_Vpmovq2m_kr_zmm,
    ],
];

/// A choice by a mask register.
const BLEND: Codes = [
    [
        Code::EVEX_Vpblendmb_xmm_k1z_xmm_xmmm128,
        Code::EVEX_Vpblendmb_ymm_k1z_ymm_ymmm256,
        Code::EVEX_Vpblendmb_zmm_k1z_zmm_zmmm512,
    ],
    [
        Code::EVEX_Vpblendmw_xmm_k1z_xmm_xmmm128,
        Code::EVEX_Vpblendmw_ymm_k1z_ymm_ymmm256,
        Code::EVEX_Vpblendmw_zmm_k1z_zmm_zmmm512,
    ],
    [
        Code::EVEX_Vpblendmd_xmm_k1z_xmm_xmmm128b32,
        Code::EVEX_Vpblendmd_ymm_k1z_ymm_ymmm256b32,
        Code::EVEX_Vpblendmd_zmm_k1z_zmm_zmmm512b32,
    ],
    [
        Code::EVEX_Vpblendmq_xmm_k1z_xmm_xmmm128b64,
        Code::EVEX_Vpblendmq_ymm_k1z_ymm_ymmm256b64,
        Code::EVEX_Vpblendmq_zmm_k1z_zmm_zmmm512b64,
    ],
];

/// If a row's encoding in AVX-512 stands otherwise than its form says.
pub(super) fn is_masked(vector: Vector) -> bool {
    use Vector as V;
    lane(vector) > 0 || matches!(vector, V::Permute128 | V::TableW | V::TableD | V::TableQ)
}

/// Whether a row makes a mask of lanes.
pub(super) fn compares(vector: Vector) -> bool {
    lane(vector) > 0 && vector.form() != Form::Two && vector.operands()[3][0] == Kind::Mask
}

/// The row that loads the lanes of a mask, of so many bytes, and makes the others 0.
pub(super) fn load(lane: usize) -> Vector {
    match lane {
        1 => Vector::MaskLoad1,
        2 => Vector::MaskLoad2,
        4 => Vector::MaskLoad4,
        _ => Vector::MaskLoad8,
    }
}

/// The bytes of the lanes that a mask is of; 0 where there is none.
pub(super) fn lane(vector: Vector) -> usize {
    use Vector as V;
    match vector {
        V::CmpEqB | V::CmpGtB | V::MoveMaskB | V::Choose | V::MaskLoad1 | V::MaskStore1 => 1,
        V::CmpEqW | V::CmpGtW | V::BlendW | V::MaskLoad2 | V::MaskStore2 => 2,
        V::CmpEqD | V::CmpGtD | V::CmpPs | V::CmpSs | V::MoveMaskPs | V::ChoosePs => 4,
        V::BlendPs | V::MaskLoad4 | V::MaskStore4 | V::MaskFmaPs => 4,
        V::CmpEqQ | V::CmpGtQ | V::CmpPd | V::CmpSd | V::MoveMaskPd => 8,
        V::BlendPd | V::MaskLoad8 | V::MaskStore8 | V::MaskFmaPd => 8,
        _ => 0,
    }
}

/// Such a row, whose mask may be in a register of its own.
pub(super) fn row(
    e: &mut Emitter<'_>,
    row: Row,
    vector: Vector,
    dst: Option<Source>,
    sources: &[Source],
    held: Option<Held>,
) -> Result<()> {
    let lane = lane(vector);
    match (vector.form(), dst, sources) {
        (Form::MaskStore, None, [to, mask, a]) => {
            let mask = in_register(e, row, lane, *mask, held)?;
            row.emit_under(e, &[*to, *a], Under::Merging(mask))
        }
        (Form::MaskLoad, Some(dst), [mask, from]) => {
            let mask = in_register(e, row, lane, *mask, held)?;
            row.emit_under(e, &[dst, *from], Under::Zeroing(mask))
        }
        // Of the two the one that the mask chooses may be memory.
        (Form::Choose, Some(dst), [mask, a, b]) => {
            let mask = in_register(e, row, lane, *mask, held)?;
            let row = match held {
                Some(held) => row.with(sized(&BLEND, row, held.lane).0),
                None => row,
            };
            row.emit_under(e, &[dst, *b, *a], Under::Merging(mask))
        }
        (Form::MaskFma, Some(dst), [mask, a, b, c]) => {
            let mask = in_register(e, row, lane, *mask, held)?;
            if dst != *c {
                if dst == *a || dst == *b {
                    return Err(broken("a sum where one of its factors is"));
                }
                copy_of(e, dst, *c, width_of(row))?;
            }
            row.emit_under(e, &[dst, *a, *b], Under::Merging(mask))
        }
        (Form::Two, Some(dst), [a]) => {
            row.emit(e, &[Source::Mask(MASK), *a])?;
            let Source::General(dst) = dst else {
                return Err(broken(format!("{dst:?} is no general register")));
            };
            let bits = Argument::Register(mask(MASK));
            e.emit(Code::VEX_Kmovq_r64_kr, &[register(dst, true), bits])
        }
        (Form::Table, Some(dst), [a, order, b]) => table(e, row, dst, [*a, *order, *b]),
        (_, Some(dst), [a, b, Source::Immediate(imm)]) if row.kinds[0] != Kind::Mask => {
            match vector {
                Vector::Permute128 => permute(e, row, dst, [*a, *b], *imm),
                _ => blend(e, row, lane, dst, [*a, *b], *imm),
            }
        }
        (_, Some(dst), [a, b, rest @ ..]) => {
            let mask = Source::Mask(held.map_or(MASK, |h| h.register));
            let mut operands = vec![mask, *a, *b];
            operands.extend_from_slice(rest);
            row.emit(e, &operands)?;
            if held.is_some() {
                return Ok(());
            }
            let (code, kind) = sized(&FROM_BITS, row, lane);
            let row = Row {
                code,
                kinds: [kind, Kind::Mask, Kind::None, Kind::None],
                evex: true,
            };
            row.emit(e, &[dst, mask])
        }
        _ => Err(broken(format!("the operands of {vector:?}"))),
    }
}

/// The encoding for lanes of so many bytes of the vectors that a row has.
fn sized(codes: &Codes, row: Row, lane: usize) -> (Code, Kind) {
    let widest = |kind| row.kinds.contains(&kind);
    let (column, kind) = match (widest(Kind::Zmm), widest(Kind::Ymm)) {
        (true, _) => (2, Kind::Zmm),
        (_, true) => (1, Kind::Ymm),
        _ => (0, Kind::Xmm),
    };
    (codes[lane.trailing_zeros() as usize][column], kind)
}

/// The mask register that has a mask: its own, or the scratch one, from the signs of lanes.
fn in_register(
    e: &mut Emitter<'_>,
    row: Row,
    lane: usize,
    mask: Source,
    held: Option<Held>,
) -> Result<u8> {
    if let Some(held) = held {
        return Ok(held.register);
    }
    let (code, kind) = sized(&TO_BITS, row, lane);
    let row = Row {
        code,
        kinds: [Kind::Mask, kind, Kind::None, Kind::None],
        evex: true,
    };
    row.emit(e, &[Source::Mask(MASK), mask])?;
    Ok(MASK)
}

/// a in the lanes of a mask, else 0, by the row of a load.
pub(super) fn zeroed(
    e: &mut Emitter<'_>,
    row: Row,
    dst: Source,
    a: Source,
    held: Held,
) -> Result<()> {
    row.emit_under(e, &[dst, a], Under::Zeroing(held.register))
}

/// b where the number has a bit, else a.
fn blend(
    e: &mut Emitter<'_>,
    row: Row,
    lane: usize,
    dst: Source,
    [a, b]: [Source; 2],
    imm: i64,
) -> Result<()> {
    // Of words the eight bits stand for each 16 bytes.
    let bits = if lane == 2 {
        (imm & 0xff) * 0x0101_0101
    } else {
        imm & 0xffff
    };
    let bits = Argument::Immediate(OpKind::Immediate32, bits);
    let scratch = register(RAX, false);
    e.emit(Code::Mov_r32_imm32, &[scratch, bits])?;
    let bits = Argument::Register(mask(MASK));
    e.emit(Code::VEX_Kmovd_kr_r32, &[bits, scratch])?;
    row.emit_under(e, &[dst, a, b], Under::Merging(MASK))
}

/// Halves of 32 bytes, each of either source: the encoding takes the low one of its first, the high one of its second.
fn permute(e: &mut Emitter<'_>, row: Row, dst: Source, pair: [Source; 2], imm: i64) -> Result<()> {
    if imm & 0x88 != 0 {
        return Err(broken("a half that is neither source's"));
    }
    let low = pair[(imm >> 1 & 1) as usize];
    let high = pair[(imm >> 5 & 1) as usize];
    let halves = |low: i64, high: i64| Source::Immediate(low | high << 1);
    let of_low = imm & 1;
    let of_high = imm >> 4 & 1;
    match (low, high) {
        (Source::Memory(_), Source::Memory(_)) => {
            Row::of(e.level, Width::Y, Vector::Load, true)?.emit(e, &[dst, low])?;
            row.emit(e, &[dst, dst, dst, halves(of_low, of_high)])
        }
        (Source::Memory(_), _) => {
            row.emit(e, &[dst, high, low, halves(of_high, of_low)])?;
            row.emit(e, &[dst, dst, dst, halves(1, 0)])
        }
        _ => row.emit(e, &[dst, low, high, halves(of_low, of_high)]),
    }
}

/// Lanes of two. The encoding overwrites a, or the order; where dst is neither but is b, b waits on the stack.
fn table(e: &mut Emitter<'_>, row: Row, dst: Source, [a, order, b]: [Source; 3]) -> Result<()> {
    let width = width_of(row);
    if dst == a {
        return row.emit(e, &[dst, order, b]);
    }
    if dst == order {
        return row.with(by_order(row.code)?).emit(e, &[dst, a, b]);
    }
    if dst != b {
        copy_of(e, dst, a, width)?;
        return row.emit(e, &[dst, order, b]);
    }
    let bytes = width.bytes() as i32;
    let grown = |by: i32| [register(RSP, true), Argument::Memory(Address::of(RSP, by))];
    let place = Source::Memory(Address::of(RSP, 0));
    e.emit(Code::Lea_r64_m, &grown(-bytes))?;
    Row::of(e.level, width, Vector::Store, true)?.emit(e, &[place, b])?;
    copy_of(e, dst, a, width)?;
    row.emit(e, &[dst, order, place])?;
    e.emit(Code::Lea_r64_m, &grown(bytes))
}

/// The encoding that overwrites the order.
fn by_order(code: Code) -> Result<Code> {
    use Code::*;
    Ok(match code {
        EVEX_Vpermt2w_xmm_k1z_xmm_xmmm128 => EVEX_Vpermi2w_xmm_k1z_xmm_xmmm128,
        EVEX_Vpermt2w_ymm_k1z_ymm_ymmm256 => EVEX_Vpermi2w_ymm_k1z_ymm_ymmm256,
        EVEX_Vpermt2w_zmm_k1z_zmm_zmmm512 => EVEX_Vpermi2w_zmm_k1z_zmm_zmmm512,
        EVEX_Vpermt2d_xmm_k1z_xmm_xmmm128b32 => EVEX_Vpermi2d_xmm_k1z_xmm_xmmm128b32,
        EVEX_Vpermt2d_ymm_k1z_ymm_ymmm256b32 => EVEX_Vpermi2d_ymm_k1z_ymm_ymmm256b32,
        EVEX_Vpermt2d_zmm_k1z_zmm_zmmm512b32 => EVEX_Vpermi2d_zmm_k1z_zmm_zmmm512b32,
        EVEX_Vpermt2q_xmm_k1z_xmm_xmmm128b64 => EVEX_Vpermi2q_xmm_k1z_xmm_xmmm128b64,
        EVEX_Vpermt2q_ymm_k1z_ymm_ymmm256b64 => EVEX_Vpermi2q_ymm_k1z_ymm_ymmm256b64,
        EVEX_Vpermt2q_zmm_k1z_zmm_zmmm512b64 => EVEX_Vpermi2q_zmm_k1z_zmm_zmmm512b64,
        _ => return Err(broken(format!("{code:?} is no table"))),
    })
}
