//! Devices by name, `KIND[:N][:RENDERER[:ARCH]]`. A kind is an entry of a table, which others may
//! add to; each device is opened once and kept. Flows in: a device's name; flows out: the opened
//! device, or an error that says what is wrong with the name and which there are.

use crate::config::Config;
use crate::kind::missing;
pub use crate::kind::{Kind, Name};
use crate::runtime::Runtime;
use crate::{cpu, disk, interp, null};
use monoglot_uop::{Device, Result};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::sync::{Arc, LazyLock, Mutex, RwLock};

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

static KINDS: LazyLock<RwLock<Vec<Kind>>> = LazyLock::new(|| {
    RwLock::new(vec![
        cpu::KIND,
        interp::KIND,
        interp::GPU,
        null::KIND,
        disk::KIND,
    ])
});

/// A device that is open, for as long as the process lives.
type Opened = &'static Arc<dyn Runtime>;

static OPEN: Mutex<Option<FxHashMap<Device, Opened>>> = Mutex::new(None);

thread_local! {
    /// Devices that this thread has met: it finds them without a lock that all threads would take.
    static MET: RefCell<Vec<(Device, Opened)>> = const { RefCell::new(Vec::new()) };
}

/// Add a kind of device, in the place of one of its name. Devices that are open stay.
pub fn register(kind: Kind) {
    let mut kinds = KINDS.write().unwrap_or_else(|e| e.into_inner());
    kinds.retain(|k| k.name != kind.name);
    kinds.push(kind);
}

/// The device of that name, opened with the settings in force.
///
/// # Errors
/// `NoDevice`, which says what there is, for a name that is none or a device that is not there.
pub fn open(device: Device) -> Result<Opened> {
    met(device, || open_new(device, &Config::current()))
}

/// The device of that name, as `open` gives it; but where it only lacks what compiles for it, it is opened all
/// the same, and runs code that is there already.
///
/// # Errors
/// As `open`.
pub fn open_for_code(device: Device) -> Result<Opened> {
    met(device, || {
        Config::current().readable()?;
        let kinds = kinds();
        let (kind, name) = parse(device, &kinds)?;
        match kind.name == cpu::KIND.name {
            true => cpu::open_for_code(&name, &Config::current()),
            false => (kind.open)(&name, &Config::current()),
        }
    })
}

/// A device that is open; `new` opens it where it is not.
fn met(device: Device, new: impl FnOnce() -> Result<Arc<dyn Runtime>>) -> Result<Opened> {
    let known = |all: &RefCell<Vec<(Device, Opened)>>| {
        let all = all.borrow();
        all.iter()
            .find(|(d, _)| *d == device)
            .map(|(_, known)| *known)
    };
    if let Ok(Some(known)) = MET.try_with(known) {
        return Ok(known);
    }
    let mut open = OPEN.lock().unwrap_or_else(|e| e.into_inner());
    let open = open.get_or_insert_with(FxHashMap::default);
    let found = match open.get(&device) {
        Some(&found) => found,
        None => {
            let new: Opened = Box::leak(Box::new(new()?));
            open.insert(device, new);
            new
        }
    };
    // A thread that ends looks each time.
    let _ = MET.try_with(|all| all.borrow_mut().push((device, found)));
    Ok(found)
}

/// Every kind of device, in each of the ways to write its programs, with what one is on this machine.
pub fn list() -> Vec<Listed> {
    let config = Config::current();
    let about = |name: &str, renderers: &[&str]| {
        let device = Device::new(name);
        let opened = open_new(device, &config);
        Listed {
            name: device.name(),
            about: match &opened {
                Ok(runtime) => runtime.about(),
                Err(_) => format!("programs in {}", renderers.join(", ")),
            },
            missing: opened.err().map(|e| e.to_string()),
        }
    };
    let mut all = Vec::new();
    for kind in kinds() {
        all.push(about(kind.name, kind.renderers));
        for renderer in kind.renderers.iter().skip(1) {
            all.push(about(&format!("{}:{renderer}", kind.name), &[renderer]));
        }
    }
    all
}

fn kinds() -> Vec<Kind> {
    KINDS.read().unwrap_or_else(|e| e.into_inner()).clone()
}

