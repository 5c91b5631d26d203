//! Random schedules for the fuzzers. Flows in: a kernel, a target and a seed; flows out: a list of
//! Opts that `apply` accepts and the target can run, or the kernel over smaller ranges, so that one
//! run is short. Invariant: the same seed gives the same answer.

use monoglot_codegen::opt::staging::{Staging, stage};
use monoglot_codegen::opt::{applied, apply, axes, overwrites_rows};
use monoglot_uop::{AddrSpace, AxisType, Op, Opt, OptOp, Shape, Target, UOp};
use rustc_hash::FxHashMap;

/// Most copies of a value in registers that a random schedule makes.
const COPIES: i64 = 64;
/// Most times as many iterations as the kernel had, after padding.
const WASTE: i64 = 8;

/// A generator of numbers (xorshift64*), enough for choices.
pub struct Choice(u64);

impl Choice {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Choice {
        Choice((seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd6e8_feb8_6659_fd93) | 1)
    }

    /// A number below `n` (0 where n is 0).
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let x = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        if n == 0 { 0 } else { x as usize % n }
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A kernel with the Opts drawn so far.
struct Drawn {
    opts: Vec<Opt>,
    after: UOp,
    axes: Vec<UOp>,
}

impl Drawn {
    /// The kernel after these Opts, unless one of them is refused.
    fn new(kernel: &UOp, opts: Vec<Opt>, target: &Target) -> Option<Drawn> {
        let after = apply(kernel, &opts, target).ok()?;
        let axes = axes(&after);
        Some(Drawn { opts, after, axes })
    }

    fn iterations(&self) -> i64 {
        self.axes
            .iter()
            .fold(1, |n, a| n.saturating_mul(a.src()[0].vmax().max(1)))
    }

    /// Copies of a value that stand side by side.
    fn copies(&self) -> i64 {
        self.product(&[AxisType::Upcast, AxisType::Unroll])
    }

