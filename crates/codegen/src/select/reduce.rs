//! REDUCE as loops over accumulators. Flows in: REDUCEs that close the same ranges; flows out: REG
//! storage set to the identity before the loop, updated in it, read after it. Lanes that are folded
//! are kept apart inside the loop and folded by halves after it; other unrolled steps are folded in
//! order. Invariant: accumulators are set again whenever the loops around the reduction turn.

use super::Legal;
use super::build::{alu, lane_const, part, splat};
use super::lanes::fuses;
use super::pieces::Devectorise;
use super::table::Axes;
use crate::graph::{Srcs, group, node};
use monoglot_uop::linear::lanes;
use monoglot_uop::{AddrSpace, Arg, DType, Op, ReduceOp, Shape, UOp};
use smallvec::smallvec;

/// One REDUCE being lowered.
struct Fold {
    node: usize,
    op: ReduceOp,
    /// The factors where a product is accumulated by fused multiply-adds, or the value alone.
    terms: Vec<usize>,
    wmma: Option<usize>,
    /// Whether what its additions round away is carried.
    carried: bool,
    /// Extents of the source, of the accumulators, of the result.
    source: Axes<u32>,
    kept: Axes<u32>,
    result: Axes<u32>,
}

/// Where an accumulator lives: which buffer, and its number there.
type Home = (usize, usize);

