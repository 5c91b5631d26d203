//! The oracle for kernels. Flows in: a kernel (a SINK of ENDs of STOREs over RANGEs, or the same with
//! shaped values after expansion) and the bytes of its PARAMs; flows out: the bytes it writes, and how
//! often each PARAM was read and written. Invariant: every elementwise op is `fold::fold`, every axis
//! type is a loop, a reduction is folded in the order of its ranges, and an index outside its buffer
//! is an error.
//!
//! The expression is compiled once to a flat list of instructions over slots, each placed at the
//! shallowest loop on which it depends. A read through the invalid index gives a poison value (NaN,
//! or a pattern of bits), so that a result that depends on one is seen to be wrong. Floats narrower
//! than f32 accumulate in f32. WMMA is replaced by the sum that it stands for.

mod compile;
#[cfg(test)]
mod tests;

use monoglot_uop::fold::fold;
use monoglot_uop::{DType, Error, ErrorKind, Op, Result, Scalar, UOp};

/// How often each PARAM was read and written, in elements, by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Elements read.
    pub reads: Vec<u64>,
    /// Elements written.
    pub writes: Vec<u64>,
}

/// Run a kernel on buffers: PARAM `k` is `bufs[k]`; `vars` gives each variable's slot its word: the
/// value of an integer, the bits of a float.
///
/// # Errors
/// `Index` for an access outside a buffer, `Unsupported` for what is not kernel form, `Argument` for
/// a buffer or variable that is missing or too small.
pub fn eval_kernel(kernel: &UOp, bufs: &mut [Vec<u8>], vars: &[(u64, i64)]) -> Result<Counts> {
    EvalKernel::new(kernel)?.run(bufs, vars)
}

/// A kernel compiled for evaluation.
pub struct EvalKernel {
    code: Vec<Instr>,
    slots: Vec<Scalar>,
    vars: Vec<Variable>,
    storages: Vec<Storage>,
}

struct Variable {
    /// Its PARAM's slot.
    param: u64,
    dtype: DType,
    /// The slot of its value.
    value: usize,
}

struct Storage {
    /// PARAM slot; None where the kernel owns the storage.
    slot: Option<u64>,
    dtype: DType,
    elements: i64,
}

/// A slot's first place and its number of elements; a single element serves every lane.
#[derive(Copy, Clone)]
struct Val {
    at: usize,
    n: usize,
}

impl Val {
    fn lane(self, i: usize) -> usize {
        if self.n == 1 { self.at } else { self.at + i }
    }
}

/// Where in a storage: dims and indices, outermost first; shaped indices cross.
struct Location {
    storage: usize,
    dims: Vec<Val>,
    index: Vec<Val>,
}

enum Instr {
    Fold {
        op: Op,
        from: DType,
        to: DType,
        dst: Val,
        src: [Val; 3],
        arity: usize,
    },
    Bits {
        dst: Val,
        src: Val,
        from: DType,
        to: DType,
    },
    Gather {
        dst: Val,
        src: Val,
        map: Box<[u32]>,
    },
    Pick {
        dst: Val,
        src: Val,
        index: Val,
    },
    Load {
        dst: Val,
        from: Location,
    },
    Store {
        to: Location,
        value: Val,
        gate: Option<Val>,
        n: usize,
    },
    Set {
        dst: Val,
        value: Scalar,
    },
    Round {
        dst: Val,
        dtype: DType,
    },
    Loop {
        counter: usize,
        bound: Val,
        end: usize,
    },
    EndLoop {
        start: usize,
    },
}

impl EvalKernel {
    /// Compile a kernel.
    ///
    /// # Errors
    /// `Unsupported` for an op that has no place in a kernel.
    pub fn new(kernel: &UOp) -> Result<EvalKernel> {
        compile::compile(kernel)
    }

    /// Run on buffers and variables, as [`eval_kernel`].
    pub fn run(&self, bufs: &mut [Vec<u8>], vars: &[(u64, i64)]) -> Result<Counts> {
        let own = self.storages.iter().filter(|s| s.slot.is_none());
        let own = own.map(|s| vec![0xff; s.elements as usize * s.dtype.bytes()]);
        let n = bufs.len();
        let mut run = Run {
            kernel: self,
            slots: self.bound(vars)?,
            own: own.collect(),
            place: self.places(n)?,
            counts: Counts {
                reads: vec![0; n],
                writes: vec![0; n],
            },
            bufs,
        };
        let mut pc = 0;
        while let Some(instr) = self.code.get(pc) {
            pc = run.step(instr, pc)?;
        }
        Ok(run.counts)
    }

