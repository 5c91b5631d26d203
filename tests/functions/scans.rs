//! Loops of one step.

use crate::{close, read, values};
use monoglot::compiler::device;
use monoglot::compiler::engine::{self, compile};
use monoglot::compiler::schedule::{Schedule, Timings, callify, schedule};
use monoglot::compiler::uop::{Device, Op, UOp};
use monoglot::nn::{Lstm, Module};
use monoglot::prelude::*;
use monoglot::{scan, scan_reversed};
use std::sync::Arc;

/// A recurrent cell with two carries.
struct Cell {
    w: Tensor,
    u: Tensor,
    b: Tensor,
}

impl Cell {
    fn new(inputs: i64, width: i64) -> Cell {
        Cell {
            w: values(&[inputs, 4 * width], 1).parameter(),
            u: values(&[width, 4 * width], 2).parameter(),
            b: values(&[4 * width], 3).parameter(),
        }
    }

    fn step(&self, (h, c): (Tensor, Tensor), x: &Tensor) -> (Tensor, Tensor) {
        let gates = x.matmul(&self.w) + h.matmul(&self.u) + &self.b;
        let parts = gates.chunk(4, -1);
        let c = parts[0].sigmoid() * c + parts[1].sigmoid() * parts[2].tanh();
        (parts[3].sigmoid() * c.tanh(), c)
    }

    fn scan(&self, xs: &Tensor, begin: &(Tensor, Tensor)) -> Result<(Tensor, Tensor)> {
        let step = |carry: (Tensor, Tensor), x: Tensor| {
            let (h, c) = self.step(carry, &x);
            ((h.clone(), c), h)
        };
        let ((_, c), all) = scan(step, (&begin.0, &begin.1), xs)?;
        Ok((c, all))
    }

    fn unrolled(&self, xs: &Tensor, begin: &(Tensor, Tensor)) -> Result<(Tensor, Tensor)> {
        let mut carry = (begin.0.clone(), begin.1.clone());
        let mut all = Vec::new();
        for t in 0..xs.shape()?[0] {
            carry = self.step(carry, &xs.index(t as i64));
            all.push(carry.0.clone());
        }
        let all: Vec<&Tensor> = all.iter().collect();
        Ok((carry.1, Tensor::stack(&all, 0)))
    }
}

fn sequence(times: i64) -> (Cell, Tensor, (Tensor, Tensor)) {
    let begin = (
        values(&[3, 6], 8).parameter(),
        values(&[3, 6], 9).parameter(),
    );
    (
        Cell::new(5, 6),
        values(&[times, 3, 5], 4).parameter(),
        begin,
    )
}

#[test]
fn a_scan_gives_what_its_steps_give() -> Result<()> {
    for times in [1, 2, 3, 4, 5, 8, 13] {
        let (cell, xs, begin) = sequence(times);
        let (c, all) = cell.scan(&xs, &begin)?;
        let (d, every) = cell.unrolled(&xs, &begin)?;
        Tensor::realize_all(&[&c, &all])?;
        close(&all, &every);
        close(&c, &d);
    }
    Ok(())
}

#[test]
fn gradients_are_those_of_the_steps() -> Result<()> {
    for times in [1, 2, 5, 6] {
        let (cell, xs, begin) = sequence(times);
        let targets = [&cell.w, &cell.u, &cell.b, &xs, &begin.0, &begin.1];
        let loss =
            |(c, all): (Tensor, Tensor)| c.square().sum(.., false) + all.sin().sum(.., false);
        let one = loss(cell.scan(&xs, &begin)?).gradient(&targets)?;
        let other = loss(cell.unrolled(&xs, &begin)?).gradient(&targets)?;
        for (a, b) in one.iter().zip(&other) {
            close(a, b);
        }
    }
    Ok(())
}

