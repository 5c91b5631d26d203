//! Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
//! SC'11) in u32 arithmetic. Flows in: counter and key, u64; flows out: the u64 of both words, the
//! first in the low half, as `fold::threefry`.

use crate::build::cast;
use crate::native::Native;
use monoglot_uop::{DType, UOp};

const ROTATIONS: [[i64; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];

/// The random word of a counter under a key.
pub(crate) fn threefry(o: &Native, counter: &UOp, key: &UOp) -> UOp {
    let number = |v: i64| UOp::int(v, DType::U32);
    let half = UOp::int(32, DType::U64);
    let halves = |x: &UOp| [cast(x, DType::U32), cast(&o.shr(x, &half), DType::U32)];
    let [mut x, mut y] = halves(counter);
    let [k0, k1] = halves(key);
    let k2 = o.xor(&o.xor(&k0, &k1), &number(0x1bd1_1bda));
    let keys = [k0, k1, k2];
    x = o.add(&x, &keys[0]);
    y = o.add(&y, &keys[1]);
    for round in 0..5 {
        for r in ROTATIONS[round % 2] {
            x = o.add(&x, &y);
            y = o.xor(
                &o.or(&o.shl(&y, &number(r)), &o.shr(&y, &number(32 - r))),
                &x,
            );
        }
        x = o.add(&x, &keys[(round + 1) % 3]);
        y = o.add(
            &o.add(&y, &keys[(round + 2) % 3]),
            &number(round as i64 + 1),
        );
    }
    o.or(&cast(&x, DType::U64), &o.shl(&cast(&y, DType::U64), &half))
}
