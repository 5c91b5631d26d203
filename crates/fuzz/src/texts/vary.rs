//! Changes of a text. Flows in: lines of the text form; flows out: lines in which some numbers, ops,
//! dtypes, axis types, operands or whole lines are others. Types, which only check, are left out, so that
//! a change may go on through what depends on it.

use crate::program::Dice;
use monoglot_uop::{AddrSpace, AxisType, DType, Op, ReduceOp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number,
    Word,
    Other,
}

#[derive(Clone, Debug)]
struct Token {
    kind: Kind,
    text: String,
}

type Line = Vec<Token>;

/// Numbers at which something ends.
const NUMBERS: &[i128] = &[
    0,
    1,
    -1,
    2,
    3,
    4,
    7,
    8,
    15,
    16,
    17,
    31,
    32,
    33,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    257,
    1000,
    1024,
    4096,
    65535,
    65536,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    1 << 32,
    1_000_000_000_000,
    1 << 53,
    1 << 55,
    1 << 60,
    (1 << 62) + 1,
    i64::MAX as i128,
    i64::MIN as i128,
    1 << 63,
    u64::MAX as i128,
    u64::MAX as i128 + 1,
    -2,
    -1000,
    -(1 << 31),
];

/// The text with one to five changes.
pub(super) fn vary(text: &str, dice: &mut Dice) -> String {
    let mut lines: Vec<Line> = text.lines().map(|l| tokens(without_type(l))).collect();
    for _ in 0..1 + dice.roll(3) + dice.roll(3) {
        change(&mut lines, dice);
    }
    let line = |l: &Line| l.iter().map(|t| t.text.as_str()).collect::<String>();
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A line without its `: type`.
fn without_type(line: &str) -> &str {
    let mut depth = 0;
    let mut quoted = false;
    for (i, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '[' | '(' if !quoted => depth += 1,
            ']' | ')' if !quoted => depth -= 1,
            ':' if !quoted && depth == 0 && line[..i].ends_with(' ') => return &line[..i],
            _ => {}
        }
    }
    line
}

fn tokens(line: &str) -> Line {
    let mut out: Line = Vec::new();
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let after = |keep: &dyn Fn(char) -> bool| {
            rest.char_indices()
                .skip(1)
                .find(|(_, c)| !keep(*c))
                .map_or(rest.len(), |(i, _)| i)
        };
        let negative = c == '-' && rest[1..].starts_with(|c: char| c.is_ascii_digit());
        let (kind, n) = if c == '"' {
            let end = rest[1..].find('"').map_or(rest.len(), |i| i + 2);
            (Kind::Other, end)
        } else if c.is_ascii_digit() || negative {
            (Kind::Number, after(&|c| c.is_ascii_digit()))
        } else if c.is_ascii_alphabetic() || c == '_' || c == '%' {
            let inner = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '%';
            (Kind::Word, after(&inner))
        } else {
            (Kind::Other, c.len_utf8())
        };
        out.push(Token {
            kind,
            text: rest[..n].to_string(),
        });
        rest = &rest[n..];
    }
    out
}

/// The places of tokens that are wanted.
fn places(lines: &[Line], wanted: impl Fn(&Token) -> bool) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let fits = line.iter().enumerate().filter(|(_, t)| wanted(t));
        out.extend(fits.map(|(j, _)| (i, j)));
    }
    out
}

fn some<T: Copy>(dice: &mut Dice, from: &[T]) -> Option<T> {
    (!from.is_empty()).then(|| *dice.pick(from))
}

fn change(lines: &mut Vec<Line>, dice: &mut Dice) -> Option<()> {
    match dice.roll(20) {
        0..7 => number(lines, dice),
        7..10 => op(lines, dice),
        10..12 => word(lines, dice, DType::from_name, DType::ALL, DType::name),
        12 => word(
            lines,
            dice,
            AxisType::from_name,
            AxisType::ALL,
            AxisType::name,
        ),
        13 => match dice.roll(2) {
            0 => word(
                lines,
                dice,
                AddrSpace::from_name,
                AddrSpace::ALL,
                AddrSpace::name,
            ),
            _ => word(
                lines,
                dice,
                ReduceOp::from_name,
                ReduceOp::ALL,
                ReduceOp::name,
            ),
        },
        14 | 15 => operand(lines, dice),
        16 => exchange(lines, dice),
        17 => drop_or_repeat(lines, dice),
        18 => remove(lines, dice),
        _ => insert(lines, dice),
    }
}

