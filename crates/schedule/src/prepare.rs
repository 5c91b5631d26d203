//! What is done to the tensor graph before ranges: the tensor rules, arrays without elements, long
//! reductions in two steps, sums of products apart, wide stacks as trees, copies of what files hold. Flows in and out: roots of a
//! tensor graph.

use crate::rangeify::{is_stored, multiplies};
use monoglot_uop::graph::toposort_many;
use monoglot_uop::node::Srcs;
use monoglot_uop::own::FunctionInfo;
use monoglot_uop::{AddrSpace, Arg, Device, Dim, Op, OpSet, ReduceOp, Result, Shape, Target, UOp};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Parts of a STACK that one kernel chooses between.
const WIDE: usize = 16;
/// Most products of which the sum is taken apart.
const SUMS: usize = 256;
/// Elements folded by one loop when there are too few results to share among threads.
const LONG: i64 = 1 << 16;
/// Parts of such a fold, as many as may be.
const PARTS: [i64; 5] = [256, 128, 64, 32, 16];
/// How many times as many elements as results there are where such parts are counted into one array each.
const PLACED: i64 = 256;

/// Ops that show one value in another shape, order or dtype.
const VIEWS: OpSet = OpSet::of(&[
    Op::Reshape,
    Op::Permute,
    Op::Flip,
    Op::Expand,
    Op::Pad,
    Op::Shrink,
    Op::Bitcast,
]);

/// See the module.
pub(crate) fn prepare(
    roots: &[UOp],
    target: &dyn Fn(Device) -> Result<Arc<Target>>,
) -> Result<Vec<UOp>> {
    let all = monoglot_uop::rules::simplify_tensors(&detach_views(&UOp::sink(roots)))?;
    let mut done: FxHashMap<UOp, UOp> = FxHashMap::default();
    for u in toposort_many(all.src(), |_| true) {
        let src: Srcs = u.src().iter().map(|s| done[s].clone()).collect();
        let new = if src[..] == *u.src() {
            u.clone()
        } else {
            u.with_src(src)
        };
        let new = match new.op() {
            Op::Stack if new.src().len() > WIDE && new.dtype() != monoglot_uop::DType::Index => {
                narrow(&new)?
            }
            Op::Reduce => apart(&new, |sum| split(sum, target))?,
            Op::Copy => copied(new),
            Op::Call => stored_arguments(new)?,
            _ => new,
        };
        done.insert(u, without_elements(new));
    }
    Ok(all.src().iter().map(|r| done[r].clone()).collect())
}

/// What an assign writes to is a view, whatever its base is computed from: `AFTER(x, STORE(view(x), v))`
/// becomes `AFTER(x, STORE(view(s), v))` with a stand-in s for x, so that no rule sees through it.
fn detach_views(all: &UOp) -> UOp {
    if !all.ops_below().contains(Op::After) {
        return all.clone();
    }
    all.rebuild(
        &FxHashMap::default(),
        |_| true,
        |u, mut src| {
            if u.op() == Op::After {
                let base = &u.src()[0];
                let stand_in = UOp::scratch(0, base.shape(), base.dtype(), AddrSpace::Reg);
                let over = FxHashMap::from_iter([(base.clone(), stand_in)]);
                for (s, old) in src.iter_mut().zip(u.src()).skip(1) {
                    if s.op() == Op::Store {
                        *s = old.src()[0].substitute(&over).store(&s.src()[1]);
                    }
                }
            }
            u.with_src(src)
        },
    )
}

/// DISK runs no kernels: what is copied from it lies there in one piece, and views are of the copy, which
/// is storage of its own.
fn copied(u: UOp) -> UOp {
    let mut views = Vec::new();
    let mut at = &u.src()[0];
    let disk = at.device() == Some(Device::new("DISK"));
    while disk && (VIEWS.contains(at.op()) || at.op() == Op::Contiguous) {
        if at.op() != Op::Contiguous {
            views.push(at);
        }
        at = &at.src()[0];
    }
    let mut x = at.clone();
    while let Some(piece) = views.last().map(|v| v.over(&x)).filter(is_stored) {
        x = piece;
        views.pop();
    }
    // A constant alone has no storage that could be copied.
    let mut base = &x;
    while base.op() == Op::Reshape {
        base = &base.src()[0];
    }
    let alone = base.op() == Op::Const || base.is_variable();
    let x = u.over(&if alone { x.unary(Op::Contiguous) } else { x });
    views.into_iter().rev().fold(x, |x, view| view.over(&x))
}

/// A user's own work reads storage: each input is one, from its first element on, or a variable.
fn stored_arguments(call: UOp) -> Result<UOp> {
    let Some(info) = FunctionInfo::called(&call) else {
        return Ok(call);
    };
    let Arg::Call(places) = call.arg() else {
        return Ok(call);
    };
    let mut src: Srcs = call.src().into();
    for &k in &places.ins {
        let input = &mut src[k + 1];
        let mut base = &*input;
        while base.op() == Op::Reshape && !base.src()[0].is_variable() {
            base = &base.src()[0];
        }
        if input.is_variable() || base.op() != Op::Shrink && is_stored(base) {
            continue;
        }
        *input = match input.device() {
            Some(_) => input.unary(Op::Contiguous),
            // What is of no device is made where it is wanted.
            None => copied(input.copy_to(info.device)),
        };
    }
    call.try_with_src(src)
}

