//! Bugs that an allocator could have. Flows in: code that was allocated rightly; flows out: whether the checker sees
//! each bug, planted there. Always: wherever damaged code does something else to memory, the checker must have seen
//! it; where it does the same by chance, it may pass.

use crate::build::{Build, at};
use crate::{random, run};
use monoglot_native::allocate::allocate;
use monoglot_native::check::check;
use monoglot_native::code::*;
use monoglot_native::table::Vector;

/// Runs of each damaged code.
const RUNS: u64 = 6;

/// More than the registers hold of everything: vectors, pointers, constants; in a loop, and on both ways of a skip.
fn code(level: Level) -> Code {
    let mut b = Build::new(level);
    let base = b.argument(0);
    let numbers: Vec<Reg> = (1..6).map(|k| b.number(k << 34)).collect();
    let constants: Vec<Reg> = (1..6).map(|k| b.constant(k)).collect();
    let vectors: Vec<Reg> = (0..20).map(|k| b.load(base, 32 * k)).collect();
    let pointers: Vec<Reg> = (0..14)
        .map(|k| {
            let r = b.general();
            b.put(Do::Load64, Width::W64, Some(r), &[at(base, 8 * k)]);
            r
        })
        .collect();
    let top = b.open();
    let other = b.label();
    for k in 0..20 {
        let c = constants[k % 5];
        b.three(Vector::SubPs, vectors[k], vectors[(k + 7) % 20], c);
        b.three(Vector::SubPs, vectors[k], c, vectors[k]);
    }
    b.skip(other, Cond::Less, base, Operand::Reg(pointers[1]));
    for k in 0..14 {
        let number = Operand::Reg(numbers[k % 5]);
        b.general_op(Do::Sub, pointers[k], pointers[(k + 5) % 14], number);
        b.store(pointers[k], 0, vectors[k]);
    }
    b.land(other);
    let last = b.open();
    for k in 0..14 {
        b.general_op(
            Do::Div,
            pointers[k],
            pointers[k],
            Operand::Reg(numbers[k % 5]),
        );
    }
    b.next(last, pointers[2], Operand::Reg(pointers[3]));
    b.next(top, pointers[4], Operand::Reg(pointers[5]));
    for (k, &r) in vectors.iter().enumerate() {
        b.store(pointers[k % 14], 32 * k as i32, r);
    }
    b.end()
}

/// A bug: plants itself at the k-th place where it can, if there are so many.
type Bug = fn(&mut Allocated, usize) -> Option<()>;

fn reloads(ins: &Ins) -> bool {
    ins.dst.is_some() && matches!(ins.src[..], [Operand::Slot(_)])
}

fn spills(ins: &Ins) -> bool {
    matches!(ins.src[..], [Operand::Slot(_), Operand::Reg(_)]) && ins.dst.is_none()
}

fn nth(after: &Allocated, k: usize, found: impl Fn(&Ins) -> bool) -> Option<usize> {
    let ins = after.code.ins.iter().enumerate();
    ins.filter(|(_, ins)| found(ins)).map(|(at, _)| at).nth(k)
}

fn one_place_for_two(after: &mut Allocated, k: usize) -> Option<()> {
    let place = *after.places.get(k + 1)?;
    let class = |r: usize| after.code.regs[r].class;
    let other = (k + 2..after.places.len()).find(|&r| class(r) == class(k + 1))?;
    if place == Place::Nowhere || after.places[other] == Place::Nowhere {
        return Some(());
    }
    after.places[other] = place;
    Some(())
}

fn sources_change_places(after: &mut Allocated, k: usize) -> Option<()> {
    let at = nth(after, k, |ins| {
        let both = matches!(ins.src[..], [Operand::Reg(_), Operand::Reg(_)]);
        both && matches!(ins.op, Do::Sub | Do::Div | Do::Vector(Vector::SubPs))
    })?;
    after.code.ins[at].src.swap(0, 1);
    Some(())
}

