//! The text form: every op and arg prints and parses back, random graphs come back as the same
//! node, errors name line and column, and large graphs take no recursion and little time. Flows in:
//! graphs and texts; flows out: comparisons.

use monoglot_uop::arg::*;
use monoglot_uop::own::{FunctionBody, FunctionInfo};
use monoglot_uop::text::{parse, parse_many, print, print_many};
use monoglot_uop::*;

/// Numbers that look random and are the same in every run.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

#[track_caller]
fn round_trip(u: &UOp) {
    let text = print(u);
    match parse(&text) {
        Ok(back) => assert!(back == *u, "came back as\n{}\nfrom\n{text}", print(&back)),
        Err(e) => panic!("{e}\nin\n{text}"),
    }
}

fn text_arg(s: &str) -> Arg {
    Arg::Text(s.into())
}

#[test]
fn a_kernel_reads_well() {
    let a = UOp::param(1, &Shape::of(&[4, 8]), DType::F32, Some(Device::new("CPU")));
    let out = UOp::param(0, &Shape::of(&[4]), DType::F32, Some(Device::new("CPU")));
    let i = UOp::range(4i64, 0, AxisType::Loop);
    let k = UOp::range(8i64, 1, AxisType::Reduce);
    let gate = k.lt(&k.like(6));
    let read = gate.select(
        &a.at(&[i.clone(), k.valid(&gate)]),
        &UOp::float(0.0, DType::F32),
    );
    let sum = (&read * 2.0).reduce_ranges(ReduceOp::Add, &[k]);
    let store = out.at(std::slice::from_ref(&i)).store(&sum).end(&[i]);
    let info = KernelInfo {
        name: "r_4_8".into(),
        opts: vec![Opt {
            op: OptOp::Split {
                factor: 4,
                target: AxisType::Upcast,
                top: false,
            },
            axis: 0,
        }],
        no_locals: false,
        settled: false,
    };
    let sink = UOp::new(Op::Sink, [store].to_vec(), Arg::Kernel(info.into()));
    let want = "\
p0 = PARAM[0, f32, CPU] (4,)
r0 = RANGE[0, LOOP] 4
%0 = INDEX p0 r0 : f32
r1 = RANGE[1, REDUCE] 8
%1 = CMPLT r1 6
p1 = PARAM[1, f32, CPU] (4, 8)
%2 = WHERE %1 r1 INVALID
%3 = INDEX p1 r0 %2 : f32
%4 = WHERE %1 %3 0.0
%5 = MUL %4 2.0
%6 = REDUCE[ADD] %5 r1
%7 = STORE %0 %6
%8 = END %7 r0
SINK[\"r_4_8\", opts=[SPLIT(0, 4, UPCAST)]] %8
";
    assert_eq!(print(&sink), want);
    round_trip(&sink);
}

#[test]
fn opts_are_read_as_written() {
    for text in [
        "SPLIT(0, 4, UPCAST)",
        "SPLIT(1, 8, GROUP_REDUCE, top)",
        "PADTO(2, 32)",
        "SWAP(0, 1)",
        "TC(2, 0)",
    ] {
        assert_eq!(
            text.parse::<Opt>().map(|o| o.to_string()),
            Ok(text.to_string())
        );
    }
    assert_eq!(
        "NOLOCALS(0)".parse(),
        Ok(Opt {
            op: OptOp::NoLocals,
            axis: 0
        })
    );
    assert!("SPLIT(0, 4)".parse::<Opt>().is_err() && "".parse::<Opt>().is_err());
}

#[test]
fn a_linear_program_is_a_block() {
    let shape = Shape::of(&[64]);
    let p = UOp::param(0, &shape, DType::F32, None);
    let q = UOp::param(1, &shape, DType::F32, None);
    let n = UOp::int(16, DType::I32);
    let r = UOp::new(Op::Range, vec![n.clone()], Arg::Range(0, AxisType::Loop));
    let four = UOp::int(4, DType::I32);
    let i = &r * &four;
    let vector = |u: &UOp| UOp::new(Op::Stack, vec![u.clone()], Arg::None);
    let at = vector(&i);
    let wide = vector(&four);
    let address = |b: &UOp| {
        UOp::new(
            Op::Shrink,
            vec![b.clone(), at.clone(), wide.clone()],
            Arg::None,
        )
    };
    let from = address(&q);
    let to = address(&p);
    let x = UOp::new(Op::Load, vec![from.clone()], Arg::None);
    let two = UOp::float(2.0, DType::F32);
    let y = &x * &two;
    let store = to.store(&y);
    let end = store.end(std::slice::from_ref(&r));
    let list = vec![
        p.clone(),
        q.clone(),
        n,
        r,
        four,
        i,
        at,
        wide,
        from,
        x,
        two,
        y,
        to,
        store.clone(),
        end.clone(),
    ];
    let linear = UOp::new(Op::Linear, list.clone(), Arg::None);
    let want = "\
LINEAR {
  p0 = PARAM[0, f32, GLOBAL] (64,)
  p1 = PARAM[1, f32, GLOBAL] (64,)
  16i32
  r0 = RANGE[0, LOOP] 16i32
  4i32
  %0 = MUL r0 4
  (%0,) (4i32,)
  %1 = SHRINK p1 (%0,) (4i32,) : f32(4,)
  %2 = LOAD %1 : f32(4,)
  2.0
  %3 = MUL %2 2.0 : f32(4,)
  %4 = SHRINK p0 (%0,) (4i32,) : f32(4,)
  %5 = STORE %4 %3
  END %5 r0
}
";
    assert_eq!(print(&linear), want);
    round_trip(&linear);

    // Other orders: constants first, an operand that is not listed, an instruction before its operand.
    let mut first = list.clone();
    first.sort_by_key(|u| u.op() != Op::Const);
    let missing: Vec<UOp> = list
        .iter()
        .filter(|u| u.op() != Op::Const)
        .cloned()
        .collect();
    let backwards: Vec<UOp> = list.iter().rev().cloned().collect();
    let twice: Vec<UOp> = list.iter().chain(&list).cloned().collect();
    let some: Vec<UOp> = list.iter().step_by(2).cloned().collect();
    for order in [first, missing, backwards, twice, some] {
        round_trip(&UOp::new(Op::Linear, order, Arg::None));
    }

    // A program, and a schedule that calls it twice.
    let sink = UOp::new(
        Op::Sink,
        vec![end],
        Arg::Kernel(KernelInfo::default().into()),
    );
    let source = UOp::new(
        Op::Source,
        vec![],
        text_arg("int main() {\n\treturn \"1\";\n}\n"),
    );
    let binary = UOp::new(Op::Binary, vec![], Arg::Bytes([0u8, 1, 255][..].into()));
    let info = ProgramInfo {
        name: "E".into(),
        outs: vec![0],
        global_size: [1; 3],
        ..Default::default()
    };
    let info = Arg::Program(info.into());
    let parts = vec![sink, linear, source];
    let program = UOp::new(Op::Program, parts.clone(), info.clone());
    round_trip(&program);
    // Machine code is told by its length and a hash, and is not read.
    let compiled = UOp::new(Op::Program, [&parts[..], &[binary]].concat(), info);
    let text = print(&compiled);
    assert!(text.contains("BINARY[bytes=3, hash=h"), "{text}");
    let refused = parse(&text).unwrap_err().to_string();
    assert!(
        refused.contains("machine code never comes from a text"),
        "{refused}"
    );
    let info = Arg::Call(
        CallInfo {
            outs: vec![0],
            ins: vec![1],
            derivative: None,
        }
        .into(),
    );
    let call = |a: &UOp, b: &UOp| {
        UOp::new(
            Op::Call,
            vec![program.clone(), a.clone(), b.clone()],
            info.clone(),
        )
    };
    let schedule = UOp::new(Op::Linear, vec![call(&p, &q), call(&q, &p)], Arg::None);
    round_trip(&schedule);
    assert!(
        print(&schedule).ends_with(
            "LINEAR {\n  CALL[outs=[0], ins=[1]] %10 p0 p1\n  CALL[outs=[0], ins=[1]] %10 p1 p0\n}\n"
        ),
        "{schedule}"
    );
    round_trip(&UOp::new(
        Op::Linear,
        vec![schedule.clone(), program],
        Arg::None,
    ));
}

