//! Caches and cores of this machine. Flows in: what the processor says of itself, or else what the
//! operating system says, or else what is common; flows out: sizes, rounded, so that machines that hardly
//! differ compile the same programs.

/// Bytes of L1 data, L2 and the last level, where they are known.
type Caches = [Option<usize>; 3];

/// Caches where nothing is known of them.
pub(crate) const CACHES: [usize; 3] = [32 << 10, 512 << 10, 8 << 20];

/// The last level is at most so many times the second one of each core. Processors have 1 to 12 times as much; more is
/// said where a part of a large one is let, whose last level serves others too.
const SHARE: usize = 16;

/// Bytes of the caches that a core uses: L1 data, L2, and the last level, of which the cores that may be used have a
/// share.
pub(super) fn caches() -> [usize; 3] {
    let said = processor::caches();
    let listed = system::caches();
    let all = std::array::from_fn(|k| said[k].or(listed[k]).map_or(CACHES[k], rounded));
    let allowed = std::thread::available_parallelism().map_or(1, |n| n.get());
    shared(all, cores(allowed))
}

/// Caches where the last one is no more than so many cores' share.
fn shared([first, second, last]: [usize; 3], cores: usize) -> [usize; 3] {
    [first, second, last.min(rounded(SHARE * second * cores))]
}

/// Cores that so many threads run on.
pub(super) fn cores(threads: usize) -> usize {
    let per_core = processor::threads_per_core().or_else(system::threads_per_core);
    threads.div_ceil(per_core.unwrap_or(1).max(1))
}

/// Down to a power of two or one and a half of it.
pub(super) fn rounded(bytes: usize) -> usize {
    let power = bytes.checked_ilog2().map_or(0, |k| 1 << k);
    let more = power + power / 2;
    if bytes >= more { more } else { power }
}

#[cfg(target_arch = "x86_64")]
mod processor {
    use super::Caches;
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    const AMD: [u8; 12] = *b"AuthenticAMD";
    const HYGON: [u8; 12] = *b"HygonGenuine";

    /// Whether there is a leaf of that number.
    fn has(leaf: u32) -> bool {
        __cpuid(leaf & 0x8000_0000).eax >= leaf
    }

    fn vendor() -> [u8; 12] {
        let v = __cpuid(0);
        let mut name = [0; 12];
        for (part, word) in name.chunks_mut(4).zip([v.ebx, v.edx, v.ecx]) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        name
    }

    /// The leaf of cache parameters: Intel's, or AMD's where its extension says that there is one.
    fn leaf() -> Option<u32> {
        if matches!(vendor(), AMD | HYGON) {
            let extended = has(0x8000_0001) && __cpuid(0x8000_0001).ecx >> 22 & 1 == 1;
            return (extended && has(0x8000_001d)).then_some(0x8000_001d);
        }
        has(4).then_some(4)
    }

    pub(super) fn caches() -> Caches {
        let mut found = [None; 3];
        let Some(leaf) = leaf() else { return found };
        for k in 0..16 {
            let c = __cpuid_count(leaf, k);
            let kind = c.eax & 31;
            let level = (c.eax >> 5 & 7) as usize;
            let field = |shift: u32, bits: u32| (c.ebx >> shift & ((1 << bits) - 1)) as usize + 1;
            let bytes = field(22, 10) * field(12, 10) * field(0, 12) * (c.ecx as usize + 1);
            match (kind, level) {
                (0, _) => break,
                // Data, or data and instructions.
                (1 | 3, 1..=3) => found[level - 1] = Some(bytes),
                _ => {}
            }
        }
        found
    }

    pub(super) fn threads_per_core() -> Option<usize> {
        let leaf = [0x1f, 0xb].into_iter().find(|&leaf| has(leaf))?;
        let t = __cpuid_count(leaf, 0);
        // The first level is that of threads.
        let threads = (t.ebx & 0xffff) as usize;
        (t.ecx >> 8 & 0xff == 1 && threads > 0).then_some(threads)
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod processor {
    use super::Caches;

    pub(super) fn caches() -> Caches {
        [None; 3]
    }

    pub(super) fn threads_per_core() -> Option<usize> {
        None
    }
}

/// What Linux lists of its first processor; nothing elsewhere.
mod system {
    use super::Caches;

    fn read(what: &str) -> Option<String> {
        let path = format!("/sys/devices/system/cpu/cpu0/{what}");
        let text = std::fs::read_to_string(path).ok()?;
        Some(text.trim().to_string())
    }

    pub(super) fn caches() -> Caches {
        let mut found = [None; 3];
        for i in 0..16 {
            let of = |what: &str| read(&format!("cache/index{i}/{what}"));
            let (Some(level), Some(kind), Some(size)) = (of("level"), of("type"), of("size"))
            else {
                break;
            };
            if let Ok(n @ 1..=3) = level.parse::<usize>()
                && kind != "Instruction"
            {
                found[n - 1] = crate::config::bytes(&size);
            }
        }
        found
    }

    pub(super) fn threads_per_core() -> Option<usize> {
        count(&read("topology/thread_siblings_list")?)
    }

    /// How many numbers a list such as `0-1,8` has.
    pub(super) fn count(list: &str) -> Option<usize> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first = first.parse::<usize>().ok()?;
            let last = last.parse::<usize>().ok()?;
            Some((last + 1).saturating_sub(first))
        };
        list.split(',').map(range).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_two_digits() {
        let kib = |n: usize| rounded(n << 10) >> 10;
        assert_eq!(
            [32, 48, 80, 1024, 1280, 36608].map(kib),
            [32, 48, 64, 1024, 1024, 32768]
        );
        assert_eq!(rounded(0), 0);
    }

    #[test]
    fn a_machine_has_caches_that_grow() {
        let [first, second, last] = caches();
        assert!(first >= 1 << 10 && first <= second && second <= last.max(second));
        assert!((1..=8).contains(&cores(8)));
    }

    #[test]
    fn a_last_level_is_a_share() {
        let caches = |second, last| [48 << 10, second, last];
        let of = |second, last, cores| shared(caches(second, last), cores)[2] >> 20;
        // A part of a server, one with all of its cores, and a desktop whose cache is stacked.
        assert_eq!(of(2 << 20, 256 << 20, 2), 64);
        assert_eq!(of(2 << 20, 256 << 20, 60), 256);
        assert_eq!(of(1 << 20, 96 << 20, 8), 96);
    }

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(system::count("0"), Some(1));
        assert_eq!(system::count("0-1,8,10-11"), Some(5));
        assert_eq!(system::count("none"), None);
    }
}
