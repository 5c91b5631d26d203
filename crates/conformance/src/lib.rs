//! Operator cases of `cases.json` and `tensors.safetensors`. Flows in: a folder; flows out: which cases
//! passed, which failed and why, and which the device cannot run.
//!
//! All outputs and gradients of a case are realized in one program. A case that panics has failed; a
//! folder that is not of the format is an error.

mod attrs;
mod cases;
mod compare;
mod ops;

use cases::{Array, Case, Folder};
use monoglot_oracle::eval::{Value, eval};
use monoglot_tensor::{Device, Error, ErrorKind, Result, Tensor};
use monoglot_uop::{Shape, UOp};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// How to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The device that computes; the default one if none.
    pub device: Option<String>,
    /// Only cases whose name or ops contain this text.
    pub filter: Option<String>,
    /// Evaluate the tensor graph directly.
    pub oracle: bool,
    /// Say every case with its time.
    pub verbose: bool,
}

/// What became of the cases.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many passed.
    pub passed: usize,
    /// Name and reason of those that failed.
    pub failed: Vec<(String, String)>,
    /// Name and reason of those that the device cannot run.
    pub unsupported: Vec<(String, String)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed.len())?;
        match self.unsupported.len() {
            0 => Ok(()),
            n => write!(f, ", {n} unsupported"),
        }
    }
}

enum Outcome {
    Passed,
    Failed(String),
    Unsupported(String),
}

/// Run the cases of a folder; `say` gets a line for each that failed or is unsupported.
///
/// # Errors
/// `Io` where a file cannot be read, `Format` where it is not of the format.
pub fn run(folder: &Path, options: &Options, say: &mut dyn FnMut(&str)) -> Result<Report> {
    let folder = Folder::read(folder)?;
    let device = match &options.device {
        Some(name) => Device::new(name),
        None => monoglot_engine::default_device(),
    };
    monoglot_engine::set_default_device(device);
    let mut report = Report::default();
    for case in &folder.cases {
        if options.filter.as_ref().is_some_and(|f| !case.matches(f)) {
            continue;
        }
        let started = std::time::Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            check(&folder, case, device, options.oracle)
        }))
        .unwrap_or_else(|p| Outcome::Failed(format!("panicked: {}", message(&*p))));
        let ops = case.ops();
        let shapes = folder.shapes(case);
        match outcome {
            Outcome::Passed => report.passed += 1,
            Outcome::Failed(why) => {
                say(&format!("FAILED {} [{ops}] {shapes}: {why}", case.name));
                report.failed.push((case.name.clone(), why));
            }
            Outcome::Unsupported(why) => {
                say(&format!("unsupported {} [{ops}]: {why}", case.name));
                report.unsupported.push((case.name.clone(), why));
            }
        }
        if options.verbose {
            say(&format!(
                "{:8.1} ms {}",
                started.elapsed().as_secs_f64() * 1e3,
                case.name
            ));
        }
    }
    Ok(report)
}

/// The outputs and gradients of every case of a folder as graphs over leaves without data, one list a case.
/// Cases that cannot be built are left out: `run` says why.
///
/// # Errors
/// As `run`.
pub fn graphs(folder: &Path, device: Device) -> Result<Vec<Vec<UOp>>> {
    let folder = Folder::read(folder)?;
    let leaf = |_, a: &Array| Tensor::empty(&a.shape, a.dtype, device);
    let graph = |case| {
        let built = catch_unwind(AssertUnwindSafe(|| build(&folder, case, &leaf)))
            .ok()?
            .ok()?;
        built
            .tensors
            .iter()
            .map(Tensor::uop)
            .collect::<Result<Vec<_>>>()
            .ok()
    };
    Ok(folder.cases.iter().filter_map(graph).collect())
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
        .unwrap_or_else(|| "without a message".into())
}

fn check(folder: &Folder, case: &Case, device: Device, oracle: bool) -> Outcome {
    let param = |k, a: &Array| Tensor::from_uop(UOp::param(k, &Shape::of(&a.shape), a.dtype, None));
    let upload = |_, a: &Array| Tensor::from_bytes_on(&a.bytes, &a.shape, a.dtype, device);
    let leaf: Leaf = if oracle { &param } else { &upload };
    let built = match build(folder, case, leaf) {
        Ok(b) => b,
        Err(e) => return Outcome::Failed(format!("not built: {e}")),
    };
    let got = if oracle {
        evaluate(folder, case, &built)
    } else {
        realize(&built)
    };
    let got = match got {
        Ok(g) => g,
        Err(e) if matches!(e.kind(), ErrorKind::Unsupported { .. }) => {
            return Outcome::Unsupported(e.to_string());
        }
        Err(e) => return Outcome::Failed(format!("not run: {e}")),
    };
    for (want, got) in built.wanted.iter().zip(&got) {
        let rtol = case.rtol * want.loose;
        let atol = case.atol * want.loose;
        if let Err(why) = compare::compare(want.array, got, rtol, atol) {
            return Outcome::Failed(format!("{}: {why}", want.name));
        }
    }
    Outcome::Passed
}

