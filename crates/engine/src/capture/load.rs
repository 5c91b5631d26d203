//! Captured programs out of files. Flows in: a folder and what is known of the program besides (`Saved`); flows
//! out: the program, or an error that names the file and what is wrong in it.
//!
//! Invariant: nothing that files say is believed before it is checked. The text obeys the specs of its stages,
//! whatever has a number has one that exists, and what is given out lies in storage of its size. Code is run
//! where nobody else may have written it, and where it is of this machine; elsewhere the text is compiled.

use super::saved::{Saved, SavedParam, SavedVariable, TEXT, by_device, code_files, global_buffers};
use super::{Captured, Given, Output, Written, stands};
use crate::batch::parts;
use crate::check::Check;
use crate::executable::{self, Executable, Key, kernel_device, loops, steps, unique_kernels};
use crate::own::Compute;
use crate::realize::until_free;
use crate::report;
use crate::versions::{self, Reading};
use monoglot_device::{Folder, open_for_code};
use monoglot_schedule as schedule;
use monoglot_schedule::{Arguments, Plan};
use monoglot_uop::build::fresh_slot;
use monoglot_uop::graph::toposort_many;
use monoglot_uop::spec::{verify_function, verify_scheduled};
use monoglot_uop::text::parse_many;
use monoglot_uop::{AddrSpace, Arg, DType, Device, Error, Op, Result, Shape, UOp};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Bytes of a text at most: far more than any program has.
const MOST_TEXT: u64 = 1 << 30;
/// Bytes of an allocation at most: more than any machine has addresses for.
const MOST_BYTES: usize = 1 << 48;

impl Captured {
    /// The program of a folder, for calls with so many lengths and words. `constants` are what `constants` gave
    /// when it was saved.
    ///
    /// # Errors
    /// `Io` and `Format` where a file is missing, damaged or says what cannot be, with its name; `Argument`
    /// where `saved` does; and those of opening devices and, where the text has to be compiled, of compiling.
    pub fn load(
        saved: &Saved,
        folder: &Folder,
        constants: &[UOp],
        lengths: usize,
        words: usize,
    ) -> Result<Captured> {
        let length = |v: &SavedVariable| v.length.is_none_or(|k| k < lengths);
        if !saved.variables.iter().all(length) || saved.words.len() != words {
            return Err(wrong("a variable or a word has a value that no call gives"));
        }
        let sum = saved.text.sum();
        let sum = sum.ok_or_else(|| wrong("the digest of the text is none"))?;
        if sum.bytes > MOST_TEXT {
            return Err(wrong("the text is longer than any program's"));
        }
        let text = String::from_utf8(folder.read_whole(TEXT, &sum)?);
        let text = text.map_err(|_| folder.wrong(TEXT, "is no text in UTF-8"))?;
        let read = Read::of(saved, &text).map_err(|e| folder.wrong(TEXT, e.to_string()))?;
        let kernels = read.kernels(saved, folder)?;
        read.captured(saved, &kernels, constants)
    }
}

/// The error of something in a text or beside it.
fn wrong(message: impl Into<String>) -> Error {
    Error::argument("program", message)
}

/// The bytes of all elements of storage, where they can be counted.
fn bytes(u: &UOp) -> Option<usize> {
    let bytes = u.shape().max_len().checked_mul(u.dtype().bytes() as i64)?;
    usize::try_from(bytes).ok()
}

/// A text that was checked.
struct Read {
    linear: UOp,
    outputs: Vec<UOp>,
    params: Vec<UOp>,
    asserts: Vec<UOp>,
    /// For each PARAM, whether a kernel writes it.
    written: Vec<bool>,
    /// The device and the bytes of each.
    allocations: Vec<(Device, usize)>,
}

