//! Room `cli`.
fn main() {}
