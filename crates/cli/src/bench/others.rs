//! What others did meanwhile. Flows in: the system's counts of processor time, before and after; flows out:
//! the cores that were busy with something else than this process, so that whoever reads a time knows what
//! it is worth.

use std::time::Instant;

/// Ticks of processor time a second, in what Linux tells.
const TICKS: f64 = 100.0;

/// Counts at one time.
pub(super) struct Clock {
    at: Instant,
    all: f64,
    own: f64,
}

impl Clock {
    /// Those of now; None where the system does not tell.
    pub(super) fn now() -> Option<Clock> {
        let read = |path| std::fs::read_to_string(path).ok();
        Some(Clock {
            at: Instant::now(),
            all: all(&read("/proc/stat")?)?,
            own: own(&read("/proc/self/stat")?)?,
        })
    }

    /// Cores that others kept busy since then, on average.
    pub(super) fn others(&self) -> Option<f64> {
        let now = Clock::now()?;
        let seconds = (now.at - self.at).as_secs_f64().max(1.0 / TICKS);
        let ticks = (now.all - self.all) - (now.own - self.own);
        Some((ticks / TICKS / seconds).max(0.0))
    }
}

/// Ticks in which a processor worked, or was taken away: all but idle ones, those that waited for disks, and
/// those of guests, which count as a user's already.
fn all(text: &str) -> Option<f64> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks = line.split_whitespace().map(|n| n.parse::<f64>().ok());
    let ticks: Vec<f64> = ticks.collect::<Option<_>>()?;
    let [
        user,
        nice,
        system,
        _idle,
        _waiting,
        irq,
        softirq,
        stolen,
        ..,
    ] = ticks[..]
    else {
        return None;
    };
    Some(user + nice + system + irq + softirq + stolen)
}

/// Ticks of this process and of those that it started and that ended.
fn own(text: &str) -> Option<f64> {
    // The name, in brackets, may hold anything.
    let (_, fields) = text.rsplit_once(')')?;
    let times = fields.split_whitespace().skip(11).take(4);
    times.map(|n| n.parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read() {
        assert_eq!(all("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1\n"), Some(27.0));
        assert_eq!(all("intr 1 2 3\n"), None);
        assert_eq!(all("cpu  1 2\n"), None);
        let process = "42 (a ) b) R 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0 2 0\n";
        assert_eq!(own(process), Some(127.0));
        assert_eq!(own("42 (short) R 1"), Some(0.0));
    }

    #[test]
    fn others_are_no_less_than_none() {
        let clock = Clock::now();
        assert!(clock.and_then(|c| c.others()).is_none_or(|o| o >= 0.0));
    }
}
