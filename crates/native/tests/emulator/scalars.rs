//! Instructions between vectors and other registers: scalars in lanes, signs, mask registers. Flows in: an instruction;
//! flows out: registers and memory after it. Always: a mask register has bits of the lanes that there are alone.

use super::vector::{get, made, set};
use super::{Decoded, Processor, Result, Vector, floats, number, operands};
use iced_x86::{Instruction, Mnemonic as M, OpKind, Register};

impl Processor {
    /// Between general registers, memory and the lanes of a vector.
    pub(super) fn scalars(&mut self, decoded: &Decoded) -> Result<bool> {
        let it = &decoded.it;
        let legacy = decoded.legacy;
        let imm = Self::immediate(it);
        let first = |v: &Vector, lane| get(v, lane, 0);
        let v = match it.mnemonic() {
            M::Movd | M::Vmovd | M::Movq | M::Vmovq | M::Movss | M::Vmovss => {
                let lane = match it.mnemonic() {
                    M::Movq | M::Vmovq => 8,
                    _ => 4,
                };
                if operands(it) > 2 || it.op_mask() != Register::None {
                    return Ok(false);
                }
                let a = self.source(it, 1)?;
                let to = it.op_register(0);
                if it.op_kind(0) == OpKind::Memory || to.is_gpr() {
                    self.write_general(it, 0, first(&a, lane))?;
                    return Ok(true);
                }
                let mut v = made(lane, lane, |_| first(&a, lane));
                if it.mnemonic() == M::Movss && it.op_kind(1) == OpKind::Register {
                    // Between registers it leaves the other lanes.
                    v = self.source(it, 0)?;
                    set(&mut v, lane, 0, first(&a, lane));
                }
                v
            }
            M::Pinsrb | M::Vpinsrb => self.inserted(it, 1, imm)?,
            M::Pinsrw | M::Vpinsrw => self.inserted(it, 2, imm)?,
            M::Pinsrd | M::Vpinsrd => self.inserted(it, 4, imm)?,
            M::Pinsrq | M::Vpinsrq => self.inserted(it, 8, imm)?,
            M::Pextrb | M::Vpextrb => return self.extracted(it, 1, imm),
            M::Pextrw | M::Vpextrw => return self.extracted(it, 2, imm),
            M::Pextrd | M::Vpextrd => return self.extracted(it, 4, imm),
            M::Pextrq | M::Vpextrq => return self.extracted(it, 8, imm),
            M::Cvtss2sd | M::Vcvtss2sd => {
                let [mut a, b] = self.pair(it)?;
                set(&mut a, 8, 0, floats::widened(first(&b, 4)));
                a
            }
            M::Cvtsd2ss | M::Vcvtsd2ss => {
                let [mut a, b] = self.pair(it)?;
                set(&mut a, 4, 0, floats::narrowed(first(&b, 8)));
                a
            }
            M::Cvtsi2ss | M::Vcvtsi2ss | M::Cvtsi2sd | M::Vcvtsi2sd => {
                let last = operands(it) as u32 - 1;
                let whole = match self.operand_bytes(it, last) {
                    8 => self.read_general(it, last)? as i64,
                    _ => i64::from(self.read_general(it, last)? as i32),
                };
                let mut a = self.source(it, last - 1)?;
                match it.mnemonic() {
                    M::Cvtsi2ss | M::Vcvtsi2ss => {
                        set(&mut a, 4, 0, u64::from((whole as f32).to_bits()));
                    }
                    _ => set(&mut a, 8, 0, (whole as f64).to_bits()),
                }
                a
            }
            M::Cvttss2si | M::Vcvttss2si | M::Cvttsd2si | M::Vcvttsd2si => {
                let a = self.source(it, 1)?;
                let value = match it.mnemonic() {
                    M::Cvttss2si | M::Vcvttss2si => floats::single(first(&a, 4)),
                    _ => f64::from_bits(first(&a, 8)),
                };
                let bytes = self.operand_bytes(it, 0);
                self.write_general(it, 0, floats::truncated(value, bytes))?;
                return Ok(true);
            }
            M::Movmskps | M::Vmovmskps => return self.signs(it, 4),
            M::Movmskpd | M::Vmovmskpd => return self.signs(it, 8),
            M::Pmovmskb | M::Vpmovmskb => return self.signs(it, 1),
            _ => return Ok(false),
        };
        self.write(it, 0, &v, legacy)?;
        Ok(true)
    }

