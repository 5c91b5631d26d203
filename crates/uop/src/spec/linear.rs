//! The linear program's spec: what renderers and the interpreter may rely on. Flows in: a graph at
//! this border; flows out: a `Lowered`, or every fault that it has.
//!
//! 1. The root is a LINEAR; only ops of programs occur; no tags; args fit; CONSTs are of their dtype.
//! 2. Every operand is an earlier instruction. Exempt are the shape and bounds of PARAM and BUFFER, and
//!    the constant offsets, sizes and lane numbers of SHRINK, INDEX and SHUFFLE. SINK stands last, if at all.
//! 3. RANGE and END, IF and ENDIF nest. A value made inside is not used outside.
//! 4. No value has dtype `index`. A RANGE counts in i32 or i64.
//! 5. PARAM: GLOBAL, flat; or a variable of shape (). Slots are distinct. BUFFER: LOCAL or REG, flat; REG
//!    also (n, W). Only REG holds bools. Of LOCAL and of REG, each with numbers of its own, there are at most
//!    2^24 and 2^20 bytes.
//! 6. LOAD, STORE and ATOMICADD have addresses: INDEX(buffer, i) or SHRINK(buffer, (i,), (W,)). Neither
//!    an address nor storage is a value. AFTER is its first source under another name, so that reads of
//!    one address before and after a store are two nodes; no instruction stands twice. GROUP is nothing.
//! 7. An address is within its buffer by min_max, or the access is gated, or inside an IF.
//! 8. LOAD(address, alt, gate): alt has the address's dtype and shape. STORE(address, value, gate): value
//!    too, or is a CONST. Gates are bool, of shape () or the address's. A STORE whose place is GLOBAL, which passes
//!    the caches by, is of a vector to a PARAM and has no gate.
//! 9. Shapes are () or (W,), W at most 1024. Operands of an elementwise op have its shape; exempt are a CONST of shape ()
//!    and the condition of a WHERE of shape (). BITCAST keeps the width. STACK is of scalars,
//!    SHUFFLE of two vectors of one length, whose lanes are numbered through.
//! 10. SPECIAL is gidx0…2, lidx0…2 or tid, each once, an i32, and counts to a number from 1 on. WMMA's fragments are its unit's, which make whole matrices;
//!     of a dot product they are words, in as many lanes as what is added to.
//! 11. A BARRIER between the threads of a CPU stands outside loops and conditions. No value that memory or
//!     a loop gave, and no storage of a thread's own, is used on both sides of it.
//! 12. Floor division is gone: integers divide by TRUNCDIV and TRUNCMOD.

use super::{Verifier, kernel, need, ops_of};
use crate::arg::{AddrSpace, Arg};
use crate::dtype::DType;
use crate::linear::{address, has_phases, is_repeated, storage_of};
use crate::marks::NodeMap;
use crate::node::UOp;
use crate::op::Op;
use crate::shape::Shape;
use rustc_hash::FxHashSet;

/// Most lanes of a value.
const WIDTH: i64 = 1024;
/// Names of hardware indices.
const SPECIALS: [&str; 7] = ["gidx0", "gidx1", "gidx2", "lidx0", "lidx1", "lidx2", "tid"];

/// An instruction's place: the loops and conditions open around it.
struct Scopes<'a> {
    /// Open RANGEs and IFs with the number of each, outermost first.
    open: Vec<(&'a UOp, usize)>,
    /// Whether the scope of that number is open.
    is_open: Vec<bool>,
    /// The scope of each instruction that has come.
    of: NodeMap<&'a UOp, usize>,
}

