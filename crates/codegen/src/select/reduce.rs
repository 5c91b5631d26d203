//! REDUCE as loops over accumulators. Flows in: REDUCEs that close the same ranges; flows out: REG
//! storage set to the identity before the loop, updated in it, read after it. Lanes that are folded
//! are kept apart inside the loop and folded by halves after it; other unrolled steps are folded in
//! order. Invariant: accumulators are set again whenever the loops around the reduction turn.

use super::chains::Chains;
use super::chunks::Devectorise;
use super::layout::{fuses, takes_in};
use super::table::Axes;
use crate::build::{NEAR, alu, combine, lane_const, part, shuffle, splat, uniform};
use crate::graph::{Srcs, group, node};
use crate::native::Native;
use monoglot_uop::linear::lanes;
use monoglot_uop::{AddrSpace, Arg, Op, ReduceOp, Shape, UOp};
use smallvec::smallvec;

/// Registers that a term under a mask takes where it is added as it is multiplied: two factors, the mask, and what is
/// chosen from.
const MASKED: usize = 4;

/// One REDUCE being lowered.
struct Fold {
    node: usize,
    op: ReduceOp,
    /// The factors where a product is accumulated by fused multiply-adds, or the value alone.
    terms: Vec<usize>,
    wmma: Option<usize>,
    /// Whether what its additions round away is carried.
    carried: bool,
    /// Whether its results are lanes of the last axis.
    transposed: bool,
    /// Extents of the source, of the accumulators, of the result.
    source: Axes<u32>,
    kept: Axes<u32>,
    result: Axes<u32>,
}

impl Fold {
    /// Whether another one may go on in the registers of this.
    fn keeps_as(&self, other: &Fold) -> bool {
        let plain = |f: &Fold| !f.carried && !f.transposed;
        let same = self.kept == other.kept && self.result == other.result;
        same && self.op == other.op && [self, other].into_iter().all(plain)
    }
}

