//! Learns to write sentences, letter by letter: `cargo run --release --example char_transformer [-- --steps N]`.
//!
//! A transformer of 3 layers, 128 wide, with 4 heads, over 64 letters; batches of 16; AdamW. The text is made
//! by a small grammar, so that nothing is downloaded.

use clap::Parser;
use monoglot::Size;
use monoglot::prelude::*;

#[derive(Parser)]
struct Args {
    /// Of everything that is random
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Batches to learn from
    #[arg(long, default_value_t = 300)]
    steps: usize,
    /// Letters to write afterwards
    #[arg(long, default_value_t = 200)]
    letters: usize,
}

const VOCABULARY: usize = 128;
const SEQUENCE: usize = 64;
const BATCH: usize = 16;

fn main() -> Result<()> {
    let args = Args::parse();
    Tensor::manual_seed(args.seed);
    let text = corpus(100_000);
    let net = CharTransformer::new(3, 128, 4, SEQUENCE, VOCABULARY);
    println!("{} parameters", net.parameter_count()?);
    let adam = AdamW::new(&net, 1e-3, 0.01);
    for step in 1..=args.steps {
        let starts = Tensor::randint([BATCH], 0, (text.len() - SEQUENCE) as i64).to_vec::<i32>()?;
        let (inputs, targets) = batch(&text, &starts);
        let loss = net.loss(&inputs, &targets);
        adam.step(&loss)?;
        if step % 50 == 0 || step == 1 {
            println!("step {step}: loss {:.3}", loss.item::<f32>()?);
        }
    }
    println!("{}", net.write("the ", args.letters)?);
    Ok(())
}

/// Rows of letters (batch, sequence) that begin at these places, and the letters that follow each.
pub(crate) fn batch(text: &[u8], starts: &[i32]) -> (Tensor, Tensor) {
    let rows = |from: usize| {
        let row = |&s: &i32| &text[s as usize + from..s as usize + from + SEQUENCE];
        let letters: Vec<i32> = starts.iter().flat_map(row).map(|&c| c as i32).collect();
        Tensor::new(&letters, [starts.len(), SEQUENCE])
    };
    (rows(0), rows(1))
}

/// One layer: attention over what came before and a network of two linear maps, each normalised first and
/// added.
pub(crate) struct Block {
    norm1: LayerNorm,
    qkv: Linear,
    out: Linear,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
    heads: i64,
}
module!(Block {
    norm1,
    qkv,
    out,
    norm2,
    up,
    down
});

impl Block {
    fn new(width: usize, heads: usize) -> Block {
        Block {
            norm1: LayerNorm::new(width),
            qkv: Linear::new(width, 3 * width),
            out: Linear::new(width, width),
            norm2: LayerNorm::new(width),
            up: Linear::new(width, 4 * width),
            down: Linear::new(4 * width, width),
            heads: heads as i64,
        }
    }

    /// Room for the keys and the values of so many letters.
    fn cache(&self, places: usize) -> [Tensor; 2] {
        let width = self.out.weight.shape().map_or(0, |s| s[0]);
        let heads = self.heads as usize;
        [(); 2].map(|()| Tensor::zeros([1, heads, places, width / heads]).contiguous())
    }

    /// (N, T, width) → the same shape; with a cache, of one letter that follows those in it.
    fn forward(&self, x: &Tensor, before: Option<Cached>) -> Tensor {
        let parts = self.qkv.forward(&self.norm1.forward(x)).chunk(3, -1);
        let heads = |z: &Tensor| z.unflatten(-1, [self.heads, -1]).transpose(1, 2);
        let q = heads(&parts[0]);
        let mut k = heads(&parts[1]);
        let mut v = heads(&parts[2]);
        if let Some((keys, values, place)) = before {
            keys.narrow(2, place, 1).assign(&k);
            values.narrow(2, place, 1).assign(&v);
            k = keys.narrow(2, 0, place + 1);
            v = values.narrow(2, 0, place + 1);
        }
        let seen = q.attention(&k, &v, None, before.is_none());
        let x = x + self.out.forward(&seen.transpose(1, 2).flatten(2, 3));
        let inner = self.up.forward(&self.norm2.forward(&x)).gelu();
        x + self.down.forward(&inner)
    }
}

/// Keys and values (1, heads, places, width / heads) of the letters so far, and how many these are.
type Cached<'a> = (&'a Tensor, &'a Tensor, &'a Size);

