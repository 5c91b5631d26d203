//! A language model's next word as a saved program: made once, started by a process that traces, schedules and
//! compiles nothing. Flows in: `save FOLDER`, with how large the model is, or `start FOLDER`; flows out: the
//! folder, or how long starting it took, and the words that it goes on with.
//!
//! The weights are random: what is shown is how a program with a cache of keys and values is saved and called.

use clap::{Parser, Subcommand};
use monoglot::models::Gpt2;
use monoglot::prelude::*;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Make a model and save its step.
    Save {
        folder: PathBuf,
        #[arg(long, default_value_t = 4)]
        layers: usize,
        #[arg(long, default_value_t = 256)]
        width: usize,
        #[arg(long, default_value_t = 5000)]
        words: usize,
    },
    /// Start what was saved, and have it go on from a word.
    Start {
        folder: PathBuf,
        #[arg(long, default_value_t = 16)]
        count: usize,
    },
}

/// Positions that there is room for.
const ROOM: usize = 128;

fn save(folder: &Path, layers: usize, width: usize, words: usize) -> Result<()> {
    let model = Gpt2::with(layers, width, width / 64, words, ROOM);
    model.realize()?;
    let cache = model.cache(ROOM);
    let place = Variable::new(0..=ROOM as i64 - 1)?;
    // One word and its position in, the next word out; the keys and values are kept between calls.
    let step = jit(|word: Tensor, at: monoglot::Size| {
        let logits = model.decode(&word, &cache, &at);
        logits.argmax(-1, false).cast(DType::I32)
    })?;
    let word = Tensor::zeros([1, 1]).cast(DType::I32);
    let program = step.program((&word, &place.bind(0)?))?;
    let program = program.named(model.named())?;
    let program = program.with_inputs(["word", "position"])?;
    program.with_outputs(["next"])?.save(folder)
}

fn start(folder: &Path, count: usize) -> Result<()> {
    let begin = Instant::now();
    let program = Program::load(folder)?;
    let started = begin.elapsed();
    println!("{program:?}, {} kernels", program.kernels());
    let mut word = 7;
    let mut words = Vec::new();
    let begin = Instant::now();
    for position in 0..count.min(ROOM) {
        let given = program.call((&Tensor::new(&[word], [1, 1]), position))?;
        word = given[0].to_vec::<i32>()?[0];
        words.push(word);
    }
    let called = begin.elapsed();
    println!("{words:?}");
    println!(
        "started in {started:.2?}, {} words in {called:.2?}",
        words.len()
    );
    Ok(())
}

fn main() -> Result<()> {
    match Args::parse().what {
        What::Save {
            folder,
            layers,
            width,
            words,
        } => save(&folder, layers, width, words),
        What::Start { folder, count } => start(&folder, count),
    }
}
