//! Random programs and random schedules, compared over devices: every device and every schedule must
//! give what the oracles give; captured functions, which must give what they do uncaptured; and texts that are almost valid, which every pass gives a result or an error
//! for. Flows in: seeds; flows out: the cases that differ, as text that parses.

pub mod check;
pub mod kernels;
pub mod linear;
mod own;
pub mod pairs;
pub mod program;
pub mod replay;
pub mod run;
pub mod spills;
pub mod texts;
