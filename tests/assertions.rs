//! Ids and classes out of range: an error of the realize that would have computed with them, which names
//! the element, what is right and the line, and after which everything is as it was. Flows in: the façade.

use monoglot::prelude::*;
use monoglot::{Config, Element, nn};

/// Devices of each kind that runs.
const DEVICES: [&str; 3] = ["CPU", "INTERP", "INTERP:GPU"];

fn on(device: &str, t: &Tensor) -> Tensor {
    t.to(Device::new(device))
}

/// The error of what is out of range: its element, position and rule.
#[track_caller]
fn out_of_range(e: &Error) -> (Option<i128>, Vec<i64>, String) {
    match e.kind() {
        ErrorKind::OutOfRange {
            value,
            position,
            rule,
            standing,
        } => {
            assert!(standing.is_empty(), "{e}");
            (*value, position.clone(), rule.clone())
        }
        _ => panic!("{e}"),
    }
}

/// That a value is refused for this element, at this line of this file.
#[track_caller]
fn refused<T: Element>(t: &Tensor, value: i128, position: &[i64], rule: &str, line: u32) {
    // As often as it is asked for.
    for _ in 0..2 {
        let e = match t.to_vec::<T>() {
            Err(e) => e,
            Ok(_) => panic!("{value}: accepted"),
        };
        let (v, p, r) = out_of_range(&e);
        assert_eq!((v, &p[..]), (Some(value), position), "{e}");
        assert!(r.starts_with(rule), "{e}");
        let at = e.location().expect("a line");
        assert!(at.file().ends_with("assertions.rs"), "{e}");
        assert_eq!(at.line(), line, "{e}");
    }
}

fn logits(device: &str) -> Tensor {
    let data: Vec<f32> = (0..12).map(|i| (i * 5 % 7) as f32 * 0.25).collect();
    on(device, &Tensor::new(&data, [3, 4]))
}

#[test]
fn classes_out_of_range_are_errors_of_losses() {
    for device in DEVICES {
        let x = logits(device);
        let of = |classes: &Tensor| x.cross_entropy(classes, Reduction::Mean, 0.0);
        let line = line!() - 1;
        let classes = |v: &[i64]| on(device, &Tensor::new(v, [3]));
        let rule = "cross_entropy: classes are 0..4, or -100";
        refused::<f32>(&of(&classes(&[0, 9, 7])), 9, &[1], rule, line);
        refused::<f32>(&of(&classes(&[0, 3, 4])), 4, &[2], rule, line);
        refused::<f32>(&of(&classes(&[-1, 0, 1])), -1, &[0], rule, line);
        let far = classes(&[0, i64::MIN, i64::MAX]);
        refused::<f32>(&of(&far), i64::MIN.into(), &[1], rule, line);
        let narrow = on(device, &Tensor::new(&[3i8, -100, -99], [3]));
        refused::<f32>(&of(&narrow), -99, &[2], rule, line);
        let wide = on(device, &Tensor::new(&[0u64, u64::MAX, 1 << 63], [3]));
        refused::<f32>(&of(&wide), u64::MAX.into(), &[1], rule, line);
        let bytes = on(device, &Tensor::new(&[0u8, 3, 255], [3]));
        refused::<f32>(&of(&bytes), 255, &[2], rule, line);
        let right = of(&classes(&[0, -100, 3]));
        assert!(right.item::<f32>().expect("right ones").is_finite());

        let each = x.nll_loss(&classes(&[0, 1, 12]), Reduction::None);
        let rule = "nll_loss: classes are 0..4";
        refused::<f32>(&each, 12, &[2], rule, line!() - 2);
        let planes = on(device, &Tensor::new(&[0i32, 1, 2, 5], [2, 2]));
        let x = on(device, &Tensor::ones([2, 3, 2]));
        let sum = x.nll_loss(&planes, Reduction::Sum);
        refused::<f32>(&sum, 5, &[1, 1], "nll_loss: classes are 0..3", line!() - 1);
    }
}

