//! The tensor itself: a shared cell that holds an expression or the error that it could not be built.
//! Flows in: expressions; out: shapes, dtypes, realized values and elements.

use crate::args::Element;
use crate::cell::{Cell, Held, View};
use crate::length::Size;
use crate::trace;
use crate::view::shown;
use monoglot_engine as engine;
use monoglot_uop::derive::device::common_device;
use monoglot_uop::{DType, Device, Error, ErrorKind, Op, Result, Shape, UOp};
use std::panic::Location;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, RwLock};

/// Axes of a tensor, at most: sets of them are kept as bits of one word.
const MOST_AXES: usize = 64;

/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;

/// An array of numbers that is computed when it is asked for.
///
/// Clones share one cell: `assign` and `realize` on one are seen by all. An expression means what it
/// meant when it was written, whatever is assigned later. A tensor that could not be built carries the
/// error until a call that returns a `Result` gives it back.
#[derive(Clone)]
pub struct Tensor(pub(crate) Arc<Cell>);

/// The value, or a tensor that carries the error at the caller's line.
macro_rules! tri {
    ($e:expr) => {
        match $e {
            Ok(v) => v,
            Err(e) => return $crate::Tensor::failed(e),
        }
    };
}
pub(crate) use tri;

impl Tensor {
    /// The dtype.
    ///
    /// # Errors
    /// The error this tensor carries.
    pub fn dtype(&self) -> Result<DType> {
        self.uop().map(|u| u.dtype())
    }

    /// The sizes of the axes; of those that vary, what they are now.
    ///
    /// # Errors
    /// The error this tensor carries.
    #[track_caller]
    pub fn shape(&self) -> Result<Vec<usize>> {
        let here = Location::caller();
        let u = self.uop()?;
        let sizes = match u.shape().now() {
            Some(sizes) => sizes,
            None => u.sizes("shape").map_err(|e| e.at(here))?,
        };
        for (size, &number) in u.shape().iter().zip(&sizes) {
            trace::asked(size, number);
        }
        Ok(sizes.into_iter().map(|n| n as usize).collect())
    }

    /// The size of one axis, as it may stand in the shape of another tensor: a number, or what varies.
    ///
    /// # Errors
    /// The error this tensor carries; `Axis` where there is no such axis.
    #[track_caller]
    pub fn size(&self, axis: i64) -> Result<Size> {
        let here = Location::caller();
        let u = self.uop()?;
        let axis = axis_of("size", axis, u.shape().len()).map_err(|e| e.at(here))?;
        Ok(Size(u.shape()[axis].clone()))
    }

    /// The shape, whose dimensions may be symbolic.
    ///
    /// # Errors
    /// The error this tensor carries.
    pub fn dims(&self) -> Result<Shape> {
        self.uop().map(|u| u.shape().clone())
    }

    /// The number of axes.
    ///
    /// # Errors
    /// The error this tensor carries.
    pub fn ndim(&self) -> Result<usize> {
        self.uop().map(|u| u.shape().len())
    }

    /// The number of elements.
    ///
    /// # Errors
    /// As `shape`.
    #[track_caller]
    pub fn numel(&self) -> Result<usize> {
        Ok(self.shape()?.iter().product())
    }

    /// The device that holds it, or will.
    ///
    /// # Errors
    /// The error this tensor carries.
    pub fn device(&self) -> Result<Device> {
        self.uop()
            .map(|u| u.device().unwrap_or_else(engine::default_device))
    }

    /// Ok, or the error this tensor carries.
    ///
    /// # Errors
    /// The error this tensor carries.
    pub fn check(&self) -> Result<()> {
        self.uop().map(|_| ())
    }

    /// The expression.
    ///
    /// # Errors
    /// The error this tensor carries.
    pub fn uop(&self) -> Result<UOp> {
        trace::read(&self.0, |held| held.value.clone())
    }

    /// Compute it and keep the result: from now on this tensor is a leaf.
    ///
    /// # Errors
    /// The error this tensor carries, or what went wrong in compiling or running, with the line that
    /// built this tensor.
    pub fn realize(&self) -> Result<()> {
        Tensor::realize_all(&[self])
    }

