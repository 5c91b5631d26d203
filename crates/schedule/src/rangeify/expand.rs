//! From an instance to the instances of its sources: one arm an op. Flows in: an instance, a node
//! at indices; flows out: its sources at theirs. Invariant: views move no data, they only change
//! indices.

use super::{At, Body, Indices, Instance, Rangeify, placeholder_slot};
use monoglot_uop::own::FunctionInfo;
use monoglot_uop::{Arg, AxisType, DType, Error, ErrorKind, Op, Result, Scalar, UOp};

/// The error of what no kernel computes.
fn unknown(u: &UOp) -> Result<Body> {
    Err(Error::new(ErrorKind::Unsupported {
        op: u.op().name().into(),
        message: "is not a tensor op that a kernel can compute".into(),
    }))
}

impl Rangeify<'_> {
    pub(super) fn expand(&mut self, i: u32, u: &UOp) -> Result<()> {
        let body = match u.op() {
            Op::Const => Body::Value(u.clone()),
            Op::Param if u.is_variable() => Body::Value(u.clone()),
            Op::Param => Body::Read(u.buffer_arg().map_or(0, |b| b.slot as usize)),
            // The root of a COPY's kernel names the buffer that it copies.
            Op::Contiguous | Op::Detach | Op::ContiguousBackward | Op::Copy => {
                Body::Same(self.same(i, &u.src()[0]))
            }
            Op::GetTuple => self.output(i, u)?,
            Op::Reduce => self.reduce(i, u),
            Op::Stack => self.stack(i, u)?,
            Op::Index => self.index(i, u)?,
            Op::After => self.after(i, u)?,
            Op::Bitcast if u.dtype().bytes() != u.src()[0].dtype().bytes() => self.words(i, u)?,
            Op::Pad => self.pad(i, u)?,
            op if op.is_elementwise() || op == Op::Bitcast => {
                Body::Apply(u.src().iter().map(|s| self.same(i, s)).collect())
            }
            op if op.is_movement() && op != Op::Replicated => {
                let at = self.at(i);
                let (indices, _) = self.algebra.through(u, &at.indices, false)?;
                Body::Same(self.want(i, &u.src()[0], At { indices, ..at }))
            }
            _ => unknown(u)?,
        };
        self.instances[i as usize].body = body;
        Ok(())
    }

    /// What an output of a user's own work begins as; 0 where that is not told.
    fn output(&mut self, i: u32, u: &UOp) -> Result<Body> {
        let info = FunctionInfo::called(&u.src()[0]);
        let (Some(info), Arg::Element(k)) = (info, u.arg()) else {
            return unknown(u);
        };
        if !info.begins.contains(k) {
            return Ok(Body::Value(UOp::constant(u.dtype().zero(), u.dtype())));
        }
        let begins = u.src()[0].src()[k + 1].clone();
        Ok(Body::Same(self.same(i, &begins)))
    }

    fn at(&self, i: u32) -> At {
        self.instances[i as usize].at.clone()
    }

    /// A source at the same place; one of shape () at no indices.
    fn same(&mut self, i: u32, src: &UOp) -> u32 {
        let mut at = self.at(i);
        if src.shape().is_empty() {
            at.indices.clear();
        }
        self.want(i, src, at)
    }

    /// A constant in the place of an instance.
    fn constant(&mut self, i: u32, value: Scalar) -> u32 {
        let Instance { node, kernel, .. } = self.instances[i as usize];
        let body = Body::Value(UOp::constant(value, self.nodes[node as usize].dtype()));
        self.instance(Instance {
            node,
            kernel,
            at: self.at(i),
            body,
        })
    }

    /// A value under its gate, otherwise a constant.
    fn gated(&mut self, i: u32, own: Option<UOp>, value: u32, otherwise: Scalar) -> Body {
        match own {
            None => Body::Same(value),
            Some(g) => Body::Choose(vec![(g, value)], self.constant(i, otherwise)),
        }
    }

    fn pad(&mut self, i: u32, u: &UOp) -> Result<Body> {
        let at = self.at(i);
        let (indices, own) = self.algebra.through(u, &at.indices, false)?;
        let gate = self.algebra.and(at.gate, own.clone())?;
        let below = At {
            indices,
            gate,
            ..at
        };
        let inner = self.want(i, &u.src()[0], below);
        let fill = if let Arg::Fill(v) = u.arg() {
            *v
        } else {
            u.dtype().zero()
        };
        Ok(self.gated(i, own, inner, fill))
    }

    fn reduce(&mut self, i: u32, u: &UOp) -> Body {
        let src = &u.src()[0];
        let Arg::Reduce(_, axes) = u.arg() else {
            unreachable!("a REDUCE says what it folds")
        };
        let mut at = self.at(i);
        self.go_inside(i, &mut at);
        let mut ranges = Vec::new();
        for &a in axes.iter().filter(|&&a| !src.shape()[a as usize].is(1)) {
            let bound = &src.shape()[a as usize];
            let r = self.range(bound.to_uop(), AxisType::Reduce);
            at.volume *= bound.max() as f64;
            at.indices[a as usize] = r.clone();
            ranges.push(r);
        }
        let inner = self.want(i, src, at);
        if ranges.is_empty() {
            Body::Same(inner)
        } else {
            Body::Reduce(inner, ranges)
        }
    }

    /// The part that the leading index names; all of them where it varies; nothing where it is outside,
    /// as under a gate that never holds.
    fn stack(&mut self, i: u32, u: &UOp) -> Result<Body> {
        let mut at = self.at(i);
        let first = at.indices.remove(0);
        let mut parts = Vec::with_capacity(u.src().len());
        for (k, part) in u.src().iter().enumerate() {
            let here = self
                .algebra
                .simplify(first.eq_(&UOp::index_const(k as i64)))?;
            if !here.is_bool(false) {
                let gate = self.algebra.and(at.gate.clone(), Some(here.clone()))?;
                parts.push((here, self.want(i, part, At { gate, ..at.clone() })));
            }
        }
        Ok(match parts.pop() {
            Some((_, end)) if parts.is_empty() => Body::Same(end),
            Some((_, end)) => Body::Choose(parts, end),
            None => Body::Value(UOp::constant(u.dtype().zero(), u.dtype())),
        })
    }

    /// INDEX by values: a read outside gives 0.
    fn index(&mut self, i: u32, u: &UOp) -> Result<Body> {
        let outer = self.at(i);
        let from = u.src()[0].shape();
        let mut first = 0;
        let mut inner = Indices::new();
        let mut own = None;
        for (by, size) in u.src()[1..].iter().zip(from.iter()) {
            let next = first + by.shape().len();
            let index = match by.const_value() {
                Some(v) => UOp::constant(v, DType::Index),
                None => {
                    let at = At {
                        indices: outer.indices[first..next].to_vec(),
                        ..outer.clone()
                    };
                    let instance = self.want(i, by, at);
                    self.placeholders = true;
                    let (lo, hi) = by.bounds();
                    UOp::variable(placeholder_slot(instance), lo, hi)
                }
            };
            first = next;
            own = self
                .algebra
                .inside(own, &index, &UOp::index_const(0), &size.to_uop())?;
            inner.push(index);
        }
        inner.extend_from_slice(&outer.indices[first..]);
        let gate = self.algebra.and(outer.gate.clone(), own.clone())?;
        let read = At {
            indices: inner,
            gate,
            ..outer
        };
        let value = self.want(i, &u.src()[0], read);
        Ok(self.gated(i, own, value, u.dtype().zero()))
    }

    /// A functional update: what the last store wrote here, else what was there before.
    fn after(&mut self, i: u32, u: &UOp) -> Result<Body> {
        let mut parts = Vec::new();
        for store in u.src()[1..].iter().rev() {
            if store.op() != Op::Store {
                let message = format!("AFTER waits for {}, which is no store", store.op().name());
                return Err(Error::argument("AFTER", message));
            }
            let view = &store.src()[0];
            let value = &store.src()[1];
            // `prepare` put a stand-in for the base below the view.
            let base = view.viewed();
            let chain = view.views_of(base).filter(|_| base.op() == Op::Buffer);
            let Some(chain) = chain else {
                let message = "assigns to something that is no view of the tensor";
                return Err(Error::argument("STORE", message));
            };
            let mut at = self.at(i);
            let mut own = None;
            for step in chain.into_iter().rev() {
                let (next, gate) = self.algebra.through(step, &at.indices, true)?;
                at.indices = next;
                own = self.algebra.and(own, gate)?;
            }
            if value.shape().is_empty() {
                at.indices.clear();
            }
            at.gate = self.algebra.and(at.gate, own.clone())?;
            let inner = self.want(i, value, at);
            match own {
                Some(gate) => parts.push((gate, inner)),
                None if parts.is_empty() => return Ok(Body::Same(inner)),
                None => return Ok(Body::Choose(parts, inner)),
            }
        }
        Ok(Body::Choose(parts, self.same(i, &u.src()[0])))
    }

    /// BITCAST to another width, on little-endian words.
    fn words(&mut self, i: u32, u: &UOp) -> Result<Body> {
        let src = &u.src()[0];
        let a = src.dtype().bytes() as i64;
        let b = u.dtype().bytes() as i64;
        let mut at = self.at(i);
        let last = at.indices.len() - 1;
        let word = at.indices[last].clone();
        if a > b {
            at.indices[last] = self.algebra.simplify(&word / (a / b))?;
            let part = self.algebra.simplify(&word % (a / b))?;
            return Ok(Body::Words(vec![self.want(i, src, at)], part));
        }
        let mut parts = Vec::new();
        for k in 0..b / a {
            at.indices[last] = self.algebra.simplify(&word * (b / a) + k)?;
            parts.push(self.want(i, src, at.clone()));
        }
        Ok(Body::Words(parts, UOp::index_const(0)))
    }

    pub(super) fn word_value(u: &UOp, parts: &[UOp], part: &UOp) -> UOp {
        let unsigned = |d: DType| match d.bytes() {
            1 => DType::U8,
            2 => DType::U16,
            4 => DType::U32,
            _ => DType::U64,
        };
        let raw = |v: &UOp, d: DType| {
            if v.dtype() == d {
                v.clone()
            } else {
                v.bitcast(d)
            }
        };
        let bits = |v: &UOp| {
            if v.dtype() == DType::Bool {
                v.cast(DType::U8)
            } else {
                raw(v, unsigned(v.dtype()))
            }
        };
        let from = unsigned(parts[0].dtype());
        let to = unsigned(u.dtype());
        let word = if from.bytes() > to.bytes() {
            let shift = (part * to.bits() as i64).cast(from);
            bits(&parts[0]).binary(Op::Shr, &shift).cast(to)
        } else {
            let shift =
                |k: usize| UOp::constant(Scalar::Int(k as i128 * i128::from(from.bits())), to);
            let wide = |(k, p): (usize, &UOp)| match k {
                0 => bits(p).cast(to),
                _ => bits(p).cast(to).binary(Op::Shl, &shift(k)),
            };
            let all = parts.iter().enumerate().map(wide).reduce(|a, b| a | b);
            all.expect("a word has parts")
        };
        if u.dtype() == DType::Bool {
            word.ne_(&UOp::int(0, to))
        } else {
            raw(&word, u.dtype())
        }
    }
}
