//! Programs on their own: what a captured function has become, without the function. Flows in: traces of calls,
//! or folders; then tensors, in order; flows out: the tensors that the function would have given.
//!
//! A program has its weights and states itself, by name, and a stream of random numbers. Invariant: what it is
//! called with looks as what it was captured with, or the call is an error that says what is wrong.

mod files;
mod ports;
mod weights;

pub use ports::{Input, Inputs, Port};

use crate::random::{self, State, Stream};
use crate::recorded::{Given, Hidden, Recorded, Traced};
use crate::signature::{Form, Shown};
use crate::tensor::Tensor;
use crate::trace;
use crate::tree::Tensors;
use monoglot_engine as engine;
use monoglot_uop::{Error, ErrorKind, Result, UOp};
use ports::What;
use std::panic::Location;
use std::sync::{Arc, Mutex, Weak};

/// A captured function as a program of its own, with its weights: to be saved in a folder, and started by
/// another process without tracing, scheduling or compiling.
///
/// It begins with the values that what the function reaches had when it was made, and shares nothing with the
/// function from then on. What the function assigns (a cache, a counter, weights that are trained) is kept from
/// call to call, of one shape and dtype, and `save` writes it as it is then. Random numbers are those of a stream of the
/// program's own, which goes on from where the process's was.
///
/// ```
/// use monoglot_tensor::{Program, Tensor, jit};
/// let weight = Tensor::ones([3, 2]);
/// let step = jit(|x: Tensor| x.matmul(&weight).relu())?;
/// let program = step.program(&Tensor::zeros([4, 3]))?;
/// let program = program.named([("weight", &weight)])?.with_inputs(["x"])?;
/// # let folder = std::env::temp_dir().join(format!("monoglot-doc-{}", std::process::id()));
/// program.save(&folder)?;
///
/// // In another process, on a machine that need not have a compiler:
/// let program = Program::load(&folder)?;
/// let y = program.call(&Tensor::ones([4, 3]))?;
/// assert_eq!(y[0].to_vec::<f32>()?, [3.0; 8]);
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), monoglot_tensor::Error>(())
/// ```
pub struct Program {
    recorded: Recorded<Vec<Tensor>>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    /// What it has of its own.
    own: Vec<Own>,
    /// The lengths of calls, as variables by number.
    lengths: Vec<UOp>,
    stream: Stream,
    /// Held by a call that writes, and while it is saved.
    turn: Mutex<()>,
}

/// A tensor of a program's own.
struct Own {
    name: String,
    tensor: Tensor,
    /// The cell that it began as.
    origin: Weak<crate::cell::Cell>,
}

/// Bytes of a name, at most.
const MOST_NAME: usize = 1 << 10;
/// What is no tensor in a safetensors file.
const RESERVED: &str = "__metadata__";

impl Program {
    /// Tensors that look as those of a call, in order.
    pub(crate) fn stand_ins(shown: &Shown) -> Vec<Tensor> {
        let mut out: Vec<Tensor> = Vec::with_capacity(shown.tensors.len());
        for (k, t) in shown.tensors.iter().enumerate() {
            let first = shown.number(&t.0);
            out.push(match first < k {
                true => out[first].clone(),
                false => {
                    let value = t.uop().map(|u| {
                        let device = u.device().unwrap_or_else(engine::default_device);
                        engine::stand_in(u.shape(), u.dtype(), device)
                    });
                    Tensor::made_of(value, t.0.line, None)
                }
            });
        }
        out
    }

