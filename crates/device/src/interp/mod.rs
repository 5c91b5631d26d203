//! stub
use crate::config::Config;
use crate::runtime::*;
use crate::storage::Storage;
use monoglot_uop::*;
use std::sync::Arc;
pub struct Interp {
    target: Target,
}
pub fn target(device: Device, config: &Config) -> Target {
    crate::cpu::target(device, config)
}
impl Interp {
    pub fn cpu(device: Device, config: &Config) -> Interp {
        Interp { target: target(device, config) }
    }
    pub fn gpu(device: Device) -> Interp {
        Interp { target: target(device, &Config::default()) }
    }
}
impl Runtime for Interp {
    fn device(&self) -> Device {
        self.target.device
    }
    fn target(&self) -> &Target {
        &self.target
    }
    fn alloc(&self, bytes: usize) -> Result<Arc<Storage>> {
        Storage::host(self.target.device, bytes)
    }
    fn compile(&self, _p: &[UOp]) -> Result<Vec<Arc<dyn Kernel>>> {
        Err(Error::argument("interp", "stub"))
    }
}