#[test]
fn buffers_count_from_zero_and_come_back_fresh() {
    let cpu = Device::new("CPU");
    let a = UOp::buffer(&Shape::of(&[4]), DType::F32, cpu);
    let b = UOp::buffer(&Shape::of(&[4]), DType::F32, cpu);
    let sum = &(&b + &a) * &b;
    let want = "\
b0 = BUFFER[0, f32, CPU] (4,)
b1 = BUFFER[1, f32, CPU] (4,)
%0 = ADD b0 b1 : f32(4,)
MUL %0 b0 : f32(4,)
";
    // Operands of commutative ops may stand in either order, as both buffers are alike.
    assert_eq!(print(&sum), want);
    let back = parse(want).expect("its own text");
    assert_eq!(print(&back), want);
    assert!(
        back.toposort()
            .iter()
            .all(|u| u.op() != Op::Buffer || (*u != a && *u != b))
    );
    let later = UOp::new(
        Op::Buffer,
        b.src().to_vec(),
        Arg::Buffer(BufferArg {
            version: 3,
            ..*b.buffer_arg().expect("a buffer")
        }),
    );
    assert!(
        print(&(&later + &b)).contains("b0_1 = BUFFER[0, f32, CPU]"),
        "{}",
        print(&(&later + &b))
    );
    round_trip(&UOp::scratch(
        7,
        &Shape::of(&[4, 2]),
        DType::F16,
        AddrSpace::Reg,
    ));
}

