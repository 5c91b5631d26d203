//! How much is read, counted by the interpreter: running sums, rows by index, counting. Flows in:
//! tensors on the interpreter; flows out: counts, compared with what is needed.

use monoglot_device::interp;
use monoglot_tensor::{DType, Device, Index, Tensor};
use monoglot_uop::Op;

/// Elements read from buffers while `f` is realized.
fn reads(f: impl Fn() -> Tensor) -> u64 {
    monoglot_engine::set_default_device(Device::new("INTERP"));
    let t = f();
    interp::reset_counters();
    t.realize().expect("runs");
    interp::counters().reads
}

#[test]
fn a_running_sum_reads_two_n_roots_of_n() {
    for n in [
        1usize, 5, 14, 15, 16, 63, 64, 65, 100, 1000, 4096, 5000, 20_000,
    ] {
        let data: Vec<f32> = (0..n).map(|i| (i % 7) as f32).collect();
        let got = reads(|| {
            let t = Tensor::new(&data, [n]);
            t.realize().expect("runs");
            t.cumsum(0)
        });
        // Short ones are folded anew for each place.
        let most = if n <= 16 {
            (n * n) as u64
        } else {
            (2.0 * n as f64 * (n as f64).sqrt()).ceil() as u64
        };
        assert!(got <= most.max(1), "{n}: {got} reads, at most {most}");
    }
}

#[test]
fn rows_by_index_read_those_rows() {
    let table: Vec<f32> = (0..1000 * 16).map(|i| i as f32).collect();
    let rows = [3i32, 999, 0, 3, 512];
    let stored = |t: Tensor| {
        t.realize().expect("runs");
        t
    };
    for way in 0..3 {
        let got = reads(|| {
            let t = stored(Tensor::new(&table, [1000, 16]));
            let i = stored(Tensor::new(&rows, [5]));
            match way {
                0 => t.index_select(0, &i),
                1 => t.index(&i),
                _ => t.gather(0, &i.reshape([5, 1]).expand([5, 16])),
            }
        });
        // Each row's elements, and an index for each.
        assert!(got <= 2 * 5 * 16, "way {way}: {got} reads");
    }
    let one = reads(|| {
        let t = stored(Tensor::new(&table, [1000, 16]));
        let i = stored(Tensor::new(&rows, [5]));
        t.index((&i, Index::step(None, None, -4))).sum(.., false)
    });
    assert!(one <= 2 * 5 * 4 + 5, "{one} reads");
    // The loss at a class reads that class's column only once: the classes are not looped over.
    let picked = reads(|| {
        let t = stored(Tensor::new(&table, [1000, 16]));
        let i = stored(Tensor::new(&[3i32; 1000], [1000]));
        t.nll_loss(&i, monoglot_tensor::Reduction::Sum)
    });
    assert!(picked <= 3 * 1000, "{picked} reads");
}

#[test]
fn counting_needs_no_loop_of_its_own() {
    for (n, dtype) in [
        (10i64, DType::I32),
        (3000, DType::I32),
        (100_000, DType::I64),
        (777, DType::F32),
    ] {
        let range = || Tensor::arange_of(3.0, 3.0 + 2.0 * n as f64, 2.0, dtype);
        assert_eq!(reads(range), 0);
        // One kernel whose only loops are over what it writes.
        let all = monoglot_engine::compile(&[range().uop().expect("builds")]).expect("compiles");
        assert_eq!(all.programs.len(), 1);
        let linear = all.programs[0]
            .src()
            .iter()
            .find(|u| u.op() == Op::Linear)
            .expect("a list");
        let count = |op: Op| linear.src().iter().filter(|u| u.op() == op).count();
        assert_eq!(
            (count(Op::Range), count(Op::Load)),
            (1, 0),
            "only the loop over what is written"
        );
    }
}
