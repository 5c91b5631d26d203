//! One order for everything. Flows in: a kernel of scalars and vectors; flows out: a LINEAR in which
//! every operand stands before its users and every loop is a contiguous run from its RANGE to its END.
//! Invariant: a value stands in the outermost loop that holds all the loops on which it depends, so
//! what a loop does not change is computed before it; loops are opened as late as their results allow.
//!
//! Within a block the order is depth first from the effects, which keeps values close to their uses.
//! Accumulators that one loop updates in several steps take each step together, so that the operands
//! of a step die before those of the next are read.

use crate::graph::{sorted, wide_bits};
use crate::memory::in_registers;
use monoglot_uop::linear::{gathered, splat};
use monoglot_uop::{AddrSpace, Arg, ErrorKind, Op, Result, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

const ROOT: u32 = u32::MAX;
/// The number of what has none.
const NONE: u32 = u32::MAX;

#[derive(Default)]
struct Graph {
    nodes: Vec<UOp>,
    src: Vec<SmallVec<[u32; 4]>>,
    /// The RANGE that each loop opens and the END that closes it.
    range: Vec<u32>,
    end: Vec<u32>,
    /// The loop around each loop.
    parent: Vec<u32>,
    depth: Vec<u32>,
    /// The loop in which each node stands; a RANGE and an END stand in that around theirs.
    block: Vec<u32>,
    /// By loop: what must stand before it, in the block around it.
    needs: Vec<Vec<u32>>,
    /// By STORE, or loop with one: the LOADs, or loops with one, of what it overwrites, which come first.
    before: FxHashMap<u32, Vec<u32>>,
    /// By what picks lanes of two vectors: the others that do so of the same two.
    twins: FxHashMap<u32, SmallVec<[u32; 2]>>,
    /// How many vectors are held at once.
    registers: usize,
}

/// Order the nodes of a kernel for a machine with so many vector registers.
pub(crate) fn linearize(kernel: &UOp, registers: usize) -> Result<UOp> {
    let mut g = Graph::new(kernel)?;
    g.registers = registers;
    let order = g.order()?;
    let list: SmallVec<[UOp; 3]> = order
        .into_iter()
        .map(|i| g.nodes[i as usize].clone())
        .collect();
    Ok(UOp::new(Op::Linear, list, Arg::None))
}

/// A LOAD or STORE: of which storage, and of which element where that is known.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct MemoryOp {
    storage: u32,
    place: Option<i64>,
    node: u32,
    writes: bool,
}

/// For every node, behind which of the numbered STOREs it stands.
struct Behind {
    words: usize,
    sets: Vec<u64>,
}

impl Behind {
    fn of(g: &Graph, accesses: &[MemoryOp], number: &[u32], count: usize) -> Behind {
        let words = count.div_ceil(64);
        let mut sets = vec![0u64; g.nodes.len() * words];
        // Members of sets are added where the nodes before have theirs.
        let mut own: Vec<u32> = accesses
            .iter()
            .filter(|a| a.writes)
            .map(|a| a.node)
            .collect();
        own.sort_unstable();
        let mut own = own.into_iter().peekable();
        for (i, (sources, &k)) in g.src.iter().zip(number).enumerate() {
            let (before, set) = sets.split_at_mut(i * words);
            for &s in sources {
                let of_source = &before[s as usize * words..][..words];
                for (held, source) in set.iter_mut().zip(of_source) {
                    *held |= source;
                }
            }
            if own.next_if_eq(&(i as u32)).is_some() && k != NONE {
                set[k as usize / 64] |= 1 << (k % 64);
            }
        }
        Behind { words, sets }
    }

    fn contains(&self, node: u32, store: u32) -> bool {
        let set = &self.sets[node as usize * self.words..];
        set[store as usize / 64] >> (store % 64) & 1 == 1
    }
}

fn broken(message: &str) -> monoglot_uop::Error {
    ErrorKind::Verify {
        stage: "linearize".into(),
        message: message.into(),
    }
    .into()
}

/// Sources that are instructions: the extents of storage are not.
fn operands(u: &UOp) -> &[UOp] {
    if matches!(u.op(), Op::Param | Op::Buffer) {
        &[]
    } else {
        u.src()
    }
}

