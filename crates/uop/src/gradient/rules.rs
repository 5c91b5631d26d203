//! The derivative of each op: flows in, a node and the gradient of its value; out, what flows to each
//! source. A `match` over the op table; what has no derivative is said to have none.

use super::{cos, failed, scale};
use crate::arg::{Arg, ReduceOp};
use crate::dtype::DType;
use crate::error::Result;
use crate::function::own_sources;
use crate::node::UOp;
use crate::op::{
    Arithmetic, Class, Conversion, Identity, Memory, Movement, Op, OpSet, Order, Reduction,
    Ternary, Transcendental, Unary,
};
use crate::rules::masked_alike;
use crate::scalar::Scalar;
use crate::shape::{Dim, Shape};
use std::f64::consts::LN_2;

/// The sources through which a gradient can flow.
pub(super) fn paths(u: &UOp) -> &[UOp] {
    let s = u.src();
    match u.op() {
        Op::Detach | Op::Trunc | Op::Idiv | Op::Bitcast | Op::Const | Op::Param | Op::Buffer => &[],
        Op::Where => &s[1..],
        Op::Permute | Op::Flip | Op::Reshape | Op::Expand | Op::Pad | Op::Shrink | Op::Index => {
            &s[..1]
        }
        Op::Assert => &s[..1],
        Op::Function => own_sources(u),
        op if op.is_comparison() => &[],
        _ => s,
    }
}

/// A CONST may stand for a whole array: what flows to it is summed.
pub(super) fn fit(to: &UOp, g: UOp) -> Result<UOp> {
    if !to.shape().is_empty() || g.shape().is_empty() {
        return Ok(g);
    }
    let axes: Vec<usize> = (0..g.shape().len()).collect();
    sum(&g, &axes)?.reshape(&Shape::SCALAR)
}

/// A sum over axes (kept with size 1), in f32 where the dtype is narrower.
fn sum(g: &UOp, axes: &[usize]) -> Result<UOp> {
    let d = g.dtype();
    let all = g.cast(d.compute_type()).reduce(ReduceOp::Add, axes)?;
    Ok(masked_alike(&all).unwrap_or(all).cast(d))
}

/// g where `c`, else 0.
fn keep(c: &UOp, g: &UOp) -> UOp {
    c.select(g, &g.like(0.0))
}

/// g·x. Where nothing flows nothing flows on, whatever x is there: what a sum leaves out its derivatives leave out, too.
fn product(g: &UOp, x: &UOp) -> UOp {
    match (g.op(), g.src()) {
        (Op::Where, [c, g, zero]) if is_zero(zero) => keep(c, &(g * x)),
        _ => in_place(g, |g| g * x),
    }
}

/// Ops of an order of positions, of which loops know where it holds. Any other mask would be asked by every term.
const ORDER: OpSet = OpSet::of(&[
    Op::Const,
    Op::Stack,
    Op::Reduce,
    Op::Add,
    Op::Sub,
    Op::Mul,
    Op::CmpLt,
    Op::CmpLe,
    Op::CmpGt,
    Op::CmpGe,
])
.union(OpSet::MOVEMENT);

/// What flows on of g: of a g that positions alone leave out, what flows where they do not.
fn in_place(g: &UOp, on: impl Fn(&UOp) -> UOp) -> UOp {
    match placed(g) {
        Some((c, g)) => keep(&c, &on(&g)),
        None => on(g),
    }
}

/// The positions at which something flows, and what flows there, however views repeat both.
fn placed(g: &UOp) -> Option<(UOp, UOp)> {
    match (g.op(), g.src()) {
        (Op::Where, [c, g, zero]) if is_zero(zero) => {
            let order = ORDER.union(c.ops_below()) == ORDER;
            order.then(|| (c.clone(), g.clone()))
        }
        (Op::Reshape | Op::Expand, [of, ..]) => {
            let (c, flows) = placed(of)?;
            Some((g.over(&c), g.over(&flows)))
        }
        _ => None,
    }
}

fn is_zero(u: &UOp) -> bool {
    u.viewed().const_value().is_some_and(Scalar::is_zero)
}

