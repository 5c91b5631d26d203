//! The memory plan: where each buffer of a program lies. Flows in: kernels in order; flows
//! out: LINEAR of CALLs whose BUFFERs are numbers of `Allocation`s, and the `Plan` of these. Outputs have
//! memory of their own; what lives between kernels shares one memory a device, and that of outputs
//! which are not written yet. Invariant: two allocations that are in use at one step do not overlap.

mod pack;
#[cfg(test)]
mod tests;

use crate::Schedule;
use crate::kernel::{Call, Callee, Calls};
use crate::rangeify::Output;
use monoglot_uop::node::Srcs;
use monoglot_uop::{Arg, CallInfo, Device, ErrorKind, Op, Result, UOp};
use pack::{Block, Room};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Where the storage of every buffer of a program is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The buffers, by number, in the order in which they are first written.
    pub allocations: Vec<Allocation>,
    /// The memories that they are parts of.
    pub memories: Vec<Memory>,
}

/// The storage of one buffer of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// Where.
    pub device: Device,
    /// How much, at most.
    pub bytes: usize,
    /// How much, an `index` expression of the program's variables; None where it is always the same.
    pub size: Option<UOp>,
    /// Whether it outlives the program, as the storage of an output.
    pub output: bool,
    /// What of the program writes it first, and what uses it last, by place in the LINEAR: a loop uses what it uses
    /// as a whole.
    pub steps: (usize, usize),
    /// The number of the memory that it is a part of.
    pub memory: usize,
    /// The byte of that memory at which it begins at most: a multiple of `ALIGN`.
    pub offset: usize,
    /// Allocations behind which it begins: where one of a memory varies in size, those that are in use at
    /// the same time as this one and lie below it.
    pub above: Vec<usize>,
}

/// Storage that a program asks for as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Where.
    pub device: Device,
    /// How much, at most.
    pub bytes: usize,
    /// The output whose storage it is, an allocation; None for what the program needs while it runs.
    pub output: Option<usize>,
}

/// Where everything is for some values of the variables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// The byte at which each allocation begins. It has addresses for as many bytes as it has at most.
    pub offsets: Vec<usize>,
    /// For each memory the bytes that its allocations have addresses for, and how many of the first are used.
    pub memories: Vec<(usize, usize)>,
}

/// Allocations begin at multiples of so many bytes: a line of any cache, a vector of any machine.
pub const ALIGN: usize = 64;

impl Plan {
    /// Whether it is the same for all values of the variables.
    pub fn is_fixed(&self) -> bool {
        self.allocations.iter().all(|a| a.size.is_none())
    }

    /// The places for these values of the variables, each with its slot.
    ///
    /// # Errors
    /// `Argument` where a variable has no value, or one outside its bounds.
    pub fn layout(&self, variables: &[(u64, i64)]) -> Result<Layout> {
        let mut offsets: Vec<usize> = self.allocations.iter().map(|a| a.offset).collect();
        let mut memories: Vec<(usize, usize)> =
            self.memories.iter().map(|m| (m.bytes, m.bytes)).collect();
        if self.is_fixed() {
            return Ok(Layout { offsets, memories });
        }
        let mut varies = vec![false; memories.len()];
        let sized = self.allocations.iter().filter(|a| a.size.is_some());
        sized.for_each(|a| {
            varies[a.memory] = true;
            memories[a.memory] = (0, 0);
        });
        let mut used = Vec::with_capacity(offsets.len());
        for a in &self.allocations {
            used.push(match &a.size {
                None => a.bytes,
                Some(size) => size.sym_infer(variables)? as usize,
            });
        }
        // What lies below has its place first.
        let mut order: Vec<usize> = (0..offsets.len()).collect();
        order.retain(|&i| varies[self.allocations[i].memory]);
        order.sort_by_key(|&i| (self.allocations[i].offset, i));
        for i in order {
            let a = &self.allocations[i];
            let end = |&b: &usize| (offsets[b] + used[b]).next_multiple_of(ALIGN);
            offsets[i] = a.above.iter().map(end).max().unwrap_or(0);
            let memory = &mut memories[a.memory];
            memory.0 = memory.0.max(offsets[i] + a.bytes);
            memory.1 = memory.1.max(offsets[i] + used[i]);
        }
        Ok(Layout { offsets, memories })
    }

