//! Instructions on vectors and masks. Flows in: an instruction; flows out: registers and memory after it. Always: what
//! is above a written vector becomes 0 with VEX and EVEX, and stays without; SSE's operands are aligned.

use super::lanes::{Rule, rule};
use super::{Decoded, Processor, Result, Vector, bytes_of, floats, number, operands};
use iced_x86::{Instruction, Mnemonic as M, OpKind, Register};

pub(super) fn get(v: &[u8], lane: usize, k: usize) -> u64 {
    let mut word = [0; 8];
    word[..lane].copy_from_slice(&v[k * lane..(k + 1) * lane]);
    u64::from_le_bytes(word)
}

pub(super) fn set(v: &mut [u8], lane: usize, k: usize, value: u64) {
    v[k * lane..(k + 1) * lane].copy_from_slice(&value.to_le_bytes()[..lane]);
}

/// Lanes of a vector of so many bytes, each by its place.
pub(super) fn made(bytes: usize, lane: usize, f: impl Fn(usize) -> u64) -> Vector {
    let mut v = [0; 64];
    for k in 0..bytes / lane {
        set(&mut v, lane, k, f(k));
    }
    v
}

impl Processor {
    /// Do an instruction, if it is one of those.
    pub(super) fn vector_step(&mut self, decoded: &Decoded) -> Result<bool> {
        let it = &decoded.it;
        let m = it.mnemonic();
        self.aligned(decoded)?;
        if let Some(rule) = rule(m) {
            let merges = matches!(rule, Rule::Fused(..)) && !it.zeroing_masking();
            if it.op_mask() != Register::None && !merges {
                return Err("a mask where the emulator has none".to_owned());
            }
            let legacy = decoded.legacy;
            self.by_rule(it, legacy, rule)?;
            return Ok(true);
        }
        Ok(self.moves(decoded)? || self.scalars(decoded)? || self.masks(it)?)
    }

    /// Vectors of SSE that are memory lie at a multiple of 16, but for the loads and stores that say otherwise.
    fn aligned(&mut self, decoded: &Decoded) -> Result<()> {
        let it = &decoded.it;
        if !(0..it.op_count()).any(|n| it.op_kind(n) == OpKind::Memory) {
            return Ok(());
        }
        let bytes = it.memory_size().size();
        let free = matches!(
            it.mnemonic(),
            M::Movups | M::Movdqu | M::Prefetcht1 | M::Lea
        );
        let strict = matches!(it.mnemonic(), M::Vmovaps | M::Vmovntps);
        let asked = strict || decoded.legacy && !free && bytes == 16;
        let address = self.address(it);
        if asked && !address.is_multiple_of(bytes as u64) {
            return Err(format!("{address:#x} is no multiple of {bytes}"));
        }
        Ok(())
    }

    /// A source: a vector register, or memory, of which the rest is 0, or one element in all lanes.
    pub(super) fn source(&mut self, it: &Instruction, n: u32) -> Result<Vector> {
        if it.op_kind(n) == OpKind::Register {
            let register = it.op_register(n);
            if register.is_gpr() {
                return Ok(made(8, 8, |_| self.general[number(register)]));
            }
            return Ok(self.vectors[number(register)]);
        }
        let address = self.address(it);
        let bytes = it.memory_size().size();
        let element = self.memory.get(address, bytes)?;
        let mut v = [0; 64];
        if it.is_broadcast() {
            for to in v.chunks_exact_mut(bytes) {
                to.copy_from_slice(element);
            }
        } else {
            v[..bytes].copy_from_slice(element);
        }
        Ok(v)
    }

    /// Write so many bytes of a vector to an operand.
    pub(super) fn write(
        &mut self,
        it: &Instruction,
        n: u32,
        v: &Vector,
        legacy: bool,
    ) -> Result<()> {
        if it.op_kind(n) == OpKind::Memory {
            let address = self.address(it);
            return self.memory.put(address, &v[..it.memory_size().size()]);
        }
        let register = it.op_register(n);
        let bytes = bytes_of(register);
        let to = &mut self.vectors[number(register)];
        to[..bytes].copy_from_slice(&v[..bytes]);
        if !legacy {
            to[bytes..].fill(0);
        }
        Ok(())
    }

