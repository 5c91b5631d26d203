//! Sets and maps of nodes by their numbers: a look is one read of a table, where a hash map computes, probes
//! and grows. Flows in: nodes and values; flows out: the same, in order of insertion. Invariant: what is in a
//! set or map is held, by borrow or by owner, so that no other node has its number.
//!
//! Tables are kept by the thread for the next set; an entry counts only if it names the turn of its set.

use crate::node::UOp;
use std::cell::RefCell;
use std::marker::PhantomData;

/// Tables that a thread keeps, at most.
const KEPT: usize = 16;

/// For each number of a node the turn in which it was marked, and a place; and the last turn.
type Entries = (Vec<(u32, u32)>, u32);

thread_local! {
    static TABLES: RefCell<Vec<Entries>> = const { RefCell::new(Vec::new()) };
}

/// A table in its turn; it goes back to the thread's list.
struct Table {
    entries: Vec<(u32, u32)>,
    turn: u32,
}

impl Table {
    /// A table in which nothing is marked.
    fn empty() -> Table {
        let kept = TABLES.try_with(|tables| tables.borrow_mut().pop());
        let (mut entries, last) = kept.ok().flatten().unwrap_or_default();
        let mut turn = last.wrapping_add(1);
        if turn == 0 {
            entries.fill((0, 0));
            turn = 1;
        }
        Table { entries, turn }
    }

    fn get(&self, u: &UOp) -> Option<usize> {
        let (turn, place) = *self.entries.get(u.number())?;
        (turn == self.turn).then_some(place as usize)
    }

    /// Mark a node with a place; the place that it was marked with.
    fn mark(&mut self, u: &UOp, place: usize) -> Option<usize> {
        let number = u.number();
        if number >= self.entries.len() {
            self.grow((number + 1).next_power_of_two());
        }
        let old = std::mem::replace(&mut self.entries[number], (self.turn, place as u32));
        (old.0 == self.turn).then_some(old.1 as usize)
    }

    #[cold]
    fn grow(&mut self, length: usize) {
        // Zeroed by the system: what is not touched costs nothing.
        let mut longer = vec![(0, 0); length];
        longer[..self.entries.len()].copy_from_slice(&self.entries);
        self.entries = longer;
    }

    fn unmark(&mut self, u: &UOp) {
        if let Some(entry) = self.entries.get_mut(u.number()) {
            *entry = (0, 0);
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.entries.is_empty() {
            return;
        }
        let entries = (std::mem::take(&mut self.entries), self.turn);
        // A thread that ends has no list any more.
        let _ = TABLES.try_with(|tables| {
            let mut tables = tables.borrow_mut();
            if tables.len() < KEPT {
                tables.push(entries);
            }
        });
    }
}

/// A set of borrowed nodes.
pub struct NodeSet<'a> {
    table: Table,
    nodes: PhantomData<&'a UOp>,
}

impl<'a> NodeSet<'a> {
    /// The empty set.
    pub fn new() -> NodeSet<'a> {
        NodeSet {
            table: Table::empty(),
            nodes: PhantomData,
        }
    }

    /// Enter a node; whether it was not there.
    pub fn insert(&mut self, u: &'a UOp) -> bool {
        self.table.mark(u, 0).is_none()
    }

    /// Whether a node is there.
    pub fn contains(&self, u: &UOp) -> bool {
        self.table.get(u).is_some()
    }
}

impl Default for NodeSet<'_> {
    fn default() -> Self {
        NodeSet::new()
    }
}

/// A map from nodes, each held by its entry or borrowed (`K` is `UOp` or `&UOp`).
pub struct NodeMap<K, V> {
    table: Table,
    entries: Vec<(K, V)>,
}

impl<K: AsRef<UOp>, V> NodeMap<K, V> {
    /// The empty map.
    pub fn new() -> NodeMap<K, V> {
        NodeMap {
            table: Table::empty(),
            entries: Vec::new(),
        }
    }

    /// The empty map, with room for so many entries.
    pub fn with_capacity(n: usize) -> NodeMap<K, V> {
        NodeMap {
            table: Table::empty(),
            entries: Vec::with_capacity(n),
        }
    }

    /// Make room for so many more entries.
    pub fn reserve(&mut self, more: usize) {
        self.entries.reserve(more);
    }

