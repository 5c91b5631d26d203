//! How many threads of a machine a job gets. Flows in: who asks, and for how many; flows out: a share, which
//! ends with the job. Invariant: whoever asks may work himself, and gets no helper beyond the threads that
//! are left once everybody who works, or asked of late, has one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

/// What the pools of one machine share: how many threads work on jobs of any of them now, and which have
/// asked for helpers of late. Where each thread has a request of its own, helpers would only stand in the
/// way of the others' next jobs.
#[derive(Debug)]
pub struct Budget {
    working: AtomicUsize,
    /// When threads asked last, in microseconds, by the thread's number; 0: never.
    asked: [AtomicU64; CALLERS],
}

/// Threads that are told apart.
const CALLERS: usize = 64;
/// Who asked within so many microseconds will ask again.
pub(super) const LATELY: u64 = 2000;
/// When one asked is written down anew once it is so many microseconds old. All callers read the words of all:
/// written at every job, they would go from core to core.
pub(super) const STALE: u64 = LATELY / 8;

/// Numbers of threads that were given out.
static NUMBERS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static NUMBER: usize = NUMBERS.fetch_add(1, Ordering::Relaxed);
}

/// Some of the threads that work, until it is dropped.
pub(super) struct Share<'a> {
    budget: &'a Budget,
    threads: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            working: AtomicUsize::new(0),
            asked: [const { AtomicU64::new(0) }; CALLERS],
        }
    }
}

impl Budget {
    /// That of this machine.
    pub fn machine() -> Arc<Budget> {
        static MACHINE: LazyLock<Arc<Budget>> = LazyLock::new(Arc::default);
        MACHINE.clone()
    }

    /// The caller's own share, and as many helpers, at most `wanted`, as are left of `threads`.
    pub(super) fn take(&self, threads: usize, wanted: usize) -> Share<'_> {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        let now = BEGAN.elapsed().as_micros() as u64 + 1;
        let callers = self.callers(NUMBER.with(|n| *n), now);
        let with = |working: usize| {
            let taken = (working + 1).max(callers);
            1 + wanted.min(threads.saturating_sub(taken))
        };
        let more = |working: usize| Some(working + with(working));
        let before = self
            .working
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        Share {
            budget: self,
            threads: before.map_or(1, with),
        }
    }

    /// How many threads have asked of late, with this one, which asks now.
    pub(super) fn callers(&self, number: usize, now: u64) -> usize {
        let own = &self.asked[number % CALLERS];
        let last = own.load(Ordering::Relaxed);
        if last == 0 || last + STALE <= now {
            own.store(now, Ordering::Relaxed);
        }
        let lately = |at: &&AtomicU64| {
            let at = at.load(Ordering::Relaxed);
            at > 0 && now.saturating_sub(at) < LATELY
        };
        let known = NUMBERS.load(Ordering::Relaxed).max(number + 1);
        let known = &self.asked[..known.min(CALLERS)];
        known.iter().filter(lately).count().max(1)
    }
}

impl Share<'_> {
    /// Threads beside the caller's.
    pub(super) fn helpers(&self) -> usize {
        self.threads - 1
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let working = &self.budget.working;
        working.fetch_sub(self.threads, Ordering::Relaxed);
    }
}
