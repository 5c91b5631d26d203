//! TC by a dot product: a sum of products in which each term is one of a unit of one thread. Flows in: the nest, the
//! axis k of the sum and the unit, whose k elements fill a word; flows out: the nest in which the axis has as many turns
//! fewer, or an error that names the precondition.
//!
//! # The form
//!
//! ```text
//! REDUCE(ADD, a[k]·b[k], k) = REDUCE(ADD, WMMA(A, B, 0), ko)      k = K·ko + j
//! A = bits(a[K·ko])  |  bits(a[K·ko + 1]) << 32/K  |  …
//! ```
//!
//! Where elements of a word lie beside each other in a buffer that nothing else reads, the word is read as it is there.
//!
//! So WMMA is an operation on words, as an elementwise one is, and STAGE keeps the words: they are put together as
//! often as a panel is filled. Lowering adds into the accumulator: `acc = WMMA(A, B, acc)`.
//!
//! Where a unit's a has no sign and no factor is without one, a is 128 greater than it was (its upper bit is the other
//! one), and what the product has too much of is taken off. That is a sum of its own, over axes of its own:
//!
//! ```text
//! Σ a[k]·b[k] = Σ (a[k] + 128)·b[k] − Σ 128·b[k']      modulo 2³²
//! ```
//!
//! Preconditions:
//! * the axis is a REDUCE axis of a multiple of K turns, of one REDUCE, which adds products of dtype_out;
//! * the unit's dtypes hold every value of the factors: integers by their intervals, floats where they are cast from it;
//!   where the two differ either factor may be a, and where both have signs that which varies with fewer of the inner
//!   loops is, so that the sum that is taken off is one of columns;
//! * both factors vary with the axis, contain no REDUCE and read no storage that is filled inside its loop.

use super::nest::LoopNest;
use super::refuse;
use monoglot_uop::rules::Affine;
use monoglot_uop::{Arg, AxisType, DType, Op, Opt, ReduceOp, Result, Shape, TcInfo, UOp};
use std::sync::Arc;

/// The signs of four bytes.
const SIGNS: i64 = 0x8080_8080;

pub(super) fn step(nest: &mut LoopNest, opt: &Opt, unit: &TcInfo, word: DType) -> Result<()> {
    let no = |message: &str| Err(refuse(opt, message));
    let axis = &nest.axes[opt.axis];
    if axis.kind() != AxisType::Reduce {
        return no("is not a REDUCE axis");
    }
    let depth = unit.depth();
    let Some(turns) = axis.extent().filter(|n| n % depth == 0) else {
        return no(&format!("the extent is not a multiple of {depth}"));
    };
    let kernel = nest.kernel();
    let nodes = kernel.toposort();
    let number = |u: &&UOp| u.range_arg().is_some_and(|(id, _)| id as usize == opt.axis);
    let Some(range) = nodes.iter().find(number) else {
        return no("is no axis of the kernel's");
    };
    let Some(sum) = Sum::of(&nodes, range, unit) else {
        return no("is not that of one sum of products of the unit's dtypes");
    };
    let refills = |u: &UOp| u.op() == Op::After && u.ranges().contains(range);
    if sum.factors.iter().any(|f| f.toposort().iter().any(refills)) {
        return no("a factor is read from storage that is filled inside the loop");
    }
    let fewer =
        (turns > depth).then(|| UOp::range(turns / depth, opt.axis as u32, AxisType::Reduce));
    let width = 8 * unit.dtypes_in[0].bytes() as i64;
    let mut dtypes = unit.dtypes_in;
    if sum.lifted {
        dtypes[0] = DType::I8;
    }
    let words = sum.factors.iter().zip(dtypes).map(|(f, dtype)| {
        let word_of = |j: i64| {
            let at = match &fewer {
                Some(fewer) => fewer * depth + j,
                None => UOp::index_const(j),
            };
            let here = [(range.clone(), at)].into_iter().collect();
            let whole = f.substitute(&here);
            // What stands above the last element is shifted out.
            let bits = match j + 1 == depth {
                true => whole_bits(&whole, dtype, word),
                false => bits(&whole, dtype, word),
            };
            let bits = match j {
                0 => bits,
                _ => bits.binary(Op::Shl, &UOp::int(width * j, word)),
            };
            match &sum.gate {
                Some(gate) => gate.substitute(&here).select(&bits, &bits.like(0)),
                None => bits,
            }
        };
        let together = || (1..depth).fold(word_of(0), |low, j| &low | &word_of(j));
        let stored = sum.gate.is_none().then(|| {
            let read = Read::of(f, dtype, &nodes)?;
            read.word(range, fewer.as_ref(), depth, word)
        });
        stored.flatten().unwrap_or_else(together)
    });
    let mut words: Vec<UOp> = words.collect();
    let zero = UOp::constant(unit.dtype_out.zero(), unit.dtype_out);
    let dot = |a: UOp, b: UOp| {
        let src = [a, b, zero.clone()];
        UOp::new(Op::Wmma, src, Arg::Wmma(Arc::new(unit.clone())))
    };
    let signs = UOp::int(SIGNS, word);
    let excess = sum.lifted.then(|| dot(signs.clone(), words[1].clone()));
    if sum.lifted {
        words[0] = words[0].binary(Op::Xor, &signs);
    }
    let product = dot(words.swap_remove(0), words.swap_remove(0));
    let others = sum.reduce.src()[1..].iter().filter(|r| *r != range);
    let mut over: Vec<UOp> = others.cloned().chain(fewer).collect();
    over.sort_by_key(UOp::range_arg);
    let mut new = product.reduce_ranges(ReduceOp::Add, &over);
    if let Some(excess) = excess {
        new = &new - &apart(&excess, &over, nest.axes.len() as u32);
    }
    let new = [(sum.reduce.clone(), new)].into_iter().collect();
    *nest = LoopNest::new(&kernel.substitute(&new))?;
    Ok(())
}

