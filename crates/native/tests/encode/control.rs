//! Loops, skips, arguments, frames and marks, run. Flows in: short functions; flows out: what differs from what
//! they say. Always: jumps short and long are tried.

use crate::general::CONDITIONS;
use crate::general::holds;
use crate::machine::*;
use iced_x86::Code as Machine86;
use monoglot_native::code::Cond;
use monoglot_native::code::Do;
use monoglot_native::code::Ins;
use monoglot_native::code::Level;
use monoglot_native::code::Operand;
use monoglot_native::code::Width;
use monoglot_native::encode::encode;
use monoglot_native::table::Vector;
use monoglot_uop::ErrorKind;

fn add(dst: u8, number: i64) -> Ins {
    let sources = [rg(dst), Operand::Imm(number)];
    ins(Do::Add, Width::W64, Some(g(dst)), &sources)
}

fn set(dst: u8, number: i64) -> Ins {
    ins(
        Do::Immediate,
        Width::W64,
        Some(g(dst)),
        &[Operand::Imm(number)],
    )
}

fn top(number: i64) -> Ins {
    ins(Do::Loop, Width::W64, None, &[Operand::Imm(number)])
}

fn next(width: Width, a: u8, b: Operand, number: i64) -> Ins {
    ins(Do::Next, width, None, &[rg(a), b, Operand::Imm(number)])
}

fn land(number: i64) -> Ins {
    ins(Do::Land, Width::W64, None, &[Operand::Imm(number)])
}

fn ret() -> Ins {
    ins(Do::Return, Width::W64, None, &[])
}

#[test]
fn loops_in_loops_count() {
    let mut chance = Chance(21);
    // Bodies from one instruction to more than a short jump reaches over.
    for inner in [1, 2, 20, 30, 31, 32, 33, 40, 100] {
        for width in [Width::W32, Width::W64] {
            let mut body = vec![set(3, 0), set(6, 0), top(5), set(7, -2), top(9)];
            body.extend(std::iter::repeat_n(add(3, 1), inner));
            body.push(add(7, 1));
            body.push(next(width, 7, Operand::Imm(0), 9));
            body.push(add(6, 1));
            body.push(next(width, 6, rg(8), 5));
            let mut machine = chance.machine();
            machine.general[8] = 5;
            let after = execute(Level::V2, 15, &body, &[], 0, &machine);
            assert_eq!(after.general[3], 5 * 2 * inner as u64);
            assert_eq!(after.general[6], 5);
        }
    }
}

#[test]
fn skips_of_all_conditions() {
    let mut chance = Chance(22);
    for round in 0..1000 {
        let condition = CONDITIONS[round % 10];
        let width = chance.of(&[Width::W32, Width::W64]);
        let machine = chance.machine();
        let number = chance.of(&[0, 1, -1, 127, 128, -129, i64::from(i32::MIN)]);
        let by_number = chance.coin();
        let (source, value) = match by_number {
            true => (Operand::Imm(number), number as u64),
            false => (rg(6), machine.general[6]),
        };
        let over = chance.of(&[1, 31, 32, 33, 60]);
        let mut body = vec![set(7, 1)];
        let sources = [rg(3), source, Operand::Imm(1)];
        body.push(ins(Do::SkipIf(condition), width, None, &sources));
        body.extend(std::iter::repeat_n(add(7, 1), over));
        body.push(land(1));
        let after = execute(Level::V2, 15, &body, &[], 0, &machine);
        let skipped = holds(condition, width, machine.general[3], value);
        let expected = if skipped { 1 } else { 1 + over as u64 };
        assert_eq!(after.general[7], expected, "{body:?}");
    }
}

#[test]
fn skips_over_loops_and_to_one_place() {
    let mut chance = Chance(23);
    for [first, second] in [[0, 0], [0, 1], [1, 0], [1, 1]] {
        let skip = |register: u8| {
            let sources = [rg(register), Operand::Imm(0), Operand::Imm(4)];
            ins(Do::SkipIf(Cond::NotEqual), Width::W64, None, &sources)
        };
        let body = [
            set(7, 0),
            skip(3),
            add(7, 1),
            skip(6),
            set(8, 0),
            top(0),
            add(7, 10),
            add(8, 1),
            next(Width::W64, 8, Operand::Imm(300), 0),
            land(4),
            add(7, 100_000),
        ];
        let mut machine = chance.machine();
        machine.general[3] = first;
        machine.general[6] = second;
        let after = execute(Level::V2, 15, &body, &[], 0, &machine);
        let expected = match (first, second) {
            (1, _) => 100_000,
            (_, 1) => 100_001,
            _ => 103_001,
        };
        assert_eq!(after.general[7], expected);
    }
}

