//! The walk in ARCHITECTURE.md, printed again and compared: what stands there is what `monoglot show`
//! prints today. Flows in: the page and the binary; flows out: a failed test that shows the first
//! stage that differs. `UPDATE=1 cargo test -p monoglot-cli --test walk` writes the page anew.

use monoglot::{DType, Device, Tensor};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const MARK: &str = "<!-- monoglot show ";

/// The program of the walk, in the text form.
fn program() -> String {
    let cpu = Device::new("CPU");
    let a = Tensor::empty([64, 256], DType::F32, cpu);
    let b = Tensor::empty([256, 256], DType::F32, cpu);
    let graph = a.matmul(&b).softmax(-1).uop().expect("shapes fit");
    graph.to_string()
}

/// What the binary prints for these arguments. The machine is one whose numbers are the same everywhere.
fn show(args: &str) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_monoglot"))
        .args(["show", "-", "--device", "NULL:C:x86-64-v3"])
        .args(args.split_whitespace())
        .env_remove("MONOGLOT_THREADS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = child.stdin.take().expect("it was piped");
    stdin
        .write_all(program().as_bytes())
        .expect("the binary reads its input");
    drop(stdin);
    let out = child.wait_with_output().expect("the binary ends");
    assert!(
        out.status.success(),
        "show {args}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).expect("text")
}

/// The page with every block after a mark replaced by what the mark's command prints.
fn printed_again(page: &str) -> String {
    let mut out = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        out += line;
        out += "\n";
        let Some(args) = line.strip_prefix(MARK).and_then(|l| l.strip_suffix(" -->")) else {
            continue;
        };
        let fence = lines.next().expect("a block follows the mark");
        assert!(fence.starts_with("```"), "no block follows {line}");
        lines.by_ref().take_while(|l| *l != "```").count();
        out += &format!("{fence}\n{}\n```\n", show(args).trim_end());
    }
    out
}

#[test]
fn the_walk_is_what_show_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let page = std::fs::read_to_string(&path).expect("the page is there");
    assert!(page.contains(MARK), "the page has a walk");
    let again = printed_again(&page);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, again).expect("the page can be written");
        return;
    }
    let first = page.lines().zip(again.lines()).position(|(a, b)| a != b);
    assert!(
        page == again,
        "ARCHITECTURE.md, line {}: `monoglot show` prints something else now. Read the walk again, then \
         `UPDATE=1 cargo test -p monoglot-cli --test walk` writes it",
        first.map_or(page.lines().count(), |i| i + 1)
    );
}

#[test]
fn what_is_printed_parses_back() {
    for stage in [
        "tensor",
        "callified",
        "schedule",
        "kernel",
        "optimized",
        "expanded",
        "selected",
        "linear",
    ] {
        let kernel = if stage < "d" || stage == "schedule" || stage == "tensor" {
            ""
        } else {
            "--kernel 0"
        };
        let text = show(&format!("--stage {stage} {kernel}"));
        let parsed = monoglot::compiler::uop::text::parse_many(&text);
        assert!(
            parsed.is_ok(),
            "{stage}: {}",
            parsed.err().map_or(String::new(), |e| e.to_string())
        );
    }
}
