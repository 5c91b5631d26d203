//! The matrix units of x86-64: dot products of words. Flows in: a level, and names of what machines of it may have
//! besides; flows out: rows of a target's units. Invariant: of units that do the same the faster one stands first.

use super::tiles;
use monoglot_uop::{DType, TcInfo};

/// What machines of a level may have besides: what it is called, and its units.
pub(crate) struct Extension {
    /// Its name, as the kernel of the system and compilers have it.
    pub(crate) name: &'static str,
    /// The level whose encodings it is in.
    arch: &'static str,
    units: fn() -> Vec<TcInfo>,
    here: fn() -> bool,
}

macro_rules! here {
    ($name:tt) => {
        || {
            #[cfg(target_arch = "x86_64")]
            return std::arch::is_x86_feature_detected!($name);
            #[cfg(not(target_arch = "x86_64"))]
            return false;
        }
    };
}

const EXTENSIONS: [Extension; 5] = [
    Extension {
        name: "amxbf16",
        arch: "x86-64-v4",
        units: tiles_of_floats,
        here: || tiles::are_here(tiles::BF16),
    },
    Extension {
        name: "amxint8",
        arch: "x86-64-v4",
        units: tiles_of_bytes,
        here: || tiles::are_here(tiles::INT8),
    },
    Extension {
        name: "avxvnni",
        arch: "x86-64-v3",
        units: integers,
        here: here!("avxvnni"),
    },
    Extension {
        name: "avx512vnni",
        arch: "x86-64-v4",
        units: integers,
        here: here!("avx512vnni"),
    },
    Extension {
        name: "avx512bf16",
        arch: "x86-64-v4",
        units: floats,
        here: here!("avx512bf16"),
    },
];

/// The extensions of a level.
pub(crate) fn extensions(arch: &str) -> impl Iterator<Item = &'static Extension> {
    EXTENSIONS.iter().filter(move |e| e.arch == arch)
}

impl Extension {
    /// Whether this machine has it.
    pub(crate) fn is_here(&self) -> bool {
        (self.here)()
    }
}

/// The units of machines with these extensions: theirs, and what every x86-64 has. Those with tiles of floats do words of them at
/// half the rate of f32: what is no product of tiles is one of f32 there.
pub(crate) fn units<'a>(with: impl IntoIterator<Item = &'a Extension>) -> Vec<TcInfo> {
    let mut with: Vec<&Extension> = with.into_iter().collect();
    if with.iter().any(|e| e.name == "amxbf16") {
        with.retain(|e| e.name != "avx512bf16");
    }
    with.sort_by_key(|e| EXTENSIONS.iter().position(|known| known.name == e.name));
    let theirs = with.into_iter().flat_map(|e| (e.units)());
    theirs.chain([pairs()]).collect()
}

/// One unit for each dot product that there is, whatever instruction does it, and those of tiles.
pub(crate) fn every() -> Vec<TcInfo> {
    let [bytes, _] = vnni();
    let dots = [pairs(), bytes].into_iter().chain(floats());
    dots.chain(tiles_of_floats())
        .chain(tiles_of_bytes())
        .collect()
}

/// Products of pairs of 16 bits: PMADDWD, and an addition. Products of bytes are such, too.
pub(crate) fn pairs() -> TcInfo {
    TcInfo::dot("pmaddwd", [DType::I16; 2], DType::I32)
}

/// Bytes without and with a sign, and pairs of 16 bits; sums wrap.
fn vnni() -> [TcInfo; 2] {
    [
        TcInfo::dot("vpdpbusd", [DType::U8, DType::I8], DType::I32),
        TcInfo::dot("vpdpwssd", [DType::I16; 2], DType::I32),
    ]
}

fn integers() -> Vec<TcInfo> {
    vnni().to_vec()
}

/// Pairs of bfloat16: each product is added with one rounding to nearest even, the upper one first; what is too small
/// to be normal is a zero, in operands and results.
fn floats() -> Vec<TcInfo> {
    vec![TcInfo::dot("vdpbf16ps", [DType::BF16; 2], DType::F32)]
}

/// Tiles of bf16: in a tile the sums of even and of odd terms, with one rounding each, stand apart until they are added;
/// what is too small to be normal is a zero.
fn tiles_of_floats() -> Vec<TcInfo> {
    vec![TcInfo::tiles("amxbf16", [DType::BF16; 2], DType::F32)]
}

/// Tiles of bytes with and without signs; sums wrap. Whichever factor has the rows may be either of two.
fn tiles_of_bytes() -> Vec<TcInfo> {
    let pairs = [
        [DType::I8, DType::I8],
        [DType::I8, DType::U8],
        [DType::U8, DType::U8],
    ];
    let unit = |of: [DType; 2]| TcInfo::tiles("amxint8", of, DType::I32);
    pairs.map(unit).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::open;
    use monoglot_uop::Device;

    #[test]
    fn a_level_has_the_units_that_its_name_tells() {
        let names = |device: &str| -> Vec<String> {
            let device = open(Device::new(device)).unwrap();
            let units = device.target().matrix_units.iter();
            units.map(|unit| unit.name.clone()).collect()
        };
        assert_eq!(names("NULL:X86:x86-64-v3"), ["pmaddwd"]);
        assert_eq!(
            names("NULL:X86:x86-64-v3+avxvnni"),
            ["vpdpbusd", "vpdpwssd", "pmaddwd"]
        );
        assert_eq!(
            names("NULL:X86:x86-64-v4+avx512bf16"),
            ["vdpbf16ps", "pmaddwd"]
        );
        assert_eq!(
            names("NULL:X86:x86-64-v4+avx512bf16+amxbf16"),
            ["amxbf16", "pmaddwd"]
        );
    }

    #[test]
    fn what_a_level_may_not_have_is_an_error() {
        for (name, why) in [
            ("NULL:X86:x86-64-v3+avx512vnni", "may have avxvnni"),
            ("NULL:X86:x86-64-v2+avxvnni", "has no extensions"),
        ] {
            let error = open(Device::new(name)).err().unwrap().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn units_are_sound_and_one_stands_for_all_that_do_the_same() {
        let all: Vec<TcInfo> = EXTENSIONS.iter().flat_map(|e| (e.units)()).collect();
        for unit in all.iter().chain(&[pairs()]) {
            assert!(unit.is_sound() && unit.word().is_some(), "{}", unit.name);
            let does = |u: &TcInfo| (u.dtypes_in, u.tile());
            let same = |other: &&TcInfo| does(other) == does(unit);
            assert_eq!(every().iter().filter(same).count(), 1, "{}", unit.name);
        }
    }
}
