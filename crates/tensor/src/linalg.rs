//! Products of matrices and their generalisation. Flows in: tensors that share axes; out: a product of
//! views summed over the shared axes, which is one REDUCE over a MUL.
//!
//! Floats narrower than f32 are multiplied and accumulated in f32 and rounded once at the end.

use crate::movement::{diagonal, to_last};
use crate::promote::{broadcast_shape, broadcast_to, insert_axis, promoted};
use crate::tensor::{Tensor, tri};
use monoglot_uop::{DType, Dim, Error, ReduceOp, Result, Shape, UOp};

/// The first of the letters that axes under an ellipsis have (a private use area).
const ELLIPSIS: u32 = 0xe000;

impl Tensor {
    /// The matrix product of the last two axes; leading axes broadcast, a vector is a row on the left
    /// and a column on the right.
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        Tensor::map_all(&[self, other], |u| matmul(&u[0], &u[1]))
    }

    /// The sum of products of two vectors.
    #[track_caller]
    pub fn dot(&self, other: &Tensor) -> Tensor {
        self.matmul(other)
    }

    /// x·Wᵀ + b for weights (out, in).
    #[track_caller]
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let turned = if tri!(weight.ndim()) == 1 {
            weight.clone()
        } else {
            weight.t()
        };
        self.matmul(&turned).plus(bias)
    }

    /// Einstein's summation: `einsum("bij,bkj->bik", &[&a, &b])`. A letter twice in one operand is its
    /// diagonal; letters that the result lacks are summed; without `->` it has the letters that occur
    /// once, in alphabetical order. `...` stands for axes that broadcast. Operands are contracted from
    /// left to right. Integers widen as sums do where an axis of one operand alone is summed.
    #[track_caller]
    pub fn einsum(equation: &str, operands: &[&Tensor]) -> Tensor {
        Tensor::map_all(operands, |u| einsum(equation, u))
    }
}

fn matmul(a: &UOp, b: &UOp) -> Result<UOp> {
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
    if left.shape().last() != right.shape().last() {
        return Err(fail(""));
    }
    let all = broadcast_shape("matmul", &[&left, &right]).map_err(|_| fail(""))?;
    let n = all.len();
    let y = contracted(&[&left, &right], &all, promoted(&a, &b), &[n - 1])?;
    let dropped = [
        (sa.len() == 1).then_some(n - 3),
        (sb.len() == 1).then_some(n - 2),
        Some(n - 1),
    ];
    y.squeeze_axes(&dropped.into_iter().flatten().collect::<Vec<_>>())
}

/// The product of values that broadcast to one shape, summed over axes, which stay with size 1; in the
/// dtype that `d` is accumulated in, and rounded to `d` at the end.
pub(crate) fn contracted(parts: &[&UOp], shape: &Shape, d: DType, axes: &[usize]) -> Result<UOp> {
    let wide = |p: &UOp| broadcast_to(&p.cast(d).cast(d.compute_type()), shape);
    let product = parts[1..]
        .iter()
        .try_fold(wide(parts[0])?, |all, p| wide(p).map(|p| all * p))?;
    Ok(product.reduce(ReduceOp::Add, axes)?.cast(d))
}

