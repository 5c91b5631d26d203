//! Sums across lanes, and what comes after them. Flows in: kernels; flows out: a failed test where the lowered one gives
//! other values, or where its list is not what is wanted.

use super::*;
use monoglot_uop::linear::lanes;
use monoglot_uop::text::parse;

/// The greatest number of each row, with twice the cubes of how far the others are from it. All of it is exact.
fn spread(rows: i64, n: i64) -> UOp {
    let text = format!(
        "p0 = PARAM[0, f32, CPU] ({rows},)
         r0 = RANGE[0, LOOP] {rows}
         %0 = INDEX p0 r0 : f32
         p1 = PARAM[1, f32, CPU] ({all},)
         %1 = MUL r0 {n}
         r1 = RANGE[1, REDUCE] {n}
         %2 = ADD %1 r1
         %3 = INDEX p1 %2 : f32
         %4 = REDUCE[MAX] %3 r1
         r2 = RANGE[2, REDUCE] {n}
         %10 = ADD %1 r2
         %11 = INDEX p1 %10 : f32
         %12 = SUB %11 %4
         %13 = MUL %12 %12
         %14 = MUL %13 %12
         %15 = REDUCE[ADD] %14 r2
         %16 = MUL %15 2.0
         %18 = ADD %4 %16
         %19 = STORE %0 %18
         %20 = END %19 r0
         SINK %20",
        all = rows * n
    );
    parse(&text).expect("a kernel")
}

/// Rows that no vector holds whole leave nothing with lanes after them: the rows are the lanes, not their elements.
#[test]
fn rows_that_fill_no_vector_are_lanes() {
    for device in devices() {
        let opts = vec![
            split(1, 3, AxisType::Unroll, false),
            split(1, 3, AxisType::Unroll, false),
            split(0, 32, AxisType::Upcast, false),
        ];
        let programs = check_for(&device, device.target(), &[(spread(64, 3), opts)], 0);
        if device.target().lanes(DType::F32) < 4 || device.target().workgroups {
            continue;
        }
        let list = programs[0].src()[1].src();
        let scalar = |u: &&UOp| {
            let work = u.op().is_elementwise() && u.op() != Op::Index;
            work && u.dtype() == DType::F32 && lanes(u) == 0
        };
        let found = list.iter().filter(scalar).count();
        assert_eq!(found, 0, "{}", programs[0].src()[1]);
    }
}
