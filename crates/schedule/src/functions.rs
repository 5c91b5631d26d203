//! Calls of bodies that are scheduled once. Flows in: roots with FUNCTIONs; flows out: roots without, and beside
//! them the calls; later, kernels in which each call has become those of its body, with the buffers of its place.
//!
//! The kernels of a body read and write whole buffers: what it is called with is stored, and so is what it gives.
//! Invariant: where the kernels of a body stand is decided by what they read and write, like that of all.

use crate::kernel::{Call, Callee, Calls, stored};
use crate::order::topological;
use crate::rangeify::Output;
use crate::scan;
use monoglot_uop::function::{params, slot, values_of};
use monoglot_uop::graph::toposort_many;
use monoglot_uop::node::Srcs;
use monoglot_uop::{Arg, Device, Error, ErrorKind, Op, OpSet, Result, ScanInfo, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Movement that leaves elements where they are.
const STAYS: OpSet = OpSet::of(&[Op::Reshape]);

/// A call of a body.
pub(crate) struct Site {
    body: UOp,
    /// How it is called again and again, if it is.
    scan: Option<ScanInfo>,
    /// The number of the PARAM in place of its first value.
    first: usize,
    /// Its values, as the program around it sees them.
    values: Vec<UOp>,
    /// For each argument the variable that it is, or None where it is a root.
    lengths: Vec<Option<UOp>>,
}

/// A graph apart from the calls in it.
pub(crate) struct Apart {
    /// What the calls are given, then the roots.
    pub(crate) roots: Vec<UOp>,
    /// Sources before users.
    pub(crate) sites: Vec<Site>,
    /// How many of the roots are arguments of calls.
    pub(crate) given: usize,
}

/// The graph of these roots over PARAMs of `arguments` numbers, with PARAMs of higher numbers for the values of
/// calls. What has no device is on `device`.
pub(crate) fn apart(roots: &[UOp], arguments: usize, device: Device) -> Result<Apart> {
    let mut sites: Vec<Site> = Vec::new();
    let mut given: Vec<UOp> = Vec::new();
    let mut next = arguments;
    if !roots.iter().any(|r| r.ops_below().contains(Op::Function)) {
        return Ok(Apart {
            roots: roots.to_vec(),
            sites,
            given: 0,
        });
    }
    let mut at: FxHashMap<UOp, usize> = FxHashMap::default();
    let mut done: FxHashMap<UOp, UOp> = FxHashMap::default();
    for u in ordered(roots) {
        let new = match (u.op(), u.arg()) {
            (Op::Function, _) => {
                let made = |s: &UOp| done[s].clone();
                let all: Vec<UOp> = u.src()[1..].iter().map(made).collect();
                let mut site = Site {
                    body: u.src()[0].clone(),
                    scan: match u.arg() {
                        Arg::Scan(info) => Some(*info),
                        _ => None,
                    },
                    first: next,
                    values: Vec::new(),
                    lengths: Vec::with_capacity(all.len()),
                };
                for value in values_of(&u)? {
                    let home = value.device().or(Some(device));
                    let param = UOp::param(next as u64, value.shape(), value.dtype(), home);
                    site.values.push(param);
                    next += 1;
                }
                let variables = params(&site.body).into_iter().filter(UOp::is_variable);
                let variables: FxHashSet<usize> = variables.filter_map(|p| slot(&p)).collect();
                for (k, a) in all.iter().enumerate() {
                    // A length that the body does not read is one all the same.
                    let length = variables.contains(&k) || a.is_variable();
                    site.lengths.push(length.then(|| a.clone()));
                    given.extend((!length).then(|| a.clone()));
                }
                at.insert(u.clone(), sites.len());
                sites.push(site);
                u.clone()
            }
            (Op::GetTuple, Arg::Element(i)) if at.contains_key(&u.src()[0]) => {
                sites[at[&u.src()[0]]].values[*i].clone()
            }
            _ => {
                let made = |s: &UOp| done.get(s).unwrap_or(s).clone();
                let src: Srcs = u.src().iter().map(made).collect();
                u.try_with_src(src)?
            }
        };
        done.insert(u, new);
    }
    let count = given.len();
    given.extend(roots.iter().map(|r| done[r].clone()));
    Ok(Apart {
        roots: given,
        sites,
        given: count,
    })
}

/// The nodes of these graphs, but for the bodies of calls.
fn ordered(roots: &[UOp]) -> Vec<UOp> {
    let mut bodies: FxHashSet<UOp> = FxHashSet::default();
    for u in toposort_many(roots, |u| u.ops_below().contains(Op::Function)) {
        if u.op() == Op::Function {
            bodies.insert(u.src()[0].clone());
        }
    }
    toposort_many(roots, |u| !bodies.contains(u))
}

/// The roots, of which the first `count` have their elements in buffers of their own, one after the other.
pub(crate) fn in_place(mut roots: Vec<UOp>, count: usize) -> Vec<UOp> {
    for u in &mut roots[..count] {
        let base = over_reshapes(u);
        if base.op().is_movement() || base.op() == Op::Bitcast {
            *u = u.unary(Op::Contiguous);
        }
    }
    roots
}

/// The kernels of what is around some calls, and these among them, in order. `arguments` numbers are PARAMs.
pub(crate) fn with_sites(
    mut all: Calls,
    sites: Vec<Site>,
    given: usize,
    arguments: usize,
    device: Device,
    known: &FxHashMap<UOp, Arc<Calls>>,
) -> Result<Calls> {
    if sites.is_empty() {
        return Ok(all);
    }
    let values: usize = sites.iter().map(|s| s.values.len()).sum();
    let inputs = all.inputs;
    // PARAMs of the program, values of calls, what is stored.
    let number = |slot: usize| match slot.checked_sub(inputs) {
        Some(stored) => arguments + values + stored,
        None => slot,
    };
    for call in &mut all.calls {
        call.args.iter_mut().for_each(|a| *a = number(*a));
    }
    for o in &mut all.outputs {
        o.slot = number(o.slot);
    }
    let mut at_output = all
        .outputs
        .drain(..given)
        .collect::<Vec<Output>>()
        .into_iter();
    let mut nodes = Vec::with_capacity(values + all.nodes.len());
    // Sources first.
    all.calls.reverse();
    let around = all.calls.len();
    let mut gives: FxHashMap<usize, usize> = FxHashMap::default();
    for site in sites {
        let body = &known[&site.body];
        let count = site.values.len();
        let mut args: Vec<usize> = (site.first..site.first + count).collect();
        for length in site.lengths {
            let Some(variable) = length else {
                let output = at_output.next().ok_or_else(broken)?;
                if over_reshapes(&output.root) != over_reshapes(&output.base) {
                    return Err(broken());
                }
                if output.slot < arguments {
                    let param = over_reshapes(&output.base).clone();
                    all.params.entry(output.slot).or_insert(param);
                }
                args.push(output.slot);
                continue;
            };
            let slot = slot(&variable).ok_or_else(broken)?;
            all.params.entry(slot).or_insert(variable);
            args.push(slot);
        }
        nodes.extend(site.values);
        gives.extend(args[..count].iter().map(|&a| (a, all.calls.len())));
        let device = body.calls.first().map_or(device, |c| c.device);
        all.calls.push(Call {
            device,
            callee: match site.scan {
                None => Callee::Function(body.clone()),
                Some(info) => Callee::Loop(scan::looped(body, info, device)?),
            },
            args,
            outs: count,
        });
    }
    nodes.append(&mut all.nodes);
    all.nodes = nodes;
    all.inputs = arguments;
    all.params.retain(|&slot, _| slot < arguments);
    // Sources last, as rangeify gives them.
    let mut before = crate::order::dependencies(&all);
    for (call, first) in all.calls.iter().zip(&mut before).take(around) {
        first.extend(call.args.iter().filter_map(|a| gives.get(a)));
    }
    let mut calls: Vec<Option<Call>> = all.calls.into_iter().map(Some).collect();
    let order = topological(&before);
    all.calls = order
        .into_iter()
        .rev()
        .filter_map(|i| calls[i].take())
        .collect();
    Ok(all)
}

fn over_reshapes(mut u: &UOp) -> &UOp {
    while STAYS.contains(u.op()) {
        u = &u.src()[0];
    }
    u
}

fn broken() -> Error {
    ErrorKind::Verify {
        stage: "functions".into(),
        message: "what a call is given is no buffer".into(),
    }
    .into()
}

/// The kernels with each call replaced by those of its body.
pub(crate) fn expanded(mut all: Calls) -> Calls {
    let is_call = |c: &Call| matches!(c.callee, Callee::Function(_) | Callee::Loop(_));
    if !all.calls.iter().any(is_call) {
        return all;
    }
    // A value that is another buffer.
    let mut same: FxHashMap<usize, usize> = FxHashMap::default();
    let mut calls = Vec::with_capacity(all.calls.len());
    for call in std::mem::take(&mut all.calls) {
        if let Callee::Loop(_) = &call.callee {
            calls.push(scan::with_storage(call, &mut all));
            continue;
        }
        let Callee::Function(body) = &call.callee else {
            calls.push(call);
            continue;
        };
        let given = &call.args[call.outs..];
        // The last arguments may have no part in what it computes.
        let taken = given.iter().copied().take(body.inputs);
        let mut slots: Vec<Option<usize>> = taken.map(Some).collect();
        slots.resize(body.inputs + body.nodes.len(), None);
        for (value, output) in call.args.iter().zip(&body.outputs) {
            match slots[output.slot] {
                Some(other) => drop(same.insert(*value, other)),
                None => slots[output.slot] = Some(*value),
            }
        }
        let lengths: FxHashMap<UOp, UOp> = body
            .params
            .iter()
            .filter(|(_, p)| p.is_variable())
            .filter_map(|(k, p)| Some((p.clone(), all.params.get(&given[*k])?.clone())))
            .collect();
        for (k, node) in body.nodes.iter().enumerate() {
            if slots[body.inputs + k].is_none() {
                slots[body.inputs + k] = Some(all.inputs + all.nodes.len());
                all.nodes.push(stored(node, &lengths));
            }
        }
        for inner in &body.calls {
            let slot = |a: &usize| slots[*a].expect("every buffer of a body has a number");
            calls.push(Call {
                callee: inner.callee.clone(),
                args: inner.args.iter().map(slot).collect(),
                outs: inner.outs,
                device: inner.device,
            });
        }
    }
    let now = |slot: &mut usize| {
        while let Some(&other) = same.get(slot) {
            *slot = other;
        }
    };
    calls
        .iter_mut()
        .for_each(|c| c.args.iter_mut().for_each(now));
    all.outputs.iter_mut().for_each(|o| now(&mut o.slot));
    all.calls = calls;
    all
}
