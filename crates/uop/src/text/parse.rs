//! Parsing: lines to a graph.
//!
//! Flows in: text; flows out: its roots, or an error that names line and column. Invariant: any text
//! gives nodes or an error, never a panic; every node is built by `UOp::try_new`, so shapes and dtypes
//! are checked where the line stands. No text gives a BINARY.

use super::args;
use super::lex::{Cursor, Read};
use super::value::Literal;
use super::{context, print};
use crate::arg::Arg;
use crate::build::fresh_slot;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::node::{Srcs, UOp};
use crate::op::Op;
use rustc_hash::FxHashMap;

/// The one graph that a text is.
///
/// # Errors
/// `ErrorKind::Format` with line and column, where the text is of no node, or of several roots.
pub fn parse(text: &str) -> Result<UOp> {
    let mut roots = parse_many(text)?;
    match (roots.pop(), roots.len()) {
        (Some(root), 0) => Ok(root),
        (None, _) => Err(error(text, text.len(), "there is no node here")),
        (_, n) => Err(error(
            text,
            text.len(),
            &format!("{} roots, where one was expected", n + 1),
        )),
    }
}

/// The roots of a text, in its order.
///
/// # Errors
/// `ErrorKind::Format` with line and column.
pub fn parse_many(text: &str) -> Result<Vec<UOp>> {
    let mut p = Parser {
        c: Cursor {
            text,
            at: 0,
            depth: 0,
        },
        names: FxHashMap::default(),
        slots: FxHashMap::default(),
        roots: Vec::new(),
        last: None,
        block: None,
    };
    match p.lines() {
        Ok(()) if p.roots.is_empty() => Ok(p.last.into_iter().collect()),
        Ok(()) => Ok(p.roots),
        Err((at, message)) => Err(error(text, at, &message)),
    }
}

/// Whether this graph is a text's, or a tuple of nothing but texts' graphs: its nodes were first made here.
pub(crate) fn is_parsed(root: &UOp) -> bool {
    let here = |u: &UOp| u.origin().file() == file!();
    here(root) || root.op() == Op::Sink && !root.src().is_empty() && root.src().iter().all(here)
}

fn error(text: &str, at: usize, message: &str) -> Error {
    let boundary = (0..=at.min(text.len()))
        .rev()
        .find(|&i| text.is_char_boundary(i));
    let before = &text[..boundary.unwrap_or(0)];
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
    let what = format!("line {line}, column {column}");
    Error::new(ErrorKind::Format {
        what,
        message: message.to_string(),
    })
}

/// An open `LINEAR {`.
struct Block<'a> {
    name: Option<&'a str>,
    arg: Arg,
    start: usize,
    members: Vec<UOp>,
}

struct Parser<'a> {
    c: Cursor<'a>,
    names: FxHashMap<&'a str, UOp>,
    slots: FxHashMap<u64, u64>,
    roots: Vec<UOp>,
    last: Option<UOp>,
    block: Option<Block<'a>>,
}

/// A node; or a literal, whose dtype is known once the other operands are.
type Operand = std::result::Result<UOp, Literal>;

fn dtype(operand: &Operand) -> Option<DType> {
    operand.as_ref().ok().map(UOp::dtype)
}

impl<'a> Parser<'a> {
    fn lines(&mut self) -> Read<()> {
        loop {
            self.c.space();
            if self.c.peek() == 0 {
                break;
            }
            if self.c.take(b'\n') {
                continue;
            }
            if self.c.take(b'}') {
                self.close()
            } else {
                self.line()
            }?;
            self.c.end_of_line()?;
        }
        match &self.block {
            Some(b) => Err((b.start, "this block is not closed with }".into())),
            None => Ok(()),
        }
    }

    fn line(&mut self) -> Read<()> {
        let start = self.c.at;
        let mut name = None;
        if let Some(word) = self.c.word() {
            self.c.space();
            if self.c.take(b'=') {
                self.c.space();
                if self.names.contains_key(word) {
                    return Err((start, format!("{word} is named twice")));
                }
                name = Some(word);
            } else {
                self.c.at = start;
            }
        }
        let op_at = self.c.at;
        match self.c.word().and_then(Op::from_name) {
            Some(op) => self.node(op, op_at, name),
            None if name.is_some() => Err((op_at, "an op was expected".into())),
            None => {
                self.c.at = op_at;
                self.listed()
            }
        }
    }

    /// A line of operands: roots, or instructions of the block.
    fn listed(&mut self) -> Read<()> {
        let listed = resolved(self.operands(false)?, |_| None)?;
        match &mut self.block {
            Some(b) => b.members.extend(listed),
            None => self.roots.extend(listed),
        }
        Ok(())
    }

