//! Movement ops as maps on indices. Flows in: the indices at which a view is wanted; flows out: the
//! indices at which its source is read, and the gate under which that read means anything.

use monoglot_uop::marks::NodeMap;
use monoglot_uop::{Arg, Dim, Op, Result, Shape, UOp};

/// One index per axis.
pub(crate) type Indices = Vec<UOp>;

/// Simplifies index arithmetic, remembering what it has seen.
#[derive(Default)]
pub(crate) struct Algebra {
    done: NodeMap<UOp, UOp>,
}

impl Algebra {
    /// The expression in simplest form.
    pub(crate) fn simplify(&mut self, u: UOp) -> Result<UOp> {
        if matches!(u.op(), Op::Const | Op::Range) {
            return Ok(u);
        }
        monoglot_uop::rules::symbolic().rewrite_with(&u, &mut self.done)
    }

    /// What index `ranges` of the view `u` reads of its source, and the gate under which that means
    /// anything. `up` is the other way: which index of `u` shows index `ranges` of its source, and the
    /// gate under which it shows it at all.
    pub(crate) fn through(
        &mut self,
        u: &UOp,
        ranges: &[UOp],
        up: bool,
    ) -> Result<(Indices, Option<UOp>)> {
        let below = u.src()[0].shape();
        let above = u.shape();
        let (here, there) = if up { (below, above) } else { (above, below) };
        let indices = match (u.op(), u.arg()) {
            (Op::Permute, Arg::Axes(order)) => {
                let shown = |a: usize| order.iter().position(|&o| o as usize == a).unwrap_or(a);
                let place = |a: usize| if up { order[a] as usize } else { shown(a) };
                (0..ranges.len())
                    .map(|a| ranges[place(a)].clone())
                    .collect()
            }
            (Op::Flip, Arg::Flags(flags)) => self.flip(below, *flags, ranges)?,
            (Op::Expand, _) => {
                // Of several that show it, the last.
                let last = |d: &Dim| {
                    d.as_int()
                        .map_or_else(|| d.to_uop() - 1, |n| UOp::index_const(n - 1))
                };
                let axes = here.iter().zip(there.iter()).zip(ranges);
                axes.map(|((a, b), r)| if a == b { r.clone() } else { last(b) })
                    .collect()
            }
            (Op::Reshape, _) => self.reshape(here, there, ranges)?,
            (Op::Shrink, _) if up => return self.pad(above, &u.dims_src(1), ranges),
            (Op::Pad, _) if !up => return self.pad(below, &u.dims_src(1), ranges),
            (Op::Shrink | Op::Pad, _) => {
                let moved = self.offset(ranges, &u.dims_src(1), 1)?;
                let moved = moved.into_iter().zip(there.iter());
                moved
                    .map(|(i, n)| self.within(i, n))
                    .collect::<Result<_>>()?
            }
            _ => ranges.to_vec(),
        };
        Ok((indices, None))
    }

    /// Both gates, simplified; None holds always.
    pub(crate) fn and(&mut self, a: Option<UOp>, b: Option<UOp>) -> Result<Option<UOp>> {
        Ok(match (a, b) {
            (Some(a), Some(b)) => Some(self.simplify(a & b)?),
            (a, b) => a.or(b),
        })
    }

    /// The gate, and that `index` lies in `low..high`.
    pub(crate) fn inside(
        &mut self,
        mut gate: Option<UOp>,
        index: &UOp,
        low: &UOp,
        high: &UOp,
    ) -> Result<Option<UOp>> {
        for bound in [index.ge(low), index.lt(high)] {
            let bound = self.simplify(bound)?;
            gate = self.and(gate, Some(bound).filter(|b| !b.is_bool(true)))?;
        }
        Ok(gate)
    }

    fn flip(&mut self, shape: &Shape, flags: u64, ranges: &[UOp]) -> Result<Indices> {
        let turned = ranges
            .iter()
            .zip(shape.iter())
            .enumerate()
            .map(|(i, (r, n))| {
                if flags >> i & 1 == 0 {
                    return Ok(r.clone());
                }
                let turned = self.simplify((n.to_uop() - 1) + r * -1)?;
                self.within(turned, n)
            });
        turned.collect()
    }

