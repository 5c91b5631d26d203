//! What fits no cache and is made of little, as the scores of an attention: each kernel that wants it computes its own
//! slices of it again, instead of reading all of it from memory. Flows in: a node that would be stored, and who wants
//! it; flows out: whether it is kept (`kept`) by each of those kernels, of which those of the same slices have become one.
//!
//! Invariant: a kernel reads only what later ones store, also where one has become part of another.

use super::below::{TERMS, bytes, is_data, masks, terms};
use super::kept::Plan;
use super::{Body, Rangeify, STORES};
use monoglot_uop::{Op, Target, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// How many times as many bytes a value has that is computed again, as what it is made of and what is made of it.
const LESS: f64 = 2.0;
/// The same where a vector of its slices takes more than half of the second cache.
const FAR_LESS: f64 = 32.0;
/// Most kernels in which it is.
const KERNELS: usize = 8;

/// A kernel, and the instances of a value there.
type Group = (usize, Vec<u32>);

/// Whether no cache of a machine holds a value.
fn is_far(u: &UOp, target: &Target) -> bool {
    !target.workgroups && bytes(u) > target.caches[2] as f64
}

impl Rangeify<'_> {
    /// Keep a value in each kernel that wants it, where it is farther away than any cache and those who want it make
    /// less of it: what is read of its factors costs less than storing it. What an element alone wants is computed
    /// there. False, and all stays as it was, where some kernel cannot.
    pub(super) fn keep_apart(&mut self, n: u32, u: &UOp, wanted: &[u32]) -> bool {
        let mut groups: Vec<Group> = Vec::new();
        for &i in wanted {
            let kernel = self.instances[i as usize].kernel as usize;
            match groups.iter_mut().find(|(k, _)| *k == kernel) {
                Some((_, all)) => all.push(i),
                None => groups.push((kernel, vec![i])),
            }
        }
        let less = |(kernel, _): &Group| {
            let kernel = &self.kernels[*kernel];
            let made = bytes(&self.nodes[kernel.node as usize]);
            is_far(u, &kernel.target) && LESS * made <= bytes(u)
        };
        // Windows over it would want parts of other slices.
        let plain = |i: &UOp| i.op() == Op::Range || i.as_int().is_some();
        let plain = |i: &u32| self.instances[*i as usize].at.indices.iter().all(plain);
        let few = groups.len() <= KERNELS && groups.iter().all(less);
        if !few || !wanted.iter().all(plain) || !self.is_made_of_less(u, LESS) {
            return false;
        }
        // It says no more than where something counts.
        if masks(u) {
            return true;
        }
        let long = |plan: &Plan, kernel: usize| {
            2.0 * plan.bytes > self.kernels[kernel].target.caches[1] as f64
        };
        for (kernel, all) in groups.iter().filter(|(_, all)| !self.is_inline(all)) {
            let may = |plan| !long(&plan, *kernel) || self.is_made_of_less(u, FAR_LESS);
            if !self.plan(u, all).is_some_and(may) {
                return false;
            }
        }
        for (_, all) in self.joined(u, groups) {
            if let Some(plan) = self.plan(u, &all).filter(|_| !self.is_inline(&all)) {
                self.fill(n, u, &all, plan);
            }
        }
        true
    }

    /// Whether a kernel need not keep a value: one element wants it.
    fn is_inline(&self, all: &[u32]) -> bool {
        match all {
            [i] => self.instances[*i as usize].at.around.is_empty(),
            _ => false,
        }
    }

    /// Whether a value is made, by short sums, of what has so many times fewer bytes.
    fn is_made_of_less(&self, u: &UOp, times: f64) -> bool {
        let size = u.shape().max_len() as f64;
        let short = |n| n > 0.0 && n <= 2.0 * TERMS;
        if !terms(u, size).is_some_and(short) {
            return false;
        }
        let mut seen: FxHashSet<&UOp> = FxHashSet::default();
        let mut open = vec![u];
        let mut read = 0.0;
        while let Some(u) = open.pop() {
            if !is_data(u) || !seen.insert(u) {
                continue;
            }
            let sum = u.op() == Op::Reduce && (u.shape().max_len() as f64) < size;
            let stored = self.store[self.number[u] as usize].is_some();
            if sum || stored || u.op() == Op::Param || super::is_stored(u) {
                read += bytes(u);
            } else {
                open.extend(u.src());
            }
        }
        times * read <= bytes(u)
    }

    /// The instance of a REDUCE whose kernel has the same elements, and may store it as well: what it folds is far away,
    /// and better computed once for both.
    pub(super) fn beside(&mut self, u: &UOp, wanted: &[u32]) -> Option<u32> {
        if u.op() != Op::Reduce || !self.is_made_of_less(&u.src()[0], LESS) {
            return None;
        }
        let of = |i: u32| self.instances[i as usize].kernel;
        let last = wanted.iter().map(|&i| of(i)).max()?;
        let mut own = wanted.iter().filter(|&&i| of(i) == last);
        let (Some(&i), None) = (own.next(), own.next()) else {
            return None;
        };
        let at = &self.instances[i as usize].at;
        let kernel = &self.kernels[last as usize];
        let same = at.indices == kernel.indices && at.gate.is_none();
        let far = is_far(&u.src()[0], &kernel.target);
        let length = u.src()[0].shape().max_len() as f64 / (u.shape().max_len() as f64).max(1.0);
        let shares = same && far && self.parts_from(u, i, [length, length], 0.0) != Some(true);
        shares.then_some(i)
    }

    /// Instances by kernel, where kernels of the same slices have become one.
    fn joined(&mut self, u: &UOp, mut groups: Vec<Group>) -> Vec<Group> {
        groups.sort_by_key(|(kernel, _)| *kernel);
        let mut out: Vec<Group> = Vec::new();
        for (kernel, all) in groups {
            let slices = self.slices(kernel, &all);
            let kept = self.plan(u, &all).map_or(0.0, |plan| plan.bytes);
            let fits = |(host, own): &Group| {
                let join = Join::of(self, *host, kernel, kept)?;
                (join.with(&slices) == self.slices(*host, own)).then_some(join)
            };
            let host = (0..out.len()).find_map(|k| Some((k, fits(&out[k])?)));
            match host {
                Some((k, join)) => {
                    join.apply(self);
                    out[k].1.extend(all);
                }
                None => out.push((kernel, all)),
            }
        }
        out
    }

    /// At which of its kernel's loops each axis of a value is wanted; None where a slice has all of the axis.
    fn slices(&self, kernel: usize, all: &[u32]) -> Vec<Option<UOp>> {
        let own = &self.kernels[kernel].ranges;
        let outer = |index: &UOp| index.ranges().iter().all(|r| own.contains(r));
        let indices = self.instances[all[0] as usize].at.indices.iter();
        indices.map(|i| outer(i).then(|| i.clone())).collect()
    }
}

