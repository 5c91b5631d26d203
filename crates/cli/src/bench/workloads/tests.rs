//! The workloads, small, against computations of their own: plain loops in f64. Flows in: workloads of
//! reduced sizes; flows out: comparisons of every value.

use super::*;
use convolutions::Layer;

#[test]
fn names_differ_and_fit_the_table() {
    let mut names: Vec<&str> = all().iter().map(|w| w.name).collect();
    assert!(names.iter().all(|n| n.len() <= 28), "{names:?}");
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn every_workload_has_work() {
    for w in all() {
        assert!(w.work.amount() > 0.0, "{}", w.name);
        assert!(w.work.operations + w.work.bytes() > 0.0, "{}", w.name);
    }
}

/// What a small workload reads, and what it gives: all as f64.
struct Small {
    inputs: Vec<Vec<f64>>,
    outputs: Vec<Vec<f64>>,
}

impl Small {
    fn of(w: Workload) -> Small {
        let subject = (w.prepare)().expect(w.name);
        let Subject::Values(values) = subject else {
            panic!("{} is no value", w.name);
        };
        let read = |t: &Tensor| {
            let t = t.cast(DType::F64);
            t.to_vec::<f64>().expect("it runs")
        };
        let outputs = values.tensors().expect(w.name);
        Small {
            inputs: values.inputs.iter().map(read).collect(),
            outputs: outputs.iter().map(read).collect(),
        }
    }

    /// The first output is this, but for rounding.
    fn gives(&self, wanted: &[f64]) {
        close(&self.outputs[0], wanted);
    }
}

fn close(given: &[f64], wanted: &[f64]) {
    assert_eq!(given.len(), wanted.len());
    for (k, (a, b)) in given.iter().zip(wanted).enumerate() {
        let most = 1e-4 * b.abs().max(1.0);
        assert!((a - b).abs() <= most, "element {k} is {a}, not {b}");
    }
}

/// (m, k) by (k, n), each by how an element is found.
fn product(
    [m, k, n]: [usize; 3],
    a: impl Fn(usize, usize) -> f64,
    b: impl Fn(usize, usize) -> f64,
) -> Vec<f64> {
    let at = |i, j| (0..k).map(|l| a(i, l) * b(l, j)).sum();
    (0..m * n).map(|e| at(e / n, e % n)).collect()
}

const M: usize = 5;
const K: usize = 7;
const N: usize = 3;

#[test]
fn products_are_products() {
    let sizes = [5, 7, 3];
    for turned in [[false, false], [false, true], [true, false], [true, true]] {
        let s = Small::of(products::oriented("gemm", sizes, turned));
        let [a, b] = [&s.inputs[0], &s.inputs[1]];
        let a = |i: usize, l: usize| a[if turned[0] { l * M + i } else { i * K + l }];
        let b = |l: usize, j: usize| b[if turned[1] { j * K + l } else { l * N + j }];
        s.gives(&product([M, K, N], a, b));
    }
    let s = Small::of(products::batched("gemm", 4, sizes));
    let [a, b] = [&s.inputs[0], &s.inputs[1]];
    let of_batch = |z: usize| {
        let a = |i: usize, l: usize| a[z * M * K + i * K + l];
        let b = |l: usize, j: usize| b[z * K * N + l * N + j];
        product([M, K, N], a, b)
    };
    s.gives(&(0..4).flat_map(of_batch).collect::<Vec<_>>());
}

#[test]
fn products_of_narrow_numbers_are_products() {
    let s = Small::of(products::gemm_i8("gemm", 9));
    let [a, b] = [&s.inputs[0], &s.inputs[1]];
    let exact = product([9, 9, 9], |i, l| a[i * 9 + l], |l, j| b[l * 9 + j]);
    assert_eq!(s.outputs[0], exact);
    let s = Small::of(products::gemm_bf16("gemm", 9));
    let [a, b] = [&s.inputs[0], &s.inputs[1]];
    let wanted = product([9, 9, 9], |i, l| a[i * 9 + l], |l, j| b[l * 9 + j]);
    for (given, wanted) in s.outputs[0].iter().zip(&wanted) {
        // Rounded to 8 bits once.
        assert!((given - wanted).abs() <= wanted.abs() / 256.0 + 1e-5);
    }
}

#[test]
fn matrices_meet_vectors_both_ways() {
    let n = 6;
    let s = Small::of(products::gemv("gemv", n as i64));
    let [a, x] = [&s.inputs[0], &s.inputs[1]];
    s.gives(&product([n, n, 1], |i, l| a[i * n + l], |l, _| x[l]));
    let s = Small::of(products::gemv_t("gemv", n as i64));
    let [a, x] = [&s.inputs[0], &s.inputs[1]];
    s.gives(&product([n, n, 1], |i, l| a[l * n + i], |l, _| x[l]));
}

#[test]
fn products_meet_in_layers() {
    let [rows, width, within] = [3usize, 4, 5];
    let silu = |x: f64| x / (1.0 + (-x).exp());
    // Rows times the transpose of a matrix.
    let linear = |x: &[f64], w: &[f64], [n, k, m]: [usize; 3]| {
        product([n, k, m], |i, l| x[i * k + l], |l, j| w[j * k + l])
    };
    let s = Small::of(layers::swiglu("swiglu", [3, 4, 5]));
    let [gate, up] = [1, 2].map(|k| linear(&s.inputs[0], &s.inputs[k], [rows, width, within]));
    let through: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| silu(*g) * u).collect();
    s.gives(&linear(&through, &s.inputs[3], [rows, within, width]));
    let s = Small::of(layers::lora("lora", [3, 4, 2]));
    let whole = linear(&s.inputs[0], &s.inputs[1], [rows, width, width]);
    let thin = linear(&s.inputs[0], &s.inputs[2], [rows, width, 2]);
    let thin = linear(&thin, &s.inputs[3], [rows, 2, width]);
    let sums = whole.iter().zip(&thin).map(|(a, b)| a + 0.5 * b);
    s.gives(&sums.collect::<Vec<_>>());
    let s = Small::of(layers::rnn_cell("cell", [3, 4]));
    let [x, h] = [0, 2].map(|k| linear(&s.inputs[k], &s.inputs[k + 1], [rows, width, width]));
    let sums = (0..rows * width).map(|e| (x[e] + h[e] + s.inputs[4][e % width]).tanh());
    s.gives(&sums.collect::<Vec<_>>());
}

