//! Kernels for any processor, as well as its compiler puts them into vectors. Flows in: arrays and
//! rounds; flows out: nothing but the time that they take.

use crate::Pattern;
use crate::arena::Line;
use std::hint::black_box;

/// Independent sums, enough to hide the latency of an addition.
const SUMS: usize = 8;

/// Operations of a round of `compute`.
pub(crate) const OPERATIONS: f64 = (SUMS * 16 * 2) as f64;

/// a·x + b, in one instruction where every processor of this kind has one.
fn multiply_add(x: f32, a: f32, b: f32) -> f32 {
    if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
        x.mul_add(a, b)
    } else {
        x * a + b
    }
}

/// Multiply-adds of f32.
pub(crate) fn compute(rounds: usize) {
    let a = black_box(0.999_999f32);
    let b = black_box(1e-7f32);
    let mut sums = [[1.0f32; 16]; SUMS];
    for _ in 0..rounds {
        for x in sums.as_flattened_mut() {
            *x = multiply_add(*x, a, b);
        }
    }
    black_box(sums);
}

/// Go through the arrays.
pub(crate) fn sweep(pattern: Pattern, mut arrays: Vec<&mut [Line]>, rounds: usize) {
    for _ in 0..rounds {
        match (pattern, &mut arrays[..]) {
            (Pattern::Copy, [to, from]) => to.copy_from_slice(black_box(from)),
            (Pattern::Triad, [to, a, b]) => {
                for ((to, a), b) in to.iter_mut().zip(a.iter()).zip(b.iter()) {
                    for ((to, a), b) in to.0.iter_mut().zip(a.0).zip(b.0) {
                        *to = multiply_add(b, 3.0, a);
                    }
                }
            }
            (_, all) => {
                let mut sums = [[0.0f32; 16]; SUMS];
                for block in all[0].chunks_exact(SUMS) {
                    for (sum, line) in sums.iter_mut().zip(block) {
                        for (s, x) in sum.iter_mut().zip(line.0) {
                            *s += x;
                        }
                    }
                }
                black_box(sums);
            }
        }
        black_box(&mut arrays);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_written() {
        let mut to = [Line([0.0; 16]); 8];
        let mut a = [Line([2.0; 16]); 8];
        let mut b = [Line([5.0; 16]); 8];
        sweep(Pattern::Copy, vec![&mut to, &mut a], 2);
        assert_eq!(to[7].0[15], 2.0);
        sweep(Pattern::Triad, vec![&mut to, &mut a, &mut b], 1);
        assert_eq!(to[0].0[0], 17.0);
        sweep(Pattern::Read, vec![&mut to], 3);
        compute(3);
    }
}
