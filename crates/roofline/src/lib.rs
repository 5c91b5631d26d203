//! What this machine can do: the peak of its arithmetic by dtype, and the bandwidth of reading, copying and
//! a triad at any footprint. Flows in: what is to be measured, on how many threads; flows out: how much
//! of it is done a second, by one sample of a few milliseconds. Samples are short so that whoever
//! measures something else can take them in turn with it.
//!
//! Invariant: nothing here knows a machine. What a processor has is asked of it at run time, and how long a
//! sample runs is found by running it.

mod affinity;
mod arena;
mod portable;
#[cfg(target_arch = "x86_64")]
mod tiles;
mod together;
#[cfg(target_arch = "x86_64")]
mod x86;

use arena::{Arena, Line, STREAMS};
use std::time::{Duration, Instant};
use together::together;

pub use affinity::{allowed, pin};

/// Arithmetic that has a peak of its own, in vector registers; matrix units are not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Fused multiply-adds of f32; 2 operations each.
    F32,
    /// Products of pairs of bf16 added to f32, where an instruction does that.
    Bf16,
    /// Products of fours of 8-bit integers added to i32, where an instruction does that.
    I8,
}

impl Arithmetic {
    /// All of them.
    pub const ALL: [Arithmetic; 3] = [Arithmetic::F32, Arithmetic::Bf16, Arithmetic::I8];

    /// Its name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Arithmetic::F32 => "f32",
            Arithmetic::Bf16 => "bf16",
            Arithmetic::I8 => "i8",
        }
    }
}

/// How memory is gone through. Of each array an equal share of the footprint is touched, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// One array is read.
    Read,
    /// One is read, one written.
    Copy,
    /// Two are read, one written: a + 3·b.
    Triad,
}

impl Pattern {
    /// All of them.
    pub const ALL: [Pattern; 3] = [Pattern::Read, Pattern::Copy, Pattern::Triad];

    /// Its name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Read => "read",
            Pattern::Copy => "copy",
            Pattern::Triad => "triad",
        }
    }

    /// Arrays that it goes through.
    fn arrays(self) -> usize {
        match self {
            Pattern::Read => 1,
            Pattern::Copy => 2,
            Pattern::Triad => 3,
        }
    }
}

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stores {
    /// Through the caches.
    Ordinary,
    /// Past them.
    NonTemporal,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// Operations a second, a multiply-add counting as two.
    Peak(Arithmetic),
    /// Bytes a second, those read and those written, over a footprint that all threads share out.
    Bandwidth {
        /// How it is gone through.
        pattern: Pattern,
        /// How it is written; of no consequence where nothing is.
        stores: Stores,
        /// Bytes of all arrays together.
        bytes: usize,
    },
}

/// What is timed at once: long beside the start of threads, short beside the slices in which a system shares
/// out its cores, so that some are whole whoever else is at work.
const PIECE: Duration = Duration::from_micros(400);
/// Pieces of a sample at least, and how long it goes on at least: the first ones find caches that are full
/// of something else, and what is somewhat larger than a cache finds its place there in a few passes.
const PIECES: usize = 3;
const SAMPLE: Duration = Duration::from_millis(10);

/// A machine that is measured, with the memory that it takes.
pub struct Machine {
    threads: usize,
    processor: Processor,
    arena: Arena,
}

/// Kernels for what the processor has.
#[derive(Clone, Copy)]
enum Processor {
    #[cfg(target_arch = "x86_64")]
    X86(x86::Level),
    Portable,
}

impl Machine {
    /// This one, with so many threads.
    pub fn new(threads: usize) -> Machine {
        #[cfg(target_arch = "x86_64")]
        let processor = x86::Level::here().map_or(Processor::Portable, Processor::X86);
        #[cfg(not(target_arch = "x86_64"))]
        let processor = Processor::Portable;
        Machine {
            threads: threads.max(1),
            processor,
            arena: Arena::default(),
        }
    }

    /// Whether the processor has instructions for it.
    pub fn has(&self, probe: Probe) -> bool {
        match (self.processor, probe) {
            #[cfg(target_arch = "x86_64")]
            (Processor::X86(level), Probe::Peak(a)) => level.has(a),
            #[cfg(target_arch = "x86_64")]
            (Processor::X86(_), Probe::Bandwidth { .. }) => true,
            (Processor::Portable, Probe::Peak(a)) => a == Arithmetic::F32,
            (Processor::Portable, Probe::Bandwidth { stores, .. }) => stores == Stores::Ordinary,
        }
    }

