//! What the examples share: the progress bar, the seed, the test. Flows in: arguments, a trained
//! network; flows out: lines on the terminal.
#![allow(dead_code, reason = "each example uses its part")]

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use monoglot::nn::data::Images;
use monoglot::prelude::*;

#[derive(Parser)]
struct Args {
    /// Of everything that is random
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// The seed that the command line asks for.
pub(crate) fn seed() -> u64 {
    Args::parse().seed
}

/// A bar of so many steps.
pub(crate) fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    let style = ProgressStyle::with_template("training {wide_bar} {pos}/{len} {elapsed}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// End the bar and print how many of the images `forward` reads right.
pub(crate) fn finish(
    bar: &ProgressBar,
    net: &dyn Module,
    forward: impl Fn(&Tensor) -> Tensor,
    test: &Images,
) -> Result<()> {
    bar.finish_and_clear();
    net.eval();
    let rows: Vec<usize> = (0..test.len()).collect();
    let mut right = 0;
    for rows in rows.chunks(500) {
        let (images, labels) = test.batch(rows);
        let hits = forward(&images).argmax(1, false).eq(&labels).sum(.., false);
        right += hits.item::<i64>()?;
    }
    println!(
        "test accuracy {:.1}%",
        100.0 * right as f64 / test.len().max(1) as f64
    );
    Ok(())
}
