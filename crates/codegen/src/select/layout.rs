//! Which axes become lanes of vectors. Flows in: the table; flows out: what of it is needed as data
//! and what as an index, how indices change along each axis, and each axis cut into chunks: vectors
//! of a power of two along an axis of lanes, single elements along the others. Invariant: no value
//! extends along two axes of lanes.

use super::across::{After, Lanes};
use super::table::{Axes, Demand, Steps, Table, is_fragment, is_warps};
use super::tiled::{Tiled, tiled};
use crate::build::NEAR;
use monoglot_uop::{Arg, DType, Op, Target, UOp};
use rustc_hash::FxHashSet;
use smallvec::{SmallVec, smallvec};

pub(super) struct Layout {
    pub(super) demand: Vec<Demand>,
    /// By node.
    pub(super) steps: Vec<Steps>,
    /// By axis: whether its chunks are vectors.
    pub(super) is_lane: Axes<bool>,
    /// By axis: elements of a vector along it.
    widths: Axes<usize>,
    /// By axis: first element and length of each chunk.
    pub(super) chunks: Axes<Vec<(u32, u32)>>,
    /// By node: whether it is index arithmetic that is done for all lanes at once, which are then taken
    /// out of it.
    pub(super) gathered: Vec<bool>,
    /// The REDUCE that a unit of tiles does.
    pub(super) tiled: Option<Tiled>,
}

impl Layout {
    pub(super) fn lanes(&self) -> Lanes<'_> {
        Lanes {
            demand: &self.demand,
            steps: &self.steps,
            is_lane: &self.is_lane,
            widths: &self.widths,
        }
    }
}

/// A REDUCE over a product that fused multiply-adds accumulate: the factors take the product's place.
pub(super) fn fuses(t: &Table, i: usize, target: &Target) -> bool {
    takes_in(&t.nodes[i], &t.nodes[t.src[i][0] as usize], target)
}

/// Whether a REDUCE takes this in by fused multiply-adds: a product of which it adds up others.
pub(super) fn takes_in(reduce: &UOp, value: &UOp, target: &Target) -> bool {
    use monoglot_uop::ReduceOp;
    matches!(reduce.arg(), Arg::Reduce(ReduceOp::Add, _))
        && matches!(value.dtype(), DType::F32 | DType::F64)
        && value.may_contract()
        && target.native.contains(Op::MulAcc)
}

/// What a REDUCE takes in, behind a choice that leaves products with padding out.
pub(super) fn product(t: &Table, i: usize) -> usize {
    let value = t.src[i][0] as usize;
    match t.nodes[value].arg() {
        Arg::Padding => t.src[value][1] as usize,
        _ => value,
    }
}

/// See the module. `lanes` are the axes that have them, where that is settled.
pub(super) fn layout(t: &Table, target: &Target, lanes: Option<Axes<bool>>) -> Layout {
    let none = vec![false; t.len()];
    let steps = steps(t);
    // Sums pass through LOCAL storage, which in a workgroup is not a thread's own.
    let tiled = tiled(t, &steps).filter(|_| !target.workgroups);
    let demand = demands(t, target, |_| false, &none, tiled.as_ref());
    let width = |k: usize| match widest(t, &demand, k) {
        0 => 1,
        bytes => fitting(target, bytes),
    };
    let widths: Axes<usize> = (0..t.rank).map(width).collect();
    let fixed = tiled.as_ref().map(Tiled::column);
    let is_lane = lanes.unwrap_or_else(|| choose(t, &demand, (&steps, &widths), fixed, target));
    let unit = t.nodes.iter().any(is_warps);
    let mut chunks: Axes<Vec<(u32, u32)>> = SmallVec::new();
    for k in 0..t.rank {
        let extent = t.dims.iter().map(|d| d[k]).max().unwrap_or(1);
        let lanes = match is_lane[k] {
            true if unit => extent.next_power_of_two() as usize,
            true => widths[k],
            false => 1,
        };
        chunks.push(cut(extent, lanes as u32));
    }
    // Accesses by lane take their gates by lane too, where those are arithmetic.
    let apart = |i: usize| {
        let address = t.src[i][0] as usize;
        let u = &t.nodes[i];
        let dims = &t.dims[if u.op() == Op::Store { address } else { i }];
        let step = |k: usize| t.src[address].get(1).and_then(|&x| steps[x as usize][k]);
        let lane = (0..t.rank).find(|&k| dims[k] > 1 && is_lane[k]);
        lane.is_some_and(|k| !matches!(step(k), Some(-1..=1)))
    };
    let gathered = gathered(t, &steps, &is_lane, |k| fitting_bytes(target, &chunks[k]));
    let demand = demands(t, target, apart, &gathered, tiled.as_ref());
    Layout {
        demand,
        steps,
        is_lane,
        widths,
        chunks,
        gathered,
        tiled,
    }
}

