//! Small arrays as registers. Flows in: a LINEAR; flows out: the same program in which every REG array
//! whose accesses are at known places, and tile it, is as many buffers of one element (or one vector):
//! what a machine can hold in a register, and a language in a variable. Invariant: the order of
//! instructions stays.

use crate::graph::Srcs;
use monoglot_uop::linear::{Address, address, storage_of};
use monoglot_uop::{AddrSpace, Arg, BufferArg, Op, Shape, UOp};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// An array that falls apart.
struct Array {
    /// Elements of a register; rows, where those are vectors.
    run: i64,
    /// Lanes of a register; 0 for a scalar.
    lanes: usize,
    parts: Vec<UOp>,
}

/// Elements that an access takes at a time.
fn taken(a: &Address) -> i64 {
    if a.rows() { 1 } else { a.lanes.max(1) as i64 }
}

/// The arrays of a program that are accessed in runs of one length at multiples of it, with those.
fn tiled(list: &[UOp]) -> FxHashMap<&UOp, Option<i64>> {
    let mut runs: FxHashMap<&UOp, Option<i64>> = FxHashMap::default();
    for u in list {
        let reg = |b: &UOp| b.buffer_arg().and_then(|b| b.addrspace) == Some(AddrSpace::Reg);
        if u.op() == Op::Buffer && reg(u) {
            runs.insert(u, Some(0));
        }
        let plain = matches!(u.op(), Op::Load | Op::Store | Op::After);
        for (i, s) in u.src().iter().enumerate() {
            let a = address(s);
            let Some(b) = a.as_ref().map(|a| a.buffer).or_else(|| storage_of(s)) else {
                continue;
            };
            let Some(run) = runs.get_mut(b) else { continue };
            *run = match (&a, *run) {
                (Some(a), Some(run)) if plain && i == 0 => {
                    let n = taken(a);
                    let tiles = a.index.as_int().is_some_and(|at| at % n == 0);
                    (tiles && (run == 0 || run == n)).then_some(n)
                }
                // Storage in an address or an AFTER is seen where that is used.
                (None, run) if address(u).is_some() || plain => run,
                _ => None,
            };
        }
    }
    // A vector alone is a register, too.
    runs.retain(|b, run| run.is_some_and(|n| n > 1 || n > 0 && b.shape()[0].max() > n));
    runs
}

/// Make registers of arrays.
pub(crate) fn split(linear: &UOp) -> UOp {
    let list = linear.src();
    let long = |u: &UOp| u.op() == Op::Buffer && u.shape()[0].max() > 1;
    if !list.iter().any(long) {
        return linear.clone();
    }
    let runs = tiled(list);
    if runs.is_empty() {
        return linear.clone();
    }
    let slots = list.iter().filter(|u| u.op() == Op::Buffer);
    let mut slot = slots
        .filter_map(|u| u.buffer_arg())
        .map(|b| b.slot)
        .max()
        .unwrap_or(0);
    let mut arrays: FxHashMap<UOp, Array> = FxHashMap::default();
    // By AFTER of an array: the registers that are read or written under that name.
    let mut used: FxHashMap<&UOp, BTreeSet<usize>> = FxHashMap::default();
    for a in list.iter().filter_map(address) {
        let Some(Some(run)) = runs.get(a.buffer) else {
            continue;
        };
        let part = (a.index.as_int().unwrap_or(0) / run) as usize;
        let array = arrays.entry(a.buffer.clone()).or_insert(Array {
            run: *run,
            lanes: a.lanes,
            parts: Vec::new(),
        });
        if array.parts.is_empty() {
            let count = a.buffer.shape()[0].max() / run;
            array.parts = (0..count)
                .map(|_| register(a.buffer, a.lanes, &mut slot))
                .collect();
        }
        used.entry(a.buffer).or_default().insert(part);
    }
    for u in list.iter().filter(|u| address(u).is_some()) {
        let a = address(u);
        let mut at = &u.src()[0];
        while at.op() == Op::After {
            let run = a
                .as_ref()
                .and_then(|a| Some((a.index.as_int()?, arrays.get(a.buffer)?)));
            used.entry(at)
                .or_default()
                .extend(run.map(|(i, array)| (i / array.run) as usize));
            at = &at.src()[0];
        }
    }
    let mut rewrite = Rewrite {
        arrays: &arrays,
        used: &used,
        new: FxHashMap::default(),
        parts: FxHashMap::default(),
        out: Vec::with_capacity(list.len()),
    };
    for u in list {
        rewrite.instruction(u);
    }
    UOp::new(Op::Linear, rewrite.out, Arg::None)
}

