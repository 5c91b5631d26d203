//! What the vectors of GNU C need: names of vector types, and the table of vector operations for
//! which it has no operator. Flows in: which of them a kernel's expressions use; flows out: the
//! text that defines these, and nothing else.

use super::language::{Language, scalar, signed, unsigned};
use monoglot_uop::{DType, Op};
use std::fmt::Write;

/// A vector operation that is a builtin of the compiler. The name of its macro is that of the op and type.
pub(super) struct Builtin {
    op: Op,
    /// Its name among C's functions, where it has one.
    function: Option<&'static str>,
    /// gcc's call for vectors of 512 bits, after `__builtin_ia32_`: `~` stands for s or d, the element.
    call_512: &'static str,
    /// The same for 256 and 128 bits: `#` stands for 256 or nothing.
    call: &'static str,
}

const BUILTINS: [Builtin; 5] = [
    Builtin {
        op: Op::MulAcc,
        function: Some("fma"),
        call_512: "vfmaddp~512_mask(a, b, c, -1, 4)",
        call: "vfmaddp~#(a, b, c)",
    },
    Builtin {
        op: Op::Sqrt,
        function: Some("sqrt"),
        call_512: "sqrtp~512_mask(a, a, -1, 4)",
        call: "sqrtp~#(a)",
    },
    Builtin {
        op: Op::Trunc,
        function: Some("trunc"),
        call_512: "rndscalep~_mask(a, 11, a, -1, 4)",
        call: "roundp~#(a, 11)",
    },
    // `a > b ? a : b`: the operand on the right where one is NaN.
    Builtin {
        op: Op::Max,
        function: None,
        call_512: "maxp~512_mask(a, b, a, -1, 4)",
        call: "maxp~#(a, b)",
    },
    // `a < b ? a : b`, a WHERE of its own comparison.
    Builtin {
        op: Op::CmpLt,
        function: None,
        call_512: "minp~512_mask(a, b, a, -1, 4)",
        call: "minp~#(a, b)",
    },
];

/// The builtin that computes `op` on float vectors, where an operator does not.
pub(super) fn builtin(op: Op, d: DType) -> Option<&'static Builtin> {
    BUILTINS
        .iter()
        .find(|b| b.op == op && matches!(d, DType::F32 | DType::F64))
}

/// The parts of the prelude that a kernel uses, in order of first use.
#[derive(Default)]
pub(super) struct Prelude {
    /// Vector types: scalar name and lanes.
    types: Vec<(&'static str, usize)>,
    /// Names of macros, and their definitions.
    names: Vec<String>,
    macros: String,
    select: bool,
    streams: bool,
}

fn once<T: PartialEq>(list: &mut Vec<T>, item: T) -> bool {
    let new = !list.contains(&item);
    if new {
        list.push(item);
    }
    new
}

/// A condition of the preprocessor: gcc with this.
fn gcc(feature: &str) -> String {
    format!("defined({feature}) && !defined(__clang__)")
}

impl Prelude {
    /// `SEL(V, M, m, a, b)` is used.
    pub(super) fn select(&mut self) {
        self.select = true;
    }

    /// The name of a vector type, noted as used.
    pub(super) fn vector(&mut self, out: &mut String, name: &'static str, lanes: usize) {
        once(&mut self.types, (name, lanes));
        let _ = write!(out, "{name}x{lanes}");
    }

    /// Define a macro with its parameters as the text whose condition holds first.
    fn define(&mut self, head: &str, cases: &[(String, String)], otherwise: &str) {
        let o = &mut self.macros;
        let _ = writeln!(o, "#ifndef {}", head.split('(').next().unwrap_or(head));
        for (i, (condition, text)) in cases.iter().enumerate() {
            let _ = writeln!(
                o,
                "#{} {condition}\n#define {head} {text}",
                if i > 0 { "elif" } else { "if" }
            );
        }
        let (before, after) = if cases.is_empty() {
            ("", "")
        } else {
            ("#else\n", "#endif\n")
        };
        let _ = writeln!(o, "{before}#define {head} {otherwise}\n{after}#endif");
    }

