//! Derived properties: a row for every op (dtype, shape, device, address space, bounds, sharding
//! axis), and bounds against random values. Flows in: the op table and random expressions; flows
//! out: a failed test that prints the node.

use monoglot_uop::fold::fold;
use monoglot_uop::text::parse_many;
use monoglot_uop::*;
use rustc_hash::FxHashMap;

/// Named sources for the rows.
const PRELUDE: &str = r#"
f = PARAM[0, f32, CPU] (4, 8)
h = BUFFER[0, f16, CPU] (4, 8)
d = PARAM[1, i32, "(CPU,CPU:1)"] (4, 6)
n = PARAM[2, index] () 1 9
b = PARAM[3, bool] (4, 8)
u = PARAM[4, u8, CPU] ()
l = BUFFER[1, i32, LOCAL] (16,)
i = RANGE[0, LOOP] 4
k = RANGE[1, REDUCE] 5
t = TUPLE f d
"#;

/// A node, and its dtype and shape; device; address space; bounds; axis (`-` for none).
const ROWS: &[(&str, &str)] = &[
    (
        r#"PARAM[9, i8, "CPU:1"] (n, 2)"#,
        "i8(?9, 2) CPU:1 GLOBAL -128..127 -",
    ),
    ("PARAM[9, index] () -3 n", "index - - -3..9 -"),
    (
        r#"PARAM[9, f32, "(A,B)"] (4, 2)"#,
        "f32(4, 2) (A,B) GLOBAL ? 0",
    ),
    (
        "BUFFER[3.1, u16, CPU] (7,)",
        "u16(7,) CPU GLOBAL 0..65535 -",
    ),
    (
        "BUFFER[3, i64, REG] (7, 4)",
        "i64(7, 4) - REG -9223372036854775808..9223372036854775807 -",
    ),
    ("CONST[5u8]", "u8 - - 5..5 -"),
    ("CONST[nan_f32]", "f32 - - ? -"),
    (
        "CONST[INVALID]",
        "index - - -9223372036854775808..9223372036854775807 -",
    ),
    (
        "PERMUTE[1, 0] d",
        "i32(6, 4) (CPU,CPU:1) GLOBAL -2147483648..2147483647 1",
    ),
    (
        "FLIP[1] d",
        "i32(4, 6) (CPU,CPU:1) GLOBAL -2147483648..2147483647 0",
    ),
    (
        "FLIP[0] d",
        "i32(4, 6) (CPU,CPU:1) GLOBAL -2147483648..2147483647 -",
    ),
    (
        "RESHAPE d (1, 4, 2, 3)",
        "i32(1, 4, 2, 3) (CPU,CPU:1) GLOBAL -2147483648..2147483647 1",
    ),
    (
        "RESHAPE d (24,)",
        "i32(24,) (CPU,CPU:1) GLOBAL -2147483648..2147483647 0",
    ),
    (
        "RESHAPE d (3, 8)",
        "i32(3, 8) (CPU,CPU:1) GLOBAL -2147483648..2147483647 -",
    ),
    ("EXPAND u ()", "u8 CPU GLOBAL 0..255 -"),
    (
        "PAD[300] d (1, 0) (6, 6)",
        "i32(6, 6) (CPU,CPU:1) GLOBAL -2147483648..2147483647 -",
    ),
    ("PAD[-0.0] f (1, 0) (6, 8)", "f32(6, 8) CPU GLOBAL ? -"),
    (
        "SHRINK d (0, 1) (4, 2)",
        "i32(4, 2) (CPU,CPU:1) GLOBAL -2147483648..2147483647 0",
    ),
    ("INDEX f i", "f32(8,) CPU GLOBAL ? -"),
    (
        "INDEX d (0, 2, 1)",
        "i32(3, 6) (CPU,CPU:1) GLOBAL -2147483648..2147483647 -",
    ),
    ("INDEX l i", "i32 - LOCAL -2147483648..2147483647 -"),
    ("STACK i n", "index(2,) - - 0..9 -"),
    (
        "STACK d d",
        "i32(2, 4, 6) (CPU,CPU:1) - -2147483648..2147483647 1",
    ),
    (
        "SHUFFLE l l (0i32, 16i32, 31i32)",
        "i32(3,) - - -2147483648..2147483647 -",
    ),
    ("BITCAST[u8] f", "u8(4, 32) CPU GLOBAL 0..255 -"),
    (
        "REPLICATED[0] d",
        "i32(1, 6) (CPU,CPU:1) GLOBAL -2147483648..2147483647 -",
    ),
    (
        "REDUCE[ADD, 1] d",
        "i32(4, 1) (CPU,CPU:1) - -2147483648..2147483647 0",
    ),
    (
        "REDUCE[MAX, 0] d",
        "i32(1, 6) (CPU,CPU:1) - -2147483648..2147483647 -",
    ),
    ("REDUCE[ADD] i k", "index - - 0..15 -"),
    ("FUNCTION t f d", "void CPU - ? -"),
    ("CALL t f d", "void CPU - ? -"),
    ("TUPLE f d", "void CPU - ? -"),
    (
        "GETTUPLE[1] t",
        "i32(4, 6) (CPU,CPU:1) - -2147483648..2147483647 0",
    ),
    ("LOAD[\"CPU:1\", LOCAL] f", "f32(4, 8) CPU:1 LOCAL ? -"),
    (r#"COPY["(A,B)", GLOBAL] f"#, "f32(4, 8) (A,B) - ? 0"),
    (
        "COPY[CPU, GLOBAL] d",
        "i32(4, 6) CPU - -2147483648..2147483647 -",
    ),
    (
        "CONTIGUOUS d",
        "i32(4, 6) (CPU,CPU:1) - -2147483648..2147483647 0",
    ),
    ("STORE f 1", "void CPU - ? -"),
    ("RANGE[7, LOOP] n", "index - - 0..8 -"),
    ("END i k", "void - - ? -"),
    ("AFTER l i", "i32(16,) - LOCAL -2147483648..2147483647 -"),
    ("GROUP", "void - - ? -"),
    ("SINK", "void - - ? -"),
    ("LINEAR i", "void - - ? -"),
    ("RECIP f", "f32(4, 8) CPU - ? -"),
    ("TRUNC 1.5", "f32 - - 1.0..1.0 -"),
    ("CAST[i8] u", "i8 CPU - -128..127 -"),
    ("CAST[bool] n", "bool - - true..true -"),
    ("CAST[f16] i", "f16 - - 0.0..3.0 -"),
    ("ADD i n", "index - - 1..12 -"),
    ("ADD u u", "u8 CPU - 0..255 -"),
    (
        "ADD d 1",
        "i32(4, 6) (CPU,CPU:1) - -2147483648..2147483647 0",
    ),
    ("MUL i -3", "index - - -9..0 -"),
    ("MAX i 2", "index - - 2..3 -"),
    ("MOD n 4", "index - - 0..3 -"),
    ("IDIV i n", "index - - 0..3 -"),
    ("CMPLT i 4", "bool - - true..true -"),
    ("CMPLT f 4", "bool(4, 8) CPU - false..true -"),
    ("CMPNE i n", "bool - - false..true -"),
    ("XOR i 4", "index - - 0..7 -"),
    ("OR i 4", "index - - 0..7 -"),
    ("AND n 2", "index - - 0..2 -"),
    ("SHR n 1", "index - - 0..4 -"),
    ("SHL n 2", "index - - 4..36 -"),
    ("WHERE b f 0", "f32(4, 8) CPU - ? -"),
    ("WHERE true i n", "index - - 0..9 -"),
    ("NEG n", "index - - -9..-1 -"),
    ("NOT b", "bool(4, 8) - - false..true -"),
    ("EXP2 f", "f32(4, 8) CPU - ? -"),
    ("LOG2 f", "f32(4, 8) CPU - ? -"),
    ("SIN 0.5", "f32 - - -1.0..1.0 -"),
    ("SQRT 4.0", "f32 - - 2.0..2.0 -"),
    ("SUB i n", "index - - -9..2 -"),
    ("DIV f f", "f32(4, 8) CPU - ? -"),
    ("CMPGT n 0", "bool - - true..true -"),
    ("CMPGE i 1", "bool - - false..true -"),
    ("CMPLE i 3", "bool - - true..true -"),
    ("CMPEQ i 5", "bool - - false..false -"),
    ("POW f 2", "f32(4, 8) CPU - ? -"),
    ("MULACC i n 1", "index - - 1..28 -"),
    ("THREEFRY 1u64 2u64", "u64 - - 0..18446744073709551615 -"),
    ("CONTIGUOUSBACKWARD f", "f32(4, 8) CPU - ? -"),
    (
        "DETACH d",
        "i32(4, 6) (CPU,CPU:1) - -2147483648..2147483647 0",
    ),
    (r#"ASSERT["why"] f b"#, "f32(4, 8) CPU - ? -"),
    ("BARRIER", "void - - ? -"),
    (
        r#"INS["add"] i n"#,
        "index - - -9223372036854775808..9223372036854775807 -",
    ),
    ("GETADDR[CPU] f", "u64 CPU - 0..18446744073709551615 -"),
    (r#"SPECIAL["gidx0"] 4i32"#, "i32 - - 0..3 -"),
    ("IF b", "void - - ? -"),
    ("ENDIF b", "void - - ? -"),
    (
        r#"WMMA["m", dims=[8, 8, 8], threads=32, in=[f32, f32], out=f32] f f f"#,
        "f32(4, 8) CPU - ? -",
    ),
    (
        r#"CUSTOM["{0}"] n"#,
        "index - - -9223372036854775808..9223372036854775807 -",
    ),
    ("ATOMICADD l 1", "void - - ? -"),
    (r#"CUSTOMFUNCTION["decode", CPU]"#, "void - - ? -"),
    (r#"PROGRAM["k"] f"#, "void CPU - ? -"),
    (r#"SOURCE["int x;"]"#, "void - - ? -"),
    ("TRUNCDIV i n", "index - - 0..3 -"),
    ("TRUNCMOD i n", "index - - 0..3 -"),
];

fn describe(u: &UOp) -> String {
    let shape = if u.shape().is_empty() {
        String::new()
    } else {
        u.shape().to_string()
    };
    let device = u.device().map_or("-", |d| d.name());
    let space = u.addrspace().map_or("-", |s| s.name());
    let show = |s: Scalar| match s {
        Scalar::Bool(b) => b.to_string(),
        Scalar::Int(i) => i.to_string(),
        Scalar::Float(f) => format!("{f:?}"),
        Scalar::Invalid => "INVALID".into(),
    };
    let bounds = u.min_max().map_or("?".to_string(), |(a, b)| {
        format!("{}..{}", show(a), show(b))
    });
    let axis = u.axis().map_or("-".to_string(), |a| a.to_string());
    format!("{}{shape} {device} {space} {bounds} {axis}", u.dtype())
}

#[test]
fn every_op_has_its_properties() {
    let mut wrong = String::new();
    let mut seen = OpSet::EMPTY;
    for (row, want) in ROWS {
        let roots =
            parse_many(&format!("{PRELUDE}\n{row}")).unwrap_or_else(|e| panic!("{row}: {e}"));
        let u = &roots[0];
        seen = seen.with(u.op());
        let printed = u.to_string();
        let is = describe(u);
        if text::parse(&printed).map(|back| back.to_string()) != Ok(printed) {
            wrong += &format!("{row} does not print and parse\n");
        }
        if is != *want {
            wrong += &format!("{row}\n  is   {is}\n  want {want}\n");
        }
    }
    // What no text gives.
    let binary = UOp::new(Op::Binary, vec![], Arg::Bytes([0u8, 255][..].into()));
    assert_eq!(describe(&binary), "u8(2,) - - 0..255 -");
    seen = seen.with(Op::Binary);
    for op in Op::ALL.iter().filter(|op| !seen.contains(**op)) {
        wrong += &format!("{} has no row\n", op.name());
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn functions_put_their_arguments_into_shapes() {
    let text = "\
n = PARAM[0, index] () 1 9
x = PARAM[1, f32, CPU] (n, 2)
y = NEG x
t = TUPLE y
m = PARAM[4, index] () 2 3
v = PARAM[5, f32, CPU] (m, 2)
f = FUNCTION t m v
GETTUPLE[0] f
";
    let u = text::parse(text).expect("it parses");
    assert_eq!(u.shape()[0].max(), 3);
    assert_eq!(u.shape()[0].to_uop().buffer_arg().map(|b| b.slot), Some(4));
}

#[test]
fn variables_have_values() {
    let n = UOp::variable(3, 1, 100);
    let m = UOp::variable(8, 0, 7);
    let e = &(&n * 4 + &m) % 10;
    assert_eq!(e.sym_infer(&[(3, 5), (8, 7)]), Ok(7));
    assert_eq!(n.lt(&m).sym_infer(&[(8, 7), (3, 2)]), Ok(1));
    let message = |vars: &[(u64, i64)]| e.sym_infer(vars).expect_err("no value").to_string();
    assert_eq!(message(&[(3, 5)]), "sym_infer: variable 8 has no value");
    assert_eq!(
        message(&[(3, 101), (8, 0)]),
        "sym_infer: variable 3 is 101, outside 1..=100"
    );
    assert!(UOp::range(4i64, 0, AxisType::Loop).sym_infer(&[]).is_err());
    // A chain of 100,000 nodes takes no recursion.
    let mut u = m.clone();
    for _ in 0..100_000 {
        u = &u + 1;
    }
    assert_eq!(u.sym_infer(&[(8, 2)]), Ok(100_002));
    assert_eq!(u.axis(), None);
}

/// Numbers that look random and are the same in every run.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
    fn between(&mut self, lo: i128, hi: i128) -> i128 {
        let near = |r: &mut Rng| (r.below(9) as i128) - 4;
        let a = near(self);
        let b = near(self);
        match self.below(4) {
            0 => (lo + a.max(0)).min(hi),
            1 => (hi - b.max(0)).max(lo),
            2 => a.clamp(lo, hi),
            _ => lo + (self.next() as i128) % (hi - lo + 1),
        }
    }
}

/// Leaves with the interval of values they may be given.
fn leaves(rng: &mut Rng) -> Vec<(UOp, i128, i128)> {
    let mut out = Vec::new();
    for slot in 0..3 {
        let lo = rng.below(40) as i64 - 20;
        let hi = rng.below(30) as i64;
        out.push((
            UOp::variable(slot, lo, lo + hi),
            lo as i128,
            (lo + hi) as i128,
        ));
    }
    let n = rng.below(9) as i64 + 1;
    out.push((UOp::range(n, 0, AxisType::Loop), 0, n as i128 - 1));
    for (i, &d) in [
        DType::Bool,
        DType::I8,
        DType::U8,
        DType::I32,
        DType::U32,
        DType::I64,
        DType::U64,
    ]
    .iter()
    .enumerate()
    {
        let bound = |s: Scalar| s.to_i128();
        out.push((
            UOp::param(10 + i as u64, &Shape::SCALAR, d, None),
            bound(d.min()),
            bound(d.max()),
        ));
    }
    out
}

fn grow(rng: &mut Rng, all: &mut Vec<UOp>, size: usize) {
    let ops: Vec<Op> = Op::ALL
        .iter()
        .copied()
        .filter(|op| op.is_elementwise())
        .collect();
    let dtypes = [
        DType::Bool,
        DType::I8,
        DType::U8,
        DType::I32,
        DType::U64,
        DType::Index,
        DType::F32,
        DType::F16,
    ];
    for _ in 0..size {
        let op = *rng.pick(&ops);
        let a = rng.pick(all).clone();
        let partner = |rng: &mut Rng| match rng.below(2) {
            0 => UOp::constant(Scalar::Int(rng.below(40) as i128 - 16), a.dtype()),
            _ => rng.pick(all).clone(),
        };
        let b = partner(rng);
        let c = partner(rng);
        let (src, arg) = match op {
            Op::Cast => (vec![a], Arg::DType(*rng.pick(&dtypes))),
            op => (vec![a, b, c][..op.arity().0].to_vec(), Arg::None),
        };
        if let Ok(u) = UOp::try_new(op, src, arg) {
            all.push(u);
        }
    }
}

fn holds(u: &UOp, v: Scalar) -> bool {
    match (u.min_max(), v) {
        (None, _) => true,
        (Some((lo, hi)), Scalar::Float(f)) => lo.to_f64() <= f && f <= hi.to_f64(),
        (Some((lo, hi)), v) => lo.to_i128() <= v.to_i128() && v.to_i128() <= hi.to_i128(),
    }
}

#[test]
fn bounds_hold_every_value() {
    let mut rng = Rng(0x1234_5678_9abc_def1);
    for _ in 0..2500 {
        let leaves = leaves(&mut rng);
        let mut all: Vec<UOp> = leaves.iter().map(|l| l.0.clone()).collect();
        grow(&mut rng, &mut all, 40);
        for _ in 0..20 {
            let mut known: FxHashMap<UOp, Scalar> = FxHashMap::default();
            for (u, lo, hi) in &leaves {
                let v = rng.between(*lo, *hi);
                known.insert(u.clone(), Scalar::Int(v).cast(u.dtype()));
            }
            for u in &all {
                let get = |s: &UOp| s.const_value().or(known.get(s).copied());
                let src: Option<Vec<Scalar>> = u.src().iter().map(get).collect();
                let (Some(src), false) = (src, known.contains_key(u)) else {
                    continue;
                };
                let Some(v) = fold(u.op(), u.src()[0].dtype(), u.dtype(), &src) else {
                    continue;
                };
                // What leaves i64 is no index: it cannot be lowered.
                if u.dtype() == DType::Index && v.as_int().is_none() {
                    continue;
                }
                assert!(
                    holds(u, v),
                    "{u}is {v:?} of {src:?}, outside {:?}",
                    u.min_max()
                );
                known.insert(u.clone(), v);
            }
        }
    }
}

/// What is compared with a bound and chosen by that is no more than the bound lets through, in all four forms.
#[test]
fn bounds_hold_what_a_comparison_chooses() {
    for (from, to, k) in [(-5, 9, 3), (0, 4, 4), (2, 7, 0), (-3, -1, 5), (1, 1, 1)] {
        let x = UOp::variable(0, from, to);
        let bound = x.like(k);
        let [below, above] = [x.lt(&bound), bound.lt(&x)];
        let all = [
            (
                below.select(&x, &bound),
                from.min(k),
                (to.min(k - 1)).max(k),
            ),
            (below.select(&bound, &x), k, to.max(k)),
            (above.select(&x, &bound), k, to.max(k)),
            (above.select(&bound, &x), from.min(k), k),
        ];
        for (i, (u, least, most)) in all.iter().enumerate() {
            let (lo, hi) = u.bounds();
            for v in from..=to {
                let chosen = if i < 2 { v < k } else { k < v };
                let value = if chosen == (i % 2 == 0) { v } else { k };
                assert!(
                    (lo..=hi).contains(&value),
                    "{u}: {value} of {v}, in {lo} to {hi}"
                );
            }
            assert!(lo >= *least && hi <= *most, "{u}: {lo} to {hi}");
        }
    }
}

#[test]
fn bounds_hold_every_reduction() {
    let mut rng = Rng(99);
    for _ in 0..1500 {
        let n = rng.below(5) as i64 + 1;
        let d = *rng.pick(&[DType::Index, DType::I8, DType::U8, DType::F32, DType::Bool]);
        let r = UOp::range(n, 1, AxisType::Reduce);
        let mut all = vec![UOp::variable(0, -3, 4), r.clone(), r.cast(d)];
        grow(&mut rng, &mut all, 12);
        let Some(x) = all.iter().rev().find(|u| u.dtype() == d) else {
            continue;
        };
        let op = *rng.pick(ReduceOp::ALL);
        let u = x.reduce_ranges(op, &[r.clone()]);
        let mut acc = op.identity(d);
        let value = Scalar::Int(rng.below(8) as i128 - 3);
        let mut whole = true;
        for i in 0..n {
            let values = [(all[0].clone(), value), (r.clone(), Scalar::Int(i as i128))]
                .into_iter()
                .collect();
            match x
                .sym_eval(&values)
                .and_then(|v| fold(op.op(), d, d, &[acc, v]))
            {
                Some(v) => acc = v,
                None => whole = false,
            }
        }
        let whole = whole && (d != DType::Index || acc.as_int().is_some());
        assert!(
            !whole || holds(&u, acc),
            "{u}is {acc:?}, outside {:?}",
            u.min_max()
        );
    }
}
