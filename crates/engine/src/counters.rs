//! How much work was done, for tests and for whoever wonders: one set of counts for the process.

use std::sync::Mutex;

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

static COUNTERS: Mutex<Counters> = Mutex::new(Counters {
    schedules: 0,
    compiled: 0,
    launches: 0,
    copies: 0,
});

/// The counts now.
pub fn counters() -> Counters {
    *COUNTERS.lock().unwrap_or_else(|e| e.into_inner())
}

/// One more of what `of` picks.
pub(crate) fn count(of: impl FnOnce(&mut Counters) -> &mut u64) {
    *of(&mut COUNTERS.lock().unwrap_or_else(|e| e.into_inner())) += 1;
}
