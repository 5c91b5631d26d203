//! What a program says of itself. Flows in: the optimised kernel and its linear program; flows out:
//! name, sizes of the launch, which PARAMs are written and read, and estimates of work. Estimates
//! count each arithmetic op on data once for every iteration of the loops on which it depends, and
//! each buffer's elements at most once.

use monoglot_uop::linear::address;
use monoglot_uop::{Arg, AxisType, DType, Op, ProgramInfo, Target, UOp};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Letters of a user's name of a kernel that its function has in its own.
const NAME: usize = 16;

/// The record of a program.
pub(crate) fn describe(kernel: &UOp, linear: &UOp, target: &Target) -> ProgramInfo {
    let mut info = ProgramInfo {
        global_size: [1; 3],
        local_size: [1; 3],
        threads: 1,
        ..Default::default()
    };
    let written = target.dialect.name();
    info.target = format!("{}:{written}:{}", target.device, target.arch);
    for u in linear.src() {
        match (u.op(), u.arg()) {
            (Op::Special, Arg::Text(name)) => {
                let n = u.src()[0].as_int().unwrap_or(1);
                let axis = name
                    .as_bytes()
                    .last()
                    .map_or(0, |c| (c.wrapping_sub(b'0') % 3) as usize);
                match &name[..name.len() - 1] {
                    "gidx" => info.global_size[axis] = n,
                    "lidx" => info.local_size[axis] = n,
                    _ => info.threads = n,
                }
            }
            (Op::Load | Op::Store | Op::AtomicAdd, _) => {
                let storage = address(&u.src()[0])
                    .map(|a| a.buffer)
                    .filter(|s| s.op() == Op::Param);
                let list = if u.op() == Op::Load {
                    &mut info.ins
                } else {
                    &mut info.outs
                };
                list.extend(storage.and_then(UOp::buffer_arg).map(|b| b.slot as usize));
            }
            _ => {}
        }
    }
    // Arguments that simplification left unused are passed all the same.
    for p in kernel.nodes().into_iter().filter(|u| u.op() == Op::Param) {
        let Some(b) = p.buffer_arg() else { continue };
        let slot = b.slot as usize;
        match b.addrspace {
            None => info.vars.push(slot),
            Some(_) if !info.outs.contains(&slot) => info.ins.push(slot),
            Some(_) => {}
        }
    }
    for list in [&mut info.vars, &mut info.outs, &mut info.ins] {
        list.sort_unstable();
        list.dedup();
    }
    estimate(kernel, &mut info);
    info
}

/// The name, from the kernel's axes, and work.
fn estimate(kernel: &UOp, info: &mut ProgramInfo) {
    let topo = kernel.toposort();
    let mut ranges: Vec<&UOp> = topo.iter().filter(|u| u.op() == Op::Range).collect();
    ranges.sort_by_key(|r| r.range_arg().map(|(id, t)| (t, id)));
    let reduces = ranges
        .iter()
        .any(|r| r.range_arg().is_some_and(|(_, t)| t.is_reduce()));
    info.name.push(if reduces { 'r' } else { 'E' });
    for r in ranges.iter().take(12) {
        let kind = r.range_arg().map_or(AxisType::Loop, |(_, t)| t);
        let _ = write!(info.name, "_{}", r.vmax() + 1);
        info.name.extend(
            Some(kind.letter()).filter(|_| !matches!(kind, AxisType::Loop | AxisType::Reduce)),
        );
    }
    let _ = write!(info.name, "_{:04x}", kernel.structural_hash() >> 48);
    if let Arg::Kernel(own) = kernel.arg()
        && !own.name.is_empty()
    {
        // A user's name may be of any letters; those of a function are few.
        let letters = own.name.chars().filter(char::is_ascii_alphanumeric);
        info.name.push('_');
        info.name.extend(letters.take(NAME));
    }
    let mut flops: f64 = 0.0;
    for u in &topo {
        match u.op() {
            // Of a choice that is known, what is chosen at one place after the other is folded once.
            Op::Reduce if is_known(&u.src()[0]) => flops += trips(u),
            // A matrix unit adds what it multiplies.
            Op::Reduce if u.src()[0].op() == Op::Wmma => {}
            Op::Reduce => flops += trips(&u.src()[0]),
            Op::Wmma => {
                if let Arg::Wmma(w) = u.arg() {
                    let products = match w.word() {
                        Some(_) => w.depth(),
                        None => w.dims.iter().product::<i64>() / w.threads,
                    };
                    flops += trips(u) * 2.0 * products as f64;
                }
            }
            op if op.is_elementwise()
                && !matches!(op, Op::Cast | Op::Where)
                && u.src()[0].dtype() != DType::Index
                && u.dtype() != DType::Bool =>
            {
                flops += trips(u) * if op == Op::MulAcc { 2.0 } else { 1.0 };
            }
            _ => {}
        }
    }
    info.flops = flops as u64;
    info.bytes = moved(kernel);
}

/// Whether a value is a choice at places that expand.
fn is_known(u: &UOp) -> bool {
    let expands = |r: &UOp| {
        matches!(
            r.range_arg(),
            Some((_, AxisType::Upcast | AxisType::Unroll))
        )
    };
    u.op() == Op::Where && u.src()[0].ranges().iter().all(expands)
}

/// How often the loops of a value turn.
fn trips(u: &UOp) -> f64 {
    let extent = |r: &UOp| r.vmax() as f64 + 1.0;
    u.ranges().iter().map(extent).product()
}

/// The bytes that a kernel of scalars has to move.
pub(crate) fn moved(kernel: &UOp) -> u64 {
    // By slot of the PARAM.
    let mut bytes: BTreeMap<u64, f64> = BTreeMap::new();
    for u in kernel.toposort() {
        let storage = match u.op() {
            Op::Index => &u.src()[0],
            _ => continue,
        };
        let Some(b) = storage.buffer_arg().filter(|b| b.addrspace.is_some()) else {
            continue;
        };
        if storage.op() == Op::Param {
            let most = storage.shape().max_len() as f64;
            let moved = trips(&u).min(most) * b.dtype.bytes() as f64;
            let seen = bytes.entry(b.slot).or_default();
            *seen = seen.max(moved);
        }
    }
    bytes.values().sum::<f64>() as u64
}
