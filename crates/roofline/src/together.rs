//! One job on each of several threads, begun at once. Flows in: jobs, and what to do with each; flows
//! out: the time from the first start to the last end.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a thread looks whether the others are there before it lets them run.
const SPINS: usize = 10_000;

/// Call `work` once for every job, each on a thread of its own, the caller's among them.
pub(crate) fn together<J: Send>(jobs: Vec<J>, work: impl Fn(J) + Sync) -> Duration {
    let count = jobs.len();
    let there = AtomicUsize::new(0);
    let run = |job: J| {
        there.fetch_add(1, Ordering::AcqRel);
        let mut spins = 0;
        while there.load(Ordering::Acquire) < count {
            spins += 1;
            if spins < SPINS {
                spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        let start = Instant::now();
        work(job);
        (start, Instant::now())
    };
    let mut jobs = jobs.into_iter();
    let Some(own) = jobs.next() else {
        return Duration::ZERO;
    };
    let spans: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let run = &run;
        let others: Vec<_> = jobs.map(|job| scope.spawn(move || run(job))).collect();
        let first = run(own);
        let rest = others.into_iter();
        let joined = rest.map(|h| h.join().expect("a measurement does not panic"));
        joined.chain([first]).collect()
    });
    let begin = spans.iter().map(|s| s.0).min();
    let end = spans.iter().map(|s| s.1).max();
    end.zip(begin).map_or(Duration::ZERO, |(e, b)| e - b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn every_job_runs_once() {
        let seen = Mutex::new(Vec::new());
        together(vec![1, 2, 3], |k| seen.lock().unwrap().push(k));
        let mut seen = seen.into_inner().unwrap();
        seen.sort();
        assert_eq!(seen, [1, 2, 3]);
        assert_eq!(together(Vec::<u8>::new(), |_| ()), Duration::ZERO);
    }
}
