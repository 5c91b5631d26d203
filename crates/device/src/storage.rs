//! Storage: bytes that a device can reach. Host blocks come from a pool: a freed block is kept for
//! the next request of its size, because the page faults of a fresh 64 MiB block cost more than most
//! kernels. What is asked for is compared with what the machine has before it is asked for.

use memmap2::MmapMut;
use monoglot_uop::{Device, Error, ErrorKind, Result};
use std::alloc::Layout;
use std::fs::File;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

/// Bytes on a device, freed when the last `Arc` goes. Reads and writes through `&self` follow the
/// order that the engine gives launches and copies: it never lets two that conflict run at once.
pub struct Storage {
    device: Device,
    offset: usize,
    bytes: usize,
    memory: Arc<Memory>,
}

pub(crate) enum Memory {
    Host(Block),
    /// A length without bytes, for devices that run nothing.
    Nothing,
    /// A file that is read when bytes are asked for, and its name.
    File(File, String),
}

/// Bytes of host storage in use, over all devices.
static LIVE: AtomicUsize = AtomicUsize::new(0);

impl Storage {
    /// Host memory aligned to 64 bytes, contents unspecified.
    ///
    /// # Errors
    /// `Memory`, where the machine has not that much available.
    pub fn host(device: Device, bytes: usize) -> Result<Arc<Storage>> {
        let block = Block::take(device, bytes)?;
        Ok(Storage::of(device, bytes, Memory::Host(block)))
    }

    /// Storage of all of this memory.
    pub(crate) fn of(device: Device, bytes: usize, memory: Memory) -> Arc<Storage> {
        Arc::new(Storage {
            device,
            offset: 0,
            bytes,
            memory: Arc::new(memory),
        })
    }

    /// A part of this storage, which it keeps alive. None where the part is not within it.
    pub fn slice(&self, offset: usize, bytes: usize) -> Option<Arc<Storage>> {
        let fits = offset
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes);
        let (device, memory) = (self.device, self.memory.clone());
        fits.then(|| {
            Arc::new(Storage {
                device,
                offset: self.offset + offset,
                bytes,
                memory,
            })
        })
    }

    /// The device that it is on.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where its bytes are, where the host can reach them.
    pub fn host_ptr(&self) -> Option<*mut u8> {
        match &*self.memory {
            // SAFETY: `offset` is within the block, as `host` and `slice` see to.
            Memory::Host(b) => Some(unsafe { b.memory.ptr().add(self.offset) }),
            _ => None,
        }
    }

    /// Copy bytes out, from `offset` on.
    ///
    /// # Errors
    /// `Run` past the end or without bytes, `Io` where a file cannot be read.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        self.check(offset, out.len(), "read")?;
        if let Memory::File(file, path) = &*self.memory {
            return read_at(file, out, (self.offset + offset) as u64).map_err(|e| {
                ErrorKind::Io {
                    path: path.clone(),
                    message: e.to_string(),
                }
                .into()
            });
        }
        let p = self.pointer()?;
        // SAFETY: the range is within the block, which is initialised (blocks start zeroed);
        // `out` is exclusive to the caller and cannot be the block; no launch writes it now.
        unsafe { std::ptr::copy_nonoverlapping(p.add(offset), out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copy bytes in, from `offset` on.
    ///
    /// # Errors
    /// `Run` past the end or where the storage cannot be written.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len(), "write")?;
        let p = self.pointer()?;
        // SAFETY: the range is within the block; `bytes` is a Rust slice, which storage never is.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), p.add(offset), bytes.len()) };
        Ok(())
    }

    /// Copy all of `from` to the start of this storage, without a buffer between where both are host memory.
    pub fn copy_from(&self, from: &Storage) -> Result<()> {
        self.check(0, from.bytes, "write")?;
        let to = self.pointer()?;
        match from.host_ptr() {
            // SAFETY: both ranges are within their blocks, which may be one.
            Some(p) => unsafe { std::ptr::copy(p, to, from.bytes) },
            // SAFETY: the range is within the block and no launch uses it now.
            None => from.read(0, unsafe { std::slice::from_raw_parts_mut(to, from.bytes) })?,
        }
        Ok(())
    }

    /// Bytes of host storage in use by anyone.
    pub fn live_bytes() -> usize {
        LIVE.load(Ordering::Relaxed)
    }

    fn check(&self, offset: usize, len: usize, what: &str) -> Result<()> {
        if offset.checked_add(len).is_some_and(|end| end <= self.bytes) {
            return Ok(());
        }
        let message = format!(
            "{what} of {len} bytes at {offset} in storage of {} on {}",
            self.bytes, self.device
        );
        Err(Error::new(ErrorKind::Run { message }))
    }

    fn pointer(&self) -> Result<*mut u8> {
        self.host_ptr().ok_or_else(|| self.no_data())
    }

    /// Why there is nothing to read or write.
    pub(crate) fn no_data(&self) -> Error {
        let message = match &*self.memory {
            Memory::File(_, path) => {
                format!("{path} is read-only, and no kernel runs on {}", self.device)
            }
            _ => format!(
                "device {} holds no data: it compiles and runs nothing",
                self.device
            ),
        };
        ErrorKind::Run { message }.into()
    }
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Storage({}, {} bytes)", self.device, self.bytes)
    }
}

