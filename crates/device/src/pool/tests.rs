//! The pool under stress. Flows in: jobs of all sizes from many threads, at random times; flows out: that
//! each piece ran once, whoever panicked, slept or went meanwhile.

use super::budget::{LATELY, STALE};
use super::*;
use std::collections::HashSet;
use std::sync::{Barrier, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

/// Run `n` pieces, each of which does `piece` besides, and see that each ran once.
fn counted(pool: &Pool, n: usize, piece: impl Fn(usize) + Sync) {
    let counts: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(0)).collect();
    pool.run(n, &|i| {
        counts[i].fetch_add(1, Ordering::Relaxed);
        piece(i);
    });
    assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
}

/// Let time go by.
fn pause(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::thread::yield_now();
    }
}

/// Numbers that look like chance.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn every_piece_runs_once_from_many_callers() {
    let pool = Pool::new(3, Arc::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in [0, 1, 2, 7, 40].into_iter().cycle().take(500) {
                    // From within a job, a job runs too.
                    counted(&pool, n, |_| pool.run(2, &|_| ()));
                }
            });
        }
    });
}

/// Pauses of callers and pieces are such that workers and callers are met while they look, while they fall asleep
/// and while they sleep.
#[test]
fn every_piece_runs_once_however_callers_and_workers_meet() {
    let pool = Pool::new(4, Arc::default());
    std::thread::scope(|scope| {
        for k in 1..=3u64 {
            let pool = &pool;
            scope.spawn(move || {
                let mut state = k.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                for _ in 0..150 {
                    let n = next(&mut state) as usize % 9;
                    let pauses = [0, 0, 20, 280, 310, 600].map(Duration::from_micros);
                    let long = pauses[next(&mut state) as usize % 6];
                    let slow = next(&mut state) as usize % 8;
                    counted(pool, n, |i| {
                        if i == slow {
                            pause(long);
                        }
                    });
                    pause(pauses[next(&mut state) as usize % 6]);
                }
            });
        }
    });
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
    let pool = Pool::new(2, Arc::default());
    for wrong in [0, 3, 7] {
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.run(8, &|i| assert!(i != wrong, "piece {wrong}"))
        }));
        assert!(result.is_err());
        counted(&pool, 8, |_| ());
    }
}

/// A panic of a worker's piece does not leave a caller that sleeps behind.
#[test]
fn a_panic_wakes_the_caller() {
    let pool = Pool::new(2, Arc::default());
    let caller = std::thread::current().id();
    let both = Barrier::new(2);
    let result = catch_unwind(AssertUnwindSafe(|| {
        pool.run(2, &|_| {
            both.wait();
            if std::thread::current().id() != caller {
                while pool
                    .workers
                    .get()
                    .is_none_or(|w| w.shared.caller.count() == 0)
                {
                    std::thread::yield_now();
                }
                panic!("on a worker");
            }
        });
    }));
    let said = result.expect_err("the worker's piece panicked");
    assert!(
        said.downcast_ref::<&str>()
            .is_some_and(|s| s.contains("worker"))
    );
    counted(&pool, 8, |_| ());
}

#[test]
fn pools_end_while_their_workers_look_and_while_they_sleep() {
    for micros in [0, 150, 300, 2000] {
        for _ in 0..20 {
            let pool = Pool::new(3, Arc::default());
            counted(&pool, 6, |_| ());
            pause(Duration::from_micros(micros));
            drop(pool);
        }
    }
}

#[test]
fn pools_share_the_threads() {
    let budget = Arc::new(Budget::default());
    let first = Pool::new(2, budget.clone());
    let second = Pool::new(2, budget);
    // While a job of the first pool has its two threads, one of the second has its caller's alone.
    let both = Barrier::new(2);
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
    assert_eq!(budget.callers(3, 10 + STALE), 1);
    assert_eq!(budget.callers(5, 11 + STALE), 2);
    assert_eq!(budget.callers(5, 9 + STALE + LATELY), 2);
    assert_eq!(budget.callers(5, 10 + STALE + LATELY), 1);
}

#[test]
fn shares_are_given_back() {
    let budget = Budget::default();
    let first = budget.take(4, 2);
    assert_eq!(first.helpers(), 2);
    let second = budget.take(4, 2);
    assert_eq!(second.helpers(), 0);
    drop(first);
    assert_eq!(budget.take(4, 8).helpers(), 2);
    drop(second);
    assert_eq!(budget.take(4, 8).helpers(), 3);
}

fn thread() -> ThreadId {
    std::thread::current().id()
}

#[test]
fn no_more_help_than_there_are_seats() {
    let workers = Workers::start(6);
    let ids = Mutex::new(HashSet::new());
    for _ in 0..100 {
        ids.lock().unwrap().clear();
        let note = |_| {
            ids.lock().unwrap().insert(thread());
        };
        workers.run(64, 2, true, &note).unwrap();
        assert!(ids.lock().unwrap().len() <= 3);
    }
}

/// Workers that sleep are woken for as many seats as there are.
#[test]
fn sleeping_workers_come() {
    let workers = Workers::start(4);
    for _ in 0..20 {
        while workers.shared.workers.count() < 3 {
            std::thread::yield_now();
        }
        let all = Barrier::new(4);
        let meet = |_| {
            all.wait();
        };
        workers.run(4, 3, true, &meet).unwrap();
    }
}

/// Whoever comes late finds what is left of every share.
#[test]
fn what_one_leaves_others_do() {
    let workers = Workers::start(4);
    let first = AtomicBool::new(true);
    let counts: Vec<AtomicU32> = (0..37).map(|_| AtomicU32::new(0)).collect();
    // Whoever has the first piece waits in it until all others have run.
    let done = AtomicU32::new(0);
    let piece = |i: usize| {
        counts[i].fetch_add(1, Ordering::Relaxed);
        if first.swap(false, Ordering::SeqCst) {
            while done.load(Ordering::SeqCst) < 36 {
                std::thread::yield_now();
            }
        }
        done.fetch_add(1, Ordering::SeqCst);
    };
    workers.run(37, 3, true, &piece).unwrap();
    assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
}

/// What is brief is done by its caller where all others sleep.
#[test]
fn nobody_is_woken_for_what_is_brief() {
    let pool = Pool::new(3, Arc::default());
    counted(&pool, 6, |_| ());
    let workers = pool.workers.get().expect("a job was shared");
    while workers.shared.workers.count() < 2 {
        std::thread::yield_now();
    }
    let caller = thread();
    let alone = AtomicU32::new(0);
    pool.run_brief(6, &|_| {
        alone.fetch_add(u32::from(thread() == caller), Ordering::Relaxed);
    });
    assert_eq!(alone.into_inner(), 6);
    assert_eq!(workers.shared.workers.count(), 2);
}
