//! The threads of a launch. Flows in: what a program's record and list say of its threads, and a job; flows
//! out: the job, run once for each number of a thread in each phase. Invariant: no phase begins before
//! all threads have ended the one before.

use crate::code::Launch;
use crate::pool::Pool;
use monoglot_uop::linear::phase_count;
use monoglot_uop::{ProgramInfo, UOp};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A launch that took less is done again before a worker that sleeps would be awake to help.
const BRIEF: Duration = Duration::from_micros(20);

/// How a program runs on a pool.
pub(super) struct Threads {
    pool: Arc<Pool>,
    threads: usize,
    /// Jobs of all threads, one after the other; the threads' numbers count on through them.
    phases: usize,
    /// Whether the last launch was brief.
    brief: AtomicBool,
}

impl Threads {
    /// Those of a program.
    pub(super) fn of(linear: &UOp, info: &ProgramInfo, pool: &Arc<Pool>) -> Threads {
        Threads {
            pool: pool.clone(),
            threads: info.threads.max(1) as usize,
            phases: phase_count(linear),
            brief: AtomicBool::new(false),
        }
    }

    /// Those of a kernel that was saved.
    pub(super) fn saved(launch: &Launch, pool: &Arc<Pool>) -> Threads {
        Threads {
            pool: pool.clone(),
            threads: launch.info.threads.max(1) as usize,
            phases: launch.phases,
            brief: AtomicBool::new(false),
        }
    }

    /// Run a job to its end; it gets the number that the program knows as its thread's.
    pub(super) fn run(&self, job: impl Fn(i32) + Sync) {
        if self.threads == 1 {
            return (0..self.phases).for_each(|phase| job(phase as i32));
        }
        let begin = Instant::now();
        let brief = self.brief.load(Ordering::Relaxed);
        for phase in 0..self.phases {
            let first = phase * self.threads;
            let number = |thread: usize| job((first + thread) as i32);
            match brief {
                true => self.pool.run_brief(self.threads, &number),
                false => self.pool.run(self.threads, &number),
            }
        }
        let now = begin.elapsed() < BRIEF;
        if now != brief {
            self.brief.store(now, Ordering::Relaxed);
        }
    }
}
