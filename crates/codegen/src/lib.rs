//! Room `codegen`.
