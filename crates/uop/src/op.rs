//! The op table: one row an op, by class, with its text name, number of sources, kind of arg,
//! stages, term, and of elementwise ops what passes and back ends decide by (`Traits`). Everything
//! else about ops (what they compute, gradient, decomposition, instructions) is a `match` over a
//! class, a closed enum of its own, without a default: the compiler names what a new op still
//! needs. Flows in: nothing but the table below; flows out: the enums and their properties.

use crate::dtype::DType;

macro_rules! ops {
    ($($(#[$class_doc:meta])* $class:ident {
        $($variant:ident $name:literal $min:literal .. $max:literal $arg:literal $stages:literal $term:literal $(=> $traits:expr)?;)*
    })*) => {
        named! {
            /// An operation of the dialect.
            #[repr(u8)]
            Op { $($(#[doc = concat!("`", $term, "`.")] $variant $name,)*)* }
        }

        $(
            $(#[$class_doc])*
            #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
            pub enum $class { $(#[doc = concat!("`", $term, "`.")] $variant),* }

            impl $class {
                /// The ops of the class.
                pub const OPS: &'static [Op] = &[$(Op::$variant),*];
                /// Every one, in the order of the table.
                pub const ALL: &'static [$class] = &[$($class::$variant),*];

                /// As one of all ops.
                pub const fn op(self) -> Op { Self::OPS[self as usize] }
            }
        )*

        /// An op within its class.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Class { $($(#[$class_doc])* $class($class)),* }

        /// The column of traits, by op.
        const TRAITS: &[Traits] = &[$($({
            let given = [ANY $(, $traits)?];
            given[given.len() - 1]
        },)*)*];

        /// The hashes of the names, by op.
        const HASHES: &[u64] = &[$($(fnv($name),)*)*];

        impl Op {
            /// The op within its class.
            pub const fn class(self) -> Class {
                match self { $($(Op::$variant => Class::$class($class::$variant),)*)* }
            }

            /// The least and greatest number of sources; 255 is unbounded.
            pub fn arity(self) -> (usize, usize) { match self { $($(Op::$variant => ($min, $max),)*)* } }

            /// The kind of arg that the op has (`Arg::kind`).
            pub fn arg_kind(self) -> &'static str { match self { $($(Op::$variant => $arg,)*)* } }

            /// The stages that have the op: `t`ensors, `k`ernels, their `s`haped form, `l`inear programs.
            pub fn stages(self) -> &'static str { match self { $($(Op::$variant => $stages,)*)* } }
        }
    };
}

ops! {
    /// Leaf nodes.
    Leaf {
        Param "PARAM" 0..4 "buffer" "tksl" "placeholder(slot), of shape src[0], bounds src[1], src[2], bound to src[3]";
        Buffer "BUFFER" 0..1 "buffer" "tksl" "storage(slot, version), of shape src[0]";
        Const "CONST" 0..0 "const" "tksl" "a scalar";
        Binary "BINARY" 0..0 "bytes" "t" "raw bytes, u8";
    }
    /// Views: no arithmetic.
    Movement {
        Permute "PERMUTE" 1..1 "axes" "ts" "reorder axes";
        Flip "FLIP" 1..1 "flags" "ts" "reverse along axes";
        Reshape "RESHAPE" 2..2 "none" "ts" "reinterpret in row-major order";
        Expand "EXPAND" 2..2 "none" "ts" "broadcast axes of size 1";
        Pad "PAD" 3..3 "fill" "ts" "place at an offset in an output filled with arg";
        Shrink "SHRINK" 3..3 "none" "tsl" "keep src[2] elements from offset src[1]";
        Index "INDEX" 1..255 "none" "tksl" "index axes from the left";
        Stack "STACK" 0..255 "none" "tksl" "join along a new leading axis";
        Shuffle "SHUFFLE" 3..3 "none" "l" "elements src[2] of src[0] followed by src[1]";
        Bitcast "BITCAST" 1..1 "dtype" "tksl" "reinterpret the bytes, rescaling the last axis";
        Replicated "REPLICATED" 1..1 "axes" "t" "mark as replicated along axes, collapsing them to 1";
    }
    /// What collapses axes to size 1, or closes ranges.
    Reduction {
        Reduce "REDUCE" 1..255 "reduce" "tks" "fold axes, or ranges, with an operator";
    }
    /// Functions and their values.
    Abstraction {
        Function "FUNCTION" 1..255 "none" "t" "substitute PARAM k in src[0] with src[k+1]";
        Call "CALL" 1..255 "call" "t" "invoke src[0] on src[1..]";
        Tuple "TUPLE" 0..255 "none" "t" "pack values";
        GetTuple "GETTUPLE" 1..1 "element" "t" "element arg of a tuple";
    }
    /// Storage is read and written.
    Memory {
        Load "LOAD" 1..3 "place" "tksl" "read src[0] into an anonymous buffer; src[1] where gate src[2] is false; arg LOCAL: soon";
        Store "STORE" 2..3 "place" "tksl" "write src[1] to src[0] where gate src[2], past the caches where arg says GLOBAL";
        AtomicAdd "ATOMICADD" 2..3 "none" "ksl" "atomic src[0] += src[1] where gate src[2]";
        GetAddr "GETADDR" 1..1 "place" "l" "address of a buffer on a device";
    }
    /// Identity on data: where it lies, what its gradient is, and what must hold of it.
    Identity {
        Copy "COPY" 1..1 "place" "t" "the same value on device arg";
        Contiguous "CONTIGUOUS" 1..1 "none" "t" "the same value in storage of its own, row-major";
        ContiguousBackward "CONTIGUOUSBACKWARD" 1..1 "none" "t" "CONTIGUOUS on the gradient";
        Detach "DETACH" 1..1 "none" "t" "no gradient flows";
        Assert "ASSERT" 2..3 "text" "t" "src[0], which is right where the bools src[1] all hold; arg tells what is right of src[2], or of src[0]";
    }
    /// Order of execution.
    Order {
        Range "RANGE" 1..2 "range" "ksl" "iterator to src[0], from src[1] or 0";
        End "END" 1..255 "none" "ksl" "close the loops src[1..] around src[0]";
        If "IF" 1..255 "none" "l" "begin what runs where src[0]";
        EndIf "ENDIF" 1..1 "none" "l" "end of an IF";
        After "AFTER" 1..255 "none" "tksl" "src[0] once src[1..] have run";
        Group "GROUP" 0..255 "none" "tksl" "unordered merge of effects";
        Barrier "BARRIER" 0..255 "none" "ksl" "synchronize the threads of a workgroup";
        Sink "SINK" 0..255 "kernel" "tksl" "root of effects";
        Linear "LINEAR" 0..255 "none" "" "instructions in order";
    }
    /// What only generated code has, and what holds it.
    Code {
        Special "SPECIAL" 1..1 "text" "sl" "hardware index arg, from 0 to src[0]";
        Wmma "WMMA" 3..3 "wmma" "ksl" "acc + a @ b over a warp, or of the words of each lane";
        Ins "INS" 0..255 "text" "l" "one machine instruction";
        Custom "CUSTOM" 0..255 "text" "ksl" "source text with src[1..] spliced in, of the dtype of src[0]";
        CustomFunction "CUSTOMFUNCTION" 0..0 "function" "" "named device function, through CALL";
        Program "PROGRAM" 1..4 "program" "" "compiled kernel: sink, linear, source, binary";
        Source "SOURCE" 0..0 "text" "" "rendered source text";
    }
    /// Elementwise ops of one operand that a machine has.
    Unary {
        Recip "RECIP" 1..1 "none" "tksl" "1 / a" => FLOATS.derived().cost(6.0);
        Trunc "TRUNC" 1..1 "none" "tksl" "round toward zero" => ANY.repeats(Repeats::Vectors);
        Neg "NEG" 1..1 "none" "tksl" "-a" => ANY.derived();
        Not "NOT" 1..1 "none" "tksl" "logical, or bitwise, complement" => BITS.derived();
        Sqrt "SQRT" 1..1 "none" "tksl" "sqrt a" => FLOATS.derived().cost(6.0).repeats(Repeats::Vectors);
    }
    /// Elementwise functions of a float, by approximation.
    Transcendental {
        Exp2 "EXP2" 1..1 "none" "tksl" "2^a" => FLOATS.derived().cost(12.0).ulps(1.0).repeats(Repeats::Vectors);
        Log2 "LOG2" 1..1 "none" "tksl" "log2 a" => FLOATS.derived().cost(32.0).ulps(1.0).repeats(Repeats::Vectors);
        Sin "SIN" 1..1 "none" "tksl" "sin a" => FLOATS.derived().cost(40.0).ulps(2.0).within(-1.0, 1.0).repeats(Repeats::Vectors);
    }
    /// Elementwise, to another dtype.
    Conversion {
        Cast "CAST" 1..1 "dtype" "tksl" "convert to dtype arg" => ANY;
    }
    /// Elementwise ops of two operands.
    Arithmetic {
        Add "ADD" 2..2 "none" "tksl" "a + b" => ANY.commutes();
        Sub "SUB" 2..2 "none" "tksl" "a - b" => NUMBERS.derived();
        Mul "MUL" 2..2 "rounding" "tksl" "a * b; where arg says so, rounded before anything is added to it" => ANY.commutes();
        Div "DIV" 2..2 "none" "tksl" "a / b, float" => FLOATS.cost(6.0);
        Max "MAX" 2..2 "none" "tksl" "max(a, b), NaN if either is" => ANY.derived().commutes().repeats(Repeats::Always);
        Idiv "IDIV" 2..2 "none" "tks" "floor(a / b); 0 where b = 0" => ANY.derived().cost(8.0);
        Mod "MOD" 2..2 "none" "tks" "a - b * floor(a / b); a where b = 0" => ANY.derived().cost(8.0);
        TruncDiv "TRUNCDIV" 2..2 "none" "l" "a / b rounded toward zero, b != 0: the machine's division" => INTS.cost(8.0).repeats(Repeats::Always);
        TruncMod "TRUNCMOD" 2..2 "none" "l" "a - b * trunc(a / b), b != 0: the machine's remainder" => INTS.cost(8.0).repeats(Repeats::Always);
        Xor "XOR" 2..2 "none" "tksl" "a ^ b" => BITS.commutes();
        Or "OR" 2..2 "none" "tksl" "a | b" => BITS.commutes();
        And "AND" 2..2 "none" "tksl" "a & b" => BITS.commutes();
        Shr "SHR" 2..2 "none" "tksl" "a >> b, arithmetic where signed; b past the width shifts all out" => INTS.repeats(Repeats::Always);
        Shl "SHL" 2..2 "none" "tksl" "a << b; 0 past the width" => INTS.repeats(Repeats::Always);
        Pow "POW" 2..2 "none" "tksl" "a^b" => NUMBERS.derived().cost(60.0).ulps(2.0).repeats(Repeats::Vectors);
        Threefry "THREEFRY" 2..2 "none" "tksl" "Threefry-2x32-20 of counter a, key b (u64 each)" => WORDS.derived().cost(110.0);
    }
    /// Elementwise, a bool from two operands.
    Comparison {
        CmpLt "CMPLT" 2..2 "none" "tksl" "a < b" => ANY;
        CmpNe "CMPNE" 2..2 "none" "tksl" "a != b" => ANY.commutes();
        CmpGt "CMPGT" 2..2 "none" "tksl" "a > b" => ANY.derived();
        CmpGe "CMPGE" 2..2 "none" "tksl" "a >= b" => ANY.derived();
        CmpLe "CMPLE" 2..2 "none" "tksl" "a <= b" => ANY.derived();
        CmpEq "CMPEQ" 2..2 "none" "tksl" "a = b" => ANY.derived().commutes();
    }
    /// Elementwise ops of three operands.
    Ternary {
        Where "WHERE" 3..3 "none" "tksl" "a if p else b" => ANY.repeats(Repeats::Vectors);
        MulAcc "MULACC" 3..3 "none" "tksl" "a * b + c, rounded once" => ANY.derived().repeats(Repeats::Vectors);
    }
}

/// The dtypes of the operands of an elementwise op (of a WHERE, those of its values).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Operands {
    /// All.
    Any,
    /// All but bool.
    Numbers,
    /// Integers and bools.
    Bits,
    /// Integers.
    Ints,
    /// Floats.
    Floats,
    /// u64.
    Words,
}

impl Operands {
    /// Whether values of this dtype may be operands.
    pub fn take(self, d: DType) -> bool {
        match self {
            Operands::Any => true,
            Operands::Numbers => d != DType::Bool,
            Operands::Bits => !d.is_float(),
            Operands::Ints => d.is_int(),
            Operands::Floats => d.is_float(),
            Operands::Words => d == DType::U64,
        }
    }

    /// For messages.
    pub fn text(self) -> &'static str {
        match self {
            Operands::Any => "any dtype",
            Operands::Numbers => "numbers",
            Operands::Bits => "integers or bools",
            Operands::Ints => "integers",
            Operands::Floats => "floats",
            Operands::Words => "two u64",
        }
    }
}

/// When the text of an op may mention an operand more than once, so that the operand is worth a name.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// Not.
    Never,
    /// Where it is a vector, whose lanes may be taken one by one.
    Vectors,
    /// Whatever it is.
    Always,
}

/// What the table says of an elementwise op. Others have the defaults, which mean nothing.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Traits {
    /// What it takes.
    pub operands: Operands,
    /// Simple operations that one element costs, roughly.
    pub cost: f64,
    /// Whether its two operands may be exchanged.
    pub commutes: bool,
    /// Whether a target may lack it: codegen makes it of the others, the primitives.
    pub derived: bool,
    /// Whether renderers repeat operands.
    pub repeats: Repeats,
    /// The interval of its values for finite operands, where it is one whatever they are.
    pub within: Option<(f64, f64)>,
    /// How far a float result may be from the exact one on any device, in units of the last place;
    /// 0.5 is the nearest float.
    pub ulps: f64,
}

const ANY: Traits = Traits {
    operands: Operands::Any,
    cost: 1.0,
    commutes: false,
    derived: false,
    repeats: Repeats::Never,
    within: None,
    ulps: 0.5,
};
const NUMBERS: Traits = ANY.of(Operands::Numbers);
const BITS: Traits = ANY.of(Operands::Bits);
const INTS: Traits = ANY.of(Operands::Ints);
const FLOATS: Traits = ANY.of(Operands::Floats);
const WORDS: Traits = ANY.of(Operands::Words);

impl Traits {
    const fn of(self, operands: Operands) -> Traits {
        Traits { operands, ..self }
    }

    const fn cost(self, cost: f64) -> Traits {
        Traits { cost, ..self }
    }

    const fn commutes(self) -> Traits {
        Traits {
            commutes: true,
            ..self
        }
    }

    const fn derived(self) -> Traits {
        Traits {
            derived: true,
            ..self
        }
    }

    const fn repeats(self, repeats: Repeats) -> Traits {
        Traits { repeats, ..self }
    }

    const fn within(self, least: f64, most: f64) -> Traits {
        Traits {
            within: Some((least, most)),
            ..self
        }
    }

    const fn ulps(self, ulps: f64) -> Traits {
        Traits { ulps, ..self }
    }
}

/// FNV-1a of a name.
const fn fnv(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0100_0000_01b3);
        i += 1;
    }
    hash
}

