//! Shaped values as chunks. Flows in: a legalised kernel; flows out: the kernel on scalars and
//! vectors. Invariant: the chunks of a value stand in row-major order of the axes' chunks, so that
//! operands of one shape correspond chunk by chunk.

use super::blocks;
use super::chains::Chains;
use super::epilogue;
use super::layout::{self, Layout, is_index_arithmetic};
use super::table::{Axes, Table, is_fragment};
use crate::build::{alu, bitcast, cast, lane, part, splat, uniform};
use crate::graph::{Srcs, group, node};
use monoglot_uop::rules::below;
use monoglot_uop::{Arg, DType, ErrorKind, Op, Result, Target, UOp};
use rustc_hash::FxHashSet;
use smallvec::smallvec;

/// The kernel while it is taken apart.
pub(super) struct Devectorise<'a> {
    pub(super) t: &'a Table,
    pub(super) layout: Layout,
    pub(super) target: &'a Target,
    /// Sums that carry what their additions round away.
    pub(super) carried: FxHashSet<UOp>,
    /// REDUCEs whose results are lanes of the last axis.
    pub(super) transposed: FxHashSet<UOp>,
    /// Parts of sums that go on.
    pub(super) chains: Chains,
    /// Values, by node.
    pub(super) data: Vec<Vec<UOp>>,
    /// Index arithmetic, by node: the value where all steps are taken back, over the other axes.
    pub(super) bases: Vec<Vec<UOp>>,
    /// Effects and storage, by node.
    pub(super) effect: Vec<Option<UOp>>,
    /// The next number for storage of the kernel's own.
    pub(super) slot: u64,
}

/// Take a kernel apart into scalars and vectors.
pub(super) fn devectorise(kernel: &UOp, target: &Target) -> Result<UOp> {
    let mut t = Table::new(kernel)?;
    let mut layout = layout::layout(&t, target, None);
    let mut carried = FxHashSet::default();
    if let Some(blocks) = blocks::split(&t, &layout, target)? {
        carried = blocks.carried;
        t = Table::new(&blocks.kernel)?;
        layout = layout::layout(&t, target, Some(layout.is_lane));
    }
    let mut transposed = FxHashSet::default();
    if let Some(epilogue) = epilogue::lanes(&t, &layout, target)? {
        let lying = Table::new(&epilogue.kernel)?;
        let own = layout::layout(&lying, target, Some(epilogue.lanes));
        // Lanes have masks, whose ends are worked out of an element: a sum that lies across chunks has none by itself.
        let mut sums = (0..lying.len()).filter(|&i| epilogue.transposed.contains(&lying.nodes[i]));
        if !sums.any(|i| own.demand[i].index) {
            transposed = epilogue.transposed;
            t = lying;
            layout = own;
        }
    }
    let n = t.len();
    let slot = t
        .nodes
        .iter()
        .filter(|u| u.op() == Op::Buffer)
        .filter_map(|u| Some(u.buffer_arg()?.slot + 1))
        .max();
    let mut d = Devectorise {
        t: &t,
        layout,
        target,
        carried,
        transposed,
        chains: Chains::default(),
        data: vec![Vec::new(); n],
        bases: vec![Vec::new(); n],
        effect: vec![None; n],
        slot: slot.unwrap_or(0),
    };
    d.chains = d.chains();
    for i in 0..n {
        d.node(i)?;
    }
    d.effect[n - 1]
        .take()
        .ok_or_else(|| broken("a kernel that does not end in a SINK"))
}

pub(super) fn broken(message: impl Into<String>) -> monoglot_uop::Error {
    ErrorKind::Verify {
        stage: "select".into(),
        message: message.into(),
    }
    .into()
}

