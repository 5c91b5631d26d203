//! Vector instructions in bytes: rows of the table by their form. Flows in: an instruction whose registers have
//! numbers; flows out: one machine instruction, with moves before it where SSE4.2 overwrites a source. Always:
//! every source is read before the destination is written; SSE4.2's scratch register is the last.

use super::buffer::broken;
use super::emitter::Emitter;
use super::emitter::SCRATCH;
use super::emitter::Source;
use super::masked;
use super::masks::Masks;
use super::row::Row;
use super::row::copy_of;
use super::row::width_of;
use crate::code::Ins;
use crate::code::Level;
use crate::code::Width;
use crate::table::Form;
use crate::table::Vector;
use iced_x86::Code;
use monoglot_uop::Result;
use smallvec::SmallVec;

/// A row of the table.
pub(super) fn row(e: &mut Emitter<'_>, masks: &Masks, ins: &Ins, vector: Vector) -> Result<()> {
    let mut sources: SmallVec<[Source; 4]> = SmallVec::new();
    for operand in &ins.src {
        sources.push(e.source(operand)?);
    }
    let form = vector.form();
    let stores = matches!(form, Form::Store | Form::MaskStore);
    let dst = if stores {
        None
    } else {
        Some(e.destination(ins)?)
    };
    let evex = |s: &Source| s.is_upper() || s.is_each();
    let upper = sources.iter().chain(&dst).any(evex);
    let row = |vector| Row::of(e.level, ins.width, vector, upper);
    if e.level >= Level::V4 && masked::is_masked(vector) && row(vector)?.evex {
        let held = masks.made(ins).or(masks.wanted(ins).map(|w| w.1));
        return masked::row(e, row(vector)?, vector, dst, &sources, held);
    }
    if let (Some((k, held)), Some(dst)) = (masks.wanted(ins), dst) {
        return masked::zeroed(e, row(masked::load(held.lane))?, dst, sources[1 - k], held);
    }
    let Some(dst) = dst else {
        return row(vector)?.emit(e, &sources);
    };
    let row = match form {
        Form::Choose if e.level == Level::V2 => return choose_by_bits(e, ins, dst, &sources),
        Form::Two => row(reading(vector, &sources))?,
        _ => row(vector)?,
    };
    let [first, rest @ ..] = &*sources else {
        return Err(broken("a vector instruction without a source"));
    };
    let compares = matches!(
        vector,
        Vector::CmpPs | Vector::CmpPd | Vector::CmpSs | Vector::CmpSd
    );
    if let (true, Level::V2, [_, Source::Immediate(8..)]) = (compares, e.level, rest) {
        return Err(broken("SSE4.2 has eight comparisons of floats"));
    }
    match (form, rest) {
        (Form::Three | Form::ThreeCommuting, [second, rest @ ..]) => {
            let commutes = form == Form::ThreeCommuting;
            three(e, row, commutes, dst, *first, *second, rest)
        }
        (Form::ShiftImm, rest) if e.level == Level::V2 => {
            copy(e, dst, *first)?;
            row.emit(e, &list(&[dst], rest))
        }
        (Form::Pass, rest) => pass(e, row, dst, *first, rest),
        (Form::Choose, [a, b]) => row.emit(e, &[dst, *b, *a, *first]),
        (Form::Fma, [b, c]) => fma(e, row, dst, *first, *b, *c),
        (Form::Dot, [b, c]) => dot(e, row, dst, [*first, *b, *c]),
        _ => row.emit(e, &list(&[dst], &sources)),
    }
}

/// dst = 0: with VEX and EVEX all its bytes.
pub(super) fn zero(e: &mut Emitter<'_>, dst: Source) -> Result<()> {
    let row = Row::of(e.level, Width::X, Vector::XorPs, dst.is_upper())?;
    match e.level {
        Level::V2 => row.emit(e, &[dst, dst]),
        Level::V3 | Level::V4 => row.emit(e, &[dst, dst, dst]),
    }
}

/// The row that reads its source where that is: a few have one for registers and one for memory.
fn reading(vector: Vector, sources: &[Source]) -> Vector {
    match (vector, sources) {
        (Vector::BroadcastSs, [Source::Memory(_), ..]) => Vector::BroadcastSsMem,
        (Vector::BroadcastSd, [Source::Memory(_), ..]) => Vector::BroadcastSdMem,
        _ => vector,
    }
}

fn list(first: &[Source], rest: &[Source]) -> SmallVec<[Source; 4]> {
    first.iter().chain(rest).copied().collect()
}

