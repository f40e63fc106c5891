//! The file of the effective configuration, which the services are started with.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_kit::{HealthConditions, state_file};
use rustix::fs::{MemfdFlags, memfd_create};

/// The health condition while the file cannot be written.
const NOT_WRITTEN: &str = "ConfigurationNotWritten";
/// The delay before another attempt to write the file.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// The configuration as the services read it.
pub(super) struct ConfigFile {
    /// Where services read it.
    pub(super) path: PathBuf,
    /// The text in memory, instead of a file that could not be written.
    in_memory: Option<UnwrittenConfig>,
}

struct UnwrittenConfig {
    /// Open for as long as services may read it.
    _file: File,
    target: PathBuf,
    text: String,
}

impl ConfigFile {
    /// A file that somebody else wrote.
    pub(super) fn existing(path: &Path) -> ConfigFile {
        ConfigFile {
            path: path.to_owned(),
            in_memory: None,
        }
    }

    /// Writes the file. Where that fails, as in a full run directory, the services read the text from
    /// memory: the node must work all the same.
    pub(super) fn write(path: &Path, text: &str) -> std::io::Result<ConfigFile> {
        let written = state_file::write(path, text.as_bytes());
        HealthConditions::of_process().record(NOT_WRITTEN, path.display(), &written);
        if written.is_ok() {
            return Ok(ConfigFile::existing(path));
        }
        let mut file = File::from(memfd_create("polylet-config", MemfdFlags::CLOEXEC)?);
        file.write_all(text.as_bytes())?;
        Ok(ConfigFile {
            path: format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into(),
            in_memory: Some(UnwrittenConfig {
                _file: file,
                target: path.to_owned(),
                text: text.to_owned(),
            }),
        })
    }

    /// Writes the file as soon as that is possible; never returns.
    pub(super) async fn keep_trying(&self) {
        if let Some(unwritten) = &self.in_memory {
            loop {
                tokio::time::sleep(RETRY_DELAY).await;
                let written = state_file::write(&unwritten.target, unwritten.text.as_bytes());
                let path = unwritten.target.display();
                HealthConditions::of_process().record(NOT_WRITTEN, path, &written);
                if written.is_ok() {
                    break;
                }
            }
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_reported(path: &Path) -> bool {
        let conditions = HealthConditions::of_process().to_wire();
        let object = path.display().to_string();
        conditions.iter().any(|one| one.object == object)
    }

    #[tokio::test(start_paused = true)]
    async fn a_configuration_that_cannot_be_written_is_read_from_memory() {
        let dir = tempfile::tempdir().unwrap();
        // A directory in the file's place fails for root as well.
        let path = dir.path().join("config.yaml");
        std::fs::create_dir(&path).unwrap();
        let config = ConfigFile::write(&path, "a: 1\n").unwrap();
        assert_ne!(config.path, path);
        assert_eq!(std::fs::read_to_string(&config.path).unwrap(), "a: 1\n");
        assert!(is_reported(&path));
        std::fs::remove_dir(&path).unwrap();
        let retried = tokio::time::timeout(RETRY_DELAY * 2, config.keep_trying());
        assert!(retried.await.is_err(), "it never returns");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a: 1\n");
        assert!(!is_reported(&path));
    }

    #[test]
    fn a_configuration_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        let config = ConfigFile::write(&path, "a: 1\n").unwrap();
        assert_eq!(config.path, path);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a: 1\n");
    }
}
