//! A parameter of a function that is marked. Flows in: a parameter as it is written; flows out: what of it is passed,
//! as a part of a tree of tensors, and how the body reads that. Invariant: what the body reads has the type that is
//! written.
//!
//! | written | owned |
//! | --- | --- |
//! | `T` | `T` |
//! | `&T` | `T` |
//! | `&[T]` | `Vec<T>` |
//! | `&str` | `String` |
//! | `Option<&T>` | `Option<T>` |
//! | `#[fixed] T`, `#[fixed] &T` | `FixedValue<T>` |
//! | `self`, `&self` | `Self` |

use crate::tokens::{Wrong, attributes, filled, is, iter};
use proc_macro::{Delimiter, Ident, Span, TokenStream, TokenTree};

pub(crate) struct Parameter {
    number: usize,
    attributes: TokenStream,
    /// What it is called where it is passed.
    name: TokenStream,
    pattern: TokenStream,
    /// Its type.
    written: TokenStream,
    /// What of its type its form does not say.
    inner: TokenStream,
    form: Form,
}

/// How it is written.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Value,
    Reference,
    Slice,
    Text,
    Optional,
    FixedValue,
    FixedReference,
    OwnValue,
    OwnReference,
}

/// What becomes of a form: its owned type, what is passed, how it is read in its place, and the type of that.
struct Row {
    owned: &'static str,
    passed: &'static str,
    read: &'static str,
    is: &'static str,
}

impl Form {
    fn row(self) -> Row {
        let row = |owned, passed, read, is| Row {
            owned,
            passed,
            read,
            is,
        };
        match self {
            Form::Value => row(
                "GIVEN",
                "NAME",
                "::monoglot::again::<GIVEN>(&PLACE)",
                "GIVEN",
            ),
            Form::Reference => row(
                "INNER",
                "::monoglot::again::<INNER>(NAME)",
                "&PLACE",
                "&INNER",
            ),
            Form::Slice => row(
                "::std::vec::Vec<INNER>",
                "NAME.iter().map(::monoglot::again::<INNER>).collect()",
                "&PLACE[..]",
                "&[INNER]",
            ),
            Form::Text => row(
                "::std::string::String",
                "::std::string::String::from(NAME)",
                "&PLACE[..]",
                "&str",
            ),
            Form::Optional => row(
                "::core::option::Option<INNER>",
                "NAME.map(::monoglot::again::<INNER>)",
                "PLACE.as_ref()",
                "::core::option::Option<&INNER>",
            ),
            Form::FixedValue => row(
                "::monoglot::FixedValue<GIVEN>",
                "::monoglot::FixedValue(NAME)",
                "::core::clone::Clone::clone(&(PLACE).0)",
                "GIVEN",
            ),
            Form::FixedReference => row(
                "::monoglot::FixedValue<INNER>",
                "::monoglot::FixedValue(::core::clone::Clone::clone(NAME))",
                "&(PLACE).0",
                "&INNER",
            ),
            Form::OwnValue => row(
                "GIVEN",
                "NAME",
                "::monoglot::again::<GIVEN>(&PLACE)",
                "GIVEN",
            ),
            Form::OwnReference => row(
                "GIVEN",
                "::monoglot::again::<GIVEN>(NAME)",
                "&PLACE",
                "&GIVEN",
            ),
        }
    }
}

impl Parameter {
    /// The parameter of these tokens, by its number.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(number: usize, part: Vec<TokenTree>) -> Result<Parameter, Wrong> {
        let mut tokens = iter(part);
        let attributes = attributes(&mut tokens);
        let rest: Vec<TokenTree> = tokens.collect();
        let here = rest.first().map_or(Span::call_site(), TokenTree::span);
        if let Some(own) = own(&rest, number)? {
            return Ok(own);
        }
        let Some(colon) = colon(&rest) else {
            return Err(Wrong::new("a parameter is `name: Type`", here));
        };
        let pattern = &rest[..colon];
        let written = opened(rest[colon + 1..].to_vec());
        refuse_impl(&written.iter().cloned().collect())?;
        let name = match pattern {
            [TokenTree::Ident(name)] if name.to_string() != "_" => name.clone(),
            [TokenTree::Ident(first), TokenTree::Ident(name)] if first.to_string() == "mut" => {
                name.clone()
            }
            _ => Ident::new(&format!("__argument_{number}"), here),
        };
        let (form, inner) = form(&written, attributes.fixed)?;
        Ok(Parameter {
            number,
            attributes: attributes.others.into_iter().collect(),
            name: TokenTree::Ident(name).into(),
            pattern: pattern.iter().cloned().collect(),
            written: written.into_iter().collect(),
            inner,
            form,
        })
    }

    pub(crate) fn is_self(&self) -> bool {
        matches!(self.form, Form::OwnValue | Form::OwnReference)
    }

    /// A text in which words stand for parts of it: OUTER as the function takes it, WRITTEN as it is written, PASSED
    /// and OWNED its part of the tree, READ that in the body, of TYPE, and PATTERN what is bound to it.
    pub(crate) fn filled(&self, text: &str) -> TokenStream {
        let row = self.form.row();
        let parts = [
            ("NAME", self.name.clone()),
            ("GIVEN", self.written.clone()),
            ("INNER", self.inner.clone()),
            ("PLACE", filled(&format!("__passed.{}", self.number), &[])),
            ("ATTRIBUTES", self.attributes.clone()),
            ("PATTERN", self.pattern.clone()),
        ];
        let part = |text| filled(text, &parts);
        let written = match self.form {
            Form::OwnValue => "PATTERN",
            Form::OwnReference => "&PATTERN",
            _ => "PATTERN: GIVEN",
        };
        let outer = match self.is_self() {
            true => written,
            false => "ATTRIBUTES NAME: GIVEN",
        };
        let all = [
            ("OUTER", part(outer)),
            ("WRITTEN", part(written)),
            ("PASSED", part(row.passed)),
            ("OWNED", part(row.owned)),
            ("READ", part(row.read)),
            ("TYPE", part(row.is)),
            ("PATTERN", self.pattern.clone()),
        ];
        filled(text, &all)
    }
}