    /// Enter a value; the one that was there.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.table.get(key.as_ref()) {
            Some(place) => Some(std::mem::replace(&mut self.entries[place].1, value)),
            None => {
                self.table.mark(key.as_ref(), self.entries.len());
                self.entries.push((key, value));
                None
            }
        }
    }

    /// The value of a node.
    pub fn get(&self, u: &UOp) -> Option<&V> {
        self.table.get(u).map(|place| &self.entries[place].1)
    }

    /// As `get`, to change it.
    pub fn get_mut(&mut self, u: &UOp) -> Option<&mut V> {
        let place = self.table.get(u)?;
        Some(&mut self.entries[place].1)
    }

    /// The value of a node, entered first where there is none.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let place = match self.table.get(key.as_ref()) {
            Some(place) => place,
            None => {
                self.insert(key, make());
                self.entries.len() - 1
            }
        };
        &mut self.entries[place].1
    }

    /// Take a node out. The last entry takes its place in the order.
    pub fn remove(&mut self, u: &UOp) -> Option<V> {
        let place = self.table.get(u)?;
        self.table.unmark(u);
        let (_, value) = self.entries.swap_remove(place);
        if let Some((moved, _)) = self.entries.get(place) {
            self.table.mark(moved.as_ref(), place);
        }
        Some(value)
    }

    /// Whether a node has a value.
    pub fn contains_key(&self, u: &UOp) -> bool {
        self.table.get(u).is_some()
    }

    /// The entries, in order of insertion.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + ExactSizeIterator {
        self.entries.iter().map(|(k, v)| (k, v))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<K: AsRef<UOp>, V> Default for NodeMap<K, V> {
    fn default() -> Self {
        NodeMap::new()
    }
}

impl<K: AsRef<UOp>, V> Extend<(K, V)> for NodeMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: AsRef<UOp>, V> FromIterator<(K, V)> for NodeMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let entries = entries.into_iter();
        let mut map = NodeMap::with_capacity(entries.size_hint().0);
        map.extend(entries);
        map
    }
}

impl<K: AsRef<UOp>, V> std::ops::Index<&UOp> for NodeMap<K, V> {
    type Output = V;

    /// # Panics
    /// Where the node has no value.
    fn index(&self, u: &UOp) -> &V {
        self.get(u).expect("the node has a value")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_and_maps_do_not_see_each_other() {
        let nodes: Vec<UOp> = (0..1000).map(|k| UOp::index_const(50_000 + k)).collect();
        let mut odd: NodeMap<&UOp, usize> = NodeMap::new();
        let mut third = NodeSet::new();
        for (k, u) in nodes.iter().enumerate() {
            if k % 2 == 1 {
                assert_eq!(odd.insert(u, k), None);
            }
            assert!(k % 3 > 0 || third.insert(u));
            assert!(k % 3 > 0 || !third.insert(u));
        }
        for (k, u) in nodes.iter().enumerate() {
            assert_eq!(odd.get(u), (k % 2 == 1).then_some(&k));
            assert_eq!(third.contains(u), k % 3 == 0);
        }
        drop(third);
        assert!(!NodeSet::new().contains(&nodes[0]));
    }

    #[test]
    fn what_is_taken_out_is_gone_and_others_stay() {
        let nodes: Vec<UOp> = (0..9).map(|k| UOp::index_const(60_000 + k)).collect();
        let mut map: NodeMap<UOp, usize> = nodes.iter().cloned().zip(0..).collect();
        assert_eq!(map.remove(&nodes[2]), Some(2));
        assert_eq!(map.remove(&nodes[2]), None);
        assert_eq!(map.remove(&nodes[8]), Some(8));
        let left: Vec<usize> = nodes.iter().filter_map(|u| map.get(u).copied()).collect();
        assert_eq!(left, [0, 1, 3, 4, 5, 6, 7]);
        assert_eq!(map.insert(nodes[0].clone(), 70), Some(0));
        *map.get_or_insert_with(nodes[2].clone(), || 5) += 1;
        assert_eq!((map[&nodes[0]], map[&nodes[2]], map.len()), (70, 6, 8));
    }

    #[test]
    fn a_number_is_of_one_living_node() {
        let work = |seed: i64| {
            move || {
                for round in 0..50 {
                    let first = 1_000_000 * seed + round;
                    let nodes: Vec<UOp> = (0..300).map(|k| UOp::index_const(first + k)).collect();
                    let mut map: NodeMap<&UOp, i64> = NodeMap::new();
                    for (k, u) in (0..).zip(&nodes) {
                        assert_eq!(map.insert(u, k), None);
                    }
                    assert!((0..).zip(&nodes).all(|(k, u)| map[u] == k));
                }
            }
        };
        std::thread::scope(|s| {
            (1..5).for_each(|seed| _ = s.spawn(work(seed)));
        });
    }
}
