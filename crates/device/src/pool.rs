//! Thread pools: `run(n, job)` calls `job(0..n)` on the pool's workers and the caller, and returns
//! when all have run. A launch costs a few microseconds: workers that just worked spin for the next
//! job before they sleep, and work is handed out by one atomic word. A device owns a pool; the
//! threads of the machine are shared by all of them: a job gets as many helpers as the pool has
//! threads beyond those that work for anybody now, and beyond the callers that have jobs of their
//! own. Flows in: a job and how many parts it has; flows out: nothing, once every part has run
//! exactly once.
//!
//! Invariant: a pool shares one job at a time. A caller that finds it busy runs its job alone, so any
//! number of user threads may launch, also from within a job, and none waits for another.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, OnceLock};
use std::time::Instant;

/// Workers that wait for jobs until the pool is dropped; they start with the first job that is shared.
pub struct Pool {
    budget: Arc<Budget>,
    threads: usize,
    workers: OnceLock<Workers>,
    /// Held by the caller whose job is shared.
    busy: AtomicBool,
}

struct Workers {
    shared: Arc<Shared>,
    handles: Vec<std::thread::JoinHandle<()>>,
}

type Job = *const (dyn Fn(usize) + Sync);

struct Shared {
    ticket: AtomicU64,
    /// Written by the caller before it opens an epoch, read by whoever holds a piece of that epoch.
    job: UnsafeCell<Job>,
    done: AtomicU32,
    panicked: AtomicBool,
    sleepers: AtomicUsize,
    stop: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

/// What the atomic word says: which job is shared, how many workers may still join it, how many pieces
/// it has, and which is handed out next.
#[derive(Clone, Copy)]
struct Ticket {
    epoch: u32,
    seats: usize,
    pieces: usize,
    next: usize,
}

const SEATS: u32 = 12;
const PIECES: u32 = 14;

impl Ticket {
    fn of(word: u64) -> Ticket {
        let field = |shift: u32, bits: u32| (word >> shift & ((1 << bits) - 1)) as usize;
        Ticket {
            epoch: (word >> (SEATS + 2 * PIECES)) as u32,
            seats: field(2 * PIECES, SEATS),
            pieces: field(PIECES, PIECES),
            next: field(0, PIECES),
        }
    }

    fn word(self) -> u64 {
        (self.epoch as u64) << (SEATS + 2 * PIECES)
            | (self.seats as u64) << (2 * PIECES)
            | (self.pieces as u64) << PIECES
            | self.next as u64
    }
}

// SAFETY: `job` is written only by the caller that holds `busy`, while no piece is out, and read only by
// holders of a piece; `ticket` orders the two (release on opening, acquire on taking).
unsafe impl Sync for Shared {}
// SAFETY: the job behind the pointer is `Sync`, and outlives every piece.
unsafe impl Send for Shared {}

/// How long a worker looks for the next job before it sleeps, in rounds of `spin_loop`.
const SPINS: u32 = 20_000;

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
/// Who asked within so many microseconds will ask again: about as long as a worker looks for work.
const LATELY: u64 = 2000;

/// Some of the threads that work, until it is dropped.
struct Share<'a> {
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
    fn take(&self, threads: usize, wanted: usize) -> Share<'_> {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed) % CALLERS;
        }
        let now = BEGAN.elapsed().as_micros() as u64 + 1;
        let callers = self.callers(NUMBER.with(|n| *n), now);
        let others = self.working.fetch_add(1, Ordering::Relaxed);
        let taken = (others + 1).max(callers);
        let helpers = wanted.min(threads.saturating_sub(taken));
        self.working.fetch_add(helpers, Ordering::Relaxed);
        Share {
            budget: self,
            threads: 1 + helpers,
        }
    }

    /// How many threads have asked of late, with this one, which asks now.
    fn callers(&self, number: usize, now: u64) -> usize {
        self.asked[number].store(now, Ordering::Relaxed);
        let lately = |at: &&AtomicU64| {
            let at = at.load(Ordering::Relaxed);
            at > 0 && now.saturating_sub(at) < LATELY
        };
        self.asked.iter().filter(lately).count()
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let working = &self.budget.working;
        working.fetch_sub(self.threads, Ordering::Relaxed);
    }
}

impl Pool {
    /// A pool in which up to `threads` threads work on a job, the caller among them; fewer, while others
    /// work that share the budget.
    pub fn new(threads: usize, budget: Arc<Budget>) -> Pool {
        Pool {
            budget,
            threads: threads.clamp(1, 1 << SEATS),
            workers: OnceLock::new(),
            busy: AtomicBool::new(false),
        }
    }

    /// Threads that work on a job, the caller among them.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Call `job(i)` once for every i in 0..n, on any of the threads, and return when all are done.
    ///
    /// # Panics
    /// With the job's panic if it panics on the caller's thread, or with a note that a worker's did.
    pub fn run(&self, n: usize, job: &(dyn Fn(usize) + Sync)) {
        let wanted = if n < 1 << PIECES {
            n.saturating_sub(1)
        } else {
            0
        };
        if wanted == 0 || self.threads == 1 {
            return (0..n).for_each(job);
        }
        let share = self.budget.take(self.threads, wanted);
        let helpers = share.threads - 1;
        if helpers == 0 || self.busy.swap(true, Ordering::Acquire) {
            return (0..n).for_each(job);
        }
        let workers = self.workers.get_or_init(|| Workers::start(self.threads));
        let outcome = workers.shared.run(n, helpers, job);
        self.busy.store(false, Ordering::Release);
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
    }
}

