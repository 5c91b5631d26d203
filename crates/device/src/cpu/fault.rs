//! Faults of machine code, by the name of its kernel. Flows in: where functions lie and what they are called,
//! and the signals of faults; flows out: a line on standard error that names the kernel at fault. Always: the
//! process then dies, or goes on, as it would have without this.
//!
//! The handler runs where a thread was interrupted: it takes no lock and no memory. What it reads are atomic
//! words of slots that are never freed. That of a function which runs does not change, as a function stays
//! in the list for as long as it can be called.

use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, Once};

/// Words of a name, of eight bytes; longer ones are cut.
const WORDS: usize = 16;

/// A function in the list, or room for one: then its end is 0.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    name: [AtomicU64; WORDS],
    next: *const Slot,
}

// SAFETY: `next` is written before the slot is shared, and the slots that it leads to are never freed.
unsafe impl Sync for Slot {}

/// The slots, the newest first.
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());
/// Those that are not used. Its lock is that of all writers.
static UNUSED: Mutex<Vec<&'static Slot>> = Mutex::new(Vec::new());

/// A function in the list, until this is dropped.
pub(super) struct Listed(&'static Slot);

/// Name a function, whose faults are told of from now on.
pub(super) fn list(start: *const u8, bytes: usize, name: &str) -> Listed {
    static HANDLED: Once = Once::new();
    HANDLED.call_once(signals::handle);
    let mut unused = UNUSED.lock().unwrap_or_else(|e| e.into_inner());
    let slot = unused.pop().unwrap_or_else(more);
    slot.start.store(start as usize, Ordering::Relaxed);
    let mut bytes_of_name = [0u8; 8 * WORDS];
    let length = name.len().min(bytes_of_name.len());
    bytes_of_name[..length].copy_from_slice(&name.as_bytes()[..length]);
    for (word, bytes) in slot.name.iter().zip(bytes_of_name.as_chunks::<8>().0) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    slot.end.store(start as usize + bytes, Ordering::Release);
    Listed(slot)
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Release);
        let mut unused = UNUSED.lock().unwrap_or_else(|e| e.into_inner());
        unused.push(self.0);
    }
}

/// Another slot, in front of the others; the lock of `UNUSED` is held.
fn more() -> &'static Slot {
    let slot = Box::leak(Box::new(Slot {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        name: [const { AtomicU64::new(0) }; WORDS],
        next: SLOTS.load(Ordering::Relaxed),
    }));
    SLOTS.store(slot, Ordering::Release);
    slot
}

/// The start and the name of the function in which an instruction lies.
fn find(instruction: usize) -> Option<(usize, [u8; 8 * WORDS])> {
    let mut next: *const Slot = SLOTS.load(Ordering::Acquire);
    // SAFETY: null, or a slot, which is never freed.
    while let Some(slot) = unsafe { next.as_ref() } {
        let end = slot.end.load(Ordering::Acquire);
        let start = slot.start.load(Ordering::Relaxed);
        if (start..end).contains(&instruction) {
            let mut name = [0; 8 * WORDS];
            for (bytes, word) in name.as_chunks_mut::<8>().0.iter_mut().zip(&slot.name) {
                *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            }
            return Some((start, name));
        }
        next = slot.next;
    }
    None
}

/// A line, put together without memory of its own.
struct Line {
    text: [u8; 320],
    length: usize,
}

impl Line {
    /// What is said of a fault: of which kernel, at what address, in which of its instructions.
    fn of(name: &[u8], address: usize, offset: usize) -> Line {
        let mut line = Line {
            text: [0; 320],
            length: 0,
        };
        line.add(b"monoglot: kernel ");
        line.add(name.split(|&c| c == 0).next().unwrap_or_default());
        line.add(b" faulted at address ");
        line.add_number(address);
        line.add(b" (instruction +");
        line.add_number(offset);
        line.add(b")\n");
        line
    }

    fn text(&self) -> &[u8] {
        &self.text[..self.length]
    }

    fn add(&mut self, bytes: &[u8]) {
        for (to, from) in self.text[self.length..].iter_mut().zip(bytes) {
            *to = *from;
            self.length += 1;
        }
    }

    /// A number in base 16.
    fn add_number(&mut self, number: usize) {
        self.add(b"0x");
        let digits = number.checked_ilog(16).unwrap_or(0);
        for k in (0..=digits).rev() {
            self.add(&[b"0123456789abcdef"[number >> (4 * k) & 15]]);
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "macos"))]
mod signals {
    use super::{Line, find};
    use std::ffi::{c_int, c_void};
    use std::mem::zeroed;
    use std::ptr::{null, null_mut};
    use std::sync::OnceLock;

    const FAULTS: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

    /// What was done about each signal before.
    static BEFORE: OnceLock<[libc::sigaction; FAULTS.len()]> = OnceLock::new();