#[test]
fn images_are_normed_and_cut() {
    let [batch, channels, size] = [2usize, 3, 4];
    let pixels = size * size;
    let s = Small::of(layers::norm_and_conv("norm", [2, 3, 4]));
    let of_channel = |c: usize| {
        let images = s.inputs[0].chunks(pixels).skip(c).step_by(channels);
        images.flatten().copied().collect::<Vec<f64>>()
    };
    let normed = |n: usize, c: usize, i: usize, j: usize| {
        let all = of_channel(c);
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / all.len() as f64;
        let x = s.inputs[0][((n * channels + c) * size + i) * size + j];
        ((x - mean) / (variance + 1e-5).sqrt()).max(0.0)
    };
    let mut wanted = Vec::new();
    for e in 0..batch * channels * pixels {
        let [n, o] = [e / pixels / channels, e / pixels % channels];
        let [i, j] = [e % pixels / size, e % size];
        let mut sum = 0.0;
        for k in 0..channels * 9 {
            let [c, a, b] = [k / 9, i + k % 9 / 3, j + k % 3];
            if (1..=size).contains(&a) && (1..=size).contains(&b) {
                sum += normed(n, c, a - 1, b - 1) * s.inputs[1][o * channels * 9 + k];
            }
        }
        wanted.push(sum);
    }
    s.gives(&wanted);
    let [width, patch] = [5usize, 2];
    let s = Small::of(layers::patches("patches", [2, 3, 4, 5, 2]));
    let across = size / patch;
    let mut wanted = Vec::new();
    for e in 0..batch * width * across * across {
        let [n, o] = [e / across / across / width, e / across / across % width];
        let [i, j] = [e / across % across, e % across];
        let terms = (0..channels * patch * patch).map(|k| {
            let [c, a, b] = [k / 4, i * patch + k % 4 / 2, j * patch + k % 2];
            s.inputs[0][((n * channels + c) * size + a) * size + b] * s.inputs[1][o * 12 + k]
        });
        wanted.push(terms.sum());
    }
    s.gives(&wanted);
    let s = Small::of(layers::mean_axis1("mean", [2, 3, 4]));
    let mean = |e: usize| {
        (0..3)
            .map(|r| s.inputs[0][e / 4 * 12 + r * 4 + e % 4])
            .sum::<f64>()
            / 3.0
    };
    s.gives(&(0..8).map(mean).collect::<Vec<_>>());
}

