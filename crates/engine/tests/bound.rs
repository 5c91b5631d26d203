//! Programs bound to storage. Flows in: graphs over BUFFERs; flows out: what a launch left, against what
//! realize gives.

use monoglot_engine::{bind, counters, read, realize, upload};
use monoglot_uop::{DType, Device, ErrorKind, Shape, UOp};

fn floats(values: &[f32]) -> UOp {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let shape = Shape::of(&[values.len() as i64]);
    upload(&bytes, &shape, DType::F32, Device::new("INTERP")).expect("it fits")
}

fn values(bytes: &[u8]) -> Vec<f32> {
    let words = bytes.chunks_exact(4);
    words
        .map(|b| f32::from_le_bytes(b.try_into().expect("four")))
        .collect()
}

#[test]
fn a_launch_computes_what_realize_does_and_changes_nothing() {
    let x = floats(&[1.0, 2.0, 3.0]);
    let sum = &x + &x;
    let assigned = x.after(&[x.store(&(&x * &x))]);
    let before = counters();
    let bound = bind(&[sum.clone(), assigned.clone(), x.clone()]).expect("it compiles");
    assert_eq!(counters().launches, before.launches);
    assert!(sum.realized().is_none());
    for _ in 0..2 {
        bound.launch().expect("it runs");
        let left = |root| bound.read(root).expect("it is there").map(|b| values(&b));
        assert_eq!(left(0), Some(vec![2.0, 4.0, 6.0]));
        assert_eq!(left(1), Some(vec![1.0, 4.0, 9.0]));
        assert_eq!(left(2), None);
    }
    let launches = counters().launches - before.launches;
    assert_eq!(launches, 2 * bound.kernels().count() as u64);
    assert!(bound.read(3).is_err());
    // The BUFFER that a root assigns is what it was.
    assert_eq!(values(&read(&x).expect("it is there")), [1.0, 2.0, 3.0]);
    drop(bound);
    let done = realize(&[assigned]).expect("it runs");
    assert_eq!(
        values(&read(&done[0]).expect("it is there")),
        [1.0, 4.0, 9.0]
    );
}

#[test]
fn what_has_no_value_is_refused() {
    let nowhere = UOp::param(0, &Shape::of(&[2]), DType::F32, Some(Device::new("INTERP")));
    let refused = bind(&[&nowhere + &nowhere])
        .err()
        .expect("it stands for nothing");
    assert!(
        matches!(refused.kind(), ErrorKind::Argument { .. }),
        "{refused}"
    );
}
