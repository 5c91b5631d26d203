//! Instructions that move bytes (between registers, to and from buffers) and that steer (loops,
//! conditions, waiting). Widths, index types and gates are chosen when the program is decoded.

use super::machine::{At, Frame, Ins, Run, after};
use monoglot_uop::DType;

/// How an access is guarded: not, by one bool for all lanes, or by one a lane.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    None,
    Scalar,
    Lanes,
}

/// An integer that indexes.
trait Index: Copy {
    fn get(self) -> i64;
}
impl Index for i32 {
    fn get(self) -> i64 {
        self as i64
    }
}
impl Index for i64 {
    fn get(self) -> i64 {
        self
    }
}

/// dst[0..n] = buffer `x` from index register `a`. Gate in `b`, the value where it fails in `c`.
///
/// # Safety
/// That of `Run`.
unsafe fn load<T: Copy, I: Index, const G: u8>(f: &mut Frame, i: *const Ins) -> *const Ins {
    // SAFETY: registers are of these types, by the decoder's invariant; elements are checked.
    unsafe {
        let index = (*f.reg::<I>((*i).a)).get();
        let n = (*i).n.max(1) as usize;
        match G {
            1 if !*f.reg::<bool>((*i).b) => {
                std::ptr::copy_nonoverlapping(f.reg::<T>((*i).c), f.reg::<T>((*i).dst), n);
            }
            2 => {
                for k in 0..n {
                    *f.reg::<T>((*i).dst).add(k) = if *f.reg::<bool>((*i).b).add(k) {
                        match f.element::<T>((*i).x, index + k as i64, 1, false) {
                            Some(p) => p.read_unaligned(),
                            None => return f.fail(),
                        }
                    } else {
                        *f.reg::<T>((*i).c).add(k)
                    };
                }
            }
            _ => match f.element::<T>((*i).x, index, n as u32, false) {
                Some(p) if n == 1 => *f.reg::<T>((*i).dst) = p.read_unaligned(),
                Some(p) => {
                    std::ptr::copy_nonoverlapping(p.cast::<u8>(), f.reg::<u8>((*i).dst), n * size_of::<T>());
                }
                None => return f.fail(),
            },
        }
        after(f, i)
    }
}

/// buffer `x` from index register `a` = c[0..n]. Gate in `b`.
///
/// # Safety
/// That of `Run`.
unsafe fn store<T: Copy, I: Index, const G: u8>(f: &mut Frame, i: *const Ins) -> *const Ins {
    // SAFETY: as for `load`.
    unsafe {
        let index = (*f.reg::<I>((*i).a)).get();
        let n = (*i).n.max(1) as usize;
        match G {
            1 if !*f.reg::<bool>((*i).b) => {}
            2 => {
                for k in 0..n {
                    if *f.reg::<bool>((*i).b).add(k) {
                        match f.element::<T>((*i).x, index + k as i64, 1, true) {
                            Some(p) => p.write_unaligned(*f.reg::<T>((*i).c).add(k)),
                            None => return f.fail(),
                        }
                    }
                }
            }
            _ => match f.element::<T>((*i).x, index, n as u32, true) {
                Some(p) if n == 1 => p.write_unaligned(*f.reg::<T>((*i).c)),
                Some(p) => {
                    std::ptr::copy_nonoverlapping(f.reg::<u8>((*i).c), p.cast::<u8>(), n * size_of::<T>());
                }
                None => return f.fail(),
            },
        }
        after(f, i)
    }
}

macro_rules! by_width {
    ($name:ident, $bytes:expr, $wide:expr, $gate:expr) => {
        match ($bytes, $wide, $gate) {
            (1, false, Gate::None) => $name::<u8, i32, 0>,
            (1, false, Gate::Scalar) => $name::<u8, i32, 1>,
            (1, false, Gate::Lanes) => $name::<u8, i32, 2>,
            (1, true, Gate::None) => $name::<u8, i64, 0>,
            (1, true, Gate::Scalar) => $name::<u8, i64, 1>,
            (1, true, Gate::Lanes) => $name::<u8, i64, 2>,
            (2, false, Gate::None) => $name::<u16, i32, 0>,
            (2, false, Gate::Scalar) => $name::<u16, i32, 1>,
            (2, false, Gate::Lanes) => $name::<u16, i32, 2>,
            (2, true, Gate::None) => $name::<u16, i64, 0>,
            (2, true, Gate::Scalar) => $name::<u16, i64, 1>,
            (2, true, Gate::Lanes) => $name::<u16, i64, 2>,
            (4, false, Gate::None) => $name::<u32, i32, 0>,
            (4, false, Gate::Scalar) => $name::<u32, i32, 1>,
            (4, false, Gate::Lanes) => $name::<u32, i32, 2>,
            (4, true, Gate::None) => $name::<u32, i64, 0>,
            (4, true, Gate::Scalar) => $name::<u32, i64, 1>,
            (4, true, Gate::Lanes) => $name::<u32, i64, 2>,
            (_, false, Gate::None) => $name::<u64, i32, 0>,
            (_, false, Gate::Scalar) => $name::<u64, i32, 1>,
            (_, false, Gate::Lanes) => $name::<u64, i32, 2>,
            (_, true, Gate::None) => $name::<u64, i64, 0>,
            (_, true, Gate::Scalar) => $name::<u64, i64, 1>,
            (_, true, Gate::Lanes) => $name::<u64, i64, 2>,
        }
    };
}

/// A load of elements of `bytes`, with an index of dtype `index`.
pub(crate) fn loads(bytes: usize, index: DType, gate: Gate) -> Run {
    let wide = index.bytes() == 8;
    by_width!(load, bytes, wide, gate)
}

/// A store of elements of `bytes`, with an index of dtype `index`.
pub(crate) fn stores(bytes: usize, index: DType, gate: Gate) -> Run {
    let wide = index.bytes() == 8;
    by_width!(store, bytes, wide, gate)
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
        f.reg::<T>((*i).dst).write_unaligned(f.reg::<T>((*i).a).read_unaligned());
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
        (0..(*i).n as usize).for_each(|k| *f.reg::<T>((*i).dst).add(k) = value);
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

unsafe fn begin<I: Index + From32>(f: &mut Frame, i: *const Ins) -> *const Ins {
    // SAFETY: registers of this type, by the decoder's invariant.
    unsafe {
        *f.reg::<I>((*i).dst) = I::from32(0);
        if (*f.reg::<I>((*i).a)).get() > 0 { after(f, i) } else { f.code.add((*i).x as usize) }
    }
}

unsafe fn next<I: Index + From32>(f: &mut Frame, i: *const Ins) -> *const Ins {
    // SAFETY: registers of this type, by the decoder's invariant.
    unsafe {
        let step = (*f.reg::<I>((*i).dst)).get() + 1;
        *f.reg::<I>((*i).dst) = I::from32(step);
        if step < (*f.reg::<I>((*i).a)).get() { f.code.add((*i).x as usize) } else { after(f, i) }
    }
}

trait From32 {
    fn from32(v: i64) -> Self;
}
impl From32 for i32 {
    fn from32(v: i64) -> i32 {
        v as i32
    }
}
impl From32 for i64 {
    fn from32(v: i64) -> i64 {
        v
    }
}

/// Open a loop (to `x` where it has no iteration), and close it (back to `x`). The counter is `dst`, the
/// bound `a`.
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
    unsafe { if *f.reg::<bool>((*i).a) { after(f, i) } else { f.code.add((*i).x as usize) } }
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
