//! Runs of linear programs. Flows in: programs and devices; flows out: what their storage holds afterwards, or what
//! differs. Invariant: storage begins between two vectors, and what lies beside it is not touched.

use super::maker::Made;
use crate::program::Dice;
use monoglot_device::{Kernel, Runtime, open};
use monoglot_engine::backend;
use monoglot_native::Checked;
use monoglot_uop::spec::verify_linear;
use monoglot_uop::{
    Backend, DType, Device, Dialect, ErrorKind, Op, Program, Result, Scalar, Target, UOp,
};
use std::sync::Arc;

/// Bytes beside storage that nothing touches.
pub const BESIDE: usize = 64;

/// A device to compare.
pub struct Machine {
    /// Its name.
    pub name: String,
    runtime: Arc<dyn Runtime>,
}

impl Machine {
    /// Open a device.
    ///
    /// # Errors
    /// Where it cannot be opened.
    pub fn new(name: &str) -> Result<Machine> {
        Ok(Machine {
            name: name.into(),
            runtime: open(Device::new(name))?.clone(),
        })
    }

    /// What it is.
    pub fn target(&self) -> &Target {
        self.runtime.target()
    }

    /// The code of a program; of machine code, what the allocator did is checked.
    ///
    /// # Errors
    /// What the back end says.
    pub fn program(&self, made: &Made) -> Result<Program> {
        let back: &dyn Backend = match self.target().dialect {
            Dialect::X86 => &Checked,
            dialect => backend(dialect),
        };
        let linear = verify_linear(made.linear.clone())?;
        let sink = UOp::sink(&[]);
        Program::emit(back, sink, linear, made.info.clone(), self.target())
    }

    /// The text of a program's code, or why there is none.
    pub fn source(&self, made: &Made) -> String {
        let program = self.program(made);
        let source = program.map(|p| {
            let text = p.src().get(2).and_then(|source| source.arg().text());
            text.unwrap_or_default().to_string()
        });
        source.unwrap_or_else(|e| e.to_string())
    }

    /// Kernels of programs, all at once: of each, or why there is none.
    pub fn compile(&self, all: &[&Made]) -> Vec<Result<Arc<dyn Kernel>>> {
        let programs: Vec<Result<Program>> = all.iter().map(|m| self.program(m)).collect();
        let good: Vec<Program> = programs.iter().filter_map(|p| p.clone().ok()).collect();
        let together = self.runtime.compile(&good);
        let mut together = together.ok().map(Vec::into_iter);
        let one = |p: Program| -> Result<Arc<dyn Kernel>> {
            if let Some(kernel) = together.as_mut().and_then(Iterator::next) {
                return Ok(kernel);
            }
            let mut alone = self.runtime.compile(&[p])?;
            alone.pop().ok_or_else(|| {
                let message = "no kernel".into();
                ErrorKind::Run { message }.into()
            })
        };
        let mut one = one;
        programs.into_iter().map(|p| p.and_then(&mut one)).collect()
    }

    /// Run a kernel on storage that begins with these bytes; what it holds afterwards.
    ///
    /// # Errors
    /// What the device says, or that it wrote beside its storage.
    pub fn run(&self, kernel: &Arc<dyn Kernel>, inputs: &Inputs) -> Result<Vec<Vec<u8>>> {
        let mut whole = Vec::new();
        let mut parts = Vec::new();
        for (data, offset) in inputs.bytes.iter().zip(&inputs.offsets) {
            let storage = self.runtime.alloc(data.len() + 2 * BESIDE)?;
            let filled = vec![0x5a; data.len() + 2 * BESIDE];
            self.runtime.upload(&storage, 0, &filled)?;
            let part = storage.slice(*offset, data.len());
            let part = part.ok_or_else(|| wrong("a slice beyond its storage".into()))?;
            self.runtime.upload(&part, 0, data)?;
            whole.push(storage);
            parts.push(part);
        }
        self.runtime.launch(kernel, &parts, &inputs.words)?;
        let mut out = Vec::new();
        for (k, (storage, data)) in whole.iter().zip(&inputs.bytes).enumerate() {
            let mut all = vec![0; data.len() + 2 * BESIDE];
            self.runtime.download(storage, 0, &mut all)?;
            let from = inputs.offsets[k];
            let mut beside = all[..from].iter().chain(&all[from + data.len()..]);
            if beside.any(|&b| b != 0x5a) {
                return Err(wrong(format!("what lies beside argument {k} was written")));
            }
            out.push(all[from..from + data.len()].to_vec());
        }
        Ok(out)
    }
}

