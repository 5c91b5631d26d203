//! Masks that need no vector register. Flows in: code whose registers have numbers, for AVX-512; flows out: the mask
//! registers of comparisons whose results nothing reads but instructions that want a mask register, in the same
//! straight stretch, before that register is another comparison's. Always: who reads such a result reads that register.

use super::emitter::Emitter;
use super::masked::{self, Held};
use super::row::Row;
use crate::code::{Do, Ins, Level, Operand, Reg, Width};
use crate::table::{Form, Vector};
use monoglot_uop::Result;
use rustc_hash::FxHashMap;

/// The first mask register that comparisons have, and how many there are; the one before is scratch.
const FIRST: u8 = 2;
const COUNT: usize = 6;

/// Where the masks of a function are.
#[derive(Default)]
pub(super) struct Masks(FxHashMap<Reg, Held>);

/// A comparison's result while what reads it is looked at.
struct Made {
    held: Held,
    width: Width,
    block: u32,
    /// How many comparisons were before it.
    before: usize,
    is_read: bool,
}

impl Masks {
    pub(super) fn of(e: &Emitter<'_>) -> Result<Masks> {
        let list = &e.code.code.ins;
        if e.level < Level::V4 || !list.iter().any(|i| compared(i).is_some()) {
            return Ok(Masks::default());
        }
        let mut writes = vec![0u8; e.code.code.regs.len()];
        for dst in list.iter().filter_map(|i| i.dst) {
            let count = &mut writes[dst.0 as usize];
            *count = count.saturating_add(1);
        }
        // How many instructions want each as a mask, and nothing else.
        let mut uses: FxHashMap<Reg, u32> = FxHashMap::default();
        for ins in list.iter().filter(|i| !is_and(i)) {
            if let Some(k) = mask_operand(ins, |_| Some(0))
                && let Operand::Reg(r) = ins.src[k]
            {
                *uses.entry(r).or_default() += 1;
            }
        }
        let mut made: FxHashMap<Reg, Made> = FxHashMap::default();
        let mut block = 0;
        let mut comparisons = 0;
        for ins in list {
            if ins.op.is_control() {
                block += 1;
            }
            let mut wanted = None;
            let used = |r: Reg| uses.get(&r).copied().unwrap_or(0);
            if let Some(k) = mask_operand(ins, |r| made.get(&r).map(|_| used(r)))
                && let Operand::Reg(r) = ins.src[k]
                && let Some(m) = made.get_mut(&r)
                && m.block == block
                && m.width == ins.width
                && comparisons - m.before <= COUNT
                && takes(ins, m.held.lane)
                && has_mask(e, ins)?
            {
                m.is_read = true;
                wanted = Some(k);
            }
            for (k, operand) in ins.src.iter().enumerate() {
                if wanted != Some(k) {
                    operand.reads(|r| {
                        made.remove(&r);
                    });
                }
            }
            let Some(vector) = compared(ins) else {
                continue;
            };
            let Some(dst) = ins.dst.filter(|d| writes[d.0 as usize] == 1) else {
                continue;
            };
            if has_mask(e, ins)? {
                let register = FIRST + (comparisons % COUNT) as u8;
                let lane = masked::lane(vector);
                let one = Made {
                    held: Held { register, lane },
                    width: ins.width,
                    block,
                    before: comparisons,
                    is_read: false,
                };
                made.insert(dst, one);
                comparisons += 1;
            }
        }
        let read = made.into_iter().filter(|(_, m)| m.is_read);
        Ok(Masks(read.map(|(r, m)| (r, m.held)).collect()))
    }

    /// The mask that an instruction makes.
    pub(super) fn made(&self, ins: &Ins) -> Option<Held> {
        self.0.get(&ins.dst?).copied()
    }

    /// The mask that an instruction wants, and which source it is.
    pub(super) fn wanted(&self, ins: &Ins) -> Option<(usize, Held)> {
        let k = mask_operand(ins, |r| self.0.get(&r).map(|_| 0))?;
        match ins.src[k] {
            Operand::Reg(r) => Some((k, *self.0.get(&r)?)),
            _ => None,
        }
    }
}

/// The row of a comparison of lanes.
fn compared(ins: &Ins) -> Option<Vector> {
    match ins.op {
        Do::Vector(v) if masked::compares(v) => Some(v),
        _ => None,
    }
}

/// Whether lanes of one are kept where those of the other say so: either may be a mask register.
fn is_and(ins: &Ins) -> bool {
    ins.op == Do::Vector(Vector::And)
}

/// The source that may be a mask register, where these are masks: of two the one that more want as one.
fn mask_operand(ins: &Ins, uses: impl Fn(Reg) -> Option<u32>) -> Option<usize> {
    let Do::Vector(vector) = ins.op else {
        return None;
    };
    let of = |k: usize| match ins.src.get(k) {
        Some(Operand::Reg(r)) => uses(*r),
        _ => None,
    };
    let here = |k: &usize| of(*k).is_some();
    match (vector, vector.form()) {
        (Vector::Choose, _) | (_, Form::MaskLoad | Form::MaskFma) => Some(0).filter(here),
        (_, Form::MaskStore) => Some(1).filter(here),
        // Of equals the first.
        (Vector::And, _) => [1, 0].into_iter().filter(here).max_by_key(|&k| of(k)),
        _ => None,
    }
}

/// Whether an instruction takes a mask of lanes of so many bytes.
fn takes(ins: &Ins, lane: usize) -> bool {
    match ins.op {
        Do::Vector(Vector::Choose | Vector::And) => true,
        Do::Vector(v) => masked::lane(v) == lane,
        _ => false,
    }
}

/// Whether the encoding of an instruction is one of AVX-512.
fn has_mask(e: &Emitter<'_>, ins: &Ins) -> Result<bool> {
    let Do::Vector(vector) = ins.op else {
        return Ok(false);
    };
    let mut upper = false;
    for operand in &ins.src {
        upper |= e.source(operand)?.is_upper();
    }
    if ins.dst.is_some() {
        upper |= e.destination(ins)?.is_upper();
    }
    Ok(Row::of(e.level, ins.width, vector, upper)?.evex)
}
