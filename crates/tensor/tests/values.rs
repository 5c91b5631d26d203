//! Indexing against plain loops, scans, sorting, random numbers. Flows in: arguments, also at the ends of their ranges;
//! flows out: comparisons.

mod common;

use common::{f32s, ints, on_interpreter};
use monoglot_tensor::{DType, Index, PadMode, Tensor};

#[test]
fn slices_are_pythons() {
    on_interpreter();
    let n = 7;
    let t = Tensor::arange(0, n, 1);
    let ends = [
        None,
        Some(-9),
        Some(-7),
        Some(-3),
        Some(-1),
        Some(0),
        Some(2),
        Some(6),
        Some(7),
        Some(11),
    ];
    for start in ends {
        for stop in ends {
            for step in [i64::MIN, -8, -3, -2, -1, 1, 2, 3, 8, i64::MAX] {
                let clamp = |v: Option<i64>, missing: i64| -> i64 {
                    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
                    v.map_or(missing, |v| {
                        (if v < 0 { v + n } else { v }).clamp(low, high)
                    })
                };
                let (a, b) = if step > 0 { (0, n) } else { (n - 1, -1) };
                let mut at = clamp(start, a);
                let end = clamp(stop, b);
                let mut want = Vec::new();
                while if step > 0 { at < end } else { at > end } {
                    want.push(at as i32);
                    at = at.saturating_add(step);
                }
                let got = t.index(Index::step(start, stop, step));
                assert_eq!(ints(&got), want, "{start:?}:{stop:?}:{step}");
            }
        }
    }
}

