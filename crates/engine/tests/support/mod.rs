//! Linear programs written by hand. Flows in: nodes and bytes; flows out: a program, and what a
//! device makes of the bytes.

#![allow(dead_code)]

use monoglot_device::{Kernel, Runtime, Storage};
use monoglot_engine::backend;
use monoglot_uop::*;
use std::sync::Arc;

/// A flat PARAM of n elements.
pub(crate) fn param(slot: u64, n: i64, d: DType) -> UOp {
    UOp::param(slot, &Shape::of(&[n]), d, None)
}

/// An i32 constant.
pub(crate) fn i32c(v: i64) -> UOp {
    UOp::int(v, DType::I32)
}

/// A loop over n, of dtype i32.
pub(crate) fn range(n: i64, id: u32) -> UOp {
    UOp::new(Op::Range, vec![i32c(n)], Arg::Range(id, AxisType::Loop))
}

/// Element i of a buffer, or w elements from i (w > 0).
pub(crate) fn address(buf: &UOp, i: &UOp, w: usize) -> UOp {
    if w == 0 {
        return buf.at(std::slice::from_ref(i));
    }
    let dims = |u: UOp| UOp::new(Op::Stack, vec![u], Arg::None);
    UOp::new(
        Op::Shrink,
        vec![
            buf.clone(),
            dims(i.clone()),
            dims(UOp::int(w as i64, i.dtype())),
        ],
        Arg::None,
    )
}

/// LOAD of an address.
pub(crate) fn load(address: &UOp) -> UOp {
    UOp::new(Op::Load, vec![address.clone()], Arg::None)
}

/// LOAD of an address where a gate holds, another value elsewhere.
pub(crate) fn load_if(address: &UOp, alt: &UOp, gate: &UOp) -> UOp {
    UOp::new(
        Op::Load,
        vec![address.clone(), alt.clone(), gate.clone()],
        Arg::None,
    )
}

/// STORE to an address where a gate holds.
pub(crate) fn store_if(address: &UOp, value: &UOp, gate: &UOp) -> UOp {
    UOp::new(
        Op::Store,
        vec![address.clone(), value.clone(), gate.clone()],
        Arg::None,
    )
}

/// A scalar w times.
pub(crate) fn splat(u: &UOp, w: usize) -> UOp {
    if w == 0 {
        u.clone()
    } else {
        UOp::new(Op::Stack, vec![u.clone(); w], Arg::None)
    }
}

/// END of a loop.
pub(crate) fn end(effect: &UOp, range: &UOp) -> UOp {
    UOp::new(Op::End, vec![effect.clone(), range.clone()], Arg::None)
}

/// A list in which every effect stands after what it needs; loops are opened where they are listed.
pub(crate) fn linear(effects: &[UOp]) -> UOp {
    let mut list: Vec<UOp> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for e in effects {
        // The shapes of storage are no instructions.
        let enter = |u: &UOp| !matches!(u.op(), Op::Param | Op::Buffer);
        for u in graph::toposort_many(std::slice::from_ref(e), enter) {
            if seen.insert(u.clone()) {
                list.push(u);
            }
        }
    }
    // Storage and hardware indices outlast the loops that name them first.
    list.sort_by_key(|u| {
        let size = u.op() == Op::Const;
        !(size || matches!(u.op(), Op::Param | Op::Buffer | Op::Special))
    });
    UOp::new(Op::Linear, list, Arg::None)
}

/// A PROGRAM for the runtime's target.
pub(crate) fn program(name: &str, linear: &UOp, info: ProgramInfo, target: &Target) -> Program {
    let info = ProgramInfo {
        name: name.into(),
        ..info
    };
    // The interpreter finds faults itself, and takes programs that have some.
    let code = match target.dialect {
        Dialect::Uops => Code::Text(linear.to_string()),
        dialect => {
            let verified = spec::verify_linear(linear.clone()).unwrap();
            let listing = Listing::of(&verified);
            backend(dialect).emit(&listing, &info, target).unwrap()
        }
    };
    let mut src = vec![UOp::sink(&[]), linear.clone()];
    src.extend(code.nodes(linear, name));
    let program = UOp::new(Op::Program, src, Arg::Program(Arc::new(info)));
    // SAFETY: a back end's code of a verified list, or a program for the interpreter.
    unsafe { Program::trusted(program) }
}

/// One thread, no workgroups.
pub(crate) fn single() -> ProgramInfo {
    ProgramInfo {
        threads: 1,
        global_size: [1; 3],
        local_size: [1; 3],
        ..ProgramInfo::default()
    }
}

/// Elements as bytes of a dtype.
pub(crate) fn bytes_of(values: &[Scalar], d: DType) -> Vec<u8> {
    values
        .iter()
        .flat_map(|v| v.to_bits(d).to_le_bytes()[..d.bytes()].to_vec())
        .collect()
}

/// Bytes as elements of a dtype.
pub(crate) fn scalars_of(bytes: &[u8], d: DType) -> Vec<Scalar> {
    let scalar = |c: &[u8]| {
        let mut word = [0; 8];
        word[..c.len()].copy_from_slice(c);
        Scalar::from_bits(u64::from_le_bytes(word), d)
    };
    bytes.chunks(d.bytes()).map(scalar).collect()
}

/// Storage with these bytes.
pub(crate) fn storage(rt: &dyn Runtime, bytes: &[u8]) -> Arc<Storage> {
    let s = rt.alloc(bytes.len()).unwrap();
    rt.upload(&s, 0, bytes).unwrap();
    s
}

/// Run a kernel on buffers given as bytes, and give them back.
pub(crate) fn run(
    rt: &dyn Runtime,
    kernel: &Arc<dyn Kernel>,
    bufs: &[Vec<u8>],
    vars: &[i64],
) -> Result<Vec<Vec<u8>>> {
    let held: Vec<Arc<Storage>> = bufs.iter().map(|b| storage(rt, b)).collect();
    rt.launch(kernel, &held, vars)?;
    held.iter()
        .map(|s| {
            let mut out = vec![0; s.bytes()];
            rt.download(s, 0, &mut out).map(|_| out)
        })
        .collect()
}

/// f32 values as bytes.
pub(crate) fn f32s(v: &[f32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Bytes as f32 values.
pub(crate) fn to_f32s(b: &[u8]) -> Vec<f32> {
    b.chunks(4)
        .map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]]))
        .collect()
}

/// A STACK of i32 constants.
pub(crate) fn ints(v: &[i64]) -> UOp {
    UOp::new(
        Op::Stack,
        v.iter().map(|&k| i32c(k)).collect::<Vec<_>>(),
        Arg::None,
    )
}
