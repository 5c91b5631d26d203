//! A LINEAR program as one C function `void NAME(void *const *bufs, const long long *vars, int tid)`.
//! `bufs` follows the slots of the PARAMs that are storage, in ascending order; `vars` follows
//! `ProgramInfo::vars`.
//!
//! Values used once are written inside the expression that uses them, within the same loop and with
//! no store between; everything else is a variable. A vector of bools is a mask: lanes of 0 and −1 as
//! wide as what was compared, converted to another width where it is used, which costs nothing where
//! masks are registers of their own. REG storage whose offsets are all constants becomes variables.

use super::c_types::{Prelude, literal, scalar, signed};
use monoglot_uop::{AddrSpace, DType, Op, ProgramInfo, Scalar, Target, UOp};
use rustc_hash::FxHashMap;
use std::fmt::Write;

/// Render a LINEAR program for a compiler of GNU C (gcc 12 or later, or clang).
pub fn render_c(program: &UOp, info: &ProgramInfo, _target: &Target) -> String {
    let list = program.src();
    let plan = Plan::new(list);
    let mut r = Renderer { plan, prelude: Prelude::default(), regs: FxHashMap::default(), names: 0 };
    let mut body = String::with_capacity(64 * list.len());
    r.arguments(&mut body, list, info);
    r.find_registers(list);
    // Storage is declared for the whole function: a program may name it in several loops.
    for u in list.iter().filter(|u| u.op() == Op::Buffer) {
        body.push_str("  ");
        r.declare(&mut body, u);
    }
    let mut indent = 1;
    for (i, u) in list.iter().enumerate() {
        r.statement(&mut body, i, u, &mut indent);
    }
    let mut out = r.prelude.text();
    let _ =
        write!(out, "void {}(void *const *bufs, const long long *vars, int tid) {{\n{body}}}\n", info.name);
    out
}

/// How storage is addressed: the PARAM or BUFFER, the element, and the lanes of a vector access.
pub(super) struct Address<'a> {
    pub(super) buffer: &'a UOp,
    pub(super) index: &'a UOp,
    pub(super) lanes: usize,
}

/// The storage behind an address; None for values.
fn buffer_of(u: &UOp) -> Option<&UOp> {
    let mut b = u;
    while b.op() == Op::After {
        b = &b.src()[0];
    }
    (matches!(b.op(), Op::Param | Op::Buffer) && !b.shape().is_empty()).then_some(b)
}

pub(super) fn address(u: &UOp) -> Option<Address<'_>> {
    if !matches!(u.op(), Op::Index | Op::Shrink) || u.src().len() < 2 {
        return None;
    }
    let buffer = buffer_of(&u.src()[0])?;
    let index = match (u.op(), u.src()[1].op()) {
        (Op::Shrink, Op::Stack) => &u.src()[1].src()[0],
        _ => &u.src()[1],
    };
    Some(Address { buffer, index, lanes: lanes(u) })
}

/// Lanes of a value; 0 for a scalar.
pub(super) fn lanes(u: &UOp) -> usize {
    u.shape().first().and_then(|d| d.as_int()).unwrap_or(0) as usize
}

/// The CONST that all sources of a STACK are, or the one node they all are.
pub(super) fn splat(u: &UOp) -> Option<&UOp> {
    let first = u.src().first()?;
    (u.op() == Op::Stack && u.src().iter().all(|s| s == first)).then_some(first)
}

