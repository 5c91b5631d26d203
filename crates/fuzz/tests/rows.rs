//! Rows written over by the kernel that reads them. Flows in: normalisations of values that nobody needs afterwards;
//! flows out: nothing, where random schedules of their kernels give what the kernels say.

use monoglot_codegen::opt::overwrites_rows;
use monoglot_device::Config;
use monoglot_fuzz::check::{Tally, kernels, schedules};
use monoglot_tensor::{DType, Tensor};
use monoglot_uop::{Device, Result, UOp};

/// Values that are stored, and read again by whole rows alone.
fn stored(shape: [i64; 2], device: Device) -> Tensor {
    let x = Tensor::empty(shape, DType::F32, device);
    (&x * 3.0).contiguous()
}

fn programs(device: Device) -> Result<Vec<Vec<UOp>>> {
    let shape = [192, 130];
    let x = || stored(shape, device);
    let centred = |x: &Tensor| x - x.mean(-1, true);
    let scaled = |x: &Tensor| x / (x.square().mean(-1, true) + 1e-5).sqrt();
    let all = [
        x().softmax(-1),
        x().log_softmax(-1),
        scaled(&centred(&x())),
        scaled(&(x() + Tensor::empty(shape, DType::F32, device))),
        x().reshape([12, 16, 130]).softmax(-1),
        x().reshape([12, 16, 130]) - x().max(-1, true).reshape([12, 16, 1]),
    ];
    all.iter().map(|t| Ok(vec![t.uop()?])).collect()
}

#[test]
fn rows_are_read_before_they_are_written_over() {
    let cpu = Device::new("CPU");
    Config {
        device: Some(cpu.name().into()),
        ..Config::default()
    }
    .set();
    let programs = programs(cpu).expect("the programs are built");
    let all = kernels(0, &programs, cpu).expect("they have kernels");
    let rows: Vec<UOp> = all.into_iter().filter(overwrites_rows).collect();
    assert!(rows.len() >= 3, "{rows:#?}");
    let mut tell = |_: &str| {};
    let mut tally = Tally::new(&mut tell);
    schedules(0..600, &rows, &["CPU", "CPU:C", "INTERP"], &mut tally).expect("they run");
    assert!(tally.failures.is_empty(), "{:#?}", tally.failures);
    assert!(tally.compared > 1000, "{}", tally.compared);
}