impl Read {
    fn of(saved: &Saved, text: &str) -> Result<Read> {
        let mut roots = parse_many(text)?.into_iter();
        let [values, params, asserts] =
            [saved.shown.len(), saved.params.len(), saved.asserts].map(|n| n.min(1 << 32));
        if roots.len() != 1 + values + params + asserts {
            return Err(wrong(format!(
                "it has {} roots; a LINEAR, {values} values, {params} PARAMs and {asserts} assertions \
                 were saved",
                roots.len()
            )));
        }
        let mut next = |n: usize| roots.by_ref().take(n).collect::<Vec<UOp>>();
        let linear = verify_scheduled(next(1).remove(0))?.into_inner();
        let outputs = next(values);
        let params = next(params);
        let asserts = next(asserts);
        let all = [&outputs[..], &params, &asserts].concat();
        if !all.is_empty() {
            verify_function(UOp::sink(&all), params.len() + saved.variables.len())?;
        }
        let allocations = saved.allocations.iter();
        let allocations = allocations.map(|a| (Device::new(&a.device), a.bytes));
        let mut read = Read {
            written: vec![false; params.len()],
            allocations: allocations.collect(),
            linear,
            outputs,
            params,
            asserts,
        };
        read.number(&saved.buffers)?;
        let variables = saved.variables.len() + saved.literals.len();
        read.check_params()?;
        for call in read.linear.src().iter().filter(|u| u.op() == Op::Call) {
            check_call(call, &read.params, variables)?;
            written(call, &mut read.written);
        }
        read.check_values()?;
        Ok(read)
    }

    /// Give BUFFERs the numbers of their allocations.
    fn number(&mut self, places: &[usize]) -> Result<()> {
        let roots = [std::slice::from_ref(&self.linear), &self.outputs].concat();
        let mut number_of: FxHashMap<u64, usize> = FxHashMap::default();
        let mut over: FxHashMap<UOp, UOp> = FxHashMap::default();
        for u in global_buffers(&roots) {
            let slot = u.buffer_arg().map_or(0, |b| b.slot);
            let next = number_of.len();
            let number = *number_of.entry(slot).or_insert(next);
            let allocation = places.get(number).copied();
            let found = allocation.and_then(|at| Some((at, self.allocations.get(at)?)));
            let Some((at, &(device, has))) = found else {
                return Err(wrong(format!("BUFFER {number} has no allocation")));
            };
            if has > MOST_BYTES {
                let message = format!("an allocation of {has} bytes is more than any machine has");
                return Err(wrong(message));
            }
            if bytes(&u).is_none_or(|n| n > has) || u.device() != Some(device) {
                let message = format!("{u:?} does not fit the {has} bytes on {device} that it has");
                return Err(wrong(message));
            }
            let new = UOp::buffer_at(at as u64, u.shape(), u.dtype(), device);
            over.insert(u, new);
        }
        if number_of.len() != places.len() {
            let message = format!("it has {} BUFFERs, not {}", number_of.len(), places.len());
            return Err(wrong(message));
        }
        let mut calls: Vec<UOp> = Vec::with_capacity(self.linear.src().len());
        for call in self.linear.src() {
            let mut src = call.src().to_vec();
            match (call.op(), calls.last()) {
                (Op::Range, _) => {
                    calls.push(call.clone());
                    continue;
                }
                (Op::End, Some(last)) => {
                    src[0] = last.clone();
                    calls.push(call.with_src(src));
                    continue;
                }
                _ => {}
            }
            for arg in src.iter_mut().skip(1) {
                if let Some(new) = over.get(arg.viewed()) {
                    let base = arg.viewed().clone();
                    *arg = arg.substitute(&FxHashMap::from_iter([(base, new.clone())]));
                }
            }
            calls.push(UOp::new(Op::Call, src, call.arg().clone()));
        }
        self.linear = UOp::new(Op::Linear, calls, Arg::None);
        for output in &mut self.outputs {
            *output = output.substitute(&over);
        }
        Ok(())
    }

    fn check_params(&self) -> Result<()> {
        for (slot, param) in self.params.iter().enumerate() {
            let own = param.buffer_arg().is_some_and(|b| b.slot == slot as u64);
            let stored = param.op() == Op::Param && param.addrspace() == Some(AddrSpace::Global);
            if !own || !stored || bytes(param).is_none() {
                return Err(wrong(format!("{param:?} is not PARAM {slot} of a program")));
            }
        }
        Ok(())
    }

