//! Movement becomes index arithmetic on RANGEs, what is stored is decided, kernels fall out.
//!
//! Flows in: roots over PARAMs; flows out: one value over ranges for everything that is stored. From
//! the roots to the leaves, every node learns at which indices its users want it: an `Instance`. When
//! a node is reached all its users are known, and `cost` decides whether it is stored once and read by
//! each, or computed anew inside each. Invariant: an instance belongs to one kernel, and a stored node
//! depends on stored nodes only through reads of their buffers.

mod apart;
mod below;
mod build;
mod cost;
mod expand;
mod kept;
mod movement;
mod places;
mod shared;

pub(crate) use below::{counted, multiplies};
use cost::Costs;
pub(crate) use movement::{Algebra, Indices};

use monoglot_uop::graph::toposort_many;
use monoglot_uop::own::FunctionInfo;
use monoglot_uop::{Arg, AxisType, Device, Op, Result, Target, UOp, effort};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Most stores of a kernel.
pub(crate) const STORES: usize = 8;

/// What one kernel computes, or one copy moves.
#[derive(Debug)]
pub(crate) struct Stored {
    /// The tensor node that it stores.
    pub(crate) node: UOp,
    /// Its loop ranges, one per axis longer than 1.
    pub(crate) ranges: Vec<UOp>,
    /// The row-major index that an iteration writes.
    pub(crate) index: UOp,
    /// The value of an iteration. For a COPY between devices: the buffer that is copied.
    pub(crate) value: UOp,
    /// The device that holds the result.
    pub(crate) device: Device,
    /// The number of what is stored by the kernel that computes this one as well, over the same ranges.
    pub(crate) host: Option<usize>,
}

/// Everything that is stored, in an order in which no one reads what comes later, and what it is for.
#[derive(Debug)]
pub(crate) struct Stores {
    /// Stored values. The buffer of number `i` is PARAM `inputs + i` in their expressions.
    pub(crate) stored: Vec<Stored>,
    /// How many PARAM numbers the function has.
    pub(crate) inputs: usize,
    /// The PARAM of each number that is used.
    pub(crate) params: FxHashMap<usize, UOp>,
    /// For each root: which stored value or PARAM holds it, and the root over that node.
    pub(crate) outputs: Vec<Output>,
    /// What is called that is the user's own.
    pub(crate) own: Vec<Own>,
}

/// A CALL of a user's own work.
#[derive(Debug)]
pub(crate) struct Own {
    /// The CALL.
    pub(crate) call: UOp,
    /// PARAM numbers of its outputs, each of which is a stored value.
    pub(crate) outs: Vec<usize>,
    /// PARAM numbers of its inputs.
    pub(crate) ins: Vec<usize>,
}

/// Where a root's value is.
#[derive(Debug)]
pub(crate) struct Output {
    /// PARAM number of the buffer: below `inputs` a PARAM of the function.
    pub(crate) slot: usize,
    /// The node that the buffer stores.
    pub(crate) base: UOp,
    /// The root, a view of `base`.
    pub(crate) root: UOp,
}

/// A node wanted somewhere by one kernel.
struct Instance {
    node: u32,
    kernel: u32,
    at: At,
    body: Body,
}

/// Where a value is wanted.
#[derive(Clone)]
struct At {
    indices: Indices,
    /// Outside of it the value means nothing.
    gate: Option<UOp>,
    /// Iterations of the loops around it.
    volume: f64,
    /// Numbers of the ranges with which the reductions around it vary, if there are any (`shared`).
    around: Around,
    /// The number of what is kept whose loops are around it (`kept`); None where the kernel's own are.
    kept: Option<u32>,
}

/// Numbers of ranges, each once.
type Around = SmallVec<[u32; 4]>;

/// How an instance gets its value.
enum Body {
    Pending,
    /// Known as it is.
    Value(UOp),
    /// Read from the buffer of a PARAM number.
    Read(usize),
    /// Read from what the kernel keeps, by number.
    Kept(u32),
    /// The node's op on other instances.
    Apply(Vec<u32>),
    /// Another instance's value.
    Same(u32),
    /// The first whose gate holds, else the last value.
    Choose(Vec<(UOp, u32)>, u32),
    /// A fold over ranges.
    Reduce(u32, Vec<UOp>),
    /// Bits of the source: BITCAST to another width.
    Words(Vec<u32>, UOp),
}

