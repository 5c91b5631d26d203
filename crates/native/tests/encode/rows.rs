//! Every row of the table in each of its columns, read back by a decoder. Flows in: the table; flows out: rows
//! whose bytes say something else. Always: operands come in the order that the form says.

use crate::machine::*;
use iced_x86::Instruction;
use iced_x86::OpKind;
use iced_x86::Register;
use monoglot_native::code::Do;
use monoglot_native::code::Ins;
use monoglot_native::code::Level;
use monoglot_native::code::Mem;
use monoglot_native::code::Operand;
use monoglot_native::code::Reg;
use monoglot_native::code::Width;
use monoglot_native::encode::encode;
use monoglot_native::table::Form;
use monoglot_native::table::Kind;
use monoglot_native::table::Vector;

pub(crate) const COLUMNS: [(Level, Width); 6] = [
    (Level::V2, Width::X),
    (Level::V3, Width::X),
    (Level::V3, Width::Y),
    (Level::V4, Width::X),
    (Level::V4, Width::Y),
    (Level::V4, Width::Z),
];

/// A register of the kind: of the lower eight or the upper, or of those that AVX-512 alone has.
fn register(kind: Kind, bank: u8, number: u8) -> Reg {
    match kind {
        Kind::R32 | Kind::R64 => g([6, 13][usize::from(bank % 2)]),
        _ => v(bank * 8 + 1 + number),
    }
}

/// The first bank of a column: so that of two encodings the longer is needed.
fn bank(column: usize) -> u8 {
    if column < 3 { 0 } else { 2 }
}

/// Whether a row is several instructions with a mask register, or has an order of its own.
pub(crate) fn is_masked(vector: Vector, column: usize) -> bool {
    let own = matches!(
        vector.form(),
        Form::Choose | Form::MaskLoad | Form::MaskStore | Form::MaskFma | Form::Table
    );
    let blends = matches!(
        vector,
        Vector::BlendPs | Vector::BlendPd | Vector::BlendW | Vector::Permute128
    );
    let masks = vector.operands()[column].contains(&Kind::Mask);
    column > 2 && (own || blends || masks)
}

/// The operands as selection has them, in the order of VEX.
fn kinds(vector: Vector, column: usize) -> [Kind; 4] {
    if !is_masked(vector, column) {
        return vector.operands()[column];
    }
    let like = match vector {
        Vector::MaskLoad1 | Vector::MaskLoad2 => Vector::MaskLoad4,
        Vector::MaskStore1 | Vector::MaskStore2 => Vector::MaskStore4,
        Vector::TableW | Vector::TableD | Vector::TableQ => Vector::Choose,
        Vector::MaskFmaPs | Vector::MaskFmaPd => Vector::FmaPs,
        other => other,
    };
    like.operands()[(column - 2).min(2)].map(|kind| match (kind, column) {
        (Kind::Ymm, 5) => Kind::Zmm,
        (kind, _) => kind,
    })
}

/// The machine's name of an operand.
fn named(kind: Kind, reg: Reg) -> Register {
    match kind {
        Kind::Xmm => Register::XMM0 + (reg.0 - 16),
        Kind::Ymm => Register::YMM0 + (reg.0 - 16),
        Kind::Zmm => Register::ZMM0 + (reg.0 - 16),
        Kind::R32 => Register::EAX + reg.0,
        _ => Register::RAX + reg.0,
    }
}

/// What an operand of the list should be in the bytes.
#[derive(Clone, Copy, Debug)]
enum Shown {
    Register(Register),
    Memory(Mem),
    Immediate(u8),
}

fn shown(kind: Kind, operand: Operand) -> Shown {
    match operand {
        Operand::Reg(r) => Shown::Register(named(kind, r)),
        Operand::Mem(m) => Shown::Memory(m),
        Operand::Imm(i) => Shown::Immediate(i as u8),
        other => panic!("{other:?}"),
    }
}

