//! Every op of every class as a tensor graph, on every dtype that it takes, on each device, against the
//! oracle; and what no device, or not each, can run: refused by an error that names it. Flows in: the op
//! table; flows out: a list of what differs. A class without cases does not compile, an op without cases
//! fails.

mod support;

use monoglot_device::open;
use monoglot_engine::{backend, read, upload};
use monoglot_oracle::eval::{Value, eval};
use monoglot_uop::op::{
    Abstraction, Class, Code, Identity, Leaf, Memory, Movement, Order, Ternary,
};
use monoglot_uop::*;
use std::sync::Arc;
use support::{address, i32c, linear, load, param, program, single};

const DEVICES: [&str; 3] = ["CPU", "INTERP", "INTERP:GPU"];

/// Edge values of a dtype, and bit patterns from a fixed sequence.
fn values(d: DType) -> Vec<Scalar> {
    let mut out: Vec<Scalar> = match d {
        DType::Bool => return vec![Scalar::Bool(false), Scalar::Bool(true)],
        d if d.is_float() => [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -2.5,
            3.0,
            7.0,
            100.0,
            -0.007,
            65504.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ]
        .map(|x| d.from_f64(x))
        .to_vec(),
        d => [0, 1, 2, 3, 7, 31, 32, 100, -1, -2, -3, -7, 1 << 40]
            .map(|x| Scalar::Int(x).cast(d))
            .into_iter()
            .chain([d.min(), d.max()])
            .collect(),
    };
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    while out.len() < 24 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.push(Scalar::from_bits(state, d));
    }
    out
}

fn array(values: &[Scalar], shape: &[i64], d: DType) -> Value {
    let bytes = |v: &Scalar| v.to_bits(d).to_le_bytes()[..d.bytes()].to_vec();
    let bytes: Vec<u8> = values.iter().flat_map(bytes).collect();
    Value::from_bytes(&bytes, shape, d).unwrap()
}

/// All pairs of a dtype's values, and a third with each. Quotients of floats are rounded before they are
/// floored: those whose floor that may change are left out.
fn columns(op: Op, d: DType) -> [Value; 3] {
    let mut v = values(d);
    if matches!(op, Op::Idiv | Op::Mod) {
        v.retain(|x| !matches!(x, Scalar::Float(f) if f.abs() < 0.4 || f.abs() > 200.0));
    }
    let n = v.len();
    let at = |f: &dyn Fn(usize, usize) -> usize| {
        let all: Vec<Scalar> = (0..n * n).map(|k| v[f(k / n, k % n)]).collect();
        array(&all, &[(n * n) as i64], d)
    };
    [
        at(&|i, _| i),
        at(&|_, j| j),
        at(&|i, j| (i * 7 + j * 3) % n),
    ]
}

/// The slot of the first PARAM of a case; those of a FUNCTION's body are below.
const FIRST: u64 = 100;

/// A graph over PARAMs, whose values these are.
struct Case {
    root: UOp,
    leaves: Vec<Value>,
}

fn case(leaves: &[Value], build: impl FnOnce(&[UOp]) -> UOp) -> Case {
    let param = |(slot, v): (usize, &Value)| {
        UOp::param(FIRST + slot as u64, &Shape::of(&v.shape), v.dtype, None)
    };
    let params: Vec<UOp> = leaves.iter().enumerate().map(param).collect();
    Case {
        root: build(&params),
        leaves: leaves.to_vec(),
    }
}