    /// The slots before the first instruction, with the values of variables.
    fn bound(&self, vars: &[(u64, i64)]) -> Result<Vec<Scalar>> {
        let mut slots = self.slots.clone();
        for variable in &self.vars {
            let param = variable.param;
            let Some(&(_, word)) = vars.iter().find(|(slot, _)| *slot == param) else {
                return Err(Error::argument(
                    "kernel",
                    format!("variable {param} has no value"),
                ));
            };
            slots[variable.value] = match variable.dtype {
                d if d.is_float() => Scalar::from_bits(word as u64, d),
                d => Scalar::Int(word.into()).cast(d),
            };
        }
        Ok(slots)
    }

    /// Of each storage its number among so many buffers, and behind them what the kernel owns.
    fn places(&self, bufs: usize) -> Result<Vec<usize>> {
        let mut owned = bufs..;
        let place = |s: &Storage| match s.slot {
            Some(slot) if (slot as usize) < bufs => Ok(slot as usize),
            Some(slot) => Err(Error::argument(
                "kernel",
                format!("PARAM {slot} has no buffer"),
            )),
            None => Ok(owned.next().unwrap_or(bufs)),
        };
        self.storages.iter().map(place).collect()
    }
}

/// A kernel at work.
struct Run<'a> {
    kernel: &'a EvalKernel,
    slots: Vec<Scalar>,
    bufs: &'a mut [Vec<u8>],
    own: Vec<Vec<u8>>,
    /// See `EvalKernel::places`.
    place: Vec<usize>,
    counts: Counts,
}

impl Run<'_> {
    /// Do an instruction; which one is next.
    fn step(&mut self, instr: &Instr, pc: usize) -> Result<usize> {
        let slots = &mut self.slots;
        match instr {
            Instr::Fold {
                op,
                from,
                to,
                dst,
                src,
                arity,
            } => {
                for i in 0..dst.n {
                    let v = src.map(|s| slots[s.lane(i)]);
                    slots[dst.at + i] = folded(*op, *from, *to, &v[..*arity])?;
                }
            }
            Instr::Bits { dst, src, from, to } => {
                for i in 0..dst.n {
                    slots[dst.at + i] = Scalar::from_bits(slots[src.lane(i)].to_bits(*from), *to);
                }
            }
            Instr::Gather { dst, src, map } => {
                for (i, &m) in map.iter().enumerate() {
                    slots[dst.at + i] = slots[src.lane(m as usize)];
                }
            }
            Instr::Pick { dst, src, index } => {
                for i in 0..dst.n {
                    let at = slots[index.lane(i)].as_int().unwrap_or(-1);
                    if at < 0 || at >= src.n as i64 {
                        return Err(outside("INDEX", at, src.n as i64));
                    }
                    slots[dst.at + i] = slots[src.at + at as usize];
                }
            }
            Instr::Load { dst, from } => self.load(*dst, from)?,
            Instr::Store { to, value, gate, n } => self.store(to, *value, *gate, *n)?,
            Instr::Set { dst, value } => slots[dst.at..dst.at + dst.n].fill(*value),
            Instr::Round { dst, dtype } => {
                for v in &mut slots[dst.at..dst.at + dst.n] {
                    *v = v.round_to(*dtype);
                }
            }
            Instr::Loop {
                counter,
                bound,
                end,
            } => {
                slots[*counter] = Scalar::Int(0);
                if slots[bound.at].to_i128() <= 0 {
                    return Ok(*end);
                }
            }
            Instr::EndLoop { start } => {
                if let Instr::Loop { counter, bound, .. } = &self.kernel.code[*start] {
                    let next = slots[*counter].to_i128() + 1;
                    if next < slots[bound.at].to_i128() {
                        slots[*counter] = Scalar::Int(next);
                        return Ok(start + 1);
                    }
                }
            }
        }
        Ok(pc + 1)
    }

    fn load(&mut self, dst: Val, from: &Location) -> Result<()> {
        let dtype = self.kernel.storages[from.storage].dtype;
        let p = self.place[from.storage];
        let n = self.bufs.len();
        let bytes = if p < n {
            &self.bufs[p]
        } else {
            &self.own[p - n]
        };
        for i in 0..dst.n {
            let at = from.offset(&self.slots, i, "INDEX")?;
            self.slots[dst.at + i] = at.map_or(Ok(poison(dtype)), |at| read(bytes, at, dtype))?;
            if p < n && at.is_some() {
                self.counts.reads[p] += 1;
            }
        }
        Ok(())
    }

    fn store(&mut self, to: &Location, value: Val, gate: Option<Val>, lanes: usize) -> Result<()> {
        let dtype = self.kernel.storages[to.storage].dtype;
        let p = self.place[to.storage];
        let n = self.bufs.len();
        let bytes = if p < n {
            &mut self.bufs[p]
        } else {
            &mut self.own[p - n]
        };
        for i in 0..lanes {
            if gate.is_some_and(|g| !self.slots[g.lane(i)].truthy()) {
                continue;
            }
            let Some(at) = to.offset(&self.slots, i, "STORE")? else {
                continue;
            };
            write(bytes, at, self.slots[value.lane(i)], dtype)?;
            if p < n {
                self.counts.writes[p] += 1;
            }
        }
        Ok(())
    }
}

