//! Launches of a kernel that does next to nothing: what it costs to have one run. Flows in: nothing; flows
//! out: workloads, of one thread's kernel and of one that two threads share, whose workers look for work or
//! sleep by the time that the next launch comes.

use super::{Result, Score, Subject, Work, Workload, moving};
use monoglot::DType;
use monoglot::compiler::device::{Kernel, Runtime, Storage, open};
use monoglot::compiler::uop::{Arg, AxisType, Opt, OptOp, Shape, UOp};
use monoglot::compiler::{codegen, engine};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// See the module.
pub(super) fn all() -> Vec<Workload> {
    vec![
        launches("launch_one_thread", 1, None),
        launches("launch_two_threads_spinning", 2, None),
        launches("launch_two_threads_parked", 2, Some(PARKED)),
    ]
}

/// Workers that have had nothing to do for so long sleep.
const PARKED: Duration = Duration::from_millis(2);
/// Launches that are timed together: the clock is asked but twice.
const TOGETHER: u32 = 1000;

/// A kernel, ready to be launched.
pub(in super::super) struct Launches {
    runtime: Arc<dyn Runtime>,
    kernel: Arc<dyn Kernel>,
    storage: Vec<Arc<Storage>>,
    /// How long its threads are left alone before each launch.
    pause: Option<Duration>,
    /// Seconds that lowering and compiling took.
    pub(in super::super) compile: f64,
}

impl Launches {
    /// The seconds of a launch.
    pub(in super::super) fn time(&self) -> Result<f64> {
        if let Some(pause) = self.pause {
            std::thread::sleep(pause);
        }
        let count = self.pause.map_or(TOGETHER, |_| 1);
        let start = Instant::now();
        for _ in 0..count {
            self.runtime.launch(&self.kernel, &self.storage, &[])?;
        }
        Ok(start.elapsed().as_secs_f64() / f64::from(count))
    }
}

/// A kernel of two stores, shared by so many threads.
fn launches(name: &'static str, threads: i64, pause: Option<Duration>) -> Workload {
    let work = Work {
        score: Score::Launches,
        ..moving(0.0, STORES as f64)
    };
    let prepare = move || {
        let runtime = open(engine::default_device())?;
        let target = runtime.target();
        let start = Instant::now();
        let backend = engine::backend(target.dialect);
        let opts: Vec<Opt> = (threads > 1)
            .then_some(shared(threads))
            .into_iter()
            .collect();
        let (program, _) =
            codegen::lower(&two_stores(), target, backend, Some(&opts), &mut |_, _| {})?;
        let kernel = runtime.compile(&[program])?.remove(0);
        let compile = start.elapsed().as_secs_f64();
        let storage = vec![runtime.alloc(STORES as usize * DType::F32.bytes())?];
        let launches = Launches {
            runtime: runtime.clone(),
            kernel,
            storage,
            pause,
            compile,
        };
        Ok(Subject::Launches(launches))
    };
    Workload {
        name,
        work,
        prepare: Box::new(prepare),
    }
}

/// Elements that the kernel writes.
const STORES: i64 = 2;

/// Each place's number, stored there.
fn two_stores() -> UOp {
    let device = engine::default_device();
    let place = UOp::range(STORES, 0, AxisType::Loop);
    let out = UOp::param(0, &Shape::of(&[STORES]), DType::F32, Some(device));
    let store = out.at(&[place.clone()]).store(&place.cast(DType::F32));
    let kernel = UOp::sink(&[store.end(&[place])]);
    kernel.with_arg(Arg::Kernel(Default::default()))
}

/// Threads take an element each.
fn shared(threads: i64) -> Opt {
    let op = OptOp::Split {
        factor: threads,
        target: AxisType::Thread,
        top: true,
    };
    Opt { op, axis: 0 }
}
