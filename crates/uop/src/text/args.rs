//! The syntax of args, both ways: what stands in the brackets after an op.
//!
//! Flows in: an arg, or the values read between brackets; flows out: the other. Every op has a usual
//! kind of arg (`Op::arg_kind`), which needs no mark; any other kind on it is written `[kind: ...]`.

use super::value::{Items, Literal, Read, Value, literal};
use crate::arg::{
    AddrSpace, Arg, AxisType, BufferArg, CallInfo, KernelInfo, Opt, OptOp, ProgramInfo, Recompute,
    ReduceOp, ScanInfo, TcInfo,
};
use crate::device::Device;
use crate::dtype::DType;
use crate::fragment::{Digit, Fragment};
use crate::node::UOp;
use crate::op::Op;
use crate::opaque::Opaque;
use crate::own::{FunctionBody, FunctionInfo};
use crate::scalar::Scalar;
use std::fmt::Write;
use std::sync::Arc;

/// A part of an arg, both ways.
trait Part: Sized {
    fn write(&self) -> Value;

    fn read(v: &Value) -> Read<Self>;
}

/// A table of parts. A row says of its types how one is `written` as a value, and what a value of which
/// form is `read` as: None, and any value of another form, is an error that names the type.
macro_rules! parts {
    ($($($type:ty)|+:
        written |$part:ident| $write:expr;
        read $pattern:pat => $read:expr;
    )*) => { $($(
        impl Part for $type {
            fn write(&self) -> Value {
                let $part = self;
                $write
            }
            fn read(v: &Value) -> Read<$type> {
                let read = match v {
                    $pattern => $read,
                    #[allow(unreachable_patterns)]
                    _ => None,
                };
                read.ok_or_else(|| format!("{v} is no {}", stringify!($type)))
            }
        }
    )+)* };
}
parts! {
    u8 | u32 | u64 | i64 | usize: written |n| Value::number(n);
        read Value::Literal(Literal { text, suffix: None }) => text.parse().ok();
    DType | AxisType | AddrSpace | ReduceOp | Recompute: written |w| Value::Word(w.name().into());
        read Value::Word(w) => Self::from_name(w);
    String: written |t| Value::Text(t.clone());
        read Value::Text(t) => Some(t.clone());
    [i64; 3]: written |sizes| sizes.to_vec().write();
        read sizes => Vec::read(sizes)?.try_into().ok();
    [DType; 2]: written |both| both.to_vec().write();
        read both => Vec::read(both)?.try_into().ok();
    Device: written |d| device(d.name());
        read Value::Text(t) | Value::Word(t) => Some(Device::new(t));
    // A flag that is set stands as its field's name alone, one that is not as nothing: an empty list.
    bool: written |flag| if *flag { Value::Word(String::new()) } else { Value::List(vec![]) };
        read _flag => Some(true);
}

impl<T: Part> Part for Vec<T> {
    fn write(&self) -> Value {
        Value::List(self.iter().map(T::write).collect())
    }
    fn read(v: &Value) -> Read<Vec<T>> {
        let Value::List(items) = v else {
            return Err(format!("{v} is no list"));
        };
        items.iter().map(T::read).collect()
    }
}

/// Why a text has no machine code.
pub(super) const NO_CODE: &str =
    "machine code never comes from a text: a back end makes it, of a list that was verified";

/// What MUL's arg is called.
const ROUNDED: &str = "rounded";

/// What EXP2's arg is called.
const BELOW: &str = "below";

/// What padding is.
const ZERO: &str = "zero";

/// The address space of what is on a device and in none.
const NOWHERE: &str = "NOWHERE";

/// A word where it reads as one that is no address space, else a text.
fn device(name: &str) -> Value {
    let inner = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    let plain = |part: &str| !part.is_empty() && part.bytes().all(inner);
    let word = name.starts_with(|c: char| c.is_ascii_uppercase()) && name.split(':').all(plain);
    let taken = name == NOWHERE || AddrSpace::from_name(name).is_some();
    if word && !taken {
        Value::Word(name.into())
    } else {
        Value::Text(name.into())
    }
}

