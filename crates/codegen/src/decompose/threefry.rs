//! Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
//! SC'11) in u32 arithmetic. Flows in: counter and key, u64; flows out: the u64 of both words, the
//! first in the low half, as `fold::threefry`.

use crate::select::Legal;
use monoglot_uop::{DType, Op, UOp};

const ROTATIONS: [[i64; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];

/// The random word of a counter under a key.
pub(crate) fn threefry(legal: &Legal, counter: &UOp, key: &UOp) -> UOp {
    let make = |op, a: &UOp, b: &UOp| legal.primitive(op, &[a.clone(), b.clone()]);
    let number = |v: i64| UOp::int(v, DType::U32);
    let halves = |x: &UOp| {
        let high = make(Op::Shr, x, &UOp::int(32, DType::U64));
        [legal.converted(x, DType::U32), legal.converted(&high, DType::U32)]
    };
    let ([mut x, mut y], [k0, k1]) = (halves(counter), halves(key));
    let k2 = make(Op::Xor, &make(Op::Xor, &k0, &k1), &number(0x1bd1_1bda));
    let keys = [k0, k1, k2];
    x = make(Op::Add, &x, &keys[0]);
    y = make(Op::Add, &y, &keys[1]);
    for round in 0..5 {
        for r in ROTATIONS[round % 2] {
            x = make(Op::Add, &x, &y);
            let turned = make(Op::Or, &make(Op::Shl, &y, &number(r)), &make(Op::Shr, &y, &number(32 - r)));
            y = make(Op::Xor, &turned, &x);
        }
        x = make(Op::Add, &x, &keys[(round + 1) % 3]);
        y = make(Op::Add, &make(Op::Add, &y, &keys[(round + 2) % 3]), &number(round as i64 + 1));
    }
    let high = make(Op::Shl, &legal.converted(&y, DType::U64), &UOp::int(32, DType::U64));
    make(Op::Or, &legal.converted(&x, DType::U64), &high)
}