#[test]
fn index_tensors_and_what_is_out_of_range() {
    on_interpreter();
    let t = Tensor::arange(0, 24, 1).reshape([2, 3, 4]);
    let shape = |t: &Tensor| t.shape().unwrap();
    assert_eq!(ints(&t.index((1, .., 3))), [15, 19, 23]);
    assert_eq!(
        shape(&t.index((Index::NewAxis, 0, Index::Rest, 1..3))),
        [1, 3, 2]
    );
    let i = Tensor::new(&[2i64, -1, 0, 5], [2, 2]);
    let got = t.index((0, &i));
    assert_eq!(shape(&got), [2, 2, 4]);
    assert_eq!(
        ints(&got),
        [8, 9, 10, 11, 8, 9, 10, 11, 0, 1, 2, 3, 0, 0, 0, 0]
    );
    let r = Tensor::new(&[0i32, 1], [2]);
    let c = Tensor::new(&[2i32, 0], [2]);
    assert_eq!(ints(&t.index((&r, &c))), [8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!(shape(&t.index((&r, .., &c))), [2, 3]);
    assert_eq!(ints(&t.index((&r, .., &c))), [2, 6, 10, 12, 16, 20]);
    assert!(t.index(2).check().is_err() && t.index((0, 0, 0, 0)).check().is_err());
    let x = Tensor::new(&[1.0f32, 2.0, 3.0], [3]);
    let j = Tensor::new(&[0i32, 7, 2, -5], [4]);
    assert_eq!(f32s(&x.gather(0, &j)), [1.0, 0.0, 3.0, 0.0]);
    let v = Tensor::new(&[10.0f32, 20.0, 30.0, 40.0], [4]);
    assert_eq!(f32s(&x.scatter(0, &j, &v)), [10.0, 2.0, 30.0]);
    let twice = Tensor::new(&[1i32, 1, 0, 9], [4]);
    assert_eq!(f32s(&x.scatter(0, &twice, &v)), [30.0, 20.0, 3.0]);
    assert_eq!(f32s(&x.scatter_add(0, &twice, &v)), [31.0, 32.0, 3.0]);
    assert_eq!(
        ints(&t.index((0, 0)).pad(&[[2, 1]], PadMode::Reflect)),
        [2, 1, 0, 1, 2, 3, 2]
    );
}

#[test]
fn narrow_indices_bools_and_nothing_to_do() {
    on_interpreter();
    // Index dtypes that cannot count to the axis's end.
    let t = Tensor::arange(0, 700, 1);
    let u = Tensor::new(&[5u8, 255, 0], [3]);
    let s = Tensor::new(&[5i8, 127, -1], [3]);
    assert_eq!(ints(&t.gather(0, &u)), [5, 255, 0]);
    assert_eq!(ints(&t.gather(0, &s)), [5, 127, 0]);
    assert_eq!(ints(&t.index_select(0, &u)), [5, 255, 0]);
    assert_eq!(ints(&t.index(&s)), [5, 127, 699]);
    assert_eq!(ints(&u.one_hot(300).sum(.., false).cast(DType::I32)), [3]);
    assert_eq!(
        ints(
            &Tensor::arange(0, 300, 1)
                .scatter(0, &u, &Tensor::new(&[-1i32, -2, -3], [3]))
                .narrow(0, 254, 3)
        ),
        [254, -2, 256]
    );
    let wide = Tensor::arange(0, 2 * 300, 1)
        .reshape([2, 300])
        .cast(DType::F32);
    let classes = Tensor::new(&[156u8, 3], [2]);
    assert_eq!(
        f32s(&wide.nll_loss(&classes, monoglot_tensor::Reduction::None)),
        [-156.0, -303.0]
    );
    assert_eq!(
        f32s(&wide.nll_loss(&classes, monoglot_tensor::Reduction::Mean)),
        [-229.5]
    );
    // Bools are gathered, scattered and sorted like others.
    let b = Tensor::new(&[true, false, false, true], [4]);
    let bools = |t: &Tensor| t.to_vec::<bool>().expect("bools");
    let j = Tensor::new(&[3i32, 1, 0, 9], [4]);
    assert_eq!(bools(&b.gather(0, &j)), [true, false, true, false]);
    assert_eq!(
        bools(&b.scatter(
            0,
            &Tensor::new(&[1i32, 1], [2]),
            &Tensor::new(&[false, true], [2])
        )),
        [true, true, false, true]
    );
    assert_eq!(bools(&b.sort(0, false)), [false, false, true, true]);
    // No index changes nothing.
    let x = Tensor::new(&[1.0f32, 2.0], [2]);
    let none = Tensor::new::<i32>(&[], [0]);
    assert_eq!(f32s(&x.scatter(0, &none, &Tensor::zeros([0]))), [1.0, 2.0]);
    assert_eq!(
        f32s(&x.scatter_add(0, &none, &Tensor::zeros([0]))),
        [1.0, 2.0]
    );
    assert!(f32s(&x.gather(0, &none)).is_empty());
    assert!(f32s(&x.index(&none)).is_empty());
    let t = Tensor::new(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [2, 2, 2]);
    assert_eq!(f32s(&Tensor::einsum("iii->i", &[&t])), [1.0, 8.0]);
    assert_eq!(f32s(&Tensor::einsum("...i->i", &[&t])), [16.0, 20.0]);
}

#[test]
fn scans_of_every_length() {
    on_interpreter();
    for n in [0usize, 1, 2, 5, 14, 15, 16, 17, 100, 300] {
        let v: Vec<i32> = (0..n).map(|i| (i * 37 % 11) as i32 - 5).collect();
        let t = Tensor::new(&v, [n]);
        let mut sum = 0i64;
        let sums: Vec<i64> = v
            .iter()
            .map(|&x| {
                sum += x as i64;
                sum
            })
            .collect();
        assert_eq!(t.cumsum(0).to_vec::<i64>().unwrap(), sums, "{n}");
        let mut top = i32::MIN;
        let tops: Vec<i32> = v
            .iter()
            .map(|&x| {
                top = top.max(x);
                top
            })
            .collect();
        assert_eq!(ints(&t.cummax(0)), tops, "{n}");
        let mut product = 1i64;
        let products: Vec<i64> = v
            .iter()
            .map(|&x| {
                product = product.wrapping_mul(x as i64);
                product
            })
            .collect();
        assert_eq!(t.cumprod(0).to_vec::<i64>().unwrap(), products, "{n}");
    }
}

#[test]
fn sorting_is_stable_and_puts_nan_last() {
    on_interpreter();
    for n in [1usize, 2, 7, 64, 65, 100] {
        let mut v: Vec<f32> = (0..n).map(|i| (i * 7919 % 13) as f32).collect();
        v[n / 2] = f32::NAN;
        v[n / 3] = f32::NEG_INFINITY;
        let t = Tensor::new(&v, [n]);
        for descending in [false, true] {
            let mut order: Vec<usize> = (0..n).collect();
            order.sort_by(|&a, &b| {
                let (x, y) = if descending {
                    (v[b], v[a])
                } else {
                    (v[a], v[b])
                };
                x.partial_cmp(&y)
                    .unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()))
            });
            let (got, from) = t.sorted(0, descending);
            let want: Vec<i32> = order.iter().map(|&i| i as i32).collect();
            assert_eq!(ints(&from), want, "{n} {descending}");
            let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(
                bits(&f32s(&got)),
                bits(&order.iter().map(|&i| v[i]).collect::<Vec<_>>()),
                "{n}"
            );
        }
    }
    let (top, at) = Tensor::new(&[3i32, 9, 1, 9, 4], [5]).topk(3, 0, true);
    assert_eq!((ints(&top), ints(&at)), (vec![9, 9, 4], vec![1, 3, 4]));
}

