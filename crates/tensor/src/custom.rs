//! Operations of one's own. Flows in: a kernel in UOps, source text for a device or a closure, what it gives,
//! and perhaps its gradient; flows out: lazy tensors like any others, whose program has one CALL for it.
//!
//! Invariant: what is wrong with an operation is known when it is written down, but for what only running it
//! finds; and it is a function: equal inputs may be computed with once.

use crate::custom_kernel::{Build, KernelBuilder};
use crate::length::Sizes;
use crate::tensor::Tensor;
use monoglot_engine as engine;
use monoglot_uop::derive::device::common_device;
use monoglot_uop::own::{Derivative, FunctionBody, FunctionInfo, HostBody, SourceBody};
use monoglot_uop::spec::verify_own;
use monoglot_uop::{
    Arg, DType, Device, Dialect, Dim, Error, ErrorKind, Opaque, Opt, Result, Shape, UOp, Written,
    written,
};
use rustc_hash::FxHashMap;
use std::panic::Location;
use std::sync::{Arc, Mutex};

pub(crate) use engine::{HostArguments, HostFunction};

/// An operation of one's own.
///
/// ```
/// use monoglot_tensor::{CustomOp, DType, Output, Tensor};
/// // y = 2x, as a kernel: a loop around a store.
/// let double = CustomOp::kernel("double", |k| {
///     let i = k.range(k.input(0).shape()[0].clone());
///     let twice = k.input(0).at(&[i.clone()]) * 2.0;
///     Ok(k.output(0).at(&[i.clone()]).store(&twice).end(&[i]))
/// })
/// .with_gradient(|b| Ok(vec![Some(&b.gradients[0] * 2.0)]));
///
/// let x = Tensor::new(&[1.0f32, 2.0, 3.0], [3]).parameter();
/// let [y] = double.call([Output::new([3], DType::F32)], &[&x]);
/// assert_eq!(y.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
/// let g = y.sum(.., false).gradient(&[&x])?;
/// assert_eq!(g[0].to_vec::<f32>()?, [2.0, 2.0, 2.0]);
/// # Ok::<(), monoglot_tensor::Error>(())
/// ```
///
/// It is computed when its values are asked for, among whatever else is; its inputs are in storage of their own
/// then, row-major, whatever they are views of. Where the inputs are equal it may be computed once, so it
/// should do nothing but give its outputs.
#[derive(Clone)]
pub struct CustomOp(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    name: String,
    work: Work,
    opts: Option<Vec<Opt>>,
    gradient: Option<Arc<Gradient>>,
    known: Arc<Known>,
}

/// What is done.
#[derive(Clone)]
enum Work {
    Kernel(Arc<Build>),
    Source(SourceBody),
    Host(HostBody),
}

/// An output: its shape and dtype, and what it is before the operation writes it.
#[derive(Clone, Debug)]
pub struct Output {
    shape: Sizes,
    dtype: DType,
    begins: Begins,
}

#[derive(Clone, Debug)]
enum Begins {
    /// As zeros, unless it is found that all of it is written.
    Zero,
    /// As anything.
    Unwritten,
    /// As this tensor.
    Value(Box<Tensor>),
}

/// What the gradient of an operation is computed from.
pub struct Backward {
    /// What flows to each output; zeros where nothing does.
    pub gradients: Vec<Tensor>,
    /// The inputs, and behind them what outputs begin as, in order.
    pub inputs: Vec<Tensor>,
    /// The outputs.
    pub outputs: Vec<Tensor>,
}

/// What flows to the inputs.
type Gradient = dyn Fn(&Backward) -> Result<Vec<Option<Tensor>>> + Send + Sync;

/// The functions that an operation was called as before.
type Known = Mutex<Vec<(Vec<Type>, Option<Opaque>)>>;

/// Functions that are kept of an operation.
const KEPT: usize = 16;

/// What decides what a kernel is: shape, dtype and device of an argument, and whether anything is to be told of
/// what it begins as.
type Type = (Shape, DType, Device, u8);

impl Output {
    /// Of this shape and dtype. What the operation does not write is 0.
    pub fn new(shape: impl Into<Sizes>, dtype: DType) -> Output {
        Output {
            shape: shape.into(),
            dtype,
            begins: Begins::Zero,
        }
    }

