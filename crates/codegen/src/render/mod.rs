//! Back ends that make text. Flows in: a verified linear program, its record and the target; flows
//! out: source text, C with GNU vector extensions or, for the interpreter, the text form of the
//! program itself; or an error that names the op which a language lacks.

mod c;
mod cast;
mod expression;
mod language;
mod memory;
mod prelude;
mod renderer;
mod scalar;
mod vector;

use monoglot_uop::{Backend, Code, Dialect, Listing, ProgramInfo, Result, Target, UOp};

/// The back end of a dialect that is text.
pub fn backend(dialect: Dialect) -> &'static dyn Backend {
    match dialect {
        Dialect::C => &c::C,
        Dialect::Uops => &Text,
    }
}

/// The text form of the program itself.
struct Text;

// SAFETY: the text says, instruction by instruction, what the program does.
unsafe impl Backend for Text {
    fn emit(&self, listing: &Listing, info: &ProgramInfo, _target: &Target) -> Result<Code> {
        let ProgramInfo {
            name,
            threads,
            global_size,
            local_size,
            ..
        } = info;
        let program: &UOp = listing.program();
        let source = format!(
            "// kernel {name} threads {threads} global {global_size:?} local {local_size:?}\n{program}"
        );
        Ok(Code {
            source,
            binary: None,
        })
    }
}
