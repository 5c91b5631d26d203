//! Captured programs: what a function computes, scheduled and compiled once, called as often as one likes with
//! other storage. Flows in: roots over BUFFERs that stand for what will be given; flows out: a program, and
//! for each call the values of the roots that are shown.
//!
//! Invariant: nothing that a call is given is kept from one call to the next, but for readings of what holders
//! still hold (`idle`). What an earlier call gave out never changes: storage of shown values is new in each call, or that of an input that nobody else holds and
//! whose next version it is. Other storage is the program's own, and calls at the same time have each their own.

mod load;
mod saved;

pub use saved::{Saved, SavedSum, TEXT};

use crate::batch::{Part, parts};
use crate::cancel;
use crate::counters::count_many;
use crate::executable::{Executable, executable};
use crate::idle::{Known, Readings, Standing};
use crate::queues::Queues;
use crate::realize::{attempt, base, read, until_free};
use crate::report;
use crate::run::{Places, leaf, next_version, part, slots, submit};
use crate::versions::{self, Claim, Reading, Stop, Tried, stored};
use crate::wrong::{Wrong, broken};
use monoglot_device::{Storage, open};
use monoglot_schedule::{Arguments, Function, Layout, callify};
use monoglot_uop::{DType, Device, Dim, Error, ErrorKind, Op, Result, Shape, UOp};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::panic::Location;
use std::sync::{Arc, Mutex};

/// A BUFFER that stands for what a captured program will be called with. To compute with it is an error, but
/// for capturing.
pub fn stand_in(shape: &Shape, dtype: DType, device: Device) -> UOp {
    versions::stand_in(shape, dtype, device)
}

/// What is to be captured.
#[derive(Default)]
pub struct Capture {
    /// What is computed.
    pub roots: Vec<UOp>,
    /// For each root, whether its value is given out.
    pub shown: Vec<bool>,
    /// Stand-ins for inputs.
    pub inputs: Vec<UOp>,
    /// For each of them, the root that is the value of what holds it after a call, where the call gives that
    /// another one: then its storage may be written.
    pub replaced: Vec<Option<usize>>,
    /// Stand-ins of shape () for words that every call gives.
    pub words: Vec<UOp>,
    /// Bound variables whose values every call gives.
    pub lengths: Vec<UOp>,
}

/// A captured program.
pub struct Captured {
    executable: Arc<Executable>,
    key: UOp,
    arguments: Arguments,
    params: Vec<Given>,
    /// The input that a stand-in is, for what an assertion is told as.
    inputs: Vec<UOp>,
    constants: Vec<Reading>,
    /// The values of the program's variables, those of lengths as they were when it was captured.
    variables: Vec<i64>,
    /// Which of them is which length.
    lengths: Vec<(usize, usize)>,
    outputs: Vec<Option<Output>>,
    /// The line of each root.
    lines: Vec<Option<&'static Location<'static>>>,
    /// For each memory of the plan, whether a value that is shown is in it.
    shown: Vec<bool>,
    /// The device of each word.
    words: Vec<Device>,
    /// For each input, the root that is the value of what holds it after a call.
    replaced: Vec<Option<usize>>,
    parts: Vec<Part>,
    last_checks: Range<usize>,
    /// By PARAM, whether its storage stands from call to call while its holder holds the same value.
    stands: Vec<bool>,
    frames: Mutex<Vec<Frame>>,
}

/// What a PARAM of the program is in a call.
#[derive(Clone, Copy)]
enum Given {
    /// An input, of at least so many bytes.
    Input(usize, Written, usize),
    /// A word.
    Word(usize),
    /// The same in every call.
    Constant(usize),
}

/// What becomes of the storage of an input.
#[derive(Clone, Copy, PartialEq)]
enum Written {
    Not,
    /// It is that of the value after the call of what holds the input.
    InPlace,
    /// It is another root's, which has to be written elsewhere.
    Elsewhere,
}