impl Devectorise<'_> {
    fn node(&mut self, i: usize) -> Result<()> {
        let t = self.t;
        let u = &t.nodes[i];
        let src = &t.src[i];
        match u.op() {
            Op::Param | Op::Buffer if u.addrspace().is_some() => self.effect[i] = Some(u.clone()),
            Op::Store => self.effect[i] = Some(self.store(i)?),
            Op::AtomicAdd => {
                // It stands where a store of one element would.
                let store = self.store(i)?;
                let adds = store.op() == Op::Store;
                self.effect[i] = Some(match adds {
                    true => crate::graph::node(Op::AtomicAdd, store.src().iter().cloned()),
                    false => store,
                });
            }
            Op::After | Op::End | Op::Sink | Op::Group | Op::Barrier => {
                let new: Result<Srcs> = src.iter().map(|&s| self.thing(s as usize)).collect();
                self.effect[i] = Some(match u.op() {
                    Op::Group => group(new?.into_vec()),
                    _ => u.with_src(new?),
                });
            }
            Op::Reduce => {
                if let Some(tiled) = self.layout.tiled.take_if(|tiled| tiled.is(i)) {
                    self.reduce_tiles(&tiled)?;
                } else if let Some(group) = t.groups.get(&(i as u32)) {
                    self.reduce_group(group);
                } else if src.len() == 1 {
                    self.reduce_lanes(i);
                }
            }
            _ => {}
        }
        let demand = self.layout.demand[i];
        if demand.data && self.data[i].is_empty() && !self.chains.passes(i) {
            self.data[i] = match self.chains.last(i) {
                Some(last) => self.data[last].clone(),
                None => self.evaluate(i)?,
            };
        }
        if demand.index {
            self.bases[i] = self.base(i)?;
        }
        Ok(())
    }

    /// An effect, storage, or a loop's range, as something else's source.
    fn thing(&self, i: usize) -> Result<UOp> {
        let u = &self.t.nodes[i];
        match &self.effect[i] {
            Some(e) => Ok(e.clone()),
            None if u.op() == Op::Range => Ok(u.clone()),
            None if self.data[i].len() == 1 => Ok(self.data[i][0].clone()),
            None => Err(broken(format!("{u:?} where an effect belongs"))),
        }
    }

    fn evaluate(&mut self, i: usize) -> Result<Vec<UOp>> {
        let t = self.t;
        let u = &t.nodes[i];
        let src = &t.src[i];
        Ok(match u.op() {
            Op::Const | Op::Param | Op::Range | Op::Special => vec![u.clone()],
            Op::Stack => u.src().to_vec(),
            Op::Reshape if is_fragment(u) => self.fragment(i),
            Op::Reshape if t.nodes[src[0] as usize].op() == Op::Stack => self.axis(i),
            Op::Reshape => self.data[src[0] as usize].clone(),
            Op::Expand => self.expand(i),
            Op::Load => self.load(i, None)?,
            Op::Cast if self.widens(i) => self.load(src[0] as usize, Some(u))?,
            op if op.is_elementwise() || matches!(op, Op::Bitcast | Op::Wmma | Op::Custom) => {
                let n = self.count(&t.dims[i]);
                let mut out = Vec::with_capacity(n);
                let widths = u.dot().map(|_| self.each_chunk(&t.dims[i]));
                for p in 0..n {
                    let mut s: Srcs = src.iter().map(|&s| self.operand(s as usize, p)).collect();
                    if let (Some(unit), Some(widths)) = (u.dot(), &widths) {
                        let native = crate::native::Native {
                            target: self.target,
                        };
                        let operands = [&s[0], &s[1], &s[2]];
                        out.push(native.dot(u, unit, operands, widths[p].1));
                        continue;
                    }
                    if op == Op::Wmma && s[2].shape().is_empty() {
                        s[2] = splat(&s[2], s[0].shape().max_len() as usize);
                    }
                    out.push(match u.arg() {
                        Arg::None => at_place(op, &s),
                        // A constant stands for every lane, and remains one.
                        _ if op == Op::Cast => cast(&s[0], u.dtype()),
                        _ if op == Op::Bitcast => bitcast(&s[0], u.dtype()),
                        // What is not known of a whole chunk is not asked.
                        Arg::Padding => {
                            let inside = uniform(&s[0]).is_none_or(|c| c.truthy());
                            s.swap_remove(if inside { 1 } else { 2 })
                        }
                        _ => u.with_src(s),
                    });
                }
                out
            }
            op => return Err(broken(format!("{} as a value", op.name()))),
        })
    }

    /// Whether a node makes wider elements of what a LOAD reads.
    fn widens(&self, i: usize) -> bool {
        let from = self.t.src[i][0] as usize;
        let load = &self.t.nodes[from];
        let wide = self.t.nodes[i].dtype().bytes() > load.dtype().bytes();
        wide && load.op() == Op::Load && self.t.src[from].len() == 1
    }

    /// Chunk `p` of an operand; a constant stands for every chunk.
    pub(super) fn operand(&self, i: usize, p: usize) -> UOp {
        let data = &self.data[i];
        if data.len() == 1 {
            data[0].clone()
        } else {
            data[p].clone()
        }
    }

    /// How many chunks a value of these extents has.
    pub(super) fn count(&self, dims: &[u32]) -> usize {
        dims.iter()
            .zip(&self.layout.chunks)
            .map(|(&n, p)| if n == 1 { 1 } else { p.len() })
            .product()
    }

    /// The axis along which a value of these extents has lanes.
    pub(super) fn lane_axis(&self, dims: &[u32]) -> Option<usize> {
        (0..dims.len()).find(|&k| dims[k] > 1 && self.layout.is_lane[k])
    }

    /// The chunks of a value, in order: the first element along each axis, and lanes.
    pub(super) fn each_chunk(&self, dims: &[u32]) -> Vec<(Axes<u32>, usize)> {
        combinations(dims.len(), |k| {
            if dims[k] == 1 {
                &[(0, 1)]
            } else {
                &self.layout.chunks[k]
            }
        })
    }

    /// The chunk of a value of extents `dims` that holds the element at `start`.
    pub(super) fn chunk_at(&self, dims: &[u32], start: &[u32]) -> usize {
        let many = (0..dims.len()).filter(|&k| dims[k] > 1);
        many.fold(0, |p, k| {
            p * self.layout.chunks[k].len() + self.part_at(k, start)
        })
    }

    /// The part of axis `k` that holds the element at `start`.
    fn part_at(&self, k: usize, start: &[u32]) -> usize {
        self.layout.chunks[k].partition_point(|part| part.0 <= start[k]) - 1
    }

    /// The chunks of a list of constants that became an axis.
    fn axis(&self, i: usize) -> Vec<UOp> {
        let list = self.t.nodes[i].src()[0].src();
        let Some(k) = (0..self.t.rank).find(|&k| self.t.dims[i][k] > 1) else {
            return list.to_vec();
        };
        let chunk = |&(at, n): &(u32, u32)| match n {
            1 => list[at as usize].clone(),
            n => node(
                Op::Stack,
                list[at as usize..(at + n) as usize].iter().cloned(),
            ),
        };
        self.layout.chunks[k].iter().map(chunk).collect()
    }

    /// The chunks of a list of values that became an axis, which holds all of them in one chunk.
    fn fragment(&self, i: usize) -> Vec<UOp> {
        let t = self.t;
        let chunk = |(start, width): (Axes<u32>, usize)| {
            let lanes: Srcs = t.src[i]
                .iter()
                .map(|&s| self.element(s as usize, &start))
                .collect();
            let at = start.iter().copied().max().unwrap_or(0) as usize;
            if width == lanes.len() {
                node(Op::Stack, lanes)
            } else {
                lanes[at].clone()
            }
        };
        self.each_chunk(&t.dims[i]).into_iter().map(chunk).collect()
    }

    fn expand(&self, i: usize) -> Vec<UOp> {
        let t = self.t;
        let from = t.src[i][0] as usize;
        let small = &t.dims[from];
        let wide = &t.dims[i];
        let grows = self.lane_axis(wide).filter(|&k| small[k] == 1);
        let widths = grows.map(|k| self.layout.chunks[k].iter().map(|c| c.1 as usize));
        let widest = widths.and_then(Iterator::max).unwrap_or(1);
        let chunk = |(start, width): (Axes<u32>, usize)| {
            let one = self.data[from].len() == 1;
            let chunk = &self.data[from][if one { 0 } else { self.chunk_at(small, &start) }];
            // A narrower vector of what is read once has lanes of the widest one.
            let shared = chunk.op() == Op::Load && chunk.dtype() != DType::Bool && width > 1;
            match grows {
                None => chunk.clone(),
                Some(_) if shared && width < widest => part(&splat(chunk, widest), 0, width),
                Some(_) => splat(chunk, width),
            }
        };
        self.each_chunk(wide).into_iter().map(chunk).collect()
    }

    /// The element at a place, out of the chunk that holds it.
    fn element(&self, i: usize, start: &[u32]) -> UOp {
        let dims = &self.t.dims[i];
        let chunk = &self.data[i][self.chunk_at(dims, start)];
        match self.lane_axis(dims) {
            None => chunk.clone(),
            Some(k) => lane(
                chunk,
                (start[k] - self.layout.chunks[k][self.part_at(k, start)].0) as usize,
            ),
        }
    }

    /// Index arithmetic where all steps are taken back, for every place along the other axes.
    fn base(&mut self, i: usize) -> Result<Vec<UOp>> {
        let t = self.t;
        let u = &t.nodes[i];
        let src = &t.src[i];
        let arithmetic = is_index_arithmetic(t, i) && !self.layout.gathered[i];
        let mut out = Vec::new();
        for start in self.jumps(i) {
            out.push(match u.op() {
                _ if !arithmetic => self.element(i, &start),
                Op::Const | Op::Param | Op::Range | Op::Special => u.clone(),
                Op::Reshape if t.nodes[src[0] as usize].op() == Op::Stack => {
                    let list = u.src()[0].src();
                    list[start.iter().copied().max().unwrap_or(0) as usize].clone()
                }
                Op::Reshape | Op::Expand => self.index_at(src[0] as usize, &start),
                op => {
                    let s: Srcs = src
                        .iter()
                        .map(|&s| self.index_at(s as usize, &start))
                        .collect();
                    match u.arg() {
                        Arg::None => at_place(op, &s),
                        _ => crate::build::cast(&s[0], u.dtype()),
                    }
                }
            });
        }
        Ok(out)
    }

    /// The places along the axes on which an index jumps, row-major.
    fn jumps(&self, i: usize) -> Vec<Axes<u32>> {
        let dims = &self.t.dims[i];
        let steps = &self.layout.steps[i];
        let along = |k: usize| {
            let places = if steps[k].is_none() { dims[k] } else { 1 };
            (0..places).map(|e| (e, 1)).collect()
        };
        let all: Axes<Vec<(u32, u32)>> = (0..dims.len()).map(along).collect();
        combinations(dims.len(), |k| &all[k])
            .into_iter()
            .map(|c| c.0)
            .collect()
    }

    /// The value of an index at a place.
    pub(super) fn index_at(&self, i: usize, start: &[u32]) -> UOp {
        let dims = &self.t.dims[i];
        let steps = &self.layout.steps[i];
        let mut at = 0;
        let mut offset = 0i64;
        for k in 0..dims.len() {
            match steps[k] {
                // Where a gate holds this does not overflow, elsewhere it may.
                Some(step) if dims[k] > 1 => {
                    offset = offset.wrapping_add(step.wrapping_mul(start[k] as i64));
                }
                None => at = at * dims[k] as usize + start[k] as usize,
                _ => {}
            }
        }
        let base = &self.bases[i][at];
        if offset == 0 {
            base.clone()
        } else {
            alu(Op::Add, &[base.clone(), UOp::int(offset, base.dtype())])
        }
    }
}

