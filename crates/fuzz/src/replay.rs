//! Captured functions, and functions whose calls are nodes, against the operations themselves. Flows in: seeds, each of
//! which is a random program, which pieces of it are functions, which of its inputs are passed and which are reached,
//! whether gradients are taken, and what is passed in each of some calls; flows out: the calls whose values, or what
//! they leave behind, differ.
//!
//! Invariant: the function that is captured and the one that is not have tensors of their own, of equal values.

use crate::check::Tally;
use crate::pieces::{self, Made, Piece};
use crate::program::{self, Dice};
use crate::run::difference;
use monoglot_oracle::eval::Value;
use monoglot_tensor::{Result, Tensor, jit};
use monoglot_uop::{DType, Device, Op, UOp};
use std::ops::Range;

/// Calls of each function.
const CALLS: u64 = 5;

/// Compare the functions of these seeds on a device.
///
/// # Errors
/// Where the device cannot be opened.
pub fn replay(seeds: Range<u64>, ops: u64, device: &str, tally: &mut Tally) -> Result<()> {
    let device = Device::new(device);
    monoglot_device::open(device)?;
    let first = seeds.start;
    for seed in seeds {
        let case = Case::new(seed, ops, device);
        match case.compared(seed) {
            Ok(None) => tally.looked(),
            Ok(Some(message)) => tally.wrong(seed, device.name(), &message, case.text()),
            Err(e) => tally.wrong(seed, device.name(), &e.to_string(), case.text()),
        }
        if (seed - first) % 100 == 99 {
            tally.tell(&format!(
                "{}: {} functions",
                device.name(),
                seed - first + 1
            ));
        }
    }
    Ok(())
}

/// A function.
struct Case {
    roots: Vec<UOp>,
    /// The BUFFERs below them, and for each whether it is passed.
    buffers: Vec<UOp>,
    passed: Vec<bool>,
    /// For each BUFFER, the root that it is assigned.
    assigned: Vec<Option<usize>>,
    /// What becomes a function, if anything does.
    piece: Option<Piece>,
    /// The BUFFERs that gradients are asked for.
    targets: Vec<usize>,
    /// Whether the whole is captured.
    captured: bool,
}

/// A function's tensors, one for each of its BUFFERs.
type Tensors = Vec<Tensor>;

impl Case {
    fn new(seed: u64, ops: u64, device: Device) -> Case {
        let mut dice = Dice::new(seed ^ 0x7265_706c);
        let roots = program::random(seed, ops, device);
        let buffers: Vec<UOp> = UOp::sink(&roots).toposort();
        let buffers: Vec<UOp> = buffers
            .into_iter()
            .filter(|u| u.op() == Op::Buffer)
            .collect();
        let passed: Vec<bool> = buffers.iter().map(|_| dice.roll(3) > 0).collect();
        let mut assigned = Vec::with_capacity(buffers.len());
        for b in &buffers {
            let fits: Vec<usize> = (0..roots.len())
                .filter(|&r| roots[r].shape() == b.shape() && roots[r].dtype() == b.dtype())
                .collect();
            let chosen = !fits.is_empty() && dice.roll(2) == 0;
            assigned.push(chosen.then(|| *dice.pick(&fits)));
        }
        let leaves: Vec<UOp> = (0..buffers.len())
            .filter(|&k| passed[k])
            .map(|k| buffers[k].clone())
            .collect();
        let piece = match dice.roll(3) {
            0 => None,
            _ => Piece::new(&mut dice, &roots, &leaves, true),
        };
        let is_half = |u: &UOp| matches!(u.dtype(), DType::F16 | DType::BF16);
        let exact = !UOp::sink(&roots).toposort().iter().any(is_half);
        let float = |k: &usize| buffers[*k].dtype() == DType::F32;
        // Gradients go by values: where one tensor was assigned another, the two may be one or not.
        let is_other = |root: &usize| roots[*root].viewed().op() == Op::Buffer;
        let exact = exact && !assigned.iter().flatten().any(is_other);
        let targets = match exact && dice.roll(2) == 0 {
            true => (0..buffers.len()).filter(float).collect(),
            false => Vec::new(),
        };
        Case {
            captured: piece.is_none() || dice.roll(4) > 0,
            roots,
            buffers,
            passed,
            assigned,
            piece,
            targets,
        }
    }

