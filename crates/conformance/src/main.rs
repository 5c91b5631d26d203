//! Room `conformance`.
fn main() {}
