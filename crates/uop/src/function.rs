//! FUNCTIONs: values that are computed alike in several places, written down once. Flows in: values over what
//! they take; flows out: a body over PARAMs and what it is called with, or the other way round the values of a
//! call without it.
//!
//! Invariant: bodies are in one form. A body reads PARAMs alone, numbered by first use, so that two that compute
//! the same are one node; and every node keeps the derivative that its builder knew (`Shortcut`).

use crate::arg::{AddrSpace, Arg, BufferArg, Recompute, ScanInfo};
use crate::error::{Error, Result};
use crate::graph::{ordered, toposort_many};
use crate::marks::NodeMap;
use crate::node::{Shortcut, Srcs, UOp};
use crate::op::Op;
use crate::shape::Shape;
use rustc_hash::{FxHashMap, FxHashSet};
use std::panic::Location;

/// A body, and what stands for its PARAMs.
#[derive(Clone, Debug)]
pub struct Abstraction {
    /// TUPLE of the values, over PARAMs.
    pub body: UOp,
    /// For each PARAM, the node that it is in place of: one of those that were named, a BUFFER or a bound
    /// variable.
    pub arguments: Vec<UOp>,
}

/// The sources of a node, but for the body of a call, which is a graph of its own.
pub fn own_sources(u: &UOp) -> &[UOp] {
    let call = matches!(u.op(), Op::Function | Op::Call);
    &u.src()[usize::from(call && !u.src().is_empty())..]
}

/// These values as a function of `inputs`, of every BUFFER and of every bound variable that they read.
///
/// # Errors
/// `Argument` where an input whose shape varies is no storage.
pub fn abstracted(values: &[UOp], inputs: &[UOp]) -> Result<Abstraction> {
    abstracted_behind(&[], values, inputs)
}

/// As `abstracted`, where the first PARAMs are in place of `first`, whether they are read or not.
///
/// # Errors
/// As `abstracted`.
pub fn abstracted_behind(first: &[UOp], values: &[UOp], inputs: &[UOp]) -> Result<Abstraction> {
    let named: FxHashSet<&UOp> = inputs.iter().chain(first).collect();
    let slots: FxHashMap<&UOp, usize> = first.iter().zip(0..).collect();
    let mut arguments: Vec<UOp> = first.to_vec();
    let leaf = |u: &UOp| {
        let own = u.op() == Op::Buffer && u.addrspace() == Some(AddrSpace::Global);
        named.contains(u) || own || u.bound_to().is_some()
    };
    let sources = |u: &UOp| {
        let storage = matches!(u.op(), Op::Buffer | Op::Param);
        if leaf(u) && (!storage || u.bound_to().is_some()) {
            return 0..0;
        }
        own_range(u)
    };
    let body = UOp::new(Op::Tuple, Srcs::from(values), Arg::None);
    let new = |u: &UOp, src: Srcs| {
        if !leaf(u) {
            return u.try_with_src(src);
        }
        let slot = slots.get(u).copied().unwrap_or(arguments.len());
        if slot == arguments.len() {
            arguments.push(u.clone());
        }
        parameter(u, src, slot as u64)
    };
    let body = remade(std::slice::from_ref(&body), sources, new)?.remove(0);
    Ok(Abstraction { body, arguments })
}

/// The PARAM of this slot in place of a node.
fn parameter(u: &UOp, src: Srcs, slot: u64) -> Result<UOp> {
    if u.bound_to().is_some() {
        return Ok(UOp::variable(slot, u.vmin(), u.vmax()));
    }
    match (u.op(), u.arg()) {
        (Op::Buffer | Op::Param, Arg::Buffer(b)) => {
            let arg = BufferArg {
                slot,
                version: 0,
                ..*b
            };
            Ok(UOp::new(Op::Param, src, Arg::Buffer(arg)))
        }
        _ if u.shape().ints().is_some() => Ok(UOp::param(slot, u.shape(), u.dtype(), u.device())),
        _ => {
            let message = format!("{} of shape {}, which varies", u.op().name(), u.shape());
            Err(Error::argument("FUNCTION", message))
        }
    }
}

