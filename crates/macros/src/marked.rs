//! A function that is marked `#[function]`. Flows in: what is written in the mark, and the function as it is written;
//! flows out: a function of the same name, parameters and value, whose calls are calls of one body; or what is wrong,
//! and where. Invariant: of types only the outermost `&` and `Option<&…>` are looked at; the rest is the compiler's.
//!
//! What is passed becomes a tuple of what the parameters own (`parameter`), which is a tree of tensors, and the body is
//! a closure of a reference to that. A method's body is a method beside it, since `self` cannot be bound elsewhere.

use crate::parameter::{Parameter, refuse_impl};
use crate::tokens::{Wrong, attributes, filled, is, iter, split, text, visibility, within_angles};
use proc_macro::{Delimiter, Ident, Span, TokenStream, TokenTree};

/// More than this are fields of a struct: so long are the longest tuples that are trees.
const MOST: usize = 8;

/// A function as it is written.
struct Marked {
    attributes: Vec<TokenTree>,
    visibility: TokenStream,
    name: Ident,
    /// With its angles.
    generics: TokenStream,
    parameters: Vec<Parameter>,
    gives: TokenStream,
    bounds: TokenStream,
    /// What is in its braces.
    body: TokenStream,
}

/// The function that takes the place of the one that is marked.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn marked(mark: TokenStream, item: TokenStream) -> Result<TokenStream, Wrong> {
    let mark: Vec<TokenTree> = mark.into_iter().collect();
    let checkpoint = match text(mark.clone()).as_str() {
        "" => "false",
        "checkpoint" => "true",
        _ => {
            let message = "`#[function]` says nothing more, or `checkpoint`";
            return Err(Wrong::new(message, mark[0].span()));
        }
    };
    let function = Marked::parse(item)?;
    Ok(function.tokens(checkpoint))
}

impl Marked {
    fn parse(item: TokenStream) -> Result<Marked, Wrong> {
        let mut tokens = iter(item);
        let attributes = attributes(&mut tokens).others;
        let visibility = visibility(&mut tokens);
        let keyword = tokens.next();
        let here = keyword.as_ref().map_or(Span::call_site(), TokenTree::span);
        match keyword.map(|t| t.to_string()).as_deref() {
            Some("fn") => {}
            Some(word @ ("async" | "const" | "unsafe" | "extern")) => {
                let message = format!("a function of tensors is plain: it is not `{word}`");
                return Err(Wrong::new(message, here));
            }
            _ => return Err(Wrong::new("`#[function]` marks a function: `fn …`", here)),
        }
        let Some(TokenTree::Ident(name)) = tokens.next() else {
            return Err(Wrong::new("a function has a name", here));
        };
        let wrong = |message: &str| Err(Wrong::new(message, name.span()));
        let mut generics = TokenStream::new();
        if is(&tokens.peek().cloned(), '<') {
            tokens.next();
            let within = within_angles(&mut tokens).into_iter().collect();
            generics = filled("<WITHIN>", &[("WITHIN", within)]);
        }
        let Some(TokenTree::Group(parameters)) = tokens.next() else {
            return wrong("a function has its parameters in parentheses");
        };
        let rest: Vec<TokenTree> = tokens.collect();
        let body = match rest.last() {
            Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Brace => Some(g.stream()),
            _ => None,
        };
        let Some(body) = body else {
            return wrong("a function without a body has nothing to trace");
        };
        let rest = &rest[..rest.len() - 1];
        let is_where = |t: &TokenTree| matches!(t, TokenTree::Ident(i) if i.to_string() == "where");
        let end = rest.iter().position(is_where).unwrap_or(rest.len());
        let gives: TokenStream = match &rest[..end] {
            // `->` are two tokens.
            [_, _, gives @ ..] => gives.iter().cloned().collect(),
            _ => {
                return wrong(
                    "a function of tensors gives something: a tensor, a tree, or a `Result` of one",
                );
            }
        };
        refuse_impl(&gives)?;
        let parts = split(parameters.stream().into_iter().collect());
        if parts.len() > MOST {
            let message = format!(
                "a marked function has at most {MOST} parameters: more are fields of a struct, by \
                 `#[derive(Tensors)]`"
            );
            return wrong(&message);
        }
        let numbered = parts.into_iter().enumerate();
        let parameters = numbered.map(|(k, part)| Parameter::parse(k, part));
        Ok(Marked {
            parameters: parameters.collect::<Result<_, _>>()?,
            attributes,
            visibility: visibility.into_iter().collect(),
            name,
            generics,
            gives,
            bounds: rest[end..].iter().cloned().collect(),
            body,
        })
    }

    /// The function in its place.
    fn tokens(&self, checkpoint: &str) -> TokenStream {
        let all = |text: &str| -> TokenStream {
            let one = |p: &Parameter| p.filled(text);
            self.parameters.iter().map(one).collect()
        };
        let is_method = self.parameters.first().is_some_and(Parameter::is_self);
        let beside = Ident::new(
            &format!("__body_of_{}", self.plain_name()),
            self.name.span(),
        );
        let mut with = vec![
            ("ATTRIBUTES", self.outer_attributes()),
            ("VISIBILITY", self.visibility.clone()),
            ("NAME", TokenTree::Ident(self.name.clone()).into()),
            ("GENERICS", self.generics.clone()),
            ("PARAMETERS", all("OUTER,")),
            ("GIVES", self.gives.clone()),
            ("BOUNDS", self.bounds.clone()),
            ("OWNED", all("OWNED,")),
            ("PASSED", all("PASSED,")),
            ("CHECKPOINT", checkpoint.parse().expect("it is a word")),
            ("BESIDE", TokenTree::Ident(beside).into()),
            ("WRITTEN", all("WRITTEN,")),
            ("BODY", self.body.clone()),
        ];
        let body = match is_method {
            true => filled(
                "Self::BESIDE(READ)",
                &[with[10].clone(), ("READ", all("READ,"))],
            ),
            false => {
                let lets = all("let PATTERN: TYPE = READ;");
                filled("LETS BODY", &[("LETS", lets), with[12].clone()])
            }
        };
        with.push(("CALLED", body));
        let mut out = filled(
            "ATTRIBUTES VISIBILITY fn NAME GENERICS (PARAMETERS) -> GIVES BOUNDS {
                let __body = |__passed: &(OWNED)| -> GIVES { CALLED };
                let __called = {
                    static FUNCTION: ::monoglot::Marked = ::monoglot::Marked::new(CHECKPOINT);
                    FUNCTION.call(__body, (PASSED))
                };
                <GIVES as ::monoglot::Carries>::carrying(__called)
            }",
            &with,
        );
        if is_method {
            let text = "#[doc(hidden)] fn BESIDE GENERICS (WRITTEN) -> GIVES BOUNDS { BODY }";
            out.extend(filled(text, &with));
        }
        out
    }

    /// Its name, as a part of another.
    fn plain_name(&self) -> String {
        let name = self.name.to_string();
        name.trim_start_matches("r#").to_string()
    }

    /// Its attributes, with the caller's line among them.
    fn outer_attributes(&self) -> TokenStream {
        let mut out: TokenStream = self.attributes.iter().cloned().collect();
        if !text(self.attributes.clone()).contains("track_caller") {
            out.extend(filled("#[track_caller]", &[]));
        }
        out
    }
}
