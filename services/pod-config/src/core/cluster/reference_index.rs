//! Which objects the pods of the node name, by object, and which those name in their turn: nothing has
//! to be looked for in all pods when one of them changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use polylet_model::PodUid;

use super::super::ObjectId;
use super::references::referenced_objects;
use super::volume_references::{VolumeReferences, volume_references};

/// The objects that pods and cached objects name.
#[derive(Default)]
pub struct ReferenceIndex {
    pods: BTreeMap<PodUid, PodReferences>,
    /// Of the cached objects that name others, or are needed for another.
    objects: BTreeMap<ObjectId, CachedReferences>,
    /// The objects that are needed for an object without being named, by that object.
    needed: BTreeMap<ObjectId, BTreeSet<Arc<ObjectId>>>,
    /// How many pods and cached objects name each object; never zero.
    counts: BTreeMap<Arc<ObjectId>, usize>,
    /// Objects that were named and are no longer.
    released: BTreeSet<Arc<ObjectId>>,
}

/// The objects that one pod names.
struct PodReferences {
    /// Digest of the manifest that names them.
    digest: String,
    objects: Vec<Arc<ObjectId>>,
}

/// What a cached object is connected with.
struct CachedReferences {
    named: Vec<Arc<ObjectId>>,
    needed_for: Option<ObjectId>,
}

impl ReferenceIndex {
    /// Sets the manifest of a pod; one with a known digest is not parsed again.
    pub fn set(&mut self, uid: &PodUid, digest: &str, manifest: &[u8]) {
        if self.pods.get(uid).is_some_and(|pod| pod.digest == digest) {
            return;
        }
        let objects = referenced_objects(manifest).into_iter();
        let objects = objects.map(|object| self.count(object)).collect();
        let digest = digest.to_owned();
        let pod = PodReferences { digest, objects };
        // The new ones are counted already, so that an object in both is not released.
        if let Some(before) = self.pods.insert(uid.clone(), pod) {
            self.release(before.objects);
        }
    }

    /// Removes a pod.
    pub fn remove(&mut self, uid: &PodUid) {
        if let Some(pod) = self.pods.remove(uid) {
            self.release(pod.objects);
        }
    }

    /// Sets the manifest of a cached object.
    pub fn set_object(&mut self, object: &ObjectId, manifest: &[u8]) {
        let VolumeReferences { named, needed_for } = volume_references(object, manifest);
        let named: Vec<_> = named.into_iter().map(|named| self.count(named)).collect();
        // The new ones are counted already, as for a pod.
        self.remove_object(object);
        if named.is_empty() && needed_for.is_none() {
            return;
        }
        if let Some(needed_for) = needed_for.clone() {
            let needed = self.needed.entry(needed_for).or_default();
            needed.insert(Arc::new(object.clone()));
        }
        let references = CachedReferences { named, needed_for };
        self.objects.insert(object.clone(), references);
    }

    /// Removes an object that is cached no longer.
    pub fn remove_object(&mut self, object: &ObjectId) {
        let Some(references) = self.objects.remove(object) else {
            return;
        };
        self.release(references.named);
        let Some(needed_for) = references.needed_for else {
            return;
        };
        if let Some(needed) = self.needed.get_mut(&needed_for) {
            needed.remove(object);
            if needed.is_empty() {
                self.needed.remove(&needed_for);
            }
        }
    }

    /// Removes all pods that do not exist.
    pub fn retain(&mut self, exists: impl Fn(&PodUid) -> bool) {
        let gone = self.pods.keys().filter(|uid| !exists(uid)).cloned();
        for uid in gone.collect::<Vec<_>>() {
            self.remove(&uid);
        }
    }

    /// Whether a pod or a cached object names an object, or one that it is needed for.
    pub fn contains(&self, object: &ObjectId) -> bool {
        let references = self.objects.get(object);
        let needed_for = references.and_then(|references| references.needed_for.as_ref());
        self.counts.contains_key(object)
            || needed_for.is_some_and(|needed_for| self.counts.contains_key(needed_for))
    }