/// How wide an element may be for an axis's longest chunk to be one vector of them.
fn fitting_bytes(target: &Target, chunks: &[(u32, u32)]) -> usize {
    let longest = chunks.iter().map(|c| c.1).max().unwrap_or(1);
    target.vector_bytes / longest as usize
}

/// The indices and gates whose lanes come from data: what is read at computed places. Their arithmetic
/// is the same for every lane, so it is done on vectors, where it is long and those are no longer than
/// others and have all that it needs.
fn gathered(
    t: &Table,
    steps: &[Steps],
    is_lane: &Axes<bool>,
    widest: impl Fn(usize) -> usize,
) -> Vec<bool> {
    let lane_axis = |i: usize| (0..t.rank).find(|&k| t.dims[i][k] > 1 && is_lane[k]);
    // Whether lanes come from data, and whether all that they come from fits.
    let mut moved = vec![false; t.len()];
    let mut fits = vec![true; t.len()];
    for i in 0..t.len() {
        let Some(axis) = lane_axis(i) else {
            continue;
        };
        let sources = || t.src[i].iter().map(|&s| s as usize);
        let arithmetic = is_index_arithmetic(t, i);
        moved[i] = !arithmetic || sources().any(|s| moved[s]);
        let wide = t.nodes[i].dtype().bytes();
        let narrow = wide <= widest(axis) && !divides(&t.nodes[i]);
        fits[i] = !arithmetic || narrow && sources().all(|s| fits[s]);
    }
    let mut gathered = vec![false; t.len()];
    for (i, u) in t.nodes.iter().enumerate() {
        if !matches!(u.op(), Op::Load | Op::Store) {
            continue;
        }
        let address = t.src[i][0] as usize;
        let index = t.src[address].get(1);
        let places = index.into_iter().chain(t.src[i].get(2));
        let mut open: Places = places.map(|&x| x as usize).collect();
        let mut places = Places::new();
        let mut seen = FxHashSet::default();
        // What vectors hold of what is too wide for them, as an index is when the base is added.
        while let Some(x) = open.pop() {
            if !seen.insert(x) {
                continue;
            }
            let jumps = lane_axis(x).is_some_and(|k| steps[x][k].is_none());
            match jumps && moved[x] && is_index_arithmetic(t, x) {
                true if fits[x] => places.push(x),
                true => open.extend(t.src[x].iter().map(|&s| s as usize)),
                false => {}
            }
        }
        if is_long(t, &places, &moved) {
            for x in places {
                gathered[x] = true;
            }
        }
    }
    gathered
}

/// Some nodes, by number.
type Places = SmallVec<[usize; 8]>;

/// From how many operations on it is cheaper to do them for all lanes and to take lanes out.
const LONG: usize = 4;

/// Whether what leads to these places from data is so many operations.
fn is_long(t: &Table, places: &[usize], moved: &[bool]) -> bool {
    let mut open: Places = places.iter().copied().collect();
    let mut seen: Places = SmallVec::new();
    while let Some(i) = open.pop() {
        if !moved[i] || !is_index_arithmetic(t, i) || seen.contains(&i) {
            continue;
        }
        seen.push(i);
        if seen.len() == LONG {
            return true;
        }
        open.extend(t.src[i].iter().map(|&s| s as usize));
    }
    false
}

/// Lanes of a vector of such elements.
fn fitting(target: &Target, bytes: usize) -> usize {
    let n = (target.vector_bytes / bytes.max(1)).max(1);
    if n.is_power_of_two() {
        n
    } else {
        n.next_power_of_two() / 2
    }
}

/// Pieces of at most `lanes`, each a power of two.
fn cut(extent: u32, lanes: u32) -> Vec<(u32, u32)> {
    let mut at = 0;
    let mut width = lanes;
    let mut out = Vec::new();
    while at < extent {
        while width > extent - at {
            width /= 2;
        }
        out.push((at, width));
        at += width;
    }
    out
}

/// Whether a node is arithmetic of an index: computed again where it is needed rather than taken
/// from a vector.
pub(super) fn is_index_arithmetic(t: &Table, i: usize) -> bool {
    let u = &t.nodes[i];
    let exact = |d: DType| d.is_int() || d == DType::Bool;
    match u.op() {
        Op::Const | Op::Range | Op::Special | Op::Param => true,
        Op::Reshape if is_fragment(u) => false,
        Op::Reshape => t.nodes[t.src[i][0] as usize].op() == Op::Stack || exact(u.dtype()),
        Op::Expand => exact(u.dtype()),
        Op::Threefry | Op::Pow => false,
        op => op.is_elementwise() && exact(u.dtype()) && u.src().iter().all(|s| exact(s.dtype())),
    }
}

