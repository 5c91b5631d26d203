//! INTERP:GPU: workgroups, LOCAL memory, barriers, the matrix unit, and what it finds wrong. Flows
//! in: programs with and without faults; flows out: what they wrote, and the errors.

mod support;

use monoglot_device::{interp, open};
use monoglot_uop::*;
use std::sync::Arc;
use support::*;

const F: DType = DType::F32;

fn special(name: &str, n: i64) -> UOp {
    UOp::new(Op::Special, vec![i32c(n)], Arg::Text(name.into()))
}

fn barrier(after: &[UOp]) -> UOp {
    UOp::new(Op::Barrier, after.to_vec(), Arg::None)
}

fn grid(groups: i64, threads: i64, ins: usize) -> ProgramInfo {
    ProgramInfo {
        global_size: [groups, 1, 1],
        local_size: [threads, 1, 1],
        outs: vec![0],
        ins: (1..=ins).collect(),
        ..single()
    }
}

fn run_gpu(name: &str, list: &[UOp], info: ProgramInfo, bufs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
    let rt = open(Device::new("INTERP:GPU")).unwrap();
    let p = program(name, &linear(list), info, rt.target());
    let kernel = rt.compile(&[p])?.remove(0);
    run(&**rt, &kernel, bufs, &[])
}

/// Each workgroup of 64 sums 64 elements through LOCAL memory, halving until one is left.
fn tree(with_barriers: bool) -> Result<Vec<Vec<u8>>> {
    let g = special("gidx0", 3);
    let l = special("lidx0", 64);
    let tile = UOp::scratch(9, &Shape::of(&[64]), F, AddrSpace::Local);
    let at = |b: &UOp, i: &UOp| address(b, i, 0);
    let i = &(&g * 64) + &l;
    let mut list = vec![at(&tile, &l).store(&load(&at(&param(1, 192, F), &i)))];
    let mut step = 32;
    while step > 0 {
        let deps = [list.last().unwrap().clone()];
        let wall = barrier(&deps);
        if with_barriers {
            list.push(wall.clone());
        }
        let now = tile.after(&[wall]);
        let gate = l.lt(&i32c(step));
        let sum = &load(&at(&now, &l))
            + &load(&at(
                &now,
                &UOp::new(Op::And, vec![&l + step, i32c(63)], Arg::None),
            ));
        // All read before one writes.
        let wall = barrier(&[sum.clone()]);
        if with_barriers {
            list.extend([sum.clone(), wall.clone()]);
        }
        list.push(store_if(&at(&tile.after(&[wall]), &l), &sum, &gate));
        step /= 2;
    }
    let last = tile.after(&[list.last().unwrap().clone()]);
    list.push(store_if(
        &at(&param(0, 3, F), &g),
        &load(&at(&last, &l)),
        &l.lt(&i32c(1)),
    ));
    // A list is what runs: barriers that were left out of it are not in it.
    let data: Vec<f32> = (0..192).map(|k| k as f32).collect();
    let full = linear(&list);
    let kept: Vec<UOp> = full
        .src()
        .iter()
        .filter(|u| with_barriers || u.op() != Op::Barrier)
        .cloned()
        .collect();
    let rt = open(Device::new("INTERP:GPU")).unwrap();
    let p = program(
        "tree",
        &UOp::new(Op::Linear, kept, Arg::None),
        grid(3, 64, 1),
        rt.target(),
    );
    let kernel = rt.compile(&[p])?.remove(0);
    run(&**rt, &kernel, &[f32s(&[0.0; 3]), f32s(&data)], &[])
}

#[test]
fn a_tree_in_local_memory() {
    let out = to_f32s(&tree(true).unwrap()[0]);
    let want: Vec<f32> = (0..3)
        .map(|g| (0..64).map(|k| (g * 64 + k) as f32).sum())
        .collect();
    assert_eq!(out, want);
    let counters = interp::counters();
    assert_eq!(counters.latest, [(0, 0), (1, 192)]);
}

#[test]
fn a_missing_barrier_is_a_race() {
    let error = tree(false).unwrap_err().to_string();
    assert!(error.contains("race"), "{error}");
}

#[test]
fn a_barrier_that_some_threads_skip_is_an_error() {
    let l = special("lidx0", 8);
    let gate = UOp::new(Op::If, vec![l.lt(&i32c(4))], Arg::None);
    let end = UOp::new(Op::EndIf, vec![gate.clone()], Arg::None);
    let out = address(&param(0, 8, F), &l, 0).store(&UOp::float(1.0, F));
    let list = [gate, barrier(&[]), end, out];
    let error = run_gpu("skips", &list, grid(1, 8, 0), &[f32s(&[0.0; 8])])
        .unwrap_err()
        .to_string();
    assert!(error.contains("barrier"), "{error}");
}

