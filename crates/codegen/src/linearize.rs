//! One order for everything. Flows in: a kernel of scalars and vectors; flows out: a LINEAR in which
//! every operand stands before its users and every loop is a contiguous run from its RANGE to its END.
//! Invariant: a value stands in the outermost loop that holds all the loops on which it depends, so
//! what a loop does not change is computed before it; loops are opened as late as their results allow.
//!
//! Within a block the order is depth first from the effects, which keeps values close to their uses.
//! Accumulators that one loop updates in several steps take each step together, so that the operands
//! of a step die before those of the next are read.

use crate::graph::{bits, places, sorted};
use crate::memory::in_registers;
use monoglot_uop::{AddrSpace, Arg, ErrorKind, Op, Result, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

const ROOT: u32 = u32::MAX;

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
}

/// Order the nodes of a kernel.
pub(crate) fn linearize(kernel: &UOp) -> Result<UOp> {
    let g = Graph::new(kernel)?;
    let order = g.order()?;
    let list: SmallVec<[UOp; 3]> = order
        .into_iter()
        .map(|i| g.nodes[i as usize].clone())
        .collect();
    Ok(UOp::new(Op::Linear, list, Arg::None))
}

/// The storage that a LOAD or STORE accesses.
fn accessed(u: &UOp) -> Option<&UOp> {
    let address = u.src().first()?;
    let storage = address.src().first()?.named();
    matches!(storage.op(), Op::Param | Op::Buffer).then_some(storage)
}

/// The element that an access is of, where that is known: one that is not of lanes, at a constant.
fn place(u: &UOp) -> Option<i64> {
    let address = &u.src()[0];
    match address.op() {
        Op::Index => address.src()[1].as_int(),
        _ => None,
    }
}

/// For every node, behind which STOREs it stands.
struct Behind {
    words: usize,
    sets: Vec<u64>,
}

impl Behind {
    fn of(g: &Graph, number: &FxHashMap<u32, usize>) -> Behind {
        let words = number.len().div_ceil(64);
        let mut sets = vec![0u64; g.nodes.len() * words];
        for i in 0..g.nodes.len() {
            let (before, own) = sets.split_at_mut(i * words);
            for &s in &g.src[i] {
                let of_source = &before[s as usize * words..][..words];
                own.iter_mut().zip(of_source).for_each(|(a, b)| *a |= b);
            }
            if let Some(k) = number.get(&(i as u32)) {
                own[k / 64] |= 1 << (k % 64);
            }
        }
        Behind { words, sets }
    }

    fn contains(&self, node: u32, store: usize) -> bool {
        let set = &self.sets[node as usize * self.words..];
        set[store / 64] >> (store % 64) & 1 == 1
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
        let nodes = sorted(kernel, operands);
        let src = places(&nodes, operands);
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
        let open = g.open()?;
        g.nest(&open)?;
        let block = |(i, &open)| {
            g.loop_of(i as u32)
                .map_or_else(|| g.deepest(open), |k| g.parent[k])
        };
        g.block = open.iter().enumerate().map(block).collect();
        g.enclose();
        g.hazards()?;
        g.collect_needs();
        Ok(g)
    }

    fn loop_of(&self, range: u32) -> Option<usize> {
        self.range.iter().position(|&r| r == range)
    }

    /// The open loops of every node.
    fn open(&mut self) -> Result<Vec<u128>> {
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
                _ => {}
            }
            open.push(mask);
        }
        Ok(open)
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
        bits(mask)
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
        let nodes = &self.nodes;
        let of = |op: Op| (0..nodes.len() as u32).filter(move |&i| nodes[i as usize].op() == op);
        // Accesses by storage, and where it is known by place.
        let mut read: FxHashMap<&UOp, Vec<u32>> = FxHashMap::default();
        for load in of(Op::Load) {
            if let Some(storage) = accessed(&nodes[load as usize]) {
                read.entry(storage).or_default().push(load);
            }
        }
        let mut written: FxHashMap<(&UOp, Option<i64>), Vec<u32>> = FxHashMap::default();
        let mut number: FxHashMap<u32, usize> = FxHashMap::default();
        for store in of(Op::Store) {
            let u = &nodes[store as usize];
            let Some(storage) = accessed(u).filter(|storage| read.contains_key(storage)) else {
                continue;
            };
            // Under None stand all of them, as what reads at an unknown place may meet each.
            written.entry((storage, None)).or_default().push(store);
            if let Some(place) = place(u) {
                written
                    .entry((storage, Some(place)))
                    .or_default()
                    .push(store);
            }
            number.insert(store, number.len());
        }
        if number.is_empty() {
            return Ok(());
        }
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        for (storage, loads) in &read {
            let known = |store: &&u32| place(&nodes[**store as usize]).is_some();
            let all = || written.get(&(*storage, None)).into_iter().flatten();
            let unknown: Vec<u32> = all().filter(|store| !known(store)).copied().collect();
            for &load in loads {
                match place(&nodes[load as usize]) {
                    Some(at) => {
                        let there = written.get(&(*storage, Some(at)));
                        let meets = there.into_iter().flatten().chain(&unknown);
                        pairs.extend(meets.map(|&store| (store, load)));
                    }
                    None => pairs.extend(all().map(|&store| (store, load))),
                }
            }
        }
        pairs.sort_unstable();
        let behind = Behind::of(self, &number);
        for (store, load) in pairs {
            if behind.contains(load, number[&store]) {
                continue;
            }
            let common = self.common_block(store, load);
            let (first, then) = (self.item(load, common), self.item(store, common));
            if !behind.contains(first, number[&store]) {
                self.before.entry(then).or_default().push(first);
            } else if self.nodes[store as usize].src()[0].addrspace() != Some(AddrSpace::Global) {
                return Err(broken("storage is overwritten before all of it is read"));
            }
        }
        Ok(())
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
        let here = |s: &u32| {
            self.block[*s as usize] == self.block[i as usize]
                && self.nodes[*s as usize].op() != Op::Range
        };
        // Most of what is overwritten is an operand too, and read where that is wanted.
        let overwritten = self.before.get(&i).into_iter().flatten();
        (self.src[i as usize].iter())
            .chain(overwritten)
            .copied()
            .filter(here)
            .collect()
    }

    fn order(&self) -> Result<Vec<u32>> {
        let n = self.nodes.len();
        let mut out: Vec<u32> = Vec::with_capacity(n);
        let mut seen = vec![false; n];
        let mut stack: Vec<(u32, bool)> = vec![(n as u32 - 1, false)];
        while let Some((i, ready)) = stack.pop() {
            if ready {
                out.push(i);
                continue;
            }
            if std::mem::replace(&mut seen[i as usize], true) {
                continue;
            }
            stack.push((i, true));
            let before = match self.nodes[i as usize].op() {
                Op::End => {
                    let (body, range) = (self.src[i as usize][0], self.src[i as usize][1]);
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
            let (mut chain, mut v) = (Vec::new(), self.src[s as usize][1]);
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
        for k in 0..steps {
            out.extend(chains.iter().filter_map(|c| c.get(k).copied()).filter(here));
        }
        out.extend(stores);
        out
    }
}
