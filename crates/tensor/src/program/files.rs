//! Programs in folders. Flows in: a program, or a folder; flows out: the other, or an error that names the file
//! and what is wrong.
//!
//! | file | what it has |
//! | --- | --- |
//! | `program.json` | what the program takes, gives and keeps; how long the other files are, and all digests |
//! | `program.txt` | the kernels and their order, in the text form |
//! | `weights.safetensors` | weights, states and constants by name |
//! | `code-N.launches`, `code-N.object` | compiled kernels of a device |
//!
//! Invariant: a folder is replaced as a whole, and nothing that it says is believed before it is checked.

use super::ports::What;
use super::{Own, Port, Program, different, weights};
use crate::random::State;
use crate::recorded::{Recorded, SavedFacts};
use crate::tensor::Tensor;
use monoglot_engine as engine;
use monoglot_engine::{Captured, Folder, NewFolder, Saved, SavedSum, Sum};
use monoglot_uop::spec::verify_function;
use monoglot_uop::text::{parse, print};
use monoglot_uop::{AddrSpace, DType, Device, Dim, Error, ErrorKind, Op, Result, Shape, UOp};
use serde::{Deserialize, Serialize};
use std::panic::Location;
use std::path::Path;
use std::sync::Weak;

/// The file that says what the others are.
const MANIFEST: &str = "program.json";

/// Its form: another one is not read.
const FORM: u32 = 2;

/// What stands for the manifest's own digest where that is taken.
const NO_DIGEST: &str = "00000000000000000000000000000000";

/// Its bytes, at most.
const MOST_MANIFEST: u64 = 1 << 28;

/// A length, at most.
const MOST_LENGTH: i64 = 1 << 40;

/// What a constant is called among the weights.
const CONSTANT: &str = "constant";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    form: u32,
    /// Who wrote it.
    monoglot: String,
    inputs: Vec<SavedPort>,
    outputs: Vec<String>,
    own: Vec<SavedOwn>,
    constants: Vec<SavedOwn>,
    /// The bounds of lengths.
    lengths: Vec<(i64, i64)>,
    /// Key and counter of the stream of random numbers.
    random: (u64, u64),
    weights: SavedSum,
    calls: SavedFacts,
    program: Saved,
    /// XXH3 of this file, with zeros in this place.
    digest: String,
}

/// An input: a PARAM, or a size, in the text form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedPort {
    name: String,
    is: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedOwn {
    name: String,
    device: String,
}

