//! The storage that a thread lends to the functions it runs, for what is a thread's own in them. Flows in: how
//! many bytes, and a job; flows out: the job, run with the address of so many bytes. Invariant: the address is a
//! multiple of 64, and nobody else has it while the job runs; what the bytes are is left open.

use monoglot_native::own::ALIGNMENT;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;

/// Bytes that are aligned.
struct Area {
    start: *mut u8,
    layout: Layout,
}

/// The most that a thread keeps for its next job.
const KEPT: usize = 8 << 20;

thread_local! {
    static AREA: Cell<Option<Area>> = const { Cell::new(None) };
}

/// Run a job with the address of so many bytes.
pub(super) fn with<R>(bytes: usize, job: impl FnOnce(*mut u8) -> R) -> R {
    if bytes == 0 {
        return job(std::ptr::without_provenance_mut(ALIGNMENT));
    }
    // Taken, not borrowed: a job that runs another finds none, and the other makes its own.
    let kept = AREA.try_with(Cell::take).ok().flatten();
    let fitting = kept.filter(|area| area.layout.size() >= bytes);
    let area = fitting.unwrap_or_else(|| Area::new(bytes));
    let out = job(area.start);
    if area.layout.size() <= KEPT {
        // A thread that ends keeps nothing.
        let _ = AREA.try_with(|kept| kept.set(Some(area)));
    }
    out
}

impl Area {
    fn new(bytes: usize) -> Area {
        // Small ones are not made again for every program that needs a little more.
        let bytes = bytes.next_multiple_of(4096);
        let layout = Layout::from_size_align(bytes, ALIGNMENT)
            .expect("no program has storage of its own near the address space");
        // SAFETY: the size is not 0.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        Area { start, layout }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nobody has the address any longer.
        unsafe { dealloc(self.start, self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_what_is_not_large() {
        let address = |bytes: usize| with(bytes, |p| p as usize);
        let first = address(5000);
        assert!(first.is_multiple_of(ALIGNMENT));
        assert_eq!(address(10), first);
        let kept = || {
            let area = AREA.take();
            let size = area.as_ref().map(|a| a.layout.size());
            AREA.set(area);
            size
        };
        assert_eq!(kept(), Some(8192));
        address(KEPT + 1);
        assert_eq!(kept(), None);
        assert_eq!(address(0), ALIGNMENT);
    }

    #[test]
    fn a_job_within_a_job_has_an_area_of_its_own() {
        let [outer, inner] = with(64, |outer| with(64, |inner| [outer, inner]));
        assert_ne!(outer, inner);
    }
}
