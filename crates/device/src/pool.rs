//! Thread pools: `run(n, job)` calls `job(0..n)` on the pool's workers and the caller, and returns
//! when all have run. A launch costs a few microseconds: workers that just worked look for the next
//! job before they sleep (`wait`), and work is handed out by one atomic word. A device owns a pool; the
//! threads of the machine are shared by all of them: a job gets as many helpers as the pool has
//! threads beyond those that work for anybody now, and beyond the callers that have jobs of their
//! own (`budget`). Flows in: a job and how many parts it has; flows out: nothing, once every part has
//! run exactly once.
//!
//! Invariant: a pool shares one job at a time. A caller that finds it busy runs its job alone, so any
//! number of user threads may launch, also from within a job, and none waits for another.

mod budget;
#[cfg(test)]
mod tests;
mod wait;

pub use budget::Budget;

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
    /// Pieces that have run.
    done: Apart<AtomicU32>,
    /// Written by the caller before it opens an epoch, read by whoever holds a piece of that epoch.
    job: UnsafeCell<Job>,
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

impl Pool {
    /// A pool in which up to `threads` threads work on a job, the caller among them; fewer, while others
    /// work that share the budget.
    pub fn new(threads: usize, budget: Arc<Budget>) -> Pool {
        Pool {
            budget,
            threads: threads.clamp(1, (1 << SEATS) - 1),
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
        let helpers = share.helpers();
        if helpers == 0 || self.busy.swap(true, Ordering::Acquire) {
            return (0..n).for_each(job);
        }
        let workers = self.workers.get_or_init(|| Workers::start(self.threads));
        let outcome = workers.run(n, helpers, job);
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
            done: Apart(AtomicU32::new(0)),
            job: UnsafeCell::new(&|_: usize| ()),
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
            named.spawn(move || shared.work()).ok()
        };
        let handles = (1..threads).filter_map(worker).collect();
        Workers { shared, handles }
    }

    /// Run a job with so many helpers; the panic of one of its pieces.
    fn run(
        &self,
        n: usize,
        helpers: usize,
        job: &(dyn Fn(usize) + Sync),
    ) -> std::thread::Result<()> {
        let shared = &*self.shared;
        let epoch = shared.open(n, helpers, job);
        // Those that look for a job find it without being woken.
        let awake = self.handles.len().saturating_sub(shared.workers.count());
        shared.workers.wake(helpers.saturating_sub(awake));
        let mut outcome = Ok(());
        while let Some(ticket) = shared.take(epoch) {
            if let Err(p) = catch_unwind(AssertUnwindSafe(|| job(ticket.next))) {
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
    fn open(&self, n: usize, helpers: usize, job: &(dyn Fn(usize) + Sync)) -> u32 {
        // SAFETY: the pool's `busy` is held and no piece of an earlier epoch is out, since its caller
        // waited for `done`; the lifetime is cut off here and honoured by `finish`.
        unsafe { *self.job.get() = std::mem::transmute::<&(dyn Fn(usize) + Sync), Job>(job) };
        self.done.0.store(0, Ordering::Relaxed);
        self.panicked.store(false, Ordering::Relaxed);
        let last = Ticket::of(self.ticket.0.load(Ordering::Relaxed)).epoch;
        let open = Ticket {
            epoch: last.wrapping_add(1),
            seats: helpers,
            pieces: n,
            next: 0,
        };
        let word = open.word();
        // As `Sleepers` wants what they wait for.
        self.ticket.0.store(word, Ordering::SeqCst);
        Ticket::of(word).epoch
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

    /// Change the ticket of this epoch, unless `change` finds nothing to do; the ticket as it was.
    fn update(&self, epoch: u32, change: impl Fn(Ticket) -> Option<Ticket>) -> Option<Ticket> {
        let mut word = self.ticket.0.load(Ordering::Acquire);
        loop {
            let now = Ticket::of(word);
            if now.epoch != epoch || now.next >= now.pieces {
                return None;
            }
            match self.ticket.0.compare_exchange_weak(
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

    /// Take the next piece of this epoch's job: `next` of this ticket.
    fn take(&self, epoch: u32) -> Option<Ticket> {
        let next = |t: Ticket| {
            Some(Ticket {
                next: t.next + 1,
                ..t
            })
        };
        self.update(epoch, next)
    }

    /// Whether a worker may help with this epoch's job.
    fn join(&self, epoch: u32) -> bool {
        let seat = |t: Ticket| {
            let seats = t.seats.checked_sub(1)?;
            Some(Ticket { seats, ..t })
        };
        self.update(epoch, seat).is_some()
    }

    /// What a worker does from its start to the pool's end.
    fn work(&self) {
        let mut seen = 0u32;
        let mut worked = Instant::now();
        while let Some(epoch) = self.wait(seen, worked) {
            seen = epoch;
            // Who finds no seat has not worked, and goes on being as patient as it was.
            if !self.join(epoch) {
                continue;
            }
            while let Some(ticket) = self.take(epoch) {
                // SAFETY: this thread holds a piece of the epoch that is not counted as done yet, so
                // the caller keeps the job alive and the pointer unchanged.
                let job = unsafe { &**self.job.get() };
                if catch_unwind(AssertUnwindSafe(|| job(ticket.next))).is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
                let before = self.done.0.fetch_add(1, Ordering::SeqCst);
                if before as usize + 1 == ticket.pieces {
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
