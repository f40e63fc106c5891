//! The objects that pods and cached objects name, shared by the stores of pods and the cache of objects.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::core::ObjectId;
use crate::core::cluster::reference_index::ReferenceIndex;

/// The objects that are named. Clones share them.
#[derive(Clone, Default)]
pub(super) struct ObjectReferences {
    index: Arc<Mutex<ReferenceIndex>>,
    /// Notified when there are objects that are not named any more.
    released: Arc<Notify>,
}

impl ObjectReferences {
    pub(super) fn change(&self, change: impl FnOnce(&mut ReferenceIndex)) {
        let mut index = self.lock();
        change(&mut index);
        if index.has_released() {
            self.released.notify_one();
        }
    }

    pub(super) fn contains(&self, object: &ObjectId) -> bool {
        self.lock().contains(object)
    }

    /// Waits until there are objects that are not named any more, and returns them once.
    pub(super) async fn released(&self) -> BTreeSet<Arc<ObjectId>> {
        loop {
            let released = self.lock().take_released();
            if !released.is_empty() {
                return released;
            }
            self.released.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReferenceIndex> {
        // At worst, after a panic, an object counts as named by one that is gone.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
