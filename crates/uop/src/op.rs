//! The op table: one row an op, with its text name, group, number of sources, kind of arg, stages and
//! term. Everything else about ops (properties, spec, gradient, renderers) is a `match` over this
//! closed enum.

/// Which part of the specification an op belongs to.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// Leaf nodes.
    Source,
    /// Views: no arithmetic.
    Movement,
    /// Collapse axes to size 1.
    Reduce,
    /// Function abstraction.
    Call,
    /// Pull from storage, possibly to another device or address space.
    Load,
    /// Push into storage.
    Store,
    /// Execution order.
    Ordering,
    /// One of the three unary primitives.
    Unary,
    /// A binary primitive.
    Binary,
    /// WHERE.
    Ternary,
    /// Elementwise, defined by the primitives.
    Decomposed,
    /// Identity on data.
    Marker,
    /// Appears only in generated code.
    Codegen,
}

macro_rules! ops {
    ($($variant:ident $name:literal $group:ident $min:literal .. $max:literal $arg:literal $stages:literal $term:literal;)*) => {
        /// An operation of the dialect.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Op { $(#[doc = concat!("`", $term, "`.")] $variant),* }

        impl Op {
            /// Every op, in table order.
            pub const ALL: &'static [Op] = &[$(Op::$variant),*];

            /// The name in the specification and the text form.
            pub fn name(self) -> &'static str { match self { $(Op::$variant => $name),* } }

            /// The part of the specification that defines the op.
            pub fn group(self) -> Group { match self { $(Op::$variant => Group::$group),* } }

            /// The least and greatest number of sources; 255 is unbounded.
            pub fn arity(self) -> (usize, usize) { match self { $(Op::$variant => ($min, $max)),* } }

            /// The kind of arg that the op has (`Arg::kind`).
            pub fn arg_kind(self) -> &'static str { match self { $(Op::$variant => $arg),* } }

            /// The stages that have the op: `t`ensors, `k`ernels, their `s`haped form, `l`inear programs.
            pub fn stages(self) -> &'static str { match self { $(Op::$variant => $stages),* } }

            /// The meaning, as one term over the sources.
            pub fn term(self) -> &'static str { match self { $(Op::$variant => $term),* } }
        }
    };
}

