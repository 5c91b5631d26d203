//! The program of a captured function, and the calls that it stands for. Flows in: what a trace took down, then
//! calls; flows out: the trees that these give, and the cells that they write.
//!
//! Invariant: a program is used only where all that decided what was traced is as it was: the look of the call,
//! which cells are the same, and the shapes, dtypes and devices of those that the function reaches.

mod apart;
mod guards;

pub(crate) use apart::{Given, Hidden, SavedFacts};
pub(crate) use guards::Guards;

use crate::bounds::Bounds;
use crate::cell::{Cell, Held, View};
use crate::random;
use crate::signature::{Over, Shown, Signature, with_lengths};
use crate::tensor::Tensor;
use crate::trace::{self, As, Draw, Trace};
use crate::tree::{Leaf, Tensors};
use crate::view::over;
use monoglot_engine::{Caller, Capture, Captured};
use monoglot_uop::{Error, ErrorKind, Op, Result, UOp};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::panic::Location;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// A function as it was traced.
pub(crate) struct Traced<R> {
    pub(crate) capture: Capture,
    pub(crate) facts: Facts<R>,
    /// Cells, by address, that were one input, though the function writes one of them: in the next call they differ.
    pub(crate) together: Vec<usize>,
}

/// A captured function, ready for calls.
pub(crate) struct Recorded<R> {
    signature: Arc<Signature>,
    captured: Captured,
    facts: Facts<R>,
    /// Values of cells that hold expressions, so that the next call finds them again.
    kept: Mutex<FxHashMap<usize, UOp>>,
}

/// What is known of a function.
pub(crate) struct Facts<R> {
    /// Where inputs come from.
    pub(crate) inputs: Vec<Source>,
    pub(crate) guards: Guards,
    pub(crate) draws: Vec<Draw>,
    /// What it gave when it was traced, and what the tensors of that are in a call.
    pub(crate) tree: R,
    pub(crate) places: Vec<Place>,
    pub(crate) writes: Vec<Write>,
    pub(crate) lengths: Vec<UOp>,
}

/// Where a tensor comes from.
#[derive(Clone)]
pub(crate) enum Source {
    /// It is an argument, by number among the tensors.
    Argument(usize),
    /// It has a cell that the function reaches.
    Cell(Tensor),
}

/// A tensor of the tree that a function gives.
pub(crate) enum Place {
    /// It is a tensor from before the call.
    Old(Source),
    /// It is another tensor of the tree.
    Same(usize),
    /// It has the value of a root, and may be a view.
    Root {
        root: usize,
        view: Option<(Source, UOp)>,
        line: &'static Location<'static>,
    },
}

/// A tensor that the function leaves with another value.
pub(crate) struct Write {
    pub(crate) to: Source,
    pub(crate) root: usize,
    pub(crate) was: Was,
}

/// What a tensor that is written was before.
#[derive(Clone, Copy)]
pub(crate) enum Was {
    Input(usize),
    /// Whatever it has when the call begins.
    Anything,
}

/// The roots of a function, each once but for those that were to be realized.
#[derive(Default)]
struct Roots {
    all: Vec<UOp>,
    shown: Vec<bool>,
    at: FxHashMap<UOp, usize>,
}

impl Roots {
    /// The number of a root whose value is given out. Where nothing flows through it, it lies apart, as in `realize`.
    fn shown(&mut self, u: UOp) -> usize {
        let u = match u.viewed().op() {
            Op::Detach => u.unary(Op::Contiguous),
            _ => u,
        };
        let next = self.all.len();
        let at = *self.at.entry(u.clone()).or_insert(next);
        if at == next {
            self.all.push(u);
            self.shown.push(true);
        }
        self.shown[at] = true;
        at
    }
}

