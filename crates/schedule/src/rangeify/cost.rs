//! What it costs to store a value, and what to compute it again. Units are vectorised arithmetic
//! operations; the weights are a machine's rough proportions, not its name. Flows in: the nodes of
//! a function and which of them must be stored; flows out: for a node and who reads it, whether it
//! is stored. Invariant: only ratios between costs mean anything.
//!
//! store:   size × (ops + bytes written) + what reads cost + one more kernel
//! compute: evaluations × ops + the storage of the reductions below, which recomputing moves there

use super::below::{bytes, is_data, is_view, names_places, product_of_slices};
use super::{At, Body, Draft, Rangeify};
use monoglot_uop::rules::{self, Affine};
use monoglot_uop::{Arg, DType, Op, OpSet, ReduceOp, Result, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// Operations that moving one byte costs.
const BYTE: f64 = 4.0;
/// Operations that reading a stored element costs.
const READ: f64 = 4.0;
/// Operations that reading it once more in the same kernel costs.
const AGAIN: f64 = 2.0;
/// Operations that one more kernel costs.
pub(super) const LAUNCH: f64 = 250_000.0;
/// Operations of an element of what is computed from no data.
const INDEX: f64 = 4.0;
/// How many times as much padding costs whose neighbours are not read together: each element goes by itself.
const APART: f64 = 4.0;
/// Elements of a result that are computed together, and share what a reduction computes for them.
pub(super) const TILE: f64 = 16.0;
/// Elements up to which a reduction is unrolled rather than a loop.
pub(super) const SHORT: f64 = 16.0;
/// Most kernels or index patterns in which one value is computed anew.
const COPIES: usize = 4;
/// Operations that are still computed in a kernel that is long enough.
const LITTLE: f64 = 8.0;
/// Most nodes of an expression that are told apart when one of them is used twice.
const CONE: usize = 48;

/// Most nodes of an expression that may be found to need no loop.
const CLOSED: usize = 256;

/// Ops that are never worth storing: they are stored already, or cost nothing.
const FREE: OpSet = OpSet::of(&[
    Op::Param,
    Op::Const,
    Op::Store,
    Op::Detach,
    Op::ContiguousBackward,
]);

/// Ops below which nothing counts for those who use them.
pub(super) const LEAVES: OpSet = OpSet::of(&[
    Op::Reduce,
    Op::Param,
    Op::Const,
    Op::Contiguous,
    Op::Copy,
    Op::After,
    Op::GetTuple,
]);

/// What a node adds to the costs of those who use it.
#[derive(Clone, Copy, Default)]
struct Share {
    /// Operations of one element.
    light: f64,
    /// Bytes of reductions, were they stored.
    heavy: f64,
}

impl Share {
    /// A stored element is read.
    const STORED: Share = Share {
        light: 1.0,
        heavy: 0.0,
    };

    /// What the node adds by itself.
    fn own(u: &UOp, data: bool) -> Share {
        match u.op() {
            Op::Reduce if data => Share {
                light: 1.0,
                heavy: bytes(u),
            },
            // Without data below it is most likely an expression of its index.
            Op::Reduce => Share::STORED,
            _ => Share {
                light: weight(u),
                heavy: 0.0,
            },
        }
    }
}

/// Per node, from the leaves up. What is likely to be stored (whatever several others use, or one
/// broadcast, that needs a reduction) counts as a leaf for those who use it.
pub(super) struct Costs {
    /// Operations of one element, down to reductions and leaves.
    pub(super) light: Vec<f64>,
    /// Operations down to the leaves, of what is computed from no data: what is shared counts again.
    free: Vec<f64>,
    /// Bytes of the reductions there, were each stored.
    heavy: Vec<f64>,
}

impl Costs {
    pub(super) fn new(nodes: &[UOp], number: &FxHashMap<UOp, u32>, must: &[bool]) -> Costs {
        let mut users = vec![0u32; nodes.len()];
        for u in nodes {
            for s in distinct(u.src()) {
                users[number[s] as usize] += 1;
            }
        }
        let mut free: Vec<f64> = Vec::with_capacity(nodes.len());
        let mut light = Vec::with_capacity(nodes.len());
        let mut heavy = Vec::with_capacity(nodes.len());
        // For those who use a node: its cone, the nodes that count for it, each once; and what each of
        // these adds.
        let mut cones: Vec<SmallVec<[u32; 8]>> = Vec::with_capacity(nodes.len());
        let mut shares: Vec<Share> = Vec::with_capacity(nodes.len());
        for (n, u) in nodes.iter().enumerate() {
            let data = is_data(u);
            let own = Share::own(u, data);
            let mut cone = SmallVec::new();
            if !LEAVES.contains(u.op()) {
                for s in distinct(u.src()) {
                    cone.extend_from_slice(&cones[number[s] as usize]);
                }
                cone.sort_unstable();
                cone.dedup();
            }
            let mut below = Share::default();
            for &c in &cone {
                below.light += shares[c as usize].light;
                below.heavy += shares[c as usize].heavy;
            }
            let mut all = Share {
                light: (own.light + below.light).min(1e12),
                heavy: (own.heavy + below.heavy).min(1e18),
            };
            if !data {
                // Functions of the index alone are mostly computed before the loops, or fold.
                all.light = all.light.min(INDEX);
            }
            let again = distinct(u.src()).map(|s| free[number[s] as usize]);
            free.push((own.light + again.sum::<f64>()).min(1e12));
            light.push(all.light);
            heavy.push(all.heavy);

            // What is broadcast is computed before the loops over which it does not vary.
            let grows = u.op() == Op::Expand && u.shape().max_len() > u.src()[0].shape().max_len();
            let kept = must[n] || all.heavy > 0.0 && users[n] > 1;
            let stored = kept || grows;
            let whole = stored || cone.len() >= CONE || !data;
            let share = if stored {
                Share::STORED
            } else if whole {
                all
            } else {
                own
            };
            if whole {
                cone.clear();
            }
            cone.push(n as u32);
            cones.push(cone);
            shares.push(share);
        }
        Costs { light, free, heavy }
    }
}

/// Sources, the same operand once.
fn distinct(src: &[UOp]) -> impl Iterator<Item = &UOp> {
    src.iter()
        .enumerate()
        .filter(|(k, s)| src.len() > 8 || !src[..*k].contains(s))
        .map(|(_, s)| s)
}

/// Whether there are few nodes below.
fn is_small(u: &UOp) -> bool {
    let mut seen = FxHashSet::from_iter([u]);
    let mut open = vec![u];
    while let Some(u) = open.pop() {
        open.extend(u.src().iter().filter(|s| seen.insert(s)));
        if seen.len() > CLOSED {
            return false;
        }
    }
    true
}

/// The value of an assign that overwrites all there was; other nodes are their own value.
fn written(u: &UOp) -> &UOp {
    match (u.op(), u.src()) {
        (Op::After, [_, store]) if store.op() == Op::Store && store.src()[0].op() == Op::Buffer => {
            &store.src()[1]
        }
        _ => u,
    }
}

/// Iterations of loops inside each other.
pub(super) fn count<'a>(ranges: impl IntoIterator<Item = &'a UOp>) -> f64 {
    ranges.into_iter().map(|r| r.vmax() as f64 + 1.0).product()
}

