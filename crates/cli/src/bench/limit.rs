//! What a machine could do at best. Flows in: the work of a row, and what was measured of the machine; flows
//! out: which probes the row's limit needs, and the limit: the greater of its operations over the peak of
//! their kind and its bytes over the bandwidth of their pattern at its footprint.

use monoglot_roofline::{Arithmetic, Machine, Pattern, Probe, Stores};

/// What must be done at least: every operation of the definition, every input read once, every output
/// written once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Work {
    /// Operations, a multiply-add counting as two; 0 where bytes are all that counts.
    pub(super) operations: f64,
    /// Of what kind.
    pub(super) arithmetic: Arithmetic,
    /// Bytes read.
    pub(super) reads: f64,
    /// Bytes written.
    pub(super) writes: f64,
    /// What the row's rate counts.
    pub(super) score: Score,
}

/// What a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Score {
    /// Operations.
    Operations,
    /// Bytes.
    Bytes,
    /// Launches, in thousands. What the machine does at best says nothing of them.
    Launches,
}

impl Work {
    /// Bytes moved.
    pub(super) fn bytes(&self) -> f64 {
        self.reads + self.writes
    }

    /// What a rate counts of it, in billions.
    pub(super) fn amount(&self) -> f64 {
        let counted = match self.score {
            Score::Operations => self.operations,
            Score::Bytes => self.bytes(),
            Score::Launches => 1e6,
        };
        counted / 1e9
    }

    /// What a rate is given in.
    pub(super) fn unit(&self) -> &'static str {
        match (self.score, self.arithmetic) {
            (Score::Bytes, _) => "GB/s",
            (Score::Launches, _) => "k/s",
            (Score::Operations, Arithmetic::I8) => "GOP/s",
            (Score::Operations, _) => "GFLOP/s",
        }
    }

    /// The pattern whose share of writes is nearest.
    fn pattern(&self) -> Pattern {
        let writes = self.writes / self.bytes();
        if writes < 1.0 / 6.0 {
            Pattern::Read
        } else if writes < 5.0 / 12.0 {
            Pattern::Triad
        } else {
            Pattern::Copy
        }
    }

    /// The kind of arithmetic that is done for it: a processor that has no instructions for bf16 computes
    /// in f32.
    fn done_in(&self, has: impl Fn(Probe) -> bool) -> Arithmetic {
        if has(Probe::Peak(self.arithmetic)) {
            self.arithmetic
        } else {
            Arithmetic::F32
        }
    }

    /// What the limit depends on. A footprint counts up to `memory` bytes, from which on all is the same.
    pub(super) fn probes(&self, memory: usize, has: impl Fn(Probe) -> bool) -> Vec<Probe> {
        let mut out = Vec::new();
        if self.score == Score::Launches {
            return out;
        }
        if self.operations > 0.0 {
            out.push(Probe::Peak(self.done_in(&has)));
        }
        if self.bytes() > 0.0 {
            let pattern = self.pattern();
            let bytes = (self.bytes() as usize).min(memory);
            out.extend(ways(pattern).iter().map(|&stores| Probe::Bandwidth {
                pattern,
                stores,
                bytes,
            }));
        }
        out.retain(|&probe| has(probe));
        out
    }

    /// Seconds that it takes at least, by what was measured: operations or bytes a second by probe. Of two
    /// ways to write, the faster one counts.
    pub(super) fn seconds(&self, measured: &[(Probe, f64)]) -> Option<f64> {
        let best = |of: fn(&Probe) -> bool| {
            let rates = measured
                .iter()
                .filter(|(p, _)| of(p))
                .map(|(_, rate)| *rate);
            rates.reduce(f64::max)
        };
        let peak = best(|p| matches!(p, Probe::Peak(_)));
        let bandwidth = best(|p| matches!(p, Probe::Bandwidth { .. }));
        let computing = peak.map(|rate| self.operations / rate);
        let moving = bandwidth.map(|rate| self.bytes() / rate);
        computing.into_iter().chain(moving).reduce(f64::max)
    }
}