/// Where the value of a root that is shown is.
struct Output {
    view: UOp,
    leaf: UOp,
    slot: usize,
}

/// Storage that is the program's own, for one call at a time.
struct Frame {
    /// The thread that used it last: what it wrote is near that.
    thread: usize,
    known: Known,
    /// As nobody else counts them.
    constants: Vec<Arc<Storage>>,
    /// The values of the program's variables that its storage is laid out for, once it is.
    at: Option<Vec<i64>>,
    layout: Layout,
    /// By memory of the plan; None where what lies there is given out.
    memories: Vec<Option<Arc<Storage>>>,
    /// By allocation; None where its memory is given out.
    own: Vec<Option<Arc<Storage>>>,
    words: Vec<(u64, Arc<Storage>)>,
}

/// Gets inputs, and the values of roots.
pub type Take<'a> = dyn Fn(&[Option<UOp>], &[Option<UOp>]) + 'a;

/// What a call is given.
pub struct Caller<'a> {
    /// The expression of an input, by number, now. It is asked again where another run was in the way.
    pub input: &'a dyn Fn(usize) -> Result<UOp>,
    /// What tells an input's value from those that its holder held before, and will hold; None where the call
    /// is given it anew.
    pub edition: &'a dyn Fn(usize) -> Option<u64>,
    /// The words.
    pub words: &'a [u64],
    /// The values of the lengths.
    pub lengths: &'a [i64],
    /// Has an input be another BUFFER from now on, which is its next version, where it is this one still and
    /// nobody but its holder and this call holds that: whether it has done so.
    pub advance: &'a dyn Fn(usize, &UOp, &UOp) -> bool,
    /// Gets what each input was, and the values of the roots that are shown, before anybody else sees that
    /// an input was written. A value is missing where an assertion does not hold.
    pub take: &'a Take<'a>,
}

impl Capture {
    /// The function that this is, and what it is called with.
    fn function(&self) -> Result<(Function, Arguments)> {
        let input_of = numbered(&self.inputs);
        let replaced = |b: &UOp| input_of.get(b).is_some_and(|&k| self.replaced[k].is_some());
        callify(&self.roots, replaced)
    }

    /// Schedule and compile it, where that was not done before.
    ///
    /// # Errors
    /// As `realize`, but for what only running finds.
    pub fn compile(mut self) -> Result<Captured> {
        // What is given out lives longer than the storage of words.
        for (root, _) in self.roots.iter_mut().zip(&self.shown).filter(|(_, s)| **s) {
            if self.words.contains(root.viewed()) {
                *root = root.unary(Op::Contiguous);
            }
        }
        let (function, arguments) = self.function()?;
        if let Some(param) = arguments.unbound() {
            let message = format!("{param:?} stands for nothing: it has no value here");
            return Err(Error::argument("PARAM", message));
        }
        let invocation = executable(&function, &self.roots)?;
        let executable = invocation.executable;
        let input_of: FxHashMap<&UOp, usize> = numbered(&self.inputs);
        let word_of: FxHashMap<&UOp, usize> = numbered(&self.words);
        let length_of: FxHashMap<&UOp, usize> = numbered(&self.lengths);
        let mut constants = Vec::new();
        let mut params = Vec::with_capacity(arguments.buffers.len());
        for (p, buffer) in arguments.buffers.iter().enumerate() {
            params.push(if let Some(&k) = input_of.get(buffer) {
                let bytes = buffer.shape().max_len() as usize * buffer.dtype().bytes();
                let own = self.replaced[k].and_then(|root| leaf(&executable.outputs[root]));
                let is_own = own.is_some_and(|u| {
                    let slot = u.buffer_arg().map(|b| b.slot as usize);
                    u.op() == Op::Param && slot == Some(p)
                });
                let written = match (executable.written[p], is_own) {
                    (false, _) => Written::Not,
                    (true, true) => Written::InPlace,
                    (true, false) => Written::Elsewhere,
                };
                Given::Input(k, written, bytes)
            } else if let Some(&k) = word_of.get(buffer) {
                Given::Word(k)
            } else {
                constants.push(until_free(|| versions::read(buffer))?);
                Given::Constant(constants.len() - 1)
            });
        }
        let mut variables = Vec::new();
        let mut lengths = Vec::new();
        for (i, variable) in arguments.variables.iter().enumerate() {
            variables.extend(variable.bound_to());
            lengths.extend(length_of.get(variable).map(|&k| (i, k)));
        }
        variables.extend(&invocation.words);
        let mut outputs = Vec::with_capacity(self.roots.len());
        let plan = &executable.plan;
        let mut shown = vec![false; plan.memories.len()];
        for (view, &is_shown) in executable.outputs.iter().zip(&self.shown) {
            outputs.push(match is_shown {
                false => None,
                true => Some(Output::of(view)?),
            });
            if let Some(o) = outputs.last().and_then(Option::as_ref)
                && o.leaf.op() == Op::Buffer
            {
                shown[plan.allocations[o.slot].memory] = true;
            }
        }
        let home = crate::default_device();
        let words = self.words.iter().map(|w| w.device().unwrap_or(home));
        let (parts, last_checks) = parts(&executable, params.len())?;
        Ok(Captured {
            key: function.key(),
            stands: stands(&params, &self.replaced, &outputs),
            params,
            constants,
            variables,
            lengths,
            outputs,
            shown,
            lines: self.roots.iter().map(UOp::line).collect(),
            words: words.collect(),
            replaced: self.replaced,
            parts,
            last_checks,
            arguments,
            executable,
            inputs: self.inputs,
            frames: Mutex::default(),
        })
    }
}

