//! The kubelet's checkpoints of allocated and actuated resources, for a node that a kubelet managed
//! before.
//!
//! The manifests of its pods may request other resources by now. A pod has what was actuated last;
//! the difference to its manifest is a resize that is decided on again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::ResourceRequirements;
use polylet_model::PodAllocation;
use serde::Deserialize;

/// The kubelet's files below the root directory. A later one takes precedence.
const FILES: [&str; 2] = ["allocated_pods_state", "actuated_pods_state"];

/// A checkpoint that cannot be used.
#[derive(Debug, thiserror::Error)]
enum CheckpointError {
    #[error("reading {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("parsing {}: expected an object with the field `data`, itself JSON with `entries` by pod UID", path.display())]
    Parse {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

#[derive(Deserialize)]
struct CheckpointFile {
    data: String,
}

#[derive(Deserialize)]
struct CheckpointData {
    #[serde(default)]
    entries: BTreeMap<String, PodResourceEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[derive(Default)]
struct PodResourceEntry {
    container_resources: Option<BTreeMap<String, Box<ResourceRequirements>>>,
    pod_level_resources: Option<ResourceRequirements>,
}

/// The resources of each pod by UID; empty on a node without a kubelet's checkpoints. Without a
/// readable file, pods have the resources in their manifests.
pub(crate) fn read(root: &Path) -> BTreeMap<String, PodAllocation> {
    let mut all: BTreeMap<String, PodAllocation> = BTreeMap::new();
    for name in FILES {
        let entries = match load(&root.join(name)) {
            Ok(entries) => entries,
            Err(error) => {
                let error = polylet_kit::report(&error);
                tracing::warn!(error, "failed to load kubelet checkpoint; ignoring it");
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

fn load(path: &Path) -> Result<BTreeMap<String, PodResourceEntry>, CheckpointError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(source) => {
            return Err(CheckpointError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    let parse = |source| CheckpointError::Parse {
        path: path.to_owned(),
        source,
    };
    let file: CheckpointFile = serde_json::from_slice(&text).map_err(parse)?;
    let data: CheckpointData = serde_json::from_str(&file.data).map_err(parse)?;
    Ok(data.entries)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn actuated_resources_take_precedence_over_allocated_ones() {
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
        let cpu_of = |resources: Option<&ResourceRequirements>| {
            resources.and_then(|r| Some(r.requests.as_ref()?["cpu"].0.clone()))
        };
        let a = &all["a"];
        assert_eq!(
            cpu_of(a.containers.get("x").map(Box::as_ref)).as_deref(),
            Some("1")
        );
        assert_eq!(
            cpu_of(a.containers.get("y").map(Box::as_ref)).as_deref(),
            Some("1")
        );
        assert_eq!(cpu_of(a.pod.as_ref()).as_deref(), Some("3"));
        assert!(all["b"].containers.is_empty());
        std::fs::write(dir.path().join(FILES[1]), "no").unwrap();
        assert_eq!(
            cpu_of(read(dir.path())["a"].containers.get("x").map(Box::as_ref)).as_deref(),
            Some("2")
        );
    }
}
