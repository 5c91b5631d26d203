//! Settings, read from the environment once, at the edge, and handed down. Every setting can also
//! be set in code, before the first device is opened. Flows in: variables of the environment, or
//! values; flows out: the one `Config` that whatever is opened from then on gets. Always: no other
//! file reads a setting from the environment.

use crate::private;
use monoglot_uop::{Device, Error, Result};
use std::cell::RefCell;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

/// What a user can choose. `Config::default()` ignores the environment.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `DEV`: the default device, `DEVICE[:RENDERER[:ARCH]]`; None: CPU.
    pub device: Option<String>,
    /// `CHECK`: whether an index from data that is out of range is an error in `index`, `gather`, `scatter`
    /// and their like too, which else read 0 there and write nothing. It holds for what is written down
    /// from then on.
    pub check: bool,
    /// `CHECK=2`: as `CHECK=1`, and captured functions are traced again at every call and compared with what
    /// was captured.
    pub retrace: bool,
    /// `DEBUG`, 0 to 7: how much is told about what runs.
    pub debug: u8,
    /// `MONOGLOT_THREADS`: CPU threads of a kernel; None or 0: as many as the process may run on.
    pub threads: Option<usize>,
    /// `MONOGLOT_CORES`: cores that those threads run on; None: as the machine says.
    pub cores: Option<usize>,
    /// `MONOGLOT_CACHES`, such as `32K,1M,32M`: bytes of the L1 data cache, the L2 cache and the last
    /// level; None: as the machine says.
    pub caches: Option<[usize; 3]>,
    /// `MONOGLOT_CACHE`: the folder of compiled programs; None: the user's cache folder.
    pub cache_dir: Option<PathBuf>,
    /// Bytes of compiled programs that are kept on disk.
    pub cache_bytes: u64,
    /// `CC`: the C compiler and options of one's own; None: `cc`, `gcc` or `clang`, the first there is.
    pub compiler: Option<String>,
    /// `MONOGLOT_MEMORY`, such as `2G`: bytes of host memory that each device may have, in use and kept for
    /// reuse; None: as many as there are.
    pub memory_limit: Option<usize>,
    /// `MONOGLOT_KEPT`, such as `512M` or 0: bytes of freed storage that are kept for reuse; None: an eighth of
    /// the memory that the process may have.
    pub kept_bytes: Option<usize>,
    /// `PERF`: whether profilers are told where kernels in machine code lie, in `/tmp/perf-PID.map`.
    pub perf: bool,
    /// What the environment asks for that cannot be read, in words: no device is opened then.
    pub unread: Option<String>,
}

impl Default for Config {
    fn default() -> Config {
        Self {
            device: None,
            check: false,
            retrace: false,
            debug: 0,
            threads: None,
            cores: None,
            caches: None,
            cache_dir: None,
            cache_bytes: 1 << 29,
            compiler: None,
            memory_limit: None,
            kept_bytes: None,
            perf: false,
            unread: None,
        }
    }
}

static CURRENT: RwLock<Option<Config>> = RwLock::new(None);
/// Counts the settings that were put in force.
static EDITION: AtomicU64 = AtomicU64::new(0);

/// The settings in force, as one thread knows them.
#[derive(Clone)]
struct Known {
    edition: u64,
    config: Arc<Config>,
    device: Device,
}

thread_local! {
    /// Each thread has its own: what all threads would count owners of goes from core to core.
    static KNOWN: RefCell<Option<Known>> = const { RefCell::new(None) };
}

impl Known {
    fn now<T>(get: impl Fn(&Known) -> T) -> T {
        let edition = EDITION.load(Ordering::Acquire);
        let known = KNOWN.try_with(|known| {
            let known = known.borrow();
            let known = known.as_ref().filter(|k| k.edition == edition)?;
            Some(get(known))
        });
        if let Ok(Some(known)) = known {
            return known;
        }
        let config = Config::in_force();
        let known = Known {
            edition,
            device: Device::new(config.device_name()),
            config: Arc::new(config),
        };
        let got = get(&known);
        // A thread that ends asks each time.
        let _ = KNOWN.try_with(|slot| *slot.borrow_mut() = Some(known));
        got
    }
}

impl Config {
    /// The settings that the environment asks for.
    pub fn from_env() -> Config {
        Config::of(|name| std::env::var(name).ok())
    }

    /// The settings that these variables ask for.
    fn of(var: impl Fn(&str) -> Option<String>) -> Config {
        let var = &|name: &str| var(name).filter(|v| !v.trim().is_empty());
        let is_set = |name: &str| var(name).is_some_and(|v| v.trim() != "0");
        let mut unread = None;
        let debug = read("DEBUG", var, "0 to 7", &mut unread, number);
        let level = |text: &str| number::<u8>(text).filter(|n| *n <= 2);
        let check = read("CHECK", var, "0, 1 or 2", &mut unread, level);
        let threads = read("MONOGLOT_THREADS", var, "a number", &mut unread, number);
        let cores = read("MONOGLOT_CORES", var, "a number", &mut unread, number);
        let caches = "sizes of three caches, such as 32K,1M,32M";
        let caches = read("MONOGLOT_CACHES", var, caches, &mut unread, cache_list);
        let size = "a size such as 512M or 2G";
        let memory_limit = read("MONOGLOT_MEMORY", var, size, &mut unread, bytes);
        let kept = |v: &str| if v == "0" { Some(0) } else { bytes(v) };
        let kept_bytes = read("MONOGLOT_KEPT", var, size, &mut unread, kept);
        Config {
            device: var("DEV"),
            check: check.is_some_and(|n| n > 0),
            retrace: check.is_some_and(|n| n > 1),
            debug: debug.unwrap_or(0),
            threads,
            cores,
            caches,
            cache_dir: var("MONOGLOT_CACHE").map(PathBuf::from),
            compiler: var("CC"),
            memory_limit,
            kept_bytes,
            perf: is_set("PERF"),
            unread,
            ..Config::default()
        }
    }

