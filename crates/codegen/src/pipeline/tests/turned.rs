//! Vectors along another axis than the lanes'. Flows in: kernels whose lanes lie apart in what they read and write; flows
//! out: a failed test where the lowered one gives other values, or goes to memory lane by lane.

use super::*;
use crate::opt::tests::support::padto;
use monoglot_uop::linear::lanes;
use monoglot_uop::text::parse;

/// A sum for each row, of numbers that lie side by side for all rows, times each element of the row.
fn scaled(rows: i64, n: i64, terms: i64) -> UOp {
    let text = format!(
        "p0 = PARAM[0, f32, CPU] ({all},)
         r0 = RANGE[0, LOOP] {rows}
         r1 = RANGE[1, LOOP] {n}
         %0 = MUL r0 {n}
         %1 = ADD %0 r1
         %2 = INDEX p0 %1 : f32
         p1 = PARAM[1, f32, CPU] ({all},)
         %3 = INDEX p1 %1 : f32
         p2 = PARAM[2, f32, CPU] ({terms_all},)
         r2 = RANGE[2, REDUCE] {terms}
         %4 = MUL r2 {rows}
         %5 = ADD r0 %4
         %6 = INDEX p2 %5 : f32
         %7 = REDUCE[ADD] %6 r2
         %8 = MUL %3 %7
         %9 = STORE %2 %8
         %10 = END %9 r0 r1
         SINK %10",
        all = rows * n,
        terms_all = rows * terms
    );
    parse(&text).expect("a kernel")
}

/// Rows that were padded to whole vectors have a mask each: they are read and written whole where it holds.
#[test]
fn lanes_with_masks_of_their_own_are_transposed() {
    for device in devices() {
        let target = device.target();
        let count = target.lanes(DType::F32).max(4) as i64;
        for rows in [2 * count - 3, 5 * count - 1, 3 * count] {
            let opts = vec![
                padto(0, count),
                split(1, count, AxisType::Upcast, false),
                split(0, count, AxisType::Upcast, false),
            ];
            let kernel = scaled(rows, 4 * count, 40);
            let programs = check_for(&device, target, &[(kernel, opts)], 0);
            if target.lanes(DType::F32) < 4 || target.workgroups {
                continue;
            }
            let list = programs[0].src()[1].src();
            let alone = |u: &&UOp| {
                let value = match u.op() {
                    Op::Load => u,
                    Op::Store => &u.src()[1],
                    _ => return false,
                };
                value.dtype() == DType::F32 && lanes(value) == 0
            };
            let found = list.iter().filter(alone).count();
            // The sums of the last vector of rows are read by those that are there.
            assert!(found <= count as usize, "{rows}: {}", programs[0].src()[1]);
        }
    }
}