impl Part for Fragment {
    fn write(&self) -> Value {
        if *self == Fragment::default() {
            return Value::List(vec![]);
        }
        Value::List(vec![self.lane.write(), self.element.write()])
    }
    fn read(v: &Value) -> Read<Fragment> {
        let [lane, element] = Vec::<Vec<Digit>>::read(v)?
            .try_into()
            .map_err(|_| "a fragment has digits of a lane and of an element")?;
        Ok(Fragment { lane, element })
    }
}

impl Part for Digit {
    fn write(&self) -> Value {
        let (name, extent, stride) = match self {
            Digit::Row(extent, stride) => ("ROW", extent, stride),
            Digit::Column(extent, stride) => ("COLUMN", extent, stride),
        };
        Value::Apply(name.into(), vec![extent.write(), stride.write()])
    }
    fn read(v: &Value) -> Read<Digit> {
        match v {
            Value::Apply(name, a) if name == "ROW" => Ok(Digit::Row(at(a, 0)?, at(a, 1)?)),
            Value::Apply(name, a) if name == "COLUMN" => Ok(Digit::Column(at(a, 0)?, at(a, 1)?)),
            _ => Err(format!("{v} is no digit, such as ROW(8, 1)")),
        }
    }
}

impl Part for Opt {
    fn write(&self) -> Value {
        let (name, parts) = match &self.op {
            OptOp::Split {
                factor,
                target,
                top,
            } => {
                let mut parts = vec![factor.write(), target.write()];
                if *top {
                    parts.push(Value::Word("top".into()));
                }
                ("SPLIT", parts)
            }
            OptOp::Cover { factor, target } => ("COVER", vec![factor.write(), target.write()]),
            OptOp::PadTo { multiple } => ("PADTO", vec![multiple.write()]),
            OptOp::Swap { with } => ("SWAP", vec![with.write()]),
            OptOp::NoLocals => ("NOLOCALS", vec![]),
            OptOp::Tc { unit } => ("TC", vec![unit.write()]),
            OptOp::Stage { operand, last } => {
                let parts = [operand.write()].into_iter();
                ("STAGE", parts.chain(last.map(|k| k.write())).collect())
            }
            OptOp::Scatter => ("SCATTER", vec![]),
            OptOp::Scan { turns: 1 } => ("SCAN", vec![]),
            OptOp::Scan { turns } => ("SCAN", vec![turns.write()]),
        };
        Value::Apply(
            name.into(),
            [self.axis.write()].into_iter().chain(parts).collect(),
        )
    }
    fn read(v: &Value) -> Read<Opt> {
        let Value::Apply(name, a) = v else {
            return Err("an Opt was expected, such as SWAP(0, 1)".into());
        };
        let op = match &**name {
            "SPLIT" => OptOp::Split {
                factor: at(a, 1)?,
                target: at(a, 2)?,
                top: a.get(3).is_some_and(|v| v.is("top")),
            },
            "COVER" => OptOp::Cover {
                factor: at(a, 1)?,
                target: at(a, 2)?,
            },
            "PADTO" => OptOp::PadTo {
                multiple: at(a, 1)?,
            },
            "SWAP" => OptOp::Swap { with: at(a, 1)? },
            "NOLOCALS" => OptOp::NoLocals,
            "TC" => OptOp::Tc { unit: at(a, 1)? },
            "STAGE" => OptOp::Stage {
                operand: at(a, 1)?,
                last: if a.len() > 2 { Some(at(a, 2)?) } else { None },
            },
            "SCATTER" => OptOp::Scatter,
            "SCAN" => OptOp::Scan {
                turns: if a.len() > 1 { at(a, 1)? } else { 1 },
            },
            name => return Err(format!("there is no OptOp {name}")),
        };
        Ok(Opt {
            op,
            axis: at(a, 0)?,
        })
    }
}

impl std::fmt::Display for Opt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.write().fmt(f)
    }
}

