//! Names of devices as plain data. A `Device` is one device or a tuple of devices; equal names are
//! stored once, so it is `Copy`.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Mutex;

/// A device such as `CPU`, `INTERP:GPU` or `CPU:1`, or a tuple of them, written `(CPU,CPU:1)`.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Device(&'static Data);

#[derive(PartialEq, Eq, Hash)]
struct Data {
    name: String,
    members: Vec<Device>,
}

static NAMES: Mutex<Option<HashSet<&'static Data>>> = Mutex::new(None);

fn intern(data: Data) -> Device {
    let mut names = NAMES.lock().unwrap_or_else(|e| e.into_inner());
    let names = names.get_or_insert_with(HashSet::new);
    if let Some(found) = names.get(&data) {
        return Device(found);
    }
    // Device names are few and live as long as the process.
    let kept: &'static Data = Box::leak(Box::new(data));
    names.insert(kept);
    Device(kept)
}

impl Device {
    /// The device of that name; names are compared in upper case.
    pub fn new(name: &str) -> Device {
        let name = name.trim();
        if let Some(inner) = name.strip_prefix('(').and_then(|n| n.strip_suffix(')')) {
            let members: Vec<Device> = inner.split(',').map(Device::new).collect();
            return Device::tuple(&members);
        }
        intern(Data {
            name: name.to_uppercase(),
            members: Vec::new(),
        })
    }

    /// A tuple of devices, over which a buffer is sharded.
    pub fn tuple(members: &[Device]) -> Device {
        let names: Vec<&str> = members.iter().map(|d| d.name()).collect();
        intern(Data {
            name: format!("({})", names.join(",")),
            members: members.to_vec(),
        })
    }

    /// The name in upper case.
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// The devices of a tuple; empty for a single device.
    pub fn members(self) -> &'static [Device] {
        &self.0.members
    }
}

impl Hash for Device {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.0.name.hash(h);
    }
}
impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
