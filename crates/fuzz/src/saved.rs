//! Saved programs whose folders are changed. Flows in: seeds; flows out: how many changed folders were refused and
//! how many were loaded, or what went worse than an error.
//!
//! Bytes are changed anywhere: then the digests find it, or the reader does. Numbers and words of the text and of
//! the manifest are changed with digests that fit, as who may write the folder could: then it is the checks that
//! keep a program from leaving its storage. Invariant: code is only changed without its digest, since whoever may
//! write code has it run.

use crate::check::Tally;
use crate::program::Dice;
use monoglot_device::NewFolder;
use monoglot_tensor::{DType, Error, ErrorKind, Input, Program, Result, Tensor, Variable, jit};
use std::fs;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

const FILES: [&str; 5] = [
    "program.json",
    "program.txt",
    "weights.safetensors",
    "code-0.launches",
    "code-0.object",
];

/// Numbers at which something ends.
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "-1",
    "64",
    "255",
    "4096",
    "65537",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999999",
];

/// Words of texts and manifests.
const WORDS: [&str; 18] = [
    "ADD", "MUL", "STORE", "LOAD", "INDEX", "PARAM", "BUFFER", "RANGE", "SINK", "CALL", "f32",
    "i64", "u8", "bool", "index", "CPU", "null", "true",
];

/// How many folders were refused, and how many loaded.
#[derive(Default, Debug)]
pub struct Outcomes {
    /// By a typed error.
    pub refused: usize,
    /// And called.
    pub loaded: usize,
}

/// Change saved programs, one by seed, in a folder of our own.
///
/// # Errors
/// Where the programs cannot be saved as they are.
pub fn saved(seeds: Range<u64>, folder: &Path, tally: &mut Tally) -> Result<Outcomes> {
    let programs = [network, states, lengths, asserted];
    let mut whole = Vec::with_capacity(programs.len());
    for (k, program) in programs.iter().enumerate() {
        let path = folder.join(format!("whole-{k}"));
        program()?.save(&path)?;
        whole.push(path);
    }
    let mut outcomes = Outcomes::default();
    let changed = folder.join("changed");
    let first = seeds.start;
    for seed in seeds {
        let mut dice = Dice::new(seed ^ 0x7361_7665);
        let from = dice.pick(&whole).clone();
        let what = change(&from, &changed, &mut dice)?;
        let tried = catch_unwind(AssertUnwindSafe(|| tried(&changed)));
        match tried {
            Ok(Ok(())) => outcomes.loaded += 1,
            Ok(Err(e)) if is_told(&e) => outcomes.refused += 1,
            Ok(Err(e)) => tally.wrong(seed, "saved", &e.to_string(), what),
            Err(_) => tally.wrong(seed, "saved", "it panicked", what),
        }
        tally.looked();
        if (seed - first) % 100 == 99 {
            tally.tell(&format!(
                "saved: {} folders, {outcomes:?}",
                seed - first + 1
            ));
        }
    }
    Ok(outcomes)
}

/// Load a program, and call it with ones.
fn tried(folder: &Path) -> Result<()> {
    let program = Program::load(folder)?;
    let mut inputs = Vec::new();
    for port in program.inputs() {
        let sizes: Vec<i64> = port.bounds().into_iter().map(|(_, most)| most).collect();
        let count = sizes.iter().try_fold(1i64, |n, &m| n.checked_mul(m));
        inputs.push(match (port.dtype(), port.device()) {
            _ if count.is_none_or(|n| n > 1 << 20) => return Ok(()),
            (Some(dtype), Some(device)) => {
                let bytes = vec![1; count.unwrap_or(0) as usize * dtype.bytes()];
                Input::Tensor(Tensor::from_bytes_on(&bytes, sizes, dtype, device))
            }
            _ => Input::Integer(sizes[0]),
        });
    }
    program.call(inputs).map(|_| ())
}

/// Whether an error is one of the folder, or of what it is called with.
fn is_told(e: &Error) -> bool {
    !matches!(e.kind(), ErrorKind::Verify { .. })
}

/// A copy of a folder with something changed; what that is, in words.
fn change(from: &Path, to: &Path, dice: &mut Dice) -> Result<String> {
    let _ = fs::remove_dir_all(to);
    let new = NewFolder::beside(to, FILES[0], |_| true)?;
    let mut files: Vec<(&str, Vec<u8>)> = Vec::with_capacity(FILES.len());
    for name in FILES {
        files.push((name, fs::read(from.join(name)).unwrap_or_default()));
    }
    let what = match dice.roll(4) {
        0 => damage(&mut files, dice),
        _ => edit(&mut files, dice),
    };
    for (name, bytes) in &files {
        new.write(name, |put| put(bytes))?;
    }
    new.finish()?;
    Ok(what)
}

