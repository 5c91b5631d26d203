//! Programs far deeper and wider than any stack: they are built, differentiated, realized and dropped in a
//! thread whose stack holds 512 KiB, on the interpreter and on the CPU.

use monoglot::compiler::engine::default_device;
use monoglot::prelude::*;
use monoglot::{Config, Device};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Held while a program runs: the default device is the process's, and these tests set it.
static TURN: Mutex<()> = Mutex::new(());

/// Runs this for each device, in a thread of its own with a small stack, and says how long it took.
fn small_stack(name: &str, test: fn()) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for device in ["INTERP", "CPU"] {
        let begin = Instant::now();
        let run = move || {
            Config {
                device: Some(device.into()),
                ..Config::default()
            }
            .set();
            assert_eq!(default_device(), Device::new(device));
            test();
        };
        let thread = std::thread::Builder::new()
            .stack_size(512 * 1024)
            .spawn(run);
        thread
            .expect("a thread starts")
            .join()
            .unwrap_or_else(|e| std::panic::resume_unwind(e));
        println!("{name} on {device}: {:.2} s", begin.elapsed().as_secs_f64());
    }
}

fn leaf() -> Tensor {
    Tensor::new(
        &(0..1024).map(|i| i as f32 / 1024.0).collect::<Vec<_>>(),
        [1024],
    )
}

#[test]
fn a_chain_of_100_000_adds_and_multiplies() {
    small_stack("100,000 adds and multiplies", || {
        let x = leaf();
        // Four of them return the value, exactly: multiples of 1/1024 and powers of two.
        let y = (0..100_000).fold(x.clone(), |y, i| match i % 4 {
            0 => &y + 0.5,
            1 => &y * 0.5,
            2 => &y - 0.25,
            _ => &y * 2.0,
        });
        let g = y
            .sum(.., false)
            .gradient(&[&x])
            .expect("a gradient")
            .remove(0);
        Tensor::realize_all(&[&y, &g]).expect("it runs");
        let y = y.to_vec::<f32>().expect("values");
        let g = g.to_vec::<f32>().expect("values");
        assert_eq!(y, x.to_vec::<f32>().expect("values"));
        assert_eq!(g, [1.0; 1024]);
    });
}

#[test]
fn a_chain_of_2_000_tanh() {
    small_stack("2,000 tanh", || {
        let x = leaf();
        let y = (0..2_000).fold(x.clone(), |y, _| y.tanh());
        let g = y
            .sum(.., false)
            .gradient(&[&x])
            .expect("a gradient")
            .remove(0);
        Tensor::realize_all(&[&y, &g]).expect("it runs");
        let y = y.to_vec::<f32>().expect("values");
        let g = g.to_vec::<f32>().expect("values");
        for i in [0, 1, 511, 1023] {
            let mut want = i as f64 / 1024.0;
            let mut slope = 1.0;
            for _ in 0..2_000 {
                want = want.tanh();
                slope *= 1.0 - want * want;
            }
            assert!(
                (f64::from(y[i]) - want).abs() < 1e-4,
                "{i}: {} is not {want}",
                y[i]
            );
            assert!(
                (f64::from(g[i]) - slope).abs() < 1e-3 * slope.max(1e-2),
                "{i}: {} is not {slope}",
                g[i]
            );
        }
    });
}

#[test]
fn a_stack_of_6_000_tensors() {
    small_stack("a stack of 6,000 tensors", || {
        let parts: Vec<Tensor> = (0..6_000)
            .map(|i| Tensor::new(&[i as f32; 4], [4]))
            .collect();
        let all = Tensor::stack(&parts.iter().collect::<Vec<_>>(), 0);
        let loss = (&all * &all).sum(.., false);
        let g = loss
            .gradient(&parts.iter().collect::<Vec<_>>())
            .expect("gradients");
        let mut roots = vec![&all, &loss];
        roots.extend(&g);
        Tensor::realize_all(&roots).expect("it runs");
        assert_eq!(all.shape().expect("a shape"), [6_000, 4]);
        assert_eq!(g[5_999].to_vec::<f32>().expect("values"), [11_998.0; 4]);
        assert_eq!(all.to_vec::<f32>().expect("values")[4 * 77 + 3], 77.0);
    });
}
