//! Movement ops as maps on indices. Flows in: the indices at which a view is wanted; flows out: the
//! indices at which its source is read, and the gate under which that read means anything.

use monoglot_uop::{Arg, Dim, Op, Result, Shape, UOp};
use rustc_hash::FxHashMap;

/// One index per axis.
pub(crate) type Indices = Vec<UOp>;

/// Simplifies index arithmetic, remembering what it has seen.
#[derive(Default)]
pub(crate) struct Algebra {
    done: FxHashMap<UOp, UOp>,
}

impl Algebra {
    /// The expression in simplest form.
    pub(crate) fn simplify(&mut self, u: UOp) -> Result<UOp> {
        if matches!(u.op(), Op::Const | Op::Range) {
            return Ok(u);
        }
        monoglot_uop::rules::symbolic().rewrite_with(&u, &mut self.done)
    }

    /// What index `ranges` of the view `u` reads of its source, and the gate (PAD only).
    pub(crate) fn source(&mut self, u: &UOp, ranges: &[UOp]) -> Result<(Indices, Option<UOp>)> {
        let from = u.src()[0].shape();
        Ok(match (u.op(), u.arg()) {
            (Op::Permute, Arg::Axes(order)) => {
                let mut out = ranges.to_vec();
                for (r, &a) in ranges.iter().zip(order.iter()) {
                    out[a as usize] = r.clone();
                }
                (out, None)
            }
            (Op::Flip, Arg::Flags(flags)) => (self.flip(from, *flags, ranges)?, None),
            (Op::Expand, _) => {
                let zero = UOp::index_const(0);
                let keep = from.iter().zip(u.shape().iter()).zip(ranges);
                (keep.map(|((a, b), r)| if a == b { r.clone() } else { zero.clone() }).collect(), None)
            }
            (Op::Reshape, _) => (self.reshape(u.shape(), from, ranges)?, None),
            (Op::Shrink, _) => (self.offset(ranges, &u.dims_src(1), 1)?, None),
            (Op::Pad, _) => self.pad(from, &u.dims_src(1), ranges)?,
            _ => (ranges.to_vec(), None),
        })
    }

    /// The other way: which index of the view `u` shows index `ranges` of its source, and the gate
    /// under which it shows it at all.
    pub(crate) fn view(&mut self, u: &UOp, ranges: &[UOp]) -> Result<(Indices, Option<UOp>)> {
        let from = u.src()[0].shape();
        Ok(match (u.op(), u.arg()) {
            (Op::Permute, Arg::Axes(order)) => {
                (order.iter().map(|&a| ranges[a as usize].clone()).collect(), None)
            }
            (Op::Flip, Arg::Flags(flags)) => (self.flip(from, *flags, ranges)?, None),
            (Op::Expand, _) => {
                let axes = from.iter().zip(u.shape().iter()).zip(ranges);
                (axes.map(|((a, b), r)| if a == b { r.clone() } else { b.to_uop() - 1 }).collect(), None)
            }
            (Op::Reshape, _) => (self.reshape(from, u.shape(), ranges)?, None),
            (Op::Shrink, _) => self.pad(u.shape(), &u.dims_src(1), ranges)?,
            (Op::Pad, _) => (self.offset(ranges, &u.dims_src(1), 1)?, None),
            _ => (ranges.to_vec(), None),
        })
    }

    fn flip(&mut self, shape: &Shape, flags: u64, ranges: &[UOp]) -> Result<Indices> {
        let turned = ranges.iter().zip(shape.iter()).enumerate().map(|(i, (r, n))| {
            if flags >> i & 1 == 0 {
                return Ok(r.clone());
            }
            self.simplify((n.to_uop() - 1) + r * -1)
        });
        turned.collect()
    }

    fn offset(&mut self, ranges: &[UOp], at: &Shape, sign: i64) -> Result<Indices> {
        let moved = ranges.iter().zip(at.iter()).map(|(r, o)| match o {
            Dim::Int(0) => Ok(r.clone()),
            Dim::Int(o) => self.simplify(r + sign * o),
            Dim::Sym(o) => self.simplify(r + o * sign),
        });
        moved.collect()
    }