/// An elementwise op on the values of one lane.
fn folded(op: Op, from: DType, to: DType, values: &[Scalar]) -> Result<Scalar> {
    match fold(op, from, to, values) {
        Some(r) => Ok(r),
        // A division that no device defines may stand in a branch not taken.
        None if values.contains(&Scalar::Invalid) => Ok(Scalar::Invalid),
        None if matches!(op, Op::TruncDiv | Op::TruncMod) => Ok(poison(to)),
        None => Err(unsupported(op, "is not defined on its operands")),
    }
}

fn outside(op: &str, index: i64, size: i64) -> Error {
    ErrorKind::Index {
        op: op.into(),
        index,
        size,
    }
    .into()
}

impl Location {
    /// The element for lane `i`, or None where an index is invalid.
    fn offset(&self, slots: &[Scalar], i: usize, op: &str) -> Result<Option<usize>> {
        let mut rest = i;
        let mut lane = [0usize; 16];
        for (k, v) in self.index.iter().enumerate().rev() {
            lane[k] = rest % v.n;
            rest /= v.n;
        }
        let mut at = 0i128;
        let mut invalid = false;
        for (k, (v, d)) in self.index.iter().zip(&self.dims).enumerate() {
            let x = slots[v.at + lane[k]];
            let size = slots[d.at].to_i128();
            if x == Scalar::Invalid {
                invalid = true;
                continue;
            }
            let x = x.to_i128();
            if !invalid && !(0..size).contains(&x) && !self.any_invalid(slots, &lane) {
                return Err(outside(op, x as i64, size as i64));
            }
            at = at * size + x;
        }
        Ok(if invalid { None } else { Some(at as usize) })
    }

    fn any_invalid(&self, slots: &[Scalar], lane: &[usize]) -> bool {
        self.index
            .iter()
            .zip(lane)
            .any(|(v, l)| slots[v.at + l] == Scalar::Invalid)
    }
}

fn read(bytes: &[u8], at: usize, dtype: DType) -> Result<Scalar> {
    let n = dtype.bytes();
    match bytes.get(at * n..at * n + n) {
        Some(b) => {
            let mut all = [0u8; 8];
            all[..n].copy_from_slice(b);
            Ok(Scalar::from_bits(u64::from_le_bytes(all), dtype))
        }
        None => Err(too_small(at, bytes.len() / n.max(1))),
    }
}

fn write(bytes: &mut [u8], at: usize, value: Scalar, dtype: DType) -> Result<()> {
    let n = dtype.bytes();
    let size = bytes.len() / n.max(1);
    match bytes.get_mut(at * n..at * n + n) {
        Some(b) => {
            b.copy_from_slice(&value.to_bits(dtype).to_le_bytes()[..n]);
            Ok(())
        }
        None => Err(too_small(at, size)),
    }
}

fn too_small(at: usize, size: usize) -> Error {
    Error::argument(
        "kernel",
        format!("element {at} of a buffer that holds {size}"),
    )
}

fn unsupported(op: Op, message: impl Into<String>) -> Error {
    ErrorKind::Unsupported {
        op: op.name().into(),
        message: message.into(),
    }
    .into()
}

/// What an invalid read gives: nothing that a right kernel can depend on.
fn poison(dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool(true),
        d if d.is_float() => Scalar::Float(f64::NAN),
        d => Scalar::Int(0x5a5a_5a5a_5a5a_5a5a).round_to(d),
    }
}