/// What flows to the sources of `u` when `g` flows to it.
pub(super) fn rule(
    u: &UOp,
    g: &UOp,
    active: &dyn Fn(&UOp) -> bool,
    give: &mut Vec<(UOp, UOp)>,
) -> Result<()> {
    // Where there is no such source, the rule of the op does not ask for it.
    let a = u.src().first().unwrap_or(u);
    let b = u.src().get(1).unwrap_or(u);
    if let Class::Order(Order::After) = u.op().class() {
        return after(u, g, active, give);
    }
    let mut at = At {
        u,
        g,
        a,
        b,
        active,
        give,
    };
    match u.op().class() {
        Class::Unary(op) => at.unary(op)?,
        Class::Transcendental(op) => at.transcendental(op),
        Class::Conversion(Conversion::Cast) if a.dtype().is_float() => {
            at.flow(&[&|| g.cast(a.dtype())]);
        }
        Class::Arithmetic(op) => at.arithmetic(op)?,
        Class::Ternary(op) => match op {
            Ternary::MulAcc => at.flow(&[&|| product(g, b), &|| product(g, a), &|| g.clone()]),
            Ternary::Where => {
                at.flow(&[&|| g.clone(), &|| keep(a, g), &|| a.select(&g.like(0.0), g)]);
            }
        },
        Class::Reduction(Reduction::Reduce) => at.first(reduce(u, g)?),
        Class::Movement(op) => at.movement(op)?,
        Class::Identity(op) => match op {
            Identity::Contiguous | Identity::Assert => at.flow(&[&|| g.clone()]),
            Identity::ContiguousBackward => at.flow(&[&|| g.unary(Op::Contiguous)]),
            Identity::Copy => {
                at.flow(&[&|| a.device().map_or_else(|| g.clone(), |d| g.copy_to(d))]);
            }
            Identity::Detach => {}
        },
        Class::Memory(Memory::Load) => at.flow(&[&|| g.clone()]),
        // No value, no derivative, or none where it is not zero: nothing flows on.
        Class::Leaf(_) | Class::Conversion(Conversion::Cast) | Class::Comparison(_) => {}
        Class::Abstraction(_) | Class::Memory(_) | Class::Order(_) | Class::Code(_) => {
            return none(u);
        }
    }
    Ok(())
}

/// A node with its first sources, what flows to it, and where what flows on goes.
struct At<'a> {
    u: &'a UOp,
    g: &'a UOp,
    a: &'a UOp,
    b: &'a UOp,
    active: &'a dyn Fn(&UOp) -> bool,
    give: &'a mut Vec<(UOp, UOp)>,
}

