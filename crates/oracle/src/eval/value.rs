//! Arrays of the evaluator: elements in one of three widths, and what movement, reduction and
//! elementwise ops do to them. Flows in: arrays of known shape; out: new arrays, with elements as `fold`
//! defines them.

use monoglot_uop::{DType, Error, Op, ReduceOp, Result, Scalar, fold};
use std::sync::Arc;

/// The elements of a value, row-major. Floats of every width are kept as f64, integers as i64 (u64 by
/// its bits, the invalid index as `i64::MIN`).
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Truth values.
    Bool(Arc<Vec<bool>>),
    /// Any integer type.
    Int(Arc<Vec<i64>>),
    /// Any float type.
    Float(Arc<Vec<f64>>),
}

/// An array of known shape and dtype.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub shape: Vec<i64>,
    /// Elements, row-major.
    pub data: Data,
}

pub(super) fn strides_of(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

/// Visit the positions of a strided view in row-major order.
fn walk(shape: &[i64], strides: &[i64], start: i64, mut visit: impl FnMut(i64)) {
    if shape.contains(&0) {
        return;
    }
    let Some((&inner, outer)) = shape.split_last() else {
        return visit(start);
    };
    let step = strides[outer.len()];
    let mut counter = vec![0i64; outer.len()];
    let mut row = start;
    loop {
        let mut at = row;
        for _ in 0..inner {
            visit(at);
            at += step;
        }
        let mut axis = outer.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            counter[axis] += 1;
            row += strides[axis];
            if counter[axis] < outer[axis] {
                break;
            }
            row -= strides[axis] * counter[axis];
            counter[axis] = 0;
        }
    }
}

macro_rules! map_data {
    ($data:expr, $v:ident => $body:expr) => {
        match $data {
            Data::Bool($v) => Data::Bool(Arc::new($body)),
            Data::Int($v) => Data::Int(Arc::new($body)),
            Data::Float($v) => Data::Float(Arc::new($body)),
        }
    };
}

impl Value {
    /// An array of one value.
    pub fn filled(value: Scalar, shape: &[i64], dtype: DType) -> Value {
        let n = shape.iter().product::<i64>() as usize;
        Value::collect(dtype, shape.to_vec(), std::iter::repeat_n(value, n))
    }

    fn collect(dtype: DType, shape: Vec<i64>, items: impl Iterator<Item = Scalar>) -> Value {
        let data = match dtype {
            DType::Bool => Data::Bool(Arc::new(items.map(Scalar::truthy).collect())),
            d if d.is_float() => Data::Float(Arc::new(items.map(Scalar::to_f64).collect())),
            _ => Data::Int(Arc::new(items.map(stored).collect())),
        };
        Value { dtype, shape, data }
    }

    /// Row-major bytes as an array.
    ///
    /// # Errors
    /// Where the number of bytes is not what shape and dtype need.
    pub fn from_bytes(bytes: &[u8], shape: &[i64], dtype: DType) -> Result<Value> {
        let n = shape.iter().product::<i64>() as usize;
        let w = dtype.bytes();
        if bytes.len() != n * w {
            let message = format!("{} bytes for shape {shape:?} of {dtype}", bytes.len());
            return Err(Error::argument("from_bytes", message));
        }
        let bits = bytes.chunks_exact(w.max(1)).map(|c| {
            let mut word = [0u8; 8];
            word[..w].copy_from_slice(c);
            Scalar::from_bits(u64::from_le_bytes(word), dtype)
        });
        Ok(Value::collect(dtype, shape.to_vec(), bits))
    }