/// Letters → scores of the letter after each.
pub(crate) struct CharTransformer {
    tokens: Embedding,
    places: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}
module!(CharTransformer {
    tokens,
    places,
    blocks,
    norm,
    head
});

impl CharTransformer {
    /// Of so many layers and `width`, for sequences of up to `places` letters out of `letters`.
    pub(crate) fn new(
        layers: usize,
        width: usize,
        heads: usize,
        places: usize,
        letters: usize,
    ) -> CharTransformer {
        CharTransformer {
            tokens: Embedding::new(letters, width),
            places: Embedding::new(places, width),
            blocks: (0..layers).map(|_| Block::new(width, heads)).collect(),
            norm: LayerNorm::new(width),
            head: Linear::new(width, letters),
        }
    }

    /// (N, T) → scores (N, T, letters).
    pub(crate) fn forward(&self, ids: &Tensor) -> Tensor {
        let length = ids.size(1).unwrap_or(0.into());
        let places = self.places.weight.narrow(0, 0, length);
        let mut x = self.tokens.forward(ids) + places;
        for block in &self.blocks {
            x = block.forward(&x, None);
        }
        self.head.forward(&self.norm.forward(&x))
    }

    /// The mean over all letters of −ln of what the letter that follows was given.
    pub(crate) fn loss(&self, inputs: &Tensor, targets: &Tensor) -> Tensor {
        let scores = self.forward(inputs).flatten(0, 1);
        scores.cross_entropy(&targets.flatten(0, 1), Reduction::Mean, 0.0)
    }

    /// `start`, which has a letter at least, continued by so many that are drawn one by one.
    pub(crate) fn write(&self, start: &str, letters: usize) -> Result<String> {
        let places = self.places.weight.shape()?[0];
        let cache: Vec<[Tensor; 2]> = self.blocks.iter().map(|b| b.cache(places)).collect();
        Tensor::realize_all(&cache.iter().flatten().collect::<Vec<_>>())?;
        let place = Variable::new(0..=places as i64 - 1)?;
        // Compiled once for all places; what it draws stays on the device.
        let next = jit(|letter: &Tensor, place: &Size| self.next(letter, &cache, place))?;
        let mut text: Vec<Tensor> = start
            .bytes()
            .map(|c| Tensor::new(&[i32::from(c)], [1, 1]))
            .collect();
        let wanted = text.len() + letters;
        let mut read = 0;
        let mut cached = 0;
        while text.len() < wanted {
            if cached == places {
                // No place is left: the letters of the last half are read again, from the first place on.
                read -= places / 2;
                cached = 0;
            }
            let drawn = next.call((&text[read], place.bind(cached)?))?;
            read += 1;
            cached += 1;
            if read == text.len() {
                text.push(drawn);
            }
        }
        let letters = text.iter().map(|t| t.item::<i32>());
        letters.map(|c| Ok(char::from(c? as u8))).collect()
    }

    /// The letter (1, 1) after this one, drawn with the probability that softmax gives its score: the cache has
    /// all before.
    fn next(&self, letter: &Tensor, cache: &[[Tensor; 2]], place: &Size) -> Tensor {
        let mut x = self.tokens.forward(letter) + self.places.weight.narrow(0, place, 1);
        for (block, [keys, values]) in self.blocks.iter().zip(cache) {
            x = block.forward(&x, Some((keys, values, place)));
        }
        let scores = self.head.forward(&self.norm.forward(&x)) / 0.7;
        // Gumbel's way: the greatest of the scores with noise.
        let noise = -(-Tensor::rand(scores.shape().unwrap_or_default()).log()).log();
        (scores + noise).argmax(-1, false)
    }
}

/// So many letters of sentences.
pub(crate) fn corpus(letters: usize) -> Vec<u8> {
    let parts = [
        &["the", "a"][..],
        &["small", "old", "red", "quick", "sad"],
        &["king", "ship", "dog", "river", "tree"],
        &["runs", "sees", "finds", "follows", "loves"],
        &["under", "over", "near"],
        &["the", "a"],
        &["king", "ship", "dog", "river", "tree"],
    ];
    let mut state = 1u64;
    let mut text = String::new();
    while text.len() < letters {
        let sentence = parts.map(|words| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            words[(state >> 33) as usize % words.len()]
        });
        text += &sentence.join(" ");
        text += ".\n";
    }
    text.truncate(letters);
    text.into_bytes()
}
