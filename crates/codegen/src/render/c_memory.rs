//! Storage in C: declarations of REG and LOCAL buffers, loads and stores and their gates. Vectors lie
//! anywhere in memory that their elements may; a vector of bools is bytes 0 and 1 there, and a mask in REG.

use super::c::Renderer;
use super::c_expr::{Kind, NONE};
use super::c_types::scalar;
use monoglot_uop::linear::{Address, address, lanes};
use monoglot_uop::{AddrSpace, DType, Op, UOp};
use std::fmt::Write;

/// A REG or LOCAL buffer in C.
#[derive(Clone, Copy)]
pub(super) enum Registers {
    /// One variable for every run of this many elements (1: scalars, or vectors of a buffer of vectors;
    /// 0: nothing has been seen yet).
    Variables(usize),
    /// An array.
    Array,
}

/// LOCAL storage larger than this is not on the stack, which may be a user's thread's.
const STACK: usize = 16 << 10;

impl Renderer {
    /// Decide which REG buffers become variables: those whose accesses are constant and tile them.
    pub(super) fn find_registers(&mut self, list: &[UOp]) {
        for u in list {
            if u.op() == Op::Buffer {
                let reg = u.buffer_arg().and_then(|b| b.addrspace) == Some(AddrSpace::Reg);
                let kind = if reg {
                    Registers::Variables(0)
                } else {
                    Registers::Array
                };
                self.regs.insert(u.clone(), kind);
            }
            if !matches!(u.op(), Op::Load | Op::Store) {
                continue;
            }
            let Some(a) = address(&u.src()[0]) else {
                continue;
            };
            let Some(Registers::Variables(run)) = self.regs.get(a.buffer).copied() else {
                continue;
            };
            let want = if a.rows() { 1 } else { a.lanes.max(1) };
            let masked = u.src().get(2).is_some_and(|g| lanes(g) > 0);
            let tiles =
                a.index.as_int().is_some_and(|i| i % want as i64 == 0) && (run == 0 || run == want);
            let kind = if tiles && !masked {
                Registers::Variables(want)
            } else {
                Registers::Array
            };
            self.regs.insert(a.buffer.clone(), kind);
        }
    }

    pub(super) fn declare(&mut self, o: &mut String, u: &UOp) {
        let Some(b) = u.buffer_arg() else { return };
        let n = u.shape().first().map_or(0, |d| d.max()) as usize;
        let width = u.shape().get(1).map_or(0, |d| d.max()) as usize;
        let kind = self.regs.get(u).copied().unwrap_or(Registers::Array);
        if b.addrspace == Some(AddrSpace::Local) && n * b.dtype.bytes() > STACK {
            o.push_str("static _Thread_local ");
        }
        let run = match kind {
            Registers::Variables(run) if width == 0 && run > 1 => run,
            _ => width,
        };
        let lane = if b.dtype == DType::Bool && run > 0 {
            "i8"
        } else {
            scalar(b.dtype)
        };
        self.type_name(o, lane, run);
        let name = letter(u);
        match kind {
            Registers::Variables(run) => {
                for k in 0..n / run.max(1) {
                    let _ = write!(o, "{} {name}{}_{k}", if k > 0 { "," } else { "" }, b.slot);
                }
            }
            Registers::Array => {
                let aligned = if width == 0 {
                    " __attribute__((aligned(64)))"
                } else {
                    ""
                };
                let _ = write!(o, " {name}{}[{}]{aligned}", b.slot, n.max(1));
            }
        }
        o.push_str(";\n");
    }