pub(crate) struct Rangeify<'a> {
    nodes: Vec<UOp>,
    number: FxHashMap<UOp, u32>,
    /// Instances wanted of each node.
    wanted: Vec<Vec<u32>>,
    /// Instances by a hash of what they are of, and where.
    places: FxHashMap<u64, SmallVec<[u32; 1]>>,
    instances: Vec<Instance>,
    /// The kernel that stores a node.
    store: Vec<Option<u32>>,
    kernels: Vec<Draft>,
    /// What kernels keep in LOCAL storage.
    kept: Vec<kept::Kept>,
    costs: Costs,
    algebra: Algebra,
    next_range: u32,
    inputs: usize,
    /// The node of each PARAM number.
    params: FxHashMap<usize, UOp>,
    /// Where a graph of constants is computed.
    device: Device,
    /// Reductions of constants, and whether they need no loop.
    closed: &'a mut FxHashMap<UOp, bool>,
    /// Whether any index is a value.
    placeholders: bool,
    target: &'a dyn Fn(Device) -> Result<Arc<Target>>,
}

/// A kernel while it grows.
#[derive(Clone)]
struct Draft {
    node: u32,
    root: u32,
    ranges: Vec<UOp>,
    indices: Indices,
    device: Device,
    size: usize,
    buffers: usize,
    /// The ranges with which its reductions vary, where they are all that is inside of these.
    shared: Option<Vec<UOp>>,
    /// What its greatest product over all of its ranges costs; 0 where it has none.
    product: f64,
    /// Bytes of LOCAL storage for a vector of slices.
    kept: f64,
    /// The kernel that computes this one's value, where another does.
    host: Option<usize>,
    target: Arc<Target>,
}

/// See the module.
pub(crate) fn rangeify(
    roots: &[UOp],
    default: Device,
    target: &dyn Fn(Device) -> Result<Arc<Target>>,
) -> Result<Stores> {
    ranged(roots, default, target, &mut FxHashMap::default())
}

/// The same, for which `closed` holds what is known of reductions of constants.
fn ranged(
    roots: &[UOp],
    default: Device,
    target: &dyn Fn(Device) -> Result<Arc<Target>>,
    closed: &mut FxHashMap<UOp, bool>,
) -> Result<Stores> {
    let nodes = with_all_outputs(sources_first(roots));
    let number: FxHashMap<UOp, u32> = nodes
        .iter()
        .enumerate()
        .map(|(i, u)| (u.clone(), i as u32))
        .collect();
    let of_slot = |u: &UOp| Some((u.buffer_arg()?.slot as usize, u.clone()));
    let params: FxHashMap<usize, UOp> = nodes
        .iter()
        .filter(|u| u.op() == Op::Param)
        .filter_map(of_slot)
        .collect();
    let inputs = params.keys().map(|&k| k + 1).max().unwrap_or(0);
    let device = nodes.iter().find_map(UOp::device).unwrap_or(default);
    let count = nodes.len();
    let mut must = vec![false; count];
    for root in roots {
        must[number[base_of(root)] as usize] = true;
    }
    for n in 0..count {
        // What is copied between devices lies in storage first.
        if nodes[n].op() == Op::Copy {
            must[number[base_of(&nodes[n].src()[0])] as usize] = true;
        }
        // What a user's own work reads and writes is storage.
        if let Some(call) = called(&nodes[n]) {
            must[n] = true;
            for s in inputs_of(call).iter().filter(|s| !s.is_variable()) {
                must[number[base_of(s)] as usize] = true;
            }
        }
    }
    let costs = Costs::new(&nodes, &number, &must);
    let mut r = Rangeify {
        nodes,
        number,
        wanted: vec![Vec::new(); count],
        places: FxHashMap::default(),
        instances: Vec::new(),
        store: vec![None; count],
        kernels: Vec::new(),
        kept: Vec::new(),
        costs,
        algebra: Algebra::default(),
        next_range: 0,
        inputs,
        params,
        device,
        closed,
        placeholders: false,
        target,
    };
    for n in (0..count).rev() {
        r.visit(n as u32, must[n])?;
    }
    let values = r.build()?;
    let outputs = r.outputs(roots);
    let own = r.own();
    Ok(Stores {
        own,
        stored: r.finish(values),
        inputs: r.inputs,
        params: r.params,
        outputs,
    })
}

