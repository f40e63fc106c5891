//! From a claim to its persistent volume: the claim must be bound, and the volume to this claim.
//! Messages are upstream's.

use std::sync::Arc;

use polylet_model::node_affinity;

use super::api_objects::{
    ClaimResize, ObjectDetails, PersistentSource, PersistentVolume, VolumeClaim,
};
use super::blocked::Blocked;
use super::csi;
use super::layout::{self, VolumeKey};
use super::lookup::Lookup;
use super::mount_plan::{LocalVolume, MountPlan};
use super::nfs_volume::NfsVolume;
use super::pod::PodContext;
use super::reference_key::{ObjectKind, ReferenceKey};
use super::references::{ObjectState, ReferencedObject};
use super::resize::volume_size;
use super::spec::{ClaimSpec, MigratedVolume};
use super::usage::VolumeUse;

/// A volume with its key, and its plan or why it is blocked.
pub type ResolvedVolume = (VolumeKey, Result<Arc<MountPlan>, Blocked>);

/// The key of a volume whose persistent volume is not known.
fn unresolved_key(volume: &str) -> VolumeKey {
    (layout::UNRESOLVED.to_owned(), volume.to_owned())
}

/// Resolves a volume by claim.
pub fn resolve(volume: &str, spec: &ClaimSpec, lookup: &impl Lookup) -> ResolvedVolume {
    match find_bound(spec, lookup) {
        Ok((claim, persistent)) => plan(volume, spec, &claim, &persistent, lookup),
        Err(Blocked::Missing(error)) => {
            let (namespace, name) = (&spec.key.namespace, &spec.key.name);
            let message = format!("error processing PVC {namespace}/{name}: {error}");
            (unresolved_key(volume), Err(Blocked::Unresolved(message)))
        }
        Err(blocked) => (unresolved_key(volume), Err(blocked)),
    }
}

fn find_bound(
    spec: &ClaimSpec,
    lookup: &impl Lookup,
) -> Result<(VolumeClaim, Box<PersistentVolume>), Blocked> {
    let missing = |message: String| Err(Blocked::Missing(message));
    let fetch = |key: &ReferenceKey, what: &str| match lookup.object(key) {
        ObjectState::Present(object) => Ok(Arc::clone(object)),
        ObjectState::NotSynced => Err(Blocked::Waiting(key.not_synced())),
        ObjectState::Absent => Err(Blocked::Missing(format!(
            "failed to fetch {what} from API server: {}",
            key.not_found()
        ))),
        ObjectState::Unknown(error) | ObjectState::Invalid(error) => Err(Blocked::Missing(
            format!("failed to fetch {what} from API server: {error}"),
        )),
    };
    let object = fetch(&spec.key, "PVC")?;
    let ObjectDetails::Claim(claim) = &object.details else {
        return missing("the object is not a claim".to_owned());
    };
    let pod = &spec.pod_context.pod;
    if spec.ephemeral && claim.owner.as_deref() != Some(pod.uid.as_str()) {
        let (namespace, name) = (&spec.key.namespace, &spec.key.name);
        return missing(format!(
            "PVC {namespace}/{name} was not created for pod {}/{} (pod is not owner)",
            pod.namespace, pod.name
        ));
    }
    if let Some(error) = unusable(claim) {
        return missing(error.to_owned());
    }
    let key = ReferenceKey::cluster_scoped(ObjectKind::PersistentVolume, &claim.volume);
    let object = fetch(&key, &format!("PV {}", claim.volume))?;
    Ok((claim.clone(), check_bound(claim, &object)?))
}

fn unusable(claim: &VolumeClaim) -> Option<&'static str> {
    if claim.deleting {
        Some("PVC is being deleted")
    } else if !claim.bound {
        Some("PVC is not bound")
    } else if claim.volume.is_empty() {
        Some("PVC has empty pvc.Spec.VolumeName")
    } else {
        None
    }
}

fn check_bound(
    claim: &VolumeClaim,
    object: &ReferencedObject,
) -> Result<Box<PersistentVolume>, Blocked> {
    let missing = |message: String| Err(Blocked::Missing(message));
    let ObjectDetails::PersistentVolume(persistent) = &object.details else {
        return missing("the object is not a persistent volume".to_owned());
    };
    let name = &persistent.name;
    match &persistent.claim {
        None => missing(format!(
            "found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
        )),
        Some(uid) if *uid != claim.uid => missing(format!(
            "found PV object {name} but its pv.Spec.ClaimRef.UID {uid} does not point to claim.UID {}",
            claim.uid
        )),
        Some(_) => Ok(persistent.clone()),
    }
}

/// The name in the Node's `volumesInUse` of a claim's volume, if it has to be attached.
pub fn attachable(spec: &ClaimSpec, lookup: &impl Lookup) -> Option<String> {
    let (_, persistent) = find_bound(spec, lookup).ok()?;
    match &persistent.source {
        Ok(PersistentSource::Csi(source)) => csi::attachable(source, lookup),
        _ => None,
    }
}

/// Resolves an inline volume of a former in-tree plugin.
pub fn resolve_migrated(
    volume: &str,
    spec: &MigratedVolume,
    lookup: &impl Lookup,
) -> ResolvedVolume {
    let persistent = &spec.persistent;
    let Some(name) = layout::escaped_spec_name(&persistent.name) else {
        let error = format!("{:?} cannot name a directory", persistent.name);
        return (unresolved_key(volume), Err(Blocked::Failed(error)));
    };
    let plan = csi::persistent(
        persistent,
        &spec.source,
        &ClaimResize::default(),
        false,
        &spec.pod_context,
        lookup,
    );
    ((layout::CSI.to_owned(), name), plan)
}

