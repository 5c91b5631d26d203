//! A linear program as a function in a language like C. Values that the listing names are
//! variables, REG storage of one element too; all others are written inside the expression that
//! uses them. A vector of bools is a mask: lanes of 0 and −1 as wide as what was compared,
//! converted to another width where it is used, which costs nothing where masks are registers of
//! their own. Flows in: a listing, the program's record and a language; flows out: the function's
//! text, or an error that names the op that the language lacks.

use super::language::{self, Argument, Language, scalar};
use super::prelude::Prelude;
use super::renderer::{NONE, Renderer, range};
use crate::loops;
use monoglot_uop::linear::{address, has_phases, phases};
use monoglot_uop::op::{Class, Leaf, Memory, Movement, Order};
use monoglot_uop::spec::verify_linear;
use monoglot_uop::{
    AddrSpace, Arg, AxisType, Backend, Code, ErrorKind, Listing, Op, ProgramInfo, Result, Target,
    UOp,
};
use std::fmt::Write;

/// Most turns of a loop that are done at once where it has more, and most instructions of them all.
const TURNS: usize = 4;
const INSTRUCTIONS: usize = 192;
/// Fewest operations of a turn: with fewer, each sum waits for its last term, and counting costs nothing.
const SUMS: usize = 9;

/// C for a CPU.
pub struct C;

// SAFETY: the text says, instruction by instruction, what the program does.
unsafe impl Backend for C {
    fn emit(&self, listing: &Listing, info: &ProgramInfo, _target: &Target) -> Result<Code> {
        let source = if has_phases(listing.program()) {
            phased(&language::C, listing, info)?
        } else {
            function(&language::C, listing, info)?
        };
        Ok(Code::Text(source))
    }
}

/// A program whose threads have phases, as a function of C: the thread's number counts on through them.
fn phased(language: &'static Language, listing: &Listing, info: &ProgramInfo) -> Result<String> {
    let mut body = String::new();
    let arguments = arguments(listing.instructions(), info)?;
    (language.entry)(&mut body, &info.name, &arguments);
    let threads = info.threads.max(1);
    let _ = writeln!(
        body,
        "  const int phase = tid / {threads};\n  tid %= {threads};"
    );
    let mut prelude = Prelude::default();
    for (k, phase) in phases(listing.program()).into_iter().enumerate() {
        let phase = verify_linear(phase)?;
        let _ = writeln!(body, "  if (phase == {k}) {{");
        prelude = statements(language, &Listing::of(&phase), prelude, &mut body, 2)?;
        body.push_str("  }\n");
    }
    body.push_str(prelude.fence());
    Ok(format!("{}{body}}}\n", prelude.text(language, &body)))
}

/// A program as a function of a language.
fn function(language: &'static Language, listing: &Listing, info: &ProgramInfo) -> Result<String> {
    let list = listing.instructions();
    let mut body = String::with_capacity(64 * list.len());
    (language.entry)(&mut body, &info.name, &arguments(list, info)?);
    let mut prelude = statements(language, listing, Prelude::default(), &mut body, 1)?;
    body.push_str(prelude.fence());
    Ok(format!("{}{body}}}\n", prelude.text(language, &body)))
}

/// The instructions of a listing, and the prelude with what they need besides.
fn statements(
    language: &'static Language,
    listing: &Listing,
    prelude: Prelude,
    body: &mut String,
    mut indent: usize,
) -> Result<Prelude> {
    let list = listing.instructions();
    let mut r = Renderer {
        listing,
        language,
        prelude,
        names: vec![0; list.len()],
        last: 0,
    };
    // Storage is declared for all of them: a program may name it in several loops.
    for u in list.iter().filter(|u| u.op() == Op::Buffer) {
        r.declare(body, u, &"  ".repeat(indent));
    }
    for (i, u) in list.iter().enumerate() {
        r.statement(body, i, u, &mut indent)?;
    }
    Ok(r.prelude)
}

/// The PARAMs, in the order of the list.
fn arguments(list: &[UOp], info: &ProgramInfo) -> Result<Vec<Argument>> {
    let params = || list.iter().filter(|u| u.op() == Op::Param);
    let of = |p: &UOp| p.buffer_arg().map(|b| (b.slot, b.dtype));
    let storage = params().filter(|p| !p.is_variable()).filter_map(of);
    let mut slots: Vec<usize> = info.outs.iter().chain(&info.ins).copied().collect();
    slots.extend(storage.map(|(slot, _)| slot as usize));
    slots.sort_unstable();
    slots.dedup();
    let argument = |p: &UOp| -> Option<Argument> {
        let (slot, dtype) = of(p)?;
        let at = |all: &[usize]| all.iter().position(|&s| s == slot as usize);
        Some(if p.is_variable() {
            Argument::Variable(slot, dtype, at(&info.vars)?)
        } else {
            Argument::Buffer(slot, dtype, at(&slots)?)
        })
    };
    let missing = |p: &UOp| ErrorKind::Verify {
        stage: "render".into(),
        message: format!("{p:?} is no variable of the program's record"),
    };
    params()
        .map(|p| argument(p).ok_or_else(|| missing(p).into()))
        .collect()
}

