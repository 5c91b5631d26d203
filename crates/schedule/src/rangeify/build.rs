//! From instances back to UOps, sources first: the value of every kernel over its ranges. Flows in:
//! the instances and what each is made of; flows out: for each stored node its value. Invariant: an
//! instance is built once, whoever uses it.

use super::{Body, Instance, Rangeify, placeholder_slot};
use monoglot_uop::node::Srcs;
use monoglot_uop::{Arg, DType, Op, Result, UOp, effort};
use rustc_hash::FxHashMap;

impl Rangeify<'_> {
    /// For each kernel, its value and the index that it writes.
    pub(super) fn build(&mut self) -> Result<Vec<(UOp, UOp)>> {
        let mut by_node: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for (i, instance) in self.instances.iter().enumerate() {
            by_node[instance.node as usize].push(i as u32);
        }
        for all in &mut by_node {
            // What is kept is made before it is read.
            all.sort_by_key(|&i| self.filled_by(i).is_some());
        }
        let constant = |i: &Instance| {
            if let Body::Value(v) = &i.body {
                Some(v.clone())
            } else {
                None
            }
        };
        let mut values: Vec<Option<UOp>> = self.instances.iter().map(constant).collect();
        let mut buffers: FxHashMap<usize, UOp> = FxHashMap::default();
        for i in by_node.into_iter().flatten() {
            values[i as usize] = Some(self.value(i, &values, &mut buffers)?);
        }
        let mut resolved = FxHashMap::default();
        let mut out = Vec::with_capacity(self.kernels.len());
        for k in 0..self.kernels.len() {
            let mut value = known(&values, self.kernels[k].root);
            if self.placeholders {
                value = resolve(value, &values, &mut resolved);
            }
            let shape = self.nodes[self.kernels[k].node as usize].shape().clone();
            let indices = self.kernels[k].indices.clone();
            out.push((value, self.algebra.linear(&shape, &indices)?));
        }
        Ok(out)
    }

    fn value(
        &mut self,
        i: u32,
        values: &[Option<UOp>],
        buffers: &mut FxHashMap<usize, UOp>,
    ) -> Result<UOp> {
        let instance = &self.instances[i as usize];
        let u = &self.nodes[instance.node as usize];
        Ok(match &instance.body {
            Body::Value(v) => v.clone(),
            Body::Same(p) => known(values, *p),
            Body::Apply(parts) => {
                let src: Srcs = parts.iter().map(|&p| known(values, p)).collect();
                UOp::try_new(u.op(), src, u.arg().clone())?
            }
            Body::Words(parts, part) => {
                let parts: Vec<UOp> = parts.iter().map(|&p| known(values, p)).collect();
                Rangeify::word_value(u, &parts, part)
            }
            Body::Reduce(p, ranges) => {
                let Arg::Reduce(op, _) = u.arg() else {
                    unreachable!("only REDUCE opens ranges")
                };
                let value = known(values, *p);
                // A fold of folds is one.
                match (value.arg(), value.src()) {
                    (Arg::Reduce(inner, axes), [x, more @ ..])
                        if inner == op && axes.is_empty() && value.dtype() == u.dtype() =>
                    {
                        x.reduce_ranges(*op, &[ranges, more].concat())
                    }
                    _ => value.reduce_ranges(*op, ranges),
                }
            }
            Body::Choose(parts, end) => {
                let otherwise = known(values, *end);
                parts.iter().rev().fold(otherwise, |value, (gate, p)| {
                    gate.select(&known(values, *p), &value)
                })
            }
            Body::Read(slot) => {
                let buffer = buffers
                    .entry(*slot)
                    .or_insert_with(|| self.buffer(*slot))
                    .clone();
                let at = instance.at.clone();
                let index = self.algebra.place(&u.shape().clone(), &at.indices)?;
                let index = at.gate.map_or(index.clone(), |g| index.valid(&g));
                buffer.at(&[index])
            }
            &Body::Kept(k) => {
                let element = known(values, self.kept[k as usize].fill);
                let at = instance.at.clone();
                self.read_kept(k, &element, &at)?
            }
            Body::Pending => {
                unreachable!("every node is visited, which gives its instances bodies")
            }
        })
    }
}

/// A value in which the indices that are values, placeholders until now, are those values; they may nest.
/// What `done` holds is known from other values.
fn resolve(value: UOp, values: &[Option<UOp>], done: &mut FxHashMap<UOp, UOp>) -> UOp {
    let stands_for = |u: &UOp| {
        let slot = u.buffer_arg().filter(|_| u.op() == Op::Param)?.slot;
        Some(known(values, slot.checked_sub(placeholder_slot(0))? as u32))
    };
    let mut stack = vec![(value.clone(), false)];
    while let Some((u, ready)) = stack.pop() {
        if done.contains_key(&u) {
            continue;
        }
        effort::visited(1 + u.src().len());
        let index = stands_for(&u);
        let below = index.as_ref().map_or(u.src(), std::slice::from_ref);
        if !ready {
            stack.push((u.clone(), true));
            stack.extend(below.iter().map(|s| (s.clone(), false)));
            continue;
        }
        let new = match &index {
            Some(index) => within(done[index].clone(), u.bounds()),
            None => u.with_src(u.src().iter().map(|s| done[s].clone()).collect::<Srcs>()),
        };
        done.insert(u, new);
    }
    done[&value].clone()
}

fn known(values: &[Option<UOp>], i: u32) -> UOp {
    values[i as usize]
        .clone()
        .expect("sources have their values before their users")
}

/// A value as an index between these bounds. What proved them may be gone: of a value that is stored, a
/// reader knows nothing.
fn within(value: UOp, (lo, hi): (i64, i64)) -> UOp {
    let i = value.cast(DType::Index);
    let i = if i.vmin() < lo {
        i.max_(&i.like(lo))
    } else {
        i
    };
    if i.vmax() > hi {
        (&i * -1).max_(&i.like(-hi)) * -1
    } else {
        i
    }
}