/// By PARAM, whether it is an input that is only read, and is no part of what a call gives.
fn stands(params: &[Given], replaced: &[Option<usize>], outputs: &[Option<Output>]) -> Vec<bool> {
    let given = |p: usize| {
        let mut outputs = outputs.iter().flatten();
        outputs.any(|o| o.leaf.op() == Op::Param && o.slot == p)
    };
    let stands = |(p, param): (usize, &Given)| match *param {
        Given::Input(k, Written::Not, _) => replaced[k].is_none() && !given(p),
        _ => false,
    };
    params.iter().enumerate().map(stands).collect()
}

/// What tells the threads that run apart.
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

fn numbered(all: &[UOp]) -> FxHashMap<&UOp, usize> {
    all.iter().enumerate().map(|(k, u)| (u, k)).collect()
}

impl Output {
    fn of(view: &UOp) -> Result<Output> {
        let leaf =
            leaf(view).ok_or_else(|| broken("engine", "an output is no view of a buffer"))?;
        Ok(Output {
            slot: leaf.buffer_arg().map_or(0, |b| b.slot as usize),
            view: view.clone(),
            leaf,
        })
    }
}

/// What one attempt has hold of.
struct Held {
    /// What each input is, where the program takes it.
    given: Vec<Option<UOp>>,
    /// By PARAM.
    storages: Vec<Arc<Storage>>,
    readings: Vec<Reading>,
    /// Those that are written in place, with their next versions.
    claims: FxHashMap<usize, (Claim, UOp)>,
}

/// What a run gives.
struct Done {
    /// The values of the roots that are shown.
    values: Vec<Option<UOp>>,
    /// The condition that does not hold, by number, and the element that is wrong.
    wrong: Option<(usize, i64)>,
}

impl Captured {
    /// Run the program.
    ///
    /// # Errors
    /// What the device and its memory say, `OutOfRange` where an assertion does not hold, and the error of an
    /// input that cannot be computed.
    pub fn call(&self, call: &Caller) -> Result<()> {
        until_free(|| self.attempt(call))
    }

    /// Whether the program takes an input, by number, and so asks for it.
    pub fn takes(&self, input: usize) -> bool {
        let is = |p: &Given| matches!(p, Given::Input(k, ..) if *k == input);
        self.params.iter().any(is)
    }

