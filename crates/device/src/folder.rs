//! Folders of files that belong together, such as those of a saved program. Flows in: names and bytes; flows
//! out: the same bytes, or an error that names the file and what would be right.
//!
//! Invariants: a folder appears whole, in place of the one before, or not at all. What is read is a regular
//! file in the folder itself (no link is followed), of the length and the digest that were asked for. Code is
//! given out as `TrustedCode` alone, from a folder and files that nobody else may write (`private`).

use crate::private;
use monoglot_uop::{Error, ErrorKind, Result};
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// What a file's bytes are known by. The digest finds damage; it keeps nobody from writing another file
/// that fits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// How many there are.
    pub bytes: u64,
    /// XXH3 of them, of 128 bits.
    pub digest: u128,
}

impl Sum {
    /// That of these bytes.
    pub fn of(bytes: &[u8]) -> Sum {
        Sum {
            bytes: bytes.len() as u64,
            digest: xxh3_128(bytes),
        }
    }
}

/// A folder that is being written, beside the one whose place it takes.
pub struct NewFolder {
    target: PathBuf,
    path: PathBuf,
    /// Held while this process writes it, so that others see when it is left behind.
    _lock: Option<File>,
}

/// A folder that is read.
pub struct Folder {
    path: PathBuf,
    refused: Option<String>,
}

/// A file that is read piece by piece.
pub struct Pieces {
    path: String,
    file: File,
    hash: Xxh3,
    sum: Sum,
    left: u64,
}

/// Code of kernels that this user alone may have written, and that is whole.
pub struct TrustedCode {
    /// What launches of the kernels take (`code`).
    pub(crate) launches: Vec<u8>,
    /// Machine code, or a shared object.
    pub(crate) object: Vec<u8>,
    /// The file that the latter is.
    pub(crate) path: PathBuf,
}

/// What names of folders that are being written end with.
const UNFINISHED: &str = ".unfinished";

