//! What must be as it was for a program to stand for a call. Flows in: a trace; flows out: whether that is so of a
//! call. Invariant: values do not count, but those of constants.

use crate::bounds::Bounds;
use crate::cell::Cell;
use crate::signature::Shown;
use crate::tensor::Tensor;
use crate::trace::{self, As, Trace, address};
use monoglot_engine::Config;
use monoglot_uop::UOp;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What must be as it was when the function was traced.
pub(crate) struct Guards {
    /// Cells with stand-ins for their values.
    inputs: Vec<(Tensor, UOp)>,
    /// Cells that had equal expressions.
    equal: Vec<[Tensor; 2]>,
    /// Cells that had the expressions of arguments, by number.
    given: Vec<(Tensor, usize)>,
    /// Cells with expressions that read nothing.
    pub(super) constants: Vec<(Tensor, UOp)>,
    /// Cells of views, and whether they show what their bases are now.
    views: Vec<(Tensor, bool)>,
    /// Cells that carry errors.
    failed: Vec<Tensor>,
    /// Cells that the function reaches, by address, and which argument each is.
    reached: FxHashMap<usize, Option<usize>>,
    /// How many of them are arguments.
    passed: usize,
    flags: Vec<(Arc<AtomicBool>, bool)>,
    check: bool,
    pub(super) bounds: Bounds,
    /// Which values cells had when they were last as they were: the same ones still are.
    seen: OnceLock<Vec<(Tensor, AtomicU64)>>,
}

impl Guards {
    pub(super) fn of(trace: &Trace, argument: &[usize], bounds: Bounds) -> Guards {
        let mut guards = Guards {
            flags: trace.flags.clone(),
            ..Guards::none(bounds)
        };
        let mut first: FxHashMap<usize, &Arc<Cell>> = FxHashMap::default();
        let given = trace.passed.iter().zip(argument);
        let given: FxHashMap<usize, usize> = given.map(|(p, &at)| (p.input, at)).collect();
        for reached in &trace.reached {
            let tensor = Tensor(reached.cell.clone());
            let mut passed = None;
            if reached.cell.view.is_some() {
                let shows = matches!(reached.as_what, As::View);
                guards.views.push((tensor.clone(), shows));
            }
            match &reached.as_what {
                As::Input(k) => {
                    guards
                        .inputs
                        .push((tensor.clone(), trace.inputs[*k].clone()));
                    let at = given.get(k);
                    guards.given.extend(at.map(|&at| (tensor.clone(), at)));
                    match first.get(k) {
                        Some(other) => guards.equal.push([Tensor((*other).clone()), tensor]),
                        None => drop(first.insert(*k, &reached.cell)),
                    }
                }
                As::Constant(u) => guards.constants.push((tensor, u.clone())),
                As::View => {}
                As::Failed => guards.failed.push(tensor),
                As::Passed(at) => {
                    passed = Some(argument[*at]);
                    guards.passed += 1;
                }
            }
            guards.reached.insert(address(&reached.cell), passed);
        }
        guards
    }

    /// Whether all is as it was. A trace that is open has reached what decides that, as its own program relies on it.
    pub(crate) fn hold(&self, shown: &Shown) -> bool {
        let now = |t: &Tensor| t.uop();
        let mut passed = 0;
        for (k, t) in shown.tensors.iter().enumerate() {
            match self.reached.get(&address(&t.0)) {
                Some(Some(at)) if *at == shown.number(&t.0) => passed += usize::from(*at == k),
                Some(_) => return false,
                None => {}
            }
        }
        let alike = |t: &Tensor, stand_in: &UOp| {
            trace::read(&t.0, |held| {
                let Ok(u) = &held.value else { return false };
                let device = u.device().or(stand_in.device());
                u.shape() == stand_in.shape()
                    && u.dtype() == stand_in.dtype()
                    && device == stand_in.device()
            })
        };
        let shows = |t: &Tensor| {
            let value = now(t);
            value.is_ok_and(|u| trace::shown_of(&t.0, &u).is_some())
        };
        let unset = |t: &Tensor, was: &UOp| {
            trace::read(&t.0, |held| {
                held.value.as_ref() == Ok(was) && !held.assigned
            })
        };
        passed == self.passed
            && self.bounds.hold(&shown.lengths)
            && self.check == Config::current().check
            && self.views.iter().all(|(t, was)| shows(t) == *was)
            && self
                .given
                .iter()
                .all(|(t, at)| now(t) == now(&shown.tensors[*at]))
            && self.flags.iter().all(|(f, was)| trace::observe(f) == *was)
            && self.seen_or(|| {
                self.inputs.iter().all(|(t, stand_in)| alike(t, stand_in))
                    && self.equal.iter().all(|[a, b]| now(a) == now(b))
                    && self.constants.iter().all(|(t, was)| unset(t, was))
                    && self.failed.iter().all(|t| now(t).is_err())
            })
    }

    /// Whether all cells hold what they held when this was last so of them, or it is so of what they hold. Within a trace
    /// they hold what they do there, which has no edition that others know.
    fn seen_or(&self, is: impl FnOnce() -> bool) -> bool {
        if trace::number() != 0 {
            return is();
        }
        let seen = self.seen.get_or_init(|| {
            let inputs = self.inputs.iter().chain(&self.constants).map(|(t, _)| t);
            let cells = inputs.chain(&self.failed).cloned();
            cells.map(|t| (t, AtomicU64::new(u64::MAX))).collect()
        });
        let edition = |t: &Tensor| t.0.edition.load(Ordering::Acquire);
        if seen
            .iter()
            .all(|(t, was)| edition(t) == was.load(Ordering::Relaxed))
        {
            return true;
        }
        let editions: Vec<u64> = seen.iter().map(|(t, _)| edition(t)).collect();
        let is = is();
        for ((_, was), now) in seen.iter().zip(editions).filter(|_| is) {
            was.store(now, Ordering::Relaxed);
        }
        is
    }

    /// Those of a program that reaches nothing but what is its own.
    pub(super) fn none(bounds: Bounds) -> Guards {
        Guards {
            inputs: Vec::new(),
            equal: Vec::new(),
            given: Vec::new(),
            constants: Vec::new(),
            views: Vec::new(),
            failed: Vec::new(),
            reached: FxHashMap::default(),
            passed: 0,
            flags: Vec::new(),
            check: Config::current().check,
            bounds,
            seen: OnceLock::new(),
        }
    }
}
