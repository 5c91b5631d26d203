//! Slots of BUFFERs: numbers that no two of them have. Flows in: who asks; flows out: a number, of a block that is
//! one thread's. Invariant: a slot is given out once. The order of slots says nothing.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// A thread takes so many at a time.
const BLOCK: u64 = 256;
static NEXT_BLOCK: AtomicU64 = AtomicU64::new(1);

/// A buffer slot that nothing else has.
pub fn fresh_slot() -> u64 {
    thread_local! {
        /// The slot before the next one.
        static LAST: Cell<u64> = const { Cell::new(BLOCK - 1) };
    }
    let next = LAST.get() + 1;
    let slot = match next % BLOCK {
        0 => NEXT_BLOCK.fetch_add(1, Ordering::Relaxed) * BLOCK,
        _ => next,
    };
    LAST.set(slot);
    slot
}

/// The block that a slot is of.
pub(crate) fn block(slot: u64) -> u32 {
    (slot / BLOCK) as u32
}
