//! Small loops whose turns stand between jumps. Flows in: the loops below; flows out: whether they store what they
//! stored, and how often they count.

use super::*;
use crate::code::{Class, Code, Mem, UNMARKED, Width};

/// An instruction of 64 bits on general registers, whose numbers are the machine's.
fn ins(op: Do, dst: Option<u32>, src: &[Operand]) -> Ins {
    Ins {
        op,
        width: Width::W64,
        dst: dst.map(Reg),
        src: src.iter().copied().collect(),
        mark: UNMARKED,
    }
}

fn reg(number: u32) -> Operand {
    Operand::Reg(Reg(number))
}

fn at(base: u32, index: Option<(u32, u8)>, displacement: i32) -> Operand {
    let index = index.map(|(r, scale)| (Reg(r), scale));
    Operand::Mem(Mem {
        base: Reg(base),
        index,
        displacement,
    })
}

fn add(register: u32, step: i64) -> Ins {
    let src = [reg(register), Operand::Imm(step)];
    ins(Do::Add, Some(register), &src)
}

fn store(to: Operand, value: u32) -> Ins {
    ins(Do::Store64, None, &[to, reg(value)])
}

/// A turn in a loop that begins and ends so, whose counter is register 0, and what is stored after it.
fn around(first: i64, end: i64, turn: &[Ins], after: &[u32]) -> Allocated {
    to(first, Operand::Imm(end), turn, after)
}

/// The same where the end is a number, or a register that is none before.
fn to(first: i64, end: Operand, turn: &[Ins], after: &[u32]) -> Allocated {
    let mut all = vec![ins(Do::Immediate, Some(0), &[Operand::Imm(first)])];
    all.push(ins(Do::Immediate, Some(6), &[Operand::Imm(40)]));
    let most = Operand::Imm(MANY);
    all.push(ins(Do::Loop, None, &[Operand::Imm(7), most]));
    all.extend_from_slice(turn);
    let next = [reg(0), end, Operand::Imm(7)];
    all.push(ins(Do::Next, None, &next));
    all.extend(after.iter().map(|r| store(at(8, None, 8), *r)));
    all.push(ins(Do::Return, None, &[]));
    let mut code = Code::default();
    (0..GENERAL).for_each(|_| {
        code.reg(Class::General, 8);
    });
    code.ins = all;
    Allocated {
        code,
        places: (0..GENERAL as u8).map(Place::General).collect(),
        origin: (0..GENERAL as u32).map(Reg).collect(),
        slots: 0,
    }
}

/// What code stores where, in order, where register 5 holds a number.
fn run(code: &Allocated, five: i64) -> Vec<[i64; 2]> {
    let mut registers = [0; GENERAL];
    let place = |r: Reg| general(&code.places, r).expect("a general register");
    registers
        .iter_mut()
        .zip(1i64..)
        .for_each(|(r, k)| *r = k << 20);
    registers[5] = five;
    let mut stored = Vec::new();
    let mut here = 0;
    let find = |op: Do, label: &Operand| {
        let is = |i: &Ins| i.op == op && i.src[0] == *label;
        code.code.ins.iter().position(is).expect("a label")
    };
    loop {
        let ins = &code.code.ins[here];
        let value = |s: &Operand| match *s {
            Operand::Reg(r) => registers[place(r)],
            Operand::Imm(number) => number,
            Operand::Mem(m) => {
                let index = m
                    .index
                    .map_or(0, |(r, scale)| registers[place(r)] * i64::from(scale));
                registers[place(m.base)] + index + i64::from(m.displacement)
            }
            _ => panic!("{s:?} is in no test"),
        };
        let values: Vec<i64> = ins.src.iter().map(value).collect();
        let result = match ins.op {
            Do::Add => values[0] + values[1],
            Do::Store64 => {
                stored.push([values[0], values[1]]);
                0
            }
            Do::Next if values[0] < values[1] => {
                here = find(Do::Loop, &ins.src[2]);
                continue;
            }
            Do::SkipIf(Cond::GreaterEqual) if values[0] >= values[1] => {
                here = find(Do::Land, &ins.src[2]);
                continue;
            }
            Do::Return => return stored,
            _ => values[0],
        };
        if let Some(dst) = ins.dst {
            registers[place(dst)] = result;
        }
        here += 1;
    }
}

