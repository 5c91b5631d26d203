//! Which cores this process runs on. Flows in: how many; flows out: whether the system keeps it to so many
//! from now on. Threads that are started later are kept to them too.

/// Cores that this process may run on.
pub fn allowed() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Keep this thread, and those that it starts, to the first `cores` of the cores that it may run on; false
/// where the system does not do that. More than there are means all of them.
pub fn pin(cores: usize) -> bool {
    system::pin(cores.max(1))
}

#[cfg(target_os = "linux")]
mod system {
    use std::ffi::{c_int, c_ulong};

    /// Processors of a set.
    const MOST: usize = 1024;
    const BITS: usize = c_ulong::BITS as usize;
    /// A set of processors, as the system's interface has it: a bit for each, in words.
    pub(super) type Set = [c_ulong; MOST / BITS];

    // SAFETY: as the GNU and musl C libraries declare them, `pid_t` being an int and `cpu_set_t` so many
    // bits in words of the machine, of which `size` bytes are read or written.
    unsafe extern "C" {
        fn sched_getaffinity(pid: c_int, size: usize, set: *mut Set) -> c_int;
        fn sched_setaffinity(pid: c_int, size: usize, set: *const Set) -> c_int;
    }

    pub(super) fn pin(cores: usize) -> bool {
        let mut set: Set = [0; MOST / BITS];
        // SAFETY: the set is as large as is said, and is written by this call alone.
        if unsafe { sched_getaffinity(0, size_of::<Set>(), &mut set) } < 0 {
            return false;
        }
        let set = first(set, cores);
        // SAFETY: as above, and only read.
        unsafe { sched_setaffinity(0, size_of::<Set>(), &set) == 0 }
    }

    /// The first so many of a set.
    pub(super) fn first(set: Set, count: usize) -> Set {
        let mut out: Set = [0; MOST / BITS];
        let members = (0..MOST).filter(|bit| set[bit / BITS] >> (bit % BITS) & 1 == 1);
        for bit in members.take(count) {
            out[bit / BITS] |= 1 << (bit % BITS);
        }
        out
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn pin(_cores: usize) -> bool {
        false
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_set_are_taken() {
        let mut set: system::Set = [0; size_of::<system::Set>() / size_of::<std::ffi::c_ulong>()];
        set[0] = 0b1010_0100;
        set[set.len() - 1] = 1;
        let first = |n| system::first(set, n);
        assert_eq!(first(2)[0], 0b10_0100);
        assert_eq!((first(4), first(9)), (set, set));
    }

    #[test]
    fn a_thread_is_kept_to_its_cores() {
        let alone = std::thread::spawn(|| (pin(1), allowed()));
        assert_eq!(alone.join().expect("pinning does not panic"), (true, 1));
    }
}
