//! Every op of every dtype, at the edges of what it holds. Flows in: kernels of one op; flows out: a failed test where a
//! device gives another value than the oracle.

use super::*;

/// Values at the edges of a dtype, then random ones.
fn edges(d: DType, n: usize, seed: u64) -> Vec<u8> {
    let special: Vec<Scalar> = match d {
        DType::Bool => vec![Scalar::Bool(true), Scalar::Bool(false)],
        d if d.is_float() => [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            2.5,
            -3.5,
            1e-8,
            300.0,
            -1e10,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
        ]
        .map(|f| d.from_f64(f))
        .to_vec(),
        d => [
            d.min(),
            d.max(),
            d.from_i128(0),
            d.from_i128(1),
            d.from_i128(-1),
            d.from_i128(2),
            d.from_i128(7),
            d.from_i128(-7),
        ]
        .to_vec(),
    };
    let mut choice = Choice::new(seed);
    let mut out = Vec::new();
    for _ in 0..n {
        let v = match choice.below(3) {
            0 => special[choice.below(special.len())],
            1 => d.from_i128(choice.below(40) as i128 - 20),
            _ => Scalar::from_bits(
                (choice.below(1 << 31) as u64) << 33 | choice.below(1 << 31) as u64,
                d,
            ),
        };
        out.extend_from_slice(&v.to_bits(d).to_le_bytes()[..d.bytes()]);
    }
    out
}

/// `out[i] = f(a[i], b[i])` for 48 elements, as eight lanes a time.
fn by_element(d: DType, f: impl Fn(&UOp, &UOp) -> UOp) -> UOp {
    let i = UOp::range(48i64, 0, AxisType::Loop);
    let read = |slot| param(slot, &[48], d).at(std::slice::from_ref(&i));
    let value = f(&read(1), &read(2));
    let out = param(0, &[48], value.dtype()).at(std::slice::from_ref(&i));
    sink(&[out.store(&value).end(std::slice::from_ref(&i))])
}

const DTYPES: [DType; 15] = [
    DType::Bool,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F8E4M3,
    DType::F8E5M2,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

fn elementwise() -> Vec<UOp> {
    use Op::*;
    let mut all = Vec::new();
    for d in DTYPES {
        let shared = [Add, Mul, Max, CmpLt, CmpNe, CmpEq, CmpLe, CmpGe, CmpGt];
        let ints = [Xor, Or, And, Idiv, Mod, Shl, Shr, Sub, Pow];
        let floats = [Sub, Div];
        for op in shared {
            all.push(by_element(d, |a, b| a.binary(op, b)));
        }
        let own = if d.is_float() {
            &floats[..]
        } else if d == DType::Bool {
            &ints[..5]
        } else {
            &ints[..]
        };
        for op in own {
            all.push(by_element(d, |a, b| a.binary(*op, b)));
        }
        if d.is_int() {
            for k in [1, 2, 8, 3, 7, -1, -2, -5] {
                let k = if d.is_unsigned() { i64::abs(k) } else { k };
                all.push(by_element(d, |a, _| a / k));
                all.push(by_element(d, |a, _| a % k));
            }
        }
        let unary = if d.is_float() {
            &[Neg, Trunc, Sqrt, Recip][..]
        } else if d == DType::Bool {
            &[Not][..]
        } else {
            &[Neg, Not][..]
        };
        for op in unary {
            all.push(by_element(d, |a, _| a.unary(*op)));
        }
        all.push(by_element(d, |a, b| a.lt(b).select(a, b)));
        for to in DTYPES.into_iter().filter(|to| *to != d) {
            all.push(by_element(d, |a, _| a.cast(to)));
        }
    }
    all.push(by_element(DType::U64, |a, b| a.binary(Threefry, b)));
    all
}

/// Equal but for what a NaN carries.
fn same(want: &[u8], got: &[u8], d: DType) -> bool {
    let read = |b: &[u8]| {
        let mut all = [0; 8];
        all[..b.len()].copy_from_slice(b);
        Scalar::from_bits(u64::from_le_bytes(all), d)
    };
    let n = d.bytes();
    want.chunks(n)
        .zip(got.chunks(n))
        .all(|(w, g)| w == g || read(w).to_f64().is_nan() && read(g).to_f64().is_nan())
}

#[test]
fn every_op_of_every_dtype_is_that_of_the_oracle() {
    let all = elementwise();
    for device in devices() {
        for opts in [vec![], vec![split(0, 8, AxisType::Upcast, false)]] {
            let lower = |k: &UOp| lower_for(k, device.target(), Some(&opts)).map(|l| l.0);
            let programs: Vec<Program> = all
                .iter()
                .map(|k| lower(k).unwrap_or_else(|e| panic!("{e}\n{k}")))
                .collect();
            let compiled = device.compile(&programs).unwrap();
            for ((k, program), kernel) in all.iter().zip(&programs).zip(compiled) {
                let types = dtypes(k);
                let mut want: Vec<Vec<u8>> = types
                    .iter()
                    .enumerate()
                    .map(|(i, d)| edges(*d, 48, i as u64))
                    .collect();
                let bufs = upload(device.as_ref(), &want, 0);
                eval_kernel(k, &mut want, &[]).unwrap();
                device.launch(&kernel, &bufs, &[]).unwrap();
                let mut got = vec![0; want[0].len()];
                device.download(&bufs[0], 0, &mut got).unwrap();
                let Some(source) = program.src()[2].arg().text() else {
                    continue;
                };
                assert!(
                    same(&want[0], &got, types[0]),
                    "{}\n{want:?}\n{got:?}\n{source}\n{}",
                    device.device(),
                    k
                );
            }
        }
    }
}

/// A product that is marked is not fused with its sum, nor with any matrix unit, and keeps its mark.
#[test]
fn products_that_are_rounded_are_no_part_of_a_fused_sum() {
    let fused = [Op::MulAcc, Op::Wmma];
    for device in devices() {
        for rounded in [false, true] {
            let k = matmul(16, 16, 16);
            let products: rustc_hash::FxHashMap<UOp, UOp> = k
                .toposort()
                .into_iter()
                .filter(|u| rounded && u.op() == Op::Mul && u.dtype() == DType::F32)
                .map(|u| (u.clone(), u.with_arg(Arg::Rounded)))
                .collect();
            let k = k.substitute(&products);
            let program = lower_for(&k, device.target(), None).unwrap().0;
            let linear = program.src()[1].toposort();
            let has = |keep: &dyn Fn(&UOp) -> bool| linear.iter().any(keep);
            let name = device.device();
            let can = device.target().native.contains(Op::MulAcc);
            assert_eq!(has(&|u| fused.contains(&u.op())), !rounded && can, "{name}");
            assert_eq!(has(&|u| *u.arg() == Arg::Rounded), rounded, "{name}");
        }
    }
}
