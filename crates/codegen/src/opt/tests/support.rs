//! Kernels for the tests of this room, and the check that a schedule keeps what a kernel computes.
//! Flows in: a kernel and Opts; flows out: nothing, or a panic with the element that differs.

use crate::opt::staging::{Staging, stage};
use crate::opt::{applied, apply, axes};
use monoglot_oracle::eval_kernel::eval_kernel;
use monoglot_uop::spec::verify_kernel;
use monoglot_uop::{
    AddrSpace, Arg, AxisType, Backend, DType, Device, Dialect, Digit, Fragment, KernelInfo, Op,
    OpSet, Opt, OptOp, ReduceOp, Shape, Target, TcInfo, UOp,
};
use std::sync::Arc;

pub(crate) fn split(axis: usize, factor: i64, target: AxisType, top: bool) -> Opt {
    Opt {
        op: OptOp::Split {
            factor,
            target,
            top,
        },
        axis,
    }
}

pub(crate) fn padto(axis: usize, multiple: i64) -> Opt {
    Opt {
        op: OptOp::PadTo { multiple },
        axis,
    }
}

pub(crate) fn swap(axis: usize, with: usize) -> Opt {
    Opt {
        op: OptOp::Swap { with },
        axis,
    }
}

pub(crate) fn tc(axis: usize) -> Opt {
    Opt {
        op: OptOp::Tc { unit: 0 },
        axis,
    }
}

/// TC by the unit of that number.
pub(crate) fn tc_by(unit: usize, axis: usize) -> Opt {
    Opt {
        op: OptOp::Tc { unit },
        axis,
    }
}

/// Two units, whose matrices lie over the lanes in different ways, and the dot product of pairs.
fn units() -> Vec<TcInfo> {
    let small = TcInfo {
        name: "mma8".into(),
        dims: [8, 8, 8],
        threads: 32,
        dtypes_in: [DType::F32; 2],
        dtype_out: DType::F32,
        a: Fragment::pairs(8, 8),
        b: Fragment::pairs(8, 8),
        c: Fragment::pairs(8, 8),
    };
    let columns = Fragment {
        lane: vec![Digit::Column(16, 1), Digit::Row(2, 8)],
        element: vec![Digit::Row(8, 1)],
    };
    let large = TcInfo {
        name: "mma16".into(),
        dims: [16, 16, 16],
        a: Fragment {
            lane: vec![Digit::Row(16, 1), Digit::Column(2, 8)],
            element: vec![Digit::Column(8, 1)],
        },
        b: columns.clone(),
        c: columns,
        ..small.clone()
    };
    let pairs = TcInfo::dot("pairs", [DType::I16; 2], DType::I32);
    vec![small, large, pairs]
}

/// A machine with workgroups and matrix units, or two threads with vectors of 64 bytes.
pub(crate) fn target(workgroups: bool) -> Target {
    Target {
        device: Device::new("TEST"),
        dialect: if workgroups {
            Dialect::Uops
        } else {
            Dialect::C
        },
        arch: String::new(),
        vector_bytes: if workgroups { 4 } else { 64 },
        registers: 32,
        threads: if workgroups { 1 } else { 2 },
        cores: 2,
        workgroups,
        max_workgroup: if workgroups { 256 } else { 1 },
        warp: if workgroups { 32 } else { 1 },
        local_bytes: if workgroups { 16 << 10 } else { 4 << 20 },
        caches: [32 << 10, 1 << 20, 32 << 20],
        native: OpSet::EMPTY,
        arithmetic: vec![DType::F32, DType::F64],
        storage: vec![DType::F32, DType::F64],
        arranged: true,
        matrix_units: units(),
        max_buffers: 31,
        max_nodes: 4096,
    }
}

pub(crate) fn sink(effects: &[UOp]) -> UOp {
    UOp::sink(effects).with_arg(Arg::Kernel(Arc::new(KernelInfo {
        name: "test".into(),
        ..Default::default()
    })))
}

pub(crate) fn param(slot: u64, dims: &[i64], dtype: DType) -> UOp {
    UOp::param(slot, &Shape::of(dims), dtype, None)
}

