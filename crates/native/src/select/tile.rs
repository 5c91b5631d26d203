//! Products of tiles. Flows in: the WMMAs of a unit of tiles, the registers that they add to, and what is read and
//! written of these; flows out: instructions on the eight registers of tiles, whose numbers are given here. Always: a
//! register of the program's keeps one number; a tile that was read keeps one as long as that is not needed for another,
//! and is read again then, if memory still holds it.

use super::Selector;
use crate::code::{Constant, Do, Mem, Operand, TileDot, Width};
use monoglot_uop::linear::{address, splat};
use monoglot_uop::marks::{NodeMap, NodeSet};
use monoglot_uop::{Arg, DType, Listing, Op, Result, TcInfo, UOp};

/// Registers of tiles.
const REGISTERS: u8 = 8;
/// Bytes of a row of a tile, and rows.
const ROW: i64 = 64;
const ROWS: u8 = 16;

/// The registers of tiles while a program is selected.
#[derive(Default)]
pub(super) struct Tiles<'a> {
    /// REG storage that is one, by its number.
    sums: NodeMap<&'a UOp, u8>,
    /// LOADs of what is multiplied.
    factors: NodeSet<'a>,
    /// Tiles that were read: the place of the LOAD and the number, the one that was used last at the end.
    read: Vec<(usize, u8)>,
}

/// The unit of a WMMA that multiplies tiles.
fn unit(u: &UOp) -> Option<&TcInfo> {
    u.dot().filter(|unit| unit.tile().is_some())
}

/// The REG storage that a WMMA adds to, behind those that do so first.
fn added_to(u: &UOp) -> Option<&UOp> {
    let mut sum = u;
    while unit(sum).is_some() {
        sum = &sum.src()[2];
    }
    let of = (sum.op() == Op::Load).then(|| address(sum.src()[0].named()))?;
    of.map(|a| a.buffer)
}

/// Whether a program multiplies tiles.
pub(super) fn has_tiles(listing: &Listing) -> bool {
    listing.instructions().iter().any(|u| unit(u).is_some())
}

/// What says that all tiles are of as many rows and bytes as there can be (Intel SDM, LDTILECFG).
pub(super) fn configuration() -> Constant {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    for number in 0..usize::from(REGISTERS) {
        bytes[16 + 2 * number] = ROW as u8;
        bytes[48 + number] = ROWS;
    }
    bytes
}

