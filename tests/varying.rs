//! Every operator over axes whose lengths vary. Flows in: a table of programs; flows out: their values and gradients
//! beside those of plain tensors of the same lengths, on the CPU and in both interpreters, and the engine's counters,
//! which are the process's: nothing else is tested in this one.

#[path = "varying/table.rs"]
mod table;

use monoglot::prelude::*;
use monoglot::{Config, counters};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard};
use table::{Flows, MOVED, N, OTHERS, PLAIN, Program, REFUSED, Row};

/// What every test holds: the counts are of all threads.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

const MOST: i64 = 17;

/// As many as the shape says where the varying axis has n.
fn data(shape: &[i64], n: i64) -> (Tensor, i64) {
    let sizes: Vec<i64> = shape.iter().map(|&s| if s == N { n } else { s }).collect();
    let count = sizes.iter().product::<i64>();
    let all: Vec<f32> = (0..count)
        .map(|i| ((i * 37 + 5) % 41) as f32 / 20.5 - 0.99)
        .collect();
    let axis = shape.iter().position(|&s| s == N).expect("one varies");
    (Tensor::new(&all, sizes), axis as i64)
}

/// The values, and what flows back to x.
fn both(x: &Tensor, program: Program, flows: Flows) -> Result<Vec<Tensor>> {
    let y = program(x);
    y.check()?;
    if flows == Flows::No {
        return Ok(vec![y.cast(DType::F32)]);
    }
    let g = (&y * y.detach().cos()).sum(.., false).gradient(&[x])?;
    Ok(vec![y, g[0].clone()])
}

fn read(all: &[Tensor]) -> Result<Vec<(Vec<usize>, Vec<f32>)>> {
    all.iter().map(|t| Ok((t.shape()?, t.to_vec()?))).collect()
}

/// What is wrong with a program, in words.
fn wrong(&(name, shape, program, flows): &Row) -> Result<Option<String>> {
    let step = jit(move |x: &Tensor| both(x, program, flows))?;
    let mut made = Vec::new();
    for n in [5, 1, 2, MOST, 7] {
        let (plain, axis) = data(shape, n);
        Tensor::manual_seed(n as u64);
        let want = read(&both(&plain.parameter(), program, flows)?)?;
        let after = Tensor::rand([1]).item::<f32>()?;
        Tensor::manual_seed(n as u64);
        let x = plain.dynamic(axis, 1..=MOST);
        x.realize()?;
        let before = counters();
        let values = step.call(&x)?;
        let got = read(&values)?;
        let now = counters();
        made.push((
            now.schedules - before.schedules,
            now.compiled - before.compiled,
        ));
        for (part, ((shape, got), (of, want))) in got.iter().zip(&want).enumerate() {
            let apart = |(g, w): (&f32, &f32)| (g - w).abs() > 2e-4 * w.abs().max(1.0);
            if shape != of || got.iter().zip(want).any(apart) {
                return Ok(Some(format!(
                    "{name} of {n}, part {part}: {shape:?} {got:?}, not {of:?} {want:?}"
                )));
            }
        }
        if Tensor::rand([1]).item::<f32>()? != after {
            return Ok(Some(format!("{name} of {n}: other random numbers follow")));
        }
    }
    let late = &made[2..];
    let compiles = late.iter().any(|m| *m != (0, 0)) || step.programs() > 1;
    Ok(compiles.then(|| format!("{name}: made {made:?} in {} programs", step.programs())))
}

fn every(device: &str, rows: &[Row]) {
    let _one = alone();
    Config {
        device: Some(device.into()),
        ..Config::default()
    }
    .set();
    let only = std::env::var("VARYING").unwrap_or_default();
    let found = rows
        .iter()
        .filter(|r| r.0.contains(&only))
        .filter_map(|row| match catch_unwind(AssertUnwindSafe(|| wrong(row))) {
            Ok(Ok(found)) => found,
            Ok(Err(e)) => Some(format!("{}: {e}", row.0)),
            Err(_) => Some(format!("{}: a panic", row.0)),
        });
    let found: Vec<String> = found.collect();
    assert!(found.is_empty(), "{device}: {found:#?}");
}

#[test]
fn operators_on_the_cpu() {
    every("CPU", PLAIN);
}

#[test]
fn movement_on_the_cpu() {
    every("CPU", MOVED);
}

#[test]
fn windows_losses_and_random_numbers_on_the_cpu() {
    every("CPU", OTHERS);
}

#[test]
fn operators_in_the_interpreter() {
    every("INTERP", PLAIN);
}

#[test]
fn movement_in_the_interpreter() {
    every("INTERP", MOVED);
}

#[test]
fn windows_losses_and_random_numbers_in_the_interpreter() {
    every("INTERP", OTHERS);
}

#[test]
fn all_of_them_where_there_are_workgroups() {
    for rows in [PLAIN, MOVED, OTHERS] {
        every("INTERP:GPU", rows);
    }
}

#[test]
fn what_refuses_says_so() -> Result<()> {
    let _one = alone();
    for &(name, shape, program, why) in REFUSED {
        let (plain, axis) = data(shape, 6);
        let x = plain.dynamic(axis, 1..=MOST);
        let e = program(&x).check().expect_err(name).to_string();
        assert!(e.contains(name) && e.contains(why), "{name}: {e}");
    }
    Ok(())
}