    fn text(&self) -> String {
        let Case {
            passed,
            assigned,
            targets,
            captured,
            ..
        } = self;
        let piece = self.piece.as_ref().map(Piece::to_string);
        format!(
            "{}// passed {passed:?}, assigned {assigned:?}, gradients of {targets:?}, captured {captured}\n{}",
            UOp::sink(&self.roots),
            piece.unwrap_or_default()
        )
    }

    /// The function, of one tensor for each BUFFER; `made` is its piece, where that is to be a function.
    fn body(&self, given: &[Tensor], made: Option<&Made>) -> Result<Tensors> {
        let all: Vec<(UOp, Tensor)> = self.buffers.iter().cloned().zip(given.to_vec()).collect();
        let mut over = pieces::over(&all)?;
        let more = match (made, &self.piece) {
            (Some(made), _) => made.put(&mut over)?,
            (None, Some(piece)) => piece.inlined(&over, &all)?,
            (None, None) => Vec::new(),
        };
        let mut values = pieces::tensors(&self.roots, &over);
        values.extend(more);
        let gradients = self.gradients(&values, given)?;
        values.extend(gradients);
        for (t, root) in given.iter().zip(&self.assigned) {
            if let Some(root) = root {
                t.assign(&values[*root]);
            }
        }
        Ok(values)
    }

    /// The gradients of the sum of what is a float; zeros where an operation has none.
    fn gradients(&self, values: &[Tensor], given: &[Tensor]) -> Result<Tensors> {
        let mut loss: Option<Tensor> = None;
        for t in values {
            if t.dtype()? == DType::F32 {
                let sum = t.sum(.., false);
                loss = Some(loss.map_or(sum.clone(), |l| l + sum));
            }
        }
        let mut out = Vec::new();
        for &k in self.targets.iter().filter(|_| loss.is_some()) {
            // What is simplified may no longer depend on it.
            let found = loss.as_ref().and_then(|l| l.gradient(&[&given[k]]).ok());
            match found {
                Some(found) => out.extend(found),
                None => out.push(given[k].detach() * 0.0),
            }
        }
        Ok(out)
    }

    /// All tensors of a function, of those that are passed and those that it reaches.
    fn joined(&self, passed: &[Tensor], reached: &[Tensor]) -> Tensors {
        let mut passed = passed.iter().cloned();
        let mut reached = reached.iter().cloned();
        let next = |&is_passed: &bool| match is_passed {
            true => passed.next(),
            false => reached.next(),
        };
        self.passed.iter().filter_map(next).collect()
    }

