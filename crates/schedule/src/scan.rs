//! Loops around calls: a scan is the kernels of its body, written down once for all times. Flows in: a body's
//! kernels and how often they run; flows out: CALLs for the first time, a loop over pairs of times, and what is
//! left after them.
//!
//! Carries go to and fro between two buffers, so that no time writes what it reads: which of them a time writes
//! follows from how many are left after it, so that the last one writes where the value is wanted. A pair of times
//! has them where they were. Parts of slices, and of what is gathered, are views whose place is an expression of
//! the loop's RANGE. What a time needs for itself has buffers of each of the places where a time is written down, so that
//! each of them is in use there alone.

use crate::kernel::{Call, Callee, Calls, Inner, Looped, Place, stored, whole_copy};
use monoglot_uop::node::Srcs;
use monoglot_uop::{Arg, AxisType, CallInfo, Device, Dim, Error, Op, Result, ScanInfo, Shape, UOp};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The loop of a body whose values are buffers of their own.
///
/// # Errors
/// Where a value cannot be copied.
pub(crate) fn looped(body: &Calls, info: ScanInfo, device: Device) -> Result<Arc<Looped>> {
    let values = body.outputs.len();
    let mut places: Vec<Option<Place>> = vec![None; body.inputs + body.nodes.len()];
    // Values that are arguments, or other values, are copied when a time is over.
    let mut copies: Vec<(Place, usize, &UOp)> = Vec::new();
    for (i, output) in body.outputs.iter().enumerate() {
        let value = match i < info.carries {
            true => Place::After(i),
            false => Place::Part(i),
        };
        let place = &mut places[output.slot];
        match output.slot < body.inputs || place.is_some() {
            true => copies.push((value, output.slot, &output.root)),
            false => *place = Some(value),
        }
    }
    let mut own = Vec::new();
    for (k, node) in body.nodes.iter().enumerate() {
        let place = &mut places[body.inputs + k];
        if place.is_none() {
            *place = Some(Place::Own(own.len()));
            own.push(node.clone());
        }
    }
    let first = values + info.carries + own.len() * written_down(info.length);
    let apart = info.carries + info.slices;
    for (k, place) in places[..body.inputs].iter_mut().enumerate() {
        *place = Some(match k {
            _ if k < info.carries => Place::Before(k),
            _ if k < apart => Place::Part(first + k),
            _ => Place::Whole(first + k),
        });
    }
    let mut calls = Vec::with_capacity(body.calls.len());
    for call in &body.calls {
        let place = |a: &usize| places[*a].expect("every buffer of a body has a place");
        calls.push(Inner {
            callee: call.callee.clone(),
            outs: call.outs,
            args: call.args.iter().map(place).collect(),
        });
    }
    for (to, from, value) in copies {
        let (copy, args) = whole_copy(value, [from, from], device)?;
        let place = |a: &usize| places[*a].expect("every buffer of a body has a place");
        calls.push(Inner {
            callee: Callee::Copy(copy),
            outs: 1,
            args: [to]
                .into_iter()
                .chain(args[1..].iter().map(place))
                .collect(),
        });
    }
    let variables = body.params.iter().filter(|(_, p)| p.is_variable());
    Ok(Arc::new(Looped {
        info,
        calls,
        values,
        own,
        lengths: variables.map(|(k, p)| (*k, p.clone())).collect(),
    }))
}

/// The call of a loop with buffers for what it computes on the way.
pub(crate) fn with_storage(mut call: Call, all: &mut Calls) -> Call {
    let Callee::Loop(looped) = &call.callee else {
        return call;
    };
    let given = call.args.split_off(call.outs);
    let lengths: FxHashMap<UOp, UOp> = looped
        .lengths
        .iter()
        .filter_map(|(k, p)| Some((p.clone(), all.params.get(&given[*k])?.clone())))
        .collect();
    let carries: Vec<UOp> = call.args[..looped.info.carries]
        .iter()
        .map(|&a| all.nodes[a - all.inputs].clone())
        .collect();
    let own = looped.own.iter().map(|node| stored(node, &lengths));
    let own: Vec<UOp> = own.collect();
    let mut scratch = carries;
    for _ in 0..written_down(looped.info.length) {
        scratch.extend_from_slice(&own);
    }
    let begin = all.inputs + all.nodes.len();
    call.args.extend(begin..begin + scratch.len());
    all.nodes.extend(scratch);
    call.outs = call.args.len();
    call.args.extend(given);
    call
}

/// In how many places a time is written down, of so many times.
fn written_down(length: i64) -> usize {
    match length {
        ..4 => length.max(0) as usize,
        _ if length % 2 == 0 => 4,
        _ => 3,
    }
}

/// When something runs.
enum When {
    /// At this time.
    Once(i64),
    /// At the first, and every second time from there on, in a loop.
    Every(i64, UOp),
}

impl When {
    /// The number of the time.
    fn index(&self) -> UOp {
        match self {
            When::Once(t) => UOp::index_const(*t),
            When::Every(first, range) => range * 2 + *first,
        }
    }

    /// A time that has what is even or odd in common with all of them.
    fn any(&self) -> i64 {
        match *self {
            When::Once(t) | When::Every(t, _) => t,
        }
    }

