//! What calls of captured functions cost and leave behind. Flows in: the façade; flows out: the engine's counters
//! and bytes in use, which are the process's: nothing else is tested in this one.

use monoglot::compiler::device::Storage;
use monoglot::counters;
use monoglot::prelude::*;

#[test]
fn calls_after_the_first_compile_nothing_and_leave_nothing_behind() -> Result<()> {
    Tensor::manual_seed(1);
    let images = data::digits()?;
    let net = Linear::new(64, 10);
    let adam = Adam::new(&net, 1e-2);
    let step = jit(|x: &Tensor, y: &Tensor| -> Result<Tensor> {
        let x = x.flatten(1, -1).dropout(0.1);
        let loss = net.forward(&x).cross_entropy(y, Reduction::Mean, 0.0);
        adam.step(&loss)?;
        Ok(loss)
    })?;
    let mut seen = Vec::new();
    let mut losses = Vec::new();
    for k in 0..12 {
        adam.set_rate(1e-2 / (1.0 + k as f64));
        let rows: Vec<usize> = (0..16).map(|i| (i + 16 * k) % 48).collect();
        let (x, y) = images.batch(&rows);
        losses.push(step.call((&x, &y))?.item::<f32>()?);
        seen.push((counters(), Storage::live_bytes()));
    }
    let first = seen[1].0;
    let last = seen[11].0;
    assert_eq!(
        (last.schedules, last.compiled),
        (first.schedules, first.compiled)
    );
    assert_eq!((last.launches - first.launches) % 10, 0);
    assert_eq!(last.copies, first.copies, "weights are written in place");
    assert_eq!(seen[11].1, seen[2].1, "{seen:?}");
    assert!(losses[11] < losses[0], "{losses:?}");
    assert_eq!(step.programs(), 1);

    // An uncaptured step of the same structure is the same program.
    let (x, y) = images.batch(&(0..16).collect::<Vec<_>>());
    let x = x.contiguous();
    let y = y.contiguous();
    Tensor::realize_all(&[&x, &y])?;
    let before = counters().compiled;
    // Whoever held the scores meanwhile would keep the weights that they are computed from.
    let loss = |x: &Tensor| {
        let scores = net.forward(&x.flatten(1, -1).dropout(0.1));
        scores.cross_entropy(&y, Reduction::Mean, 0.0)
    };
    adam.step(&loss(&x))?;
    assert_eq!(counters().compiled, before);

    // What is let go of is given back, and the next call makes it anew.
    let held = Storage::live_bytes();
    step.clear();
    let compiled = counters().compiled;
    let before = Storage::live_bytes();
    assert!(before < held, "intermediates are the program's own");
    step.call((&x, &y))?;
    assert_eq!(counters().compiled, compiled);
    drop(step);
    assert!(Storage::live_bytes() <= before);
    Ok(())
}