    /// Of the shape and dtype of this tensor, which it begins as: what the operation does not write stays, and
    /// it may read what is there. The tensor itself keeps its value.
    pub fn of(tensor: &Tensor) -> Output {
        let dims = tensor
            .dims()
            .map_or(Vec::new(), |d| d.iter().cloned().collect());
        Output {
            shape: Sizes(dims),
            dtype: tensor.dtype().unwrap_or(DType::F32),
            begins: Begins::Value(Box::new(tensor.clone())),
        }
    }

    /// The same, of which the operation writes every element, so that nothing has to be put there before. An
    /// element that it does not write after all has any value.
    pub fn whole(self) -> Output {
        Output {
            begins: Begins::Unwritten,
            ..self
        }
    }
}

impl CustomOp {
    /// A kernel in UOps, which `build` makes for the shapes and dtypes of each call: loops around stores. It is
    /// optimized as any kernel is, as long as its iterations can be seen to write apart; loops run one after the
    /// other as written where they cannot, where it adds atomically, and where it has storage of its own.
    pub fn kernel(
        name: &str,
        build: impl Fn(&KernelBuilder) -> Result<UOp> + Send + Sync + 'static,
    ) -> CustomOp {
        CustomOp::of(name, Work::Kernel(Arc::new(build)))
    }

    /// A function in C for devices whose programs are written in C, such as `CPU:C`: `entry` is defined in
    /// `text`, and is given a pointer to the elements of each output and then of each input, row-major.
    ///
    /// ```
    /// use monoglot_tensor::CustomOp;
    /// let text = "void twice(float *y, const float *x) { for (int i = 0; i < 3; i++) y[i] = 2 * x[i]; }";
    /// // SAFETY: it touches the three elements that both tensors have wherever it is called.
    /// let twice = unsafe { CustomOp::c("twice", text, "twice") };
    /// ```
    ///
    /// # Safety
    /// The function reads and writes within its arguments, writes to the outputs alone, and ends; the text
    /// defines nothing else that another text does. It may be called from several threads at once.
    pub unsafe fn c(name: &str, text: &str, entry: &str) -> CustomOp {
        // SAFETY: the caller says so.
        let source = unsafe { SourceBody::new(Dialect::C, text, entry) };
        CustomOp::of(name, Work::Source(source))
    }

    /// A closure on the elements in the host's memory, called in its turn among the kernels of the program. An
    /// error of it is an error of the realize; so is a panic. What that had begun to write over by then (a state, a
    /// parameter that is stepped) is lost. It may be called from several threads at once, and computes no tensors itself.
    pub fn function(
        name: &str,
        call: impl Fn(
            &mut HostArguments,
        ) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>>
        + Send
        + Sync
        + 'static,
    ) -> CustomOp {
        let function = Arc::new(HostFunction::new(call));
        CustomOp::of(name, Work::Host(HostBody::new(function)))
    }

    fn of(name: &str, work: Work) -> CustomOp {
        CustomOp(Arc::new(Inner {
            name: name.into(),
            work,
            opts: None,
            gradient: None,
            known: Arc::default(),
        }))
    }

    /// The same with a gradient: what flows to each of `Backward::inputs`, None where nothing does.
    pub fn with_gradient(
        self,
        gradient: impl Fn(&Backward) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
    ) -> CustomOp {
        let mut inner = (*self.0).clone();
        inner.gradient = Some(Arc::new(gradient));
        CustomOp(Arc::new(inner))
    }

    /// The same kernel with these Opts in place of those that would be chosen; none where the list is empty.
    pub fn with_opts(self, opts: &[Opt]) -> CustomOp {
        let mut inner = (*self.0).clone();
        inner.opts = Some(opts.to_vec());
        inner.known = Arc::default();
        CustomOp(Arc::new(inner))
    }

    /// Its outputs on these inputs, lazily. What does not fit is an error that the outputs carry.
    #[track_caller]
    pub fn call<const N: usize>(&self, outputs: [Output; N], inputs: &[&Tensor]) -> [Tensor; N] {
        let here = Location::caller();
        let made = self.apply(&outputs, inputs).map_err(|e| e.at(here));
        std::array::from_fn(|k| {
            let value = made.as_ref().map(|all| all[k].clone());
            Tensor::at_line(value.map_err(Error::clone), here)
        })
    }

