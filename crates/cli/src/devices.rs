//! `monoglot devices`: a line a device.

use crate::{Outcome, json_line};
use monoglot::compiler::device;
use serde::Serialize;
use std::io::Write;

/// What may be asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// An object a line
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Record<'a> {
    name: &'a str,
    about: &'a str,
    available: bool,
    missing: Option<&'a str>,
    default: bool,
}

/// List the devices.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let default = device::Config::current();
    for d in device::list() {
        let record = Record {
            name: d.name,
            about: &d.about,
            available: d.missing.is_none(),
            missing: d.missing.as_deref(),
            default: d.name == default.device_name(),
        };
        if args.json {
            json_line(out, &record)?;
            continue;
        }
        let mark = if record.default { '*' } else { ' ' };
        writeln!(out, "{mark} {:<11} {}", d.name, d.missing.as_ref().map_or("", |_| "not available: ").to_string() + d.missing.as_deref().unwrap_or(&d.about))?;
    }
    if !args.json {
        writeln!(out, "* is the default; DEV=NAME chooses another")?;
    }
    Ok(())
}