    /// The immediate, which is the last operand, or 0.
    pub(super) fn immediate(it: &Instruction) -> u8 {
        match it.op_count().checked_sub(1).map(|n| it.op_kind(n)) {
            Some(OpKind::Immediate8) => it.immediate8(),
            _ => 0,
        }
    }

    /// The first source of two, and the second. Without VEX the first is where the destination is.
    pub(super) fn pair(&mut self, it: &Instruction) -> Result<[Vector; 2]> {
        let last = operands(it) as u32 - 1;
        let first = self.source(it, last - 1)?;
        Ok([first, self.source(it, last)?])
    }

    /// The bytes that an instruction works on: those of its widest vector register.
    pub(super) fn width(it: &Instruction) -> usize {
        (0..it.op_count())
            .filter(|&n| it.op_kind(n) == OpKind::Register)
            .map(|n| it.op_register(n))
            .filter(|r| r.is_vector_register())
            .map(bytes_of)
            .max()
            .unwrap_or(16)
    }

    fn by_rule(&mut self, it: &Instruction, legacy: bool, rule: Rule) -> Result<()> {
        let imm = Self::immediate(it);
        let bytes = Self::width(it);
        let last = operands(it) as u32 - 1;
        let v = match rule {
            Rule::One(lane, f) => {
                let a = self.source(it, last)?;
                made(bytes, lane, |k| f(get(&a, lane, k), imm))
            }
            Rule::Two(lane, f) => {
                let [a, b] = self.pair(it)?;
                made(bytes, lane, |k| f(get(&a, lane, k), get(&b, lane, k), imm))
            }
            Rule::FirstOne(lane, f) => {
                let [mut a, b] = self.pair(it)?;
                set(&mut a, lane, 0, f(get(&b, lane, 0), imm));
                a
            }
            Rule::FirstTwo(lane, f) => {
                let [mut a, b] = self.pair(it)?;
                let value = f(get(&a, lane, 0), get(&b, lane, 0), imm);
                set(&mut a, lane, 0, value);
                a
            }
            Rule::Block(f) => {
                let a = self.source(it, last)?;
                let mut v = [0; 64];
                for (to, from) in v.chunks_exact_mut(16).zip(a.chunks_exact(16)) {
                    to.copy_from_slice(&f(from.try_into().expect("16 bytes"), imm));
                }
                v
            }
            Rule::Blocks(f) => {
                let [a, b] = self.pair(it)?;
                let mut v = [0; 64];
                for (k, to) in v.chunks_exact_mut(16).enumerate() {
                    let part = |v: &Vector| v[16 * k..16 * k + 16].try_into().expect("16 bytes");
                    to.copy_from_slice(&f(&part(&a), &part(&b), imm));
                }
                v
            }
            Rule::Shift(lane, f) => {
                let by_number = it.op_kind(it.op_count() - 1) == OpKind::Immediate8;
                let [a, by] = match by_number {
                    true => [self.source(it, last)?, made(8, 8, |_| u64::from(imm))],
                    false => self.pair(it)?,
                };
                made(bytes, lane, |k| f(get(&a, lane, k), get(&by, 8, 0)))
            }
            Rule::Convert(from, to, f) => {
                let a = self.source(it, last)?;
                // The wider lanes are as many as fill the widest operand.
                let memory = match it.op_kind(last) {
                    OpKind::Memory => it.memory_size().size(),
                    _ => 0,
                };
                let count = bytes.max(memory) / from.max(to);
                let mut v = [0; 64];
                for k in 0..count {
                    set(&mut v, to, k, f(get(&a, from, k)));
                }
                v
            }
            Rule::Mask(lane, f) => {
                let [a, b] = self.pair(it)?;
                let holds = |k| f(get(&a, lane, k), get(&b, lane, k), imm);
                if it.op0_register().is_k() {
                    let bits = (0..bytes / lane).map(|k| u64::from(holds(k)) << k);
                    self.masks[number(it.op0_register())] = bits.sum();
                    return Ok(());
                }
                made(bytes, lane, |k| if holds(k) { u64::MAX } else { 0 })
            }
            Rule::FirstMask(lane, f) => {
                let [mut a, b] = self.pair(it)?;
                let holds = f(get(&a, lane, 0), get(&b, lane, 0), imm);
                if it.op0_register().is_k() {
                    self.masks[number(it.op0_register())] = u64::from(holds);
                    return Ok(());
                }
                set(&mut a, lane, 0, if holds { u64::MAX } else { 0 });
                a
            }
            Rule::Dot(f) => {
                let [sum, a, b] = [0, 1, 2].map(|n| self.source(it, n));
                let [sum, a, b] = [sum?, a?, b?];
                made(bytes, 4, |k| {
                    f(get(&sum, 4, k), get(&a, 4, k), get(&b, 4, k))
                })
            }
            Rule::Fused(lane, order, first) => {
                let [a, b, c] = [0, 1, 2].map(|n| self.source(it, order[n]));
                let [a, b, c] = [a?, b?, c?];
                let of = match lane {
                    4 => floats::single_fused,
                    _ => floats::double_fused,
                };
                let value = |k| of(get(&a, lane, k), get(&b, lane, k), get(&c, lane, k));
                match first {
                    true => {
                        let mut v = self.source(it, 0)?;
                        set(&mut v, lane, 0, value(0));
                        v
                    }
                    false if it.op_mask() == Register::None => made(bytes, lane, value),
                    false => {
                        let bits = self.masks[number(it.op_mask())];
                        let others = self.source(it, 0)?;
                        made(bytes, lane, |k| match bits >> k & 1 {
                            1 => value(k),
                            _ => get(&others, lane, k),
                        })
                    }
                }
            }
        };
        self.write(it, 0, &v, legacy)
    }