impl At<'_> {
    /// Part i flows to source i, and is made where that is asked for.
    fn flow(&mut self, parts: &[&dyn Fn() -> UOp]) {
        let asked = self.u.src().iter().zip(parts);
        let asked = asked.filter(|(s, _)| (self.active)(s));
        self.give.extend(asked.map(|(s, part)| (s.clone(), part())));
    }

    /// All that flows on flows to the first source.
    fn first(&mut self, part: UOp) {
        self.give.push((self.a.clone(), part));
    }

    fn unary(&mut self, op: Unary) -> Result<()> {
        let At { u, g, .. } = *self;
        match op {
            Unary::Neg => self.flow(&[&|| scale(g, -1.0)]),
            Unary::Recip => self.flow(&[&|| scale(&(g * &(u * u)), -1.0)]),
            Unary::Sqrt => self.flow(&[&|| scale(g, 0.5).binary(Op::Div, u)]),
            // 0 where there is one.
            Unary::Trunc => {}
            Unary::Not => return none(u),
        }
        Ok(())
    }

    fn transcendental(&mut self, op: Transcendental) {
        let At { u, g, a, .. } = *self;
        match op {
            Transcendental::Exp2 => self.flow(&[&|| scale(&(g * u), LN_2)]),
            Transcendental::Log2 => self.flow(&[&|| scale(g, 1.0 / LN_2).binary(Op::Div, a)]),
            Transcendental::Sin => self.flow(&[&|| g * &cos(a)]),
        }
    }

    fn arithmetic(&mut self, op: Arithmetic) -> Result<()> {
        let At { u, g, a, b, .. } = *self;
        let same = || g.clone();
        match op {
            Arithmetic::Add => self.flow(&[&same, &same]),
            Arithmetic::Sub => self.flow(&[&same, &|| scale(g, -1.0)]),
            Arithmetic::Mul => {
                let times = |x: &UOp| match x.const_value() {
                    Some(c) => in_place(g, |g| scale(g, c.to_f64())),
                    None => product(g, x),
                };
                self.flow(&[&|| times(b), &|| times(a)]);
            }
            Arithmetic::Div => {
                let quotient = |x: &UOp| x.binary(Op::Div, b);
                let below = |g: &UOp| scale(&quotient(&(g * u)), -1.0);
                self.flow(&[&|| quotient(g), &|| in_place(g, below)]);
            }
            // 0 flows where the exponent is 0, and to an exponent ≥ 0 of a base 0.
            Arithmetic::Pow => {
                let zero = g.like(0.0);
                let flat = || a.eq_(&zero) & b.binary(Op::CmpGe, &zero);
                let to_base = || g * &(b * &a.binary(Op::Pow, &(b - 1.0)));
                let to_exponent = || g * &(u * &(a.unary(Op::Log2) * LN_2));
                self.flow(&[&|| b.eq_(&zero).select(&zero, &to_base()), &|| {
                    flat().select(&zero, &to_exponent())
                }]);
            }
            // a − b·floor(a / b)
            Arithmetic::Mod => self.flow(&[&same, &|| scale(&(g * &(a / b)), -1.0)]),
            // A tie shares; where one is NaN, so is the result, and both get all.
            Arithmetic::Max => {
                let part = |a: &UOp, b: &UOp| {
                    let rest = a.eq_(b).select(&scale(g, 0.5), g);
                    a.lt(b).select(&g.like(0.0), &rest)
                };
                self.flow(&[&|| part(a, b), &|| part(b, a)]);
            }
            Arithmetic::Idiv => {}
            Arithmetic::And | Arithmetic::Or | Arithmetic::Xor => return none(u),
            Arithmetic::Shl | Arithmetic::Shr | Arithmetic::Threefry => return none(u),
            Arithmetic::TruncDiv | Arithmetic::TruncMod => return none(u),
        }
        Ok(())
    }

    fn movement(&mut self, op: Movement) -> Result<()> {
        let At { u, g, a, .. } = *self;
        match op {
            Movement::Permute | Movement::Flip | Movement::Reshape | Movement::Expand => {
                self.first(transposed(u, g)?);
            }
            Movement::Pad | Movement::Shrink | Movement::Index => self.first(transposed(u, g)?),
            Movement::Stack => {
                let parts = u.src().iter().enumerate();
                let parts = parts.filter(|(_, s)| (self.active)(s));
                let element = |i: usize| g.at(&[UOp::index_const(i as i64)]);
                self.give
                    .extend(parts.map(|(i, s)| (s.clone(), element(i))));
            }
            // Replicas are one value: each has an equal share in it.
            Movement::Replicated => {
                let replicas = a.shape().max_len() / u.shape().max_len().max(1);
                let share = scale(g, 1.0 / replicas as f64);
                self.first(share.expand(a.shape())?);
            }
            Movement::Bitcast => {}
            Movement::Shuffle => return none(u),
        }
        Ok(())
    }
}

fn none(u: &UOp) -> Result<()> {
    Err(failed(format!("{} has no derivative", u.op().name())))
}

fn reduce(u: &UOp, g: &UOp) -> Result<UOp> {
    let x = &u.src()[0];
    let Arg::Reduce(op, axes) = u.arg() else {
        return Err(failed("a REDUCE without operator"));
    };
    if u.src().len() > 1 {
        return Err(failed("a REDUCE over ranges"));
    }
    let axes: Vec<usize> = axes.iter().map(|&a| a as usize).collect();
    match op {
        ReduceOp::Add => g.expand(x.shape()),
        ReduceOp::Max => {
            // Both of the same bits, wherever the greatest is stored and what it was found among is not.
            let x = &x.unary(Op::Detach);
            let top = x.reduce(ReduceOp::Max, &axes)?;
            let mask = x.eq_(&top.expand(x.shape())?);
            let d = x.dtype().compute_type();
            let count = mask.cast(d).reduce(ReduceOp::Add, &axes)?.cast(x.dtype());
            Ok(keep(&mask, &g.binary(Op::Div, &count).expand(x.shape())?))
        }
        ReduceOp::Mul => Ok(g.expand(x.shape())? * exclusive_products(x, &axes)?),
    }
}

