//! The machine that runs decoded programs: a file of registers in bytes, a table of buffers, and
//! instructions that are function pointers. A vector is consecutive lanes in its dtype's own width.
//! Flows in: instructions and buffers; flows out: what they store.
//!
//! Invariants that the decoder keeps: every register operand of an instruction lies within the file
//! and is aligned for its dtype, and a result does not overlap what it is made from. What depends on
//! data (an index into a buffer) is checked here, and a failed check stops the program with a fault.

/// One instruction: what runs, and its operands. `a`, `b`, `c`, `dst` are byte offsets into the
/// register file, or what the instruction says; `n` is the number of lanes.
#[derive(Clone, Copy)]
pub(crate) struct Ins {
    pub(crate) run: Run,
    pub(crate) dst: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: u32,
    pub(crate) n: u32,
    pub(crate) x: u32,
}

/// Runs the instruction, and those after it, until one gives control back: that instruction says where
/// to go on, or null where this thread waits, has ended or has failed.
///
/// Calling the next instruction at the end of each lets the processor predict it from the one before,
/// which one loop that calls all of them does not. Where the compiler makes no jump of that call, depth
/// is bounded, as the decoder puts a `pause` into every run of `RUN` instructions.
///
/// # Safety
/// The instruction is of the program for which the frame was made, and not the last.
pub(crate) type Run = unsafe fn(&mut Frame, *const Ins) -> *const Ins;

/// Instructions in a row between two that give control back, at most.
pub(crate) const RUN: usize = 32;

/// Where a thread is when it does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// About to run the instruction of that number.
    Next(usize),
    /// At the instruction of that number, which needs the other threads.
    Waits(usize),
    /// At the end of the program.
    Ended,
    /// At a fault.
    Failed,
}

/// A buffer as instructions see it.
#[derive(Clone, Copy)]
pub(crate) struct Buf {
    pub(crate) ptr: *mut u8,
    /// Elements.
    pub(crate) len: u64,
    /// Elements that were read.
    pub(crate) reads: u64,
    /// The PARAM's or BUFFER's number, for messages.
    pub(crate) slot: u32,
}

/// One thread of a running program.
pub(crate) struct Frame {
    pub(crate) regs: *mut u8,
    pub(crate) bufs: Vec<Buf>,
    /// What went wrong.
    pub(crate) fault: Option<String>,
    pub(crate) at: At,
    /// The program's first instruction.
    pub(crate) code: *const Ins,
    /// Its number in the workgroup.
    pub(crate) thread: u32,
    /// Who touched LOCAL memory since the last barrier, where that is watched.
    pub(crate) watch: *mut super::race::Watch,
}

impl Frame {
    /// A register as a typed pointer.
    ///
    /// # Safety
    /// The offset is one that the decoder gave for a value of this type.
    #[inline(always)]
    pub(crate) unsafe fn reg<T>(&self, offset: u32) -> *mut T {
        // SAFETY: within the file, by the decoder's invariant.
        unsafe { self.regs.add(offset as usize).cast() }
    }

    /// Where the elements from `index` on are; None (and a fault) where they are not all in the buffer.
    #[inline(always)]
    pub(crate) fn element<T>(
        &mut self,
        buf: u32,
        index: i64,
        n: u32,
        write: bool,
    ) -> Option<*mut T> {
        let b = &mut self.bufs[buf as usize];
        // A negative index is far past the end.
        if (index as u64).saturating_add(n as u64) > b.len {
            let slot = b.slot;
            let len = b.len;
            self.fault = Some(out_of_bounds(slot, index, n, len, write));
            return None;
        }
        if !write {
            b.reads += n as u64;
        }
        // SAFETY: `index + n` elements are within the buffer, whose bytes the launch has checked.
        Some(unsafe { b.ptr.cast::<T>().add(index as usize) })
    }

    /// Stop with what `element` has found.
    #[cold]
    pub(crate) fn fail(&mut self) -> *const Ins {
        self.at = At::Failed;
        std::ptr::null()
    }

    /// Run until the program ends, waits or fails.
    ///
    /// # Safety
    /// The code is that for which the frame was made, and no one else uses the frame's registers.
    pub(crate) unsafe fn go(&mut self) {
        let At::Next(pc) = self.at else { return };
        // SAFETY: the number of an instruction of this program, and then what instructions gave back.
        unsafe {
            let mut next = self.code.add(pc);
            while !next.is_null() {
                next = ((*next).run)(self, next);
            }
        }
    }
}

/// Go on with the instruction after `i`.
///
/// # Safety
/// `i` is not the last instruction of its program.
#[inline(always)]
pub(crate) unsafe fn after(f: &mut Frame, i: *const Ins) -> *const Ins {
    // SAFETY: the caller's promise.
    unsafe {
        let next = i.add(1);
        ((*next).run)(f, next)
    }
}

#[cold]
fn out_of_bounds(slot: u32, index: i64, n: u32, len: u64, write: bool) -> String {
    let what = if write { "writes" } else { "reads" };
    let many = if n > 1 {
        format!("{n} elements from {index}")
    } else {
        format!("element {index}")
    };
    format!("{what} {many} of buffer {slot}, which has {len}")
}
