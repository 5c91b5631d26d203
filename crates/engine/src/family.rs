//! Functions that differ in constants and offsets alone. Flows in: a function that no program was made
//! for; flows out: the generalised function that stands for it and the words of its variables, or
//! nothing where the function is the first of its structure and is compiled as it is.
//!
//! Invariant: a structure is compiled once for the first values that it is seen with, and again only
//! for values that the function generalised so far does not stand for.

use crate::cache::Cache;
use crate::report;
use monoglot_schedule::{Function, Guards, Lifted, lift};
use monoglot_uop::{Device, Result, Scalar, UOp};
use std::sync::{Arc, Mutex};

/// Structures that are known, at most.
const KEPT: usize = 1024;
type Key = (monoglot_schedule::Structure, Device);
static FAMILIES: Cache<Key, Arc<Mutex<Family>>> = Cache::new(KEPT);

/// What was seen of one structure.
#[derive(Default)]
struct Family {
    /// The values of each function that had to be compiled.
    seen: Vec<Vec<Scalar>>,
    general: Option<Arc<General>>,
}

/// A function for all values that its guards admit.
pub(crate) struct General {
    guards: Guards,
    pub(crate) function: Function,
    pub(crate) key: UOp,
}

/// The generalised function that stands for this one, and its words; None where this is to be compiled
/// as it is. `roots` are the function's as the user wrote them, for reports.
pub(crate) fn general(
    function: &Function,
    device: Device,
    roots: &[UOp],
) -> Result<Option<(Arc<General>, Vec<i64>)>> {
    let Lifted {
        structure,
        values,
        kinds,
    } = lift(function);
    if values.is_empty() {
        return Ok(None);
    }
    let key = (structure, device);
    let family = FAMILIES.get(&key, || Ok(Arc::default()))?;
    let mut family = family.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(general) = &family.general
        && let Some(words) = general.guards.words(&values)
    {
        return Ok(Some((general.clone(), words)));
    }
    match family.seen.first() {
        None => {
            family.seen.push(values);
            return Ok(None);
        }
        // Its program was made, and is no longer kept.
        Some(first) if *first == values => return Ok(None),
        Some(first) => report::varies(roots, first, &values),
    }
    family.seen.push(values.clone());
    let before = family.general.as_ref().map(|g| &g.guards);
    let guards = Guards::new(&kinds, &family.seen, before);
    let function = guards.generalise(function);
    let words = guards.words(&values);
    let general = Arc::new(General {
        key: function.key(),
        guards,
        function,
    });
    family.general = Some(general.clone());
    Ok(words.map(|words| (general, words)))
}
