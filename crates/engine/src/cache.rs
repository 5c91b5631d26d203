//! A bounded map of what is expensive to make. Flows in: keys, and a way to make what is missing; flows
//! out: values, each made by one thread while others that want it wait and other keys go on.
//!
//! Invariant: no lock is held while a value is made, and nobody waits while he has promised a value, so
//! no two threads wait for each other. What was used least recently goes first. A failure is nobody
//! else's: whoever waited for it tries for himself.

use monoglot_uop::Result;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::Hash;
use std::sync::{Condvar, Mutex, MutexGuard};

/// At most so many values, by key.
pub(crate) struct Cache<K, V> {
    most: usize,
    entries: Mutex<Entries<K, V>>,
    changed: Condvar,
}

struct Entries<K, V> {
    map: FxHashMap<K, Entry<V>>,
    /// Counts uses.
    clock: u64,
}

enum Entry<V> {
    /// Somebody makes it now.
    Promised,
    /// The value, and when it was used last.
    Made(V, u64),
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// An empty cache that keeps at most `most` values; values in use live on with their users.
    pub(crate) const fn new(most: usize) -> Cache<K, V> {
        Cache {
            most,
            entries: Mutex::new(Entries {
                map: FxHashMap::with_hasher(FxBuildHasher),
                clock: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// The value of a key, made if nobody has made it.
    ///
    /// # Errors
    /// What `make` fails with; nothing is kept of it.
    pub(crate) fn get(&self, key: &K, make: impl FnOnce() -> Result<V>) -> Result<V> {
        let mut make = Some(make);
        let mut made = self.get_all(std::slice::from_ref(key), |_| {
            let make = make.take().expect("one key is promised once");
            Ok(vec![make()?])
        })?;
        Ok(made.remove(0))
    }

    /// The value of a key, if it is there.
    pub(crate) fn find(&self, key: &K) -> Option<V> {
        self.lock().find(key)
    }

    /// The values of these keys, which differ. Those that nobody has made or makes now are made together
    /// by `make`, in the order of the keys that it is given.
    ///
    /// # Errors
    /// As `get`.
    pub(crate) fn get_all(
        &self,
        keys: &[K],
        mut make: impl FnMut(&[K]) -> Result<Vec<V>>,
    ) -> Result<Vec<V>> {
        let mut values: Vec<Option<V>> = vec![None; keys.len()];
        loop {
            let Some(promise) = self.look(keys, &mut values) else {
                let values = values.into_iter();
                return Ok(values.map(|v| v.expect("all values were there")).collect());
            };
            let made = make(&promise.keys)?;
            promise.keep(made);
        }
    }

    /// Fill in what is there, waiting for what others make, and promise the rest; None once all is there.
    fn look(&self, keys: &[K], values: &mut [Option<V>]) -> Option<Promise<'_, K, V>> {
        let mut entries = self.lock();
        loop {
            let mut promised = Vec::new();
            let mut waiting = false;
            for (key, value) in keys.iter().zip(values.iter_mut()) {
                if value.is_some() {
                    continue;
                }
                *value = entries.find(key);
                if value.is_some() {
                    continue;
                }
                if entries.map.contains_key(key) {
                    waiting = true;
                } else {
                    entries.map.insert(key.clone(), Entry::Promised);
                    promised.push(key.clone());
                }
            }
            if !promised.is_empty() {
                return Some(Promise {
                    cache: self,
                    keys: promised,
                });
            }
            if !waiting {
                return None;
            }
            entries = self
                .changed
                .wait(entries)
                .unwrap_or_else(|e| e.into_inner());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries<K, V>> {
        // The map changes by single calls: whatever panicked, it is whole.
        self.entries.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Entries<K, V> {
    fn find(&mut self, key: &K) -> Option<V> {
        let Some(Entry::Made(value, used)) = self.map.get_mut(key) else {
            return None;
        };
        self.clock += 1;
        *used = self.clock;
        Some(value.clone())
    }

    /// Take out what was used least recently until no more than `most` values are left.
    fn evict(&mut self, most: usize) -> Vec<(K, Entry<V>)> {
        let made = |e: &Entry<V>| match e {
            Entry::Made(_, used) => Some(*used),
            Entry::Promised => None,
        };
        let mut uses: Vec<u64> = self.map.values().filter_map(made).collect();
        if uses.len() <= most {
            return Vec::new();
        }
        let gone = uses.len() - most;
        let last = *uses.select_nth_unstable(gone - 1).1;
        let old = self
            .map
            .extract_if(|_, entry| made(entry).is_some_and(|used| used <= last));
        old.collect()
    }
}

/// Keys whose values this thread makes. Dropped without values, others may make them.
struct Promise<'a, K: Hash + Eq + Clone, V: Clone> {
    cache: &'a Cache<K, V>,
    keys: Vec<K>,
}

impl<K: Hash + Eq + Clone, V: Clone> Promise<'_, K, V> {
    fn keep(mut self, values: Vec<V>) {
        let mut entries = self.cache.lock();
        for (key, value) in std::mem::take(&mut self.keys).into_iter().zip(values) {
            entries.clock += 1;
            let used = entries.clock;
            entries.map.insert(key, Entry::Made(value, used));
        }
        let old = entries.evict(self.cache.most);
        drop(entries);
        self.cache.changed.notify_all();
        // What goes may be large: it goes without the lock.
        drop(old);
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Drop for Promise<'_, K, V> {
    fn drop(&mut self) {
        if self.keys.is_empty() {
            return;
        }
        let mut entries = self.cache.lock();
        for key in &self.keys {
            entries.map.remove(key);
        }
        drop(entries);
        self.cache.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use monoglot_uop::Error;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_key_is_made_once_and_others_go_on() {
        let cache: Cache<u32, u32> = Cache::new(8);
        let begun = Barrier::new(4);
        let other_made = Barrier::new(2);
        let made = AtomicUsize::new(0);
        std::thread::scope(|s| {
            s.spawn(|| {
                let value = cache.get(&1, || {
                    begun.wait();
                    // Would wait for ever if key 2 had to wait for key 1.
                    other_made.wait();
                    made.fetch_add(1, Ordering::Relaxed);
                    Ok(10)
                });
                assert_eq!(value, Ok(10));
            });
            for _ in 0..2 {
                s.spawn(|| {
                    begun.wait();
                    let value = cache.get(&1, || {
                        made.fetch_add(1, Ordering::Relaxed);
                        Ok(11)
                    });
                    assert_eq!(value, Ok(10));
                });
            }
            begun.wait();
            assert_eq!(cache.get(&2, || Ok(20)), Ok(20));
            other_made.wait();
        });
        assert_eq!(made.into_inner(), 1);
        assert_eq!(cache.lock().find(&1), Some(10));
    }

    #[test]
    fn two_that_want_each_others_keys_both_go_on() {
        let cache: Cache<u32, u32> = Cache::new(8);
        let both = Barrier::new(2);
        let made = AtomicUsize::new(0);
        let want = |first: u32, second: u32| {
            let cache = &cache;
            let both = &both;
            let made = &made;
            move || {
                let mut met = false;
                let make = |keys: &[u32]| {
                    made.fetch_add(keys.len(), Ordering::Relaxed);
                    if !std::mem::replace(&mut met, true) {
                        both.wait();
                    }
                    Ok(keys.iter().map(|k| k * 10).collect())
                };
                // Each has one key to itself, so that both make something at once.
                let values = cache.get_all(&[first, 5, 6, second], make);
                assert_eq!(values, Ok(vec![first * 10, 50, 60, second * 10]));
            }
        };
        std::thread::scope(|s| {
            s.spawn(want(1, 2));
            s.spawn(want(3, 4));
        });
        assert_eq!(made.into_inner(), 6);
    }

    #[test]
    fn a_failure_is_tried_again_by_who_waited() {
        let cache: Cache<u32, u32> = Cache::new(8);
        let begun = Barrier::new(2);
        std::thread::scope(|s| {
            s.spawn(|| {
                let failed = cache.get(&1, || {
                    begun.wait();
                    Err(Error::argument("make", "not today"))
                });
                assert!(failed.is_err());
            });
            begun.wait();
            assert_eq!(cache.get(&1, || Ok(7)), Ok(7));
        });
        let panicked = std::panic::catch_unwind(|| cache.get(&2, || panic!("while making")));
        assert!(panicked.is_err());
        assert_eq!(cache.get(&2, || Ok(8)), Ok(8));
    }

    #[test]
    fn what_was_used_least_recently_goes_first() {
        let cache: Cache<u32, u32> = Cache::new(3);
        for k in [1, 2, 3, 1, 4] {
            assert_eq!(cache.get(&k, || Ok(k)), Ok(k));
        }
        let left: Vec<u32> = (1..=4).filter(|k| cache.lock().find(k).is_some()).collect();
        assert_eq!(left, [1, 3, 4]);
        // Who asks for more at once than are kept gets them all.
        let all = cache.get_all(&[5, 6, 7, 8, 9], |keys| Ok(keys.to_vec()));
        assert_eq!(all, Ok(vec![5, 6, 7, 8, 9]));
        assert_eq!(
            (1..=9).filter(|k| cache.lock().find(k).is_some()).count(),
            3
        );
    }
}
