//! Code for tests, an instruction a call. Flows in: calls; flows out: code.

use monoglot_native::allocate::allocate;
use monoglot_native::check::check;
use monoglot_native::code::*;
use monoglot_native::table::Vector;
use smallvec::SmallVec;

#[derive(Default)]
pub(crate) struct Build {
    pub(crate) code: Code,
    labels: i64,
    pub(crate) vector: Option<Width>,
}

impl Build {
    pub(crate) fn new(level: Level) -> Build {
        Build {
            vector: Some(match level {
                Level::V2 => Width::X,
                Level::V3 => Width::Y,
                Level::V4 => Width::Z,
            }),
            ..Build::default()
        }
    }

    pub(crate) fn width(&self) -> Width {
        self.vector.expect("made by `new`")
    }

    pub(crate) fn general(&mut self) -> Reg {
        self.code.reg(Class::General, 8)
    }

    pub(crate) fn vector(&mut self) -> Reg {
        self.code.reg(Class::Vector, self.width().bytes())
    }

    pub(crate) fn put(&mut self, op: Do, width: Width, dst: Option<Reg>, src: &[Operand]) {
        self.code.ins.push(Ins {
            op,
            width,
            dst,
            src: SmallVec::from_slice(src),
            mark: UNMARKED,
        });
    }

    pub(crate) fn argument(&mut self, k: u8) -> Reg {
        let dst = self.general();
        self.put(Do::Argument(k), Width::W64, Some(dst), &[]);
        dst
    }

    pub(crate) fn load(&mut self, base: Reg, displacement: i32) -> Reg {
        let dst = self.vector();
        let at = at(base, displacement);
        let width = self.width();
        self.put(Do::Vector(Vector::Load), width, Some(dst), &[at]);
        dst
    }

    pub(crate) fn store(&mut self, base: Reg, displacement: i32, from: Reg) {
        let width = self.width();
        let src = [at(base, displacement), Operand::Reg(from)];
        self.put(Do::Vector(Vector::Store), width, None, &src);
    }

    pub(crate) fn three(&mut self, op: Vector, dst: Reg, a: Reg, b: Reg) {
        let width = self.width();
        let src = [Operand::Reg(a), Operand::Reg(b)];
        self.put(Do::Vector(op), width, Some(dst), &src);
    }

    pub(crate) fn fma(&mut self, dst: Reg, a: Reg, b: Reg, c: Reg) {
        let width = self.width();
        let src = [Operand::Reg(a), Operand::Reg(b), Operand::Reg(c)];
        self.put(Do::Vector(Vector::FmaPs), width, Some(dst), &src);
    }

    pub(crate) fn zero(&mut self) -> Reg {
        let dst = self.vector();
        let width = self.width();
        self.put(Do::Zero, width, Some(dst), &[]);
        dst
    }

    pub(crate) fn copy(&mut self, dst: Reg, from: Reg) {
        let width = match self.code.regs[dst.0 as usize].class {
            Class::General => Width::W64,
            Class::Vector => self.width(),
        };
        self.put(Do::Move, width, Some(dst), &[Operand::Reg(from)]);
    }

    pub(crate) fn general_op(&mut self, op: Do, dst: Reg, a: Reg, b: Operand) {
        self.put(op, Width::W64, Some(dst), &[Operand::Reg(a), b]);
    }

    pub(crate) fn number(&mut self, number: i64) -> Reg {
        let dst = self.general();
        self.code.regs[dst.0 as usize].again = Some(Again::Number(number));
        let src = [Operand::Imm(number)];
        self.put(Do::Immediate, Width::W64, Some(dst), &src);
        dst
    }

    pub(crate) fn constant(&mut self, byte: u8) -> Reg {
        let dst = self.vector();
        let width = self.width();
        self.code.pool.push([byte; 64]);
        let pool = self.code.pool.len() as u32 - 1;
        self.code.regs[dst.0 as usize].again = Some(Again::Pool(pool));
        let src = [Operand::Pool(pool)];
        let op = match byte {
            0 => Do::Zero,
            _ => Do::Vector(Vector::Load),
        };
        let src = match byte {
            0 => &[],
            _ => &src[..],
        };
        self.put(op, width, Some(dst), src);
        dst
    }

    pub(crate) fn open(&mut self) -> i64 {
        self.labels += 1;
        self.put(Do::Loop, Width::W64, None, &[Operand::Imm(self.labels)]);
        self.labels
    }

    pub(crate) fn next(&mut self, label: i64, a: Reg, b: Operand) {
        let src = [Operand::Reg(a), b, Operand::Imm(label)];
        self.put(Do::Next, Width::W64, None, &src);
    }

    pub(crate) fn label(&mut self) -> i64 {
        self.labels += 1;
        self.labels
    }

    pub(crate) fn skip(&mut self, label: i64, cond: Cond, a: Reg, b: Operand) {
        let src = [Operand::Reg(a), b, Operand::Imm(label)];
        self.put(Do::SkipIf(cond), Width::W64, None, &src);
    }

    pub(crate) fn land(&mut self, label: i64) {
        self.put(Do::Land, Width::W64, None, &[Operand::Imm(label)]);
    }

    pub(crate) fn end(mut self) -> Code {
        self.put(Do::Return, Width::W64, None, &[]);
        self.code
    }
}

pub(crate) fn at(base: Reg, displacement: i32) -> Operand {
    Operand::Mem(Mem {
        base,
        index: None,
        displacement,
    })
}

/// Allocates, checks, and runs both.
pub(crate) fn allocated(code: &Code, level: Level) -> Allocated {
    let after = allocate(code.clone(), level);
    if let Err(what) = check(code, &after, level) {
        panic!("{what}\n{}", listing(code, &after));
    }
    let mut written = vec![false; after.code.regs.len()];
    for ins in &after.code.ins {
        ins.reads(|r| assert!(written[r.0 as usize], "{r:?}: {}", listing(code, &after)));
        ins.dst
            .into_iter()
            .for_each(|r| written[r.0 as usize] = true);
    }
    for seed in 0..4 {
        let was = super::run::before(code, seed);
        let is = super::run::after(&after, seed);
        assert_eq!(was, is, "{}", listing(code, &after));
    }
    after
}

pub(crate) fn listing(before: &Code, after: &Allocated) -> String {
    if before.ins.len() > 500 {
        return "too long to show".to_owned();
    }
    let mut text = String::from("before:\n");
    for ins in &before.ins {
        text += &format!("  {ins:?}\n");
    }
    text += "after:\n";
    for ins in &after.code.ins {
        text += &format!("  {ins:?}\n");
    }
    for (number, place) in after.places.iter().enumerate() {
        text += &format!("  {number}: {place:?}, was {:?}\n", after.origin[number]);
    }
    text
}
