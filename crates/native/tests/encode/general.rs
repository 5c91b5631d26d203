//! Instructions on general registers, run. Flows in: instructions with registers, memory and numbers by chance;
//! flows out: what differs from Rust's arithmetic. Always: all other registers keep what they hold.

use crate::machine::*;
use monoglot_native::code::Cond;
use monoglot_native::code::Constant;
use monoglot_native::code::Do;
use monoglot_native::code::Ins;
use monoglot_native::code::Level;
use monoglot_native::code::Mem;
use monoglot_native::code::Operand;
use monoglot_native::code::Width;

pub(crate) const CONDITIONS: [Cond; 10] = [
    Cond::Equal,
    Cond::NotEqual,
    Cond::Less,
    Cond::LessEqual,
    Cond::Greater,
    Cond::GreaterEqual,
    Cond::Below,
    Cond::BelowEqual,
    Cond::Above,
    Cond::AboveEqual,
];

type Unary = fn(u64) -> u64;
type Binary = fn(u64, u64) -> u64;

const WIDTHS: [Width; 2] = [Width::W32, Width::W64];

pub(crate) fn holds(condition: Cond, width: Width, a: u64, b: u64) -> bool {
    let narrow = width == Width::W32;
    let cut = |n: u64| if narrow { u64::from(n as u32) } else { n };
    let signed = |n: u64| {
        if narrow {
            i64::from(n as i32)
        } else {
            n as i64
        }
    };
    match condition {
        Cond::Equal => cut(a) == cut(b),
        Cond::NotEqual => cut(a) != cut(b),
        Cond::Less => signed(a) < signed(b),
        Cond::LessEqual => signed(a) <= signed(b),
        Cond::Greater => signed(a) > signed(b),
        Cond::GreaterEqual => signed(a) >= signed(b),
        Cond::Below => cut(a) < cut(b),
        Cond::BelowEqual => cut(a) <= cut(b),
        Cond::Above => cut(a) > cut(b),
        Cond::AboveEqual => cut(a) >= cut(b),
    }
}

/// A second source, and all that must be so for it: instructions before, a constant.
struct Second {
    operand: Operand,
    value: u64,
    before: Vec<Ins>,
    pool: Vec<Constant>,
    slots: u32,
}

const KINDS: [&str; 5] = ["register", "number", "memory", "constant", "slot"];

/// A source of a kind. `data` is memory of 64 words that registers may point to.
fn second(
    chance: &mut Chance,
    kind: &str,
    free: &[u8],
    machine: &mut Machine,
    data: &mut [u64],
    narrow: bool,
) -> Second {
    let mut second = Second {
        operand: Operand::Imm(0),
        value: chance.number(),
        before: vec![],
        pool: vec![],
        slots: 0,
    };
    match kind {
        "register" => {
            let register = chance.of(free);
            second.value = machine.general[usize::from(register)];
            second.operand = rg(register);
        }
        "number" => {
            let mut number = i64::from(second.value as i32);
            if chance.coin() {
                number = i64::from(number as i8);
            }
            second.value = number as u64;
            second.operand = Operand::Imm(number);
            if narrow && chance.coin() {
                second.operand = Operand::Imm(i64::from(number as u32));
            }
        }
        "memory" => {
            let base = chance.of(free);
            let place = (chance.next() >> 40) % 64;
            data[place as usize] = second.value;
            let mut target = data.as_ptr() as u64 + place * 8;
            let mut index = chance.of(free);
            while index == base {
                index = chance.of(free);
            }
            let scale = chance.of(&[1, 2, 4, 8]);
            let indexed = chance.coin();
            if indexed {
                let count = (chance.next() >> 40) % 1000;
                machine.general[usize::from(index)] = count;
                target = target.wrapping_sub(count * u64::from(scale));
            }
            let displacement = chance.of(&[0, 8, -128, 127, 128, -129, 70_000, -70_000]);
            target = target.wrapping_sub(i64::from(displacement) as u64);
            machine.general[usize::from(base)] = target;
            second.operand = Operand::Mem(Mem {
                base: g(base),
                index: indexed.then_some((g(index), scale)),
                displacement,
            });
        }
        "constant" => {
            let mut constant = [0; 64];
            constant[..8].copy_from_slice(&second.value.to_le_bytes());
            second.pool = vec![[1; 64], constant];
            second.operand = Operand::Pool(1);
        }
        _ => {
            let register = chance.of(free);
            let slot = chance.of(&[0, 1, 2, 3, 4, 5]);
            second.value = machine.general[usize::from(register)];
            second.operand = Operand::Slot(slot);
            second.slots = 6;
            let sources = [Operand::Slot(slot), rg(register)];
            second
                .before
                .push(ins(Do::Store64, Width::W64, None, &sources));
        }
    }
    second
}

