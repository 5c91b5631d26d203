//! Machine code of our own, here written by hand: arguments, threads and phases, storage of a thread's own, and
//! faults, each in a process of its own that dies of it. Flows in: bytes of functions; flows out: what they
//! wrote, or how the process ended and what it said.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use monoglot_device::{Config, Kernel, Runtime, open};
use monoglot_uop::*;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::Arc;

fn cpu() -> Arc<dyn Runtime> {
    open(Device::new("CPU:X86")).unwrap().clone()
}

/// A kernel of these bytes, of `n` outputs of `i64` each, the variables at the slots after, and this list
/// besides.
struct Hand<'a> {
    name: &'a str,
    code: &'a [u8],
    outs: &'a [i64],
    vars: usize,
    threads: i64,
    list: Vec<UOp>,
}

const HAND: Hand = Hand {
    name: "hand",
    code: &[],
    outs: &[1],
    vars: 0,
    threads: 1,
    list: Vec::new(),
};

impl Hand<'_> {
    fn program(&self) -> Program {
        let outs = self.outs.iter().enumerate();
        let params = outs.map(|(k, &n)| UOp::param(k as u64, &Shape::of(&[n]), DType::I64, None));
        let list: Vec<UOp> = params.chain(self.list.iter().cloned()).collect();
        let linear = UOp::new(Op::Linear, list, Arg::None);
        let info = ProgramInfo {
            name: self.name.into(),
            threads: self.threads,
            outs: (0..self.outs.len()).collect(),
            vars: (self.outs.len()..self.outs.len() + self.vars).collect(),
            ..ProgramInfo::default()
        };
        let source = UOp::new(Op::Source, vec![], Arg::Text("by hand".into()));
        let binary = UOp::new(Op::Binary, vec![], Arg::Bytes(self.code.to_vec().into()));
        let src = vec![UOp::sink(&[]), linear, source, binary];
        let program = UOp::new(Op::Program, src, Arg::Program(Arc::new(info)));
        // SAFETY: each test's code writes what the outputs have room for, or faults.
        unsafe { Program::trusted(program) }
    }

    fn kernel(&self) -> Arc<dyn Kernel> {
        cpu().compile(&[self.program()]).unwrap().remove(0)
    }

    /// What the outputs are after a launch.
    fn launch(&self, vars: &[i64]) -> Vec<Vec<i64>> {
        let cpu = cpu();
        let kernel = self.kernel();
        let outs = self.outs.iter().map(|&n| cpu.alloc(8 * n as usize));
        let outs: Vec<_> = outs.collect::<Result<_>>().unwrap();
        for (out, &n) in outs.iter().zip(self.outs) {
            cpu.upload(out, 0, &vec![0; 8 * n as usize]).unwrap();
        }
        cpu.launch(&kernel, &outs, vars).unwrap();
        let word = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap());
        let read = outs.iter().zip(self.outs).map(|(out, &n)| {
            let mut bytes = vec![0; 8 * n as usize];
            cpu.download(out, 0, &mut bytes).unwrap();
            bytes.chunks(8).map(word).collect()
        });
        read.collect()
    }
}

#[test]
fn arguments_are_pointers_and_then_variables() {
    let hand = Hand {
        code: &[
            0x48, 0x8b, 0x07, // mov rax, [rdi]
            0x48, 0x8b, 0x4f, 0x08, // mov rcx, [rdi + 8]
            0x48, 0x8b, 0x57, 0x10, // mov rdx, [rdi + 16]
            0x48, 0x89, 0x11, // mov [rcx], rdx
            0x48, 0x8b, 0x57, 0x18, // mov rdx, [rdi + 24]
            0x48, 0x89, 0x50, 0x08, // mov [rax + 8], rdx
            0xc3, // ret
        ],
        outs: &[2, 1],
        vars: 2,
        ..HAND
    };
    assert_eq!(hand.launch(&[-5, 1 << 40]), [vec![0, 1 << 40], vec![-5]]);
}