#[test]
fn gradients_of_gradients() -> Result<()> {
    let (cell, xs, begin) = sequence(4);
    let second = |(c, all): (Tensor, Tensor)| -> Result<Vec<Tensor>> {
        let loss = c.square().sum(.., false) + all.square().sum(.., false);
        let g = loss.gradient(&[&cell.u, &xs])?;
        let sum = g[0].square().sum(.., false) + g[1].square().sum(.., false);
        sum.gradient(&[&cell.w, &cell.b, &begin.0])
    };
    let one = second(cell.scan(&xs, &begin)?)?;
    let other = second(cell.unrolled(&xs, &begin)?)?;
    for (a, b) in one.iter().zip(&other) {
        close(a, b);
    }
    Ok(())
}

#[test]
fn the_other_way_round() -> Result<()> {
    let xs = values(&[5, 3], 1).parameter();
    let step = |sum: Tensor, x: Tensor| {
        let next = &sum * 0.5 + x.sum(.., false);
        (next.clone(), next * &x)
    };
    let (last, all) = scan_reversed(step, 0.25f32, &xs)?;
    let (flipped_last, flipped) = scan(step, 0.25f32, xs.flip(0))?;
    close(&last, &flipped_last);
    close(&all, &flipped.flip(0));
    let a = (&last + all.square().sum(.., false)).gradient(&[&xs])?;
    let b = (&flipped_last + flipped.square().sum(.., false)).gradient(&[&xs])?;
    close(&a[0], &b[0]);
    Ok(())
}

#[test]
fn carries_may_be_given_back_swapped_and_gathered_twice() -> Result<()> {
    let step = |(a, b, n): (Tensor, Tensor, Tensor), x: Tensor| {
        ((b.clone(), a.clone(), &n + 1), (x.clone(), a.clone(), a, n))
    };
    let a = values(&[2], 1);
    let b = values(&[2], 2);
    let xs = values(&[5, 2, 2], 3);
    let ((c, d, n), (same, first, second, count)) = scan(step, (&a, &b, 0), &xs)?;
    close(&c, &b);
    close(&d, &a);
    assert_eq!(n.item::<i32>()?, 5);
    close(&same, &xs);
    close(&first, &Tensor::stack(&[&a, &b, &a, &b, &a], 0));
    close(&second, &first);
    assert_eq!(count.to_vec::<i32>()?, [0, 1, 2, 3, 4]);
    Ok(())
}

#[test]
fn what_is_assigned_is_carried() -> Result<()> {
    let seen = Tensor::zeros([2]).parameter();
    let step = |sum: Tensor, x: Tensor| {
        seen.assign(&seen * 0.5 + &x);
        (sum + &seen, seen.clone())
    };
    let xs = values(&[6, 2], 1);
    let mut plain = vec![0.0f32; 2];
    let mut sum = vec![0.0f32; 2];
    let numbers = read(&xs);
    for row in numbers.chunks(2) {
        for k in 0..2 {
            plain[k] = plain[k] * 0.5 + row[k];
            sum[k] += plain[k];
        }
    }
    let (last, all) = scan(step, Tensor::zeros([2]), &xs)?;
    close(&last, &Tensor::new(&sum, [2]));
    close(&seen, &Tensor::new(&plain, [2]));
    close(&all.index(5), &Tensor::new(&plain, [2]));
    Ok(())
}

#[test]
fn random_numbers_differ_from_step_to_step_and_are_those_of_a_loop() -> Result<()> {
    let step = |sum: Tensor, x: Tensor| {
        let noise = Tensor::randn([4]) + Tensor::rand([4]);
        (sum + &noise * x, noise)
    };
    let xs = values(&[5, 4], 1);
    Tensor::manual_seed(3);
    let (last, all) = scan(step, Tensor::zeros([4]), &xs)?;
    let after = Tensor::rand([3]);
    Tensor::manual_seed(3);
    let mut sum = Tensor::zeros([4]);
    let mut every = Vec::new();
    for t in 0..5 {
        let (next, noise) = step(sum, xs.index(t));
        sum = next;
        every.push(noise);
    }
    let then = Tensor::rand([3]);
    let every: Vec<&Tensor> = every.iter().collect();
    close(&last, &sum);
    close(&all, &Tensor::stack(&every, 0));
    assert_eq!(read(&after), read(&then));
    Ok(())
}