/// Run `dst = op(a, second)` and see what becomes of all registers. `rule` says what dst should be.
fn check(
    chance: &mut Chance,
    level: Level,
    op: Do,
    width: Width,
    kind: &str,
    rule: &dyn Fn(u64, u64) -> u64,
) {
    let mut data = vec![0u64; 64];
    let out = chance.of(&GENERAL);
    let free: Vec<u8> = GENERAL.into_iter().filter(|n| *n != out).collect();
    let mut machine = chance.machine();
    let narrow = width == Width::W32;
    let second = second(chance, kind, &free, &mut machine, &mut data, narrow);
    let a = chance.of(&free);
    let mut dst = chance.of(&free);
    if chance.coin() {
        // What overlaps is where the mistakes are.
        dst = match (second.operand, chance.next() % 3) {
            (Operand::Reg(r), 0 | 1) => r.0 as u8,
            (Operand::Mem(m), 0) => m.base.0 as u8,
            (Operand::Mem(Mem { index: Some(i), .. }), 1) => i.0.0 as u8,
            _ => a,
        };
    }
    let mut body = second.before.clone();
    body.push(ins(op, width, Some(g(dst)), &[rg(a), second.operand]));
    lend(&data);
    let after = execute(level, out, &body, &second.pool, second.slots, &machine);
    let value = match second.operand {
        Operand::Reg(r) => machine.general[r.0 as usize],
        _ => second.value,
    };
    let mut expected = machine.clone();
    expected.general[usize::from(dst)] = rule(machine.general[usize::from(a)], value);
    assert_eq!(after, expected, "{level:?} {:?}", body.last());
}

fn cut(width: Width, n: u64) -> u64 {
    if width == Width::W32 {
        u64::from(n as u32)
    } else {
        n
    }
}

#[test]
fn arithmetic_is_rusts() {
    let rules: [(Do, Binary); 6] = [
        (Do::Add, u64::wrapping_add),
        (Do::Sub, u64::wrapping_sub),
        (Do::Mul, u64::wrapping_mul),
        (Do::And, |a, b| a & b),
        (Do::Or, |a, b| a | b),
        (Do::Xor, |a, b| a ^ b),
    ];
    let mut chance = Chance(7);
    for round in 0..1500 {
        let level = Level::V2;
        let (op, rule) = rules[round % rules.len()];
        let width = chance.of(&WIDTHS);
        let kind = chance.of(&KINDS);
        check(&mut chance, level, op, width, kind, &|a, b| {
            cut(width, rule(a, b))
        });
    }
}

#[test]
fn comparisons_are_rusts() {
    let mut chance = Chance(8);
    for round in 0..2000 {
        let condition = CONDITIONS[round % 10];
        let width = chance.of(&WIDTHS);
        let kind = chance.of(&KINDS);
        let op = Do::Compare(condition);
        check(&mut chance, Level::V2, op, width, kind, &|a, b| {
            u64::from(holds(condition, width, a, b))
        });
    }
}

