//! The folder of compiled kernels: found again, damaged, of no use, over its bound, shared,
//! writable by others; and what happens without a compiler, or with one that is broken. The
//! compiler is a script that keeps a log of its calls. Flows in: folders made for each test; flows
//! out: how often the compiler was called, and what the kernels computed.
#![cfg(unix)]

use monoglot_device::cpu::Cpu;
use monoglot_device::{Config, Runtime};
use monoglot_uop::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A folder of its own, removed at the end, with a compiler that logs.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let dir =
            std::env::temp_dir().join(format!("monoglot-cache-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Place(dir)
    }

    /// A compiler that runs `before` and then `cc`.
    fn config(&self, before: &str) -> Config {
        let script = self.0.join("compiler");
        let log = self.0.join("log");
        let text = format!(
            "#!/bin/sh\necho \"$@\" >> {}\n{before}\nexec cc \"$@\"\n",
            log.display()
        );
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let compiler = Some(script.display().to_string());
        Config {
            cache_dir: Some(self.0.join("cache")),
            compiler,
            threads: Some(2),
            ..Config::default()
        }
    }

    fn calls(&self) -> usize {
        let log = std::fs::read_to_string(self.0.join("log")).unwrap_or_default();
        log.lines().filter(|l| l.contains("-shared")).count()
    }

    fn objects(&self) -> Vec<PathBuf> {
        let dir = std::fs::read_dir(self.0.join("cache/cpu"));
        dir.map_or(Vec::new(), |d| {
            d.flatten()
                .map(|e| e.path())
                .filter(|p| is(p, "so"))
                .collect()
        })
    }
}

fn is(p: &Path, extension: &str) -> bool {
    p.extension().is_some_and(|e| e == extension)
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A kernel that stores a number.
fn storing(value: i32) -> Program {
    let source = format!(
        "void k{value}(void *const *bufs, const long long *vars, int tid) {{ *(int *)bufs[0] = {value}; }}"
    );
    with_source(&format!("k{value}"), &source)
}

fn with_source(name: &str, source: &str) -> Program {
    let out = UOp::param(0, &Shape::of(&[1]), DType::I32, None);
    let info = ProgramInfo {
        name: name.into(),
        threads: 1,
        outs: vec![0],
        ..ProgramInfo::default()
    };
    let linear = UOp::new(Op::Linear, vec![out], Arg::None);
    let source = UOp::new(Op::Source, vec![], Arg::Text(source.into()));
    let program = UOp::new(
        Op::Program,
        vec![UOp::sink(&[]), linear, source],
        Arg::Program(Arc::new(info)),
    );
    // SAFETY: the source writes to the first element of its one buffer.
    unsafe { Program::trusted(program) }
}

fn open(config: &Config) -> Cpu {
    Cpu::open(Device::new("CPU"), config).unwrap()
}

/// Compile kernels that store these numbers, run them, and check.
fn works(cpu: &Cpu, values: &[i32]) {
    let programs: Vec<Program> = values.iter().map(|&v| storing(v)).collect();
    for (kernel, v) in cpu.compile(&programs).unwrap().iter().zip(values) {
        let out = cpu.alloc(4).unwrap();
        cpu.launch(kernel, &[out.clone()], &[]).unwrap();
        let mut bytes = [0; 4];
        cpu.download(&out, 0, &mut bytes).unwrap();
        assert_eq!(i32::from_le_bytes(bytes), *v);
    }
}

#[test]
fn what_was_compiled_is_found_again() {
    let place = Place::new("found");
    let config = place.config("");
    let cpu = open(&config);
    works(&cpu, &[1, 2, 3, 2]);
    assert_eq!((place.calls(), place.objects().len()), (1, 3));
    // As in another process; any set of kernels, the new one alone is compiled.
    let cpu = open(&config);
    works(&cpu, &[3, 1]);
    assert_eq!(place.calls(), 1);
    works(&cpu, &[2, 4]);
    assert_eq!((place.calls(), place.objects().len()), (2, 4));
    assert!(!cpu.cache_failed());
    // Nothing temporary is left.
    let left = std::fs::read_dir(place.0.join("cache/cpu"))
        .unwrap()
        .flatten()
        .filter(|e| is(&e.path(), "tmp"));
    assert_eq!(left.count(), 0);
}

#[test]
fn a_damaged_entry_is_a_miss() {
    let place = Place::new("damaged");
    let config = place.config("");
    works(&open(&config), &[1]);
    let damage: [fn(Vec<u8>) -> Vec<u8>; 4] = [
        |b| b[..b.len() / 2].to_vec(),
        |_| Vec::new(),
        |mut b| {
            let middle = b.len() / 2;
            b[middle] ^= 1;
            b
        },
        |_| b"not an object, but longer than a trailer of twenty-four bytes".to_vec(),
    ];
    for (k, damage) in damage.iter().enumerate() {
        for path in place.objects() {
            let bytes = damage(std::fs::read(&path).unwrap());
            // Another inode, as an object that is mapped must not change.
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, bytes).unwrap();
        }
        works(&open(&config), &[1]);
        assert_eq!(place.calls(), k + 2);
    }
}

