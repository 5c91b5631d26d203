//! Bytes of instructions: read back, and run. Flows in: instructions whose registers have numbers, values; flows
//! out: nothing, or what the machine did otherwise. Always: what needs AVX2 says so where the machine lacks it.

mod control;
mod emulated;
#[path = "../emulator/mod.rs"]
mod emulator;
mod general;
mod machine;
mod masks;
mod rows;
mod text;
mod vectors;
