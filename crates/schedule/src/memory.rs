//! The memory plan: which storage each buffer of a program gets. Flows in: kernels in order; flows
//! out: LINEAR of CALLs whose BUFFERs are numbers of `Allocation`s. Buffers whose lives do not overlap share
//! an allocation; the outputs have allocations of their own.

use crate::Schedule;
use crate::kernel::{Call, Callee, Calls};
use crate::rangeify::Output;
use monoglot_uop::node::Srcs;
use monoglot_uop::{Arg, CallInfo, Device, ErrorKind, Op, Result, UOp};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Storage that a program needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// Where.
    pub device: Device,
    /// How much.
    pub bytes: usize,
    /// Whether it outlives the program, as the storage of an output.
    pub output: bool,
}

pub(crate) fn plan(all: Calls, params: usize) -> Result<Schedule> {
    let device_of: FxHashMap<usize, Device> = all
        .calls
        .iter()
        .flat_map(|k| k.args[..k.outs].iter().map(|&a| (a, k.device)))
        .collect();
    let mut last: FxHashMap<usize, usize> = FxHashMap::default();
    for (i, k) in all.calls.iter().enumerate() {
        for &a in &k.args {
            last.insert(a, i);
        }
    }
    let mut is_output = vec![false; all.inputs + all.nodes.len()];
    for o in &all.outputs {
        is_output[o.slot] = true;
    }

    let mut allocations: Vec<Allocation> = Vec::new();
    let mut allocation_of: FxHashMap<usize, usize> = FxHashMap::default();
    let mut free: FxHashMap<Device, BTreeMap<usize, Vec<usize>>> = FxHashMap::default();
    let mut calls = Vec::with_capacity(all.calls.len());
    let mut written = vec![false; params];
    for (i, k) in all.calls.iter().enumerate() {
        for &a in &k.args[..k.outs] {
            if a < all.inputs {
                written[a] = true;
                continue;
            }
            // What another call has begun.
            if allocation_of.contains_key(&a) {
                continue;
            }
            let node = &all.nodes[a - all.inputs];
            let device = device_of[&a];
            let bytes = bytes_of(node, device)?;
            let allocation = if is_output[a] {
                allocations.push(Allocation {
                    device,
                    bytes,
                    output: true,
                });
                allocations.len() - 1
            } else {
                reuse(
                    &mut allocations,
                    free.entry(device).or_default(),
                    device,
                    bytes,
                )
            };
            allocation_of.insert(a, allocation);
        }
        calls.extend(call(k, |slot| {
            storage(&all, slot, &allocations, &allocation_of)
        }));
        for &a in &k.args {
            if a >= all.inputs && last[&a] == i && !is_output[a] {
                let allocation = allocation_of[&a];
                let lists = free.entry(allocations[allocation].device).or_default();
                let list = lists.entry(allocations[allocation].bytes).or_default();
                if !list.contains(&allocation) {
                    list.push(allocation);
                }
            }
        }
    }
    let storage = |slot| storage(&all, slot, &allocations, &allocation_of);
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
        allocations,
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

/// The smallest free allocation that is large enough and not more than twice too large; else a new one.
fn reuse(
    allocations: &mut Vec<Allocation>,
    free: &mut BTreeMap<usize, Vec<usize>>,
    device: Device,
    bytes: usize,
) -> usize {
    let found = free
        .range(bytes..=bytes.saturating_mul(2).max(4096))
        .find(|(_, l)| !l.is_empty())
        .map(|(&b, _)| b);
    match found.and_then(|b| free.get_mut(&b)).and_then(Vec::pop) {
        Some(allocation) => allocation,
        None => {
            allocations.push(Allocation {
                device,
                bytes,
                output: false,
            });
            allocations.len() - 1
        }
    }
}

fn call(k: &Call, storage: impl Fn(usize) -> UOp) -> Option<UOp> {
    let mut src: Srcs = Srcs::new();
    src.push(match &k.callee {
        Callee::Nothing => return None,
        Callee::Compute(sink) | Callee::Own(sink) => sink.clone(),
        Callee::Copy(body) => body.clone(),
    });
    src.extend(k.args.iter().map(|&a| storage(a)));
    let info = CallInfo {
        outs: (0..k.outs).collect(),
        ins: (k.outs..k.args.len()).collect(),
        derivative: None,
    };
    Some(UOp::new(Op::Call, src, Arg::Call(Arc::new(info))))
}

/// The PARAM of a slot, or the BUFFER of the allocation that it has.
fn storage(
    all: &Calls,
    slot: usize,
    allocations: &[Allocation],
    allocation_of: &FxHashMap<usize, usize>,
) -> UOp {
    let Some(stored) = slot.checked_sub(all.inputs) else {
        return all.params[&slot].clone();
    };
    let node = &all.nodes[stored];
    let allocation = allocation_of[&slot];
    UOp::buffer_at(
        allocation as u64,
        node.shape(),
        node.dtype(),
        allocations[allocation].device,
    )
}
