//! Masks in mask registers, run. Flows in: comparisons and what reads their results; flows out: lanes that differ from
//! Rust's, masks in vector registers where none is needed. Always: the emulator runs what this machine does not.

use crate::emulator::Function;
use crate::emulator::Memory;
use crate::machine::*;
use iced_x86::Mnemonic;
use monoglot_native::code::{Do, Ins, Level, Operand, Width};
use monoglot_native::encode::{Encoded, encode};
use monoglot_native::table::Vector;

/// Lanes in memory: two vectors that are read, and results after them.
const RESULTS: usize = 9;
type Lanes = [[f32; 16]; 2 + RESULTS];

fn vector(op: Vector, dst: u8, src: &[Operand]) -> Ins {
    ins(Do::Vector(op), Width::Z, Some(v(dst)), src)
}

/// Two vectors are read, what is between is done, and registers are results.
fn function(between: &[Ins], results: &[u8]) -> Encoded {
    let mut body = vec![ins(Do::Argument(0), Width::W64, Some(g(3)), &[])];
    body.extend([0, 1].map(|k| vector(Vector::Load, k, &[at(3, 64 * i32::from(k))])));
    body.extend_from_slice(between);
    for (k, n) in (2..).zip(results) {
        let store = Do::Vector(Vector::Store);
        body.push(ins(store, Width::Z, None, &[at(3, 64 * k), rv(*n)]));
    }
    body.push(ins(Do::Return, Width::W64, None, &[]));
    encode(&allocated(body, &[], 0), Level::V4).expect("it is encoded")
}

/// What memory holds afterwards.
fn after(encoded: &Encoded, before: &Lanes) -> Lanes {
    let mut lanes = *before;
    if runs(Level::V4) {
        run(encoded, lanes.as_mut_ptr().cast(), 0, std::ptr::null_mut());
        return lanes;
    }
    let home = lanes.as_ptr() as u64;
    let mut memory = Memory::default();
    let flat = lanes.as_flattened().iter().flat_map(|x| x.to_le_bytes());
    memory.add(home, flat.collect(), true);
    let mut function = Function::new(&encoded.bytes);
    if let Err(what) = function.call(&mut memory, [home, 0, 0]) {
        panic!("{what}");
    }
    let bytes = memory.remove(home);
    for (lane, bytes) in lanes
        .as_flattened_mut()
        .iter_mut()
        .zip(bytes.chunks_exact(4))
    {
        *lane = f32::from_le_bytes(bytes.try_into().expect("4 bytes"));
    }
    lanes
}

fn before() -> Lanes {
    let mut lanes = [[0.0; 16]; 2 + RESULTS];
    lanes[0] = std::array::from_fn(|k| k as f32);
    lanes[1] = std::array::from_fn(|k| (k * 7 % 16) as f32);
    lanes[0][5] = f32::NAN;
    lanes
}

/// How many instructions put a mask into a vector register.
fn in_vectors(encoded: &Encoded) -> usize {
    let list = decoded(encoded);
    list.iter()
        .filter(|i| i.mnemonic() == Mnemonic::Vpmovm2d)
        .count()
}

fn compared(dst: u8, number: i64) -> Ins {
    vector(Vector::CmpPs, dst, &[rv(0), rv(1), Operand::Imm(number)])
}

/// Equal, less, at most, unordered, and so on: the first eight numbers of a comparison.
fn holds(number: i64, a: f32, b: f32) -> bool {
    let is = [a == b, a < b, a <= b, a.is_nan() || b.is_nan()];
    is[(number & 3) as usize] != (number > 3)
}

#[test]
fn masks_that_only_choose_stay_in_mask_registers() {
    // Six at once, then more one by one, of which some make lanes zero.
    let mut body: Vec<Ins> = (0..6).map(|n| compared(2 + n as u8, n)).collect();
    body.extend((0..6).map(|n| vector(Vector::Choose, 10 + n, &[rv(2 + n), rv(0), rv(1)])));
    body.extend([compared(20, 6), vector(Vector::And, 21, &[rv(20), rv(1)])]);
    body.extend([compared(22, 7), vector(Vector::And, 23, &[rv(1), rv(22)])]);
    let encoded = function(&body, &[10, 11, 12, 13, 14, 15, 21, 23]);
    assert_eq!(in_vectors(&encoded), 0);
    let lanes = after(&encoded, &before());
    for (number, results) in (0..8).zip(&lanes[2..]) {
        for (k, got) in results.iter().enumerate() {
            let [a, b] = [0, 1].map(|v| before()[v][k]);
            let other = if number < 6 { b } else { 0.0 };
            let first = if number < 6 { a } else { b };
            let want = if holds(number, a, b) { first } else { other };
            assert!(
                got.to_bits() == want.to_bits(),
                "{number} {k}: {got} {want}"
            );
        }
    }
}