/// Records: a name first, then parts by name; empty lists and unset flags are left out.
macro_rules! records {
    ($($type:ident { $($field:ident $key:literal),* })*) => { $(impl $type {
        fn parts(&self) -> Vec<Value> {
            let named = [$(match self.$field.write() {
                Value::List(items) if items.is_empty() => None,
                Value::Word(w) if w.is_empty() => Some(Value::Word($key.into())),
                v => Some(named($key, v)),
            }),*];
            [self.name.write()].into_iter().chain(named.into_iter().flatten()).collect()
        }
        fn of(values: &[Value]) -> Read<Arc<$type>> {
            let mut record = $type { name: at(values, 0)?, ..Default::default() };
            $(if let Some(v) = find($key, values) {
                record.$field = Part::read(v)?;
            })*
            Ok(Arc::new(record))
        }
    })* };
}
records! {
    KernelInfo { opts "opts", no_locals "no_locals", settled "settled" }
    ProgramInfo {
        target "target", global_size "global", local_size "local", threads "threads",
        outs "outs", ins "ins", vars "vars", flops "flops", bytes "bytes"
    }
    TcInfo {
        dims "dims", threads "threads", dtypes_in "in", dtype_out "out", a "a", b "b", c "c"
    }
}

/// FNV-1a of some bytes, to tell them from others.
fn hash(bytes: &[u8]) -> u64 {
    let step = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn named(key: &str, v: Value) -> Value {
    Value::Named(key.into(), Box::new(v))
}

/// The value of that name, or the word.
fn find<'a>(key: &str, values: &'a [Value]) -> Option<&'a Value> {
    values.iter().find_map(|v| match v {
        Value::Named(k, v) if k == key => Some(&**v),
        v => Some(v).filter(|v| v.is(key)),
    })
}

fn at<T: Part>(values: &[Value], i: usize) -> Read<T> {
    let v = values
        .get(i)
        .ok_or_else(|| format!("the arg has {} parts, too few", values.len()))?;
    T::read(v)
}

fn constant(v: Scalar, d: DType, context: Option<DType>) -> Vec<Value> {
    vec![Value::number(literal(v, d, context))]
}

/// How a graph is written: that of an arg stands in it as a text.
type Graph = fn(&UOp) -> String;

/// The parts of an arg; `dtype` is the first source's, `number` what a buffer's slot prints as.
fn parts(arg: &Arg, dtype: DType, number: u64, graph: Graph) -> Vec<Value> {
    match arg {
        Arg::None => vec![],
        Arg::Const(v, d) => constant(*v, *d, None),
        Arg::DType(d) => vec![d.write()],
        Arg::Buffer(b) => buffer(b, number),
        Arg::Axes(axes) => axes.iter().map(u8::write).collect(),
        Arg::Flags(bits) => {
            let set = (0..64u32).filter(|k| bits >> k & 1 == 1);
            set.map(|k| k.write()).collect()
        }
        Arg::Reduce(r, axes) => {
            let axes = axes.iter().map(u8::write);
            [r.write()].into_iter().chain(axes).collect()
        }
        Arg::Range(id, axis) => vec![id.write(), axis.write()],
        Arg::Fill(v) => constant(*v, dtype, Some(dtype)),
        Arg::Place(d, s) => {
            let space = s.iter().map(AddrSpace::write);
            d.iter().map(Device::write).chain(space).collect()
        }
        Arg::Element(i) => vec![i.write()],
        Arg::Text(_) | Arg::Lazy(_) => {
            let text = arg.text().unwrap_or_default();
            vec![Value::Text(text.to_string())]
        }
        Arg::Bytes(b) => vec![
            named("bytes", b.len().write()),
            named("hash", Value::Word(format!("h{:016x}", hash(b)))),
        ],
        Arg::Kernel(k) => k.parts(),
        Arg::Program(p) => p.parts(),
        Arg::Call(c) => vec![named("outs", c.outs.write()), named("ins", c.ins.write())],
        Arg::Scan(s) => vec![
            named("length", s.length.write()),
            named("carries", s.carries.write()),
            named("slices", s.slices.write()),
            named("reversed", i64::from(s.reversed).write()),
        ],
        Arg::Recompute(what) => vec![what.write()],
        Arg::Function(f) => f.get().map_or(Vec::new(), |f| function(f, graph)),
        Arg::Wmma(w) => w.parts(),
        Arg::Rounded => vec![Value::Word(ROUNDED.into())],
        Arg::Below => vec![Value::Word(BELOW.into())],
        Arg::Padding => vec![Value::Word(ZERO.into())],
    }
}

