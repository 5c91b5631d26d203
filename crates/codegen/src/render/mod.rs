//! Back ends that make text, each under the name of its dialect. Flows in: a verified linear program, its record and the target; flows
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

pub use c::C;
use monoglot_uop::{Backend, Code, Listing, ProgramInfo, Result, Target, UOp};

/// The text form of the program itself.
pub struct Uops;

// SAFETY: the text says, instruction by instruction, what the program does.
unsafe impl Backend for Uops {
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
        Ok(Code::Text(source))
    }
}
