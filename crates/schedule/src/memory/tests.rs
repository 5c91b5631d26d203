//! Packings against their invariant and the greatest sum. Flows in: random blocks and rooms; flows out: a failed
//! test where two that are in use at once overlap, or where much is wasted.

use super::pack::{Block, Packed, Room, pack};

/// Numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

fn sound(blocks: &[Block], rooms: &[Room], packed: &Packed) {
    for (i, b) in blocks.iter().enumerate() {
        let p = packed.places[i];
        let end = p.offset + b.bytes;
        match p.room {
            Some(r) => {
                assert!(
                    end <= rooms[r].bytes && rooms[r].until > b.steps.1,
                    "{b:?} {p:?}"
                );
            }
            None => assert!(end <= packed.bytes, "{b:?} {p:?}"),
        }
        for (c, q) in blocks[..i].iter().zip(&packed.places) {
            let at_once = b.steps.0 <= c.steps.1 && c.steps.0 <= b.steps.1;
            let apart = p.room != q.room || end <= q.offset || q.offset + c.bytes <= p.offset;
            assert!(
                !at_once || apart || b.bytes == 0 || c.bytes == 0,
                "{b:?} {p:?} {c:?} {q:?}"
            );
        }
    }
}

#[test]
fn what_is_in_use_at_once_does_not_overlap() {
    let mut numbers = Numbers(7);
    let mut waste = Vec::new();
    for round in 0..200 {
        let steps = 1 + numbers.below(60);
        let mut blocks = Vec::new();
        for _ in 0..numbers.below(120) {
            let first = numbers.below(steps);
            let most = 1 + numbers.below(steps);
            let last = (first + numbers.below(most)).min(steps - 1);
            let most = 1 << numbers.below(10);
            blocks.push(Block {
                bytes: 64 * numbers.below(most),
                steps: (first, last),
            });
        }
        let mut rooms = Vec::new();
        for _ in 0..numbers.below(4) * (round % 2) {
            rooms.push(Room {
                bytes: 64 * numbers.below(600),
                until: numbers.below(steps + 1),
            });
        }
        let packed = pack(&blocks, &rooms);
        sound(&blocks, &rooms, &packed);
        let in_use = |s: usize| {
            let at = blocks.iter().filter(|b| b.steps.0 <= s && s <= b.steps.1);
            at.map(|b| b.bytes).sum::<usize>()
        };
        let least = (0..steps).map(in_use).max().unwrap_or(0);
        if rooms.is_empty() {
            assert!(packed.bytes >= least);
            waste.push(packed.bytes as f64 / least.max(1) as f64);
        } else {
            assert!(packed.bytes <= pack(&blocks, &[]).bytes.max(least));
        }
    }
    // Random blocks are harder than those of programs.
    let mean = waste.iter().filter(|w| **w > 0.0).sum::<f64>() / waste.len() as f64;
    assert!(mean < 1.05, "{mean}");
}

#[test]
fn what_is_there_anyhow_is_used_until_it_is_written() {
    let block = |bytes, first, last| Block {
        bytes,
        steps: (first, last),
    };
    let room = Room {
        bytes: 256,
        until: 3,
    };
    let blocks = [block(256, 0, 1), block(192, 2, 2), block(128, 2, 3)];
    let packed = pack(&blocks, &[room]);
    let within: Vec<Option<usize>> = packed.places.iter().map(|p| p.room).collect();
    assert_eq!(packed.bytes, 128, "{packed:?}");
    assert!(
        within.contains(&Some(0)) && within[2].is_none(),
        "{packed:?}"
    );
}

#[test]
fn a_long_chain_takes_two_turns() {
    let block = |k: usize| Block {
        bytes: 64,
        steps: (k, k + 1),
    };
    let blocks: Vec<Block> = (0..100_000).map(block).collect();
    let packed = pack(&blocks, &[]);
    assert_eq!(packed.bytes, 128);
}
