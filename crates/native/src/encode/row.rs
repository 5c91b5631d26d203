//! An encoding with its operands: which one of the table, and how sources become what it takes. Flows in: a level, a
//! width and a row of the table; flows out: the machine instruction. Always: of two encodings of AVX-512's level the
//! shorter is taken, which has the first sixteen registers alone.

use super::buffer::broken;
use super::emitter::Argument;
use super::emitter::Emitter;
use super::emitter::Source;
use super::emitter::Under;
use super::emitter::general;
use super::emitter::mask;
use crate::code::Level;
use crate::code::Width;
use crate::table::Form;
use crate::table::Kind;
use crate::table::Vector;
use iced_x86::Code;
use iced_x86::OpKind;
use iced_x86::Register;
use monoglot_uop::Result;
use smallvec::SmallVec;

/// An encoding and its operands.
#[derive(Copy, Clone)]
pub(super) struct Row {
    pub(super) code: Code,
    pub(super) kinds: [Kind; 4],
    /// It is one of AVX-512.
    pub(super) evex: bool,
}

/// The column of the table for instructions of a level; of AVX-512 where a register is past the first sixteen.
fn column(level: Level, width: Width, upper: bool) -> Result<usize> {
    Ok(match (level, width) {
        (Level::V2, Width::X) => 0,
        (Level::V4, Width::X) if upper => 3,
        (Level::V4, Width::Y) if upper => 4,
        (Level::V4, Width::Z) => 5,
        (Level::V3 | Level::V4, Width::X) => 1,
        (Level::V3 | Level::V4, Width::Y) => 2,
        _ => return Err(broken(format!("{level:?} has no vectors of {width:?}"))),
    })
}

impl Row {
    /// `upper`: a register is past the first sixteen.
    pub(super) fn of(level: Level, width: Width, vector: Vector, upper: bool) -> Result<Row> {
        let codes = vector.encodings();
        // AVX-512 has dot products in encodings of its own alone: the shorter ones are of another extension.
        let upper = upper || level == Level::V4 && vector.form() == Form::Dot;
        let mut column = column(level, width, upper)?;
        if level == Level::V4 && codes[column] == Code::INVALID && column < 3 {
            column += 2;
        }
        let code = codes[column];
        if code == Code::INVALID {
            return Err(broken(format!("{level:?} has no {vector:?} of {width:?}")));
        }
        Ok(Row {
            code,
            kinds: vector.operands()[column],
            evex: column > 2,
        })
    }

    pub(super) fn with(self, code: Code) -> Row {
        Row { code, ..self }
    }

    /// Append it with these operands, of which there are as many as it has.
    pub(super) fn emit(self, e: &mut Emitter<'_>, operands: &[Source]) -> Result<()> {
        self.emit_under(e, operands, Under::None)
    }

    /// The same for the lanes of a mask register alone.
    pub(super) fn emit_under(
        self,
        e: &mut Emitter<'_>,
        operands: &[Source],
        under: Under,
    ) -> Result<()> {
        let count = self.kinds.iter().filter(|k| **k != Kind::None).count();
        if count != operands.len() {
            let given = operands.len();
            return Err(broken(format!("{given} operands instead of {count}")));
        }
        let mut arguments: SmallVec<[Argument; 4]> = SmallVec::new();
        for (kind, operand) in self.kinds.iter().zip(operands) {
            arguments.push(argument(*kind, *operand)?);
        }
        e.emit_under(self.code, &arguments, under)
    }
}

/// dst = a, of so many bytes.
pub(super) fn copy_of(e: &mut Emitter<'_>, dst: Source, a: Source, width: Width) -> Result<()> {
    if dst == a {
        return Ok(());
    }
    let codes = [
        Code::Movaps_xmm_xmmm128,
        Code::VEX_Vmovaps_xmm_xmmm128,
        Code::VEX_Vmovaps_ymm_ymmm256,
        Code::EVEX_Vmovaps_xmm_k1z_xmmm128,
        Code::EVEX_Vmovaps_ymm_k1z_ymmm256,
        Code::EVEX_Vmovaps_zmm_k1z_zmmm512,
    ];
    let column = column(e.level, width, dst.is_upper() || a.is_upper())?;
    let kind = match width {
        Width::Z => Kind::Zmm,
        Width::Y => Kind::Ymm,
        _ => Kind::Xmm,
    };
    let row = Row {
        code: codes[column],
        kinds: [kind, kind, Kind::None, Kind::None],
        evex: column > 2,
    };
    row.emit(e, &[dst, a])
}

fn argument(kind: Kind, operand: Source) -> Result<Argument> {
    Ok(match (kind, operand) {
        (Kind::Xmm, Source::Vector(n)) => Argument::Register(Register::XMM0 + u32::from(n)),
        (Kind::Ymm, Source::Vector(n)) => Argument::Register(Register::YMM0 + u32::from(n)),
        (Kind::Zmm, Source::Vector(n)) => Argument::Register(Register::ZMM0 + u32::from(n)),
        (Kind::Mask, Source::Mask(n)) => Argument::Register(mask(n)),
        (Kind::R32, Source::General(n)) => Argument::Register(general(n, false)),
        (Kind::R64, Source::General(n)) => Argument::Register(general(n, true)),
        (Kind::Immediate, Source::Immediate(i)) if (-128..256).contains(&i) => {
            Argument::Immediate(OpKind::Immediate8, i)
        }
        (Kind::Immediate | Kind::None, _) => {
            return Err(broken(format!("{operand:?} where {kind:?} is")));
        }
        (_, Source::Memory(address)) => Argument::Memory(address),
        _ => return Err(broken(format!("{operand:?} where {kind:?} is"))),
    })
}

/// The width of a row's registers.
pub(super) fn width_of(row: Row) -> Width {
    match row.kinds[0] {
        Kind::Zmm => Width::Z,
        Kind::Ymm => Width::Y,
        _ => Width::X,
    }
}
