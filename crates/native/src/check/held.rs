//! Whose values the registers of the machine and the places in the frame hold. Flows in: writes and copies; flows
//! out: whether a place holds a register's value. Always: a place holds no value that is not its register's last.

use crate::code::Reg;
use smallvec::SmallVec;

/// Where a value can be.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Home {
    General(u8),
    Vector(u8),
    Slot(u32),
    Nowhere,
}

impl Home {
    fn number(self) -> usize {
        match self {
            Home::Nowhere => 0,
            Home::General(number) => 1 + number as usize,
            Home::Vector(number) => 17 + number as usize,
            Home::Slot(number) => 49 + number as usize,
        }
    }
}

/// By place the registers whose values it holds.
#[derive(Clone, Debug)]
pub(super) struct Held {
    by: Vec<SmallVec<[Reg; 4]>>,
}

impl Held {
    pub(super) fn new(slots: usize) -> Held {
        Held {
            by: vec![SmallVec::new(); 49 + slots],
        }
    }

    pub(super) fn holds(&self, home: Home, reg: Reg) -> bool {
        home != Home::Nowhere && self.by[home.number()].contains(&reg)
    }

    /// A register's new value, in one place and in no other.
    pub(super) fn write(&mut self, home: Home, reg: Reg) {
        for held in &mut self.by {
            held.retain(|r| *r != reg);
        }
        self.make(home, reg);
    }

    /// A constant, wherever else it is.
    pub(super) fn make(&mut self, home: Home, reg: Reg) {
        let held = &mut self.by[home.number()];
        held.clear();
        held.push(reg);
    }

    /// What one place holds is held by another too, as far as it is copied, and where `written` is a register this
    /// is its new value.
    pub(super) fn copy(
        &mut self,
        from: Home,
        to: Home,
        written: Option<Reg>,
        copied: impl Fn(Reg) -> bool,
    ) {
        let mut held = self.by[from.number()].clone();
        held.retain(|r| copied(*r) && Some(*r) != written);
        if let Some(written) = written {
            self.write(to, written);
            held.push(written);
        }
        self.by[to.number()] = held;
    }

    /// Leaves what the other holds as well; whether that was not all.
    pub(super) fn meet(&mut self, other: &Held) -> bool {
        let mut changed = false;
        for (held, other) in self.by.iter_mut().zip(&other.by) {
            let count = held.len();
            held.retain(|r| other.contains(r));
            changed |= held.len() != count;
        }
        changed
    }
}
