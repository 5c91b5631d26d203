//! Which back end makes programs of a dialect. Flows in: a target's dialect; flows out: the one back end for
//! it, of this compiler's or of the native room. Always: every dialect has one.

use monoglot_uop::{Backend, Dialect};

/// The back end of a dialect.
pub fn backend(dialect: Dialect) -> &'static dyn Backend {
    match dialect {
        Dialect::C => &monoglot_codegen::C,
        Dialect::Uops => &monoglot_codegen::Uops,
        Dialect::X86 => &monoglot_native::X86,
    }
}
