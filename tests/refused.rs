//! Programs that are right, and of which compiling once did not end or ended in an error. Flows in: the façade; flows out:
//! their values, on the machine's device, with shorter vectors and by the interpreter.

use monoglot::prelude::*;
use monoglot::{Config, Conv, Interpolation, Size};
use std::sync::Mutex;

/// The default device is the process's: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

#[track_caller]
fn on_devices(program: impl Fn() -> Result<()>) -> Result<()> {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let mut names = vec!["CPU", "INTERP"];
    #[cfg(target_arch = "x86_64")]
    {
        names.push("CPU:X86:x86-64-v2");
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            names.push("CPU:X86:x86-64-v3");
        }
    }
    for name in names {
        Config {
            device: Some(name.into()),
            ..Config::default()
        }
        .set();
        program()?;
    }
    Ok(())
}

fn ramp(shape: &[i64]) -> Tensor {
    let n: i64 = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| i as f32).collect();
    Tensor::new(&values, shape)
}

/// What is read of another dtype, over places that follow one another along two axes, is staged once.
#[test]
fn sorts_of_narrow_floats_have_gradients() -> Result<()> {
    on_devices(|| {
        for dtype in [DType::BF16, DType::F16, DType::F32] {
            let val = |n: usize| {
                let values: Vec<f32> = (0..n).map(|i| ((i * 7) % 11) as f32).collect();
                Tensor::new(&values, [n]).cast(dtype)
            };
            let x = val(54).reshape([6, 9]);
            let seed = val(216).reshape([6, 4, 9]);
            Tensor::realize_all(&[&x, &seed])?;
            let y = x.sort(-1, true).unsqueeze(1).expand([6, 4, 9]);
            let g = y.gradient_with(&seed, &[&x])?.remove(0);
            let row: Vec<f32> = g.index(0).cast(DType::F32).to_vec()?;
            assert_eq!(row, [19.0, 16.0, 23.0, 15.0, 22.0, 18.0, 21.0, 17.0, 24.0]);
        }
        Ok(())
    })
}

#[test]
fn unique_values_are_found_beside_their_places() -> Result<()> {
    on_devices(|| {
        let u = Tensor::new(&[1f32, -0., 0., 2., 1.], [5]).unique();
        Tensor::realize_all(&[&u.count, &u.values, &u.counts, &u.inverse])?;
        assert_eq!(u.count.item::<i32>()?, 3);
        Ok(())
    })
}

/// No place is read outside of the axis, whatever is done to the places.
#[test]
fn resampled_axes_are_turned_padded_and_resampled_again() -> Result<()> {
    on_devices(|| {
        for align_corners in [false, true] {
            let how = Interpolation::Linear { align_corners };
            for [n, m] in [[3, 4], [3, 31], [4, 3], [7, 5], [11, 23], [2, 9]] {
                let y = ramp(&[1, 1, n]).interpolate([m], how);
                let plain = y.to_vec::<f32>()?;
                let turned = y.flip(2).narrow(2, 0, 2).to_vec::<f32>()?;
                let last = plain.len() - 1;
                assert_eq!(turned, [plain[last], plain[last - 1]]);
                let padded = y.pad(&[[1, 1]], PadMode::Constant(0.0)).to_vec::<f32>()?;
                assert_eq!(padded[1..=plain.len()], plain);
                let again = y.interpolate(
                    [1],
                    Interpolation::Linear {
                        align_corners: false,
                    },
                );
                let mean = [(m - 1) / 2, m / 2].map(|k| plain[k as usize]);
                let off = again.item::<f32>()? - (mean[0] + mean[1]) / 2.0;
                assert!(off.abs() < 1e-4, "{n} to {m}: {off}");
            }
        }
        Ok(())
    })
}

/// Two gates of one index are one before either says what it knows.
#[test]
fn a_place_of_what_is_joined_padded_and_rolled() -> Result<()> {
    on_devices(|| {
        let p = ramp(&[2, 3, 2]).pad(&[[2, 2], [3, 1]], PadMode::Constant(1.5));
        let w = Tensor::full([2, 2, 6], 7f32);
        let y = Tensor::cat(&[&w, &p], -2).flatten(0, -1).roll(7, 0);
        let all = y.to_vec::<f32>()?;
        for k in [0i64, 40, 107] {
            let one = y.gather(0, &Tensor::new(&[k], [1])).item::<f32>()?;
            assert_eq!(one, all[k as usize], "{k}");
        }
        Ok(())
    })
}