/// The product of all others along `axes`, for every element. No division, so zeros are no special
/// case: products of neighbours are taken up a binary tree, and down it every node hands to each child
/// its own share times the sibling's product.
fn exclusive_products(x: &UOp, axes: &[usize]) -> Result<UOp> {
    let shape = x.shape();
    let kept: Vec<usize> = (0..shape.len()).filter(|i| !axes.contains(i)).collect();
    let order: Vec<usize> = kept.iter().chain(axes).copied().collect();
    let moved = x.permute(&order)?;
    let outer = Dim::product(kept.iter().map(|&i| &shape[i]));
    let n = Dim::product(axes.iter().map(|&i| &shape[i]));
    let rows = |tail: &[i64]| {
        let tail = tail.iter().map(|&n| Dim::Int(n));
        Shape::new([outer.clone()].into_iter().chain(tail))
    };
    let flat = moved.reshape(&Shape::new([outer.clone(), n.clone()]))?;
    let back = Shape::new(order.iter().map(|&i| shape[i].clone()));
    let Dim::Int(n) = n else {
        let share = both_sides(&flat)?.reshape(&back)?;
        return share.permute(&inverse(&order));
    };
    let one = x.dtype().one();
    let mut m = (n.max(1) as u64).next_power_of_two() as i64;
    let mut levels = vec![flat.pad_axis(1, 0, m - n, one)?];
    while m > 1 {
        m /= 2;
        let pairs = levels[levels.len() - 1].reshape(&rows(&[m, 2]))?;
        levels.push(pairs.reduce(ReduceOp::Mul, &[2])?.reshape(&rows(&[m]))?);
    }
    let mut share = UOp::full(one, x.dtype(), &rows(&[1]));
    for level in levels.iter().rev().skip(1) {
        let pairs = rows(&[m, 2]);
        let sibling = level.reshape(&pairs)?.flip(1 << 2)?;
        let down = share.reshape(&rows(&[m, 1]))?.expand(&pairs)?;
        m *= 2;
        share = (down * sibling).reshape(&rows(&[m]))?;
    }
    let share = share.narrow(1, 0, n)?.reshape(&back)?;
    share.permute(&inverse(&order))
}

/// Of rows whose length varies, for every element the product of those before it times that of those behind it.
fn both_sides(x: &UOp) -> Result<UOp> {
    let [rows, n] = x.shape().dims() else {
        return Err(failed("a product of no rows"));
    };
    let pairs = Shape::new([rows, n, n].map(Dim::clone));
    let line = Shape::new([rows, &Dim::Int(1), n].map(Dim::clone));
    let all = x.reshape(&line)?.expand(&pairs)?;
    let place = UOp::count(1, &pairs, DType::I64)?;
    let other = UOp::count(2, &pairs, DType::I64)?;
    let one = UOp::constant(x.dtype().one(), x.dtype());
    let product = |counts: UOp| {
        let these = counts.select(&all, &one).reduce(ReduceOp::Mul, &[2])?;
        these.reshape(x.shape())
    };
    Ok(product(other.lt(&place))? * product(place.lt(&other))?)
}

/// The order that undoes this one.
fn inverse(order: &[usize]) -> Vec<usize> {
    let place = |axis| order.iter().position(|&a| a == axis);
    (0..order.len()).filter_map(place).collect()
}

/// A view transposed: `g`, an array of the shape of the view `u`, added up where its elements come
/// from, in the shape of what `u` views. (For bools: where any of them is true.)
fn transposed(u: &UOp, g: &UOp) -> Result<UOp> {
    let x = &u.src()[0];
    match (u.op(), u.arg()) {
        (Op::Permute, Arg::Axes(order)) => g.permute(&inverse(
            &order.iter().map(|&a| a as usize).collect::<Vec<_>>(),
        )),
        (Op::Flip, Arg::Flags(bits)) => g.flip(*bits),
        (Op::Reshape, _) => g.reshape(x.shape()),
        (Op::Expand, _) => {
            let axes: Vec<usize> = (0..x.shape().len())
                .filter(|&i| x.shape()[i] != u.shape()[i])
                .collect();
            sum(g, &axes)
        }
        (Op::Pad, _) => g.shrink(u.dims_src(1).dims(), x.shape()),
        (Op::Shrink, _) => g.pad(u.dims_src(1).dims(), x.shape(), g.dtype().zero()),
        (Op::Index, _) => index(u, g),
        _ => Err(failed(format!("{} has no derivative", u.op().name()))),
    }
}

