//! x^y and the square root for targets without one. Flows in: values in f32 or f64; flows out: the
//! result, every argument covered. Both rest on `mulacc` being rounded once.

use super::math::Math;
use monoglot_uop::UOp;

impl Math<'_> {
    /// log2 of a positive finite x as an unevaluated sum hi + lo, good to about 2^-35 (f32), 2^-65 (f64) of it.
    ///
    /// With s = (m-1)/(m+1), log2 m = s (c0 + z (c1 + z T(z))), z = s^2 <= 0.0295: the quotient, z, c0, c1 and every
    /// product and sum outside T are carried as pairs; a sum's low part is one fma of the same factors into
    /// (addend - high part), which is exact here (the Fast2Sum of Dekker 1971, fused).
    pub(super) fn log2_pair(&self, x: &UOp) -> (UOp, UOp) {
        let o = self.o;
        let fm = self.format;
        let (k, m) = self.frexp(x);
        let r = o.add(&m, &self.c(-1.0));
        let dh = o.add(&r, &self.c(2.0));
        let dl = self.o.sub(&r, &o.add(&dh, &self.c(-2.0)));
        let i = o.recip(&dh);
        let sh = o.mul(&r, &i);
        let ns = self.neg(&sh);
        let sl = o.mul(&o.mulacc(&ns, &dl, &o.mulacc(&ns, &dh, &r)), &i);
        let zh = o.mul(&sh, &sh);
        let zl = o.mulacc(&o.add(&sh, &sh), &sl, &o.mulacc(&sh, &sh, &self.neg(&zh)));
        // a = c1 + z T
        let t = self.poly(&zh, fm.pow_t);
        let c1 = self.cb(fm.pow_c1[0]);
        let ah = o.mulacc(&zh, &t, &c1);
        let al = o.add(
            &o.mulacc(&zh, &t, &self.o.sub(&c1, &ah)),
            &self.cb(fm.pow_c1[1]),
        );
        // b = c0 + z a
        let c0 = self.cb(fm.pow_c0[0]);
        let bh = o.mulacc(&zh, &ah, &c0);
        let rest = o.mulacc(&zh, &al, &o.mulacc(&zl, &ah, &self.cb(fm.pow_c0[1])));
        let bl = o.add(&o.mulacc(&zh, &ah, &self.o.sub(&c0, &bh)), &rest);
        // k + s b
        let hi = o.mulacc(&sh, &bh, &k);
        let rest = o.mulacc(&sh, &bl, &o.mul(&sl, &bh));
        let lo = o.add(&o.mulacc(&sh, &bh, &self.o.sub(&k, &hi)), &rest);
        (hi, lo)
    }

    /// x^y with the special cases of C99 annex F.9.4.4: 2^(y log2|x|) from `log2_pair`, exponent carried as a pair.
    ///
    /// 97 ops, one of them a recip. 1.8 * 10^8 random pairs in five strata (the far ends of the range and x next to 1
    /// among them): at most 0.96 ulp.
    ///
    /// Like `pow_f32`; 107 ops. 180000 samples against mpmath: at most 1.02 ulp.
    pub(super) fn pow(&self, x: &UOp, y: &UOp) -> UOp {
        let o = self.o;
        let zero = self.c(0.0);
        let one = self.c(1.0);
        let ax = self.abs(x);
        let finite = o.cmplt(&ax, &self.c(f64::INFINITY));

        // |x|^y = 2^(y log2|x|), the exponent as a pair
        let (lh, ll) = self.log2_pair(&ax);
        let lh = o.select(&finite, &lh, &ax);
        let lh = o.select(&o.cmpne(&ax, &zero), &lh, &self.c(f64::NEG_INFINITY));
        let ph = o.mul(y, &lh);
        let pl = o.mulacc(y, &ll, &o.mulacc(y, &lh, &self.neg(&ph)));
        let pc = self.exp2_clamp(&ph);
        let pl = o.select(&o.cmpne(&ph, &pc), &zero, &pl);
        let (t, n) = self.exp2_nearest(&pc);
        let mag = self.exp2_tail(&t, &o.add(&self.o.sub(&pc, &n), &pl));
        // (+-1)^y, where y infinite made 0 * inf
        let unit = o.select(&o.cmpne(y, y), y, &one);
        let mag = o.select(&o.cmpne(&ax, &one), &mag, &unit);

        // y an odd integer: x's sign; y no integer: NaN for x negative, not zero, not infinite
        let hy = o.mul(y, &self.c(0.5));
        let odd = o.cmpne(&o.trunc(&hy), &hy);
        let sign = o.select(
            &odd,
            &o.and(&self.bits(x), &self.u(self.sign())),
            &self.u(0),
        );
        let whole = self.float(&o.xor(&self.bits(&mag), &sign));
        let broken = o.select(
            &o.cmplt(x, &zero),
            &o.select(&finite, &self.c(f64::NAN), &mag),
            &mag,
        );
        let v = o.select(&o.cmpne(&o.trunc(y), y), &broken, &whole);
        let v = o.select(&o.cmpne(y, &zero), &v, &one);
        o.select(&o.cmpne(x, &one), &v, &one)
    }

    /// The correctly rounded square root, for targets without one: a bit-trick guess at 1/sqrt, coupled Newton steps for
    /// sqrt and 1/(2 sqrt) (Markstein, "IA-64 and Elementary Functions", 2000, chapter 9), one step on the exact
    /// residual, and Tuckerman's test of the neighbours on residuals whose sign an fma gets right. Small arguments are
    /// lifted by a power of 4 first, so no residual underflows.
    ///
    /// 35 ops. All 2^32 arguments: bit for bit the correctly rounded result.
    ///
    /// Like `sqrt_f32`, one Newton step more; 38 ops. Correct whenever the last step lands within 1 ulp, which its error
    /// (2^-60 before rounding) assures; 80000 samples, next to squares of numbers and of midpoints too, are all correct.
    pub(super) fn sqrt(&self, x: &UOp) -> UOp {
        let o = self.o;
        let f = self.format;
        // lift small arguments, so that the residuals below stay exact
        let small = o.cmplt(x, &self.c(2f64.powi(-f.sqrt_lift + 4)));
        let v = o.select(&small, &o.mul(x, &self.c(2f64.powi(f.sqrt_lift))), x);
        // y ~ 1/sqrt(v); ng ~ -sqrt(v), h ~ 1/(2 sqrt(v))
        let guess = o.xor(&self.shr(&self.bits(&v), 1), &self.u(u64::MAX));
        let y = self.float(&self.iadd(&guess, f.rsqrt_magic + 1));
        let mut ng = o.mul(&o.mul(&v, &y), &self.c(-1.0));
        let mut h = o.mul(&y, &self.c(0.5));
        for _ in 0..f.rsqrt_steps {
            let e = o.mulacc(&ng, &h, &self.c(0.5));
            ng = o.mulacc(&ng, &e, &ng);
            h = o.mulacc(&h, &e, &h);
        }
        // one more step on the exact residual
        let g = self.neg(&ng);
        let g = o.mulacc(&o.mulacc(&ng, &g, &v), &h, &g);
        // Tuckerman: g is right iff g * pred(g) < v <= g * succ(g)
        let ng = self.neg(&g);
        let b = self.bits(&g);
        let down = self.float(&self.iadd(&b, u64::MAX));
        let up = self.float(&self.iadd(&b, 1));
        let zero = self.c(0.0);
        let g = o.select(&o.cmplt(&zero, &o.mulacc(&ng, &down, &v)), &g, &down);
        let g = o.select(&o.cmplt(&zero, &o.mulacc(&ng, &up, &v)), &up, &g);
        let g = o.mul(
            &g,
            &o.select(&small, &self.c(2f64.powi(-f.sqrt_lift / 2)), &self.c(1.0)),
        );
        // +-0, +inf and NaN answer themselves, negatives NaN
        let edge = o.select(&o.cmplt(x, &zero), &self.c(f64::NAN), x);
        let high = o.select(&o.cmplt(x, &self.c(f64::INFINITY)), &g, x);
        o.select(&o.cmplt(&zero, x), &high, &edge)
    }
}