ops! {
    Param "PARAM" Source 0..3 "buffer" "tksl" "placeholder(slot), of shape src[0], bounds src[1], src[2]";
    Buffer "BUFFER" Source 0..1 "buffer" "tksl" "storage(slot, version), of shape src[0]";
    Const "CONST" Source 0..0 "const" "tksl" "a scalar";
    Binary "BINARY" Source 0..0 "bytes" "t" "raw bytes, u8";
    Permute "PERMUTE" Movement 1..1 "axes" "ts" "reorder axes";
    Flip "FLIP" Movement 1..1 "flags" "ts" "reverse along axes";
    Reshape "RESHAPE" Movement 2..2 "none" "ts" "reinterpret in row-major order";
    Expand "EXPAND" Movement 2..2 "none" "ts" "broadcast axes of size 1";
    Pad "PAD" Movement 3..3 "fill" "ts" "place at an offset in an output filled with arg";
    Shrink "SHRINK" Movement 3..3 "none" "tsl" "keep src[2] elements from offset src[1]";
    Index "INDEX" Movement 1..255 "none" "tksl" "index axes from the left";
    Stack "STACK" Movement 0..255 "none" "tksl" "join along a new leading axis";
    Bitcast "BITCAST" Movement 1..1 "dtype" "tksl" "reinterpret the bytes, rescaling the last axis";
    Replicated "REPLICATED" Movement 1..1 "axes" "t" "mark as replicated along axes, collapsing them to 1";
    Reduce "REDUCE" Reduce 1..255 "reduce" "tks" "fold axes, or ranges, with an operator";
    Function "FUNCTION" Call 1..255 "none" "t" "substitute PARAM k in src[0] with src[k+1]";
    Call "CALL" Call 1..255 "call" "t" "invoke src[0] on src[1..]";
    Tuple "TUPLE" Call 0..255 "none" "t" "pack values";
    GetTuple "GETTUPLE" Call 1..1 "element" "t" "element arg of a tuple";
    Load "LOAD" Load 1..3 "place" "tksl" "read src[0] into an anonymous buffer; src[1] where gate src[2] is false";
    Copy "COPY" Load 1..1 "place" "t" "the same value on device arg";
    Contiguous "CONTIGUOUS" Marker 1..1 "none" "t" "the same value in row-major storage";
    Store "STORE" Store 2..3 "none" "tksl" "write src[1] to src[0] where gate src[2]";
    Range "RANGE" Ordering 1..255 "range" "ksl" "iterator from 0 to src[0]";
    End "END" Ordering 1..255 "none" "ksl" "close the loops src[1..] around src[0]";
    After "AFTER" Ordering 1..255 "none" "tksl" "src[0] once src[1..] have run";
    Group "GROUP" Ordering 0..255 "none" "tksl" "unordered merge of effects";
    Sink "SINK" Ordering 0..255 "kernel" "tksl" "root of effects";
    Linear "LINEAR" Ordering 0..255 "none" "" "instructions in order";
    Recip "RECIP" Unary 1..1 "none" "tksl" "1 / a";
    Trunc "TRUNC" Unary 1..1 "none" "tksl" "round toward zero";
    Cast "CAST" Unary 1..1 "dtype" "tksl" "convert to dtype arg";
    Add "ADD" Binary 2..2 "none" "tksl" "a + b";
    Mul "MUL" Binary 2..2 "none" "tksl" "a * b";
    Max "MAX" Binary 2..2 "none" "tksl" "max(a, b), NaN if either is";
    Mod "MOD" Binary 2..2 "none" "tks" "a - b * floor(a / b); a where b = 0";
    Idiv "IDIV" Binary 2..2 "none" "tks" "floor(a / b); 0 where b = 0";
    CmpLt "CMPLT" Binary 2..2 "none" "tksl" "a < b";
    CmpNe "CMPNE" Binary 2..2 "none" "tksl" "a != b";
    Xor "XOR" Binary 2..2 "none" "tksl" "a ^ b";
    Or "OR" Binary 2..2 "none" "tksl" "a | b";
    And "AND" Binary 2..2 "none" "tksl" "a & b";
    Shr "SHR" Binary 2..2 "none" "tksl" "a >> b, arithmetic where signed; b past the width shifts all out";
    Shl "SHL" Binary 2..2 "none" "tksl" "a << b; 0 past the width";
    Where "WHERE" Ternary 3..3 "none" "tksl" "a if p else b";
    Neg "NEG" Decomposed 1..1 "none" "tksl" "-a";
    Not "NOT" Decomposed 1..1 "none" "tksl" "logical, or bitwise, complement";
    Exp2 "EXP2" Decomposed 1..1 "none" "tksl" "2^a";
    Log2 "LOG2" Decomposed 1..1 "none" "tksl" "log2 a";
    Sin "SIN" Decomposed 1..1 "none" "tksl" "sin a";
    Sqrt "SQRT" Decomposed 1..1 "none" "tksl" "sqrt a";
    Sub "SUB" Decomposed 2..2 "none" "tksl" "a - b";
    Div "DIV" Decomposed 2..2 "none" "tksl" "a / b, float";
    CmpGt "CMPGT" Decomposed 2..2 "none" "tksl" "a > b";
    CmpGe "CMPGE" Decomposed 2..2 "none" "tksl" "a >= b";
    CmpLe "CMPLE" Decomposed 2..2 "none" "tksl" "a <= b";
    CmpEq "CMPEQ" Decomposed 2..2 "none" "tksl" "a = b";
    Pow "POW" Decomposed 2..2 "none" "tksl" "a^b";
    MulAcc "MULACC" Decomposed 3..3 "none" "tksl" "a * b + c, rounded once";
    Threefry "THREEFRY" Decomposed 2..2 "none" "tksl" "Threefry-2x32-20 of counter a, key b (u64 each)";
    ContiguousBackward "CONTIGUOUSBACKWARD" Marker 1..1 "none" "t" "CONTIGUOUS on the gradient";
    Detach "DETACH" Marker 1..1 "none" "t" "no gradient flows";
    Barrier "BARRIER" Codegen 0..255 "none" "ksl" "synchronize the threads of a workgroup";
    Ins "INS" Codegen 0..255 "text" "l" "one machine instruction";
    GetAddr "GETADDR" Codegen 1..1 "place" "l" "address of a buffer on a device";
    Special "SPECIAL" Codegen 1..1 "text" "l" "hardware index arg, from 0 to src[0]";
    If "IF" Codegen 1..255 "none" "l" "begin what runs where src[0]";
    EndIf "ENDIF" Codegen 1..1 "none" "l" "end of an IF";
    Wmma "WMMA" Codegen 3..3 "wmma" "ksl" "acc + a @ b over a warp";
    Custom "CUSTOM" Codegen 0..255 "text" "ksl" "source text with sources spliced in";
    AtomicAdd "ATOMICADD" Codegen 2..2 "none" "ksl" "atomic src[0] += src[1]";
    CustomFunction "CUSTOMFUNCTION" Codegen 0..255 "text" "" "named device function, through CALL";
    Program "PROGRAM" Codegen 1..4 "program" "" "compiled kernel: sink, linear, source, binary";
    Source "SOURCE" Codegen 0..0 "text" "" "rendered source text";
    TruncDiv "TRUNCDIV" Codegen 2..2 "none" "l" "a / b rounded toward zero, b != 0: the machine's division";
    TruncMod "TRUNCMOD" Codegen 2..2 "none" "l" "a - b * trunc(a / b), b != 0: the machine's remainder";
}

