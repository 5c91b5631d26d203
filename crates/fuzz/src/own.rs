//! Work of a user's own in random programs. Flows in: a number, a value, and another of its shape and dtype; flows out: what
//! a kernel of that number gives of them. Invariant: it is exact where they are.

use monoglot_uop::own::{FunctionBody, FunctionInfo};
use monoglot_uop::{Arg, AxisType, DType, Device, KernelInfo, Opaque, Result, Shape, UOp};
use std::sync::Arc;

/// What a kernel gives, of the first value's shape and dtype, and how much greater than these it may be.
pub(crate) fn made(which: u64, x: &UOp, y: &UOp, device: Device) -> Option<(UOp, f64)> {
    let n = x.shape().ints()?.iter().product::<i64>();
    if n == 0 || x.dtype() == DType::Bool {
        return None;
    }
    let made = match which % 3 {
        0 => call(x, y, device, &OPPOSITE),
        1 => call(x, y, device, &EVERY_OTHER),
        _ => call(x, y, device, &RUNNING),
    };
    let grows = if n > 16 { 1e9 } else { n as f64 };
    Some((made.ok()?, grows + 2.0))
}

/// A kernel.
struct Own {
    /// Whether its output begins as another value.
    begins: bool,
    /// Whether its turns come one after the other.
    settled: bool,
    /// The STORE of a turn, from its output and its input.
    build: fn(&UOp, &UOp, &UOp) -> UOp,
}

const OPPOSITE: Own = Own {
    begins: false,
    settled: false,
    build: opposite,
};
const EVERY_OTHER: Own = Own {
    begins: true,
    settled: false,
    build: every_other,
};
const RUNNING: Own = Own {
    begins: false,
    settled: true,
    build: running,
};

/// A CALL of a kernel on x; its output begins as y if as anything.
fn call(x: &UOp, y: &UOp, device: Device, own: &Own) -> Result<UOp> {
    let n = x.shape().max_len();
    let line = Shape::of(&[n]);
    let param = |slot| UOp::param(slot, &line, x.dtype(), Some(device));
    let i = UOp::range(n, 0, AxisType::Loop);
    let store = (own.build)(&param(0), &param(1), &i);
    let info = KernelInfo {
        name: "own".into(),
        settled: own.settled,
        ..KernelInfo::default()
    };
    let sink = UOp::sink(&[store.end(&[i])]).with_arg(Arg::Kernel(Arc::new(info)));
    let function = FunctionInfo {
        name: "own".into(),
        device,
        begins: Vec::from_iter(own.begins.then_some(0)),
        body: FunctionBody::Kernel(sink),
    };
    let y = y.reshape(&line)?;
    let x_line = x.reshape(&line)?;
    let call = UOp::call_custom(Opaque::new(function), &[y], &[x_line], None)?;
    call.outputs()[0].reshape(x.shape())
}

/// Each element and that as far from the other end.
fn opposite(out: &UOp, x: &UOp, i: &UOp) -> UOp {
    let last = i.like(x.shape().max_len() - 1);
    let sum = x.at(&[i.clone()]) + x.at(&[last - i]);
    out.at(&[i.clone()]).store(&sum)
}

/// Every other element; the others stay.
fn every_other(out: &UOp, x: &UOp, i: &UOp) -> UOp {
    let even = (i % 2).eq_(&i.like(0));
    out.at(&[i.valid(&even)]).store(&x.at(&[i.clone()]))
}

/// The sums of all up to each element.
fn running(out: &UOp, x: &UOp, i: &UOp) -> UOp {
    let later = i.ge(&i.like(1));
    let before = out.after(&[i.clone()]).at(&[(i - 1).valid(&later)]);
    let zero = UOp::constant(x.dtype().zero(), x.dtype());
    let sum = later.select(&before, &zero) + x.at(&[i.clone()]);
    out.at(&[i.clone()]).store(&sum)
}
