//! The vector instructions, a row each: how its operands stand, and its encodings for SSE4.2, for AVX2 with
//! registers of 16 bytes and of 32, and for AVX-512 with registers of 16, 32 and 64. Flows in: nothing but the table
//! below; flows out: the form and the encoding of an instruction. Always: `_` is an encoding that does not exist, and
//! nothing selects it. Where AVX-512 has a mask register for a vector of masks, its encoding is the instruction that
//! takes or gives that, and the encoder puts the moves between both around it.

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
    /// `dst, a, b, c`: c and the products of the elements of a's and b's lanes. dst is where c is, and neither a nor b is
    /// there. b may be in memory.
    Dot,
    /// `dst, mask, a, b, c`: a·b + c, rounded once, in the lanes whose mask has its sign bit, c elsewhere. dst is where c is,
    /// and neither a nor b is there. b may be in memory.
    MaskFma,
    /// `dst, a, order, b`: lanes of a and b by their numbers, those of b after those of a. b may be in memory.
    Table,
}

impl Form {
    /// The sources that are multiplied while what they are added to stands where the result goes.
    pub(crate) fn factors(self) -> std::ops::Range<usize> {
        match self {
            Form::Dot => 0..2,
            Form::MaskFma => 1..3,
            _ => 0..0,
        }
    }

    /// The source that others are added to.
    pub(crate) fn sum(self) -> Option<usize> {
        match self {
            Form::Fma | Form::Dot => Some(2),
            Form::MaskFma => Some(3),
            _ => None,
        }
    }
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
    /// The same by its 64 bytes.
    Zmm,
    /// A mask register.
    Mask,
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
                (b'z', _) => Kind::Zmm,
                (b'k', b'r') => Kind::Mask,
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
    ($($name:ident $form:ident $sse:tt $xmm:tt $ymm:tt $evex_x:tt $evex_y:tt $evex_z:tt;)*) => {
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

            /// Its encodings: SSE4.2, AVX2 on 16 bytes and on 32, AVX-512 on 16, 32 and 64.
            pub fn encodings(self) -> [Code; 6] {
                match self {
                    $(Vector::$name => [
                        encoding!($sse), encoding!($xmm), encoding!($ymm),
                        encoding!($evex_x), encoding!($evex_y), encoding!($evex_z),
                    ]),*
                }
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
            pub fn operands(self) -> &'static [[Kind; 4]; 6] {
                match self {
                    $(Vector::$name => const {
                        &[
                            kinds(stringify!($sse)), kinds(stringify!($xmm)), kinds(stringify!($ymm)),
                            kinds(stringify!($evex_x)), kinds(stringify!($evex_y)), kinds(stringify!($evex_z)),
                        ]
                    }),*
                }
            }
        }
    };
}

