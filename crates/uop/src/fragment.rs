//! How the matrices of a matrix unit lie over the lanes of a warp, as data: which row and column an
//! element of a lane is, and back. Flows in: a lane and an element of it; flows out: a row and a
//! column, or the other way about.
//!
//! A lane's number and the number of an element within it are taken apart into digits, the lowest first,
//! and each digit moves by its stride along rows or columns. Invariant of a unit that `covers` accepts:
//! the strides of an axis are the products of the extents below them, so digits can be read back.

/// A digit of a lane's or an element's number.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Digit {
    /// So many values, each so many rows further.
    Row(i64, i64),
    /// So many values, each so many columns further.
    Column(i64, i64),
}

/// Where the elements of a matrix are: digits of the lane's number, and of the element's within the lane.
/// A stride of 0 makes copies.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Fragment {
    /// Digits of the lane's number, the lowest first.
    pub lane: Vec<Digit>,
    /// Digits of the element's number, the lowest first.
    pub element: Vec<Digit>,
}

/// The most elements over all lanes.
const MOST: i64 = 1 << 16;

impl Digit {
    /// How many values it has.
    pub fn extent(self) -> i64 {
        let (Digit::Row(n, _) | Digit::Column(n, _)) = self;
        n
    }
}

fn product(digits: &[Digit]) -> i64 {
    let extents = digits.iter().map(|d| d.extent());
    extents.fold(1, |n, e| n.saturating_mul(e.max(0)))
}

impl Fragment {
    /// `rows` × `columns` row by row, two neighbours in a row to a lane.
    pub fn pairs(rows: i64, columns: i64) -> Fragment {
        Fragment {
            lane: vec![Digit::Column(columns / 2, 2), Digit::Row(rows, 1)],
            element: vec![Digit::Column(2, 1)],
        }
    }

    /// How many lanes hold it.
    pub fn lanes(&self) -> i64 {
        product(&self.lane)
    }

    /// How many elements a lane holds.
    pub fn elements(&self) -> i64 {
        product(&self.element)
    }

    /// The row and column of an element of a lane.
    pub fn place(&self, lane: i64, element: i64) -> (i64, i64) {
        let mut row = 0;
        let mut column = 0;
        for (digits, mut number) in [(&self.lane, lane), (&self.element, element)] {
            for d in digits {
                let value = number % d.extent();
                number /= d.extent();
                match *d {
                    Digit::Row(_, stride) => row += value * stride,
                    Digit::Column(_, stride) => column += value * stride,
                }
            }
        }
        (row, column)
    }

    /// Whether this is a matrix of so many rows and columns over so many lanes, all of whose elements are
    /// there.
    pub fn covers(&self, rows: i64, columns: i64, lanes: i64) -> bool {
        let all = || self.lane.iter().chain(&self.element);
        let sound = |d: &Digit| {
            let (Digit::Row(extent, stride) | Digit::Column(extent, stride)) = *d;
            extent > 0 && (0..=MOST).contains(&stride)
        };
        let small = self.lanes().saturating_mul(self.elements()) <= MOST;
        if !all().all(sound) || !small || self.lanes() != lanes {
            return false;
        }
        let radix = |of: fn(&Digit) -> Option<(i64, i64)>| {
            let mut digits: Vec<(i64, i64)> = all().filter_map(of).filter(|d| d.1 > 0).collect();
            digits.sort_by_key(|&(extent, stride)| (stride, extent));
            let step = |below: i64, &(extent, stride): &(i64, i64)| {
                (stride == below).then(|| below * extent)
            };
            digits.iter().try_fold(1, step)
        };
        let row = |d: &Digit| match *d {
            Digit::Row(extent, stride) => Some((extent, stride)),
            Digit::Column(..) => None,
        };
        let column = |d: &Digit| match *d {
            Digit::Column(extent, stride) => Some((extent, stride)),
            Digit::Row(..) => None,
        };
        radix(row) == Some(rows) && radix(column) == Some(columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::UOp;

    /// Lanes are columns, each with eight rows; the upper half of the lanes has the lower half's next.
    fn columns() -> Fragment {
        Fragment {
            lane: vec![Digit::Column(16, 1), Digit::Row(2, 8)],
            element: vec![Digit::Row(8, 1)],
        }
    }

    #[test]
    fn places_and_holders_are_inverse() {
        for (f, rows, n) in [(Fragment::pairs(8, 8), 8, 8), (columns(), 16, 16)] {
            assert!(f.covers(rows, n, 32), "{f:?}");
            let mut seen = std::collections::HashSet::new();
            for lane in 0..f.lanes() {
                for element in 0..f.elements() {
                    let (row, column) = f.place(lane, element);
                    assert!(seen.insert((row, column)) && row < rows && column < n);
                    let c = |v: i64| UOp::index_const(v);
                    let ints = |both: [UOp; 2]| both.map(|u| u.sym_infer(&[]).ok());
                    assert_eq!(ints(f.at(&c(lane), &c(element))), [Some(row), Some(column)]);
                    assert_eq!(
                        ints(f.holder(&c(row), &c(column))),
                        [Some(lane), Some(element)]
                    );
                }
            }
            assert_eq!(seen.len() as i64, rows * n);
        }
    }

    #[test]
    fn what_is_no_layout_is_refused() {
        assert!(!Fragment::default().covers(8, 8, 32));
        assert!(!Fragment::pairs(8, 8).covers(8, 8, 16));
        assert!(!Fragment::pairs(8, 8).covers(8, 16, 32));
        let with = |digit: Digit| Fragment {
            lane: vec![Digit::Row(8, 1), digit],
            element: vec![Digit::Column(2, 1)],
        };
        assert!(with(Digit::Column(4, 2)).covers(8, 8, 32));
        // Copies, a hole, two of one place, and numbers that overflow.
        assert!(with(Digit::Column(4, 0)).covers(8, 2, 32));
        assert!(!with(Digit::Column(4, 3)).covers(8, 8, 32));
        assert!(!with(Digit::Column(4, 1)).covers(8, 5, 32));
        assert!(!with(Digit::Column(1 << 62, 2)).covers(8, 8, 32));
        assert!(!with(Digit::Column(0, 2)).covers(8, 8, 0));
    }
}
