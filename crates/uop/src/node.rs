//! The interned node. `(op, src, arg, tag)` is looked up in a global sharded table of weak
//! references; equal tuples are one allocation, so pointer equality is structural equality. Flows
//! in: tuples; flows out: the one node of each, or the error that its properties have.
//!
//! Eager at construction: structural hash, dtype, shape, device, the set of ops below. Lazy: bounds,
//! ranges, sharding axis, structural key. Beside it, outside identity: the first caller's line and the
//! storage. A node unlinks itself by address when it is dropped; drops are iterative.

use crate::arg::Arg;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::numbers;
use crate::op::{Op, OpSet};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::slots;
use hashbrown::HashTable;
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::panic::Location;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Sources of a node.
pub type Srcs = SmallVec<[UOp; 3]>;

/// A node of the graph: a shared pointer to an interned `(op, src, arg, tag)`.
#[derive(Clone)]
pub struct UOp(Arc<Node>);

/// A reference that does not keep the node alive.
#[derive(Clone)]
pub struct WeakUOp(Weak<Node>);

struct Node {
    op: Op,
    dtype: DType,
    tag: u32,
    hash: u64,
    order: u64,
    /// The part of the table that it is in (see `home`).
    home: u32,
    below: OpSet,
    src: Srcs,
    arg: Arg,
    shape: Shape,
    device: Option<Device>,
    bounds: OnceLock<Option<Box<(Scalar, Scalar)>>>,
    ranges: OnceLock<Ranges>,
    // What identity ignores.
    number: u32,
    origin: &'static Location<'static>,
    beside: OnceLock<Box<Beside>>,
}

/// What few nodes have, and identity ignores.
#[derive(Default)]
struct Beside {
    line: OnceLock<&'static Location<'static>>,
    storage: Mutex<Option<Storage>>,
    /// The BUFFER that holds an expression's value while somebody holds that BUFFER; itself where what
    /// the expression reads is no longer there to compute it again.
    realized: Mutex<Option<(WeakUOp, Option<UOp>)>>,
    shortcut: OnceLock<Shortcut>,
}

/// A list of RANGEs, shared.
#[derive(Clone, Default, PartialEq)]
pub struct Ranges(Option<Arc<[UOp]>>);

impl From<Vec<UOp>> for Ranges {
    fn from(ranges: Vec<UOp>) -> Ranges {
        Ranges((!ranges.is_empty()).then(|| ranges.into()))
    }
}

impl std::ops::Deref for Ranges {
    type Target = [UOp];

    fn deref(&self) -> &[UOp] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// What a node is given when it is made.
pub(crate) struct Properties {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) device: Option<Device>,
}

/// A known derivative.
pub struct Shortcut {
    /// The nodes below on which the composition depends.
    pub inputs: Srcs,
    /// Numbers that the rule needs (strides, sizes).
    pub params: Box<[i64]>,
    /// What flows to each input; None where nothing does.
    pub rule: Rule,
}

/// See `Shortcut`.
pub type Rule = fn(&Flow<'_>) -> Result<Vec<Option<UOp>>>;

/// What a `Rule` is told.
pub struct Flow<'a> {
    /// The node that has the shortcut.
    pub y: &'a UOp,
    /// Its inputs.
    pub inputs: &'a [UOp],
    /// Its numbers.
    pub params: &'a [i64],
    /// What flows to the node.
    pub g: &'a UOp,
    /// Which inputs are asked for; what a rule gives for others is not used.
    pub wanted: &'a [bool],
}

/// What the device room keeps with a BUFFER.
pub type Storage = Arc<dyn Any + Send + Sync>;

const HOMES: usize = 16;
const SHARDS: usize = 64;
static TABLE: [[Mutex<Shard>; SHARDS]; HOMES] =
    [const { [const { Mutex::new(Shard::new()) }; SHARDS] }; HOMES];

