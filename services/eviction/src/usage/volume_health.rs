//! Checks whether the volumes of pods that depend on another machine, or on a process, still answer. A
//! dead one is named as a health condition and in an event of its pod, also while nobody asks for
//! statistics.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{StreamExt, stream};
use polylet_kit::{BlockingCall, report};
use polylet_machine::mountinfo::{self, Mount, MountWatch};

use super::{Sampler, pod_ref};
use crate::core::pods::NodePods;

/// Upstream's period for statistics of volumes.
pub(crate) const VOLUME_CHECK_PERIOD: Duration = Duration::from_secs(60);
/// After a start, when the node has more urgent things to do.
pub(crate) const FIRST_VOLUME_CHECK: Duration = Duration::from_secs(5);
/// How long reading the mount table may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// Volumes that are checked at once.
const CHECKED_AT_ONCE: usize = 4;
/// Types of file systems that another machine serves. FUSE is served by a process.
const REMOTE: &[&str] = &[
    "9p",
    "afs",
    "ceph",
    "cifs",
    "glusterfs",
    "lustre",
    "nfs",
    "nfs4",
    "smb3",
    "virtiofs",
];

/// A file system that is mounted as a volume of a pod, or in one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RemoteVolume {
    uid: String,
    /// The name of the volume's directory.
    volume: String,
    mount_point: PathBuf,
}

/// The remote volumes as of the last change of the mount table.
#[derive(Default)]
pub(super) struct RemoteVolumes {
    watch: Option<MountWatch>,
    volumes: Vec<RemoteVolume>,
    reading: BlockingCall<io::Result<(MountWatch, Vec<Mount>)>>,
}

impl RemoteVolumes {
    /// The mount table, if it has changed.
    async fn changed(&mut self) -> Result<Option<Vec<Mount>>, String> {
        // Not kept after a failure, so that the next call reads.
        if let Some(mut watch) = self.watch.take()
            && matches!(watch.has_changed(), Ok(false))
        {
            self.watch = Some(watch);
            return Ok(None);
        }
        let read = || Ok((MountWatch::new()?, mountinfo::read()?));
        let read = self.reading.run(DEADLINE, read).await;
        let read = read.map_err(|error| report(&error))?;
        let (watch, mounts) = read.map_err(|error| report(&error))?;
        self.watch = Some(watch);
        Ok(Some(mounts))
    }
}

impl Sampler {
    /// Checks the volumes of running pods.
    pub(crate) async fn check_volumes(self, pods: NodePods) {
        let mut remote = self.remote_volumes.lock().await;
        match remote.changed().await {
            Ok(Some(mounts)) => {
                let root = self.pods.paths.pods();
                let mounted: BTreeSet<String> = mounts
                    .iter()
                    .filter(|mount| mount.mount_point.starts_with(&root))
                    .map(|mount| mount.mount_point.display().to_string())
                    .collect();
                self.pods.disk.retain_volumes(|path| mounted.contains(path));
                remote.volumes = remote_volumes(&root, &mounts);
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(error, "failed to read the mount table; volumes not checked");
                return;
            }
        }
        let pods = &pods;
        stream::iter(remote.volumes.clone())
            .filter_map(|remote| async {
                let pod = pods.runtime.get(remote.uid.as_str())?;
                Some((pod_ref(&remote.uid, pod), remote))
            })
            .for_each_concurrent(CHECKED_AT_ONCE, |(pod, remote)| {
                let disk = &self.pods.disk;
                async move {
                    let RemoteVolume {
                        volume,
                        mount_point,
                        ..
                    } = remote;
                    disk.mounted_space(&pod, &volume, mount_point).await;
                }
            })
            .await;
    }
}

/// The mounts of remote file systems at `<root>/<uid>/volumes/<plugin>/<volume>` and below.
fn remote_volumes(root: &Path, mounts: &[Mount]) -> Vec<RemoteVolume> {
    let is_remote = |mount: &&Mount| {
        let kind = mount.fs_type.as_str();
        REMOTE.contains(&kind) || kind == "fuse" || kind.starts_with("fuse.")
    };
    let remote = mounts.iter().filter(is_remote);
    remote
        .filter_map(|mount| {
            let below = mount.mount_point.strip_prefix(root).ok()?;
            let mut parts = below.iter().map(|part| part.to_string_lossy());
            let uid = parts.next()?.into_owned();
            (parts.next()? == "volumes").then_some(())?;
            let _plugin = parts.next()?;
            Some(RemoteVolume {
                uid,
                volume: parts.next()?.into_owned(),
                mount_point: mount.mount_point.clone(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_volumes_are_found_in_the_mount_table() {
        let table = b"1 0 0:1 / /r/pods/u/volumes/kubernetes.io~nfs/data rw - nfs4 s:/x rw\n\
            2 0 0:2 / /r/pods/u/volumes/kubernetes.io~empty-dir/scratch/mnt rw - fuse.x x rw\n\
            3 0 0:3 / /r/pods/u/volumes/kubernetes.io~secret/token rw - tmpfs tmpfs rw\n\
            4 0 0:4 / /r/pods/u/volume-subpaths/data/c/0 rw - nfs4 s:/x rw\n\
            5 0 0:5 / /mnt rw - nfs4 s:/x rw\n";
        let found = remote_volumes(Path::new("/r/pods"), &mountinfo::parse(table));
        let names: Vec<&str> = found.iter().map(|one| one.volume.as_str()).collect();
        assert_eq!(names, ["data", "scratch"]);
        assert!(found.iter().all(|one| one.uid == "u"));
    }
}
