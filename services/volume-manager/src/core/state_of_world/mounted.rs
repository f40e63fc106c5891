//! The mounted volumes, for statistics.

use polylet_model::PodUid;

use super::StateOfWorld;
use crate::core::actual_state::MountState;
use crate::core::csi_volume::CsiVolume;
use crate::core::layout::VolumeId;
use crate::core::mount_plan::MountPlan;
use crate::core::spec::VolumeSource;
use crate::core::status::VolumePhase;

/// A mounted volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedVolume {
    /// The uid of the pod.
    pub uid: PodUid,
    /// The name in the pod.
    pub name: String,
    /// The path on the node.
    pub host_path: String,
    /// The name of its claim; empty without one.
    pub claim: String,
    /// For a volume of a CSI driver: the volume, if the driver reports its usage.
    pub driver: Option<Option<Box<CsiVolume>>>,
}

/// All volumes that containers can use now.
pub(super) fn mounted(world: &StateOfWorld) -> Vec<MountedVolume> {
    let mut all = Vec::new();
    for (uid, spec) in world.applied_pods() {
        let volumes = world.published.volumes(uid).iter();
        for status in volumes.filter(|volume| volume.phase == VolumePhase::Mounted) {
            let claim = match spec.volume(&status.name).map(|volume| &volume.source) {
                Some(VolumeSource::Claim(claim)) => claim.key.name.clone(),
                _ => String::new(),
            };
            all.push(MountedVolume {
                uid: uid.clone(),
                name: status.name.clone(),
                host_path: status.host_path.clone(),
                claim,
                driver: csi_volume(world, uid, &status.host_path),
            });
        }
    }
    all
}

fn csi_volume(
    world: &StateOfWorld,
    uid: &PodUid,
    host_path: &str,
) -> Option<Option<Box<CsiVolume>>> {
    let mut volumes = world.actual.pod(uid)?.volumes.iter();
    volumes.find_map(|((plugin, name), volume)| {
        let path = world
            .layout
            .mounted(&VolumeId::new(uid.clone(), plugin, name));
        let MountState::Mounted(plan) = &volume.mount else {
            return None;
        };
        let MountPlan::Csi(csi) = &**plan else {
            return None;
        };
        let driver = world.dependencies.registered(&csi.driver);
        let reports = driver.is_some_and(|driver| driver.volume_stats) && !csi.block;
        (path.as_os_str() == host_path).then(|| reports.then(|| csi.clone()))
    })
}
