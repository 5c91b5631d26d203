//! A kernel's axes while Opts are applied, and the one rebuild at the end. Flows in: a kernel; flows
//! out: the kernel over the new axes. Invariant: every RANGE of the kernel is, at any time, an
//! expression over the axes of the nest that takes each of its values once (where no pad's condition
//! is false), or more often where a COVER says so.

use super::rows::Rows;
use crate::graph::node;
use crate::scratch;
use monoglot_uop::rules::conjuncts;
use monoglot_uop::{
    Arg, AxisType, Dim, Error, KernelInfo, Op, OpSet, ReduceOp, Result, TcInfo, UOp, node::Srcs,
};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::cell::OnceCell;
use std::sync::Arc;

/// A loop of the kernel to be.
#[derive(Clone)]
pub(super) struct Axis {
    /// Its RANGE, with a number that no other has.
    pub(super) range: UOp,
    /// Which RANGE of the kernel it is a part of.
    pub(super) of: usize,
}

impl Axis {
    pub(super) fn kind(&self) -> AxisType {
        self.range.range_arg().map_or(AxisType::Loop, |(_, t)| t)
    }

    /// The number of iterations, where it is known.
    pub(super) fn extent(&self) -> Option<i64> {
        self.range.src()[0].as_int()
    }
}

/// A RANGE of the kernel that runs past its end wherever `valid` is false.
#[derive(Clone)]
pub(super) struct Pad {
    pub(super) of: usize,
    pub(super) valid: UOp,
}

/// A matrix unit at work on one REDUCE.
#[derive(Clone)]
pub(super) struct Mma {
    pub(super) unit: TcInfo,
    /// The REDUCE of the kernel, and the factors of its products: `a[m, k]`, `b[k, n]`.
    pub(super) reduce: UOp,
    pub(super) a: UOp,
    pub(super) b: UOp,
    /// What stands for m, n and k in the nest's expressions.
    pub(super) m: UOp,
    pub(super) n: UOp,
    pub(super) k: UOp,
    /// m and k of the elements of a that a lane holds, k and n of those of b.
    pub(super) of_a: Vec<[UOp; 2]>,
    pub(super) of_b: Vec<[UOp; 2]>,
    /// m and n of the lane's element of the result that `element`, an axis, chooses.
    pub(super) of_c: [UOp; 2],
    pub(super) element: UOp,
}

/// The loops of a kernel between two Opts.
#[derive(Clone)]
pub(super) struct LoopNest {
    pub(super) sink: UOp,
    pub(super) nodes: Arc<[UOp]>,
    /// The axes, sorted by type; within a type from the outermost to the innermost.
    pub(super) axes: Vec<Axis>,
    /// The RANGEs of the kernel.
    pub(super) ranges: Arc<[UOp]>,
    /// What each RANGE of the kernel is now.
    pub(super) now: Vec<UOp>,
    pub(super) pads: Vec<Pad>,
    pub(super) mma: Option<Mma>,
    pub(super) info: KernelInfo,
    /// The RANGEs of the kernel whose turns stay in order.
    carried: Arc<FxHashSet<UOp>>,
    /// What is read row by row before it is written.
    pub(super) rows: Rows,
    next: u32,
    /// The kernel over the axes as they are, once somebody asked for it; a step forgets it.
    finished: OnceCell<UOp>,
}

impl LoopNest {
    pub(super) fn new(kernel: &UOp) -> Result<LoopNest> {
        let wrong = || {
            Error::argument(
                "kernel",
                format!("{} is not a kernel's SINK", kernel.op().name()),
            )
        };
        let info = match kernel.arg() {
            Arg::Kernel(info) if kernel.op() == Op::Sink => KernelInfo::clone(info),
            Arg::None if kernel.op() == Op::Sink => KernelInfo::default(),
            _ => return Err(wrong()),
        };
        let nodes = kernel.toposort();
        let ranges = super::ranges(&nodes);
        let carried = scratch::carried(&nodes);
        let rows = Rows::of(&nodes, &ranges);
        let next = ranges
            .iter()
            .filter_map(UOp::range_arg)
            .map(|(id, _)| id + 1)
            .max()
            .unwrap_or(0);
        let axes = ranges
            .iter()
            .enumerate()
            .map(|(of, r)| Axis {
                range: r.clone(),
                of,
            })
            .collect();
        Ok(LoopNest {
            sink: kernel.clone(),
            nodes: nodes.into(),
            axes,
            now: ranges.clone(),
            ranges: ranges.into(),
            pads: Vec::new(),
            mma: None,
            info,
            carried: Arc::new(carried),
            rows,
            next,
            finished: OnceCell::new(),
        })
    }

