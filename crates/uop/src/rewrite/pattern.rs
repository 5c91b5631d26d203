//! Patterns as values: built by the same operators as UOps, matched without side effects. Flows in:
//! a pattern and a node; flows out: what its variables stand for, or that it does not match.
//! Invariant: a variable that occurs twice stands for one node.

use crate::build::{Number, operators};
use crate::node::UOp;
use crate::op::{Op, OpSet};
use crate::scalar::Scalar;
use std::ops::RangeFrom;

/// Most variables of a rule.
pub const MAX_VARS: usize = 8;

/// A shape of graph to look for.
#[derive(Clone, Debug)]
pub enum Pat {
    /// Variable number `.0`, of one of these ops; a second occurrence must be the same node.
    Var(usize, OpSet),
    /// A CONST of this value.
    Literal(Scalar),
    /// A node of one of these ops with these sources, bound to a variable if one is given.
    Node {
        ops: OpSet,
        src: Vec<Pat>,
        bind: Option<usize>,
        rest: bool,
    },
}

/// A variable in a pattern being written: number and ops.
#[derive(Copy, Clone, Debug)]
pub struct Var(usize, OpSet);

/// What a variable may stand for; the names used in rule lists.
#[allow(non_upper_case_globals)]
pub mod kinds {
    use super::{Op, OpSet};
    /// Anything.
    pub const any: OpSet = OpSet::ANY;
    /// A CONST.
    pub const cnst: OpSet = OpSet::of(&[Op::Const]);
}

/// The nodes that the variables stand for.
#[derive(Default)]
pub struct Bindings<'a>([Option<&'a UOp>; MAX_VARS]);

impl<'a> Bindings<'a> {
    /// The node of the next variable.
    pub fn get(&self, numbers: &mut RangeFrom<usize>) -> &'a UOp {
        let node = numbers.next().and_then(|i| self.0[i]);
        node.expect("a pattern that matched has bound every variable that it holds")
    }
}

impl Pat {
    /// The variable of the next number, of one of these ops.
    pub fn var(numbers: &mut RangeFrom<usize>, ops: OpSet) -> Var {
        let i = numbers.start;
        numbers.start += 1;
        assert!(i < MAX_VARS, "a rule has at most {MAX_VARS} variables");
        Var(i, ops)
    }

    /// A node of this op.
    pub fn op<const N: usize>(op: Op, src: [Pat; N]) -> Pat {
        Pat::ops(OpSet::of(&[op]), src)
    }

    /// A node of one of these ops.
    pub fn ops<const N: usize>(ops: OpSet, src: [Pat; N]) -> Pat {
        Pat::Node {
            ops,
            src: src.into(),
            bind: None,
            rest: false,
        }
    }

    /// A node of one of these ops whose first sources match; it may have more.
    pub fn first<const N: usize>(ops: OpSet, src: [Pat; N]) -> Pat {
        Pat::Node {
            ops,
            src: src.into(),
            bind: None,
            rest: true,
        }
    }

    /// Also bind the node to a variable.
    pub fn bind(self, var: Var) -> Pat {
        match self {
            Pat::Node { ops, src, rest, .. } => Pat::Node {
                ops,
                src,
                bind: Some(var.0),
                rest,
            },
            _ => panic!("`bind` gives a node pattern a variable"),
        }
    }

    /// Ops that the root can have.
    pub fn roots(&self) -> OpSet {
        match self {
            Pat::Var(_, ops) => *ops,
            Pat::Literal(_) => kinds::cnst,
            Pat::Node { ops, .. } => *ops,
        }
    }

    /// Ops that source `i` can have.
    pub fn source_roots(&self, i: usize) -> OpSet {
        match self {
            Pat::Node { src, .. } => src.get(i).map_or(OpSet::ANY, Pat::roots),
            _ => OpSet::ANY,
        }
    }

    /// How often a variable occurs.
    pub fn count(&self, var: usize) -> usize {
        match self {
            Pat::Var(i, _) => (*i == var) as usize,
            Pat::Literal(_) => 0,
            Pat::Node { src, bind, .. } => {
                (*bind == Some(var)) as usize + src.iter().map(|p| p.count(var)).sum::<usize>()
            }
        }
    }