/// A case as tensors, and what each is compared with.
struct Built<'a> {
    tensors: Vec<Tensor>,
    wanted: Vec<Wanted<'a>>,
}

/// What a tensor is to be.
struct Wanted<'a> {
    name: String,
    array: &'a Array,
    /// By how much the case's tolerances are multiplied: gradients are compared ten times looser.
    loose: f64,
}

/// The tensor of an input, or of an output's weights: its number among them, and its data.
type Leaf<'l> = &'l dyn Fn(u64, &Array) -> Tensor;

fn build<'a>(folder: &'a Folder, case: &Case, leaf: Leaf) -> Result<Built<'a>> {
    let mut values: Vec<(String, Tensor)> = Vec::new();
    for (k, input) in case.inputs.iter().enumerate() {
        let a = folder.array(&format!("{}:{}", case.name, input.name))?;
        values.push((input.name.clone(), leaf(k as u64, a)));
    }
    let find = |values: &[(String, Tensor)], name: &str| -> Result<Tensor> {
        let found = values
            .iter()
            .rev()
            .find(|(n, _)| n == name)
            .map(|(_, t)| t.clone());
        found.ok_or_else(|| {
            format_error(
                &case.name,
                format!("{name:?} is neither an input nor a step's out"),
            )
        })
    };
    for step in &case.steps {
        let args = step
            .inputs
            .iter()
            .map(|n| find(&values, n))
            .collect::<Result<Vec<_>>>()?;
        let out = ops::step(&step.op, &args, &step.attrs)?;
        out.check()?;
        values.push((step.out.clone(), out));
    }
    let mut tensors = Vec::new();
    let mut wanted = Vec::new();
    let mut loss: Option<Tensor> = None;
    for name in &case.outputs {
        let out = find(&values, name)?;
        wanted.push(Wanted {
            name: name.clone(),
            array: folder.array(&format!("{}:{name}", case.name))?,
            loose: 1.0,
        });
        if out.dtype()?.is_float() && case.inputs.iter().any(|i| i.grad) {
            let key = format!("{}:w:{name}", case.name);
            let w = folder.array(&key)?;
            let w = leaf((case.inputs.len() + tensors.len()) as u64, w);
            let part = (&out * &w).sum(.., false);
            loss = Some(loss.map_or_else(|| part.clone(), |l| l + &part));
        }
        tensors.push(out);
    }
    if let Some(loss) = loss {
        let differentiated: Vec<&cases::Input> = case.inputs.iter().filter(|i| i.grad).collect();
        let targets = differentiated
            .iter()
            .map(|i| find(&values[..case.inputs.len()], &i.name))
            .collect::<Result<Vec<_>>>()?;
        let grads = loss.gradient(&targets.iter().collect::<Vec<_>>())?;
        for (i, g) in differentiated.iter().zip(grads) {
            wanted.push(Wanted {
                name: format!("gradient of {}", i.name),
                array: folder.array(&format!("{}:g:{}", case.name, i.name))?,
                loose: 10.0,
            });
            tensors.push(g);
        }
    }
    Ok(Built { tensors, wanted })
}

fn realize(built: &Built<'_>) -> Result<Vec<Array>> {
    Tensor::realize_all(&built.tensors.iter().collect::<Vec<_>>())?;
    built
        .tensors
        .iter()
        .map(|t| {
            let shape = t.shape()?.iter().map(|&n| n as i64).collect();
            Ok(Array {
                dtype: t.dtype()?,
                shape,
                bytes: t.to_bytes()?,
            })
        })
        .collect()
}

/// The graph evaluated directly; PARAMs are the inputs, then the weights of the outputs.
fn evaluate(folder: &Folder, case: &Case, built: &Built<'_>) -> Result<Vec<Array>> {
    let roots = built
        .tensors
        .iter()
        .map(Tensor::uop)
        .collect::<Result<Vec<_>>>()?;
    let mut leaf = |u: &UOp| {
        let slot = u.buffer_arg().map_or(0, |b| b.slot as usize);
        let key = match case.inputs.get(slot) {
            Some(i) => format!("{}:{}", case.name, i.name),
            None => format!("{}:w:{}", case.name, case.outputs[slot - case.inputs.len()]),
        };
        let a = folder.array(&key)?;
        Value::from_bytes(&a.bytes, &a.shape, a.dtype)
    };
    let values = eval(&roots, &mut leaf)?;
    Ok(values
        .iter()
        .map(|v| Array {
            dtype: v.dtype,
            shape: v.shape.clone(),
            bytes: v.to_bytes(),
        })
        .collect())
}

pub(crate) fn format_error(what: impl Into<String>, message: impl Into<String>) -> Error {
    ErrorKind::Format {
        what: what.into(),
        message: message.into(),
    }
    .into()
}
