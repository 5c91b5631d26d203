//! `monoglot show --memory`: the memory plan of a program. Flows in: a schedule; flows out: a table of its
//! buffers, an object for programs, or a picture of storage over time. Always: bytes are those of the
//! program's own storage; what it is given is another's.

use super::picture;
use crate::{Failure, Outcome, json_line};
use monoglot::compiler::schedule::{Allocation, Plan, Schedule};
use monoglot::compiler::uop::{Device, Op, UOp};
use serde::Serialize;
use std::io::Write;

/// How the plan is told.
pub(super) struct How<'a> {
    /// What it is the plan of.
    pub(super) name: &'a str,
    /// The file for a picture.
    pub(super) svg: Option<&'a str>,
    /// An object instead of a table.
    pub(super) json: bool,
}

/// The plan of a program on one device.
#[derive(Serialize)]
struct Record {
    program: String,
    device: String,
    calls: usize,
    /// Bytes of all memories.
    peak_bytes: usize,
    /// The most bytes that are in use at one CALL: no plan of this order has less.
    least_bytes: usize,
    /// The CALL at which they are.
    fullest_call: usize,
    /// Bytes if no two buffers shared any.
    separate_bytes: usize,
    memories: Vec<MemoryRecord>,
    buffers: Vec<Buffer>,
    /// Bytes in use at each CALL.
    in_use: Vec<usize>,
}

#[derive(Serialize)]
struct MemoryRecord {
    memory: usize,
    bytes: usize,
    output: Option<usize>,
}

#[derive(Serialize)]
struct Buffer {
    buffer: usize,
    bytes: usize,
    memory: usize,
    offset: usize,
    first_call: usize,
    last_call: usize,
    output: bool,
    holds: String,
}

/// Tell the memory plan of a schedule.
pub(super) fn run(schedule: &Schedule, how: &How, out: &mut dyn Write) -> Outcome {
    let devices = schedule.plan.devices();
    if how.svg.is_some() && devices.len() > 1 {
        return Err(Failure::Told(
            "a picture is of one device; this program uses several".into(),
        ));
    }
    for &device in &devices {
        let record = record(schedule, how.name, device);
        match how.json {
            true => json_line(out, &record)?,
            false => table(&record, out)?,
        }
        if let Some(path) = how.svg {
            let picture = picture::draw(&title(&record), &schedule.plan, record.calls);
            std::fs::write(path, picture)
                .map_err(|e| Failure::Told(format!("{path} could not be written: {e}")))?;
        }
    }
    if devices.is_empty() {
        writeln!(out, "{} needs no storage of its own", how.name)?;
    }
    Ok(())
}

fn record(schedule: &Schedule, name: &str, device: Device) -> Record {
    let plan: &Plan = &schedule.plan;
    let here = |a: &&(usize, &Allocation)| a.1.device == device;
    let holds = held(&schedule.linear, plan.allocations.len());
    let buffer = |(i, a): (usize, &Allocation)| Buffer {
        buffer: i,
        bytes: a.bytes,
        memory: a.memory,
        offset: a.offset,
        first_call: a.steps.0,
        last_call: a.steps.1,
        output: a.output,
        holds: holds[i].clone(),
    };
    let in_use = plan.in_use(device);
    let fullest_call = (0..in_use.len())
        .rev()
        .max_by_key(|&c| in_use[c])
        .unwrap_or(0);
    let buffers: Vec<Buffer> = plan
        .allocations
        .iter()
        .enumerate()
        .filter(|a| here(&a))
        .map(buffer)
        .collect();
    let memories = plan.memories.iter().enumerate();
    let memories = memories.filter(|(_, m)| m.device == device);
    Record {
        program: name.into(),
        device: device.name().into(),
        calls: schedule.linear.src().len(),
        peak_bytes: plan.peak(device),
        least_bytes: in_use.get(fullest_call).copied().unwrap_or(0),
        fullest_call,
        separate_bytes: buffers.iter().map(|b| b.bytes).sum(),
        memories: memories
            .map(|(i, m)| MemoryRecord {
                memory: i,
                bytes: m.bytes,
                output: m.output,
            })
            .collect(),
        buffers,
        in_use,
    }
}

/// What each buffer holds: dtype and shape.
fn held(linear: &UOp, count: usize) -> Vec<String> {
    let mut out = vec![String::new(); count];
    for call in linear.src() {
        for arg in call.src()[1..].iter().filter(|a| a.op() == Op::Buffer) {
            let slot = arg.buffer_arg().map_or(0, |b| b.slot as usize);
            if out[slot].is_empty() {
                out[slot] = format!("{}{}", arg.dtype(), arg.shape());
            }
        }
    }
    out
}

fn share(part: usize, whole: usize) -> f64 {
    match whole {
        0 => 100.0,
        n => part as f64 * 100.0 / n as f64,
    }
}

fn title(r: &Record) -> String {
    format!(
        "{} on {}: {} of storage, {} in use at CALL {} ({:.1} %)",
        r.program,
        r.device,
        picture::bytes(r.peak_bytes),
        picture::bytes(r.least_bytes),
        r.fullest_call,
        share(r.least_bytes, r.peak_bytes)
    )
}

fn table(r: &Record, out: &mut dyn Write) -> Outcome {
    let outputs = r.buffers.iter().filter(|b| b.output).count();
    writeln!(
        out,
        "{} on {}: {} calls, {} buffers, {outputs} of them outputs",
        r.program,
        r.device,
        r.calls,
        r.buffers.len(),
    )?;
    let line = |out: &mut dyn Write, what: &str, n: usize, about: String| {
        writeln!(out, "  {what:<22} {:>15}  {about}", grouped(n))
    };
    line(out, "peak of the plan", r.peak_bytes, "bytes".into())?;
    let about = format!(
        "at call {}, {:.1} % of the peak",
        r.fullest_call,
        share(r.least_bytes, r.peak_bytes)
    );
    line(out, "most in use at a call", r.least_bytes, about)?;
    let about = format!(
        "the plan is {:.1} % of it",
        share(r.peak_bytes, r.separate_bytes)
    );
    line(out, "each buffer apart", r.separate_bytes, about)?;
    writeln!(out)?;
    writeln!(
        out,
        "  {:>6} {:>13} {:>7} {:>13} {:>11}  holds",
        "buffer", "bytes", "memory", "offset", "calls"
    )?;
    for b in &r.buffers {
        let calls = match b.output {
            true => format!("{}..", b.first_call),
            false => format!("{}..{}", b.first_call, b.last_call),
        };
        let row = format!(
            "  {:>6} {:>13} {:>7} {:>13} {:>11}  {}",
            b.buffer,
            grouped(b.bytes),
            b.memory,
            grouped(b.offset),
            calls,
            b.holds
        );
        writeln!(out, "{}", row.chars().take(80).collect::<String>())?;
    }
    Ok(())
}

/// A number with commas between thousands.
fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, d) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(d);
    }
    out
}
