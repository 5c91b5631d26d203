//! Additions to elements that other threads add to at the same time. Flows in: dtypes; flows out: functions to
//! put into instructions. Invariant: no byte outside of a buffer is touched, and no addition is lost.

use super::machine::{Frame, Ins, Run, after};
use monoglot_uop::DType;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A number that is added to where it lies.
trait Addend: Copy {
    /// Add to the element there.
    ///
    /// # Safety
    /// The element is there, aligned, and other threads only add to it meanwhile.
    unsafe fn add_to(self, place: *mut Self);
}

/// Numbers of as many bits as a word, by what they make of one.
macro_rules! addends {
    ($($t:ty as $word:ty, |$old:ident: $bits:ty, $new:ident| $sum:expr;)*) => { $(
        impl Addend for $t {
            unsafe fn add_to(self, place: *mut $t) {
                // SAFETY: the caller's promise; the word is as large as the number, and aligned as it is.
                let word = unsafe { <$word>::from_ptr(place.cast()) };
                let $new = self;
                let sum = |$old: $bits| Some($sum);
                // It gives up where the sum is None alone, which it never is.
                let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
            }
        }
    )* };
}
addends! {
    u32 as AtomicU32, |old: u32, new| old.wrapping_add(new);
    u64 as AtomicU64, |old: u64, new| old.wrapping_add(new);
    f32 as AtomicU32, |old: u32, new| (f32::from_bits(old) + new).to_bits();
    f64 as AtomicU64, |old: u64, new| (f64::from_bits(old) + new).to_bits();
}

/// Buffer `x` at index register `a` += c, where the gate in `b` holds.
///
/// # Safety
/// That of `Run`.
unsafe fn add<T: Addend, I: Copy + Into<i64>, const GATED: bool>(
    f: &mut Frame,
    i: *const Ins,
) -> *const Ins {
    // SAFETY: registers are of these types, by the decoder's invariant; the element is checked, and storage is
    // aligned to its elements, as a launch sees to.
    unsafe {
        if GATED && !*f.reg::<bool>((*i).b) {
            return after(f, i);
        }
        let index: i64 = (*f.reg::<I>((*i).a)).into();
        let value = *f.reg::<T>((*i).c);
        match f.element::<T>((*i).x, index, 1, true) {
            Some(place) => value.add_to(place),
            None => return f.fail(),
        }
        after(f, i)
    }
}

fn of<T: Addend>(index: DType, gated: bool) -> Run {
    match (index.bytes() == 8, gated) {
        (false, false) => add::<T, i32, false>,
        (false, true) => add::<T, i32, true>,
        (true, false) => add::<T, i64, false>,
        (true, true) => add::<T, i64, true>,
    }
}

/// An addition to an element, with an index of dtype `index`; None for what is no number of 32 or 64 bits.
pub(super) fn adds(d: DType, index: DType, gated: bool) -> Option<Run> {
    Some(match d {
        DType::I32 | DType::U32 => of::<u32>(index, gated),
        DType::I64 | DType::U64 => of::<u64>(index, gated),
        DType::F32 => of::<f32>(index, gated),
        DType::F64 => of::<f64>(index, gated),
        _ => return None,
    })
}