/// Write the brackets of an arg; `number` is what a buffer's slot prints as.
pub(super) fn write(out: &mut String, op: Op, arg: &Arg, dtype: DType, number: u64, graph: Graph) {
    if *arg == Arg::None {
        return;
    }
    let mark = if arg.kind() == op.arg_kind() {
        String::new()
    } else {
        format!("{}: ", arg.kind())
    };
    // Writing to a String cannot fail.
    let _ = match arg.text() {
        Some(t) if t.contains('\n') => {
            let line = |l: &str| format!("\n  |{}{l}", if l.is_empty() { "" } else { " " });
            write!(
                out,
                "[{mark}{}\n]",
                t.split('\n').map(line).collect::<String>()
            )
        }
        _ => write!(out, "[{mark}{}]", Items(&parts(arg, dtype, number, graph))),
    };
}

fn buffer(b: &BufferArg, number: u64) -> Vec<Value> {
    let version = if b.version == 0 {
        String::new()
    } else {
        format!(".{}", b.version)
    };
    let mut out = vec![Value::number(format!("{number}{version}")), b.dtype.write()];
    out.extend(b.device.iter().map(Device::write));
    // GLOBAL goes without saying on a device, and nothing goes without saying elsewhere.
    match (b.device, b.addrspace) {
        (Some(_), Some(AddrSpace::Global)) | (None, None) => {}
        (_, Some(s)) => out.push(s.write()),
        (Some(_), None) => out.push(Value::Word(NOWHERE.into())),
    }
    out
}

/// The arg that these values are on `op`. `kind` is given where it is not the usual one; `dtype` is the
/// first source's; `slot` gives a GLOBAL buffer its slot by its number in the text.
pub(super) fn read(
    op: Op,
    kind: Option<&str>,
    values: &[Value],
    dtype: Option<DType>,
    slot: &mut dyn FnMut(u64) -> u64,
    graph: &dyn Fn(&str) -> Read<UOp>,
) -> Read<Arg> {
    let axes = |from: usize| {
        values[from..]
            .iter()
            .map(u8::read)
            .collect::<Read<Vec<u8>>>()
    };
    let constant = |context| match values.first() {
        Some(Value::Literal(l)) => l.value(context),
        _ => Err("a constant was expected".to_string()),
    };
    Ok(match kind.unwrap_or(op.arg_kind()) {
        "const" => constant(None).map(|(v, d)| Arg::Const(v, d))?,
        "dtype" | "none" => Arg::DType(at(values, 0)?),
        "buffer" => Arg::Buffer(read_buffer(op, values, slot)?),
        "axes" => Arg::Axes(axes(0)?.into()),
        "flags" => {
            let bits = axes(0)?
                .iter()
                .try_fold(0u64, |f, &k| Some(f | 1u64.checked_shl(k.into())?));
            Arg::Flags(bits.ok_or("an axis beyond 63")?)
        }
        "reduce" => Arg::Reduce(at(values, 0)?, axes(1)?.into()),
        "range" => Arg::Range(at(values, 0)?, at(values, 1)?),
        "fill" => Arg::Fill(constant(dtype)?.0),
        "place" => {
            let (device, space) = place(values)?;
            Arg::Place(device, space)
        }
        "element" => Arg::Element(at(values, 0)?),
        "text" => Arg::Text(at::<String>(values, 0)?.into()),
        "bytes" => return Err(NO_CODE.into()),
        "kernel" => Arg::Kernel(KernelInfo::of(values)?),
        "program" => Arg::Program(ProgramInfo::of(values)?),
        "call" => {
            let list = |key| find(key, values).map_or(Ok(Vec::new()), Vec::read);
            Arg::Call(Arc::new(CallInfo {
                outs: list("outs")?,
                ins: list("ins")?,
                derivative: None,
            }))
        }
        "scan" => Arg::Scan(ScanInfo {
            length: find("length", values).map_or(Ok(0), i64::read)?,
            carries: find("carries", values).map_or(Ok(0), usize::read)?,
            slices: find("slices", values).map_or(Ok(0), usize::read)?,
            reversed: find("reversed", values).map_or(Ok(0), i64::read)? != 0,
        }),
        "recompute" => Arg::Recompute(at(values, 0)?),
        "function" => Arg::Function(Opaque::new(read_function(values, graph)?)),
        "wmma" => Arg::Wmma(TcInfo::of(values)?),
        "rounding" => match values {
            [v] if v.is(ROUNDED) => Arg::Rounded,
            _ => return Err(format!("{ROUNDED} was expected")),
        },
        "bound" => match values {
            [v] if v.is(BELOW) => Arg::Below,
            _ => return Err(format!("{BELOW} was expected")),
        },
        "padding" => match values {
            [v] if v.is(ZERO) => Arg::Padding,
            _ => return Err(format!("{ZERO} was expected")),
        },
        kind => return Err(format!("there is no kind of arg {kind}")),
    })
}