    /// Whether the node fits; binds variables as it goes.
    pub fn matches<'a>(&self, u: &'a UOp, bound: &mut Bindings<'a>) -> bool {
        match self {
            Pat::Var(i, ops) => ops.contains(u.op()) && *bound.0[*i].get_or_insert(u) == u,
            Pat::Literal(l) => u.const_value().is_some_and(|v| is(*l, v)),
            Pat::Node {
                ops,
                src,
                bind,
                rest,
            } => {
                if !ops.contains(u.op())
                    || u.src().len() < src.len()
                    || !rest && u.src().len() != src.len()
                {
                    return false;
                }
                if let Some(i) = bind {
                    bound.0[*i] = Some(u);
                }
                src.iter().zip(u.src()).all(|(p, s)| p.matches(s, bound))
            }
        }
    }

    /// This pattern with the operands of commutative ops in every order that can matter.
    pub(crate) fn orders(&self) -> Vec<Pat> {
        let free = |p: &Pat| matches!(p, Pat::Var(i, _) if self.count(*i) == 1);
        let same_kind =
            |a: &Pat, b: &Pat| matches!((a, b), (Pat::Var(_, x), Pat::Var(_, y)) if x == y);
        fn expand(p: &Pat, skip: &dyn Fn(&Pat, &Pat) -> bool) -> Vec<Pat> {
            let Pat::Node {
                ops,
                src,
                bind,
                rest,
            } = p
            else {
                return vec![p.clone()];
            };
            let mut lists: Vec<Vec<Pat>> = vec![Vec::new()];
            for s in src {
                let options = expand(s, skip);
                lists = lists
                    .iter()
                    .flat_map(|l| {
                        options
                            .iter()
                            .map(move |o| l.iter().cloned().chain([o.clone()]).collect())
                    })
                    .collect();
            }
            let commutes = ops.union(OpSet::COMMUTATIVE) == OpSet::COMMUTATIVE;
            let mut out = Vec::new();
            for l in lists {
                let swap = commutes && l.len() == 2 && !skip(&src[0], &src[1]);
                let swapped = swap.then(|| vec![l[1].clone(), l[0].clone()]);
                for src in std::iter::once(l).chain(swapped) {
                    out.push(Pat::Node {
                        ops: *ops,
                        src,
                        bind: *bind,
                        rest: *rest,
                    });
                }
            }
            out
        }
        let same_var =
            |a: &Pat, b: &Pat| matches!((a, b), (Pat::Var(i, _), Pat::Var(j, _)) if i == j);
        expand(self, &|a, b| {
            same_var(a, b) || free(a) && free(b) && same_kind(a, b)
        })
    }
}

/// Whether a literal stands for this value, in whatever dtype it is.
fn is(literal: Scalar, v: Scalar) -> bool {
    match (literal, v) {
        (Scalar::Bool(b), Scalar::Bool(v)) => b == v,
        (Scalar::Int(i), Scalar::Bool(v)) => i == v as i128,
        (Scalar::Int(i), Scalar::Int(v)) => i == v,
        (Scalar::Int(_) | Scalar::Float(_), Scalar::Float(v)) => literal.to_f64() == v,
        _ => false,
    }
}

/// What may stand in a pattern.
pub trait IntoPat {
    /// As a pattern.
    fn into_pat(self) -> Pat;
}
impl IntoPat for Pat {
    fn into_pat(self) -> Pat {
        self
    }
}
impl IntoPat for Var {
    fn into_pat(self) -> Pat {
        Pat::Var(self.0, self.1)
    }
}
impl<N: Into<Number>> IntoPat for N {
    fn into_pat(self) -> Pat {
        Pat::Literal(self.into().0)
    }
}

fn operated(left: impl IntoPat, op: Op, right: impl IntoPat) -> Pat {
    Pat::op(op, [left.into_pat(), right.into_pat()])
}
operators!(Pat, IntoPat => Pat, operated);
operators!(Var, IntoPat => Pat, operated);

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        /// Operators without a symbol of their own.
        pub trait PatOps: IntoPat + Sized {
            $($(#[$doc])* fn $name(self, other: impl IntoPat) -> Pat { operated(self, Op::$op, other) })*
            /// WHERE with this condition.
            fn select(self, yes: impl IntoPat, no: impl IntoPat) -> Pat {
                Pat::op(Op::Where, [self.into_pat(), yes.into_pat(), no.into_pat()])
            }
            /// One of these two-operand ops.
            fn with_(self, ops: OpSet, other: impl IntoPat) -> Pat {
                Pat::ops(ops, [self.into_pat(), other.into_pat()])
            }
            /// CAST to whatever dtype.
            fn cast_(self) -> Pat {
                self.under(Op::Cast)
            }
            /// A one-source node over this.
            fn under(self, op: Op) -> Pat {
                Pat::op(op, [self.into_pat()])
            }
        }
        impl PatOps for Pat {}
        impl PatOps for Var {}
    };
}
methods! {
    /// a < b.
    lt CmpLt;
    /// a ≠ b.
    ne_ CmpNe;
    /// a = b.
    eq_ CmpEq;
    /// a > b.
    gt_ CmpGt;
    /// a ≥ b.
    ge_ CmpGe;
    /// a ≤ b.
    le_ CmpLe;
    /// a / b of floats.
    fdiv Div;
    /// a^b.
    pow_ Pow;
    /// max(a, b).
    max_ Max;
}
