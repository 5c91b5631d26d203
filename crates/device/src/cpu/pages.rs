//! Memory that holds machine code. Flows in: the bytes of functions; flows out: the same at multiples of 64 in
//! one mapping, which can be called. Invariant: bytes are written before they can be executed, and what can be
//! executed is never written again; the mapping goes when the last of its functions does.

use memmap2::{Mmap, MmapMut};
use std::io;
use std::sync::Arc;

/// A function in memory that can be executed.
pub(super) struct Function {
    pages: Arc<Mmap>,
    offset: usize,
    bytes: usize,
}

/// What a function starts at a multiple of: a cache line, and its constants lie as they were laid out.
const ALIGNMENT: usize = 64;

/// What is between functions: a breakpoint.
const GAP: u8 = 0xcc;

impl Function {
    /// Its first byte.
    pub(super) fn start(&self) -> *const u8 {
        self.pages[self.offset..].as_ptr()
    }

    /// Bytes of it, constants among them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Put functions into one mapping, in their order.
///
/// # Errors
/// Where the system gives no memory, or none that can be executed.
pub(super) fn load(codes: &[&[u8]]) -> io::Result<Vec<Function>> {
    let mut offsets = Vec::with_capacity(codes.len());
    let mut total = 0usize;
    for code in codes {
        offsets.push(total);
        total += code.len().max(1).next_multiple_of(ALIGNMENT);
    }
    if total == 0 {
        return Ok(Vec::new());
    }
    let mut written = MmapMut::map_anon(total)?;
    written.fill(GAP);
    for (code, &offset) in codes.iter().zip(&offsets) {
        written[offset..offset + code.len()].copy_from_slice(code);
    }
    let pages = Arc::new(written.make_exec()?);
    let function = |(code, offset): (&&[u8], usize)| Function {
        pages: pages.clone(),
        offset,
        bytes: code.len(),
    };
    Ok(codes.iter().zip(offsets).map(function).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_share_pages_until_the_last_is_gone() {
        // mov eax, 7; ret; and the same of 8.
        let seven = [0xb8, 7, 0, 0, 0, 0xc3];
        let eight = [0xb8, 8, 0, 0, 0, 0xc3];
        let functions = load(&[&seven, &eight]).unwrap();
        let pages = Arc::downgrade(&functions[0].pages);
        let call = |f: &Function| {
            let entry: unsafe extern "sysv64" fn() -> i32 =
                // SAFETY: the bytes are those of such a function.
                unsafe { std::mem::transmute(f.start()) };
            // SAFETY: it does nothing but return a number.
            unsafe { entry() }
        };
        let mut functions = functions.into_iter();
        let first = functions.next().unwrap();
        let second = functions.next().unwrap();
        assert_eq!(second.start() as usize - first.start() as usize, 64);
        assert_eq!(call(&first), 7);
        drop(first);
        assert_eq!(call(&second), 8);
        assert_eq!(second.bytes(), 6);
        drop(second);
        assert!(pages.upgrade().is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_can_be_executed_cannot_be_written() {
        let functions = load(&[&[0xc3]]).unwrap();
        let start = functions[0].start() as usize;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| {
            let range = line.split_whitespace().next().unwrap();
            let (from, to) = range.split_once('-').unwrap();
            let bound = |text: &str| usize::from_str_radix(text, 16).unwrap();
            (bound(from)..bound(to)).contains(&start)
        });
        assert_eq!(line.unwrap().split_whitespace().nth(1), Some("r-xp"));
    }

    #[test]
    fn no_code_needs_no_pages() {
        assert!(load(&[]).unwrap().is_empty());
        assert_eq!(load(&[&[]]).unwrap()[0].bytes(), 0);
    }
}