/// A STACK of lanes of at most two vectors of one length: the vectors, and each lane's number.
pub(super) fn gathered(u: &UOp) -> Option<(&UOp, &UOp, Vec<i64>)> {
    if u.op() != Op::Stack || u.src().len() < 2 {
        return None;
    }
    let (mut from, mut picks): (Vec<&UOp>, Vec<i64>) = (Vec::new(), Vec::with_capacity(u.src().len()));
    for s in u.src() {
        let lane =
            if s.op() == Op::Index && s.src().len() == 2 { s.src()[1].as_int()? } else { return None };
        let v = &s.src()[0];
        if buffer_of(v).is_some() || from.first().is_some_and(|f| f.shape() != v.shape()) {
            return None;
        }
        let which = from.iter().position(|f| *f == v).unwrap_or_else(|| {
            from.push(v);
            from.len() - 1
        });
        if which > 1 {
            return None;
        }
        picks.push(lane + (which * lanes(v)) as i64);
    }
    Some((from[0], from[from.len() - 1], picks))
}

/// Visit the values that the text of `u` mentions. Addresses and shapes are not values.
fn operands<'a>(u: &'a UOp, mut f: impl FnMut(&'a UOp)) {
    match u.op() {
        Op::Load | Op::Store => {
            if let Some(a) = address(&u.src()[0]) {
                f(a.index);
            }
            u.src()[1..].iter().for_each(f);
        }
        Op::Stack => match (splat(u), gathered(u)) {
            (Some(s), _) => f(s),
            (_, Some((a, b, _))) => {
                f(a);
                if a != b {
                    f(b);
                }
            }
            _ => u.src().iter().for_each(f),
        },
        Op::Index | Op::Shrink => {
            if address(u).is_none() {
                f(&u.src()[0]);
            }
        }
        Op::Param | Op::Buffer | Op::Const | Op::Special | Op::End | Op::EndIf | Op::Sink | Op::Barrier => {}
        Op::Range | Op::If => f(&u.src()[0]),
        _ => u.src().iter().for_each(f),
    }
}

/// The text of `u` may mention an operand more than once, or needs a name to take a lane of.
fn wants_names(u: &UOp) -> bool {
    let wide = lanes(u) > 0;
    match u.op() {
        Op::Max | Op::TruncDiv | Op::TruncMod | Op::Shl | Op::Shr | Op::Stack | Op::Index | Op::Shrink => {
            true
        }
        Op::Cast => u.src()[0].dtype().is_float() && !u.dtype().is_float(),
        Op::Where => wide,
        Op::MulAcc | Op::Trunc | Op::Sqrt | Op::Exp2 | Op::Log2 | Op::Sin | Op::Pow => wide,
        Op::Load | Op::Store => u.src().len() > 2 && lanes(&u.src()[0]) > 0,
        Op::Idiv | Op::Mod => true,
        _ => false,
    }
}

#[derive(Clone, Default)]
pub(super) struct Item {
    uses: u32,
    /// Written inside its user.
    inline: bool,
    depth: u8,
    /// Where its text stands: its own position, or that of the statement it is inlined into.
    place: u32,
    /// Bytes of a mask's lanes.
    pub(super) mask: u8,
    name: u32,
}

/// What is written where.
struct Plan {
    at: FxHashMap<UOp, u32>,
    items: Vec<Item>,
}

/// Nested expressions stay within this many operators.
const DEPTH: u8 = 5;

