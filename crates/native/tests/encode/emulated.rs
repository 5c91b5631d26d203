//! Rows of the table on values by chance, by the machine and by the emulator. Flows in: the table; flows out: rows of
//! which both make something else. Always: values are those that arithmetic trips over as often as any.

use crate::machine::*;
use crate::rows::COLUMNS;
use crate::rows::for_rows;
use crate::rows::one;
use monoglot_native::code::Do;
use monoglot_native::code::Ins;
use monoglot_native::code::Level;
use monoglot_native::code::Operand;
use monoglot_native::code::Reg;
use monoglot_native::code::Width;
use monoglot_native::table::Form;
use monoglot_native::table::Kind;
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
        Vector::Permute128 => chance.next() as i64 & 0x33,
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
    let factors = matches!(vector.form(), Form::Dot | Form::MaskFma);
    if chance.coin() && !sources.is_empty() && !factors {
        ins.dst = Some(chance.of(&sources));
    } else if matches!(vector.form(), Form::Fma | Form::Dot | Form::MaskFma) {
        ins.dst = Some(v(7));
    }
    ins
}

/// Values in registers and in memory, to which register 3 points.
fn drawn(chance: &mut Chance, space: &mut [u8; 256]) -> Machine {
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
    for number in [6, 13] {
        machine.general[number] = lane(chance);
    }
    machine
}

#[test]
fn the_emulator_agrees_with_the_machine_on_every_row() {
    let chance = RefCell::new(Chance(101));
    assert!(levels().contains(&Level::V4));
    for_rows(|vector, column| {
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

/// The registers of AVX-512 alone instead of the first.
fn raised(ins: &Ins) -> Ins {
    let up = |r: Reg| if r.0 < 16 { r } else { Reg(r.0 + 16) };
    let mut raised = ins.clone();
    raised.dst = raised.dst.map(up);
    for source in &mut raised.src {
        if let Operand::Reg(r) = source {
            *r = up(*r);
        }
    }
    raised
}

#[test]
fn avx512_does_what_avx2_does() {
    let chance = RefCell::new(Chance(102));
    for_rows(|vector, column| {
        if COLUMNS[column].0 != Level::V3 {
            return;
        }
        for round in 0..40 {
            let chance = &mut *chance.borrow_mut();
            let mut space = [0u8; 256];
            let machine = drawn(chance, &mut space);
            let mut higher = machine.clone();
            higher.vectors.rotate_right(16);
            let memory = at(3, 64);
            let mut ins = one(vector, column, round & 1, memory);
            if let (true, Some(source)) = (round & 2 == 0, ins.memory_source()) {
                ins.src[source] = memory;
            }
            let ins = varied(ins, vector, chance);
            let before = space;
            lend(&space);
            let first = execute(Level::V3, 8, &[ins.clone()], &[], 0, &machine);
            let first_space = std::mem::replace(std::hint::black_box(&mut space), before);
            lend(&space);
            let second = execute(Level::V4, 8, &[raised(&ins)], &[], 0, &higher);
            assert_eq!(first_space, *std::hint::black_box(&mut space), "{ins:?}");
            assert_eq!(first.general, second.general, "{ins:?}");
            let Some(Reg(dst @ 16..)) = ins.dst else {
                continue;
            };
            let read = match vector {
                Vector::CmpSs => 4,
                Vector::CmpSd => 8,
                _ => 64,
            };
            let a = first.vectors[dst as usize - 16];
            let b = second.vectors[dst as usize];
            assert_eq!(a[..read.min(32)], b[..read.min(32)], "{ins:?}");
            assert!(b[read.min(32)..read].iter().all(|b| *b == 0), "{ins:?}");
        }
    });
}

/// Whether a row does to each half of its vectors what it does to a vector of half the bytes.
fn is_by_halves(vector: Vector) -> bool {
    let name = format!("{vector:?}");
    let crosses = [
        "Permute",
        "Insert",
        "Extract",
        "Extend",
        "Broadcast",
        "Narrow",
        "Table",
    ];
    let counts = vector.operands()[5][2] == Kind::Xmm;
    let resizes =
        name.starts_with("Cvt") && !matches!(vector, Vector::CvtDQ2Ps | Vector::CvttPs2DQ);
    let general = name.starts_with("MoveMask");
    let numbered = name.starts_with("Blend") || vector == Vector::ShufflePd;
    let crosses = crosses.iter().any(|p| name.starts_with(p));
    !(crosses || counts || resizes || general || numbered)
}

#[test]
fn vectors_of_64_bytes_are_two_of_32() {
    let chance = RefCell::new(Chance(103));
    let mut rows = 0;
    let rows = &mut rows;
    let counted = RefCell::new(rows);
    for_rows(|vector, column| {
        let stores = matches!(vector.form(), Form::Store | Form::MaskStore);
        if COLUMNS[column].1 != Width::Z || stores || !is_by_halves(vector) {
            return;
        }
        **counted.borrow_mut() += 1;
        for round in 0..20 {
            let chance = &mut *chance.borrow_mut();
            let mut space = [0u8; 256];
            let machine = drawn(chance, &mut space);
            let memory = |by| at(3, 64 + by);
            let wide = one(vector, column, round & 1, memory(0));
            let wide = varied(wide, vector, chance);
            let takes = wide.memory_source().filter(|_| round & 2 == 0);
            let takes = takes.or(wide.src.iter().position(|s| matches!(s, Operand::Mem(_))));
            let mut results = vec![];
            for (width, by) in [(Width::Z, 0), (Width::Y, 0), (Width::Y, 32)] {
                let mut ins = wide.clone();
                ins.width = width;
                if let Some(source) = takes {
                    ins.src[source] = memory(by as i32);
                }
                let mut machine = machine.clone();
                for vector in &mut machine.vectors {
                    vector.rotate_left(by);
                }
                lend(&space);
                let after = execute(Level::V4, 8, &[ins.clone()], &[], 0, &machine);
                let dst = wide.dst.expect("a destination").0 as usize - 16;
                results.push(after.vectors[dst]);
            }
            assert_eq!(results[0][..32], results[1][..32], "{wide:?}");
            assert_eq!(results[0][32..], results[2][..32], "{wide:?}");
        }
    });
    assert!(**counted.borrow() > 80, "{}", counted.borrow());
}