/// Whether a range is one of a reduction's.
fn is_inside(range: &UOp) -> bool {
    range.range_arg().is_some_and(|(_, axis)| axis.is_reduce())
}

/// Whether this is a computed value as a dtype of more bytes: what is stored, if anything is, is that value as it was.
fn widens(u: &UOp) -> bool {
    let [of] = u.src() else { return false };
    u.op() == Op::Cast && of.dtype().bytes() < u.dtype().bytes() && !super::is_stored(of)
}

/// Operations of one element of one node.
fn weight(u: &UOp) -> f64 {
    match u.op() {
        Op::Const | Op::Detach | Op::ContiguousBackward => 0.0,
        Op::Param if u.is_variable() => 0.0,
        Op::Stack if u.dtype() == DType::Index => 0.0,
        Op::Param | Op::Contiguous | Op::Copy | Op::After | Op::GetTuple => 1.0,
        Op::Pad => 6.0,
        Op::Stack => 2.0 * u.src().len() as f64,
        Op::Index => 8.0,
        op if op.is_movement() => 0.0,
        op => op.traits().cost,
    }
}

/// Instructions that an instance of a node is written as, about, for a target with these native ops: twice
/// the cost of what is made of others, a comparison a side and a choice for a pad, and the gate.
pub(super) fn emitted(u: &UOp, at: &At, native: OpSet) -> usize {
    let traits = u.op().traits();
    let own = match u.op() {
        Op::Pad => 4,
        op if traits.derived && !native.contains(op) => 2 * traits.cost as usize,
        _ => 1,
    };
    let mut conditions = 0;
    let mut gate = at.gate.as_ref();
    while let Some(g) = gate {
        conditions += 1;
        gate = g.src().first().filter(|_| g.op() == Op::And);
    }
    own + conditions
}