/// What vectors have no instructions for: divisions by what is not known.
fn divides(u: &UOp) -> bool {
    let known = |by: &UOp| by.as_int().is_some_and(|by| by > 0);
    matches!(u.op(), Op::TruncDiv | Op::TruncMod) && !known(&u.src()[1])
}

/// What is needed as what. `by_lane` tells of an access whether its lanes go one by one, `gathered` which
/// arithmetic is done for all lanes at once.
fn demands(
    t: &Table,
    target: &Target,
    by_lane: impl Fn(usize) -> bool,
    gathered: &[bool],
    tiled: Option<&Tiled>,
) -> Vec<Demand> {
    let need = |d: &mut [Demand], src: &[u32]| {
        for &s in src {
            d[s as usize].data = true;
        }
    };
    let mut d = vec![Demand::default(); t.len()];
    for i in (0..t.len()).rev() {
        let u = &t.nodes[i];
        let src = &t.src[i];
        if d[i].index {
            if is_index_arithmetic(t, i) && !gathered[i] {
                for &s in src {
                    d[s as usize].index = true;
                }
            } else {
                d[i].data = true;
            }
        }
        match u.op() {
            Op::Load | Op::Store | Op::AtomicAdd => {
                let address = src[0] as usize;
                if let Some(&index) = t.src[address].get(1) {
                    d[index as usize].index = true;
                }
                // The value of a store, and what a gated load gives where it does not load.
                if let Some(&value) = src.get(1)
                    && (d[i].data || u.op() != Op::Load)
                {
                    d[value as usize].data = true;
                }
                if let Some(&gate) = src.get(2) {
                    let gate = gate as usize;
                    if is_index_arithmetic(t, gate) && by_lane(i) {
                        d[gate].index = true;
                    } else {
                        d[gate].data = true;
                    }
                }
            }
            Op::Range | Op::Special => need(&mut d, src),
            Op::Reduce if tiled.is_some_and(|tiled| tiled.is(i)) => {
                let indices = tiled.map(Tiled::indices);
                for index in indices.into_iter().flatten() {
                    d[index].index = true;
                }
            }
            Op::Reduce if d[i].data && fuses(t, i, target) => need(&mut d, &t.src[src[0] as usize]),
            Op::Reduce if d[i].data => need(&mut d, &src[..1]),
            Op::Index | Op::After | Op::End | Op::Sink | Op::Group | Op::Barrier => {}
            _ if d[i].data => need(&mut d, src),
            _ => {}
        }
    }
    d
}

/// How integers change along the axes.
fn steps(t: &Table) -> Vec<Steps> {
    let mut all: Vec<Steps> = Vec::with_capacity(t.len());
    for (i, u) in t.nodes.iter().enumerate() {
        let of = |k: usize| &all[t.src[i][k] as usize];
        let number = |k: usize| t.nodes[t.src[i][k] as usize].as_int();
        let each = |f: &dyn Fn(usize) -> Option<i64>| -> Steps {
            (0..t.rank)
                .map(|k| if t.dims[i][k] == 1 { Some(0) } else { f(k) })
                .collect()
        };
        let still = |k: usize| {
            t.src[i]
                .iter()
                .all(|&s| all[s as usize][k] == Some(0))
                .then_some(0)
        };
        let scaled = |s: usize, c: i64| each(&|k| of(s)[k]?.checked_mul(c));
        let new = match u.op() {
            _ if t.rank == 0 => smallvec![],
            Op::Reshape if is_fragment(u) => each(&|_| None),
            Op::Reshape if t.nodes[t.src[i][0] as usize].op() == Op::Stack => {
                each(&|_| progression(u))
            }
            Op::Reshape | Op::Expand => each(&|k| of(0)[k]),
            Op::Add => each(&|k| of(0)[k]?.checked_add(of(1)[k]?)),
            Op::Sub => each(&|k| of(0)[k]?.checked_sub(of(1)[k]?)),
            Op::Neg => scaled(0, -1),
            Op::Mul if number(1).is_some() => scaled(0, number(1).unwrap_or(1)),
            Op::Mul if number(0).is_some() => scaled(1, number(0).unwrap_or(1)),
            Op::Shl => match number(1) {
                Some(c @ 0..62) => scaled(0, 1 << c),
                _ => each(&still),
            },
            Op::Cast if is_index_arithmetic(t, i) && keeps(u) => each(&|k| of(0)[k]),
            _ if is_index_arithmetic(t, i) => each(&still),
            _ => each(&|_| None),
        };
        all.push(new);
    }
    all
}