/// Of two masks that are joined one is a vector: the one that nothing else wants, whichever stands first.
#[test]
fn of_two_masks_the_one_that_more_want_stays() {
    for order in [[2, 3], [3, 2]] {
        let body = [
            compared(2, 1),
            compared(3, 2),
            vector(Vector::And, 10, &order.map(rv)),
            vector(Vector::Choose, 11, &[rv(3), rv(0), rv(1)]),
            vector(Vector::Choose, 12, &[rv(3), rv(1), rv(0)]),
        ];
        let encoded = function(&body, &[10, 11, 12]);
        assert_eq!(in_vectors(&encoded), 1, "{order:?}");
        let back = decoded(&encoded);
        let moved = |m: Mnemonic| matches!(m, Mnemonic::Vpmovb2m | Mnemonic::Vpmovd2m);
        let back = back.iter().filter(|i| moved(i.mnemonic()));
        assert_eq!(back.count(), 0, "{order:?}");
        let lanes = after(&encoded, &before());
        for (k, joined) in lanes[2].iter().enumerate() {
            let [a, b] = [0, 1].map(|v| before()[v][k]);
            let both = if holds(1, a, b) && holds(2, a, b) {
                u32::MAX
            } else {
                0
            };
            assert_eq!(joined.to_bits(), both, "{order:?} {k}");
            let want = if holds(2, a, b) { [a, b] } else { [b, a] };
            for (got, want) in [lanes[3][k], lanes[4][k]].into_iter().zip(want) {
                assert_eq!(got.to_bits(), want.to_bits(), "{order:?} {k}");
            }
        }
    }
}

#[test]
fn sums_are_made_in_the_lanes_of_their_mask() {
    // A sum that stays where it is, and one that others read, too: it is copied first.
    let added = |dst: u8, mask: u8, sum: u8| {
        let src = [rv(mask), rv(0), rv(1), rv(sum)];
        vector(Vector::MaskFmaPs, dst, &src)
    };
    let body = [
        compared(2, 1),
        vector(Vector::Or, 10, &[rv(1), rv(1)]),
        added(10, 2, 10),
        added(11, 2, 1),
    ];
    let encoded = function(&body, &[10, 11]);
    assert_eq!(in_vectors(&encoded), 0);
    let lanes = after(&encoded, &before());
    for results in &lanes[2..4] {
        for (k, got) in results.iter().enumerate() {
            let [a, b] = [0, 1].map(|v| before()[v][k]);
            let want = if holds(1, a, b) { a.mul_add(b, b) } else { b };
            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            assert!(same, "{k}: {got} {want}");
        }
    }
}

#[test]
fn masks_that_others_read_are_vectors() {
    let choose = |dst: u8, mask: u8| vector(Vector::Choose, dst, &[rv(mask), rv(0), rv(1)]);
    let cases = [
        // Another reader, a reader of both kinds at once, and a seventh comparison before it is read.
        (
            vec![
                compared(2, 1),
                choose(10, 2),
                vector(Vector::Xor, 11, &[rv(2), rv(1)]),
            ],
            1,
        ),
        (
            vec![
                compared(2, 1),
                vector(Vector::Choose, 10, &[rv(2), rv(2), rv(1)]),
            ],
            1,
        ),
        (
            (0..7)
                .map(|n| compared(2 + n, 1))
                .chain((0..7).map(|n| choose(10 + n, 2 + n)))
                .collect(),
            1,
        ),
    ];
    for (body, vectors) in cases {
        let results: Vec<u8> = body
            .iter()
            .filter_map(|i| i.dst)
            .map(|r| r.0 as u8 - 16)
            .collect();
        let results: Vec<u8> = results.into_iter().filter(|r| *r >= 10).collect();
        let encoded = function(&body, &results);
        assert_eq!(in_vectors(&encoded), vectors, "{body:?}");
        let lanes = after(&encoded, &before());
        for (k, got) in lanes[2].iter().enumerate() {
            let [a, b] = [0, 1].map(|v| before()[v][k]);
            let first = match body.len() {
                2 => f32::from_bits(u32::MAX),
                _ => a,
            };
            let want = if a < b { first } else { b };
            assert_eq!(got.to_bits(), want.to_bits(), "{k}");
        }
    }
}
