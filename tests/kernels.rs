//! How many kernels programs become, on NULL, which compiles and runs nothing, for one kind of machine
//! whatever this one is. Flows in: the façade; flows out: counts, each with the limit that keeps it.

use monoglot::compiler::engine::{compile, default_device};
use monoglot::compiler::uop::text::print;
use monoglot::prelude::*;
use monoglot::{Config, Conv, models, nn};

fn input(shape: impl Into<monoglot::Dims>) -> Tensor {
    Config {
        device: Some("NULL:C:x86-64-v3".into()),
        ..Config::default()
    }
    .set();
    Tensor::empty(shape, DType::F32, default_device())
}

fn kernels(roots: &[&Tensor]) -> usize {
    let roots: Result<Vec<_>> = roots.iter().map(|t| t.uop()).collect();
    compile(&roots.expect("well-formed"))
        .expect("it compiles")
        .kernels
}

#[test]
fn a_chain_of_elementwise_operations_is_one() {
    let x = input([1024]);
    let y = (0..20).fold(x, |x, i| {
        if i % 2 == 0 {
            &x * 1.5 + 0.25
        } else {
            x.relu()
        }
    });
    assert_eq!(kernels(&[&y]), 1);
}

#[test]
fn a_softmax_by_hand_is_at_most_three() {
    for shape in [
        &[64, 256][..],
        &[4096, 4096],
        &[8, 12, 128, 128],
        &[3, 7],
        &[1, 30_000],
    ] {
        let x = input(shape);
        let e = (&x - x.max(-1, true)).exp();
        let y = &e / e.sum(-1, true);
        assert!(kernels(&[&y]) <= 3, "{shape:?}: {}", kernels(&[&y]));
    }
}

#[test]
fn a_product_takes_its_epilogue_along() {
    let a = input([64, 128]);
    let b = input([128, 96]);
    let bias = input([96]);
    assert_eq!(kernels(&[&(a.matmul(&b) + bias).gelu()]), 1);
}

/// Two in one kernel would leave no registers for a tile of either; where they are little, a kernel costs more than that.
#[test]
fn products_that_meet_are_a_kernel_each() {
    let x = input([64, 128]);
    let weights = [256, 256].map(|n| input([n, 128]));
    let [gate, up] = weights.each_ref().map(|w| x.linear(w, None));
    assert_eq!(kernels(&[&(gate.silu() * &up)]), 2);
    assert_eq!(kernels(&[&(&gate + &up)]), 2);
    let both = (&gate + &up).gradient_with(&input([64, 256]), &[&x]);
    assert_eq!(kernels(&[&both.expect("it has one")[0]]), 2);
    // What several steps give back to one matrix, the first of which had nothing to go on from.
    let step =
        |h: Tensor, k: i64| (h.matmul(&weights[1].narrow(0, 0, 128)) + &x.narrow(0, k, 1)).tanh();
    let state = (0..4).fold(Tensor::zeros([64, 128]), step);
    let back = state.gradient_with(&input([64, 128]), &[&weights[1]]);
    let back = kernels(&[&back.expect("it has one")[0]]);
    assert!(back <= 3 * 4 + 2, "{back}");
    // One of few terms beside one of many.
    let low = x.linear(&input([8, 128]), None).contiguous();
    let adapted = &gate + low.linear(&input([256, 8]), None);
    assert_eq!(kernels(&[&adapted]), 3);
    let few = input([4, 8]);
    let little = weights.map(|w| few.linear(&w.narrow(1, 0, 8), None));
    assert_eq!(kernels(&[&(&little[0] + &little[1])]), 1);
}

#[test]
fn reductions_of_one_input_share_a_kernel() {
    let x = input([64, 256]);
    assert_eq!(kernels(&[&x.sum(1, false), &x.max(1, false)]), 1);
}

/// However long the rows that many results read, their parts are added where they are made.
#[test]
fn a_long_sum_of_products_is_one_kernel() {
    for shifts in [160, 16] {
        let x = input([20_480 + shifts - 1]).unfold(0, 20_480, 1);
        assert_eq!(kernels(&[&(x * input([20_480])).sum(1, false)]), 1);
    }
}