    /// The name of a builtin's macro for a float type, which is defined where it is new.
    pub(super) fn builtin(
        &mut self,
        out: &mut String,
        b: &'static Builtin,
        d: DType,
        lanes: usize,
    ) {
        let v = format!("{}x{lanes}", scalar(d));
        let m = format!("{}x{lanes}", signed(d.bytes()));
        let fma = b.op == Op::MulAcc;
        let double = d == DType::F64;
        let word = match b.op {
            Op::MulAcc => "FMA",
            Op::CmpLt => "MIN",
            op => op.name(),
        };
        let name = format!("{word}_{v}");
        out.push_str(&name);
        if !once(&mut self.names, name.clone()) {
            return;
        }
        once(&mut self.types, (scalar(d), lanes));
        let args = &["a", "b", "c"][..b.op.arity().0];
        let mut cases = Vec::new();
        if let Some(function) = b.function {
            let call = format!("__builtin_elementwise_{function}");
            cases.push((
                format!("__has_builtin({call})"),
                format!("{call}({})", args.join(", ")),
            ));
        }
        let machine = match lanes * d.bytes() {
            64 => Some(("__AVX512F__", b.call_512, "512")),
            32 if fma => Some(("__FMA__", b.call, "256")),
            32 => Some(("__AVX__", b.call, "256")),
            16 if fma => Some(("__FMA__", b.call, "")),
            16 => Some(("__SSE4_1__", b.call, "")),
            _ => None,
        };
        if let Some((feature, call, bits)) = machine {
            let element = if double { "d" } else { "s" };
            let call = call.replace('~', element).replace('#', bits);
            cases.push((gcc(feature), format!("(({v})__builtin_ia32_{call})")));
        }
        let otherwise = if let Some(function) = b.function {
            // Lane by lane.
            let copies: String = args.iter().map(|a| format!(", {a}_ = {a}")).collect();
            let suffix = if double { "" } else { "f" };
            let lane = format!("__builtin_{function}{suffix}({}_[i])", args.join("_[i], "));
            format!("({{ {v} r_{copies}; for (int i = 0; i < {lanes}; i++) r_[i] = {lane}; r_; }})")
        } else {
            // Both compilers make the machine's instruction, or a comparison and a blend, of this.
            once(&mut self.types, (signed(d.bytes()), lanes));
            self.select = true;
            let sign = if b.op == Op::Max { '>' } else { '<' };
            format!("SEL({v}, {m}, ({m})((a) {sign} (b)), a, b)")
        };
        self.define(&format!("{name}({})", args.join(", ")), &cases, &otherwise);
    }

    /// The name of the sums of products (`a, b`) of the pairs of 16 bits that words are.
    pub(super) fn pairs(&mut self, out: &mut String, lanes: usize) {
        let name = format!("PAIRS_i32x{lanes}");
        out.push_str(&name);
        if !once(&mut self.names, name.clone()) {
            return;
        }
        for element in ["i32", "u32"] {
            once(&mut self.types, (element, lanes));
        }
        let halves = 2 * lanes;
        let machine = match lanes {
            16 => Some(("__AVX512BW__", "512_mask", ", (i32x16){}, -1")),
            8 => Some(("__AVX2__", "256", "")),
            4 => Some(("__SSE2__", "128", "")),
            _ => None,
        };
        let mut cases = Vec::new();
        if let Some((feature, bits, mask)) = machine {
            once(&mut self.types, ("i16", halves));
            let call = format!("__builtin_ia32_pmaddwd{bits}");
            cases.push((
                format!("defined({feature}) && __has_builtin({call})"),
                format!("((i32x{lanes}){call}((i16x{halves})(a), (i16x{halves})(b){mask}))"),
            ));
        }
        let low = |x: &str| format!("((i32x{lanes})({x}_ << 16) >> 16)");
        let high = |x: &str| format!("((i32x{lanes}){x}_ >> 16)");
        let product =
            |of: &dyn Fn(&str) -> String| format!("(u32x{lanes})({} * {})", of("a"), of("b"));
        let otherwise = format!(
            "({{ u32x{lanes} a_ = (u32x{lanes})(a), b_ = (u32x{lanes})(b); (i32x{lanes})({} + {}); }})",
            product(&low),
            product(&high)
        );
        self.define(&format!("{name}(a, b)"), &cases, &otherwise);
    }