#[test]
fn every_arg_comes_back() {
    let f = |v: f64, d| UOp::float(v, d);
    let mut all: Vec<UOp> = Vec::new();
    for &d in DType::ALL.iter().filter(|d| d.is_float()) {
        for v in [
            0.0,
            -0.0,
            1.0,
            0.1,
            -1e30,
            3e-45,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            448.0,
        ] {
            all.push(f(v, d));
        }
        all.push(UOp::new(
            Op::Const,
            vec![],
            Arg::Const(Scalar::Float(f64::from_bits(0xfff8_0000_0000_0042)), d),
        ));
    }
    for &d in DType::ALL.iter().filter(|d| d.is_int()) {
        all.extend([d.min(), d.max(), Scalar::Int(7)].map(|v| UOp::constant(v, d)));
    }
    all.extend([
        UOp::bool(true),
        UOp::bool(false),
        UOp::invalid(),
        UOp::bool(true).with_tag(3),
        f(2.0, DType::F32).mul_rounded(&f(0.5, DType::F32)),
        f(-2.0, DType::F32).unary(Op::Exp2).with_arg(Arg::Below),
        UOp::bool(true)
            .select(&f(1.0, DType::F32), &f(0.0, DType::F32))
            .with_arg(Arg::Padding),
    ]);
    let t = UOp::param(
        0,
        &Shape::of(&[2, 3, 4]),
        DType::F32,
        Some(Device::new("CPU:1")),
    );
    all.push(t.permute(&[2, 0, 1]).unwrap());
    all.push(t.flip(0b101).unwrap());
    all.push(t.reduce(ReduceOp::Max, &[0, 2]).unwrap());
    all.push(
        t.pad(
            &[1i64.into(), 0i64.into(), 0i64.into()],
            &Shape::of(&[4, 3, 4]),
            Scalar::Float(f64::NEG_INFINITY),
        )
        .unwrap(),
    );
    all.push(
        t.shrink(
            &[1i64.into(), 0i64.into(), 2i64.into()],
            &Shape::of(&[1, 3, 2]),
        )
        .unwrap(),
    );
    all.push(t.copy_to(Device::tuple(&[Device::new("CPU"), Device::new("CPU:1")])));
    all.push(t.cast(DType::F8E4M3).with_tag(12));
    all.push(t.bitcast(DType::U8));
    all.push(UOp::new(
        Op::Replicated,
        vec![t.clone()],
        Arg::Axes([1u8][..].into()),
    ));
    let n = UOp::variable(1, 1, 10);
    all.push(UOp::param(
        2,
        &Shape::new([Dim::Sym(&n + 1), Dim::Int(3)]),
        DType::I8,
        None,
    ));
    for place in [
        (None, None),
        (None, Some(AddrSpace::Local)),
        (Some(Device::new("A B")), Some(AddrSpace::Reg)),
    ] {
        all.push(UOp::new(
            Op::Load,
            vec![t.clone()],
            Arg::Place(place.0, place.1),
        ));
    }
    let tuple = UOp::new(Op::Tuple, vec![t.clone(), n.clone()], Arg::None);
    all.push(UOp::new(Op::GetTuple, vec![tuple.clone()], Arg::Element(1)));
    all.push(UOp::new(
        Op::Function,
        vec![tuple.clone(), t.clone()],
        Arg::None,
    ));
    let times = ScanInfo {
        length: 7,
        carries: 1,
        slices: 2,
        reversed: true,
    };
    all.push(UOp::new(
        Op::Function,
        vec![tuple.clone(), t.clone(), t.clone(), t.clone()],
        Arg::Scan(times),
    ));
    for what in Recompute::ALL {
        all.push(UOp::new(
            Op::Function,
            vec![tuple.clone(), t.clone()],
            Arg::Recompute(*what),
        ));
    }
    all.push(UOp::new(
        Op::Call,
        vec![tuple, t.clone()],
        Arg::Call(
            CallInfo {
                outs: vec![0],
                ins: vec![],
                derivative: None,
            }
            .into(),
        ),
    ));
    for s in [
        "",
        "plain",
        "q\"uo\\te",
        "two\nlines",
        "\n",
        "é\t\u{1}\n| x\n\n",
        "ends\n",
    ] {
        all.push(UOp::new(Op::Custom, vec![t.clone()], text_arg(s)));
    }
    let p = UOp::param(0, &Shape::of(&[4]), DType::F32, Some(Device::new("CPU:1")));
    let r = UOp::range(4, 0, AxisType::Loop);
    let store = p.at(&[r.clone()]).store(&UOp::float(2.0, DType::F32));
    let kernel = UOp::sink(&[store.end(&[r])]).with_arg(Arg::Kernel(Default::default()));
    for body in [FunctionBody::Named, FunctionBody::Kernel(kernel)] {
        let info = FunctionInfo {
            name: "decode \"all\"".into(),
            device: Device::new("CPU:1"),
            begins: vec![0, 2],
            body,
        };
        let arg = Arg::Function(Opaque::new(info));
        all.push(UOp::new(Op::CustomFunction, vec![], arg));
    }
    all.push(UOp::new(Op::Ins, vec![t.clone()], text_arg("vaddps")));
    all.push(UOp::new(
        Op::GetAddr,
        vec![t.clone()],
        Arg::Place(Some(Device::new("CPU")), None),
    ));
    all.push(UOp::new(
        Op::Special,
        vec![UOp::int(4, DType::I32)],
        text_arg("gidx0"),
    ));
    let unit = TcInfo {
        name: "mma".into(),
        dims: [8, 8, 8],
        threads: 32,
        dtypes_in: [DType::F16; 2],
        dtype_out: DType::F32,
        a: Fragment::pairs(8, 8),
        b: Fragment::pairs(8, 8),
        c: Fragment::pairs(8, 8),
    };
    all.push(UOp::new(
        Op::Wmma,
        vec![t.clone(), t.clone(), t.clone()],
        Arg::Wmma(unit.into()),
    ));
    let opts = [
        OptOp::Split {
            factor: 4,
            target: AxisType::GroupReduce,
            top: true,
        },
        OptOp::PadTo { multiple: 32 },
        OptOp::Swap { with: 2 },
        OptOp::NoLocals,
        OptOp::Tc { unit: 1 },
        OptOp::Stage {
            operand: 2,
            last: None,
        },
        OptOp::Stage {
            operand: 0,
            last: Some(3),
        },
        OptOp::Scatter,
        OptOp::Cover {
            factor: 14,
            target: AxisType::Upcast,
        },
        OptOp::Scan { turns: 1 },
        OptOp::Scan { turns: 16 },
    ];
    let opts = opts
        .iter()
        .enumerate()
        .map(|(axis, &op)| Opt { op, axis })
        .collect();
    let info = KernelInfo {
        name: "k\"".into(),
        opts,
        no_locals: true,
        settled: true,
    };
    all.push(UOp::new(Op::Sink, vec![], Arg::Kernel(info.into())));
    let info = ProgramInfo {
        name: "k".into(),
        target: "CPU:C:x86-64-v4".into(),
        global_size: [2, 3, 4],
        local_size: [5, 6, 7],
        threads: 8,
        outs: vec![0],
        ins: vec![1, 2],
        vars: vec![3],
        flops: 1 << 60,
        bytes: 9,
    };
    all.push(UOp::new(
        Op::Program,
        vec![t.clone()],
        Arg::Program(info.into()),
    ));
    // An arg on an op that has no use for it.
    all.push(UOp::new(
        Op::Detach,
        vec![t.clone()],
        Arg::Axes([1u8, 2][..].into()),
    ));
    all.push(UOp::new(Op::Contiguous, vec![t.clone()], text_arg("why")));
    for u in &all {
        round_trip(u);
    }
    let text = print_many(&all);
    let back = parse_many(&text).unwrap_or_else(|e| panic!("{e}\nin\n{text}"));
    assert!(back == all);
}

