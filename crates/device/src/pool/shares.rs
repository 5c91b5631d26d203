//! The pieces of a job, cut in shares of neighbours, one for each thread that may work on it. Flows in: how many pieces
//! and threads there are; flows out: each piece once. A thread has the same share of every job that is cut alike, so
//! that what it read or wrote is still in its own caches when it meets it again; who is done with its own takes from
//! the end of another's.
//!
//! Invariant: pieces are taken for the epoch that they were cut for, and no other.

use super::Apart;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
pub(super) struct Shares(Box<[Apart<AtomicU64>]>);

/// One more than the greatest number of a piece.
pub(super) const PIECES: usize = 1 << 16;

/// What is left of a share, as a word.
#[derive(Clone, Copy)]
struct Left {
    epoch: u32,
    next: u16,
    end: u16,
}

impl Left {
    fn of(word: u64) -> Left {
        Left {
            epoch: (word >> 32) as u32,
            next: (word >> 16) as u16,
            end: word as u16,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.epoch) << 32 | u64::from(self.next) << 16 | u64::from(self.end)
    }
}

impl Shares {
    /// For so many threads at most.
    pub(super) fn new(threads: usize) -> Shares {
        Shares((0..threads).map(|_| Apart(AtomicU64::new(0))).collect())
    }

    /// Cut so many pieces, fewer than `PIECES`, in so many shares. Whoever learns of the epoch afterwards may take them;
    /// all pieces of the epoch before have been.
    pub(super) fn cut(&self, epoch: u32, pieces: usize, shares: usize) {
        for (k, word) in self.0[..shares].iter().enumerate() {
            let left = Left {
                epoch,
                next: (k * pieces / shares) as u16,
                end: ((k + 1) * pieces / shares) as u16,
            };
            word.0.store(left.word(), Ordering::Relaxed);
        }
    }

    /// A piece of this epoch, for the owner of one of its shares: the next of that, or the last of another.
    pub(super) fn take(&self, epoch: u32, own: usize, shares: usize) -> Option<usize> {
        let others = own + 1..own + shares;
        let first = |left: Left| Left {
            next: left.next + 1,
            ..left
        };
        let last = |left: Left| Left {
            end: left.end - 1,
            ..left
        };
        self.update(epoch, own, first)
            .map(|before| before.next as usize)
            .or_else(|| {
                let mut others = others.map(|k| self.update(epoch, k % shares, last));
                others.find_map(|before| Some(before?.end as usize - 1))
            })
    }

    /// Change a share of this epoch, of which something is left; what was left before.
    fn update(&self, epoch: u32, share: usize, change: impl Fn(Left) -> Left) -> Option<Left> {
        let word = &self.0[share].0;
        let mut seen = word.load(Ordering::Acquire);
        loop {
            let left = Left::of(seen);
            if left.epoch != epoch || left.next == left.end {
                return None;
            }
            let rest = change(left).word();
            match word.compare_exchange_weak(seen, rest, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(left),
                Err(found) => seen = found,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_come_one_after_the_other_and_then_the_ends_of_others() {
        let shares = Shares::new(3);
        shares.cut(7, 8, 3);
        let all =
            |own: usize| -> Vec<usize> { std::iter::from_fn(|| shares.take(7, own, 3)).collect() };
        assert_eq!(shares.take(7, 0, 3), Some(0));
        assert_eq!(shares.take(7, 2, 3), Some(5));
        assert_eq!(all(1), [2, 3, 4, 7, 6, 1]);
        assert_eq!(shares.take(7, 0, 3), None);
    }

    #[test]
    fn pieces_of_another_epoch_are_not_taken() {
        let shares = Shares::new(2);
        shares.cut(1, 2, 2);
        assert_eq!(shares.take(1, 0, 2), Some(0));
        assert_eq!(shares.take(1, 0, 2), Some(1));
        shares.cut(2, PIECES - 1, 2);
        assert_eq!(shares.take(1, 0, 2), None);
        assert_eq!(shares.take(2, 1, 2), Some((PIECES - 1) / 2));
        let rest = std::iter::from_fn(|| shares.take(2, 0, 2));
        assert_eq!(rest.count(), PIECES - 2);
    }
}
