//! UPCAST and UNROLL ranges become shape. Flows in: a kernel over flat storage; flows out: the same
//! kernel in which a value that depends on some of the K such ranges has rank K, with the extent of
//! each range on which it depends and 1 elsewhere (values that depend on none keep shape ()).
//! Elementwise operands are reconciled with EXPAND; a REDUCE over such a range names its axis. The
//! fragments of a matrix unit, lists of the elements that a lane holds, lie along the axis of the
//! range that picks one of them.
//! Invariant: no RANGE of type UPCAST or UNROLL is left.

use crate::graph::{Srcs, node};
use monoglot_uop::marks::NodeMap;
use monoglot_uop::{Arg, AxisType, Error, ErrorKind, Op, Result, Shape, UOp};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

struct Expand {
    /// The ranges that become axes, by number.
    axes: Vec<UOp>,
    extents: Vec<i64>,
    /// Shape vectors by the set of axes.
    dims: FxHashMap<u64, UOp>,
    /// The axis of each fragment.
    fragments: FxHashMap<UOp, usize>,
}

/// Most iterations of a range that becomes an axis.
const MOST: i64 = 1 << 14;

/// Turn UPCAST and UNROLL ranges into axes.
///
/// # Errors
/// `Argument` for ranges that are too many, too long, or of no known size.
pub(crate) fn expand(kernel: &UOp) -> Result<UOp> {
    let topo = kernel.toposort();
    let mut axes: Vec<UOp> = topo.iter().filter(|u| is_axis(u)).cloned().collect();
    if axes.is_empty() {
        return Ok(kernel.clone());
    }
    axes.sort_by_key(UOp::range_arg);
    let extents: Option<Vec<i64>> = axes
        .iter()
        .map(|r| r.src()[0].as_int().filter(|n| (1..=MOST).contains(n)))
        .collect();
    let (Some(extents), true) = (extents, axes.len() <= 64) else {
        let message = "an UPCAST or UNROLL axis has no size from 1 to 2^14, or there are more than 64 of them";
        return Err(Error::argument("expand", message));
    };
    let mut e = Expand {
        axes,
        extents,
        dims: FxHashMap::default(),
        fragments: FxHashMap::default(),
    };
    if kernel.ops_below().contains(Op::Wmma) {
        e.find_fragments(&topo);
    }
    let mut done: NodeMap<&UOp, (UOp, u64)> = NodeMap::new();
    for u in &topo {
        let src: SmallVec<[&(UOp, u64); 4]> = u.src().iter().map(|s| &done[s]).collect();
        let special = is_axis(u) || matches!(u.op(), Op::End | Op::Reduce | Op::Stack);
        let new = if special || src.iter().any(|s| s.1 != 0) {
            e.node(u, &src)?
        } else {
            let src: Srcs = src.iter().map(|s| s.0.clone()).collect();
            (u.with_src(src), 0)
        };
        drop(src);
        done.insert(u, new);
    }
    Ok(done[kernel].0.clone())
}

fn broken(message: String) -> Error {
    ErrorKind::Verify {
        stage: "expand".into(),
        message,
    }
    .into()
}

fn is_axis(u: &UOp) -> bool {
    u.range_arg()
        .is_some_and(|(_, t)| matches!(t, AxisType::Upcast | AxisType::Unroll))
}

/// What became of the ranges that a node closes and that stay loops.
fn open_ranges(u: &UOp, src: &[&(UOp, u64)]) -> Vec<UOp> {
    u.src()
        .iter()
        .zip(src)
        .skip(1)
        .filter(|(r, _)| !is_axis(r))
        .map(|(_, s)| s.0.clone())
        .collect()
}

