//! File tests: input, passes and expected output in one file, for the tests of every room.
//!
//! Flows in: a folder of `.txt` files and a function that runs a named pass; flows out: the differences.
//! Invariant: with `UPDATE=1` in the environment the expected parts become what was computed, and
//! nothing else in the files changes.
//!
//! ```text
//! What the file is about, in free words.
//!
//! ==== a sum folds
//! passes: simplify
//! ADD 2 3
//! ----
//! 5
//!
//! ==== a wrong name is an error
//! ADD 2 %7
//! ----
//! error: line 1, column 7: nothing above is named %7
//! ```

use monoglot_uop::text::{parse, print};
use monoglot_uop::{Error, Result, UOp};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Run every case of every `.txt` file below `dir`. `pass` is given the name of a pass and a graph; a
/// case without passes prints what it parsed.
///
/// # Errors
/// Every difference, or what is wrong with a file, as text to be shown.
pub fn run(
    dir: impl AsRef<Path>,
    pass: impl Fn(&str, UOp) -> Result<UOp>,
) -> std::result::Result<(), String> {
    let update = std::env::var_os("UPDATE").is_some_and(|v| v == "1");
    let mut wrong = String::new();
    for path in files(dir.as_ref()).map_err(|e| format!("{}: {e}", dir.as_ref().display()))? {
        let at = path.display();
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{at}: {e}"))?;
        let (new, differences) = check(&text, &pass).map_err(|e| format!("{at}: {e}"))?;
        if update && new != text {
            std::fs::write(&path, new).map_err(|e| format!("{at}: {e}"))?;
        } else if !update && !differences.is_empty() {
            let _ = write!(wrong, "{at}\n{differences}");
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("{wrong}(UPDATE=1 accepts what was computed)"))
    }
}

fn files(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut dirs = vec![dir.to_path_buf()];
    let mut out = Vec::new();
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "txt") {
                out.push(path);
            }
        }
    }
    out.sort();
    Ok(out)
}

/// The file with its expected parts as computed, and the differences.
///
/// # Errors
/// A case without a `----` line.
pub fn check(
    text: &str,
    pass: &dyn Fn(&str, UOp) -> Result<UOp>,
) -> std::result::Result<(String, String), String> {
    let mut parts = text.split("\n==== ");
    let mut new = parts.next().unwrap_or_default().trim_end().to_string();
    let mut differences = String::new();
    for case in parts {
        let (title, body) = case.split_once('\n').unwrap_or((case, ""));
        let Some((input, expected)) = body.split_once("\n----") else {
            return Err(format!("case {title:?} has no line ----"));
        };
        let is = outcome(input, pass);
        let is = is.trim_end();
        let expected = expected.trim();
        let _ = write!(new, "\n\n==== {title}\n{}\n----\n{is}", input.trim_end());
        if is != expected {
            let _ = write!(differences, "  {title}\n{}", difference(expected, is));
        }
    }
    new.push('\n');
    Ok((new, differences))
}

/// What a case gives: a graph's text, or the error.
fn outcome(input: &str, pass: &dyn Fn(&str, UOp) -> Result<UOp>) -> String {
    let (passes, graph) = match input.trim_start().strip_prefix("passes:") {
        Some(rest) => rest.split_once('\n').unwrap_or((rest, "")),
        None => ("", input),
    };
    let done = parse(graph).and_then(|u| {
        passes
            .split_whitespace()
            .try_fold(u, |u, name| pass(name, u))
    });
    match done {
        Ok(u) => print(&u),
        // Without the line of the source, which is no part of what is tested.
        Err(e) => format!("error: {}", Error::new(e.kind().clone())),
    }
}

/// Line by line: `-` what was expected, `+` what came.
fn difference(expected: &str, is: &str) -> String {
    let old: Vec<&str> = expected.lines().collect();
    let new: Vec<&str> = is.lines().collect();
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let after = old[same..]
        .iter()
        .rev()
        .zip(new[same..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let mut out = String::new();
    let mut put = |sign: char, lines: &[&str]| {
        for line in lines {
            let _ = writeln!(out, "    {sign} {line}");
        }
    };
    put(' ', &old[same.saturating_sub(2)..same]);
    put('-', &old[same..old.len() - after]);
    put('+', &new[same..new.len() - after]);
    out
}