    fn apply(&self, outputs: &[Output], inputs: &[&Tensor]) -> Result<Vec<UOp>> {
        let name = &self.0.name;
        if outputs.is_empty() {
            let message = "it gives nothing: an operation has at least one output";
            return Err(Error::argument(name, message));
        }
        let inputs = inputs
            .iter()
            .map(|t| t.uop())
            .collect::<Result<Vec<UOp>>>()?;
        let begins = outputs.iter().map(Output::begin);
        let begins = begins.collect::<Result<Vec<UOp>>>()?;
        let all: Vec<UOp> = begins.iter().chain(&inputs).cloned().collect();
        let device = common_device(name, &all)?.unwrap_or_else(engine::default_device);
        if begins.iter().all(|u| u.shape().max_len() == 0) {
            return Ok(begins);
        }
        let lengths = lengths(&all);
        if let (Some(length), false) = (lengths.first(), matches!(self.0.work, Work::Kernel(_))) {
            let (least, most) = length.bounds();
            let message = format!(
                "a length that varies ({least}..={most}) is in a shape, which kernels in UOps take alone"
            );
            return Err(Error::argument(name, message));
        }
        let Some(info) = self.info(outputs, &all, &lengths, device)? else {
            return Ok(begins);
        };
        let inputs: Vec<UOp> = inputs.into_iter().chain(lengths).collect();
        let begun = |k: &usize| matches!(outputs[*k].begins, Begins::Value(_));
        let begun: Vec<usize> = (0..outputs.len()).filter(begun).collect();
        let derivative = self.0.gradient.clone().map(|rule| {
            let flow = move |call: &UOp, g: &[Option<UOp>]| flow(call, g, &begun, &*rule);
            Derivative::new(Arc::new(flow))
        });
        let call = UOp::call_custom(info, &begins, &inputs, derivative)?;
        Ok(call.outputs())
    }

    /// What is done for arguments of these types; None where that is nothing, as its loops have no turns.
    fn info(
        &self,
        outputs: &[Output],
        all: &[UOp],
        lengths: &[UOp],
        device: Device,
    ) -> Result<Option<Opaque>> {
        let kind = |k: usize| match outputs.get(k).map(|o| &o.begins) {
            None | Some(Begins::Zero) => 0,
            Some(Begins::Unwritten) => 1,
            Some(Begins::Value(_)) => 2,
        };
        let shapes = arguments(all, lengths);
        let with_kinds = shapes.iter().enumerate();
        let types: Vec<Type> = with_kinds
            .map(|(k, (shape, dtype))| (shape.clone(), *dtype, device, kind(k)))
            .collect();
        let mut known = self.0.known.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((_, info)) = known.iter().find(|(of, _)| *of == types) {
            return Ok(info.clone());
        }
        drop(known);
        let info = self.made(outputs, &shapes, device)?.map(Opaque::new);
        known = self.0.known.lock().unwrap_or_else(|e| e.into_inner());
        if known.len() == KEPT {
            known.remove(0);
        }
        known.push((types, info.clone()));
        Ok(info)
    }

    fn made(
        &self,
        outputs: &[Output],
        shapes: &[(Shape, DType)],
        device: Device,
    ) -> Result<Option<FunctionInfo>> {
        let Inner {
            name, work, opts, ..
        } = &*self.0;
        let outs = outputs.len();
        let mut whole: Vec<bool> = outputs
            .iter()
            .map(|o| matches!(o.begins, Begins::Unwritten))
            .collect();
        if opts.is_some() && !matches!(work, Work::Kernel(_)) {
            let message = "Opts are for kernels in UOps";
            return Err(Error::argument(name, message));
        }
        let body = match work {
            Work::Kernel(build) => {
                let kernel =
                    KernelBuilder::new(name, shapes, outs, (device, engine::dialect(device)?))
                        .build(&**build)?;
                let Some(kernel) = kernel else {
                    return Ok(None);
                };
                let found = checked(name, &kernel, outs)?;
                for (promised, found) in whole.iter_mut().zip(&found.whole) {
                    *promised |= found;
                }
                let opts = match opts {
                    Some(opts) => Some(&opts[..]),
                    None if found.apart => None,
                    None => Some(&[][..]),
                };
                FunctionBody::Kernel(match opts {
                    Some(opts) => engine::settled(&kernel, opts, device)?,
                    None => kernel,
                })
            }
            Work::Source(source) => {
                engine::check_source(name, source, device)?;
                FunctionBody::Source(source.clone())
            }
            Work::Host(function) => {
                let shapes = shapes.iter().map(|(shape, _)| shape.clone());
                FunctionBody::Host(function.on(shapes))
            }
        };
        Ok(Some(FunctionInfo {
            name: name.clone(),
            device,
            begins: (0..outs).filter(|&k| !whole[k]).collect(),
            body,
        }))
    }
}

