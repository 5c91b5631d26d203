//! Storage as flat arrays. Flows in: a kernel that reads and writes with multi-dimensional INDEX,
//! masked by the invalid index; flows out: the same kernel with LOAD and STORE at one linear index
//! each. Invariant: every access lies within its storage, by the interval of its index or by what
//! its gate says; one for which neither holds gets a gate (DESIGN 15). The invalid index is gone.

use crate::gates::in_bounds;
use crate::graph::{Srcs, node};
use crate::loops::depth;
use monoglot_uop::marks::NodeMap;
use monoglot_uop::rules::{Affine, conjuncts};
use monoglot_uop::{AddrSpace, DType, ErrorKind, Op, Result, Shape, UOp};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

/// Where an access goes: one element of flat storage, where the gate holds.
#[derive(Clone)]
struct GatedAddress {
    address: UOp,
    gate: Option<UOp>,
}

#[derive(Default)]
struct Flatten<'a> {
    /// What nodes became.
    value: NodeMap<&'a UOp, UOp>,
    /// The condition under which an index is valid.
    gate: NodeMap<&'a UOp, UOp>,
    access: NodeMap<&'a UOp, GatedAddress>,
}

/// Flatten every access of a kernel.
pub(crate) fn flatten(kernel: &UOp) -> Result<UOp> {
    let topo = kernel.toposort();
    let mut f = Flatten::default();
    for u in &topo {
        let new = f.rewrite(u)?;
        f.value.insert(u, new);
    }
    Ok(f.value[kernel].clone())
}

/// Index sums in the order in which loops can be left by their parts: what varies least is added
/// first. The simplifier, which came before, knows another order.
pub(crate) fn hoist(kernel: &UOp) -> UOp {
    let new = |u: &UOp, src: Srcs| {
        if u.op() == Op::Index
            && is_storage(&u.src()[0])
            && src[1].op() == Op::Add
            && let Some(sum) = Affine::of(&src[1])
        {
            return src[0].at(&[sum.build_by(|atom| atom.ranges().iter().map(depth).max())]);
        }
        u.with_src(src)
    };
    kernel.rebuild(&FxHashMap::default(), |_| true, new)
}

/// Whether a node is storage that addresses refer to.
fn is_storage(u: &UOp) -> bool {
    u.addrspace().is_some()
}

impl<'a> Flatten<'a> {
    fn rewrite(&mut self, u: &'a UOp) -> Result<UOp> {
        let src = u.src();
        match u.op() {
            Op::Param | Op::Buffer if u.buffer_arg().is_some_and(|b| b.addrspace.is_some()) => {
                Ok(flat(u))
            }
            Op::Const if u.is_invalid() => {
                self.gated(u, Some(UOp::bool(false)));
                Ok(UOp::index_const(0))
            }
            Op::Param | Op::Const => Ok(u.clone()),
            Op::Index if is_storage(&src[0]) => {
                let access = self.access(u);
                let address = access.address.clone();
                self.access.insert(u, access);
                Ok(address)
            }
            Op::Store | Op::AtomicAdd => {
                let GatedAddress { address, gate } = self.target(&src[0]);
                let gate = both(gate, src.get(2).map(|g| self.read(g)));
                let mut new: Srcs = smallvec![address, self.read(&src[1])];
                new.extend(gate.filter(|g| !g.is_bool(true)));
                Ok(node(u.op(), new))
            }
            Op::Load => {
                let message = "no kernel of scalars is lowered with it yet".into();
                Err(ErrorKind::Unsupported {
                    op: u.op().name().into(),
                    message,
                }
                .into())
            }
            Op::Where => self.masked(u).map_or_else(|| self.choose(u), Ok),
            Op::After if is_storage(u) => Ok(self.rebuilt(u, 1)),
            _ => {
                let new = self.rebuilt(u, 0);
                if u.op().is_elementwise() && !u.op().is_comparison() {
                    let gate = src
                        .iter()
                        .fold(None, |g, s| both(g, self.gate.get(s).cloned()));
                    self.gated(u, gate);
                }
                Ok(new)
            }
        }
    }

