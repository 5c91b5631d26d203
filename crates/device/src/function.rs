//! Functions of a process as steps of programs. Flows in: a function on host memory, and the types of its
//! arguments; flows out: a `Kernel` that calls it. Invariant: the function gets each argument as a slice of
//! elements, outputs apart from all others, while its storage is claimed; a panic of it is an error.

use crate::kernel::{Arguments, Kernel, Signature};
use half::{bf16, f16};
use monoglot_uop::{DType, Result, Shape};
use std::any::Any;
use std::cell::RefCell;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What a function of a process may fail with: anything that `?` takes.
pub type Failure = Box<dyn Error + Send + Sync>;

/// A function of a process: it reads the inputs and writes the outputs.
pub struct HostFunction(Box<Call>);

type Call = dyn Fn(&mut HostArguments) -> std::result::Result<(), Failure> + Send + Sync;

/// What a call of such a function is given.
pub struct HostArguments<'a> {
    outputs: Vec<Option<Array<'a>>>,
    inputs: Vec<Array<'a>>,
}

/// An argument in host memory.
struct Array<'a> {
    dtype: DType,
    shape: Vec<usize>,
    start: *mut u8,
    len: usize,
    _held: std::marker::PhantomData<&'a mut [u8]>,
}

/// An element as a function of a process has it in slices. Bools are bytes, 0 or 1.
///
/// # Safety
/// Any bytes are a value of the type, and it has the size of the dtype, of whose address it needs no more
/// than to be a multiple.
pub unsafe trait HostElement: Copy + 'static {
    /// The dtypes whose elements it is.
    const DTYPES: &'static [DType];
}

macro_rules! elements {
    ($($t:ty => $($d:ident)|+;)*) => { $(
        // SAFETY: numbers, of which any bytes are one, and as large as the dtype.
        unsafe impl HostElement for $t {
            const DTYPES: &'static [DType] = &[$(DType::$d),+];
        }
    )* };
}
elements! {
    i8 => I8;
    i16 => I16;
    i32 => I32;
    i64 => I64;
    u8 => U8 | Bool;
    u16 => U16;
    u32 => U32;
    u64 => U64;
    f16 => F16;
    bf16 => BF16;
    f32 => F32;
    f64 => F64;
}

thread_local! {
    /// The function that runs on this thread.
    static RUNNING: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The name of the function of a process that runs on this thread, within a program.
pub fn running() -> Option<String> {
    RUNNING.with_borrow(Option::clone)
}

impl HostFunction {
    /// That of a closure.
    pub fn new(
        call: impl Fn(&mut HostArguments) -> std::result::Result<(), Failure> + Send + Sync + 'static,
    ) -> HostFunction {
        HostFunction(Box::new(call))
    }
}

impl Array<'_> {
    fn fits<T: HostElement>(&self, what: &str, k: usize) -> std::result::Result<(), Failure> {
        if T::DTYPES.contains(&self.dtype) {
            return Ok(());
        }
        let asked = std::any::type_name::<T>();
        Err(format!("{what} {k} is of {}, not of {asked}", self.dtype).into())
    }
}

impl<'a> HostArguments<'a> {
    /// How many inputs there are.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The elements of an input, row-major.
    ///
    /// # Errors
    /// Where there is no such input, or its elements are of another type.
    pub fn input<T: HostElement>(&self, k: usize) -> std::result::Result<&'a [T], Failure> {
        let n = self.inputs.len();
        let missing = || format!("there is no input {k} of {n}");
        let array = self.inputs.get(k).ok_or_else(missing)?;
        array.fits::<T>("input", k)?;
        if array.len == 0 {
            return Ok(&[]);
        }
        // SAFETY: so many elements are there, of any bytes, and claimed to be read for 'a; the outputs, which
        // alone are written, lie elsewhere (`HostKernel::run`).
        Ok(unsafe { std::slice::from_raw_parts(array.start.cast(), array.len) })
    }

    /// The sizes of an input's axes.
    pub fn input_shape(&self, k: usize) -> Option<&[usize]> {
        self.inputs.get(k).map(|a| &a.shape[..])
    }

    /// The sizes of an output's axes; None once that was taken.
    pub fn output_shape(&self, k: usize) -> Option<&[usize]> {
        Some(&self.outputs.get(k)?.as_ref()?.shape[..])
    }

    /// Take an output, whose elements are as it begins: 0, or what was given. Each can be taken once.
    ///
    /// # Errors
    /// Where there is no such output, it was taken, or its elements are of another type.
    pub fn output<T: HostElement>(
        &mut self,
        k: usize,
    ) -> std::result::Result<&'a mut [T], Failure> {
        let n = self.outputs.len();
        let Some(place) = self.outputs.get_mut(k) else {
            return Err(format!("there is no output {k} of {n}").into());
        };
        let Some(array) = place else {
            return Err(format!("output {k} was taken before").into());
        };
        array.fits::<T>("output", k)?;
        let start = array.start;
        let len = array.len;
        *place = None;
        if len == 0 {
            return Ok(&mut []);
        }
        // SAFETY: so many elements are there, of any bytes, claimed to be written for 'a, apart from all other
        // arguments (`HostKernel::run`), and given out this once.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.cast(), len) })
    }
}

