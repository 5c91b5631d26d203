//! The memory plan: which storage each buffer of a program gets. Flows in: kernels in order; flows
//! out: LINEAR of CALLs whose BUFFERs are numbers of `Place`s. Buffers whose lives do not overlap share
//! a place; the outputs have places of their own.

use crate::Schedule;
use crate::kernel::{Kernel, Kernels, Work};
use crate::rangeify::Output;
use monoglot_uop::node::Srcs;
use monoglot_uop::{Arg, CallInfo, Device, ErrorKind, Op, Result, UOp};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Storage that a program needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Where.
    pub device: Device,
    /// How much.
    pub bytes: usize,
    /// Whether it outlives the program, as the storage of an output.
    pub output: bool,
}

pub(crate) fn plan(all: Kernels, params: usize) -> Result<Schedule> {
    let device_of: FxHashMap<usize, Device> = all
        .kernels
        .iter()
        .flat_map(|k| k.args[..k.outs].iter().map(|&a| (a, k.device)))
        .collect();
    let mut last: FxHashMap<usize, usize> = FxHashMap::default();
    for (i, k) in all.kernels.iter().enumerate() {
        for &a in &k.args {
            last.insert(a, i);
        }
    }
    let mut is_output = vec![false; all.inputs + all.nodes.len()];
    for o in &all.outputs {
        is_output[o.slot] = true;
    }

    let mut places: Vec<Place> = Vec::new();
    let mut place_of: FxHashMap<usize, usize> = FxHashMap::default();
    let mut free: FxHashMap<Device, BTreeMap<usize, Vec<usize>>> = FxHashMap::default();
    let mut calls = Vec::with_capacity(all.kernels.len());
    let mut written = vec![false; params];
    for (i, k) in all.kernels.iter().enumerate() {
        for &a in &k.args[..k.outs] {
            if a < all.inputs {
                written[a] = true;
                continue;
            }
            let node = &all.nodes[a - all.inputs];
            let device = device_of[&a];
            let bytes = bytes_of(node, device)?;
            let place = if is_output[a] {
                places.push(Place {
                    device,
                    bytes,
                    output: true,
                });
                places.len() - 1
            } else {
                reuse(&mut places, free.entry(device).or_default(), device, bytes)
            };
            place_of.insert(a, place);
        }
        calls.extend(call(k, |slot| storage(&all, slot, &places, &place_of)));
        for &a in &k.args {
            if a >= all.inputs && last[&a] == i && !is_output[a] {
                let place = place_of[&a];
                let lists = free.entry(places[place].device).or_default();
                let list = lists.entry(places[place].bytes).or_default();
                if !list.contains(&place) {
                    list.push(place);
                }
            }
        }
    }
    let storage = |slot| storage(&all, slot, &places, &place_of);
    let root = |o: &Output| {
        o.root
            .substitute(&FxHashMap::from_iter([(o.base.clone(), storage(o.slot))]))
    };
    let outputs = all.outputs.iter().map(root).collect();
    let linear = UOp::new(Op::Linear, calls.into_iter().collect::<Srcs>(), Arg::None);
    let linear = monoglot_uop::spec::verify_scheduled(linear)?;
    Ok(Schedule {
        linear,
        outputs,
        checks: Vec::new(),
        places,
        written,
    })
}

/// The bytes of a node's elements; an error where no address space has so many.
fn bytes_of(node: &UOp, device: Device) -> Result<usize> {
    let bytes = node
        .shape()
        .max_len()
        .checked_mul(node.dtype().bytes() as i64);
    bytes.map(|n| n as usize).ok_or_else(|| {
        ErrorKind::Memory {
            device: device.name().into(),
            wanted: u64::MAX,
            available: i64::MAX as u64,
        }
        .into()
    })
}

/// The smallest free place that is large enough and not more than twice too large; else a new one.
fn reuse(
    places: &mut Vec<Place>,
    free: &mut BTreeMap<usize, Vec<usize>>,
    device: Device,
    bytes: usize,
) -> usize {
    let found = free
        .range(bytes..=bytes.saturating_mul(2).max(4096))
        .find(|(_, l)| !l.is_empty())
        .map(|(&b, _)| b);
    match found.and_then(|b| free.get_mut(&b)).and_then(Vec::pop) {
        Some(place) => place,
        None => {
            places.push(Place {
                device,
                bytes,
                output: false,
            });
            places.len() - 1
        }
    }
}

fn call(k: &Kernel, storage: impl Fn(usize) -> UOp) -> Option<UOp> {
    let mut src: Srcs = Srcs::new();
    src.push(match &k.work {
        Work::Nothing => return None,
        Work::Compute(sink) => sink.clone(),
        Work::Copy(body) => body.clone(),
    });
    src.extend(k.args.iter().map(|&a| storage(a)));
    let info = CallInfo {
        outs: (0..k.outs).collect(),
        ins: (k.outs..k.args.len()).collect(),
    };
    Some(UOp::new(Op::Call, src, Arg::Call(Arc::new(info))))
}

/// The PARAM of a slot, or the BUFFER of the place that it has.
fn storage(
    all: &Kernels,
    slot: usize,
    places: &[Place],
    place_of: &FxHashMap<usize, usize>,
) -> UOp {
    let Some(stored) = slot.checked_sub(all.inputs) else {
        return all.params[&slot].clone();
    };
    let node = &all.nodes[stored];
    let place = place_of[&slot];
    UOp::buffer_at(
        place as u64,
        node.shape(),
        node.dtype(),
        places[place].device,
    )
}
