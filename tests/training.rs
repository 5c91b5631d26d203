//! Training as users do it: the same from the same seed, and errors as values. Flows in: the façade.

use monoglot::models;
use monoglot::prelude::*;

#[test]
fn a_model_trained_twice_from_one_seed_is_the_same() -> Result<()> {
    let train = || -> Result<Vec<f32>> {
        let w = Tensor::new(&[0.1f32, -0.2, 0.3, 0.4], [2, 2]);
        let net = Linear {
            weight: w,
            bias: None,
        };
        let sgd = Sgd::new(&net, 0.1).momentum(0.9);
        let x = Tensor::new(&[1f32, 2.0, -1.0, 0.5], [2, 2]);
        for _ in 0..5 {
            sgd.step(&net.forward(&x).square().mean(.., false))?;
        }
        net.weight.to_vec()
    };
    assert_eq!(train()?, train()?);
    Ok(())
}

#[test]
fn errors_of_a_network_are_values_with_the_users_line() {
    let net = models::ConvNet::new();
    let bad = Tensor::zeros([4, 3, 28, 28]);
    let line = line!() + 1;
    let scores = net.forward(&bad);
    let e = scores.shape().expect_err("three channels are not one");
    assert!(matches!(e.kind(), ErrorKind::Shape { .. }), "{e}");
    let at = e.location().expect("a line");
    assert!(at.file().ends_with("training.rs"), "{e}");
    assert_eq!(at.line(), line, "{e}");
}

#[test]
fn a_step_that_cannot_be_taken_names_the_users_line() {
    let net = Linear {
        weight: Tensor::ones([2, 2]),
        bias: None,
    };
    let sgd = Sgd::new(&net, 0.1);
    let losses = net.forward(&Tensor::ones([3, 2]));
    let line = line!() + 1;
    let e = sgd.step(&losses).expect_err("six losses");
    let at = e.location().expect("a line");
    assert!(
        at.file().ends_with("training.rs") && at.line() == line,
        "{e}"
    );
}

/// What the child of the next test does.
#[test]
fn digits_are_learnt() -> Result<()> {
    Tensor::manual_seed(3);
    let (_, train) = data::digits()?.split(|i| i % 5 == 4);
    let net = Linear::new(64, 10);
    let adam = AdamW::new(&net, 1e-2, 0.0);
    let mut losses: Vec<f32> = Vec::new();
    for rows in train.shuffled(32)? {
        let (images, labels) = train.batch(&rows);
        let scores = net.forward(&images.reshape([-1, 64]));
        let loss = scores.cross_entropy(&labels, Reduction::Mean, 0.0);
        adam.step(&loss)?;
        losses.push(loss.item()?);
    }
    assert!(losses[losses.len() - 1] < 0.8 * losses[0], "{losses:?}");
    Ok(())
}

/// No compiler can be found, nor anything else: x86-64 has machine code of our own.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[test]
fn digits_are_learnt_where_nothing_is_installed() {
    if !std::arch::is_x86_feature_detected!("sse4.2") {
        return eprintln!("NOT RUN: this machine is older than x86-64-v2");
    }
    let exe = std::env::current_exe().expect("a test has a binary");
    let mut child = std::process::Command::new(exe);
    child
        .args(["--exact", "digits_are_learnt", "--nocapture"])
        .env_clear()
        .env("PATH", "")
        .env("DEBUG", "1");
    let out = child.output().expect("it runs");
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{told}");
    assert!(told.contains("machine code of our own"), "{told}");
}
