//! C's side of dtypes: names of scalar and vector types, literals, and the table of vector
//! operations for which GNU C has no operator. Flows out: the prelude that a kernel's source needs,
//! and nothing it does not.

use monoglot_uop::{DType, Op, Scalar};
use std::fmt::Write;

/// The C name of a scalar type; storage of floats that C lacks is an integer of the width.
pub(crate) fn scalar(d: DType) -> &'static str {
    match d {
        DType::I8 => "i8",
        DType::I16 => "i16",
        DType::I32 => "i32",
        DType::I64 | DType::Index => "i64",
        DType::Bool | DType::U8 | DType::F8E4M3 | DType::F8E5M2 => "u8",
        DType::U16 | DType::BF16 => "u16",
        DType::U32 => "u32",
        DType::U64 => "u64",
        DType::F16 => "f16",
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::Void => "void",
    }
}

/// What the scalar names stand for.
const SCALARS: [(&str, &str); 11] = [
    ("i8", "signed char"),
    ("i16", "short"),
    ("i32", "int"),
    ("i64", "long long"),
    ("u8", "unsigned char"),
    ("u16", "unsigned short"),
    ("u32", "unsigned"),
    ("u64", "unsigned long long"),
    ("f16", "_Float16"),
    ("f32", "float"),
    ("f64", "double"),
];

/// The signed integer name of a width in bytes: the lanes of a mask.
pub(crate) fn signed(bytes: usize) -> &'static str {
    ["i8", "i16", "i32", "i64"][bytes.trailing_zeros().min(3) as usize]
}

/// The unsigned integer name of a width in bytes, in which arithmetic may wrap.
pub(crate) fn unsigned(bytes: usize) -> &'static str {
    ["u8", "u16", "u32", "u64"][bytes.trailing_zeros().min(3) as usize]
}

/// A literal that is exactly `v` in `d`. Decimal digits are the shortest that read back as the value.
pub(crate) fn literal(out: &mut String, v: Scalar, d: DType) {
    let done = match (v, d) {
        (Scalar::Float(f), DType::F64) => float(out, f, "", |out| write!(out, "{f:?}")),
        (Scalar::Float(f), DType::F32) => float(out, f, "f", |out| write!(out, "{:?}f", f as f32)),
        (Scalar::Float(f), DType::F16) => {
            out.push_str("(f16)");
            float(out, f, "f", |out| write!(out, "{:?}f", f as f32))
        }
        (v, DType::F8E4M3 | DType::F8E5M2 | DType::BF16) => write!(out, "{}", v.to_bits(d)),
        (Scalar::Bool(b), _) => write!(out, "{}", b as u8),
        (v, d) => {
            let i = v.to_i128();
            match d {
                DType::U32 => write!(out, "{i}u"),
                DType::U64 => write!(out, "{i}ull"),
                DType::I64 | DType::Index if i == i64::MIN as i128 => {
                    write!(out, "(-9223372036854775807ll - 1)")
                }
                DType::I64 | DType::Index if i < 0 => write!(out, "({i}ll)"),
                DType::I64 | DType::Index => write!(out, "{i}ll"),
                _ if i == i32::MIN as i128 => write!(out, "(-2147483647 - 1)"),
                _ if i < 0 => write!(out, "({i})"),
                _ => write!(out, "{i}"),
            }
        }
    };
    done.expect("writing to a String cannot fail");
}

fn float(
    out: &mut String,
    f: f64,
    suffix: &str,
    digits: impl FnOnce(&mut String) -> std::fmt::Result,
) -> std::fmt::Result {
    if f.is_nan() {
        return write!(out, "__builtin_nan{suffix}(\"\")");
    }
    if f.is_infinite() {
        return write!(out, "({}__builtin_inf{suffix}())", if f < 0.0 { "-" } else { "" });
    }
    if !f.is_sign_negative() {
        return digits(out);
    }
    out.push('(');
    digits(out)?;
    out.push(')');
    Ok(())
}