    /// What is given out is a view of storage, and what is asserted is an ASSERT.
    fn check_values(&self) -> Result<()> {
        for output in &self.outputs {
            let leaf = output.viewed();
            let fits = match leaf.op() {
                Op::Buffer => true,
                Op::Param => self.params.contains(leaf),
                _ => false,
            };
            if !fits {
                return Err(wrong(format!("{output:?} is no view of storage")));
            }
        }
        let asserts = |u: &&UOp| u.op() == Op::Assert && u.src().len() >= 2;
        match self.asserts.iter().find(|u| !asserts(u)) {
            Some(other) => Err(wrong(format!("{other:?} asserts nothing"))),
            None => Ok(()),
        }
    }

    /// The kernels, from code where that may be run here, else compiled.
    fn kernels(&self, saved: &Saved, folder: &Folder) -> Result<FxHashMap<Key, Compute>> {
        let keys = unique_kernels(&self.linear);
        let mut all = FxHashMap::default();
        let mut missing = Vec::new();
        for (device, keys) in by_device(&keys) {
            match trusted(saved, folder, device, keys.len())? {
                Ok(found) => all.extend(keys.into_iter().zip(found)),
                Err(why) => {
                    report::compiles_again(device, &why);
                    missing.extend(keys);
                }
            }
        }
        let compiled = executable::kernels(&missing)?;
        all.extend(missing.into_iter().zip(compiled));
        Ok(all)
    }

    fn captured(
        self,
        saved: &Saved,
        kernels: &FxHashMap<Key, Compute>,
        constants: &[UOp],
    ) -> Result<Captured> {
        let mut arguments = Arguments {
            buffers: self.params.clone(),
            ..Arguments::default()
        };
        let mut inputs = Vec::with_capacity(saved.replaced.len());
        for _ in &saved.replaced {
            let home = crate::default_device();
            inputs.push(versions::stand_in(&Shape::of(&[]), DType::U8, home));
        }
        let mut known: Vec<Reading> = Vec::new();
        let mut given = Vec::with_capacity(self.params.len());
        for (p, (param, stored)) in saved.params.iter().zip(&self.params).enumerate() {
            given.push(match *param {
                SavedParam::Input(k) if k < inputs.len() => {
                    inputs[k] = stored.clone();
                    self.input(saved, p, k)?
                }
                SavedParam::Word(k) if k < saved.words.len() => {
                    if !stored.shape().is_empty() || stored.dtype() != DType::U64 {
                        return Err(wrong(format!("{stored:?} is no word")));
                    }
                    Given::Word(k)
                }
                SavedParam::Constant(k) if k < constants.len() && k == known.len() => {
                    let constant = &constants[k];
                    let form = |u: &UOp| format!("{}{}", u.dtype(), u.shape());
                    if form(constant) != form(stored) || self.written[p] {
                        let message = format!("constant {k} is {}, not {stored:?}", form(constant));
                        return Err(wrong(message));
                    }
                    known.push(until_free(|| versions::read(constant))?);
                    arguments.buffers[p] = constant.clone();
                    Given::Constant(k)
                }
                _ => return Err(wrong(format!("PARAM {p} is nothing that is given"))),
            });
        }
        let numbered = self.params.iter().cloned();
        let over: FxHashMap<UOp, UOp> = numbered.zip(arguments.buffers.iter().cloned()).collect();
        let asserts = self.asserts.iter().map(|a| a.substitute(&over));
        arguments.asserts = asserts.collect();
        let mut variables = Vec::with_capacity(saved.variables.len() + saved.literals.len());
        let mut lengths = Vec::new();
        for (at, v) in saved.variables.iter().enumerate() {
            if !(0..=v.most).contains(&v.least) || !(v.least..=v.most).contains(&v.value) {
                return Err(wrong(format!("variable {at} is outside its bounds")));
            }
            variables.push(v.value);
            lengths.extend(v.length.map(|k| (at, k)));
            let variable = UOp::variable(fresh_slot(), v.least, v.most);
            arguments.variables.push(variable);
        }
        variables.extend(&saved.literals);
        let mut outputs = Vec::with_capacity(self.outputs.len());
        let words = saved.checks.iter().map(|c| c.allocation);
        let plan = Plan::of(&self.linear, &self.outputs, words, &self.allocations);
        let mut shown = vec![false; plan.memories.len()];
        for (view, &is_shown) in self.outputs.iter().zip(&saved.shown) {
            let output = is_shown.then(|| Output::of(view)).transpose()?;
            if let Some(o) = output.as_ref().filter(|o| o.leaf.op() == Op::Buffer) {
                shown[plan.allocations[o.slot].memory] = true;
            }
            outputs.push(output);
        }
        let checks = self.checks(saved)?;
        let params = self.params.len();
        let executable = Arc::new(Executable {
            steps: steps(&self.linear, params, kernels)?,
            loops: loops(&self.linear),
            lists: Default::default(),
            checks,
            plan,
            outputs: self.outputs,
            written: self.written,
            linear: self.linear,
        });
        let (parts, last_checks) = parts(&executable, params)?;
        Ok(Captured {
            key: UOp::sink(&[]),
            stands: stands(&given, &saved.replaced, &outputs),
            params: given,
            constants: known,
            variables,
            lengths,
            replaced: saved.replaced.clone(),
            lines: vec![None; outputs.len()],
            outputs,
            shown,
            words: saved.words.iter().map(|d| Device::new(d)).collect(),
            parts,
            last_checks,
            arguments,
            executable,
            inputs,
            frames: Default::default(),
        })
    }