    /// The lvalue that an address names, of the type that memory has.
    fn place(&mut self, o: &mut String, a: &Address) {
        let slot = a.buffer.buffer_arg().map_or(0, |b| b.slot);
        if let Some(Registers::Variables(run)) = self.regs.get(a.buffer) {
            let k = a.index.as_int().unwrap_or(0) as usize / (*run).max(1);
            let _ = write!(o, "{}{slot}_{k}", letter(a.buffer));
        } else if a.lanes == 0 || a.rows() {
            let _ = write!(o, "{}{slot}[", letter(a.buffer));
            self.value(o, a.index);
            o.push(']');
        } else {
            o.push_str("*(");
            self.prelude.vector(o, scalar(a.buffer.dtype()), a.lanes);
            o.push_str("m *)(");
            self.pointer(o, a);
            o.push(')');
        }
    }

    fn pointer(&mut self, o: &mut String, a: &Address) {
        let _ = write!(
            o,
            "{}{} + ",
            letter(a.buffer),
            a.buffer.buffer_arg().map_or(0, |b| b.slot)
        );
        self.value(o, a.index);
    }

    /// Whether vectors of bools lie there as masks.
    fn holds_masks(&self, a: &Address) -> bool {
        a.lanes > 0
            && (a.rows() || matches!(self.regs.get(a.buffer), Some(Registers::Variables(_))))
    }

    /// `address = value`, where the gate holds.
    pub(super) fn store(&mut self, o: &mut String, u: &UOp) {
        let (Some(a), value) = (address(&u.src()[0]), &u.src()[1]) else {
            return;
        };
        let k = Kind::new(a.lanes, a.buffer.dtype());
        let bytes = k.d == DType::Bool && k.n > 0 && !self.holds_masks(&a);
        let gate = u.src().get(2);
        let masked = gate.is_some_and(|g| lanes(g) > 0);
        if masked {
            self.prelude.masked(o, true, k.d.bytes(), k.n);
            o.push('(');
            self.pointer(o, &a);
            self.put(o, k, ", $0, ", &[gate.unwrap_or(value)]);
        } else {
            if let Some(g) = gate {
                o.push_str("if (");
                self.value(o, g);
                o.push_str(") ");
            }
            self.place(o, &a);
            o.push_str(" = ");
        }
        self.put(o, k, if bytes { "($B)($0 & 1)" } else { "$0" }, &[value]);
        o.push_str(if masked { ")" } else { "" });
    }

    pub(super) fn load(&mut self, o: &mut String, u: &UOp, k: Kind) {
        let Some(a) = address(&u.src()[0]) else {
            return;
        };
        let zero = UOp::constant(k.d.zero(), k.d);
        let alt = u.src().get(1).unwrap_or(&zero);
        match u.src().get(2) {
            Some(g) if lanes(g) > 0 => {
                // A bool is true where its byte is not 0.
                let bool = k.d == DType::Bool;
                self.put(o, k, if bool { "($V)(" } else { "($V)" }, NONE);
                self.prelude.masked(o, false, k.d.bytes(), k.n);
                o.push('(');
                self.pointer(o, &a);
                self.put(o, k, ", $0, $1)", &[g, alt]);
                o.push_str(if bool { " != 0)" } else { "" });
            }
            Some(g) => {
                o.push('(');
                self.value(o, g);
                self.put(o, k, if k.n > 0 { " ? ($V)" } else { " ? " }, NONE);
                self.fetch(o, &a, k);
                self.put(o, k, " : $0)", &[alt]);
            }
            None => self.fetch(o, &a, k),
        }
    }

    fn fetch(&mut self, o: &mut String, a: &Address, k: Kind) {
        if k.d != DType::Bool || self.holds_masks(a) {
            return self.place(o, a);
        }
        // Bytes of a user's file may be other than 0 and 1.
        self.put(o, k, if k.n > 0 { "($V)(" } else { "(" }, NONE);
        self.place(o, a);
        o.push_str(" != 0)");
    }
}

/// What the name of a buffer starts with: parameters, LOCAL arrays, accumulators.
fn letter(buffer: &UOp) -> char {
    match buffer.buffer_arg().and_then(|b| b.addrspace) {
        _ if buffer.op() == Op::Param => 'p',
        Some(AddrSpace::Local) => 'l',
        _ => 'a',
    }
}
