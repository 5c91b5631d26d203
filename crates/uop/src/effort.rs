//! How much the compiler does, counted where it is done, so that a test can tell how a pass grows with
//! its input without a clock. Flows in: what walks, rewriting and the interner do on a thread; flows
//! out: the difference between two moments of that thread. Counting changes nothing else.

use std::cell::Cell;

/// Effort of one thread.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Nodes, operands and entries of lists that passes looked at.
    pub visits: u64,
    /// Rules that fired.
    pub rewrites: u64,
    /// Nodes asked of the interner, with their operands.
    pub nodes: u64,
    /// Bytes of text that were written.
    pub bytes: u64,
}

thread_local! {
    static DONE: Cell<Effort> = const { Cell::new(Effort { visits: 0, rewrites: 0, nodes: 0, bytes: 0 }) };
}

impl Effort {
    /// Each count by name.
    pub fn counts(&self) -> [(&'static str, u64); 4] {
        [
            ("visits", self.visits),
            ("rewrites", self.rewrites),
            ("nodes", self.nodes),
            ("bytes", self.bytes),
        ]
    }

    /// What this thread has done since it began.
    pub fn so_far() -> Effort {
        DONE.get()
    }

    /// What this thread has done since `then`.
    pub fn since(then: Effort) -> Effort {
        let now = Effort::so_far();
        Effort {
            visits: now.visits - then.visits,
            rewrites: now.rewrites - then.rewrites,
            nodes: now.nodes - then.nodes,
            bytes: now.bytes - then.bytes,
        }
    }

    /// Both together.
    pub fn plus(self, other: Effort) -> Effort {
        Effort {
            visits: self.visits + other.visits,
            rewrites: self.rewrites + other.rewrites,
            nodes: self.nodes + other.nodes,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// A pass looked at this many things.
pub fn visited(n: usize) {
    let done = DONE.get();
    DONE.set(Effort {
        visits: done.visits + n as u64,
        ..done
    });
}

/// A rule fired.
pub(crate) fn rewritten() {
    let done = DONE.get();
    DONE.set(Effort {
        rewrites: done.rewrites + 1,
        ..done
    });
}

/// A node of this many operands was asked for.
pub(crate) fn asked(operands: usize) {
    let done = DONE.get();
    DONE.set(Effort {
        nodes: done.nodes + 1 + operands as u64,
        ..done
    });
}

/// This many bytes of text were written.
pub fn wrote(bytes: usize) {
    let done = DONE.get();
    DONE.set(Effort {
        bytes: done.bytes + bytes as u64,
        ..done
    });
}
