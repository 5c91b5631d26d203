//! BERT as a sentence encoder: MiniLM's sizes unless others are given. Flows in: word numbers (n,
//! t); flows out: hidden states (n, t, width).

use crate::attention::{join, split};
use monoglot_nn::{Embedding, LayerNorm, Linear, module};
use monoglot_tensor::{Tensor, function};

/// Added to the variance in every normalisation.
const EPS: f64 = 1e-12;

/// One layer: attention and a network of two linear maps, each added to its input and normalised.
#[derive(Debug)]
pub struct BertLayer {
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    ln1: LayerNorm,
    up: Linear,
    down: Linear,
    ln2: LayerNorm,
    heads: usize,
}
module!(BertLayer {
    q,
    k,
    v,
    o,
    ln1,
    up,
    down,
    ln2
});

impl BertLayer {
    /// Of `width`, with `inner` in the middle of the second half.
    #[track_caller]
    pub fn new(width: usize, inner: usize, heads: usize) -> BertLayer {
        BertLayer {
            q: Linear::new(width, width),
            k: Linear::new(width, width),
            v: Linear::new(width, width),
            o: Linear::new(width, width),
            ln1: LayerNorm::with(width, EPS),
            up: Linear::new(width, inner),
            down: Linear::new(inner, width),
            ln2: LayerNorm::with(width, EPS),
            heads,
        }
    }

    /// (N, T, width) → the same shape.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let [q, k, v] = [&self.q, &self.k, &self.v].map(|l| split(&l.forward(x), self.heads));
        let a = join(&q.attention(&k, &v, None, false));
        let x = self.ln1.forward(&(x + self.o.forward(&a)));
        let f = self.down.forward(&self.up.forward(&x).gelu());
        self.ln2.forward(&(x + f))
    }
}

/// Embeddings of words, positions and the first segment, and a stack of layers.
#[derive(Debug)]
pub struct Bert {
    word: Embedding,
    position: Embedding,
    segment: Embedding,
    ln: LayerNorm,
    layers: Vec<BertLayer>,
}
module!(Bert {
    word,
    position,
    segment,
    ln,
    layers
});

impl Bert {
    /// MiniLM: 384 wide, 12 heads, 1536 inside, with this many layers (6).
    #[track_caller]
    pub fn minilm(layers: usize) -> Bert {
        let width = 384;
        let inner = 1536;
        let heads = 12;
        Bert {
            word: Embedding::new(30_522, width),
            position: Embedding::new(512, width),
            segment: Embedding::new(2, width),
            ln: LayerNorm::with(width, EPS),
            layers: (0..layers)
                .map(|_| BertLayer::new(width, inner, heads))
                .collect(),
        }
    }

    /// Word numbers (N, T) → hidden states (N, T, width).
    #[track_caller]
    pub fn forward(&self, ids: &Tensor) -> Tensor {
        let t = ids.shape().map_or(0, |s| s.last().copied().unwrap_or(0));
        let x = self.word.forward(ids)
            + self.position.weight.narrow(0, 0, t as i64)
            + self.segment.weight.index(0);
        let mut x = self.ln.forward(&x);
        for layer in &self.layers {
            // Layers are compiled once.
            x = function(|x: &Tensor| layer.forward(x)).apply(&x);
        }
        x
    }
}