/// A part of the table.
struct Shard {
    nodes: HashTable<(u64, Weak<Node>)>,
    /// How many were ever entered: as long as it stays, what was not found is not there.
    entered: u64,
}

impl Shard {
    const fn new() -> Shard {
        Shard {
            nodes: HashTable::new(),
            entered: 0,
        }
    }
}

fn shard(hash: u64, home: u32) -> &'static Mutex<Shard> {
    &TABLE[home as usize % HOMES][(hash >> 58) as usize % SHARDS]
}

/// The part of the table for a tuple: that of the thread which made the youngest BUFFER below, or the first, which
/// all threads share. So threads that compute with data of their own do not meet each other there.
fn home(op: Op, src: &[UOp], arg: &Arg) -> u32 {
    let own = match (op, arg) {
        (Op::Buffer, Arg::Buffer(b)) => slots::block(b.slot),
        _ => 0,
    };
    src.iter().fold(own, |home, u| home.max(u.0.home))
}

impl UOp {
    /// The node of this tuple: the one that there is, or a new one that has what `derive` gives.
    pub(crate) fn interned(
        (op, src, arg, tag): (Op, Srcs, Arg, u32),
        origin: &'static Location<'static>,
        derive: fn(Op, &[UOp], &Arg) -> Result<Properties>,
    ) -> Result<UOp> {
        crate::effort::asked(src.len());
        let (hash, order) = hashes(op, &src, &arg, tag);
        let home = home(op, &src, &arg);
        let same = |n: &Node| n.op == op && n.tag == tag && n.src == src && n.arg == arg;
        let entered = match lookup((hash, home), same) {
            Ok(found) => return Ok(found),
            Err(entered) => entered,
        };
        let properties = derive(op, &src, &arg).map_err(|e| e.at(origin))?;
        let below = src.iter().fold(OpSet::of(&[op]), |s, u| s.union(u.0.below));
        let node = Arc::new(Node {
            op,
            dtype: properties.dtype,
            tag,
            hash,
            order,
            home,
            below,
            src,
            arg,
            shape: properties.shape,
            device: properties.device,
            bounds: OnceLock::new(),
            ranges: OnceLock::new(),
            number: numbers::take(),
            origin,
            beside: OnceLock::new(),
        });
        Ok(enter(node, entered))
    }

    /// What the device room keeps with a BUFFER: its storage.
    pub fn storage(&self) -> Option<Storage> {
        let beside = self.0.beside.get()?;
        unpoisoned(&beside.storage).clone()
    }
    /// As `storage`; where there is none, what `make` gives is there from now on, for all threads.
    pub fn storage_or(&self, make: impl FnOnce() -> Storage) -> Storage {
        let mut storage = unpoisoned(&self.beside().storage);
        storage.get_or_insert_with(make).clone()
    }
    /// Give a BUFFER its storage, in place of what it had.
    pub fn set_storage(&self, storage: Storage) {
        *unpoisoned(&self.beside().storage) = Some(storage);
    }
    /// The BUFFER (or view of one) that holds this expression's value, if it is still alive.
    pub fn realized(&self) -> Option<UOp> {
        let realized = unpoisoned(&self.0.beside.get()?.realized);
        realized.as_ref().and_then(|(buffer, _)| buffer.upgrade())
    }
    /// Remember where this expression's value is; `keep` it alive with the expression, or not.
    pub fn set_realized(&self, buffer: &UOp, keep: bool) {
        *unpoisoned(&self.beside().realized) =
            Some((buffer.downgrade(), keep.then(|| buffer.clone())));
    }

    /// The user's line that made a tensor of this node, if any has.
    pub fn line(&self) -> Option<&'static Location<'static>> {
        self.0.beside.get()?.line.get().copied()
    }
    /// Remember the user's line that made a tensor of this node; the first one stays.
    pub fn set_line(&self, line: &'static Location<'static>) {
        let _ = self.beside().line.set(line);
    }

