//! Loops of one step.

use crate::{close, read, values};
use monoglot::compiler::engine::compile;
use monoglot::prelude::*;
use monoglot::{scan, scan_reversed};

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
        let (cell, xs, begin) = sequence(times);
        let (c, all) = cell.scan(&xs, &begin)?;
        let loss = c.square().sum(.., false) + all.sum(.., false);
        let g = loss.gradient(&[&cell.w, &cell.u])?;
        let compiled = compile(&[loss.uop()?, g[0].uop()?, g[1].uop()?])?;
        Ok((compiled.kernels, compiled.unique_kernels))
    };
    assert_eq!(compiled(50)?, compiled(500)?);
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
    let table = values(&[4, 2], 1);
    let look_up = |a: Tensor, id: Tensor| (a + table.embedding(&id), ());
    let e = scan(look_up, Tensor::ones([2]), Tensor::new(&[0i32, 3, 9], [3]));
    let e = e.map(|_| ()).expect_err("it is checked").to_string();
    assert!(e.contains("before the scan"), "{e}");
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
