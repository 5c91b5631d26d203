//! Devices by name, `DEVICE[:RENDERER[:ARCH]]` (a number in the place of the renderer is another
//! device of the same kind). Each is opened once and kept.

use crate::config::Config;
use crate::cpu::Cpu;
use crate::disk::Disk;
use crate::interp::Interp;
use crate::null::Null;
use crate::runtime::Runtime;
use monoglot_uop::{Device, Error, ErrorKind, Result};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex};

/// A device as the `devices` command shows it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// What to give `DEV`.
    pub name: &'static str,
    /// What it is, and what it is here.
    pub about: String,
    /// Why it cannot be opened, where it cannot.
    pub missing: Option<String>,
}

const NAMES: [&str; 5] = ["CPU", "INTERP", "INTERP:GPU", "NULL", "DISK"];

static OPEN: Mutex<Option<FxHashMap<Device, Arc<dyn Runtime>>>> = Mutex::new(None);

/// The device of that name, opened with the settings in force.
///
/// # Errors
/// `NoDevice`, which says what there is, for a name that is none or a device that is not there.
pub fn open(device: Device) -> Result<Arc<dyn Runtime>> {
    let mut open = OPEN.lock().unwrap_or_else(|e| e.into_inner());
    let open = open.get_or_insert_with(FxHashMap::default);
    if let Some(found) = open.get(&device) {
        return Ok(found.clone());
    }
    let runtime = open_new(device, &Config::current())?;
    open.insert(device, runtime.clone());
    Ok(runtime)
}

fn open_new(device: Device, config: &Config) -> Result<Arc<dyn Runtime>> {
    let mut parts = device.name().split(':');
    let kind = parts.next().unwrap_or("");
    let mut rest: Vec<&str> = parts.collect();
    if kind != "DISK" && matches!(rest[..], [n] if n.parse::<u32>().is_ok()) {
        rest.clear();
    }
    Ok(match (kind, &rest[..]) {
        ("CPU", [] | ["C"]) => Arc::new(Cpu::open(device, config)?),
        ("CPU", ["C", arch]) => Arc::new(Cpu::for_arch(device, config, arch)?),
        ("INTERP", []) => Arc::new(Interp::cpu(device, config)),
        ("INTERP", ["GPU"]) => Arc::new(Interp::gpu(device)),
        ("NULL", []) => Arc::new(Null {
            target: crate::cpu::target(device, config),
        }),
        ("NULL", ["C", arch]) => Arc::new(Null {
            target: crate::cpu::ordinary(device, config, arch)?,
        }),
        ("DISK", []) => Arc::new(Disk {
            target: crate::interp::target(device, config),
        }),
        _ => {
            let message = format!("there is no such device; there are {}", NAMES.join(", "));
            return Err(Error::new(ErrorKind::NoDevice {
                device: device.name().into(),
                message,
            }));
        }
    })
}

/// Every device this build knows, with what it is on this machine.
pub fn list() -> Vec<Listed> {
    let config = Config::current();
    let about = |name| match open_new(Device::new(name), &config) {
        Ok(runtime) => Listed {
            name,
            about: runtime.about(),
            missing: None,
        },
        Err(e) => Listed {
            name,
            about: "C through a compiler".into(),
            missing: Some(e.to_string()),
        },
    };
    NAMES.into_iter().map(about).collect()
}
