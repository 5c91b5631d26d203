//! Calls that are heard, cancelled and joined. Flows in: captured functions; flows out: what listeners are told,
//! what a cancelled call leaves behind, and that two functions as one give what they give one by one.

use super::stream;
use monoglot::prelude::*;
use monoglot::{Cancel, listen};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A kernel's name, when it began and ended, and its bytes.
type Heard = (String, Instant, Instant, u64);

/// Kernels that cannot become one: each sum is stored before the next one reads it.
fn chain(x: &Tensor, n: usize) -> Tensor {
    let mut y = x.clone();
    for _ in 0..n {
        y = (&y + y.sum(0, true) * 0.01).contiguous();
    }
    y
}

#[test]
fn listeners_hear_every_kernel_of_a_replay() -> Result<()> {
    let _alone = stream();
    let step = jit(|x: Tensor| chain(&x, 3))?;
    let x = Tensor::ones([257, 3]);
    x.realize()?;
    step.call(&x)?;
    let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
    let own = heard.clone();
    let thread = std::thread::current().id();
    let listener = listen(move |e| {
        // Other tests run their own at the same time.
        if std::thread::current().id() == thread {
            let mut all = own.lock().expect("nobody panics");
            all.push((e.kernel.to_string(), e.start, e.end, e.bytes));
        }
    });
    step.call(&x)?;
    drop(listener);
    let count = heard.lock().expect("nobody panics").len();
    step.call(&x)?;
    let all = heard.lock().expect("nobody panics");
    assert_eq!(all.len(), count, "who listens no more is told no more");
    assert!(count >= 3, "{all:?}");
    for pair in all.windows(2) {
        assert!(pair[0].2 <= pair[1].1, "one after the other");
    }
    assert!(
        all.iter()
            .all(|(name, start, end, bytes)| !name.is_empty() && start <= end && *bytes > 0)
    );
    Ok(())
}

/// A step that draws, computes for a while, and then counts.
fn counting(count: &Tensor) -> Result<Jit<'_, (Tensor,), Tensor>> {
    jit(move |x: Tensor| {
        let y = chain(&(x + Tensor::rand([64, 4])), 6);
        count.assign(count + y.sum(.., false).reshape([1]) * 0.0 + 1.0);
        y
    })
}

fn cancelled(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Cancelled { done, of } if done < of)
}

#[test]
fn a_cancelled_call_has_changed_nothing() -> Result<()> {
    let _alone = stream();
    let count = Tensor::zeros([1]);
    count.realize()?;
    let x = Tensor::ones([64, 4]);
    x.realize()?;
    let step = counting(&count)?;
    Tensor::manual_seed(5);
    let first = step.call(&x)?.to_bytes()?;
    let second = step.call(&x)?.to_bytes()?;
    Tensor::manual_seed(5);
    count.assign(Tensor::zeros([1]));
    assert_eq!(step.call(&x)?.to_bytes()?, first);
    let token = Cancel::new();
    token.cancel();
    let error = token
        .within(|| step.call(&x))
        .expect_err("it was cancelled");
    assert!(cancelled(&error), "{error}");
    assert!(error.to_string().contains("after 0 of"), "{error}");
    // In the middle, too: from the first kernel that was heard of.
    let token = Cancel::new();
    let own = token.clone();
    let thread = std::thread::current().id();
    let listener = listen(move |_| {
        if std::thread::current().id() == thread {
            own.cancel();
        }
    });
    let error = token
        .within(|| step.call(&x))
        .expect_err("it was cancelled");
    drop(listener);
    assert!(cancelled(&error), "{error}");
    assert!(error.to_string().contains("after 1 of"), "{error}");
    assert_eq!(count.item::<f32>()?, 1.0);
    assert_eq!(
        step.call(&x)?.to_bytes()?,
        second,
        "its numbers were not drawn"
    );
    assert_eq!(count.item::<f32>()?, 2.0);
    Ok(())
}

#[test]
fn a_call_that_is_cancelled_whenever_is_all_or_nothing() -> Result<()> {
    let _alone = stream();
    let count = Tensor::zeros([1]);
    count.realize()?;
    let x = Tensor::ones([64, 4]);
    x.realize()?;
    let step = counting(&count)?;
    step.call(&x)?;
    let mut wanted = 1.0;
    for round in 0..60 {
        let token = Cancel::new();
        let begun = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !begun.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                (0..round * 50).for_each(|_| std::hint::spin_loop());
                token.cancel();
            });
            token.within(|| {
                begun.store(true, Ordering::Release);
                step.call(&x)
            })
        });
        match outcome {
            Ok(_) => wanted += 1.0,
            Err(e) => assert!(cancelled(&e), "{e}"),
        }
        assert_eq!(count.item::<f32>()?, wanted);
    }
    Ok(())
}

#[test]
fn what_is_realized_is_cancelled_as_well() -> Result<()> {
    let token = Cancel::new();
    token.cancel();
    let x = Tensor::ones([33, 2]);
    x.realize()?;
    let y = chain(&x, 2);
    let error = token.within(|| y.realize()).expect_err("it was cancelled");
    assert!(cancelled(&error), "{error}");
    y.realize()?;
    Ok(())
}

#[test]
fn joined_functions_give_what_they_give_one_by_one() -> Result<()> {
    let _alone = stream();
    let seen = Tensor::zeros([1]);
    let twice = Tensor::zeros([1]);
    let first = jit(|x: Tensor| {
        seen.assign(&seen + 1.0);
        (x * 2.0 + Tensor::randint([4], 0, 100), seen.clone())
    })?;
    let second = jit(|x: Tensor, n: Tensor| {
        twice.assign(&twice + &n * 2.0);
        x + &twice + Tensor::randint([4], 0, 100)
    })?;
    let both = first.then(&second);
    let x = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0], [4]);
    let reset = || {
        Tensor::manual_seed(11);
        seen.assign(Tensor::zeros([1]));
        twice.assign(Tensor::zeros([1]));
    };
    let mut wanted = Vec::new();
    reset();
    for _ in 0..3 {
        let (y, n) = first.call(&x)?;
        wanted.push(second.call((&y, &n))?.to_vec::<f32>()?);
    }
    let states = [seen.item::<f32>()?, twice.item::<f32>()?];
    reset();
    for wanted in wanted {
        assert_eq!(both.call(&x)?.to_vec::<f32>()?, wanted);
    }
    assert_eq!([seen.item::<f32>()?, twice.item::<f32>()?], states);
    Ok(())
}
