//! Products of matrices and their generalisation. Flows in: tensors that share axes; out: a product of
//! views summed over the shared axes, which is one REDUCE over a MUL.
//!
//! Floats narrower than f32 are multiplied and accumulated in f32 and rounded once at the end.

use crate::movement::{diagonal, to_last};
use crate::promote::{broadcast_shape, broadcast_to, insert_axis, promoted};
use crate::tensor::{Tensor, tri};
use monoglot_uop::{Arg, DType, Dim, Error, ReduceOp, Result, Shape, UOp};

/// The first of the letters that axes under an ellipsis have (a private use area).
const ELLIPSIS: u32 = 0xe000;

impl Tensor {
    /// The matrix product of the last two axes; leading axes broadcast, a vector is a row on the left
    /// and a column on the right.
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        Tensor::map_all(&[self, other], |u| matmul(&u[0], &u[1], None))
    }

    /// The sum of products of two vectors.
    #[track_caller]
    pub fn dot(&self, other: &Tensor) -> Tensor {
        self.matmul(other)
    }

    /// x·Wᵀ + b for weights (out, in); b broadcasts to the product's shape.
    #[track_caller]
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let turned = if tri!(weight.ndim()) == 1 {
            weight.clone()
        } else {
            weight.t()
        };
        let product = Tensor::map_all(&[self, weight, &turned], |u| {
            let [x, w] = [u[0].shape(), u[1].shape()];
            let meet = x.last().zip(w.last());
            if meet.is_some_and(|(features, taken)| features != taken) {
                let message =
                    format!("features of shape {x} for weights {w}: the last axes differ");
                return Err(Error::shape("linear", message));
            }
            matmul(&u[0], &u[2], None)
        });
        if bias.is_none() {
            return product;
        }
        let y = product.clone().weighted(None, bias);
        Tensor::map_all(&[&y, &product], |u| match u[0].shape() == u[1].shape() {
            true => Ok(u[0].clone()),
            false => {
                let message = format!("a bias that makes {} of {}", u[0].shape(), u[1].shape());
                Err(Error::shape("linear", message))
            }
        })
    }

    /// Einstein's summation: `einsum("bij,bkj->bik", &[&a, &b])`. A letter twice in one operand is its
    /// diagonal; letters that the result lacks are summed; without `->` it has the letters that occur
    /// once, in alphabetical order. `...` stands for axes that broadcast. Of several operands the pair
    /// is contracted first with which all takes the fewest products. Integers widen as sums do where
    /// an axis of one operand alone is summed.
    #[track_caller]
    pub fn einsum(equation: &str, operands: &[&Tensor]) -> Tensor {
        Tensor::map_all(operands, |u| einsum(equation, u))
    }
}

/// Rows of `a` times columns of `b`; only the terms of elements of `a` for which `counts` holds, if it is given.
pub(crate) fn matmul(a: &UOp, b: &UOp, counts: Option<&UOp>) -> Result<UOp> {
    let sa = a.shape();
    let sb = b.shape();
    let fail = |hint: &str| Error::shape("matmul", format!("shapes {sa} and {sb}{hint}"));
    if sa.is_empty() || sb.is_empty() {
        return Err(fail("; a scalar multiplies with `*`"));
    }
    // (…, m, 1, k) and (…, 1, n, k)
    let a = if sa.len() == 1 {
        insert_axis(a, 0)?
    } else {
        a.clone()
    };
    let b = if sb.len() == 1 {
        insert_axis(b, 0)?
    } else {
        to_last(b, sb.len() - 2)?
    };
    let left = insert_axis(&a, a.shape().len() - 1)?;
    let right = insert_axis(&b, b.shape().len() - 2)?;
    if let (Some(columns), Some(rows)) = (left.shape().last(), right.shape().last())
        && columns != rows
    {
        let hint = format!(": {columns:?} columns meet {rows:?} rows");
        return Err(fail(&hint));
    }
    let apart = |_| fail(": the axes before the last two do not broadcast");
    let all = broadcast_shape("matmul", &[&left, &right]).map_err(apart)?;
    let n = all.len();
    let counts = counts.map(|c| insert_axis(c, c.shape().len() - 1));
    let counts = counts.transpose()?;
    let d = promoted(&a, &b);
    let y = contracted(
        &[&left, &right],
        &all,
        d,
        &[n - 1],
        counts.as_ref().map(Counts::only),
    )?;
    let dropped = [
        (sa.len() == 1).then_some(n - 3),
        (sb.len() == 1).then_some(n - 2),
        Some(n - 1),
    ];
    y.squeeze_axes(&dropped.into_iter().flatten().collect::<Vec<_>>())
}

/// Which products a sum takes in.
pub(crate) struct Counts<'a> {
    which: &'a UOp,
    arg: Arg,
}

