//! Products of tiles (Intel AMX) of x86-64. Flows in: rounds; flows out: nothing but the time that they take.
//!
//! Invariant: none is run where the processor has them not, or the system has not agreed to this process's use of
//! their registers.

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, __get_cpuid_max};
use std::sync::LazyLock;

/// Products of a round: as many as there are sums.
const SUMS: usize = 4;
/// Rows and columns of a tile, and bytes of its terms.
const SIZE: usize = 16;
const ROW: usize = 64;

/// CPUID leaf 7, EDX: tiles, their products of bf16 and of bytes.
const TILES: u32 = 1 << 24;
const BF16: u32 = 1 << 22;
const INT8: u32 = 1 << 25;

/// What tiles hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of {
    Bf16,
    I8,
}

/// Whether their products are here.
pub(crate) fn are_here(of: Of) -> bool {
    static FEATURES: LazyLock<u32> = LazyLock::new(|| {
        let known = __get_cpuid_max(0).0 >= 7;
        let features = if known { __cpuid_count(7, 0).edx } else { 0 };
        match features & TILES != 0 && granted() {
            true => features,
            false => 0,
        }
    });
    let product = match of {
        Of::Bf16 => BF16,
        Of::I8 => INT8,
    };
    *FEATURES & product != 0
}

/// Whether the system lets this process use the registers: `arch_prctl(ARCH_REQ_XCOMP_PERM, 18)`.
#[cfg(target_os = "linux")]
fn granted() -> bool {
    let result: i64;
    // SAFETY: it touches no memory; the two registers are those that a call of the system changes.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") 158i64 => result,
            in("rdi") 0x1023,
            in("rsi") 18,
            out("rcx") _,
            out("r11") _,
        );
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn granted() -> bool {
    false
}

/// Operations of a round.
pub(crate) fn operations(of: Of) -> f64 {
    let terms = match of {
        Of::Bf16 => ROW / 2,
        Of::I8 => ROW,
    };
    (2 * SUMS * SIZE * SIZE * terms) as f64
}

/// Products of tiles in registers.
///
/// # Safety
/// They are here.
pub(crate) unsafe fn compute(of: Of, rounds: usize) {
    let mut configuration = [0u8; 64];
    configuration[0] = 1;
    for tile in 0..8 {
        configuration[16 + 2 * tile] = ROW as u8;
        configuration[48 + tile] = SIZE as u8;
    }
    let ones = [1u8; SIZE * ROW];
    // SAFETY: the caller's promise; what is read is as long as tiles are, and no register of tiles is the compiler's.
    unsafe {
        asm!(
            "ldtilecfg [{configuration}]",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "tileloadd tmm4, [{ones} + {row}]",
            "tileloadd tmm5, [{ones} + {row}]",
            "tileloadd tmm6, [{ones} + {row}]",
            "tileloadd tmm7, [{ones} + {row}]",
            configuration = in(reg) configuration.as_ptr(),
            ones = in(reg) ones.as_ptr(),
            row = in(reg) ROW,
        );
        for _ in 0..rounds {
            match of {
                Of::Bf16 => asm!(
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                ),
                Of::I8 => asm!(
                    "tdpbusd tmm0, tmm4, tmm6",
                    "tdpbusd tmm1, tmm4, tmm7",
                    "tdpbusd tmm2, tmm5, tmm6",
                    "tdpbusd tmm3, tmm5, tmm7",
                ),
            }
        }
        asm!("tilerelease");
    }
}
