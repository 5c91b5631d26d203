//! Bytes as they come, and what stands between them: labels, jumps, tops of loops, uses of constants. Flows in:
//! machine instructions and those places, in order; flows out: the bytes of the function and of its constants,
//! and where each instruction's bytes start. Always: a jump is short wherever it reaches; both ways are linear.

use crate::code::Constant;
use iced_x86::Encoder;
use iced_x86::Instruction;
use monoglot_uop::ErrorKind;
use monoglot_uop::Result;
use rustc_hash::FxHashMap;

/// A place in the code to jump to.
#[derive(Copy, Clone, Debug)]
pub(super) struct Label(u32);

/// What `Buffer::finish` gives.
pub(super) struct Laid {
    pub(super) bytes: Vec<u8>,
    pub(super) marks: Vec<(u32, u32)>,
    pub(super) text: usize,
}

/// The code of a function while it grows. Jumps and fillings have no bytes in it yet.
pub(super) struct Buffer {
    encoder: Encoder,
    /// Bytes so far.
    at: u32,
    sites: Vec<(u32, Site)>,
    labels: u32,
    /// The constants that are used, in the order of their first use, and the place of each there.
    used: Vec<u32>,
    place: FxHashMap<u32, u32>,
}

/// Something that stands between bytes.
#[derive(Copy, Clone, Debug)]
enum Site {
    /// The bytes of the instruction of that number start.
    Mark(u32),
    /// The top of an innermost loop: filled up to a line of what the decoder reads.
    Align,
    Label(Label),
    /// A jump under the condition of that number, as the machine counts them.
    Jump(u8, Label),
    /// Four bytes, the distance to a used constant from so many bytes after them.
    Constant(u32, u32),
}

/// Bytes of a long jump under a condition; of a short one.
const LONG: u32 = 6;
const SHORT: u32 = 2;

/// The most bytes that a top of a loop is filled with.
const FILL: u32 = 16;

/// Where the constants start is a multiple of this.
const POOL: usize = 64;

/// What does nothing, in so many bytes: Intel's manual, volume 2, "NOP".
const NOPS: [&[u8]; 9] = [
    &[0x90],
    &[0x66, 0x90],
    &[0x0f, 0x1f, 0x00],
    &[0x0f, 0x1f, 0x40, 0x00],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
    &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
];

impl Buffer {
    /// An empty one, for about so many instructions.
    pub(super) fn new(instructions: usize) -> Result<Buffer> {
        let encoder = Encoder::try_with_capacity(64, instructions * 8).map_err(broken)?;
        Ok(Buffer {
            encoder,
            at: 0,
            sites: Vec::with_capacity(instructions * 2),
            labels: 0,
            used: vec![],
            place: FxHashMap::default(),
        })
    }

    /// Append an instruction; `constant` is the one that its memory operand names, which then stands on RIP.
    pub(super) fn push(&mut self, instruction: &Instruction, constant: Option<u32>) -> Result<()> {
        let length = self
            .encoder
            .encode(instruction, u64::from(self.at))
            .map_err(broken)? as u32;
        if let Some(constant) = constant {
            let next = self.used.len() as u32;
            let place = *self.place.entry(constant).or_insert(next);
            if place == next {
                self.used.push(constant);
            }
            let offset = self.encoder.get_constant_offsets().displacement_offset() as u32;
            let after = length - offset - 4;
            self.sites
                .push((self.at + offset, Site::Constant(place, after)));
        }
        self.at += length;
        Ok(())
    }

    /// The bytes of the instruction of that number start.
    pub(super) fn mark(&mut self, instruction: u32) {
        self.sites.push((self.at, Site::Mark(instruction)));
    }

    /// A label without a place.
    pub(super) fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// The label is here.
    pub(super) fn place(&mut self, label: Label) {
        self.sites.push((self.at, Site::Label(label)));
    }

    /// What follows is run often: it starts where the machine reads a line of code.
    pub(super) fn align(&mut self) {
        self.sites.push((self.at, Site::Align));
    }

    /// Jump to the label under the condition of that number.
    pub(super) fn jump(&mut self, condition: u8, label: Label) {
        self.sites.push((self.at, Site::Jump(condition, label)));
    }