    /// The tensors of BUFFERs that are passed, or of those that are not.
    fn of(&self, passed: bool) -> impl Iterator<Item = usize> + '_ {
        (0..self.buffers.len()).filter(move |&k| self.passed[k] == passed)
    }

    fn data(&self, buffer: usize, seed: u64) -> Result<Tensor> {
        let b = &self.buffers[buffer];
        let bytes = program::data(b, seed ^ (buffer as u64) << 32);
        let device = b.device().unwrap_or_else(|| Device::new("CPU"));
        Ok(Tensor::from_bytes_on(
            &bytes,
            b.sizes("data")?,
            b.dtype(),
            device,
        ))
    }

    /// What differs in some call, if anything does.
    fn compared(&self, seed: u64) -> Result<Option<String>> {
        let mut dice = Dice::new(seed ^ 0x6361_6c6c);
        let fresh = |k: usize, of: u64| -> Result<[Tensor; 2]> {
            Ok([
                self.data(k, seed ^ of << 16)?,
                self.data(k, seed ^ of << 16)?,
            ])
        };
        let mut reached: [Tensors; 2] = [Vec::new(), Vec::new()];
        for k in self.of(false) {
            let [a, b] = fresh(k, 99)?;
            reached[0].push(a);
            reached[1].push(b);
        }
        let hidden: Vec<(UOp, Tensor)> = self
            .of(false)
            .map(|k| self.buffers[k].clone())
            .zip(reached[0].iter().cloned())
            .collect();
        let made = self.piece.as_ref().map(|piece| piece.made(&hidden));
        let body =
            |passed: Vec<Tensor>| self.body(&self.joined(&passed, &reached[0]), made.as_ref());
        let captured = jit(body)?;
        let mut passed: [Tensors; 2] = [Vec::new(), Vec::new()];
        // What was given out before, and its value then.
        let mut kept: Vec<(Tensor, Vec<u8>)> = Vec::new();
        for call in 0..CALLS {
            self.choose(&mut dice, &mut passed, &fresh, call)?;
            for (k, buffer) in self.of(false).enumerate() {
                if dice.roll(3) == 0 {
                    let [a, b] = fresh(buffer, 200 + call)?;
                    reached[0][k].assign(a);
                    reached[1][k].assign(b);
                }
            }
            let got = match self.captured {
                true => captured.call(&passed[0])?,
                false => body(passed[0].clone())?,
            };
            let all = self.joined(&passed[1], &reached[1]);
            let want = self.body(&all, None)?;
            if want.len() != got.len() {
                let wanted = want.len();
                return Ok(Some(format!(
                    "call {call}: {} values, not {wanted}",
                    got.len()
                )));
            }
            Tensor::realize_all(&want.iter().chain(&all).collect::<Vec<_>>())?;
            let left = self.joined(&passed[0], &reached[0]);
            // Nothing times an infinity is NaN, or nothing where what is left out of a sum is known.
            let gradients = want.len().saturating_sub(self.targets.len())..want.len();
            let unknown = match finite(&want[..gradients.start])? {
                true => 0..0,
                false => gradients,
            };
            let pairs = want.iter().chain(&all).zip(got.iter().chain(&left));
            for (n, (want, got)) in pairs.enumerate().filter(|p| !unknown.contains(&p.0)) {
                if let Some(what) = different(want, got)? {
                    let roots = self.roots.len();
                    let which = match n.checked_sub(roots) {
                        None => format!("root {n}"),
                        Some(k) => format!("tensor {k}"),
                    };
                    return Ok(Some(format!("call {call}, {which}: {what}")));
                }
            }
            for t in got {
                let bytes = t.to_bytes()?;
                kept.push((t, bytes));
            }
        }
        for (t, bytes) in &kept {
            if t.to_bytes()? != *bytes {
                return Ok(Some("what an earlier call gave has changed".into()));
            }
        }
        Ok(None)
    }

    /// What is passed next, for both functions.
    fn choose(
        &self,
        dice: &mut Dice,
        passed: &mut [Tensors; 2],
        fresh: &dyn Fn(usize, u64) -> Result<[Tensor; 2]>,
        call: u64,
    ) -> Result<()> {
        for (k, buffer) in self.of(true).enumerate() {
            let alike = |j: &usize| {
                let other = &self.buffers[self.of(true).nth(*j).unwrap_or(buffer)];
                let this = &self.buffers[buffer];
                other.shape() == this.shape() && other.dtype() == this.dtype()
            };
            let others: Vec<usize> = (0..passed[0].len()).filter(alike).collect();
            let choice = dice.roll(5);
            let next = match choice {
                // Another one's tensor, or its own again.
                0 | 1 if !others.is_empty() => {
                    let j = *dice.pick(&others);
                    [passed[0][j].clone(), passed[1][j].clone()]
                }
                // An expression.
                2 => fresh(buffer, call)?.map(|t| &t + 0),
                _ => fresh(buffer, call)?,
            };
            for (list, t) in passed.iter_mut().zip(next) {
                match list.get_mut(k) {
                    Some(place) => *place = t,
                    None => list.push(t),
                }
            }
        }
        Ok(())
    }
}

/// Whether no float of these is infinite or NaN.
fn finite(tensors: &[Tensor]) -> Result<bool> {
    for t in tensors {
        let floats = t.dtype()?.is_float();
        if floats
            && t.cast(DType::F32)
                .to_vec::<f32>()?
                .iter()
                .any(|v| !v.is_finite())
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The first element in which two tensors differ by more than rounding, as text.
fn different(want: &Tensor, got: &Tensor) -> Result<Option<String>> {
    let value = |t: &Tensor| {
        let shape: Vec<i64> = t.shape()?.iter().map(|&n| n as i64).collect();
        Value::from_bytes(&t.to_bytes()?, &shape, t.dtype()?)
    };
    let want = value(want)?;
    let got = value(got)?;
    if want.len() != got.len() {
        return Ok(Some(format!("{} elements, not {}", got.len(), want.len())));
    }
    Ok(difference(&want, &got))
}
