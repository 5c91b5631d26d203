//! The interpreter of linear programs: the oracle for every other device, and what runs where no
//! compiler is. `INTERP` runs a program as a CPU does, `INTERP:GPU` as a GPU: workgroups, LOCAL
//! memory, barriers, warps of 32 and a matrix unit.
//!
//! Invariant: whatever a program does, nothing outside its buffers is touched: an access out of bounds,
//! a barrier that not every thread reaches, a race in LOCAL memory are errors.

mod access;
mod decode;
mod group;
mod machine;
mod memory;
mod ops;
mod race;

use crate::config::Config;
use crate::pool;
use crate::runtime::{Kernel, Runtime, Signature, program_parts};
use crate::storage::Storage;
use decode::{Code, decode};
use group::Group;
use monoglot_uop::op::{Comparison, Transcendental, Unary};
use monoglot_uop::{
    AddrSpace, DType, Device, Dialect, Op, OpSet, ProgramInfo, Result, Target, TcInfo, UOp,
};
use std::cell::RefCell;
use std::sync::{Arc, Mutex};

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

/// Set this thread's counters to zero.
pub fn reset_counters() {
    COUNTERS.set(Counters::default());
}

/// An interpreter.
pub struct Interp {
    target: Target,
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
        dialect: Dialect::Linear,
        caches: crate::cpu::CACHES,
        native: NATIVE,
        ..crate::cpu::machine(device, config, &narrow)
    }
}

impl Interp {
    /// As a CPU.
    pub fn cpu(device: Device, config: &Config) -> Interp {
        Interp {
            target: target(device, config),
        }
    }

    /// As a GPU.
    pub fn gpu(device: Device) -> Interp {
        let unit = |name: &str, dtype_in| TcInfo {
            name: name.into(),
            dims: [8, 8, 8],
            threads: WARP as i64,
            dtype_in,
            dtype_out: DType::F32,
        };
        let target = Target {
            threads: 1,
            workgroups: true,
            max_workgroup: 256,
            warp: WARP,
            local_bytes: 48 << 10,
            registers: 64,
            matrix_units: vec![
                unit("mma_8x8x8_f32", DType::F32),
                unit("mma_8x8x8_f16", DType::F16),
            ],
            max_buffers: 31,
            ..target(device, &Config::default())
        };
        Interp { target }
    }
}

impl Runtime for Interp {
    fn target(&self) -> &Target {
        &self.target
    }

    fn about(&self) -> String {
        let gpu = " as a GPU: workgroups, LOCAL memory, warps of 32, an 8x8x8 matrix unit";
        format!(
            "interpreter of linear programs{}",
            if self.target.workgroups { gpu } else { "" }
        )
    }

    fn compile(&self, programs: &[UOp]) -> Result<Vec<Arc<dyn Kernel>>> {
        let groups = self.target.workgroups;
        let kernel = |p: &UOp| -> Result<Arc<dyn Kernel>> {
            let (linear, _, info) = program_parts(p)?;
            let code = decode(linear, info, groups)?;
            let signature = Signature::of(linear, info);
            Ok(Arc::new(InterpKernel {
                code,
                info: info.clone(),
                signature,
                groups,
            }))
        };
        programs.iter().map(kernel).collect()
    }
}

struct InterpKernel {
    code: Code,
    info: Arc<ProgramInfo>,
    signature: Signature,
    groups: bool,
}

impl Kernel for InterpKernel {
    fn launch(&self, bufs: &[Arc<Storage>], vars: &[i64]) -> Result<()> {
        let args = self.signature.arguments(bufs, vars)?;
        // What was read of each buffer, and the first fault.
        let result = Mutex::new((vec![0u64; bufs.len()], None));
        let size = |dims: &[i64; 3]| dims.iter().map(|&n| n.max(1) as usize).product::<usize>();
        // The units of work: threads of a CPU, or workgroups, a share of which each piece runs in turn.
        let (total, threads) = match self.groups {
            true => (size(&self.info.global_size), size(&self.info.local_size)),
            false => (self.info.threads.max(1) as usize, 1),
        };
        let pieces = if self.groups {
            total.min(pool::global().threads())
        } else {
            total
        };
        let piece = |p: usize| {
            let mut group = Group::new(&self.code, &args, threads);
            let mut units = (p..total).step_by(pieces);
            let run = units.try_for_each(|unit| group.run(unit, &self.info, self.groups));
            let mut all = result.lock().unwrap_or_else(|e| e.into_inner());
            group.add_reads(&mut all.0);
            all.1 = all.1.take().or(run.err());
        };
        pool::run(pieces, &piece);
        let (reads, fault) = result.into_inner().unwrap_or_else(|e| e.into_inner());
        let globals = self
            .code
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
