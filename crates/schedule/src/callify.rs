//! Tensor graph → one stateless function. Flows in: roots over BUFFERs; flows out: the same roots over
//! PARAMs, and the buffers in PARAM order. Equal structures give the same roots, node for node, which
//! is what finds an earlier schedule. Invariant: a function holds no buffer.

use monoglot_uop::graph::inline_functions;
use monoglot_uop::{AddrSpace, Arg, BufferArg, Op, Result, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// Roots as a function of PARAMs.
#[derive(Clone, Debug)]
pub struct Function {
    /// What is wanted, over PARAMs numbered by first use, and variables numbered after them.
    pub roots: Vec<UOp>,
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
}

impl Function {
    /// The key of this structure: a SINK over the roots, tagged with what is donated.
    pub fn key(&self) -> UOp {
        let flags = self.donated.iter().map(|&d| UOp::bool(d));
        UOp::sink(&self.roots.iter().cloned().chain(flags).collect::<Vec<_>>())
    }
}

/// The function that computes these roots, and what it is called with; `donate` says of a BUFFER whose
/// next version is among the roots whether nobody else holds it.
pub fn callify(roots: &[UOp], donate: impl Fn(&UOp) -> bool) -> Result<(Function, Arguments)> {
    let roots = inline_functions(roots);
    let all = UOp::sink(&roots);
    let is_buffer = |u: &UOp| u.op() == Op::Buffer && u.addrspace() == Some(AddrSpace::Global);
    let mut known: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut arguments = Arguments::default();
    if all.ops_below().contains(Op::Param) {
        let nodes = all.toposort();
        let first = nodes.iter().filter(|u| is_buffer(u)).count() as u64;
        for u in nodes.into_iter().filter(|u| u.bound_to().is_some()) {
            let slot = first + arguments.variables.len() as u64;
            known.insert(u.clone(), UOp::variable(slot, u.vmin(), u.vmax()));
            arguments.variables.push(u);
        }
    }
    // One walk over all roots, so that what they share is rebuilt once.
    let all = all.rebuild(
        &known,
        |u| {
            let below = u.ops_below();
            below.contains(Op::Buffer) || below.contains(Op::Param)
        },
        |u, src| match u.arg() {
            Arg::Buffer(b) if is_buffer(u) => {
                let arg = BufferArg {
                    slot: arguments.buffers.len() as u64,
                    version: 0,
                    ..*b
                };
                arguments.buffers.push(u.clone());
                UOp::new(Op::Param, src, Arg::Buffer(arg))
            }
            _ => u.with_src(src),
        },
    );
    let assigned: FxHashSet<&UOp> = roots.iter().filter_map(assigned_buffer).collect();
    let donated = arguments
        .buffers
        .iter()
        .map(|p| assigned.contains(p) && donate(p))
        .collect();
    let function = Function {
        roots: all.src().to_vec(),
        donated,
        variables: arguments.variables.len(),
    };
    Ok((function, arguments))
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