impl Program {
    /// Write it into a folder, in place of a program that was saved there before; the folder around that exists.
    /// What is there is whole at every time. Nobody else may write what is made.
    ///
    /// # Errors
    /// `Io` where that cannot be written, or where the folder holds something else; `Unsupported` where the
    /// program has a part that cannot be written; `Argument` where its function stores what has a length that varies.
    #[track_caller]
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        let here = Location::caller();
        self.write(folder.as_ref()).map_err(|e| e.at(here))
    }

    /// The program of a folder.
    ///
    /// Its compiled code is run where this user alone may write the folder and those around it, and where the
    /// code is of this machine; elsewhere its text is compiled, as `DEBUG=1` tells.
    ///
    /// # Errors
    /// `Io` and `Format` where a file is missing, damaged or says what cannot be: the error names it. `NoDevice`
    /// and `Memory` where the machine has not what the program needs.
    #[track_caller]
    pub fn load(folder: impl AsRef<Path>) -> Result<Program> {
        let here = Location::caller();
        let read = || {
            let folder = Folder::open(folder.as_ref())?;
            let bytes = folder.read(MANIFEST, MOST_MANIFEST)?;
            let wrong = |message: String| folder.wrong(MANIFEST, message);
            let manifest = manifest(&bytes).map_err(wrong)?;
            Program::read(manifest, &folder, here).map_err(|e| match e.kind() {
                // What the manifest says is told with its name, as what other files say is with theirs.
                ErrorKind::Argument { op, message } if op != "the environment" => {
                    wrong(message.clone())
                }
                _ => e,
            })
        };
        read().map_err(|e| e.at(here))
    }

    fn write(&self, target: &Path) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(|e| e.into_inner());
        let folder = NewFolder::beside(target, MANIFEST, is_own)?;
        let captured = self.recorded.captured();
        let constants = captured.constants();
        let mut all = Vec::with_capacity(self.own.len() + constants.len());
        let mut own = Vec::with_capacity(self.own.len());
        for Own { name, tensor, .. } in &self.own {
            tensor.realize()?;
            all.push(weights::expression(name, tensor)?);
            own.push(SavedOwn {
                name: name.clone(),
                device: engine::device_for_copy(tensor.device()?).name().into(),
            });
        }
        let mut named = Vec::with_capacity(constants.len());
        for (k, u) in constants.into_iter().enumerate() {
            let name = constant(k, &all);
            if u.shape().ints().is_none() {
                let message =
                    format!("{name} is stored by the function itself, and its length varies");
                return Err(Error::argument("save", message));
            }
            let device = u.device().unwrap_or_else(engine::default_device);
            named.push(SavedOwn {
                name: name.clone(),
                device: engine::device_for_copy(device).name().into(),
            });
            all.push((name, u));
        }
        let stream = *self.stream.lock().unwrap_or_else(|e| e.into_inner());
        let own_tensors: Vec<&Tensor> = self.own.iter().map(|own| &own.tensor).collect();
        let port = |port| SavedPort::of(port, self.lengths.len());
        let manifest = Manifest {
            form: FORM,
            monoglot: env!("CARGO_PKG_VERSION").into(),
            inputs: self.inputs.iter().map(port).collect(),
            outputs: self.outputs.iter().map(|p| p.name.clone()).collect(),
            own,
            constants: named,
            lengths: self.lengths.iter().map(UOp::bounds).collect(),
            random: (stream.key, stream.counter),
            weights: weights::write(&folder, &all)?,
            calls: self.recorded.saved(&own_tensors),
            program: captured.save(&folder)?,
            digest: NO_DIGEST.into(),
        };
        let text = serde_json::to_string_pretty(&manifest);
        let text = text.map_err(|e| Error::argument("save", e.to_string()))?;
        let text = with_digest(&text, NO_DIGEST, &digest(&text));
        folder.write(MANIFEST, |put| put(text.as_bytes()))?;
        folder.finish()
    }

    fn read(
        manifest: Manifest,
        folder: &Folder,
        line: &'static Location<'static>,
    ) -> Result<Program> {
        let mut lengths = Vec::with_capacity(manifest.lengths.len());
        for (k, &(least, most)) in (0..).zip(&manifest.lengths) {
            if !(0..=most).contains(&least) || most > MOST_LENGTH {
                let message = format!("{least}..={most} are no bounds of a length");
                return Err(Error::argument("program", message));
            }
            lengths.push(UOp::variable(k, least, most));
        }
        let mut inputs = Vec::with_capacity(manifest.inputs.len());
        for port in &manifest.inputs {
            inputs.push(port.port(&lengths)?);
        }
        different(manifest.inputs.iter().map(|p| &*p.name), "inputs")?;
        let named = manifest.own.iter().chain(&manifest.constants);
        let wanted: Vec<(&str, Device)> = named
            .map(|own| (&*own.name, Device::new(&own.device)))
            .collect();
        different(wanted.iter().map(|(name, _)| *name), "weights")?;
        let mut own = weights::read(folder, &manifest.weights, &wanted)?;
        let constants = own.split_off(manifest.own.len());
        let own = own.into_iter().zip(manifest.own).map(|(u, own)| Own {
            name: own.name,
            tensor: Tensor::made_of(Ok(u), line, None),
            origin: Weak::new(),
        });
        let own: Vec<Own> = own.collect();
        let words = manifest.calls.words();
        let captured = Captured::load(&manifest.program, folder, &constants, lengths.len(), words)?;
        let tensors = own.iter().map(|own| own.tensor.clone());
        let tensors: Vec<Tensor> = tensors.collect();
        let arguments: Vec<&Port> = inputs.iter().filter(|p| p.what.is_tensor()).collect();
        let recorded = Recorded::of_saved(
            manifest.calls,
            captured,
            &tensors,
            arguments.len(),
            &lengths,
            line,
        )?;
        let looks: Vec<What> = arguments.iter().map(|p| p.what.clone()).collect();
        recorded.check_inputs(|k| match looks.get(k) {
            Some(What::Tensor { shape, dtype, .. }) => Some((shape.clone(), *dtype)),
            _ => None,
        })?;
        let (key, counter) = manifest.random;
        let stream = State { key, counter };
        let program = Program::whole(own, recorded, inputs, lengths, stream)?;
        program.with_outputs(&manifest.outputs)
    }
}

