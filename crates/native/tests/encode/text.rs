//! The listing, as it reads. Flows in: a function; flows out: where its text is not that of `listing.txt`, which
//! `UPDATE=1 cargo test -p monoglot-native` writes anew. Always: no address is in it.

use crate::machine::*;
use monoglot_native::code::Cond;
use monoglot_native::code::Do;
use monoglot_native::code::Level;
use monoglot_native::code::Mem;
use monoglot_native::code::Operand;
use monoglot_native::code::Width;
use monoglot_native::encode::encode;
use monoglot_native::listing::{Layout, listing};
use monoglot_native::table::Vector;

#[test]
fn a_function_reads_well() {
    let element = Operand::Mem(Mem {
        base: g(3),
        index: Some((g(7), 4)),
        displacement: -32,
    });
    let fma = [element, Operand::Pool(2), rv(1)];
    let skip = [rg(6), Operand::Imm(4), Operand::Imm(0)];
    let end = [rg(7), rg(6), Operand::Imm(0)];
    let body = vec![
        ins(Do::Argument(0), Width::W64, Some(g(3)), &[]),
        ins(Do::Argument(1), Width::W32, Some(g(6)), &[]),
        ins(Do::Immediate, Width::W64, Some(g(7)), &[Operand::Imm(0)]),
        ins(Do::SkipIf(Cond::Less), Width::W32, None, &skip),
        ins(Do::Loop, Width::W64, None, &[Operand::Imm(0)]),
        ins(
            Do::Vector(Vector::Load),
            Width::Y,
            Some(v(2)),
            &[Operand::Pool(0)],
        ),
        ins(
            Do::Vector(Vector::FmaPs),
            Width::Y,
            Some(v(1)),
            &[rv(2), fma[1], rv(1)],
        ),
        ins(Do::Vector(Vector::Store), Width::Y, None, &[element, rv(1)]),
        ins(Do::Store8, Width::W32, None, &[at(3, 300), rg(6)]),
        ins(Do::Store32, Width::W32, None, &[at(3, 0), Operand::Imm(-1)]),
        ins(
            Do::Add,
            Width::W64,
            Some(g(7)),
            &[rg(7), Operand::Imm(-128)],
        ),
        ins(Do::Next, Width::W64, None, &end),
        ins(Do::Land, Width::W64, None, &[Operand::Imm(0)]),
        ins(Do::Return, Width::W64, None, &[]),
    ];
    let pool = [
        std::array::from_fn(|n| n as u8),
        [9; 64],
        [0x3f80_0000u32.to_le_bytes(); 16]
            .concat()
            .try_into()
            .expect("64 bytes"),
    ];
    let encoded = encode(&allocated(body, &pool, 0), Level::V3).expect("bytes");
    let of = |number: u32| (number != 3).then(|| format!("instruction {number}"));
    let layout = Layout {
        name: "sum_4".into(),
        marks: encoded.marks.clone(),
        text: encoded.text,
        constant: encoded.constant,
    };
    let text = listing(&layout, &encoded.bytes, &of);
    if std::env::var_os("UPDATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/encode/listing.txt");
        std::fs::write(path, &text).expect("the file is written");
        return;
    }
    assert_eq!(text, include_str!("listing.txt"), "\n{text}");
    assert_eq!(encoded.bytes.len(), encoded.text.next_multiple_of(64) + 64);
}
