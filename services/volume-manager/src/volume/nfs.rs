//! NFS volumes, mounted by the node's `mount` as upstream. A server that does not answer delays
//! nothing but its own volumes: everything runs in child processes.

use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_kit::CancellationToken;
use polylet_kit::subprocess::{SubprocessTask, TaskProgress};
use serde::{Deserialize, Serialize};

use super::{VolumeError, blocking, dir, mount, program};
use crate::core::layout::{Layout, VolumeId};
use crate::core::nfs_volume::NfsVolume;
use crate::subprocess::Subprocesses;

/// The deadline of a mount: `mount.nfs` itself tries for two minutes.
const DEADLINE: Duration = Duration::from_secs(130);

/// Mounts an NFS export.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountNfsTask {
    /// The server and its path.
    pub source: String,
    /// The mount point.
    pub at: PathBuf,
    /// Mount options.
    pub options: Vec<String>,
}

impl SubprocessTask for MountNfsTask {
    const NAME: &'static str = "mount-nfs";
    type Progress = ();
    type Output = Result<(), String>;

    fn key(&self) -> String {
        self.at.display().to_string()
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn run(self, _progress: &mut TaskProgress<()>) -> Self::Output {
        let arguments = self.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        program::mount(&arguments)
    }
}

impl MountNfsTask {
    /// The mount of a volume at a path.
    pub fn new(nfs: &NfsVolume, at: &Path) -> Self {
        // As upstream, an IPv6 address is in brackets.
        let server = match nfs.server.parse::<Ipv6Addr>() {
            Ok(_) => format!("[{}]", nfs.server),
            Err(_) => nfs.server.clone(),
        };
        let mut options = nfs.mount_options.clone();
        options.retain(|option| !option.is_empty());
        if nfs.read_only {
            options.push("ro".to_owned());
        }
        // As upstream's set of options.
        options.sort_unstable();
        options.dedup();
        Self {
            source: format!("{server}:{}", nfs.path),
            at: at.to_owned(),
            options,
        }
    }

    /// The arguments of `mount`.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["-t".to_owned(), "nfs".to_owned()];
        if !self.options.is_empty() {
            arguments.extend(["-o".to_owned(), self.options.join(",")]);
        }
        if self.source.starts_with('-') {
            // Upstream's command takes it for options.
            arguments.push("--".to_owned());
        }
        arguments.extend([self.source.clone(), self.at.display().to_string()]);
        arguments
    }
}

/// Mounts the export for a pod, unless something is mounted there.
pub async fn set_up(
    layout: &Layout,
    id: &VolumeId,
    nfs: &NfsVolume,
    subprocesses: &Subprocesses,
    cancel: &CancellationToken,
) -> Result<(), VolumeError> {
    let at = layout.volume(id);
    let target = at.clone();
    if blocking(move || prepare(&target)).await? {
        return Ok(());
    }
    let task = MountNfsTask::new(nfs, &at);
    let done = subprocesses.call_until(&id.uid, &task, cancel).await;
    let error = match done {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(message)) => VolumeError::Task(message),
        Err(error) => error.into(),
    };
    // The mount may have succeeded at the last moment.
    super::tear_down::unmount_all(&at, &id.uid, subprocesses).await?;
    // Fails if the directory is in use; the next attempt uses it then.
    let _ = blocking(move || {
        let _ = fs::remove_dir(&at);
        Ok(())
    })
    .await;
    Err(error)
}

/// Creates the mount point; returns whether something is mounted there.
fn prepare(at: &Path) -> Result<bool, VolumeError> {
    if mount::table()?.iter().any(|mount| mount.mount_point == at) {
        return Ok(true);
    }
    let created = dir::create_all(at, 0o750);
    created
        .map(|()| false)
        .map_err(|source| VolumeError::MakeDir {
            path: at.to_owned(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_those_of_upstream() {
        let volume = |server: &str, options: &[&str], read_only| NfsVolume {
            server: server.to_owned(),
            path: "/export/a b".to_owned(),
            mount_options: options.iter().map(|option| (*option).to_owned()).collect(),
            read_only,
        };
        for (server, options, read_only, expected) in [
            (
                "nfs.example.org",
                &[][..],
                false,
                "-t nfs nfs.example.org:/export/a b /at",
            ),
            (
                "10.0.0.1",
                &[],
                true,
                "-t nfs -o ro 10.0.0.1:/export/a b /at",
            ),
            (
                "fd00::1",
                &["vers=4.2", "hard"],
                false,
                "-t nfs -o hard,vers=4.2 [fd00::1]:/export/a b /at",
            ),
            (
                "s",
                &["nolock", "ro", "nolock"],
                true,
                "-t nfs -o nolock,ro s:/export/a b /at",
            ),
            ("[fd00::1]", &[], false, "-t nfs [fd00::1]:/export/a b /at"),
            (
                "s",
                &["", "soft"],
                false,
                "-t nfs -o soft s:/export/a b /at",
            ),
            ("-obind", &[], false, "-t nfs -- -obind:/export/a b /at"),
        ] {
            let task = MountNfsTask::new(&volume(server, options, read_only), Path::new("/at"));
            assert_eq!(task.arguments().join(" "), expected);
        }
    }
}