/// A random graph of tensor ops and scalar index arithmetic.
fn random(rng: &mut Rng, size: usize) -> UOp {
    let device = Some(Device::new("CPU"));
    let shapes = [
        Shape::SCALAR,
        Shape::of(&[4]),
        Shape::of(&[2, 3]),
        Shape::of(&[1, 3]),
    ];
    let dtypes = [
        DType::F32,
        DType::I32,
        DType::Index,
        DType::Bool,
        DType::F16,
        DType::U8,
    ];
    let mut all: Vec<UOp> = (0..8)
        .map(|slot| UOp::param(slot, rng.pick(&shapes), *rng.pick(&dtypes), device))
        .chain([
            UOp::variable(8, 0, 9),
            UOp::range(5i64, 0, AxisType::Loop),
            UOp::range(7i64, 1, AxisType::Reduce),
        ])
        .collect();
    for _ in 0..size {
        let a = rng.pick(&all).clone();
        let b = rng.pick(&all).clone();
        let c = rng.pick(&all).clone();
        let b = if rng.below(3) == 0 && a.dtype() != DType::Void {
            UOp::constant(Scalar::Int(rng.below(5) as i128), a.dtype())
        } else {
            b
        };
        let op = *rng.pick(Op::ALL);
        let src: Vec<UOp> = match op.arity() {
            (1, 1) => vec![a],
            (2, 2) if op == Op::Reshape || op == Op::Expand => {
                let to = Shape::of(&[1i64, a.shape().max_len()]);
                vec![a, UOp::dims(&to)]
            }
            (2, _) => vec![a, b],
            (3, 3) => vec![a, b, c],
            (0 | 1, 255) if op != Op::Linear => (0..rng.below(4) + 1)
                .map(|_| rng.pick(&all).clone())
                .collect(),
            _ => continue,
        };
        let arg = match op {
            Op::Permute | Op::Replicated => {
                Arg::Axes((0..src[0].shape().len() as u8).rev().collect())
            }
            Op::Flip => Arg::Flags(1),
            Op::Reduce => Arg::Reduce(ReduceOp::Add, [].into()),
            Op::Cast | Op::Bitcast => Arg::DType(*rng.pick(&dtypes)),
            Op::Range => Arg::Range(rng.below(9) as u32, *rng.pick(AxisType::ALL)),
            Op::GetTuple => Arg::Element(0),
            Op::Custom | Op::Ins | Op::Special => text_arg("t"),
            _ => Arg::None,
        };
        if let Ok(u) = UOp::try_new(op, src, arg) {
            let tagged = rng.below(20) == 0;
            all.push(if tagged {
                u.with_tag(rng.below(9) as u32)
            } else {
                u
            });
        }
    }
    let roots: Vec<UOp> = (0..4).map(|_| rng.pick(&all).clone()).collect();
    let op = if rng.below(2) == 0 {
        Op::Linear
    } else {
        Op::Sink
    };
    let many = if op == Op::Linear {
        all[..rng.below(all.len())].to_vec()
    } else {
        roots
    };
    UOp::new(op, many, Arg::None)
}

