//! Kernels for x86-64, in vectors of 32 or 64 bytes. Flows in: arrays and rounds; flows out: nothing but
//! the time that they take.
//!
//! Invariant: a `Level` exists only where the processor has all of its features, so what is compiled for
//! them may be called.

use crate::arena::{BLOCK, Line, STREAMS};
use crate::tiles;
use crate::{Arithmetic, Pattern, Stores};
use std::arch::x86_64::*;
use std::hint::black_box;

/// What the processor has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    /// Vectors of 64 bytes; else of 32.
    wide: bool,
    bf16: bool,
    dots: Dots,
    /// Whether products of tiles are used where they are here.
    tiles: bool,
}

/// How fours of 8-bit integers are multiplied and added.
#[derive(Clone, Copy, Debug)]
enum Dots {
    /// In one instruction, on vectors of 64 bytes.
    Wide,
    /// In one instruction, on vectors of 32 bytes.
    Narrow,
    /// In three: products to 16 bits, pairs to 32, a sum.
    Steps,
}

impl Level {
    /// That of this machine; None without AVX2 and FMA.
    pub(crate) fn here() -> Option<Level> {
        if !(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")) {
            return None;
        }
        let wide = is_x86_feature_detected!("avx512f");
        let dots = if wide && is_x86_feature_detected!("avx512vnni") {
            Dots::Wide
        } else if is_x86_feature_detected!("avxvnni") {
            Dots::Narrow
        } else {
            Dots::Steps
        };
        Some(Level {
            wide,
            bf16: wide && is_x86_feature_detected!("avx512bf16"),
            dots,
            tiles: true,
        })
    }

    /// The tiles whose products do it.
    fn tiles(self, arithmetic: Arithmetic) -> Option<tiles::Of> {
        let of = match arithmetic {
            Arithmetic::F32 => return None,
            Arithmetic::Bf16 => tiles::Of::Bf16,
            Arithmetic::I8 => tiles::Of::I8,
        };
        (self.tiles && tiles::are_here(of)).then_some(of)
    }

    /// Whether there is an instruction for it.
    pub(crate) fn has(self, arithmetic: Arithmetic) -> bool {
        match arithmetic {
            Arithmetic::F32 | Arithmetic::I8 => true,
            Arithmetic::Bf16 => self.bf16 || self.tiles(arithmetic).is_some(),
        }
    }

    /// Operations of a round of `compute`: two for each product.
    pub(crate) fn operations(self, arithmetic: Arithmetic) -> f64 {
        if let Some(of) = self.tiles(arithmetic) {
            return tiles::operations(of);
        }
        let products = match (arithmetic, self.dots) {
            (Arithmetic::F32, _) if self.wide => WIDE_SUMS * 16,
            (Arithmetic::F32, _) => NARROW_SUMS * 8,
            (Arithmetic::Bf16, _) => WIDE_SUMS * 32,
            (Arithmetic::I8, Dots::Wide) => WIDE_SUMS * 64,
            (Arithmetic::I8, Dots::Narrow | Dots::Steps) => NARROW_SUMS * 32,
        };
        (2 * products) as f64
    }

    /// Multiply-adds in registers.
    pub(crate) fn compute(self, arithmetic: Arithmetic, rounds: usize) {
        // SAFETY: a level has the features that its kernels are compiled for; see the module.
        unsafe {
            if let Some(of) = self.tiles(arithmetic) {
                return tiles::compute(of, rounds);
            }
            match (arithmetic, self.dots) {
                (Arithmetic::F32, _) if self.wide => wide::multiply_adds(rounds),
                (Arithmetic::F32, _) => narrow::multiply_adds(rounds),
                (Arithmetic::Bf16, _) => wide_bf16(rounds),
                (Arithmetic::I8, Dots::Wide) => wide_dots(rounds),
                (Arithmetic::I8, Dots::Narrow) => narrow_dots(rounds),
                (Arithmetic::I8, Dots::Steps) => dots_in_steps(rounds),
            }
        }
    }

