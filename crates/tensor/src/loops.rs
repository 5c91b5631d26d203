//! Loops: one step, again and again. Flows in: a step, what it carries from one time to the next, and what has a
//! part for each time; flows out: what is carried in the end, and what all times gave, as values of one node: a
//! FUNCTION with a length, of which one step is compiled.
//!
//! What the step reaches without being passed is the same each time, but for what it assigns: that is carried.

use crate::jit::Body;
use crate::random;
use crate::signature::Over;
use crate::tensor::Tensor;
use crate::trace::{self, As, Draw, Standing, Trace};
use crate::tree::{Leaf, Outcome, Passed, Tensors};
use monoglot_engine as engine;
use monoglot_uop::function::{abstracted_behind, scan as node, without_assertions};
use monoglot_uop::{DType, Dim, Error, ErrorKind, Result, ScanInfo, Shape, UOp};
use rustc_hash::FxHashMap;
use std::panic::Location;

/// Do a step for each part of `xs` along the first axis, in order: the step gets what the one before it gave as
/// its carry, and the part, and gives the next carry and what is gathered. Flows out: the last carry, and what was
/// gathered, whose tensors have a first axis more.
///
/// The program is of the size of one step, whatever the length. It can be differentiated; so can its gradient.
/// Carries keep their shapes and dtypes. What the step assigns (statistics, counters) has its value after the
/// last step. Steps may hold scans. What a step looks up is checked; what is wrong is told when all steps have run, its
/// position beginning with the time.
///
/// ```
/// use monoglot_tensor::{Tensor, scan};
/// let w = Tensor::randn([4, 4]).parameter();
/// let xs = Tensor::randn([50, 2, 4]);
/// let step = |h: Tensor, x: Tensor| {
///     let h = (h.matmul(&w) + x).tanh();
///     (h.clone(), h)
/// };
/// let (last, all) = scan(step, Tensor::zeros([2, 4]), &xs)?;
/// assert_eq!(all.shape()?, [50, 2, 4]);
/// let gradient = last.sum(.., false).gradient(&[&w])?.remove(0);
/// assert_eq!(gradient.shape()?, [4, 4]);
/// # Ok::<(), monoglot_tensor::Error>(())
/// ```
///
/// # Errors
/// Those of the step, and those that its tensors carry; `Shape` where the first axes of `xs` are not of one
/// length, or a carry changes its shape or dtype, and, once it runs, where the size of parts or of what is gathered
/// varies; `Argument` where a carry goes to another device; `Capture` where the step reads what depends on the
/// time, or assigns what it cannot carry.
#[track_caller]
pub fn scan<M, C: Tensors, X: Tensors, Y: Tensors>(
    step: impl Step<M, C, X, Y>,
    carry: impl Passed<C>,
    xs: impl Passed<X>,
) -> Result<(C, Y)> {
    let here = Location::caller();
    looped(&step, &carry.passed(), &xs.passed(), false).map_err(|e| e.at(here))
}

/// As `scan`, from the last part of `xs` to the first; what is gathered stands where its part does.
///
/// # Errors
/// As `scan`.
#[track_caller]
pub fn scan_reversed<M, C: Tensors, X: Tensors, Y: Tensors>(
    step: impl Step<M, C, X, Y>,
    carry: impl Passed<C>,
    xs: impl Passed<X>,
) -> Result<(C, Y)> {
    let here = Location::caller();
    looped(&step, &carry.passed(), &xs.passed(), true).map_err(|e| e.at(here))
}

/// A step of a scan: a closure that takes a carry and a part, each a tree of tensors, and gives the next carry and
/// what is gathered, or a `Result` of the two.
pub trait Step<M, C, X, Y>: Body<M, Arguments = (C, X), Outcome: Outcome<Value = (C, Y)>> {}

impl<M, C, X, Y, F> Step<M, C, X, Y> for F where
    F: Body<M, Arguments = (C, X), Outcome: Outcome<Value = (C, Y)>>
{
}

/// A step as it was traced.
struct Traced<C, Y> {
    carry: C,
    gathered: Y,
    carries: Vec<UOp>,
    values: Vec<UOp>,
    trace: Trace,
}

