//! Kernels with known results: the oracle is checked here against sums done by hand. Flows in:
//! kernels and bytes; flows out: comparisons.

use super::*;
use monoglot_uop::node::Srcs;
use monoglot_uop::{AddrSpace, Arg, AxisType, Dim, ReduceOp, Shape};

fn range(n: i64, id: u32, t: AxisType) -> UOp {
    UOp::range(n, id, t)
}

fn param(slot: u64, dims: &[i64], d: DType) -> UOp {
    UOp::param(slot, &Shape::of(dims), d, None)
}

fn floats(v: impl IntoIterator<Item = f32>) -> Vec<u8> {
    v.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn back(b: &[u8]) -> Vec<f32> {
    b.chunks(4)
        .map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]]))
        .collect()
}

#[test]
fn a_matrix_product_reads_each_operand_once_per_term() {
    let m = 3;
    let n = 4;
    let k = 5;
    let i = range(m, 0, AxisType::Loop);
    let j = range(n, 1, AxisType::Loop);
    let r = range(k, 2, AxisType::Reduce);
    let a = param(1, &[m, k], DType::F32);
    let b = param(2, &[k, n], DType::F32);
    let x = a.at(&[i.clone(), r.clone()]) * b.at(&[r.clone(), j.clone()]);
    let out = param(0, &[m, n], DType::F32).at(&[i.clone(), j.clone()]);
    let kernel = UOp::sink(&[out
        .store(&x.reduce_ranges(ReduceOp::Add, &[r]))
        .end(&[i, j])]);
    let mut bufs = vec![
        vec![0; 48],
        floats((0..15).map(|v| v as f32)),
        floats((0..20).map(|v| v as f32)),
    ];
    let counts = eval_kernel(&kernel, &mut bufs, &[]).unwrap();
    assert_eq!(
        (counts.reads, counts.writes),
        (vec![0, 60, 60], vec![12, 0, 0])
    );
    assert_eq!(back(&bufs[0])[..4], [120.0, 130.0, 140.0, 150.0]);
}

#[test]
fn what_does_not_vary_is_read_outside_the_loop() {
    let i = range(3, 0, AxisType::Loop);
    let j = range(4, 1, AxisType::Loop);
    let x = param(1, &[3], DType::F32).at(std::slice::from_ref(&i))
        + param(2, &[4], DType::F32).at(std::slice::from_ref(&j));
    let store = param(0, &[3, 4], DType::F32)
        .at(&[i.clone(), j.clone()])
        .store(&x);
    let mut bufs = vec![
        vec![0; 48],
        floats([1.0, 2.0, 3.0]),
        floats([10.0, 20.0, 30.0, 40.0]),
    ];
    let counts = eval_kernel(&UOp::sink(&[store.end(&[i, j])]), &mut bufs, &[]).unwrap();
    assert_eq!(counts.reads, [0, 3, 12]);
    assert_eq!(back(&bufs[0])[4..8], [12.0, 22.0, 32.0, 42.0]);
}

#[test]
fn invalid_indices_neither_read_nor_write() {
    let i = range(4, 0, AxisType::Loop);
    let gate = i.lt(&i.like(2));
    let at = i.valid(&gate);
    let x = gate.select(
        &param(1, &[2], DType::F32).at(std::slice::from_ref(&at)),
        &UOp::float(7.0, DType::F32),
    );
    let all = param(0, &[4], DType::F32)
        .at(std::slice::from_ref(&i))
        .store(&x);
    let some = param(2, &[4], DType::F32).at(&[at]).store(&x);
    let group = UOp::new(
        Op::Group,
        [all, some].into_iter().collect::<Srcs>(),
        Arg::None,
    );
    let mut bufs = vec![vec![0; 16], floats([1.0, 2.0]), vec![0; 16]];
    let counts = eval_kernel(&UOp::sink(&[group.end(&[i.clone()])]), &mut bufs, &[]).unwrap();
    assert_eq!(counts.reads, [0, 2, 0]);
    assert_eq!(back(&bufs[0]), [1.0, 2.0, 7.0, 7.0]);
    assert_eq!(back(&bufs[2]), [1.0, 2.0, 0.0, 0.0]);
    let out = param(0, &[3], DType::F32)
        .at(std::slice::from_ref(&i))
        .store(&UOp::float(0.0, DType::F32));
    let e = eval_kernel(&UOp::sink(&[out.end(&[i])]), &mut bufs, &[]).unwrap_err();
    assert!(
        matches!(
            e.kind(),
            ErrorKind::Index {
                index: 3,
                size: 3,
                ..
            }
        ),
        "{e}"
    );
}

#[test]
fn a_nested_reduction_starts_again_in_every_iteration_and_variables_bound_loops() {
    let v = UOp::variable(9, 1, 8);
    let i = range(3, 0, AxisType::Loop);
    let j = UOp::range(Dim::Sym(v), 1, AxisType::Reduce);
    let x = param(1, &[8], DType::I32).at(std::slice::from_ref(&j)) * i.cast(DType::I32);
    let max = x.reduce_ranges(ReduceOp::Max, std::slice::from_ref(&j));
    let sum = (&max - &x).reduce_ranges(ReduceOp::Add, &[j]);
    let store = param(0, &[3], DType::I32)
        .at(std::slice::from_ref(&i))
        .store(&sum);
    let data: Vec<u8> = (0..8i32).flat_map(i32::to_le_bytes).collect();
    let mut bufs = vec![vec![0; 12], data];
    eval_kernel(&UOp::sink(&[store.end(&[i])]), &mut bufs, &[(9, 4)]).unwrap();
    let out: Vec<i32> = bufs[0]
        .chunks(4)
        .map(|c| i32::from_le_bytes([c[0], c[1], c[2], c[3]]))
        .collect();
    assert_eq!(out, [0, 6, 12]);
}

