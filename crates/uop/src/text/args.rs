//! The syntax of args, both ways: what stands in the brackets after an op.
//!
//! Flows in: an arg, or the values read between brackets; flows out: the other. Every op has a usual
//! kind of arg, which needs no mark; any other kind on it is written `[kind: ...]`.

use super::value::{Literal, Read, Value, literal};
use crate::arg::{
    AddrSpace, Arg, AxisType, BufferArg, CallInfo, KernelInfo, Opt, OptOp, ProgramInfo, ReduceOp, TcInfo,
};
use crate::device::Device;
use crate::dtype::DType;
use crate::op::Op;
use std::fmt::Write;
use std::sync::Arc;

/// Write to a String, which cannot fail.
macro_rules! put {
    ($out:expr, $($format:tt)*) => {{
        let _ = write!($out, $($format)*);
    }};
}

/// The kind of arg that this one is.
fn kind(arg: &Arg) -> &'static str {
    match arg {
        Arg::None => "none",
        Arg::Const(..) => "const",
        Arg::DType(_) => "dtype",
        Arg::Buffer(_) => "buffer",
        Arg::Axes(_) => "axes",
        Arg::Flags(_) => "flags",
        Arg::Reduce(..) => "reduce",
        Arg::Range(..) => "range",
        Arg::Fill(_) => "fill",
        Arg::Place(..) => "place",
        Arg::Element(_) => "element",
        Arg::Text(_) => "text",
        Arg::Bytes(_) => "bytes",
        Arg::Kernel(_) => "kernel",
        Arg::Program(_) => "program",
        Arg::Call(_) => "call",
        Arg::Wmma(_) => "wmma",
    }
}

/// The kind of arg that an op has by its table row.
pub(super) fn usual(op: Op) -> &'static str {
    match op {
        Op::Const => "const",
        Op::Param | Op::Buffer => "buffer",
        Op::Permute | Op::Replicated => "axes",
        Op::Flip => "flags",
        Op::Reduce => "reduce",
        Op::Range => "range",
        Op::Pad => "fill",
        Op::Load | Op::Copy | Op::GetAddr => "place",
        Op::GetTuple => "element",
        Op::Special | Op::Custom | Op::CustomFunction | Op::Ins | Op::Source => "text",
        Op::Binary => "bytes",
        Op::Sink => "kernel",
        Op::Program => "program",
        Op::Call => "call",
        Op::Wmma => "wmma",
        _ => "dtype",
    }
}

/// Write the brackets of an arg; `number` is what a buffer's slot prints as.
pub(super) fn write(out: &mut String, op: Op, arg: &Arg, dtype: DType, number: u64) {
    if *arg == Arg::None {
        return;
    }
    out.push('[');
    if kind(arg) != usual(op) {
        put!(out, "{}: ", kind(arg));
    }
    let start = out.len();
    match arg {
        Arg::None => {}
        Arg::Const(v, d) => out.push_str(&literal(*v, *d, None)),
        Arg::DType(d) => out.push_str(d.name()),
        Arg::Buffer(b) => buffer(out, b, number),
        Arg::Axes(axes) => join(out, axes.iter()),
        Arg::Flags(bits) => join(out, (0..64).filter(|k| bits >> k & 1 == 1)),
        Arg::Reduce(r, axes) => {
            out.push_str(r.op().name());
            axes.iter().for_each(|a| item(out, start, a));
        }
        Arg::Range(id, axis) => put!(out, "{id}, {}", axis.name()),
        Arg::Fill(v) => out.push_str(&literal(*v, dtype, Some(dtype))),
        Arg::Place(device, space) => {
            device.iter().for_each(|d| item(out, start, device_text(*d)));
            space.iter().for_each(|s| item(out, start, s.name()));
        }
        Arg::Element(i) => put!(out, "{i}"),
        Arg::Text(t) if t.contains('\n') => {
            for line in t.split('\n') {
                put!(out, "\n  |{}{line}", if line.is_empty() { "" } else { " " });
            }
            out.push('\n');
        }
        Arg::Text(t) => put!(out, "{t:?}"),
        Arg::Bytes(b) => {
            out.push_str("x\"");
            b.iter().for_each(|b| put!(out, "{b:02x}"));
            out.push('"');
        }
        Arg::Kernel(k) => {
            put!(out, "{:?}", k.name);
            list(out, "opts", &k.opts);
            if k.no_locals {
                out.push_str(", no_locals");
            }
        }
        Arg::Program(p) => {
            put!(out, "{:?}, target={:?}", p.name, p.target);
            list(out, "global", &p.global_size);
            list(out, "local", &p.local_size);
            put!(out, ", threads={}", p.threads);
            list(out, "outs", &p.outs);
            list(out, "ins", &p.ins);
            list(out, "vars", &p.vars);
            put!(out, ", flops={}, bytes={}", p.flops, p.bytes);
        }
        Arg::Call(c) => {
            item(out, start, "outs=[");
            join(out, c.outs.iter());
            out.push_str("], ins=[");
            join(out, c.ins.iter());
            out.push(']');
        }
        Arg::Wmma(w) => {
            put!(out, "{:?}", w.name);
            list(out, "dims", &w.dims);
            put!(out, ", threads={}, in={}, out={}", w.threads, w.dtype_in, w.dtype_out);
        }
    }
    out.push(']');
}