/// `out[i, j] = Σ_r a[i, r]·b[r, j]`.
pub(crate) fn matmul(m: i64, n: i64, k: i64) -> UOp {
    let r = ranges(&[m, n], &[k]);
    let i = &r[0];
    let j = &r[1];
    let r = &r[2];
    let a = param(1, &[m, k], DType::F32).at(&[i.clone(), r.clone()]);
    let b = param(2, &[k, n], DType::F32).at(&[r.clone(), j.clone()]);
    let sum = (a * b).reduce_ranges(ReduceOp::Add, std::slice::from_ref(r));
    let out = param(0, &[m, n], DType::F32).at(&[i.clone(), j.clone()]);
    sink(&[out.store(&sum).end(&[i.clone(), j.clone()])])
}

/// `out[i, j] = Σ_r a[i, r]·b[r, j]` of flat bytes, a signed and b of this dtype, in i32.
pub(crate) fn byte_matmul(m: i64, n: i64, k: i64, of_b: DType) -> UOp {
    product(m, n, k, [DType::I8, of_b, DType::I32])
}

/// A product of these dtypes, and the one in which it is added up.
pub(crate) fn product(m: i64, n: i64, k: i64, [of_a, of_b, of_sum]: [DType; 3]) -> UOp {
    let r = ranges(&[m, n], &[k]);
    let wide = |x: UOp| x.cast(of_sum);
    let a = wide(param(1, &[m * k], of_a).at(&[linear(&[(&r[0], k), (&r[2], 1)])]));
    let b = wide(param(2, &[k * n], of_b).at(&[linear(&[(&r[2], n), (&r[1], 1)])]));
    let out = param(0, &[m * n], of_sum).at(&[linear(&[(&r[0], n), (&r[1], 1)])]);
    let sum = (a * b).reduce_ranges(ReduceOp::Add, &r[2..]);
    sink(&[out.store(&sum).end(&r[..2])])
}

/// LOOP ranges of these extents, then REDUCE ranges.
pub(crate) fn ranges(outer: &[i64], inner: &[i64]) -> Vec<UOp> {
    let all = outer
        .iter()
        .map(|&n| (n, AxisType::Loop))
        .chain(inner.iter().map(|&n| (n, AxisType::Reduce)));
    all.enumerate()
        .map(|(i, (n, t))| UOp::range(n, i as u32, t))
        .collect()
}