#[test]
fn storage_of_the_kernel_is_read_after_its_writes() {
    let i = range(2, 0, AxisType::Loop);
    let j = range(3, 1, AxisType::Loop);
    let k = range(3, 2, AxisType::Reduce);
    let tmp = UOp::scratch(0, &Shape::of(&[3]), DType::F32, AddrSpace::Local);
    let x = param(1, &[2, 3], DType::F32).at(&[i.clone(), j.clone()]);
    let fill = tmp.at(std::slice::from_ref(&j)).store(&(&x * &x)).end(&[j]);
    let sum = tmp
        .after(&[fill])
        .at(std::slice::from_ref(&k))
        .reduce_ranges(ReduceOp::Add, &[k]);
    let store = param(0, &[2], DType::F32)
        .at(std::slice::from_ref(&i))
        .store(&sum);
    let mut bufs = vec![vec![0; 8], floats([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])];
    eval_kernel(&UOp::sink(&[store.end(&[i])]), &mut bufs, &[]).unwrap();
    assert_eq!(back(&bufs[0]), [14.0, 77.0]);
}

#[test]
fn shaped_values_are_evaluated_element_by_element() {
    let lanes: Srcs = (0..4).map(UOp::index_const).collect();
    let at = UOp::new(Op::Stack, lanes, Arg::None);
    let x = param(1, &[4], DType::F32)
        .at(std::slice::from_ref(&at))
        .reshape(&Shape::of(&[2, 2]))
        .unwrap();
    let sum = x
        .reduce(ReduceOp::Add, &[0])
        .unwrap()
        .expand(&Shape::of(&[2, 2]))
        .unwrap();
    let all = (&sum * &x).reshape(&Shape::of(&[4])).unwrap();
    let store = param(0, &[4], DType::F32).at(&[at]).store(&all);
    let mut bufs = vec![vec![0; 16], floats([1.0, 2.0, 3.0, 4.0])];
    eval_kernel(&UOp::sink(&[store]), &mut bufs, &[]).unwrap();
    assert_eq!(back(&bufs[0]), [4.0, 12.0, 12.0, 24.0]);
}

#[test]
fn a_deep_chain_is_evaluated_on_a_small_stack() {
    let run = || {
        let i = range(2, 0, AxisType::Loop);
        let mut x = param(1, &[2], DType::I64).at(std::slice::from_ref(&i));
        for _ in 0..100_000 {
            x = x + 1;
        }
        let store = param(0, &[2], DType::I64)
            .at(std::slice::from_ref(&i))
            .store(&x);
        let mut bufs = vec![vec![0; 16], vec![0; 16]];
        eval_kernel(&UOp::sink(&[store.end(&[i])]), &mut bufs, &[]).unwrap();
        assert_eq!(bufs[0][..4], 100_000i32.to_le_bytes());
    };
    std::thread::Builder::new()
        .stack_size(512 << 10)
        .spawn(run)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn stores_over_the_same_ranges_read_before_any_of_them_writes() {
    let r = range(4, 0, AxisType::Loop);
    let at = |slot| param(slot, &[4], DType::F32).at(std::slice::from_ref(&r));
    let new = at(0) + at(0);
    let ends =
        [at(0).store(&new), at(1).store(&(at(1) + new))].map(|s| s.end(std::slice::from_ref(&r)));
    let mut bufs = vec![floats([1.0, 2.0, 3.0, 4.0]), floats([10.0; 4])];
    eval_kernel(&UOp::sink(&ends), &mut bufs, &[]).unwrap();
    assert_eq!(back(&bufs[0]), [2.0, 4.0, 6.0, 8.0]);
    assert_eq!(back(&bufs[1]), [12.0, 14.0, 16.0, 18.0]);
}

#[test]
fn what_is_read_under_a_gate_is_read_before_too() {
    let r = range(4, 0, AxisType::Loop);
    let at = |slot| param(slot, &[4], DType::F32).at(std::slice::from_ref(&r));
    let gate = r.lt(&r.like(3));
    let gated = param(0, &[4], DType::F32).at(&[r.valid(&gate)]);
    let other = gate.select(&gated, &UOp::float(9.0, DType::F32));
    let ends = [at(0).store(&(at(0) * 2.0)), at(1).store(&other)];
    let ends = ends.map(|s| s.end(std::slice::from_ref(&r)));
    let mut bufs = vec![floats([1.0, 2.0, 3.0, 4.0]), floats([0.0; 4])];
    eval_kernel(&UOp::sink(&ends), &mut bufs, &[]).unwrap();
    assert_eq!(back(&bufs[0]), [2.0, 4.0, 6.0, 8.0]);
    assert_eq!(back(&bufs[1]), [1.0, 2.0, 3.0, 9.0]);
}
