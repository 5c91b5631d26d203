//! The derivative of a scan is a scan the other way. Flows in: what flows to the last carries and to what was
//! gathered; flows out: what flows to the first carries, to the slices, and to what is the same each time.
//!
//! A time of it takes what flows to the next carries, and gives what flows to this time's. What flows to what is
//! the same each time is summed on the way. It reads the carries that each time got, and what was kept of that
//! time (`kept`), which the first scan gathers besides.

use super::gradients;
use super::kept::{brought, kept};
use crate::arg::{Arg, ScanInfo};
use crate::error::Result;
use crate::function::{abstracted, abstracted_behind, params, scan};
use crate::node::{Srcs, UOp};
use crate::op::Op;
use rustc_hash::FxHashMap;

/// What a slice of the derivative is.
#[derive(Clone, Copy)]
enum Slice {
    /// An argument of the first scan.
    Argument(usize),
    /// What flows to a value that was gathered.
    Seed(usize),
    /// What the first scan gathers, by number.
    Gathered(usize),
}

/// See the module.
pub(super) fn flow(
    function: &UOp,
    info: &ScanInfo,
    seeds: &[Option<UOp>],
    active: &dyn Fn(&UOp) -> bool,
    give: &mut Vec<(UOp, UOp)>,
) -> Result<()> {
    let body = &function.src()[0];
    let arguments = &function.src()[1..];
    let values = body.src();
    let apart = info.carries + info.slices;
    let mut number = arguments.len() as u64;
    let mut fresh = |like: &UOp, dtype| {
        number += 1;
        UOp::param(number - 1, like.shape(), dtype, like.device())
    };
    let mut own: Vec<Option<UOp>> = vec![None; arguments.len()];
    for p in params(body) {
        let slot = p.buffer_arg().map(|b| b.slot as usize);
        if let Some(place) = slot.and_then(|k| own.get_mut(k)) {
            *place = Some(p);
        }
    }

    // What flows to each value at one time, and to what of the arguments.
    let mut roots: Vec<(UOp, UOp)> = Vec::new();
    let mut flowing: Vec<usize> = Vec::new();
    let mut slices: FxHashMap<UOp, Slice> = FxHashMap::default();
    for (i, value) in values
        .iter()
        .enumerate()
        .filter(|(_, v)| v.dtype().is_float())
    {
        if i >= info.carries && seeds[i].is_none() {
            continue;
        }
        let seed = fresh(value, value.dtype());
        if i < info.carries {
            flowing.push(i);
        } else {
            slices.insert(seed.clone(), Slice::Seed(i));
        }
        roots.push((value.clone(), seed));
    }
    let is_target = |k: &usize| {
        let carry = *k < info.carries;
        let float = own[*k].as_ref().is_some_and(|p| p.dtype().is_float());
        float && (carry || active(&arguments[*k]))
    };
    let targets: Vec<usize> = (0..arguments.len()).filter(is_target).collect();
    let nodes: Vec<UOp> = targets.iter().filter_map(|&k| own[k].clone()).collect();
    let found: FxHashMap<usize, UOp> = targets
        .into_iter()
        .zip(gradients(&roots, &nodes)?)
        .filter_map(|(k, g)| Some((k, g?)))
        .collect();

    // The next values: what flows to the carries, the sums, and what flows to this part of the slices.
    let zeros = |u: &UOp| UOp::full(u.dtype().zero(), u.dtype(), u.shape());
    let mut first: Vec<UOp> = roots[..flowing.len()]
        .iter()
        .map(|(_, s)| s.clone())
        .collect();
    let mut next: Vec<UOp> = Vec::new();
    let mut begin: Vec<UOp> = Vec::new();
    for &i in &flowing {
        next.push(found.get(&i).cloned().unwrap_or_else(|| zeros(&values[i])));
        let whole = &arguments[i];
        begin.push(seeds[i].clone().unwrap_or_else(|| zeros(whole)));
    }
    let mut summed: Vec<usize> = found.keys().copied().filter(|&k| k >= apart).collect();
    summed.sort();
    for k in &summed {
        let g = &found[k];
        let dtype = g.dtype().compute_type();
        let sum = fresh(g, dtype);
        next.push(&sum + &g.cast(dtype));
        first.push(sum);
        begin.push(UOp::full(dtype.zero(), dtype, arguments[*k].shape()));
    }
    let carries = first.len();
    let mut parts: Vec<usize> = found.keys().copied().collect();
    parts.retain(|&k| k >= info.carries && k < apart);
    parts.sort();
    next.extend(parts.iter().map(|k| found[k].clone()));

    // What that reads.
    let mut forward: Vec<UOp> = values.to_vec();
    for node in kept(&next, body, true) {
        slices.insert(node.clone(), Slice::Gathered(forward.len()));
        forward.push(node);
    }
    for (k, param) in own[..apart].iter().enumerate() {
        if let Some(param) = param {
            slices.insert(param.clone(), Slice::Argument(k));
        }
    }
    let named: Vec<UOp> = slices
        .keys()
        .chain(own.iter().flatten())
        .chain(&first)
        .cloned()
        .chain(brought(&next))
        .collect();
    let mut same: Vec<UOp> = Vec::new();
    let mut lines: Vec<UOp> = Vec::new();
    for read in abstracted(&next, &named)?.arguments {
        match slices.get(&read) {
            Some(Slice::Argument(k)) if *k < info.carries => {
                slices.insert(read.clone(), Slice::Gathered(forward.len()));
                forward.push(read.clone());
                lines.push(read);
            }
            Some(_) => lines.push(read),
            None if first.contains(&read) => {}
            None => same.push(read),
        }
    }
    first.extend_from_slice(&lines);
    first.extend_from_slice(&same);
    let made = abstracted_behind(&first, &next, &[])?;
    let forward = UOp::new(Op::Tuple, Srcs::from(forward), Arg::None);
    let gathered = scan(&forward, arguments, *info)?;
    let mut taken = begin;
    for line in &lines {
        taken.extend(match slices[line] {
            Slice::Argument(k) => Some(arguments[k].clone()),
            Slice::Seed(i) => seeds[i].clone(),
            Slice::Gathered(i) => Some(gathered[i].clone()),
        });
    }
    for u in same {
        let slot = own.iter().position(|p| p.as_ref() == Some(&u));
        taken.push(slot.map_or(u, |k| arguments[k].clone()));
    }
    let back = ScanInfo {
        carries,
        slices: lines.len(),
        reversed: !info.reversed,
        ..*info
    };
    let results = scan(&made.body, &taken, back)?;
    let of = flowing.iter().chain(&summed).chain(&parts);
    for (&k, g) in of.zip(results) {
        if active(&arguments[k]) {
            give.push((arguments[k].clone(), g.cast(arguments[k].dtype())));
        }
    }
    Ok(())
}