impl Graph {
    fn new(kernel: &UOp) -> Result<Graph> {
        let (nodes, src) = sorted(kernel, operands);
        let range: Vec<u32> = (0..nodes.len() as u32)
            .filter(|&i| nodes[i as usize].op() == Op::Range)
            .collect();
        let loops = range.len();
        let mut g = Graph {
            end: vec![ROOT; loops],
            parent: vec![ROOT; loops],
            depth: vec![0; loops],
            needs: vec![Vec::new(); loops],
            nodes,
            src,
            range,
            ..Graph::default()
        };
        let mut open = g.open(&FxHashMap::default())?;
        let mut more = g.filled_anew(&open);
        g.closed_unvaried(&open, &mut more);
        if !more.is_empty() {
            open = g.open(&more)?;
        }
        g.nest(&open)?;
        let block = |(i, &open)| {
            g.loop_of(i as u32)
                .map_or_else(|| g.deepest(open), |k| g.parent[k])
        };
        g.block = open.iter().enumerate().map(block).collect();
        g.enclose();
        g.hazards()?;
        g.collect_needs();
        g.find_twins();
        Ok(g)
    }

    /// What picks lanes of the same two vectors stands together: these are often needed by nobody else.
    fn find_twins(&mut self) {
        let picks = |i: u32| self.nodes[i as usize].op() == Op::Shuffle;
        let of = |i: u32| {
            let ([a, b], _) = gathered(&self.nodes[i as usize])?;
            Some(([a.address(), b.address()], self.block[i as usize]))
        };
        let mut by: FxHashMap<([usize; 2], u32), SmallVec<[u32; 2]>> = FxHashMap::default();
        for i in (0..self.nodes.len() as u32).filter(|&i| picks(i)) {
            if let Some(of) = of(i) {
                by.entry(of).or_default().push(i);
            }
        }
        for all in by.into_values().filter(|all| all.len() > 1) {
            for &i in &all {
                let others = all.iter().copied().filter(|&j| j != i);
                self.twins.insert(i, others.collect());
            }
        }
    }

    fn loop_of(&self, range: u32) -> Option<usize> {
        self.range.iter().position(|&r| r == range)
    }

    /// The open loops of every node, of some STOREs more than those on which they depend.
    fn open(&mut self, more: &FxHashMap<u32, u128>) -> Result<Vec<u128>> {
        self.end.fill(ROOT);
        let mut open: Vec<u128> = Vec::with_capacity(self.nodes.len());
        for i in 0..self.nodes.len() {
            let mut mask = self.src[i].iter().fold(0, |m, &s| m | open[s as usize]);
            match self.nodes[i].op() {
                Op::Range => mask |= self.loop_of(i as u32).map_or(0, |k| 1 << k),
                Op::End => {
                    let Some(k) = self.loop_of(self.src[i][1]) else {
                        return Err(broken("an END of no RANGE"));
                    };
                    if self.end[k] != ROOT || self.src[i].len() != 2 {
                        return Err(broken("a loop that is closed twice, or an END of several"));
                    }
                    self.end[k] = i as u32;
                    mask &= !(1 << k);
                }
                Op::Store | Op::AtomicAdd => mask |= more.get(&(i as u32)).copied().unwrap_or(0),
                _ => {}
            }
            open.push(mask);
        }
        Ok(open)
    }