impl Devectorise<'_> {
    /// The parts of this kernel's sums that go on.
    pub(super) fn chains(&self) -> Chains {
        let alike = |a: usize, b: usize| {
            let [a, b] = [a, b].map(|i| self.fold(i));
            // Where masks of the next part leave too few registers, sums of both would be in memory.
            let held = self.count(&a.kept);
            let few = self.legal().has(Op::MulAcc) && held + MASKED <= self.target.registers;
            a.keeps_as(&b) && (few || held * 2 <= self.target.registers)
        };
        match self.layout.tiled {
            None => Chains::of(self.t, &self.layout.demand, alike),
            Some(_) => Chains::default(),
        }
    }

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
            if !self.layout.is_lane[a as usize] {
                kept[a as usize] = 1;
            }
        }
        let zero = |k: u32| {
            t.nodes[k as usize]
                .const_value()
                .is_some_and(|v| v.is_zero())
        };
        let is_product = t.nodes[value].op() == Op::Wmma && op == ReduceOp::Add;
        let wmma = (is_product && zero(t.src[value][2])).then_some(value);
        let terms = if fuses(t, i, self.target) || wmma.is_some() {
            let factors = t.src[value].iter().take(2);
            factors.map(|&s| s as usize).collect()
        } else {
            vec![value]
        };
        Fold {
            node: i,
            op,
            terms,
            wmma,
            carried: self.carried.contains(&t.nodes[i]),
            transposed: self.transposed.contains(&t.nodes[i]),
            source,
            kept,
            result,
        }
    }

    /// What is left after the terms at chunk `p`, of `n` lanes, are added.
    fn accumulate(&self, f: &Fold, acc: Option<&UOp>, p: usize, n: usize) -> UOp {
        let term = |k: usize| self.operand(f.terms[k], p);
        if let Some(w) = f.wmma {
            let d = self.t.nodes[f.node].dtype();
            let acc = acc
                .cloned()
                .unwrap_or_else(|| splat(&UOp::constant(d.zero(), d), n));
            if let Some(unit) = self.t.nodes[w].dot() {
                let operands = [&term(0), &term(1), &acc];
                return self.legal().dot(&self.t.nodes[w], unit, operands, n);
            }
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
        let fuses = |value: &UOp| {
            let sum = &self.t.nodes[f.node];
            !f.carried && takes_in(sum, value, self.target)
        };
        match acc {
            // What a mask that is known leaves nothing of.
            Some(acc) if uniform(&value) == Some(f.op.identity(value.dtype())) => acc.clone(),
            // A product that such a mask leaves whole.
            Some(acc) if fuses(&value) => alu(
                Op::MulAcc,
                &[value.src()[0].clone(), value.src()[1].clone(), acc.clone()],
            ),
            Some(acc) => match chosen(&value).filter(|(_, product)| fuses(product)) {
                // A product that the sum is without in some lanes.
                Some((mask, product)) => {
                    let factors = product.src().iter().cloned();
                    let terms: Srcs = factors.chain([acc.clone()]).collect();
                    let sum = alu(Op::MulAcc, &terms);
                    alu(Op::Where, &[by_lanes(mask, &sum), sum, acc.clone()])
                }
                None => combine(f.op, acc, &value),
            },
            None => value,
        }
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
        let begun: Vec<Option<(Vec<UOp>, UOp)>> =
            (folds.iter().map(|f| self.chains.begun(f.node).cloned())).collect();
        let mut homes: Vec<Vec<UOp>> = Vec::with_capacity(folds.len());
        for (f, begun) in folds.iter().zip(&begun) {
            homes.push(match begun {
                Some((registers, _)) => registers.clone(),
                None => self.registers(f),
            });
        }
        // What sums carry has accumulators of its own, after those of the sums.
        let mut lost: Vec<Vec<UOp>> = Vec::with_capacity(folds.len());
        for f in &folds {
            lost.push(if f.carried {
                self.registers(f)
            } else {
                Vec::new()
            });
        }
        let mut stores = Vec::new();
        for (((f, list), lost), begun) in folds.iter().zip(&homes).zip(&lost).zip(&begun) {
            let place = |register: &UOp| {
                let set = begun.as_ref().map_or_else(
                    || {
                        let dtype = register.dtype();
                        let identity = UOp::constant(f.op.identity(dtype), dtype);
                        let empty = first_place(&register.after(&outer));
                        empty.store(&splat(&identity, lanes(&empty).max(1)))
                    },
                    |(_, done)| done.clone(),
                );
                first_place(&register.after(&[&[set], &ranges[..]].concat()))
            };
            let places: Vec<UOp> = list.iter().chain(lost).map(place).collect();
            let value = |place: &UOp| node(Op::Load, [place.clone()]);
            let mut acc: Vec<UOp> = places[..list.len()].iter().map(value).collect();
            let mut low: Vec<UOp> = places[list.len()..].iter().map(value).collect();
            for (p, (start, n)) in self.each_chunk(&f.source).iter().enumerate() {
                let k = self.chunk_at(&f.kept, start);
                let sum = self.accumulate(f, Some(&acc[k]), p, *n);
                if let Some(low) = low.get_mut(k) {
                    let term = self.accumulate(f, None, p, *n);
                    let away = self.rounded_away(&acc[k], &term, &sum);
                    *low = self.legal().add(low, &away);
                }
                acc[k] = sum;
            }
            let values = acc.iter().chain(&low);
            stores.extend(places.iter().zip(values).map(|(place, v)| place.store(v)));
        }
        let done = ranges
            .iter()
            .rev()
            .fold(group(stores), |body, r| body.end(std::slice::from_ref(r)));
        for ((f, list), lost) in folds.iter().zip(&homes).zip(&lost) {
            if self.chains.passes(f.node) {
                self.chains.leave(f.node, list, &done);
                continue;
            }
            let read = |register: &UOp| {
                let after = register.after(std::slice::from_ref(&done));
                node(Op::Load, [first_place(&after)])
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

    /// A register for each chunk of what a REDUCE keeps in its loop.
    fn registers(&mut self, f: &Fold) -> Vec<UOp> {
        let dtype = self.t.nodes[f.node].dtype();
        let mut out = Vec::new();
        for (_, n) in self.each_chunk(&f.kept) {
            let dims = [1, n as i64];
            let shape = Shape::of(if n == 1 { &dims[..1] } else { &dims });
            out.push(UOp::scratch(self.slot, &shape, dtype, AddrSpace::Reg));
            self.slot += 1;
        }
        out
    }

    fn legal(&self) -> Native<'_> {
        Native {
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
        // Of what is read, what is moved the same way is folded first, and moved then.
        let reads = self.t.nodes[self.t.src[i][0] as usize].op() == Op::Load;
        let mut kept: Vec<Vec<(Vec<UOp>, UOp)>> = vec![Vec::new(); self.count(&f.kept)];
        for (p, (start, n)) in self.each_chunk(&f.source).iter().enumerate() {
            let list = &mut kept[self.chunk_at(&f.kept, start)];
            let value = self.accumulate(&f, None, p, *n);
            let moves = if reads { moves(&value) } else { Vec::new() };
            match list.iter_mut().find(|l| l.0 == moves) {
                _ if f.terms.len() > 1 || f.wmma.is_some() => match list.first_mut() {
                    Some((_, acc)) => *acc = self.accumulate(&f, Some(acc), p, *n),
                    None => list.push((Vec::new(), value)),
                },
                Some((_, acc)) if moves.is_empty() => *acc = self.accumulate(&f, Some(acc), p, *n),
                Some((_, acc)) => *acc = combine_moved(f.op, acc, &value),
                None => list.push((moves, value)),
            }
        }
        let whole = |list: Vec<(Vec<UOp>, UOp)>| {
            let values = list.into_iter().map(|l| l.1);
            values.reduce(|a, b| combine_moved(f.op, &a, &b))
        };
        let kept = kept.into_iter().filter_map(whole).collect();
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
        let n = self.layout.chunks[axis].len();
        let along = |j: usize| {
            let first = j / inner * n * inner + j % inner;
            kept[first..]
                .iter()
                .step_by(inner)
                .take(n)
                .cloned()
                .collect()
        };
        let parts = (0..kept.len() / n).map(along);
        if !f.transposed {
            return parts.map(|list| horizontal(f.op, list)).collect();
        }
        let vectors: Vec<UOp> = parts.map(|list| vertical(f.op, list)).collect();
        let side_by_side = self.layout.chunks.last().map_or(&[][..], |c| c);
        let each = side_by_side.iter().map(|c| c.1 as usize).sum();
        let mut out = Vec::new();
        for row in vectors.chunks(each) {
            for &(at, width) in side_by_side {
                let list = &row[at as usize..(at + width) as usize];
                out.push(transposed(f.op, list));
            }
        }
        out
    }
}

/// How the lanes of a value were moved, the last move first.
fn moves(u: &UOp) -> Vec<UOp> {
    let mut out = Vec::new();
    let mut at = u;
    while let Some(moved) = Moved::of(at) {
        out.push(moved.how.clone());
        at = &moved.from[0];
    }
    out
}

/// Lanes of one vector, or two.
struct Moved<'a> {
    from: &'a [UOp],
    /// The list of lanes.
    how: &'a UOp,
}

impl Moved<'_> {
    fn of(u: &UOp) -> Option<Moved<'_>> {
        let known = |s: &UOp| s.op() == Op::Stack && s.src().iter().all(|c| c.op() == Op::Const);
        let (how, from) = u.src().split_last()?;
        let moves = match u.op() {
            Op::Index => known(how) && lanes(&from[0]) == lanes(u),
            op => op == Op::Shuffle,
        };
        moves.then_some(Moved { from, how })
    }
}

