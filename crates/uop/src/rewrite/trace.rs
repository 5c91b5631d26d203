//! Provenance: which rule fired where, on what, in which pass. Off unless a thread records; then
//! one relaxed load a rewrite is all it costs the others. Flows in: each rewrite, as it happens;
//! flows out: the list of them, to whoever recorded.

use crate::node::UOp;
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One rewrite.
#[derive(Clone, Debug)]
pub struct Event {
    /// The set of rules at work.
    pub pass: &'static str,
    /// The rule.
    pub rule: &'static str,
    /// Where it is stated.
    pub file: &'static str,
    /// The line there.
    pub line: u32,
    /// The node before.
    pub before: UOp,
    /// The node after.
    pub after: UOp,
}

static RECORDING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static EVENTS: RefCell<Option<Vec<Event>>> = const { RefCell::new(None) };
}

/// What `f` gives, and every rewrite that it made on this thread.
pub fn record<T>(f: impl FnOnce() -> T) -> (T, Vec<Event>) {
    let before = EVENTS.with(|e| e.replace(Some(Vec::new())));
    RECORDING.fetch_add(1, Ordering::Relaxed);
    let out = f();
    RECORDING.fetch_sub(1, Ordering::Relaxed);
    let events = EVENTS.with(|e| e.replace(before)).unwrap_or_default();
    (out, events)
}

/// `event` gives what to record, if this thread records.
pub(crate) fn fired(event: impl FnOnce() -> Event) {
    if RECORDING.load(Ordering::Relaxed) > 0 {
        EVENTS.with(|events| {
            if let Some(list) = events.borrow_mut().as_mut() {
                list.push(event());
            }
        });
    }
}
