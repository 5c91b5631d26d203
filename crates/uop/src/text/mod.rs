//! The text form: any graph as lines that read well, and back.
//!
//! Flows in: roots of a graph, or text; flows out: the other. Invariant: `parse(print(g))` is `g`
//! itself (the same interned node), except that GLOBAL BUFFERs come back with fresh slots and without
//! storage, and that BINARYs do not come back: they print as their length and a hash, and a text that has
//! one is refused. Equal graphs print equally in every process. Nothing here recurses over the graph.
//!
//! One line a node, sources before users, shared nodes once:
//!
//! ```text
//! p0 = PARAM[0, f32, CPU] (4, 8)
//! %0 = REDUCE[ADD, 1] p0 : f32(4, 1)
//! %1 = EXPAND %0 (4, 8) : f32(4, 8)
//! %2 = ADD %1 2.0 : f32(4, 8)
//! SINK %2
//! ```
//!
//! * A line is `NAME = OP[arg] sources... : type #tag`. Arg, type and tag stand where there is one;
//!   types are shown where they are not obvious and checked where they are given. `//` begins a comment.
//! * A line without a name is a root. Where no line is one, the last line is.
//! * Constants stand inline. Without a suffix (`2i32`, `0.5f16`, `inf_f32`) a constant has the dtype of
//!   the operands that it must agree with, else `index`, `f32` or `bool` by its form. `INVALID` is the
//!   invalid index.
//! * Short vectors of integers stand inline: `(4, 8)` is the STACK of two `index` constants.
//! * A LINEAR is a block: `LINEAR { ... }`, whose lines are its instructions, in order. A line of
//!   operands alone lists these: constants, and what has its line above.
//! * Names are the printer's choice: p and v for PARAMs and variables (by slot), b for buffers (numbered
//!   by first use), r for RANGEs (by number), % for values. A reader takes any name.
//!
//! The syntax of args is in `args`.

mod args;
mod lex;
mod parse;
mod print;
mod value;

pub(crate) use parse::is_parsed;
pub use parse::{parse, parse_many};
pub use print::{Names, print, print_many};

use crate::arg::{Arg, Opt};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::node::UOp;
use crate::op::Op;

/// Longest vector that stands inline.
const INLINE: usize = 16;

/// Printed where it is used rather than on a line of its own.
fn inline(u: &UOp) -> bool {
    let plain = |s: &UOp| s.shape().is_empty() && (s.op() != Op::Const || s.tag() == 0);
    let vector = u.op() == Op::Stack && u.src().len() <= INLINE && u.dtype().is_int();
    u.tag() == 0
        && (u.op() == Op::Const || vector && *u.arg() == Arg::None && u.src().iter().all(plain))
}

/// The sources whose dtypes decide that of a literal at source `i`: those it must agree with.
fn agrees_with(op: Op, i: usize) -> std::ops::Range<usize> {
    match op {
        Op::Where if i > 0 => 1..3,
        Op::Where => 0..0,
        Op::Store | Op::Load | Op::AtomicAdd if i == 1 => 0..1,
        Op::Stack => 0..255,
        op if op.is_elementwise() => 0..3,
        _ => 0..0,
    }
}

/// What a literal at source `i` is taken for when it has no suffix; `of(j)` is the dtype of source j
/// where that is no literal.
fn context(
    op: Op,
    arg: &Arg,
    i: usize,
    n: usize,
    of: impl Fn(usize) -> Option<DType>,
) -> Option<DType> {
    match arg {
        Arg::Buffer(b) if i > 0 => Some(b.dtype),
        _ => agrees_with(op, i).take_while(|&j| j < n).find_map(of),
    }
}

/// The graph in the text form.
impl std::fmt::Display for UOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&print(self))
    }
}

impl std::str::FromStr for Opt {
    type Err = Error;

    /// Reads what `Display` writes, such as `SPLIT(0, 4, UPCAST)`.
    fn from_str(s: &str) -> Result<Opt> {
        match parse(&format!("SINK[\"\", opts=[{s}]]"))?.arg() {
            Arg::Kernel(k) if k.opts.len() == 1 => Ok(k.opts[0]),
            _ => Err(Error::argument("Opt", format!("{s} is not one Opt"))),
        }
    }
}
