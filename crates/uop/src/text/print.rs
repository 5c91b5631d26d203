//! Printing: a graph to lines.
//!
//! Flows in: roots; flows out: the text form. Invariant: names and order depend on the graph's structure
//! alone, never on addresses.

use super::{args, context, inline, value};
use crate::arg::{AddrSpace, Arg};
use crate::dtype::DType;
use crate::graph::toposort_many;
use crate::marks::NodeMap;
use crate::node::UOp;
use crate::op::Op;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt::Write;
use std::slice::from_ref;

/// The graph in the text form.
pub fn print(root: &UOp) -> String {
    print_many(from_ref(root))
}

/// The graph below several roots: each an unnamed line, or all listed in the last one.
pub fn print_many(roots: &[UOp]) -> String {
    let mut p = Printer::default();
    p.graph(roots);
    p.out
}

/// The names that nodes of a graph have in its text.
#[derive(Default)]
pub struct Names {
    names: FxHashMap<UOp, String>,
    taken: FxHashMap<String, u32>,
    buffers: FxHashMap<u64, u64>,
    values: u32,
}

impl Names {
    /// The names of all nodes below `root`.
    pub fn of(root: &UOp) -> Names {
        let mut names = Names::default();
        for u in root.toposort().iter().filter(|u| !inline(u)) {
            names.give(u);
        }
        names
    }

    /// The node's own line: name, op, arg, sources, type, tag.
    pub fn line(&self, u: &UOp) -> String {
        let mut out = if inline(u) {
            String::new()
        } else {
            format!("{} = ", self.get(u))
        };
        self.node(&mut out, u);
        out
    }

    /// Whether the node has a line of its own.
    pub fn has(&self, u: &UOp) -> bool {
        self.names.contains_key(u)
    }

    fn get(&self, u: &UOp) -> &str {
        self.names.get(u).map_or("%?", String::as_str)
    }

    fn give(&mut self, u: &UOp) -> &str {
        let name = match (u.op(), u.arg()) {
            (Op::Param, Arg::Buffer(b)) if b.addrspace.is_none() => format!("v{}", b.slot),
            (Op::Param, Arg::Buffer(b)) => format!("p{}", b.slot),
            (Op::Buffer, Arg::Buffer(b)) => {
                let next = self.buffers.len() as u64;
                let number =
                    counted(u).map_or(b.slot, |slot| *self.buffers.entry(slot).or_insert(next));
                format!("b{number}")
            }
            (Op::Range, Arg::Range(id, _)) => format!("r{id}"),
            _ => {
                self.values += 1;
                format!("%{}", self.values - 1)
            }
        };
        let taken = self.taken.entry(name.clone()).or_insert(0);
        let name = match *taken {
            0 => name,
            again => format!("{name}_{again}"),
        };
        *taken += 1;
        self.names.entry(u.clone()).or_insert(name)
    }

    fn node(&self, out: &mut String, u: &UOp) {
        out.push_str(u.op().name());
        let slot = u.buffer_arg().map_or(0, |b| b.slot);
        let number = counted(u).and_then(|slot| self.buffers.get(&slot));
        let number = *number.unwrap_or(&slot);
        let first = u.src().first().map_or(u.dtype(), UOp::dtype);
        args::write(out, u.op(), u.arg(), first, number, print);
        for i in 0..u.src().len() {
            out.push(' ');
            self.operand(out, u, i);
        }
        if shows_type(u) {
            let _ = write!(out, " : {}", type_text(u));
        }
        if u.tag() != 0 {
            let _ = write!(out, " #{}", u.tag());
        }
    }

    fn operand(&self, out: &mut String, user: &UOp, i: usize) {
        let src = user.src();
        match src[i].arg() {
            Arg::Const(v, d) if literal(&src[i]) => {
                let of = |j: usize| Some(&src[j]).filter(|s| !literal(s)).map(UOp::dtype);
                out.push_str(&value::literal(
                    *v,
                    *d,
                    context(user.op(), user.arg(), i, src.len(), of),
                ));
            }
            _ => self.alone(out, &src[i]),
        }
    }

    /// A node as an operand that nothing else says the dtype of.
    fn alone(&self, out: &mut String, u: &UOp) {
        match u.arg() {
            _ if !inline(u) => out.push_str(self.get(u)),
            Arg::Const(v, d) => out.push_str(&value::literal(*v, *d, None)),
            _ => self.vector(out, u),
        }
    }

    /// A STACK of constants and named nodes, in parentheses.
    fn vector(&self, out: &mut String, u: &UOp) {
        out.push('(');
        for i in 0..u.src().len() {
            out.push_str(if i > 0 { ", " } else { "" });
            self.operand(out, u, i);
        }
        out.push_str(if u.src().len() == 1 { ",)" } else { ")" });
    }
}

/// The slot of a GLOBAL buffer, which is the process's own: the text counts them.
fn counted(u: &UOp) -> Option<u64> {
    u.buffer_arg()
        .filter(|b| u.op() == Op::Buffer && b.addrspace == Some(AddrSpace::Global))
        .map(|b| b.slot)
}

fn literal(u: &UOp) -> bool {
    u.op() == Op::Const && inline(u)
}

