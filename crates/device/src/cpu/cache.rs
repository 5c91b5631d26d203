//! Compiled objects on disk, by key. One object holds several kernels; each kernel's key is a hard
//! link to it, so that whatever set of kernels is asked for next finds its own. Flows in: a
//! compiled object and the keys of its kernels, or a key; flows out: the kernel of that key as code
//! that can be called, or nothing.
//!
//! Invariants, for any number of processes: an entry appears by rename, whole; its last bytes are a
//! checksum of the rest, and what does not match is a miss and removed; entries used longest ago go
//! first when the folder is over its bound. What others may have written is not run (`private`). No
//! failure here stops work: at most it is warned of, once.

use crate::private::{self, Scratch};
use libloading::Library;
use rustc_hash::FxHashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, OnceLock};
use std::time::SystemTime;
use xxhash_rust::xxh3::xxh3_128;

/// `void kernel(void *const *bufs, const long long *vars, int tid)`.
pub(crate) type Entry = unsafe extern "C" fn(*const *mut u8, *const i64, i32);

/// A loaded kernel; its code lives as long as this does.
pub(crate) struct LoadedCode {
    pub(crate) entry: Entry,
    _library: Library,
}

/// A folder of compiled objects.
#[derive(Default)]
pub(crate) struct ObjectCache {
    named: PathBuf,
    /// The real folder, looked for when it is first wanted; None where it is of no use.
    folder: OnceLock<Option<PathBuf>>,
    limit: u64,
    /// Files that this process has checked: device, inode and time of change.
    checked: Mutex<FxHashSet<Identity>>,
    stores: AtomicUsize,
    warned: AtomicBool,
}

const MAGIC: &[u8; 8] = b"monoglot";
const TRAILER: usize = 24;

/// The name under which a kernel is exported.
pub(crate) fn symbol(key: u128) -> String {
    format!("mg_{key:032x}")
}

impl ObjectCache {
    pub(crate) fn new(named: PathBuf, limit: u64) -> ObjectCache {
        ObjectCache {
            named,
            limit,
            ..ObjectCache::default()
        }
    }

    /// The folder, made if need be; None (and a warning, once) where it is of no use.
    fn folder(&self) -> Option<&Path> {
        let find = || {
            let found = private::folder(&self.named);
            found.inspect_err(|e| self.warn(&e.to_string())).ok()
        };
        self.folder.get_or_init(find).as_deref()
    }

    /// A folder within it for files on their way; None (and a warning, once) where it cannot be written.
    pub(crate) fn scratch(&self) -> Option<Scratch> {
        let made = Scratch::new(self.folder()?);
        made.inspect_err(|e| self.warn(&e.to_string())).ok()
    }

    /// Say that the folder is of no use: once as an event, and once a process on standard error.
    pub(crate) fn warn(&self, why: &str) {
        static TOLD: Once = Once::new();
        if !self.warned.swap(true, Ordering::Relaxed) {
            let folder = self.named.display();
            let text =
                format!("the cache folder {folder} cannot be used, work goes on without it: {why}");
            tracing::warn!("{text}");
            // Most programs have nobody who listens to events.
            TOLD.call_once(|| drop(writeln!(io::stderr(), "monoglot: {text}")));
        }
    }

    /// Whether the warning was given.
    pub(crate) fn has_warned(&self) -> bool {
        self.warned.load(Ordering::Relaxed)
    }

    /// The kernel of that key, if a sound object has it.
    pub(crate) fn load(&self, key: u128) -> Option<LoadedCode> {
        let path = entry(self.folder()?, key);
        let mut file = match private::object(&path) {
            Ok(file) => file,
            Err(e) => {
                if e.kind() != io::ErrorKind::NotFound {
                    self.warn(&e.to_string());
                }
                return None;
            }
        };
        let code = self.sound(&mut file).then(|| load(&path, key)).flatten();
        if code.is_none() {
            let _ = fs::remove_file(&path);
        }
        code
    }