/// A vector operation that is a builtin of the compiler: the name of its macro is PREFIX_type.
pub(crate) struct Builtin {
    /// The macro's prefix.
    pub(crate) prefix: &'static str,
    /// Parameters.
    pub(crate) args: &'static str,
    /// clang's generic builtin, or "".
    generic: &'static str,
    /// gcc's for f32 (512, 256, 128 bits), then f64.
    x86: [&'static str; 6],
    /// Lane i of `r_` from `a_`, `b_`, `c_`; `~` stands for the suffix of f32's functions.
    lane: &'static str,
}

const FMA: Builtin = Builtin {
    prefix: "FMA",
    args: "a, b, c",
    generic: "__builtin_elementwise_fma(a, b, c)",
    x86: [
        "__builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4)",
        "__builtin_ia32_vfmaddps256(a, b, c)",
        "__builtin_ia32_vfmaddps(a, b, c)",
        "__builtin_ia32_vfmaddpd512_mask(a, b, c, -1, 4)",
        "__builtin_ia32_vfmaddpd256(a, b, c)",
        "__builtin_ia32_vfmaddpd(a, b, c)",
    ],
    lane: "__builtin_fma~(a_[i], b_[i], c_[i])",
};

const SQRT: Builtin = Builtin {
    prefix: "SQRT",
    args: "a",
    generic: "__builtin_elementwise_sqrt(a)",
    x86: [
        "__builtin_ia32_sqrtps512_mask(a, a, -1, 4)",
        "__builtin_ia32_sqrtps256(a)",
        "__builtin_ia32_sqrtps(a)",
        "__builtin_ia32_sqrtpd512_mask(a, a, -1, 4)",
        "__builtin_ia32_sqrtpd256(a)",
        "__builtin_ia32_sqrtpd(a)",
    ],
    lane: "__builtin_sqrt~(a_[i])",
};

const TRUNC: Builtin = Builtin {
    prefix: "TRUNC",
    args: "a",
    generic: "__builtin_elementwise_trunc(a)",
    x86: [
        "__builtin_ia32_rndscaleps_mask(a, 11, a, -1, 4)",
        "__builtin_ia32_roundps256(a, 11)",
        "__builtin_ia32_roundps(a, 11)",
        "__builtin_ia32_rndscalepd_mask(a, 11, a, -1, 4)",
        "__builtin_ia32_roundpd256(a, 11)",
        "__builtin_ia32_roundpd(a, 11)",
    ],
    lane: "__builtin_trunc~(a_[i])",
};

/// `a > b ? a : b`: the operand on the right where one is NaN.
const MAX: Builtin = Builtin {
    prefix: "MAX",
    args: "a, b",
    generic: "",
    x86: [
        "__builtin_ia32_maxps512_mask(a, b, a, -1, 4)",
        "__builtin_ia32_maxps256(a, b)",
        "__builtin_ia32_maxps(a, b)",
        "__builtin_ia32_maxpd512_mask(a, b, a, -1, 4)",
        "__builtin_ia32_maxpd256(a, b)",
        "__builtin_ia32_maxpd(a, b)",
    ],
    lane: "",
};

/// The builtin that computes `op` on float vectors, where an operator does not.
pub(crate) fn builtin(op: Op, d: DType) -> Option<&'static Builtin> {
    if !matches!(d, DType::F32 | DType::F64) {
        return None;
    }
    Some(match op {
        Op::MulAcc => &FMA,
        Op::Sqrt => &SQRT,
        Op::Trunc => &TRUNC,
        Op::Max => &MAX,
        _ => return None,
    })
}

