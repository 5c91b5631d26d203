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
}

impl Function {
    /// The key of this structure: a SINK over the roots, tagged with what is donated.
    pub fn key(&self) -> UOp {
        let flags = self.donated.iter().map(|&d| UOp::bool(d));
        UOp::sink(&self.roots.iter().cloned().chain(flags).collect::<Vec<_>>())
    }
}

/// The function that computes these roots, and the BUFFERs that its PARAMs stand for; `donate` says of a
/// BUFFER whose next version is among the roots whether nobody else holds it.
pub fn callify(roots: &[UOp], donate: impl Fn(&UOp) -> bool) -> Result<(Function, Vec<UOp>)> {
    let roots = inline_functions(roots);
    let mut params = Vec::new();
    // One walk over all roots, so that what they share is rebuilt once.
    let all = UOp::sink(&roots).rebuild(
        &FxHashMap::default(),
        |u| u.ops_below().contains(Op::Buffer),
        |u, src| match u.arg() {
            Arg::Buffer(b) if u.op() == Op::Buffer && b.addrspace == Some(AddrSpace::Global) => {
                let arg = BufferArg {
                    slot: params.len() as u64,
                    version: 0,
                    ..*b
                };
                params.push(u.clone());
                UOp::new(Op::Param, src, Arg::Buffer(arg))
            }
            _ => u.with_src(src),
        },
    );
    let assigned: FxHashSet<UOp> = roots.iter().filter_map(assigned_buffer).collect();
    let donated = params
        .iter()
        .map(|p| assigned.contains(p) && donate(p))
        .collect();
    let function = Function {
        roots: all.src().to_vec(),
        donated,
    };
    Ok((function, params))
}

/// The BUFFER whose next version a root is.
fn assigned_buffer(root: &UOp) -> Option<UOp> {
    let mut u = root;
    let mut assigned = false;
    loop {
        match u.op() {
            Op::After => assigned = true,
            Op::Reshape => {}
            Op::Buffer if assigned => return Some(u.clone()),
            _ => return None,
        }
        u = &u.src()[0];
    }
}