    /// Be told of faults from now on.
    pub(super) fn handle() {
        // SAFETY: a `sigaction` of zeros is one: nothing is masked, the default is done.
        let mut before: [libc::sigaction; FAULTS.len()] = unsafe { zeroed() };
        for (signal, action) in FAULTS.iter().zip(&mut before) {
            // SAFETY: only asks what is done now.
            unsafe { libc::sigaction(*signal, null(), action) };
        }
        // Known before the first signal can come.
        let before = BEFORE.get_or_init(|| before);
        // SAFETY: as above.
        let mut action: libc::sigaction = unsafe { zeroed() };
        action.sa_sigaction = faulted as *const () as usize;
        for (signal, before) in FAULTS.iter().zip(before) {
            // What others want masked stays so in their handler; where threads have a stack for signals,
            // it is used, as theirs may be what is full.
            action.sa_mask = before.sa_mask;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: the handler is of the kind that the flags say, and does only what a handler may.
            unsafe { libc::sigaction(*signal, &action, null_mut()) };
        }
    }

    extern "C" fn faulted(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        let which = FAULTS.iter().position(|&s| s == signal);
        let Some(before) = which.and_then(|k| BEFORE.get()?.get(k)) else {
            return;
        };
        // SAFETY: the system gives both with every signal of a handler that asks for them.
        let instruction = unsafe { instruction(context) };
        if let Some((start, name)) = find(instruction) {
            // SAFETY: as above; the signals are such as have an address.
            let address = unsafe { (*info).si_addr() } as usize;
            let line = Line::of(&name, address, instruction - start);
            let text = line.text();
            // SAFETY: of our own bytes to standard error; that it may fail changes nothing.
            unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
            // Returning repeats the instruction, and the fault is theirs.
            // SAFETY: what was there before.
            unsafe { libc::sigaction(signal, before, null_mut()) };
            return;
        }
        // SAFETY: what was there before, asked as the system would ask it.
        unsafe { hand_on(before, signal, info, context) }
    }

    /// Do what was done about a signal before.
    unsafe fn hand_on(
        before: &libc::sigaction,
        signal: c_int,
        info: *mut libc::siginfo_t,
        context: *mut c_void,
    ) {
        if matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
            // SAFETY: what was there before.
            unsafe { libc::sigaction(signal, before, null_mut()) };
            // An instruction at fault is repeated; what somebody sent has to be sent again.
            // SAFETY: the system gives it with every signal.
            if unsafe { (*info).si_code } <= 0 {
                // SAFETY: of this thread, which has the signal masked until the handler returns.
                unsafe { libc::raise(signal) };
            }
            return;
        }
        let handler = before.sa_sigaction as *const ();
        if before.sa_flags & libc::SA_SIGINFO != 0 {
            type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: the flags say that it is of this type.
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        } else {
            // SAFETY: as above.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }

    /// Where the thread was interrupted.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    unsafe fn instruction(context: *mut c_void) -> usize {
        let context: *const libc::ucontext_t = context.cast();
        // SAFETY: the caller has it from the system.
        unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] as usize }
    }

    /// As above.
    #[cfg(target_os = "macos")]
    unsafe fn instruction(context: *mut c_void) -> usize {
        let context: *const libc::ucontext_t = context.cast();
        // SAFETY: the caller has it from the system.
        unsafe { (*(*context).uc_mcontext).__ss.__rip as usize }
    }
}

/// Systems whose signals are not known here: faults have no names.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "macos")))]
mod signals {
    pub(super) fn handle() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_while_they_are_listed() {
        // Addresses that no code has.
        let at = |address: usize| std::ptr::without_provenance(address);
        let long = "k".repeat(200);
        let first = list(at(0x10), 16, "first");
        let second = list(at(0x40), 8, &long);
        let name = |address: usize| {
            let (start, name) = find(address)?;
            let length = name.iter().position(|&c| c == 0).unwrap_or(name.len());
            Some((start, String::from_utf8_lossy(&name[..length]).into_owned()))
        };
        assert_eq!(name(0x10), Some((0x10, "first".into())));
        assert_eq!(name(0x1f), Some((0x10, "first".into())));
        assert_eq!(name(0x20), None);
        assert_eq!(name(0x47), Some((0x40, "k".repeat(8 * WORDS))));
        drop(second);
        assert_eq!(name(0x47), None);
        drop(first);
        assert_eq!(name(0x10), None);
    }

    #[test]
    fn lines_say_which_kernel_and_where() {
        let line = Line::of(b"E_16\0\0", 0, 0x2af);
        let text = "monoglot: kernel E_16 faulted at address 0x0 (instruction +0x2af)\n";
        assert_eq!(String::from_utf8_lossy(line.text()), text);
        let most = Line::of(&[b'k'; 8 * WORDS], usize::MAX, usize::MAX);
        assert!(most.text().ends_with(b"ff)\n"));
    }
}
