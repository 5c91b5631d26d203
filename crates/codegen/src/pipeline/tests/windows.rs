//! Windows of rows that a kernel keeps: what is read of them. Flows in: a pooling's kernel; flows out: failed tests.

use super::*;
use crate::streams::place;
use monoglot_uop::text::parse;

/// The greatest of windows of three by three, two apart, of planes of such rows: that of three rows is kept, and
/// windows of it are read.
fn pooling(width: i64) -> UOp {
    let [rows, out] = [9, (width - 1) / 2];
    let text = format!(
        "p0 = PARAM[0, f32, CPU] ({},)
r0 = RANGE[0, LOOP] 3
%0 = MUL r0 {}
r1 = RANGE[1, LOOP] 4
%1 = MUL r1 {out}
%2 = ADD %0 %1
r2 = RANGE[2, LOOP] {out}
%3 = ADD %2 r2
%4 = INDEX p0 %3 : f32
b0 = BUFFER[0, f32, LOCAL] ({width},)
r4 = RANGE[4, LOOP] {width}
%5 = INDEX b0 r4 : f32
p1 = PARAM[1, f32, CPU] ({},)
%6 = MUL r0 {}
%7 = MUL r1 {}
%8 = ADD %6 %7
r3 = RANGE[3, REDUCE] 3
%9 = MUL r3 {width}
%10 = ADD %8 %9
%11 = ADD %10 r4
%12 = INDEX p1 %11 : f32
%13 = REDUCE[MAX] %12 r3
%14 = STORE %5 %13
%15 = END %14 r4
%16 = AFTER b0 %15 : f32({width},)
%17 = MUL r2 2
r5 = RANGE[5, REDUCE] 3
%18 = ADD %17 r5
%19 = INDEX %16 %18 : f32
%20 = REDUCE[MAX] %19 r5
%21 = STORE %4 %20
%22 = END %21 r0 r1 r2
SINK[\"\"] %22
",
        3 * 4 * out,
        4 * out,
        3 * rows * width,
        rows * width,
        2 * width
    );
    parse(&text).expect("a kernel")
}

/// Vectors lie in those that were written: others would wait until these are in the cache.
#[test]
fn windows_of_a_row_are_read_in_the_vectors_that_were_written() {
    for device in devices() {
        let lanes = device.target().lanes(DType::F32) as i64;
        for width in [2 * lanes + 1, 6 * lanes + 1, 112] {
            let opts = vec![
                split(5, 0, AxisType::Unroll, false),
                split(2, lanes, AxisType::Upcast, false),
            ];
            let opts = if (width - 1) / 2 % lanes == 0 {
                opts
            } else {
                Vec::new()
            };
            let cases = [(pooling(width), opts.clone())];
            let programs = check_for(&device, device.target(), &cases, 0);
            if opts.is_empty() || lanes < 4 || device.target().workgroups {
                continue;
            }
            let list = programs[0].src()[1].src();
            let loads = list.iter().filter(|u| u.op() == Op::Load);
            let own = loads.filter_map(|u| monoglot_uop::linear::address(&u.src()[0]));
            let own = own.filter(|a| a.buffer.addrspace() == Some(AddrSpace::Local));
            let vectors: Vec<_> = own.filter(|a| a.lanes > 0).collect();
            assert!(!vectors.is_empty(), "{}", programs[0].src()[1]);
            for a in vectors {
                let place = place(a.index).expect("a sum of loops' numbers");
                let terms = place.terms.iter().map(|t| t.1).chain([place.constant]);
                assert!(
                    terms.into_iter().all(|k| k % lanes as i128 == 0),
                    "{width}: {:?}",
                    a.index
                );
            }
        }
    }
}
