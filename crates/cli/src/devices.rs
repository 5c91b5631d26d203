//! `monoglot devices`: a line a device. Flows in: the table of devices; flows out: each one's name
//! and what it is, or why it cannot be opened.

use crate::{Outcome, json_line};
use monoglot::Device;
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
    let mut listed = false;
    for d in device::list() {
        let record = Record {
            name: d.name,
            about: &d.about,
            available: d.missing.is_none(),
            missing: d.missing.as_deref(),
            default: d.name == default.device_name(),
        };
        listed |= record.default;
        if args.json {
            json_line(out, &record)?;
            continue;
        }
        let mark = if record.default { '*' } else { ' ' };
        let text = d
            .missing
            .as_ref()
            .map_or(d.about.clone(), |why| format!("not available: {why}"));
        writeln!(out, "{}", wrapped(&format!("{mark} {:<11}", d.name), &text))?;
    }
    if !listed {
        // One by its parts, or none that there is.
        device::open(Device::new(default.device_name()))?;
        if !args.json {
            writeln!(out, "* {}", default.device_name())?;
        }
    }
    if !args.json {
        writeln!(out, "* is the default; DEV=NAME chooses another")?;
    }
    Ok(())
}

/// Text after a head, in lines of at most 80 columns.
fn wrapped(head: &str, text: &str) -> String {
    let mut out = head.to_string();
    let mut column = head.chars().count();
    let indent = column;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column + 1 + length > 80 && column > indent {
            out += &format!("\n{:indent$}", "");
            column = indent;
        }
        out += &format!(" {word}");
        column += 1 + length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn lines_are_short() {
        let out = wrapped("* CPU        ", &"caches of many bytes ".repeat(12));
        assert!(
            out.lines().count() > 2 && out.lines().all(|l| l.len() <= 80),
            "{out}"
        );
        assert!(
            out.lines()
                .skip(1)
                .all(|l| l.starts_with("              c") || l.starts_with("              "))
        );
    }
}