impl Plan {
    fn new(list: &[UOp]) -> Plan {
        let at: FxHashMap<UOp, u32> = list.iter().enumerate().map(|(i, u)| (u.clone(), i as u32)).collect();
        let mut items = vec![Item::default(); list.len()];
        // A scope ends with any control; memory may change with any store as well.
        let (mut scope, mut memory) = (Vec::with_capacity(list.len()), Vec::with_capacity(list.len()));
        let (mut s, mut m) = (0u32, 0u32);
        for u in list {
            let control = matches!(u.op(), Op::Range | Op::End | Op::If | Op::EndIf | Op::Barrier);
            s += control as u32;
            m += (control || u.op() == Op::Store) as u32;
            scope.push(s);
            memory.push(m);
        }
        for (i, u) in list.iter().enumerate() {
            items[i].mask = mask_bytes(u, &at, &items);
        }
        for (i, u) in list.iter().enumerate().rev() {
            let effect = u.op().is_void() || matches!(u.op(), Op::Range | Op::Wmma | Op::Custom);
            if !effect && items[i].uses == 0 {
                continue;
            }
            let item = &mut items[i];
            let cheap = u.op() == Op::Const || u.op() == Op::Stack && splat(u).is_some();
            // A user's own position and depth were set when it was visited, as users stand later.
            let user = item.place as usize;
            let movable =
                scope[i] == scope[user] && (u.op() != Op::Load || memory_before(&memory, list, user, i));
            item.inline =
                !effect && (cheap || item.inline && item.uses == 1 && movable && item.depth < DEPTH);
            if !item.inline || effect {
                item.place = i as u32;
                item.depth = 0;
            }
            let (place, depth, named) = (item.place, item.depth, wants_names(u));
            operands(u, |o| {
                if let Some(&k) = at.get(o) {
                    let o = &mut items[k as usize];
                    o.uses += 1;
                    o.inline = !named;
                    o.place = place;
                    o.depth = depth + 1;
                }
            });
        }
        Plan { at, items }
    }
}

/// Whether nothing is stored between the load at `i` and the statement at `user`, which itself may be a store.
fn memory_before(memory: &[u32], list: &[UOp], user: usize, i: usize) -> bool {
    memory[i] + (list[user].op() == Op::Store) as u32 == memory[user]
}

/// Width of the lanes of a vector of bools.
fn mask_bytes(u: &UOp, at: &FxHashMap<UOp, u32>, items: &[Item]) -> u8 {
    if u.dtype() != DType::Bool || u.shape().is_empty() {
        return 0;
    }
    let of = |s: &UOp| at.get(s).map_or(0, |&k| items[k as usize].mask);
    match u.op() {
        _ if (u.op().is_comparison() || u.op() == Op::Cast) && u.src()[0].dtype() != DType::Bool => {
            u.src()[0].dtype().bytes() as u8
        }
        Op::Where => of(&u.src()[1]).max(of(&u.src()[2])).max(1),
        Op::Load | Op::Stack | Op::Bitcast => match gathered(u) {
            Some((a, b, _)) => of(a).max(of(b)).max(1),
            None => 1,
        },
        _ => u.src().iter().map(of).max().unwrap_or(1).max(1),
    }
}

/// A REG or LOCAL buffer in C.
#[derive(Clone, Copy)]
pub(super) enum Registers {
    /// One variable for every run of this many elements (1: scalars).
    Variables(usize),
    /// An array.
    Array,
}

pub(super) struct Renderer {
    plan: Plan,
    pub(super) prelude: Prelude,
    regs: FxHashMap<UOp, Registers>,
    names: u32,
}

impl Renderer {
    fn arguments(&mut self, o: &mut String, list: &[UOp], info: &ProgramInfo) {
        let mut slots: Vec<usize> = info.outs.iter().chain(&info.ins).copied().collect();
        let params = || list.iter().filter(|u| u.op() == Op::Param);
        for p in params().filter(|p| !p.shape().is_empty()) {
            slots.extend(p.buffer_arg().map(|b| b.slot as usize));
        }
        slots.sort_unstable();
        slots.dedup();
        for p in params() {
            let Some(b) = p.buffer_arg() else { continue };
            let (slot, c) = (b.slot as usize, scalar(b.dtype));
            let _ = if p.shape().is_empty() {
                let k = info.vars.iter().position(|&v| v == slot).unwrap_or(0);
                writeln!(o, "  const {c} n{slot} = ({c})vars[{k}];")
            } else {
                let k = slots.iter().position(|&s| s == slot).unwrap_or(0);
                writeln!(o, "  {c} *p{slot} = ({c} *)bufs[{k}];")
            };
        }
    }

