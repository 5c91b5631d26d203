//! What reading costs and leaves: assigned tensors in loops, large values, printing. Flows in: the façade;
//! flows out: the engine's counters and bytes in use, which are the process's: one test at a time.

use monoglot::compiler::device::Storage;
use monoglot::prelude::*;
use monoglot::{Counters, counters};
use std::sync::{Mutex, MutexGuard};

/// What every test holds: the counts are of all threads.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

/// What was scheduled, compiled and launched, and the bytes in use, by the end of each step.
fn steps(n: usize, step: impl Fn(usize)) -> Vec<(Counters, usize)> {
    let each = |i| {
        step(i);
        (counters(), Storage::live_bytes())
    };
    (0..n).map(each).collect()
}

fn flat(seen: &[(Counters, usize)], launches: u64) {
    let first = &seen[2];
    let last = &seen[seen.len() - 1];
    assert_eq!(last.0.schedules, first.0.schedules, "schedules");
    assert_eq!(last.0.compiled, first.0.compiled, "compiled");
    let steps = (seen.len() - 3) as u64;
    assert_eq!(last.0.launches - first.0.launches, launches * steps);
    assert_eq!(last.1, first.1, "bytes in use");
}

#[test]
fn an_assigned_tensor_that_is_read_in_a_loop_costs_the_same_each_time() {
    let _one = alone();
    let total = Tensor::new(&[0f32], [1]);
    let seen = steps(600, |i| {
        total.assign(&total + 1.0);
        assert_eq!(total.item::<f32>().unwrap(), (i + 1) as f32);
        // What was read is found again.
        assert_eq!(total.to_vec::<f32>().unwrap(), [(i + 1) as f32]);
        assert_eq!(total.to_string(), format!("[{}.]", i + 1));
    });
    flat(&seen, 1);
}

#[test]
fn a_running_loss_that_begins_as_a_constant_is_one_too() {
    let _one = alone();
    let loss = Tensor::new(&[0.5f32, 0.25], [2]);
    let total = Tensor::zeros(());
    let seen = steps(600, |i| {
        total.assign(&total + loss.sum(.., false));
        let mean = &total / 2.0;
        assert_eq!(total.item::<f32>().unwrap(), 0.75 * (i + 1) as f32);
        assert_eq!(mean.item::<f32>().unwrap(), 0.375 * (i + 1) as f32);
    });
    flat(&seen, 2);
}

#[test]
fn a_view_that_is_assigned_and_read_leaves_no_history() {
    let _one = alone();
    let t = Tensor::zeros([8, 8]).parameter();
    let row = t.index(3);
    let seen = steps(600, |i| {
        row.assign(&row + 2.0);
        assert_eq!(row.to_vec::<f32>().unwrap(), [2.0 * (i + 1) as f32; 8]);
    });
    flat(&seen, 1);
    let seen = steps(600, |_| {
        t.assign(&t * 1.0);
        assert_eq!(t.index((3, 2)).item::<f32>().unwrap(), 1200.0);
    });
    flat(&seen, 1);
}

#[test]
fn clones_of_an_assigned_tensor_find_what_was_read() {
    let _one = alone();
    let t = Tensor::new(&[1f32, 2.0], [2]);
    let clone = t.clone();
    t.assign(&t * 2.0);
    let sum = (&t + 0.0).sum(.., false);
    assert_eq!(t.to_vec::<f32>().unwrap(), [2.0, 4.0]);
    let seen = steps(1, |_| {
        assert_eq!(clone.to_vec::<f32>().unwrap(), [2.0, 4.0]);
    });
    let launched = seen[0].0.launches;
    assert_eq!(sum.item::<f32>().unwrap(), 6.0);
    assert!(counters().launches > launched);
}

#[test]
fn printing_computes_what_it_shows() {
    let _one = alone();
    let seen = steps(1, |_| ());
    let shown = steps(1, |_| {
        let text = Tensor::zeros([1 << 30]).to_string();
        assert_eq!(text, "[0. 0. 0. ... 0. 0. 0.]");
        let text = Tensor::arange_of(0.0, (1 << 30) as f64, 1.0, DType::I32)
            .reshape([1 << 15, 1 << 15])
            .to_string();
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 7, "{text}");
        assert!(
            rows[0].starts_with("[[         0          1          2 ..."),
            "{text}"
        );
        assert!(
            rows[6].ends_with("1073741821 1073741822 1073741823]]"),
            "{text}"
        );
    });
    assert!(shown[0].1 - seen[0].1 < 1 << 16, "bytes in use");
    assert_eq!(shown[0].0.launches - seen[0].0.launches, 2);
    // What is there already is only read.
    let t = Tensor::arange_of(0.0, 2000.0, 1.0, DType::I32).reshape([2, 1000]);
    t.realize().unwrap();
    let before = counters();
    assert_eq!(
        t.to_string(),
        "[[   0    1    2 ...  997  998  999]\n [1000 1001 1002 ... 1997 1998 1999]]"
    );
    assert_eq!(counters(), before);
}

#[test]
fn what_the_host_has_no_room_for_is_an_error() {
    let _one = alone();
    // NULL gives storage of any length.
    let huge = Tensor::empty([1i64 << 50], DType::U8, Device::new("NULL"));
    for e in [huge.to_vec::<u8>().map(drop), huge.to_bytes().map(drop)] {
        let e = e.expect_err("a petabyte");
        assert!(matches!(e.kind(), ErrorKind::Memory { .. }), "{e}");
    }
    let expanded = Tensor::new(&[1u8], [1]).expand([1i64 << 50]);
    assert_eq!(expanded.to_string(), "[1 1 1 ... 1 1 1]");
}
