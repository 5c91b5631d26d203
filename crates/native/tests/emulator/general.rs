//! Instructions on general registers. Flows in: an instruction; flows out: registers, flags and memory after it.
//! Always: flags that the manual leaves undefined are undefined, and reading one is an error.

use super::{Flags, Processor, Result, bytes_of, number};
use iced_x86::{Instruction, Mnemonic as M, OpKind, Register};

impl Processor {
    /// Do an instruction, if it is one of those.
    pub(super) fn general_step(&mut self, it: &Instruction) -> Result<bool> {
        let m = it.mnemonic();
        match m {
            M::Mov | M::Movzx => {
                let value = self.read_general(it, 1)?;
                self.write_general(it, 0, value)?;
            }
            M::Movsx | M::Movsxd => {
                let bits = 64 - 8 * self.operand_bytes(it, 1) as u32;
                let value = self.read_general(it, 1)?;
                self.write_general(it, 0, ((value << bits) as i64 >> bits) as u64)?;
            }
            M::Lea => {
                let address = self.address(it);
                self.write_general(it, 0, address)?;
            }
            M::Add | M::Sub | M::And | M::Or | M::Xor | M::Cmp | M::Test => {
                self.arithmetic(it, m)?;
            }
            // Here are no other threads.
            M::Cmpxchg => {
                let bytes = self.operand_bytes(it, 0);
                let mask = u64::MAX >> (64 - 8 * bytes);
                let there = self.read_general(it, 0)? & mask;
                let zero = there == self.general[0] & mask;
                if zero {
                    let new = self.read_general(it, 1)?;
                    self.write_general(it, 0, new)?;
                } else {
                    self.general[0] = there;
                }
                self.flags = Some(Flags {
                    zero,
                    ..Flags::default()
                });
            }
            M::Imul => {
                let first = if it.op_count() == 3 { 1 } else { 0 };
                let a = self.read_general(it, first)?;
                let b = self.read_general(it, first + 1)?;
                self.write_general(it, 0, a.wrapping_mul(b))?;
                self.flags = None;
            }
            M::Neg => {
                let a = self.read_general(it, 0)?;
                self.write_general(it, 0, a.wrapping_neg())?;
                self.flags = None;
            }
            M::Not => {
                let a = self.read_general(it, 0)?;
                self.write_general(it, 0, !a)?;
            }
            M::Shl | M::Shr | M::Sar => {
                let a = self.read_general(it, 0)?;
                let by = self.read_general(it, 1)?;
                let value = shifted(m, self.operand_bytes(it, 0), a, by);
                self.write_general(it, 0, value)?;
                self.flags = None;
            }
            M::Shlx | M::Shrx | M::Sarx => {
                let a = self.read_general(it, 1)?;
                let by = self.read_general(it, 2)?;
                let how = match m {
                    M::Shlx => M::Shl,
                    M::Shrx => M::Shr,
                    _ => M::Sar,
                };
                let value = shifted(how, self.operand_bytes(it, 0), a, by);
                self.write_general(it, 0, value)?;
            }
            M::Cdq => {
                let sign = (self.general[0] as i32 >> 31) as u32;
                self.general[2] = u64::from(sign);
            }
            M::Cqo => self.general[2] = (self.general[0] as i64 >> 63) as u64,
            M::Idiv | M::Div => self.divide(it, m == M::Idiv)?,
            M::Push => {
                let value = self.read_general(it, 0)?;
                self.general[4] = self.general[4].wrapping_sub(8);
                self.memory.write(self.general[4], 8, value)?;
            }
            M::Pop => {
                let value = self.memory.read(self.general[4], 8)?;
                self.general[4] = self.general[4].wrapping_add(8);
                self.write_general(it, 0, value)?;
            }
            M::Ret => {
                self.ip = self.memory.read(self.general[4], 8)?;
                self.general[4] = self.general[4].wrapping_add(8);
            }
            M::Prefetcht1 | M::Sfence | M::Nop => {}
            _ => return self.conditional(it, m),
        }
        Ok(true)
    }

    fn arithmetic(&mut self, it: &Instruction, m: M) -> Result<()> {
        let bytes = self.operand_bytes(it, 0);
        let a = self.read_general(it, 0)?;
        let b = extended(self.read_general(it, 1)?, it, bytes);
        let mask = u64::MAX >> (64 - 8 * bytes);
        let sign = 1u64 << (8 * bytes - 1);
        let value = mask
            & match m {
                M::Add => a.wrapping_add(b),
                M::Sub | M::Cmp => a.wrapping_sub(b),
                M::And | M::Test => a & b,
                M::Or => a | b,
                _ => a ^ b,
            };
        let overflow = match m {
            M::Add => (a ^ value) & (b ^ value),
            M::Sub | M::Cmp => (a ^ b) & (a ^ value),
            _ => 0,
        };
        self.flags = Some(Flags {
            carry: match m {
                M::Add => value < a & mask,
                M::Sub | M::Cmp => a & mask < b & mask,
                _ => false,
            },
            zero: value == 0,
            sign: value & sign != 0,
            overflow: overflow & sign != 0,
        });
        if !matches!(m, M::Cmp | M::Test) {
            self.write_general(it, 0, value)?;
        }
        Ok(())
    }