/// Outputs that lie in the padding alone have no part in the gradient of the input.
#[test]
fn convolutions_that_see_nothing_but_padding_have_gradients() -> Result<()> {
    on_devices(|| {
        for [n, k, stride, padding, dilation] in [[1, 1, 5, 2, 3], [2, 1, 3, 4, 2], [3, 2, 4, 7, 3]]
        {
            let x = ramp(&[1, 1, n]) + 3.0;
            let w = ramp(&[1, 1, k]) + 2.0;
            let how = Conv {
                stride: stride.into(),
                padding: padding.into(),
                dilation: dilation.into(),
                ..Conv::default()
            };
            let y = x.conv(&w, None, &how);
            let gradients = y.square().sum(.., false).gradient(&[&x, &w])?;
            let x = x.to_vec::<f32>()?;
            let w = w.to_vec::<f32>()?;
            let mut of_x = vec![0f32; x.len()];
            let mut of_w = vec![0f32; w.len()];
            let terms = |o: i64| {
                let at = (0..k).map(move |t| (t as usize, o * stride + t * dilation - padding));
                at.filter(|(_, i)| (0..n).contains(i))
                    .map(|(t, i)| (t, i as usize))
            };
            for o in 0..y.shape()?[2] as i64 {
                let y: f32 = terms(o).map(|(t, i)| x[i] * w[t]).sum();
                for (t, i) in terms(o) {
                    of_x[i] += 2.0 * y * w[t];
                    of_w[t] += 2.0 * y * x[i];
                }
            }
            assert_eq!(gradients[0].to_vec::<f32>()?, of_x);
            assert_eq!(gradients[1].to_vec::<f32>()?, of_w);
        }
        Ok(())
    })
}

/// A value is a function of its empty parts, too: their gradients are empty sums, and no errors.
#[test]
fn what_is_joined_with_nothing_has_gradients() -> Result<()> {
    on_devices(|| {
        let x = ramp(&[3]);
        let w = ramp(&[1]) + 4.0;
        let none = x.narrow(0, 0, 0);
        for parts in [vec![&none, &w], vec![&w, &none, &w], vec![&none, &w, &none]] {
            let y = Tensor::cat(&parts, 0);
            let times = parts.iter().filter(|p| std::ptr::eq(**p, &w)).count();
            assert_eq!(y.to_vec::<f32>()?, vec![4.0; times]);
            let g = y.sum(.., false).gradient(&[&x, &w])?;
            assert_eq!(g[0].to_vec::<f32>()?, [0.0; 3]);
            assert_eq!(g[1].to_vec::<f32>()?, [times as f32]);
        }
        Ok(())
    })
}

/// A part of a row that does not vary is written in every turn in which the others are.
#[test]
fn attention_of_one_query_has_gradients() -> Result<()> {
    on_devices(|| {
        let of = |shape: &[i64]| (ramp(shape).cast(DType::F64) * 0.01).sin();
        let x = of(&[97, 1, 48]);
        let first = of(&[2, 48]);
        let second = of(&[2, 2]);
        let keys = of(&[97, 31, 2]);
        let values = of(&[97, 31, 17]);
        let mask = Tensor::ones([1, 31]).cast(DType::Bool);
        Tensor::realize_all(&[&x, &first, &second, &keys, &values, &mask])?;
        let query = x.linear(&first, None).linear(&second, None);
        let y = query.attention(&keys, &values, Some(&mask), true);
        let seed = of(&[97, 1, 17]);
        let g = (y * seed).sum(.., false).gradient(&[&x])?.remove(0);
        // Of causal keys the only query sees the first alone, whose weight is 1: nothing flows back but what is rounded.
        assert!(g.to_vec::<f64>()?.iter().all(|x| x.abs() < 1e-15));
        Ok(())
    })
}

