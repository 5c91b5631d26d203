//! Shape of a node, and the checks of movement ops. Elementwise operands have one shape; an operand
//! of shape () is exempt (the tensor spec narrows that to CONST). Flows in: op, sources and arg of
//! a node to be; flows out: its shape, or an error that says what does not fit. Invariant: no size is
//! negative, and elements and bytes of any shape can be counted in an i64.

use crate::arg::Arg;
use crate::error::{Error, ErrorKind, Result};
use crate::node::UOp;
use crate::op::{Op, OpSet};
use crate::shape::{Dim, Shape};
use rustc_hash::FxHashMap;

/// Most elements of a shape.
const MOST: i64 = 1 << 59;

/// The shape of a node.
///
/// # Errors
/// `Shape`, `Argument`, `Axis` or `Dtype`, where the sources do not fit the op or the shape is too large.
pub(crate) fn shape(op: Op, src: &[UOp], arg: &Arg) -> Result<Shape> {
    if op.is_elementwise() || op == Op::Wmma {
        return elementwise(op, src);
    }
    const SAME: OpSet = OpSet::of(&[Op::Permute, Op::Flip, Op::Reduce, Op::Load, Op::After]);
    let shape = of(op, src, arg)?;
    if SAME.contains(op) {
        Ok(shape)
    } else {
        counted(op, shape)
    }
}

/// The shape, where its sizes are sizes and its elements can be counted.
fn counted(op: Op, shape: Shape) -> Result<Shape> {
    let sizes = || shape.iter().map(|d| d.max().max(1));
    let wrong = if shape.iter().any(|d| d.as_int().is_some_and(|n| n < 0)) {
        "a negative size"
    } else if sizes().fold(1, i64::saturating_mul) > MOST {
        "more than 2^59 elements"
    } else {
        return Ok(shape);
    };
    Err(Error::shape(op.name(), format!("{shape} has {wrong}")))
}

fn of(op: Op, src: &[UOp], arg: &Arg) -> Result<Shape> {
    match op {
        Op::Param | Op::Buffer => Ok(src.first().map_or(Shape::SCALAR, dims_of)),
        Op::Binary => Ok(if let Arg::Bytes(b) = arg {
            Shape::of(&[b.len() as i64])
        } else {
            Shape::SCALAR
        }),
        Op::Permute => permute(src, arg),
        Op::Reshape | Op::Expand => resized(op, src),
        Op::Pad | Op::Shrink => placed(op, src),
        Op::Index => index(src),
        Op::Stack => stack(src),
        Op::Shuffle => Ok(src[2].shape().clone()),
        Op::Bitcast => bitcast(src, arg),
        Op::Reduce | Op::Replicated | Op::GetTuple => match arg {
            Arg::Reduce(_, axes) | Arg::Axes(axes) => collapse(op, src[0].shape(), axes),
            Arg::Element(i) => {
                let one = super::dtype::tuple_element(&src[0], *i)?.shape();
                let one = applied(&src[0], one)?;
                Ok(match src[0].arg() {
                    Arg::Scan(info) if *i >= info.carries => {
                        let times = Dim::Int(info.length);
                        Shape::new([times].into_iter().chain(one.iter().cloned()))
                    }
                    _ => one,
                })
            }
            _ => Err(Error::argument(
                op.name(),
                format!("needs its arg of kind {}", op.arg_kind()),
            )),
        },
        Op::Flip
        | Op::Load
        | Op::Copy
        | Op::Contiguous
        | Op::ContiguousBackward
        | Op::Detach
        | Op::Assert
        | Op::After => Ok(src[0].shape().clone()),
        Op::Store if src[0].shape() != src[1].shape() && !src[1].shape().is_empty() => {
            Err(Error::shape(
                "STORE",
                format!(
                    "a value of shape {} into storage of shape {}",
                    src[1].shape(),
                    src[0].shape()
                ),
            ))
        }
        _ => Ok(Shape::SCALAR),
    }
}

/// A shape of a FUNCTION's body, where PARAM k is argument k.
fn applied(function: &UOp, shape: &Shape) -> Result<Shape> {
    let symbolic = shape.iter().any(|d| d.as_int().is_none());
    let body =
        matches!(function.op(), Op::Function | Op::Call) && function.src()[0].op() == Op::Tuple;
    if !symbolic || !body {
        return Ok(shape.clone());
    }
    let mut dims = Vec::with_capacity(shape.len());
    for d in shape.iter() {
        let u = d.to_uop().bound_to_arguments(&function.src()[1..])?;
        let length = u.ops_below().contains(Op::Param);
        let known = u.sym_infer(&[]).ok().filter(|_| !length);
        dims.push(known.map_or_else(|| Dim::of(&u), Dim::Int));
    }
    Ok(Shape::new(dims))
}

/// The dimensions that a vector of `index` (a STACK, or one scalar) stands for.
pub(crate) fn dims_of(u: &UOp) -> Shape {
    match u.op() {
        Op::Stack => Shape::new(u.src().iter().map(Dim::of)),
        _ => Shape::new([Dim::of(u)]),
    }
}

