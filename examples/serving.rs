//! Requests a second that one model answers, by the number of threads that ask. Flows in: `--seconds`, how
//! long each count is measured, and `--threads`, to measure that count alone; flows out: a line each, with
//! how many times the rate of one thread it is.

use monoglot::prelude::*;
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

/// One request: rows as they come in, and the answer as numbers.
fn answer(model: &Mlp, rows: &[f32]) -> Result<Vec<f32>> {
    model.forward(&Tensor::new(rows, [ROWS, WIDTH])).to_vec()
}

/// Requests a second with so many threads.
fn rate(model: &Mlp, threads: usize, time: Duration) -> Result<f64> {
    let begin = Barrier::new(threads + 1);
    let stop = AtomicBool::new(false);
    let asked = AtomicU64::new(0);
    let ask = |k: usize| -> Result<()> {
        let rows: Vec<f32> = (0..ROWS * WIDTH).map(|i| ((i + k) as f32).sin()).collect();
        let first = answer(model, &rows);
        begin.wait();
        first?;
        while !stop.load(Ordering::Relaxed) {
            answer(model, &rows)?;
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
    if let Some(threads) = option("--threads") {
        println!(
            "{threads} threads: {:.0} requests/s",
            rate(&model, threads, time)?
        );
        return Ok(());
    }
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let one = rate(&model, 1, time)?;
    println!("1 thread: {one:.0} requests/s");
    let mut threads = 2;
    while threads <= 2 * cores {
        let many = rate(&model, threads, time)?;
        println!(
            "{threads} threads: {many:.0} requests/s, {:.2} times",
            many / one
        );
        threads *= 2;
    }
    Ok(())
}
