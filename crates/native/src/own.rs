//! Where a program's own storage lies: LOCAL buffers, and arrays of REG that no register holds. Flows in: a
//! linear program; flows out: the offset of each such BUFFER in the area that a thread hands to the function, and
//! the bytes of the area. Invariant: the code and whoever calls it agree, as both ask here.

use monoglot_uop::{AddrSpace, Op, UOp};
use rustc_hash::FxHashMap;

/// What the area's address, and every offset in it, is a multiple of: the longest vector, and a cache line.
pub const ALIGNMENT: usize = 64;

/// The area of a program.
#[derive(Clone, Debug, Default)]
pub struct OwnLayout<'a> {
    /// The offset in bytes of each BUFFER that lies in it, by node.
    pub offsets: FxHashMap<&'a UOp, usize>,
    /// How many bytes there are in all.
    pub bytes: usize,
}

/// The area of a program, whose buffers lie in it in the order of the list.
pub fn own_layout(linear: &UOp) -> OwnLayout<'_> {
    let mut layout = OwnLayout::default();
    for (buffer, bytes) in buffers(linear) {
        layout.offsets.entry(buffer).or_insert_with(|| {
            let offset = layout.bytes;
            layout.bytes += bytes.next_multiple_of(ALIGNMENT);
            offset
        });
    }
    layout
}

/// Bytes of the area of a program; 0 where it needs none.
pub fn own_bytes(linear: &UOp) -> usize {
    own_layout(linear).bytes
}

/// The buffers of the area with their bytes. Rows of vectors lie one after the other; lanes of bools are bytes.
fn buffers(linear: &UOp) -> impl Iterator<Item = (&UOp, usize)> {
    let listed = linear.src().iter().filter(|u| u.op() == Op::Buffer);
    listed.filter_map(|u| {
        let storage = u.buffer_arg()?;
        let rows = u.shape().first().map_or(1, |n| n.max());
        let own = match storage.addrspace? {
            AddrSpace::Local => true,
            AddrSpace::Reg => rows > 1,
            AddrSpace::Global => false,
        };
        let elements = u.shape().max_len() as usize;
        own.then_some((u, elements * storage.dtype.bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use monoglot_uop::{Arg, BufferArg, DType, Dim};

    fn buffer(slot: u64, dtype: DType, addrspace: AddrSpace, shape: &[i64]) -> UOp {
        let arg = BufferArg {
            slot,
            version: 0,
            dtype,
            device: None,
            addrspace: Some(addrspace),
        };
        let dims: Vec<Dim> = shape.iter().map(|&n| n.into()).collect();
        UOp::new(Op::Buffer, vec![UOp::dims(&dims)], Arg::Buffer(arg))
    }

    #[test]
    fn buffers_lie_in_the_order_of_the_list() {
        let local = buffer(0, DType::F32, AddrSpace::Local, &[17]);
        let register = buffer(1, DType::F32, AddrSpace::Reg, &[1, 8]);
        let scalar = buffer(2, DType::I64, AddrSpace::Reg, &[1]);
        let rows = buffer(3, DType::F64, AddrSpace::Reg, &[3, 4]);
        let masks = buffer(4, DType::Bool, AddrSpace::Reg, &[2, 8]);
        let last = buffer(5, DType::U8, AddrSpace::Local, &[1]);
        let list = [&local, &register, &scalar, &rows, &masks, &last, &rows].map(Clone::clone);
        let linear = UOp::new(Op::Linear, list.to_vec(), Arg::None);
        let layout = own_layout(&linear);
        let offset = |u: &UOp| layout.offsets.get(u).copied();
        assert_eq!(offset(&local), Some(0));
        assert_eq!(offset(&register), None);
        assert_eq!(offset(&scalar), None);
        assert_eq!(offset(&rows), Some(128));
        assert_eq!(offset(&masks), Some(128 + 128));
        assert_eq!(offset(&last), Some(256 + 64));
        assert_eq!(own_bytes(&linear), 384);
    }

    #[test]
    fn a_program_of_its_arguments_alone_owns_nothing() {
        let linear = UOp::new(Op::Linear, vec![], Arg::None);
        assert_eq!(own_bytes(&linear), 0);
    }
}
