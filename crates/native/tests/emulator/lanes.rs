//! What vector instructions do to lanes, by mnemonic: one rule for all encodings. Flows in: a mnemonic; flows out: the
//! rule, if it is one that a table can say. Always: a rule knows neither widths of vectors nor how operands stand.

use super::floats::*;
use iced_x86::Mnemonic::{self, *};

/// Sixteen bytes, within which older instructions shuffle.
pub(crate) type Block = [u8; 16];

/// A rule. The last argument is the immediate.
#[derive(Copy, Clone)]
pub(crate) enum Rule {
    /// On every lane of so many bytes of one source.
    One(usize, fn(u64, u8) -> u64),
    /// On every lane of two.
    Two(usize, fn(u64, u64, u8) -> u64),
    /// On the first lane of the last source; the others come from the first.
    FirstOne(usize, fn(u64, u8) -> u64),
    /// On the first lanes of two; the others come from the first source.
    FirstTwo(usize, fn(u64, u64, u8) -> u64),
    /// On each block of one source.
    Block(fn(&Block, u8) -> Block),
    /// On each block of two.
    Blocks(fn(&Block, &Block, u8) -> Block),
    /// Lanes by a count: an immediate, or the low quadword of the second source.
    Shift(usize, fn(u64, u64) -> u64),
    /// Lanes of so many bytes as lanes of so many others.
    Convert(usize, usize, fn(u64) -> u64),
    /// A bit of a mask register for each lane, by a comparison of two.
    Mask(usize, fn(u64, u64, u8) -> bool),
    /// The same of the first lane alone.
    FirstMask(usize, fn(u64, u64, u8) -> bool),
    /// a·b + c of lanes, whose operands are the first three in this order; of the first lane alone.
    Fused(usize, [u32; 3], bool),
    /// On every lane of four bytes of the destination, which is added to, and of two.
    Dot(fn(u64, u64, u64) -> u64),
}

use Rule::{Blocks, Convert, FirstMask, FirstOne, FirstTwo, Fused, Mask, One, Shift, Two};

fn signed(value: u64, bytes: usize) -> i64 {
    let bits = 64 - 8 * bytes as u32;
    (value << bits) as i64 >> bits
}

/// All ones or all zeros.
fn filled(holds: bool) -> u64 {
    if holds { u64::MAX } else { 0 }
}

fn shl(lane: usize, a: u64, by: u64) -> u64 {
    if by >= 8 * lane as u64 { 0 } else { a << by }
}

fn shr(lane: usize, a: u64, by: u64) -> u64 {
    if by >= 8 * lane as u64 { 0 } else { a >> by }
}

fn sar(lane: usize, a: u64, by: u64) -> u64 {
    (signed(a, lane) >> by.min(8 * lane as u64 - 1)) as u64
}

fn equal_bits(a: u64, b: u64) -> bool {
    a == b
}