#[test]
fn scans_are_captured() -> Result<()> {
    let (cell, xs, begin) = sequence(7);
    let step = jit(|xs: Tensor| -> Result<Tensor> {
        let (c, all) = cell.scan(&xs, &begin)?;
        let loss = c.square().sum(.., false) + all.sum(.., false);
        let g = loss.gradient(&[&cell.w])?.remove(0);
        cell.w.assign(&cell.w - g * 0.01);
        Ok(loss)
    })?;
    for k in 0..3 {
        let xs = &xs * (1.0 + k as f32);
        let (c, all) = cell.unrolled(&xs, &begin)?;
        let plain = read(&(c.square().sum(.., false) + all.sum(.., false)))[0];
        let captured = step.call(&xs)?.item::<f32>()?;
        assert!(
            (plain - captured).abs() < 1e-4 * (1.0 + plain.abs()),
            "{plain} {captured}"
        );
    }
    Ok(())
}

#[test]
fn any_length_is_one_step() -> Result<()> {
    let compiled = |times: i64| -> Result<_> {
        let net = Lstm::new(64, 128);
        net.realize()?;
        let xs = values(&[times, 32, 64], 4).parameter();
        let (all, _) = net.forward(&xs)?;
        let loss = all.square().mean(.., false);
        let g = loss.gradient(&net.parameters().iter().collect::<Vec<_>>())?;
        let mut roots = vec![loss.uop()?];
        for g in &g {
            roots.push(g.uop()?);
        }
        let compiled = compile(&roots)?;
        Ok((compiled.kernels, compiled.unique_kernels))
    };
    assert_eq!(compiled(50)?, compiled(500)?);
    Ok(())
}

pub(crate) fn scheduled(roots: &[UOp]) -> Result<Schedule> {
    let (function, _) = callify(roots, |_| true)?;
    let target = |d: Device| Ok(Arc::new(device::open(d)?.target().clone()));
    let home = engine::default_device();
    schedule(&function, home, &target, &mut Timings::default())
}

/// The LINEAR of these tensors: for each CALL the elements that its first argument has, and whether it is in a loop.
fn calls(tensors: &[&Tensor]) -> Result<Vec<(i64, bool)>> {
    let roots = tensors
        .iter()
        .map(|t| t.uop())
        .collect::<Result<Vec<_>>>()?;
    let schedule = scheduled(&roots)?;
    let mut within = false;
    let mut out = Vec::new();
    for u in schedule.linear.src() {
        match u.op() {
            Op::Range => within = true,
            Op::End => within = false,
            _ => out.push((u.src()[1].shape().max_len(), within)),
        }
    }
    Ok(out)
}

#[test]
fn a_sum_over_the_times_is_one_product() -> Result<()> {
    let w = values(&[16, 32], 1).parameter();
    let xs = values(&[9, 4, 16], 2).parameter();
    Tensor::realize_all(&[&w, &xs])?;
    let step = |h: Tensor, x: Tensor| {
        let h = (h * 0.5 + x.matmul(&w)).tanh();
        (h.clone(), h)
    };
    let (last, all) = scan(step, Tensor::zeros([4, 32]), &xs)?;
    let g = (last.sum(.., false) + all.square().sum(.., false)).gradient(&[&w, &xs])?;
    let calls = calls(&[&g[0], &g[1]])?;
    let of_weight = |within: bool| {
        let like = move |c: &&(i64, bool)| **c == (16 * 32, within);
        calls.iter().filter(like).count()
    };
    assert_eq!((of_weight(true), of_weight(false)), (0, 1), "{calls:?}");
    Ok(())
}

