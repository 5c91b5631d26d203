//! A sequence that grows by one token a step, through a transformer. Flows in: the façade; flows out:
//! logits against those of the plain sequence, and the engine's counters, which are the process's:
//! nothing else is tested in this one.

use monoglot::counters;
use monoglot::prelude::*;

struct Block {
    norm: LayerNorm,
    qkv: Linear,
    out: Linear,
    up: Linear,
    down: Linear,
}
module!(Block {
    norm,
    qkv,
    out,
    up,
    down
});

const WIDTH: i64 = 24;
const HEADS: i64 = 3;
const MOST: i64 = 64;

impl Block {
    fn new() -> Block {
        Block {
            norm: LayerNorm::new(WIDTH as usize),
            qkv: Linear::new(WIDTH as usize, 3 * WIDTH as usize),
            out: Linear::new(WIDTH as usize, WIDTH as usize),
            up: Linear::new(WIDTH as usize, 48),
            down: Linear::new(48, WIDTH as usize),
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let qkv = self.qkv.forward(&self.norm.forward(x));
        let part = |k: i64| {
            qkv.narrow(-1, k * WIDTH, WIDTH)
                .unflatten(-1, [HEADS, WIDTH / HEADS])
                .transpose(1, 2)
        };
        let mixed = part(0).attention(&part(1), &part(2), None, true);
        let x = x + self.out.forward(&mixed.transpose(1, 2).flatten(-2, -1));
        &x + self.down.forward(&self.up.forward(&x).gelu())
    }
}

struct Gpt {
    tokens: Embedding,
    places: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}
module!(Gpt {
    tokens,
    places,
    blocks,
    norm,
    head
});

impl Gpt {
    /// Logits of the last token of (1, n) ids.
    fn last(&self, ids: &Tensor) -> Tensor {
        let n = ids.size(1).expect("ids have two axes");
        let places = self.places.weight.narrow(0, 0, n);
        let mut x = self.tokens.forward(ids) + places;
        for block in &self.blocks {
            x = block.forward(&x);
        }
        self.head.forward(&self.norm.forward(&x)).index((0, -1))
    }
}

#[test]
fn a_sequence_that_grows_compiles_twice_at_most() -> Result<()> {
    Tensor::manual_seed(5);
    let net = Gpt {
        tokens: Embedding::new(11, WIDTH as usize),
        places: Embedding::new(MOST as usize, WIDTH as usize),
        blocks: vec![Block::new(), Block::new()],
        norm: LayerNorm::new(WIDTH as usize),
        head: Linear::new(WIDTH as usize, 11),
    };
    let mut ids = vec![0i32; MOST as usize];
    let length = Variable::new(1..=MOST)?;
    let window = Tensor::new(&ids, [1, MOST]);
    window.realize()?;
    let mut seen = Vec::new();
    let mut logits = Vec::new();
    for n in 1..=MOST as usize {
        let before = counters();
        let all = net.last(&window.narrow(1, 0, length.bind(n)?));
        logits.push(all.to_vec::<f32>()?);
        let next = all.argmax(0, false).item::<i32>()?;
        if n < ids.len() {
            ids[n] = (next + n as i32) % 11;
            window.index((0, n)).assign(ids[n]);
            window.realize()?;
        }
        let after = counters();
        seen.push((
            after.schedules - before.schedules,
            after.compiled - before.compiled,
        ));
    }
    let late = &seen[2..];
    assert!(late.iter().all(|made| *made == (0, 0)), "{seen:?}");
    for n in [1usize, 2, 7, 33, 64] {
        let plain = net.last(&Tensor::new(&ids[..n], [1, n]));
        let want = plain.to_vec::<f32>()?;
        for (got, want) in logits[n - 1].iter().zip(&want) {
            assert!(
                (got - want).abs() < 1e-4,
                "{n}: {:?} {want:?}",
                logits[n - 1]
            );
        }
    }

    // What a length does not fit is an error at the user's line; what no operation takes yet names it.
    let e = length.bind(65).expect_err("65 of 64");
    assert!(e.to_string().contains("65 is outside 1..=64"), "{e}");
    let part = window.narrow(1, 0, length.bind(9)?);
    assert_eq!(part.shape()?, [1, 9]);
    assert!(part.reshape([9]).check().is_err());
    assert!(part.reshape((length.bind(9)?,)).check().is_ok());
    assert!(part.reshape([-1]).check().is_ok());
    assert!(part.narrow(1, 0, 10).check().is_err());
    let pieces = part.chunk(2, 1);
    let e = pieces[0]
        .check()
        .expect_err("pieces of a length that varies");
    assert!(e.to_string().contains("chunk"), "{e}");
    Ok(())
}