/// A function: a kernel as its own text, anything else by its name alone.
fn function(f: &FunctionInfo, graph: Graph) -> Vec<Value> {
    let mut out = vec![f.name.write(), f.device.write()];
    if !f.begins.is_empty() {
        out.push(named("begins", f.begins.write()));
    }
    match &f.body {
        FunctionBody::Kernel(kernel) => out.push(named("kernel", graph(kernel).write())),
        FunctionBody::Source(source) => {
            let dialect = source.dialect().name();
            out.push(named("source", Value::Word(dialect.into())));
        }
        FunctionBody::Host(_) => out.push(Value::Word(HOST.into())),
        FunctionBody::Named => {}
    }
    out
}

/// What functions of a process are called.
const HOST: &str = "host";

/// As `function` writes it. Neither source text nor a function of a process comes from a text.
fn read_function(values: &[Value], graph: &dyn Fn(&str) -> Read<UOp>) -> Read<FunctionInfo> {
    let begins = find("begins", values).map_or(Ok(Vec::new()), Vec::read)?;
    let body = match find("kernel", values) {
        Some(Value::Text(text)) => FunctionBody::Kernel(graph(text)?),
        Some(other) => return Err(format!("{other} is no kernel")),
        None => FunctionBody::Named,
    };
    Ok(FunctionInfo {
        name: at(values, 0)?,
        device: at(values, 1)?,
        begins,
        body,
    })
}

fn read_buffer(op: Op, values: &[Value], slot: &mut dyn FnMut(u64) -> u64) -> Read<BufferArg> {
    let Some(Value::Literal(Literal { text, suffix: None })) = values.first() else {
        return Err("a slot was expected".into());
    };
    let (number, version) = text.split_once('.').unwrap_or((text, "0"));
    let (Ok(number), Ok(version)) = (number.parse(), version.parse()) else {
        return Err(format!("{text} is not a slot"));
    };
    let dtype = at(values, 1)?;
    let (device, space) = place(&values[2..])?;
    let nowhere = values.last().is_some_and(|v| v.is(NOWHERE));
    // GLOBAL goes without saying on a device.
    let addrspace = space.or(device.filter(|_| !nowhere).map(|_| AddrSpace::Global));
    let fresh = op == Op::Buffer && addrspace == Some(AddrSpace::Global);
    let slot = if fresh { slot(number) } else { number };
    Ok(BufferArg {
        slot,
        version,
        dtype,
        device,
        addrspace,
    })
}

/// A device and an address space, either of which may be left out.
fn place(values: &[Value]) -> Read<(Option<Device>, Option<AddrSpace>)> {
    let space = values.iter().find_map(|v| AddrSpace::read(v).ok());
    let is_device = |v: &&Value| AddrSpace::read(v).is_err() && !v.is(NOWHERE);
    let device = values.iter().find(is_device).map(Device::read);
    Ok((device.transpose()?, space))
}