/// The values of a call of this body.
///
/// # Errors
/// Where the arguments do not fit it.
pub fn call(body: &UOp, arguments: &[UOp]) -> Result<Vec<UOp>> {
    call_as(body, arguments, Arg::None)
}

/// The values of a call of this body whose derivative keeps nothing of it but the arguments.
///
/// # Errors
/// Where the arguments do not fit it.
pub fn checkpoint(body: &UOp, arguments: &[UOp]) -> Result<Vec<UOp>> {
    call_as(body, arguments, Arg::Recompute(Recompute::Derivative))
}

/// The values of a scan of this body: the last carries, then what is gathered.
///
/// # Errors
/// Where the arguments do not fit it.
pub fn scan(body: &UOp, arguments: &[UOp], info: ScanInfo) -> Result<Vec<UOp>> {
    call_as(body, arguments, Arg::Scan(info))
}

/// The values of a call that is like another one.
pub(crate) fn call_as(body: &UOp, arguments: &[UOp], like: Arg) -> Result<Vec<UOp>> {
    let src = [body].into_iter().chain(arguments).cloned();
    let function = UOp::try_new(Op::Function, src.collect::<Srcs>(), like)?;
    values_of(&function)
}

/// The values of a FUNCTION, in order.
///
/// # Errors
/// Where their shapes do not fit its arguments.
pub fn values_of(function: &UOp) -> Result<Vec<UOp>> {
    let count = function.src()[0].src().len();
    let value = |i| {
        let src: Srcs = [function.clone()].into_iter().collect();
        UOp::try_new(Op::GetTuple, src, Arg::Element(i))
    };
    (0..count).map(value).collect()
}

/// The body of a FUNCTION, which a GETTUPLE takes from, and the number of the value.
pub(crate) fn taken(u: &UOp) -> Option<(&UOp, usize)> {
    match (u.op(), u.arg()) {
        (Op::GetTuple, Arg::Element(i)) if u.src()[0].op() == Op::Function => {
            Some((&u.src()[0], *i))
        }
        _ => None,
    }
}

/// The PARAMs of a body that are its own, sources before users.
pub fn params(body: &UOp) -> Vec<UOp> {
    let nodes = ordered(std::slice::from_ref(body), own_sources);
    let params = nodes.into_iter().filter(|u| u.op() == Op::Param);
    params.cloned().collect()
}

/// What values must fulfil to be right.
#[derive(Clone, Debug)]
pub struct Assertion {
    /// What must be right.
    pub of: UOp,
    /// Where it is, element by element.
    pub holds: UOp,
    rule: Arg,
    line: Option<&'static Location<'static>>,
}

impl Assertion {
    /// A value that is right where this is: over `of` and `holds` as they are there.
    ///
    /// # Errors
    /// Where `holds` is no bool.
    pub fn asserted(&self, value: &UOp, of: &UOp, holds: &UOp) -> Result<UOp> {
        let src: Srcs = [value, holds, of].into_iter().cloned().collect();
        let assert = UOp::try_new(Op::Assert, src, self.rule.clone())?;
        self.line.iter().for_each(|line| assert.set_line(line));
        Ok(assert)
    }
}

/// These values without what they assert, and that. FUNCTIONs that assert are replaced by their bodies.
///
/// # Errors
/// Where the arguments of one do not fit its body.
pub fn without_assertions(values: &[UOp]) -> Result<(Vec<UOp>, Vec<Assertion>)> {
    let asserts = |u: &UOp| u.ops_below().contains(Op::Assert);
    let mut found = Vec::new();
    if !values.iter().any(asserts) {
        return Ok((values.to_vec(), found));
    }
    let values = inline_functions(values, |f| !asserts(f))?;
    let bare = remade(&values, own_range, |u, src| {
        if u.op() != Op::Assert {
            return u.try_with_src(src);
        }
        found.push(Assertion {
            of: src.get(2).unwrap_or(&src[0]).clone(),
            holds: src[1].clone(),
            rule: u.arg().clone(),
            line: u.line(),
        });
        Ok(src[0].clone())
    })?;
    Ok((bare, found))
}

