//! An x86-64 processor in software, for the instructions that the encoder makes. Flows in: the bytes of a function,
//! memory that a test hands out, arguments; flows out: that memory as the function leaves it, or the first thing
//! that was wrong. Always: an access outside the regions, an undefined flag that is read, an operand of SSE that
//! is not aligned and a register that a caller finds changed are errors.
//!
//! What an instruction does to lanes is one function for its forms in SSE, VEX and EVEX: so what a machine with
//! AVX2 confirms of the first two holds for the third.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]

mod floats;
mod general;
mod lanes;
mod memory;
mod scalars;
mod tiles;
mod vector;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, OpKind, Register};
pub(crate) use memory::Memory;

/// What goes wrong, with the instruction.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// The bytes of a vector register.
pub(crate) type Vector = [u8; 64];

/// Where the code of a function lies.
const CODE: u64 = 0x10_0000;

/// Where the stack ends, and what it has.
const STACK: u64 = 0x7fff_0000_0000;
const STACK_BYTES: u64 = 2 << 20;

/// Where a function returns to.
const CALLER: u64 = 0xdead_0000;

/// A function is at an end after so many instructions, or does not end.
const STEPS: u64 = 1 << 32;

/// The flags that conditions read.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Flags {
    carry: bool,
    zero: bool,
    sign: bool,
    overflow: bool,
}

/// An instruction and how it is encoded.
#[derive(Copy, Clone)]
struct Decoded {
    it: Instruction,
    /// Without VEX and EVEX: what is above a vector stays.
    legacy: bool,
}

/// A function, decoded as far as it runs.
pub(crate) struct Function {
    bytes: Vec<u8>,
    list: Vec<Decoded>,
    /// By offset of a byte the instruction that starts there, one further; 0 where none is known.
    at: Vec<u32>,
}

impl Function {
    /// The function of these bytes, its constants among them.
    pub(crate) fn new(bytes: &[u8]) -> Function {
        Function {
            bytes: bytes.to_vec(),
            list: vec![],
            at: vec![0; bytes.len()],
        }
    }

    /// The instruction at an address.
    fn decoded(&mut self, ip: u64) -> Result<Decoded> {
        let offset = ip.wrapping_sub(CODE) as usize;
        let Some(at) = self.at.get_mut(offset) else {
            return Err(format!("a jump to {ip:#x}, out of the function"));
        };
        if let Some(number) = at.checked_sub(1) {
            return Ok(self.list[number as usize]);
        }
        let it = Decoder::with_ip(64, &self.bytes[offset..], ip, DecoderOptions::NONE).decode();
        if it.code() == Code::INVALID {
            return Err(format!("no instruction at {offset:#x}"));
        }
        // What iced calls an encoding begins with what it has, if that is newer.
        let name = format!("{:?}", it.code());
        let legacy = !name.starts_with("VEX") && !name.starts_with("EVEX");
        let decoded = Decoded { it, legacy };
        self.list.push(decoded);
        *at = self.list.len() as u32;
        Ok(decoded)
    }

    /// Call it with three words, as `extern "sysv64"` has it. The regions of the function and its stack are in
    /// the memory for the time of the call.
    pub(crate) fn call(&mut self, memory: &mut Memory, arguments: [u64; 3]) -> Result<()> {
        memory.add(CODE, self.bytes.clone(), false);
        memory.add(STACK - STACK_BYTES, vec![0xcd; STACK_BYTES as usize], true);
        let mut processor = Processor::new(std::mem::take(memory));
        let result = processor.run(self, arguments);
        *memory = processor.memory;
        memory.remove(CODE);
        memory.remove(STACK - STACK_BYTES);
        result
    }
}

/// The registers and what they can reach.
struct Processor {
    general: [u64; 16],
    vectors: [Vector; 32],
    masks: [u64; 8],
    tiles: tiles::Tiles,
    flags: Option<Flags>,
    memory: Memory,
    ip: u64,
}

