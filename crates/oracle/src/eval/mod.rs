//! A direct evaluator of tensor graphs, the oracle that rules, compositions and devices are checked
//! against. Flows in: UOps of the tensor level and the values of their leaves; flows out: values.
//!
//! Invariant: every elementwise result is what `fold::fold` gives, element by element; reductions of
//! floats run in f64 and are rounded once. Values are dropped as soon as their last reader has run.

use crate::eval_kernel::eval_kernel;
use monoglot_uop::function::inline_functions;
use monoglot_uop::graph::toposort_many;
use monoglot_uop::own::{FunctionBody, FunctionInfo};
use monoglot_uop::{Arg, DType, Error, ErrorKind, Op, Result, Scalar, UOp};
use rustc_hash::FxHashMap;
use std::sync::Arc;

mod value;

pub use value::{Data, Value};
use value::{elementwise, strides_of};

/// The values of `roots`; `leaf` gives those of PARAM, BUFFER and BINARY nodes.
///
/// # Errors
/// What `leaf` returns, and `Unsupported` for ops below the tensor level.
pub fn eval(roots: &[UOp], leaf: &mut dyn FnMut(&UOp) -> Result<Value>) -> Result<Vec<Value>> {
    let roots = inline_functions(roots, |_| false)?;
    let order = toposort_many(&roots, |_| true);
    let mut uses: FxHashMap<&UOp, usize> = FxHashMap::default();
    for u in &order {
        for (i, s) in u.src().iter().enumerate() {
            // Shapes, offsets and indices are kept: a STORE into a view asks for them again.
            *uses.entry(s).or_default() +=
                1 + (i > 0 && u.op().is_movement() && u.op() != Op::Stack) as usize;
        }
    }
    for r in &roots {
        *uses.entry(r).or_default() += 1;
    }
    let mut env = Env {
        values: FxHashMap::default(),
        leaf,
    };
    for u in &order {
        if !is_leaf(u) && (u.dtype() != DType::Void) {
            let value = node(u, &mut env)?;
            env.values.insert(u.clone(), value);
        }
        // What an effect reads is needed until the last AFTER that waits for it has run.
        if u.dtype() != DType::Void {
            release(u, &mut uses, &mut env);
        }
    }
    roots.iter().map(|r| env.get(r)).collect()
}

struct Env<'a> {
    values: FxHashMap<UOp, Value>,
    leaf: &'a mut dyn FnMut(&UOp) -> Result<Value>,
}

impl Env<'_> {
    /// The value of a node; leaves are asked for when something first reads them.
    fn get(&mut self, u: &UOp) -> Result<Value> {
        if let Some(v) = self.values.get(u) {
            return Ok(v.clone());
        }
        if !is_leaf(u) {
            return Err(unsupported(u));
        }
        let v = match u.arg() {
            Arg::Bytes(b) => Value::from_bytes(b, &[b.len() as i64], DType::U8)?,
            _ => (self.leaf)(u)?,
        };
        if v.dtype != u.dtype() {
            let message = format!("a value of {} for a node of {}", v.dtype, u.dtype());
            return Err(Error::dtype(u.op().name(), message));
        }
        self.values.insert(u.clone(), v.clone());
        Ok(v)
    }

    fn ints(&mut self, u: &UOp) -> Result<Vec<i64>> {
        let v = self.get(u)?;
        Ok((0..v.len()).map(|i| v.get(i).to_i128() as i64).collect())
    }
}

fn is_leaf(u: &UOp) -> bool {
    matches!(u.op(), Op::Param | Op::Buffer | Op::Binary)
}

/// One reader fewer for each source of `reader`, and for what effects without readers have read.
fn release(reader: &UOp, uses: &mut FxHashMap<&UOp, usize>, env: &mut Env<'_>) {
    let mut done = vec![reader];
    while let Some(u) = done.pop() {
        for s in u.src() {
            let Some(n) = uses.get_mut(s) else { continue };
            *n -= 1;
            if *n == 0 {
                env.values.remove(s);
                if s.dtype() == DType::Void {
                    done.push(s);
                }
            }
        }
    }
}

fn unsupported(u: &UOp) -> Error {
    ErrorKind::Unsupported {
        op: u.op().name().into(),
        message: "not an op of the tensor level".into(),
    }
    .into()
}

