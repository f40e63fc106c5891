//! Background work.

use std::rc::Rc;

use futures::future::LocalBoxFuture;

/// Spawns work that ends by itself.
pub type Spawn = Rc<dyn Fn(LocalBoxFuture<'static, ()>)>;
