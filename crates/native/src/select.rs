//! Machine instructions of a linear program. Flows in: a listing, the program's record and the level of the instruction set; flows
//! out: code over registers without number, and of each instruction the place in the list that it is of. Always: an
//! instruction computes what `fold` computes; a register that the program writes once is written once.
//!
//! Integers are in general registers, bools among them as 0 and 1; floats are in the first lane of vector registers,
//! but for halves, which are moved as the integers that they are stored as. Vectors fill as many registers as they need; a vector of bools is a mask
//! of lanes of 0 and −1, as wide as the listing says. Loads stand before their first use, or are operands of it where it is the only one.

mod address;
mod atomic;
mod builder;
mod cast;
mod clean;
mod control;
mod divide;
mod dot;
mod doubles;
mod elementwise;
mod integer;
mod lanes;
mod memory;
mod scalar;
mod shift;
mod shuffle;
mod tile;
mod uses;
mod vector;

use crate::code::{Class, Code, Do, Level, Operand, Reg, UNMARKED, Width};
use crate::own::{OwnLayout, own_layout};
use crate::table::Vector;
use builder::{Builder, Kind, Parts, one, splat};
use monoglot_uop::backend::unsupported;
use monoglot_uop::linear::{address, gathered, has_phases, lanes, phases, storage_of};
use monoglot_uop::marks::NodeMap;
use monoglot_uop::op::{Class as OpClass, Leaf, Memory, Movement, Order};
use monoglot_uop::spec::verify_linear;
use monoglot_uop::{Arg, DType, Error, Listing, Op, ProgramInfo, Result, UOp};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use tile::Tiles;
use uses::Uses;

/// Select the instructions of a program.
///
/// # Errors
/// `Unsupported`, naming the op, for what no instruction does.
pub fn select(listing: &Listing, info: &ProgramInfo, level: Level) -> Result<Code> {
    let mut b = Builder::new(level);
    let arguments = b.general(Do::Argument(0), Width::W64, &[]);
    let thread = b.general(Do::Argument(1), Width::W32, &[]);
    let own = b.general(Do::Argument(2), Width::W64, &[]);
    let entry = Entry {
        arguments,
        thread,
        own,
        slots: slots(listing.instructions(), info),
        written: written(listing),
        variables: info.vars.clone(),
        layout: own_layout(listing.program()),
    };
    let tiles = tile::has_tiles(listing);
    if tiles {
        let all = b.pooled(tile::configuration());
        b.put(Do::TileConfigure, Width::Z, None, &[Operand::Pool(all)]);
    }
    if !has_phases(listing.program()) {
        let (b, streams) = versions(listing, listing, &entry, b)?;
        return Ok(done(b, streams, tiles));
    }
    // The thread's number counts on through the phases.
    let threads = b.number(info.threads.max(1));
    let number = [Operand::Reg(thread), Operand::Reg(threads)];
    let phase = b.general(Do::DivU, Width::W32, &number);
    let thread = b.general(Do::RemU, Width::W32, &number);
    let entry = Entry { thread, ..entry };
    let mut streams = false;
    for (k, program) in phases(listing.program()).into_iter().enumerate() {
        let program = verify_linear(program)?;
        let own = Listing::of(&program);
        b.push(Kind::Phase(phase, k as i64));
        let (next, past) = versions(&own, listing, &entry, b)?;
        b = next;
        streams |= past;
        b.pop();
    }
    Ok(done(b, streams, tiles))
}