    /// Whether there are objects that are not named any more.
    pub fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// The objects that are not named any more, since the last call.
    pub fn take_released(&mut self) -> BTreeSet<Arc<ObjectId>> {
        std::mem::take(&mut self.released)
    }

    /// Counts one more that names an object.
    fn count(&mut self, object: ObjectId) -> Arc<ObjectId> {
        self.released.remove(&object);
        let known = self.counts.get_key_value(&object);
        let shared = known.map_or_else(|| Arc::new(object), |(known, _)| known.clone());
        *self.counts.entry(shared.clone()).or_default() += 1;
        shared
    }

    /// Counts one less for each of these objects.
    fn release(&mut self, objects: Vec<Arc<ObjectId>>) {
        for object in objects {
            let Some(count) = self.counts.get_mut(&object) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&object);
                let needed = self.needed.get(&*object).into_iter().flatten();
                self.released.extend(needed.cloned());
                self.released.insert(object);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        /// A pod by number, with the numbers of its Secrets.
        Set(u8, BTreeSet<u8>),
        Remove(u8),
        Retain(BTreeSet<u8>),
        Take,
    }

    fn step() -> impl Strategy<Value = Step> {
        let numbers = || prop::collection::btree_set(0u8..4, 0..4);
        prop_oneof![
            4 => (0u8..4, numbers()).prop_map(|(pod, secrets)| Step::Set(pod, secrets)),
            2 => (0u8..4).prop_map(Step::Remove),
            1 => numbers().prop_map(Step::Retain),
            1 => Just(Step::Take),
        ]
    }

    fn uid(number: u8) -> PodUid {
        PodUid::from(number.to_string())
    }

    fn secret(number: u8) -> ObjectId {
        ObjectId {
            kind: "Secret".to_owned(),
            namespace: "ns".to_owned(),
            name: number.to_string(),
        }
    }

    fn manifest(secrets: &BTreeSet<u8>) -> String {
        let secrets = secrets.iter();
        let secrets: Vec<_> = secrets.map(|n| json!({ "name": n.to_string() })).collect();
        let spec = json!({ "imagePullSecrets": secrets });
        json!({ "metadata": { "namespace": "ns" }, "spec": spec }).to_string()
    }

    fn named(model: &BTreeMap<u8, BTreeSet<u8>>) -> BTreeSet<u8> {
        model.values().flatten().copied().collect()
    }

    proptest! {
        #[test]
        fn index_matches_a_search_in_all_pods(steps in prop::collection::vec(step(), 0..40)) {
            let (mut index, mut model) = (ReferenceIndex::default(), BTreeMap::new());
            let mut released = BTreeSet::new();
            for step in steps {
                let before = named(&model);
                match step {
                    Step::Set(pod, secrets) => {
                        let manifest = manifest(&secrets);
                        index.set(&uid(pod), &format!("{secrets:?}"), manifest.as_bytes());
                        model.insert(pod, secrets);
                    }
                    Step::Remove(pod) => {
                        index.remove(&uid(pod));
                        model.remove(&pod);
                    }
                    Step::Retain(pods) => {
                        index.retain(|of| pods.iter().any(|pod| uid(*pod) == *of));
                        model.retain(|pod, _| pods.contains(pod));
                    }
                    Step::Take => {
                        let taken: BTreeSet<ObjectId> =
                            index.take_released().iter().map(|id| (**id).clone()).collect();
                        let expected: BTreeSet<_> =
                            std::mem::take(&mut released).into_iter().map(secret).collect();
                        prop_assert_eq!(taken, expected);
                    }
                }
                let after = named(&model);
                released.extend(before.difference(&after));
                released.retain(|number| !after.contains(number));
                for number in 0..4 {
                    prop_assert_eq!(index.contains(&secret(number)), after.contains(&number));
                }
                prop_assert_eq!(index.has_released(), !released.is_empty());
            }
        }
    }
}