    /// The name of a store (`storage, address, value`) that passes the caches by, if vectors may be where the
    /// storage begins.
    pub(super) fn streamed(
        &mut self,
        o: &mut String,
        element: &'static str,
        lanes: usize,
        width: usize,
    ) {
        let v = format!("{element}x{lanes}");
        let name = format!("STREAM_{v}");
        o.push_str(&name);
        if !once(&mut self.names, name.clone()) {
            return;
        }
        once(&mut self.types, (element, lanes));
        let bytes = lanes * width;
        let floats = bytes / 4;
        once(&mut self.types, ("f32", floats));
        once(&mut self.types, ("f32", floats.min(8)));
        let (feature, bits) = match bytes {
            16 => ("__SSE__", ""),
            32 => ("__AVX__", "256"),
            _ => ("__AVX512F__", "512"),
        };
        let either = |past: &str| {
            format!(
                "if (((u64)(s) & {}) != 0) *({v}m *)(p) = v_; else {past}",
                bytes - 1
            )
        };
        // Half a line may begin where a vector of a whole one is written.
        let halves = |whole: String, half: [String; 2]| match bytes {
            64 => format!(
                "if (((u64)(p) & 63) == 0) {whole}; else {{ f32x8 *h_ = (f32x8 *)&v_; {}; {}; }}",
                half[0], half[1]
            ),
            _ => whole,
        };
        let call = halves(
            format!("__builtin_ia32_movntps{bits}((f32 *)(p), (f32x{floats})v_)"),
            [0, 1].map(|k| format!("__builtin_ia32_movntps256((f32 *)(p) + {}, h_[{k}])", 8 * k)),
        );
        let any = halves(
            format!("__builtin_nontemporal_store(v_, ({v} *)(p))"),
            [0, 1].map(|k| format!("__builtin_nontemporal_store(h_[{k}], (f32x8 *)(p) + {k})")),
        );
        let block = |text: String| format!("do {{ {v} v_ = v; {text}; }} while (0)");
        let cases = [
            ("defined(__clang__)".to_string(), block(either(&any))),
            (format!("defined({feature})"), block(either(&call))),
        ];
        self.define(
            &format!("{name}(s, p, v)"),
            &cases,
            &format!("*({v}m *)(p) = (v)"),
        );
        self.streams = true;
    }

    /// What makes the stores that passed the caches seen before all that follows.
    pub(super) fn fence(&mut self) -> &'static str {
        let call = "__builtin_ia32_sfence()".to_string();
        match self.streams {
            true if once(&mut self.names, "FENCE".into()) => {
                self.define("FENCE()", &[("defined(__SSE__)".into(), call)], "(void)0");
                "  FENCE();\n"
            }
            _ => "",
        }
    }

    /// The name of a load (`address, mask, other`) or store (`address, mask, value`) of the lanes that a
    /// mask as wide as the element keeps: one instruction with AVX-512, or AVX2 for lanes of 4 and 8 bytes.
    pub(super) fn masked(&mut self, o: &mut String, store: bool, bytes: usize, lanes: usize) {
        let e = signed(bytes);
        let bits = bytes * lanes * 8;
        let v = format!("{e}x{lanes}");
        let name = format!("{}_{v}", if store { "STORE" } else { "LOAD" });
        o.push_str(&name);
        if !once(&mut self.names, name.clone()) {
            return;
        }
        once(&mut self.types, (e, lanes));
        // One of the ways to load merges with a select.
        self.select = true;
        let mut cases = Vec::new();
        if matches!(bits, 128 | 256 | 512) {
            // What gcc's builtins call the element, in their names and as what is pointed to.
            let wide = ["qi", "hi", "si", "di"][bytes.trailing_zeros() as usize];
            let letter = ["b", "w", "d", "q"][bytes.trailing_zeros() as usize];
            let ptr = ["char", "short", "int", "long long"][bytes.trailing_zeros() as usize];
            let count = unsigned((lanes / 8).max(1));
            let x = if bytes == 1 {
                // gcc's vectors of bytes are of char, which is neither of C's other two byte types.
                let x = format!("c8x{lanes}");
                let _ = writeln!(
                    self.macros,
                    "typedef char {x} __attribute__((vector_size({lanes})));"
                );
                x
            } else {
                v.clone()
            };
            let keep = format!("({count})__builtin_ia32_cvt{letter}2mask{bits}(({x})(m))");
            let whole = if store {
                format!("__builtin_ia32_storedqu{wide}{bits}_mask(({ptr} *)(p), ({x})(a), {keep})")
            } else {
                format!(
                    "(({v})__builtin_ia32_loaddqu{wide}{bits}_mask((const {ptr} *)(p), ({x})(a), {keep}))"
                )
            };
            let bw = "defined(__AVX512BW__) && defined(__AVX512VL__)";
            cases.push((format!("{bw} && {}", gcc("__AVX512DQ__")), whole));
            if bytes >= 4 && bits < 512 {
                let suffix = if bits == 256 { "256" } else { "" };
                let half = if store {
                    // Some machines take as long for a masked store as for all its lanes one by one.
                    let one =
                        format!("__builtin_ia32_maskstore{letter}{suffix}(({v} *)(p), m_, a_)");
                    let (sign, all) = match (bytes, bits) {
                        (4, 256) => ("movmskps256((f32x8)", "255"),
                        (4, _) => ("movmskps((f32x4)", "15"),
                        (_, 256) => ("movmskpd256((f64x4)", "15"),
                        _ => ("movmskpd((f64x2)", "3"),
                    };
                    once(
                        &mut self.types,
                        (if bytes == 4 { "f32" } else { "f64" }, lanes),
                    );
                    format!(
                        "({{ {v} a_ = ({v})(a), m_ = m; if (__builtin_ia32_{sign}m_) == {all}) *({v}m *)(p) = a_; else {one}; }})"
                    )
                } else {
                    let load = format!("__builtin_ia32_maskload{letter}{suffix}");
                    format!("SEL({v}, {v}, m, {load}((const {v} *)(p), m), a)")
                };
                cases.push((gcc("__AVX2__"), half));
            }
        }
        let each = if store {
            "if (m_[i]) p_[i] = a_[i];"
        } else {
            "if (m_[i]) a_[i] = p_[i]; a_;"
        };
        let otherwise = format!(
            "({{ {v} a_ = ({v})(a), m_ = m; {e} *p_ = ({e} *)(p); for (int i = 0; i < {lanes}; i++) {each} }})"
        );
        self.define(&format!("{name}(p, m, a)"), &cases, &otherwise);
    }

