//! From an instance to the instances of its sources: one arm an op.

use super::{Body, Indices, Otherwise, Rangeify, cost, placeholder_slot};
use monoglot_uop::{Arg, AxisType, DType, Error, ErrorKind, Op, Result, Scalar, UOp};

impl Rangeify<'_> {
    pub(super) fn expand(&mut self, i: u32, u: &UOp) -> Result<()> {
        let body = match u.op() {
            Op::Const => Body::Value(u.clone()),
            Op::Param if u.shape().is_empty() && u.dtype() == DType::Index => Body::Value(u.clone()),
            Op::Param => Body::Read(u.buffer_arg().map_or(0, |b| b.slot as usize)),
            Op::Contiguous | Op::Detach | Op::ContiguousBackward => Body::Same(self.same(i, &u.src()[0])),
            Op::Copy => self.copy(i, u)?,
            Op::Reduce => self.reduce(i, u),
            Op::Stack => self.stack(i, u)?,
            Op::Index => self.index(i, u)?,
            Op::After => self.after(i, u)?,
            Op::Bitcast if u.dtype().bytes() != u.src()[0].dtype().bytes() => self.words(i, u)?,
            Op::Pad => self.pad(i, u)?,
            op if op.is_elementwise() || op == Op::Bitcast => {
                Body::Apply(u.src().iter().map(|s| self.same(i, s)).collect())
            }
            op if op.is_movement() => {
                let (indices, _) = self.algebra.source(u, &self.instances[i as usize].indices.clone())?;
                let (gate, volume) = (self.gate(i), self.volume(i));
                Body::Same(self.want(i, &u.src()[0], indices, gate, volume))
            }
            op => {
                let message = "is not a tensor op that a kernel can compute".into();
                return Err(ErrorKind::Unsupported { op: op.name().into(), message }.into());
            }
        };
        self.instances[i as usize].body = body;
        Ok(())
    }

    fn gate(&self, i: u32) -> Option<UOp> {
        self.instances[i as usize].gate.clone()
    }

    fn volume(&self, i: u32) -> f64 {
        self.instances[i as usize].volume
    }

    /// A source at the same indices; one of shape () at none.
    fn same(&mut self, i: u32, src: &UOp) -> u32 {
        let instance = &self.instances[i as usize];
        let indices = if src.shape().is_empty() { Vec::new() } else { instance.indices.clone() };
        let (gate, volume) = (instance.gate.clone(), instance.volume);
        self.want(i, src, indices, gate, volume)
    }

    fn and(&mut self, a: Option<UOp>, b: Option<UOp>) -> Result<Option<UOp>> {
        Ok(match (a, b) {
            (Some(a), Some(b)) => Some(self.algebra.simplify(a & b)?),
            (a, b) => a.or(b),
        })
    }

    fn pad(&mut self, i: u32, u: &UOp) -> Result<Body> {
        let (indices, own) = self.algebra.source(u, &self.instances[i as usize].indices.clone())?;
        let gate = self.and(self.gate(i), own.clone())?;
        let volume = self.volume(i);
        let inner = self.want(i, &u.src()[0], indices, gate, volume);
        let fill = match u.arg() {
            Arg::Fill(v) => UOp::constant(*v, u.dtype()),
            _ => UOp::constant(u.dtype().zero(), u.dtype()),
        };
        Ok(match own {
            None => Body::Same(inner),
            Some(g) => Body::Choose(vec![(Some(g), inner)], Otherwise::Constant(fill)),
        })
    }

    fn reduce(&mut self, i: u32, u: &UOp) -> Body {
        let src = &u.src()[0];
        let axes = cost::reduce_axes(u).unwrap_or(&[]);
        let (mut indices, mut ranges) = (self.instances[i as usize].indices.clone(), Vec::new());
        let mut volume = self.volume(i);
        for &a in axes {
            let bound = &src.shape()[a as usize];
            if bound.is(1) {
                continue;
            }
            let r = self.range(bound.to_uop(), AxisType::Reduce);
            volume *= bound.max() as f64;
            indices[a as usize] = r.clone();
            ranges.push(r);
        }
        let gate = self.gate(i);
        let inner = self.want(i, src, indices, gate, volume);
        if ranges.is_empty() { Body::Same(inner) } else { Body::Reduce(inner, ranges) }
    }

    /// The part that the leading index names; all of them where it varies.
    fn stack(&mut self, i: u32, u: &UOp) -> Result<Body> {
        let indices = self.instances[i as usize].indices.clone();
        let (first, rest) = (indices[0].clone(), indices[1..].to_vec());
        let volume = self.volume(i);
        if let Some(k) = first.as_int() {
            let gate = self.gate(i);
            return Ok(Body::Same(self.want(i, &u.src()[k as usize], rest, gate, volume)));
        }
        let last = u.src().len() - 1;
        let mut parts = Vec::with_capacity(last);
        for (k, part) in u.src().iter().enumerate() {
            let here = self.algebra.simplify(first.ne_(&UOp::index_const(k as i64)).ne_(&UOp::bool(true)))?;
            if here.is_bool(false) {
                continue;
            }
            let gate = self.and(self.gate(i), Some(here.clone()))?;
            let inner = self.want(
                i,
                part,
                if part.shape().is_empty() { Vec::new() } else { rest.clone() },
                gate,
                volume,
            );
            parts.push((Some(here), inner));
        }
        Ok(match parts.pop() {
            Some((_, end)) if parts.is_empty() => Body::Same(end),
            Some((_, end)) => Body::Choose(parts, Otherwise::Instance(end)),
            None => Body::Value(UOp::constant(u.dtype().zero(), u.dtype())),
        })
    }

    /// INDEX by values: a read outside gives 0.
    fn index(&mut self, i: u32, u: &UOp) -> Result<Body> {
        let outer = self.instances[i as usize].indices.clone();
        let (from, volume) = (u.src()[0].shape().clone(), self.volume(i));
        let (mut at, mut inner, mut own) = (0, Indices::new(), None);
        for (axis, by) in u.src()[1..].iter().enumerate() {
            let rank = by.shape().len();
            let indices = outer[at..at + rank].to_vec();
            at += rank;
            let index = match by.const_value() {
                Some(v) => UOp::constant(v, DType::Index),
                None => {
                    let gate = self.gate(i);
                    let instance = self.want(i, by, indices, gate, volume);
                    self.placeholders = true;
                    let (lo, hi) = by.bounds();
                    UOp::variable(placeholder_slot(instance), lo, hi)
                }
            };
            let below = self.algebra.simplify(index.lt(&UOp::index_const(0)).ne_(&UOp::bool(true)))?;
            let above = self.algebra.simplify(index.lt(&from[axis].to_uop()))?;
            for g in [below, above].into_iter().filter(|g| !g.is_bool(true)) {
                own = self.and(own, Some(g))?;
            }
            inner.push(index);
        }
        inner.extend_from_slice(&outer[at..]);
        let gate = self.and(self.gate(i), own.clone())?;
        let value = self.want(i, &u.src()[0], inner, gate, volume);
        Ok(match own {
            None => Body::Same(value),
            Some(g) => {
                let zero = UOp::constant(u.dtype().zero(), u.dtype());
                Body::Choose(vec![(Some(g), value)], Otherwise::Constant(zero))
            }
        })
    }

    /// A functional update: what the last store wrote here, else what was there before.
    fn after(&mut self, i: u32, u: &UOp) -> Result<Body> {
        let base = &u.src()[0];
        let (mut parts, volume) = (Vec::new(), self.volume(i));
        for store in u.src()[1..].iter().rev() {
            if store.op() != Op::Store {
                let message = format!("AFTER waits for {}, which is no store", store.op().name());
                return Err(Error::argument("AFTER", message));
            }
            let (view, value) = (&store.src()[0], &store.src()[1]);
            let mut chain = Vec::new();
            let mut v = view;
            // `prepare` put a stand-in for the base below the view.
            while v.op() != Op::Buffer {
                chain.push(v.clone());
                match v.src().first() {
                    Some(below) if v.op().is_movement() => v = below,
                    _ => {
                        return Err(Error::argument(
                            "STORE",
                            "assigns to something that is no view of the tensor",
                        ));
                    }
                }
            }
            let (mut indices, mut own) = (self.instances[i as usize].indices.clone(), None);
            for step in chain.iter().rev() {
                let (next, gate) = self.algebra.view(step, &indices)?;
                indices = next;
                own = self.and(own, gate)?;
            }
            if value.shape().is_empty() {
                indices.clear();
            }
            let gate = self.and(self.gate(i), own.clone())?;
            let inner = self.want(i, value, indices, gate, volume);
            let whole = own.is_none();
            parts.push((own, inner));
            if whole {
                break;
            }
        }
        Ok(match parts.pop() {
            Some((None, end)) if parts.is_empty() => Body::Same(end),
            Some((None, end)) => Body::Choose(parts, Otherwise::Instance(end)),
            last => {
                parts.extend(last);
                let before = self.same(i, base);
                Body::Choose(parts, Otherwise::Instance(before))
            }
        })
    }

    /// BITCAST to another width, on little-endian words.
    fn words(&mut self, i: u32, u: &UOp) -> Result<Body> {
        let src = &u.src()[0];
        let (a, b) = (src.dtype().bytes() as i64, u.dtype().bytes() as i64);
        let mut indices = self.instances[i as usize].indices.clone();
        let last = indices.len() - 1;
        let (gate, volume) = (self.gate(i), self.volume(i));
        let mut parts = Vec::new();
        let at = indices[last].clone();
        if a > b {
            indices[last] = self.algebra.simplify(&at / (a / b))?;
            parts.push(self.want(i, src, indices, gate, volume));
            return Ok(Body::Words(parts, self.algebra.simplify(&at % (a / b))?));
        }
        for k in 0..b / a {
            indices[last] = self.algebra.simplify(&at * (b / a) + k)?;
            parts.push(self.want(i, src, indices.clone(), gate.clone(), volume));
        }
        Ok(Body::Words(parts, UOp::index_const(0)))
    }

    /// The root of a COPY's kernel names the buffer that it copies.
    fn copy(&mut self, i: u32, u: &UOp) -> Result<Body> {
        let src = &u.src()[0];
        let indices = self.instances[i as usize].indices.clone();
        let inner = self.want(i, src, indices, None, 1.0);
        Ok(Body::Same(inner))
    }

    pub(super) fn word_value(u: &UOp, parts: &[UOp], part: &UOp) -> UOp {
        let unsigned = |d: DType| match d.bytes() {
            1 => DType::U8,
            2 => DType::U16,
            4 => DType::U32,
            _ => DType::U64,
        };
        let bits =
            |v: &UOp| if v.dtype() == DType::Bool { v.cast(DType::U8) } else { raw(v, unsigned(v.dtype())) };
        fn raw(v: &UOp, d: DType) -> UOp {
            if v.dtype() == d { v.clone() } else { v.bitcast(d) }
        }
        let (from, to) = (unsigned(parts[0].dtype()), unsigned(u.dtype()));
        let word = if from.bytes() > to.bytes() {
            let shift = (part * to.bits() as i64).cast(from);
            bits(&parts[0]).binary(Op::Shr, &shift).cast(to)
        } else {
            let mut all: Option<UOp> = None;
            for (k, p) in parts.iter().enumerate() {
                let wide = bits(p).cast(to);
                let moved =
                    wide.binary(Op::Shl, &UOp::constant(Scalar::Int(k as i128 * from.bits() as i128), to));
                all = Some(match all {
                    None => wide,
                    Some(a) => a | moved,
                });
            }
            all.unwrap_or_else(|| UOp::int(0, to))
        };
        if u.dtype() == DType::Bool { word.ne_(&UOp::int(0, to)) } else { raw(&word, u.dtype()) }
    }
}
