//! Texts in processes of their own. Flows in: seeds; flows out: those that no process survives, or takes too
//! long for, besides what a process finds itself.
//!
//! A worker says on its standard output where it is: `seed N`, `stage TEXT`, and then `seen WHAT` or `wrong
//! TEXT`. The last of its words tell what it died of.

use super::{Seen, Texts};
use crate::check::Tally;
use monoglot_uop::{Error, ErrorKind, Result};
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// What one text may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Seconds of one stage.
    pub seconds: u64,
    /// Mebibytes of address space.
    pub mebibytes: u64,
}

/// How many texts there were of each kind.
#[derive(Default)]
struct Counts([u64; 5]);

const NAMES: [&str; 5] = ["unread", "refused", "failed", "passed", "compared"];

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Be a worker: take the texts of these seeds, and say how it goes.
///
/// # Errors
/// Where a device cannot be opened, or nobody listens.
pub fn work(seeds: Range<u64>, out: &mut dyn Write) -> Result<()> {
    set_hook(Box::new(|info| {
        let text = info.to_string().replace('\n', " ");
        PANIC.with_borrow_mut(|p| *p = text);
    }));
    let texts = Texts::new()?;
    let mut say = |line: String| {
        let written = writeln!(out, "{line}").and_then(|()| out.flush());
        written.map_err(|e| ErrorKind::Io {
            path: "-".into(),
            message: e.to_string(),
        })
    };
    for seed in seeds {
        say(format!("seed {seed}"))?;
        let mut stage = |s: &str| {
            let _ = say(format!("stage {s}"));
        };
        stage("make the text");
        let done = catch_unwind(AssertUnwindSafe(|| {
            texts.run(&texts.text(seed), &mut stage)
        }));
        let line = match done {
            Ok(Ok(seen)) => format!("seen {}", NAMES[seen as usize]),
            Ok(Err(wrong)) => format!("wrong {}", wrong.replace('\n', "\u{1}")),
            Err(_) => format!("wrong {}", PANIC.with_borrow(String::clone)),
        };
        say(line)?;
    }
    Ok(())
}

/// A worker, and what it says.
struct Worker {
    process: Child,
    lines: Receiver<String>,
}

impl Worker {
    /// The worker of these seeds: this program, called for that, with a limit to its memory.
    fn start(seeds: &Range<u64>, limits: Limits) -> Result<Worker> {
        let failed = |e: std::io::Error| -> Error {
            let message = format!("a worker does not start: {e}");
            ErrorKind::Run { message }.into()
        };
        let program = std::env::current_exe().map_err(failed)?;
        // Where there is no such limit, there is none.
        let limit = format!(
            "ulimit -v {} 2>/dev/null; exec \"$0\" \"$@\"",
            limits.mebibytes << 10
        );
        let count = seeds.end - seeds.start;
        let mut command = Command::new("sh");
        command.arg("-c").arg(limit).arg(program).arg("texts");
        command.args(["--worker", "--seed", &seeds.start.to_string()]);
        command.args(["--count", &count.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::null());
        let mut process = command.spawn().map_err(failed)?;
        let (send, lines) = channel();
        if let Some(out) = process.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(std::io::Result::ok) {
                    if send.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(Worker { process, lines })
    }

    fn end(mut self) -> String {
        let _ = self.process.kill();
        self.process
            .wait()
            .map_or_else(|e| e.to_string(), |s| s.to_string())
    }
}

/// Take the texts of these seeds, in processes; what is wrong is entered in the tally.
///
/// # Errors
/// Where no process can be started, or a device cannot be opened.
pub fn texts(seeds: Range<u64>, limits: Limits, tally: &mut Tally) -> Result<()> {
    let texts = Texts::new()?;
    let mut counts = Counts::default();
    let mut next = seeds.start;
    let mut idle = 0;
    while next < seeds.end {
        let started = next;
        let worker = Worker::start(&(next..seeds.end), limits)?;
        let mut seed = next;
        let mut stage = String::from("start");
        let mut wrong = None;
        loop {
            let line = match worker
                .lines
                .recv_timeout(Duration::from_secs(limits.seconds))
            {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    wrong = Some(format!("more than {} seconds", limits.seconds));
                    break;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match word {
                "seed" => seed = rest.parse().unwrap_or(seed),
                "stage" => stage = rest.into(),
                "wrong" => {
                    let message = rest.replace('\u{1}', "\n");
                    tally.wrong(seed, &stage, &message, texts.text(seed));
                    next = seed + 1;
                }
                "seen" => {
                    let kind = NAMES.iter().position(|n| *n == rest);
                    counts.0[kind.unwrap_or(Seen::Unread as usize)] += 1;
                    tally.looked();
                    next = seed + 1;
                }
                _ => {}
            }
            if next > seed && (next - seeds.start).is_multiple_of(500) {
                tally.tell(&format!(
                    "{} of {} texts: {counts}",
                    next - seeds.start,
                    seeds.end - seeds.start
                ));
            }
        }
        let ended = worker.end();
        if next < seeds.end {
            let message = wrong.unwrap_or_else(|| format!("the process ended: {ended}"));
            tally.wrong(next, &stage, &message, texts.text(next));
            next += 1;
        }
        // A worker that dies before its first text would be started for ever.
        idle = if next == started + 1 { idle + 1 } else { 0 };
        if idle > 50 {
            let message = "workers die one after the other".to_string();
            return Err(ErrorKind::Run { message }.into());
        }
    }
    tally.tell(&format!("{} texts: {counts}", seeds.end - seeds.start));
    Ok(())
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, (name, n)) in NAMES.iter().zip(self.0).enumerate() {
            write!(f, "{}{n} {name}", if i > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}