pub(super) fn check(c: &mut Verifier) {
    let root = c.root;
    if root.op() != Op::Linear {
        return c.fault(root, "a program is a LINEAR");
    }
    let n = root.src().len();
    let mut scopes = Scopes {
        open: Vec::new(),
        is_open: vec![true],
        of: NodeMap::with_capacity(n),
    };
    let mut slots: FxHashSet<(Option<AddrSpace>, u64)> = FxHashSet::default();
    let mut bytes = [0i64; 2];
    let mut specials: Vec<&str> = Vec::new();
    let ops = ops_of('l');
    for (at, u) in root.src().iter().enumerate() {
        c.any(u, ops);
        need!(c, u, !scopes.of.contains_key(u) => "this instruction stands twice");
        operands(c, u, &scopes);
        blocks(c, u, &mut scopes);
        let scope = scopes.open.last().map_or(0, |s| s.1);
        scopes.of.insert(u, scope);
        shapes(c, u);
        match (u.op(), u.arg()) {
            (Op::Param | Op::Buffer, Arg::Buffer(b)) => {
                let name = u.op().name();
                let slot = b.slot;
                // A PARAM is known by its slot, whether it is storage or a variable.
                let space = b.addrspace.filter(|_| u.op() == Op::Buffer);
                let other = !slots.insert((space, slot));
                need!(c, u, !other => "another {name} has slot {slot} too");
                buffer(c, u);
                if u.op() == Op::Buffer {
                    kernel::own_storage(c, u, &mut bytes);
                } else {
                    c.bounds(u);
                    need!(c, u, u.src().len() < 4 => "a variable that is bound here already");
                }
            }
            (Op::Load | Op::Store | Op::AtomicAdd, _) => access(c, u, &scopes),
            (Op::Special, Arg::Text(name)) => {
                let known = SPECIALS.contains(&&**name) && u.dtype() == DType::I32;
                need!(c, u, known => "there is no hardware index {name} of {}", u.dtype());
                need!(c, u, !specials.contains(&&**name) => "{name} stands twice");
                let size = u.src()[0].as_int().is_some_and(|n| n > 0);
                need!(c, u, size => "it counts to no number from 1 on");
                specials.push(name);
            }
            (Op::Wmma, Arg::Wmma(_)) => wmma(c, u),
            (Op::Sink, _) => need!(c, u, at + 1 == n => "SINK stands last"),
            _ => {}
        }
    }
    for (u, _) in scopes.open {
        c.fault(u, format!("this {} is not closed", u.op().name()));
    }
    if has_phases(root) {
        phases(c, root);
    }
}

/// What goes from one phase to the next is made again there, or lies in memory that all threads share.
fn phases<'a>(c: &mut Verifier<'a>, root: &'a UOp) {
    let mut phase = 0;
    let mut open = 0;
    // The phase of what stays in it, and of storage that is a thread's own.
    let mut made: NodeMap<&UOp, u32> = NodeMap::new();
    let mut storage: NodeMap<&UOp, u32> = NodeMap::new();
    for u in root.src() {
        match u.op() {
            Op::Range | Op::If => open += 1,
            Op::End | Op::EndIf => open -= 1,
            Op::Barrier => {
                phase += 1;
                let outside = open == 0;
                need!(c, u, outside => "between threads, inside a loop or condition");
            }
            _ => {}
        }
        let values = || u.src().iter().filter(|s| s.dtype() != DType::Void);
        let mut first = phase;
        for s in values() {
            first = first.min(made.get(s).copied().unwrap_or(phase));
        }
        need!(c, u, first == phase =>
            "a value is used that was read before a BARRIER between threads");
        let stays = values().any(|s| made.contains_key(s));
        if stays || !is_repeated(u) && u.dtype() != DType::Void {
            made.insert(u, phase);
        }
        if matches!(u.op(), Op::Load | Op::Store | Op::AtomicAdd)
            && let Some(a) = address(&u.src()[0])
            && a.buffer.op() == Op::Buffer
        {
            let same = *storage.get_or_insert_with(a.buffer, || phase) == phase;
            need!(c, u, same => "storage of a thread on both sides of a BARRIER between threads");
        }
    }
}

/// Constants that stand where they are used: offsets, sizes, lane numbers.
fn is_number(u: &UOp) -> bool {
    u.op() == Op::Const || u.op() == Op::Stack && u.src().iter().all(|s| s.op() == Op::Const)
}

