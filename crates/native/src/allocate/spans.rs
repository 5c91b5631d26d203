//! From where to where a register, or a place in the frame, is in use. Flows in: code; flows out: for each a span of
//! half positions, what keeping it elsewhere would cost, and whose register it may share. Always: an instruction p
//! reads at 2p and writes at 2p + 1; a span that leaves a loop covers all of it.

use crate::code::{Code, Do, Operand, Reg};
use rustc_hash::FxHashMap;

/// No position, no loop, no register.
pub(super) const NONE: u32 = u32::MAX;

/// Which registers wait in the frame while the loop of a label turns.
pub(super) type Waits = FxHashMap<i64, Vec<Reg>>;

/// Loops deeper than this cost no more than this deep ones: costs stay finite.
const DEEPEST: usize = 12;

/// Where one register or place in the frame is in use.
#[derive(Copy, Clone, Debug)]
pub(super) struct Span {
    /// The half position from which on it is in use; `NONE` where nothing mentions it.
    pub(super) start: u32,
    /// The last half position of its use.
    pub(super) end: u32,
    /// The half position of its first mention.
    pub(super) first: u32,
    /// The half position of its last mention.
    pub(super) last: u32,
    /// The innermost loop of its first mention.
    pub(super) first_loop: u32,
    /// The innermost loop of its last mention.
    pub(super) last_loop: u32,
    /// The sum over its mentions of 8 to the depth of each.
    pub(super) cost: f32,
    /// How many instructions read it.
    pub(super) reads: u32,
    /// How many instructions write it.
    pub(super) writes: u32,
    /// The register of whose place it has a share: nothing mentions that one while this one is in use, and what this
    /// one holds is moved there in the end.
    pub(super) into: u32,
}

const UNUSED: Span = Span {
    start: NONE,
    end: 0,
    first: NONE,
    last: 0,
    first_loop: NONE,
    last_loop: NONE,
    cost: 0.0,
    reads: 0,
    writes: 0,
    into: NONE,
};

/// The half positions of a loop, and the loop around it.
#[derive(Copy, Clone, Debug)]
struct Range {
    start: u32,
    end: u32,
    parent: u32,
}

/// The spans of all registers, or of all places in the frame.
#[derive(Debug)]
pub(super) struct Spans {
    /// By number.
    pub(super) of: Vec<Span>,
    /// The numbers of all that are mentioned, in the order of their starts.
    pub(super) order: Vec<u32>,
    /// The half positions at which each waits in the frame, in order, by number; most do not.
    pub(super) gaps: FxHashMap<u32, Vec<(u32, u32)>>,
}

/// The spans of the registers.
pub(super) fn registers(code: &Code, waits: &Waits) -> Spans {
    let mut walk = Walk::new(code.regs.len());
    // For each loop, where the code begins that runs as often as it does.
    let mut begun: Vec<u32> = Vec::new();
    let mut gaps: FxHashMap<u32, Vec<(u32, u32)>> = FxHashMap::default();
    let mut moves: Vec<Shared> = Vec::new();
    let mut control = 0;
    for (p, ins) in code.ins.iter().enumerate() {
        let at = 2 * p as u32;
        if ins.op == Do::Loop {
            walk.open(at);
            begun.push(control);
        }
        ins.reads(|r| walk.mention(r.0, at));
        // What a dot product is added to stands where it goes before its factors are read.
        if let Do::Vector(v) = ins.op {
            let factors = ins.src[v.form().factors()].iter();
            factors.for_each(|s| s.reads(|r| walk.stay(r.0, at + 1)));
        }
        if let Some(dst) = ins.dst {
            if ins.op == Do::Move
                && let Some(Operand::Reg(from)) = ins.src.first()
            {
                let shared = Shared {
                    from: from.0,
                    into: dst.0,
                    at,
                };
                moves.extend(shared.may(&walk.of, control).then_some(shared));
            }
            walk.mention(dst.0, at + 1);
        }
        match ins.op {
            Do::Loop | Do::SkipIf(_) | Do::Land => control = at + 1,
            Do::Next => {
                control = at + 1;
                walk.close(at + 1);
                let before = begun.pop().unwrap_or(at);
                if let Some(Operand::Imm(label)) = ins.src.get(2) {
                    for reg in waits.get(label).into_iter().flatten() {
                        // Nothing in the loop mentions it.
                        let start = before.max(walk.of[reg.0 as usize].last + 1);
                        gaps.entry(reg.0).or_default().push((start, at + 1));
                    }
                }
            }
            _ => {}
        }
    }
    let mut spans = walk.finish();
    spans.gaps = gaps;
    for shared in moves {
        let span = &mut spans.of[shared.from as usize];
        // Later mentions than the move's would read what the other has become.
        if span.end == shared.at && span.start == span.first {
            span.into = shared.into;
        }
    }
    spans
}

