//! Captured programs in files: written once, for another process to start without scheduling or compiling.
//! Flows in: a captured program and a folder that is being written; flows out: its text and its code there,
//! and what is known of it besides (`Saved`).
//!
//! The text has, in this order: the LINEAR of CALLs, the value of every root, the PARAMs by slot, and what is
//! asserted. Invariant: what is written of equal programs is equal.

use super::{Captured, Given};
use crate::check::Check;
use crate::executable::{Executable, Key, lowered, unique_kernels};
use monoglot_device::{NewFolder, Sum, open};
use monoglot_schedule::Allocation;
use monoglot_uop::text::print_many;
use monoglot_uop::{AddrSpace, Device, ErrorKind, Op, Result, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

/// The file of the text.
pub const TEXT: &str = "program.txt";

/// What is written of a captured program besides its text and its code. Its constants are for whoever saves it
/// to keep.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    pub(super) text: SavedSum,
    /// What each PARAM is in a call.
    pub(super) params: Vec<SavedParam>,
    /// For each input, the root that is the value after a call of what holds it.
    pub(super) replaced: Vec<Option<usize>>,
    /// For each root, whether it is given out.
    pub(super) shown: Vec<bool>,
    /// The allocation that each BUFFER of the text is, in order of first use.
    pub(super) buffers: Vec<usize>,
    pub(super) allocations: Vec<SavedAllocation>,
    pub(super) checks: Vec<SavedCheck>,
    pub(super) asserts: usize,
    pub(super) variables: Vec<SavedVariable>,
    /// Values of the variables behind those.
    pub(super) literals: Vec<i64>,
    /// The device of each word.
    pub(super) words: Vec<String>,
    pub(super) code: Vec<SavedCode>,
}

/// What a file's bytes are known by.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedSum {
    bytes: u64,
    xxh3: String,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SavedParam {
    Input(usize),
    Word(usize),
    Constant(usize),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedAllocation {
    pub(super) device: String,
    pub(super) bytes: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedCheck {
    pub(super) allocation: usize,
    pub(super) dtype: String,
    pub(super) conditions: Vec<(usize, i64)>,
}

/// A variable with its bounds: it has a value, or that of a length in each call.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedVariable {
    pub(super) least: i64,
    pub(super) most: i64,
    pub(super) value: i64,
    pub(super) length: Option<usize>,
}

/// The code of a device's kernels, which are those of the text in order of first use.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedCode {
    pub(super) device: String,
    pub(super) key: String,
    pub(super) launches: SavedSum,
    pub(super) object: SavedSum,
}

impl SavedSum {
    /// As it is written.
    pub fn of(sum: &Sum) -> SavedSum {
        SavedSum {
            bytes: sum.bytes,
            xxh3: format!("{:032x}", sum.digest),
        }
    }

    /// As it was; None where it is no digest.
    pub fn sum(&self) -> Option<Sum> {
        let digits = self.xxh3.len() == 32 && self.xxh3.bytes().all(|b| b.is_ascii_hexdigit());
        let digest = digits.then(|| u128::from_str_radix(&self.xxh3, 16).ok())??;
        Some(Sum {
            bytes: self.bytes,
            digest,
        })
    }
}

impl Captured {
    /// The values that are the same in every call, as BUFFERs: to be given to `load` again.
    pub fn constants(&self) -> Vec<UOp> {
        let all = self.params.iter().zip(&self.arguments.buffers);
        let constants = all.filter(|(given, _)| matches!(given, Given::Constant(_)));
        constants.map(|(_, buffer)| buffer.clone()).collect()
    }

    /// Write the text and the code.
    ///
    /// # Errors
    /// `Io` where the folder cannot be written, `Unsupported` where the program has a part that no text says,
    /// and those of compiling.
    pub fn save(&self, folder: &NewFolder) -> Result<Saved> {
        let Executable {
            linear,
            outputs,
            plan,
            checks,
            ..
        } = &*self.executable;
        let told = |body: &UOp| matches!(body.op(), Op::Sink | Op::Copy);
        let mut calls = linear.src().iter().filter(|u| u.op() == Op::Call);
        if let Some(call) = calls.find(|c| !told(&c.src()[0])) {
            let op = call.src()[0].op().name().into();
            let message = "a program that calls it cannot be saved: no text says what it does";
            let message = message.into();
            return Err(ErrorKind::Unsupported { op, message }.into());
        }
        let params = self.numbered_params();
        let buffers = self.arguments.buffers.iter().cloned();
        let numbered = buffers.zip(params.iter().cloned());
        let known: FxHashMap<UOp, UOp> = numbered.chain(self.numbered_variables()).collect();
        let asserts = &self.arguments.asserts;
        let mut roots = vec![linear.clone()];
        roots.extend(outputs.iter().cloned());
        roots.extend(params);
        roots.extend(asserts.iter().map(|a| a.substitute(&known)));
        let text = print_many(&roots);
        let text = folder.write(TEXT, |put| put(text.as_bytes()))?;
        let given = |given: &Given| match *given {
            Given::Input(k, ..) => SavedParam::Input(k),
            Given::Word(k) => SavedParam::Word(k),
            Given::Constant(k) => SavedParam::Constant(k),
        };
        let variables = &self.arguments.variables;
        let variable = |(at, u): (usize, &UOp)| SavedVariable {
            least: u.vmin(),
            most: u.vmax(),
            value: self.variables[at],
            length: self.lengths.iter().find(|l| l.0 == at).map(|l| l.1),
        };
        Ok(Saved {
            text: SavedSum::of(&text),
            params: self.params.iter().map(given).collect(),
            replaced: self.replaced.clone(),
            shown: self.outputs.iter().map(Option::is_some).collect(),
            buffers: used_buffers(&roots[..=outputs.len()]),
            allocations: plan.allocations.iter().map(SavedAllocation::of).collect(),
            checks: checks.iter().map(SavedCheck::of).collect(),
            asserts: asserts.len(),
            variables: variables.iter().enumerate().map(variable).collect(),
            literals: self.variables[variables.len()..].to_vec(),
            words: self.words.iter().map(|d| d.name().into()).collect(),
            code: code(linear, folder)?,
        })
    }

