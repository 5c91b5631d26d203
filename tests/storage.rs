//! Storage of the process: what is in use, what is kept for reuse, and limits. Flows in: the façade; flows out:
//! the engine's counters, which are the process's: one test at a time.

use monoglot::prelude::*;
use monoglot::{ErrorKind, counters, release_kept, set_memory_limit, storage_use};
use std::sync::{Mutex, MutexGuard};

const MIB: usize = 1 << 20;

/// What every test holds: the counts are of all threads.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn cpu() -> Device {
    Device::new("CPU")
}

/// A column of `n` MiB of a value, realized.
fn filled(mib: usize, value: f32) -> Result<Tensor> {
    let t = Tensor::full([mib * MIB / 4], value).contiguous();
    t.realize()?;
    Ok(t)
}

#[test]
fn what_is_freed_is_kept_and_comes_back() -> Result<()> {
    let _one = alone();
    release_kept();
    let before = storage_use(cpu());
    assert_eq!(before.kept, 0);
    let t = filled(24, 1.0)?;
    let with = storage_use(cpu());
    assert!(with.in_use >= before.in_use + 24 * MIB, "{with:?}");
    assert!(with.peak >= with.in_use, "{with:?}");
    drop(t);
    let after = storage_use(cpu());
    assert_eq!(after.in_use, before.in_use);
    assert!(after.kept >= 24 * MIB, "{after:?}");
    // A little less fits into what is kept; what it holds is what was written now.
    let t = filled(20, 2.0)?;
    assert!(storage_use(cpu()).kept < 24 * MIB);
    assert_eq!(
        t.sum(.., false).item::<f32>()?,
        2.0 * 20.0 * MIB as f32 / 4.0
    );
    drop(t);
    assert_eq!(counters().kept as usize, storage_use(cpu()).kept);
    assert!(release_kept() >= after.kept);
    assert_eq!((storage_use(cpu()).kept, counters().kept), (0, 0));
    Ok(())
}

#[test]
fn a_limit_is_kept_and_the_program_goes_on() -> Result<()> {
    let _one = alone();
    release_kept();
    let held = filled(8, 3.0)?;
    let in_use = storage_use(cpu()).in_use;
    set_memory_limit(cpu(), Some(in_use + 24 * MIB));
    // Kept storage counts, and is given back first.
    drop(filled(16, 1.0)?);
    assert!(storage_use(cpu()).kept >= 16 * MIB);
    let t = filled(9, 1.0)?;
    drop(t);
    drop(filled(23, 1.0)?);
    let now = storage_use(cpu());
    assert!(now.in_use + now.kept <= in_use + 24 * MIB, "{now:?}");
    let line = line!() + 1;
    let large = Tensor::full([7 * MIB], 1f32).contiguous();
    let e = large.realize().expect_err("28 MiB of 24");
    let ErrorKind::Limit {
        wanted,
        in_use: told,
        limit,
        ..
    } = e.kind()
    else {
        panic!("{e}")
    };
    assert_eq!(*wanted as usize, 28 * MIB);
    assert_eq!(*told as usize, in_use);
    assert_eq!(*limit as usize, in_use + 24 * MIB);
    assert!(e.to_string().contains(&format!("storage.rs:{line}")), "{e}");
    // Nothing is lost: what was there is, and what fits is computed; so is the rest, once it may be.
    assert_eq!(held.max(.., false).item::<f32>()?, 3.0);
    assert_eq!(filled(4, 5.0)?.max(.., false).item::<f32>()?, 5.0);
    set_memory_limit(cpu(), None);
    large.realize()?;
    assert_eq!(large.max(.., false).item::<f32>()?, 1.0);
    Ok(())
}

#[test]
fn a_captured_step_that_is_over_the_limit_changes_nothing() -> Result<()> {
    let _one = alone();
    release_kept();
    let weights = filled(4, 1.0)?;
    let step = jit(|x: &Tensor| -> Result<Tensor> {
        let wide = (x.unsqueeze(1) + weights.narrow(0, 0, 4096)).contiguous();
        weights.assign(&weights + 1.0);
        Ok(wide.max(.., false))
    })?;
    let x = Tensor::ones([4096]).contiguous();
    x.realize()?;
    let in_use = storage_use(cpu()).in_use;
    set_memory_limit(cpu(), Some(in_use + 8 * MIB));
    let e = step.call(&x).expect_err("64 MiB of 8");
    assert!(matches!(e.kind(), ErrorKind::Limit { .. }), "{e}");
    assert_eq!(weights.max(.., false).item::<f32>()?, 1.0);
    set_memory_limit(cpu(), None);
    assert_eq!(step.call(&x)?.item::<f32>()?, 2.0);
    assert_eq!(weights.max(.., false).item::<f32>()?, 2.0);
    Ok(())
}

