//! The tensor room end to end on what the engine runs: values, promotion, errors with the user's
//! line. Flows in: what a user writes first; flows out: comparisons.

use monoglot_tensor::{DType, ErrorKind, Tensor};

fn f32s(t: &Tensor) -> Vec<f32> {
    t.to_vec().expect("f32 values")
}

#[test]
fn expressions_run() {
    let a = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0], [2, 2]);
    let b = &a * 2.0 + 1.0 - &a;
    assert_eq!(f32s(&b), [2.0, 3.0, 4.0, 5.0]);
    assert_eq!(f32s(&a.sum(0, false)), [4.0, 6.0]);
    assert_eq!(a.sum(.., false).item::<f32>().unwrap(), 10.0);
    assert_eq!(f32s(&(1.0 / &a.t())), [1.0, 1.0 / 3.0, 0.5, 0.25]);
    let y = (&a * &a).sum(.., false);
    let g = y.gradient(&[&a]).unwrap();
    assert_eq!(f32s(&g[0]), [2.0, 4.0, 6.0, 8.0]);
}

/// Lists of numbers are arrays, or tuples, whose numbers may be of several types: sizes, axes, kernels, shifts.
#[test]
fn tuples_stand_where_arrays_do() {
    let rows = 2usize;
    let a = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], (rows, 3i64));
    assert_eq!(f32s(&a.permute((1, 0))), f32s(&a.t()));
    assert_eq!(f32s(&a.sum((0, -1), false)), [21.0]);
    assert_eq!(f32s(&a.roll((1, 1), (0, 1))), f32s(&a.roll([1, 1], [0, 1])));
    let images = a.reshape((1, 1, rows, 3));
    let pooled = images.avg_pool((2, 3), (1i64, 1), 0, true);
    assert_eq!(f32s(&pooled), [3.5]);
    let e = Tensor::new(&[1.0f32], (rows, 3)).to_vec::<f32>();
    assert!(e.is_err(), "one element for six");
}

#[test]
fn promotion_is_pytorchs() {
    use DType::*;
    let t = |d: DType| Tensor::ones([2]).cast(d);
    let s = |d: DType| Tensor::ones(()).cast(d);
    for (got, want) in [
        (t(I32) + t(I64), I64),
        (t(I32) + 1, I32),
        (t(I32) + 1.5, F32),
        (t(Bool) + 1, I64),
        (t(F16) + 1.5, F16),
        (t(F16) + t(BF16), F32),
        (t(I8) + s(I64), I8),
        (t(I32) + s(F64), F64),
        (t(F32) + s(F64), F32),
        (t(U8) / 2, F32),
        (t(I32).sum(.., false), I64),
        (t(U8).sum(.., false), I64),
        (t(U16).sum(.., false), U64),
        (t(Bool).square(), I64),
        (t(F16).sum(.., false), F16),
        (t(I32).exp(), F32),
        (t(I32).lt(t(F32)), Bool),
        (t(U16) + t(I16), I32),
    ] {
        assert_eq!(got.dtype().unwrap(), want);
    }
}