/// Every node below these roots, sources before users. The higher a source stands over its leaves, the
/// earlier it comes: from the roots on, what is close to a user is met before a long chain of others, in
/// whatever order operands stand, and a kernel that is cut has little of what it wants still before it.
fn sources_first(roots: &[UOp]) -> Vec<UOp> {
    let mut height: FxHashMap<UOp, u32> = FxHashMap::default();
    for u in toposort_many(roots, |_| true) {
        let below = u.src().iter().map(|s| height[s] + 1).max();
        height.insert(u, below.unwrap_or(0));
    }
    let mut out = Vec::with_capacity(height.len());
    let mut seen: FxHashSet<&UOp> = FxHashSet::default();
    let mut stack: Vec<(&UOp, bool)> = roots.iter().rev().map(|r| (r, false)).collect();
    let mut sources: SmallVec<[&UOp; 4]> = SmallVec::new();
    while let Some((u, ready)) = stack.pop() {
        if ready {
            out.push(u.clone());
        } else if seen.insert(u) {
            effort::visited(1 + u.src().len());
            stack.push((u, true));
            sources.extend(u.src().iter().rev().filter(|s| !seen.contains(s)));
            sources.sort_by_key(|s| height[*s]);
            stack.extend(sources.drain(..).map(|s| (s, false)));
        }
    }
    out
}

/// The nodes, and behind them the outputs that nobody wants of a user's own work: it writes them, too.
fn with_all_outputs(mut nodes: Vec<UOp>) -> Vec<UOp> {
    let calls: Vec<UOp> = nodes
        .iter()
        .filter(|u| FunctionInfo::called(u).is_some())
        .cloned()
        .collect();
    for call in calls {
        for output in call.outputs() {
            if !nodes.contains(&output) {
                nodes.push(output);
            }
        }
    }
    nodes
}

/// The CALL of a user's own work that this is an output of.
pub(crate) fn called(u: &UOp) -> Option<&UOp> {
    let call = u.src().first().filter(|_| u.op() == Op::GetTuple)?;
    FunctionInfo::called(call).map(|_| call)
}

/// The inputs of a CALL.
fn inputs_of(call: &UOp) -> &[UOp] {
    match call.arg() {
        Arg::Call(info) => &call.src()[1 + info.outs.len()..],
        _ => &[],
    }
}

/// The node whose storage a root is a view of: a RESHAPE, or a contiguous part, costs nothing.
fn base_of(root: &UOp) -> &UOp {
    let mut u = root;
    while u.op() == Op::Reshape && !u.src()[0].is_variable()
        || u.op() == Op::Shrink && is_contiguous_part(u) && is_stored(&u.src()[0])
    {
        u = &u.src()[0];
    }
    u
}

/// Whether a node, or what it is a view of, has storage of its own whatever the cost says.
pub(crate) fn is_stored(mut u: &UOp) -> bool {
    while u.op() == Op::Reshape || u.op() == Op::Shrink && is_contiguous_part(u) {
        u = &u.src()[0];
    }
    is_argument(u) || matches!(u.op(), Op::Contiguous | Op::After | Op::Copy | Op::GetTuple)
}

/// A PARAM that is storage.
fn is_argument(u: &UOp) -> bool {
    u.op() == Op::Param && !u.is_variable()
}

/// The number of a PARAM.
fn given(u: &UOp) -> usize {
    u.buffer_arg().map_or(0, |b| b.slot as usize)
}

/// A SHRINK that keeps a run of elements: whole axes after the first one that it cuts, and single
/// elements before.
fn is_contiguous_part(u: &UOp) -> bool {
    let from = u.src()[0].shape();
    let to = u.shape();
    let first = to.iter().position(|d| !d.is(1)).unwrap_or(to.len());
    (first + 1..to.len()).all(|i| from[i] == to[i])
}