#[test]
fn a_folder_that_cannot_be_written_costs_a_warning() {
    let place = Place::new("unwritable");
    std::fs::write(place.0.join("file"), b"").unwrap();
    let config = Config {
        cache_dir: Some(place.0.join("file/cache")),
        ..place.config("")
    };
    let cpu = open(&config);
    works(&cpu, &[1, 2]);
    works(&cpu, &[1, 2, 3]);
    assert!(cpu.cache_failed());
    works(&open(&config), &[1]);
}

#[test]
fn the_warning_is_printed_once_a_process() {
    let exe = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new(exe);
    let out = child
        .args(["--exact", "a_folder_that_cannot_be_written_costs_a_warning"])
        .output()
        .unwrap();
    assert!(out.status.success());
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(said.matches("work goes on without it").count(), 1, "{said}");
}

/// Give a file or folder to another user, where this one may.
fn given_away(path: &Path) -> bool {
    std::os::unix::fs::lchown(path, Some(12345), None).is_ok()
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_folder_that_others_may_write_is_refused() {
    type Way = fn(&Path, &Path) -> bool;
    let ways: [(&str, Way); 6] = [
        ("the folder is everyone's", |_, cpu| {
            allow(cpu, 0o777);
            true
        }),
        ("the folder is a group's", |_, cpu| {
            allow(cpu, 0o770);
            true
        }),
        ("the folder above is everyone's", |cache, _| {
            allow(cache, 0o777);
            true
        }),
        ("the folder is somebody else's", |_, cpu| given_away(cpu)),
        ("the folder above is somebody else's", |cache, _| {
            given_away(cache)
        }),
        ("the folder is a link", |cache, cpu| {
            std::fs::rename(cpu, cache.join("elsewhere")).unwrap();
            std::os::unix::fs::symlink(cache.join("elsewhere"), cpu).unwrap();
            true
        }),
    ];
    for (k, (what, open_up)) in ways.into_iter().enumerate() {
        let place = Place::new(&format!("others-{k}"));
        let config = place.config("");
        works(&open(&config), &[1]);
        if !open_up(&place.0.join("cache"), &place.0.join("cache/cpu")) {
            continue;
        }
        let cpu = open(&config);
        works(&cpu, &[1, 2]);
        assert!(cpu.cache_failed(), "{what}");
        assert_eq!(place.calls(), 2, "{what}");
    }
}

#[test]
fn an_object_that_others_may_have_written_is_refused() {
    let ways: [fn(&Path) -> bool; 3] = [
        |object| {
            allow(object, 0o666);
            true
        },
        given_away,
        |object| {
            let moved = object.with_extension("moved");
            std::fs::rename(object, &moved).unwrap();
            std::os::unix::fs::symlink(&moved, object).unwrap();
            true
        },
    ];
    for (k, plant) in ways.into_iter().enumerate() {
        let place = Place::new(&format!("planted-{k}"));
        let config = place.config("");
        works(&open(&config), &[1]);
        if !plant(&place.objects()[0]) {
            continue;
        }
        let cpu = open(&config);
        works(&cpu, &[1]);
        assert!(cpu.cache_failed(), "{k}");
        // It was compiled again, and the new object stands in its place.
        assert_eq!(place.calls(), 2, "{k}");
        let cpu = open(&config);
        works(&cpu, &[1]);
        assert_eq!((place.calls(), cpu.cache_failed()), (2, false), "{k}");
    }
}

#[test]
fn the_folder_is_made_for_its_user_alone() {
    let place = Place::new("alone");
    works(&open(&place.config("")), &[1]);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.0.join("cache")), 0o700);
    assert_eq!(mode(&place.0.join("cache/cpu")), 0o700);
    assert_eq!(mode(&place.objects()[0]), 0o600);
}