/// A dozen shapes of kernel; axis 0 has an extent of a multiple of 4 in each.
pub(crate) fn kernels() -> Vec<UOp> {
    let mut all = vec![matmul(8, 4, 12)];
    // The minimum of a row, of negative numbers: padding with 0 would show.
    let r = ranges(&[4], &[7]);
    let x = param(1, &[4, 7], DType::I32).at(&[r[0].clone(), r[1].clone()]);
    let x = (&x * &x) * -1 - 1;
    let max = x.reduce_ranges(ReduceOp::Max, &r[1..]);
    all.push(sink(&[param(0, &[4], DType::I32)
        .at(&r[..1])
        .store(&max)
        .end(&r[..1])]));
    // A product of a row, in a wide type.
    let x = param(1, &[4, 7], DType::I64).at(&[r[0].clone(), r[1].clone()]) + 3;
    let product = x.reduce_ranges(ReduceOp::Mul, &r[1..]);
    all.push(sink(&[param(0, &[4], DType::I64)
        .at(&r[..1])
        .store(&product)
        .end(&r[..1])]));
    // x − max(x) summed: a REDUCE inside what another closes.
    let r = ranges(&[4], &[7, 7]);
    let row = |k: &UOp| param(1, &[4, 7], DType::F32).at(&[r[0].clone(), k.clone()]);
    let max = row(&r[1]).reduce_ranges(ReduceOp::Max, &r[1..2]);
    let sum = (row(&r[2]) - max).reduce_ranges(ReduceOp::Add, &r[2..]);
    all.push(sink(&[param(0, &[4], DType::F32)
        .at(&r[..1])
        .store(&sum)
        .end(&r[..1])]));
    // A convolution with a masked edge, and 1/x of what is read: an infinity in the mask would leak.
    let r = ranges(&[4, 6], &[3, 3]);
    let o = &r[0];
    let y = &r[1];
    let c = &r[2];
    let k = &r[3];
    let at = y + k;
    let gate = at.lt(&at.like(7)) & at.like(0).lt(&at);
    let read = param(1, &[3, 6], DType::F32).at(&[c.valid(&gate), &at - 1]);
    let value = gate.select(&read, &read.like(0.0))
        * param(2, &[4, 3, 3], DType::F32).at(&[o.clone(), c.clone(), k.clone()]);
    let sum = value.reduce_ranges(ReduceOp::Add, &r[2..]);
    let store = param(0, &[4, 6], DType::F32).at(&r[..2]).store(&sum);
    all.push(sink(&[store.end(&r[..2])]));
    // A transpose and a second store over the same ranges; a value of bool.
    let r = ranges(&[8, 5], &[]);
    let x = param(2, &[5, 8], DType::F32).at(&[r[1].clone(), r[0].clone()]);
    let one = param(0, &[8, 5], DType::F32)
        .at(&r)
        .store(&(&x * 2.0))
        .end(&r);
    let two = param(1, &[8, 5], DType::Bool)
        .at(&r)
        .store(&x.lt(&x.like(0.0)))
        .end(&r);
    all.push(sink(&[one, two]));
    // A gather whose index is data.
    let r = ranges(&[12, 3], &[]);
    let at = param(2, &[12], DType::U8).at(&r[..1]).cast(DType::Index);
    let gate = at.lt(&at.like(9));
    let read = param(1, &[9, 3], DType::F32).at(&[at.valid(&gate), r[1].clone()]);
    let store = param(0, &[12, 3], DType::F32)
        .at(&r)
        .store(&gate.select(&read, &read.like(-1.0)));
    all.push(sink(&[store.end(&r)]));
    // A reduction of bools, and one in half precision, of one buffer.
    let r = ranges(&[4], &[6]);
    let x = param(2, &[4, 6], DType::F16).at(&[r[0].clone(), r[1].clone()]);
    let any = x.lt(&x.like(-0.5)).reduce_ranges(ReduceOp::Max, &r[1..]);
    let sum = x.reduce_ranges(ReduceOp::Add, &r[1..]);
    let one = param(0, &[4], DType::Bool)
        .at(&r[..1])
        .store(&any)
        .end(&r[..1]);
    let two = param(1, &[4], DType::F16)
        .at(&r[..1])
        .store(&sum)
        .end(&r[..1]);
    all.push(sink(&[one, two]));
    all.push(byte_matmul(4, 6, 10, DType::U8));
    all.push(byte_matmul(8, 5, 7, DType::I8));
    all
}

/// A buffer for every PARAM, with values whose sums and products are exact.
pub(crate) fn buffers(kernel: &UOp, seed: u64) -> Vec<Vec<u8>> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut params: Vec<UOp> = kernel
        .toposort()
        .into_iter()
        .filter(|u| u.op() == Op::Param)
        .collect();
    params.sort_by_key(|p| p.buffer_arg().map(|b| b.slot));
    let mut element = |d: DType| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let v = (state >> 33) as i64 % 17 - 8;
        let s = if d.is_float() {
            monoglot_uop::Scalar::Float(v as f64 / 8.0)
        } else {
            d.from_i128(v as i128)
        };
        s.to_bits(d).to_le_bytes()[..d.bytes()].to_vec()
    };
    params
        .iter()
        .map(|p| {
            (0..p.shape().max_len())
                .flat_map(|_| element(p.dtype()))
                .collect()
        })
        .collect()
}

/// The kernel after these Opts, which give the same buffers to the bit (the data is such that the
/// order of a sum does not matter).
pub(crate) fn check(kernel: &UOp, opts: &[Opt]) -> UOp {
    check_on(kernel, opts, &target(true))
}

/// As `check`, on a target: where threads share storage, STAGE has them wait for each other.
pub(crate) fn check_on(kernel: &UOp, opts: &[Opt], target: &Target) -> UOp {
    let after = apply(kernel, opts, target).unwrap_or_else(|e| panic!("{opts:?}: {e}"));
    verify_kernel(after.clone()).unwrap_or_else(|e| panic!("{opts:?}: {e}"));
    let mut want = buffers(kernel, 7);
    let mut got = buffers(kernel, 7);
    eval_kernel(kernel, &mut want, &[]).unwrap();
    eval_kernel(&after, &mut got, &[]).unwrap_or_else(|e| panic!("{opts:?}: {e}"));
    assert!(want == got, "{opts:?} changes what the kernel computes");
    // Positions and numbers agree, and one list is as good as its two halves.
    for (i, r) in axes(&after).iter().enumerate() {
        assert_eq!(r.range_arg().map(|(id, _)| id as usize), Some(i));
    }
    if !opts.iter().any(|o| matches!(o.op, OptOp::Tc { .. })) {
        let half = opts.len() / 2;
        let steps =
            apply(kernel, &opts[..half], target).and_then(|k| apply(&k, &opts[half..], target));
        let steps = steps.unwrap_or_else(|e| panic!("{opts:?} in halves: {e}"));
        assert_eq!(applied(&steps)[applied(kernel).len()..], *opts);
        let extents = |k: &UOp| {
            axes(k)
                .iter()
                .map(|r| (r.src()[0].as_int(), r.range_arg()))
                .collect::<Vec<_>>()
        };
        assert_eq!(extents(&steps), extents(&after));
    }
    after
}