#[test]
fn what_does_not_depend_on_the_carry_is_done_for_all_times() -> Result<()> {
    let w = values(&[16, 8], 1);
    let xs = values(&[9, 4, 16], 2);
    let step = |(sum, count, same, norm): (Tensor, Tensor, Tensor, Tensor), x: Tensor| {
        let y = x.matmul(&w).relu() + &same;
        let carry = (&sum + y.sum(0, false) + 1.0, &count + 2, same, norm);
        (
            carry,
            (
                y.flip(1),
                x.pad(&[[1, 0], [0, 0]], PadMode::Constant(3.0))
                    .transpose(0, 1),
            ),
        )
    };
    let carry = (Tensor::ones([8]), 7, 0.25f32, Tensor::zeros([3]));
    let ((sum, count, same, norm), (ys, padded)) = scan(step, carry, &xs)?;
    let within = calls(&[&sum, &count, &same, &norm, &ys, &padded])?;
    assert!(within.iter().all(|(_, within)| !within), "{within:?}");
    let all = xs.matmul(&w).relu() + 0.25;
    close(&sum, &(all.sum([0, 1], false) + 10.0));
    assert_eq!(count.item::<i32>()?, 25);
    assert_eq!(read(&same), [0.25]);
    close(&norm, &Tensor::zeros([3]));
    close(&ys, &all.flip(2));
    close(
        &padded,
        &xs.pad(&[[0, 0], [1, 0], [0, 0]], PadMode::Constant(3.0))
            .transpose(1, 2),
    );
    Ok(())
}

#[test]
fn sums_that_are_seen_on_the_way_stay_in_the_scan() -> Result<()> {
    let xs = values(&[6, 5], 2);
    let step = |(a, b, c): (Tensor, Tensor, Tensor), x: Tensor| {
        let next = &a + &x;
        let b = &b + &next;
        // Narrow floats round each time.
        let c = &c + x.cast(DType::F16);
        ((next.clone(), b, c), next)
    };
    let zeros = || Tensor::zeros([5]);
    let carry = (zeros(), zeros(), zeros().cast(DType::F16));
    let ((a, b, c), all) = scan(step, carry, &xs)?;
    let running = xs.cumsum(0);
    close(&all, &running);
    close(&a, &xs.sum(0, false));
    close(&b, &running.sum(0, false));
    let mut plain = zeros().cast(DType::F16);
    for t in 0..6 {
        plain = (plain + xs.index(t).cast(DType::F16)).contiguous();
        plain.realize()?;
    }
    assert_eq!(read(&c.cast(DType::F32)), read(&plain.cast(DType::F32)));
    Ok(())
}

#[test]
fn nobody_computes_what_nobody_takes() -> Result<()> {
    let xs = values(&[9, 4], 2);
    let w = values(&[4, 64], 3);
    let step = |(h, big): (Tensor, Tensor), x: Tensor| {
        let h = (h + &x).tanh();
        let big = (big + h.matmul(&w)).sin();
        ((h.clone(), big.clone()), (h, big))
    };
    let ((h, _), _) = scan(step, (Tensor::zeros([4]), Tensor::zeros([64])), &xs)?;
    let sizes = calls(&[&h])?;
    assert!(sizes.iter().all(|(n, _)| *n == 4), "{sizes:?}");
    let mut plain = Tensor::zeros([4]);
    for t in 0..9 {
        plain = (plain + xs.index(t)).tanh();
    }
    close(&h, &plain);
    Ok(())
}

