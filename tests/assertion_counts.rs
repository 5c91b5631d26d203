//! What checking ids costs: kernels launched and compiled. Flows in: the façade; flows out: the engine's
//! counters, which are the process's: nothing else is tested in this one, and its parts run one after the
//! other.

use monoglot::prelude::*;
use monoglot::{Config, Counters, counters};

/// What is done from here on, as differences.
fn during(f: impl FnOnce() -> Result<()>) -> Result<Counters> {
    let before = counters();
    f()?;
    let after = counters();
    Ok(Counters {
        schedules: after.schedules - before.schedules,
        exact: after.exact - before.exact,
        generalised: after.generalised - before.generalised,
        compiled: after.compiled - before.compiled,
        launches: after.launches - before.launches,
        copies: after.copies - before.copies,
        ..Counters::default()
    })
}

fn a_lookup_launches_one_kernel_more() -> Result<()> {
    let table = Tensor::new(&[0.5f32; 64], [16, 4]);
    let ids = Tensor::new(&[1i32, 2, 3], [3]);
    let plain = during(|| table.index_select(0, &ids).realize())?;
    let checked = during(|| table.embedding(&ids).realize())?;
    assert_eq!(checked.launches, plain.launches + 1);
    // What the compiler can prove, it does not check.
    let known = during(|| table.embedding(&Tensor::arange(0, 16, 1)).realize())?;
    assert_eq!(known.launches, 1);
    let known = during(|| table.embedding(&(&ids % 16)).realize())?;
    assert_eq!(known.launches, 1);
    let bytes = Tensor::new(&[1u8, 255, 3], [3]);
    let known = during(|| Tensor::ones([256, 2]).embedding(&bytes).realize())?;
    assert_eq!(known.launches, 1);
    // Several assertions are one more kernel together.
    let others = Tensor::new(&[4i32, 5, 6], [3]);
    let both = || table.embedding(&ids) + table.embedding(&others);
    let plain = || table.index_select(0, &ids) + table.index_select(0, &others);
    let plain = during(|| plain().realize())?;
    let checked = during(|| both().realize())?;
    assert_eq!(checked.launches, plain.launches + 1);
    Ok(())
}

fn batches_compile_nothing_new() -> Result<()> {
    let words = Embedding {
        weight: Tensor::new(&[0.25f32; 80], [20, 4]),
    };
    let head = Linear {
        weight: Tensor::new(&[0.5f32; 12], [3, 4]),
        bias: None,
    };
    struct Net {
        words: Embedding,
        head: Linear,
    }
    monoglot::nn::module!(Net { words, head });
    let net = Net { words, head };
    let adam = Adam::new(&net, 0.01);
    let step = |k: i64, id: i64, class: i64| {
        let ids: Vec<i64> = (0..8).map(|i| (i * k + 3) % 20).chain([id]).collect();
        let classes: Vec<i64> = (0..8).map(|i| (i + k) % 3).chain([class]).collect();
        let x = net.words.forward(&Tensor::new(&ids, [9]));
        let y = Tensor::new(&classes, [9]);
        adam.step(&net.head.forward(&x).cross_entropy(&y, Reduction::Mean, 0.0))
    };
    step(1, 0, 0)?;
    let mut launches = Vec::new();
    for k in 2..30 {
        let right = during(|| step(k, 19, -100))?;
        assert_eq!((right.schedules, right.compiled), (0, 0), "{k}: {right:?}");
        launches.push(right.launches);
        // A wrong batch is of the same structure, and stops before it stores.
        let (id, class) = if k % 2 == 0 { (20, 0) } else { (-1, 3) };
        let wrong = during(|| {
            assert!(step(k, id, class).is_err());
            Ok(())
        })?;
        assert_eq!((wrong.schedules, wrong.compiled), (0, 0), "{k}: {wrong:?}");
        assert!(wrong.launches < right.launches, "{wrong:?} {right:?}");
    }
    launches.dedup();
    assert_eq!(launches.len(), 1, "{launches:?}");
    Ok(())
}

#[test]
fn checks_are_cheap() -> Result<()> {
    // Whatever the environment asks for.
    Config {
        check: false,
        ..(*Config::current()).clone()
    }
    .set();
    a_lookup_launches_one_kernel_more()?;
    batches_compile_nothing_new()
}
