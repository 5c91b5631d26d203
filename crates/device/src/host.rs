//! Host memory, in blocks: what is freed is kept for the next request of about its size (`kept`), because the
//! page faults of a fresh 64 MiB block cost more than most kernels. What is asked for is compared with the
//! device's limit, and with what the machine has, before it is asked for. Flows in: how many bytes; flows
//! out: a block of so many, whose contents are unspecified, or a typed error. Invariant: a block
//! belongs to one owner until it is dropped.

use crate::kept::{self, Kept, Size};
use crate::memory::Memory;
use crate::raw::{ALIGN, Raw, memory_info};
use monoglot_uop::{Device, Error, ErrorKind, Result};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of host storage in use, over all devices.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Bytes of host storage in use by anyone.
pub(crate) fn live_bytes() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// A piece of host memory.
pub(crate) struct Block {
    device: Device,
    memory: Raw,
    size: Size,
    /// What was asked for, and what of it is used.
    bytes: usize,
    live: usize,
}

// SAFETY: a block's bytes are its own, were initialised when they came from the system, and stay where they
// are until it is dropped.
unsafe impl Memory for Block {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn host(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.memory.ptr())
    }
}

/// Requests are compared with available memory each time this many bytes were asked for.
const CHECK: usize = 16 << 20;

/// An empty vector with room for so many values of the host's own.
///
/// # Errors
/// `Memory`, as `Block::take`.
pub(crate) fn room<T>(device: Device, count: usize) -> Result<Vec<T>> {
    let bytes = count.saturating_mul(size_of::<T>());
    let available = match bytes < CHECK {
        true => u64::MAX,
        false => available(&mut kept::lock(), bytes),
    };
    let mut room = Vec::new();
    if bytes as u64 > available || room.try_reserve_exact(count).is_err() {
        return Err(too_much(device, bytes, available));
    }
    Ok(room)
}

fn too_much(device: Device, wanted: usize, available: u64) -> Error {
    let kind = ErrorKind::Memory {
        device: device.name().into(),
        wanted: wanted as u64,
        available,
    };
    Error::new(kind)
}

/// Sizes are rounded up to an eighth of a power of two, so that blocks are found again.
fn size_class(bytes: usize) -> Option<usize> {
    let bytes = bytes.max(ALIGN);
    let step = (bytes.checked_next_power_of_two()? / 8).max(ALIGN);
    bytes.checked_next_multiple_of(step)
}

impl Block {
    /// A block of so many bytes for a device, contents unspecified.
    ///
    /// # Errors
    /// `Limit`, where the device may not have that much; `Memory`, where the machine has not that much
    /// available.
    pub(crate) fn take(device: Device, bytes: usize) -> Result<Block> {
        Block::within(device, bytes, bytes)
    }

    /// A block with addresses for so many bytes, of which the first `used` will be written: what lies behind
    /// takes no memory.
    ///
    /// # Errors
    /// As `take`, of what is used.
    pub(crate) fn within(device: Device, bytes: usize, used: usize) -> Result<Block> {
        let used = Raw::taken(bytes, used);
        let mut kept = kept::lock();
        let Some((class, room)) = size_class(used).zip(size_class(bytes)) else {
            let available = available(&mut kept, usize::MAX);
            return Err(too_much(device, bytes, available));
        };
        // What is used whole is of its class; of another there are addresses alone.
        let room = if used == bytes { class } else { room };
        let (shape, memory) = match kept.take(device, Size { room, taken: class }) {
            Some(found) => found,
            None => {
                // Where the class is over the limit, the bytes may not be.
                let taken = kept.make_room(device, class).or_else(|_| {
                    let exact = used.max(1).next_multiple_of(ALIGN);
                    kept.make_room(device, exact)
                });
                let taken = taken.map_err(|over| {
                    Error::new(ErrorKind::Limit {
                        device: device.name().into(),
                        wanted: used as u64,
                        in_use: over.in_use as u64,
                        kept: over.kept as u64,
                        limit: over.limit.unwrap_or(usize::MAX) as u64,
                    })
                })?;
                let room = if used == bytes { taken } else { room };
                let size = Size { room, taken };
                (size, fresh(&mut kept, device, size)?)
            }
        };
        kept.began(device, shape.taken);
        LIVE.fetch_add(used, Ordering::Relaxed);
        Ok(Block {
            device,
            memory,
            size: shape,
            bytes,
            live: used,
        })
    }
}

