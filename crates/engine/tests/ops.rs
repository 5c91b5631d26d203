//! Every elementwise op on every dtype, scalar and vector, on each device, against `fold`: all
//! values of 8-bit types, edge values and random ones of the others. Flows in: the op table; flows
//! out: a failed test that names op, dtype, operands and device.

mod support;

use monoglot_device::{Runtime, open};
use monoglot_uop::*;
use std::sync::Arc;
use support::*;

const BINARY: &[Op] = &[
    Op::Add,
    Op::Sub,
    Op::Mul,
    Op::Max,
    Op::CmpLt,
    Op::CmpNe,
    Op::CmpGt,
    Op::CmpGe,
    Op::CmpLe,
    Op::CmpEq,
];

/// What a case computes of a, b, c.
#[derive(Clone)]
struct Case {
    text: String,
    build: fn(&Case, &UOp, &UOp, &UOp) -> UOp,
    op: Op,
    to: DType,
    /// A constant in place of b.
    fixed: Option<i64>,
}

fn cases(d: DType) -> Vec<Case> {
    let mut out = Vec::new();
    let mut add =
        |op: Op, to: DType, fixed: Option<i64>, build: fn(&Case, &UOp, &UOp, &UOp) -> UOp| {
            out.push(Case {
                text: format!("{} {d} {to} {fixed:?}", op.name()),
                build,
                op,
                to,
                fixed,
            });
        };
    let two: fn(&Case, &UOp, &UOp, &UOp) -> UOp = |c, a, b, _| match c.fixed {
        Some(k) => a.binary(c.op, &splat(&UOp::int(k, a.dtype()), lanes(a))),
        None => a.binary(c.op, b),
    };
    let one: fn(&Case, &UOp, &UOp, &UOp) -> UOp = |c, a, _, _| a.unary(c.op);
    for &op in BINARY {
        // Subtraction of bools is in no dialect.
        if op != Op::Sub || d != DType::Bool {
            add(
                op,
                if op.is_comparison() { DType::Bool } else { d },
                None,
                two,
            );
        }
    }
    if !d.is_float() {
        for op in [Op::And, Op::Or, Op::Xor] {
            add(op, d, None, two);
        }
        add(Op::Not, d, None, one);
    }
    if d.is_int() {
        for op in [Op::Shl, Op::Shr] {
            add(op, d, None, two);
            add(op, d, Some(3), two);
            add(op, d, Some(d.bits() as i64 - 1), two);
        }
        for op in [Op::TruncDiv, Op::TruncMod] {
            // A divisor of 0 is the compiler's to exclude.
            add(op, d, None, |c, a, b, _| {
                let zero = UOp::int(0, b.dtype());
                let zero = splat(&zero, lanes(b));
                let one = splat(&UOp::int(1, b.dtype()), lanes(b));
                a.binary(c.op, &b.eq_(&zero).select(&one, b))
            });
            add(op, d, Some(3), two);
        }
    }
    if d.is_float() {
        add(Op::Div, d, None, two);
        for op in [Op::Recip, Op::Sqrt] {
            add(op, d, None, one);
        }
        add(Op::Max, d, Some(0), two);
    }
    if d != DType::Bool {
        add(Op::Neg, d, None, one);
        add(Op::Trunc, d, None, one);
    }
    add(Op::MulAcc, d, None, |_, a, b, c| {
        UOp::new(Op::MulAcc, vec![a.clone(), b.clone(), c.clone()], Arg::None)
    });
    add(Op::Where, d, None, |_, a, b, c| a.lt(b).select(c, a));
    for &to in &DTYPES {
        if to != d {
            add(Op::Cast, to, None, |c, a, _, _| a.cast(c.to));
        }
    }
    for &to in &DTYPES {
        if to != d && to.bytes() == d.bytes() && to != DType::Bool {
            add(Op::Bitcast, to, None, |c, a, _, _| a.bitcast(c.to));
        }
    }
    out
}

