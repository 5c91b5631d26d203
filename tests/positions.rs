//! Decoding at any position of a cache, and rows of a batch at positions of their own. Flows in: the façade; flows
//! out: the engine's counters, which are the process's, and values beside those of whole sequences.

use monoglot::counters;
use monoglot::models::Gpt2;
use monoglot::prelude::*;
use monoglot::{Counters, Event, Size, listen};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// What every test holds: the counts are of all threads.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

const ROOM: usize = 1024;

#[test]
fn no_position_of_a_thousand_compiles_anything() -> Result<()> {
    let _one = alone();
    Tensor::manual_seed(2);
    let net = Gpt2::with(2, 32, 4, 50, ROOM);
    net.realize()?;
    let cache = net.cache(ROOM);
    let at = Variable::new(0..=ROOM as i64 - 1)?;
    let next = jit(|id: &Tensor, at: &Size| -> Tensor {
        net.decode(id, &cache, at)
            .reshape([50])
            .argmax(0, false)
            .reshape([1, 1])
    })?;
    let mut id = Tensor::new(&[7i32], [1, 1]);
    let mut ids = vec![7i32];
    let mut second: Option<Counters> = None;
    for n in 0..ROOM {
        id = next.call((&id, at.bind(n)?))?;
        ids.push(id.item::<i32>()?);
        let now = counters();
        let then = *second.get_or_insert(now);
        if n < 2 {
            second = Some(now);
            continue;
        }
        assert_eq!(
            (now.schedules, now.compiled),
            (then.schedules, then.compiled),
            "{n}"
        );
        // Whatever the position, a token leaves nothing behind.
        assert!(
            now.in_use <= then.in_use + (1 << 20),
            "{n}: {now:?} {then:?}"
        );
    }
    for n in [1, 3, 200, ROOM] {
        let whole = net.next(&Tensor::new(&ids[..n], [1, n]));
        assert_eq!(
            whole.reshape([50]).argmax(0, false).item::<i32>()?,
            ids[n],
            "{n}"
        );
    }
    Ok(())
}

/// Rows of a cache (rows, room, width), each filled up to a position of its own: what a query of each finds there.
fn attended(q: &Tensor, keys: &Tensor, values: &Tensor, positions: &Tensor, most: &Size) -> Tensor {
    let k = keys.narrow(1, 0, most);
    let v = values.narrow(1, 0, most);
    let places = Tensor::arange(0, 64, 1).narrow(0, 0, most);
    let seen = places.unsqueeze(0).le(positions.unsqueeze(1)).unsqueeze(1);
    q.attention(&k, &v, Some(&seen), false)
}

#[test]
fn rows_of_a_batch_stand_at_positions_of_their_own() -> Result<()> {
    let _one = alone();
    Tensor::manual_seed(4);
    let [keys, values] = [(); 2].map(|()| Tensor::randn([3, 64, 8]).contiguous());
    Tensor::realize_all(&[&keys, &values])?;
    let most = Variable::new(1..=64)?;
    let step = jit(|q: &Tensor, positions: &Tensor, most: &Size| -> Tensor {
        attended(q, &keys, &values, positions, most)
    })?;
    let mut made = None;
    for positions in [[0, 5, 2], [9, 63, 1], [3, 3, 3], [63, 0, 31]] {
        let q = Tensor::randn([3, 1, 8]).contiguous();
        q.realize()?;
        let longest = positions.iter().max().copied().unwrap_or(0) + 1;
        let where_ = Tensor::new(&positions, [3]);
        let got = step
            .call((&q, &where_, most.bind(longest)?))?
            .to_vec::<f32>()?;
        let now = counters();
        let then = *made.get_or_insert(now);
        assert_eq!(now.compiled, then.compiled, "{positions:?}");
        for (row, &p) in positions.iter().enumerate() {
            let part = |t: &Tensor| t.narrow(0, row as i64, 1);
            let cut = |t: &Tensor| part(t).narrow(1, 0, i64::from(p) + 1);
            let alone = part(&q).attention(&cut(&keys), &cut(&values), None, false);
            let alone = alone.to_vec::<f32>()?;
            made = Some(counters());
            for (g, w) in got[row * 8..][..8].iter().zip(&alone) {
                assert!((g - w).abs() < 1e-5, "{positions:?} {row}: {g} {w}");
            }
        }
    }
    assert_eq!(step.programs(), 1);
    Ok(())
}

/// Bytes that the kernels of these calls move.
fn moved(f: impl FnOnce() -> Result<()>) -> Result<u64> {
    let all = Arc::new(AtomicU64::new(0));
    let sum = all.clone();
    let listener = listen(move |e: &Event| {
        sum.fetch_add(e.bytes, Ordering::Relaxed);
    });
    f()?;
    drop(listener);
    Ok(all.load(Ordering::Relaxed))
}

#[test]
fn rows_of_a_cache_cost_what_rows_do() -> Result<()> {
    let _one = alone();
    let [keys, values] = [(); 2].map(|()| Tensor::zeros([2, 512, 16]).parameter());
    let row = Tensor::arange(0, 32, 1)
        .cast(DType::F32)
        .reshape([2, 1, 16]);
    Tensor::realize_all(&[&keys, &values, &row])?;
    let at = Variable::new(0..=511)?;
    let step = jit(|x: &Tensor, at: &Size| {
        let twice = x * 2.0;
        keys.narrow(1, at, 1).assign(&twice);
        values.narrow(1, at, 1).assign(twice.square());
    })?;
    step.call((&row, at.bind(1)?))?;
    let bytes = moved(|| {
        step.call((&row, at.bind(0)?))?;
        step.call((&row, at.bind(511)?))?;
        // Without a captured step, and two rows at once, from the middle on.
        keys.narrow(1, 200, 2).assign(&row);
        values.narrow(1, at.bind(300)?, 2).assign(&row * 3.0);
        Tensor::realize_all(&[&keys, &values])
    })?;
    assert!(bytes < 4096, "{bytes} bytes for 4 writes of at most 4 rows");
    let row = row.to_vec::<f32>()?;
    let [keys, values] = [keys.to_vec::<f32>()?, values.to_vec::<f32>()?];
    for i in 0..2 * 512 * 16 {
        let x = row[i / (512 * 16) * 16 + i % 16];
        let [k, v] = match i / 16 % 512 {
            0 | 1 | 511 => [2.0 * x, 4.0 * x * x],
            200 | 201 => [x, 0.0],
            300 | 301 => [0.0, 3.0 * x],
            _ => [0.0; 2],
        };
        assert_eq!([keys[i], values[i]], [k, v], "{i}");
    }
    Ok(())
}