fn looped<M, C: Tensors, X: Tensors, Y: Tensors>(
    step: &impl Step<M, C, X, Y>,
    carry: &C,
    xs: &X,
    reversed: bool,
) -> Result<(C, Y)> {
    engine::open_default()?;
    let begin = expressions(carry)?;
    let slices = expressions(xs)?;
    let length = length(&slices)?;
    let one = |u: &UOp| stand_in(u, u.shape().clone());
    let part = |u: &UOp| stand_in(u, Shape::new(u.shape().iter().skip(1).cloned()));
    let carried: Vec<UOp> = begin.iter().map(one).collect();
    let parts: Vec<UOp> = slices.iter().map(part).collect();
    let run = || {
        let arguments = (over(carry, &carried), over(xs, &parts));
        step.run(arguments).outcome()
    };
    let finish = |(carry, gathered): (C, Y), mut trace: Trace| {
        let carries = values(&carry, &mut trace)?;
        let values = values(&gathered, &mut trace)?;
        Ok(Traced {
            carry,
            gathered,
            carries,
            values,
            trace,
        })
    };
    let traced = trace::trace(trace::fresh(), Standing::Own, Vec::new(), run, finish)?;
    same_carries(&begin, &traced.carries)?;
    let (last, gathered) = traced.node(begin, carried, slices, parts, length, reversed)?;
    Ok((
        over(&traced.carry, &last),
        over(&traced.gathered, &gathered),
    ))
}

impl<C, Y> Traced<C, Y> {
    /// The last carries and what is gathered.
    fn node(
        &self,
        mut begin: Vec<UOp>,
        mut carried: Vec<UOp>,
        mut slices: Vec<UOp>,
        mut parts: Vec<UOp>,
        length: i64,
        reversed: bool,
    ) -> Result<(Vec<UOp>, Vec<UOp>)> {
        let own = begin.len();
        let trace = &self.trace;
        let mut next = self.carries.clone();
        let mut from: FxHashMap<&UOp, UOp> = FxHashMap::default();
        let mut written = Vec::new();
        for reached in &trace.reached {
            let tensor = Tensor(reached.cell.clone());
            let now = trace::outside(&reached.instead).value;
            let input = match reached.as_what {
                As::Input(k) => Some(&trace.inputs[k]),
                _ => None,
            };
            if now == reached.begun {
                if let Some(input) = input.filter(|i| !carried.contains(i)) {
                    from.insert(input, tensor.uop()?);
                }
                continue;
            }
            let Some(input) = input.filter(|i| !from.contains_key(i) && !carried.contains(i))
            else {
                return Err(not_carried(&tensor));
            };
            begin.push(tensor.uop()?);
            carried.push(input.clone());
            next.push(crate::called::assigned(&now?));
            written.push(tensor);
        }
        if let Some(shared) = from.keys().find(|i| carried.contains(i)) {
            let tensor = Tensor::from_uop((*shared).clone());
            return Err(not_carried(&tensor));
        }
        for (k, [key, counter]) in self.draws(length)?.into_iter().enumerate() {
            from.insert(&trace.words[2 * k], key);
            slices.push(counter);
            parts.push(trace.words[2 * k + 1].clone());
        }
        if length == 0 {
            let none = |u: &UOp| {
                let sizes = [0i64.into()].into_iter().chain(u.shape().iter().cloned());
                UOp::full(u.dtype().zero(), u.dtype(), &Shape::new(sizes))
            };
            begin.truncate(own);
            return Ok((begin, self.values.iter().map(none).collect()));
        }
        let info = ScanInfo {
            length,
            carries: carried.len(),
            slices: parts.len(),
            reversed,
        };
        let first = [carried, parts].concat();
        next.extend_from_slice(&self.values);
        let (mut next, assertions) = without_assertions(&next)?;
        // What is asserted is gathered, and told when all steps have run.
        let shown = next.len();
        for assertion in &assertions {
            next.push(assertion.of.clone());
            next.push(assertion.holds.clone());
        }
        let made = abstracted_behind(&first, &next, &[])?;
        let mut arguments = [begin, slices].concat();
        for u in &made.arguments[first.len()..] {
            arguments.push(from.get(u).unwrap_or(u).clone());
        }
        let mut values = node(&made.body, &arguments, info)?;
        let asserted = values.split_off(shown);
        for (assertion, all) in assertions.iter().zip(asserted.chunks(2)) {
            for value in &mut values {
                *value = assertion.asserted(value, &all[0], &all[1])?;
            }
        }
        let gathered = values.split_off(info.carries);
        for (tensor, value) in written.iter().zip(values.split_off(own)) {
            tensor.assign(Tensor::from_uop(value)).check()?;
        }
        Ok((values, gathered))
    }

