//! A kernel's nodes in an array. Flows in: a legalised kernel; flows out: its nodes, sources before
//! users, with extents by axis, the loops they stand in, and REDUCEs that share a loop. Invariant:
//! everything that any REDUCE of a group needs stands before all of the group.

use crate::graph::{places, sorted, wide_bits};
use monoglot_uop::{ErrorKind, Op, Result, UOp};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

/// A list with an element for every axis.
pub(super) type Axes<T> = SmallVec<[T; 8]>;

/// By axis: by how much an index grows with each step; None where it is no sum.
pub(super) type Steps = Axes<Option<i64>>;

/// By node: needed as data (chunks), needed as index arithmetic (a scalar form).
#[derive(Clone, Copy, Default)]
pub(super) struct Demand {
    pub(super) data: bool,
    pub(super) index: bool,
}

/// A set of loops: bit k for the k-th RANGE.
pub(super) type Loops = u128;

#[derive(Default)]
pub(super) struct Table {
    pub(super) nodes: Vec<UOp>,
    /// Operands; the extents of shapes are none.
    pub(super) src: Vec<SmallVec<[u32; 4]>>,
    /// Extent along each axis.
    pub(super) dims: Vec<Axes<u32>>,
    /// Open loops.
    pub(super) loops: Vec<Loops>,
    /// The RANGE of each loop.
    pub(super) ranges: Vec<u32>,
    /// How often each loop turns at most.
    turns: Vec<f64>,
    /// The REDUCEs that close the same ranges, by the first of them.
    pub(super) groups: FxHashMap<u32, Vec<u32>>,
    pub(super) rank: usize,
}

/// What a node computes from, as opposed to what only shapes it.
fn operands(u: &UOp) -> &[UOp] {
    match u.op() {
        Op::Param | Op::Buffer => &[],
        Op::Reshape if is_fragment(u) => u.src()[0].src()[0].src(),
        Op::Reshape | Op::Expand => &u.src()[..1],
        _ => u.src(),
    }
}

/// A list of values that became an axis: RESHAPE(PERMUTE(STACK)).
pub(super) fn is_fragment(u: &UOp) -> bool {
    u.op() == Op::Reshape && u.src()[0].op() == Op::Permute && u.src()[0].src()[0].op() == Op::Stack
}

/// A product that the lanes of a warp do together.
pub(super) fn is_warps(u: &UOp) -> bool {
    u.op() == Op::Wmma && u.dot().is_none()
}

/// Storage, and the lists that become axes, have shapes that are no lanes.
fn has_lanes(u: &UOp) -> bool {
    let storage =
        matches!(u.op(), Op::Param | Op::Buffer) || u.op() == Op::After && u.addrspace().is_some();
    !storage && u.op() != Op::Stack
}

impl Table {
    pub(super) fn new(kernel: &UOp) -> Result<Table> {
        let (nodes, src) = sorted(kernel, operands);
        let t = Table::of(nodes, src)?;
        if t.groups.values().all(|g| g.len() == 1) {
            return Ok(t);
        }
        let order = together(&t.src, &t.groups).into_iter();
        let nodes: Vec<UOp> = order.map(|i| t.nodes[i as usize].clone()).collect();
        let src = places(&nodes, operands);
        Table::of(nodes, src)
    }

    fn of(nodes: Vec<UOp>, src: Vec<SmallVec<[u32; 4]>>) -> Result<Table> {
        let rank = nodes
            .iter()
            .filter(|u| has_lanes(u))
            .map(|u| u.shape().len())
            .max()
            .unwrap_or(0);
        let mut t = Table {
            nodes,
            src,
            rank,
            ..Table::default()
        };
        let mut leader: FxHashMap<&[UOp], u32> = FxHashMap::default();
        for (i, u) in t.nodes.iter().enumerate() {
            let mut dims: Axes<u32> = smallvec![1; rank];
            if has_lanes(u) {
                for (d, n) in dims.iter_mut().zip(u.shape().iter()) {
                    *d = n.as_int().unwrap_or(1) as u32;
                }
            }
            t.dims.push(dims);
            let mut open = t.src[i].iter().fold(0, |m, &s| m | t.loops[s as usize]);
            if u.op() == Op::Range {
                if t.ranges.len() == Loops::BITS as usize {
                    let message = "a kernel of more than 128 loops".to_string();
                    return Err(ErrorKind::Unsupported {
                        op: "RANGE".into(),
                        message,
                    }
                    .into());
                }
                open |= 1 << t.ranges.len();
                t.ranges.push(i as u32);
                t.turns.push((u.vmax() + 1) as f64);
            }
            if matches!(u.op(), Op::Reduce | Op::End) {
                let closed = t.src[i][1..].iter().fold(0, |m, &r| m | t.own_loop(r));
                open &= !closed;
            }
            t.loops.push(open);
            if u.op() == Op::Reduce && u.src().len() > 1 {
                let first = *leader.entry(&u.src()[1..]).or_insert(i as u32);
                t.groups.entry(first).or_default().push(i as u32);
            }
        }
        Ok(t)
    }

    /// The bit of the loop that a RANGE opens.
    fn own_loop(&self, range: u32) -> Loops {
        self.ranges
            .iter()
            .position(|&r| r == range)
            .map_or(0, |k| 1 << k)
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The RANGEs of a set of loops.
    pub(super) fn open(&self, loops: Loops) -> impl Iterator<Item = &UOp> {
        wide_bits(loops).map(|k| &self.nodes[self.ranges[k] as usize])
    }

    /// How often a node runs, roughly.
    pub(super) fn trips(&self, i: usize) -> f64 {
        wide_bits(self.loops[i]).map(|k| self.turns[k]).product()
    }
}

/// An order in which everything that a group needs stands before the group.
fn together(src: &[SmallVec<[u32; 4]>], groups: &FxHashMap<u32, Vec<u32>>) -> Vec<u32> {
    let group_of: FxHashMap<u32, &[u32]> = groups
        .values()
        .flat_map(|g| g.iter().map(move |&i| (i, &g[..])))
        .collect();
    let mut seen = vec![false; src.len()];
    let mut out = Vec::with_capacity(src.len());
    let mut stack: Vec<(u32, bool)> = vec![(src.len() as u32 - 1, false)];
    while let Some((i, ready)) = stack.pop() {
        if ready {
            out.push(i);
        } else if !std::mem::replace(&mut seen[i as usize], true) {
            stack.push((i, true));
            let group = group_of
                .get(&i)
                .copied()
                .unwrap_or(std::slice::from_ref(&i));
            for &m in group.iter().rev() {
                stack.extend(src[m as usize].iter().rev().map(|&s| (s, false)));
            }
        }
    }
    out
}
