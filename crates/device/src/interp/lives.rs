//! How long the values of a linear program live: the last position that reads each.

use monoglot_uop::linear::operands;
use monoglot_uop::{Op, UOp};
use rustc_hash::FxHashMap;

/// The last position that reads each value; 0 where none does. What is read inside a loop that its
/// definition stands outside of lives until the loop ends; a value that only names a part of another
/// keeps that alive.
pub(crate) fn last_reads(list: &[UOp], at: &FxHashMap<&UOp, usize>) -> Vec<usize> {
    let mut last = vec![0; list.len()];
    let mut ends = vec![list.len(); list.len()];
    let (mut open, mut inside) = (Vec::new(), Vec::with_capacity(list.len()));
    for (i, u) in list.iter().enumerate() {
        if let (Op::End, Some(start)) = (u.op(), open.last()) {
            ends[*start] = i;
            open.pop();
        }
        inside.push(open.clone());
        open.extend((u.op() == Op::Range).then_some(i));
    }
    for i in (0..list.len()).rev() {
        let u = &list[i];
        let void = u.op().is_void() || u.op() == Op::Range;
        if last[i] == 0 && !void {
            continue;
        }
        let part = match u.op() {
            Op::Index | Op::Shrink | Op::Bitcast => last[i],
            Op::Stack if u.src().len() == 1 => last[i],
            _ => i,
        };
        operands(u, |o| {
            let Some(&k) = at.get(o) else { return };
            // The outermost loop around the reader that does not hold the definition.
            let until = inside[i].iter().find(|&&l| l > k).map_or(i, |&l| ends[l]);
            last[k] = last[k].max(until).max(part);
        });
    }
    for (i, u) in list.iter().enumerate() {
        if u.op() == Op::Range {
            // The counter and the bound are read by the END.
            last[i] = last[i].max(ends[i]);
            if let Some(&k) = at.get(&u.src()[0]) {
                last[k] = last[k].max(ends[i]);
            }
        }
    }
    last
}