    /// An index that is within an axis, as one whose interval is too: of an axis or at a place that varies, the
    /// interval may say more than there is.
    fn within(&mut self, index: UOp, size: &Dim) -> Result<UOp> {
        let (least, most) = index.bounds();
        let last = (size.max() - 1).max(0);
        let proved = least >= 0 && most <= last;
        // What is valid under a condition alone has that for its gate, and what is not known yet its own.
        if proved
            || !index.ops_below().contains(Op::Param)
            || super::has_placeholder(&index)
            || index.toposort().iter().any(UOp::is_invalid)
        {
            return Ok(index);
        }
        let zero = UOp::index_const(0);
        let low = if least < 0 { index.max_(&zero) } else { index };
        // The lesser of two is the greater of what they are below 0, which has an interval whatever it is of.
        let inside = if most > last {
            (low * -1).max_(&UOp::index_const(-last)) * -1
        } else {
            low
        };
        self.simplify(inside)
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
        let mut gate = None;
        for ((r, low), n) in ranges.iter().zip(at.iter()).zip(inner.iter()) {
            let low = low.to_uop();
            gate = self.inside(gate, r, &low, &(&low + n.to_uop()))?;
        }
        Ok((self.offset(ranges, at, -1)?, gate))
    }

    /// Index `ranges` of an array of shape `to` as the index of the same element under shape `from`.
    /// Axes are matched in groups of equal size, so that only what is really regrouped is divided.
    fn reshape(&mut self, to: &Shape, from: &Shape, ranges: &[UOp]) -> Result<Indices> {
        let mut i = 0;
        let mut j = 0;
        let mut out = Vec::with_capacity(from.len());
        while i < to.len() || j < from.len() {
            let start_i = i;
            let start_j = j;
            i = (i + 1).min(to.len());
            j = (j + 1).min(from.len());
            let sizes = |i, j| (size(&to[start_i..i]), size(&from[start_j..j]));
            while let (a, b) = sizes(i, j)
                && a != b
                && (i < to.len() || j < from.len())
            {
                if j >= from.len() || i < to.len() && a.0 < b.0 {
                    i += 1
                } else {
                    j += 1
                }
            }
            self.regroup(
                &to[start_i..i],
                &ranges[start_i..i],
                &from[start_j..j],
                &mut out,
            )?;
        }
        Ok(out)
    }

    fn regroup(
        &mut self,
        to: &[Dim],
        ranges: &[UOp],
        from: &[Dim],
        out: &mut Indices,
    ) -> Result<()> {
        let zero = UOp::index_const(0);
        if from.iter().filter(|d| !d.is(1)).count() == 1
            && to.iter().filter(|d| !d.is(1)).count() == 1
        {
            // The same axis, with axes of size 1 around it.
            let r = ranges
                .iter()
                .zip(to)
                .find(|(_, d)| !d.is(1))
                .map_or(&zero, |(r, _)| r);
            out.extend(
                from.iter()
                    .map(|d| if d.is(1) { zero.clone() } else { r.clone() }),
            );
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
        let step = |l: UOp, (r, d): (&UOp, &Dim)| {
            if l == zero {
                r.clone()
            } else {
                l * d.to_uop() + r
            }
        };
        let linear = ranges.iter().zip(shape).fold(zero.clone(), step);
        self.simplify(linear)
    }

    /// As `linear`, of storage that is read: where sizes vary, intervals may not see that it is inside.
    pub(crate) fn place(&mut self, shape: &Shape, ranges: &[UOp]) -> Result<UOp> {
        let linear = self.linear(shape, ranges)?;
        self.within(linear, &Dim::Int(shape.max_len()))
    }
}

/// A product of dimensions: the known part, and the symbolic factors in order.
fn size(dims: &[Dim]) -> (i64, Vec<&UOp>) {
    dims.iter()
        .fold((1, Vec::new()), |(known, mut symbols), d| match d {
            Dim::Int(n) => (known * n, symbols),
            Dim::Sym(u) => {
                symbols.push(u);
                (known, symbols)
            }
        })
}
