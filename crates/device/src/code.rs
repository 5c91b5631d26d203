//! What launches of compiled kernels take, as bytes beside their code, so that kernels can be had again
//! without the programs that they were compiled from. Flows in: programs and where their code lies; flows
//! out: bytes, and from these the same.
//!
//! Invariant: bytes are read within their bounds, whatever they are. That they say what is true of the code is
//! for whoever trusts them (`folder::TrustedCode`).

use crate::kernel::{Need, Signature, program_parts};
use monoglot_uop::linear::phase_count;
use monoglot_uop::{Error, ErrorKind, Program, ProgramInfo, Result};
use std::sync::Arc;

/// Kernels as the bytes of two files.
pub struct Packed {
    /// What launches of them take.
    pub launches: Vec<u8>,
    /// Their code.
    pub object: Vec<u8>,
}

/// What is known of a kernel besides its code.
pub(crate) struct Launch {
    pub(crate) info: Arc<ProgramInfo>,
    pub(crate) signature: Signature,
    /// Jobs of all threads, one after the other.
    pub(crate) phases: usize,
    /// Bytes of storage of its own that each thread lends it.
    pub(crate) own: usize,
    /// Where its code begins in the object, or what stands for it there.
    pub(crate) at: u128,
    /// Bytes of the code, where it has a place.
    pub(crate) bytes: usize,
}

/// What the bytes begin with: what they are, and the form that they have.
const MAGIC: &[u8; 16] = b"monoglot code 1\n";

impl Launch {
    /// That of a program whose code lies there.
    ///
    /// # Errors
    /// `Verify` where it is no program.
    pub(crate) fn of(program: &Program, own: usize, at: u128, bytes: usize) -> Result<Launch> {
        let (linear, info) = program_parts(program)?;
        Ok(Launch {
            info: info.clone(),
            signature: Signature::of(linear, info),
            phases: phase_count(linear),
            own,
            at,
            bytes,
        })
    }

    fn write(&self, out: &mut Writer) {
        let info = &*self.info;
        out.text(&info.name);
        out.text(&info.target);
        let sizes = info.global_size.iter().chain(&info.local_size);
        sizes.for_each(|&n| out.word(n as u64));
        out.word(info.threads as u64);
        for slots in [&info.outs, &info.ins, &info.vars] {
            out.list(slots, |out, &slot| out.word(slot as u64));
        }
        out.word(info.flops);
        out.word(info.bytes);
        out.list(self.signature.needs(), |out, need| {
            out.word(need.slot as u64);
            out.word(need.bytes as u64);
            out.word(need.align as u64);
            out.word(u64::from(need.writes));
        });
        out.list(self.signature.bounds(), |out, bounds| {
            let (least, most) = bounds.unwrap_or_default();
            out.word(u64::from(bounds.is_some()));
            out.word(least as u64);
            out.word(most as u64);
        });
        out.word(self.phases as u64);
        out.word(self.own as u64);
        out.word(self.at as u64);
        out.word((self.at >> 64) as u64);
        out.word(self.bytes as u64);
    }

    fn read(from: &mut Reader) -> Option<Launch> {
        let name = from.text()?;
        let target = from.text()?;
        let mut sizes = [0; 6];
        for size in &mut sizes {
            *size = from.word()? as i64;
        }
        let [x, y, z, u, v, w] = sizes;
        let info = ProgramInfo {
            name: name.clone(),
            target,
            global_size: [x, y, z],
            local_size: [u, v, w],
            threads: from.word()? as i64,
            outs: from.list(Reader::size)?,
            ins: from.list(Reader::size)?,
            vars: from.list(Reader::size)?,
            flops: from.word()?,
            bytes: from.word()?,
        };
        let needs = from.list(|from| {
            Some(Need {
                slot: from.size()?,
                bytes: from.size()?,
                align: from.size()?.max(1),
                writes: from.word()? != 0,
            })
        })?;
        let vars = from.list(|from| {
            let bounded = from.word()? != 0;
            let least = from.word()? as i64;
            let most = from.word()? as i64;
            Some(bounded.then_some((least, most)))
        })?;
        Some(Launch {
            info: Arc::new(info),
            signature: Signature::from_parts(name, needs, vars),
            phases: from.size()?,
            own: from.size()?,
            at: u128::from(from.word()?) | u128::from(from.word()?) << 64,
            bytes: from.size()?,
        })
    }
}

/// Launches as bytes.
pub(crate) fn written(launches: &[Launch]) -> Vec<u8> {
    let mut out = Writer(MAGIC.to_vec());
    out.list(launches, |out, launch| launch.write(out));
    out.0
}

/// Launches that were written as bytes.
///
/// # Errors
/// `Format` where the bytes are of something else.
pub(crate) fn launches(bytes: &[u8]) -> Result<Vec<Launch>> {
    let read = || {
        let mut from = Reader(bytes.strip_prefix(MAGIC)?);
        let all = from.list(Launch::read)?;
        from.0.is_empty().then_some(all)
    };
    read().ok_or_else(unknown)
}

/// The error of bytes that are no launches, or that name code which is not there.
pub(crate) fn unknown() -> Error {
    let what = "saved code".into();
    let message = "is of another form than this version writes".into();
    ErrorKind::Format { what, message }.into()
}

struct Writer(Vec<u8>);

impl Writer {
    fn word(&mut self, word: u64) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn list<T>(&mut self, all: &[T], each: impl Fn(&mut Writer, &T)) {
        self.word(all.len() as u64);
        all.iter().for_each(|one| each(self, one));
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn size(&mut self) -> Option<usize> {
        usize::try_from(self.word()?).ok()
    }

    fn text(&mut self) -> Option<String> {
        let length = self.size()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    /// No list is longer than there are bytes for.
    fn list<T>(&mut self, each: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.size().filter(|&n| n <= self.0.len() / 8)?;
        (0..count).map(|_| each(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch() -> Launch {
        let needs = vec![Need {
            slot: 3,
            bytes: 4096,
            align: 4,
            writes: true,
        }];
        Launch {
            info: Arc::new(ProgramInfo {
                name: "E_4".into(),
                target: "CPU".into(),
                global_size: [1, 2, 3],
                local_size: [4, 5, 6],
                threads: 7,
                outs: vec![3],
                ins: vec![],
                vars: vec![1],
                flops: 9,
                bytes: 10,
            }),
            signature: Signature::from_parts("E_4".into(), needs, vec![Some((-1, 8)), None]),
            phases: 2,
            own: 64,
            at: 5 << 70,
            bytes: 11,
        }
    }

    #[test]
    fn launches_come_back() {
        let bytes = written(&[launch(), launch()]);
        let back = launches(&bytes).unwrap();
        assert_eq!(back.len(), 2);
        let was = launch();
        let is = &back[1];
        assert_eq!(is.info, was.info);
        assert_eq!(is.signature.needs(), was.signature.needs());
        assert_eq!(is.signature.bounds(), was.signature.bounds());
        assert_eq!((is.phases, is.own, is.at, is.bytes), (2, 64, 5 << 70, 11));
    }

    #[test]
    fn other_bytes_are_an_error() {
        let bytes = written(&[launch()]);
        for n in 0..bytes.len() {
            assert!(launches(&bytes[..n]).is_err(), "{n} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(launches(&longer).is_err());
        let mut huge = bytes.clone();
        huge[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(launches(&huge).is_err());
    }
}