#[test]
fn shifts_are_rusts() {
    let mut chance = Chance(9);
    for level in levels() {
        for _ in 0..1000 {
            let op = chance.of(&[Do::Shl, Do::Shr, Do::Sar]);
            let width = chance.of(&WIDTHS);
            let kind = chance.of(&["register", "number"]);
            check(
                &mut chance,
                level,
                op,
                width,
                kind,
                &|a, b| match (op, width) {
                    (Do::Shl, Width::W32) => u64::from((a as u32).wrapping_shl(b as u32)),
                    (Do::Shr, Width::W32) => u64::from((a as u32).wrapping_shr(b as u32)),
                    (_, Width::W32) => u64::from((a as i32).wrapping_shr(b as u32) as u32),
                    (Do::Shl, _) => a.wrapping_shl(b as u32),
                    (Do::Shr, _) => a.wrapping_shr(b as u32),
                    _ => (a as i64).wrapping_shr(b as u32) as u64,
                },
            );
        }
    }
}

#[test]
fn quotients_are_rusts() {
    let mut chance = Chance(10);
    for _ in 0..1000 {
        let op = chance.of(&[Do::Div, Do::Rem, Do::DivU, Do::RemU]);
        let width = chance.of(&WIDTHS);
        let out = 9;
        let free = [3, 6, 12, 15];
        let [dst, a, b] = [(); 3].map(|()| chance.of(&free));
        let mut machine = chance.machine();
        let divisor = &mut machine.general[usize::from(b)];
        // 0, and the least number by −1, stop the machine.
        if cut(width, *divisor).wrapping_add(1) <= 1 || *divisor as u32 == u32::MAX {
            *divisor = 3;
        }
        let a_value = machine.general[usize::from(a)];
        let b_value = machine.general[usize::from(b)];
        let body = [ins(op, width, Some(g(dst)), &[rg(a), rg(b)])];
        let after = execute(Level::V2, out, &body, &[], 0, &machine);
        let result = match (op, width) {
            (Do::Div, Width::W32) => (a_value as i32 / b_value as i32) as u32 as u64,
            (Do::Rem, Width::W32) => (a_value as i32 % b_value as i32) as u32 as u64,
            (Do::DivU, Width::W32) => u64::from(a_value as u32 / b_value as u32),
            (Do::RemU, Width::W32) => u64::from(a_value as u32 % b_value as u32),
            (Do::Div, _) => (a_value as i64 / b_value as i64) as u64,
            (Do::Rem, _) => (a_value as i64 % b_value as i64) as u64,
            (Do::DivU, _) => a_value / b_value,
            _ => a_value % b_value,
        };
        let mut expected = machine.clone();
        expected.general[usize::from(dst)] = result;
        assert_eq!(after, expected, "{body:?}");
    }
}

#[test]
fn one_source_is_rusts() {
    let mut chance = Chance(11);
    for _ in 0..600 {
        let [dst, a] = [(); 2].map(|()| chance.of(&[3, 6, 7, 12, 15]));
        let machine = chance.machine();
        let value = machine.general[usize::from(a)];
        let width = chance.of(&WIDTHS);
        let numbers = [
            0,
            1,
            -1,
            1 << 31,
            (1 << 32) - 1,
            1 << 32,
            -(1 << 31),
            i64::MIN,
        ];
        let number = chance.of(&numbers);
        let cases: [(Do, Operand, u64); 12] = [
            (Do::Neg, rg(a), cut(width, value.wrapping_neg())),
            (Do::Not, rg(a), cut(width, !value)),
            (Do::Move, rg(a), value),
            (Do::Immediate, Operand::Imm(number), number as u64),
            (Do::Load8U, rg(a), u64::from(value as u8)),
            (Do::Load8S, rg(a), u64::from(value as i8 as u32)),
            (Do::Load16U, rg(a), u64::from(value as u16)),
            (Do::Load16S, rg(a), u64::from(value as i16 as u32)),
            (Do::Load32, rg(a), u64::from(value as u32)),
            (Do::Load64, rg(a), value),
            (Do::Extend32, rg(a), value as i32 as u64),
            (Do::Address, at(a, -77), value.wrapping_sub(77)),
        ];
        let (op, source, result) = chance.of(&cases);
        let body = [ins(op, width, Some(g(dst)), &[source])];
        let after = execute(Level::V2, 10, &body, &[], 0, &machine);
        let mut expected = machine.clone();
        expected.general[usize::from(dst)] = result;
        assert_eq!(after, expected, "{body:?}");
    }
}

