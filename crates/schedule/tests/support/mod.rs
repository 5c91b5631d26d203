//! The machine that this room's tests schedule for: one of no particular kind, with two threads.
//! Flows in: a device's name; flows out: its `Target`.

use monoglot_uop::{DType, Device, Dialect, OpSet, Result, Target};
use std::sync::Arc;

pub(crate) fn target(device: Device) -> Result<Arc<Target>> {
    Ok(Arc::new(Target {
        device,
        dialect: Dialect::Uops,
        arch: String::new(),
        vector_bytes: 16,
        registers: 16,
        threads: 2,
        cores: 2,
        workgroups: false,
        max_workgroup: 1,
        warp: 1,
        local_bytes: 0,
        caches: [32 << 10, 1 << 20, 32 << 20],
        native: OpSet::ANY,
        arithmetic: DType::ALL.to_vec(),
        storage: DType::ALL.to_vec(),
        arranged: true,
        matrix_units: Vec::new(),
        max_buffers: 32,
        max_nodes: 400,
    }))
}
