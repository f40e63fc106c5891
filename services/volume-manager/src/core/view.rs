//! What is told of a pod's volumes.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::layout::{self, Layout, VolumeId};
use super::limits;
use super::payload::Blocked;
use super::plan::{ActualPod, ActualVolume, Desired, Slot, Work};
use super::spec::{PodName, PodSpec, SetUp, Wants};

/// What upstream says first of a volume that cannot be set up.
const SET_UP_FAILED: &str = "MountVolume.SetUp failed for volume";

/// What upstream says first of a block device that cannot be set up.
const MAP_FAILED: &str = "MapVolume.SetUpDevice failed for volume";

/// What upstream says first of a volume that cannot be made larger.
const RESIZE_FAILED: &str = "NodeExpandVolume.NodeExpandVolume failed for volume";

/// What upstream says first of a pod whose volumes cannot be had.
const NOT_MOUNTED: &str = "Unable to attach or mount volumes:";

/// How far a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not there yet.
    Waiting,
    /// Not there yet, and will be in a moment.
    Coming,
    /// Containers can use it.
    Mounted,
    /// On its way out.
    Releasing,
    /// Not there any more.
    Gone,
    /// The last attempt failed.
    Failed,
}

/// What is told of one volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeView {
    /// Its name.
    pub name: String,
    /// How far it is.
    pub phase: Phase,
    /// Where it is, once it can be used.
    pub host_path: String,
    /// What it waits for or why it failed.
    pub message: String,
    /// Since when phase and message are what they are.
    pub since: Timestamp,
    /// The pod may not stay on this node because of it.
    pub refused: bool,
    /// The group of those who may use it, where the volume itself names one.
    pub group: Option<i64>,
}

/// What is told of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// The pod.
    pub pod: PodName,
    /// The last declaration that this takes account of.
    pub sequence: u64,
    /// Its volumes.
    pub volumes: Vec<VolumeView>,
    /// Since when it waits for some of them.
    pub waits_since: Option<Timestamp>,
    /// When it is refused, if nothing changes.
    pub refused_at: Option<Timestamp>,
}

/// Everything that a view is made of.
#[derive(Debug)]
pub struct Known<'a> {
    /// The pod.
    pub pod: PodName,
    /// Its last declaration.
    pub sequence: u64,
    /// What its manifest asks for, if that is known.
    pub spec: Option<&'a PodSpec>,
    /// What shall be.
    pub desired: &'a Desired,
    /// What is.
    pub actual: &'a ActualPod,
    /// Where each volume lies, as far as that is known.
    pub slots: BTreeMap<String, Slot>,
    /// hostPath volumes and those of claims that were usable when this process started: nothing on
    /// disk tells of them.
    pub noted: &'a BTreeMap<String, String>,
}

/// The view of a pod; `before` is the last one, for the times.
pub fn view(
    known: &Known<'_>,
    layout: &Layout,
    before: Option<&PodView>,
    now: Timestamp,
) -> PodView {
    let mut volumes = match known.desired {
        Desired::Keep(wanted) => kept(known, wanted, layout),
        Desired::Gone => leaving(known),
        Desired::Unsaid => found(known, layout),
    };
    let waits = matches!(known.desired, Desired::Keep(_))
        && volumes.iter().any(|volume| volume.phase != Phase::Mounted);
    let waited = before.and_then(|before| before.waits_since);
    let waits_since = waits.then(|| waited.unwrap_or(now));
    let refused_at = limits::due(known.desired, waits_since);
    if refused_at.is_some_and(|due| due <= now) {
        limits::refuse(known, &mut volumes);
    }
    for volume in &mut volumes {
        let same = |old: &&VolumeView| {
            old.name == volume.name && old.phase == volume.phase && old.message == volume.message
        };
        let old = before.and_then(|before| before.volumes.iter().find(same));
        volume.since = old.map_or(now, |old| old.since);
    }
    PodView {
        pod: known.pod.clone(),
        sequence: known.sequence,
        volumes,
        waits_since,
        refused_at,
    }
}

