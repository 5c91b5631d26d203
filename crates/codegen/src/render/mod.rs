//! Linear program in, source text out: C with GNU vector extensions, or the listing of the program
//! itself for the interpreter. Text depends on the program alone, so that it can key caches.

mod c;
mod c_cast;
mod c_expr;
mod c_memory;
mod c_plan;
mod c_types;
mod listing;

use monoglot_uop::{Dialect, ProgramInfo, Target, UOp};

pub use c::render_c;
pub use listing::render_linear;

/// The source of a LINEAR program in the target's dialect.
pub fn render(program: &UOp, info: &ProgramInfo, target: &Target) -> String {
    match target.dialect {
        Dialect::C => render_c(program, info),
        Dialect::Linear => render_linear(program, info),
    }
}
