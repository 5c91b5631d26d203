//! Random linear programs. Flows in: a seed; flows out: a program that the verifier takes.

use super::maker::{Made, Maker};
use super::{INTEGERS, Rules, WIDTHS};
use monoglot_uop::{Arg, DType, Op, UOp};

/// Most turns of all loops around an instruction.
const TURNS: i64 = 600;

/// The program of a seed.
pub fn program(seed: u64, rules: Rules) -> Made {
    let mut m = Maker::new(seed, rules);
    // By seed: how many instructions, how many buffers, whether threads wait for each other.
    let size = [12, 30, 60, 120, 250][m.dice.roll(5) as usize];
    let many = m.dice.roll(10) == 0;
    let phases = m.dice.roll(12) == 0;
    for _ in 0..2 + m.dice.roll(if many { 14 } else { 4 }) {
        m.add_param();
    }
    for _ in 0..m.dice.roll(4) {
        m.add_variable();
    }
    if phases {
        let one = m.int(1, DType::I32);
        let tid = m.first(UOp::new(Op::Special, vec![one], Arg::Text("tid".into())));
        m.offer(&tid);
    }
    for _ in 0..m.dice.roll(4) {
        m.add_scratch();
    }
    for b in m.buffers.clone() {
        for n in [0, 4, 8] {
            if m.dice.roll(2) == 0 {
                m.load_any(b.dtype(), n);
            }
        }
    }
    let mut tries = 0;
    while m.len() < size && tries < 20 * size {
        tries += 1;
        if phases && tries % 97 == 0 {
            m.barrier();
        }
        step(&mut m);
    }
    while m.depth() > 0 {
        m.close();
    }
    show(&mut m);
    m.finish(seed)
}

/// One instruction more, or a few; or none, where it did not fit.
fn step(m: &mut Maker) {
    match m.dice.roll(100) {
        0..46 => _ = m.elementwise(),
        46..58 => _ = m.load(),
        58..68 => _ = m.store(),
        68..76 => _ = m.shuffle(),
        76..80 => {
            let d = m.dtype();
            let n = *m.dice.pick(&WIDTHS);
            _ = m.stacked(d, n);
        }
        80..86 => _ = m.accumulate(),
        86..92 => begin(m),
        92..96 => m.close(),
        96..97 if m.depth() == 0 => _ = m.add_scratch(),
        97..98 => _ = m.prefetch(),
        98..100 => pressure(m),
        _ => {}
    }
}

/// A loop or a condition.
fn begin(m: &mut Maker) {
    if m.depth() > 4 {
        return;
    }
    if m.dice.roll(3) == 0 {
        let gate = m.any(DType::Bool, 0);
        if gate.op() != Op::Const {
            m.open_if(&gate);
        }
        return;
    }
    let d = [DType::I32, DType::I32, DType::I64][m.dice.roll(3) as usize];
    let most = (TURNS / m.turns()).min(12);
    if most < 2 {
        return;
    }
    let counters = m.counters();
    let small: Vec<UOp> = (m.values(d, 0).into_iter())
        .chain(counters)
        .filter(|u| u.dtype() == d && u.vmin() >= -8 && u.vmax() <= 12)
        .collect();
    let some = |m: &mut Maker, from: i64, to: i64| {
        if !small.is_empty() && m.dice.roll(3) == 0 {
            return m.dice.pick(&small).clone();
        }
        let v = from + m.dice.roll((to - from + 1) as u64) as i64;
        m.int(v, d)
    };
    let end = some(m, 0, most);
    let first = match m.dice.roll(3) {
        0 => Some(some(m, -3, 3)),
        _ => None,
    };
    let turns = end.vmax() - first.as_ref().map_or(0, |f| f.vmin());
    if turns <= most + 3 {
        m.open_loop(&end, first.as_ref());
    }
}

/// Many values at once, each of which is used after all have been made.
fn pressure(m: &mut Maker) {
    let d = m.dtype();
    let n = m.width();
    let count = 20 + m.dice.roll(40);
    let mut live: Vec<UOp> = Vec::new();
    for _ in 0..count {
        let new = match m.dice.roll(3) {
            0 => m.load_any(d, n),
            1 => {
                let a = m.any(d, n);
                let b = m.any(d, n);
                mixed(m, a, b)
            }
            _ => {
                let a = m.any(d, n);
                let b = live.last().cloned().unwrap_or_else(|| a.clone());
                mixed(m, a, b)
            }
        };
        live.extend(new.filter(|u| !live.contains(u)));
    }
    if m.dice.roll(2) == 0 {
        live.reverse();
    }
    let mut all: Option<UOp> = None;
    for u in live {
        all = match all {
            None => Some(u),
            Some(a) => mixed(m, a, u),
        };
    }
}

/// Something of two values that shows both.
fn mixed(m: &mut Maker, a: UOp, b: UOp) -> Option<UOp> {
    let d = a.dtype();
    let ops = [Op::Add, Op::Sub, Op::Xor, Op::Mul];
    let op = match d.is_float() {
        true if m.contracts => return m.greatest(&[a, b]),
        true => *m.dice.pick(&ops[..2]),
        false => *m.dice.pick(&ops),
    };
    m.value(op, &[a, b], Arg::None)
}

/// Store what is there at the end, and what the program's own storage holds, in storage of their own.
fn show(m: &mut Maker) {
    for b in m.buffers.clone().iter().filter(|b| b.op() == Op::Buffer) {
        let n = b.shape().get(1).map_or(0, |w| w.max() as usize);
        let rows = b.shape()[0].max();
        let show = |m: &mut Maker, at: &UOp| -> Option<()> {
            let named = m.named(b)?;
            let address = m.put(Op::Index, &[named, at.clone()], Arg::None)?;
            let value = m.put(Op::Load, &[address], Arg::None)?;
            keep(m, value, n, at, rows)
        };
        let end = m.int(rows, DType::I32);
        if rows > 1
            && let Some(r) = m.open_loop(&end, None)
        {
            show(m, &r);
            m.close();
        } else {
            let zero = m.int(0, DType::I32);
            show(m, &zero);
        }
    }
    let all = m.all();
    let zero = m.int(0, DType::I32);
    for u in all.into_iter().rev().take(24) {
        let n = monoglot_uop::linear::lanes(&u);
        keep(m, u, n, &zero, 1);
    }
}

/// Store a value in an argument of its own, at a row.
fn keep(m: &mut Maker, value: UOp, n: usize, row: &UOp, rows: i64) -> Option<()> {
    let mut value = value;
    if value.dtype() == DType::Bool {
        let to = *m.dice.pick(&INTEGERS);
        value = m.put(Op::Cast, &[value], Arg::DType(to))?;
    }
    let width = n.max(1) as i64;
    let p = m.param(value.dtype(), width * rows);
    let size = m.int(width, DType::I32);
    let at = match n {
        0 => row.clone(),
        _ if row.op() == Op::Const => row.clone(),
        _ => m.put(Op::Mul, &[row.clone(), size], Arg::None)?,
    };
    let address = if n == 0 {
        m.put(Op::Index, &[p, at], Arg::None)?
    } else {
        let list = |v: UOp| UOp::new(Op::Stack, vec![v], Arg::None);
        let src = [p, list(at), list(UOp::int(width, DType::I32))];
        m.put(Op::Shrink, &src, Arg::None)?
    };
    m.put(Op::Store, &[address, value], Arg::None)?;
    Some(())
}
