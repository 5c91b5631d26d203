//! Which lengths a captured function stands for. Flows in: its roots, and the sizes whose numbers it asked for;
//! flows out: whether other lengths fit. Invariant: a view that would leave what it is a view of does not fit.

use monoglot_uop::text::{parse_many, print_many};
use monoglot_uop::{Dim, Error, Op, Result, Scalar, UOp};
use rustc_hash::FxHashMap;

/// What lengths must fit.
pub(crate) struct Bounds {
    /// The bound variables that the function was traced with.
    lengths: Vec<UOp>,
    /// Sizes, offsets in them, and the sizes of what begins there.
    inside: Vec<[UOp; 3]>,
    /// Sizes that the function knows the numbers of.
    known: Vec<(UOp, i64)>,
}

impl Bounds {
    /// Those of a function.
    pub(crate) fn of(roots: &[UOp], lengths: &[UOp], mut known: Vec<(UOp, i64)>) -> Bounds {
        let mut inside: Vec<[UOp; 3]> = Vec::new();
        let nodes = match lengths {
            [] => Vec::new(),
            _ => UOp::sink(roots).toposort(),
        };
        for u in nodes
            .iter()
            .filter(|u| matches!(u.op(), Op::Shrink | Op::Pad))
        {
            let (large, small) = match u.op() {
                Op::Pad => (u.shape(), u.src()[0].shape()),
                _ => (u.src()[0].shape(), u.shape()),
            };
            let at = u.dims_src(1);
            for axis in 0..large.len() {
                let part = [&large[axis], &at[axis], &small[axis]];
                let [n, o, m] = part;
                let proved = o.min() >= 0 && m.min() >= 0 && o.max() + m.max() <= n.min();
                let part = part.map(Dim::to_uop);
                if !proved && !inside.contains(&part) {
                    inside.push(part);
                }
            }
        }
        known.dedup();
        Bounds {
            lengths: lengths.to_vec(),
            inside,
            known,
        }
    }

    /// The same in the text form, over the lengths as variables by number, and the numbers that are known.
    pub(crate) fn text(&self) -> (String, Vec<i64>) {
        let sizes = self.inside.iter().flatten();
        let sizes = sizes.chain(self.known.iter().map(|(size, _)| size));
        let all: Vec<UOp> = sizes.cloned().collect();
        let known = self.known.iter().map(|(_, number)| *number);
        (text_of(&self.lengths, &all), known.collect())
    }

    /// Those of a text.
    ///
    /// # Errors
    /// `Format` where it is none, `Argument` where it is not of so many sizes.
    pub(crate) fn of_text(text: &str, known: Vec<i64>, lengths: &[UOp]) -> Result<Bounds> {
        let mut all = match text.trim().is_empty() {
            true => Vec::new(),
            false => parse_many(text)?,
        };
        let first = all.len().checked_sub(known.len());
        let first = first.filter(|n| n % 3 == 0);
        let first = first.ok_or_else(|| {
            let message = format!("{} sizes are known of {}", known.len(), all.len());
            Error::argument("bounds", message)
        })?;
        let sizes = all.split_off(first);
        Ok(Bounds {
            lengths: lengths.to_vec(),
            inside: all.as_chunks::<3>().0.to_vec(),
            known: sizes.into_iter().zip(known).collect(),
        })
    }

    /// Whether these lengths fit.
    pub(crate) fn hold(&self, lengths: &[UOp]) -> bool {
        if self.inside.is_empty() && self.known.is_empty() {
            return true;
        }
        let value = |u: &UOp| Scalar::Int(u.bound_to().unwrap_or(0).into());
        let values: FxHashMap<UOp, Scalar> = self
            .lengths
            .iter()
            .cloned()
            .zip(lengths.iter().map(value))
            .collect();
        let now = |u: &UOp| u.as_int().or_else(|| u.sym_eval(&values)?.as_int());
        let known = |(size, number): &(UOp, i64)| now(size) == Some(*number);
        let inside = |part: &[UOp; 3]| match part.each_ref().map(now) {
            [Some(n), Some(o), Some(m)] => o >= 0 && m >= 0 && o.saturating_add(m) <= n,
            _ => false,
        };
        self.known.iter().all(known) && self.inside.iter().all(inside)
    }
}

/// Sizes in the text form, over these lengths as variables by number.
pub(crate) fn text_of(lengths: &[UOp], sizes: &[UOp]) -> String {
    let variables = (0..).zip(lengths).map(|(k, u)| {
        let variable = UOp::variable(k, u.vmin(), u.vmax());
        (u.clone(), variable)
    });
    let over = variables.collect();
    let all: Vec<UOp> = sizes.iter().map(|u| u.substitute(&over)).collect();
    print_many(&all)
}