/// The rule of a mnemonic.
pub(crate) fn rule(m: Mnemonic) -> Option<Rule> {
    Some(match m {
        Addps | Vaddps => Two(4, |a, b, _| single2(a, b, |x, y| x + y)),
        Addpd | Vaddpd => Two(8, |a, b, _| double2(a, b, |x, y| x + y)),
        Addss | Vaddss => FirstTwo(4, |a, b, _| single2(a, b, |x, y| x + y)),
        Addsd | Vaddsd => FirstTwo(8, |a, b, _| double2(a, b, |x, y| x + y)),
        Subps | Vsubps => Two(4, |a, b, _| single2(a, b, |x, y| x - y)),
        Subpd | Vsubpd => Two(8, |a, b, _| double2(a, b, |x, y| x - y)),
        Subss | Vsubss => FirstTwo(4, |a, b, _| single2(a, b, |x, y| x - y)),
        Subsd | Vsubsd => FirstTwo(8, |a, b, _| double2(a, b, |x, y| x - y)),
        Mulps | Vmulps => Two(4, |a, b, _| single2(a, b, |x, y| x * y)),
        Mulpd | Vmulpd => Two(8, |a, b, _| double2(a, b, |x, y| x * y)),
        Mulss | Vmulss => FirstTwo(4, |a, b, _| single2(a, b, |x, y| x * y)),
        Mulsd | Vmulsd => FirstTwo(8, |a, b, _| double2(a, b, |x, y| x * y)),
        Divps | Vdivps => Two(4, |a, b, _| single2(a, b, |x, y| x / y)),
        Divpd | Vdivpd => Two(8, |a, b, _| double2(a, b, |x, y| x / y)),
        Divss | Vdivss => FirstTwo(4, |a, b, _| single2(a, b, |x, y| x / y)),
        Divsd | Vdivsd => FirstTwo(8, |a, b, _| double2(a, b, |x, y| x / y)),
        Minps | Vminps => Two(4, |a, b, _| single_pick(a, b, f32::lt)),
        Minpd | Vminpd => Two(8, |a, b, _| double_pick(a, b, f64::lt)),
        Minss | Vminss => FirstTwo(4, |a, b, _| single_pick(a, b, f32::lt)),
        Minsd | Vminsd => FirstTwo(8, |a, b, _| double_pick(a, b, f64::lt)),
        Maxps | Vmaxps => Two(4, |a, b, _| single_pick(a, b, f32::gt)),
        Maxpd | Vmaxpd => Two(8, |a, b, _| double_pick(a, b, f64::gt)),
        Maxss | Vmaxss => FirstTwo(4, |a, b, _| single_pick(a, b, f32::gt)),
        Maxsd | Vmaxsd => FirstTwo(8, |a, b, _| double_pick(a, b, f64::gt)),
        Sqrtps | Vsqrtps => One(4, |a, _| single1(a, f32::sqrt)),
        Sqrtpd | Vsqrtpd => One(8, |a, _| double1(a, f64::sqrt)),
        Sqrtss | Vsqrtss => FirstOne(4, |a, _| single1(a, f32::sqrt)),
        Sqrtsd | Vsqrtsd => FirstOne(8, |a, _| double1(a, f64::sqrt)),
        Roundps | Vroundps | Vrndscaleps => One(4, single_round),
        Roundpd | Vroundpd | Vrndscalepd => One(8, double_round),
        Roundss | Vroundss | Vrndscaless => FirstOne(4, single_round),
        Roundsd | Vroundsd | Vrndscalesd => FirstOne(8, double_round),
        Andps | Vandps | Andpd | Vandpd => Two(8, |a, b, _| a & b),
        Pand | Vpand | Vpandd | Vpandq => Two(8, |a, b, _| a & b),
        Orps | Vorps | Orpd | Vorpd | Por | Vpor | Vpord | Vporq => Two(8, |a, b, _| a | b),
        Xorps | Vxorps | Xorpd | Vxorpd => Two(8, |a, b, _| a ^ b),
        Pxor | Vpxor | Vpxord | Vpxorq => Two(8, |a, b, _| a ^ b),
        Andnps | Vandnps | Andnpd | Vandnpd => Two(8, |a, b, _| !a & b),
        Pandn | Vpandn | Vpandnd | Vpandnq => Two(8, |a, b, _| !a & b),
        _ => {
            return integers(m)
                .or_else(|| moves(m))
                .or_else(|| fused(m))
                .or_else(|| dots(m));
        }
    })
}

