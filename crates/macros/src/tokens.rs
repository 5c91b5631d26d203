//! What all macros do with tokens. Flows in: tokens of a struct or of a function; flows out: its parts, or tokens with
//! parts put in their places. Invariant: what a user wrote keeps its place in his file.

use proc_macro::{Delimiter, Group, Spacing, Span, TokenStream, TokenTree};

/// What is wrong with what a user wrote, and where.
pub(crate) struct Wrong {
    message: String,
    at: Span,
}

impl Wrong {
    pub(crate) fn new(message: impl Into<String>, at: Span) -> Wrong {
        Wrong {
            message: message.into(),
            at,
        }
    }

    /// An error of the compiler's.
    pub(crate) fn tokens(&self) -> TokenStream {
        let text = format!("::core::compile_error!({:?});", self.message);
        let tokens = text.parse::<TokenStream>();
        let tokens = tokens.expect("what is written here are tokens");
        let here = |mut token: TokenTree| {
            token.set_span(self.at);
            token
        };
        tokens.into_iter().map(here).collect()
    }
}

pub(crate) type Tokens = std::iter::Peekable<std::vec::IntoIter<TokenTree>>;

/// Tokens one by one.
pub(crate) fn iter(stream: impl IntoIterator<Item = TokenTree>) -> Tokens {
    stream
        .into_iter()
        .collect::<Vec<_>>()
        .into_iter()
        .peekable()
}

pub(crate) fn text(tokens: Vec<TokenTree>) -> String {
    tokens.into_iter().collect::<TokenStream>().to_string()
}

pub(crate) fn is(token: &Option<TokenTree>, what: char) -> bool {
    matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == what)
}

/// What stands before an item, a field or a parameter.
#[derive(Default)]
pub(crate) struct Attributes {
    /// Whether one is `#[fixed]`.
    pub(crate) fixed: bool,
    /// The others.
    pub(crate) others: Vec<TokenTree>,
}

/// Pass by attributes.
pub(crate) fn attributes(tokens: &mut Tokens) -> Attributes {
    let mut out = Attributes::default();
    while is(&tokens.peek().cloned(), '#') {
        let hash = tokens.next();
        let body = tokens.next();
        if body.as_ref().is_some_and(|t| t.to_string() == "[fixed]") {
            out.fixed = true;
        } else {
            out.others.extend(hash.into_iter().chain(body));
        }
    }
    out
}

/// Pass by `pub` and `pub(…)`.
pub(crate) fn visibility(tokens: &mut Tokens) -> Vec<TokenTree> {
    let mut out = Vec::new();
    out.extend(tokens.next_if(|t| t.to_string() == "pub"));
    if !out.is_empty() {
        let inside = |t: &TokenTree| matches!(t, TokenTree::Group(g) if g.delimiter() == Delimiter::Parenthesis);
        out.extend(tokens.next_if(inside));
    }
    out
}

/// The tokens up to the `>` that closes a `<` which was passed.
pub(crate) fn within_angles(tokens: &mut Tokens) -> Vec<TokenTree> {
    let mut open = 1;
    let mut out: Vec<TokenTree> = Vec::new();
    for token in tokens.by_ref() {
        open += angle(out.last(), &token);
        if open == 0 {
            break;
        }
        out.push(token);
    }
    out
}

/// Whether a token opens or closes angles: the `>` of `->` does neither.
fn angle(before: Option<&TokenTree>, token: &TokenTree) -> i32 {
    let TokenTree::Punct(p) = token else { return 0 };
    let arrow = matches!(before, Some(TokenTree::Punct(b))
        if b.as_char() == '-' && b.spacing() == Spacing::Joint);
    match p.as_char() {
        '<' => 1,
        '>' if !arrow => -1,
        _ => 0,
    }
}

/// What stands between commas that are in no angles.
pub(crate) fn split(tokens: Vec<TokenTree>) -> Vec<Vec<TokenTree>> {
    let mut parts: Vec<Vec<TokenTree>> = vec![Vec::new()];
    let mut open = 0;
    for token in tokens {
        let part = parts.last_mut().expect("there is one from the beginning");
        open += angle(part.last(), &token);
        let ends = matches!(&token, TokenTree::Punct(p) if p.as_char() == ',' && open == 0);
        if ends {
            parts.push(Vec::new());
        } else {
            part.push(token);
        }
    }
    parts.retain(|p| !p.is_empty());
    parts
}

/// The tokens of a text of ours, with others in the places of some words.
pub(crate) fn filled(text: &str, with: &[(&str, TokenStream)]) -> TokenStream {
    let tokens = text.parse::<TokenStream>();
    put(tokens.expect("what is written here are tokens"), with)
}

fn put(tokens: TokenStream, with: &[(&str, TokenStream)]) -> TokenStream {
    let one = |token: TokenTree| match token {
        TokenTree::Group(g) => {
            let inside = put(g.stream(), with);
            TokenTree::Group(Group::new(g.delimiter(), inside)).into()
        }
        TokenTree::Ident(word) => {
            let name = word.to_string();
            let found = with.iter().find(|(place, _)| *place == name);
            match found {
                Some((_, tokens)) => tokens.clone(),
                None => TokenTree::Ident(word).into(),
            }
        }
        token => token.into(),
    };
    tokens.into_iter().flat_map(one).collect()
}