    /// The PARAMs by slot, over numbered variables.
    fn numbered_params(&self) -> Vec<UOp> {
        let variables = self.numbered_variables().collect();
        let param = |(slot, buffer): (usize, &UOp)| {
            let device = buffer.device().unwrap_or_else(crate::default_device);
            let whole = UOp::param(slot as u64, buffer.shape(), buffer.dtype(), Some(device));
            let mut src = whole.src().to_vec();
            src[0] = src[0].substitute(&variables);
            UOp::new(Op::Param, src, whole.arg().clone())
        };
        let buffers = self.arguments.buffers.iter();
        buffers.enumerate().map(param).collect()
    }

    /// The bound variables of the graph, with those of the program.
    fn numbered_variables(&self) -> impl Iterator<Item = (UOp, UOp)> {
        let first = self.params.len() as u64;
        let variables = self.arguments.variables.iter();
        (first..).zip(variables).map(|(slot, u)| {
            let variable = UOp::variable(slot, u.vmin(), u.vmax());
            (u.clone(), variable)
        })
    }
}

/// The slots of the BUFFERs of a schedule and of what is given out, in order of first use.
fn used_buffers(roots: &[UOp]) -> Vec<usize> {
    let mut seen = FxHashSet::default();
    let nodes = global_buffers(roots);
    let slots = nodes.iter().filter_map(|u| Some(u.buffer_arg()?.slot));
    let first = slots.filter(|slot| seen.insert(*slot));
    first.map(|slot| slot as usize).collect()
}

/// The GLOBAL BUFFERs that CALLs are given, and those of other roots, in order.
pub(super) fn global_buffers(roots: &[UOp]) -> Vec<UOp> {
    let is = |u: &&UOp| u.op() == Op::Buffer && u.addrspace() == Some(AddrSpace::Global);
    let mut out = Vec::new();
    for root in roots {
        if root.op() == Op::Linear {
            let args = root.src().iter().flat_map(|call| call.src().iter().skip(1));
            out.extend(args.map(UOp::viewed).filter(is).cloned());
        } else {
            out.extend(root.toposort().iter().filter(is).cloned());
        }
    }
    out
}

/// The code of all kernels, written.
fn code(linear: &UOp, folder: &NewFolder) -> Result<Vec<SavedCode>> {
    let keys = unique_kernels(linear);
    let mut out = Vec::new();
    for (device, keys) in by_device(&keys) {
        let runtime = open(device)?;
        let Some(key) = runtime.code_key() else {
            continue;
        };
        let Some(packed) = runtime.pack(&lowered(&keys)?)? else {
            continue;
        };
        let [launches, object] = code_files(out.len());
        out.push(SavedCode {
            device: device.name().into(),
            key,
            launches: SavedSum::of(&folder.write(&launches, |put| put(&packed.launches))?),
            object: SavedSum::of(&folder.write(&object, |put| put(&packed.object))?),
        });
    }
    Ok(out)
}

/// The files of the code of a device, by its place among those that have any.
pub(super) fn code_files(number: usize) -> [String; 2] {
    ["launches", "object"].map(|part| format!("code-{number}.{part}"))
}

/// Kernels by device, in their order.
pub(super) fn by_device(keys: &[Key]) -> Vec<(Device, Vec<Key>)> {
    let mut out: Vec<(Device, Vec<Key>)> = Vec::new();
    for key in keys {
        match out.iter_mut().find(|(device, _)| *device == key.1) {
            Some((_, all)) => all.push(key.clone()),
            None => out.push((key.1, vec![key.clone()])),
        }
    }
    out
}

impl SavedAllocation {
    fn of(a: &Allocation) -> SavedAllocation {
        SavedAllocation {
            device: a.device.name().into(),
            bytes: a.bytes,
        }
    }
}

impl SavedCheck {
    fn of(check: &Check) -> SavedCheck {
        SavedCheck {
            allocation: check.word.allocation,
            dtype: check.word.dtype.name().into(),
            conditions: check.word.conditions.clone(),
        }
    }
}
