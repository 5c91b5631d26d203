//! Text that is written when somebody reads it: the listing of machine code, which few ask for. Flows in:
//! bytes, and what writes their text; flows out: the text, once it is wanted. Invariant: two of the same
//! bytes and key have the same text, so that comparing them writes none.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

type Write = dyn Fn(&[u8]) -> String + Send + Sync;

/// See the module.
pub struct LazyText {
    key: u64,
    of: Arc<[u8]>,
    write: Box<Write>,
    text: OnceLock<String>,
}

impl LazyText {
    /// The text that `write` makes of these bytes and of what `key` tells apart.
    pub fn new(key: u64, of: Arc<[u8]>, write: Box<Write>) -> LazyText {
        LazyText {
            key,
            of,
            write,
            text: OnceLock::new(),
        }
    }

    /// The text; the first call writes it.
    pub fn text(&self) -> &str {
        self.text.get_or_init(|| (self.write)(&self.of))
    }
}

impl PartialEq for LazyText {
    fn eq(&self, other: &LazyText) -> bool {
        self.key == other.key && self.of == other.of
    }
}
impl Eq for LazyText {}
impl Hash for LazyText {
    fn hash<H: Hasher>(&self, h: &mut H) {
        h.write_u64(self.key);
        self.of.hash(h);
    }
}
impl fmt::Debug for LazyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "text of {} bytes", self.of.len())
    }
}