/// The general registers that a caller finds as they were: rbx, rsp, rbp, r12 to r15.
const KEPT: [usize; 7] = [3, 4, 5, 12, 13, 14, 15];

impl Processor {
    /// Registers hold what nobody should read.
    fn new(memory: Memory) -> Processor {
        let mut vectors = [[0xa5; 64]; 32];
        for (n, vector) in vectors.iter_mut().enumerate() {
            vector[0] = n as u8;
        }
        Processor {
            general: std::array::from_fn(|n| 0xbad0_bad0_0000_0000 | n as u64),
            vectors,
            masks: [0x5555_aaaa_1234_8765; 8],
            tiles: tiles::Tiles::default(),
            flags: None,
            memory,
            ip: CODE,
        }
    }

    fn run(&mut self, function: &mut Function, [first, second, third]: [u64; 3]) -> Result<()> {
        // What a caller passes in 32 bits has anything above.
        self.general[7] = first;
        self.general[6] = second | 0xfeed_0000_0000;
        self.general[2] = third;
        self.general[4] = STACK - 4096 - 8;
        self.memory.write(self.general[4], 8, CALLER)?;
        let before = self.general;
        let mut steps = 0;
        while self.ip != CALLER {
            let offset = self.ip.wrapping_sub(CODE);
            let decoded = function.decoded(self.ip)?;
            self.ip = decoded.it.next_ip();
            let told = |what: String| format!("{:#x}: {}: {what}", offset, decoded.it);
            self.step(&decoded).map_err(told)?;
            steps += 1;
            if steps > STEPS {
                return Err("it does not end".to_owned());
            }
        }
        self.general[4] = self.general[4].wrapping_sub(8);
        if !self.tiles.are_released() {
            return Err("tiles are not given back".to_owned());
        }
        match KEPT.iter().find(|&&n| self.general[n] != before[n]) {
            Some(n) => Err(format!("general register {n} is not as the caller left it")),
            None => Ok(()),
        }
    }

    fn step(&mut self, decoded: &Decoded) -> Result<()> {
        let it = &decoded.it;
        if self.general_step(it)? || self.tile_step(it)? || self.vector_step(decoded)? {
            return Ok(());
        }
        Err("an instruction that the emulator does not know".to_owned())
    }

    /// The address of the operand in memory.
    fn address(&self, it: &Instruction) -> u64 {
        if it.is_ip_rel_memory_operand() {
            return it.ip_rel_memory_address();
        }
        let part = |r: Register| match r {
            Register::None => 0,
            r => self.general[number(r)],
        };
        let index = part(it.memory_index()).wrapping_mul(u64::from(it.memory_index_scale()));
        part(it.memory_base())
            .wrapping_add(index)
            .wrapping_add(it.memory_displacement64())
    }
}

/// The operands that are not immediates.
fn operands(it: &Instruction) -> usize {
    (0..it.op_count())
        .filter(|&n| matches!(it.op_kind(n), OpKind::Register | OpKind::Memory))
        .count()
}

/// The bytes of a register.
fn bytes_of(register: Register) -> usize {
    match register {
        r if r.is_xmm() => 16,
        r if r.is_ymm() => 32,
        r if r.is_zmm() => 64,
        r if r.is_gpr8() => 1,
        r if r.is_gpr16() => 2,
        r if r.is_gpr32() => 4,
        _ => 8,
    }
}

/// The number of a register among its kind.
fn number(register: Register) -> usize {
    let first = match register {
        r if r.is_xmm() => Register::XMM0,
        r if r.is_ymm() => Register::YMM0,
        r if r.is_zmm() => Register::ZMM0,
        r if r.is_k() => Register::K0,
        r if r.is_gpr64() => Register::RAX,
        r if r.is_gpr32() => Register::EAX,
        r if r.is_gpr16() => Register::AX,
        _ => Register::AL,
    };
    let number = register as usize - first as usize;
    // After the first four bytes stand the second bytes of the same registers, which nothing uses.
    match first {
        Register::AL if number >= 8 => number - 4,
        _ => number,
    }
}