/// A literal does not wrap before it is compared.
#[test]
fn comparisons_with_literals_beyond_a_dtype_are_those_of_numbers() {
    let bools = |t: Tensor| t.to_vec::<bool>().unwrap();
    let u8s = Tensor::new(&[0u8, 1, 200, 255], [2, 2]);
    assert_eq!(bools(u8s.lt(300)), [true; 4]);
    assert_eq!(bools(u8s.le(256)), [true; 4]);
    assert_eq!(bools(u8s.le(255)), [true; 4]);
    assert_eq!(bools(u8s.gt(-1)), [true; 4]);
    assert_eq!(bools(u8s.ge(-56)), [true; 4]);
    assert_eq!(bools(u8s.eq(257)), [false; 4]);
    assert_eq!(bools(u8s.ne(256)), [true; 4]);
    let i32s = Tensor::new(&[i32::MIN, -1, 7, i32::MAX], [4]);
    assert_eq!(bools(i32s.lt(-(1i64 << 40))), [false; 4]);
    assert_eq!(bools(i32s.ge(i64::MIN)), [true; 4]);
    assert_eq!(bools(i32s.gt(i32::MAX)), [false; 4]);
    assert_eq!(bools(i32s.eq(1i64 << 32)), [false; 4]);
    let u64s = Tensor::new(&[0u64, u64::MAX], [2]);
    assert_eq!(bools(u64s.gt(-1)), [true; 2]);
    assert_eq!(bools(u64s.ne(-1)), [true; 2]);
    assert_eq!(u8s.minimum(300).to_vec::<u8>().unwrap(), [0, 1, 200, 255]);
    assert_eq!(u8s.maximum(-1).to_vec::<u8>().unwrap(), [0, 1, 200, 255]);
    assert_eq!(u8s.minimum(-1).to_vec::<u8>().unwrap(), [0; 4]);
    assert_eq!(u64s.maximum(-1).to_vec::<u64>().unwrap(), [0, u64::MAX]);
    let i8s = Tensor::new(&[-128i8, 1], [2]);
    assert_eq!(i8s.maximum(300).to_vec::<i8>().unwrap(), [127; 2]);
    let column = Tensor::new(&[3i8, -3], [2, 1]);
    assert_eq!(bools(column.lt(128)), [true; 2]);
}

/// A literal does not wrap in the tensor's dtype before it counts.
#[test]
fn literals_beyond_a_dtype_count_as_they_are() {
    let near = |t: Tensor, want: &[f32]| {
        let got = t.cast(DType::F32).to_vec::<f32>().unwrap();
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-3 * b.abs();
        assert!(got.iter().zip(want).all(close), "{got:?} for {want:?}");
    };
    let u8s = Tensor::new(&[100u8, 200], [2]);
    near(&u8s / 256, &[0.390625, 0.78125]);
    near(&u8s / -2, &[-50.0, -100.0]);
    near(300i64 / &u8s, &[3.0, 1.5]);
    near(u8s.copysign(-1), &[-100.0, -200.0]);
    near(Tensor::new(&[1u8], [1]).logaddexp(-3), &[1.01815]);
    near(Tensor::new(&[7i32], [1]) / (1i64 << 32), &[1.6298e-9]);
    near(
        Tensor::new(&[0.01f32], [1]).cast(DType::F16) * 100_000,
        &[1000.0],
    );
    // Shifts go past the width, and powers are those modulo 2ⁿ.
    assert_eq!(u8s.shl(256).to_vec::<u8>().unwrap(), [0, 0]);
    let i32s = Tensor::new(&[7i32, -7], [2]);
    assert_eq!(i32s.shr(1i64 << 32).to_vec::<i32>().unwrap(), [0, -1]);
    for base in [1u8, 2, 3, 7, 12, 255] {
        for exponent in [255i64, 256, 257, 300, 1000, 1 << 40] {
            let power = (0..exponent % 64 + 64).fold(1u8, |p, _| p.wrapping_mul(base));
            let bytes = Tensor::new(&[base], [1]).pow(exponent);
            assert_eq!(
                bytes.to_vec::<u8>().unwrap(),
                [power],
                "{base} ** {exponent}"
            );
            let signed = Tensor::new(&[base as i8], [1]).pow(exponent);
            assert_eq!(
                signed.to_vec::<i8>().unwrap(),
                [power as i8],
                "{base} ** {exponent}"
            );
        }
    }
    let minus = Tensor::new(&[-1i8, 3], [2]);
    assert_eq!(minus.pow(-129).to_vec::<i8>().unwrap(), [-1, 0]);
    assert_eq!(minus.pow(-1000).to_vec::<i8>().unwrap(), [1, 0]);
    assert_eq!(minus.shl(-1).to_vec::<i8>().unwrap(), [0, 0]);
    assert_eq!(u8s.shl(-1).to_vec::<u8>().unwrap(), [0, 0]);
    let bools = u8s.gt(150).select(true, false);
    assert_eq!(bools.to_vec::<bool>().unwrap(), [false, true]);
}

