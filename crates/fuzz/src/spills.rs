//! Which kernels keep values in the frame in their innermost loops. Flows in: a target's name; flows out: of each
//! row of the benchmarks and each model, the loops that do, and how often.

use crate::run::Scheduled;
use monoglot_codegen::lower;
use monoglot_device::open;
use monoglot_engine::backend;
use monoglot_models::{Workload, graph};
use monoglot_native::code::{Do, Ins, Operand};
use monoglot_native::table::Form;
use monoglot_native::{allocated, spills};
use monoglot_tensor::{Conv, DType, Device, Tensor};
use monoglot_uop::spec::verify_linear;
use monoglot_uop::{Arg, Listing, Result, UOp};
use std::sync::Arc;

/// An innermost loop that spills.
#[derive(Clone, Debug)]
pub struct Spill {
    /// Of which program.
    pub of: String,
    /// The kernel's name.
    pub kernel: String,
    /// Instructions of the loop, and those of them that multiply and add at once.
    pub size: [usize; 2],
    /// Instructions that read a place in the frame, and that write one: of general registers, of vectors.
    pub accesses: [[usize; 2]; 2],
    /// The kernel's code.
    pub listing: Arc<str>,
}

impl std::fmt::Display for Spill {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let [all, fused] = self.size;
        let [general, vector] = self.accesses;
        let of = |[reads, writes]: [usize; 2]| format!("{reads} read, {writes} written");
        write!(
            f,
            "{}: {}: of {all} instructions ({fused} fused): general {}; vectors {}",
            self.of,
            self.kernel,
            of(general),
            of(vector)
        )
    }
}

/// The innermost loops that spill in the kernels of these programs, and how many kernels there are.
///
/// # Errors
/// Where something does not compile.
pub fn spilling(programs: &[(String, Vec<UOp>)], device: Device) -> Result<(usize, Vec<Spill>)> {
    let runtime = open(device)?;
    let target = Arc::new(runtime.target().clone());
    let mut out = Vec::new();
    let mut count = 0;
    for (of, roots) in programs {
        let scheduled = Scheduled::new(roots, device, &target, false)?;
        for kernel in scheduled.kernels() {
            let back = backend(target.dialect);
            let (program, _) = lower(&kernel, &target, back, None, &mut |_, _| {})?;
            let Arg::Program(info) = program.arg() else {
                continue;
            };
            count += 1;
            let listing: Arc<str> = program.src()[2].arg().text().unwrap_or_default().into();
            let linear = verify_linear(program.src()[1].clone())?;
            let code = allocated(&Listing::of(&linear), info, &target)?;
            for l in spills::in_innermost_loops(&code) {
                let mut accesses = [[0; 2]; 2];
                for ins in &l.spills {
                    let vector = matches!(ins.op, Do::Vector(_));
                    let first = matches!(ins.src[0], Operand::Slot(_));
                    let writes = first && ins.dst.is_none() && ins.op != Do::Next;
                    accesses[usize::from(vector)][usize::from(writes)] += 1;
                }
                let is_fused = |i: &&Ins| matches!(i.op, Do::Vector(v) if v.form() == Form::Fma);
                out.push(Spill {
                    of: of.clone(),
                    kernel: info.name.clone(),
                    size: [l.ins.len(), l.ins.iter().filter(is_fused).count()],
                    accesses,
                    listing: listing.clone(),
                });
            }
        }
    }
    Ok((count, out))
}

/// The rows of the benchmarks that compute, and the models: programs without data.
///
/// # Errors
/// Where a model cannot be built.
pub fn programs(device: Device) -> Result<Vec<(String, Vec<UOp>)>> {
    let mut out = Vec::new();
    for (name, tensors) in rows(device)? {
        let roots = tensors.iter().map(Tensor::uop).collect::<Result<_>>()?;
        out.push((name.to_string(), roots));
    }
    for w in Workload::ALL {
        let roots = graph(w, w.has_layers().then_some(1), device)?.roots;
        let roots = roots.iter().map(Tensor::uop).collect::<Result<_>>()?;
        out.push((w.name().to_string(), roots));
    }
    Ok(out)
}