fn integers(m: Mnemonic) -> Option<Rule> {
    Some(match m {
        Paddb | Vpaddb => Two(1, |a, b, _| a.wrapping_add(b)),
        Paddw | Vpaddw => Two(2, |a, b, _| a.wrapping_add(b)),
        Paddd | Vpaddd => Two(4, |a, b, _| a.wrapping_add(b)),
        Paddq | Vpaddq => Two(8, |a, b, _| a.wrapping_add(b)),
        Psubb | Vpsubb => Two(1, |a, b, _| a.wrapping_sub(b)),
        Psubw | Vpsubw => Two(2, |a, b, _| a.wrapping_sub(b)),
        Psubd | Vpsubd => Two(4, |a, b, _| a.wrapping_sub(b)),
        Psubq | Vpsubq => Two(8, |a, b, _| a.wrapping_sub(b)),
        Pmullw | Vpmullw => Two(2, |a, b, _| a.wrapping_mul(b)),
        Pmulhuw | Vpmulhuw => Two(2, |a, b, _| (a * b) >> 16),
        Pmulld | Vpmulld => Two(4, |a, b, _| a.wrapping_mul(b)),
        Vpmullq => Two(8, |a, b, _| a.wrapping_mul(b)),
        Pmuludq | Vpmuludq => Two(8, |a, b, _| (a & 0xffff_ffff) * (b & 0xffff_ffff)),
        Pmaddwd | Vpmaddwd => Two(4, |a, b, _| {
            let part = |v: u64, k: u32| signed(v >> (16 * k), 2);
            (part(a, 0) * part(b, 0)).wrapping_add(part(a, 1) * part(b, 1)) as u64
        }),
        Pminsb | Vpminsb => Two(1, |a, b, _| signed(a, 1).min(signed(b, 1)) as u64),
        Pminsw | Vpminsw => Two(2, |a, b, _| signed(a, 2).min(signed(b, 2)) as u64),
        Pminsd | Vpminsd => Two(4, |a, b, _| signed(a, 4).min(signed(b, 4)) as u64),
        Vpminsq => Two(8, |a, b, _| signed(a, 8).min(signed(b, 8)) as u64),
        Pmaxsb | Vpmaxsb => Two(1, |a, b, _| signed(a, 1).max(signed(b, 1)) as u64),
        Pmaxsw | Vpmaxsw => Two(2, |a, b, _| signed(a, 2).max(signed(b, 2)) as u64),
        Pmaxsd | Vpmaxsd => Two(4, |a, b, _| signed(a, 4).max(signed(b, 4)) as u64),
        Vpmaxsq => Two(8, |a, b, _| signed(a, 8).max(signed(b, 8)) as u64),
        Pminub | Vpminub => Two(1, |a, b, _| a.min(b)),
        Pminuw | Vpminuw => Two(2, |a, b, _| a.min(b)),
        Pminud | Vpminud => Two(4, |a, b, _| a.min(b)),
        Vpminuq => Two(8, |a, b, _| a.min(b)),
        Pmaxub | Vpmaxub => Two(1, |a, b, _| a.max(b)),
        Pmaxuw | Vpmaxuw => Two(2, |a, b, _| a.max(b)),
        Pmaxud | Vpmaxud => Two(4, |a, b, _| a.max(b)),
        Vpmaxuq => Two(8, |a, b, _| a.max(b)),
        Pabsb | Vpabsb => One(1, |a, _| signed(a, 1).unsigned_abs()),
        Pabsw | Vpabsw => One(2, |a, _| signed(a, 2).unsigned_abs()),
        Pabsd | Vpabsd => One(4, |a, _| signed(a, 4).unsigned_abs()),
        Pcmpgtb => Two(1, |a, b, _| filled(signed(a, 1) > signed(b, 1))),
        Pcmpgtw => Two(2, |a, b, _| filled(signed(a, 2) > signed(b, 2))),
        Pcmpgtd => Two(4, |a, b, _| filled(signed(a, 4) > signed(b, 4))),
        Pcmpgtq => Two(8, |a, b, _| filled(signed(a, 8) > signed(b, 8))),
        Vpcmpgtb => Mask(1, |a, b, _| signed(a, 1) > signed(b, 1)),
        Vpcmpgtw => Mask(2, |a, b, _| signed(a, 2) > signed(b, 2)),
        Vpcmpgtd => Mask(4, |a, b, _| signed(a, 4) > signed(b, 4)),
        Vpcmpgtq => Mask(8, |a, b, _| signed(a, 8) > signed(b, 8)),
        Pcmpeqb => Two(1, |a, b, _| filled(equal_bits(a, b))),
        Pcmpeqw => Two(2, |a, b, _| filled(equal_bits(a, b))),
        Pcmpeqd => Two(4, |a, b, _| filled(equal_bits(a, b))),
        Pcmpeqq => Two(8, |a, b, _| filled(equal_bits(a, b))),
        Vpcmpeqb => Mask(1, |a, b, _| equal_bits(a, b)),
        Vpcmpeqw => Mask(2, |a, b, _| equal_bits(a, b)),
        Vpcmpeqd => Mask(4, |a, b, _| equal_bits(a, b)),
        Vpcmpeqq => Mask(8, |a, b, _| equal_bits(a, b)),
        Cmpps | Vcmpps => Mask(4, single_compare),
        Cmppd | Vcmppd => Mask(8, double_compare),
        Cmpss | Vcmpss => FirstMask(4, single_compare),
        Cmpsd | Vcmpsd => FirstMask(8, double_compare),
        Psllw | Vpsllw => Shift(2, |a, by| shl(2, a, by)),
        Pslld | Vpslld => Shift(4, |a, by| shl(4, a, by)),
        Psllq | Vpsllq => Shift(8, |a, by| shl(8, a, by)),
        Vprold => Shift(4, |a, by| (a as u32).rotate_left(by as u32) as u64),
        Vprolq => Shift(8, |a, by| a.rotate_left(by as u32)),
        Psrlw | Vpsrlw => Shift(2, |a, by| shr(2, a, by)),
        Psrld | Vpsrld => Shift(4, |a, by| shr(4, a, by)),
        Psrlq | Vpsrlq => Shift(8, |a, by| shr(8, a, by)),
        Psraw | Vpsraw => Shift(2, |a, by| sar(2, a, by)),
        Psrad | Vpsrad => Shift(4, |a, by| sar(4, a, by)),
        Vpsraq => Shift(8, |a, by| sar(8, a, by)),
        Vpsllvw => Two(2, |a, b, _| shl(2, a, b)),
        Vpsllvd => Two(4, |a, b, _| shl(4, a, b)),
        Vpsllvq => Two(8, |a, b, _| shl(8, a, b)),
        Vpsrlvw => Two(2, |a, b, _| shr(2, a, b)),
        Vpsrlvd => Two(4, |a, b, _| shr(4, a, b)),
        Vpsrlvq => Two(8, |a, b, _| shr(8, a, b)),
        Vpsravw => Two(2, |a, b, _| sar(2, a, b)),
        Vpsravd => Two(4, |a, b, _| sar(4, a, b)),
        Vpsravq => Two(8, |a, b, _| sar(8, a, b)),
        _ => return conversions(m),
    })
}

