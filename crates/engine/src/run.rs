//! One run of a executable. Flows in: the program, the BUFFERs of its PARAMs, those of them that it may write
//! over; flows out: BUFFERs that hold its results.
//!
//! Invariant: while a program runs its PARAMs are read by others at most, and those that it writes are its
//! own. A run that fails has changed nothing, unless it failed after its first store in place: then what
//! it wrote over is lost, and says so. A run that finds an assertion broken ends there: nothing is written
//! in place after that, and what was written before has its results.

use crate::batch;
use crate::cancel;
use crate::counters::{count, count_many};
use crate::executable::{Action, Executable, Invocation, LoopList, Slot, Step};
use crate::queues::Queues;
use crate::report;
use crate::versions::{self, Claim, Reading, Tried, stored};
use crate::wrong::broken;
use monoglot_device::{Storage, open};
use monoglot_schedule::{Allocation, Arguments};
use monoglot_uop::{AddrSpace, Arg, BufferArg, Op, Result, Shape, UOp};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What a run gives.
pub(crate) struct Done {
    /// The value of each root, and whether it is in storage that was written in place: that of a claim,
    /// which its next version has from the end of the claim on. Where an assertion does not hold, only
    /// what was written in place before that was known.
    pub(crate) results: Vec<Option<(UOp, bool)>>,
    /// The condition that does not hold, by number, and the element that is wrong.
    pub(crate) wrong: Option<(usize, i64)>,
}

/// See the module.
pub(crate) fn run(
    invocation: &Invocation,
    arguments: &Arguments,
    claims: &mut FxHashMap<UOp, Claim>,
) -> Tried<Done> {
    let executable = &invocation.executable;
    let params = &arguments.buffers;
    let mut readings: Vec<Reading> = Vec::with_capacity(params.len());
    let mut inputs: Vec<Arc<Storage>> = Vec::with_capacity(params.len());
    for p in params {
        if let Some(claim) = claims.get(p) {
            inputs.push(claim.storage().clone());
        } else {
            let reading = versions::read(p)?;
            inputs.push(reading.storage().clone());
            readings.push(reading);
        }
    }
    let places = Places::new(invocation, arguments, inputs)?;
    let Places {
        allocations, words, ..
    } = &places;
    // In what is seen from outside, lengths are bound variables again, and offsets are numbers.
    let outside = |_: &UOp, slot: u64| {
        let k = (slot as usize).checked_sub(params.len());
        let length = k.and_then(|k| arguments.variables.get(k).cloned());
        Ok(length.or_else(|| Some(UOp::index_const(*words.get(k?)?))))
    };
    let mut queues = Queues::default();
    let mut unread = executable.checks.iter().peekable();
    let mut begun = vec![false; params.len()];
    let token = cancel::current();
    let mut submit_all = || -> Result<Option<(usize, i64)>> {
        let mut loops = batch::loops(executable, params.len())?.iter().peekable();
        let mut next = 0;
        while next < executable.steps.len() {
            let k = next;
            if let Some(list) = loops.next_if(|l| l.steps.start == k) {
                let token = token.as_ref().filter(|_| !begun.contains(&true));
                let heed = |at: usize| cancel::heed(token, at, executable.steps.len());
                run_loop(executable, list, &places, &mut queues, heed)?;
                next = list.steps.end;
                continue;
            }
            next += 1;
            let step = &executable.steps[k];
            if !step.writes.is_empty() {
                while let Some(check) = unread.next_if(|c| c.step < k) {
                    queues.wait(check.device)?;
                    if let Some(wrong) = check.wrong(allocations)? {
                        return Ok(Some(wrong));
                    }
                }
            }
            if !begun.contains(&true) {
                cancel::heed(token.as_ref(), k, executable.steps.len())?;
            }
            for &slot in &step.writes {
                if let Some(claim) = claims.get_mut(&params[slot]) {
                    claim.begin();
                }
                begun[slot] = true;
            }
            submit(step, &[], &places, &mut queues)?;
        }
        Ok(None)
    };
    let submitted = submit_all();
    // What was submitted before a failure still runs, on what is claimed here.
    let finished = queues.finish();
    let mut wrong = submitted?;
    finished?;
    while let (None, Some(check)) = (wrong, unread.next()) {
        wrong = check.wrong(allocations)?;
    }
    let mut leaves: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut out = Vec::with_capacity(executable.outputs.len());
    for view in &executable.outputs {
        let view = &view.with_variables(outside)?;
        let leaf =
            leaf(view).ok_or_else(|| broken("engine", "an output is no view of a buffer"))?;
        let slot = leaf.buffer_arg().map_or(0, |b| b.slot as usize);
        let in_place = leaf.op() == Op::Param && executable.written[slot];
        if wrong.is_some() && !(in_place && begun[slot]) {
            out.push(None);
            continue;
        }
        let buffer = leaves
            .entry(leaf.clone())
            .or_insert_with(|| match leaf.op() {
                Op::Param if !in_place => params[slot].clone(),
                Op::Param => {
                    let old = &params[slot];
                    let claim = claims.get_mut(old);
                    match claim.zip(next_version(old, leaf.shape())) {
                        Some((claim, next)) => {
                            claim.hand_over(&next);
                            next
                        }
                        None => old.clone(),
                    }
                }
                _ => stored(leaf.shape(), leaf.dtype(), allocations[slot].clone()),
            });
        let value = view.substitute(&FxHashMap::from_iter([(leaf, buffer.clone())]));
        out.push(Some((value, in_place)));
    }
    Ok(Done {
        results: out,
        wrong,
    })
}

/// The PARAM, or BUFFER of an allocation, that an output is a view of.
pub(crate) fn leaf(view: &UOp) -> Option<UOp> {
    let mut u = view;
    while !matches!(u.op(), Op::Param | Op::Buffer) {
        u = u.src().first()?;
    }
    Some(u.clone())
}

