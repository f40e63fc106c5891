//! User namespaces of pods: ids are given out once and kept beside the pod's volumes, so that
//! neither a restart nor another agent on this node gives them to somebody else.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use polylet_cri::v1;
use polylet_kit::config::Config;
use polylet_kit::kept;
use polylet_model::userns::{Range, Ranges, UsernsError, subordinate};
use polylet_model::{Manifest, PodUid, names};

/// The file in a pod's directory.
const FILE: &str = "userns";
/// Whose subordinate ids are given out, where the node has set some apart.
const USER: &str = "kubelet";

/// Which handlers of the runtime can give a pod a user namespace; empty while it does not say.
pub type Handlers = BTreeMap<String, bool>;

/// Ids of the node, and who has them.
pub struct Userns {
    root: PathBuf,
    disabled: bool,
    /// Or why this node has no ids to give.
    ranges: RefCell<Result<Ranges, UsernsError>>,
}

impl Userns {
    /// Reads what former lives gave out. A file that cannot be read is its own pod's trouble.
    pub fn open(config: &Config) -> Self {
        let kubelet = &config.kubelet;
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let length = u32::try_from(kubelet.user_namespaces.ids_per_pod).unwrap_or(0);
        let pods = u32::try_from(kubelet.max_pods).unwrap_or(0);
        let mut ranges = subordinate(USER, &read("/etc/subuid"), &read("/etc/subgid"))
            .and_then(|share| Ranges::new(length, share, pods));
        let root = config.polylet.root_directory.clone();
        for uid in pods_on_disk(&root) {
            let Ok(ranges) = &mut ranges else { break };
            let Ok(text) = fs::read(file(&root, &uid)) else {
                continue;
            };
            let known = Range::from_json(&text).and_then(|range| ranges.record(&uid, range));
            if let Err(error) = known {
                tracing::error!(k8s.pod.uid = uid, %error, "the pod's user namespace is not known");
            }
        }
        Userns {
            root,
            disabled: kubelet.feature_gates.get("UserNamespacesSupport") == Some(&false),
            ranges: RefCell::new(ranges),
        }
    }

    /// The user namespace of a pod, with the ids it has, or gets now. Upstream's words when
    /// there can be none.
    pub fn of(
        &self,
        manifest: &Manifest,
        handler: &str,
        handlers: &Handlers,
    ) -> Result<Option<v1::UserNamespace>, String> {
        let of_node = v1::UserNamespace {
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
            (None | Some(true), false) => return Ok(Some(of_node)),
            (Some(false), false) => {}
        }
        is_supported(handler, handlers)?;
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

    fn range(&self, uid: &str) -> Result<Range, String> {
        let mut ranges = self.ranges.borrow_mut();
        let ranges = ranges
            .as_mut()
            .map_err(|error| format!("create user namespace: {error}"))?;
        let path = file(&self.root, uid);
        match fs::read(&path) {
            Ok(text) => {
                let range = Range::from_json(&text).and_then(|range| {
                    ranges.record(uid, range)?;
                    Ok(range)
                });
                return range.map_err(|error| format!("user namespace: {error}"));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{}: {error}", path.display())),
        }
        let range = ranges
            .take(uid)
            .map_err(|error| format!("create user namespace: {error}"))?;
        // On disk before anything runs with it.
        if let Err(error) = kept::write(&path, range.to_json().as_bytes()) {
            ranges.release(uid);
            return Err(format!(
                "create user namespace: {}: {error}",
                path.display()
            ));
        }
        Ok(range)
    }

    /// Nothing of the pod runs any more: its ids are free.
    pub fn release(&self, uid: &str) -> std::io::Result<()> {
        // The file first: ids that are free must not be found on disk again.
        match fs::remove_file(file(&self.root, uid)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if let Ok(ranges) = self.ranges.borrow_mut().as_mut() {
            ranges.release(uid);
        }
        Ok(())
    }

    /// Frees the ids of pods that nobody knows of any more.
    pub fn keep_only(&self, is_known: impl Fn(&str) -> bool) {
        let orphans: Vec<String> = match self.ranges.borrow().as_ref() {
            Ok(ranges) => ranges
                .holders()
                .filter(|uid| !is_known(uid))
                .map(str::to_owned)
                .collect(),
            Err(_) => Vec::new(),
        };
        for uid in orphans {
            if let Err(error) = self.release(&uid) {
                tracing::warn!(k8s.pod.uid = uid, %error, "an orphan's user namespace is kept");
            }
        }
    }
}

/// What a handler cannot do, as upstream words it.
fn is_supported(handler: &str, handlers: &Handlers) -> Result<(), String> {
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
    fn ids_outlive_the_process_and_go_with_the_pod() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let handlers = Handlers::from([(String::new(), true)]);
        for uid in ["a", "b"] {
            fs::create_dir_all(dir.path().join("pods").join(uid)).unwrap();
        }
        let first = |userns: &Userns, uid: &str| {
            let mapped = userns.of(&manifest(uid, Some(false)), "", &handlers);
            mapped.unwrap().unwrap().uids[0].host_id
        };
        let userns = Userns::open(&config);
        let (a, b) = (first(&userns, "a"), first(&userns, "b"));
        assert_ne!(a, b);
        let again = Userns::open(&config);
        assert_eq!((first(&again, "b"), first(&again, "a")), (b, a));
        again.keep_only(|uid| uid == "b");
        assert!(!file(dir.path(), "a").exists());
        assert_eq!(first(&Userns::open(&config), "b"), b);
        again.release("b").unwrap();
        again.release("b").unwrap();
        assert!(!file(dir.path(), "b").exists());
    }

    #[test]
    fn a_broken_file_is_its_own_pods_trouble() {
        let dir = tempfile::tempdir().unwrap();
        for uid in ["a", "b"] {
            fs::create_dir_all(dir.path().join("pods").join(uid)).unwrap();
        }
        fs::write(file(dir.path(), "a"), "{").unwrap();
        let userns = Userns::open(&config(dir.path()));
        let handlers = Handlers::from([(String::new(), true)]);
        let ask = |uid: &str| userns.of(&manifest(uid, Some(false)), "", &handlers);
        assert!(ask("a").unwrap_err().starts_with("user namespace: invalid"));
        assert!(ask("b").is_ok());
    }

    #[test]
    fn who_gets_none() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        let userns = Userns::open(&config);
        let handlers = Handlers::from([(String::new(), false), ("good".to_owned(), true)]);
        let none = Handlers::new();
        let plain = userns.of(&manifest("a", None), "", &none).unwrap().unwrap();
        assert_eq!(plain.mode(), v1::NamespaceMode::Node);
        assert!(plain.uids.is_empty());
        let own = manifest("a", Some(false));
        let base = "can't set `spec.hostUsers: false`, runtime does not support user namespaces";
        let error = |handler: &str, handlers| userns.of(&own, handler, handlers).unwrap_err();
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
        let off = Userns::open(&config);
        assert_eq!(off.of(&manifest("a", None), "", &handlers), Ok(None));
        assert!(
            off.of(&own, "good", &handlers)
                .unwrap_err()
                .contains("gate")
        );
    }
}
