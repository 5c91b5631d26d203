//! Data to train on. Flows in: the digits that come with this crate, or a folder of IDX files; flows
//! out: images and labels, as tensors by rows.
//!
//! Invariant: a set has as many labels as images, every label is below `classes`, and a file that is
//! not what it should be is an error that names the file and what is wrong with it.

use flate2::read::GzDecoder;
use monoglot_tensor::{Error, ErrorKind, Result, Tensor};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::panic::Location;
use std::path::{Path, PathBuf};

/// Grey images of one size, each with the class it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Images {
    /// Rows of pixels of an image.
    pub height: usize,
    /// Pixels of a row.
    pub width: usize,
    /// The brightest value a pixel may have.
    pub white: u8,
    /// Number of classes.
    pub classes: usize,
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

impl Images {
    /// Number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The pixels of image `i`, row by row.
    pub fn pixels(&self, i: usize) -> &[u8] {
        &self.pixels[i * self.height * self.width..][..self.height * self.width]
    }

    /// The class of image `i`.
    pub fn label(&self, i: usize) -> u8 {
        self.labels[i]
    }

    /// The images whose number `take` accepts, and the others.
    pub fn split(&self, take: impl Fn(usize) -> bool) -> (Images, Images) {
        let (taken, left): (Vec<usize>, Vec<usize>) = (0..self.len()).partition(|&i| take(i));
        (self.select(&taken), self.select(&left))
    }

    /// The images of these numbers, in this order.
    pub fn select(&self, rows: &[usize]) -> Images {
        Images {
            pixels: rows.iter().flat_map(|&i| self.pixels(i)).copied().collect(),
            labels: rows.iter().map(|&i| self.labels[i]).collect(),
            ..*self
        }
    }

    /// The images of these numbers: f32 (rows, 1, height, width) from 0 to 1, and their classes: i32 (rows,).
    ///
    /// # Panics
    /// Where a number is not below `len`, as a slice would.
    #[track_caller]
    pub fn batch(&self, rows: &[usize]) -> (Tensor, Tensor) {
        let scale = 1.0 / self.white as f32;
        let pixels: Vec<f32> = rows
            .iter()
            .flat_map(|&i| self.pixels(i))
            .map(|&p| p as f32 * scale)
            .collect();
        let labels: Vec<i32> = rows.iter().map(|&i| self.labels[i] as i32).collect();
        let images = Tensor::new(&pixels, [rows.len(), 1, self.height, self.width]);
        (images, Tensor::new(&labels, [rows.len()]))
    }

    /// The numbers of all images in random order, in batches of `size`; what is left over is left out.
    ///
    /// # Errors
    /// What went wrong in drawing the order.
    #[track_caller]
    pub fn shuffled(&self, size: usize) -> Result<Vec<Vec<usize>>> {
        let keys = Tensor::rand([self.len()]).to_vec::<f32>()?;
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by(|&a, &b| keys[a].total_cmp(&keys[b]));
        Ok(order
            .chunks_exact(size.max(1))
            .map(<[usize]>::to_vec)
            .collect())
    }

    /// All images and their classes, as `batch` gives them.
    #[track_caller]
    pub fn all(&self) -> (Tensor, Tensor) {
        self.batch(&(0..self.len()).collect::<Vec<_>>())
    }
}

/// The 1,797 handwritten digits of 8×8 pixels that come with this crate (UCI; see its `data/README.md`).
///
/// # Errors
/// `Format`, if the data that was compiled in was damaged.
pub fn digits() -> Result<Images> {
    parse_digits(include_str!("../data/digits.csv"))
}

/// The two sets of a folder in MNIST's format, by their usual names, plain or gzipped (`….gz`): those of
/// `train-images-idx3-ubyte` where they are there, and those of `t10k-images-idx3-ubyte`. A folder that has
/// only `t10k` files gives its last fifth as the second set and the rest as the first.
///
/// # Errors
/// `Io` where a file is missing or cannot be read, `Format` where one is not in IDX format or the two
/// files of a set do not fit each other.
#[track_caller]
pub fn mnist(folder: impl AsRef<Path>) -> Result<(Images, Images)> {
    let here = Location::caller();
    sets(folder.as_ref()).map_err(|e| e.at(here))
}