    /// Compute several tensors in one program; each becomes a leaf, and so does what a view among them is a
    /// view of, if that was assigned.
    ///
    /// # Errors
    /// As `realize`; nothing is changed then. Where data is out of range, these tensors are what they were
    /// before all the assigns that this was to do, so that what follows does not meet that data again.
    pub fn realize_all(tensors: &[&Tensor]) -> Result<()> {
        let mut roots: Vec<UOp> = tensors.iter().map(|t| t.uop()).collect::<Result<_>>()?;
        let mut cells: Vec<Tensor> = tensors.iter().map(|&t| t.clone()).collect();
        for k in 0..tensors.len() {
            if let Some((base, u)) = tensors[k].assigned_base(&roots[k])
                && !cells.iter().any(|c| c.is_clone_of(&base))
            {
                cells.push(base);
                roots.push(u);
            }
        }
        if trace::remember(&roots) {
            return Ok(());
        }
        let done = engine::realize(&roots).map_err(|e| {
            if let ErrorKind::OutOfRange { .. } = e.kind() {
                take_back(&cells, &roots);
            }
            // The line is the first tensor's: an error that has one keeps it.
            tensors.iter().fold(e, |e, t| e.at(t.0.line))
        })?;
        let done = apart(&roots, done)?;
        for ((t, old), new) in cells.iter().zip(&roots).zip(done) {
            trace::write(&t.0, |held| held.realized(old, new));
        }
        Ok(())
    }