fn no_reload(after: &mut Allocated, k: usize) -> Option<()> {
    let at = nth(after, k, reloads)?;
    after.code.ins.remove(at);
    Some(())
}

fn no_spill(after: &mut Allocated, k: usize) -> Option<()> {
    let at = nth(after, k, spills)?;
    after.code.ins.remove(at);
    Some(())
}

fn another_slot(after: &mut Allocated, k: usize) -> Option<()> {
    let at = nth(after, k, |ins| {
        ins.src.iter().any(|s| matches!(s, Operand::Slot(_)))
    })?;
    for source in &mut after.code.ins[at].src {
        if let Operand::Slot(slot) = source {
            *slot = (*slot + 1) % after.slots;
        }
    }
    Some(())
}

fn one_slot_for_two(after: &mut Allocated, k: usize) -> Option<()> {
    let shared = k as u32 + 1;
    if shared >= after.slots {
        return None;
    }
    for ins in &mut after.code.ins {
        for source in &mut ins.src {
            if *source == Operand::Slot(shared) {
                *source = Operand::Slot(shared - 1);
            }
        }
    }
    Some(())
}

fn another_constant(after: &mut Allocated, k: usize) -> Option<()> {
    let at = nth(after, k, |ins| {
        let pool = ins.src.iter().any(|s| matches!(s, Operand::Pool(_)));
        pool || ins.op == Do::Immediate
    })?;
    for source in &mut after.code.ins[at].src {
        match source {
            Operand::Pool(constant) => *constant = (*constant + 1) % after.code.pool.len() as u32,
            Operand::Imm(number) => *number += 1,
            _ => {}
        }
    }
    Some(())
}

fn another_order(after: &mut Allocated, k: usize) -> Option<()> {
    let ins = &mut after.code.ins;
    if k + 5 >= ins.len() {
        return None;
    }
    // Two memory accesses or control in another order are another code, which is not what is planted here.
    let quiet = |ins: &Ins| ins.dst.is_some() || spills(ins);
    if quiet(&ins[k + 3]) && quiet(&ins[k + 4]) {
        ins.swap(k + 3, k + 4);
    }
    Some(())
}

fn half_a_vector_is_kept(after: &mut Allocated, k: usize) -> Option<()> {
    let at = nth(after, k, |ins| spills(ins) && ins.width == Width::Y)?;
    after.code.ins[at].width = Width::X;
    Some(())
}

fn a_register_that_is_not_given(after: &mut Allocated, k: usize) -> Option<()> {
    let place = after.places.get_mut(k)?;
    *place = match *place {
        Place::General(_) => Place::General([0, 1, 2, 4, 5, 16][k % 6]),
        Place::Vector(_) => Place::Vector(16),
        Place::Nowhere => Place::Nowhere,
    };
    Some(())
}

fn a_reload_ahead_of_its_loop(after: &mut Allocated, k: usize) -> Option<()> {
    let at = nth(after, k, reloads)?;
    let before = &after.code.ins[..at];
    if let Some(top) = before.iter().rposition(|ins| ins.op == Do::Loop) {
        let reload = after.code.ins.remove(at);
        after.code.ins.insert(top, reload);
    }
    Some(())
}

fn a_spill_that_is_skipped(after: &mut Allocated, k: usize) -> Option<()> {
    let at = nth(after, k, spills)?;
    let behind = &after.code.ins[at..];
    let skip = |ins: &Ins| matches!(ins.op, Do::SkipIf(_));
    if let Some(skip) = behind.iter().position(skip) {
        let spill = after.code.ins.remove(at);
        after.code.ins.insert(at + skip, spill);
    }
    Some(())
}

fn another_register_is_read(after: &mut Allocated, k: usize) -> Option<()> {
    let at = nth(after, k, |ins| {
        matches!(ins.src.last(), Some(Operand::Reg(_)))
    })?;
    let Some(Operand::Reg(r)) = after.code.ins[at].src.last_mut() else {
        return None;
    };
    let class = after.code.regs[r.0 as usize].class;
    let count = after.code.regs.len();
    let fits = |n: &usize| {
        after.code.regs[*n].class == class
            && after.places[*n] != Place::Nowhere
            && *n != r.0 as usize
    };
    *r = Reg((r.0 as usize + 1..count).find(fits)? as u32);
    Some(())
}

