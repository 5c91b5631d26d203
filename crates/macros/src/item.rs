//! A struct as it is written. Flows in: the tokens that a derive is given; flows out: its name, its parameters
//! and its fields, or what is wrong with it. Invariant: nothing of a field's type is looked at.

use crate::tokens::{attributes, is, iter, split, text, visibility, within_angles};
use proc_macro::{Delimiter, TokenStream, TokenTree};

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
        let mut tokens = iter(part);
        let fixed = attributes(&mut tokens).fixed;
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
        fixed: attributes(&mut iter(part)).fixed,
    };
    let parts = split(stream.into_iter().collect());
    parts.into_iter().enumerate().map(field).collect()
}
