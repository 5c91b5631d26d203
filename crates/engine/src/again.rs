//! Programs that a thread ran before, found again by the look of a graph, without the function that it is. Flows in:
//! roots over BUFFERs; flows out: what runs them, with its arguments, where the same thread had a graph of the same
//! look; or that look, to be kept with what was found for it otherwise.
//!
//! A graph's look is all that `callify` goes by: its nodes in order, each with its op, its arg and the places of its
//! sources; BUFFERs but for their slots. Invariant: what is kept holds no BUFFER. Graphs that assign or assert, or
//! have functions or variables, have no look here.

use crate::executable::Invocation;
use monoglot_schedule::Arguments;
use monoglot_uop::graph::nodes_below;
use monoglot_uop::marks::NodeMap;
use monoglot_uop::{Arg, BufferArg, Device, Op, OpSet, UOp};
use std::cell::RefCell;
use std::rc::Rc;

/// Programs that a thread keeps.
const KEPT: usize = 16;
/// Nodes of a graph that is looked at: what takes longer than finding it again is worth less of that.
const MOST: usize = 512;
/// What a graph with a look does not have.
const OTHER: OpSet = OpSet::of(&[
    Op::Param,
    Op::Assert,
    Op::Call,
    Op::Function,
    Op::After,
    Op::Custom,
]);

thread_local! {
    static RUN: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
}

/// How a graph looks.
pub(crate) struct Look<'a> {
    device: Device,
    /// Of each node: op, tag and number of sources, and their places; for what reads no BUFFER, which node it is.
    words: Vec<u64>,
    args: Vec<&'a Arg>,
    constants: Vec<&'a UOp>,
    buffers: Vec<&'a UOp>,
    /// Of each BUFFER, all but which it is.
    kinds: Vec<BufferArg>,
}

/// A program with the look of a graph that it computes.
struct Known {
    device: Device,
    words: Vec<u64>,
    args: Vec<Arg>,
    kinds: Vec<BufferArg>,
    /// Held, so that no other node is where one of them is.
    _constants: Vec<UOp>,
    /// Of each PARAM, its place among the BUFFERs.
    order: Vec<usize>,
    program: Rc<Invocation>,
}

impl<'a> Look<'a> {
    /// That of a graph, if it has one.
    pub(crate) fn of(roots: &'a [UOp]) -> Option<Look<'a>> {
        if roots.iter().any(|u| u.ops_below().intersects(OTHER)) {
            return None;
        }
        let reads = |u: &UOp| u.ops_below().contains(Op::Buffer);
        let nodes = nodes_below(roots, |u| u.op() != Op::Buffer && reads(u));
        if nodes.len() > MOST {
            return None;
        }
        let mut look = Look {
            device: crate::default_device(),
            words: Vec::with_capacity(5 * nodes.len()),
            args: Vec::with_capacity(nodes.len()),
            constants: Vec::new(),
            buffers: Vec::new(),
            kinds: Vec::new(),
        };
        let mut places: NodeMap<&UOp, u64> = NodeMap::with_capacity(nodes.len());
        for (place, u) in (0..).zip(nodes) {
            places.insert(u, place);
            if !reads(u) {
                look.words.push(u.address() as u64);
                look.constants.push(u);
                continue;
            }
            look.words.extend([u.op() as u64, u64::from(u.tag())]);
            match (u.op(), u.arg()) {
                (Op::Buffer, Arg::Buffer(b)) => {
                    // Its shape is a node that reads no BUFFER.
                    let shape = &u.src()[0];
                    look.words.push(shape.address() as u64);
                    look.kinds.push(BufferArg {
                        slot: 0,
                        version: 0,
                        ..*b
                    });
                    look.constants.push(shape);
                    look.buffers.push(u);
                }
                (_, arg) => {
                    look.words.push(u.src().len() as u64);
                    look.words.extend(u.src().iter().map(|s| places[s]));
                    look.args.push(arg);
                }
            }
        }
        look.words.extend(roots.iter().map(|r| places[r]));
        Some(look)
    }

    /// The program that this thread ran for a graph of this look, and what it is called with.
    pub(crate) fn find(&self) -> Option<(Rc<Invocation>, Arguments)> {
        let found = RUN.try_with(|all| {
            let mut all = all.borrow_mut();
            let at = all.iter().rposition(|known| self.is(known))?;
            // What was used last is found first, and goes last.
            let last = all.len() - 1;
            all[at..].rotate_left(1);
            let known = &all[last];
            let buffers = known.order.iter().map(|&k| self.buffers[k].clone());
            let arguments = Arguments {
                buffers: buffers.collect(),
                ..Arguments::default()
            };
            Some((known.program.clone(), arguments))
        });
        found.ok().flatten()
    }

    fn is(&self, known: &Known) -> bool {
        self.words == known.words
            && self.device == known.device
            && self.kinds == known.kinds
            && self.args.iter().copied().eq(&known.args)
    }

    /// Keep what was found for it.
    pub(crate) fn keep(&self, program: &Rc<Invocation>, arguments: &Arguments) {
        let place = |b: &UOp| self.buffers.iter().position(|u| *u == b);
        let Some(order) = arguments.buffers.iter().map(place).collect() else {
            return;
        };
        let known = Known {
            device: self.device,
            words: self.words.clone(),
            args: self.args.iter().copied().cloned().collect(),
            kinds: self.kinds.clone(),
            _constants: self.constants.iter().copied().cloned().collect(),
            order,
            program: program.clone(),
        };
        // A thread that ends keeps nothing.
        let old = RUN.try_with(|all| {
            let mut all = all.borrow_mut();
            let old = (all.len() >= KEPT).then(|| all.remove(0));
            all.push(known);
            old
        });
        drop(old);
    }
}