    fn node(&mut self, op: Op, start: usize, name: Option<&'a str>) -> Read<()> {
        if op == Op::Binary {
            return Err((start, args::NO_CODE.into()));
        }
        let brackets = if self.c.peek() == b'[' {
            Some(self.c.brackets()?)
        } else {
            None
        };
        let operands = self.operands(false)?;
        let dtypes: Vec<Option<DType>> = operands.iter().map(|(_, o)| dtype(o)).collect();
        let arg = match brackets {
            None => Arg::None,
            Some((at, kind, values)) => {
                let first = dtypes.first().copied().flatten();
                let slots = &mut self.slots;
                let mut slot = |number| *slots.entry(number).or_insert_with(fresh_slot);
                let graph = |text: &str| parse(text).map_err(|e| e.to_string());
                args::read(op, kind, &values, first, &mut slot, &graph).map_err(|m| (at, m))?
            }
        };
        if op == Op::Linear && self.c.peek() == b'{' {
            if self.block.is_some() || !operands.is_empty() {
                return Err((
                    self.c.at,
                    "a block may stand neither in a block nor after sources".into(),
                ));
            }
            self.c.at += 1;
            self.block = Some(Block {
                name,
                arg,
                start,
                members: Vec::new(),
            });
            return Ok(());
        }
        let src = resolved(operands, |i| {
            context(op, &arg, i, dtypes.len(), |j| dtypes[j])
        })?;
        self.finish(name, start, op, src, arg)
    }

    fn close(&mut self) -> Read<()> {
        let Some(b) = self.block.take() else {
            return Err((self.c.at - 1, "there is no block to close".into()));
        };
        self.c.space();
        self.finish(b.name, b.start, Op::Linear, b.members.into(), b.arg)
    }

    /// The node of a line whose sources are read.
    fn finish(
        &mut self,
        name: Option<&'a str>,
        start: usize,
        op: Op,
        src: Srcs,
        arg: Arg,
    ) -> Read<()> {
        let u = UOp::try_new(op, src, arg).map_err(|e| (start, plain(&e)))?;
        let u = u.with_tag(self.suffixes(&u)?);
        if let Some(name) = name {
            self.names.insert(name, u.clone());
        }
        if let Some(b) = &mut self.block {
            b.members.push(u);
        } else if name.is_some() {
            self.last = Some(u);
        } else {
            self.roots.push(u);
        }
        Ok(())
    }

    /// `: type`, which must be the node's, and `#tag`.
    fn suffixes(&mut self, u: &UOp) -> Read<u32> {
        if self.c.take(b':') {
            self.c.space();
            let start = self.c.at;
            let given = self
                .c
                .while_bytes(|b| !matches!(b, 0 | b'\n' | b'#' | b'/' | b'}'));
            let is = print::type_text(u);
            if given.replace([' ', '\t', '\r'], "") != is.replace(' ', "") {
                return Err((start, format!("the type is {is}")));
            }
        }
        if !self.c.take(b'#') {
            return Ok(0);
        }
        let start = self.c.at;
        self.c
            .digits()
            .parse()
            .map_err(|_| (start, "a tag is a number".into()))
    }

    /// Operands as far as there are, those `inside` a vector without vectors.
    fn operands(&mut self, inside: bool) -> Read<Vec<(usize, Operand)>> {
        let mut out = Vec::new();
        loop {
            self.c.space();
            if self.c.take(b',') {
                continue;
            }
            let at = self.c.at;
            let vector = !inside && self.c.peek() == b'(';
            match if vector {
                Some(Ok(self.vector()?))
            } else {
                self.atom()?
            } {
                Some(operand) => out.push((at, operand)),
                None => return Ok(out),
            }
        }
    }

    /// A name or a literal.
    fn atom(&mut self) -> Read<Option<Operand>> {
        let at = self.c.at;
        if let Some(l) = self.c.literal()? {
            return Ok(Some(Err(l)));
        }
        let Some(word) = self.c.word() else {
            return Ok(None);
        };
        match self.names.get(word) {
            Some(u) => Ok(Some(Ok(u.clone()))),
            None if Op::from_name(word).is_some() => {
                Err((at, format!("{word} needs a line of its own")))
            }
            None => Err((at, format!("nothing above is named {word}"))),
        }
    }

    /// `(a, b)`: a STACK.
    fn vector(&mut self) -> Read<UOp> {
        let start = self.c.at;
        self.c.at += 1;
        self.c.depth += 1;
        let parts = self.operands(true)?;
        if !self.c.take(b')') {
            return Err((self.c.at, "a name, a constant or ) was expected".into()));
        }
        self.c.depth -= 1;
        let wanted = parts.iter().find_map(|(_, o)| dtype(o));
        UOp::try_new(Op::Stack, resolved(parts, |_| wanted)?, Arg::None)
            .map_err(|e| (start, plain(&e)))
    }
}

/// The operands as nodes; `context(i)` is what a literal at i is taken for.
fn resolved(
    operands: Vec<(usize, Operand)>,
    context: impl Fn(usize) -> Option<DType>,
) -> Read<Srcs> {
    let node = |(i, (at, operand)): (usize, (usize, Operand))| {
        operand.or_else(|l| {
            let (v, d) = l.value(context(i)).map_err(|m| (at, m))?;
            UOp::try_new(Op::Const, Srcs::new(), Arg::Const(v, d)).map_err(|e| (at, plain(&e)))
        })
    };
    operands.into_iter().enumerate().map(node).collect()
}

/// The message without the line of this source, which says nothing about the text.
fn plain(e: &Error) -> String {
    Error::new(e.kind().clone()).to_string()
}
