//! Instruction selection. Flows in: an expanded kernel, whose values have shape; flows out: the same
//! kernel on scalars and on vectors of the target's width, in its types and ops, reductions as loops
//! over register accumulators. Invariant: every value has shape () or (W,) with W a power of two.

mod access;
mod across;
mod blocks;
mod chains;
mod chunks;
mod dot;
mod epilogue;
mod integer;
mod layout;
mod legal;
mod narrow;
mod reduce;
mod table;
mod tile;
mod tiled;
mod transpose;

use monoglot_uop::{Result, Target, UOp};

/// Select instructions for an expanded kernel.
pub(crate) fn select(kernel: &UOp, target: &Target) -> Result<UOp> {
    let legal = legal::legalize(kernel, target)?;
    chunks::devectorise(&legal, target)
}