    /// Go through the arrays, each of whole blocks and all of one length.
    pub(crate) fn sweep(
        self,
        pattern: Pattern,
        stores: Stores,
        streams: usize,
        mut arrays: Vec<&mut [Line]>,
        rounds: usize,
    ) {
        let past = stores == Stores::NonTemporal;
        let many = streams > 1;
        for _ in 0..rounds {
            // SAFETY: a level has the features that its kernels are compiled for; see the module.
            unsafe {
                match (self.wide, many) {
                    (true, true) => wide::sweep::<STREAMS>(pattern, &mut arrays, past),
                    (true, false) => wide::sweep::<1>(pattern, &mut arrays, past),
                    (false, true) => narrow::sweep::<STREAMS>(pattern, &mut arrays, past),
                    (false, false) => narrow::sweep::<1>(pattern, &mut arrays, past),
                }
            }
        }
    }
}

/// Bytes that are asked for before they are read, where there are several streams.
const AHEAD: usize = 2048;

/// Call `see` with where each block begins, in so many streams, each a part of the whole. Processors that
/// fetch ahead do so for a few streams at a time, and for each only so far.
#[inline(always)]
fn each_block<const COUNT: usize>(lines: usize, mut see: impl FnMut(usize)) {
    let part = lines / BLOCK / COUNT;
    for block in 0..part {
        for stream in 0..COUNT {
            see((stream * part + block) * BLOCK);
        }
    }
}

/// Ask for what follows a block, where there are several streams: one alone is fetched well enough, and the
/// first cache has no time for requests.
#[inline(always)]
fn ahead<const COUNT: usize>(block: &[Line]) {
    if COUNT > 1 {
        for line in block {
            // SAFETY: asking for memory that is not there does nothing.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(
                    std::ptr::from_ref(line).cast::<i8>().wrapping_add(AHEAD),
                );
            }
        }
    }
}

/// Independent sums: with the two constants they fill the registers, and they are more than an instruction
/// takes to finish where two begin at once.
const WIDE_SUMS: usize = 24;
const NARROW_SUMS: usize = 12;