/// An elementwise op on every dtype.
fn elementwise(op: Op) -> Vec<Case> {
    let mut out = Vec::new();
    if !op.stages().contains('t') {
        return out;
    }
    let dtypes = DType::ALL
        .iter()
        .copied()
        .filter(|&d| !matches!(d, DType::Void | DType::Index) && op.traits().operands.take(d));
    for d in dtypes {
        let columns = columns(op, d);
        let arity = op.arity().0;
        if op == Op::Cast {
            for to in DType::ALL.iter().filter(|&&to| to != d && to.bytes() > 0) {
                if *to != DType::Index {
                    out.push(case(&columns[..1], |p| p[0].cast(*to)));
                }
            }
        } else if op.class() == Class::Ternary(Ternary::Where) {
            out.push(case(&columns, |p| p[0].lt(&p[1]).select(&p[2], &p[0])));
        } else if fold::defined(op, d, if op.is_comparison() { DType::Bool } else { d }) {
            out.push(case(&columns[..arity], |p| {
                UOp::new(op, p.to_vec(), Arg::None)
            }));
        }
    }
    out
}

fn dims(d: &[i64]) -> Vec<Dim> {
    d.iter().map(|&n| Dim::Int(n)).collect()
}

/// The dtypes on which views and reductions are tried: one of each width, and each kind.
const SOME: [DType; 6] = [
    DType::Bool,
    DType::I8,
    DType::F16,
    DType::I32,
    DType::F32,
    DType::U64,
];

/// 2×3×4 values that no two of which are equal, where the dtype has as many.
fn block(d: DType) -> Value {
    let all: Vec<Scalar> = (1..=24).map(|k| Scalar::Int(k).cast(d)).collect();
    array(&all, &[2, 3, 4], d)
}

/// A value that is computed, whatever `x` is a view of.
fn computed(x: &UOp) -> UOp {
    x.binary(Op::Max, &x.flip(1).unwrap())
}

fn movement(op: Movement) -> Vec<Case> {
    let of = |build: &dyn Fn(&UOp) -> Result<UOp>| -> Vec<Case> {
        let one = |d: DType| case(&[block(d)], |p| computed(&build(&p[0]).unwrap()));
        SOME.map(one).into_iter().collect()
    };
    match op {
        Movement::Permute => of(&|x| x.permute(&[2, 0, 1])),
        Movement::Flip => of(&|x| x.flip(0b101)),
        Movement::Reshape => of(&|x| x.reshape(&Shape::of(&[4, 6]))),
        Movement::Expand => of(&|x| {
            x.reshape(&Shape::of(&[2, 1, 12]))?
                .expand(&Shape::of(&[2, 5, 12]))
        }),
        Movement::Pad => of(&|x| {
            let fill = x.dtype().one();
            x.pad(&dims(&[1, 0, 2]), &Shape::of(&[3, 4, 7]), fill)
        }),
        Movement::Shrink => of(&|x| x.shrink(&dims(&[0, 1, 1]), &Shape::of(&[2, 2, 2]))),
        Movement::Stack => of(&|x| {
            let flipped = x.flip(1)?;
            Ok(UOp::new(Op::Stack, vec![x.clone(), flipped], Arg::None))
        }),
        Movement::Index => {
            let at = array(&[1, 0, 1, -1, 2].map(Scalar::Int), &[5], DType::I64);
            SOME.map(|d| case(&[block(d), at.clone()], |p| computed(&p[0].at(&p[1..]))))
                .into_iter()
                .collect()
        }
        Movement::Bitcast => {
            let pairs = [
                (DType::F32, DType::I32),
                (DType::I32, DType::F32),
                (DType::U64, DType::F64),
                (DType::F16, DType::U16),
                (DType::F32, DType::U8),
                (DType::I8, DType::U32),
            ];
            pairs
                .map(|(from, to)| case(&[block(from)], |p| computed(&p[0].bitcast(to))))
                .into_iter()
                .collect()
        }
        // A value on one device has one replica.
        Movement::Replicated => Vec::new(),
        // Lanes are a linear program's: vectors that are transposed have them.
        Movement::Shuffle => Vec::new(),
    }
}

fn reductions() -> Vec<Case> {
    let mut out = Vec::new();
    for op in ReduceOp::ALL {
        for axes in [&[0usize, 2][..], &[1], &[0, 1, 2]] {
            let reduce = |d| case(&[block(d)], |p| p[0].reduce(*op, axes).unwrap());
            out.extend(SOME.map(reduce));
        }
    }
    out
}

