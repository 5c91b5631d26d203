//! Tensor graph → one stateless function. Flows in: roots over BUFFERs; flows out: the same roots over
//! PARAMs, and the buffers in PARAM order. What the graph asserts, wherever that stands, is wanted beside
//! the roots: an ASSERT becomes its value, and its condition a root. Equal structures give the same roots,
//! node for node, which is what finds an earlier schedule. Invariant: a function holds no buffer.

use monoglot_uop::graph::inline_functions;
use monoglot_uop::{AddrSpace, Arg, BufferArg, Op, OpSet, Result, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// What a function does not have as it stands.
const REBUILT: OpSet = OpSet::of(&[Op::Buffer, Op::Param, Op::Assert]);

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
    let mut conditions = Vec::new();
    // One walk over all roots, so that what they share is rebuilt once.
    let all = all.rebuild(
        &known,
        |u| u.ops_below().intersects(REBUILT),
        |u, src| match u.arg() {
            _ if u.op() == Op::Assert => {
                arguments.asserts.push(u.clone());
                conditions.push(src[1].clone());
                src[0].clone()
            }
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
    let mut roots = all.src().to_vec();
    roots.extend_from_slice(&conditions);
    let function = Function {
        roots,
        conditions: conditions.len(),
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
