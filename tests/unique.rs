//! The different elements of a tensor. Flows in: the façade; flows out: comparisons with a loop.

use monoglot::Config;
use monoglot::prelude::*;

const DEVICES: &[&str] = if cfg!(target_arch = "x86_64") {
    &["CPU", "CPU:X86:x86-64-v2", "INTERP"]
} else {
    &["CPU", "INTERP"]
};

/// What is there, how often and where, of several dtypes and lengths, beside a loop; NaN and zeros are one each.
#[test]
fn different_elements_are_counted() {
    fn check<T: monoglot::Element + PartialOrd + Copy + std::fmt::Debug>(x: &[T], device: &str) {
        let before = |a: &T, b: &T| match a.partial_cmp(b) {
            Some(order) => order,
            None => (a != a).cmp(&(b != b)),
        };
        let mut want: Vec<T> = x.to_vec();
        want.sort_by(before);
        want.dedup_by(|a, b| before(a, b).is_eq());
        let which = |v: &T| want.iter().position(|w| before(v, w).is_eq());
        let inverse: Vec<i32> = x
            .iter()
            .map(|v| which(v).expect("it is there") as i32)
            .collect();
        let times = |k: i32| inverse.iter().filter(|&&i| i == k).count() as i32;
        let counts: Vec<i32> = (0..x.len() as i32).map(times).collect();

        let tensor = Tensor::new(x, [x.len() as i64]);
        let all = tensor.unique();
        let count = all.count.item::<i32>().expect("it runs");
        assert_eq!(count, want.len() as i32, "{device}");
        let values = all.values.to_vec::<T>().expect("it runs");
        let again = vec![want[want.len() - 1]; x.len() - want.len()];
        let ordered = [&want[..], &again].concat();
        let same = |(a, b): (&T, &T)| before(a, b).is_eq();
        assert!(
            values.iter().zip(&ordered).all(same),
            "{device}: {values:?} for {ordered:?}"
        );
        assert_eq!(
            all.counts.to_vec::<i32>().expect("it runs"),
            counts,
            "{device}"
        );
        let folded = Tensor::new(x, [1, x.len() as i64, 1]).unique().inverse;
        assert_eq!(folded.shape().expect("it has one"), [1, x.len(), 1]);
        assert_eq!(
            folded.to_vec::<i32>().expect("it runs"),
            inverse,
            "{device}"
        );
    }
    for device in DEVICES {
        Config {
            device: Some((*device).into()),
            ..Config::default()
        }
        .set();
        for n in [1i64, 2, 5, 64, 65, 300] {
            let ints: Vec<i32> = (0..n as i32).map(|i| i * i * 31 % 47 - 20).collect();
            let floats: Vec<f32> = ints
                .iter()
                .map(|&i| match i.rem_euclid(11) {
                    0 => f32::NAN,
                    1 => 0.0 * i as f32,
                    _ => i as f32 / 3.0,
                })
                .collect();
            let bytes: Vec<u8> = ints.iter().map(|&i| (i + 20) as u8 % 7).collect();
            let wide: Vec<i64> = ints
                .iter()
                .map(|&i| i as i64 % 3 * (i64::MAX / 3))
                .collect();
            check(&ints, device);
            check(&floats, device);
            check(&bytes, device);
            check(&wide, device);
            check(&vec![2.5f64; n as usize], device);
        }
        let one = Tensor::new(&[4.0f32], [0i64; 0]).unique();
        assert_eq!(one.values.to_vec::<f32>().expect("it runs"), [4.0]);
        assert_eq!(one.inverse.shape().expect("it has one"), [0usize; 0]);
        let captured = jit(|x: &Tensor| x.unique()).expect("it is captured");
        let all = captured.call((&Tensor::new(&[7i32, 2, 7], [3]),));
        let all = all.expect("it runs");
        assert_eq!(all.values.to_vec::<i32>().expect("it runs"), [2, 7, 7]);
        assert_eq!(all.inverse.to_vec::<i32>().expect("it runs"), [1, 0, 1]);
        let none = Tensor::zeros([0]).unique();
        assert_eq!(none.count.item::<i32>().expect("it runs"), 0);
        assert!(none.values.to_vec::<f32>().expect("it runs").is_empty());
    }
}