fn wrong(message: String) -> monoglot_uop::Error {
    ErrorKind::Run { message }.into()
}

/// What a program is run on.
pub struct Inputs {
    /// Of each storage argument.
    pub bytes: Vec<Vec<u8>>,
    /// Where it begins in its storage.
    pub offsets: Vec<usize>,
    /// Of each variable.
    pub words: Vec<i64>,
    dtypes: Vec<DType>,
}

impl Inputs {
    /// Those of a program's arguments.
    pub fn of(linear: &UOp, seed: u64) -> Inputs {
        let mut params: Vec<&UOp> = linear
            .src()
            .iter()
            .filter(|u| u.op() == Op::Param)
            .collect();
        params.sort_by_key(|p| slot(p));
        let mut inputs = Inputs {
            bytes: Vec::new(),
            offsets: Vec::new(),
            words: Vec::new(),
            dtypes: Vec::new(),
        };
        for p in params {
            let mut dice = Dice::new(seed ^ slot(p) << 40);
            if p.is_variable() {
                inputs.words.push(word(p, &mut dice));
                continue;
            }
            let d = p.dtype();
            let kind = dice.roll(3);
            let value = |_| bits(d, &mut dice, kind).to_le_bytes()[..d.bytes()].to_vec();
            let bytes = (0..p.shape().max_len()).flat_map(value).collect();
            inputs.bytes.push(bytes);
            let step = dice.roll((BESIDE / d.bytes()) as u64) as usize * d.bytes();
            let aligned = dice.roll(2) == 0;
            inputs.offsets.push(if aligned { BESIDE } else { step });
            inputs.dtypes.push(d);
        }
        inputs
    }
}

fn slot(p: &UOp) -> u64 {
    p.buffer_arg().map_or(0, |b| b.slot)
}

fn word(p: &UOp, dice: &mut Dice) -> i64 {
    if p.src().len() > 1 {
        let (lo, hi) = p.bounds();
        return lo + dice.roll((hi - lo + 1) as u64) as i64;
    }
    let bits = bits(p.dtype(), dice, 0);
    // An integer is a word of its value, a float its bits.
    match Scalar::from_bits(bits, p.dtype()) {
        Scalar::Int(v) => v as i64,
        _ => bits as i64,
    }
}

/// Bits of a value: anything (0), what is small (1), what is special (2).
fn bits(d: DType, dice: &mut Dice, kind: u64) -> u64 {
    let any = dice.roll(u64::MAX);
    let small = Scalar::Int(dice.roll(21) as i128 - 10);
    let roll = dice.roll(4);
    let value = match (kind, roll) {
        (0, 0 | 1) => return any & (u64::MAX >> (64 - d.bits())),
        (2, 0..=2) if d.is_float() => Scalar::Float(*dice.pick(&super::FLOATS)).round_to(d),
        (2, 0..=2) => Scalar::Int(*dice.pick(&super::NUMBERS) as i128).round_to(d),
        (_, 3) if d.is_float() => {
            let big = 2f64.powi(dice.roll(60) as i32 - 30);
            Scalar::Float(small.to_f64() * big).round_to(d)
        }
        _ => small.cast(d),
    };
    value.to_bits(d)
}

/// What differs between what two devices left in storage.
pub fn difference(inputs: &Inputs, want: &[Vec<u8>], got: &[Vec<u8>]) -> Option<String> {
    for (k, (want, got)) in want.iter().zip(got).enumerate() {
        let d = inputs.dtypes[k];
        let pairs = want.chunks(d.bytes()).zip(got.chunks(d.bytes()));
        for (i, (w, g)) in pairs.enumerate().filter(|(_, (w, g))| w != g) {
            let value = |b: &[u8]| {
                let mut word = [0; 8];
                word[..b.len()].copy_from_slice(b);
                Scalar::from_bits(u64::from_le_bytes(word), d)
            };
            let nan = |v: Scalar| d.is_float() && v.to_f64().is_nan();
            let w = value(w);
            let g = value(g);
            if !(nan(w) && nan(g)) {
                return Some(format!("argument {k}, element {i} is {g:?}, not {w:?}"));
            }
        }
    }
    None
}