/// The one read of a buffer, its elements of a unit's dtype.
struct Read<'a> {
    param: &'a UOp,
    place: &'a UOp,
}

impl<'a> Read<'a> {
    fn of(f: &'a UOp, dtype: DType, nodes: &[UOp]) -> Option<Read<'a>> {
        let mut read = f;
        while read.op() == Op::Cast {
            read = &read.src()[0];
        }
        let [param, place] = read.src() else {
            return None;
        };
        let mut users = nodes.iter().filter(|u| u.src().contains(param));
        let alone = users.all(|u| u == read);
        // Integers of one size have the same bits; of two floats each number has bits of its own.
        let of = read.dtype();
        let same = of == dtype || of.is_int() && dtype.is_int() && of.bytes() == dtype.bytes();
        let named = param.op() == Op::Param && read.op() == Op::Index && same;
        (named && alone).then_some(Read { param, place })
    }

    /// The word that `depth` elements beside each other are in memory: those of turns of the range from a multiple of
    /// `depth` on, whose number is `fewer`, 0 where that is None.
    fn word(&self, range: &UOp, fewer: Option<&UOp>, depth: i64, dtype: DType) -> Option<UOp> {
        let mut place = Affine::of(self.place)?;
        let of_range = place.terms.iter().position(|(atom, _)| atom == range)?;
        let (_, step) = place.terms.remove(of_range);
        let divides = |n: i128| n % depth as i128 == 0;
        let others = &place.terms;
        let whole = |(atom, k): &(UOp, i128)| divides(*k) && !atom.ranges().contains(range);
        if step != 1 || !others.iter().all(whole) || !divides(place.constant) {
            return None;
        }
        let mut place = place.divided(depth as i128);
        if let Some(fewer) = fewer {
            place.term(fewer, 1)?;
        }
        let [n] = self.param.shape().ints()?[..] else {
            return None;
        };
        divides(n as i128).then_some(())?;
        let buffer = self.param.buffer_arg()?;
        let shape = Shape::of(&[n / depth]);
        let words = UOp::param(buffer.slot, &shape, dtype, buffer.device);
        Some(words.at(&[place.build()]))
    }
}

/// Whether a kernel has a sum that a unit may do, as far as dtypes say.
pub(super) fn may_fit(nest: &LoopNest, unit: &TcInfo) -> bool {
    let [of_a, _] = unit.dtypes_in;
    let sums = |u: &UOp| u.op() == Op::Reduce && u.dtype() == unit.dtype_out;
    let held = |u: &UOp| !of_a.is_float() || u.dtype() == of_a;
    nest.nodes.iter().any(sums) && nest.nodes.iter().any(held)
}

/// A sum of products that a unit can do.
struct Sum {
    reduce: UOp,
    factors: [UOp; 2],
    /// Whether the first is to be 128 greater.
    lifted: bool,
    /// Where it holds, the product counts.
    gate: Option<UOp>,
}

impl Sum {
    fn of(nodes: &[UOp], range: &UOp, unit: &TcInfo) -> Option<Sum> {
        let over = |u: &&UOp| u.op() == Op::Reduce && u.src()[1..].contains(range);
        let mut sums = nodes.iter().filter(over);
        let reduce = sums.next().filter(|u| u.dtype() == unit.dtype_out)?;
        if sums.next().is_some() || !matches!(reduce.arg(), Arg::Reduce(ReduceOp::Add, _)) {
            return None;
        }
        let term = &reduce.src()[0];
        let (gate, product) = match term.src() {
            [gate, product, other] if term.op() == Op::Where && is_zero(other) => {
                (Some(gate.clone()), product)
            }
            _ => (None, term),
        };
        let fits = |f: &UOp, dtype: DType| {
            let varies = f.ranges().contains(range);
            varies && holds(dtype, f) && !f.ops_below().contains(Op::Reduce)
        };
        let [x, y] = product.src() else { return None };
        let fitting = |[of_a, of_b]: [DType; 2]| {
            let mut orders = [[x, y], [y, x]].into_iter();
            orders.find(|[a, b]| fits(a, of_a) && fits(b, of_b))
        };
        let exact = fitting(unit.dtypes_in);
        let lifted = exact.is_none();
        let [a, b] = match exact {
            None if unit.dtypes_in == [DType::U8, DType::I8] => {
                // The number of the innermost axis with which a factor varies and the sum does not.
                let across = |f: &UOp| {
                    let ranges = f.ranges();
                    let open = ranges.iter().filter(|r| !reduce.src().contains(r));
                    open.filter_map(UOp::range_arg).max()
                };
                let [a, b] = fitting([DType::I8; 2])?;
                match across(a) > across(b) {
                    true => [b, a],
                    false => [a, b],
                }
            }
            found => found?,
        };
        product.may_contract().then(|| Sum {
            reduce: reduce.clone(),
            factors: [a.clone(), b.clone()],
            lifted,
            gate,
        })
    }
}

/// The sum of a term over these axes, as axes of its own from a number on.
fn apart(term: &UOp, over: &[UOp], first: u32) -> UOp {
    let own = over.iter().zip(first..);
    let own = own.map(|(r, number)| r.with_arg(Arg::Range(number, AxisType::Reduce)));
    let own: Vec<UOp> = own.collect();
    let here = over.iter().cloned().zip(own.iter().cloned()).collect();
    term.substitute(&here).reduce_ranges(ReduceOp::Add, &own)
}

fn is_zero(u: &UOp) -> bool {
    u.const_value().is_some_and(|v| v.is_zero())
}

/// Whether all values of an expression are of a dtype, however it is computed. A float may be 0 where a condition does not
/// hold: past the end of an axis that is padded.
fn holds(dtype: DType, u: &UOp) -> bool {
    if dtype.is_float() {
        return match u.src() {
            [_, value, other] if u.op() == Op::Where => is_zero(other) && holds(dtype, value),
            _ => u.op() == Op::Cast && u.src()[0].dtype() == dtype,
        };
    }
    let (low, high) = u.bounds();
    let least = dtype.min().to_i128();
    let most = dtype.max().to_i128();
    u.dtype().is_int() && low as i128 >= least && high as i128 <= most
}

/// The bits of a value that a dtype holds, the lowest of a word whose others are 0.
fn bits(u: &UOp, dtype: DType, word: DType) -> UOp {
    let whole = whole_bits(u, dtype, word);
    match dtype.is_float() || dtype.is_unsigned() {
        true => whole,
        false => &whole & &UOp::int((1i64 << (8 * dtype.bytes())) - 1, word),
    }
}

/// The same where the word's others are any.
fn whole_bits(u: &UOp, dtype: DType, word: DType) -> UOp {
    match u.src() {
        _ if !dtype.is_float() => u.cast(word),
        [of] => of.bitcast(DType::U16).cast(word),
        [gate, value, _] => gate.select(&whole_bits(value, dtype, word), &UOp::int(0, word)),
        // Past the end, where that is known.
        _ => UOp::int(0, word),
    }
}

#[cfg(test)]
mod tests {
    use crate::opt::tests::support::*;
    use crate::opt::{applied, apply};
    use monoglot_uop::{AxisType, DType, Op, OptOp, ReduceOp, Target, TcInfo, UOp};