impl<'a> Counts<'a> {
    /// These, whatever the others are.
    pub(crate) fn only(which: &'a UOp) -> Counts<'a> {
        let arg = Arg::None;
        Counts { which, arg }
    }

    /// These; the others are products with padding.
    pub(crate) fn inside(which: &'a UOp) -> Counts<'a> {
        let arg = Arg::Padding;
        Counts { which, arg }
    }
}

/// The product of values that broadcast to one shape, summed over axes, which stay with size 1; in the
/// dtype that `d` is accumulated in, and rounded to `d` at the end. Products for which `counts`, if it is given,
/// does not hold are left out.
pub(crate) fn contracted(
    parts: &[&UOp],
    shape: &Shape,
    d: DType,
    axes: &[usize],
    counts: Option<Counts>,
) -> Result<UOp> {
    let wide = |p: &UOp| broadcast_to(&p.cast(d).cast(d.compute_type()), shape);
    let product = parts[1..]
        .iter()
        .try_fold(wide(parts[0])?, |all, p| wide(p).map(|p| all * p))?;
    let product = match counts {
        Some(Counts { which, arg }) => {
            let which = broadcast_to(which, shape)?;
            which.select(&product, &product.like(0)).with_arg(arg)
        }
        None => product,
    };
    Ok(product.reduce(ReduceOp::Add, axes)?.cast(d))
}

/// A letter for every axis, also for those under an ellipsis.
struct Equation {
    /// Of each operand.
    terms: Vec<Vec<char>>,
    result: Vec<char>,
}

/// What is wrong with an equation, as an error.
type Bad<'a> = &'a dyn Fn(String) -> Error;

/// The letters of so many axes under an ellipsis: one letter for one place, counted from the right.
fn under_ellipsis(n: usize) -> String {
    let letter = |k: usize| char::from_u32(ELLIPSIS + k as u32);
    (0..n).rev().filter_map(letter).collect()
}

impl Equation {
    fn read(text: &str, operands: &[UOp], bad: Bad) -> Result<Equation> {
        let (left, right) = text
            .split_once("->")
            .map_or((text, None), |(l, r)| (l, Some(r)));
        let count = left.split(',').count();
        if count != operands.len() {
            let operands = operands.len();
            return Err(bad(format!("{operands} operands for {count} terms")));
        }
        let mut terms = Vec::new();
        let mut widest = 0;
        for (t, u) in left.split(',').zip(operands) {
            let rank = u.shape().len();
            let named = t.replacen("...", "", 1).chars().count();
            let hidden = rank.saturating_sub(named);
            let term: Vec<char> = t
                .replacen("...", &under_ellipsis(hidden), 1)
                .chars()
                .collect();
            if term.len() != rank {
                return Err(bad(format!("{named} letters for shape {}", u.shape())));
            }
            widest = widest.max(hidden);
            terms.push(term);
        }
        let hidden = under_ellipsis(widest);
        let result: Vec<char> = match right {
            Some(o) => o.replacen("...", &hidden, 1).chars().collect(),
            None => {
                let occurs_once = |c: &char| c.is_alphabetic() && left.matches(*c).count() == 1;
                let mut once: Vec<char> = left.chars().filter(occurs_once).collect();
                once.sort_unstable();
                hidden.chars().chain(once).collect()
            }
        };
        let mut all = terms.iter().flatten().chain(&result);
        if let Some(c) = all.find(|c| !c.is_alphabetic() && (**c as u32) < ELLIPSIS) {
            return Err(bad(format!("{c:?} is no letter")));
        }
        Ok(Equation { terms, result })
    }

    /// How long the axes of each letter are; those of length 1 are repeated.
    fn sizes(&self, operands: &[UOp], bad: Bad) -> Result<Vec<(char, Dim)>> {
        let mut sizes: Vec<(char, Dim)> = Vec::new();
        for (t, u) in self.terms.iter().zip(operands) {
            for (&c, n) in t.iter().zip(u.shape().iter()) {
                match sizes.iter_mut().find(|(k, _)| *k == c) {
                    None => sizes.push((c, n.clone())),
                    Some((_, m)) if m.is(1) => *m = n.clone(),
                    Some((_, m)) if m != n && !n.is(1) => {
                        return Err(bad(format!("{c} is {m:?} and {n:?}")));
                    }
                    _ => {}
                }
            }
        }
        let result = &self.result;
        let known = |c: &char| sizes.iter().any(|(k, _)| k == c);
        let wrong = |&i: &usize| result[..i].contains(&result[i]) || !known(&result[i]);
        if let Some(i) = (0..result.len()).find(wrong) {
            return Err(bad(format!("{} in the result, at {i}", result[i])));
        }
        Ok(sizes)
    }

    /// The dtype of the result. An axis that only one operand has is a sum of its own, which widens; one of
    /// products keeps its dtype.
    fn dtype(&self, sizes: &[(char, Dim)], operands: &[UOp]) -> DType {
        let dtypes = operands.iter().map(UOp::dtype);
        let d = dtypes.fold(operands[0].dtype(), DType::promote);
        let sums = sizes.iter().any(|(c, _)| {
            let having = self.terms.iter().filter(|t| t.contains(c)).count();
            having == 1 && !self.result.contains(c)
        });
        if sums && !d.is_float() {
            d.sum_type()
        } else {
            d
        }
    }
}

fn einsum(equation: &str, operands: &[UOp]) -> Result<UOp> {
    let bad = |message: String| Error::argument("einsum", format!("{equation:?}: {message}"));
    let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let spelled = Equation::read(&text, operands, &bad)?;
    let sizes = spelled.sizes(operands, &bad)?;
    let d = spelled.dtype(&sizes, operands);
    let Equation { terms, result } = spelled;
    let plain = |(u, t): (&UOp, &Vec<char>)| diagonals(u.cast(d), t);
    let mut left: Vec<Lettered> = operands
        .iter()
        .zip(&terms)
        .map(plain)
        .collect::<Result<_>>()?;
    while left.len() > 1 {
        let terms: Vec<Vec<char>> = left.iter().map(|(_, t)| t.clone()).collect();
        let [i, j] = cheapest_pair(&terms, &result, &sizes).1;
        let second = left.remove(j);
        let first = left.remove(i);
        let mut others: Vec<char> = result.clone();
        others.extend(left.iter().flat_map(|(_, t)| t));
        let own = |c: &char| others.contains(c) || second.1.contains(c);
        let first = summed(&[first], own, &result, &sizes, d)?;
        let both = summed(&[first, second], |c| others.contains(c), &result, &sizes, d)?;
        left.insert(i, both);
    }
    // The letters that are left are those of the result, in its order.
    let whole = summed(&left, |c| result.contains(c), &result, &sizes, d)?;
    Ok(whole.0.cast(d))
}

/// A factor with the letters of its axes.
type Lettered = (UOp, Vec<char>);

/// The sum of a product over all letters that are not needed; its axes are in the order of the result.
fn summed(
    factors: &[Lettered],
    needed: impl Fn(&char) -> bool,
    result: &[char],
    sizes: &[(char, Dim)],
    d: DType,
) -> Result<Lettered> {
    let place = |c: &char| result.iter().position(|o| o == c).unwrap_or(usize::MAX);
    let mut all: Vec<(char, Dim)> = sizes.to_vec();
    all.retain(|(c, _)| factors.iter().any(|(_, t)| t.contains(c)));
    all.sort_by_key(|(c, _)| (!needed(c), place(c)));
    let shape = Shape::new(all.iter().map(|(_, n)| n.clone()));
    let mut letters: Vec<char> = all.into_iter().map(|(c, _)| c).collect();
    let arranged = factors.iter().map(|(u, t)| arrange(u, t, &letters));
    let arranged: Vec<UOp> = arranged.collect::<Result<_>>()?;
    let keep = letters.iter().filter(|c| needed(c)).count();
    let axes: Vec<usize> = (keep..letters.len()).collect();
    letters.truncate(keep);
    let factors: Vec<&UOp> = arranged.iter().collect();
    let sums = contracted(&factors, &shape, d.compute_type(), &axes, None)?;
    Ok((sums.squeeze_axes(&axes)?, letters))
}

/// Most factors of which all orders are tried.
const ALL_ORDERS: usize = 5;

/// The two factors that are contracted first where all takes the fewest products, and how many these are; of many factors
/// those of the fewest between them. Of equals the first.
fn cheapest_pair(terms: &[Vec<char>], result: &[char], sizes: &[(char, Dim)]) -> (f64, [usize; 2]) {
    let mut best = (f64::INFINITY, [0, 1]);
    for j in 1..terms.len() {
        for i in 0..j {
            let mut rest = terms.to_vec();
            let mut both = rest.remove(j);
            both.extend(rest.remove(i));
            let each = sizes.iter().filter(|(c, _)| both.contains(c));
            let mut products: f64 = each.map(|(_, n)| n.max() as f64).product();
            both.retain(|c| result.contains(c) || rest.iter().any(|t| t.contains(c)));
            if rest.len() < ALL_ORDERS && !rest.is_empty() {
                rest.insert(i, both);
                products += cheapest_pair(&rest, result, sizes).0;
            }
            if products < best.0 {
                best = (products, [i, j]);
            }
        }
    }
    best
}

/// Letters that occur twice become one axis: the diagonal.
fn diagonals(mut u: UOp, t: &[char]) -> Result<(UOp, Vec<char>)> {
    let mut t = t.to_vec();
    let twice =
        |t: &[char]| (0..t.len()).find_map(|j| Some((t[..j].iter().position(|c| *c == t[j])?, j)));
    while let Some((i, j)) = twice(&t) {
        if u.shape()[i] != u.shape()[j] {
            return Err(Error::argument(
                "einsum",
                format!("{} twice in shape {}", t[i], u.shape()),
            ));
        }
        u = diagonal(&to_last(&to_last(&u, i)?, j - 1)?)?;
        t.remove(j);
        let c = t.remove(i);
        t.push(c);
    }
    Ok((u, t))
}

/// Axes in the order of `letters`, size 1 where the operand lacks one.
fn arrange(u: &UOp, t: &[char], letters: &[char]) -> Result<UOp> {
    let place = |c: &char| t.iter().position(|k| k == c);
    let dims = letters
        .iter()
        .map(|c| place(c).map_or(Dim::Int(1), |i| u.shape()[i].clone()));
    u.permute(&letters.iter().filter_map(place).collect::<Vec<_>>())?
        .reshape(&Shape::new(dims))
}