/// PEERS' convolutional network with Adam: 14 parameter tensors. tinygrad launches 123.
#[test]
fn a_training_step_is_at_most_sixty() {
    let x = input([512, 1, 28, 28]);
    let y = Tensor::empty([512], DType::I32, default_device());
    nn::without_data(|| {
        let net = models::ConvNet::new();
        let adam = Adam::new(&net, 1e-3);
        let loss = net.forward(&x).cross_entropy(&y, Reduction::Mean, 0.0);
        let parameters = net.parameters();
        let gradients = loss
            .gradient(&parameters.iter().collect::<Vec<_>>())
            .expect("a gradient");
        let mut roots = vec![loss];
        roots.extend(adam.update(&gradients));
        roots.extend(net.buffers());
        let n = kernels(&roots.iter().collect::<Vec<_>>());
        assert!(n <= 60, "{n} kernels");
    });
}

#[test]
fn a_running_fold_along_any_axis_is_one() {
    for axis in 0..3 {
        let x = input([64, 96, 80]);
        for y in [x.cumsum(axis), x.cumprod(axis), x.cummax(axis)] {
            assert_eq!(kernels(&[&y]), 1, "{axis}");
        }
    }
    let x = input([4096]);
    assert_eq!(kernels(&[&x.cumsum(0)]), 1);
    // A long row alone is cut in blocks, whose sums are summed first.
    assert!(kernels(&[&input([100_000]).cumsum(0)]) <= 3);
    let i = Tensor::arange(0, 4096, 1);
    let above = i.unsqueeze(0).le(i.unsqueeze(1));
    let y = above
        .select(x.unsqueeze(0), Tensor::scalar(0f32))
        .sum(1, false);
    assert_eq!(kernels(&[&y]), 1);
}

#[test]
fn what_goes_to_places_of_data_is_no_more_than_two() {
    let table = input([3000, 128]);
    let ids = Tensor::empty([512], DType::I32, default_device());
    let picked = table.index_select(0, &ids) * input([512, 128]);
    let gradient = picked
        .sum(.., false)
        .gradient(&[&table])
        .expect("it has one");
    assert!(kernels(&[&gradient[0]]) <= 2);
    let ones = Tensor::ones([512]).cast(DType::I32);
    let none = Tensor::zeros([300]).cast(DType::I32);
    assert!(kernels(&[&none.scatter_add(0, &ids, &ones)]) <= 2);
}

/// However wide the rows of a table are, and also where the table is a product's operand: what is added to its
/// gradient there is a kernel of its own. Where an index is equal to data is neither stored nor kept for all rows.
#[test]
fn gradients_of_lookups_go_where_their_ids_say() {
    let cases = [
        (1000, 72, 8192, false),
        (1000, 128, 8192, false),
        (50_257, 768, 1024, false),
        (1000, 128, 512, true),
        (50_257, 768, 128, true),
    ];
    for (rows, width, count, tied) in cases {
        let table = input([rows, width]);
        let ids = Tensor::empty([count], DType::I32, default_device());
        let found = table.embedding(&ids);
        let found = match tied {
            true => found.tanh().linear(&table, None),
            false => found,
        };
        let loss = found.square().mean(.., false);
        let gradient = loss.gradient(&[&table]).expect("it has one");
        let root = gradient[0].uop().expect("well-formed");
        let programs = compile(&[root]).expect("it compiles").programs;
        let mut opts = programs.iter().map(|p| print(&p.src()[0]));
        assert!(
            opts.any(|o| o.contains("SCATTER")),
            "{rows} {width} {count} {tied}"
        );
    }
}

/// No index is compared with every place, of what is put there last, and of elements that are told apart.
#[test]
fn what_is_put_at_places_of_data_follows_them() {
    let ids = Tensor::empty([5000], DType::I32, default_device());
    let put = input([40_000]).scatter(0, &ids, &input([5000]));
    let rows = Tensor::empty([50, 300], DType::I32, default_device());
    let along = input([70, 300]).scatter(0, &rows, &input([50, 300]));
    let inverse = input([5000]).unique().inverse;
    for (case, y) in [put, along, inverse].iter().enumerate() {
        let root = y.uop().expect("well-formed");
        let programs = compile(&[root]).expect("it compiles").programs;
        let opts = programs.iter().map(|p| print(&p.src()[0]));
        let folds = opts.filter(|o| o.contains("REDUCE[MAX]") || o.contains("SCATTER"));
        let folds: Vec<String> = folds.collect();
        assert!(!folds.is_empty(), "{case}");
        for kernel in folds {
            assert!(kernel.contains("SCATTER"), "{case}: {kernel}");
        }
    }
}

