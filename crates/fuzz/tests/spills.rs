//! Innermost loops of the kernels of the benchmarks and the models keep their values in registers. Flows in: the
//! programs; flows out: a failed test that tells the loops that spill.
//!
//! `monoglot-fuzz spills` tells them all, and with `--show NAME` their code. What stands here spills yet: addresses of
//! many rows, and tiles that a schedule made too large for the registers.

use monoglot_device::Config;
use monoglot_fuzz::spills::{programs, spilling};
use monoglot_uop::Device;
use std::collections::BTreeMap;

/// Programs with innermost loops that spill, and at most how many.
type Known = [(&'static str, usize)];

const V4: &Known = &[
    // Where the mask is asked: rows' ends are read.
    ("attention_1024_causal_grad", 2),
    ("convnet", 3),
    ("dwconv3x3_64", 2),
    ("gpt2", 1),
];

const V3: &Known = &[
    // Two of the kernel that has scores, four where the mask is asked.
    ("attention_1024_causal_grad", 6),
    ("convnet", 10),
    ("cumsum_4096", 2),
    ("dwconv3x3_64", 1),
    // Sixteen rows of the matrix at a time.
    ("gemm_f32_8x4096x4096", 2),
    ("gpt2", 3),
];

const V2: &Known = &[
    ("attention_1024_causal_grad", 5),
    ("attention_12x64_128_causal", 1),
    ("attention_12x64_512_causal", 1),
    ("conv5x5_32_32", 1),
    ("convnet", 14),
    ("gemm_f32_8x4096x4096", 2),
    // One more where a mask is asked, of the gradient of its attention.
    ("gpt2", 6),
    ("resnet50", 3),
];

#[test]
fn innermost_loops_keep_values_in_registers() {
    let levels = [
        ("NULL:X86:x86-64-v4", V4),
        ("NULL:X86:x86-64-v3", V3),
        ("NULL:X86:x86-64-v2", V2),
    ];
    for (name, known) in levels {
        let device = Device::new(name);
        Config {
            device: Some(name.into()),
            ..Config::default()
        }
        .set();
        let programs = programs(device).expect("the models are built");
        let (count, found) = spilling(&programs, device).expect("the kernels compile");
        assert!(count > 100, "{count} kernels");
        let mut by_name: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for s in &found {
            by_name.entry(&s.of).or_default().push(s.to_string());
        }
        for (of, loops) in by_name {
            let most = known.iter().find(|k| k.0 == of).map_or(0, |k| k.1);
            let more = loops.len() > most;
            assert!(
                !more,
                "{name}: more than {most} spill:\n{}",
                loops.join("\n")
            );
        }
    }
}