/// These Opts are an error that says `why`.
pub(crate) fn refused(kernel: &UOp, opts: &[Opt], why: &str) {
    match apply(kernel, opts, &target(true)) {
        Ok(_) => panic!("{opts:?} was applied"),
        Err(e) => assert!(e.to_string().contains(why), "{e}"),
    }
}

/// A linear index: ranges times strides.
pub(crate) fn linear(terms: &[(&UOp, i64)]) -> UOp {
    terms
        .iter()
        .map(|(r, s)| if *s == 1 { (*r).clone() } else { *r * *s })
        .reduce(|a, b| a + b)
        .unwrap()
}

/// The product of flat row-major matrices.
pub(crate) fn flat_matmul(m: i64, n: i64, k: i64) -> UOp {
    let r = ranges(&[m, n], &[k]);
    let a = param(1, &[m * k], DType::F32).at(&[linear(&[(&r[0], k), (&r[2], 1)])]);
    let b = param(2, &[k * n], DType::F32).at(&[linear(&[(&r[2], n), (&r[1], 1)])]);
    let out = param(0, &[m * n], DType::F32).at(&[linear(&[(&r[0], n), (&r[1], 1)])]);
    sink(&[out
        .store(&(a * b).reduce_ranges(ReduceOp::Add, &r[2..]))
        .end(&r[..2])])
}

/// The transpose of a flat row-major matrix of n rows.
pub(crate) fn transpose(m: i64, n: i64) -> UOp {
    let r = ranges(&[m, n], &[]);
    let x = param(1, &[m * n], DType::F32).at(&[linear(&[(&r[1], m), (&r[0], 1)])]);
    let out = param(0, &[m * n], DType::F32).at(&[linear(&[(&r[0], n), (&r[1], 1)])]);
    sink(&[out.store(&x).end(&r)])
}

/// A convolution of images `[n, c, h, h]` with `[o, c, k, k]`, without padding.
pub(crate) fn conv(n: i64, c: i64, o: i64, h: i64, k: i64) -> UOp {
    let y = h - k + 1;
    let r = ranges(&[n, o, y, y], &[c, k, k]);
    let x = param(1, &[n * c * h * h], DType::F32).at(&[linear(&[
        (&r[0], c * h * h),
        (&r[4], h * h),
        (&r[2], h),
        (&r[5], h),
        (&r[3], 1),
        (&r[6], 1),
    ])]);
    let w = param(2, &[o * c * k * k], DType::F32).at(&[linear(&[
        (&r[1], c * k * k),
        (&r[4], k * k),
        (&r[5], k),
        (&r[6], 1),
    ])]);
    let out = param(0, &[n * o * y * y], DType::F32).at(&[linear(&[
        (&r[0], o * y * y),
        (&r[1], y * y),
        (&r[2], y),
        (&r[3], 1),
    ])]);
    sink(&[out
        .store(&(x * w).reduce_ranges(ReduceOp::Add, &r[4..]))
        .end(&r[..4])])
}

/// The gradient of that convolution's weights.
pub(crate) fn conv_weights(n: i64, c: i64, o: i64, h: i64, k: i64) -> UOp {
    let y = h - k + 1;
    let r = ranges(&[o, c, k, k], &[n, y, y]);
    let g = param(1, &[n * o * y * y], DType::F32).at(&[linear(&[
        (&r[4], o * y * y),
        (&r[0], y * y),
        (&r[5], y),
        (&r[6], 1),
    ])]);
    let x = param(2, &[n * c * h * h], DType::F32).at(&[linear(&[
        (&r[4], c * h * h),
        (&r[1], h * h),
        (&r[5], h),
        (&r[2], h),
        (&r[6], 1),
        (&r[3], 1),
    ])]);
    let out = param(0, &[o * c * k * k], DType::F32).at(&[linear(&[
        (&r[0], c * k * k),
        (&r[1], k * k),
        (&r[2], k),
        (&r[3], 1),
    ])]);
    sink(&[out
        .store(&(g * x).reduce_ranges(ReduceOp::Add, &r[4..]))
        .end(&r[..4])])
}

