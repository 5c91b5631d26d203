//! The program of a captured function on its own: apart from the function, and from the tensors that this
//! reaches. Flows in: a trace, or what was written of one; flows out: a program whose tensors are its own, and
//! what is to be written of it. Invariant: what another program is given by a number is there.

use super::{Facts, Guards, Place, Recorded, Source, Traced, Was, Write};
use crate::bounds::{Bounds, text_of};
use crate::cell::Cell;
use crate::tensor::Tensor;
use crate::trace::{self, Draw, address};
use crate::tree::Tensors;
use monoglot_engine as engine;
use monoglot_engine::Captured;
use monoglot_uop::text::parse_many;
use monoglot_uop::{DType, Dim, Error, Result, Shape, UOp};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::panic::Location;
use std::sync::{Arc, Mutex, Weak};

/// A tensor that a program has of its own.
pub(crate) struct Hidden {
    pub(crate) tensor: Tensor,
    /// The cell whose value it began with.
    pub(crate) origin: Weak<Cell>,
}

/// What is written of a program, besides what the engine writes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedFacts {
    inputs: Vec<SavedSource>,
    writes: Vec<SavedWrite>,
    places: Vec<SavedPlace>,
    draws: Vec<SavedDraw>,
    /// What lengths must fit, in the text form.
    bounds: String,
    /// The numbers among that.
    known: Vec<i64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SavedSource {
    Argument(usize),
    Hidden(usize),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedWrite {
    to: SavedSource,
    root: usize,
    /// The input that it was; none where it may have been anything.
    was: Option<usize>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SavedPlace {
    Old(SavedSource),
    Same(usize),
    Root(usize),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SavedDraw {
    Numbers(u64),
    /// As many as this size, in the text form.
    Sized(String),
    Seed(u64),
}

impl<R: Tensors> Traced<R> {
    /// The cells, by address, that are taken for what they are now, though the function writes them.
    pub(crate) fn written_constants(&self) -> Vec<usize> {
        let constants = &self.facts.guards.constants;
        let is_constant = |t: &Tensor| constants.iter().any(|(c, _)| c.is_clone_of(t));
        let written = self.facts.writes.iter().filter_map(|w| match &w.to {
            Source::Cell(t) if is_constant(t) => Some(address(&t.0)),
            _ => None,
        });
        written.collect()
    }

    /// The same over tensors of its own, which begin with the values that the cells have now. `argument` is the
    /// number of each tensor among those that differ.
    ///
    /// # Errors
    /// What is wrong with those values.
    pub(crate) fn apart(
        self,
        argument: &[usize],
        line: &'static Location<'static>,
    ) -> Result<(Traced<Vec<Tensor>>, Vec<Hidden>)> {
        let Traced { capture, facts, .. } = self;
        let mut own = Own {
            argument,
            cells: Vec::new(),
            at: FxHashMap::default(),
        };
        let inputs: Vec<Numbered> = facts.inputs.iter().map(|s| own.number(s)).collect();
        let mut writes = Vec::with_capacity(facts.writes.len());
        for write in &facts.writes {
            // What carries an error carries it after a call, too.
            let lost = matches!(&write.to, Source::Cell(t) if trace::outside(&t.0).value.is_err());
            if !lost {
                writes.push((own.number(&write.to), write.root, write.was));
            }
            if let (Source::Cell(_), Was::Input(k)) = (&write.to, write.was) {
                keeps_its_look(&capture.inputs[k], &capture.roots[write.root])?;
            }
        }
        let mut places = Vec::with_capacity(facts.places.len());
        for place in &facts.places {
            let written = |w: &&Write| match (place, &w.to) {
                (Place::Old(Source::Cell(t)), Source::Cell(to)) => t.is_clone_of(to),
                _ => false,
            };
            // A state is given as this call leaves it, whatever others do to it meanwhile.
            places.push(match (place, facts.writes.iter().find(written)) {
                (_, Some(write)) => Ok(Place::Root {
                    root: write.root,
                    view: None,
                    line,
                }),
                (Place::Old(source), None) => Err(own.number(source)),
                (Place::Same(at), None) => Ok(Place::Same(*at)),
                (Place::Root { root, line, .. }, None) => Ok(Place::Root {
                    root: *root,
                    view: None,
                    line,
                }),
            });
        }
        let values: Result<Vec<UOp>> = own
            .cells
            .iter()
            .map(|cell| trace::outside(cell).value)
            .collect();
        let values = engine::realize(&values?)?;
        let made = |(cell, value): (&Arc<Cell>, UOp)| Hidden {
            tensor: Tensor::made_of(Ok(value), line, None),
            origin: Arc::downgrade(cell),
        };
        let hidden: Vec<Hidden> = own.cells.iter().zip(values).map(made).collect();
        let source = |n: Numbered| n.source(|k| hidden[k].tensor.clone());
        let place =
            |p: std::result::Result<Place, Numbered>| p.unwrap_or_else(|n| Place::Old(source(n)));
        let places: Vec<Place> = places.into_iter().map(place).collect();
        let write = |(to, root, was)| Write {
            to: source(to),
            root,
            was,
        };
        let facts = Facts {
            inputs: inputs.into_iter().map(source).collect(),
            guards: Guards::none(facts.guards.bounds),
            draws: facts.draws,
            tree: blank(places.len()),
            writes: writes.into_iter().map(write).collect(),
            places,
            lengths: facts.lengths,
        };
        let traced = Traced {
            capture,
            facts,
            together: Vec::new(),
        };
        Ok((traced, hidden))
    }
}

/// What a state becomes is what the next call reads, as it was captured.
fn keeps_its_look(state: &UOp, becomes: &UOp) -> Result<()> {
    let look = |u: &UOp| (u.shape().max_ints(), u.dtype());
    if look(state) == look(becomes) {
        return Ok(());
    }
    let [was, is] = [state, becomes].map(|u| format!("{} of shape {}", u.dtype(), u.shape()));
    let message = format!(
        "a call makes {is} of a state that is {was}: those of a program stay what they are"
    );
    Err(Error::argument("program", message))
}

/// As many tensors, in whose places others will be.
fn blank(count: usize) -> Vec<Tensor> {
    vec![Tensor::scalar(0.0f32); count]
}

/// Cells that are numbered as they come.
struct Own<'a> {
    argument: &'a [usize],
    cells: Vec<Arc<Cell>>,
    at: FxHashMap<usize, usize>,
}

/// Where a tensor comes from, by number.
#[derive(Clone, Copy)]
enum Numbered {
    Argument(usize),
    Hidden(usize),
}

impl Numbered {
    fn source(self, hidden: impl Fn(usize) -> Tensor) -> Source {
        match self {
            Numbered::Argument(k) => Source::Argument(k),
            Numbered::Hidden(k) => Source::Cell(hidden(k)),
        }
    }
}

impl Own<'_> {
    fn number(&mut self, source: &Source) -> Numbered {
        let cell = match source {
            Source::Argument(k) => return Numbered::Argument(self.argument[*k]),
            Source::Cell(t) => &t.0,
        };
        let next = self.cells.len();
        let at = *self.at.entry(address(cell)).or_insert(next);
        if at == next {
            self.cells.push(cell.clone());
        }
        Numbered::Hidden(at)
    }
}

/// What stands in the place of a tensor that a program gives.
pub(crate) enum Given<'a> {
    Argument(usize),
    Hidden(&'a Tensor),
    /// The value of a root: one of its shape and dtype.
    Root(&'a UOp),
}

impl Recorded<Vec<Tensor>> {
    /// What it is called with and gives, for the engine.
    pub(crate) fn captured(&self) -> &Captured {
        &self.captured
    }

    /// What lengths must fit.
    pub(crate) fn bounds(&self) -> &Bounds {
        &self.facts.guards.bounds
    }

    /// Whether a call writes anything, and whether an argument.
    pub(crate) fn writes(&self) -> (bool, bool) {
        let argument = |w: &Write| matches!(w.to, Source::Argument(_));
        let writes = &self.facts.writes;
        (!writes.is_empty(), writes.iter().any(argument))
    }

    /// Whether a call writes a tensor of its own.
    pub(crate) fn writes_to(&self, hidden: &Tensor) -> bool {
        let is = |w: &Write| matches!(&w.to, Source::Cell(t) if t.is_clone_of(hidden));
        self.facts.writes.iter().any(is)
    }

    /// What each tensor is that a call gives.
    pub(crate) fn gives(&self) -> Vec<Given<'_>> {
        let mut out: Vec<usize> = Vec::new();
        for (k, place) in self.facts.places.iter().enumerate() {
            out.push(match place {
                Place::Same(at) => out[*at],
                _ => k,
            });
        }
        let given = |k: usize| match &self.facts.places[k] {
            Place::Old(Source::Argument(k)) => Some(Given::Argument(*k)),
            Place::Old(Source::Cell(t)) => Some(Given::Hidden(t)),
            Place::Root { root, .. } => Some(Given::Root(self.captured.output(*root)?)),
            Place::Same(_) => None,
        };
        out.into_iter().filter_map(given).collect()
    }

    /// Whether every input that the program takes is of what its tensor is; `argument` says what those look like
    /// that are passed.
    ///
    /// # Errors
    /// `Argument` where one is not.
    pub(crate) fn check_inputs(
        &self,
        argument: impl Fn(usize) -> Option<(Shape, DType)>,
    ) -> Result<()> {
        for (k, source) in self.facts.inputs.iter().enumerate() {
            let Some(wanted) = self.captured.input(k) else {
                continue;
            };
            let is = match source {
                Source::Argument(at) => argument(*at),
                Source::Cell(t) => t.uop().ok().map(|u| (u.shape().clone(), u.dtype())),
            };
            let fits = is.is_some_and(|(shape, dtype)| {
                shape.max_ints() == wanted.shape().max_ints() && dtype == wanted.dtype()
            });
            if !fits {
                let message = format!("input {k} is of another look than {wanted:?}");
                return Err(Error::argument("program", message));
            }
        }
        Ok(())
    }

    /// What is to be written of it.
    pub(crate) fn saved(&self, hidden: &[&Tensor]) -> SavedFacts {
        let facts = &self.facts;
        let source = |s: &Source| match s {
            Source::Argument(k) => SavedSource::Argument(*k),
            Source::Cell(t) => {
                let found = hidden.iter().position(|h| h.is_clone_of(t));
                SavedSource::Hidden(found.expect("what a program reaches is its own"))
            }
        };
        let write = |w: &Write| SavedWrite {
            to: source(&w.to),
            root: w.root,
            was: match w.was {
                Was::Input(k) => Some(k),
                Was::Anything => None,
            },
        };
        let place = |p: &Place| match p {
            Place::Old(s) => SavedPlace::Old(source(s)),
            Place::Same(at) => SavedPlace::Same(*at),
            Place::Root { root, .. } => SavedPlace::Root(*root),
        };
        let draw = |d: &Draw| match d {
            Draw::Numbers(Dim::Int(n)) => SavedDraw::Numbers(n.unsigned_abs()),
            Draw::Numbers(n) => SavedDraw::Sized(text_of(&facts.lengths, &[n.to_uop()])),
            Draw::Seed(seed) => SavedDraw::Seed(*seed),
        };
        let (bounds, known) = facts.guards.bounds.text();
        SavedFacts {
            inputs: facts.inputs.iter().map(source).collect(),
            writes: facts.writes.iter().map(write).collect(),
            places: facts.places.iter().map(place).collect(),
            draws: facts.draws.iter().map(draw).collect(),
            bounds,
            known,
        }
    }

    /// The program that was written, over tensors of its own.
    ///
    /// # Errors
    /// `Argument` where what was written names what is not there.
    pub(crate) fn of_saved(
        saved: SavedFacts,
        captured: Captured,
        hidden: &[Tensor],
        arguments: usize,
        lengths: &[UOp],
        line: &'static Location<'static>,
    ) -> Result<Recorded<Vec<Tensor>>> {
        let (inputs, _) = captured.counts();
        let wrong = |message: String| Error::argument("program", message);
        let source = |s: SavedSource| match s {
            SavedSource::Argument(k) if k < arguments => Ok(Source::Argument(k)),
            SavedSource::Hidden(k) if k < hidden.len() => Ok(Source::Cell(hidden[k].clone())),
            _ => Err(wrong("it names a tensor that is not there".into())),
        };
        let root = |root: usize| match captured.output(root) {
            Some(_) => Ok(root),
            None => Err(wrong(format!("root {root} is not given out"))),
        };
        if saved.inputs.len() != inputs {
            let has = saved.inputs.len();
            return Err(wrong(format!("it has {inputs} inputs, not {has}")));
        }
        let sources: Result<Vec<Source>> = saved.inputs.into_iter().map(source).collect();
        let mut writes = Vec::with_capacity(saved.writes.len());
        for write in saved.writes {
            writes.push(Write {
                to: source(write.to)?,
                root: root(write.root)?,
                was: match write.was {
                    None => Was::Anything,
                    Some(k) if k < inputs && captured.takes(k) => Was::Input(k),
                    Some(k) => return Err(wrong(format!("input {k} is not taken"))),
                },
            });
        }
        let mut places: Vec<Place> = Vec::with_capacity(saved.places.len());
        for place in saved.places {
            places.push(match place {
                SavedPlace::Old(s) => Place::Old(source(s)?),
                SavedPlace::Same(at) if at < places.len() => Place::Same(at),
                SavedPlace::Same(at) => return Err(wrong(format!("no value {at} stands before"))),
                SavedPlace::Root(k) => Place::Root {
                    root: root(k)?,
                    view: None,
                    line,
                },
            });
        }
        let mut draws = Vec::with_capacity(saved.draws.len());
        for draw in &saved.draws {
            draws.push(match draw {
                SavedDraw::Numbers(n) => {
                    let count = i64::try_from(*n);
                    let count = count.map_err(|_| wrong(format!("{n} random numbers")))?;
                    Draw::Numbers(Dim::Int(count))
                }
                SavedDraw::Sized(text) => match &parse_many(text)?[..] {
                    [size] => Draw::Numbers(Dim::of(size)),
                    _ => return Err(wrong("a number of random numbers is one size".into())),
                },
                SavedDraw::Seed(seed) => Draw::Seed(*seed),
            });
        }
        let bounds = Bounds::of_text(&saved.bounds, saved.known, lengths)?;
        Ok(Recorded {
            signature: Arc::default(),
            facts: Facts {
                inputs: sources?,
                guards: Guards::none(bounds),
                draws,
                tree: blank(places.len()),
                places,
                writes,
                lengths: lengths.to_vec(),
            },
            captured,
            kept: Mutex::default(),
        })
    }
}

impl SavedFacts {
    /// How many words its draws take.
    pub(crate) fn words(&self) -> usize {
        let numbers = |d: &&SavedDraw| !matches!(d, SavedDraw::Seed(_));
        2 * self.draws.iter().filter(numbers).count()
    }
}
