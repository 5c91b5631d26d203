//! Programs that another process starts. Flows in: folders; flows out: equal bits, with no compiler there, on
//! another target, and where the code is not trusted.
//!
//! The other process is this one's program again, which runs `other_process` alone: what it is to do comes in
//! its environment.

use super::{Place, alone, resealed};
use monoglot::counters;
use monoglot::prelude::*;
use std::path::Path;
use std::process::Command;

const FOLDER: &str = "MONOGLOT_TEST_FOLDER";

/// What the other process prints before its answer.
const ANSWER: &str = "answer: ";

#[test]
fn other_process() -> Result<()> {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return Ok(());
    };
    let program = Program::load(folder)?;
    let y = program.call(input(program.inputs()[0].device()))?;
    let y = y[0].to_bytes()?;
    let seen = counters();
    // Schedules and kernels.
    let made = seen.exact + seen.generalised + seen.compiled;
    println!("{ANSWER}{y:?} compiled {made}");
    Ok(())
}

fn input(device: Option<Device>) -> Tensor {
    let bytes: Vec<u8> = (0..48u8)
        .flat_map(|k| (f32::from(k) / 7.0).to_le_bytes())
        .collect();
    let device = device.unwrap_or(Device::new("CPU"));
    Tensor::from_bytes_on(&bytes, [6, 8], DType::F32, device)
}

/// What another process says that has these variables: its answer, and what it writes besides.
fn asked(folder: &Path, variables: &[(&str, &str)]) -> (String, String) {
    let exe = std::env::current_exe().expect("this is a program");
    let mut command = Command::new(exe);
    command.args(["--exact", "elsewhere::other_process", "--nocapture"]);
    command.env_clear().env(FOLDER, folder);
    command.env("MONOGLOT_CACHE", folder.with_extension("cache"));
    command.envs(variables.iter().copied());
    let output = command.output().expect("it starts");
    let _ = std::fs::remove_dir_all(folder.with_extension("cache"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let answer = text.split_once(ANSWER);
    let answer = answer.map(|(_, rest)| rest.lines().next().unwrap_or_default().to_string());
    (answer.unwrap_or_else(|| format!("{text}{told}")), told)
}

/// A program on a device, and what it answers.
fn saved(device: &str, name: &str) -> Result<(Place, String)> {
    let _alone = alone();
    let place = Place::new(name);
    let device = Device::new(device);
    let weight = Tensor::randn([8, 16]).to(device);
    let bias = Tensor::randn([16]).to(device);
    let step = jit(|x: Tensor| (x.matmul(&weight) + &bias).gelu().softmax(-1))?;
    let x = input(Some(device));
    let program = step.program(&x)?;
    program.save(place.path())?;
    let y = program.call(&x)?;
    Ok((place, format!("{:?} compiled", y[0].to_bytes()?)))
}

#[test]
fn another_process_answers_the_same_and_compiles_nothing() -> Result<()> {
    let (place, wanted) = saved("CPU", "elsewhere")?;
    let (answer, _) = asked(place.path(), &[]);
    assert_eq!(answer, format!("{wanted} 0"));
    Ok(())
}

#[test]
fn what_a_compiler_made_runs_where_there_is_none() -> Result<()> {
    let opened = monoglot::compiler::device::open(Device::new("CPU:C"));
    if opened.is_err() {
        // Without a compiler here nothing can be saved that one has made.
        return Ok(());
    }
    let (place, wanted) = saved("CPU:C", "compiler")?;
    let (answer, _) = asked(place.path(), &[("PATH", "")]);
    assert_eq!(answer, format!("{wanted} 0"));
    Ok(())
}

#[cfg(unix)]
#[test]
fn code_that_others_may_have_written_is_compiled_again() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let (place, wanted) = saved("CPU", "others")?;
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(place.path(), open).expect("it is ours");
    let (answer, told) = asked(place.path(), &[("DEBUG", "1")]);
    assert!(answer.starts_with(&wanted), "{answer}");
    assert!(!answer.ends_with("compiled 0"), "{answer}");
    assert!(told.contains("compiled from its text"), "{told}");
    assert!(told.contains("can be written by others"), "{told}");
    Ok(())
}

#[test]
fn code_of_another_target_is_compiled_again() -> Result<()> {
    let (place, wanted) = saved("CPU", "target")?;
    let manifest = place.path().join("program.json");
    let key = monoglot::compiler::device::open(Device::new("CPU"))?.code_key();
    let key = key.expect("code of the CPU is kept");
    resealed(&manifest, |text| text.replace(&key, "0.0.0 Z80"));
    let (answer, told) = asked(place.path(), &[("DEBUG", "1")]);
    assert!(answer.starts_with(&wanted), "{answer}");
    assert!(told.contains("its code is for \"0.0.0 Z80\""), "{told}");
    Ok(())
}

#[test]
fn the_interpreter_has_no_code_and_starts_from_the_text() -> Result<()> {
    let (place, wanted) = saved("INTERP", "interp")?;
    let (answer, _) = asked(place.path(), &[("PATH", "")]);
    assert!(answer.starts_with(&wanted), "{answer}");
    Ok(())
}
