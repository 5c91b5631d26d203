//! What a function asserts, as little values that tell whether it holds. Flows in: a function, whose last
//! roots are conditions; flows out: what is wanted and, for every few conditions of one device, a word;
//! later, where the words are.
//!
//! The elements of a word's conditions stand in one line. The word is how many are left in it from the
//! first that does not hold on: 0 where all do. So a word is one reduction in one kernel, and says where.

use crate::Schedule;
use crate::callify::Function;
use crate::kernel::{Callee, Calls};
use monoglot_uop::graph::toposort_many;
use monoglot_uop::{DType, Device, Dim, Op, ReduceOp, Result, Scalar, Shape, UOp};
use rustc_hash::FxHashMap;

/// Conditions that share a word, at most.
const TOGETHER: usize = 8;

/// Where a schedule tells whether conditions hold.
#[derive(Clone, Debug)]
pub struct Check {
    /// The allocation that holds the word: one integer.
    pub allocation: usize,
    /// Its dtype.
    pub dtype: DType,
    /// The conditions, by number, and how many elements they have.
    pub conditions: Vec<(usize, i64)>,
}

impl Check {
    /// The condition that does not hold and the element that is wrong, if a word tells of one.
    pub fn wrong(&self, word: i64) -> Option<(usize, i64)> {
        let all: i64 = self.conditions.iter().map(|(_, n)| n).sum();
        let mut at = all.saturating_sub(word).max(0);
        for &(condition, n) in &self.conditions {
            if at < n {
                return Some((condition, at));
            }
            at -= n;
        }
        None
    }
}

/// A word that is asked for.
#[derive(Debug)]
pub(crate) struct Word {
    device: Option<Device>,
    conditions: Vec<(usize, i64)>,
    /// The donated PARAMs whose next versions its conditions are computed from, ascending.
    pub(crate) after: Vec<usize>,
}

/// What is wanted of a function and, behind that, its words.
pub(crate) fn words(function: &Function) -> Result<(Vec<UOp>, Vec<Word>)> {
    let wanted = function.wanted();
    let conditions = &function.roots[wanted.len()..];
    let mut roots = wanted.to_vec();
    let after = next_versions(conditions, &function.donated);
    let mut words: Vec<Word> = Vec::new();
    for (k, c) in conditions.iter().enumerate() {
        let elements = c.shape().max_len();
        let after = after.get(c).cloned().unwrap_or_default();
        if elements == 0 {
            continue;
        }
        // What is of no device is computed wherever it is wanted.
        let device =
            |w: &Word| c.device().is_none() || w.device.is_none() || w.device == c.device();
        let room = |w: &&mut Word| w.after == after && w.conditions.len() < TOGETHER && device(w);
        match words.iter_mut().rev().take(TOGETHER).find(room) {
            Some(word) => {
                word.device = word.device.or(c.device());
                word.conditions.push((k, elements));
            }
            None => words.push(Word {
                device: c.device(),
                conditions: vec![(k, elements)],
                after,
            }),
        }
    }
    for word in &words {
        roots.push(value(word, conditions)?);
    }
    Ok((roots, words))
}

/// For each node below that is computed from them, the donated PARAMs whose next versions it sees.
fn next_versions(conditions: &[UOp], donated: &[bool]) -> FxHashMap<UOp, Vec<usize>> {
    let mut out: FxHashMap<UOp, Vec<usize>> = FxHashMap::default();
    for u in toposort_many(conditions, |u| u.ops_below().contains(Op::After)) {
        let mut all: Vec<usize> = Vec::new();
        for s in u.src() {
            all.extend(out.get(s).into_iter().flatten());
        }
        if u.op() == Op::After
            && let Some(b) = u.src()[0].buffer_arg()
            && donated.get(b.slot as usize) == Some(&true)
        {
            all.push(b.slot as usize);
        }
        all.sort();
        all.dedup();
        if !all.is_empty() {
            out.insert(u, all);
        }
    }
    out
}

/// A word's value, of shape ().
fn value(word: &Word, conditions: &[UOp]) -> Result<UOp> {
    let all: i64 = word.conditions.iter().map(|(_, n)| n).sum();
    let dtype = match i32::try_from(all) {
        Ok(_) => DType::I32,
        Err(_) => DType::I64,
    };
    let mut left = all;
    let mut value: Option<UOp> = None;
    for &(k, n) in &word.conditions {
        let holds = line(&conditions[k], n)?;
        let from_here = UOp::int(left, dtype) - UOp::arange(n, dtype);
        let wrong = holds.select(&UOp::int(0, dtype), &from_here);
        let first = wrong.reduce(ReduceOp::Max, &[0])?.reshape(&Shape::SCALAR)?;
        value = Some(value.map_or(first.clone(), |v| v.max_(&first)));
        left -= n;
    }
    Ok(value.expect("a word has conditions"))
}

/// A condition's elements in one line; what a varying length leaves out holds.
fn line(condition: &UOp, n: i64) -> Result<UOp> {
    let shape = condition.shape();
    let mut whole = condition.clone();
    if shape.ints().is_none() {
        let most = Shape::new(shape.iter().map(|d| Dim::Int(d.max())));
        let start = vec![Dim::Int(0); shape.len()];
        whole = whole.pad(&start, &most, Scalar::Bool(true))?;
    }
    whole.reshape(&Shape::of(&[n]))
}

/// Leave out the words that are 0 whatever the data: kernels that store just that.
pub(crate) fn without_proved(all: &mut Calls, words: &mut Vec<Word>) {
    let wanted = all.outputs.len() - words.len();
    for k in (0..words.len()).rev() {
        let slot = all.outputs[wanted + k].slot;
        let Some(at) = all.calls.iter().position(|k| k.args[0] == slot) else {
            continue;
        };
        if !stores_zero(&all.calls[at].callee) {
            continue;
        }
        words.remove(k);
        all.outputs.remove(wanted + k);
        let read = |k: &crate::kernel::Call| k.args[k.outs..].contains(&slot);
        if !all.outputs.iter().any(|o| o.slot == slot) && !all.calls.iter().any(read) {
            all.calls.remove(at);
        }
    }
}

fn stores_zero(work: &Callee) -> bool {
    let Callee::Compute(sink) = work else {
        return false;
    };
    let [store] = sink.src() else { return false };
    store.op() == Op::Store && store.src()[1].as_int() == Some(0)
}

/// Where the words are, which a plan has as its last outputs.
pub(crate) fn placed(words: Vec<Word>, plan: &mut Schedule) {
    let outputs = plan.outputs.split_off(plan.outputs.len() - words.len());
    for (word, view) in words.into_iter().zip(outputs) {
        let storage = view.viewed().buffer_arg();
        plan.checks.push(Check {
            allocation: storage.map_or(0, |b| b.slot as usize),
            dtype: view.dtype(),
            conditions: word.conditions,
        });
    }
}
