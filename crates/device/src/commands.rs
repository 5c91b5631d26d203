//! Command buffers: launches that are written down once and run as often as one likes, each time on other
//! storage. Flows in: kernels with their arguments, which are parts of what stands in two tables, and loops around
//! some of them; flows out: what the kernels write into the storage that stands in those places.
//!
//! Invariant: a run checks the tables against what all its kernels take in all rounds, and claims every memory
//! once, before its first kernel; so a launch costs what its kernel does, and little more.

use crate::kernel::{Arguments, Kernel, Signature};
use crate::storage::{Storage, claim};
use monoglot_uop::{Error, ErrorKind, Result};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// Work whose arguments are given by place.
pub struct Command {
    /// What is done.
    pub work: Work,
    /// Where its storage is, in the order of its PARAMs.
    pub storages: Vec<Place>,
    /// The places of its variables.
    pub words: Vec<usize>,
}

/// What a command does.
pub enum Work {
    /// A kernel of a device that runs at once (`Runtime::runs_at_once`).
    Launch(Arc<dyn Kernel>),
    /// So many bytes of argument 1 go to argument 0, both in host memory.
    Copy(usize),
}

/// Where an argument is: in the table of storage, from a byte on that may be another in each round of the loops.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place {
    /// The place in the table.
    pub at: usize,
    /// The byte in the first round.
    pub first: i64,
    /// For each loop around, the outermost first, how much further it is in the next round.
    pub further: Vec<i64>,
}

/// Commands that run again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    /// Which.
    pub commands: Range<usize>,
    /// How often, at least once.
    pub rounds: i64,
}

impl From<usize> for Place {
    /// All of what is at this place.
    fn from(at: usize) -> Place {
        Place {
            at,
            ..Place::default()
        }
    }
}

/// Commands in order.
#[derive(Default)]
pub struct Commands {
    all: Vec<Command>,
    items: Vec<Item>,
    needs: Vec<Needed>,
    bounds: Vec<Bounds>,
    /// How many variables the table has at least.
    words: usize,
    launches: usize,
    copies: usize,
}

/// What stands in the order of commands.
enum Item {
    /// The command of this number.
    Command(usize),
    /// A loop begins.
    Begin,
    /// The loop ends that begins behind this item, after so many rounds.
    End(usize, i64),
}

/// What the commands together take at one place of the table of storage.
struct Needed {
    at: usize,
    bytes: usize,
    align: usize,
    writes: bool,
    /// A command that takes most.
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
    /// Write down commands without loops.
    ///
    /// # Errors
    /// As `looped`.
    pub fn new(all: Vec<Command>) -> Result<Commands> {
        Commands::looped(all, &[])
    }

    /// Write down commands, and loops around some: a loop stands before those within it.
    ///
    /// # Errors
    /// `Run` where a command has not the arguments that its kernel takes, begins before its storage or between two
    /// elements, and where loops overlap.
    pub fn looped(all: Vec<Command>, loops: &[Loop]) -> Result<Commands> {
        let mut out = Commands::default();
        let mut needs: FxHashMap<usize, Needed> = FxHashMap::default();
        for (number, command) in all.iter().enumerate() {
            let around = loops.iter().filter(|l| l.commands.contains(&number));
            let around: Vec<i64> = around.map(|l| l.rounds).collect();
            let rounds = around.iter().product::<i64>() as usize;
            let mut take = |place: &Place, bytes: usize, align: usize, writes: bool| {
                let (least, most) = place.reach(&around);
                let even = |n: &i64| n % align.max(1) as i64 == 0;
                if least < 0 || !even(&place.first) || !place.further.iter().all(even) {
                    let message = "an argument begins before its storage, or between two elements";
                    return Err(command.fail(message.into()));
                }
                let need = needs.entry(place.at).or_insert(Needed {
                    at: place.at,
                    bytes: 0,
                    align: 1,
                    writes: false,
                    command: number,
                });
                let end = bytes + most as usize;
                if end > need.bytes {
                    need.bytes = end;
                    need.command = number;
                }
                need.align = need.align.max(align);
                need.writes |= writes;
                Ok(())
            };
            match &command.work {
                Work::Launch(kernel) => {
                    let signature = kernel.signature();
                    signature.count(command.storages.len(), command.words.len())?;
                    for (place, need) in command.storages.iter().zip(signature.needs()) {
                        take(place, need.bytes, need.align, need.writes)?;
                    }
                    out.launches += rounds;
                }
                Work::Copy(bytes) => {
                    let [to, from] = &command.storages[..] else {
                        return Err(command.fail("a copy is from one storage to another".into()));
                    };
                    take(to, *bytes, 1, true)?;
                    take(from, *bytes, 1, false)?;
                    out.copies += rounds;
                }
            }
            out.words = command.words.iter().fold(out.words, |n, &at| n.max(at + 1));
            let bounds = command.signature().map_or(&[][..], Signature::bounds);
            for (&at, range) in command.words.iter().zip(bounds) {
                if let Some((least, most)) = *range {
                    out.bounds.push(Bounds {
                        at,
                        least,
                        most,
                        command: number,
                    });
                }
            }
        }
        out.needs.extend(needs.into_values());
        out.needs.sort_by_key(|n| n.at);
        out.items = items(all.len(), loops)?;
        out.all = all;
        Ok(out)
    }

