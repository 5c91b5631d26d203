//! Several devices in one process: constants belong to none, copies are written, a file is a tensor of
//! which only what is needed is read. Each test that changes the default device has a thread's settings.

use monoglot::prelude::*;
use monoglot::{Config, Device, ErrorKind};
use std::sync::Mutex;

/// The default device is the process's: one at a time.
static ONE: Mutex<()> = Mutex::new(());

fn on(device: &str) {
    Config {
        device: Some(device.into()),
        ..Config::default()
    }
    .set();
}

#[test]
fn what_constants_were_realized_to_stays_on_its_device() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let table = || Tensor::arange(0, 8, 1).cast(DType::F32).sin();
    on("INTERP");
    let kept = table();
    let copy = kept.clone();
    kept.realize().expect("it runs");
    on("CPU");
    let x = Tensor::new(&[1f32; 8], [8]);
    let y = (&x + table())
        .to_vec::<f32>()
        .expect("the table is computed again, on the CPU");
    assert_eq!(copy.device().expect("realized"), Device::new("INTERP"));
    let want: Vec<f32> = (0..8).map(|i| 1.0 + (i as f32).sin()).collect();
    assert!(
        y.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-6),
        "{y:?}"
    );
    let again = table().contiguous();
    again.realize().expect("it runs");
    assert_eq!(again.device().expect("realized"), Device::new("CPU"));
}

#[test]
fn values_cross_between_devices_where_it_is_written() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    on("CPU");
    let x = Tensor::new(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
    let y = (x.permute([1, 0]) * 2.0).to(Device::new("INTERP:GPU"));
    let z = (y.sum(0, false) + 1.0).to(Device::new("INTERP"));
    let w = (&z * &z).to(Device::new("CPU")) - x.sum(1, false);
    assert_eq!(
        w.to_vec::<f32>().expect("it runs"),
        [13.0 * 13.0 - 6.0, 31.0 * 31.0 - 15.0]
    );
    assert_eq!(y.device().expect("known"), Device::new("INTERP:GPU"));
    let loss = (x.to(Device::new("INTERP")) * 3.0).sum(.., false);
    let g = loss
        .gradient(&[&x])
        .expect("a copy has a gradient")
        .remove(0);
    assert_eq!(g.to_vec::<f32>().expect("it runs"), [3.0; 6]);
    assert_eq!(g.device().expect("known"), Device::new("CPU"));
    let error = (&x.sum(1, false) + &z)
        .realize()
        .expect_err("a copy is never implied")
        .to_string();
    assert!(
        error.contains("INTERP") && error.contains("`to`") && error.contains("devices.rs"),
        "{error}"
    );
}

#[test]
fn what_a_queue_was_given_has_run_before_others_read_it() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    on("CPU");
    // INTERP:GPU runs what it is given later, on a thread of its own. All in one program, in which
    // storage is used again and again.
    const N: i64 = 20_000;
    let mut x = Tensor::arange(0, N, 1)
        .cast(DType::F32)
        .to(Device::new("CPU"));
    for _ in 0..6 {
        let there = (x.to(Device::new("INTERP:GPU")) + 1.0).flip(0);
        let back = (&there * 2.0).to(Device::new("CPU"));
        x = (back - there.to(Device::new("CPU:0"))).flip(0);
    }
    let got = x.to_vec::<f32>().expect("it runs");
    let want: Vec<f32> = (0..N).map(|i| (i + 6) as f32).collect();
    assert_eq!(got, want);
}