#[test]
fn attention_weighs_values() {
    let [heads, width, length] = [2usize, 3, 5];
    let sizes = [2, 3, 5];
    for causal in [false, true] {
        let s = Small::of(if causal {
            products::causal("attention", sizes)
        } else {
            products::attention("attention", sizes)
        });
        let at = |t: usize, h: usize, i: usize, d: usize| s.inputs[t][(h * length + i) * width + d];
        let mut wanted = Vec::new();
        for h in 0..heads {
            for i in 0..length {
                let seen = if causal { i + 1 } else { length };
                let score =
                    |j| -> f64 { (0..width).map(|d| at(0, h, i, d) * at(1, h, j, d)).sum() };
                let weights: Vec<f64> = (0..seen)
                    .map(|j| (score(j) / (width as f64).sqrt()).exp())
                    .collect();
                let all: f64 = weights.iter().sum();
                wanted.extend((0..width).map(|d| {
                    let weighed = weights.iter().enumerate();
                    weighed.map(|(j, w)| w * at(2, h, j, d)).sum::<f64>() / all
                }));
            }
        }
        s.gives(&wanted);
    }
}

/// Of values, what a gradient by them is: weights times what flows back.
#[test]
fn attention_has_its_gradients() {
    let [heads, width, length] = [2usize, 3, 5];
    let s = Small::of(products::causal_grad("attention", [2, 3, 5]));
    let at = |t: usize, h: usize, i: usize, d: usize| s.inputs[t][(h * length + i) * width + d];
    let mut wanted = vec![0.0; heads * length * width];
    for h in 0..heads {
        for i in 0..length {
            let score = |j| -> f64 { (0..width).map(|d| at(0, h, i, d) * at(1, h, j, d)).sum() };
            let weight = |j: usize| (score(j) / (width as f64).sqrt()).exp();
            let all: f64 = (0..=i).map(weight).sum();
            for j in 0..=i {
                for d in 0..width {
                    wanted[(h * length + j) * width + d] += weight(j) / all * at(3, h, i, d);
                }
            }
        }
    }
    close(&s.outputs[2], &wanted);
    assert_eq!(s.outputs.len(), 4);
}

const ROWS: usize = 4;
const WIDE: usize = 6;

#[test]
fn rows_are_mapped_and_folded() {
    let s = Small::of(rows::chain("chain", 9));
    let pairs = s.inputs[0].iter().zip(&s.inputs[1]);
    s.gives(
        &pairs
            .map(|(x, y)| (x * 2.0 + 1.0).max(0.0).exp() * y)
            .collect::<Vec<_>>(),
    );
    let s = Small::of(rows::sum_axis0("sum", [ROWS as i64, WIDE as i64]));
    let column = |j: usize| s.inputs[0].iter().skip(j).step_by(WIDE).sum::<f64>();
    s.gives(&(0..WIDE).map(column).collect::<Vec<_>>());
    let s = Small::of(rows::transpose("transpose", WIDE as i64));
    let turned = (0..WIDE * WIDE).map(|e| s.inputs[0][e % WIDE * WIDE + e / WIDE]);
    s.gives(&turned.collect::<Vec<_>>());
}

#[test]
fn rows_are_normalised() {
    let shape = [ROWS as i64, WIDE as i64];
    let s = Small::of(rows::softmax("softmax", shape));
    let soft = |row: &[f64]| {
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        row.iter().map(|x| x.exp() / sum).collect::<Vec<_>>()
    };
    s.gives(&s.inputs[0].chunks(WIDE).flat_map(soft).collect::<Vec<_>>());
    let s = Small::of(rows::layernorm("layernorm", shape));
    let normed = |row: &[f64]| {
        let mean = row.iter().sum::<f64>() / WIDE as f64;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / WIDE as f64;
        let scaled = |(j, x): (usize, &f64)| {
            (x - mean) / (variance + 1e-5).sqrt() * s.inputs[1][j] + s.inputs[2][j]
        };
        row.iter().enumerate().map(scaled).collect::<Vec<_>>()
    };
    s.gives(
        &s.inputs[0]
            .chunks(WIDE)
            .flat_map(normed)
            .collect::<Vec<_>>(),
    );
}

