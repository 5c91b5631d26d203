//! Realize: from roots to BUFFERs. What is realized already is found again, the rest becomes a
//! function, its program runs, and every root remembers where its value is: weakly, but for an assign's. Flows in: roots,
//! the expressions that are wanted; flows out: for each a BUFFER, or the error of the first thing
//! that went wrong, after which all is as it was before.
//!
//! Any number of threads may realize at once. Invariant: a BUFFER that is given out keeps its value for
//! as long as somebody holds it.

use crate::again::Look;
use crate::donate;
use crate::executable::{self, Invocation};
use crate::queues::Queues;
use crate::run::run;
use crate::versions::{self, Claim, Reading, Stop, Tried, Version, stored};
use crate::wrong::{Wrong, broken};
use monoglot_device::{Storage, open, open_for_code};
use monoglot_schedule::{Arguments, assigned_buffer, callify};
use monoglot_uop::graph::nodes_below;
use monoglot_uop::{DType, Device, Error, ErrorKind, Op, Result, Shape, UOp};
use rustc_hash::FxHashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes that are uploaded at once: they are in the second cache still when they are copied.
const PIECE: usize = 256 << 10;

/// The values of these roots, each as a BUFFER or a view that reads one, of the root's shape and dtype.
///
/// # Errors
/// Whatever the compiler, the device or its memory say, and `OutOfRange` where what a root is computed
/// with asserts what does not hold; then nothing was changed, but for what the error says.
pub fn realize(roots: &[UOp]) -> Result<Vec<UOp>> {
    until_free(|| attempt(roots))
}

/// The value of an expression, realized first where it must be, without rebinding anything.
///
/// # Errors
/// As `realize`.
pub fn value(u: &UOp) -> Result<Value> {
    until_free(|| held(attempt(std::slice::from_ref(u))?.remove(0)))
}

/// The row-major bytes of an expression's value.
///
/// # Errors
/// As `realize`, `Value::room` and `Value::read`.
pub fn read(u: &UOp) -> Result<Vec<u8>> {
    let value = value(u)?;
    let mut out = value.room(value.bytes())?;
    out.resize(value.bytes(), 0);
    value.read(0, &mut out)?;
    Ok(out)
}

/// The value of an expression, where it is realized.
///
/// # Errors
/// As `realize`.
pub fn realized(u: &UOp) -> Result<Option<Value>> {
    let nothing = FxHashMap::default();
    until_free(|| {
        let found = resolve(std::slice::from_ref(u), &nothing)?.0.remove(0);
        let there = is_view_of_storage(&found, &nothing)?;
        there.then(|| held(found)).transpose()
    })
}

/// A value in storage. Nobody writes over it while this is held.
pub struct Value {
    uop: UOp,
    reading: Reading,
    offset: usize,
    bytes: usize,
}

impl Value {
    /// The BUFFER, or the view of one, that holds it.
    pub fn uop(&self) -> &UOp {
        &self.uop
    }

    /// The bytes that it has now: a varying length counts as what it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its row-major bytes from `at` on.
    ///
    /// # Errors
    /// `Run` past the end, and where the device cannot be read.
    pub fn read(&self, at: usize, out: &mut [u8]) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let storage = self.reading.storage();
        open(storage.device())?.download(storage, self.offset + at, out)
    }

    /// An empty vector with room for so many values on the host.
    ///
    /// # Errors
    /// `Memory` where there is not enough.
    pub fn room<T>(&self, count: usize) -> Result<Vec<T>> {
        Storage::room(self.reading.storage().device(), count)
    }
}

