//! Accesses to storage, decoded: loads and stores by width, index type and gate; elements of REG
//! storage at known places are copies between registers; LOCAL storage is watched for races. Flows
//! in: a LOAD or STORE; flows out: the instructions that do it. Invariant: each checks its place
//! against its buffer when it runs, where it was not checked here.

use super::atomic::adds;
use super::decode::{Decoder, unsupported};
use super::memory::{Gate, accesses, copies, touch};
use super::ops::arithmetic;
use monoglot_uop::linear::{Address, address, lanes};
use monoglot_uop::{AddrSpace, DType, ErrorKind, Op, Result, Scalar, UOp};

impl<'a> Decoder<'a> {
    fn buffer(&self, b: &UOp) -> Result<u32> {
        self.buf_of.get(b).copied().ok_or_else(|| {
            ErrorKind::Verify {
                stage: "linear".into(),
                message: format!("{b:?} does not stand in the list"),
            }
            .into()
        })
    }

    /// Where an element of a buffer in registers is, when its index is known.
    fn known(&self, buf: u32, a: &Address) -> Option<u32> {
        let b = &self.out.bufs[buf as usize];
        let index = a.index.as_int()?;
        let n = a.lanes.max(1) as i64;
        let i = if a.rows() {
            index * a.lanes as i64
        } else {
            index
        };
        let inside = i >= 0 && (i + n) as u64 <= b.len;
        (b.space == AddrSpace::Reg && inside).then(|| b.offset + i as u32 * b.dtype.bytes() as u32)
    }

    /// A LOAD or a STORE.
    pub(super) fn access(&mut self, u: &'a UOp) -> Result<()> {
        let Some(a) = address(&u.src()[0]) else {
            return Err(unsupported(u));
        };
        let write = u.op() == Op::Store;
        let n = a.lanes;
        let d = a.buffer.dtype();
        let buf = self.buffer(a.buffer)?;
        if d == DType::Bool && self.out.bufs[buf as usize].space != AddrSpace::Reg {
            // Bytes of a user's file may be other than 0 and 1.
            return Err(unsupported(u));
        }
        let bytes = n.max(1) * d.bytes();
        // What is stored, or stands for what is not loaded.
        let value = u.src().get(1).map_or(Ok(0), |v| self.operand(v, n))?;
        let dst = if write { 0 } else { self.result(u, bytes) };
        if let (None, Some(at)) = (u.src().get(2), self.known(buf, &a)) {
            let (to, from) = if write { (at, value) } else { (dst, at) };
            self.emit(copies(bytes), to, [from, 0, 0], 0, bytes as u32);
            return Ok(());
        }
        let (at, index) = self.index(&a)?;
        let (gate, g) = self.gate(u)?;
        let regs = [at, g, value];
        self.watch(buf, regs, index, gate, n, write);
        let run = if write {
            accesses::<true>
        } else {
            accesses::<false>
        };
        self.emit(run(d.bytes(), index, gate), dst, regs, n, buf);
        Ok(())
    }

    /// An ATOMICADD of one element.
    pub(super) fn atomic(&mut self, u: &'a UOp) -> Result<()> {
        let a = address(&u.src()[0]).filter(|a| a.lanes == 0);
        let Some(a) = a else {
            return Err(unsupported(u));
        };
        let buf = self.buffer(a.buffer)?;
        let value = self.operand(&u.src()[1], 0)?;
        let (at, index) = self.index(&a)?;
        let (gate, g) = self.gate(u)?;
        let run = adds(a.buffer.dtype(), index, gate != Gate::None);
        let run = run
            .filter(|_| gate != Gate::Lanes)
            .ok_or_else(|| unsupported(u))?;
        self.watch(buf, [at, g, value], index, gate, 0, true);
        self.emit(run, 0, [at, g, value], 0, buf);
        Ok(())
    }

    /// The gate of an access, and its register.
    fn gate(&mut self, u: &UOp) -> Result<(Gate, u32)> {
        let Some(g) = u.src().get(2) else {
            return Ok((Gate::None, 0));
        };
        Ok((
            if lanes(g) > 0 {
                Gate::Lanes
            } else {
                Gate::Scalar
            },
            self.operand(g, 0)?,
        ))
    }

    /// The register of an index; of a buffer of vectors, of the first lane's element.
    fn index(&mut self, a: &Address) -> Result<(u32, DType)> {
        let at = self.operand(a.index, 0)?;
        let d = a.index.dtype();
        if !a.rows() {
            return Ok((at, d));
        }
        let width = self.constant(Scalar::Int(a.lanes as i128), d, 0);
        let dst = self.fresh(8);
        let times = arithmetic(Op::Mul, d).ok_or_else(|| unsupported(a.index))?;
        self.pair(times, dst, [at, width, 0], 1, 0);
        Ok((dst, d))
    }

    /// Note an access to LOCAL memory before it happens.
    fn watch(&mut self, buf: u32, regs: [u32; 3], index: DType, gate: Gate, n: usize, write: bool) {
        if !self.groups || self.out.bufs[buf as usize].space != AddrSpace::Local {
            return;
        }
        let flags = [
            write,
            index.bytes() == 8,
            gate != Gate::None,
            gate == Gate::Lanes,
        ];
        let flags = flags
            .iter()
            .rev()
            .fold(0, |bits, &flag| bits << 1 | flag as u32);
        self.emit(touch, 0, [regs[0], regs[1], flags], n, buf);
    }
}
