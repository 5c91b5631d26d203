//! The C compiler as a child process. Flows in: sources; flows out: an object that holds a function
//! of each, or the compiler's own words. One process takes many kernels; a large batch is split so
//! that every core has one process. Invariant: the same source and the same compiler give the same
//! code.

use super::cache::symbol;
use crate::config::Config;
use monoglot_uop::{ErrorKind, Result};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// A C compiler: program, own options, and flags for the target.
pub(crate) struct Compiler {
    program: PathBuf,
    flags: Vec<String>,
    identity: OnceLock<String>,
}

/// A kernel to compile.
#[derive(Clone, Copy)]
pub(crate) struct Unit<'a> {
    pub(crate) key: u128,
    pub(crate) name: &'a str,
    pub(crate) source: &'a str,
    /// It computes enough for the compiler's slower passes to pay.
    pub(crate) heavy: bool,
}

/// What every kernel is compiled with. Vectors are written out in the source, so the compiler's own
/// vectoriser only costs time; nothing here lets it change a float's value. Its tuning for one kind of core
/// is not asked for: for Zen, gcc 12 repeats a load in each instruction that uses it, which costs a register
/// tile a third of its rate.
const FLAGS: &str = "-mtune=generic -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-strict-aliasing \
    -fno-tree-vectorize -fno-stack-protector -fno-asynchronous-unwind-tables -fPIC -shared -w";

impl Compiler {
    /// The compiler that the settings name, or the first of cc, gcc and clang that there is.
    ///
    /// # Errors
    /// `NoDevice`, which names the interpreter as the way to go on without one.
    pub(crate) fn find(device: &str, config: &Config, march: &str) -> Result<Compiler> {
        let own = config.compiler.as_deref().filter(|c| !c.trim().is_empty());
        let candidates = own.map_or(vec!["cc", "gcc", "clang"], |own| vec![own]);
        for candidate in &candidates {
            let mut words = candidate.split_whitespace();
            if let Some(program) = words.next().and_then(which) {
                let march = format!("-march={march}");
                let alone = cfg!(target_os = "linux");
                let ours = FLAGS.split_whitespace().chain(alone.then_some("-nostdlib"));
                let flags = words.chain([&*march]).chain(ours);
                return Ok(Compiler {
                    program,
                    flags: flags.map(String::from).collect(),
                    identity: OnceLock::new(),
                });
            }
        }
        let message = format!(
            "no C compiler was found (looked for {}); install one, name one in CC, or use DEV=INTERP",
            candidates.join(", ")
        );
        Err(ErrorKind::NoDevice {
            device: device.into(),
            message,
        }
        .into())
    }

    /// The program that is called.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// What decides its output besides the source: path, version, time of change, flags. Asked once.
    pub(crate) fn identity(&self) -> &str {
        self.identity.get_or_init(|| {
            let real = self.program.canonicalize();
            let real = real.unwrap_or_else(|_| self.program.clone());
            let changed = real.metadata().and_then(|m| m.modified()).ok();
            let output = Command::new(&self.program).arg("--version").output();
            let version = output.map(|o| o.stdout).unwrap_or_default();
            let version = String::from_utf8(version);
            format!(
                "{} {changed:?} {version:?} {}",
                real.display(),
                self.flags.join(" ")
            )
        })
    }

    /// Compile the units into one object in `folder`, where nobody else writes.
    ///
    /// # Errors
    /// `Compile`, with the compiler's first messages.
    pub(crate) fn compile(&self, units: &[&Unit], folder: &Path) -> Result<PathBuf> {
        let out = folder.join("object");
        let mut text = String::with_capacity(units.iter().map(|u| u.source.len() + 100).sum());
        for u in units {
            // Each kernel under the name of its key, whatever it calls itself.
            for part in [
                "#define ",
                u.name,
                " ",
                &symbol(u.key),
                "\n",
                u.source,
                "\n#undef ",
                u.name,
                "\n",
            ] {
                text.push_str(part);
            }
        }
        let mut command = Command::new(&self.program);
        // -O1 takes two thirds of the time of -O2, and its vector code is within a few per cent.
        let heavy = units.iter().any(|u| u.heavy);
        command.arg(if heavy { "-O2" } else { "-O1" });
        command.args(&self.flags);
        command.args(["-x", "c", "-", "-o"]).arg(&out);
        if cfg!(target_os = "linux") {
            // Conversions of f16 are in libgcc; libm only where a function is left that needs it.
            command.args(["-x", "none", "-lgcc", "-Wl,--as-needed", "-lm"]);
        }
        let names: Vec<&str> = units.iter().map(|u| u.name).take(4).collect();
        let done = self.run(&mut command, &text, &names.join(", "));
        done.map(|_| out)
    }