impl Rangeify<'_> {
    fn visit(&mut self, n: u32, must: bool) -> Result<()> {
        let u = self.nodes[n as usize].clone();
        let wanted = std::mem::take(&mut self.wanted[n as usize]);
        let known = matches!(u.op(), Op::Param | Op::Const);
        let asked = !known && !wanted.is_empty();
        if !must && asked && self.keep(n, &u, &wanted) {
            let fill = self.filled_by(wanted[0]);
            return fill.map_or(Ok(()), |i| self.expand(i, &u));
        }
        let store = must && !is_argument(&u) || asked && self.stores(n, &u, &wanted)?;
        if !store {
            for i in wanted {
                self.expand(i, &u)?;
            }
            return Ok(());
        }
        if !must && self.keep_apart(n, &u, &wanted) {
            let elements = wanted.iter().map(|&i| self.filled_by(i).unwrap_or(i));
            let mut elements: Vec<u32> = elements.collect();
            elements.sort_unstable();
            elements.dedup();
            return elements.into_iter().try_for_each(|i| self.expand(i, &u));
        }
        let slot = self.inputs + self.kernels.len();
        let beside = if must { None } else { self.beside(&u, &wanted) };
        let root = match beside {
            Some(i) => self.store_beside(n, i),
            None => self.open_kernel(n, &u)?,
        };
        self.expand(root, &u)?;
        for i in wanted.into_iter().filter(|&i| i != root) {
            // What is stored anyway may still be cheaper to compute again than to wait for.
            if must && self.recompute(n, i) {
                self.expand(i, &u)?;
            } else {
                let kernel = self.instances[i as usize].kernel as usize;
                self.kernels[kernel].buffers += 1;
                self.instances[i as usize].body = Body::Read(slot);
            }
        }
        Ok(())
    }

    fn open_kernel(&mut self, n: u32, u: &UOp) -> Result<u32> {
        let device = u.device().unwrap_or(self.device);
        let target = (self.target)(device)?;
        let mut ranges = Vec::new();
        let mut indices = Vec::new();
        let mut volume = 1.0;
        for d in u.shape().iter() {
            indices.push(if d.is(1) {
                UOp::index_const(0)
            } else {
                let r = self.range(d.to_uop(), AxisType::Loop);
                ranges.push(r.clone());
                volume *= d.max() as f64;
                r
            });
        }
        let kernel = self.kernels.len() as u32;
        let at = At {
            indices: indices.clone(),
            gate: None,
            volume,
            around: Around::new(),
            kept: None,
        };
        let root = self.instance(Instance {
            node: n,
            kernel,
            at,
            body: Body::Pending,
        });
        self.store[n as usize] = Some(kernel);
        self.kernels.push(Draft {
            node: n,
            root,
            ranges,
            indices,
            device,
            size: 1,
            buffers: 1,
            shared: None,
            product: 0.0,
            kept: 0.0,
            host: None,
            target,
        });
        Ok(root)
    }

    /// Have the kernel of an instance store its value as well.
    fn store_beside(&mut self, n: u32, i: u32) -> u32 {
        let host = self.instances[i as usize].kernel;
        let own = &self.kernels[host as usize];
        let draft = Draft {
            node: n,
            root: i,
            host: Some(host as usize),
            ..own.clone()
        };
        self.store[n as usize] = Some(self.kernels.len() as u32);
        self.kernels.push(draft);
        i
    }

    fn range(&mut self, bound: UOp, axis: AxisType) -> UOp {
        self.next_range += 1;
        UOp::range(monoglot_uop::Dim::of(&bound), self.next_range - 1, axis)
    }

    fn instance(&mut self, new: Instance) -> u32 {
        self.instances.push(new);
        self.instances.len() as u32 - 1
    }

    /// The instance of a node there for the same kernel as `of`.
    fn want(&mut self, of: u32, src: &UOp, at: At) -> u32 {
        let kernel = self.instances[of as usize].kernel;
        let node = self.number[src];
        if src.op() == Op::Const {
            // Constants have users everywhere and need no sharing.
            return self.instance(Instance {
                node,
                kernel,
                at,
                body: Body::Value(src.clone()),
            });
        }
        let key = place(node, kernel, &at);
        let alike = self.places.get(&key).map_or(&[][..], |l| &l[..]);
        effort::visited(1 + alike.len());
        for &i in alike {
            let known = &mut self.instances[i as usize];
            let same = known.node == node && known.kernel == kernel;
            if same && known.at.gate == at.gate && known.at.indices == at.indices {
                known.at.volume = known.at.volume.max(at.volume);
                let new = at.around.iter().filter(|r| !known.at.around.contains(r));
                let new: Around = new.copied().collect();
                known.at.around.extend(new);
                return i;
            }
        }
        let k = &mut self.kernels[kernel as usize];
        k.size += cost::emitted(src, &at, k.target.native);
        k.buffers += usize::from(is_argument(src));
        let i = self.instance(Instance {
            node,
            kernel,
            at,
            body: Body::Pending,
        });
        self.places.entry(key).or_default().push(i);
        self.wanted[node as usize].push(i);
        i
    }

    /// The PARAM number of what is stored, or was given.
    fn slot(&self, base: &UOp) -> usize {
        match self.store[self.number[base] as usize] {
            Some(k) => self.inputs + k as usize,
            None => given(base),
        }
    }

    /// Each CALL of a user's own work.
    fn own(&self) -> Vec<Own> {
        let calls = self
            .nodes
            .iter()
            .filter(|u| FunctionInfo::called(u).is_some());
        let own = |call: &UOp| Own {
            call: call.clone(),
            outs: call.outputs().iter().map(|u| self.slot(u)).collect(),
            ins: inputs_of(call)
                .iter()
                .map(|u| match u.is_variable() {
                    true => given(u),
                    false => self.slot(base_of(u)),
                })
                .collect(),
        };
        calls.map(own).collect()
    }

    fn outputs(&self, roots: &[UOp]) -> Vec<Output> {
        let find = |root: &UOp| {
            let base = base_of(root);
            let slot = self.slot(base);
            Output {
                slot,
                base: base.clone(),
                root: root.clone(),
            }
        };
        roots.iter().map(find).collect()
    }

    fn finish(&self, values: Vec<(UOp, UOp)>) -> Vec<Stored> {
        let stored = self
            .kernels
            .iter()
            .zip(values)
            .map(|(k, (value, index))| Stored {
                node: self.nodes[k.node as usize].clone(),
                ranges: k.ranges.clone(),
                index,
                value,
                device: k.device,
                host: k.host,
            });
        stored.collect()
    }

    /// The buffer of a PARAM number, flat.
    fn buffer(&self, slot: usize) -> UOp {
        let node = match slot.checked_sub(self.inputs) {
            None => self.params.get(&slot),
            Some(kernel) => self.nodes.get(self.kernels[kernel].node as usize),
        };
        let node = node.expect("every PARAM number names a PARAM or a kernel");
        let device = if slot < self.inputs {
            node.device()
        } else {
            Some(self.kernels[slot - self.inputs].device)
        };
        flat(slot, node, device)
    }
}

/// A hash of where a node is wanted.
fn place(node: u32, kernel: u32, at: &At) -> u64 {
    let mut h = FxHasher::default();
    (node, kernel, &at.gate, &at.indices).hash(&mut h);
    h.finish()
}

/// A PARAM for the storage of a node.
pub(crate) fn flat(slot: usize, node: &UOp, device: Option<Device>) -> UOp {
    let len = node.shape().max_len();
    UOp::param(
        slot as u64,
        &monoglot_uop::Shape::of(&[len]),
        node.dtype(),
        device,
    )
}

/// Whether an index is, or is made of, a value that is not known yet.
fn has_placeholder(index: &UOp) -> bool {
    let stands = |u: &UOp| {
        u.buffer_arg()
            .is_some_and(|b| b.slot >= placeholder_slot(0))
    };
    index.ops_below().contains(Op::Param) && index.toposort().iter().any(stands)
}

/// The number of an argument that only stands for an instance until its value is known.
fn placeholder_slot(instance: u32) -> u64 {
    1 << 32 | instance as u64
}
