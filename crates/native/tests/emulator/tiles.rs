//! Instructions on registers of tiles. Flows in: an instruction; flows out: tiles and memory after it. Always: tiles
//! that are not configured as wholes, and a factor that is the sum, are errors.

use super::lanes::{flushed, halves};
use super::{Processor, Result};
use iced_x86::{Instruction, Mnemonic as M, Register};

/// Rows of a tile, and bytes of a row.
const ROWS: usize = 16;
const ROW: usize = 64;

/// The registers of tiles.
#[derive(Default)]
pub(super) struct Tiles {
    /// None until they are configured.
    registers: Option<Box<[[[u8; ROW]; ROWS]; 8]>>,
}

impl Tiles {
    /// Whether they are given back.
    pub(super) fn are_released(&self) -> bool {
        self.registers.is_none()
    }
}

/// A word of a row.
fn word(row: &[u8; ROW], k: usize) -> [u8; 4] {
    std::array::from_fn(|j| row[4 * k + j])
}

/// What the words of a row and of a column are in a sum.
type Product = fn(u32, &dyn Fn(usize) -> ([u8; 4], [u8; 4])) -> u32;

fn of_bytes(sum: u32, words: &dyn Fn(usize) -> ([u8; 4], [u8; 4]), signs: [bool; 2]) -> u32 {
    let value = |byte: u8, signed: bool| match signed {
        true => i32::from(byte as i8),
        false => i32::from(byte),
    };
    let mut sum = sum;
    for (a, b) in (0..ROWS).map(words) {
        for j in 0..4 {
            let product = value(a[j], signs[0]) * value(b[j], signs[1]);
            sum = sum.wrapping_add(product as u32);
        }
    }
    sum
}

/// Sums of the even and of the odd terms, each rounded, in which what is no normal number is a zero.
fn of_halves(sum: u32, words: &dyn Fn(usize) -> ([u8; 4], [u8; 4])) -> u32 {
    let number = |bits: u64| f32::from_bits(flushed(bits) as u32);
    let zeroed = |x: f32| number(u64::from(x.to_bits()));
    let mut sums = [0f32; 2];
    for (a, b) in (0..ROWS).map(words) {
        let [a, b] = [a, b].map(|w| halves(u64::from(u32::from_le_bytes(w))));
        for (j, sum) in sums.iter_mut().enumerate() {
            *sum = zeroed(number(a[j]).mul_add(number(b[j]), *sum));
        }
    }
    let both = zeroed(sums[0] + sums[1]);
    zeroed(number(u64::from(sum)) + both).to_bits()
}

fn product(m: M) -> Option<Product> {
    Some(match m {
        M::Tdpbf16ps => of_halves,
        M::Tdpbssd => |sum, words| of_bytes(sum, words, [true, true]),
        M::Tdpbsud => |sum, words| of_bytes(sum, words, [true, false]),
        M::Tdpbusd => |sum, words| of_bytes(sum, words, [false, true]),
        M::Tdpbuud => |sum, words| of_bytes(sum, words, [false, false]),
        _ => return None,
    })
}

fn number(register: Register) -> usize {
    register as usize - Register::TMM0 as usize
}

impl Processor {
    /// Do an instruction, if it is one of those.
    pub(super) fn tile_step(&mut self, it: &Instruction) -> Result<bool> {
        let m = it.mnemonic();
        let none = || "tiles that are not configured".to_owned();
        match m {
            M::Ldtilecfg => {
                let from = self.address(it);
                let bytes = self.memory.get(from, 64)?;
                let whole = |k: usize| {
                    let row = u16::from_le_bytes([bytes[16 + 2 * k], bytes[17 + 2 * k]]);
                    usize::from(row) == ROW && usize::from(bytes[48 + k]) == ROWS
                };
                if bytes[0] != 1 || bytes[1] != 0 || !(0..8).all(whole) {
                    return Err("a configuration of other tiles than whole ones".to_owned());
                }
                self.tiles.registers = Some(Box::new([[[0; ROW]; ROWS]; 8]));
            }
            M::Tilerelease => {
                self.tiles.registers.take().ok_or_else(none)?;
            }
            M::Tilezero => {
                let tiles = self.tiles.registers.as_mut().ok_or_else(none)?;
                tiles[number(it.op0_register())] = [[0; ROW]; ROWS];
            }
            M::Tileloaddt1 | M::Tilestored => {
                let loads = m == M::Tileloaddt1;
                let register = if loads {
                    it.op0_register()
                } else {
                    it.op1_register()
                };
                let stride = match it.memory_index() {
                    Register::None => 0,
                    index => self.general[super::number(index)],
                };
                // The index is how far rows are from each other: the first has none.
                let first = self.address(it).wrapping_sub(stride);
                let tiles = self.tiles.registers.as_mut().ok_or_else(none)?;
                for (k, row) in tiles[number(register)].iter_mut().enumerate() {
                    let at = first.wrapping_add(stride.wrapping_mul(k as u64));
                    match loads {
                        true => row.copy_from_slice(self.memory.get(at, ROW)?),
                        false => self.memory.put(at, row)?,
                    }
                }
            }
            m => {
                let Some(product) = product(m) else {
                    return Ok(false);
                };
                let registers = [it.op0_register(), it.op1_register(), it.op2_register()];
                let [c, a, b] = registers.map(number);
                if c == a || c == b || a == b {
                    return Err("one tile in two places".to_owned());
                }
                let tiles = self.tiles.registers.as_mut().ok_or_else(none)?;
                for row in 0..ROWS {
                    for column in 0..ROWS {
                        let words =
                            |k: usize| (word(&tiles[a][row], k), word(&tiles[b][k], column));
                        let sum = u32::from_le_bytes(word(&tiles[c][row], column));
                        let sum = product(sum, &words).to_le_bytes();
                        tiles[c][row][4 * column..][..4].copy_from_slice(&sum);
                    }
                }
            }
        }
        Ok(true)
    }
}
