//! Saved programs. Flows in: captured functions; flows out: that their programs give in this process, in another
//! one and after another save what the functions give, to the bit; and that a folder which is not as it was
//! written is an error that names the file.

mod damaged;
mod elsewhere;
mod programs;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// A folder of a test's own, which goes when this does.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let name = format!("monoglot-saved-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Place(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

/// Change a manifest, which then has the digest of what it is.
fn resealed(manifest: &Path, change: impl FnOnce(String) -> String) {
    let text = std::fs::read_to_string(manifest).expect("it was saved");
    let text = change(text);
    let at = text.rfind("\"digest\": \"").expect("it has one") + 11;
    let with = |digest: &str| [&text[..at], digest, &text[at + 32..]].concat();
    let zeros = with(&"0".repeat(32));
    let digest = monoglot::compiler::device::Sum::of(zeros.as_bytes()).digest;
    std::fs::write(manifest, with(&format!("{digest:032x}"))).expect("it is ours");
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Held by tests that draw from the stream of random numbers or look at counters, which the process has once.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}