    /// Iterations over the axes of these types.
    fn product(&self, types: &[AxisType]) -> i64 {
        let of = |t: AxisType| self.axes.iter().filter(move |a| kind(a) == t);
        let extent = |a: &UOp| a.src()[0].as_int().unwrap_or(i64::MAX);
        types
            .iter()
            .flat_map(|&t| of(t))
            .fold(1i64, |n, a| n.saturating_mul(extent(a)))
    }
}

/// Tries at a schedule a few steps from another.
const TRIES: usize = 64;

/// A few steps from other Opts, which are valid: some taken out, put elsewhere or in besides, factors changed.
/// None where too many tries were refused.
pub fn near(kernel: &UOp, opts: &[Opt], target: &Target, seed: u64) -> Option<Vec<Opt>> {
    let mut choice = Choice::new(seed ^ 0x6e65);
    let first = Drawn::new(kernel, opts.to_vec(), target)?;
    let most = first.iterations().saturating_mul(2);
    let copies = first.copies().max(COPIES).saturating_mul(2);
    let tried = (0..TRIES).find_map(|_| {
        let mut opts = opts.to_vec();
        for _ in 0..1 + choice.below(4) {
            step(&mut opts, &first, &mut choice);
        }
        let drawn = Drawn::new(kernel, opts, target)?;
        let fits = runs(&drawn, target, copies) && drawn.iterations() <= most;
        fits.then_some(drawn)
    });
    tried.map(|drawn| drawn.opts)
}

/// One change of a list of Opts.
fn step(opts: &mut Vec<Opt>, first: &Drawn, choice: &mut Choice) {
    let at = choice.below(opts.len());
    let other = choice.of(&[2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64]);
    match choice.below(5) {
        0 if !opts.is_empty() => {
            opts.remove(at);
        }
        1 | 2 if !opts.is_empty() => {
            if let OptOp::Split { factor, .. } = &mut opts[at].op {
                *factor = other;
            }
        }
        3 if opts.len() > 1 => {
            let with = choice.below(opts.len());
            opts.swap(at, with);
        }
        _ => {
            let axis = choice.below(first.axes.len());
            let kinds = [AxisType::Upcast, AxisType::Unroll, AxisType::Loop];
            let split = OptOp::Split {
                factor: other,
                target: choice.of(&kinds),
                top: choice.below(6) == 0,
            };
            let with = choice.below(first.axes.len());
            let op = choice.of(&[split, split, split, OptOp::Swap { with }]);
            opts.insert(choice.below(opts.len() + 1), Opt { op, axis });
        }
    }
}

/// Up to eight Opts that are valid in this order on this target, of every kind it can run.
pub fn sample(kernel: &UOp, target: &Target, seed: u64) -> Vec<Opt> {
    let mut choice = Choice::new(seed);
    let Some(mut now) = Drawn::new(kernel, Vec::new(), target) else {
        return Vec::new();
    };
    let most = now.iterations().saturating_mul(WASTE);
    let wanted = choice.below(9);
    // A matrix unit comes first, after the padding that it needs.
    if !target.matrix_units.is_empty() && choice.below(3) == 0 {
        let reduce: Vec<usize> = (0..now.axes.len())
            .filter(|&i| kind(&now.axes[i]) == AxisType::Reduce)
            .collect();
        if !reduce.is_empty() {
            let unit = choice.below(target.matrix_units.len());
            let [m, n, k] = target.matrix_units[unit].dims;
            let tiled = target.matrix_units[unit].word().is_none();
            let tiled = |range: &UOp| tiled || kind(range) == AxisType::Reduce;
            let axes = now.axes.iter().enumerate();
            let pads = axes.filter(|(_, range)| tiled(range)).map(|(axis, range)| {
                let reduces = kind(range) == AxisType::Reduce;
                let multiple = if reduces { k } else { m.max(n) };
                let op = OptOp::PadTo { multiple };
                Opt { op, axis }
            });
            let tc = Opt {
                op: OptOp::Tc { unit },
                axis: choice.of(&reduce),
            };
            let with = Drawn::new(kernel, pads.chain([tc]).collect(), target);
            now = with.filter(|with| with.iterations() <= most).unwrap_or(now);
        }
    }
    for _ in 0..40 {
        if applied(&now.after).len() >= wanted || now.axes.is_empty() {
            break;
        }
        let axis = choice.below(now.axes.len());
        let n = now.axes[axis].src()[0].vmax();
        let op = match choice.below(12) {
            0 => OptOp::Swap {
                with: choice.below(now.axes.len()),
            },
            1 if choice.below(4) == 0 => OptOp::NoLocals,
            2 => OptOp::Stage {
                operand: choice.below(3),
                last: (choice.below(4) == 0).then(|| choice.below(now.axes.len())),
            },
            4 => OptOp::Cover {
                factor: 2 + choice.below(15) as i64,
                target: choice.of(&[AxisType::Loop, AxisType::Upcast]),
            },
            1..=3 => OptOp::PadTo {
                multiple: choice.of(&[2, 3, 4, 5, 7, 8, 16, 32]),
            },
            _ => {
                let divisors: Vec<i64> = (2..=n.min(64)).filter(|d| n % d == 0).collect();
                let factor = if divisors.is_empty() || choice.below(8) == 0 {
                    0
                } else {
                    choice.of(&divisors)
                };
                let target = choice.of(AxisType::ALL);
                OptOp::Split {
                    factor,
                    target,
                    top: target == AxisType::Thread || choice.below(4) == 0,
                }
            }
        };
        let opts = now.opts.iter().copied().chain([Opt { op, axis }]).collect();
        let with = Drawn::new(kernel, opts, target);
        now = with
            .filter(|with| runs(with, target, COPIES) && with.iterations() <= most)
            .unwrap_or(now);
    }
    now.opts
}

/// Most elements that a random schedule keeps of a value.
const KEPT: i64 = 1024;

/// The kernel in which values drawn at random are kept in storage of its own; every third is as it was, and so is what
/// writes over rows that it reads.
pub fn staged(kernel: &UOp, target: &Target, seed: u64) -> UOp {
    if overwrites_rows(kernel) {
        return kernel.clone();
    }
    let mut choice = Choice::new(seed ^ 0x57a6);
    let mut now = kernel.clone();
    for _ in 0..choice.below(3) {
        let values: Vec<UOp> = now
            .toposort()
            .into_iter()
            .filter(|u| matches!(u.op(), Op::Index | Op::Reduce) || u.op().is_elementwise())
            .collect();
        if values.is_empty() {
            break;
        }
        let value = &values[choice.below(values.len())];
        let mut over: Vec<UOp> = Vec::new();
        for r in value.ranges().iter() {
            if choice.below(2) == 0 {
                continue;
            }
            over.insert(choice.below(over.len() + 1), r.clone());
        }
        let extents = over.iter().map(|r| r.src()[0].vmax());
        let elements = extents.fold(1i64, i64::saturating_mul);
        let space = choice.of(&[AddrSpace::Local, AddrSpace::Reg]);
        let staging = Staging {
            value,
            over: &over,
            space,
        };
        if elements <= KEPT {
            now = stage(&now, &staging, target).unwrap_or(now);
        }
    }
    now
}

fn kind(range: &UOp) -> AxisType {
    range.range_arg().map_or(AxisType::Loop, |(_, t)| t)
}

/// Whether the target has what these axes need, and the code stays small: at most so many copies of a value.
fn runs(with: &Drawn, target: &Target, most: i64) -> bool {
    use AxisType::*;
    let has = |t: AxisType| with.axes.iter().any(|a| kind(a) == t);
    let group = with.product(&[Local, Warp, GroupReduce]);
    let copies = with.copies();
    // Each reduction over a group is staged in LOCAL memory, with the copies that a thread holds.
    let reduces = with
        .after
        .toposort()
        .iter()
        .filter(|u| u.op() == Op::Reduce)
        .count() as i64;
    let staged = if has(GroupReduce) {
        group.saturating_mul(copies).saturating_mul(8 * reduces)
    } else {
        0
    };
    let nodes = with.after.toposort();
    let kept = |space: AddrSpace| -> i64 {
        let own = nodes.iter().filter(|u| u.op() == Op::Buffer);
        let own = own.filter(|u| u.addrspace() == Some(space));
        own.map(|u| u.shape().max_len().saturating_mul(u.dtype().bytes() as i64))
            .fold(0, i64::saturating_add)
    };
    let threads = !has(Thread) || !target.workgroups && target.threads > 1;
    let grouped = has(Global) || has(Local) || has(Warp) || has(GroupReduce);
    let groups = group <= target.max_workgroup as i64 && (!grouped || target.workgroups);
    let local = staged.saturating_add(kept(AddrSpace::Local));
    let fits = local <= target.local_bytes as i64 && kept(AddrSpace::Reg) <= COPIES * KEPT;
    threads && groups && fits && copies <= most && with.product(&[Thread]) <= 64
}

/// The kernel with extents cut until it has at most `budget` iterations, and with buffers that hold
/// just what is then accessed: the same kind of kernel, quick to run.
pub fn shrink(kernel: &UOp, budget: i64, seed: u64) -> UOp {
    let mut choice = Choice::new(seed);
    let mut extents: Vec<(UOp, i64)> = axes(kernel)
        .into_iter()
        .filter_map(|r| r.src()[0].as_int().map(|n| (r, n)))
        .collect();
    loop {
        let total = extents.iter().fold(1i64, |n, (_, m)| n.saturating_mul(*m));
        let Some((_, most)) = extents.iter_mut().max_by_key(|(_, n)| *n) else {
            break;
        };
        if total <= budget || *most <= 2 {
            break;
        }
        *most = (*most / 2 + choice.below(*most as usize / 3 + 1) as i64)
            .min(*most - 1)
            .max(1);
    }
    let smaller = |(r, n): &(UOp, i64)| {
        let mut src: Vec<UOp> = r.src().to_vec();
        src[0] = UOp::index_const(*n);
        (r.clone(), r.with_src(src))
    };
    let kernel = kernel.substitute(&extents.iter().map(smaller).collect());
    fit(&kernel)
}

/// The kernel with PARAMs no larger than what its indices reach.
fn fit(kernel: &UOp) -> UOp {
    let nodes = kernel.toposort();
    let mut reach: FxHashMap<&UOp, Vec<i64>> = FxHashMap::default();
    for u in nodes
        .iter()
        .filter(|u| u.op() == Op::Index && u.src()[0].op() == Op::Param)
    {
        let p = &u.src()[0];
        let sizes = p.shape().max_ints();
        let seen = reach.entry(p).or_insert_with(|| vec![1; sizes.len()]);
        for ((s, n), i) in seen.iter_mut().zip(&sizes).zip(&u.src()[1..]) {
            // Beyond the size, or unknown: a gate decides, which the bounds do not show.
            let top = strip(i).vmax().saturating_add(1);
            *s = (*s).max(if top < 1 || top > *n { *n } else { top });
        }
    }
    let mut map = FxHashMap::default();
    for p in nodes
        .iter()
        .filter(|u| u.op() == Op::Param && u.shape().ints().is_some())
    {
        let Some(sizes) = reach.get(p) else { continue };
        let mut src: Vec<UOp> = p.src().to_vec();
        src[0] = UOp::dims(&Shape::of(sizes));
        map.insert(p.clone(), p.with_src(src));
    }
    kernel.substitute(&map)
}

/// An index without its gate.
fn strip(index: &UOp) -> &UOp {
    match index.op() {
        Op::Where if index.src()[2].is_invalid() => &index.src()[1],
        _ => index,
    }
}