    fn divide(&mut self, it: &Instruction, signed: bool) -> Result<()> {
        let bytes = self.operand_bytes(it, 0);
        let by = self.read_general(it, 0)?;
        let bits = 8 * bytes as u32;
        let mask = u64::MAX >> (64 - bits);
        let a = u128::from(self.general[2] & mask) << bits | u128::from(self.general[0] & mask);
        let traps = || "the division traps".to_owned();
        if by == 0 {
            return Err(traps());
        }
        let [quotient, rest] = if signed {
            let a = (a << (128 - 2 * bits)) as i128 >> (128 - 2 * bits);
            let by = i128::from((by << (64 - bits)) as i64 >> (64 - bits));
            let quotient = a.checked_div(by).ok_or_else(traps)?;
            if quotient != quotient << (128 - bits) >> (128 - bits) {
                return Err(traps());
            }
            [quotient as u64, (a % by) as u64]
        } else {
            let by = u128::from(by);
            if a / by > u128::from(mask) {
                return Err(traps());
            }
            [(a / by) as u64, (a % by) as u64]
        };
        self.general[0] = quotient & mask;
        self.general[2] = rest & mask;
        self.flags = None;
        Ok(())
    }

    fn conditional(&mut self, it: &Instruction, m: M) -> Result<bool> {
        // The mnemonic without what it does under the condition.
        let name = format!("{m:?}").to_lowercase();
        let known = ["set", "cmov", "j"]
            .iter()
            .find_map(|p| name.strip_prefix(p));
        let Some(condition) = known.filter(|_| m != M::Jmp) else {
            return Ok(false);
        };
        let f = self.flags.ok_or("flags are read that are undefined")?;
        let holds = match condition {
            "b" => f.carry,
            "ae" => !f.carry,
            "e" => f.zero,
            "ne" => !f.zero,
            "be" => f.carry || f.zero,
            "a" => !f.carry && !f.zero,
            "l" => f.sign != f.overflow,
            "ge" => f.sign == f.overflow,
            "le" => f.zero || f.sign != f.overflow,
            "g" => !f.zero && f.sign == f.overflow,
            _ => return Ok(false),
        };
        match name.as_bytes()[0] {
            b's' => self.write_general(it, 0, u64::from(holds))?,
            b'c' => {
                let value = self.read_general(it, u32::from(holds))?;
                self.write_general(it, 0, value)?;
            }
            _ if holds => self.ip = it.near_branch_target(),
            _ => {}
        }
        Ok(true)
    }

    /// The bytes of a general operand.
    pub(super) fn operand_bytes(&self, it: &Instruction, n: u32) -> usize {
        match it.op_kind(n) {
            OpKind::Register => bytes_of(it.op_register(n)),
            _ => it.memory_size().size(),
        }
    }

    /// A general operand, or an immediate, extended as it is.
    pub(super) fn read_general(&mut self, it: &Instruction, n: u32) -> Result<u64> {
        match it.op_kind(n) {
            OpKind::Register => {
                let register = it.op_register(n);
                let mask = u64::MAX >> (64 - 8 * bytes_of(register));
                Ok(self.general[number(register)] & mask)
            }
            OpKind::Memory => {
                let address = self.address(it);
                self.memory.read(address, it.memory_size().size())
            }
            _ => it.try_immediate(n).map_err(|e| e.to_string()),
        }
    }

    pub(super) fn write_general(&mut self, it: &Instruction, n: u32, value: u64) -> Result<()> {
        if it.op_kind(n) == OpKind::Memory {
            let address = self.address(it);
            return self.memory.write(address, it.memory_size().size(), value);
        }
        let register: Register = it.op_register(n);
        let old = self.general[number(register)];
        self.general[number(register)] = match bytes_of(register) {
            8 => value,
            4 => value & 0xffff_ffff,
            narrow => {
                let mask = u64::MAX >> (64 - 8 * narrow);
                old & !mask | value & mask
            }
        };
        Ok(())
    }
}

/// The second source, in the width of the first.
fn extended(value: u64, it: &Instruction, bytes: usize) -> u64 {
    match it.op_kind(1) {
        OpKind::Register | OpKind::Memory => value,
        _ => value & (u64::MAX >> (64 - 8 * bytes)),
    }
}

fn shifted(m: M, bytes: usize, a: u64, by: u64) -> u64 {
    let by = (by & if bytes == 8 { 63 } else { 31 }) as u32;
    match (m, bytes) {
        (M::Shl, _) => a << by,
        (M::Shr, _) => a >> by,
        (_, 8) => (a as i64 >> by) as u64,
        _ => (a as i32 >> by) as u64,
    }
}
