//! Assignment to views against plain loops: slices with steps of both signs, right sides that read
//! what is being written, views of assigned and of realized buffers, views of views. Flows in:
//! random slices; flows out: comparisons.

use monoglot_tensor::{Index, Result, Tensor, Variable};

fn i32s(t: &Tensor) -> Vec<i32> {
    t.to_vec().expect("i32 values")
}

fn on_interpreter() {
    monoglot_engine::set_default_device(monoglot_tensor::Device::new("INTERP"));
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: i64) -> i64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as i64 % n
    }
}

/// The positions that Python's slice of n elements names.
fn places(n: i64, start: Option<i64>, stop: Option<i64>, step: i64) -> Vec<usize> {
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let place = |v: Option<i64>, missing| {
        v.map_or(missing, |v| {
            (if v < 0 { v + n } else { v }).clamp(low, high)
        })
    };
    let (first, missing) = if step > 0 { (0, n) } else { (n - 1, -1) };
    let mut at = place(start, first);
    let end = place(stop, missing);
    let mut out = Vec::new();
    while if step > 0 { at < end } else { at > end } {
        out.push(at as usize);
        at += step;
    }
    out
}

#[test]
fn slices_of_slices_are_written_where_they_stand() {
    on_interpreter();
    let mut r = Random(3);
    let rows = 5i64;
    let columns = 7i64;
    for round in 0..60 {
        let mut want: Vec<i32> = (0..35).collect();
        let t = Tensor::new(&want, [5, 7]);
        // A tensor as it comes, one that is stored, one that was written already.
        match round % 3 {
            1 => t.realize().unwrap(),
            2 => {
                t.set_at(0, 9);
                want[..7].fill(9);
            }
            _ => {}
        }
        let mut slice = |n: i64| -> (Index, Vec<usize>) {
            let mut end = || {
                if r.below(4) == 0 {
                    None
                } else {
                    Some(r.below(2 * n + 1) - n)
                }
            };
            let start = end();
            let stop = end();
            let step = [-3, -2, -1, 1, 2, 3][r.below(6) as usize];
            (Index::step(start, stop, step), places(n, start, stop, step))
        };
        let (a, of_rows) = slice(rows);
        let (b, of_columns) = slice(columns);
        let part = t.index((a, b));
        // A view of the view.
        let (c, again) = slice(of_rows.len() as i64);
        let inner = part.index(c);
        let written: Vec<usize> = again
            .iter()
            .flat_map(|&i| of_columns.iter().map(move |&j| (i, j)))
            .map(|(i, j)| of_rows[i] * 7 + j)
            .collect();
        let name = format!("round {round}: {of_rows:?} {of_columns:?} {again:?}");
        let old: Vec<i32> = written.iter().map(|&k| want[k]).collect();
        // The right side reads the view back to front, and the whole tensor.
        let total: i64 = want.iter().map(|&v| v as i64).sum();
        let first = inner.shape().unwrap()[0];
        inner.assign(inner.flip(0) + t.sum(.., false));
        for (k, &place) in written.iter().enumerate() {
            let i = k / of_columns.len();
            let j = k % of_columns.len();
            want[place] = old[(first - 1 - i) * of_columns.len() + j] + total as i32;
        }
        assert_eq!(i32s(&t), want, "{name}");
        assert_eq!(
            i32s(&inner),
            written.iter().map(|&k| want[k]).collect::<Vec<_>>(),
            "{name}"
        );
        // Once more, through the same view, now that its base is stored.
        t.realize().unwrap();
        inner.assign(&inner * 2 - 1);
        written.iter().for_each(|&k| want[k] = want[k] * 2 - 1);
        assert_eq!(i32s(&t), want, "{name}, again");
    }
}

