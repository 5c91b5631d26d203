//! Linear programs with loops, registers, gates, lanes, variables and threads, on the CPU and in
//! the interpreter, against results computed here. Flows in: the programs; flows out: comparisons
//! of what they wrote.

mod support;

use monoglot_device::cpu::Cpu;
use monoglot_device::interp::Interp;
use monoglot_device::{Config, Runtime, open};
use monoglot_uop::*;
use support::*;

struct Case {
    name: &'static str,
    linear: UOp,
    info: ProgramInfo,
    bufs: Vec<Vec<u8>>,
    vars: Vec<i64>,
    /// The argument that is written, and what it holds then.
    out: (usize, Vec<u8>),
}

const F: DType = DType::F32;

fn out_first(ins: usize) -> ProgramInfo {
    ProgramInfo {
        outs: vec![0],
        ins: (1..=ins).collect(),
        ..single()
    }
}

fn ramp(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i % 37) as f32 - 9.0).collect()
}

/// Σ a·b over 64 elements, in four vector accumulators, then across lanes.
fn dot() -> Case {
    let n = 64;
    let w = 4;
    let acc = UOp::scratch(9, &Shape::of(&[2, w]), F, AddrSpace::Reg);
    let row = |k: i64| address(&acc, &i32c(k), 0);
    let zero = splat(&UOp::float(0.0, F), w as usize);
    let mut list = vec![row(0).store(&zero), row(1).store(&zero)];
    let r = range(n / (2 * w), 0);
    list.push(r.clone());
    let mut last = None;
    for k in 0..2 {
        let i = &(&r * (2 * w)) + (k * w);
        let get = |slot| load(&address(&param(slot, n, F), &i, w as usize));
        let store = row(k).store(&UOp::new(
            Op::MulAcc,
            vec![get(1), get(2), load(&row(k))],
            Arg::None,
        ));
        list.push(store.clone());
        last = Some(store);
    }
    let done = end(&last.unwrap(), &r);
    list.push(done.clone());
    // What is read after the loop is another node than what is read in it.
    let after = |k: i64| {
        load(&address(
            &acc.after(std::slice::from_ref(&done)),
            &i32c(k),
            0,
        ))
    };
    let total = &after(0) + &after(1);
    let lane = |v: &UOp, k: i64| v.at(&[i32c(k)]);
    // Once as a shuffle of halves, once as single lanes.
    let half = UOp::new(
        Op::Shrink,
        vec![total.clone(), ints(&[2]), ints(&[2])],
        Arg::None,
    );
    let low = total.at(&[ints(&[0, 1])]);
    let pair = &low + &half;
    let sum = &lane(&pair, 0) + &lane(&pair, 1);
    list.push(address(&param(0, 1, F), &i32c(0), 0).store(&sum));
    let a = ramp(64);
    let b = ramp(64);
    let want: f32 = a.iter().zip(&b).map(|(x, y)| x * y).sum();
    let bufs = vec![f32s(&[0.0]), f32s(&a), f32s(&b)];
    Case {
        name: "dot",
        linear: linear(&list),
        info: out_first(2),
        bufs,
        vars: vec![],
        out: (0, f32s(&[want])),
    }
}

/// A running sum kept in a register array that a loop indexes, read back in reverse.
fn register_array() -> Case {
    let n = 8;
    let reg = UOp::scratch(9, &Shape::of(&[n]), F, AddrSpace::Reg);
    let sum = UOp::scratch(8, &Shape::of(&[1]), F, AddrSpace::Reg);
    let r = range(n, 0);
    let q = range(n, 1);
    let total = address(&sum, &i32c(0), 0);
    let added = &load(&total) + &load(&address(&param(1, n, F), &r, 0));
    let keep = total.store(&added);
    let now = load(&address(
        &sum.after(std::slice::from_ref(&keep)),
        &i32c(0),
        0,
    ));
    let put = address(&reg, &r, 0).store(&now);
    let back = load(&address(&reg, &(&i32c(n - 1) - &q), 0));
    let out = address(&param(0, n, F), &q, 0).store(&back);
    let list = [
        total.store(&UOp::float(0.0, F)),
        r.clone(),
        keep,
        put.clone(),
        end(&put, &r),
        q.clone(),
        out.clone(),
        end(&out, &q),
    ];
    let a = ramp(8);
    let mut want: Vec<f32> = a
        .iter()
        .scan(0.0, |s, x| {
            *s += x;
            Some(*s)
        })
        .collect();
    want.reverse();
    let bufs = vec![f32s(&[0.0; 8]), f32s(&a)];
    Case {
        name: "register_array",
        linear: linear(&list),
        info: out_first(1),
        bufs,
        vars: vec![],
        out: (0, f32s(&want)),
    }
}

