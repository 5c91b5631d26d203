//! Thread pools: `run(n, job)` calls `job(0..n)` on the pool's workers and the caller, and returns
//! when all have run. A launch costs a microsecond or less: workers that just worked look for the next
//! job before they sleep (`wait`), and each has a share of its pieces (`shares`). A device owns a pool; the
//! threads of the machine are shared by all of them: a job gets as many helpers as the pool has
//! threads beyond those that work for anybody now, and beyond the callers that have jobs of their
//! own (`budget`). Flows in: a job and how many parts it has; flows out: nothing, once every part has
//! run exactly once.
//!
//! Invariant: a pool shares one job at a time. A caller that finds it busy runs its job alone, so any
//! number of user threads may launch, also from within a job, and none waits for another.

mod budget;
mod shares;
#[cfg(test)]
mod tests;
mod wait;

pub use budget::Budget;

use shares::{PIECES, Shares};
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use wait::{Sleepers, look};

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
    ticket: Apart<AtomicU64>,
    shares: Shares,
    /// Pieces that have run.
    done: Apart<AtomicU32>,
    /// Written by the caller before it opens an epoch, read by whoever holds a piece of that epoch.
    job: UnsafeCell<Job>,
    /// As many pieces as the job has; written and read as the job is.
    pieces: AtomicU32,
    panicked: AtomicBool,
    stop: AtomicBool,
    /// Workers that wait for a job.
    workers: Sleepers,
    /// The caller, where it waits for the last pieces.
    caller: Sleepers,
}

/// What has its own lines of a cache, so that who waits for one word does not slow those who write another.
#[repr(align(128))]
struct Apart<T>(T);

/// What the ticket says: which job is shared, how many workers may still join it, and in how many shares it was cut.
#[derive(Clone, Copy)]
struct Ticket {
    epoch: u32,
    seats: u16,
    shares: u16,
}

impl Ticket {
    fn of(word: u64) -> Ticket {
        Ticket {
            epoch: (word >> 32) as u32,
            seats: (word >> 16) as u16,
            shares: word as u16,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.epoch) << 32 | u64::from(self.seats) << 16 | u64::from(self.shares)
    }
}

/// The most threads of a pool.
const THREADS: usize = 1 << 12;

// SAFETY: `job` is written only by the caller that holds `busy`, while no piece is out, and read only by
// holders of a piece; `ticket` orders the two (release on opening, acquire on joining).
unsafe impl Sync for Shared {}
// SAFETY: the job behind the pointer is `Sync`, and outlives every piece.
unsafe impl Send for Shared {}

impl Pool {
    /// A pool in which up to `threads` threads work on a job, the caller among them; fewer, while others
    /// work that share the budget.
    pub fn new(threads: usize, budget: Arc<Budget>) -> Pool {
        Pool {
            budget,
            threads: threads.clamp(1, THREADS),
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
        self.shared(n, true, job);
    }

    /// The same for what is done before a worker that sleeps would be awake: those that look for work help, and
    /// nobody is woken.
    ///
    /// # Panics
    /// As `run`.
    pub fn run_brief(&self, n: usize, job: &(dyn Fn(usize) + Sync)) {
        self.shared(n, false, job);
    }

    fn shared(&self, n: usize, wake: bool, job: &(dyn Fn(usize) + Sync)) {
        let wanted = if n < PIECES { n.saturating_sub(1) } else { 0 };
        if wanted == 0 || self.threads == 1 {
            return (0..n).for_each(job);
        }
        let share = self.budget.take(self.threads, wanted);
        let helpers = share.helpers();
        if helpers == 0 || self.busy.swap(true, Ordering::Acquire) {
            return (0..n).for_each(job);
        }
        let workers = self.workers.get_or_init(|| Workers::start(self.threads));
        let outcome = workers.run(n, helpers, wake, job);
        self.busy.store(false, Ordering::Release);
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
    }
}

impl Workers {
    fn start(threads: usize) -> Workers {
        let shared = Arc::new(Shared {
            ticket: Apart(AtomicU64::new(0)),
            shares: Shares::new(threads),
            done: Apart(AtomicU32::new(0)),
            job: UnsafeCell::new(&|_: usize| ()),
            pieces: AtomicU32::new(0),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            workers: Sleepers::default(),
            caller: Sleepers::default(),
        });
        let worker = |k: usize| {
            let shared = shared.clone();
            // Where the system gives no more threads, the pool is smaller and works the same.
            let named = std::thread::Builder::new()
                .name(format!("monoglot-{k}"))
                .stack_size(4 << 20);
            named.spawn(move || shared.work(k)).ok()
        };
        let handles = (1..threads).filter_map(worker).collect();
        Workers { shared, handles }
    }

