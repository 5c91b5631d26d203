//! Random values: elementwise operations, casts, lanes put together. Flows in: what there is; flows out: one
//! value more. Invariant: a value is the same on every device: the sign of a zero that MAX chooses and the bits of a
//! NaN are hidden, where they would show.

use super::maker::Maker;
use super::{INTEGERS, WIDTHS};
use monoglot_uop::linear::lanes;
use monoglot_uop::{Arg, DType, Op, Scalar, TcInfo, UOp};
use std::sync::Arc;

impl Maker {
    /// A dtype that is computed in.
    pub(super) fn dtype(&mut self) -> DType {
        match self.dice.roll(10) {
            0..3 => DType::F32,
            3..4 => DType::F64,
            4..6 => DType::I32,
            _ => *self.dice.pick(&INTEGERS),
        }
    }

    /// Lanes, 0 for a scalar.
    pub(super) fn width(&mut self) -> usize {
        match self.dice.roll(60) {
            0..24 => 0,
            // Seldom: more registers than most have, and a vector of one lane, which no target names so.
            24 if self.rules.beyond_c => *self.dice.pick(&[1, 64]),
            _ => *self.dice.pick(&WIDTHS),
        }
    }

    /// A constant that is worth a look.
    pub(super) fn special(&mut self, d: DType) -> UOp {
        let value = if d == DType::Bool {
            Scalar::Bool(self.dice.roll(2) == 0)
        } else if d.is_float() {
            Scalar::Float(*self.dice.pick(&super::FLOATS)).round_to(d)
        } else {
            Scalar::Int(self.integer() as i128).round_to(d)
        };
        let u = UOp::constant(value, d);
        self.constant(u)
    }

    fn integer(&mut self) -> i64 {
        let small = self.dice.roll(20) as i64 - 8;
        match self.dice.roll(4) {
            0 => *self.dice.pick(&super::NUMBERS),
            1 => 1i64
                .wrapping_shl(self.dice.roll(64) as u32)
                .wrapping_add(small),
            _ => small,
        }
    }

    /// A value of a dtype and so many lanes: one that there is, or a new one.
    pub(super) fn any(&mut self, d: DType, n: usize) -> UOp {
        let known = self.values(d, n);
        if !known.is_empty() && self.dice.roll(12) > 0 {
            // Newer ones more often.
            let k = self.dice.roll(known.len() as u64);
            let other = self.dice.roll(known.len() as u64);
            let k = k.max(other) as usize;
            // What was taken last is seldom of interest beside itself.
            let same = self.latest.as_ref() == Some(&known[k]) && self.dice.roll(8) > 0;
            let k = if same && k > 0 { k - 1 } else { k };
            self.latest = Some(known[k].clone());
            return known[k].clone();
        }
        let new = match self.dice.roll(7) {
            0..2 => self.load_any(d, n),
            2 if n > 0 => self.stacked(d, n),
            3..6 => self.recast(d, n),
            _ => None,
        };
        if let Some(u) = new {
            return u;
        }
        let one = self.special(d);
        match n {
            0 => one,
            // Where an operand may be one, a CONST stands for all lanes.
            _ => self.splat(&one, n).unwrap_or(one),
        }
    }

    /// A value of so many lanes in another dtype.
    fn recast(&mut self, d: DType, n: usize) -> Option<UOp> {
        let half = |u: &UOp| u.dtype() == DType::F16;
        let mut known = self.all();
        known.retain(|u| lanes(u) == n && u.dtype() != d && !half(u));
        if known.is_empty() || d == DType::F16 && !self.rules.half {
            return None;
        }
        let from = self.dice.pick(&known).clone();
        self.value(Op::Cast, &[from], Arg::DType(d))
    }

    /// The same, or a CONST of shape () in place of a vector.
    pub(super) fn operand(&mut self, d: DType, n: usize) -> UOp {
        if self.dice.roll(6) == 0 {
            return self.special(d);
        }
        self.any(d, n)
    }

    pub(super) fn splat(&mut self, u: &UOp, n: usize) -> Option<UOp> {
        self.put(Op::Stack, &vec![u.clone(); n], Arg::None)
    }

    /// One elementwise operation.
    pub(super) fn elementwise(&mut self) -> Option<UOp> {
        let n = self.width();
        match self.dice.roll(14) {
            0 => self.logic(n),
            1..3 => self.compare(n),
            3..5 => self.choose(n),
            5..7 => self.cast(n),
            7 => self.bitcast(n),
            _ => {
                let d = self.dtype();
                if d.is_float() {
                    self.float(d, n)
                } else {
                    self.int_op(d, n)
                }
            }
        }
    }

