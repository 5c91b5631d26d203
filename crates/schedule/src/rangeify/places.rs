//! What goes to places that data names: `Σ_j (id[j] = r ? x[j] : 0)`, as the gradient of a lookup or a histogram.
//! Alone in its kernel it costs what the ids do (`codegen::opt::scatter`), beside a product what comparing all with
//! all does. Flows in: a node and who wants it; flows out: what is not stored of it, and whether itself is.

use super::below::{is_data, is_view, names_places};
use super::cost::LEAVES;
use super::{Indices, Rangeify};
use monoglot_uop::{Arg, AxisType, Op, Result, UOp};
use rustc_hash::FxHashSet;
use std::collections::VecDeque;

/// Most nodes below a sum among which such a comparison is looked for.
const MOST: usize = 64;

impl Rangeify<'_> {
    /// Whether a REDUCE puts what it folds where data says, in a kernel with other reductions, which keep it from
    /// being done in the order of the data.
    pub(super) fn is_apart(&mut self, u: &UOp, i: u32) -> Result<bool> {
        Ok(self.is_beside(u, i) && self.goes_to_places(u, i)?)
    }

    /// Whether the kernel of an instance computes other reductions of data.
    fn is_beside(&self, u: &UOp, i: u32) -> bool {
        let kernel = self.instances[i as usize].kernel as usize;
        let root = &self.nodes[self.kernels[kernel].node as usize];
        let mut seen = FxHashSet::from_iter([u, root]);
        let mut open = vec![root];
        while let Some(at) = open.pop() {
            for s in at.src().iter().filter(|s| is_data(s)) {
                let stored = self.store[self.number[s] as usize].is_some();
                if stored || !seen.insert(s) {
                    continue;
                }
                if s.op() == Op::Reduce {
                    return true;
                }
                if !LEAVES.contains(s.op()) {
                    open.push(s);
                }
            }
        }
        false
    }

    /// Whether it depends on data alone to which place along the loops what a REDUCE folds belongs.
    fn goes_to_places(&mut self, u: &UOp, i: u32) -> Result<bool> {
        let Arg::Reduce(_, axes) = u.arg() else {
            return Ok(false);
        };
        let mut indices = self.instances[i as usize].at.indices.clone();
        let mut folded = Vec::new();
        for &a in axes.iter() {
            let bound = &u.src()[0].shape()[a as usize];
            indices[a as usize] = self.range(bound.to_uop(), AxisType::Reduce);
            folded.push(indices[a as usize].clone());
        }
        // Masks stand close to the sum, what they choose goes deep.
        let mut open = VecDeque::from([(&u.src()[0], indices)]);
        for _ in 0..MOST {
            let Some((at, indices)) = open.pop_front() else {
                break;
            };
            if names_places(at) {
                let place = at.src().iter().find(|s| !is_data(s));
                if place.map_or(Ok(false), |s| self.stays(s, &indices, &folded))? {
                    return Ok(true);
                }
            }
            open.extend(self.below(at, &indices)?);
        }
        Ok(false)
    }

    /// Whether a function of the indices alone is the same in all turns of these loops.
    fn stays(&mut self, u: &UOp, indices: &Indices, loops: &[UOp]) -> Result<bool> {
        let below = self.below(u, indices)?;
        if below.is_empty() {
            return Ok(!indices
                .iter()
                .any(|e| e.ranges().iter().any(|r| loops.contains(r))));
        }
        for (s, indices) in below {
            if !self.stays(s, &indices, loops)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The sources of what moves or computes single elements, and at which indices it wants them; none of the rest.
    fn below<'a>(&mut self, u: &'a UOp, indices: &Indices) -> Result<Vec<(&'a UOp, Indices)>> {
        if LEAVES.contains(u.op()) {
            return Ok(Vec::new());
        }
        if is_view(u) {
            let (inner, _) = self.algebra.through(u, indices, false)?;
            return Ok(vec![(&u.src()[0], inner)]);
        }
        let own = |s: &UOp| match s.shape().is_empty() {
            true => Vec::new(),
            false => indices.clone(),
        };
        let elementwise = u.src().iter().filter(|_| u.op().is_elementwise());
        Ok(elementwise.map(|s| (s, own(s))).collect())
    }
}