    /// Moves of whole vectors, of parts, and between lanes of a whole register.
    fn moves(&mut self, decoded: &Decoded) -> Result<bool> {
        let it = &decoded.it;
        let legacy = decoded.legacy;
        let imm = Self::immediate(it);
        let bytes = Self::width(it);
        let v = match it.mnemonic() {
            M::Movaps | M::Vmovaps | M::Movntps | M::Vmovntps => self.source(it, 1)?,
            M::Movups | M::Vmovups => return self.masked(it, legacy, 4),
            M::Vmovupd => return self.masked(it, legacy, 8),
            M::Vmovdqu8 => return self.masked(it, legacy, 1),
            M::Vmovdqu16 => return self.masked(it, legacy, 2),
            M::Vmovdqu32 => return self.masked(it, legacy, 4),
            M::Vmovdqu64 => return self.masked(it, legacy, 8),
            M::Vbroadcastss | M::Vpbroadcastd => self.spread(it, bytes, 4)?,
            M::Vbroadcastsd | M::Vpbroadcastq => self.spread(it, bytes, 8)?,
            M::Vpbroadcastb => self.spread(it, bytes, 1)?,
            M::Vpbroadcastw => self.spread(it, bytes, 2)?,
            M::Vbroadcastf128 | M::Vbroadcastf32x4 | M::Vbroadcastf64x4 => {
                let a = self.source(it, 1)?;
                let piece = it.memory_size().size();
                made(bytes, 1, |k| u64::from(a[k % piece]))
            }
            M::Vinsertf128 | M::Vinsertf32x4 | M::Vinsertf64x4 => {
                let [mut a, b] = self.pair(it)?;
                let piece = if it.mnemonic() == M::Vinsertf64x4 {
                    32
                } else {
                    16
                };
                let at = usize::from(imm) % (bytes / piece) * piece;
                a[at..at + piece].copy_from_slice(&b[..piece]);
                a
            }
            M::Vextractf128 | M::Vextractf32x4 | M::Vextractf64x4 => {
                let a = self.source(it, 1)?;
                let piece = if it.mnemonic() == M::Vextractf64x4 {
                    32
                } else {
                    16
                };
                let at = usize::from(imm) % (bytes / piece) * piece;
                made(piece, 1, |k| u64::from(a[at + k]))
            }
            M::Vperm2f128 => {
                let [a, b] = self.pair(it)?;
                let four = [&a[..16], &a[16..32], &b[..16], &b[16..32]];
                made(32, 1, |k| {
                    let pick = imm >> (4 * (k / 16));
                    match pick & 8 {
                        0 => u64::from(four[usize::from(pick & 3)][k % 16]),
                        _ => 0,
                    }
                })
            }
            M::Vshuff64x2 | M::Vshuff32x4 => {
                let [a, b] = self.pair(it)?;
                let pieces = bytes / 16;
                let bits = pieces.trailing_zeros() as usize;
                made(bytes, 1, |k| {
                    let piece = k / 16;
                    let from = if piece < pieces / 2 { &a } else { &b };
                    let pick = usize::from(imm) >> (bits * piece) & (pieces - 1);
                    u64::from(from[16 * pick + k % 16])
                })
            }
            M::Vpermq if it.op_kind(2) == OpKind::Immediate8 => {
                let a = self.source(it, 1)?;
                made(bytes, 8, |k| {
                    get(&a, 8, k & !3 | usize::from(imm) >> (2 * (k & 3)) & 3)
                })
            }
            M::Vpermd | M::Vpermps => self.permuted(it, bytes, 4)?,
            M::Vpermw => self.permuted(it, bytes, 2)?,
            M::Vpermt2b => self.permuted_two(it, bytes, 1, true)?,
            M::Vpermt2w => self.permuted_two(it, bytes, 2, true)?,
            M::Vpermt2d | M::Vpermt2ps => self.permuted_two(it, bytes, 4, true)?,
            M::Vpermt2q | M::Vpermt2pd => self.permuted_two(it, bytes, 8, true)?,
            M::Vpermi2w => self.permuted_two(it, bytes, 2, false)?,
            M::Vpermi2d => self.permuted_two(it, bytes, 4, false)?,
            M::Vpermi2q => self.permuted_two(it, bytes, 8, false)?,
            M::Shufpd | M::Vshufpd => {
                let [a, b] = self.pair(it)?;
                made(bytes, 8, |k| {
                    let pick = usize::from(imm) >> k & 1;
                    get([&a, &b][k % 2], 8, k & !1 | pick)
                })
            }
            M::Blendps | M::Vblendps => self.blended(it, bytes, 4, u64::from(imm))?,
            M::Blendpd | M::Vblendpd => self.blended(it, bytes, 8, u64::from(imm))?,
            M::Pblendw | M::Vpblendw => {
                let bits = u64::from(imm) * 0x0101_0101;
                self.blended(it, bytes, 2, bits)?
            }
            M::Vpblendvb => self.chosen(it, bytes, 1)?,
            M::Vblendvps => self.chosen(it, bytes, 4)?,
            M::Vmaskmovps => return self.mask_moves(it, bytes, 4),
            M::Vmaskmovpd => return self.mask_moves(it, bytes, 8),
            M::Vzeroupper => {
                for vector in &mut self.vectors[..16] {
                    vector[16..].fill(0);
                }
                return Ok(true);
            }
            _ => return Ok(false),
        };
        if it.op_mask() != Register::None {
            return Err("a mask where the emulator has none".to_owned());
        }
        self.write(it, 0, &v, legacy)?;
        Ok(true)
    }