impl<R: Tensors> Traced<R> {
    /// What this trace says of a call.
    ///
    /// # Errors
    /// Those that tensors carry which the function gives or leaves behind.
    pub(crate) fn of(tree: R, mut trace: Trace, shown: &Shown) -> Result<Traced<R>> {
        let mut roots = Roots::default();
        for u in std::mem::take(&mut trace.remembered) {
            roots.at.entry(u.clone()).or_insert(roots.all.len());
            roots.all.push(u);
            roots.shown.push(false);
        }
        let argument: Vec<usize> = trace.passed.iter().map(|p| shown.number(&p.of)).collect();
        let places = places(&tree, &mut trace, &argument, &mut roots)?;
        let mut writes = Vec::new();
        for (passed, &number) in trace.passed.iter().zip(&argument) {
            let now = trace::outside(&passed.own).value?;
            if now != trace.inputs[passed.input] {
                writes.push(Write {
                    to: Source::Argument(number),
                    root: roots.shown(now),
                    was: Was::Input(passed.input),
                });
            }
        }
        for reached in &trace.reached {
            let now = trace::outside(&reached.instead).value;
            if now == reached.begun || matches!(reached.as_what, As::Passed(_)) {
                continue;
            }
            writes.push(Write {
                to: Source::Cell(Tensor(reached.cell.clone())),
                root: roots.shown(now?),
                was: match reached.as_what {
                    As::Input(k) => Was::Input(k),
                    _ => Was::Anything,
                },
            });
        }
        let mut inputs: Vec<Option<Source>> = vec![None; trace.inputs.len()];
        for (passed, &number) in trace.passed.iter().zip(&argument) {
            inputs[passed.input].get_or_insert(Source::Argument(number));
        }
        for reached in &trace.reached {
            if let As::Input(k) = reached.as_what {
                inputs[k].get_or_insert_with(|| Source::Cell(Tensor(reached.cell.clone())));
            }
        }
        let mut replaced = vec![None; trace.inputs.len()];
        let mut together = Vec::new();
        for write in &mut writes {
            let Was::Input(k) = write.was else { continue };
            let cells = trace.cells_of(k);
            if cells.len() > 1 {
                together.extend(cells);
            }
            // Of cells that are one input, that which it comes from may be written in place.
            if inputs[k].as_ref().is_some_and(|from| from.is(&write.to)) {
                replaced[k] = Some(write.root);
            } else {
                write.was = Was::Anything;
            }
        }
        let asked = std::mem::take(&mut trace.asked);
        let bounds = Bounds::of(&roots.all, &shown.lengths, asked);
        let guards = Guards::of(&trace, &argument, bounds);
        Ok(Traced {
            together,
            facts: Facts {
                inputs: inputs.into_iter().flatten().collect(),
                guards,
                draws: trace.draws,
                tree,
                places,
                writes,
                lengths: shown.lengths.clone(),
            },
            capture: Capture {
                roots: roots.all,
                shown: roots.shown,
                inputs: trace.inputs,
                replaced,
                words: trace.words,
                lengths: shown.lengths.clone(),
            },
        })
    }

    /// Its program, which stands for calls that look like this one.
    ///
    /// # Errors
    /// What scheduling and compiling say.
    pub(crate) fn compile(self, signature: Arc<Signature>) -> Result<Recorded<R>> {
        let Traced {
            capture, mut facts, ..
        } = self;
        let captured = capture.compile()?;
        for write in &mut facts.writes {
            if matches!(write.was, Was::Input(k) if !captured.takes(k)) {
                write.was = Was::Anything;
            }
        }
        Ok(Recorded {
            signature,
            captured,
            facts,
            kept: Mutex::default(),
        })
    }
}

/// What the tensors of a tree are, which were made in this trace or before it.
fn places(
    tree: &impl Tensors,
    trace: &mut Trace,
    argument: &[usize],
    roots: &mut Roots,
) -> Result<Vec<Place>> {
    let mut tensors: Vec<Tensor> = Vec::new();
    tree.leaves(&mut |leaf| {
        if let Leaf::Tensor(t) = leaf {
            tensors.push(t.clone());
        }
    });
    let mut out = Vec::with_capacity(tensors.len());
    for (k, Tensor(cell)) in tensors.iter().enumerate() {
        let same = tensors[..k].iter().position(|t| Arc::ptr_eq(&t.0, cell));
        if let Some(at) = same {
            out.push(Place::Same(at));
            continue;
        }
        if let Some(source) = old(cell, trace, argument) {
            out.push(Place::Old(source));
            continue;
        }
        let value = trace::outside(cell).value?;
        let view = cell.view.as_ref().and_then(|View { base, to }| {
            let base = old(&base.upgrade()?, trace, argument)?;
            Some((base, to.clone()))
        });
        out.push(Place::Root {
            root: roots.shown(value),
            view,
            line: cell.line,
        });
    }
    Ok(out)
}

