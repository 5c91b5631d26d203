//! Many threads on the same tensors, and on the same cores. Flows in: the façade; flows out: values that some
//! order of the threads gives, and no error.

use monoglot::nn;
use monoglot::prelude::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Work of several threads that begin at once, on the interpreter: what they write down depends on how
/// they meet, and a compiler would be asked about each way.
fn threads(n: usize, work: impl Fn(usize) + Sync) {
    let begin = Barrier::new(n);
    std::thread::scope(|s| {
        for k in 0..n {
            let begin = &begin;
            let work = &work;
            s.spawn(move || {
                begin.wait();
                work(k);
            });
        }
    });
}

fn interpreted() {
    monoglot::compiler::engine::set_default_device(Device::new("INTERP"));
}

fn f32s(t: &Tensor) -> Vec<f32> {
    t.to_vec().expect("f32 values")
}

#[test]
fn two_that_assign_to_one_tensor_leave_one_of_their_values() {
    interpreted();
    let t = Tensor::zeros([64]).parameter();
    threads(2, |k| {
        let t = t.clone();
        for i in 0..300 {
            t.assign((1000 * k + i) as f32);
            t.realize().expect("an assign");
            if i % 7 == 0 {
                let v = f32s(&t);
                assert!(v.iter().all(|x| *x == v[0]), "{v:?}");
            }
        }
    });
    let last = f32s(&t)[0];
    assert!(last == 299.0 || last == 1299.0, "{last}");
    t.assign(&t + 1.0);
    assert_eq!(f32s(&t), [last + 1.0; 64]);
}

#[test]
fn readers_of_a_tensor_that_is_updated_see_whole_values() {
    interpreted();
    let t = Tensor::new(&[0f32; 256], [256]);
    threads(4, |k| {
        let t = t.clone();
        for i in 0..200 {
            match k {
                // Each step reads the value before it, whoever wrote that.
                0 => t.assign(&t + 1.0).realize().expect("a step"),
                1 => t.assign(&t * 1.0).realize().expect("another one"),
                2 => {
                    let v = f32s(&(&t * 2.0));
                    assert!(v.iter().all(|x| *x == v[0]), "{i}: {v:?}");
                }
                _ => {
                    let now = &t * 1.0;
                    let part = now.narrow(0, 8 * (i % 16), 8);
                    let v = f32s(&(part.sum(0, false) + now.index(0)));
                    assert_eq!(v[0] % 9.0, 0.0, "{i}");
                }
            }
        }
    });
    let v = f32s(&t);
    assert!(v.iter().all(|x| *x == v[0]), "{v:?}");
}

/// A step writes elsewhere what somebody reads still; who has got hold of its expression meanwhile finds it there, after
/// the steps that follow.
#[test]
fn readers_of_parameters_find_them_while_an_optimizer_steps() {
    interpreted();
    let net = nn::Linear::new(8, 8);
    let bias = net.bias.as_ref().expect("it has one");
    let optimizer = nn::Adam::new(&net, 1e-3);
    let x = Tensor::ones([4, 8]);
    let done = AtomicUsize::new(0);
    threads(3, |k| {
        while k > 0 && done.load(Ordering::Relaxed) == 0 {
            let twice = &net.weight * 2.0;
            f32s(&(&twice + bias).sum(0, false));
        }
        for _ in 0..if k == 0 { 3000 } else { 0 } {
            let loss = net.forward(&x).square().reshape([-1]).sum(0, false);
            optimizer.step(&loss).expect("a step");
        }
        done.store(1, Ordering::Relaxed);
    });
}

#[test]
fn slices_written_by_many_end_as_somebody_wrote_them() {
    interpreted();
    let t = Tensor::zeros([4, 16]).parameter();
    threads(4, |k| {
        let row = t.index(k as i64);
        for i in 0..100 {
            row.assign((10 * k + i % 10) as f32);
            let v = f32s(&row);
            assert!(v.iter().all(|x| *x == v[0]), "{v:?}");
        }
    });
    let want: Vec<f32> = (0..4).flat_map(|k| [(10 * k + 9) as f32; 16]).collect();
    assert_eq!(f32s(&t), want, "no thread undoes what another wrote");
}

