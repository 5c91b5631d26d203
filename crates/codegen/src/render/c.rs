//! A LINEAR program as one C function `void NAME(void *const *bufs, const long long *vars, int tid)`.
//! `bufs` follows the slots of the PARAMs that are storage, in ascending order; `vars` follows
//! `ProgramInfo::vars`.
//!
//! Values used once are written inside the expression that uses them, within the same loop and with
//! no store between; everything else is a variable. A vector of bools is a mask: lanes of 0 and −1 as
//! wide as what was compared, converted to another width where it is used, which costs nothing where
//! masks are registers of their own. REG storage whose offsets are all constants becomes variables.

use super::c_expr::NONE;
use super::c_memory::Registers;
use super::c_plan::Plan;
use super::c_types::{Prelude, literal, scalar};
use monoglot_uop::{Arg, Op, ProgramInfo, Scalar, UOp};
use rustc_hash::FxHashMap;
use std::fmt::Write;

/// Render a LINEAR program for a compiler of GNU C (gcc 12 or later, or clang).
pub fn render_c(program: &UOp, info: &ProgramInfo) -> String {
    let list = program.src();
    let plan = Plan::new(list);
    let mut r = Renderer {
        plan,
        prelude: Prelude::default(),
        regs: FxHashMap::default(),
        names: 0,
    };
    let mut body = String::with_capacity(64 * list.len());
    r.arguments(&mut body, list, info);
    r.find_registers(list);
    // Storage is declared for the whole function: a program may name it in several loops.
    for u in list.iter().filter(|u| u.op() == Op::Buffer) {
        body.push_str("  ");
        r.declare(&mut body, u);
    }
    let mut indent = 1;
    for (i, u) in list.iter().enumerate() {
        r.statement(&mut body, i, u, &mut indent);
    }
    let mut out = r.prelude.text();
    let _ = write!(
        out,
        "void {}(void *const *bufs, const long long *vars, int tid) {{\n{body}}}\n",
        info.name
    );
    out
}

pub(super) struct Renderer {
    pub(super) plan: Plan,
    pub(super) prelude: Prelude,
    pub(super) regs: FxHashMap<UOp, Registers>,
    names: u32,
}

impl Renderer {
    fn arguments(&mut self, o: &mut String, list: &[UOp], info: &ProgramInfo) {
        let mut slots: Vec<usize> = info.outs.iter().chain(&info.ins).copied().collect();
        let params = || list.iter().filter(|u| u.op() == Op::Param);
        for p in params().filter(|p| !p.shape().is_empty()) {
            slots.extend(p.buffer_arg().map(|b| b.slot as usize));
        }
        slots.sort_unstable();
        slots.dedup();
        for p in params() {
            let Some(b) = p.buffer_arg() else { continue };
            let (slot, c) = (b.slot as usize, scalar(b.dtype));
            let _ = if p.is_variable() {
                let k = info.vars.iter().position(|&v| v == slot).unwrap_or(0);
                if b.dtype.is_float() {
                    // The bits, in the first bytes of the word.
                    writeln!(o, "  {c} n{slot};").and_then(|()| {
                        writeln!(
                            o,
                            "  __builtin_memcpy(&n{slot}, vars + {k}, {});",
                            b.dtype.bytes()
                        )
                    })
                } else {
                    writeln!(o, "  const {c} n{slot} = ({c})vars[{k}];")
                }
            } else {
                let k = slots.iter().position(|&s| s == slot).unwrap_or(0);
                writeln!(o, "  {c} *p{slot} = ({c} *)bufs[{k}];")
            };
        }
    }

    fn statement(&mut self, o: &mut String, i: usize, u: &UOp, indent: &mut usize) {
        let (opens, closes) = (
            matches!(u.op(), Op::Range | Op::If),
            matches!(u.op(), Op::End | Op::EndIf),
        );
        let shown = match u.op() {
            // The threads of a CPU kernel share nothing that would need a barrier.
            Op::Param | Op::Buffer | Op::Const | Op::Special | Op::Barrier | Op::Sink => false,
            op => opens || closes || op == Op::Store || self.plan.is_variable(i),
        };
        if !shown {
            return;
        }
        *indent -= closes as usize;
        o.extend(std::iter::repeat_n("  ", *indent));
        match u.op() {
            Op::Range => {
                let (c, id) = (scalar(u.dtype()), u.range_arg().map_or(0, |r| r.0));
                let _ = write!(o, "for ({c} r{id} = 0; r{id} < ");
                self.value(o, &u.src()[0]);
                let _ = write!(o, "; r{id}++) {{");
            }
            Op::If => {
                o.push_str("if (");
                self.value(o, &u.src()[0]);
                o.push_str(") {");
            }
            Op::End | Op::EndIf => o.push('}'),
            Op::Store => self.store(o, u),
            _ => {
                self.names += 1;
                self.put(o, self.kind(u), "$V", NONE);
                let _ = write!(o, " v{} = ", self.names);
                self.expression(o, u);
                self.plan.set_name(i, self.names);
            }
        }
        o.push_str(if opens || closes { "\n" } else { ";\n" });
        *indent += opens as usize;
    }

    /// A value where it is used: a literal, a name, or its expression.
    pub(super) fn value(&mut self, o: &mut String, u: &UOp) {
        match u.op() {
            Op::Const => literal(o, u.const_value().unwrap_or(Scalar::Int(0)), u.dtype()),
            Op::Param => drop(write!(o, "n{}", u.buffer_arg().map_or(0, |b| b.slot))),
            Op::Range => drop(write!(o, "r{}", u.range_arg().map_or(0, |r| r.0))),
            Op::Special => o.push_str(if matches!(u.arg(), Arg::Text(t) if &**t == "tid") {
                "tid"
            } else {
                "0"
            }),
            _ => match self.plan.name(u) {
                0 => self.expression(o, u),
                name => drop(write!(o, "v{name}")),
            },
        }
    }
}