    /// STOREs to storage which one value takes over from another, by the loops in which it does: the next turn of these
    /// finds the last value, so storage is filled anew in each, whether what is stored varies or not. What a turn takes
    /// over from the one before it reads behind a RANGE.
    fn filled_anew(&self, open: &[u128]) -> FxHashMap<u32, u128> {
        let mut filled: FxHashMap<u32, Vec<(u32, &[u32])>> = FxHashMap::default();
        for (i, u) in self.nodes.iter().enumerate() {
            let [storage, effects @ ..] = &self.src[i][..] else {
                continue;
            };
            let void = |&e: &u32| self.nodes[e as usize].op().is_void();
            let fills = u.op() == Op::After && self.nodes[*storage as usize].op() == Op::Buffer;
            if fills && effects.iter().all(void) {
                filled
                    .entry(*storage)
                    .or_default()
                    .push((i as u32, effects));
            }
        }
        let mut more: FxHashMap<u32, u128> = FxHashMap::default();
        // By node, the last name from which it was met.
        let mut met = vec![NONE; self.nodes.len()];
        for (&storage, names) in filled.iter().filter(|(_, names)| names.len() > 1) {
            for (name, effects) in names {
                let around = effects.iter().fold(0, |m, &e| m | open[e as usize]);
                let stores = self.stores(storage, effects);
                for &store in &stores {
                    *more.entry(store).or_default() |= around;
                    met[store as usize] = *name;
                }
                let mut stack: Vec<u32> = stores;
                while let Some(i) = stack.pop() {
                    if let Some((_, first)) = names.iter().find(|(n, _)| *n == i && i != *name) {
                        for store in self.stores(storage, first) {
                            *more.entry(store).or_default() |= around;
                        }
                    }
                    let new = |s: &&u32| std::mem::replace(&mut met[**s as usize], *name) != *name;
                    stack.extend(self.src[i as usize].iter().filter(new));
                }
            }
        }
        more
    }

    /// STOREs that are closed by a loop and do not vary with it, by that loop: one of a length of 0 or 1, in whose only
    /// turn its index is 0.
    fn closed_unvaried(&self, open: &[u128], more: &mut FxHashMap<u32, u128>) {
        for (k, &end) in self.end.iter().enumerate().filter(|(_, end)| **end != ROOT) {
            for store in self.effects(&[end]) {
                if open[store as usize] >> k & 1 == 0 {
                    *more.entry(store).or_default() |= 1 << k;
                }
            }
        }
    }

    /// The STOREs to a storage among effects.
    fn stores(&self, storage: u32, effects: &[u32]) -> Vec<u32> {
        let mut all = self.effects(effects);
        let to = |i: &u32| self.src[self.src[*i as usize][0] as usize].first();
        all.retain(|i| to(i) == Some(&storage));
        all
    }

    /// What is written by effects.
    fn effects(&self, of: &[u32]) -> Vec<u32> {
        let mut stack: Vec<u32> = of.to_vec();
        let mut out = Vec::new();
        while let Some(i) = stack.pop() {
            let src = &self.src[i as usize];
            match self.nodes[i as usize].op() {
                Op::Store | Op::AtomicAdd => out.push(i),
                Op::End => stack.push(src[0]),
                Op::Group | Op::Barrier => stack.extend(src),
                _ => {}
            }
        }
        out
    }

    /// Which loop stands in which: a loop whose END still depends on others stands inside those.
    fn nest(&mut self, open: &[u128]) -> Result<()> {
        let loops = self.range.len();
        if self.end.contains(&ROOT) {
            return Err(broken("a loop that is never closed"));
        }
        // A loop stands after those around it, so as many rounds as loops settle all depths.
        for _ in 0..loops + 2 {
            let before = self.depth.clone();
            for k in 0..loops {
                self.parent[k] = self.deepest(open[self.end[k] as usize]);
                self.depth[k] = 1 + self
                    .depth
                    .get(self.parent[k] as usize)
                    .copied()
                    .unwrap_or(0);
            }
            if self.depth == before {
                return Ok(());
            }
        }
        Err(broken("loops that stand inside each other"))
    }

    fn deepest(&self, mask: u128) -> u32 {
        wide_bits(mask)
            .max_by_key(|&k| self.depth[k])
            .map_or(ROOT, |k| k as u32)
    }

    /// What an END runs stands in its loop, also where it does not depend on it.
    fn enclose(&mut self) {
        for k in 0..self.range.len() {
            let mut stack: SmallVec<[u32; 8]> = self.src[self.end[k] as usize][..1].into();
            while let Some(i) = stack.pop() {
                let mut at = self.block[i as usize];
                while at != ROOT && at != k as u32 {
                    at = self.parent[at as usize];
                }
                if at == ROOT && self.nodes[i as usize].op().is_void() {
                    self.block[i as usize] = k as u32;
                    if self.nodes[i as usize].op() == Op::Group {
                        stack.extend(self.src[i as usize].iter().copied());
                    }
                }
            }
        }
    }