fn lanes(u: &UOp) -> usize {
    u.shape().first().map_or(0, |d| d.max() as usize)
}

const DTYPES: [DType; 12] = [
    DType::Bool,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F16,
    DType::F32,
    DType::F64,
];

fn expect(case: &Case, d: DType, a: Scalar, b: Scalar, c: Scalar) -> Scalar {
    let b = case.fixed.map_or(b, |k| d.from_i128(k as i128));
    match case.op {
        Op::Where => {
            if fold::less(a, b) {
                c
            } else {
                a
            }
        }
        Op::Bitcast => Scalar::from_bits(a.to_bits(d), case.to),
        Op::TruncDiv | Op::TruncMod => {
            let b = if b.is_zero() { d.one() } else { b };
            fold::fold(case.op, d, case.to, &[a, b]).unwrap()
        }
        op => fold::fold(op, d, case.to, &[a, b, c][..op.arity().0]).unwrap(),
    }
}

/// Values of a dtype: all of them when few, else edges and bit patterns from a fixed sequence.
fn values(d: DType, count: usize) -> Vec<Scalar> {
    if d == DType::Bool {
        return vec![Scalar::Bool(false), Scalar::Bool(true)];
    }
    if d.bytes() == 1 {
        return (0..256).map(|b| Scalar::from_bits(b, d)).collect();
    }
    let mut out: Vec<Scalar> = Vec::new();
    if d.is_float() {
        let edges = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5,
            -2.5,
            3.0,
            127.0,
            128.0,
            255.5,
            256.0,
            -128.9,
            -129.0,
            32767.4,
            32768.0,
            65504.0,
            65535.9,
            2147483520.0,
            2147483647.0,
            2147483648.0,
            -2147483648.0,
            -2147483904.0,
            4294967040.0,
            4294967296.0,
            9.2233715e18,
            9223372036854775808.0,
            -9223372036854775808.0,
            1.8446743e19,
            18446744073709551616.0,
            1e30,
            -1e30,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            1e-40,
            6e-8,
            1e-310,
            16777217.0,
            2147483646.5,
            9007199254740993.0,
        ];
        out.extend(edges.iter().map(|&f| d.from_f64(f)));
    } else {
        let lo = d.min().to_i128();
        let hi = d.max().to_i128();
        let mut push = |v: i128| {
            if v >= lo && v <= hi {
                out.push(Scalar::Int(v));
            }
        };
        for k in 0..=d.bits() {
            let p = 1i128 << k;
            [p - 1, p, p + 1, -p - 1, -p, -p + 1]
                .into_iter()
                .for_each(&mut push);
        }
    }
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    while out.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.push(Scalar::from_bits(state, d));
    }
    out
}

struct Data {
    columns: [Vec<Scalar>; 3],
    n: usize,
}

fn data(d: DType) -> Data {
    let v = values(d, if d.is_float() { 96 } else { 140 });
    let mut columns = [Vec::new(), Vec::new(), Vec::new()];
    for (i, &a) in v.iter().enumerate() {
        // All pairs; of 8-bit types a quarter of them.
        let step = if v.len() == 256 { 4 } else { 1 };
        for (j, &b) in v.iter().enumerate().skip(i % step).step_by(step) {
            columns[0].push(a);
            columns[1].push(b);
            columns[2].push(v[(i * 7 + j * 3) % v.len()]);
        }
    }
    while columns[0].len() % 64 != 0 {
        columns.iter_mut().for_each(|c| c.push(v[0]));
    }
    let n = columns[0].len();
    Data { columns, n }
}