#[test]
fn arguments_come_in_any_register() {
    let mut chance = Chance(24);
    for _ in 0..200 {
        let mut free = GENERAL.to_vec();
        let mut take = || {
            let one = chance.of(&free);
            free.retain(|n| *n != one);
            one
        };
        let args = take();
        let thread = take();
        let own = take();
        for slots in [0, 1] {
            let body = vec![
                ins(Do::Argument(0), Width::W64, Some(g(args)), &[]),
                ins(Do::Argument(1), Width::W32, Some(g(thread)), &[]),
                ins(Do::Argument(2), Width::W64, Some(g(own)), &[]),
                ins(Do::Load64, Width::W64, Some(g(args)), &[at(args, 8)]),
                ins(Do::Store64, Width::W64, None, &[at(own, 0), rg(args)]),
                ins(Do::Store64, Width::W64, None, &[at(own, 8), rg(thread)]),
                ret(),
            ];
            let encoded = encode(&allocated(body, &[], slots), Level::V2).expect("bytes");
            let words = [11, 22];
            let mut own = [0u64; 2];
            run(&encoded, words.as_ptr(), -3, own.as_mut_ptr().cast());
            assert_eq!(own, [22, u64::from(-3i32 as u32)]);
        }
    }
}

#[test]
fn frames_keep_what_they_are_given() {
    let mut chance = Chance(25);
    for level in levels() {
        let width = widest(level);
        let most = (1 << 20) / level.slot_bytes() as u32;
        for slots in [1, 3, 4, 5, 40, most] {
            let machine = chance.machine();
            let last = slots - 1;
            let mut body = vec![];
            let general = Operand::Slot(last);
            body.push(ins(Do::Store64, Width::W64, None, &[general, rg(12)]));
            body.push(ins(Do::Load64, Width::W64, Some(g(3)), &[general]));
            let vector = Operand::Slot(last / 2);
            let store = Do::Vector(Vector::Store);
            let load = Do::Vector(Vector::Load);
            body.push(ins(store, width, None, &[vector, rv(4)]));
            body.push(ins(load, width, Some(v(14)), &[vector]));
            // A source at a multiple of its bytes, or the machine stops.
            let and = Do::Vector(Vector::And);
            body.push(ins(and, width, Some(v(2)), &[rv(14), vector]));
            let after = execute(level, 8, &body, &[], slots, &machine);
            let mut expected = machine.clone();
            expected.general[3] = machine.general[12];
            let bytes = level.vector_bytes();
            for to in [14, 2] {
                expected.vectors[to][..bytes].copy_from_slice(&machine.vectors[4][..bytes]);
            }
            assert_eq!(after, expected);
        }
    }
    let error = encode(&allocated(vec![ret()], &[], 32769), Level::V2).expect_err("too large");
    assert!(
        matches!(error.kind(), ErrorKind::Unsupported { .. }),
        "{error}"
    );
}

#[test]
fn hints_run() {
    let mut chance = Chance(26);
    let data = [0u64; 8];
    let mut machine = chance.machine();
    machine.general[12] = data.as_ptr() as u64;
    lend(&data);
    let body = [
        ins(Do::Prefetch, Width::W64, None, &[at(12, 0)]),
        ins(Do::Fence, Width::W64, None, &[]),
    ];
    assert_eq!(execute(Level::V2, 8, &body, &[], 0, &machine), machine);
}

#[test]
fn innermost_loops_start_at_lines_and_jumps_are_short() {
    for before in 0..40 {
        let mut body = vec![set(3, 0), top(0)];
        body.extend(std::iter::repeat_n(add(3, 1), before));
        body.extend([set(6, 0), top(1), add(6, 1), next(Width::W64, 6, rg(3), 1)]);
        body.extend([next(Width::W64, 3, rg(3), 0), ret()]);
        let encoded = encode(&allocated(body, &[], 0), Level::V2).expect("bytes");
        let jumps: Vec<_> = decoded(&encoded)
            .into_iter()
            .filter(|i| i.op0_kind() == iced_x86::OpKind::NearBranch64)
            .collect();
        assert_eq!(jumps.len(), 2);
        assert_eq!(jumps[0].code(), Machine86::Jl_rel8_64);
        let inner = jumps[0].near_branch_target();
        assert_eq!(inner % 16, 0, "at {inner} with {before} before");
        let back = jumps[1].ip() + 2 - jumps[1].near_branch_target();
        assert_eq!(jumps[1].len() == 2, back <= 128);
    }
}