    /// The derivative that its builder knows for this node, if any (see `Shortcut`).
    pub fn shortcut(&self) -> Option<&Shortcut> {
        self.0.beside.get()?.shortcut.get()
    }
    /// This node with a derivative that its builder knows; the first one given stays.
    pub fn with_shortcut(self, shortcut: Shortcut) -> UOp {
        let _ = self.beside().shortcut.set(shortcut);
        self
    }

    pub(crate) fn bounds_cell(&self) -> &OnceLock<Option<Box<(Scalar, Scalar)>>> {
        &self.0.bounds
    }
    pub(crate) fn ranges_cell(&self) -> &OnceLock<Ranges> {
        &self.0.ranges
    }
    fn beside(&self) -> &Beside {
        self.0.beside.get_or_init(Box::default)
    }
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $type:ty = |$node:ident| $value:expr;)*) => { impl UOp { $(
        $(#[$doc])*
        pub fn $name(&self) -> $type {
            let $node = &self.0;
            $value
        }
    )* } };
}
fields! {
    /// The operation.
    op: Op = |n| n.op;
    /// The sources.
    src: &[UOp] = |n| &n.src;
    /// The op-dependent part.
    arg: &Arg = |n| &n.arg;
    /// The tag; 0 where there is none.
    tag: u32 = |n| n.tag;
    /// Element type.
    dtype: DType = |n| n.dtype;
    /// Shape.
    shape: &Shape = |n| &n.shape;
    /// Device, where one of the sources has one.
    device: Option<Device> = |n| n.device;
    /// Every op of this graph.
    ops_below: OpSet = |n| n.below;
    /// A hash of the structure, equal in every process.
    structural_hash: u64 = |n| n.hash;
    /// Canonical order of operands: a structural hash that ignores slots, versions and what variables are bound to.
    order_key: u64 = |n| n.order;
    /// The line that first built this node.
    origin: &'static Location<'static> = |n| n.origin;
    /// A small number that no other living node has; never to be used for an order.
    number: usize = |n| n.number as usize;
    /// A number that no other living node has; never to be used for an order.
    address: usize = |n| Arc::as_ptr(n) as usize;
    /// A reference that does not keep the node alive.
    downgrade: WeakUOp = |n| WeakUOp(Arc::downgrade(n));
    /// How many owners the node has now (a race may change it at once).
    owners: usize = |n| Arc::strong_count(n);
}

fn unpoisoned<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Cells hold plain values and the table changes by single calls: whatever panicked, they are whole.
    m.lock().unwrap_or_else(|e| e.into_inner())
}

impl WeakUOp {
    /// The node, if it is still alive.
    pub fn upgrade(&self) -> Option<UOp> {
        self.0.upgrade().map(UOp)
    }
}

fn hashes(op: Op, src: &[UOp], arg: &Arg, tag: u32) -> (u64, u64) {
    let mut h = FxHasher::default();
    let mut o = FxHasher::default();
    h.write_u64(op.name_hash() ^ tag as u64);
    o.write_u64(op.name_hash());
    if !matches!(arg, Arg::None) {
        arg.hash(&mut h);
    }
    match arg {
        Arg::None => {}
        Arg::Buffer(b) => (b.dtype, b.device, b.addrspace).hash(&mut o),
        arg => arg.hash(&mut o),
    }
    // What a variable is bound to, its fourth source, is as little of its order as a slot.
    let ordered = if op == Op::Param { 3 } else { src.len() };
    for (k, s) in src.iter().enumerate() {
        h.write_u64(s.0.hash);
        if k < ordered {
            o.write_u64(s.0.order);
        }
    }
    (mix(h.finish()), mix(o.finish()))
}

