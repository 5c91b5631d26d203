//! Random programs and random schedules, compared over devices: every device and every schedule must
//! give what the oracles give; captured functions, which must give what they do uncaptured; texts that are almost
//! valid, which every pass gives a result or an error for; and saved programs whose files are changed. Flows in: seeds; flows out: the cases that differ, as text that parses.

pub mod check;
pub mod kernels;
pub mod linear;
mod own;
pub mod pairs;
mod pieces;
pub mod program;
pub mod replay;
pub mod run;
pub mod saved;
pub mod spills;
pub mod texts;
