//! Merging the manifests of one source.
//!
//! Each manifest (a file, or the response of the URL) has the items that were last valid in it. Only
//! a manifest that was read completely removes items: while it is invalid or being written, its
//! previous items are retained.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bytes::Bytes;
use jiff::Timestamp;

use super::parse::Parsed;
use super::removals::Removals;
use super::{LocalObject, ObjectId, StaticPod, field};

/// All manifests of a source by origin. The order of updates does not affect [`Manifests::merged`].
#[derive(Clone, Debug, Default)]
pub struct Manifests {
    all: BTreeMap<String, ManifestState>,
    removals: Removals,
}

/// The current items of one manifest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManifestState {
    /// Valid pods, with those retained from before.
    pub pods: Vec<StaticPod>,
    /// Valid objects, with those retained from before.
    pub objects: Vec<LocalObject>,
    /// Errors of the last reading.
    pub errors: Vec<field::Error>,
    /// Fingerprint of the last reading, to detect changes.
    pub fingerprint: String,
}

/// The merged items of a source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedPods {
    /// Pods by uid, with the origin of their manifest.
    pub pods: BTreeMap<String, (String, StaticPod)>,
    /// Objects as canonical JSON.
    pub objects: BTreeMap<ObjectId, Bytes>,
    /// Errors by origin.
    pub errors: Vec<(String, field::Error)>,
}

impl Manifests {
    /// No manifests yet, with the removals that were persisted by an earlier process.
    pub fn with_removals(removals: Removals) -> Manifests {
        Manifests {
            removals,
            ..Manifests::default()
        }
    }

    /// Restores a manifest that was persisted by an earlier process.
    pub fn restore(&mut self, origin: String, manifest: ManifestState) {
        self.all.insert(origin, manifest);
    }

    /// Handles a complete reading of a manifest at `now`.
    pub fn update(&mut self, origin: &str, parsed: Parsed, fingerprint: String, now: Timestamp) {
        let mut pods = parsed.pods;
        for pod in &mut pods {
            pod.removed_at = match self.pod(&pod.uid) {
                Some(known) => known.removed_at,
                None => self.removals.take(&pod.uid),
            };
        }
        let previous = self.all.remove(origin).unwrap_or_default();
        let previous_pods = uids(&previous);
        let mut current = ManifestState {
            pods,
            objects: parsed.objects,
            errors: parsed.errors,
            fingerprint,
        };
        if parsed.incomplete {
            retain_previous(&mut current, previous);
        }
        self.all.insert(origin.to_owned(), current);
        self.record_removals(previous_pods, now);
    }

    /// Handles a manifest that could not be read: its items are retained.
    pub fn mark_failed(&mut self, origin: &str, message: String, fingerprint: String) {
        let previous = self.all.remove(origin).unwrap_or_default();
        let mut current = ManifestState {
            errors: vec![field::Error::new("", message)],
            fingerprint,
            ..ManifestState::default()
        };
        retain_previous(&mut current, previous);
        self.all.insert(origin.to_owned(), current);
    }

    /// Removes a manifest that was deleted, as observed at `now`.
    pub fn remove(&mut self, origin: &str, now: Timestamp) {
        if let Some(removed) = self.all.remove(origin) {
            self.record_removals(uids(&removed), now);
        }
    }

    /// Removes all manifests whose origin `exists` does not confirm at `now`.
    pub fn retain(&mut self, exists: impl Fn(&str) -> bool, now: Timestamp) {
        let mut removed = Vec::new();
        self.all.retain(|origin, manifest| {
            let exists = exists(origin);
            if !exists {
                removed.extend(uids(manifest));
            }
            exists
        });
        self.record_removals(removed, now);
    }

    /// Records which of the pods that a manifest had are in no manifest any more.
    fn record_removals(&mut self, pods: Vec<(String, Option<Timestamp>)>, now: Timestamp) {
        for (uid, previous) in pods {
            if self.pod(&uid).is_none() {
                self.removals.record(&uid, previous, now);
            }
        }
    }

    /// The pods that were removed.
    pub fn removals(&self) -> &Removals {
        &self.removals
    }

    /// Whether a manifest has items, which a half-written file could remove.
    pub fn has_items(&self, origin: &str) -> bool {
        self.all
            .get(origin)
            .is_some_and(|m| !m.pods.is_empty() || !m.objects.is_empty())
    }

