//! Vectors along one axis out of vectors along another. Flows in: rows, as many as a power of two, each a vector
//! of one length; flows out: a vector for each of their lanes. Invariant: nothing but lanes of two vectors at
//! a time changes places, within groups of 16 bytes as long as there are neighbours.

use crate::build::{NEAR, Shuffle, part, shuffle};
use monoglot_uop::UOp;
use monoglot_uop::linear::lanes;

/// Whether so many rows of so many elements become columns by moving groups of neighbours.
pub(super) fn turns(rows: usize, lanes: usize, bytes: usize) -> bool {
    let near = NEAR / bytes.max(1);
    let fits = |n: usize| n.is_power_of_two() && n >= near.max(2);
    fits(rows) && fits(lanes)
}

/// The columns of rows.
pub(super) fn transpose(rows: Vec<UOp>) -> Vec<UOp> {
    let near = NEAR / rows[0].dtype().bytes();
    let columns = lanes(&rows[0]);
    let mut list = rows;
    // More rows than lanes: those far apart stand side by side in longer ones.
    while list.len() > columns {
        let blocks = list.chunks(2 * columns);
        let pairs = blocks.flat_map(|b| (0..columns).map(|i| side_by_side(&b[i], &b[i + columns])));
        list = pairs.collect();
    }
    let square = list.len();
    // Each step exchanges a bit of a row's number with one of a lane's: by turns within neighbours, where the
    // lane's bits move up, and then by halves.
    let mut bit = near / 2;
    while bit > 0 {
        each_pair(&mut list, bit, |high, n| by_turns(high, n, near));
        bit /= 2;
    }
    bit = near;
    while bit < square {
        each_pair(&mut list, bit, |high, n| by_halves(high, n, bit));
        bit *= 2;
    }
    let of = |c: usize| part(&list[c % square], c / square * square, square);
    match columns > square {
        true => (0..columns).map(of).collect(),
        false => list,
    }
}

fn side_by_side(a: &UOp, b: &UOp) -> UOp {
    let n = lanes(a);
    let picks: Vec<(usize, usize)> = (0..2 * n).map(|k| (k / n, k % n)).collect();
    shuffle(&[a.clone(), b.clone()], &picks)
}

/// Lanes of a pair of vectors: the first of the two that come out, or the second, of so many lanes.
pub(super) type Picks = Vec<(usize, usize)>;

/// Replace the vectors whose numbers differ in a bit.
fn each_pair(list: &mut [UOp], bit: usize, picks: impl Fn(bool, usize) -> Picks) {
    let n = lanes(&list[0]);
    let [low, high] = [false, true].map(|high| Shuffle::new(n, &picks(high, n)));
    for i in (0..list.len()).filter(|i| i & bit == 0) {
        let pair = [list[i].clone(), list[i | bit].clone()];
        list[i] = low.of(&pair);
        list[i | bit] = high.of(&pair);
    }
}

/// Of each group of neighbours its first half, or its second, an element of each vector by turns.
pub(super) fn by_turns(high: bool, n: usize, near: usize) -> Picks {
    let first = if high { near / 2 } else { 0 };
    let pick = |k: usize| (k % 2, k / near * near + first + k % near / 2);
    (0..n).map(pick).collect()
}

/// Runs of so many lanes, of each vector by turns: those whose number is even, or odd.
fn by_halves(high: bool, n: usize, run: usize) -> Picks {
    let odd = if high { run } else { 0 };
    let pick = |k: usize| (k / run % 2, k / (2 * run) * (2 * run) + odd + k % run);
    (0..n).map(pick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::lane;
    use crate::graph::node;
    use monoglot_uop::{DType, Op};

    /// Which element of the rows a lane is, through all that moved it.
    fn element(vector: &UOp, at: usize) -> i64 {
        let known = |u: &UOp| u.as_int().expect("a lane that is known") as usize;
        match vector.op() {
            Op::Stack => known(&vector.src()[at]) as i64,
            Op::Shuffle => {
                let [a, b, list] = vector.src() else {
                    panic!("a SHUFFLE of two vectors");
                };
                let at = known(&list.src()[at]);
                match at < lanes(a) {
                    true => element(a, at),
                    false => element(b, at - lanes(a)),
                }
            }
            Op::Index => element(&vector.src()[0], known(&vector.src()[1].src()[at])),
            Op::Shrink => element(&vector.src()[0], known(&vector.src()[1].src()[0]) + at),
            _ => known(&lane(vector, at)) as i64,
        }
    }

    #[test]
    fn columns_are_the_elements_of_rows() {
        let sizes = [2, 4, 8, 16, 32];
        for (m, n) in sizes.iter().flat_map(|&m| sizes.map(|n| (m, n))) {
            for d in [DType::U8, DType::I16, DType::I32, DType::I64] {
                if !turns(m, n, d.bytes()) {
                    continue;
                }
                let row = |r: usize| {
                    let element = |c: usize| UOp::int((r * n + c) as i64 % 120, d);
                    node(Op::Stack, (0..n).map(element))
                };
                let columns = transpose((0..m).map(row).collect());
                assert_eq!(columns.len(), n);
                for (c, column) in columns.iter().enumerate() {
                    assert_eq!(lanes(column), m);
                    for r in 0..m {
                        let want = (r * n + c) as i64 % 120;
                        assert_eq!(element(column, r), want, "{m}x{n} {d:?}");
                    }
                }
            }
        }
    }
}
