//! Device: that of the sources that have one; two different ones are an error. Flows in: op,
//! sources and arg of a node to be; flows out: its device, none, or the error.

use crate::arg::Arg;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::node::UOp;
use crate::op::Op;
use crate::own::FunctionInfo;

pub(crate) fn device(op: Op, src: &[UOp], arg: &Arg) -> Result<Option<Device>> {
    match (op, arg) {
        (Op::Param | Op::Buffer, Arg::Buffer(b)) => return Ok(b.device),
        (Op::Copy, Arg::Place(d, _)) => return Ok(*d),
        (Op::Load | Op::GetAddr, Arg::Place(Some(d), _)) => return Ok(Some(*d)),
        (Op::GetTuple, _) if src[0].op() == Op::Call => return Ok(src[0].device()),
        (Op::Call, _) if src[0].op() == Op::CustomFunction => {
            let device = FunctionInfo::of(&src[0]).map(|info| info.device);
            let of_arguments = common_device(op.name(), &src[1..])?;
            return match of_arguments {
                Some(other) if device != Some(other) => Err(apart(device, other)),
                _ => Ok(device),
            };
        }
        (Op::GetTuple, Arg::Element(i)) => {
            let element = super::dtype::tuple_element(&src[0], *i)?;
            return Ok(element.device().or(src[0].device()));
        }
        (Op::Call | Op::Function, _) => return Ok(src.get(1).and_then(UOp::device)),
        // Programs and orders gather work of several devices.
        (Op::Sink | Op::Linear | Op::Group | Op::Tuple | Op::After | Op::Program, _) => {
            return Ok(src.first().and_then(UOp::device));
        }
        // A store of a COPY moves between devices.
        (Op::Store, _) => return Ok(src[0].device()),
        _ => {}
    }
    common_device(op.name(), src)
}

/// The error of a function that is for another device than its arguments are on.
fn apart(device: Option<Device>, other: Device) -> Error {
    let own = device.map_or("none", |d| d.name());
    let message = format!("a function for {own} of arguments on {other}; copy them with `to`");
    Error::new(ErrorKind::Device {
        op: "CALL".into(),
        message,
    })
}

/// The one device of those values that have one.
///
/// # Errors
/// `Device` where two are on different ones; `op` is what wants them together.
pub fn common_device(op: &str, src: &[UOp]) -> Result<Option<Device>> {
    let mut devices = src.iter().filter_map(UOp::device);
    let first = devices.next();
    match first.and_then(|f| devices.find(|d| *d != f).map(|d| (f, d))) {
        None => Ok(first),
        Some((f, d)) => {
            let message = format!("operands on {f} and {d}; copy one of them with `to`");
            Err(ErrorKind::Device {
                op: op.into(),
                message,
            }
            .into())
        }
    }
}