/// Turns that differ in what they do to registers, and how often their first one is moved on by four of them.
fn turns() -> Vec<(&'static str, Vec<Ins>, usize)> {
    let count = add(0, 1);
    let plain = store(at(6, None, 16), 8);
    let indexed = store(at(7, Some((6, 4)), 16), 8);
    vec![
        (
            "an address",
            vec![plain.clone(), add(6, 24), count.clone()],
            1,
        ),
        (
            "an index",
            vec![indexed.clone(), plain.clone(), add(6, 24), count.clone()],
            1,
        ),
        (
            "an index and its base",
            vec![indexed, add(7, -8), add(6, 24), count.clone()],
            1,
        ),
        (
            "what is stored too",
            vec![
                store(at(7, None, 0), 6),
                plain.clone(),
                add(6, 24),
                count.clone(),
            ],
            4,
        ),
        (
            "what is moved on before it addresses",
            vec![add(6, 24), plain.clone(), count.clone()],
            4,
        ),
        (
            "what is moved on between",
            vec![plain.clone(), add(6, 24), plain.clone(), count.clone()],
            4,
        ),
        (
            "what is written besides",
            vec![
                plain.clone(),
                add(6, 24),
                ins(Do::Move, Some(6), &[reg(9)]),
                count.clone(),
            ],
            4,
        ),
        (
            "a counter that addresses",
            vec![
                plain.clone(),
                store(at(9, Some((0, 8)), 0), 8),
                add(6, 24),
                count.clone(),
            ],
            1,
        ),
        (
            "a counter that is stored",
            vec![
                plain.clone(),
                store(at(9, None, 0), 0),
                add(6, 24),
                count.clone(),
            ],
            1,
        ),
        (
            "what is of a turn alone",
            vec![
                ins(Do::Move, Some(10), &[reg(6)]),
                add(10, 5),
                store(at(9, None, 0), 10),
                add(6, 24),
                count.clone(),
            ],
            4,
        ),
        ("a counter in twos", vec![plain, add(6, 24), add(0, 2)], 1),
    ]
}

#[test]
fn turns_do_what_they_did() {
    for (what, turn, moves) in turns() {
        let all = (0..40).flat_map(|n| [(0, n), (3, n)]);
        for (first, n) in all.filter(|(_, n)| *n > 0) {
            for (level, after) in [(Level::V3, &[][..]), (Level::V4, &[6, 0])] {
                for end in [Operand::Imm(first + n), reg(5)] {
                    let before = to(first, end, &turn, after);
                    let mut code = before.clone();
                    unroll(&mut code, level);
                    let [before, code] = [before, code].map(|c| run(&c, first + n));
                    assert_eq!(before, code, "{what}: {n} from {first}, {end:?}");
                }
            }
        }
        let mut code = around(0, 64, &turn, &[]);
        unroll(&mut code, Level::V3);
        let moved = code.code.ins.iter().filter(|i| i.dst == Some(Reg(6)));
        let all = moved.filter(|i| i.op == Do::Add).count();
        assert_eq!(all, moves, "{what}");
    }
}

#[test]
fn few_turns_are_no_loop_and_count_nothing() {
    for (what, turn, moves) in turns().into_iter().filter(|(_, _, moves)| *moves == 1) {
        let mut code = around(0, 3, &turn, &[]);
        unroll(&mut code, Level::V3);
        let left = |op: Do| code.code.ins.iter().filter(|i| i.op == op).count();
        assert_eq!(left(Do::Loop) + left(Do::Next), 0, "{what}");
        let of = |r: u32| {
            code.code
                .ins
                .iter()
                .filter(|i| i.dst == Some(Reg(r)))
                .count()
        };
        // What an address begins with is set, but not moved on.
        let is_base = turn.contains(&store(at(6, None, 16), 8));
        assert_eq!(of(6), usize::from(is_base), "{what}: {moves}");
    }
}

