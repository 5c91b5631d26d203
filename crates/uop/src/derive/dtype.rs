//! Dtype of a node from its op, sources and arg; operands of elementwise ops must agree. Flows in:
//! op, sources and arg of a node to be; flows out: its dtype, or an error that names the operands.

use crate::arg::Arg;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::node::UOp;
use crate::op::Op;
use crate::own::FunctionInfo;

pub(crate) fn dtype(op: Op, src: &[UOp], arg: &Arg) -> Result<DType> {
    let first = || src.first().map_or(DType::Void, UOp::dtype);
    if op.is_void() {
        return Ok(DType::Void);
    }
    match (op, arg) {
        (_, Arg::Const(_, d)) | (_, Arg::DType(d)) => Ok(*d),
        (_, Arg::Buffer(b)) => Ok(b.dtype),
        (Op::Binary, _) => Ok(DType::U8),
        (Op::GetAddr, _) => Ok(DType::U64),
        (Op::Range | Op::Special, _) => Ok(first()),
        (Op::GetTuple, Arg::Element(i)) => Ok(tuple_element(&src[0], *i)?.dtype()),
        (Op::Wmma, _) => Ok(src[2].dtype()),
        (Op::Stack, _) if src.is_empty() => Ok(DType::Index),
        (Op::Stack, _) => agree(op, src).map(|_| first()),
        (Op::Shuffle, _) => agree(op, &src[..2]).map(|_| first()),
        (Op::Where, _) if first() != DType::Bool => Err(Error::dtype(
            "WHERE",
            format!("the condition is {}, not bool", first()),
        )),
        (Op::Where, _) => agree(op, &src[1..]).map(|_| src[1].dtype()),
        (op, _) if op.is_elementwise() && !op.traits().operands.take(first()) => {
            Err(needs(op, op.traits().operands.text(), first()))
        }
        (Op::Assert, _) if src[1].dtype() != DType::Bool => Err(Error::dtype(
            "ASSERT",
            format!("the condition is {}, not bool", src[1].dtype()),
        )),
        // The distance may be of another dtype.
        (Op::Shl | Op::Shr, _) => Ok(first()),
        (op, _) if op.is_comparison() => agree(op, src).map(|_| DType::Bool),
        (op, _) if op.is_elementwise() => agree(op, src).map(|_| first()),
        _ => Ok(first()),
    }
}

/// The element of a TUPLE, or of the FUNCTION or CALL whose body is one.
pub(crate) fn tuple_element(tuple: &UOp, i: usize) -> Result<&UOp> {
    let mut t = tuple;
    while matches!(t.op(), Op::Function | Op::Call) {
        if let (Some(_), Arg::Call(info)) = (FunctionInfo::called(t), t.arg()) {
            let argument = info.outs.get(i).and_then(|&k| t.src()[1..].get(k));
            let missing = || format!("output {i} of a CALL of {}", info.outs.len());
            return argument.ok_or_else(|| Error::argument("GETTUPLE", missing()));
        }
        t = &t.src()[0];
    }
    t.src().get(i).ok_or_else(|| {
        Error::argument(
            "GETTUPLE",
            format!("element {i} of a tuple of {}", t.src().len()),
        )
    })
}

fn agree(op: Op, src: &[UOp]) -> Result<()> {
    match src.iter().find(|u| u.dtype() != src[0].dtype()) {
        None => Ok(()),
        Some(u) => {
            let message = format!("operands of dtype {} and {}", src[0].dtype(), u.dtype());
            Err(Error::dtype(op.name(), message))
        }
    }
}

fn needs(op: Op, what: &str, got: DType) -> Error {
    Error::dtype(op.name(), format!("takes {what}, not {got}"))
}
