//! Small codes, each for one thing. Flows in: the codes below; flows out: what became of them.

use crate::build::{Build, allocated, at};
use monoglot_native::allocate::allocate;
use monoglot_native::check::check;
use monoglot_native::code::*;
use monoglot_native::table::Vector;

const LEVELS: [Level; 2] = [Level::V2, Level::V3];

/// A tile of so many rows and vectors in a loop, its accumulators stored after it.
fn tile(level: Level, rows: usize, columns: usize) -> Code {
    let mut b = Build::new(level);
    let x = b.argument(0);
    let y = b.argument(1);
    let sums: Vec<Reg> = (0..rows * columns).map(|_| b.zero()).collect();
    let i = b.number(0);
    b.code.regs[i.0 as usize].again = None;
    let top = b.open();
    let vectors: Vec<Reg> = (0..columns).map(|c| b.load(y, 32 * c as i32)).collect();
    for row in 0..rows {
        let one = b.load(x, 4 * row as i32);
        for (column, &vector) in vectors.iter().enumerate() {
            let sum = sums[row * columns + column];
            b.fma(sum, one, vector, sum);
        }
    }
    b.general_op(Do::Add, x, x, Operand::Imm(16));
    b.general_op(Do::Add, y, y, Operand::Imm(96));
    b.general_op(Do::Add, i, i, Operand::Imm(1));
    b.next(top, i, Operand::Imm(100));
    for (k, &sum) in sums.iter().enumerate() {
        b.store(y, 32 * k as i32, sum);
    }
    b.end()
}

#[test]
fn a_tile_that_fills_the_registers_needs_no_frame() {
    let after = allocated(&tile(Level::V3, 4, 3), Level::V3);
    assert_eq!(after.slots, 0);
    let mut vectors: Vec<_> = after
        .places
        .iter()
        .filter(|p| matches!(p, Place::Vector(_)))
        .collect();
    vectors.sort_by_key(|p| format!("{p:?}"));
    vectors.dedup();
    assert_eq!(vectors.len(), 16);
}

#[test]
fn tiles_beyond_the_registers_go_to_the_frame_in_part() {
    for rows in 4..14 {
        let code = tile(Level::V3, rows, 3);
        let after = allocated(&code, Level::V3);
        let needed = rows as u32 * 3 + 4;
        // Some more may go: what is reloaded needs a register too, and what was a moment ago keeps its own.
        assert!(after.slots <= needed - 16 + 6, "{rows}: {}", after.slots);
    }
}

#[test]
fn forty_live_vectors_in_a_loop() {
    for level in LEVELS {
        let mut b = Build::new(level);
        let base = b.argument(0);
        let i = b.argument(1);
        let live: Vec<Reg> = (0..40).map(|k| b.load(base, 32 * k)).collect();
        let top = b.open();
        for k in 0..40 {
            b.three(Vector::AddPs, live[k], live[k], live[(k + 7) % 40]);
        }
        b.general_op(Do::Add, i, i, Operand::Imm(1));
        b.next(top, i, Operand::Imm(10));
        for (k, &r) in live.iter().enumerate() {
            b.store(base, 32 * k as i32, r);
        }
        let after = allocated(&b.end(), level);
        assert!((24..=28).contains(&after.slots), "{}", after.slots);
    }
}

#[test]
fn forty_live_general_registers_in_nested_loops() {
    for level in LEVELS {
        let mut b = Build::new(level);
        let base = b.argument(0);
        let live: Vec<Reg> = (0..40)
            .map(|k| {
                let r = b.general();
                b.put(Do::Load64, Width::W64, Some(r), &[at(base, 8 * k)]);
                r
            })
            .collect();
        let tops: Vec<i64> = (0..3).map(|_| b.open()).collect();
        for k in 0..38 {
            let m = Operand::Mem(Mem {
                base: live[k],
                index: Some((live[k + 1], 4)),
                displacement: 8,
            });
            b.put(
                Do::Store64,
                Width::W64,
                None,
                &[m, Operand::Reg(live[k + 2])],
            );
            let src = [live[k], live[k + 1], live[k + 2]].map(Operand::Reg);
            b.put(Do::Select, Width::W64, Some(live[k]), &src);
        }
        for (k, &top) in tops.iter().enumerate().rev() {
            b.next(top, live[k], Operand::Reg(live[k + 3]));
        }
        let after = allocated(&b.end(), level);
        assert!(after.slots >= 29);
    }
}