    /// Of each axis the number of its RANGE, and its type.
    pub(super) fn kinds(&self) -> Vec<(usize, AxisType)> {
        self.axes.iter().map(|a| (a.of, a.kind())).collect()
    }

    /// A RANGE that is in no expression yet.
    pub(super) fn fresh(&mut self, extent: impl Into<Dim>, kind: AxisType) -> UOp {
        self.next += 1;
        UOp::range(extent, self.next - 1, kind)
    }

    /// Put `new` in place of an axis in what the RANGEs of the kernel are.
    pub(super) fn rebind(&mut self, axis: &Axis, new: &UOp) {
        let map: FxHashMap<UOp, UOp> = std::iter::once((axis.range.clone(), new.clone())).collect();
        self.now[axis.of] = self.now[axis.of].substitute(&map);
        for p in self.pads.iter_mut().filter(|p| p.of == axis.of) {
            p.valid = p.valid.substitute(&map);
        }
        if let Some(t) = &mut self.mma {
            let fragments = t.of_a.iter_mut().chain(&mut t.of_b);
            for e in fragments.chain([&mut t.of_c]).flatten() {
                *e = e.substitute(&map);
            }
        }
    }

    /// Add an axis as the innermost of its type, or the outermost.
    pub(super) fn insert(&mut self, axis: Axis, outermost: bool) {
        let kind = axis.kind();
        let before = |a: &Axis| a.kind() < kind || !outermost && a.kind() == kind;
        let at = self.axes.partition_point(before);
        self.axes.insert(at, axis);
    }

    /// Whether what one turn of this RANGE leaves in storage of the kernel's own is what the next begins with.
    pub(super) fn is_carried(&self, of: usize) -> bool {
        self.carried.contains(&self.ranges[of])
    }

    /// Whether a loop whose turns stay in order stands somewhere behind `first` and before `end`: what is set
    /// anew by the loops around it stays around it.
    pub(super) fn carries_between(&self, first: usize, end: usize) -> bool {
        let turns = |a: &Axis| {
            scratch::turns(a.kind()) && self.is_carried(a.of) && self.is_around_stores(a.of)
        };
        self.axes[first + 1..end].iter().any(turns)
    }

    /// Whether a RANGE is a loop around effects of the kernel, not one that fills storage inside of them.
    fn is_around_stores(&self, of: usize) -> bool {
        let range = &self.ranges[of];
        let mut open: Vec<&UOp> = self.sink.src().iter().collect();
        while let Some(u) = open.pop() {
            match u.op() {
                Op::End if u.src()[1..].contains(range) => return true,
                Op::End | Op::Group => open.extend(u.src().iter().filter(|s| s.op().is_void())),
                _ => {}
            }
        }
        false
    }

    /// Whether the threads of a workgroup wait for each other.
    pub(super) fn waits(&self) -> bool {
        self.sink.ops_below().contains(Op::Barrier)
    }

    /// Whether every effect of the kernel is inside the loop over this RANGE.
    pub(super) fn encloses_all(&self, of: usize) -> bool {
        let range = &self.ranges[of];
        self.sink
            .src()
            .iter()
            .all(|e| e.op() == Op::End && e.src()[1..].contains(range))
    }

    /// The kernel over the axes as they are now.
    pub(super) fn kernel(&self) -> UOp {
        self.finished.get_or_init(|| self.made()).clone()
    }

    /// Once an axis has changed, the kernel is another.
    pub(super) fn changed(&mut self) {
        self.finished.take();
    }

    fn made(&self) -> UOp {
        // The axes as RANGEs numbered by their place.
        let mut last: FxHashMap<UOp, UOp> = FxHashMap::default();
        let mut closes: Closes = vec![SmallVec::new(); self.ranges.len()];
        for (i, a) in self.axes.iter().enumerate() {
            let range = a.range.with_arg(Arg::Range(i as u32, a.kind()));
            closes[a.of].push(range.clone());
            last.insert(a.range.clone(), range);
        }
        let mut main = self.bind(&[], &last);
        let mut products = FxHashMap::default();
        if let Some(t) = &self.mma {
            main = self.bind(&[(&t.m, &t.of_c[0]), (&t.n, &t.of_c[1])], &last);
            products.insert(t.reduce.clone(), self.product(t, &last, &closes));
        }
        let sink = self.rebuild(&self.sink, &main, &closes, &products);
        scratch::spread(&sink.with_arg(Arg::Kernel(Arc::new(self.info.clone()))))
    }