/// A shift by two with fill, gated by one bool (w = 0) or one a lane, and a gated store.
fn gated(name: &'static str, w: usize, lanes: bool) -> Case {
    let n = 16i64;
    let steps = if w > 0 { n / w as i64 } else { n };
    let r = range(steps, 0);
    let i = if w > 0 { &r * w as i64 } else { r.clone() };
    let from = &i - 2;
    let fill = splat(&UOp::float(-1.0, F), w);
    let input = param(1, n, F);
    let (gate, keep) = if w > 0 && lanes {
        let each: Vec<UOp> = (0..w as i64).map(|k| &from + k).collect();
        let index = UOp::new(Op::Stack, each, Arg::None);
        let zero = splat(&i32c(0), w);
        (index.ge(&zero), index.lt(&splat(&i32c(n - 5), w)))
    } else {
        (from.ge(&i32c(0)), from.lt(&i32c(n - 5)))
    };
    let v = load_if(&address(&input, &from, w), &fill, &gate);
    let s = store_if(
        &address(&param(0, n, F), &i, w),
        &(&v * &splat(&UOp::float(2.0, F), w)),
        &keep,
    );
    let list = [r.clone(), s.clone(), end(&s, &r)];
    let a = ramp(16);
    let want: Vec<f32> = (0..16i64)
        .map(|k| {
            let block = if w > 0 && !lanes {
                k / w as i64 * w as i64 - 2
            } else {
                k - 2
            };
            if block >= n - 5 {
                return 7.0;
            }
            2.0 * if block >= 0 {
                a[(k - 2) as usize]
            } else {
                -1.0
            }
        })
        .collect();
    let bufs = vec![f32s(&[7.0; 16]), f32s(&a)];
    Case {
        name,
        linear: linear(&list),
        info: out_first(1),
        bufs,
        vars: vec![],
        out: (0, f32s(&want)),
    }
}

/// A shift by two with a fill, every lane under its own gate, of any dtype.
fn masked(name: &'static str, d: DType, w: usize) -> Case {
    let n = 128i64;
    let r = range(n / w as i64, 0);
    let i = &r * w as i64;
    let lane = |k: i64| &(&i - 2) + k;
    let index = UOp::new(
        Op::Stack,
        (0..w as i64).map(lane).collect::<Vec<_>>(),
        Arg::None,
    );
    let gate = index.ge(&splat(&i32c(0), w));
    let keep = index.lt(&splat(&i32c(n - 5), w));
    let fill = splat(&UOp::constant(d.one(), d), w);
    let v = load_if(&address(&param(1, n, d), &(&i - 2), w), &fill, &gate);
    let s = store_if(&address(&param(0, n, d), &i, w), &v, &keep);
    let value = |k: i64| d.from_i128((k * 3 % 101) as i128);
    let zeros: Vec<Scalar> = (0..n).map(|_| d.zero()).collect();
    let data: Vec<Scalar> = (0..n).map(value).collect();
    let want: Vec<Scalar> = (0..n)
        .map(|k| match k - 2 {
            j if j >= n - 5 => d.zero(),
            j if j < 0 => d.one(),
            j => data[j as usize],
        })
        .collect();
    let bufs = vec![bytes_of(&zeros, d), bytes_of(&data, d)];
    let linear = linear(&[r.clone(), s.clone(), end(&s, &r)]);
    Case {
        name,
        linear,
        info: out_first(1),
        bufs,
        vars: vec![],
        out: (0, bytes_of(&want, d)),
    }
}