#[test]
fn random_numbers_are_as_documented() {
    on_interpreter();
    use monoglot_uop::fold::threefry;
    Tensor::manual_seed(7);
    let a = Tensor::rand([3]);
    let b = Tensor::randint([2, 2], -3, 5);
    for (i, u) in f32s(&a).iter().enumerate() {
        assert_eq!(*u, (threefry(i as u64, 7) >> 40) as f32 * 2f32.powi(-24));
    }
    for (i, v) in ints(&b).iter().enumerate() {
        assert_eq!(
            *v as i64,
            -3 + (((threefry(3 + i as u64, 7) >> 32) * 8) >> 32) as i64
        );
    }
    Tensor::manual_seed(7);
    assert_eq!(f32s(&Tensor::rand([3])), f32s(&a));
    Tensor::manual_seed(7);
    let range = 5 << 40;
    let wide = Tensor::randint([3], -1 << 42, (-1 << 42) + range);
    for (i, v) in wide.to_vec::<i64>().unwrap().iter().enumerate() {
        assert_eq!(
            *v,
            (threefry(i as u64, 7) % range as u64) as i64 - (1 << 42)
        );
    }
    Tensor::manual_seed(7);
    let _ = Tensor::rand([3]);
    let n = Tensor::randn([4000]);
    let mean = n.mean(.., false).item::<f32>().unwrap();
    let std = n.std(.., false, 1).item::<f32>().unwrap();
    assert!(
        mean.abs() < 0.05 && (std - 1.0).abs() < 0.05,
        "{mean} {std}"
    );
    let mut p = ints(&Tensor::permutation(200));
    assert!(p.windows(2).any(|w| w[1] < w[0]));
    p.sort_unstable();
    assert_eq!(p, (0..200).collect::<Vec<_>>());
    let d = f32s(&Tensor::ones([1000]).dropout(0.25));
    let zeros = d.iter().filter(|v| **v == 0.0).count();
    assert!(
        (200..300).contains(&zeros) && d.iter().all(|v| *v == 0.0 || (*v - 4.0 / 3.0).abs() < 1e-6)
    );
}