    /// What the RANGEs and the conditions are, with these values for some axes and `last` for all.
    fn bind(&self, values: &[(&UOp, &UOp)], last: &FxHashMap<UOp, UOp>) -> Binding {
        let values = values.iter().map(|(a, b)| ((*a).clone(), (*b).clone()));
        let values = values.collect();
        let bound = |e: &UOp| e.substitute(&values).substitute(last);
        Binding {
            ranges: self.now.iter().map(bound).collect(),
            valid: self.pads.iter().map(|p| bound(&p.valid)).collect(),
        }
    }

    /// The sum that a matrix unit makes, as the element of it that an axis chooses.
    fn product(&self, t: &Mma, last: &FxHashMap<UOp, UOp>, closes: &Closes) -> UOp {
        let part = |u: &UOp, rows: (&UOp, &UOp), columns: (&UOp, &UOp)| {
            let with = self.bind(&[rows, columns], last);
            let new = self.rebuild(u, &with, closes, &FxHashMap::default());
            match self.gate(&with, &t.reduce.src()[1..]) {
                Some(gate) => gate.select(&new, &new.like(0)),
                None => new,
            }
        };
        let a = t.of_a.iter().map(|[m, k]| part(&t.a, (&t.m, m), (&t.k, k)));
        let b = t.of_b.iter().map(|[k, n]| part(&t.b, (&t.k, k), (&t.n, n)));
        let zero = UOp::constant(t.unit.dtype_out.zero(), t.unit.dtype_out);
        let zeros = vec![zero; t.unit.c.elements() as usize];
        let lists = [a.collect::<Srcs>(), b.collect(), zeros.into()];
        let src: Srcs = lists.into_iter().map(|l| node(Op::Stack, l)).collect();
        let wmma = UOp::new(Op::Wmma, src, Arg::Wmma(Arc::new(t.unit.clone())));
        let over = self.closed(&t.reduce.src()[1..], closes);
        let sum = wmma.reduce_ranges(ReduceOp::Add, &over);
        sum.at(&[last[&t.element].clone()])
    }

    /// The axes that close these RANGEs of the kernel, in order.
    fn closed(&self, ranges: &[UOp], closes: &Closes) -> Vec<UOp> {
        let mut all: Vec<UOp> = Vec::with_capacity(ranges.len() + 2);
        for r in ranges {
            if let Some(of) = self.ranges.iter().position(|x| x == r) {
                all.extend(closes[of].iter().cloned());
            }
        }
        all.sort_by_key(|r| r.range_arg());
        all.dedup();
        all
    }

    /// What an AFTER or BARRIER stands behind: in place of a RANGE the axes that it is made of, but for those that
    /// have parts of their own; a BARRIER waits for turns alone.
    fn order(&self, u: &UOp, src: Srcs, closes: &Closes) -> Srcs {
        let mut out = Srcs::new();
        for (old, new) in u.src().iter().zip(src) {
            match self.ranges.iter().position(|r| r == old) {
                Some(of) => {
                    let counts = |r: &&UOp| match crate::loops::kind(r) {
                        t if u.op() == Op::After => scratch::sets_anew(t),
                        t => scratch::turns(t),
                    };
                    out.extend(closes[of].iter().filter(counts).cloned());
                }
                None if new.op() == Op::Barrier && new.src().is_empty() => {}
                None => out.push(new),
            }
        }
        out
    }

    /// The condition under which no padded RANGE among these of the kernel runs past its end.
    fn gate(&self, with: &Binding, among: &[UOp]) -> Option<UOp> {
        let padded = self
            .pads
            .iter()
            .zip(&with.valid)
            .filter(|(p, _)| among.contains(&self.ranges[p.of]));
        padded.map(|(_, valid)| valid.clone()).reduce(|a, b| a & b)
    }

    /// Whether a REDUCE is a sum of products of two reads that vary with all of its padded RANGEs, or of words: then
    /// these are masked instead of the product, and what is staged of them needs no mask any more.
    fn is_product(&self, op: ReduceOp, reduce: &UOp) -> bool {
        let closes = &reduce.src()[1..];
        let padded: Vec<&UOp> = (self.pads.iter())
            .map(|p| &self.ranges[p.of])
            .filter(|r| closes.contains(r))
            .collect();
        let is_read = |u: &UOp| {
            let read = match u.op() {
                Op::Cast => &u.src()[0],
                _ => u,
            };
            let ranges = read.ranges();
            read.op() == Op::Index
                && read.src()[0].addrspace().is_some()
                && padded.iter().all(|r| ranges.contains(r))
        };
        let term = &reduce.src()[0];
        let product = term.op() == Op::Mul && term.src().iter().all(is_read);
        op == ReduceOp::Add && (product || term.dot().is_some())
    }

