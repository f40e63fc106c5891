//! User namespaces of pods. The ID range of a pod is allocated once and stored in its directory, in
//! the kubelet's format, so that neither a restart nor another agent allocates it to another pod.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use polylet_cri::v1;
use polylet_kit::config::Config;
use polylet_kit::state_file;
use polylet_model::userns::{IdRange, IdRangeAllocator, UsernsError, subordinate_ids};
use polylet_model::{Manifest, PodUid, names};

use super::files;

/// The file in a pod's directory.
const FILE: &str = "userns";
/// The user whose subordinate IDs are allocated, if the node has any.
const USER: &str = "kubelet";

/// Runtime handlers and whether they support user namespaces; empty if the runtime does not report
/// them.
pub type RuntimeHandlers = BTreeMap<String, bool>;

/// Allocates ID ranges to pods.
pub struct UsernsManager {
    root: PathBuf,
    disabled: bool,
    /// The allocated ranges, or why the node has none.
    ranges: RefCell<Result<IdRangeAllocator, UsernsError>>,
}

impl UsernsManager {
    /// Reads the stored ranges of all pods. A pod with a corrupt file fails on its own.
    pub fn open(config: &Config) -> Self {
        let kubelet = &config.kubelet;
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let length = u32::try_from(kubelet.user_namespaces.ids_per_pod).unwrap_or(0);
        let pods = u32::try_from(kubelet.max_pods).unwrap_or(0);
        let mut ranges = subordinate_ids(USER, &read("/etc/subuid"), &read("/etc/subgid"))
            .and_then(|share| IdRangeAllocator::new(length, share, pods));
        let root = config.polylet.root_directory.clone();
        for uid in pods_on_disk(&root) {
            let Ok(ranges) = &mut ranges else { break };
            let Ok(text) = fs::read(file(&root, &uid)) else {
                continue;
            };
            let known = IdRange::from_json(&text).and_then(|range| ranges.record(&uid, range));
            if let Err(error) = known {
                tracing::error!(pod_uid = uid, %error, "invalid user namespace file; the pod cannot start");
            }
        }
        UsernsManager {
            root,
            disabled: kubelet.feature_gates.get("UserNamespacesSupport") == Some(&false),
            ranges: RefCell::new(ranges),
        }
    }

    /// The user namespace of a pod; its ID range is allocated if it has none.
    ///
    /// # Errors
    /// The kubelet's message.
    pub fn user_namespace(
        &self,
        manifest: &Manifest,
        handler: &str,
        handlers: &RuntimeHandlers,
    ) -> Result<Option<v1::UserNamespace>, String> {
        let host = v1::UserNamespace {
            mode: v1::NamespaceMode::Node.into(),
            ..Default::default()
        };
        match (manifest.spec().host_users, self.disabled) {
            (None, true) => return Ok(None),
            (Some(_), true) => {
                let gate = "UserNamespacesSupport";
                return Err(format!(
                    "the feature gate {gate:?} is disabled: can't set spec.HostUsers"
                ));
            }
            (None | Some(true), false) => return Ok(Some(host)),
            (Some(false), false) => {}
        }
        check_support(handler, handlers)?;
        let uid = manifest.uid().as_str();
        let range = self.range(uid)?;
        let mapping = v1::IdMapping {
            host_id: range.first,
            container_id: 0,
            length: range.length,
        };
        Ok(Some(v1::UserNamespace {
            mode: v1::NamespaceMode::Pod.into(),
            uids: vec![mapping],
            gids: vec![mapping],
        }))
    }

    fn range(&self, uid: &str) -> Result<IdRange, String> {
        let mut ranges = self.ranges.borrow_mut();
        let ranges = ranges
            .as_mut()
            .map_err(|error| format!("create user namespace: {error}"))?;
        let path = file(&self.root, uid);
        match fs::read(&path) {
            Ok(text) => {
                let range = IdRange::from_json(&text).and_then(|range| {
                    ranges.record(uid, range)?;
                    Ok(range)
                });
                return range.map_err(|error| format!("user namespace: {error}"));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{}: {error}", path.display())),
        }
        let range = ranges
            .allocate(uid)
            .map_err(|error| format!("create user namespace: {error}"))?;
        // On disk before a container runs with it. The first pull of an image may be the first to need
        // the pod's directory.
        let written = files::create_pod_dir(&self.root, uid)
            .and_then(|()| state_file::write(&path, range.to_json().as_bytes()));
        if let Err(error) = written {
            ranges.release(uid);
            return Err(format!(
                "create user namespace: {}: {error}",
                path.display()
            ));
        }
        Ok(range)
    }

    /// Releases the range of a pod that no longer runs.
    pub fn release(&self, uid: &str) -> std::io::Result<()> {
        // The file first: a released range must not be read from disk again.
        match fs::remove_file(file(&self.root, uid)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if let Ok(ranges) = self.ranges.borrow_mut().as_mut() {
            ranges.release(uid);
        }
        Ok(())
    }

    /// Releases the ranges of unknown pods.
    pub fn retain(&self, is_known: impl Fn(&str) -> bool) {
        let orphans: Vec<String> = match self.ranges.borrow().as_ref() {
            Ok(ranges) => ranges
                .allocated_pods()
                .filter(|uid| !is_known(uid))
                .map(str::to_owned)
                .collect(),
            Err(_) => Vec::new(),
        };
        for uid in orphans {
            if let Err(error) = self.release(&uid) {
                tracing::warn!(pod_uid = uid, %error, "failed to release user namespace of orphaned pod");
            }
        }
    }
}

/// Checks whether a runtime handler supports user namespaces, with the kubelet's messages.
fn check_support(handler: &str, handlers: &RuntimeHandlers) -> Result<(), String> {
    let message = if handler.is_empty() {
        "can't set `spec.hostUsers: false`, runtime does not support user namespaces".to_owned()
    } else {
        format!(
            "can't set `spec.hostUsers: false`, RuntimeClass handler {handler:?} does not support user namespaces"
        )
    };
    if handlers.is_empty() {
        return Err(format!("{message}: runtime handlers are not set"));
    }
    match handlers.get(handler) {
        Some(true) => Ok(()),
        Some(false) => Err(message),
        None => Err(format!("{message}: the handler {handler:?} is not known")),
    }
}

fn file(root: &std::path::Path, uid: &str) -> PathBuf {
    names::pod_dir(root, &PodUid::from(uid)).join(FILE)
}

fn pods_on_disk(root: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(root.join("pods"));
    let entries = entries.into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    fn manifest(uid: &str, host_users: Option<bool>) -> Manifest {
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": uid},
            "spec": {"hostUsers": host_users, "containers": []}});
        Manifest::from_json(pod.to_string().as_bytes()).unwrap()
    }