#[test]
fn no_times_and_mistakes() -> Result<()> {
    let step = |a: Tensor, x: Tensor| (&a + &x, x);
    let (last, all) = scan(step, Tensor::ones([2]), Tensor::zeros([0, 2]))?;
    assert_eq!(read(&last), [1.0, 1.0]);
    assert_eq!(all.shape()?, [0, 2]);
    let grows = |a: Tensor, x: Tensor| (Tensor::cat(&[&a, &x], 0), x);
    let e = scan(grows, Tensor::ones([2]), Tensor::zeros([3, 2]));
    let e = e.map(|_| ()).expect_err("the carry grows").to_string();
    assert!(e.contains("carry 0") && e.contains("scans.rs"), "{e}");
    let read = |a: Tensor, x: Tensor| -> Result<(Tensor, Tensor)> {
        x.to_vec::<f32>()?;
        Ok((a, x))
    };
    let e = scan(read, Tensor::ones([2]), Tensor::zeros([3, 2]));
    let e = e.map(|_| ()).expect_err("it reads").to_string();
    assert!(
        e.contains("only in a call") && e.contains("scans.rs"),
        "{e}"
    );
    let two = |a: Tensor, (x, y): (Tensor, Tensor)| (a + x + y, ());
    let e = scan(
        two,
        Tensor::ones([2]),
        (Tensor::zeros([3, 2]), Tensor::zeros([4, 2])),
    );
    let e = e.map(|_| ()).expect_err("lengths differ").to_string();
    assert!(e.contains("3 and 4"), "{e}");
    Ok(())
}

#[test]
fn what_a_step_looks_up_is_checked() -> Result<()> {
    let table = values(&[4, 2], 1).parameter();
    let look_up = |(sum, at): (Tensor, Tensor), id: Tensor| {
        let row = table.embedding(&id);
        // The next place to look at follows from the carry.
        let own = table.embedding(&at).square();
        ((sum + &row * &own, (at + id) % 4), (row, own))
    };
    let ids = [0i32, 3, 1, 1, 2];
    let carry = || (Tensor::ones([2]), 0);
    let ((sum, _), (rows, own)) = scan(look_up, carry(), Tensor::new(&ids, [5]))?;
    let mut at = 0;
    let mut plain = Tensor::ones([2]);
    let mut every = Vec::new();
    for id in ids {
        let row = table.index(i64::from(id));
        let own = table.index(at).square();
        plain = plain + &row * &own;
        every.push(row);
        at = (at + i64::from(id)) % 4;
    }
    close(&sum, &plain);
    close(&rows, &Tensor::stack(&every.iter().collect::<Vec<_>>(), 0));
    let loss = |t: &Tensor| t.square().sum(.., false);
    let g = (loss(&sum) + own.sum(.., false)).gradient(&[&table])?;
    let h = (loss(&plain)
        + scan(look_up, carry(), Tensor::new(&ids, [5]))?
            .1
            .1
            .sum(.., false))
    .gradient(&[&table])?;
    close(&g[0], &h[0]);
    let wrong = [0i32, 3, 9, 1, 2];
    let (_, (rows, _)) = scan(look_up, carry(), Tensor::new(&wrong, [5]))?;
    let e = rows
        .to_vec::<f32>()
        .expect_err("there is no row 9")
        .to_string();
    assert!(
        e.contains("9") && e.contains("[2]") && e.contains("scans.rs"),
        "{e}"
    );
    let captured = jit(|ids: Tensor| Ok(scan(look_up, carry(), ids)?.0.0))?;
    close(&captured.call(Tensor::new(&ids, [5]))?, &plain);
    let e = captured.call(Tensor::new(&wrong, [5])).map(|_| ());
    let e = e.expect_err("there is no row 9").to_string();
    assert!(e.contains("9"), "{e}");
    close(&captured.call(Tensor::new(&ids, [5]))?, &plain);
    Ok(())
}

