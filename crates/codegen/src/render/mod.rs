//! Linear program in, source text out: C with GNU vector extensions, or for the interpreter the text
//! form of the program itself. Text depends on the program alone, so that it can key caches.

mod c;
mod c_cast;
mod c_expr;
mod c_memory;
mod c_plan;
mod c_types;

use monoglot_uop::{Dialect, ProgramInfo, Target, UOp};

pub use c::render_c;

/// The source of a LINEAR program in the target's dialect.
pub fn render(program: &UOp, info: &ProgramInfo, target: &Target) -> String {
    match target.dialect {
        Dialect::C => render_c(program, info),
        Dialect::Linear => {
            let ProgramInfo {
                name,
                threads,
                global_size,
                local_size,
                ..
            } = info;
            format!(
                "// kernel {name} threads {threads} global {global_size:?} local {local_size:?}\n{program}"
            )
        }
    }
}
