//! Tracing: what a function computes, written down instead of done. Flows in: a function's tensors, and the
//! cells that it reaches while it runs on this thread; flows out: what it reads, what it leaves in them, and
//! what it draws.
//!
//! While a trace is open, every cell that was there before has another in its place on this thread, which
//! begins as a stand-in for whatever value the cell has when the function is called. Invariant: no cell from
//! before a trace is changed by it, however it ends; and other threads see nothing of it.

use crate::cell::{Cell, Held};
use crate::stand_ins;
use crate::view::shown;
use monoglot_engine as engine;
use monoglot_uop::{DType, Device, Dim, Error, ErrorKind, Op, OpSet, Result, Shape, UOp};
use rustc_hash::FxHashMap;
use std::cell::{Cell as Slot, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

/// What is written down.
#[derive(Default)]
pub(crate) struct Trace {
    number: u64,
    /// How many it is within, where it has the stand-ins of others so deep.
    deep: Option<usize>,
    /// Who is traced, and whose bodies that runs: by what tells them apart.
    running: Vec<usize>,
    /// Stand-ins, by input.
    pub(crate) inputs: Vec<UOp>,
    /// The input that stands for an expression.
    by_value: FxHashMap<UOp, usize>,
    pub(crate) passed: Vec<Passed>,
    /// Where what was passed is, by the address of the caller's cell.
    passed_at: FxHashMap<usize, usize>,
    /// Where the cells that were reached are among `reached`, by address.
    places: FxHashMap<usize, usize>,
    pub(crate) reached: Vec<Reached>,
    pub(crate) draws: Vec<Draw>,
    /// Stand-ins for the keys and counters of draws, in turn.
    pub(crate) words: Vec<UOp>,
    pub(crate) flags: Vec<(Arc<AtomicBool>, bool)>,
    /// What was to be realized.
    pub(crate) remembered: Vec<UOp>,
    /// Sizes whose numbers the function asked for, and those.
    pub(crate) asked: Vec<(UOp, i64)>,
    /// Cells, by address, each of which is an input of its own, though its expression reads nothing or is another's.
    varying: Vec<usize>,
}

/// A tensor that was passed.
pub(crate) struct Passed {
    /// The caller's cell.
    pub(crate) of: Arc<Cell>,
    /// The function's cell.
    pub(crate) own: Arc<Cell>,
    pub(crate) input: usize,
}

/// A cell from before the trace that the function uses.
pub(crate) struct Reached {
    pub(crate) cell: Arc<Cell>,
    /// What is in its place.
    pub(crate) instead: Arc<Cell>,
    /// What that was to begin with.
    pub(crate) begun: Result<UOp>,
    pub(crate) as_what: As,
}

/// How a cell's value enters a function.
pub(crate) enum As {
    /// It is this input.
    Input(usize),
    /// It is an expression that reads nothing, and stands as it is.
    Constant(UOp),
    /// It shows a part of another cell, as it was before the function.
    View,
    /// It carries an error.
    Failed,
    /// It was passed, too.
    Passed(usize),
}

/// Whose stand-ins a trace has.
#[derive(Copy, Clone)]
pub(crate) enum Standing {
    /// Its own: who runs what was traced tells it from others by them.
    Own,
    /// Those of every trace so deep: what was traced is made into a body without them.
    Shared,
}

/// What is done with the stream of random numbers.
#[derive(Clone, PartialEq)]
pub(crate) enum Draw {
    /// So many numbers are drawn.
    Numbers(Dim),
    /// Another stream begins.
    Seed(u64),
}

thread_local! {
    /// The number of the trace that is open, or 0.
    static OPEN: Slot<u64> = const { Slot::new(0) };
    /// Those that are open, each within the one before.
    static TRACES: RefCell<Vec<Trace>> = const { RefCell::new(Vec::new()) };
}

/// The number of the trace that is open on this thread, or 0.
pub(crate) fn number() -> u64 {
    OPEN.get()
}

/// Closes a trace, also when what is traced panics: so many are open then.
struct Closing(usize);

impl Closing {
    /// The trace, if it is still open.
    fn close(&self) -> Option<Trace> {
        TRACES.with_borrow_mut(|all| {
            let left = (all.len() > self.0).then(|| all.pop()).flatten();
            OPEN.set(all.last().map_or(0, |t| t.number));
            left
        })
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let left = self.close();
        drop(left);
    }
}

/// So deep traces stand in each other, and functions in themselves, at most. It is less than a thread's stack has
/// room for.
const DEEPEST: usize = 32;

/// A number that no other function has.
pub(crate) fn fresh() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What `run` gives with a trace open, and that trace, which `finish` looks at before it is closed. `varying` are
/// cells, by address, whose values are another in each call, even where they are constants now, or another cell's.
///
/// # Errors
/// Those of `run` and `finish`; `Capture` where traces stand too deep in each other: it would never end.
pub(crate) fn trace<T, R>(
    who: usize,
    standing: Standing,
    varying: Vec<usize>,
    run: impl FnOnce() -> Result<T>,
    finish: impl FnOnce(T, Trace) -> Result<R>,
) -> Result<R> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let deep = TRACES.with_borrow(Vec::len);
    let trace = Trace {
        number,
        deep: matches!(standing, Standing::Shared).then_some(deep),
        running: vec![who],
        varying,
        ..Trace::default()
    };
    if deep >= DEEPEST {
        return Err(endless());
    }
    let closing = TRACES.with_borrow_mut(|all| {
        all.push(trace);
        Closing(all.len() - 1)
    });
    OPEN.set(number);
    let made = run()?;
    // What the function made is read as it stands from here on, but for the cells it reached.
    let trace = closing.close().unwrap_or_default();
    finish(made, trace)
}

