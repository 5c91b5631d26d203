//! Realize: from roots to BUFFERs. What is realized already is found again, the rest becomes a
//! function, its program runs, and every root remembers weakly where its value is.

use crate::counters::count;
use crate::donate;
use crate::program::{self, Bound, Slot, Step, Work, broken};
use crate::queues::Queues;
use crate::report;
use monoglot_device::{Storage, open};
use monoglot_schedule::{Arguments, callify};
use monoglot_uop::graph::toposort_many;
use monoglot_uop::{
    AddrSpace, Arg, BufferArg, DType, Device, Error, ErrorKind, Op, Result, Shape, UOp,
};
use rustc_hash::FxHashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// One realize at a time: who holds what must not change between looking and running.
static ONE: Mutex<()> = Mutex::new(());

/// What is left of a BUFFER whose next version took over its storage.
struct Taken;

/// The values of these roots, each as a BUFFER or a view that reads one, of the root's shape and dtype.
///
/// # Errors
/// Whatever the compiler, the device or its memory say; then nothing was changed.
pub fn realize(roots: &[UOp]) -> Result<Vec<UOp>> {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let exclusive = donate::exclusive(roots);
    let resolved = resolve(roots);
    if resolved.iter().all(is_view_of_storage) {
        return Ok(resolved);
    }
    let (function, arguments) = callify(&resolved, |b| exclusive.contains(b))?;
    let bound = program::program(&function, &resolved)?;
    let results = run(&bound, &arguments)?;
    let mut out = Vec::with_capacity(roots.len());
    for ((root, given), (value, in_place)) in roots.iter().zip(&resolved).zip(results) {
        if *root != value {
            root.set_realized(&value, in_place);
        }
        if given != root && *given != value {
            given.set_realized(&value, in_place);
        }
        out.push(value);
    }
    Ok(out)
}

