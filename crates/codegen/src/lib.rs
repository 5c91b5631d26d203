//! Room `codegen`.

pub mod opt;
pub mod render;