#[test]
fn ids_out_of_range_are_errors_of_embeddings_and_one_hots() {
    for device in DEVICES {
        let table = on(device, &Tensor::new(&[1f32, 2., 3., 4., 5., 6.], [3, 2]));
        let ids = |v: &[i32]| on(device, &Tensor::new(v, [2, 2]));
        let rows = table.embedding(&ids(&[0, 2, 7, 1]));
        let rule = "embedding: ids are 0..3";
        refused::<f32>(&rows, 7, &[1, 0], rule, line!() - 2);
        let rows = table.embedding(&ids(&[0, 2, 1, -1]));
        refused::<f32>(&rows, -1, &[1, 1], rule, line!() - 1);
        let layer = Embedding { weight: table };
        let rows = layer.forward(&ids(&[3, 2, 1, 0]));
        refused::<f32>(&rows, 3, &[0, 0], rule, line!() - 1);
        // What is cut off was asked for too.
        let part = rows.narrow(0, 1, 1);
        assert!(part.to_vec::<f32>().is_err());
        let right = layer.forward(&ids(&[0, 2, 1, 0]));
        let want = [1f32, 2., 5., 6., 3., 4., 1., 2.];
        assert_eq!(right.to_vec::<f32>().expect("right ones"), want);

        let hot = on(device, &Tensor::new(&[0u64, 1 << 63], [2])).one_hot(3);
        let rule = "one_hot: classes are 0..3";
        refused::<i32>(&hot, 1 << 63, &[1], rule, line!() - 2);
        let one = on(device, &Tensor::new(&[-2i64], [1]).reshape(())).one_hot(3);
        refused::<i32>(&one, -2, &[], rule, line!() - 1);
    }
}

#[test]
fn what_is_known_is_decided_when_it_is_written() {
    let e = Tensor::full([2, 2], 9i64).one_hot(4).check();
    let e = e.expect_err("no class");
    let want = (Some(9), vec![0, 0], "one_hot: classes are 0..4".to_string());
    assert_eq!(out_of_range(&e), want);
    let text = "9 at position [0, 0] in one_hot: classes are 0..4";
    assert!(e.to_string().starts_with(text), "{e}");
    let x = Tensor::ones([1, 3]);
    let ignored = Tensor::full([1], -100i64);
    let loss = x.cross_entropy(&ignored, Reduction::Sum, 0.0);
    assert_eq!(loss.item::<f32>(), Ok(0.0));
    let empty = Tensor::zeros([0, 3]);
    let none = Tensor::new::<i64>(&[], [0]);
    assert_eq!(empty.embedding(&none).to_vec::<f32>(), Ok(vec![]));
    let some = Tensor::new(&[0i64], [1]);
    assert!(empty.embedding(&some).check().is_err());
}

#[test]
fn ids_that_are_computed_are_checked() {
    let table = Tensor::new(&[0i32, 1, 2, 5], [4]);
    let at = Tensor::new(&[1i64, 3], [2]);
    let ids = table.embedding(&at) + 1;
    // The ids of the second are rows of the first.
    let rows = Tensor::ones([6, 2]).embedding(&ids);
    let line = line!() - 1;
    refused::<f32>(&rows, 6, &[1], "embedding: ids are 0..6", line);
    let far = Tensor::new(&[1i64, 4], [2]);
    let rows = Tensor::ones([9, 2]).embedding(&table.embedding(&far));
    refused::<f32>(&rows, 4, &[1], "embedding: ids are 0..4", line!() - 1);
    // Gradients need the ids too.
    let w = Tensor::ones([3, 2]).parameter();
    let at = Tensor::new(&[0i64, 3], [2]);
    let sum = w.embedding(&at).square().sum(.., false);
    let g = sum.gradient(&[&w]).expect("a gradient");
    refused::<f32>(&g[0], 3, &[1], "embedding: ids are 0..3", line!() - 2);
}

