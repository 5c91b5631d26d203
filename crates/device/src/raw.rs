//! Memory as the system gives it. Flows in: sizes; flows out: zeroed memory of that size, and how much the
//! machine has. Invariant: what is given belongs to its owner alone, and goes back when that is dropped.

use memmap2::{MmapMut, MmapOptions};
use std::alloc::Layout;
use std::ptr::NonNull;

/// Memory as the system gives it.
pub(crate) enum Raw {
    Heap(NonNull<u8>, Layout),
    Pages(MmapMut),
}

/// Where memory begins: at multiples of this.
pub(crate) const ALIGN: usize = 64;
/// From here on blocks are pages of their own.
const PAGES: usize = 256 << 10;
/// From here on they ask for huge pages.
const HUGE: usize = 2 << 20;

// SAFETY: plain memory that its owner alone refers to.
unsafe impl Send for Raw {}
// SAFETY: as above; what reads or writes the bytes is ordered by the claims of `Storage`.
unsafe impl Sync for Raw {}

impl Raw {
    /// None at all.
    pub(crate) const EMPTY: Raw = Raw::Heap(NonNull::dangling(), Layout::new::<()>());

    /// Zeroed memory (so that every byte is initialised), None where the system refuses.
    pub(crate) fn new(bytes: usize) -> Option<Raw> {
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

    /// Zeroed memory of which only some bytes will be touched: addresses for `bytes`, pages for those that are.
    /// None where the system refuses.
    pub(crate) fn reserved(bytes: usize, used: usize) -> Option<Raw> {
        if bytes < PAGES || used >= bytes {
            return Raw::new(bytes);
        }
        let mut options = MmapOptions::new();
        let pages = options.len(bytes).no_reserve_swap().map_anon().ok()?;
        #[cfg(target_os = "linux")]
        {
            // A huge page would be touched as a whole. Only an advice, as above.
            let advice = match used < HUGE {
                true => memmap2::Advice::NoHugePage,
                false => memmap2::Advice::HugePage,
            };
            let _ = pages.advise(advice);
        }
        Some(Raw::Pages(pages))
    }

    /// How many bytes a block takes that has addresses for `bytes` and is used to `used`.
    pub(crate) fn taken(bytes: usize, used: usize) -> usize {
        if bytes < PAGES {
            bytes
        } else {
            used.min(bytes)
        }
    }

    /// Where it is.
    pub(crate) fn ptr(&self) -> *mut u8 {
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

/// The bytes of the machine's memory, or of this process's control group where that has less.
pub(crate) fn machine_memory() -> Option<u64> {
    let all = memory_info("/proc/meminfo", "MemTotal:");
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse::<u64>().ok());
    [all, group].into_iter().flatten().min()
}

/// A number of kibibytes of a file of the system's, in bytes.
pub(crate) fn memory_info(path: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|l| l.starts_with(key))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}
