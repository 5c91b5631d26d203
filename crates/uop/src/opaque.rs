//! Values of types that what holds them does not know. Flows in: a value; flows out: the same to who knows its
//! type, and whether it is another. Invariant: two are equal, and hash equally, as their values do.

use std::any::Any;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A shared value of any type.
#[derive(Clone)]
pub struct Opaque(Arc<dyn Held>);

trait Held: Debug + Send + Sync {
    fn any(&self) -> &dyn Any;
    fn same(&self, other: &dyn Any) -> bool;
    fn feed(&self, h: &mut dyn Hasher);
}

impl<T: Any + Eq + Hash + Debug + Send + Sync> Held for T {
    fn any(&self) -> &dyn Any {
        self
    }

    fn same(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }

    fn feed(&self, mut h: &mut dyn Hasher) {
        self.hash(&mut h);
    }
}

impl Opaque {
    /// This value.
    pub fn new<T: Any + Eq + Hash + Debug + Send + Sync>(value: T) -> Opaque {
        Opaque(Arc::new(value))
    }

    /// The value, where it is of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.any().downcast_ref()
    }
}

impl PartialEq for Opaque {
    fn eq(&self, other: &Opaque) -> bool {
        self.0.same(other.0.any())
    }
}
impl Eq for Opaque {}
impl Hash for Opaque {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.0.feed(h);
    }
}
impl Debug for Opaque {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
