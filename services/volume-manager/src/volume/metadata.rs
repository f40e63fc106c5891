//! The metadata file beside a pod's volumes: the pod's name and the host paths of its volumes, which
//! the directories do not tell.

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
}

fn state_file(layout: &Layout, uid: &str) -> StateFile<MetadataFile> {
    StateFile::new(layout.metadata(uid), VERSION).without_condition()
}

/// Loads the metadata of a pod; only its uid if there is no usable file.
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
    let MetadataFile {
        namespace,
        name,
        host_paths,
    } = file.unwrap_or_default();
    PodMetadata {
        pod: PodName {
            uid: uid.clone(),
            namespace,
            name,
        },
        host_paths,
    }
}

/// Stores the metadata of a pod, unless it is stored already.
pub fn store(layout: &Layout, metadata: PodMetadata) -> Result<(), VolumeError> {
    let PodMetadata { pod, host_paths } = metadata;
    let data = MetadataFile {
        namespace: pod.namespace,
        name: pod.name,
        host_paths,
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
