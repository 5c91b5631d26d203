//! Linear programs on the levels of machine code, against the interpreter: those that were wrong once, and random
//! ones. Flows in: programs as texts, seeds; flows out: a failed test that shows the program.

use monoglot_device::open;
use monoglot_fuzz::check::Tally;
use monoglot_fuzz::linear::{Machine, fails, linear, made};
use monoglot_uop::text::parse;
use monoglot_uop::{Device, ErrorKind};

/// The levels that this machine runs.
fn devices() -> Vec<&'static str> {
    let all = ["CPU:X86:x86-64-v3", "CPU:X86:x86-64-v2"];
    let runs = |name: &&str| open(Device::new(name)).is_ok();
    all.into_iter().filter(runs).collect()
}

/// A program gives on every level what it gives on the interpreter.
fn check(text: &str) {
    let linear = parse(text).expect("the text is a program");
    let oracle = Machine::new("INTERP").expect("the interpreter opens");
    for name in devices() {
        let machine = Machine::new(name).expect("it opened before");
        for seed in 0..4 {
            let program = made(linear.clone(), seed);
            let wrong = fails(&oracle, &machine, &program, seed);
            assert_eq!(wrong, None, "{name}\n{}", machine.source(&program));
        }
    }
}

#[test]
fn a_gated_load_of_a_register_may_give_its_alternative() {
    for (register, lanes) in [
        ("(1, 4)", "SHRINK p1 (0i32,) (4i32,)"),
        ("(1,)", "INDEX p1 0i32"),
    ] {
        let one = match register {
            "(1,)" => "c = ADD v2 3i32",
            _ => "c = STACK 3i32 3i32 3i32 3i32",
        };
        check(&format!(
            "LINEAR {{
              b0 = BUFFER[0, i32, REG] {register}
              p1 = PARAM[1, i32, GLOBAL] (4,)
              v2 = PARAM[2, i32] () 0 6
              0i32 1i32 3i32
              z = INDEX b0 0i32
              {one}
              s = STORE z c
              g = CMPLT v2 1
              a = AFTER b0 s
              i = INDEX a v2
              x = LOAD i 0i32 g
              t = {lanes}
              STORE t x
            }}"
        ));
    }
}

#[test]
fn a_register_is_loaded_lane_by_lane() {
    check(
        "LINEAR {
          p0 = PARAM[0, f32, GLOBAL] (8,)
          p1 = PARAM[1, f32, GLOBAL] (8,)
          b2 = BUFFER[2, f32, REG] (1, 8)
          0i32 0.5
          z = INDEX b2 0i32
          c = STACK 0.5 0.5 0.5 0.5 0.5 0.5 0.5 0.5
          s = STORE z c
          a = SHRINK p0 (0i32,) (8i32,)
          x = LOAD a
          g = CMPLT x 0.5
          b = AFTER b2 s
          i = INDEX b 0i32
          y = LOAD i x g
          t = SHRINK p1 (0i32,) (8i32,)
          STORE t y
        }",
    );
}

#[test]
fn stores_past_the_caches_go_anywhere() {
    check(
        "LINEAR {
          p0 = PARAM[0, i32, GLOBAL] (40,)
          p1 = PARAM[1, i32, GLOBAL] (60,)
          v2 = PARAM[2, i32] () 0 6
          6i32 30i32
          a = SHRINK p0 (6i32,) (16i32,)
          x = LOAD a
          b = SHRINK p1 (6i32,) (16i32,)
          s = STORE[GLOBAL] b x
          c = ADD v2 30
          d = SHRINK p1 (c,) (16i32,)
          STORE[GLOBAL] d x
        }",
    );
}

#[test]
fn bools_in_memory_are_0_and_1() {
    check(
        "LINEAR {
          8i32 0i32 4i32 true
          nothing = GROUP
          b0 = BUFFER[0, bool, REG] (8,)
          p1 = PARAM[1, u8, GLOBAL] (8,)
          p2 = PARAM[2, f32, GLOBAL] (4,)
          r0 = RANGE[0, LOOP] 8i32
          i = INDEX b0 r0
          s = STORE i true
          e = END nothing r0
          x = SHRINK p2 (0i32,) (4i32,)
          v = LOAD x
          m = CMPLT v v
          h = AFTER b0 e
          j = SHRINK h (0i32,) (4i32,)
          t = STORE j m
          k = AFTER b0 t
          l = SHRINK k (2i32,) (4i32,)
          n = LOAD l
          o = CAST[u8] n
          q = SHRINK p1 (0i32,) (4i32,)
          STORE q o
          w = INDEX k 6i32
          y = LOAD w
          z = CAST[u8] y
          u = INDEX p1 4i32
          STORE u z
          6i32
        }",
    );
}

