//! How much work was done, for tests and for whoever wonders: one set of counts for the process.
//! Flows in: that something was done; flows out: how often so far. Always: a
//! count only grows, but for the bytes that are in use and kept now.

use std::sync::atomic::{AtomicU64, Ordering};

/// Work done since the process began, and storage now.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Programs scheduled: `exact` and `generalised`.
    pub schedules: u64,
    /// Programs made for one function, with its constants and offsets in them.
    pub exact: u64,
    /// Programs made for many functions that differ in constants and offsets.
    pub generalised: u64,
    /// Kernels lowered and compiled.
    pub compiled: u64,
    /// Kernels launched.
    pub launches: u64,
    /// Copies between storages.
    pub copies: u64,
    /// Bytes of host memory that all devices have in use now, and the most that they had.
    pub in_use: u64,
    pub peak: u64,
    /// Bytes of it that were freed and are kept for reuse now.
    pub kept: u64,
}

/// The counts, each by itself: threads that count do not wait for each other.
#[derive(Debug)]
pub(crate) struct Totals {
    pub(crate) exact: AtomicU64,
    pub(crate) generalised: AtomicU64,
    pub(crate) compiled: AtomicU64,
    pub(crate) launches: AtomicU64,
    pub(crate) copies: AtomicU64,
}

static TOTALS: Totals = Totals {
    exact: AtomicU64::new(0),
    generalised: AtomicU64::new(0),
    compiled: AtomicU64::new(0),
    launches: AtomicU64::new(0),
    copies: AtomicU64::new(0),
};

/// The counts now.
pub fn counters() -> Counters {
    let now = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let exact = now(&TOTALS.exact);
    let generalised = now(&TOTALS.generalised);
    let storage = monoglot_device::all_storage();
    Counters {
        schedules: exact + generalised,
        exact,
        generalised,
        compiled: now(&TOTALS.compiled),
        launches: now(&TOTALS.launches),
        copies: now(&TOTALS.copies),
        in_use: storage.in_use as u64,
        peak: storage.peak as u64,
        kept: storage.kept as u64,
    }
}

/// One more of what `of` picks.
pub(crate) fn count(of: impl FnOnce(&Totals) -> &AtomicU64) {
    count_many(of, 1);
}

/// So many more of what `of` picks.
pub(crate) fn count_many(of: impl FnOnce(&Totals) -> &AtomicU64, many: usize) {
    of(&TOTALS).fetch_add(many as u64, Ordering::Relaxed);
}