/// The set of images and labels of a folder whose files begin with `name`.
///
/// # Errors
/// As `mnist`.
#[track_caller]
pub fn idx_set(folder: impl AsRef<Path>, name: &str) -> Result<Images> {
    let here = Location::caller();
    set(folder.as_ref(), name).map_err(|e| e.at(here))
}

/// The two sets of `mnist`.
fn sets(folder: &Path) -> Result<(Images, Images)> {
    if !folder.is_dir() {
        return Err(io(folder, "is not a folder"));
    }
    let test = set(folder, "t10k")?;
    if find(folder, "train-images-idx3-ubyte").is_some() {
        return Ok((set(folder, "train")?, test));
    }
    let kept = test.len() - test.len() / 5;
    Ok(test.split(|i| i < kept))
}

/// The set of `idx_set`.
fn set(folder: &Path, name: &str) -> Result<Images> {
    let (images_path, sizes, pixels) = idx(folder, &format!("{name}-images-idx3-ubyte"), 3)?;
    let (labels_path, counts, labels) = idx(folder, &format!("{name}-labels-idx1-ubyte"), 1)?;
    if counts[0] != sizes[0] {
        return Err(format(
            &labels_path,
            format!("{} labels for {} images", counts[0], sizes[0]),
        ));
    }
    if sizes[1] * sizes[2] == 0 {
        return Err(format(
            &images_path,
            format!("images of {}×{} pixels", sizes[1], sizes[2]),
        ));
    }
    if let Some(bad) = labels.iter().find(|&&l| l > 9) {
        return Err(format(
            &labels_path,
            format!("a label {bad}, where digits are 0 to 9"),
        ));
    }
    Ok(Images {
        height: sizes[1],
        width: sizes[2],
        white: 255,
        classes: 10,
        pixels,
        labels,
    })
}

/// Bytes of elements that a file may have: forty times those of MNIST, which a computer has at hand.
const MOST: usize = 2 << 30;

/// Sizes and bytes of an IDX file of unsigned bytes with `ndim` axes.
fn idx(folder: &Path, name: &str, ndim: usize) -> Result<(PathBuf, Vec<usize>, Vec<u8>)> {
    let path = find(folder, name)
        .ok_or_else(|| io(&folder.join(name), "no such file, plain or with .gz"))?;
    let fail = |e: std::io::Error| io(&path, e);
    let mut file = BufReader::new(File::open(&path).map_err(fail)?);
    let gzipped = file.fill_buf().map_err(fail)?.starts_with(&[0x1f, 0x8b]);
    let read = if gzipped {
        read_idx(GzDecoder::new(file), &path, ndim)
    } else {
        read_idx(file, &path, ndim)
    };
    let (sizes, elements) = read?;
    Ok((path, sizes, elements))
}

/// Sizes and elements. Of a stream that goes on after them no more than a byte is read, however small the
/// file is that it unpacks from.
fn read_idx(mut from: impl Read, path: &Path, ndim: usize) -> Result<(Vec<usize>, Vec<u8>)> {
    // Two zeros, the element type (8: unsigned bytes), the number of axes, then sizes as big-endian u32.
    let mut header = vec![0; 4 + 4 * ndim];
    let whole = match from.read_exact(&mut header) {
        Err(e) if e.kind() != std::io::ErrorKind::UnexpectedEof => return Err(io(path, e)),
        result => result.is_ok(),
    };
    if !whole || header[..4] != [0, 0, 8, ndim as u8] {
        let message = format!("not an IDX file of unsigned bytes with {ndim} axes");
        return Err(format(path, message));
    }
    let word = |c: &[u8]| u32::from_be_bytes([c[0], c[1], c[2], c[3]]) as usize;
    let sizes: Vec<usize> = header[4..].chunks_exact(4).map(word).collect();
    let product = sizes.iter().try_fold(1usize, |n, &s| n.checked_mul(s));
    let Some(wanted) = product.filter(|&n| n <= MOST) else {
        let message = format!("sizes {sizes:?}, which is more than {MOST} bytes of elements");
        return Err(format(path, message));
    };
    let mut elements = Vec::new();
    from.take(wanted as u64 + 1)
        .read_to_end(&mut elements)
        .map_err(|e| io(path, e))?;
    if elements.len() != wanted {
        let more = if elements.len() > wanted {
            "more than "
        } else {
            ""
        };
        let there = elements.len().min(wanted);
        let message = format!("sizes {sizes:?}, but {more}{there} bytes of elements");
        return Err(format(path, message));
    }
    Ok((sizes, elements))
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    [name.to_string(), format!("{name}.gz")]
        .iter()
        .map(|n| folder.join(n))
        .find(|p| p.is_file())
}