    /// Its number among the places where a time is written down.
    fn place(&self, length: i64) -> usize {
        match self.any() {
            t if t < 3 => t as usize,
            _ => written_down(length) - 1,
        }
    }
}

/// A list of what stands in a LINEAR, and how many loops there are before what comes next.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) list: Vec<UOp>,
    pub(crate) loops: u32,
}

/// What is left to be written down.
enum Left<'a> {
    /// The calls of one time from this one on, of a loop with this storage.
    Calls(&'a Looped, Arc<[UOp]>, When, usize),
    /// A RANGE.
    Begin(UOp),
    /// The END of one.
    End(UOp),
}

impl Written {
    /// Write down a loop: CALLs, and a RANGE and its END around some. `storage` are its arguments.
    ///
    /// # Errors
    /// Where a part is not within its slice.
    pub(crate) fn looped(&mut self, looped: &Looped, storage: Vec<UOp>) -> Result<()> {
        let mut left = Vec::new();
        self.times(looped, storage.into(), &mut left);
        while let Some(next) = left.pop() {
            match next {
                Left::Begin(range) => self.list.push(range),
                Left::End(range) => {
                    let last = self.list.last().unwrap_or(&range).clone();
                    self.list.push(last.end(&[range]));
                }
                Left::Calls(looped, storage, when, at) => {
                    let Some(call) = looped.calls.get(at) else {
                        continue;
                    };
                    let argument = |place: &Place| looped.argument(*place, &when, &storage);
                    let arguments = call.args.iter().map(argument).collect::<Result<Vec<_>>>()?;
                    left.push(Left::Calls(looped, storage, when, at + 1));
                    match &call.callee {
                        Callee::Loop(inner) => self.times(inner, arguments.into(), &mut left),
                        Callee::Compute(body) | Callee::Copy(body) | Callee::Own(body) => {
                            self.list.push(called(body, arguments, call.outs));
                        }
                        Callee::Nothing | Callee::Function(_) => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// Have all times of a loop come next.
    fn times<'a>(&mut self, looped: &'a Looped, storage: Arc<[UOp]>, left: &mut Vec<Left<'a>>) {
        let n = looped.info.length;
        let pairs = (n - 1) / 2;
        let calls = |when| Left::Calls(looped, storage.clone(), when, 0);
        // The last is what comes first.
        if n > 1 && n % 2 == 0 {
            left.push(calls(When::Once(n - 1)));
        }
        if pairs > 1 {
            let range = UOp::range(pairs, self.loops, AxisType::Loop);
            self.loops += 1;
            left.push(Left::End(range.clone()));
            left.push(calls(When::Every(2, range.clone())));
            left.push(calls(When::Every(1, range.clone())));
            left.push(Left::Begin(range));
        } else if pairs == 1 {
            left.push(calls(When::Once(2)));
            left.push(calls(When::Once(1)));
        }
        left.push(calls(When::Once(0)));
    }
}

/// What tells that a line of storage of this shape is not found in a loop.
fn varying(shape: &Shape) -> Error {
    let message = format!(
        "parts of {shape} are read or gathered at each time, and their size varies: that is not there yet but for \
         carries; pad to a fixed size, and mask"
    );
    Error::shape("scan", message)
}

/// A CALL whose first `outs` arguments are written.
pub(crate) fn called(body: &UOp, arguments: Vec<UOp>, outs: usize) -> UOp {
    let info = CallInfo {
        outs: (0..outs).collect(),
        ins: (outs..arguments.len()).collect(),
        derivative: None,
    };
    let src = [body.clone()].into_iter().chain(arguments);
    UOp::new(Op::Call, src.collect::<Srcs>(), Arg::Call(Arc::new(info)))
}

impl Looped {
    fn argument(&self, place: Place, when: &When, storage: &[UOp]) -> Result<UOp> {
        // The last time writes the value, the one before it the second buffer, and so on.
        let buffer = |k: usize, t: i64| match (self.info.length - 1 - t) % 2 == 0 {
            true => storage[k].clone(),
            false => storage[self.values + k].clone(),
        };
        let own = self.values + self.info.carries;
        let count = self.own.len();
        let first = own + count * written_down(self.info.length);
        Ok(match place {
            Place::Own(j) => storage[own + count * when.place(self.info.length) + j].clone(),
            Place::Whole(a) => storage[a].clone(),
            Place::After(k) => buffer(k, when.any()),
            Place::Before(k) => match when {
                When::Once(0) => storage[first + k].clone(),
                _ => buffer(k, when.any() - 1),
            },
            Place::Part(a) => {
                let whole = &storage[a];
                let time = match self.info.reversed {
                    true => UOp::index_const(self.info.length - 1) - when.index(),
                    false => when.index(),
                };
                if whole.shape().ints().is_none() {
                    return Err(varying(whole.shape()));
                }
                let lines = self.info.length;
                let rest = whole.shape().max_len() / lines.max(1);
                let lined = whole.reshape(&Shape::of(&[lines, rest]))?;
                let start = [Dim::of(&time), Dim::Int(0)];
                lined.shrink(&start, &Shape::of(&[1, rest]))?
            }
        })
    }
}
