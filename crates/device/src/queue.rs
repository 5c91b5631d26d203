//! Queues: work for a device, in the order in which it is given. The host's own queue does it at
//! once; a `Line` does it on another thread, as a GPU does it on its own. Flows in: launches and
//! copies with their storage; flows out: nothing, or the first error of what was given.
//!
//! Invariant: what a queue was given has run when `synchronize` returns; and of work that touches the
//! same storage, in whatever queues, no two run at once (`storage`).

use crate::kernel::Kernel;
use crate::storage::Storage;
use monoglot_uop::{Error, ErrorKind, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

/// A queue of a device.
pub trait Queue: Send {
    /// Run a kernel of this device on storage in the order of the PARAMs' slots (variables left out) and
    /// the values of `ProgramInfo::vars`.
    ///
    /// # Errors
    /// `Run`, where buffers are missing or too small; and, here or in `synchronize`, what `Kernel::run`
    /// gives.
    fn launch(
        &mut self,
        kernel: &Arc<dyn Kernel>,
        bufs: &[Arc<Storage>],
        vars: &[i64],
    ) -> Result<()>;

    /// Copy all of `from`, of any device, to the start of `to`, of this one. What writes `from` in a queue
    /// of another device has run: that is the caller's to wait for.
    ///
    /// # Errors
    /// As `Storage::copy_from`, here or in `synchronize`.
    fn copy(&mut self, from: &Arc<Storage>, to: &Arc<Storage>) -> Result<()>;

    /// Wait until all that this queue was given has run.
    ///
    /// # Errors
    /// The first error of it; nothing that stood behind that in the queue was run.
    fn synchronize(&mut self) -> Result<()>;
}

/// The queue of a device that is the host: work is done when it is given.
pub(crate) struct Host;

impl Queue for Host {
    fn launch(
        &mut self,
        kernel: &Arc<dyn Kernel>,
        bufs: &[Arc<Storage>],
        vars: &[i64],
    ) -> Result<()> {
        kernel.run(&kernel.signature().arguments(bufs, vars)?)
    }

    fn copy(&mut self, from: &Arc<Storage>, to: &Arc<Storage>) -> Result<()> {
        to.copy_from(from)
    }

    fn synchronize(&mut self) -> Result<()> {
        Ok(())
    }
}

type Task = Box<dyn FnOnce() -> Result<()> + Send>;

/// A thread that does work in the order in which it comes, for any number of queues. It starts with the
/// first of it and ends with the `Line`.
#[derive(Default)]
pub(crate) struct Line {
    sender: OnceLock<Sender<(Task, Arc<Progress>)>>,
    all: Arc<Progress>,
}

/// A place in a line: work that is waited for together.
pub(crate) struct Place {
    line: Arc<Line>,
    progress: Arc<Progress>,
}

/// How far work has come.
#[derive(Default)]
struct Progress {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    given: u64,
    done: u64,
    error: Option<Error>,
}

impl Line {
    /// Wait for all work of all places.
    pub(crate) fn wait(&self) {
        drop(self.all.wait());
    }

    fn sender(&self) -> &Sender<(Task, Arc<Progress>)> {
        self.sender.get_or_init(|| {
            let (sender, receiver) = channel();
            let all = self.all.clone();
            std::thread::spawn(move || work(&receiver, &all));
            sender
        })
    }
}

fn work(receiver: &Receiver<(Task, Arc<Progress>)>, all: &Progress) {
    for (work, progress) in receiver {
        let failed = progress.lock().error.is_some();
        let result = if failed {
            Ok(())
        } else {
            let panicked = |_| {
                let message = "work of a queue panicked".into();
                Err(ErrorKind::Run { message }.into())
            };
            catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked)
        };
        progress.finish(result);
        all.finish(Ok(()));
    }
}

impl Place {
    /// A place of its own.
    pub(crate) fn new(line: &Arc<Line>) -> Place {
        Place {
            line: line.clone(),
            progress: Arc::default(),
        }
    }

    /// Have this done after what was given before.
    pub(crate) fn give(&self, work: Task) -> Result<()> {
        self.progress.lock().given += 1;
        self.line.all.lock().given += 1;
        let sent = self.line.sender().send((work, self.progress.clone()));
        sent.map_err(|_| {
            let message = "the thread of a queue has ended".into();
            ErrorKind::Run { message }.into()
        })
    }

    /// Wait for all of it; the first error.
    pub(crate) fn wait(&self) -> Result<()> {
        self.progress.wait().error.take().map_or(Ok(()), Err)
    }
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn finish(&self, result: Result<()>) {
        let mut state = self.lock();
        state.done += 1;
        if let Err(e) = result {
            state.error.get_or_insert(e);
        }
        self.changed.notify_all();
    }

    fn wait(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while state.done < state.given {
            state = self.changed.wait(state).unwrap_or_else(|e| e.into_inner());
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_in_order_and_stops_at_an_error() {
        let line = Arc::new(Line::default());
        let place = Place::new(&line);
        let other = Place::new(&line);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let push = |k: u32| {
            let seen = seen.clone();
            move || seen.lock().unwrap().push(k)
        };
        let fail = |k: u32| -> Task {
            let push = push(k);
            Box::new(move || {
                push();
                let message = format!("failed at {k}");
                Err(ErrorKind::Run { message }.into())
            })
        };
        let succeed = |k: u32| -> Task {
            let push = push(k);
            Box::new(move || {
                push();
                Ok(())
            })
        };
        place.give(succeed(1)).unwrap();
        place.give(fail(2)).unwrap();
        other.give(succeed(3)).unwrap();
        place.give(succeed(4)).unwrap();
        place.give(fail(5)).unwrap();
        assert_eq!(place.wait().unwrap_err().to_string(), "failed at 2");
        other.wait().unwrap();
        // What comes after the error was told runs again.
        place.give(succeed(6)).unwrap();
        other.give(Box::new(|| panic!("in a queue"))).unwrap();
        line.wait();
        place.wait().unwrap();
        assert!(other.wait().is_err());
        assert_eq!(*seen.lock().unwrap(), [1, 2, 3, 6]);
    }
}
