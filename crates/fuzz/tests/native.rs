//! Machine code of our own against C, on kernels of the operator cases and the models. Flows in: their programs, made
//! small; flows out: a failed test that shows the kernels that differ.

use monoglot_device::Config;
use monoglot_fuzz::check::{self, Tally};
use monoglot_fuzz::kernels::programs;
use monoglot_fuzz::pairs::pairs;
use monoglot_uop::Device;
use std::path::Path;

/// Kernels that are compared: a compiler takes its time.
const MOST: usize = 500;

#[test]
fn machine_code_gives_what_c_gives() {
    let devices = ["CPU:X86", "CPU:C"];
    if let Some(name) = devices.into_iter().find(|name| !has_compiler(name)) {
        println!("machine code was not compared with C: there is no {name} here");
        return;
    }
    let oracle = Device::new("INTERP:GPU");
    Config {
        device: Some(oracle.name().into()),
        ..Config::default()
    }
    .set();
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance");
    let programs = programs(&cases, oracle).expect("the cases can be read");
    let all = check::kernels(0, &programs, oracle).expect("the interpreter opens");
    // Kernels of all kinds, and as many as there is time for.
    println!("{} kernels", all.len());
    let every = all.len().div_ceil(MOST).max(1);
    let some: Vec<_> = all.into_iter().step_by(every).collect();
    assert!(some.len() > 40, "{} kernels", some.len());
    let mut tell = |_: &str| {};
    let mut tally = Tally::new(&mut tell);
    pairs(&some, devices, 1, &mut tally).expect("both devices open");
    assert_eq!(tally.compared as usize, some.len());
    let failures: Vec<String> = (tally.failures.iter())
        .map(|f| format!("{}: {}\n{}", f.setting, f.message, f.text))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Whether the device compiles a kernel that stores one number.
fn has_compiler(name: &str) -> bool {
    let linear = "LINEAR {
      p0 = PARAM[0, i32, GLOBAL] (1,)
      0i32
      a = INDEX p0 0i32
      STORE a 0i32
    }";
    let machine = monoglot_fuzz::linear::Machine::new(name);
    let parsed = monoglot_uop::text::parse(linear).expect("the text is a program");
    let made = monoglot_fuzz::linear::made(parsed, 0);
    machine.is_ok_and(|m| m.compile(&[&made]).remove(0).is_ok())
}
