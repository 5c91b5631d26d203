//! The storage of BUFFERs, shared by runs. Flows in: BUFFERs that a run reads, and those whose next
//! version it may write over them; flows out: their storage, for as long as the run holds it.
//!
//! Invariant: a version that somebody reads is written by nobody: readers share it, and one who claims
//! it has it alone. Nobody waits for a version while he holds another, so no two runs wait for each
//! other. A claim ends in a next version, which has the storage from then on; or, where nothing was
//! written yet, in the version as it was, unless the next one was promised.

use crate::idle::{self, Standing};
use crate::wrong::Wrong;
use monoglot_device::{Storage, open};
use monoglot_uop::{DType, Device, Error, ErrorKind, Result, Shape, UOp};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Why a run must stop.
pub(crate) enum Stop {
    /// For good.
    Failed(Error),
    /// Another run has claimed this version; once that has ended, try again.
    Busy(Arc<Version>),
    /// For good, by data that an ASSERT forbids.
    Wrong(Wrong),
    /// The next version has this one's storage. What was made of this one may have become known since it
    /// was looked for.
    Taken(Arc<Version>),
}

/// What a run, or a part of it, gives.
pub(crate) type Tried<T> = std::result::Result<T, Stop>;

impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop::Failed(e)
    }
}

/// What hangs in the cell of a BUFFER. With the BUFFER goes what calls that are not running keep of its version.
struct Owned(Arc<Version>);

/// What a BUFFER holds.
pub(crate) struct Version {
    state: Mutex<State>,
    /// Notified when a claim has ended.
    ended: Condvar,
}

enum State {
    /// What a captured function is called with, while it is captured: it has a value in calls alone.
    StandIn,
    /// A tensor without data: what it holds is whatever the memory holds.
    Empty,
    /// The storage, and how many read it now.
    Here(Arc<Storage>, usize),
    /// Somebody may write over the storage now.
    Claimed,
    /// The next version has the storage.
    Taken,
    /// A run that wrote over it failed: why.
    Lost(String),
}

/// A version that is being read.
pub(crate) struct Reading {
    version: Arc<Version>,
    storage: Arc<Storage>,
}

/// A version that may be written over.
pub(crate) struct Claim {
    version: Arc<Version>,
    storage: Arc<Storage>,
    /// What the version is when the claim is dropped.
    then: Option<State>,
    /// The next version where that was promised, and what it is then.
    next: Option<(Arc<Version>, State)>,
}

/// A BUFFER in this storage, of its device.
pub(crate) fn stored(shape: &Shape, dtype: DType, storage: Arc<Storage>) -> UOp {
    let buffer = UOp::buffer(shape, dtype, storage.device());
    give(&buffer, storage);
    buffer
}

/// A BUFFER that stands for what a captured function will be called with.
pub(crate) fn stand_in(shape: &Shape, dtype: DType, device: Device) -> UOp {
    let buffer = UOp::buffer(shape, dtype, device);
    buffer.set_storage(Owned::new(State::StandIn));
    buffer
}

/// The error of asking for the value of a stand-in.
fn unknown() -> Error {
    let message =
        "this depends on what the captured function is called with or reaches, which has a value \
                   only in a call: return it, and read what the call gives"
            .into();
    ErrorKind::Capture { message }.into()
}

/// Give a new BUFFER its storage.
pub(crate) fn give(buffer: &UOp, storage: Arc<Storage>) {
    buffer.set_storage(Owned::new(State::Here(storage, 0)));
}

/// Whether a BUFFER's value is in storage.
///
/// # Errors
/// `Busy` while it is claimed: then the answer is not known yet.
pub(crate) fn is_here(buffer: &UOp) -> Tried<bool> {
    let Some(version) = known(buffer) else {
        return Ok(false);
    };
    let state = version.lock();
    match *state {
        State::Here(..) => Ok(true),
        State::Claimed => {
            drop(state);
            Err(Stop::Busy(version))
        }
        State::StandIn | State::Empty | State::Taken | State::Lost(_) => Ok(false),
    }
}

/// Whether the value of a BUFFER is no more.
pub(crate) fn is_gone(buffer: &UOp) -> bool {
    known(buffer).is_some_and(|v| matches!(*v.lock(), State::Taken | State::Lost(_)))
}

/// Read a BUFFER, which gets storage if it has none.
///
/// # Errors
/// `Busy` while it is claimed, `Taken` once it is the next version's; failed where it is lost, or where
/// there is no memory for it.
pub(crate) fn read(buffer: &UOp) -> Tried<Reading> {
    let version = version(buffer);
    let mut state = version.lock();
    state.fill(buffer)?;
    let storage = match &mut *state {
        State::Here(storage, readers) => {
            *readers += 1;
            storage.clone()
        }
        State::StandIn => return Err(unknown().into()),
        State::Lost(why) => return Err(gone(why).into()),
        State::Claimed => {
            drop(state);
            return Err(Stop::Busy(version));
        }
        State::Empty | State::Taken => {
            drop(state);
            return Err(Stop::Taken(version));
        }
    };
    drop(state);
    Ok(Reading { version, storage })
}