#[test]
fn moves_to_accumulators_are_no_moves() {
    for level in LEVELS {
        let mut b = Build::new(level);
        let base = b.argument(0);
        let sum = b.zero();
        let top = b.open();
        for k in 0..4 {
            let x = b.load(base, 32 * k);
            let t = b.vector();
            b.three(Vector::SubPs, t, sum, x);
            b.copy(sum, t);
        }
        b.next(top, base, Operand::Imm(10));
        b.store(base, 0, sum);
        let after = allocated(&b.end(), level);
        for ins in after.code.ins.iter().filter(|ins| ins.op == Do::Move) {
            let Operand::Reg(from) = ins.src[0] else {
                panic!("a move from a register");
            };
            let to = ins.dst.expect("a move to one");
            assert_eq!(after.places[from.0 as usize], after.places[to.0 as usize]);
        }
    }
}

#[test]
fn what_is_still_read_is_not_moved_into() {
    for level in LEVELS {
        let mut b = Build::new(level);
        let base = b.argument(0);
        let sum = b.zero();
        let top = b.open();
        let x = b.load(base, 0);
        let t = b.vector();
        b.three(Vector::SubPs, t, sum, x);
        b.store(base, 64, sum);
        b.copy(sum, t);
        let u = b.vector();
        b.three(Vector::SubPs, u, sum, x);
        b.copy(sum, u);
        b.store(base, 96, u);
        b.next(top, base, Operand::Imm(10));
        b.store(base, 0, sum);
        allocated(&b.end(), level);
    }
}

#[test]
fn constants_are_made_again_and_never_stored() {
    for level in LEVELS {
        let mut b = Build::new(level);
        let base = b.argument(0);
        let constants: Vec<Reg> = (0..30).map(|k| b.constant(k)).collect();
        let numbers: Vec<Reg> = (0..20).map(|k| b.number(-k << (2 * k))).collect();
        let x = b.load(base, 0);
        let n = b.general();
        b.put(Do::Load64, Width::W64, Some(n), &[at(base, 8)]);
        let top = b.open();
        for &c in &constants {
            b.three(Vector::AddPs, x, x, c);
            b.three(Vector::SubPs, x, c, x);
            b.store(base, 32, c);
        }
        for &c in &numbers {
            b.general_op(Do::Sub, n, n, Operand::Reg(c));
            b.general_op(Do::Xor, n, c, Operand::Reg(n));
            b.general_op(Do::Div, n, n, Operand::Reg(c));
        }
        b.next(top, n, Operand::Reg(numbers[3]));
        b.store(base, 0, x);
        let after = allocated(&b.end(), level);
        assert_eq!(after.slots, 0);
    }
}

#[test]
fn a_constant_that_is_read_once_is_folded_and_one_that_is_not_is_dropped() {
    for level in LEVELS {
        let mut b = Build::new(level);
        let base = b.argument(0);
        let x = b.load(base, 0);
        let one = b.constant(1);
        let two = b.constant(2);
        b.constant(3);
        let seven = b.number(7);
        let large = b.number(1 << 40);
        let n = b.general();
        b.three(Vector::AddPs, x, one, x);
        b.three(Vector::SubPs, x, two, x);
        b.general_op(Do::Sub, n, base, Operand::Reg(seven));
        b.general_op(Do::Sub, n, n, Operand::Reg(large));
        b.store(n, 0, x);
        let code = b.end();
        let after = allocated(&code, level);
        assert_eq!(after.code.ins.len(), code.ins.len() - 3);
        let folded = |o| after.code.ins.iter().any(|ins| ins.src.get(1) == Some(&o));
        assert!(folded(Operand::Pool(0)));
        assert!(folded(Operand::Imm(7)));
        assert!(!folded(Operand::Imm(1 << 40)));
        assert_eq!(after.places[two.0 as usize], Place::Vector(1));
        assert_eq!(after.places[one.0 as usize], Place::Nowhere);
    }
}

