//! Vector instructions, run: what becomes of sources that share registers. Flows in: instructions with registers
//! and values by chance; flows out: what differs from Rust's arithmetic. Always: all other registers keep what
//! they hold.

use crate::machine::*;
use monoglot_native::code::Constant;
use monoglot_native::code::Do;
use monoglot_native::code::Ins;
use monoglot_native::code::Level;
use monoglot_native::code::Operand;
use monoglot_native::code::Width;
use monoglot_native::table::Vector;

type Lanes = [u32; 16];

fn lanes(bytes: &[u8]) -> Lanes {
    std::array::from_fn(|n| {
        u32::from_le_bytes(bytes[n * 4..n * 4 + 4].try_into().expect("4 bytes"))
    })
}

fn floats(lanes: Lanes) -> [f32; 16] {
    lanes.map(f32::from_bits)
}

fn bytes(lanes: Lanes) -> Constant {
    let mut bytes = [0; 64];
    for (to, lane) in bytes.chunks_exact_mut(4).zip(lanes) {
        to.copy_from_slice(&lane.to_le_bytes());
    }
    bytes
}

/// A machine whose vectors hold whole numbers as floats, so that sums and products are exact.
fn whole(chance: &mut Chance) -> Machine {
    let mut machine = chance.machine();
    for vector in &mut machine.vectors {
        let lanes = [(); 16].map(|()| ((chance.next() >> 56) as f32 - 100.0).to_bits());
        *vector = bytes(lanes);
    }
    machine
}

/// Where a source is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Where {
    Register(u8),
    Constant,
    Slot,
    Memory,
    /// An element of memory in every lane.
    Each,
}

/// Run an instruction whose sources are there and say what a lane of dst should be. Lanes from `exact` on are
/// not looked at.
struct Case<'a> {
    level: Level,
    width: Width,
    op: Vector,
    dst: u8,
    sources: &'a [Where],
    number: Option<i64>,
    exact: usize,
    rule: &'a dyn Fn(&[Lanes], usize) -> u32,
}

impl Case<'_> {
    fn check(&self, chance: &mut Chance, machine: &Machine) {
        let other = bytes([(); 16].map(|()| ((chance.next() >> 58) as f32).to_bits()));
        let mut space = [0u8; 192];
        let start = space.as_ptr().align_offset(64);
        space[start + 64..start + 128].copy_from_slice(&other);
        let mut machine = machine.clone();
        machine.general[12] = space[start..].as_ptr() as u64;
        lend(&space);
        let mut body: Vec<Ins> = vec![];
        let mut sources = vec![];
        let mut values = vec![];
        for place in self.sources {
            let (operand, value) = match *place {
                Where::Register(n) => (rv(n), machine.vectors[usize::from(n)]),
                Where::Constant => (Operand::Pool(1), other),
                Where::Memory => (at(12, 64), other),
                Where::Each => {
                    let Operand::Mem(memory) = at(12, 68) else {
                        unreachable!("a place in memory");
                    };
                    let element = bytes([lanes(&other)[1]; 16]);
                    (Operand::Each(memory), element)
                }
                Where::Slot => {
                    let store = Do::Vector(Vector::Store);
                    let slot = [Operand::Slot(1), rv(13)];
                    body.push(ins(store, widest(self.level), None, &slot));
                    (Operand::Slot(1), machine.vectors[13])
                }
            };
            sources.push(operand);
            values.push(lanes(&value));
        }
        sources.extend(self.number.map(Operand::Imm));
        body.push(ins(
            Do::Vector(self.op),
            self.width,
            Some(v(self.dst)),
            &sources,
        ));
        let pool = [[7; 64], other];
        let after = execute(self.level, 8, &body, &pool, 2, &machine);
        let result = lanes(&after.vectors[usize::from(self.dst)]);
        for (n, lane) in result.iter().enumerate().take(self.exact) {
            let expected = (self.rule)(&values, n);
            assert_eq!(*lane, expected, "lane {n}: {:?}", body.last());
        }
        let mut same = after.clone();
        same.vectors[usize::from(self.dst)] = machine.vectors[usize::from(self.dst)];
        // Vectors of 16 bytes leave nothing above them with VEX, but they alone are written.
        assert_eq!(same, machine, "{:?}", body.last());
    }
}

/// The widths of a level, and the lanes of 32 bits in each.
fn widths() -> Vec<(Level, Width, usize)> {
    let mut list = vec![];
    for level in levels() {
        list.push((level, Width::X, 4));
        if level > Level::V2 {
            list.push((level, Width::Y, 8));
        }
        if level > Level::V3 {
            list.push((level, Width::Z, 16));
        }
    }
    list
}