    const UNIT: usize = 2;

    #[test]
    fn a_sum_of_products_of_bytes_is_one_of_words() {
        let k = byte_matmul(8, 6, 12, DType::I8);
        let after = check(&k, &[tc_by(UNIT, 2)]);
        assert!(after.ops_below().contains(Op::Wmma));
        // Before other Opts and after them, and where one turn is all there is.
        let loops = split(0, 2, AxisType::Loop, false);
        check(
            &k,
            &[tc_by(UNIT, 2), loops, split(3, 3, AxisType::Unroll, false)],
        );
        check(&k, &[split(1, 3, AxisType::Upcast, false), tc_by(UNIT, 2)]);
        check(&byte_matmul(4, 3, 2, DType::U8), &[tc_by(UNIT, 2)]);
    }

    #[test]
    fn an_odd_number_of_terms_is_padded_before_and_parts_after() {
        let k = byte_matmul(4, 5, 7, DType::U8);
        check(&k, &[padto(2, 2), tc_by(UNIT, 2)]);
        check(&k, &[padto(2, 2), tc_by(UNIT, 2), padto(2, 3), padto(0, 8)]);
        refused(&k, &[tc_by(UNIT, 2)], "not a multiple of 2");
    }

    /// A target whose unit multiplies bytes without a sign by those with one.
    fn lifting() -> Target {
        let bytes = TcInfo::dot("bytes", [DType::U8, DType::I8], DType::I32);
        Target {
            caches: [1 << 10, 16 << 10, 128 << 10],
            matrix_units: vec![bytes],
            ..target(false)
        }
    }

