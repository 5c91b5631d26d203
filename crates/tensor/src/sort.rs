//! Order along an axis. Flows in: a tensor; out: its elements in order and where they came from.
//!
//! The order is stable (ties keep their order, also when descending) and NaN is greatest. Short axes
//! and those whose length varies are sorted by counting, for each element, how many stand before it; of other long
//! ones the places are sorted by a
//! bitonic network of O(log² n) steps over all elements, which are then gathered. A few that stand first are
//! among those of the few groups whose greatest stand first: one pass over all finds these.

use crate::functions::known;
use crate::movement::{from_last, to_last};
use crate::promote::{count, insert_axis, resized, size_of};
use crate::reduce::added;
use crate::shape::MOST;
use crate::tensor::{Tensor, axis_of};
use monoglot_uop::{DType, Dim, Error, Op, ReduceOp, Result, UOp};

/// Up to this length every pair is compared.
const PAIRS: i64 = 64;

impl Tensor {
    /// The elements along `axis` in order.
    #[track_caller]
    pub fn sort(&self, axis: i64, descending: bool) -> Tensor {
        self.sorted(axis, descending).0
    }

    /// Where the elements in order come from, as i32.
    #[track_caller]
    pub fn argsort(&self, axis: i64, descending: bool) -> Tensor {
        self.sorted(axis, descending).1
    }

    /// `sort` and `argsort` at once.
    #[track_caller]
    pub fn sorted(&self, axis: i64, descending: bool) -> (Tensor, Tensor) {
        let pair = self.uop().and_then(|u| {
            let a = axis_of("sort", axis, u.shape().len().max(1))?;
            if u.shape().is_empty() {
                return Ok((u.clone(), UOp::int(0, DType::I32)));
            }
            let x = to_last(&u, a)?;
            let n = &x.shape()[x.shape().len() - 1];
            let (v, i) = match n {
                &Dim::Int(n) if n > PAIRS => {
                    places_that_fit(&x, n)?;
                    bitonic(&x, n, descending)?
                }
                n => by_rank(&x, n, descending)?,
            };
            Ok((from_last(&v, a)?, from_last(&i, a)?))
        });
        (
            Tensor::wrap(pair.clone().map(|p| p.0)),
            Tensor::wrap(pair.map(|p| p.1)),
        )
    }

    /// The k greatest (or least) along `axis`, in order, and where they come from.
    #[track_caller]
    pub fn topk(&self, k: i64, axis: i64, largest: bool) -> (Tensor, Tensor) {
        let pair = self.uop().and_then(|u| {
            let a = axis_of("topk", axis, u.shape().len().max(1))?;
            let size = u.shape().get(a).cloned().unwrap_or(Dim::Int(1));
            let n = size.now().unwrap_or(size.max());
            if !(0..=n).contains(&k) {
                let message = format!("{k} of shape {} along axis {a}", u.shape());
                return Err(Error::argument("topk", message));
            }
            if size.as_int().is_none() {
                return Ok(None);
            }
            let most = u.shape().max_ints();
            let rows = most.iter().map(|&n| n as f64).product::<f64>() / n as f64;
            let Some(each) = group(rows, n, k).filter(|_| !u.shape().is_empty()) else {
                return Ok(None);
            };
            let (v, i) = first(&to_last(&u, a)?, n, k, each, largest)?;
            Ok(Some((from_last(&v, a)?, from_last(&i, a)?)))
        });
        match pair {
            Err(e) => (Tensor::wrap(Err(e.clone())), Tensor::wrap(Err(e))),
            Ok(Some((v, i))) => (Tensor::wrap(Ok(v)), Tensor::wrap(Ok(i))),
            Ok(None) => {
                let (v, i) = self.sorted(axis, largest);
                if matches!(v.ndim(), Ok(0)) {
                    (v, i)
                } else {
                    (v.narrow(axis, 0, k), i.narrow(axis, 0, k))
                }
            }
        }
    }
}

