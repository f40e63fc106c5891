//! Environment variables from files that the pod's own containers have written (`fileKeyRef`).

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use k8s_openapi::api::core::v1::FileKeySelector;
use polylet_model::constants::reason;
use polylet_model::env_file::EnvFile;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use super::failure;
use crate::core::step::StepFailure;
use crate::core::volume_state::ObservedVolume;

/// The maximum size of a file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The most bytes that are read for one container: its variables may name many files in turns.
const MAX_TOTAL_BYTES: u64 = 64 << 20;

/// The files of one container. Only the last one is kept.
#[derive(Default)]
pub struct EnvFiles {
    file: EnvFile,
    /// Its volume and path.
    location: Option<(String, String)>,
    read_bytes: u64,
}

fn config_error(message: String) -> StepFailure {
    failure(reason::CREATE_CONTAINER_CONFIG_ERROR, message)
}

impl EnvFiles {
    /// The value of a variable; `None` if it is optional and the file does not set it. As upstream, a
    /// file that is missing is an error for an optional variable, too.
    pub fn value(
        &mut self,
        volumes: &[ObservedVolume],
        selector: &FileKeySelector,
    ) -> Result<Option<Vec<u8>>, StepFailure> {
        let (path, key) = (&selector.path, &selector.key);
        let value = self.file(volumes, selector)?.value(key);
        let value = value
            .map_err(|error| config_error(format!("couldn't parse env file {path:?}: {error}")))?;
        // An empty value counts as missing, as in the kubelet.
        match value.filter(|value| !value.is_empty()) {
            Some(value) => Ok(Some(value.to_vec())),
            None if selector.optional == Some(true) => Ok(None),
            None => Err(config_error(format!(
                "environment variable key {key:?} not found in file {path:?}"
            ))),
        }
    }

    fn file(
        &mut self,
        volumes: &[ObservedVolume],
        selector: &FileKeySelector,
    ) -> Result<&EnvFile, StepFailure> {
        let (name, path) = (&selector.volume_name, &selector.path);
        let location = Some((name.clone(), path.clone()));
        if self.location == location {
            return Ok(&self.file);
        }
        let volume = volumes
            .iter()
            .find(|volume| volume.name == *name && !volume.host_path.is_empty());
        let volume = volume.ok_or_else(|| {
            config_error(format!(
                "cannot find the volume {name:?} referenced by FileKeyRef"
            ))
        })?;
        let bytes = self.read(Path::new(&volume.host_path), path);
        let bytes = bytes.map_err(|error| {
            config_error(format!(
                "couldn't parse env file: failed to open environment variable file {path:?} in volume {name:?}: {error}"
            ))
        })?;
        (self.file, self.location) = (EnvFile::parse(&bytes), location);
        Ok(&self.file)
    }

    /// Reads a regular file below a directory that containers can write: links that lead out of it
    /// are not followed, nor mounts that a container made there, and the open does not block on pipes.
    fn read(&mut self, dir: &Path, path: &str) -> io::Result<Vec<u8>> {
        let dir = File::open(dir)?;
        let file = openat2(
            &dir,
            path,
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV,
        )?;
        let file = File::from(file);
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
            let message = "expected a regular file of at most 1 MiB";
            return Err(io::Error::other(message));
        }
        self.read_bytes = self.read_bytes.saturating_add(metadata.len());
        if self.read_bytes > MAX_TOTAL_BYTES {
            let message = "the container's variables refer to more than 64 MiB of files";
            return Err(io::Error::other(message));
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn volumes(path: &Path) -> [ObservedVolume; 1] {
        [ObservedVolume {
            imminent: false,
            name: "v".into(),
            mounted: true,
            gone: false,
            host_path: path.display().to_string(),
            message: String::new(),
            rejection_reason: String::new(),
            supplemental_group: None,
        }]
    }

    fn selector(volume: &str, path: &str, key: &str, optional: bool) -> FileKeySelector {
        FileKeySelector {
            key: key.into(),
            optional: Some(optional),
            path: path.into(),
            volume_name: volume.into(),
        }
    }

    #[test]
    fn only_regular_files_below_the_volume_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        std::fs::create_dir(&volume).unwrap();
        std::fs::write(dir.path().join("secret"), "A='no'").unwrap();
        std::fs::write(volume.join("env"), "A='yes'\nEMPTY=''\nSPACE= 'x'\n").unwrap();
        symlink("../secret", volume.join("out")).unwrap();
        symlink("env", volume.join("in")).unwrap();
        let volumes = volumes(&volume);
        let mut files = EnvFiles::default();
        let mut value = |volume: &str, path: &str, key: &str, optional: bool| {
            let value = files.value(&volumes, &selector(volume, path, key, optional));
            value.map_err(|failure| failure.message)
        };
        assert_eq!(value("v", "env", "A", false), Ok(Some(b"yes".to_vec())));
        assert_eq!(value("v", "in", "A", false), Ok(Some(b"yes".to_vec())));
        assert_eq!(value("v", "env", "B", true), Ok(None));
        assert_eq!(value("v", "env", "SPACE", true), Ok(None));
        assert_eq!(
            value("v", "env", "B", false).unwrap_err(),
            "environment variable key \"B\" not found in file \"env\""
        );
        assert!(value("v", "env", "EMPTY", false).is_err());
        assert!(value("v", "env", "SPACE", false).is_err());
        assert!(value("v", "gone", "A", false).is_err());
        // As upstream: only a missing key is optional.
        assert!(value("v", "gone", "A", true).is_err());
        assert!(value("v", "out", "A", true).is_err());
        assert!(value("w", "env", "A", true).unwrap_err().contains("\"w\""));
    }

    #[test]
    fn the_bytes_read_for_one_container_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("A='1'\n#{}\n", "x".repeat(60_000)).repeat(17);
        for name in ["a", "b"] {
            std::fs::write(dir.path().join(name), &text).unwrap();
        }
        let volumes = volumes(dir.path());
        let mut files = EnvFiles::default();
        let mut value = |path: &str| files.value(&volumes, &selector("v", path, "A", false));
        // One file is read once.
        for _ in 0..100 {
            assert!(value("a").is_ok());
        }
        let failed = (0..100).find_map(|n| value(["b", "a"][n % 2]).err());
        let message = failed.unwrap().message;
        assert!(message.ends_with("more than 64 MiB of files"), "{message}");
    }
}