impl NewFolder {
    /// A new one for `target`, which does not exist, is empty, or has a file of the name `mark`, as folders of
    /// this kind have, and nothing but files whose names `is_own` says such folders have.
    ///
    /// # Errors
    /// `Io` where the folder around it is missing or cannot be written, or where `target` is something else.
    pub fn beside(target: &Path, mark: &str, is_own: impl Fn(&str) -> bool) -> Result<NewFolder> {
        let fail = |message: String| failed(target, message);
        if target.as_os_str().is_empty() {
            return Err(failed(Path::new("\"\""), "is no name of a folder".into()));
        }
        let target = match fs::symlink_metadata(target) {
            // A link stays: the folder that it leads to is replaced.
            Ok(data) if data.is_symlink() => target.canonicalize(),
            _ => std::path::absolute(target),
        }
        .map_err(|e| fail(e.to_string()))?;
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(fail("is no name of a folder that can be written".into()));
        };
        if std::env::current_dir().is_ok_and(|here| here == target) {
            let message =
                "is the folder that this process works in, which would be gone; name one in it";
            return Err(fail(message.into()));
        }
        if !parent.is_dir() {
            let message = format!("there is no folder {} for it to be in", parent.display());
            return Err(fail(message));
        }
        match fs::symlink_metadata(&target) {
            Ok(data) if !data.is_dir() => {
                let message = "exists and is no folder; name another, or remove it";
                return Err(fail(message.into()));
            }
            Ok(_) => {
                let entries = fs::read_dir(&target).map_err(|e| fail(e.to_string()))?;
                let names = entries.flatten().map(|e| e.file_name());
                let names: Vec<String> = names.map(|n| n.to_string_lossy().into()).collect();
                if !names.is_empty() && !target.join(mark).is_file() {
                    let message = format!("holds other files and no {mark}; name a new folder");
                    return Err(fail(message));
                }
                if let Some(other) = names.iter().find(|n| !is_own(n)) {
                    let message = format!("holds {other}, which would be lost; name a new folder");
                    return Err(fail(message));
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(fail(e.to_string())),
        }
        let prefix = format!(".{}.", name.to_string_lossy());
        sweep(parent, &prefix);
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let path = parent.join(format!("{prefix}{process}-{number}{UNFINISHED}"));
        private::make_one(&path).map_err(|e| failed(&path, e.to_string()))?;
        let lock = File::open(&path).ok();
        if let Some(file) = &lock {
            // Where folders cannot be locked nobody takes them for left behind either.
            let _ = file.try_lock();
        }
        Ok(NewFolder {
            target,
            path,
            _lock: lock,
        })
    }

    /// A file of it, which `fill` writes.
    ///
    /// # Errors
    /// `Io` where it cannot be written, and those of `fill`.
    pub fn write(
        &self,
        name: &str,
        fill: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>,
    ) -> Result<Sum> {
        let path = self.path.join(name);
        let fail = |e: io::Error| failed(&path, e.to_string());
        let mut file = BufWriter::new(private::create(&path).map_err(fail)?);
        let mut hash = Xxh3::new();
        let mut bytes = 0;
        fill(&mut |part| {
            hash.update(part);
            bytes += part.len() as u64;
            file.write_all(part).map_err(fail)
        })?;
        let file = file.into_inner().map_err(|e| fail(e.into_error()))?;
        file.sync_all().map_err(fail)?;
        Ok(Sum {
            bytes,
            digest: hash.digest128(),
        })
    }

    /// Put it in its place, in one step where the system can.
    ///
    /// # Errors
    /// `Io` where that is not possible: then what was there before is there still.
    pub fn finish(self) -> Result<()> {
        let fail = |e: io::Error| failed(&self.target, e.to_string());
        if let Ok(folder) = File::open(&self.path) {
            let _ = folder.sync_all();
        }
        match self.target.exists() {
            false => fs::rename(&self.path, &self.target).map_err(fail)?,
            // The one before has our name then, under which it is removed.
            true => exchange(&self.path, &self.target).map_err(fail)?,
        }
        if let Some(Ok(parent)) = self.target.parent().map(File::open) {
            let _ = parent.sync_all();
        }
        Ok(())
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl Folder {
    /// The folder there.
    ///
    /// # Errors
    /// `Io` where there is none.
    pub fn open(path: &Path) -> Result<Folder> {
        let fail = |message: String| failed(path, message);
        let data = fs::metadata(path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => fail("there is no such folder".into()),
            _ => fail(e.to_string()),
        })?;
        if !data.is_dir() {
            return Err(fail("is no folder".into()));
        }
        let real = path.canonicalize().map_err(|e| fail(e.to_string()))?;
        let guarded = match fs::symlink_metadata(path) {
            Ok(data) if data.is_symlink() => Err(format!("{} is a link", path.display())),
            _ => private::guarded(&real).map_err(|e| e.to_string()),
        };
        Ok(Folder {
            path: real,
            refused: guarded.err(),
        })
    }

    /// Why code in it is not run; None where this user alone may write it.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// How a file of it is called in errors.
    pub fn named(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    /// The error of what a file says.
    pub fn wrong(&self, name: &str, message: impl Into<String>) -> Error {
        let what = self.named(name);
        let message = message.into();
        ErrorKind::Format { what, message }.into()
    }

    /// All of a file of at most so many bytes.
    ///
    /// # Errors
    /// `Io` where it cannot be read, `Format` where it is longer.
    pub fn read(&self, name: &str, most: u64) -> Result<Vec<u8>> {
        let (mut file, bytes) = self.file(name)?;
        if bytes > most {
            let message = format!("has {bytes} bytes; it may have {most}");
            return Err(self.wrong(name, message));
        }
        let mut out = Vec::with_capacity(bytes as usize);
        let path = self.path.join(name);
        let read = (&mut file).take(bytes).read_to_end(&mut out);
        read.map_err(|e| failed(&path, e.to_string()))?;
        Ok(out)
    }

    /// All of a file that is as it was when it was written.
    ///
    /// # Errors
    /// `Io` where it cannot be read, `Format` where it is another.
    pub fn read_whole(&self, name: &str, sum: &Sum) -> Result<Vec<u8>> {
        let bytes = self.read(name, sum.bytes)?;
        if Sum::of(&bytes) != *sum {
            return Err(damaged(&self.named(name), bytes.len() as u64, sum));
        }
        Ok(bytes)
    }

    /// A file that is read piece by piece, and is as it was when it was written.
    ///
    /// # Errors
    /// `Io` where it cannot be opened, `Format` where it has another length.
    pub fn pieces(&self, name: &str, sum: &Sum) -> Result<Pieces> {
        let (file, bytes) = self.file(name)?;
        let path = self.named(name);
        if bytes != sum.bytes {
            return Err(damaged(&path, bytes, sum));
        }
        Ok(Pieces {
            path,
            file,
            hash: Xxh3::new(),
            sum: *sum,
            left: bytes,
        })
    }

    /// Code that lies in two files of it. It may be run only where the folder is not `refused`.
    ///
    /// # Errors
    /// `Io` where a file cannot be read or others may have written it, `Format` where it is another.
    pub fn trusted(&self, launches: (&str, &Sum), object: (&str, &Sum)) -> Result<TrustedCode> {
        if let Some(why) = &self.refused {
            return Err(failed(&self.path, format!("code here is not run: {why}")));
        }
        for (name, _) in [launches, object] {
            let path = self.path.join(name);
            private::object(&path).map_err(|e| failed(&path, e.to_string()))?;
        }
        Ok(TrustedCode {
            launches: self.read_whole(launches.0, launches.1)?,
            object: self.read_whole(object.0, object.1)?,
            path: self.path.join(object.0),
        })
    }

    /// A regular file of it, and how long it is.
    fn file(&self, name: &str) -> Result<(File, u64)> {
        let path = self.path.join(name);
        let fail = |message: String| failed(&path, message);
        let found = fs::symlink_metadata(&path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => fail("is missing from the folder".into()),
            _ => fail(e.to_string()),
        })?;
        if !found.is_file() {
            return Err(fail("is no regular file; links are not followed".into()));
        }
        let mut options = File::options();
        options.read(true);
        // What is put in its place meanwhile is neither followed nor waited for.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(
            &mut options,
            libc::O_NOFOLLOW | libc::O_NONBLOCK,
        );
        let file = options.open(&path).map_err(|e| fail(e.to_string()))?;
        let data = file.metadata().map_err(|e| fail(e.to_string()))?;
        if !data.is_file() {
            return Err(fail("is no regular file".into()));
        }
        Ok((file, data.len()))
    }
}

impl Pieces {
    /// The next bytes of it.
    ///
    /// # Errors
    /// `Io` where they cannot be read, `Format` where there are not so many left.
    pub fn next(&mut self, out: &mut [u8]) -> Result<()> {
        if out.len() as u64 > self.left {
            return Err(damaged(&self.path, self.sum.bytes - self.left, &self.sum));
        }
        self.file.read_exact(out).map_err(|e| {
            let message = e.to_string();
            let path = self.path.clone();
            Error::new(ErrorKind::Io { path, message })
        })?;
        self.left -= out.len() as u64;
        self.hash.update(out);
        Ok(())
    }

