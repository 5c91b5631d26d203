//! CPU: programs in C, compiled by the machine's C compiler, or in machine code of our own (`native`), run on
//! the device's own thread pool. Flows in: PROGRAMs; flows out: kernels, and what they write into the storage
//! they are launched with.
//!
//! Compiled C is found, in this order: among the kernels alive in this process, in the cache folder,
//! by compiling. Invariant: a launch checks that every buffer has the bytes its PARAM says.

#[cfg(target_arch = "x86_64")]
mod area;
mod cache;
mod compile;
mod detect;
#[cfg(target_arch = "x86_64")]
mod fault;
#[cfg(target_arch = "x86_64")]
mod native;
#[cfg(target_arch = "x86_64")]
mod pages;
#[cfg(target_arch = "x86_64")]
mod perf;
mod threads;
mod tiles;
mod topology;
pub(crate) mod units;

use crate::code::{self, Launch, Packed};
use crate::config::Config;
use crate::folder::TrustedCode;
use crate::kernel::{Arguments, Kernel, Signature, program_parts, program_source};
use crate::kind::{Kind, Name};
use crate::pool::{Budget, Pool};
use crate::private::{self, Scratch};
use crate::queue::{Host, Queue};
use crate::runtime::{Runtime, Unpacked};
use cache::{LoadedCode, ObjectCache};
use compile::{Compiler, Unit};
use monoglot_uop::{Device, Dialect, Error, ErrorKind, Program, Result, Target};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::{Arc, Mutex, Once, Weak};
use threads::Threads;
use xxhash_rust::xxh3::Xxh3;

pub use detect::target;
pub(crate) use detect::{machine, named, ordinary};

/// The kind, for the registry. What `CPU` alone means is the machine's affair.
pub(crate) const KIND: Kind = Kind {
    name: "CPU",
    renderers: &["X86", "C"],
    open,
};

fn open(name: &Name, config: &Config) -> Result<Arc<dyn Runtime>> {
    open_it(name, config, false)
}

/// As the registry opens it; but where there is no compiler, it runs what was compiled elsewhere.
pub(crate) fn open_for_code(name: &Name, config: &Config) -> Result<Arc<dyn Runtime>> {
    open_it(name, config, true)
}

fn open_it(name: &Name, config: &Config, for_code: bool) -> Result<Arc<dyn Runtime>> {
    let name = Name {
        renderer: name.renderer.or_else(|| Some(detect::usual())),
        ..*name
    };
    let target = named(&KIND, &name, config)?;
    match target.dialect {
        Dialect::X86 => native(target, config),
        Dialect::C | Dialect::Uops => {
            let march = name.arch.map_or("native", |_| &target.arch).to_string();
            let cpu = Cpu::with(target, config, &march);
            if let (Err(e), false) = (&cpu.compiler, for_code) {
                return Err(e.clone());
            }
            Ok(Arc::new(cpu))
        }
    }
}

/// The CPU through machine code, where this machine can run that of the target.
#[cfg(target_arch = "x86_64")]
fn native(target: Target, config: &Config) -> Result<Arc<dyn Runtime>> {
    detect::runs(&target)?;
    Ok(Arc::new(native::Native::new(target, config)))
}

#[cfg(not(target_arch = "x86_64"))]
fn native(target: Target, _config: &Config) -> Result<Arc<dyn Runtime>> {
    detect::runs(&target)?;
    Err(crate::kind::missing(
        target.device,
        "this build has no part that runs machine code",
    ))
}

/// A machine in words.
fn described(t: &Target) -> String {
    format!(
        "{} with vectors of {} bytes, {} threads on {} cores, caches {:?}",
        t.arch, t.vector_bytes, t.threads, t.cores, t.caches
    )
}

/// Arithmetic operations of a run from which on a kernel is compiled with all the compiler can do.
const HEAVY: u64 = 20_000_000;

/// The CPU of this machine.
pub struct Cpu {
    target: Target,
    /// None in a device that was opened for code that is there already, where there is no compiler.
    compiler: Result<Compiler>,
    cache: ObjectCache,
    pool: Arc<Pool>,
    alive: Mutex<FxHashMap<u128, Weak<LoadedCode>>>,
}

impl Cpu {
    /// Open it with these settings.
    ///
    /// # Errors
    /// `NoDevice` where no C compiler is found.
    pub fn open(device: Device, config: &Config) -> Result<Cpu> {
        let cpu = Cpu::with(target(device, config), config, "native");
        cpu.compiler()?;
        Ok(cpu)
    }

    fn with(target: Target, config: &Config, march: &str) -> Cpu {
        let compiler = Compiler::find(target.device.name(), config, march);
        let cache = ObjectCache::new(config.cache_folder().join("cpu"), config.cache_bytes);
        Cpu {
            pool: Arc::new(Pool::new(target.threads, Budget::machine())),
            target,
            compiler,
            cache,
            alive: Mutex::default(),
        }
    }

