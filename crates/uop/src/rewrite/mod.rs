//! The rewrite engine. Flows in: a graph and a set of named rules; flows out: the graph in which no
//! rule matches any node. Invariant: a rewrite keeps dtype and shape (a constant that replaces an
//! array is broadcast), which is checked at every step; sources are rewritten before their users.
//!
//! A rule reads like the maths it stands for:
//!
//! ```
//! use monoglot_uop::{rule, rewrite::RuleSet, UOp, DType};
//! let set: RuleSet = RuleSet::new("example", vec![
//!     rule!(add_zero[x]: x + 0 => x),
//!     rule!(mul_twice[x, c: cnst, d: cnst]: (x * c) * d => x * &(c * d), if x.dtype().is_int()),
//! ]);
//! let x = UOp::variable(0, 0, 9);
//! assert_eq!(set.rewrite(&(&x + 0)).unwrap(), x);
//! ```

pub mod pattern;
pub mod trace;

use crate::error::{ErrorKind, Result};
use crate::marks::NodeMap;
use crate::node::{Srcs, UOp};
use crate::op::{Op, OpSet};
use crate::shape::Dim;
use pattern::{Bindings, Pat};
use std::sync::Arc;

/// Most rewrites in a row that start from one node, or from what the last one made below it; more is a loop among the
/// rules.
const CHAIN: u32 = 1 << 18;

type Apply = dyn Fn(&Bindings) -> Option<UOp> + Send + Sync;

/// One named rewrite. Made by [`rule!`](crate::rule).
pub struct Rule {
    /// Its name in traces and errors.
    pub name: &'static str,
    /// The source file that states it.
    pub file: &'static str,
    /// The line there.
    pub line: u32,
    /// The pattern as written (first) and with operands of commutative ops exchanged.
    pub patterns: Vec<Pat>,
    apply: Box<Apply>,
}