    /// PARAM `p`, which is input `k`.
    fn input(&self, saved: &Saved, p: usize, k: usize) -> Result<Given> {
        let stored = &self.params[p];
        let root = match saved.replaced[k] {
            None => None,
            Some(root) => {
                let there = self.outputs.get(root);
                Some(there.ok_or_else(|| wrong(format!("there is no root {root}")))?)
            }
        };
        let is_own = root.is_some_and(|u| u.viewed() == stored);
        let written = match (self.written[p], is_own) {
            (false, _) => Written::Not,
            (true, true) => Written::InPlace,
            (true, false) => Written::Elsewhere,
        };
        let bytes = bytes(stored).ok_or_else(|| wrong("an input is too large"))?;
        Ok(Given::Input(k, written, bytes))
    }

    /// What is asserted, by the words that the program writes.
    fn checks(&self, saved: &Saved) -> Result<Vec<Check>> {
        let mut checks = Vec::with_capacity(saved.checks.len());
        for check in &saved.checks {
            let dtype = DType::from_name(&check.dtype).filter(|d| d.is_int());
            let allocation = self.allocations.get(check.allocation);
            let (Some(dtype), Some(&(device, bytes))) = (dtype, allocation) else {
                return Err(wrong("a check names no integer in storage"));
            };
            let elements = |k: usize| Some(self.asserts.get(k)?.src()[1].shape().max_len());
            let known = |&(k, n): &(usize, i64)| n > 0 && elements(k) == Some(n);
            let add = |n: i64, c: &(usize, i64)| n.checked_add(c.1);
            let counted = check.conditions.iter().try_fold(0, add).is_some();
            let fits = dtype.bytes() <= bytes && counted;
            if !fits || !check.conditions.iter().all(known) {
                return Err(wrong("a check is of conditions that are not there"));
            }
            let word = schedule::Check {
                allocation: check.allocation,
                dtype,
                conditions: check.conditions.clone(),
            };
            checks.extend(Check::of(&self.linear, word, device)?);
        }
        checks.sort_by_key(|c| c.step);
        Ok(checks)
    }
}

/// The kernels of a device from code, or why they have to be compiled.
fn trusted(
    saved: &Saved,
    folder: &Folder,
    device: Device,
    count: usize,
) -> Result<std::result::Result<Vec<Compute>, String>> {
    let mut codes = saved.code.iter().enumerate();
    let Some((number, code)) = codes.find(|(_, c)| Device::new(&c.device) == device) else {
        return Ok(Err("it was saved without code for this device".into()));
    };
    let [launches, object] = code_files(number);
    let (Some(first), Some(second)) = (code.launches.sum(), code.object.sum()) else {
        return Err(wrong("the digest of code is none"));
    };
    // Files of another length are damaged, whether they would be run or not.
    folder.pieces(&launches, &first)?;
    folder.pieces(&object, &second)?;
    if let Some(why) = folder.refused() {
        return Ok(Err(why.into()));
    }
    let runtime = open_for_code(device)?;
    let key = runtime.code_key();
    if key.as_deref() != Some(&*code.key) {
        let here = key.unwrap_or_default();
        return Ok(Err(format!("its code is for {:?}, not {here:?}", code.key)));
    }
    let code = folder.trusted((&launches, &first), (&object, &second))?;
    let kernels = runtime.unpack(&code);
    let kernels = kernels.map_err(|e| folder.wrong(&launches, e.to_string()))?;
    if kernels.len() != count {
        let message = format!("has {} kernels, and the text {count}", kernels.len());
        return Err(folder.wrong(&launches, message));
    }
    let kernels = kernels.into_iter();
    let compute = kernels.map(|(kernel, info)| Compute { kernel, info });
    Ok(Ok(compute.collect()))
}