/// The spans of the places in the frame, of which there are so many.
pub(super) fn slots(code: &Code, count: u32) -> Spans {
    let mut walk = Walk::new(count as usize);
    for (p, ins) in code.ins.iter().enumerate() {
        let at = 2 * p as u32;
        match ins.op {
            Do::Loop => walk.open(at),
            Do::Next => walk.close(at + 1),
            _ => {}
        }
        for source in &ins.src {
            if let Operand::Slot(slot) = *source {
                // What has no destination and a place in the frame first stores to it; comparisons have a number there.
                let written = ins.dst.is_none() && ins.memory_source() == Some(0);
                walk.mention(slot, at + u32::from(written));
            }
        }
    }
    walk.finish()
}

/// A move at whose end a register's last value is: the two may share a place.
#[derive(Copy, Clone, Debug)]
struct Shared {
    from: u32,
    into: u32,
    at: u32,
}

impl Shared {
    /// Whether, as far as the walk has come, nothing mentions the one that is moved to since the other was written,
    /// on a stretch that runs from its top to its end.
    fn may(self, of: &[Span], control: u32) -> bool {
        let from = &of[self.from as usize];
        let into = &of[self.into as usize];
        self.from != self.into
            && from.first % 2 == 1
            && from.first > control
            && into.first != NONE
            && into.last < from.first
    }
}

/// A walk over code from its top to its end.
struct Walk {
    of: Vec<Span>,
    order: Vec<u32>,
    ranges: Vec<Range>,
    current: u32,
    depth: usize,
    cost: f32,
}

impl Walk {
    fn new(count: usize) -> Walk {
        Walk {
            of: vec![UNUSED; count],
            order: Vec::with_capacity(count),
            ranges: Vec::new(),
            current: NONE,
            depth: 0,
            cost: 1.0,
        }
    }

    fn open(&mut self, at: u32) {
        self.ranges.push(Range {
            start: at,
            end: NONE,
            parent: self.current,
        });
        self.current = self.ranges.len() as u32 - 1;
        self.set_depth(self.depth + 1);
    }

    fn close(&mut self, at: u32) {
        let range = &mut self.ranges[self.current as usize];
        range.end = at;
        self.current = range.parent;
        self.set_depth(self.depth - 1);
    }

    fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
        self.cost = 8f32.powi(depth.min(DEEPEST) as i32);
    }

    /// Something at the half position `at`: even ones read, odd ones write.
    fn mention(&mut self, number: u32, at: u32) {
        let span = &mut self.of[number as usize];
        if span.first == NONE {
            span.first = at;
            span.first_loop = self.current;
            self.order.push(number);
        }
        span.last = at;
        span.last_loop = self.current;
        span.cost += self.cost;
        span.writes += at % 2;
        span.reads += 1 - at % 2;
    }

    /// It is in use up to the half position `at`, at which something is written.
    fn stay(&mut self, number: u32, at: u32) {
        self.of[number as usize].last = at;
    }

    /// Spreads the spans over the loops that have a part of them.
    fn finish(mut self) -> Spans {
        let mut moved = false;
        for &number in &self.order {
            let span = &mut self.of[number as usize];
            span.start = span.first;
            span.end = span.last;
            if span.first_loop == span.last_loop {
                continue;
            }
            let mut around = span.first_loop;
            while around != NONE && self.ranges[around as usize].end < span.last {
                span.start = self.ranges[around as usize].start;
                moved = true;
                around = self.ranges[around as usize].parent;
            }
            let mut around = span.last_loop;
            while around != NONE && self.ranges[around as usize].start > span.first {
                span.end = self.ranges[around as usize].end;
                around = self.ranges[around as usize].parent;
            }
        }
        if moved {
            // A stable sort makes use of the runs that are in order already, which most of it is.
            let of = &self.of;
            self.order.sort_by_key(|&number| of[number as usize].start);
        }
        Spans {
            of: self.of,
            order: self.order,
            gaps: FxHashMap::default(),
        }
    }
}
