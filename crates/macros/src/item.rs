//! A struct as it is written. Flows in: the tokens that a derive is given; flows out: its name, its parameters
//! and its fields, or what is wrong with it. Invariant: nothing of a field's type is looked at.

use proc_macro::{Delimiter, Spacing, TokenStream, TokenTree};

/// A struct.
pub(crate) struct Item {
    pub(crate) name: String,
    /// Such as `T: Bound` and `const N: usize`.
    pub(crate) parameters: Vec<String>,
    /// Their names.
    pub(crate) arguments: Vec<String>,
    /// What stands behind `where`, with a comma at its end.
    pub(crate) bounds: String,
    pub(crate) fields: Vec<Field>,
}

/// A field, by name or by number.
pub(crate) struct Field {
    pub(crate) name: String,
    /// Whether it is marked `#[fixed]`.
    pub(crate) fixed: bool,
}

type Tokens = std::iter::Peekable<std::vec::IntoIter<TokenTree>>;

impl Item {
    /// The struct of these tokens.
    pub(crate) fn parse(input: TokenStream) -> Result<Item, String> {
        let mut tokens = iter(input);
        attributes(&mut tokens);
        visibility(&mut tokens);
        let keyword = tokens.next().map(|t| t.to_string());
        if keyword.as_deref() != Some("struct") {
            return Err("Tensors is derived for structs".into());
        }
        let name = tokens.next().ok_or("a struct without a name")?.to_string();
        let mut parameters = Vec::new();
        let mut arguments = Vec::new();
        if is(&tokens.peek().cloned(), '<') {
            tokens.next();
            for part in split(within_angles(&mut tokens)) {
                let (parameter, argument) = parameter(part)?;
                parameters.push(parameter);
                arguments.push(argument);
            }
        }
        let mut bounds = Vec::new();
        let mut fields = Vec::new();
        for token in tokens {
            match token {
                TokenTree::Group(g) if g.delimiter() == Delimiter::Brace => {
                    fields = named(g.stream())?;
                }
                TokenTree::Group(g)
                    if g.delimiter() == Delimiter::Parenthesis && bounds.is_empty() =>
                {
                    fields = numbered(g.stream());
                }
                TokenTree::Ident(word) if word.to_string() == "where" => {}
                TokenTree::Punct(p) if p.as_char() == ';' => {}
                token => bounds.push(token),
            }
        }
        let mut bounds = text(bounds);
        if !bounds.is_empty() && !bounds.trim_end().ends_with(',') {
            bounds.push(',');
        }
        Ok(Item {
            name,
            parameters,
            arguments,
            bounds,
            fields,
        })
    }

    /// Its parameters that are types.
    pub(crate) fn types(&self) -> impl Iterator<Item = &String> {
        let all = self.parameters.iter().zip(&self.arguments);
        let types = all.filter(|(p, _)| !p.starts_with("const "));
        types.map(|(_, name)| name)
    }
}

fn iter(stream: TokenStream) -> Tokens {
    stream
        .into_iter()
        .collect::<Vec<_>>()
        .into_iter()
        .peekable()
}

fn text(tokens: Vec<TokenTree>) -> String {
    tokens.into_iter().collect::<TokenStream>().to_string()
}

fn is(token: &Option<TokenTree>, what: char) -> bool {
    matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == what)
}

/// Pass by attributes; whether one is `#[fixed]`.
fn attributes(tokens: &mut Tokens) -> bool {
    let mut fixed = false;
    while is(&tokens.peek().cloned(), '#') {
        tokens.next();
        let body = tokens.next().map(|t| t.to_string());
        fixed |= body.as_deref() == Some("[fixed]");
    }
    fixed
}

/// Pass by `pub` and `pub(…)`.
fn visibility(tokens: &mut Tokens) {
    if tokens.peek().is_some_and(|t| t.to_string() == "pub") {
        tokens.next();
        let inside = |t: &TokenTree| matches!(t, TokenTree::Group(g) if g.delimiter() == Delimiter::Parenthesis);
        tokens.next_if(inside);
    }
}

/// The tokens up to the `>` that closes a `<` which was passed.
fn within_angles(tokens: &mut Tokens) -> Vec<TokenTree> {
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
fn split(tokens: Vec<TokenTree>) -> Vec<Vec<TokenTree>> {
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

/// A parameter as it is declared, without its default, and as it is given.
fn parameter(part: Vec<TokenTree>) -> Result<(String, String), String> {
    if is(&part.first().cloned(), '\'') {
        return Err("a tree of tensors holds no references".into());
    }
    let end = part.iter().position(|t| is(&Some(t.clone()), '='));
    let declared: Vec<TokenTree> = part[..end.unwrap_or(part.len())].to_vec();
    let first = declared[0].to_string();
    let name = match first.as_str() {
        "const" => declared.get(1).map(|t| t.to_string()).unwrap_or_default(),
        _ => first,
    };
    Ok((text(declared), name))
}

/// The fields in braces.
fn named(stream: TokenStream) -> Result<Vec<Field>, String> {
    let field = |part: Vec<TokenTree>| {
        let mut tokens = part.into_iter().collect::<Vec<_>>().into_iter().peekable();
        let fixed = attributes(&mut tokens);
        visibility(&mut tokens);
        let name = tokens.next().ok_or("a field without a name")?.to_string();
        Ok(Field { name, fixed })
    };
    let parts = split(stream.into_iter().collect());
    parts.into_iter().map(field).collect()
}

/// The fields in parentheses.
fn numbered(stream: TokenStream) -> Vec<Field> {
    let field = |(number, part): (usize, Vec<TokenTree>)| Field {
        name: number.to_string(),
        fixed: attributes(&mut part.into_iter().collect::<Vec<_>>().into_iter().peekable()),
    };
    let parts = split(stream.into_iter().collect());
    parts.into_iter().enumerate().map(field).collect()
}