fn conversions(m: Mnemonic) -> Option<Rule> {
    Some(match m {
        Cvtdq2ps | Vcvtdq2ps => Convert(4, 4, |a| u64::from((a as i32 as f32).to_bits())),
        Cvttps2dq | Vcvttps2dq => Convert(4, 4, |a| truncated(single(a), 4)),
        Cvtps2pd | Vcvtps2pd => Convert(4, 8, widened),
        Cvtpd2ps | Vcvtpd2ps => Convert(8, 4, narrowed),
        Cvtdq2pd | Vcvtdq2pd => Convert(4, 8, |a| f64::from(a as i32).to_bits()),
        Vcvtqq2ps => Convert(8, 4, |a| u64::from((a as i64 as f32).to_bits())),
        Cvttpd2dq | Vcvttpd2dq => Convert(8, 4, |a| truncated(f64::from_bits(a), 4)),
        Vcvtqq2pd => Convert(8, 8, |a| (a as i64 as f64).to_bits()),
        Vcvttpd2qq => Convert(8, 8, |a| truncated(f64::from_bits(a), 8)),
        Vcvtph2ps => Convert(2, 4, from_half),
        Vcvtps2ph => Convert(4, 2, to_half),
        Pmovsxbw | Vpmovsxbw => Convert(1, 2, |a| signed(a, 1) as u64),
        Pmovsxbd | Vpmovsxbd => Convert(1, 4, |a| signed(a, 1) as u64),
        Pmovsxbq | Vpmovsxbq => Convert(1, 8, |a| signed(a, 1) as u64),
        Pmovsxwd | Vpmovsxwd => Convert(2, 4, |a| signed(a, 2) as u64),
        Pmovsxwq | Vpmovsxwq => Convert(2, 8, |a| signed(a, 2) as u64),
        Pmovsxdq | Vpmovsxdq => Convert(4, 8, |a| signed(a, 4) as u64),
        Pmovzxbw | Vpmovzxbw => Convert(1, 2, |a| a),
        Pmovzxbd | Vpmovzxbd => Convert(1, 4, |a| a),
        Pmovzxbq | Vpmovzxbq => Convert(1, 8, |a| a),
        Pmovzxwd | Vpmovzxwd => Convert(2, 4, |a| a),
        Pmovzxwq | Vpmovzxwq => Convert(2, 8, |a| a),
        Pmovzxdq | Vpmovzxdq => Convert(4, 8, |a| a),
        Vpmovwb => Convert(2, 1, |a| a),
        Vpmovdb => Convert(4, 1, |a| a),
        Vpmovqb => Convert(8, 1, |a| a),
        Vpmovdw => Convert(4, 2, |a| a),
        Vpmovqw => Convert(8, 2, |a| a),
        Vpmovqd => Convert(8, 4, |a| a),
        _ => return None,
    })
}

