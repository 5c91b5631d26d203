//! Texts that almost say something valid. Flows in: a seed; flows out: the text of a valid graph of some
//! stage in which a few things were changed, and what the compiler makes of it.
//!
//! Whatever a text says, each pass that its stage's spec lets it through to gives a result or a typed
//! error. What cannot be caught in a process (aborts, overflowing stacks, hangs) is caught around it: see
//! `workers`. Nothing that the C compiler has made runs here; the interpreter runs what is small.

mod seeds;
mod stages;
mod vary;
mod workers;

pub use stages::Seen;
pub use workers::{Limits, texts, work};

use crate::program::Dice;
use monoglot_uop::Result;
use monoglot_uop::text::parse_many;

/// The changed texts, by seed.
pub struct Texts {
    seeds: seeds::Seeds,
    stages: stages::Stages,
}

impl Texts {
    /// Those over the file tests of this repository, and random programs.
    ///
    /// # Errors
    /// Where a device cannot be opened.
    pub fn new() -> Result<Texts> {
        let stages = stages::Stages::new()?;
        Ok(Texts {
            seeds: seeds::Seeds::new(),
            stages,
        })
    }

    /// The text of a seed. Most changes give what does not parse: of several, the first that does.
    pub fn text(&self, seed: u64) -> String {
        let mut dice = Dice::new(seed ^ 0x7e87_0000_0000);
        let valid = self.seeds.pick(&mut dice, &self.stages);
        let mut text = vary::vary(&valid, &mut dice);
        for _ in 0..dice.roll(8) {
            if parse_many(&text).is_ok() {
                break;
            }
            text = vary::vary(&valid, &mut dice);
        }
        text
    }

    /// Take a text as far as it goes; `stage` hears where it is.
    ///
    /// # Errors
    /// What is wrong with the compiler: a value that differs from the oracle's, a text that does not come
    /// back as it was printed.
    pub fn run(
        &self,
        text: &str,
        stage: &mut dyn FnMut(&str),
    ) -> std::result::Result<Seen, String> {
        self.stages.run(text, stage)
    }
}
