//! What a broken assertion is told as. Flows in: an ASSERT and the element that is wrong; flows out: the
//! error that says which, and where it was asked for.

use monoglot_uop::{Arg, DType, Dim, Error, ErrorKind, Result, Scalar, Shape, UOp};
use std::panic::Location;

/// An element of what an ASSERT is of that is wrong.
pub(crate) struct Wrong {
    /// The ASSERT.
    pub(crate) assert: UOp,
    /// The element, row-major.
    pub(crate) element: i64,
    /// The lines of assigns that were done before, and stand.
    pub(crate) standing: Vec<&'static Location<'static>>,
}

impl Wrong {
    /// The error that names the element, and the line that asked for it; `read` gives the bytes of a value.
    pub(crate) fn error(self, read: impl Fn(&UOp) -> Result<Vec<u8>>) -> Error {
        let sizes = self.assert.src()[1].shape().max_ints();
        let mut position = vec![0; sizes.len()];
        let mut left = self.element;
        for (at, n) in position.iter_mut().zip(&sizes).rev() {
            *at = left % n;
            left /= n;
        }
        let rule = match self.assert.arg() {
            Arg::Text(rule) => rule.to_string(),
            _ => String::new(),
        };
        let of = self.assert.src().get(2).unwrap_or(&self.assert.src()[0]);
        let error = Error::new(ErrorKind::OutOfRange {
            value: element(of, &position, read).map(Scalar::to_i128),
            position,
            rule,
            standing: self.standing.iter().map(|l| l.to_string()).collect(),
        });
        match self.assert.line() {
            Some(line) => error.at(line),
            None => error,
        }
    }
}

/// One element of a value; None where what it is computed from is no more.
fn element(
    value: &UOp,
    position: &[i64],
    read: impl Fn(&UOp) -> Result<Vec<u8>>,
) -> Option<Scalar> {
    let start: Vec<Dim> = position.iter().map(|&at| Dim::Int(at)).collect();
    let one = value.shrink(&start, &Shape::of(&vec![1; position.len()]));
    let bytes = read(&one.ok()?).ok()?;
    Some(scalar(&bytes, value.dtype()))
}

/// The element in its little-endian bytes.
pub(crate) fn scalar(bytes: &[u8], dtype: DType) -> Scalar {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    Scalar::from_bits(u64::from_le_bytes(word), dtype)
}

/// The error of what a stage of the compiler should not have given.
pub(crate) fn broken(stage: &str, message: &str) -> Error {
    ErrorKind::Verify {
        stage: stage.into(),
        message: message.into(),
    }
    .into()
}