    fn gated(&mut self, u: &'a UOp, gate: Option<UOp>) {
        if let Some(gate) = gate {
            self.gate.insert(u, gate);
        }
    }

    /// The node over what its sources became, reading storage except as one of the first `keep`.
    fn rebuilt(&self, u: &UOp, keep: usize) -> UOp {
        let read = |(i, s): (usize, &UOp)| {
            if i < keep {
                self.value[s].clone()
            } else {
                self.read(s)
            }
        };
        u.with_src(u.src().iter().enumerate().map(read).collect::<Srcs>())
    }

    /// The value of a node: of an address, what is loaded from it.
    fn read(&self, u: &UOp) -> UOp {
        let storage = matches!(u.op(), Op::Param | Op::Buffer | Op::After) && is_storage(u);
        if storage && u.shape().is_empty() || self.access.contains_key(u) {
            load(self.target(u), None)
        } else {
            self.value[u].clone()
        }
    }

    /// The address that a STORE writes; storage of shape () is its only element.
    fn target(&self, u: &UOp) -> GatedAddress {
        match self.access.get(u) {
            Some(a) => a.clone(),
            None => GatedAddress {
                address: self.value[u].at(&[UOp::index_const(0)]),
                gate: None,
            },
        }
    }

    /// WHERE of indices: the condition of an invalid branch becomes the gate of the other.
    fn choose(&mut self, u: &'a UOp) -> Result<UOp> {
        let [c, a, b] = u.src() else {
            return Ok(self.rebuilt(u, 0));
        };
        let cond = self.read(c);
        if a.is_invalid() || b.is_invalid() {
            let (x, cond) = if b.is_invalid() {
                (a, cond)
            } else {
                (b, cond.unary(Op::Not))
            };
            let gate = both(Some(cond), self.gate.get(x).cloned());
            self.gated(u, gate);
            return Ok(self.read(x));
        }
        let gate = match (self.gate.get(a).cloned(), self.gate.get(b).cloned()) {
            (None, None) => None,
            (x, y) => {
                let always = UOp::bool(true);
                Some(cond.select(x.as_ref().unwrap_or(&always), y.as_ref().unwrap_or(&always)))
            }
        };
        self.gated(u, gate);
        Ok(self.rebuilt(u, 0))
    }

    /// WHERE(gate, masked read, constant) is one gated LOAD.
    fn masked(&self, u: &UOp) -> Option<UOp> {
        let [c, a, b] = u.src() else { return None };
        let access = self.access.get(a)?;
        let gate = self.read(c);
        let fill = self.read(b);
        let own = access.gate.as_ref()?;
        let have = conjuncts(&gate);
        let implied = conjuncts(own).iter().all(|g| have.contains(g));
        // A read that its own gate stops gives 0.
        let zero = fill.const_value().is_some_and(|v| v.is_zero());
        let gate = if implied {
            gate
        } else {
            both(Some(gate), Some(own.clone()))?
        };
        if fill.op() != Op::Const || !implied && !zero {
            return None;
        }
        let access = GatedAddress {
            address: access.address.clone(),
            gate: Some(gate),
        };
        Some(load(access, Some(fill)))
    }

    fn access(&self, u: &UOp) -> GatedAddress {
        let storage = &u.src()[0];
        let dims = storage.shape();
        let flat = self.value[storage].clone();
        let mut strides: SmallVec<[UOp; 6]> = smallvec![UOp::index_const(1)];
        for d in dims.iter().skip(1).rev() {
            strides.insert(0, times(&d.to_uop(), &strides[0]));
        }
        // An access is valid where all of its indices are, so what any gate says holds for each.
        let indices = &u.src()[1..];
        let mut gate = indices
            .iter()
            .fold(None, |g, i| both(g, self.gate.get(i).cloned()));
        let mut sum = UOp::index_const(0);
        let mut proved = true;
        for ((i, d), stride) in indices.iter().zip(dims.iter()).zip(&strides) {
            let index = self.read(i).cast(DType::Index);
            if index.is_invalid() {
                // Never read: what a gate guards that never holds.
                return GatedAddress {
                    address: flat.at(&[UOp::index_const(0)]),
                    gate: Some(UOp::bool(false)),
                };
            }
            // A symbolic dimension is at least what its interval says.
            let size = d.as_int().unwrap_or_else(|| d.to_uop().vmin());
            proved = proved && in_bounds(&index, size, gate.as_ref());
            sum = sum + times(&index, stride);
        }
        let index = Affine::of(&sum).map_or(sum, |sum| sum.build_by(|_| 0));
        let size = flat.shape()[0].max();
        if !proved && !in_bounds(&index, size, gate.as_ref()) {
            let (lo, hi) = index.bounds();
            if lo < 0 {
                gate = both(gate, Some(index.like(-1).lt(&index)));
            }
            if hi >= size {
                gate = both(gate, Some(index.lt(&index.like(size))));
            }
        }
        GatedAddress {
            address: flat.at(&[index]),
            gate: gate.filter(|g| !g.is_bool(true)),
        }
    }
}

