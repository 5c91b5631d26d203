//! f32 matrix products of the crates faer and matrixmultiply. Flows in: how many threads, then a row and
//! seconds a line; flows out: the rows there are, then a record a line (`timing.py` says how both look).

use std::hint::black_box;
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

/// Rows × terms × columns, and which factors are stored the other way round.
type Shape = ([usize; 3], [bool; 2]);

/// What is timed: a product into storage that is there before.
type Call = Box<dyn FnMut()>;

fn main() {
    let threads: usize = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(1);
    // SAFETY: no other thread runs yet; both crates read these when they first share work.
    unsafe {
        std::env::set_var("RAYON_NUM_THREADS", threads.to_string());
        std::env::set_var("MATMUL_NUM_THREADS", threads.to_string());
    }
    let mut out = std::io::stdout().lock();
    for (name, _) in rows() {
        for peer in ["faer", "matrixmultiply"] {
            writeln!(out, "{name}\t{peer}").expect("somebody reads");
        }
    }
    writeln!(out).expect("somebody reads");
    let mut kept: Option<(String, Call)> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("text comes in");
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, peer, seconds] = fields[..] else {
            panic!("a row, a peer and seconds are needed");
        };
        let key = format!("{name} {peer}");
        let mut call = match kept.take().filter(|k| k.0 == key) {
            Some((_, call)) => call,
            None => prepare(name, peer, threads),
        };
        let median = median_of(&mut call, seconds.parse().expect("a number of seconds"));
        kept = Some((key, call));
        writeln!(
            out,
            r#"{{"name": "{name}", "threads": {threads}, "median_s": {median:e}, "peer": "{peer}"}}"#
        )
        .expect("somebody reads");
    }
}

fn rows() -> Vec<(String, Shape)> {
    let square = [64, 128, 256, 512, 1024, 2048, 4096, 1023].map(|n| [n, n, n]);
    let others = [[2047, 1531, 777], [64, 4096, 64], [4096, 64, 4096]];
    let mut all: Vec<(String, Shape)> = Vec::new();
    all.extend(square.map(|s| (format!("gemm_f32_{}", s[0]), (s, [false; 2]))));
    all.extend(others.map(|s| {
        let [m, k, n] = s;
        (format!("gemm_f32_{m}x{k}x{n}"), (s, [false; 2]))
    }));
    for (name, turned) in [
        ("nt", [false, true]),
        ("tn", [true, false]),
        ("tt", [true, true]),
    ] {
        all.push((format!("gemm_f32_{name}_1024"), ([1024; 3], turned)));
    }
    all
}

/// The inputs of a row, and the call.
fn prepare(name: &str, peer: &str, threads: usize) -> Call {
    let rows = rows();
    let ([m, k, n], turned) = rows.iter().find(|r| r.0 == name).expect("a row").1;
    let [a, b] = [filled(m * k), filled(k * n)];
    let mut c = vec![0f32; m * n];
    // Elements from one row, and from one column, to the next.
    let strides = |turned: bool, rows: usize, columns: usize| {
        if turned {
            (1, rows as isize)
        } else {
            (columns as isize, 1)
        }
    };
    let (ra, ca) = strides(turned[0], m, k);
    let (rb, cb) = strides(turned[1], k, n);
    if peer == "matrixmultiply" {
        return Box::new(move || {
            // SAFETY: each pointer is of as many elements as sizes and strides reach.
            unsafe {
                let [a, b] = [a.as_ptr(), b.as_ptr()];
                let rc = n as isize;
                matrixmultiply::sgemm(
                    m,
                    k,
                    n,
                    1.0,
                    a,
                    ra,
                    ca,
                    b,
                    rb,
                    cb,
                    0.0,
                    c.as_mut_ptr(),
                    rc,
                    1,
                );
            }
            black_box(&c);
        });
    }
    let par = if threads == 1 {
        faer::Par::Seq
    } else {
        faer::Par::rayon(threads)
    };
    Box::new(move || {
        let of = |data, turned, rows, columns| {
            if turned {
                faer::MatRef::from_column_major_slice(data, rows, columns)
            } else {
                faer::MatRef::from_row_major_slice(data, rows, columns)
            }
        };
        let x = of(&a[..], turned[0], m, k);
        let y = of(&b[..], turned[1], k, n);
        let z = faer::MatMut::from_row_major_slice_mut(&mut c, m, n);
        faer::linalg::matmul::matmul(z, faer::Accum::Replace, x, y, 1f32, par);
        black_box(&c);
    })
}

/// Numbers between −1 and 1.
fn filled(n: usize) -> Vec<f32> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// The median of a call's times in so many seconds, after a quarter of that which is not counted.
fn median_of(call: &mut Call, seconds: f64) -> f64 {
    let seconds = Duration::from_secs_f64(seconds);
    let begin = Instant::now();
    call();
    while begin.elapsed() < seconds / 4 {
        call();
    }
    let mut times = Vec::new();
    let begin = Instant::now();
    while times.is_empty() || begin.elapsed() < seconds {
        let at = Instant::now();
        call();
        times.push(at.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