    /// One sample, the best of several short pieces, as what would be done in a second; None where the
    /// processor has not got it.
    pub fn sample(&mut self, probe: Probe) -> Option<f64> {
        if !self.has(probe) {
            return None;
        }
        // Which way through memory is the fastest depends on the machine and on the footprint.
        let ways: &[usize] = match probe {
            Probe::Peak(_) => &[1],
            Probe::Bandwidth { .. } => &[1, STREAMS],
        };
        let rates = ways.iter().map(|&streams| self.best(probe, streams));
        rates.reduce(f64::max)
    }

    /// The best piece of a sample, memory in so many streams.
    fn best(&mut self, probe: Probe, streams: usize) -> f64 {
        let begin = Instant::now();
        let mut rounds = 1;
        let mut pieces = 0;
        let mut best = 0.0f64;
        while pieces < PIECES || begin.elapsed() < SAMPLE {
            let (work, time) = self.run(probe, streams, rounds);
            let seconds = time.as_secs_f64().max(1e-7);
            if time >= PIECE {
                pieces += 1;
                best = best.max(work / seconds);
            } else {
                // Half as much again as seems to be enough, since the first rounds are the slow ones.
                let missing = PIECE.as_secs_f64() / seconds;
                rounds = (rounds as f64 * (1.5 * missing).clamp(2.0, 1000.0)) as usize;
            }
        }
        best
    }

    /// So many rounds on all threads, memory in so many streams: the work that they were, and the time that
    /// they took.
    fn run(&mut self, probe: Probe, streams: usize, rounds: usize) -> (f64, Duration) {
        let processor = self.processor;
        match probe {
            Probe::Peak(arithmetic) => {
                let per_round = processor.operations(arithmetic);
                let jobs = vec![(); self.threads];
                let time = together(jobs, |()| processor.compute(arithmetic, rounds));
                (per_round * (rounds * self.threads) as f64, time)
            }
            Probe::Bandwidth {
                pattern,
                stores,
                bytes,
            } => {
                let arrays = pattern.arrays();
                let lines = arena::lines(bytes / (arrays * self.threads));
                let jobs = self.arena.parts(self.threads, arrays, lines);
                let time = together(jobs, |arrays| {
                    processor.sweep(pattern, stores, streams, arrays, rounds);
                });
                let moved = lines * size_of::<Line>() * arrays * self.threads;
                (moved as f64 * rounds as f64, time)
            }
        }
    }
}

impl Processor {
    /// Operations of a round of `compute`.
    fn operations(self, arithmetic: Arithmetic) -> f64 {
        match self {
            #[cfg(target_arch = "x86_64")]
            Processor::X86(level) => level.operations(arithmetic),
            Processor::Portable => portable::OPERATIONS,
        }
    }

    /// Multiply-adds in registers.
    fn compute(self, arithmetic: Arithmetic, rounds: usize) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Processor::X86(level) => level.compute(arithmetic, rounds),
            Processor::Portable => portable::compute(rounds),
        }
    }

    /// Go through these arrays, equally long, so many times, in one stream or several at a time.
    fn sweep(
        self,
        pattern: Pattern,
        stores: Stores,
        streams: usize,
        arrays: Vec<&mut [Line]>,
        rounds: usize,
    ) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Processor::X86(level) => level.sweep(pattern, stores, streams, arrays, rounds),
            Processor::Portable => {
                // Left to the compiler and the processor.
                let _ = (stores, streams);
                portable::sweep(pattern, arrays, rounds);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_processor_has_is_measured() {
        for threads in [1, 2] {
            let mut machine = Machine::new(threads);
            let peaks = Arithmetic::ALL.map(Probe::Peak).into_iter();
            let sweeps = Pattern::ALL.into_iter().flat_map(|pattern| {
                [Stores::Ordinary, Stores::NonTemporal].map(|stores| Probe::Bandwidth {
                    pattern,
                    stores,
                    bytes: 100_000,
                })
            });
            for probe in peaks.chain(sweeps) {
                let sample = machine.sample(probe);
                assert_eq!(sample.is_some(), machine.has(probe), "{probe:?}");
                assert!(
                    sample.is_none_or(|rate| rate.is_finite() && rate > 0.0),
                    "{probe:?}"
                );
            }
            assert!(machine.has(Probe::Peak(Arithmetic::F32)));
        }
    }

    #[test]
    fn a_footprint_of_nothing_is_the_least_there_is() {
        let probe = Probe::Bandwidth {
            pattern: Pattern::Triad,
            stores: Stores::Ordinary,
            bytes: 0,
        };
        assert!(Machine::new(1).sample(probe) > Some(0.0));
    }
}