impl Op {
    /// What the table says of an elementwise op.
    pub const fn traits(self) -> &'static Traits {
        &TRAITS[self as usize]
    }

    /// A hash of the name: equal in every process, and whatever other ops there are.
    pub const fn name_hash(self) -> u64 {
        HASHES[self as usize]
    }

    /// Applied per element: all sources and the result have one shape.
    pub const fn is_elementwise(self) -> bool {
        matches!(
            self.class(),
            Class::Unary(_)
                | Class::Transcendental(_)
                | Class::Conversion(_)
                | Class::Arithmetic(_)
                | Class::Comparison(_)
                | Class::Ternary(_)
        )
    }

    /// A view of its first source.
    pub const fn is_movement(self) -> bool {
        matches!(self.class(), Class::Movement(_))
    }

    /// Gives a bool whatever it compares.
    pub const fn is_comparison(self) -> bool {
        matches!(self.class(), Class::Comparison(_))
    }

    /// Has an effect or orders effects: its dtype is void.
    pub fn is_void(self) -> bool {
        use Op::*;
        let program = matches!(
            self,
            Program | Source | CustomFunction | Tuple | Barrier | If | EndIf
        );
        program || matches!(self, Store | End | Group | Sink | Linear | AtomicAdd)
    }
}

/// A set of ops, as bits.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpSet(u128);

