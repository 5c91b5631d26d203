//! A file of expected values. Flows in: its text and what a program computed; out: a failed test that names
//! what differs and by how much.

use monoglot::prelude::*;
use std::collections::HashMap;

/// Of a tensor with more elements, so many are compared, and the root of the sum of squares.
const MOST: usize = 48;

pub(crate) struct Reference(HashMap<&'static str, (&'static str, Vec<f64>)>);

impl Reference {
    pub(crate) fn new(text: &'static str) -> Reference {
        let line = |line: &'static str| {
            let mut words = line.split(' ');
            let name = words.next().expect("a name");
            let shape = words.next().expect("a shape");
            let values = words.map(|w| w.parse().expect("a number"));
            (name, (shape, values.collect()))
        };
        Reference(text.lines().map(line).collect())
    }

    /// The tensor is the one of this name, but for `tolerance` times the greatest magnitude in it.
    #[track_caller]
    pub(crate) fn check(&self, name: &str, got: &Tensor, tolerance: f64) -> Result<()> {
        let shape = got.shape()?;
        let all: Vec<f64> = got.cast(DType::F64).to_vec()?;
        let (wanted, want) = self.0.get(name).unwrap_or_else(|| panic!("{name}?"));
        let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
        let shape = if sizes.is_empty() {
            "scalar".to_string()
        } else {
            sizes.join("x")
        };
        assert_eq!(shape, *wanted, "{name}'s shape");
        let mut some = all.clone();
        if all.len() > MOST {
            let place = |i: usize| i * (all.len() - 1) / (MOST - 1);
            some = (0..MOST).map(|i| all[place(i)]).collect();
            some.push(all.iter().map(|v| v * v).sum::<f64>().sqrt());
        }
        assert_eq!(some.len(), want.len(), "{name}'s elements");
        let most = want.iter().fold(1e-12f64, |m, v| m.max(v.abs()));
        let worst = some.iter().zip(want).map(|(a, b)| (a - b).abs());
        let off = worst.fold(0f64, |m, d| if d <= m { m } else { d }) / most;
        assert!(
            off <= tolerance,
            "{name} is off by {off:.2e} of its greatest, where {tolerance:.0e} is allowed: {some:?}, not {want:?}"
        );
        Ok(())
    }

    /// Several at once, in one program.
    #[track_caller]
    pub(crate) fn check_all<'a>(
        &self,
        named: impl IntoIterator<Item = (String, &'a Tensor)>,
        tolerance: f64,
    ) -> Result<()> {
        let named: Vec<(String, &Tensor)> = named.into_iter().collect();
        Tensor::realize_all(&named.iter().map(|(_, t)| *t).collect::<Vec<_>>())?;
        for (name, t) in named {
            self.check(&name, t, tolerance)?;
        }
        Ok(())
    }
}