    /// Bytes that were not asked for yet.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// All was read: whether it is what was written.
    ///
    /// # Errors
    /// `Format` where it is not.
    pub fn finish(self) -> Result<()> {
        match self.left == 0 && self.hash.digest128() == self.sum.digest {
            true => Ok(()),
            false => Err(damaged(&self.path, self.sum.bytes, &self.sum)),
        }
    }
}

fn failed(path: &Path, message: String) -> Error {
    let path = path.display().to_string();
    ErrorKind::Io { path, message }.into()
}

/// The error of a file that is not what was written.
fn damaged(path: &str, bytes: u64, sum: &Sum) -> Error {
    let message = match bytes == sum.bytes {
        true => "is damaged: its digest is not the one that the program was saved with".into(),
        false => format!(
            "is damaged: it has {bytes} bytes, and was saved with {}",
            sum.bytes
        ),
    };
    let what = path.to_string();
    ErrorKind::Format { what, message }.into()
}

/// Remove what processes that died left behind.
fn sweep(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(prefix) && name.ends_with(UNFINISHED) {
            private::remove_if_left(&entry.path());
        }
    }
}

/// Have two folders change places; where the system cannot do that at once, one after the other.
fn exchange(new: &Path, old: &Path) -> io::Result<()> {
    if at_once(new, old)? {
        return Ok(());
    }
    let aside = new.with_extension("before");
    fs::rename(old, &aside)?;
    if let Err(e) = fs::rename(new, old) {
        fs::rename(&aside, old)?;
        return Err(e);
    }
    fs::remove_dir_all(&aside)
}

/// Whether the system had two folders change places.
#[cfg(target_os = "linux")]
fn at_once(new: &Path, old: &Path) -> io::Result<bool> {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    let [new, old] = [new, old].map(|path| CString::new(path.as_os_str().as_bytes()));
    let new = new?;
    let old = old?;
    // SAFETY: both are paths that end with a zero, and live as long as the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            new.as_ptr(),
            libc::AT_FDCWD,
            old.as_ptr(),
            libc::RENAME_EXCHANGE,
        )
    };
    if done == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EINVAL) => Ok(false),
        _ => Err(error),
    }
}