/// Of a product of any length: its tree has as many levels as that has digits, and those that several places want are stored.
#[test]
fn long_products_have_gradients() {
    for n in [65_537, 300_000] {
        let x = input([n]);
        let gradient = x.prod(.., false).gradient(&[&x]);
        let root = gradient.expect("it has one")[0].uop().expect("well-formed");
        let kernels = compile(&[root]).expect("it compiles").kernels;
        assert!(kernels <= 24, "{n}: {kernels}");
    }
}

/// Three steps of the network are a kernel: of 1,024 elements, 55 steps in 10 blocks.
#[test]
fn a_sort_does_three_steps_a_kernel() {
    let blocks = (1..=10).map(|steps: usize| steps.div_ceil(3));
    let steps: usize = blocks.sum();
    for descending in [false, true] {
        let order = input([1000]).argsort(0, descending);
        assert!(kernels(&[&order]) <= steps + 2, "{}", kernels(&[&order]));
        let values = input([7, 1000]).sort(1, descending);
        assert!(kernels(&[&values]) <= steps + 3, "{}", kernels(&[&values]));
    }
}

/// The greatest of groups of eight and of eight such groups; of three levels the places in order and those of the
/// first, of the lower two the elements and where they are; and the elements that were found.
#[test]
fn a_few_that_stand_first_are_found_in_groups() {
    for largest in [false, true] {
        let (values, from) = input([64, 4096]).topk(10, 1, largest);
        let found = kernels(&[&values, &from]);
        assert!(found <= 2 + 2 + 4 + 4 + 1, "{found}");
        // The greatest of the whole row, and where it is.
        let (values, from) = input([64, 100]).topk(1, 1, largest);
        let found = kernels(&[&values, &from]);
        assert!(found <= 2, "{found}");
    }
}

#[test]
fn windows_over_planes_are_one() {
    let x = input([8, 64, 56, 56]);
    let how = Conv {
        padding: 1.into(),
        groups: 64,
        ..Conv::default()
    };
    let y = x.relu().conv2d(&input([64, 1, 3, 3]), None, &how);
    assert_eq!(kernels(&[&y]), 1);
    for (size, step, padding) in [(2, 2, 0), (3, 2, 0), (3, 2, 1), (3, 1, 1)] {
        assert_eq!(kernels(&[&x.max_pool(size, step, padding, 1)]), 1);
        assert_eq!(kernels(&[&x.avg_pool(size, step, padding, true)]), 1);
    }
}

/// What surrounds an image is copied with it, but for rows of more than three vectors and at most four of the eight lanes
/// that this machine has.
#[test]
fn whole_rows_are_read_where_they_lie() {
    for (width, copied) in [(20, true), (28, false), (32, false), (40, true)] {
        let x = input([8, 64, 16, width]);
        let how = Conv {
            padding: 1.into(),
            groups: 64,
            ..Conv::default()
        };
        let y = x.conv2d(&input([64, 1, 3, 3]), None, &how);
        let root = y.uop().expect("well-formed");
        let programs = compile(&[root]).expect("it compiles").programs;
        let text: String = programs.iter().map(|p| print(&p.src()[0])).collect();
        assert_eq!(text.contains("LOCAL]"), copied, "{width}: {text}");
    }
}

/// Each of four phases of a stride of two is a product of its own, where its taps are, and one kernel puts them
/// together.
#[test]
fn what_flows_back_by_strides_is_summed_in_phases() {
    let x = input([8, 64, 56, 56]);
    let how = Conv {
        stride: 2.into(),
        padding: 1.into(),
        ..Conv::default()
    };
    let y = x.conv2d(&input([64, 64, 3, 3]), None, &how);
    let back = y.gradient_with(&input([8, 64, 28, 28]), &[&x]);
    assert!(kernels(&[&back.expect("it has one")[0]]) <= 12);
}

/// The padded image of a grouped convolution, and of its gradient, is stored: channels of a group read it again.
#[test]
fn padded_images_of_groups_are_stored() {
    let x = input([8, 64, 56, 56]);
    let how = Conv {
        padding: 1.into(),
        groups: 4,
        ..Conv::default()
    };
    let y = x.conv2d(&input([64, 16, 3, 3]), None, &how);
    assert_eq!(kernels(&[&y]), 2);
    let back = y.gradient_with(&input([8, 64, 56, 56]), &[&x]);
    assert_eq!(kernels(&[&back.expect("it has one")[0]]), 2);
}
