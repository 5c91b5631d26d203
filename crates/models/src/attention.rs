//! Several heads of attention over one sequence. Flows in: (n, t, heads·width); flows out: (n,
//! heads, t, width), and back. Always: both are views.

use monoglot_tensor::Tensor;

/// (N, T, heads·width) → (N, heads, T, width).
#[track_caller]
pub(crate) fn split(x: &Tensor, heads: usize) -> Tensor {
    x.unflatten(-1, [heads as i64, -1]).transpose(1, 2)
}

/// (N, heads, T, width) → (N, T, heads·width).
#[track_caller]
pub(crate) fn join(x: &Tensor) -> Tensor {
    x.transpose(1, 2).flatten(2, 3)
}