    fn compiler(&self) -> Result<&Compiler> {
        self.compiler.as_ref().map_err(Error::clone)
    }

    /// Whether the cache folder was found to be of no use.
    pub fn cache_failed(&self) -> bool {
        self.cache.has_warned()
    }

    /// The key of a source: everything that decides the code.
    fn key(&self, name: &str, source: &str) -> Result<u128> {
        let mut h = Xxh3::new();
        let version = env!("CARGO_PKG_VERSION");
        for part in [
            source,
            name,
            self.compiler()?.identity(),
            &detect::features(),
            &self.target.arch,
            version,
        ] {
            h.update(part.as_bytes());
            h.update(&[0]);
        }
        Ok(h.digest128())
    }

    /// What the compiler is given of programs.
    fn units<'a>(&self, programs: &'a [Program]) -> Result<Vec<Unit<'a>>> {
        let mut units = Vec::with_capacity(programs.len());
        for program in programs {
            let (_, info) = program_parts(program)?;
            let source = program_source(program)?;
            let name = &*info.name;
            units.push(Unit {
                key: self.key(name, source)?,
                name,
                source,
                heavy: info.flops >= HEAVY,
            });
        }
        Ok(units)
    }

    /// LoadedCode for every unit, by key.
    fn codes(&self, units: &[Unit]) -> Result<FxHashMap<u128, Arc<LoadedCode>>> {
        let mut found = FxHashMap::default();
        let mut missing = Vec::new();
        let mut seen = FxHashSet::default();
        {
            let alive = self.alive.lock().unwrap_or_else(|e| e.into_inner());
            for u in units {
                if let Some(code) = alive.get(&u.key).and_then(Weak::upgrade) {
                    found.insert(u.key, code);
                } else if seen.insert(u.key) {
                    missing.push(*u);
                }
            }
        }
        let mut unknown = Vec::new();
        for u in missing {
            if let Some(code) = self.cache.load(u.key) {
                found.insert(u.key, Arc::new(code));
            } else {
                unknown.push(u);
            }
        }
        for result in self.compile_all(&unknown) {
            found.extend(result?.into_iter().map(|(key, code)| (key, Arc::new(code))));
        }
        let mut alive = self.alive.lock().unwrap_or_else(|e| e.into_inner());
        if alive.len() > 1024 {
            alive.retain(|_, code| code.strong_count() > 0);
        }
        alive.extend(found.iter().map(|(&key, code)| (key, Arc::downgrade(code))));
        Ok(found)
    }

    fn compile_all(&self, units: &[Unit]) -> Vec<Result<Vec<(u128, LoadedCode)>>> {
        if units.is_empty() {
            return Vec::new();
        }
        let groups = compile::split(units, self.target.threads);
        if let [group] = &groups[..] {
            return vec![self.compile_group(group)];
        }
        std::thread::scope(|scope| {
            let mut workers = Vec::with_capacity(groups.len());
            for group in &groups {
                workers.push(scope.spawn(|| self.compile_group(group)));
            }
            let gone = || {
                Err(ErrorKind::Run {
                    message: "a compiling thread panicked".into(),
                }
                .into())
            };
            let workers = workers.into_iter().map(|w| w.join());
            workers.map(|w| w.unwrap_or_else(|_| gone())).collect()
        })
    }

    /// Compiled in a folder of its own: the cache's, or where that is of no use the system's.
    fn compile_group(&self, units: &[&Unit]) -> Result<Vec<(u128, LoadedCode)>> {
        let Some(scratch) = self.cache.scratch() else {
            return self.compile_elsewhere(units);
        };
        // A folder that is full also shows as a failure of the compiler: then try elsewhere.
        self.compile_in(&scratch, units).or_else(|first| {
            let nowhere = |e: &Error| matches!(e.kind(), ErrorKind::Io { .. });
            self.compile_elsewhere(units)
                .map_err(|second| if nowhere(&second) { first } else { second })
        })
    }

    fn compile_elsewhere(&self, units: &[&Unit]) -> Result<Vec<(u128, LoadedCode)>> {
        static SWEPT: Once = Once::new();
        let temporary = std::env::temp_dir();
        SWEPT.call_once(|| private::sweep(&temporary));
        let scratch = Scratch::new(&temporary).map_err(|e| ErrorKind::Io {
            path: temporary.display().to_string(),
            message: e.to_string(),
        })?;
        self.compile_in(&scratch, units)
    }

    /// The kernels of these units. What a compiler that claims success has made is loaded before it is kept.
    fn compile_in(&self, scratch: &Scratch, units: &[&Unit]) -> Result<Vec<(u128, LoadedCode)>> {
        let object = self.compiler()?.compile(units, scratch.path())?;
        let keys: Vec<u128> = units.iter().map(|u| u.key).collect();
        let load = |&key: &u128| Some((key, cache::load(&object, key)?));
        let codes: Option<Vec<(u128, LoadedCode)>> = keys.iter().map(load).collect();
        let Some(codes) = codes else {
            let compiler = self.compiler()?.program().display().to_string();
            let message = "it reports success, but what it made cannot be loaded: it may call what is nowhere";
            let message = message.into();
            return Err(ErrorKind::Compile { compiler, message }.into());
        };
        self.cache.store(&object, &keys);
        Ok(codes)
    }
}

