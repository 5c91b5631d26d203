//! What programs take and give. Flows in: tensors and numbers in order; flows out: a call of the program, or the
//! error of what does not fit. Invariant: a call has a value for every length, within its bounds.

use crate::length::Size;
use crate::signature::Shown;
use crate::tensor::Tensor;
use monoglot_engine as engine;
use monoglot_uop::{DType, Device, Dim, Error, ErrorKind, Result, Scalar, Shape, UOp};
use rustc_hash::FxHashMap;

/// One of the things that a program takes or gives.
#[derive(Clone)]
pub struct Port {
    pub(super) name: String,
    pub(super) what: What,
}

/// What goes through it. Lengths that vary are variables, by number.
#[derive(Clone)]
pub(super) enum What {
    Tensor {
        shape: Shape,
        dtype: DType,
        device: Device,
    },
    Size(UOp),
}

/// What is given for an input.
#[derive(Clone)]
pub enum Input {
    /// A tensor.
    Tensor(Tensor),
    /// A size, or the one element of a tensor of integers.
    Integer(i64),
    /// The one element of a tensor of floats.
    Float(f64),
}

/// What a program is called with: `()`, one input, or a tuple, an array, a slice or a vector of them.
#[diagnostic::on_unimplemented(
    message = "a program cannot be called with `{Self}`",
    note = "it is called with `()`, one tensor or number, or a tuple, an array, a slice or a vector of them"
)]
pub trait Inputs {
    /// They, in order.
    fn into_inputs(self) -> Vec<Input>;
}

impl Port {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dtype; None of a size.
    pub fn dtype(&self) -> Option<DType> {
        match self.what {
            What::Tensor { dtype, .. } => Some(dtype),
            What::Size(_) => None,
        }
    }

    /// The device; None of a size.
    pub fn device(&self) -> Option<Device> {
        match self.what {
            What::Tensor { device, .. } => Some(device),
            What::Size(_) => None,
        }
    }

    /// Between what each axis is, both inclusive; of a size, what that is.
    pub fn bounds(&self) -> Vec<(i64, i64)> {
        match &self.what {
            What::Tensor { shape, .. } => shape.iter().map(|d| (d.min(), d.max())).collect(),
            What::Size(u) => vec![u.bounds()],
        }
    }
}

/// Such as `x: f32(4, 1..=128) on CPU`.
impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sizes: Vec<String> = self
            .bounds()
            .into_iter()
            .map(|(least, most)| match least == most {
                true => most.to_string(),
                false => format!("{least}..={most}"),
            })
            .collect();
        let sizes = sizes.join(", ");
        let name = &self.name;
        match &self.what {
            What::Tensor { dtype, device, .. } => write!(f, "{name}: {dtype}({sizes}) on {device}"),
            What::Size(_) => write!(f, "{name}: size {sizes}"),
        }
    }
}

impl What {
    /// A tensor of this expression.
    pub(super) fn of(u: &UOp) -> What {
        What::Tensor {
            shape: u.shape().clone(),
            dtype: u.dtype(),
            device: u.device().unwrap_or_else(engine::default_device),
        }
    }

    pub(super) fn is_tensor(&self) -> bool {
        matches!(self, What::Tensor { .. })
    }
}

macro_rules! given {
    ($($t:ty => |$v:ident| $e:expr;)*) => { $(
        impl From<$t> for Input {
            fn from($v: $t) -> Input { $e }
        }
        impl Inputs for $t {
            fn into_inputs(self) -> Vec<Input> { vec![self.into()] }
        }
    )* };
}
given! {
    Tensor => |t| Input::Tensor(t);
    &Tensor => |t| Input::Tensor(t.clone());
    Size => |s| Input::Integer(s.value());
    &Size => |s| Input::Integer(s.value());
    i32 => |n| Input::Integer(n.into());
    i64 => |n| Input::Integer(n);
    usize => |n| Input::Integer(n as i64);
    f32 => |x| Input::Float(x.into());
    f64 => |x| Input::Float(x);
}

impl<T: Into<Input>> Inputs for Vec<T> {
    fn into_inputs(self) -> Vec<Input> {
        self.into_iter().map(T::into).collect()
    }
}

impl<T: Into<Input>, const N: usize> Inputs for [T; N] {
    fn into_inputs(self) -> Vec<Input> {
        self.into_iter().map(T::into).collect()
    }
}

impl<'a, T> Inputs for &'a [T]
where
    &'a T: Into<Input>,
{
    fn into_inputs(self) -> Vec<Input> {
        self.iter().map(Into::into).collect()
    }
}

impl From<&Input> for Input {
    fn from(input: &Input) -> Input {
        input.clone()
    }
}

macro_rules! tuples {
    ($($($t:ident)*;)*) => { $(
        impl<$($t: Into<Input>),*> Inputs for ($($t,)*) {
            #[allow(non_snake_case)]
            fn into_inputs(self) -> Vec<Input> {
                let ($($t,)*) = self;
                vec![$($t.into()),*]
            }
        }
    )* };
}
tuples! {
    ;
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}