#[test]
fn every_thread_runs_each_phase() {
    let tid = UOp::new(
        Op::Special,
        vec![UOp::constant(Scalar::Int(5), DType::I32)],
        Arg::Text("tid".into()),
    );
    let barrier = UOp::new(Op::Barrier, vec![], Arg::None);
    let hand = Hand {
        code: &[
            0x48, 0x8b, 0x07, // mov rax, [rdi]
            0x48, 0x63, 0xf6, // movsxd rsi, esi
            0x48, 0xff, 0x04, 0xf0, // inc qword [rax + 8 rsi]
            0xc3, // ret
        ],
        outs: &[16],
        threads: 5,
        list: vec![tid, barrier.clone(), barrier],
        ..HAND
    };
    let mut wanted = vec![1; 15];
    wanted.push(0);
    assert_eq!(hand.launch(&[]), [wanted]);
}

#[test]
fn a_thread_has_storage_of_its_own() {
    let local = BufferArg {
        slot: 0,
        version: 0,
        dtype: DType::U8,
        device: None,
        addrspace: Some(AddrSpace::Local),
    };
    // Also more than is kept.
    for bytes in [100, 9 << 20] {
        let shape = UOp::dims(&[Dim::Int(bytes)]);
        let buffer = UOp::new(Op::Buffer, vec![shape], Arg::Buffer(local));
        let last = bytes as u32 - 1;
        let mut code = vec![0xc6, 0x82]; // mov byte [rdx + last], 1
        code.extend(last.to_le_bytes());
        code.extend([
            0x01, // the byte
            0x48, 0x8b, 0x07, // mov rax, [rdi]
            0x48, 0x83, 0xe2, 0x3f, // and rdx, 63
            0x48, 0xff, 0xc2, // inc rdx
            0x48, 0x89, 0x10, // mov [rax], rdx
            0xc3, // ret
        ]);
        let hand = Hand {
            code: &code,
            list: vec![buffer],
            ..HAND
        };
        assert_eq!(hand.launch(&[]), [vec![1]], "{bytes}");
    }
}

#[test]
fn names_choose_levels() {
    let cpu = cpu();
    let v2 = open(Device::new("CPU:X86:x86-64-v2")).unwrap();
    let target = v2.target();
    assert_eq!(target.dialect, Dialect::X86);
    assert_eq!(target.arch, "x86-64-v2");
    // One of the 16 is the encoder's.
    assert_eq!((target.vector_bytes, target.registers), (16, 15));
    assert!(!target.storage.contains(&DType::F16) && !target.native.contains(Op::MulAcc));
    assert!(["x86-64-v2", "x86-64-v3", "x86-64-v4"].contains(&&*cpu.target().arch));
    assert!(
        cpu.about().starts_with("machine code of our own for x86"),
        "{}",
        cpu.about()
    );
    for (name, said) in [
        ("CPU:X86:x86-64", "x86-64-v4, x86-64-v3, x86-64-v2"),
        ("CPU:X86:z80", "not for Z80"),
        ("CPU:Z80", "CPU[:N][:X86|C[:ARCH]]"),
    ] {
        let error = open(Device::new(name)).err().unwrap();
        assert!(matches!(error.kind(), ErrorKind::NoDevice { .. }));
        assert!(error.to_string().contains(said), "{name}: {error}");
    }
    // NULL takes every level, whatever this machine is.
    let v3 = open(Device::new("NULL:X86:x86-64-v3")).unwrap();
    let target = v3.target();
    assert_eq!((target.dialect, target.vector_bytes), (Dialect::X86, 32));
    assert!(target.storage.contains(&DType::F16) && target.native.contains(Op::MulAcc));
    let v4 = open(Device::new("NULL:X86:x86-64-v4")).unwrap();
    let target = v4.target();
    assert_eq!((target.vector_bytes, target.registers), (64, 32));
    // Only a machine of that level runs it.
    match open(Device::new("CPU:X86:x86-64-v4")) {
        Ok(v4) => assert_eq!(v4.target().arch, cpu.target().arch),
        Err(error) => assert!(error.to_string().contains("not x86-64-v4"), "{error}"),
    }
}