#[test]
fn many_ids_are_checked_to_the_last() {
    let n = 300_000;
    let mut data: Vec<i32> = (0..n).map(|i| i % 11).collect();
    let table = Tensor::arange(0, 11, 1);
    let good = table.embedding(&Tensor::new(&data, [n]));
    assert_eq!(
        good.sum(.., false).item::<i64>(),
        Ok(data.iter().map(|&v| v as i64).sum())
    );
    data[n as usize - 1] = 11;
    let bad = table.embedding(&Tensor::new(&data, [n])).max(.., false);
    let line = line!() - 1;
    let rule = "embedding: ids are 0..11";
    refused::<i32>(&bad, 11, &[n as i64 - 1], rule, line);
    // Of several assertions the first that is broken is told.
    let twelve = |k: i32| Tensor::new(&[0, 1, 12 - k], [3]);
    let all: Vec<Tensor> = (0..12).map(|k| table.embedding(&twelve(k))).collect();
    let sum = all[2..].iter().fold(all[1].clone(), |a, b| a + b);
    refused::<i32>(&sum, 11, &[2], rule, line!() - 2);
    let fine = all[3..].iter().fold(all[2].clone(), |a, b| a + b);
    assert!(fine.to_vec::<i32>().is_ok());
}

#[test]
fn lengths_that_vary_are_checked_as_far_as_they_are() -> Result<()> {
    let len = Variable::new(1..=8)?;
    let ids = Tensor::new(&[0i64, 1, 2, 3, 4, 9, 0, 0], [8]);
    let table = Tensor::new(&[1f32, 2., 3., 4., 5.], [5, 1]);
    for n in 1..=8 {
        let n = len.bind(n)?;
        let rows = table.embedding(&ids.narrow(0, 0, &n)).sum(.., false);
        match n.value() {
            ..=5 => assert!(rows.item::<f32>()? > 0.0),
            _ => refused::<f32>(&rows, 9, &[5], "embedding", line!() - 3),
        }
    }
    Ok(())
}

#[test]
fn what_the_settings_ask_for_is_checked_too() {
    let x = Tensor::new(&[1i32, 2, 3], [3]);
    let at = Tensor::new(&[0i64, 3, -4], [3]);
    let ops = || {
        [
            ("index", x.index(&at)),
            ("index_select", x.index_select(0, &at)),
            ("gather", x.gather(0, &at)),
            ("scatter", x.scatter(0, &at, &x)),
            ("scatter_add", x.scatter_add(-1, &at, &x)),
        ]
    };
    let config = Config::current();
    let set = |check: bool| {
        Config {
            check,
            ..(*config).clone()
        }
        .set();
    };
    set(false);
    let unchecked = ops();
    set(true);
    let checked = ops();
    let last = x.index(&Tensor::new(&[-1i64, -3, 2], [3]));
    set(config.check);
    for (name, t) in unchecked {
        assert!(t.to_vec::<i32>().is_ok(), "{name}");
    }
    assert_eq!(last.to_vec::<i32>(), Ok(vec![3, 1, 3]));
    for (name, t) in checked {
        let e = t.to_vec::<i32>().expect_err(name);
        let (value, position, rule) = out_of_range(&e);
        assert_eq!((value, position), (Some(3), vec![1]), "{e}");
        assert!(rule.starts_with(&format!("{name}: indices are ")), "{e}");
    }
}

/// A network with all that a step changes: parameters, moments, a count of steps, running statistics.
struct Net {
    words: Embedding,
    norm: BatchNorm,
    head: Linear,
}
nn::module!(Net { words, norm, head });

/// Numbers between −1 and 1 that differ.
fn values(shape: &[usize]) -> Tensor {
    let n = shape.iter().product::<usize>();
    let data: Vec<f32> = (0..n).map(|i| (i * 37 % 19) as f32 / 19.0 - 0.5).collect();
    Tensor::new(&data, shape)
}

impl Net {
    fn new() -> Net {
        Net {
            words: Embedding {
                weight: values(&[6, 4]),
            },
            norm: BatchNorm::new(4),
            head: Linear {
                weight: values(&[3, 4]),
                bias: Some(values(&[3])),
            },
        }
    }