/// How many calls of this there are among what is traced, each in the one before.
fn depth(who: usize) -> usize {
    let of = |t: &Trace| t.running.iter().filter(|r| **r == who).count();
    TRACES.with_borrow(|all| all.iter().map(of).sum())
}

/// Whether this is traced, or its body is run by what is.
pub(crate) fn is_running(who: usize) -> bool {
    OPEN.get() != 0 && depth(who) > 0
}

fn endless() -> Error {
    let message = format!("a function calls itself, {DEEPEST} deep: it never ends");
    ErrorKind::Capture { message }.into()
}

/// Run the body of a function within the one that is traced; its own call is none.
///
/// # Errors
/// Those of the body, and `Capture` where it stands too deep in itself: it would never end.
pub(crate) fn within<T>(who: usize, run: impl FnOnce() -> Result<T>) -> Result<T> {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            with(|t| t.running.pop());
        }
    }
    if depth(who) >= DEEPEST {
        return Err(endless());
    }
    with(|t| t.running.push(who));
    let _leave = Leave;
    run()
}

/// Do something with the trace that is open.
fn with<T>(f: impl FnOnce(&mut Trace) -> T) -> Option<T> {
    TRACES.with_borrow_mut(|all| all.last_mut().map(f))
}

/// The value of a cell, on this thread.
pub(crate) fn read<T>(cell: &Arc<Cell>, f: impl FnOnce(&Held) -> T) -> T {
    let instead = in_place_of(cell);
    let cell = instead.as_ref().unwrap_or(cell);
    f(&cell.value.read().unwrap_or_else(|e| e.into_inner()))
}

/// Change the value of a cell, for this thread where a trace is open, else for all.
pub(crate) fn write<T>(cell: &Arc<Cell>, f: impl FnOnce(&mut Held) -> T) -> T {
    let instead = in_place_of(cell);
    let cell = instead.as_ref().unwrap_or(cell);
    let mut value = cell.value.write().unwrap_or_else(|e| e.into_inner());
    let done = f(&mut value);
    // Before anybody sees the value: who finds the number as it was has the value of that.
    cell.edition.fetch_add(1, Ordering::Release);
    done
}

/// Take down what is to be realized; false where no trace is open.
pub(crate) fn remember(roots: &[UOp]) -> bool {
    OPEN.get() != 0 && with(|t| t.remembered.extend_from_slice(roots)).is_some()
}

/// Take down that the number of a size was asked for.
pub(crate) fn asked(size: &Dim, number: i64) {
    if OPEN.get() == 0 {
        return;
    }
    if let Dim::Sym(u) = size {
        with(|t| t.asked.push((u.clone(), number)));
    }
}

