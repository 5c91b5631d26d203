//! The interpreter of linear programs: the oracle for every other device, and what runs where no
//! compiler is. `INTERP` runs a program as a CPU does, `INTERP:GPU` as a GPU: workgroups, LOCAL
//! memory, barriers, warps of 32 and a matrix unit. Flows in: PROGRAMs; flows out: kernels, and
//! what they write into the storage they are launched with.
//!
//! Invariant: whatever a program does, nothing outside its buffers is touched: an access out of bounds,
//! a barrier that not every thread reaches, a race in LOCAL memory are errors.

mod access;
mod atomic;
mod decode;
mod group;
mod machine;
mod memory;
mod ops;
mod race;

use crate::config::Config;
use crate::kernel::{Arguments, Kernel, Signature, program_parts};
use crate::kind::{Kind, Name};
use crate::pool::{Budget, Pool};
use crate::queue::{Host, Line, Place, Queue};
use crate::runtime::Runtime;
use crate::storage::Storage;
use decode::{Decoded, decode};
use group::Group;
use monoglot_uop::linear::phases;
use monoglot_uop::op::{Comparison, Transcendental, Unary};
use monoglot_uop::{
    AddrSpace, DType, Device, Dialect, Digit, Fragment, Op, OpSet, Program, ProgramInfo, Result,
    Target, TcInfo,
};
use std::cell::RefCell;
use std::sync::{Arc, Mutex};

/// The kind that is a CPU, for the registry.
pub(crate) const KIND: Kind = Kind {
    name: "INTERP",
    renderers: &[],
    open: |name: &Name, config: &Config| Ok(Arc::new(Interp::cpu(name.device, config))),
};

/// The kind that is a GPU.
pub(crate) const GPU: Kind = Kind {
    name: "INTERP:GPU",
    renderers: &[],
    open: |name: &Name, config: &Config| Ok(Arc::new(Interp::gpu(name.device, config))),
};

/// Lanes of a warp.
pub(crate) const WARP: usize = 32;

/// What the interpreter has read, counted for kernels launched from one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Kernels.
    pub launches: u64,
    /// Elements read from GLOBAL buffers.
    pub reads: u64,
    /// Elements read by the latest launch, by PARAM slot.
    pub latest: Vec<(usize, u64)>,
}

thread_local! {
    static COUNTERS: RefCell<Counters> = RefCell::default();
}

/// The counters of kernels that this thread launched since it last reset them.
pub fn counters() -> Counters {
    COUNTERS.with_borrow(Counters::clone)
}

impl Counters {
    /// Add those of later launches.
    fn add(&mut self, later: Counters) {
        self.launches += later.launches;
        self.reads += later.reads;
        if later.launches > 0 {
            self.latest = later.latest;
        }
    }
}

/// Set this thread's counters to zero.
pub fn reset_counters() {
    COUNTERS.set(Counters::default());
}

/// An interpreter.
pub struct Interp {
    target: Target,
    pool: Arc<Pool>,
    /// Where a GPU's work runs.
    line: Arc<Line>,
}

/// The ops that have instructions here, the primitives apart.
const NATIVE: OpSet = OpSet::PRIMITIVES
    .union(OpSet::of(Unary::OPS))
    .union(OpSet::of(Transcendental::OPS))
    .union(OpSet::of(Comparison::OPS))
    .union(OpSet::of(&[Op::Sub, Op::Max, Op::Pow, Op::MulAcc]));

/// The interpreter as a CPU, as a target: narrow vectors, every op but floor divisions and Threefry native.
pub fn target(device: Device, config: &Config) -> Target {
    let narrow = [DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2];
    Target {
        dialect: Dialect::Uops,
        arranged: false,
        native: NATIVE,
        matrix_units: crate::cpu::units::every(),
        ..crate::cpu::machine(device, config, &narrow)
    }
}

/// The GPU's matrix units, whose matrices lie over the lanes in two ways, and dot products of words.
fn units() -> Vec<TcInfo> {
    let small = |name: &str, dtype| TcInfo {
        name: name.into(),
        dims: [8, 8, 8],
        threads: WARP as i64,
        dtypes_in: [dtype; 2],
        dtype_out: DType::F32,
        a: Fragment::pairs(8, 8),
        b: Fragment::pairs(8, 8),
        c: Fragment::pairs(8, 8),
    };
    // A lane holds half a row of a, half a column of b and of c.
    let columns = Fragment {
        lane: vec![Digit::Column(16, 1), Digit::Row(2, 8)],
        element: vec![Digit::Row(8, 1)],
    };
    let large = TcInfo {
        dims: [16, 16, 16],
        a: Fragment {
            lane: vec![Digit::Row(16, 1), Digit::Column(2, 8)],
            element: vec![Digit::Column(8, 1)],
        },
        b: columns.clone(),
        c: columns,
        ..small("mma_16x16x16_bf16", DType::BF16)
    };
    let matrices = [
        small("mma_8x8x8_f32", DType::F32),
        small("mma_8x8x8_f16", DType::F16),
        large,
    ];
    let dots = crate::cpu::units::every();
    matrices.into_iter().chain(dots).collect()
}

impl Interp {
    /// As a CPU.
    pub fn cpu(device: Device, config: &Config) -> Interp {
        Interp::of(target(device, config), config)
    }

    /// As a GPU. What it is does not depend on the settings, which say how many threads it runs on.
    pub fn gpu(device: Device, config: &Config) -> Interp {
        let target = Target {
            threads: 1,
            workgroups: true,
            arranged: true,
            max_workgroup: 256,
            warp: WARP,
            local_bytes: 48 << 10,
            registers: 64,
            matrix_units: units(),
            max_buffers: 31,
            ..target(device, &Config::default())
        };
        Interp::of(target, config)
    }