/// An output of a CALL of a user's own kernel.
fn own(call: &UOp, output: usize, env: &mut Env<'_>) -> Result<Value> {
    let Some(FunctionBody::Kernel(kernel)) = FunctionInfo::called(call).map(|f| &f.body) else {
        return Err(unsupported(call));
    };
    let arguments = &call.src()[1..];
    let values = arguments.iter().map(|a| env.get(a));
    let values = values.collect::<Result<Vec<Value>>>()?;
    let mut bytes: Vec<Vec<u8>> = values.iter().map(Value::to_bytes).collect();
    eval_kernel(kernel, &mut bytes, &[])?;
    let of = &values[output];
    Value::from_bytes(&bytes[output], &of.shape, of.dtype)
}

fn node(u: &UOp, env: &mut Env<'_>) -> Result<Value> {
    let s = u.src();
    match (u.op(), u.arg()) {
        (Op::Const, Arg::Const(v, d)) => Ok(Value::filled(*v, &[], *d)),
        (Op::Stack, _) => stack(u, env),
        (Op::Index, _) => {
            let x = env.get(&s[0])?;
            let indices: Vec<Value> = s[1..].iter().map(|i| env.get(i)).collect::<Result<_>>()?;
            Ok(x.index(&indices, u.dtype().zero()))
        }
        (Op::Reduce, Arg::Reduce(op, axes)) if s.len() == 1 => {
            Ok(env.get(&s[0])?.reduce(*op, axes))
        }
        (Op::Bitcast, Arg::DType(d)) => {
            let x = env.get(&s[0])?;
            let mut shape = x.shape.clone();
            if let Some(last) = shape.last_mut() {
                *last = *last * x.dtype.bytes() as i64 / d.bytes() as i64;
            }
            Value::from_bytes(&x.to_bytes(), &shape, *d)
        }
        (Op::Copy | Op::Load | Op::Contiguous | Op::ContiguousBackward | Op::Detach, _)
            if s.len() == 1 =>
        {
            env.get(&s[0])
        }
        (Op::Assert, _) => env.get(&s[0]),
        (Op::GetTuple, Arg::Element(k)) => own(&s[0], *k, env),
        (Op::After, _) => after(u, env),
        (op, _) if op.is_movement() => {
            let x = env.get(&s[0])?;
            movement(u, &x, fill_of(u), env)
        }
        (op, _) if op.is_elementwise() => {
            let args: Vec<Value> = s.iter().map(|i| env.get(i)).collect::<Result<_>>()?;
            elementwise(op, u.dtype(), &args).ok_or_else(|| unsupported(u))
        }
        _ => Err(unsupported(u)),
    }
}

fn fill_of(u: &UOp) -> Scalar {
    match u.arg() {
        Arg::Fill(f) => *f,
        _ => u.dtype().zero(),
    }
}

/// A movement op of one source on the value `x` (which may stand for another: see `after`).
fn movement(u: &UOp, x: &Value, fill: Scalar, env: &mut Env<'_>) -> Result<Value> {
    let s = u.src();
    let strides = strides_of(&x.shape);
    Ok(match (u.op(), u.arg()) {
        (Op::Reshape, _) => Value {
            shape: env.ints(&s[1])?,
            ..x.clone()
        },
        (Op::Permute, Arg::Axes(order)) => {
            let pick = |v: &[i64]| order.iter().map(|&a| v[a as usize]).collect::<Vec<i64>>();
            x.strided(&pick(&x.shape), &pick(&strides), 0)
        }
        (Op::Flip, Arg::Flags(bits)) => {
            let mut st = strides;
            let mut at = 0;
            for i in (0..st.len()).filter(|i| bits >> i & 1 == 1) {
                at += st[i] * (x.shape[i] - 1).max(0);
                st[i] = -st[i];
            }
            x.strided(&x.shape, &st, at)
        }
        (Op::Expand, _) => {
            let to = env.ints(&s[1])?;
            let st: Vec<i64> = strides
                .iter()
                .zip(&x.shape)
                .map(|(&k, &n)| if n == 1 { 0 } else { k })
                .collect();
            x.strided(&to, &st, 0)
        }
        (Op::Shrink, _) => {
            let at = env.ints(&s[1])?;
            let to = env.ints(&s[2])?;
            let start = at.iter().zip(&strides).map(|(a, k)| a * k).sum();
            x.strided(&to, &strides, start)
        }
        (Op::Pad, _) => {
            let at = env.ints(&s[1])?;
            let to = env.ints(&s[2])?;
            x.pad(&at, &to, fill)
        }
        _ => return Err(unsupported(u)),
    })
}