#[test]
fn a_loss_has_its_gradient() {
    let shape = [ROWS as i64, WIDE as i64];
    let of_row = |row: &[f64]| -> f64 { row.iter().map(|x| x.exp()).sum() };
    let s = Small::of(rows::cross_entropy("cross_entropy", shape));
    let rows_of = |s: &Small| -> Vec<(Vec<f64>, usize)> {
        let classes = s.inputs[1].iter().map(|&c| c as usize);
        let scores = s.inputs[0].chunks(WIDE).map(<[f64]>::to_vec);
        scores.zip(classes).collect()
    };
    let all = rows_of(&s);
    let losses = all
        .iter()
        .map(|(row, class)| of_row(row).ln() - row[*class]);
    s.gives(&[losses.sum::<f64>() / ROWS as f64]);
    let s = Small::of(rows::cross_entropy_grad("cross_entropy", shape));
    let back = |(row, class): &(Vec<f64>, usize)| {
        let sum = of_row(row);
        let hit = |j| if j == *class { 1.0 } else { 0.0 };
        let each = row.iter().enumerate();
        each.map(|(j, x)| (x.exp() / sum - hit(j)) / ROWS as f64)
            .collect::<Vec<_>>()
    };
    s.gives(&rows_of(&s).iter().flat_map(back).collect::<Vec<_>>());
}

#[test]
fn sums_go_along_either_axis() {
    let n = 5;
    let s = Small::of(rows::cumsum("cumsum", &[n as i64, n as i64]));
    let along = |e: usize| s.inputs[0][e / n * n..=e].iter().sum::<f64>();
    s.gives(&(0..n * n).map(along).collect::<Vec<_>>());
    let s = Small::of(rows::cumsum_axis0("cumsum", n as i64));
    let down = |e: usize| s.inputs[0][e % n..=e].iter().step_by(n).sum::<f64>();
    s.gives(&(0..n * n).map(down).collect::<Vec<_>>());
}

/// Every product of an image's element, a weight and a result's element of a convolution, by their places.
fn each_product(l: &Layer, mut see: impl FnMut(usize, usize, usize)) {
    let out = (l.image + 2 * (l.kernel / 2) - l.kernel) / l.stride + 1;
    let inside = 0..l.image;
    for n in 0..l.batch {
        for o in 0..l.outputs {
            for c in 0..l.inputs / l.groups {
                let channel = o / (l.outputs / l.groups) * (l.inputs / l.groups) + c;
                for e in 0..out * out * l.kernel * l.kernel {
                    let kernel = e % (l.kernel * l.kernel);
                    let place = e / (l.kernel * l.kernel);
                    let y = place / out * l.stride + kernel / l.kernel - l.kernel / 2;
                    let x = place % out * l.stride + kernel % l.kernel - l.kernel / 2;
                    if inside.contains(&y) && inside.contains(&x) {
                        let image = ((n * l.inputs + channel) * l.image + y) * l.image + x;
                        let weight = (o * (l.inputs / l.groups) + c) * l.kernel * l.kernel + kernel;
                        let result = (n * l.outputs + o) * out * out + place;
                        see(image as usize, weight as usize, result as usize);
                    }
                }
            }
        }
    }
}

#[test]
fn convolutions_have_both_gradients() {
    let plain = Layer {
        batch: 2,
        inputs: 4,
        outputs: 6,
        image: 7,
        kernel: 3,
        stride: 1,
        groups: 1,
    };
    let layers = [
        plain,
        Layer { stride: 2, ..plain },
        Layer { kernel: 1, ..plain },
        Layer { kernel: 5, ..plain },
        Layer { groups: 2, ..plain },
    ];
    for l in layers {
        let s = Small::of(convolutions::forward("conv", l));
        let mut wanted = vec![0.0; s.outputs[0].len()];
        each_product(&l, |x, w, y| wanted[y] += s.inputs[0][x] * s.inputs[1][w]);
        s.gives(&wanted);
        let s = Small::of(convolutions::grad_x("conv", l));
        let mut wanted = vec![0.0; s.inputs[0].len()];
        each_product(&l, |x, w, y| wanted[x] += s.inputs[1][w] * s.inputs[2][y]);
        s.gives(&wanted);
        let s = Small::of(convolutions::grad_w("conv", l));
        let mut wanted = vec![0.0; s.inputs[1].len()];
        each_product(&l, |x, w, y| wanted[w] += s.inputs[0][x] * s.inputs[2][y]);
        s.gives(&wanted);
    }
}

