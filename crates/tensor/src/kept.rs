//! What a function was made into, for calls that look alike. Flows in: what was made, the latest last; flows out:
//! that which stands for a call. Invariant: no more than so many are kept, and what was used longest ago goes
//! first.

use std::sync::{Arc, Mutex, MutexGuard};

/// As many as one function keeps.
const MOST: usize = 128;

pub(crate) struct Kept<T>(Mutex<Vec<Arc<T>>>);

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept(Mutex::default())
    }
}

impl<T> Kept<T> {
    /// The one for which `is` holds; it is the latest from now on.
    pub(crate) fn find(&self, is: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        if let Some(latest) = self.latest().filter(|t| is(t)) {
            return Some(latest);
        }
        let known = self.lock().clone();
        let found = known.iter().rev().find(|t| is(t))?;
        let mut all = self.lock();
        all.retain(|t| !Arc::ptr_eq(t, found));
        all.push(found.clone());
        Some(found.clone())
    }

    /// That which was used last.
    pub(crate) fn latest(&self) -> Option<Arc<T>> {
        self.lock().last().cloned()
    }

    /// Keep another.
    pub(crate) fn keep(&self, made: T) -> Arc<T> {
        let made = Arc::new(made);
        let mut all = self.lock();
        if all.len() >= MOST {
            all.remove(0);
        }
        all.push(made.clone());
        made
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<T>>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}