impl Runtime for Cpu {
    fn target(&self) -> &Target {
        &self.target
    }

    fn about(&self) -> String {
        let machine = described(&self.target);
        match &self.compiler {
            Ok(c) => format!("C through {}, {machine}", c.program().display()),
            Err(_) => format!("C that was compiled elsewhere, {machine}"),
        }
    }

    fn assembly(&self, program: &Program) -> Result<Option<String>> {
        let (_, info) = program_parts(program)?;
        let source = program_source(program)?;
        self.compiler()?.assembly(&info.name, source).map(Some)
    }

    fn code_key(&self) -> Option<String> {
        let version = env!("CARGO_PKG_VERSION");
        let Target { dialect, arch, .. } = &self.target;
        let features = detect::features();
        let system = std::env::consts::OS;
        let dialect = dialect.name();
        Some(format!("{version} {dialect} {arch} {features} {system}"))
    }

    /// One object of all of them.
    fn pack(&self, programs: &[Program]) -> Result<Option<Packed>> {
        let units = self.units(programs)?;
        let mut launches = Vec::with_capacity(programs.len());
        for (program, unit) in programs.iter().zip(&units) {
            launches.push(Launch::of(program, 0, unit.key, 0)?);
        }
        let launches = code::written(&launches);
        let mut seen = FxHashSet::default();
        let different: Vec<&Unit> = units.iter().filter(|u| seen.insert(u.key)).collect();
        if different.is_empty() {
            let object = Vec::new();
            return Ok(Some(Packed { launches, object }));
        }
        let folder = std::env::temp_dir();
        let failed = |e: std::io::Error| ErrorKind::Io {
            path: folder.display().to_string(),
            message: e.to_string(),
        };
        let scratch = Scratch::new(&folder).map_err(failed)?;
        let object = self.compiler()?.compile(&different, scratch.path())?;
        let object = std::fs::read(object).map_err(failed)?;
        Ok(Some(Packed { launches, object }))
    }

    fn unpack(&self, saved: &TrustedCode) -> Result<Vec<Unpacked>> {
        let mut kernels: Vec<Unpacked> = Vec::new();
        for launch in code::launches(&saved.launches)? {
            // The object is one that `pack` made: nobody else may write it, and it is whole (`TrustedCode`);
            // and this machine has what it was made for (`code_key`).
            let loaded = cache::load(&saved.path, launch.at).ok_or_else(code::unknown)?;
            let info = launch.info.clone();
            let kernel = CpuKernel {
                code: Arc::new(loaded),
                threads: Threads::saved(&launch, &self.pool),
                signature: launch.signature,
            };
            kernels.push((Arc::new(kernel), info));
        }
        Ok(kernels)
    }

    fn compile(&self, programs: &[Program]) -> Result<Vec<Arc<dyn Kernel>>> {
        let units = self.units(programs)?;
        let programs = programs.iter().map(|p| program_parts(p));
        let programs = programs.collect::<Result<Vec<_>>>()?;
        let codes = self.codes(&units)?;
        let mut kernels: Vec<Arc<dyn Kernel>> = Vec::with_capacity(programs.len());
        for ((linear, info), unit) in programs.iter().zip(&units) {
            kernels.push(Arc::new(CpuKernel {
                code: codes[&unit.key].clone(),
                signature: Signature::of(linear, info),
                threads: Threads::of(linear, info, &self.pool),
            }));
        }
        Ok(kernels)
    }

    fn runs_at_once(&self) -> bool {
        true
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        Ok(Box::new(Host))
    }
}

/// A compiled function and what it takes.
struct CpuKernel {
    code: Arc<LoadedCode>,
    signature: Signature,
    threads: Threads,
}

impl Kernel for CpuKernel {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, args: &Arguments) -> Result<()> {
        let entry = self.code.entry;
        self.threads.run(|thread| {
            let Arguments { ptrs, vars, .. } = args;
            // SAFETY: every buffer has the bytes its PARAM says and is claimed
            // (`Signature::arguments`); the verifier has shown every access to stay within them;
            // threads write apart within a phase, as the schedule sees to.
            unsafe { entry(ptrs.as_ptr(), vars.as_ptr(), thread) }
        });
        Ok(())
    }
}