impl Devectorise<'_> {
    fn fold(&self, i: usize) -> Fold {
        let t = self.t;
        let value = t.src[i][0] as usize;
        let (op, axes): (ReduceOp, &[u8]) = match t.nodes[i].arg() {
            Arg::Reduce(op, axes) => (*op, axes),
            _ => (ReduceOp::Add, &[]),
        };
        let source = t.dims[value].clone();
        let mut kept = source.clone();
        let mut result = source.clone();
        for &a in axes {
            result[a as usize] = 1;
            if !self.plan.is_lane[a as usize] {
                kept[a as usize] = 1;
            }
        }
        let zero = |k: u32| {
            t.nodes[k as usize]
                .const_value()
                .is_some_and(|v| v.is_zero())
        };
        let wmma =
            (t.nodes[value].op() == Op::Wmma && op == ReduceOp::Add && zero(t.src[value][2]))
                .then_some(value);
        let factors = || t.src[value].iter().take(2).map(|&s| s as usize).collect();
        let terms = if fuses(t, i, self.target) || wmma.is_some() {
            factors()
        } else {
            vec![value]
        };
        Fold {
            node: i,
            op,
            terms,
            wmma,
            carried: self.carried.contains(&t.nodes[i]),
            source,
            kept,
            result,
        }
    }

    /// What is left after the terms at piece `p`, of `n` lanes, are added.
    fn accumulate(&self, f: &Fold, acc: Option<&UOp>, p: usize, n: usize) -> UOp {
        let term = |k: usize| self.operand(f.terms[k], p);
        if let Some(w) = f.wmma {
            let d = self.t.nodes[f.node].dtype();
            let acc = acc
                .cloned()
                .unwrap_or_else(|| splat(&UOp::constant(d.zero(), d), n));
            return self.t.nodes[w].with_src(smallvec![term(0), term(1), acc] as Srcs);
        }
        if f.terms.len() == 2 {
            return match acc {
                Some(acc) => alu(Op::MulAcc, &[term(0), term(1), acc.clone()]),
                None => alu(Op::Mul, &[term(0), term(1)]),
            };
        }
        let value = term(0);
        let value = if n > 1 && value.shape().is_empty() {
            splat(&value, n)
        } else {
            value
        };
        acc.map_or(value.clone(), |acc| combine(f.op, acc, &value))
    }

    /// REDUCEs over the same loops, which they share.
    pub(super) fn reduce_group(&mut self, members: &[u32]) {
        let t = self.t;
        let folds: Vec<Fold> = members.iter().map(|&i| self.fold(i as usize)).collect();
        let first = members[0] as usize;
        let mut ranges: Vec<UOp> = t.src[first][1..]
            .iter()
            .map(|&r| t.nodes[r as usize].clone())
            .collect();
        ranges.sort_by_key(crate::loops::depth);
        // Set before the loop, inside the loops around it.
        let around = members.iter().fold(0, |m, &i| m | t.loops[i as usize]);
        let outer: Vec<UOp> = t.open(around).cloned().collect();
        let mut buffers: Vec<(DType, usize, usize)> = Vec::new();
        let mut homes: Vec<Vec<Home>> = Vec::new();
        // What sums carry has accumulators of its own, after those of the sums.
        let carried = folds.iter().filter(|f| f.carried);
        for f in folds.iter().chain(carried) {
            let dtype = t.nodes[f.node].dtype();
            let home = |(_, n): (Axes<u32>, usize)| {
                let b = buffers
                    .iter()
                    .position(|b| (b.0, b.1) == (dtype, n))
                    .unwrap_or_else(|| {
                        buffers.push((dtype, n, 0));
                        buffers.len() - 1
                    });
                buffers[b].2 += 1;
                (b, buffers[b].2 - 1)
            };
            homes.push(self.each_piece(&f.kept).into_iter().map(home).collect());
        }
        let storage: Vec<UOp> = buffers
            .iter()
            .map(|&(dtype, width, n)| {
                let dims = [n as i64, width as i64];
                let shape = Shape::of(if width == 1 { &dims[..1] } else { &dims });
                self.slot += 1;
                UOp::scratch(self.slot - 1, &shape, dtype, AddrSpace::Reg)
            })
            .collect();
        let (homes, lost) = homes.split_at(folds.len());
        let mut lost = lost.iter();
        let lost: Vec<&[Home]> = folds
            .iter()
            .map(|f| {
                if f.carried {
                    lost.next().map_or(&[][..], Vec::as_slice)
                } else {
                    &[]
                }
            })
            .collect();
        let mut set: Vec<Vec<UOp>> = vec![Vec::new(); storage.len()];
        let both = folds.iter().zip(homes).map(|(f, h)| (f, &h[..]));
        for (f, list) in both.chain(folds.iter().zip(lost.iter().copied())) {
            for &(b, k) in list {
                let (dtype, n, _) = buffers[b];
                let identity = UOp::constant(f.op.identity(dtype), dtype);
                let empty = storage[b].after(&outer);
                set[b].push(empty.at(&[lane_const(k)]).store(&splat(&identity, n)));
            }
        }
        let inside: Vec<UOp> = storage
            .iter()
            .zip(set)
            .map(|(s, set)| s.after(&[set, ranges.clone()].concat()))
            .collect();
        let mut stores = Vec::new();
        for ((f, list), lost) in folds.iter().zip(homes).zip(&lost) {
            let place = |&(b, k): &Home| inside[b].at(&[lane_const(k)]);
            let value = |h: &Home| node(Op::Load, [place(h)]);
            let mut acc: Vec<UOp> = list.iter().map(value).collect();
            let mut low: Vec<UOp> = lost.iter().map(value).collect();
            for (p, (start, n)) in self.each_piece(&f.source).iter().enumerate() {
                let k = self.piece_at(&f.kept, start);
                let sum = self.accumulate(f, Some(&acc[k]), p, *n);
                if let Some(low) = low.get_mut(k) {
                    let term = self.accumulate(f, None, p, *n);
                    *low = self
                        .legal()
                        .add(low, &self.rounded_away(&acc[k], &term, &sum));
                }
                acc[k] = sum;
            }
            let all = list.iter().chain(*lost).zip(acc.iter().chain(&low));
            stores.extend(all.map(|(h, v)| place(h).store(v)));
        }
        let done = ranges
            .iter()
            .rev()
            .fold(group(stores), |body, r| body.end(std::slice::from_ref(r)));
        for ((f, list), lost) in folds.iter().zip(homes).zip(&lost) {
            let read = |&(b, k): &Home| {
                node(
                    Op::Load,
                    [storage[b]
                        .after(std::slice::from_ref(&done))
                        .at(&[lane_const(k)])],
                )
            };
            let mut kept: Vec<UOp> = list.iter().map(read).collect();
            for (sum, low) in kept.iter_mut().zip(lost.iter().map(read)) {
                // Where the sum is infinite, what it carries is no number.
                let o = self.legal();
                let whole = o.add(sum, &low);
                *sum = o.select(&o.equal(&whole, &whole), &whole, sum);
            }
            self.data[f.node] = self.fold_lanes(f, kept);
        }
    }

    fn legal(&self) -> Legal<'_> {
        Legal {
            target: self.target,
        }
    }

    /// What a + b loses where it is rounded to `sum`.
    fn rounded_away(&self, a: &UOp, b: &UOp, sum: &UOp) -> UOp {
        let o = self.legal();
        let b_now = o.sub(sum, a);
        let a_now = o.sub(sum, &b_now);
        o.add(&o.sub(a, &a_now), &o.sub(b, &b_now))
    }

    /// A REDUCE over axes alone needs no loop.
    pub(super) fn reduce_lanes(&mut self, i: usize) {
        let f = self.fold(i);
        let mut kept: Vec<Option<UOp>> = vec![None; self.count(&f.kept)];
        for (p, (start, n)) in self.each_piece(&f.source).iter().enumerate() {
            let k = self.piece_at(&f.kept, start);
            kept[k] = Some(self.accumulate(&f, kept[k].as_ref(), p, *n));
        }
        let kept = kept.into_iter().flatten().collect();
        self.data[i] = self.fold_lanes(&f, kept);
    }

    /// Fold the lanes of accumulators whose axis is reduced.
    fn fold_lanes(&self, f: &Fold, kept: Vec<UOp>) -> Vec<UOp> {
        if f.kept == f.result {
            return kept;
        }
        // Pieces along the axis of lanes lie `inner` apart.
        let Some(axis) = self.lane_axis(&f.kept) else {
            return kept;
        };
        let mut below = f.kept.clone();
        below[..=axis].fill(1);
        let inner = self.count(&below);
        let n = self.plan.pieces[axis].len();
        let along = |j: usize| {
            let first = j / inner * n * inner + j % inner;
            kept[first..]
                .iter()
                .step_by(inner)
                .take(n)
                .cloned()
                .collect()
        };
        (0..kept.len() / n)
            .map(|j| horizontal(f.op, along(j)))
            .collect()
    }
}