/// Plants a bug wherever it can be; how many of them the runs show, and how many the checker saw.
fn planted(code: &Code, level: Level, bug: Bug) -> (u32, u32) {
    let right = allocate(code.clone(), level);
    check(code, &right, level).expect("it is right as it is");
    let mut shown = 0;
    let mut seen = 0;
    for k in 0.. {
        let mut after = right.clone();
        if bug(&mut after, k).is_none() {
            break;
        }
        let told = check(code, &after, level);
        let wrong = (0..RUNS).any(|seed| run::before(code, seed) != run::after(&after, seed));
        assert!(!wrong || told.is_err(), "the bug at {k} is not seen");
        shown += u32::from(wrong);
        seen += u32::from(told.is_err());
    }
    (shown, seen)
}

#[test]
fn each_bug_is_seen() {
    let bugs: [(&str, Bug); 12] = [
        ("one place for two", one_place_for_two),
        ("sources change places", sources_change_places),
        ("no reload", no_reload),
        ("no spill", no_spill),
        ("another slot", another_slot),
        ("one slot for two", one_slot_for_two),
        ("another constant", another_constant),
        ("another order", another_order),
        ("half a vector is kept", half_a_vector_is_kept),
        ("a reload ahead of its loop", a_reload_ahead_of_its_loop),
        ("a spill that is skipped", a_spill_that_is_skipped),
        ("another register is read", another_register_is_read),
    ];
    for (name, bug) in bugs {
        for level in [Level::V2, Level::V3] {
            let (shown, seen) = planted(&code(level), level, bug);
            let wide_alone = name == "half a vector is kept" && level == Level::V2;
            assert!(shown > 0 || wide_alone, "{name}: no run shows it");
            assert!(seen >= shown, "{name}");
            for seed in 0..8 {
                planted(&random::code(seed, 120, level), level, bug);
            }
        }
    }
}

#[test]
fn registers_that_are_not_given_are_seen() {
    for level in [Level::V2, Level::V3] {
        let code = code(level);
        let (_, seen) = planted(&code, level, a_register_that_is_not_given);
        let right = allocate(code, level);
        let given = right.places.iter().filter(|p| **p != Place::Nowhere);
        assert_eq!(seen as usize, given.count());
    }
}

#[test]
fn instructions_that_are_left_out_are_seen() {
    for level in [Level::V2, Level::V3] {
        let code = code(level);
        let right = allocate(code.clone(), level);
        for at in 0..right.code.ins.len() {
            let mut after = right.clone();
            let ins = after.code.ins.remove(at);
            let seen = check(&code, &after, level).is_err();
            // What is kept of a value that is written anew before it is read is not missed, nor a constant that is
            // made again and not read.
            let constant = matches!(ins.src.first(), Some(Operand::Pool(_) | Operand::Imm(_)));
            let idle = spills(&ins) || reloads(&ins) || constant && ins.dst.is_some();
            let missed = || (0..RUNS).any(|s| run::before(&code, s) != run::after(&after, s));
            assert!(seen || idle && !missed(), "{at}: {ins:?}");
        }
    }
}

#[test]
fn what_is_not_written_on_every_way_is_not_read() {
    let mut b = Build::new(Level::V3);
    let base = b.argument(0);
    let label = b.label();
    b.skip(label, Cond::Equal, base, Operand::Imm(0));
    let x = b.load(base, 0);
    b.land(label);
    b.store(base, 0, x);
    let code = b.end();
    let after = allocate(code.clone(), Level::V3);
    let told = check(&code, &after, Level::V3).expect_err("one way does not write it");
    assert!(told.contains("does not hold"), "{told}");
}