fn is_shown(instruction: &Instruction, operand: u32, shown: Shown) -> bool {
    match (instruction.op_kind(operand), shown) {
        (OpKind::Register, Shown::Register(r)) => instruction.op_register(operand) == r,
        (OpKind::Immediate8, Shown::Immediate(i)) => instruction.immediate8() == i,
        (OpKind::Memory, Shown::Memory(m)) => {
            let index = m.index.map_or(Register::None, |(r, _)| Register::RAX + r.0);
            let scale = m.index.map_or(1, |(_, s)| u32::from(s));
            instruction.memory_base() == Register::RAX + m.base.0
                && instruction.memory_index() == index
                && instruction.memory_index_scale() == scale
                && instruction.memory_displacement64() == i64::from(m.displacement) as u64
        }
        _ => false,
    }
}

/// Sources for a row of a column, in the order of its form, with registers of a bank. Where an encoding alone
/// has memory, `memory` is there.
fn sources(vector: Vector, column: usize, bank: u8, memory: Operand) -> Vec<Operand> {
    let mut kinds = kinds(vector, column).to_vec();
    kinds.retain(|k| *k != Kind::None);
    let order: Vec<Kind> = match vector.form() {
        Form::Store | Form::MaskStore => kinds,
        // Without VEX the first source is where dst is.
        Form::Three | Form::ThreeCommuting | Form::ShiftImm if column == 0 => kinds,
        Form::Pass if column > 0 => kinds.split_off(2),
        // The summand is where dst is, so that the row's own form is taken.
        Form::Fma | Form::Dot => {
            return vec![
                Operand::Reg(register(kinds[1], bank, 1)),
                Operand::Reg(register(kinds[2], bank, 2)),
                Operand::Reg(register(kinds[0], bank, 0)),
            ];
        }
        Form::MaskFma => {
            let [sum, a, b] = [0, 1, 2].map(|n| Operand::Reg(register(kinds[n], bank, n as u8)));
            return vec![Operand::Reg(register(kinds[1], bank, 3)), a, b, sum];
        }
        _ => kinds.split_off(1),
    };
    (1..)
        .zip(order)
        .map(|(number, kind)| match kind {
            Kind::Memory => memory,
            Kind::Immediate => Operand::Imm(1),
            _ => Operand::Reg(register(kind, bank, number)),
        })
        .collect()
}

/// The operands in the order of the machine.
fn expected(vector: Vector, column: usize, one: &Ins) -> Vec<Shown> {
    let kinds = vector.operands()[column];
    let dst = one.dst.map(Operand::Reg);
    let src = &one.src;
    let order: Vec<Operand> = match vector.form() {
        Form::Store | Form::MaskStore => src.to_vec(),
        Form::Three | Form::ThreeCommuting | Form::ShiftImm if column == 0 => {
            dst.into_iter().chain(src[1..].iter().copied()).collect()
        }
        Form::Pass if column > 0 => {
            let first = match src[0] {
                Operand::Reg(r) if r.0 >= 16 => src[0],
                _ => dst.expect("a destination"),
            };
            dst.into_iter()
                .chain([first])
                .chain(src.iter().copied())
                .collect()
        }
        Form::Fma | Form::Dot => dst.into_iter().chain(src[..2].iter().copied()).collect(),
        Form::Choose => dst.into_iter().chain([src[2], src[1], src[0]]).collect(),
        _ => dst.into_iter().chain(src.iter().copied()).collect(),
    };
    order
        .into_iter()
        .zip(kinds)
        .map(|(operand, kind)| shown(kind, operand))
        .collect()
}

