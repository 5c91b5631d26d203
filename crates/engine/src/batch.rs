//! The steps of a program as few things to submit. Flows in: steps; flows out: parts, each a list of commands
//! that its device runs at once, or a single step for a queue; with what has to be known before it begins.
//!
//! Invariant: the parts are the steps in their order, each once. What a program asserts, and knows by then, is
//! read before a part that writes in place.

use crate::executable::{self, Action, Executable, LoopList, Slot, Step};
use monoglot_device::{Command, Commands, Loop, Place, Work, open};
use monoglot_uop::Result;
use std::ops::Range;

/// Some steps.
pub(crate) struct Part {
    /// The steps.
    pub(crate) steps: Range<usize>,
    /// They as commands, whose places are those of PARAMs and then of allocations; None where they go to a
    /// queue.
    pub(crate) commands: Option<Commands>,
    /// The checks that are read before them.
    pub(crate) checks: Range<usize>,
    /// The PARAMs that they write.
    pub(crate) writes: Vec<usize>,
}

/// The parts of a program of so many PARAMs, and behind them the checks that are read last.
pub(crate) fn parts(executable: &Executable, params: usize) -> Result<(Vec<Part>, Range<usize>)> {
    let mut out: Vec<Part> = Vec::new();
    let mut list = List::default();
    let mut read = 0;
    let mut loops = executable.outermost().peekable();
    let mut k = 0;
    while k < executable.steps.len() {
        let first = read;
        let around = loops.next_if(|l| l.steps.start == k);
        let steps = around.map_or(k..k + 1, |l| l.steps.clone());
        let writes = executable.steps[steps.clone()]
            .iter()
            .flat_map(|s| &s.writes);
        let writes: Vec<usize> = writes.copied().collect();
        if !writes.is_empty() {
            let known = |c: &&crate::check::Check| c.step < k;
            read += executable.checks[read..].iter().take_while(known).count();
        }
        let more = List::of(executable, steps.clone(), params)?;
        let joins = out.last().is_some_and(|p| p.commands.is_some()) && first == read;
        if more.is_none() || !joins {
            close(&mut out, &mut list)?;
            out.push(Part {
                steps: k..k,
                commands: more.is_some().then(Commands::default),
                checks: first..read,
                writes: Vec::new(),
            });
        }
        if let Some(more) = more {
            list.join(more);
        }
        let part = out.last_mut().expect("a part was begun");
        part.steps.end = steps.end;
        part.writes.extend(writes);
        k = steps.end;
    }
    close(&mut out, &mut list)?;
    Ok((out, read..executable.checks.len()))
}

/// The loops of a program of so many PARAMs that are in no other.
pub(crate) fn loops(executable: &Executable, params: usize) -> Result<&[LoopList]> {
    if let Some(known) = executable.lists.get() {
        return Ok(known);
    }
    let mut lists = Vec::new();
    for around in executable.outermost() {
        let list = List::of(executable, around.steps.clone(), params)?;
        lists.push(LoopList {
            steps: around.steps.clone(),
            commands: list.map(List::commands).transpose()?,
        });
    }
    Ok(executable.lists.get_or_init(|| lists))
}

/// Commands that are being written down.
#[derive(Default)]
struct List {
    commands: Vec<Command>,
    loops: Vec<Loop>,
}

impl List {
    /// These steps, each a command, with the loops among them; None where a device runs one of them later, or
    /// where it is none.
    fn of(executable: &Executable, steps: Range<usize>, params: usize) -> Result<Option<List>> {
        let mut list = List::default();
        for k in steps.clone() {
            match command(&executable.steps[k], params)? {
                Some(command) => list.commands.push(command),
                None => return Ok(None),
            }
        }
        let within =
            |l: &&executable::Loop| steps.start <= l.steps.start && l.steps.end <= steps.end;
        let loops = executable.loops.iter().filter(within);
        for l in loops.filter(|l| !l.steps.is_empty()) {
            list.loops.push(Loop {
                commands: l.steps.start - steps.start..l.steps.end - steps.start,
                rounds: l.rounds,
            });
        }
        Ok(Some(list))
    }

    fn join(&mut self, other: List) {
        let begin = self.commands.len();
        self.commands.extend(other.commands);
        self.loops.extend(other.loops.into_iter().map(|l| Loop {
            commands: l.commands.start + begin..l.commands.end + begin,
            ..l
        }));
    }

    fn commands(self) -> Result<Commands> {
        Commands::looped(self.commands, &self.loops)
    }
}

/// Give the last part its commands.
fn close(parts: &mut [Part], list: &mut List) -> Result<()> {
    if let Some(part) = parts.last_mut().filter(|_| !list.commands.is_empty()) {
        part.commands = Some(std::mem::take(list).commands()?);
    }
    Ok(())
}

/// A step as a command in a list; None where its device runs it later, or where it is none.
fn command(step: &Step, params: usize) -> Result<Option<Command>> {
    if !open(step.device)?.runs_at_once() {
        return Ok(None);
    }
    let mut storages: Vec<Place> = Vec::new();
    let mut words = Vec::new();
    for (k, slot) in step.args.iter().enumerate() {
        let at = match *slot {
            Slot::Param(i) => i,
            Slot::Allocation(i) => params + i,
            Slot::Word(i) => {
                words.push(i);
                continue;
            }
        };
        let part = step.parts.iter().find(|p| p.argument == k);
        storages.push(Place {
            at,
            first: part.map_or(0, |p| p.first),
            further: part.map_or(Vec::new(), |p| p.further.clone()),
        });
    }
    let work = match &step.action {
        Action::Launch(kernel) => Work::Launch(kernel.clone()),
        Action::Copy {
            from,
            count,
            element,
            source,
        } => {
            let numbers = (from.as_int(), count.as_int(), source);
            let (Some(start), Some(count), Some(source)) = numbers else {
                return Ok(None);
            };
            if !open(*source)?.runs_at_once() || storages.len() != 2 {
                return Ok(None);
            }
            storages[1].first += start * *element as i64;
            Work::Copy(count as usize * element)
        }
    };
    Ok(Some(Command {
        work,
        storages,
        words,
    }))
}