    /// The plan of a schedule that is known already, whose BUFFERs are numbers of these devices and sizes.
    pub fn of(linear: &UOp, outputs: &[UOp], storage: &[(Device, usize)]) -> Plan {
        let one = |&(device, bytes): &(Device, usize)| Allocation {
            device,
            bytes,
            size: None,
            output: false,
            steps: (usize::MAX, 0),
            memory: 0,
            offset: 0,
            above: Vec::new(),
        };
        let mut plan = Plan {
            allocations: storage.iter().map(one).collect(),
            memories: Vec::new(),
        };
        let number = |u: &UOp| {
            let buffer = Some(u.viewed()).filter(|b| b.op() == Op::Buffer)?;
            Some(buffer.buffer_arg()?.slot as usize)
        };
        let mut begun = None;
        for (i, u) in linear.src().iter().enumerate() {
            match u.op() {
                Op::Range => begun = Some(i),
                Op::End => begun = None,
                _ => {}
            }
            // A loop uses all that it uses from its first call to its last.
            let end = || linear.src()[i..].iter().position(|u| u.op() == Op::End);
            let last = begun.and_then(|_| end()).map_or(i, |n| i + n);
            for arg in u.src().iter().skip(1) {
                if let Some(a) = number(arg).and_then(|n| plan.allocations.get_mut(n)) {
                    a.size = size_of(arg.viewed());
                    a.steps.0 = a.steps.0.min(begun.unwrap_or(i));
                    a.steps.1 = a.steps.1.max(last);
                }
            }
        }
        for a in &mut plan.allocations {
            a.steps.0 = a.steps.0.min(a.steps.1);
        }
        for n in outputs.iter().filter_map(number) {
            if let Some(a) = plan.allocations.get_mut(n) {
                a.output = true;
            }
        }
        place(&mut plan);
        order(&mut plan);
        plan
    }

    /// Bytes of all memories of a device.
    pub fn peak(&self, device: Device) -> usize {
        let here = self.memories.iter().filter(|m| m.device == device);
        here.map(|m| m.bytes).sum()
    }

    /// For each CALL, the bytes in use on a device while it runs: of what was written and is read at it or
    /// later, outputs among that.
    pub fn in_use(&self, device: Device) -> Vec<usize> {
        let ends = self.allocations.iter().map(|a| a.steps.1 + 1);
        let count = ends.max().unwrap_or(0);
        let mut change = vec![0isize; count + 1];
        for a in self.allocations.iter().filter(|a| a.device == device) {
            change[a.steps.0] += a.bytes as isize;
            if !a.output {
                change[a.steps.1 + 1] -= a.bytes as isize;
            }
        }
        let mut now = 0;
        change.pop();
        let running = change.iter().map(|c| {
            now += c;
            now as usize
        });
        running.collect()
    }

    /// The devices of its memories, in order of their first.
    pub fn devices(&self) -> Vec<Device> {
        let mut out: Vec<Device> = Vec::new();
        for m in &self.memories {
            if !out.contains(&m.device) {
                out.push(m.device);
            }
        }
        out
    }
}

pub(crate) fn plan(all: Calls, params: usize) -> Result<Schedule> {
    let mut plan = Plan::default();
    let mut allocation_of: FxHashMap<usize, usize> = FxHashMap::default();
    let mut written = vec![false; params];
    let mut calls: Vec<UOp> = Vec::with_capacity(all.calls.len());
    let mut loops = 0;
    for k in &all.calls {
        let first = calls.len();
        for (place, &a) in k.args.iter().enumerate() {
            if a < all.inputs {
                if place < k.outs {
                    written[a] = true;
                }
            } else if let Entry::Vacant(new) = allocation_of.entry(a) {
                new.insert(plan.allocations.len());
                plan.allocations.push(Allocation {
                    device: k.device,
                    bytes: bytes_of(&all.nodes[a - all.inputs], k.device)?,
                    size: size_of(&all.nodes[a - all.inputs]),
                    output: false,
                    steps: (first, first),
                    memory: 0,
                    offset: 0,
                    above: Vec::new(),
                });
            }
        }
        let storage = |slot| storage(&all, slot, &plan.allocations, &allocation_of);
        match &k.callee {
            Callee::Loop(looped) => {
                let arguments: Vec<UOp> = k.args.iter().map(|&a| storage(a)).collect();
                calls.extend(looped.written(&arguments, loops)?);
                loops += 1;
            }
            _ => calls.extend(call(k, storage)?),
        }
        // A loop uses all that it uses from its first call to its last.
        let last = calls.len().saturating_sub(1).max(first);
        for a in &k.args {
            if let Some(&known) = allocation_of.get(a) {
                plan.allocations[known].steps.1 = last;
            }
        }
    }
    for o in all.outputs.iter().filter(|o| o.slot >= all.inputs) {
        plan.allocations[allocation_of[&o.slot]].output = true;
    }
    place(&mut plan);
    order(&mut plan);
    let storage = |slot| storage(&all, slot, &plan.allocations, &allocation_of);
    let root = |o: &Output| {
        let base = storage(o.slot).reshape(o.base.shape())?;
        Ok(o.root
            .substitute(&FxHashMap::from_iter([(o.base.clone(), base)])))
    };
    let outputs = all.outputs.iter().map(root).collect::<Result<_>>()?;
    let linear = UOp::new(Op::Linear, calls.into_iter().collect::<Srcs>(), Arg::None);
    let linear = monoglot_uop::spec::verify_scheduled(linear)?;
    Ok(Schedule {
        linear,
        outputs,
        checks: Vec::new(),
        plan,
        written,
    })
}