impl<'a> Tiles<'a> {
    pub(super) fn of(listing: &'a Listing) -> Tiles<'a> {
        let mut tiles = Tiles::default();
        for u in listing.instructions().iter().filter(|u| unit(u).is_some()) {
            if let Some(buffer) = added_to(u) {
                let next = tiles.sums.len() as u8;
                tiles.sums.get_or_insert_with(buffer, || next);
            }
            for factor in &u.src()[..2] {
                tiles.factors.insert(factor);
            }
        }
        tiles
    }
}

impl<'a> Selector<'a> {
    /// Select an instruction that is of tiles; whether it is one.
    pub(super) fn tile(&mut self, i: usize) -> Result<bool> {
        let list: &'a [UOp] = self.list;
        let u = &list[i];
        if self.tiles.sums.is_empty() {
            return Ok(false);
        }
        match u.op() {
            Op::Wmma if unit(u).is_some() => self.tile_product(i).map(|()| true),
            Op::Load => Ok(self.kept_tile(u).is_some() || self.tiles.factors.contains(u)),
            Op::Store => {
                let to = address(u.src()[0].named()).map(|a| a.buffer);
                let value = &u.src()[1];
                if let Some(number) = to.and_then(|to| self.tiles.sums.get(to).copied()) {
                    return self.set(u, number, value).map(|()| true);
                }
                let Some(number) = self.kept_tile(value) else {
                    return Ok(false);
                };
                let to = self.rows_of(u)?;
                let src = [Operand::Mem(to), number];
                self.b.put(Do::TileStore, Width::Z, None, &src);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The number of the register that a LOAD reads.
    fn kept_tile(&self, u: &UOp) -> Option<Operand> {
        let place = (u.op() == Op::Load).then(|| address(u.src()[0].named()))?;
        let number = self.tiles.sums.get(place?.buffer).copied();
        number.map(|n| Operand::Imm(n.into()))
    }

    /// A STORE to a register: of zeros, or of what is in it already.
    fn set(&mut self, u: &'a UOp, number: u8, value: &'a UOp) -> Result<()> {
        let all = splat(value).unwrap_or(value);
        if all.const_value().is_some_and(|v| v.is_zero()) {
            let src = [Operand::Imm(number.into())];
            self.b.put(Do::TileZero, Width::Z, None, &src);
            return Ok(());
        }
        let of = unit(value).and_then(|_| added_to(value));
        match of.and_then(|of| self.tiles.sums.get(of)) {
            Some(own) if *own == number => Ok(()),
            _ => Err(self.unsupported(u)),
        }
    }

    /// A WMMA: it adds to the register that it was given.
    fn tile_product(&mut self, i: usize) -> Result<()> {
        let list: &'a [UOp] = self.list;
        let u = &list[i];
        let number = added_to(u).and_then(|of| self.tiles.sums.get(of).copied());
        let (Some(number), Some(op), [a, b, sum]) = (number, instruction(u), u.src()) else {
            return Err(self.unsupported(u));
        };
        // What it adds to is not there any more behind it.
        let place = self.listing.place(sum);
        if place.is_none_or(|k| self.uses.count(k) > 1) {
            return Err(self.unsupported(u));
        }
        let a = self.factor_tile(i, a, None)?;
        let b = self.factor_tile(i, b, Some(a))?;
        let src = [number, a, b].map(|n| Operand::Imm(n.into()));
        self.b.put(Do::TileDot(op), Width::Z, None, &src);
        Ok(())
    }

    /// The number of the register in which a factor of the WMMA at a place is.
    fn factor_tile(&mut self, at: usize, u: &'a UOp, other: Option<u8>) -> Result<u8> {
        let list: &'a [UOp] = self.list;
        let place = self
            .listing
            .place(u)
            .filter(|_| u.op() == Op::Load && u.src().len() == 1);
        let Some(place) = place else {
            return Err(self.unsupported(u));
        };
        let held = self.tiles.read.iter().position(|(k, _)| *k == place);
        let same_scope = !self.uses.leaves(place);
        if let Some(held) = held.filter(|_| same_scope) {
            let found = self.tiles.read.remove(held);
            self.tiles.read.push(found);
            return Ok(found.1);
        }
        let writes = |u: &UOp| {
            let control = matches!(u.op(), Op::Barrier | Op::AtomicAdd);
            let to = (u.op() == Op::Store)
                .then(|| address(u.src()[0].named()))
                .flatten();
            control || to.is_some_and(|a| !super::uses::is_register(a.buffer))
        };
        // In a loop that it stands before, what it reads may be written in an earlier turn.
        let until = match same_scope {
            true => at,
            false => list.len(),
        };
        let target = address(u.src()[0].named()).map(|a| a.buffer);
        let written = list[place..until]
            .iter()
            .any(|s| writes(s) && address(s.src()[0].named()).map(|a| a.buffer) == target);
        if written {
            return Err(self.unsupported(u));
        }
        let sums = self.tiles.sums.len() as u8;
        let free = (sums..REGISTERS).find(|n| !self.tiles.read.iter().any(|(_, of)| of == n));
        let number = match free {
            Some(number) => number,
            None => {
                let oldest = self.tiles.read.iter().position(|(_, n)| Some(*n) != other);
                let Some(oldest) = oldest else {
                    return Err(self.unsupported(u));
                };
                self.tiles.read.remove(oldest).1
            }
        };
        let from = self.rows_of(u)?;
        let src = [Operand::Mem(from), Operand::Imm(number.into())];
        self.b.put(Do::TileLoad, Width::Z, None, &src);
        self.tiles.read.push((place, number));
        Ok(number)
    }

    /// The rows of a tile in memory: where the first begins, and how far the next is from it.
    fn rows_of(&mut self, access: &'a UOp) -> Result<Mem> {
        if access.src().len() > 2 || *access.arg() != Arg::None {
            return Err(self.unsupported(access));
        }
        let mut from = self.memory_of(access, 0)?;
        if from.index.is_some() {
            let base = self
                .b
                .general(Do::Address, Width::W64, &[Operand::Mem(from)]);
            from = Mem {
                base,
                index: None,
                displacement: 0,
            };
        }
        let row = self.b.number(ROW);
        Ok(Mem {
            index: Some((row, 1)),
            ..from
        })
    }
}

/// The instruction of a WMMA of tiles.
fn instruction(u: &UOp) -> Option<TileDot> {
    let unit = unit(u)?;
    match (unit.dtypes_in, unit.dtype_out) {
        ([DType::BF16, DType::BF16], DType::F32) => Some(TileDot::BF16),
        ([DType::I8, DType::I8], DType::I32) => Some(TileDot::SS),
        ([DType::I8, DType::U8], DType::I32) => Some(TileDot::SU),
        ([DType::U8, DType::I8], DType::I32) => Some(TileDot::US),
        ([DType::U8, DType::U8], DType::I32) => Some(TileDot::UU),
        _ => None,
    }
}
