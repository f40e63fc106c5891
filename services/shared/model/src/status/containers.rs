//! The statuses of all containers.

use k8s_openapi::api::core::v1::{
    Container as Spec, ContainerState, ContainerStatus, ResourceRequirements, VolumeMountStatus,
};

use super::{Container, ContainerPhase, Note, Stage, StatusFacts, state};
use crate::constants::reason;
use crate::pod::ContainerKind;
use crate::probe::{self, ProbeKind};
use crate::restart::{self, Decision};

/// The three lists of a pod's status.
#[derive(Clone, Default)]
pub(super) struct Lists {
    /// By name.
    pub(super) regular: Vec<ContainerStatus>,
    /// In the order in which they start.
    pub(super) init: Vec<ContainerStatus>,
    /// By name.
    pub(super) ephemeral: Vec<ContainerStatus>,
}

impl Lists {
    /// A regular or init container's status.
    pub(super) fn get(&self, name: &str) -> Option<&ContainerStatus> {
        self.regular
            .iter()
            .chain(&self.init)
            .find(|status| status.name == name)
    }
}

pub(super) fn statuses(facts: &StatusFacts<'_>) -> Lists {
    let mut lists = Lists::default();
    for (kind, spec) in facts.manifest.all_containers() {
        let mut status = one(facts, kind, spec);
        readiness(facts, kind, spec, &mut status);
        match kind {
            ContainerKind::Init | ContainerKind::Sidecar => lists.init.push(status),
            ContainerKind::Regular => lists.regular.push(status),
            ContainerKind::Ephemeral => lists.ephemeral.push(status),
        }
    }
    lists.regular.sort_by(|a, b| a.name.cmp(&b.name));
    lists.ephemeral.sort_by(|a, b| a.name.cmp(&b.name));
    lists
}

/// The containers of one name in the runtime, newest first.
pub(super) fn named<'a>(
    facts: &'a StatusFacts<'_>,
    name: &str,
) -> impl Iterator<Item = &'a Container> {
    facts
        .containers
        .iter()
        .filter(move |container| container.name == name)
}

/// What the status that stood before says of a container.
pub(super) fn before<'a>(
    facts: &'a StatusFacts<'_>,
    kind: ContainerKind,
    name: &str,
) -> Option<&'a ContainerStatus> {
    let previous = facts.previous?;
    let list = match kind {
        ContainerKind::Init | ContainerKind::Sidecar => &previous.init_container_statuses,
        ContainerKind::Regular => &previous.container_statuses,
        ContainerKind::Ephemeral => &previous.ephemeral_container_statuses,
    };
    list.iter().flatten().find(|status| status.name == name)
}

fn one(facts: &StatusFacts<'_>, kind: ContainerKind, spec: &Spec) -> ContainerStatus {
    let old = before(facts, kind, &spec.name);
    let note = facts.notes.iter().find(|note| note.container == spec.name);
    let mut found = named(facts, &spec.name).filter(|seen| !being_started(facts, old, note, seen));
    let newest = found.next().filter(|seen| !is_behind(facts, old, seen));
    let mut status = match newest {
        Some(container) => {
            let mut status = state::of(facts, container, old);
            if let Some(second) = found.next() {
                let second = state::of(facts, second, None).state;
                status.last_state = second
                    .filter(|state| state.terminated.is_some())
                    .or(status.last_state);
            }
            status.resources = Some(super::resources::of(facts, spec, container, old));
            status.allocated_resources = requests(spec);
            status
        }
        None => absent(facts, spec, old, note),
    };
    if status.image.is_empty() {
        status.image = spec.image.clone().unwrap_or_default();
    }
    if let Some(waits) = still_waits(old, note, &status) {
        status.last_state = status.state.replace(waits);
    }
    status.volume_mounts = mounts(spec, facts.recursive_read_only);
    let anew = note.is_some_and(|note| note.reason == reason::RESTARTING_ALL_CONTAINERS)
        || super::restarting::under_way(facts);
    if kind == ContainerKind::Init && newest.is_none() && !anew && initialized_before(facts) {
        if state::is_waiting(&status) {
            status.state = Some(state::terminated(forgotten_init()));
        }
    } else if let Some(note) = note.filter(|note| !note.reason.is_empty() && !starts(note))
        && should_run(facts, kind, spec, newest)
    {
        if state::ended(&status).is_some() {
            status.last_state = status.state.take();
        }
        status.state = Some(state::waiting(&note.reason, &note.message));
    }
    status
}

fn starts(note: &Note) -> bool {
    note.reason == reason::POST_START_HOOK
}