/// Give every allocation its memory and its place there.
fn place(plan: &mut Plan) {
    let devices: Vec<Device> = plan.allocations.iter().map(|a| a.device).collect();
    let mut seen: Vec<Device> = Vec::new();
    for device in devices {
        if seen.contains(&device) {
            continue;
        }
        seen.push(device);
        let here = |output: bool| {
            let all = plan.allocations.iter().enumerate();
            let some = all.filter(|(_, a)| a.device == device && a.output == output);
            some.map(|(i, _)| i).collect::<Vec<usize>>()
        };
        let outputs = here(true);
        let inner = here(false);
        let first = plan.memories.len();
        for &o in &outputs {
            let allocation = &mut plan.allocations[o];
            allocation.memory = plan.memories.len();
            plan.memories.push(Memory {
                device,
                bytes: allocation.bytes,
                output: Some(o),
            });
        }
        let block = |&i: &usize| Block {
            bytes: plan.allocations[i].bytes.next_multiple_of(ALIGN),
            steps: plan.allocations[i].steps,
        };
        // What varies, and what is given out when it is small, takes in nothing.
        let fixed = |i: usize| plan.allocations[i].size.is_none();
        let room = |&o: &usize| Room {
            bytes: match fixed(o) {
                true => plan.allocations[o].bytes / ALIGN * ALIGN,
                false => 0,
            },
            until: plan.allocations[o].steps.0,
        };
        let blocks: Vec<Block> = inner.iter().map(block).collect();
        let rooms: Vec<Room> = outputs.iter().map(room).collect();
        let packed = pack::pack(&blocks, &rooms);
        let own = plan.memories.len();
        if packed.bytes > 0 || packed.places.iter().any(|p| p.room.is_none()) {
            plan.memories.push(Memory {
                device,
                bytes: packed.bytes,
                output: None,
            });
        }
        for (&i, p) in inner.iter().zip(&packed.places) {
            plan.allocations[i].memory = p.room.map_or(own, |room| first + room);
            plan.allocations[i].offset = p.offset;
        }
    }
}

/// Say of every allocation what it lies behind, in memories where a size varies.
fn order(plan: &mut Plan) {
    let mut of_memory: Vec<Vec<usize>> = vec![Vec::new(); plan.memories.len()];
    for (i, a) in plan.allocations.iter().enumerate() {
        of_memory[a.memory].push(i);
    }
    for mut members in of_memory {
        members.sort_by_key(|&i| (plan.allocations[i].offset, i));
        if members.iter().all(|&i| plan.allocations[i].size.is_none()) {
            continue;
        }
        for (k, &i) in members.iter().enumerate() {
            let a = &plan.allocations[i];
            let below = |&&j: &&usize| {
                let b = &plan.allocations[j];
                let at_once = b.steps.0 <= a.steps.1 && a.steps.0 <= b.steps.1;
                at_once && b.offset + b.bytes <= a.offset && b.bytes > 0
            };
            let above = members[..k].iter().filter(below).copied().collect();
            plan.allocations[i].above = above;
        }
    }
}

/// The bytes of a node's elements, where they vary.
fn size_of(node: &UOp) -> Option<UOp> {
    let shape = node.shape();
    shape.iter().find(|d| d.as_int().is_none())?;
    let bytes = UOp::index_const(node.dtype().bytes() as i64);
    Some(shape.iter().fold(bytes, |n, d| n * d.to_uop()))
}

/// The bytes of a node's elements; an error where no address space has so many.
fn bytes_of(node: &UOp, device: Device) -> Result<usize> {
    let bytes = node
        .shape()
        .max_len()
        .checked_mul(node.dtype().bytes() as i64);
    let countable = bytes.filter(|n| *n <= i64::MAX - ALIGN as i64);
    countable.map(|n| n as usize).ok_or_else(|| {
        ErrorKind::Memory {
            device: device.name().into(),
            wanted: u64::MAX,
            available: i64::MAX as u64,
        }
        .into()
    })
}

fn call(k: &Call, storage: impl Fn(usize) -> UOp) -> Result<Option<UOp>> {
    let mut src: Srcs = Srcs::new();
    src.push(match &k.callee {
        Callee::Nothing => return Ok(None),
        Callee::Compute(sink) | Callee::Own(sink) => sink.clone(),
        Callee::Copy(body) => body.clone(),
        Callee::Function(_) | Callee::Loop(_) => {
            return Err(ErrorKind::Verify {
                stage: "memory plan".into(),
                message: "a call whose kernels are not among the others".into(),
            }
            .into());
        }
    });
    src.extend(k.args.iter().map(|&a| storage(a)));
    let info = CallInfo {
        outs: (0..k.outs).collect(),
        ins: (k.outs..k.args.len()).collect(),
        derivative: None,
    };
    Ok(Some(UOp::new(Op::Call, src, Arg::Call(Arc::new(info)))))
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