#[test]
fn a_function_that_looks_up_within_a_step_is_checked() -> Result<()> {
    let table = values(&[4, 2], 1);
    let row = function(|table: Tensor, id: Tensor| table.embedding(&id));
    let step = |sum: Tensor, id: Tensor| (sum + row.apply((&table, &id)), ());
    let (sum, ()) = scan(step, Tensor::zeros([2]), Tensor::new(&[1i32, 2], [2]))?;
    close(&sum, &(table.index(1) + table.index(2)));
    let (sum, ()) = scan(step, Tensor::zeros([2]), Tensor::new(&[1i32, 4], [2]))?;
    let e = sum
        .to_vec::<f32>()
        .expect_err("there is no row 4")
        .to_string();
    assert!(e.contains("4") && e.contains("[1]"), "{e}");
    Ok(())
}

/// For each of `outer` times, a scan over `inner` ones whose carry goes on.
fn nested(w: &Tensor, xs: &Tensor, begin: &Tensor) -> Result<(Tensor, Tensor)> {
    let row = |h: Tensor, x: Tensor| -> Result<(Tensor, (Tensor, Tensor))> {
        let step = |(h, s): (Tensor, Tensor), x: Tensor| {
            let h = (h.matmul(w) + x).tanh();
            ((h.clone(), s + h.square()), h)
        };
        let ((last, sum), all) = scan_reversed(step, (&h, &h), x)?;
        Ok((&last * 0.5 + h, (sum, all)))
    };
    let (last, (sums, all)) = scan(row, begin, xs)?;
    Ok((last + sums.sum(0, false), all))
}

#[test]
fn a_scan_within_a_scan() -> Result<()> {
    for (outer, inner) in [(1, 1), (1, 4), (2, 3), (3, 1), (5, 6), (6, 5), (7, 7)] {
        let w = values(&[3, 3], 1).parameter();
        let begin = values(&[2, 3], 2).parameter();
        let xs = values(&[outer, inner, 2, 3], 3).parameter();
        let (last, all) = nested(&w, &xs, &begin)?;
        let mut h = begin.clone();
        let mut sums = Tensor::zeros([2, 3]);
        let mut every = Vec::new();
        for t in 0..outer {
            let mut state = (h.clone(), h.clone());
            let mut row = Vec::new();
            for k in (0..inner).rev() {
                let next = (state.0.matmul(&w) + xs.index(t).index(k)).tanh();
                state = (next.clone(), state.1 + next.square());
                row.insert(0, next);
            }
            every.push(Tensor::stack(&row.iter().collect::<Vec<_>>(), 0));
            h = &state.0 * 0.5 + h;
            sums = sums + state.1;
        }
        let plain = h + sums;
        let every = Tensor::stack(&every.iter().collect::<Vec<_>>(), 0);
        close(&last, &plain);
        close(&all, &every);
        let targets = [&w, &begin, &xs];
        let loss = |a: &Tensor, b: &Tensor| a.square().sum(.., false) + b.sin().sum(.., false);
        let one = loss(&last, &all).gradient(&targets)?;
        let other = loss(&plain, &every).gradient(&targets)?;
        for (a, b) in one.iter().zip(&other) {
            close(a, b);
        }
        let captured = jit(|xs: Tensor| {
            let (last, all) = nested(&w, &xs, &begin)?;
            loss(&last, &all).gradient(&targets[..2])
        })?;
        for _ in 0..2 {
            let g = captured.call(&xs)?;
            close(&g[0], &other[0]);
            close(&g[1], &other[1]);
        }
    }
    Ok(())
}

/// What a derivative keeps of a step is a PARAM of its own program, which is one node with those of others: that it
/// was made by tanh once says nothing of them.
#[test]
fn gradients_are_the_same_each_time() -> Result<()> {
    let w = values(&[3, 3], 1).parameter();
    let begin = (values(&[2, 3], 2), values(&[2, 3], 4));
    let xs = values(&[3, 2, 3], 3);
    let step = |(h, s): (Tensor, Tensor), x: Tensor| {
        let h = (h.matmul(&w) + x).tanh();
        ((h.clone(), s + &h), h)
    };
    let mut state = begin.clone();
    for t in 0..3 {
        state = step(state, xs.index(t)).0;
    }
    let loss = |h: &Tensor, s: &Tensor| (h.square() + s.square()).sum(.., false);
    let want = loss(&state.0, &state.1).gradient(&[&w])?;
    for _ in 0..3 {
        let ((h, s), _) = scan(step, (&begin.0, &begin.1), &xs)?;
        let got = loss(&h, &s).gradient(&[&w])?;
        close(&got[0], &want[0]);
    }
    Ok(())
}

