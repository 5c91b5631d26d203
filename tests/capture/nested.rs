//! Captured functions that call functions. Flows in: what an inner function relies on; flows out: that the one around it
//! relies on it as well, whether the inner one was known before or is traced with it.

use super::stream;
use monoglot::prelude::*;
use monoglot::{function, scan};

#[test]
fn a_mode_that_an_inner_function_asks_for_is_asked_for_by_those_around() -> Result<()> {
    let _alone = stream();
    let x = Tensor::new(&[1f32, 2., 3., 6.], [2, 2]);
    // Known before it is called by the outer one, and not.
    for known in [0, 1, 2] {
        let norm = BatchNorm::new(2);
        let block = function(|x: Tensor| norm.forward(&x));
        for _ in 0..known {
            block.apply(x.clone()).realize()?;
        }
        let middle = function(|x: Tensor| block.apply(x) * 2.0);
        let net = jit(|x: &Tensor| middle.apply(x.clone()))?;
        for _ in 0..2 {
            net.call(&x)?.realize()?;
        }
        norm.eval();
        let want = (norm.forward(&x) * 2.0).to_vec::<f32>()?;
        let running = norm.running_mean.to_vec::<f32>()?;
        assert_eq!(
            net.call(&x)?.to_vec::<f32>()?,
            want,
            "known by {known} calls"
        );
        assert_eq!(norm.running_mean.to_vec::<f32>()?, running);
        norm.train();
        net.call(&x)?.realize()?;
        assert_ne!(norm.running_mean.to_vec::<f32>()?, running);
    }
    Ok(())
}

#[test]
fn a_mode_that_a_step_of_a_scan_asks_for_is_asked_for_by_those_around() -> Result<()> {
    let _alone = stream();
    let drop = Dropout::new(0.5);
    let all = jit(|h: &Tensor| -> Result<Tensor> {
        let step = |h: Tensor, c: Tensor| {
            let h = drop.forward(&(h * c));
            (h.clone(), h)
        };
        Ok(scan(step, h, Tensor::ones([2]))?.0)
    })?;
    let ones = Tensor::ones([64]);
    let dropped = all.call(&ones)?.to_vec::<f32>()?;
    assert!(dropped.contains(&0.0));
    drop.eval();
    assert_eq!(all.call(&ones)?.to_vec::<f32>()?, [1.0; 64]);
    Ok(())
}

#[test]
fn a_constant_that_a_known_function_relies_on_is_relied_on_by_those_around() -> Result<()> {
    let _alone = stream();
    let x = Tensor::new(&[1f32, 2.], [2]);
    for calls in [0, 1, 2, 3] {
        let scale = Tensor::ones([2]);
        let f = function(|x: Tensor| (x * &scale).sum(.., false));
        for _ in 0..calls {
            f.call((&x,))?.realize()?;
        }
        let outer = jit(|x: &Tensor| f.call((x,)))?;
        assert_eq!(outer.call(&x)?.item::<f32>()?, 3.0);
        scale.assign(Tensor::full([2], 10f32));
        assert_eq!(outer.call(&x)?.item::<f32>()?, 30.0, "after {calls} calls");
        // The outer function gives it another value before the inner one is called.
        let given = Tensor::new(&[5f32, 6.], [2]);
        let own = Tensor::ones([2]);
        let g = function(|x: Tensor| (x * &own).sum(.., false));
        for _ in 0..calls {
            g.call((&x,))?.realize()?;
        }
        let outer = jit(|x: &Tensor| {
            own.assign(&given);
            g.call((x,))
        })?;
        for _ in 0..2 {
            assert_eq!(outer.call(&x)?.item::<f32>()?, 17.0, "after {calls} calls");
        }
    }
    Ok(())
}
