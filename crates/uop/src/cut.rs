//! Least cuts through graphs (Ford and Fulkerson). Flows in: nodes with what each costs to cut, and the edges
//! between them; flows out: the nodes of a cut that costs least. Invariant: whatever leads from the beginning to
//! the end goes through a node of the cut.

use std::collections::VecDeque;

/// More than any node costs.
pub(crate) const NEVER: i64 = i64::MAX / 4;

/// Nodes with a way in and a way out, and what can flow between them.
pub(crate) struct Net {
    /// The ends of an edge and what can still flow; edges k and k ^ 1 are one, there and back.
    edges: Vec<(usize, usize, i64)>,
    of: Vec<Vec<usize>>,
}

impl Net {
    /// Where all that flows comes from.
    pub(crate) const FROM: usize = 0;
    /// Where it goes to.
    pub(crate) const TO: usize = 1;

    /// So many nodes without edges.
    pub(crate) fn new(nodes: usize) -> Net {
        Net {
            edges: Vec::new(),
            of: vec![Vec::new(); 2 + 2 * nodes],
        }
    }

    /// The way into a node.
    pub(crate) fn enters(node: usize) -> usize {
        2 + 2 * node
    }

    /// The way out of a node.
    pub(crate) fn leaves(node: usize) -> usize {
        3 + 2 * node
    }

    /// Let at most so much flow from one place to another.
    pub(crate) fn edge(&mut self, from: usize, to: usize, most: i64) {
        self.of[from].push(self.edges.len());
        self.edges.push((from, to, most));
        self.of[to].push(self.edges.len());
        self.edges.push((to, from, 0));
    }

    /// A shortest way with room from the beginning to the end, as edges.
    fn way(&self) -> Option<Vec<usize>> {
        let mut by: Vec<Option<usize>> = vec![None; self.of.len()];
        let mut open = VecDeque::from([Net::FROM]);
        while let Some(at) = open.pop_front() {
            for &e in &self.of[at] {
                let (_, to, room) = self.edges[e];
                if room > 0 && to != Net::FROM && by[to].is_none() {
                    by[to] = Some(e);
                    open.push_back(to);
                }
            }
        }
        let mut way = Vec::new();
        let mut at = Net::TO;
        while at != Net::FROM {
            let e = by[at]?;
            way.push(e);
            at = self.edges[e].0;
        }
        Some(way)
    }

    /// For each node whether a least cut goes through it: of several, that which is nearest to the end.
    pub(crate) fn cut(mut self) -> Vec<bool> {
        while let Some(way) = self.way() {
            let room = way.iter().map(|&e| self.edges[e].2).min().unwrap_or(0);
            for e in way {
                self.edges[e].2 -= room;
                self.edges[e ^ 1].2 += room;
            }
        }
        // From where the end can still be reached.
        let mut reaches = vec![false; self.of.len()];
        reaches[Net::TO] = true;
        let mut open = vec![Net::TO];
        while let Some(at) = open.pop() {
            for &e in &self.of[at] {
                let (_, from, _) = self.edges[e];
                if self.edges[e ^ 1].2 > 0 && !reaches[from] {
                    reaches[from] = true;
                    open.push(from);
                }
            }
        }
        let nodes = (self.of.len() - 2) / 2;
        let cut = |v| reaches[Net::leaves(v)] && !reaches[Net::enters(v)];
        (0..nodes).map(cut).collect()
    }
}