/// A manifest of the form that is read.
fn manifest(bytes: &[u8]) -> std::result::Result<Manifest, String> {
    #[derive(Deserialize)]
    struct Form {
        form: u32,
        monoglot: String,
    }
    let of_json = |e: serde_json::Error| format!("is no saved program: {e}");
    let Form { form, monoglot } = serde_json::from_slice(bytes).map_err(of_json)?;
    if form != FORM {
        let here = env!("CARGO_PKG_VERSION");
        return Err(format!(
            "is of form {form}, which version {monoglot} wrote; this version, {here}, reads form {FORM}: save \
             the program with this one"
        ));
    }
    let manifest: Manifest = serde_json::from_slice(bytes).map_err(of_json)?;
    let text = String::from_utf8_lossy(bytes);
    if digest(&with_digest(&text, &manifest.digest, NO_DIGEST)) != manifest.digest {
        return Err("is damaged: its digest is not the one that it was saved with".into());
    }
    Ok(manifest)
}

/// The digest of a text, as a manifest has it.
fn digest(text: &str) -> String {
    format!("{:032x}", Sum::of(text.as_bytes()).digest)
}

/// A manifest with another digest in its last place.
fn with_digest(text: &str, old: &str, new: &str) -> String {
    match text.rsplit_once(old) {
        Some((before, after)) => [before, new, after].concat(),
        None => text.into(),
    }
}

/// What constant `k` is called, unlike what is there.
fn constant(k: usize, all: &[(String, UOp)]) -> String {
    let mut name = format!("{CONSTANT}{k}");
    while all.iter().any(|(other, _)| *other == name) {
        name.push('_');
    }
    name
}

impl SavedPort {
    /// Its slot is behind those of so many lengths.
    fn of(port: &Port, lengths: usize) -> SavedPort {
        let is = match &port.what {
            What::Size(size) => print(size),
            What::Tensor {
                shape,
                dtype,
                device,
            } => print(&UOp::param(lengths as u64, shape, *dtype, Some(*device))),
        };
        SavedPort {
            name: port.name.clone(),
            is: is.trim_end().into(),
        }
    }

    fn port(&self, lengths: &[UOp]) -> Result<Port> {
        let wrong = |why: String| {
            let name = &self.name;
            Error::argument(
                "program",
                format!("input {name:?} is no tensor and no size: {why}"),
            )
        };
        let u = parse(&self.is).map_err(|e| wrong(e.to_string()))?;
        let variables = u.toposort().into_iter().filter(UOp::is_variable);
        let known = variables.into_iter().all(|v| lengths.contains(&v));
        let stored = u.op() == Op::Param && u.addrspace() == Some(AddrSpace::Global);
        let what = match (u.dtype(), u.device()) {
            (DType::Index, None) if known && u.shape().is_empty() => {
                if u.vmin() < 0 || u.vmax() > MOST_LENGTH {
                    return Err(wrong(self.is.clone()));
                }
                // A size is checked as the shape of something.
                let slot = lengths.len() as u64;
                let whole = UOp::param(slot, &Shape::new([Dim::of(&u)]), DType::U8, None);
                verify_function(whole, usize::MAX).map_err(|e| wrong(e.to_string()))?;
                What::Size(u)
            }
            (dtype, Some(device)) if known && stored => {
                verify_function(u.clone(), usize::MAX).map_err(|e| wrong(e.to_string()))?;
                let shape = u.shape().clone();
                What::Tensor {
                    shape,
                    dtype,
                    device,
                }
            }
            _ => return Err(wrong(self.is.clone())),
        };
        Ok(Port {
            name: self.name.clone(),
            what,
        })
    }
}
/// Whether folders of programs have a file of this name.
fn is_own(name: &str) -> bool {
    [MANIFEST, weights::FILE, engine::TEXT].contains(&name) || name.starts_with("code-")
}
