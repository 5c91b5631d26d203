//! NULL: a CPU as a target, without the machine. Storage has a length and no bytes, compiling calls
//! no compiler, launching does nothing: what is left is the cost of our own stages. Flows in:
//! PROGRAMs and launches; flows out: kernels that do nothing. Always: what can be read of its
//! storage is an error.

use crate::config::Config;
use crate::cpu;
use crate::kernel::{Kernel, Signature, program_parts};
use crate::kind::{Kind, Name};
use crate::memory::{Memory, no_data};
use crate::queue::Queue;
use crate::runtime::Runtime;
use crate::storage::Storage;
use monoglot_uop::{Program, Result, Target};
use std::sync::Arc;

/// The kind, for the registry.
pub(crate) const KIND: Kind = Kind {
    name: "NULL",
    renderers: &["C", "X86"],
    open,
};

struct Null {
    target: Target,
}

/// A length.
struct Nothing(usize);

/// This machine's CPU, or an ordinary one of the level that is named.
fn open(name: &Name, config: &Config) -> Result<Arc<dyn Runtime>> {
    let mut target = cpu::named(&KIND, name, config)?;
    if name.arch.is_some() {
        target = cpu::ordinary(target, config);
    }
    Ok(Arc::new(Null { target }))
}

// SAFETY: there are no bytes that the host could reach.
unsafe impl Memory for Nothing {
    fn bytes(&self) -> usize {
        self.0
    }

    fn read(&self, _offset: usize, _out: &mut [u8]) -> Result<()> {
        Err(no_data(
            "device NULL holds no data: it compiles and runs nothing",
        ))
    }

    /// Data that comes to NULL is gone.
    fn write(&self, _offset: usize, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }
}

impl Runtime for Null {
    fn target(&self) -> &Target {
        &self.target
    }

    fn about(&self) -> String {
        format!(
            "renders {} for {}, compiles and runs nothing",
            self.target.dialect.name(),
            self.target.arch
        )
    }

    fn holds_data(&self) -> bool {
        false
    }

    fn alloc_within(&self, bytes: usize, _used: usize) -> Result<Arc<Storage>> {
        self.alloc(bytes)
    }

    fn alloc(&self, bytes: usize) -> Result<Arc<Storage>> {
        Ok(Storage::of(self.target.device, Nothing(bytes)))
    }

    fn compile(&self, programs: &[Program]) -> Result<Vec<Arc<dyn Kernel>>> {
        let kernel = |p: &Program| -> Result<Arc<dyn Kernel>> {
            let (linear, info) = program_parts(p)?;
            Ok(Arc::new(Idle(Signature::of(linear, info))))
        };
        programs.iter().map(kernel).collect()
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        Ok(Box::new(Nowhere))
    }
}

/// A program that does nothing.
struct Idle(Signature);

impl Kernel for Idle {
    fn signature(&self) -> &Signature {
        &self.0
    }
}

/// A queue that does nothing, of which the arguments are checked all the same.
struct Nowhere;

impl Queue for Nowhere {
    fn launch(
        &mut self,
        kernel: &Arc<dyn Kernel>,
        bufs: &[Arc<Storage>],
        vars: &[i64],
    ) -> Result<()> {
        kernel.signature().check(bufs, vars)
    }

    fn copy(&mut self, _from: &Arc<Storage>, _to: &Arc<Storage>) -> Result<()> {
        Ok(())
    }

    fn synchronize(&mut self) -> Result<()> {
        Ok(())
    }
}