    /// How many inputs and roots it has.
    pub fn counts(&self) -> (usize, usize) {
        (self.inputs.len(), self.outputs.len())
    }

    /// What stands for an input: of its shape, dtype and device; None where the program does not take it.
    pub fn input(&self, input: usize) -> Option<&UOp> {
        self.inputs.get(input).filter(|_| self.takes(input))
    }

    /// What a root that is shown gives: of its shape and dtype.
    pub fn output(&self, root: usize) -> Option<&UOp> {
        let output = self.outputs.get(root)?.as_ref()?;
        Some(&output.view)
    }

    /// How many kernels a call launches.
    pub fn kernels(&self) -> usize {
        let of = |p: &Part| p.commands.as_ref().map_or(0, |c| c.launches());
        self.parts.iter().map(of).sum()
    }

    /// What differs in another capture of the same function, if anything does.
    ///
    /// # Errors
    /// Where that cannot be captured, or constants cannot be read.
    pub fn differs(&self, other: &Capture) -> Result<Option<&'static str>> {
        let (function, arguments) = other.function()?;
        if function.key() != self.key {
            return Ok(Some("it computes something else"));
        }
        for (new, (old, given)) in arguments
            .buffers
            .iter()
            .zip(self.arguments.buffers.iter().zip(&self.params))
        {
            let constant = matches!(given, Given::Constant(_));
            let outside = other.inputs.contains(new) || other.words.contains(new);
            if constant == outside {
                return Ok(Some("it reads other tensors"));
            }
            if constant && new != old && read(new)? != read(old)? {
                return Ok(Some("data that it makes tensors of is not what it was"));
            }
        }
        Ok(None)
    }

    fn attempt(&self, call: &Caller) -> Tried<()> {
        let thread = this_thread();
        let mut frames = self.frames.lock().unwrap_or_else(|e| e.into_inner());
        let own = frames.iter().rposition(|f| f.thread == thread);
        let kept = match own {
            Some(at) => Some(frames.swap_remove(at)),
            None => frames.pop(),
        };
        drop(frames);
        let mut frame = match kept {
            Some(frame) => frame,
            None => self.frame()?,
        };
        frame.thread = thread;
        let done = self.within(call, &mut frame);
        let mut frames = self.frames.lock().unwrap_or_else(|e| e.into_inner());
        frames.push(frame);
        done
    }

    fn within(&self, call: &Caller, frame: &mut Frame) -> Tried<()> {
        for ((now, storage), &word) in frame.words.iter_mut().zip(call.words) {
            if *now != word {
                open(storage.device())?.upload(storage, 0, &word.to_le_bytes())?;
                *now = word;
            }
        }
        let mut words = self.variables.clone();
        for &(at, k) in &self.lengths {
            words[at] = call.lengths[k];
        }
        self.lay_out(frame, &words)?;
        let mut known = frame.known.running();
        let mut held = self.hold(call, frame, &mut known)?;
        let Done { values, wrong } = self.run(call, &mut held, &words)?;
        self.let_go(call, &mut known);
        (call.take)(&held.given, &values);
        match wrong {
            None => Ok(()),
            Some(wrong) => Err(Stop::Wrong(self.wrong(call, &held, wrong, &values))),
        }
    }

    /// Let go of what was replaced while the call ran: nobody could have it let go then.
    fn let_go(&self, call: &Caller, known: &mut Readings) {
        for (param, known) in self.params.iter().zip(known) {
            if let Given::Input(k, ..) = *param {
                let replaced = |s: &mut Standing| (call.edition)(k) != Some(s.edition);
                drop(known.take_if(replaced));
            }
        }
    }

    /// Get hold of what the program takes. Nobody waits here while he holds a version.
    fn hold(&self, call: &Caller, frame: &Frame, known: &mut Readings) -> Tried<Held> {
        let mut given: Vec<Option<UOp>> = vec![None; self.inputs.len()];
        let mut editions: Vec<Option<u64>> = vec![None; self.params.len()];
        known.resize_with(self.params.len(), || None);
        for (p, param) in self.params.iter().enumerate() {
            let Given::Input(k, ..) = *param else {
                continue;
            };
            if self.stands[p] {
                editions[p] = (call.edition)(k);
                if known[p]
                    .as_ref()
                    .is_some_and(|s| Some(s.edition) == editions[p])
                {
                    continue;
                }
                known[p] = None;
            }
            if given[k].is_none() {
                let u = (call.input)(k)?;
                self.fits(k, &u)?;
                let there = u.op() == Op::Buffer || base(&u).is_some();
                given[k] = Some(if there {
                    u
                } else {
                    attempt(std::slice::from_ref(&u))?.remove(0)
                });
            }
        }
        let mut held = Held {
            given,
            storages: Vec::with_capacity(self.params.len() + self.shown.len()),
            readings: Vec::with_capacity(self.params.len()),
            claims: FxHashMap::default(),
        };
        for (p, param) in self.params.iter().enumerate() {
            let storage = match *param {
                Given::Constant(c) => frame.constants[c].clone(),
                Given::Word(k) => frame.words[k].1.clone(),
                Given::Input(k, written, bytes) => {
                    if let (None, Some(edition), Some(u)) = (&known[p], editions[p], &held.given[k])
                    {
                        known[p] = standing(u, edition)?.filter(|s| s.storage.bytes() >= bytes);
                    }
                    match &known[p] {
                        Some(standing) => standing.storage.clone(),
                        None => held.input(call, p, k, written, bytes)?,
                    }
                }
            };
            held.storages.push(storage);
        }
        let plan = &self.executable.plan;
        let mut given_out: Vec<Option<Arc<Storage>>> = Vec::with_capacity(self.shown.len());
        for m in 0..self.shown.len() {
            let new = self.shown[m].then(|| self.memory(m, &frame.layout));
            given_out.push(new.transpose()?);
        }
        let places = plan.allocations.iter().zip(&frame.layout.offsets);
        for ((a, &offset), own) in places.zip(&frame.own) {
            held.storages.push(match (own, &given_out[a.memory]) {
                (Some(own), _) => own.clone(),
                (None, Some(memory)) => part(a, offset, memory)?,
                (None, None) => return Err(broken("engine", "an allocation in no memory").into()),
            });
        }
        Ok(held)
    }

    /// Whether what an input is now can be read as what was captured.
    fn fits(&self, k: usize, given: &UOp) -> Result<()> {
        let wanted = &self.inputs[k];
        let known = |(a, b): (&Dim, &Dim)| a.as_int().zip(b.as_int()).is_none_or(|(a, b)| a == b);
        let dims = wanted.shape().len() == given.shape().len();
        let same = dims && wanted.shape().iter().zip(given.shape().iter()).all(known);
        if same && wanted.dtype() == given.dtype() {
            return Ok(());
        }
        let [was, is] = [wanted, given].map(|u| format!("{} of shape {}", u.dtype(), u.shape()));
        let message =
            format!("a tensor that it reads is {is} now, and was {was} when it was captured");
        Err(Error::argument("call", message))
    }

    /// New storage for a memory of the plan.
    fn memory(&self, number: usize, layout: &Layout) -> Result<Arc<Storage>> {
        let runtime = open(self.executable.plan.memories[number].device)?;
        let room = layout.memories[number];
        runtime.alloc_within(room.0, room.1)
    }

    /// Have a frame's storage be laid out for these values of the variables.
    fn lay_out(&self, frame: &mut Frame, words: &[i64]) -> Result<()> {
        let plan = &self.executable.plan;
        let known = frame.at.as_deref();
        if known.is_some_and(|at| at == words || plan.is_fixed()) {
            return Ok(());
        }
        frame.at = None;
        frame.own.clear();
        frame.layout = plan.layout(&slots(self.params.len(), words))?;
        frame.memories.resize(plan.memories.len(), None);
        for (m, shown) in self.shown.iter().enumerate() {
            if !shown {
                // What is no longer needed is given back before more is asked for.
                frame.memories[m] = None;
                frame.memories[m] = Some(self.memory(m, &frame.layout)?);
            }
        }
        for (a, &offset) in plan.allocations.iter().zip(&frame.layout.offsets) {
            let memory = frame.memories[a.memory].as_ref();
            let own = memory.map(|m| part(a, offset, m));
            frame.own.push(own.transpose()?);
        }
        frame.at = Some(words.to_vec());
        Ok(())
    }

    /// Storage for one call at a time, not laid out yet.
    fn frame(&self) -> Result<Frame> {
        let mut words = Vec::with_capacity(self.words.len());
        for &device in &self.words {
            let storage = open(device)?.alloc(8)?;
            open(device)?.upload(&storage, 0, &0u64.to_le_bytes())?;
            words.push((0, storage));
        }
        let constants = self.constants.iter().map(Reading::storage);
        let own = constants.map(|s| s.slice(0, s.bytes()));
        let own = own.collect::<Option<_>>();
        Ok(Frame {
            thread: 0,
            known: Known::new(),
            constants: own.ok_or_else(|| broken("engine", "a constant without its storage"))?,
            at: None,
            layout: Layout::default(),
            memories: Vec::new(),
            own: Vec::new(),
            words,
        })
    }

    fn run(&self, call: &Caller, held: &mut Held, words: &[i64]) -> Result<Done> {
        let params = self.params.len();
        let mut begun = vec![false; params];
        let mut queues = Queues::default();
        let submitted = self.submit(held, words, &mut queues, &mut begun);
        let finished = queues.finish();
        if let Err(e) = &submitted
            && matches!(e.kind(), ErrorKind::Cancelled { .. })
        {
            // No value in place was written yet: the next versions are what the ones before were.
            held.claims.values_mut().for_each(|(claim, _)| claim.done());
        }
        let mut wrong = submitted?;
        finished?;
        for check in &self.executable.checks[self.last_checks.clone()] {
            if wrong.is_none() {
                wrong = check.wrong(&held.storages[params..])?;
            }
        }
        for (claim, _) in held.claims.values_mut() {
            claim.done();
        }
        let only = wrong.is_some().then_some(&begun[..]);
        let values = self.values(call, held, only)?;
        Ok(Done { values, wrong })
    }

    /// Give all parts to their devices; the condition that was found not to hold.
    fn submit(
        &self,
        held: &mut Held,
        words: &[i64],
        queues: &mut Queues,
        begun: &mut [bool],
    ) -> Result<Option<(usize, i64)>> {
        let params = self.params.len();
        let one_by_one = report::steps_are_told();
        let queued = |p: &Part| one_by_one || p.commands.is_none();
        let places = self.parts.iter().any(queued).then(|| Places {
            inputs: held.storages[..params].to_vec(),
            allocations: held.storages[params..].to_vec(),
            words: words.to_vec(),
        });
        let token = cancel::current();
        let last = token.as_ref().map_or(0, |_| self.last_heeded(held));
        let heed = |step: usize| match step <= last {
            true => cancel::heed(token.as_ref(), step, self.executable.steps.len()),
            false => Ok(()),
        };
        for part in &self.parts {
            for check in &self.executable.checks[part.checks.clone()] {
                queues.wait(check.device)?;
                if let Some(wrong) = check.wrong(&held.storages[params..])? {
                    return Ok(Some(wrong));
                }
            }
            for &param in &part.writes {
                begun[param] = true;
                if let Some((claim, _)) = held.claims.get_mut(&param) {
                    claim.begin();
                }
            }
            match (&part.commands, &places) {
                (Some(commands), _) if !one_by_one => {
                    count_many(|c| &c.launches, commands.launches());
                    count_many(|c| &c.copies, commands.copies());
                    let first = part.steps.start;
                    match &token {
                        None => commands.run(&held.storages, words)?,
                        Some(_) => {
                            commands.run_heeding(&held.storages, words, |k| heed(first + k))?;
                        }
                    }
                }
                (_, Some(places)) => {
                    self.executable
                        .turns(part.steps.clone(), |step, at, rounds| {
                            heed(at)?;
                            submit(step, rounds, places, queues)
                        })?;
                }
                _ => return Err(broken("engine", "a part that nothing runs")),
            }
        }
        Ok(None)
    }

    /// The last step before which a call may be cancelled: the first that writes a value in place.
    fn last_heeded(&self, held: &Held) -> usize {
        let in_place = |param: &usize| held.claims.contains_key(param);
        let steps = self.executable.steps.iter();
        let mut writing = steps.map(|step| step.writes.iter().any(in_place));
        writing.position(|writes| writes).unwrap_or(usize::MAX)
    }

    /// The values of the roots that are shown; after a broken assertion, of those that were begun in place.
    fn values(
        &self,
        call: &Caller,
        held: &mut Held,
        only: Option<&[bool]>,
    ) -> Result<Vec<Option<UOp>>> {
        let params = self.params.len();
        let mut leaves: FxHashMap<&UOp, UOp> = FxHashMap::default();
        let mut out = Vec::with_capacity(self.outputs.len());
        for output in &self.outputs {
            let Some(Output { view, leaf, slot }) = output else {
                out.push(None);
                continue;
            };
            let of_param = leaf.op() == Op::Param;
            let written = of_param && self.executable.written[*slot];
            if only.is_some_and(|begun| !(written && begun[*slot])) {
                out.push(None);
                continue;
            }
            let shape = self.now(leaf.shape().clone(), call)?;
            let buffer = leaves.entry(leaf).or_insert_with(|| {
                if !of_param {
                    return stored(&shape, leaf.dtype(), held.storages[params + slot].clone());
                }
                match (self.params[*slot], held.claims.get(slot)) {
                    (_, Some((_, next))) if written => next.clone(),
                    (_, _) if written => stored(&shape, leaf.dtype(), held.storages[*slot].clone()),
                    (Given::Input(k, ..), _) => held.given[k].clone().unwrap_or(leaf.clone()),
                    (Given::Constant(_) | Given::Word(_), _) => {
                        self.arguments.buffers[*slot].clone()
                    }
                }
            });
            if view == leaf {
                out.push(Some(buffer.clone()));
                continue;
            }
            let view = self.outside(view, call)?;
            let over = crate::run::leaf(&view).map(|leaf| given_for(leaf, buffer));
            let shown = view.try_rebuild(&over.unwrap_or_default(), |_| true, UOp::try_with_src);
            out.push(Some(shown.map_err(|_| unlike(buffer))?));
        }
        Ok(out)
    }

    /// A view as it is seen from outside, where lengths are bound variables and offsets are numbers.
    fn outside(&self, view: &UOp, call: &Caller) -> Result<UOp> {
        if !view.ops_below().contains(Op::Param) {
            return Ok(view.clone());
        }
        let params = self.params.len();
        view.with_variables(|_, slot| {
            let Some(k) = (slot as usize).checked_sub(params) else {
                return Ok(None);
            };
            let given = self.lengths.iter().find(|(at, _)| *at == k);
            let value = given.map_or_else(
                || self.variables.get(k).copied(),
                |&(_, length)| Some(call.lengths[length]),
            );
            let variable = self.arguments.variables.get(k);
            let number = || Some(UOp::index_const(value?));
            Ok(match (variable, value) {
                (Some(variable), Some(value)) => Some(variable.bind_to(value)),
                _ => number(),
            })
        })
    }

    /// A shape as it is seen from outside.
    fn now(&self, shape: Shape, call: &Caller) -> Result<Shape> {
        if shape.ints().is_some() {
            return Ok(shape);
        }
        let whole = UOp::param(0, &shape, DType::U8, None);
        Ok(self.outside(&whole, call)?.shape().clone())
    }

    /// What is told of an assertion that does not hold.
    fn wrong(
        &self,
        call: &Caller,
        held: &Held,
        (condition, element): (usize, i64),
        values: &[Option<UOp>],
    ) -> Wrong {
        let assert = &self.arguments.asserts[condition];
        let given = (0..).zip(self.inputs.iter().zip(&held.given));
        let given = given.filter_map(|(k, (input, given))| {
            let given = given.clone().or_else(|| (call.input)(k).ok());
            Some((input.clone(), given?))
        });
        let told = assert.substitute(&given.collect());
        assert.line().iter().for_each(|line| told.set_line(line));
        let written = self.lines.iter().zip(values);
        let standing = written.filter_map(|(line, value)| line.filter(|_| value.is_some()));
        Wrong {
            assert: told,
            element,
            standing: standing.collect(),
        }
    }
}

