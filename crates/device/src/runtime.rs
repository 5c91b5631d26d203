//! What every device is to the engine: storage, compiled programs, and queues that run them. Flows
//! in: programs, sizes and settings; flows out: kernels, storage and queues. Always: whoever
//! implements it may be called from many threads at once.

use crate::code::Packed;
use crate::folder::TrustedCode;
use crate::kernel::Kernel;
use crate::queue::Queue;
use crate::storage::Storage;
use monoglot_uop::{Device, ErrorKind, Program, ProgramInfo, Result, Target};
use std::sync::Arc;

/// A kernel that was kept as code, and the record of its program.
pub type Unpacked = (Arc<dyn Kernel>, Arc<ProgramInfo>);

/// One opened device.
pub trait Runtime: Send + Sync {
    /// Its name.
    fn device(&self) -> Device {
        self.target().device
    }

    /// The machine, as the compiler sees it.
    fn target(&self) -> &Target;

    /// What it is, and what it is on this machine: one line.
    fn about(&self) -> String;

    /// Whether what is written to its storage can be read again.
    fn holds_data(&self) -> bool {
        true
    }

    /// Whether its kernels run on the thread that launches them, on memory that the host reaches: then lists of
    /// launches (`Commands`) may hold them.
    fn runs_at_once(&self) -> bool {
        false
    }

    /// Storage of so many bytes, contents unspecified.
    ///
    /// # Errors
    /// `Memory`, where there is not that much: decided before it is asked for.
    fn alloc(&self, bytes: usize) -> Result<Arc<Storage>> {
        Storage::host(self.device(), bytes)
    }

    /// Storage of so many bytes of which only the first `used` will be written, as of a length that could be
    /// greater. What lies behind may be read, and holds nothing; it takes no memory where the device can do that.
    ///
    /// # Errors
    /// As `alloc`.
    fn alloc_within(&self, bytes: usize, used: usize) -> Result<Arc<Storage>> {
        match used < bytes {
            true => Storage::host_within(self.device(), bytes, used),
            false => self.alloc(bytes),
        }
    }

    /// Compile programs, many at once; the results are in their order. A
    /// program compiled before in this process, or found in the disk cache, costs no compiler.
    ///
    /// # Errors
    /// `NoDevice` where no compiler is found, `Compile` where one rejects a source.
    fn compile(&self, programs: &[Program]) -> Result<Vec<Arc<dyn Kernel>>>;

    /// What code of this device depends on besides the programs that it is of: where another device says the
    /// same, its code runs here. None where kernels are not kept as code.
    fn code_key(&self) -> Option<String> {
        None
    }

    /// Programs as code that can be kept; None where there is no such thing.
    ///
    /// # Errors
    /// As `compile`.
    fn pack(&self, _programs: &[Program]) -> Result<Option<Packed>> {
        Ok(None)
    }

    /// The kernels of programs that `pack` was given by a device of the same key, with their records.
    ///
    /// # Errors
    /// `Format` where the code is of another form, `NoDevice` where code cannot be run here.
    fn unpack(&self, _code: &TrustedCode) -> Result<Vec<Unpacked>> {
        let op = self.device().name().into();
        let message = "kernels of it are not kept as code".into();
        Err(ErrorKind::Device { op, message }.into())
    }

    /// The machine code of a PROGRAM as text, where the device has such a thing.
    fn assembly(&self, _program: &Program) -> Result<Option<String>> {
        Ok(None)
    }

    /// A queue with an order of its own: two of them are ordered by who waits for what alone.
    ///
    /// # Errors
    /// Where the device runs nothing.
    fn queue(&self) -> Result<Box<dyn Queue>>;

    /// Wait until everything that any queue was given has run.
    fn synchronize(&self) {}

    /// Run a kernel to its end: a queue of one.
    ///
    /// # Errors
    /// As `Queue::launch`.
    fn launch(&self, kernel: &Arc<dyn Kernel>, bufs: &[Arc<Storage>], vars: &[i64]) -> Result<()> {
        let mut queue = self.queue()?;
        queue.launch(kernel, bufs, vars)?;
        queue.synchronize()
    }

    /// Copy bytes from the host to `offset` in storage of this device, once what was launched has run.
    ///
    /// # Errors
    /// As `Storage::write`.
    fn upload(&self, to: &Storage, offset: usize, bytes: &[u8]) -> Result<()> {
        self.synchronize();
        to.write(offset, bytes)
    }

    /// Copy bytes at `offset` of storage of this device to the host, once what was launched has run.
    ///
    /// # Errors
    /// As `Storage::read`.
    fn download(&self, from: &Storage, offset: usize, out: &mut [u8]) -> Result<()> {
        self.synchronize();
        from.read(offset, out)
    }
}
