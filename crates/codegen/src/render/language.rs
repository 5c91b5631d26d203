//! What differs between languages like C, as one table: names of hardware indices, barrier, address
//! spaces, how a kernel begins, literals, functions, how bits are taken for another type. Flows in: the
//! parts of a program; flows out: their text. A part that a language has no word for is None.

use monoglot_uop::op::{Class, Ternary, Unary};
use monoglot_uop::{DType, Op, Scalar};
use std::fmt::Write;

/// An argument of a kernel.
pub(super) enum Argument {
    /// Storage: the PARAM's slot and the type of its elements, the position among the buffers.
    Buffer(u64, DType, usize),
    /// A variable: slot and type, the position among the variables.
    Variable(u64, DType, usize),
}

/// A language like C.
pub(super) struct Language {
    /// Its name in messages.
    pub(super) name: &'static str,
    /// What the names of scalar types stand for.
    pub(super) scalars: &'static str,
    /// What defines f16, which compilers of some years ago do not have.
    pub(super) half: &'static str,
    /// Hardware indices: the name of the SPECIAL, and the expression.
    pub(super) specials: &'static [(&'static str, &'static str)],
    /// The statement that is a BARRIER.
    pub(super) barrier: Option<&'static str>,
    /// What adds VALUE to the element at PLACE, of a TYPE, beside other threads: to an integer, and to a float.
    pub(super) atomics: Option<(&'static str, &'static str)>,
    /// What stands before a loop of which the compiler does so many turns at once.
    pub(super) unroll: Option<&'static str>,
    /// What stands before the declaration of LOCAL storage of so many bytes.
    pub(super) local: fn(usize) -> &'static str,
    /// The statement after which a compiler knows of the pointer `$` only its value.
    pub(super) any_pointer: &'static str,
    /// The head of a kernel of this name, to the end of what gives its arguments names: `p` and a slot
    /// for storage, `n` and a slot for variables.
    pub(super) entry: fn(&mut String, &str, &[Argument]),
    /// What ends literals of i64 and of u64.
    pub(super) long: [&'static str; 2],
    /// NaN and infinity, of f64 and of the others.
    pub(super) not_a_number: [&'static str; 2],
    pub(super) infinity: [&'static str; 2],
    /// The function of scalars that is an op where no operator is.
    pub(super) function: fn(Op, DType) -> Option<String>,
    /// What stands before and after a scalar whose bits are taken for another type, one of them a float.
    pub(super) bits: fn(DType, DType) -> [String; 2],
}

/// C as gcc (12 or later) and clang have it, for a kernel that a pool of CPU threads calls: each works for
/// itself, LOCAL is its own, and there is no barrier.
pub(super) const C: Language = Language {
    name: "C",
    scalars: "\
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
",
    half: "typedef _Float16 f16;\n",
    specials: &[("tid", "tid")],
    barrier: None,
    atomics: Some((
        "__atomic_fetch_add(PLACE, VALUE, 0);",
        "{ TYPE *p_ = PLACE, x_ = VALUE, o_, n_; __atomic_load(p_, &o_, 0); do n_ = o_ + x_; while (!__atomic_compare_exchange(p_, &o_, &n_, 1, 0, 0)); }",
    )),
    unroll: Some("#pragma GCC unroll"),
    // Large storage is not on the stack, which may be a user's thread's.
    local: |bytes| match bytes {
        0..=0x4000 => "",
        _ => "static _Thread_local ",
    },
    any_pointer: "__asm__(\"\" : \"+r\"($))",
    entry: c_entry,
    long: ["ll", "ull"],
    not_a_number: ["__builtin_nan(\"\")", "__builtin_nanf(\"\")"],
    infinity: ["__builtin_inf()", "__builtin_inff()"],
    function: |op, d| {
        let name = match op.class() {
            Class::Unary(Unary::Sqrt) => "sqrt",
            Class::Unary(Unary::Trunc) => "trunc",
            Class::Ternary(Ternary::MulAcc) => "fma",
            _ => return None,
        };
        let suffix = if d == DType::F64 { "" } else { "f" };
        Some(format!("__builtin_{name}{suffix}"))
    },
    bits: |from, to| {
        let union = format!("((union {{ {} a; {} b; }}){{ ", scalar(from), scalar(to));
        [union, " }).b".into()]
    },
};

/// `void NAME(void *const *bufs, const long long *vars, int tid)`: `bufs` follows the slots of the PARAMs
/// that are storage, in ascending order; `vars` follows `ProgramInfo::vars`.
fn c_entry(o: &mut String, name: &str, arguments: &[Argument]) {
    let head = "(void *const *bufs, const long long *vars, int tid) {";
    let _ = writeln!(o, "void {name}{head}");
    for a in arguments {
        let _ = match *a {
            Argument::Buffer(slot, d, k) => {
                let c = scalar(d);
                writeln!(o, "  {c} *p{slot} = ({c} *)bufs[{k}];")
            }
            // The bits, in the first bytes of the word.
            Argument::Variable(slot, d, k) if d.is_float() => {
                let c = scalar(d);
                let bytes = d.bytes();
                writeln!(
                    o,
                    "  {c} n{slot};\n  __builtin_memcpy(&n{slot}, vars + {k}, {bytes});"
                )
            }
            Argument::Variable(slot, d, k) => {
                let c = scalar(d);
                writeln!(o, "  const {c} n{slot} = ({c})vars[{k}];")
            }
        };
    }
}

/// The name of a scalar type; storage of floats that the language lacks is an integer of the width.
pub(super) fn scalar(d: DType) -> &'static str {
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

/// The signed integer name of a width in bytes: the lanes of a mask.
pub(super) fn signed(bytes: usize) -> &'static str {
    ["i8", "i16", "i32", "i64"][bytes.trailing_zeros().min(3) as usize]
}

/// The unsigned integer name of a width in bytes, in which arithmetic may wrap.
pub(super) fn unsigned(bytes: usize) -> &'static str {
    ["u8", "u16", "u32", "u64"][bytes.trailing_zeros().min(3) as usize]
}

impl Language {
    /// A literal that is exactly `v` in `d`. Decimal digits are the shortest that read back as the value.
    pub(super) fn literal(&self, out: &mut String, v: Scalar, d: DType) {
        let _ = match (v, d) {
            (Scalar::Float(f), DType::F16 | DType::F32 | DType::F64) => {
                out.push_str(if d == DType::F16 { "(f16)" } else { "" });
                let single = (d != DType::F64) as usize;
                let (sign, end) = if f.is_sign_negative() {
                    ("(-", ")")
                } else {
                    ("", "")
                };
                match f.abs() {
                    x if x.is_nan() => write!(out, "{}", self.not_a_number[single]),
                    f64::INFINITY if f > 0.0 => write!(out, "({})", self.infinity[single]),
                    f64::INFINITY => write!(out, "(-{})", self.infinity[single]),
                    x if single == 0 => write!(out, "{sign}{x:?}{end}"),
                    x => write!(out, "{sign}{:?}f{end}", x as f32),
                }
            }
            (v, DType::F8E4M3 | DType::F8E5M2 | DType::BF16) => write!(out, "{}", v.to_bits(d)),
            (v, d) => {
                let suffix = match d {
                    DType::I64 | DType::Index => self.long[0],
                    DType::U64 => self.long[1],
                    DType::U32 => "u",
                    _ => "",
                };
                // These languages' literals have no sign, and the least value of a type none at all.
                let least = match d {
                    DType::I64 | DType::Index => i64::MIN as i128,
                    DType::U64 | DType::U32 => i128::MIN,
                    _ => i32::MIN as i128,
                };
                match v.to_i128() {
                    i if i == least => write!(out, "({}{suffix} - 1)", i + 1),
                    i if i < 0 => write!(out, "({i}{suffix})"),
                    i => write!(out, "{i}{suffix}"),
                }
            }
        };
    }
}
