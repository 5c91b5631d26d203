//! Structure apart from data: the constants and the offsets of views that a function is written with.
//!
//! Flows in: a function; flows out: its structure without them, and the values, numbered by edge (a
//! node and the operand of it), since equal constants are one node however often they are written.
//! Functions of one structure differ in those values alone, and `generalise` makes one function of
//! them: what was seen to vary becomes a variable, all else stays the constant that it is.
//!
//! Invariant: a generalised function computes what the exact one does for every list of values that
//! its guards admit.

use crate::callify::Function;
use monoglot_uop::node::Srcs;
use monoglot_uop::{DType, Op, Scalar, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::hash::Hash;
use xxhash_rust::xxh3::Xxh3;

/// A function without its constants and offsets, as a hash of 128 bits of its nodes, what they have for
/// operands, and what may vary there: equal for functions that differ in values alone.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Structure(u128);

/// What a value that may vary is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum LiftedKind {
    /// An operand of this dtype.
    Scalar(DType),
    /// Where a view of `size` elements of an axis begins: from 0 to `most`.
    Offset {
        /// The greatest offset.
        most: i64,
        /// Elements that the view has.
        size: i64,
    },
}

/// A function's structure, and the values that it has there.
#[derive(Clone, Debug)]
pub struct Lifted {
    /// What the function has in common with others.
    pub structure: Structure,
    /// Its values, by edge.
    pub values: Vec<Scalar>,
    /// What they are.
    pub kinds: Vec<LiftedKind>,
}

/// An operand of a node.
enum Edge<'a> {
    Node(&'a UOp),
    Lifted(Scalar, LiftedKind),
}

/// Visit the operands of a node as its structure has them: offsets one by one, in place of their vector.
fn edges<'a>(u: &'a UOp, mut visit: impl FnMut(Edge<'a>)) {
    for (i, s) in u.src().iter().enumerate().skip(bodies(u)) {
        if is_offsets(u, i) {
            for (axis, o) in s.src().iter().enumerate() {
                visit(offset(u, axis).unwrap_or(Edge::Node(o)));
            }
        } else {
            visit(scalar(u, i).unwrap_or(Edge::Node(s)));
        }
    }
}

/// How many operands of a node are bodies: a function of its own is what it is.
fn bodies(u: &UOp) -> usize {
    usize::from(u.op() == Op::Function)
}

/// Whether operand `i` of a node is a vector of offsets.
fn is_offsets(u: &UOp, i: usize) -> bool {
    i == 1 && matches!(u.op(), Op::Shrink | Op::Pad) && u.src()[1].op() == Op::Stack
}

/// Ops whose constant operands are data: computed with, shown, or stored.
fn takes_data(op: Op) -> bool {
    use Op::*;
    let shown = matches!(
        op,
        Reshape | Expand | Pad | Stack | Contiguous | Copy | Function
    );
    shown || op == Store || op.is_elementwise()
}

/// A constant that may vary as operand `i` of a node.
fn scalar(u: &UOp, i: usize) -> Option<Edge<'_>> {
    let s = &u.src()[i];
    let number = s.dtype() != DType::Index && s.dtype() != DType::Bool;
    let value = s.const_value().filter(|_| number && takes_data(u.op()))?;
    Some(Edge::Lifted(value, LiftedKind::Scalar(s.dtype())))
}

/// The offset of a view along one axis, where it may vary.
fn offset(u: &UOp, axis: usize) -> Option<Edge<'_>> {
    let (whole, part) = match u.op() {
        Op::Shrink => (u.src()[0].shape(), u.shape()),
        _ => (u.shape(), u.src()[0].shape()),
    };
    let size = part[axis].as_int()?;
    let most = whole[axis].as_int()? - size;
    let at = u.src()[1].src()[axis].as_int()?;
    let value = Scalar::Int(at.into());
    (most > 0).then_some(Edge::Lifted(value, LiftedKind::Offset { most, size }))
}

/// Visit the nodes that a structure names, sources before users, each with the numbers of those before
/// it; gives the numbers of all. What is lifted is passed by, so that the order is the same whatever
/// values stand there.
fn walk<'a>(
    roots: &'a [UOp],
    mut visit: impl FnMut(&'a UOp, &FxHashMap<&'a UOp, u32>),
) -> FxHashMap<&'a UOp, u32> {
    /// The number of a node whose sources come first.
    const OPEN: u32 = u32::MAX;
    let mut number: FxHashMap<&UOp, u32> = FxHashMap::default();
    let mut count = 0;
    let mut stack: Vec<(&UOp, bool)> = roots.iter().rev().map(|r| (r, false)).collect();
    while let Some((u, ready)) = stack.pop() {
        if ready {
            visit(u, &number);
            number.insert(u, count);
            count += 1;
            continue;
        }
        if number.contains_key(u) {
            continue;
        }
        number.insert(u, OPEN);
        stack.push((u, true));
        let first = stack.len();
        edges(u, |edge| {
            if let Edge::Node(s) = edge {
                stack.push((s, false));
            }
        });
        stack[first..].reverse();
    }
    number
}