/// Which part of a word is read depends on an index that may be none.
#[test]
fn parts_of_words_are_read_at_indices_from_data() {
    let x = Tensor::new(&[1i64, 2, 3, 4, 5, 6], [3, 2]);
    let at = Tensor::new(&[1i64, 0, 4, 9], [4]);
    let halves = x.bitcast(DType::U16);
    let want = [0u16, 1, 2, 0, 0, 3, 4, 0, 0, 5, 6, 0];
    assert_eq!(halves.index_select(1, &at).to_vec::<u16>().unwrap(), want);
    let floats = x.cast(DType::F64).bitcast(DType::F32);
    let some = floats.index_select(-1, &Tensor::new(&[3i32, 0], [2]));
    let want: Vec<f32> = [2.0f64, 4.0, 6.0]
        .into_iter()
        .flat_map(|v| [f32::from_bits((v.to_bits() >> 32) as u32), 0.0])
        .collect();
    assert_eq!(some.to_vec::<f32>().unwrap(), want);
    halves.realize().unwrap();
    let columns = Tensor::new(&[4i64, 0], [2]);
    let some = halves.index((.., &columns)).to_vec::<u16>().unwrap();
    assert_eq!(some, [2, 1, 4, 3, 6, 5]);
}

#[test]
fn errors_travel_with_the_users_line() {
    let a = Tensor::ones([2, 3]);
    let bad = &a + &Tensor::ones([4]);
    let line = line!() - 1;
    let later = bad.relu().sum(.., false).softmax(0);
    let e = later.check().expect_err("shapes do not fit");
    assert!(matches!(e.kind(), ErrorKind::Shape { .. }), "{e}");
    assert_eq!(
        e.location().map(|l| (l.file(), l.line())),
        Some((file!(), line))
    );
    for (t, text) in [
        (a.reshape([4]), "reshape"),
        (a.sum(2, false), "axis 2"),
        (a.permute([0, 0]), "PERMUTE"),
        (Tensor::ones([0, 2]).max(0, false), "no elements"),
        (Tensor::new(&[1.0f32], [2]), "1 elements"),
        (a.bitwise_not(), "NOT"),
        (Tensor::arange(0, 3, 0), "by 0"),
        (a.narrow(1, 2, 2), "2 elements from 2"),
        (Tensor::cat(&[], 0), "no tensors"),
    ] {
        let e = t.check().expect_err(text);
        assert!(
            e.to_string().to_lowercase().contains(&text.to_lowercase()),
            "{e} has no {text}"
        );
        assert_eq!(e.location().map(|l| l.file()), Some(file!()), "{e}");
    }
    assert!(a.to_vec::<i32>().is_err() && a.item::<f32>().is_err());
}

#[test]
fn literals_stand_on_both_sides_without_suffixes() {
    let t = Tensor::new(&[1.0f32, 2.0, 4.0], [3]);
    // The result is known where it stands: methods and further operators follow.
    assert_eq!(f32s(&(1.0 - &t).relu()), [0.0, 0.0, 0.0]);
    assert_eq!(f32s(&(1.0 / &t).sum(.., true)), [1.75]);
    assert_eq!(f32s(&(2 * &t)), [2.0, 4.0, 8.0]);
    assert_eq!(f32s(&(1.0 - 2 * (3.0 - &t) * 0.5)), [-1.0, 0.0, 2.0]);
    assert_eq!(f32s(&(7 % t.clone() + 1)), [1.0, 2.0, 4.0]);
    assert_eq!(f32s(&(-(&t) * 2).neg()), [2.0, 4.0, 8.0]);
    let i = Tensor::new(&[1i32, 2, 4], [3]);
    let ints = |t: &Tensor| t.to_vec::<i32>().expect("i32 values");
    assert_eq!(ints(&(1 << &i)), [2, 4, 16]);
    assert_eq!(ints(&((5 & &i) | 8)), [9, 8, 12]);
    assert_eq!(f32s(&(1 / &i)), [1.0, 0.5, 0.25]);
    assert_eq!(f32s(&(0.5 + &i)), [1.5, 2.5, 4.5]);
    // Variables of any type on the right; on the left f64 and i64.
    let a = 2.0f32;
    let b = 3i32;
    let n = 4usize;
    assert_eq!(f32s(&(&t * a + b - n)), [1.0, 3.0, 7.0]);
    assert_eq!(f32s(&(f64::from(a) - &t)), [1.0, 0.0, -2.0]);
}
