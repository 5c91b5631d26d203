//! Learns to read MNIST's digits from a folder of IDX files, plain or gzipped:
//! `cargo run --release --example mnist -- DIR [--seed N] [--epochs N]`.
mod common;
use clap::Parser;
use monoglot::models::ConvNet;
use monoglot::prelude::*;
use std::process::ExitCode;

/// Train on a folder's train-* files and test on its t10k-* files; where only those are there, train on
/// their first four fifths and test on the rest.
#[derive(Parser)]
struct Args {
    /// The folder
    dir: std::path::PathBuf,
    /// Of everything that is random
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Passes over the training images
    #[arg(long, default_value_t = 5)]
    epochs: usize,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let rate = 2e-3;
    Tensor::manual_seed(args.seed);
    let (train, test) = data::mnist(&args.dir)?;
    println!(
        "{} images to learn from, {} to test on",
        train.len(),
        test.len()
    );
    let net = ConvNet::new();
    let adam = Adam::new(&net, rate);
    let bar = common::progress(args.epochs * (train.len() / 100));
    for epoch in 0..args.epochs {
        adam.set_rate(rate * (1.0 - epoch as f64 / args.epochs as f64));
        for rows in train.shuffled(100)? {
            let (images, labels) = train.batch(&rows);
            let scores = net.forward(&images);
            adam.step(&scores.cross_entropy(&labels, Reduction::Mean, 0.0))?;
            bar.inc(1);
        }
    }
    common::finish(&bar, &net, |x| net.forward(x), &test)
}