/// What `f` gives once no other run stands in its way.
pub(crate) fn until_free<T>(f: impl Fn() -> Tried<T>) -> Result<T> {
    if let Some(name) = monoglot_device::running() {
        let message = format!(
            "`{name}` computes tensors while it runs within a program, which would wait for itself: \
             compute them before, and pass them"
        );
        return Err(ErrorKind::Run { message }.into());
    }
    let mut taken: Vec<Arc<Version>> = Vec::new();
    loop {
        match f() {
            Ok(done) => return Ok(done),
            Err(Stop::Failed(e)) => return Err(e),
            Err(Stop::Wrong(wrong)) => return Err(wrong.error(read)),
            Err(Stop::Busy(version)) => version.wait(),
            Err(Stop::Taken(version)) if taken.iter().any(|v| Arc::ptr_eq(v, &version)) => {
                let why = "an assign to it was realized, which ends its history";
                return Err(versions::gone(why));
            }
            Err(Stop::Taken(version)) => taken.push(version),
        }
    }
}

/// As `realize`, once: the values, or who stands in the way.
pub(crate) fn attempt(roots: &[UOp]) -> Tried<Vec<UOp>> {
    let mut claims = donate::claims(roots)?;
    let (resolved, beginnings) = resolve(roots, &claims)?;
    if !beginnings.is_empty() {
        // Kept with the parameters: who reads them next finds them, by the program that these roots have now.
        drop(claims);
        for (parameter, value) in beginnings.iter().zip(attempt(&beginnings)?) {
            parameter.set_realized(&value, true);
        }
        return attempt(roots);
    }
    let mut all = true;
    for u in &resolved {
        all &= is_view_of_storage(u, &claims)?;
    }
    if all {
        return Ok(resolved);
    }
    let look = Look::of(&resolved);
    let (program, arguments) = match look.as_ref().and_then(Look::find) {
        Some(known) => known,
        None => {
            let (invocation, arguments) = invocation(&resolved, &claims)?;
            let program = Rc::new(invocation);
            if let Some(look) = &look {
                look.keep(&program, &arguments);
            }
            (program, arguments)
        }
    };
    let done = run(&program, &arguments, &mut claims)?;
    for ((root, given), result) in roots.iter().zip(&resolved).zip(&done.results) {
        let Some((value, in_place)) = result else {
            continue;
        };
        // What an assign gives ends its history: what that reads may be written from now on.
        let keep = *in_place || assigned_buffer(root).is_some();
        if root != value {
            root.set_realized(value, keep);
        }
        if given != root && given != value {
            given.set_realized(value, keep);
        }
    }
    // The claims end here: whoever waits for one finds the roots' values.
    let Some((condition, element)) = done.wrong else {
        let values = done.results.into_iter().flatten();
        return Ok(values.map(|(value, _)| value).collect());
    };
    let stands = |(root, result): (&UOp, &Option<_>)| root.line().filter(|_| result.is_some());
    let standing = roots.iter().zip(&done.results).filter_map(stands);
    Err(Stop::Wrong(Wrong {
        assert: arguments.asserts[condition].clone(),
        element,
        standing: standing.collect(),
    }))
}

/// What runs these roots, and what it is called with.
fn invocation(roots: &[UOp], claims: &FxHashMap<UOp, Claim>) -> Result<(Invocation, Arguments)> {
    let (function, arguments) = callify(roots, |b| claims.contains_key(b))?;
    if let Some(param) = arguments.unbound() {
        let message = format!("{param:?} stands for nothing: it has no value here");
        return Err(Error::argument("PARAM", message));
    }
    Ok((executable::executable(&function, roots)?, arguments))
}

/// A realized value, kept from being written over.
fn held(uop: UOp) -> Tried<Value> {
    let Some((buffer, offset)) = base(&uop) else {
        return Err(broken("engine", "a realized value is no view of a buffer").into());
    };
    let Some(sizes) = uop.shape().now() else {
        return Err(broken("engine", "a size without a value").into());
    };
    let bytes = sizes.iter().product::<i64>() as usize * uop.dtype().bytes();
    let reading = versions::read(&buffer)?;
    Ok(Value {
        uop,
        reading,
        offset,
        bytes,
    })
}

