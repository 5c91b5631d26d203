//! The thread pool: `run(n, job)` calls `job(0..n)` on the pool's workers and the caller, and returns
//! when all have run. A launch costs a few microseconds: workers that just worked spin for the next
//! job before they sleep, and work is handed out by one atomic word.
//!
//! Invariant: one job is shared at a time. A caller that finds the pool busy runs its job alone, so
//! any number of user threads may launch, also from within a job, and none waits for another.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

/// Workers that wait for jobs until the pool is dropped.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<std::thread::JoinHandle<()>>,
    /// Held by the caller whose job is shared.
    busy: AtomicBool,
}

type Job = *const (dyn Fn(usize) + Sync);

struct Shared {
    /// The epoch in the high half; below it 16 bits each: how many pieces there are, which is next.
    ticket: AtomicU64,
    /// Written by the caller before it opens an epoch, read by whoever holds a ticket of that epoch.
    job: UnsafeCell<Job>,
    done: AtomicU32,
    panicked: AtomicBool,
    sleepers: AtomicUsize,
    stop: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

// SAFETY: `job` is written only by the caller that holds `busy`, while no ticket is out, and read only
// by holders of a ticket; `ticket` orders the two (release on opening, acquire on taking).
unsafe impl Sync for Shared {}
// SAFETY: the job behind the pointer is `Sync`, and outlives every ticket.
unsafe impl Send for Shared {}

/// How long a worker looks for the next job before it sleeps, in rounds of `spin_loop`.
const SPINS: u32 = 20_000;
/// The most pieces of a job that can be shared.
const MOST: usize = 1 << 15;

/// The pool of the process, with the threads of the settings in force when it is first used.
pub fn global() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool::new(crate::Config::current().thread_count()))
}

/// Call `job(i)` for every i in 0..n, on the pool of the process where there are several.
pub(crate) fn run(n: usize, job: &(dyn Fn(usize) + Sync)) {
    if n > 1 {
        global().run(n, job)
    } else {
        (0..n).for_each(job)
    }
}

impl Pool {
    /// A pool in which `threads` threads work on a job: the caller and `threads − 1` workers.
    pub fn new(threads: usize) -> Pool {
        let shared = Arc::new(Shared {
            ticket: AtomicU64::new(0),
            job: UnsafeCell::new(&|_: usize| ()),
            done: AtomicU32::new(0),
            panicked: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        });
        let worker = |k: usize| {
            let shared = shared.clone();
            // Where the system gives no more threads, the pool is smaller and works the same.
            let named = std::thread::Builder::new()
                .name(format!("monoglot-{k}"))
                .stack_size(4 << 20);
            named.spawn(move || shared.work()).ok()
        };
        let workers = (1..threads.max(1)).filter_map(worker).collect();
        Pool {
            shared,
            workers,
            busy: AtomicBool::new(false),
        }
    }