    /// Index r of an array in which one of shape `inner` lies at `at`.
    fn pad(&mut self, inner: &Shape, at: &Shape, ranges: &[UOp]) -> Result<(Indices, Option<UOp>)> {
        let mut gates = Vec::new();
        for ((r, low), n) in ranges.iter().zip(at.iter()).zip(inner.iter()) {
            let low = self.simplify(low.to_uop())?;
            gates.push(self.simplify(r.lt(&low).ne_(&UOp::bool(true)))?);
            gates.push(self.simplify(r.lt(&(low + n.to_uop())))?);
        }
        let gate = gates.into_iter().filter(|g| !g.is_bool(true)).reduce(|a, b| a & b);
        let gate = gate.map(|g| self.simplify(g)).transpose()?;
        Ok((self.offset(ranges, at, -1)?, gate.filter(|g| !g.is_bool(true))))
    }

    /// Index `ranges` of an array of shape `to` as the index of the same element under shape `from`.
    /// Axes are matched in groups of equal size, so that only what is really regrouped is divided.
    fn reshape(&mut self, to: &Shape, from: &Shape, ranges: &[UOp]) -> Result<Indices> {
        let (mut i, mut j) = (0, 0);
        let mut out = Vec::with_capacity(from.len());
        while i < to.len() || j < from.len() {
            let (start_i, start_j) = (i, j);
            (i, j) = ((i + 1).min(to.len()), (j + 1).min(from.len()));
            let sizes = |i, j| (size(&to[start_i..i]), size(&from[start_j..j]));
            while let (a, b) = sizes(i, j)
                && a != b
                && (i < to.len() || j < from.len())
            {
                if j >= from.len() || i < to.len() && a.0 < b.0 { i += 1 } else { j += 1 }
            }
            self.regroup(&to[start_i..i], &ranges[start_i..i], &from[start_j..j], &mut out)?;
        }
        Ok(out)
    }

    fn regroup(&mut self, to: &[Dim], ranges: &[UOp], from: &[Dim], out: &mut Indices) -> Result<()> {
        let zero = UOp::index_const(0);
        if from.iter().filter(|d| !d.is(1)).count() == 1 && to.iter().filter(|d| !d.is(1)).count() == 1 {
            // The same axis, with axes of size 1 around it.
            let r = ranges.iter().zip(to).find(|(_, d)| !d.is(1)).map_or(&zero, |(r, _)| r);
            out.extend(from.iter().map(|d| if d.is(1) { zero.clone() } else { r.clone() }));
            return Ok(());
        }
        let linear = self.linear(to, ranges)?;
        let mut stride = UOp::index_const(1);
        let start = out.len();
        let outermost = from.iter().position(|d| !d.is(1)).unwrap_or(0);
        for (k, d) in from.iter().enumerate().rev() {
            if d.is(1) {
                out.push(zero.clone());
                continue;
            }
            let mut index = &linear / &stride;
            if k != outermost {
                index = index % d.to_uop();
            }
            out.push(self.simplify(index)?);
            stride = self.simplify(stride * d.to_uop())?;
        }
        out[start..].reverse();
        Ok(())
    }

    /// The row-major position of an element.
    pub(crate) fn linear(&mut self, shape: &[Dim], ranges: &[UOp]) -> Result<UOp> {
        let zero = UOp::index_const(0);
        let step = |l: UOp, (r, d): (&UOp, &Dim)| if l == zero { r.clone() } else { l * d.to_uop() + r };
        let linear = ranges.iter().zip(shape).fold(zero.clone(), step);
        self.simplify(linear)
    }
}

/// A product of dimensions: the known part, and the symbolic factors in order.
fn size(dims: &[Dim]) -> (i64, Vec<&UOp>) {
    dims.iter().fold((1, Vec::new()), |(known, mut symbols), d| match d {
        Dim::Int(n) => (known * n, symbols),
        Dim::Sym(u) => {
            symbols.push(u);
            (known, symbols)
        }
    })
}
