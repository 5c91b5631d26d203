//! The interpreter of linear programs: the oracle for every other device, and what runs where no
//! compiler is. `INTERP` runs a program as a CPU does, `INTERP:GPU` as a GPU: workgroups, LOCAL
//! memory, barriers, warps of 32 and a matrix unit.
//!
//! Invariant: whatever a program does, nothing outside its buffers is touched: an access out of bounds,
//! a barrier that not every thread reaches, a race in LOCAL memory are errors.

mod access;
mod decode;
mod group;
mod lives;
mod machine;
mod memory;
mod ops;
mod race;

use crate::config::Config;
use crate::pool;
use crate::runtime::{Kernel, Runtime, check_launch, program_parts, storage_params};
use crate::storage::Storage;
use decode::{Code, decode};
use group::{Arguments, Group};
use machine::Fault;
use monoglot_uop::{
    AddrSpace, DType, Device, Dialect, Error, ErrorKind, Op, OpSet, ProgramInfo, Result, Target, TcInfo, UOp,
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
    COUNTERS.with(|c| c.borrow().clone())
}

/// Set this thread's counters to zero.
pub fn reset_counters() {
    COUNTERS.with(|c| *c.borrow_mut() = Counters::default());
}

/// An interpreter.
pub struct Interp {
    target: Target,
}

/// The interpreter as a CPU, as a target: narrow vectors, every op but Threefry native.
pub fn target(device: Device, config: &Config) -> Target {
    let native = OpSet::filter(|op| op.is_elementwise() && op != Op::Threefry);
    let mut storage = crate::cpu::ARITHMETIC.to_vec();
    storage.extend([DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2]);
    Target {
        device,
        dialect: Dialect::Linear,
        arch: String::new(),
        vector_bytes: 16,
        registers: 32,
        threads: config.thread_count(),
        workgroups: false,
        max_workgroup: 1,
        warp: 1,
        local_bytes: 1 << 20,
        caches: [32 << 10, 512 << 10, 8 << 20],
        native: native.with(Op::Bitcast),
        arithmetic: crate::cpu::ARITHMETIC.to_vec(),
        storage,
        matrix_units: Vec::new(),
        max_buffers: 64,
        max_nodes: 2000,
    }
}

/// The interpreter as a GPU, as a target.
pub fn gpu_target(device: Device) -> Target {
    let unit = |name: &str, dtype_in| TcInfo {
        name: name.into(),
        dims: [8, 8, 8],
        threads: WARP as i64,
        dtype_in,
        dtype_out: DType::F32,
    };
    Target {
        threads: 1,
        workgroups: true,
        max_workgroup: 256,
        warp: WARP,
        local_bytes: 48 << 10,
        registers: 64,
        matrix_units: vec![unit("mma_8x8x8_f32", DType::F32), unit("mma_8x8x8_f16", DType::F16)],
        max_buffers: 31,
        ..target(device, &Config::default())
    }
}

impl Interp {
    /// As a CPU.
    pub fn cpu(device: Device, config: &Config) -> Interp {
        Interp { target: target(device, config) }
    }

    /// As a GPU.
    pub fn gpu(device: Device) -> Interp {
        Interp { target: gpu_target(device) }
    }
}

impl Runtime for Interp {
    fn device(&self) -> Device {
        self.target.device
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn about(&self) -> String {
        let gpu = " as a GPU: workgroups, LOCAL memory, warps of 32, an 8x8x8 matrix unit";
        format!("interpreter of linear programs{}", if self.target.workgroups { gpu } else { "" })
    }

    fn alloc(&self, bytes: usize) -> Result<Arc<Storage>> {
        Storage::host(self.target.device, bytes)
    }

    fn compile(&self, programs: &[UOp]) -> Result<Vec<Arc<dyn Kernel>>> {
        let groups = self.target.workgroups;
        let kernel = |p: &UOp| -> Result<Arc<dyn Kernel>> {
            let (linear, _, info) = program_parts(p)?;
            let code = decode(linear, info, groups)?;
            let needs = storage_params(linear, info).iter().map(|p| p.1).collect();
            Ok(Arc::new(InterpKernel { code, info: info.clone(), needs, groups }))
        };
        programs.iter().map(kernel).collect()
    }
}

struct InterpKernel {
    code: Code,
    info: Arc<ProgramInfo>,
    needs: Vec<usize>,
    groups: bool,
}

impl Kernel for InterpKernel {
    fn launch(&self, bufs: &[Arc<Storage>], vars: &[i64]) -> Result<()> {
        let name = &self.info.name;
        check_launch(name, &self.needs, self.info.vars.len(), bufs, vars)?;
        let mut ptrs = Vec::with_capacity(bufs.len());
        for b in bufs {
            ptrs.push(b.host_ptr().ok_or_else(|| {
                Error::new(ErrorKind::Run { message: format!("kernel {name}: {b:?} is not in host memory") })
            })?);
        }
        let args = Arguments { ptrs: &ptrs, vars };
        let reads = Mutex::new(vec![0u64; ptrs.len()]);
        let fault: Mutex<Option<String>> = Mutex::new(None);
        let size = |dims: &[i64; 3]| dims.iter().map(|&n| n.max(1) as usize).product::<usize>();
        // The units of work: threads of a CPU, or workgroups, a share of which each piece runs in turn.
        let (total, threads) = match self.groups {
            true => (size(&self.info.global_size), size(&self.info.local_size)),
            false => (self.info.threads.max(1) as usize, 1),
        };
        let pieces = if self.groups { total.min(pool::global().threads()) } else { total };
        let piece = |p: usize| {
            let mut group = Group::new(&self.code, &args, threads);
            for unit in (p..total).step_by(pieces) {
                if let Err(message) = group.run(unit, &self.info, self.groups) {
                    fault.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(message);
                    break;
                }
            }
            let mut all = reads.lock().unwrap_or_else(|e| e.into_inner());
            group.add_reads(&mut all);
        };
        match pieces {
            1 => piece(0),
            n => pool::global().run(n, &piece),
        }
        self.count(&reads.into_inner().unwrap_or_else(|e| e.into_inner()));
        match fault.into_inner().unwrap_or_else(|e| e.into_inner()) {
            Some(message) => Err(Error::new(ErrorKind::Run { message: format!("kernel {name}: {message}") })),
            None => Ok(()),
        }
    }
}

impl InterpKernel {
    fn count(&self, reads: &[u64]) {
        let globals = self.code.bufs.iter().filter(|b| b.space == AddrSpace::Global);
        COUNTERS.with(|c| {
            let mut c = c.borrow_mut();
            c.launches += 1;
            c.reads += reads.iter().sum::<u64>();
            c.latest = globals.zip(reads).map(|(b, &n)| (b.slot as usize, n)).collect();
        });
    }
}

fn describe(fault: &Fault) -> String {
    match fault {
        Fault::Bounds { slot, index, n, len, write } => {
            let what = if *write { "writes" } else { "reads" };
            let many = if *n > 1 { format!("{n} elements from {index}") } else { format!("element {index}") };
            format!("{what} {many} of buffer {slot}, which has {len}")
        }
        Fault::Race { slot, index, threads: (a, b) } => {
            format!("threads {a} and {b} race for element {index} of LOCAL buffer {slot}")
        }
    }
}