/// A function of a process, as a step of a program.
pub struct HostKernel {
    function: Arc<HostFunction>,
    name: String,
    types: Vec<(DType, Shape)>,
    outs: usize,
    signature: Signature,
}

impl HostKernel {
    /// That of a function on arguments of these types, of which the first `outs` are outputs.
    pub fn new(
        name: &str,
        function: Arc<HostFunction>,
        types: Vec<(DType, Shape)>,
        outs: usize,
    ) -> HostKernel {
        let sizes = types.iter().map(|(dtype, shape)| (*dtype, shape.max_len()));
        HostKernel {
            signature: Signature::of_arrays(name, sizes, outs),
            name: name.into(),
            function,
            types,
            outs,
        }
    }

    fn array(&self, k: usize, start: *mut u8) -> Array<'_> {
        let (dtype, shape) = &self.types[k];
        Array {
            dtype: *dtype,
            shape: shape.max_ints().into_iter().map(|n| n as usize).collect(),
            start,
            len: shape.max_len() as usize,
            _held: std::marker::PhantomData,
        }
    }

    /// Whether two arguments have bytes in common.
    fn meet(&self, ptrs: &[*mut u8], a: usize, b: usize) -> bool {
        let range = |k: usize| {
            let (dtype, shape) = &self.types[k];
            let start = ptrs[k] as usize;
            start..start + shape.max_len() as usize * dtype.bytes()
        };
        let one = range(a);
        let other = range(b);
        one.start < other.end && other.start < one.end
    }
}

/// What a panic said.
fn told(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

impl Kernel for HostKernel {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, args: &Arguments) -> Result<()> {
        let ptrs = &args.ptrs;
        for a in 0..self.outs {
            for b in a + 1..ptrs.len() {
                if self.meet(ptrs, a, b) {
                    let message = format!("arguments {a} and {b} share memory, and {a} is written");
                    return Err(self.signature.fail(message));
                }
            }
        }
        let mut all = ptrs.iter().enumerate().map(|(k, &p)| self.array(k, p));
        let mut given = HostArguments {
            outputs: all.by_ref().take(self.outs).map(Some).collect(),
            inputs: all.collect(),
        };
        let outer = RUNNING.replace(Some(self.name.clone()));
        let done = catch_unwind(AssertUnwindSafe(|| (self.function.0)(&mut given)));
        RUNNING.set(outer);
        match done {
            Ok(Ok(())) => self.truth(ptrs),
            Ok(Err(e)) => return Err(self.signature.fail(e)),
            Err(panic) => {
                let message = format!("it panicked: {}", told(&*panic));
                return Err(self.signature.fail(message));
            }
        }
        Ok(())
    }
}

impl HostKernel {
    /// Bools are 0 or 1, whatever the function wrote.
    fn truth(&self, ptrs: &[*mut u8]) {
        for (k, &start) in ptrs[..self.outs].iter().enumerate() {
            let (dtype, shape) = &self.types[k];
            if *dtype != DType::Bool || shape.max_len() == 0 {
                continue;
            }
            let len = shape.max_len() as usize;
            // SAFETY: an output's bytes, claimed to be written; what the function had of them has ended.
            let bytes = unsafe { std::slice::from_raw_parts_mut(start, len) };
            bytes.iter_mut().for_each(|b| *b = u8::from(*b != 0));
        }
    }
}