/// INDEX: each axis in turn, a one-hot selection of g summed over the positions that were read.
fn index(u: &UOp, g: &UOp) -> Result<UOp> {
    let x = &u.src()[0];
    let indices = &u.src()[1..];
    let rest: Vec<Dim> = x.shape()[indices.len()..].to_vec();
    let sizes = x.shape();
    let lens: Vec<Dim> = indices
        .iter()
        .map(|i| Dim::product(i.shape().iter()))
        .collect();
    let dims = |done: usize| {
        let indexed = sizes[..done].iter().chain(&lens[done..]);
        Shape::new(indexed.chain(&rest).cloned())
    };
    let mut g = g.reshape(&dims(0))?;
    for (k, i) in indices.iter().enumerate() {
        let n = &sizes[k];
        let m = &lens[k];
        if let Some(c) = i.as_int() {
            g = g.pad_axis(k, c, n - (1 + c), g.dtype().zero())?;
            continue;
        }
        // What a gate makes invalid is out of range, where no position is.
        let i = if i.op() == Op::Where && i.src()[2].viewed().is_invalid() {
            &i.src()[1]
        } else {
            i
        };
        // (…, n, m, …): axis k is the position in x, axis k + 1 what was read.
        let d = dims(k);
        let split = |a: &Dim, b: &Dim, others: bool| {
            let other = |n: &Dim| if others { n.clone() } else { Dim::Int(1) };
            let before = d[..k].iter().map(other);
            let after = d[k + 1..].iter().map(other);
            let pair = [a.clone(), b.clone()];
            Shape::new(before.chain(pair).chain(after))
        };
        let one = &Dim::Int(1);
        let full = split(n, m, true);
        let plane = split(n, m, false);
        let at = UOp::count(k, &plane, i.dtype())?;
        let read = i.reshape(&split(one, m, false))?.expand(&plane)?;
        let mask = at.eq_(&read).expand(&full)?;
        let spread = keep(&mask, &g.reshape(&split(one, m, true))?.expand(&full)?);
        g = sum(&spread, &[k + 1])?.reshape(&dims(k + 1))?;
    }
    Ok(g)
}

/// AFTER(x, STORE(view of x, v), …): the last store first, v gets what flows to its elements, and x
/// what is left elsewhere.
fn after(
    u: &UOp,
    g: &UOp,
    active: &dyn Fn(&UOp) -> bool,
    give: &mut Vec<(UOp, UOp)>,
) -> Result<()> {
    let base = &u.src()[0];
    let mut stores = Vec::new();
    let mut queue: Vec<&UOp> = u.src()[1..].iter().rev().collect();
    while let Some(d) = queue.pop() {
        match d.op() {
            Op::Store => stores.push(d),
            Op::Group => queue.extend(d.src().iter().rev()),
            _ => {}
        }
    }
    let mut g = g.clone();
    for store in stores.into_iter().rev() {
        let target = &store.src()[0];
        let value = &store.src()[1];
        let Some(views) = target.views_of(base) else {
            continue;
        };
        let mut seen = g.clone();
        for v in views.iter().rev() {
            seen = v.over(&seen);
        }
        let mut mask = UOp::full(Scalar::Bool(true), DType::Bool, target.shape());
        if let Some(gate) = store.src().get(2) {
            seen = keep(gate, &seen);
            mask = gate.clone();
        }
        if active(value) {
            give.push((value.clone(), seen));
        }
        for v in &views {
            mask = transposed(v, &mask)?;
        }
        g = mask.select(&g.like(0.0), &g);
    }
    if active(base) {
        give.push((base.clone(), g));
    }
    Ok(())
}
