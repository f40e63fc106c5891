//! The served statuses, with an index by name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polylet_model::PodUid;
use polylet_watch::Store;
use polylet_wire::status::v1::{ListPodStatusesRequest, PodStatus};

use crate::core::published::NamePrecedence;

/// The name, namespace and uid of a pod. Pods of one full name may exist side by side while one of them
/// terminates.
type NameKey = (String, String, PodUid);

/// The pods by name, and the order of those of one name.
type NameIndex = BTreeMap<NameKey, NamePrecedence>;

/// The store of the state stream, and an index so that one pod is found without a walk over all.
/// Clones share both.
#[derive(Clone)]
pub struct StatusStore {
    store: Store<PodUid, PodStatus>,
    by_name: Arc<Mutex<NameIndex>>,
}

impl StatusStore {
    /// Indexes an empty store.
    pub fn new(store: Store<PodUid, PodStatus>) -> Self {
        Self {
            store,
            by_name: Arc::default(),
        }
    }

    fn index(&self) -> MutexGuard<'_, NameIndex> {
        // No panic leaves an entry half inserted.
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store to serve watches from.
    pub(crate) fn watched(&self) -> Store<PodUid, PodStatus> {
        self.store.clone()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.index().is_empty()
    }

    /// Marks the initial sync as done; watches are served from now on.
    pub(crate) fn mark_synced(&self) {
        self.store.mark_synced();
    }

    pub(crate) fn has_synced(&self) -> bool {
        self.store.has_synced()
    }

    /// Publishes a status.
    pub(crate) fn upsert(&self, uid: PodUid, status: PodStatus, precedence: NamePrecedence) {
        let key = index_key(&uid, &status);
        self.index().extend(key.map(|key| (key, precedence)));
        self.store.upsert(uid, status);
    }

    /// Removes the status of a pod.
    pub(crate) fn remove(&self, uid: &PodUid) {
        let status = self.store.get(uid);
        if let Some(key) = status.and_then(|status| index_key(uid, &status)) {
            self.index().remove(&key);
        }
        self.store.remove(uid);
    }

    /// The statuses that a request selects; empty fields select all.
    pub(crate) fn list(&self, request: &ListPodStatusesRequest) -> Vec<PodStatus> {
        let selected = |status: &PodStatus| {
            status.r#ref.as_ref().is_some_and(|pod| {
                (request.namespace.is_empty() || request.namespace == pod.namespace)
                    && (request.name.is_empty() || request.name == pod.name)
            })
        };
        if !request.pod_uid.is_empty() {
            let status = self.store.get(request.pod_uid.as_str());
            return status.into_iter().filter(selected).collect();
        }
        if !request.name.is_empty() {
            return self.list_named(&request.namespace, &request.name);
        }
        let all = self.store.snapshot().into_values();
        if request.namespace.is_empty() {
            return all.collect();
        }
        all.filter(selected).collect()
    }

    /// The pods of a name, by namespace, and those of a full name by precedence: clients take the first.
    fn list_named(&self, namespace: &str, name: &str) -> Vec<PodStatus> {
        let index = self.index();
        let from = (name.to_owned(), namespace.to_owned(), PodUid::default());
        let named = index.range(from..).take_while(|((of_name, of, _), _)| {
            of_name == name && (namespace.is_empty() || of == namespace)
        });
        let named = named.map(|((_, of, uid), precedence)| (of.clone(), *precedence, uid.clone()));
        let mut named: Vec<_> = named.collect();
        drop(index);
        named.sort();
        let found = named.iter().filter_map(|(.., uid)| self.store.get(uid));
        found.collect()
    }
}

fn index_key(uid: &PodUid, status: &PodStatus) -> Option<NameKey> {
    let pod = status.r#ref.as_ref()?;
    Some((pod.name.clone(), pod.namespace.clone(), uid.clone()))
}

#[cfg(test)]
mod tests {
    use polylet_watch::{Update, Value};
    use polylet_wire::common::v1::PodRef;
    use polylet_wire::podconfig::v1::{Pod, PodSource};
    use polylet_wire::sync::v1::PodSync;

    use super::*;
    use crate::input::Input;
    use crate::state::State;