    /// Reads of storage come before the writes that they do not stand behind: what a kernel reads of its
    /// arguments is what was there before it, and what a turn reads of storage of its own is what was there
    /// before that turn overwrote it.
    fn hazards(&mut self) -> Result<()> {
        let accesses = self.accesses();
        // By node, which of the STOREs to storage that is read as well it is.
        let mut number: Vec<u32> = Vec::new();
        let mut count = 0;
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        for all in accesses.chunk_by(|a, b| a.storage == b.storage) {
            let (stores, loads): (Vec<&MemoryOp>, Vec<&MemoryOp>) =
                all.iter().partition(|a| a.writes);
            if stores.is_empty() || loads.is_empty() {
                continue;
            }
            number.resize(self.nodes.len(), NONE);
            for store in &stores {
                number[store.node as usize] = count;
                count += 1;
            }
            // Both are sorted by place; what is at no known place, which may meet each, comes first.
            let unknown = stores.partition_point(|a| a.place.is_none());
            for load in loads {
                let there = stores.partition_point(|a| a.place < load.place.max(Some(i64::MIN)));
                let meets = |store: &&&MemoryOp| load.place.is_none() || store.place == load.place;
                let known = stores[there.max(unknown)..].iter().take_while(meets);
                let meeting = stores[..unknown].iter().chain(known);
                pairs.extend(meeting.map(|store| (store.node, load.node)));
            }
        }
        if pairs.is_empty() {
            return Ok(());
        }
        let behind = Behind::of(self, &accesses, &number, count as usize);
        for (store, load) in pairs {
            let k = number[store as usize];
            if behind.contains(load, k) || self.apart(store, load) {
                continue;
            }
            let common = self.common_block(store, load);
            let first = self.item(load, common);
            let then = self.item(store, common);
            if !behind.contains(first, k) {
                self.before.entry(then).or_default().push(first);
            } else if self.nodes[store as usize].src()[0].addrspace() != Some(AddrSpace::Global) {
                return Err(broken("storage is overwritten before all of it is read"));
            }
        }
        Ok(())
    }

    /// Whether two accesses of a block are of elements that lie so far from one place that none is of both.
    fn apart(&self, a: u32, b: u32) -> bool {
        let span = |i: u32| {
            let to = &self.nodes[self.src[i as usize][0] as usize];
            let [_, index, size @ ..] = to.src() else {
                return None;
            };
            let index = match index.op() {
                Op::Stack => index.src().first()?,
                _ => index,
            };
            let elements = match size.first().map(UOp::src) {
                Some([n]) => n.as_int()?,
                Some(_) => return None,
                None => 1,
            };
            let (from, by) = match index.src() {
                [from, by] if index.op() == Op::Add && by.op() == Op::Const => (from, by.as_int()?),
                _ => (index, 0),
            };
            Some((from.clone(), by, elements))
        };
        let (Some((x, first, n)), Some((y, second, m))) = (span(a), span(b)) else {
            return false;
        };
        let same = self.block[a as usize] == self.block[b as usize] && x == y;
        same && (first + n <= second || second + m <= first)
    }

    /// LOADs and STOREs, by storage and by place.
    fn accesses(&self) -> Vec<MemoryOp> {
        let mut out = Vec::new();
        for (i, u) in self.nodes.iter().enumerate() {
            if !matches!(u.op(), Op::Load | Op::Store | Op::AtomicAdd) {
                continue;
            }
            let address = self.src[i][0] as usize;
            let Some(&named) = self.src[address].first() else {
                continue;
            };
            let mut storage = named as usize;
            while self.nodes[storage].op() == Op::After {
                storage = self.src[storage][0] as usize;
            }
            // Lanes are at several places.
            let index = &self.nodes[address];
            let known = (index.op() == Op::Index).then(|| index.src()[1].as_int());
            out.push(MemoryOp {
                storage: storage as u32,
                place: known.flatten(),
                node: i as u32,
                writes: u.op() != Op::Load,
            });
        }
        out.sort_unstable();
        out
    }

