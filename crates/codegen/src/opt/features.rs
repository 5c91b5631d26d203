//! The features of a loop nest: what a kernel does, as numbers. Flows in: a kernel; flows out: for each
//! of its axes the extent, for each access the stride along every axis, for each operation the axes
//! with which it varies. Invariant: sets of axes are bits in the order of [`super::axes`], so an Opt's
//! axis is a bit's place.

use super::masked::folded;
use crate::graph::bits;
use monoglot_uop::marks::NodeMap;
use monoglot_uop::{AddrSpace, Arg, AxisType, DType, Op, ReduceOp, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// A set of axes.
pub(super) type Mask = u64;

/// Terms from which on a sum of floats is done in blocks of blocks.
const MANY: i64 = 4096;

/// The stride of an index that is not linear in the axis.
pub(super) const TANGLED: i64 = i64::MIN;

pub(super) struct Access {
    pub(super) store: bool,
    pub(super) bytes: usize,
    /// Elements from one value of each axis to the next.
    pub(super) stride: Vec<i64>,
    /// Axes with which the address or the gate varies.
    pub(super) varies: Mask,
    /// Axes with which the gate varies.
    pub(super) gate: Mask,
    /// Bytes of the whole buffer.
    pub(super) size: i64,
    /// The loops in which it is done.
    pub(super) loops: Mask,
}

impl Access {
    /// How many turns of axis j one of axis k is as far as.
    pub(super) fn window(&self, j: usize, k: usize) -> Option<i64> {
        let [a, b] = [j, k].map(|k| self.stride[k]);
        let steps = a != 0 && b != 0 && a != TANGLED && b != TANGLED && b % a == 0;
        steps.then(|| (b / a).abs())
    }
}

/// Whether this only says which elements are read: a condition on indices, or the choice of what is read where it holds.
fn is_gate(u: &UOp) -> bool {
    match u.src() {
        [gate, read, other] if u.op() == Op::Where && read.op() == Op::Index => {
            let place = &read.src()[1..];
            let same = |i: &UOp| i.op() == Op::Where && i.src()[0] == *gate;
            other.op() == Op::Const && place.len() == 1 && place.iter().all(same)
        }
        _ => u.dtype() == DType::Bool && !u.ops_below().contains(Op::Index),
    }
}

/// Arithmetic on elements: how many simple operations, each varying with the same axes.
pub(super) struct OpCount {
    pub(super) varies: Mask,
    pub(super) bytes: usize,
    pub(super) ops: f64,
    /// The loops in which they are done.
    pub(super) loops: Mask,
}

pub(super) struct Reduction {
    pub(super) closes: Mask,
    /// Axes with which the result varies.
    pub(super) open: Mask,
    pub(super) bytes: usize,
    /// Adds products, so that its body ends in a fused multiply-add.
    pub(super) products: bool,
    /// Elements of each factor that are a term: of a dot product those of a word.
    pub(super) packed: i64,
    /// Rows, columns and words of the tiles that a unit multiplies.
    pub(super) tile: Option<[i64; 3]>,
    /// Axes with which it varies which of its products are with padding.
    pub(super) padded: Mask,
    /// The loops in which its terms are added.
    pub(super) inside: Mask,
    /// The loops in which what it gives is folded.
    pub(super) around: Mask,
    /// Adds many floats one by one: their sums are those of blocks, which are added to others with what that loses.
    pub(super) blocks: bool,
}

/// Loops that fill storage of the kernel's own.
pub(super) struct Fill {
    pub(super) closes: Mask,
    /// Axes around them.
    pub(super) open: Mask,
}

/// A value that stays while others change that are computed from it.
pub(super) struct Steady {
    /// Axes with which it varies, and those with which one that is computed from it does.
    pub(super) varies: Mask,
    pub(super) users: Mask,
    pub(super) bytes: usize,
}

#[derive(Default)]
pub(super) struct Features {
    /// RANGEs, in the order of their numbers.
    pub(super) axes: Vec<UOp>,
    pub(super) extent: Vec<i64>,
    /// Loops inside of others that fill what these read.
    pub(super) fills: Vec<Fill>,
    /// Axes of stores, and those whose extent is known.
    pub(super) outer: Mask,
    pub(super) known: Mask,
    pub(super) accesses: Vec<Access>,
    pub(super) work: Vec<OpCount>,
    pub(super) reductions: Vec<Reduction>,
    /// Axes of two that the kernel reads in both directions: their turns read the same elements. And those along
    /// which results are neighbours, of which each turn is another value.
    pub(super) mirrored: Mask,
    /// Values of which others are computed that vary with more.
    pub(super) steady: Vec<Steady>,
    /// Axes that a comparison asks about by themselves.
    compared: Mask,
    /// What is asked about padding, only where it costs nothing.
    free: FxHashSet<UOp>,
}

impl Features {
    /// None where there is nothing to arrange: no axes, or more than a mask holds.
    pub(super) fn of(kernel: &UOp) -> Option<Features> {
        let nodes = kernel.toposort();
        let axes = super::ranges(&nodes);
        if axes.is_empty() || axes.len() > 64 {
            return None;
        }
        let mut features = Features {
            extent: axes.iter().map(|r| r.src()[0].vmax().max(1)).collect(),
            known: (axes.iter().enumerate()).fold(0, |m, (i, r)| {
                m | (r.src()[0].as_int().is_some() as Mask) << i
            }),
            axes,
            ..Features::default()
        };
        let mut varies: NodeMap<&UOp, Mask> = NodeMap::new();
        // Users come after their sources: the products that a sum takes in are known before.
        let sums = nodes
            .iter()
            .filter(|u| matches!(u.arg(), Arg::Reduce(ReduceOp::Add, _)));
        let sums = sums.filter(|u| u.dtype().is_float());
        let fused = sums.map(|u| (u.src()[0].clone(), folded(u)));
        let fused: FxHashMap<UOp, UOp> = fused.filter(|(_, f)| f.may_contract()).collect();
        let padding = nodes.iter().filter(|u| *u.arg() == Arg::Padding);
        features.free = padding.flat_map(|u| u.src()[0].toposort()).collect();
        for u in &nodes {
            let mask = features.visit(u, &varies, &fused);
            varies.insert(u, mask);
        }
        features.mirrored = features.mirrored();
        features.find_steady(&nodes, &varies);
        features.place();
        Some(features)
    }

    /// Find what loops of reductions hold for several of their terms.
    fn find_steady(&mut self, nodes: &[UOp], varies: &NodeMap<&UOp, Mask>) {
        let closed = self.closed();
        let of = |u: &UOp| varies.get(u).copied().unwrap_or(0);
        let is_value = |u: &UOp| !matches!(u.dtype(), DType::Index | DType::Bool);
        let mut users: NodeMap<&UOp, Mask> = NodeMap::new();
        for u in nodes.iter().filter(|u| u.op().is_elementwise()) {
            let stays = |s: &&UOp| of(u) & closed & !of(s) != 0;
            let values = u
                .src()
                .iter()
                .filter(|s| s.op() != Op::Const && is_value(s));
            for s in values.filter(stays) {
                *users.get_or_insert_with(s, || 0) |= of(u);
            }
        }
        let steady = users.iter().map(|(s, users)| Steady {
            varies: of(s),
            users: *users,
            bytes: s.dtype().bytes(),
        });
        self.steady = steady.collect();
    }

    /// Find the loops in which all is done.
    fn place(&mut self) {
        let closed = self.closed();
        let accesses: Vec<Mask> = (self.accesses.iter().map(|a| self.loops(a.varies))).collect();
        let work: Vec<Mask> = (self.work.iter().map(|w| self.loops(w.varies))).collect();
        let sums = self.reductions.iter();
        let sums = sums.map(|r| [r.closes, r.open & !closed].map(|varies| self.loops(varies)));
        let sums: Vec<[Mask; 2]> = sums.collect();
        for (a, loops) in self.accesses.iter_mut().zip(accesses) {
            a.loops = loops;
        }
        for (w, loops) in self.work.iter_mut().zip(work) {
            w.loops = loops;
        }
        for (r, [inside, around]) in self.reductions.iter_mut().zip(sums) {
            r.inside = inside;
            r.around = around;
        }
    }

    /// The loops in which something that varies with these axes is computed: those of every reduction that closes one of
    /// them, or else up to the innermost of the outer loops among them. What is unrolled is no loop.
    fn loops(&self, varies: Mask) -> Mask {
        let sums = self.reductions.iter();
        let sums = sums.filter(|r| r.closes & varies != 0);
        let inside = sums.fold(varies, |m, r| m | r.closes | r.open);
        let innermost = inside & self.outer & !self.of_kind(AxisType::Upcast);
        // Loops that fill storage, and others inside of the same slices, stand side by side.
        let around = self.slices().map_or(Mask::MAX, |s| s | inside);
        let outer = match innermost {
            0 => 0,
            _ => self.outer & around & (Mask::MAX >> innermost.leading_zeros()),
        };
        outer | inside & (self.outer | self.closed())
    }

    fn visit<'a>(
        &mut self,
        u: &'a UOp,
        varies: &NodeMap<&'a UOp, Mask>,
        fused: &FxHashMap<UOp, UOp>,
    ) -> Mask {
        let all = |src: &[UOp]| {
            src.iter()
                .fold(0, |m, s| m | varies.get(s).copied().unwrap_or(0))
        };
        match u.op() {
            Op::Range => 1 << self.axes.iter().position(|r| r == u).unwrap_or(0),
            Op::End | Op::Reduce if u.src().len() > 1 => {
                let body = all(&u.src()[..1]);
                let closes = all(&u.src()[1..]);
                let open = body & !closes;
                if u.op() == Op::End {
                    self.outer |= closes;
                    let own = u.src()[0].src().first().and_then(UOp::addrspace);
                    if open != 0 || own.is_some_and(|space| space != AddrSpace::Global) {
                        self.fills.push(Fill { closes, open });
                    }
                } else {
                    let dot = u.src()[0].dot();
                    let product = match dot {
                        Some(_) => Some(&u.src()[0]),
                        None => fused.get(&u.src()[0]),
                    };
                    let products = product.is_some();
                    let bytes = u.dtype().compute_type().bytes();
                    let terms = bits(closes).map(|k| self.extent[k]);
                    // What a register tile reads for many results each has long blocks (`select::blocks`).
                    let mut factors = product.into_iter().flat_map(UOp::src);
                    let again = |f: &UOp| varies.get(f).is_some_and(|m| m & body != body);
                    let tile = products && factors.all(again);
                    let adds = matches!(u.arg(), Arg::Reduce(ReduceOp::Add, _)) && !tile;
                    let long = terms.fold(1, i64::saturating_mul) > MANY;
                    self.reductions.push(Reduction {
                        closes,
                        open,
                        bytes,
                        products,
                        packed: dot.map_or(1, |unit| unit.depth()),
                        tile: dot.and_then(|unit| unit.tile()),
                        padded: match u.src()[0].arg() {
                            Arg::Padding => all(&u.src()[0].src()[..1]),
                            _ => 0,
                        },
                        inside: 0,
                        around: 0,
                        blocks: adds && u.dtype().is_float() && long,
                    });
                    self.add_work(body | closes, bytes, 1.0);
                }
                open
            }
            Op::Index if u.src()[0].addrspace().is_some() => {
                let mask = all(u.src());
                self.accesses.push(self.access(u, mask, varies, false));
                mask
            }
            Op::Store => {
                // The address of the store stands among the reads: it is none.
                // What is stored in the kernel's own storage is so in every turn of the loops around.
                let own = u.src()[0].addrspace() != Some(AddrSpace::Global);
                let address = if own { u } else { &u.src()[0] };
                let access = self.access(&u.src()[0], all(address.src()), varies, true);
                let same =
                    |a: &Access| !a.store && a.stride == access.stride && a.size == access.size;
                if let Some(i) = self.accesses.iter().position(same) {
                    self.accesses.remove(i);
                }
                self.accesses.push(access);
                all(u.src())
            }
            op if op.is_elementwise() && u.dtype() != DType::Index => {
                let mask = all(u.src());
                if op.is_comparison() && mask.is_power_of_two() {
                    self.compared |= mask;
                }
                let free = fused
                    .iter()
                    .any(|(masked, product)| masked == u || product == u)
                    || self.free.contains(u)
                    || is_gate(u);
                if !free && !u.src().iter().all(|s| s.dtype() == DType::Index) {
                    self.add_work(mask, u.dtype().compute_type().bytes(), op.traits().cost);
                }
                mask
            }
            _ => all(u.src()),
        }
    }

    fn add_work(&mut self, varies: Mask, bytes: usize, ops: f64) {
        let same = |w: &&mut OpCount| w.varies == varies && w.bytes == bytes;
        match self.work.iter_mut().find(same) {
            Some(w) => w.ops += ops,
            None => self.work.push(OpCount {
                varies,
                bytes,
                ops,
                loops: 0,
            }),
        }
    }

    fn access(
        &self,
        index: &UOp,
        varies: Mask,
        known: &NodeMap<&UOp, Mask>,
        store: bool,
    ) -> Access {
        let mut a = Access {
            store,
            bytes: index.dtype().bytes(),
            stride: vec![0; self.axes.len()],
            varies,
            gate: 0,
            size: 0,
            loops: 0,
        };
        if index.op() != Op::Index {
            return a;
        }
        let dims = index.src()[0].shape().max_ints();
        let mut scale = dims.iter().fold(1i64, |n, d| n.saturating_mul(*d));
        a.size = scale.saturating_mul(a.bytes as i64);
        for (i, d) in index.src()[1..].iter().zip(&dims) {
            scale /= (*d).max(1);
            let mut stack = vec![(i, scale)];
            while let Some((e, by)) = stack.pop() {
                match (e.op(), e.src()) {
                    (Op::Add, [x, y]) => stack.extend([(x, by), (y, by)]),
                    (Op::Sub, [x, y]) => stack.extend([(x, by), (y, -by)]),
                    (Op::Neg, [x]) => stack.push((x, -by)),
                    (Op::Cast, [x]) if x.dtype().is_int() => stack.push((x, by)),
                    (Op::Mul, [x, c]) if c.as_int().is_some() => {
                        stack.push((x, by.saturating_mul(c.as_int().unwrap_or(1))));
                    }
                    (Op::Where, [g, x, y]) if y.is_invalid() => {
                        a.gate |= known.get(g).copied().unwrap_or(0);
                        stack.push((x, by));
                    }
                    (Op::Range, _) => match self.axes.iter().position(|r| r == e) {
                        Some(k) if a.stride[k] != TANGLED => a.stride[k] += by,
                        _ => {}
                    },
                    _ => {
                        for k in bits(known.get(e).copied().unwrap_or(0)) {
                            a.stride[k] = TANGLED;
                        }
                    }
                }
            }
        }
        a
    }

    fn mirrored(&self) -> Mask {
        let loads = || self.accesses.iter().filter(|a| !a.store);
        let both = |k: &usize| {
            let turned = |a: &Access, b: &Access| {
                a.size == b.size && a.stride[*k].checked_neg() == Some(b.stride[*k])
            };
            let back = |a: &&Access| (TANGLED + 1..0).contains(&a.stride[*k]);
            loads().filter(back).any(|a| loads().any(|b| turned(a, b)))
        };
        let two = |k: &usize| self.extent[*k] == 2;
        let open = self.known & self.outer;
        let stores = || self.accesses.iter().filter(|a| a.store);
        let beside = |k: usize| stores().all(|a| a.stride[k] == 1);
        let joined = |k: usize| self.compared >> k & 1 == 1 && beside(k);
        let mirrored = bits(open).filter(two).filter(|k| both(k) || joined(*k));
        mirrored.fold(0, |m, k| m | 1 << k)
    }

    /// Axes of sums no longer than this over windows that overlap along another axis than this one.
    pub(super) fn windows(&self, most: i64, lane: usize) -> Mask {
        let open = self.outer & self.known & !(1 << lane);
        let short = |j: &usize| (2..=most).contains(&self.extent[*j]);
        let overlaps = |j: &usize| {
            let near = |a: &Access, k| a.window(*j, k).is_some_and(|far| far < self.extent[*j]);
            let mut loads = self.accesses.iter().filter(|a| !a.store);
            loads.any(|a| bits(open & a.varies).any(|k| near(a, k)))
        };
        let closed = bits(self.closed() & self.known).filter(short);
        closed.filter(overlaps).fold(0, |m, j| m | 1 << j)
    }

    /// Axes of two along which what lies between elements that are two apart along this one is read or written.
    pub(super) fn between(&self, lane: usize) -> Mask {
        let two = |a: &Access, k: usize| a.stride[k] == 1 && self.extent[k] == 2;
        let apart = self.accesses.iter().filter(|a| a.stride[lane] == 2);
        let between = apart.flat_map(|a| bits(a.varies).filter(|&k| two(a, k)));
        between.fold(0, |m, k| m | 1 << k)
    }

    /// The axes of loops that fill storage of the kernel's own.
    pub(super) fn filled(&self) -> Mask {
        self.fills.iter().fold(0, |m, f| m | f.closes)
    }

    /// The axes around all loops that fill such storage; None where there are none.
    pub(super) fn slices(&self) -> Option<Mask> {
        let opens = self.fills.iter().map(|f| f.open & !self.filled());
        opens.reduce(|a, b| a | b)
    }

    /// The number of iterations of the loops over these axes.
    pub(super) fn count(&self, mask: Mask) -> f64 {
        bits(mask).map(|k| self.extent[k] as f64).product()
    }

    /// Axes that reductions close.
    pub(super) fn closed(&self) -> Mask {
        self.reductions.iter().fold(0, |m, r| m | r.closes)
    }

    /// The axes of this type.
    pub(super) fn of_kind(&self, kind: AxisType) -> Mask {
        let is = |k: &usize| self.kind(*k) == kind;
        (0..self.extent.len()).filter(is).fold(0, |m, k| m | 1 << k)
    }

    /// The axis type of an axis.
    pub(super) fn kind(&self, axis: usize) -> AxisType {
        self.axes[axis]
            .range_arg()
            .map_or(AxisType::Loop, |(_, t)| t)
    }
}
