//! A machine's registers before and after some instructions. Flows in: instructions over registers that are
//! numbered as the machine's, and what the registers hold; flows out: what they hold after. Always: every
//! register but the one that points to their values is read back; the emulator runs the same bytes and agrees with
//! the machine, or runs them alone where the machine cannot.

use crate::emulator::Function;
use crate::emulator::Memory;
use iced_x86::Decoder;
use iced_x86::DecoderOptions;
use iced_x86::Instruction;
use memmap2::MmapMut;
use monoglot_native::code::Allocated;
use monoglot_native::code::Class;
use monoglot_native::code::Code;
use monoglot_native::code::Constant;
use monoglot_native::code::Do;
use monoglot_native::code::Ins;
use monoglot_native::code::Level;
use monoglot_native::code::Mem;
use monoglot_native::code::Operand;
use monoglot_native::code::Place;
use monoglot_native::code::Reg;
use monoglot_native::code::RegInfo;
use monoglot_native::code::Width;
use monoglot_native::encode::Encoded;
use monoglot_native::encode::encode;
use monoglot_native::table::Form;
use monoglot_native::table::Vector;
use std::cell::RefCell;
use std::io::Write;

/// The general registers that values are in.
pub(crate) const GENERAL: [u8; 11] = [3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// What registers hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Machine {
    pub(crate) general: [u64; 16],
    pub(crate) vectors: [[u8; 64]; 32],
}

/// The general register of that number.
pub(crate) fn g(number: u8) -> Reg {
    Reg(u32::from(number))
}

/// A general register that has another name, too: what is written by that is not read by its own.
pub(crate) const OTHER: u8 = 14;
pub(crate) const NAMED: Reg = Reg(48);

/// The vector register of that number.
pub(crate) fn v(number: u8) -> Reg {
    Reg(16 + u32::from(number))
}

/// The same as sources.
pub(crate) fn rg(number: u8) -> Operand {
    Operand::Reg(g(number))
}

pub(crate) fn rv(number: u8) -> Operand {
    Operand::Reg(v(number))
}

/// Memory, so many bytes after what a general register points to.
pub(crate) fn at(base: u8, displacement: i32) -> Operand {
    Operand::Mem(Mem {
        base: g(base),
        index: None,
        displacement,
    })
}

pub(crate) fn ins(op: Do, width: Width, dst: Option<Reg>, src: &[Operand]) -> Ins {
    Ins {
        op,
        width,
        dst,
        src: src.iter().copied().collect(),
        mark: monoglot_native::code::UNMARKED,
    }
}

/// The widest vectors of a level.
pub(crate) fn widest(level: Level) -> Width {
    match level {
        Level::V2 => Width::X,
        Level::V3 => Width::Y,
        Level::V4 => Width::Z,
    }
}

/// Whether this machine runs a level.
pub(crate) fn runs(level: Level) -> bool {
    let v3 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("bmi2");
    let v4 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match level {
        Level::V2 => true,
        Level::V3 => v3,
        Level::V4 => v3 && v4,
    }
}

/// Whether this machine has the dot products that a level may have.
fn has_dots(level: Level) -> bool {
    match level {
        Level::V2 => false,
        Level::V3 => is_x86_feature_detected!("avxvnni"),
        Level::V4 => {
            is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512bf16")
        }
    }
}

/// All levels; it is said which of them this machine does not run, and the emulator alone does.
pub(crate) fn levels() -> Vec<Level> {
    let all = vec![Level::V2, Level::V3, Level::V4];
    for level in all.iter().filter(|level| !runs(**level)) {
        // Not through the macro, whose text is shown of failing tests alone.
        let _ = writeln!(
            std::io::stderr(),
            "EMULATED: this machine does not run {level:?}"
        );
    }
    all
}

/// Code of these instructions over the machine's registers.
pub(crate) fn allocated(body: Vec<Ins>, pool: &[Constant], slots: u32) -> Allocated {
    let mut used = [false; 49];
    for i in &body {
        i.reads(|r| used[r.0 as usize] = true);
        if let Some(dst) = i.dst {
            used[dst.0 as usize] = true;
        }
    }
    let place = |n: u32| match (used[n as usize], n) {
        (false, _) => Place::Nowhere,
        (true, 0..16) => Place::General(n as u8),
        (true, 48) => Place::General(OTHER),
        (true, _) => Place::Vector(n as u8 - 16),
    };
    // What is read of a vector is told by the widest that is mentioned at all.
    let wide = body.iter().map(|i| i.width.bytes()).max().unwrap_or(0);
    let info = |n: u32| RegInfo {
        class: if n < 16 || n == 48 {
            Class::General
        } else {
            Class::Vector
        },
        bytes: if n < 16 || n == 48 {
            8
        } else {
            wide.max(16) as u8
        },
        again: None,
        lasting: false,
    };
    Allocated {
        code: Code {
            ins: body,
            regs: (0..=48).map(info).collect(),
            pool: pool.to_vec(),
        },
        places: (0..=48).map(place).collect(),
        origin: (0..=48).map(Reg).collect(),
        slots,
    }
}

/// The instructions, decoded.
pub(crate) fn decoded(encoded: &Encoded) -> Vec<Instruction> {
    let text = &encoded.bytes[..encoded.text];
    let list: Vec<Instruction> = Decoder::with_ip(64, text, 0, DecoderOptions::NONE)
        .into_iter()
        .collect();
    assert!(list.iter().all(|i| !i.is_invalid()), "{:x?}", encoded.bytes);
    list
}