#[test]
fn what_killed_processes_left_behind_is_removed() {
    let place = Place::new("left");
    let config = place.config("");
    works(&open(&config), &[1]);
    let user = place.0.metadata().unwrap().uid();
    let left = |name: &str| {
        let path = place
            .0
            .join(format!("cache/cpu/monoglot-{user}-{name}.tmp"));
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("object"), b"half").unwrap();
        path
    };
    let dead = left("1-0-0");
    let living = left("2-0-0");
    // Who lives holds a lock on his.
    let lock = std::fs::File::open(&living).unwrap();
    lock.try_lock().unwrap();
    works(&open(&config), &[2]);
    assert_eq!((dead.exists(), living.exists()), (false, true));
}

#[test]
fn a_broken_compiler_is_not_the_folders_fault() {
    let broken = [
        ("exit 0", "it reports success"),
        (
            "while [ \"$1\" != -o ]; do shift; done; echo nonsense > $2; exit 0",
            "it reports success",
        ),
        ("echo out of order >&2; exit 3", "out of order"),
    ];
    for (k, (script, says)) in broken.into_iter().enumerate() {
        let place = Place::new(&format!("cc-{k}"));
        let cpu = open(&place.config(script));
        let error = cpu.compile(&[storing(1)]).err().unwrap();
        let ErrorKind::Compile { compiler, message } = error.kind() else {
            panic!("{error}");
        };
        assert!(compiler.ends_with("/compiler"), "{compiler}");
        assert!(message.contains(says), "{message}");
        assert!(!cpu.cache_failed(), "{script}");
        assert!(place.objects().is_empty(), "{script}");
    }
}

#[test]
fn a_full_folder_costs_nothing_else() {
    let place = Place::new("full");
    let full = format!(
        "case \"$*\" in *{}*) echo 'No space left on device' >&2; exit 1;; esac",
        place.0.join("cache").display()
    );
    let cpu = open(&place.config(&full));
    works(&cpu, &[1, 2]);
    assert_eq!(place.calls(), 2);
}

#[test]
fn the_folder_stays_within_its_bound() {
    let place = Place::new("bound");
    let config = Config {
        cache_bytes: 100 << 10,
        ..place.config("")
    };
    for k in 0..18 {
        works(&open(&config), &[k]);
    }
    let total: u64 = place
        .objects()
        .iter()
        .map(|p| p.metadata().unwrap().len())
        .sum();
    // It is looked through at a process's first store.
    assert!(total < 130 << 10, "{total}");
    assert!(place.objects().iter().any(|p| p.exists()));
}

#[test]
fn many_at_once_share_a_folder() {
    let place = Place::new("shared");
    let config = place.config("");
    std::thread::scope(|scope| {
        for t in 0..4 {
            let config = &config;
            scope.spawn(move || (0..3).for_each(|k| works(&open(config), &[k, k + t])));
        }
    });
    works(&open(&config), &[0, 1, 2, 3, 4, 5]);
}

#[test]
fn without_a_compiler_the_error_names_the_interpreter() {
    let config = Config {
        compiler: Some("no-such-compiler -O2".into()),
        ..Config::default()
    };
    let error = Cpu::open(Device::new("CPU"), &config).err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::NoDevice { .. }));
    let text = error.to_string();
    assert!(
        text.contains("no-such-compiler") && text.contains("DEV=INTERP"),
        "{text}"
    );
}

#[test]
fn what_does_not_compile_says_why() {
    let place = Place::new("broken");
    let cpu = open(&place.config(""));
    let error = cpu
        .compile(&[with_source("broken", "void broken(void) { nonsense; }")])
        .err()
        .unwrap();
    assert!(matches!(error.kind(), ErrorKind::Compile { .. }));
    assert!(error.to_string().contains("nonsense"), "{error}");
}

#[test]
fn an_unknown_device_says_what_there_is() {
    let error = monoglot_device::open(Device::new("ABACUS")).err().unwrap();
    assert!(error.to_string().contains("INTERP:GPU"), "{error}");
    assert!(monoglot_device::open(Device::new("CPU:C:z80")).is_err());
    assert_eq!(monoglot_device::list().len(), 7);
}
