//! Slices side by side: vectors in which each lane is a slice, where a kernel keeps something of its slices or these
//! are short, and no values lie side by side along them. Flows in: what a kernel does, as numbers; flows out: Opts, added to
//! those chosen. Invariant: what is kept of a vector of slices fits LOCAL storage.
//!
//! All loops through a slice have the same lanes, so nothing is folded across lanes, and what a slice shares is
//! a vector. Reads that vary with the slice and that its loops read again are staged for all lanes at once, in
//! the order of these: they are put together from scattered places once. Then each run through the slices gets
//! a tile of its own.

use super::slices::Slices;
use super::{Chosen, Weighed, cpu, inner, keep, outermost};
use crate::graph::bits;
use crate::loops;
use crate::opt::cost::Tile;
use crate::opt::features::Features;
use crate::opt::masked::folded;
use crate::opt::staging;
use monoglot_uop::{AddrSpace, AxisType, Op, OptOp, UOp};

/// Fewest copies of a turn for which it is worth to go past the end of a slice.
const COPIES: i64 = 4;
/// How many vectors are tried side by side, as long as more are better.
const VECTORS: [i64; 3] = [1, 2, 4];
/// Bytes of memory that are fetched together.
const LINE: i64 = 64;
/// Fewest terms of a part of a sum.
const SHORT: i64 = 32;
/// How many times as many cycles fewer of them may take.
const GAIN: f64 = 0.95;
/// The same of fewer yet, where twice as many again may gain half as much once more.
const FURTHER: f64 = 1.0 - 2.0 * (1.0 - GAIN);
/// How many times as many cycles as without them one vector may take, as two take half of that at best.
const HOPE: f64 = 2.0;

impl Slices {
    /// Choose lanes along an axis of slices; None, with nothing chosen, where that takes no less than so many cycles, those
    /// of a tile of all loops as they are.
    pub(super) fn beside(&self, features: &Features, most: f64, chosen: &mut Chosen) -> Option<()> {
        let target = chosen.target;
        let lanes = (target.vector_bytes / 4).max(1) as i64;
        let axes = self.apart & features.known & features.of_kind(AxisType::Loop);
        let axis = bits(axes).last()?;
        let mut others = vec![("slices as they lie".to_string(), most)];
        let mut best: Option<(f64, Chosen, Features, Tile)> = None;
        let mut padded = chosen.fork();
        self.pad(features, &mut padded);
        let nodes = padded.nest.kernel().toposort();
        for vectors in VECTORS {
            let factor = vectors * lanes;
            if features.extent[axis] <= factor - lanes {
                continue;
            }
            let mut fork = padded.fork();
            let Some((cycles, features, tile)) = try_lanes(axis, factor, &nodes, &mut fork) else {
                continue;
            };
            // As few vectors as do: what is kept is smaller.
            let fewer = others[1..].last().map_or(f64::INFINITY, |o| o.1);
            others.push((factor.to_string(), cycles));
            if cycles >= fewer * GAIN {
                break;
            }
            if cycles < best.as_ref().map_or(most, |b| b.0 * GAIN) {
                best = Some((cycles, fork, features, tile));
            }
            if cycles >= fewer * FURTHER || cycles > most * HOPE {
                break;
            }
        }
        let (cycles, fork, features, tile) = best?;
        *chosen = fork;
        others.retain(|o| o.1 != cycles);
        if let Some(first) = chosen.list.first_mut().filter(|_| chosen.explained) {
            first.weighed = Some(Weighed::new(cycles, "cycles", others));
        }
        let slices = Slices::of(&features)?;
        let left = |k: &usize| features.extent[*k] > tile.factor[*k];
        let order: Vec<usize> = bits(slices.apart & features.outer).filter(left).collect();
        cpu::arrange(&features, &tile, &order, chosen);
        Some(())
    }

    /// Have the loops through a slice turn as often as a few copies at a time need, where their extent is a prime or little
    /// better.
    fn pad(&self, features: &Features, chosen: &mut Chosen) {
        let inside = self.runs.iter().fold(0, |m, run| m | run);
        for k in bits(inside & features.known & !self.apart) {
            let n = features.extent[k];
            let divides = (COPIES..=cpu::MOST).any(|f| n % f == 0);
            if divides || n < COPIES * cpu::MOST {
                continue;
            }
            if let Some(at) = chosen.axis(k, features.kind(k)) {
                let multiple = COPIES;
                chosen.add(OptOp::PadTo { multiple }, at, "copies of an odd extent");
            }
        }
    }
}

