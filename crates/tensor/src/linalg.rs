//! Products of matrices and their generalisation. Flows in: tensors that share axes; out: a product of
//! views summed over the shared axes, which is one REDUCE over a MUL.
//!
//! Floats narrower than f32 are multiplied and accumulated in f32 and rounded once at the end.

use crate::promote::{broadcast_shape, promoted};
use crate::tensor::{Tensor, tri};
use monoglot_uop::{Dim, Error, ReduceOp, Result, Shape, UOp};

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
        let turned = if tri!(weight.ndim()) == 1 { weight.clone() } else { weight.t() };
        let y = self.matmul(&turned);
        match bias {
            Some(b) => y + b,
            None => y,
        }
    }

    /// Einstein's summation: `einsum("bij,bkj->bik", &[&a, &b])`. A letter twice in one operand is its
    /// diagonal; letters that the result lacks are summed; without `->` it has the letters that occur
    /// once, in alphabetical order. Operands are contracted from left to right.
    #[track_caller]
    pub fn einsum(equation: &str, operands: &[&Tensor]) -> Tensor {
        Tensor::map_all(operands, |u| einsum(equation, u))
    }
}

fn matmul(a: &UOp, b: &UOp) -> Result<UOp> {
    let d = promoted(a, b);
    let (sa, sb) = (a.shape(), b.shape());
    let fail = || Error::shape("matmul", format!("shapes {sa} and {sb}"));
    let (Some(k), Some(kb)) = (sa.last(), if sb.len() < 2 { sb.first() } else { sb.get(sb.len() - 2) })
    else {
        return Err(Error::shape("matmul", format!("shapes {sa} and {sb}; a scalar multiplies with `*`")));
    };
    if k != kb {
        return Err(fail());
    }
    let (row, column) = (sa.len() == 1, sb.len() == 1);
    let m = if row { Dim::Int(1) } else { sa[sa.len() - 2].clone() };
    let n = if column { Dim::Int(1) } else { sb[sb.len() - 1].clone() };
    let lead = |s: &Shape| -> Vec<Dim> { s[..s.len().saturating_sub(2)].to_vec() };
    let with = |lead: &[Dim], tail: [&Dim; 3]| Shape::new(lead.iter().chain(tail).cloned());
    let one = Dim::Int(1);
    // (…, m, 1, k) and (…, 1, n, k)
    let left = a.reshape(&with(&lead(sa), [&m, &one, k]))?;
    let right = if column {
        b.reshape(&with(&[], [&one, &one, k]))?
    } else {
        let mut order: Vec<usize> = (0..sb.len()).collect();
        order.swap(sb.len() - 1, sb.len() - 2);
        b.permute(&order)?.reshape(&with(&lead(sb), [&one, &n, k]))?
    };
    let all = broadcast_shape("matmul", &[&left, &right]).map_err(|_| fail())?;
    let y = multiply(&[&left, &right], &all, d)?.reduce(ReduceOp::Add, &[all.len() - 1])?.cast(d);
    let batch = all[..all.len() - 3].iter().cloned();
    let tail = [(!row).then_some(m), (!column).then_some(n)].into_iter().flatten();
    y.reshape(&Shape::new(batch.chain(tail)))
}

/// The product of values that broadcast to one shape, in the dtype that `d` is accumulated in.
pub(crate) fn multiply(parts: &[&UOp], shape: &Shape, d: monoglot_uop::DType) -> Result<UOp> {
    let mut out: Option<UOp> = None;
    for p in parts {
        let p = crate::promote::broadcast_to(&p.cast(d).cast(d.compute_type()), shape)?;
        out = Some(out.map_or_else(|| p.clone(), |o| o * &p));
    }
    out.ok_or_else(|| Error::argument("multiply", "nothing to multiply"))
}