fn buffer(out: &mut String, b: &BufferArg, number: u64) {
    put!(out, "{number}");
    if b.version != 0 {
        put!(out, ".{}", b.version);
    }
    put!(out, ", {}", b.dtype);
    if let Some(d) = b.device {
        put!(out, ", {}", device_text(d));
    }
    // GLOBAL goes without saying on a device, and nothing goes without saying elsewhere.
    match (b.device, b.addrspace) {
        (Some(_), Some(AddrSpace::Global)) | (None, None) => {}
        (_, Some(s)) => put!(out, ", {}", s.name()),
        (Some(_), None) => out.push_str(", NOWHERE"),
    }
}

fn device_text(d: Device) -> String {
    let name = d.name();
    let plain = name.split(':').all(|part| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    });
    let word = name.starts_with(|c: char| c.is_ascii_uppercase());
    let taken = name == "NOWHERE" || AddrSpace::ALL.iter().any(|s| s.name() == name);
    if plain && word && !taken { name.to_string() } else { format!("{name:?}") }
}

fn item(out: &mut String, start: usize, value: impl std::fmt::Display) {
    let comma = if out.len() > start { ", " } else { "" };
    put!(out, "{comma}{value}");
}

fn join(out: &mut String, items: impl Iterator<Item = impl std::fmt::Display>) {
    let start = out.len();
    items.for_each(|i| item(out, start, i));
}

fn list(out: &mut String, key: &str, items: &[impl std::fmt::Display]) {
    if !items.is_empty() {
        put!(out, ", {key}=[");
        join(out, items.iter());
        out.push(']');
    }
}

fn axis_type(v: &Value) -> Read<AxisType> {
    let word = v.word()?;
    let found = AxisType::ALL.iter().copied().find(|t| t.name() == word);
    found.ok_or_else(|| format!("there is no axis type {word}"))
}

fn at<'a, 'b>(values: &'a [Value<'b>], i: usize) -> Read<&'a Value<'b>> {
    values.get(i).ok_or_else(|| format!("the arg has {} parts, too few", values.len()))
}

fn opt(v: &Value) -> Read<Opt> {
    let Value::Apply(name, a) = v else { return Err("an Opt was expected, such as SWAP(0, 1)".into()) };
    let axis = at(a, 0)?.int()?;
    let top = a.get(3).is_some_and(|v| *v == Value::Word("top"));
    let op = match *name {
        "SPLIT" => OptOp::Split { factor: at(a, 1)?.int()?, target: axis_type(at(a, 2)?)?, top },
        "PADTO" => OptOp::PadTo { multiple: at(a, 1)?.int()? },
        "SWAP" => OptOp::Swap { with: at(a, 1)?.int()? },
        "NOLOCALS" => OptOp::NoLocals,
        "TC" => OptOp::Tc { unit: at(a, 1)?.int()? },
        name => return Err(format!("there is no OptOp {name}")),
    };
    Ok(Opt { op, axis })
}