/// Where a cell comes from that is from before the trace.
fn old(cell: &Arc<Cell>, trace: &mut Trace, argument: &[usize]) -> Option<Source> {
    let is_own = |p: &trace::Passed| Arc::ptr_eq(&p.own, cell);
    if let Some(at) = trace.passed.iter().position(is_own) {
        return Some(Source::Argument(argument[at]));
    }
    if cell.made == trace.number() {
        return None;
    }
    trace.reached(cell);
    Some(match trace.find(cell).map(|r| &r.as_what) {
        Some(As::Passed(at)) => Source::Argument(argument[*at]),
        _ => Source::Cell(Tensor(cell.clone())),
    })
}

impl<R: Tensors> Recorded<R> {
    /// Whether it stands for a call.
    pub(crate) fn stands_for(&self, shown: &Shown) -> bool {
        self.signature == shown.signature && self.facts.guards.hold(shown)
    }

    /// Why it does not stand for a call, in words.
    pub(crate) fn differs_from(&self, shown: &Shown) -> String {
        let how = self.signature.differs(&shown.signature);
        how.unwrap_or_else(|| "what the function reaches is of another kind".into())
    }

    /// What differs in another trace of the same call, if anything does.
    ///
    /// # Errors
    /// Where that cannot be captured, or constants cannot be read.
    pub(crate) fn differs(&self, other: &Traced<R>) -> Result<Option<&'static str>> {
        if !self.facts.draws_as(&other.facts) {
            return Ok(Some("it draws other random numbers"));
        }
        self.captured.differs(&other.capture)
    }

    /// Run it; where it writes, in its turn among the function's calls. Its random numbers are those of the
    /// stream.
    ///
    /// # Errors
    /// As `Captured::call`; `Capture` where a view is passed that the function assigns.
    pub(crate) fn call(
        &self,
        shown: &Shown,
        turn: &Mutex<()>,
        stream: &random::Stream,
    ) -> Result<R> {
        let facts = &self.facts;
        let writes = !facts.writes.is_empty();
        let _turn = writes.then(|| turn.lock().unwrap_or_else(|e| e.into_inner()));
        let mut before: Vec<Option<UOp>> = Vec::with_capacity(facts.writes.len());
        let mut written = vec![false; facts.inputs.len()];
        for write in &facts.writes {
            let t = write.to.tensor(shown);
            if let (Source::Argument(k), Some((Some(_), _))) = (&write.to, t.viewed()) {
                return Err(assigned_view(*k, t));
            }
            before.push(match write.was {
                Was::Anything => trace::outside(&t.0).value.ok(),
                Was::Input(k) => {
                    written[k] = true;
                    None
                }
            });
        }
        let drawn = random::taken(stream, &facts.draws, &facts.lengths, &shown.lengths)?;
        let values: RefCell<Vec<Option<UOp>>> = RefCell::default();
        let take = |given: &[Option<UOp>], made: &[Option<UOp>]| {
            for (write, before) in facts.writes.iter().zip(&before) {
                let was = match write.was {
                    Was::Input(k) => given[k].as_ref(),
                    Was::Anything => before.as_ref(),
                };
                if let (Some(old), Some(new)) = (was, &made[write.root]) {
                    let cell = &write.to.tensor(shown).0;
                    trace::write(cell, |held| held.realized(old, new.clone()));
                }
            }
            self.keep(given, &written);
            values.borrow_mut().extend_from_slice(made);
        };
        let advance = |k: usize, old: &UOp, next: &UOp| {
            trace::write(&facts.inputs[k].tensor(shown).0, |held| {
                // Under this lock nobody gets hold of it from here: its holders are the cell and the call.
                let alone = held.value.as_ref() == Ok(old) && old.owners() == 2;
                if alone {
                    *held = Held::of(Ok(next.clone()));
                }
                alone
            })
        };
        let called = self.captured.call(&Caller {
            advance: &advance,
            input: &|k| facts.inputs[k].tensor(shown).leaf(written[k]),
            edition: &|k| match &facts.inputs[k] {
                Source::Argument(_) => None,
                Source::Cell(t) => Some(t.0.edition.load(Ordering::Acquire)),
            },
            words: &drawn.words,
            lengths: &shown.values(),
            take: &take,
        });
        // A call that gives nothing has drawn nothing.
        if called.is_err() {
            drawn.give_back(stream);
        }
        called?;
        self.facts.tree(shown, &values.into_inner())
    }

    /// Keep what expressions were found to be.
    fn keep(&self, given: &[Option<UOp>], written: &[bool]) {
        for (k, value) in given.iter().enumerate().filter(|(k, _)| !written[*k]) {
            let (Some(value), Source::Cell(t)) = (value, &self.facts.inputs[k]) else {
                continue;
            };
            if trace::read(&t.0, |held| held.value.as_ref() != Ok(value)) {
                let mut kept = self.kept.lock().unwrap_or_else(|e| e.into_inner());
                kept.insert(k, value.clone());
            }
        }
    }
}