/// So many slices along an axis of a kernel of these nodes as lanes: what that costs, with the tile of all runs.
fn try_lanes(
    axis: usize,
    factor: i64,
    nodes: &[UOp],
    chosen: &mut Chosen,
) -> Option<(f64, Features, Tile)> {
    let mut nodes = nodes.to_vec();
    while sums_in_parts(axis, factor, &nodes, chosen).is_some() {
        nodes = chosen.nest.kernel().toposort();
    }
    let at = chosen.axis(axis, AxisType::Loop)?;
    if chosen.nest.axes[at].extent()? % factor != 0 {
        let multiple = factor;
        chosen.add(OptOp::PadTo { multiple }, at, "vectors of an odd extent");
    }
    let whole = chosen.nest.axes[at].extent() == Some(factor);
    let split = inner(if whole { 0 } else { factor }, AxisType::Upcast);
    if !chosen.add(split, at, "lanes are slices side by side") {
        return None;
    }
    if !fits(chosen) {
        return None;
    }
    // The loops over slices stand outermost.
    let slices = if whole { axis } else { axis + 1 };
    stage(slices, chosen);
    let mut features = chosen.features()?;
    let slices = Slices::of(&features)?;
    let lane = bits(features.of_kind(AxisType::Upcast)).next()?;
    let mut tile = Tile::single(&features);
    tile.factor[lane] = factor;
    tile.lane = Some(lane);
    // Loops that carry something along stay as they are.
    let carried = (0..features.extent.len()).filter(|&k| chosen.nest.is_carried(k));
    features.known &= !carried.fold(0, |m, k| m | 1 << k);
    let (tile, cycles) = slices.by_run(&features, tile, chosen.target);
    Some((cycles, features, tile))
}

/// Have the sums in which each element of what is kept is a factor of several done in parts, if the first cache
/// does not hold what they take in for a vector of slices: the loops over those sums stand inside that over the parts.
fn sums_in_parts(axis: usize, lanes: i64, nodes: &[UOp], chosen: &mut Chosen) -> Option<()> {
    let axes = crate::opt::ranges(nodes);
    let slice = chosen.axis(axis, AxisType::Loop)?;
    // Past the end of a slice stands zero.
    let at_end =
        |u: &UOp| u.op() == Op::Where && u.src()[2].const_value().is_some_and(|v| v.is_zero());
    let read = |u: &UOp| {
        if at_end(u) {
            u.src()[1].clone()
        } else {
            u.clone()
        }
    };
    let is_kept = |u: &UOp| u.op() == Op::Index && u.src()[0].op() == Op::After;
    let is_factor = |s: &UOp| {
        let [term] = &s.src()[1..] else { return false };
        let open = |u: &UOp| u.ranges().contains(term);
        let around = |r: &UOp| axes.iter().position(|a| a == r) <= Some(slice);
        let own = s.ranges().iter().filter(|r| !around(r)).count();
        let product = folded(s);
        let mut kept = product
            .src()
            .iter()
            .map(read)
            .filter(|u| is_kept(u) && open(u));
        own == 1
            && product.op() == Op::Mul
            && kept.any(|u| u.ranges().iter().all(|r| around(r) || r == term))
    };
    let operands = staging::operands(nodes);
    let operand = operands
        .iter()
        .position(|u| u.op() == Op::Reduce && is_factor(u))?;
    let sum = &operands[operand];
    let terms = sum.src()[1].src()[0].as_int()?;
    let bytes = lanes * sum.dtype().bytes() as i64 + LINE;
    let most = chosen.target.caches[0] as i64 * 3 / 4 / bytes;
    let parts = (1..=terms).find(|p| terms % p == 0 && terms / p <= most)?;
    if parts == 1 || terms / parts < SHORT {
        return None;
    }
    let mut fork = chosen.fork();
    let why = "sums of a slice, done in parts";
    let stage = fork.add(keep(operand), slice, why);
    let fill = fork.last_loop().filter(|_| stage)?;
    // The terms are those of the sum that is stored by the loop.
    let nodes = fork.nest.kernel().toposort();
    let axes = crate::opt::ranges(&nodes);
    let inside = |s: &&UOp| s.op() == Op::Reduce && s.ranges().contains(&axes[fill]);
    let sum = nodes.iter().find(inside)?;
    let at = axes.iter().position(|r| *r == sum.src()[1])?;
    let cut = outermost(parts, AxisType::Reduce);
    let split = fork.add(cut, at, "parts of the sums");
    // The part stands first among the axes of its type.
    let part = fork
        .nest
        .axes
        .iter()
        .position(|a| a.kind() == AxisType::Reduce)?;
    let why = "parts of the sums around their tiles";
    (split && fork.add(OptOp::Swap { with: fill }, part, why)).then(|| *chosen = fork)
}