/// A container runs for people when its start has come to its end, postStart hook included. Until
/// then what was told before stands, as it does with upstream, which is busy meanwhile.
fn being_started(
    facts: &StatusFacts<'_>,
    old: Option<&ContainerStatus>,
    note: Option<&Note>,
    seen: &Container,
) -> bool {
    let told = || {
        let id = state::full_id(facts, seen);
        old.is_some_and(|old| state::is_running(old) && old.container_id.as_ref() == Some(&id))
    };
    facts.stage == Stage::Syncing
        && match seen.phase {
            ContainerPhase::Created => true,
            ContainerPhase::Running => note.is_some_and(starts) && !told(),
            ContainerPhase::Exited | ContainerPhase::Unknown => false,
        }
}

/// Whether what the runtime holds ended before what was told: the record of the later one is gone
/// already, as those of a pod that ends go one by one, and it was the last all the same.
fn is_behind(facts: &StatusFacts<'_>, old: Option<&ContainerStatus>, seen: &Container) -> bool {
    let Some((old, told)) = old.and_then(|old| Some((old, state::ended(old)?))) else {
        return false;
    };
    let attempt = i32::try_from(seen.attempt).unwrap_or(i32::MAX);
    let finished = seen.finished_at.map(super::second);
    facts.stage != Stage::Syncing
        && seen.phase == ContainerPhase::Exited
        && old.container_id.as_ref() != Some(&state::full_id(facts, seen))
        && attempt < old.restart_count
        && finished <= told.finished_at
}

/// What a container that ended waited for, when it is on its way to be started now: until that has
/// come to its end nothing else is told.
fn still_waits(
    old: Option<&ContainerStatus>,
    note: Option<&Note>,
    status: &ContainerStatus,
) -> Option<ContainerState> {
    let old = old.filter(|old| old.container_id == status.container_id)?;
    let on_its_way = note.is_some_and(starts) && state::ended(status).is_some();
    (on_its_way && state::is_waiting(old) && state::ended_last(old) == state::ended(status))
        .then(|| old.state.clone())?
}

/// The runtime holds nothing of this name: never did, or no longer.
fn absent(
    facts: &StatusFacts<'_>,
    spec: &Spec,
    old: Option<&ContainerStatus>,
    note: Option<&Note>,
) -> ContainerStatus {
    let has_init = !facts.manifest.init_containers().is_empty();
    let default = if has_init {
        reason::POD_INITIALIZING
    } else {
        reason::CONTAINER_CREATING
    };
    let mut status = ContainerStatus {
        name: spec.name.clone(),
        image: spec.image.clone().unwrap_or_default(),
        state: Some(state::waiting(default, "")),
        restart_count: note.map_or(0, |note| i32::try_from(note.restarts).unwrap_or(i32::MAX)),
        ..ContainerStatus::default()
    };
    if let Some(removed) = super::restarting::removed(old, note, status.clone()) {
        return removed;
    }
    let Some(old) = old else { return status };
    if state::ended(old).is_some() {
        return old.clone();
    }
    status.restart_count = status.restart_count.max(old.restart_count);
    status.last_state.clone_from(&old.last_state);
    // What is known of the last container of this name stays known.
    status.container_id.clone_from(&old.container_id);
    status.image_id.clone_from(&old.image_id);
    status.image.clone_from(&old.image);
    status.resources.clone_from(&old.resources);
    status
        .allocated_resources
        .clone_from(&old.allocated_resources);
    if state::is_running(old) && state::ended_last(old).is_none() {
        // It ran, and its end went by unseen. That is told as a past end, so that
        // the pod does not look as if it had never been started.
        status.last_state = Some(state::vanished(
            "The container could not be located when the pod was deleted.  The container used to be Running",
        ));
        if facts.manifest.deletion_timestamp().is_none() {
            status.restart_count = status
                .restart_count
                .max(old.restart_count.saturating_add(1));
        }
    }
    status
}

/// An init container whose record is gone must have ended well, since what comes after it was made.
fn initialized_before(facts: &StatusFacts<'_>) -> bool {
    facts
        .manifest
        .containers()
        .iter()
        .any(|regular| named(facts, &regular.name).next().is_some())
}

fn forgotten_init() -> k8s_openapi::api::core::v1::ContainerStateTerminated {
    k8s_openapi::api::core::v1::ContainerStateTerminated {
        reason: Some(reason::COMPLETED.to_owned()),
        message: Some(
            "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"
                .to_owned(),
        ),
        ..Default::default()
    }
}

/// Whether the next thing to happen to a container is a start.
fn should_run(
    facts: &StatusFacts<'_>,
    kind: ContainerKind,
    spec: &Spec,
    newest: Option<&Container>,
) -> bool {
    if facts.stage != Stage::Syncing || facts.manifest.deletion_timestamp().is_some() {
        return false;
    }
    let Some(newest) = newest else { return true };
    match newest.phase {
        ContainerPhase::Running => false,
        ContainerPhase::Created | ContainerPhase::Unknown => true,
        ContainerPhase::Exited => {
            restart::after_exit(
                kind,
                spec,
                facts.manifest.restart_policy(),
                newest.exit_code,
            ) != Decision::Stay
        }
    }
}