/// An operation on what is known of one place. Of a comparison of integers, what was added for the place is taken from the
/// other side: several of them compare the same with numbers.
fn at_place(op: Op, src: &[UOp]) -> UOp {
    let is_sum = |s: &UOp| s.op() == Op::Add && s.dtype().is_int() && s.shape().is_empty();
    let moves = op == Op::CmpLt && src.iter().any(is_sum);
    let moved = moves.then(|| below(&src[0], &src[1])).flatten();
    moved.unwrap_or_else(|| alu(op, src))
}

/// Every choice of one part along each axis, row-major: where each begins, and how many elements it holds.
fn combinations<'a>(
    rank: usize,
    along: impl Fn(usize) -> &'a [(u32, u32)],
) -> Vec<(Axes<u32>, usize)> {
    let mut out: Vec<(Axes<u32>, usize)> = vec![(smallvec![0; rank], 1)];
    for k in 0..rank {
        match along(k) {
            [(at, n)] => {
                for (start, width) in &mut out {
                    start[k] = *at;
                    *width *= *n as usize;
                }
            }
            parts => {
                let each = |(start, width): &(Axes<u32>, usize), &(at, n): &(u32, u32)| {
                    let mut start = start.clone();
                    start[k] = at;
                    (start, width * n as usize)
                };
                out = out
                    .iter()
                    .flat_map(|c| parts.iter().map(|p| each(c, p)))
                    .collect();
            }
        }
    }
    out
}