/// Run a function.
pub(crate) fn run(encoded: &Encoded, args: *const u64, thread: i32, own: *mut u8) {
    let mut pages = MmapMut::map_anon(encoded.bytes.len()).expect("pages");
    pages.copy_from_slice(&encoded.bytes);
    let pages = pages.make_exec().expect("pages that can be run");
    // SAFETY: the pages hold a function of this signature, and they outlive the call; it reads and writes what
    // the test has made its arguments point to.
    unsafe {
        let function: extern "sysv64" fn(*const u64, i32, *mut u8) =
            std::mem::transmute(pages.as_ptr());
        function(args, thread, own);
    }
}

thread_local! {
    /// Memory besides the registers' values that the next instructions may reach.
    static LENT: RefCell<Vec<(u64, usize)>> = const { RefCell::new(vec![]) };
}

/// Let the next instructions reach memory.
pub(crate) fn lend<T>(data: &[T]) {
    let address = data.as_ptr() as u64;
    let bytes = std::mem::size_of_val(data);
    LENT.with_borrow_mut(|lent| lent.push((address, bytes)));
}

/// The bytes that were lent.
fn lent_bytes((address, bytes): (u64, usize)) -> Vec<u8> {
    // SAFETY: what a test lends lives on until it has looked at the result.
    unsafe { std::slice::from_raw_parts(address as *const u8, bytes).to_vec() }
}

/// Put bytes into what was lent.
fn put_back((address, _): (u64, usize), bytes: &[u8]) {
    // SAFETY: the test lent so many bytes to instructions that may write them.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) }
}

/// What the registers hold after the instructions. Register `out` points to the values and is no one else's.
pub(crate) fn execute(
    level: Level,
    out: u8,
    body: &[Ins],
    pool: &[Constant],
    slots: u32,
    before: &Machine,
) -> Machine {
    let vectors = level.vector_registers();
    let width = widest(level);
    let mut all = vec![ins(Do::Argument(0), Width::W64, Some(g(out)), &[])];
    let general: Vec<u8> = GENERAL.into_iter().filter(|n| *n != out).collect();
    for &n in &general {
        let place = at(out, i32::from(n) * 8);
        all.push(ins(Do::Load64, Width::W64, Some(g(n)), &[place]));
    }
    for n in 0..vectors {
        let place = at(out, 128 + i32::from(n) * 64);
        let load = Do::Vector(Vector::Load);
        all.push(ins(load, width, Some(v(n)), &[place]));
    }
    all.extend_from_slice(body);
    for &n in &general {
        let place = at(out, i32::from(n) * 8);
        all.push(ins(Do::Store64, Width::W64, None, &[place, rg(n)]));
    }
    for n in 0..vectors {
        let place = at(out, 128 + i32::from(n) * 64);
        let store = Do::Vector(Vector::Store);
        all.push(ins(store, width, None, &[place, rv(n)]));
    }
    all.push(ins(Do::Return, Width::W64, None, &[]));
    let encoded = match encode(&allocated(all, pool, slots), level) {
        Ok(encoded) => encoded,
        Err(error) => panic!("{error}"),
    };
    let mut words = vec![0u64; 16 + 32 * 8];
    words[..16].copy_from_slice(&before.general);
    for (n, vector) in before.vectors.iter().enumerate() {
        for k in 0..8 {
            let bytes = vector[k * 8..k * 8 + 8].try_into().expect("8 bytes");
            words[16 + n * 8 + k] = u64::from_le_bytes(bytes);
        }
    }
    let lent = LENT.take();
    let mut memory = Memory::default();
    let home = words.as_ptr() as u64;
    let flat = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    memory.add(home, flat, true);
    for &region in &lent {
        memory.add(region.0, lent_bytes(region), true);
    }
    let mut function = Function::new(&encoded.bytes);
    if let Err(what) = function.call(&mut memory, [home, 0, 0]) {
        panic!("{what}\n{body:?}");
    }
    let emulated = memory.remove(home);
    let dots = |i: &Ins| matches!(i.op, Do::Vector(v) if v.form() == Form::Dot);
    if runs(level) && (has_dots(level) || !body.iter().any(dots)) {
        run(&encoded, words.as_mut_ptr(), 0, std::ptr::null_mut());
        let flat: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert!(emulated == flat, "{body:?}");
        for &region in &lent {
            assert_eq!(memory.remove(region.0), lent_bytes(region), "{body:?}");
        }
    } else {
        for (word, bytes) in words.iter_mut().zip(emulated.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        }
        for &region in &lent {
            put_back(region, &memory.remove(region.0));
        }
    }
    let mut after = before.clone();
    after.general.copy_from_slice(&words[..16]);
    for (n, vector) in after.vectors.iter_mut().enumerate() {
        for k in 0..8 {
            let word = words[16 + n * 8 + k];
            vector[k * 8..k * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
    }
    after
}

/// Numbers that look like chance and are the same each time.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }

    pub(crate) fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[(self.next() >> 33) as usize % list.len()]
    }

    /// A number of those that arithmetic trips over, or any.
    pub(crate) fn number(&mut self) -> u64 {
        let any = self.next();
        let edges = [
            0,
            1,
            2,
            u64::MAX,
            i64::MIN as u64,
            i64::MAX as u64,
            0x8000_0000,
            0x7fff_ffff,
            0xffff_ffff,
            0xffff_ffff_8000_0000,
            any,
            any,
            any >> 32,
            any >> 50,
        ];
        self.of(&edges)
    }

    pub(crate) fn machine(&mut self) -> Machine {
        let mut machine = Machine {
            general: [0; 16],
            vectors: [[0; 64]; 32],
        };
        for value in &mut machine.general {
            *value = self.number();
        }
        for value in machine.vectors.iter_mut().flatten() {
            *value = self.next() as u8;
        }
        machine
    }
}