/// The call that gives these inputs; `lengths` are its lengths, as variables.
///
/// # Errors
/// What does not fit, by the input's name.
pub(super) fn shown(ports: &[Port], given: Vec<Input>, lengths: &[UOp]) -> Result<Shown> {
    if given.len() != ports.len() {
        let takes: Vec<String> = ports.iter().map(Port::to_string).collect();
        let message = format!(
            "{} inputs were given, and it takes {}: {}",
            given.len(),
            ports.len(),
            takes.join(", ")
        );
        return Err(Error::argument("call", message));
    }
    let mut tensors = Vec::with_capacity(ports.len());
    let mut sizes: Vec<(&Port, &UOp, i64)> = Vec::new();
    for (port, input) in ports.iter().zip(given) {
        match (&port.what, input) {
            (What::Size(size), Input::Integer(n)) => sizes.push((port, size, n)),
            (What::Size(_), _) => {
                return Err(Error::argument(
                    "call",
                    format!("{port}; it is given a tensor or a float"),
                ));
            }
            (What::Tensor { dtype, device, .. }, input) => {
                let tensor = input.tensor(*dtype, *device)?;
                fits(port, &tensor, &mut sizes)?;
                tensors.push(tensor);
            }
        }
    }
    let values = solved(&sizes, lengths)?;
    let bound = lengths.iter().zip(values).map(|(u, v)| u.bind_to(v));
    Ok(Shown::given(tensors, bound.collect()))
}

impl Input {
    fn tensor(self, dtype: DType, device: Device) -> Result<Tensor> {
        let value = match self {
            Input::Tensor(t) => return Ok(t),
            Input::Integer(n) if dtype.is_int() => {
                let value = Scalar::Int(n.into());
                if value.round_to(dtype) != value {
                    return Err(Error::dtype("call", format!("{n} is no {dtype}")));
                }
                value
            }
            Input::Integer(n) if dtype.is_float() => Scalar::Float(n as f64).round_to(dtype),
            Input::Float(x) if dtype.is_float() => Scalar::Float(x).round_to(dtype),
            Input::Integer(_) | Input::Float(_) => {
                let message = format!("a number was given for a tensor of {dtype}");
                return Err(Error::dtype("call", message));
            }
        };
        let bytes = value.to_bits(dtype).to_le_bytes();
        let tensor = Tensor::from_bytes_on(&bytes[..dtype.bytes()], [0i64; 0], dtype, device);
        tensor.check().map(|()| tensor)
    }
}

/// Whether a tensor may go through a port, but for lengths, which are taken down.
fn fits<'a>(
    port: &'a Port,
    tensor: &Tensor,
    sizes: &mut Vec<(&'a Port, &'a UOp, i64)>,
) -> Result<()> {
    let What::Tensor {
        shape,
        dtype,
        device,
    } = &port.what
    else {
        return Ok(());
    };
    let u = tensor.uop()?;
    let is = u.shape().now().unwrap_or_else(|| u.shape().max_ints());
    if u.dtype() != *dtype {
        let message = format!(
            "{port}; it is given {}, and `cast` makes it that",
            u.dtype()
        );
        return Err(Error::dtype("call", message));
    }
    if u.device().is_some_and(|d| d != *device) {
        let given = tensor.device()?;
        let message = format!("{port}; it is given a tensor on {given}, and `to` brings it there");
        let op = "call".into();
        return Err(ErrorKind::Device { op, message }.into());
    }
    let fixed = |(d, n): (&Dim, &i64)| d.as_int().is_none_or(|d| d == *n);
    if is.len() != shape.len() || !shape.iter().zip(&is).all(fixed) {
        return Err(Error::shape(
            "call",
            format!("{port}; it is given the shape {is:?}"),
        ));
    }
    for (d, n) in shape.iter().zip(is) {
        if let Dim::Sym(u) = d {
            sizes.push((port, u, n));
        }
    }
    Ok(())
}

/// The value of each length, from the sizes that are written with them.
fn solved(sizes: &[(&Port, &UOp, i64)], lengths: &[UOp]) -> Result<Vec<i64>> {
    let mut known: FxHashMap<UOp, Scalar> = FxHashMap::default();
    for (port, u, n) in sizes {
        let bounds = u.bounds();
        if !(bounds.0..=bounds.1).contains(n) {
            return Err(Error::shape("call", format!("{port}; it is given {n}")));
        }
        if lengths.contains(u) {
            known
                .entry((*u).clone())
                .or_insert(Scalar::Int((*n).into()));
        }
    }
    // A length of which only expressions are given is that which makes the first of them right.
    for length in lengths {
        if known.contains_key(length) {
            continue;
        }
        let (least, most) = length.bounds();
        let right = |value: &i64| {
            let mut tried = known.clone();
            tried.insert(length.clone(), Scalar::Int((*value).into()));
            let now = |(_, u, n): &(&Port, &UOp, i64)| {
                u.sym_eval(&tried).is_none_or(|v| v.as_int() == Some(*n))
            };
            sizes.iter().all(now)
        };
        let found = (least..=most.min(least.saturating_add(MOST_TRIED))).find(right);
        let value = found.unwrap_or(least);
        known.insert(length.clone(), Scalar::Int(value.into()));
    }
    for (port, u, n) in sizes {
        let value = u.sym_eval(&known).and_then(Scalar::as_int);
        if value != Some(*n) {
            let told = value.map_or("no number".into(), |v| v.to_string());
            let message = format!("{port}; it is given {n}, and by the others it is {told}");
            return Err(Error::shape("call", message));
        }
    }
    let value = |u: &UOp| known.get(u).and_then(|v| v.as_int()).unwrap_or(0);
    Ok(lengths.iter().map(value).collect())
}

/// Values of a length that are tried, at most.
const MOST_TRIED: i64 = 1 << 16;
