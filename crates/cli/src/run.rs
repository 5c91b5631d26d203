//! `monoglot run`: start a saved program and call it. Flows in: its folder, and for each of its inputs a file, a
//! number, or the wish for random ones; flows out: what it takes and gives, what it gave, and how long starting
//! and calling it took.

mod array;
mod files;
mod npy;

use crate::{Failure, Outcome, json_line, seconds};
use array::Array;
use files::{read, write};
use monoglot::compiler::uop::Scalar;
use monoglot::{DType, Input, Port, Program, Tensor};
use serde::Serialize;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// What may be asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder that the program was saved in
    folder: PathBuf,
    /// An input: a file (.npy, .safetensors, or .safetensors#NAME), or a number for a size or a tensor of one element
    #[arg(long, value_name = "NAME=FILE")]
    input: Vec<String>,
    /// Make up the inputs that are not given, from this seed: floats from 0 to 1, integers 0 and 1, the greatest
    /// lengths
    #[arg(long, value_name = "SEED")]
    random: Option<u64>,
    /// Write what it gives: a .safetensors by name, or for a single tensor a .npy
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Call it so many times, with the same inputs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Save it again after the calls, with its states as they are then
    #[arg(long, value_name = "FOLDER")]
    save: Option<PathBuf>,
    /// One object
    #[arg(long)]
    json: bool,
}

/// Elements that are shown of each tensor.
const SHOWN: usize = 8;

#[derive(Serialize)]
struct Record {
    inputs: Vec<PortRecord>,
    outputs: Vec<PortRecord>,
    given: Vec<Given>,
    weights: usize,
    states: usize,
    bytes: usize,
    kernels: usize,
    start_s: f64,
    calls: usize,
    first_call_s: f64,
    call_min_s: f64,
    call_median_s: f64,
}

#[derive(Serialize)]
struct PortRecord {
    name: String,
    /// None of a size.
    dtype: Option<&'static str>,
    /// The least and greatest size of each axis.
    shape: Vec<(i64, i64)>,
}

/// A tensor that was given.
#[derive(Serialize)]
struct Given {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    /// The first elements.
    values: Vec<Element>,
}

/// An element as it is told: integers and truth values exactly, a float that is no number by its name.
#[derive(Serialize)]
#[serde(untagged)]
enum Element {
    Bool(bool),
    Int(i128),
    Float(f64),
    Name(&'static str),
}

impl Element {
    fn of(scalar: Scalar) -> Element {
        match scalar {
            Scalar::Bool(b) => Element::Bool(b),
            Scalar::Int(n) => Element::Int(n),
            Scalar::Float(f64::INFINITY) => Element::Name("inf"),
            Scalar::Float(f64::NEG_INFINITY) => Element::Name("-inf"),
            Scalar::Float(v) if v.is_nan() => Element::Name("NaN"),
            Scalar::Float(v) => Element::Float(v),
            Scalar::Invalid => Element::Name("invalid"),
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Bool(b) => write!(f, "{b}"),
            Element::Int(n) => write!(f, "{n}"),
            Element::Float(v) => write!(f, "{v:.5}"),
            Element::Name(name) => f.write_str(name),
        }
    }
}

/// Start it and call it.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let begin = Instant::now();
    let program = Program::load(&args.folder)?;
    let start_s = begin.elapsed().as_secs_f64();
    let inputs = inputs(args, &program)?;
    let mut times = Vec::new();
    let mut given = Vec::new();
    for _ in 0..args.repeat {
        let begin = Instant::now();
        given = program.call(inputs.as_slice())?;
        Tensor::realize_all(&given.iter().collect::<Vec<_>>())?;
        times.push(begin.elapsed().as_secs_f64());
    }
    let first_call_s = times[0];
    times.sort_by(f64::total_cmp);
    let mut arrays = Vec::with_capacity(given.len());
    for (port, tensor) in program.outputs().iter().zip(&given) {
        arrays.push(Array::of(port.name(), tensor)?);
    }
    let mut record = Record {
        inputs: program.inputs().iter().map(PortRecord::of).collect(),
        outputs: program.outputs().iter().map(PortRecord::of).collect(),
        given: arrays.iter().map(Given::of).collect(),
        weights: 0,
        states: 0,
        bytes: 0,
        kernels: program.kernels(),
        start_s,
        calls: times.len(),
        first_call_s,
        call_min_s: times[0],
        call_median_s: times[times.len() / 2],
    };
    for (_, tensor, written) in program.tensors() {
        record.weights += usize::from(!written);
        record.states += usize::from(written);
        record.bytes += tensor.numel()? * tensor.dtype()?.bytes();
    }
    if let Some(file) = &args.output {
        write(file, &arrays)?;
    }
    if let Some(folder) = &args.save {
        program.save(folder)?;
    }
    match args.json {
        true => json_line(out, &record),
        false => told(&program, &record, out),
    }
}