#[test]
fn a_file_is_a_tensor_of_which_only_what_is_needed_is_read() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    on("CPU");
    let path = std::env::temp_dir().join(format!("monoglot-open-{}", std::process::id()));
    let values: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    std::fs::write(
        &path,
        values
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect::<Vec<u8>>(),
    )
    .expect("written");
    let t = Tensor::open(&path, DType::F32);
    assert_eq!(t.shape().expect("a shape"), [1000]);
    let part = t
        .slice_axis(0, Some(100), Some(108), 1)
        .reshape([2, 4])
        .to(Device::new("CPU"));
    assert_eq!((part * 2.0).to_vec::<f32>().expect("read")[3], 206.0);
    assert_eq!(t.to_vec::<f32>().expect("read"), values);
    // As of a file of weights: bytes, a run of them, seen as what they are; and views that need order.
    let read = |t: Tensor| t.to(Device::new("CPU")).to_vec::<f32>().expect("read");
    let run = Tensor::open(&path, DType::U8)
        .slice_axis(0, Some(40), Some(64), 1)
        .bitcast(DType::F32);
    assert_eq!(
        read(run.reshape([2, 3])),
        [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]
    );
    assert_eq!(
        read(run.reshape([2, 3]).t()),
        [10.0, 13.0, 11.0, 14.0, 12.0, 15.0]
    );
    assert_eq!(read(run.flip(0).narrow(0, 1, 2)), [14.0, 13.0]);
    // The copy is storage of its own: DISK is not asked for more.
    let own = run.reshape([2, 3]).contiguous().narrow(1, 1, 2);
    assert_eq!(read(own.contiguous()), [11.0, 12.0, 14.0, 15.0]);
    assert_eq!(
        read(t.reshape([100, 10]).narrow(1, 3, 2).narrow(0, 7, 1)),
        [73.0, 74.0]
    );
    let error = (&t + 1.0)
        .to_vec::<f32>()
        .expect_err("files compute nothing")
        .to_string();
    assert!(error.contains("DISK") && error.contains("copy"), "{error}");
    let error = Tensor::open(&path, DType::F64)
        .slice_axis(0, Some(0), Some(1), 1)
        .to(Device::new("CPU"));
    error.realize().expect("8 divides 4,000");
    std::fs::write(&path, [0; 13]).expect("written");
    let error = Tensor::open(&path, DType::F32)
        .realize()
        .expect_err("13 bytes")
        .to_string();
    assert!(error.contains("13 bytes"), "{error}");
    // A file that shrank under its tensor.
    let error = t
        .to(Device::new("CPU"))
        .to_vec::<f32>()
        .expect_err("the bytes are gone")
        .to_string();
    assert!(error.contains("monoglot-open"), "{error}");
    std::fs::remove_file(&path).expect("removed");
    let error = Tensor::open(&path, DType::F32)
        .realize()
        .expect_err("no file");
    assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error}");
    assert!(error.to_string().contains("devices.rs"), "{error}");
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_names_those_that_are() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    on("CPU");
    let x = Tensor::new(&[1f32], [1]).to(Device::new("WARP9"));
    let error = x.realize().expect_err("no such device");
    assert!(error.to_string().contains("INTERP"), "{error}");
}

#[test]
fn more_memory_than_there_is_is_an_error() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    on("CPU");
    let x = Tensor::zeros([1 << 20, 1 << 20, 16]).contiguous();
    let error = x.realize().expect_err("64 TiB");
    assert!(matches!(error.kind(), ErrorKind::Memory { .. }), "{error}");
}

#[test]
fn a_device_without_data_gives_none() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    on("NULL");
    let x = Tensor::new(&[1f32, 2.0], [2]);
    for t in [x.clone(), &x + 1.0] {
        let error = t
            .to_vec::<f32>()
            .expect_err("NULL holds no data")
            .to_string();
        assert!(error.contains("NULL holds no data"), "{error}");
    }
}

#[test]
fn no_threads_are_all_threads() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    Config {
        device: Some("CPU".into()),
        threads: Some(0),
        ..Config::default()
    }
    .set();
    let x = Tensor::ones([256, 256]);
    assert_eq!(
        x.matmul(&x).sum(.., false).item::<f32>().expect("it runs"),
        256.0f32.powi(3)
    );
}

/// What a library makes of its own is where the data is, whatever the default device is.
#[test]
fn what_learns_on_another_device_stays_there() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    on("CPU");
    let learned = |device: &str| -> Result<Vec<f32>> {
        let device = Device::new(device);
        Tensor::manual_seed(3);
        let x = Tensor::ones([4]).to(device);
        let w = Tensor::ones([4]).to(device).parameter();
        w.realize()?;
        let optimizers: [&dyn Optimizer; 2] =
            [&Adam::new(&w, 0.1), &Sgd::new(&w, 0.1).momentum(0.9)];
        for o in optimizers {
            for rate in [0.1, 0.05] {
                o.set_rate(rate);
                let kept = (&w * x.dropout(0.5)).square().sum(.., false);
                o.step(&kept)?;
            }
        }
        let lstm = Lstm::new(3, 2);
        for p in lstm.parameters() {
            p.rebind(&(&p * 0.0 + 0.3).to(device));
        }
        let (y, _) = lstm.forward(&Tensor::ones([2, 1, 3]).to(device))?;
        assert_eq!(y.device()?, device);
        let mut all = w.to_vec::<f32>()?;
        all.extend(y.to_vec::<f32>()?);
        Ok(all)
    };
    let here = learned("CPU").expect("on the default device");
    let there = learned("INTERP").expect("on another");
    let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-5;
    assert!(here.iter().zip(&there).all(near), "{here:?}, {there:?}");
}
