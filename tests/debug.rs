//! What `DEBUG` prints: the levels add to each other, all on standard error, and a subscriber of `tracing`
//! hears the same. Flows in: this very test binary, run again as a child that computes one product.

use monoglot::prelude::*;
use std::fmt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[test]
fn a_product() {
    let a = Tensor::arange(0, 12, 1)
        .cast(DType::F32)
        .reshape([3, 4])
        .contiguous();
    let y = a.matmul(&a.permute([1, 0])).exp2();
    assert_eq!(
        y.numel().expect("a shape"),
        y.to_vec::<f32>().expect("it runs").len()
    );
}

/// The line of `a_literal_that_changes` that has the literal.
const LITERAL: u32 = line!() + 9;

#[test]
fn a_literal_that_changes() {
    let table = Tensor::new(&[1f32, 2.0, 3.0], [3, 1]);
    let ids = Tensor::new(&[0i32, 2], [2]);
    for k in [2.5f32, 3.5, 4.5] {
        // What is asserted of the ids stands beside what is wanted.
        let rows = table.embedding(&ids) + 0.125;
        let y = rows * k;
        assert_eq!(y.to_vec::<f32>().expect("it runs"), [1.125 * k, 3.125 * k]);
    }
}

#[test]
fn what_made_a_program_general_is_told_with_its_line() {
    let text = told_by("a_literal_that_changes", 2, "CPU");
    let told = text.lines().filter(|l| l.starts_with("one more program"));
    let told: Vec<&str> = told.collect();
    let want =
        format!("one more program, for all values: 2.5 is 3.5 now at tests/debug.rs:{LITERAL}:");
    assert_eq!(told.len(), 1, "{text}");
    assert!(told[0].starts_with(&want), "{told:?}, not {want}");
}

/// The line of `a_shape_that_grows` that computes.
const GROWN: u32 = line!() + 12;

#[test]
fn a_shape_that_grows() {
    let row = Tensor::new(&[1f32, 2.0], [2]);
    for n in [3usize, 4, 4] {
        let all = vec![0.5f32; 2 * n];
        for x in [
            Tensor::new(&all, [n, 2]),
            Tensor::new(&all, [n, 2]).dynamic(0, 1..=8),
        ] {
            // What is declared is told nothing of.
            let y = (x + &row).sum(0, false);
            assert_eq!(
                y.to_vec::<f32>().expect("it runs"),
                [1.5, 2.5].map(|v| v * n as f32)
            );
        }
    }
}

#[test]
fn a_shape_that_made_it_compile_again_is_told_with_the_remedy() {
    let text = told_by("a_shape_that_grows", 2, "CPU");
    let told: Vec<&str> = text
        .lines()
        .filter(|l| l.starts_with("one more program"))
        .collect();
    assert_eq!(told.len(), 1, "{text}");
    assert!(
        told[0].contains("axis 0 of an input is 4 long and was 3"),
        "{told:?}"
    );
    assert!(
        told[0].contains(&format!("tests/debug.rs:{GROWN}:")),
        "{told:?}"
    );
    assert!(told[0].contains(".dynamic(0, 1..=8)"), "{told:?}");
}

/// The lines of `what_grows_otherwise` that compute.
const OTHERWISE: [u32; 3] = [line!() + 8, line!() + 14, line!() + 17];

#[test]
fn what_grows_otherwise() {
    let table = Tensor::new(&[0.5f32; 64], [32, 2]);
    let row = Tensor::new(&[1f32, 2.0], [1, 2]);
    let mut cache = row.clone();
    for _ in 0..3 {
        cache = Tensor::cat(&[&cache, &row], 0).contiguous();
        cache.realize().expect("it runs");
    }
    for n in [3, 4, 5, 6] {
        let places = Tensor::arange(0, n, 1).sum(0, false);
        places.realize().expect("it runs");
        let y = table.narrow(0, 0, n).softmax(0);
        y.realize().expect("it runs");
    }
    let step = jit(|x: &Tensor| x.cumsum(0)).expect("the device opens");
    for n in [3i64, 4, 5] {
        step.call(Tensor::ones([n, 2])).expect("it runs");
    }
}

#[test]
fn each_remedy_is_told_once() {
    let text = told_by("what_grows_otherwise", 2, "CPU");
    let all = text.lines().filter(|l| l.starts_with("one more program"));
    let told: Vec<&str> = all.collect();
    let want = [
        [
            "axis 0 of an input is 3 long and was 2",
            ".dynamic(0, 1..=4)",
        ],
        [
            "axis 0 of a slice is 4 long and was 3",
            "`Variable` of 1..=8",
        ],
        [
            "axis 0 of an input is 4 long and was 3",
            ".dynamic(0, 1..=8)",
        ],
    ];
    assert_eq!(told.len(), want.len(), "{text}");
    for ((told, want), line) in told.iter().zip(want).zip(OTHERWISE) {
        assert!(want.iter().all(|w| told.contains(w)), "{told}");
        assert!(
            told.contains(&format!("tests/debug.rs:{line}:")),
            "{told}, line {line}"
        );
    }
}

/// The line of `a_captured_function` that captures.
const CAPTURED: u32 = line!() + 5;

#[test]
fn a_captured_function() {
    let state = Tensor::new(&[0f32; 4], [4]);
    let step = jit(|x: &Tensor| {
        state.assign((&state + x).contiguous() * 2.0);
        x.sum(0, false)
    })
    .expect("the device opens");
    for n in [4i64, 4, 4, 1, 1] {
        let x = Tensor::ones([n]).contiguous();
        x.realize().expect("it runs");
        step.call(&x).expect("it runs");
    }
}