/// Whether what is kept fits LOCAL storage.
fn fits(chosen: &Chosen) -> bool {
    let nodes = chosen.nest.kernel().toposort();
    let local = nodes
        .iter()
        .filter(|u| u.op() == Op::Buffer && u.addrspace() == Some(AddrSpace::Local));
    let bytes = local.map(|u| u.shape().max_len() * u.dtype().bytes() as i64);
    bytes.sum::<i64>() <= chosen.target.local_bytes as i64
}

/// What is better staged inside so many loops over slices: reads that vary with the lanes and are read again in the
/// slice, and those that all lanes want as another dtype in each turn of a sum; by number among what can be.
fn again(slices: usize, chosen: &Chosen) -> Option<Vec<(usize, &'static str)>> {
    let nodes = chosen.nest.kernel().toposort();
    let axes = crate::opt::ranges(&nodes);
    let kind = |r: &UOp| loops::kind(r);
    let lane = axes.iter().find(|r| kind(r) == AxisType::Upcast)?;
    let varies = |u: &UOp| {
        let open = u.ranges();
        let sums = nodes.iter().filter(|s| s.op() == Op::Reduce);
        let inside = |s: &&UOp| s.src()[1..].iter().any(|r| open.contains(r));
        let other =
            |r: &UOp| kind(r) == AxisType::Loop && !axes[..slices].contains(r) && !open.contains(r);
        open.contains(lane) && sums.filter(inside).any(|s| s.ranges().iter().any(other))
    };
    let most = chosen.target.caches[1] as i64 / 2;
    let converted = |u: &UOp| {
        let open = u.ranges();
        let narrow = u.op() == Op::Cast && u.src()[0].dtype().bytes() < u.dtype().bytes();
        let inside = open.iter().filter(|r| !axes[..slices].contains(r));
        let mut extents = inside.map(|r| r.src()[0].as_int());
        let bytes = extents.try_fold(u.dtype().bytes() as i64, |all, n| all.checked_mul(n?));
        let summed = open.iter().any(|r| kind(r) == AxisType::Reduce);
        narrow && summed && !open.contains(lane) && bytes.is_some_and(|n| n <= most)
    };
    let operands = staging::operands(&nodes);
    let which = |is: &dyn Fn(&UOp) -> bool, why| {
        let is = |(_, u): &(usize, &UOp)| u.op() != Op::Reduce && is(u);
        let found = operands.iter().enumerate().filter(is);
        found.map(|(k, _)| (k, why)).collect::<Vec<_>>()
    };
    let mut found = which(&varies, "what slices side by side read again");
    found.extend(which(&converted, "what they share, converted once"));
    Some(found)
}