#[test]
fn the_work_of_a_convolution_is_that_of_its_products() {
    let inner = Layer {
        batch: 2,
        inputs: 4,
        outputs: 6,
        image: 7,
        kernel: 1,
        stride: 1,
        groups: 2,
    };
    let mut products = 0;
    each_product(&inner, |_, _, _| products += 1);
    let work = convolutions::forward("conv", inner).work;
    assert_eq!(work.operations, 2.0 * f64::from(products));
}

#[test]
fn pools_fold_windows() {
    for (size, step) in [(2, 2), (3, 2)] {
        let shape = [1, 2, 7, 7];
        let max = Small::of(convolutions::max_pool("pool", shape, size, step));
        let mean = Small::of(convolutions::avg_pool("pool", shape, size, step));
        let size = size as usize;
        let step = step as usize;
        let out = (7 - size) / step + 1;
        let window = |x: &[f64], e: usize| -> Vec<f64> {
            let [channel, y, x0] = [e / (out * out), e / out % out * step, e % out * step];
            let places = (0..size * size).map(|k| (y + k / size) * 7 + x0 + k % size);
            places.map(|p| x[channel * 49 + p]).collect()
        };
        let count = 2 * out * out;
        let greatest = |e| {
            window(&max.inputs[0], e)
                .into_iter()
                .fold(f64::MIN, f64::max)
        };
        max.gives(&(0..count).map(greatest).collect::<Vec<_>>());
        let middle = |e| window(&mean.inputs[0], e).iter().sum::<f64>() / (size * size) as f64;
        mean.gives(&(0..count).map(middle).collect::<Vec<_>>());
    }
}

#[test]
fn rows_are_looked_up_and_counted() {
    let s = Small::of(places::lookup("lookup", [5, 3], 11));
    let rows = s.inputs[1].iter().map(|&r| r as usize);
    let taken = rows.flat_map(|r| s.inputs[0][3 * r..3 * r + 3].to_vec());
    s.gives(&taken.collect::<Vec<_>>());
    let s = Small::of(places::histogram("histogram", 100, 7));
    let occurs = |bin: usize| s.inputs[0].iter().filter(|&&x| x as usize == bin).count();
    s.gives(&(0..7).map(|bin| occurs(bin) as f64).collect::<Vec<_>>());
}

#[test]
fn a_step_changes_the_rows_that_were_looked_up() {
    use monoglot::nn::Embedding;
    let table = Embedding::new(11, 3);
    let weight = table.weight.clone();
    let before = weight.to_vec::<f32>().expect("it runs");
    let mut step = places::descent(table, 5).expect("it is prepared");
    step().expect("it runs");
    let after = weight.to_vec::<f32>().expect("it runs");
    let ids = numbers(&[5], 11).to_vec::<i32>().expect("it is there");
    for row in 0..11 {
        let changed = before[3 * row..3 * row + 3] != after[3 * row..3 * row + 3];
        assert_eq!(changed, ids.contains(&(row as i32)), "row {row}");
    }
}

#[test]
fn orders_are_orders() {
    for shape in [&[37][..], &[4, 21]] {
        let width = shape[shape.len() - 1] as usize;
        let sorted = |row: &[f64]| {
            let mut row = row.to_vec();
            row.sort_by(f64::total_cmp);
            row
        };
        let s = Small::of(places::sort("sort", shape));
        s.gives(
            &s.inputs[0]
                .chunks(width)
                .flat_map(sorted)
                .collect::<Vec<_>>(),
        );
        let s = Small::of(places::argsort("argsort", shape));
        let rows = s.inputs[0].chunks(width).zip(s.outputs[0].chunks(width));
        for (row, places) in rows {
            let taken: Vec<f64> = places.iter().map(|&p| row[p as usize]).collect();
            assert_eq!(taken, sorted(row));
        }
        let s = Small::of(places::topk("topk", shape, 3));
        let greatest = |row: &[f64]| sorted(row).into_iter().rev().take(3).collect::<Vec<_>>();
        s.gives(
            &s.inputs[0]
                .chunks(width)
                .flat_map(greatest)
                .collect::<Vec<_>>(),
        );
        let rows = s.inputs[0].chunks(width).zip(s.outputs[1].chunks(3));
        let found = rows.flat_map(|(row, places)| places.iter().map(|&p| row[p as usize]));
        close(&found.collect::<Vec<_>>(), &s.outputs[0]);
    }
}