fn told(name: &str, phase: Phase, message: impl Into<String>) -> VolumeView {
    VolumeView {
        name: name.to_owned(),
        phase,
        host_path: String::new(),
        message: message.into(),
        since: Timestamp::UNIX_EPOCH,
        refused: false,
        group: None,
    }
}

fn kept(
    known: &Known<'_>,
    wanted: &BTreeMap<Slot, Result<std::sync::Arc<SetUp>, Blocked>>,
    layout: &Layout,
) -> Vec<VolumeView> {
    let volumes = known
        .spec
        .map(|spec| spec.volumes.as_slice())
        .unwrap_or_default();
    let tell = |volume: &super::spec::Volume| {
        let name = &volume.name;
        let (Some(plugin), false) = (volume.plugin(), matches!(volume.wants, Wants::Refused(_)))
        else {
            let why = match &volume.wants {
                Wants::Refused(why) => why.as_str(),
                _ => "not a volume of this node",
            };
            return told(name, Phase::Failed, why);
        };
        let unknown = || (plugin.to_owned(), name.clone());
        let slot = known.slots.get(name).cloned().unwrap_or_else(unknown);
        let nothing = ActualVolume::default();
        let there = known.actual.volumes.get(&slot).unwrap_or(&nothing);
        let problem = match (wanted.get(&slot), &there.work) {
            (Some(Err(Blocked::Waiting(what))), _) => Some((Phase::Waiting, what.clone())),
            (Some(Err(Blocked::Coming(what))), _) => Some((Phase::Coming, what.clone())),
            (Some(Err(Blocked::Unattached(why) | Blocked::Exhausted { why, .. })), _) => {
                Some((Phase::Waiting, unattached(name, why)))
            }
            (Some(Err(Blocked::Unresolved(why))), _) => {
                Some((Phase::Waiting, unresolved(name, why)))
            }
            (Some(Err(Blocked::Missing(what))), _) => Some((Phase::Waiting, fails(&slot, what))),
            (Some(Err(Blocked::Failed(why))), _) => Some((Phase::Failed, fails(&slot, why))),
            (Some(Err(Blocked::Refused(what, why))), _) => {
                Some((Phase::Failed, refused(&slot, what, why)))
            }
            (Some(Err(Blocked::Lacking(what, why))), _) => {
                Some((Phase::Waiting, refused(&slot, what, why)))
            }
            (_, Work::Failed(failure)) if there.holds.is_usable() && failure.grows(true) => Some((
                Phase::Failed,
                format!("{RESIZE_FAILED} \"{}\" : {}", slot.1, failure.why.message),
            )),
            (_, Work::Failed(failure)) => {
                let why = &failure.why.message;
                let text = match failure.why.doing {
                    Some(what) => refused(&slot, what, why),
                    None => fails(&slot, why),
                };
                Some((Phase::Failed, text))
            }
            _ => None,
        };
        // What could be used before still can: an update that fails disturbs nobody.
        let noted = known.noted.get(name).filter(|path| match volume.wants {
            Wants::Plain(_) => true,
            Wants::Claim(_) => still_there(known, path, layout),
            _ => false,
        });
        if there.holds.is_usable() || noted.is_some() {
            let text = problem.map_or_else(String::new, |(_, text)| text);
            let mut volume_view = told(name, Phase::Mounted, text);
            volume_view.host_path = match (wanted.get(&slot), noted) {
                (Some(Ok(set_up)), _) => host_path(set_up, &known.pod.uid, &slot, layout),
                (_, Some(path)) => path.clone(),
                _ => on_disk(&known.pod.uid, &slot, layout),
            };
            return volume_view;
        }
        match problem {
            Some((phase, text)) => told(name, phase, text),
            None => told(name, Phase::Waiting, "being set up"),
        }
    };
    volumes.iter().map(tell).collect()
}