    fn spread(&mut self, it: &Instruction, bytes: usize, lane: usize) -> Result<Vector> {
        let a = self.source(it, 1)?;
        Ok(made(bytes, lane, |_| get(&a, lane, 0)))
    }

    fn permuted(&mut self, it: &Instruction, bytes: usize, lane: usize) -> Result<Vector> {
        let [order, a] = self.pair(it)?;
        let count = bytes / lane;
        Ok(made(bytes, lane, |k| {
            get(&a, lane, get(&order, lane, k) as usize % count)
        }))
    }

    /// Lanes of two tables: the order is the second operand, or the first, which is overwritten.
    fn permuted_two(
        &mut self,
        it: &Instruction,
        bytes: usize,
        lane: usize,
        table: bool,
    ) -> Result<Vector> {
        let first = self.source(it, 0)?;
        let [second, b] = self.pair(it)?;
        let [a, order] = if table {
            [first, second]
        } else {
            [second, first]
        };
        let count = bytes / lane;
        Ok(made(bytes, lane, |k| {
            let pick = get(&order, lane, k) as usize;
            get([&a, &b][pick / count % 2], lane, pick % count)
        }))
    }

    pub(super) fn blended(
        &mut self,
        it: &Instruction,
        bytes: usize,
        lane: usize,
        bits: u64,
    ) -> Result<Vector> {
        let [a, b] = self.pair(it)?;
        Ok(made(bytes, lane, |k| {
            get([&a, &b][(bits >> k & 1) as usize], lane, k)
        }))
    }