/// Fills in `started` and `ready`.
fn readiness(
    facts: &StatusFacts<'_>,
    kind: ContainerKind,
    spec: &Spec,
    status: &mut ContainerStatus,
) {
    status.ready = false;
    status.started = None;
    if kind == ContainerKind::Ephemeral {
        return;
    }
    let running = state::is_running(status)
        .then(|| named(facts, &spec.name).next())
        .flatten();
    let started = running.is_some_and(|container| started(facts, kind, spec, container));
    status.started = Some(started);
    status.ready = match (kind, running) {
        (ContainerKind::Init, _) => state::ended(status).is_some_and(|ended| ended.exit_code == 0),
        (_, Some(container)) => {
            started
                && (probe::of(kind, spec, ProbeKind::Readiness).is_none()
                    || found_ready(facts, kind, spec, container))
        }
        (_, None) => false,
    };
}

/// A container that was told as ready stays so until its probe says otherwise: also when another
/// agent told it, and the probe has not been asked since.
fn found_ready(
    facts: &StatusFacts<'_>,
    kind: ContainerKind,
    spec: &Spec,
    container: &Container,
) -> bool {
    if let Some(verdict) = verdict(facts, container, ProbeKind::Readiness) {
        return verdict.success;
    }
    told(facts, kind, spec, container).is_some_and(|old| old.ready)
}

/// What was told of this very container before.
fn told<'a>(
    facts: &'a StatusFacts<'_>,
    kind: ContainerKind,
    spec: &Spec,
    container: &Container,
) -> Option<&'a ContainerStatus> {
    let id = state::full_id(facts, container);
    before(facts, kind, &spec.name).filter(|old| old.container_id.as_ref() == Some(&id))
}

pub(super) fn verdict<'a>(
    facts: &'a StatusFacts<'_>,
    container: &Container,
    kind: ProbeKind,
) -> Option<&'a super::Verdict> {
    facts
        .verdicts
        .iter()
        .find(|verdict| verdict.kind == kind && verdict.container_id == container.id)
}

/// A container that was once told as started stays so for its life.
pub(super) fn started(
    facts: &StatusFacts<'_>,
    kind: ContainerKind,
    spec: &Spec,
    container: &Container,
) -> bool {
    if probe::of(kind, spec, ProbeKind::Startup).is_none() {
        return true;
    }
    if let Some(verdict) = verdict(facts, container, ProbeKind::Startup) {
        return verdict.success;
    }
    told(facts, kind, spec, container).is_some_and(|old| old.started == Some(true))
}

fn requests(
    spec: &Spec,
) -> Option<
    std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
> {
    let ResourceRequirements { requests, .. } = spec.resources.as_ref()?;
    requests.clone().filter(|requests| !requests.is_empty())
}

/// Whether read-only goes all the way down is what came of it, not what was asked for.
fn mounts(spec: &Spec, can_recurse: bool) -> Option<Vec<VolumeMountStatus>> {
    let mounts = spec.volume_mounts.iter().flatten().map(|mount| {
        let read_only = mount.read_only == Some(true);
        let asked = matches!(
            mount.recursive_read_only.as_deref(),
            Some("Enabled" | "IfPossible")
        );
        let alone = matches!(mount.mount_propagation.as_deref(), None | Some("None"));
        let recursive = if asked && alone && can_recurse {
            "Enabled"
        } else {
            "Disabled"
        };
        VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: read_only.then_some(true),
            recursive_read_only: read_only.then(|| recursive.to_owned()),
            volume_status: None,
        }
    });
    super::some(mounts.collect())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::VolumeMount;

    use super::*;

    #[test]
    fn read_only_is_told_as_it_came_out() {
        let told = |read_only: bool, asked: Option<&str>, can: bool| {
            let mount = VolumeMount {
                read_only: Some(read_only),
                recursive_read_only: asked.map(Into::into),
                ..VolumeMount::default()
            };
            let spec = Spec {
                volume_mounts: Some(vec![mount]),
                ..Spec::default()
            };
            mounts(&spec, can)?.pop()?.recursive_read_only
        };
        for (asked, can, is) in [
            (None, true, "Disabled"),
            (Some("Disabled"), true, "Disabled"),
            (Some("IfPossible"), true, "Enabled"),
            (Some("IfPossible"), false, "Disabled"),
            (Some("Enabled"), true, "Enabled"),
            (Some("Enabled"), false, "Disabled"),
        ] {
            assert_eq!(
                told(true, asked, can).as_deref(),
                Some(is),
                "{asked:?} {can}"
            );
        }
        assert_eq!(told(false, None, true), None);
    }
}