/// The row-major bytes of a value, realized first where it must be, without rebinding anything.
///
/// # Errors
/// As `realize`; and where the device cannot be read.
pub fn read(u: &UOp) -> Result<Vec<u8>> {
    let value = realize(std::slice::from_ref(u))?.remove(0);
    let (buffer, offset) =
        base(&value).ok_or_else(|| broken("engine", "a realized value is no view of a buffer"))?;
    let storage = storage_of(&buffer)?;
    let sizes = value.shape().now();
    let sizes = sizes.ok_or_else(|| broken("engine", "a size without a value"))?;
    let mut out = vec![0; sizes.iter().product::<i64>() as usize * value.dtype().bytes()];
    if !out.is_empty() {
        open(storage.device())?.download(&storage, offset, &mut out)?;
    }
    Ok(out)
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

/// A BUFFER in this storage, of its device.
fn stored(shape: &Shape, dtype: DType, storage: Arc<Storage>) -> UOp {
    let buffer = UOp::buffer(shape, dtype, storage.device());
    buffer.set_storage(storage);
    buffer
}

/// The roots with everything that is realized already replaced by where it is. An expression of constants
/// has no device of its own: below a root it may be wanted on another than where it was once realized.
fn resolve(roots: &[UOp]) -> Vec<UOp> {
    let free = |u: &UOp| u.device().is_none() && !roots.contains(u);
    let found = |u: &UOp| {
        u.realized()
            .filter(|v| v != u && is_view_of_storage(v) && !free(u))
    };
    let mut map = FxHashMap::default();
    for u in toposort_many(roots, |u| u.op() != Op::Buffer && found(u).is_none()) {
        if let Some(v) = found(&u) {
            map.insert(u, v);
        }
    }
    if map.is_empty() {
        return roots.to_vec();
    }
    UOp::sink(roots).substitute(&map).src().to_vec()
}

/// The BUFFER that a view reads, and the byte at which it starts; None for anything else.
fn base(u: &UOp) -> Option<(UOp, usize)> {
    let (mut u, mut offset) = (u, 0usize);
    loop {
        match u.op() {
            Op::Buffer => return Some((u.clone(), offset)),
            Op::Reshape => {}
            Op::Shrink => {
                let (from, at, to) = (
                    u.src()[0].shape().now()?,
                    u.dims_src(1).now()?,
                    u.shape().now()?,
                );
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

fn is_view_of_storage(u: &UOp) -> bool {
    base(u).is_some_and(|(b, _)| b.storage().is_some_and(|s| s.is::<Storage>()))
}

fn storage_of(buffer: &UOp) -> Result<Arc<Storage>> {
    match buffer.storage().map(|s| s.downcast::<Storage>()) {
        Some(Ok(s)) => Ok(s),
        Some(Err(_)) => {
            let message =
                "this value was overwritten by an assign while it was being read by another thread"
                    .into();
            Err(Error::new(ErrorKind::Run { message }))
        }
        None => {
            // A tensor without data: its contents are whatever the memory holds.
            let device = buffer
                .device()
                .ok_or_else(|| broken("engine", "a buffer without a device"))?;
            let bytes = buffer.shape().max_len() as usize * buffer.dtype().bytes();
            let storage = open(device)?.alloc(bytes)?;
            buffer.set_storage(storage.clone());
            Ok(storage)
        }
    }
}

/// The value of each root, and whether it is in storage that was written in place.
fn run(bound: &Bound, arguments: &Arguments) -> Result<Vec<(UOp, bool)>> {
    let program = &bound.program;
    let params = &arguments.buffers;
    let lengths = arguments.variables.iter().filter_map(UOp::bound_to);
    let words: Vec<i64> = lengths.chain(bound.words.iter().copied()).collect();
    // In what is seen from outside, lengths are bound variables again, and offsets are numbers.
    let outside = |_: &UOp, slot: u64| {
        let k = (slot as usize).checked_sub(params.len());
        let length = k.and_then(|k| arguments.variables.get(k).cloned());
        Ok(length.or_else(|| Some(UOp::index_const(*words.get(k?)?))))
    };
    let inputs: Vec<Arc<Storage>> = params.iter().map(storage_of).collect::<Result<_>>()?;
    let mut places = Vec::with_capacity(program.places.len());
    for p in &program.places {
        places.push(open(p.device)?.alloc(p.bytes)?);
    }
    let mut queues = Queues::default();
    for step in &program.steps {
        submit(step, &inputs, &places, &words, &mut queues)?;
    }
    queues.finish()?;
    let mut leaves: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut out = Vec::with_capacity(program.outputs.len());
    for view in &program.outputs {
        let view = &view.with_variables(outside)?;
        let leaf =
            leaf(view).ok_or_else(|| broken("engine", "an output is no view of a buffer"))?;
        let slot = leaf.buffer_arg().map_or(0, |b| b.slot as usize);
        let in_place = leaf.op() == Op::Param && program.written[slot];
        let buffer = leaves
            .entry(leaf.clone())
            .or_insert_with(|| match leaf.op() {
                Op::Param if !in_place => params[slot].clone(),
                Op::Param => next_version(&params[slot], &leaf, &inputs[slot]),
                _ => stored(leaf.shape(), leaf.dtype(), places[slot].clone()),
            });
        let value = view.substitute(&FxHashMap::from_iter([(leaf, buffer.clone())]));
        out.push((value, in_place));
    }
    Ok(out)
}

fn leaf(view: &UOp) -> Option<UOp> {
    let mut u = view;
    while !matches!(u.op(), Op::Param | Op::Buffer) {
        u = u.src().first()?;
    }
    Some(u.clone())
}

/// The next version of a BUFFER, in its storage.
fn next_version(old: &UOp, leaf: &UOp, storage: &Arc<Storage>) -> UOp {
    let Arg::Buffer(b) = old.arg() else {
        return old.clone();
    };
    let arg = BufferArg {
        version: b.version + 1,
        addrspace: Some(AddrSpace::Global),
        ..*b
    };
    let new = UOp::new(Op::Buffer, vec![UOp::dims(leaf.shape())], Arg::Buffer(arg));
    old.set_storage(Arc::new(Taken));
    new.set_storage(storage.clone());
    new
}

/// Give a step to the queue of its device.
fn submit(
    step: &Step,
    inputs: &[Arc<Storage>],
    places: &[Arc<Storage>],
    words: &[i64],
    queues: &mut Queues,
) -> Result<()> {
    let storage = |slot: &Slot| match *slot {
        Slot::Param(i) => Some(&inputs[i]),
        Slot::Place(i) => Some(&places[i]),
        Slot::Word(_) => None,
    };
    let word = |slot: &Slot| match *slot {
        Slot::Word(i) => Some(words[i]),
        _ => None,
    };
    match &step.work {
        Work::Launch(kernel) => {
            count(|c| &c.launches);
            let bufs: Vec<Arc<Storage>> = step.args.iter().filter_map(storage).cloned().collect();
            let vars: Vec<i64> = step.args.iter().filter_map(word).collect();
            report::step(step, queues, |q| {
                q.launch(step.device, kernel, &bufs, &vars)
            })
        }
        Work::Copy {
            from,
            element,
            bytes,
        } => {
            count(|c| &c.copies);
            let args = (0..).zip(&step.args);
            let vars: Vec<(u64, i64)> = args.filter_map(|(k, a)| Some((k, word(a)?))).collect();
            let start = from.sym_infer(&vars)? as usize * element;
            let [Some(to), Some(source)] = [&step.args[0], &step.args[1]].map(storage) else {
                return Err(broken("engine", "a copy between values"));
            };
            let part = source.slice(start, *bytes);
            let part =
                part.ok_or_else(|| broken("engine", "a copy reads past the end of its source"))?;
            report::step(step, queues, |q| q.copy(&part, to))
        }
    }
}
