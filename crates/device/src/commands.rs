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
        self.run_heeding(storages, words, |_| Ok(()))
    }

    /// As `run`, where `before` is asked before each launch, by number, whether it is to be.
    ///
    /// # Errors
    /// As `run`, and those of `before`: then that launch, and what stands behind it, did not run.
    pub fn run_heeding(
        &self,
        storages: &[Arc<Storage>],
        words: &[i64],
        mut before: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
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
        for (number, command) in self.all.iter().enumerate() {
            before(number)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use monoglot_uop::{Arg, DType, Device, Op, ProgramInfo, Shape, UOp};

    /// Adds its variable to the first byte of what it reads, and puts that in what it writes.
    struct Adding(Signature);

    impl Kernel for Adding {
        fn signature(&self) -> &Signature {
            &self.0
        }

        fn run(&self, arguments: &Arguments) -> Result<()> {
            let to = arguments.ptrs[0];
            let from = arguments.ptrs[1];
            // SAFETY: both have the bytes that the signature says, and are claimed.
            unsafe { *to = *from + arguments.vars[0] as u8 };
            Ok(())
        }
    }

    /// Of four floats each, and a variable from 0 to 9.
    fn adding() -> Arc<dyn Kernel> {
        let param = |slot| UOp::param(slot, &Shape::of(&[4]), DType::F32, Some(Device::new("CPU")));
        let all = vec![param(0), param(1), UOp::variable(2, 0, 9)];
        let linear = UOp::new(Op::Linear, all, Arg::None);
        let info = ProgramInfo {
            outs: vec![0],
            ins: vec![1],
            vars: vec![2],
            ..ProgramInfo::default()
        };
        Arc::new(Adding(Signature::of(&linear, &info)))
    }

    fn storage(bytes: usize) -> Arc<Storage> {
        let s = Storage::host(Device::new("CPU"), bytes).expect("a few bytes");
        s.write(0, &vec![1; bytes]).expect("within it");
        s
    }

    fn first(s: &Storage) -> u8 {
        let mut out = [0];
        s.read(0, &mut out).expect("it has a byte");
        out[0]
    }

    #[test]
    fn launches_run_in_order_on_what_stands_in_their_places() {
        let kernel = adding();
        let command = |storages: [usize; 2], word| Command {
            kernel: kernel.clone(),
            storages: storages.into(),
            words: vec![word],
        };
        let all = vec![command([1, 0], 0), command([2, 1], 1), command([0, 2], 0)];
        let commands = Commands::new(all).expect("they fit");
        assert_eq!(commands.len(), 3);
        for _ in 0..2 {
            let table = [storage(16), storage(16), storage(64)];
            commands.run(&table, &[2, 5]).expect("it runs");
            assert_eq!(table.each_ref().map(|s| first(s)), [10, 3, 8]);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_before_anything_runs() {
        let kernel = adding();
        let command = |storages: Vec<usize>, words: Vec<usize>| Command {
            kernel: kernel.clone(),
            storages,
            words,
        };
        assert!(Commands::new(vec![command(vec![0], vec![0])]).is_err());
        assert!(Commands::new(vec![command(vec![0, 1], vec![])]).is_err());
        let all = vec![command(vec![1, 0], vec![0]), command(vec![2, 1], vec![1])];
        let commands = Commands::new(all).expect("they fit");
        let odd = storage(32).slice(1, 16).expect("within it");
        for (third, words, why) in [
            (
                Some(storage(15)),
                vec![1, 1],
                "15 bytes for an argument of 16",
            ),
            (Some(odd), vec![1, 1], "between two elements"),
            (None, vec![1, 1], "missing"),
            (Some(storage(16)), vec![1], "1 variables of 2"),
            (Some(storage(16)), vec![1, 10], "it is from 0 to 9"),
        ] {
            let mut table = vec![storage(16), storage(16)];
            table.extend(third);
            let error = commands.run(&table, &words).expect_err(why);
            assert!(error.to_string().contains(why), "{error}");
            assert_eq!(first(&table[1]), 1, "nothing ran");
        }
    }
}