/// Bytes of a file are others, or missing.
fn damage(files: &mut [(&str, Vec<u8>)], dice: &mut Dice) -> String {
    let file = dice.roll(files.len() as u64) as usize;
    let (name, bytes) = &mut files[file];
    let length = bytes.len() as u64;
    let at = dice.roll(length.max(1));
    match dice.roll(3) {
        0 => bytes.truncate(at as usize),
        1 => bytes.insert(at as usize, dice.roll(256) as u8),
        _ => {
            for _ in 0..=dice.roll(4) {
                let at = dice.roll(length.max(1)) as usize;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << dice.roll(8);
                }
            }
        }
    }
    format!("{name} damaged at {at}")
}

/// Numbers and words of the manifest or the text are others; the manifest knows of it.
fn edit(files: &mut [(&str, Vec<u8>)], dice: &mut Dice) -> String {
    let file = dice.roll(2) as usize;
    let old = files[file].1.clone();
    let text = String::from_utf8_lossy(&old).into_owned();
    let mut what = String::new();
    let mut tokens = tokens(&text);
    for _ in 0..=dice.roll(4) / 3 {
        let at = dice.roll(tokens.len().max(1) as u64) as usize;
        let Some(token) = tokens.get_mut(at) else {
            break;
        };
        let number = token.bytes().all(|b| b.is_ascii_digit());
        let word = token.bytes().all(|b| b.is_ascii_alphanumeric());
        let new = match (number, word) {
            (true, _) => *dice.pick(&NUMBERS),
            (_, true) => *dice.pick(&WORDS),
            _ => *dice.pick(&["", "[", "]", "{", ",", "\n", "0"]),
        };
        what += &format!("{}: {token:?} is {new:?}; ", files[file].0);
        *token = new;
    }
    let new = tokens.concat().into_bytes();
    if file == 1 {
        let manifest = String::from_utf8_lossy(&files[0].1).into_owned();
        let before = sum(&old);
        let after = sum(&new);
        let manifest = manifest.replace(&before.1, &after.1);
        let length = |n: u64| format!("\"bytes\": {n},");
        files[0].1 = manifest
            .replace(&length(before.0), &length(after.0))
            .into_bytes();
    }
    files[file].1 = new;
    seal(&mut files[0].1);
    what
}

/// Have a manifest's own digest fit.
fn seal(manifest: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(manifest).into_owned();
    let Some((before, rest)) = text.rsplit_once("\"digest\": \"") else {
        return;
    };
    let Some((_, after)) = rest.split_once('"') else {
        return;
    };
    let with = |digest: &str| format!("{before}\"digest\": \"{digest}\"{after}");
    let (_, digest) = sum(with(&"0".repeat(32)).as_bytes());
    *manifest = with(&digest).into_bytes();
}

/// Runs of letters and digits, and what is between.
fn tokens(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = first.is_ascii_alphanumeric();
        let end = match word {
            true => rest.find(|c: char| !c.is_ascii_alphanumeric()),
            false => Some(first.len_utf8()),
        };
        let (token, after) = rest.split_at(end.unwrap_or(rest.len()));
        out.push(token);
        rest = after;
    }
    out
}

/// The length and the digest of bytes, as a manifest has them.
fn sum(bytes: &[u8]) -> (u64, String) {
    let digest = monoglot_device::Sum::of(bytes);
    (digest.bytes, format!("{:032x}", digest.digest))
}

fn numbers(count: i64, shape: &[i64]) -> Result<Tensor> {
    let t = Tensor::arange(0, count, 1).cast(DType::F32) * 0.125;
    let t = t.reshape(shape.to_vec());
    t.realize()?;
    Ok(t)
}

fn network() -> Result<Program> {
    let first = numbers(32, &[4, 8])?;
    let second = numbers(24, &[8, 3])?;
    let step = jit(|x: Tensor| x.matmul(&first).relu().matmul(&second).softmax(-1))?;
    step.program(&numbers(8, &[2, 4])?)
}

fn states() -> Result<Program> {
    let cache = numbers(12, &[4, 3])?;
    let place = Variable::new(0..=3)?;
    let step = jit(|row: Tensor, at: monoglot_tensor::Size| {
        cache.narrow(0, &at, 1).assign(&row);
        (cache.sum(0, false) + Tensor::rand([3]), cache.clone())
    })?;
    step.program((&numbers(3, &[1, 3])?, &place.bind(1)?))
}

fn lengths() -> Result<Program> {
    let weight = numbers(12, &[3, 4])?;
    let n = Variable::new(1..=16)?;
    let step = jit(|x: Tensor| x.matmul(&weight))?;
    step.program(numbers(48, &[16, 3])?.narrow(0, 0, n.bind(5)?))
}

fn asserted() -> Result<Program> {
    monoglot_device::Config {
        check: true,
        ..(*monoglot_device::Config::current()).clone()
    }
    .set();
    let table = numbers(10, &[10])?;
    let step = jit(|x: Tensor| table.gather(0, &x))?;
    step.program(Tensor::new(&[0i32, 1, 2], [3]))
}

/// A folder under the system's for temporary files, of this process alone.
pub fn own_folder() -> PathBuf {
    let name = format!("monoglot-fuzz-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&path);
    let made = fs::create_dir_all(&path);
    made.expect("the folder of temporary files can be written");
    path
}
