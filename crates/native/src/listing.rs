//! The text of a function in bytes. Flows in: the bytes, and what each instruction is of; flows out:
//! lines as NASM writes them. Always: no address is in the text, so equal code has equal text; labels stand for
//! what is jumped to and for constants.

use iced_x86::Decoder;
use iced_x86::DecoderOptions;
use iced_x86::Formatter;
use iced_x86::Instruction;
use iced_x86::MemorySizeOptions;
use iced_x86::NasmFormatter;
use iced_x86::OpKind;
use iced_x86::SymbolResolver;
use iced_x86::SymbolResult;
use rustc_hash::FxHashMap;
use std::fmt::Write;

/// What is known of a function besides its bytes.
pub struct Layout {
    /// Its name.
    pub name: String,
    /// Where the code of an instruction of the LINEAR starts, and that instruction's number there.
    pub marks: Vec<(u32, u32)>,
    /// Bytes that are instructions.
    pub text: usize,
    /// Bytes of each constant.
    pub constant: usize,
}

/// The text of a function. Beside the first machine instruction of an instruction of the LINEAR stands what `of`
/// says of that one.
pub fn listing(layout: &Layout, bytes: &[u8], of: &dyn Fn(u32) -> Option<String>) -> String {
    let text = &bytes[..layout.text];
    let labels = labels(text);
    let pool = layout.text.next_multiple_of(POOL);
    let mut formatter = formatter(Symbols {
        labels: labels.clone(),
        pool: pool as u64,
        constant: layout.constant as u64,
    });
    let mut out = format!("{}:\n", layout.name);
    let mut line = String::new();
    let mut marks = layout.marks.iter().peekable();
    for instruction in Decoder::with_ip(64, text, 0, DecoderOptions::NONE) {
        if let Some(label) = labels.get(&instruction.ip()) {
            let _ = writeln!(out, "L{label}:");
        }
        let mark = marks.next_if(|(offset, _)| u64::from(*offset) <= instruction.ip());
        line.clear();
        line.push_str("    ");
        formatter.format(&instruction, &mut line);
        if let Some(comment) = mark.and_then(|(_, number)| of(*number)) {
            let comment = comment.lines().next().unwrap_or_default();
            let _ = write!(
                line,
                "{:1$} ; {comment}",
                "",
                COLUMN.saturating_sub(line.len())
            );
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    let constants = bytes.get(pool..).unwrap_or_default();
    for (number, constant) in constants.chunks_exact(layout.constant).enumerate() {
        constant_lines(&mut out, number, constant);
    }
    out
}

/// Where comments start.
const COLUMN: usize = 44;

/// Constants start at a multiple of this.
const POOL: usize = 64;

/// What addresses are called.
struct Symbols {
    labels: FxHashMap<u64, u32>,
    pool: u64,
    /// Bytes of each constant.
    constant: u64,
}

impl SymbolResolver for Symbols {
    fn symbol(
        &mut self,
        instruction: &Instruction,
        _operand: u32,
        _instruction_operand: Option<u32>,
        address: u64,
        _address_size: u32,
    ) -> Option<SymbolResult<'_>> {
        if instruction.is_ip_rel_memory_operand() {
            let number = address.checked_sub(self.pool)? / self.constant;
            return Some(SymbolResult::with_string(address, format!("C{number}")));
        }
        if instruction.op0_kind() != OpKind::NearBranch64 {
            return None;
        }
        let label = self.labels.get(&address)?;
        Some(SymbolResult::with_string(address, format!("L{label}")))
    }
}

fn formatter(symbols: Symbols) -> NasmFormatter {
    let mut formatter = NasmFormatter::with_options(Some(Box::new(symbols)), None);
    let options = formatter.options_mut();
    options.set_first_operand_char_index(12);
    options.set_space_after_operand_separator(true);
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_show_branch_size(false);
    options.set_signed_immediate_operands(true);
    options.set_memory_size_options(MemorySizeOptions::Minimal);
    formatter
}

/// The numbers of what is jumped to, by offset, in order of offset.
fn labels(text: &[u8]) -> FxHashMap<u64, u32> {
    let mut targets: Vec<u64> = Decoder::with_ip(64, text, 0, DecoderOptions::NONE)
        .into_iter()
        .filter(|i| i.op0_kind() == OpKind::NearBranch64)
        .map(|i| i.near_branch_target())
        .collect();
    targets.sort_unstable();
    targets.dedup();
    targets.into_iter().zip(1..).collect()
}

/// A constant: one number so many times where it is that, else all its bytes.
fn constant_lines(out: &mut String, number: usize, constant: &[u8]) {
    let words: Vec<u64> = numbers(constant, 8);
    let doubles: Vec<u64> = numbers(constant, 4);
    let label = format!("C{number}:");
    let _ = if doubles.iter().all(|n| *n == doubles[0]) {
        writeln!(
            out,
            "{label:<8}times {} dd {:#010x}",
            doubles.len(),
            doubles[0]
        )
    } else if words.iter().all(|n| *n == words[0]) {
        writeln!(out, "{label:<8}times {} dq {:#018x}", words.len(), words[0])
    } else {
        let text: Vec<String> = doubles.iter().map(|n| format!("{n:#010x}")).collect();
        let lines: Vec<String> = text.chunks(4).map(|line| line.join(", ")).collect();
        let lines = lines.join(&format!("\n{:<8}dd ", ""));
        writeln!(out, "{label:<8}dd {lines}")
    };
}

fn numbers(bytes: &[u8], size: usize) -> Vec<u64> {
    bytes
        .chunks_exact(size)
        .map(|chunk| {
            let mut whole = [0; 8];
            whole[..size].copy_from_slice(chunk);
            u64::from_le_bytes(whole)
        })
        .collect()
}