    /// The conversions F32_f16xN and F16_f32xN are used: gcc 12 goes lane by lane unless told how.
    pub(super) fn halves(&mut self, n: usize) {
        if !once(&mut self.names, format!("F32_f16x{n}")) {
            return;
        }
        let (feature, up, down) = match n {
            16 => (
                "__AVX512F__",
                "__builtin_ia32_vcvtph2ps512_mask((i16x16)(a), (f32x16){}, -1, 4)",
                "__builtin_ia32_vcvtps2ph512_mask(a, 0, (i16x16){}, -1)",
            ),
            8 => (
                "__F16C__",
                "__builtin_ia32_vcvtph2ps256((i16x8)(a))",
                "__builtin_ia32_vcvtps2ph256(a, 0)",
            ),
            _ => ("", "", ""),
        };
        for name in ["f16", "f32", "i16"] {
            once(&mut self.types, (name, n));
        }
        for (to, from, call) in [("f32", "f16", up), ("f16", "f32", down)] {
            let case = (gcc(feature), format!("(({to}x{n}){call})"));
            let cases = if call.is_empty() { &[][..] } else { &[case] };
            let head = format!("{}_{from}x{n}(a)", to.to_uppercase());
            self.define(
                &head,
                cases,
                &format!("__builtin_convertvector(a, {to}x{n})"),
            );
        }
    }

    /// The conversion F64_f32xN is used: gcc 12 takes halves unless told otherwise.
    pub(super) fn doubles(&mut self, n: usize) {
        if !once(&mut self.names, format!("F64_f32x{n}")) {
            return;
        }
        let calls = match n {
            8 => Some(("__AVX512F__", "512_mask(a, (f64x8){}, -1, 4)")),
            4 => Some(("__AVX__", "256(a)")),
            _ => None,
        };
        let call = |c: &str| format!("((f64x{n})__builtin_ia32_cvtps2pd{c})");
        let case = calls.map(|(feature, c)| (gcc(feature), call(c)));
        let otherwise = format!("__builtin_convertvector(a, f64x{n})");
        let head = format!("F64_f32x{n}(a)");
        once(&mut self.types, ("f64", n));
        self.define(&head, case.as_slice(), &otherwise);
    }

    /// Everything noted for a function, as text that may be repeated in one translation unit.
    pub(super) fn text(&self, language: &Language, function: &str) -> String {
        let mut out = String::with_capacity(512 + 160 * self.types.len() + self.macros.len());
        out.push_str(language.scalars);
        let named = |text: &str| text.contains(scalar(DType::F16));
        if named(function) || named(&self.macros) || self.types.iter().any(|t| named(t.0)) {
            out.push_str(language.half);
        }
        let mut counts: Vec<usize> = Vec::new();
        for &(name, lanes) in &self.types {
            // A scalar's name ends in its bits.
            let width = name[1..].parse::<usize>().unwrap_or(64) / 8;
            let bytes = lanes * width;
            let _ = writeln!(
                out,
                "typedef {name} {name}x{lanes} __attribute__((vector_size({bytes})));"
            );
            // The same vector anywhere in memory.
            let _ = writeln!(
                out,
                "typedef {name} {name}x{lanes}m __attribute__((vector_size({bytes}), aligned({width}), may_alias));"
            );
            once(&mut counts, lanes);
        }
        for n in counts {
            let _ = writeln!(
                out,
                "#define X{n}(T, x) ((T){{{}}})",
                vec!["x"; n].join(", ")
            );
        }
        if self.select {
            out.push_str("#define SEL(V, M, m, a, b) ((V)(((M)(a) & (m)) | ((M)(b) & ~(m))))\n");
        }
        out.push_str(&self.macros);
        out
    }
}