/// dst = a, all 16 bytes.
fn copy(e: &mut Emitter<'_>, dst: Source, a: Source) -> Result<()> {
    match a {
        Source::Vector(_) => copy_of(e, dst, a, Width::X),
        _ => Err(broken(format!("{a:?} where a vector register is"))),
    }
}

fn three(
    e: &mut Emitter<'_>,
    row: Row,
    commutes: bool,
    dst: Source,
    a: Source,
    b: Source,
    rest: &[Source],
) -> Result<()> {
    if e.level >= Level::V3 {
        // The third operand of the upper eight takes a byte more.
        return match (a, b) {
            (Source::Vector(low), Source::Vector(high)) if commutes && low < 8 && high >= 8 => {
                row.emit(e, &list(&[dst, b, a], rest))
            }
            _ => row.emit(e, &list(&[dst, a, b], rest)),
        };
    }
    if dst == a {
        return row.emit(e, &list(&[dst, b], rest));
    }
    if dst != b {
        copy(e, dst, a)?;
        return row.emit(e, &list(&[dst, b], rest));
    }
    if commutes {
        return row.emit(e, &list(&[dst, a], rest));
    }
    copy(e, SCRATCH, a)?;
    row.emit(e, &list(&[SCRATCH, b], rest))?;
    copy(e, dst, SCRATCH)
}

/// The upper lanes come from the source where that is a vector register, else from zeros, so that nothing is
/// waited for that dst held before.
fn pass(e: &mut Emitter<'_>, row: Row, dst: Source, a: Source, rest: &[Source]) -> Result<()> {
    if dst != a && (e.level == Level::V2 || !matches!(a, Source::Vector(_))) {
        zero(e, dst)?;
    }
    match (e.level, a) {
        (Level::V2, _) => row.emit(e, &list(&[dst, a], rest)),
        (_, Source::Vector(_)) => row.emit(e, &list(&[dst, a, a], rest)),
        (_, _) => row.emit(e, &list(&[dst, dst, a], rest)),
    }
}

/// SSE4.2's own choice has its mask in a register of its own; masks are all ones or all zeros in a lane, so
/// logic does it.
fn choose_by_bits(e: &mut Emitter<'_>, ins: &Ins, dst: Source, sources: &[Source]) -> Result<()> {
    let [mask, a, b] = *sources else {
        return Err(broken("a choice has three sources"));
    };
    let and = Row::of(e.level, ins.width, Vector::AndPs, false)?;
    let and_not = Row::of(e.level, ins.width, Vector::AndNotPs, false)?;
    let or = Row::of(e.level, ins.width, Vector::OrPs, false)?;
    let xor = Row::of(e.level, ins.width, Vector::XorPs, false)?;
    if dst == b {
        // b ^ ((b ^ a) & mask)
        copy(e, SCRATCH, b)?;
        xor.emit(e, &[SCRATCH, a])?;
        and.emit(e, &[SCRATCH, mask])?;
        return xor.emit(e, &[dst, SCRATCH]);
    }
    copy(e, SCRATCH, mask)?;
    and_not.emit(e, &[SCRATCH, b])?;
    if dst == a {
        and.emit(e, &[dst, mask])?;
    } else {
        copy(e, dst, mask)?;
        and.emit(e, &[dst, a])?;
    }
    or.emit(e, &[dst, SCRATCH])
}

/// dst = c and the products of a's and b's lanes.
fn dot(e: &mut Emitter<'_>, row: Row, dst: Source, [a, b, c]: [Source; 3]) -> Result<()> {
    if dst == c {
        return row.emit(e, &[dst, a, b]);
    }
    if dst == a || dst == b {
        return Err(broken("a dot product where one of its factors is"));
    }
    copy_of(e, dst, c, width_of(row))?;
    row.emit(e, &[dst, a, b])
}

