//! Instructions that move bytes (between registers, to and from buffers) and that steer (loops,
//! conditions, waiting). Widths, index types and gates are chosen when the program is decoded.
//! Flows in: widths and types; flows out: functions to put into instructions. Invariant: no byte
//! outside of a buffer is touched; a place beyond it is a fault.

use super::machine::{At, Frame, Ins, Run, after};
use monoglot_uop::DType;
use std::ops::Add;

/// How an access is guarded: not, by one bool for all lanes, or by one a lane.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    None,
    Scalar,
    Lanes,
}

/// An integer that indexes and counts.
trait Index: Copy + Into<i64> + From<i8> + Add<Output = Self> + PartialOrd {}
impl Index for i32 {}
impl Index for i64 {}

/// dst[0..n] = buffer `x` from index register `a`, with the value in `c` where the gate in `b` fails; or
/// (`WRITE`) buffer `x` from index register `a` = c[0..n] where it holds.
///
/// # Safety
/// That of `Run`.
unsafe fn access<T: Copy, I: Index, const G: u8, const WRITE: bool>(
    f: &mut Frame,
    i: *const Ins,
) -> *const Ins {
    // SAFETY: registers are of these types, by the decoder's invariant; elements are checked.
    unsafe {
        let index: i64 = (*f.reg::<I>((*i).a)).into();
        let n = (*i).n.max(1) as usize;
        let mine = f.reg::<T>(if WRITE { (*i).c } else { (*i).dst });
        let other = f.reg::<T>((*i).c);
        let gate = f.reg::<bool>((*i).b);
        // A gate a lane makes accesses of a lane each.
        let (pieces, lanes) = if G == 2 { (n, 1) } else { (1, n) };
        for k in 0..pieces {
            let mine = mine.add(k);
            if G > 0 && !*gate.add(k) {
                if !WRITE {
                    std::ptr::copy_nonoverlapping(other.add(k), mine, lanes);
                }
                continue;
            }
            match f.element::<T>((*i).x, index + k as i64, lanes as u32, WRITE) {
                Some(p) if lanes == 1 && WRITE => p.write_unaligned(*mine),
                Some(p) if lanes == 1 => *mine = p.read_unaligned(),
                Some(p) => {
                    let p = p.cast::<u8>();
                    let mine = mine.cast::<u8>();
                    let (from, to) = if WRITE { (mine, p) } else { (p, mine) };
                    std::ptr::copy_nonoverlapping(from, to, lanes * size_of::<T>());
                }
                None => return f.fail(),
            }
        }
        after(f, i)
    }
}

fn gated<T: Copy, I: Index, const WRITE: bool>(gate: Gate) -> Run {
    match gate {
        Gate::None => access::<T, I, 0, WRITE>,
        Gate::Scalar => access::<T, I, 1, WRITE>,
        Gate::Lanes => access::<T, I, 2, WRITE>,
    }
}

/// A load (or `WRITE`, a store) of elements of `bytes`, with an index of dtype `index`.
pub(crate) fn accesses<const WRITE: bool>(bytes: usize, index: DType, gate: Gate) -> Run {
    match (bytes, index.bytes() == 8) {
        (1, false) => gated::<u8, i32, WRITE>(gate),
        (1, true) => gated::<u8, i64, WRITE>(gate),
        (2, false) => gated::<u16, i32, WRITE>(gate),
        (2, true) => gated::<u16, i64, WRITE>(gate),
        (4, false) => gated::<u32, i32, WRITE>(gate),
        (4, true) => gated::<u32, i64, WRITE>(gate),
        (_, false) => gated::<u64, i32, WRITE>(gate),
        (_, true) => gated::<u64, i64, WRITE>(gate),
    }
}

/// dst = a, `x` bytes.
///
/// # Safety
/// That of `Run`.
pub(crate) unsafe fn copy(f: &mut Frame, i: *const Ins) -> *const Ins {
    // SAFETY: both are within the file and apart, by the decoder's invariant.
    unsafe {
        std::ptr::copy_nonoverlapping(f.reg::<u8>((*i).a), f.reg::<u8>((*i).dst), (*i).x as usize);
        after(f, i)
    }
}

unsafe fn copy_one<T: Copy>(f: &mut Frame, i: *const Ins) -> *const Ins {
    // SAFETY: registers of this width, by the decoder's invariant.
    unsafe {
        f.reg::<T>((*i).dst)
            .write_unaligned(f.reg::<T>((*i).a).read_unaligned());
        after(f, i)
    }
}

/// A copy of so many bytes.
pub(crate) fn copies(bytes: usize) -> Run {
    match bytes {
        1 => copy_one::<u8>,
        2 => copy_one::<u16>,
        4 => copy_one::<u32>,
        8 => copy_one::<u64>,
        16 => copy_one::<[u64; 2]>,
        _ => copy,
    }
}

