//! The linear program's spec: what renderers and the interpreter may rely on.
//!
//! 1. The root is a LINEAR; only ops of programs occur; no tags; args fit; CONSTs are of their dtype.
//! 2. Every operand is an earlier instruction. Exempt are the shape and bounds of PARAM and BUFFER, and
//!    the constant offsets, sizes and lane numbers of SHRINK and INDEX. SINK stands last, if at all.
//! 3. RANGE and END, IF and ENDIF nest. A value made inside is not used outside.
//! 4. No value has dtype `index`. A RANGE counts in i32 or i64.
//! 5. PARAM: GLOBAL, flat; or a variable, an i32 or i64 of shape (). Slots are distinct. BUFFER: LOCAL or
//!    REG, flat; REG also (n, W).
//! 6. LOAD, STORE and ATOMICADD have addresses: INDEX(buffer, i) or SHRINK(buffer, (i,), (W,)). Neither
//!    an address nor storage is a value. AFTER is its first source under another name, so that reads of
//!    one address before and after a store are two nodes; no instruction stands twice. GROUP is nothing.
//! 7. An address is within its buffer by min_max, or the access is gated, or inside an IF.
//! 8. LOAD(address, alt, gate): alt has the address's dtype and shape. STORE(address, value, gate): value
//!    too, or is a CONST. Gates are bool, of shape () or the address's.
//! 9. Shapes are () or (W,). Operands of an elementwise op have its shape; exempt are a CONST of shape ()
//!    and the condition of a WHERE of shape (). BITCAST keeps the width. STACK is of scalars.
//! 10. SPECIAL is gidx0…2, lidx0…2 or tid, each once, an i32. WMMA's fragments are its unit's.
//! 11. Floor division is gone: integers divide by TRUNCDIV and TRUNCMOD.

use super::{Check, storage};
use crate::arg::{AddrSpace, Arg};
use crate::dtype::DType;
use crate::node::UOp;
use crate::op::{Op, OpSet};
use crate::shape::Shape;
use rustc_hash::FxHashMap;
use std::sync::OnceLock;

fn ops() -> OpSet {
    static OPS: OnceLock<OpSet> = OnceLock::new();
    const OTHER: OpSet = OpSet::of(&[
        Op::Param,
        Op::Buffer,
        Op::Const,
        Op::Special,
        Op::Range,
        Op::End,
        Op::If,
        Op::EndIf,
        Op::Barrier,
        Op::Index,
        Op::Shrink,
        Op::Stack,
        Op::Bitcast,
        Op::Load,
        Op::Store,
        Op::Wmma,
        Op::AtomicAdd,
        Op::Custom,
        Op::Ins,
        Op::GetAddr,
        Op::After,
        Op::Group,
        Op::Sink,
    ]);
    *OPS.get_or_init(|| {
        OTHER.union(OpSet::filter(|op| op.is_elementwise() && !matches!(op, Op::Idiv | Op::Mod)))
    })
}

/// Names of hardware indices.
const SPECIALS: [&str; 7] = ["gidx0", "gidx1", "gidx2", "lidx0", "lidx1", "lidx2", "tid"];

/// An instruction's place: the loops and conditions open around it.
struct Scopes<'a> {
    /// Open RANGEs and IFs with the number of each, outermost first.
    open: Vec<(&'a UOp, usize)>,
    /// Whether the scope of that number is open.
    is_open: Vec<bool>,
    /// The scope of each instruction that has come.
    of: FxHashMap<usize, usize>,
}

pub(super) fn check(c: &mut Check) {
    let root = c.root;
    if root.op() != Op::Linear {
        return c.fault(root, "a program is a LINEAR");
    }
    let n = root.src().len();
    let mut scopes = Scopes { open: Vec::new(), is_open: vec![true], of: FxHashMap::default() };
    scopes.of.reserve(n);
    let mut slots: FxHashMap<u64, &UOp> = FxHashMap::default();
    let mut specials: Vec<&str> = Vec::new();
    let ops = ops();
    for (at, u) in root.src().iter().enumerate() {
        c.any(u, ops);
        if scopes.of.contains_key(&u.address()) {
            c.fault(u, "this instruction stands twice");
        }
        operands(c, u, &scopes);
        blocks(c, u, &mut scopes);
        let scope = scopes.open.last().map_or(0, |s| s.1);
        scopes.of.insert(u.address(), scope);
        shapes(c, u);
        match (u.op(), u.arg()) {
            (Op::Param, Arg::Buffer(b)) => {
                if slots.insert(b.slot, u).is_some() {
                    c.fault(u, format!("another PARAM has slot {} too", b.slot));
                }
                buffer(c, u);
            }
            (Op::Buffer, _) => buffer(c, u),
            (Op::Load | Op::Store | Op::AtomicAdd, _) => access(c, u, &scopes),
            (Op::Special, Arg::Text(name)) => {
                if !SPECIALS.contains(&&**name) || u.dtype() != DType::I32 {
                    c.fault(u, format!("there is no hardware index {name} of {}", u.dtype()));
                }
                if specials.contains(&&**name) {
                    c.fault(u, format!("{name} stands twice"));
                }
                specials.push(name);
            }
            (Op::Wmma, Arg::Wmma(_)) => wmma(c, u),
            (Op::Sink, _) if at + 1 != n => c.fault(u, "SINK stands last"),
            _ => {}
        }
    }
    for (u, _) in scopes.open {
        c.fault(u, format!("this {} is not closed", u.op().name()));
    }
}