#[test]
fn calls_are_told_kernel_by_kernel_and_why_a_function_is_captured_again() {
    let text = told_by("a_captured_function", 2, "CPU");
    let told: Vec<&str> = text.lines().filter(|l| l.starts_with("captured")).collect();
    assert_eq!(told.len(), 1, "{text}");
    assert!(told[0].contains("tensor 0 is f32(1,)"), "{told:?}");
    assert!(
        told[0].contains(&format!("tests/debug.rs:{CAPTURED}:")),
        "{told:?}"
    );
    let kernels = text.lines().filter(|l| l.contains("FLOP/s")).count();
    // Each call launches as many as another one of its kind, and each tensor of ones is one.
    assert!(kernels >= 5 + 5 * 2, "{text}");
}

/// What the child writes at a level.
fn told(level: u8) -> String {
    told_by("a_product", level, "CPU:C")
}

/// What a test of this file writes at a level.
fn told_by(test: &str, level: u8, device: &str) -> String {
    let exe = std::env::current_exe().expect("a test has a binary");
    let mut child = Command::new(exe);
    child
        .args(["--exact", test, "--nocapture"])
        .env("DEBUG", level.to_string())
        .env("DEV", device);
    let out = child.output().expect("it runs");
    assert!(out.status.success());
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// What each level adds.
const MARKS: [&str; 7] = [
    ": C through",
    "GFLOP/s",
    "SPLIT(",
    "(void *const *bufs",
    "SINK[",
    "LINEAR",
    ".text",
];

#[test]
fn each_level_tells_more() {
    let mut before = String::new();
    for level in 0..=7 {
        let text = told(level);
        for (k, mark) in MARKS.iter().enumerate() {
            assert_eq!(
                text.contains(mark),
                k < usize::from(level),
                "DEBUG={level}, {mark}:\n{text}"
            );
        }
        assert!(text.len() >= before.len());
        before = text;
    }
}

/// The interpreter's programs are UOps; those of the other devices are text.
#[cfg(target_arch = "x86_64")]
#[test]
fn machine_code_is_told_with_what_it_is_of() {
    let text = told_by("a_product", 4, "CPU:X86");
    assert!(text.contains("machine code of our own"), "{text}");
    let told = |line: &str| line.contains("    vmul") || line.contains("    mul");
    let beside = |line: &str| line.contains("; %") && line.contains("MUL");
    assert!(text.lines().any(|l| told(l) && beside(l)), "{text}");
}

#[test]
fn choices_are_told_with_what_was_weighed_against_them() {
    let text = told(3);
    let has = |mark: &str| text.lines().any(|l| l.contains(mark));
    assert!(has(" cycles expected, ") && has("% of the limit"), "{text}");
    assert!(has(" cycles; against "), "{text}");
    let told = text.lines().filter(|l| l.starts_with("    "));
    assert!(told.clone().all(|l| l.chars().count() <= 80), "{text}");
    assert!(told.count() > 2, "{text}");
}

#[test]
fn a_launch_is_told_within_a_line() {
    let text = told(2);
    let amount = |line: &str, unit: &str| {
        let word = line.split_whitespace().find_map(|w| w.strip_suffix(unit));
        word.and_then(|n| n.parse::<f64>().ok())
            .unwrap_or_else(|| panic!("no {unit}: {line}"))
    };
    let mut most = (0.0, 0.0);
    for line in text.lines().filter(|l| l.contains("GFLOP/s")) {
        assert!(line.chars().count() <= 80, "{line}");
        assert!(
            amount(line, "us") > 0.0
                && amount(line, "GFLOP/s") >= 0.0
                && amount(line, "GB/s") >= 0.0
        );
        most = (
            amount(line, "FLOP").max(most.0),
            amount(line, "B").max(most.1),
        );
    }
    // 3×3 sums of 4 products each, and exp2; 12 numbers are read and 9 written.
    assert!(most.0 >= 72.0 && most.1 >= 84.0, "{text}");
}

/// Keeps the texts of the events of each level.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<(u64, String)>>>);

#[derive(Default)]
struct Fields(u64, String);

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "level" {
            self.0 = value;
        }
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.1 = format!("{value:?}");
        }
    }
}

impl Subscriber for Heard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "monoglot"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0
            .lock()
            .expect("no test panics with it")
            .push((fields.0, fields.1));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn tracing_hears_the_same() {
    let heard = Heard::default();
    // Of one listener alone `tracing` asks the thread that comes by an event first, which may be another test's.
    let _second = tracing::Dispatch::new(heard.clone());
    tracing::subscriber::with_default(heard.clone(), || {
        let a = Tensor::arange(0, 20, 1)
            .cast(DType::F32)
            .reshape([4, 5])
            .contiguous();
        let y = a
            .to(Device::new("CPU:C"))
            .matmul(&a.permute([1, 0]).to(Device::new("CPU:C")));
        y.realize().expect("it runs");
    });
    let events = heard.0.lock().expect("no test panics with it");
    for (k, mark) in MARKS.iter().enumerate() {
        let said = |(level, text): &(u64, String)| *level == k as u64 + 1 && text.contains(mark);
        assert!(
            events.iter().any(said),
            "level {}, {mark}: {events:#?}",
            k + 1
        );
    }
    for name in ["compiled", "launched"] {
        assert!(events.iter().any(|(_, text)| text == name), "{name}");
    }
}