fn identity(op: Identity) -> Vec<Case> {
    let one = |d: DType| {
        case(&[block(d)], |p| match op {
            Identity::Copy => computed(&p[0]).copy_to(Device::new("HERE")),
            Identity::Assert => {
                let x = computed(&p[0]);
                let holds = x.binary(Op::CmpGe, &p[0]);
                computed(&x.asserting(&holds, "it is the greater one").unwrap())
            }
            Identity::Contiguous | Identity::ContiguousBackward | Identity::Detach => {
                computed(&computed(&p[0]).unary(op.op()))
            }
        })
    };
    SOME.map(one).into_iter().collect()
}

fn leaf(op: Leaf) -> Vec<Case> {
    match op {
        Leaf::Param | Leaf::Buffer => SOME
            .map(|d| case(&[block(d)], |p| p[0].binary(Op::Max, &p[0])))
            .into_iter()
            .collect(),
        Leaf::Const => SOME
            .map(|d| {
                case(&[block(d)], |p| {
                    p[0].binary(Op::CmpNe, &UOp::constant(d.one(), d))
                })
            })
            .into_iter()
            .collect(),
        // What runs knows no literal bytes.
        Leaf::Binary => Vec::new(),
    }
}

fn abstraction(op: Abstraction) -> Vec<Case> {
    match op {
        Abstraction::Function | Abstraction::Tuple | Abstraction::GetTuple => {
            let y = UOp::param(0, &Shape::of(&[2, 3, 4]), DType::F32, None);
            let body = UOp::new(Op::Tuple, vec![&y + 1.0, &y * 2.0], Arg::None);
            let twice = |p: &[UOp]| {
                let call = UOp::new(Op::Function, vec![body, &p[0] * 3.0], Arg::None);
                let part = |i| UOp::new(Op::GetTuple, vec![call.clone()], Arg::Element(i));
                part(0) + part(1)
            };
            vec![case(&[block(DType::F32)], twice)]
        }
        // What a schedule is made of: below tensor graphs, and in every one that runs.
        Abstraction::Call => Vec::new(),
    }
}

/// The cases of an op; those that stand only in kernels and programs are shown by all the others, and by
/// the tests of the linear form.
fn cases(op: Op) -> Vec<Case> {
    match op.class() {
        Class::Unary(_) | Class::Transcendental(_) | Class::Conversion(_) => elementwise(op),
        Class::Arithmetic(_) | Class::Comparison(_) | Class::Ternary(_) => elementwise(op),
        Class::Movement(op) => movement(op),
        Class::Reduction(_) => reductions(),
        Class::Identity(op) => identity(op),
        Class::Leaf(op) => leaf(op),
        Class::Abstraction(op) => abstraction(op),
        Class::Memory(Memory::Store) | Class::Order(Order::After) => {
            let assigned = |p: &[UOp]| {
                let x = p[0].unary(Op::Contiguous);
                let half = x.shrink(&dims(&[0, 1, 0]), &Shape::of(&[2, 2, 4])).unwrap();
                let new = half.flip(0b10).unwrap();
                x.after(&[half.store(&new)]) + &x.flip(1).unwrap()
            };
            vec![case(&[block(DType::F32)], assigned)]
        }
        Class::Memory(_) | Class::Order(_) | Class::Code(_) => Vec::new(),
    }
}

/// The place of a float among those of its dtype, so that neighbours differ by 1.
fn place(v: Scalar, d: DType) -> i128 {
    let bits = v.to_bits(d) as i128;
    let sign = 1i128 << (d.bits() - 1);
    if bits & sign != 0 { sign - bits } else { bits }
}