impl Output {
    /// What it begins as.
    fn begin(&self) -> Result<UOp> {
        match &self.begins {
            Begins::Value(t) => t.uop(),
            _ if matches!(self.dtype, DType::Index | DType::Void) => {
                let message = format!("no tensor is of {}", self.dtype);
                Err(Error::dtype("output", message))
            }
            _ => {
                let shape = Shape::new(self.shape.0.iter().cloned());
                if shape.iter().any(|d| d.as_int().is_some_and(|n| n < 0)) {
                    let message = format!("{shape} has a negative size");
                    return Err(Error::shape("output", message));
                }
                Ok(UOp::full(self.dtype.zero(), self.dtype, &shape))
            }
        }
    }
}

/// The kernel's spec, and what it does to its outputs.
fn checked(name: &str, kernel: &UOp, outs: usize) -> Result<Written> {
    let why = match verify_own(kernel).map_err(|e| (e.kind().clone(), e)) {
        Ok(()) => return written(kernel, outs).map_err(|why| Error::argument(name, why)),
        Err((ErrorKind::Verify { message, .. }, _)) => message,
        Err((_, e)) => return Err(e),
    };
    Err(Error::argument(name, format!("this is no kernel:\n{why}")))
}

/// The bound variables in the shapes of these values, each once.
fn lengths(all: &[UOp]) -> Vec<UOp> {
    let mut out: Vec<UOp> = Vec::new();
    for d in all.iter().flat_map(|u| u.shape().iter()) {
        let Dim::Sym(size) = d else { continue };
        for u in size.toposort() {
            if u.is_variable() && !out.contains(&u) {
                out.push(u);
            }
        }
    }
    out
}

/// The shapes and dtypes of arguments, in which lengths are variables of the kernel, numbered behind them.
fn arguments(all: &[UOp], lengths: &[UOp]) -> Vec<(Shape, DType)> {
    let mut over: FxHashMap<UOp, UOp> = FxHashMap::default();
    for (slot, length) in (all.len() as u64..).zip(lengths) {
        let (least, most) = length.bounds();
        over.insert(length.clone(), UOp::variable(slot, least, most));
    }
    let size = |d: &Dim| match d {
        Dim::Sym(u) => Dim::Sym(u.substitute(&over)),
        number => number.clone(),
    };
    let shape = |u: &UOp| (Shape::new(u.shape().iter().map(size)), u.dtype());
    all.iter().map(shape).collect()
}

/// What flows to the arguments of a CALL, of which these outputs begin as tensors, by the caller's own rule.
fn flow(
    call: &UOp,
    gradients: &[Option<UOp>],
    begun: &[usize],
    rule: &Gradient,
) -> Result<Vec<Option<UOp>>> {
    let outputs = call.outputs();
    let (Some(info), Arg::Call(places)) = (FunctionInfo::called(call), call.arg()) else {
        return Ok(Vec::new());
    };
    let arguments = &call.src()[1..];
    // Lengths are no inputs that anybody gave.
    let given = places.ins.iter().filter(|&&k| !arguments[k].is_variable());
    let order: Vec<usize> = given.chain(begun).copied().collect();
    let tensors = |all: &mut dyn Iterator<Item = UOp>| all.map(Tensor::from_uop).collect();
    let zeros = |u: &UOp| UOp::full(u.dtype().zero(), u.dtype(), u.shape());
    let flows = gradients.iter().zip(&outputs);
    let backward = Backward {
        gradients: tensors(&mut flows.map(|(g, u)| g.clone().unwrap_or_else(|| zeros(u)))),
        inputs: tensors(&mut order.iter().map(|&k| arguments[k].clone())),
        outputs: tensors(&mut outputs.iter().cloned()),
    };
    let parts = rule(&backward)?;
    if parts.len() != order.len() {
        let message = format!(
            "of `{}` gives {} values for {} inputs",
            info.name,
            parts.len(),
            order.len()
        );
        return Err(ErrorKind::Gradient { message }.into());
    }
    let mut out = vec![None; arguments.len()];
    for (k, part) in order.into_iter().zip(parts) {
        out[k] = part.map(|t| t.uop()).transpose()?;
    }
    Ok(out)
}
