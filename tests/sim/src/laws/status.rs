//! What people and the API server may see.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodStatus;
use polylet_model::status::is_ready;

use super::Law;
use crate::world::World;

/// The statuses that are told now, held against those before.
pub fn told(world: &mut World, now: BTreeMap<String, Vec<u8>>) {
    let before = std::mem::take(&mut world.memory.told);
    let read = |json: &Vec<u8>| serde_json::from_slice::<PodStatus>(json).unwrap_or_default();
    for (uid, json) in &now {
        let Some(old) = before.get(uid).filter(|old| *old != json) else {
            continue;
        };
        let (old, status) = (read(old), read(json));
        // A pod that was taken up anew starts over.
        let anew = old.start_time != status.start_time && old.start_time.is_some();
        if anew || world.truth.disowned.contains(uid) {
            continue;
        }
        if let Some(why) = backwards(&old, &status) {
            world.breaks(Law::StatusGoesForward, format!("{uid}: {why}"));
        }
        if is_ready(&old) && !is_ready(&status) && !world.runtime.disturbed.contains(uid) {
            world.breaks(
                Law::ReadinessStands,
                format!("{uid}: it is not ready any more"),
            );
        }
        world.say(|| {
            format!(
                "status: {uid} {:?}, ready {}",
                status.phase,
                is_ready(&status)
            )
        });
    }
    world.memory.told = now;
}

fn rank(phase: Option<&String>) -> u8 {
    match phase.map(String::as_str) {
        Some("Running") => 1,
        Some("Succeeded" | "Failed") => 2,
        _ => 0,
    }
}

fn backwards(old: &PodStatus, new: &PodStatus) -> Option<String> {
    let (was, is) = (rank(old.phase.as_ref()), rank(new.phase.as_ref()));
    if is < was || (was == 2 && old.phase != new.phase) {
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
