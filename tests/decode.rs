//! A decoder that is captured, with a cache and a position that varies. Flows in: the façade; flows out: logits
//! against those of the whole sequence, and the engine's counters, which are the process's: nothing else is
//! tested in this one.

use monoglot::models::Gpt2;
use monoglot::prelude::*;
use monoglot::{Size, counters};

const ROOM: usize = 24;

#[test]
fn tokens_after_the_second_compile_nothing() -> Result<()> {
    Tensor::manual_seed(8);
    let net = Gpt2::with(2, 32, 4, 50, ROOM);
    net.realize()?;
    let cache = net.cache(ROOM);
    let at = Variable::new(0..=ROOM as i64 - 1)?;
    let next = jit(|id: &Tensor, at: &Size| -> (Tensor, Tensor) {
        let logits = net.decode(id, &cache, at).reshape([50]);
        (logits.argmax(0, false).reshape([1, 1]), logits)
    })?;
    let mut ids = vec![7i32];
    let mut id = Tensor::new(&[7i32], [1, 1]);
    let mut all = Vec::new();
    let mut made = Vec::new();
    for n in 0..ROOM {
        let before = counters();
        let (found, logits) = next.call((&id, at.bind(n)?))?;
        all.push(logits.to_vec::<f32>()?);
        ids.push(found.item::<i32>()?);
        id = found;
        let now = counters();
        made.push((
            now.schedules - before.schedules,
            now.compiled - before.compiled,
        ));
    }
    assert!(made[1..].iter().all(|m| *m == (0, 0)), "{made:?}");
    assert_eq!(next.programs(), 1);
    for n in [1, 2, 9, ROOM] {
        let whole = net.next(&Tensor::new(&ids[..n], [1, n])).to_vec::<f32>()?;
        for (got, want) in all[n - 1].iter().zip(&whole) {
            assert!((got - want).abs() < 1e-4, "{n}: {got} {want}");
        }
    }
    // What was there stays: a token that is told again gets the same answer.
    let (_, again) = next.call((Tensor::new(&[ids[ROOM - 1]], [1, 1]), at.bind(ROOM - 1)?))?;
    assert_eq!(again.to_vec::<f32>()?, all[ROOM - 1]);
    Ok(())
}
