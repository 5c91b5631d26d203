//! Room `nn`.
