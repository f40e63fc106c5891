//! Invariants of published statuses.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodStatus;
use polylet_model::status::is_ready;

use super::Invariant;
use crate::world::World;

/// Checks the published statuses against the previous ones.
pub fn check_published(world: &mut World, now: BTreeMap<String, Vec<u8>>) {
    let before = std::mem::take(&mut world.memory.published);
    let read = |json: &Vec<u8>| serde_json::from_slice::<PodStatus>(json).unwrap_or_default();
    for (uid, json) in &now {
        let Some(old) = before.get(uid).filter(|old| *old != json) else {
            continue;
        };
        let (old, status) = (read(old), read(json));
        // A pod that was accepted again starts over.
        let restarted = old.start_time != status.start_time && old.start_time.is_some();
        if restarted || world.sources.withdrawn.contains(uid) {
            continue;
        }
        if let Some(why) = regression(&old, &status) {
            world.report_violation(Invariant::StatusIsMonotonic, format!("{uid}: {why}"));
        }
        if is_ready(&old) && !is_ready(&status) && !world.runtime.disturbed.contains(uid) {
            world.report_violation(
                Invariant::ReadinessIsStable,
                format!("{uid}: not ready any more"),
            );
        }
        world.record(|| {
            format!(
                "status: {uid} {:?}, ready {}",
                status.phase,
                is_ready(&status)
            )
        });
    }
    world.memory.published = now;
}

fn rank(phase: Option<&String>) -> u8 {
    match phase.map(String::as_str) {
        Some("Running") => 1,
        Some("Succeeded" | "Failed") => 2,
        _ => 0,
    }
}

/// Whether an init container or a sidecar is not done with its start. In a new sandbox those of a running pod start
/// again, and the pod is Pending meanwhile, as of upstream.
fn initializes(status: &PodStatus) -> bool {
    let mut init = status.init_container_statuses.iter().flatten();
    init.any(|container| {
        let state = container.state.as_ref();
        let runs = state.is_some_and(|state| state.running.is_some());
        runs && container.started != Some(true)
    })
}

fn regression(old: &PodStatus, new: &PodStatus) -> Option<String> {
    let (was, is) = (rank(old.phase.as_ref()), rank(new.phase.as_ref()));
    if (is < was && !(was == 1 && initializes(new))) || (was == 2 && old.phase != new.phase) {
        return Some(format!("phase {:?} became {:?}", old.phase, new.phase));
    }
    let lists = |status: &PodStatus| {
        let all = [&status.container_statuses, &status.init_container_statuses];
        let all = all.into_iter().flat_map(|list| list.iter().flatten());
        let all = all.map(|c| (c.name.clone(), c.restart_count));
        all.collect::<BTreeMap<String, i32>>()
    };
    let (old, new) = (lists(old), lists(new));
    for (name, count) in &new {
        if old.get(name).is_some_and(|before| count < before) {
            let before = old.get(name);
            return Some(format!(
                "restarts of {name} went from {before:?} to {count}"
            ));
        }
    }
    None
}