/// Each thread sums its part, `n` elements of a variable length, from a variable offset in i64.
fn threads_and_variables() -> Case {
    let var = |slot: u64, d: DType| {
        let arg = BufferArg {
            slot,
            version: 0,
            dtype: d,
            device: None,
            addrspace: None,
        };
        UOp::new(
            Op::Param,
            vec![UOp::dims(&[]), UOp::int(0, d), UOp::int(100, d)],
            Arg::Buffer(arg),
        )
    };
    let n = var(5, DType::I32);
    let offset = var(3, DType::I64);
    let tid = UOp::new(Op::Special, vec![i32c(4)], Arg::Text("tid".into()));
    let r = UOp::new(Op::Range, vec![n.clone()], Arg::Range(0, AxisType::Loop));
    let acc = UOp::scratch(9, &Shape::of(&[1]), DType::I64, AddrSpace::Reg);
    let a = address(&acc, &i32c(0), 0);
    let i = &(&(&tid * &n) + &r).cast(DType::I64) + &offset;
    let x = load(&address(&param(1, 500, DType::I32), &i, 0)).cast(DType::I64);
    let step = a.store(&(&load(&a) + &x));
    let out = address(&param(0, 4, DType::I64), &tid, 0).store(&load(&address(
        &acc.after(&[end(&step, &r)]),
        &i32c(0),
        0,
    )));
    let list = [
        a.store(&UOp::int(0, DType::I64)),
        r.clone(),
        step.clone(),
        end(&step, &r),
        out,
    ];
    let data: Vec<i32> = (0..500).map(|i| i * i - 300).collect();
    let want: Vec<i64> = (0..4)
        .map(|t| {
            (0..10)
                .map(|k| data[(t * 10 + k + 7) as usize] as i64)
                .sum()
        })
        .collect();
    let info = ProgramInfo {
        threads: 4,
        vars: vec![3, 5],
        ..out_first(1)
    };
    let bufs = vec![
        vec![0; 32],
        data.iter().flat_map(|x| x.to_le_bytes()).collect(),
    ];
    let out = (0, want.iter().flat_map(|x| x.to_le_bytes()).collect());
    Case {
        name: "threads_and_variables",
        linear: linear(&list),
        info,
        bufs,
        vars: vec![7, 10],
        out,
    }
}

/// Lanes of two vectors woven together, reversed, broadcast; masks of different widths combined.
fn lanes_and_masks() -> Case {
    let load4 = |slot: u64, d: DType| load(&address(&param(slot, 4, d), &i32c(0), 4));
    let a = load4(1, F);
    let b = load4(2, DType::F64);
    let lane = |v: &UOp, k: i64| v.at(&[i32c(k)]);
    let woven = UOp::new(
        Op::Stack,
        vec![lane(&a, 3), lane(&a, 0), lane(&a, 3), lane(&a, 1)],
        Arg::None,
    );
    let reversed = woven.at(&[ints(&[3, 2, 1, 0])]);
    let small = a.lt(&splat(&UOp::float(0.0, F), 4));
    let big = b.lt(&splat(&UOp::float(1.0, DType::F64), 4));
    let flags = load4(3, DType::U8).ne_(&splat(&UOp::int(0, DType::U8), 4));
    let mask = &(&small ^ &big) | &flags;
    let chosen = mask.select(&reversed, &splat(&lane(&a, 2), 4));
    let counted = &chosen + &mask.cast(F);
    let any = lane(&mask, 1).select(&UOp::float(0.5, F), &UOp::float(0.25, F));
    let out = address(&param(0, 4, F), &i32c(0), 4).store(&(&counted * &splat(&any, 4)));
    let av = [1.0f32, -2.0, 3.0, -4.0];
    let bv = [0.5f64, 2.0, 0.25, 9.0];
    let fv = [0u8, 0, 0, 255];
    let wov = [av[1], av[3], av[0], av[3]];
    let m: Vec<bool> = (0..4)
        .map(|k| (av[k] < 0.0) ^ (bv[k] < 1.0) || fv[k] != 0)
        .collect();
    let scale = if m[1] { 0.5 } else { 0.25 };
    let want: Vec<f32> = (0..4)
        .map(|k| (if m[k] { wov[k] } else { av[2] } + m[k] as u8 as f32) * scale)
        .collect();
    let bufs = vec![
        f32s(&[0.0; 4]),
        f32s(&av),
        bv.iter().flat_map(|x| x.to_le_bytes()).collect(),
        fv.to_vec(),
    ];
    let linear = linear(&[out]);
    Case {
        name: "lanes_and_masks",
        linear,
        info: out_first(3),
        bufs,
        vars: vec![],
        out: (0, f32s(&want)),
    }
}

/// IF around a store, in a loop that may have no iteration.
fn conditions() -> Case {
    let r = range(6, 0);
    let gate = (&r & 1).ne_(&i32c(0));
    let iff = UOp::new(Op::If, vec![gate], Arg::None);
    let s = address(&param(0, 6, F), &r, 0).store(&r.cast(F));
    let endif = UOp::new(Op::EndIf, vec![iff.clone()], Arg::None);
    let none = UOp::new(Op::Range, vec![i32c(0)], Arg::Range(1, AxisType::Loop));
    let never = address(&param(0, 6, F), &none, 0).store(&UOp::float(99.0, F));
    let list = [
        r.clone(),
        iff,
        s.clone(),
        endif,
        end(&s, &r),
        none.clone(),
        never.clone(),
        end(&never, &none),
    ];
    let bufs = vec![f32s(&[7.0; 6])];
    let want = f32s(&[7.0, 1.0, 7.0, 3.0, 7.0, 5.0]);
    Case {
        name: "conditions",
        linear: linear(&list),
        info: out_first(0),
        bufs,
        vars: vec![],
        out: (0, want),
    }
}