fn stack(u: &UOp, env: &mut Env<'_>) -> Result<Value> {
    let Some(first) = u.src().first() else {
        return Ok(Value::filled(u.dtype().zero(), &[0], u.dtype()));
    };
    let parts: Vec<Value> = u.src().iter().map(|s| env.get(s)).collect::<Result<_>>()?;
    let shape: Vec<i64> = std::iter::once(parts.len() as i64)
        .chain(parts[0].shape.iter().copied())
        .collect();
    macro_rules! join {
        ($v:ident) => {{
            let mut all = Vec::with_capacity(parts.len() * parts[0].len());
            for p in &parts {
                if let Data::$v(d) = &p.data {
                    all.extend_from_slice(d);
                }
            }
            Data::$v(Arc::new(all))
        }};
    }
    let data = match &parts[0].data {
        Data::Bool(_) => join!(Bool),
        Data::Int(_) => join!(Int),
        Data::Float(_) => join!(Float),
    };
    Ok(Value {
        dtype: first.dtype(),
        shape,
        data,
    })
}

/// AFTER(x, STORE(view of x, v), …): x with the viewed elements replaced, store by store. Where each
/// element of the view lies is found by viewing the positions of x instead of its elements.
fn after(u: &UOp, env: &mut Env<'_>) -> Result<Value> {
    let base = &u.src()[0];
    let mut stores: Vec<&UOp> = Vec::new();
    let mut queue: Vec<&UOp> = u.src()[1..].iter().rev().collect();
    while let Some(d) = queue.pop() {
        match d.op() {
            Op::Store => stores.push(d),
            Op::Group | Op::End => queue.extend(d.src().iter().rev()),
            _ => {}
        }
    }
    let mut value: Option<Value> = None;
    for store in stores {
        let target = &store.src()[0];
        let new = env.get(&store.src()[1])?;
        if target == base
            && store.src().len() == 2
            && !new.shape.is_empty() | base.shape().is_empty()
        {
            value = Some(new);
            continue;
        }
        let mut views = Vec::new();
        let mut at = target;
        while at != base && at.op().is_movement() && !at.src().is_empty() {
            views.push(at);
            at = &at.src()[0];
        }
        if at != base {
            continue;
        }
        let old = match value.take() {
            Some(v) => v,
            None => env.get(base)?,
        };
        let positions = Data::Int(Arc::new((0..old.len() as i64).collect()));
        let mut place = Value {
            dtype: DType::I64,
            shape: old.shape.clone(),
            data: positions,
        };
        for v in views.into_iter().rev() {
            place = match v.op() {
                Op::Index => {
                    let at: Vec<Value> = v.src()[1..]
                        .iter()
                        .map(|i| env.get(i))
                        .collect::<Result<_>>()?;
                    place.index(&at, Scalar::Int(-1))
                }
                Op::Bitcast if v.dtype().bytes() == v.src()[0].dtype().bytes() => place,
                _ => movement(v, &place, Scalar::Int(-1), env)?,
            };
        }
        let gate = store.src().get(2).map(|g| env.get(g)).transpose()?;
        value = Some(old.with(&place, &new.bits_as(old.dtype), gate.as_ref()));
    }
    match value {
        Some(v) => Ok(v),
        None => env.get(base),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use monoglot_uop::ScanInfo;
    use monoglot_uop::{Dim, ReduceOp, Shape, fold};

    fn f32s(v: &[f64], shape: &[i64]) -> Value {
        Value {
            dtype: DType::F32,
            shape: shape.to_vec(),
            data: Data::Float(Arc::new(v.to_vec())),
        }
    }

    fn run(u: &UOp, leaves: &[Value]) -> Value {
        let mut leaf = |p: &UOp| Ok(leaves[p.buffer_arg().expect("a PARAM").slot as usize].clone());
        eval(std::slice::from_ref(u), &mut leaf)
            .expect("evaluates")
            .remove(0)
    }

    #[test]
    fn views_and_reductions() {
        let x = UOp::param(0, &Shape::of(&[2, 3]), DType::F32, None);
        let v = f32s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
        let t = x
            .permute(&[1, 0])
            .unwrap()
            .flip(1)
            .unwrap()
            .reduce(ReduceOp::Add, &[1])
            .unwrap();
        assert_eq!(run(&t, &[v.clone()]), f32s(&[9.0, 7.0, 5.0], &[3, 1]));
        let p = x
            .pad(
                &[Dim::Int(0), Dim::Int(1)],
                &Shape::of(&[2, 4]),
                Scalar::Float(9.0),
            )
            .unwrap();
        assert_eq!(
            run(&p, &[v]),
            f32s(&[9.0, 1.0, 2.0, 3.0, 9.0, 4.0, 5.0, 6.0], &[2, 4])
        );
    }

    #[test]
    fn a_store_into_a_view_replaces_its_elements() {
        let x = UOp::param(0, &Shape::of(&[4]), DType::F32, None);
        let half = x.shrink(&[Dim::Int(1)], &Shape::of(&[2])).unwrap();
        let new = half.flip(1).unwrap();
        let u = x.after(&[half.store(&new)]);
        assert_eq!(
            run(&u, &[f32s(&[1.0, 2.0, 3.0, 4.0], &[4])]),
            f32s(&[1.0, 3.0, 2.0, 4.0], &[4])
        );
    }

    #[test]
    fn quick_paths_agree_with_fold() {
        let odd = [f64::NAN, f64::INFINITY, -0.0, 0.0, 1.5, -2.25, 1e30];
        let mut a = Vec::new();
        let mut b = Vec::new();
        for x in odd {
            for y in odd {
                a.push(x as f32 as f64);
                b.push(y as f32 as f64);
            }
        }
        let n = a.len() as i64;
        let a = f32s(&a, &[n]);
        let b = f32s(&b, &[n]);
        for op in [
            Op::Add,
            Op::Sub,
            Op::Mul,
            Op::Div,
            Op::Max,
            Op::CmpLt,
            Op::CmpNe,
            Op::CmpEq,
        ] {
            let to = if op.is_comparison() {
                DType::Bool
            } else {
                DType::F32
            };
            let got = elementwise(op, to, &[a.clone(), b.clone()]).expect("defined");
            for i in 0..n as usize {
                let want = fold::fold(op, DType::F32, to, &[a.get(i), b.get(i)]).expect("defined");
                let same = got.get(i) == want
                    || got.get(i).to_f64() == want.to_f64()
                    || got.get(i).to_f64().is_nan() && want.to_f64().is_nan();
                assert!(
                    same,
                    "{op:?} {:?} {:?}: {:?} {want:?}",
                    a.get(i),
                    b.get(i),
                    got.get(i)
                );
            }
        }
    }

    #[test]
    fn functions_are_inlined() {
        let p = UOp::param(0, &Shape::of(&[2]), DType::F32, None);
        let body = UOp::new(Op::Tuple, vec![&p + &p], Arg::None);
        let x = UOp::param(0, &Shape::of(&[2]), DType::F32, None);
        let y = &x * 3.0;
        let f = UOp::new(Op::Function, vec![body, y], Arg::None);
        let out = UOp::new(Op::GetTuple, vec![f], Arg::Element(0));
        assert_eq!(
            run(&out, &[f32s(&[1.0, 2.0], &[2])]),
            f32s(&[6.0, 12.0], &[2])
        );
    }

    #[test]
    fn scans_are_unrolled() {
        let p = |slot| UOp::param(slot, &Shape::of(&[2]), DType::F32, None);
        let next = &p(0) * 2.0 + &p(1);
        let body = UOp::new(Op::Tuple, vec![next.clone(), &next + &p(2)], Arg::None);
        let x = UOp::param(0, &Shape::of(&[3, 2]), DType::F32, None);
        let first = UOp::param(1, &Shape::of(&[2]), DType::F32, None);
        let inputs = [
            f32s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2]),
            f32s(&[1.0, 0.0], &[2]),
        ];
        for (reversed, last, all) in [
            (false, [23.0, 22.0], [4.0, 2.0, 10.0, 8.0, 24.0, 22.0]),
            (true, [35.0, 34.0], [36.0, 34.0, 18.0, 16.0, 8.0, 6.0]),
        ] {
            let info = ScanInfo {
                length: 3,
                carries: 1,
                slices: 1,
                reversed,
            };
            let src = vec![body.clone(), first.clone(), x.clone(), first.clone()];
            let f = UOp::new(Op::Function, src, Arg::Scan(info));
            let value = |i| UOp::new(Op::GetTuple, vec![f.clone()], Arg::Element(i));
            assert_eq!(run(&value(0), &inputs), f32s(&last, &[2]));
            assert_eq!(run(&value(1), &inputs), f32s(&all, &[3, 2]));
        }
    }
}
