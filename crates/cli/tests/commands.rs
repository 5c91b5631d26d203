//! The command line from outside: what is printed, what fails and how. Flows in: arguments; flows out:
//! text, exit codes.

use std::process::{Command, Output};

fn monoglot(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_monoglot"));
    command
        .args(args.split_whitespace())
        .env_remove("DEV")
        .env_remove("DEBUG");
    command.output().expect("the binary starts")
}

fn stdout(args: &str) -> String {
    let out = monoglot(args);
    assert!(
        out.status.success(),
        "{args}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).expect("text")
}

#[track_caller]
fn fails(args: &str, code: i32, message: &str) {
    let out = monoglot(args);
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{args}: {text}");
    assert!(text.contains(message), "{args}: {text}");
    assert!(
        out.stdout.is_empty(),
        "{args}: an error prints nothing on standard output"
    );
}

#[test]
fn devices_are_listed_within_80_columns() {
    let out = stdout("devices");
    assert!(out.lines().all(|l| l.chars().count() <= 80), "{out}");
    for name in ["CPU", "INTERP", "INTERP:GPU", "NULL", "DISK"] {
        assert!(out.contains(name), "{out}");
    }
    let lines: Vec<serde_json::Value> = stdout("devices --json")
        .lines()
        .map(|l| serde_json::from_str(l).expect("an object a line"))
        .collect();
    assert!(
        lines
            .iter()
            .any(|d| d["name"] == "INTERP" && d["available"] == true)
    );
}

/// The list is there for whoever has mistyped a name, too.
#[test]
fn a_device_that_is_none_is_told_behind_the_others() {
    let on = |name: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_monoglot"));
        let output = command.arg("devices").env("DEV", name).output();
        let output = output.expect("it starts");
        let text = [&output.stdout[..], &output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    let (ok, text) = on("NOPE");
    assert!(!ok && text.contains("INTERP:GPU  "), "{text}");
    assert!(
        text.contains("error: device NOPE: there is no such device"),
        "{text}"
    );
    let (ok, text) = on("INTERP");
    assert!(ok && text.contains("* INTERP "), "{text}");
}

#[test]
fn compile_tells_every_stage() {
    let out = stdout("compile --model minilm --layers 1 --json");
    let record: serde_json::Value = serde_json::from_str(&out).expect("one object");
    assert_eq!(record["model"], "minilm");
    for key in ["total_s", "kernels", "unique_kernels", "uops", "peak_bytes"] {
        assert!(
            record[key].as_f64().is_some_and(|v| v > 0.0),
            "{key}: {record}"
        );
    }
    let stages = record["stages"].as_object().expect("an object");
    let names = [
        "build",
        "gradient",
        "callify",
        "rangeify",
        "memory_plan",
        "optimize",
        "expand",
        "select",
        "linearize",
        "render",
    ];
    assert_eq!(stages.len(), names.len());
    for name in names {
        assert!(stages[name].as_f64().is_some(), "{name}: {record}");
        assert!(
            name == "gradient" || stages[name].as_f64() > Some(0.0),
            "{name}: {record}"
        );
    }
}

#[test]
fn bench_runs_and_counts_kernels() {
    let out = stdout("bench --filter gemm_f32_256 --threads 1 --seconds 0.01 --json");
    let record: serde_json::Value = serde_json::from_str(&out).expect("one object");
    assert_eq!(record["name"], "gemm_f32_256");
    assert_eq!(
        (&record["threads"], &record["kernels"]),
        (&1.into(), &1.into())
    );
    for field in [
        "median_s",
        "realize_s",
        "rate",
        "roofline",
        "share",
        "compile_s",
    ] {
        assert!(record[field].as_f64() > Some(0.0), "{field}: {record}");
    }
    assert_eq!(record["unit"], "GFLOP/s");
    let one = stdout("bench --filter gemm_f32_64 --exact --list");
    assert_eq!(one.trim(), "gemm_f32_64");
    let listed = stdout("bench --list");
    let gemms = ["bf16", "i8"].map(|d| ["1024", "2048", "4096"].map(|n| format!("gemm_{d}_{n}")));
    for name in gemms
        .as_flattened()
        .iter()
        .map(String::as_str)
        .chain(["mnist_train_b512", "roofline_peak_f32"])
    {
        assert!(listed.lines().any(|l| l == name), "{name}");
    }
}

#[test]
fn bench_measures_the_machine() {
    let out = stdout("bench --filter roofline_read_l --seconds 0 --json");
    let records = out.lines().map(serde_json::from_str::<serde_json::Value>);
    let records: Vec<_> = records.map(|r| r.expect("an object")).collect();
    assert_eq!(records.len(), 3);
    for record in &records {
        assert!(record["rate"].as_f64() > Some(0.0), "{record}");
        assert_eq!(
            (&record["unit"], &record["median_s"]),
            (&"GB/s".into(), &serde_json::Value::Null)
        );
    }
}

#[test]
fn a_bench_without_a_limit_has_none() {
    let out = stdout("bench --filter gemm_f32_64x_ --device NULL --seconds 0 --json");
    let record: serde_json::Value = serde_json::from_str(&out).expect("one object");
    assert_eq!(
        (&record["roofline"], &record["share"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
    assert_eq!(record["kernels"], 1);
}

#[test]
fn the_table_of_the_bench_is_for_terminals() {
    let out = stdout("bench --filter _f32_64x --seconds 0");
    assert!(out.lines().all(|l| l.chars().count() <= 80), "{out}");
    assert!(
        out.lines().any(|l| l.starts_with("gemm_f32_64x4096x64 ")),
        "{out}"
    );
}

#[test]
fn what_means_nothing_is_an_error_that_says_so() {
    fails(
        "compile --model nothing",
        2,
        "possible values: convnet, minilm, gpt2, resnet50",
    );
    fails(
        "compile --model convnet --layers 3",
        1,
        "convnet has no number of layers",
    );
    fails(
        "compile --model minilm --device NOWHERE",
        1,
        "there is no such device",
    );
    fails("compile --model minilm --device DISK", 1, "runs no kernels");
    fails("compile --model gpt2 --layers 0", 2, "0 is not in 1..");
    fails(
        "bench --filter chain --seconds nan",
        2,
        "a number of seconds, zero or more",
    );
    fails("bench --threads 0", 2, "0 is not in 1..");
    fails("bench --threads 100000", 1, "this process may run on");
    fails(
        "bench --filter nothing",
        1,
        "no workload's name contains `nothing`",
    );
    fails(
        "bench --filter gemm --exact",
        1,
        "no workload's name is `gemm`",
    );
    fails("show", 1, "FILE in the text form, or --model");
    fails("show /nowhere/file.txt", 1, "/nowhere/file.txt");
    fails(
        "show --model minilm --layers 1 --kernel 999",
        1,
        "there is no kernel 999",
    );
    let bad = std::env::temp_dir().join(format!("monoglot-bad-{}.txt", std::process::id()));
    std::fs::write(&bad, "%0 = NOSUCHOP 1 2\n").expect("a temporary file can be written");
    fails(
        &format!("show {}", bad.display()),
        1,
        "txt: line 1, column 6",
    );
    // What parses is not yet what a stage may have.
    for (text, wanted) in [
        (
            "x = PARAM[0, index, CPU] (4,)\nSINK x\n",
            "the text is no graph of the tensor stage",
        ),
        (
            "SINK[\"k\"]\nb = BINARY[x\"c3\"]\n",
            "machine code never comes",
        ),
        (
            "r = RANGE[0, LOOP] 4\nSINK[\"k\"] r\n",
            "the text is no graph of the kernel stage",
        ),
    ] {
        std::fs::write(&bad, text).expect("a temporary file can be written");
        fails(&format!("show {}", bad.display()), 1, wanted);
    }
    std::fs::remove_file(&bad).expect("the file is ours");
}

#[test]
fn a_training_step_of_the_convnet_is_at_most_60_kernels() {
    let out = stdout("compile --model convnet --json");
    let record: serde_json::Value = serde_json::from_str(&out).expect("one object");
    assert!(
        record["kernels"].as_u64().is_some_and(|n| n <= 60),
        "{record}"
    );
}