/// What a CALL writes, which is an argument's position.
fn outs(call: &UOp) -> &[usize] {
    match call.arg() {
        Arg::Call(info) => &info.outs,
        _ => &[],
    }
}

/// Take down which PARAMs a CALL writes.
fn written(call: &UOp, all: &mut [bool]) {
    for &k in outs(call) {
        let arg = &call.src()[1 + k];
        let slot = arg.buffer_arg().filter(|_| arg.op() == Op::Param);
        if let Some(written) = slot.and_then(|b| all.get_mut(b.slot as usize)) {
            *written = true;
        }
    }
}

/// What the specs leave open of a CALL.
fn check_call(call: &UOp, params: &[UOp], variables: usize) -> Result<()> {
    for arg in &call.src()[1..] {
        // In a loop it may be a part, which the spec has found to be within.
        let mut view = arg;
        while matches!(view.op(), Op::Reshape | Op::Shrink) {
            view = &view.src()[0];
        }
        let arg = view;
        let slot = arg.buffer_arg().map_or(usize::MAX, |b| b.slot as usize);
        let variable = |slot: usize| {
            slot.checked_sub(params.len())
                .is_some_and(|k| k < variables)
        };
        let fits = match arg.op() {
            Op::Param if arg.is_variable() => variable(slot),
            Op::Param => params.get(slot) == Some(arg),
            Op::Buffer => arg.addrspace() == Some(AddrSpace::Global),
            _ => false,
        };
        if !fits {
            return Err(wrong(format!("{arg:?} is nothing that a CALL is given")));
        }
    }
    let body = &call.src()[0];
    match body.op() {
        Op::Sink => {
            if stores(body).any(|k| !outs(call).contains(&k)) {
                return Err(wrong("a kernel writes what its CALL does not say"));
            }
            kernel_device(call).map(|_| ())
        }
        Op::Copy => check_copy(call),
        op => Err(wrong(format!("a CALL of {} is of no text", op.name()))),
    }
}

/// The slots of PARAMs that a kernel writes, which are the positions of arguments.
fn stores(kernel: &UOp) -> impl Iterator<Item = usize> {
    let nodes = toposort_many(std::slice::from_ref(kernel), |_| true);
    nodes.into_iter().filter_map(|u| {
        let stores = matches!(u.op(), Op::Store | Op::AtomicAdd);
        let mut to = u.src().first().filter(|_| stores)?;
        while !matches!(to.op(), Op::Param | Op::Buffer) {
            to = to.src().first()?;
        }
        let param = to.buffer_arg().filter(|_| to.op() == Op::Param)?;
        Some(param.slot as usize)
    })
}

/// Whether a CALL of COPY copies a part of its second argument to its first.
fn check_copy(call: &UOp) -> Result<()> {
    let part = &call.src()[0].src()[0];
    let args = &call.src()[1..];
    let shrinks = part.op() == Op::Shrink && part.shape().len() == 1 && args.len() >= 2;
    let stored = |u: &UOp| !u.is_variable() && bytes(u).is_some();
    if !shrinks || !args[..2].iter().all(stored) || outs(call) != [0] {
        return Err(wrong("a COPY is of no part of what it is given"));
    }
    let from = part.dims_src(1)[0].to_uop();
    let length = part.shape().max_len();
    let element = part.dtype().bytes() as i64;
    let end = from.vmax().checked_add(length);
    let counted = end.and_then(|end| end.checked_mul(element)).is_some();
    let fits = bytes(&args[0]).is_some_and(|n| n as i64 >= length.saturating_mul(element));
    match from.vmin() >= 0 && counted && fits {
        true => Ok(()),
        false => Err(wrong("a COPY leaves its storage")),
    }
}
