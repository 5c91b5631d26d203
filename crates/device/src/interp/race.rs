//! Finds two threads of a workgroup that touch an element of LOCAL memory with no barrier between
//! them, one of them writing. A GPU would give either value; here it is an error. Flows in: each
//! access of a thread to LOCAL memory, and each barrier; flows out: whether it collides with an
//! earlier one.

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
    pub(crate) fn touch(&mut self, buf: u32, index: i64, thread: u32, write: bool) -> Option<u32> {
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