/// The sums that a sum of several products is, as what flows back to an operand of several matrices, or to a matrix from
/// several steps: each is one that tiles compute.
fn apart(u: &UOp, each: impl Fn(&UOp) -> Result<UOp>) -> Result<UOp> {
    let mut addends = vec![u.src()[0].clone()];
    while let Some(k) = addends.iter().position(|a| a.op() == Op::Add) {
        let sum = addends.remove(k);
        addends.extend_from_slice(sum.src());
        if addends.len() > SUMS {
            break;
        }
    }
    let adds = matches!(u.arg(), Arg::Reduce(ReduceOp::Add, _));
    // A number that is added to all is one for each of them.
    let shape = u.src()[0].shape();
    let sum = |addend: UOp| match addend.shape() == shape {
        true => u.with_src(vec![addend]),
        false => u.with_src(vec![addend.broadcast(shape)]),
    };
    let (products, others): (Vec<UOp>, Vec<UOp>) = addends.into_iter().partition(multiplies);
    if !adds || products.is_empty() {
        return each(u);
    }
    let rest = others.into_iter().reduce(|all, other| all + other);
    let sums = products.into_iter().chain(rest).map(|a| each(&sum(a)));
    let sums: Vec<UOp> = sums.collect::<Result<_>>()?;
    let all = sums.into_iter().reduce(|all, sum| all + sum);
    Ok(all.unwrap_or_else(|| u.clone()))
}

/// An array computed from arrays without elements is a constant.
fn without_elements(u: UOp) -> UOp {
    let empty = |s: &Shape| s.iter().any(|d| d.is(0));
    if !empty(u.src().first().map_or(&Shape::SCALAR, UOp::shape)) || empty(u.shape()) {
        return u;
    }
    let value = match (u.op(), u.arg()) {
        (Op::Reduce, Arg::Reduce(op, _)) => op.identity(u.dtype()),
        (Op::Pad, Arg::Fill(v)) => *v,
        _ => return u,
    };
    UOp::constant(value, u.dtype()).broadcast(u.shape())
}

/// A STACK of stacks, each level stored: kernels of bounded width, most of them one structure. The last
/// one is filled up with zeros, which are cut off again.
fn narrow(u: &UOp) -> Result<UOp> {
    if u.src().len() <= WIDE {
        return Ok(u.clone());
    }
    let part = |parts: &[UOp]| {
        let stack = UOp::new(
            Op::Stack,
            parts.iter().cloned().collect::<Srcs>(),
            Arg::None,
        );
        let stored = UOp::new(Op::Contiguous, vec![stack], Arg::None);
        stored.pad_axis(0, 0, (WIDE - parts.len()) as i64, u.dtype().zero())
    };
    let parts = u.src().chunks(WIDE).map(part).collect::<Result<Srcs>>()?;
    let rows = Dim::from(parts.len() * WIDE);
    let all = narrow(&UOp::new(Op::Stack, parts, Arg::None))?;
    let inner = u.shape()[1..].iter().cloned();
    all.reshape(&Shape::new([rows].into_iter().chain(inner)))?
        .narrow(0, 0, u.src().len() as i64)
}

/// Whether elements are folded where an index is equal to something.
fn is_placed(u: &UOp) -> bool {
    let inside = matches!(u.op(), Op::Where | Op::Cast | Op::And | Op::Mul);
    u.op() == Op::CmpEq || inside && u.src().iter().any(is_placed)
}

/// A long fold of few results in two steps, what the first one gives stored: many fold it.
fn split(u: &UOp, target: &dyn Fn(Device) -> Result<Arc<Target>>) -> Result<UOp> {
    let Arg::Reduce(op, axes) = u.arg() else {
        return Ok(u.clone());
    };
    let src = &u.src()[0];
    let (Some(shape), Some(out)) = (src.shape().ints(), u.shape().ints()) else {
        return Ok(u.clone());
    };
    let results: i64 = out.iter().product();
    let length = shape.iter().product::<i64>() / results.max(1);
    if length < 4096 || u.dtype().is_float() && *op == ReduceOp::Mul {
        return Ok(u.clone());
    }
    let target = u.device().map(target).transpose()?;
    // Where no order matters, parts are for threads to share; what a sum of floats is does not depend on them.
    let exact = *op == ReduceOp::Max || !u.dtype().is_float();
    let shared = !exact
        || target
            .as_ref()
            .is_none_or(|t| t.workgroups || t.threads > 1);
    let few = results < 16 && results * length >= 2 * LONG;
    // What each index adds to a result of many is in parts, where these are short beside what is added.
    let counted = || exact && PLACED * results <= length && length >= LONG && is_placed(src);
    if !shared || !few && !counted() {
        return Ok(u.clone());
    }
    let suits = |k: &i64| length / k >= 1024 && (few || *k == PARTS[PARTS.len() - 1]);
    // The outermost folded axis that divides well is cut; its outer part becomes results.
    for a in axes.iter().map(|&a| a as usize) {
        let Some(&k) = PARTS.iter().find(|k| shape[a] % **k == 0 && suits(k)) else {
            continue;
        };
        let mut cut = shape.clone();
        cut.splice(a..=a, [k, shape[a] / k]);
        let order: Vec<usize> = [a]
            .into_iter()
            .chain((0..cut.len()).filter(|x| *x != a))
            .collect();
        let folded: Vec<usize> = axes.iter().map(|&x| x as usize + 1).collect();
        let first = src
            .reshape(&Shape::of(&cut))?
            .permute(&order)?
            .reduce(*op, &folded)?;
        let stored = UOp::new(Op::Contiguous, vec![first], Arg::None);
        return stored.reduce(*op, &[0])?.reshape(u.shape());
    }
    Ok(u.clone())
}
