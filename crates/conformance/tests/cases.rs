//! The cases that live in the project, on the evaluator of the tensor graph, and folders that are
//! not of the format. Flows in: `tests/conformance`, and folders that are wrong in one way each;
//! flows out: a failed test for a case that fails, or for an error that does not say what is wrong.

use monoglot_conformance::{Options, run};
use monoglot_tensor::ErrorKind;
use std::path::{Path, PathBuf};

#[test]
fn every_case_passes_on_the_oracle() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance");
    let options = Options {
        oracle: true,
        ..Options::default()
    };
    let mut lines = Vec::new();
    let report =
        run(&folder, &options, &mut |l| lines.push(l.to_string())).expect("the folder is read");
    assert_eq!(report.to_string(), "545 passed, 0 failed", "{lines:#?}");
}

fn folder(name: &str, cases: &str, tensors: &[u8]) -> PathBuf {
    let dir = std::env::temp_dir().join(format!(
        "monoglot-conformance-{}-{name}",
        std::process::id()
    ));
    std::fs::create_dir_all(&dir).expect("a folder in the temporary one");
    std::fs::write(dir.join("cases.json"), cases).expect("written");
    std::fs::write(dir.join("tensors.safetensors"), tensors).expect("written");
    dir
}

/// A safetensors file with one array `t:a` of two f32.
fn one_array() -> Vec<u8> {
    let header = br#"{"t:a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(header);
    out.extend(1f32.to_le_bytes().iter().chain(&2f32.to_le_bytes()));
    out
}

#[test]
fn malformed_folders_are_errors_and_malformed_cases_fail() {
    let quiet = &mut |_: &str| {};
    let options = Options {
        oracle: true,
        ..Options::default()
    };
    let missing = run(Path::new("/no/such/folder"), &options, quiet).expect_err("nothing there");
    assert!(matches!(missing.kind(), ErrorKind::Io { .. }), "{missing}");
    for (name, cases, tensors) in [
        ("json", "[{", one_array()),
        ("object", "{}", one_array()),
        ("fields", r#"[{"name": "t"}]"#, one_array()),
        ("truncated", "[]", one_array()[..20].to_vec()),
        ("empty", "[]", Vec::new()),
    ] {
        let dir = folder(name, cases, &tensors);
        let e = run(&dir, &options, quiet).expect_err(name);
        assert!(matches!(e.kind(), ErrorKind::Format { .. }), "{name}: {e}");
        std::fs::remove_dir_all(&dir).expect("removed");
    }
    let case = |steps: &str| {
        format!(
            r#"[{{"name": "t", "inputs": [{{"name": "a", "grad": false}}], "steps": [{steps}],
                "outputs": ["y"], "rtol": 1e-4, "atol": 1e-5}}]"#
        )
    };
    for (name, steps) in [
        (
            "op",
            r#"{"out": "y", "op": "frobnicate", "in": ["a"], "attrs": {}}"#,
        ),
        (
            "input",
            r#"{"out": "y", "op": "neg", "in": ["b"], "attrs": {}}"#,
        ),
        (
            "attribute",
            r#"{"out": "y", "op": "softmax", "in": ["a"], "attrs": {"dim": "x"}}"#,
        ),
        (
            "expected",
            r#"{"out": "y", "op": "neg", "in": ["a"], "attrs": {}}"#,
        ),
        (
            "shape",
            r#"{"out": "y", "op": "reshape", "in": ["a"], "attrs": {"shape": [3]}}"#,
        ),
        (
            "axis",
            r#"{"out": "y", "op": "sum", "in": ["a"], "attrs": {"dims": [4]}}"#,
        ),
        (
            "count",
            r#"{"out": "y", "op": "matmul", "in": ["a"], "attrs": {}}"#,
        ),
    ] {
        let dir = folder(name, &case(steps), &one_array());
        let report = run(&dir, &options, quiet).expect("a folder of the format");
        assert_eq!((report.passed, report.failed.len()), (0, 1), "{name}");
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
