//! Finds two threads of a workgroup that touch an element of LOCAL memory with no barrier between
//! them, one of them writing. A GPU would give either value; here it is an error. Flows in: each
//! access of a thread to LOCAL memory, and each barrier; flows out: whether it collides with an
//! earlier one.

use super::machine::{Frame, Ins, after};
use rustc_hash::FxHashMap;

/// Who touched what since the last barrier.
#[derive(Default)]
pub(crate) struct Watch {
    touched: FxHashMap<(u32, i64), Touch>,
}

#[derive(Clone, Copy, Default)]
struct Touch {
    writer: Option<u32>,
    /// A reader, and whether there was another.
    reader: Option<u32>,
    readers: bool,
}

impl Watch {
    /// A barrier: what was written can be read by all.
    pub(crate) fn clear(&mut self) {
        self.touched.clear();
    }

    /// Note an access; the other thread, where it is a race.
    fn touch(&mut self, buf: u32, index: i64, thread: u32, write: bool) -> Option<u32> {
        let t = self.touched.entry((buf, index)).or_default();
        let other = |who: Option<u32>| who.filter(|&w| w != thread);
        if let Some(w) = other(t.writer) {
            return Some(w);
        }
        if write {
            let reader = if t.readers { t.reader } else { other(t.reader) };
            t.writer = Some(thread);
            return reader;
        }
        t.readers |= other(t.reader).is_some();
        t.reader.get_or_insert(thread);
        None
    }
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