#[cfg(unix)]
fn read_at(file: &File, out: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

#[cfg(not(unix))]
fn read_at(mut file: &File, out: &mut [u8], offset: u64) -> std::io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(out)
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

// SAFETY: a block is plain memory owned by one `Storage`; access is ordered by the engine.
unsafe impl Send for Block {}
// SAFETY: as above; the block itself is never changed through a shared reference.
unsafe impl Sync for Block {}

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

// SAFETY: raw blocks are plain memory that nothing else refers to while it is kept.
unsafe impl Send for Raw {}
static KEPT: Mutex<Kept> = Mutex::new(Kept {
    blocks: Vec::new(),
    bytes: 0,
    since: CHECK,
    available: 0,
});

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
    fn take(device: Device, bytes: usize) -> Result<Block> {
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
                kept.available = available(kept.bytes).unwrap_or(u64::MAX);
                if class as u64 > kept.available {
                    // What is kept for reuse is not in use: give it back before refusing.
                    kept.blocks.clear();
                    kept.bytes = 0;
                    kept.available = available(0).unwrap_or(u64::MAX);
                }
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
        std::fs::read_to_string(path)
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    let group = number("/sys/fs/cgroup/memory.max").and_then(|max| {
        number("/sys/fs/cgroup/memory.current").map(|used| max.saturating_sub(used))
    });
    let held = (Storage::live_bytes() + kept) as u64;
    let untouched =
        memory_info("/proc/self/status", "VmRSS:").map_or(0, |had| held.saturating_sub(had));
    Some(
        [machine, group]
            .into_iter()
            .flatten()
            .min()?
            .saturating_sub(untouched),
    )
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
    fn blocks_come_back_and_the_counter_follows() {
        let cpu = Device::new("CPU");
        let s = Storage::host(cpu, 1000).unwrap();
        assert_eq!(s.host_ptr().unwrap() as usize % ALIGN, 0);
        s.write(10, &[1, 2, 3]).unwrap();
        let mut out = [0; 3];
        s.slice(10, 3).unwrap().read(0, &mut out).unwrap();
        assert_eq!(out, [1, 2, 3]);
        assert!(s.write(998, &[1, 2, 3]).is_err());
        assert!(s.slice(999, 2).is_none());
    }

    #[test]
    fn more_than_there_is_is_refused() {
        let error = Storage::host(Device::new("CPU"), 1 << 50).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Memory { wanted, .. } if *wanted == 1 << 50),
            "{error}"
        );
        assert!(Storage::host(Device::new("CPU"), usize::MAX).is_err());
    }

    #[test]
    fn what_was_handed_out_is_counted_before_it_is_touched() {
        let cpu = Device::new("CPU");
        let Some(room) = available(0) else { return };
        let block = || Storage::host(cpu, room as usize / 5 * 2);
        let (first, second) = (block().unwrap(), block().unwrap());
        assert!(matches!(
            block().unwrap_err().kind(),
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