impl Workers {
    fn start(threads: usize) -> Workers {
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
        let handles = (1..threads).filter_map(worker).collect();
        Workers { shared, handles }
    }
}

impl Shared {
    /// Run a job with so many helpers; the panic of one of its pieces.
    fn run(
        &self,
        n: usize,
        helpers: usize,
        job: &(dyn Fn(usize) + Sync),
    ) -> std::thread::Result<()> {
        // SAFETY: the pool's `busy` is held and no piece of an earlier epoch is out, since its caller
        // waited for `done`; the lifetime is cut off here and honoured by waiting below.
        unsafe { *self.job.get() = std::mem::transmute::<&(dyn Fn(usize) + Sync), Job>(job) };
        self.done.store(0, Ordering::Relaxed);
        self.panicked.store(false, Ordering::Relaxed);
        let last = Ticket::of(self.ticket.load(Ordering::Relaxed)).epoch;
        let open = Ticket {
            epoch: last.wrapping_add(1),
            seats: helpers,
            pieces: n,
            next: 0,
        };
        let epoch = Ticket::of(open.word()).epoch;
        // Sequentially consistent with the sleepers' own check: either they see the job or we see them.
        self.ticket.store(open.word(), Ordering::SeqCst);
        let asleep = self.sleepers.load(Ordering::SeqCst);
        if asleep > 0 {
            drop(self.lock.lock().unwrap_or_else(|e| e.into_inner()));
            if helpers >= asleep {
                self.wake.notify_all();
            } else {
                (0..helpers).for_each(|_| self.wake.notify_one());
            }
        }
        let mut outcome = Ok(());
        while let Some(i) = self.take(epoch) {
            if let Err(p) = catch_unwind(AssertUnwindSafe(|| job(i))) {
                outcome = Err(p);
            }
            self.done.fetch_add(1, Ordering::Release);
        }
        let mut spins = 0u32;
        while self.done.load(Ordering::Acquire) < n as u32 {
            spins += 1;
            if spins < SPINS {
                spin_loop()
            } else {
                std::thread::yield_now()
            }
        }
        if outcome.is_ok() && self.panicked.load(Ordering::Relaxed) {
            outcome = Err(Box::new("a job panicked on a worker of the thread pool"));
        }
        outcome
    }

    /// Change the ticket of this epoch, unless `change` finds nothing to do; the ticket as it was.
    fn update(&self, epoch: u32, change: impl Fn(Ticket) -> Option<Ticket>) -> Option<Ticket> {
        let mut word = self.ticket.load(Ordering::Acquire);
        loop {
            let now = Ticket::of(word);
            if now.epoch != epoch || now.next >= now.pieces {
                return None;
            }
            match self.ticket.compare_exchange_weak(
                word,
                change(now)?.word(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(now),
                Err(found) => word = found,
            }
        }
    }

    /// The next piece of this epoch's job.
    fn take(&self, epoch: u32) -> Option<usize> {
        let next = |t: Ticket| {
            Some(Ticket {
                next: t.next + 1,
                ..t
            })
        };
        self.update(epoch, next).map(|t| t.next)
    }

    /// Whether a worker may help with this epoch's job.
    fn join(&self, epoch: u32) -> bool {
        let seat = |t: Ticket| {
            let seats = t.seats.checked_sub(1)?;
            Some(Ticket { seats, ..t })
        };
        self.update(epoch, seat).is_some()
    }

    fn work(&self) {
        let mut seen = 0u32;
        loop {
            let Some(epoch) = self.wait(seen) else { return };
            seen = epoch;
            if !self.join(epoch) {
                continue;
            }
            while let Some(i) = self.take(epoch) {
                // SAFETY: this thread holds a piece of the epoch that is not counted as done yet, so
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
        let look = |order| Some(Ticket::of(self.ticket.load(order)).epoch).filter(|&e| e != seen);
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

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(self.shared.lock.lock().unwrap_or_else(|e| e.into_inner()));
        self.shared.wake.notify_all();
        for w in self.handles.drain(..) {
            let _ = w.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_runs_once_from_many_callers() {
        let pool = Pool::new(3, Arc::default());
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
        let pool = Pool::new(2, Arc::default());
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

    #[test]
    fn pools_share_the_threads() {
        let budget = Arc::new(Budget::default());
        let first = Pool::new(2, budget.clone());
        let second = Pool::new(2, budget);
        // While a job of the first pool has its two threads, one of the second has its caller's alone.
        let both = std::sync::Barrier::new(2);
        first.run(2, &|i| {
            both.wait();
            if i == 0 {
                let caller = std::thread::current().id();
                second.run(8, &|_| assert_eq!(std::thread::current().id(), caller));
            }
            both.wait();
        });
    }

    #[test]
    fn who_asked_of_late_counts() {
        let budget = Budget::default();
        assert_eq!(budget.callers(3, 10), 1);
        assert_eq!(budget.callers(3, 20), 1);
        assert_eq!(budget.callers(5, 30), 2);
        assert_eq!(budget.callers(5, 19 + LATELY), 2);
        assert_eq!(budget.callers(5, 20 + LATELY), 1);
    }

    #[test]
    fn no_more_help_than_there_are_seats() {
        let workers = Workers::start(6);
        let ids = Mutex::new(std::collections::HashSet::new());
        for _ in 0..100 {
            ids.lock().unwrap().clear();
            let note = |_| {
                ids.lock().unwrap().insert(std::thread::current().id());
            };
            workers.shared.run(64, 2, &note).unwrap();
            assert!(ids.lock().unwrap().len() <= 3);
        }
    }
}
