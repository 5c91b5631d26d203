//! Some texts that are almost valid: none may do anything but give a result or a typed error. Flows in: a
//! seed; flows out: a failed test that shows what the fuzzer says.

use std::process::Command;

#[test]
fn what_is_almost_valid_runs_or_is_refused() {
    let mut texts = Command::new(env!("CARGO_BIN_EXE_monoglot-fuzz"));
    texts.args(["texts", "--count", "500", "--seconds", "60"]);
    let done = texts.output().expect("the fuzzer starts");
    let out = &done.stdout;
    let progress = &done.stderr;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(done.status.success(), "{}{}", said(out), said(progress));
    // Most of them parse, and many go through.
    let last = said(progress)
        .lines()
        .last()
        .unwrap_or_default()
        .to_string();
    let count = |name: &str| {
        let words: Vec<&str> = last.split([' ', ',', ';']).collect();
        let at = words.iter().position(|w| *w == name);
        at.and_then(|at| words[at - 1].parse::<u64>().ok())
    };
    assert!(count("passed").is_some_and(|n| n > 20), "{last}");
    assert!(count("compared").is_some_and(|n| n > 20), "{last}");
    assert!(count("unread").is_some_and(|n| n < 200), "{last}");
}
