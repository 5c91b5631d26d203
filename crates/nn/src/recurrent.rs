//! Layers that go over a sequence. Flows in: (times, batch, inputs); flows out: (times, batch, width), and the
//! state after the last time. Always: the program is of the size of one time, whatever the length.

use crate::init::{Init, parameter};
use crate::module;
use monoglot_tensor::{Result, Tensor, scan};

/// Long short-term memory, Hochreiter and Schmidhuber (1997), with a forget gate (Gers et al., 2000).
///
/// With x the input of a time, h and c the state and σ the logistic function:
/// i, f, g, o = W·x + U·h + b, cut in four; c' = σ(f)·c + σ(i)·tanh(g); h' = σ(o)·tanh(c').
#[derive(Debug)]
pub struct Lstm {
    /// W: (4·width, inputs), from a uniform distribution on ±1/√width.
    pub weight_ih: Tensor,
    /// U: (4·width, width), from the same.
    pub weight_hh: Tensor,
    /// b: (4·width,), from the same.
    pub bias: Tensor,
    width: usize,
}
module!(Lstm {
    weight_ih,
    weight_hh,
    bias
});

impl Lstm {
    /// From `inputs` numbers to `width`.
    #[track_caller]
    pub fn new(inputs: usize, width: usize) -> Lstm {
        let start = Init::fan_in(width);
        Lstm {
            weight_ih: parameter(&[4 * width, inputs], start),
            weight_hh: parameter(&[4 * width, width], start),
            bias: parameter(&[4 * width], start),
            width,
        }
    }

    /// (times, batch, inputs) → (times, batch, width), and the state (h, c) after the last time, each (batch,
    /// width); from zeros.
    ///
    /// # Errors
    /// As `scan`.
    #[track_caller]
    pub fn forward(&self, xs: &Tensor) -> Result<(Tensor, (Tensor, Tensor))> {
        let dtype = xs.dtype()?.promote(self.weight_hh.dtype()?);
        let zeros = Tensor::zeros((xs.size(1)?, self.width)).cast(dtype);
        let zeros = zeros.to(xs.device()?);
        self.forward_from(xs, &zeros, &zeros)
    }

    /// The same from a state (h, c).
    ///
    /// # Errors
    /// As `scan`.
    #[track_caller]
    pub fn forward_from(
        &self,
        xs: &Tensor,
        h: &Tensor,
        c: &Tensor,
    ) -> Result<(Tensor, (Tensor, Tensor))> {
        // What does not depend on the state is one product over all times.
        let inputs = xs.linear(&self.weight_ih, Some(&self.bias));
        let step = |(h, c): (Tensor, Tensor), input: Tensor| {
            let gates = (input + h.linear(&self.weight_hh, None)).chunk(4, -1);
            let c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh();
            let h = gates[3].sigmoid() * c.tanh();
            ((h.clone(), c), h)
        };
        let (state, all) = scan(step, (h, c), &inputs)?;
        Ok((all, state))
    }
}