    /// Whether all that the environment asks for could be read.
    ///
    /// # Errors
    /// `Argument` where something could not.
    pub(crate) fn readable(&self) -> Result<()> {
        match &self.unread {
            None => Ok(()),
            Some(message) => Err(Error::argument("the environment", message.as_str())),
        }
    }

    /// The settings in force: those set in code, or else the environment's as first read.
    pub fn current() -> Arc<Config> {
        Known::now(|known| known.config.clone())
    }

    /// The device that tensors are on unless told otherwise, by the settings in force.
    pub fn current_device() -> Device {
        Known::now(|known| known.device)
    }

    fn in_force() -> Config {
        if let Some(c) = &*CURRENT.read().unwrap_or_else(|e| e.into_inner()) {
            return c.clone();
        }
        let mut slot = CURRENT.write().unwrap_or_else(|e| e.into_inner());
        slot.get_or_insert_with(Config::from_env).clone()
    }

    /// Put these settings in force. Devices that are open keep the ones they were opened with.
    pub fn set(self) {
        *CURRENT.write().unwrap_or_else(|e| e.into_inner()) = Some(self);
        EDITION.fetch_add(1, Ordering::Release);
    }

    /// CPU threads of a kernel: those that are set, or as many as the process may run on by its affinity and
    /// its container's quota.
    pub fn thread_count(&self) -> usize {
        self.threads
            .filter(|&n| n > 0)
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
    }

    /// The folder of compiled programs: the one that is set, one in the user's cache folder, or, where there
    /// is none, one under the system's folder of temporary files with the user's number in its name.
    pub fn cache_folder(&self) -> PathBuf {
        let var = |name: &str| std::env::var_os(name);
        self.cache_dir
            .clone()
            .unwrap_or_else(|| default_folder(var))
    }

    /// The name of the device that tensors are on unless told otherwise.
    pub fn device_name(&self) -> &str {
        self.device.as_deref().unwrap_or("CPU")
    }
}

/// Three sizes with commas between.
fn cache_list(text: &str) -> Option<[usize; 3]> {
    let sizes: Option<Vec<usize>> = text.split(',').map(|size| bytes(size.trim())).collect();
    sizes?.try_into().ok()
}

/// The value of a variable that is set; where it cannot be read, what it should be is told.
fn read<T>(
    name: &str,
    var: impl Fn(&str) -> Option<String>,
    what: &str,
    unread: &mut Option<String>,
    of: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let text = var(name)?;
    let value = of(text.trim());
    if value.is_none() {
        unread.get_or_insert(format!("{name}={text} is not {what}"));
    }
    value
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// A size such as `48K` or `2M`, in bytes.
pub(crate) fn bytes(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    let bytes = digits.parse::<usize>().ok()?.checked_mul(scale)?;
    (bytes > 0).then_some(bytes)
}

fn default_folder(var: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let folder = |name: &str| var(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let user = folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|h| h.join(".cache")));
    let shared = || std::env::temp_dir().join(format!("monoglot-{}", private::user()));
    user.map_or_else(shared, |u| u.join("monoglot"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_caches_are_read() {
        assert_eq!(
            cache_list("48K, 2m,33554432"),
            Some([48 << 10, 2 << 20, 32 << 20])
        );
        for wrong in ["", "1K,2K", "1K,2K,3K,4K", "1K,2K,x", "0,1,2", "1K,2Q,3K"] {
            assert_eq!(cache_list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let of = |name: &'static str, text: &'static str| {
            Config::of(move |n| (n == name).then(|| text.into()))
        };
        for [name, text] in [
            ["MONOGLOT_THREADS", "abc"],
            ["MONOGLOT_THREADS", "-1"],
            ["MONOGLOT_CACHES", "32K,1M"],
            ["MONOGLOT_MEMORY", "2Q"],
            ["DEBUG", "much"],
            ["CHECK", "yes"],
            ["CHECK", "7"],
        ] {
            let config = of(name, text);
            let told = config.unread.expect("it is no number");
            assert!(told.starts_with(&format!("{name}={text} is not")), "{told}");
            let e = of(name, text).readable().expect_err("it is none");
            assert!(e.to_string().contains(&told), "{e}");
        }
        assert_eq!(of("MONOGLOT_THREADS", " 3 ").threads, Some(3));
        assert_eq!(of("MONOGLOT_THREADS", " ").unread, None);
        assert_eq!(of("MONOGLOT_KEPT", "0").kept_bytes, Some(0));
        assert!(of("CHECK", "2").retrace);
        assert!(!of("CHECK", "0").check);
    }

    #[test]
    fn a_folder_under_the_temporary_one_is_named_by_the_user() {
        let home = |name: &str| (name == "HOME").then(|| "/home/ada".into());
        assert_eq!(
            default_folder(home),
            PathBuf::from("/home/ada/.cache/monoglot")
        );
        let empty = |_: &str| Some(OsString::new());
        let name = format!("monoglot-{}", private::user());
        assert_eq!(default_folder(empty), std::env::temp_dir().join(name));
    }
}