    fn loss(&self, ids: &[i64], classes: &[i64]) -> Tensor {
        let ids = Tensor::new(ids, [ids.len()]);
        let classes = Tensor::new(classes, [classes.len()]);
        let x = self.norm.forward(&self.words.forward(&ids)).relu();
        let scores = self.head.forward(&x);
        scores.cross_entropy(&classes, Reduction::Mean, 0.0)
    }

    fn state(&self) -> Result<Vec<Vec<f32>>> {
        let all = self.parameters().into_iter().chain(self.buffers());
        all.map(|t| t.to_vec()).collect()
    }
}

/// Two right batches of ids and classes.
const RIGHT: [([i64; 4], [i64; 4]); 2] = [
    ([0, 5, 2, 2], [0, 1, 2, 1]),
    ([3, 1, 0, 4], [2, -100, 0, 0]),
];
/// Wrong ones: an id, a class, both.
const WRONG: [([i64; 4], [i64; 4]); 3] = [
    ([0, 6, 2, 2], [0, 1, 2, 1]),
    ([3, 1, 0, 4], [2, 3, 0, 0]),
    ([-1, 1, 0, 4], [2, 1, 0, -5]),
];

/// The losses of six right batches and the network after them, with wrong ones between where asked for.
fn train(
    optimizer: impl Fn(&Net) -> Box<dyn Optimizer>,
    with_wrong: bool,
) -> Result<(Vec<f32>, Vec<Vec<f32>>)> {
    let net = Net::new();
    let optimizer = optimizer(&net);
    let mut losses = Vec::new();
    for step in 0..6 {
        if with_wrong {
            let before = net.state()?;
            let (ids, classes) = WRONG[step % 3];
            let e = optimizer.step(&net.loss(&ids, &classes));
            out_of_range(&e.expect_err("a wrong batch"));
            assert_eq!(net.state()?, before, "nothing changed");
        }
        let (ids, classes) = RIGHT[step % 2];
        let loss = net.loss(&ids, &classes);
        optimizer.step(&loss)?;
        losses.push(loss.item()?);
    }
    Ok((losses, net.state()?))
}

#[test]
fn a_step_that_fails_changes_nothing() -> Result<()> {
    type Make = fn(&Net) -> Box<dyn Optimizer>;
    let optimizers: [Make; 3] = [
        |net| Box::new(Sgd::new(net, 0.1).momentum(0.9)),
        |net| Box::new(Adam::new(net, 0.05)),
        |net| Box::new(AdamW::new(net, 0.05, 0.01)),
    ];
    for optimizer in optimizers {
        assert_eq!(train(optimizer, true)?, train(optimizer, false)?);
    }
    Ok(())
}

#[test]
fn a_step_on_an_interpreter_changes_nothing_either() -> Result<()> {
    for device in &DEVICES[1..] {
        let w = on(device, &values(&[4, 2])).parameter();
        w.realize()?;
        let before = w.to_vec::<f32>()?;
        let step = |ids: &[i32]| {
            let ids = on(device, &Tensor::new(ids, [ids.len()]));
            let loss = w.embedding(&ids).square().sum(.., false);
            let g = loss.gradient(&[&w])?;
            w.assign(&(&w - &g[0] * 0.25));
            Tensor::realize_all(&[&loss, &w])
        };
        out_of_range(&step(&[0, 4]).expect_err("no row 4"));
        assert_eq!(w.to_vec::<f32>()?, before);
        step(&[3, 3])?;
        let after = w.to_vec::<f32>()?;
        assert_eq!(after[..6], before[..6]);
        assert_eq!(after[6..], [0.0, 0.0]);
    }
    Ok(())
}