    fn logic(&mut self, n: usize) -> Option<UOp> {
        let a = self.any(DType::Bool, n);
        if self.dice.roll(5) == 0 {
            return self.value(Op::Not, &[a], Arg::None);
        }
        let b = self.operand(DType::Bool, n);
        let ops = [Op::And, Op::Or, Op::Xor, Op::CmpNe, Op::CmpEq, Op::CmpLt];
        let op = *self.dice.pick(&ops);
        let order = self.either(a, b);
        self.value(op, &order, Arg::None)
    }

    pub(super) fn either(&mut self, a: UOp, b: UOp) -> [UOp; 2] {
        match self.dice.roll(2) {
            0 => [a, b],
            _ => [b, a],
        }
    }

    fn compare(&mut self, n: usize) -> Option<UOp> {
        let d = self.dtype();
        let a = self.any(d, n);
        let b = self.operand(d, n);
        let ops = [
            Op::CmpLt,
            Op::CmpNe,
            Op::CmpGt,
            Op::CmpGe,
            Op::CmpLe,
            Op::CmpEq,
        ];
        let op = *self.dice.pick(&ops);
        let order = self.either(a, b);
        self.value(op, &order, Arg::None)
    }

    /// WHERE: by a scalar, by lanes, the lesser of two.
    fn choose(&mut self, n: usize) -> Option<UOp> {
        let d = match self.dice.roll(8) {
            0 => DType::Bool,
            _ => self.dtype(),
        };
        let x = self.any(d, n);
        let y = self.operand(d, n);
        let gate = match self.dice.roll(4) {
            0 => self.any(DType::Bool, 0),
            1 if d != DType::Bool => self.put(Op::CmpLt, &[x.clone(), y.clone()], Arg::None)?,
            _ => self.any(DType::Bool, n),
        };
        let order = self.either(x, y);
        self.value(Op::Where, &[&[gate][..], &order].concat(), Arg::None)
    }

    /// A float that is not NaN.
    fn number(&mut self, x: &UOp) -> Option<UOp> {
        let nan = self.put(Op::CmpNe, &[x.clone(), x.clone()], Arg::None)?;
        let other = self.constant(UOp::float(1.5, x.dtype()));
        self.put(Op::Where, &[nan, other, x.clone()], Arg::None)
    }

    fn cast(&mut self, n: usize) -> Option<UOp> {
        let mut all = vec![DType::Bool, DType::F32, DType::F64];
        all.extend(INTEGERS);
        if self.rules.half {
            all.push(DType::F16);
        }
        let from = *self.dice.pick(&all);
        let to = *self.dice.pick(&all);
        let a = self.any(from, n);
        self.value(Op::Cast, &[a], Arg::DType(to))
    }

    fn bitcast(&mut self, n: usize) -> Option<UOp> {
        let groups: [&[DType]; 4] = [
            &[DType::I8, DType::U8, DType::Bool],
            &[DType::I16, DType::U16, DType::F16],
            &[DType::I32, DType::U32, DType::F32],
            &[DType::I64, DType::U64, DType::F64],
        ];
        let group = *self.dice.pick(&groups);
        let from = *self.dice.pick(group);
        let to = *self.dice.pick(group);
        if from == to || !self.rules.half && (from == DType::F16 || to == DType::F16) {
            return None;
        }
        let mut a = self.any(from, n);
        if from == DType::F16 {
            let wide = self.put(Op::Cast, &[a], Arg::DType(DType::F32))?;
            let wide = self.number(&wide)?;
            a = self.put(Op::Cast, &[wide], Arg::DType(DType::F16))?;
        } else if from.is_float() {
            a = self.number(&a)?;
        }
        self.value(Op::Bitcast, &[a], Arg::DType(to))
    }

    fn float(&mut self, d: DType, n: usize) -> Option<UOp> {
        let a = self.any(d, n);
        let roll = self.dice.roll(14);
        let unary = match roll {
            0 => Some(Op::Neg),
            1 => Some(Op::Recip),
            2 => Some(Op::Sqrt),
            3 => Some(Op::Trunc),
            _ => None,
        };
        if let Some(op) = unary {
            return self.value(op, &[a], Arg::None);
        }
        let b = self.operand(d, n);
        let pair = self.either(a, b);
        match roll {
            4 => self.value(Op::Div, &pair, Arg::None),
            5..7 => self.greatest(&pair),
            7..10 if self.contracts => self.value(Op::Mul, &pair, Arg::None),
            7..9 => self.value(Op::Mul, &pair, Arg::Rounded),
            9 if self.rules.fused => {
                let c = self.operand(d, n);
                self.value(Op::MulAcc, &[&pair[..], &[c]].concat(), Arg::None)
            }
            _ if self.contracts => None,
            10..12 => self.value(Op::Sub, &pair, Arg::None),
            _ => self.value(Op::Add, &pair, Arg::None),
        }
    }