/// Another number in one place, or in all that have the same.
fn number(lines: &mut [Line], dice: &mut Dice) -> Option<()> {
    let all = places(lines, |t| t.kind == Kind::Number);
    let (i, j) = some(dice, &all)?;
    let old = lines[i][j].text.clone();
    let value: i128 = old.parse().ok()?;
    let new = match dice.roll(8) {
        0 => value + 1,
        1 => value - 1,
        2 => value.wrapping_mul(2),
        3 => {
            let (i, j) = some(dice, &all)?;
            lines[i][j].text.parse().ok()?
        }
        4 => value / 2,
        _ => *dice.pick(NUMBERS),
    };
    let everywhere = dice.roll(2) == 0;
    for (a, b) in all {
        if (a, b) == (i, j) || everywhere && lines[a][b].text == old {
            lines[a][b].text = new.to_string();
        }
    }
    Some(())
}

/// Where the op of a line stands.
fn op_of(line: &Line) -> Option<(usize, Op)> {
    let named = line
        .iter()
        .enumerate()
        .filter(|(_, t)| t.kind == Kind::Word);
    named
        .take(2)
        .find_map(|(j, t)| Some((j, Op::from_name(&t.text)?)))
}

/// Another op, most times one of the same number of sources.
fn op(lines: &mut [Line], dice: &mut Dice) -> Option<()> {
    let all: Vec<(usize, (usize, Op))> = (lines.iter().enumerate())
        .filter_map(|(i, l)| Some((i, op_of(l)?)))
        .collect();
    let (i, (j, old)) = some(dice, &all)?;
    let alike = |op: &Op| {
        op.arity() == old.arity() && op.arg_kind() == old.arg_kind()
            || op.is_elementwise() && old.is_elementwise() && op.arity() == old.arity()
    };
    let fits: Vec<Op> = Op::ALL.iter().copied().filter(alike).collect();
    let new = match dice.roll(8) {
        0 => *dice.pick(Op::ALL),
        _ => *dice.pick(&fits),
    };
    lines[i][j].text = new.name().into();
    Some(())
}

/// Another word of a kind, in one place or in all that have the same.
fn word<T: Copy>(
    lines: &mut [Line],
    dice: &mut Dice,
    of: impl Fn(&str) -> Option<T>,
    words: &[T],
    name: impl Fn(T) -> &'static str,
) -> Option<()> {
    let all = places(lines, |t| t.kind == Kind::Word && of(&t.text).is_some());
    let (i, j) = some(dice, &all)?;
    let old = lines[i][j].text.clone();
    let new = name(some(dice, words)?);
    let everywhere = dice.roll(3) > 0;
    for (a, b) in all {
        if (a, b) == (i, j) || everywhere && lines[a][b].text == old {
            lines[a][b].text = new.into();
        }
    }
    Some(())
}

/// The name that a line gives.
fn given(line: &Line) -> Option<&str> {
    let first = line.iter().position(|t| t.text != " ")?;
    let named = line.get(first + 1)?.text == " " && line.get(first + 2)?.text == "=";
    (named && line[first].kind == Kind::Word).then(|| line[first].text.as_str())
}

/// Names that the lines before give.
fn above(lines: &[Line], i: usize) -> Vec<String> {
    let names = lines[..i].iter().filter_map(given);
    names.map(str::to_string).collect()
}

/// The places of operands: names that a line above gives.
fn operands(lines: &[Line]) -> Vec<(usize, usize)> {
    let mut names: Vec<&str> = Vec::new();
    let mut out = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let own = given(line);
        let fits = |t: &Token| t.kind == Kind::Word && names.contains(&t.text.as_str());
        let named = line.iter().enumerate().filter(|(_, t)| fits(t));
        out.extend(named.map(|(j, _)| (i, j)));
        names.extend(own);
    }
    out
}

