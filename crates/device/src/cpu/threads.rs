//! The threads of a launch. Flows in: what a program's record and list say of its threads, and a job; flows
//! out: the job, run once for each number of a thread in each phase. Invariant: no phase begins before
//! all threads have ended the one before.

use crate::pool::Pool;
use monoglot_uop::linear::phase_count;
use monoglot_uop::{ProgramInfo, UOp};
use std::sync::Arc;

/// How a program runs on a pool.
pub(super) struct Threads {
    pool: Arc<Pool>,
    threads: usize,
    /// Jobs of all threads, one after the other; the threads' numbers count on through them.
    phases: usize,
}

impl Threads {
    /// Those of a program.
    pub(super) fn of(linear: &UOp, info: &ProgramInfo, pool: &Arc<Pool>) -> Threads {
        Threads {
            pool: pool.clone(),
            threads: info.threads.max(1) as usize,
            phases: phase_count(linear),
        }
    }

    /// Run a job to its end; it gets the number that the program knows as its thread's.
    pub(super) fn run(&self, job: impl Fn(i32) + Sync) {
        for phase in 0..self.phases {
            let first = phase * self.threads;
            let number = |thread: usize| job((first + thread) as i32);
            self.pool.run(self.threads, &number);
        }
    }
}
