//! GPT-2: a decoder whose logits share the word embedding. Flows in: word numbers (n, t) and
//! perhaps the keys and values of what came before; flows out: logits of the next word at each
//! place. Always: a position sees only itself and what came before it.

use crate::attention::{join, split};
use monoglot_nn::{Embedding, Init, LayerNorm, Linear, buffer, module};
use monoglot_tensor::{Size, Tensor, function};

/// Keys and values of the tokens so far, each (1, heads, room, width / heads).
#[derive(Debug)]
pub struct KeysAndValues {
    k: Tensor,
    v: Tensor,
}

impl KeysAndValues {
    /// Both, to be realized with the logits.
    pub fn tensors(&self) -> [&Tensor; 2] {
        [&self.k, &self.v]
    }
}

/// One layer: attention over what came before and a network of two linear maps, each normalised first
/// and added.
#[derive(Debug)]
pub struct Block {
    ln1: LayerNorm,
    qkv: Linear,
    proj: Linear,
    ln2: LayerNorm,
    up: Linear,
    down: Linear,
    heads: usize,
}
module!(Block {
    ln1,
    qkv,
    proj,
    ln2,
    up,
    down
});

impl Block {
    /// Of `width`.
    #[track_caller]
    pub fn new(width: usize, heads: usize) -> Block {
        Block {
            ln1: LayerNorm::new(width),
            qkv: Linear::new(width, 3 * width),
            proj: Linear::new(width, width),
            ln2: LayerNorm::new(width),
            up: Linear::new(width, 4 * width),
            down: Linear::new(4 * width, width),
            heads,
        }
    }

    /// (N, T, width) → the same shape; with a cache, the tokens are those from `position` on.
    #[track_caller]
    pub fn forward(
        &self,
        x: &Tensor,
        cache: Option<&KeysAndValues>,
        position: impl Into<Size>,
    ) -> Tensor {
        let position = position.into();
        let t = x.shape().map_or(0, |s| s[1] as i64);
        let qkv = self.qkv.forward(&self.ln1.forward(x));
        let mut parts = qkv.chunk(3, -1).into_iter().map(|z| split(&z, self.heads));
        let [q, mut k, mut v] =
            std::array::from_fn(|_| parts.next().unwrap_or_else(|| qkv.clone()));
        if let Some(cache) = cache {
            cache.k.narrow(2, &position, t).assign(&k);
            cache.v.narrow(2, &position, t).assign(&v);
            k = cache.k.narrow(2, 0, &position + t);
            v = cache.v.narrow(2, 0, &position + t);
        }
        let a = q.attention(&k, &v, None, t > 1);
        let x = x + self.proj.forward(&join(&a));
        let f = self
            .down
            .forward(&self.up.forward(&self.ln2.forward(&x)).gelu_tanh());
        x + f
    }
}

/// The whole model.
#[derive(Debug)]
pub struct Gpt2 {
    pub(crate) wte: Embedding,
    pub(crate) wpe: Embedding,
    pub(crate) blocks: Vec<Block>,
    pub(crate) ln: LayerNorm,
    heads: usize,
    width: usize,
}
module!(Gpt2 {
    wte,
    wpe,
    blocks,
    ln
});

impl Gpt2 {
    /// The small one: 768 wide, 12 heads, 50,257 words, 1,024 positions, with this many layers (12).
    #[track_caller]
    pub fn small(layers: usize) -> Gpt2 {
        Gpt2::with(layers, 768, 12, 50_257, 1024)
    }

    /// Of any size.
    #[track_caller]
    pub fn with(layers: usize, width: usize, heads: usize, words: usize, positions: usize) -> Gpt2 {
        Gpt2 {
            wte: Embedding::new(words, width),
            wpe: Embedding::new(positions, width),
            blocks: (0..layers).map(|_| Block::new(width, heads)).collect(),
            ln: LayerNorm::new(width),
            heads,
            width,
        }
    }

    /// Word numbers (N, T) → logits (N, T, words).
    #[track_caller]
    pub fn forward(&self, ids: &Tensor) -> Tensor {
        self.logits(&self.hidden(ids, None, &0.into()))
    }

    /// Word numbers (N, T) → logits of what comes after the last, (N, 1, words).
    #[track_caller]
    pub fn next(&self, ids: &Tensor) -> Tensor {
        let x = self.hidden(ids, None, &0.into());
        self.logits(&x.narrow(1, -1, 1))
    }

    /// The same for the tokens from `position` on, of which those before are in the cache: they are put
    /// there too. A position that is a variable's is one program for all its values.
    #[track_caller]
    pub fn decode(
        &self,
        ids: &Tensor,
        cache: &[KeysAndValues],
        position: impl Into<Size>,
    ) -> Tensor {
        self.logits(&self.hidden(ids, Some(cache), &position.into()))
    }

    /// A cache with room for `room` tokens of one sequence.
    #[track_caller]
    pub fn cache(&self, room: usize) -> Vec<KeysAndValues> {
        let shape = [1, self.heads, room, self.width / self.heads];
        let zeros = || buffer(&shape, Init::Full(0.0));
        self.blocks
            .iter()
            .map(|_| KeysAndValues {
                k: zeros(),
                v: zeros(),
            })
            .collect()
    }

    fn hidden(&self, ids: &Tensor, cache: Option<&[KeysAndValues]>, position: &Size) -> Tensor {
        let t = ids.shape().map_or(0, |s| s.last().copied().unwrap_or(0)) as i64;
        let mut x = self.wte.forward(ids) + self.wpe.weight.narrow(0, position, t);
        for (i, block) in self.blocks.iter().enumerate() {
            let cache = cache.and_then(|c| c.get(i));
            // Blocks are compiled once; what is written in place is written by this program.
            let layer = function(|x: &Tensor| block.forward(x, None, 0));
            x = match cache {
                Some(_) => block.forward(&x, cache, position),
                None => layer.apply(&x),
            };
        }
        self.ln.forward(&x)
    }

    pub(crate) fn logits(&self, x: &Tensor) -> Tensor {
        x.linear(&self.wte.weight, None)
    }
}