    #[test]
    fn factors_that_both_have_signs_are_two_sums() {
        let k = byte_matmul(8, 6, 12, DType::I8);
        let after = check_on(&k, &[tc_by(0, 2)], &lifting());
        let nodes = after.toposort();
        let sums: Vec<&UOp> = nodes.iter().filter(|u| u.op() == Op::Reduce).collect();
        assert_eq!(sums.len(), 2, "{after}");
        let rows = |u: &&&UOp| u.ranges().iter().any(|r| r.vmax() == 7);
        let varying = sums.iter().filter(rows).count();
        assert_eq!(varying, 1, "what is taken off is the same for all rows");
        // One with a sign and one without need no other sum.
        let after = check_on(
            &byte_matmul(8, 6, 12, DType::U8),
            &[tc_by(0, 2)],
            &lifting(),
        );
        let nodes = after.toposort();
        assert_eq!(nodes.iter().filter(|u| u.op() == Op::Reduce).count(), 1);
    }

    /// The sums of columns are made once for all rows of a block.
    #[test]
    fn blocked_products_of_two_signs_share_the_sums_of_columns() {
        for (m, n, k) in [(128, 64, 64), (96, 96, 256), (133, 71, 99)] {
            let kernel = byte_matmul(m, n, k, DType::I8);
            let opts = crate::opt::choose(&kernel, &lifting());
            let stages = |o: &&monoglot_uop::Opt| matches!(o.op, OptOp::Stage { .. });
            assert!(opts.iter().filter(stages).count() > 2, "{opts:?}");
            check_on(&kernel, &opts, &lifting());
        }
    }

    /// Elements beside each other are read as the words that they are, where nothing else reads them.
    #[test]
    fn words_that_lie_in_memory_are_read_from_it() {
        let words = |k: &UOp| {
            let after = check_on(k, &[tc_by(0, 2)], &lifting());
            let nodes = after.toposort();
            let word = |u: &&UOp| u.op() == Op::Param && u.dtype() == DType::U32;
            nodes.iter().filter(word).count()
        };
        assert_eq!(words(&byte_matmul(8, 6, 12, DType::I8)), 1);
        assert_eq!(words(&byte_matmul(8, 6, 4, DType::U8)), 1);
        // One buffer for both factors is read in two ways.
        let r = ranges(&[8, 8], &[12]);
        let x = param(1, &[96], DType::I8);
        let row = |i: usize| x.at(&[linear(&[(&r[i], 12), (&r[2], 1)])]).cast(DType::I32);
        let sum = (row(0) * row(1)).reduce_ranges(ReduceOp::Add, &r[2..]);
        let out = param(0, &[64], DType::I32).at(&[linear(&[(&r[0], 8), (&r[1], 1)])]);
        assert_eq!(words(&sink(&[out.store(&sum).end(&r[..2])])), 0);
    }