    /// The elements, row-major. Reading does not rebind the tensor, unless it was assigned: then it is
    /// realized.
    ///
    /// # Errors
    /// As `realize`; `Memory` where the host has no room for the elements; a dtype error where `T` is not
    /// this tensor's element type.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let u = self.uop()?;
        if u.dtype() != T::DTYPE {
            let message = format!(
                "a tensor of {} read as {}; cast it first",
                u.dtype(),
                T::DTYPE
            );
            return Err(Error::dtype("to_vec", message).at(Location::caller()));
        }
        self.read(|out, bytes| T::read(bytes, out))
    }

    /// The elements' bytes, row-major, little-endian.
    ///
    /// # Errors
    /// As `to_vec`.
    #[track_caller]
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.read(|out, bytes| out.extend_from_slice(bytes))
    }

    /// What `take` makes of the elements' bytes, which it gets in pieces: as many values of `T` as their
    /// size says.
    #[track_caller]
    fn read<T>(&self, take: impl Fn(&mut Vec<T>, &[u8])) -> Result<Vec<T>> {
        let value = self.value()?;
        let read = || {
            let bytes = value.bytes();
            let mut out = value.room(bytes / size_of::<T>())?;
            let mut piece = vec![0; bytes.min(PIECE)];
            for at in (0..bytes).step_by(PIECE) {
                let piece = &mut piece[..(bytes - at).min(PIECE)];
                value.read(at, piece)?;
                take(&mut out, piece);
            }
            Ok(out)
        };
        read().map_err(|e: Error| e.at(self.0.line))
    }

    /// The value, computed if it must be.
    #[track_caller]
    pub(crate) fn value(&self) -> Result<engine::Value> {
        if self.was_assigned()? {
            self.realize()?;
        }
        let here = Location::caller();
        engine::value(&self.uop()?).map_err(|e| match e.kind() {
            // Not what was written is wrong, but that it is read here.
            ErrorKind::Capture { .. } => e.at(here),
            _ => e.at(self.0.line),
        })
    }

    /// The value, where it is there already; that of an assigned tensor is computed.
    pub(crate) fn known(&self) -> Result<Option<engine::Value>> {
        if self.was_assigned()? {
            return self.value().map(Some);
        }
        engine::realized(&self.uop()?).map_err(|e| e.at(self.0.line))
    }

    /// Whether this tensor, or what it shows a part of, was assigned and has not been realized since.
    pub(crate) fn was_assigned(&self) -> Result<bool> {
        let u = self.uop()?;
        let assigned = trace::read(&self.0, |held| held.assigned);
        Ok(assigned || self.assigned_base(&u).is_some())
    }

    /// What this tensor, whose expression is `u`, shows a part of, with its expression, if that was assigned.
    fn assigned_base(&self, u: &UOp) -> Option<(Tensor, UOp)> {
        let base = self.viewed()?.0?;
        let assigned = |held: &Held| held.value.clone().ok().filter(|_| held.assigned);
        let whole = trace::read(&base.0, assigned)?;
        let mut at = u;
        while *at != whole {
            at = at.op().is_movement().then(|| &at.src()[0])?;
        }
        Some((base, whole))
    }

    /// The one element of a tensor that has one.
    ///
    /// # Errors
    /// As `to_vec`; a shape error where there are more or none.
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        let here = Location::caller();
        let v = self.to_vec::<T>().map_err(|e| e.at(here))?;
        match v[..] {
            [one] => Ok(one),
            _ => Err(Error::shape("item", format!("{} elements, not one", v.len())).at(here)),
        }
    }

    /// The tensor of an expression, as built at the caller's line.
    #[track_caller]
    pub fn from_uop(u: UOp) -> Tensor {
        Tensor::wrap(Ok(u))
    }

    /// A tensor that carries an error, at the caller's line where the error has none.
    #[track_caller]
    pub(crate) fn failed(e: Error) -> Tensor {
        Tensor::wrap(Err(e))
    }

    /// The tensor of an expression, or of an error, as built at this line.
    pub(crate) fn at_line(value: Result<UOp>, line: &'static Location<'static>) -> Tensor {
        value.iter().for_each(|u| u.set_line(line));
        Tensor::made_of(value.and_then(few_axes).map_err(|e| e.at(line)), line, None)
    }

    #[track_caller]
    pub(crate) fn wrap(value: Result<UOp>) -> Tensor {
        Tensor::cell(value, None)
    }

    #[track_caller]
    fn cell(value: Result<UOp>, view: Option<View>) -> Tensor {
        let line = Location::caller();
        value.iter().for_each(|u| u.set_line(line));
        let value = value.and_then(few_axes);
        let value = value.and_then(|u| held(u.dtype()).map(|_| u));
        Tensor::made_of(value.map_err(|e| e.at(line)), line, view)
    }

    /// A tensor as it is told.
    pub(crate) fn made_of(
        value: Result<UOp>,
        line: &'static Location<'static>,
        view: Option<View>,
    ) -> Tensor {
        Tensor(Arc::new(Cell {
            value: RwLock::new(Held::of(value)),
            edition: AtomicU64::new(0),
            line,
            view,
            made: trace::number(),
        }))
    }

    /// A tensor from this one's expression; what `f` reports is an error at the caller's line.
    #[track_caller]
    pub(crate) fn map(&self, f: impl FnOnce(&UOp) -> Result<UOp>) -> Tensor {
        Tensor::map_all(&[self], |u| f(&u[0]))
    }

    /// As `map`, from several tensors; the first error among them is passed on.
    #[track_caller]
    pub(crate) fn map_all(all: &[&Tensor], f: impl FnOnce(&[UOp]) -> Result<UOp>) -> Tensor {
        let us = all.iter().map(|t| t.uop()).collect::<Result<Vec<UOp>>>();
        Tensor::wrap(us.and_then(|us| here(common_device("operation", &us).and_then(|_| f(&us)))))
    }

    /// As `map` for movement: the result remembers what it views, also where it is an error.
    #[track_caller]
    pub(crate) fn view(&self, f: impl Fn(&UOp) -> Result<UOp>) -> Tensor {
        let own = self.uop();
        // A view of a view is a view of the first base, through both.
        let (base, from) = match (self.viewed(), &own) {
            (Some((Some(base), to)), _) => (Arc::downgrade(&base.0), to.clone()),
            (_, Ok(u)) => (
                Arc::downgrade(&self.0),
                UOp::param(0, u.shape(), u.dtype(), u.device()),
            ),
            (_, Err(e)) => return Tensor::failed(e.clone()),
        };
        let value = own.and_then(|u| here(f(&u)));
        let to = match value {
            Ok(_) => f(&from).ok(),
            Err(_) => Some(from),
        };
        Tensor::cell(value, to.map(|to| View { base, to }))
    }

    /// Whether the two are clones of one tensor: what is assigned to one is the other's value too.
    pub fn is_clone_of(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What this tensor is a view of, if anybody has that still, and how.
    pub(crate) fn viewed(&self) -> Option<(Option<Tensor>, &UOp)> {
        self.0
            .view
            .as_ref()
            .map(|v| (v.base.upgrade().map(Tensor), &v.to))
    }

    /// Another value from now on, by an assignment.
    pub(crate) fn set(&self, value: Result<UOp>) {
        trace::write(&self.0, |held| held.assign(value));
    }

    /// Let this tensor be another one's value from now on, for all clones. Unlike `assign` it writes no
    /// storage, and shape and dtype are the other's too. The result is this tensor.
    pub fn rebind(&self, value: &Tensor) -> Tensor {
        let value = value.uop();
        trace::write(&self.0, |held| *held = Held::of(value));
        self.clone()
    }

    /// As `set`, of what `f` makes of the value that is there; an error leaves it.
    pub(crate) fn update(&self, f: impl FnOnce(&UOp) -> Result<UOp>) -> Result<UOp> {
        trace::write(&self.0, |held| {
            let new = f(held.value.as_ref().map_err(Error::clone)?)?;
            held.assign(Ok(new.clone()));
            Ok(new)
        })
    }
}