    /// What a source becomes, as text.
    ///
    /// # Errors
    /// `Compile`, where the compiler cannot be run or rejects the source.
    pub(crate) fn assembly(&self, name: &str, source: &str) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.arg("-O2").args(&self.flags);
        command.args(["-S", "-x", "c", "-", "-o", "-"]);
        self.run(&mut command, source, name)
    }

    /// Run the compiler on a text; what it prints.
    fn run(&self, command: &mut Command, text: &str, names: &str) -> Result<String> {
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        let output = command.spawn().and_then(|mut child| {
            let input = child.stdin.take();
            std::thread::scope(|scope| {
                // Written while what the compiler prints is read, as either may fill its pipe. One that
                // stops reading reports why on its own; its exit says enough.
                scope.spawn(|| input.map(|mut input| input.write_all(text.as_bytes())));
                child.wait_with_output()
            })
        });
        let message = match output {
            Ok(o) if o.status.success() => {
                return Ok(String::from_utf8_lossy(&o.stdout).into_owned());
            }
            Ok(o) => {
                let said = String::from_utf8_lossy(&o.stderr);
                let lines: Vec<&str> = said.lines().take(12).collect();
                format!("{} (compiling {names}):\n{}", o.status, lines.join("\n"))
            }
            Err(e) => format!("cannot be run: {e}"),
        };
        Err(ErrorKind::Compile {
            compiler: self.program.display().to_string(),
            message,
        }
        .into())
    }
}

/// Units into groups of about equal length, at most about `groups`, none smaller than pays for a
/// process; heavy ones apart where there are several groups.
pub(crate) fn split<'u, 'a>(units: &'u [Unit<'a>], groups: usize) -> Vec<Vec<&'u Unit<'a>>> {
    const PAYS: usize = 6 << 10;
    let length = |units: &[&Unit]| units.iter().map(|u| u.source.len()).sum::<usize>();
    let all: Vec<&Unit> = units.iter().collect();
    let total = length(&all).max(1);
    let n = (total / PAYS).clamp(1, groups.max(1));
    if n == 1 {
        return vec![all];
    }
    let (heavy, light): (Vec<&Unit>, Vec<&Unit>) = all.into_iter().partition(|u| u.heavy);
    let mut out = Vec::new();
    for class in [heavy, light].into_iter().filter(|c| !c.is_empty()) {
        let share = (n * length(&class) + total / 2) / total;
        out.extend(level(class, share.max(1)));
    }
    out
}

/// The longest first, each to the group that is shortest so far.
fn level<'u, 'a>(mut units: Vec<&'u Unit<'a>>, groups: usize) -> Vec<Vec<&'u Unit<'a>>> {
    units.sort_by_key(|u| (std::cmp::Reverse(u.source.len()), u.key));
    let mut out: Vec<(usize, Vec<&Unit>)> = (0..groups.min(units.len()))
        .map(|_| (0, Vec::new()))
        .collect();
    for u in units {
        if let Some(least) = out.iter_mut().min_by_key(|g| g.0) {
            least.0 += u.source.len();
            least.1.push(u);
        }
    }
    out.into_iter().map(|g| g.1).collect()
}

/// A program by path, or by name in PATH.
fn which(name: &str) -> Option<PathBuf> {
    let direct = PathBuf::from(name);
    if direct.components().count() > 1 {
        return direct.is_file().then_some(direct);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|p| p.is_file())
}