/// LOCAL storage of a CPU kernel, on the stack or too large for it.
fn local(name: &'static str, n: i64) -> Case {
    let tile = UOp::scratch(9, &Shape::of(&[n]), F, AddrSpace::Local);
    let r = range(n, 0);
    let q = range(n, 1);
    let fill = address(&tile, &r, 0).store(&(&load(&address(&param(1, n, F), &r, 0)) * 3.0));
    let out =
        address(&param(0, n, F), &q, 0).store(&load(&address(&tile, &(&i32c(n - 1) - &q), 0)));
    let list = [
        r.clone(),
        fill.clone(),
        end(&fill, &r),
        q.clone(),
        out.clone(),
        end(&out, &q),
    ];
    let a = ramp(n as usize);
    let want: Vec<f32> = a.iter().rev().map(|x| x * 3.0).collect();
    let bufs = vec![f32s(&vec![0.0; n as usize]), f32s(&a)];
    Case {
        name,
        linear: linear(&list),
        info: out_first(1),
        bufs,
        vars: vec![],
        out: (0, f32s(&want)),
    }
}

/// Constants that are hard to write down.
fn constants() -> Case {
    let doubles = [
        f64::INFINITY,
        f64::NEG_INFINITY,
        -0.0,
        0.1,
        5e-324,
        f64::MAX,
        -1e100,
        3.0,
    ];
    let list: Vec<UOp> = doubles
        .iter()
        .enumerate()
        .map(|(k, &v)| {
            address(&param(0, 9, DType::F64), &i32c(k as i64), 0).store(&UOp::float(v, DType::F64))
        })
        .chain([address(&param(0, 9, DType::F64), &i32c(8), 0)
            .store(&UOp::int(i64::MIN, DType::I64).bitcast(DType::F64))])
        .collect();
    let mut want: Vec<u8> = doubles.iter().flat_map(|x| x.to_le_bytes()).collect();
    want.extend(i64::MIN.to_le_bytes());
    let bufs = vec![vec![1; 72]];
    Case {
        name: "constants",
        linear: linear(&list),
        info: out_first(0),
        bufs,
        vars: vec![],
        out: (0, want),
    }
}

fn cases() -> Vec<Case> {
    vec![
        dot(),
        register_array(),
        gated("gated_scalar", 0, false),
        gated("gated_block", 4, false),
        gated("gated_lanes", 4, true),
        threads_and_variables(),
        lanes_and_masks(),
        conditions(),
        local("local_small", 64),
        local("local_large", 32 << 10),
        constants(),
        masked("masked_u8_64", DType::U8, 64),
        masked("masked_i8_8", DType::I8, 8),
        masked("masked_u16_32", DType::U16, 32),
        masked("masked_f16_8", DType::F16, 8),
        masked("masked_f32_16", F, 16),
        masked("masked_f32_8", F, 8),
        masked("masked_i32_4", DType::I32, 4),
        masked("masked_i32_2", DType::I32, 2),
        masked("masked_f64_8", DType::F64, 8),
        masked("masked_i64_4", DType::I64, 4),
        masked("masked_u64_2", DType::U64, 2),
    ]
}

fn check(device: &str) {
    let rt = open(Device::new(device)).unwrap();
    let cases = cases();
    let programs: Vec<Program> = cases
        .iter()
        .map(|c| program(c.name, &c.linear, c.info.clone(), rt.target()))
        .collect();
    let kernels = rt.compile(&programs).unwrap();
    for (c, k) in cases.iter().zip(&kernels) {
        let out = run(&**rt, k, &c.bufs, &c.vars).unwrap();
        assert_eq!(
            out[c.out.0],
            c.out.1,
            "{device} {}: {:?} instead of {:?}",
            c.name,
            to_f32s(&out[c.out.0]),
            to_f32s(&c.out.1)
        );
        // Arguments that do not fit are refused.
        assert!(rt.launch(k, &[], &c.vars).is_err());
        let short: Vec<_> = c
            .bufs
            .iter()
            .map(|b| storage(&**rt, &b[..b.len() - 1]))
            .collect();
        assert!(matches!(
            rt.launch(k, &short, &c.vars).unwrap_err().kind(),
            ErrorKind::Run { .. }
        ));
    }
}