    /// Run a job with so many helpers, woken if they sleep and `wake` says so; the panic of one of its pieces.
    fn run(
        &self,
        n: usize,
        helpers: usize,
        wake: bool,
        job: &(dyn Fn(usize) + Sync),
    ) -> std::thread::Result<()> {
        let shared = &*self.shared;
        let ticket = shared.open(n, helpers, job);
        if wake {
            // Those that look for a job find it without being woken.
            let awake = self.handles.len().saturating_sub(shared.workers.count());
            shared.workers.wake(helpers.saturating_sub(awake));
        }
        let mut outcome = Ok(());
        while let Some(i) = shared.take(ticket, 0) {
            if let Err(p) = catch_unwind(AssertUnwindSafe(|| job(i))) {
                outcome = Err(p);
            }
            shared.done.0.fetch_add(1, Ordering::Release);
        }
        shared.finish(n as u32);
        if outcome.is_ok() && shared.panicked.load(Ordering::Relaxed) {
            outcome = Err(Box::new("a job panicked on a worker of the thread pool"));
        }
        outcome
    }
}

impl Shared {
    /// Open an epoch for a job, whose pieces may be taken from now on.
    fn open(&self, n: usize, helpers: usize, job: &(dyn Fn(usize) + Sync)) -> Ticket {
        // SAFETY: the pool's `busy` is held and no piece of an earlier epoch is out, since its caller
        // waited for `done`; the lifetime is cut off here and honoured by `finish`.
        unsafe { *self.job.get() = std::mem::transmute::<&(dyn Fn(usize) + Sync), Job>(job) };
        self.pieces.store(n as u32, Ordering::Relaxed);
        self.done.0.store(0, Ordering::Relaxed);
        self.panicked.store(false, Ordering::Relaxed);
        let last = Ticket::of(self.ticket.0.load(Ordering::Relaxed)).epoch;
        let ticket = Ticket {
            epoch: last.wrapping_add(1),
            seats: helpers as u16,
            shares: helpers as u16 + 1,
        };
        self.shares.cut(ticket.epoch, n, helpers + 1);
        // As `Sleepers` wants what they wait for.
        self.ticket.0.store(ticket.word(), Ordering::SeqCst);
        ticket
    }

    /// Wait until so many pieces have run.
    fn finish(&self, n: u32) {
        let all = |order| (self.done.0.load(order) == n).then_some(());
        if all(Ordering::Acquire).is_none()
            && look(Instant::now(), || all(Ordering::Acquire)).is_none()
        {
            self.caller.sleep(|| all(Ordering::SeqCst));
        }
    }

    /// The next piece of this job for a thread of that number.
    fn take(&self, ticket: Ticket, thread: usize) -> Option<usize> {
        let shares = ticket.shares as usize;
        self.shares.take(ticket.epoch, thread % shares, shares)
    }

    /// The job of this epoch, where a worker may help with it.
    fn join(&self, epoch: u32) -> Option<Ticket> {
        let seat = |word: u64| {
            let ticket = Ticket::of(word);
            let seats = ticket.seats.checked_sub(1)?;
            let joined = Ticket { seats, ..ticket };
            (ticket.epoch == epoch).then_some(joined.word())
        };
        let ticket = &self.ticket.0;
        let before = ticket.fetch_update(Ordering::AcqRel, Ordering::Acquire, seat);
        before.ok().map(Ticket::of)
    }

    /// What a worker does from its start to the pool's end.
    fn work(&self, thread: usize) {
        let mut seen = 0u32;
        let mut worked = Instant::now();
        while let Some(epoch) = self.wait(seen, worked) {
            seen = epoch;
            // Who finds no seat has not worked, and goes on being as patient as it was.
            let Some(ticket) = self.join(epoch) else {
                continue;
            };
            while let Some(i) = self.take(ticket, thread) {
                // SAFETY: this thread holds a piece of the epoch that is not counted as done yet, so
                // the caller keeps the job alive and the pointer unchanged.
                let job = unsafe { &**self.job.get() };
                let pieces = self.pieces.load(Ordering::Relaxed);
                if catch_unwind(AssertUnwindSafe(|| job(i))).is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
                if self.done.0.fetch_add(1, Ordering::SeqCst) + 1 == pieces {
                    self.caller.wake(1);
                }
            }
            worked = Instant::now();
        }
    }

    /// Wait for an epoch other than `seen`; None when the pool ends.
    fn wait(&self, seen: u32, worked: Instant) -> Option<u32> {
        let next = |order| {
            let epoch = Ticket::of(self.ticket.0.load(order)).epoch;
            (epoch != seen).then_some(epoch)
        };
        let end = || self.stop.load(Ordering::SeqCst).then_some(None);
        look(worked, || next(Ordering::Acquire).map(Some)).unwrap_or_else(|| {
            self.workers
                .sleep(|| end().or(next(Ordering::SeqCst).map(Some)))
        })
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.workers.wake(self.handles.len());
        for w in self.handles.drain(..) {
            let _ = w.join();
        }
    }
}
