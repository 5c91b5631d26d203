//! The vector instructions, a row each: how its operands stand, and its encodings for SSE4.2, for AVX2 with
//! registers of 16 bytes, and with registers of 32. Flows in: nothing but the table below; flows out: the form
//! and the encoding of an instruction. Always: `_` is an encoding that does not exist, and nothing selects it.

use iced_x86::Code;

/// How the operands of a vector instruction stand.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// `dst, a`: a may be in memory. Some have an immediate.
    Two,
    /// `dst, a, b`: b may be in memory. Without VEX, dst is where a was. Some have an immediate.
    Three,
    /// The same, and a and b may change places.
    ThreeCommuting,
    /// `dst, a, immediate`. Without VEX, dst is where a was.
    ShiftImm,
    /// `dst, a`, of whose encoding the upper lanes of dst come from one operand more: nothing reads them.
    Pass,
    /// `dst, a, immediate`: dst is what an encoding has as register or memory, a never is in memory.
    Extract,
    /// `dst, a`: the same without an immediate.
    Extract0,
    /// `memory, a`.
    Store,
    /// `dst, mask, memory`.
    MaskLoad,
    /// `memory, mask, a`.
    MaskStore,
    /// `dst, mask, a, b`: a in the lanes whose mask has its sign bit, b elsewhere.
    Choose,
    /// `dst, a, b, c`: a·b + c, rounded once. Any may be in memory, but one of them alone.
    Fma,
}

/// What an operand of an encoding is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is none.
    None,
    /// A vector register by its 16 bytes, or memory where the encoding has that there.
    Xmm,
    /// The same by its 32 bytes.
    Ymm,
    /// A general register by 32 bits, or memory where the encoding has that there.
    R32,
    /// The same by 64 bits.
    R64,
    /// Memory alone.
    Memory,
    /// A number of 8 bits.
    Immediate,
}

/// The operands of an encoding, read from its name, as in `VEX_Vinsertf128_ymm_ymm_xmmm128_imm8`.
const fn kinds(name: &str) -> [Kind; 4] {
    let name = name.as_bytes();
    let mut kinds = [Kind::None; 4];
    let mut count = 0;
    let mut at = 1;
    while at + 1 < name.len() {
        if name[at - 1] == b'_' {
            let kind = match (name[at], name[at + 1]) {
                (b'x', _) => Kind::Xmm,
                (b'y', _) => Kind::Ymm,
                (b'r', b'3') => Kind::R32,
                (b'r', b'6') => Kind::R64,
                (b'r', b'm') if name[at + 2] == b'3' => Kind::R32,
                (b'r', b'm') => Kind::R64,
                (b'm', _) => Kind::Memory,
                (b'i', _) => Kind::Immediate,
                _ => Kind::None,
            };
            if !matches!(kind, Kind::None) {
                kinds[count] = kind;
                count += 1;
            }
        }
        at += 1;
    }
    kinds
}

macro_rules! encoding {
    (_) => {
        Code::INVALID
    };
    ($code:ident) => {
        Code::$code
    };
}

macro_rules! vectors {
    ($($name:ident $form:ident $sse:tt $xmm:tt $ymm:tt;)*) => {
        /// A vector instruction, named as its mnemonic reads.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Vector { $($name),* }

        impl Vector {
            /// Every one, in the order of the table.
            pub const ALL: &[Vector] = &[$(Vector::$name),*];

            /// How its operands stand.
            pub fn form(self) -> Form {
                match self { $(Vector::$name => Form::$form),* }
            }

            /// Its encodings: SSE4.2, AVX2 on 16 bytes, AVX2 on 32.
            pub fn encodings(self) -> [Code; 3] {
                match self { $(Vector::$name => [encoding!($sse), encoding!($xmm), encoding!($ymm)]),* }
            }

            /// Whether a source that could be memory by its form cannot: the encodings take a register alone.
            pub fn registers_only(self) -> bool {
                match self {
                    Vector::MoveMaskPs | Vector::MoveMaskPd | Vector::MoveMaskB => true,
                    Vector::BroadcastSs | Vector::BroadcastSd => true,
                    _ => false,
                }
            }

            /// The operands of those encodings, the destination first.
            pub fn operands(self) -> &'static [[Kind; 4]; 3] {
                match self {
                    $(Vector::$name => const {
                        &[kinds(stringify!($sse)), kinds(stringify!($xmm)), kinds(stringify!($ymm))]
                    }),*
                }
            }
        }
    };
}

