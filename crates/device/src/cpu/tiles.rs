//! Registers of tiles (Intel AMX). Flows in: which products; flows out: whether this machine has them, and the system
//! lets this process use them. Invariant: the system is asked once; where it has not agreed, no code that needs them
//! is run.

/// CPUID leaf 7, EDX: products of bf16, and of bytes.
pub(super) const BF16: u32 = 1 << 22;
pub(super) const INT8: u32 = 1 << 25;

/// Whether products of tiles are here.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(super) fn are_here(product: u32) -> bool {
    use std::arch::x86_64::{__cpuid_count, __get_cpuid_max};
    use std::sync::LazyLock;
    /// CPUID leaf 7, EDX: tiles; `arch_prctl`'s request for a component of the state, and tiles' number.
    const TILES: u32 = 1 << 24;
    const REQUEST: i32 = 0x1023;
    const COMPONENT: u64 = 18;
    static FEATURES: LazyLock<u32> = LazyLock::new(|| {
        if __get_cpuid_max(0).0 < 7 {
            return 0;
        }
        let features = __cpuid_count(7, 0).edx;
        if features & TILES == 0 {
            return 0;
        }
        // SAFETY: it grants this process registers, and touches no memory.
        let granted = unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, COMPONENT) };
        if granted == 0 { features } else { 0 }
    });
    *FEATURES & product != 0
}

/// Whether products of tiles are here.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(super) fn are_here(_product: u32) -> bool {
    false
}
