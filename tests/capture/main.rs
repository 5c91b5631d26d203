//! Captured functions. Flows in: functions; flows out: that calls of them give what the functions themselves
//! would, whatever is passed and whatever they reach, or an error that says why not.

#[path = "../common/mod.rs"]
mod common;
mod footguns;
mod heard;
mod nested;
mod programs;
mod training;
mod trees;
mod twins;
mod values;

use std::sync::{Mutex, MutexGuard};

/// Held by tests that begin or draw from the stream of random numbers, which the process has one of.
fn stream() -> MutexGuard<'static, ()> {
    static STREAM: Mutex<()> = Mutex::new(());
    STREAM.lock().unwrap_or_else(|e| e.into_inner())
}