impl<R> Facts<R> {
    /// Whether as many numbers are drawn, whatever lengths are in this call.
    pub(crate) fn draws_as(&self, other: &Facts<R>) -> bool {
        let same = |(a, b): (&Draw, &Draw)| match (a, b) {
            (Draw::Numbers(a), Draw::Numbers(b)) => {
                *a == with_lengths(b, &other.lengths, &self.lengths)
            }
            _ => a == b,
        };
        self.draws.len() == other.draws.len() && self.draws.iter().zip(&other.draws).all(same)
    }
}

impl<R: Tensors> Facts<R> {
    /// What a call gives whose roots have these values.
    ///
    /// # Errors
    /// Where one is missing.
    pub(crate) fn tree(&self, shown: &Shown, values: &[Option<UOp>]) -> Result<R> {
        let mut made: Vec<Tensor> = Vec::with_capacity(self.places.len());
        for place in &self.places {
            made.push(match place {
                Place::Old(source) => source.tensor(shown).clone(),
                Place::Same(at) => made[*at].clone(),
                Place::Root { root, view, line } => {
                    let value = values[*root].clone().ok_or_else(|| {
                        let message = "a value of a captured function is missing".into();
                        Error::from(ErrorKind::Run { message })
                    })?;
                    let view = view.as_ref();
                    let view = view.map(|(base, to)| through(base.tensor(shown), to));
                    Tensor::made_of(Ok(value), line, view)
                }
            });
        }
        let mut next = made.into_iter();
        Ok(self.tree.rebuilt(&mut Over {
            next: |old: &Tensor| next.next().unwrap_or_else(|| old.clone()),
            were: &self.lengths,
            are: &shown.lengths,
        }))
    }
}

/// A view of a tensor, which is one of what that is a view of, if it is one.
fn through(base: &Tensor, to: &UOp) -> View {
    let (root, to) = match base.viewed() {
        Some((Some(root), above)) => (root, over(to, above)),
        _ => (base.clone(), to.clone()),
    };
    let base = Arc::downgrade(&root.0);
    View { base, to }
}

impl Source {
    /// Whether both are one tensor.
    fn is(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::Argument(a), Source::Argument(b)) => a == b,
            (Source::Cell(a), Source::Cell(b)) => a.is_clone_of(b),
            _ => false,
        }
    }

    pub(crate) fn tensor<'a>(&'a self, shown: &'a Shown) -> &'a Tensor {
        match self {
            Source::Argument(k) => &shown.tensors[*k],
            Source::Cell(t) => t,
        }
    }
}

impl Tensor {
    /// What it is a view of, through all views, or itself.
    pub(crate) fn root(&self) -> Tensor {
        let mut root = self.clone();
        while let Some((Some(base), _)) = root.viewed() {
            root = base;
        }
        root
    }

    /// Its expression, with no assign in it that waits; in storage, where that is to be `written`.
    fn leaf(&self, written: bool) -> Result<UOp> {
        let waits = self.was_assigned()?;
        if waits || written && self.uop()?.op() != Op::Buffer {
            self.realize()?;
        }
        self.uop()
    }
}

/// The error of passing a view of which the function would write what it is a view of.
pub(crate) fn assigned_view(argument: usize, t: &Tensor) -> Error {
    let message = format!(
        "tensor {argument} of the arguments is a view, and the function assigns it: pass what it is a view \
         of, and take the view inside"
    );
    Error::from(ErrorKind::Capture { message }).at(t.0.line)
}