/// Integers in the order of the elements: those that are equal have equal ones, and the greatest stands first
/// or, not descending, the least.
fn ordered(x: &UOp, descending: bool) -> UOp {
    let x = x.unary(Op::Detach);
    let bytes = x.dtype().bytes();
    let (wide, least) = match bytes {
        8 => (DType::I64, i64::MIN),
        _ => (DType::I32, i32::MIN as i64),
    };
    let key = if x.dtype().is_float() {
        let x = if bytes < 4 { x.cast(DType::F32) } else { x };
        // Both zeros are one, and NaN is greatest.
        let zero = x.like(0.0);
        let bits = x.eq_(&zero).select(&zero, &x).bitcast(wide);
        let up = bits.lt(&bits.like(0));
        let key = up.select(&bits.binary(Op::Xor, &bits.like(!least)), &bits);
        x.ne_(&x).select(&key.like(!least), &key)
    } else if bytes >= 4 && x.dtype().is_unsigned() {
        let bits = x.bitcast(wide);
        bits.binary(Op::Xor, &bits.like(least))
    } else {
        x.cast(wide)
    };
    match descending {
        true => key,
        false => key.binary(Op::Xor, &key.like(-1)),
    }
}

/// Comparisons that one more kernel costs.
const KERNEL: f64 = 6e3;

/// Of how many elements the groups are that `first` takes the k first of n in, for each of `rows`; None where the
/// whole order costs less.
fn group(rows: f64, n: i64, k: i64) -> Option<i64> {
    if k == 0 {
        return None;
    }
    let sizes = (1..=6).map(|log| 1 << log).filter(|&each| each < n / k);
    let costs: Vec<(i64, f64)> = sizes
        .chain([n])
        .map(|each| (each, by_groups(rows, n, k, each)))
        .collect();
    let best = costs.iter().map(|c| c.1).fold(f64::INFINITY, f64::min);
    // Greater groups are fewer levels, whose kernels are compiled sooner.
    let near = costs.iter().rev().find(|c| c.1 <= 1.2 * best)?;
    (n <= PAIRS || best <= whole(rows, n)).then_some(near.0)
}

/// What `first` costs, in comparisons of two elements.
fn by_groups(rows: f64, n: i64, k: i64, each: i64) -> f64 {
    let few = |len: f64| len * if k == 1 { 3.0 } else { len + k as f64 };
    let taken = each.saturating_mul(k);
    let mut len = n;
    let mut work = 0.0;
    let mut kernels = 3;
    while len > taken {
        // The greatest of the groups, the elements of those found, and which of these stand first.
        work += len as f64 * (2.0 + 4.0 / each as f64);
        work += 12.0 * taken as f64 + few(taken as f64);
        kernels += if k == 1 { 3 } else { 5 };
        len = (len - 1) / each + 1;
    }
    rows * (work + few(len as f64)) + KERNEL * f64::from(kernels)
}

/// What `bitonic` costs, in the same.
fn whole(rows: f64, n: i64) -> f64 {
    let size = (n as u64).next_power_of_two();
    let steps = f64::from(size.ilog2() * (size.ilog2() + 1) / 2);
    rows * size as f64 * steps * 3.0 + KERNEL * (steps / f64::from(TOGETHER) + 3.0)
}

/// The k elements along the last axis that stand first. They are among those of the k groups whose greatest
/// elements stand first, which are found in the same way among groups of groups.
fn first(x: &UOp, n: i64, k: i64, each: i64, descending: bool) -> Result<(UOp, UOp)> {
    let axis = x.shape().len() - 1;
    // Sums may round differently where they are computed again: the greatest of a group is one of its elements.
    let x = &match x.ops_below().contains(Op::Reduce) {
        true => x.unary(Op::Contiguous),
        false => x.clone(),
    };
    let mut key = ordered(x, descending);
    let least = UOp::constant(key.dtype().min(), key.dtype());
    let mut levels = Vec::new();
    let mut len = n;
    while len > each.saturating_mul(k) {
        levels.push((key.clone(), len));
        let many = (len - 1) / each + 1;
        let all = key.pad_axis(axis, 0, many * each - len, key.dtype().min())?;
        let all = all.reshape(&resized(&key, axis, &[many, each]))?;
        let most = all.reduce(ReduceOp::Max, &[axis + 1])?;
        key = most.squeeze_axes(&[axis + 1])?.unary(Op::Contiguous);
        len = many;
    }
    let mut from = leading(&key, &count(axis, key.shape(), DType::I32)?, k)?;
    while let Some((level, len)) = levels.pop() {
        let inner = resized(x, axis, &[k, each]);
        let group = insert_axis(&from, axis + 1)?.expand(&inner)?;
        let at = group.binary(Op::Mul, &group.like(each));
        let at = at + count(axis + 1, &inner, DType::I32)?;
        let at = at.reshape(&resized(x, axis, &[k * each]))?;
        let found = if levels.is_empty() {
            // The order of what is gathered, rather than to store that of all.
            ordered(&taken(x, &at)?, descending)
        } else {
            taken(&level, &at)?
        };
        // Nothing stands behind the last element.
        let found = at.lt(&at.like(len)).select(&found, &least);
        let at = if k == 1 { at } else { at.unary(Op::Contiguous) };
        from = leading(&found.unary(Op::Contiguous), &at, k)?;
    }
    Ok((taken(x, &from)?, from))
}