/// See the module.
pub fn lift(function: &Function) -> Lifted {
    /// What stands for an operand that is no node.
    const LIFTED: u32 = u32::MAX;
    let mut hash = Xxh3::new();
    let mut written: FxHashMap<&UOp, u128> = FxHashMap::default();
    let mut values = Vec::new();
    let mut kinds = Vec::new();
    let number = walk(&function.roots, |u, number| {
        (u.op() as u8).hash(&mut hash);
        u.arg().hash(&mut hash);
        for body in &u.src()[..bodies(u)] {
            let known = written.entry(body).or_insert_with(|| digest(body));
            known.hash(&mut hash);
        }
        edges(u, |edge| match edge {
            Edge::Node(s) => number[s].hash(&mut hash),
            Edge::Lifted(value, kind) => {
                (LIFTED, kind).hash(&mut hash);
                values.push(value);
                kinds.push(kind);
            }
        });
    });
    for r in &function.roots {
        number[r].hash(&mut hash);
    }
    function.donated.hash(&mut hash);
    function.conditions.hash(&mut hash);
    Lifted {
        structure: Structure(hash.digest128()),
        values,
        kinds,
    }
}

/// What a body is, with all its constants.
fn digest(body: &UOp) -> u128 {
    let mut hash = Xxh3::new();
    let mut number: FxHashMap<UOp, u32> = FxHashMap::default();
    for u in body.toposort() {
        (u.op() as u8).hash(&mut hash);
        u.arg().hash(&mut hash);
        u.src().len().hash(&mut hash);
        u.src().iter().for_each(|s| number[s].hash(&mut hash));
        number.insert(u, number.len() as u32);
    }
    hash.digest128()
}

/// The node that has each of the values of `lift`.
pub fn users(function: &Function) -> Vec<UOp> {
    let mut out = Vec::new();
    walk(&function.roots, |u, _| {
        edges(u, |edge| {
            if let Edge::Lifted(..) = edge {
                out.push(u.clone());
            }
        });
    });
    out
}

impl Lifted {
    /// This function with all that may vary a variable, and the words of those: for tests, which compare
    /// it with the function itself.
    pub fn widest(&self, function: &Function) -> (Function, Vec<i64>) {
        let other = |(v, kind): (&Scalar, &LiftedKind)| match *kind {
            LiftedKind::Scalar(d) => Scalar::Int(v.to_i128().wrapping_add(3)).cast(d),
            LiftedKind::Offset { most, .. } => {
                Scalar::Int((v.to_i128() + 1) % i128::from(most + 1))
            }
        };
        let others = self.values.iter().zip(&self.kinds).map(other);
        let seen = [self.values.clone(), others.collect()];
        let guards = Guards::new(&self.kinds, &seen, None);
        let words = guards.words(&self.values);
        let words = words.expect("guards admit what they were made of");
        (guards.generalise(function), words)
    }
}

/// What a generalised function takes, and for which values it stands.
#[derive(Clone, Debug)]
pub struct Guards {
    /// The values of one function that it stands for.
    example: Vec<Scalar>,
    /// Its variables.
    variables: Vec<Variable>,
}

/// A variable, and the edges at which it stands.
#[derive(Clone, Debug)]
struct Variable {
    edges: Vec<usize>,
    take: Take,
}

/// How a variable gives the value of its edges.
#[derive(Copy, Clone, Debug)]
enum Take {
    /// It is the value.
    Scalar(DType),
    /// The value is so many times the variable, which is 0 to `most`.
    Offset { divisor: i64, most: i64 },
}

impl Guards {
    /// The guards of a function that stands for all these lists of values: what differs among them
    /// varies, and what is equal in each of them is one variable. Offsets keep a common divisor, unless
    /// one that `before` had does not divide a later value.
    pub fn new(kinds: &[LiftedKind], seen: &[Vec<Scalar>], before: Option<&Guards>) -> Guards {
        let column = |edge: usize| seen.iter().map(|v| v[edge]).collect::<Vec<_>>();
        let mut variables: Vec<(Vec<Scalar>, Variable)> = Vec::new();
        for (edge, kind) in kinds.iter().enumerate() {
            let values = column(edge);
            if values.iter().all(|v| *v == values[0]) {
                continue;
            }
            let same = |take: &Take| match (take, kind) {
                (Take::Scalar(a), LiftedKind::Scalar(b)) => a == b,
                (Take::Offset { .. }, LiftedKind::Offset { .. }) => true,
                _ => false,
            };
            let known = variables
                .iter_mut()
                .find(|(v, variable)| *v == values && same(&variable.take));
            match known {
                Some((_, variable)) => variable.edges.push(edge),
                None => {
                    let take = match *kind {
                        LiftedKind::Scalar(d) => Take::Scalar(d),
                        LiftedKind::Offset { .. } => Take::Offset {
                            divisor: 1,
                            most: 0,
                        },
                    };
                    let edges = vec![edge];
                    variables.push((values, Variable { edges, take }));
                }
            }
        }
        for (values, variable) in &mut variables {
            if let Take::Offset { .. } = variable.take {
                variable.take = offsets(kinds, values, &variable.edges, before);
            }
        }
        Guards {
            example: seen[0].clone(),
            variables: variables.into_iter().map(|(_, v)| v).collect(),
        }
    }