type Row = (&'static str, Vec<Tensor>);

fn rows(device: Device) -> Result<Vec<Row>> {
    let of = |shape: &[usize], d: DType| Tensor::empty(shape, d, device);
    let array = |shape: &[usize]| of(shape, DType::F32);
    let mut out: Vec<Row> = Vec::new();
    let mut row = |name: &'static str, t: Tensor| out.push((name, vec![t]));
    let gemms: [(&str, [usize; 3]); 10] = [
        ("gemm_f32_64", [64, 64, 64]),
        ("gemm_f32_128", [128, 128, 128]),
        ("gemm_f32_256", [256, 256, 256]),
        ("gemm_f32_512", [512, 512, 512]),
        ("gemm_f32_1024", [1024, 1024, 1024]),
        ("gemm_f32_1023", [1023, 1023, 1023]),
        ("gemm_f32_2047x1531x777", [2047, 1531, 777]),
        ("gemm_f32_64x4096x64", [64, 4096, 64]),
        ("gemm_f32_4096x64x4096", [4096, 64, 4096]),
        ("gemm_f32_8x4096x4096", [8, 4096, 4096]),
    ];
    for (name, [m, k, n]) in gemms {
        row(name, array(&[m, k]).matmul(&array(&[k, n])));
    }
    let square = || array(&[1024, 1024]);
    row("gemm_f32_nt_1024", square().matmul(&square().t()));
    let few = array(&[8, 4096]).matmul(&array(&[4096, 4096]).t());
    row("gemm_f32_nt_8x4096x4096", few);
    row("gemm_f32_tn_1024", square().t().matmul(&square()));
    row("gemm_f32_tt_1024", square().t().matmul(&square().t()));
    let many = array(&[64, 128, 64]).matmul(&array(&[64, 64, 128]));
    row("gemm_f32_64x_128x64x128", many);
    let short = || of(&[1024, 1024], DType::BF16);
    row("gemm_bf16_1024", short().matmul(&short()));
    let byte = || of(&[1024, 1024], DType::I8).cast(DType::I32);
    row("gemm_i8_1024", byte().matmul(&byte()));
    let large = || array(&[4096, 4096]);
    row("gemv_4096", large().matmul(&array(&[4096])));
    row("gemv_t_4096", large().t().matmul(&array(&[4096])));
    for (name, n, causal) in [
        ("attention_12x64_128", 128, false),
        ("attention_12x64_512", 512, false),
        ("attention_12x64_128_causal", 128, true),
        ("attention_12x64_512_causal", 512, true),
    ] {
        let x = || array(&[1, 12, n, 64]);
        row(name, x().attention(&x(), &x(), None, causal));
    }
    let x: [Tensor; 4] = std::array::from_fn(|_| array(&[1, 12, 1024, 64]));
    let y = x[0].attention(&x[1], &x[2], None, true);
    let mut flows = y.gradient_with(&x[3], &[&x[0], &x[1], &x[2]])?;
    flows.push(y);
    out.push(("attention_1024_causal_grad", flows));
    for (name, l) in LAYERS {
        let x = array(&[8, l.inputs, 56, 56]);
        let w = array(&[l.outputs, l.inputs / l.groups, l.kernel, l.kernel]);
        let how = Conv {
            stride: (l.stride as i64).into(),
            padding: ((l.kernel / 2) as i64).into(),
            groups: l.groups as i64,
            ..Conv::default()
        };
        let y = x.conv2d(&w, None, &how);
        let side = 56 / l.stride;
        let back = array(&[8, l.outputs, side, side]);
        let gradients = y.gradient_with(&back, &[&x, &w])?;
        out.push((name, vec![y]));
        out.push((name, gradients));
    }
    let mut row = |name: &'static str, t: Tensor| out.push((name, vec![t]));
    row("softmax_4096x4096", large().softmax(1));
    let x = array(&[4096, 1024]);
    let one = || array(&[1024]);
    let normal = x.layer_norm(vec![1024i64], Some(&one()), Some(&one()), 1e-5);
    row("layernorm_4096x1024", normal);
    row("sum_axis0_4096x4096", large().sum(0, false));
    row("sum_16M", array(&[1 << 24]).sum(.., false));
    row("max_16M", array(&[1 << 24]).max(.., false));
    let n = || array(&[1 << 24]);
    row("chain_16M", (n() * 2.0 + 1.0).relu().exp() * n());
    row("transpose_4096", large().t().contiguous());
    row("cumsum_4096", large().cumsum(-1));
    row("cumsum_axis0_4096", large().cumsum(0));
    Ok(out)
}

struct Layer {
    inputs: usize,
    outputs: usize,
    kernel: usize,
    stride: usize,
    groups: usize,
}

const fn layer(
    inputs: usize,
    outputs: usize,
    kernel: usize,
    stride: usize,
    groups: usize,
) -> Layer {
    Layer {
        inputs,
        outputs,
        kernel,
        stride,
        groups,
    }
}

/// Convolutions of 8 images of 56×56.
const LAYERS: [(&str, Layer); 6] = [
    ("conv3x3_64_64", layer(64, 64, 3, 1, 1)),
    ("conv1x1_256_64", layer(256, 64, 1, 1, 1)),
    ("conv3x3_64_64_stride2", layer(64, 64, 3, 2, 1)),
    ("conv5x5_32_32", layer(32, 32, 5, 1, 1)),
    ("conv3x3_64_64_groups4", layer(64, 64, 3, 1, 4)),
    ("dwconv3x3_64", layer(64, 64, 3, 1, 64)),
];