    fn config(root: &std::path::Path) -> Config {
        Config {
            kubelet: Default::default(),
            polylet: polylet_kit::config::PolyletConfiguration {
                root_directory: root.to_owned(),
                ..Default::default()
            },
            warnings: Vec::new(),
            path: PathBuf::new(),
        }
    }

    #[test]
    fn ranges_survive_restarts_and_are_released_with_their_pod() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let handlers = RuntimeHandlers::from([(String::new(), true)]);
        for uid in ["a", "b"] {
            fs::create_dir_all(dir.path().join("pods").join(uid)).unwrap();
        }
        let first = |userns: &UsernsManager, uid: &str| {
            let mapped = userns.user_namespace(&manifest(uid, Some(false)), "", &handlers);
            mapped.unwrap().unwrap().uids[0].host_id
        };
        let userns = UsernsManager::open(&config);
        let (a, b) = (first(&userns, "a"), first(&userns, "b"));
        assert_ne!(a, b);
        let again = UsernsManager::open(&config);
        assert_eq!((first(&again, "b"), first(&again, "a")), (b, a));
        again.retain(|uid| uid == "b");
        assert!(!file(dir.path(), "a").exists());
        assert_eq!(first(&UsernsManager::open(&config), "b"), b);
        again.release("b").unwrap();
        again.release("b").unwrap();
        assert!(!file(dir.path(), "b").exists());
    }

    #[test]
    fn first_range_of_a_pod_creates_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let userns = UsernsManager::open(&config(dir.path()));
        let handlers = RuntimeHandlers::from([(String::new(), true)]);
        let namespace = userns.user_namespace(&manifest("a", Some(false)), "", &handlers);
        assert!(namespace.is_ok(), "{namespace:?}");
        assert!(file(dir.path(), "a").exists());
        let metadata = fs::metadata(dir.path().join("pods/a")).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o750);
    }

    #[test]
    fn corrupt_file_affects_its_own_pod_only() {
        let dir = tempfile::tempdir().unwrap();
        for uid in ["a", "b"] {
            fs::create_dir_all(dir.path().join("pods").join(uid)).unwrap();
        }
        fs::write(file(dir.path(), "a"), "{").unwrap();
        let userns = UsernsManager::open(&config(dir.path()));
        let handlers = RuntimeHandlers::from([(String::new(), true)]);
        let namespace =
            |uid: &str| userns.user_namespace(&manifest(uid, Some(false)), "", &handlers);
        assert!(
            namespace("a")
                .unwrap_err()
                .starts_with("user namespace: invalid")
        );
        assert!(namespace("b").is_ok());
    }

    #[test]
    fn pods_without_user_namespace() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        let userns = UsernsManager::open(&config);
        let handlers = RuntimeHandlers::from([(String::new(), false), ("good".to_owned(), true)]);
        let none = RuntimeHandlers::new();
        let plain = userns
            .user_namespace(&manifest("a", None), "", &none)
            .unwrap()
            .unwrap();
        assert_eq!(plain.mode(), v1::NamespaceMode::Node);
        assert!(plain.uids.is_empty());
        let own = manifest("a", Some(false));
        let base = "can't set `spec.hostUsers: false`, runtime does not support user namespaces";
        let error =
            |handler: &str, handlers| userns.user_namespace(&own, handler, handlers).unwrap_err();
        assert_eq!(error("", &handlers), base);
        assert_eq!(
            error("", &none),
            format!("{base}: runtime handlers are not set")
        );
        assert!(error("other", &handlers).ends_with("the handler \"other\" is not known"));
        config
            .kubelet
            .feature_gates
            .insert("UserNamespacesSupport".to_owned(), false);
        let off = UsernsManager::open(&config);
        assert_eq!(
            off.user_namespace(&manifest("a", None), "", &handlers),
            Ok(None)
        );
        assert!(
            off.user_namespace(&own, "good", &handlers)
                .unwrap_err()
                .contains("gate")
        );
    }
}