    /// Row-major bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let w = self.dtype.bytes();
        let mut out = Vec::with_capacity(self.len() * w);
        for i in 0..self.len() {
            out.extend_from_slice(&self.get(i).to_bits(self.dtype).to_le_bytes()[..w]);
        }
        out
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match &self.data {
            Data::Bool(v) => v.len(),
            Data::Int(v) => v.len(),
            Data::Float(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at a row-major position.
    pub fn get(&self, i: usize) -> Scalar {
        match &self.data {
            Data::Bool(v) => Scalar::Bool(v[i]),
            Data::Float(v) => Scalar::Float(v[i]),
            Data::Int(v) if self.dtype == DType::U64 => Scalar::Int(v[i] as u64 as i128),
            Data::Int(v) => Scalar::Int(v[i] as i128),
        }
    }

    pub(super) fn strided(&self, shape: &[i64], strides: &[i64], start: i64) -> Value {
        let n = shape.iter().product::<i64>() as usize;
        let data = map_data!(&self.data, v => {
            let mut out = Vec::with_capacity(n);
            walk(shape, strides, start, |at| out.push(v[at as usize]));
            out
        });
        Value {
            dtype: self.dtype,
            shape: shape.to_vec(),
            data,
        }
    }

    pub(super) fn pad(&self, at: &[i64], to: &[i64], fill: Scalar) -> Value {
        let mut out = Value::filled(fill, to, self.dtype);
        let strides = strides_of(to);
        let start = at.iter().zip(&strides).map(|(a, k)| a * k).sum();
        macro_rules! put {
            ($o:ident, $v:ident) => {{
                let o = Arc::make_mut($o);
                let mut i = 0;
                walk(&self.shape, &strides, start, |p| {
                    o[p as usize] = $v[i];
                    i += 1;
                });
            }};
        }
        match (&mut out.data, &self.data) {
            (Data::Bool(o), Data::Bool(v)) => put!(o, v),
            (Data::Int(o), Data::Int(v)) => put!(o, v),
            (Data::Float(o), Data::Float(v)) => put!(o, v),
            _ => {}
        }
        out
    }

    /// INDEX: indices take axes from the left; outside an axis the result is `missing`.
    pub(super) fn index(&self, indices: &[Value], missing: Scalar) -> Value {
        let k = indices.len();
        let strides = strides_of(&self.shape);
        let mut shape: Vec<i64> = Vec::new();
        // Positions (or none) over the indices so far, then times the axes that stay.
        let mut at: Vec<Option<i64>> = vec![Some(0)];
        for (axis, i) in indices.iter().enumerate() {
            shape.extend(&i.shape);
            let mut next = Vec::with_capacity(at.len() * i.len());
            for a in &at {
                for j in 0..i.len() {
                    let j = i.get(j).to_i128();
                    let inside = (0..self.shape[axis] as i128).contains(&j);
                    next.push(a.filter(|_| inside).map(|a| a + j as i64 * strides[axis]));
                }
            }
            at = next;
        }
        let rest = &self.shape[k..];
        shape.extend(rest);
        let row = rest.iter().product::<i64>();
        let element = |p: Option<i64>| p.map_or(missing, |p| self.get(p as usize));
        let mut out = Vec::with_capacity(at.len() * row as usize);
        for a in at {
            out.extend((0..row).map(|r| element(a.map(|a| a + r))));
        }
        Value::collect(self.dtype, shape, out.into_iter())
    }

    /// This array with `new` written at the positions `place` (negative: nowhere) where `gate` holds.
    pub(super) fn with(&self, place: &Value, new: &Value, gate: Option<&Value>) -> Value {
        let mut out = self.clone();
        let Data::Int(at) = &place.data else {
            return out;
        };
        let pick = |v: &Value, i: usize| if v.len() == 1 { 0 } else { i };
        for (i, &p) in at.iter().enumerate() {
            if p < 0 || gate.is_some_and(|g| !g.get(pick(g, i)).truthy()) {
                continue;
            }
            let p = p as usize;
            let j = pick(new, i);
            match (&mut out.data, &new.data) {
                (Data::Bool(o), Data::Bool(v)) => Arc::make_mut(o)[p] = v[j],
                (Data::Int(o), Data::Int(v)) => Arc::make_mut(o)[p] = v[j],
                (Data::Float(o), Data::Float(v)) => Arc::make_mut(o)[p] = v[j],
                _ => {}
            }
        }
        out
    }

    /// The same bits in a dtype of the same width.
    pub(super) fn bits_as(&self, dtype: DType) -> Value {
        if self.dtype == dtype {
            return self.clone();
        }
        let bits =
            (0..self.len()).map(|i| Scalar::from_bits(self.get(i).to_bits(self.dtype), dtype));
        Value::collect(dtype, self.shape.clone(), bits)
    }

    pub(super) fn reduce(&self, op: ReduceOp, axes: &[u8]) -> Value {
        let mut shape = self.shape.clone();
        for &a in axes {
            shape[a as usize] = 1;
        }
        let mut out = Value::filled(op.identity(self.dtype), &shape, self.dtype);
        let mut strides = strides_of(&shape);
        for &a in axes {
            strides[a as usize] = 0;
        }
        let mut i = 0;
        match (&mut out.data, &self.data) {
            (Data::Float(o), Data::Float(v)) => {
                let o = Arc::make_mut(o);
                let mut fold = |f: &dyn Fn(f64, f64) -> f64| {
                    walk(&self.shape, &strides, 0, |p| {
                        o[p as usize] = f(o[p as usize], v[i]);
                        i += 1;
                    })
                };
                match op {
                    ReduceOp::Add => fold(&|a, b| a + b),
                    ReduceOp::Mul => fold(&|a, b| a * b),
                    ReduceOp::Max => fold(&max_float),
                }
                rounded(o, self.dtype);
            }
            (Data::Int(o), Data::Int(v)) => {
                let o = Arc::make_mut(o);
                let unsigned = self.dtype == DType::U64;
                walk(&self.shape, &strides, 0, |p| {
                    let a = &mut o[p as usize];
                    *a = match op {
                        ReduceOp::Add => a.wrapping_add(v[i]),
                        ReduceOp::Mul => a.wrapping_mul(v[i]),
                        ReduceOp::Max if unsigned => (*a as u64).max(v[i] as u64) as i64,
                        ReduceOp::Max => (*a).max(v[i]),
                    };
                    i += 1;
                });
                if self.dtype.bytes() < 8 {
                    for a in o.iter_mut() {
                        *a = stored(Scalar::Int(*a as i128).round_to(self.dtype));
                    }
                }
            }
            (Data::Bool(o), Data::Bool(v)) => {
                let o = Arc::make_mut(o);
                walk(&self.shape, &strides, 0, |p| {
                    let a = &mut o[p as usize];
                    *a = if op == ReduceOp::Mul {
                        *a && v[i]
                    } else {
                        *a || v[i]
                    };
                    i += 1;
                });
            }
            _ => {}
        }
        out
    }
}

fn stored(s: Scalar) -> i64 {
    match s {
        Scalar::Invalid => i64::MIN,
        s => s.to_i128() as i64,
    }
}

fn max_float(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

fn rounded(v: &mut [f64], d: DType) {
    for x in v {
        *x = match d {
            DType::F64 => return,
            DType::F32 => *x as f32 as f64,
            d => Scalar::Float(*x).round_to(d).to_f64(),
        };
    }
}

/// An elementwise op over arrays; a single element stands for all. None where `fold` has no answer.
pub(super) fn elementwise(op: Op, to: DType, args: &[Value]) -> Option<Value> {
    let shape = args
        .iter()
        .map(|a| &a.shape)
        .find(|s| !s.is_empty())
        .cloned()
        .unwrap_or_default();
    let n = shape.iter().product::<i64>() as usize;
    if let Some(data) = quick(op, to, args, n) {
        return Some(Value {
            dtype: to,
            shape,
            data,
        });
    }
    let from = args[0].dtype;
    let mut failed = false;
    let mut v = [Scalar::Bool(false); 3];
    let items = (0..n).map(|i| {
        for (slot, a) in v.iter_mut().zip(args) {
            *slot = a.get(if a.len() == 1 { 0 } else { i });
        }
        fold::fold(op, from, to, &v[..args.len()]).unwrap_or_else(|| {
            failed = true;
            Scalar::Int(0)
        })
    });
    let value = Value::collect(to, shape.clone(), items);
    if failed { None } else { Some(value) }
}

/// The common cases without a Scalar per element; each line is `fold`'s own definition.
fn quick(op: Op, to: DType, args: &[Value], n: usize) -> Option<Data> {
    fn zip<A: Copy, B: Copy, T>(a: &[A], b: &[B], n: usize, f: impl Fn(A, B) -> T) -> Arc<Vec<T>> {
        Arc::new(match (a.len(), b.len()) {
            (1, 1) => (0..n).map(|_| f(a[0], b[0])).collect(),
            (1, _) => b.iter().map(|&b| f(a[0], b)).collect(),
            (_, 1) => a.iter().map(|&a| f(a, b[0])).collect(),
            _ => a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect(),
        })
    }
    let float = |mut v: Arc<Vec<f64>>| {
        if to != DType::F64 {
            rounded(Arc::make_mut(&mut v).as_mut_slice(), to);
        }
        Some(Data::Float(v))
    };
    let small = to != DType::U64 && args[0].dtype != DType::U64;
    let wrap = |v: i64| match to {
        DType::I64 | DType::Index => v,
        DType::I32 => v as i32 as i64,
        d => stored(Scalar::Int(v as i128).round_to(d)),
    };
    match (
        op,
        &args[0].data,
        args.get(1).map(|a| &a.data),
        args.get(2).map(|a| &a.data),
    ) {
        (Op::Where, Data::Bool(p), Some(a), Some(b)) => {
            let at = |len: usize, i: usize| if len == 1 { 0 } else { i };
            macro_rules! select {
                ($a:ident, $b:ident) => {
                    Arc::new(
                        (0..n)
                            .map(|i| {
                                if p[at(p.len(), i)] {
                                    $a[at($a.len(), i)]
                                } else {
                                    $b[at($b.len(), i)]
                                }
                            })
                            .collect(),
                    )
                };
            }
            Some(match (a, b) {
                (Data::Float(a), Data::Float(b)) => Data::Float(select!(a, b)),
                (Data::Int(a), Data::Int(b)) => Data::Int(select!(a, b)),
                (Data::Bool(a), Data::Bool(b)) => Data::Bool(select!(a, b)),
                _ => return None,
            })
        }
        (_, Data::Float(a), Some(Data::Float(b)), None) => match op {
            Op::Add => float(zip(a, b, n, |a, b| a + b)),
            Op::Sub => float(zip(a, b, n, |a, b| a - b)),
            Op::Mul => float(zip(a, b, n, |a, b| a * b)),
            Op::Div => float(zip(a, b, n, |a, b| a / b)),
            Op::Max => float(zip(a, b, n, max_float)),
            Op::CmpLt => Some(Data::Bool(zip(a, b, n, |a, b| a < b))),
            Op::CmpNe => Some(Data::Bool(zip(a, b, n, |a, b| a != b))),
            Op::CmpEq => Some(Data::Bool(zip(a, b, n, |a, b| a == b))),
            _ => None,
        },
        (_, Data::Int(a), Some(Data::Int(b)), None) if small => match op {
            Op::Add => Some(Data::Int(zip(a, b, n, |a, b| wrap(a.wrapping_add(b))))),
            Op::Sub => Some(Data::Int(zip(a, b, n, |a, b| wrap(a.wrapping_sub(b))))),
            Op::Mul => Some(Data::Int(zip(a, b, n, |a, b| wrap(a.wrapping_mul(b))))),
            Op::CmpLt => Some(Data::Bool(zip(a, b, n, |a, b| a < b))),
            Op::CmpNe => Some(Data::Bool(zip(a, b, n, |a, b| a != b))),
            Op::CmpEq => Some(Data::Bool(zip(a, b, n, |a, b| a == b))),
            _ => None,
        },
        (Op::Neg, Data::Float(a), None, _) => float(zip(a, a, n, |a, _| -a)),
        (Op::Cast, Data::Float(a), None, _) if to.is_float() => float(a.clone()),
        (Op::Cast, Data::Int(a), None, _) if small && to.is_int() => {
            Some(Data::Int(zip(a, a, n, |a, _| wrap(a))))
        }
        _ => None,
    }
}
