//! Small numbers for living nodes: no two that live at one time have the same, and they stay as small as
//! there are nodes, so that a table by number is short. Flows in: numbers of nodes that are gone; flows out:
//! numbers. Invariant: a number is given out by one thread at a time; which one a node gets says nothing.

use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// A thread takes and returns so many at a time.
const BATCH: usize = 256;

/// Numbers from here on were never given out.
static FRESH: AtomicU32 = AtomicU32::new(0);
/// Numbers that no thread keeps for itself.
static FREE: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Numbers of one thread; the rest goes back when it ends.
struct Own(Vec<u32>);

thread_local! {
    static OWN: RefCell<Own> = const { RefCell::new(Own(Vec::new())) };
}

impl Drop for Own {
    fn drop(&mut self) {
        free().append(&mut self.0);
    }
}

fn free() -> std::sync::MutexGuard<'static, Vec<u32>> {
    // A list of numbers is whole, whatever panicked.
    FREE.lock().unwrap_or_else(|e| e.into_inner())
}

fn fresh(count: usize) -> u32 {
    let first = FRESH.fetch_add(count as u32, Ordering::Relaxed);
    assert!(
        first < u32::MAX - 2 * BATCH as u32,
        "more nodes than numbers"
    );
    first
}

/// A number for a node.
pub(crate) fn take() -> u32 {
    let own = OWN.try_with(|own| {
        let own = &mut own.borrow_mut().0;
        if own.is_empty() {
            let mut free = free();
            let kept = free.len().saturating_sub(BATCH);
            own.extend(free.drain(kept..));
        }
        if own.is_empty() {
            let first = fresh(BATCH);
            own.extend((first..first + BATCH as u32).rev());
        }
        own.pop()
    });
    // A thread that ends has no list any more.
    own.ok().flatten().unwrap_or_else(|| fresh(1))
}

/// The number of a node that is gone.
pub(crate) fn give(number: u32) {
    let kept = OWN.try_with(|own| {
        let own = &mut own.borrow_mut().0;
        own.push(number);
        if own.len() >= 4 * BATCH {
            let rest = own.split_off(2 * BATCH);
            free().extend(rest);
        }
    });
    if kept.is_err() {
        free().push(number);
    }
}