#[test]
fn random_graphs_are_the_same_node_again() {
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
    for _ in 0..1500 {
        let size = rng.below(60);
        let u = random(&mut rng, size);
        round_trip(&u);
    }
}

#[test]
fn damaged_text_is_an_error_and_never_a_panic() {
    let mut rng = Rng(7);
    for _ in 0..400 {
        let text = print(&random(&mut rng, 12));
        for _ in 0..20 {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..rng.below(3) + 1 {
                let at = rng.below(bytes.len());
                match rng.below(3) {
                    0 => bytes[at] = *rng.pick(b"(){}[]#:=,.%\"|-x0 9\nAe"),
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, *rng.pick(b"(){}[]#:=,.%\"|-x0 9\nAe")),
                }
            }
            if let Ok(text) = String::from_utf8(bytes) {
                let _ = parse_many(&text);
            }
        }
    }
}

#[test]
fn errors_name_line_and_column() {
    for (text, want) in [
        ("", "line 1, column 1: there is no node here"),
        (
            "%0 = ADD 1 2\n%1 = ADD %0 %7\n",
            "line 2, column 13: nothing above is named %7",
        ),
        ("%0 = SUM 1\n", "line 1, column 6: an op was expected"),
        (
            "p = PARAM[0, f33] (4,)\n",
            "line 1, column 10: f33 is no DType",
        ),
        (
            "p = PARAM[0, f32] (4,)\nq = PARAM[1, f32] (5,)\nADD p q",
            "line 3, column 1: ADD: operands of shape (4,) and (5,)",
        ),
        (
            "p = PARAM[0, i32] (4,)\nADD p 1.5",
            "line 2, column 7: 1.5 is no i32",
        ),
        (
            "p = PARAM[0, u8] (4,)\nADD p 256",
            "line 2, column 7: 256 is no u8",
        ),
        (
            "p = PARAM[0, f32] (4,)\nNEG p : f32(5,)",
            "line 2, column 9: the type is f32(4,)",
        ),
        (
            "LINEAR {\n  NEG 1\n",
            "line 1, column 1: this block is not closed with }",
        ),
        (
            "%0 = NEG 1 )",
            "line 1, column 12: ')' does not belong here",
        ),
        (
            "%0 = NEG 1\n%0 = NEG 2",
            "line 2, column 1: %0 is named twice",
        ),
        ("1 2", "line 1, column 4: 2 roots, where one was expected"),
        ("SOURCE[\"é", "line 1, column 8: this text is not closed"),
    ] {
        let e = parse(text).expect_err(text);
        assert!(matches!(e.kind(), ErrorKind::Format { .. }));
        assert_eq!(e.to_string(), want, "{text}");
    }
}

#[test]
fn a_hundred_thousand_nodes_on_a_small_stack() {
    let run = || {
        let mut u = UOp::param(0, &Shape::of(&[4]), DType::F32, None);
        for i in 0..100_000 {
            u = if i % 2 == 0 { &u + 1.5 } else { &u * 0.5 };
        }
        round_trip(&u);
        let linear = UOp::new(
            Op::Linear,
            u.toposort()
                .into_iter()
                .filter(|u| u.dtype() != DType::Index)
                .collect::<Vec<_>>(),
            Arg::None,
        );
        round_trip(&linear);
    };
    let thread = std::thread::Builder::new()
        .stack_size(512 << 10)
        .spawn(run)
        .expect("a thread");
    thread.join().expect("no overflow");
}