impl Renderer<'_> {
    fn statement(&mut self, o: &mut String, i: usize, u: &UOp, indent: &mut usize) -> Result<()> {
        let line = |o: &mut String, indent: usize| o.extend(std::iter::repeat_n("  ", indent));
        match u.op().class() {
            // Arguments and storage have been declared; constants stand where they are used.
            Class::Leaf(Leaf::Param | Leaf::Buffer | Leaf::Const) => {}
            Class::Order(order) => match order {
                Order::Range => {
                    let c = scalar(u.dtype());
                    let id = range(u);
                    if let (Some(n), Some(unroll)) = (self.at_once(i), self.language.unroll) {
                        line(o, *indent);
                        let _ = writeln!(o, "{unroll} {n}");
                    }
                    line(o, *indent);
                    let _ = write!(o, "for ({c} r{id} = ");
                    match u.src().get(1) {
                        Some(first) => self.value(o, first)?,
                        None => o.push('0'),
                    }
                    let _ = write!(o, "; r{id} < ");
                    self.value(o, &u.src()[0])?;
                    let _ = writeln!(o, "; r{id}++) {{");
                    *indent += 1;
                }
                Order::If => {
                    line(o, *indent);
                    o.push_str("if (");
                    self.value(o, &u.src()[0])?;
                    o.push_str(") {\n");
                    *indent += 1;
                }
                Order::End | Order::EndIf => {
                    *indent -= 1;
                    line(o, *indent);
                    o.push_str("}\n");
                }
                Order::Barrier => {
                    let barrier = self.language.barrier.ok_or_else(|| self.unsupported(u))?;
                    line(o, *indent);
                    let _ = writeln!(o, "{barrier};");
                }
                // Names and orders of what stands in the list.
                Order::After | Order::Group | Order::Sink => {}
                Order::Linear => return Err(self.unsupported(u)),
            },
            Class::Memory(Memory::Store) => {
                line(o, *indent);
                self.store(o, u)?;
                o.push_str(";\n");
            }
            Class::Memory(Memory::AtomicAdd) => {
                line(o, *indent);
                self.atomic(o, u)?;
                o.push('\n');
            }
            Class::Memory(Memory::Load) if *u.arg() != Arg::None && !self.listing.is_named(i) => {
                line(o, *indent);
                self.prefetch(o, u)?;
                o.push_str(";\n");
            }
            // It is written where it is used, if the language has it.
            Class::Code(_) if u.op() == Op::Special => {
                self.special(u)?;
            }
            Class::Movement(Movement::Index | Movement::Shrink) if address(u).is_some() => {}
            Class::Memory(Memory::Load) | Class::Movement(_) => self.variable(o, i, u, *indent)?,
            _ if u.op().is_elementwise() || matches!(u.op(), Op::Wmma | Op::Custom) => {
                self.variable(o, i, u, *indent)?
            }
            _ => return Err(self.unsupported(u)),
        }
        Ok(())
    }

    /// How many turns of the loop at this place are done at once, where counting them is part of what a turn costs:
    /// those of an innermost loop over terms that does much in each, all or a few as its instructions are few. The sums stay in their
    /// registers from turn to turn, where terms that are copied in the list would each have registers of their own.
    fn at_once(&self, i: usize) -> Option<usize> {
        let list = self.listing.instructions();
        let range = &list[i];
        if loops::kind(range) != AxisType::Reduce {
            return None;
        }
        let body = list[i + 1..].iter().take_while(|u| u.op() != Op::End);
        let mut instructions = 0;
        let mut sums = 0;
        for u in body {
            match u.op() {
                Op::Range => return None,
                Op::Load | Op::Store if u.src()[0].addrspace() == Some(AddrSpace::Reg) => {}
                Op::Load | Op::Store => instructions += 1,
                op if op.is_elementwise() => {
                    instructions += 1;
                    sums += usize::from(u.dtype().is_float());
                }
                _ => {}
            }
        }
        if sums < SUMS {
            return None;
        }
        let most = INSTRUCTIONS / instructions.max(1);
        let turns = match range.src() {
            [end] => end.as_int(),
            _ => None,
        };
        match turns {
            Some(n) if n as usize <= most => Some(n as usize),
            _ => Some(most.min(TURNS)),
        }
        .filter(|&n| n > 1)
    }

    /// A value that has a name.
    fn variable(&mut self, o: &mut String, i: usize, u: &UOp, indent: usize) -> Result<()> {
        if !self.listing.is_named(i) {
            return Ok(());
        }
        o.extend(std::iter::repeat_n("  ", indent));
        self.last += 1;
        let name = self.last;
        self.put(o, self.type_of(u), "$V", NONE)?;
        let _ = write!(o, " v{name} = ");
        self.expression(o, u)?;
        o.push_str(";\n");
        self.names[i] = name;
        Ok(())
    }
}