/// A remainder of what has no sign, of which nothing is taken that would wrap.
#[test]
fn places_without_a_sign_are_known_to_be_in_their_axis() -> Result<()> {
    on_devices(|| {
        let x = ramp(&[5]);
        for dtype in [DType::I64, DType::U32, DType::U64] {
            let places = Tensor::arange(5, 9, 1).cast(dtype) % 5;
            assert_eq!(x.index(&places).to_vec::<f32>()?, [0.0, 1.0, 2.0, 3.0]);
            let turned = (Tensor::arange(0, 4, 1) * -1 + 9).cast(dtype) % 5;
            assert_eq!(x.index(&turned).to_vec::<f32>()?, [4.0, 3.0, 2.0, 1.0]);
        }
        Ok(())
    })
}

/// A coefficient whose opposite is past the dtype does not change sides.
#[test]
fn quotients_by_the_least_number_are_computed() -> Result<()> {
    on_devices(|| {
        let numbers: Vec<i64> = (0..64).collect();
        for n in [4, 8, 16, 64] {
            let x = Tensor::new(&numbers[..n], [n]);
            for x in [&x % 64, x.bitwise_and(7)] {
                assert_eq!(x.trunc_div(i64::MIN).to_vec::<i64>()?, vec![0; n]);
                let down = x.floor_div(i64::MIN).to_vec::<i64>()?;
                assert_eq!(down[..3], [0, -1, -1]);
            }
        }
        Ok(())
    })
}

/// What is a constant when it has been simplified differs from call to call, so that it is a variable of one program.
#[test]
fn scalars_that_are_constants_are_realized() -> Result<()> {
    on_devices(|| {
        let t = Tensor::full([0i64; 0], 0.75f32);
        for k in 0..4 {
            let x = k as f32 + 0.25;
            let value = t.lt(1).select(x, -1.0);
            assert_eq!(value.item::<f32>()?, x);
            let value = t.lt(1).select(x, 9.0);
            let sum = ramp(&[3]) + &value;
            Tensor::realize_all(&[&sum, &value])?;
            assert_eq!(sum.to_vec::<f32>()?, [x, x + 1.0, x + 2.0]);
            assert_eq!(value.item::<f32>()?, x);
        }
        Ok(())
    })
}

/// What several lengths make of a place the rules cannot bound.
#[test]
fn places_among_lengths_that_vary() -> Result<()> {
    on_devices(|| {
        let fixed = ramp(&[7, 61, 5]);
        let varies = fixed.clone().dynamic(0, 2..=20).dynamic(1, 1..=100);
        let of = |x: &Tensor| -> Result<Vec<Vec<f32>>> {
            let picked = x.index_select(2, &Tensor::arange(0, 5, 1)).flatten(0, -1) * 2.0;
            let wide = x.interpolate([8], Interpolation::Nearest);
            let all = [picked, wide.cumsum(0), wide.repeat([3, 1, 1])];
            all.iter().map(Tensor::to_vec).collect()
        };
        assert!(of(&varies)? == of(&fixed)?);
        Ok(())
    })
}

/// A position may be bound to one past the end, where nothing is read or written.
#[test]
fn a_slice_at_a_variable_is_read_and_written() -> Result<()> {
    on_devices(|| {
        let cache = ramp(&[7]);
        cache.realize()?;
        let own = cache.clone();
        let step = jit(move |x: Tensor, at: Size| {
            let slice = own.narrow(0, at, 1);
            slice.assign(&slice * 0.5 + x);
            own.clone()
        })?;
        let position = Variable::new(0..=7)?;
        let mut want: Vec<f32> = (0..7).map(|i| i as f32).collect();
        for at in [0, 3, 6] {
            want[at as usize] = want[at as usize] * 0.5 + 1.0;
            let got = step.call((Tensor::ones([1]), position.bind(at)?))?;
            assert_eq!(got.to_vec::<f32>()?, want);
        }
        let beyond = step.call((Tensor::ones([1]), position.bind(7)?));
        let beyond = beyond.and_then(|t| t.to_vec::<f32>());
        let error = beyond.expect_err("there is no such element");
        assert!(error.to_string().contains("1 elements from 7"), "{error}");
        assert_eq!(cache.to_vec::<f32>()?, want);
        Ok(())
    })
}