#[test]
fn a_negative_number_of_32_bits_is_no_number_of_64() {
    let mut b = Build::new(Level::V3);
    let base = b.argument(0);
    let n = b.number(-1);
    b.code.ins.last_mut().expect("the number").width = Width::W32;
    let m = b.general();
    b.general_op(Do::And, m, base, Operand::Reg(n));
    b.put(Do::Store64, Width::W64, None, &[at(m, 0), Operand::Reg(m)]);
    let after = allocated(&b.end(), Level::V3);
    let and = after.code.ins.iter().find(|ins| ins.op == Do::And);
    assert_eq!(and.expect("it is there").src[1], Operand::Reg(n));
}

#[test]
fn skips_around_writes() {
    for level in LEVELS {
        let mut b = Build::new(level);
        let base = b.argument(0);
        let live: Vec<Reg> = (0..20).map(|k| b.load(base, 32 * k)).collect();
        let top = b.open();
        let other = b.label();
        let join = b.label();
        b.skip(other, Cond::Less, base, Operand::Imm(3));
        for k in 0..20 {
            b.three(Vector::SubPs, live[k], live[(k + 3) % 20], live[k]);
        }
        b.skip(join, Cond::Equal, base, Operand::Reg(base));
        b.land(other);
        for k in (0..20).rev() {
            b.copy(live[k], live[(k + 5) % 20]);
        }
        b.land(join);
        b.general_op(Do::Add, base, base, Operand::Imm(1));
        b.next(top, base, Operand::Imm(10));
        for (k, &r) in live.iter().enumerate() {
            b.store(base, 32 * k as i32, r);
        }
        allocated(&b.end(), level);
    }
}

#[test]
fn arguments_that_go_to_the_frame_are_stored_after_the_last() {
    let mut b = Build::new(Level::V2);
    let arguments: Vec<Reg> = (0..3).map(|k| b.argument(k)).collect();
    let live: Vec<Reg> = (0..12)
        .map(|k| {
            let r = b.general();
            b.put(Do::Load64, Width::W64, Some(r), &[at(arguments[0], k)]);
            r
        })
        .collect();
    let top = b.open();
    for &r in &live {
        b.general_op(Do::Sub, r, r, Operand::Reg(live[3]));
        b.general_op(Do::Sub, r, r, Operand::Reg(live[4]));
    }
    b.next(top, live[0], Operand::Reg(live[1]));
    for &r in live.iter().chain(&arguments) {
        b.put(
            Do::Store64,
            Width::W64,
            None,
            &[at(arguments[0], 0), Operand::Reg(r)],
        );
    }
    let after = allocated(&b.end(), Level::V2);
    assert!(after.slots > 0);
    for k in 0..3 {
        assert_eq!(after.code.ins[k].op, Do::Argument(k as u8));
    }
}

#[test]
fn a_write_that_nobody_reads_takes_nothing_that_is_in_use() {
    let mut b = Build::new(Level::V3);
    let base = b.argument(0);
    let live: Vec<Reg> = (0..15).map(|k| b.load(base, 32 * k)).collect();
    b.load(base, 0);
    b.load(base, 8);
    for &r in &live {
        b.store(base, 0, r);
    }
    assert_eq!(allocated(&b.end(), Level::V3).slots, 0);
}

#[test]
fn with_sse_a_destination_has_the_first_source_that_dies() {
    let mut b = Build::new(Level::V2);
    let base = b.argument(0);
    let x = b.load(base, 0);
    let y = b.load(base, 16);
    let z = b.vector();
    b.three(Vector::SubPs, z, y, x);
    b.store(base, 0, z);
    let after = allocated(&b.end(), Level::V2);
    assert_eq!(after.places[z.0 as usize], after.places[y.0 as usize]);
}

#[test]
fn the_bank_of_sse_is_one_smaller() {
    let mut b = Build::new(Level::V2);
    let base = b.argument(0);
    let live: Vec<Reg> = (0..16).map(|k| b.load(base, 32 * k)).collect();
    for &r in &live {
        b.store(base, 0, r);
    }
    let code = b.end();
    assert!(allocated(&code, Level::V2).slots > 0);
    assert_eq!(allocated(&code, Level::V3).slots, 0);
    let after = allocate(code.clone(), Level::V3);
    let told = check(&code, &after, Level::V2).expect_err("xmm15 is used");
    assert!(told.contains("Vector(15)"), "{told}");
}