#[test]
fn ids_computed_before_a_store_stop_it() -> Result<()> {
    // The ids are what the store replaces, and what it is computed from.
    for device in DEVICES {
        let t = on(device, &Tensor::new(&[0i32, 1, 2, 3], [4]));
        t.realize()?;
        let table = on(device, &Tensor::new(&[1i32, 2, 3, 4], [4]));
        // One further each time, until there is no row 4.
        for k in 0..2 {
            t.assign(table.embedding(&t));
            match t.realize() {
                Ok(()) => assert_eq!(k, 0),
                Err(e) => {
                    assert_eq!(out_of_range(&e).0, Some(4));
                    assert_eq!(k, 1);
                }
            }
            assert_eq!(t.to_vec::<i32>()?, [1, 2, 3, 4]);
        }
        // A part of a tensor, by a view.
        let part = t.narrow(0, 2, 2);
        part.assign(table.embedding(&part));
        out_of_range(&part.realize().expect_err("no row 4"));
        assert_eq!(part.to_vec::<i32>()?, [3, 4]);
        assert_eq!(t.to_vec::<i32>()?, [1, 2, 3, 4]);
        part.assign(0);
        assert_eq!(t.to_vec::<i32>()?, [1, 2, 0, 0]);
    }
    Ok(())
}

#[test]
fn ids_computed_after_a_store_are_checked_when_they_are_there() -> Result<()> {
    for device in DEVICES {
        let t = on(device, &Tensor::new(&[0i32, 1, 2], [3]));
        let u = on(device, &Tensor::new(&[5i32, 6, 7], [3]));
        // Sums that are not computed twice: 1, 2, 3 of them are 1.
        let counts = |of: [usize; 3]| {
            let row = |n: usize| (0..5000).map(move |k| i32::from(k < n));
            let data: Vec<i32> = of.into_iter().flat_map(row).collect();
            on(device, &Tensor::new(&data, [3, 5000]))
        };
        Tensor::realize_all(&[&t, &u])?;
        let table = on(device, &Tensor::new(&[10i32, 20, 30, 40], [4]));
        let step = |of: [usize; 3]| {
            t.assign(counts(of).sum(1, false));
            let rows = table.embedding(&t);
            u.assign(&u + rows.max(.., false));
            Tensor::realize_all(&[&t, &rows, &u])?;
            rows.to_vec::<i32>()
        };
        assert_eq!(step([1, 2, 3])?, [20, 30, 40]);
        assert_eq!(u.to_vec::<i32>()?, [45, 46, 47]);
        let e = step([1, 2, 4]).expect_err("no row 4");
        let ErrorKind::OutOfRange {
            standing,
            value,
            position,
            ..
        } = e.kind()
        else {
            panic!("{e}");
        };
        assert_eq!((*value, &position[..]), (Some(4), &[2][..]), "{e}");
        // What it says stands stands, and all else is as it was.
        assert_eq!(standing.len(), 1, "{e}");
        assert!(standing[0].contains("assertions.rs:"), "{e}");
        assert!(e.to_string().contains("; what was assigned at "), "{e}");
        assert_eq!(t.to_vec::<i32>()?, [1, 2, 4]);
        assert_eq!(u.to_vec::<i32>()?, [45, 46, 47]);
        assert_eq!(step([0, 0, 0])?, [10; 3]);
        assert_eq!(t.to_vec::<i32>()?, [0; 3]);
        assert_eq!(u.to_vec::<i32>()?, [55, 56, 57]);
    }
    Ok(())
}

