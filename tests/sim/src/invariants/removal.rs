use polylet_model::status::ContainerPhase;

use crate::invariants::Invariant;
use crate::world::World;

/// Checks an unmount.
pub fn check_unmount(world: &mut World, uid: &str, what: &str) {
    let under = world
        .runtime
        .running(uid)
        .find(|c| c.mounts)
        .map(|c| c.id.clone());
    if let Some(id) = under {
        world.report_violation(
            Invariant::ResourcesInUseAreRetained,
            format!("{uid}: {what} while {id} runs"),
        );
    }
}

/// Checks the removal of a pod's cgroup or files.
pub fn check_removal(world: &mut World, uid: &str, what: &str) {
    let under = world.runtime.running(uid).next().map(|c| c.id.clone());
    if let Some(id) = under {
        world.report_violation(
            Invariant::ResourcesInUseAreRetained,
            format!("{uid}: {what} while {id} runs"),
        );
    }
}

/// Checks the stop of a sandbox.
pub fn check_sandbox_stop(world: &mut World, id: &str) {
    let Some(sandbox) = world.runtime.sandboxes.get(id) else {
        return;
    };
    let uid = sandbox.pod.uid.clone();
    let ready_sandboxes = world.runtime.sandboxes.values();
    let ready_sandboxes = ready_sandboxes
        .filter(|s| s.pod.uid == uid && s.ready)
        .count();
    let inside = world.runtime.running(&uid).find(|c| c.sandbox_id == id);
    // While a pod is terminated, a start with a lost response may still complete.
    let is_allowed = ready_sandboxes > 1 || !world.is_steady(&uid);
    if let Some(inside) = inside.map(|c| c.id.clone()).filter(|_| !is_allowed) {
        world.report_violation(
            Invariant::ResourcesInUseAreRetained,
            format!("sandbox {id} while {inside} runs"),
        );
    }
}

/// Checks the removal of a container.
pub fn check_container_removal(world: &mut World, id: &str) {
    let Some(removed) = world.runtime.containers.get(id) else {
        return;
    };
    let uid = removed.pod.uid.clone();
    if removed.phase == ContainerPhase::Running {
        world.report_violation(Invariant::LastContainersAreRetained, format!("{id} runs"));
        return;
    }
    // It never ran, and is created again under the same restart count.
    let was_cancelled = removed.reason == "StartError" && removed.started_at.is_none();
    let mut others = world.runtime.containers.values();
    let newer =
        others.any(|c| c.pod.uid == uid && c.name == removed.name && c.attempt > removed.attempt);
    if !newer && !was_cancelled && world.is_steady(&uid) {
        world.report_violation(
            Invariant::LastContainersAreRetained,
            format!("{uid}: {id} is the last container of its name"),
        );
    }
}

/// Checks the removal of a sandbox.
pub fn check_sandbox_removal(world: &mut World, id: &str) {
    let runs = |c: &&crate::runtime::SimContainer| {
        c.sandbox_id == id && c.phase == ContainerPhase::Running
    };
    let inside = world
        .runtime
        .containers
        .values()
        .find(runs)
        .map(|c| c.id.clone());
    if let Some(inside) = inside {
        world.report_violation(
            Invariant::LastContainersAreRetained,
            format!("sandbox {id} while {inside} runs"),
        );
    }
}

/// Checks the removal of an image that was listed at this time.
pub fn check_image_removal(world: &mut World, id: &str, listed_at: jiff::Timestamp) {
    let mut containers = world.runtime.containers.values();
    let user = containers.find(|c| c.image_id == id && c.created_at < listed_at);
    if let Some(user) = user.map(|c| c.id.clone()) {
        world.report_violation(Invariant::UsedImagesAreRetained, format!("{id} of {user}"));
    }
}