/// Select a program (or a phase of the whole one); where stores pass the caches twice: vectors do that where storage
/// begins at a multiple of them. Whether any do.
fn versions(
    listing: &Listing,
    whole: &Listing,
    entry: &Entry,
    mut b: Builder,
) -> Result<(Builder, bool)> {
    let mut rest: Option<Reg> = None;
    let mut slots: Vec<u64> = Vec::new();
    for u in listing.instructions() {
        if u.op() == Op::Store
            && *u.arg() != Arg::None
            && let Some(slot) = address(u.src()[0].named()).and_then(|a| a.buffer.buffer_arg())
            && !slots.contains(&slot.slot)
        {
            slots.push(slot.slot);
        }
    }
    for slot in slots {
        let k = entry.slots.iter().position(|&s| s == slot).unwrap_or(0);
        let at = 8 * k as i32;
        let from = Builder::at(entry.arguments, at);
        let begin = b.general(Do::Load64, Width::W64, &[from]);
        rest = Some(match rest {
            Some(rest) => {
                let both = [Operand::Reg(rest), Operand::Reg(begin)];
                b.general(Do::Or, Width::W64, &both)
            }
            None => begin,
        });
    }
    let Some(rest) = rest else {
        let mut s = Selector::new(listing, whole, entry, b, false);
        s.program()?;
        return Ok((s.b, false));
    };
    let last = b.vector_bytes() as i64 - 1;
    let rest = b.general(
        Do::And,
        Width::W32,
        &[Operand::Reg(rest), Operand::Imm(last)],
    );
    for past in [true, false] {
        b.push(Kind::Version(rest, past));
        let mut s = Selector::new(listing, whole, entry, b, past);
        s.program()?;
        b = s.b;
        b.pop();
    }
    Ok((b, true))
}

fn done(mut b: Builder, streams: bool, tiles: bool) -> Code {
    b.mark = UNMARKED;
    if tiles {
        b.put(Do::TileRelease, Width::Z, None, &[]);
    }
    if streams {
        b.put(Do::Fence, Width::W64, None, &[]);
    }
    b.put(Do::Return, Width::W64, None, &[]);
    let variables = std::mem::take(&mut b.variables);
    let level = b.level;
    let mut code = b.finish();
    clean::clean(&mut code, &variables, level);
    code
}

/// The slots of the buffers that a launch is given, in its order.
fn slots(list: &[UOp], info: &ProgramInfo) -> Vec<u64> {
    let storage = list
        .iter()
        .filter(|u| u.op() == Op::Param && !u.is_variable());
    let given = info.outs.iter().chain(&info.ins).map(|&s| s as u64);
    let mut slots: Vec<u64> = given.collect();
    slots.extend(storage.filter_map(|u| Some(u.buffer_arg()?.slot)));
    slots.sort_unstable();
    slots.dedup();
    slots
}

/// The slots that a program writes to.
fn written(listing: &Listing) -> FxHashSet<u64> {
    let writes = |u: &&UOp| matches!(u.op(), Op::Store | Op::AtomicAdd);
    let to = listing.instructions().iter().filter(writes);
    let to = to.filter_map(|u| address(u.src()[0].named()));
    to.filter(|a| a.buffer.op() == Op::Param)
        .filter_map(|a| Some(a.buffer.buffer_arg()?.slot))
        .collect()
}

/// What a function begins with.
struct Entry<'e> {
    arguments: Reg,
    thread: Reg,
    own: Reg,
    slots: Vec<u64>,
    /// Of those the ones that the program writes to.
    written: FxHashSet<u64>,
    variables: Vec<usize>,
    layout: OwnLayout<'e>,
}

/// What is known of a value.
#[derive(Clone)]
enum Value {
    /// It has not been asked for, or is none.
    None,
    /// A load, or a scalar in all lanes, that stands where it is asked for first.
    Deferred,
    /// The registers that it is in.
    Parts(Parts),
}

/// The lanes of a value: how many (0: a scalar), and of how many bytes each.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Shape {
    n: usize,
    bytes: usize,
}

/// A program while it is selected.
struct Selector<'a> {
    listing: &'a Listing<'a>,
    /// That of the program of which this one may be a phase.
    whole: &'a Listing<'a>,
    list: &'a [UOp],
    entry: &'a Entry<'a>,
    b: Builder,
    uses: Uses,
    values: Vec<Value>,
    /// The scope that each instruction stands in; of a RANGE, its own.
    scope_of: Vec<u32>,
    /// The registers of REG storage that is one value.
    registers: NodeMap<&'a UOp, Parts>,
    /// Sums of multiples that integers are.
    forms: Vec<Option<address::Form>>,
    /// What stands under a condition of its own: the place of a loop's RANGE, or of the last instruction, and that of
    /// the gate.
    under: Vec<(usize, usize)>,
    /// Whether stores pass the caches.
    past: bool,
    tiles: Tiles<'a>,
}