    /// A graph with every RANGE replaced. `known` is what nodes become, whatever is below them.
    fn rebuild(
        &self,
        root: &UOp,
        with: &Binding,
        closes: &Closes,
        known: &FxHashMap<UOp, UOp>,
    ) -> UOp {
        let node = |u: &UOp, mut src: Srcs| {
            match u.op() {
                Op::Range => {
                    if let Some(of) = self.ranges.iter().position(|r| r == u) {
                        return with.ranges[of].clone();
                    }
                }
                Op::End | Op::Reduce if src.len() > 1 => {
                    if let Arg::Reduce(op, _) = u.arg()
                        && let Some(gate) = self.gate(with, &u.src()[1..])
                    {
                        let masked = |x: &UOp, other| {
                            let other = UOp::constant(other, x.dtype());
                            gate.select(x, &other)
                        };
                        src[0] = match self.is_product(*op, u) {
                            true => {
                                let mut factors: Srcs = src[0].src().iter().cloned().collect();
                                for x in &mut factors[..2] {
                                    *x = masked(x, x.dtype().zero());
                                }
                                src[0].with_src(factors)
                            }
                            false => masked(&src[0], op.identity(u.dtype())),
                        };
                    }
                    src.truncate(1);
                    src.extend(self.closed(&u.src()[1..], closes));
                    if src.len() == 1 && u.op() == Op::Reduce {
                        return src[0].clone();
                    }
                }
                Op::After | Op::Barrier => {
                    src = self.order(u, src, closes);
                    if src.len() == 1 && u.op() == Op::After {
                        return src[0].clone();
                    }
                }
                Op::Index if src.len() > 1 && u.src()[0].addrspace().is_some() => {
                    if let Some(gate) = self.gate(with, &reached_by(u, u)) {
                        src = gated(src, &gate);
                    }
                }
                Op::Store => match self.gate(with, &reached_by(u, &u.src()[0])) {
                    Some(gate) if src[0].op() == Op::Index && src[0].src().len() > 1 => {
                        let address = src[0].src().iter().cloned().collect();
                        src[0] = src[0].with_src(gated(address, &gate));
                    }
                    Some(gate) if src.len() > 2 => src[2] = &src[2] & &gate,
                    gate => src.extend(gate),
                },
                _ => {}
            }
            u.with_src(src)
        };
        root.rebuild(known, |u| u.ops_below().intersects(REBUILT), node)
    }
}

/// What is above a RANGE, or stands for nothing where one is an axis no more.
const REBUILT: OpSet = OpSet::of(&[Op::Range, Op::After, Op::Barrier]);

/// The axes that each RANGE of the kernel is made of.
type Closes = Vec<SmallVec<[UOp; 4]>>;

/// What the RANGEs of the kernel, and the conditions of the pads, become.
struct Binding {
    ranges: Vec<UOp>,
    valid: Vec<UOp>,
}

/// The RANGEs that say whether an access takes place: those of all that it is made of. Storage of the kernel's own
/// has places for what is past an end of a loop around it, so there those of the place.
fn reached_by(access: &UOp, address: &UOp) -> SmallVec<[UOp; 4]> {
    let own = address.op() == Op::Index && address.src()[0].named().op() == Op::Buffer;
    match own {
        true => address.src()[1..]
            .iter()
            .flat_map(|i| i.ranges().to_vec())
            .collect(),
        false => access.ranges().iter().cloned().collect(),
    }
}

/// INDEX's sources with the first index invalid where the gate is false, each condition once.
fn gated(mut src: Srcs, gate: &UOp) -> Srcs {
    let first = src[1].clone();
    let (inner, index) = match first.op() {
        Op::Where if first.src()[2].is_invalid() => {
            (conjuncts(&first.src()[0]), first.src()[1].clone())
        }
        _ => (SmallVec::new(), first),
    };
    let new = conjuncts(gate).into_iter().filter(|c| !inner.contains(c));
    let conditions = inner.iter().cloned().chain(new).reduce(|a, b| a & b);
    src[1] = conditions.map_or(index.clone(), |c| index.valid(&c));
    src
}
