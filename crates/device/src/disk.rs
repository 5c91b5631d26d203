//! DISK: a file's bytes as read-only storage. Nothing is read until bytes are asked for; a file
//! that shrinks meanwhile is an error of that read, not a fault. Flows in: a path, then places of
//! bytes; flows out: storage, then the bytes.

use crate::config::Config;
use crate::interp;
use crate::kernel::Kernel;
use crate::kind::{Kind, Name};
use crate::memory::{Memory, no_data};
use crate::queue::Queue;
use crate::runtime::Runtime;
use crate::storage::Storage;
use monoglot_uop::{Device, Error, ErrorKind, Program, Result, Target};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// The kind, for the registry.
pub(crate) const KIND: Kind = Kind {
    name: "DISK",
    renderers: &[],
    open,
};

fn open(name: &Name, config: &Config) -> Result<Arc<dyn Runtime>> {
    let target = interp::target(name.device, config);
    Ok(Arc::new(Disk { target }))
}

/// A file, and what it is called.
struct Bytes {
    file: File,
    path: String,
    bytes: usize,
}

// SAFETY: the host cannot reach the bytes but by reading them.
unsafe impl Memory for Bytes {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        read_at(&self.file, out, offset as u64).map_err(|e| {
            ErrorKind::Io {
                path: self.path.clone(),
                message: e.to_string(),
            }
            .into()
        })
    }

    fn write(&self, _offset: usize, _bytes: &[u8]) -> Result<()> {
        let message = format!("{} is read-only, and no kernel runs on DISK", self.path);
        Err(no_data(&message))
    }
}

/// The bytes of a file, as storage on DISK that is read lazily.
///
/// # Errors
/// `Io` where the path is no file or cannot be read.
pub fn open_file(path: impl AsRef<Path>) -> Result<Arc<Storage>> {
    let path = path.as_ref();
    let shown = path.display().to_string();
    let fail = |message: String| {
        Error::new(ErrorKind::Io {
            path: shown.clone(),
            message,
        })
    };
    let file = File::open(path).map_err(|e| fail(e.to_string()))?;
    let data = file.metadata().map_err(|e| fail(e.to_string()))?;
    if !data.is_file() {
        return Err(fail("is not a regular file".into()));
    }
    let bytes =
        usize::try_from(data.len()).map_err(|_| fail(format!("has {} bytes", data.len())))?;
    let path = shown.clone();
    let memory = Bytes { file, path, bytes };
    Ok(Storage::of(Device::new("DISK"), memory))
}

/// The device of files: it holds data and runs nothing.
struct Disk {
    target: Target,
}

impl Runtime for Disk {
    fn target(&self) -> &Target {
        &self.target
    }

    fn about(&self) -> String {
        "files as read-only tensors".into()
    }

    fn alloc_within(&self, bytes: usize, _used: usize) -> Result<Arc<Storage>> {
        self.alloc(bytes)
    }

    fn alloc(&self, _bytes: usize) -> Result<Arc<Storage>> {
        Err(unsupported(
            "holds files that exist; copy to another device first",
        ))
    }

    fn compile(&self, _programs: &[Program]) -> Result<Vec<Arc<dyn Kernel>>> {
        Err(unsupported("runs no kernels; copy to another device first"))
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        Err(unsupported("runs nothing; copy to another device first"))
    }
}

fn unsupported(message: &str) -> Error {
    ErrorKind::Device {
        op: "DISK".into(),
        message: message.into(),
    }
    .into()
}

#[cfg(unix)]
fn read_at(file: &File, out: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

#[cfg(not(unix))]
fn read_at(mut file: &File, out: &mut [u8], offset: u64) -> std::io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_where_it_is_asked() {
        let path = std::env::temp_dir().join(format!("monoglot-disk-{}", std::process::id()));
        std::fs::write(&path, b"0123456789").unwrap();
        let s = open_file(&path).unwrap();
        let mut out = [0; 4];
        s.slice(2, 6).unwrap().read(1, &mut out).unwrap();
        assert_eq!(&out, b"3456");
        assert!(matches!(
            s.write(0, b"x").unwrap_err().kind(),
            ErrorKind::Run { .. }
        ));
        std::fs::write(&path, b"0").unwrap();
        assert!(matches!(
            s.read(0, &mut out).unwrap_err().kind(),
            ErrorKind::Io { .. }
        ));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(
            open_file(&path).unwrap_err().kind(),
            ErrorKind::Io { .. }
        ));
        assert!(matches!(
            open_file(std::env::temp_dir()).unwrap_err().kind(),
            ErrorKind::Io { .. }
        ));
    }
}
