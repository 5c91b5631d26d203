//! Freed host memory that is kept for reuse, and what every device has in use. Flows in: blocks that nobody holds
//! any more; flows out: one of them, for a request that it is not much too large for. Invariant: of each
//! device, what is in use and what is kept are together within its limit; all that is kept is within the
//! process's share of the machine.

use crate::config::Config;
use crate::raw::{Raw, machine_memory};
use monoglot_uop::Device;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, MutexGuard};

/// Storage of a device, in bytes of the blocks that it comes in: up to an eighth more than was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageUse {
    /// In use by anyone.
    pub in_use: usize,
    /// Freed, and kept for the next request.
    pub kept: usize,
    /// The most that was in use at a time.
    pub peak: usize,
    /// What `in_use` and `kept` may be together, where something was said.
    pub limit: Option<usize>,
}

/// The size of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size {
    /// The bytes that it has addresses for.
    pub(crate) room: usize,
    /// Those of them that take memory.
    pub(crate) taken: usize,
}

/// What is kept, of all devices.
pub(crate) struct Kept {
    devices: FxHashMap<Device, OfDevice>,
    /// The blocks that were kept so far: a number for each.
    count: u64,
    /// Bytes from the system since available memory was last looked up, and what there was then.
    pub(crate) since: usize,
    pub(crate) available: u64,
}

struct OfDevice {
    /// Freed blocks by size, the newest last, each with its number.
    blocks: BTreeMap<Size, Vec<(u64, Raw)>>,
    number_of_blocks: usize,
    usage: StorageUse,
}

/// Blocks of a device that are kept, at most: finding one stays quick.
const BLOCKS: usize = 4096;

static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(|| {
    Mutex::new(Kept {
        devices: FxHashMap::default(),
        count: 0,
        since: usize::MAX,
        available: 0,
    })
});

/// An eighth of the memory that this process may have; half a gigabyte where nobody says what that is.
static SHARE: LazyLock<usize> =
    LazyLock::new(|| (machine_memory().unwrap_or(4 << 30) / 8) as usize);

pub(crate) fn lock() -> MutexGuard<'static, Kept> {
    // Each change leaves it whole.
    KEPT.lock().unwrap_or_else(|e| e.into_inner())
}

/// What a device has in use and keeps of host memory.
pub fn storage_use(device: Device) -> StorageUse {
    lock().of(device).usage
}

/// What all devices have in use and keep of host memory; the peaks are added, and there is no limit.
pub fn all_storage() -> StorageUse {
    let kept = lock();
    let mut all = StorageUse::default();
    for of in kept.devices.values() {
        all.in_use += of.usage.in_use;
        all.kept += of.usage.kept;
        all.peak += of.usage.peak;
    }
    all
}

/// Let a device have so many bytes of host memory from now on, or as many as there are. What it keeps for
/// reuse beyond that is given back; what is in use stays, and counts.
pub fn set_memory_limit(device: Device, bytes: Option<usize>) {
    let mut kept = lock();
    let of = kept.of(device);
    of.usage.limit = bytes;
    let over = (of.usage.in_use + of.usage.kept).saturating_sub(bytes.unwrap_or(usize::MAX));
    of.give_back(over);
}

/// Give all that is kept for reuse back to the system: how many bytes that were.
pub fn release_kept() -> usize {
    let mut kept = lock();
    let bytes = kept.bytes();
    kept.clear();
    bytes
}

impl Kept {
    /// Bytes that are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.devices.values().map(|of| of.usage.kept).sum()
    }

    /// Keep nothing.
    pub(crate) fn clear(&mut self) {
        for of in self.devices.values_mut() {
            of.give_back(usize::MAX);
        }
    }

    /// A block that is at least as large, and takes not half as much more, with its size. Of one that
    /// is used in part, the addresses are as many.
    pub(crate) fn take(&mut self, device: Device, size: Size) -> Option<(Size, Raw)> {
        let of = self.of(device);
        let most = size.taken.saturating_add(size.taken / 2);
        let last = Size {
            room: if size.room == size.taken {
                most
            } else {
                size.room
            },
            taken: most,
        };
        let fits = |s: &Size| (size.taken..=most).contains(&s.taken);
        let mut found = of.blocks.range_mut(size..=last).filter(|(s, _)| fits(s));
        let (&size, list) = found.next()?;
        let (_, raw) = list.pop()?;
        if list.is_empty() {
            of.blocks.remove(&size);
        }
        of.number_of_blocks -= 1;
        of.usage.kept -= size.taken;
        Some((size, raw))
    }

    /// Have the device keep no more than lets so many bytes be in use besides.
    ///
    /// # Errors
    /// Where the limit does not allow so many whatever is kept: what there is.
    pub(crate) fn make_room(&mut self, device: Device, bytes: usize) -> Result<usize, StorageUse> {
        let of = self.of(device);
        let limit = of.usage.limit.unwrap_or(usize::MAX);
        let then = of.usage.in_use.saturating_add(bytes);
        if then > limit {
            return Err(of.usage);
        }
        of.give_back(then.saturating_add(of.usage.kept).saturating_sub(limit));
        Ok(bytes)
    }

    /// A block of this size is in use from now on.
    pub(crate) fn began(&mut self, device: Device, size: usize) {
        let usage = &mut self.of(device).usage;
        usage.in_use += size;
        usage.peak = usage.peak.max(usage.in_use);
    }

    /// A block of this size is no longer in use. What cannot be kept beside it, or it, comes back.
    pub(crate) fn ended(&mut self, device: Device, block: Size, raw: Raw) -> Vec<Raw> {
        let size = block.taken;
        let share = Config::current().kept_bytes.unwrap_or(*SHARE);
        let others = self.bytes();
        self.count += 1;
        let number = self.count;
        let of = self.of(device);
        of.usage.in_use -= size;
        let limit = of.usage.limit.unwrap_or(usize::MAX);
        let within = of.usage.in_use.saturating_add(size) <= limit;
        let others = others - of.usage.kept;
        if size > share.saturating_sub(others) || !within {
            return vec![raw];
        }
        // What was kept longest makes room.
        let allowed = (share - others).min(limit - of.usage.in_use) - size;
        let mut gone = of.give_back(of.usage.kept.saturating_sub(allowed));
        if of.number_of_blocks >= BLOCKS {
            gone.extend(of.give_back(1));
        }
        of.blocks.entry(block).or_default().push((number, raw));
        of.number_of_blocks += 1;
        of.usage.kept += size;
        gone
    }

    fn of(&mut self, device: Device) -> &mut OfDevice {
        self.devices.entry(device).or_insert_with(|| OfDevice {
            blocks: BTreeMap::new(),
            number_of_blocks: 0,
            usage: StorageUse {
                limit: Config::current().memory_limit,
                ..StorageUse::default()
            },
        })
    }
}

impl OfDevice {
    /// Keep at least so many bytes less, or nothing: the blocks that were kept longest go first.
    fn give_back(&mut self, bytes: usize) -> Vec<Raw> {
        let mut out = Vec::new();
        let mut given = 0;
        while given < bytes {
            let oldest = self.blocks.iter().min_by_key(|(_, list)| list[0].0);
            let Some((&size, _)) = oldest else {
                break;
            };
            let list = self.blocks.get_mut(&size).expect("it was just found");
            out.push(list.remove(0).1);
            if list.is_empty() {
                self.blocks.remove(&size);
            }
            self.number_of_blocks -= 1;
            self.usage.kept -= size.taken;
            given += size.taken;
        }
        out
    }
}