    /// That of a trace.
    ///
    /// # Errors
    /// What scheduling and compiling say, and what is wrong with what the function reaches.
    pub(crate) fn of<R: Tensors>(
        traced: Traced<R>,
        shown: &Shown,
        line: &'static Location<'static>,
    ) -> Result<Program> {
        let mut inputs: Vec<Port> = Vec::new();
        let mut argument = Vec::new();
        let mut tensors = 0;
        for form in shown.signature.forms() {
            let what = match form {
                Form::Tensor { same, .. } if same < argument.len() => {
                    argument.push(argument[same]);
                    continue;
                }
                Form::Tensor {
                    shape,
                    dtype,
                    device,
                    ..
                } => {
                    argument.push(tensors);
                    tensors += 1;
                    What::Tensor {
                        shape: shape.clone(),
                        dtype,
                        device,
                    }
                }
                Form::Size(size) => What::Size(size.clone()),
            };
            let name = format!("input{}", inputs.len());
            inputs.push(Port { name, what });
        }
        let (traced, hidden) = traced.apart(&argument, line)?;
        let recorded = traced.compile(Arc::default())?;
        let lengths = (0..).zip(&shown.lengths);
        let lengths = lengths.map(|(k, u)| UOp::variable(k, u.vmin(), u.vmax()));
        let own = hidden.into_iter().enumerate();
        let own = own.map(|(k, Hidden { tensor, origin })| {
            let kind = match recorded.writes_to(&tensor) {
                true => "state",
                false => "weight",
            };
            let name = format!("{kind}{k}");
            Own {
                name,
                tensor,
                origin,
            }
        });
        let now = *random::STATE.lock().unwrap_or_else(|e| e.into_inner());
        Program::whole(own.collect(), recorded, inputs, lengths.collect(), now)
    }

    fn whole(
        own: Vec<Own>,
        recorded: Recorded<Vec<Tensor>>,
        inputs: Vec<Port>,
        lengths: Vec<UOp>,
        stream: State,
    ) -> Result<Program> {
        let mut outputs = Vec::new();
        let tensors: Vec<&What> = inputs.iter().map(|p| &p.what).collect();
        let tensors: Vec<&What> = tensors.into_iter().filter(|w| w.is_tensor()).collect();
        for (k, given) in recorded.gives().into_iter().enumerate() {
            let what = match given {
                Given::Argument(k) => tensors[k].clone(),
                Given::Hidden(t) => What::of(&t.uop()?),
                Given::Root(u) => What::of(u),
            };
            let name = format!("output{k}");
            outputs.push(Port { name, what });
        }
        Ok(Program {
            recorded,
            inputs,
            outputs,
            own,
            lengths,
            stream: Mutex::new(stream),
            turn: Mutex::default(),
        })
    }