/// Encode one instruction of a row and find it among the bytes' instructions.
fn check(vector: Vector, column: usize, one: &Ins) {
    let (level, _) = COLUMNS[column];
    let ret = ins(Do::Return, Width::W64, None, &[]);
    let encoded = match encode(&allocated(vec![one.clone(), ret], &[], 0), level) {
        Ok(encoded) => encoded,
        Err(error) => panic!("{error}"),
    };
    let list = decoded(&encoded);
    let own: Vec<&Instruction> = list
        .iter()
        .skip_while(|i| i.mnemonic() == iced_x86::Mnemonic::Push)
        .take_while(|i| {
            !matches!(
                i.mnemonic(),
                iced_x86::Mnemonic::Vzeroupper | iced_x86::Mnemonic::Pop | iced_x86::Mnemonic::Ret
            )
        })
        .collect();
    let last = own.last().expect("an instruction");
    let code = vector.encodings()[column];
    if is_masked(vector, column) {
        // Between moves of masks; the emulator says what it does.
        let here = own.iter().any(|i| i.mnemonic() == code.mnemonic());
        assert!(here || vector.form() == Form::Table, "{one:?}");
        return;
    }
    let mut upper = one.dst.is_some_and(|r| r.0 >= 32);
    one.reads(|r| upper |= r.0 >= 32);
    if column < 3 || upper {
        assert_eq!(last.code(), code, "{one:?}");
    }
    let shown = expected(vector, column, one);
    assert_eq!(last.mnemonic(), code.mnemonic(), "{one:?}");
    assert_eq!(last.op_count() as usize, shown.len(), "{one:?} as {last}");
    for (n, operand) in (0..).zip(shown) {
        assert!(is_shown(last, n, operand), "{one:?} as {last}: {operand:?}");
    }
    let wide = |r: Register| r.is_ymm() || r.is_zmm();
    let ymm = (0..last.op_count()).any(|n| wide(last.op_register(n)));
    let cleared = list
        .iter()
        .any(|i| i.mnemonic() == iced_x86::Mnemonic::Vzeroupper);
    assert_eq!(ymm, cleared, "{one:?}");
}

pub(crate) fn one(vector: Vector, column: usize, bank: u8, memory: Operand) -> Ins {
    let kinds = kinds(vector, column);
    let bank = bank + self::bank(column);
    let stores = matches!(vector.form(), Form::Store | Form::MaskStore);
    let dst = (!stores).then(|| register(kinds[0], bank, 0));
    let mut src = sources(vector, column, bank, memory);
    if vector.form() == Form::Store || vector.form() == Form::MaskStore {
        src[0] = memory;
    }
    if vector == Vector::Load4F && column > 0 {
        src[0] = memory;
    }
    ins(Do::Vector(vector), COLUMNS[column].1, dst, &src)
}

pub(crate) fn for_rows(f: impl Fn(Vector, usize)) {
    let mut rows = 0;
    for &vector in Vector::ALL {
        for column in 0..COLUMNS.len() {
            if vector.encodings()[column] != iced_x86::Code::INVALID {
                f(vector, column);
                rows += 1;
            }
        }
    }
    assert!(rows > 400, "{rows}");
}

/// The shorter encodings are of an extension that few machines with AVX-512 have.
#[test]
fn dot_products_beside_masks_are_avx512s() {
    for_rows(|vector, column| {
        let (level, width) = COLUMNS[column];
        if level != Level::V4 || vector.form() != Form::Dot {
            return;
        }
        let dot = ins(
            Do::Vector(vector),
            width,
            Some(v(1)),
            &[rv(2), rv(3), rv(1)],
        );
        let ret = ins(Do::Return, Width::W64, None, &[]);
        let encoded = encode(&allocated(vec![dot, ret], &[], 0), level).expect("it is encoded");
        let list = decoded(&encoded);
        let code = vector.encodings()[column];
        assert!(list.iter().any(|i| i.code() == code), "{vector:?}");
    });
}

#[test]
fn every_row_reads_back() {
    for_rows(|vector, column| {
        for bank in [0, 1] {
            check(vector, column, &one(vector, column, bank, at(3, 64)));
        }
    });
}

#[test]
fn every_row_takes_memory() {
    let mut memories = vec![];
    for base in [3, 7, 8, 12, 13] {
        for displacement in [0, 1, 127, 128, -128, -129, 1 << 20, i32::MIN] {
            for index in [None, Some((g(6), 1)), Some((g(13), 8)), Some((g(12), 4))] {
                memories.push(Mem {
                    base: g(base),
                    index,
                    displacement,
                });
            }
        }
    }
    for_rows(|vector, column| {
        for (n, memory) in memories.iter().enumerate() {
            let memory = Operand::Mem(*memory);
            let mut one = one(vector, column, (n % 2) as u8, memory);
            let Some(source) = one.memory_source() else {
                return;
            };
            one.src[source] = memory;
            if matches!(vector, Vector::BroadcastSs | Vector::BroadcastSd) {
                // These read memory by a row of their own.
                let other = match vector {
                    Vector::BroadcastSs => Vector::BroadcastSsMem,
                    _ => Vector::BroadcastSdMem,
                };
                check(other, column, &one);
            } else {
                check(vector, column, &one);
            }
        }
    });
}
