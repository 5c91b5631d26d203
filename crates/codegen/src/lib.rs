//! Room `codegen`.

pub mod opt;
