//! Structs of tensors. Flows in: structs whose trees are derived; flows out: what functions of them give.

use monoglot::prelude::*;

#[derive(Tensors)]
struct Batch {
    images: Tensor,
    labels: Option<Tensor>,
    #[fixed]
    smoothing: String,
}

#[derive(Tensors)]
pub(crate) struct Pair<T, const N: usize>(pub(crate) T, [T; N])
where
    T: Clone;

/// Nothing at all.
#[derive(Tensors)]
pub(crate) struct Nothing;

#[derive(Tensors)]
pub(crate) struct Nested<T = Tensor> {
    pub(crate) pair: Pair<Vec<Tensor>, 2>,
    pub(super) other: T,
    pub(crate) nothing: Nothing,
}

fn of(values: &[f32]) -> Tensor {
    Tensor::new(values, [values.len()])
}

#[test]
fn structs_are_trees() -> Result<()> {
    let step = jit(|b: &Batch| {
        let scale = if b.smoothing == "twice" { 2.0 } else { 1.0 };
        let sum = match &b.labels {
            Some(labels) => &b.images * scale + labels,
            None => &b.images * scale,
        };
        Batch {
            images: sum,
            labels: b.labels.clone(),
            smoothing: b.smoothing.to_uppercase(),
        }
    })?;
    let batch = |labels: bool, smoothing: &str| Batch {
        images: of(&[1., 2.]),
        labels: labels.then(|| of(&[10., 20.])),
        smoothing: smoothing.into(),
    };
    for (labels, smoothing, want) in [
        (true, "twice", [12., 24.]),
        (true, "once", [11., 22.]),
        (false, "twice", [2., 4.]),
        (true, "twice", [12., 24.]),
    ] {
        let given = batch(labels, smoothing);
        let got = step.call(&given)?;
        assert_eq!(got.images.to_vec::<f32>()?, want);
        assert_eq!(got.smoothing, smoothing.to_uppercase());
        assert_eq!(got.labels.is_some(), labels);
    }
    assert_eq!(step.programs(), 3);
    Ok(())
}

#[test]
fn structs_nest_and_have_parameters() -> Result<()> {
    let step = jit(|n: Nested, by: Tensor| {
        let Pair(first, [a, b]) = n.pair;
        let all: Vec<Tensor> = first.iter().chain(&a).chain(&b).map(|t| t * &by).collect();
        Pair(all, [vec![n.other], vec![]])
    })?;
    for k in 1..4 {
        let v = |x: f32| vec![of(&[x * k as f32])];
        let nested = Nested {
            pair: Pair(v(1.0), [v(2.0), v(3.0)]),
            other: of(&[7.0]),
            nothing: Nothing,
        };
        let Pair(all, [other, none]) = step.call((nested, 2.0f32))?;
        let all: Vec<f32> = all.iter().map(|t| t.item()).collect::<Result<_>>()?;
        assert_eq!(all, [2., 4., 6.].map(|x| x * k as f32));
        assert_eq!(other[0].item::<f32>()?, 7.0);
        assert!(none.is_empty());
    }
    assert_eq!(step.programs(), 1);
    Ok(())
}