/// Take down a draw, with what stands for its key and counter; None where no trace is open.
pub(crate) fn draw(count: &Dim) -> Option<[UOp; 2]> {
    if OPEN.get() == 0 {
        return None;
    }
    with(|t| {
        t.draws.push(Draw::Numbers(count.clone()));
        let mut word = || {
            let word = t.stand_in(&Shape::of(&[]), DType::U64, engine::default_device());
            t.words.push(word.clone());
            word
        };
        [word(), word()]
    })
}

/// Take down that a stream of random numbers begins; false where no trace is open.
pub(crate) fn seed(seed: u64) -> bool {
    OPEN.get() != 0 && with(|t| t.draws.push(Draw::Seed(seed))).is_some()
}

/// A flag that decides what is computed: a captured function is traced again when it has changed, and so are those that it
/// is called in.
pub fn observe(flag: &Arc<AtomicBool>) -> bool {
    let now = flag.load(Ordering::Relaxed);
    if OPEN.get() != 0 {
        TRACES.with_borrow_mut(|all| {
            for t in all {
                if !t.flags.iter().any(|(known, _)| Arc::ptr_eq(known, flag)) {
                    t.flags.push((flag.clone(), now));
                }
            }
        });
    }
    now
}

/// The function's own cell in place of one that it is passed, over a stand-in for its expression.
///
/// # Errors
/// The error that the cell carries.
pub(crate) fn pass(of: &Arc<Cell>) -> Result<Arc<Cell>> {
    let own = with_all(|lower, t| {
        let value = below(lower, of).value?;
        if let Some(&known) = t.passed_at.get(&address(of)) {
            return Ok(t.passed[known].own.clone());
        }
        let input = t.input(of, &value);
        let own = Arc::new(t.cell(of, Ok(t.inputs[input].clone())));
        t.passed_at.insert(address(of), t.passed.len());
        t.passed.push(Passed {
            of: of.clone(),
            own: own.clone(),
            input,
        });
        Ok(own)
    });
    own.unwrap_or_else(|| Ok(of.clone()))
}

/// What tells cells apart that live.
pub(crate) fn address(cell: &Arc<Cell>) -> usize {
    Arc::as_ptr(cell) as usize
}

/// Do something with the trace that is open, and those that it is within.
fn with_all<T>(f: impl FnOnce(&mut [Trace], &mut Trace) -> T) -> Option<T> {
    TRACES.with_borrow_mut(|all| all.split_last_mut().map(|(t, lower)| f(lower, t)))
}

/// What a cell holds within these traces.
fn below(traces: &mut [Trace], cell: &Arc<Cell>) -> Held {
    match traces.split_last_mut() {
        Some((t, lower)) if t.number != cell.made => outside(&t.reach(lower, cell)),
        _ => outside(cell),
    }
}

/// The value that a cell has for all threads.
pub(crate) fn outside(cell: &Cell) -> Held {
    cell.value.read().unwrap_or_else(|e| e.into_inner()).clone()
}

/// Whether a cell whose value is `value` shows a part of another, and which, as that is now.
pub(crate) fn shown_of(cell: &Cell, value: &UOp) -> Option<(Arc<Cell>, UOp)> {
    shown_within(cell, value, |base| read(base, Held::clone))
}

fn shown_within(
    cell: &Cell,
    value: &UOp,
    held: impl FnOnce(&Arc<Cell>) -> Held,
) -> Option<(Arc<Cell>, UOp)> {
    let view = cell.view.as_ref()?;
    let base = view.base.upgrade()?;
    let of_base = held(&base).value.ok()?;
    (shown(&view.to, &of_base).as_ref() == Ok(value)).then_some((base, view.to.clone()))
}

/// What reads storage, or a length.
const READING: OpSet = OpSet::of(&[Op::Buffer, Op::Param]);

/// Whether an expression reads nothing.
pub(crate) fn is_constant(u: &UOp) -> bool {
    !u.ops_below().intersects(READING)
}

/// The cell that is in place of this one on this thread.
fn in_place_of(cell: &Arc<Cell>) -> Option<Arc<Cell>> {
    let open = OPEN.get();
    if open == 0 || cell.made == open {
        return None;
    }
    with_all(|lower, t| t.reach(lower, cell))
}

impl Trace {
    /// The number of the trace, which what was made in it has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The cells, by address, whose values this input is.
    pub(crate) fn cells_of(&self, input: usize) -> Vec<usize> {
        let passed = self.passed.iter().filter(|p| p.input == input);
        let reached = self.reached.iter();
        let reached = reached.filter(|r| matches!(r.as_what, As::Input(k) if k == input));
        let cells = passed.map(|p| &p.of).chain(reached.map(|r| &r.cell));
        cells.map(address).collect()
    }

