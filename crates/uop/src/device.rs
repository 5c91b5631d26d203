//! Names of devices as plain data. A `Device` is one device or a tuple of devices; equal names are
//! stored once, so it is `Copy`. Flows in: a name as a person writes it; flows out: the one
//! `Device` of that name.
//!
//! Invariant: names are kept as long as the process, and only so many: what comes after `MOST` of them is
//! a device of no name, which cannot be opened.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Mutex;

/// A device such as `CPU`, `INTERP:GPU` or `CPU:1`, or a tuple of them, written `(CPU,CPU:1)`.
#[derive(Copy, Clone, Eq)]
pub struct Device(&'static Data);

#[derive(PartialEq, Eq, Hash)]
struct Data {
    name: String,
    members: Vec<Device>,
}

/// Names that are kept, and their bytes.
struct Names {
    known: HashSet<&'static Data>,
    bytes: usize,
}

static NAMES: Mutex<Option<Names>> = Mutex::new(None);
static NAMELESS: Data = Data {
    name: String::new(),
    members: Vec::new(),
};

/// Bytes of names that are kept at most: far more than a program of its own has, and little to lose to
/// texts that name a new device each.
const MOST: usize = 1 << 20;

fn intern(data: Data) -> Device {
    let mut names = NAMES.lock().unwrap_or_else(|e| e.into_inner());
    let names = names.get_or_insert_with(|| Names {
        known: HashSet::new(),
        bytes: 0,
    });
    if let Some(found) = names.known.get(&data) {
        return Device(found);
    }
    let bytes = size_of::<Data>() + data.name.len() + size_of_val(&data.members[..]);
    if names.bytes + bytes > MOST {
        return Device(&NAMELESS);
    }
    names.bytes += bytes;
    let kept: &'static Data = Box::leak(Box::new(data));
    names.known.insert(kept);
    Device(kept)
}

/// The name in upper case, its number without leading zeros, and without it where it is 0.
fn canonical(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut numbered = false;
    for (k, part) in name.split(':').enumerate() {
        let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        // The kind has one part or two.
        let number = digits && (k == 1 || k == 2) && !numbered;
        numbered |= number;
        let part = if number {
            part.trim_start_matches('0')
        } else {
            part
        };
        if number && part.is_empty() {
            continue;
        }
        if k > 0 {
            out.push(':');
        }
        out.push_str(&part.to_uppercase());
    }
    out
}

impl Device {
    /// The device of that name, `KIND[:N][:RENDERER[:ARCH]]`. Names are compared in upper case, and a number
    /// 0 is none: `cpu:0` is `CPU`.
    pub fn new(name: &str) -> Device {
        let name = name.trim();
        if let Some(inner) = name.strip_prefix('(').and_then(|n| n.strip_suffix(')')) {
            let members: Vec<Device> = inner.split(',').map(Device::new).collect();
            return Device::tuple(&members);
        }
        intern(Data {
            name: canonical(name),
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

    /// The name in upper case; empty for one that was too many to keep.
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// The devices of a tuple; empty for a single device.
    pub fn members(self) -> &'static [Device] {
        &self.0.members
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        // Equal names are stored once.
        std::ptr::eq(self.0, other.0)
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