/// The record for people.
fn told(program: &Program, record: &Record, out: &mut dyn Write) -> Outcome {
    for port in program.inputs() {
        writeln!(out, "takes    {port}")?;
    }
    for port in program.outputs() {
        writeln!(out, "gives    {port}")?;
    }
    let megabytes = record.bytes as f64 / 1e6;
    writeln!(
        out,
        "has      {} weights and {} states of {megabytes:.1} MB, {} kernels",
        record.weights, record.states, record.kernels
    )?;
    for given in &record.given {
        let values: Vec<String> = given.values.iter().map(Element::to_string).collect();
        let shape = &given.shape;
        let more = match shape.iter().product::<usize>() > SHOWN {
            true => " …",
            false => "",
        };
        writeln!(out, "gave     {} {:?}", given.name, shape)?;
        writeln!(out, "         {}{more}", values.join(" "))?;
    }
    writeln!(out, "started  in {}", seconds(record.start_s))?;
    let first = seconds(record.first_call_s);
    match record.calls {
        1 => writeln!(out, "called   in {first}")?,
        n => {
            let least = seconds(record.call_min_s);
            let median = seconds(record.call_median_s);
            writeln!(
                out,
                "called   {n} times: first {first}, least {least}, median {median}"
            )?;
        }
    }
    Ok(())
}

impl PortRecord {
    fn of(port: &Port) -> PortRecord {
        PortRecord {
            name: port.name().into(),
            dtype: port.dtype().map(DType::name),
            shape: port.bounds(),
        }
    }
}

impl Given {
    fn of(array: &Array) -> Given {
        Given {
            name: array.name.clone(),
            dtype: array.dtype.name(),
            shape: array.shape.clone(),
            values: array.first(SHOWN).map(Element::of).collect(),
        }
    }
}

/// What the program is called with.
fn inputs(args: &Args, program: &Program) -> Result<Vec<Input>, Failure> {
    let takes = || -> String {
        let ports = program.inputs().iter();
        ports.map(|port| format!("\n  {port}")).collect()
    };
    let mut given: Vec<(&str, &str)> = Vec::new();
    for text in &args.input {
        let Some((name, value)) = text.split_once('=') else {
            let message = format!("--input {text}: it is NAME=FILE or NAME=NUMBER");
            return Err(Failure::Told(message));
        };
        if !program.inputs().iter().any(|p| p.name() == name) {
            let message = format!("the program takes no {name:?}; it takes{}", takes());
            return Err(Failure::Told(message));
        }
        if value.is_empty() {
            let message = format!("--input {text}: it names no file and no number");
            return Err(Failure::Told(message));
        }
        if given.iter().any(|(known, _)| *known == name) {
            let message = format!("--input {name}= is given twice");
            return Err(Failure::Told(message));
        }
        given.push((name, value));
    }
    if let Some(seed) = args.random {
        Tensor::manual_seed(seed);
    }
    let mut out = Vec::with_capacity(program.inputs().len());
    let mut missing: Vec<&str> = Vec::new();
    for port in program.inputs() {
        let value = given.iter().find(|(name, _)| *name == port.name());
        match value {
            Some((_, value)) => out.push(one(port, value)?),
            None if args.random.is_some() => out.push(random(port)?),
            None => missing.push(port.name()),
        }
    }
    if missing.is_empty() {
        return Ok(out);
    }
    let names = missing.join(", ");
    let first = missing[0];
    Err(Failure::Told(format!(
        "no input is given for {names}; the program takes{}\ngive each as --input {first}=FILE.npy (or \
         .safetensors, or a number), or have them made up by --random 1",
        takes()
    )))
}

/// An input that is a number or a file.
fn one(port: &Port, value: &str) -> Result<Input, Failure> {
    if let Ok(number) = value.parse::<i64>() {
        return Ok(Input::Integer(number));
    }
    if let Ok(number) = value.parse::<f64>() {
        return Ok(Input::Float(number));
    }
    let array = read(value, port.name())?;
    match port.dtype() {
        Some(wanted) if wanted != array.dtype => Err(Failure::Told(format!(
            "{value}: is of {}, and the program takes {port}; save it as that",
            array.dtype
        ))),
        _ => Ok(Input::Tensor(array.tensor(port.device()))),
    }
}

/// An input of the port's greatest sizes, from the stream of random numbers.
fn random(port: &Port) -> Result<Input, Failure> {
    let sizes: Vec<i64> = port.bounds().into_iter().map(|(_, most)| most).collect();
    let (Some(dtype), Some(device)) = (port.dtype(), port.device()) else {
        return Ok(Input::Integer(sizes[0]));
    };
    let tensor = match dtype.is_float() {
        true => Tensor::rand(sizes.clone()).cast(dtype),
        false => Tensor::randint(sizes.clone(), 0, 2).cast(dtype),
    };
    let bytes = tensor.to_bytes()?;
    Ok(Input::Tensor(Tensor::from_bytes_on(
        &bytes, sizes, dtype, device,
    )))
}
