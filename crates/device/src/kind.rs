//! What an entry of the registry is: a kind of device, and what opens one of a name. Flows in: the parts
//! of a name and settings; flows out: an opened device, or the error of one that is not there. Always: a
//! kind knows nothing of the others.

use crate::config::Config;
use crate::runtime::Runtime;
use monoglot_uop::{Device, Error, ErrorKind, Result};
use std::sync::Arc;

/// A kind of device.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// What names of its devices begin with, in upper case; a part after a colon belongs to it where a
    /// kind is so named (`INTERP:GPU`).
    pub name: &'static str,
    /// What its programs can be written in, the usual one first.
    pub renderers: &'static [&'static str],
    /// Open one with these settings.
    pub open: fn(&Name, &Config) -> Result<Arc<dyn Runtime>>,
}

/// The name of a device, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// The device.
    pub device: Device,
    /// Which of its kind.
    pub number: u32,
    /// What its programs are written in; None: the usual.
    pub renderer: Option<&'static str>,
    /// The instruction set, in the words of what compiles for it; None: this machine's.
    pub arch: Option<&'static str>,
}

/// The error of a device that is not there.
pub(crate) fn missing(device: Device, message: impl Into<String>) -> Error {
    ErrorKind::NoDevice {
        device: device.name().into(),
        message: message.into(),
    }
    .into()
}