/// One step of a fold: where the lanes of both were moved the same way, of what they were before.
fn combine_moved(op: ReduceOp, a: &UOp, b: &UOp) -> UOp {
    let moved = Moved::of(a).zip(Moved::of(b));
    let Some(moved) = moved.filter(|m| m.0.how == m.1.how && m.0.from.len() == m.1.from.len())
    else {
        return combine(op, a, b);
    };
    let pairs = moved.0.from.iter().zip(moved.1.from);
    let mut src: Srcs = pairs.map(|(x, y)| combine_moved(op, x, y)).collect();
    src.push(moved.0.how.clone());
    node(a.op(), src)
}

/// The only element, or vector, of a register.
fn first_place(register: &UOp) -> UOp {
    register.at(&[lane_const(0)])
}

/// The mask of what is nothing where that is false, and what it is elsewhere.
fn chosen(value: &UOp) -> Option<(&UOp, &UOp)> {
    match value.src() {
        [mask, product, other] if value.op() == Op::Where => {
            let nothing = uniform(other).is_some_and(|c| c.is_zero());
            nothing.then_some((mask, product))
        }
        _ => None,
    }
}

/// A mask that all lanes of a value share, from a comparison of as many lanes: that is a mask at once, where one of
/// numbers is to be made one.
fn by_lanes(mask: &UOp, value: &UOp) -> UOp {
    let n = lanes(mask);
    let Some(one) = monoglot_uop::linear::splat(mask).filter(|c| c.op().is_comparison()) else {
        return mask.clone();
    };
    let wide = |x: &UOp| x.dtype().is_int() && x.dtype().bytes() == value.dtype().bytes();
    match one.src().iter().all(wide) {
        true => alu(
            one.op(),
            &[splat(&one.src()[0], n), splat(&one.src()[1], n)],
        ),
        false => mask.clone(),
    }
}