#[test]
fn turns_of_which_nobody_knows_how_many_are_done_at_once_too() {
    for (what, turn, moves) in turns() {
        let mut code = to(0, reg(5), &turn, &[]);
        unroll(&mut code, Level::V3);
        let loops = code.code.ins.iter().filter(|i| i.op == Do::Loop).count();
        let is_read = what == "a counter that is stored";
        assert_eq!(loops, if is_read { 1 } else { 2 }, "{what}: {moves}");
    }
}

#[test]
fn an_end_that_a_turn_writes_is_asked_for_in_each() {
    let turn = [
        store(at(6, None, 0), 8),
        ins(Do::Move, Some(5), &[reg(9)]),
        add(0, 1),
    ];
    let before = to(0, reg(5), &turn, &[]);
    let mut after = before.clone();
    unroll(&mut after, Level::V3);
    assert_eq!(before.code.ins, after.code.ins);
}

#[test]
fn what_is_of_a_turn_alone_has_a_name_in_each() {
    let mut turn = vec![ins(Do::Move, Some(10), &[reg(9)])];
    turn.push(store(at(8, None, 0), 10));
    turn.push(ins(Do::Move, Some(11), &[reg(9)]));
    turn.push(add(0, 1));
    // What is read after the loop keeps its name.
    let mut code = around(0, 10, &turn, &[11]);
    unroll(&mut code, Level::V4);
    let written = |number: usize| {
        let here = |r: &Reg| general(&code.places, *r) == Some(number);
        let mut all: Vec<Reg> = code.code.ins.iter().filter_map(|i| i.dst).collect();
        all.retain(here);
        let turns = all.len();
        all.sort_unstable();
        all.dedup();
        (turns, all.len())
    };
    assert_eq!(written(10), (6, 6));
    assert_eq!(written(11), (6, 1));
}

#[test]
fn what_goes_too_far_or_turns_too_seldom_stays() {
    let far = [store(at(6, None, i32::MAX - 100), 8), add(6, 64), add(0, 1)];
    let wide = [store(at(6, None, 0), 8), add(6, 1 << 29), add(0, 1)];
    let stores = |count: usize| -> Vec<Ins> {
        let all = std::iter::repeat_n(store(at(6, None, 0), 8), count);
        all.chain([add(0, 1)]).collect()
    };
    let [middling, long] = [BETWEEN / 2 - 1, BETWEEN].map(stores);
    let unknown = [store(at(6, None, 0), 8), ins(Do::Move, Some(0), &[reg(3)])];
    let again = [ins(Do::Move, Some(0), &[reg(3)]), add(0, 1)];
    for (turn, end) in [
        (&again[..], 64),
        (&far[..], 64),
        (&wide[..], 64),
        (&middling[..], 3),
        (&long[..], 64),
        (&unknown[..], 64),
    ] {
        let before = around(0, end, turn, &[]);
        let mut after = before.clone();
        unroll(&mut after, Level::V3);
        assert_eq!(before.code.ins, after.code.ins);
    }
}

#[test]
fn how_far_rows_of_a_tile_are_apart_is_no_address() {
    let load = [at(9, Some((6, 1)), 0)];
    let turn = [ins(Do::TileLoad, None, &load), add(6, 8), add(0, 1)];
    let mut code = around(0, 64, &turn, &[]);
    unroll(&mut code, Level::V4);
    let moves = code.code.ins.iter().filter(|i| i.dst == Some(Reg(6)));
    assert_eq!(moves.filter(|i| i.op == Do::Add).count(), TURNS as usize);
}

#[test]
fn where_few_turns_are_all_there_can_be_nobody_is_asked() {
    let turn = [store(at(6, None, 0), 8), add(6, 8), add(0, 1)];
    for (most, loops) in [(MANY - 1, 1), (MANY, 2)] {
        let mut code = to(0, reg(5), &turn, &[]);
        let top = code.code.ins.iter_mut().find(|i| i.op == Do::Loop);
        top.expect("a loop").src[1] = Operand::Imm(most);
        unroll(&mut code, Level::V3);
        let all = code.code.ins.iter().filter(|i| i.op == Do::Loop);
        assert_eq!(all.count(), loops, "{most}");
    }
}