    /// MAX, of which a zero has no sign.
    pub(super) fn greatest(&mut self, pair: &[UOp]) -> Option<UOp> {
        let d = pair[0].dtype();
        let most = self.put(Op::Max, pair, Arg::None)?;
        let zero = self.constant(UOp::float(0.0, d));
        let is = self.put(Op::CmpEq, &[most.clone(), zero.clone()], Arg::None)?;
        self.value(Op::Where, &[is, zero, most], Arg::None)
    }

    fn int_op(&mut self, d: DType, n: usize) -> Option<UOp> {
        let a = self.any(d, n);
        let roll = self.dice.roll(20);
        if roll < 2 {
            let op = if roll == 0 { Op::Neg } else { Op::Not };
            return self.value(op, &[a], Arg::None);
        }
        let b = self.operand(d, n);
        let pair = self.either(a.clone(), b.clone());
        match roll {
            18 if d == DType::I32 && n > 1 => {
                let dot = self.dot(a, n)?;
                self.offer(&dot);
                Some(dot)
            }
            2..5 => self.value(Op::Add, &pair, Arg::None),
            5..7 => self.value(Op::Sub, &pair, Arg::None),
            7..9 => self.value(Op::Mul, &pair, Arg::None),
            9 => self.value(Op::And, &pair, Arg::None),
            10 => self.value(Op::Or, &pair, Arg::None),
            11 => self.value(Op::Xor, &pair, Arg::None),
            12..14 => self.value(Op::Max, &pair, Arg::None),
            14..17 => self.shift(a, b),
            17 if self.rules.fused => {
                let c = self.operand(d, n);
                self.value(Op::MulAcc, &[&pair[..], &[c]].concat(), Arg::None)
            }
            _ => self.divide(a, b),
        }
    }

    /// A dot product of words that are any, added to a sum.
    pub(super) fn dot(&mut self, sum: UOp, n: usize) -> Option<UOp> {
        let dots = self.rules.dots.clone();
        let of = |unit: &&TcInfo| unit.dtype_out == sum.dtype();
        let fitting: Vec<&TcInfo> = dots.iter().filter(of).collect();
        let unit = *self.dice.pick(fitting.get(..).filter(|f| !f.is_empty())?);
        let word = unit.word()?;
        let [a, b] = [(); 2].map(|()| self.any(word, n));
        let arg = Arg::Wmma(Arc::new(unit.clone()));
        self.put(Op::Wmma, &[a, b, sum], arg)
    }

    fn shift(&mut self, a: UOp, b: UOp) -> Option<UOp> {
        let d = a.dtype();
        let by = match self.dice.roll(3) {
            // Within the width.
            0 => {
                let last = self.int(d.bits() as i64 - 1, d);
                self.put(Op::And, &[b, last], Arg::None)?
            }
            1 => {
                let by = self.dice.roll(d.bits() as u64 + 3) as i64;
                let by = self.int(by, d);
                match lanes(&a) {
                    n if n > 0 && self.dice.roll(2) == 0 => self.splat(&by, n)?,
                    _ => by,
                }
            }
            _ => b,
        };
        if lanes(&by) != lanes(&a) && by.op() != Op::Const {
            return None;
        }
        let op = [Op::Shl, Op::Shr][self.dice.roll(2) as usize];
        let within = by.as_int().filter(|k| (1..d.bits() as i64).contains(k));
        match within.filter(|_| d.is_unsigned() && self.dice.roll(2) == 0) {
            Some(k) => self.turned(a, k),
            None => self.value(op, &[a, by], Arg::None),
        }
    }

    /// Bits turned by so many, or some of them lost or met twice.
    fn turned(&mut self, a: UOp, by: i64) -> Option<UOp> {
        let d = a.dtype();
        let other = d.bits() as i64 - by + self.dice.roll(2) as i64;
        let [by, other] = [by, other].map(|k| self.int(k, d));
        let left = self.put(Op::Shl, &[a.clone(), by], Arg::None)?;
        let right = self.put(Op::Shr, &[a, other], Arg::None)?;
        self.value(Op::Or, &[left, right], Arg::None)
    }