fn einsum(equation: &str, operands: &[UOp]) -> Result<UOp> {
    let bad = |message: String| Error::argument("einsum", format!("{equation:?}: {message}"));
    let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = match text.split_once("->") {
        Some((i, o)) => (i.to_string(), o.chars().collect::<Vec<char>>()),
        None => {
            let mut once: Vec<char> =
                text.chars().filter(|c| *c != ',' && text.matches(*c).count() == 1).collect();
            once.sort_unstable();
            (text.clone(), once)
        }
    };
    let terms: Vec<Vec<char>> = inputs.split(',').map(|t| t.chars().collect()).collect();
    if terms.len() != operands.len() {
        return Err(bad(format!("{} operands for {} terms", operands.len(), terms.len())));
    }
    if let Some(c) = terms.iter().flatten().chain(&output).find(|c| !c.is_alphabetic()) {
        return Err(bad(format!("{c:?} is no letter")));
    }
    let mut size: Vec<(char, i64)> = Vec::new();
    for (t, u) in terms.iter().zip(operands) {
        let s = u.sizes("einsum")?;
        if s.len() != t.len() {
            return Err(bad(format!("{} letters for shape {}", t.len(), u.shape())));
        }
        for (&c, &n) in t.iter().zip(&s) {
            match size.iter_mut().find(|(k, _)| *k == c) {
                None => size.push((c, n)),
                Some((_, m)) if *m == 1 => *m = n,
                Some((_, m)) if *m != n && n != 1 => return Err(bad(format!("{c} is {m} and {n}"))),
                _ => {}
            }
        }
    }
    if let Some((i, c)) = output
        .iter()
        .enumerate()
        .find(|(i, c)| output[..*i].contains(c) || !size.iter().any(|(k, _)| k == *c))
    {
        return Err(bad(format!("{c} in the result, at {i}")));
    }
    let d = operands
        .iter()
        .map(UOp::dtype)
        .reduce(|a, b| a.promote(b))
        .ok_or_else(|| bad("no operands".into()))?;
    let len = |c: char| size.iter().find(|(k, _)| *k == c).map_or(1, |(_, n)| *n);
    let mut left: Option<(UOp, Vec<char>)> = None;
    for (i, (u, t)) in operands.iter().zip(&terms).enumerate() {
        let (u, t) = diagonals(u, t)?;
        let needed = |c: &char| output.contains(c) || terms[i + 1..].iter().any(|t| t.contains(c));
        let parts = match &left {
            None => vec![(u, t)],
            Some(l) => vec![l.clone(), (u, t)],
        };
        let mut letters: Vec<char> = Vec::new();
        for c in parts.iter().flat_map(|(_, t)| t) {
            if !letters.contains(c) {
                letters.push(*c);
            }
        }
        letters.sort_by_key(|c| (!needed(c), output.iter().position(|o| o == c).unwrap_or(usize::MAX)));
        let shape = Shape::of(&letters.iter().map(|&c| len(c)).collect::<Vec<_>>());
        let placed = parts.iter().map(|(u, t)| arrange(u, t, &letters)).collect::<Result<Vec<_>>>()?;
        let product = multiply(&placed.iter().collect::<Vec<_>>(), &shape, d)?;
        let keep = letters.iter().filter(|c| needed(c)).count();
        let axes: Vec<usize> = (keep..letters.len()).collect();
        letters.truncate(keep);
        left = Some((product.reduce(ReduceOp::Add, &axes)?.squeeze_axes(&axes)?, letters));
    }
    let (u, t) = left.ok_or_else(|| bad("no operands".into()))?;
    let order: Vec<usize> = output.iter().filter_map(|c| t.iter().position(|k| k == c)).collect();
    Ok(u.permute(&order)?.cast(d))
}

/// Letters that occur twice become one axis: the diagonal.
fn diagonals(u: &UOp, t: &[char]) -> Result<(UOp, Vec<char>)> {
    let (mut u, mut t) = (u.clone(), t.to_vec());
    while let Some((i, j)) =
        (0..t.len()).find_map(|i| (i + 1..t.len()).find(|&j| t[j] == t[i]).map(|j| (i, j)))
    {
        let n = u.shape().len();
        let order: Vec<usize> = (0..n).filter(|k| *k != i && *k != j).chain([i, j]).collect();
        let c = t[i];
        let flat = Tensor::from_uop(u.permute(&order)?).diagonal();
        t.retain(|&k| k != c);
        t.push(c);
        u = flat.uop()?;
    }
    Ok((u, t))
}

/// Axes in the order of `letters`, size 1 where the operand lacks one.
fn arrange(u: &UOp, t: &[char], letters: &[char]) -> Result<UOp> {
    let order: Vec<usize> = letters.iter().filter_map(|c| t.iter().position(|k| k == c)).collect();
    let moved = u.permute(&order)?;
    let mut sizes = moved.shape().iter();
    let dims = letters.iter().map(|c| match t.contains(c) {
        true => sizes.next().cloned().unwrap_or(Dim::Int(1)),
        false => Dim::Int(1),
    });
    moved.reshape(&Shape::new(dims.collect::<Vec<_>>()))
}
