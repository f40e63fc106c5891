//! From a claim to the volume behind it: what is there must be bound, and to this very claim.

use std::sync::Arc;

use polylet_model::selector;

use super::csi;
use super::facts::{Claim, Facts, Persistent, Source};
use super::growth::growth;
use super::layout;
use super::objects::{Object, ObjectKey, ObjectKind, ObjectState};
use super::payload::{Blocked, Known};
use super::plan::Slot;
use super::spec::{ClaimSpec, Local, SetUp, Used};

/// What a claim comes to: where the volume lies, and what setting it up takes.
pub type Resolved = (Slot, Result<Arc<SetUp>, Blocked>);

/// The place of a volume of which nobody knows yet what it is.
pub fn nowhere(volume: &str) -> Slot {
    (layout::UNRESOLVED.to_owned(), volume.to_owned())
}

/// The volume behind a claim.
pub fn resolve(volume: &str, spec: &ClaimSpec, known: &impl Known) -> Resolved {
    match behind(spec, known) {
        Ok((claim, persistent)) => mount(volume, spec, &claim, &persistent, known),
        Err(Blocked::Missing(why)) => {
            let (namespace, name) = (&spec.key.namespace, &spec.key.name);
            let why = format!("error processing PVC {namespace}/{name}: {why}");
            (nowhere(volume), Err(Blocked::Unresolved(why)))
        }
        Err(blocked) => (nowhere(volume), Err(blocked)),
    }
}

fn behind(spec: &ClaimSpec, known: &impl Known) -> Result<(Claim, Box<Persistent>), Blocked> {
    let missing = |why: String| Err(Blocked::Missing(why));
    let fetch = |key: &ObjectKey, what: &str| match known.object(key) {
        ObjectState::Present(object) => Ok(Arc::clone(object)),
        ObjectState::Unheard => Err(Blocked::Waiting(format!("waiting to hear of {key}"))),
        ObjectState::Absent => Err(Blocked::Missing(format!(
            "failed to fetch {what} from API server: {} \"{}\" not found",
            key.kind.word(),
            key.name
        ))),
        ObjectState::Unknown(why) | ObjectState::Broken(why) => Err(Blocked::Missing(format!(
            "failed to fetch {what} from API server: {why}"
        ))),
    };
    let object = fetch(&spec.key, "PVC")?;
    let Facts::Claim(claim) = &object.facts else {
        return missing("the object is not a claim".to_owned());
    };
    let pod = &spec.for_pod.pod;
    if spec.made_for_pod && claim.owner.as_ref() != Some(&pod.uid) {
        let (namespace, name) = (&spec.key.namespace, &spec.key.name);
        return missing(format!(
            "PVC {namespace}/{name} was not created for pod {}/{} (pod is not owner)",
            pod.namespace, pod.name
        ));
    }
    if let Some(why) = unusable(claim) {
        return missing(why.to_owned());
    }
    let key = ObjectKey {
        kind: ObjectKind::Persistent,
        namespace: String::new(),
        name: claim.volume.clone(),
        cluster: true,
    };
    let object = fetch(&key, &format!("PV {}", claim.volume))?;
    Ok((claim.clone(), bound(claim, &object)?))
}

fn unusable(claim: &Claim) -> Option<&'static str> {
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