/// The number of a PARAM.
pub fn slot(param: &UOp) -> Option<usize> {
    param.buffer_arg().map(|b| b.slot as usize)
}

/// The bodies that these graphs call, those in bodies first.
pub fn bodies(roots: &[UOp]) -> Vec<UOp> {
    let mut seen: FxHashSet<UOp> = FxHashSet::default();
    let nodes = toposort_many(roots, |u| u.ops_below().contains(Op::Function));
    let calls = nodes.iter().filter(|u| u.op() == Op::Function);
    let bodies = calls.map(|f| f.src()[0].clone());
    bodies.filter(|b| seen.insert(b.clone())).collect()
}

/// These graphs as `made` gives them, and so the bodies in them, those in bodies first.
///
/// # Errors
/// Those of `made`, and where what it gives fits no call.
pub fn each_graph(roots: &[UOp], made: impl Fn(&[UOp]) -> Result<Vec<UOp>>) -> Result<Vec<UOp>> {
    let mut known: FxHashMap<UOp, UOp> = FxHashMap::default();
    for body in bodies(roots) {
        let values = with_bodies(body.src(), &known)?;
        let new = UOp::new(Op::Tuple, Srcs::from(made(&values)?), Arg::None);
        known.insert(body, new);
    }
    made(&with_bodies(roots, &known)?)
}

/// The same graphs with other bodies.
fn with_bodies(roots: &[UOp], known: &FxHashMap<UOp, UOp>) -> Result<Vec<UOp>> {
    if known.iter().all(|(old, new)| old == new) {
        return Ok(roots.to_vec());
    }
    remade(roots, own_range, |u, mut src| {
        if u.op() == Op::Function
            && let Some(body) = known.get(&src[0])
        {
            src[0] = body.clone();
        }
        u.try_with_src(src)
    })
}

/// The same graphs with every FUNCTION that is not to be kept replaced by its body over its arguments; those
/// in the bodies of kept ones too.
///
/// # Errors
/// Where the arguments of one do not fit its body.
pub fn inline_functions(roots: &[UOp], keep: impl Fn(&UOp) -> bool) -> Result<Vec<UOp>> {
    if !roots.iter().any(|r| r.ops_below().contains(Op::Function)) {
        return Ok(roots.to_vec());
    }
    let new = |u: &UOp, src: Srcs| match (u.op(), u.arg()) {
        (Op::Function, Arg::Scan(info)) if !keep(u) => unrolled(&src[0], &src[1..], info),
        (Op::Function, _) if !keep(u) => src[0].bound_to_arguments(&src[1..]),
        (Op::GetTuple, Arg::Element(i)) if src[0].op() == Op::Tuple => match src[0].src().get(*i) {
            Some(element) => Ok(element.clone()),
            None => u.try_with_src(src),
        },
        _ => u.try_with_src(src),
    };
    remade(roots, |u| 0..u.src().len(), new)
}

