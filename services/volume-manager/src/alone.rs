//! One at a time goes to what several pods share: the first brings it, the last takes it away.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// Locks by name. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Alone {
    busy: Arc<Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>>,
}

impl Alone {
    /// Waits until nobody else is at it.
    pub async fn with(&self, what: String) -> OwnedMutexGuard<()> {
        let lock = {
            let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            busy.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(busy.entry(what).or_default())
        };
        lock.lock_owned().await
    }
}
