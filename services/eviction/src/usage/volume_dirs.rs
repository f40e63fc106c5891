//! The directories of pods' volumes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_kit::{BlockingCall, HealthConditions, report};

use super::{NOT_MEASURED_DURATION, NodePaths};

const CSI: &str = "kubernetes.io~csi";
/// How long listing the volumes of all pods may take.
const DEADLINE: Duration = Duration::from_secs(2);
/// The reason of the health condition.
const NOT_LISTED: &str = "VolumesNotListed";

/// A volume of a pod, by its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MeasuredVolume {
    /// The directory's name.
    pub(super) name: String,
    pub(super) dir: PathBuf,
    pub(super) is_csi: bool,
}

/// The volumes of pods, by uid.
pub(super) type PodVolumes = BTreeMap<String, Vec<MeasuredVolume>>;

/// Lists the volumes of pods, once at a time: a disk that hangs occupies one thread.
#[derive(Default)]
pub(super) struct VolumeLister(BlockingCall<PodVolumes>);

impl VolumeLister {
    /// The volumes that `list` finds, or that an earlier call finds that has not returned yet. Pods
    /// whose volumes are unknown are missing.
    pub(super) async fn run(
        &mut self,
        conditions: &HealthConditions,
        list: impl FnOnce() -> PodVolumes + Send + 'static,
    ) -> PodVolumes {
        match self.0.run(DEADLINE, list).await {
            Ok(volumes) => {
                conditions.clear(NOT_LISTED, "");
                volumes
            }
            Err(error) => {
                conditions.set_for(NOT_LISTED, "", report(&error), NOT_MEASURED_DURATION);
                PodVolumes::new()
            }
        }
    }
}

/// Lists the volumes of these pods. May never return.
pub(super) fn list(paths: &NodePaths, uids: Vec<String>) -> PodVolumes {
    let volumes = uids.into_iter().map(|uid| {
        let volumes = volume_dirs(paths, &uid);
        (uid, volumes)
    });
    volumes.collect()
}

/// The volumes of a pod, by name. The directories belong to the node, not to pods.
fn volume_dirs(paths: &NodePaths, uid: &str) -> Vec<MeasuredVolume> {
    let children = |dir: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let volumes = paths.pods().join(uid).join("volumes");
    let mut all: Vec<MeasuredVolume> = children(&volumes)
        .iter()
        .flat_map(|plugin| {
            let is_csi = plugin.ends_with(CSI);
            let volume = move |dir: PathBuf| {
                let name = dir.file_name()?.to_string_lossy().into_owned();
                Some(MeasuredVolume { name, dir, is_csi })
            };
            children(plugin).into_iter().filter_map(volume)
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use polylet_cri::RuntimeClient;

    use super::super::observe::NodeObserver;
    use super::*;
    use crate::core::signal::Signal;
    use crate::sample::cgroup::CgroupMounts;

    /// More than there are blocking threads in the service.
    const LISTINGS: usize = 20;

    fn volumes(uid: &str) -> PodVolumes {
        PodVolumes::from([(uid.to_owned(), Vec::new())])
    }

    #[test]
    fn a_disk_that_hangs_does_not_hide_memory_pressure() {
        let service = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .max_blocking_threads(16)
            .build()
            .unwrap();
        let (release, released) = channel::<()>();
        let mut released = Some(released);
        service.block_on(async {
            let conditions = HealthConditions::default();
            let mut lister = VolumeLister::default();
            for _ in 0..LISTINGS {
                let released = released.take();
                let hang = move || {
                    released.map(|released| released.recv());
                    volumes("old")
                };
                let (listed, ()) = futures::join!(
                    lister.run(&conditions, hang),
                    tokio::time::advance(DEADLINE + Duration::from_millis(1))
                );
                assert!(listed.is_empty());
            }
            assert_eq!(conditions.to_wire().len(), 1);
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("none.sock");
            let mut observer = NodeObserver::new(
                RuntimeClient::connect(&socket.to_string_lossy(), DEADLINE),
                CgroupMounts::detect(),
                Vec::new(),
                dir.path().to_owned(),
                conditions.clone(),
            );
            let (observations, _) = observer.observe().await;
            assert!(observations.get(Signal::MemoryAvailable).is_some());
            drop(release);
            // What the first call has found.
            let listed = lister.run(&conditions, || volumes("new")).await;
            assert_eq!(listed, volumes("old"));
            assert_eq!(
                lister.run(&conditions, || volumes("new")).await,
                volumes("new")
            );
        });
    }
}
