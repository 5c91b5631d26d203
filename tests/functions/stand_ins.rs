//! What functions of one structure have in common while they are traced, and what they have not.

use crate::{close, values};
use monoglot::compiler::uop::UOp;
use monoglot::prelude::*;
use monoglot::{ErrorKind, function};
use std::sync::Mutex;

#[test]
fn the_second_block_finds_what_the_first_one_made() -> Result<()> {
    let seen: Mutex<Vec<UOp>> = Mutex::default();
    let x = values(&[3, 6], 1);
    for k in 0..3 {
        let up = values(&[6, 6], 2 + k).parameter();
        let down = values(&[6, 6], 9 + k).parameter();
        // What they read has other shapes in between, and other tensors behind it.
        let other = values(&[2, 2], k);
        assert_eq!(
            function(|y: &Tensor| y + &other).apply(&other).shape()?,
            [2, 2]
        );
        let block = |x: &Tensor| x.matmul(&up).relu().matmul(&down).dropout(0.5) + x;
        let f = function(|x: &Tensor| {
            let y = block(x);
            seen.lock().expect("no panic").push(y.uop()?);
            Ok(y)
        });
        Tensor::manual_seed(k);
        let by_call = f.call(&x)?;
        Tensor::manual_seed(k);
        close(&by_call, &block(&x));
    }
    let seen = seen.into_inner().expect("no panic");
    assert!(seen.len() == 3 && seen.iter().all(|u| *u == seen[0]));
    Ok(())
}

/// In each the first thing that is read is of one shape, and so is the second.
#[test]
fn functions_within_each_other_keep_their_inputs_apart() -> Result<()> {
    let w = [1, 2, 3].map(|k| values(&[4, 4], k));
    let x = values(&[4, 4], 7);
    let inner = function(|a: &Tensor| a.matmul(&w[1]) - &w[2]);
    let middle = function(|a: &Tensor| -> Result<Tensor> {
        let before = a - &w[0];
        let lower = inner.call(&w[0])?;
        let again = inner.call(&before)?;
        let own = function(|b: &Tensor| b.matmul(&before) + a);
        Ok(&before - lower * again + own.call(&w[2])?)
    });
    let plain = |a: &Tensor| {
        let before = a - &w[0];
        let inner = |a: &Tensor| a.matmul(&w[1]) - &w[2];
        &before - inner(&w[0]) * inner(&before) + w[2].matmul(&before) + a
    };
    close(&middle.call(middle.call(&x)?)?, &plain(&plain(&x)));
    let step = jit(|x: Tensor| middle.call(middle.call(&x)?))?;
    close(&step.call(&x)?, &plain(&plain(&x)));
    Ok(())
}

/// What is carried out of a function past what it gives is no value, in another function neither.
#[test]
fn what_is_carried_out_of_a_function_has_no_value() -> Result<()> {
    let carried: Mutex<Vec<Tensor>> = Mutex::default();
    let x = values(&[3], 1);
    let first = function(|x: &Tensor| {
        carried.lock().expect("no panic").push(x.exp());
        x * 2.0
    });
    close(&first.call(&x)?, &(&x * 2.0));
    let carried = carried.lock().expect("no panic").remove(0);
    let second = function(|y: &Tensor| y + &carried);
    let third = function(|y: &Tensor| &carried - y.exp());
    for read in [&carried + 1.0, second.apply(&x), third.apply(&x)] {
        let e = read.to_vec::<f32>().expect_err("it depends on a call");
        assert!(matches!(e.kind(), ErrorKind::Capture { .. }), "{e}");
    }
    Ok(())
}