    /// Whether the checksum fits. A file is read once a process, and marked as used then.
    fn sound(&self, file: &mut File) -> bool {
        let Ok(data) = file.metadata() else {
            return false;
        };
        let id = identity(&data);
        let mut checked = self.checked.lock().unwrap_or_else(|e| e.into_inner());
        if id.is_some_and(|id| checked.contains(&id)) {
            return true;
        }
        let mut bytes = Vec::new();
        if file.read_to_end(&mut bytes).is_err() || bytes.len() < TRAILER {
            return false;
        }
        let (body, trailer) = bytes.split_at(bytes.len() - TRAILER);
        let fits = trailer[..8] == *MAGIC && trailer[8..] == xxh3_128(body).to_le_bytes();
        if fits {
            let _ = file.set_modified(SystemTime::now());
            checked.extend(file.metadata().ok().as_ref().and_then(identity));
        }
        fits
    }

    /// Keep an object under the keys of its kernels. The object may lie anywhere; it stays there.
    pub(crate) fn store(&self, object: &Path, keys: &[u128]) {
        let (Some(folder), Some(scratch)) = (self.folder(), self.scratch()) else {
            return;
        };
        if let Err(e) = store(object, keys, folder, scratch.path()) {
            self.warn(&e.to_string());
        }
        // Looking through the folder costs milliseconds: not every time, but often enough.
        let before = self.stores.fetch_add(1, Ordering::Relaxed);
        if before.is_multiple_of(16) {
            self.trim(folder);
        }
    }

    /// Remove what was used longest ago until the folder is within its bound, and what a process that
    /// died left behind.
    fn trim(&self, folder: &Path) {
        private::sweep(folder);
        let Ok(entries) = fs::read_dir(folder) else {
            return;
        };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        let mut total = 0u64;
        let mut seen = FxHashSet::default();
        for e in entries.flatten() {
            let Ok(data) = e.metadata() else { continue };
            let used = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let path = e.path();
            if path.extension().is_some_and(|x| x == "so") {
                // Links to one object count once.
                let first = identity(&data).is_none_or(|i| seen.insert(i));
                let bytes = if first { data.len() } else { 0 };
                total += bytes;
                files.push((used, bytes, path));
            }
        }
        if total <= self.limit {
            return;
        }
        files.sort();
        for (_, bytes, path) in files {
            if total <= self.limit / 4 * 3 {
                break;
            }
            if fs::remove_file(&path).is_ok() {
                total = total.saturating_sub(bytes);
            }
        }
    }
}

/// Where the kernel of that key lies.
fn entry(folder: &Path, key: u128) -> PathBuf {
    folder.join(format!("{key:032x}.so"))
}

/// Put an object into the folder, under each of its keys, by way of `scratch`.
fn store(object: &Path, keys: &[u128], folder: &Path, scratch: &Path) -> io::Result<()> {
    let mut bytes = fs::read(object)?;
    let sum = xxh3_128(&bytes);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&sum.to_le_bytes());
    let whole = scratch.join("whole");
    let link = scratch.join("link");
    private::create(&whole)?.write_all(&bytes)?;
    for &key in keys {
        // Where there are no hard links, a copy.
        fs::hard_link(&whole, &link).or_else(|_| fs::copy(&whole, &link).map(|_| ()))?;
        fs::rename(&link, entry(folder, key))?;
    }
    Ok(())
}

/// Load the kernel of that key from an object, where all that it calls is there: found missing in a call, that would end
/// the process.
pub(crate) fn load(path: &Path, key: u128) -> Option<LoadedCode> {
    // SAFETY: the object was compiled from our own source and is whole (checksum, or just written);
    // it has no initialisers.
    let library = unsafe { library(path) }.ok()?;
    // SAFETY: under this name our source defines a function of this type.
    let entry = *unsafe { library.get::<Entry>(symbol(key).as_bytes()) }.ok()?;
    Some(LoadedCode {
        entry,
        _library: library,
    })
}

/// An object, where all that it calls is there.
///
/// # Safety
/// As `Library::new`.
#[cfg(unix)]
unsafe fn library(path: &Path) -> Result<Library, libloading::Error> {
    use libloading::os::unix;
    // SAFETY: the caller's.
    let library = unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_LOCAL) };
    library.map(Library::from)
}

#[cfg(not(unix))]
unsafe fn library(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: the caller's.
    unsafe { Library::new(path) }
}

/// Device, inode, seconds and nanoseconds of the last change, and size.
type Identity = (u64, u64, i64, i64, u64);

/// What is the same for all links to a file until it changes, where the system has such.
fn identity(data: &fs::Metadata) -> Option<Identity> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        Some((
            data.dev(),
            data.ino(),
            data.mtime(),
            data.mtime_nsec(),
            data.size(),
        ))
    }
    #[cfg(not(unix))]
    None
}
