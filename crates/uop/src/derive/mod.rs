//! Derived properties, one file each, by the specification's table. Flows in: a node, or what is to
//! become one; flows out: the property. Always: it depends on op, sources and arg alone, so equal
//! nodes agree.

pub mod addrspace;
pub mod axis;
pub mod bounds;
pub mod device;
pub mod dtype;
pub mod ranges;
pub mod shape;