#[test]
fn programs_on_the_cpu() {
    check("CPU");
    if cfg!(target_arch = "x86_64") {
        // A level below this machine's: other vectors, other builtins.
        check("CPU:C:x86-64-v2");
    }
}

#[test]
fn programs_in_the_interpreter() {
    check("INTERP");
}

#[test]
fn a_variable_stays_within_its_bounds() {
    // What the verifier has shown of an index relies on them.
    let offset = BufferArg {
        slot: 1,
        version: 0,
        dtype: DType::I32,
        device: None,
        addrspace: None,
    };
    let bounds = [UOp::dims(&[]), i32c(2), i32c(5)];
    let v = UOp::new(Op::Param, bounds.to_vec(), Arg::Buffer(offset));
    let list = linear(&[address(&param(0, 6, F), &v, 0).store(&UOp::float(1.0, F))]);
    let info = ProgramInfo {
        vars: vec![1],
        ..out_first(0)
    };
    for device in ["CPU", "INTERP", "INTERP:GPU"] {
        let rt = open(Device::new(device)).unwrap();
        let p = program("bounded", &list, info.clone(), rt.target());
        let kernel = rt.compile(&[p]).unwrap().remove(0);
        let run = |v: i64| run(&**rt, &kernel, &[f32s(&[0.0; 6])], &[v]);
        let out = run(5).unwrap();
        assert_eq!(to_f32s(&out[0]), [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
        for wrong in [1, 6, -1, 1 << 32 | 3] {
            let error = run(wrong).unwrap_err().to_string();
            assert!(error.contains("from 2 to 5"), "{device}: {error}");
        }
    }
}

/// Threads that write elements, wait for each other, and read those of others; twice.
fn exchange(threads: i64) -> UOp {
    let t = UOp::new(Op::Special, vec![i32c(threads)], Arg::Text("tid".into()));
    let next = UOp::new(Op::TruncMod, vec![&t + 1, i32c(threads)], Arg::None);
    let at = |buf: &UOp, i: &UOp| address(buf, i, 0);
    let out = param(0, threads, F);
    let a = param(1, threads, F);
    let b = param(2, threads, F);
    let first = at(&a, &t).store(&UOp::new(Op::Cast, vec![t.clone()], Arg::DType(F)));
    let wall = UOp::new(Op::Barrier, vec![first.clone()], Arg::None);
    let now = a.after(&[wall.clone()]);
    let sum = &load(&at(&now, &t)) + &load(&at(&now, &next));
    let second = at(&b, &t).store(&sum);
    let wall_2 = UOp::new(Op::Barrier, vec![second.clone()], Arg::None);
    let now = b.after(&[wall_2.clone()]);
    let third = at(&out, &t).store(&(&load(&at(&now, &next)) - &load(&at(&now, &t))));
    linear(&[first, wall, second, wall_2, third])
}

#[test]
fn threads_wait_for_each_other_with_any_number_of_workers() {
    const N: i64 = 8;
    let info = ProgramInfo {
        threads: N,
        outs: vec![0, 1, 2],
        ..single()
    };
    let list = exchange(N);
    spec::verify_linear(list.clone()).unwrap();
    assert_eq!(linear::phase_count(&list), 3);
    // b[t] = t + next(t), and of that what is between neighbours.
    let b = |t: i64| (t + (t + 1) % N) as f32;
    let want: Vec<f32> = (0..N).map(|t| b((t + 1) % N) - b(t)).collect();
    for threads in [1, 2, 5] {
        let config = Config {
            threads: Some(threads),
            ..Config::default()
        };
        let cpu = Cpu::open(Device::new("CPU"), &config).unwrap();
        let interp = Interp::cpu(Device::new("INTERP"), &config);
        let both: [&dyn Runtime; 2] = [&cpu, &interp];
        for rt in both {
            let p = program("exchange", &list, info.clone(), rt.target());
            let kernel = rt.compile(&[p]).unwrap().remove(0);
            for _ in 0..20 {
                let bufs = vec![f32s(&[-1.0; N as usize]); 3];
                let out = run(rt, &kernel, &bufs, &[]).unwrap();
                assert_eq!(to_f32s(&out[0]), want, "{} {threads}", rt.device());
            }
        }
    }
}
