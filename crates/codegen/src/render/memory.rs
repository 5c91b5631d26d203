//! Storage: declarations of REG and LOCAL buffers, loads and stores and their gates. Vectors lie
//! anywhere in memory that their elements may; a vector of bools, which only REG holds, is a mask
//! of bytes there. Flows in: a BUFFER, LOAD or STORE; flows out: its text. Invariant: an access
//! happens only where its gate holds.

use super::language::scalar;
use super::renderer::{NONE, Renderer, ValueType};
use monoglot_uop::linear::{Address, address, lanes};
use monoglot_uop::{AddrSpace, Arg, DType, Op, Result, UOp};
use std::fmt::Write;

/// A register: REG storage of one element, or of one vector.
fn is_register(buffer: &UOp) -> bool {
    let reg = buffer.buffer_arg().and_then(|b| b.addrspace) == Some(AddrSpace::Reg);
    reg && buffer.shape().first().is_some_and(|n| n.is(1))
}

impl Renderer<'_> {
    /// A BUFFER as a variable or an array. What is not on the stack is named by a pointer: where a thread's own
    /// storage lies a compiler finds out by a call, which it would make wherever that is named, in loops too.
    pub(super) fn declare(&mut self, o: &mut String, u: &UOp, indent: &str) {
        let Some(b) = u.buffer_arg() else { return };
        let n = u.shape().first().map_or(0, |d| d.max()) as usize;
        let width = u.shape().get(1).map_or(0, |d| d.max()) as usize;
        let before = match b.addrspace {
            Some(AddrSpace::Local) => (self.language.local)(n * b.dtype.bytes()),
            _ => "",
        };
        let lane = if b.dtype == DType::Bool && width > 0 {
            "i8"
        } else {
            scalar(b.dtype)
        };
        let name = format!("{}{}", letter(u), b.slot);
        let array = if before.is_empty() { "" } else { "_" };
        let _ = write!(o, "{indent}{before}");
        self.type_name(o, lane, width);
        let _ = write!(o, " {name}{array}");
        if !is_register(u) {
            let aligned = if width == 0 {
                " __attribute__((aligned(64)))"
            } else {
                ""
            };
            let _ = write!(o, "[{}]{aligned}", n.max(1));
        }
        o.push_str(";\n");
        if !before.is_empty() {
            o.push_str(indent);
            self.type_name(o, lane, width);
            let any = self.language.any_pointer.replace('$', &name);
            let _ = writeln!(o, " *{name} = {name}_;\n{indent}{any};");
        }
    }

    /// The lvalue that an address names, of the type that memory has.
    fn place(&mut self, o: &mut String, a: &Address) -> Result<()> {
        if a.lanes == 0 || a.rows() {
            let slot = a.buffer.buffer_arg().map_or(0, |b| b.slot);
            let _ = write!(o, "{}{slot}", letter(a.buffer));
            if !is_register(a.buffer) {
                o.push('[');
                self.value(o, a.index)?;
                o.push(']');
            }
        } else {
            o.push_str("*(");
            self.prelude.vector(o, scalar(a.buffer.dtype()), a.lanes);
            o.push_str("m *)(");
            self.pointer(o, a)?;
            o.push(')');
        }
        Ok(())
    }

    fn pointer(&mut self, o: &mut String, a: &Address) -> Result<()> {
        let letter = letter(a.buffer);
        let slot = a.buffer.buffer_arg().map_or(0, |b| b.slot);
        if is_register(a.buffer) {
            let _ = write!(o, "&{letter}{slot}");
            return Ok(());
        }
        let _ = write!(o, "{letter}{slot} + ");
        self.value(o, a.index)
    }

    /// `address = value`, where the gate holds.
    pub(super) fn store(&mut self, o: &mut String, u: &UOp) -> Result<()> {
        let a = address(&u.src()[0]).ok_or_else(|| self.unsupported(u))?;
        let value = &u.src()[1];
        let k = ValueType::new(a.lanes, a.buffer.dtype());
        match u.src().get(2) {
            Some(gate) if lanes(gate) > 0 => {
                self.prelude.masked(o, true, k.d.bytes(), k.n);
                o.push('(');
                self.pointer(o, &a)?;
                return self.put(o, k, ", $0, $1)", &[gate, value]);
            }
            Some(gate) => {
                o.push_str("if (");
                self.value(o, gate)?;
                o.push_str(") ");
            }
            None if *u.arg() != Arg::None => {
                self.prelude.streamed(o, scalar(k.d), k.n, k.d.bytes());
                let slot = a.buffer.buffer_arg().map_or(0, |b| b.slot);
                let _ = write!(o, "(p{slot}, ");
                self.pointer(o, &a)?;
                return self.put(o, k, ", $0)", &[value]);
            }
            None => {}
        }
        self.place(o, &a)?;
        o.push_str(" = ");
        self.put(o, k, "$0", &[value])
    }

    /// `address += value` at once, where the gate holds: a float by trying until nobody has come between.
    pub(super) fn atomic(&mut self, o: &mut String, u: &UOp) -> Result<()> {
        let a = address(&u.src()[0]).ok_or_else(|| self.unsupported(u))?;
        let k = ValueType::new(a.lanes, a.buffer.dtype());
        if k.n > 0 || self.language.atomics.is_none() {
            return Err(self.unsupported(u));
        }
        if let Some(gate) = u.src().get(2) {
            o.push_str("if (");
            self.value(o, gate)?;
            o.push_str(") ");
        }
        let (whole, float) = self.language.atomics.unwrap_or_default();
        let template = if k.d.is_float() { float } else { whole };
        let mut place = String::new();
        self.pointer(&mut place, &a)?;
        let mut value = String::new();
        self.put(&mut value, k, "$0", &[&u.src()[1]])?;
        let text = template.replace("TYPE", scalar(k.d));
        o.push_str(&text.replace("PLACE", &place).replace("VALUE", &value));
        Ok(())
    }

    /// What asks for the line of a LOAD whose value is not used.
    pub(super) fn prefetch(&mut self, o: &mut String, u: &UOp) -> Result<()> {
        let a = address(&u.src()[0]).ok_or_else(|| self.unsupported(u))?;
        if let Some(gate) = u.src().get(2) {
            o.push_str("if (");
            self.value(o, gate)?;
            o.push_str(") ");
        }
        o.push_str("__builtin_prefetch(");
        self.pointer(o, &a)?;
        // To be read, and to the second cache, as machine code of our own asks.
        o.push_str(", 0, 2)");
        Ok(())
    }

    pub(super) fn load(&mut self, o: &mut String, u: &UOp, k: ValueType) -> Result<()> {
        let a = address(&u.src()[0]).ok_or_else(|| self.unsupported(u))?;
        let zero = UOp::constant(k.d.zero(), k.d);
        let alt = u.src().get(1).unwrap_or(&zero);
        match u.src().get(2) {
            Some(g) if lanes(g) > 0 => {
                self.put(o, k, "($V)", NONE)?;
                self.prelude.masked(o, false, k.d.bytes(), k.n);
                o.push('(');
                self.pointer(o, &a)?;
                self.put(o, k, ", $0, $1)", &[g, alt])
            }
            Some(g) => {
                o.push('(');
                self.value(o, g)?;
                self.put(o, k, if k.n > 0 { " ? ($V)" } else { " ? " }, NONE)?;
                self.place(o, &a)?;
                self.put(o, k, " : $0)", &[alt])
            }
            None => self.place(o, &a),
        }
    }
}

/// What the name of a buffer starts with: parameters, LOCAL arrays, registers.
fn letter(buffer: &UOp) -> char {
    match buffer.buffer_arg().and_then(|b| b.addrspace) {
        _ if buffer.op() == Op::Param => 'p',
        Some(AddrSpace::Local) => 'l',
        _ => 'a',
    }
}