#[test]
fn a_step_that_is_over_the_limit_has_drawn_nothing() -> Result<()> {
    let _one = alone();
    release_kept();
    let x = Tensor::ones([4096]).contiguous();
    x.realize()?;
    let body = |x: &Tensor| {
        let wide = (x.unsqueeze(1) + x).contiguous();
        wide.max(.., false) + Tensor::rand([2])
    };
    let made = || jit(body);
    Tensor::manual_seed(1);
    let step = made()?;
    let want = [step.call(&x)?.to_vec::<f32>()?, step.call(&x)?.to_vec()?];
    Tensor::manual_seed(1);
    let step = made()?;
    release_kept();
    set_memory_limit(cpu(), Some(storage_use(cpu()).in_use + 8 * MIB));
    let e = step.call(&x).expect_err("64 MiB of 8");
    assert!(matches!(e.kind(), ErrorKind::Limit { .. }), "{e}");
    set_memory_limit(cpu(), None);
    for want in want {
        assert_eq!(step.call(&x)?.to_vec::<f32>()?, want);
    }
    Ok(())
}

#[test]
fn threads_that_free_and_ask_get_blocks_of_their_own() -> Result<()> {
    let _one = alone();
    let work = |k: usize| -> Result<()> {
        for round in 0..40 {
            let value = (k * 100 + round) as f32;
            let a = filled(1, value)?;
            let b = (&a + 1.0).contiguous();
            b.realize()?;
            assert_eq!(a.min(.., false).item::<f32>()?, value);
            assert_eq!(b.max(.., false).item::<f32>()?, value + 1.0);
        }
        Ok(())
    };
    let done: Vec<Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|k| scope.spawn(move || work(k))).collect();
        let all = threads.into_iter();
        all.map(|t| t.join().expect("it does not panic")).collect()
    });
    done.into_iter().collect()
}

/// What a captured function reads stays read from call to call, and keeps nobody from writing it.
#[test]
fn what_a_captured_function_reads_is_free_between_its_calls() -> Result<()> {
    let _one = alone();
    let weight = filled(24, 1.0)?;
    let read = jit(|x: &Tensor| x + weight.sum(.., false))?;
    let x = Tensor::zeros([1]);
    let count = (24 * MIB / 4) as f32;
    for _ in 0..3 {
        assert_eq!(read.call(&x)?.item::<f32>()?, count);
    }
    // Written in place by others: captured and not.
    let write = jit(|| weight.assign(&weight * 2.0))?;
    write.call(())?;
    assert_eq!(read.call(&x)?.item::<f32>()?, 2.0 * count);
    let before = storage_use(cpu());
    for k in 0..4 {
        write.call(())?;
        weight.assign(&weight / 2.0);
        weight.realize()?;
        assert_eq!(read.call(&x)?.item::<f32>()?, 2.0 * count, "{k}");
        let now = storage_use(cpu());
        assert_eq!((now.in_use, now.peak), (before.in_use, before.peak), "{k}");
    }
    // Replaced by other storage, and freed at once.
    weight.assign(Tensor::full([24 * MIB / 4], 3.0));
    weight.realize()?;
    assert_eq!(storage_use(cpu()).in_use, before.in_use);
    assert_eq!(read.call(&x)?.item::<f32>()?, 3.0 * count);
    drop((read, write));
    drop(weight);
    assert!(storage_use(cpu()).in_use + 24 * MIB <= before.in_use);
    Ok(())
}

/// A number that was realized, and is a root again, is a number below the other roots.
#[test]
fn a_number_that_is_stored_is_a_number_still() -> Result<()> {
    let _one = alone();
    let a = Tensor::new(&[1f64, 2., 3.], [3]);
    a.realize()?;
    let number = || Tensor::full([0i64; 0], 2.0f64);
    let kept = number();
    kept.realize()?;
    let y = &a * 2.0;
    let again = number();
    Tensor::realize_all(&[&y, &again])?;
    assert_eq!(y.to_vec::<f64>()?, [2.0, 4.0, 6.0]);
    assert_eq!(again.item::<f64>()?, 2.0);
    // So is the gradient of a sum by a number that it has once.
    let weight = Tensor::full([0i64; 0], 0.5f64).parameter();
    let mut held = Vec::new();
    for turn in 1..4 {
        let loss = &weight + (&a * 1.0).sum(.., false) * f64::from(turn);
        let g = loss.gradient(&[&weight])?.remove(0);
        Tensor::realize_all(&[&loss, &g])?;
        assert_eq!(loss.item::<f64>()?, 0.5 + 6.0 * f64::from(turn));
        held.push(g);
    }
    assert!(held.iter().all(|g| g.item::<f64>().ok() == Some(1.0)));
    Ok(())
}
