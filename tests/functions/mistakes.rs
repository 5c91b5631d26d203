//! What the compiler says of functions that cannot be marked. Flows in: a text each of what macros and what types
//! refuse, with the message expected behind `//~` on each line; flows out: a failed test where the compiler says
//! something else there, or nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

const OF_MACROS: &str = "
use monoglot::prelude::*;

#[function(again)] //~ or `checkpoint`
fn a(x: &Tensor) -> Tensor { x.clone() }
#[function]
async fn b(x: &Tensor) -> Tensor { x.clone() } //~ it is not `async`
#[function]
fn c(x: &mut Tensor) -> Tensor { x.clone() } //~ changes nothing that it is passed
#[function]
fn d(x: &impl Clone) -> Tensor { Tensor::ones([1]) } //~ have names
#[function]
fn e(x: &Tensor) -> impl Clone { x.clone() } //~ have names
#[function]
fn f(x: &Tensor) { } //~ gives something
#[function]
struct G; //~ marks a function
#[function]
fn h(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, i: u8) -> Tensor { Tensor::ones([1]) } //~ at most 8
struct S;
impl S {
    #[function]
    fn j(&mut self, x: Tensor) -> Tensor { x } //~ takes `self` or `&self`
}
fn main() {}
";

const OF_TYPES: &str = "
use monoglot::prelude::*;

#[function]
fn a(x: &Tensor, rate: f32) -> Tensor { x * rate } //~ `f32` is no tree of tensors
struct Plain;
#[function]
fn b(x: &Tensor, p: &Plain) -> Tensor { x.clone() } //~ `Plain` is no tree of tensors
#[function]
fn c(x: &Tensor) -> Vec<Tensor> { vec![x.clone()] } //~ has no place for an error
#[function]
fn d(x: &Tensor) -> () { } //~ `()` has no place for an error
impl Plain {
    #[function]
    fn e(&self, x: &Tensor) -> Tensor { x.clone() } //~ `Plain` is no tree of tensors
}
fn main() {}
";

/// The library that this test is built with: the newest of its name beside it.
fn library() -> (PathBuf, PathBuf) {
    let exe = std::env::current_exe().expect("a test has a binary");
    let folder = exe.parent().expect("it is in a folder").to_path_buf();
    let mut found = None;
    for entry in std::fs::read_dir(&folder).expect("the folder can be read") {
        let path = entry.expect("it can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("libmonoglot-") && name.ends_with(".rlib") {
            let changed = path.metadata().and_then(|m| m.modified());
            found = found.max(Some((changed.expect("it has a time"), path.clone())));
        }
    }
    (found.expect("it is built before its tests").1, folder)
}

/// What the compiler says of a text, a line each.
fn said(text: &str, name: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(name);
    std::fs::write(&file, text).expect("the folder is the test's");
    let (library, beside) = library();
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let out = Command::new(rustc)
        .args([
            "--edition",
            "2024",
            "--emit",
            "metadata",
            "--error-format",
            "short",
        ])
        .arg("--extern")
        .arg(format!("monoglot={}", library.display()))
        .arg("-L")
        .arg(format!("dependency={}", beside.display()))
        .arg("--out-dir")
        .arg(folder)
        .arg(&file)
        .output()
        .expect("a compiler runs");
    assert!(!out.status.success(), "it compiles");
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[track_caller]
fn refused(text: &str, name: &str) {
    let said = said(text, name);
    for (k, line) in text.lines().enumerate() {
        let here = format!("{name}:{}:", k + 1);
        let mut of_line = said
            .lines()
            .filter(|l| l.contains(&here) && l.contains("error"));
        match line.split_once("//~") {
            Some((_, wanted)) => {
                let found = of_line.any(|l| l.contains(wanted.trim()));
                assert!(found, "line {}: {wanted} is not in\n{said}", k + 1);
            }
            // Where a type is refused, its mark is, too.
            None if line.contains("#[function]") => {}
            None => assert_eq!(of_line.next(), None, "line {}", k + 1),
        }
    }
}

#[test]
fn of_macros() {
    refused(OF_MACROS, "of_macros.rs");
}

#[test]
fn of_types() {
    refused(OF_TYPES, "of_types.rs");
}