/// A register like an element, or a run of elements, of an array.
fn register(array: &UOp, lanes: usize, slot: &mut u64) -> UOp {
    *slot += 1;
    let dims = [1, lanes as i64];
    let shape = Shape::of(if lanes == 0 { &dims[..1] } else { &dims });
    let arg = array.buffer_arg().map(|b| BufferArg { slot: *slot, ..*b });
    UOp::new(
        Op::Buffer,
        vec![UOp::dims(&shape)],
        arg.map_or(Arg::None, Arg::Buffer),
    )
}

struct Rewrite<'a> {
    arrays: &'a FxHashMap<UOp, Array>,
    used: &'a FxHashMap<&'a UOp, BTreeSet<usize>>,
    /// What instructions became.
    new: FxHashMap<&'a UOp, UOp>,
    /// What storage became, by register.
    parts: FxHashMap<(&'a UOp, usize), UOp>,
    out: Vec<UOp>,
}

impl<'a> Rewrite<'a> {
    /// The sources as they became; None where they are what they were.
    fn changed(&self, u: &UOp) -> Option<Srcs> {
        let any = u.src().iter().any(|s| self.new.contains_key(s));
        any.then(|| self.sources(u))
    }

    fn sources(&self, u: &UOp) -> Srcs {
        let new = |s: &UOp| self.new.get(s).unwrap_or(s).clone();
        u.src().iter().map(new).collect()
    }

    fn instruction(&mut self, u: &'a UOp) {
        let array = storage_of(u).and_then(|b| self.arrays.get(b));
        if let Some(array) = array {
            for &k in self.used.get(u).into_iter().flatten() {
                let part = match u.op() {
                    Op::Buffer => array.parts[k].clone(),
                    _ => {
                        let mut src = self.sources(u);
                        src[0] = self.parts[&(&u.src()[0], k)].clone();
                        u.with_src(src)
                    }
                };
                self.parts.insert((u, k), part.clone());
                self.out.push(part);
            }
            return;
        }
        let new = match address(u).and_then(|a| Some((a.index, self.arrays.get(a.buffer)?))) {
            Some((index, array)) => {
                let k = (index.as_int().unwrap_or(0) / array.run) as usize;
                let zero = UOp::int(0, index.dtype());
                let register = self.parts[&(&u.src()[0], k)].at(&[zero]);
                debug_assert_eq!(monoglot_uop::linear::lanes(&register), array.lanes);
                register
            }
            None => match self.changed(u) {
                Some(src) => u.with_src(src),
                None => return self.out.push(u.clone()),
            },
        };
        self.new.insert(u, new.clone());
        self.out.push(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use monoglot_uop::DType;

    fn reg(slot: u64, shape: &[i64]) -> UOp {
        UOp::scratch(slot, &Shape::of(shape), DType::F32, AddrSpace::Reg)
    }

    fn count(linear: &UOp) -> usize {
        linear.src().iter().filter(|u| u.op() == Op::Buffer).count()
    }

    #[test]
    fn arrays_at_known_places_are_registers_and_others_stay() {
        let index = |k: i64| UOp::int(k, DType::I32);
        let one = UOp::float(1.0, DType::F32);
        let b = reg(3, &[2, 4]);
        let first = b.at(&[index(0)]);
        let wide = UOp::new(Op::Stack, vec![one.clone(); 4], Arg::None);
        let store = first.store(&wide);
        let after = b.after(&[store.clone()]);
        let read = UOp::new(Op::Load, vec![after.at(&[index(0)])], Arg::None);
        let second = b.at(&[index(1)]).store(&read);
        let list = vec![
            b.clone(),
            first,
            wide,
            store,
            after.clone(),
            after.at(&[index(0)]),
            read,
            b.at(&[index(1)]),
            second,
        ];
        let got = split(&UOp::new(Op::Linear, list, Arg::None));
        assert_eq!(count(&got), 2);
        assert!(
            got.src()
                .iter()
                .all(|u| u.op() != Op::Buffer || u.shape()[0].is(1))
        );
        // A place that is known at run time alone.
        let r = UOp::range(4i64, 0, monoglot_uop::AxisType::Loop);
        let c = reg(5, &[4]);
        let at = c.at(&[r.clone()]);
        let list = vec![c, r, at.clone(), at.store(&one)];
        let linear = UOp::new(Op::Linear, list, Arg::None);
        assert_eq!(split(&linear), linear);
    }
}