/// The gradient of that convolution's images: the gradient of the output, padded, against the weights.
pub(crate) fn conv_images(n: i64, c: i64, o: i64, h: i64, k: i64) -> UOp {
    let y = h - k + 1;
    let r = ranges(&[n, c, h, h], &[o, k, k]);
    let at_y = &r[2] - &r[5];
    let at_x = &r[3] - &r[6];
    let inside = |v: &UOp| v.like(-1).lt(v) & v.lt(&v.like(y));
    let gate = inside(&at_y) & inside(&at_x);
    let index = linear(&[(&r[0], o * y * y), (&r[4], y * y), (&at_y, y), (&at_x, 1)]);
    let g = param(1, &[n * o * y * y], DType::F32).at(&[index.valid(&gate)]);
    let g = gate.select(&g, &g.like(0.0));
    let w = param(2, &[o * c * k * k], DType::F32).at(&[linear(&[
        (&r[4], c * k * k),
        (&r[1], k * k),
        (&r[5], k),
        (&r[6], 1),
    ])]);
    let out = param(0, &[n * c * h * h], DType::F32).at(&[linear(&[
        (&r[0], c * h * h),
        (&r[1], h * h),
        (&r[2], h),
        (&r[3], 1),
    ])]);
    sink(&[out
        .store(&(g * w).reduce_ranges(ReduceOp::Add, &r[4..]))
        .end(&r[..4])])
}

/// A kernel in which what is read of this argument (or of storage of its own) is kept, over these of its
/// ranges, in storage of its own.
pub(crate) fn staged(
    kernel: &UOp,
    slot: Option<u64>,
    over: &[usize],
    space: AddrSpace,
    target: &Target,
) -> UOp {
    let nodes = kernel.toposort();
    let reads_it = |u: &&UOp| {
        let storage = u.src().first().map(UOp::named);
        let argument = storage.filter(|s| s.op() == Op::Param);
        u.op() == Op::Index && argument.and_then(UOp::buffer_arg).map(|b| b.slot) == slot
    };
    let value = nodes.iter().rfind(reads_it).expect("it is read");
    let axes = axes(kernel);
    let over: Vec<UOp> = over.iter().map(|&i| axes[i].clone()).collect();
    let staging = Staging {
        value,
        over: &over,
        space,
    };
    stage(kernel, &staging, target).expect("it can be kept")
}

/// Kernels with storage of their own, for a machine with workgroups or without: tiles of factors, of rows, one inside another, a sum that is kept, and
/// what a turn leaves for the next.
pub(crate) fn staged_kernels(workgroups: bool) -> Vec<UOp> {
    use AddrSpace::{Local, Reg};
    let target = target(workgroups);
    let staged =
        |kernel: &UOp, slot, over: &[usize], space| staged(kernel, slot, over, space, &target);
    let product = matmul(8, 4, 12);
    let tile = apply(&product, &[split(2, 3, AxisType::Reduce, false)], &target);
    let tile = tile.expect("3 divides 12");
    let a = Some(1);
    let b = Some(2);
    let local = staged(&tile, b, &[3, 1], Local);
    let mut all = vec![
        staged(&product, b, &[2, 1], Local),
        staged(&product, b, &[2], Reg),
        staged(&product, a, &[2], Local),
        staged(&staged(&tile, a, &[3], Reg), b, &[1], Local),
        staged(&local, None, &[4], Reg),
        local,
    ];
    // A sum that is kept for all columns, and the least of a row.
    let r = ranges(&[4, 6], &[7]);
    let x = param(1, &[4, 7], DType::F32).at(&[r[0].clone(), r[2].clone()]);
    let sum = x.reduce_ranges(ReduceOp::Add, &r[2..]);
    let value = &sum * param(2, &[6], DType::F32).at(&r[1..2]);
    let out = param(0, &[4, 6], DType::F32).at(&r[..2]);
    let kernel = sink(&[out.store(&value).end(&r[..2])]);
    for over in [vec![], vec![r[0].clone()]] {
        let staging = Staging {
            value: &sum,
            over: &over,
            space: Reg,
        };
        all.push(stage(&kernel, &staging, &target).expect("a sum can be kept"));
    }
    all.extend([scan(), fibonacci()]);
    all
}