/// The next version of a BUFFER, of this shape. It has no storage yet.
pub(crate) fn next_version(old: &UOp, shape: &Shape) -> Option<UOp> {
    let Arg::Buffer(b) = old.arg() else {
        return None;
    };
    let arg = BufferArg {
        version: b.version + 1,
        addrspace: Some(AddrSpace::Global),
        ..*b
    };
    let shape = vec![UOp::dims(shape)];
    Some(UOp::new(Op::Buffer, shape, Arg::Buffer(arg)))
}

/// What the arguments of a program's steps are.
pub(crate) struct Places {
    /// The storage of its PARAMs.
    pub(crate) inputs: Vec<Arc<Storage>>,
    /// Its own.
    pub(crate) allocations: Vec<Arc<Storage>>,
    /// Its variables: lengths, then what was lifted.
    pub(crate) words: Vec<i64>,
}

impl Places {
    /// Those of one run, with storage for what it computes.
    ///
    /// # Errors
    /// `Memory` where there is not enough.
    pub(crate) fn new(
        invocation: &Invocation,
        arguments: &Arguments,
        inputs: Vec<Arc<Storage>>,
    ) -> Result<Places> {
        let lengths = arguments.variables.iter().filter_map(UOp::bound_to);
        let words: Vec<i64> = lengths.chain(invocation.words.iter().copied()).collect();
        let plan = &invocation.executable.plan;
        let layout = plan.layout(&slots(inputs.len(), &words))?;
        let mut memories = Vec::with_capacity(plan.memories.len());
        for (m, &(bytes, used)) in plan.memories.iter().zip(&layout.memories) {
            memories.push(open(m.device)?.alloc_within(bytes, used)?);
        }
        let part = |(a, &offset): (&Allocation, &usize)| part(a, offset, &memories[a.memory]);
        let parts = plan.allocations.iter().zip(&layout.offsets).map(part);
        Ok(Places {
            inputs,
            allocations: parts.collect::<Result<_>>()?,
            words,
        })
    }
}

/// The words of variables, each with its slot: they are numbered after so many PARAMs.
pub(crate) fn slots(params: usize, words: &[i64]) -> Vec<(u64, i64)> {
    (params as u64..).zip(words.iter().copied()).collect()
}

/// The storage of an allocation, which begins at this byte of the memory that it lies in.
pub(crate) fn part(
    allocation: &Allocation,
    offset: usize,
    memory: &Arc<Storage>,
) -> Result<Arc<Storage>> {
    let bytes = allocation.bytes;
    if offset == 0 && bytes == memory.bytes() {
        return Ok(memory.clone());
    }
    let part = memory.slice(offset, bytes);
    part.ok_or_else(|| broken("memory plan", "an allocation is not within its memory"))
}

/// Run a loop; `heed` is asked before each step, by number, whether it is to be.
pub(crate) fn run_loop(
    executable: &Executable,
    list: &LoopList,
    places: &Places,
    queues: &mut Queues,
    heed: impl Fn(usize) -> Result<()>,
) -> Result<()> {
    if let Some(commands) = list.commands.as_ref().filter(|_| !report::steps_are_told()) {
        let table = [&places.inputs[..], &places.allocations].concat();
        count_many(|c| &c.launches, commands.launches());
        count_many(|c| &c.copies, commands.copies());
        let first = list.steps.start;
        return commands.run_heeding(&table, &places.words, |k| heed(first + k));
    }
    executable.turns(list.steps.clone(), |step, k, rounds| {
        heed(k)?;
        submit(step, rounds, places, queues)
    })
}

/// Give a step to the queue of its device, in these rounds of the loops around it.
pub(crate) fn submit(
    step: &Step,
    rounds: &[i64],
    places: &Places,
    queues: &mut Queues,
) -> Result<()> {
    let Places {
        inputs,
        allocations,
        words,
    } = places;
    let storage = |k: usize| -> Result<Option<Arc<Storage>>> {
        let whole = match step.args[k] {
            Slot::Param(i) => &inputs[i],
            Slot::Allocation(i) => &allocations[i],
            Slot::Word(_) => return Ok(None),
        };
        match step.parts.iter().find(|p| p.argument == k) {
            Some(part) => part.of(whole, rounds).map(Some),
            None => Ok(Some(whole.clone())),
        }
    };
    let word = |slot: &Slot| match *slot {
        Slot::Word(i) => Some(words[i]),
        _ => None,
    };
    match &step.action {
        Action::Launch(kernel) => {
            count(|c| &c.launches);
            let mut bufs: Vec<Arc<Storage>> = Vec::with_capacity(step.args.len());
            for k in 0..step.args.len() {
                bufs.extend(storage(k)?);
            }
            let vars: Vec<i64> = step.args.iter().filter_map(word).collect();
            report::step(step.device, &step.info, queues, |q| {
                q.launch(step.device, kernel, &bufs, &vars)
            })
        }
        Action::Copy {
            from,
            count: elements,
            element,
            ..
        } => {
            count(|c| &c.copies);
            let args = (0..).zip(&step.args);
            let vars: Vec<(u64, i64)> = args.filter_map(|(k, a)| Some((k, word(a)?))).collect();
            let bytes = |n: &UOp| n.sym_infer(&vars).map(|n| n as usize * element);
            let (Some(to), Some(source)) = (storage(0)?, storage(1)?) else {
                return Err(broken("engine", "a copy between values"));
            };
            let Some(part) = source.slice(bytes(from)?, bytes(elements)?) else {
                return Err(broken("engine", "a copy reads past the end of its source"));
            };
            report::step(step.device, &step.info, queues, |q| q.copy(&part, &to))
        }
    }
}
