//! Poolings of more than a cache holds, whose rows end in the middle of lines: what is written past the caches, in halves
//! of vectors, is right. Flows in: the façade; flows out: comparisons with plain loops.

use monoglot::Config;
use monoglot::prelude::*;

#[test]
fn rows_of_half_lines_are_written_whole() -> Result<()> {
    let [planes, side, out] = [512, 112, 56];
    let at = |i: i64| (i * 7919 % 100_003) as f32;
    let data: Vec<f32> = (0..planes * side * side).map(at).collect();
    for device in ["CPU", "CPU:X86:x86-64-v3"] {
        Config {
            device: Some(device.into()),
            threads: Some(1),
            ..Config::default()
        }
        .set();
        let x = Tensor::new(&data, [1, planes, side, side]);
        let pooled = x.max_pool([2, 2], [2, 2], [0, 0], [1, 1]);
        for (o, got) in pooled.to_vec::<f32>()?.into_iter().enumerate() {
            let o = o as i64;
            let first = o / out * 2 * side + o % out * 2;
            let window = [0, 1, side, side + 1].map(|k| data[(first + k) as usize]);
            let want = window.into_iter().fold(f32::MIN, f32::max);
            assert_eq!(got, want, "{device}: {o}");
        }
    }
    Ok(())
}