    fn inserted(&mut self, it: &Instruction, lane: usize, imm: u8) -> Result<Vector> {
        let last = operands(it) as u32 - 1;
        let value = self.read_general(it, last)?;
        let mut a = self.source(it, last - 1)?;
        set(&mut a, lane, usize::from(imm) % (16 / lane), value);
        Ok(a)
    }

    fn extracted(&mut self, it: &Instruction, lane: usize, imm: u8) -> Result<bool> {
        let a = self.source(it, 1)?;
        self.write_general(it, 0, get(&a, lane, usize::from(imm) % (16 / lane)))?;
        Ok(true)
    }

    fn sign_bits(&mut self, it: &Instruction, lane: usize) -> Result<u64> {
        let a = self.source(it, 1)?;
        let sign = |k| (get(&a, lane, k) >> (8 * lane - 1) & 1) << k;
        Ok((0..Self::width(it) / lane).map(sign).sum())
    }

    fn signs(&mut self, it: &Instruction, lane: usize) -> Result<bool> {
        let bits = self.sign_bits(it, lane)?;
        self.write_general(it, 0, bits)?;
        Ok(true)
    }

    /// Instructions of mask registers, and those that choose by one.
    pub(super) fn masks(&mut self, it: &Instruction) -> Result<bool> {
        let lane = match it.mnemonic() {
            M::Vpmovm2b | M::Vpmovb2m | M::Vpblendmb => 1,
            M::Vpmovm2w | M::Vpmovw2m | M::Vpblendmw => 2,
            M::Vpmovm2d | M::Vpmovd2m | M::Vpblendmd | M::Vblendmps => 4,
            _ => 8,
        };
        match it.mnemonic() {
            M::Vpmovm2b | M::Vpmovm2w | M::Vpmovm2d | M::Vpmovm2q => {
                let bits = self.masks[number(it.op1_register())];
                let bytes = Self::width(it);
                let v = made(
                    bytes,
                    lane,
                    |k| if bits >> k & 1 == 1 { u64::MAX } else { 0 },
                );
                self.write(it, 0, &v, false)?;
            }
            M::Vpmovb2m | M::Vpmovw2m | M::Vpmovd2m | M::Vpmovq2m => {
                self.masks[number(it.op0_register())] = self.sign_bits(it, lane)?;
            }
            M::Vpblendmb
            | M::Vpblendmw
            | M::Vpblendmd
            | M::Vpblendmq
            | M::Vblendmps
            | M::Vblendmpd => {
                if it.op_mask() == Register::None || it.zeroing_masking() {
                    return Ok(false);
                }
                let bits = self.masks[number(it.op_mask())];
                let bytes = Self::width(it);
                let v = self.blended(it, bytes, lane, bits)?;
                self.write(it, 0, &v, false)?;
            }
            M::Kmovb | M::Kmovw | M::Kmovd | M::Kmovq => {
                let mask = match it.mnemonic() {
                    M::Kmovb => 0xff,
                    M::Kmovw => 0xffff,
                    M::Kmovd => 0xffff_ffff,
                    _ => u64::MAX,
                };
                if it.op0_register().is_k() {
                    let value = match it.op1_register() {
                        r if r.is_k() => self.masks[number(r)],
                        r => self.general[number(r)],
                    };
                    self.masks[number(it.op0_register())] = value & mask;
                } else {
                    let value = self.masks[number(it.op1_register())] & mask;
                    self.write_general(it, 0, value)?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
