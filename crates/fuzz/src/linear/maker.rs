//! A list of instructions while it is made. Flows in: instructions, one by one; flows out: a LINEAR and its
//! record. Invariant: an instruction stands once, after its operands, and its value is used only while the loop or
//! condition that it was made in is open.

use super::Rules;
use crate::program::Dice;
use monoglot_uop::linear::{address, lanes};
use monoglot_uop::{AddrSpace, Arg, AxisType, BufferArg, DType, Op, ProgramInfo, Shape, UOp};
use rustc_hash::FxHashMap;

/// A program and what runs it.
#[derive(Clone, Debug)]
pub struct Made {
    /// A LINEAR.
    pub linear: UOp,
    /// Its record.
    pub info: ProgramInfo,
}

/// An open loop or condition.
struct Scope {
    /// RANGE or IF; None is the program.
    begin: Option<UOp>,
    number: usize,
    /// Values that were made in it.
    values: Vec<UOp>,
    /// How often its body runs at most, all loops around it counted.
    turns: i64,
}

/// See above.
pub(super) struct Maker {
    pub(super) dice: Dice,
    pub(super) rules: Rules,
    /// Products of floats may be contracted; then nothing is added to floats.
    pub(super) contracts: bool,
    /// What needs no place of its own: constants, arguments, storage.
    head: Vec<UOp>,
    list: Vec<UOp>,
    /// The scope of each instruction.
    placed: FxHashMap<UOp, usize>,
    is_open: Vec<bool>,
    scopes: Vec<Scope>,
    /// Storage that may be read and written.
    pub(super) buffers: Vec<UOp>,
    /// The value that was taken last.
    pub(super) latest: Option<UOp>,
    /// The last instruction that changed the order of things.
    order: Option<UOp>,
    /// What stands for an effect where there is none.
    nothing: UOp,
    slots: u64,
    ranges: u32,
}

impl Maker {
    pub(super) fn new(seed: u64, rules: Rules) -> Maker {
        let mut dice = Dice::new(seed ^ 0x11ea_0000_0000_0000);
        let contracts = dice.roll(4) == 0;
        let mut m = Maker {
            dice,
            rules,
            contracts,
            head: Vec::new(),
            list: Vec::new(),
            placed: FxHashMap::default(),
            is_open: vec![true],
            scopes: vec![Scope {
                begin: None,
                number: 0,
                values: Vec::new(),
                turns: 1,
            }],
            buffers: Vec::new(),
            latest: None,
            order: None,
            nothing: UOp::new(Op::Group, vec![], Arg::None),
            slots: 0,
            ranges: 0,
        };
        let nothing = m.nothing.clone();
        m.first(nothing);
        m
    }

    /// An instruction at the beginning of the program.
    pub(super) fn first(&mut self, u: UOp) -> UOp {
        if self.placed.insert(u.clone(), 0).is_none() {
            self.head.push(u.clone());
        }
        u
    }

    /// A CONST.
    pub(super) fn constant(&mut self, u: UOp) -> UOp {
        self.first(u)
    }

    pub(super) fn int(&mut self, v: i64, d: DType) -> UOp {
        self.first(UOp::int(v, d))
    }

    /// An instruction here; None where it stands in a scope that is closed, or is none.
    pub(super) fn put(&mut self, op: Op, src: &[UOp], arg: Arg) -> Option<UOp> {
        let u = UOp::try_new(op, src.to_vec(), arg).ok()?;
        if op == Op::Stack && src.iter().all(|s| s.op() == Op::Const) {
            return Some(self.first(u));
        }
        self.place(u)
    }

    /// The same of a node.
    pub(super) fn place(&mut self, u: UOp) -> Option<UOp> {
        if let Some(&scope) = self.placed.get(&u) {
            return self.is_open[scope].then_some(u);
        }
        let number = self.innermost().number;
        self.placed.insert(u.clone(), number);
        self.list.push(u.clone());
        let control = matches!(
            u.op(),
            Op::Store | Op::Range | Op::End | Op::If | Op::EndIf | Op::Barrier
        );
        if control {
            self.order = Some(u.clone());
        }
        Some(u)
    }

    /// A value that others may use.
    pub(super) fn value(&mut self, op: Op, src: &[UOp], arg: Arg) -> Option<UOp> {
        let u = self.put(op, src, arg)?;
        self.offer(&u);
        Some(u)
    }

    /// Let others use a value.
    pub(super) fn offer(&mut self, u: &UOp) {
        if !self.scopes.iter().any(|s| s.values.contains(u)) {
            self.innermost().values.push(u.clone());
        }
    }

    fn innermost(&mut self) -> &mut Scope {
        self.scopes
            .last_mut()
            .expect("the program itself stays open")
    }

    /// Values of a dtype and so many lanes (0: scalars), the newest last.
    pub(super) fn values(&self, d: DType, n: usize) -> Vec<UOp> {
        let all = self.scopes.iter().flat_map(|s| &s.values);
        let fits = |u: &&UOp| u.dtype() == d && lanes(u) == n;
        all.filter(fits).cloned().collect()
    }

    /// All values.
    pub(super) fn all(&self) -> Vec<UOp> {
        let all = self.scopes.iter().flat_map(|s| &s.values);
        all.cloned().collect()
    }

    /// How deep the innermost scope is.
    pub(super) fn depth(&self) -> usize {
        self.scopes.len() - 1
    }

    /// How many instructions there are.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// How often what is put here runs at most.
    pub(super) fn turns(&self) -> i64 {
        self.scopes.last().map_or(1, |s| s.turns)
    }

