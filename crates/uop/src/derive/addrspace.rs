//! Address space: of storage from its arg, of views from what they view, of values none. Flows in:
//! a node; flows out: its address space, if it has one.

use crate::arg::{AddrSpace, Arg};
use crate::node::UOp;
use crate::op::Op;

impl UOp {
    /// Where the storage that this node names lives; None for values.
    pub fn addrspace(&self) -> Option<AddrSpace> {
        let mut u = self;
        loop {
            match (u.op(), u.arg()) {
                (Op::Param | Op::Buffer, Arg::Buffer(b)) => return b.addrspace,
                (Op::Load, Arg::Place(_, space)) => return *space,
                (Op::Stack | Op::Shuffle, _) => return None,
                (op, _) if op.is_movement() || op == Op::After => u = u.src().first()?,
                _ => return None,
            }
        }
    }
}