/// Another node as an operand.
fn operand(lines: &mut [Line], dice: &mut Dice) -> Option<()> {
    let (i, j) = some(dice, &operands(lines))?;
    let names = above(lines, i);
    let new = dice.pick(&names).clone();
    lines[i][j].text = new;
    Some(())
}

/// Two operands of a line in each other's place.
fn exchange(lines: &mut [Line], dice: &mut Dice) -> Option<()> {
    let all = operands(lines);
    let (i, j) = some(dice, &all)?;
    let others: Vec<usize> = (all.iter())
        .filter(|p| p.0 == i && p.1 != j)
        .map(|p| p.1)
        .collect();
    let k = some(dice, &others)?;
    lines[i].swap(j, k);
    Some(())
}

/// An operand, or a number, less or more.
fn drop_or_repeat(lines: &mut [Line], dice: &mut Dice) -> Option<()> {
    let mut all = operands(lines);
    all.extend(places(lines, |t| t.kind == Kind::Number));
    let (i, j) = some(dice, &all)?;
    if dice.roll(2) == 0 {
        lines[i][j].text.clear();
        return Some(());
    }
    let again = lines[i][j].clone();
    let comma = lines[i]
        .iter()
        .skip(j)
        .any(|t| t.text == ")" || t.text == "]");
    let between = Token {
        kind: Kind::Other,
        text: if comma { ", " } else { " " }.into(),
    };
    lines[i].splice(j..j, [again, between]);
    Some(())
}

/// A line less: its first operand, or a node above, stands for it.
fn remove(lines: &mut Vec<Line>, dice: &mut Dice) -> Option<()> {
    let all: Vec<usize> = (0..lines.len())
        .filter(|&i| op_of(&lines[i]).is_some())
        .collect();
    let i = some(dice, &all)?;
    let name = given(&lines[i]).map(str::to_string);
    let first = operands(lines).into_iter().find(|p| p.0 == i);
    let first = first.map(|(i, j)| lines[i][j].text.clone());
    let stands = first.or_else(|| {
        some(dice, &(0..above(lines, i).len()).collect::<Vec<_>>())
            .map(|k| above(lines, i)[k].clone())
    });
    lines.remove(i);
    if let (Some(name), Some(stands)) = (name, stands) {
        for t in lines.iter_mut().flatten().filter(|t| t.text == name) {
            t.text = stands.clone();
        }
    }
    Some(())
}

/// A line more: an op on a node, which takes that node's place in one use.
fn insert(lines: &mut Vec<Line>, dice: &mut Dice) -> Option<()> {
    let (i, j) = some(dice, &operands(lines))?;
    let old = lines[i][j].text.clone();
    let names = above(lines, i);
    let other = dice.pick(&names).clone();
    let op = *dice.pick(Op::ALL);
    let arg = match op.arg_kind() {
        "dtype" => format!("[{}]", dice.pick(DType::ALL).name()),
        "reduce" => format!("[{}, {}]", dice.pick(ReduceOp::ALL).name(), dice.roll(3)),
        "axes" => ["[0]", "[1, 0]", "[0, 1, 2]"][dice.roll(3) as usize].to_string(),
        "flags" => format!("[{}]", dice.roll(3)),
        "fill" => "[0]".into(),
        "place" if op == Op::Copy => "[CPU]".into(),
        "element" => "[0]".into(),
        "range" => format!("[{}, LOOP]", 90 + dice.roll(3)),
        "text" => "[\"gidx0\"]".into(),
        _ => String::new(),
    };
    let count = op.arity().0.max(1);
    let numbers = ["1", "(2, 3)", "0", "-1", "(1,)"];
    let rest: Vec<String> = (1..count)
        .map(|_| match dice.roll(3) {
            0 => numbers[dice.roll(5) as usize].to_string(),
            1 => old.clone(),
            _ => other.clone(),
        })
        .collect();
    let name = format!("z{}", lines.len());
    let line = format!("{name} = {}{arg} {old} {}", op.name(), rest.join(" "));
    lines[i][j].text = name;
    lines.insert(i, tokens(&line));
    Some(())
}