/// Every operand has come, and in a scope that is still open.
fn operands<'a>(c: &mut Verifier<'a>, u: &'a UOp, scopes: &Scopes<'a>) {
    use Op::*;
    if matches!(u.op(), Param | Buffer) {
        return;
    }
    let free = matches!(u.op(), Custom | Ins);
    let to_address = matches!(u.op(), Load | Store | AtomicAdd | GetAddr | After);
    let to_storage = matches!(u.op(), Index | Shrink | GetAddr | After);
    for (i, s) in u.src().iter().enumerate() {
        let place = i > 0 && matches!(u.op(), Index | Shrink) || i == 2 && u.op() == Shuffle;
        if place && is_number(s) {
            continue;
        }
        // The vector of a SHRINK's offset need not be an instruction where its element is.
        let s = match s.op() {
            Stack if place && s.src().len() == 1 && !scopes.of.contains_key(s) => &s.src()[0],
            _ => s,
        };
        let scope = scopes.of.get(s);
        need!(c, u, scope.is_some() => "source {i} is no earlier instruction");
        let open = scope.is_none_or(|&scope| scopes.is_open[scope]) || s.dtype() == DType::Void;
        need!(c, u, open => "source {i} was made in a loop or condition that is closed");
        let value = free || i == 0 && to_address || address(s.named()).is_none();
        need!(c, u, value => "source {i} is an address, not a value");
        let value = free || i == 0 && to_storage || storage_of(s).is_none();
        need!(c, u, value => "source {i} is storage, not a value");
    }
}

/// RANGE, END, IF, ENDIF.
fn blocks<'a>(c: &mut Verifier<'a>, u: &'a UOp, scopes: &mut Scopes<'a>) {
    match u.op() {
        Op::Range | Op::If => {
            scopes.open.push((u, scopes.is_open.len()));
            scopes.is_open.push(true);
            if u.op() == Op::If {
                need!(c, u, u.src()[0].dtype() == DType::Bool => "the gate is no bool");
            } else {
                let counts = matches!(u.dtype(), DType::I32 | DType::I64);
                let counts = counts && u.src().iter().all(|s| s.dtype() == u.dtype());
                need!(c, u, counts => "a RANGE counts in i32 or i64, not in {}", u.dtype());
            }
        }
        Op::End | Op::EndIf => {
            need!(c, u, u.op() == Op::EndIf || u.src().len() == 2 => "END closes one RANGE here");
            let wanted = u.src().get((u.op() == Op::End) as usize);
            match scopes.open.pop() {
                Some((top, scope)) => {
                    scopes.is_open[scope] = false;
                    let innermost = Some(top) == wanted;
                    need!(c, u, innermost => "it does not close the innermost {}", top.op().name());
                }
                None => c.fault(u, "there is nothing to close"),
            }
        }
        _ => {}
    }
}

fn buffer<'a>(c: &mut Verifier<'a>, u: &'a UOp) {
    let Some(b) = u.buffer_arg() else { return };
    let rank = u.shape().len();
    let bytes = b.dtype != DType::Bool && b.dtype != DType::Void;
    let fits = match (u.op(), b.addrspace) {
        (Op::Param, Some(AddrSpace::Global)) => rank == 1 && bytes,
        (Op::Buffer, Some(AddrSpace::Local)) => rank == 1 && bytes,
        (Op::Param, None) => rank == 0 && bytes,
        (Op::Buffer, Some(AddrSpace::Reg)) => rank == 1 || rank == 2,
        _ => false,
    };
    let space = b.addrspace.map_or("no address space", AddrSpace::name);
    need!(c, u, fits => "a {} cannot be {}{} in {space}", u.op().name(), b.dtype, u.shape());
}

/// Shapes, dtypes and operands of a value.
fn shapes<'a>(c: &mut Verifier<'a>, u: &'a UOp) {
    let op = u.op();
    let shape = u.shape();
    let src = u.src();
    need!(c, u, u.dtype() != DType::Index => "dtype index is left");
    need!(c, u, shape.len() < 2 || storage_of(u).is_some() => "a value of shape {shape}");
    let narrow = shape.max_len() <= WIDTH || storage_of(u).is_some();
    need!(c, u, narrow => "more than {WIDTH} lanes");
    if op.is_elementwise() {
        for (i, s) in src.iter().enumerate().filter(|(_, s)| s.shape() != shape) {
            let exempt = s.shape().is_empty() && (s.op() == Op::Const || op == Op::Where && i == 0);
            need!(c, u, exempt => "source {i} has shape {}, not {shape}", s.shape());
        }
    }
    match op {
        Op::Bitcast => {
            let from = src[0].dtype();
            need!(c, u, from.bytes() == u.dtype().bytes() =>
                "BITCAST from {from} to another width");
        }
        Op::Stack => need!(c, u, src.iter().all(|s| s.shape().is_empty()) => "STACK of vectors"),
        Op::Shuffle => {
            let [a, b, list] = [0, 1, 2].map(|k| src[k].shape());
            need!(c, u, a.len() == 1 && a == b => "lanes of {a} and {b}, not of vectors of one length");
            let all = 2 * a.max_len();
            let inside = |s: &UOp| s.as_int().is_some_and(|k| (0..all).contains(&k));
            let known = list.len() == 1 && is_number(&src[2]) && src[2].src().iter().all(inside);
            need!(c, u, known => "lanes are constants below {all}");
        }
        Op::Index if src.len() != 2 => c.fault(u, "INDEX has one index here"),
        Op::Index | Op::Shrink if storage_of(&src[0]).is_none() => {
            let n = src[0].shape().max_len();
            let (lo, hi) = src[1].bounds();
            let inside = is_number(&src[1]) && lo >= 0 && hi.saturating_add(width(u)) <= n;
            let inside = inside && src[0].shape().len() == 1;
            need!(c, u, inside => "lanes are constants below {n}");
        }
        _ => {}
    }
}

