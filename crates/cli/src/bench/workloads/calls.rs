//! Calls of many small kernels: what a kernel costs besides its work. Flows in: nothing; flows out: workloads,
//! whose time over their kernels is that cost, as the kernels take a few nanoseconds each.

use super::{Call, Result, Tensor, Workload, call, moving, normal};
use monoglot::jit;

/// Elements of each value.
const SIZE: i64 = 64;

/// See the module.
pub(super) fn all() -> Vec<Workload> {
    vec![
        call("replay_1000x64", work(1000), || captured(1000)),
        call("replay_1x64", work(1), || captured(1)),
        call("realize_again_20x64", work(20), again),
    ]
}

/// Each kernel reads two values and writes one.
fn work(kernels: usize) -> super::Work {
    let elements = kernels as f64 * SIZE as f64;
    moving(2.0 * elements, elements)
}

/// A value that takes so many kernels.
fn chain(x: &Tensor, kernels: usize) -> Tensor {
    (0..kernels).fold(x.clone(), |y, _| (&y * 1.001 + x).contiguous())
}

/// A captured function, called again.
fn captured(kernels: usize) -> Result<Call> {
    let x = normal(&[SIZE]);
    x.realize()?;
    let function = jit(move |x: &Tensor| chain(x, kernels))?;
    Ok(Box::new(move || function.call(&x).map(drop)))
}

/// The same expression, built and realized again.
fn again() -> Result<Call> {
    let x = normal(&[SIZE]);
    x.realize()?;
    Ok(Box::new(move || chain(&x, 20).realize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_captured_chain_is_the_chain() {
        let x = normal(&[SIZE]);
        let function = jit(|x: &Tensor| chain(x, 30)).expect("a function");
        for _ in 0..2 {
            let got = function.call(&x).expect("it runs").to_vec::<f32>();
            assert_eq!(got, chain(&x, 30).to_vec::<f32>());
        }
        assert_eq!(function.programs(), 1);
    }
}
