//! The engine: realize, caches, replay. The one room that sees schedule, codegen and device.
//!
//! Flows in: roots of tensor graphs; flows out: BUFFERs that hold their values. A structure seen before
//! is neither scheduled nor compiled again; a kernel seen before, in whatever program, is not compiled
//! again. Invariant: a realize either gives every root or changes nothing that was there.

mod again;
mod backends;
mod batch;
mod bound;
mod cache;
mod cancel;
mod capture;
mod check;
mod counters;
mod donate;
mod events;
mod executable;
mod family;
mod idle;
mod own;
mod queues;
mod realize;
mod report;
mod run;
mod versions;
mod wrong;

pub use backends::backend;
pub use bound::{Bound, bind};
pub use cancel::Cancel;
pub use capture::{Caller, Capture, Captured, Saved, SavedSum, TEXT, Take, stand_in};
pub use counters::{Counters, counters};
pub use events::{Event, Listener, listen};
pub use executable::{Compiled, compile};
pub use monoglot_device::{
    Config, Folder, HostArguments, HostElement, HostFunction, NewFolder, Pieces, Storage,
    StorageUse, Sum, release_kept, set_memory_limit, storage_use,
};
pub use own::{check_source, dialect, settled};
pub use realize::{
    Value, open_file, read, realize, realized, upload, upload_pieces, value, with_room,
};
pub use report::note;

use monoglot_uop::{Device, Result};

/// The device that tensors are on unless told otherwise: the configuration's, by default the CPU.
pub fn default_device() -> Device {
    Config::current_device()
}

/// The device on which a copy of what is on this one may lie: itself, or where it gives no storage, as a device
/// of files, the one that tensors are on unless told otherwise.
pub fn device_for_copy(device: Device) -> Device {
    let gives = monoglot_device::open(device).and_then(|runtime| runtime.alloc(1));
    match gives {
        Ok(_) => device,
        Err(_) => default_device(),
    }
}

/// Open the device that tensors are on unless told otherwise.
///
/// # Errors
/// Where there is no such device, or it cannot be opened.
pub fn open_default() -> Result<()> {
    monoglot_device::open(default_device()).map(|_| ())
}

/// Put tensors on this device from now on, unless told otherwise.
pub fn set_default_device(device: Device) {
    Config {
        device: Some(device.name().into()),
        ..(*Config::current()).clone()
    }
    .set();
}