fn both(a: Option<UOp>, b: Option<UOp>) -> Option<UOp> {
    match (a, b) {
        (Some(a), Some(b)) if a == b => Some(a),
        (Some(a), Some(b)) => Some(a & b),
        (a, b) => a.or(b),
    }
}

fn times(a: &UOp, b: &UOp) -> UOp {
    match (a.as_int(), b.as_int()) {
        (Some(x), Some(y)) => UOp::index_const(x.saturating_mul(y)),
        (Some(1), _) => b.clone(),
        (_, Some(1)) => a.clone(),
        _ => a * b,
    }
}

fn load(access: GatedAddress, alt: Option<UOp>) -> UOp {
    let d = access.address.dtype();
    let alt = || alt.unwrap_or_else(|| UOp::constant(d.zero(), d));
    match access.gate {
        None => node(Op::Load, [access.address]),
        Some(gate) if gate.is_bool(false) => alt(),
        Some(gate) => node(Op::Load, [access.address, alt(), gate]),
    }
}

/// The same storage as an array of one axis.
fn flat(u: &UOp) -> UOp {
    let len = u.shape().max_len();
    if u.shape().len() == 1 && u.shape()[0].is(len) {
        return u.clone();
    }
    let mut src: Srcs = smallvec![UOp::dims(&Shape::of(&[len]))];
    src.extend(u.src().iter().skip(1).cloned());
    u.with_src(src)
}

/// Whether an address lies in registers.
pub(crate) fn in_registers(address: &UOp) -> bool {
    address.addrspace() == Some(AddrSpace::Reg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use monoglot_uop::AxisType;

    fn param(slot: u64, shape: &[i64]) -> UOp {
        UOp::param(slot, &Shape::of(shape), DType::F32, None)
    }

    #[test]
    fn rows_are_multiplied_out_with_what_varies_least_first() {
        let m = UOp::range(4i64, 0, AxisType::Loop);
        let k = UOp::range(8i64, 1, AxisType::Reduce);
        let a = param(0, &[8, 4]).at(&[k.clone(), m.clone()]);
        let got = hoist(&flatten(&UOp::sink(&[a.unary(Op::Neg)])).unwrap());
        let want = param(0, &[32]).at(&[&m + &(&k * 4)]);
        assert_eq!(got.src()[0].src()[0].src()[0], want);
    }

    #[test]
    fn a_masked_read_is_one_gated_load_and_an_unproved_index_gets_a_gate() {
        let r = UOp::range(10i64, 0, AxisType::Loop);
        let gate = r.like(0).lt(&r);
        let fill = UOp::float(7.0, DType::F32);
        let read = gate.select(&param(0, &[9]).at(&[(&r + -1).valid(&gate)]), &fill);
        let got = flatten(&UOp::sink(std::slice::from_ref(&read))).unwrap();
        let load = &got.src()[0];
        assert_eq!(
            (load.op(), &load.src()[1], &load.src()[2]),
            (Op::Load, &fill, &gate)
        );
        let wild = param(0, &[9]).at(&[&r + 0]).unary(Op::Neg);
        let got = flatten(&UOp::sink(&[wild])).unwrap();
        assert_eq!(got.src()[0].src()[0].src().len(), 3);
    }
}
