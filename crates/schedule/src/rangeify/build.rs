//! From instances back to UOps, sources first: the value of every kernel over its ranges.

use super::{Body, Instance, Rangeify, placeholder_slot};
use monoglot_uop::node::Srcs;
use monoglot_uop::{Arg, DType, Op, Result, UOp};
use rustc_hash::FxHashMap;

impl Rangeify<'_> {
    /// For each kernel, its value and the index that it writes.
    pub(super) fn build(&mut self) -> Result<Vec<(UOp, UOp)>> {
        let mut by_node: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for (i, instance) in self.instances.iter().enumerate() {
            by_node[instance.node as usize].push(i as u32);
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
        let mut out = Vec::with_capacity(self.kernels.len());
        for k in 0..self.kernels.len() {
            let mut value = known(&values, self.kernels[k].root);
            // Indices that are values were placeholders until now; they may nest.
            loop {
                let mut map = FxHashMap::default();
                if self.placeholders {
                    for p in value.toposort() {
                        match p.buffer_arg() {
                            Some(b) if p.op() == Op::Param && b.slot >= placeholder_slot(0) => {
                                let i = (b.slot - placeholder_slot(0)) as u32;
                                map.insert(p.clone(), within(known(&values, i), p.bounds()));
                            }
                            _ => {}
                        }
                    }
                }
                if map.is_empty() {
                    break;
                }
                value = value.substitute(&map);
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
                known(values, *p).reduce_ranges(*op, ranges)
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
                let index = self.algebra.linear(&u.shape().clone(), &at.indices)?;
                let index = at.gate.map_or(index.clone(), |g| index.valid(&g));
                buffer.at(&[index])
            }
            Body::Pending => {
                unreachable!("every node is visited, which gives its instances bodies")
            }
        })
    }
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