#[test]
fn addresses_are_sums() {
    let mut chance = Chance(12);
    for _ in 0..300 {
        let [dst, base, index] = [(); 3].map(|()| chance.of(&[3, 7, 12, 13, 14]));
        let scale = chance.of(&[1, 2, 4, 8]);
        let displacement = chance.of(&[0, 5, -200, i32::MAX, i32::MIN]);
        let machine = chance.machine();
        let source = Operand::Mem(Mem {
            base: g(base),
            index: Some((g(index), scale)),
            displacement,
        });
        let body = [ins(Do::Address, Width::W64, Some(g(dst)), &[source])];
        let after = execute(Level::V2, 10, &body, &[], 0, &machine);
        let part = machine.general[usize::from(index)].wrapping_mul(u64::from(scale));
        let sum = machine.general[usize::from(base)].wrapping_add(part);
        let mut expected = machine.clone();
        expected.general[usize::from(dst)] = sum.wrapping_add(i64::from(displacement) as u64);
        assert_eq!(after, expected, "{body:?}");
    }
}

#[test]
fn a_choice_is_by_what_is_not_zero() {
    let mut chance = Chance(13);
    for _ in 0..800 {
        let free = [3, 6, 7, 12];
        let [dst, a, b, c] = [(); 4].map(|()| chance.of(&free));
        let mut machine = chance.machine();
        if chance.coin() {
            machine.general[usize::from(a)] = 0;
        }
        let width = chance.of(&WIDTHS);
        let sources = [rg(a), rg(b), rg(c)];
        let body = [ins(Do::Select, width, Some(g(dst)), &sources)];
        let after = execute(Level::V2, 8, &body, &[], 0, &machine);
        let taken = match cut(width, machine.general[usize::from(a)]) {
            0 => c,
            _ => b,
        };
        let mut expected = machine.clone();
        expected.general[usize::from(dst)] = machine.general[usize::from(taken)];
        assert_eq!(after, expected, "{body:?}");
    }
}

/// A comparison that nothing reads but the choice behind it leaves flags alone, and no result.
#[test]
fn a_choice_takes_the_flags_of_the_comparison_before_it() {
    let mut chance = Chance(15);
    for round in 0..4000 {
        let condition = CONDITIONS[round % CONDITIONS.len()];
        let free = [3, 6, 7, 12, 13];
        let [dst, a, b, c, d] = [(); 5].map(|()| chance.of(&free));
        let mut machine = chance.machine();
        if chance.coin() {
            machine.general[usize::from(b)] = machine.general[usize::from(a)];
        }
        let width = chance.of(&WIDTHS);
        let number = chance.of(&[0, 1, -1, 77, 1 << 20]);
        let with_number = chance.coin();
        let second = if with_number {
            Operand::Imm(number)
        } else {
            rg(b)
        };
        let compared = ins(Do::Compare(condition), width, Some(NAMED), &[rg(a), second]);
        let choice = [Operand::Reg(NAMED), rg(c), rg(d)];
        let choice = ins(Do::Select, Width::W64, Some(g(dst)), &choice);
        let general = |r: u8| machine.general[usize::from(r)];
        let other = if with_number {
            number as u64
        } else {
            general(b)
        };
        let is = holds(condition, width, general(a), other);
        let mut expected = machine.clone();
        expected.general[usize::from(dst)] = general(if is { c } else { d });
        let mut body = vec![compared, choice];
        // What is read once more is there.
        if chance.coin() {
            body.push(ins(
                Do::Move,
                Width::W64,
                Some(g(15)),
                &[Operand::Reg(NAMED)],
            ));
            expected.general[15] = u64::from(is);
            expected.general[usize::from(OTHER)] = u64::from(is);
        }
        let after = execute(Level::V2, 10, &body, &[], 0, &machine);
        assert_eq!(after, expected, "{body:?}");
    }
}

