//! The metadata file beside a pod's volumes: the pod's name and the host paths of its volumes, which
//! the directories do not tell. The host paths are valid for the boot in which all volumes were
//! mounted: after another one, what they lead to has to be checked again.

use std::collections::BTreeMap;

use polylet_kit::state_file::StateFile;
use polylet_model::PodUid;
use serde::{Deserialize, Serialize};

use super::{VolumeError, dir};
use crate::core::layout::{self, Layout};
use crate::core::pod::{PodMetadata, PodName};

/// Version of the format of `pod.json`.
pub(crate) const VERSION: u32 = 1;

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct MetadataFile {
    namespace: String,
    name: String,
    #[serde(default)]
    host_paths: BTreeMap<String, String>,
    /// The id of the boot in which the file was stored; none in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot_id: Option<String>,
}

impl MetadataFile {
    /// Whether the volumes were mounted in this boot, as far as is known.
    fn is_of_this_boot(&self) -> bool {
        self.boot_id.is_none() || self.boot_id == polylet_machine::boot_id()
    }
}

fn state_file(layout: &Layout, uid: &str) -> StateFile<MetadataFile> {
    StateFile::new(layout.metadata(uid), VERSION).without_condition()
}

/// Loads the metadata of a pod; only its uid if there is no usable file, and no host paths if the file
/// is of another boot.
pub fn load(layout: &Layout, uid: &PodUid) -> PodMetadata {
    let file = state_file(layout, uid).load().unwrap_or_else(|error| {
        let error = polylet_kit::report(&error);
        tracing::warn!(
            pod_uid = uid.as_str(),
            error,
            "unusable pod metadata; ignoring it"
        );
        None
    });
    let mut file = file.unwrap_or_default();
    if !file.is_of_this_boot() {
        file.host_paths.clear();
    }
    PodMetadata {
        pod: PodName {
            uid: uid.clone(),
            namespace: file.namespace,
            name: file.name,
        },
        host_paths: file.host_paths,
    }
}

/// Stores the metadata of a pod, unless it is stored already.
pub fn store(layout: &Layout, metadata: PodMetadata) -> Result<(), VolumeError> {
    let PodMetadata { pod, host_paths } = metadata;
    let data = MetadataFile {
        namespace: pod.namespace,
        name: pod.name,
        host_paths,
        boot_id: polylet_machine::boot_id(),
    };
    let file = state_file(layout, &pod.uid);
    if file
        .load()
        .is_ok_and(|stored| stored.as_ref() == Some(&data))
    {
        return Ok(());
    }
    let pod_dir = layout.pod(&pod.uid);
    dir::make_all(
        dir::open(&pod_dir)?,
        &pod_dir,
        &["plugins", layout::METADATA],
    )?;
    file.save(&data).map_err(VolumeError::Metadata)
}

/// Removes the host paths of a pod whose volumes are about to be torn down: they say that the volumes
/// are complete, and the same pod's next ones are not yet.
pub fn remove_host_paths(layout: &Layout, uid: &str) -> Result<(), VolumeError> {
    let file = state_file(layout, uid);
    let removed = match file.load() {
        Ok(None) => return Ok(()),
        Ok(Some(data)) if data.host_paths.is_empty() => return Ok(()),
        Ok(Some(mut data)) => {
            data.host_paths.clear();
            // They do not outlive a crash of the node either. A full disk delays no unmount.
            let saved = file.clone().without_sync().save(&data);
            saved.or_else(|_| file.remove())
        }
        Err(_) => file.remove(),
    };
    removed.map_err(VolumeError::Metadata)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const OTHER_BOOT: &str = "c0ffee00-0000-4000-8000-000000000000";

    fn host_paths() -> BTreeMap<String, String> {
        BTreeMap::from([("h".to_owned(), "/tmp".to_owned())])
    }

    #[test]
    fn unusable_metadata_is_removed_with_its_host_paths() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::new(temp.path());
        let path = layout.metadata("u1");
        remove_host_paths(&layout, "u1").unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "{").unwrap();
        remove_host_paths(&layout, "u1").unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn host_paths_are_valid_for_one_boot() {
        let this_boot = polylet_machine::boot_id().unwrap();
        // Older versions store no boot id.
        for (boot_id, expected) in [
            (json!(this_boot), host_paths()),
            (json!(OTHER_BOOT), BTreeMap::new()),
            (Value::Null, host_paths()),
        ] {
            let temp = tempfile::tempdir().unwrap();
            let layout = Layout::new(temp.path());
            let path = layout.metadata("u1");
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut data = json!({"namespace": "d", "name": "n", "host_paths": {"h": "/tmp"}});
            if boot_id.is_string() {
                data["boot_id"] = boot_id.clone();
            }
            let content = json!({"version": VERSION, "data": data});
            std::fs::write(&path, content.to_string()).unwrap();
            let mut metadata = load(&layout, &"u1".into());
            assert_eq!(metadata.pod.name, "n", "{boot_id}");
            assert_eq!(metadata.host_paths, expected, "{boot_id}");

            // The same host paths again: the file is of this boot then.
            metadata.host_paths = host_paths();
            store(&layout, metadata).unwrap();
            let stored: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            assert_eq!(stored["data"]["boot_id"], this_boot.as_str(), "{boot_id}");
            assert_eq!(load(&layout, &"u1".into()).host_paths, host_paths());

            remove_host_paths(&layout, "u1").unwrap();
            let metadata = load(&layout, &"u1".into());
            assert_eq!(metadata.pod.name, "n", "{boot_id}");
            assert_eq!(metadata.host_paths, BTreeMap::new(), "{boot_id}");
        }
    }
}
