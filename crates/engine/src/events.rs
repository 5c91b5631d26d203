//! Events: what ran, told to whoever listens. Flows in: listeners, and each kernel and copy as it has run; flows
//! out: the same to every listener.
//!
//! Invariant: while nobody listens no clock is read. While somebody does, steps run one at a time, so that the
//! times are those of the steps alone.

use monoglot_uop::Device;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Instant;

/// A kernel or a copy that ran.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The kernel's name; `copy` where bytes were copied.
    pub kernel: &'a str,
    /// Where.
    pub device: Device,
    /// When it was given to its device.
    pub start: Instant,
    /// When it had run.
    pub end: Instant,
    /// Bytes that it must move.
    pub bytes: u64,
    /// Arithmetic operations, as they are estimated.
    pub flops: u64,
}

/// Somebody who listens, until this is dropped.
pub struct Listener(Arc<Hear>);

type Hear = dyn Fn(&Event) + Send + Sync;

static LISTENERS: RwLock<Vec<Arc<Hear>>> = RwLock::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Have each kernel and copy told as it has run, in whatever thread that is, until the listener is dropped.
pub fn listen(hear: impl Fn(&Event) + Send + Sync + 'static) -> Listener {
    let hear: Arc<Hear> = Arc::new(hear);
    let mut all = LISTENERS.write().unwrap_or_else(|e| e.into_inner());
    all.push(hear.clone());
    COUNT.store(all.len(), Ordering::Relaxed);
    Listener(hear)
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut all = LISTENERS.write().unwrap_or_else(|e| e.into_inner());
        all.retain(|hear| !Arc::ptr_eq(hear, &self.0));
        COUNT.store(all.len(), Ordering::Relaxed);
    }
}

/// Whether anybody listens.
pub(crate) fn are_heard() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// Tell of a step.
pub(crate) fn tell(event: &Event) {
    // A listener may begin or end to listen: nothing is held while they hear.
    let all = LISTENERS.read().unwrap_or_else(|e| e.into_inner()).clone();
    all.iter().for_each(|hear| hear(event));
}