#[test]
fn halves_are_masks_of_their_own_width() {
    let half = |name: &&str| {
        let machine = Machine::new(name).expect("it opened before");
        monoglot_fuzz::linear::Rules::of(machine.target()).half
    };
    if devices().iter().any(half) {
        let oracle = Machine::new("INTERP").expect("the interpreter opens");
        let text = "LINEAR {
          p0 = PARAM[0, f16, GLOBAL] (16,)
          p1 = PARAM[1, f32, GLOBAL] (16,)
          0i32 0.5 1.5
          a = SHRINK p0 (0i32,) (16i32,)
          x = LOAD a
          m = CAST[bool] x
          c = STACK 0.5 0.5 0.5 0.5 0.5 0.5 0.5 0.5 0.5 0.5 0.5 0.5 0.5 0.5 0.5 0.5
          y = WHERE m c 1.5
          t = SHRINK p1 (0i32,) (16i32,)
          STORE t y
        }";
        let linear = parse(text).expect("the text is a program");
        for name in devices().into_iter().filter(half) {
            let machine = Machine::new(name).expect("it opened before");
            let program = made(linear.clone(), 1);
            assert_eq!(fails(&oracle, &machine, &program, 1), None, "{name}");
        }
    }
}

#[test]
fn a_loop_begins_where_memory_says() {
    for d in ["i32", "i64"] {
        check(&format!(
            "LINEAR {{
              2{d} 7{d}
              nothing = GROUP
              b0 = BUFFER[0, {d}, LOCAL] (4,)
              p1 = PARAM[1, {d}, GLOBAL] (8,)
              i = INDEX b0 0i32
              s = STORE i 2{d}
              a = AFTER b0 s
              j = INDEX a 0i32
              x = LOAD j
              r0 = RANGE[0, LOOP] 7{d} x
              g = CMPLT r0 7{d}
              k = INDEX p1 r0
              STORE k r0 g
              END nothing r0
            }}"
        ));
    }
}

/// A value that is asked for before a loop that does nothing, and after it.
#[test]
fn values_are_kept_beside_a_loop_that_does_nothing() {
    check(
        "LINEAR {
          0i32 9i32 11i32 false 1i32
          %0 = GROUP
          p0 = PARAM[0, i32, GLOBAL] (42,)
          v4 = PARAM[4, i32] () -5 9
          %1 = INDEX p0 0i32
          %2 = LOAD %1
          %3 = CMPGE v4 %2
          (1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32)
          %4 = INDEX (1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32, 1i32) (15i32, 0i32, 12i32, 9i32, 13i32, 9i32, 1i32, 11i32)
          r0 = RANGE[0, LOOP] v4
          %5 = CAST[i64] r0
          %6 = AFTER p0 r0
          %7 = SHRINK %6 (%5,) (8i32,)
          %8 = AND false %3
          STORE %7 %4 %8
          %10 = END %0 r0
          %11 = AFTER p0 %10
          %12 = INDEX %11 0i32
          STORE %12 9 %3
        }",
    );
}

#[test]
fn what_has_no_registers_is_refused() {
    for text in [
        // Three lanes, and a vector of a register of one scalar.
        "LINEAR {
          p0 = PARAM[0, f32, GLOBAL] (8,)
          0i32
          a = SHRINK p0 (0i32,) (3i32,)
          x = LOAD a
          b = SHRINK p0 (4i32,) (3i32,)
          STORE b x
        }",
        "LINEAR {
          b0 = BUFFER[0, f32, REG] (1,)
          p1 = PARAM[1, f32, GLOBAL] (8,)
          0i32
          a = SHRINK p1 (0i32,) (1i32,)
          x = LOAD a
          b = SHRINK b0 (0i32,) (1i32,)
          STORE b x
        }",
    ] {
        let linear = parse(text).expect("the text is a program");
        for name in devices() {
            let machine = Machine::new(name).expect("it opened before");
            let kernel = machine.compile(&[&made(linear.clone(), 0)]).remove(0);
            let error = kernel.err().expect("there is no code for it");
            let refused = matches!(error.kind(), ErrorKind::Unsupported { .. });
            assert!(refused, "{name}: {error}");
        }
    }
}

#[test]
fn random_programs_give_what_the_interpreter_gives() {
    let mut said = String::new();
    let mut tell = |line: &str| said = line.to_string();
    let mut tally = Tally::new(&mut tell);
    linear(0..2000, &devices(), &mut tally).expect("devices open");
    let failures: Vec<String> = (tally.failures.iter())
        .map(|f| {
            format!(
                "seed {} on {}: {}\n{}",
                f.seed, f.setting, f.message, f.text
            )
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