/// What an AFTER names.
fn named(u: &UOp) -> &UOp {
    let mut u = u;
    while u.op() == Op::After {
        u = &u.src()[0];
    }
    u
}

fn is_buffer(u: &UOp) -> bool {
    storage(u).is_some_and(|s| s.op() != Op::Load)
}

fn is_address(u: &UOp) -> bool {
    let u = named(u);
    matches!(u.op(), Op::Index | Op::Shrink) && is_buffer(&u.src()[0])
}

/// Constants that stand where they are used: offsets, sizes, lane numbers.
fn is_number(u: &UOp) -> bool {
    u.op() == Op::Const || u.op() == Op::Stack && u.src().iter().all(|s| s.op() == Op::Const)
}

/// Every operand has come, and in a scope that is still open.
fn operands<'a>(c: &mut Check<'a>, u: &'a UOp, scopes: &Scopes<'a>) {
    if matches!(u.op(), Op::Param | Op::Buffer) {
        return;
    }
    let free = matches!(u.op(), Op::Custom | Op::Ins);
    let to_address = matches!(u.op(), Op::Load | Op::Store | Op::AtomicAdd | Op::GetAddr | Op::After);
    let to_storage = matches!(u.op(), Op::Index | Op::Shrink | Op::GetAddr | Op::After);
    for (i, s) in u.src().iter().enumerate() {
        let place = i > 0 && matches!(u.op(), Op::Index | Op::Shrink);
        if place && is_number(s) {
            continue;
        }
        // The vector of a SHRINK's offset need not be an instruction where its element is.
        let s = match s.op() {
            Op::Stack if place && s.src().len() == 1 && !scopes.of.contains_key(&s.address()) => &s.src()[0],
            _ => s,
        };
        match scopes.of.get(&s.address()) {
            None => c.fault(u, format!("source {i} is no earlier instruction")),
            Some(&scope) if !scopes.is_open[scope] && s.dtype() != DType::Void => {
                c.fault(u, format!("source {i} was made in a loop or condition that is closed"));
            }
            _ => {}
        }
        if !free && is_address(s) && !(i == 0 && to_address) {
            c.fault(u, format!("source {i} is an address, not a value"));
        }
        if !free && is_buffer(s) && !(i == 0 && to_storage) {
            c.fault(u, format!("source {i} is storage, not a value"));
        }
    }
}

/// RANGE, END, IF, ENDIF.
fn blocks<'a>(c: &mut Check<'a>, u: &'a UOp, scopes: &mut Scopes<'a>) {
    match u.op() {
        Op::Range | Op::If => {
            scopes.open.push((u, scopes.is_open.len()));
            scopes.is_open.push(true);
            if u.op() == Op::If && u.src()[0].dtype() != DType::Bool {
                c.fault(u, "the gate is no bool");
            }
            if u.op() == Op::Range && !matches!(u.dtype(), DType::I32 | DType::I64) {
                c.fault(u, format!("a RANGE counts in i32 or i64, not in {}", u.dtype()));
            }
        }
        Op::End | Op::EndIf => {
            let wanted = if u.op() == Op::End { u.src().get(1) } else { u.src().first() };
            match (scopes.open.last(), wanted) {
                (Some((top, _)), Some(w)) if top == &w => {}
                (Some((top, _)), _) => {
                    c.fault(u, format!("it does not close the innermost {}", top.op().name()))
                }
                (None, _) => c.fault(u, "there is nothing to close"),
            }
            if u.op() == Op::End && u.src().len() != 2 {
                c.fault(u, "END closes one RANGE here");
            }
            if let Some((_, scope)) = scopes.open.pop() {
                scopes.is_open[scope] = false;
            }
        }
        _ => {}
    }
}