    /// Halves that are rounded to a unit's floats are no words of these, though as many bytes.
    #[test]
    fn floats_of_other_bits_are_converted() {
        let unit = TcInfo::dot("pairs", [DType::BF16; 2], DType::F32);
        let target = Target {
            matrix_units: vec![unit],
            ..lifting()
        };
        let r = ranges(&[8, 8], &[12]);
        let row = |slot: u64, i: usize, d: DType| {
            let x = param(slot, &[96], d).at(&[linear(&[(&r[i], 12), (&r[2], 1)])]);
            x.cast(DType::BF16).cast(DType::F32)
        };
        let product = row(1, 0, DType::F16) * row(2, 1, DType::BF16);
        let sum = product.reduce_ranges(ReduceOp::Add, &r[2..]);
        let out = param(0, &[64], DType::F32).at(&[linear(&[(&r[0], 8), (&r[1], 1)])]);
        let kernel = sink(&[out.store(&sum).end(&r[..2])]);
        let after = check_on(&kernel, &[tc_by(0, 2)], &target);
        let nodes = after.toposort();
        let word = |u: &&UOp| u.op() == Op::Param && u.dtype() == DType::U32;
        assert_eq!(nodes.iter().filter(word).count(), 1);
    }

    /// Past the end of an axis each factor is a 0, not the product.
    #[test]
    fn floats_may_be_padded() {
        let unit = TcInfo::dot("pairs", [DType::BF16; 2], DType::F32);
        let target = Target {
            matrix_units: vec![unit],
            ..target(false)
        };
        let of = |m, n, k| product(m, n, k, [DType::BF16, DType::BF16, DType::F32]);
        let k = of(4, 5, 7);
        check_on(&k, &[padto(2, 2), tc_by(0, 2)], &target);
        let blocks = [padto(2, 2), tc_by(0, 2), padto(2, 3), padto(0, 8)];
        check_on(&k, &blocks, &target);
        // What is one word: its second half is past the end whatever the axes are.
        check_on(&of(3, 4, 1), &[padto(2, 2), tc_by(0, 2)], &target);
    }

    #[test]
    fn words_are_staged_whole() {
        let k = byte_matmul(8, 6, 12, DType::I8);
        for operand in 0..2 {
            let stage = monoglot_uop::Opt {
                op: OptOp::Stage {
                    operand,
                    last: None,
                },
                axis: operand,
            };
            let opts = [tc_by(UNIT, 2), split(0, 4, AxisType::Loop, false), stage];
            let target = target(false);
            let after = check_on(&k, &opts, &target);
            let nodes = after.toposort();
            let product = nodes.iter().find(|u| u.op() == Op::Wmma).unwrap();
            let staged = |u: &monoglot_uop::UOp| u.op() == Op::Index && u.dtype() == DType::U32;
            assert_eq!(product.src()[..2].iter().filter(|u| staged(u)).count(), 1);
        }
    }

    #[test]
    fn what_words_do_not_hold_is_refused() {
        refused(&matmul(8, 8, 8), &[tc_by(UNIT, 2)], "unit's dtypes");
        let wide = byte_matmul(8, 8, 8, DType::U16);
        refused(&wide, &[tc_by(UNIT, 2)], "unit's dtypes");
        refused(
            &byte_matmul(8, 8, 8, DType::I8),
            &[tc_by(UNIT, 0)],
            "REDUCE",
        );
    }

    /// Products of bytes get the unit where their words are worth staging, with padding where they need some.
    #[test]
    fn blocked_products_of_bytes_use_the_unit() {
        let small = Target {
            caches: [1 << 10, 16 << 10, 128 << 10],
            ..target(false)
        };
        for (m, n, k) in [(128, 64, 64), (133, 71, 99), (300, 40, 3)] {
            for of_b in [DType::I8, DType::U8] {
                let kernel = byte_matmul(m, n, k, of_b);
                let opts = crate::opt::choose(&kernel, &small);
                let unit = opts.iter().any(|o| o.op == OptOp::Tc { unit: UNIT });
                let stages = |o: &&monoglot_uop::Opt| matches!(o.op, OptOp::Stage { .. });
                assert!(unit && opts.iter().filter(stages).count() > 1, "{opts:?}");
                lowers(&check_on(&kernel, &opts, &small), false);
                assert_eq!(applied(&apply(&kernel, &opts, &small).unwrap()), opts);
            }
        }
    }
}