    /// The innermost block around two nodes.
    fn common_block(&self, a: u32, b: u32) -> u32 {
        let mut around: SmallVec<[u32; 8]> = SmallVec::new();
        let mut at = self.block[a as usize];
        while at != ROOT {
            around.push(at);
            at = self.parent[at as usize];
        }
        let mut at = self.block[b as usize];
        while at != ROOT && !around.contains(&at) {
            at = self.parent[at as usize];
        }
        at
    }

    /// The node of a block in which this one stands: itself, or the END of a loop.
    fn item(&self, i: u32, block: u32) -> u32 {
        let mut item = i;
        let mut at = self.block[i as usize];
        while at != block && at != ROOT {
            item = self.end[at as usize];
            at = self.parent[at as usize];
        }
        item
    }

    /// For every loop what it takes from the block around it, in order.
    fn collect_needs(&mut self) {
        let mut seen: FxHashSet<(u32, u32)> = FxHashSet::default();
        for i in 0..self.nodes.len() {
            let from = self.block[i];
            for &s in &self.src[i] {
                let to = self.block[s as usize];
                if to == from {
                    continue;
                }
                // The loop just inside the source's block, on the way to the user.
                let mut k = from;
                while k != ROOT && self.parent[k as usize] != to {
                    k = self.parent[k as usize];
                }
                if k != ROOT && self.range[k as usize] != s && seen.insert((k, s)) {
                    self.needs[k as usize].push(s);
                }
            }
        }
    }

    /// What must stand directly before a node in its block.
    fn operands_in_block(&self, i: u32) -> SmallVec<[u32; 8]> {
        let block = self.block[i as usize];
        let mut out: SmallVec<[u32; 8]> = SmallVec::new();
        let mut add = |&s: &u32| {
            if self.block[s as usize] == block && self.nodes[s as usize].op() != Op::Range {
                out.push(s);
            }
        };
        self.src[i as usize].iter().for_each(&mut add);
        // Most of what is overwritten is an operand too, and read where that is wanted.
        if let Some(overwritten) = self.before.get(&i) {
            overwritten.iter().for_each(add);
        }
        out
    }

    fn order(&self) -> Result<Vec<u32>> {
        let n = self.nodes.len();
        let mut out: Vec<u32> = Vec::with_capacity(n);
        let mut seen = vec![false; n];
        let mut stack: Vec<(u32, bool)> = vec![(n as u32 - 1, false)];
        while let Some((i, ready)) = stack.pop() {
            if ready {
                out.push(i);
                let twins = self.twins.get(&i).into_iter().flatten().rev();
                stack.extend(twins.map(|&j| (j, false)));
                continue;
            }
            if std::mem::replace(&mut seen[i as usize], true) {
                continue;
            }
            stack.push((i, true));
            let before = match self.nodes[i as usize].op() {
                Op::End => {
                    let body = self.src[i as usize][0];
                    let range = self.src[i as usize][1];
                    stack.extend([(body, false), (range, true)]);
                    let loops = self.loop_of(range);
                    let here = |s: &&u32| self.block[**s as usize] == self.block[i as usize];
                    let bound = self.src[range as usize].iter().filter(here);
                    let overwritten = self.before.get(&i).into_iter().flatten();
                    loops
                        .iter()
                        .flat_map(|&k| &self.needs[k])
                        .chain(overwritten)
                        .chain(bound)
                        .copied()
                        .collect()
                }
                Op::Group | Op::Sink => self.in_steps(i),
                _ => self.operands_in_block(i),
            };
            stack.extend(
                before
                    .iter()
                    .rev()
                    .filter(|&&s| !seen[s as usize])
                    .map(|&s| (s, false)),
            );
        }
        if out.len() != n {
            return Err(broken("nodes that no effect needs in their loop"));
        }
        let mut place = vec![0; n];
        for (at, &i) in out.iter().enumerate() {
            place[i as usize] = at;
        }
        let late = |(&store, loads): (&u32, &Vec<u32>)| {
            let reads = loads.iter().map(|&l| place[l as usize]);
            reads.max() > Some(place[store as usize])
        };
        if self.before.iter().any(late) {
            return Err(broken("storage is overwritten before all of it is read"));
        }
        Ok(out)
    }