vectors! {
    AddPs ThreeCommuting Addps_xmm_xmmm128 VEX_Vaddps_xmm_xmm_xmmm128 VEX_Vaddps_ymm_ymm_ymmm256;
    AddPd ThreeCommuting Addpd_xmm_xmmm128 VEX_Vaddpd_xmm_xmm_xmmm128 VEX_Vaddpd_ymm_ymm_ymmm256;
    AddSs ThreeCommuting Addss_xmm_xmmm32 VEX_Vaddss_xmm_xmm_xmmm32 _;
    AddSd ThreeCommuting Addsd_xmm_xmmm64 VEX_Vaddsd_xmm_xmm_xmmm64 _;
    SubPs Three Subps_xmm_xmmm128 VEX_Vsubps_xmm_xmm_xmmm128 VEX_Vsubps_ymm_ymm_ymmm256;
    SubPd Three Subpd_xmm_xmmm128 VEX_Vsubpd_xmm_xmm_xmmm128 VEX_Vsubpd_ymm_ymm_ymmm256;
    SubSs Three Subss_xmm_xmmm32 VEX_Vsubss_xmm_xmm_xmmm32 _;
    SubSd Three Subsd_xmm_xmmm64 VEX_Vsubsd_xmm_xmm_xmmm64 _;
    MulPs ThreeCommuting Mulps_xmm_xmmm128 VEX_Vmulps_xmm_xmm_xmmm128 VEX_Vmulps_ymm_ymm_ymmm256;
    MulPd ThreeCommuting Mulpd_xmm_xmmm128 VEX_Vmulpd_xmm_xmm_xmmm128 VEX_Vmulpd_ymm_ymm_ymmm256;
    MulSs ThreeCommuting Mulss_xmm_xmmm32 VEX_Vmulss_xmm_xmm_xmmm32 _;
    MulSd ThreeCommuting Mulsd_xmm_xmmm64 VEX_Vmulsd_xmm_xmm_xmmm64 _;
    DivPs Three Divps_xmm_xmmm128 VEX_Vdivps_xmm_xmm_xmmm128 VEX_Vdivps_ymm_ymm_ymmm256;
    DivPd Three Divpd_xmm_xmmm128 VEX_Vdivpd_xmm_xmm_xmmm128 VEX_Vdivpd_ymm_ymm_ymmm256;
    DivSs Three Divss_xmm_xmmm32 VEX_Vdivss_xmm_xmm_xmmm32 _;
    DivSd Three Divsd_xmm_xmmm64 VEX_Vdivsd_xmm_xmm_xmmm64 _;
    MinPs Three Minps_xmm_xmmm128 VEX_Vminps_xmm_xmm_xmmm128 VEX_Vminps_ymm_ymm_ymmm256;
    MinPd Three Minpd_xmm_xmmm128 VEX_Vminpd_xmm_xmm_xmmm128 VEX_Vminpd_ymm_ymm_ymmm256;
    MinSs Three Minss_xmm_xmmm32 VEX_Vminss_xmm_xmm_xmmm32 _;
    MinSd Three Minsd_xmm_xmmm64 VEX_Vminsd_xmm_xmm_xmmm64 _;
    MaxPs Three Maxps_xmm_xmmm128 VEX_Vmaxps_xmm_xmm_xmmm128 VEX_Vmaxps_ymm_ymm_ymmm256;
    MaxPd Three Maxpd_xmm_xmmm128 VEX_Vmaxpd_xmm_xmm_xmmm128 VEX_Vmaxpd_ymm_ymm_ymmm256;
    MaxSs Three Maxss_xmm_xmmm32 VEX_Vmaxss_xmm_xmm_xmmm32 _;
    MaxSd Three Maxsd_xmm_xmmm64 VEX_Vmaxsd_xmm_xmm_xmmm64 _;
    CmpPs Three Cmpps_xmm_xmmm128_imm8 VEX_Vcmpps_xmm_xmm_xmmm128_imm8 VEX_Vcmpps_ymm_ymm_ymmm256_imm8;
    CmpPd Three Cmppd_xmm_xmmm128_imm8 VEX_Vcmppd_xmm_xmm_xmmm128_imm8 VEX_Vcmppd_ymm_ymm_ymmm256_imm8;
    CmpSs Three Cmpss_xmm_xmmm32_imm8 VEX_Vcmpss_xmm_xmm_xmmm32_imm8 _;
    CmpSd Three Cmpsd_xmm_xmmm64_imm8 VEX_Vcmpsd_xmm_xmm_xmmm64_imm8 _;
    And ThreeCommuting Pand_xmm_xmmm128 VEX_Vpand_xmm_xmm_xmmm128 VEX_Vpand_ymm_ymm_ymmm256;
    Or ThreeCommuting Por_xmm_xmmm128 VEX_Vpor_xmm_xmm_xmmm128 VEX_Vpor_ymm_ymm_ymmm256;
    Xor ThreeCommuting Pxor_xmm_xmmm128 VEX_Vpxor_xmm_xmm_xmmm128 VEX_Vpxor_ymm_ymm_ymmm256;
    AndNot Three Pandn_xmm_xmmm128 VEX_Vpandn_xmm_xmm_xmmm128 VEX_Vpandn_ymm_ymm_ymmm256;
    AndPs ThreeCommuting Andps_xmm_xmmm128 VEX_Vandps_xmm_xmm_xmmm128 VEX_Vandps_ymm_ymm_ymmm256;
    OrPs ThreeCommuting Orps_xmm_xmmm128 VEX_Vorps_xmm_xmm_xmmm128 VEX_Vorps_ymm_ymm_ymmm256;
    XorPs ThreeCommuting Xorps_xmm_xmmm128 VEX_Vxorps_xmm_xmm_xmmm128 VEX_Vxorps_ymm_ymm_ymmm256;
    AndNotPs Three Andnps_xmm_xmmm128 VEX_Vandnps_xmm_xmm_xmmm128 VEX_Vandnps_ymm_ymm_ymmm256;
    AddB ThreeCommuting Paddb_xmm_xmmm128 VEX_Vpaddb_xmm_xmm_xmmm128 VEX_Vpaddb_ymm_ymm_ymmm256;
    SubB Three Psubb_xmm_xmmm128 VEX_Vpsubb_xmm_xmm_xmmm128 VEX_Vpsubb_ymm_ymm_ymmm256;
    CmpEqB ThreeCommuting Pcmpeqb_xmm_xmmm128 VEX_Vpcmpeqb_xmm_xmm_xmmm128 VEX_Vpcmpeqb_ymm_ymm_ymmm256;
    CmpGtB Three Pcmpgtb_xmm_xmmm128 VEX_Vpcmpgtb_xmm_xmm_xmmm128 VEX_Vpcmpgtb_ymm_ymm_ymmm256;
    AddW ThreeCommuting Paddw_xmm_xmmm128 VEX_Vpaddw_xmm_xmm_xmmm128 VEX_Vpaddw_ymm_ymm_ymmm256;
    SubW Three Psubw_xmm_xmmm128 VEX_Vpsubw_xmm_xmm_xmmm128 VEX_Vpsubw_ymm_ymm_ymmm256;
    CmpEqW ThreeCommuting Pcmpeqw_xmm_xmmm128 VEX_Vpcmpeqw_xmm_xmm_xmmm128 VEX_Vpcmpeqw_ymm_ymm_ymmm256;
    CmpGtW Three Pcmpgtw_xmm_xmmm128 VEX_Vpcmpgtw_xmm_xmm_xmmm128 VEX_Vpcmpgtw_ymm_ymm_ymmm256;
    AddD ThreeCommuting Paddd_xmm_xmmm128 VEX_Vpaddd_xmm_xmm_xmmm128 VEX_Vpaddd_ymm_ymm_ymmm256;
    SubD Three Psubd_xmm_xmmm128 VEX_Vpsubd_xmm_xmm_xmmm128 VEX_Vpsubd_ymm_ymm_ymmm256;
    CmpEqD ThreeCommuting Pcmpeqd_xmm_xmmm128 VEX_Vpcmpeqd_xmm_xmm_xmmm128 VEX_Vpcmpeqd_ymm_ymm_ymmm256;
    CmpGtD Three Pcmpgtd_xmm_xmmm128 VEX_Vpcmpgtd_xmm_xmm_xmmm128 VEX_Vpcmpgtd_ymm_ymm_ymmm256;
    AddQ ThreeCommuting Paddq_xmm_xmmm128 VEX_Vpaddq_xmm_xmm_xmmm128 VEX_Vpaddq_ymm_ymm_ymmm256;
    SubQ Three Psubq_xmm_xmmm128 VEX_Vpsubq_xmm_xmm_xmmm128 VEX_Vpsubq_ymm_ymm_ymmm256;
    CmpEqQ ThreeCommuting Pcmpeqq_xmm_xmmm128 VEX_Vpcmpeqq_xmm_xmm_xmmm128 VEX_Vpcmpeqq_ymm_ymm_ymmm256;
    CmpGtQ Three Pcmpgtq_xmm_xmmm128 VEX_Vpcmpgtq_xmm_xmm_xmmm128 VEX_Vpcmpgtq_ymm_ymm_ymmm256;
    MulW ThreeCommuting Pmullw_xmm_xmmm128 VEX_Vpmullw_xmm_xmm_xmmm128 VEX_Vpmullw_ymm_ymm_ymmm256;
    MulD ThreeCommuting Pmulld_xmm_xmmm128 VEX_Vpmulld_xmm_xmm_xmmm128 VEX_Vpmulld_ymm_ymm_ymmm256;
    MulUDQ ThreeCommuting Pmuludq_xmm_xmmm128 VEX_Vpmuludq_xmm_xmm_xmmm128 VEX_Vpmuludq_ymm_ymm_ymmm256;
    MaddWD ThreeCommuting Pmaddwd_xmm_xmmm128 VEX_Vpmaddwd_xmm_xmm_xmmm128 VEX_Vpmaddwd_ymm_ymm_ymmm256;
    MinSB ThreeCommuting Pminsb_xmm_xmmm128 VEX_Vpminsb_xmm_xmm_xmmm128 VEX_Vpminsb_ymm_ymm_ymmm256;
    MaxSB ThreeCommuting Pmaxsb_xmm_xmmm128 VEX_Vpmaxsb_xmm_xmm_xmmm128 VEX_Vpmaxsb_ymm_ymm_ymmm256;
    MinUB ThreeCommuting Pminub_xmm_xmmm128 VEX_Vpminub_xmm_xmm_xmmm128 VEX_Vpminub_ymm_ymm_ymmm256;
    MaxUB ThreeCommuting Pmaxub_xmm_xmmm128 VEX_Vpmaxub_xmm_xmm_xmmm128 VEX_Vpmaxub_ymm_ymm_ymmm256;
    MinSW ThreeCommuting Pminsw_xmm_xmmm128 VEX_Vpminsw_xmm_xmm_xmmm128 VEX_Vpminsw_ymm_ymm_ymmm256;
    MaxSW ThreeCommuting Pmaxsw_xmm_xmmm128 VEX_Vpmaxsw_xmm_xmm_xmmm128 VEX_Vpmaxsw_ymm_ymm_ymmm256;
    MinUW ThreeCommuting Pminuw_xmm_xmmm128 VEX_Vpminuw_xmm_xmm_xmmm128 VEX_Vpminuw_ymm_ymm_ymmm256;
    MaxUW ThreeCommuting Pmaxuw_xmm_xmmm128 VEX_Vpmaxuw_xmm_xmm_xmmm128 VEX_Vpmaxuw_ymm_ymm_ymmm256;
    MinSD ThreeCommuting Pminsd_xmm_xmmm128 VEX_Vpminsd_xmm_xmm_xmmm128 VEX_Vpminsd_ymm_ymm_ymmm256;
    MaxSD ThreeCommuting Pmaxsd_xmm_xmmm128 VEX_Vpmaxsd_xmm_xmm_xmmm128 VEX_Vpmaxsd_ymm_ymm_ymmm256;
    MinUD ThreeCommuting Pminud_xmm_xmmm128 VEX_Vpminud_xmm_xmm_xmmm128 VEX_Vpminud_ymm_ymm_ymmm256;
    MaxUD ThreeCommuting Pmaxud_xmm_xmmm128 VEX_Vpmaxud_xmm_xmm_xmmm128 VEX_Vpmaxud_ymm_ymm_ymmm256;
    PackSDW Three Packssdw_xmm_xmmm128 VEX_Vpackssdw_xmm_xmm_xmmm128 VEX_Vpackssdw_ymm_ymm_ymmm256;
    PackUDW Three Packusdw_xmm_xmmm128 VEX_Vpackusdw_xmm_xmm_xmmm128 VEX_Vpackusdw_ymm_ymm_ymmm256;
    PackSWB Three Packsswb_xmm_xmmm128 VEX_Vpacksswb_xmm_xmm_xmmm128 VEX_Vpacksswb_ymm_ymm_ymmm256;
    PackUWB Three Packuswb_xmm_xmmm128 VEX_Vpackuswb_xmm_xmm_xmmm128 VEX_Vpackuswb_ymm_ymm_ymmm256;
    ShuffleB Three Pshufb_xmm_xmmm128 VEX_Vpshufb_xmm_xmm_xmmm128 VEX_Vpshufb_ymm_ymm_ymmm256;
    ShufflePs Three Shufps_xmm_xmmm128_imm8 VEX_Vshufps_xmm_xmm_xmmm128_imm8 VEX_Vshufps_ymm_ymm_ymmm256_imm8;
    ShufflePd Three Shufpd_xmm_xmmm128_imm8 VEX_Vshufpd_xmm_xmm_xmmm128_imm8 VEX_Vshufpd_ymm_ymm_ymmm256_imm8;
    UnpackLowPs Three Unpcklps_xmm_xmmm128 VEX_Vunpcklps_xmm_xmm_xmmm128 VEX_Vunpcklps_ymm_ymm_ymmm256;
    UnpackHighPs Three Unpckhps_xmm_xmmm128 VEX_Vunpckhps_xmm_xmm_xmmm128 VEX_Vunpckhps_ymm_ymm_ymmm256;
    UnpackLowPd Three Unpcklpd_xmm_xmmm128 VEX_Vunpcklpd_xmm_xmm_xmmm128 VEX_Vunpcklpd_ymm_ymm_ymmm256;
    UnpackHighPd Three Unpckhpd_xmm_xmmm128 VEX_Vunpckhpd_xmm_xmm_xmmm128 VEX_Vunpckhpd_ymm_ymm_ymmm256;
    UnpackLowBW Three Punpcklbw_xmm_xmmm128 VEX_Vpunpcklbw_xmm_xmm_xmmm128 VEX_Vpunpcklbw_ymm_ymm_ymmm256;
    UnpackHighBW Three Punpckhbw_xmm_xmmm128 VEX_Vpunpckhbw_xmm_xmm_xmmm128 VEX_Vpunpckhbw_ymm_ymm_ymmm256;
    UnpackLowWD Three Punpcklwd_xmm_xmmm128 VEX_Vpunpcklwd_xmm_xmm_xmmm128 VEX_Vpunpcklwd_ymm_ymm_ymmm256;
    UnpackHighWD Three Punpckhwd_xmm_xmmm128 VEX_Vpunpckhwd_xmm_xmm_xmmm128 VEX_Vpunpckhwd_ymm_ymm_ymmm256;
    UnpackLowDQ Three Punpckldq_xmm_xmmm128 VEX_Vpunpckldq_xmm_xmm_xmmm128 VEX_Vpunpckldq_ymm_ymm_ymmm256;
    UnpackHighDQ Three Punpckhdq_xmm_xmmm128 VEX_Vpunpckhdq_xmm_xmm_xmmm128 VEX_Vpunpckhdq_ymm_ymm_ymmm256;
    UnpackLowQDQ Three Punpcklqdq_xmm_xmmm128 VEX_Vpunpcklqdq_xmm_xmm_xmmm128 VEX_Vpunpcklqdq_ymm_ymm_ymmm256;
    UnpackHighQDQ Three Punpckhqdq_xmm_xmmm128 VEX_Vpunpckhqdq_xmm_xmm_xmmm128 VEX_Vpunpckhqdq_ymm_ymm_ymmm256;
    AlignR Three Palignr_xmm_xmmm128_imm8 VEX_Vpalignr_xmm_xmm_xmmm128_imm8 VEX_Vpalignr_ymm_ymm_ymmm256_imm8;
    BlendPs Three Blendps_xmm_xmmm128_imm8 VEX_Vblendps_xmm_xmm_xmmm128_imm8 VEX_Vblendps_ymm_ymm_ymmm256_imm8;
    BlendW Three Pblendw_xmm_xmmm128_imm8 VEX_Vpblendw_xmm_xmm_xmmm128_imm8 VEX_Vpblendw_ymm_ymm_ymmm256_imm8;
    BlendPd Three Blendpd_xmm_xmmm128_imm8 VEX_Vblendpd_xmm_xmm_xmmm128_imm8 VEX_Vblendpd_ymm_ymm_ymmm256_imm8;
    Permute128 Three _ _ VEX_Vperm2f128_ymm_ymm_ymmm256_imm8;
    Insert128 Three _ _ VEX_Vinsertf128_ymm_ymm_xmmm128_imm8;
    PermuteD Three _ _ VEX_Vpermd_ymm_ymm_ymmm256;
    ShlVD Three _ VEX_Vpsllvd_xmm_xmm_xmmm128 VEX_Vpsllvd_ymm_ymm_ymmm256;
    ShlVQ Three _ VEX_Vpsllvq_xmm_xmm_xmmm128 VEX_Vpsllvq_ymm_ymm_ymmm256;
    ShrVD Three _ VEX_Vpsrlvd_xmm_xmm_xmmm128 VEX_Vpsrlvd_ymm_ymm_ymmm256;
    ShrVQ Three _ VEX_Vpsrlvq_xmm_xmm_xmmm128 VEX_Vpsrlvq_ymm_ymm_ymmm256;
    SarVD Three _ VEX_Vpsravd_xmm_xmm_xmmm128 VEX_Vpsravd_ymm_ymm_ymmm256;
    ShlW Three Psllw_xmm_xmmm128 VEX_Vpsllw_xmm_xmm_xmmm128 VEX_Vpsllw_ymm_ymm_xmmm128;
    ShlWImm ShiftImm Psllw_xmm_imm8 VEX_Vpsllw_xmm_xmm_imm8 VEX_Vpsllw_ymm_ymm_imm8;
    ShlD Three Pslld_xmm_xmmm128 VEX_Vpslld_xmm_xmm_xmmm128 VEX_Vpslld_ymm_ymm_xmmm128;
    ShlDImm ShiftImm Pslld_xmm_imm8 VEX_Vpslld_xmm_xmm_imm8 VEX_Vpslld_ymm_ymm_imm8;
    ShlQ Three Psllq_xmm_xmmm128 VEX_Vpsllq_xmm_xmm_xmmm128 VEX_Vpsllq_ymm_ymm_xmmm128;
    ShlQImm ShiftImm Psllq_xmm_imm8 VEX_Vpsllq_xmm_xmm_imm8 VEX_Vpsllq_ymm_ymm_imm8;
    ShrW Three Psrlw_xmm_xmmm128 VEX_Vpsrlw_xmm_xmm_xmmm128 VEX_Vpsrlw_ymm_ymm_xmmm128;
    ShrWImm ShiftImm Psrlw_xmm_imm8 VEX_Vpsrlw_xmm_xmm_imm8 VEX_Vpsrlw_ymm_ymm_imm8;
    ShrD Three Psrld_xmm_xmmm128 VEX_Vpsrld_xmm_xmm_xmmm128 VEX_Vpsrld_ymm_ymm_xmmm128;
    ShrDImm ShiftImm Psrld_xmm_imm8 VEX_Vpsrld_xmm_xmm_imm8 VEX_Vpsrld_ymm_ymm_imm8;
    ShrQ Three Psrlq_xmm_xmmm128 VEX_Vpsrlq_xmm_xmm_xmmm128 VEX_Vpsrlq_ymm_ymm_xmmm128;
    ShrQImm ShiftImm Psrlq_xmm_imm8 VEX_Vpsrlq_xmm_xmm_imm8 VEX_Vpsrlq_ymm_ymm_imm8;
    SarW Three Psraw_xmm_xmmm128 VEX_Vpsraw_xmm_xmm_xmmm128 VEX_Vpsraw_ymm_ymm_xmmm128;
    SarWImm ShiftImm Psraw_xmm_imm8 VEX_Vpsraw_xmm_xmm_imm8 VEX_Vpsraw_ymm_ymm_imm8;
    SarD Three Psrad_xmm_xmmm128 VEX_Vpsrad_xmm_xmm_xmmm128 VEX_Vpsrad_ymm_ymm_xmmm128;
    SarDImm ShiftImm Psrad_xmm_imm8 VEX_Vpsrad_xmm_xmm_imm8 VEX_Vpsrad_ymm_ymm_imm8;
    ShrBytes ShiftImm Psrldq_xmm_imm8 VEX_Vpsrldq_xmm_xmm_imm8 VEX_Vpsrldq_ymm_ymm_imm8;
    ShlBytes ShiftImm Pslldq_xmm_imm8 VEX_Vpslldq_xmm_xmm_imm8 VEX_Vpslldq_ymm_ymm_imm8;
    InsertB Three Pinsrb_xmm_r32m8_imm8 VEX_Vpinsrb_xmm_xmm_r32m8_imm8 _;
    InsertW Three Pinsrw_xmm_r32m16_imm8 VEX_Vpinsrw_xmm_xmm_r32m16_imm8 _;
    InsertD Three Pinsrd_xmm_rm32_imm8 VEX_Vpinsrd_xmm_xmm_rm32_imm8 _;
    InsertQ Three Pinsrq_xmm_rm64_imm8 VEX_Vpinsrq_xmm_xmm_rm64_imm8 _;
    SqrtPs Two Sqrtps_xmm_xmmm128 VEX_Vsqrtps_xmm_xmmm128 VEX_Vsqrtps_ymm_ymmm256;
    SqrtPd Two Sqrtpd_xmm_xmmm128 VEX_Vsqrtpd_xmm_xmmm128 VEX_Vsqrtpd_ymm_ymmm256;
    RoundPs Two Roundps_xmm_xmmm128_imm8 VEX_Vroundps_xmm_xmmm128_imm8 VEX_Vroundps_ymm_ymmm256_imm8;
    RoundPd Two Roundpd_xmm_xmmm128_imm8 VEX_Vroundpd_xmm_xmmm128_imm8 VEX_Vroundpd_ymm_ymmm256_imm8;
    AbsB Two Pabsb_xmm_xmmm128 VEX_Vpabsb_xmm_xmmm128 VEX_Vpabsb_ymm_ymmm256;
    AbsW Two Pabsw_xmm_xmmm128 VEX_Vpabsw_xmm_xmmm128 VEX_Vpabsw_ymm_ymmm256;
    AbsD Two Pabsd_xmm_xmmm128 VEX_Vpabsd_xmm_xmmm128 VEX_Vpabsd_ymm_ymmm256;
    CvtDQ2Ps Two Cvtdq2ps_xmm_xmmm128 VEX_Vcvtdq2ps_xmm_xmmm128 VEX_Vcvtdq2ps_ymm_ymmm256;
    CvttPs2DQ Two Cvttps2dq_xmm_xmmm128 VEX_Vcvttps2dq_xmm_xmmm128 VEX_Vcvttps2dq_ymm_ymmm256;
    CvtPs2Pd Two Cvtps2pd_xmm_xmmm64 VEX_Vcvtps2pd_xmm_xmmm64 VEX_Vcvtps2pd_ymm_xmmm128;
    CvtDQ2Pd Two Cvtdq2pd_xmm_xmmm64 VEX_Vcvtdq2pd_xmm_xmmm64 VEX_Vcvtdq2pd_ymm_xmmm128;
    CvtPd2Ps Two Cvtpd2ps_xmm_xmmm128 VEX_Vcvtpd2ps_xmm_xmmm128 VEX_Vcvtpd2ps_xmm_ymmm256;
    CvttPd2DQ Two Cvttpd2dq_xmm_xmmm128 VEX_Vcvttpd2dq_xmm_xmmm128 VEX_Vcvttpd2dq_xmm_ymmm256;
    CvtPh2Ps Two _ VEX_Vcvtph2ps_xmm_xmmm64 VEX_Vcvtph2ps_ymm_xmmm128;
    CvtPs2Ph Extract _ VEX_Vcvtps2ph_xmmm64_xmm_imm8 VEX_Vcvtps2ph_xmmm128_ymm_imm8;
    ExtendSBW Two Pmovsxbw_xmm_xmmm64 VEX_Vpmovsxbw_xmm_xmmm64 VEX_Vpmovsxbw_ymm_xmmm128;
    ExtendSBD Two Pmovsxbd_xmm_xmmm32 VEX_Vpmovsxbd_xmm_xmmm32 VEX_Vpmovsxbd_ymm_xmmm64;
    ExtendSBQ Two Pmovsxbq_xmm_xmmm16 VEX_Vpmovsxbq_xmm_xmmm16 VEX_Vpmovsxbq_ymm_xmmm32;
    ExtendSWD Two Pmovsxwd_xmm_xmmm64 VEX_Vpmovsxwd_xmm_xmmm64 VEX_Vpmovsxwd_ymm_xmmm128;
    ExtendSWQ Two Pmovsxwq_xmm_xmmm32 VEX_Vpmovsxwq_xmm_xmmm32 VEX_Vpmovsxwq_ymm_xmmm64;
    ExtendSDQ Two Pmovsxdq_xmm_xmmm64 VEX_Vpmovsxdq_xmm_xmmm64 VEX_Vpmovsxdq_ymm_xmmm128;
    ExtendZBW Two Pmovzxbw_xmm_xmmm64 VEX_Vpmovzxbw_xmm_xmmm64 VEX_Vpmovzxbw_ymm_xmmm128;
    ExtendZBD Two Pmovzxbd_xmm_xmmm32 VEX_Vpmovzxbd_xmm_xmmm32 VEX_Vpmovzxbd_ymm_xmmm64;
    ExtendZBQ Two Pmovzxbq_xmm_xmmm16 VEX_Vpmovzxbq_xmm_xmmm16 VEX_Vpmovzxbq_ymm_xmmm32;
    ExtendZWD Two Pmovzxwd_xmm_xmmm64 VEX_Vpmovzxwd_xmm_xmmm64 VEX_Vpmovzxwd_ymm_xmmm128;
    ExtendZWQ Two Pmovzxwq_xmm_xmmm32 VEX_Vpmovzxwq_xmm_xmmm32 VEX_Vpmovzxwq_ymm_xmmm64;
    ExtendZDQ Two Pmovzxdq_xmm_xmmm64 VEX_Vpmovzxdq_xmm_xmmm64 VEX_Vpmovzxdq_ymm_xmmm128;
    ShuffleD Two Pshufd_xmm_xmmm128_imm8 VEX_Vpshufd_xmm_xmmm128_imm8 VEX_Vpshufd_ymm_ymmm256_imm8;
    ShuffleLowW Two Pshuflw_xmm_xmmm128_imm8 VEX_Vpshuflw_xmm_xmmm128_imm8 VEX_Vpshuflw_ymm_ymmm256_imm8;
    ShuffleHighW Two Pshufhw_xmm_xmmm128_imm8 VEX_Vpshufhw_xmm_xmmm128_imm8 VEX_Vpshufhw_ymm_ymmm256_imm8;
    DuplicateLowPd Two Movddup_xmm_xmmm64 VEX_Vmovddup_xmm_xmmm64 VEX_Vmovddup_ymm_ymmm256;
    DuplicateOddPs Two Movshdup_xmm_xmmm128 VEX_Vmovshdup_xmm_xmmm128 VEX_Vmovshdup_ymm_ymmm256;
    DuplicateEvenPs Two Movsldup_xmm_xmmm128 VEX_Vmovsldup_xmm_xmmm128 VEX_Vmovsldup_ymm_ymmm256;
    PermuteQ Two _ _ VEX_Vpermq_ymm_ymmm256_imm8;
    BroadcastB Two _ VEX_Vpbroadcastb_xmm_xmmm8 VEX_Vpbroadcastb_ymm_xmmm8;
    BroadcastW Two _ VEX_Vpbroadcastw_xmm_xmmm16 VEX_Vpbroadcastw_ymm_xmmm16;
    BroadcastD Two _ VEX_Vpbroadcastd_xmm_xmmm32 VEX_Vpbroadcastd_ymm_xmmm32;
    BroadcastQ Two _ VEX_Vpbroadcastq_xmm_xmmm64 VEX_Vpbroadcastq_ymm_xmmm64;
    BroadcastSs Two _ VEX_Vbroadcastss_xmm_xmm VEX_Vbroadcastss_ymm_xmm;
    BroadcastSsMem Two _ VEX_Vbroadcastss_xmm_m32 VEX_Vbroadcastss_ymm_m32;
    BroadcastSd Two _ _ VEX_Vbroadcastsd_ymm_xmm;
    BroadcastSdMem Two _ _ VEX_Vbroadcastsd_ymm_m64;
    Broadcast128 Two _ _ VEX_Vbroadcastf128_ymm_m128;
    Extract128 Extract _ _ VEX_Vextractf128_xmmm128_ymm_imm8;
    ExtractB Extract Pextrb_r32m8_xmm_imm8 VEX_Vpextrb_r32m8_xmm_imm8 _;
    ExtractW Extract Pextrw_r32m16_xmm_imm8 VEX_Vpextrw_r32m16_xmm_imm8 _;
    ExtractD Extract Pextrd_rm32_xmm_imm8 VEX_Vpextrd_rm32_xmm_imm8 _;
    ExtractQ Extract Pextrq_rm64_xmm_imm8 VEX_Vpextrq_rm64_xmm_imm8 _;
    SqrtSs Pass Sqrtss_xmm_xmmm32 VEX_Vsqrtss_xmm_xmm_xmmm32 _;
    SqrtSd Pass Sqrtsd_xmm_xmmm64 VEX_Vsqrtsd_xmm_xmm_xmmm64 _;
    RoundSs Pass Roundss_xmm_xmmm32_imm8 VEX_Vroundss_xmm_xmm_xmmm32_imm8 _;
    RoundSd Pass Roundsd_xmm_xmmm64_imm8 VEX_Vroundsd_xmm_xmm_xmmm64_imm8 _;
    CvtSs2Sd Pass Cvtss2sd_xmm_xmmm32 VEX_Vcvtss2sd_xmm_xmm_xmmm32 _;
    CvtSd2Ss Pass Cvtsd2ss_xmm_xmmm64 VEX_Vcvtsd2ss_xmm_xmm_xmmm64 _;
    CvtSi32Ss Pass Cvtsi2ss_xmm_rm32 VEX_Vcvtsi2ss_xmm_xmm_rm32 _;
    CvtSi64Ss Pass Cvtsi2ss_xmm_rm64 VEX_Vcvtsi2ss_xmm_xmm_rm64 _;
    CvtSi32Sd Pass Cvtsi2sd_xmm_rm32 VEX_Vcvtsi2sd_xmm_xmm_rm32 _;
    CvtSi64Sd Pass Cvtsi2sd_xmm_rm64 VEX_Vcvtsi2sd_xmm_xmm_rm64 _;
    CvttSs32 Two Cvttss2si_r32_xmmm32 VEX_Vcvttss2si_r32_xmmm32 _;
    CvttSs64 Two Cvttss2si_r64_xmmm32 VEX_Vcvttss2si_r64_xmmm32 _;
    CvttSd32 Two Cvttsd2si_r32_xmmm64 VEX_Vcvttsd2si_r32_xmmm64 _;
    CvttSd64 Two Cvttsd2si_r64_xmmm64 VEX_Vcvttsd2si_r64_xmmm64 _;
    MoveMaskPs Two Movmskps_r32_xmm VEX_Vmovmskps_r32_xmm VEX_Vmovmskps_r32_ymm;
    MoveMaskPd Two Movmskpd_r32_xmm VEX_Vmovmskpd_r32_xmm VEX_Vmovmskpd_r32_ymm;
    MoveMaskB Two Pmovmskb_r32_xmm VEX_Vpmovmskb_r32_xmm VEX_Vpmovmskb_r32_ymm;
    MoveGprD Two Movd_xmm_rm32 VEX_Vmovd_xmm_rm32 _;
    MoveGprQ Two Movq_xmm_rm64 VEX_Vmovq_xmm_rm64 _;
    MoveVecD Extract0 Movd_rm32_xmm VEX_Vmovd_rm32_xmm _;
    MoveVecQ Extract0 Movq_rm64_xmm VEX_Vmovq_rm64_xmm _;
    MoveLowQ Two Movq_xmm_xmmm64 VEX_Vmovq_xmm_xmmm64 _;
    Load4 Two Movd_xmm_rm32 VEX_Vmovd_xmm_rm32 _;
    Load4F Two Movss_xmm_xmmm32 VEX_Vmovss_xmm_m32 _;
    Load8 Two Movq_xmm_xmmm64 VEX_Vmovq_xmm_xmmm64 _;
    Load Two Movups_xmm_xmmm128 VEX_Vmovups_xmm_xmmm128 VEX_Vmovups_ymm_ymmm256;
    Store4 Store Movss_xmmm32_xmm VEX_Vmovss_m32_xmm _;
    Store8 Store Movq_xmmm64_xmm VEX_Vmovq_xmmm64_xmm _;
    Store Store Movups_xmmm128_xmm VEX_Vmovups_xmmm128_xmm VEX_Vmovups_ymmm256_ymm;
    StorePast Store Movntps_m128_xmm VEX_Vmovntps_m128_xmm VEX_Vmovntps_m256_ymm;
    MaskLoad4 MaskLoad _ VEX_Vmaskmovps_xmm_xmm_m128 VEX_Vmaskmovps_ymm_ymm_m256;
    MaskLoad8 MaskLoad _ VEX_Vmaskmovpd_xmm_xmm_m128 VEX_Vmaskmovpd_ymm_ymm_m256;
    MaskStore4 MaskStore _ VEX_Vmaskmovps_m128_xmm_xmm VEX_Vmaskmovps_m256_ymm_ymm;
    MaskStore8 MaskStore _ VEX_Vmaskmovpd_m128_xmm_xmm VEX_Vmaskmovpd_m256_ymm_ymm;
    Choose Choose _ VEX_Vpblendvb_xmm_xmm_xmmm128_xmm VEX_Vpblendvb_ymm_ymm_ymmm256_ymm;
    ChoosePs Choose _ VEX_Vblendvps_xmm_xmm_xmmm128_xmm VEX_Vblendvps_ymm_ymm_ymmm256_ymm;
    FmaPs Fma _ VEX_Vfmadd231ps_xmm_xmm_xmmm128 VEX_Vfmadd231ps_ymm_ymm_ymmm256;
    FmaPd Fma _ VEX_Vfmadd231pd_xmm_xmm_xmmm128 VEX_Vfmadd231pd_ymm_ymm_ymmm256;
    FmaSs Fma _ VEX_Vfmadd231ss_xmm_xmm_xmmm32 _;
    FmaSd Fma _ VEX_Vfmadd231sd_xmm_xmm_xmmm64 _;
}
