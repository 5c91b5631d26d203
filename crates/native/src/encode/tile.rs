//! Instructions on registers of tiles in bytes. Flows in: an instruction, in whose sources those registers stand as
//! numbers; flows out: one machine instruction.

use super::buffer::broken;
use super::emitter::Argument;
use super::emitter::Emitter;
use super::emitter::Source;
use crate::code::Do;
use crate::code::Ins;
use crate::code::TileDot;
use iced_x86::Code;
use iced_x86::Register;
use monoglot_uop::Result;

/// A register of tiles by the number that a source is.
fn register(e: &Emitter<'_>, ins: &Ins, source: usize) -> Result<Argument> {
    let number = e.nth_number(ins, source)?;
    match u32::try_from(number) {
        Ok(number @ 0..8) => Ok(Argument::Register(Register::TMM0 + number)),
        _ => Err(broken(format!("there is no tile {number}"))),
    }
}

/// What is done with tiles.
pub(super) fn tile(e: &mut Emitter<'_>, ins: &Ins) -> Result<()> {
    match ins.op {
        Do::TileConfigure => match e.nth(ins, 0)? {
            Source::Memory(from) => e.emit(Code::VEX_Ldtilecfg_m512, &[Argument::Memory(from)]),
            other => Err(broken(format!("{other:?} is no memory"))),
        },
        Do::TileRelease => e.emit(Code::VEX_Tilerelease, &[]),
        Do::TileZero => {
            let tile = register(e, ins, 0)?;
            e.emit(Code::VEX_Tilezero_tmm, &[tile])
        }
        Do::TileLoad => {
            let from = Argument::Memory(e.nth_address(ins, 0)?);
            let tile = register(e, ins, 1)?;
            // Past the first cache, which a few tiles would fill.
            e.emit(Code::VEX_Tileloaddt1_tmm_sibmem, &[tile, from])
        }
        Do::TileStore => {
            let to = Argument::Memory(e.nth_address(ins, 0)?);
            let tile = register(e, ins, 1)?;
            e.emit(Code::VEX_Tilestored_sibmem_tmm, &[to, tile])
        }
        Do::TileDot(dot) => {
            let code = match dot {
                TileDot::BF16 => Code::VEX_Tdpbf16ps_tmm_tmm_tmm,
                TileDot::SS => Code::VEX_Tdpbssd_tmm_tmm_tmm,
                TileDot::SU => Code::VEX_Tdpbsud_tmm_tmm_tmm,
                TileDot::US => Code::VEX_Tdpbusd_tmm_tmm_tmm,
                TileDot::UU => Code::VEX_Tdpbuud_tmm_tmm_tmm,
            };
            let tiles = [
                register(e, ins, 0)?,
                register(e, ins, 1)?,
                register(e, ins, 2)?,
            ];
            e.emit(code, &tiles)
        }
        _ => Err(broken("no instruction on tiles")),
    }
}
