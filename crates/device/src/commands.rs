//! Command buffers: launches that are written down once and run as often as one likes, each time on other
//! storage. Flows in: kernels with their arguments, which are numbers of places in two tables; flows out: what
//! the kernels write into the storage that stands in those places.
//!
//! Invariant: a run checks the tables against what all its kernels take, and claims every memory once,
//! before its first kernel; so a launch costs what its kernel does, and little more.

use crate::kernel::{Arguments, Kernel, Signature};
use crate::storage::{Storage, claim};
use monoglot_uop::Result;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// A launch whose arguments are given by place.
pub struct Command {
    /// A kernel of a device that runs at once (`Runtime::runs_at_once`).
    pub kernel: Arc<dyn Kernel>,
    /// The places of its storage, in the order of its PARAMs.
    pub storages: Vec<usize>,
    /// The places of its variables.
    pub words: Vec<usize>,
}

/// Launches in order.
#[derive(Default)]
pub struct Commands {
    all: Vec<Command>,
    needs: Vec<Place>,
    bounds: Vec<Bounds>,
    /// How many variables the table has at least.
    words: usize,
}

/// What the kernels together take at one place of the table of storage.
struct Place {
    at: usize,
    bytes: usize,
    align: usize,
    writes: bool,
    /// A launch that takes most.
    command: usize,
}

/// Between what a variable at one place is.
struct Bounds {
    at: usize,
    least: i64,
    most: i64,
    command: usize,
}

impl Commands {
    /// Write down launches.
    ///
    /// # Errors
    /// `Run` where one has not the arguments that its kernel takes.
    pub fn new(all: Vec<Command>) -> Result<Commands> {
        let mut needs: Vec<Place> = Vec::new();
        let mut place_of: FxHashMap<usize, usize> = FxHashMap::default();
        let mut bounds: Vec<Bounds> = Vec::new();
        let mut count = 0;
        for (number, command) in all.iter().enumerate() {
            let signature = command.kernel.signature();
            signature.count(command.storages.len(), command.words.len())?;
            for (&at, need) in command.storages.iter().zip(signature.needs()) {
                let k = *place_of.entry(at).or_insert_with(|| {
                    needs.push(Place {
                        at,
                        bytes: 0,
                        align: 1,
                        writes: false,
                        command: number,
                    });
                    needs.len() - 1
                });
                let place = &mut needs[k];
                if need.bytes > place.bytes {
                    place.bytes = need.bytes;
                    place.command = number;
                }
                place.align = place.align.max(need.align);
                place.writes |= need.writes;
            }
            count = command.words.iter().fold(count, |n, &at| n.max(at + 1));
            for (&at, range) in command.words.iter().zip(signature.bounds()) {
                if let Some((least, most)) = *range {
                    bounds.push(Bounds {
                        at,
                        least,
                        most,
                        command: number,
                    });
                }
            }
        }
        Ok(Commands {
            all,
            needs,
            bounds,
            words: count,
        })
    }

    /// How many launches there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Run all launches to their end, on this storage and these variables.
    ///
    /// # Errors
    /// `Run` where storage is missing, too small, not in host memory or between two elements, or where a
    /// variable is missing or out of bounds: then nothing ran. And what a kernel gives.
    pub fn run(&self, storages: &[Arc<Storage>], words: &[i64]) -> Result<()> {
        if words.len() < self.words {
            let message = format!("{} variables of {}", words.len(), self.words);
            return Err(self.signature(0).fail(message));
        }
        for bounds in &self.bounds {
            let Bounds { least, most, .. } = *bounds;
            let word = words[bounds.at];
            if !(least..=most).contains(&word) {
                let message = format!("a variable is {word}; it is from {least} to {most}");
                return Err(self.signature(bounds.command).fail(message));
            }
        }
        let mut pointers: SmallVec<[*mut u8; 64]> = SmallVec::new();
        pointers.resize(storages.len(), std::ptr::null_mut());
        for place in &self.needs {
            let fail = |message: String| Err(self.signature(place.command).fail(message));
            let Some(storage) = storages.get(place.at) else {
                return fail("an argument is missing".into());
            };
            let has = storage.bytes();
            if has < place.bytes {
                return fail(format!("{has} bytes for an argument of {}", place.bytes));
            }
            let Some(pointer) = storage.pointer() else {
                return fail(format!("{storage:?} is not in host memory"));
            };
            if !(pointer as usize).is_multiple_of(place.align) {
                return fail("an argument starts between two elements".into());
            }
            pointers[place.at] = pointer;
        }
        let wanted = self.needs.iter().map(|p| (&*storages[p.at], p.writes));
        let _claims = claim(wanted);
        let mut variables: SmallVec<[i64; 16]> = SmallVec::new();
        for command in &self.all {
            variables.clear();
            variables.extend(command.words.iter().map(|&at| words[at]));
            let pointers = command.storages.iter().map(|&at| pointers[at]);
            let arguments = Arguments::of_claimed(pointers.collect(), &variables);
            command.kernel.run(&arguments)?;
        }
        Ok(())
    }

    fn signature(&self, command: usize) -> &Signature {
        self.all[command].kernel.signature()
    }
}
