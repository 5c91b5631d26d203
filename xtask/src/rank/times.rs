//! Measured times, kept in a file: a line a schedule with the kernel's name, the Opts and seconds, parted by
//! tabs. Flows in: a file; flows out: times of schedules, and the same file with new ones.

use monoglot_uop::Opt;
use rustc_hash::FxHashMap;
use std::io::Write;

/// What is known, and where it is kept.
pub(super) struct Times {
    path: Option<String>,
    seconds: FxHashMap<String, f64>,
}

fn key(name: &str, opts: &[Opt]) -> String {
    let opts: Vec<String> = opts.iter().map(Opt::to_string).collect();
    format!("{name}\t{}", opts.join(" "))
}

impl Times {
    /// What a file holds, if there is one.
    pub(super) fn read(path: Option<&str>) -> Times {
        let text = path.and_then(|p| std::fs::read_to_string(p).ok());
        let lines = text.iter().flat_map(|t| t.lines());
        let pair = |line: &str| {
            let (key, seconds) = line.rsplit_once('\t')?;
            Some((key.to_string(), seconds.parse().ok()?))
        };
        Times {
            path: path.map(String::from),
            seconds: lines.filter_map(pair).collect(),
        }
    }

    /// The times of these schedules, where all are known.
    pub(super) fn of(&self, name: &str, schedules: &[Vec<Opt>]) -> Option<Vec<f64>> {
        let one = |opts: &Vec<Opt>| self.seconds.get(&key(name, opts)).copied();
        schedules.iter().map(one).collect()
    }

    /// Keep what was measured. A file that cannot be written keeps nothing, and measuring goes on.
    pub(super) fn add(&mut self, name: &str, schedules: &[Vec<Opt>], seconds: &[f64]) {
        let Some(path) = &self.path else { return };
        let mut options = std::fs::OpenOptions::new();
        let file = options.append(true).create(true).open(path);
        let Ok(mut file) = file else { return };
        for (opts, s) in schedules.iter().zip(seconds) {
            let _ = writeln!(file, "{}\t{s:e}", key(name, opts));
        }
    }
}