impl OpSet {
    /// The empty set.
    pub const EMPTY: OpSet = OpSet(0);

    /// Every op.
    pub const ANY: OpSet = OpSet::of(Op::ALL);

    /// Ops applied by element.
    pub const ELEMENTWISE: OpSet = OpSet::of(Unary::OPS)
        .union(OpSet::of(Transcendental::OPS))
        .union(OpSet::of(Conversion::OPS))
        .union(OpSet::of(Arithmetic::OPS))
        .union(OpSet::of(Comparison::OPS))
        .union(OpSet::of(Ternary::OPS));

    /// Elementwise ops that every target has, and BITCAST: what the others are made of.
    pub const PRIMITIVES: OpSet = {
        let mut set = OpSet::of(&[Op::Bitcast]);
        let mut i = 0;
        while i < Op::ALL.len() {
            let op = Op::ALL[i];
            if op.is_elementwise() && !op.traits().derived {
                set = set.with(op);
            }
            i += 1;
        }
        set
    };

    /// Views of the first source.
    pub const MOVEMENT: OpSet = OpSet::of(Movement::OPS);

    /// Ops whose two operands may be exchanged.
    pub const COMMUTATIVE: OpSet = {
        let mut set = OpSet::EMPTY;
        let mut i = 0;
        while i < Op::ALL.len() {
            if Op::ALL[i].traits().commutes {
                set = set.with(Op::ALL[i]);
            }
            i += 1;
        }
        set
    };

    /// The set of these ops.
    pub const fn of(ops: &[Op]) -> OpSet {
        let mut bits = 0u128;
        let mut i = 0;
        while i < ops.len() {
            bits |= 1 << (ops[i] as u8);
            i += 1;
        }
        OpSet(bits)
    }

    /// Every op for which `keep` holds.
    pub fn filter(keep: impl Fn(Op) -> bool) -> OpSet {
        let kept = Op::ALL.iter().filter(|op| keep(**op));
        kept.fold(OpSet::EMPTY, |s, op| s.with(*op))
    }

    /// This set and one op.
    pub const fn with(self, op: Op) -> OpSet {
        OpSet(self.0 | 1 << (op as u8))
    }

    /// Whether `op` is in the set.
    pub const fn contains(self, op: Op) -> bool {
        self.0 >> (op as u8) & 1 == 1
    }

    /// Ops of either set.
    pub const fn union(self, other: OpSet) -> OpSet {
        OpSet(self.0 | other.0)
    }

    /// Whether the sets share an op.
    pub const fn intersects(self, other: OpSet) -> bool {
        self.0 & other.0 != 0
    }
}