/// One vector out of several that are as wide: neighbours in pairs.
fn vertical(op: ReduceOp, mut list: Vec<UOp>) -> UOp {
    while list.len() > 1 {
        let pair = |c: &[UOp]| match c {
            [a, b] => combine(op, a, b),
            _ => c[0].clone(),
        };
        list = list.chunks(2).map(pair).collect();
    }
    list.remove(0)
}

/// Each vector folded to one lane of the result, all of them at once: every step puts halves of two vectors
/// beside each other and folds what is left with what is right. Steps stay within the narrowest vectors
/// at first, as long as there are neighbours; then these are moved as they are.
fn transposed(op: ReduceOp, vectors: &[UOp]) -> UOp {
    let near = NEAR / vectors[0].dtype().bytes();
    if vectors.len() < near {
        let lanes: Srcs = vectors
            .iter()
            .map(|v| horizontal(op, vec![v.clone()]))
            .collect();
        return if lanes.len() == 1 {
            lanes[0].clone()
        } else {
            node(Op::Stack, lanes)
        };
    }
    let mut list = vectors.to_vec();
    let mut run = 1;
    while run < near {
        let pairs = list.chunks(2);
        list = pairs
            .map(|c| combine_near(op, &c[0], &c[1], run, near))
            .collect();
        run *= 2;
    }
    while lanes(&list[0]) > vectors.len() || list.len() > 1 {
        let pairs = list.chunks(2);
        list = pairs.map(|c| combine_far(op, c, near)).collect();
    }
    list.remove(0)
}

/// Runs of lanes of two vectors by turns, within every group of `near` lanes.
fn combine_near(op: ReduceOp, a: &UOp, b: &UOp, run: usize, near: usize) -> UOp {
    let half = |first: usize| {
        let pick = |k: usize| {
            let at = k % near;
            let place = k - at + first + at / (2 * run) * run + at % run;
            (at / run % 2, place)
        };
        let picks: Vec<(usize, usize)> = (0..lanes(a)).map(pick).collect();
        shuffle(&[a.clone(), b.clone()], &picks)
    };
    combine(op, &half(0), &half(near / 2))
}

/// Groups of `near` lanes of one vector, or two: the even ones with the odd ones.
fn combine_far(op: ReduceOp, list: &[UOp], near: usize) -> UOp {
    let half = |first: usize| {
        let mut picks = Vec::new();
        for (which, v) in list.iter().enumerate() {
            for group in (first..lanes(v) / near).step_by(2) {
                picks.extend((group * near..(group + 1) * near).map(|k| (which, k)));
            }
        }
        shuffle(list, &picks)
    };
    combine(op, &half(0), &half(1))
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