/// What is read of an input while its holder holds this value.
fn standing(u: &UOp, edition: u64) -> Tried<Option<Standing>> {
    let Some((buffer, offset)) = base(u) else {
        return Ok(None);
    };
    Ok(versions::read(&buffer)?.standing(offset, edition))
}

/// Of lengths that are one to the program, some are numbers here, or vary within other bounds.
fn unlike(given: &UOp) -> Error {
    let message = format!(
        "of {}, all equal lengths vary alike, or none",
        given.shape()
    );
    Error::argument("call", message)
}

/// What takes the place of a leaf where a call was given this, of which lengths may be plain numbers.
fn given_for(leaf: UOp, given: &UOp) -> FxHashMap<UOp, UOp> {
    let dims = leaf.shape().iter().zip(given.shape().iter());
    let others = dims.filter(|(own, other)| own != other);
    let mut over: FxHashMap<UOp, UOp> = others.map(|(a, b)| (a.to_uop(), b.to_uop())).collect();
    over.insert(leaf, given.clone());
    over
}

impl Held {
    /// The storage of PARAM `p`, which is input `k`.
    fn input(
        &mut self,
        call: &Caller,
        p: usize,
        k: usize,
        written: Written,
        bytes: usize,
    ) -> Tried<Arc<Storage>> {
        let Some(u) = &self.given[k] else {
            return Err(broken("engine", "an input without a value").into());
        };
        if written == Written::InPlace
            && u.op() == Op::Buffer
            && let Some(mut claim) = versions::claim(u)?
            && let Some(next) = next_version(u, u.shape())
        {
            let room = claim.storage().bytes();
            if room < bytes {
                claim.withdraw();
                let message = format!(
                    "argument {k} is written and has a length that varies: a tensor of {room} bytes has no room for {bytes}; \
                     one that `dynamic` gives has"
                );
                return Err(Error::argument("call", message).into());
            }
            claim.promise(&next);
            // Who else holds it keeps its value, and this call writes a copy.
            if (call.advance)(k, u, &next) {
                let storage = claim.storage().clone();
                self.given[k] = Some(next.clone());
                self.claims.insert(p, (claim, next));
                return Ok(storage);
            }
            claim.withdraw();
        }
        let Some((buffer, offset)) = base(u) else {
            return Err(broken("engine", "an input is no view of a buffer").into());
        };
        let reading = versions::read(&buffer)?;
        let whole = reading.storage();
        let rest = whole.bytes().saturating_sub(offset);
        let part = match offset {
            0 => Some(whole.clone()),
            _ => whole.slice(offset, rest),
        };
        let part = part.ok_or_else(|| broken("engine", "a view past the end of its buffer"))?;
        if written == Written::Not && rest >= bytes {
            self.readings.push(reading);
            return Ok(part);
        }
        let own = open(buffer.device().unwrap_or_else(crate::default_device))?.alloc(bytes)?;
        let copied = part.slice(0, rest.min(bytes));
        let mut queues = Queues::default();
        if let Some(from) = copied.filter(|from| from.bytes() > 0) {
            queues.copy(&from, &own)?;
        }
        queues.finish()?;
        Ok(own)
    }
}