#[cfg(not(target_os = "linux"))]
fn at_once(_new: &Path, _old: &Path) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> PathBuf {
        let process = std::process::id();
        let path = std::env::temp_dir().join(format!("monoglot-folder-{process}-{name}"));
        let _ = fs::remove_dir_all(&path);
        path
    }

    fn beside(target: &Path) -> Result<NewFolder> {
        NewFolder::beside(target, "mark", |name| name == "mark")
    }

    fn save(target: &Path, text: &[u8]) -> Sum {
        let new = beside(target).unwrap();
        let sum = new.write("mark", |put| put(text)).unwrap();
        new.finish().unwrap();
        sum
    }

    #[test]
    fn a_folder_takes_the_place_of_the_one_before() {
        let target = place("twice");
        let first = save(&target, b"one");
        assert_eq!(first.bytes, 3);
        let second = save(&target, b"second");
        let folder = Folder::open(&target).unwrap();
        assert_eq!(folder.read_whole("mark", &second).unwrap(), b"second");
        assert!(folder.read_whole("mark", &first).is_err());
        // One that is given up leaves what was there, and nothing else.
        let new = beside(&target).unwrap();
        new.write("mark", |put| put(b"third")).unwrap();
        drop(new);
        assert_eq!(folder.read_whole("mark", &second).unwrap(), b"second");
        let name = target.file_name().unwrap().to_string_lossy().to_string();
        let beside = fs::read_dir(target.parent().unwrap()).unwrap();
        let left = beside.flatten().map(|e| e.file_name());
        let left = left.filter(|n| n.to_string_lossy().contains(&name));
        assert_eq!(left.count(), 1);
        fs::remove_dir_all(&target).unwrap();
    }

    #[test]
    fn what_is_no_such_folder_is_not_replaced() {
        let target = place("other");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("thesis.tex"), "years of work").unwrap();
        let error = beside(&target).err().unwrap();
        assert!(error.to_string().contains("holds other files"), "{error}");
        assert!(beside(&target.join("thesis.tex")).is_err());
        assert!(beside(&target.join("a/b")).is_err());
        // Nor is one in which somebody put something of his own.
        fs::write(target.join("mark"), "one").unwrap();
        let error = beside(&target).err().unwrap();
        assert!(error.to_string().contains("thesis.tex"), "{error}");
        assert!(beside(Path::new("/")).is_err());
        fs::remove_dir_all(&target).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn links_and_folders_of_others_are_not_trusted() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let target = place("links");
        let sum = save(&target, b"code");
        let folder = Folder::open(&target).unwrap();
        assert_eq!(folder.refused(), None);
        assert!(folder.trusted(("mark", &sum), ("mark", &sum)).is_ok());
        symlink(target.join("mark"), target.join("link")).unwrap();
        let error = folder.read("link", 10).unwrap_err();
        assert!(error.to_string().contains("no regular file"), "{error}");
        assert!(folder.read("mark", 3).is_err());
        assert!(folder.read("none", 3).is_err());
        fs::set_permissions(target.join("mark"), PermissionsExt::from_mode(0o666)).unwrap();
        assert!(folder.trusted(("mark", &sum), ("mark", &sum)).is_err());
        fs::set_permissions(&target, PermissionsExt::from_mode(0o777)).unwrap();
        let folder = Folder::open(&target).unwrap();
        assert!(folder.refused().is_some_and(|w| w.contains("others")));
        assert!(folder.read_whole("mark", &sum).is_ok());
        fs::remove_dir_all(&target).unwrap();
    }

    #[test]
    fn pieces_are_checked_at_their_end() {
        let target = place("pieces");
        let sum = save(&target, b"0123456789");
        let folder = Folder::open(&target).unwrap();
        let mut out = [0; 4];
        let mut pieces = folder.pieces("mark", &sum).unwrap();
        pieces.next(&mut out).unwrap();
        pieces.next(&mut out).unwrap();
        assert_eq!((&out, pieces.left()), (b"4567", 2));
        assert!(pieces.next(&mut out).is_err());
        pieces.next(&mut out[..2]).unwrap();
        pieces.finish().unwrap();
        fs::write(target.join("mark"), b"0123456798").unwrap();
        let mut pieces = folder.pieces("mark", &sum).unwrap();
        pieces.next(&mut [0; 10]).unwrap();
        assert!(pieces.finish().is_err());
        fs::remove_dir_all(&target).unwrap();
    }
}