/// Registers of which some need a longer encoding.
fn few(level: Level) -> [u8; 4] {
    match level {
        Level::V4 => [0, 9, 17, 30],
        _ => [0, 5, 9, 14],
    }
}

/// Run for all ways that three registers, the last perhaps in memory, share registers.
fn for_ways(level: Level, f: &mut dyn FnMut(u8, u8, Where)) {
    let few = few(level);
    for dst in few {
        for a in few {
            for b in few {
                f(dst, a, Where::Register(b));
            }
            for b in [Where::Constant, Where::Slot, Where::Memory] {
                f(dst, a, b);
            }
        }
    }
}

#[test]
fn three_operands_however_they_overlap() {
    let mut chance = Chance(31);
    let float = |f: fn(f32, f32) -> f32| {
        move |s: &[Lanes], n: usize| f(floats(s[0])[n], floats(s[1])[n]).to_bits()
    };
    let add = float(|a, b| a + b);
    let sub = float(|a, b| a - b);
    let mul = float(|a, b| a * b);
    let min = float(|a, b| if a < b { a } else { b });
    let less = |s: &[Lanes], n: usize| match floats(s[0])[n] < floats(s[1])[n] {
        true => u32::MAX,
        false => 0,
    };
    let and_not = |s: &[Lanes], n: usize| !s[0][n] & s[1][n];
    let blend = |s: &[Lanes], n: usize| s[usize::from(n == 1 || n == 5)][n];
    let unpack = |s: &[Lanes], n: usize| s[n % 2][n / 4 * 4 + n % 4 / 2];
    type Rule<'a> = &'a dyn Fn(&[Lanes], usize) -> u32;
    let rules: [(Vector, Option<i64>, Rule<'_>); 8] = [
        (Vector::AddPs, None, &add),
        (Vector::SubPs, None, &sub),
        (Vector::MulPs, None, &mul),
        (Vector::MinPs, None, &min),
        (Vector::CmpPs, Some(1), &less),
        (Vector::AndNotPs, None, &and_not),
        (Vector::BlendPs, Some(0x22), &blend),
        (Vector::UnpackLowPs, None, &unpack),
    ];
    for (level, width, exact) in widths() {
        for (op, number, rule) in rules {
            for_ways(level, &mut |dst, a, b| {
                let machine = whole(&mut chance);
                let case = Case {
                    level,
                    width,
                    op,
                    dst,
                    sources: &[Where::Register(a), b],
                    number,
                    exact,
                    rule,
                };
                case.check(&mut chance, &machine);
            });
        }
    }
}

#[test]
fn a_choice_of_lanes_however_they_overlap() {
    let mut chance = Chance(32);
    let rule = |s: &[Lanes], n: usize| if s[0][n] >> 31 == 1 { s[1][n] } else { s[2][n] };
    for (level, width, exact) in widths() {
        for op in [Vector::Choose, Vector::ChoosePs] {
            for mask in few(level) {
                for_ways(level, &mut |dst, b, a| {
                    let mut machine = whole(&mut chance);
                    let lanes = [(); 16].map(|()| chance.of(&[0, u32::MAX]));
                    machine.vectors[usize::from(mask)] = bytes(lanes);
                    let case = Case {
                        level,
                        width,
                        op,
                        dst,
                        sources: &[Where::Register(mask), a, Where::Register(b)],
                        number: None,
                        exact,
                        rule: &rule,
                    };
                    case.check(&mut chance, &machine);
                });
            }
        }
    }
}

#[test]
fn products_and_sums_however_they_overlap() {
    let mut chance = Chance(33);
    let rule = |s: &[Lanes], n: usize| {
        let [a, b, c] = [floats(s[0])[n], floats(s[1])[n], floats(s[2])[n]];
        a.mul_add(b, c).to_bits()
    };
    for (level, width, lanes) in widths() {
        if level == Level::V2 {
            continue;
        }
        for op in [Vector::FmaPs, Vector::FmaSs] {
            if op == Vector::FmaSs && width != Width::X {
                continue;
            }
            let exact = if op == Vector::FmaSs { 1 } else { lanes };
            for third in few(level) {
                for_ways(level, &mut |dst, a, b| {
                    let one = Where::Register(third);
                    let two = Where::Register(a);
                    for sources in [[one, two, b], [one, b, two], [b, one, two]] {
                        let machine = whole(&mut chance);
                        let case = Case {
                            level,
                            width,
                            op,
                            dst,
                            sources: &sources,
                            number: None,
                            exact,
                            rule: &rule,
                        };
                        case.check(&mut chance, &machine);
                    }
                });
            }
        }
    }
}

/// An element of memory in every lane is a source of AVX-512's encodings, whichever registers the others are.
#[test]
fn elements_in_every_lane() {
    let mut chance = Chance(36);
    let fused = |s: &[Lanes], n: usize| {
        let [a, b, c] = [floats(s[0])[n], floats(s[1])[n], floats(s[2])[n]];
        a.mul_add(b, c).to_bits()
    };
    let less = |s: &[Lanes], n: usize| (floats(s[0])[n] - floats(s[1])[n]).to_bits();
    let times = |s: &[Lanes], n: usize| (floats(s[0])[n] * floats(s[1])[n]).to_bits();
    type Rule<'a> = &'a dyn Fn(&[Lanes], usize) -> u32;
    let rules: [(Vector, Rule<'_>); 3] = [
        (Vector::FmaPs, &fused),
        (Vector::SubPs, &less),
        (Vector::MulPs, &times),
    ];
    for (level, width, exact) in widths() {
        if level < Level::V4 {
            continue;
        }
        for (op, rule) in rules {
            for_ways(level, &mut |dst, a, b| {
                let Where::Register(_) = b else {
                    return;
                };
                let all = [Where::Register(a), Where::Each, b];
                let count = if op == Vector::FmaPs { 3 } else { 2 };
                let machine = whole(&mut chance);
                let case = Case {
                    level,
                    width,
                    op,
                    dst,
                    sources: &all[..count],
                    number: None,
                    exact,
                    rule,
                };
                case.check(&mut chance, &machine);
            });
        }
    }
}

#[test]
fn one_operand_from_anywhere() {
    let mut chance = Chance(34);
    let sqrt = |s: &[Lanes], n: usize| floats(s[0])[n].abs().sqrt().to_bits();
    let floor = |s: &[Lanes], n: usize| floats(s[0])[n].floor().to_bits();
    let shifted = |s: &[Lanes], n: usize| s[0][n] << 3;
    let swapped = |s: &[Lanes], n: usize| s[0][n / 4 * 4 + (3 - n % 4)];
    let wide = |s: &[Lanes], n: usize| {
        let double = f64::from(floats(s[0])[n / 2]).to_bits();
        (double >> (n % 2 * 32)) as u32
    };
    type Rule<'a> = &'a dyn Fn(&[Lanes], usize) -> u32;
    // With the number of lanes that are looked at: 0 are all.
    let rules: [(Vector, Option<i64>, usize, Rule<'_>); 8] = [
        (Vector::SqrtPs, None, 0, &sqrt),
        (Vector::SqrtSs, None, 1, &sqrt),
        (Vector::RoundPs, Some(9), 0, &floor),
        (Vector::RoundSs, Some(9), 1, &floor),
        (Vector::ShlDImm, Some(3), 0, &shifted),
        (Vector::ShuffleD, Some(0x1b), 0, &swapped),
        (Vector::CvtSs2Sd, None, 2, &wide),
        (Vector::CvtPs2Pd, None, 0, &wide),
    ];
    for (level, width, lanes) in widths() {
        for (op, number, exact, rule) in rules {
            if exact > 0 && width != Width::X {
                continue;
            }
            for_ways(level, &mut |dst, _, a| {
                let shift = op == Vector::ShlDImm;
                if shift && !matches!(a, Where::Register(_)) {
                    return;
                }
                let mut machine = whole(&mut chance);
                if [Vector::SqrtPs, Vector::SqrtSs].contains(&op) {
                    for byte in machine.vectors.iter_mut().flatten().skip(3).step_by(4) {
                        *byte &= 0x7f;
                    }
                }
                let case = Case {
                    level,
                    width,
                    op,
                    dst,
                    sources: &[a],
                    number,
                    exact: if exact == 0 { lanes } else { exact },
                    rule,
                };
                case.check(&mut chance, &machine);
            });
        }
    }
}

#[test]
fn moves_and_zeros_are_of_whole_registers() {
    let mut chance = Chance(35);
    for (level, width, lanes) in widths() {
        let bytes = lanes * 4;
        for dst in few(level) {
            for a in few(level) {
                let machine = chance.machine();
                let body = [ins(Do::Move, width, Some(v(dst)), &[rv(a)])];
                let after = execute(level, 8, &body, &[], 0, &machine);
                let mut expected = machine.clone();
                expected.vectors[usize::from(dst)][..bytes]
                    .copy_from_slice(&machine.vectors[usize::from(a)][..bytes]);
                let to = usize::from(dst);
                assert_eq!(after.vectors[to][..bytes], expected.vectors[to][..bytes]);
                let body = [ins(Do::Zero, width, Some(v(dst)), &[])];
                let after = execute(level, 8, &body, &[], 0, &machine);
                assert_eq!(after.vectors[to][..bytes], [0; 64][..bytes]);
            }
        }
    }
}

#[test]
fn values_go_between_general_and_vector_registers() {
    let mut chance = Chance(36);
    for level in levels() {
        for _ in 0..200 {
            let machine = chance.machine();
            let general = chance.of(&[3, 6, 7, 9, 12, 15]);
            let to = chance.of(&[3, 6, 7, 9, 12, 15]);
            let vector = chance.of(&few(level));
            let dst = chance.of(&few(level));
            let number = machine.general[usize::from(general)];
            let insert = |op: Vector, k: i64| {
                let sources = [rv(vector), rg(general), Operand::Imm(k)];
                ins(Do::Vector(op), Width::X, Some(v(dst)), &sources)
            };
            let convert = |op: Vector| ins(Do::Vector(op), Width::X, Some(v(dst)), &[rg(general)]);
            let old = machine.vectors[usize::from(vector)];
            let with = |at: usize, bytes: &[u8]| {
                let mut new = old;
                new[at..at + bytes.len()].copy_from_slice(bytes);
                new
            };
            let first = |bytes: &[u8]| {
                let mut new = [0; 64];
                new[..bytes.len()].copy_from_slice(bytes);
                new
            };
            let all = number.to_le_bytes();
            let cases = [
                (insert(Vector::InsertB, 5), with(5, &all[..1]), 16),
                (insert(Vector::InsertW, 3), with(6, &all[..2]), 16),
                (insert(Vector::InsertD, 2), with(8, &all[..4]), 16),
                (insert(Vector::InsertQ, 1), with(8, &all), 16),
                (convert(Vector::MoveGprD), first(&all[..4]), 16),
                (convert(Vector::MoveGprQ), first(&all), 16),
                (
                    convert(Vector::CvtSi32Ss),
                    first(&(number as i32 as f32).to_le_bytes()),
                    4,
                ),
                (
                    convert(Vector::CvtSi64Sd),
                    first(&(number as i64 as f64).to_le_bytes()),
                    8,
                ),
            ];
            for (one, result, exact) in cases {
                let body = [one];
                let after = execute(level, 8, &body, &[], 0, &machine);
                let mut expected = machine.clone();
                let own = usize::from(dst);
                assert_eq!(after.vectors[own][..exact], result[..exact], "{body:?}");
                expected.vectors[own] = after.vectors[own];
                assert_eq!(after, expected, "{body:?}");
            }
            let extract = |op: Vector, k: &[i64]| {
                let mut sources = vec![rv(vector)];
                sources.extend(k.iter().map(|k| Operand::Imm(*k)));
                ins(Do::Vector(op), Width::X, Some(g(to)), &sources)
            };
            let word = |at: usize| u32::from_le_bytes(old[at..at + 4].try_into().expect("4"));
            let long = |at: usize| u64::from_le_bytes(old[at..at + 8].try_into().expect("8"));
            let signs = (0..16).map(|n| u64::from(old[n] >> 7) << n).sum();
            let cases = [
                (extract(Vector::ExtractB, &[7]), u64::from(old[7])),
                (extract(Vector::ExtractW, &[1]), u64::from(word(2) as u16)),
                (extract(Vector::ExtractD, &[3]), u64::from(word(12))),
                (extract(Vector::ExtractQ, &[1]), long(8)),
                (extract(Vector::MoveVecD, &[]), u64::from(word(0))),
                (extract(Vector::MoveVecQ, &[]), long(0)),
                (extract(Vector::MoveMaskB, &[]), signs),
            ];
            for (one, result) in cases {
                let body = [one];
                let after = execute(level, 8, &body, &[], 0, &machine);
                let mut expected = machine.clone();
                expected.general[usize::from(to)] = result;
                assert_eq!(after, expected, "{body:?}");
            }
        }
    }
}

#[test]
fn masks_keep_memory() {
    let mut chance = Chance(37);
    for [mask, dst] in [[3, 3], [3, 9], [12, 1]] {
        for (level, width, count) in widths() {
            if level == Level::V2 {
                continue;
            }
            let mut data = [(); 16].map(|()| chance.next() as u32);
            let mut machine = chance.machine();
            machine.general[13] = data.as_mut_ptr() as u64;
            lend(&data);
            let lanes_of = [(); 16].map(|()| chance.of(&[0, u32::MAX]));
            machine.vectors[usize::from(mask)] = bytes(lanes_of);
            let value = lanes(&machine.vectors[7]);
            let store = Do::Vector(Vector::MaskStore4);
            let load = Do::Vector(Vector::MaskLoad4);
            let body = [
                ins(store, width, None, &[at(13, 0), rv(mask), rv(7)]),
                ins(load, width, Some(v(dst)), &[rv(mask), at(13, 0)]),
            ];
            let old = data;
            let after = execute(level, 8, &body, &[], 0, &machine);
            let new = *std::hint::black_box(&mut data);
            let loaded = lanes(&after.vectors[usize::from(dst)]);
            for n in 0..count {
                let on = lanes_of[n] != 0;
                assert_eq!(new[n], if on { value[n] } else { old[n] });
                assert_eq!(loaded[n], if on { value[n] } else { 0 });
            }
        }
    }
}

#[test]
fn lanes_of_two_by_number_however_they_overlap() {
    let mut chance = Chance(38);
    for (level, width, lanes) in widths().into_iter().filter(|w| w.0 == Level::V4) {
        let rule = |s: &[Lanes], n: usize| {
            let k = s[1][n] as usize % (2 * lanes);
            s[k / lanes * 2][k % lanes]
        };
        for a in few(level) {
            for_ways(level, &mut |dst, order, b| {
                let mut machine = whole(&mut chance);
                for byte in machine.vectors.iter_mut().flatten().step_by(4) {
                    *byte = chance.next() as u8;
                }
                let case = Case {
                    level,
                    width,
                    op: Vector::TableD,
                    dst,
                    sources: &[Where::Register(a), Where::Register(order), b],
                    number: None,
                    exact: lanes,
                    rule: &rule,
                };
                case.check(&mut chance, &machine);
            });
        }
    }
}

#[test]
fn lanes_become_narrower() {
    let mut chance = Chance(39);
    let low = |s: &[u8], from: usize, to: usize, n: usize| s[n / to * from + n % to];
    for (op, from, to) in [
        (Vector::NarrowWB, 2, 1),
        (Vector::NarrowDB, 4, 1),
        (Vector::NarrowQB, 8, 1),
        (Vector::NarrowDW, 4, 2),
        (Vector::NarrowQW, 8, 2),
        (Vector::NarrowQD, 8, 4),
    ] {
        for width in [Width::X, Width::Y, Width::Z] {
            for [dst, a] in [[3, 3], [20, 5], [6, 31]] {
                let machine = chance.machine();
                let body = [ins(Do::Vector(op), width, Some(v(dst)), &[rv(a)])];
                let after = execute(Level::V4, 8, &body, &[], 0, &machine);
                let old = machine.vectors[usize::from(a)];
                let new = after.vectors[usize::from(dst)];
                for (n, byte) in new.iter().enumerate().take(width.bytes() / from * to) {
                    assert_eq!(*byte, low(&old, from, to, n), "{body:?}");
                }
            }
        }
    }
}

#[test]
fn pieces_of_64_bytes_come_and_go() {
    let mut chance = Chance(40);
    for k in 0..4usize {
        for [dst, a, b] in [[3, 3, 4], [20, 5, 20], [6, 31, 7]] {
            let machine = chance.machine();
            let of = |n: u8| machine.vectors[usize::from(n)];
            let half = k / 2 * 32;
            let make = |op: Vector, sources: &[Operand]| {
                let body = [ins(Do::Vector(op), Width::Z, Some(v(dst)), sources)];
                execute(Level::V4, 8, &body, &[], 0, &machine).vectors[usize::from(dst)]
            };
            let number = Operand::Imm(k as i64);
            let high = Operand::Imm(k as i64 / 2);
            let got = make(Vector::Extract128, &[rv(a), number]);
            assert_eq!(got[..16], of(a)[16 * k..16 * k + 16]);
            let got = make(Vector::Extract256, &[rv(a), high]);
            assert_eq!(got[..32], of(a)[half..half + 32]);
            let mut want = of(a);
            want[16 * k..16 * k + 16].copy_from_slice(&of(b)[..16]);
            assert_eq!(make(Vector::Insert128, &[rv(a), rv(b), number]), want);
            let mut want = of(a);
            want[half..half + 32].copy_from_slice(&of(b)[..32]);
            assert_eq!(make(Vector::Insert256, &[rv(a), rv(b), high]), want);
        }
    }
}