/// The same graphs, where no body of the FUNCTIONs that `of` names asserts anything; and what they asserted, over
/// what they are called with.
///
/// # Errors
/// Where the arguments of one do not fit its body.
pub fn assertions_outside(
    roots: &[UOp],
    of: impl Fn(&UOp) -> bool,
) -> Result<(Vec<UOp>, Vec<UOp>)> {
    if !roots.iter().any(|r| r.ops_below().contains(Op::Assert)) {
        return Ok((roots.to_vec(), Vec::new()));
    }
    // By FUNCTION.
    let mut asserted: FxHashMap<UOp, Vec<UOp>> = FxHashMap::default();
    let new = |u: &UOp, mut src: Srcs| {
        if u.op() != Op::Function || !of(u) {
            return u.try_with_src(src);
        }
        let nodes = ordered(std::slice::from_ref(&src[0]), own_sources);
        let own = nodes.iter().filter(|u| u.op() == Op::Assert);
        let mut all: Vec<UOp> = own.map(|&u| u.clone()).collect();
        let within = nodes.iter().filter_map(|u| asserted.get(*u));
        all.extend(within.flatten().cloned());
        if all.is_empty() {
            return u.try_with_src(src);
        }
        let asserts = all.iter().map(|a| a.bound_to_arguments(&src[1..]));
        let asserts = asserts.collect::<Result<Vec<UOp>>>()?;
        for (new, old) in asserts.iter().zip(&all) {
            old.line().into_iter().for_each(|line| new.set_line(line));
        }
        let unasserted = |u: &UOp, src: Srcs| match u.op() {
            Op::Assert => Ok(src[0].clone()),
            _ => u.try_with_src(src),
        };
        src[0] = remade(&src[..1], own_range, unasserted)?.remove(0);
        let function = u.try_with_src(src)?;
        asserted.insert(function.clone(), asserts);
        Ok(function)
    };
    let roots = remade(roots, |u| 0..u.src().len(), new)?;
    let nodes = ordered(&roots, own_sources);
    let all = nodes.into_iter().filter_map(|u| asserted.get(u));
    let all = all.flatten().cloned().collect();
    Ok((roots, all))
}

/// TUPLE of the values of a scan, all its times written out.
fn unrolled(body: &UOp, arguments: &[UOp], info: &ScanInfo) -> Result<UOp> {
    let apart = info.carries + info.slices;
    let mut now = arguments.to_vec();
    let mut gathered: Vec<Vec<UOp>> = vec![Vec::new(); body.src().len() - info.carries];
    for t in 0..info.length {
        let at = if info.reversed {
            info.length - 1 - t
        } else {
            t
        };
        for k in info.carries..apart {
            let whole = &arguments[k];
            let inner = Shape::new(whole.shape().iter().skip(1).cloned());
            now[k] = whole.narrow(0, at, 1)?.reshape(&inner)?;
        }
        let values = body.bound_to_arguments(&now)?;
        now[..info.carries].clone_from_slice(&values.src()[..info.carries]);
        for (all, one) in gathered.iter_mut().zip(&values.src()[info.carries..]) {
            all.push(one.clone());
        }
    }
    let mut values: Srcs = now[..info.carries].iter().cloned().collect();
    for mut all in gathered {
        if info.reversed {
            all.reverse();
        }
        values.push(UOp::try_new(Op::Stack, Srcs::from(all), Arg::None)?);
    }
    Ok(UOp::new(Op::Tuple, values, Arg::None))
}

impl UOp {
    /// This body with PARAM k replaced by argument k.
    ///
    /// # Errors
    /// Where the arguments do not fit the body.
    pub(crate) fn bound_to_arguments(&self, arguments: &[UOp]) -> Result<UOp> {
        let new = |u: &UOp, src: Srcs| match (u.op(), u.buffer_arg()) {
            (Op::Param, Some(b)) => match arguments.get(b.slot as usize) {
                Some(argument) => Ok(argument.clone()),
                None => u.try_with_src(src),
            },
            _ => u.try_with_src(src),
        };
        let sources = |u: &UOp| match u.op() {
            Op::Param => 0..0,
            _ => own_range(u),
        };
        Ok(remade(std::slice::from_ref(self), sources, new)?.remove(0))
    }
}

/// As `own_sources`, by number.
pub(crate) fn own_range(u: &UOp) -> std::ops::Range<usize> {
    u.src().len() - own_sources(u).len()..u.src().len()
}