fn elementwise(op: Op, src: &[UOp]) -> Result<Shape> {
    let mut shapes = src.iter().map(UOp::shape).filter(|s| !s.is_empty());
    let Some(first) = shapes.next() else {
        return Ok(Shape::SCALAR);
    };
    match shapes.find(|s| *s != first) {
        None => Ok(first.clone()),
        Some(s) => Err(Error::shape(
            op.name(),
            format!("operands of shape {first} and {s}"),
        )),
    }
}

fn permute(src: &[UOp], arg: &Arg) -> Result<Shape> {
    let shape = src[0].shape();
    let Arg::Axes(order) = arg else {
        return Err(Error::argument("PERMUTE", "needs an order"));
    };
    if order.len() != shape.len() || (0..shape.len()).any(|i| !order.contains(&(i as u8))) {
        let message = format!("{order:?} does not order the axes of shape {shape}");
        return Err(Error::argument("PERMUTE", message));
    }
    Ok(Shape::new(order.iter().map(|&a| shape[a as usize].clone())))
}

fn resized(op: Op, src: &[UOp]) -> Result<Shape> {
    let from = src[0].shape();
    let to = dims_of(&src[1]);
    let (fits, how) = match (op, from.ints(), to.ints()) {
        (Op::Expand, ..) => (
            from.len() == to.len() && from.iter().zip(to.iter()).all(|(a, b)| a == b || a.is(1)),
            "to",
        ),
        (_, Some(a), Some(b)) => (product(&a).is_some_and(|n| product(&b) == Some(n)), "as"),
        _ => (
            length(from) == length(&to) || elements(from) == elements(&to),
            "as",
        ),
    };
    let counted = |s: &Shape| match s.ints().and_then(|all| product(&all)) {
        Some(n) if how == "as" => format!("{s} of {n} elements"),
        _ => s.to_string(),
    };
    match fits {
        true => Ok(to),
        false => {
            let message = format!("shape {} {how} {}", counted(from), counted(&to));
            Err(Error::shape(op.name(), message))
        }
    }
}

/// How many elements so many along each axis are; None where no i64 counts them.
fn product(sizes: &[i64]) -> Option<i64> {
    if sizes.contains(&0) {
        return Some(0);
    }
    sizes.iter().try_fold(1i64, |n, &d| n.checked_mul(d))
}

/// The number of elements as a product: the known part, and the symbolic factors in an order of theirs.
fn length(shape: &Shape) -> (i64, Vec<UOp>) {
    let mut known = 1i64;
    let mut symbols = Vec::new();
    for d in shape.iter() {
        let Dim::Sym(u) = d else {
            known = known.saturating_mul(d.max());
            continue;
        };
        match (u.op(), u.src()) {
            (Op::Mul, [n, c]) if c.as_int().is_some() => {
                known = known.saturating_mul(c.as_int().unwrap_or(1));
                symbols.push(n.clone());
            }
            _ => symbols.push(u.clone()),
        }
    }
    symbols.sort_by_key(UOp::structural_hash);
    (known, symbols)
}

/// Σ coefficient·Π atoms: the numbers of elements that shapes have, multiplied out. Atoms stand in an order of theirs.
type Polynomial = Vec<(Vec<UOp>, i64)>;

/// Terms beyond which a sum is an atom.
const MOST_TERMS: usize = 64;

/// The number of elements, multiplied out.
fn elements(shape: &Shape) -> Polynomial {
    let one: Polynomial = vec![(Vec::new(), 1)];
    let factor = |d: &Dim| match d {
        Dim::Int(n) => collected(vec![(Vec::new(), *n)]),
        Dim::Sym(u) => polynomial(u),
    };
    shape.iter().fold(one, |n, d| times(&n, &factor(d)))
}

/// An expression, multiplied out.
fn polynomial(u: &UOp) -> Polynomial {
    let mut known: FxHashMap<UOp, Polynomial> = FxHashMap::default();
    for u in u.toposort() {
        let part = |k: usize| &known[&u.src()[k]];
        let negative = |p: &Polynomial| {
            let all = p
                .iter()
                .map(|(atoms, k)| (atoms.clone(), k.saturating_neg()));
            all.collect::<Polynomial>()
        };
        let found = match u.op() {
            Op::Const => u.as_int().map(|n| vec![(Vec::new(), n)]),
            Op::Add => Some([part(0).clone(), part(1).clone()].concat()),
            Op::Sub => Some([part(0).clone(), negative(part(1))].concat()),
            Op::Neg => Some(negative(part(0))),
            Op::Mul => Some(times(part(0), part(1))),
            _ => None,
        };
        let found = found.map(collected).filter(|p| p.len() <= MOST_TERMS);
        let found = found.unwrap_or_else(|| vec![(vec![u.clone()], 1)]);
        known.insert(u, found);
    }
    known.remove(u).unwrap_or_default()
}

