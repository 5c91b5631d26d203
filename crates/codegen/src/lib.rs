//! Kernels to programs. Flows in: a kernel, a SINK of ENDs of STOREs over RANGEs; flows out: a PROGRAM
//! with its linear form and its source. The stages are in `pipeline`, in order.
//!
//! In a LINEAR every operand of an instruction stands before it. AFTER and GROUP stand in it as well,
//! where they order what others use: an AFTER is its first source under another name, a GROUP nothing.

mod ahead;
mod asks;
mod atomics;
mod below;
mod build;
mod busy;
mod decompose;
mod expand;
mod gates;
mod gathers;
mod graph;
mod info;
mod limits;
mod linearize;
mod loops;
mod meanwhile;
mod memory;
mod native;
mod nests;
pub mod opt;
mod overlap;
mod padding;
mod panels;
mod peel;
pub mod pipeline;
mod registers;
mod render;
mod scratch;
mod select;
mod strands;
mod streams;
mod stripes;
#[cfg(test)]
mod tests;
mod tiles;

pub use pipeline::{Stage, Timings, lower, lower_shaped, render};
pub use render::{C, Uops};
