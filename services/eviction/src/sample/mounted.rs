//! The local file systems that are mounted, for `container_fs_*` of the node.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use polylet_machine::mountinfo::{self, Mount};
use rustix::fs::statvfs;

use crate::core::stats::{DiskStats, MountedFilesystem};

/// Types that cAdvisor measures and that no server has to answer for.
const LOCAL: [&str; 7] = ["btrfs", "ext2", "ext3", "ext4", "tmpfs", "xfs", "zfs"];

/// The local file systems, each device once, but those of pods and containers: `excluded` are the
/// directories that have them. May never return.
pub(crate) fn filesystems(excluded: &[PathBuf]) -> Vec<MountedFilesystem> {
    let disks = procfs::diskstats().unwrap_or_default();
    let mounts = mountinfo::read().unwrap_or_default();
    let mut filesystems = Vec::new();
    for mount in local(&mounts, excluded) {
        let Ok(stat) = statvfs(&mount.mount_point) else {
            continue;
        };
        let disk = disks
            .iter()
            .find(|disk| format!("{}:{}", disk.major, disk.minor) == mount.device);
        let capacity = stat.f_blocks.saturating_mul(stat.f_frsize);
        let free = stat.f_bfree.saturating_mul(stat.f_frsize);
        let device = match disk {
            Some(disk) => format!("/dev/{}", disk.name),
            None => mount.mount_point.to_string_lossy().into_owned(),
        };
        // Of several at one place, all are measured as the one on top.
        if filesystems
            .iter()
            .any(|known: &MountedFilesystem| known.device == device)
        {
            continue;
        }
        filesystems.push(MountedFilesystem {
            device,
            capacity,
            used: capacity.saturating_sub(free),
            inodes: stat.f_files,
            inodes_free: stat.f_ffree,
            disk: disk.map(disk_stats).unwrap_or_default(),
        });
    }
    filesystems
}

/// The first mount of each device.
fn local<'a>(mounts: &'a [Mount], excluded: &[PathBuf]) -> Vec<&'a Mount> {
    let mut devices = BTreeSet::new();
    let is_of_pod = |path: &Path| excluded.iter().any(|dir| path.starts_with(dir));
    let is_of_container = |path: &Path| path.to_string_lossy().contains("/io.containerd.");
    mounts
        .iter()
        .filter(|mount| LOCAL.contains(&mount.fs_type.as_str()))
        .filter(|mount| !is_of_pod(&mount.mount_point) && !is_of_container(&mount.mount_point))
        .filter(|mount| devices.insert(mount.device.clone()))
        .collect()
}

fn disk_stats(disk: &procfs::DiskStat) -> DiskStats {
    DiskStats {
        reads: disk.reads,
        reads_merged: disk.merged,
        sectors_read: disk.sectors_read,
        read_time: disk.time_reading,
        writes: disk.writes,
        writes_merged: disk.writes_merged,
        sectors_written: disk.sectors_written,
        write_time: disk.time_writing,
        in_progress: disk.in_progress,
        io_time: disk.time_in_progress,
        weighted_io_time: disk.weighted_time_in_progress,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_local_device_counts_once_and_those_of_pods_do_not() {
        let mount = |device: &str, fs_type: &str, path: &str| Mount {
            mount_point: path.into(),
            device: device.into(),
            root: "/".into(),
            fs_type: fs_type.into(),
            shared: false,
        };
        let mounts = [
            mount("8:1", "ext4", "/"),
            mount("8:1", "ext4", "/again"),
            mount("0:1", "proc", "/proc"),
            mount("0:2", "tmpfs", "/run"),
            mount("0:3", "tmpfs", "/var/lib/kubelet/pods/u/volumes/x"),
            mount("0:4", "nfs4", "/mnt"),
            mount(
                "0:5",
                "tmpfs",
                "/run/containerd/io.containerd.grpc.v1.cri/sandboxes/1/shm",
            ),
        ];
        let found = local(&mounts, &["/var/lib/kubelet".into()]);
        let paths: Vec<_> = found
            .iter()
            .map(|mount| mount.mount_point.to_str().unwrap())
            .collect();
        assert_eq!(paths, ["/", "/run"]);
    }
}