impl Op {
    /// The op of that text name.
    pub fn from_name(name: &str) -> Option<Op> {
        Op::ALL.iter().copied().find(|op| op.name() == name)
    }

    /// Applied per element: all sources and the result have one shape.
    pub fn is_elementwise(self) -> bool {
        OpSet::ELEMENTWISE.contains(self)
    }

    /// A view of its first source.
    pub fn is_movement(self) -> bool {
        self.group() == Group::Movement
    }

    /// The two operands may be exchanged.
    pub fn is_commutative(self) -> bool {
        OpSet::COMMUTATIVE.contains(self)
    }

    /// Gives a bool whatever it compares.
    pub fn is_comparison(self) -> bool {
        matches!(self, Op::CmpLt | Op::CmpNe | Op::CmpGt | Op::CmpGe | Op::CmpLe | Op::CmpEq)
    }

    /// Has an effect or orders effects: its dtype is void.
    pub fn is_void(self) -> bool {
        use Op::*;
        let program = matches!(self, Program | Source | CustomFunction | Tuple | Barrier | If | EndIf);
        program || matches!(self, Store | End | Group | Sink | Linear | AtomicAdd)
    }
}

/// A set of ops, as bits.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct OpSet(u128);

impl OpSet {
    /// The empty set.
    pub const EMPTY: OpSet = OpSet(0);

    /// Every op.
    pub const ANY: OpSet = OpSet::of(Op::ALL);

    /// Ops applied by element: the rows from RECIP to THREEFRY, and the machine's divisions.
    pub const ELEMENTWISE: OpSet =
        OpSet((2 << Op::Threefry as u8) - (1 << Op::Recip as u8)).with(Op::TruncDiv).with(Op::TruncMod);

    /// Ops whose two operands may be exchanged.
    pub const COMMUTATIVE: OpSet = {
        use Op::*;
        OpSet::of(&[Add, Mul, Max, CmpNe, CmpEq, Xor, Or, And])
    };

    /// The set of these ops.
    pub const fn of(ops: &[Op]) -> OpSet {
        let (mut bits, mut i) = (0u128, 0);
        while i < ops.len() {
            bits |= 1 << (ops[i] as u8);
            i += 1;
        }
        OpSet(bits)
    }

    /// Every op for which `keep` holds.
    pub fn filter(keep: impl Fn(Op) -> bool) -> OpSet {
        Op::ALL.iter().copied().filter(|&op| keep(op)).fold(OpSet::EMPTY, |s, op| s.with(op))
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
