//! Requests a second that one model answers, by the number of threads that ask. Flows in: `--seconds`, how
//! long each count is measured; `--threads`, to measure that count alone; `--processes`, to measure that
//! many threads beside as many processes of one thread each; and `--traced`, to write down each request's
//! expressions anew instead of calling the captured function. Flows out: a line each, with how many times the
//! rate of one thread, or of the processes, it is.

use monoglot::prelude::*;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

struct Mlp {
    first: Linear,
    second: Linear,
    head: Linear,
}
module!(Mlp {
    first,
    second,
    head
});

impl Mlp {
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = self.first.forward(x).relu();
        self.head.forward(&self.second.forward(&x).relu())
    }
}

const ROWS: usize = 16;
const WIDTH: usize = 256;

/// What answers a request: rows as they come in, the answer as numbers.
type Answer<'a> = dyn Fn(&[f32]) -> Result<Vec<f32>> + Sync + 'a;

/// Requests a second with so many threads.
fn rate(answer: &Answer, threads: usize, time: Duration) -> Result<f64> {
    let begin = Barrier::new(threads + 1);
    let stop = AtomicBool::new(false);
    let asked = AtomicU64::new(0);
    let ask = |k: usize| -> Result<()> {
        let rows: Vec<f32> = (0..ROWS * WIDTH).map(|i| ((i + k) as f32).sin()).collect();
        let first = answer(&rows);
        begin.wait();
        first?;
        while !stop.load(Ordering::Relaxed) {
            answer(&rows)?;
            asked.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let ask = &ask;
        let askers: Vec<_> = (0..threads).map(|k| scope.spawn(move || ask(k))).collect();
        begin.wait();
        let start = Instant::now();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let asked = asked.load(Ordering::Relaxed);
        let seconds = start.elapsed().as_secs_f64();
        for asker in askers {
            asker.join().expect("no thread panics")?;
        }
        Ok(asked as f64 / seconds)
    })
}

/// Times that threads and processes are measured, in turn.
const ROUNDS: usize = 15;

/// The rate of so many threads and, in turn with it, that of as many processes.
fn beside(answer: &Answer, count: usize, time: Duration) -> Result<()> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let threads = rate(answer, count, time)?;
        let processes = of_processes(count, time).map_err(|e| {
            let message = format!("processes of this program: {e}");
            Error::argument("serving", message)
        })?;
        rounds.push([threads, processes, threads / processes]);
    }
    let [threads, processes, ratio] = [0, 1, 2].map(|k| {
        rounds.sort_by(|a, b| a[k].total_cmp(&b[k]));
        rounds[ROUNDS / 2][k]
    });
    println!("{count} threads: {threads:.0} requests/s");
    println!("{count} processes: {processes:.0} requests/s");
    println!("threads beside processes: {ratio:.2} times");
    Ok(())
}

/// Requests a second of so many processes together, each of one thread, with a model of its own.
fn of_processes(count: usize, time: Duration) -> std::io::Result<f64> {
    let this = std::env::current_exe()?;
    let seconds = time.as_secs_f64().to_string();
    let mut started = Vec::with_capacity(count);
    for _ in 0..count {
        let mut process = Command::new(&this);
        process.args(["--threads", "1", "--seconds", &seconds]);
        process.args(given("--traced").then_some("--traced"));
        process.env("MONOGLOT_THREADS", "1").stdout(Stdio::piped());
        started.push(process.spawn()?);
    }
    let mut sum = 0.0;
    for process in started {
        let said = String::from_utf8_lossy(&process.wait_with_output()?.stdout).into_owned();
        let number = said.trim().strip_suffix(" requests/s");
        let number = number.and_then(|n| n.rsplit(' ').next()?.parse::<f64>().ok());
        sum += number.ok_or_else(|| std::io::Error::other(format!("one said `{said}`")))?;
    }
    Ok(sum)
}

/// Whether an option is given.
fn given(name: &str) -> bool {
    std::env::args().any(|a| a == name)
}

/// What is given for an option.
fn option<T: std::str::FromStr>(name: &str) -> Option<T> {
    let mut arguments = std::env::args().skip_while(|a| a != name).skip(1);
    arguments.next()?.parse().ok()
}

fn main() -> Result<()> {
    let time = Duration::from_secs_f64(option("--seconds").unwrap_or(2.0));
    let model = Mlp {
        first: Linear::new(WIDTH, WIDTH),
        second: Linear::new(WIDTH, WIDTH),
        head: Linear::new(WIDTH, 10),
    };
    Tensor::realize_all(&model.parameters().iter().collect::<Vec<_>>())?;
    let input = |rows: &[f32]| Tensor::new(rows, [ROWS, WIDTH]);
    let forward = jit(|x: &Tensor| model.forward(x))?;
    let captured = |rows: &[f32]| forward.call(input(rows))?.to_vec();
    let traced = |rows: &[f32]| model.forward(&input(rows)).to_vec();
    let answer: &Answer = match given("--traced") {
        true => &traced,
        false => &captured,
    };
    if let Some(count) = option("--processes") {
        return beside(answer, count, time);
    }
    if let Some(threads) = option("--threads") {
        println!(
            "{threads} threads: {:.0} requests/s",
            rate(answer, threads, time)?
        );
        return Ok(());
    }
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let one = rate(answer, 1, time)?;
    println!("1 thread: {one:.0} requests/s");
    let mut threads = 2;
    while threads <= 2 * cores {
        let many = rate(answer, threads, time)?;
        println!(
            "{threads} threads: {many:.0} requests/s, {:.2} times",
            many / one
        );
        threads *= 2;
    }
    Ok(())
}
