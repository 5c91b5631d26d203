//! How threads wait for each other: they look for a little while, and then sleep. Flows in: what is waited
//! for; flows out: that, once it is there. Invariant: nobody sleeps through what he waits for, where
//! whoever brings it about calls `wake` afterwards; a thread that looks leaves its core to any that wants it.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long a thread looks before it sleeps. To wake one takes some tens of microseconds until it runs, and some of who
/// wakes it; and what threads share often takes one of them a hundred longer than the other, which is no time to sleep.
pub(super) const PATIENCE: Duration = Duration::from_micros(300);
/// Looks between two offers of the core to others: a microsecond or two on any processor.
const LOOKS: usize = 32;

/// Look until `found` gives something; None once patience is at an end. It is at an end at once where others had the
/// core for as long: on a machine with more to do than cores, nobody spins.
pub(super) fn look<T>(since: Instant, found: impl Fn() -> Option<T>) -> Option<T> {
    loop {
        for _ in 0..LOOKS {
            if let Some(it) = found() {
                return Some(it);
            }
            spin_loop();
        }
        if since.elapsed() >= PATIENCE {
            return None;
        }
        std::thread::yield_now();
    }
}

/// Threads that sleep until there is something for them.
#[derive(Default)]
pub(super) struct Sleepers {
    /// As many as are in the list, for those who would wake them.
    count: AtomicUsize,
    threads: Mutex<Vec<Thread>>,
}

impl Sleepers {
    /// Sleep until `found` gives something. What it reads, and what is written for it before `wake`, is read and
    /// written sequentially consistently.
    pub(super) fn sleep<T>(&self, found: impl Fn() -> Option<T>) -> T {
        let this = std::thread::current();
        loop {
            // First in the list, then a last look: either this sees what was brought about, or who did sees this.
            let mut threads = self.lock();
            threads.push(this.clone());
            self.count.store(threads.len(), Ordering::SeqCst);
            drop(threads);
            let there = found();
            if there.is_none() {
                std::thread::park();
            }
            let mut threads = self.lock();
            threads.retain(|t| t.id() != this.id());
            self.count.store(threads.len(), Ordering::SeqCst);
            drop(threads);
            if let Some(it) = there.or_else(&found) {
                return it;
            }
        }
    }

    /// How many sleep, or are about to.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Wake so many at most, those that fell asleep last.
    pub(super) fn wake(&self, most: usize) {
        if most == 0 || self.count() == 0 {
            return;
        }
        let mut threads = self.lock();
        let rest = threads.len().saturating_sub(most);
        let woken = threads.split_off(rest);
        self.count.store(threads.len(), Ordering::SeqCst);
        drop(threads);
        woken.iter().for_each(Thread::unpark);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Thread>> {
        // The list changes by single calls: whatever panicked, it is whole.
        self.threads.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_finds_what_is_there_and_gives_up_otherwise() {
        assert_eq!(look(Instant::now(), || Some(3)), Some(3));
        assert_eq!(look(Instant::now(), || None::<u32>), None);
    }

    #[test]
    fn nobody_sleeps_through_what_he_waits_for() {
        let sleepers = Sleepers::default();
        let turn = AtomicUsize::new(0);
        // Each waits for its turn, and there is nothing to look at before it sleeps.
        std::thread::scope(|s| {
            for k in 0..3 {
                let sleepers = &sleepers;
                let turn = &turn;
                s.spawn(move || {
                    for round in 0..300 {
                        let mine = 3 * round + k;
                        sleepers.sleep(|| (turn.load(Ordering::SeqCst) == mine).then_some(()));
                        turn.store(mine + 1, Ordering::SeqCst);
                        sleepers.wake(3);
                    }
                });
            }
        });
        assert_eq!(turn.into_inner(), 900);
        assert_eq!(sleepers.count(), 0);
    }

    #[test]
    fn as_many_wake_as_are_called() {
        let sleepers = Sleepers::default();
        let seats = AtomicUsize::new(0);
        let up = AtomicUsize::new(0);
        let order = Ordering::SeqCst;
        let sit = || {
            let taken = seats.fetch_update(order, order, |n| n.checked_sub(1));
            taken.ok().map(|_| ())
        };
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    sleepers.sleep(sit);
                    up.fetch_add(1, order);
                });
            }
            while sleepers.count() < 3 {
                std::thread::yield_now();
            }
            for (called, all) in [(1, 1), (2, 3)] {
                seats.store(called, order);
                sleepers.wake(called);
                while up.load(order) < all {
                    std::thread::yield_now();
                }
                assert_eq!(seats.load(order), 0);
            }
        });
    }
}