/// A value that has not too many axes.
fn few_axes(u: UOp) -> Result<UOp> {
    match u.shape().len() {
        0..=MOST_AXES => Ok(u),
        n => Err(Error::shape(
            "tensor",
            format!("{n} axes, where {MOST_AXES} are the most"),
        )),
    }
}

/// A dtype that tensors have.
///
/// # Errors
/// `DType` where it is one of the compiler's own.
pub(crate) fn held(dtype: DType) -> Result<DType> {
    match dtype {
        DType::Index | DType::Void => {
            let message = format!("no tensor is of {dtype}; places are numbered in i32 or i64");
            Err(Error::dtype("tensor", message))
        }
        _ => Ok(dtype),
    }
}

/// Let tensors that were assigned, and have these expressions still, be what they were before, unless
/// their new values are there.
fn take_back(tensors: &[Tensor], expressions: &[UOp]) {
    let mut views = Vec::new();
    for (t, old) in tensors.iter().zip(expressions) {
        trace::write(&t.0, |held| {
            if !held.assigned || held.value.as_ref() != Ok(old) || old.realized().is_some() {
                return;
            }
            match t.viewed() {
                Some((Some(_), _)) => views.push(t),
                _ => *held = Held::of(held.unassigned()),
            }
        });
    }
    // What they are views of is what it was by now.
    for view in views {
        if let Some((Some(base), to)) = view.viewed() {
            let shown = base.uop().and_then(|u| shown(to, &u));
            trace::write(&view.0, |held| *held = Held::of(shown));
        }
    }
}

/// The values of these expressions. Of one that nothing flows through, to what it is computed from, the value may lie where
/// something else's does: to a gradient both would be one, so it has storage of its own.
fn apart(roots: &[UOp], mut values: Vec<UOp>) -> Result<Vec<UOp>> {
    let shared = |root: &UOp, value: &UOp| {
        let stops = root.ops_below().contains(Op::Detach) && root.op() != Op::After;
        // A new BUFFER is held by its value alone.
        stops && root != value && value.viewed().owners() > 1
    };
    let all = roots.iter().zip(&values).enumerate();
    let of: Vec<usize> = all
        .filter(|(_, (r, v))| shared(r, v))
        .map(|(k, _)| k)
        .collect();
    if of.is_empty() {
        return Ok(values);
    }
    let copies: Vec<UOp> = of
        .iter()
        .map(|&k| values[k].unary(Op::Contiguous))
        .collect();
    for (k, copy) in of.into_iter().zip(engine::realize(&copies)?) {
        values[k] = copy;
    }
    Ok(values)
}

/// An error that our own code made, without our line.
fn here<T>(r: Result<T>) -> Result<T> {
    r.map_err(|e| Error::new(e.kind().clone()))
}

/// The axis that `axis` names among `ndim`, negative ones from the end.
pub(crate) fn axis_of(op: &str, axis: i64, ndim: usize) -> Result<usize> {
    let n = ndim as i64;
    if (-n..n).contains(&axis) {
        return Ok(axis.rem_euclid(n) as usize);
    }
    Err(ErrorKind::Axis {
        op: op.into(),
        axis,
        ndim,
    }
    .into())
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.uop() {
            Ok(u) => write!(f, "Tensor({} {})", u.dtype(), u.shape()),
            Err(e) => write!(f, "Tensor({e})"),
        }
    }
}
