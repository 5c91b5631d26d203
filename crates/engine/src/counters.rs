//! How much work was done, for tests and for whoever wonders: one set of counts for the process.

use std::sync::atomic::{AtomicU64, Ordering};

/// Work done since the process began.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Structures scheduled.
    pub schedules: u64,
    /// Kernels lowered and compiled.
    pub compiled: u64,
    /// Kernels launched.
    pub launches: u64,
    /// Copies between storages.
    pub copies: u64,
}

pub(crate) static SCHEDULES: AtomicU64 = AtomicU64::new(0);
pub(crate) static COMPILED: AtomicU64 = AtomicU64::new(0);
pub(crate) static LAUNCHES: AtomicU64 = AtomicU64::new(0);
pub(crate) static COPIES: AtomicU64 = AtomicU64::new(0);

/// The counts now.
pub fn counters() -> Counters {
    let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
    Counters {
        schedules: get(&SCHEDULES),
        compiled: get(&COMPILED),
        launches: get(&LAUNCHES),
        copies: get(&COPIES),
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