unsafe fn splat<T: Copy>(f: &mut Frame, i: *const Ins) -> *const Ins {
    // SAFETY: registers of this width, by the decoder's invariant.
    unsafe {
        let value = *f.reg::<T>((*i).a);
        for k in 0..(*i).n as usize {
            *f.reg::<T>((*i).dst).add(k) = value;
        }
        after(f, i)
    }
}

/// dst[0..n] = a, of a width.
pub(crate) fn splats(bytes: usize) -> Run {
    match bytes {
        1 => splat::<u8>,
        2 => splat::<u16>,
        4 => splat::<u32>,
        _ => splat::<u64>,
    }
}

unsafe fn begin<I: Index>(f: &mut Frame, i: *const Ins) -> *const Ins {
    // SAFETY: registers of this type, by the decoder's invariant.
    unsafe {
        let first = *f.reg::<I>((*i).b);
        *f.reg::<I>((*i).dst) = first;
        if *f.reg::<I>((*i).a) > first {
            after(f, i)
        } else {
            f.code.add((*i).x as usize)
        }
    }
}

unsafe fn next<I: Index>(f: &mut Frame, i: *const Ins) -> *const Ins {
    // SAFETY: registers of this type, by the decoder's invariant.
    unsafe {
        let step = *f.reg::<I>((*i).dst) + I::from(1);
        *f.reg::<I>((*i).dst) = step;
        if step < *f.reg::<I>((*i).a) {
            f.code.add((*i).x as usize)
        } else {
            after(f, i)
        }
    }
}

/// Open a loop (to `x` where it has no iteration), and close it (back to `x`). The counter is `dst`, the
/// bound `a`, its first value `b`.
pub(crate) fn loops(index: DType) -> (Run, Run) {
    match index.bytes() {
        8 => (begin::<i64>, next::<i64>),
        _ => (begin::<i32>, next::<i32>),
    }
}

/// To `x` unless the bool `a` holds.
///
/// # Safety
/// That of `Run`.
pub(crate) unsafe fn unless(f: &mut Frame, i: *const Ins) -> *const Ins {
    // SAFETY: a register of this type, by the decoder's invariant.
    unsafe {
        if *f.reg::<bool>((*i).a) {
            after(f, i)
        } else {
            f.code.add((*i).x as usize)
        }
    }
}

/// Wait for the others: a BARRIER, or a WMMA, which all lanes do together.
///
/// # Safety
/// That of `Run`.
pub(crate) unsafe fn wait(f: &mut Frame, i: *const Ins) -> *const Ins {
    // SAFETY: both point into the program's instructions.
    f.at = At::Waits(unsafe { i.offset_from(f.code) } as usize);
    std::ptr::null()
}

/// Give control back, and go on with the next instruction.
///
/// # Safety
/// That of `Run`.
pub(crate) unsafe fn pause(_f: &mut Frame, i: *const Ins) -> *const Ins {
    // SAFETY: a `pause` is not the last instruction.
    unsafe { i.add(1) }
}

/// The end of a program.
///
/// # Safety
/// That of `Run`.
pub(crate) unsafe fn ended(f: &mut Frame, _i: *const Ins) -> *const Ins {
    f.at = At::Ended;
    std::ptr::null()
}

/// Before an access to LOCAL memory: buffer `x`, index register `a` (i64 where `c` & 2), lanes `n`, a gate
/// register in `b` (where `c` & 4; a bool a lane where `c` & 8); a write where `c` & 1.
///
/// # Safety
/// That of `Run`; `watch` outlives the frame.
pub(crate) unsafe fn touch(f: &mut Frame, i: *const Ins) -> *const Ins {
    // SAFETY: registers of these types, by the decoder's invariant; threads of a workgroup take turns,
    // so nothing else refers to the watch now.
    unsafe {
        let index = if (*i).c & 2 != 0 {
            *f.reg::<i64>((*i).a)
        } else {
            *f.reg::<i32>((*i).a) as i64
        };
        for k in 0..(*i).n.max(1) as i64 {
            let lane = if (*i).c & 8 != 0 { k as usize } else { 0 };
            if (*i).c & 4 != 0 && !*f.reg::<bool>((*i).b).add(lane) {
                continue;
            }
            if let Some(other) = (*f.watch).touch((*i).x, index + k, f.thread, (*i).c & 1 != 0) {
                let slot = f.bufs[(*i).x as usize].slot;
                let thread = f.thread;
                let index = index + k;
                f.fault = Some(format!(
                    "threads {thread} and {other} race for element {index} of LOCAL buffer {slot}"
                ));
                return f.fail();
            }
        }
        after(f, i)
    }
}