    fn request(uid: &str, namespace: &str, name: &str) -> ListPodStatusesRequest {
        ListPodStatusesRequest {
            pod_uid: uid.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn pods_are_found_by_uid_and_by_name() {
        let store = StatusStore::new(Store::new("1"));
        for (uid, namespace, name) in [
            ("u1", "a", "web"),
            ("u2", "a", "web"),
            ("u3", "b", "web"),
            ("u4", "a", "web2"),
        ] {
            let pod = PodRef {
                uid: uid.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            };
            let status = PodStatus {
                r#ref: Some(pod),
                ..PodStatus::default()
            };
            store.upsert(uid.into(), status, NamePrecedence::default());
        }
        let list = |uid: &str, namespace: &str, name: &str| -> Vec<String> {
            let found = store.list(&request(uid, namespace, name)).into_iter();
            found.map(|pod| pod.r#ref.unwrap().uid).collect()
        };
        assert_eq!(list("", "", ""), ["u1", "u2", "u3", "u4"]);
        assert_eq!(list("u2", "", ""), ["u2"]);
        assert_eq!(list("u2", "b", ""), [""; 0]);
        assert_eq!(list("", "a", "web"), ["u1", "u2"]);
        assert_eq!(list("", "", "web"), ["u1", "u2", "u3"]);
        assert_eq!(list("", "a", ""), ["u1", "u2", "u4"]);
        assert_eq!(list("", "", "we"), [""; 0]);
        store.remove(&"u1".into());
        store.remove(&"u3".into());
        assert_eq!(list("", "", "web"), ["u2"]);
        assert_eq!(list("", "b", "web"), [""; 0]);
    }

    /// A pod of the API server, created at a minute.
    fn pod(uid: &str, minute: u32) -> Input {
        let manifest = format!(
            r#"{{"metadata":{{"name":"web","namespace":"a","uid":"{uid}",
                "creationTimestamp":"2026-01-01T00:{minute:02}:00Z"}},"spec":{{"containers":[{{"name":"a"}}]}}}}"#
        );
        let pod = Pod {
            manifest: manifest.into_bytes().into(),
            ..Pod::default()
        };
        Input::Pod(PodSource::Api, Update::Upsert(uid.into(), pod))
    }

    /// The pods that are published, with this removed from its source, in the order of their list.
    fn listed(pods: &[(&str, u32)], removed: &str) -> Vec<String> {
        let store = StatusStore::new(Store::new("1"));
        let mut state = State::new(BTreeMap::new(), store.clone());
        for (uid, minute) in pods {
            state.handle_input(pod(uid, *minute));
            let sync = Update::Upsert(PodUid::from(*uid), PodSync::default());
            state.handle_input(Input::Sync(Box::new(sync)));
        }
        for source in [PodSource::File, PodSource::Http, PodSource::Api] {
            state.handle_input(Input::Pod(source, Update::Synced));
        }
        state.handle_input(Input::Sync(Box::new(Update::Synced)));
        state.handle_input(Input::RuntimeState(Update::Synced));
        state.handle_input(Input::Probe(Update::Synced));
        state.handle_input(Input::Runtime(Value::Current(Default::default())));
        state.reconcile(Vec::new);
        state.handle_input(Input::Pod(PodSource::Api, Update::Remove(removed.into())));
        state.reconcile(Vec::new);
        let found = store.list(&request("", "a", "web")).into_iter();
        found.map(|pod| pod.r#ref.unwrap().uid).collect()
    }

    #[test]
    fn the_pod_that_a_source_has_comes_first_of_its_name_and_then_the_newest() {
        for (pods, removed, expected) in [
            ([("u1", 1), ("u2", 2), ("u3", 3)], "u1", ["u3", "u2", "u1"]),
            ([("u1", 1), ("u2", 2), ("u3", 3)], "u3", ["u2", "u1", "u3"]),
            ([("u1", 3), ("u2", 2), ("u3", 1)], "u1", ["u2", "u3", "u1"]),
            (
                [("u1", 3), ("u2", 2), ("u3", 1)],
                "none",
                ["u1", "u2", "u3"],
            ),
        ] {
            assert_eq!(listed(&pods, removed), expected, "{pods:?} {removed}");
        }
    }
}