fn parse_digits(text: &str) -> Result<Images> {
    const SIZE: usize = 64;
    let mut pixels = Vec::new();
    let mut labels = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let bad = |message: String| {
            format(
                Path::new("digits.csv"),
                format!("line {}: {message}", i + 1),
            )
        };
        let row: Vec<u8> = line
            .split(',')
            .map(|n| {
                n.trim()
                    .parse()
                    .map_err(|_| bad(format!("{n:?} is not a number from 0 to 255")))
            })
            .collect::<Result<_>>()?;
        match row[..] {
            [ref image @ .., label]
                if image.len() == SIZE && label < 10 && image.iter().all(|&p| p <= 16) =>
            {
                pixels.extend_from_slice(image);
                labels.push(label);
            }
            _ => return Err(bad(format!("not {SIZE} numbers from 0 to 16 and a digit"))),
        }
    }
    Ok(Images {
        height: 8,
        width: 8,
        white: 16,
        classes: 10,
        pixels,
        labels,
    })
}

fn io(path: &Path, message: impl ToString) -> Error {
    ErrorKind::Io {
        path: path.display().to_string(),
        message: message.to_string(),
    }
    .into()
}

fn format(path: &Path, message: String) -> Error {
    ErrorKind::Format {
        what: path.display().to_string(),
        message,
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("monoglot-data-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a temporary folder can be made");
        dir
    }

    fn idx_bytes(sizes: &[u32], elements: &[u8]) -> Vec<u8> {
        let mut out = vec![0, 0, 8, sizes.len() as u8];
        sizes.iter().for_each(|s| out.extend(s.to_be_bytes()));
        out.extend(elements);
        out
    }

    fn write(dir: &Path, name: &str, bytes: &[u8]) {
        std::fs::write(dir.join(name), bytes).expect("a temporary file can be written");
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut e = GzEncoder::new(Vec::new(), Compression::fast());
        e.write_all(bytes).expect("writing to memory");
        e.finish().expect("writing to memory")
    }

    #[test]
    fn the_digits_are_all_there() {
        let d = digits().expect("the data is compiled in");
        assert_eq!((d.len(), d.height, d.width, d.classes), (1797, 8, 8, 10));
        assert_eq!(&d.pixels(0)[..8], [0, 0, 5, 13, 9, 1, 0, 0]);
        assert_eq!((d.label(0), d.label(1)), (0, 1));
        let (held_out, rest) = d.split(|i| i % 5 == 4);
        assert_eq!((held_out.len(), rest.len()), (359, 1438));
        assert_eq!(held_out.pixels(0), d.pixels(4));
    }

    #[test]
    fn lines_that_are_no_digits_are_named() {
        let e = parse_digits("1,2,3\n")
            .expect_err("three numbers are no image")
            .to_string();
        assert!(e.contains("line 1: not 64 numbers"), "{e}");
        let e = parse_digits("1,x\n")
            .expect_err("x is no number")
            .to_string();
        assert!(e.contains("\"x\" is not a number"), "{e}");
    }

    #[test]
    fn no_more_is_unpacked_than_the_header_says() {
        let path = Path::new("endless");
        let endless =
            |sizes: &[u32]| std::io::Cursor::new(idx_bytes(sizes, &[])).chain(std::io::repeat(0));
        let error = read_idx(endless(&[7, 2, 2]), path, 3).expect_err("it goes on");
        assert!(error.to_string().contains("more than 28 bytes"), "{error}");
        let error = read_idx(endless(&[1 << 20, 1 << 10, 1 << 10]), path, 3).expect_err("too much");
        assert!(
            error.to_string().contains("more than 2147483648"),
            "{error}"
        );
        let bomb = gzip(&idx_bytes(&[3], &vec![0; 1 << 20]));
        let error = read_idx(GzDecoder::new(&bomb[..]), path, 1).expect_err("it goes on");
        assert!(error.to_string().contains("more than 3 bytes"), "{error}");
    }

    #[test]
    fn a_folder_is_read_plain_and_gzipped() {
        let dir = folder("both");
        let pixels: Vec<u8> = (0..10 * 4).collect();
        let labels: Vec<u8> = (0..10).collect();
        write(
            &dir,
            "t10k-images-idx3-ubyte.gz",
            &gzip(&idx_bytes(&[10, 2, 2], &pixels)),
        );
        write(&dir, "t10k-labels-idx1-ubyte", &idx_bytes(&[10], &labels));
        let (train, test) = mnist(&dir).expect("a well-formed folder");
        assert_eq!((train.len(), test.len(), test.label(0)), (8, 2, 8));
        assert_eq!(test.pixels(0), [32, 33, 34, 35]);
        write(
            &dir,
            "train-images-idx3-ubyte",
            &idx_bytes(&[1, 2, 2], &pixels[..4]),
        );
        write(&dir, "train-labels-idx1-ubyte", &idx_bytes(&[1], &[7]));
        let (train, test) = mnist(&dir).expect("a well-formed folder");
        assert_eq!((train.len(), train.label(0), test.len()), (1, 7, 10));
        std::fs::remove_dir_all(&dir).expect("the folder is ours");
    }

    #[test]
    fn damaged_folders_are_typed_errors() {
        let dir = folder("damaged");
        let kind = |dir: &Path| {
            let line = line!() + 1;
            let e = mnist(dir).expect_err("not a good folder");
            assert_eq!(
                e.location().map(|l| (l.file(), l.line())),
                Some((file!(), line)),
                "{e}"
            );
            e
        };
        let line = line!() + 1;
        let e = idx_set(&dir, "none").expect_err("no such set");
        assert_eq!(
            e.location().map(|l| (l.file(), l.line())),
            Some((file!(), line)),
            "{e}"
        );
        assert!(matches!(kind(&dir).kind(), ErrorKind::Io { .. }));
        assert!(matches!(
            kind(&dir.join("nowhere")).kind(),
            ErrorKind::Io { .. }
        ));
        write(&dir, "t10k-images-idx3-ubyte", b"not idx");
        assert!(matches!(kind(&dir).kind(), ErrorKind::Format { .. }));
        write(
            &dir,
            "t10k-images-idx3-ubyte",
            &idx_bytes(&[u32::MAX, u32::MAX, u32::MAX], &[1]),
        );
        assert!(matches!(kind(&dir).kind(), ErrorKind::Format { .. }));
        write(
            &dir,
            "t10k-images-idx3-ubyte",
            &idx_bytes(&[2, 1, 1], &[1, 2]),
        );
        write(&dir, "t10k-labels-idx1-ubyte", &idx_bytes(&[3], &[1, 2, 3]));
        assert!(kind(&dir).to_string().contains("3 labels for 2 images"));
        write(&dir, "t10k-labels-idx1-ubyte", &idx_bytes(&[2], &[1, 20]));
        assert!(kind(&dir).to_string().contains("a label 20"));
        let mut cut = gzip(&idx_bytes(&[2], &[1, 2]));
        cut.truncate(cut.len() - 9);
        write(&dir, "t10k-labels-idx1-ubyte", &cut);
        assert!(matches!(kind(&dir).kind(), ErrorKind::Io { .. }));
        std::fs::remove_dir_all(&dir).expect("the folder is ours");
    }
}
