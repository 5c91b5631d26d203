//! The queues of one run of a program: of each device one, in which its steps stand in order. Flows in:
//! steps; flows out: what they do, which has been done when `finish` returns, or the first error.
//!
//! Invariant: devices are ordered where bytes go from one to the other, and nowhere else.

use monoglot_device::{Kernel, Queue, Storage, open};
use monoglot_uop::{Device, Result};
use std::sync::Arc;

/// Queues that are open, by device.
#[derive(Default)]
pub(crate) struct Queues {
    open: Vec<(Device, Box<dyn Queue>)>,
}

impl Queues {
    /// Launch a kernel on its device.
    pub(crate) fn launch(
        &mut self,
        device: Device,
        kernel: &Arc<dyn Kernel>,
        bufs: &[Arc<Storage>],
        vars: &[i64],
    ) -> Result<()> {
        self.of(device)?.launch(kernel, bufs, vars)
    }

    /// Copy all of `from` to the start of `to`.
    pub(crate) fn copy(&mut self, from: &Arc<Storage>, to: &Arc<Storage>) -> Result<()> {
        let source = from.device();
        let target = to.device();
        if source == target {
            return self.of(target)?.copy(from, to);
        }
        // What writes the source has run before, and what writes it next comes after.
        self.wait(source)?;
        self.of(target)?.copy(from, to)?;
        self.wait(target)
    }

    /// Wait until all steps of a device have run.
    pub(crate) fn wait(&mut self, device: Device) -> Result<()> {
        match self.open.iter_mut().find(|(d, _)| *d == device) {
            Some((_, queue)) => queue.synchronize(),
            None => Ok(()),
        }
    }

    /// Wait until all steps have run.
    ///
    /// # Errors
    /// The first of any.
    pub(crate) fn finish(mut self) -> Result<()> {
        let mut result = Ok(());
        for (_, queue) in &mut self.open {
            // What one device has failed at, others may still be doing.
            result = result.and(queue.synchronize());
        }
        result
    }

    fn of(&mut self, device: Device) -> Result<&mut dyn Queue> {
        let found = self.open.iter().position(|(d, _)| *d == device);
        let at = match found {
            Some(at) => at,
            None => {
                self.open.push((device, open(device)?.queue()?));
                self.open.len() - 1
            }
        };
        Ok(&mut *self.open[at].1)
    }
}