#[test]
fn out_of_bounds_is_an_error_on_both() {
    for device in ["INTERP", "INTERP:GPU"] {
        for (index, write) in [(8, true), (-1, true), (8, false), (1 << 30, false)] {
            let r = range(1, 0);
            let at = address(&param(write as u64 ^ 1, 8, F), &(&r + index), 0);
            let s = if write {
                at.store(&UOp::float(1.0, F))
            } else {
                address(&param(0, 8, F), &i32c(0), 0).store(&load(&at))
            };
            let rt = open(Device::new(device)).unwrap();
            let info = ProgramInfo {
                ins: if write { vec![] } else { vec![1] },
                ..grid(1, 1, 0)
            };
            let p = program(
                "bounds",
                &linear(&[r.clone(), s.clone(), end(&s, &r)]),
                info,
                rt.target(),
            );
            let kernel = rt.compile(&[p]).unwrap().remove(0);
            let bufs = vec![f32s(&[0.0; 8]); if write { 1 } else { 2 }];
            let error = run(&**rt, &kernel, &bufs, &[]).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Run { .. }), "{error}");
        }
    }
}

/// c = a·b + c with one warp and a matrix unit of the device.
fn wmma(unit: &TcInfo) {
    let l = special("lidx0", 32);
    let [m, n, k] = unit.dims;
    let input = unit.dtypes_in[0];
    let size = unit.c.elements();
    // Matrices lie in memory as fragments do: lane by lane.
    let held =
        |slot: u64, d: DType| address(&param(slot, size * 32, d), &(&l * size), size as usize);
    let src = vec![
        load(&held(1, input)),
        load(&held(2, input)),
        load(&held(0, F)),
    ];
    let d = UOp::new(Op::Wmma, src, Arg::Wmma(Arc::new(unit.clone())));
    let list = [held(0, F).store(&d)];
    let value = |row: i64, column: i64, by: i64| (((row * 16 + column) * by) % 11) as f64 - 5.0;
    let laid = |f: &Fragment, by: i64| -> Vec<Scalar> {
        let all = (0..32).flat_map(|lane| (0..f.elements()).map(move |e| (lane, e)));
        all.map(|(lane, e)| {
            let (row, column) = f.place(lane, e);
            Scalar::Float(value(row, column, by))
        })
        .collect()
    };
    let bufs = [
        bytes_of(&laid(&unit.c, 5), F),
        bytes_of(&laid(&unit.a, 3), input),
        bytes_of(&laid(&unit.b, 7), input),
    ];
    let out = run_gpu("wmma", &list, grid(1, 32, 2), &bufs).unwrap();
    let mut want = vec![0.0; (m * n) as usize];
    for lane in 0..32 {
        for e in 0..size {
            let (row, column) = unit.c.place(lane, e);
            let products = (0..k).map(|j| value(row, j, 3) * value(j, column, 7));
            let sum = value(row, column, 5) + products.sum::<f64>();
            want[(lane * size + e) as usize] = sum as f32;
        }
    }
    assert_eq!(to_f32s(&out[0]), want, "{}", unit.name);
    // Half a warp cannot use it.
    let error = run_gpu("half", &list, grid(1, 16, 2), &bufs)
        .unwrap_err()
        .to_string();
    assert!(error.contains("32 lanes"), "{error}");
}

#[test]
fn the_matrix_units() {
    let rt = open(Device::new("INTERP:GPU")).unwrap();
    let units = rt.target().matrix_units.iter();
    let matrices: Vec<&TcInfo> = units.filter(|unit| unit.word().is_none()).collect();
    assert_eq!(matrices.len(), 3);
    for unit in matrices {
        assert!(unit.is_sound(), "{}", unit.name);
        wmma(unit);
    }
}

#[test]
fn positions_in_three_dimensions() {
    let names = ["gidx0", "gidx1", "gidx2", "lidx0", "lidx1", "lidx2"];
    let sizes = [2, 3, 2, 2, 2, 3];
    let mut index = i32c(0);
    for (name, n) in names.iter().zip(sizes).rev() {
        index = &(&index * n) + &special(name, n);
    }
    let s = address(&param(0, 144, DType::I32), &index, 0).store(&(&index + 1));
    let info = ProgramInfo {
        global_size: [2, 3, 2],
        local_size: [2, 2, 3],
        ..grid(1, 1, 0)
    };
    let out = run_gpu("positions", &[s], info, &[vec![0; 576]]).unwrap();
    let want: Vec<u8> = (1..=144i32).flat_map(|k| k.to_le_bytes()).collect();
    assert_eq!(out[0], want);
}
