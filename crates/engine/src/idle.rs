//! What captured programs read from call to call. Flows in: versions that a program's calls read again and
//! again; flows out: the same ones, for the next call, without their being asked for: what all threads would
//! write to for that goes from core to core.
//!
//! Invariant: a version is read by a call that runs, or by nobody who minds: whoever wants to write it has
//! calls that are not running let go of it.

use monoglot_device::Storage;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

/// What one call at a time reads, by number.
#[derive(Default)]
pub(crate) struct Known(Arc<Mutex<Readings>>);

/// See `Known`.
pub(crate) type Readings = Vec<Option<Standing>>;

/// A version that is read from call to call.
pub(crate) struct Standing {
    /// Which value of what held it this was.
    pub(crate) edition: u64,
    /// The storage, as nobody else counts it.
    pub(crate) storage: Arc<Storage>,
    version: usize,
    _reading: Box<dyn Any + Send>,
}

/// Those of all programs.
static ALL: Mutex<Vec<Weak<Mutex<Readings>>>> = Mutex::new(Vec::new());

impl Standing {
    /// Storage of the version that is there, which `reading` keeps others from writing.
    pub(crate) fn new(
        edition: u64,
        storage: Arc<Storage>,
        version: usize,
        reading: impl Any + Send,
    ) -> Standing {
        Standing {
            edition,
            storage,
            version,
            _reading: Box::new(reading),
        }
    }
}

impl Known {
    /// Nothing yet.
    pub(crate) fn new() -> Known {
        let known = Known::default();
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&known.0));
        known
    }

    /// What a call reads, while it runs.
    pub(crate) fn running(&self) -> MutexGuard<'_, Readings> {
        // Each change leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Have calls that are not running let go of the version that is there.
pub(crate) fn let_go(version: usize) {
    let all: Vec<Arc<Mutex<Readings>>> = {
        let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    };
    for known in all {
        let mut known = match known.try_lock() {
            Ok(known) => known,
            Err(TryLockError::Poisoned(known)) => known.into_inner(),
            Err(TryLockError::WouldBlock) => continue,
        };
        let of_it = |s: &mut Standing| s.version == version;
        known.iter_mut().for_each(|s| drop(s.take_if(of_it)));
    }
}