    /// How many launches a run does, all rounds of loops counted.
    pub fn launches(&self) -> usize {
        self.launches
    }

    /// How many copies a run does.
    pub fn copies(&self) -> usize {
        self.copies
    }

    /// Run all commands to their end, on this storage and these variables.
    ///
    /// # Errors
    /// `Run` where storage is missing, too small, not in host memory or between two elements, or where a
    /// variable is missing or out of bounds: then nothing ran. And what a kernel gives.
    pub fn run(&self, storages: &[Arc<Storage>], words: &[i64]) -> Result<()> {
        self.run_heeding(storages, words, |_| Ok(()))
    }

    /// As `run`, where `before` is asked before each command, by number, whether it is to be.
    ///
    /// # Errors
    /// As `run`, and those of `before`: then that command, and what stands behind it, did not run.
    pub fn run_heeding(
        &self,
        storages: &[Arc<Storage>],
        words: &[i64],
        mut before: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        if words.len() < self.words {
            let message = format!("{} variables of {}", words.len(), self.words);
            return Err(failed(message));
        }
        for bounds in &self.bounds {
            let Bounds { least, most, .. } = *bounds;
            let word = words[bounds.at];
            if !(least..=most).contains(&word) {
                let message = format!("a variable is {word}; it is from {least} to {most}");
                return Err(self.all[bounds.command].fail(message));
            }
        }
        let mut pointers: SmallVec<[*mut u8; 64]> = SmallVec::new();
        pointers.resize(storages.len(), std::ptr::null_mut());
        for place in &self.needs {
            let fail = |message: String| Err(self.all[place.command].fail(message));
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
        let mut rounds: SmallVec<[i64; 4]> = SmallVec::new();
        let mut next = 0;
        while let Some(item) = self.items.get(next) {
            next += 1;
            match *item {
                Item::Begin => rounds.push(0),
                Item::End(begin, count) => {
                    let round = rounds.last_mut().expect("a loop that ends has begun");
                    *round += 1;
                    if *round < count {
                        next = begin;
                    } else {
                        rounds.pop();
                    }
                }
                Item::Command(number) => {
                    before(number)?;
                    let command = &self.all[number];
                    let pointer = |p: &Place| p.within(pointers[p.at], &rounds);
                    match &command.work {
                        Work::Launch(kernel) => {
                            variables.clear();
                            variables.extend(command.words.iter().map(|&at| words[at]));
                            let pointers = command.storages.iter().map(pointer);
                            let arguments = Arguments::of_claimed(pointers.collect(), &variables);
                            kernel.run(&arguments)?;
                        }
                        Work::Copy(bytes) => {
                            let to = pointer(&command.storages[0]);
                            let from = pointer(&command.storages[1]);
                            // SAFETY: both are in claimed host memory, and so many bytes from them on are too:
                            // `looped` has taken down how far they go in all rounds, and the tables were
                            // checked against that above. They may overlap.
                            unsafe { std::ptr::copy(from, to, *bytes) };
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

impl Place {
    /// The least and the greatest byte at which it is, in loops of so many rounds.
    fn reach(&self, rounds: &[i64]) -> (i64, i64) {
        let ways = self.further.iter().zip(rounds);
        let ways = ways.map(|(further, n)| further.saturating_mul(n - 1));
        ways.fold((self.first, self.first), |(least, most), way| {
            (
                least.saturating_add(way.min(0)),
                most.saturating_add(way.max(0)),
            )
        })
    }

    /// Where it is in these rounds.
    fn within(&self, start: *mut u8, rounds: &[i64]) -> *mut u8 {
        let ways = self.further.iter().zip(rounds);
        let at = ways.fold(self.first, |at, (further, round)| at + further * round);
        start.wrapping_offset(at as isize)
    }
}

impl Command {
    fn signature(&self) -> Option<&Signature> {
        match &self.work {
            Work::Launch(kernel) => Some(kernel.signature()),
            Work::Copy(_) => None,
        }
    }

    fn fail(&self, message: String) -> Error {
        match self.signature() {
            Some(signature) => signature.fail(message),
            None => failed(format!("a copy: {message}")),
        }
    }
}

fn failed(message: String) -> Error {
    ErrorKind::Run { message }.into()
}

/// So many commands in order, and where loops begin and end.
fn items(count: usize, loops: &[Loop]) -> Result<Vec<Item>> {
    let mut items = Vec::with_capacity(count + 2 * loops.len());
    let mut open: Vec<(usize, &Loop)> = Vec::new();
    let mut next = loops.iter().peekable();
    for number in 0..=count {
        while let Some((begin, ends)) = open.pop_if(|(_, l)| l.commands.end == number) {
            items.push(Item::End(begin, ends.rounds));
        }
        while let Some(begins) = next.next_if(|l| l.commands.start == number) {
            let inside = open
                .last()
                .is_none_or(|(_, l)| begins.commands.end <= l.commands.end);
            if !inside || begins.commands.is_empty() || begins.rounds < 1 {
                return Err(failed("loops that overlap, or have nothing to do".into()));
            }
            items.push(Item::Begin);
            open.push((items.len(), begins));
        }
        if number < count {
            items.push(Item::Command(number));
        }
    }
    match (open.is_empty(), next.next()) {
        (true, None) => Ok(items),
        _ => Err(failed("a loop that is not around commands".into())),
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
            work: Work::Launch(kernel.clone()),
            storages: storages.map(Place::from).into(),
            words: vec![word],
        };
        let all = vec![command([1, 0], 0), command([2, 1], 1), command([0, 2], 0)];
        let commands = Commands::new(all).expect("they fit");
        assert_eq!(commands.launches(), 3);
        for _ in 0..2 {
            let table = [storage(16), storage(16), storage(64)];
            commands.run(&table, &[2, 5]).expect("it runs");
            assert_eq!(table.each_ref().map(|s| first(s)), [10, 3, 8]);
        }
    }

    #[test]
    fn loops_take_the_next_part_each_round() {
        let kernel = adding();
        let place = |at, first, further: &[i64]| Place {
            at,
            first,
            further: further.to_vec(),
        };
        let adds = |to, from| Command {
            work: Work::Launch(kernel.clone()),
            storages: vec![to, from],
            words: vec![0],
        };
        let copies = Command {
            work: Work::Copy(16),
            storages: vec![place(1, 0, &[96, 16]), place(2, 0, &[])],
            words: Vec::new(),
        };
        // Parts of the first, from the last to the first one, each plus 3; and in an outer round once more.
        let all = vec![adds(place(2, 0, &[]), place(0, 32, &[0, -16])), copies];
        let around = |rounds| Loop {
            commands: 0..2,
            rounds,
        };
        let loops = [around(2), around(3)];
        let commands = Commands::looped(all, &loops).expect("they fit");
        assert_eq!((commands.launches(), commands.copies()), (6, 6));
        let table = [storage(48), storage(192), storage(16)];
        let parts = [1, 2, 4];
        for (k, value) in parts.iter().enumerate() {
            table[0].write(16 * k, &[*value]).expect("within it");
        }
        commands.run(&table, &[3]).expect("it runs");
        let mut out = [0; 192];
        table[1].read(0, &mut out).expect("it has them");
        let firsts: Vec<u8> = out.iter().step_by(16).copied().take(9).collect();
        assert_eq!(firsts, [7, 5, 4, 1, 1, 1, 7, 5, 4]);
        let short = [storage(48), storage(128), storage(16)];
        let error = commands.run(&short, &[3]).expect_err("too short");
        assert!(error.to_string().contains("128 bytes"), "{error}");
        assert_eq!(first(&short[1]), 1, "nothing ran");
        let before = vec![adds(place(2, 0, &[]), place(0, 16, &[-16]))];
        let three = Loop {
            commands: 0..1,
            rounds: 3,
        };
        assert!(Commands::looped(before, &[three]).is_err());
        let overlapping = [(0..2), (1..3)].map(|commands| Loop {
            commands,
            rounds: 2,
        });
        let adds = || adds(place(2, 0, &[]), place(0, 0, &[]));
        assert!(Commands::looped(vec![adds(), adds(), adds()], &overlapping).is_err());
    }

    #[test]
    fn what_does_not_fit_is_refused_before_anything_runs() {
        let kernel = adding();
        let command = |storages: Vec<usize>, words: Vec<usize>| Command {
            work: Work::Launch(kernel.clone()),
            storages: storages.into_iter().map(Place::from).collect(),
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