#[test]
fn marks_say_where_instructions_start() {
    let body = vec![
        set(3, 5),
        top(0),
        ins(Do::Move, Width::W64, Some(g(3)), &[rg(3)]),
        add(3, 1),
        next(Width::W64, 3, Operand::Imm(9), 0),
        land(2),
        ret(),
    ];
    let encoded = encode(&allocated(body, &[], 0), Level::V2).expect("bytes");
    let list = decoded(&encoded);
    let starts: Vec<u64> = list.iter().map(|i| i.ip()).collect();
    for (offset, _) in &encoded.marks {
        assert!(starts.contains(&u64::from(*offset)));
    }
    let numbers: Vec<u32> = encoded.marks.iter().map(|(_, n)| *n).collect();
    // The top has its filling; the move to the same register and the landing have no bytes.
    assert_eq!(numbers, [0, 1, 3, 4, 6]);
    assert!(encoded.marks.windows(2).all(|w| w[0].0 < w[1].0));
    assert_eq!(list[0].code(), Machine86::Push_r64);
}

#[test]
fn what_cannot_be_is_an_error() {
    let vector =
        |op: Vector, width: Width, src: &[Operand]| ins(Do::Vector(op), width, Some(v(1)), src);
    let two = [rv(2), rv(3)];
    let cases = [
        (Level::V2, vector(Vector::AddPs, Width::Y, &two)),
        (Level::V3, vector(Vector::AddSs, Width::Y, &two)),
        (Level::V2, vector(Vector::ShlVD, Width::X, &two)),
        (Level::V2, vector(Vector::AddPs, Width::X, &[rv(15), rv(3)])),
        (Level::V3, vector(Vector::AddPs, Width::X, &[rv(2), rg(3)])),
        (Level::V3, vector(Vector::AddPs, Width::X, &[rv(2)])),
        (
            Level::V3,
            vector(Vector::AddPs, Width::X, &[at(3, 0), rv(2)]),
        ),
        (
            Level::V3,
            vector(Vector::AddPs, Width::X, &[rv(2), Operand::Pool(0)]),
        ),
        (Level::V3, vector(Vector::CmpPs, Width::X, &two)),
        (
            Level::V2,
            vector(Vector::CmpPs, Width::X, &[rv(2), rv(3), Operand::Imm(8)]),
        ),
        (
            Level::V3,
            vector(Vector::FmaPs, Width::X, &[at(3, 0), at(3, 0), rv(2)]),
        ),
        (
            Level::V3,
            vector(Vector::ShlDImm, Width::X, &[rv(2), Operand::Imm(256)]),
        ),
        (
            Level::V2,
            ins(Do::Add, Width::X, Some(g(3)), &[rg(3), rg(6)]),
        ),
        (
            Level::V2,
            ins(Do::Add, Width::W64, Some(g(0)), &[rg(3), rg(6)]),
        ),
        (
            Level::V2,
            ins(Do::Add, Width::W64, Some(g(5)), &[rg(3), rg(6)]),
        ),
        (Level::V2, ins(Do::Add, Width::W64, None, &[rg(3), rg(6)])),
        (Level::V2, add(3, 1 << 31)),
        (
            Level::V2,
            ins(Do::Load64, Width::W64, Some(g(3)), &[Operand::Slot(0)]),
        ),
        (Level::V2, next(Width::W64, 3, rg(6), 0)),
        (Level::V2, ins(Do::Argument(3), Width::W64, Some(g(3)), &[])),
    ];
    for (level, one) in cases {
        let said = format!("{one:?}");
        let error = encode(&allocated(vec![one, ret()], &[], 0), level).expect_err(&said);
        assert!(
            matches!(error.kind(), ErrorKind::Verify { .. }),
            "{said}: {error}"
        );
    }
    let skip = ins(
        Do::SkipIf(Cond::Equal),
        Width::W64,
        None,
        &[rg(3), rg(6), Operand::Imm(0)],
    );
    assert!(encode(&allocated(vec![skip, ret()], &[], 0), Level::V2).is_err());
    assert!(encode(&allocated(vec![add(3, 1)], &[], 0), Level::V2).is_err());
}
