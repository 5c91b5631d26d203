//! Room `device`.
