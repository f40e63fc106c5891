//! The last known manifests of the objects that pods refer to, and their records on disk: with
//! them pods start, and containers restart, during an outage of the API server. They stay while a pod
//! names the object, or another cached object does, watched or not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use polylet_kit::config::KeepSecrets;
use serde::{Deserialize, Serialize};

use super::object_references::ObjectReferences;
use crate::core::ObjectId;
use crate::persist::{KeyedLog, RecordSource};

/// Existing objects, which are persisted, Secrets as configured. Clones share them.
#[derive(Clone)]
pub(crate) struct ObjectCache {
    manifests: Arc<Mutex<BTreeMap<ObjectId, Bytes>>>,
    keep_secrets: KeepSecrets,
    log: KeyedLog<ObjectId>,
    /// What the objects name.
    references: ObjectReferences,
}

/// An object in the log: JSON in a JSON string.
#[derive(Serialize, Deserialize)]
pub(crate) struct ObjectRecord(String);

impl RecordSource<ObjectId> for ObjectCache {
    type Record = ObjectRecord;

    fn keys(&self) -> Vec<ObjectId> {
        let keep_secrets = self.keep_secrets;
        let manifests = self.lock();
        let persisted = manifests
            .keys()
            .filter(|key| key.is_persisted(keep_secrets));
        persisted.cloned().collect()
    }

    fn record(&self, key: &ObjectId) -> Option<ObjectRecord> {
        if !key.is_persisted(self.keep_secrets) {
            return None;
        }
        let manifest = self.get(key)?;
        Some(ObjectRecord(
            String::from_utf8_lossy(&manifest).into_owned(),
        ))
    }
}

impl ObjectCache {
    /// Loads the objects in the log. Those that may not be persisted any more are removed from it.
    pub(super) fn load(
        log: KeyedLog<ObjectId>,
        keep_secrets: KeepSecrets,
        references: ObjectReferences,
    ) -> ObjectCache {
        let records = log.load(|key, _: &ObjectRecord| {
            key.is_persisted(keep_secrets) || {
                log.schedule(key.clone());
                false
            }
        });
        let manifest = |ObjectRecord(text)| text.into_boxed_str().into_boxed_bytes().into();
        let manifests = records.into_iter().map(|(key, it)| (key, manifest(it)));
        let manifests: BTreeMap<ObjectId, Bytes> = manifests.collect();
        for (key, manifest) in &manifests {
            references.change(|index| index.set_object(key, manifest));
        }
        ObjectCache {
            manifests: Arc::new(Mutex::new(manifests)),
            keep_secrets,
            log,
            references,
        }
    }

    pub(super) fn get(&self, key: &ObjectId) -> Option<Bytes> {
        self.lock().get(key).cloned()
    }

    /// Sets an object, or its absence with `None`.
    pub(super) fn set(&self, key: &ObjectId, manifest: Option<&Bytes>) {
        let mut manifests = self.lock();
        let changed = match manifest {
            Some(manifest) => {
                let before = manifests.insert(key.clone(), manifest.clone());
                before.as_ref() != Some(manifest)
            }
            None => manifests.remove(key).is_some(),
        };
        if changed {
            self.references.change(|index| match manifest {
                Some(manifest) => index.set_object(key, manifest),
                None => index.remove_object(key),
            });
        }
        drop(manifests);
        if changed {
            self.log.schedule(key.clone());
        }
    }

    /// Keeps those that `needed` accepts.
    pub(super) fn retain(&self, needed: impl Fn(&ObjectId) -> bool) {
        self.lock().retain(|key, _| {
            let keep = needed(key);
            if !keep {
                self.references.change(|index| index.remove_object(key));
                self.log.schedule_lazy(key.clone());
            }
            keep
        });
    }

    /// Removes an object that nothing needs any more.
    pub(super) fn remove(&self, key: &ObjectId) {
        let mut manifests = self.lock();
        if manifests.remove(key).is_some() {
            self.references.change(|index| index.remove_object(key));
            self.log.schedule_lazy(key.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectId, Bytes>> {
        // Every change under the lock is complete in itself.
        self.manifests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "object_cache_tests.rs"]
mod tests;
