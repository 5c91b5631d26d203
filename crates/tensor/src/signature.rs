//! What a call looks like. Flows in: the tree of arguments; flows out: what it has in common with every call
//! that one program stands for, and its tensors and lengths.
//!
//! Invariant: signatures are equal where the trees differ in the values of tensors and lengths alone.

use crate::cell::Cell;
use crate::length::Size;
use crate::tensor::Tensor;
use crate::trace::address;
use crate::tree::{Fixed, Leaf, Rebuild, Tensors};
use monoglot_engine as engine;
use monoglot_uop::{DType, Device, Dim, Result, Shape, UOp};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What calls have in common.
pub(crate) struct Signature {
    parts: Vec<Part>,
    device: Device,
}

/// Nothing, but where tensors are unless told otherwise.
impl Default for Signature {
    fn default() -> Signature {
        Signature {
            parts: Vec::new(),
            device: engine::default_device(),
        }
    }
}

/// What a call is given at a place of its tree.
pub(crate) enum Form<'a> {
    /// A tensor, and which of the tensors it is the same as: itself, where it is the first.
    Tensor {
        same: usize,
        shape: &'a Shape,
        dtype: DType,
        device: Device,
    },
    /// A size.
    Size(&'a UOp),
}

enum Part {
    Tensor {
        /// The first tensor of the same cell, and of the same value.
        cell: usize,
        value: usize,
        shape: Shape,
        dtype: DType,
        device: Device,
    },
    Size(Dim),
    Count(usize),
    Fixed(Box<dyn Fixed>),
}

impl PartialEq for Part {
    fn eq(&self, other: &Part) -> bool {
        match (self, other) {
            (
                Part::Tensor {
                    cell: c,
                    value: v,
                    shape: s,
                    dtype: t,
                    device: d,
                },
                Part::Tensor {
                    cell,
                    value,
                    shape,
                    dtype,
                    device,
                },
            ) => (c, v, t, d) == (cell, value, dtype, device) && s == shape,
            (Part::Size(a), Part::Size(b)) => a == b,
            (Part::Count(a), Part::Count(b)) => a == b,
            (Part::Fixed(a), Part::Fixed(b)) => a.same(&**b),
            _ => false,
        }
    }
}

impl PartialEq for Signature {
    fn eq(&self, other: &Signature) -> bool {
        self.device == other.device && self.parts == other.parts
    }
}

impl Signature {
    /// The tensors, and the sizes that vary, in order. Lengths are variables by number.
    pub(crate) fn forms(&self) -> Vec<Form<'_>> {
        let form = |part| match part {
            &Part::Tensor {
                cell,
                ref shape,
                dtype,
                device,
                ..
            } => Some(Form::Tensor {
                same: cell,
                shape,
                dtype,
                device,
            }),
            Part::Size(Dim::Sym(u)) => Some(Form::Size(u)),
            _ => None,
        };
        self.parts.iter().filter_map(form).collect()
    }

    /// What another one has that this has not, in words; None where they are equal.
    pub(crate) fn differs(&self, other: &Signature) -> Option<String> {
        if self.device != other.device {
            let name = other.device.name();
            return Some(format!("tensors are on {name} unless told otherwise"));
        }
        let pairs = self.parts.iter().zip(&other.parts);
        let mut tensors = 0;
        for (k, (old, new)) in pairs.enumerate() {
            if old != new {
                return Some(match (old, new) {
                    (Part::Tensor { .. }, Part::Tensor { .. }) => {
                        let old = old.to_string();
                        let new = new.to_string();
                        match old == new {
                            true => {
                                format!("tensor {tensors} is the same as another, or no longer")
                            }
                            false => format!("tensor {tensors} is {new}, not {old}"),
                        }
                    }
                    _ => format!("part {k} of the arguments is another"),
                });
            }
            tensors += usize::from(matches!(old, Part::Tensor { .. }));
        }
        (self.parts.len() != other.parts.len()).then(|| "the arguments are more, or fewer".into())
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Part::Tensor {
                shape,
                dtype,
                device,
                ..
            } => write!(f, "{dtype}{shape} on {}", device.name()),
            _ => f.write_str("no tensor"),
        }
    }
}

/// A call.
pub(crate) struct Shown {
    pub(crate) signature: Arc<Signature>,
    /// Its tensors, in order.
    pub(crate) tensors: Vec<Tensor>,
    /// The bound variables in its sizes and shapes, in order.
    pub(crate) lengths: Vec<UOp>,
}