#[test]
fn of_several_roots_none_is_given_out() -> Result<()> {
    let table = Tensor::new(&[1f32, 2.0, 3.0], [3]);
    let good = table.embedding(&Tensor::new(&[0i32, 2], [2]));
    let bad = table.embedding(&Tensor::new(&[0i32, 3], [2]));
    let line = line!() - 1;
    let own = Tensor::new(&[5f32, 6.0], [2]);
    own.realize()?;
    own.assign(&own * 2.0);
    let e = Tensor::realize_all(&[&own, &good, &bad]).expect_err("no row 3");
    assert_eq!(out_of_range(&e).0, Some(3));
    assert_eq!(e.location().map(|l| l.line()), Some(line));
    // All three are as they were.
    assert_eq!(own.to_vec::<f32>()?, [5.0, 6.0]);
    assert_eq!(good.to_vec::<f32>()?, [1.0, 3.0]);
    assert!(bad.to_vec::<f32>().is_err());
    own.assign(&own * 3.0);
    Tensor::realize_all(&[&own, &good])?;
    assert_eq!(own.to_vec::<f32>()?, [15.0, 18.0]);
    // An initial value that was not computed yet is not lost.
    let fresh = Tensor::full([2], 7f32).parameter();
    fresh.assign(&fresh + &bad);
    assert!(fresh.realize().is_err());
    assert_eq!(fresh.to_vec::<f32>()?, [7.0, 7.0]);
    Ok(())
}

#[test]
fn ids_of_one_device_stop_a_store_on_another() -> Result<()> {
    for (here, there) in [("CPU", "INTERP"), ("INTERP:GPU", "CPU")] {
        let w = on(here, &Tensor::new(&[1f32, 2.0], [2]));
        w.realize()?;
        let table = on(there, &Tensor::new(&[10f32, 20.0, 30.0], [3]));
        let add = |ids: &[i64], local: &[i64]| {
            let far = table.embedding(&on(there, &Tensor::new(ids, [2])));
            let near = w.embedding(&on(here, &Tensor::new(local, [2])));
            w.assign(&w + on(here, &far) + near);
            w.realize()
        };
        out_of_range(&add(&[0, 3], &[0, 1]).expect_err("no row 3 there"));
        out_of_range(&add(&[0, 2], &[0, 2]).expect_err("no row 2 here"));
        assert_eq!(w.to_vec::<f32>()?, [1.0, 2.0]);
        add(&[0, 2], &[1, 0])?;
        assert_eq!(w.to_vec::<f32>()?, [13.0, 33.0]);
    }
    Ok(())
}

#[test]
fn statistics_that_a_wrong_batch_left_are_taken_back_by_the_next_step() -> Result<()> {
    let net = Net::new();
    let adam = Adam::new(&net, 0.05);
    let before = net.state()?;
    // The forward pass assigned the running statistics, which nothing has asked for yet.
    let (ids, classes) = WRONG[0];
    let loss = net.loss(&ids, &classes);
    assert!(loss.item::<f32>().is_err());
    let (ids, classes) = RIGHT[0];
    // They are of ids that are not there: it is said once more, and then they are what they were.
    let e = adam
        .step(&net.loss(&ids, &classes))
        .expect_err("statistics");
    assert_eq!(out_of_range(&e).0, Some(6));
    assert_eq!(net.state()?, before);
    adam.step(&net.loss(&ids, &classes))
}

#[test]
fn two_threads_meet_errors_each_of_its_own() {
    let w = Tensor::new(&[0f32; 8], [4, 2]).parameter();
    w.realize().expect("it runs");
    std::thread::scope(|s| {
        for wrong in [7, -7] {
            let w = w.clone();
            s.spawn(move || {
                for step in 0..20 {
                    let id = if step % 2 == 0 { wrong } else { 3 };
                    let ids = Tensor::new(&[0, id], [2]);
                    let sum = w.embedding(&ids).sum(.., false);
                    match sum.item::<f32>() {
                        Ok(_) => assert_eq!(id, 3),
                        Err(e) => assert_eq!(out_of_range(&e).0, Some(id.into())),
                    }
                    // Each adds to its own tensor what both read.
                    let own = Tensor::new(&[1f32, 2.0], [2]);
                    own.realize().expect("it runs");
                    own.assign(&own + &sum);
                    match own.realize() {
                        Ok(()) => assert_eq!(id, 3),
                        Err(e) => {
                            assert_eq!(out_of_range(&e).0, Some(id.into()));
                            assert_eq!(own.to_vec::<f32>(), Ok(vec![1.0, 2.0]));
                        }
                    }
                }
            });
        }
    });
}