    /// The counters of open loops.
    pub(super) fn counters(&self) -> Vec<UOp> {
        let open = self.scopes.iter().filter_map(|s| s.begin.as_ref());
        open.filter(|u| u.op() == Op::Range).cloned().collect()
    }

    /// A RANGE, open.
    pub(super) fn open_loop(&mut self, end: &UOp, first: Option<&UOp>) -> Option<UOp> {
        let arg = Arg::Range(self.ranges, AxisType::Loop);
        self.ranges += 1;
        let src: Vec<UOp> = [Some(end), first].into_iter().flatten().cloned().collect();
        let range = UOp::try_new(Op::Range, src, arg).ok()?;
        let most = range.vmax() - range.vmin() + 1;
        self.open(range, most)
    }

    /// An IF, open.
    pub(super) fn open_if(&mut self, gate: &UOp) -> Option<UOp> {
        // Two conditions on one gate are two nodes.
        let mut src = vec![gate.clone()];
        src.extend(self.order.clone().filter(|o| o.op().is_void()));
        let condition = UOp::try_new(Op::If, src, Arg::None).ok()?;
        self.open(condition, 1)
    }

    fn open(&mut self, u: UOp, turns: i64) -> Option<UOp> {
        if self.placed.contains_key(&u) {
            return None;
        }
        let u = self.place(u)?;
        let number = self.is_open.len();
        self.is_open.push(true);
        let turns = self.turns() * turns.max(1);
        self.scopes.push(Scope {
            begin: Some(u.clone()),
            number,
            values: Vec::new(),
            turns,
        });
        let is_counter = u.op() == Op::Range;
        if is_counter {
            self.innermost().values.push(u.clone());
        }
        Some(u)
    }

    /// Close the innermost loop or condition.
    pub(super) fn close(&mut self) {
        if self.depth() == 0 {
            return;
        }
        let Some(scope) = self.scopes.pop() else {
            return;
        };
        self.is_open[scope.number] = false;
        let Some(begin) = scope.begin else { return };
        let end = if begin.op() == Op::If {
            UOp::new(Op::EndIf, vec![begin], Arg::None)
        } else {
            UOp::new(Op::End, vec![self.nothing.clone(), begin], Arg::None)
        };
        self.place(end);
    }

    /// Storage under a name of its own: what was changed so far has been.
    pub(super) fn named(&mut self, buffer: &UOp) -> Option<UOp> {
        match self.order.clone() {
            None => Some(buffer.clone()),
            Some(order) => self.put(Op::After, &[buffer.clone(), order], Arg::None),
        }
    }

    /// An argument that is storage.
    pub(super) fn param(&mut self, d: DType, len: i64) -> UOp {
        let p = UOp::param(self.slots, &Shape::of(&[len]), d, None);
        self.slots += 1;
        self.first(p)
    }

    /// Storage of the program's own.
    pub(super) fn scratch(&mut self, d: DType, shape: &[i64], space: AddrSpace) -> UOp {
        let b = UOp::scratch(self.slots, &Shape::of(shape), d, space);
        self.slots += 1;
        self.first(b)
    }

    /// A variable with bounds.
    pub(super) fn variable(&mut self, d: DType, least: i64, most: i64) -> UOp {
        let src = vec![UOp::dims(&[]), UOp::int(least, d), UOp::int(most, d)];
        self.argument(d, src)
    }

    /// An argument of any dtype, without bounds.
    pub(super) fn argument(&mut self, d: DType, src: Vec<UOp>) -> UOp {
        let arg = BufferArg {
            slot: self.slots,
            version: 0,
            dtype: d,
            device: None,
            addrspace: None,
        };
        self.slots += 1;
        let v = self.first(UOp::new(Op::Param, src, Arg::Buffer(arg)));
        self.scopes[0].values.push(v.clone());
        v
    }

    /// From here on, between threads of a CPU, nothing is known but memory.
    pub(super) fn barrier(&mut self) {
        let src: Vec<UOp> = self.order.iter().cloned().collect();
        let put = UOp::new(Op::Barrier, src, Arg::None);
        if self.depth() > 0 || self.placed.contains_key(&put) {
            return;
        }
        self.place(put.clone());
        // No effect of another phase is named.
        self.nothing = UOp::new(Op::Group, vec![put], Arg::None);
        self.place(self.nothing.clone());
        self.scopes[0].values.clear();
        self.buffers.retain(|b| b.op() == Op::Param);
    }

    /// The program and its record.
    pub(super) fn finish(mut self, seed: u64) -> Made {
        while self.depth() > 0 {
            self.close();
        }
        let list: Vec<UOp> = self.head.into_iter().chain(self.list).collect();
        let linear = UOp::new(Op::Linear, list, Arg::None);
        let info = record(&linear, seed);
        Made { linear, info }
    }
}

/// The record of a program, whose name tells the seed.
pub(super) fn record(linear: &UOp, seed: u64) -> ProgramInfo {
    let mut info = ProgramInfo {
        name: format!("E_linear_{seed}"),
        global_size: [1; 3],
        local_size: [1; 3],
        threads: 1,
        ..ProgramInfo::default()
    };
    let slot = |u: &UOp| u.buffer_arg().map(|b| b.slot as usize);
    for u in linear.src() {
        let storage = |u: &UOp| {
            let a = address(u.src()[0].named())?;
            slot(a.buffer).filter(|_| a.buffer.op() == Op::Param)
        };
        match u.op() {
            Op::Param if u.is_variable() => info.vars.extend(slot(u)),
            Op::Param => info.ins.extend(slot(u)),
            Op::Store => info.outs.extend(storage(u)),
            _ => {}
        }
    }
    for list in [&mut info.vars, &mut info.outs, &mut info.ins] {
        list.sort_unstable();
        list.dedup();
    }
    info
}