/// Of elements at some places the places of the k that stand first, the greatest and of equal ones the first.
fn leading(key: &UOp, at: &UOp, k: i64) -> Result<UOp> {
    let last = key.shape().len();
    let axis = last - 1;
    if k == 1 {
        let most = key.reduce(ReduceOp::Max, &[axis])?;
        let back = at.unary(Op::Neg);
        let found = key.eq_(&most.expand(key.shape())?);
        let found = found.select(&back, &back.like(i32::MIN as i64));
        let found = found.reduce(ReduceOp::Max, &[axis])?;
        return Ok(found.unary(Op::Neg).unary(Op::Contiguous));
    }
    let m = size_of("topk", key, axis)?;
    let all = resized(key, axis, &[m, m]);
    let column = |u: &UOp| insert_axis(u, last)?.expand(&all);
    let row = |u: &UOp| insert_axis(u, axis)?.expand(&all);
    let same = row(key)?.eq_(&column(key)?) & row(at)?.lt(&column(at)?);
    let ahead = column(key)?.lt(&row(key)?) | same;
    let rank = added(&ahead.cast(DType::I32), last)?.unary(Op::Contiguous);
    let all = resized(key, axis, &[k, m]);
    let row = |u: &UOp| insert_axis(u, axis)?.expand(&all);
    let chosen = row(&rank)?.eq_(&count(axis, &all, DType::I32)?);
    let at = row(at)?;
    Ok(added(&chosen.select(&at, &at.like(0)), last)?.unary(Op::Contiguous))
}

/// The elements of x at places along the last axis.
fn taken(x: &UOp, at: &UOp) -> Result<UOp> {
    let last = x.shape().len();
    let n = size_of("topk", x, last - 1)?;
    let k = size_of("topk", at, last - 1)?;
    let all = resized(x, last - 1, &[k, n]);
    let chosen = insert_axis(at, last)?.expand(&all)?;
    let chosen = chosen.eq_(&count(last, &all, DType::I32)?);
    the_chosen(x, &chosen, last)
}

/// Whether a (at ia) stands before b (at ib).
fn before(a: &UOp, ia: &UOp, b: &UOp, ib: &UOp, descending: bool) -> UOp {
    let (first, second) = if descending { (b, a) } else { (a, b) };
    let mut less = first.lt(second);
    let mut same = a.eq_(b);
    if a.dtype().is_float() {
        let na = first.ne_(first);
        let nb = second.ne_(second);
        same = same | (&na & &nb);
        less = less | (na.unary(Op::Not) & nb);
    }
    less | (same & ia.lt(ib))
}

fn by_rank(x: &UOp, n: &Dim, descending: bool) -> Result<(UOp, UOp)> {
    let last = x.shape().len();
    let all = resized(x, last - 1, &[n.clone(), n.clone()]);
    let key = x.unary(Op::Detach);
    let column = |u: &UOp| insert_axis(u, last)?.expand(&all);
    let row = |u: &UOp| insert_axis(u, last - 1)?.expand(&all);
    let i = count(last - 1, &all, DType::I32)?;
    let j = count(last, &all, DType::I32)?;
    // Row i, column j: does j stand before i?
    let ahead = before(&row(&key)?, &j, &column(&key)?, &i, descending);
    let mut rank = added(&ahead.cast(DType::I32), last)?;
    if n.max() > PAIRS {
        // Counted once, and not for each place that is compared with it.
        rank = rank.unary(Op::Contiguous);
    }
    // Row r, column i: is i the one of rank r?
    let chosen = row(&rank)?.eq_(&i);
    Ok((
        the_chosen(x, &chosen, last)?,
        added(&chosen.select(&j, &j.like(0)), last)?,
    ))
}