impl Rangeify<'_> {
    /// Whether a node that nobody asked to store is stored.
    pub(super) fn stores(&mut self, n: u32, u: &UOp, wanted: &[u32]) -> Result<bool> {
        let op = u.op();
        let at = n as usize;
        if matches!(op, Op::Contiguous | Op::Copy) {
            return Ok(true);
        }
        if FREE.contains(op) || is_view(u) || u.dtype() == DType::Index || widens(u) {
            return Ok(false);
        }
        // What is wanted already may still be computed in a long kernel, if that is little.
        let long = self.any_kernel(wanted, |k| k.size >= k.target.max_nodes);
        let too_long = long && self.any_kernel(wanted, |k| 2 * k.size >= 3 * k.target.max_nodes);
        // Cheap functions of the index alone are never worth their bytes, only what they add to a kernel.
        let counts = is_data(u) || too_long && self.costs.free[at] > LITTLE;
        let cheap = op != Op::Reduce && self.costs.light[at] < 32.0;
        if !counts && (cheap || self.has_closed_form(u)) {
            return Ok(false);
        }
        let light = self.costs.light[at];
        let heavy = self.costs.heavy[at];
        let size = u.shape().max_len() as f64;
        let wide = self.any_kernel(wanted, |k| k.buffers + 2 >= k.target.max_buffers);
        let little = if wide || too_long { 1.5 } else { LITTLE };
        let reduces = too_long && op == Op::Reduce;
        if (wide || long) && (light > little || op == Op::After || reduces) {
            return Ok(true);
        }
        if names_places(u) {
            return Ok(false);
        }
        let first: f64 = wanted.iter().map(|&i| self.evaluations(i)).sum();
        let stored_at = bytes(u) * BYTE + first * READ + LAUNCH;
        if op == Op::Reduce {
            let length = u.src()[0].shape().max_len() as f64 / size.max(1.0);
            // Added up twice it is rounded differently: what is equal would differ, and the shares of a row not be 1 together.
            let sums = matches!(u.arg(), Arg::Reduce(op, _) if *op != ReduceOp::Max);
            if sums && u.dtype().is_float() && wanted.len() > 1 && length > 1.0 {
                return Ok(true);
            }
            let work = length * self.costs.light[self.number[&u.src()[0]] as usize].max(1.0);
            if let &[i] = wanted
                && self.is_apart(u, i)?
            {
                return Ok(true);
            }
            if let &[i] = wanted
                && let Some(stored) = self.parts_from(u, i, [length, work], stored_at)
            {
                return Ok(stored);
            }
            let inline: f64 = wanted
                .iter()
                .map(|&i| self.instances[i as usize].at.volume.max(1.0) * work)
                .sum();
            // A long reduction inside a reduction has no registers to live in: keep kernels simple.
            let nested = wanted.len() == 1 && length > SHORT && self.in_reduce(wanted[0], size);
            return Ok(inline > size * work + stored_at || nested);
        }
        if self.stays_near(u, wanted) || self.has_whole_rows(u, wanted) {
            return Ok(false);
        }
        if wanted.len() > COPIES && light > 8.0 {
            return Ok(true);
        }
        let loads: f64 = wanted
            .iter()
            .map(|&i| self.evaluations(i) * self.again(i))
            .sum();
        let blown = wanted.len() > 1 || loads > size * 1.5;
        if !blown {
            return Ok(false);
        }
        // What a kernel keeps of its slices for two sums would be stored for two kernels.
        if heavy > 0.0
            && product_of_slices(u).is_some_and(|p| p.shape().max_len() == u.shape().max_len())
        {
            return Ok(true);
        }
        // Small reductions below are stored whatever happens here; large ones only because of it.
        let moved = if heavy * 8.0 > bytes(u) {
            heavy * BYTE * 2.0 + LAUNCH
        } else {
            0.0
        };
        let apart = op == Op::Pad && wanted.iter().any(|&i| self.steps_over(i));
        let each = if apart { light * APART } else { light };
        let inline = loads * each + moved;
        Ok(inline > size * light + stored_at + (loads - first) * AGAIN)
    }

    /// Whether the longest loop of a reader along the last axis steps over elements.
    pub(super) fn steps_over(&self, i: u32) -> bool {
        let Some(index) = self.instances[i as usize].at.indices.last() else {
            return false;
        };
        let Some(sum) = Affine::of(index) else {
            return false;
        };
        let loops = sum.terms.iter().filter(|t| t.0.op() == Op::Range);
        let longest = loops.max_by_key(|t| t.0.vmax());
        longest.is_some_and(|t| t.1.abs() > 1)
    }

    fn any_kernel(&self, wanted: &[u32], is: impl Fn(&Draft) -> bool) -> bool {
        let kernel = |&i: &u32| &self.kernels[self.instances[i as usize].kernel as usize];
        wanted.iter().map(kernel).any(is)
    }

    /// Whether a stored value is computed again for this reader all the same: only elementwise work
    /// on what is stored anyway, no more of it than a read costs several times over. So an optimizer's
    /// new state and new parameter are one kernel.
    pub(super) fn recompute(&self, n: u32, i: u32) -> bool {
        let u = written(&self.nodes[n as usize]);
        let at = self.number[u] as usize;
        let reader = &self.kernels[self.instances[i as usize].kernel as usize];
        self.nodes[reader.node as usize].op() != Op::Copy
            && u.op().is_elementwise()
            && self.costs.heavy[at] == 0.0
            && self.costs.light[at] <= 24.0
            && self.evaluations(i) <= u.shape().max_len() as f64
            && !matches!(self.instances[i as usize].body, Body::Read(_))
    }

    /// Whether a reduction of constants alone, such as `arange`, turns into an expression of its index.
    fn has_closed_form(&mut self, u: &UOp) -> bool {
        if u.op() != Op::Reduce {
            return false;
        }
        if let Some(&known) = self.closed.get(u) {
            return known;
        }
        // Its kernel, were it stored, says so. That of a large graph is too long a story.
        let found = is_small(u) && self.loses_its_loop(u).unwrap_or(false);
        self.closed.insert(u.clone(), found);
        found
    }

    /// Whether the kernel that would store a value simplifies to one without a REDUCE.
    fn loses_its_loop(&mut self, u: &UOp) -> Result<bool> {
        let roots = std::slice::from_ref(u);
        let alone = super::ranged(roots, self.device, self.target, self.closed)?;
        let value = rules::kernel().rewrite(&alone.stored[0].value)?;
        Ok(!value.ops_below().contains(Op::Reduce))
    }

    /// The ranges over which an instance varies; None where an index of it is not known yet.
    pub(super) fn varies(&self, i: u32) -> Option<FxHashSet<UOp>> {
        let mut ranges: FxHashSet<UOp> = FxHashSet::default();
        for index in &self.instances[i as usize].at.indices {
            if super::has_placeholder(index) {
                return None;
            }
            ranges.extend(index.ranges().iter().cloned());
        }
        Some(ranges)
    }

    /// How many values an instance has: one for each combination of the ranges it varies over.
    pub(super) fn evaluations(&self, i: u32) -> f64 {
        let volume = self.instances[i as usize].at.volume;
        match self.varies(i) {
            Some(ranges) => count(&ranges).min(volume.max(1.0)),
            None => volume,
        }
    }

    /// How many times each of them is computed: where they vary with a range of a reduction, once for
    /// every tile along the loops around that one.
    fn again(&self, i: u32) -> f64 {
        let Some(ranges) = self.varies(i) else {
            return 1.0;
        };
        if !ranges.iter().any(is_inside) {
            return 1.0;
        }
        let others = self.loops(i).iter().filter(|r| !ranges.contains(*r));
        (count(others) / TILE).max(1.0)
    }

    /// The loops in which an instance stands, but for those of slices that what is kept there varies with.
    pub(super) fn loops(&self, i: u32) -> &[UOp] {
        let instance = &self.instances[i as usize];
        match instance.at.kept {
            Some(k) => &self.kept[k as usize].own,
            None => &self.kernels[instance.kernel as usize].ranges,
        }
    }

    /// Whether the loops around an instance include a reduction that it does not itself span.
    fn in_reduce(&self, i: u32, size: f64) -> bool {
        let instance = &self.instances[i as usize];
        let kernel = &self.kernels[instance.kernel as usize];
        let outer = count(&kernel.ranges);
        let inside = !instance.at.around.is_empty();
        inside && instance.at.volume > outer * 1.5 && size > 1.0
    }
}