impl<'a> Selector<'a> {
    fn new(
        listing: &'a Listing<'a>,
        whole: &'a Listing<'a>,
        entry: &'a Entry<'a>,
        b: Builder,
        past: bool,
    ) -> Selector<'a> {
        let list = listing.instructions();
        Selector {
            listing,
            whole,
            list,
            entry,
            uses: Uses::of(listing, b.level),
            b,
            values: vec![Value::None; list.len()],
            scope_of: vec![0; list.len()],
            registers: NodeMap::new(),
            forms: vec![None; list.len()],
            under: Vec::new(),
            past,
            tiles: Tiles::of(listing),
        }
    }

    fn unsupported(&self, u: &UOp) -> Error {
        unsupported("X86", u)
    }

    fn program(&mut self) -> Result<()> {
        for i in 0..self.list.len() {
            self.b.mark = self.mark(i);
            self.open_segment(i)?;
            self.instruction(i)?;
            self.close_segment(i);
        }
        Ok(())
    }

    /// The place of an instruction in the whole program's list.
    fn mark(&self, i: usize) -> u32 {
        let place = self.whole.place(&self.list[i]);
        place.map_or(UNMARKED, |k| k as u32)
    }

    fn instruction(&mut self, i: usize) -> Result<()> {
        let u = &self.list[i];
        // Registers are halved and put together: other numbers of lanes have no place in them.
        let places = storage_of(u).is_some() || lanes(u).max(1).is_power_of_two();
        if !places {
            return Err(self.unsupported(u));
        }
        if u.op() != Op::Range {
            self.scope_of[i] = self.b.innermost() as u32;
        }
        if self.tile(i)? {
            return Ok(());
        }
        match u.op().class() {
            OpClass::Leaf(Leaf::Param) if u.is_variable() => self.variable(i),
            OpClass::Leaf(Leaf::Param | Leaf::Buffer | Leaf::Const) => Ok(()),
            OpClass::Order(order) => match order {
                Order::Range => self.begin(i),
                Order::If => {
                    let tests = self.tests(&u.src()[0])?;
                    self.b.push(Kind::If(tests));
                    Ok(())
                }
                Order::End => {
                    self.end(&u.src()[1]);
                    Ok(())
                }
                Order::EndIf => {
                    self.b.pop();
                    Ok(())
                }
                Order::After | Order::Group | Order::Sink => Ok(()),
                Order::Barrier | Order::Linear => Err(self.unsupported(u)),
            },
            OpClass::Memory(Memory::Store) => self.store(u),
            OpClass::Memory(Memory::AtomicAdd) => self.atomic(u),
            OpClass::Memory(Memory::Load) if *u.arg() != Arg::None && self.uses.count(i) == 0 => {
                self.prefetch(u)
            }
            OpClass::Code(_) if u.op() == Op::Special => self.special(i),
            OpClass::Code(_) if u.op() != Op::Wmma => Err(self.unsupported(u)),
            _ if u.op().is_void() => Err(self.unsupported(u)),
            _ if self.uses.count(i) == 0 => Ok(()),
            OpClass::Movement(Movement::Index | Movement::Shrink) if address(u).is_some() => Ok(()),
            _ if self.uses.is_deferred(i) => {
                self.values[i] = Value::Deferred;
                Ok(())
            }
            _ => {
                let parts = self.value(i)?;
                self.values[i] = Value::Parts(parts);
                Ok(())
            }
        }
    }

    /// The registers of an instruction's value, worked out here.
    fn value(&mut self, i: usize) -> Result<Parts> {
        let u = &self.list[i];
        match u.op().class() {
            OpClass::Memory(Memory::Load) => self.load(i),
            OpClass::Movement(Movement::Stack) => self.stack(u),
            OpClass::Movement(Movement::Shuffle) => match gathered(u) {
                Some((from, picks)) => self.shuffle(from, &picks, self.shape(u)),
                None => Err(self.unsupported(u)),
            },
            OpClass::Movement(Movement::Index | Movement::Shrink) => self.pick(u),
            OpClass::Movement(Movement::Bitcast) => self.bitcast(u),
            _ if u.op().is_elementwise() => self.elementwise(u),
            _ if u.op() == Op::Wmma => self.dot(u),
            _ => Err(self.unsupported(u)),
        }
    }

    /// What a value's lanes are.
    fn shape(&self, u: &UOp) -> Shape {
        let n = lanes(u);
        let bytes = match u.dtype() {
            DType::Bool if n > 0 => self.listing.mask(u),
            d => d.bytes(),
        };
        Shape { n, bytes }
    }

    /// The class of registers that scalars of a dtype are in.
    fn class(d: DType) -> Class {
        match d {
            DType::F32 | DType::F64 => Class::Vector,
            _ => Class::General,
        }
    }

    /// How many registers so many lanes fill.
    fn count(&self, shape: Shape) -> usize {
        let bytes = shape.n * shape.bytes;
        bytes.div_ceil(self.b.vector_bytes()).max(1)
    }

    /// Lanes of a register of a value.
    fn per_part(&self, shape: Shape) -> usize {
        shape.n.min(self.b.vector_bytes() / shape.bytes)
    }

    /// The width of the registers of a value.
    fn width(&self, shape: Shape) -> Width {
        Width::of_vector((shape.n * shape.bytes).min(self.b.vector_bytes()))
    }

    /// The registers of a value.
    fn parts(&mut self, u: &UOp) -> Result<Parts> {
        if u.op() == Op::Const {
            return Ok(one(self.scalar_constant(u)));
        }
        let u = u.named();
        let Some(i) = self.listing.place(u) else {
            return Err(self.unsupported(u));
        };
        if let Value::Parts(parts) = &self.values[i] {
            return Ok(parts.clone());
        }
        if !matches!(self.values[i], Value::Deferred) {
            return Err(self.unsupported(u));
        }
        let own = self.mark(i);
        let mark = std::mem::replace(&mut self.b.mark, own);
        let parts = self.value(i)?;
        self.b.mark = mark;
        self.values[i] = Value::Parts(parts.clone());
        Ok(parts)
    }

    /// The register of a scalar.
    fn scalar(&mut self, u: &UOp) -> Result<Reg> {
        Ok(self.parts(u)?[0])
    }

    /// A constant as a scalar in the register of its class.
    fn scalar_constant(&mut self, u: &UOp) -> Reg {
        let d = u.dtype();
        let bits = self.bits(u);
        match Self::class(d) {
            Class::General => self.b.number(canonical(bits, d)),
            Class::Vector => {
                let mut constant = [0; 64];
                constant[..8].copy_from_slice(&bits.to_le_bytes());
                self.b.constant(constant, Width::X)
            }
        }
    }

    fn bits(&self, u: &UOp) -> u64 {
        u.const_value().map_or(0, |v| v.to_bits(u.dtype()))
    }

    /// The bits of a lane that is a constant: of a bool, all of a mask's.
    fn lane_bits(&self, u: &UOp) -> u64 {
        match (u.dtype(), self.bits(u)) {
            (DType::Bool, 0) => 0,
            (DType::Bool, _) => u64::MAX,
            (_, bits) => bits,
        }
    }

    /// The registers of a vector operand of a shape: constants stand in every lane, masks become as wide.
    fn vector_parts(&mut self, u: &UOp, shape: Shape) -> Result<Parts> {
        // Of a constant in every lane there is one of each width.
        let constant = monoglot_uop::linear::splat(u).filter(|c| c.op() == Op::Const);
        let u = constant.unwrap_or(u);
        if u.op() == Op::Const {
            let width = self.width(shape);
            let bits = self.lane_bits(u);
            let reg = self.b.splat_bits(bits, shape.bytes, width);
            return Ok(SmallVec::from_elem(reg, self.count(shape)));
        }
        if is_constant(u) {
            return Ok(self.constant_lanes(u, shape));
        }
        let parts = self.parts(u)?;
        let own = self.shape(u);
        if own.n == 0 {
            return Ok(SmallVec::from_elem(
                self.broadcast(parts[0], u.dtype(), shape),
                self.count(shape),
            ));
        }
        if own.bytes == shape.bytes {
            return Ok(parts);
        }
        Ok(self.resize(&parts, own, shape.bytes, true))
    }

    /// A source that may be memory: of a vector, its k-th register.
    fn source(&mut self, u: &UOp, shape: Shape, k: usize) -> Result<Operand> {
        let fits = match shape.n {
            0 => true,
            n => {
                let bytes = (n * shape.bytes).min(self.b.vector_bytes());
                self.b.level > Level::V2 && bytes >= 16
            }
        };
        if fits
            && let Some(i) = self.listing.place(u)
            && matches!(self.values[i], Value::Deferred)
            && u.op() == Op::Load
            && self.uses.count(i) == 1
            && (shape.n == 0) == (lanes(u) == 0)
        {
            let by = k * self.b.vector_bytes();
            return self.memory_of(u, by as i64).map(Operand::Mem);
        }
        if shape.n == 0 {
            return Ok(Operand::Reg(self.scalar(u)?));
        }
        Ok(Operand::Reg(self.vector_parts(u, shape)?[k]))
    }

    /// A source that may be memory, or an element of memory in every lane: the k-th register of a vector of floats.
    fn factor(&mut self, u: &'a UOp, shape: Shape, k: usize) -> Result<Operand> {
        if self.is_each(u, shape)
            && let Some(s) = monoglot_uop::linear::splat(u)
        {
            let scalar = Shape { n: 0, ..shape };
            if let Operand::Mem(from) = self.source(s, scalar, 0)? {
                return Ok(Operand::Each(from));
            }
        }
        self.source(u, shape, k)
    }

    /// Whether a vector is an element of memory in every lane, which one instruction alone reads.
    fn is_each(&self, u: &UOp, shape: Shape) -> bool {
        let once = |u: &UOp| {
            let place = self.listing.place(u);
            let waits = |i: usize| matches!(self.values[i], Value::Deferred);
            place.is_some_and(|i| waits(i) && self.uses.count(i) == 1)
        };
        let element = || monoglot_uop::linear::splat(u);
        let whole = self.b.level >= Level::V4 && self.count(shape) == 1 && shape.bytes >= 4;
        let read = |s: &UOp| s.op() == Op::Load && once(s);
        whole && u.op() == Op::Stack && once(u) && element().is_some_and(read)
    }

    /// A variable of the program.
    fn variable(&mut self, i: usize) -> Result<()> {
        let u = &self.list[i];
        let Some(b) = u.buffer_arg() else {
            return Err(self.unsupported(u));
        };
        let slot = b.slot as usize;
        let Some(k) = self.entry.variables.iter().position(|&v| v == slot) else {
            return Err(self.unsupported(u));
        };
        let at = 8 * (self.entry.slots.len() + k) as i32;
        let from = Builder::at(self.entry.arguments, at);
        let reg = match b.dtype {
            DType::F32 => self.b.vector(Vector::Load4F, Width::X, &[from]),
            DType::F64 => self.b.vector(Vector::Load8, Width::X, &[from]),
            d => self.load_general(d, from),
        };
        self.values[i] = Value::Parts(one(reg));
        Ok(())
    }

    fn special(&mut self, i: usize) -> Result<()> {
        let u = &self.list[i];
        match u.arg() {
            Arg::Text(name) if &**name == "tid" => {
                self.values[i] = Value::Parts(one(self.entry.thread));
                Ok(())
            }
            _ => Err(self.unsupported(u)),
        }
    }
}

/// Bits as a general register holds a scalar of a dtype: narrow ones extended to 32 bits by their sign.
fn canonical(bits: u64, d: DType) -> i64 {
    match d {
        DType::I8 => bits as i8 as i32 as u32 as i64,
        DType::I16 => bits as i16 as i32 as u32 as i64,
        DType::I32 => bits as u32 as i64,
        _ => bits as i64,
    }
}

/// A mask of the low bits of each lane.
fn low(bits: usize, lane: usize) -> crate::code::Constant {
    splat(u64::MAX >> (64 - bits), lane)
}

/// Whether a value is a vector of constants.
fn is_constant(u: &UOp) -> bool {
    u.op() == Op::Stack && u.src().iter().all(|s| s.op() == Op::Const)
}