#[test]
fn scans_in_functions_and_gradients_of_gradients_of_nested_ones() -> Result<()> {
    let w = values(&[3, 3], 1).parameter();
    let xs = values(&[3, 4, 2, 3], 3).parameter();
    let begin = values(&[2, 3], 2).parameter();
    let whole = function(|w: Tensor, xs: Tensor, begin: Tensor| nested(&w, &xs, &begin));
    let second = |last: Tensor, all: Tensor| -> Result<Vec<Tensor>> {
        let loss = last.square().sum(.., false) + all.square().sum(.., false);
        let g = loss.gradient(&[&w, &xs])?;
        (g[0].square().sum(.., false) + g[1].square().sum(.., false)).gradient(&[&w, &begin])
    };
    let (last, all) = nested(&w, &xs, &begin)?;
    let (a, b) = whole.call((&w, &xs, &begin))?;
    let (c, d) = whole.call((&w, &xs * 1.0, &begin))?;
    close(&a, &last);
    close(&d, &all);
    close(&b, &d);
    close(&c, &a);
    let one = second(last, all)?;
    let other = second(a, b)?;
    close(&one[0], &other[0]);
    close(&one[1], &other[1]);
    Ok(())
}

#[test]
fn what_a_time_needs_for_itself_shares_storage() -> Result<()> {
    let n = 64;
    let w = values(&[n, n], 1);
    let xs = values(&[9, n, n], 2);
    Tensor::realize_all(&[&w, &xs])?;
    let step = |h: Tensor, x: Tensor| {
        let mut y = h + x;
        for _ in 0..6 {
            y = y.matmul(&w).tanh().contiguous();
        }
        (y, ())
    };
    let (last, ()) = scan(step, Tensor::zeros([n, n]), &xs)?;
    let schedule = scheduled(&[last.uop()?])?;
    let plan = &schedule.plan;
    let one = (n * n * 4) as usize;
    let temporaries = plan.allocations.iter().filter(|a| a.bytes == one).count();
    assert!(temporaries > 12, "{temporaries}");
    // A carry and its second buffer, and two between kernels; one is left for what sums take besides.
    assert!(plan.peak(plan.devices()[0]) <= 5 * one, "{plan:?}");
    let lives: Vec<_> = plan.allocations.iter().filter(|a| a.bytes > 0).collect();
    for (i, a) in lives.iter().enumerate() {
        for b in lives[..i].iter().filter(|b| b.memory == a.memory) {
            let at_once = a.steps.0 <= b.steps.1 && b.steps.0 <= a.steps.1;
            let apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
            assert!(!at_once || apart, "{a:?} {b:?}");
        }
    }
    let mut plain = Tensor::zeros([n, n]);
    for t in 0..9 {
        plain = step(plain, xs.index(t)).0;
    }
    close(&last, &plain);
    Ok(())
}

#[test]
fn a_length_that_varies_is_refused_by_name() -> Result<()> {
    let xs = values(&[5, 2], 1).dynamic(0, 1..=8);
    let step = |a: Tensor, x: Tensor| (a + x, ());
    let e = scan(step, Tensor::zeros([2]), &xs).map(|_| ());
    let e = e.expect_err("it varies").to_string();
    assert!(
        e.contains("length that varies") && e.contains("scans.rs"),
        "{e}"
    );
    Ok(())
}
