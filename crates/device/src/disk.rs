//! DISK: a file's bytes as read-only storage. Nothing is read until bytes are asked for; a file that
//! shrinks meanwhile is an error of that read, not a fault.

use crate::runtime::{Kernel, Runtime};
use crate::storage::{Memory, Storage};
use monoglot_uop::{Device, Error, ErrorKind, Result, Target, UOp};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

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
    Ok(Storage::of(
        Device::new("DISK"),
        bytes,
        Memory::File(file, shown.clone()),
    ))
}

/// The device of files: it holds data and runs nothing.
pub(crate) struct Disk {
    pub(crate) target: Target,
}

impl Runtime for Disk {
    fn target(&self) -> &Target {
        &self.target
    }

    fn about(&self) -> String {
        "files as read-only tensors".into()
    }

    fn alloc(&self, _bytes: usize) -> Result<Arc<Storage>> {
        Err(unsupported(
            "holds files that exist; copy to another device first",
        ))
    }

    fn compile(&self, _programs: &[UOp]) -> Result<Vec<Arc<dyn Kernel>>> {
        Err(unsupported("runs no kernels; copy to another device first"))
    }
}

fn unsupported(message: &str) -> Error {
    ErrorKind::Device {
        op: "DISK".into(),
        message: message.into(),
    }
    .into()
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