    /// The words that the function's variables get for these values; None where it does not stand for
    /// them.
    pub fn words(&self, values: &[Scalar]) -> Option<Vec<i64>> {
        let mut varies = vec![false; values.len()];
        let mut words = Vec::with_capacity(self.variables.len());
        for variable in &self.variables {
            let value = values[variable.edges[0]];
            for &edge in &variable.edges {
                varies[edge] = true;
                if values[edge] != value {
                    return None;
                }
            }
            words.push(match variable.take {
                Take::Scalar(d) => value.to_bits(d) as i64,
                Take::Offset { divisor, most } => {
                    let at = value.as_int()?;
                    if at % divisor != 0 || at / divisor > most {
                        return None;
                    }
                    at / divisor
                }
            });
        }
        let fixed = |edge: usize| varies[edge] || values[edge] == self.example[edge];
        (0..values.len()).all(fixed).then_some(words)
    }

    /// The edges at which this list of values is not what the function has there.
    pub fn differing(&self, values: &[Scalar]) -> Vec<usize> {
        let differs = |edge: &usize| values[*edge] != self.example[*edge];
        (0..values.len()).filter(differs).collect()
    }

    /// The function over more variables, numbered after those that it has.
    pub fn generalise(&self, function: &Function) -> Function {
        let mut at_edge: FxHashMap<usize, UOp> = FxHashMap::default();
        for (k, variable) in self.variables.iter().enumerate() {
            let slot = (function.donated.len() + function.variables + k) as u64;
            let value = match variable.take {
                Take::Scalar(d) => UOp::argument(slot, d),
                Take::Offset { divisor: 1, most } => UOp::variable(slot, 0, most),
                Take::Offset { divisor, most } => UOp::variable(slot, 0, most) * divisor,
            };
            at_edge.extend(variable.edges.iter().map(|&edge| (edge, value.clone())));
        }
        let mut done: FxHashMap<&UOp, UOp> = FxHashMap::default();
        let mut edge_number = 0;
        walk(&function.roots, |u, _| {
            let mut operands: SmallVec<[UOp; 4]> = SmallVec::new();
            edges(u, |edge| match edge {
                Edge::Node(s) => operands.push(done[s].clone()),
                Edge::Lifted(value, kind) => {
                    let variable = at_edge.get(&edge_number).cloned();
                    operands.push(variable.unwrap_or_else(|| constant(value, kind)));
                    edge_number += 1;
                }
            });
            let mut operands = operands.into_iter();
            let mut src = Srcs::from(&u.src()[..bodies(u)]);
            for (i, s) in u.src().iter().enumerate().skip(bodies(u)) {
                if is_offsets(u, i) {
                    let offsets: Srcs = operands.by_ref().take(s.src().len()).collect();
                    src.push(s.with_src(offsets));
                } else {
                    src.extend(operands.next());
                }
            }
            done.insert(u, u.with_src(src));
        });
        Function {
            roots: function.roots.iter().map(|r| done[r].clone()).collect(),
            conditions: function.conditions,
            donated: function.donated.clone(),
            variables: function.variables + self.variables.len(),
        }
    }
}

/// How offsets of these values are given by one variable.
fn offsets(
    kinds: &[LiftedKind],
    values: &[Scalar],
    edges: &[usize],
    before: Option<&Guards>,
) -> Take {
    let mut most = i64::MAX;
    let mut sizes = 0;
    for &edge in edges {
        if let LiftedKind::Offset { most: m, size } = kinds[edge] {
            most = most.min(m);
            sizes = gcd(sizes, size);
        }
    }
    let values = || values.iter().filter_map(|v| v.as_int());
    let common = values().fold(0, gcd);
    // A loop goes by the size of its views, whatever its first two steps have in common besides.
    let steps = sizes > 0 && common % sizes == 0;
    let mut divisor = if steps { sizes } else { common.max(1) };
    // Once a divisor had to be lowered, none is assumed again: a loop compiles three times at most.
    let earlier = before.into_iter().flat_map(|g| &g.variables);
    for variable in earlier.filter(|v| edges.iter().any(|e| v.edges.contains(e))) {
        if let Take::Offset { divisor: old, .. } = variable.take
            && values().any(|v| v % old != 0)
        {
            divisor = 1;
        }
    }
    Take::Offset {
        divisor,
        most: most / divisor,
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn constant(value: Scalar, kind: LiftedKind) -> UOp {
    match kind {
        LiftedKind::Scalar(d) => UOp::constant(value, d),
        LiftedKind::Offset { .. } => UOp::constant(value, DType::Index),
    }
}