/// A block of lanes, each by its place.
fn made(lane: usize, mut f: impl FnMut(usize) -> u64) -> Block {
    let mut block = [0; 16];
    for (k, to) in block.chunks_exact_mut(lane).enumerate() {
        to.copy_from_slice(&f(k).to_le_bytes()[..lane]);
    }
    block
}

fn lane(block: &Block, bytes: usize, k: usize) -> u64 {
    let mut word = [0; 8];
    word[..bytes].copy_from_slice(&block[k * bytes..(k + 1) * bytes]);
    u64::from_le_bytes(word)
}

fn unpack(bytes: usize, high: bool, a: &Block, b: &Block) -> Block {
    let start = if high { 8 / bytes } else { 0 };
    made(bytes, |k| lane([a, b][k % 2], bytes, start + k / 2))
}

/// Lanes of both as lanes half as wide, the nearest where they do not fit.
fn pack(bytes: usize, least: i64, most: i64, a: &Block, b: &Block) -> Block {
    let count = 16 / bytes;
    made(bytes / 2, |k| {
        signed(lane([a, b][k / count], bytes, k % count), bytes).clamp(least, most) as u64
    })
}

fn moves(m: Mnemonic) -> Option<Rule> {
    Some(match m {
        Punpcklbw | Vpunpcklbw => Blocks(|a, b, _| unpack(1, false, a, b)),
        Punpckhbw | Vpunpckhbw => Blocks(|a, b, _| unpack(1, true, a, b)),
        Punpcklwd | Vpunpcklwd => Blocks(|a, b, _| unpack(2, false, a, b)),
        Punpckhwd | Vpunpckhwd => Blocks(|a, b, _| unpack(2, true, a, b)),
        Punpckldq | Vpunpckldq | Unpcklps | Vunpcklps => Blocks(|a, b, _| unpack(4, false, a, b)),
        Punpckhdq | Vpunpckhdq | Unpckhps | Vunpckhps => Blocks(|a, b, _| unpack(4, true, a, b)),
        Punpcklqdq | Vpunpcklqdq | Unpcklpd | Vunpcklpd => Blocks(|a, b, _| unpack(8, false, a, b)),
        Punpckhqdq | Vpunpckhqdq | Unpckhpd | Vunpckhpd => Blocks(|a, b, _| unpack(8, true, a, b)),
        Packssdw | Vpackssdw => Blocks(|a, b, _| pack(4, -0x8000, 0x7fff, a, b)),
        Packusdw | Vpackusdw => Blocks(|a, b, _| pack(4, 0, 0xffff, a, b)),
        Packsswb | Vpacksswb => Blocks(|a, b, _| pack(2, -0x80, 0x7f, a, b)),
        Packuswb | Vpackuswb => Blocks(|a, b, _| pack(2, 0, 0xff, a, b)),
        Pshufb | Vpshufb => Blocks(|a, b, _| {
            made(1, |k| match b[k] {
                128.. => 0,
                from => u64::from(a[usize::from(from & 15)]),
            })
        }),
        Shufps | Vshufps => Blocks(|a, b, imm| {
            made(4, |k| {
                lane([a, b][k / 2], 4, usize::from(imm >> (2 * k) & 3))
            })
        }),
        Palignr | Vpalignr => Blocks(|a, b, imm| {
            made(1, |k| match k + usize::from(imm) {
                at @ 0..16 => u64::from(b[at]),
                at @ 16..32 => u64::from(a[at - 16]),
                _ => 0,
            })
        }),
        Pshufd | Vpshufd => {
            Rule::Block(|a, imm| made(4, |k| lane(a, 4, usize::from(imm >> (2 * k) & 3))))
        }
        Pshuflw | Vpshuflw => Rule::Block(|a, imm| {
            made(2, |k| match k {
                0..4 => lane(a, 2, usize::from(imm >> (2 * k) & 3)),
                _ => lane(a, 2, k),
            })
        }),
        Pshufhw | Vpshufhw => Rule::Block(|a, imm| {
            made(2, |k| match k {
                4.. => lane(a, 2, 4 + usize::from(imm >> (2 * (k - 4)) & 3)),
                _ => lane(a, 2, k),
            })
        }),

        Movddup | Vmovddup => Rule::Block(|a, _| made(8, |_| lane(a, 8, 0))),
        Movshdup | Vmovshdup => Rule::Block(|a, _| made(4, |k| lane(a, 4, k | 1))),
        Movsldup | Vmovsldup => Rule::Block(|a, _| made(4, |k| lane(a, 4, k & !1))),
        Psrldq | Vpsrldq => Rule::Block(|a, imm| {
            made(1, |k| {
                a.get(k + usize::from(imm)).map_or(0, |b| u64::from(*b))
            })
        }),
        Pslldq | Vpslldq => Rule::Block(|a, imm| {
            made(1, |k| match k.checked_sub(usize::from(imm)) {
                Some(at) => u64::from(a[at]),
                None => 0,
            })
        }),
        _ => return None,
    })
}