/// The ways in which a pattern can be written.
pub(super) fn ways(pattern: Pattern) -> &'static [Stores] {
    match pattern {
        Pattern::Read => &[Stores::Ordinary],
        Pattern::Copy | Pattern::Triad => &[Stores::Ordinary, Stores::NonTemporal],
    }
}

/// The roofline itself, by name: every peak, and every pattern in each level of the caches (half of it, for
/// as many threads as have one of their own) and in memory.
pub(super) fn roofline(caches: [usize; 3], threads: usize) -> Vec<(String, Probe)> {
    let [first, second, last] = caches;
    let levels = [
        ("l1", first / 2 * threads),
        ("l2", second / 2 * threads),
        ("l3", last / 2),
        ("memory", memory(caches)),
    ];
    let peaks = Arithmetic::ALL.into_iter();
    let peaks = peaks.map(|a| (format!("roofline_peak_{}", a.name()), Probe::Peak(a)));
    let sweeps = levels.into_iter().flat_map(|(level, bytes)| {
        let patterns = Pattern::ALL.into_iter();
        patterns.flat_map(move |pattern| {
            ways(pattern).iter().map(move |&stores| {
                let past = match stores {
                    Stores::Ordinary => "",
                    Stores::NonTemporal => "_nt",
                };
                let name = format!("roofline_{}{past}_{level}", pattern.name());
                let probe = Probe::Bandwidth {
                    pattern,
                    stores,
                    bytes,
                };
                (name, probe)
            })
        })
    });
    peaks.chain(sweeps).collect()
}

/// Bytes so many that what a cache still holds of them from one time to the next makes no difference.
pub(super) fn memory(caches: [usize; 3]) -> usize {
    let last = caches[2];
    (8 * last).clamp(256 << 20, 1 << 30).max(2 * last)
}

/// What was measured of the machine while one row ran: of every probe all samples.
pub(super) struct Samples(Vec<(Probe, Vec<f64>)>);

impl Samples {
    /// Of these probes.
    pub(super) fn of(probes: impl IntoIterator<Item = Probe>) -> Samples {
        Samples(probes.into_iter().map(|p| (p, Vec::new())).collect())
    }

    /// One more of each.
    pub(super) fn take(&mut self, machine: &mut Machine) {
        for (probe, rates) in &mut self.0 {
            rates.extend(machine.sample(*probe));
        }
    }

    /// What counts of each. Arithmetic has a best that nothing passes, and whatever else the machine did took
    /// from it. Memory is now faster and now slower, for a program as for a sample: its median counts.
    pub(super) fn rates(&self) -> Vec<(Probe, f64)> {
        let rate = |(probe, rates): &(Probe, Vec<f64>)| {
            let counts = match probe {
                Probe::Peak(_) => rates.iter().copied().reduce(f64::max),
                Probe::Bandwidth { .. } => median(rates),
            };
            Some((*probe, counts?))
        };
        self.0.iter().filter_map(rate).collect()
    }

    /// All samples of the first probe.
    pub(super) fn first(&self) -> &[f64] {
        self.0.first().map_or(&[], |(_, rates)| rates)
    }
}

