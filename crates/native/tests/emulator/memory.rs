//! Memory in regions. Flows in: reads and writes; flows out: their bytes. Always: what is not wholly inside one
//! region, or is written where it may be read alone, is an error.

use super::Result;

struct Region {
    start: u64,
    bytes: Vec<u8>,
    writable: bool,
}

/// The memory that a function can reach.
#[derive(Default)]
pub(crate) struct Memory {
    regions: Vec<Region>,
}

impl Memory {
    /// A region of these bytes.
    pub(crate) fn add(&mut self, start: u64, bytes: Vec<u8>, writable: bool) {
        self.regions.push(Region {
            start,
            bytes,
            writable,
        });
    }

    /// The bytes of the region that starts there, which is no more.
    pub(crate) fn remove(&mut self, start: u64) -> Vec<u8> {
        let at = self.regions.iter().position(|r| r.start == start);
        self.regions.swap_remove(at.expect("a region")).bytes
    }

    fn find(&mut self, address: u64, bytes: usize, writes: bool) -> Result<&mut [u8]> {
        let inside = |r: &&mut Region| {
            let offset = address.wrapping_sub(r.start);
            offset <= r.bytes.len() as u64 && r.bytes.len() as u64 - offset >= bytes as u64
        };
        let Some(region) = self.regions.iter_mut().find(inside) else {
            return Err(format!("{bytes} bytes at {address:#x} are no memory"));
        };
        if writes && !region.writable {
            return Err(format!(
                "{bytes} bytes at {address:#x} are not to be written"
            ));
        }
        let offset = (address - region.start) as usize;
        Ok(&mut region.bytes[offset..offset + bytes])
    }

    /// Bytes at an address.
    pub(crate) fn get(&mut self, address: u64, bytes: usize) -> Result<&[u8]> {
        Ok(self.find(address, bytes, false)?)
    }

    /// Put bytes at an address.
    pub(crate) fn put(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        self.find(address, bytes.len(), true)?
            .copy_from_slice(bytes);
        Ok(())
    }

    /// A number of so many bytes.
    pub(crate) fn read(&mut self, address: u64, bytes: usize) -> Result<u64> {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(self.get(address, bytes)?);
        Ok(u64::from_le_bytes(word))
    }

    /// Put a number of so many bytes.
    pub(crate) fn write(&mut self, address: u64, bytes: usize, value: u64) -> Result<()> {
        self.put(address, &value.to_le_bytes()[..bytes])
    }
}
