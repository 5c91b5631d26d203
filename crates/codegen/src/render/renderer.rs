//! What the writers of statements, expressions, vectors and memory share: the listing and the language,
//! the types of values, templates, and a value where it is used. Flows in: a node or a template; flows
//! out: its text, or an error that names the op that the language lacks. Invariant: a value with a name
//! is written by it, any other as its expression.
//!
//! In a template `$0`, `$1`, … are operands, brought to the kind of the expression (scalars broadcast,
//! bools as masks of its width); `$V` is the kind's type, `$n` its lanes, `$B` bytes, `$M` and `$U` the
//! signed and unsigned integers as wide, `$!` a complement (`!` of a scalar bool, `~` of a mask).

use super::language::{Language, scalar, signed, unsigned};
use super::prelude::Prelude;
use monoglot_uop::backend::unsupported;
use monoglot_uop::linear::lanes;
use monoglot_uop::{Arg, DType, Error, Listing, Op, Result, Scalar, UOp};
use std::borrow::Borrow;
use std::fmt::Write;

/// What an expression is made of: lanes (0: a scalar), element, and for bools the bytes of a mask's lane.
#[derive(Copy, Clone)]
pub(super) struct ValueType {
    pub(super) n: usize,
    pub(super) d: DType,
    pub(super) mask: usize,
}

/// No operands.
pub(super) const NONE: &[UOp] = &[];

impl ValueType {
    pub(super) fn new(n: usize, d: DType) -> ValueType {
        ValueType { n, d, mask: 1 }
    }

    /// Bytes of a lane.
    pub(super) fn bytes(self) -> usize {
        if self.d == DType::Bool {
            self.mask
        } else {
            self.d.bytes()
        }
    }

    /// A scalar narrower than C's int, in which C computes instead.
    pub(super) fn small(self) -> bool {
        self.n == 0 && self.d.is_int() && self.d.bytes() < 4
    }
}

/// A listing while it is written in a language.
pub(super) struct Renderer<'a> {
    pub(super) listing: &'a Listing<'a>,
    pub(super) language: &'static Language,
    pub(super) prelude: Prelude,
    /// The number of each instruction's variable; 0 where it has none.
    pub(super) names: Vec<u32>,
    pub(super) last: u32,
}

impl Renderer<'_> {
    /// The error for an instruction that there is no text for.
    pub(super) fn unsupported(&self, u: &UOp) -> Error {
        unsupported(self.language.name, u)
    }

    /// The expression of a hardware index.
    pub(super) fn special(&self, u: &UOp) -> Result<&'static str> {
        let name = match u.arg() {
            Arg::Text(name) => &**name,
            _ => "",
        };
        let known = self.language.specials.iter().find(|s| s.0 == name);
        known.map(|s| s.1).ok_or_else(|| self.unsupported(u))
    }

    /// A value where it is used: a literal, a name, or its expression.
    pub(super) fn value(&mut self, o: &mut String, u: &UOp) -> Result<()> {
        match u.op() {
            Op::Const => {
                let v = u.const_value().unwrap_or(Scalar::Int(0));
                self.language.literal(o, v, u.dtype());
            }
            Op::Param => {
                let _ = write!(o, "n{}", u.buffer_arg().map_or(0, |b| b.slot));
            }
            Op::Range => {
                let _ = write!(o, "r{}", range(u));
            }
            Op::Special => o.push_str(self.special(u)?),
            _ => match self.listing.place(u).map_or(0, |i| self.names[i]) {
                0 => self.expression(o, u)?,
                name => {
                    let _ = write!(o, "v{name}");
                }
            },
        }
        Ok(())
    }

    /// What a value is made of.
    pub(super) fn type_of(&self, u: &UOp) -> ValueType {
        ValueType {
            n: lanes(u),
            d: u.dtype(),
            mask: self.listing.mask(u),
        }
    }

    /// Write a template.
    pub(super) fn put<S: Borrow<UOp>>(
        &mut self,
        o: &mut String,
        k: ValueType,
        template: &str,
        s: &[S],
    ) -> Result<()> {
        let mut rest = template;
        while let Some(at) = rest.bytes().position(|b| b == b'$') {
            o.push_str(&rest[..at]);
            let what = rest.as_bytes().get(at + 1).copied().unwrap_or(b' ');
            rest = &rest[(at + 2).min(rest.len())..];
            // A select's first argument is the type.
            if what == b'V' && o.ends_with("SEL(") {
                self.prelude.select();
            }
            match what {
                b'V' if k.d == DType::Bool && k.n > 0 => self.type_name(o, signed(k.mask), k.n),
                b'V' => self.type_name(o, scalar(k.d), k.n),
                b'B' => self.type_name(o, "u8", k.n),
                b'M' => self.type_name(o, signed(k.bytes()), k.n),
                b'U' => self.type_name(o, unsigned(k.bytes()), k.n),
                b'n' => o.push_str(&k.n.to_string()),
                b'!' => o.push(if k.n == 0 { '!' } else { '~' }),
                digit => {
                    if let Some(u) = s.get(digit.wrapping_sub(b'0') as usize) {
                        self.operand(o, u.borrow(), k)?;
                    }
                }
            }
        }
        o.push_str(rest);
        Ok(())
    }

    /// A scalar or vector type.
    pub(super) fn type_name(&mut self, o: &mut String, name: &'static str, n: usize) {
        match n {
            0 => o.push_str(name),
            n => self.prelude.vector(o, name, n),
        }
    }
}

/// The number of a RANGE.
pub(super) fn range(u: &UOp) -> u32 {
    u.range_arg().map_or(0, |r| r.0)
}