/// Stage these, as long as fewer are left then: what is read to fill another slice stays as it is.
fn stage(slices: usize, chosen: &mut Chosen) -> Option<()> {
    let mut left = again(slices, chosen)?;
    while let Some(&(operand, why)) = left.first() {
        let mut fork = chosen.fork();
        fork.add(keep(operand), slices.checked_sub(1)?, why)
            .then_some(())?;
        let fewer = again(slices, &fork)?;
        if fewer.len() >= left.len() {
            break;
        }
        *chosen = fork;
        left = fewer;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use crate::opt::choose;
    use crate::opt::tests::support::{check_on, lowers, target};
    use monoglot_uop::text::parse;
    use monoglot_uop::{AxisType, Op, Opt, OptOp, Target, UOp};

    /// Scores of every query with every key, kept, and how far they are from the greatest in their place; of
    /// these the weighed sums of values, less what they sum up to. All of it is exact.
    fn attention(heads: i64, queries: i64, keys: i64, width: i64) -> UOp {
        parse(&text_of(heads, queries, keys, width)).expect("a kernel")
    }

    fn text_of(heads: i64, queries: i64, keys: i64, width: i64) -> String {
        let all = heads * queries * width;
        let values = heads * keys * width;
        let head = keys * width;
        let own = queries * width;
        format!(
            "p0 = PARAM[0, f32, CPU] ({all},)
r0 = RANGE[0, LOOP] {heads}
r1 = RANGE[1, LOOP] {queries}
r2 = RANGE[2, LOOP] {width}
%0 = MUL r0 {own}
%1 = MUL r1 {width}
%2 = ADD %0 %1
%3 = ADD %2 r2
%4 = INDEX p0 %3
b0 = BUFFER[0, f32, LOCAL] ({keys},)
r3 = RANGE[3, LOOP] {keys}
r4 = RANGE[4, LOOP] {keys}
r5 = RANGE[5, REDUCE] {width}
r6 = RANGE[6, REDUCE] {keys}
r7 = RANGE[7, REDUCE] {keys}
r8 = RANGE[8, REDUCE] {keys}
p1 = PARAM[1, f32, CPU] ({all},)
p2 = PARAM[2, f32, CPU] ({values},)
p3 = PARAM[3, f32, CPU] ({values},)
%10 = MUL r0 {head}
%11 = MUL r3 {width}
%12 = ADD %10 %11
%13 = ADD %12 r5
%14 = INDEX p2 %13
%15 = ADD %2 r5
%16 = INDEX p1 %15
%17 = MUL %16 0.5
%18 = MUL %14 %17
%19 = REDUCE[ADD] %18 r5
%20 = INDEX b0 r3
%21 = STORE %20 %19
%22 = END %21 r3
%23 = AFTER b0 %22
%24 = INDEX %23 r6
%25 = REDUCE[MAX] %24 r6
%26 = INDEX %23 r4
%27 = SUB %26 %25
%28 = MUL %27 0.5
%29 = INDEX b0 r4
%30 = STORE %29 %28
%31 = END %30 r4
%32 = AFTER b0 %31
%33 = INDEX %32 r7
%34 = REDUCE[ADD] %33 r7
%35 = INDEX %32 r8
%36 = MUL r8 {width}
%37 = ADD %10 %36
%38 = ADD %37 r2
%39 = INDEX p3 %38
%40 = MUL %35 %39
%41 = REDUCE[ADD] %40 r8
%42 = SUB %41 %34
%43 = STORE %4 %42
%44 = END %43 r0 r1 r2
SINK[\"\"] %44
"
        )
    }

    fn small() -> Target {
        Target {
            caches: [8 << 10, 64 << 10, 128 << 10],
            local_bytes: 1 << 20,
            ..target(false)
        }
    }

    #[test]
    fn slices_side_by_side_keep_the_result() {
        let small = small();
        let sizes = [
            [2, 16, 64, 4],
            [3, 20, 64, 6],
            [2, 9, 7, 4],
            [2, 13, 67, 4],
            [1, 67, 131, 8],
        ];
        for [h, l, s, d] in sizes {
            let kernel = attention(h, l, s, d);
            for threads in [1, 2] {
                let target = Target {
                    threads,
                    ..small.clone()
                };
                let opts = choose(&kernel, &target);
                lowers(&check_on(&kernel, &opts, &target), false);
            }
        }
    }

    /// Keys of another dtype are not converted for each vector of queries and turn of their sums: once for a head.
    #[test]
    fn what_slices_share_is_converted_once() {
        let small = small();
        for [h, l, s, d] in [[2, 64, 64, 8], [3, 36, 67, 4], [2, 16, 64, 4]] {
            let text = text_of(h, l, s, d)
                .replace("p2 = PARAM[2, f32", "p2 = PARAM[2, bf16")
                .replace(
                    "%14 = INDEX p2 %13",
                    "%45 = INDEX p2 %13\n%14 = CAST[f32] %45",
                );
            let kernel = parse(&text).expect("a kernel");
            for threads in [1, 2] {
                let target = Target {
                    threads,
                    ..small.clone()
                };
                let opts = choose(&kernel, &target);
                lowers(&check_on(&kernel, &opts, &target), false);
                let stages = |opts: &[Opt]| {
                    let stages = opts.iter().filter(|o| matches!(o.op, OptOp::Stage { .. }));
                    stages.count()
                };
                let plain = choose(&attention(h, l, s, d), &target);
                assert_eq!(stages(&opts), stages(&plain) + 1, "{opts:?}");
            }
        }
    }

    /// Where no few copies divide a slice, it is padded to them, and its sums are done in parts all the same.
    #[test]
    fn slices_of_a_prime_length_have_copies() {
        let small = Target {
            caches: [16 << 10, 256 << 10, 1 << 20],
            local_bytes: 1 << 20,
            ..target(false)
        };
        let kernel = attention(4, 131, 257, 16);
        let opts = choose(&kernel, &small);
        let padded = |o: &&Opt| o.op == OptOp::PadTo { multiple: 4 };
        assert_eq!(opts.iter().filter(padded).count(), 5, "{opts:?}");
        let stages = opts.iter().filter(|o| matches!(o.op, OptOp::Stage { .. }));
        assert_eq!(stages.count(), 2, "{opts:?}");
        let copies = |o: &&Opt| match o.op {
            OptOp::Split { factor, target, .. } => factor >= 4 && target == AxisType::Upcast,
            _ => false,
        };
        assert!(opts.iter().filter(copies).count() > 2, "{opts:?}");
    }

    /// Queries lie far apart: what their lanes read is staged, and sums that the first cache does not hold are done
    /// in parts.
    #[test]
    fn what_slices_side_by_side_read_again_is_staged() {
        let small = Target {
            caches: [32 << 10, 256 << 10, 1 << 20],
            local_bytes: 1 << 20,
            ..target(false)
        };
        let kernel = attention(4, 128, 512, 16);
        let opts = choose(&kernel, &small);
        let stages = opts.iter().filter(|o| matches!(o.op, OptOp::Stage { .. }));
        assert_eq!(stages.count(), 2, "{opts:?}");
        let after = crate::opt::apply(&kernel, &opts, &small).expect("they apply");
        let nodes = after.toposort();
        let local = nodes.iter().filter(|u| u.op() == Op::Buffer);
        let bytes: i64 = local.map(|u| u.shape().max_len() * 4).sum();
        // As many slices as lanes, of scores, queries and sums.
        assert!(bytes <= 64 * (512 + 16 + 16) * 4, "{bytes}");
    }

    /// The logarithms of probabilities along rows of so many numbers: nothing is kept of a row.
    fn log_softmax(rows: i64, n: i64) -> UOp {
        let text = format!(
            "p0 = PARAM[0, f32, CPU] ({all},)
             r0 = RANGE[0, LOOP] {rows}
             %0 = MUL r0 {n}
             r1 = RANGE[1, LOOP] {n}
             %1 = ADD %0 r1
             %2 = INDEX p0 %1 : f32
             p1 = PARAM[1, f32, CPU] ({all},)
             %3 = INDEX p1 %1 : f32
             r2 = RANGE[2, REDUCE] {n}
             %4 = ADD %0 r2
             %5 = INDEX p1 %4 : f32
             %6 = REDUCE[MAX] %5 r2
             %7 = SUB %3 %6
             r3 = RANGE[3, REDUCE] {n}
             %8 = ADD %0 r3
             %9 = INDEX p1 %8 : f32
             %10 = SUB %9 %6
             %12 = EXP2 %10
             %13 = REDUCE[ADD] %12 r3
             %14 = LOG2 %13
             %16 = SUB %7 %14
             %17 = STORE %2 %16
             %18 = END %17 r0 r1
             SINK %18",
            all = rows * n
        );
        parse(&text).expect("a kernel")
    }

    /// A short row in a vector would have each operation wait for the one before: its lanes are rows.
    #[test]
    fn short_slices_are_lanes() {
        let target = target(false);
        let lanes = target.vector_bytes as i64 / 4;
        for n in [3, 5, 6, 7, 12] {
            let opts = choose(&log_softmax(40_000, n), &target);
            let rows = |o: &&Opt| match o.op {
                OptOp::Split { factor, target, .. } => {
                    o.axis == 0 && factor % lanes == 0 && target == AxisType::Upcast
                }
                _ => false,
            };
            assert_eq!(opts.iter().filter(rows).count(), 1, "{n}: {opts:?}");
        }
    }
}