    /// Decide which REG buffers become variables: those whose accesses are constant and tile them.
    fn find_registers(&mut self, list: &[UOp]) {
        for u in list {
            if u.op() == Op::Buffer {
                let rows = u.shape().len() > 1;
                let reg = u.buffer_arg().and_then(|b| b.addrspace) == Some(AddrSpace::Reg);
                let kind =
                    if reg { Registers::Variables(if rows { 1 } else { 0 }) } else { Registers::Array };
                self.regs.insert(u.clone(), kind);
            }
            if !matches!(u.op(), Op::Load | Op::Store) {
                continue;
            }
            let Some(a) = address(&u.src()[0]) else { continue };
            let Some(Registers::Variables(run)) = self.regs.get(a.buffer).copied() else { continue };
            let rows = a.buffer.shape().len() > 1;
            let want = if rows { 1 } else { a.lanes.max(1) };
            let masked = u.src().get(2).is_some_and(|g| lanes(g) > 0);
            let fits = !masked
                && a.index.as_int().is_some_and(|i| i % want as i64 == 0)
                && (run == 0 || run == want);
            let kind = if fits { Registers::Variables(want) } else { Registers::Array };
            self.regs.insert(a.buffer.clone(), kind);
        }
    }

    fn statement(&mut self, o: &mut String, i: usize, u: &UOp, indent: &mut usize) {
        let line = |o: &mut String, n: usize| (0..n).for_each(|_| o.push_str("  "));
        match u.op() {
            Op::Range => {
                let (c, id) = (scalar(u.dtype()), u.range_arg().map_or(0, |r| r.0));
                line(o, *indent);
                let _ = write!(o, "for ({c} r{id} = 0; r{id} < ");
                self.value(o, &u.src()[0]);
                let _ = writeln!(o, "; r{id}++) {{");
                *indent += 1;
            }
            Op::If => {
                line(o, *indent);
                o.push_str("if (");
                self.value(o, &u.src()[0]);
                o.push_str(") {\n");
                *indent += 1;
            }
            Op::End | Op::EndIf => {
                *indent = indent.saturating_sub(1).max(1);
                line(o, *indent);
                o.push_str("}\n");
            }
            Op::Store => {
                line(o, *indent);
                self.store(o, u);
                o.push_str(";\n");
            }
            // The threads of a CPU kernel share nothing that would need a barrier.
            Op::Buffer | Op::Barrier => {}
            _ => {
                let item = &self.plan.items[i];
                let named = matches!(u.op(), Op::Param | Op::Const | Op::Special | Op::Sink | Op::Linear);
                if named || item.inline || item.uses == 0 {
                    return;
                }
                self.names += 1;
                line(o, *indent);
                self.type_of(o, u);
                let _ = write!(o, " v{} = ", self.names);
                self.expression(o, u);
                o.push_str(";\n");
                self.plan.items[i].name = self.names;
            }
        }
    }

    /// Bytes of the lanes of a mask.
    pub(super) fn mask(&self, u: &UOp) -> usize {
        let known = self.plan.at.get(u).map_or(1, |&k| self.plan.items[k as usize].mask);
        known.max(1) as usize
    }

    /// The C type of a value.
    pub(super) fn type_of(&mut self, o: &mut String, u: &UOp) {
        match (lanes(u), u.dtype()) {
            (0, d) => o.push_str(scalar(d)),
            (n, DType::Bool) => {
                let m = signed(self.mask(u));
                self.prelude.vector(o, m, n);
            }
            (n, d) => self.prelude.vector(o, scalar(d), n),
        }
    }

    /// A value where it is used: a literal, a name, or its expression.
    pub(super) fn value(&mut self, o: &mut String, u: &UOp) {
        match u.op() {
            Op::Const => return literal(o, u.const_value().unwrap_or(Scalar::Int(0)), u.dtype()),
            Op::Param => {
                let _ = write!(o, "n{}", u.buffer_arg().map_or(0, |b| b.slot));
                return;
            }
            Op::Range => {
                let _ = write!(o, "r{}", u.range_arg().map_or(0, |r| r.0));
                return;
            }
            Op::Special => {
                let text = match u.arg() {
                    monoglot_uop::Arg::Text(t) if &**t == "tid" => "tid",
                    _ => "0",
                };
                o.push_str(text);
                return;
            }
            _ => {}
        }
        match self.plan.at.get(u).map_or(0, |&k| self.plan.items[k as usize].name) {
            0 => self.expression(o, u),
            name => {
                let _ = write!(o, "v{name}");
            }
        }
    }