/// A program that stores every case of a dtype, in slots 3 and on.
fn build(d: DType, cases: &[Case], n: usize, w: usize) -> UOp {
    let r = range((n / w.max(1)) as i64, 0);
    let i = if w > 0 { &r * w as i64 } else { r.clone() };
    // Storage holds bools as bytes.
    let held = |d: DType| if d == DType::Bool { DType::U8 } else { d };
    let value = |slot: u64| {
        let v = load(&address(&param(slot, n as i64, held(d)), &i, w));
        match d {
            DType::Bool => v.binary(Op::CmpNe, &splat(&UOp::int(0, DType::U8), w)),
            _ => v,
        }
    };
    let a = value(0);
    let b = value(1);
    let c = value(2);
    let mut effects = vec![r.clone()];
    for (k, case) in cases.iter().enumerate() {
        let out = param(3 + k as u64, n as i64, held(case.to));
        let made = (case.build)(case, &a, &b, &c);
        effects.push(address(&out, &i, w).store(&made.cast(held(case.to))));
    }
    let last = effects.last().unwrap().clone();
    effects.push(end(&last, &r));
    linear(&effects)
}

fn close(got: Scalar, want: Scalar, d: DType) -> bool {
    match (got, want) {
        (Scalar::Float(g), Scalar::Float(w)) if d.is_float() => g == w || g.is_nan() && w.is_nan(),
        (g, w) => g == w,
    }
}

/// The results of a case, once as values and once as bytes.
fn results(case: &Case, d: DType, data: &Data) -> (Vec<Scalar>, Vec<u8>) {
    let [a, b, c] = &data.columns;
    let values: Vec<Scalar> = (0..data.n)
        .map(|i| expect(case, d, a[i], b[i], c[i]))
        .collect();
    let bytes = bytes_of(&values, case.to);
    (values, bytes)
}

