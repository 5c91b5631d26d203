//! Folders that only this user may write. Code that is run is read from such folders alone: whoever
//! can write one can have us run what he likes. Flows in: a path; flows out: the folder or the
//! opened file, or an error that says who else could change it.
//!
//! Invariant: a folder that passes is a real one (no link), belongs to this user, neither its group nor
//! others may write it, and nobody else may put another in its place or in that of a folder above it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// What a folder of temporary files is called in the end.
const TEMPORARY: &str = "tmp";

/// The folder, made if need be, by its real path.
///
/// # Errors
/// Where it cannot be made, or others may write it.
pub(crate) fn folder(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    make(&path)?;
    // What we make ourselves is no link: this folder, and the one that holds all of ours.
    for ours in [Some(&*path), path.parent()].into_iter().flatten() {
        if fs::symlink_metadata(ours)?.is_symlink() {
            return Err(refused(ours, "is a symbolic link"));
        }
    }
    let real = path.canonicalize()?;
    guarded(&real)?;
    Ok(real)
}

/// An object in a folder that passed.
///
/// # Errors
/// `NotFound` where there is none, others where it is a link or somebody else may have written it.
pub(crate) fn object(path: &Path) -> io::Result<File> {
    let data = fs::symlink_metadata(path)?;
    if !data.is_file() {
        return Err(refused(path, "is no regular file"));
    }
    ours_alone(path, &data)?;
    File::open(path)
}

/// A new file that this user alone may read and write.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// A folder for files on the way to somewhere else, which goes when this does. It is locked while this
/// process lives, so that others see when it is left behind.
pub(crate) struct Scratch {
    path: PathBuf,
    _lock: Option<File>,
}

impl Scratch {
    /// A new one in a folder that passed, or in the system's folder of temporary files.
    ///
    /// # Errors
    /// Where it cannot be made, or others could put another in its place.
    pub(crate) fn new(parent: &Path) -> io::Result<Scratch> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let parent = parent.canonicalize()?;
        // Between making and locking it another process may take it for left behind.
        for _ in 0..8 {
            let time = SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |d| d.as_nanos() as u64);
            let process = std::process::id();
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}{process}-{n:x}-{time:x}.{TEMPORARY}", prefix());
            let path = parent.join(name);
            make_one(&path)?;
            let lock = File::open(&path).ok();
            if let Some(f) = &lock {
                // Where folders cannot be locked nobody takes them for left behind either.
                let _ = f.try_lock();
            }
            if path.is_dir() {
                let made = Scratch { path, _lock: lock };
                return guarded(&made.path).map(|_| made);
            }
        }
        Err(io::Error::other("temporary folders disappear"))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Remove what processes that died left behind in a folder: theirs is what nobody holds a lock on.
pub(crate) fn sweep(parent: &Path) {
    let prefix = prefix();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let ours = name.to_string_lossy().starts_with(&prefix)
            && Path::new(&name).extension().is_some_and(|x| x == TEMPORARY);
        if ours {
            remove_if_left(&entry.path());
        }
    }
}

/// Remove a temporary folder of this user's that nobody holds a lock on.
pub(crate) fn remove_if_left(path: &Path) {
    let whole = fs::symlink_metadata(path)
        .ok()
        .filter(|data| data.is_dir() && ours_alone(path, data).is_ok());
    if whole.is_none() {
        return;
    }
    if let Ok(folder) = File::open(path)
        && folder.try_lock().is_ok()
    {
        let _ = fs::remove_dir_all(path);
    }
}

/// What the names of this user's temporary folders begin with.
fn prefix() -> String {
    format!("monoglot-{}-", user())
}

fn refused(path: &Path, why: &str) -> io::Error {
    let message = format!("{} {why}", path.display());
    io::Error::new(io::ErrorKind::PermissionDenied, message)
}

#[cfg(unix)]
mod system {
    use super::{io, refused};
    use std::fs::{self, DirBuilder, Metadata};
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    use std::path::Path;

    const GROUP_WRITES: u32 = 0o020;
    const OTHERS_WRITE: u32 = 0o002;
    /// In such a folder only the owner of an entry may rename or remove it.
    const STICKY: u32 = 0o1000;

    // SAFETY: as POSIX declares it; it takes nothing and cannot fail.
    unsafe extern "C" {
        safe fn geteuid() -> u32;
    }

    /// The user with whose rights this process runs.
    pub(crate) fn user() -> u32 {
        geteuid()
    }

    pub(super) fn make(path: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    pub(crate) fn make_one(path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(path)
    }

    /// Whether a file or folder is this user's, and nobody else may write it.
    pub(super) fn ours_alone(path: &Path, data: &Metadata) -> io::Result<()> {
        if data.uid() != user() {
            return Err(refused(path, "belongs to someone else"));
        }
        if data.mode() & (GROUP_WRITES | OTHERS_WRITE) != 0 {
            return Err(refused(path, "can be written by others (chmod go-w)"));
        }
        Ok(())
    }

    /// Whether a folder is this user's alone and stays in its place.
    pub(crate) fn guarded(path: &Path) -> io::Result<()> {
        ours_alone(path, &fs::symlink_metadata(path)?)?;
        let system = fs::symlink_metadata("/")?.uid();
        for above in path.ancestors().skip(1) {
            let data = fs::symlink_metadata(above)?;
            let mode = data.mode();
            let owner = data.uid();
            if owner != user() && owner != system {
                return Err(refused(above, "belongs to someone else"));
            }
            // A group of the user's own has the user's number, by convention.
            let group = mode & GROUP_WRITES != 0 && owner != system && data.gid() != owner;
            let others = mode & OTHERS_WRITE != 0;
            if (group || others) && mode & STICKY == 0 {
                return Err(refused(above, "can be written by others (chmod go-w)"));
            }
        }
        Ok(())
    }
}

/// Elsewhere a user's folders, that of temporary files too, are the user's alone.
#[cfg(not(unix))]
mod system {
    use super::io;
    use std::fs::{self, Metadata};
    use std::path::Path;

    pub(crate) fn user() -> u32 {
        0
    }

    pub(super) fn make(path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    pub(crate) fn make_one(path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    pub(super) fn ours_alone(_path: &Path, _data: &Metadata) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn guarded(_path: &Path) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) use system::{guarded, make_one, user};
use system::{make, ours_alone};