fn buffer<'a>(c: &mut Check<'a>, u: &'a UOp) {
    let Some(b) = u.buffer_arg() else { return };
    let rank = u.shape().len();
    let fits = match (u.op(), b.addrspace) {
        (Op::Param, Some(AddrSpace::Global)) | (Op::Buffer, Some(AddrSpace::Local)) => rank == 1,
        (Op::Param, None) => rank == 0 && matches!(b.dtype, DType::I32 | DType::I64),
        (Op::Buffer, Some(AddrSpace::Reg)) => rank == 1 || rank == 2,
        _ => false,
    };
    if !fits {
        let space = b.addrspace.map_or("no address space", AddrSpace::name);
        c.fault(u, format!("a {} cannot be {}{} in {space}", u.op().name(), b.dtype, u.shape()));
    }
}

/// Shapes, dtypes and operands of a value.
fn shapes<'a>(c: &mut Check<'a>, u: &'a UOp) {
    let (op, shape) = (u.op(), u.shape());
    if u.dtype() == DType::Index {
        c.fault(u, "dtype index is left");
    }
    if shape.len() > 1 && !is_buffer(u) {
        c.fault(u, format!("a value of shape {shape}"));
    }
    if op.is_elementwise() {
        for (i, s) in u.src().iter().enumerate().filter(|(_, s)| s.shape() != shape) {
            let exempt = s.shape().is_empty() && (s.op() == Op::Const || op == Op::Where && i == 0);
            if !exempt {
                c.fault(u, format!("source {i} has shape {}, not {shape}", s.shape()));
            }
        }
    }
    match op {
        Op::Bitcast if u.src()[0].dtype().bytes() != u.dtype().bytes() => {
            c.fault(u, format!("BITCAST from {} to another width", u.src()[0].dtype()));
        }
        Op::Stack if u.src().iter().any(|s| !s.shape().is_empty()) => c.fault(u, "STACK of vectors"),
        Op::Index if u.src().len() != 2 => c.fault(u, "INDEX has one index here"),
        Op::Index | Op::Shrink if !is_buffer(&u.src()[0]) => {
            let n = u.src()[0].shape().max_len();
            let lanes = &u.src()[1];
            let (lo, hi) = lanes.bounds();
            let width = if op == Op::Shrink { shape.max_len() } else { 1 };
            if !is_number(lanes) || lo < 0 || hi + width > n || u.src()[0].shape().len() != 1 {
                c.fault(u, format!("lanes are constants below {n}"));
            }
        }
        _ => {}
    }
}

/// LOAD, STORE, ATOMICADD.
fn access<'a>(c: &mut Check<'a>, u: &'a UOp, scopes: &Scopes) {
    let address = named(&u.src()[0]);
    if !is_address(address) {
        return c.fault(u, "it has no address: an INDEX or SHRINK of storage");
    }
    let (load, n) = (u.op() == Op::Load, u.src().len());
    if load && n == 2 {
        c.fault(u, "an alternative without a gate");
    }
    if let Some(v) = u.src().get(1) {
        let shape = v.shape() == address.shape() || v.op() == Op::Const && v.shape() == &Shape::SCALAR;
        if v.dtype() != address.dtype() || !shape {
            let (has, wants) = ((v.dtype(), v.shape()), (address.dtype(), address.shape()));
            c.fault(u, format!("the value is {}{:?}, the address {}{:?}", has.0, has.1, wants.0, wants.1));
        }
    }
    let gate = u.src().get(2);
    if let Some(g) = gate {
        let shape = g.shape().is_empty() || g.shape() == address.shape();
        if g.dtype() != DType::Bool || !shape {
            c.fault(u, format!("a gate of {}{:?}", g.dtype(), g.shape()));
        }
    }
    let guarded = gate.is_some() || scopes.open.iter().any(|(s, _)| s.op() == Op::If);
    let size = address.src()[0].shape().first().map_or(0, |d| d.max());
    let (lo, hi) = address.src()[1].bounds();
    let width = if address.op() == Op::Shrink { address.shape().max_len() } else { 1 };
    if !guarded && (lo < 0 || hi.saturating_add(width) > size) {
        let last = hi.saturating_add(width - 1);
        c.fault(u, format!("elements {lo}..={last} by min_max of a buffer of {size}, without a gate"));
    }
}

fn wmma<'a>(c: &mut Check<'a>, u: &'a UOp) {
    let Arg::Wmma(t) = u.arg() else { return };
    let [m, n, k] = t.dims;
    let wanted = [(m * k, t.dtype_in), (k * n, t.dtype_in), (m * n, t.dtype_out)];
    for (i, (s, (elements, dtype))) in u.src().iter().zip(wanted).enumerate() {
        let fragment = Shape::of(&[elements / t.threads.max(1)]);
        if *s.shape() != fragment || s.dtype() != dtype {
            c.fault(u, format!("source {i} is {}{}, not {dtype}{fragment}", s.dtype(), s.shape()));
        }
    }
}
