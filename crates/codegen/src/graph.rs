//! What the passes of this room share: building nodes from fixed lists of sources, and sorting a
//! graph with a choice of which sources count. Flows in: sources or a graph; flows out: nodes, or
//! the graph made anew or in order. Invariant: nothing here recurses, and nothing decides what a
//! kernel computes.

use monoglot_uop::marks::NodeMap;
use monoglot_uop::{Arg, Op, Result, UOp};
use smallvec::SmallVec;

pub(crate) use monoglot_uop::node::Srcs;

/// A node without an arg.
#[track_caller]
pub(crate) fn node(op: Op, src: impl IntoIterator<Item = UOp>) -> UOp {
    UOp::new(op, src.into_iter().collect::<Srcs>(), Arg::None)
}

/// A graph rebuilt from its sources up: what `new` makes of each node and of what its sources became.
/// Nodes are visited in the order of `toposort`.
pub(crate) fn rebuild(root: &UOp, mut new: impl FnMut(&UOp, Srcs) -> Result<UOp>) -> Result<UOp> {
    let topo = root.nodes();
    let mut done: NodeMap<&UOp, UOp> = NodeMap::with_capacity(topo.len());
    for u in topo {
        let node = new(u, u.src().iter().map(|s| done[s].clone()).collect())?;
        done.insert(u, node);
    }
    Ok(done[root].clone())
}

/// The places of each node's sources that count, in a list of nodes.
pub(crate) fn places(nodes: &[UOp], operands: impl Fn(&UOp) -> &[UOp]) -> Vec<SmallVec<[u32; 4]>> {
    let at: NodeMap<&UOp, u32> = nodes.iter().zip(0..).collect();
    nodes
        .iter()
        .map(|u| operands(u).iter().map(|s| at[s]).collect())
        .collect()
}

/// The members of a set of bits.
pub(crate) fn bits(mask: u64) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let k = rest.trailing_zeros() as usize;
        rest &= rest.checked_sub(1)?;
        Some(k)
    })
}

/// The same of a set of twice as many.
pub(crate) fn wide_bits(mask: u128) -> impl Iterator<Item = usize> {
    let halves = [(mask as u64, 0), ((mask >> 64) as u64, 64)];
    let members = |(half, from)| bits(half).map(move |k| k + from);
    halves.into_iter().flat_map(members)
}

/// Effects as one node, those of GROUPs among them in its place.
pub(crate) fn group(effects: Vec<UOp>) -> UOp {
    let mut flat = Srcs::new();
    for u in effects {
        match u.op() {
            Op::Group => flat.extend(u.src().iter().cloned()),
            _ => flat.push(u),
        }
    }
    if flat.len() == 1 {
        flat.remove(0)
    } else {
        UOp::new(Op::Group, flat, Arg::None)
    }
}

/// Every node below `root` by the sources that count, sources before users, and the places of each one's in
/// that list.
pub(crate) fn sorted(
    root: &UOp,
    operands: impl Fn(&UOp) -> &[UOp],
) -> (Vec<UOp>, Vec<SmallVec<[u32; 4]>>) {
    // By node, as which it was met; by that, where it stands.
    let mut met: NodeMap<&UOp, u32> = NodeMap::with_capacity(256);
    let mut place: Vec<u32> = Vec::with_capacity(256);
    let mut nodes: Vec<UOp> = Vec::with_capacity(256);
    let mut src = Vec::with_capacity(256);
    let mut stack: Vec<(&UOp, Option<u32>)> = vec![(root, None)];
    while let Some((u, ready)) = stack.pop() {
        let sources = operands(u);
        if let Some(number) = ready {
            src.push(sources.iter().map(|s| place[met[s] as usize]).collect());
            place[number as usize] = nodes.len() as u32;
            nodes.push(u.clone());
        } else if !met.contains_key(u) {
            let number = place.len() as u32;
            met.insert(u, number);
            place.push(0);
            stack.push((u, Some(number)));
            stack.extend(sources.iter().rev().map(|s| (s, None)));
        }
    }
    (nodes, src)
}
