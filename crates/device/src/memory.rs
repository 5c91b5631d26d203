//! What a device keeps bytes in, as the storage of every device is made of it. Flows in: places and bytes;
//! flows out: bytes, or an error where there are none. Always: only `Storage` asks, and it keeps order.

use monoglot_uop::{Error, ErrorKind, Result};
use std::any::Any;
use std::ptr::NonNull;

/// What a device keeps bytes in. Only `Storage` calls it: within bounds, and never while somebody else
/// writes; nor reads, while it writes.
///
/// # Safety
/// A pointer that `host` gives is to `bytes()` initialised bytes that stay there as long as the memory
/// lives, and that nothing else reads or writes.
pub unsafe trait Memory: Any + Send + Sync {
    /// Its length.
    fn bytes(&self) -> usize;

    /// Where the bytes are, where the host can reach them.
    fn host(&self) -> Option<NonNull<u8>> {
        None
    }

    /// Copy bytes to the host, once all that writes them has run. Asked where `host` gives nothing.
    ///
    /// # Errors
    /// Where there is nothing to read.
    fn read(&self, _offset: usize, _out: &mut [u8]) -> Result<()> {
        Err(no_data("holds no data"))
    }

    /// Copy bytes from the host, once all that uses them has run. Asked where `host` gives nothing.
    ///
    /// # Errors
    /// Where nothing can be written.
    fn write(&self, _offset: usize, _bytes: &[u8]) -> Result<()> {
        Err(no_data("holds no data"))
    }
}

/// The error of memory that cannot be read or written.
pub(crate) fn no_data(message: &str) -> Error {
    ErrorKind::Run {
        message: message.into(),
    }
    .into()
}
