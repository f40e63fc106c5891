//! The evictions in progress, stored so that they survive a restart.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use polylet_kit::state_file::{StateFile, StateFileError};
use polylet_wire::common::v1::PodRef;
use polylet_wire::eviction::v1 as wire;
use polylet_wire::time;
use serde::{Deserialize, Serialize};

/// Version of the format of `evictions.json`.
pub(crate) const VERSION: u32 = 1;

/// The evictions of pods that have not terminated yet, by pod uid.
pub struct Evictions {
    store: Box<dyn EvictionStore>,
    current: BTreeMap<String, wire::Eviction>,
}

/// Where evictions are stored.
pub trait EvictionStore {
    /// Replaces the stored evictions.
    ///
    /// # Errors
    /// When they cannot be written. The stored evictions are unchanged then.
    fn save(&self, evictions: &BTreeMap<String, wire::Eviction>) -> Result<(), StateFileError>;
}

/// A file in the run directory.
struct EvictionFile(StateFile<Vec<PersistedEviction>>);

impl EvictionStore for EvictionFile {
    fn save(&self, evictions: &BTreeMap<String, wire::Eviction>) -> Result<(), StateFileError> {
        self.0
            .save(&evictions.values().map(PersistedEviction::from).collect())
    }
}

#[derive(Serialize, Deserialize)]
struct PersistedEviction {
    uid: String,
    namespace: String,
    name: String,
    resource: i32,
    grace_seconds: u32,
    message: String,
    decided_at: Timestamp,
    disruption_target: bool,
}

impl Evictions {
    /// Loads the stored evictions. A corrupt file is set aside: pods are evicted again while a
    /// threshold is met.
    ///
    /// # Errors
    /// The file cannot be read, or a newer build wrote it.
    pub(crate) fn load(path: PathBuf) -> Result<Self, StateFileError> {
        let file: StateFile<Vec<PersistedEviction>> = StateFile::new(path, VERSION);
        let stored = file
            .restore("evictions in progress are forgotten")?
            .unwrap_or_default();
        let current = stored
            .into_iter()
            .map(|eviction| (eviction.uid.clone(), eviction.into()))
            .collect();
        Ok(Self::new(Box::new(EvictionFile(file)), current))
    }

    /// Starts with `current`, which is in the store.
    pub fn new(store: Box<dyn EvictionStore>, current: BTreeMap<String, wire::Eviction>) -> Self {
        Self { store, current }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &wire::Eviction)> {
        self.current.iter()
    }

    pub(crate) fn contains(&self, uid: &str) -> bool {
        self.current.contains_key(uid)
    }

    /// Adds an eviction, after it was stored.
    ///
    /// # Errors
    /// When it cannot be stored; it is not added then.
    pub(crate) fn add(
        &mut self,
        uid: &str,
        eviction: wire::Eviction,
    ) -> Result<(), StateFileError> {
        let mut next = self.current.clone();
        next.insert(uid.to_owned(), eviction);
        self.store.save(&next)?;
        self.current = next;
        Ok(())
    }

    /// Removes the eviction of a pod that has terminated.
    pub(crate) fn withdraw(&mut self, uid: &str) {
        if self.current.remove(uid).is_none() {
            return;
        }
        if let Err(error) = self.store.save(&self.current) {
            // After a restart it is loaded and withdrawn again.
            tracing::warn!(
                pod_uid = uid,
                error = polylet_kit::report(&error),
                "failed to remove withdrawn eviction from disk"
            );
        }
    }
}

impl From<&wire::Eviction> for PersistedEviction {
    fn from(eviction: &wire::Eviction) -> Self {
        let pod = eviction.pod.clone().unwrap_or_default();
        Self {
            uid: pod.uid,
            namespace: pod.namespace,
            name: pod.name,
            resource: eviction.resource,
            grace_seconds: eviction.grace_seconds,
            message: eviction.message.clone(),
            decided_at: time::from_wire_opt(eviction.decided_at.as_ref()).unwrap_or_default(),
            disruption_target: eviction.disruption_target,
        }
    }
}

impl From<PersistedEviction> for wire::Eviction {
    fn from(eviction: PersistedEviction) -> Self {
        Self {
            pod: Some(PodRef {
                uid: eviction.uid,
                namespace: eviction.namespace,
                name: eviction.name,
            }),
            resource: eviction.resource,
            grace_seconds: eviction.grace_seconds,
            message: eviction.message,
            decided_at: Some(time::to_wire(eviction.decided_at)),
            cause: None,
            disruption_target: eviction.disruption_target,
        }
    }
}
