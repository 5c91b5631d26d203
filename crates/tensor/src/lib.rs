//! Room `tensor`.