/// Whether a CAST changes no value.
fn keeps(u: &UOp) -> bool {
    let (lo, hi) = u.src()[0].bounds();
    let min = u.dtype().min().to_i128();
    let max = u.dtype().max().to_i128();
    u.dtype().is_int() && lo as i128 >= min && hi as i128 <= max
}

/// The common difference of a list of constants that became an axis.
fn progression(u: &UOp) -> Option<i64> {
    let list = u.src()[0].src();
    let step = list.get(1)?.as_int()? - list[0].as_int()?;
    let even = list.windows(2).all(|w| {
        w[1].as_int()
            .zip(w[0].as_int())
            .is_some_and(|(b, a)| b - a == step)
    });
    even.then_some(step)
}

/// Bytes of the widest element that extends along an axis, or is stored along it.
fn widest(t: &Table, demand: &[Demand], axis: usize) -> usize {
    let element = |i: usize| {
        let u = &t.nodes[i];
        let of = match u.op() {
            Op::Store => t.src[i][0] as usize,
            Op::Const => return None,
            _ if demand[i].data => i,
            _ => return None,
        };
        (t.dims[of][axis] > 1).then(|| t.nodes[of].dtype().bytes())
    };
    (0..t.len()).filter_map(element).max().unwrap_or(0)
}

/// The axes whose elements are lanes, by what the kernel would cost with them: one, or the one that is fixed, and
/// others that no value shares with those taken.
fn choose(
    t: &Table,
    demand: &[Demand],
    (steps, widths): (&[Steps], &Axes<usize>),
    fixed: Option<usize>,
    target: &Target,
) -> Axes<bool> {
    let mut is_lane: Axes<bool> = (0..t.rank).map(|k| Some(k) == fixed).collect();
    if let Some(f) = t.nodes.iter().position(is_fragment) {
        // A lane of a warp holds neighbours of a fragment: the axis that no element of it has.
        let own =
            |k: &usize| t.dims[f][*k] > 1 && t.src[f].iter().all(|&s| t.dims[s as usize][*k] == 1);
        for k in (0..t.rank).filter(own) {
            is_lane[k] = true;
        }
        return is_lane;
    }
    let cost = |is_lane: &Axes<bool>| {
        let lanes = Lanes {
            demand,
            steps,
            is_lane,
            widths,
        };
        cost(t, lanes, target)
    };
    let with = |lanes: &Axes<bool>, k: usize| {
        let mut lanes = lanes.clone();
        lanes[k] = true;
        (cost(&lanes), lanes)
    };
    let scalar = cost(&is_lane);
    let meeting = meeting(t);
    let apart = |k: usize| fixed.is_none_or(|fixed| k != fixed && !meeting[k][fixed]);
    let axes = (0..t.rank).filter(|&k| widths[k] > 1 && apart(k));
    let mut ranked: Vec<(usize, (f64, Axes<bool>))> =
        axes.map(|k| (k, with(&is_lane, k))).collect();
    ranked.retain(|(_, (cost, _))| *cost < scalar);
    ranked.sort_by(|(a, x), (b, y)| x.0.total_cmp(&y.0).then(b.cmp(a)));
    let mut best = (scalar, is_lane);
    for (_, one) in &ranked {
        let mut next = one.clone();
        for (other, _) in &ranked {
            if (0..t.rank).any(|l| next.1[l] && meeting[*other][l]) {
                continue;
            }
            let more = with(&next.1, *other);
            if more.0 < next.0 {
                next = more;
            }
        }
        if next.0 < best.0 {
            best = next;
        }
    }
    best.1
}

/// By axis: the axes along which some value extends that extends along it too.
fn meeting(t: &Table) -> Axes<Axes<bool>> {
    let mut out: Axes<Axes<bool>> = smallvec![smallvec![false; t.rank]; t.rank];
    for d in &t.dims {
        for k in (0..t.rank).filter(|&k| d[k] > 1) {
            for (l, meets) in out[k].iter_mut().enumerate() {
                *meets |= d[l] > 1;
            }
        }
    }
    out
}

/// Instructions for each vector that is transposed.
const TURNED: f64 = 4.0;

