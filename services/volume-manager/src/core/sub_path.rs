//! subPaths: their validation, and the messages of a container's status. The messages are
//! upstream's, which reveal nothing of the node's own files.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::layout;

/// A subPath that a container mounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubPath {
    /// The index in the container's `volumeMounts`; names the bind mount.
    pub mount_index: u32,
    /// The name of the volume.
    pub volume: String,
    /// The path relative to the volume.
    pub path: String,
}

/// The stage of preparing a subPath.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubPathStage {
    /// Creating the missing directory.
    Create,
    /// Finding it in the volume and binding it.
    Prepare,
}

/// The subPaths of one container.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ContainerSubPaths {
    /// The pod's directory.
    pub pod_dir: PathBuf,
    /// The name of the container.
    pub container: String,
    /// The subPaths, each with the host path of its volume.
    pub sub_paths: Vec<(PathBuf, SubPath)>,
}

impl ContainerSubPaths {
    /// The bind mount of each subPath, in order.
    pub fn targets(&self) -> Vec<String> {
        let target = |(_, sub_path): &(PathBuf, SubPath)| {
            let (volume, index) = (&sub_path.volume, sub_path.mount_index);
            let target = layout::sub_path(&self.pod_dir, volume, &self.container, index);
            target.to_string_lossy().into_owned()
        };
        self.sub_paths.iter().map(target).collect()
    }
}

/// Validates a subPath.
///
/// # Errors
/// The message of the container's status.
pub fn check(container: &str, sub_path: &SubPath) -> Result<(), String> {
    let SubPath { volume, path, .. } = sub_path;
    // Both become directory names.
    if !layout::is_safe_volume_name(container) || !layout::is_safe_volume_name(volume) {
        return Err(volume_not_found(container, volume));
    }
    if path.starts_with('/') {
        return Err(format!(
            "error SubPath `{path}` must not be an absolute path"
        ));
    }
    if path.split('/').any(|element| element == "..") {
        return Err(format!(
            "unable to provision SubPath `{path}`: must not contain '..'"
        ));
    }
    if path.contains('\0') {
        return Err(stage_failed(SubPathStage::Prepare, container, volume));
    }
    Ok(())
}

/// The message for a volume that is not mounted in the pod.
pub fn volume_not_found(container: &str, volume: &str) -> String {
    format!("cannot find volume \"{volume}\" to mount into container \"{container}\"")
}

/// The message for a failed stage. The cause goes to the log only: it could reveal files of others.
pub fn stage_failed(stage: SubPathStage, container: &str, volume: &str) -> String {
    let what = match stage {
        SubPathStage::Create => "create subPath directory",
        SubPathStage::Prepare => "prepare subPath",
    };
    format!("failed to {what} for volumeMount \"{volume}\" of container \"{container}\"")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sub_path(volume: &str, path: &str) -> SubPath {
        SubPath {
            mount_index: 0,
            volume: volume.into(),
            path: path.into(),
        }
    }

    #[test]
    fn messages_are_those_of_the_kubelet() {
        for valid in ["a", "a/b", "./a", "a..b", "..a", "a//b"] {
            assert_eq!(check("c", &sub_path("v", valid)), Ok(()), "{valid}");
        }
        let error = |volume, path| check("c", &sub_path(volume, path)).unwrap_err();
        assert_eq!(
            error("v", "/etc"),
            "error SubPath `/etc` must not be an absolute path"
        );
        assert_eq!(
            error("v", "a/../b"),
            "unable to provision SubPath `a/../b`: must not contain '..'"
        );
        assert_eq!(
            error("../v", "a"),
            "cannot find volume \"../v\" to mount into container \"c\""
        );
        assert_eq!(
            stage_failed(SubPathStage::Create, "c", "v"),
            "failed to create subPath directory for volumeMount \"v\" of container \"c\""
        );
        assert_eq!(
            stage_failed(SubPathStage::Prepare, "c", "v"),
            "failed to prepare subPath for volumeMount \"v\" of container \"c\""
        );
    }

    proptest! {
        #[test]
        fn valid_paths_stay_below_the_volume(path in "[./a]{0,10}") {
            if check("c", &sub_path("v", &path)).is_ok() {
                let mut depth = 0_i32;
                for component in std::path::Path::new(&path).components() {
                    match component {
                        std::path::Component::Normal(_) => depth += 1,
                        std::path::Component::CurDir => {}
                        _ => depth -= 100,
                    }
                    prop_assert!(depth >= 0);
                }
            }
        }
    }
}
