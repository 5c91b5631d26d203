//! A user's own work. Flows in: what a CUSTOMFUNCTION does, or a kernel with the Opts that it is to have;
//! flows out: what runs as one step of a program, or why the device cannot.

use monoglot_codegen::opt;
use monoglot_device::{HostFunction, HostKernel, Kernel, open, program_parts};
use monoglot_uop::own::{FunctionBody, FunctionInfo, SourceBody};
use monoglot_uop::{
    Arg, Device, Dialect, Error, ErrorKind, KernelInfo, Opt, ProgramInfo, Result, Shape, UOp,
};
use std::sync::Arc;

/// A kernel, compiled.
#[derive(Clone)]
pub(crate) struct Compute {
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) info: Arc<ProgramInfo>,
}

/// A kernel after these Opts for a device, to have no others.
///
/// # Errors
/// `Argument` for Opts that do not fit, and where the device cannot be opened.
pub fn settled(kernel: &UOp, opts: &[Opt], device: Device) -> Result<UOp> {
    let kernel = opt::apply(kernel, opts, open(device)?.target())?;
    Ok(match kernel.arg() {
        Arg::Kernel(info) => kernel.with_arg(Arg::Kernel(Arc::new(KernelInfo {
            settled: true,
            ..(**info).clone()
        }))),
        _ => kernel,
    })
}

/// What the programs of a device are written in.
///
/// # Errors
/// Where the device cannot be opened.
pub fn dialect(device: Device) -> Result<Dialect> {
    Ok(open(device)?.target().dialect)
}

/// Whether a device has its programs written in what this source text is.
///
/// # Errors
/// `Unsupported` where it has not; and where the device cannot be opened.
pub fn check_source(name: &str, source: &SourceBody, device: Device) -> Result<()> {
    let has = dialect(device)?;
    let is = source.dialect();
    if has == is {
        return Ok(());
    }
    let has = has.name();
    let is = is.name();
    let message = format!(
        "its source is {is}, and programs of {device} are written in {has}; a device such as CPU:{is} \
         takes it"
    );
    let op = name.into();
    Err(ErrorKind::Unsupported { op, message }.into())
}

/// What runs a function on these arguments, of which so many are outputs.
pub(crate) fn compute(function: &FunctionInfo, args: &[UOp], outs: usize) -> Result<Compute> {
    let name = &function.name;
    match &function.body {
        FunctionBody::Source(source) => {
            check_source(name, source, function.device)?;
            let params: Vec<UOp> = (0..).zip(args).map(|(slot, a)| param(slot, a)).collect();
            let runtime = open(function.device)?;
            let program = source.program(&params, outs, &runtime.target().arch);
            let info = program_parts(&program)?.1.clone();
            let kernel = runtime.compile(&[program])?.remove(0);
            Ok(Compute { kernel, info })
        }
        FunctionBody::Host(host) => {
            let shapes = host.shapes().iter().cloned();
            let types = args.iter().map(UOp::dtype).zip(shapes).collect();
            let Ok(function) = host.function().clone().downcast::<HostFunction>() else {
                return Err(unknown(name));
            };
            let kernel: Arc<dyn Kernel> = Arc::new(HostKernel::new(name, function, types, outs));
            let info = ProgramInfo {
                name: name.clone(),
                outs: (0..outs).collect(),
                ins: (outs..args.len()).collect(),
                ..ProgramInfo::default()
            };
            let info = Arc::new(info);
            Ok(Compute { kernel, info })
        }
        FunctionBody::Kernel(_) | FunctionBody::Named => Err(unknown(name)),
    }
}

/// A PARAM for an argument.
fn param(slot: u64, argument: &UOp) -> UOp {
    let len = Shape::of(&[argument.shape().max_len()]);
    UOp::param(slot, &len, argument.dtype(), argument.device())
}

/// The error of a function that this process has not.
fn unknown(name: &str) -> Error {
    let message = format!("there is no function `{name}` in this process: a text names it alone");
    let op = "CUSTOMFUNCTION".into();
    ErrorKind::Unsupported { op, message }.into()
}