    /// For each draw the key, and the counter of each time.
    fn draws(&self, length: i64) -> Result<Vec<[UOp; 2]>> {
        let mut total = 0;
        let mut before = Vec::new();
        for draw in &self.trace.draws {
            let Draw::Numbers(count) = draw else {
                let message = "the seed of random numbers is set within a scan".into();
                return Err(ErrorKind::Capture { message }.into());
            };
            let Dim::Int(count) = count else {
                let message = format!("{count:?} random numbers each time: as many as varies");
                let op = "scan".into();
                return Err(ErrorKind::Unsupported { op, message }.into());
            };
            before.push(total);
            total += count;
        }
        if before.is_empty() {
            return Ok(Vec::new());
        }
        let [key, counter] = random::words(&Dim::Int(total * length))?;
        let line = counter
            .reshape(&Shape::of(&[1]))?
            .expand(&Shape::of(&[length]))?;
        let times = UOp::arange(length, DType::U64) * total + line;
        let draw = |before: i64| [key.clone(), &times + before];
        Ok(before.into_iter().map(draw).collect())
    }
}

/// The expressions of a tree's tensors.
fn expressions(tree: &impl Tensors) -> Result<Vec<UOp>> {
    tensors(tree).iter().map(Tensor::uop).collect()
}

fn tensors(tree: &impl Tensors) -> Vec<Tensor> {
    let mut out = Vec::new();
    tree.leaves(&mut |leaf| {
        if let Leaf::Tensor(t) = leaf {
            out.push(t.clone());
        }
    });
    out
}

/// The values that a traced step gives.
fn values(tree: &impl Tensors, trace: &mut Trace) -> Result<Vec<UOp>> {
    let value = |t: &Tensor| {
        let own = t.0.made == trace.number();
        let cell = if own {
            t.0.clone()
        } else {
            trace.reached(&t.0)
        };
        trace::outside(&cell).value
    };
    tensors(tree).iter().map(value).collect()
}

/// A tree over these expressions.
fn over<T: Tensors>(tree: &T, expressions: &[UOp]) -> T {
    let mut next = expressions.iter();
    tree.rebuilt(&mut Over {
        next: |old: &Tensor| {
            next.next().map_or_else(
                || old.clone(),
                |u| Tensor::made_of(Ok(u.clone()), old.0.line, None),
            )
        },
        were: &[],
        are: &[],
    })
}

fn stand_in(u: &UOp, shape: Shape) -> UOp {
    let device = u.device().unwrap_or_else(engine::default_device);
    engine::stand_in(&shape, u.dtype(), device)
}

/// How many parts these have.
fn length(slices: &[UOp]) -> Result<i64> {
    let mut known = None;
    for (k, u) in slices.iter().enumerate() {
        let Some(n) = u.shape().first().and_then(|d| d.as_int()) else {
            let message = format!("tensor {k} of what it goes over has shape {}", u.shape());
            let why = match u.shape().is_empty() {
                true => "it has no axis that could be over the times",
                false => {
                    "a scan of a length that varies is not there yet: pad to a fixed length, and mask"
                }
            };
            return Err(Error::shape("scan", format!("{message}; {why}")));
        };
        if known.is_some_and(|m| m != n) {
            let message = format!("{} and {n} parts", known.unwrap_or(0));
            return Err(Error::shape("scan", message));
        }
        known = Some(n);
    }
    known.ok_or_else(|| {
        let message =
            "it goes over no tensor, so that nothing says how often; pass `Tensor::arange`";
        Error::argument("scan", message)
    })
}

/// Whether the next carries are like the first.
fn same_carries(begin: &[UOp], next: &[UOp]) -> Result<()> {
    if begin.len() != next.len() {
        let message = format!(
            "a carry of {} tensors, and then {}",
            begin.len(),
            next.len()
        );
        return Err(Error::shape("scan", message));
    }
    for (k, (a, b)) in begin.iter().zip(next).enumerate() {
        let was = a.shape();
        let is = b.shape();
        if was != is || a.dtype() != b.dtype() {
            let message = format!(
                "carry {k} is {} {was}, and then {} {is}",
                a.dtype(),
                b.dtype()
            );
            return Err(Error::shape("scan", message));
        }
        let was = a.device().unwrap_or_else(engine::default_device);
        let is = b.device().unwrap_or(was);
        if was != is {
            let message = format!("carry {k} is on {was}, and then on {is}");
            return Err(Error::argument("scan", message));
        }
    }
    Ok(())
}

fn not_carried(t: &Tensor) -> Error {
    let message = "a step assigns a tensor that is no storage of its own (a constant, a view, or what another \
                   tensor is, too): pass it as a carry, or make it a `parameter`"
        .into();
    Error::from(ErrorKind::Capture { message }).at(t.0.line)
}