impl Expand {
    fn node(&mut self, u: &UOp, src: &[&(UOp, u64)]) -> Result<(UOp, u64)> {
        let all = src.iter().fold(0, |m, s| m | s.1);
        let mut new: Srcs = src.iter().map(|s| s.0.clone()).collect();
        Ok(match u.op() {
            Op::Range if is_axis(u) => {
                let k = self.position(u);
                let lanes: Srcs = (0..self.extents[k]).map(UOp::index_const).collect();
                let list = node(Op::Stack, lanes);
                (self.shaped(Op::Reshape, &list, 1 << k), 1 << k)
            }
            Op::Stack if self.fragments.contains_key(u) => self.fragment(u, src),
            Op::Index if u.src()[0].addrspace().is_none() => {
                // The range that picks an element of a fragment is the fragment's axis.
                match u.src().get(1).filter(|r| is_axis(r)) {
                    Some(_) => (src[0].0.clone(), all),
                    None => {
                        return Err(broken(
                            "a fragment's element that no UPCAST range picks".into(),
                        ));
                    }
                }
            }
            Op::Index => (u.with_src(new), src[1].1),
            Op::Load => {
                new[0] = self.address(&src[0].0, src[0].1, all);
                (u.with_src(new), all)
            }
            Op::Store if all != src[0].1 => {
                return Err(broken("lanes that differ are stored to one place".into()));
            }
            Op::Store => {
                new[1] = self.widen(&src[1].0, src[1].1, all);
                (u.with_src(new), 0)
            }
            op @ (Op::AtomicAdd | Op::Custom) => {
                let message = "its loops stay loops: it has no UPCAST and no UNROLL";
                return Err(Error::argument(op.name(), message));
            }
            Op::Reduce => self.reduce(u, src),
            Op::End => (src[0].0.end(&open_ranges(u, src)), 0),
            Op::After => (u.with_src(new), src[0].1),
            op if op.is_elementwise() || matches!(op, Op::Bitcast | Op::Wmma) => {
                for (n, s) in new.iter_mut().zip(src) {
                    *n = self.widen(&s.0, s.1, all);
                }
                (u.with_src(new), all)
            }
            op if op.is_void() || all == 0 => (u.with_src(new), 0),
            op => {
                return Err(broken(format!(
                    "{} over an UPCAST or UNROLL range",
                    op.name()
                )));
            }
        })
    }

    /// Which axis each fragment lies along: that of the range by which elements are taken of it.
    fn find_fragments(&mut self, topo: &[UOp]) {
        for u in topo
            .iter()
            .filter(|u| u.op() == Op::Index && u.src().len() == 2)
        {
            let Some(axis) = self.axes.iter().position(|a| *a == u.src()[1]) else {
                continue;
            };
            let mut at = &u.src()[0];
            while at.op() == Op::Reduce {
                at = &at.src()[0];
            }
            if at.op() == Op::Wmma {
                let lists = at.src().iter().filter(|s| s.op() == Op::Stack);
                self.fragments.extend(lists.map(|s| (s.clone(), axis)));
            }
        }
    }

    /// A list of elements along its axis; elements that are all one constant stand for any shape.
    fn fragment(&mut self, u: &UOp, src: &[&(UOp, u64)]) -> (UOp, u64) {
        let axis = self.fragments[u];
        let all = src.iter().fold(0, |m, s| m | s.1);
        let first = &src[0].0;
        if first.op() == Op::Const && src.iter().all(|s| s.0 == *first) {
            return (first.clone(), 0);
        }
        let part = |s: &&(UOp, u64)| match all {
            0 => self.shaped(Op::Reshape, &s.0, 0),
            _ => self.widen_all(&s.0, s.1, all),
        };
        // The list's own axis comes first: it takes the place of an axis on which no element depends.
        let list = node(Op::Stack, src.iter().map(part).collect::<Srcs>());
        let order: Vec<u8> = (1..=self.axes.len() as u8).chain([0]).collect();
        let order = [&order[..axis], &[0], &order[axis..self.axes.len()]].concat();
        let moved = UOp::new(Op::Permute, vec![list], Arg::Axes(order.into()));
        (
            self.shaped(Op::Reshape, &moved, all | 1 << axis),
            all | 1 << axis,
        )
    }