/// `out[i, c] = Σ_j (holds(j, i) ? x[j, c] : 0)`, or another fold.
pub(crate) fn running(op: ReduceOp, holds: impl Fn(&UOp, &UOp) -> UOp) -> UOp {
    let r = ranges(&[12, 10], &[12]);
    let x = param(1, &[12, 10], DType::F32).at(&[r[2].clone(), r[1].clone()]);
    let identity = UOp::constant(op.identity(DType::F32), DType::F32);
    let fold = holds(&r[2], &r[0]).select(&x, &identity);
    let out = param(0, &[12, 10], DType::F32).at(&r[..2]);
    sink(&[out.store(&fold.reduce_ranges(op, &r[2..])).end(&r[..2])])
}

/// `out[r, e] = Σ_j (ids[j] = r ? x[j, e] : 0)`.
pub(crate) fn placed(rows: i64, width: i64, count: i64) -> UOp {
    let r = ranges(&[rows, width], &[count]);
    let id = param(1, &[count], DType::I32).at(&r[2..]);
    let x = param(2, &[count, width], DType::F32).at(&[r[2].clone(), r[1].clone()]);
    let hit = id.eq_(&r[0].cast(DType::I32));
    let sum = hit
        .select(&x, &x.like(0.0))
        .reduce_ranges(ReduceOp::Add, &r[2..]);
    let out = param(0, &[rows, width], DType::F32).at(&r[..2]);
    sink(&[out.store(&sum).end(&r[..2])])
}

/// `out[i, j] = Σ_{k < j} x[i, k]`: what was there before a turn is stored, then it is added to.
pub(crate) fn scan() -> UOp {
    let r = ranges(&[4, 7], &[]);
    let sum = UOp::scratch(0, &Shape::of(&[1]), DType::F32, AddrSpace::Reg);
    let zero = [UOp::index_const(0)];
    let empty = sum.after(&r[..1]).at(&zero);
    let set = empty.store(&empty.like(0.0));
    let now = sum.after(&[set, r[1].clone()]).at(&zero);
    let x = param(1, &[4, 7], DType::F32).at(&r);
    let out = param(0, &[4, 7], DType::F32).at(&r).store(&now);
    let add = now.store(&(&now + x));
    let turn = UOp::new(Op::Group, vec![add, out], Arg::None);
    sink(&[turn.end(&r[1..]).end(&r[..1])])
}

/// Two places that take each other's values: both are read before one is written.
pub(crate) fn fibonacci() -> UOp {
    let r = ranges(&[8], &[]);
    let places = |slot| UOp::scratch(slot, &Shape::of(&[1]), DType::I32, AddrSpace::Reg);
    let zero = [UOp::index_const(0)];
    let begin = |b: &UOp, n: i64| b.at(&zero).store(&b.at(&zero).like(n));
    let a = places(0);
    let b = places(1);
    let now = |u: &UOp, n: i64| u.after(&[begin(u, n), r[0].clone()]).at(&zero);
    let first = now(&a, 0);
    let second = now(&b, 1);
    let out = param(0, &[8], DType::I32).at(&r).store(&first);
    let turn = vec![first.store(&second), second.store(&(&first + &second)), out];
    sink(&[UOp::new(Op::Group, turn, Arg::None).end(&r)])
}

/// The back end that stands in this room for a dialect.
pub(crate) fn backend(dialect: Dialect) -> &'static dyn Backend {
    match dialect {
        Dialect::C => &crate::C,
        Dialect::Uops => &crate::Uops,
        Dialect::X86 => panic!("the tests of this room have no back end for machine code"),
    }
}

/// A kernel goes through all passes.
pub(crate) fn lowers(kernel: &UOp, workgroups: bool) {
    let target = target(workgroups);
    let lowered = crate::lower(
        kernel,
        &target,
        backend(target.dialect),
        Some(&[]),
        &mut |_, _| {},
    );
    if let Err(e) = lowered {
        panic!("{e}\n{kernel}");
    }
}
