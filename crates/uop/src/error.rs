//! What can go wrong, as values: a kind that names the operator, shapes, dtypes and device, and the
//! caller's line where one is known. Flows in: what was wrong, where; flows out: a value that
//! prints as a person reads it. Always: the line that is given first stays.

use std::panic::Location;
use std::sync::Arc;

/// What went wrong.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Shapes do not fit the operation.
    Shape { op: String, message: String },
    /// Dtypes do not fit the operation.
    DType { op: String, message: String },
    /// Values on different devices meet without a COPY.
    Device { op: String, message: String },
    /// An axis that the value does not have.
    Axis { op: String, axis: i64, ndim: usize },
    /// An index that is known and out of range.
    Index { op: String, index: i64, size: i64 },
    /// Data that names what is not there, found when it was computed with.
    OutOfRange {
        /// The first wrong element, where it can still be read.
        value: Option<i128>,
        /// Where that is.
        position: Vec<i64>,
        /// Who asked for it, and what is right.
        rule: String,
        /// The lines of assigns that were done before it was found out, and stand.
        standing: Vec<String>,
    },
    /// An argument that means nothing (a step of 0, a negative size, …).
    Argument { op: String, message: String },
    /// A reduction without an answer on an empty axis.
    Empty { op: String, message: String },
    /// A gradient that cannot be taken.
    Gradient { message: String },
    /// A value that was asked for while a function was captured, or a function that cannot be.
    Capture { message: String },
    /// An op in the table that nothing runs yet.
    Unsupported { op: String, message: String },
    /// A device that is not there, or what it needs is not.
    NoDevice { device: String, message: String },
    /// More memory than there is.
    Memory {
        device: String,
        wanted: u64,
        available: u64,
    },
    /// More memory than the device may have; `kept` was freed, and would have been given back.
    Limit {
        device: String,
        wanted: u64,
        in_use: u64,
        kept: u64,
        limit: u64,
    },
    /// A file that cannot be read or written.
    Io { path: String, message: String },
    /// A file or text that is not of its format.
    Format { what: String, message: String },
    /// A compiler was found and did not compile.
    Compile { compiler: String, message: String },
    /// A graph of a text that breaks the spec of the stage that it is given to: the text is at fault.
    Text { stage: String, message: String },
    /// A graph that breaks the spec of its stage: a bug in the compiler.
    Verify { stage: String, message: String },
    /// A run that another thread ended, after so many of its steps.
    Cancelled { done: usize, of: usize },
    /// Something ran and failed.
    Run { message: String },
}

/// An error with the line that caused it.
#[derive(Clone, PartialEq)]
pub struct Error(Arc<Inner>);

#[derive(Debug, PartialEq)]
struct Inner {
    kind: ErrorKind,
    location: Option<&'static Location<'static>>,
}

/// The result of anything that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error without a line.
    pub fn new(kind: ErrorKind) -> Error {
        Error(Arc::new(Inner {
            kind,
            location: None,
        }))
    }

    /// What went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The caller's line.
    pub fn location(&self) -> Option<&'static Location<'static>> {
        self.0.location
    }

    /// The same error at a line, unless it has one already.
    pub fn at(self, location: &'static Location<'static>) -> Error {
        if self.0.location.is_some() {
            return self;
        }
        Error(Arc::new(Inner {
            kind: self.0.kind.clone(),
            location: Some(location),
        }))
    }

    /// A shape error.
    pub fn shape(op: impl Into<String>, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Shape {
            op: op.into(),
            message: message.into(),
        })
    }

    /// A dtype error.
    pub fn dtype(op: impl Into<String>, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::DType {
            op: op.into(),
            message: message.into(),
        })
    }

    /// An argument error.
    pub fn argument(op: impl Into<String>, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Argument {
            op: op.into(),
            message: message.into(),
        })
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Error {
        Error::new(kind)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use ErrorKind::*;
        match &self.0.kind {
            Shape { op: what, message }
            | DType { op: what, message }
            | Device { op: what, message }
            | Argument { op: what, message }
            | Empty { op: what, message }
            | Unsupported { op: what, message }
            | Io {
                path: what,
                message,
            }
            | Format { what, message }
            | Compile {
                compiler: what,
                message,
            } => write!(f, "{what}: {message}"),
            Axis { op, axis, ndim: 0 } => {
                write!(f, "{op}: axis {axis} of a scalar, which has no axes")
            }
            Axis { op, axis, ndim } => {
                write!(
                    f,
                    "{op}: axis {axis} of a tensor with {ndim} axes; it must be in -{ndim}..{ndim}"
                )
            }
            Index { op, index, size } => {
                write!(
                    f,
                    "{op}: index {index} of an axis of {size}; it must be in -{size}..{size}"
                )
            }
            OutOfRange {
                value,
                position,
                rule,
                standing,
            } => {
                let value = value.map_or("an element".into(), |v| v.to_string());
                write!(f, "{value} at position {position:?} in {rule}")?;
                match standing[..] {
                    [] => Ok(()),
                    _ => write!(f, "; what was assigned at {standing:?} stands"),
                }
            }
            Gradient { message } => write!(f, "gradient: {message}"),
            Capture { message } => write!(f, "capture: {message}"),
            NoDevice { device, message } => write!(f, "device {device}: {message}"),
            Memory {
                device,
                wanted,
                available,
            } => {
                write!(
                    f,
                    "device {device}: {wanted} bytes were asked for and {available} are available"
                )
            }
            Limit {
                device,
                wanted,
                in_use,
                kept,
                limit,
            } => write!(
                f,
                "device {device}: {wanted} bytes were asked for; {in_use} are in use and {kept} kept for \
                 reuse, of {limit} that it may have"
            ),
            Text { stage, message } => {
                write!(f, "the text is no graph of the {stage} stage:\n{message}")
            }
            Verify { stage, message } => {
                write!(
                    f,
                    "the {stage} stage broke its spec (a bug in the compiler):\n{message}"
                )
            }
            Cancelled { done, of } => {
                write!(
                    f,
                    "cancelled after {done} of {of} kernels: nothing was changed"
                )
            }
            Run { message } => f.write_str(message),
        }?;
        match self.0.location {
            Some(l) => write!(f, "\n  at {}:{}:{}", l.file(), l.line(), l.column()),
            None => Ok(()),
        }
    }
}

/// As a person reads it, since this is what a `main` prints that returns the error.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