/// The kernels of one width.
macro_rules! width {
    (
        $name:ident, $features:literal, $vector:ty, $sums:ident,
        $set:ident, $load:ident, $stream:ident, $add:ident, $multiply_add:ident
    ) => {
        mod $name {
            use super::*;

            /// Numbers of a vector, and of a line.
            const LANES: usize = size_of::<$vector>() / size_of::<f32>();
            const LINE: usize = size_of::<Line>() / size_of::<f32>();
            /// Vectors of a block.
            const VECTORS: usize = BLOCK * LINE / LANES;

            #[target_feature(enable = $features)]
            pub(super) fn multiply_adds(rounds: usize) {
                let a = $set(black_box(0.999_999));
                let b = $set(black_box(1e-7));
                let mut sums = [$set(1.0); $sums];
                for _ in 0..rounds {
                    for x in &mut sums {
                        *x = $multiply_add(*x, a, b);
                    }
                }
                black_box(sums);
            }

            #[target_feature(enable = $features)]
            pub(super) fn sweep<const STREAMS: usize>(
                pattern: Pattern,
                arrays: &mut [&mut [Line]],
                past: bool,
            ) {
                match (pattern, arrays) {
                    (Pattern::Copy, [to, from]) => copy::<STREAMS>(to, from, past),
                    (Pattern::Triad, [to, a, b]) => triad::<STREAMS>(to, a, b, past),
                    (_, arrays) => read::<STREAMS>(arrays[0]),
                }
            }

            #[target_feature(enable = $features)]
            fn read<const STREAMS: usize>(array: &[Line]) {
                let mut sums = [$set(0.0); VECTORS];
                each_block::<STREAMS>(array.len(), |at| {
                    let block = &array[at..at + BLOCK];
                    ahead::<STREAMS>(block);
                    for (k, sum) in sums.iter_mut().enumerate() {
                        *sum = $add(*sum, vector(block, k));
                    }
                });
                black_box(sums);
            }

            #[target_feature(enable = $features)]
            fn copy<const STREAMS: usize>(to: &mut [Line], from: &[Line], past: bool) {
                if past {
                    each_block::<STREAMS>(to.len(), |at| {
                        let from = &from[at..at + BLOCK];
                        let to = &mut to[at..at + BLOCK];
                        ahead::<STREAMS>(from);
                        for k in 0..VECTORS {
                            stream(to, k, vector(from, k));
                        }
                    });
                    _mm_sfence();
                } else {
                    each_block::<STREAMS>(to.len(), |at| {
                        let from = &from[at..at + BLOCK];
                        let to = &mut to[at..at + BLOCK];
                        ahead::<STREAMS>(from);
                        for k in 0..VECTORS {
                            store(to, k, vector(from, k));
                        }
                    });
                }
            }

            #[target_feature(enable = $features)]
            fn triad<const STREAMS: usize>(to: &mut [Line], a: &[Line], b: &[Line], past: bool) {
                let three = $set(3.0);
                if past {
                    each_block::<STREAMS>(to.len(), |at| {
                        let [a, b] = [&a[at..at + BLOCK], &b[at..at + BLOCK]];
                        let to = &mut to[at..at + BLOCK];
                        ahead::<STREAMS>(a);
                        ahead::<STREAMS>(b);
                        for k in 0..VECTORS {
                            let sum = $multiply_add(vector(b, k), three, vector(a, k));
                            stream(to, k, sum);
                        }
                    });
                    _mm_sfence();
                } else {
                    each_block::<STREAMS>(to.len(), |at| {
                        let [a, b] = [&a[at..at + BLOCK], &b[at..at + BLOCK]];
                        let to = &mut to[at..at + BLOCK];
                        ahead::<STREAMS>(a);
                        ahead::<STREAMS>(b);
                        for k in 0..VECTORS {
                            let sum = $multiply_add(vector(b, k), three, vector(a, k));
                            store(to, k, sum);
                        }
                    });
                }
            }

            #[target_feature(enable = $features)]
            fn vector(block: &[Line], k: usize) -> $vector {
                let from = &block[k * LANES / LINE].0[k * LANES % LINE..][..LANES];
                // SAFETY: the slice has a vector's numbers, and begins at a multiple of its size in an
                // aligned line.
                unsafe { $load(from.as_ptr()) }
            }

            #[target_feature(enable = $features)]
            fn store(block: &mut [Line], k: usize, value: $vector) {
                let to = &mut block[k * LANES / LINE].0[k * LANES % LINE..][..LANES];
                // Volatile, so that the compiler does not make a call of `memcpy` of it, which writes past
                // the caches whenever it thinks best.
                // SAFETY: as above, and the slice is ours to write.
                unsafe { to.as_mut_ptr().cast::<$vector>().write_volatile(value) }
            }

            #[target_feature(enable = $features)]
            fn stream(block: &mut [Line], k: usize, value: $vector) {
                let to = &mut block[k * LANES / LINE].0[k * LANES % LINE..][..LANES];
                // SAFETY: as above, and nobody reads it before the fence that follows.
                unsafe { $stream(to.as_mut_ptr(), value) }
            }
        }
    };
}

width!(
    wide,
    "avx512f",
    __m512,
    WIDE_SUMS,
    _mm512_set1_ps,
    _mm512_load_ps,
    _mm512_stream_ps,
    _mm512_add_ps,
    _mm512_fmadd_ps
);
width!(
    narrow,
    "avx2,fma",
    __m256,
    NARROW_SUMS,
    _mm256_set1_ps,
    _mm256_load_ps,
    _mm256_stream_ps,
    _mm256_add_ps,
    _mm256_fmadd_ps
);