/// The product of element k of two words, by how these are read.
fn element_product(a: i64, b: i64) -> u64 {
    a.wrapping_mul(b) as u64
}

/// A word of bfloat16s, as single precision; what is too small to be normal is a zero.
pub(super) fn halves(word: u64) -> [u64; 2] {
    [word << 16 & 0xffff_ffff, word & 0xffff_0000].map(flushed)
}

/// The bits of a single, of a zero where they are those of what is too small to be normal.
pub(super) fn flushed(bits: u64) -> u64 {
    if f32::from_bits(bits as u32).is_subnormal() {
        bits & 0x8000_0000
    } else {
        bits
    }
}

fn dots(m: Mnemonic) -> Option<Rule> {
    Some(match m {
        Vpdpwssd => Rule::Dot(|sum, a, b| {
            let of = |k: u32| element_product(signed(a >> (16 * k), 2), signed(b >> (16 * k), 2));
            sum.wrapping_add(of(0)).wrapping_add(of(1))
        }),
        Vpdpbusd => Rule::Dot(|sum, a, b| {
            let of = |k: u32| {
                let unsigned = (a >> (8 * k) & 0xff) as i64;
                element_product(unsigned, signed(b >> (8 * k), 1))
            };
            (0..4).fold(sum, |sum, k| sum.wrapping_add(of(k)))
        }),
        Vdpbf16ps => Rule::Dot(|sum, a, b| {
            let [x, y] = [halves(a), halves(b)];
            let fused = |k: usize, sum| flushed(single_fused(x[k], y[k], flushed(sum)));
            fused(0, fused(1, sum))
        }),
        _ => return None,
    })
}

fn fused(m: Mnemonic) -> Option<Rule> {
    Some(match m {
        Vfmadd132ps => Fused(4, [0, 2, 1], false),
        Vfmadd213ps => Fused(4, [1, 0, 2], false),
        Vfmadd231ps => Fused(4, [1, 2, 0], false),
        Vfmadd132pd => Fused(8, [0, 2, 1], false),
        Vfmadd213pd => Fused(8, [1, 0, 2], false),
        Vfmadd231pd => Fused(8, [1, 2, 0], false),
        Vfmadd132ss => Fused(4, [0, 2, 1], true),
        Vfmadd213ss => Fused(4, [1, 0, 2], true),
        Vfmadd231ss => Fused(4, [1, 2, 0], true),
        Vfmadd132sd => Fused(8, [0, 2, 1], true),
        Vfmadd213sd => Fused(8, [1, 0, 2], true),
        Vfmadd231sd => Fused(8, [1, 2, 0], true),
        _ => return None,
    })
}
