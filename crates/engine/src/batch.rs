//! The steps of a program as few things to submit. Flows in: steps; flows out: parts, each a list of launches
//! that its device runs at once, or a single step for a queue; with what has to be known before it begins.
//!
//! Invariant: the parts are the steps in their order, each once. What a program asserts, and knows by then, is
//! read before a part that writes in place.

use crate::executable::{Action, Executable, Slot, Step};
use monoglot_device::{Command, Commands, open};
use monoglot_uop::Result;
use std::ops::Range;

/// Some steps.
pub(crate) struct Part {
    /// The steps.
    pub(crate) steps: Range<usize>,
    /// They as launches, whose places are those of PARAMs and then of allocations; None where they go to a
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
    let mut open_list: Vec<Command> = Vec::new();
    let mut read = 0;
    let mut loops = executable.loops.iter().peekable();
    let mut k = 0;
    while k < executable.steps.len() {
        // A loop is a part of its own.
        if let Some(around) = loops.next_if(|l| l.steps.start == k) {
            close(&mut out, &mut open_list)?;
            out.push(Part {
                steps: around.steps.clone(),
                commands: None,
                checks: read..read,
                writes: Vec::new(),
            });
            k = around.steps.end;
            continue;
        }
        let step = &executable.steps[k];
        let first = read;
        if !step.writes.is_empty() {
            let known = |c: &&crate::check::Check| c.step < k;
            read += executable.checks[read..].iter().take_while(known).count();
        }
        let command = command(step, params)?;
        let joins = out.last().is_some_and(|p| p.commands.is_some()) && first == read;
        if command.is_none() || !joins {
            close(&mut out, &mut open_list)?;
            out.push(Part {
                steps: k..k,
                commands: command.is_some().then(Commands::default),
                checks: first..read,
                writes: Vec::new(),
            });
        }
        open_list.extend(command);
        let part = out.last_mut().expect("a part was begun");
        part.steps.end = k + 1;
        part.writes.extend(&step.writes);
        k += 1;
    }
    close(&mut out, &mut open_list)?;
    Ok((out, read..executable.checks.len()))
}

/// Give the last part its launches.
fn close(parts: &mut [Part], list: &mut Vec<Command>) -> Result<()> {
    if let Some(part) = parts.last_mut().filter(|_| !list.is_empty()) {
        part.commands = Some(Commands::new(std::mem::take(list))?);
    }
    Ok(())
}

/// A step as a launch in a list; None where its device runs it later, or where it is none.
fn command(step: &Step, params: usize) -> Result<Option<Command>> {
    let Action::Launch(kernel) = &step.action else {
        return Ok(None);
    };
    if !step.parts.is_empty() {
        return Ok(None);
    }
    if !open(step.device)?.runs_at_once() {
        return Ok(None);
    }
    let mut storages = Vec::new();
    let mut words = Vec::new();
    for slot in &step.args {
        match *slot {
            Slot::Param(i) => storages.push(i),
            Slot::Allocation(i) => storages.push(params + i),
            Slot::Word(i) => words.push(i),
        }
    }
    Ok(Some(Command {
        kernel: kernel.clone(),
        storages,
        words,
    }))
}
