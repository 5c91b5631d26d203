//! Room `models`.