/// One kernel that becomes part of another with loops of the same extents.
struct Join {
    host: usize,
    guest: usize,
    /// The loops of the host in place of the guest's.
    loops: FxHashMap<UOp, UOp>,
}

impl Join {
    /// None where one of them may need the other, their loops differ, or a kernel that keeps so many bytes more has no
    /// room for both.
    fn of(r: &Rangeify, host: usize, guest: usize, kept: f64) -> Option<Join> {
        let [to, from] = [host, guest].map(|k| &r.kernels[k]);
        let extents = |ranges: &[UOp]| {
            ranges
                .iter()
                .map(|r| r.src()[0].clone())
                .collect::<Vec<_>>()
        };
        let alike = to.device == from.device && extents(&to.ranges) == extents(&from.ranges);
        let stores = |n: usize, kernel: usize| n == kernel || r.kernels[n].host == Some(kernel);
        let count = |kernel| (0..r.kernels.len()).filter(|&n| stores(n, kernel)).count();
        // What the guest stores is wanted by what runs after the host alone.
        let of_guest = |slot: usize| slot.checked_sub(r.inputs).is_some_and(|n| stores(n, guest));
        let mut later = r.instances.iter().filter(|i| i.kernel as usize >= host);
        let waits = later.any(|i| matches!(i.body, Body::Read(slot) if of_guest(slot)));
        let own = r.nodes.iter().any(|u| super::called(u).is_some());
        let limits = &to.target;
        let room = to.kept + from.kept + kept <= limits.local_bytes as f64
            && to.size + from.size < limits.max_nodes
            && to.buffers + from.buffers <= limits.max_buffers
            && count(host) + count(guest) <= STORES;
        let may = host < guest && alike && room && !waits && !own;
        may.then(|| Join {
            host,
            guest,
            loops: from
                .ranges
                .iter()
                .cloned()
                .zip(to.ranges.iter().cloned())
                .collect(),
        })
    }

    fn with(&self, slices: &[Option<UOp>]) -> Vec<Option<UOp>> {
        let new = |i: &Option<UOp>| i.as_ref().map(|i| i.substitute(&self.loops));
        slices.iter().map(new).collect()
    }

    fn apply(&self, r: &mut Rangeify) {
        let new = |u: &mut UOp| *u = u.substitute(&self.loops);
        let number = |r: &UOp| r.range_arg().map(|(id, _)| id);
        for i in r.instances.iter_mut() {
            if i.kernel as usize != self.guest {
                continue;
            }
            i.kernel = self.host as u32;
            i.at.indices.iter_mut().chain(&mut i.at.gate).for_each(new);
            for id in i.at.around.iter_mut() {
                let mut loops = self.loops.iter();
                let to =
                    loops.find_map(|(from, to)| number(to).filter(|_| number(from) == Some(*id)));
                *id = to.unwrap_or(*id);
            }
            match &mut i.body {
                Body::Choose(parts, _) => parts.iter_mut().for_each(|(gate, _)| new(gate)),
                Body::Words(_, part) => new(part),
                _ => {}
            }
        }
        let guest = r.kernels[self.guest].clone();
        for (k, draft) in r.kernels.iter_mut().enumerate() {
            if k == self.guest || draft.host == Some(self.guest) {
                draft.host = Some(self.host);
                draft
                    .ranges
                    .iter_mut()
                    .chain(&mut draft.indices)
                    .for_each(new);
            }
        }
        let host = &mut r.kernels[self.host];
        host.size += guest.size;
        host.buffers += guest.buffers;
        host.kept += guest.kept;
        host.product = host.product.max(guest.product);
        if let (None, Some(mut shared)) = (&host.shared, guest.shared) {
            shared.iter_mut().for_each(new);
            host.shared = Some(shared);
        }
    }
}
