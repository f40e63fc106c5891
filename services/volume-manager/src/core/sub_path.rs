//! Parts of volumes: which may be asked for, and what a container's status says of one that
//! cannot be had. Upstream's words, which tell nothing of the node's own files.

use serde::{Deserialize, Serialize};

use super::layout;

/// A part of a volume that a container mounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubPath {
    /// Position among the container's mounts; names the place the part is bound to.
    pub mount_index: u32,
    /// The volume.
    pub volume: String,
    /// The part, relative to the volume.
    pub path: String,
}

/// What could not be done about a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Making the directory, which was not there.
    Create,
    /// Finding it inside the volume, and binding it.
    Prepare,
}

/// Whether a part may be asked for at all.
///
/// # Errors
/// What the container's status says instead.
pub fn check(container: &str, part: &SubPath) -> Result<(), String> {
    let SubPath { volume, path, .. } = part;
    // Both become names of directories.
    if !layout::is_safe_volume_name(container) || !layout::is_safe_volume_name(volume) {
        return Err(no_volume(container, volume));
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
        return Err(failed(Stage::Prepare, container, volume));
    }
    Ok(())
}

/// The pod has no such volume that could be used now.
pub fn no_volume(container: &str, volume: &str) -> String {
    format!("cannot find volume \"{volume}\" to mount into container \"{container}\"")
}

/// A stage failed. The cause stays in the log: it could tell of files that are not the pod's.
pub fn failed(stage: Stage, container: &str, volume: &str) -> String {
    let what = match stage {
        Stage::Create => "create subPath directory",
        Stage::Prepare => "prepare subPath",
    };
    format!("failed to {what} for volumeMount \"{volume}\" of container \"{container}\"")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(volume: &str, path: &str) -> SubPath {
        SubPath {
            mount_index: 0,
            volume: volume.into(),
            path: path.into(),
        }
    }

    #[test]
    fn upstreams_words() {
        for fine in ["a", "a/b", "./a", "a..b", "..a", "a//b"] {
            assert_eq!(check("c", &part("v", fine)), Ok(()), "{fine}");
        }
        let said = |volume, path| check("c", &part(volume, path)).unwrap_err();
        assert_eq!(
            said("v", "/etc"),
            "error SubPath `/etc` must not be an absolute path"
        );
        assert_eq!(
            said("v", "a/../b"),
            "unable to provision SubPath `a/../b`: must not contain '..'"
        );
        assert_eq!(
            said("../v", "a"),
            "cannot find volume \"../v\" to mount into container \"c\""
        );
        assert_eq!(
            failed(Stage::Create, "c", "v"),
            "failed to create subPath directory for volumeMount \"v\" of container \"c\""
        );
        assert_eq!(
            failed(Stage::Prepare, "c", "v"),
            "failed to prepare subPath for volumeMount \"v\" of container \"c\""
        );
    }

    proptest! {
        #[test]
        fn what_passes_stays_below(path in "[./a]{0,10}") {
            if check("c", &part("v", &path)).is_ok() {
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