/// Spread the bits (the finaliser of MurmurHash3), as shards use the high ones and tables the low.
fn mix(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

/// The node of this hash for which `same` holds; where there is none, how many were ever entered beside it.
fn lookup((hash, home): (u64, u32), same: impl Fn(&Node) -> bool) -> std::result::Result<UOp, u64> {
    let shard = unpoisoned(shard(hash, home));
    let (found, revived) = shard.find(hash, same);
    let entered = shard.entered;
    drop(shard);
    drop(revived);
    found.ok_or(entered)
}

/// Enter a node in the table where, since so many were entered, no other thread has made its like; that one else.
fn enter(node: Arc<Node>, entered: u64) -> UOp {
    let hash = node.hash;
    let same =
        |n: &Node| n.op == node.op && n.tag == node.tag && n.src == node.src && n.arg == node.arg;
    let mut shard = unpoisoned(shard(hash, node.home));
    let (found, revived) = match shard.entered == entered {
        true => Default::default(),
        false => shard.find(hash, same),
    };
    if found.is_none() {
        shard.entered += 1;
        let weak = Arc::downgrade(&node);
        shard.nodes.insert_unique(hash, (hash, weak), |(h, _)| *h);
    }
    drop(shard);
    drop(revived);
    found.unwrap_or(UOp(node))
}

/// References that may turn out to be the last, and are dropped once the table is unlocked.
type Revived = SmallVec<[Arc<Node>; 2]>;

impl Shard {
    /// The node of this hash for which `same` holds, and others that were looked at.
    fn find(&self, hash: u64, same: impl Fn(&Node) -> bool) -> (Option<UOp>, Revived) {
        let mut revived = Revived::new();
        let found = self.nodes.find(hash, |(h, weak)| {
            let Some(n) = (if *h == hash { weak.upgrade() } else { None }) else {
                return false;
            };
            revived.push(n);
            revived.last().is_some_and(|n| same(n))
        });
        let found = found.is_some().then(|| revived.pop()).flatten();
        (found.map(UOp), revived)
    }
}

thread_local! {
    static DRAINING: Cell<bool> = const { Cell::new(false) };
    static PENDING: RefCell<Vec<UOp>> = const { RefCell::new(Vec::new()) };
}

impl Drop for Node {
    fn drop(&mut self) {
        let me = self as *const Node;
        let mut shard = unpoisoned(shard(self.hash, self.home));
        // Losing the race for insertion, a node is dropped without being in the table.
        let is_me = |(_, weak): &(u64, Weak<Node>)| weak.as_ptr() == me;
        if let Ok(entry) = shard.nodes.find_entry(self.hash, is_me) {
            entry.remove();
        }
        drop(shard);
        let mut src = std::mem::take(&mut self.src);
        numbers::give(self.number);
        if let Some(beside) = self.beside.take() {
            let realized = beside.realized.into_inner();
            if let Some((_, Some(kept))) = realized.unwrap_or_else(|e| e.into_inner()) {
                src.push(kept);
            }
            if let Some(shortcut) = beside.shortcut.into_inner() {
                src.extend(shortcut.inputs);
            }
        }
        if src.is_empty() {
            return;
        }
        // Children wait in a list that the outermost drop empties, so depth stays constant. Where a
        // thread's locals are gone already, as it ends, there is no list and they are dropped here.
        let queued = PENDING
            .try_with(|p| p.borrow_mut().extend(src.drain(..)))
            .is_ok();
        if !queued || DRAINING.with(|d| d.replace(true)) {
            return;
        }
        while let Some(u) = PENDING.with(|p| p.borrow_mut().pop()) {
            drop(u);
        }
        DRAINING.with(|d| d.set(false));
    }
}

impl PartialEq for UOp {
    fn eq(&self, other: &UOp) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for UOp {}
impl AsRef<UOp> for UOp {
    fn as_ref(&self) -> &UOp {
        self
    }
}
impl Hash for UOp {
    fn hash<H: Hasher>(&self, h: &mut H) {
        h.write_u64(self.0.hash);
    }
}
impl std::fmt::Debug for UOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}:{}{:?}[{}]",
            self.op().name(),
            self.dtype(),
            self.shape(),
            self.src().len()
        )
    }
}
