//! The characters of the text form: words, numbers, quoted texts, and the values between brackets.
//!
//! Flows in: a place in a text; flows out: what stands there, the place moved behind it. Invariant:
//! the place is always a character boundary; inside brackets a new line is only space.

use super::value::{Literal, Value};
use crate::dtype::DType;

/// What was read, or where the text is wrong and why.
pub(super) type Read<T> = std::result::Result<T, (usize, String)>;

/// A place in a text.
pub(super) struct Cursor<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    /// Open brackets.
    pub(super) depth: usize,
}

impl<'a> Cursor<'a> {
    /// The byte here; 0 at the end.
    pub(super) fn peek(&self) -> u8 {
        self.ahead(0)
    }

    fn ahead(&self, n: usize) -> u8 {
        self.text.as_bytes().get(self.at + n).copied().unwrap_or(0)
    }

    /// Whether `byte` stands here; it is passed.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let is = self.peek() == byte;
        self.at += is as usize;
        is
    }

    /// Pass spaces and comments.
    pub(super) fn space(&mut self) {
        loop {
            match self.peek() {
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'\n' if self.depth > 0 => self.at += 1,
                b'/' if self.ahead(1) == b'/' => {
                    let rest = &self.text[self.at..];
                    self.at += rest.find('\n').unwrap_or(rest.len());
                }
                _ => return,
            }
        }
    }

    pub(super) fn end_of_line(&mut self) -> Read<()> {
        self.space();
        match self.text[self.at..].chars().next() {
            None | Some('\n' | '}') => Ok(()),
            Some(c) => Err((self.at, format!("{c:?} does not belong here"))),
        }
    }

    pub(super) fn while_bytes(&mut self, keep: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while keep(self.peek()) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    pub(super) fn digits(&mut self) -> &'a str {
        self.while_bytes(|b| b.is_ascii_digit())
    }

    /// A name, an op, a dtype, or a device with its `:` parts.
    pub(super) fn word(&mut self) -> Option<&'a str> {
        let start = self.at;
        let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'%';
        if !(self.peek().is_ascii_alphabetic() || matches!(self.peek(), b'_' | b'%')) {
            return None;
        }
        self.while_bytes(inner);
        while self.peek() == b':' && inner(self.ahead(1)) {
            self.at += 1;
            self.while_bytes(inner);
        }
        Some(&self.text[start..self.at])
    }

    /// A constant, with its suffix.
    pub(super) fn literal(&mut self) -> Read<Option<Literal>> {
        let start = self.at;
        let sign = self.take(b'-');
        let number = self.peek().is_ascii_digit();
        if number {
            self.digits();
            if self.peek() == b'.' && self.ahead(1).is_ascii_digit() {
                self.at += 1;
                self.digits();
            }
            let signed = matches!(self.ahead(1), b'+' | b'-') as usize;
            if self.peek() == b'e' && self.ahead(1 + signed).is_ascii_digit() {
                self.at += 1 + signed;
                self.digits();
            }
        } else {
            let known = match self.while_bytes(|b| b.is_ascii_alphabetic()) {
                "inf" => true,
                "nan" if self.take(b'#') => {
                    self.while_bytes(|b| b.is_ascii_hexdigit());
                    !sign
                }
                word => matches!(word, "nan" | "true" | "false" | "INVALID") && !sign,
            };
            if !known {
                self.at = start;
                return if sign {
                    Err((start, "a number was expected".into()))
                } else {
                    Ok(None)
                };
            }
        }
        let text = self.text[start..self.at].to_string();
        if !number {
            self.take(b'_');
        }
        let at = self.at;
        let word = self.while_bytes(|b| b.is_ascii_alphanumeric() || b == b'_');
        let suffix = DType::from_name(word);
        if suffix.is_none() && !word.is_empty() {
            return Err((at, format!("there is no dtype {word}")));
        }
        Ok(Some(Literal { text, suffix }))
    }

    /// `[kind: values]`: where it stands, the kind where one is named, the values.
    pub(super) fn brackets(&mut self) -> Read<(usize, Option<&'a str>, Vec<Value>)> {
        let start = self.at;
        self.at += 1;
        self.depth += 1;
        self.space();
        let first = self.at;
        let kind = self.word().filter(|_| self.take(b':'));
        if kind.is_none() {
            self.at = first;
        }
        Ok((start, kind, self.values(b']', 0)?))
    }

    /// Values up to the closing bracket of an open one.
    fn values(&mut self, close: u8, nested: usize) -> Read<Vec<Value>> {
        let mut out = Vec::new();
        loop {
            self.space();
            if self.take(close) {
                self.depth -= 1;
                return Ok(out);
            }
            if !self.take(b',') {
                out.push(self.value(nested)?);
            }
        }
    }

    fn value(&mut self, nested: usize) -> Read<Value> {
        let start = self.at;
        if nested > 4 {
            return Err((start, "brackets nest too deeply".into()));
        }
        match self.peek() {
            b'"' => return self.quoted().map(Value::Text),
            b'|' => return Ok(Value::Text(self.block_text())),
            b'[' => {
                self.at += 1;
                self.depth += 1;
                return self.values(b']', nested + 1).map(Value::List);
            }
            _ => {}
        }
        if let Some(l) = self.literal()? {
            return Ok(Value::Literal(l));
        }
        let word = self
            .word()
            .ok_or((start, "a value or a bracket was expected".to_string()))?
            .to_string();
        if self.take(b'=') {
            self.space();
            return Ok(Value::Named(word, Box::new(self.value(nested + 1)?)));
        }
        if self.take(b'(') {
            self.depth += 1;
            return self.values(b')', nested + 1).map(|v| Value::Apply(word, v));
        }
        Ok(Value::Word(word))
    }

    /// A text in quotes; a backslash stands before a quote, a backslash, and the `n` of a new line.
    fn quoted(&mut self) -> Read<String> {
        let start = self.at;
        let mut out = String::new();
        let mut chars = self.text[start + 1..].chars();
        while let Some(c) = chars.next() {
            match c {
                '"' => {
                    self.at = self.text.len() - chars.as_str().len();
                    return Ok(out);
                }
                '\\' => out.extend(chars.next().map(|c| if c == 'n' { '\n' } else { c })),
                c => out.push(c),
            }
        }
        Err((start, "this text is not closed".into()))
    }

    /// Lines that begin with `|`, joined.
    fn block_text(&mut self) -> String {
        let mut lines = Vec::new();
        while self.take(b'|') {
            self.take(b' ');
            let line = self.text[self.at..].split('\n').next().unwrap_or_default();
            lines.push(line);
            self.at += line.len();
            self.while_bytes(|b| matches!(b, b' ' | b'\t' | b'\n'));
        }
        lines.join("\n")
    }
}