/// Upstream's words; what it says of a mount is an event of the pod. A claim's volume has the
/// persistent volume's name there.
fn fails((plugin, name): &Slot, why: &str) -> String {
    let what = match layout::device_of(plugin) {
        Some(_) => MAP_FAILED,
        None => SET_UP_FAILED,
    };
    format!("{what} \"{name}\" : {why}")
}

/// The same of one part of it.
fn refused((_, name): &Slot, what: &str, why: &str) -> String {
    format!("{what} for volume \"{name}\" : {why}")
}

/// The reason of the event that tells people of a volume, by the words; none for what is not told.
pub fn reason(message: &str) -> Option<&'static str> {
    let says = |first| message.starts_with(first);
    if says("MapVolume.") {
        Some("FailedMapVolume")
    } else if says(RESIZE_FAILED) {
        Some("VolumeResizeFailed")
    } else if says("MountVolume.") || says(NOT_MOUNTED) {
        Some("FailedMount")
    } else {
        None
    }
}

fn unattached(name: &str, why: &str) -> String {
    format!(
        "{NOT_MOUNTED} unmounted volumes=[{name}], unattached volumes=[{name}], failed to process volumes=[]: {why}"
    )
}

fn unresolved(name: &str, why: &str) -> String {
    format!(
        "{NOT_MOUNTED} unmounted volumes=[{name}], unattached volumes=[], failed to process volumes=[{name}]: {why}"
    )
}

/// Whether a claim's volume is still where it was when it was noted: its claim may not be known yet.
fn still_there(known: &Known<'_>, path: &str, layout: &Layout) -> bool {
    let mut volumes = known.actual.volumes.iter();
    let below = layout.pod(&known.pod.uid);
    !std::path::Path::new(path).starts_with(below)
        || volumes.any(|(slot, there)| {
            there.holds.is_usable() && on_disk(&known.pod.uid, slot, layout) == path
        })
}

fn host_path(set_up: &SetUp, uid: &str, slot: &Slot, layout: &Layout) -> String {
    match set_up {
        SetUp::HostPath { path, .. } => path.clone(),
        _ => on_disk(uid, slot, layout),
    }
}

fn on_disk(uid: &str, (plugin, name): &Slot, layout: &Layout) -> String {
    let path = layout.mounted(&VolumeId::new(uid, plugin, name));
    path.to_string_lossy().into_owned()
}

fn leaving(known: &Known<'_>) -> Vec<VolumeView> {
    let mut names: Vec<&str> = Vec::new();
    names.extend(
        known
            .spec
            .iter()
            .flat_map(|spec| &spec.volumes)
            .map(|v| v.name.as_str()),
    );
    for (_, name) in known.actual.volumes.keys() {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let tell = |name: &&str| {
        let there = known
            .actual
            .volumes
            .iter()
            .find(|((_, known), _)| known == name);
        match there {
            None => told(name, Phase::Gone, ""),
            Some((_, there)) => match &there.work {
                Work::Failed(failure) if failure.what.is_none() => {
                    told(name, Phase::Releasing, failure.why.message.clone())
                }
                _ => told(name, Phase::Releasing, ""),
            },
        }
    };
    names.iter().map(tell).collect()
}

fn found(known: &Known<'_>, layout: &Layout) -> Vec<VolumeView> {
    let on_disk = known.actual.volumes.iter().map(|(slot, there)| {
        if !there.holds.is_usable() {
            return told(&slot.1, Phase::Waiting, "found on disk, not declared yet");
        }
        let mut volume = told(&slot.1, Phase::Mounted, "");
        volume.host_path = match known.noted.get(&slot.1) {
            Some(path) if slot.0 == layout::HOST_PATH => path.clone(),
            _ => self::on_disk(&known.pod.uid, slot, layout),
        };
        volume
    });
    let noted = known
        .noted
        .iter()
        .filter(|(name, _)| !known.actual.volumes.keys().any(|(_, there)| there == *name));
    let noted = noted.map(|(name, path)| {
        let mut volume = told(name, Phase::Mounted, "");
        volume.host_path.clone_from(path);
        volume
    });
    on_disk.chain(noted).collect()
}
