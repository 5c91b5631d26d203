//! Storage: bytes on a device. What they lie in is the device's `Memory`; a `Storage` is the whole
//! of one or a part of it. Flows in: places and bytes; flows out: bytes, or a typed error where a
//! place is outside.
//!
//! Invariant: whoever reads, writes, copies or launches has a claim on every memory that he touches, and
//! a claim to write is nobody else's. So calls from many threads are safe in any order; which order it
//! is to be is the callers' business.

use crate::host::{self, Block};
use crate::memory::Memory;
use monoglot_uop::{Device, Error, ErrorKind, Result};
use smallvec::SmallVec;
use std::any::Any;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Bytes on a device, freed when the last `Arc` of a part of them goes.
pub struct Storage {
    offset: usize,
    bytes: usize,
    held: Arc<Held>,
}

struct Held {
    device: Device,
    memory: Box<dyn Memory>,
    claim: RwLock<()>,
}

/// Bytes that are copied at once between memories of which the host can reach neither.
const PASSAGE: usize = 4 << 20;

impl Storage {
    /// Host memory aligned to 64 bytes, contents unspecified.
    ///
    /// # Errors
    /// `Memory`, where the machine has not that much available.
    pub fn host(device: Device, bytes: usize) -> Result<Arc<Storage>> {
        Ok(Storage::of(device, Block::take(device, bytes)?))
    }

    /// The same with places for so many bytes, of which only the first `used` will be written: behind them is
    /// nothing that counts.
    ///
    /// # Errors
    /// As `host`, of what is used.
    pub fn host_within(device: Device, bytes: usize, used: usize) -> Result<Arc<Storage>> {
        Ok(Storage::of(device, Block::within(device, bytes, used)?))
    }

    /// An empty vector with room for so many values, for what is read from a device.
    ///
    /// # Errors
    /// `Memory`, where the machine has not that much available: decided before it is asked for.
    pub fn room<T>(device: Device, count: usize) -> Result<Vec<T>> {
        host::room(device, count)
    }

    /// All of this memory of a device.
    pub fn of(device: Device, memory: impl Memory) -> Arc<Storage> {
        Arc::new(Storage {
            offset: 0,
            bytes: memory.bytes(),
            held: Arc::new(Held {
                device,
                memory: Box::new(memory),
                claim: RwLock::default(),
            }),
        })
    }

    /// A part of this storage, which it keeps alive. None where the part is not within it.
    pub fn slice(&self, offset: usize, bytes: usize) -> Option<Arc<Storage>> {
        if offset.checked_add(bytes)? > self.bytes {
            return None;
        }
        Some(Arc::new(Storage {
            offset: self.offset + offset,
            bytes,
            held: self.held.clone(),
        }))
    }

    /// The device that it is on.
    pub fn device(&self) -> Device {
        self.held.device
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The memory that it is part of, for the device that made it, and where it begins there.
    pub fn memory(&self) -> (&dyn Any, usize) {
        (&*self.held.memory, self.offset)
    }

    /// Where its bytes are, where the host can reach them. To follow it takes a claim.
    pub(crate) fn pointer(&self) -> Option<*mut u8> {
        let start = self.held.memory.host()?.as_ptr();
        // SAFETY: `offset` is within the memory, as `of` and `slice` see to.
        Some(unsafe { start.add(self.offset) })
    }

    /// Copy bytes out, from `offset` on.
    ///
    /// # Errors
    /// `Run` past the end or without bytes, `Io` where a file cannot be read.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        self.check(offset, out.len(), "read")?;
        let _claims = claim([(self, false)]);
        self.read_claimed(offset, out)
    }

