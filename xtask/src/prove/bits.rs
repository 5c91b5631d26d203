//! Expressions as SMT-LIB bit-vectors: each dtype in its own width, `index` in 64 bits. Flows in: a
//! rule's two sides and their nodes; flows out: the question to the solver whether they differ
//! anywhere, or nothing where an op has no such form.

use monoglot_uop::{DType, Op, UOp};
use rustc_hash::FxHashMap;
use std::fmt::Write;

/// Declarations and the assertion that the two differ.
pub(crate) fn query(before: &UOp, after: &UOp, nodes: &[UOp]) -> Option<String> {
    let mut text = String::new();
    let mut names: FxHashMap<&UOp, String> = FxHashMap::default();
    for (n, u) in nodes.iter().enumerate() {
        if !matches!(u.dtype(), DType::Void) && u.op() != Op::Stack {
            let sort = sort(u.dtype());
            let name = format!("t{n}");
            match u.op() {
                _ if u.is_invalid() => return None,
                Op::Param | Op::Range => {
                    writeln!(text, "(declare-const {name} {sort})").ok()?;
                    if u.dtype() != DType::Bool {
                        let (lo, hi) = u.min_max().map(|(a, b)| (a.to_i128(), b.to_i128()))?;
                        let le = if u.dtype().is_unsigned() {
                            "bvule"
                        } else {
                            "bvsle"
                        };
                        let lo = number(lo, u.dtype());
                        let hi = number(hi, u.dtype());
                        writeln!(text, "(assert (and ({le} {lo} {name}) ({le} {name} {hi})))")
                            .ok()?;
                    }
                }
                _ => {
                    let term = match u.const_value() {
                        Some(v) if u.dtype() == DType::Bool => v.truthy().to_string(),
                        Some(v) => number(v.to_i128(), u.dtype()),
                        None => {
                            let src: Vec<&str> = u
                                .src()
                                .iter()
                                .map(|s| names.get(s).map(String::as_str))
                                .collect::<Option<_>>()?;
                            apply(u, &src)?
                        }
                    };
                    writeln!(text, "(define-fun {name} () {sort} {term})").ok()?;
                }
            }
            names.insert(u, name);
        }
    }
    writeln!(
        text,
        "(assert (distinct {} {}))",
        names[before], names[after]
    )
    .ok()?;
    Some(text)
}

fn sort(d: DType) -> String {
    if d == DType::Bool {
        "Bool".into()
    } else {
        format!("(_ BitVec {})", d.bits())
    }
}

fn number(v: i128, d: DType) -> String {
    format!(
        "(_ bv{} {})",
        v as u128 & ((1u128 << d.bits()) - 1),
        d.bits()
    )
}

fn apply(u: &UOp, s: &[&str]) -> Option<String> {
    let from = u.src()[0].dtype();
    let to = u.dtype();
    let a = s[0];
    let b = s.get(1).copied().unwrap_or("");
    if u.op() == Op::Where {
        return Some(format!("(ite {a} {b} {})", s[2]));
    }
    if from == DType::Bool {
        return Some(match u.op() {
            Op::Add | Op::Or | Op::Max => format!("(or {a} {b})"),
            Op::Mul | Op::And | Op::Idiv => format!("(and {a} {b})"),
            Op::Mod | Op::CmpGt => format!("(and {a} (not {b}))"),
            Op::Xor | Op::CmpNe => format!("(xor {a} {b})"),
            Op::CmpEq => format!("(= {a} {b})"),
            Op::CmpLt => format!("(and (not {a}) {b})"),
            Op::CmpLe => format!("(=> {a} {b})"),
            Op::CmpGe => format!("(=> {b} {a})"),
            Op::Not => format!("(not {a})"),
            Op::Trunc => a.to_string(),
            Op::Cast | Op::Bitcast if to == DType::Bool => a.to_string(),
            Op::Cast | Op::Bitcast => format!("(ite {a} {} {})", number(1, to), number(0, to)),
            _ => return None,
        });
    }
    let (less, signed) = if from.is_unsigned() {
        ("bvult", false)
    } else {
        ("bvslt", true)
    };
    let zero = number(0, from);
    Some(match u.op() {
        Op::Add => format!("(bvadd {a} {b})"),
        Op::Sub => format!("(bvsub {a} {b})"),
        Op::Mul => format!("(bvmul {a} {b})"),
        Op::Neg => format!("(bvneg {a})"),
        Op::Not => format!("(bvnot {a})"),
        Op::And => format!("(bvand {a} {b})"),
        Op::Or => format!("(bvor {a} {b})"),
        Op::Xor => format!("(bvxor {a} {b})"),
        Op::Shl => format!("(bvshl {a} {b})"),
        Op::Shr if signed => format!("(bvashr {a} {b})"),
        Op::Shr => format!("(bvlshr {a} {b})"),
        Op::MulAcc => format!("(bvadd (bvmul {a} {b}) {})", s[2]),
        Op::Trunc => a.to_string(),
        Op::Max => format!("(ite ({less} {a} {b}) {b} {a})"),
        Op::Idiv if !signed => format!("(ite (= {b} {zero}) {zero} (bvudiv {a} {b}))"),
        // One less than the quotient rounded toward zero, where that was rounded up.
        Op::Idiv => {
            let up = format!(
                "(and (distinct (bvsrem {a} {b}) {zero}) (xor (bvslt {a} {zero}) (bvslt {b} {zero})))"
            );
            let less = format!("(bvsub (bvsdiv {a} {b}) {})", number(1, from));
            format!("(ite (= {b} {zero}) {zero} (ite {up} {less} (bvsdiv {a} {b})))")
        }
        Op::Mod if !signed => format!("(ite (= {b} {zero}) {a} (bvurem {a} {b}))"),
        Op::Mod => format!("(ite (= {b} {zero}) {a} (bvsmod {a} {b}))"),
        Op::CmpLt => format!("({less} {a} {b})"),
        Op::CmpGt => format!("({less} {b} {a})"),
        Op::CmpLe => format!("(not ({less} {b} {a}))"),
        Op::CmpGe => format!("(not ({less} {a} {b}))"),
        Op::CmpNe => format!("(distinct {a} {b})"),
        Op::CmpEq => format!("(= {a} {b})"),
        Op::Cast if to == DType::Bool => format!("(distinct {a} {zero})"),
        Op::Cast if to.bits() < from.bits() => format!("((_ extract {} 0) {a})", to.bits() - 1),
        Op::Cast if signed => format!("((_ sign_extend {}) {a})", to.bits() - from.bits()),
        Op::Cast => format!("((_ zero_extend {}) {a})", to.bits() - from.bits()),
        Op::Bitcast if to == DType::Bool => format!("(distinct {a} {zero})"),
        Op::Bitcast => a.to_string(),
        _ => return None,
    })
}