    /// The operands of a GROUP; where they are stores of accumulators, first the steps by which those
    /// are updated, the same step of each together.
    fn in_steps(&self, i: u32) -> SmallVec<[u32; 8]> {
        let stores = self.operands_in_block(i);
        let mut chains: Vec<Vec<u32>> = Vec::new();
        for &s in &stores {
            let u = &self.nodes[s as usize];
            if u.op() != Op::Store || !in_registers(&u.src()[0]) {
                return stores;
            }
            let address = self.src[s as usize][0];
            let mut chain = Vec::new();
            let mut v = self.src[s as usize][1];
            let op = self.nodes[v as usize].op();
            // Down to the LOAD of the accumulator.
            while self.nodes[v as usize].op() == op && (op.is_elementwise() || op == Op::Wmma) {
                chain.push(v);
                let next = self.src[v as usize].iter().find(|&&x| {
                    let o = &self.nodes[x as usize];
                    o.op() == op || o.op() == Op::Load && self.src[x as usize][0] == address
                });
                let Some(&x) = next else { break };
                v = x;
            }
            chain.reverse();
            chains.push(chain);
        }
        let steps = chains.iter().map(Vec::len).max().unwrap_or(0);
        let here = |v: &u32| self.block[*v as usize] == self.block[i as usize];
        let mut out: SmallVec<[u32; 8]> = SmallVec::new();
        let same = chains.iter().all(|c| c.len() == steps);
        let levels = Some(&chains).filter(|_| !same);
        let levels = levels.and_then(|chains| self.levels(chains));
        let mut all: Vec<Vec<u32>> = vec![Vec::new(); steps];
        for (c, chain) in chains.iter().enumerate() {
            for (k, &u) in chain.iter().enumerate().filter(|(_, u)| here(u)) {
                let step = levels.as_ref().map_or(k, |levels| levels[c][k]);
                all[step].push(u);
            }
        }
        match self.windows(&all, &chains) {
            Some(updates) => out.extend(updates),
            None => all.into_iter().for_each(|s| out.extend(self.passing(s))),
        }
        out.extend(stores);
        out
    }

    /// The step of each update where chains lack some of the terms that others have, as at the edge of an image: those
    /// by one value of the kind of which there are fewer are one step. None where that is not so, or would take more
    /// steps than there are.
    fn levels(&self, chains: &[Vec<u32>]) -> Option<Vec<Vec<usize>>> {
        let factors = |c: &Vec<u32>| {
            let all = c.iter().map(|&u| self.scalar_and_vector(u));
            all.collect::<Option<Vec<[u32; 2]>>>()
        };
        let chains: Vec<Vec<[u32; 2]>> = chains.iter().map(factors).collect::<Option<_>>()?;
        let distinct = |side: usize| {
            let all = chains.iter().flatten().map(|f| f[side]);
            all.collect::<FxHashSet<u32>>().len()
        };
        let side = usize::from(distinct(1) <= distinct(0));
        let steps = chains.iter().map(Vec::len).max()?;
        let mut level: FxHashMap<u32, usize> = FxHashMap::default();
        let mut settled = false;
        // Each round settles those that follow what the last one did.
        for _ in 0..=steps {
            settled = true;
            for chain in &chains {
                let mut least = 0;
                for f in chain {
                    let at = level.entry(f[side]).or_insert(0);
                    settled &= *at >= least;
                    *at = (*at).max(least);
                    least = *at + 1;
                }
            }
        }
        let of = |chain: &Vec<[u32; 2]>| chain.iter().map(|f| level[&f[side]]).collect();
        let fits = settled && level.values().all(|&at| at < steps);
        fits.then(|| chains.iter().map(of).collect())
    }