/// Whether the elements of an access are neighbours along another axis than this one.
fn turned(t: &Table, steps: &[Steps], i: usize, axis: usize) -> bool {
    let address = t.src[i][0] as usize;
    let dims = &t.dims[if t.nodes[i].op() == Op::Store {
        address
    } else {
        i
    }];
    let near = (NEAR / t.nodes[address].dtype().bytes().max(1)).max(2) as u32;
    let index = t.src[address].get(1).map(|&x| &steps[x as usize]);
    let alike = |k: usize| {
        t.src[i]
            .get(2)
            .is_none_or(|&gate| t.dims[gate as usize][k] == 1)
    };
    let beside = |k: usize| alike(k) && index.is_some_and(|s| s[k] == Some(1));
    let along = |k: usize| k != axis && dims[k] >= near && beside(k);
    dims[axis] >= near && (0..t.rank).any(along)
}

/// Whether a node is a choice that is known at each place, or folds one: only what is chosen is left, and what is
/// folded at one place after the other is folded once.
fn is_chosen(t: &Table, i: usize, is_lane: &Axes<bool>) -> bool {
    let of = |i: usize| t.src[i].first().map_or(i, |&s| s as usize);
    let views = |i: &usize| matches!(t.nodes[*i].op(), Op::Expand | Op::Reshape);
    match t.nodes[i].op() {
        Op::Reduce => t.src[i].len() == 1 && is_chosen(t, of(i), is_lane),
        Op::Where => {
            let views = std::iter::successors(Some(of(i)), |i| Some(of(*i)).filter(|_| views(i)));
            let condition = views.last().unwrap_or(i);
            let open = [Op::Range, Op::Special, Op::Load, Op::Param];
            let below = t.nodes[condition].ops_below();
            let apart = |k: usize| !is_lane[k] || t.dims[condition][k] == 1;
            !open.iter().any(|op| below.contains(*op)) && (0..t.rank).all(apart)
        }
        _ => false,
    }
}

/// Vectors of so many elements, at most so many lanes each: whole ones, and then powers of two.
fn vectors(n: usize, lanes: usize) -> f64 {
    (n / lanes + (n % lanes).count_ones() as usize) as f64
}

/// Instructions, roughly, where these axes are cut into vectors of so many lanes.
fn cost(t: &Table, lanes: Lanes, target: &Target) -> f64 {
    let Lanes {
        demand,
        steps,
        is_lane,
        widths,
    } = lanes;
    // What comes after sums across these lanes may have lanes along another axis.
    let after = After::of(t, lanes, target);
    // Factors of a sum across lanes are read as they lie.
    let closed = |k: usize| t.nodes.iter().any(|u| lanes.across(u) == Some(k));
    let closed: Axes<bool> = (0..t.rank).map(|k| is_lane[k] && closed(k)).collect();
    let mut sum = 0.0;
    for (i, u) in t.nodes.iter().enumerate() {
        let memory = matches!(u.op(), Op::Load | Op::Store);
        let work = u.op().is_elementwise() || u.op() == Op::Reduce;
        if !(memory || work && demand[i].data) {
            continue;
        }
        let chosen = is_chosen(t, i, is_lane);
        if (chosen || *u.arg() == Arg::Padding) && u.op() == Op::Where {
            continue;
        }
        // A STORE has the lanes of its address, a REDUCE those of what it folds.
        let of = match u.op() {
            Op::Reduce if chosen => i,
            Op::Store | Op::Reduce => t.src[i][0] as usize,
            _ => i,
        };
        let extent = |k: usize| t.dims[of][k] as usize;
        let across = (0..t.rank).find(|&k| is_lane[k] && extent(k) > 1);
        let after = after.as_ref().filter(|after| after.is_after[i]);
        let axis = across.or(after.map(|after| after.axis));
        let lanes = axis.map_or(1, |k| widths[k].max(1));
        let others: f64 = (0..t.rank)
            .filter(|&k| Some(k) != axis)
            .map(|k| extent(k) as f64)
            .product();
        let n = axis.map_or(1, extent);
        let along = match axis {
            _ if n == 1 => 1.0,
            Some(k) if memory => {
                let index = t.src[t.src[i][0] as usize].get(1);
                match index.and_then(|&x| steps[x as usize][k]) {
                    Some(1) => vectors(n, lanes),
                    Some(0) => 1.0,
                    Some(-1) => 2.0 * vectors(n, lanes),
                    Some(2) if u.op() == Op::Load => 3.0 * vectors(n, lanes),
                    // Vectors along another axis, transposed.
                    _ if !closed[k] && turned(t, steps, i, k) => TURNED * vectors(n, lanes),
                    _ => 1.5 * n as f64,
                }
            }
            _ => vectors(n, lanes),
        };
        sum += others * along * t.trips(of);
    }
    sum
}