#[test]
fn a_program_without_machine_code_is_refused() {
    let error = cpu().compile(&[HAND.program()]).err().unwrap();
    assert!(error.to_string().contains("no machine code"), "{error}");
    assert!(cpu().compile(&[]).unwrap().is_empty());
}

#[test]
fn the_listing_is_what_people_read() {
    let ret = Hand {
        code: &[0xc3],
        ..HAND
    };
    let listing = cpu().assembly(&ret.program()).unwrap();
    assert_eq!(listing.as_deref(), Some("by hand"));
}

/// The one test that does something else in a child: what, says the variable.
const CHILD: &str = "MONOGLOT_TEST_CHILD";

fn child(what: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "in_a_child", "--nocapture"]);
    command.env(CHILD, what);
    command.env("PERF", if what == "perf" { "1" } else { "0" });
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

extern "C" fn own_handler(_signal: i32) {
    // SAFETY: ends the process without another word.
    unsafe { libc::_exit(7) }
}

#[test]
fn in_a_child() {
    let Ok(what) = std::env::var(CHILD) else {
        return;
    };
    // SAFETY: the limit of dumps alone changes.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &std::mem::zeroed()) };
    if what.starts_with("handled") {
        // SAFETY: the handler does nothing but end the process.
        unsafe { libc::signal(libc::SIGSEGV, own_handler as *const () as usize) };
    }
    let code: &[u8] = match &*what {
        // nop; ud2
        "illegal" => &[0x90, 0x0f, 0x0b],
        // xor eax, eax; mov [rax + 16], eax
        "write" | "handled" => &[0x31, 0xc0, 0x89, 0x40, 0x10],
        // xor ecx, ecx; xor edx, edx; mov eax, edx; div ecx
        "division" => &[0x31, 0xc9, 0x31, 0xd2, 0x89, 0xd0, 0xf7, 0xf1],
        _ => &[0xc3],
    };
    let hand = Hand {
        name: "E_wrong",
        code,
        ..HAND
    };
    hand.launch(&[]);
    match &*what {
        "elsewhere" | "handled_elsewhere" => {
            let nowhere: *const u8 = std::hint::black_box(std::ptr::without_provenance(8));
            // SAFETY: none: it is to fault.
            unsafe { nowhere.read_volatile() };
        }
        "sent" => {
            // SAFETY: it ends this process.
            unsafe { libc::raise(libc::SIGFPE) };
        }
        "perf" => {
            let path = format!("/tmp/perf-{}.map", std::process::id());
            print!("{}", std::fs::read_to_string(&path).unwrap());
            std::fs::remove_file(path).unwrap();
        }
        _ => {}
    }
}

#[test]
fn faults_name_their_kernel() {
    for (what, signal, line) in [
        ("illegal", libc::SIGILL, "(instruction +0x1)"),
        (
            "write",
            libc::SIGSEGV,
            "faulted at address 0x10 (instruction +0x2)",
        ),
        ("division", libc::SIGFPE, "(instruction +0x6)"),
    ] {
        let output = child(what);
        let text = said(&output);
        assert_eq!(output.status.signal(), Some(signal), "{what}: {text}");
        assert!(
            text.contains("monoglot: kernel E_wrong faulted at"),
            "{what}: {text}"
        );
        assert!(text.contains(line), "{what}: {text}");
    }
}

#[test]
fn faults_of_others_are_theirs() {
    for (what, signal) in [("elsewhere", libc::SIGSEGV), ("sent", libc::SIGFPE)] {
        let output = child(what);
        assert_eq!(output.status.signal(), Some(signal), "{what}");
        assert!(!said(&output).contains("monoglot: kernel"), "{what}");
    }
}

#[test]
fn handlers_of_others_are_called() {
    let output = child("handled");
    assert_eq!(output.status.code(), Some(7));
    assert!(said(&output).contains("kernel E_wrong"));
    let output = child("handled_elsewhere");
    assert_eq!(output.status.code(), Some(7));
    assert!(!said(&output).contains("kernel E_wrong"));
}

#[test]
fn profilers_are_told_names() {
    let output = child("perf");
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.lines().any(|l| l.ends_with(" 1 E_wrong")), "{text}");
    assert!(!Config::default().perf);
}
