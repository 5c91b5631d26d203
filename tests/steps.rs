//! What a step of training costs after the first, and what it leaves behind. Flows in: the façade;
//! flows out: the engine's counters, which are the process's: nothing else is tested in this one.

mod common;

use common::Net;
use monoglot::compiler::device::Storage;
use monoglot::counters;
use monoglot::prelude::*;

#[test]
fn steps_after_the_first_schedule_and_compile_nothing() -> Result<()> {
    Tensor::manual_seed(1);
    let images = data::digits()?;
    let net = Net::new();
    let adam = Adam::new(&net, 1e-2);
    let mut losses = Vec::new();
    let mut seen = Vec::new();
    for step in 0..10 {
        adam.set_rate(1e-2 / (1.0 + step as f64));
        let rows: Vec<usize> = (0..16).map(|i| (i + 16 * step) % 32).collect();
        let (x, y) = images.batch(&rows);
        let loss = net.forward(&x).cross_entropy(&y, Reduction::Mean, 0.0);
        adam.step(&loss)?;
        losses.push(loss.item::<f32>()?);
        seen.push((counters(), Storage::live_bytes()));
    }
    let first = seen[0].0;
    let last = seen[9].0;
    assert_eq!(
        last.schedules, first.schedules,
        "the second step has the structure of the first"
    );
    assert_eq!(last.compiled, first.compiled);
    assert_eq!(
        (last.launches - first.launches) % 9,
        0,
        "every step launches the same kernels"
    );
    assert_eq!(
        seen[9].1, seen[2].1,
        "a step leaves nothing behind: {seen:?}"
    );
    assert!(losses[9] < losses[0], "{losses:?}");

    // A step whose scores nobody holds writes the weights where they are.
    let place = |t: &Tensor| t.uop().map(|u| u.buffer_arg().map(|b| b.slot));
    let (x, y) = images.batch(&[0, 1, 2]);
    let loss = || {
        let scores = net.forward(&x);
        scores.cross_entropy(&y, Reduction::Mean, 0.0)
    };
    let before = [&net.conv.weight, &net.head.weight].map(place);
    adam.step(&loss())?;
    assert_eq!([&net.conv.weight, &net.head.weight].map(place), before);
    drop((x, y));

    // Prediction is a structure of its own, and the same one every time.
    net.eval();
    let predict = |rows: &[usize]| {
        net.forward(&images.batch(rows).0)
            .argmax(1, false)
            .to_vec::<i32>()
    };
    predict(&[0, 1, 2])?;
    let before = counters();
    predict(&[3, 4, 5])?;
    assert_eq!(
        (counters().schedules, counters().compiled),
        (before.schedules, before.compiled)
    );

    // Everything goes when nobody holds it.
    drop((net, adam));
    assert!(Storage::live_bytes() < seen[0].1);
    Ok(())
}