    /// The bytes, with the constants after the instructions. A label that something jumps to has a place, or it
    /// is an error. Of each constant so many bytes are kept.
    pub(super) fn finish(mut self, pool: &[Constant], entry: usize) -> Result<Laid> {
        let raw = self.encoder.take_buffer();
        let bounds = self.bounds();
        let size = raw.len() + self.sites.len() * 4 + self.used.len() * entry + POOL;
        let mut bytes = Vec::with_capacity(size);
        let mut marks: Vec<(u32, u32)> = Vec::with_capacity(self.sites.len());
        let mut labels = vec![None; self.labels as usize];
        let mut jumps = vec![];
        let mut constants = vec![];
        let mut copied = 0;
        let mut added = 0;
        for &(at, site) in &self.sites {
            // The four bytes of a distance to a constant are copied with the others and written over.
            bytes.extend_from_slice(&raw[copied..at as usize]);
            copied = at as usize;
            match site {
                Site::Mark(instruction) => {
                    let offset = bytes.len() as u32;
                    // An instruction that has no bytes has no mark.
                    if marks.last().is_some_and(|(last, _)| *last == offset) {
                        marks.pop();
                    }
                    marks.push((offset, instruction));
                }
                Site::Align => {
                    fill(&mut bytes);
                    added += FILL;
                }
                Site::Label(label) => labels[label.0 as usize] = Some(bytes.len() as i64),
                Site::Jump(condition, label) => {
                    // Back it is known how far; on, how far at most.
                    let near = match (labels[label.0 as usize], bounds[label.0 as usize]) {
                        (Some(to), _) => bytes.len() as i64 + i64::from(SHORT) - to <= 128,
                        (None, Some(to)) => to - (at + added + LONG) <= 127,
                        (None, None) => return Err(unplaced()),
                    };
                    if near {
                        bytes.extend([0x70 | condition, 0]);
                    } else {
                        bytes.extend([0x0f, 0x80 | condition, 0, 0, 0, 0]);
                    }
                    jumps.push((bytes.len(), near, label));
                    added += LONG;
                }
                Site::Constant(place, after) => constants.push((bytes.len(), place, after)),
            }
        }
        bytes.extend_from_slice(&raw[copied..]);
        let text = bytes.len();
        if marks.last().is_some_and(|(last, _)| *last == text as u32) {
            marks.pop();
        }
        for (end, near, label) in jumps {
            let to = labels[label.0 as usize].ok_or_else(unplaced)?;
            let distance = to - end as i64;
            if near {
                let distance = i8::try_from(distance).map_err(broken)?;
                bytes[end - 1] = distance as u8;
            } else {
                let distance = i32::try_from(distance).map_err(broken)?;
                bytes[end - 4..end].copy_from_slice(&distance.to_le_bytes());
            }
        }
        if !self.used.is_empty() {
            bytes.resize(text.next_multiple_of(POOL), 0xcc);
        }
        let start = bytes.len();
        for (at, place, after) in constants {
            let to = start + place as usize * entry;
            let distance = i32::try_from(to - (at + 4 + after as usize)).map_err(broken)?;
            bytes[at..at + 4].copy_from_slice(&distance.to_le_bytes());
        }
        for constant in self.used {
            let constant = pool
                .get(constant as usize)
                .ok_or_else(|| broken(format!("there is no constant {constant} in the pool")))?;
            bytes.extend_from_slice(&constant[..entry]);
        }
        Ok(Laid { bytes, marks, text })
    }

    /// Where each label is at most, if all jumps are long and all tops of loops filled: two places are never
    /// further apart than there.
    fn bounds(&self) -> Vec<Option<u32>> {
        let mut bounds = vec![None; self.labels as usize];
        let mut added = 0;
        for (at, site) in &self.sites {
            match site {
                Site::Align => added += FILL,
                Site::Jump(..) => added += LONG,
                Site::Label(label) => bounds[label.0 as usize] = Some(at + added),
                Site::Mark(_) | Site::Constant(..) => {}
            }
        }
        bounds
    }
}

/// An error of this stage.
pub(super) fn broken(message: impl std::fmt::Display) -> monoglot_uop::Error {
    ErrorKind::Verify {
        stage: "encode".into(),
        message: message.to_string(),
    }
    .into()
}

fn unplaced() -> monoglot_uop::Error {
    broken("a jump goes to a label that is nowhere")
}

/// Fill up to a multiple of 32 bytes where that takes at most 16, else to one of 16.
fn fill(bytes: &mut Vec<u8>) {
    let line = FILL as usize * 2;
    let mut left = bytes.len().next_multiple_of(line) - bytes.len();
    if left > FILL as usize {
        left -= FILL as usize;
    }
    while left > 0 {
        let nop = NOPS[left.min(NOPS.len()) - 1];
        bytes.extend_from_slice(nop);
        left -= nop.len();
    }
}