    /// The second where the mask, the last operand, has its sign.
    fn chosen(&mut self, it: &Instruction, bytes: usize, lane: usize) -> Result<Vector> {
        let [a, b, mask] = [1, 2, 3].map(|n| self.source(it, n));
        let [a, b, mask] = [a?, b?, mask?];
        let sign = |k| get(&mask, lane, k) >> (8 * lane - 1) & 1;
        Ok(made(bytes, lane, |k| {
            get([&a, &b][sign(k) as usize], lane, k)
        }))
    }

    /// A load or a store of the lanes that a mask of signs keeps.
    fn mask_moves(&mut self, it: &Instruction, bytes: usize, lane: usize) -> Result<bool> {
        let mask = self.source(it, 1)?;
        let bits = (0..bytes / lane)
            .map(|k| (get(&mask, lane, k) >> (8 * lane - 1) & 1) << k)
            .sum();
        if it.op_kind(0) == OpKind::Memory {
            let from = self.source(it, 2)?;
            self.store_lanes(it, lane, bytes, bits, &from)?;
        } else {
            let v = self.load_lanes(it, lane, bytes, bits, &[0; 64])?;
            self.write(it, 0, &v, false)?;
        }
        Ok(true)
    }

    fn load_lanes(
        &mut self,
        it: &Instruction,
        lane: usize,
        bytes: usize,
        bits: u64,
        others: &Vector,
    ) -> Result<Vector> {
        let address = self.address(it);
        let mut v = *others;
        for k in (0..bytes / lane).filter(|k| bits >> k & 1 == 1) {
            let value = self
                .memory
                .read(address.wrapping_add((k * lane) as u64), lane)?;
            set(&mut v, lane, k, value);
        }
        Ok(v)
    }

    fn store_lanes(
        &mut self,
        it: &Instruction,
        lane: usize,
        bytes: usize,
        bits: u64,
        from: &Vector,
    ) -> Result<()> {
        let address = self.address(it);
        for k in (0..bytes / lane).filter(|k| bits >> k & 1 == 1) {
            let at = address.wrapping_add((k * lane) as u64);
            self.memory.write(at, lane, get(from, lane, k))?;
        }
        Ok(())
    }

    /// A move that may have a mask, of lanes of so many bytes.
    fn masked(&mut self, it: &Instruction, legacy: bool, lane: usize) -> Result<bool> {
        let bits = match it.op_mask() {
            Register::None => u64::MAX,
            mask => self.masks[number(mask)],
        };
        let bytes = Self::width(it);
        if it.op_kind(0) == OpKind::Memory {
            let from = self.source(it, 1)?;
            self.store_lanes(it, lane, bytes, bits, &from)?;
            return Ok(true);
        }
        let others = match it.zeroing_masking() || it.op_mask() == Register::None {
            true => [0; 64],
            false => self.source(it, 0)?,
        };
        let v = if it.op_kind(1) == OpKind::Memory {
            self.load_lanes(it, lane, bytes, bits, &others)?
        } else {
            let from = self.source(it, 1)?;
            made(bytes, lane, |k| {
                get([&others, &from][(bits >> k & 1) as usize], lane, k)
            })
        };
        self.write(it, 0, &v, legacy)?;
        Ok(true)
    }
}
