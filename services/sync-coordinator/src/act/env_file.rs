//! Variables out of files that a pod's own containers have written.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use k8s_openapi::api::core::v1::FileKeySelector;
use polylet_model::constants::reason;
use polylet_model::env_file;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use super::said;
use crate::core::learn::Trouble;
use crate::core::view::SeenVolume;

/// A file of variables is no place for more.
const MOST_BYTES: u64 = 1 << 20;

/// One variable; none where it is optional and not there.
pub fn value(
    volumes: &[SeenVolume],
    selector: &FileKeySelector,
) -> Result<Option<String>, Trouble> {
    let wrong = |message: String| said(reason::CREATE_CONTAINER_CONFIG_ERROR, message);
    let optional = selector.optional == Some(true);
    let (name, path, key) = (&selector.volume_name, &selector.path, &selector.key);
    let volume = volumes
        .iter()
        .find(|volume| volume.name == *name && !volume.host_path.is_empty());
    let volume = volume.ok_or_else(|| {
        wrong(format!(
            "cannot find the volume {name:?} referenced by FileKeyRef"
        ))
    })?;
    let text = match read(Path::new(&volume.host_path), path) {
        Ok(text) => text,
        Err(error) if optional && error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(wrong(format!(
                "couldn't parse env file: failed to open environment variable file {path:?} in volume {name:?}: {error}"
            )));
        }
    };
    let value = env_file::value(&text, key)
        .map_err(|error| wrong(format!("couldn't parse env file {path:?}: {error}")))?;
    // A value of nothing counts as none, as upstream has it.
    match value.filter(|value| !value.is_empty()) {
        Some(value) => Ok(Some(value)),
        None if optional => Ok(None),
        None => Err(wrong(format!(
            "environment variable key {key:?} not found in file {path:?}"
        ))),
    }
}

/// Reads a file below a folder that containers can write: no link leads out of it, and nothing
/// that is no file is waited for.
fn read(folder: &Path, path: &str) -> std::io::Result<String> {
    let folder = File::open(folder)?;
    let file = openat2(
        &folder,
        path,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
    )?;
    let file = File::from(file);
    let about = file.metadata()?;
    if !about.is_file() || about.len() > MOST_BYTES {
        let what = "neither a pipe nor a folder, and no more than 1 MiB, is expected";
        return Err(std::io::Error::other(what));
    }
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_files_below_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        std::fs::create_dir(&volume).unwrap();
        std::fs::write(dir.path().join("secret"), "A='no'").unwrap();
        std::fs::write(volume.join("env"), "A='yes'\nEMPTY=''\n").unwrap();
        symlink("../secret", volume.join("out")).unwrap();
        symlink("env", volume.join("in")).unwrap();
        let volumes = [SeenVolume {
            coming: false,
            name: "v".into(),
            mounted: true,
            gone: false,
            host_path: volume.display().to_string(),
            message: String::new(),
            refusal: String::new(),
            group: None,
        }];
        let ask = |volume: &str, path: &str, key: &str, optional: bool| {
            let selector = FileKeySelector {
                key: key.into(),
                optional: Some(optional),
                path: path.into(),
                volume_name: volume.into(),
            };
            value(&volumes, &selector).map_err(|trouble| trouble.message)
        };
        assert_eq!(ask("v", "env", "A", false), Ok(Some("yes".into())));
        assert_eq!(ask("v", "in", "A", false), Ok(Some("yes".into())));
        assert_eq!(ask("v", "env", "B", true), Ok(None));
        assert_eq!(ask("v", "gone", "A", true), Ok(None));
        assert_eq!(
            ask("v", "env", "B", false).unwrap_err(),
            "environment variable key \"B\" not found in file \"env\""
        );
        assert!(ask("v", "env", "EMPTY", false).is_err());
        assert!(ask("v", "gone", "A", false).is_err());
        assert!(ask("v", "out", "A", true).is_err());
        assert!(ask("w", "env", "A", true).unwrap_err().contains("\"w\""));
    }
}