fn close(got: Scalar, want: Scalar, d: DType, ulps: f64) -> bool {
    match (got, want) {
        (Scalar::Float(g), Scalar::Float(w)) => {
            g == w || g.is_nan() && w.is_nan() || {
                let apart = (place(got, d) - place(want, d)).unsigned_abs() as f64;
                g.is_nan() == w.is_nan() && apart <= ulps
            }
        }
        (g, w) => g == w,
    }
}

/// The number of a PARAM among the leaves of its case.
fn number(p: &UOp) -> Option<usize> {
    let slot = p.buffer_arg().filter(|_| p.op() == Op::Param)?.slot;
    slot.checked_sub(FIRST).map(|k| k as usize)
}

/// The graph over other leaves.
fn placed(u: &UOp, leaves: &[UOp]) -> UOp {
    let all = u.toposort();
    let of = |p: &UOp| Some((p.clone(), leaves[number(p)?].clone()));
    u.substitute(&all.iter().filter_map(of).collect())
}

/// What a device makes of the cases of an op: differences from the oracle.
fn wrong(op: Op, device: Device) -> Vec<String> {
    let mut out = Vec::new();
    let cases = cases(op);
    let mut roots = Vec::new();
    for c in &cases {
        let put = |v: &Value| upload(&v.to_bytes(), &Shape::of(&v.shape), v.dtype, device).unwrap();
        let leaves: Vec<UOp> = c.leaves.iter().map(put).collect();
        let root = placed(&c.root, &leaves);
        roots.push(match root.op() {
            Op::Copy => root.src()[0].copy_to(device),
            _ => root,
        });
    }
    let held = match monoglot_engine::realize(&roots) {
        Ok(held) => held,
        Err(e) => return vec![format!("{op:?} on {}: {e}", device.name())],
    };
    for (c, held) in cases.iter().zip(held) {
        let mut leaf = |p: &UOp| {
            number(p)
                .map(|k| c.leaves[k].clone())
                .ok_or_else(|| Error::argument("leaf", "of no case"))
        };
        let want = eval(std::slice::from_ref(&c.root), &mut leaf)
            .unwrap()
            .remove(0);
        let bytes = read(&held).unwrap();
        let d = want.dtype;
        let got = Value::from_bytes(&bytes, &want.shape, d).unwrap();
        // The nearest float; where a decomposition or an order of summation rounds as well, a few off.
        let ulps = match op.traits().ulps {
            _ if op == Op::Reduce => 8.0,
            ulps if ulps <= 0.5 => 0.0,
            ulps => ulps.ceil(),
        };
        let bad = (0..want.len()).find(|&i| !close(got.get(i), want.get(i), d, ulps));
        if let Some(i) = bad {
            let operands: Vec<Scalar> = c
                .leaves
                .iter()
                .filter(|v| v.len() == want.len())
                .map(|v| v.get(i))
                .collect();
            out.push(format!(
                "{op:?} to {d} on {}: element {i} of {operands:?} is {:?}, not {:?}",
                device.name(),
                got.get(i),
                want.get(i)
            ));
        }
    }
    out
}

#[test]
fn every_op_of_every_class_is_as_the_oracle_says() {
    let mut all = Vec::new();
    for name in DEVICES {
        for &op in Op::ALL {
            all.extend(wrong(op, Device::new(name)));
        }
    }
    assert!(all.is_empty(), "{} differ:\n{}", all.len(), all.join("\n"));
}

#[test]
fn ops_without_cases_are_those_below_tensors() {
    let without: Vec<&str> = Op::ALL
        .iter()
        .filter(|op| op.stages().contains('t') && cases(**op).is_empty())
        .map(|op| op.name())
        .collect();
    let below = ["BINARY", "REPLICATED", "CALL", "LOAD", "GROUP", "SINK"];
    assert_eq!(without, below);
}