/// Which pieces of the prelude a kernel uses, in order of first use.
#[derive(Default)]
pub(crate) struct Prelude {
    /// Vector types: scalar name and lanes.
    types: Vec<(&'static str, usize)>,
    builtins: Vec<(&'static str, DType, usize)>,
    halves: Vec<usize>,
    /// Loads and stores under a mask: whether it stores, bytes of a lane, lanes.
    masked: Vec<(bool, usize, usize)>,
    select: bool,
}

fn once<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

impl Prelude {
    /// `SEL(V, M, m, a, b)` is used.
    pub(crate) fn select(&mut self) {
        self.select = true;
    }

    /// The name of a vector type, noted as used.
    pub(crate) fn vector(&mut self, out: &mut String, name: &'static str, lanes: usize) {
        once(&mut self.types, (name, lanes));
        let _ = write!(out, "{name}x{lanes}");
    }

    /// The name of a builtin's macro for a float type, noted as used.
    pub(crate) fn builtin(&mut self, out: &mut String, b: &'static Builtin, d: DType, lanes: usize) {
        once(&mut self.types, (scalar(d), lanes));
        if b.prefix == "MAX" {
            once(&mut self.types, (signed(d.bytes()), lanes));
            self.select = true;
        }
        once(&mut self.builtins, (b.prefix, d, lanes));
        let _ = write!(out, "{}_{}x{lanes}", b.prefix, scalar(d));
    }

    /// The name of a load (`address, mask, other`) or store (`address, mask, value`) of the lanes that a
    /// mask as wide as the element keeps, noted as used.
    pub(crate) fn masked(&mut self, o: &mut String, store: bool, bytes: usize, lanes: usize) {
        once(&mut self.types, (signed(bytes), lanes));
        once(&mut self.masked, (store, bytes, lanes));
        // One of the ways to load merges with a select.
        self.select = true;
        let _ = write!(o, "{}_{}x{lanes}", if store { "STORE" } else { "LOAD" }, signed(bytes));
    }

    /// The conversions between f16 and f32 vectors are used.
    pub(crate) fn halves(&mut self, lanes: usize) {
        for name in ["f16", "f32", "i16", "u16"] {
            once(&mut self.types, (name, lanes));
        }
        once(&mut self.types, ("u16", 8));
        once(&mut self.types, ("i16", 8));
        once(&mut self.halves, lanes);
    }

    /// Everything noted, as text that may be repeated in one translation unit.
    pub(crate) fn text(&self) -> String {
        let mut out = String::with_capacity(512 + 160 * self.types.len());
        for (name, c) in SCALARS {
            let _ = writeln!(out, "typedef {c} {name};");
        }
        let mut counts: Vec<usize> = Vec::new();
        for &(name, lanes) in &self.types {
            let bytes = lanes * width(name);
            let _ = writeln!(out, "typedef {name} {name}x{lanes} __attribute__((vector_size({bytes})));");
            // The same vector anywhere in memory.
            let _ = writeln!(
                out,
                "typedef {name} {name}x{lanes}m __attribute__((vector_size({bytes}), aligned({}), may_alias));",
                width(name)
            );
            once(&mut counts, lanes);
        }
        for n in counts {
            let _ = writeln!(out, "#define X{n}(T, x) ((T){{{}}})", vec!["x"; n].join(", "));
        }
        if self.select {
            out.push_str("#define SEL(V, M, m, a, b) ((V)(((M)(a) & (m)) | ((M)(b) & ~(m))))\n");
        }
        for &(prefix, d, lanes) in &self.builtins {
            for b in [&FMA, &SQRT, &TRUNC, &MAX] {
                if b.prefix == prefix {
                    builtin_macro(&mut out, b, d, lanes);
                }
            }
        }
        for &(store, bytes, lanes) in &self.masked {
            masked_macro(&mut out, store, bytes, lanes);
        }
        for &lanes in &self.halves {
            half_macros(&mut out, lanes);
        }
        out
    }
}

/// Bytes of a scalar by its C name.
fn width(name: &str) -> usize {
    match &name[1..] {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        _ => 8,
    }
}

fn builtin_macro(out: &mut String, b: &Builtin, d: DType, lanes: usize) {
    let (name, double) = (scalar(d), d == DType::F64);
    let head = format!("#define {}_{name}x{lanes}({}) ", b.prefix, b.args);
    let x86 = match lanes * d.bytes() {
        64 => Some((0, "__AVX512F__")),
        32 => Some((1, if b.prefix == "FMA" { "__FMA__" } else { "__AVX__" })),
        16 => Some((2, if b.prefix == "FMA" { "__FMA__" } else { "__SSE4_1__" })),
        _ => None,
    };
    let _ = writeln!(out, "#ifndef {}_{name}x{lanes}", b.prefix);
    let mut test = "#if";
    if !b.generic.is_empty() {
        let call = b.generic.split('(').next().unwrap_or(b.generic);
        let _ = writeln!(out, "#if __has_builtin({call})\n{head}{}", b.generic);
        test = "#elif";
    }
    if let Some((i, feature)) = x86 {
        let call = b.x86[i + 3 * double as usize];
        let _ =
            writeln!(out, "{test} defined({feature}) && !defined(__clang__)\n{head}(({name}x{lanes}){call})");
        test = "#elif";
    }
    if test == "#elif" {
        out.push_str("#else\n");
    }
    if b.prefix == "MAX" {
        // Both compilers make the machine's maximum, or a comparison and a blend, of this.
        let (v, m) = (format!("{name}x{lanes}"), format!("{}x{lanes}", signed(d.bytes())));
        let _ = writeln!(out, "{head}SEL({v}, {m}, ({m})((a) > (b)), a, b)");
        out.push_str(if test == "#elif" { "#endif\n#endif\n" } else { "#endif\n" });
        return;
    }
    let (vector, suffix) = (format!("{name}x{lanes}"), if double { "" } else { "f" });
    let _ = write!(out, "{head}({{ {vector} r_");
    for arg in b.args.split(", ") {
        let _ = write!(out, ", {arg}_ = {arg}");
    }
    let lane = b.lane.replace('~', suffix);
    let _ = writeln!(out, "; for (int i = 0; i < {lanes}; i++) r_[i] = {lane}; r_; }})");
    out.push_str(if test == "#elif" { "#endif\n#endif\n" } else { "#endif\n" });
}

/// A load or store under a mask: one instruction with AVX-512, or AVX2 for lanes of 4 and 8 bytes.
fn masked_macro(out: &mut String, store: bool, bytes: usize, lanes: usize) {
    let (e, bits) = (signed(bytes), bytes * lanes * 8);
    let v = format!("{e}x{lanes}");
    let (name, args) = if store { ("STORE", "p, m, a") } else { ("LOAD", "p, m, a") };
    let head = format!("#define {name}_{v}({args}) ");
    let _ = writeln!(out, "#ifndef {name}_{v}");
    let mut test = "#if";
    if matches!(bits, 128 | 256 | 512) {
        // Letters of the element in the names of gcc's builtins.
        let (wide, letter) =
            [("qi", 'b'), ("hi", 'w'), ("si", 'd'), ("di", 'q')][bytes.trailing_zeros() as usize];
        let count = unsigned((lanes / 8).max(1));
        let ptr = ["char", "short", "int", "long long"][bytes.trailing_zeros() as usize];
        // gcc's vectors of bytes are of char, which is neither of C's other two byte types.
        let x = if bytes == 1 { format!("c8x{lanes}") } else { v.clone() };
        if bytes == 1 {
            let _ = writeln!(out, "typedef char {x} __attribute__((vector_size({lanes})));");
        }
        let keep = format!("({count})__builtin_ia32_cvt{letter}2mask{bits}(({x})(m))");
        let call = match store {
            true => format!("__builtin_ia32_storedqu{wide}{bits}_mask(({ptr} *)(p), ({x})(a), {keep})"),
            false => {
                format!(
                    "(({v})__builtin_ia32_loaddqu{wide}{bits}_mask((const {ptr} *)(p), ({x})(a), {keep}))"
                )
            }
        };
        let _ = writeln!(
            out,
            "#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__) && !defined(__clang__)\n{head}{call}"
        );
        test = "#elif";
        if bytes >= 4 && bits < 512 {
            let suffix = if bits == 256 { "256" } else { "" };
            let call = match store {
                true => format!("__builtin_ia32_maskstore{letter}{suffix}(({v} *)(p), m, ({v})(a))"),
                false => format!(
                    "SEL({v}, {v}, m, __builtin_ia32_maskload{letter}{suffix}((const {v} *)(p), m), a)"
                ),
            };
            let _ = writeln!(out, "#elif defined(__AVX2__) && !defined(__clang__)\n{head}{call}");
        }
    }
    if test == "#elif" {
        out.push_str("#else\n");
    }
    let each = if store { "if (m_[i]) p_[i] = a_[i];" } else { "if (m_[i]) a_[i] = p_[i]; a_;" };
    let _ = writeln!(
        out,
        "{head}({{ {v} a_ = ({v})(a), m_ = m; {e} *p_ = ({e} *)(p); for (int i = 0; i < {lanes}; i++) {each} }})"
    );
    out.push_str(if test == "#elif" { "#endif\n#endif\n" } else { "#endif\n" });
}

/// gcc 12 converts f16 vectors lane by lane unless told how.
fn half_macros(out: &mut String, n: usize) {
    let calls = match n {
        16 => Some((
            "__AVX512F__",
            "__builtin_ia32_vcvtph2ps512_mask((i16x16)(a), (f32x16){}, -1, 4)",
            "__builtin_ia32_vcvtps2ph512_mask(a, 0, (i16x16){}, -1)",
        )),
        8 => {
            Some(("__F16C__", "__builtin_ia32_vcvtph2ps256((i16x8)(a))", "__builtin_ia32_vcvtps2ph256(a, 0)"))
        }
        _ => None,
    };
    let _ = writeln!(out, "#ifndef F32_f16x{n}");
    if let Some((feature, up, down)) = calls {
        let _ = writeln!(out, "#if defined({feature}) && !defined(__clang__)");
        let _ = writeln!(out, "#define F32_f16x{n}(a) ((f32x{n}){up})");
        let _ = writeln!(out, "#define F16_f32x{n}(a) ((f16x{n}){down})\n#else");
    }
    let _ = writeln!(out, "#define F32_f16x{n}(a) __builtin_convertvector(a, f32x{n})");
    let _ = writeln!(out, "#define F16_f32x{n}(a) __builtin_convertvector(a, f16x{n})");
    out.push_str(if calls.is_some() { "#endif\n#endif\n" } else { "#endif\n" });
}
