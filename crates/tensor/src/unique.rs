//! The different elements of a tensor. Flows in: a tensor; out: what it has, how often and where. Invariant: shapes are
//! known before values are, so that a captured function may ask; how many there are is a value.

use crate::tensor::Tensor;
use crate::tree::{Leaf, Rebuild, Tensors};
use monoglot_uop::DType;

/// What a tensor of n elements has, each once (see `Tensor::unique`).
#[derive(Clone, Debug)]
pub struct Unique {
    /// How many there are, () i32.
    pub count: Tensor,
    /// They in order, (n): the `count` first, then the greatest again.
    pub values: Tensor,
    /// How often each is there, (n) i32; 0 behind the first `count`.
    pub counts: Tensor,
    /// Which of `values` each element is, i32, in the shape of the tensor.
    pub inverse: Tensor,
}

impl Tensors for Unique {
    fn leaves<'a>(&'a self, see: &mut dyn FnMut(Leaf<'a>)) {
        let all = [&self.count, &self.values, &self.counts, &self.inverse];
        all.into_iter().for_each(|t| t.leaves(see));
    }

    fn rebuilt(&self, with: &mut dyn Rebuild) -> Unique {
        Unique {
            count: with.tensor(&self.count),
            values: with.tensor(&self.values),
            counts: with.tensor(&self.counts),
            inverse: with.tensor(&self.inverse),
        }
    }
}

impl Tensor {
    /// The different elements, in order: NaN is greatest and one, and so are both zeros. What is not read is not
    /// computed; what is read together (`realize_all`, a captured function) is sorted once.
    ///
    /// ```
    /// # use monoglot_tensor::Tensor;
    /// # fn main() -> monoglot_uop::Result<()> {
    /// let x = Tensor::new(&[3, 1, 3, 2], [2, 2]);
    /// let all = x.unique();
    /// Tensor::realize_all(&[&all.count, &all.values, &all.inverse])?;
    /// let some = all.values.narrow(0, 0, all.count.item::<i32>()?);
    /// assert_eq!(some.to_vec::<i32>()?, [1, 2, 3]);
    /// assert_eq!(all.inverse.to_vec::<i32>()?, [2, 0, 2, 1]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn unique(&self) -> Unique {
        let (sorted, places) = self.flatten(0, -1).sorted(0, false);
        let zeros = &places * 0;
        let ones = &zeros + 1;
        let place = |some: &Tensor| (some.cumsum(0) - 1).cast(DType::I32);
        let at = place(&ones);
        let before = sorted.roll([1], [0]);
        let nan = |x: &Tensor| x.ne(x);
        let again = sorted.eq(&before) | (nan(&sorted) & nan(&before));
        let first = at.eq(0) | !again;
        let first_ones = first.cast(DType::I32);
        let which = place(&first_ones);
        let count = first_ones.sum(.., false).cast(DType::I32);
        let starts = zeros.scatter_add(0, &which, &first.select(&at, 0));
        let last = (ones.sum(.., true) - 1).cast(DType::I32);
        let starts = at.lt(&count).select(&starts, &last);
        let inverse = zeros.scatter(0, &places, &which);
        Unique {
            values: sorted.index_select(0, &starts),
            counts: zeros.scatter_add(0, &which, &ones),
            inverse: Tensor::map_all(&[&inverse, self], |u| u[0].reshape(u[1].shape())),
            count,
        }
    }
}
