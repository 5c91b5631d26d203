//! A linear program as a listing for people, one instruction a line: what the interpreter shows as
//! its source. Values are numbered in order; addresses and literals are written where they are used.

use super::c_plan::splat;
use super::c_types::literal;
use monoglot_uop::linear::address;
use monoglot_uop::{Arg, DType, Op, ProgramInfo, UOp};
use rustc_hash::FxHashMap;
use std::fmt::Write;

/// The listing of a LINEAR program.
pub fn render_linear(program: &UOp, info: &ProgramInfo) -> String {
    let mut out = String::with_capacity(48 * program.src().len());
    let (g, l) = (info.global_size, info.local_size);
    let _ = writeln!(out, "kernel {} threads {} global {g:?} local {l:?}", info.name, info.threads);
    let mut names: FxHashMap<&UOp, u32> = FxHashMap::default();
    let mut indent = 1;
    for u in program.src() {
        let hidden = matches!(u.op(), Op::Const | Op::Sink | Op::Index | Op::Shrink | Op::Stack)
            && (address(u).is_some() || u.op() == Op::Const || splat(u).is_some_and(|s| s.op() == Op::Const));
        if hidden || u.op() == Op::Sink {
            continue;
        }
        if matches!(u.op(), Op::End | Op::EndIf) {
            indent -= 1;
        }
        (0..indent).for_each(|_| out.push_str("  "));
        if !u.op().is_void() {
            let n = names.len() as u32;
            names.insert(u, n);
            let _ = write!(out, "%{n} = ");
        }
        instruction(&mut out, u, &names);
        out.push('\n');
        if matches!(u.op(), Op::Range | Op::If) {
            indent += 1;
        }
    }
    out
}

fn instruction(o: &mut String, u: &UOp, names: &FxHashMap<&UOp, u32>) {
    o.push_str(u.op().name());
    if !u.op().is_void() {
        let _ = write!(o, " {}", u.dtype());
        if !u.shape().is_empty() {
            let _ = write!(o, "{}", u.shape());
        }
    }
    match u.arg() {
        Arg::Buffer(b) => {
            let _ = write!(o, " slot {}", b.slot);
            if let Some(space) = b.addrspace {
                let _ = write!(o, " {space:?}");
            }
            return;
        }
        Arg::Range(id, _) => {
            let _ = write!(o, " r{id}");
        }
        Arg::Text(t) => {
            let _ = write!(o, " {t}");
        }
        Arg::Wmma(t) => {
            let _ = write!(o, " {}", t.name);
        }
        _ => {}
    }
    let skip = if u.op() == Op::End { 1 } else { 0 };
    for (i, s) in u.src().iter().enumerate().skip(skip) {
        o.push_str(if i > skip { ", " } else { " " });
        operand(o, s, names);
    }
}

fn operand(o: &mut String, u: &UOp, names: &FxHashMap<&UOp, u32>) {
    if let Some(n) = names.get(u) {
        let _ = write!(o, "%{n}");
    } else if let Some(a) = address(u) {
        operand(o, a.buffer, names);
        o.push('[');
        operand(o, a.index, names);
        if a.lanes > 0 && u.op() == Op::Shrink {
            let _ = write!(o, " ..{}", a.lanes);
        }
        o.push(']');
    } else if let Some(v) = u.const_value() {
        literal(o, v, u.dtype());
    } else if let Some(s) = splat(u).filter(|s| s.op() == Op::Const) {
        operand(o, s, names);
        let _ = write!(o, "x{}", u.src().len());
    } else if u.dtype() == DType::Void {
        o.push_str(u.op().name());
    } else {
        let _ = write!(o, "{}", u.op().name());
        for s in u.src().iter().filter(|s| s.op() == Op::Const || names.contains_key(s)) {
            o.push(' ');
            operand(o, s, names);
        }
    }
}