/// dst = a·b + c. The digits of a form say which operand is where: 231 is x = y·z + x, 213 is x = y·x + z and
/// 132 is x = x·z + y, where z may be memory.
fn fma(e: &mut Emitter<'_>, row: Row, dst: Source, a: Source, b: Source, c: Source) -> Result<()> {
    let (form_132, form_213) = forms(row.code)?;
    let width = width_of(row);
    let memory = |s: Source| matches!(s, Source::Memory(_));
    // The factors may change places: memory comes second.
    let [a, b] = if memory(a) { [b, a] } else { [a, b] };
    if memory(a) || (memory(b) && memory(c)) {
        return Err(broken("two sources of an FMA in memory"));
    }
    if memory(c) {
        if dst == b {
            return row.with(form_213).emit(e, &[dst, a, c]);
        }
        copy_of(e, dst, a, width)?;
        return row.with(form_213).emit(e, &[dst, b, c]);
    }
    if dst == c {
        return row.emit(e, &[dst, a, b]);
    }
    if dst == a {
        // With b in memory c is the register between.
        return match b {
            Source::Memory(_) => row.with(form_132).emit(e, &[dst, c, b]),
            _ => row.with(form_213).emit(e, &[dst, b, c]),
        };
    }
    if dst == b {
        return row.with(form_213).emit(e, &[dst, a, c]);
    }
    copy_of(e, dst, c, width)?;
    row.emit(e, &[dst, a, b])
}

/// The forms 132 and 213 of the encoding of form 231.
fn forms(code: Code) -> Result<(Code, Code)> {
    /// By form 231 the two others, as iced names them.
    macro_rules! forms {
        ($($first:ident $second:ident $third:ident;)*) => {
            match code {
                $(Code::$first => (Code::$second, Code::$third),)*
                _ => return Err(broken(format!("{code:?} is no FMA of form 231"))),
            }
        };
    }
    Ok(forms! {
        VEX_Vfmadd231ps_xmm_xmm_xmmm128 VEX_Vfmadd132ps_xmm_xmm_xmmm128 VEX_Vfmadd213ps_xmm_xmm_xmmm128;
        VEX_Vfmadd231ps_ymm_ymm_ymmm256 VEX_Vfmadd132ps_ymm_ymm_ymmm256 VEX_Vfmadd213ps_ymm_ymm_ymmm256;
        VEX_Vfmadd231pd_xmm_xmm_xmmm128 VEX_Vfmadd132pd_xmm_xmm_xmmm128 VEX_Vfmadd213pd_xmm_xmm_xmmm128;
        VEX_Vfmadd231pd_ymm_ymm_ymmm256 VEX_Vfmadd132pd_ymm_ymm_ymmm256 VEX_Vfmadd213pd_ymm_ymm_ymmm256;
        VEX_Vfmadd231ss_xmm_xmm_xmmm32 VEX_Vfmadd132ss_xmm_xmm_xmmm32 VEX_Vfmadd213ss_xmm_xmm_xmmm32;
        VEX_Vfmadd231sd_xmm_xmm_xmmm64 VEX_Vfmadd132sd_xmm_xmm_xmmm64 VEX_Vfmadd213sd_xmm_xmm_xmmm64;
        EVEX_Vfmadd231ps_xmm_k1z_xmm_xmmm128b32 EVEX_Vfmadd132ps_xmm_k1z_xmm_xmmm128b32 EVEX_Vfmadd213ps_xmm_k1z_xmm_xmmm128b32;
        EVEX_Vfmadd231ps_ymm_k1z_ymm_ymmm256b32 EVEX_Vfmadd132ps_ymm_k1z_ymm_ymmm256b32 EVEX_Vfmadd213ps_ymm_k1z_ymm_ymmm256b32;
        EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er EVEX_Vfmadd132ps_zmm_k1z_zmm_zmmm512b32_er EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er;
        EVEX_Vfmadd231pd_xmm_k1z_xmm_xmmm128b64 EVEX_Vfmadd132pd_xmm_k1z_xmm_xmmm128b64 EVEX_Vfmadd213pd_xmm_k1z_xmm_xmmm128b64;
        EVEX_Vfmadd231pd_ymm_k1z_ymm_ymmm256b64 EVEX_Vfmadd132pd_ymm_k1z_ymm_ymmm256b64 EVEX_Vfmadd213pd_ymm_k1z_ymm_ymmm256b64;
        EVEX_Vfmadd231pd_zmm_k1z_zmm_zmmm512b64_er EVEX_Vfmadd132pd_zmm_k1z_zmm_zmmm512b64_er EVEX_Vfmadd213pd_zmm_k1z_zmm_zmmm512b64_er;
        EVEX_Vfmadd231ss_xmm_k1z_xmm_xmmm32_er EVEX_Vfmadd132ss_xmm_k1z_xmm_xmmm32_er EVEX_Vfmadd213ss_xmm_k1z_xmm_xmmm32_er;
        EVEX_Vfmadd231sd_xmm_k1z_xmm_xmmm64_er EVEX_Vfmadd132sd_xmm_k1z_xmm_xmmm64_er EVEX_Vfmadd213sd_xmm_k1z_xmm_xmmm64_er;
    })
}