/// A linear program around an op that only such programs have, and the devices that run it; None for
/// ops that are in every program that runs.
fn below(op: Op) -> Option<(Vec<UOp>, &'static [&'static str])> {
    let f = DType::F32;
    let at = address(&param(0, 64, f), &i32c(0), 0);
    let new = |src: Vec<UOp>, arg: Arg| UOp::new(op, src, arg);
    let stored = |v: &UOp| vec![at.store(v)];
    match op.class() {
        Class::Memory(memory) => match memory {
            Memory::Load | Memory::Store => None,
            Memory::AtomicAdd => Some((
                vec![new(vec![at.clone(), UOp::float(1.0, f)], Arg::None)],
                &DEVICES,
            )),
            Memory::GetAddr => {
                let of = new(vec![param(0, 64, f)], Arg::Place(None, None));
                let out = address(&param(1, 1, DType::U64), &i32c(0), 0);
                Some((vec![out.store(&of)], &[]))
            }
        },
        Class::Order(order) => match order {
            Order::Barrier => Some((vec![new(vec![], Arg::None)], &["INTERP", "INTERP:GPU"])),
            Order::Range | Order::End | Order::If | Order::EndIf | Order::After => None,
            Order::Group | Order::Sink | Order::Linear => None,
        },
        Class::Code(code) => match code {
            Code::Special => {
                let group = new(vec![i32c(4)], Arg::Text("gidx0".into()));
                Some((stored(&group.cast(f)), &["INTERP", "INTERP:GPU"]))
            }
            Code::Wmma => {
                let gpu = open(Device::new("INTERP:GPU")).unwrap();
                let unit = gpu.target().matrix_units[0].clone();
                let two = load(&address(&param(1, 64, f), &i32c(0), 2));
                let d = new(
                    vec![two.clone(), two.clone(), two],
                    Arg::Wmma(Arc::new(unit)),
                );
                let out = address(&param(0, 64, f), &i32c(0), 2);
                Some((vec![out.store(&d)], &["INTERP", "INTERP:GPU"]))
            }
            Code::Ins | Code::Custom => Some((vec![new(vec![], Arg::Text("nop".into()))], &[])),
            // Not within a program.
            Code::CustomFunction | Code::Program | Code::Source => None,
        },
        Class::Unary(_) | Class::Transcendental(_) | Class::Conversion(_) => None,
        Class::Arithmetic(_) | Class::Comparison(_) | Class::Ternary(_) => None,
        Class::Leaf(_) | Class::Movement(_) | Class::Reduction(_) => None,
        Class::Abstraction(_) | Class::Identity(_) => None,
    }
}

/// Code for a device, and what that makes of it.
fn made(list: &UOp, device: &str) -> Result<()> {
    let rt = open(Device::new(device))?;
    let target = rt.target();
    let verified = spec::verify_linear(list.clone())?;
    let listing = Listing::of(&verified);
    backend(target.dialect).emit(&listing, &single(), target)?;
    rt.compile(&[program("below", list, single(), target)])?;
    Ok(())
}

#[test]
fn what_a_device_cannot_run_is_an_error_that_names_the_op() {
    for &op in Op::ALL {
        let Some((list, devices)) = below(op) else {
            continue;
        };
        let list = linear(&list);
        for device in DEVICES {
            let expected = devices.contains(&device);
            match made(&list, device) {
                Ok(()) => assert!(expected, "{op:?} on {device} is not refused"),
                Err(e) => {
                    assert!(!expected, "{op:?} on {device}: {e}");
                    let names = |kind: &ErrorKind| matches!(kind, ErrorKind::Unsupported { op: name, .. } if name == op.name());
                    assert!(names(e.kind()), "{op:?} on {device}: {e}");
                }
            }
        }
    }
}

#[test]
fn a_function_that_a_target_does_not_have_is_refused_by_name() {
    let list = linear(&[address(&param(0, 4, DType::F32), &i32c(0), 4)
        .store(&load(&address(&param(1, 4, DType::F32), &i32c(0), 4)).unary(Op::Exp2))]);
    let error = made(&list, "CPU").unwrap_err().to_string();
    assert!(error.contains("EXP2"), "{error}");
    made(&list, "INTERP").unwrap();
}