    /// Updates by scalars and vectors of which several steps read the same, each vector's together: it is read once
    /// and passes by, while the scalars of all steps are held. None where it is no such case, where these find no
    /// registers, or where what adds to one accumulator would change its order.
    fn windows(&self, steps: &[Vec<u32>], chains: &[Vec<u32>]) -> Option<Vec<u32>> {
        let mut factors: FxHashMap<u32, [u32; 2]> = FxHashMap::default();
        let mut scalars: FxHashSet<u32> = FxHashSet::default();
        // Vectors in the order in which the steps read them, and how many each step reads.
        let mut vectors: Vec<u32> = Vec::new();
        let mut known: FxHashSet<u32> = FxHashSet::default();
        let mut reads = 0;
        for step in steps {
            let mut here: FxHashSet<u32> = FxHashSet::default();
            for &u in step {
                let [scalar, vector] = self.scalar_and_vector(u)?;
                factors.insert(u, [scalar, vector]);
                scalars.insert(scalar);
                reads += usize::from(here.insert(vector));
                if known.insert(vector) {
                    vectors.push(vector);
                }
            }
        }
        let held = chains.len() + scalars.len() + 1;
        if vectors.len() == reads || held > self.registers {
            return None;
        }
        let mut next = vec![0; chains.len()];
        let mut out = Vec::new();
        for vector in vectors {
            for (chain, at) in chains.iter().zip(&mut next) {
                while let Some(u) = chain.get(*at) {
                    match factors.get(u) {
                        Some(f) if f[1] == vector => out.push(*u),
                        Some(_) => break,
                        None => {}
                    }
                    *at += 1;
                }
            }
        }
        (out.len() == factors.len()).then_some(out)
    }

    /// The factors of an update, where one is a scalar for all lanes and the other is not.
    fn scalar_and_vector(&self, u: u32) -> Option<[u32; 2]> {
        let [a, b] = [0, 1].map(|k| self.src[u as usize].get(k).copied());
        let [a, b] = [a?, b?];
        let [a_is, b_is] = [a, b].map(|x| splat(&self.nodes[x as usize]).is_some());
        match (a_is, b_is) {
            (true, false) => Some([a, b]),
            (false, true) => Some([b, a]),
            _ => None,
        }
    }

    /// Updates that multiply a scalar by a vector, in the order that keeps fewest of these: all that use one value
    /// of the kind of which there are more follow each other, and those of the other kind are held.
    fn passing(&self, mut step: Vec<u32>) -> Vec<u32> {
        let mut factors: FxHashMap<u32, [u32; 2]> = FxHashMap::default();
        for &u in &step {
            let Some(both) = self.scalar_and_vector(u) else {
                return step;
            };
            factors.insert(u, both);
        }
        let firsts = [0, 1].map(|side| {
            let mut first: FxHashMap<u32, usize> = FxHashMap::default();
            for (at, u) in step.iter().enumerate() {
                first.entry(factors[u][side]).or_insert(at);
            }
            first
        });
        let side = usize::from(firsts[1].len() > firsts[0].len());
        step.sort_by_key(|u| firsts[side][&factors[u][side]]);
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opt::tests::support::{param, sink};
    use monoglot_uop::{AxisType, DType};

    /// Neighbours that are added to in storage: each is read where it is written, and not all before the first.
    #[test]
    fn what_lies_apart_from_one_place_is_read_where_it_is_wanted() {
        let r = UOp::new(
            Op::Range,
            vec![UOp::int(16, DType::I32)],
            Arg::Range(0, AxisType::Loop),
        );
        let sums = param(0, &[64], DType::F32);
        let terms = param(1, &[64], DType::F32);
        let first = r.binary(Op::Mul, &UOp::int(4, DType::I32));
        let place = |k: i64| match k {
            0 => first.clone(),
            k => first.binary(Op::Add, &UOp::int(k, DType::I32)),
        };
        let read = |of: &UOp, k: i64| crate::graph::node(Op::Load, [of.at(&[place(k)])]);
        let added = (0..4).map(|k| {
            let sum = read(&terms, k).binary(Op::Add, &read(&sums, k));
            sums.at(&[place(k)]).store(&sum)
        });
        let body = crate::graph::group(added.collect());
        let kernel = sink(&[body.end(std::slice::from_ref(&r))]);
        let linear = linearize(&kernel, 16).unwrap();
        let of_sums = |u: &&UOp| {
            u.src()
                .first()
                .is_some_and(|to| to.src().first() == Some(&sums))
        };
        let accesses = linear.src().iter().filter(of_sums);
        let order: Vec<Op> = accesses
            .map(UOp::op)
            .filter(|op| matches!(op, Op::Load | Op::Store))
            .collect();
        let each = [Op::Load, Op::Store];
        assert_eq!(order, each.repeat(4), "{linear}");
    }
}