/// Memory from the system.
fn fresh(kept: &mut Kept, device: Device, size: Size) -> Result<Raw> {
    let Size { room, taken } = size;
    kept.since = kept.since.saturating_add(taken);
    if kept.since >= CHECK {
        kept.available = available(kept, taken);
        if taken as u64 > kept.available {
            return Err(too_much(device, taken, kept.available));
        }
        kept.since = 0;
    }
    if let Some(raw) = Raw::reserved(room, taken) {
        return Ok(raw);
    }
    // The system may refuse what it seemed to have: what is kept is given back, and it is asked again.
    kept.clear();
    Raw::reserved(room, taken).ok_or_else(|| too_much(device, room, kept.available))
}

impl Drop for Block {
    fn drop(&mut self) {
        LIVE.fetch_sub(self.live, Ordering::Relaxed);
        // An empty one takes the place of the one that is kept or freed.
        let memory = std::mem::replace(&mut self.memory, Raw::EMPTY);
        let gone = kept::lock().ended(self.device, self.size, memory);
        // The system takes its time to free pages: nobody waits for that.
        drop(gone);
    }
}

/// Bytes that can be asked for now; where those are less than `wanted`, what is kept for reuse, and so
/// not in use, is given back first.
fn available(kept: &mut Kept, wanted: usize) -> u64 {
    let now = machine_has(kept.bytes()).unwrap_or(u64::MAX);
    if wanted as u64 <= now {
        return now;
    }
    kept.clear();
    machine_has(0).unwrap_or(u64::MAX)
}

/// Bytes that can be asked for now, with this many kept: of the machine, and of this process's control
/// group. Both count a page as used once it was touched, so what was handed out beyond the pages that
/// this process has is still to come.
fn machine_has(kept: usize) -> Option<u64> {
    let machine = memory_info("/proc/meminfo", "MemAvailable:");
    let number = |path: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let group = number("/sys/fs/cgroup/memory.max").and_then(|max| {
        number("/sys/fs/cgroup/memory.current").map(|used| max.saturating_sub(used))
    });
    let held = (live_bytes() + kept) as u64;
    let untouched =
        memory_info("/proc/self/status", "VmRSS:").map_or(0, |had| held.saturating_sub(had));
    let least = [machine, group].into_iter().flatten().min()?;
    Some(least.saturating_sub(untouched))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_is_refused() {
        let error = Block::take(Device::new("CPU"), 1 << 50).err().unwrap();
        assert!(
            matches!(error.kind(), ErrorKind::Memory { wanted, .. } if *wanted == 1 << 50),
            "{error}"
        );
        assert!(Block::take(Device::new("CPU"), usize::MAX).is_err());
    }

    #[test]
    fn what_was_handed_out_is_counted_before_it_is_touched() {
        let cpu = Device::new("CPU");
        let Some(room) = machine_has(0) else { return };
        let block = || Block::take(cpu, room as usize / 5 * 2);
        let first = block().unwrap();
        let second = block().unwrap();
        assert!(matches!(
            block().err().unwrap().kind(),
            ErrorKind::Memory { .. }
        ));
        drop(first);
        drop(block().unwrap());
        drop(second);
        block().unwrap();
    }

    #[test]
    fn classes_round_up_a_little() {
        for n in [1, 64, 65, 1000, 4096, 5000, 1 << 20, (64 << 20) + 1] {
            let c = size_class(n).unwrap();
            assert!(c >= n && (c <= n + n / 4 || c - n <= ALIGN), "{n} {c}");
        }
    }
}
