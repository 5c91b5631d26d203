//! Derived properties, one file each, by the specification's table.

pub mod addrspace;
pub mod axis;
pub mod bounds;
pub mod device;
pub mod dtype;
pub mod ranges;
pub mod shape;
