//! NULL: this machine's CPU as a target, without the machine. Storage has a length and no bytes,
//! compiling calls no compiler, launching does nothing: what is left is the cost of our own stages.

use crate::runtime::{Kernel, Runtime, Signature, program_parts};
use crate::storage::{Memory, Storage};
use monoglot_uop::{Result, Target, UOp};
use std::sync::Arc;

pub(crate) struct Null {
    pub(crate) target: Target,
}

impl Runtime for Null {
    fn target(&self) -> &Target {
        &self.target
    }

    fn about(&self) -> String {
        format!(
            "renders for {}, compiles and runs nothing",
            self.target.arch
        )
    }

    fn alloc(&self, bytes: usize) -> Result<Arc<Storage>> {
        Ok(Storage::of(self.target.device, bytes, Memory::Nothing))
    }

    /// Data that comes to NULL is gone.
    fn upload(&self, _to: &Storage, _offset: usize, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn download(&self, from: &Storage, _offset: usize, _out: &mut [u8]) -> Result<()> {
        Err(from.no_data())
    }

    fn compile(&self, programs: &[UOp]) -> Result<Vec<Arc<dyn Kernel>>> {
        let kernel = |p: &UOp| -> Result<Arc<dyn Kernel>> {
            let (linear, _, info) = program_parts(p)?;
            Ok(Arc::new(Signature::of(linear, info)))
        };
        programs.iter().map(kernel).collect()
    }
}

/// A program that does nothing.
impl Kernel for Signature {
    fn launch(&self, bufs: &[Arc<Storage>], vars: &[i64]) -> Result<()> {
        self.check(bufs, vars)
    }
}
