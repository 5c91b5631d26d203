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
use crate::scan::{Written, called};
use monoglot_uop::node::Srcs;
use monoglot_uop::{Arg, Device, ErrorKind, Op, Result, UOp};
use pack::{Block, Room};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

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
    /// What of the program writes it first, and what uses it last, by place in the LINEAR: a loop uses as a whole
    /// what it uses, but for what each of its rounds writes anew and needs for itself.
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

    /// The plan of a schedule that is known already, whose BUFFERs are numbers of these devices and sizes. The
    /// allocations `words` are outputs, too: they tell of assertions when all has run.
    pub fn of(
        linear: &UOp,
        outputs: &[UOp],
        words: impl Iterator<Item = usize>,
        storage: &[(Device, usize)],
    ) -> Plan {
        let one = |&(device, bytes): &(Device, usize)| Allocation {
            device,
            bytes,
            size: None,
            output: false,
            steps: (0, 0),
            memory: 0,
            offset: 0,
            above: Vec::new(),
        };
        let mut plan = Plan {
            allocations: storage.iter().map(one).collect(),
            memories: Vec::new(),
        };
        for arg in linear.src().iter().flat_map(|u| u.src().iter().skip(1)) {
            if let Some(a) = number(arg).and_then(|n| plan.allocations.get_mut(n)) {
                a.size = size_of(arg.viewed());
            }
        }
        live(&mut plan, linear.src());
        for n in outputs.iter().filter_map(number).chain(words) {
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
    let mut calls = Written::default();
    for k in &all.calls {
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
                    steps: (0, 0),
                    memory: 0,
                    offset: 0,
                    above: Vec::new(),
                });
            }
        }
        let storage = |slot| storage(&all, slot, &plan.allocations, &allocation_of);
        match &k.callee {
            Callee::Loop(looped) => {
                calls.looped(looped, k.args.iter().map(|&a| storage(a)).collect())?;
            }
            _ => calls.list.extend(call(k, storage)?),
        }
    }
    let calls = calls.list;
    live(&mut plan, &calls);
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

/// The number of the allocation that an argument is, or is a part of.
fn number(u: &UOp) -> Option<usize> {
    let buffer = Some(u.viewed()).filter(|b| b.op() == Op::Buffer)?;
    Some(buffer.buffer_arg()?.slot as usize)
}

/// Say of every allocation when it is in use; what never is has no bytes.
fn live(plan: &mut Plan, linear: &[UOp]) {
    let lives = lives(linear, plan.allocations.len());
    for (a, life) in plan.allocations.iter_mut().zip(lives) {
        a.steps = life.unwrap_or_default();
        if life.is_none() {
            a.bytes = 0;
        }
    }
}

/// When each of so many allocations is in use, from what of a LINEAR to what.
///
/// What is used in a loop alone, and written there before it is read, is written anew in each of its rounds. All
/// else that a loop uses has to last from one round to the next: it is in use from its beginning to its end.
fn lives(linear: &[UOp], count: usize) -> Vec<Option<(usize, usize)>> {
    let mut open: Vec<usize> = Vec::new();
    let mut loops: Vec<(usize, usize)> = Vec::new();
    let mut uses: Vec<Vec<usize>> = vec![Vec::new(); count];
    // The places at which an allocation is written and not read.
    let mut fresh: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (at, u) in linear.iter().enumerate() {
        match (u.op(), u.arg()) {
            (Op::Range, _) => open.push(at),
            (Op::End, _) => loops.extend(open.pop().map(|begin| (begin, at))),
            (_, Arg::Call(info)) => {
                for (k, n) in u.src()[1..].iter().map(number).enumerate() {
                    let Some(n) = n.filter(|n| *n < count) else {
                        continue;
                    };
                    uses[n].push(at);
                    let reads = |i: &usize| number(&u.src()[1 + i]) == Some(n);
                    if info.outs.contains(&k) && !info.ins.iter().any(reads) {
                        fresh[n].push(at);
                    }
                }
            }
            _ => {}
        }
    }
    let life = |(uses, fresh): (&Vec<usize>, &Vec<usize>)| {
        let first = *uses.first()?;
        let last = *uses.last()?;
        let mut life = (first, last);
        for &(begin, end) in &loops {
            let Some(within) = uses.iter().find(|at| (begin..=end).contains(at)) else {
                continue;
            };
            let alone = begin <= first && last <= end;
            if !(alone && fresh.contains(within)) {
                life = (life.0.min(begin), life.1.max(end));
            }
        }
        Some(life)
    };
    uses.iter().zip(&fresh).map(life).collect()
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
    let body = match &k.callee {
        Callee::Nothing => return Ok(None),
        Callee::Compute(body) | Callee::Own(body) | Callee::Copy(body) => body,
        Callee::Function(_) | Callee::Loop(_) => {
            return Err(ErrorKind::Verify {
                stage: "memory plan".into(),
                message: "a call whose kernels are not among the others".into(),
            }
            .into());
        }
    };
    let arguments = k.args.iter().map(|&a| storage(a)).collect();
    Ok(Some(called(body, arguments, k.outs)))
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