/// For each row of `chosen` the one element of x that it names: the greatest where all others are the
/// least that there is, as a sum with zeros would make 0 of −0.
fn the_chosen(x: &UOp, chosen: &UOp, last: usize) -> Result<UOp> {
    let least = UOp::constant(x.dtype().min(), x.dtype());
    let rows = insert_axis(x, last - 1)?.expand(chosen.shape())?;
    let y = chosen
        .select(&rows, &least)
        .reduce(ReduceOp::Max, &[last])?
        .squeeze_axes(&[last])?;
    Ok(known(y, &[x, chosen], &[], |f| {
        let chosen = &f.inputs[1];
        let last = f.g.shape().len();
        let column = insert_axis(f.g, last)?.expand(chosen.shape())?;
        let back = chosen.select(&column, &column.like(0.0));
        Ok(vec![Some(added(&back, last - 1)?), None])
    }))
}

/// Steps of the network that one kernel does: three, which change places among eight elements.
const TOGETHER: u32 = 3;

/// Whether every element of x can be looked for among the n of its row.
///
/// # Errors
/// `Argument` where these are more pairs than a tensor has elements.
fn places_that_fit(x: &UOp, n: i64) -> Result<()> {
    let mut sizes = x.shape().iter().map(Dim::max);
    let pairs = sizes.try_fold(n, |all, size| all.checked_mul(size));
    if pairs.is_some_and(|pairs| pairs <= MOST) {
        return Ok(());
    }
    let message = format!(
        "an axis of {n} elements in shape {}, which is too long",
        x.shape()
    );
    Err(Error::argument("sort", message))
}

/// The order by a bitonic network. Elements of 8 bytes are put in order by their lower halves, and those that have
/// found their places so by their upper ones, which keeps ties.
fn bitonic(x: &UOp, n: i64, descending: bool) -> Result<(UOp, UOp)> {
    let axis = x.shape().len() - 1;
    let at = |u: &UOp, places: &UOp| {
        let places = Tensor::wrap(Ok(places.clone()));
        Tensor::wrap(Ok(u.clone()))
            .gather(axis as i64, &places)
            .uop()
    };
    let key = ordered(x, !descending);
    let from = match key.dtype() {
        DType::I64 => {
            let signed = key.binary(Op::Xor, &key.like(1 << 31));
            let lower = places(&signed.cast(DType::I32), n)?;
            let upper = key.binary(Op::Shr, &key.like(32)).cast(DType::I32);
            at(&lower, &places(&at(&upper, &lower)?, n)?)?.unary(Op::Contiguous)
        }
        _ => places(&key, n)?,
    };
    Ok((at(x, &from)?, from))
}

/// From where the elements of a key of 4 bytes come in its order by a bitonic network (Batcher 1968). What it sorts is
/// an integer for each element that no other has, its place below its key.
fn places(key: &UOp, n: i64) -> Result<UOp> {
    let axis = key.shape().len() - 1;
    let size = (n as u64).next_power_of_two() as i64;
    // What is added stands last: nothing is greater, and ties keep their order.
    let key = key.pad_axis(axis, 0, size - n, key.dtype().max())?;
    let wide = key.cast(DType::I64);
    let place = (1i64 << 32) - 1;
    let at = count(axis, key.shape(), DType::I32)?.cast(DType::I64);
    let mut items = (wide.binary(Op::Mul, &wide.like(place + 1)) + at).unary(Op::Contiguous);
    for block in 1..=size.ilog2() {
        for step in (0..block).rev() {
            // The first step of a block pairs its ends, the others neighbours at a distance.
            items = exchanged(&items, axis, size, 1 << step, step + 1 == block)?;
            if step % TOGETHER == 0 {
                // Stored, so that no step is computed again by its readers.
                items = items.unary(Op::Contiguous);
            }
        }
    }
    let from = items.binary(Op::And, &items.like(place)).cast(DType::I32);
    Ok(from.narrow(axis, 0, n)?.unary(Op::Contiguous))
}

/// A step of the network: of each two elements that are so far apart, or at the same distance from the ends of
/// their block, the lesser stands first.
fn exchanged(items: &UOp, axis: usize, size: i64, stride: i64, mirrored: bool) -> Result<UOp> {
    let halved = resized(items, axis, &[size / (2 * stride), 2, stride]);
    let turned = if mirrored { 3 } else { 1 } << (axis + 1);
    let each = items.reshape(&halved)?;
    let other = each.flip(turned)?;
    let far = count(axis + 1, &halved, DType::I32)?;
    let exchanged = other.lt(&each).ne_(&far.eq_(&far.like(1)));
    exchanged.select(&other, &each).reshape(items.shape())
}