    fn reduce(&mut self, u: &UOp, src: &[&(UOp, u64)]) -> (UOp, u64) {
        let Arg::Reduce(op, _) = u.arg() else {
            return (u.clone(), 0);
        };
        let axes = u.src()[1..].iter().filter(|r| is_axis(r));
        let closed = axes.fold(0, |m, r| m | 1 << self.position(r));
        let mask = src[0].1 | closed;
        let value = self.widen_all(&src[0].0, src[0].1, mask);
        let axes: Vec<u8> = (0..64).filter(|k| closed >> k & 1 == 1).collect();
        let arg = Arg::Reduce(*op, axes.into());
        let new = UOp::new(Op::Reduce, [vec![value], open_ranges(u, src)].concat(), arg);
        let left = mask & !closed;
        let scalar = left == 0 && mask != 0;
        (
            if scalar {
                node(Op::Reshape, [new, UOp::dims(&[])])
            } else {
                new
            },
            left,
        )
    }

    fn position(&self, range: &UOp) -> usize {
        self.axes
            .iter()
            .position(|a| a == range)
            .expect("every axis was collected")
    }

    /// The address with its index on the axes of `to`.
    fn address(&mut self, u: &UOp, from: u64, to: u64) -> UOp {
        if from == to {
            return u.clone();
        }
        let index = self.widen_all(&u.src()[1], from, to);
        u.with_src(smallvec![u.src()[0].clone(), index] as Srcs)
    }

    /// An operand on the axes of `to`; constants stand for any shape.
    fn widen(&mut self, u: &UOp, from: u64, to: u64) -> UOp {
        if u.op() == Op::Const {
            u.clone()
        } else {
            self.widen_all(u, from, to)
        }
    }

    fn widen_all(&mut self, u: &UOp, from: u64, to: u64) -> UOp {
        if from == to {
            return u.clone();
        }
        let u = if from == 0 {
            self.shaped(Op::Reshape, u, 0)
        } else {
            u.clone()
        };
        self.shaped(Op::Expand, &u, to)
    }

    /// RESHAPE or EXPAND to the extents of a set of axes.
    fn shaped(&mut self, op: Op, u: &UOp, mask: u64) -> UOp {
        let extents = &self.extents;
        let dims = self.dims.entry(mask).or_insert_with(|| {
            let dims: Vec<i64> = extents
                .iter()
                .enumerate()
                .map(|(k, &n)| if mask >> k & 1 == 1 { n } else { 1 })
                .collect();
            UOp::dims(&Shape::of(&dims))
        });
        node(op, [u.clone(), dims.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use monoglot_uop::{DType, ReduceOp};

    #[test]
    fn values_take_the_axes_on_which_they_depend() {
        let f32s = |slot, n| UOp::param(slot, &Shape::of(&[n]), DType::F32, None);
        let i = UOp::range(4i64, 0, AxisType::Upcast);
        let j = UOp::range(8i64, 1, AxisType::Unroll);
        let load =
            |p: UOp, i: &UOp| UOp::new(Op::Load, vec![p.at(std::slice::from_ref(i))], Arg::None);
        let x = load(f32s(1, 4), &i);
        let y = load(f32s(2, 8), &j);
        let sum = (&x * &y).reduce_ranges(ReduceOp::Add, std::slice::from_ref(&j));
        let kernel = UOp::sink(&[f32s(0, 4)
            .at(std::slice::from_ref(&i))
            .store(&sum)
            .end(std::slice::from_ref(&i))]);
        let got = expand(&kernel).unwrap();
        let store = &got.src()[0];
        assert_eq!((store.op(), store.src()[1].op()), (Op::Store, Op::Reduce));
        assert_eq!(store.src()[1].shape(), &Shape::of(&[4, 1]));
        let product = &store.src()[1].src()[0];
        assert_eq!(product.shape(), &Shape::of(&[4, 8]));
        assert!(product.src().iter().all(|s| s.op() == Op::Expand));
        assert!(got.toposort().iter().all(|u| u.op() != Op::Range));
    }
}
