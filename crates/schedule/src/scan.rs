//! Loops around calls: a scan is the kernels of its body, written down once for all times. Flows in: a body's
//! kernels and how often they run; flows out: CALLs for the first time, a loop over pairs of times, and what is
//! left after them.
//!
//! Carries go to and fro between two buffers, so that no time writes what it reads: which of them a time writes
//! follows from how many are left after it, so that the last one writes where the value is wanted. A pair of times
//! has them where they were. Parts of slices, and of what is gathered, are views whose place is an expression of
//! the loop's RANGE.

use crate::kernel::{Call, Callee, Calls, Inner, Looped, Place, stored, whole_copy};
use monoglot_uop::node::Srcs;
use monoglot_uop::{
    Arg, AxisType, CallInfo, Device, Dim, ErrorKind, Op, Result, ScanInfo, Shape, UOp,
};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The loop of a body whose values are buffers of their own.
///
/// # Errors
/// `Unsupported` for a scan within a scan.
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
            *place = Some(Place::Whole(values + info.carries + own.len()));
            own.push(node.clone());
        }
    }
    let first = values + info.carries + own.len();
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
        if matches!(call.callee, Callee::Loop(_)) {
            return Err(ErrorKind::Unsupported {
                op: "scan".into(),
                message: "within the body of another scan".into(),
            }
            .into());
        }
        let place = |a: &usize| places[*a].expect("every buffer of a body has a place");
        calls.push(Inner {
            callee: call.callee.clone(),
            outs: call.outs,
            args: call.args.iter().map(place).collect(),
        });
    }
    for (to, from, value) in copies {
        calls.push(Inner {
            callee: Callee::Copy(whole_copy(value, device)?),
            outs: 1,
            args: vec![
                to,
                places[from].expect("every buffer of a body has a place"),
            ],
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
    let second = carries.into_iter();
    let own = looped.own.iter().map(|node| stored(node, &lengths));
    let scratch: Vec<UOp> = second.chain(own).collect();
    let begin = all.inputs + all.nodes.len();
    call.args.extend(begin..begin + scratch.len());
    all.nodes.extend(scratch);
    call.outs = call.args.len();
    call.args.extend(given);
    call
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
}

impl Looped {
    /// What stands in a LINEAR for it: CALLs, and a RANGE and its END around some. `storage` are its arguments;
    /// `loops` RANGEs are there before it.
    ///
    /// # Errors
    /// Where a part is not within its slice.
    pub(crate) fn written(&self, storage: &[UOp], loops: u32) -> Result<Vec<UOp>> {
        let n = self.info.length;
        let pairs = (n - 1) / 2;
        let mut out = Vec::new();
        self.at(&When::Once(0), storage, &mut out)?;
        if pairs > 1 {
            let range = UOp::range(pairs, loops, AxisType::Loop);
            out.push(range.clone());
            self.at(&When::Every(1, range.clone()), storage, &mut out)?;
            self.at(&When::Every(2, range.clone()), storage, &mut out)?;
            let last = out.last().unwrap_or(&range).clone();
            out.push(last.end(&[range]));
        } else if pairs == 1 {
            self.at(&When::Once(1), storage, &mut out)?;
            self.at(&When::Once(2), storage, &mut out)?;
        }
        if n > 1 && n % 2 == 0 {
            self.at(&When::Once(n - 1), storage, &mut out)?;
        }
        Ok(out)
    }

    /// The CALLs of one time.
    fn at(&self, when: &When, storage: &[UOp], out: &mut Vec<UOp>) -> Result<()> {
        for call in &self.calls {
            let mut src = Srcs::new();
            src.push(match &call.callee {
                Callee::Compute(body) | Callee::Copy(body) | Callee::Own(body) => body.clone(),
                Callee::Nothing | Callee::Function(_) | Callee::Loop(_) => continue,
            });
            for place in &call.args {
                src.push(self.argument(*place, when, storage)?);
            }
            let info = CallInfo {
                outs: (0..call.outs).collect(),
                ins: (call.outs..call.args.len()).collect(),
                derivative: None,
            };
            out.push(UOp::new(Op::Call, src, Arg::Call(Arc::new(info))));
        }
        Ok(())
    }

    fn argument(&self, place: Place, when: &When, storage: &[UOp]) -> Result<UOp> {
        // The last time writes the value, the one before it the second buffer, and so on.
        let buffer = |k: usize, t: i64| match (self.info.length - 1 - t) % 2 == 0 {
            true => storage[k].clone(),
            false => storage[self.values + k].clone(),
        };
        let first = self.values + self.info.carries + self.own.len();
        Ok(match place {
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
                let lines = self.info.length;
                let rest = whole.shape().max_len() / lines.max(1);
                let lined = whole.reshape(&Shape::of(&[lines, rest]))?;
                let start = [Dim::of(&time), Dim::Int(0)];
                lined.shrink(&start, &Shape::of(&[1, rest]))?
            }
        })
    }
}