impl Rule {
    /// A rule from its parts.
    ///
    /// # Panics
    /// Where the pattern is a bare variable, or a listed variable does not occur in it.
    pub fn new(
        name: &'static str,
        at: (&'static str, u32),
        pattern: Pat,
        variables: &[&'static str],
        apply: Box<Apply>,
    ) -> Rule {
        for (i, v) in variables.iter().enumerate() {
            assert!(
                pattern.count(i) > 0,
                "rule {name}: variable {v} is not in the pattern"
            );
        }
        let patterns = pattern.orders();
        assert!(
            pattern.roots() != OpSet::ANY,
            "rule {name}: a bare variable"
        );
        Rule {
            name,
            file: at.0,
            line: at.1,
            patterns,
            apply,
        }
    }

    /// What the rule makes of this node, in whichever operand order fits.
    pub fn apply(&self, u: &UOp) -> Option<UOp> {
        self.patterns.iter().find_map(|p| self.apply_as(p, u))
    }

    fn apply_as(&self, p: &Pat, u: &UOp) -> Option<UOp> {
        let mut bound = Bindings::default();
        p.matches(u, &mut bound)
            .then(|| (self.apply)(&bound))
            .flatten()
    }
}

/// The right side of a rule may be a UOp, a reference to one, or an `Option`.
impl From<&UOp> for Option<UOp> {
    fn from(u: &UOp) -> Option<UOp> {
        Some(u.clone())
    }
}

/// State a rule: `rule!(name[x, c: cnst]: pattern => replacement, if condition)`. The list names the
/// variables and what they match (nothing: anything; `cnst`: CONST; see `pattern::kinds`). The
/// replacement is a UOp, a reference to one, or an `Option`.
#[macro_export]
macro_rules! rule {
    ($name:ident [$($v:ident $(: $k:ident)?),*] : $lhs:expr => $rhs:expr $(, if $cond:expr)?) => {{
        #[allow(unused_imports)]
        use $crate::rewrite::pattern::{kinds, IntoPat, Pat, PatOps};
        let pattern = {
            let mut _numbers = 0..;
            $(let $v = Pat::var(&mut _numbers, $crate::rule!(@kind $($k)?));)*
            IntoPat::into_pat($lhs)
        };
        $crate::rewrite::Rule::new(
            stringify!($name),
            (file!(), line!()),
            pattern,
            &[$(stringify!($v)),*],
            Box::new(move |_bound| {
                let mut _numbers = 0..;
                $(
                    #[allow(unused_variables)]
                    let $v: &$crate::UOp = _bound.get(&mut _numbers);
                )*
                $(if !($cond) { return None; })?
                Into::<Option<$crate::UOp>>::into($rhs)
            }),
        )
    }};
    (@kind) => { kinds::any };
    (@kind $k:ident) => { kinds::$k };
}

/// Named rules, dispatched by root op. Sets compose with `+`; earlier rules are tried first.
pub struct RuleSet {
    /// The pass's name in traces and errors.
    pub name: &'static str,
    rules: Vec<Arc<Rule>>,
    by_op: Vec<Vec<Entry>>,
    roots: OpSet,
}

/// A pattern of a rule, and what its first sources can be: most nodes are rejected by that.
struct Entry {
    rule: u16,
    pattern: u16,
    src: [OpSet; 2],
}

impl RuleSet {
    /// A set of rules.
    ///
    /// # Panics
    /// Where two rules have one name.
    pub fn new(name: &'static str, rules: Vec<Rule>) -> RuleSet {
        RuleSet::of(name, rules.into_iter().map(Arc::new).collect())
    }

    fn of(name: &'static str, rules: Vec<Arc<Rule>>) -> RuleSet {
        let mut by_op: Vec<Vec<Entry>> = Op::ALL.iter().map(|_| Vec::new()).collect();
        let mut roots = OpSet::EMPTY;
        for (i, rule) in rules.iter().enumerate() {
            assert!(
                !rules[..i].iter().any(|r| r.name == rule.name),
                "two rules are named {}",
                rule.name
            );
            for (j, p) in rule.patterns.iter().enumerate() {
                for op in Op::ALL.iter().copied().filter(|&op| p.roots().contains(op)) {
                    let src = [p.source_roots(0), p.source_roots(1)];
                    by_op[op as usize].push(Entry {
                        rule: i as u16,
                        pattern: j as u16,
                        src,
                    });
                    roots = roots.with(op);
                }
            }
        }
        RuleSet {
            name,
            rules,
            by_op,
            roots,
        }
    }

    /// The rules, in the order in which they are tried.
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// What the first rule that matches makes of one node. No rule may give the node itself.
    pub fn step(&self, u: &UOp) -> Option<(&Rule, UOp)> {
        let may_fit = |e: &&Entry| {
            let mut sources = u.src().iter().zip(&e.src);
            sources.all(|(s, ops)| ops.contains(s.op()))
        };
        for e in self.by_op[u.op() as usize].iter().filter(may_fit) {
            let rule = &*self.rules[e.rule as usize];
            let Some(new) = rule.apply_as(&rule.patterns[e.pattern as usize], u) else {
                continue;
            };
            // A scalar that replaces an array stands for that array.
            let new = if new.shape().is_empty() {
                new.broadcast(u.shape())
            } else {
                new
            };
            if new == *u {
                continue;
            }
            debug_assert!(
                new.dtype() == u.dtype() && new.shape() == u.shape(),
                "rule {} ({}:{}) turns {u:?} into {new:?}",
                rule.name,
                rule.file,
                rule.line
            );
            crate::effort::rewritten();
            trace::fired(|| trace::Event {
                pass: self.name,
                rule: rule.name,
                file: rule.file,
                line: rule.line,
                before: u.clone(),
                after: new.clone(),
            });
            return Some((rule, new));
        }
        None
    }

    /// The graph in which no rule matches any node.
    ///
    /// # Errors
    /// `Verify` where rules rewrite one node without end; it names them.
    pub fn rewrite(&self, root: &UOp) -> Result<UOp> {
        self.rewrite_with(root, &mut NodeMap::new())
    }

    /// As `rewrite`, keeping what is known of nodes in `done` for further graphs of the same pass.
    pub fn rewrite_with(&self, root: &UOp, done: &mut NodeMap<UOp, UOp>) -> Result<UOp> {
        let mut stack = Vec::with_capacity(64);
        stack.push(Frame::Enter(root.clone(), 0));
        while let Some(frame) = stack.pop() {
            let (u, chain) = match frame {
                Frame::Enter(u, _) if done.contains_key(&u) => continue,
                Frame::Enter(u, chain) => (u, chain),
                Frame::Link(from, to) => {
                    let end = done.get(&to).cloned().unwrap_or(to);
                    done.insert(from, end);
                    continue;
                }
            };
            let over = if self.untouched(&u) {
                Some(u.clone())
            } else {
                self.sources(&u, done)
            };
            match over {
                // Again once what is below is done.
                None => {
                    let waits = |s: &&UOp| !self.untouched(s) && !done.contains_key(s);
                    stack.push(Frame::Enter(u.clone(), chain));
                    let below = u.src().iter().rev().filter(waits);
                    stack.extend(below.map(|s| Frame::Enter(s.clone(), chain)));
                }
                Some(new) if new != u => {
                    stack.push(Frame::Link(u, new.clone()));
                    stack.push(Frame::Enter(new, chain));
                }
                Some(_) => match self.step(&u) {
                    None => _ = done.insert(u.clone(), u),
                    Some((rule, _)) if chain >= CHAIN => return Err(self.loops(&u, rule)),
                    Some((_, next)) => {
                        stack.push(Frame::Link(u, next.clone()));
                        stack.push(Frame::Enter(next, chain + 1));
                    }
                },
            }
        }
        Ok(done.get(root).unwrap_or(root).clone())
    }

    /// Whether no rule can match anything in this graph.
    fn untouched(&self, u: &UOp) -> bool {
        !u.ops_below().intersects(self.roots)
    }

    /// The node over its rewritten sources; None while one of them waits.
    fn sources(&self, u: &UOp, done: &NodeMap<UOp, UOp>) -> Option<UOp> {
        let mut new: Option<Srcs> = None;
        crate::effort::visited(1 + u.src().len());
        for (i, s) in u.src().iter().enumerate() {
            if self.untouched(s) {
                continue;
            }
            let d = done.get(s)?;
            if d != s {
                new.get_or_insert_with(|| u.src().into())[i] = d.clone();
            }
        }
        Some(new.map_or_else(|| u.clone(), |src| u.with_src(src)))
    }

    /// Which rules keep rewriting this node.
    fn loops(&self, u: &UOp, rule: &Rule) -> crate::error::Error {
        let mut names = vec![rule.name];
        let mut at = u.clone();
        for _ in 0..64 {
            let Some((r, next)) = self.step(&at) else {
                break;
            };
            if !names.contains(&r.name) {
                names.push(r.name);
            }
            at = next;
        }
        let message = format!("rules rewrite {u:?} without end: {}", names.join(", "));
        ErrorKind::Verify {
            stage: self.name.into(),
            message,
        }
        .into()
    }
}

impl std::ops::Add for &RuleSet {
    type Output = RuleSet;
    fn add(self, other: &RuleSet) -> RuleSet {
        RuleSet::of(
            self.name,
            self.rules.iter().chain(&other.rules).cloned().collect(),
        )
    }
}

enum Frame {
    /// Rewrite what is below, then this.
    Enter(UOp, u32),
    /// What the second became, the first became.
    Link(UOp, UOp),
}

impl UOp {
    /// A scalar as an array of this shape.
    #[track_caller]
    pub fn broadcast(&self, shape: &crate::Shape) -> UOp {
        if shape.is_empty() {
            return self.clone();
        }
        let ones = crate::Shape::new(shape.iter().map(|_| Dim::Int(1)));
        let wide = self.reshape(&ones).and_then(|u| u.expand(shape));
        wide.expect("a scalar reshapes to ones and expands to anything")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn set() -> RuleSet {
        RuleSet::new(
            "test",
            vec![
                rule!(add_zero[x]: x + 0 => x),
                rule!(add_consts[x, c: cnst, d: cnst]: (x + c) + d => x + &UOp::int(c.as_int()? + d.as_int()?, x.dtype())),
                rule!(double[x]: x + x => x * 2),
            ],
        )
    }

    #[test]
    fn both_operand_orders_match_and_rewriting_reaches_a_fixpoint() {
        let x = UOp::variable(0, 0, 9);
        let u = (UOp::index_const(3) + (&x + 4)) + UOp::index_const(-7);
        assert_eq!(set().rewrite(&u).unwrap(), x);
        assert_eq!(set().rewrite(&(&x + &x)).unwrap(), &x * 2);
    }

    #[test]
    fn a_loop_among_rules_is_an_error_that_names_them() {
        let flip: RuleSet = RuleSet::new(
            "flip",
            vec![
                rule!(there[x, c: cnst]: x + c => x * c),
                rule!(back[x, c: cnst]: x * c => x + c),
            ],
        );
        let e = flip.rewrite(&(UOp::variable(0, 0, 9) + 3)).unwrap_err();
        assert!(
            e.to_string().contains("there") && e.to_string().contains("back"),
            "{e}"
        );
    }

    #[test]
    fn a_loop_below_what_rules_made_is_one_too() {
        let sink: RuleSet = RuleSet::new(
            "sink",
            vec![
                rule!(deeper[x, c: cnst]: x + c => (x + &UOp::int(c.as_int()? + 1, x.dtype())) * 2),
            ],
        );
        let e = sink.rewrite(&(UOp::variable(0, 0, 9) + 3)).unwrap_err();
        assert!(e.to_string().contains("deeper"), "{e}");
    }

    #[test]
    fn deep_chains_rewrite_and_drop_on_a_small_stack() {
        let run = || {
            let mut x = UOp::param(0, &crate::Shape::of(&[4]), DType::I32, None);
            for _ in 0..100_000 {
                x = (x + 3) * 1;
            }
            let y = set().rewrite(&x).unwrap();
            assert_eq!(y.src().len(), 2);
        };
        std::thread::Builder::new()
            .stack_size(512 << 10)
            .spawn(run)
            .unwrap()
            .join()
            .unwrap();
    }

    #[test]
    fn a_trace_names_every_rule_that_fired() {
        let x = UOp::variable(0, 0, 9);
        let (_, events) = trace::record(|| set().rewrite(&((&x + 0) + &x)).unwrap());
        let names: Vec<_> = events.iter().map(|e| e.rule).collect();
        assert_eq!(names, ["add_zero", "double"]);
        assert!(events[0].file.ends_with("mod.rs") && events[0].line > 0);
    }
}