/// How many elements an INDEX or SHRINK is of.
fn width(u: &UOp) -> i64 {
    if u.op() == Op::Shrink {
        u.shape().max_len()
    } else {
        1
    }
}

/// LOAD, STORE, ATOMICADD.
fn access<'a>(c: &mut Verifier<'a>, u: &'a UOp, scopes: &Scopes) {
    let to = u.src()[0].named();
    if address(to).is_none() {
        return c.fault(u, "it has no address: an INDEX or SHRINK of storage");
    }
    let dtype = to.dtype();
    let shape = to.shape();
    need!(c, u, u.op() != Op::Load || u.src().len() != 2 => "an alternative without a gate");
    if let Some(v) = u.src().get(1) {
        let fits = v.shape() == shape || v.op() == Op::Const && v.shape().is_empty();
        let fits = fits && v.dtype() == dtype;
        need!(c, u, fits => "the value is {}{}, the address {dtype}{shape}", v.dtype(), v.shape());
    }
    let gate = u.src().get(2);
    if let Some(g) = gate {
        let fits = g.dtype() == DType::Bool && (g.shape().is_empty() || g.shape() == shape);
        need!(c, u, fits => "a gate of {}{}", g.dtype(), g.shape());
    }
    let plain = u.op() != Op::Store || *u.arg() == Arg::None;
    let whole = gate.is_none() && width(to) > 1 && to.src()[0].named().op() == Op::Param;
    let past = whole && *u.arg() == Arg::Place(None, Some(AddrSpace::Global));
    need!(c, u, plain || past => "what passes the caches is a vector to memory, without a gate");
    let guarded = gate.is_some() || scopes.open.iter().any(|(s, _)| s.op() == Op::If);
    let size = to.src()[0].shape().first().map_or(0, |d| d.max());
    let (lo, hi) = to.src()[1].bounds();
    let last = hi.saturating_add(width(to) - 1);
    let inside = guarded || lo >= 0 && last < size;
    need!(c, u, inside =>
        "elements {lo}..={last} by min_max of a buffer of {size}, without a gate");
}

fn wmma<'a>(c: &mut Verifier<'a>, u: &'a UOp) {
    let Arg::Wmma(t) = u.arg() else { return };
    need!(c, u, t.is_sound() => "its fragments do not make matrices of its size");
    if let Some(word) = t.word() {
        let lanes = u.shape();
        for (i, (s, dtype)) in u.src().iter().zip([word, word, t.dtype_out]).enumerate() {
            let fits = s.shape() == lanes && s.dtype() == dtype;
            need!(c, u, fits => "source {i} is {}{}, not {dtype}{lanes}", s.dtype(), s.shape());
        }
        let tile = t.tile().map(|[rows, columns, _]| rows * columns);
        let whole = tile.is_none_or(|n| lanes.max_len() == n);
        need!(c, u, whole => "a unit of tiles multiplies whole ones, not {lanes}");
        return;
    }
    let [of_a, of_b] = t.dtypes_in;
    let wanted = [(&t.a, of_a), (&t.b, of_b), (&t.c, t.dtype_out)];
    for (i, (s, (fragment, dtype))) in u.src().iter().zip(wanted).enumerate() {
        let fragment = Shape::of(&[fragment.elements()]);
        let fits = *s.shape() == fragment && s.dtype() == dtype;
        need!(c, u, fits => "source {i} is {}{}, not {dtype}{fragment}", s.dtype(), s.shape());
    }
}