    fn of(target: Target, config: &Config) -> Interp {
        Interp {
            target,
            pool: Arc::new(Pool::new(config.thread_count(), Budget::machine())),
            line: Arc::default(),
        }
    }
}

impl Runtime for Interp {
    fn target(&self) -> &Target {
        &self.target
    }

    fn about(&self) -> String {
        let gpu =
            " as a GPU: workgroups, LOCAL memory, warps of 32, matrix units of 8x8x8 and 16x16x16";
        format!(
            "interpreter of linear programs{}",
            if self.target.workgroups { gpu } else { "" }
        )
    }

    fn compile(&self, programs: &[Program]) -> Result<Vec<Arc<dyn Kernel>>> {
        let groups = self.target.workgroups;
        let kernel = |p: &Program| -> Result<Arc<dyn Kernel>> {
            let (linear, info) = program_parts(p)?;
            let phases = if groups {
                vec![linear.clone()]
            } else {
                phases(linear)
            };
            let decoded = phases.iter().map(|p| decode(p, info, groups));
            let signature = Signature::of(linear, info);
            Ok(Arc::new(InterpKernel {
                phases: decoded.collect::<Result<_>>()?,
                info: info.clone(),
                signature,
                groups,
                pool: self.pool.clone(),
            }))
        };
        programs.iter().map(kernel).collect()
    }

    fn runs_at_once(&self) -> bool {
        !self.target.workgroups
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        if !self.target.workgroups {
            return Ok(Box::new(Host));
        }
        Ok(Box::new(Gpu {
            place: Place::new(&self.line),
            counters: Arc::default(),
        }))
    }

    fn synchronize(&self) {
        self.line.wait();
    }
}

/// A queue of the GPU: work that it is given runs later, on a thread of the device.
struct Gpu {
    place: Place,
    /// What its kernels have read since it was last waited for.
    counters: Arc<Mutex<Counters>>,
}

impl Queue for Gpu {
    fn launch(
        &mut self,
        kernel: &Arc<dyn Kernel>,
        bufs: &[Arc<Storage>],
        vars: &[i64],
    ) -> Result<()> {
        kernel.signature().check(bufs, vars)?;
        let kernel = kernel.clone();
        let counters = self.counters.clone();
        let bufs = bufs.to_vec();
        let vars = vars.to_vec();
        self.place.give(Box::new(move || {
            reset_counters();
            let result = kernel.run(&kernel.signature().arguments(&bufs, &vars)?);
            let mut all = counters.lock().unwrap_or_else(|e| e.into_inner());
            all.add(COUNTERS.take());
            result
        }))
    }

    fn copy(&mut self, from: &Arc<Storage>, to: &Arc<Storage>) -> Result<()> {
        let from = from.clone();
        let to = to.clone();
        self.place.give(Box::new(move || to.copy_from(&from)))
    }

    fn synchronize(&mut self) -> Result<()> {
        let result = self.place.wait();
        let mut counters = self.counters.lock().unwrap_or_else(|e| e.into_inner());
        COUNTERS.with_borrow_mut(|c| c.add(std::mem::take(&mut *counters)));
        result
    }
}

struct InterpKernel {
    /// What all threads do before any goes on; of workgroups, whose threads wait for each other, one.
    phases: Vec<Decoded>,
    info: Arc<ProgramInfo>,
    signature: Signature,
    groups: bool,
    pool: Arc<Pool>,
}

/// What the pieces of a launch have done.
struct Outcome {
    /// Elements read of each buffer.
    reads: Vec<u64>,
    /// The first fault.
    fault: Option<String>,
}

impl Kernel for InterpKernel {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, args: &Arguments) -> Result<()> {
        let outcome = Mutex::new(Outcome {
            reads: vec![0; args.ptrs.len()],
            fault: None,
        });
        let size = |dims: &[i64; 3]| dims.iter().map(|&n| n.max(1) as usize).product::<usize>();
        // The units of work: threads of a CPU, or workgroups, a share of which each piece runs in turn.
        let mut total = self.info.threads.max(1) as usize;
        let mut pieces = total;
        let mut threads = 1;
        if self.groups {
            total = size(&self.info.global_size);
            pieces = total.min(self.pool.threads());
            threads = size(&self.info.local_size);
        }
        let piece = |code: &Decoded, p: usize| {
            let mut group = Group::new(code, args, threads);
            let mut units = (p..total).step_by(pieces);
            let run = units.try_for_each(|unit| group.run(unit, &self.info, self.groups));
            let mut all = outcome.lock().unwrap_or_else(|e| e.into_inner());
            group.add_reads(&mut all.reads);
            all.fault = all.fault.take().or(run.err());
        };
        let failed = || {
            let all = outcome.lock().unwrap_or_else(|e| e.into_inner());
            all.fault.is_some()
        };
        for code in self.phases.iter().take_while(|_| !failed()) {
            self.pool.run(pieces, &|p| piece(code, p));
        }
        let Outcome { reads, fault } = outcome.into_inner().unwrap_or_else(|e| e.into_inner());
        let globals = self.phases[0]
            .bufs
            .iter()
            .filter(|b| b.space == AddrSpace::Global);
        COUNTERS.with_borrow_mut(|c| {
            c.launches += 1;
            c.reads += reads.iter().sum::<u64>();
            c.latest = globals
                .zip(reads)
                .map(|(b, n)| (b.slot as usize, n))
                .collect();
        });
        fault.map_or(Ok(()), |message| Err(self.signature.fail(message)))
    }
}