#[test]
fn places_beyond_31_bits_are_counted() {
    on_interpreter();
    let one = Tensor::ones([1]);
    let joined = Tensor::cat(&[&one.expand([2_500_000_000i64]), &Tensor::zeros([100])], 0);
    assert_eq!(
        f32s(&joined.index((2_499_999_999i64..2_500_000_001i64,))),
        [1.0, 0.0]
    );
    let steps =
        Tensor::linspace(0.0, 1.0, 3_000_000_001).index((Index::step(None, None, 750_000_000),));
    for (k, v) in f32s(&steps).into_iter().enumerate() {
        assert!((v - 0.25 * k as f32).abs() < 1e-6, "{k}: {v}");
    }
    assert_eq!(
        f32s(&Tensor::arange_of(0.0, 3e9, 1.0, DType::F32).index((-1,))),
        [3e9]
    );
    let low = Tensor::ones([1, 1]).expand([3_000_000_000i64, 2]).tril(0);
    assert_eq!(f32s(&low.index((2_999_999_999i64,))), [1.0, 1.0]);
    let hot = Tensor::new(&[7], [1]).one_hot(4_294_967_296);
    assert_eq!(ints(&hot.index((0, 4_294_967_291i64))), [0]);
    assert_eq!(ints(&hot.index((0, 7))), [1]);
    let far = one
        .expand([4_294_967_296i64])
        .gather(0, &Tensor::new(&[-5], [1]));
    assert_eq!(f32s(&far), [0.0]);
    let long = |a, b, s| Tensor::arange(a, b, s).to_vec::<i64>().unwrap();
    assert_eq!(
        long(3_000_000_000, 3_000_000_003, 1),
        [3_000_000_000, 3_000_000_001, 3_000_000_002]
    );
    assert_eq!(
        long(i64::MAX - 3, i64::MAX, 2),
        [i64::MAX - 3, i64::MAX - 1]
    );
    assert_eq!(ints(&Tensor::arange(5, -2, -3)), [5, 2, -1]);
    assert!(ints(&Tensor::arange(5, 5, -3)).is_empty());
}

/// Places that only a remainder, a maximum or a stored value keeps within the table.
#[test]
fn computed_places_are_in_bounds() {
    for device in ["CPU", "INTERP", "INTERP:GPU"] {
        let on = |t: Tensor| t.to(monoglot_tensor::Device::new(device));
        let table = on(Tensor::arange(0, 97, 1));
        for n in [1i64, 3, 33, 40] {
            let values: Vec<i32> = (0..n as i32).map(|i| i * 7919 - 500).collect();
            let ids = on(Tensor::new(&values, [n]));
            let by = |f: &dyn Fn(i32) -> i32| values.iter().map(|&v| f(v)).collect::<Vec<i32>>();
            assert_eq!(
                ints(&table.index_select(0, &(&ids % 97))),
                by(&|v| v.rem_euclid(97))
            );
            assert_eq!(
                ints(&table.index_select(0, &(ids.abs() % 40))),
                by(&|v| v.abs() % 40)
            );
            let most = by(&|v| v.rem_euclid(16)).into_iter().max();
            assert_eq!(
                ints(&table.index_select(0, &(&ids % 16).max(0, true))),
                [most.unwrap()]
            );
            // Several tables and a result of its own: the places are stored.
            let places = &ids % 97;
            let tables = (0..6).map(|k| (&table + k).index_select(0, &places));
            let sums = tables.reduce(|a, b| a + b).unwrap();
            Tensor::realize_all(&[&sums, &places]).unwrap();
            assert_eq!(ints(&sums), by(&|v| 6 * v.rem_euclid(97) + 15));
        }
    }
}

/// The last of several values at a place is kept, and what no index reaches, also beside the indices' corner.
#[test]
fn scattered_corners_leave_the_rest() {
    on_interpreter();
    let x = Tensor::arange(0, 12, 1).cast(DType::F32).reshape([3, 4]);
    let index = Tensor::new(&[1i32, 1, 0, 3, 3, 3], [2, 3]);
    let src = Tensor::new(&[-1.0f32, -2.0, -3.0, -4.0, -5.0, -6.0], [2, 3]);
    let want = [
        -3.0, -2.0, 2.0, 3.0, 4.0, 5.0, 6.0, -6.0, 8.0, 9.0, 10.0, 11.0,
    ];
    assert_eq!(f32s(&x.scatter(1, &index, &src)), want);
    let index = Tensor::new(&[2i32, 0, 2, 2, 1, 2], [2, 3]);
    let want = [
        0.0, -2.0, 2.0, 3.0, 4.0, -5.0, 6.0, 7.0, -4.0, 9.0, -6.0, 11.0,
    ];
    assert_eq!(f32s(&x.scatter(0, &index, &src)), want);
}
