//! The derivative of a FUNCTION is a FUNCTION: one body for all calls of one body that are asked for the same.
//! Flows in: what flows to the values of a call; flows out: what flows to its arguments, as values of another
//! call. That takes the arguments, what flows to the values, and what the first call keeps of what it computes on the
//! way (`kept`), which are values of the call besides (`merge_functions` makes one call of the two). Of a call that
//! says so (`Recompute`) nothing is kept: the derivative begins with the arguments.

use super::kept::{brought, kept};
use super::{gradients, scans};
use crate::arg::{Arg, Recompute};
use crate::error::Result;
use crate::function::{abstracted, call_as, params};
use crate::node::{Srcs, UOp};
use crate::op::Op;
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// The calls of one walk.
#[derive(Default)]
pub(super) struct Calls {
    /// What flows to the values of a FUNCTION.
    seeds: FxHashMap<UOp, Vec<Option<UOp>>>,
    known: FxHashMap<Asked, Rc<Backward>>,
}

/// What a derivative is asked for.
#[derive(PartialEq, Eq, Hash)]
struct Asked {
    body: UOp,
    /// For each argument, whether its gradient is wanted.
    wanted: Vec<bool>,
    /// For each value, whether something flows to it.
    seeded: Vec<bool>,
    /// Whether it keeps nothing.
    again: bool,
}

/// The derivative of a body.
struct Backward {
    body: UOp,
    arguments: Vec<Taken>,
    /// The arguments whose gradients its values are.
    of: Vec<usize>,
    /// The first body with what it computes on the way, behind its own values.
    forward: UOp,
}

/// What a derivative takes.
#[derive(Clone)]
enum Taken {
    Argument(usize),
    /// What flows to a value.
    Seed(usize),
    /// A value of the first body.
    Value(usize),
    /// What a rule of a user brings along.
    Outside(UOp),
}

impl Calls {
    /// Take down what flows to value `i` of a FUNCTION.
    pub(super) fn reaches(&mut self, function: &UOp, i: usize, g: UOp) {
        let count = function.src()[0].src().len();
        let seeds = self.seeds.entry(function.clone());
        let seeds = seeds.or_insert_with(|| vec![None; count]);
        seeds[i] = Some(match seeds[i].take() {
            Some(old) => old + g,
            None => g,
        });
    }

    /// What flows to the arguments of a FUNCTION, once all of what flows to its values is known.
    pub(super) fn flow(
        &mut self,
        function: &UOp,
        active: &dyn Fn(&UOp) -> bool,
        give: &mut Vec<(UOp, UOp)>,
    ) -> Result<()> {
        let Some(seeds) = self.seeds.remove(function) else {
            return Ok(());
        };
        if let Arg::Scan(info) = function.arg() {
            return scans::flow(function, info, &seeds, active, give);
        }
        let arguments = &function.src()[1..];
        let asked = Asked {
            body: function.src()[0].clone(),
            wanted: arguments.iter().map(active).collect(),
            seeded: seeds.iter().map(Option::is_some).collect(),
            again: matches!(function.arg(), Arg::Recompute(_)),
        };
        let like = match asked.again {
            true => Arg::Recompute(Recompute::Again),
            false => Arg::None,
        };
        let backward = match self.known.get(&asked) {
            Some(known) => known.clone(),
            None => {
                let made = Rc::new(Backward::of(&asked)?);
                self.known.insert(asked, made.clone());
                made
            }
        };
        if backward.of.is_empty() {
            return Ok(());
        }
        let values = call_as(&backward.forward, arguments, function.arg().clone())?;
        let taken = |t: &Taken| match t {
            Taken::Argument(k) => Some(arguments[*k].clone()),
            Taken::Seed(i) => seeds[*i].clone(),
            Taken::Value(i) => Some(values[*i].clone()),
            Taken::Outside(u) => Some(u.clone()),
        };
        let taken: Vec<UOp> = backward.arguments.iter().filter_map(taken).collect();
        let gradients = call_as(&backward.body, &taken, like)?;
        let to = backward.of.iter().map(|&k| arguments[k].clone());
        give.extend(to.zip(gradients));
        Ok(())
    }
}

impl Backward {
    fn of(asked: &Asked) -> Result<Backward> {
        let values = asked.body.src();
        let count = asked.wanted.len();
        let own = params(&asked.body);
        let slot = |p: &UOp| p.buffer_arg().map_or(count, |b| b.slot as usize);
        let is_wanted = |p: &&UOp| asked.wanted.get(slot(p)) == Some(&true) && p.dtype().is_float();
        let targets: Vec<UOp> = own.iter().filter(is_wanted).cloned().collect();
        let mut place: FxHashMap<UOp, Taken> = FxHashMap::default();
        place.extend(own.iter().map(|p| (p.clone(), Taken::Argument(slot(p)))));
        let mut roots = Vec::new();
        for (i, value) in values.iter().enumerate().filter(|(i, _)| asked.seeded[*i]) {
            let number = (count + i) as u64;
            let seed = UOp::param(number, value.shape(), value.dtype(), value.device());
            place.insert(seed.clone(), Taken::Seed(i));
            roots.push((value.clone(), seed));
        }
        let found = gradients(&roots, &targets)?;
        let mut of = Vec::new();
        let mut wanted = Vec::new();
        for (g, target) in found.into_iter().zip(&targets) {
            if let Some(g) = g {
                of.push(slot(target));
                wanted.push(g);
            }
        }
        let mut forward: Vec<UOp> = values.to_vec();
        let kept = match asked.again {
            true => Vec::new(),
            false => kept(&wanted, &asked.body, false),
        };
        for kept in kept {
            let known = forward.iter().position(|v| *v == kept);
            let at = known.unwrap_or(forward.len());
            if known.is_none() {
                forward.push(kept.clone());
            }
            place.insert(kept, Taken::Value(at));
        }
        let named: Vec<UOp> = place.keys().cloned().chain(brought(&wanted)).collect();
        let made = abstracted(&wanted, &named)?;
        let taken = |a: UOp| place.get(&a).cloned().unwrap_or(Taken::Outside(a));
        Ok(Backward {
            body: made.body,
            arguments: made.arguments.into_iter().map(taken).collect(),
            of,
            forward: UOp::new(Op::Tuple, Srcs::from(forward), Arg::None),
        })
    }
}