/// Claim a BUFFER; None where others read it, or where it is no more.
///
/// # Errors
/// `Busy` while it is claimed; failed where there is no memory for it.
pub(crate) fn claim(buffer: &UOp) -> Tried<Option<Claim>> {
    let version = version(buffer);
    let mut state = version.lock();
    state.fill(buffer)?;
    if state.is_read() {
        drop(state);
        idle::let_go(version.place());
        state = version.lock();
    }
    let storage = match &*state {
        State::Here(storage, 0) => storage.clone(),
        State::Claimed => {
            drop(state);
            return Err(Stop::Busy(version));
        }
        _ => return Ok(None),
    };
    *state = State::Claimed;
    drop(state);
    let then = Some(State::Here(storage.clone(), 0));
    Ok(Some(Claim {
        version,
        storage,
        then,
        next: None,
    }))
}

/// The version of a BUFFER, if it has one.
pub(crate) fn known(buffer: &UOp) -> Option<Arc<Version>> {
    let held = buffer.storage()?.downcast::<Owned>().ok()?;
    Some(held.0.clone())
}

fn version(buffer: &UOp) -> Arc<Version> {
    let held = buffer.storage_or(|| Owned::new(State::Empty));
    let held = held
        .downcast::<Owned>()
        .expect("only this file gives storage to BUFFERs");
    held.0.clone()
}

/// The error of reading what is no more.
pub(crate) fn gone(why: &str) -> Error {
    let message = format!("the value of a buffer is no more: {why}");
    ErrorKind::Run { message }.into()
}

impl Owned {
    fn new(state: State) -> Arc<Owned> {
        Arc::new(Owned(Version::new(state)))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.0.lock().is_read() {
            idle::let_go(self.0.place());
        }
    }
}

impl Version {
    fn new(state: State) -> Arc<Version> {
        Arc::new(Version {
            state: Mutex::new(state),
            ended: Condvar::new(),
        })
    }

    /// Where it is: what tells it from others that live.
    fn place(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A state is replaced as a whole: whatever panicked, it is one.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Wait until nobody claims it.
    pub(crate) fn wait(&self) {
        let mut state = self.lock();
        while matches!(*state, State::Claimed) {
            state = self.ended.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }
}

impl State {
    fn is_read(&self) -> bool {
        matches!(self, State::Here(_, 1..))
    }

    fn fill(&mut self, buffer: &UOp) -> Result<()> {
        if matches!(self, State::Empty) {
            let device = buffer.device().unwrap_or_else(crate::default_device);
            let bytes = buffer.shape().max_len() as usize * buffer.dtype().bytes();
            *self = State::Here(open(device)?.alloc(bytes)?, 0);
        }
        Ok(())
    }
}

impl Reading {
    /// What is read of the version from this byte on, from call to call, while what holds it has this edition.
    pub(crate) fn standing(self, offset: usize, edition: u64) -> Option<Standing> {
        let rest = self.storage.bytes().checked_sub(offset)?;
        let part = self.storage.slice(offset, rest)?;
        let version = self.version.place();
        Some(Standing::new(edition, part, version, self))
    }

    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let State::Here(_, readers) = &mut *self.version.lock() {
            *readers -= 1;
        }
    }
}

impl Claim {
    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// From now on the storage is written: if nothing follows, the value is lost.
    pub(crate) fn begin(&mut self) {
        let why = "a run that wrote over it in place failed".into();
        let after = match &mut self.next {
            Some((_, after)) => after,
            None => self.then.get_or_insert(State::Taken),
        };
        *after = State::Lost(why);
    }

    /// Promise the storage to the next version, whatever it holds by the end of the claim: until then, who
    /// wants that waits.
    pub(crate) fn promise(&mut self, next: &UOp) {
        let version = Version::new(State::Claimed);
        next.set_storage(Arc::new(Owned(version.clone())));
        self.next = Some((version, State::Here(self.storage.clone(), 0)));
        self.then = Some(State::Taken);
    }

    /// Take a promise back: nobody has heard of it.
    pub(crate) fn withdraw(&mut self) {
        self.next = None;
        self.then = Some(State::Here(self.storage.clone(), 0));
    }

    /// What was begun has been done.
    pub(crate) fn done(&mut self) {
        if let Some((_, after)) = &mut self.next {
            *after = State::Here(self.storage.clone(), 0);
        }
    }

    /// Give the storage to the next version, and with the end of the claim take it from this one.
    pub(crate) fn hand_over(&mut self, next: &UOp) {
        give(next, self.storage.clone());
        self.then = Some(State::Taken);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some((next, after)) = self.next.take() {
            *next.lock() = after;
            next.ended.notify_all();
        }
        if let Some(then) = self.then.take() {
            *self.version.lock() = then;
        }
        self.version.ended.notify_all();
    }
}
