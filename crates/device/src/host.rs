//! Host memory, in blocks of a pool: a freed block is kept for the next request of its size,
//! because the page faults of a fresh 64 MiB block cost more than most kernels. What is asked for
//! is compared with what the machine has before it is asked for. Flows in: how many bytes; flows
//! out: a block of so many, whose contents are unspecified, or a typed error. Invariant: a block
//! belongs to one owner until it is dropped.

use crate::memory::Memory;
use memmap2::MmapMut;
use monoglot_uop::{Device, Error, ErrorKind, Result};
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

/// Bytes of host storage in use, over all devices.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Bytes of host storage in use by anyone.
pub(crate) fn live_bytes() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// A piece of host memory of a size class.
pub(crate) struct Block {
    memory: Raw,
    class: usize,
    live: usize,
}

enum Raw {
    Heap(NonNull<u8>, Layout),
    Pages(MmapMut),
}

// SAFETY: a block's bytes are its own, start zeroed, and stay where they are until it is dropped.
unsafe impl Memory for Block {
    fn bytes(&self) -> usize {
        self.live
    }

    fn host(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.memory.ptr())
    }
}

const ALIGN: usize = 64;
/// From here on blocks are pages of their own.
const PAGES: usize = 256 << 10;
/// From here on they ask for huge pages.
const HUGE: usize = 2 << 20;
/// Requests are compared with available memory each time this many bytes were asked for.
const CHECK: usize = 16 << 20;

/// Freed blocks by class, newest last, and their bytes.
struct Kept {
    blocks: Vec<(usize, Raw)>,
    bytes: usize,
    /// Bytes given out since available memory was last looked up, and what there was then.
    since: usize,
    available: u64,
}

// SAFETY: plain memory that its owner alone refers to.
unsafe impl Send for Raw {}
// SAFETY: as above; what reads or writes the bytes is ordered by the claims of `Storage`.
unsafe impl Sync for Raw {}
static KEPT: Mutex<Kept> = Mutex::new(Kept {
    blocks: Vec::new(),
    bytes: 0,
    since: CHECK,
    available: 0,
});

impl Kept {
    /// Bytes that can be asked for now; where those are less than `wanted`, what is kept for reuse, and so
    /// not in use, is given back first.
    fn available(&mut self, wanted: usize) -> u64 {
        let now = available(self.bytes).unwrap_or(u64::MAX);
        if wanted as u64 <= now {
            return now;
        }
        self.blocks.clear();
        self.bytes = 0;
        available(0).unwrap_or(u64::MAX)
    }
}

/// An empty vector with room for so many values of the host's own.
///
/// # Errors
/// `Memory`, as `Block::take`.
pub(crate) fn room<T>(device: Device, count: usize) -> Result<Vec<T>> {
    let bytes = count.saturating_mul(size_of::<T>());
    let available = if bytes < CHECK {
        u64::MAX
    } else {
        let mut kept = KEPT.lock().unwrap_or_else(|e| e.into_inner());
        kept.available(bytes)
    };
    let mut room = Vec::new();
    if bytes as u64 > available || room.try_reserve_exact(count).is_err() {
        return Err(Error::new(ErrorKind::Memory {
            device: device.name().into(),
            wanted: bytes as u64,
            available,
        }));
    }
    Ok(room)
}

/// Sizes are rounded up to an eighth of a power of two, so that blocks are found again.
fn size_class(bytes: usize) -> Option<usize> {
    let bytes = bytes.max(ALIGN);
    let step = (bytes.checked_next_power_of_two()? / 8).max(ALIGN);
    bytes.checked_next_multiple_of(step)
}

/// How many freed bytes are kept: an eighth of the machine's memory, at most 2 GiB.
static LIMIT: LazyLock<usize> = LazyLock::new(|| {
    (memory_info("/proc/meminfo", "MemTotal:").unwrap_or(4 << 30) / 8).min(2 << 30) as usize
});

impl Block {
    /// A block of so many bytes for a device, contents unspecified.
    ///
    /// # Errors
    /// `Memory`, where the machine has not that much available.
    pub(crate) fn take(device: Device, bytes: usize) -> Result<Block> {
        let too_much = |available| ErrorKind::Memory {
            device: device.name().into(),
            wanted: bytes as u64,
            available,
        };
        let mut kept = KEPT.lock().unwrap_or_else(|e| e.into_inner());
        let class =
            size_class(bytes).ok_or_else(|| too_much(available(kept.bytes).unwrap_or(0)))?;
        let found = kept.blocks.iter().rposition(|(c, _)| *c == class);
        let memory = if let Some(i) = found {
            kept.bytes -= class;
            kept.blocks.remove(i).1
        } else {
            kept.since = kept.since.saturating_add(class);
            if kept.since >= CHECK {
                kept.available = kept.available(class);
                if class as u64 > kept.available {
                    return Err(too_much(kept.available).into());
                }
                kept.since = 0;
            }
            Raw::new(class).ok_or_else(|| too_much(kept.available))?
        };
        LIVE.fetch_add(bytes, Ordering::Relaxed);
        Ok(Block {
            memory,
            class,
            live: bytes,
        })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        LIVE.fetch_sub(self.live, Ordering::Relaxed);
        // An empty heap block takes the place of the one that is kept or freed.
        let memory = std::mem::replace(
            &mut self.memory,
            Raw::Heap(NonNull::dangling(), Layout::new::<()>()),
        );
        let mut kept = KEPT.lock().unwrap_or_else(|e| e.into_inner());
        if kept.bytes + self.class <= *LIMIT && kept.blocks.len() < 4096 {
            kept.bytes += self.class;
            kept.blocks.push((self.class, memory));
        }
    }
}

impl Raw {
    /// Zeroed memory (so that every byte is initialised), None where the system refuses.
    fn new(bytes: usize) -> Option<Raw> {
        if bytes < PAGES {
            let layout = Layout::from_size_align(bytes, ALIGN).ok()?;
            // SAFETY: the layout has a size of at least ALIGN.
            return NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
                .map(|p| Raw::Heap(p, layout));
        }
        let pages = MmapMut::map_anon(bytes).ok()?;
        #[cfg(target_os = "linux")]
        if bytes >= HUGE {
            // Only an advice: a kernel without huge pages refuses it and nothing is lost.
            let _ = pages.advise(memmap2::Advice::HugePage);
        }
        Some(Raw::Pages(pages))
    }

    fn ptr(&self) -> *mut u8 {
        match self {
            Raw::Heap(p, _) => p.as_ptr(),
            Raw::Pages(m) => m.as_ptr() as *mut u8,
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Raw::Heap(p, layout) = self
            && layout.size() > 0
        {
            // SAFETY: allocated in `new` with this layout, and freed once.
            unsafe { std::alloc::dealloc(p.as_ptr(), *layout) };
        }
    }
}

/// Bytes that can be asked for now, with this many kept: of the machine, and of this process's control
/// group. Both count a page as used once it was touched, so what was handed out beyond the pages that
/// this process has is still to come.
fn available(kept: usize) -> Option<u64> {
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

fn memory_info(path: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|l| l.starts_with(key))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
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
        let Some(room) = available(0) else { return };
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