fn einsum(equation: &str, operands: &[UOp]) -> Result<UOp> {
    let bad = |message: String| Error::argument("einsum", format!("{equation:?}: {message}"));
    let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = text
        .split_once("->")
        .map_or((&text[..], None), |(l, r)| (l, Some(r)));
    if left.split(',').count() != operands.len() {
        return Err(bad(format!(
            "{} operands for {} terms",
            operands.len(),
            left.split(',').count()
        )));
    }
    // The axes under an ellipsis are letters of their own, counted from the right.
    let spelled = |n: usize| {
        (0..n)
            .rev()
            .filter_map(|k| char::from_u32(ELLIPSIS + k as u32))
            .collect::<String>()
    };
    let mut terms = Vec::new();
    let mut widest = 0;
    for (t, u) in left.split(',').zip(operands) {
        let rank = u.shape().len();
        let named = t.replacen("...", "", 1).chars().count();
        let letters = t
            .replacen("...", &spelled(rank.saturating_sub(named)), 1)
            .chars()
            .collect::<Vec<char>>();
        if letters.len() != rank {
            return Err(bad(format!("{named} letters for shape {}", u.shape())));
        }
        widest = widest.max(rank - named.min(rank));
        terms.push(letters);
    }
    let output: Vec<char> = match right {
        Some(o) => o.replacen("...", &spelled(widest), 1).chars().collect(),
        None => {
            let mut once: Vec<char> = left
                .chars()
                .filter(|c| c.is_alphabetic() && left.matches(*c).count() == 1)
                .collect();
            once.sort_unstable();
            spelled(widest).chars().chain(once).collect()
        }
    };
    if let Some(c) = terms
        .iter()
        .flatten()
        .chain(&output)
        .find(|c| !c.is_alphabetic() && (**c as u32) < ELLIPSIS)
    {
        return Err(bad(format!("{c:?} is no letter")));
    }
    let mut size: Vec<(char, i64)> = Vec::new();
    for (t, u) in terms.iter().zip(operands) {
        for (&c, n) in t.iter().zip(u.sizes("einsum")?) {
            match size.iter_mut().find(|(k, _)| *k == c) {
                None => size.push((c, n)),
                Some((_, m)) if *m == 1 => *m = n,
                Some((_, m)) if *m != n && n != 1 => {
                    return Err(bad(format!("{c} is {m} and {n}")));
                }
                _ => {}
            }
        }
    }
    let known = |c: &char| size.iter().any(|(k, _)| k == c);
    if let Some(i) =
        (0..output.len()).find(|&i| output[..i].contains(&output[i]) || !known(&output[i]))
    {
        return Err(bad(format!("{} in the result, at {i}", output[i])));
    }
    let d = operands
        .iter()
        .map(UOp::dtype)
        .fold(operands[0].dtype(), |d, e| d.promote(e));
    // An axis that only one operand has is a sum of its own, which widens; one of products keeps its dtype.
    let sums = size.iter().any(|(c, _)| {
        let having = terms.iter().filter(|t| t.contains(c)).count();
        having == 1 && !output.contains(c)
    });
    let d = if sums && !d.is_float() {
        d.sum_type()
    } else {
        d
    };
    let mut parts: Vec<(UOp, Vec<char>)> = Vec::new();
    for (i, (u, t)) in operands.iter().zip(&terms).enumerate() {
        parts.push(diagonals(u.cast(d), t)?);
        let needed = |c: &char| output.contains(c) || terms[i + 1..].iter().any(|t| t.contains(c));
        let mut letters: Vec<(char, i64)> = size.clone();
        letters.retain(|(c, _)| parts.iter().any(|(_, t)| t.contains(c)));
        letters.sort_by_key(|(c, _)| {
            (
                !needed(c),
                output.iter().position(|o| o == c).unwrap_or(usize::MAX),
            )
        });
        let shape = Shape::of(&letters.iter().map(|&(_, n)| n).collect::<Vec<_>>());
        let mut letters: Vec<char> = letters.into_iter().map(|(c, _)| c).collect();
        let placed = parts
            .iter()
            .map(|(u, t)| arrange(u, t, &letters))
            .collect::<Result<Vec<_>>>()?;
        let keep = letters.iter().filter(|c| needed(c)).count();
        let axes: Vec<usize> = (keep..letters.len()).collect();
        letters.truncate(keep);
        let sums = contracted(
            &placed.iter().collect::<Vec<_>>(),
            &shape,
            d.compute_type(),
            &axes,
        )?;
        parts = vec![(sums.squeeze_axes(&axes)?, letters)];
    }
    // The letters that are left are those of the result, in its order.
    Ok(parts.remove(0).0.cast(d))
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