/// Graphs made anew with the shortcuts that their nodes have. `sources` says which sources of a node are made
/// anew before it; the others stay as they are.
pub(crate) fn remade(
    roots: &[UOp],
    sources: impl Fn(&UOp) -> std::ops::Range<usize>,
    mut new: impl FnMut(&UOp, Srcs) -> Result<UOp>,
) -> Result<Vec<UOp>> {
    let mut done: NodeMap<&UOp, UOp> = NodeMap::new();
    for u in ordered(roots, |u| &u.src()[sources(u)]) {
        let made = sources(u);
        let mut src: Srcs = u.src().iter().cloned().collect();
        for i in made {
            src[i] = done[&u.src()[i]].clone();
        }
        // What another node takes the place of is made by no builder: a PARAM, one for all graphs, has no derivative.
        let same = u.shortcut().map(|_| u.with_src(src.clone()));
        let mut made = new(u, src)?;
        if let Some(shortcut) = u.shortcut()
            && same.is_some_and(|same| same == made)
            && made != *u
            && made.shortcut().is_none()
        {
            let over = |i: &UOp| done.get(i).cloned().unwrap_or_else(|| i.clone());
            made = made.with_shortcut(Shortcut {
                inputs: shortcut.inputs.iter().map(over).collect(),
                params: shortcut.params.clone(),
                rule: shortcut.rule,
            });
        }
        done.insert(u, made);
    }
    Ok(roots.iter().map(|r| done[r].clone()).collect())
}

/// Whether the calls of one FUNCTION are those of another, which computes more: for each value of the first its
/// number in the second.
pub(crate) fn within(small: &UOp, large: &UOp) -> Option<Vec<usize>> {
    if small.src()[1..] != large.src()[1..] || small.arg() != large.arg() {
        return None;
    }
    if matches!(small.arg(), Arg::Scan(_)) {
        // A carry and what is gathered of it are one node, and two values.
        let values = small.src()[0].src();
        let begins = large.src()[0].src().starts_with(values);
        return begins.then(|| (0..values.len()).collect());
    }
    let of: FxHashMap<&UOp, usize> = large.src()[0].src().iter().zip(0..).collect();
    let values = small.src()[0].src().iter();
    values.map(|v| of.get(v).copied()).collect()
}

/// The same graphs, where a FUNCTION all of whose values another one of the same arguments computes too is
/// that one.
///
/// # Errors
/// Where the arguments of one do not fit its body.
pub fn merge_functions(roots: &[UOp]) -> Result<Vec<UOp>> {
    if !roots.iter().any(|r| r.ops_below().contains(Op::Function)) {
        return Ok(roots.to_vec());
    }
    let nodes = ordered(roots, own_sources);
    let mut by_arguments: FxHashMap<&[UOp], Vec<&UOp>> = FxHashMap::default();
    for u in nodes.into_iter().filter(|u| u.op() == Op::Function) {
        by_arguments.entry(&u.src()[1..]).or_default().push(u);
    }
    let mut known: FxHashMap<&UOp, (&UOp, Vec<usize>)> = FxHashMap::default();
    for group in by_arguments.values_mut().filter(|g| g.len() > 1) {
        // What computes most comes last.
        group.sort_by_key(|f| f.src()[0].src().len());
        for (k, small) in group.iter().enumerate() {
            let mut larger = group[k + 1..].iter().rev();
            let found = larger.find_map(|large| Some((&large.src()[0], within(small, large)?)));
            known.extend(found.map(|f| (*small, f)));
        }
    }
    let new = |u: &UOp, src: Srcs| {
        let found = taken(u).and_then(|(f, i)| Some((known.get(f)?, i)));
        let Some(((body, places), i)) = found else {
            return u.try_with_src(src);
        };
        // The arguments are those of the smaller one, which are made anew already.
        let mut arguments = Srcs::from(src[0].src());
        arguments[0] = (*body).clone();
        let large = src[0].try_with_src(arguments)?;
        let large: Srcs = [large].into_iter().collect();
        UOp::try_new(Op::GetTuple, large, Arg::Element(places[i]))
    };
    if known.is_empty() {
        return Ok(roots.to_vec());
    }
    remade(roots, own_range, new)
}
