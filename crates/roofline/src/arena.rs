//! Memory to go through. Flows in: how many threads, arrays and lines; flows out: disjoint arrays. They are
//! kept from sample to sample, so that no sample pays for pages that nobody has touched.

/// A cache line of numbers.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line(pub(crate) [f32; 16]);

/// Lines that kernels go through at a time.
pub(crate) const BLOCK: usize = 8;

/// Parts of an array that may be gone through side by side.
pub(crate) const STREAMS: usize = 4;

/// Lines between two arrays, so that they do not lie at the same places of pages: a processor that
/// compares the low bits of addresses takes a read of one for a read of what was just written to the other.
const GAP: usize = 9 * BLOCK;

/// See the module.
#[derive(Default)]
pub(crate) struct Arena(Vec<Line>);

/// Lines in so many bytes, as many whole blocks for each stream: at least one.
pub(crate) fn lines(bytes: usize) -> usize {
    let unit = STREAMS * BLOCK;
    let units = bytes / (unit * size_of::<Line>());
    units.max(1) * unit
}

impl Arena {
    /// For each thread so many arrays of so many lines.
    pub(crate) fn parts(
        &mut self,
        threads: usize,
        arrays: usize,
        lines: usize,
    ) -> Vec<Vec<&mut [Line]>> {
        let wanted = threads * arrays * (lines + GAP);
        if self.0.len() < wanted {
            // Freed first: only one of the two need fit.
            self.0 = Vec::new();
            self.0 = vec![Line([1.0; 16]); wanted];
        }
        let mut chunks = self.0.chunks_exact_mut(lines + GAP);
        let mut part = || -> Vec<&mut [Line]> {
            let own = chunks.by_ref().take(arrays);
            own.map(|chunk| &mut chunk[..lines]).collect()
        };
        (0..threads).map(|_| part()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_many_and_as_long_as_asked_for() {
        assert_eq!([0, 64, 5000].map(lines), [32, 32, 64]);
        let mut arena = Arena::default();
        for (threads, arrays, lines) in [(1, 1, 8), (3, 3, 64), (2, 2, 16)] {
            let parts = arena.parts(threads, arrays, lines);
            assert_eq!(parts.len(), threads);
            assert!(parts.iter().all(|p| p.len() == arrays));
            assert!(parts.iter().flatten().all(|a| a.len() == lines));
        }
    }
}