#[test]
fn a_value_is_read_before_it_is_replaced() {
    on_interpreter();
    let v: Vec<i32> = (0..12).collect();
    let fresh = || Tensor::new(&v, [12]);
    let t = fresh();
    t.assign(t.flip(0) + 1);
    assert_eq!(i32s(&t), (1..13).rev().collect::<Vec<_>>());
    let t = fresh();
    t.realize().unwrap();
    t.assign(t.roll([5], [0]) * &t);
    assert_eq!(
        i32s(&t),
        (0..12).map(|i| i * ((i + 7) % 12)).collect::<Vec<_>>()
    );
    // A matrix by its own transpose.
    let m = fresh().narrow(0, 0, 9).reshape([3, 3]).contiguous();
    m.realize().unwrap();
    m.assign(m.t());
    assert_eq!(i32s(&m), [0, 3, 6, 1, 4, 7, 2, 5, 8]);
    // Each half from the other, one after the other: the second sees the first.
    let t = fresh();
    t.set_at(..6, t.index(6..));
    t.set_at(6.., t.index(..6) + 100);
    assert_eq!(i32s(&t), [6, 7, 8, 9, 10, 11, 106, 107, 108, 109, 110, 111]);
    // What was read before stays what it was, however it is interleaved.
    let t = fresh();
    let mut kept = Vec::new();
    for k in 0..5i64 {
        kept.push((&t * 1, i32s(&t)));
        t.set_at(
            Index::step(k, None, k + 2),
            t.index(Index::step(k, None, k + 2)).flip(0),
        );
        if k % 2 == 0 {
            t.realize().unwrap();
        }
    }
    for (t, want) in kept {
        assert_eq!(i32s(&t), want);
    }
}

#[test]
fn a_view_writes_its_base_after_both_are_stored() {
    on_interpreter();
    let t = Tensor::new(&[1i32, 2, 3, 4, 5, 6], [2, 3]);
    let column = t.index((.., 1));
    let row = t.index(1);
    Tensor::realize_all(&[&t, &column, &row]).unwrap();
    column.assign(0);
    assert_eq!(i32s(&t), [1, 0, 3, 4, 0, 6]);
    // A view is a value of its own time; writing it writes its places in the base of now.
    assert_eq!(i32s(&row), [4, 5, 6]);
    row.index(Index::step(None, None, -2))
        .assign(Tensor::new(&[7i32, 8], [2]));
    assert_eq!(i32s(&t), [1, 0, 3, 8, 0, 7]);
    // Whose base nobody has any more is a tensor like others.
    let alone = Tensor::new(&[1i32, 2, 3, 4], [4]).reshape([2, 2]);
    alone.set_at((0, 1), 9);
    assert_eq!(i32s(&alone), [1, 9, 3, 4]);
    alone.assign(alone.t());
    assert_eq!(i32s(&alone), [1, 3, 9, 4]);
    // A long line of views, in a small stack.
    let work = || {
        let t = Tensor::new(&[0i32; 6], [6]);
        let mut v = t.clone();
        for k in 0..20_000 {
            v = if k % 2 == 0 {
                v.reshape([2, 3])
            } else {
                v.reshape([6])
            };
        }
        v.flip(0).narrow(0, 1, 2).assign(5);
        assert_eq!(i32s(&t), [0, 0, 0, 5, 5, 0]);
    };
    let small = std::thread::Builder::new()
        .stack_size(512 << 10)
        .spawn(work)
        .expect("starts");
    small.join().expect("no overflow");
}

#[test]
fn a_known_axis_is_cut_beside_one_that_varies() -> Result<()> {
    on_interpreter();
    let rows = Variable::new(1..=4)?;
    let x = Tensor::arange(0, 24, 1).reshape([4, 6]);
    let some = x.narrow(0, 0, rows.bind(2)?);
    let last = &some.chunk(3, 1)[2];
    assert_eq!(last.to_vec::<i32>()?, [4, 5, 10, 11]);
    let last = &some.split([5, 1], -1)[1];
    assert_eq!(last.to_vec::<i32>()?, [5, 11]);
    let along = &some.chunk(2, 0)[0];
    assert!(along.check().is_err(), "its number of pieces would vary");
    Ok(())
}