    /// Threads that work on a job, the caller among them.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Call `job(i)` once for every i in 0..n, on any of the threads, and return when all are done.
    ///
    /// # Panics
    /// With the job's panic if it panics on the caller's thread, or with a note that a worker's did.
    pub fn run(&self, n: usize, job: &(dyn Fn(usize) + Sync)) {
        let alone = n <= 1 || n >= MOST || self.workers.is_empty();
        if alone || self.busy.swap(true, Ordering::Acquire) {
            return (0..n).for_each(job);
        }
        let s = &*self.shared;
        // SAFETY: `busy` is held and no ticket of an earlier epoch is out, since its caller waited for
        // `done`; the lifetime is cut off here and honoured by waiting below.
        unsafe { *s.job.get() = std::mem::transmute::<&(dyn Fn(usize) + Sync), Job>(job) };
        s.done.store(0, Ordering::Relaxed);
        s.panicked.store(false, Ordering::Relaxed);
        let epoch = (s.ticket.load(Ordering::Relaxed) >> 32).wrapping_add(1) as u32;
        // Sequentially consistent with the sleepers' own check: either they see the job or we see them.
        s.ticket
            .store((epoch as u64) << 32 | (n as u64) << 16, Ordering::SeqCst);
        let asleep = s.sleepers.load(Ordering::SeqCst);
        if asleep > 0 {
            drop(s.lock.lock().unwrap_or_else(|e| e.into_inner()));
            if n > asleep {
                s.wake.notify_all()
            } else {
                (1..n).for_each(|_| s.wake.notify_one())
            }
        }
        let mut panic = None;
        while let Some(i) = s.take(epoch) {
            if let Err(p) = catch_unwind(AssertUnwindSafe(|| job(i))) {
                panic = Some(p);
            }
            s.done.fetch_add(1, Ordering::Release);
        }
        let mut spins = 0u32;
        while s.done.load(Ordering::Acquire) < n as u32 {
            spins += 1;
            if spins < SPINS {
                spin_loop()
            } else {
                std::thread::yield_now()
            }
        }
        let elsewhere = s.panicked.load(Ordering::Relaxed);
        self.busy.store(false, Ordering::Release);
        if let Some(p) = panic {
            resume_unwind(p);
        }
        assert!(!elsewhere, "a job panicked on a worker of the thread pool");
    }
}

impl Shared {
    /// The next piece of this epoch's job.
    fn take(&self, epoch: u32) -> Option<usize> {
        let mut word = self.ticket.load(Ordering::Acquire);
        loop {
            let (n, next) = ((word >> 16) as u16, word as u16);
            if (word >> 32) as u32 != epoch || next >= n {
                return None;
            }
            match self.ticket.compare_exchange_weak(
                word,
                word + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(next as usize),
                Err(now) => word = now,
            }
        }
    }

    fn work(&self) {
        let mut seen = 0u32;
        loop {
            let Some(epoch) = self.wait(seen) else { return };
            seen = epoch;
            while let Some(i) = self.take(epoch) {
                // SAFETY: this thread holds a ticket of the epoch that is not counted as done yet, so
                // the caller keeps the job alive and the pointer unchanged.
                let job = unsafe { &**self.job.get() };
                if catch_unwind(AssertUnwindSafe(|| job(i))).is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
                self.done.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// Wait for an epoch other than `seen`; None when the pool ends.
    fn wait(&self, seen: u32) -> Option<u32> {
        let look = |order| Some((self.ticket.load(order) >> 32) as u32).filter(|&e| e != seen);
        for _ in 0..SPINS {
            if let Some(e) = look(Ordering::Acquire) {
                return Some(e);
            }
            spin_loop();
        }
        let mut guard = self.lock.lock().unwrap_or_else(|e| e.into_inner());
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let found = loop {
            if self.stop.load(Ordering::SeqCst) {
                break None;
            }
            if let Some(e) = look(Ordering::SeqCst) {
                break Some(e);
            }
            guard = self.wake.wait(guard).unwrap_or_else(|e| e.into_inner());
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        found
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(self.shared.lock.lock().unwrap_or_else(|e| e.into_inner()));
        self.shared.wake.notify_all();
        for w in self.workers.drain(..) {
            let _ = w.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_runs_once_from_many_callers() {
        let pool = Pool::new(3);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in [0, 1, 2, 7, 40].into_iter().cycle().take(500) {
                        let counts: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(0)).collect();
                        pool.run(n, &|i| {
                            counts[i].fetch_add(1, Ordering::Relaxed);
                            // From within a job, a job runs too.
                            pool.run(2, &|_| ());
                        });
                        assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        let pool = Pool::new(2);
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.run(8, &|i| assert!(i != 3, "piece three"))
        }));
        assert!(result.is_err());
        let sum = AtomicUsize::new(0);
        pool.run(8, &|i| {
            sum.fetch_add(i, Ordering::Relaxed);
        });
        assert_eq!(sum.load(Ordering::Relaxed), 28);
    }
}