/// A BUFFER on a device that holds these row-major bytes.
///
/// # Errors
/// `Memory` where there is not enough, `Shape` where the bytes are not as many as the shape holds.
pub fn upload(bytes: &[u8], shape: &Shape, dtype: DType, device: Device) -> Result<UOp> {
    let wanted = shape.max_len() as usize * dtype.bytes();
    if bytes.len() != wanted {
        let message = format!(
            "{} bytes for shape {shape} of {dtype}, which has {wanted}",
            bytes.len()
        );
        return Err(Error::shape("upload", message));
    }
    let runtime = open(device)?;
    let storage = runtime.alloc(wanted)?;
    if !bytes.is_empty() {
        runtime.upload(&storage, 0, bytes)?;
    }
    Ok(stored(shape, dtype, storage))
}

/// A BUFFER on a device, which need not be able to compile, whose row-major bytes `next` gives piece by piece.
///
/// # Errors
/// `Memory` where there is not enough, and those of `next`.
pub fn upload_pieces(
    shape: &Shape,
    dtype: DType,
    device: Device,
    next: &mut dyn FnMut(&mut [u8]) -> Result<()>,
) -> Result<UOp> {
    let wanted = shape.max_len() as usize * dtype.bytes();
    let runtime = open_for_code(device)?;
    let storage = runtime.alloc(wanted)?;
    let mut piece = vec![0; wanted.min(PIECE)];
    for at in (0..wanted).step_by(PIECE) {
        let part = &mut piece[..PIECE.min(wanted - at)];
        next(part)?;
        runtime.upload(&storage, at, part)?;
    }
    Ok(stored(shape, dtype, storage))
}

/// A new BUFFER of this shape, whose sizes vary, that holds the value of an expression: it has places for the
/// greatest sizes, and takes memory for what they are now.
///
/// # Errors
/// As `realize`; `Shape` where the shape has other elements now.
pub fn with_room(u: &UOp, shape: &Shape) -> Result<UOp> {
    let from = value(u)?;
    let now = shape.now().map(|sizes| sizes.iter().product::<i64>());
    let bytes = now.map(|n| n as usize * u.dtype().bytes());
    if bytes != Some(from.bytes()) {
        let message = format!("{shape} for the elements of shape {}", u.shape());
        return Err(Error::shape("with_room", message));
    }
    let most = shape.max_len() as usize * u.dtype().bytes();
    let device = from.reading.storage().device();
    let storage = open(device)?.alloc_within(most, from.bytes())?;
    if from.bytes() > 0 {
        let part = from.reading.storage().slice(from.offset, from.bytes());
        let part = part.ok_or_else(|| broken("engine", "a value past the end of its buffer"))?;
        let mut queues = Queues::default();
        queues.copy(&part, &storage)?;
        queues.finish()?;
    }
    Ok(stored(shape, u.dtype(), storage))
}

/// A BUFFER on DISK over a file's bytes, shape (n,) for the n values that it holds. Bytes are read when
/// something copies them.
///
/// # Errors
/// `Io` where the path is no readable file, `Shape` where its length is no whole number of values.
pub fn open_file(path: impl AsRef<Path>, dtype: DType) -> Result<UOp> {
    let storage = monoglot_device::open_file(path)?;
    if storage.bytes() % dtype.bytes() != 0 {
        let message = format!(
            "a file of {} bytes holds no whole number of {dtype}",
            storage.bytes()
        );
        return Err(Error::shape("open", message));
    }
    let shape = Shape::of(&[(storage.bytes() / dtype.bytes()) as i64]);
    Ok(stored(&shape, dtype, storage))
}

/// The roots of a run that writes nothing in place, as `resolve` gives them.
pub(crate) fn resolved(roots: &[UOp]) -> Tried<Vec<UOp>> {
    Ok(resolve(roots, &FxHashMap::default())?.0)
}