    fn declare(&mut self, o: &mut String, u: &UOp) {
        let Some(b) = u.buffer_arg() else { return };
        let n = u.shape().first().map_or(0, |d| d.max()) as usize;
        let width = if u.shape().len() > 1 { u.shape()[1].max() as usize } else { 0 };
        let local = b.addrspace == Some(AddrSpace::Local);
        let kind = self.regs.get(u).copied().unwrap_or(Registers::Array);
        if local && n * b.dtype.bytes() > 16 << 10 {
            o.push_str("static _Thread_local ");
        }
        let run = match kind {
            Registers::Variables(run) if width == 0 && run > 1 => run,
            _ => width,
        };
        let lane = if b.dtype == DType::Bool && run > 0 { "i8" } else { scalar(b.dtype) };
        match run {
            0 => o.push_str(lane),
            w => self.prelude.vector(o, lane, w),
        }
        let prefix = buffer_letter(b.addrspace);
        match kind {
            Registers::Variables(0) => {
                let _ = write!(o, " {prefix}{}_unused", b.slot);
            }
            Registers::Variables(run) => {
                for k in 0..n / run {
                    let _ = write!(o, "{} {prefix}{}_{k}", if k > 0 { "," } else { "" }, b.slot);
                }
            }
            Registers::Array => {
                let _ = write!(o, " {prefix}{}[{}]", b.slot, n.max(1));
                o.push_str(if width == 0 { " __attribute__((aligned(64)))" } else { "" });
            }
        }
        o.push_str(";\n");
    }

    /// The lvalue that an address names, of the type that memory has.
    pub(super) fn place(&mut self, o: &mut String, a: &Address) {
        let Some(b) = a.buffer.buffer_arg() else { return };
        let letter = if a.buffer.op() == Op::Param { 'p' } else { buffer_letter(b.addrspace) };
        if let Some(Registers::Variables(run)) = self.regs.get(a.buffer) {
            let k = a.index.as_int().unwrap_or(0) as usize / (*run).max(1);
            let _ = write!(o, "{letter}{}_{k}", b.slot);
        } else if a.lanes == 0 || a.buffer.shape().len() > 1 {
            let _ = write!(o, "{letter}{}[", b.slot);
            self.value(o, a.index);
            o.push(']');
        } else {
            o.push_str("*(");
            self.prelude.vector(o, scalar(b.dtype), a.lanes);
            let _ = write!(o, "m *)({letter}{} + ", b.slot);
            self.value(o, a.index);
            o.push(')');
        }
    }

    /// The address of an element in memory.
    pub(super) fn pointer(&mut self, o: &mut String, a: &Address) {
        let Some(b) = a.buffer.buffer_arg() else { return };
        let letter = if a.buffer.op() == Op::Param { 'p' } else { buffer_letter(b.addrspace) };
        let _ = write!(o, "{letter}{} + ", b.slot);
        self.value(o, a.index);
    }

    /// Whether the storage holds vectors of bools as masks rather than as bytes 0 and 1.
    pub(super) fn holds_masks(&self, a: &Address) -> bool {
        a.lanes > 0
            && (a.buffer.shape().len() > 1
                || matches!(self.regs.get(a.buffer), Some(Registers::Variables(_))))
    }
}

fn buffer_letter(space: Option<AddrSpace>) -> char {
    match space {
        Some(AddrSpace::Local) => 'l',
        _ => 'a',
    }
}
