//! What pods had when another agent held this node: the kubelet's files of resources that it gave.
//!
//! Pods that it left are first heard of here with manifests that may ask for something else by now.
//! What they have is what was last actuated; what the manifest asks for beside that is judged anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::ResourceRequirements;
use polylet_model::Allocation;
use serde::Deserialize;

/// The kubelet's files below the root directory; a later one counts more.
const FILES: [&str; 2] = ["allocated_pods_state", "actuated_pods_state"];

/// Why such a file says nothing.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("{}: it cannot be read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{}: expected an object with the field `data`, itself JSON with `entries` by pod uid", path.display())]
    Parse {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

#[derive(Deserialize)]
struct File {
    data: String,
}

#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    entries: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[derive(Default)]
struct Entry {
    container_resources: Option<BTreeMap<String, ResourceRequirements>>,
    pod_level_resources: Option<ResourceRequirements>,
}

/// What each pod had, by uid; nothing where no kubelet ever was. A file that cannot be read costs
/// what it says: such pods have what their manifests ask for.
pub(crate) fn read(root: &Path) -> BTreeMap<String, Allocation> {
    let mut all: BTreeMap<String, Allocation> = BTreeMap::new();
    for name in FILES {
        let entries = match one(&root.join(name)) {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!("{}", polylet_kit::report(&error));
                continue;
            }
        };
        for (uid, entry) in entries {
            let pod = all.entry(uid).or_default();
            pod.pod = entry.pod_level_resources.or(pod.pod.take());
            let containers = entry.container_resources.into_iter().flatten();
            pod.containers.extend(containers);
        }
    }
    all
}

fn one(path: &Path) -> Result<BTreeMap<String, Entry>, FileError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(source) => {
            return Err(FileError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    let parse = |source| FileError::Parse {
        path: path.to_owned(),
        source,
    };
    let file: File = serde_json::from_slice(&text).map_err(parse)?;
    let data: Data = serde_json::from_str(&file.data).map_err(parse)?;
    Ok(data.entries)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_actuated_counts_before_what_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, entries: serde_json::Value| {
            let data = json!({ "entries": entries }).to_string();
            let file = json!({ "data": data, "checksum": 7 }).to_string();
            std::fs::write(dir.path().join(name), file).unwrap();
        };
        assert!(read(dir.path()).is_empty());
        let cpu = |amount: &str| json!({ "requests": { "cpu": amount } });
        put(
            FILES[0],
            json!({
                "a": { "ContainerResources": { "x": cpu("2"), "y": cpu("1") }, "PodLevelResources": null },
                "b": { "ContainerResources": null },
            }),
        );
        let pods = json!({ "a": { "ContainerResources": { "x": cpu("1") }, "PodLevelResources": cpu("3") } });
        put(FILES[1], pods);
        let all = read(dir.path());
        let asks = |of: Option<&ResourceRequirements>| {
            of.and_then(|of| Some(of.requests.as_ref()?["cpu"].0.clone()))
        };
        let a = &all["a"];
        assert_eq!(asks(a.containers.get("x")).as_deref(), Some("1"));
        assert_eq!(asks(a.containers.get("y")).as_deref(), Some("1"));
        assert_eq!(asks(a.pod.as_ref()).as_deref(), Some("3"));
        assert!(all["b"].containers.is_empty());
        std::fs::write(dir.path().join(FILES[1]), "no").unwrap();
        assert_eq!(
            asks(read(dir.path())["a"].containers.get("x")).as_deref(),
            Some("2")
        );
    }
}