    /// Copy bytes in, from `offset` on.
    ///
    /// # Errors
    /// `Run` past the end or where the storage cannot be written.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len(), "write")?;
        let _claims = claim([(self, true)]);
        self.write_claimed(offset, bytes)
    }

    /// Copy all of `from`, of any device, to the start of this storage; without a buffer between where the
    /// host can reach one of the two.
    ///
    /// # Errors
    /// As `read` and `write`.
    pub fn copy_from(&self, from: &Storage) -> Result<()> {
        self.check(0, from.bytes, "write")?;
        let _claims = claim([(self, true), (from, false)]);
        match (self.pointer(), from.pointer()) {
            // SAFETY: both ranges are within their memories, which may be one; both are claimed.
            (Some(to), Some(p)) => unsafe { std::ptr::copy(p, to, from.bytes) },
            (Some(to), None) => {
                // SAFETY: within the memory, initialised, and claimed to be written.
                let out = unsafe { std::slice::from_raw_parts_mut(to, from.bytes) };
                from.read_claimed(0, out)?;
            }
            (None, Some(p)) => {
                // SAFETY: within the memory, initialised, and claimed: nobody writes it.
                let bytes = unsafe { std::slice::from_raw_parts(p, from.bytes) };
                self.write_claimed(0, bytes)?;
            }
            (None, None) => {
                let mut passage = vec![0; from.bytes.min(PASSAGE)];
                for at in (0..from.bytes).step_by(PASSAGE) {
                    let part = &mut passage[..PASSAGE.min(from.bytes - at)];
                    from.read_claimed(at, part)?;
                    self.write_claimed(at, part)?;
                }
            }
        }
        Ok(())
    }

    /// Bytes of host storage in use by anyone.
    pub fn live_bytes() -> usize {
        host::live_bytes()
    }

    fn read_claimed(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        let Some(p) = self.pointer() else {
            return self.held.memory.read(self.offset + offset, out);
        };
        // SAFETY: the range is within the memory and claimed; `out` is the caller's alone.
        unsafe { std::ptr::copy_nonoverlapping(p.add(offset), out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    fn write_claimed(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let Some(p) = self.pointer() else {
            return self.held.memory.write(self.offset + offset, bytes);
        };
        // SAFETY: the range is within the memory and claimed to be written; `bytes` is a slice of
        // something else.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), p.add(offset), bytes.len()) };
        Ok(())
    }

    fn check(&self, offset: usize, len: usize, what: &str) -> Result<()> {
        if offset.checked_add(len).is_some_and(|end| end <= self.bytes) {
            return Ok(());
        }
        let message = format!(
            "{what} of {len} bytes at {offset} in storage of {} on {}",
            self.bytes,
            self.device()
        );
        Err(Error::new(ErrorKind::Run { message }))
    }
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Storage({}, {} bytes)", self.device(), self.bytes)
    }
}

/// The right to use memories, until it is dropped.
pub(crate) struct Claims<'a> {
    _all: SmallVec<[Claim<'a>; 8]>,
}

/// What is held of a memory: to read it beside others, or to write it alone.
enum Claim<'a> {
    Read { _held: RwLockReadGuard<'a, ()> },
    Write { _held: RwLockWriteGuard<'a, ()> },
}

/// Claim the memories of these storages, each to be read or (true) written, once nobody's claim stands
/// against it. Claims are taken in the order of addresses, so that no two callers wait for each other.
pub(crate) fn claim<'a>(wanted: impl IntoIterator<Item = (&'a Storage, bool)>) -> Claims<'a> {
    let mut order: SmallVec<[(&Held, bool); 8]> =
        wanted.into_iter().map(|(s, w)| (&*s.held, w)).collect();
    // Of one memory's claims that to write comes first, and is the one that is kept.
    order.sort_unstable_by_key(|&(held, writes)| (std::ptr::from_ref(held), !writes));
    order.dedup_by_key(|&mut (held, _)| std::ptr::from_ref(held));
    let take = |(held, writes): (&'a Held, bool)| {
        // The lock guards nothing that a panic could leave half done.
        if writes {
            let held = held.claim.write().unwrap_or_else(|e| e.into_inner());
            Claim::Write { _held: held }
        } else {
            let held = held.claim.read().unwrap_or_else(|e| e.into_inner());
            Claim::Read { _held: held }
        }
    };
    Claims {
        _all: order.into_iter().map(take).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn bytes_are_where_they_were_put() {
        let s = Storage::host(Device::new("CPU"), 1000).unwrap();
        assert_eq!(s.pointer().unwrap() as usize % 64, 0);
        s.write(10, &[1, 2, 3]).unwrap();
        let mut out = [0; 3];
        s.slice(10, 3).unwrap().read(0, &mut out).unwrap();
        assert_eq!(out, [1, 2, 3]);
        assert!(s.write(998, &[1, 2, 3]).is_err());
        assert!(s.slice(999, 2).is_none());
    }

    #[test]
    fn a_copy_within_one_storage_moves() {
        let s = Storage::host(Device::new("CPU"), 8).unwrap();
        s.write(0, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        let to = s.slice(2, 6).unwrap();
        let from = s.slice(0, 6).unwrap();
        to.copy_from(&from).unwrap();
        let mut out = [0; 8];
        s.read(0, &mut out).unwrap();
        assert_eq!(out, [1, 2, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_read_beside_writes_sees_one_of_them_whole() {
        const N: usize = 1 << 16;
        let s = Storage::host(Device::new("CPU"), N).unwrap();
        s.write(0, &[0; N]).unwrap();
        let begin = Barrier::new(4);
        std::thread::scope(|scope| {
            for k in 1..=2u8 {
                let s = &s;
                let begin = &begin;
                scope.spawn(move || {
                    begin.wait();
                    (0..200).for_each(|_| s.write(0, &[k; N]).unwrap());
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut out = vec![0; N];
                    begin.wait();
                    for _ in 0..200 {
                        s.read(0, &mut out).unwrap();
                        assert!(out.iter().all(|b| *b == out[0]));
                    }
                });
            }
        });
    }

    #[test]
    fn two_that_claim_both_ways_do_not_wait_for_each_other() {
        let new = || Storage::host(Device::new("CPU"), 64).unwrap();
        let a = new();
        let b = new();
        std::thread::scope(|scope| {
            for (to, from) in [(&a, &b), (&b, &a)] {
                scope.spawn(|| (0..10_000).for_each(|_| to.copy_from(from).unwrap()));
            }
        });
    }
}