fn bound(claim: &Claim, object: &Object) -> Result<Box<Persistent>, Blocked> {
    let missing = |why: String| Err(Blocked::Missing(why));
    let Facts::Persistent(persistent) = &object.facts else {
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

/// The name that the Node's status has for the volume behind a claim, if it has to be attached.
pub fn attachable(spec: &ClaimSpec, known: &impl Known) -> Option<String> {
    let (_, persistent) = behind(spec, known).ok()?;
    match &persistent.source {
        Ok(Source::Csi(source)) => csi::attachable(source, known),
        _ => None,
    }
}

/// What a claim and its volume say, once the one is bound to the other.
pub fn bound_to(spec: &ClaimSpec, known: &impl Known) -> Option<(Claim, Box<Persistent>)> {
    behind(spec, known).ok()
}

/// What containers make of the volume has to be what it is.
fn as_it_is(volume: &str, used: Used, block: bool) -> Result<(), Blocked> {
    let (mode, at) = match (block, used) {
        (true, Used { mounted: true, .. }) => ("Block", "volumeMounts"),
        (false, Used { mapped: true, .. }) => ("Filesystem", "volumeDevices"),
        _ => return Ok(()),
    };
    let why = format!("volume {volume} has volumeMode {mode}, but is specified in {at}");
    Err(Blocked::Unresolved(why))
}

/// Whether the volume can be had on this node.
fn here(persistent: &Persistent, known: &impl Known) -> Result<(), Blocked> {
    let Some(nodes) = &persistent.nodes else {
        return Ok(());
    };
    let waits = || Blocked::Waiting("waiting to hear of this node's labels".to_owned());
    let place = known.place().ok_or_else(waits)?;
    if selector::selects(nodes, known.node(), &place.labels) {
        return Ok(());
    }
    let what = match persistent.block {
        true => "MapVolume.NodeAffinity check failed",
        false => "MountVolume.NodeAffinity check failed",
    };
    Err(Blocked::Refused(
        what,
        "no matching NodeSelectorTerms".into(),
    ))
}

/// Whether a volume that one pod alone may have is another's on this node.
fn alone(
    persistent: &Persistent,
    for_pod: &csi::ForPod,
    known: &impl Known,
) -> Result<(), Blocked> {
    // Of several ways nobody knows which one the pod means.
    if persistent.access_modes != ["ReadWriteOncePod"]
        || !known.is_elsewhere(&for_pod.pod.uid, &persistent.name)
    {
        return Ok(());
    }
    let what = match persistent.block {
        true => "MapVolume.SetUpDevice failed",
        false => "MountVolume.SetUp failed",
    };
    let why = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
    Err(Blocked::Refused(what, why.to_owned()))
}

fn mount(
    volume: &str,
    spec: &ClaimSpec,
    claim: &Claim,
    persistent: &Persistent,
    known: &impl Known,
) -> Resolved {
    let failed = |why: String| (nowhere(volume), Err(Blocked::Failed(why)));
    if let Err(blocked) = as_it_is(volume, spec.used, persistent.block) {
        return (nowhere(volume), Err(blocked));
    }
    let name = persistent.name.clone();
    if !layout::is_safe_spec_name(&name) {
        return failed(format!("{name:?} cannot name a directory"));
    }
    let block = persistent.block;
    let (slot, set_up) = match &persistent.source {
        Err(why) => return failed(why.clone()),
        Ok(Source::HostPath(_)) if block => {
            return failed("a hostPath volume cannot be a block device".to_owned());
        }
        Ok(Source::HostPath(set_up)) => {
            let slot = (layout::HOST_PATH.to_owned(), volume.to_owned());
            (slot, Ok(Arc::new(set_up.clone())))
        }
        Ok(Source::Local(path, _)) if block => {
            let set_up = SetUp::LocalDevice {
                path: path.clone(),
                size: growth(&claim.growth, &persistent.capacity, spec.read_only),
            };
            (
                (layout::LOCAL_DEVICE.to_owned(), name),
                Ok(Arc::new(set_up)),
            )
        }
        Ok(Source::Local(path, fs_type)) => {
            let set_up = SetUp::Local(Box::new(Local {
                path: path.clone(),
                fs_type: fs_type.clone(),
                mount_options: persistent.mount_options.clone(),
                read_only: spec.read_only,
                gid: spec.for_pod.gid.filter(|_| !spec.read_only),
                on_root_mismatch: spec.for_pod.on_root_mismatch,
                size: growth(&claim.growth, &persistent.capacity, spec.read_only),
            }));
            ((layout::LOCAL.to_owned(), name), Ok(Arc::new(set_up)))
        }
        Ok(Source::Csi(source)) => {
            let (growth, for_pod) = (&claim.growth, &spec.for_pod);
            let set_up =
                csi::persistent(persistent, source, growth, spec.read_only, for_pod, known);
            let plugin = if block {
                layout::CSI_DEVICE
            } else {
                layout::CSI
            };
            ((plugin.to_owned(), name), set_up)
        }
    };
    let may = here(persistent, known).and_then(|()| alone(persistent, &spec.for_pod, known));
    (slot, may.and(set_up))
}