vectors! {
    AddPs ThreeCommuting Addps_xmm_xmmm128 VEX_Vaddps_xmm_xmm_xmmm128 VEX_Vaddps_ymm_ymm_ymmm256 EVEX_Vaddps_xmm_k1z_xmm_xmmm128b32 EVEX_Vaddps_ymm_k1z_ymm_ymmm256b32 EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er;
    AddPd ThreeCommuting Addpd_xmm_xmmm128 VEX_Vaddpd_xmm_xmm_xmmm128 VEX_Vaddpd_ymm_ymm_ymmm256 EVEX_Vaddpd_xmm_k1z_xmm_xmmm128b64 EVEX_Vaddpd_ymm_k1z_ymm_ymmm256b64 EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er;
    AddSs ThreeCommuting Addss_xmm_xmmm32 VEX_Vaddss_xmm_xmm_xmmm32 _ EVEX_Vaddss_xmm_k1z_xmm_xmmm32_er _ _;
    AddSd ThreeCommuting Addsd_xmm_xmmm64 VEX_Vaddsd_xmm_xmm_xmmm64 _ EVEX_Vaddsd_xmm_k1z_xmm_xmmm64_er _ _;
    SubPs Three Subps_xmm_xmmm128 VEX_Vsubps_xmm_xmm_xmmm128 VEX_Vsubps_ymm_ymm_ymmm256 EVEX_Vsubps_xmm_k1z_xmm_xmmm128b32 EVEX_Vsubps_ymm_k1z_ymm_ymmm256b32 EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er;
    SubPd Three Subpd_xmm_xmmm128 VEX_Vsubpd_xmm_xmm_xmmm128 VEX_Vsubpd_ymm_ymm_ymmm256 EVEX_Vsubpd_xmm_k1z_xmm_xmmm128b64 EVEX_Vsubpd_ymm_k1z_ymm_ymmm256b64 EVEX_Vsubpd_zmm_k1z_zmm_zmmm512b64_er;
    SubSs Three Subss_xmm_xmmm32 VEX_Vsubss_xmm_xmm_xmmm32 _ EVEX_Vsubss_xmm_k1z_xmm_xmmm32_er _ _;
    SubSd Three Subsd_xmm_xmmm64 VEX_Vsubsd_xmm_xmm_xmmm64 _ EVEX_Vsubsd_xmm_k1z_xmm_xmmm64_er _ _;
    MulPs ThreeCommuting Mulps_xmm_xmmm128 VEX_Vmulps_xmm_xmm_xmmm128 VEX_Vmulps_ymm_ymm_ymmm256 EVEX_Vmulps_xmm_k1z_xmm_xmmm128b32 EVEX_Vmulps_ymm_k1z_ymm_ymmm256b32 EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er;
    MulPd ThreeCommuting Mulpd_xmm_xmmm128 VEX_Vmulpd_xmm_xmm_xmmm128 VEX_Vmulpd_ymm_ymm_ymmm256 EVEX_Vmulpd_xmm_k1z_xmm_xmmm128b64 EVEX_Vmulpd_ymm_k1z_ymm_ymmm256b64 EVEX_Vmulpd_zmm_k1z_zmm_zmmm512b64_er;
    MulSs ThreeCommuting Mulss_xmm_xmmm32 VEX_Vmulss_xmm_xmm_xmmm32 _ EVEX_Vmulss_xmm_k1z_xmm_xmmm32_er _ _;
    MulSd ThreeCommuting Mulsd_xmm_xmmm64 VEX_Vmulsd_xmm_xmm_xmmm64 _ EVEX_Vmulsd_xmm_k1z_xmm_xmmm64_er _ _;
    DivPs Three Divps_xmm_xmmm128 VEX_Vdivps_xmm_xmm_xmmm128 VEX_Vdivps_ymm_ymm_ymmm256 EVEX_Vdivps_xmm_k1z_xmm_xmmm128b32 EVEX_Vdivps_ymm_k1z_ymm_ymmm256b32 EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er;
    DivPd Three Divpd_xmm_xmmm128 VEX_Vdivpd_xmm_xmm_xmmm128 VEX_Vdivpd_ymm_ymm_ymmm256 EVEX_Vdivpd_xmm_k1z_xmm_xmmm128b64 EVEX_Vdivpd_ymm_k1z_ymm_ymmm256b64 EVEX_Vdivpd_zmm_k1z_zmm_zmmm512b64_er;
    DivSs Three Divss_xmm_xmmm32 VEX_Vdivss_xmm_xmm_xmmm32 _ EVEX_Vdivss_xmm_k1z_xmm_xmmm32_er _ _;
    DivSd Three Divsd_xmm_xmmm64 VEX_Vdivsd_xmm_xmm_xmmm64 _ EVEX_Vdivsd_xmm_k1z_xmm_xmmm64_er _ _;
    MinPs Three Minps_xmm_xmmm128 VEX_Vminps_xmm_xmm_xmmm128 VEX_Vminps_ymm_ymm_ymmm256 EVEX_Vminps_xmm_k1z_xmm_xmmm128b32 EVEX_Vminps_ymm_k1z_ymm_ymmm256b32 EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae;
    MinPd Three Minpd_xmm_xmmm128 VEX_Vminpd_xmm_xmm_xmmm128 VEX_Vminpd_ymm_ymm_ymmm256 EVEX_Vminpd_xmm_k1z_xmm_xmmm128b64 EVEX_Vminpd_ymm_k1z_ymm_ymmm256b64 EVEX_Vminpd_zmm_k1z_zmm_zmmm512b64_sae;
    MinSs Three Minss_xmm_xmmm32 VEX_Vminss_xmm_xmm_xmmm32 _ EVEX_Vminss_xmm_k1z_xmm_xmmm32_sae _ _;
    MinSd Three Minsd_xmm_xmmm64 VEX_Vminsd_xmm_xmm_xmmm64 _ EVEX_Vminsd_xmm_k1z_xmm_xmmm64_sae _ _;
    MaxPs Three Maxps_xmm_xmmm128 VEX_Vmaxps_xmm_xmm_xmmm128 VEX_Vmaxps_ymm_ymm_ymmm256 EVEX_Vmaxps_xmm_k1z_xmm_xmmm128b32 EVEX_Vmaxps_ymm_k1z_ymm_ymmm256b32 EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae;
    MaxPd Three Maxpd_xmm_xmmm128 VEX_Vmaxpd_xmm_xmm_xmmm128 VEX_Vmaxpd_ymm_ymm_ymmm256 EVEX_Vmaxpd_xmm_k1z_xmm_xmmm128b64 EVEX_Vmaxpd_ymm_k1z_ymm_ymmm256b64 EVEX_Vmaxpd_zmm_k1z_zmm_zmmm512b64_sae;
    MaxSs Three Maxss_xmm_xmmm32 VEX_Vmaxss_xmm_xmm_xmmm32 _ EVEX_Vmaxss_xmm_k1z_xmm_xmmm32_sae _ _;
    MaxSd Three Maxsd_xmm_xmmm64 VEX_Vmaxsd_xmm_xmm_xmmm64 _ EVEX_Vmaxsd_xmm_k1z_xmm_xmmm64_sae _ _;
    CmpPs Three Cmpps_xmm_xmmm128_imm8 VEX_Vcmpps_xmm_xmm_xmmm128_imm8 VEX_Vcmpps_ymm_ymm_ymmm256_imm8 EVEX_Vcmpps_kr_k1_xmm_xmmm128b32_imm8 EVEX_Vcmpps_kr_k1_ymm_ymmm256b32_imm8 EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae;
    CmpPd Three Cmppd_xmm_xmmm128_imm8 VEX_Vcmppd_xmm_xmm_xmmm128_imm8 VEX_Vcmppd_ymm_ymm_ymmm256_imm8 EVEX_Vcmppd_kr_k1_xmm_xmmm128b64_imm8 EVEX_Vcmppd_kr_k1_ymm_ymmm256b64_imm8 EVEX_Vcmppd_kr_k1_zmm_zmmm512b64_imm8_sae;
    CmpSs Three Cmpss_xmm_xmmm32_imm8 VEX_Vcmpss_xmm_xmm_xmmm32_imm8 _ EVEX_Vcmpss_kr_k1_xmm_xmmm32_imm8_sae _ _;
    CmpSd Three Cmpsd_xmm_xmmm64_imm8 VEX_Vcmpsd_xmm_xmm_xmmm64_imm8 _ EVEX_Vcmpsd_kr_k1_xmm_xmmm64_imm8_sae _ _;
    And ThreeCommuting Pand_xmm_xmmm128 VEX_Vpand_xmm_xmm_xmmm128 VEX_Vpand_ymm_ymm_ymmm256 EVEX_Vpandd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpandd_ymm_k1z_ymm_ymmm256b32 EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32;
    Or ThreeCommuting Por_xmm_xmmm128 VEX_Vpor_xmm_xmm_xmmm128 VEX_Vpor_ymm_ymm_ymmm256 EVEX_Vpord_xmm_k1z_xmm_xmmm128b32 EVEX_Vpord_ymm_k1z_ymm_ymmm256b32 EVEX_Vpord_zmm_k1z_zmm_zmmm512b32;
    Xor ThreeCommuting Pxor_xmm_xmmm128 VEX_Vpxor_xmm_xmm_xmmm128 VEX_Vpxor_ymm_ymm_ymmm256 EVEX_Vpxord_xmm_k1z_xmm_xmmm128b32 EVEX_Vpxord_ymm_k1z_ymm_ymmm256b32 EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32;
    AndNot Three Pandn_xmm_xmmm128 VEX_Vpandn_xmm_xmm_xmmm128 VEX_Vpandn_ymm_ymm_ymmm256 EVEX_Vpandnd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpandnd_ymm_k1z_ymm_ymmm256b32 EVEX_Vpandnd_zmm_k1z_zmm_zmmm512b32;
    AndPs ThreeCommuting Andps_xmm_xmmm128 VEX_Vandps_xmm_xmm_xmmm128 VEX_Vandps_ymm_ymm_ymmm256 EVEX_Vandps_xmm_k1z_xmm_xmmm128b32 EVEX_Vandps_ymm_k1z_ymm_ymmm256b32 EVEX_Vandps_zmm_k1z_zmm_zmmm512b32;
    OrPs ThreeCommuting Orps_xmm_xmmm128 VEX_Vorps_xmm_xmm_xmmm128 VEX_Vorps_ymm_ymm_ymmm256 EVEX_Vorps_xmm_k1z_xmm_xmmm128b32 EVEX_Vorps_ymm_k1z_ymm_ymmm256b32 EVEX_Vorps_zmm_k1z_zmm_zmmm512b32;
    XorPs ThreeCommuting Xorps_xmm_xmmm128 VEX_Vxorps_xmm_xmm_xmmm128 VEX_Vxorps_ymm_ymm_ymmm256 EVEX_Vxorps_xmm_k1z_xmm_xmmm128b32 EVEX_Vxorps_ymm_k1z_ymm_ymmm256b32 EVEX_Vxorps_zmm_k1z_zmm_zmmm512b32;
    AndNotPs Three Andnps_xmm_xmmm128 VEX_Vandnps_xmm_xmm_xmmm128 VEX_Vandnps_ymm_ymm_ymmm256 EVEX_Vandnps_xmm_k1z_xmm_xmmm128b32 EVEX_Vandnps_ymm_k1z_ymm_ymmm256b32 EVEX_Vandnps_zmm_k1z_zmm_zmmm512b32;
    AddB ThreeCommuting Paddb_xmm_xmmm128 VEX_Vpaddb_xmm_xmm_xmmm128 VEX_Vpaddb_ymm_ymm_ymmm256 EVEX_Vpaddb_xmm_k1z_xmm_xmmm128 EVEX_Vpaddb_ymm_k1z_ymm_ymmm256 EVEX_Vpaddb_zmm_k1z_zmm_zmmm512;
    SubB Three Psubb_xmm_xmmm128 VEX_Vpsubb_xmm_xmm_xmmm128 VEX_Vpsubb_ymm_ymm_ymmm256 EVEX_Vpsubb_xmm_k1z_xmm_xmmm128 EVEX_Vpsubb_ymm_k1z_ymm_ymmm256 EVEX_Vpsubb_zmm_k1z_zmm_zmmm512;
    CmpEqB ThreeCommuting Pcmpeqb_xmm_xmmm128 VEX_Vpcmpeqb_xmm_xmm_xmmm128 VEX_Vpcmpeqb_ymm_ymm_ymmm256 EVEX_Vpcmpeqb_kr_k1_xmm_xmmm128 EVEX_Vpcmpeqb_kr_k1_ymm_ymmm256 EVEX_Vpcmpeqb_kr_k1_zmm_zmmm512;
    CmpGtB Three Pcmpgtb_xmm_xmmm128 VEX_Vpcmpgtb_xmm_xmm_xmmm128 VEX_Vpcmpgtb_ymm_ymm_ymmm256 EVEX_Vpcmpgtb_kr_k1_xmm_xmmm128 EVEX_Vpcmpgtb_kr_k1_ymm_ymmm256 EVEX_Vpcmpgtb_kr_k1_zmm_zmmm512;
    AddW ThreeCommuting Paddw_xmm_xmmm128 VEX_Vpaddw_xmm_xmm_xmmm128 VEX_Vpaddw_ymm_ymm_ymmm256 EVEX_Vpaddw_xmm_k1z_xmm_xmmm128 EVEX_Vpaddw_ymm_k1z_ymm_ymmm256 EVEX_Vpaddw_zmm_k1z_zmm_zmmm512;
    SubW Three Psubw_xmm_xmmm128 VEX_Vpsubw_xmm_xmm_xmmm128 VEX_Vpsubw_ymm_ymm_ymmm256 EVEX_Vpsubw_xmm_k1z_xmm_xmmm128 EVEX_Vpsubw_ymm_k1z_ymm_ymmm256 EVEX_Vpsubw_zmm_k1z_zmm_zmmm512;
    CmpEqW ThreeCommuting Pcmpeqw_xmm_xmmm128 VEX_Vpcmpeqw_xmm_xmm_xmmm128 VEX_Vpcmpeqw_ymm_ymm_ymmm256 EVEX_Vpcmpeqw_kr_k1_xmm_xmmm128 EVEX_Vpcmpeqw_kr_k1_ymm_ymmm256 EVEX_Vpcmpeqw_kr_k1_zmm_zmmm512;
    CmpGtW Three Pcmpgtw_xmm_xmmm128 VEX_Vpcmpgtw_xmm_xmm_xmmm128 VEX_Vpcmpgtw_ymm_ymm_ymmm256 EVEX_Vpcmpgtw_kr_k1_xmm_xmmm128 EVEX_Vpcmpgtw_kr_k1_ymm_ymmm256 EVEX_Vpcmpgtw_kr_k1_zmm_zmmm512;
    AddD ThreeCommuting Paddd_xmm_xmmm128 VEX_Vpaddd_xmm_xmm_xmmm128 VEX_Vpaddd_ymm_ymm_ymmm256 EVEX_Vpaddd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpaddd_ymm_k1z_ymm_ymmm256b32 EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32;
    SubD Three Psubd_xmm_xmmm128 VEX_Vpsubd_xmm_xmm_xmmm128 VEX_Vpsubd_ymm_ymm_ymmm256 EVEX_Vpsubd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpsubd_ymm_k1z_ymm_ymmm256b32 EVEX_Vpsubd_zmm_k1z_zmm_zmmm512b32;
    CmpEqD ThreeCommuting Pcmpeqd_xmm_xmmm128 VEX_Vpcmpeqd_xmm_xmm_xmmm128 VEX_Vpcmpeqd_ymm_ymm_ymmm256 EVEX_Vpcmpeqd_kr_k1_xmm_xmmm128b32 EVEX_Vpcmpeqd_kr_k1_ymm_ymmm256b32 EVEX_Vpcmpeqd_kr_k1_zmm_zmmm512b32;
    CmpGtD Three Pcmpgtd_xmm_xmmm128 VEX_Vpcmpgtd_xmm_xmm_xmmm128 VEX_Vpcmpgtd_ymm_ymm_ymmm256 EVEX_Vpcmpgtd_kr_k1_xmm_xmmm128b32 EVEX_Vpcmpgtd_kr_k1_ymm_ymmm256b32 EVEX_Vpcmpgtd_kr_k1_zmm_zmmm512b32;
    AddQ ThreeCommuting Paddq_xmm_xmmm128 VEX_Vpaddq_xmm_xmm_xmmm128 VEX_Vpaddq_ymm_ymm_ymmm256 EVEX_Vpaddq_xmm_k1z_xmm_xmmm128b64 EVEX_Vpaddq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpaddq_zmm_k1z_zmm_zmmm512b64;
    SubQ Three Psubq_xmm_xmmm128 VEX_Vpsubq_xmm_xmm_xmmm128 VEX_Vpsubq_ymm_ymm_ymmm256 EVEX_Vpsubq_xmm_k1z_xmm_xmmm128b64 EVEX_Vpsubq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpsubq_zmm_k1z_zmm_zmmm512b64;
    CmpEqQ ThreeCommuting Pcmpeqq_xmm_xmmm128 VEX_Vpcmpeqq_xmm_xmm_xmmm128 VEX_Vpcmpeqq_ymm_ymm_ymmm256 EVEX_Vpcmpeqq_kr_k1_xmm_xmmm128b64 EVEX_Vpcmpeqq_kr_k1_ymm_ymmm256b64 EVEX_Vpcmpeqq_kr_k1_zmm_zmmm512b64;
    CmpGtQ Three Pcmpgtq_xmm_xmmm128 VEX_Vpcmpgtq_xmm_xmm_xmmm128 VEX_Vpcmpgtq_ymm_ymm_ymmm256 EVEX_Vpcmpgtq_kr_k1_xmm_xmmm128b64 EVEX_Vpcmpgtq_kr_k1_ymm_ymmm256b64 EVEX_Vpcmpgtq_kr_k1_zmm_zmmm512b64;
    MulW ThreeCommuting Pmullw_xmm_xmmm128 VEX_Vpmullw_xmm_xmm_xmmm128 VEX_Vpmullw_ymm_ymm_ymmm256 EVEX_Vpmullw_xmm_k1z_xmm_xmmm128 EVEX_Vpmullw_ymm_k1z_ymm_ymmm256 EVEX_Vpmullw_zmm_k1z_zmm_zmmm512;
    MulHighUW ThreeCommuting Pmulhuw_xmm_xmmm128 VEX_Vpmulhuw_xmm_xmm_xmmm128 VEX_Vpmulhuw_ymm_ymm_ymmm256 EVEX_Vpmulhuw_xmm_k1z_xmm_xmmm128 EVEX_Vpmulhuw_ymm_k1z_ymm_ymmm256 EVEX_Vpmulhuw_zmm_k1z_zmm_zmmm512;
    MulD ThreeCommuting Pmulld_xmm_xmmm128 VEX_Vpmulld_xmm_xmm_xmmm128 VEX_Vpmulld_ymm_ymm_ymmm256 EVEX_Vpmulld_xmm_k1z_xmm_xmmm128b32 EVEX_Vpmulld_ymm_k1z_ymm_ymmm256b32 EVEX_Vpmulld_zmm_k1z_zmm_zmmm512b32;
    MulUDQ ThreeCommuting Pmuludq_xmm_xmmm128 VEX_Vpmuludq_xmm_xmm_xmmm128 VEX_Vpmuludq_ymm_ymm_ymmm256 EVEX_Vpmuludq_xmm_k1z_xmm_xmmm128b64 EVEX_Vpmuludq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpmuludq_zmm_k1z_zmm_zmmm512b64;
    MaddWD ThreeCommuting Pmaddwd_xmm_xmmm128 VEX_Vpmaddwd_xmm_xmm_xmmm128 VEX_Vpmaddwd_ymm_ymm_ymmm256 EVEX_Vpmaddwd_xmm_k1z_xmm_xmmm128 EVEX_Vpmaddwd_ymm_k1z_ymm_ymmm256 EVEX_Vpmaddwd_zmm_k1z_zmm_zmmm512;
    MinSB ThreeCommuting Pminsb_xmm_xmmm128 VEX_Vpminsb_xmm_xmm_xmmm128 VEX_Vpminsb_ymm_ymm_ymmm256 EVEX_Vpminsb_xmm_k1z_xmm_xmmm128 EVEX_Vpminsb_ymm_k1z_ymm_ymmm256 EVEX_Vpminsb_zmm_k1z_zmm_zmmm512;
    MaxSB ThreeCommuting Pmaxsb_xmm_xmmm128 VEX_Vpmaxsb_xmm_xmm_xmmm128 VEX_Vpmaxsb_ymm_ymm_ymmm256 EVEX_Vpmaxsb_xmm_k1z_xmm_xmmm128 EVEX_Vpmaxsb_ymm_k1z_ymm_ymmm256 EVEX_Vpmaxsb_zmm_k1z_zmm_zmmm512;
    MinUB ThreeCommuting Pminub_xmm_xmmm128 VEX_Vpminub_xmm_xmm_xmmm128 VEX_Vpminub_ymm_ymm_ymmm256 EVEX_Vpminub_xmm_k1z_xmm_xmmm128 EVEX_Vpminub_ymm_k1z_ymm_ymmm256 EVEX_Vpminub_zmm_k1z_zmm_zmmm512;
    MaxUB ThreeCommuting Pmaxub_xmm_xmmm128 VEX_Vpmaxub_xmm_xmm_xmmm128 VEX_Vpmaxub_ymm_ymm_ymmm256 EVEX_Vpmaxub_xmm_k1z_xmm_xmmm128 EVEX_Vpmaxub_ymm_k1z_ymm_ymmm256 EVEX_Vpmaxub_zmm_k1z_zmm_zmmm512;
    MinSW ThreeCommuting Pminsw_xmm_xmmm128 VEX_Vpminsw_xmm_xmm_xmmm128 VEX_Vpminsw_ymm_ymm_ymmm256 EVEX_Vpminsw_xmm_k1z_xmm_xmmm128 EVEX_Vpminsw_ymm_k1z_ymm_ymmm256 EVEX_Vpminsw_zmm_k1z_zmm_zmmm512;
    MaxSW ThreeCommuting Pmaxsw_xmm_xmmm128 VEX_Vpmaxsw_xmm_xmm_xmmm128 VEX_Vpmaxsw_ymm_ymm_ymmm256 EVEX_Vpmaxsw_xmm_k1z_xmm_xmmm128 EVEX_Vpmaxsw_ymm_k1z_ymm_ymmm256 EVEX_Vpmaxsw_zmm_k1z_zmm_zmmm512;
    MinUW ThreeCommuting Pminuw_xmm_xmmm128 VEX_Vpminuw_xmm_xmm_xmmm128 VEX_Vpminuw_ymm_ymm_ymmm256 EVEX_Vpminuw_xmm_k1z_xmm_xmmm128 EVEX_Vpminuw_ymm_k1z_ymm_ymmm256 EVEX_Vpminuw_zmm_k1z_zmm_zmmm512;
    MaxUW ThreeCommuting Pmaxuw_xmm_xmmm128 VEX_Vpmaxuw_xmm_xmm_xmmm128 VEX_Vpmaxuw_ymm_ymm_ymmm256 EVEX_Vpmaxuw_xmm_k1z_xmm_xmmm128 EVEX_Vpmaxuw_ymm_k1z_ymm_ymmm256 EVEX_Vpmaxuw_zmm_k1z_zmm_zmmm512;
    MinSD ThreeCommuting Pminsd_xmm_xmmm128 VEX_Vpminsd_xmm_xmm_xmmm128 VEX_Vpminsd_ymm_ymm_ymmm256 EVEX_Vpminsd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpminsd_ymm_k1z_ymm_ymmm256b32 EVEX_Vpminsd_zmm_k1z_zmm_zmmm512b32;
    MaxSD ThreeCommuting Pmaxsd_xmm_xmmm128 VEX_Vpmaxsd_xmm_xmm_xmmm128 VEX_Vpmaxsd_ymm_ymm_ymmm256 EVEX_Vpmaxsd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpmaxsd_ymm_k1z_ymm_ymmm256b32 EVEX_Vpmaxsd_zmm_k1z_zmm_zmmm512b32;
    MinUD ThreeCommuting Pminud_xmm_xmmm128 VEX_Vpminud_xmm_xmm_xmmm128 VEX_Vpminud_ymm_ymm_ymmm256 EVEX_Vpminud_xmm_k1z_xmm_xmmm128b32 EVEX_Vpminud_ymm_k1z_ymm_ymmm256b32 EVEX_Vpminud_zmm_k1z_zmm_zmmm512b32;
    MaxUD ThreeCommuting Pmaxud_xmm_xmmm128 VEX_Vpmaxud_xmm_xmm_xmmm128 VEX_Vpmaxud_ymm_ymm_ymmm256 EVEX_Vpmaxud_xmm_k1z_xmm_xmmm128b32 EVEX_Vpmaxud_ymm_k1z_ymm_ymmm256b32 EVEX_Vpmaxud_zmm_k1z_zmm_zmmm512b32;
    PackSDW Three Packssdw_xmm_xmmm128 VEX_Vpackssdw_xmm_xmm_xmmm128 VEX_Vpackssdw_ymm_ymm_ymmm256 EVEX_Vpackssdw_xmm_k1z_xmm_xmmm128b32 EVEX_Vpackssdw_ymm_k1z_ymm_ymmm256b32 EVEX_Vpackssdw_zmm_k1z_zmm_zmmm512b32;
    PackUDW Three Packusdw_xmm_xmmm128 VEX_Vpackusdw_xmm_xmm_xmmm128 VEX_Vpackusdw_ymm_ymm_ymmm256 EVEX_Vpackusdw_xmm_k1z_xmm_xmmm128b32 EVEX_Vpackusdw_ymm_k1z_ymm_ymmm256b32 EVEX_Vpackusdw_zmm_k1z_zmm_zmmm512b32;
    PackSWB Three Packsswb_xmm_xmmm128 VEX_Vpacksswb_xmm_xmm_xmmm128 VEX_Vpacksswb_ymm_ymm_ymmm256 EVEX_Vpacksswb_xmm_k1z_xmm_xmmm128 EVEX_Vpacksswb_ymm_k1z_ymm_ymmm256 EVEX_Vpacksswb_zmm_k1z_zmm_zmmm512;
    PackUWB Three Packuswb_xmm_xmmm128 VEX_Vpackuswb_xmm_xmm_xmmm128 VEX_Vpackuswb_ymm_ymm_ymmm256 EVEX_Vpackuswb_xmm_k1z_xmm_xmmm128 EVEX_Vpackuswb_ymm_k1z_ymm_ymmm256 EVEX_Vpackuswb_zmm_k1z_zmm_zmmm512;
    ShuffleB Three Pshufb_xmm_xmmm128 VEX_Vpshufb_xmm_xmm_xmmm128 VEX_Vpshufb_ymm_ymm_ymmm256 EVEX_Vpshufb_xmm_k1z_xmm_xmmm128 EVEX_Vpshufb_ymm_k1z_ymm_ymmm256 EVEX_Vpshufb_zmm_k1z_zmm_zmmm512;
    ShufflePs Three Shufps_xmm_xmmm128_imm8 VEX_Vshufps_xmm_xmm_xmmm128_imm8 VEX_Vshufps_ymm_ymm_ymmm256_imm8 EVEX_Vshufps_xmm_k1z_xmm_xmmm128b32_imm8 EVEX_Vshufps_ymm_k1z_ymm_ymmm256b32_imm8 EVEX_Vshufps_zmm_k1z_zmm_zmmm512b32_imm8;
    ShufflePd Three Shufpd_xmm_xmmm128_imm8 VEX_Vshufpd_xmm_xmm_xmmm128_imm8 VEX_Vshufpd_ymm_ymm_ymmm256_imm8 EVEX_Vshufpd_xmm_k1z_xmm_xmmm128b64_imm8 EVEX_Vshufpd_ymm_k1z_ymm_ymmm256b64_imm8 EVEX_Vshufpd_zmm_k1z_zmm_zmmm512b64_imm8;
    UnpackLowPs Three Unpcklps_xmm_xmmm128 VEX_Vunpcklps_xmm_xmm_xmmm128 VEX_Vunpcklps_ymm_ymm_ymmm256 EVEX_Vunpcklps_xmm_k1z_xmm_xmmm128b32 EVEX_Vunpcklps_ymm_k1z_ymm_ymmm256b32 EVEX_Vunpcklps_zmm_k1z_zmm_zmmm512b32;
    UnpackHighPs Three Unpckhps_xmm_xmmm128 VEX_Vunpckhps_xmm_xmm_xmmm128 VEX_Vunpckhps_ymm_ymm_ymmm256 EVEX_Vunpckhps_xmm_k1z_xmm_xmmm128b32 EVEX_Vunpckhps_ymm_k1z_ymm_ymmm256b32 EVEX_Vunpckhps_zmm_k1z_zmm_zmmm512b32;
    UnpackLowPd Three Unpcklpd_xmm_xmmm128 VEX_Vunpcklpd_xmm_xmm_xmmm128 VEX_Vunpcklpd_ymm_ymm_ymmm256 EVEX_Vunpcklpd_xmm_k1z_xmm_xmmm128b64 EVEX_Vunpcklpd_ymm_k1z_ymm_ymmm256b64 EVEX_Vunpcklpd_zmm_k1z_zmm_zmmm512b64;
    UnpackHighPd Three Unpckhpd_xmm_xmmm128 VEX_Vunpckhpd_xmm_xmm_xmmm128 VEX_Vunpckhpd_ymm_ymm_ymmm256 EVEX_Vunpckhpd_xmm_k1z_xmm_xmmm128b64 EVEX_Vunpckhpd_ymm_k1z_ymm_ymmm256b64 EVEX_Vunpckhpd_zmm_k1z_zmm_zmmm512b64;
    UnpackLowBW Three Punpcklbw_xmm_xmmm128 VEX_Vpunpcklbw_xmm_xmm_xmmm128 VEX_Vpunpcklbw_ymm_ymm_ymmm256 EVEX_Vpunpcklbw_xmm_k1z_xmm_xmmm128 EVEX_Vpunpcklbw_ymm_k1z_ymm_ymmm256 EVEX_Vpunpcklbw_zmm_k1z_zmm_zmmm512;
    UnpackHighBW Three Punpckhbw_xmm_xmmm128 VEX_Vpunpckhbw_xmm_xmm_xmmm128 VEX_Vpunpckhbw_ymm_ymm_ymmm256 EVEX_Vpunpckhbw_xmm_k1z_xmm_xmmm128 EVEX_Vpunpckhbw_ymm_k1z_ymm_ymmm256 EVEX_Vpunpckhbw_zmm_k1z_zmm_zmmm512;
    UnpackLowWD Three Punpcklwd_xmm_xmmm128 VEX_Vpunpcklwd_xmm_xmm_xmmm128 VEX_Vpunpcklwd_ymm_ymm_ymmm256 EVEX_Vpunpcklwd_xmm_k1z_xmm_xmmm128 EVEX_Vpunpcklwd_ymm_k1z_ymm_ymmm256 EVEX_Vpunpcklwd_zmm_k1z_zmm_zmmm512;
    UnpackHighWD Three Punpckhwd_xmm_xmmm128 VEX_Vpunpckhwd_xmm_xmm_xmmm128 VEX_Vpunpckhwd_ymm_ymm_ymmm256 EVEX_Vpunpckhwd_xmm_k1z_xmm_xmmm128 EVEX_Vpunpckhwd_ymm_k1z_ymm_ymmm256 EVEX_Vpunpckhwd_zmm_k1z_zmm_zmmm512;
    UnpackLowDQ Three Punpckldq_xmm_xmmm128 VEX_Vpunpckldq_xmm_xmm_xmmm128 VEX_Vpunpckldq_ymm_ymm_ymmm256 EVEX_Vpunpckldq_xmm_k1z_xmm_xmmm128b32 EVEX_Vpunpckldq_ymm_k1z_ymm_ymmm256b32 EVEX_Vpunpckldq_zmm_k1z_zmm_zmmm512b32;
    UnpackHighDQ Three Punpckhdq_xmm_xmmm128 VEX_Vpunpckhdq_xmm_xmm_xmmm128 VEX_Vpunpckhdq_ymm_ymm_ymmm256 EVEX_Vpunpckhdq_xmm_k1z_xmm_xmmm128b32 EVEX_Vpunpckhdq_ymm_k1z_ymm_ymmm256b32 EVEX_Vpunpckhdq_zmm_k1z_zmm_zmmm512b32;
    UnpackLowQDQ Three Punpcklqdq_xmm_xmmm128 VEX_Vpunpcklqdq_xmm_xmm_xmmm128 VEX_Vpunpcklqdq_ymm_ymm_ymmm256 EVEX_Vpunpcklqdq_xmm_k1z_xmm_xmmm128b64 EVEX_Vpunpcklqdq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpunpcklqdq_zmm_k1z_zmm_zmmm512b64;
    UnpackHighQDQ Three Punpckhqdq_xmm_xmmm128 VEX_Vpunpckhqdq_xmm_xmm_xmmm128 VEX_Vpunpckhqdq_ymm_ymm_ymmm256 EVEX_Vpunpckhqdq_xmm_k1z_xmm_xmmm128b64 EVEX_Vpunpckhqdq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpunpckhqdq_zmm_k1z_zmm_zmmm512b64;
    AlignR Three Palignr_xmm_xmmm128_imm8 VEX_Vpalignr_xmm_xmm_xmmm128_imm8 VEX_Vpalignr_ymm_ymm_ymmm256_imm8 EVEX_Vpalignr_xmm_k1z_xmm_xmmm128_imm8 EVEX_Vpalignr_ymm_k1z_ymm_ymmm256_imm8 EVEX_Vpalignr_zmm_k1z_zmm_zmmm512_imm8;
    BlendPs Three Blendps_xmm_xmmm128_imm8 VEX_Vblendps_xmm_xmm_xmmm128_imm8 VEX_Vblendps_ymm_ymm_ymmm256_imm8 EVEX_Vblendmps_xmm_k1z_xmm_xmmm128b32 EVEX_Vblendmps_ymm_k1z_ymm_ymmm256b32 EVEX_Vblendmps_zmm_k1z_zmm_zmmm512b32;
    BlendW Three Pblendw_xmm_xmmm128_imm8 VEX_Vpblendw_xmm_xmm_xmmm128_imm8 VEX_Vpblendw_ymm_ymm_ymmm256_imm8 EVEX_Vpblendmw_xmm_k1z_xmm_xmmm128 EVEX_Vpblendmw_ymm_k1z_ymm_ymmm256 EVEX_Vpblendmw_zmm_k1z_zmm_zmmm512;
    BlendPd Three Blendpd_xmm_xmmm128_imm8 VEX_Vblendpd_xmm_xmm_xmmm128_imm8 VEX_Vblendpd_ymm_ymm_ymmm256_imm8 EVEX_Vblendmpd_xmm_k1z_xmm_xmmm128b64 EVEX_Vblendmpd_ymm_k1z_ymm_ymmm256b64 EVEX_Vblendmpd_zmm_k1z_zmm_zmmm512b64;
    Permute128 Three _ _ VEX_Vperm2f128_ymm_ymm_ymmm256_imm8 _ EVEX_Vshuff64x2_ymm_k1z_ymm_ymmm256b64_imm8 _;
    Insert128 Three _ _ VEX_Vinsertf128_ymm_ymm_xmmm128_imm8 _ EVEX_Vinsertf32x4_ymm_k1z_ymm_xmmm128_imm8 EVEX_Vinsertf32x4_zmm_k1z_zmm_xmmm128_imm8;
    PermuteD Three _ _ VEX_Vpermd_ymm_ymm_ymmm256 _ EVEX_Vpermd_ymm_k1z_ymm_ymmm256b32 EVEX_Vpermd_zmm_k1z_zmm_zmmm512b32;
    ShlVD Three _ VEX_Vpsllvd_xmm_xmm_xmmm128 VEX_Vpsllvd_ymm_ymm_ymmm256 EVEX_Vpsllvd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpsllvd_ymm_k1z_ymm_ymmm256b32 EVEX_Vpsllvd_zmm_k1z_zmm_zmmm512b32;
    ShlVQ Three _ VEX_Vpsllvq_xmm_xmm_xmmm128 VEX_Vpsllvq_ymm_ymm_ymmm256 EVEX_Vpsllvq_xmm_k1z_xmm_xmmm128b64 EVEX_Vpsllvq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpsllvq_zmm_k1z_zmm_zmmm512b64;
    ShrVD Three _ VEX_Vpsrlvd_xmm_xmm_xmmm128 VEX_Vpsrlvd_ymm_ymm_ymmm256 EVEX_Vpsrlvd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpsrlvd_ymm_k1z_ymm_ymmm256b32 EVEX_Vpsrlvd_zmm_k1z_zmm_zmmm512b32;
    ShrVQ Three _ VEX_Vpsrlvq_xmm_xmm_xmmm128 VEX_Vpsrlvq_ymm_ymm_ymmm256 EVEX_Vpsrlvq_xmm_k1z_xmm_xmmm128b64 EVEX_Vpsrlvq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpsrlvq_zmm_k1z_zmm_zmmm512b64;
    SarVD Three _ VEX_Vpsravd_xmm_xmm_xmmm128 VEX_Vpsravd_ymm_ymm_ymmm256 EVEX_Vpsravd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpsravd_ymm_k1z_ymm_ymmm256b32 EVEX_Vpsravd_zmm_k1z_zmm_zmmm512b32;
    ShlW Three Psllw_xmm_xmmm128 VEX_Vpsllw_xmm_xmm_xmmm128 VEX_Vpsllw_ymm_ymm_xmmm128 EVEX_Vpsllw_xmm_k1z_xmm_xmmm128 EVEX_Vpsllw_ymm_k1z_ymm_xmmm128 EVEX_Vpsllw_zmm_k1z_zmm_xmmm128;
    ShlWImm ShiftImm Psllw_xmm_imm8 VEX_Vpsllw_xmm_xmm_imm8 VEX_Vpsllw_ymm_ymm_imm8 EVEX_Vpsllw_xmm_k1z_xmmm128_imm8 EVEX_Vpsllw_ymm_k1z_ymmm256_imm8 EVEX_Vpsllw_zmm_k1z_zmmm512_imm8;
    ShlD Three Pslld_xmm_xmmm128 VEX_Vpslld_xmm_xmm_xmmm128 VEX_Vpslld_ymm_ymm_xmmm128 EVEX_Vpslld_xmm_k1z_xmm_xmmm128 EVEX_Vpslld_ymm_k1z_ymm_xmmm128 EVEX_Vpslld_zmm_k1z_zmm_xmmm128;
    ShlDImm ShiftImm Pslld_xmm_imm8 VEX_Vpslld_xmm_xmm_imm8 VEX_Vpslld_ymm_ymm_imm8 EVEX_Vpslld_xmm_k1z_xmmm128b32_imm8 EVEX_Vpslld_ymm_k1z_ymmm256b32_imm8 EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8;
    ShlQ Three Psllq_xmm_xmmm128 VEX_Vpsllq_xmm_xmm_xmmm128 VEX_Vpsllq_ymm_ymm_xmmm128 EVEX_Vpsllq_xmm_k1z_xmm_xmmm128 EVEX_Vpsllq_ymm_k1z_ymm_xmmm128 EVEX_Vpsllq_zmm_k1z_zmm_xmmm128;
    ShlQImm ShiftImm Psllq_xmm_imm8 VEX_Vpsllq_xmm_xmm_imm8 VEX_Vpsllq_ymm_ymm_imm8 EVEX_Vpsllq_xmm_k1z_xmmm128b64_imm8 EVEX_Vpsllq_ymm_k1z_ymmm256b64_imm8 EVEX_Vpsllq_zmm_k1z_zmmm512b64_imm8;
    ShrW Three Psrlw_xmm_xmmm128 VEX_Vpsrlw_xmm_xmm_xmmm128 VEX_Vpsrlw_ymm_ymm_xmmm128 EVEX_Vpsrlw_xmm_k1z_xmm_xmmm128 EVEX_Vpsrlw_ymm_k1z_ymm_xmmm128 EVEX_Vpsrlw_zmm_k1z_zmm_xmmm128;
    ShrWImm ShiftImm Psrlw_xmm_imm8 VEX_Vpsrlw_xmm_xmm_imm8 VEX_Vpsrlw_ymm_ymm_imm8 EVEX_Vpsrlw_xmm_k1z_xmmm128_imm8 EVEX_Vpsrlw_ymm_k1z_ymmm256_imm8 EVEX_Vpsrlw_zmm_k1z_zmmm512_imm8;
    ShrD Three Psrld_xmm_xmmm128 VEX_Vpsrld_xmm_xmm_xmmm128 VEX_Vpsrld_ymm_ymm_xmmm128 EVEX_Vpsrld_xmm_k1z_xmm_xmmm128 EVEX_Vpsrld_ymm_k1z_ymm_xmmm128 EVEX_Vpsrld_zmm_k1z_zmm_xmmm128;
    ShrDImm ShiftImm Psrld_xmm_imm8 VEX_Vpsrld_xmm_xmm_imm8 VEX_Vpsrld_ymm_ymm_imm8 EVEX_Vpsrld_xmm_k1z_xmmm128b32_imm8 EVEX_Vpsrld_ymm_k1z_ymmm256b32_imm8 EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8;
    ShrQ Three Psrlq_xmm_xmmm128 VEX_Vpsrlq_xmm_xmm_xmmm128 VEX_Vpsrlq_ymm_ymm_xmmm128 EVEX_Vpsrlq_xmm_k1z_xmm_xmmm128 EVEX_Vpsrlq_ymm_k1z_ymm_xmmm128 EVEX_Vpsrlq_zmm_k1z_zmm_xmmm128;
    ShrQImm ShiftImm Psrlq_xmm_imm8 VEX_Vpsrlq_xmm_xmm_imm8 VEX_Vpsrlq_ymm_ymm_imm8 EVEX_Vpsrlq_xmm_k1z_xmmm128b64_imm8 EVEX_Vpsrlq_ymm_k1z_ymmm256b64_imm8 EVEX_Vpsrlq_zmm_k1z_zmmm512b64_imm8;
    SarW Three Psraw_xmm_xmmm128 VEX_Vpsraw_xmm_xmm_xmmm128 VEX_Vpsraw_ymm_ymm_xmmm128 EVEX_Vpsraw_xmm_k1z_xmm_xmmm128 EVEX_Vpsraw_ymm_k1z_ymm_xmmm128 EVEX_Vpsraw_zmm_k1z_zmm_xmmm128;
    SarWImm ShiftImm Psraw_xmm_imm8 VEX_Vpsraw_xmm_xmm_imm8 VEX_Vpsraw_ymm_ymm_imm8 EVEX_Vpsraw_xmm_k1z_xmmm128_imm8 EVEX_Vpsraw_ymm_k1z_ymmm256_imm8 EVEX_Vpsraw_zmm_k1z_zmmm512_imm8;
    SarD Three Psrad_xmm_xmmm128 VEX_Vpsrad_xmm_xmm_xmmm128 VEX_Vpsrad_ymm_ymm_xmmm128 EVEX_Vpsrad_xmm_k1z_xmm_xmmm128 EVEX_Vpsrad_ymm_k1z_ymm_xmmm128 EVEX_Vpsrad_zmm_k1z_zmm_xmmm128;
    SarDImm ShiftImm Psrad_xmm_imm8 VEX_Vpsrad_xmm_xmm_imm8 VEX_Vpsrad_ymm_ymm_imm8 EVEX_Vpsrad_xmm_k1z_xmmm128b32_imm8 EVEX_Vpsrad_ymm_k1z_ymmm256b32_imm8 EVEX_Vpsrad_zmm_k1z_zmmm512b32_imm8;
    ShrBytes ShiftImm Psrldq_xmm_imm8 VEX_Vpsrldq_xmm_xmm_imm8 VEX_Vpsrldq_ymm_ymm_imm8 EVEX_Vpsrldq_xmm_xmmm128_imm8 EVEX_Vpsrldq_ymm_ymmm256_imm8 EVEX_Vpsrldq_zmm_zmmm512_imm8;
    ShlBytes ShiftImm Pslldq_xmm_imm8 VEX_Vpslldq_xmm_xmm_imm8 VEX_Vpslldq_ymm_ymm_imm8 EVEX_Vpslldq_xmm_xmmm128_imm8 EVEX_Vpslldq_ymm_ymmm256_imm8 EVEX_Vpslldq_zmm_zmmm512_imm8;
    InsertB Three Pinsrb_xmm_r32m8_imm8 VEX_Vpinsrb_xmm_xmm_r32m8_imm8 _ EVEX_Vpinsrb_xmm_xmm_r32m8_imm8 _ _;
    InsertW Three Pinsrw_xmm_r32m16_imm8 VEX_Vpinsrw_xmm_xmm_r32m16_imm8 _ EVEX_Vpinsrw_xmm_xmm_r32m16_imm8 _ _;
    InsertD Three Pinsrd_xmm_rm32_imm8 VEX_Vpinsrd_xmm_xmm_rm32_imm8 _ EVEX_Vpinsrd_xmm_xmm_rm32_imm8 _ _;
    InsertQ Three Pinsrq_xmm_rm64_imm8 VEX_Vpinsrq_xmm_xmm_rm64_imm8 _ EVEX_Vpinsrq_xmm_xmm_rm64_imm8 _ _;
    SqrtPs Two Sqrtps_xmm_xmmm128 VEX_Vsqrtps_xmm_xmmm128 VEX_Vsqrtps_ymm_ymmm256 EVEX_Vsqrtps_xmm_k1z_xmmm128b32 EVEX_Vsqrtps_ymm_k1z_ymmm256b32 EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er;
    SqrtPd Two Sqrtpd_xmm_xmmm128 VEX_Vsqrtpd_xmm_xmmm128 VEX_Vsqrtpd_ymm_ymmm256 EVEX_Vsqrtpd_xmm_k1z_xmmm128b64 EVEX_Vsqrtpd_ymm_k1z_ymmm256b64 EVEX_Vsqrtpd_zmm_k1z_zmmm512b64_er;
    RoundPs Two Roundps_xmm_xmmm128_imm8 VEX_Vroundps_xmm_xmmm128_imm8 VEX_Vroundps_ymm_ymmm256_imm8 EVEX_Vrndscaleps_xmm_k1z_xmmm128b32_imm8 EVEX_Vrndscaleps_ymm_k1z_ymmm256b32_imm8 EVEX_Vrndscaleps_zmm_k1z_zmmm512b32_imm8_sae;
    RoundPd Two Roundpd_xmm_xmmm128_imm8 VEX_Vroundpd_xmm_xmmm128_imm8 VEX_Vroundpd_ymm_ymmm256_imm8 EVEX_Vrndscalepd_xmm_k1z_xmmm128b64_imm8 EVEX_Vrndscalepd_ymm_k1z_ymmm256b64_imm8 EVEX_Vrndscalepd_zmm_k1z_zmmm512b64_imm8_sae;
    AbsB Two Pabsb_xmm_xmmm128 VEX_Vpabsb_xmm_xmmm128 VEX_Vpabsb_ymm_ymmm256 EVEX_Vpabsb_xmm_k1z_xmmm128 EVEX_Vpabsb_ymm_k1z_ymmm256 EVEX_Vpabsb_zmm_k1z_zmmm512;
    AbsW Two Pabsw_xmm_xmmm128 VEX_Vpabsw_xmm_xmmm128 VEX_Vpabsw_ymm_ymmm256 EVEX_Vpabsw_xmm_k1z_xmmm128 EVEX_Vpabsw_ymm_k1z_ymmm256 EVEX_Vpabsw_zmm_k1z_zmmm512;
    AbsD Two Pabsd_xmm_xmmm128 VEX_Vpabsd_xmm_xmmm128 VEX_Vpabsd_ymm_ymmm256 EVEX_Vpabsd_xmm_k1z_xmmm128b32 EVEX_Vpabsd_ymm_k1z_ymmm256b32 EVEX_Vpabsd_zmm_k1z_zmmm512b32;
    CvtDQ2Ps Two Cvtdq2ps_xmm_xmmm128 VEX_Vcvtdq2ps_xmm_xmmm128 VEX_Vcvtdq2ps_ymm_ymmm256 EVEX_Vcvtdq2ps_xmm_k1z_xmmm128b32 EVEX_Vcvtdq2ps_ymm_k1z_ymmm256b32 EVEX_Vcvtdq2ps_zmm_k1z_zmmm512b32_er;
    CvttPs2DQ Two Cvttps2dq_xmm_xmmm128 VEX_Vcvttps2dq_xmm_xmmm128 VEX_Vcvttps2dq_ymm_ymmm256 EVEX_Vcvttps2dq_xmm_k1z_xmmm128b32 EVEX_Vcvttps2dq_ymm_k1z_ymmm256b32 EVEX_Vcvttps2dq_zmm_k1z_zmmm512b32_sae;
    CvtPs2Pd Two Cvtps2pd_xmm_xmmm64 VEX_Vcvtps2pd_xmm_xmmm64 VEX_Vcvtps2pd_ymm_xmmm128 EVEX_Vcvtps2pd_xmm_k1z_xmmm64b32 EVEX_Vcvtps2pd_ymm_k1z_xmmm128b32 EVEX_Vcvtps2pd_zmm_k1z_ymmm256b32_sae;
    CvtDQ2Pd Two Cvtdq2pd_xmm_xmmm64 VEX_Vcvtdq2pd_xmm_xmmm64 VEX_Vcvtdq2pd_ymm_xmmm128 EVEX_Vcvtdq2pd_xmm_k1z_xmmm64b32 EVEX_Vcvtdq2pd_ymm_k1z_xmmm128b32 EVEX_Vcvtdq2pd_zmm_k1z_ymmm256b32_er;
    CvtPd2Ps Two Cvtpd2ps_xmm_xmmm128 VEX_Vcvtpd2ps_xmm_xmmm128 VEX_Vcvtpd2ps_xmm_ymmm256 EVEX_Vcvtpd2ps_xmm_k1z_xmmm128b64 EVEX_Vcvtpd2ps_xmm_k1z_ymmm256b64 EVEX_Vcvtpd2ps_ymm_k1z_zmmm512b64_er;
    CvttPd2DQ Two Cvttpd2dq_xmm_xmmm128 VEX_Vcvttpd2dq_xmm_xmmm128 VEX_Vcvttpd2dq_xmm_ymmm256 EVEX_Vcvttpd2dq_xmm_k1z_xmmm128b64 EVEX_Vcvttpd2dq_xmm_k1z_ymmm256b64 EVEX_Vcvttpd2dq_ymm_k1z_zmmm512b64_sae;
    CvtQQ2Ps Two _ _ _ EVEX_Vcvtqq2ps_xmm_k1z_xmmm128b64 EVEX_Vcvtqq2ps_xmm_k1z_ymmm256b64 EVEX_Vcvtqq2ps_ymm_k1z_zmmm512b64_er;
    CvttPd2QQ Two _ _ _ EVEX_Vcvttpd2qq_xmm_k1z_xmmm128b64 EVEX_Vcvttpd2qq_ymm_k1z_ymmm256b64 EVEX_Vcvttpd2qq_zmm_k1z_zmmm512b64_sae;
    CvtPh2Ps Two _ VEX_Vcvtph2ps_xmm_xmmm64 VEX_Vcvtph2ps_ymm_xmmm128 EVEX_Vcvtph2ps_xmm_k1z_xmmm64 EVEX_Vcvtph2ps_ymm_k1z_xmmm128 EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae;
    CvtPs2Ph Extract _ VEX_Vcvtps2ph_xmmm64_xmm_imm8 VEX_Vcvtps2ph_xmmm128_ymm_imm8 EVEX_Vcvtps2ph_xmmm64_k1z_xmm_imm8 EVEX_Vcvtps2ph_xmmm128_k1z_ymm_imm8 EVEX_Vcvtps2ph_ymmm256_k1z_zmm_imm8_sae;
    ExtendSBW Two Pmovsxbw_xmm_xmmm64 VEX_Vpmovsxbw_xmm_xmmm64 VEX_Vpmovsxbw_ymm_xmmm128 EVEX_Vpmovsxbw_xmm_k1z_xmmm64 EVEX_Vpmovsxbw_ymm_k1z_xmmm128 EVEX_Vpmovsxbw_zmm_k1z_ymmm256;
    ExtendSBD Two Pmovsxbd_xmm_xmmm32 VEX_Vpmovsxbd_xmm_xmmm32 VEX_Vpmovsxbd_ymm_xmmm64 EVEX_Vpmovsxbd_xmm_k1z_xmmm32 EVEX_Vpmovsxbd_ymm_k1z_xmmm64 EVEX_Vpmovsxbd_zmm_k1z_xmmm128;
    ExtendSBQ Two Pmovsxbq_xmm_xmmm16 VEX_Vpmovsxbq_xmm_xmmm16 VEX_Vpmovsxbq_ymm_xmmm32 EVEX_Vpmovsxbq_xmm_k1z_xmmm16 EVEX_Vpmovsxbq_ymm_k1z_xmmm32 EVEX_Vpmovsxbq_zmm_k1z_xmmm64;
    ExtendSWD Two Pmovsxwd_xmm_xmmm64 VEX_Vpmovsxwd_xmm_xmmm64 VEX_Vpmovsxwd_ymm_xmmm128 EVEX_Vpmovsxwd_xmm_k1z_xmmm64 EVEX_Vpmovsxwd_ymm_k1z_xmmm128 EVEX_Vpmovsxwd_zmm_k1z_ymmm256;
    ExtendSWQ Two Pmovsxwq_xmm_xmmm32 VEX_Vpmovsxwq_xmm_xmmm32 VEX_Vpmovsxwq_ymm_xmmm64 EVEX_Vpmovsxwq_xmm_k1z_xmmm32 EVEX_Vpmovsxwq_ymm_k1z_xmmm64 EVEX_Vpmovsxwq_zmm_k1z_xmmm128;
    ExtendSDQ Two Pmovsxdq_xmm_xmmm64 VEX_Vpmovsxdq_xmm_xmmm64 VEX_Vpmovsxdq_ymm_xmmm128 EVEX_Vpmovsxdq_xmm_k1z_xmmm64 EVEX_Vpmovsxdq_ymm_k1z_xmmm128 EVEX_Vpmovsxdq_zmm_k1z_ymmm256;
    ExtendZBW Two Pmovzxbw_xmm_xmmm64 VEX_Vpmovzxbw_xmm_xmmm64 VEX_Vpmovzxbw_ymm_xmmm128 EVEX_Vpmovzxbw_xmm_k1z_xmmm64 EVEX_Vpmovzxbw_ymm_k1z_xmmm128 EVEX_Vpmovzxbw_zmm_k1z_ymmm256;
    ExtendZBD Two Pmovzxbd_xmm_xmmm32 VEX_Vpmovzxbd_xmm_xmmm32 VEX_Vpmovzxbd_ymm_xmmm64 EVEX_Vpmovzxbd_xmm_k1z_xmmm32 EVEX_Vpmovzxbd_ymm_k1z_xmmm64 EVEX_Vpmovzxbd_zmm_k1z_xmmm128;
    ExtendZBQ Two Pmovzxbq_xmm_xmmm16 VEX_Vpmovzxbq_xmm_xmmm16 VEX_Vpmovzxbq_ymm_xmmm32 EVEX_Vpmovzxbq_xmm_k1z_xmmm16 EVEX_Vpmovzxbq_ymm_k1z_xmmm32 EVEX_Vpmovzxbq_zmm_k1z_xmmm64;
    ExtendZWD Two Pmovzxwd_xmm_xmmm64 VEX_Vpmovzxwd_xmm_xmmm64 VEX_Vpmovzxwd_ymm_xmmm128 EVEX_Vpmovzxwd_xmm_k1z_xmmm64 EVEX_Vpmovzxwd_ymm_k1z_xmmm128 EVEX_Vpmovzxwd_zmm_k1z_ymmm256;
    ExtendZWQ Two Pmovzxwq_xmm_xmmm32 VEX_Vpmovzxwq_xmm_xmmm32 VEX_Vpmovzxwq_ymm_xmmm64 EVEX_Vpmovzxwq_xmm_k1z_xmmm32 EVEX_Vpmovzxwq_ymm_k1z_xmmm64 EVEX_Vpmovzxwq_zmm_k1z_xmmm128;
    ExtendZDQ Two Pmovzxdq_xmm_xmmm64 VEX_Vpmovzxdq_xmm_xmmm64 VEX_Vpmovzxdq_ymm_xmmm128 EVEX_Vpmovzxdq_xmm_k1z_xmmm64 EVEX_Vpmovzxdq_ymm_k1z_xmmm128 EVEX_Vpmovzxdq_zmm_k1z_ymmm256;
    ShuffleD Two Pshufd_xmm_xmmm128_imm8 VEX_Vpshufd_xmm_xmmm128_imm8 VEX_Vpshufd_ymm_ymmm256_imm8 EVEX_Vpshufd_xmm_k1z_xmmm128b32_imm8 EVEX_Vpshufd_ymm_k1z_ymmm256b32_imm8 EVEX_Vpshufd_zmm_k1z_zmmm512b32_imm8;
    ShuffleLowW Two Pshuflw_xmm_xmmm128_imm8 VEX_Vpshuflw_xmm_xmmm128_imm8 VEX_Vpshuflw_ymm_ymmm256_imm8 EVEX_Vpshuflw_xmm_k1z_xmmm128_imm8 EVEX_Vpshuflw_ymm_k1z_ymmm256_imm8 EVEX_Vpshuflw_zmm_k1z_zmmm512_imm8;
    ShuffleHighW Two Pshufhw_xmm_xmmm128_imm8 VEX_Vpshufhw_xmm_xmmm128_imm8 VEX_Vpshufhw_ymm_ymmm256_imm8 EVEX_Vpshufhw_xmm_k1z_xmmm128_imm8 EVEX_Vpshufhw_ymm_k1z_ymmm256_imm8 EVEX_Vpshufhw_zmm_k1z_zmmm512_imm8;
    DuplicateLowPd Two Movddup_xmm_xmmm64 VEX_Vmovddup_xmm_xmmm64 VEX_Vmovddup_ymm_ymmm256 EVEX_Vmovddup_xmm_k1z_xmmm64 EVEX_Vmovddup_ymm_k1z_ymmm256 EVEX_Vmovddup_zmm_k1z_zmmm512;
    DuplicateOddPs Two Movshdup_xmm_xmmm128 VEX_Vmovshdup_xmm_xmmm128 VEX_Vmovshdup_ymm_ymmm256 EVEX_Vmovshdup_xmm_k1z_xmmm128 EVEX_Vmovshdup_ymm_k1z_ymmm256 EVEX_Vmovshdup_zmm_k1z_zmmm512;
    DuplicateEvenPs Two Movsldup_xmm_xmmm128 VEX_Vmovsldup_xmm_xmmm128 VEX_Vmovsldup_ymm_ymmm256 EVEX_Vmovsldup_xmm_k1z_xmmm128 EVEX_Vmovsldup_ymm_k1z_ymmm256 EVEX_Vmovsldup_zmm_k1z_zmmm512;
    PermuteQ Two _ _ VEX_Vpermq_ymm_ymmm256_imm8 _ EVEX_Vpermq_ymm_k1z_ymmm256b64_imm8 EVEX_Vpermq_zmm_k1z_zmmm512b64_imm8;
    BroadcastB Two _ VEX_Vpbroadcastb_xmm_xmmm8 VEX_Vpbroadcastb_ymm_xmmm8 EVEX_Vpbroadcastb_xmm_k1z_xmmm8 EVEX_Vpbroadcastb_ymm_k1z_xmmm8 EVEX_Vpbroadcastb_zmm_k1z_xmmm8;
    BroadcastW Two _ VEX_Vpbroadcastw_xmm_xmmm16 VEX_Vpbroadcastw_ymm_xmmm16 EVEX_Vpbroadcastw_xmm_k1z_xmmm16 EVEX_Vpbroadcastw_ymm_k1z_xmmm16 EVEX_Vpbroadcastw_zmm_k1z_xmmm16;
    BroadcastD Two _ VEX_Vpbroadcastd_xmm_xmmm32 VEX_Vpbroadcastd_ymm_xmmm32 EVEX_Vpbroadcastd_xmm_k1z_xmmm32 EVEX_Vpbroadcastd_ymm_k1z_xmmm32 EVEX_Vpbroadcastd_zmm_k1z_xmmm32;
    BroadcastQ Two _ VEX_Vpbroadcastq_xmm_xmmm64 VEX_Vpbroadcastq_ymm_xmmm64 EVEX_Vpbroadcastq_xmm_k1z_xmmm64 EVEX_Vpbroadcastq_ymm_k1z_xmmm64 EVEX_Vpbroadcastq_zmm_k1z_xmmm64;
    BroadcastSs Two _ VEX_Vbroadcastss_xmm_xmm VEX_Vbroadcastss_ymm_xmm EVEX_Vbroadcastss_xmm_k1z_xmmm32 EVEX_Vbroadcastss_ymm_k1z_xmmm32 EVEX_Vbroadcastss_zmm_k1z_xmmm32;
    BroadcastSsMem Two _ VEX_Vbroadcastss_xmm_m32 VEX_Vbroadcastss_ymm_m32 EVEX_Vbroadcastss_xmm_k1z_xmmm32 EVEX_Vbroadcastss_ymm_k1z_xmmm32 EVEX_Vbroadcastss_zmm_k1z_xmmm32;
    BroadcastSd Two _ _ VEX_Vbroadcastsd_ymm_xmm _ EVEX_Vbroadcastsd_ymm_k1z_xmmm64 EVEX_Vbroadcastsd_zmm_k1z_xmmm64;
    BroadcastSdMem Two _ _ VEX_Vbroadcastsd_ymm_m64 _ EVEX_Vbroadcastsd_ymm_k1z_xmmm64 EVEX_Vbroadcastsd_zmm_k1z_xmmm64;
    Broadcast128 Two _ _ VEX_Vbroadcastf128_ymm_m128 _ EVEX_Vbroadcastf32x4_ymm_k1z_m128 EVEX_Vbroadcastf32x4_zmm_k1z_m128;
    Extract128 Extract _ _ VEX_Vextractf128_xmmm128_ymm_imm8 _ EVEX_Vextractf32x4_xmmm128_k1z_ymm_imm8 EVEX_Vextractf32x4_xmmm128_k1z_zmm_imm8;
    ExtractB Extract Pextrb_r32m8_xmm_imm8 VEX_Vpextrb_r32m8_xmm_imm8 _ EVEX_Vpextrb_r32m8_xmm_imm8 _ _;
    ExtractW Extract Pextrw_r32m16_xmm_imm8 VEX_Vpextrw_r32m16_xmm_imm8 _ EVEX_Vpextrw_r32m16_xmm_imm8 _ _;
    ExtractD Extract Pextrd_rm32_xmm_imm8 VEX_Vpextrd_rm32_xmm_imm8 _ EVEX_Vpextrd_rm32_xmm_imm8 _ _;
    ExtractQ Extract Pextrq_rm64_xmm_imm8 VEX_Vpextrq_rm64_xmm_imm8 _ EVEX_Vpextrq_rm64_xmm_imm8 _ _;
    SqrtSs Pass Sqrtss_xmm_xmmm32 VEX_Vsqrtss_xmm_xmm_xmmm32 _ EVEX_Vsqrtss_xmm_k1z_xmm_xmmm32_er _ _;
    SqrtSd Pass Sqrtsd_xmm_xmmm64 VEX_Vsqrtsd_xmm_xmm_xmmm64 _ EVEX_Vsqrtsd_xmm_k1z_xmm_xmmm64_er _ _;
    RoundSs Pass Roundss_xmm_xmmm32_imm8 VEX_Vroundss_xmm_xmm_xmmm32_imm8 _ EVEX_Vrndscaless_xmm_k1z_xmm_xmmm32_imm8_sae _ _;
    RoundSd Pass Roundsd_xmm_xmmm64_imm8 VEX_Vroundsd_xmm_xmm_xmmm64_imm8 _ EVEX_Vrndscalesd_xmm_k1z_xmm_xmmm64_imm8_sae _ _;
    CvtSs2Sd Pass Cvtss2sd_xmm_xmmm32 VEX_Vcvtss2sd_xmm_xmm_xmmm32 _ EVEX_Vcvtss2sd_xmm_k1z_xmm_xmmm32_sae _ _;
    CvtSd2Ss Pass Cvtsd2ss_xmm_xmmm64 VEX_Vcvtsd2ss_xmm_xmm_xmmm64 _ EVEX_Vcvtsd2ss_xmm_k1z_xmm_xmmm64_er _ _;
    CvtSi32Ss Pass Cvtsi2ss_xmm_rm32 VEX_Vcvtsi2ss_xmm_xmm_rm32 _ EVEX_Vcvtsi2ss_xmm_xmm_rm32_er _ _;
    CvtSi64Ss Pass Cvtsi2ss_xmm_rm64 VEX_Vcvtsi2ss_xmm_xmm_rm64 _ EVEX_Vcvtsi2ss_xmm_xmm_rm64_er _ _;
    CvtSi32Sd Pass Cvtsi2sd_xmm_rm32 VEX_Vcvtsi2sd_xmm_xmm_rm32 _ EVEX_Vcvtsi2sd_xmm_xmm_rm32_er _ _;
    CvtSi64Sd Pass Cvtsi2sd_xmm_rm64 VEX_Vcvtsi2sd_xmm_xmm_rm64 _ EVEX_Vcvtsi2sd_xmm_xmm_rm64_er _ _;
    CvttSs32 Two Cvttss2si_r32_xmmm32 VEX_Vcvttss2si_r32_xmmm32 _ EVEX_Vcvttss2si_r32_xmmm32_sae _ _;
    CvttSs64 Two Cvttss2si_r64_xmmm32 VEX_Vcvttss2si_r64_xmmm32 _ EVEX_Vcvttss2si_r64_xmmm32_sae _ _;
    CvttSd32 Two Cvttsd2si_r32_xmmm64 VEX_Vcvttsd2si_r32_xmmm64 _ EVEX_Vcvttsd2si_r32_xmmm64_sae _ _;
    CvttSd64 Two Cvttsd2si_r64_xmmm64 VEX_Vcvttsd2si_r64_xmmm64 _ EVEX_Vcvttsd2si_r64_xmmm64_sae _ _;
    MoveMaskPs Two Movmskps_r32_xmm VEX_Vmovmskps_r32_xmm VEX_Vmovmskps_r32_ymm EVEX_Vpmovd2m_kr_xmm EVEX_Vpmovd2m_kr_ymm EVEX_Vpmovd2m_kr_zmm;
    MoveMaskPd Two Movmskpd_r32_xmm VEX_Vmovmskpd_r32_xmm VEX_Vmovmskpd_r32_ymm EVEX_Vpmovq2m_kr_xmm EVEX_Vpmovq2m_kr_ymm EVEX_Vpmovq2m_kr_zmm;
    MoveMaskB Two Pmovmskb_r32_xmm VEX_Vpmovmskb_r32_xmm VEX_Vpmovmskb_r32_ymm EVEX_Vpmovb2m_kr_xmm EVEX_Vpmovb2m_kr_ymm EVEX_Vpmovb2m_kr_zmm;
    MoveGprD Two Movd_xmm_rm32 VEX_Vmovd_xmm_rm32 _ EVEX_Vmovd_xmm_rm32 _ _;
    MoveGprQ Two Movq_xmm_rm64 VEX_Vmovq_xmm_rm64 _ EVEX_Vmovq_xmm_rm64 _ _;
    MoveVecD Extract0 Movd_rm32_xmm VEX_Vmovd_rm32_xmm _ EVEX_Vmovd_rm32_xmm _ _;
    MoveVecQ Extract0 Movq_rm64_xmm VEX_Vmovq_rm64_xmm _ EVEX_Vmovq_rm64_xmm _ _;
    MoveLowQ Two Movq_xmm_xmmm64 VEX_Vmovq_xmm_xmmm64 _ EVEX_Vmovq_xmm_xmmm64 _ _;
    Load4 Two Movd_xmm_rm32 VEX_Vmovd_xmm_rm32 _ EVEX_Vmovd_xmm_rm32 _ _;
    Load4F Two Movss_xmm_xmmm32 VEX_Vmovss_xmm_m32 _ EVEX_Vmovss_xmm_k1z_m32 _ _;
    Load8 Two Movq_xmm_xmmm64 VEX_Vmovq_xmm_xmmm64 _ EVEX_Vmovq_xmm_xmmm64 _ _;
    Load Two Movups_xmm_xmmm128 VEX_Vmovups_xmm_xmmm128 VEX_Vmovups_ymm_ymmm256 EVEX_Vmovups_xmm_k1z_xmmm128 EVEX_Vmovups_ymm_k1z_ymmm256 EVEX_Vmovups_zmm_k1z_zmmm512;
    Store4 Store Movss_xmmm32_xmm VEX_Vmovss_m32_xmm _ EVEX_Vmovss_m32_k1_xmm _ _;
    Store8 Store Movq_xmmm64_xmm VEX_Vmovq_xmmm64_xmm _ EVEX_Vmovq_xmmm64_xmm _ _;
    Store Store Movups_xmmm128_xmm VEX_Vmovups_xmmm128_xmm VEX_Vmovups_ymmm256_ymm EVEX_Vmovups_xmmm128_k1z_xmm EVEX_Vmovups_ymmm256_k1z_ymm EVEX_Vmovups_zmmm512_k1z_zmm;
    StorePast Store Movntps_m128_xmm VEX_Vmovntps_m128_xmm VEX_Vmovntps_m256_ymm EVEX_Vmovntps_m128_xmm EVEX_Vmovntps_m256_ymm EVEX_Vmovntps_m512_zmm;
    MaskLoad4 MaskLoad _ VEX_Vmaskmovps_xmm_xmm_m128 VEX_Vmaskmovps_ymm_ymm_m256 EVEX_Vmovups_xmm_k1z_xmmm128 EVEX_Vmovups_ymm_k1z_ymmm256 EVEX_Vmovups_zmm_k1z_zmmm512;
    MaskLoad8 MaskLoad _ VEX_Vmaskmovpd_xmm_xmm_m128 VEX_Vmaskmovpd_ymm_ymm_m256 EVEX_Vmovupd_xmm_k1z_xmmm128 EVEX_Vmovupd_ymm_k1z_ymmm256 EVEX_Vmovupd_zmm_k1z_zmmm512;
    MaskStore4 MaskStore _ VEX_Vmaskmovps_m128_xmm_xmm VEX_Vmaskmovps_m256_ymm_ymm EVEX_Vmovups_xmmm128_k1z_xmm EVEX_Vmovups_ymmm256_k1z_ymm EVEX_Vmovups_zmmm512_k1z_zmm;
    MaskStore8 MaskStore _ VEX_Vmaskmovpd_m128_xmm_xmm VEX_Vmaskmovpd_m256_ymm_ymm EVEX_Vmovupd_xmmm128_k1z_xmm EVEX_Vmovupd_ymmm256_k1z_ymm EVEX_Vmovupd_zmmm512_k1z_zmm;
    Choose Choose _ VEX_Vpblendvb_xmm_xmm_xmmm128_xmm VEX_Vpblendvb_ymm_ymm_ymmm256_ymm EVEX_Vpblendmb_xmm_k1z_xmm_xmmm128 EVEX_Vpblendmb_ymm_k1z_ymm_ymmm256 EVEX_Vpblendmb_zmm_k1z_zmm_zmmm512;
    ChoosePs Choose _ VEX_Vblendvps_xmm_xmm_xmmm128_xmm VEX_Vblendvps_ymm_ymm_ymmm256_ymm EVEX_Vblendmps_xmm_k1z_xmm_xmmm128b32 EVEX_Vblendmps_ymm_k1z_ymm_ymmm256b32 EVEX_Vblendmps_zmm_k1z_zmm_zmmm512b32;
    FmaPs Fma _ VEX_Vfmadd231ps_xmm_xmm_xmmm128 VEX_Vfmadd231ps_ymm_ymm_ymmm256 EVEX_Vfmadd231ps_xmm_k1z_xmm_xmmm128b32 EVEX_Vfmadd231ps_ymm_k1z_ymm_ymmm256b32 EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er;
    MaskFmaPs MaskFma _ _ _ EVEX_Vfmadd231ps_xmm_k1z_xmm_xmmm128b32 EVEX_Vfmadd231ps_ymm_k1z_ymm_ymmm256b32 EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er;
    MaskFmaPd MaskFma _ _ _ EVEX_Vfmadd231pd_xmm_k1z_xmm_xmmm128b64 EVEX_Vfmadd231pd_ymm_k1z_ymm_ymmm256b64 EVEX_Vfmadd231pd_zmm_k1z_zmm_zmmm512b64_er;
    FmaPd Fma _ VEX_Vfmadd231pd_xmm_xmm_xmmm128 VEX_Vfmadd231pd_ymm_ymm_ymmm256 EVEX_Vfmadd231pd_xmm_k1z_xmm_xmmm128b64 EVEX_Vfmadd231pd_ymm_k1z_ymm_ymmm256b64 EVEX_Vfmadd231pd_zmm_k1z_zmm_zmmm512b64_er;
    FmaSs Fma _ VEX_Vfmadd231ss_xmm_xmm_xmmm32 _ EVEX_Vfmadd231ss_xmm_k1z_xmm_xmmm32_er _ _;
    FmaSd Fma _ VEX_Vfmadd231sd_xmm_xmm_xmmm64 _ EVEX_Vfmadd231sd_xmm_k1z_xmm_xmmm64_er _ _;
    DotW Dot _ VEX_Vpdpwssd_xmm_xmm_xmmm128 VEX_Vpdpwssd_ymm_ymm_ymmm256 EVEX_Vpdpwssd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpdpwssd_ymm_k1z_ymm_ymmm256b32 EVEX_Vpdpwssd_zmm_k1z_zmm_zmmm512b32;
    DotUB Dot _ VEX_Vpdpbusd_xmm_xmm_xmmm128 VEX_Vpdpbusd_ymm_ymm_ymmm256 EVEX_Vpdpbusd_xmm_k1z_xmm_xmmm128b32 EVEX_Vpdpbusd_ymm_k1z_ymm_ymmm256b32 EVEX_Vpdpbusd_zmm_k1z_zmm_zmmm512b32;
    DotBF16 Dot _ _ _ EVEX_Vdpbf16ps_xmm_k1z_xmm_xmmm128b32 EVEX_Vdpbf16ps_ymm_k1z_ymm_ymmm256b32 EVEX_Vdpbf16ps_zmm_k1z_zmm_zmmm512b32;
    MaskLoad1 MaskLoad _ _ _ EVEX_Vmovdqu8_xmm_k1z_xmmm128 EVEX_Vmovdqu8_ymm_k1z_ymmm256 EVEX_Vmovdqu8_zmm_k1z_zmmm512;
    MaskLoad2 MaskLoad _ _ _ EVEX_Vmovdqu16_xmm_k1z_xmmm128 EVEX_Vmovdqu16_ymm_k1z_ymmm256 EVEX_Vmovdqu16_zmm_k1z_zmmm512;
    MaskStore1 MaskStore _ _ _ EVEX_Vmovdqu8_xmmm128_k1z_xmm EVEX_Vmovdqu8_ymmm256_k1z_ymm EVEX_Vmovdqu8_zmmm512_k1z_zmm;
    MaskStore2 MaskStore _ _ _ EVEX_Vmovdqu16_xmmm128_k1z_xmm EVEX_Vmovdqu16_ymmm256_k1z_ymm EVEX_Vmovdqu16_zmmm512_k1z_zmm;
    Insert256 Three _ _ _ _ _ EVEX_Vinsertf64x4_zmm_k1z_zmm_ymmm256_imm8;
    Extract256 Extract _ _ _ _ _ EVEX_Vextractf64x4_ymmm256_k1z_zmm_imm8;
    TableW Table _ _ _ EVEX_Vpermt2w_xmm_k1z_xmm_xmmm128 EVEX_Vpermt2w_ymm_k1z_ymm_ymmm256 EVEX_Vpermt2w_zmm_k1z_zmm_zmmm512;
    TableD Table _ _ _ EVEX_Vpermt2d_xmm_k1z_xmm_xmmm128b32 EVEX_Vpermt2d_ymm_k1z_ymm_ymmm256b32 EVEX_Vpermt2d_zmm_k1z_zmm_zmmm512b32;
    TableQ Table _ _ _ EVEX_Vpermt2q_xmm_k1z_xmm_xmmm128b64 EVEX_Vpermt2q_ymm_k1z_ymm_ymmm256b64 EVEX_Vpermt2q_zmm_k1z_zmm_zmmm512b64;
    MulQ ThreeCommuting _ _ _ EVEX_Vpmullq_xmm_k1z_xmm_xmmm128b64 EVEX_Vpmullq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpmullq_zmm_k1z_zmm_zmmm512b64;
    MinSQ ThreeCommuting _ _ _ EVEX_Vpminsq_xmm_k1z_xmm_xmmm128b64 EVEX_Vpminsq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpminsq_zmm_k1z_zmm_zmmm512b64;
    MaxSQ ThreeCommuting _ _ _ EVEX_Vpmaxsq_xmm_k1z_xmm_xmmm128b64 EVEX_Vpmaxsq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpmaxsq_zmm_k1z_zmm_zmmm512b64;
    MinUQ ThreeCommuting _ _ _ EVEX_Vpminuq_xmm_k1z_xmm_xmmm128b64 EVEX_Vpminuq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpminuq_zmm_k1z_zmm_zmmm512b64;
    MaxUQ ThreeCommuting _ _ _ EVEX_Vpmaxuq_xmm_k1z_xmm_xmmm128b64 EVEX_Vpmaxuq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpmaxuq_zmm_k1z_zmm_zmmm512b64;
    SarVQ Three _ _ _ EVEX_Vpsravq_xmm_k1z_xmm_xmmm128b64 EVEX_Vpsravq_ymm_k1z_ymm_ymmm256b64 EVEX_Vpsravq_zmm_k1z_zmm_zmmm512b64;
    ShlVW Three _ _ _ EVEX_Vpsllvw_xmm_k1z_xmm_xmmm128 EVEX_Vpsllvw_ymm_k1z_ymm_ymmm256 EVEX_Vpsllvw_zmm_k1z_zmm_zmmm512;
    ShrVW Three _ _ _ EVEX_Vpsrlvw_xmm_k1z_xmm_xmmm128 EVEX_Vpsrlvw_ymm_k1z_ymm_ymmm256 EVEX_Vpsrlvw_zmm_k1z_zmm_zmmm512;
    SarVW Three _ _ _ EVEX_Vpsravw_xmm_k1z_xmm_xmmm128 EVEX_Vpsravw_ymm_k1z_ymm_ymmm256 EVEX_Vpsravw_zmm_k1z_zmm_zmmm512;
    SarQImm ShiftImm _ _ _ EVEX_Vpsraq_xmm_k1z_xmmm128b64_imm8 EVEX_Vpsraq_ymm_k1z_ymmm256b64_imm8 EVEX_Vpsraq_zmm_k1z_zmmm512b64_imm8;
    RolDImm ShiftImm _ _ _ EVEX_Vprold_xmm_k1z_xmmm128b32_imm8 EVEX_Vprold_ymm_k1z_ymmm256b32_imm8 EVEX_Vprold_zmm_k1z_zmmm512b32_imm8;
    RolQImm ShiftImm _ _ _ EVEX_Vprolq_xmm_k1z_xmmm128b64_imm8 EVEX_Vprolq_ymm_k1z_ymmm256b64_imm8 EVEX_Vprolq_zmm_k1z_zmmm512b64_imm8;
    NarrowWB Extract0 _ _ _ EVEX_Vpmovwb_xmmm64_k1z_xmm EVEX_Vpmovwb_xmmm128_k1z_ymm EVEX_Vpmovwb_ymmm256_k1z_zmm;
    NarrowDB Extract0 _ _ _ EVEX_Vpmovdb_xmmm32_k1z_xmm EVEX_Vpmovdb_xmmm64_k1z_ymm EVEX_Vpmovdb_xmmm128_k1z_zmm;
    NarrowQB Extract0 _ _ _ EVEX_Vpmovqb_xmmm16_k1z_xmm EVEX_Vpmovqb_xmmm32_k1z_ymm EVEX_Vpmovqb_xmmm64_k1z_zmm;
    NarrowDW Extract0 _ _ _ EVEX_Vpmovdw_xmmm64_k1z_xmm EVEX_Vpmovdw_xmmm128_k1z_ymm EVEX_Vpmovdw_ymmm256_k1z_zmm;
    NarrowQW Extract0 _ _ _ EVEX_Vpmovqw_xmmm32_k1z_xmm EVEX_Vpmovqw_xmmm64_k1z_ymm EVEX_Vpmovqw_xmmm128_k1z_zmm;
    NarrowQD Extract0 _ _ _ EVEX_Vpmovqd_xmmm64_k1z_xmm EVEX_Vpmovqd_xmmm128_k1z_ymm EVEX_Vpmovqd_ymmm256_k1z_zmm;
}