fn open_new(device: Device, config: &Config) -> Result<Arc<dyn Runtime>> {
    config.readable()?;
    let kinds = kinds();
    let (kind, name) = parse(device, &kinds)?;
    (kind.open)(&name, config)
}

/// A name's kind and parts.
fn parse(device: Device, kinds: &[Kind]) -> Result<(&Kind, Name)> {
    let rest_of = |k: &Kind| match device.name().strip_prefix(k.name)? {
        "" => Some(""),
        rest => rest.strip_prefix(':'),
    };
    let fitting = kinds.iter().filter(|k| rest_of(k).is_some());
    let Some(kind) = fitting.max_by_key(|k| k.name.len()) else {
        let names: Vec<&str> = kinds.iter().map(|k| k.name).collect();
        let message = format!("there is no such device; there are {}", names.join(", "));
        return Err(missing(device, message));
    };
    let parts = rest_of(kind).unwrap_or_default().split(':');
    let mut parts = parts.filter(|part| !part.is_empty()).peekable();
    let number = parts.next_if(|part| part.bytes().all(|b| b.is_ascii_digit()));
    let number = number.map_or(Ok(0), str::parse).map_err(|_| {
        let message = "numbers of devices have 32 bits";
        missing(device, message)
    })?;
    let renderer = parts.next();
    let arch = parts.next();
    let more = parts.next();
    let known = renderer.is_none_or(|r| kind.renderers.contains(&r));
    if !known || more.is_some() {
        let written = match kind.renderers {
            [] => kind.name.to_string(),
            all => format!("{}[:N][:{}[:ARCH]]", kind.name, all.join("|")),
        };
        return Err(missing(device, format!("its name would be {written}")));
    }
    let name = Name {
        device,
        number,
        renderer,
        arch,
    };
    Ok((kind, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_apart() {
        let parts = |name: &str| {
            let kinds = kinds();
            let (kind, n) = parse(Device::new(name), &kinds).ok()?;
            Some((kind.name, n.number, n.renderer, n.arch))
        };
        assert_eq!(parts("cpu"), Some(("CPU", 0, None, None)));
        assert_eq!(parts("CPU:0"), parts("CPU"));
        assert_eq!(parts("CPU:1:C"), Some(("CPU", 1, Some("C"), None)));
        assert_eq!(
            parts("CPU:X86:x86-64-v2"),
            Some(("CPU", 0, Some("X86"), Some("X86-64-V2")))
        );
        assert_eq!(parts("NULL:X86"), Some(("NULL", 0, Some("X86"), None)));
        let v3 = Some("X86-64-V3");
        assert_eq!(parts("NULL:C:x86-64-v3"), Some(("NULL", 0, Some("C"), v3)));
        assert_eq!(
            parts("NULL:2:C:x86-64-v3"),
            Some(("NULL", 2, Some("C"), v3))
        );
        assert_eq!(parts("INTERP:GPU"), Some(("INTERP:GPU", 0, None, None)));
        assert_eq!(parts("INTERP:GPU:3"), Some(("INTERP:GPU", 3, None, None)));
        assert_eq!(parts("INTERP:3"), Some(("INTERP", 3, None, None)));
        for none in ["", "ABACUS", "CPUS", "CPU:RUST", "CPU:C:x:y", "INTERP:C"] {
            assert_eq!(parts(none), None, "{none}");
        }
        assert_eq!(parts("CPU:99999999999"), None);
    }

    #[test]
    fn zero_is_the_device_of_no_number() {
        assert_eq!(Device::new("CPU:0"), Device::new("cpu"));
        assert_eq!(Device::new("INTERP:GPU:0"), Device::new("INTERP:GPU"));
        assert_eq!(Device::new("CPU:01:C"), Device::new("CPU:1:C"));
        assert_eq!(Device::new("(CPU:0,CPU:1)"), Device::new("(CPU,CPU:1)"));
    }

    #[test]
    fn kinds_can_be_added() {
        fn closed(name: &Name, _: &Config) -> Result<Arc<dyn Runtime>> {
            Err(missing(name.device, "is closed today"))
        }
        register(Kind {
            name: "SHOP",
            renderers: &["BREAD"],
            open: closed,
        });
        let error = open(Device::new("SHOP:7:BREAD")).err().unwrap();
        assert_eq!(error.to_string(), "device SHOP:7:BREAD: is closed today");
    }
}