#[test]
fn an_expression_found_by_one_thread_is_not_overwritten_by_another() {
    interpreted();
    // What `kept` remembers weakly is the value of a tensor that the other thread goes on updating.
    for _ in 0..50 {
        let x = Tensor::new(&[1f32, 2., 3., 4.], [4]);
        let kept = &x * 3.0;
        let t = kept.clone();
        let other = Tensor::from_uop(kept.uop().expect("well-formed"));
        t.realize().expect("computed");
        threads(2, |k| {
            if k == 0 {
                for _ in 0..5 {
                    t.assign(&t + 1.0).realize().expect("a step");
                }
            } else {
                other.realize().expect("found or computed again");
            }
        });
        assert_eq!(f32s(&other), [3.0, 6.0, 9.0, 12.0]);
        assert_eq!(f32s(&t), [8.0, 11.0, 14.0, 17.0]);
    }
}

/// Kernels that cores share, whoever has which of them: a product, rows, and a sum of all.
#[test]
fn callers_that_share_the_cores_get_the_same_bits() {
    let cpu = Device::new("CPU");
    let rows: Vec<f32> = (0..512 * 512).map(|i| (i as f32).sin()).collect();
    let values = || {
        let x = Tensor::new(&rows, [512, 512]).to(cpu);
        let all = [x.matmul(&x), x.softmax(-1), x.sum(.., false)];
        Tensor::realize_all(&all.iter().collect::<Vec<_>>()).expect("they run");
        all.map(|t| f32s(&t).into_iter().map(f32::to_bits).collect::<Vec<_>>())
    };
    let alone = values();
    threads(4, |_| {
        for _ in 0..8 {
            assert!(values() == alone, "other bits than alone");
        }
    });
}

#[test]
fn a_run_that_fails_changes_nothing() {
    let path = std::env::temp_dir().join(format!("monoglot-failing-{}", std::process::id()));
    std::fs::write(&path, [0u8; 32]).expect("written");
    for device in ["CPU", "INTERP"].map(Device::new) {
        let file = Tensor::open(&path, DType::F32);
        let t = Tensor::new(&[1f32; 8], [8]).to(device);
        t.realize().expect("copied");
        // The file is shorter by the time that it is read.
        std::fs::write(&path, [0u8; 4]).expect("written");
        t.assign(&t + file.to(device));
        t.realize().expect_err("there is nothing to read");
        t.realize().expect_err("still not");
        std::fs::write(&path, [0u8; 32]).expect("written");
        // The value is as it was, so the same assign now succeeds.
        t.realize().expect("there is");
        assert_eq!(f32s(&t), [1.0; 8]);
        t.assign(2.0).realize().expect("a step");
        assert_eq!(f32s(&t), [2.0; 8]);
    }
    std::fs::remove_file(&path).expect("removed");
}

/// What a captured function reads is looked for again in no call, as long as its holder holds the same.
#[test]
fn calls_see_what_was_assigned_before_them() -> Result<()> {
    const CALLS: usize = 400;
    let weight = Tensor::zeros([64]);
    weight.realize()?;
    let read = jit(|x: &Tensor| x + &weight)?;
    let next = jit(|| weight.assign(&weight + 1.0))?;
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let x = Tensor::zeros([64]);
                let mut last = 0.0;
                while last < CALLS as f32 {
                    let least = done.load(Ordering::SeqCst) as f32;
                    let seen = read.call(&x).and_then(|y| y.to_vec::<f32>()).unwrap();
                    assert!(seen.iter().all(|v| *v == seen[0]), "{seen:?}");
                    assert!(seen[0] >= least.max(last), "{} after {least}", seen[0]);
                    last = seen[0];
                }
            });
        }
        for k in 1..=CALLS {
            // In place, and to storage of its own.
            match k % 3 {
                0 => weight
                    .assign(Tensor::full([64], k as f32))
                    .realize()
                    .unwrap(),
                _ => drop(next.call(()).unwrap()),
            }
            done.store(k, Ordering::SeqCst);
        }
    });
    Ok(())
}
