//! The op table: one row an op, with its text name, number of sources, kind of arg, stages and
//! term. Everything else about ops (properties, spec, gradient, renderers) is a `match` over this
//! closed enum.

macro_rules! ops {
    ($($variant:ident $name:literal $min:literal .. $max:literal $arg:literal $stages:literal $term:literal;)*) => {
        named! {
            /// An operation of the dialect.
            #[repr(u8)]
            Op { $(#[doc = concat!("`", $term, "`.")] $variant $name),* }
        }

        impl Op {
            /// The least and greatest number of sources; 255 is unbounded.
            pub fn arity(self) -> (usize, usize) { match self { $(Op::$variant => ($min, $max)),* } }

            /// The kind of arg that the op has (`Arg::kind`).
            pub fn arg_kind(self) -> &'static str { match self { $(Op::$variant => $arg),* } }

            /// The stages that have the op: `t`ensors, `k`ernels, their `s`haped form, `l`inear programs.
            pub fn stages(self) -> &'static str { match self { $(Op::$variant => $stages),* } }
        }
    };
}

ops! {
    // Leaf nodes.
    Param "PARAM" 0..3 "buffer" "tksl" "placeholder(slot), of shape src[0], bounds src[1], src[2]";
    Buffer "BUFFER" 0..1 "buffer" "tksl" "storage(slot, version), of shape src[0]";
    Const "CONST" 0..0 "const" "tksl" "a scalar";
    Binary "BINARY" 0..0 "bytes" "t" "raw bytes, u8";
    // Movement: views, no arithmetic.
    Permute "PERMUTE" 1..1 "axes" "ts" "reorder axes";
    Flip "FLIP" 1..1 "flags" "ts" "reverse along axes";
    Reshape "RESHAPE" 2..2 "none" "ts" "reinterpret in row-major order";
    Expand "EXPAND" 2..2 "none" "ts" "broadcast axes of size 1";
    Pad "PAD" 3..3 "fill" "ts" "place at an offset in an output filled with arg";
    Shrink "SHRINK" 3..3 "none" "tsl" "keep src[2] elements from offset src[1]";
    Index "INDEX" 1..255 "none" "tksl" "index axes from the left";
    Stack "STACK" 0..255 "none" "tksl" "join along a new leading axis";
    Bitcast "BITCAST" 1..1 "dtype" "tksl" "reinterpret the bytes, rescaling the last axis";
    Replicated "REPLICATED" 1..1 "axes" "t" "mark as replicated along axes, collapsing them to 1";
    // Collapse axes to size 1.
    Reduce "REDUCE" 1..255 "reduce" "tks" "fold axes, or ranges, with an operator";
    // Function abstraction.
    Function "FUNCTION" 1..255 "none" "t" "substitute PARAM k in src[0] with src[k+1]";
    Call "CALL" 1..255 "call" "t" "invoke src[0] on src[1..]";
    Tuple "TUPLE" 0..255 "none" "t" "pack values";
    GetTuple "GETTUPLE" 1..1 "element" "t" "element arg of a tuple";
    // Pull from storage, possibly to another device or address space.
    Load "LOAD" 1..3 "place" "tksl" "read src[0] into an anonymous buffer; src[1] where gate src[2] is false";
    Copy "COPY" 1..1 "place" "t" "the same value on device arg";
    // Identity on data.
    Contiguous "CONTIGUOUS" 1..1 "none" "t" "the same value in row-major storage";
    // Push into storage.
    Store "STORE" 2..3 "none" "tksl" "write src[1] to src[0] where gate src[2]";
    // Execution order.
    Range "RANGE" 1..255 "range" "ksl" "iterator from 0 to src[0]";
    End "END" 1..255 "none" "ksl" "close the loops src[1..] around src[0]";
    After "AFTER" 1..255 "none" "tksl" "src[0] once src[1..] have run";
    Group "GROUP" 0..255 "none" "tksl" "unordered merge of effects";
    Sink "SINK" 0..255 "kernel" "tksl" "root of effects";
    Linear "LINEAR" 0..255 "none" "" "instructions in order";
    // Elementwise: the unary primitives.
    Recip "RECIP" 1..1 "none" "tksl" "1 / a";
    Trunc "TRUNC" 1..1 "none" "tksl" "round toward zero";
    Cast "CAST" 1..1 "dtype" "tksl" "convert to dtype arg";
    // The binary primitives.
    Add "ADD" 2..2 "none" "tksl" "a + b";
    Mul "MUL" 2..2 "rounding" "tksl" "a * b; where arg says so, rounded before anything is added to it";
    Max "MAX" 2..2 "none" "tksl" "max(a, b), NaN if either is";
    Mod "MOD" 2..2 "none" "tks" "a - b * floor(a / b); a where b = 0";
    Idiv "IDIV" 2..2 "none" "tks" "floor(a / b); 0 where b = 0";
    CmpLt "CMPLT" 2..2 "none" "tksl" "a < b";
    CmpNe "CMPNE" 2..2 "none" "tksl" "a != b";
    Xor "XOR" 2..2 "none" "tksl" "a ^ b";
    Or "OR" 2..2 "none" "tksl" "a | b";
    And "AND" 2..2 "none" "tksl" "a & b";
    Shr "SHR" 2..2 "none" "tksl" "a >> b, arithmetic where signed; b past the width shifts all out";
    Shl "SHL" 2..2 "none" "tksl" "a << b; 0 past the width";
    // The ternary one.
    Where "WHERE" 3..3 "none" "tksl" "a if p else b";
    // Elementwise, defined by the primitives.
    Neg "NEG" 1..1 "none" "tksl" "-a";
    Not "NOT" 1..1 "none" "tksl" "logical, or bitwise, complement";
    Exp2 "EXP2" 1..1 "none" "tksl" "2^a";
    Log2 "LOG2" 1..1 "none" "tksl" "log2 a";
    Sin "SIN" 1..1 "none" "tksl" "sin a";
    Sqrt "SQRT" 1..1 "none" "tksl" "sqrt a";
    Sub "SUB" 2..2 "none" "tksl" "a - b";
    Div "DIV" 2..2 "none" "tksl" "a / b, float";
    CmpGt "CMPGT" 2..2 "none" "tksl" "a > b";
    CmpGe "CMPGE" 2..2 "none" "tksl" "a >= b";
    CmpLe "CMPLE" 2..2 "none" "tksl" "a <= b";
    CmpEq "CMPEQ" 2..2 "none" "tksl" "a = b";
    Pow "POW" 2..2 "none" "tksl" "a^b";
    MulAcc "MULACC" 3..3 "none" "tksl" "a * b + c, rounded once";
    Threefry "THREEFRY" 2..2 "none" "tksl" "Threefry-2x32-20 of counter a, key b (u64 each)";
    // Identity on data.
    ContiguousBackward "CONTIGUOUSBACKWARD" 1..1 "none" "t" "CONTIGUOUS on the gradient";
    Detach "DETACH" 1..1 "none" "t" "no gradient flows";
    // Only in generated code.
    Barrier "BARRIER" 0..255 "none" "ksl" "synchronize the threads of a workgroup";
    Ins "INS" 0..255 "text" "l" "one machine instruction";
    GetAddr "GETADDR" 1..1 "place" "l" "address of a buffer on a device";
    Special "SPECIAL" 1..1 "text" "sl" "hardware index arg, from 0 to src[0]";
    If "IF" 1..255 "none" "l" "begin what runs where src[0]";
    EndIf "ENDIF" 1..1 "none" "l" "end of an IF";
    Wmma "WMMA" 3..3 "wmma" "ksl" "acc + a @ b over a warp";
    Custom "CUSTOM" 0..255 "text" "ksl" "source text with sources spliced in";
    AtomicAdd "ATOMICADD" 2..2 "none" "ksl" "atomic src[0] += src[1]";
    CustomFunction "CUSTOMFUNCTION" 0..255 "text" "" "named device function, through CALL";
    Program "PROGRAM" 1..4 "program" "" "compiled kernel: sink, linear, source, binary";
    Source "SOURCE" 0..0 "text" "" "rendered source text";
    TruncDiv "TRUNCDIV" 2..2 "none" "l" "a / b rounded toward zero, b != 0: the machine's division";
    TruncMod "TRUNCMOD" 2..2 "none" "l" "a - b * trunc(a / b), b != 0: the machine's remainder";
}

impl Op {
    /// Applied per element: all sources and the result have one shape.
    pub fn is_elementwise(self) -> bool {
        OpSet::ELEMENTWISE.contains(self)
    }

    /// A view of its first source.
    pub fn is_movement(self) -> bool {
        OpSet::MOVEMENT.contains(self)
    }

    /// Gives a bool whatever it compares.
    pub fn is_comparison(self) -> bool {
        matches!(
            self,
            Op::CmpLt | Op::CmpNe | Op::CmpGt | Op::CmpGe | Op::CmpLe | Op::CmpEq
        )
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
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct OpSet(u128);

impl OpSet {
    /// The empty set.
    pub const EMPTY: OpSet = OpSet(0);

    /// Every op.
    pub const ANY: OpSet = OpSet::of(Op::ALL);

    /// Ops applied by element: the rows from RECIP to THREEFRY, and the machine's divisions.
    pub const ELEMENTWISE: OpSet = OpSet::rows(Op::Recip, Op::Threefry)
        .with(Op::TruncDiv)
        .with(Op::TruncMod);

    /// Views of the first source.
    pub const MOVEMENT: OpSet = OpSet::rows(Op::Permute, Op::Replicated);

    /// Ops whose two operands may be exchanged.
    pub const COMMUTATIVE: OpSet = {
        use Op::*;
        OpSet::of(&[Add, Mul, Max, CmpNe, CmpEq, Xor, Or, And])
    };

    /// The ops from one row of the table to another.
    const fn rows(first: Op, last: Op) -> OpSet {
        OpSet((2 << last as u8) - (1 << first as u8))
    }

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
        Op::ALL
            .iter()
            .copied()
            .filter(|&op| keep(op))
            .fold(OpSet::EMPTY, |s, op| s.with(op))
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
