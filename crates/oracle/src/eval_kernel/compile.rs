//! From a kernel's graph to the oracle's flat program. Flows in: a kernel; flows out: instructions
//! over slots. Invariant: a node is emitted once per loop nest that uses it, at the shallowest loop on
//! which it depends, after everything that it needs.

use super::{EvalKernel, Instr, Location, Storage, Val, Variable, unsupported};
use monoglot_uop::graph::toposort_many;
use monoglot_uop::node::Srcs;
use monoglot_uop::{Arg, AxisType, DType, Dim, Fragment, Op, Result, Scalar, TcInfo, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// The program of a kernel.
pub(super) fn compile(kernel: &UOp) -> Result<EvalKernel> {
    let kernel = one_loop(&without_wmma(kernel));
    let mut c = Compiler {
        out: EvalKernel {
            code: Vec::new(),
            slots: Vec::new(),
            vars: Vec::new(),
            storages: Vec::new(),
        },
        known: FxHashMap::default(),
        storages: FxHashMap::default(),
        log: Vec::new(),
    };
    c.scope(kernel.src(), &[])?;
    Ok(c.out)
}

/// ENDs over the same ranges are one loop: what one of them stores, the others have read before.
fn one_loop(kernel: &UOp) -> UOp {
    let mut loops: Vec<(&[UOp], Vec<UOp>)> = Vec::new();
    for end in kernel.src() {
        let (body, ranges) = if end.op() == Op::End {
            (&end.src()[0], &end.src()[1..])
        } else {
            (end, &[][..])
        };
        match loops.iter_mut().find(|l| l.0 == ranges) {
            Some(l) => l.1.push(body.clone()),
            None => loops.push((ranges, vec![body.clone()])),
        }
    }
    let closed = loops.into_iter().map(|(ranges, mut bodies)| {
        let body = if bodies.len() == 1 {
            bodies.remove(0)
        } else {
            UOp::new(Op::Group, bodies, Arg::None)
        };
        if ranges.is_empty() {
            body
        } else {
            body.end(ranges)
        }
    });
    kernel.with_src(closed.collect::<Vec<_>>())
}

struct Compiler {
    out: EvalKernel,
    known: FxHashMap<UOp, Val>,
    storages: FxHashMap<UOp, usize>,
    /// Nodes in the order in which they became known, so that a loop's own can be forgotten.
    log: Vec<UOp>,
}

/// Whether a value changes with one of these ranges.
fn varies(u: &UOp, own: &[UOp]) -> bool {
    let open = u.ranges();
    own.iter().any(|r| open.contains(r))
}

fn is_loop(u: &UOp) -> bool {
    matches!(u.op(), Op::Reduce | Op::End) && u.src().len() > 1
}

/// What must have run before a node: its sources, or, for a loop, what its body takes from outside.
fn needs(u: &UOp) -> Vec<UOp> {
    if u.op() == Op::Store && u.src()[0].op() == Op::Index {
        // The target is an address: what it indexes and with what, not the element.
        return u.src()[0]
            .src()
            .iter()
            .chain(&u.src()[1..])
            .cloned()
            .collect();
    }
    if u.op() == Op::Group {
        // What its members write is written after all of them have read.
        let read = u.src().iter().flat_map(needs);
        return read.chain(u.src().to_vec()).collect();
    }
    if !is_loop(u) {
        return u.src().to_vec();
    }
    // What varies with a range that is not open around the loop belongs to the loop or one within it.
    let open = u.ranges();
    let inside = |x: &UOp| x.ranges().iter().any(|r| !open.contains(r));
    let body = toposort_many(&u.src()[..1], inside);
    let outside = body.into_iter().filter(|x| !inside(x));
    outside
        .chain(u.src()[1..].iter().flat_map(|r| r.src().to_vec()))
        .collect()
}

impl Compiler {
    /// Emit everything that `roots` need and that is not known, inside the loops that are open;
    /// `inner` are ranges that loops further in will open: what varies with them is left to those.
    fn scope(&mut self, roots: &[UOp], inner: &[UOp]) -> Result<()> {
        let mut stack: Vec<(UOp, bool)> = roots.iter().rev().map(|r| (r.clone(), false)).collect();
        let mut seen: FxHashSet<UOp> = FxHashSet::default();
        while let Some((u, ready)) = stack.pop() {
            if self.known.contains_key(&u) || self.storages.contains_key(&u) {
                continue;
            }
            if ready {
                if !varies(&u, inner) {
                    self.emit(&u)?;
                }
            } else if seen.insert(u.clone()) {
                stack.push((u.clone(), true));
                let needs = needs(&u);
                stack.extend(
                    needs
                        .into_iter()
                        .rev()
                        .filter(|s| !seen.contains(s))
                        .map(|s| (s, false)),
                );
            }
        }
        Ok(())
    }

    fn alloc(&mut self, n: usize, value: Scalar) -> Val {
        let at = self.out.slots.len();
        self.out.slots.resize(at + n, value);
        Val { at, n }
    }

    fn val(&self, u: &UOp) -> Result<Val> {
        self.known
            .get(u)
            .copied()
            .ok_or_else(|| unsupported(u.op(), "is not a value in a kernel"))
    }

    fn emit(&mut self, u: &UOp) -> Result<()> {
        let n = u.shape().max_len().max(0) as usize;
        let value = match u.op() {
            Op::Const => {
                let v = u.const_value().unwrap_or(Scalar::Invalid);
                self.alloc(1, v)
            }
            Op::Param if u.buffer_arg().is_some_and(|b| b.addrspace.is_none()) => {
                let v = self.alloc(1, Scalar::Int(0));
                self.out.vars.push(Variable {
                    param: u.buffer_arg().map_or(0, |b| b.slot),
                    dtype: u.dtype(),
                    value: v.at,
                });
                v
            }
            Op::Param | Op::Buffer => {
                let b = u
                    .buffer_arg()
                    .ok_or_else(|| unsupported(u.op(), "has no arg"))?;
                let slot = (u.op() == Op::Param).then_some(b.slot);
                let s = Storage {
                    slot,
                    dtype: b.dtype,
                    elements: u.shape().max_len(),
                };
                self.out.storages.push(s);
                self.remember(u, self.out.storages.len() - 1);
                return Ok(());
            }
            Op::After if self.storages.contains_key(&u.src()[0]) => {
                self.remember(u, self.storages[&u.src()[0]]);
                return Ok(());
            }
            Op::After | Op::Load | Op::Contiguous | Op::Detach => self.value_of(&u.src()[0])?,
            Op::Sink | Op::Group | Op::Barrier | Op::End if !is_loop(u) => Val { at: 0, n: 0 },
            Op::Index => self.index(u, n)?,
            Op::Store => self.store(u)?,
            Op::End | Op::Reduce if is_loop(u) => self.loops(u)?,
            Op::Reduce => {
                let src = self.value_of(&u.src()[0])?;
                self.fold_axes(u, src)?
            }
            Op::Stack => self.stack(u, n)?,
            Op::Bitcast => {
                let from = u.src()[0].dtype();
                let to = u.dtype();
                if from.bytes() != to.bytes() {
                    return Err(unsupported(u.op(), "between widths is not kernel form"));
                }
                let src = self.value_of(&u.src()[0])?;
                let dst = self.alloc(n, to.zero());
                self.out.code.push(Instr::Bits { dst, src, from, to });
                dst
            }
            Op::Reshape | Op::Expand | Op::Permute | Op::Flip | Op::Shrink => {
                let src = self.value_of(&u.src()[0])?;
                let map = movement(u)?;
                let dst = self.alloc(n, u.dtype().zero());
                self.out.code.push(Instr::Gather { dst, src, map });
                dst
            }
            op if op.is_elementwise() => {
                let mut src = [Val { at: 0, n: 1 }; 3];
                for (v, s) in src.iter_mut().zip(u.src()) {
                    *v = self.value_of(s)?;
                }
                let dst = self.alloc(n, Scalar::Invalid);
                // Of a WHERE the values, not the condition.
                let first = if op == Op::Where { 1 } else { 0 };
                self.out.code.push(Instr::Fold {
                    op,
                    from: u.src()[first].dtype(),
                    to: u.dtype(),
                    dst,
                    src,
                    arity: u.src().len(),
                });
                dst
            }
            op => return Err(unsupported(op, "is not an op of kernel form")),
        };
        self.known.insert(u.clone(), value);
        self.log.push(u.clone());
        Ok(())
    }

    fn remember(&mut self, u: &UOp, storage: usize) {
        self.storages.insert(u.clone(), storage);
        self.log.push(u.clone());
    }

    /// A node as a value; storage of shape () is read.
    fn value_of(&mut self, u: &UOp) -> Result<Val> {
        if self.storages.contains_key(u) && u.shape().is_empty() {
            let dst = self.alloc(1, u.dtype().zero());
            let from = self.access(u, &[])?;
            self.out.code.push(Instr::Load { dst, from });
            return Ok(dst);
        }
        self.val(u)
    }

    fn access(&mut self, base: &UOp, index: &[UOp]) -> Result<Location> {
        let Some(&storage) = self.storages.get(base) else {
            return Err(unsupported(base.op(), "is not storage"));
        };
        if index.len() != base.shape().len() || index.len() > 16 {
            let message = format!("{} indices for shape {}", index.len(), base.shape());
            return Err(unsupported(Op::Index, message));
        }
        let mut dims = Vec::with_capacity(index.len());
        for d in base.shape().iter() {
            dims.push(match d.as_int() {
                Some(n) => self.alloc(1, Scalar::Int(n as i128)),
                None => self.value_of(&d.to_uop())?,
            });
        }
        let index = index
            .iter()
            .map(|i| self.value_of(i))
            .collect::<Result<_>>()?;
        Ok(Location {
            storage,
            dims,
            index,
        })
    }

    fn index(&mut self, u: &UOp, n: usize) -> Result<Val> {
        let base = &u.src()[0];
        if self.storages.contains_key(base) {
            let from = self.access(base, &u.src()[1..])?;
            let dst = self.alloc(n, u.dtype().zero());
            self.out.code.push(Instr::Load { dst, from });
            return Ok(dst);
        }
        if u.src().len() != 2 || base.shape().len() != 1 {
            return Err(unsupported(
                Op::Index,
                "of a value takes one index of a vector",
            ));
        }
        let src = self.value_of(base)?;
        let index = self.value_of(&u.src()[1])?;
        let dst = self.alloc(n, u.dtype().zero());
        self.out.code.push(Instr::Pick { dst, src, index });
        Ok(dst)
    }

    fn store(&mut self, u: &UOp) -> Result<Val> {
        let target = &u.src()[0];
        let (base, index) = match target.op() {
            Op::Index => (&target.src()[0], &target.src()[1..]),
            _ => (target, &[][..]),
        };
        let to = self.access(base, index)?;
        let value = self.value_of(&u.src()[1])?;
        let gate = u.src().get(2).map(|g| self.value_of(g)).transpose()?;
        let n = target.shape().max_len() as usize;
        self.out.code.push(Instr::Store { to, value, gate, n });
        Ok(Val { at: 0, n: 0 })
    }

    fn stack(&mut self, u: &UOp, n: usize) -> Result<Val> {
        let dst = self.alloc(n, u.dtype().zero());
        let part = n / u.src().len().max(1);
        for (i, s) in u.src().iter().enumerate() {
            let src = self.value_of(s)?;
            let map = (0..part as u32).collect();
            self.out.code.push(Instr::Gather {
                dst: Val {
                    at: dst.at + i * part,
                    n: part,
                },
                src,
                map,
            });
        }
        Ok(dst)
    }

    /// A REDUCE or END with ranges: its loops, outermost first, each with what belongs at its depth.
    fn loops(&mut self, u: &UOp) -> Result<Val> {
        let body = &u.src()[0];
        let own = &u.src()[1..];
        let outside = self.log.len();
        let (accumulator, wide) = match u.arg() {
            Arg::Reduce(op, _) => {
                let wide = u.dtype().compute_type();
                let dst = self.alloc(u.shape().max_len() as usize, u.dtype().zero());
                self.out.code.push(Instr::Set {
                    dst,
                    value: op.identity(wide),
                });
                (Some((*op, dst)), wide)
            }
            _ => (None, DType::Void),
        };
        let mut starts = Vec::with_capacity(own.len());
        for (i, r) in own.iter().enumerate() {
            let bound = self.value_of(&r.src()[0])?;
            let counter = self.alloc(1, Scalar::Int(0));
            self.known.insert(r.clone(), counter);
            self.log.push(r.clone());
            starts.push(self.out.code.len());
            self.out.code.push(Instr::Loop {
                counter: counter.at,
                bound,
                end: 0,
            });
            self.scope(std::slice::from_ref(body), &own[i + 1..])?;
        }
        if let Some((op, dst)) = accumulator {
            let src = self.value_of(body)?;
            let src = self.fold_axes(u, src)?;
            self.out.code.push(Instr::Fold {
                op: op.op(),
                from: wide,
                to: wide,
                dst,
                src: [dst, src, src],
                arity: 2,
            });
        }
        for start in starts.into_iter().rev() {
            self.out.code.push(Instr::EndLoop { start });
            let after = self.out.code.len();
            if let Instr::Loop { end, .. } = &mut self.out.code[start] {
                *end = after;
            }
        }
        // What was computed inside is not there outside, nor in another loop over the same ranges.
        for u in self.log.drain(outside..) {
            self.known.remove(&u);
            self.storages.remove(&u);
        }
        match accumulator {
            Some((_, dst)) => {
                if wide != u.dtype() {
                    self.out.code.push(Instr::Round {
                        dst,
                        dtype: u.dtype(),
                    });
                }
                Ok(dst)
            }
            None => Ok(Val { at: 0, n: 0 }),
        }
    }

    /// The axes that a REDUCE folds within its operand, in row-major order.
    fn fold_axes(&mut self, u: &UOp, src: Val) -> Result<Val> {
        let Arg::Reduce(op, axes) = u.arg() else {
            return Err(unsupported(u.op(), "has no operator"));
        };
        if axes.is_empty() {
            return Ok(src);
        }
        let from = ints(&u.src()[0])?;
        let wide = u.dtype().compute_type();
        let dst = self.alloc(u.shape().max_len() as usize, u.dtype().zero());
        self.out.code.push(Instr::Set {
            dst,
            value: op.identity(wide),
        });
        let strides = strides(&from);
        let mut parts: Vec<Vec<u32>> = vec![Vec::new(); dst.n];
        for i in 0..from.iter().product::<i64>() {
            let mut to = 0;
            for (k, &n) in from.iter().enumerate() {
                if !axes.contains(&(k as u8)) {
                    to = to * n + i / strides[k] % n;
                }
            }
            parts[to as usize].push(i as u32);
        }
        for k in 0..parts.first().map_or(0, Vec::len) {
            let step = self.alloc(dst.n, u.dtype().zero());
            let map = parts.iter().map(|p| p[k]).collect();
            self.out.code.push(Instr::Gather {
                dst: step,
                src,
                map,
            });
            self.out.code.push(Instr::Fold {
                op: op.op(),
                from: wide,
                to: wide,
                dst,
                src: [dst, step, step],
                arity: 2,
            });
        }
        if wide != u.dtype() && !is_loop(u) {
            self.out.code.push(Instr::Round {
                dst,
                dtype: u.dtype(),
            });
        }
        Ok(dst)
    }
}

fn ints(u: &UOp) -> Result<Vec<i64>> {
    u.shape()
        .ints()
        .ok_or_else(|| unsupported(u.op(), "has a symbolic shape inside a kernel"))
}

fn strides(dims: &[i64]) -> Vec<i64> {
    let mut out = vec![1; dims.len()];
    for i in (1..dims.len()).rev() {
        out[i - 1] = out[i] * dims[i];
    }
    out
}

/// For every element of a movement op on a value, the element of its source.
fn movement(u: &UOp) -> Result<Box<[u32]>> {
    let from = ints(&u.src()[0])?;
    let to = ints(u)?;
    let fs = strides(&from);
    let ts = strides(&to);
    let at = |k: usize| u.dims_src(1).get(k).and_then(Dim::as_int).unwrap_or(0);
    Ok((0..to.iter().product::<i64>())
        .map(|i| {
            let coord = |k: usize| i / ts[k] % to[k];
            let sum: i64 = match u.arg() {
                _ if u.op() == Op::Reshape => i,
                Arg::Axes(order) => order.iter().enumerate().map(|(k, &a)| coord(k) * fs[a as usize]).sum(),
                Arg::Flags(f) => (0..to.len())
                    .map(|k| if f >> k & 1 == 1 { from[k] - 1 - coord(k) } else { coord(k) } * fs[k])
                    .sum(),
                _ if u.op() == Op::Shrink => (0..to.len()).map(|k| (coord(k) + at(k)) * fs[k]).sum(),
                _ => (0..to.len()).map(|k| coord(k).min(from[k] - 1) * fs[k]).sum(),
            };
            sum as u32
        })
        .collect())
}

/// The kernel with each WMMA written out as the sum that it stands for.
fn without_wmma(kernel: &UOp) -> UOp {
    if !kernel.ops_below().contains(Op::Wmma) {
        return kernel.clone();
    }
    let mut done: FxHashMap<UOp, UOp> = FxHashMap::default();
    for u in kernel.toposort() {
        let src: Srcs = u
            .src()
            .iter()
            .map(|s| done.get(s).unwrap_or(s).clone())
            .collect();
        let mut new = u.with_src(src);
        if u.op() == Op::Wmma {
            new = wmma(&new).unwrap_or(new);
        }
        if new != u {
            done.insert(u, new);
        }
    }
    done.get(kernel).unwrap_or(kernel).clone()
}

/// What a lane of the WARP range holds of the product, made of what other lanes hold of the factors.
fn wmma(u: &UOp) -> Option<UOp> {
    let [a, b, acc] = u.src() else { return None };
    let Arg::Wmma(unit) = u.arg() else {
        return None;
    };
    if let Some(word) = unit.word() {
        return Some(dot(u, unit, word));
    }
    let open = u.ranges();
    let lane = open
        .iter()
        .find(|r| r.range_arg().is_some_and(|(_, t)| t == AxisType::Warp))?;
    // A row and column of a factor: chosen among what the lane holds that holds it.
    let read = |v: &UOp, f: &Fragment, row: &UOp, column: &UOp| {
        let [holder, element] = f.holder(row, column);
        let map = std::iter::once((lane.clone(), holder)).collect();
        let part = |e: i64| v.at(&[UOp::index_const(e)]).substitute(&map);
        let rest = 1..f.elements();
        rest.fold(part(0), |chosen, e| {
            element
                .binary(Op::CmpEq, &UOp::index_const(e))
                .select(&part(e), &chosen)
        })
    };
    let out = u.dtype();
    let index = UOp::index_const;
    let parts: Srcs = (0..unit.c.elements())
        .map(|j| {
            let [row, column] = unit.c.at(lane, &index(j));
            (0..unit.dims[2]).fold(acc.at(&[index(j)]), |sum, k| {
                let x = read(a, &unit.a, &row, &index(k)).cast(out);
                let y = read(b, &unit.b, &index(k), &column).cast(out);
                sum + x * y
            })
        })
        .collect();
    Some(UOp::new(Op::Stack, parts, Arg::None))
}

/// A dot product of words: what is added to, and the product of each two elements.
fn dot(u: &UOp, unit: &TcInfo, word: DType) -> UOp {
    let bits = 8 * unit.dtypes_in[0].bytes() as i64;
    let low = match unit.dtypes_in[0].bytes() {
        1 => DType::U8,
        _ => DType::U16,
    };
    let element = |k: usize, j: i64| {
        let at = u.src()[k].binary(Op::Shr, &UOp::int(bits * j, word));
        at.cast(low).bitcast(unit.dtypes_in[k]).cast(u.dtype())
    };
    let products = (0..unit.depth()).map(|j| element(0, j) * element(1, j));
    products.fold(u.src()[2].clone(), |sum, p| sum + p)
}