/// The roots with everything that is realized already replaced by where it is. An expression of constants
/// has no device of its own: below a root, be it one itself or not, it may be wanted on another than where it
/// was once realized, or as the number that it is. Beside them, what parameters below them begin as where nobody
/// has computed that yet.
fn resolve(roots: &[UOp], claims: &FxHashMap<UOp, Claim>) -> Tried<(Vec<UOp>, Vec<UOp>)> {
    let stored = |u: &UOp| {
        let Some(v) = u.realized().filter(|v| v != u) else {
            return Ok(None);
        };
        Ok(is_view_of_storage(&v, claims)?.then_some(v))
    };
    let free = |u: &UOp| u.device().is_none();
    let found = |u: &UOp| if free(u) { Ok(None) } else { stored(u) };
    let own = |u: &UOp| if free(u) { stored(u) } else { Ok(None) };
    let own = roots.iter().map(own).collect::<Tried<Vec<Option<UOp>>>>()?;
    // Asked once a node: what is found is held from then on, and stays.
    let mut map = FxHashMap::default();
    let mut stop = None;
    let nodes = nodes_below(roots, |u| {
        if u.op() == Op::Buffer || stop.is_some() || map.contains_key(u) {
            return false;
        }
        match found(u) {
            Ok(None) => return true,
            Ok(Some(v)) => {
                map.insert(u.clone(), v);
            }
            Err(busy) => stop = Some(busy),
        }
        false
    });
    if let Some(stop) = stop {
        return Err(stop);
    }
    let homeless = nodes.iter().any(|u| elsewhere(u).is_some());
    let beginnings = donate::beginnings(roots, &nodes);
    let each = |roots: &[UOp]| {
        let both = own.iter().zip(roots);
        both.map(|(own, u)| own.as_ref().unwrap_or(u).clone())
            .collect()
    };
    if map.is_empty() && !homeless {
        return Ok((each(roots), beginnings));
    }
    let all = UOp::sink(roots).rebuild(
        &map,
        |_| true,
        |u, mut src| {
            if u.op() == Op::Assert {
                let new = u.with_src(src);
                u.line().iter().for_each(|line| new.set_line(line));
                return new;
            }
            if u.op() != Op::After {
                return u.with_src(src);
            }
            // What an assign writes to stays a view of the base, wherever the value of that view is.
            let bases = FxHashMap::from_iter([(u.src()[0].clone(), src[0].clone())]);
            for (new, old) in src.iter_mut().zip(u.src()).skip(1) {
                if old.op() == Op::Store {
                    *new = old.src()[0].substitute(&bases).store(&new.src()[1]);
                }
            }
            let u = u.with_src(src);
            elsewhere(&u).unwrap_or(u)
        },
    );
    Ok((each(all.src()), beginnings))
}

/// A value that replaces all of a BUFFER which is no more, since another thread replaced it too: it goes
/// to a new one.
fn elsewhere(u: &UOp) -> Option<UOp> {
    let (old, value) = donate::replaced(u).filter(|(old, _)| versions::is_gone(old))?;
    let new = UOp::buffer(old.shape(), old.dtype(), old.device()?);
    Some(new.after(&[new.store(value)]))
}

/// The BUFFER that a view reads, and the byte at which it starts; None for anything else.
pub(crate) fn base(mut u: &UOp) -> Option<(UOp, usize)> {
    let mut offset = 0usize;
    loop {
        match u.op() {
            Op::Buffer => return Some((u.clone(), offset)),
            Op::Reshape => {}
            Op::Shrink => {
                let from = u.src()[0].shape().now()?;
                let at = u.dims_src(1).now()?;
                let to = u.shape().now()?;
                let first = to.iter().position(|&n| n != 1).unwrap_or(to.len());
                if (first + 1..to.len()).any(|i| from[i] != to[i]) {
                    return None;
                }
                let linear = from.iter().zip(&at).fold(0, |l, (n, o)| l * n + o);
                offset += linear as usize * u.dtype().bytes();
            }
            _ => return None,
        }
        u = &u.src()[0];
    }
}

/// Whether this shows a BUFFER that is in storage, where no other run writes over it.
fn is_view_of_storage(u: &UOp, claims: &FxHashMap<UOp, Claim>) -> Tried<bool> {
    match base(u) {
        Some((buffer, _)) => Ok(claims.contains_key(&buffer) || versions::is_here(&buffer)?),
        None => Ok(false),
    }
}
