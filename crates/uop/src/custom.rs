//! CALLs of a user's own work. Flows in: what is done, and on what; flows out: the CALL, its outputs, and of
//! source text the PROGRAM. Invariant: a CALL's arguments are what the outputs begin as, and then the inputs; its
//! value is the tuple of the outputs once it has run: GETTUPLE k is output k.

use crate::arg::{Arg, CallInfo, ProgramInfo};
use crate::backend::Program;
use crate::error::Result;
use crate::node::{Srcs, UOp};
use crate::op::Op;
use crate::opaque::Opaque;
use crate::own::{Derivative, SourceBody};
use std::sync::Arc;

impl SourceBody {
    /// The PROGRAM of a CALL with these PARAMs, outputs first, of which there are so many.
    pub fn program(&self, params: &[UOp], outs: usize, target: &str) -> Program {
        let places: Vec<String> = (0..params.len()).map(|k| format!("bufs[{k}]")).collect();
        let entry = self.entry();
        let name = format!("own_{entry}");
        let text = format!(
            "{}\nvoid {name}(void *const *bufs, const long long *vars, int tid) {{\n  (void)vars;\n  (void)tid;\n  {entry}({});\n}}\n",
            self.text(),
            places.join(", ")
        );
        let info = ProgramInfo {
            name,
            target: target.into(),
            global_size: [1; 3],
            local_size: [1; 3],
            threads: 1,
            outs: (0..outs).collect(),
            ins: (outs..params.len()).collect(),
            bytes: params.iter().map(bytes).sum(),
            ..ProgramInfo::default()
        };
        let list: Srcs = params.iter().cloned().collect();
        let src = vec![
            UOp::sink(&[]).with_arg(Arg::Kernel(Arc::default())),
            UOp::new(Op::Linear, list, Arg::None),
            UOp::new(Op::Source, vec![], Arg::Text(text.into())),
        ];
        let program = UOp::new(Op::Program, src, Arg::Program(Arc::new(info)));
        // SAFETY: whoever made the text said what it does (`SourceBody::new`), which is what the list says:
        // it touches these PARAMs.
        unsafe { Program::trusted(program) }
    }
}

/// The bytes of a PARAM.
fn bytes(u: &UOp) -> u64 {
    u.shape().max_len() as u64 * u.dtype().bytes() as u64
}

impl UOp {
    /// CALL of a function (a `FunctionInfo`) on what its outputs begin as, and its inputs.
    ///
    /// # Errors
    /// Where these do not make a CALL.
    #[track_caller]
    pub fn call_custom(
        info: Opaque,
        outputs: &[UOp],
        inputs: &[UOp],
        derivative: Option<Derivative>,
    ) -> Result<UOp> {
        let call = CallInfo {
            outs: (0..outputs.len()).collect(),
            ins: (outputs.len()..outputs.len() + inputs.len()).collect(),
            derivative: derivative.map(Opaque::new),
        };
        let body = UOp::try_new(Op::CustomFunction, Srcs::new(), Arg::Function(info))?;
        let all = std::iter::once(&body).chain(outputs).chain(inputs);
        let src: Srcs = all.cloned().collect();
        UOp::try_new(Op::Call, src, Arg::Call(Arc::new(call)))
    }

    /// The outputs of a CALL.
    pub fn outputs(&self) -> Vec<UOp> {
        let Arg::Call(info) = self.arg() else {
            return Vec::new();
        };
        let element = |k| UOp::new(Op::GetTuple, vec![self.clone()], Arg::Element(k));
        (0..info.outs.len()).map(element).collect()
    }

    /// A CALL without its derivative, which is what is computed.
    pub fn without_derivative(&self) -> UOp {
        match self.arg() {
            Arg::Call(info) if info.derivative.is_some() => {
                self.with_arg(Arg::Call(Arc::new(CallInfo {
                    derivative: None,
                    ..(**info).clone()
                })))
            }
            _ => self.clone(),
        }
    }
}