/// The middle of these; None of none.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let high = sorted.get(n / 2)?;
    let low = sorted.get(n.saturating_sub(1) / 2)?;
    Some((low + high) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_peak_is_the_best_and_a_bandwidth_the_middle() {
        let peak = Probe::Peak(Arithmetic::F32);
        let copy = COPY(Stores::Ordinary);
        let samples = Samples(vec![
            (peak, vec![1.0, 3.0, 2.0]),
            (copy, vec![1.0, 3.0, 2.0]),
            (COPY(Stores::NonTemporal), Vec::new()),
        ]);
        assert_eq!(samples.rates(), [(peak, 3.0), (copy, 2.0)]);
    }

    fn work(operations: f64, reads: f64, writes: f64) -> Work {
        Work {
            operations,
            arithmetic: Arithmetic::F32,
            reads,
            writes,
            score: Score::Operations,
        }
    }

    const COPY: fn(Stores) -> Probe = |stores| Probe::Bandwidth {
        pattern: Pattern::Copy,
        stores,
        bytes: 64,
    };

    #[test]
    fn the_greater_of_computing_and_moving_is_the_limit() {
        let peak = (Probe::Peak(Arithmetic::F32), 100.0);
        let slow = (COPY(Stores::Ordinary), 10.0);
        let fast = (COPY(Stores::NonTemporal), 20.0);
        assert_eq!(work(500.0, 10.0, 10.0).seconds(&[peak, slow]), Some(5.0));
        assert_eq!(work(500.0, 50.0, 50.0).seconds(&[peak, slow]), Some(10.0));
        assert_eq!(work(0.0, 50.0, 50.0).seconds(&[slow, fast]), Some(5.0));
        assert_eq!(work(0.0, 50.0, 50.0).seconds(&[]), None);
    }

    #[test]
    fn the_pattern_is_that_of_what_is_read_and_written() {
        let pattern = |reads, writes| work(0.0, reads, writes).pattern();
        assert_eq!(pattern(100.0, 0.0), Pattern::Read);
        assert_eq!(pattern(100.0, 5.0), Pattern::Read);
        assert_eq!(pattern(2.0, 1.0), Pattern::Triad);
        assert_eq!(pattern(1.0, 1.0), Pattern::Copy);
        assert_eq!(pattern(0.0, 1.0), Pattern::Copy);
    }

    #[test]
    fn a_limit_asks_for_what_the_processor_has() {
        let bytes = |n| Probe::Bandwidth {
            pattern: Pattern::Read,
            stores: Stores::Ordinary,
            bytes: n,
        };
        let short = Work {
            arithmetic: Arithmetic::Bf16,
            ..work(9.0, 1000.0, 0.0)
        };
        let all = short.probes(400, |_| true);
        assert_eq!(all, [Probe::Peak(Arithmetic::Bf16), bytes(400)]);
        let plain = |p| p != Probe::Peak(Arithmetic::Bf16);
        let some = short.probes(4000, plain);
        assert_eq!(some, [Probe::Peak(Arithmetic::F32), bytes(1000)]);
        let copied = work(0.0, 8.0, 8.0).probes(400, |_| true);
        assert_eq!(copied.len(), 2);
        let ordinary = |p| {
            !matches!(
                p,
                Probe::Bandwidth {
                    stores: Stores::NonTemporal,
                    ..
                }
            )
        };
        assert_eq!(work(0.0, 8.0, 8.0).probes(400, ordinary).len(), 1);
    }

    #[test]
    fn the_roofline_follows_the_caches() {
        let rows = roofline([32 << 10, 1 << 20, 32 << 20], 2);
        let probe = |name: &str| rows.iter().find(|(n, _)| n == name).map(|(_, p)| *p);
        let bytes = |name| match probe(name) {
            Some(Probe::Bandwidth { bytes, .. }) => bytes,
            _ => 0,
        };
        assert_eq!(bytes("roofline_read_l1"), 32 << 10);
        assert_eq!(bytes("roofline_copy_nt_l2"), 1 << 20);
        assert_eq!(bytes("roofline_triad_l3"), 16 << 20);
        assert_eq!(bytes("roofline_triad_nt_memory"), 256 << 20);
        assert_eq!(rows.len(), 3 + 4 * 5);
        assert_eq!(memory([1, 2, 1 << 30]), 2 << 30);
    }

    #[test]
    fn rates_are_of_what_is_scored() {
        let copy = Work {
            score: Score::Bytes,
            ..work(1e9, 2e9, 1e9)
        };
        assert_eq!((copy.amount(), copy.unit()), (3.0, "GB/s"));
        let small = Work {
            arithmetic: Arithmetic::I8,
            score: Score::Operations,
            ..copy
        };
        assert_eq!((small.amount(), small.unit()), (1.0, "GOP/s"));
        let launch = Work {
            score: Score::Launches,
            ..copy
        };
        assert_eq!((launch.amount(), launch.unit()), (1e-3, "k/s"));
        assert_eq!(launch.probes(1 << 20, |_| true), []);
        assert_eq!(work(1.0, 1.0, 1.0).unit(), "GFLOP/s");
    }
}