    /// The cell in place of one from before the trace, which is within those that are open.
    pub(crate) fn reached(&mut self, cell: &Arc<Cell>) -> Arc<Cell> {
        TRACES.with_borrow_mut(|lower| self.reach(lower, cell))
    }

    /// The cell in place of one from before the trace, which is within `lower`.
    fn reach(&mut self, lower: &mut [Trace], cell: &Arc<Cell>) -> Arc<Cell> {
        if let Some(&at) = self.places.get(&address(cell)) {
            return self.reached[at].instead.clone();
        }
        if let Some(&at) = self.passed_at.get(&address(cell)) {
            let Passed { own, input, .. } = &self.passed[at];
            let begun = Ok(self.inputs[*input].clone());
            return self.met(cell, own.clone(), begun, As::Passed(at));
        }
        let (begun, as_what) = self.beginning(lower, cell);
        let instead = Arc::new(self.cell(cell, begun.clone()));
        self.met(cell, instead, begun, as_what)
    }

    /// Where a cell was reached, if it was.
    pub(crate) fn find(&self, cell: &Arc<Cell>) -> Option<&Reached> {
        let at = self.places.get(&address(cell))?;
        Some(&self.reached[*at])
    }

    /// What is in place of a cell that was not passed, to begin with.
    fn beginning(&mut self, lower: &mut [Trace], cell: &Arc<Cell>) -> (Result<UOp>, As) {
        let held = below(lower, cell);
        let value = match &held.value {
            Ok(value) => value,
            Err(e) => return (Err(e.clone()), As::Failed),
        };
        if let Some((base, to)) = shown_within(cell, value, |base| below(lower, base)) {
            self.reach(lower, &base);
            let begun = self.find(&base).map(|r| r.begun.clone());
            let begun = begun.expect("the base was reached");
            return (begun.and_then(|b| shown(&to, &b)), As::View);
        }
        let varies = held.assigned || self.varies(cell);
        if !varies && is_constant(value) {
            return (Ok(value.clone()), As::Constant(value.clone()));
        }
        if value.shape().ints().is_none() {
            let message = "a tensor whose length varies is reached by a captured function: pass it";
            let error = ErrorKind::Capture {
                message: message.into(),
            };
            return (Err(error.into()), As::Failed);
        }
        let input = self.input(cell, value);
        (Ok(self.inputs[input].clone()), As::Input(input))
    }

    /// Whether a cell is an input of its own.
    fn varies(&self, cell: &Arc<Cell>) -> bool {
        self.varying.contains(&address(cell))
    }

    fn met(
        &mut self,
        cell: &Arc<Cell>,
        instead: Arc<Cell>,
        begun: Result<UOp>,
        as_what: As,
    ) -> Arc<Cell> {
        self.places.insert(address(cell), self.reached.len());
        self.reached.push(Reached {
            cell: cell.clone(),
            instead: instead.clone(),
            begun,
            as_what,
        });
        instead
    }

    /// The input that stands for the value of a cell.
    fn input(&mut self, cell: &Arc<Cell>, value: &UOp) -> usize {
        let shared = !self.varies(cell);
        if let Some(&known) = self.by_value.get(value).filter(|_| shared) {
            return known;
        }
        let device = value.device().unwrap_or_else(engine::default_device);
        let stand_in = self.stand_in(value.shape(), value.dtype(), device);
        self.inputs.push(stand_in);
        let number = self.inputs.len() - 1;
        shared.then(|| self.by_value.insert(value.clone(), number));
        number
    }

    /// The next stand-in.
    fn stand_in(&self, shape: &Shape, dtype: DType, device: Device) -> UOp {
        let number = self.inputs.len() + self.words.len();
        match self.deep {
            Some(deep) => stand_ins::stand_in(deep, number, shape, dtype, device),
            None => engine::stand_in(shape, dtype, device),
        }
    }

    /// A cell in place of another.
    fn cell(&self, of: &Cell, value: Result<UOp>) -> Cell {
        Cell {
            value: RwLock::new(Held::of(value)),
            edition: AtomicU64::new(0),
            line: of.line,
            view: None,
            made: self.number,
        }
    }
}