    /// By what is not 0.
    fn divide(&mut self, a: UOp, b: UOp) -> Option<UOp> {
        let d = a.dtype();
        let one = self.int(1, d);
        if a.op() == Op::Const {
            return None;
        }
        let by = match self.dice.roll(5) {
            _ if b.op() == Op::Const => match b.const_value() {
                Some(v) if v.is_zero() => one,
                _ => b,
            },
            0 if d.is_unsigned() => self.put(Op::Max, &[b, one], Arg::None)?,
            0 => {
                // Positive, and so bounded.
                let most = self.int(63, d);
                let low = self.put(Op::And, &[b, most], Arg::None)?;
                self.put(Op::Add, &[low, one], Arg::None)?
            }
            1 => {
                let zero = self.int(0, d);
                let is = self.put(Op::CmpEq, &[b.clone(), zero], Arg::None)?;
                let minus = self.int(-1, d);
                self.put(Op::Where, &[is, minus, b], Arg::None)?
            }
            2 => {
                let by = self.special(d);
                match by.const_value() {
                    Some(v) if v.is_zero() => one,
                    _ => by,
                }
            }
            _ => self.put(Op::Or, &[b, one], Arg::None)?,
        };
        let mut a = a;
        if self.dice.roll(3) == 0 && d.bytes() >= 4 {
            // Numbers for which a division is a product.
            let most = self.int(i32::MAX as i64, d);
            a = self.put(Op::And, &[a, most], Arg::None)?;
        }
        let op = [Op::TruncDiv, Op::TruncMod][self.dice.roll(2) as usize];
        self.value(op, &[a, by], Arg::None)
    }

    /// A vector of scalars, one of them in all lanes, or some constants.
    pub(super) fn stacked(&mut self, d: DType, n: usize) -> Option<UOp> {
        if self.dice.roll(2) == 0 {
            let u = self.any(d, 0);
            let u = self.splat(&u, n)?;
            self.offer(&u);
            return Some(u);
        }
        let constants = self.dice.roll(4) == 0;
        let mut src = Vec::with_capacity(n);
        for _ in 0..n {
            src.push(match constants {
                true => self.special(d),
                false => self.any(d, 0),
            });
        }
        self.value(Op::Stack, &src, Arg::None)
    }

    /// Lanes of vectors: one, a run, some of one or two.
    pub(super) fn shuffle(&mut self) -> Option<UOp> {
        let d = match self.dice.roll(8) {
            0 => DType::Bool,
            1 if self.rules.half => DType::F16,
            _ => self.dtype(),
        };
        let n = *self.dice.pick(&WIDTHS);
        let a = self.any(d, n);
        if lanes(&a) == 0 {
            return None;
        }
        let lane = |k: u64| UOp::int(k as i64, DType::I32);
        match self.dice.roll(8) {
            0..2 => {
                let k = lane(self.dice.roll(n as u64));
                self.value(Op::Index, &[a, k], Arg::None)
            }
            2 => {
                let fits: Vec<usize> = WIDTHS.iter().copied().filter(|&w| w <= n).collect();
                let w = *self.dice.pick(&fits);
                let first = self.dice.roll((n - w + 1) as u64);
                let list = |v: UOp| UOp::new(Op::Stack, vec![v], Arg::None);
                let src = [a, list(lane(first)), list(lane(w as u64))];
                self.value(Op::Shrink, &src, Arg::None)
            }
            3 => {
                let w = *self.dice.pick(&WIDTHS);
                let picks: Vec<UOp> = (0..w).map(|_| lane(self.dice.roll(n as u64))).collect();
                let list = UOp::new(Op::Stack, picks, Arg::None);
                self.value(Op::Index, &[a, list], Arg::None)
            }
            4 => {
                let b = self.any(d, n);
                if lanes(&b) == 0 {
                    return None;
                }
                let w = *self.dice.pick(&WIDTHS);
                let picks: Vec<UOp> = (0..w).map(|_| lane(self.dice.roll(2 * n as u64))).collect();
                let list = UOp::new(Op::Stack, picks, Arg::None);
                self.value(Op::Shuffle, &[a, b, list], Arg::None)
            }
            _ => {
                let b = self.any(d, n);
                let order = self.dice.roll(5);
                let w = *self.dice.pick(&WIDTHS);
                let turn = self.dice.roll(2 * n as u64);
                let mut src = Vec::with_capacity(w);
                for k in 0..w as u64 {
                    let n = n as u64;
                    let pick = match order {
                        // By turns, evens and odds, backwards, on from somewhere, any.
                        0 => k % 2 * n + (k / 2 + turn) % n,
                        1 => (2 * k + turn) % (2 * n),
                        2 => (turn + 64 * n - k) % (2 * n),
                        3 => (turn + k) % (2 * n),
                        _ => self.dice.roll(2 * n),
                    };
                    let side = if pick < n { &a } else { &b };
                    let src_lane = [side.clone(), lane(pick % n)];
                    src.push(self.put(Op::Index, &src_lane, Arg::None)?);
                }
                self.value(Op::Stack, &src, Arg::None)
            }
        }
    }
}
