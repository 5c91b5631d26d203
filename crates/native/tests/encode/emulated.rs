//! Rows of the table on values by chance, by the machine and by the emulator. Flows in: the table; flows out: rows of
//! which both make something else. Always: values are those that arithmetic trips over as often as any.

use crate::machine::*;
use crate::rows::COLUMNS;
use crate::rows::for_rows;
use crate::rows::one;
use monoglot_native::code::Do;
use monoglot_native::code::Ins;
use monoglot_native::code::Operand;
use monoglot_native::table::Form;
use monoglot_native::table::Vector;
use std::cell::RefCell;

/// Lanes that mean something as floats of 32 and of 64 bits, or as integers.
fn lane(chance: &mut Chance) -> u64 {
    let any = chance.next();
    let small = (any >> 58) as f32 - 30.5;
    let pair = |f: f32| u64::from(f.to_bits()) << 32 | u64::from(f.to_bits());
    let edges = [
        any,
        any,
        pair(small),
        f64::from(small).to_bits(),
        pair(f32::INFINITY),
        f64::INFINITY.to_bits(),
        pair(-0.0),
        (-0.0f64).to_bits(),
        pair(f32::NAN),
        f64::NAN.to_bits() | 77 << 40,
        pair(f32::from_bits(0xff81_2345)),
        0xfff1_2345_6789_abcd,
        pair(1e-42),
        5e-310f64.to_bits(),
        pair(3e9),
        3e9f64.to_bits(),
        1e19f64.to_bits(),
        pair(70_000.0),
        pair(1e-6),
        0,
        u64::MAX,
        any >> 32,
        0x8000_0000_0000_0000,
        0x8000_0000_7fff_ffff,
    ];
    chance.of(&edges)
}

/// The numbers that an instruction may have.
fn number(vector: Vector, chance: &mut Chance) -> i64 {
    match vector {
        Vector::CmpPs | Vector::CmpPd | Vector::CmpSs | Vector::CmpSd => chance.next() as i64 & 7,
        Vector::RoundPs | Vector::RoundPd | Vector::RoundSs | Vector::RoundSd => {
            chance.next() as i64 & 3 | 8
        }
        Vector::CvtPs2Ph => 0,
        _ => chance.next() as i64 & 0xff,
    }
}

/// The instruction with one of its sources as its destination, or another number.
fn varied(mut ins: Ins, vector: Vector, chance: &mut Chance) -> Ins {
    for source in &mut ins.src {
        if let Operand::Imm(imm) = source {
            *imm = number(vector, chance);
        }
    }
    let sources: Vec<_> = ins
        .src
        .iter()
        .filter_map(|s| match s {
            Operand::Reg(r) if ins.dst.is_some_and(|d| (d.0 < 16) == (r.0 < 16)) => Some(*r),
            _ => None,
        })
        .collect();
    if chance.coin() && !sources.is_empty() {
        ins.dst = Some(chance.of(&sources));
    } else if vector.form() == Form::Fma {
        ins.dst = Some(v(7));
    }
    ins
}

#[test]
fn the_emulator_agrees_with_the_machine_on_every_row() {
    let chance = RefCell::new(Chance(101));
    let levels = levels();
    for_rows(|vector, column| {
        if !levels.contains(&COLUMNS[column].0) {
            return;
        }
        for round in 0..40 {
            let chance = &mut *chance.borrow_mut();
            let mut space = [0u8; 192];
            let start = space.as_ptr().align_offset(64);
            for to in space[start..].chunks_exact_mut(8) {
                to.copy_from_slice(&lane(chance).to_le_bytes());
            }
            let mut machine = chance.machine();
            for to in machine
                .vectors
                .iter_mut()
                .flat_map(|v| v.chunks_exact_mut(8))
            {
                to.copy_from_slice(&lane(chance).to_le_bytes());
            }
            machine.general[3] = space[start..].as_ptr() as u64;
            machine.general[6] = lane(chance);
            lend(&space);
            let memory = at(3, 64);
            let mut ins = one(vector, column, round & 1, memory);
            if let (true, Some(source)) = (round & 2 == 0, ins.memory_source()) {
                let broadcast = matches!(vector, Vector::BroadcastSs | Vector::BroadcastSd);
                if !broadcast {
                    ins.src[source] = memory;
                }
            }
            assert!(matches!(ins.op, Do::Vector(_)));
            let ins = varied(ins, vector, chance);
            execute(COLUMNS[column].0, 8, &[ins], &[], 0, &machine);
        }
    });
}