/// What was seen of a call so far.
struct Seen {
    device: Device,
    tensors: Vec<Tensor>,
    lengths: Vec<UOp>,
}

impl Shown {
    /// That of these arguments.
    ///
    /// # Errors
    /// Those that its tensors carry.
    pub(crate) fn of(arguments: &impl Tensors) -> Result<Shown> {
        let mut call = Seen {
            device: engine::default_device(),
            tensors: Vec::new(),
            lengths: Vec::new(),
        };
        let mut parts = Vec::new();
        let mut values: Vec<UOp> = Vec::new();
        let mut failed = Ok(());
        arguments.leaves(&mut |leaf| {
            let part = match leaf {
                Leaf::Tensor(t) => match t.uop() {
                    Ok(value) => call.tensor(t, value, &mut values),
                    Err(e) => {
                        failed = failed.clone().and(Err(e));
                        return;
                    }
                },
                Leaf::Size(size) => Part::Size(call.alike(&size.0)),
                Leaf::Count(n) => Part::Count(n),
                Leaf::Fixed(value) => Part::Fixed(value.kept()),
            };
            parts.push(part);
        });
        failed?;
        let Seen {
            device,
            tensors,
            lengths,
        } = call;
        Ok(Shown {
            signature: Arc::new(Signature { parts, device }),
            tensors,
            lengths,
        })
    }

    /// A call with these tensors and lengths of what is on its own.
    pub(crate) fn given(tensors: Vec<Tensor>, lengths: Vec<UOp>) -> Shown {
        Shown {
            signature: Arc::default(),
            tensors,
            lengths,
        }
    }

    /// The number of the first tensor that has this cell.
    pub(crate) fn number(&self, cell: &Arc<Cell>) -> usize {
        let same = |t: &Tensor| Arc::ptr_eq(&t.0, cell);
        self.tensors.iter().position(same).unwrap_or(usize::MAX)
    }

    /// The values of the lengths.
    pub(crate) fn values(&self) -> Vec<i64> {
        self.lengths.iter().filter_map(UOp::bound_to).collect()
    }
}

impl Seen {
    fn tensor(&mut self, t: &Tensor, value: UOp, values: &mut Vec<UOp>) -> Part {
        let same = |other: &Tensor| address(&other.0) == address(&t.0);
        let here = self.tensors.len();
        let part = Part::Tensor {
            cell: self.tensors.iter().position(same).unwrap_or(here),
            value: values.iter().position(|v| *v == value).unwrap_or(here),
            shape: match value.shape().iter().all(|d| d.as_int().is_some()) {
                true => value.shape().clone(),
                false => {
                    let sizes: Vec<Dim> = value.shape().iter().map(|d| self.alike(d)).collect();
                    Shape::new(sizes)
                }
            },
            dtype: value.dtype(),
            device: value.device().unwrap_or(self.device),
        };
        self.tensors.push(t.clone());
        values.push(value);
        part
    }

    /// A size with numbered variables in place of bound ones.
    fn alike(&mut self, size: &Dim) -> Dim {
        let Dim::Sym(u) = size else {
            return size.clone();
        };
        let mut over = FxHashMap::default();
        for bound in u.toposort().into_iter().filter(|u| u.bound_to().is_some()) {
            let known = self.lengths.iter().position(|l| *l == bound);
            let number = known.unwrap_or(self.lengths.len());
            if known.is_none() {
                self.lengths.push(bound.clone());
            }
            let variable = UOp::variable(number as u64, bound.vmin(), bound.vmax());
            over.insert(bound, variable);
        }
        Dim::Sym(u.substitute(&over))
    }
}

/// A size that was written with these lengths, with others in place of them.
pub(crate) fn with_lengths(size: &Dim, were: &[UOp], are: &[UOp]) -> Dim {
    let Dim::Sym(u) = size else {
        return size.clone();
    };
    let over = were.iter().cloned().zip(are.iter().cloned());
    Dim::simplest(u.substitute(&over.collect()))
}

/// A tree whose tensors are those that `next` gives.
pub(crate) struct Over<'a, F> {
    pub(crate) next: F,
    /// The lengths that its sizes are written with, and those in place of them.
    pub(crate) were: &'a [UOp],
    pub(crate) are: &'a [UOp],
}

impl<F: FnMut(&Tensor) -> Tensor> Rebuild for Over<'_, F> {
    fn tensor(&mut self, old: &Tensor) -> Tensor {
        (self.next)(old)
    }

    fn size(&mut self, old: &Size) -> Size {
        Size(with_lengths(&old.0, self.were, self.are))
    }
}
