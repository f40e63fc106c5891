//! Environment variables from files that the pod's own containers have written (`fileKeyRef`).

use std::fs::File;
use std::io::Read;
use std::path::Path;

use k8s_openapi::api::core::v1::FileKeySelector;
use polylet_model::constants::reason;
use polylet_model::env_file;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use super::failure;
use crate::core::step::StepFailure;
use crate::core::volume_state::ObservedVolume;

/// The maximum size of a file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The value of a variable; `None` if it is optional and missing.
pub fn file_key_value(
    volumes: &[ObservedVolume],
    selector: &FileKeySelector,
) -> Result<Option<String>, StepFailure> {
    let config_error = |message: String| failure(reason::CREATE_CONTAINER_CONFIG_ERROR, message);
    let optional = selector.optional == Some(true);
    let (name, path, key) = (&selector.volume_name, &selector.path, &selector.key);
    let volume = volumes
        .iter()
        .find(|volume| volume.name == *name && !volume.host_path.is_empty());
    let volume = volume.ok_or_else(|| {
        config_error(format!(
            "cannot find the volume {name:?} referenced by FileKeyRef"
        ))
    })?;
    let text = match read(Path::new(&volume.host_path), path) {
        Ok(text) => text,
        Err(error) if optional && error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(config_error(format!(
                "couldn't parse env file: failed to open environment variable file {path:?} in volume {name:?}: {error}"
            )));
        }
    };
    let value = env_file::value(&text, key)
        .map_err(|error| config_error(format!("couldn't parse env file {path:?}: {error}")))?;
    // An empty value counts as missing, as in the kubelet.
    match value.filter(|value| !value.is_empty()) {
        Some(value) => Ok(Some(value)),
        None if optional => Ok(None),
        None => Err(config_error(format!(
            "environment variable key {key:?} not found in file {path:?}"
        ))),
    }
}

/// Reads a regular file below a directory that containers can write: links that lead out of it are
/// not followed, and the open does not block on pipes.
fn read(dir: &Path, path: &str) -> std::io::Result<String> {
    let dir = File::open(dir)?;
    let file = openat2(
        &dir,
        path,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
    )?;
    let file = File::from(file);
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
        let message = "expected a regular file of at most 1 MiB";
        return Err(std::io::Error::other(message));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_below_the_volume_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        std::fs::create_dir(&volume).unwrap();
        std::fs::write(dir.path().join("secret"), "A='no'").unwrap();
        std::fs::write(volume.join("env"), "A='yes'\nEMPTY=''\n").unwrap();
        symlink("../secret", volume.join("out")).unwrap();
        symlink("env", volume.join("in")).unwrap();
        let volumes = [ObservedVolume {
            imminent: false,
            name: "v".into(),
            mounted: true,
            gone: false,
            host_path: volume.display().to_string(),
            message: String::new(),
            rejection_reason: String::new(),
            supplemental_group: None,
        }];
        let value = |volume: &str, path: &str, key: &str, optional: bool| {
            let selector = FileKeySelector {
                key: key.into(),
                optional: Some(optional),
                path: path.into(),
                volume_name: volume.into(),
            };
            file_key_value(&volumes, &selector).map_err(|failure| failure.message)
        };
        assert_eq!(value("v", "env", "A", false), Ok(Some("yes".into())));
        assert_eq!(value("v", "in", "A", false), Ok(Some("yes".into())));
        assert_eq!(value("v", "env", "B", true), Ok(None));
        assert_eq!(value("v", "gone", "A", true), Ok(None));
        assert_eq!(
            value("v", "env", "B", false).unwrap_err(),
            "environment variable key \"B\" not found in file \"env\""
        );
        assert!(value("v", "env", "EMPTY", false).is_err());
        assert!(value("v", "gone", "A", false).is_err());
        assert!(value("v", "out", "A", true).is_err());
        assert!(value("w", "env", "A", true).unwrap_err().contains("\"w\""));
    }
}
