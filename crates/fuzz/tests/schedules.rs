//! Random schedules that were once wrong. Flows in: seeds; flows out: nothing, where no device differs.

use monoglot_device::Config;
use monoglot_fuzz::check::{Tally, kernels, schedules};
use monoglot_fuzz::kernels::programs;
use monoglot_uop::Device;
use std::path::Path;

#[test]
fn schedules_that_were_wrong_are_right() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance");
    let gpu = Device::new("INTERP:GPU");
    Config {
        device: Some(gpu.name().into()),
        ..Config::default()
    }
    .set();
    let programs = programs(&cases, gpu).expect("the programs are built");
    let kernels = kernels(400, &programs, gpu).expect("they have kernels");
    let mut tell = |_: &str| {};
    let mut tally = Tally::new(&mut tell);
    // A comparison of a sum with a part of it was taken for the sum in parts.
    let seed = 9_409;
    schedules(seed..seed + 1, &kernels, &["CPU", "INTERP:GPU"], &mut tally).expect("they run");
    assert!(tally.failures.is_empty(), "{:#?}", tally.failures);
    assert!(tally.compared > 0);
}