#[test]
fn loads_and_stores_are_of_their_widths() {
    let mut chance = Chance(14);
    let loads: [(Do, Unary); 7] = [
        (Do::Load8U, |n| u64::from(n as u8)),
        (Do::Load8S, |n| u64::from(n as i8 as u32)),
        (Do::Load16U, |n| u64::from(n as u16)),
        (Do::Load16S, |n| u64::from(n as i16 as u32)),
        (Do::Load32, |n| u64::from(n as u32)),
        (Do::Load64, |n| n),
        (Do::Extend32, |n| n as i32 as u64),
    ];
    let stores = [
        (Do::Store8, 0xff),
        (Do::Store16, 0xffff),
        (Do::Store32, 0xffff_ffff),
        (Do::Store64, u64::MAX),
    ];
    for _ in 0..800 {
        let mut data = [chance.next(), chance.next(), chance.next()];
        let [dst, base, value] = [(); 3].map(|()| chance.of(&GENERAL[..10]));
        let mut machine = chance.machine();
        machine.general[usize::from(base)] = data.as_ptr() as u64;
        let (op, rule) = chance.of(&loads);
        let body = [ins(op, Width::W32, Some(g(dst)), &[at(base, 8)])];
        lend(&data);
        let after = execute(Level::V2, 15, &body, &[], 0, &machine);
        let mut expected = machine.clone();
        expected.general[usize::from(dst)] = rule(data[1]);
        assert_eq!(after, expected, "{body:?}");
        let (op, mask) = chance.of(&stores);
        let number = i64::from(chance.number() as i32);
        let (source, stored) = match chance.next() % 4 {
            0 => (Operand::Imm(number), number as u64),
            _ => (rg(value), machine.general[usize::from(value)]),
        };
        let body = [ins(op, Width::W64, None, &[at(base, 8), source])];
        let old = data;
        lend(&data);
        let after = execute(Level::V2, 15, &body, &[], 0, &machine);
        assert_eq!(after, machine, "{body:?}");
        // What the machine wrote, Rust does not know of.
        let new = std::hint::black_box(&mut data);
        let expected = [old[0], (old[1] & !mask) | (stored & mask), old[2]];
        assert_eq!(*new, expected, "{body:?}");
    }
}

#[test]
fn what_is_done_at_once_is_done_once() {
    let mut chance = Chance(29);
    for k in 0..400u64 {
        let mut data = [chance.next(), chance.next(), chance.next()];
        let old = data;
        let [dst, base, value, before] = [(); 4].map(|()| chance.of(&GENERAL[..10]));
        if [value, before].contains(&base) {
            continue;
        }
        let wide = k % 2 == 0;
        let (width, mask) = match wide {
            true => (Width::W64, u64::MAX),
            false => (Width::W32, 0xffff_ffff),
        };
        let mut machine = chance.machine();
        machine.general[usize::from(base)] = data.as_ptr() as u64;
        let added = machine.general[usize::from(value)];
        let body = [ins(Do::AddAtomic, width, None, &[at(base, 8), rg(value)])];
        lend(&data);
        let after = execute(Level::V2, 15, &body, &[], 0, &machine);
        assert_eq!(after, machine, "{body:?}");
        let new = std::hint::black_box(&mut data);
        let sum = old[1].wrapping_add(added) & mask;
        assert_eq!(*new, [old[0], old[1] & !mask | sum, old[2]], "{body:?}");
        // What was expected there, or something else.
        let there = new[1];
        let expected = chance.coin();
        machine.general[usize::from(before)] = match expected {
            true => there,
            false => !there,
        };
        let source = machine.general[usize::from(value)];
        let sources = [at(base, 8), rg(before), rg(value)];
        let body = [ins(Do::Exchange, width, Some(g(dst)), &sources)];
        lend(&data);
        let after = execute(Level::V2, 15, &body, &[], 0, &machine);
        let mut changed = machine.clone();
        changed.general[usize::from(dst)] = u64::from(expected);
        assert_eq!(after, changed, "{body:?}");
        let new = std::hint::black_box(&mut data);
        let stored = match expected {
            true => there & !mask | source & mask,
            false => there,
        };
        assert_eq!(*new, [old[0], stored, old[2]], "{body:?}");
    }
}