/// `impl Trait` has no name by which the function could be kept.
///
/// # Errors
/// Where this is one.
pub(crate) fn refuse_impl(of: &TokenStream) -> Result<(), Wrong> {
    match of.clone().into_iter().next() {
        Some(TokenTree::Ident(word)) if word.to_string() == "impl" => {
            let message = "the types of a marked function have names: a tensor, a tree of tensors, or a parameter \
                           `T: Tensors + 'static`";
            Err(Wrong::new(message, word.span()))
        }
        _ => Ok(()),
    }
}

/// `self`, `mut self` or `&self`.
fn own(part: &[TokenTree], number: usize) -> Result<Option<Parameter>, Wrong> {
    let is_self = |t: &TokenTree| matches!(t, TokenTree::Ident(i) if i.to_string() == "self");
    let Some(at) = part.iter().position(is_self) else {
        return Ok(None);
    };
    let before: String = part[..at].iter().map(TokenTree::to_string).collect();
    let form = match before.as_str() {
        "" if part.len() == 1 => Form::OwnValue,
        "&" if part.len() == 2 => Form::OwnReference,
        _ => {
            let message = "a marked method takes `self` or `&self`; what it changes are tensors that it assigns";
            return Err(Wrong::new(message, part[0].span()));
        }
    };
    let own = Ident::new("Self", part[at].span());
    let this: TokenStream = part[at].clone().into();
    Ok(Some(Parameter {
        number,
        attributes: TokenStream::new(),
        name: this.clone(),
        pattern: this,
        written: TokenTree::Ident(own).into(),
        inner: TokenStream::new(),
        form,
    }))
}

/// Where the type of a parameter begins: behind the first colon that is not one of a path.
fn colon(part: &[TokenTree]) -> Option<usize> {
    let is_colon = |k: usize| is(&part.get(k).cloned(), ':');
    let mut at = 0;
    while at < part.len() {
        match (is_colon(at), is_colon(at + 1)) {
            (true, true) => at += 2,
            (true, false) => return Some(at),
            _ => at += 1,
        }
    }
    None
}

/// Tokens out of the group that another macro put them in.
fn opened(mut tokens: Vec<TokenTree>) -> Vec<TokenTree> {
    loop {
        match &tokens[..] {
            [TokenTree::Group(g)] if g.delimiter() == Delimiter::None => {
                tokens = g.stream().into_iter().collect();
            }
            _ => return tokens,
        }
    }
}

/// The form of a type, and what it does not say.
fn form(written: &[TokenTree], fixed: bool) -> Result<(Form, TokenStream), Wrong> {
    let whole: TokenStream = written.iter().cloned().collect();
    if let Some(inner) = referred(written)? {
        let stream: TokenStream = inner.iter().cloned().collect();
        refuse_impl(&stream)?;
        return Ok(match &inner[..] {
            [TokenTree::Ident(word)] if word.to_string() == "str" => (Form::Text, stream),
            _ if fixed => (Form::FixedReference, stream),
            [TokenTree::Group(g)]
                if g.delimiter() == Delimiter::Bracket && is_slice(g.stream()) =>
            {
                (Form::Slice, g.stream())
            }
            _ => (Form::Reference, stream),
        });
    }
    if fixed {
        return Ok((Form::FixedValue, whole));
    }
    // `…Option<&T>`.
    let open = written.iter().position(|t| is(&Some(t.clone()), '<'));
    if let Some(open) = open
        && open > 0
        && written[open - 1].to_string() == "Option"
        && written.len() > open + 2
        && let Some(inner) = referred(&opened(written[open + 1..written.len() - 1].to_vec()))?
    {
        return Ok((Form::Optional, inner.into_iter().collect()));
    }
    Ok((Form::Value, whole))
}

/// Whether what stands in brackets is the type of a slice, not of an array.
fn is_slice(within: TokenStream) -> bool {
    !within.into_iter().any(|t| is(&Some(t), ';'))
}

/// What a reference refers to; None of what lives forever, which is passed as it is.
fn referred(written: &[TokenTree]) -> Result<Option<Vec<TokenTree>>, Wrong> {
    if !is(&written.first().cloned(), '&') {
        return Ok(None);
    }
    let mut rest = &written[1..];
    if is(&rest.first().cloned(), '\'') {
        if rest.get(1).is_some_and(|t| t.to_string() == "static") {
            return Ok(None);
        }
        rest = rest.get(2..).unwrap_or(&[]);
    }
    match rest.first() {
        Some(TokenTree::Ident(word)) if word.to_string() == "mut" => {
            let message = "a marked function changes nothing that it is passed: it gives what is new, or assigns tensors";
            Err(Wrong::new(message, word.span()))
        }
        _ => Ok(Some(opened(rest.to_vec()))),
    }
}