/// Types stand on values with a shape and where a scalar's dtype is not that of its sources.
fn shows_type(u: &UOp) -> bool {
    match u.op() {
        Op::Param | Op::Buffer | Op::Const | Op::Range | Op::Special | Op::Binary => false,
        _ if u.op().is_void() || u.op() == Op::Function => false,
        Op::Index | Op::Load | Op::GetTuple | Op::Wmma | Op::Custom | Op::Ins | Op::GetAddr => true,
        _ => !u.shape().is_empty(),
    }
}

/// `f32(4, 8)`; a symbolic dimension is `?` and its greatest value.
pub(super) fn type_text(u: &UOp) -> String {
    let shape = if u.shape().is_empty() {
        String::new()
    } else {
        u.shape().to_string()
    };
    format!("{}{shape}", u.dtype())
}

#[derive(Default)]
struct Printer {
    names: Names,
    /// Roots whose own line says so, by having no name.
    bare: FxHashSet<UOp>,
    /// How often each node is a source.
    uses: FxHashMap<UOp, u32>,
    out: String,
}

impl Printer {
    fn graph(&mut self, roots: &[UOp]) {
        let all = toposort_many(roots, |_| true);
        for s in all.iter().flat_map(|u| u.src()) {
            *self.uses.entry(s.clone()).or_insert(0) += 1;
        }
        let mut once: FxHashSet<&UOp> = FxHashSet::default();
        if roots
            .iter()
            .all(|r| !inline(r) && !self.uses.contains_key(r) && once.insert(r))
        {
            self.bare = roots.iter().cloned().collect();
        }
        let mut opened: FxHashSet<UOp> = FxHashSet::default();
        // What is still to be printed, the next last; the block of a LINEAR once all before it is.
        let later = |nodes: Vec<UOp>| nodes.into_iter().rev().map(|u| (u, false));
        let mut work: Vec<(UOp, bool)> = later(self.unprinted(roots)).collect();
        while let Some((u, ready)) = work.pop() {
            if ready {
                self.block(&u);
            } else if inline(&u) || self.names.has(&u) {
                continue;
            } else if u.op() != Op::Linear {
                self.line("", &u, !self.bare.contains(&u));
            } else if opened.insert(u.clone()) {
                let hoisted = self.hoisted(&u);
                work.push((u, true));
                work.extend(later(hoisted));
            }
        }
        if self.bare.is_empty() {
            self.operands("", roots);
        }
    }

    /// What is below these nodes and has no line yet; a LINEAR stands for all that is below it.
    fn unprinted(&self, list: &[UOp]) -> Vec<UOp> {
        toposort_many(list, |u| u.op() != Op::Linear && !self.names.has(u))
    }

    /// One line. A name is given in any case, and shown where `named`.
    fn line(&mut self, indent: &str, u: &UOp, named: bool) {
        self.out.push_str(indent);
        let name = self.names.give(u);
        if named {
            self.out += &format!("{name} = ");
        }
        self.names.node(&mut self.out, u);
        self.out.push('\n');
    }

    /// A line of operands.
    fn operands(&mut self, indent: &str, list: &[UOp]) {
        if list.is_empty() {
            return;
        }
        self.out.push_str(indent);
        for (i, u) in list.iter().enumerate() {
            self.out.push_str(if i == 0 { "" } else { " " });
            self.names.alone(&mut self.out, u);
        }
        self.out.push('\n');
    }

    /// Members of a LINEAR that get a line in its block.
    fn is_line(&self, u: &UOp) -> bool {
        !inline(u) && u.op() != Op::Linear && !self.names.has(u)
    }

    /// What must be printed before the block of `linear`: what is no instruction of it, or everything
    /// where the lines cannot stand in the list's order.
    fn hoisted(&self, linear: &UOp) -> Vec<UOp> {
        let mut before = self.unprinted(linear.src());
        let mut place: NodeMap<&UOp, usize> = NodeMap::new();
        for (i, u) in linear.src().iter().enumerate() {
            if self.is_line(u) {
                place.get_or_insert_with(u, || i);
            }
        }
        let in_order = |u: &UOp| {
            // The parts of a vector stand where it is used.
            let parts = |s| if inline(s) { s.src() } else { from_ref(s) };
            let mut places = u.src().iter().flat_map(parts).filter_map(|s| place.get(s));
            places.all(|below| place.get(u).is_some_and(|at| below < at))
        };
        if before.iter().all(|u| inline(u) || in_order(u)) {
            before.retain(|u| !place.contains_key(u));
        }
        before
    }

    fn block(&mut self, linear: &UOp) {
        if !self.bare.contains(linear) {
            self.out += &format!("{} = ", self.names.give(linear));
        }
        self.out.push_str("LINEAR");
        args::write(
            &mut self.out,
            Op::Linear,
            linear.arg(),
            linear.dtype(),
            0,
            print,
        );
        self.out.push_str(" {\n");
        let mut run: Vec<UOp> = Vec::new();
        for u in linear.src() {
            if self.is_line(u) {
                self.operands("  ", &std::mem::take(&mut run));
                self.line(
                    "  ",
                    u,
                    self.uses.get(u) != Some(&1) || u.dtype() != DType::Void,
                );
            } else {
                run.push(u.clone());
            }
        }
        self.operands("  ", &run);
        self.out.push('}');
        if linear.tag() != 0 {
            let _ = write!(self.out, " #{}", linear.tag());
        }
        self.out.push('\n');
    }
}
