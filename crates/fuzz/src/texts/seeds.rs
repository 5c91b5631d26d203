//! Valid graphs of every stage, as texts. Flows in: numbers; flows out: a case of a file test, its input or
//! what it gives, or what a stage makes of a random program.

use super::stages::Stages;
use crate::program::{self, Dice};
use crate::run::Scheduled;
use monoglot_codegen::{Stage, lower};
use monoglot_engine::backend;
use monoglot_uop::text::{parse_many, print, print_many};
use monoglot_uop::{Device, UOp};
use std::path::{Path, PathBuf};

/// Texts of the file tests that parse.
pub(super) struct Seeds {
    cases: Vec<String>,
}

impl Seeds {
    pub(super) fn new() -> Seeds {
        let rooms = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let mut cases = Vec::new();
        for path in files(rooms) {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            for case in text.split("\n==== ").skip(1) {
                cases.extend(graphs(case));
            }
        }
        cases.retain(|text| parse_many(text).is_ok_and(|roots| !roots.is_empty()));
        Seeds { cases }
    }

    /// A valid text.
    pub(super) fn pick(&self, dice: &mut Dice, stages: &Stages) -> String {
        if dice.roll(5) < 2 && !self.cases.is_empty() {
            return dice.pick(&self.cases).clone();
        }
        let roots = program::random(dice.roll(1 << 40), 1 + dice.roll(12), Device::new("CPU"));
        of_program(&roots, dice, stages).unwrap_or_else(|| print_many(&roots))
    }
}

/// Every `.txt` below a folder `filetests`, in order.
fn files(rooms: &Path) -> Vec<PathBuf> {
    let mut open = vec![rooms.to_path_buf()];
    let mut out = Vec::new();
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "txt")
                && path.components().any(|c| c.as_os_str() == "filetests")
            {
                out.push(path);
            }
        }
    }
    out.sort();
    out
}

/// The input of a case, and what it gives.
fn graphs(case: &str) -> Vec<String> {
    let body = case.split_once('\n').map_or("", |(_, body)| body);
    let (input, given) = body.split_once("\n----").unwrap_or((body, ""));
    let input = match input.trim_start().strip_prefix("passes:") {
        Some(rest) => rest.split_once('\n').map_or("", |(_, graph)| graph),
        None => input,
    };
    vec![input.trim().to_string(), given.trim().to_string()]
}

/// What some stage makes of a program; None where that stage has nothing.
fn of_program(roots: &[UOp], dice: &mut Dice, stages: &Stages) -> Option<String> {
    let stage = dice.roll(8);
    if stage < 2 {
        return None;
    }
    let (device, target) = stages.target(dice.roll(3) as usize);
    let scheduled = Scheduled::new(roots, device, target, dice.roll(2) == 0).ok()?;
    if stage == 2 {
        return Some(print(&scheduled.schedule.linear));
    }
    let kernels = scheduled.kernels();
    let kernel = kernels.get(dice.roll(kernels.len() as u64) as usize)?;
    let wanted = match stage {
        3 | 4 => return Some(print(kernel)),
        5 => Stage::Optimize,
        6 => Stage::Expand,
        _ => Stage::Linearize,
    };
    let mut seen = None;
    let mut watch = |s: Stage, u: &UOp| {
        if s == wanted {
            seen = Some(print(u));
        }
    };
    let _ = lower(kernel, target, backend(target.dialect), None, &mut watch);
    seen
}
