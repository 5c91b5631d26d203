//! What `DEBUG` prints: the levels add to each other, all on standard error. Flows in: this very test
//! binary, run again as a child that computes one product.

use monoglot::prelude::*;
use std::process::Command;

#[test]
fn a_product() {
    let a = Tensor::arange(0, 12, 1).cast(DType::F32).reshape([3, 4]).contiguous();
    let y = a.matmul(&a.permute([1, 0])).exp2();
    assert_eq!(y.numel().expect("a shape"), y.to_vec::<f32>().expect("it runs").len());
}

/// What the child writes at a level.
fn told(level: u8) -> String {
    let exe = std::env::current_exe().expect("a test has a binary");
    let mut child = Command::new(exe);
    child.args(["--exact", "a_product", "--nocapture"]).env("DEBUG", level.to_string()).env("DEV", "CPU");
    let out = child.output().expect("it runs");
    assert!(out.status.success());
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn each_level_tells_more() {
    let marks = ["CPU: C through", "GFLOP/s", "SPLIT(", "(void *const *bufs", "SINK[", "LINEAR", ".text"];
    let mut before = String::new();
    for level in 0..=7 {
        let text = told(level);
        for (k, mark) in marks.iter().enumerate() {
            assert_eq!(text.contains(mark), k < usize::from(level), "DEBUG={level}, {mark}:\n{text}");
        }
        assert!(text.len() >= before.len());
        before = text;
    }
}