    /// Fingerprint of the last reading of a manifest.
    pub fn fingerprint(&self, origin: &str) -> Option<&str> {
        self.all.get(origin).map(|m| m.fingerprint.as_str())
    }

    /// When a uid was first seen.
    pub fn first_seen(&self, uid: &str) -> Option<Timestamp> {
        self.pod(uid).map(|pod| pod.first_seen)
    }

    fn pod(&self, uid: &str) -> Option<&StaticPod> {
        let mut pods = self.all.values().flat_map(|manifest| &manifest.pods);
        pods.find(|pod| pod.uid == uid)
    }

    /// All manifests by origin.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &ManifestState)> {
        self.all.iter()
    }

    /// Merges all manifests in the order of their origins: of several pods with one name, the first
    /// is used.
    pub fn merged(&self) -> MergedPods {
        let mut merged = MergedPods::default();
        let mut names: BTreeMap<(&str, &str), String> = BTreeMap::new();
        for (origin, manifest) in &self.all {
            let errors = manifest.errors.iter().cloned();
            merged.errors.extend(errors.map(|e| (origin.clone(), e)));
            for pod in &manifest.pods {
                let here = describe(origin, &pod.location);
                let conflict = match (names.get(&pod.full_name()), merged.pods.get(&pod.uid)) {
                    (Some(first), _) => Some(field::Error::new(
                        "metadata.name",
                        format!(
                            "{}/{} is already defined in {first}; ignoring the one in {here}",
                            pod.namespace, pod.name
                        ),
                    )),
                    (None, Some((first, other))) => Some(field::Error::new(
                        "metadata.uid",
                        format!(
                            "already used by {}/{} in {}; ignoring the pod in {here}",
                            other.namespace,
                            other.name,
                            describe(first, &other.location)
                        ),
                    )),
                    (None, None) => None,
                };
                match conflict {
                    Some(error) => merged
                        .errors
                        .push((origin.clone(), error.at(&pod.location))),
                    None => {
                        names.insert(pod.full_name(), here);
                        let entry = (origin.clone(), pod.clone());
                        merged.pods.insert(pod.uid.clone(), entry);
                    }
                }
            }
        }
        self.merge_objects(&mut merged);
        merged
    }

    fn merge_objects(&self, merged: &mut MergedPods) {
        let mut first_in: BTreeMap<&ObjectId, String> = BTreeMap::new();
        for (origin, manifest) in &self.all {
            for object in &manifest.objects {
                let here = describe(origin, &object.location);
                match first_in.entry(&object.key) {
                    Entry::Vacant(entry) => {
                        entry.insert(here);
                        merged
                            .objects
                            .insert(object.key.clone(), object.manifest.clone());
                    }
                    Entry::Occupied(first) => {
                        let ObjectId {
                            kind,
                            namespace,
                            name,
                        } = &object.key;
                        let message = format!(
                            "{kind} {namespace}/{name} is already defined in {}; ignoring the one in {here}",
                            first.get()
                        );
                        let error = field::Error::new("metadata.name", message);
                        merged
                            .errors
                            .push((origin.clone(), error.at(&object.location)));
                    }
                }
            }
        }
    }
}

/// The pods of a manifest, with the times of their last removals.
fn uids(manifest: &ManifestState) -> Vec<(String, Option<Timestamp>)> {
    let pods = manifest.pods.iter();
    pods.map(|pod| (pod.uid.clone(), pod.removed_at)).collect()
}

/// Retains previous items that have no successor, and adds an error that lists them.
fn retain_previous(current: &mut ManifestState, previous: ManifestState) {
    let mut retained = Vec::new();
    for pod in previous.pods {
        if !current
            .pods
            .iter()
            .any(|p| p.full_name() == pod.full_name())
        {
            retained.push(format!("Pod {}/{}", pod.namespace, pod.name));
            current.pods.push(pod);
        }
    }
    for object in previous.objects {
        if !current.objects.iter().any(|o| o.key == object.key) {
            retained.push(format!(
                "{} {}/{}",
                object.key.kind, object.key.namespace, object.key.name
            ));
            current.objects.push(object);
        }
    }
    if !retained.is_empty() {
        let message = format!("keeping the last valid version of {}", retained.join(", "));
        current.errors.push(field::Error::new("", message));
    }
}

fn describe(origin: &str, location: &str) -> String {
    if location.is_empty() {
        origin.to_owned()
    } else {
        format!("{origin} ({location})")
    }
}