/// One step of a fold.
pub(super) fn combine(op: ReduceOp, a: &UOp, b: &UOp) -> UOp {
    let op = match (op, a.dtype()) {
        (ReduceOp::Add | ReduceOp::Max, DType::Bool) => Op::Or,
        (ReduceOp::Mul, DType::Bool) => Op::And,
        (op, _) => op.op(),
    };
    alu(op, &[a.clone(), b.clone()])
}

/// One element out of all lanes of vectors, widest first: neighbours in pairs, then by halves.
fn horizontal(op: ReduceOp, mut list: Vec<UOp>) -> UOp {
    let mut n = list.iter().map(lanes).max().unwrap_or(1).max(1);
    loop {
        let (mut wide, rest): (Vec<UOp>, Vec<UOp>) =
            list.into_iter().partition(|v| lanes(v).max(1) == n);
        while wide.len() > 1 {
            let pair = |c: &[UOp]| {
                if c.len() == 2 {
                    combine(op, &c[0], &c[1])
                } else {
                    c[0].clone()
                }
            };
            wide = wide.chunks(2).map(pair).collect();
        }
        list = rest;
        let Some(v) = wide.pop() else {
            n /= 2;
            continue;
        };
        if n == 1 {
            return v;
        }
        n /= 2;
        list.insert(0, combine(op, &part(&v, 0, n), &part(&v, n, n)));
    }
}