/// The arg that these values are on `op`. `kind` is given where it is not the usual one; `dtype` is the
/// first source's; `slot` gives a GLOBAL buffer its slot by its number in the text.
pub(super) fn read(
    op: Op,
    kind: Option<&str>,
    values: &[Value],
    dtype: Option<DType>,
    slot: &mut dyn FnMut(u64) -> u64,
) -> Read<Arg> {
    let ints = || values.iter().map(Value::int).collect::<Read<Vec<u8>>>();
    let named = |key: &str| {
        values.iter().find_map(|v| match v {
            Value::Named(k, v) if *k == key => Some(&**v),
            _ => None,
        })
    };
    let list = |key: &str| named(key).map_or(Ok(Vec::new()), Value::list::<usize>);
    let number = |key: &str| named(key).map_or(Ok(0), Value::int::<u64>);
    let one = || at(values, 0);
    Ok(match kind.unwrap_or(usual(op)) {
        "const" => match one()? {
            Value::Literal(l) => l.value(None).map(|(v, d)| Arg::Const(v, d))?,
            _ => return Err("a constant was expected".into()),
        },
        "dtype" => Arg::DType(one()?.dtype()?),
        "buffer" => Arg::Buffer(read_buffer(op, values, slot)?),
        "axes" => Arg::Axes(ints()?.into()),
        "flags" => match ints()?.iter().try_fold(0u64, |f, &k| Some(f | 1u64.checked_shl(k.into())?)) {
            Some(bits) => Arg::Flags(bits),
            None => return Err("an axis beyond 63".into()),
        },
        "reduce" => {
            let word = one()?.word()?;
            let found = ReduceOp::ALL.iter().copied().find(|r| r.op().name() == word);
            let op = found.ok_or_else(|| format!("REDUCE has no operator {word}"))?;
            Arg::Reduce(op, values[1..].iter().map(Value::int).collect::<Read<Vec<u8>>>()?.into())
        }
        "range" => Arg::Range(one()?.int()?, axis_type(at(values, 1)?)?),
        "fill" => match one()? {
            Value::Literal(l) => Arg::Fill(l.value(dtype)?.0),
            _ => return Err("a constant was expected".into()),
        },
        "place" => {
            let space = values.last().and_then(Value::space);
            match values.len() - space.is_some() as usize {
                0 => Arg::Place(None, space),
                1 => Arg::Place(Some(one()?.device()?), space),
                _ => return Err("a device and an address space were expected".into()),
            }
        }
        "element" => Arg::Element(one()?.int()?),
        "text" => Arg::Text(one()?.text()?.into()),
        "bytes" => match one()? {
            Value::Bytes(b) => Arg::Bytes(b[..].into()),
            _ => return Err("bytes were expected, such as x\"00ff\"".into()),
        },
        "kernel" => {
            let opts = match named("opts") {
                Some(Value::List(items)) => items.iter().map(opt).collect::<Read<Vec<Opt>>>()?,
                Some(_) => return Err("a list of Opts was expected".into()),
                None => Vec::new(),
            };
            let no_locals = values.contains(&Value::Word("no_locals"));
            Arg::Kernel(Arc::new(KernelInfo { name: one()?.text()?, opts, no_locals }))
        }
        "program" => Arg::Program(Arc::new(ProgramInfo {
            name: one()?.text()?,
            target: named("target").map_or(Ok(String::new()), Value::text)?,
            global_size: named("global").map_or(Ok([1; 3]), Value::three)?,
            local_size: named("local").map_or(Ok([1; 3]), Value::three)?,
            threads: named("threads").map_or(Ok(1), Value::int)?,
            outs: list("outs")?,
            ins: list("ins")?,
            vars: list("vars")?,
            flops: number("flops")?,
            bytes: number("bytes")?,
        })),
        "call" => Arg::Call(Arc::new(CallInfo { outs: list("outs")?, ins: list("ins")? })),
        "wmma" => Arg::Wmma(Arc::new(TcInfo {
            name: one()?.text()?,
            dims: named("dims").ok_or("dims are missing")?.three()?,
            threads: named("threads").map_or(Ok(1), Value::int)?,
            dtype_in: named("in").ok_or("the dtype in= is missing")?.dtype()?,
            dtype_out: named("out").ok_or("the dtype out= is missing")?.dtype()?,
        })),
        kind => return Err(format!("there is no kind of arg {kind}")),
    })
}

fn read_buffer(op: Op, values: &[Value], slot: &mut dyn FnMut(u64) -> u64) -> Read<BufferArg> {
    let Value::Literal(Literal { text, suffix: None }) = at(values, 0)? else {
        return Err("a slot was expected".into());
    };
    let (number, version) = text.split_once('.').unwrap_or((text, "0"));
    let (number, version) = match (number.parse(), version.parse()) {
        (Ok(n), Ok(v)) => (n, v),
        _ => return Err(format!("{text} is not a slot")),
    };
    let mut rest = &values[2.min(values.len())..];
    let mut device = None;
    if let Some(first) = rest.first().filter(|v| v.space().is_none() && **v != Value::Word("NOWHERE")) {
        device = Some(first.device()?);
        rest = &rest[1..];
    }
    let addrspace = match rest {
        [] if device.is_some() => Some(AddrSpace::Global),
        [] => None,
        [Value::Word("NOWHERE")] => None,
        [v] if v.space().is_some() => v.space(),
        _ => return Err("slot, dtype, device and address space were expected".into()),
    };
    let fresh = op == Op::Buffer && addrspace == Some(AddrSpace::Global);
    let slot = if fresh { slot(number) } else { number };
    Ok(BufferArg { slot, version, dtype: at(values, 1)?.dtype()?, device, addrspace })
}