    /// What a call takes, in order.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// What a call gives, in order.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// The weights and states of its own by name, and whether a call writes them. What is assigned to one is
    /// what the next call reads.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &Tensor, bool)> {
        let shown = |own: &Own| self.recorded.writes_to(&own.tensor);
        let own = self.own.iter();
        own.map(move |own| (&*own.name, &own.tensor, shown(own)))
    }

    /// How many kernels a call launches.
    pub fn kernels(&self) -> usize {
        self.recorded.captured().kernels()
    }

    /// The same with names for those of its weights and states that are among these tensors, such as
    /// `net.named()`.
    ///
    /// # Errors
    /// `Argument` where two would have one name, or a name is none.
    #[track_caller]
    pub fn named<N: AsRef<str>, T: std::borrow::Borrow<Tensor>>(
        mut self,
        names: impl IntoIterator<Item = (N, T)>,
    ) -> Result<Program> {
        let here = Location::caller();
        for (name, tensor) in names {
            let cell = Arc::downgrade(&tensor.borrow().0);
            for own in &mut self.own {
                if own.origin.ptr_eq(&cell) {
                    own.name = name.as_ref().into();
                }
            }
        }
        let names = self.own.iter().map(|own| &*own.name);
        different(names, "weights").map_err(|e| e.at(here))?;
        Ok(self)
    }

    /// The same with names for what it takes, in order.
    ///
    /// # Errors
    /// `Argument` where there are more or fewer, two are the same, or one is none.
    #[track_caller]
    pub fn with_inputs<N: AsRef<str>>(self, names: impl IntoIterator<Item = N>) -> Result<Program> {
        let here = Location::caller();
        let inputs = renamed(&self.inputs, names, "inputs").map_err(|e| e.at(here))?;
        Ok(Program { inputs, ..self })
    }

    /// The same with names for what it gives, in order.
    ///
    /// # Errors
    /// As `with_inputs`.
    #[track_caller]
    pub fn with_outputs<N: AsRef<str>>(
        self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Program> {
        let here = Location::caller();
        let outputs = renamed(&self.outputs, names, "outputs").map_err(|e| e.at(here))?;
        Ok(Program { outputs, ..self })
    }

    /// Run it. What is given are tensors, and numbers for sizes and for tensors of shape (), in the order of
    /// `inputs`: one, or a tuple, an array or a vector of them.
    ///
    /// # Errors
    /// `Argument`, `Shape`, `DType` and `Device` where what is given is not what it takes; those that tensors
    /// carry; and those of running, as of `Tensor::realize`.
    #[track_caller]
    pub fn call(&self, inputs: impl Inputs) -> Result<Vec<Tensor>> {
        let here = Location::caller();
        let called = || {
            if trace::number() != 0 {
                let message = "a program is no part of a function that is captured: call the \
                               function that it is of";
                let message = message.into();
                return Err(ErrorKind::Capture { message }.into());
            }
            let shown = ports::shown(&self.inputs, inputs.into_inputs(), &self.lengths)?;
            if !self.recorded.bounds().hold(&shown.lengths) {
                let values = shown.values();
                let message = format!("it was captured for other lengths than {values:?}");
                return Err(Error::argument("call", message));
            }
            let (_, writes) = self.recorded.writes();
            let same = |(k, t): (usize, &Tensor)| shown.number(&t.0) < k;
            if writes && shown.tensors.iter().enumerate().any(same) {
                let message = "one tensor is given twice, and the program writes what it is given";
                return Err(Error::argument("call", message));
            }
            let mut given = self.recorded.call(&shown, &self.turn, &self.stream)?;
            for tensor in &mut given {
                // A state is given as it is now: what it becomes is not seen through this.
                if self.own.iter().any(|own| own.tensor.is_clone_of(tensor)) {
                    *tensor = Tensor::made_of(tensor.uop(), here, None);
                }
            }
            Ok(given)
        };
        called().map_err(|e| e.at(here))
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |ports: &[Port]| {
            let all: Vec<String> = ports.iter().map(Port::to_string).collect();
            all.join(", ")
        };
        let inputs = list(&self.inputs);
        let outputs = list(&self.outputs);
        write!(f, "Program({inputs}) -> ({outputs})")
    }
}

/// Ports with other names.
fn renamed<N: AsRef<str>>(
    ports: &[Port],
    names: impl IntoIterator<Item = N>,
    what: &str,
) -> Result<Vec<Port>> {
    let names: Vec<N> = names.into_iter().collect();
    if names.len() != ports.len() {
        let message = format!("{} names for {} {what}", names.len(), ports.len());
        return Err(Error::argument("program", message));
    }
    different(names.iter().map(AsRef::as_ref), what)?;
    let port = |(name, port): (&N, &Port)| Port {
        name: name.as_ref().into(),
        what: port.what.clone(),
    };
    Ok(names.iter().zip(ports).map(port).collect())
}

/// Names that can be told apart.
fn different<'a>(names: impl Iterator<Item = &'a str>, what: &str) -> Result<()> {
    let mut seen = rustc_hash::FxHashSet::default();
    for name in names {
        let is_one = !name.is_empty() && name.len() <= MOST_NAME && name != RESERVED;
        if !is_one || name.contains(char::is_control) {
            let message = format!("{name:?} is no name of one of the {what}");
            return Err(Error::argument("program", message));
        }
        if !seen.insert(name) {
            let message = format!("two of the {what} would be {name:?}");
            return Err(Error::argument("program", message));
        }
    }
    Ok(())
}