/// A bound claim and its persistent volume.
pub fn bound_volume(
    spec: &ClaimSpec,
    lookup: &impl Lookup,
) -> Option<(VolumeClaim, Box<PersistentVolume>)> {
    find_bound(spec, lookup).ok()
}

/// Containers must use the volume according to its `volumeMode`.
fn check_volume_mode(volume: &str, usage: VolumeUse, block: bool) -> Result<(), Blocked> {
    let (mode, at) = match (block, usage) {
        (true, VolumeUse { mounted: true, .. }) => ("Block", "volumeMounts"),
        (false, VolumeUse { mapped: true, .. }) => ("Filesystem", "volumeDevices"),
        _ => return Ok(()),
    };
    let message = format!("volume {volume} has volumeMode {mode}, but is specified in {at}");
    Err(Blocked::Unresolved(message))
}

/// The volume's node affinity must match this node.
fn check_node_affinity(persistent: &PersistentVolume, lookup: &impl Lookup) -> Result<(), Blocked> {
    let Some(nodes) = &persistent.nodes else {
        return Ok(());
    };
    let not_synced = || Blocked::Waiting("waiting for the Node object".to_owned());
    let node = lookup.node_info().ok_or_else(not_synced)?;
    if node_affinity::matches_selector(nodes, lookup.node_name(), &node.labels) {
        return Ok(());
    }
    let step = match persistent.block {
        true => "MapVolume.NodeAffinity check failed",
        false => "MountVolume.NodeAffinity check failed",
    };
    Err(Blocked::FailedIn(
        step,
        "no matching NodeSelectorTerms".into(),
    ))
}

/// A `ReadWriteOncePod` volume must not be used by another pod of this node.
fn check_single_pod(
    persistent: &PersistentVolume,
    pod_context: &PodContext,
    lookup: &impl Lookup,
) -> Result<(), Blocked> {
    // With several access modes it is not known which one the pod uses.
    if persistent.access_modes != ["ReadWriteOncePod"]
        || !lookup.is_used_by_other_pod(&pod_context.pod.uid, &persistent.name)
    {
        return Ok(());
    }
    let step = match persistent.block {
        true => "MapVolume.SetUpDevice failed",
        false => "MountVolume.SetUp failed",
    };
    let error = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
    Err(Blocked::FailedIn(step, error.to_owned()))
}

fn plan(
    volume: &str,
    spec: &ClaimSpec,
    claim: &VolumeClaim,
    persistent: &PersistentVolume,
    lookup: &impl Lookup,
) -> ResolvedVolume {
    let failed = |message: String| (unresolved_key(volume), Err(Blocked::Failed(message)));
    if let Err(blocked) = check_volume_mode(volume, spec.usage, persistent.block) {
        return (unresolved_key(volume), Err(blocked));
    }
    let name = persistent.name.clone();
    if !layout::is_safe_spec_name(&name) {
        return failed(format!("{name:?} cannot name a directory"));
    }
    let block = persistent.block;
    let (key, plan) = match &persistent.source {
        Err(blocked) => return (unresolved_key(volume), Err(blocked.clone())),
        Ok(PersistentSource::HostPath(..)) if block => {
            return failed("a hostPath volume cannot be a block device".to_owned());
        }
        Ok(PersistentSource::HostPath(path, check)) => {
            let key = (layout::HOST_PATH.to_owned(), volume.to_owned());
            let (path, check) = (path.clone(), *check);
            (key, Ok(Arc::new(MountPlan::HostPath { path, check })))
        }
        Ok(PersistentSource::Nfs(_)) if block => {
            return failed("an NFS volume cannot be a block device".to_owned());
        }
        Ok(PersistentSource::Nfs(nfs)) => {
            // As upstream, by the claim's use and not by the persistent volume's source.
            let nfs = NfsVolume {
                read_only: spec.read_only,
                ..(**nfs).clone()
            };
            let plan = MountPlan::Nfs(Box::new(nfs));
            ((layout::NFS.to_owned(), name), Ok(Arc::new(plan)))
        }
        Ok(PersistentSource::Local(path, _)) if block => {
            let plan = MountPlan::LocalDevice {
                path: path.clone(),
                size: volume_size(&claim.resize, &persistent.capacity, spec.read_only),
            };
            ((layout::LOCAL_DEVICE.to_owned(), name), Ok(Arc::new(plan)))
        }
        Ok(PersistentSource::Local(path, fs_type)) => {
            let plan = MountPlan::Local(Box::new(LocalVolume {
                path: path.clone(),
                fs_type: fs_type.clone(),
                mount_options: persistent.mount_options.clone(),
                read_only: spec.read_only,
                gid: spec.pod_context.gid.filter(|_| !spec.read_only),
                on_root_mismatch: spec.pod_context.on_root_mismatch,
                size: volume_size(&claim.resize, &persistent.capacity, spec.read_only),
            }));
            ((layout::LOCAL.to_owned(), name), Ok(Arc::new(plan)))
        }
        Ok(PersistentSource::Csi(source)) => {
            let (resize, pod_context) = (&claim.resize, &spec.pod_context);
            let plan = csi::persistent(
                persistent,
                source,
                resize,
                spec.read_only,
                pod_context,
                lookup,
            );
            let plugin = if block {
                layout::CSI_DEVICE
            } else {
                layout::CSI
            };
            ((plugin.to_owned(), name), plan)
        }
    };
    let checked = check_node_affinity(persistent, lookup)
        .and_then(|()| check_single_pod(persistent, &spec.pod_context, lookup));
    (key, checked.and(plan))
}
