//! 2^x and log2 x. Flows in: a value in f32 or f64; flows out: the result, every argument covered,
//! within the errors stated at each function (in ulp of the correctly rounded result; f32 over all 2^32
//! arguments, f64 on stratified samples against mpmath). The coefficients are our own fits.

use super::math::Math;
use crate::build::uniform;
use monoglot_uop::{Op, UOp};

const LOG2_F32: [u32; 9] = [
    0xbf38aa38, 0x3ef63849, 0xbeb8ad7f, 0x3e93bfea, 0xbe75519c, 0x3e51595e, 0xbe43eb28, 0x3e3fd74d,
    0xbde2c5d2,
];

const LOG2_F64: [u32; 14] = [
    0x3fe55555, 0x55555592, 0x3fd99999, 0x9997ff28, 0x3fd24924, 0x941df431, 0x3fcc71c5, 0x2173479e,
    0x3fc74663, 0xc1dab0f7, 0x3fc39a20, 0x1d980a54, 0x3fc2f02a, 0x47be58db,
];

impl Math<'_> {
    /// 2^n * (1 + f q(f)) for the `t` of n that `exp2_nearest` gives and |f| <= 1/2.
    ///
    /// The scale goes on in two factors, 2^floor(n/2) and 2^ceil(n/2), so the last multiplication alone rounds or
    /// overflows. The scale is multiplied, not added to the exponent field: a NaN stays a NaN.
    pub(super) fn exp2_tail(&self, t: &UOp, f: &UOp) -> UOp {
        let o = self.o;
        let p = o.mulacc(f, &self.poly(f, self.format.exp2), &self.c(1.0));
        let both = self.bits(t);
        let lower = self.shr(&both, 1);
        let upper = o.sub(&both, &lower);
        // What stands above an exponent's bits is shifted out.
        let mant = self.u(self.format.mant as u64);
        let scale = |exponent: &UOp| self.float(&o.shl(exponent, &mant));
        let p = o.mul(&p, &scale(&lower));
        o.mul(&p, &scale(&upper))
    }

    /// t and n for the nearest integer n to an argument that `exp2_clamp` gave. The low bits of t are n and twice the
    /// bias of an exponent.
    pub(super) fn exp2_nearest(&self, x: &UOp) -> (UOp, UOp) {
        let magic = self.exp2_magic();
        let t = self.o.add(x, &self.c(magic));
        let n = self.o.add(&t, &self.c(-magic));
        (t, n)
    }

    fn exp2_magic(&self) -> f64 {
        1.5 * (1u64 << self.format.mant) as f64 + 2.0 * self.format.bias as f64
    }

    /// A value cut to the range in which `exp2_tail` works and past whose ends 2^x is 0 or infinity; NaN passes. At the
    /// lower end the halves of the exponent are those of zeros: a product that underflows takes many times as long.
    pub(super) fn exp2_clamp(&self, x: &UOp) -> UOp {
        let [lo, hi] = self.exp2_range();
        self.cut(x, lo, hi)
    }

    fn exp2_range(&self) -> [f64; 2] {
        let bias = self.format.bias as f64;
        [-2.0 * bias, bias + 3.0]
    }

    /// A value of which what is less or greater is these; NaN passes.
    fn cut(&self, x: &UOp, lo: f64, hi: f64) -> UOp {
        let o = self.o;
        let [lo, hi] = [self.c(lo), self.c(hi)];
        let greater = || o.select(&o.cmplt(x, &lo), &lo, x);
        let x = o.native(Op::Max, &[&lo, x], greater);
        o.select(&o.cmplt(&hi, &x), &hi, &x)
    }

    /// What an argument is a multiple of, and the positive number: their product is not rounded before it is reduced.
    fn multiple<'x>(&self, x: &'x UOp) -> (&'x UOp, f64) {
        let number = |x: f64| self.format.float.from_f64(x).to_f64();
        let [lo, hi] = self.exp2_range();
        // The ends of the range are numbers of the format, too.
        let ends = |c: f64| [c, lo / c, hi / c];
        let fits = |c: &f64| *c > 0.0 && ends(*c).iter().all(|&x| number(x).is_normal());
        let product = Some(x).filter(|x| x.may_contract());
        let by = |x: &UOp| uniform(&x.src()[1]).map(|c| c.to_f64()).filter(fits);
        product
            .and_then(|x| Some((&x.src()[0], by(x)?)))
            .unwrap_or((x, 1.0))
    }

    /// A multiple and a sum, rounded once.
    fn times(&self, x: &UOp, by: f64, c: &UOp) -> UOp {
        match by {
            1.0 => self.o.add(x, c),
            by => self.o.mulacc(x, &self.c(by), c),
        }
    }

    /// 2^x. x = n + f with n the nearest integer (read off `x + magic`), 2^f by a degree-6 polynomial in fma, 2^n in two
    /// factors (`exp2_tail`). The reduction is Muller, "Elementary Functions" (3rd ed.), chapter 11. A multiple of a value
    /// is not rounded before that, unless it says so (`Arg::Rounded`).
    ///
    /// 18 ops, where a maximum and a minimum are one each. Every f32: at most 0.8784 ulp (1.09 with mulacc rounded
    /// twice); exact at integers; +inf from 128 on, 0 from -150 down, subnormals between -149 and -126 kept.
    ///
    /// 2^x like `exp2_f32`, polynomial of degree 11. 23 ops. 101000 samples against mpmath: at most 0.81 ulp.
    pub(super) fn exp2(&self, x: &UOp) -> UOp {
        let (x, by) = self.multiple(x);
        let [lo, hi] = self.exp2_range().map(|end| end / by);
        let x = self.cut(x, lo, hi);
        let magic = self.c(self.exp2_magic());
        let t = self.times(&x, by, &magic);
        self.exp2_tail(&t, &self.times(&x, by, &self.o.sub(&magic, &t)))
    }

    /// 2^x of what is at most 0: its scale is one factor, far enough from the end of the range to be no subnormal
    /// where the result is; the polynomial is that much smaller, by a power of two. 12 ops where the target has fused
    /// ones. To the bit what the other one gives: in one kernel of a softmax it is seen that this will do, in another
    /// it is not. (So n is the same where two integers are as near: the numbers that are added are even in both.)
    pub(super) fn exp2_below(&self, x: &UOp) -> UOp {
        let o = self.o;
        let lift = self.format.mant as f64 + 1.0 + (self.format.mant % 2) as f64;
        let bias = self.format.bias as f64 + lift;
        let (x, by) = self.multiple(x);
        // There the factor is 0.
        let least = self.c(-bias / by);
        let greater = || o.select(&o.cmplt(x, &least), &least, x);
        let x = &o.native(Op::Max, &[&least, x], greater);
        let magic = self.c(1.5 * (1u64 << self.format.mant) as f64 + bias);
        let t = self.times(x, by, &magic);
        let f = self.times(x, by, &o.sub(&magic, &t));
        let low = (-lift).exp2();
        let p = o.mulacc(&f, &self.poly_of(&f, self.format.exp2, low), &self.c(low));
        let mant = self.u(self.format.mant as u64);
        o.mul(&p, &self.float(&o.shl(&self.bits(&t), &mant)))
    }

    /// (k, m) with x = 2^k m, m in [sqrt(1/2), sqrt(2)), for positive finite x; anything for others.
    ///
    /// k comes out of the bits by the same magic constant that would put it in, which spares a conversion, and the
    /// correction for a lifted subnormal rides on the constant that is subtracted anyway.
    pub(super) fn frexp(&self, x: &UOp) -> (UOp, UOp) {
        let o = self.o;
        let f = self.format;
        let mant = (1u64 << f.mant) as f64;
        let tiny = o.cmplt(x, &self.cb(1 << f.mant));
        let x = o.select(&tiny, &o.mul(x, &self.c(mant)), x);
        let b = self.iadd(&self.bits(&x), self.one().wrapping_sub(f.sqrt_half));
        let m = self.iadd(&o.and(&b, &self.u((1 << f.mant) - 1)), f.sqrt_half);
        let magic = (f.bias + f.mant as u64) << f.mant;
        let k = self.float(&o.or(&self.shr(&b, f.mant), &self.u(magic)));
        let bias = mant + f.bias as f64;
        let k = o.add(
            &k,
            &o.select(&tiny, &self.c(-bias - f.mant as f64), &self.c(-bias)),
        );
        (k, self.float(&m))
    }

    /// The arguments at which a logarithm is no ordinary number.
    pub(super) fn log_edges(&self, x: &UOp, y: &UOp) -> UOp {
        let o = self.o;
        let zero = self.c(0.0);
        let low = o.select(
            &o.cmpne(x, &zero),
            &self.c(f64::NAN),
            &self.c(f64::NEG_INFINITY),
        );
        let high = o.select(&o.cmplt(x, &self.c(f64::INFINITY)), y, x);
        o.select(&o.cmplt(&zero, x), &high, &low)
    }

    /// log2 x. x = 2^k m with m in [sqrt(1/2), sqrt(2)), r = m - 1 (exact), log2 m = r A(r), A = c0 + r Q(r) with Q of
    /// degree 8; A as a pair, k + r A as a fused Fast2Sum, so that neither a small k nor k = 0 sees A's rounding.
    ///
    /// 33 ops, no division. Every f32: at most 0.9455 ulp (1.51 with mulacc rounded twice); exact at powers of two,
    /// subnormal ones too; 0 gives -inf, negatives NaN.
    pub(super) fn log2_f32(&self, x: &UOp) -> UOp {
        let c = self;
        let o = self.o;
        let (k, m) = c.frexp(x);
        let r = o.add(&m, &c.c(-1.0));
        let q = c.poly(&r, &LOG2_F32);
        let c0 = c.cb(0x3fb8aa3b);
        let ah = o.mulacc(&r, &q, &c0);
        let al = o.mulacc(&r, &q, &o.sub(&c0, &ah));
        let hi = o.mulacc(&r, &ah, &k);
        let lo = o.mulacc(&r, &ah, &o.sub(&k, &hi));
        let y = o.add(&hi, &o.mulacc(&r, &al, &lo));
        c.log_edges(x, &y)
    }

    /// log2 x. As in fdlibm's log (Sun, 1993): s = r/(2+r), ln m = r - r^2/2 + s (r^2/2 + s^2 R(s^2)), the head
    /// r - r^2/2 as a pair; here by fma, which also splits the product with 1/ln 2 and the sum with k.
    ///
    /// 41 ops, one of them a recip. 146000 samples against mpmath: at most 0.69 ulp; exact at powers of two.
    pub(super) fn log2_f64(&self, x: &UOp) -> UOp {
        let c = self;
        let o = self.o;
        let (k, m) = c.frexp(x);
        let r = o.add(&m, &c.c(-1.0));
        let s = o.mul(&r, &o.recip(&o.add(&r, &c.c(2.0))));
        let z = o.mul(&s, &s);
        let t = o.mul(&z, &c.poly(&z, &LOG2_F64));
        // ln m = r - r^2/2 + s (r^2/2 + t), its head as a pair
        let nr = o.mul(&r, &c.c(-0.5));
        let h = o.mulacc(&nr, &r, &r);
        let tail = o.mulacc(
            &s,
            &o.mulacc(&c.neg(&nr), &r, &t),
            &o.mulacc(&nr, &r, &o.sub(&r, &h)),
        );
        let c0 = c.cb(0x3ff71547652b82fe);
        let c1 = c.cb(0x3c7777d0ffda0d24);
        let hi = o.mulacc(&h, &c0, &k);
        let lo = o.mulacc(&h, &c0, &o.sub(&k, &hi));
        let y = o.add(&hi, &o.mulacc(&tail, &c0, &o.mulacc(&h, &c1, &lo)));
        c.log_edges(x, &y)
    }
}