fn check_devices(names: &[&str], cases: impl Fn(DType) -> Vec<Case>, data: impl Fn(DType) -> Data) {
    let mut wrong = Vec::new();
    let runtimes: Vec<&Arc<dyn Runtime>> = names
        .iter()
        .map(|n| open(Device::new(n)).unwrap())
        .collect();
    let mut plans = Vec::new();
    for &d in &DTYPES {
        let all = cases(d);
        let data = Arc::new(data(d));
        for part in all.chunks(30) {
            let want: Arc<Vec<_>> = Arc::new(part.iter().map(|c| results(c, d, &data)).collect());
            for rt in &runtimes {
                for w in [0, rt.target().lanes(d).min(16), 4] {
                    let info = ProgramInfo {
                        outs: (3..3 + part.len()).collect(),
                        ins: vec![0, 1, 2],
                        ..single()
                    };
                    let p = program(
                        &format!("ops_{d}_{w}"),
                        &build(d, part, data.n, w),
                        info,
                        rt.target(),
                    );
                    plans.push((rt, d, w, part.to_vec(), data.clone(), want.clone(), p));
                }
            }
        }
    }
    for rt in &runtimes {
        let mine: Vec<_> = plans.iter().filter(|p| Arc::ptr_eq(p.0, rt)).collect();
        let programs: Vec<Program> = mine.iter().map(|p| p.6.clone()).collect();
        let kernels = rt.compile(&programs).unwrap();
        for ((_, d, w, part, data, want, _), kernel) in mine.into_iter().zip(&kernels) {
            let mut bufs: Vec<Vec<u8>> = data.columns.iter().map(|c| bytes_of(c, *d)).collect();
            bufs.extend(part.iter().map(|c| vec![0; data.n * c.to.bytes()]));
            let out = run(&***rt, kernel, &bufs, &[]).unwrap();
            for ((case, got), (values, bytes)) in part.iter().zip(&out[3..]).zip(want.iter()) {
                if got == bytes {
                    continue;
                }
                for (i, (g, want)) in scalars_of(got, case.to).into_iter().zip(values).enumerate() {
                    if !close(g, *want, case.to) {
                        let [a, b, c] = [0, 1, 2].map(|k| data.columns[k][i]);
                        let name = rt.device();
                        let text = &case.text;
                        wrong.push(format!(
                            "{name} {text} x{w}: {a:?}, {b:?}, {c:?} gave {g:?}, not {want:?}"
                        ));
                        break;
                    }
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_op_on_the_cpu() {
    let moves = |c: &Case| matches!(c.op, Op::Cast | Op::Bitcast);
    let computed = |d: DType| {
        let mut all = cases(d);
        all.retain(|c| d != DType::F16 || moves(c));
        all
    };
    // A level below this machine's renders other vectors and other builtins.
    if cfg!(target_arch = "x86_64") {
        check_devices(
            &["CPU", "CPU:X86:x86-64-v3", "CPU:C:x86-64-v2"],
            computed,
            data,
        );
        // The lowest level has no halves, and rounds products before it adds them.
        let has = |c: &Case| c.to != DType::F16 && c.op != Op::MulAcc;
        let whole = |d: DType| {
            let mut all = computed(d);
            all.retain(|c| d != DType::F16 && has(c));
            all
        };
        check_devices(&["CPU:X86:x86-64-v2"], whole, data);
    } else {
        check_devices(&["CPU"], computed, data);
    }
}

#[test]
fn every_op_in_the_interpreter() {
    check_devices(&["INTERP"], cases, data);
}

/// By every number that a byte holds, of wider types by those beside powers of two and by divisors of numbers near
/// them: the product that stands for a division must be exact to the last number.
#[test]
fn divisions_by_known_numbers_are_exact() {
    let by = |d: DType| -> Vec<i64> {
        if !d.is_int() {
            return Vec::new();
        }
        let most = d.max().to_i128().min(i64::MAX.into()) as i64;
        if d.bytes() == 1 {
            return (1..=most).collect();
        }
        let near = |k: u32| [(1 << k) - 1, 1 << k, (1 << k) + 1];
        let mut all: Vec<i64> = (0..62).flat_map(near).collect();
        all.extend([
            6,
            10,
            11,
            13,
            100,
            641,
            1000,
            6_700_417,
            715_827_883,
            most - 1,
            most,
        ]);
        all.retain(|by| (1..=most).contains(by));
        all.sort_unstable();
        all.dedup();
        all
    };
    let divided = |d: DType| {
        let of = |op: Op| by(d).into_iter().map(move |by| (op, by));
        let all = of(Op::TruncDiv).chain(of(Op::TruncMod));
        let case = |(op, by): (Op, i64)| Case {
            text: format!("{} {d} by {by}", op.name()),
            build: |c, a, _, _| {
                let by = UOp::int(c.fixed.unwrap_or(1), a.dtype());
                a.binary(c.op, &splat(&by, lanes(a)))
            },
            op,
            to: d,
            fixed: Some(by),
        };
        all.map(case).collect()
    };
    // Numbers beside multiples of each, too.
    let numbers = |d: DType| {
        let mut v = values(d, if d.bytes() == 1 { 256 } else { 300 });
        if d.is_int() && d.bytes() > 1 {
            let lo = d.min().to_i128();
            let hi = d.max().to_i128();
            let beside = |by: i64| {
                let last = hi / i128::from(by) * i128::from(by);
                let first = lo / i128::from(by) * i128::from(by);
                [last - 1, last, last + 1, first - 1, first, first + 1]
            };
            let all = by(d).into_iter().flat_map(beside);
            v.extend(all.filter(|n| (lo..=hi).contains(n)).map(Scalar::Int));
        }
        while !v.len().is_multiple_of(64) {
            v.push(v[0]);
        }
        Data {
            n: v.len(),
            columns: [v.clone(), v.clone(), v],
        }
    };
    let widths: &[&str] = if cfg!(target_arch = "x86_64") {
        &["CPU", "CPU:X86:x86-64-v3", "CPU:X86:x86-64-v2"]
    } else {
        &["CPU"]
    };
    check_devices(widths, divided, numbers);
}