#[target_feature(enable = "avx512f,avx512bf16")]
fn wide_bf16(rounds: usize) {
    let ones = _mm512_set1_ps(black_box(1.0));
    let tiny = _mm512_set1_ps(black_box(1e-20));
    let a = _mm512_cvtne2ps_pbh(ones, ones);
    let b = _mm512_cvtne2ps_pbh(tiny, tiny);
    let mut sums = [ones; WIDE_SUMS];
    for _ in 0..rounds {
        for x in &mut sums {
            *x = _mm512_dpbf16_ps(*x, a, b);
        }
    }
    black_box(sums);
}

#[target_feature(enable = "avx512f,avx512vnni")]
fn wide_dots(rounds: usize) {
    let a = _mm512_set1_epi8(black_box(1));
    let b = _mm512_set1_epi8(black_box(1));
    let mut sums = [a; WIDE_SUMS];
    for _ in 0..rounds {
        for x in &mut sums {
            *x = _mm512_dpbusd_epi32(*x, a, b);
        }
    }
    black_box(sums);
}

#[target_feature(enable = "avx2,avxvnni")]
fn narrow_dots(rounds: usize) {
    let a = _mm256_set1_epi8(black_box(1));
    let b = _mm256_set1_epi8(black_box(1));
    let mut sums = [a; NARROW_SUMS];
    for _ in 0..rounds {
        for x in &mut sums {
            *x = _mm256_dpbusd_avx_epi32(*x, a, b);
        }
    }
    black_box(sums);
}

#[target_feature(enable = "avx2")]
fn dots_in_steps(rounds: usize) {
    let b = _mm256_set1_epi8(black_box(1));
    let ones = _mm256_set1_epi16(black_box(1));
    let mut sums = [b; NARROW_SUMS];
    for _ in 0..rounds {
        for x in &mut sums {
            // The sum is an operand too: products of what never changes would be computed once.
            let pairs = _mm256_maddubs_epi16(*x, b);
            *x = _mm256_add_epi32(*x, _mm256_madd_epi16(pairs, ones));
        }
    }
    black_box(sums);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What this machine has, and the same without its wide vectors.
    fn levels() -> Vec<Level> {
        let narrow = |_| Level {
            wide: false,
            bf16: false,
            dots: Dots::Steps,
            tiles: false,
        };
        let here = Level::here();
        here.into_iter().chain(here.map(narrow)).collect()
    }

    #[test]
    fn arrays_are_written_whole() {
        for level in levels() {
            let ways = [Stores::Ordinary, Stores::NonTemporal];
            for (stores, streams) in ways.into_iter().flat_map(|s| [(s, 1), (s, STREAMS)]) {
                let mut to = [Line([0.0; 16]); STREAMS * 2 * BLOCK];
                let mut a = [Line([2.0; 16]); STREAMS * 2 * BLOCK];
                let mut b = [Line([5.0; 16]); STREAMS * 2 * BLOCK];
                a[3].0[9] = 7.0;
                level.sweep(Pattern::Copy, stores, streams, vec![&mut to, &mut a], 2);
                assert_eq!(numbers(&to), numbers(&a));
                level.sweep(
                    Pattern::Triad,
                    stores,
                    streams,
                    vec![&mut to, &mut a, &mut b],
                    1,
                );
                let wanted: Vec<f32> = numbers(&a).iter().map(|x| x + 15.0).collect();
                assert_eq!(numbers(&to), wanted);
                level.sweep(Pattern::Read, stores, streams, vec![&mut to], 1);
            }
        }
    }

    /// The numbers of lines, in order.
    fn numbers(lines: &[Line]) -> Vec<f32> {
        lines.iter().flat_map(|l| l.0).collect()
    }

    #[test]
    fn every_arithmetic_of_a_level_runs() {
        for level in levels() {
            for arithmetic in Arithmetic::ALL {
                if level.has(arithmetic) {
                    level.compute(arithmetic, 3);
                    assert!(level.operations(arithmetic) > 0.0);
                }
            }
        }
    }
}
