//! Tensor graph → one stateless function. Flows in: roots over BUFFERs; flows out: the same roots over
//! PARAMs, and the buffers in PARAM order. What the graph asserts, wherever that stands, is wanted beside
//! the roots: an ASSERT becomes its value, and its condition a root. Equal structures give the same roots,
//! node for node, which is what finds an earlier schedule. Invariant: a function holds no buffer.

use crate::bodies;
use monoglot_uop::node::Srcs;
use monoglot_uop::{AddrSpace, Arg, BufferArg, Op, OpSet, Result, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// What a function does not have as it stands.
const REBUILT: OpSet = OpSet::of(&[Op::Buffer, Op::Param, Op::Assert, Op::Call]);

/// Roots as a function of PARAMs.
#[derive(Clone, Debug)]
pub struct Function {
    /// What is wanted, over PARAMs numbered by first use, and variables numbered after them; behind it
    /// the conditions of assertions.
    pub roots: Vec<UOp>,
    /// How many of the roots are conditions.
    pub conditions: usize,
    /// For each PARAM, whether a root is its next version and its storage may be taken over.
    pub donated: Vec<bool>,
    /// How many variables it has.
    pub variables: usize,
}

/// What a function is called with.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    /// The BUFFER that each PARAM stands for.
    pub buffers: Vec<UOp>,
    /// The bound variable that each variable stands for.
    pub variables: Vec<UOp>,
    /// The ASSERT that each condition is of.
    pub asserts: Vec<UOp>,
}

impl Function {
    /// The key of this structure: a SINK over the roots, tagged with what is donated and asserted.
    pub fn key(&self) -> UOp {
        let mut all = self.roots.clone();
        all.extend(self.donated.iter().map(|&d| UOp::bool(d)));
        if self.conditions > 0 {
            all.push(UOp::index_const(self.conditions as i64));
        }
        UOp::sink(&all)
    }

    /// What is wanted.
    pub fn wanted(&self) -> &[UOp] {
        &self.roots[..self.roots.len() - self.conditions]
    }
}

impl Arguments {
    /// An argument that nothing gives a value to: a PARAM that stands for itself.
    pub fn unbound(&self) -> Option<&UOp> {
        let mut buffers = self.buffers.iter();
        let storage = buffers.find(|u| u.op() == Op::Param);
        storage.or_else(|| self.variables.iter().find(|u| u.bound_to().is_none()))
    }
}

/// The function that computes these roots, and what it is called with; `donate` says of a BUFFER whose
/// next version is among the roots whether nobody else holds it. PARAMs of the graph's own are arguments
/// too, whatever slots they have.
///
/// # Errors
/// Where the arguments of a FUNCTION do not fit its body.
pub fn callify(roots: &[UOp], donate: impl Fn(&UOp) -> bool) -> Result<(Function, Arguments)> {
    let (roots, asserted) = bodies::resolved(roots)?;
    // What bodies asserted is met on the way, and is no root.
    let met = [&roots[..], &asserted].concat();
    let all = UOp::sink(&met);
    let mut known: FxHashMap<UOp, UOp> = FxHashMap::default();
    // A body is a function of its own.
    let bodies = monoglot_uop::function::bodies(&met).into_iter();
    known.extend(bodies.map(|b| (b.clone(), b)));
    let mut arguments = Arguments::default();
    if all.ops_below().contains(Op::Param) {
        let nodes = all.toposort_gated(|u| !known.contains_key(u));
        let first = nodes.iter().filter(|u| is_storage(u)).count() as u64;
        for u in nodes.into_iter().filter(UOp::is_variable) {
            let slot = first + arguments.variables.len() as u64;
            let variable = match u.bound_to() {
                Some(_) => UOp::variable(slot, u.vmin(), u.vmax()),
                None => with_slot(&u, u.src().into(), slot),
            };
            known.insert(u.clone(), variable);
            arguments.variables.push(u);
        }
    }
    let mut conditions = Vec::new();
    // One walk over all roots, so that what they share is rebuilt once.
    let all = all.try_rebuild(
        &known,
        |u| u.ops_below().intersects(REBUILT),
        |u, src| {
            if u.op() == Op::Assert {
                // Several values may be asserted by one condition.
                if !conditions.contains(&src[1]) {
                    arguments.asserts.push(u.clone());
                    conditions.push(src[1].clone());
                }
                return Ok(src[0].clone());
            }
            if !is_storage(u) {
                // A derivative is no part of what is computed.
                return u.without_derivative().try_with_src(src);
            }
            let slot = arguments.buffers.len() as u64;
            arguments.buffers.push(u.clone());
            Ok(with_slot(u, src, slot))
        },
    )?;
    let assigned: FxHashSet<&UOp> = roots.iter().filter_map(assigned_buffer).collect();
    let donated = arguments
        .buffers
        .iter()
        .map(|p| assigned.contains(p) && donate(p))
        .collect();
    let mut roots = all.src()[..roots.len()].to_vec();
    roots.extend_from_slice(&conditions);
    let function = Function {
        roots,
        conditions: conditions.len(),
        donated,
        variables: arguments.variables.len(),
    };
    Ok((function, arguments))
}

/// Whether this is storage that a function is given.
fn is_storage(u: &UOp) -> bool {
    matches!(u.op(), Op::Buffer | Op::Param) && u.addrspace() == Some(AddrSpace::Global)
}

/// The PARAM of this slot for storage or a variable.
fn with_slot(u: &UOp, src: Srcs, slot: u64) -> UOp {
    let arg = match u.arg() {
        Arg::Buffer(b) => Arg::Buffer(BufferArg {
            slot,
            version: 0,
            ..*b
        }),
        arg => arg.clone(),
    };
    UOp::new(Op::Param, src, arg)
}

/// The BUFFER whose next version a root is.
pub fn assigned_buffer(root: &UOp) -> Option<&UOp> {
    let mut u = root;
    let mut assigned = false;
    loop {
        match u.op() {
            Op::After => assigned = true,
            Op::Reshape => {}
            Op::Buffer if assigned => return Some(u),
            _ => return None,
        }
        u = &u.src()[0];
    }
}
