//! Names of devices: so many are kept, and no more. A process of its own, as it uses all there are.
//! Flows in: names; flows out: which of them are kept.

use monoglot_uop::{Device, Error};

#[test]
fn names_beyond_the_bound_are_no_device() {
    let cpu = Device::new("CPU:0");
    let name = |k: usize| format!("KIND{k}");
    let kept = (0..100_000).take_while(|&k| Device::new(&name(k)).name() == name(k));
    let kept = kept.count();
    assert!((1_000..100_000).contains(&kept), "{kept}");
    // What was named before is found; what comes after has no name.
    assert_eq!(Device::new(&name(7)).name(), name(7));
    assert_eq!(Device::new("cpu"), cpu);
    assert_eq!(Device::new(&name(kept + 1)).name(), "");
}

#[test]
fn an_error_that_main_returns_reads_as_one_that_is_printed() {
    let error = Error::argument("matmul", "shapes do not fit");
    assert_eq!(format!("{error:?}"), "matmul: shapes do not fit");
}