fn times(a: &Polynomial, b: &Polynomial) -> Polynomial {
    let pairs = a.iter().flat_map(|x| b.iter().map(move |y| (x, y)));
    let product = pairs.map(|((xs, j), (ys, k))| {
        let mut atoms = [&xs[..], &ys[..]].concat();
        atoms.sort_by_key(UOp::structural_hash);
        (atoms, j.saturating_mul(*k))
    });
    collected(product.collect())
}

/// Each product of atoms once, and in order.
fn collected(mut terms: Polynomial) -> Polynomial {
    let key = |atoms: &[UOp]| atoms.iter().map(UOp::structural_hash).collect::<Vec<_>>();
    terms.sort_by_key(|(atoms, _)| key(atoms));
    let mut out: Polynomial = Vec::with_capacity(terms.len());
    for (atoms, k) in terms {
        match out.last_mut() {
            Some((same, sum)) if *same == atoms => *sum = sum.saturating_add(k),
            _ => out.push((atoms, k)),
        }
    }
    out.retain(|(_, k)| *k != 0);
    out
}

fn placed(op: Op, src: &[UOp]) -> Result<Shape> {
    let from = src[0].shape();
    let at = dims_of(&src[1]);
    let to = dims_of(&src[2]);
    let (large, small) = if op == Op::Pad {
        (&to, from)
    } else {
        (from, &to)
    };
    let inside = |n: i64, o: i64, m: i64| o >= 0 && m >= 0 && o.saturating_add(m) <= n;
    let axis = |i: usize| match (&large[i], &at[i], &small[i]) {
        (Dim::Int(n), Dim::Int(o), Dim::Int(m)) => inside(*n, *o, *m),
        // What is bound to values is held to them.
        (n, o, m) => match (n.now(), o.now(), m.now()) {
            (Some(n), Some(o), Some(m)) => inside(n, o, m),
            _ => true,
        },
    };
    let all = from.len() == to.len() && at.len() == to.len() && (0..to.len()).all(axis);
    let message = match (all, op) {
        (true, _) => return Ok(to.clone()),
        (_, Op::Pad) => format!("shape {from} at {at} of {to}"),
        _ => format!("{to} from {at} of shape {from}"),
    };
    Err(Error::shape(op.name(), message))
}

/// ()-shaped indices drop their axis; all others share one shape (k, …) that each puts in place of
/// its axis.
fn index(src: &[UOp]) -> Result<Shape> {
    let shape = src[0].shape();
    let indices = &src[1..];
    if indices.len() > shape.len() {
        return Err(ErrorKind::Axis {
            op: "INDEX".into(),
            axis: indices.len() as i64 - 1,
            ndim: shape.len(),
        }
        .into());
    }
    let mut dims = Vec::new();
    for (i, u) in indices.iter().enumerate() {
        if !u.dtype().is_int() {
            return Err(Error::dtype(
                "INDEX",
                format!("index {i} is {}, not an integer", u.dtype()),
            ));
        }
        dims.extend(u.shape().iter().cloned());
    }
    dims.extend(shape[indices.len()..].iter().cloned());
    Ok(Shape::new(dims))
}

fn stack(src: &[UOp]) -> Result<Shape> {
    let n = Dim::Int(src.len() as i64);
    let Some(first) = src.first() else {
        return Ok(Shape::of(&[0]));
    };
    match src.iter().find(|u| u.shape() != first.shape()) {
        None => Ok(Shape::new(
            std::iter::once(n).chain(first.shape().iter().cloned()),
        )),
        Some(u) => Err(Error::shape(
            "STACK",
            format!("parts of shape {} and {}", first.shape(), u.shape()),
        )),
    }
}

fn bitcast(src: &[UOp], arg: &Arg) -> Result<Shape> {
    let Arg::DType(to) = arg else {
        return Err(Error::argument("BITCAST", "needs a dtype"));
    };
    let shape = src[0].shape();
    let from = src[0].dtype();
    let a = from.bytes() as i64;
    let b = to.bytes() as i64;
    if a == b {
        return Ok(shape.clone());
    }
    match shape.last() {
        Some(n) if b > 0 && (a % b == 0 || n.as_int().is_some_and(|n| n * a % b == 0)) => {
            let last = match n {
                Dim::Int(n) => Dim::Int(n * a / b),
                n => n * (a / b),
            };
            Ok(Shape::new(
                shape[..shape.len() - 1].iter().cloned().chain([last]),
            ))
        }
        _ => Err(Error::shape(
            "BITCAST",
            format!("shape {shape} of {from} as {to}"),
        )),
    }
}

fn collapse(op: Op, shape: &Shape, axes: &[u8]) -> Result<Shape> {
    if let Some(&a) = axes.iter().find(|&&a| a as usize >= shape.len()) {
        return Err(ErrorKind::Axis {
            op: op.name().into(),
            axis: a as i64,
            ndim: shape.len(),
        }
        .into());
    }
    if axes.is_empty() {
        return Ok(shape.clone());
    }
    let one = |i: usize| axes.contains(&(i as u8));
    Ok(Shape::new(shape.iter().enumerate().map(|(i, d)| {
        if one(i) { Dim::Int(1) } else { d.clone() }
    })))
}
