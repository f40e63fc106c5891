//! Creation of sandboxes, images and containers.

use std::collections::BTreeMap;

use polylet_model::constants::{annotation, reason};
use polylet_model::hash;
use polylet_model::status::ContainerPhase;
use polylet_pleg::core::RuntimeEventKind;
use polylet_sync_coordinator::core::pod_spec::{PodSpecView, PullPolicy};
use polylet_sync_coordinator::core::runtime_state::{
    ContainerRecord, ContainerState, SandboxRecord,
};
use polylet_sync_coordinator::core::step::Step;
use polylet_sync_coordinator::core::step::{StepFailure, StepOutcome};
use polylet_sync_coordinator::runtime::StepContext;

use super::{failed, flaky, unknown};
use crate::calls::step_failure;
use crate::invariants;
use crate::runtime::{RuntimeError, SimContainer};
use crate::world::World;

pub(super) fn sandbox(
    world: &mut World,
    incarnation: u32,
    alive: bool,
    context: &StepContext,
    attempt: u32,
) -> Option<StepOutcome> {
    let uid = context.pod.uid.clone();
    // The call may take longer.
    if flaky(world, 65) {
        return None;
    }
    let good = !flaky(world, 10);
    let host_network = context.manifest.as_ref().is_some_and(|m| m.host_network());
    let now = world.now;
    let made = world
        .runtime
        .finish_sandbox(&context.pod, attempt, host_network, good, now);
    world.record(|| {
        format!(
            "runtime: sandbox {attempt} of {uid}: {:?}",
            made.as_ref().map(|s| &s.id)
        )
    });
    let Some(made) = made else {
        if alive {
            settle(world, incarnation, &uid);
        }
        return failed(step_failure(
            reason::CREATE_POD_SANDBOX_ERROR,
            "network failed",
        ));
    };
    world.send_event(&uid, &made.id, RuntimeEventKind::Started);
    if flaky(world, 10) {
        return unknown("deadline exceeded");
    }
    if alive {
        settle(world, incarnation, &uid);
    }
    Some(StepOutcome::SandboxCreated(SandboxRecord {
        id: made.id,
        attempt,
        ready: true,
        ips: if host_network {
            Vec::new()
        } else {
            vec!["10.0.0.7".to_owned()]
        },
        host_network,
        created_at: Some(made.created_at),
    }))
}

/// Removes the pending creation, if the caller is still the running incarnation.
fn settle(world: &mut World, incarnation: u32, uid: &str) {
    if world
        .coordinator
        .as_ref()
        .is_some_and(|c| c.incarnation == incarnation)
    {
        world.disk.sandbox_intents.remove(uid);
    }
}

pub(super) fn pull(world: &mut World, context: &StepContext, container: &str) -> StepOutcome {
    let Some((_, spec)) = context
        .manifest
        .as_ref()
        .and_then(|m| m.container(container))
    else {
        return StepOutcome::Failed(step_failure(
            reason::INVALID_IMAGE_NAME,
            "no such container",
        ));
    };
    let name = spec.image.clone().unwrap_or_default();
    let always = context
        .manifest
        .as_ref()
        .map(|m| PodSpecView::from_manifest(m, &[]))
        .and_then(|w| {
            w.container(container)
                .map(|c| c.pull_policy == PullPolicy::Always)
        })
        .unwrap_or(false);
    let image_ref = match world.runtime.image(&name) {
        Some(id) if !always => id,
        _ if flaky(world, 20) => {
            return StepOutcome::Failed(step_failure(
                reason::ERR_IMAGE_PULL,
                "registry is unavailable",
            ));
        }
        _ => world.runtime.add_image(&name),
    };
    StepOutcome::ImagePulled {
        image: name,
        image_ref,
    }
}

pub(super) fn create(world: &mut World, context: &StepContext) -> StepOutcome {
    let Step::CreateContainer {
        container,
        attempt,
        backoff_step,
        sandbox_id,
        image_ref,
    } = &context.step
    else {
        return StepOutcome::Done;
    };
    let Some((manifest, (_, spec))) = context
        .manifest
        .as_ref()
        .and_then(|m| Some((m, m.container(container)?)))
    else {
        return StepOutcome::Failed(step_failure(
            reason::CREATE_CONTAINER_CONFIG_ERROR,
            "no such container",
        ));
    };
    let hash = hash::container_hash_annotation(spec);
    let annotations = BTreeMap::from([
        (annotation::CONTAINER_HASH.to_owned(), hash.clone()),
        (
            annotation::BACK_OFF_STEP.to_owned(),
            backoff_step.to_string(),
        ),
        (
            annotation::POD_TERMINATION_GRACE_PERIOD.to_owned(),
            manifest.termination_grace().as_secs().to_string(),
        ),
    ]);
    let mounts = spec.volume_mounts.as_ref().is_some_and(|m| !m.is_empty());
    invariants::check_container_creation(world, context, mounts);
    let devices = invariants::devices::check_creation(world, context, container);
    let made = world.runtime.create(SimContainer {
        id: String::new(),
        pod: context.pod.clone(),
        sandbox_id: sandbox_id.clone(),
        name: container.clone(),
        attempt: *attempt,
        phase: ContainerPhase::Created,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        annotations,
        image_id: image_ref.clone(),
        devices,
        mounts,
        healthy: true,
        was_unhealthy: false,
        created_at: world.now,
        started_at: None,
        finished_at: None,
        kill_at: None,
    });
    match made {
        Ok(id) => {
            world.send_event(&context.pod.uid, &id, RuntimeEventKind::Created);
            StepOutcome::ContainerCreated(ContainerRecord {
                id,
                sandbox_id: sandbox_id.clone(),
                name: container.clone(),
                attempt: *attempt,
                state: ContainerState::Created,
                exit_code: 0,
                reason: String::new(),
                aborted: false,
                hash,
                backoff_step: *backoff_step,
                created_resources: None,
                grace_period: None,
                pre_stop: None,
                created_at: Some(world.now),
                started_at: None,
                finished_at: None,
            })
        }
        Err(why) => StepOutcome::Failed(StepFailure {
            name_reserved: why == RuntimeError::NameReserved,
            image_missing: why == RuntimeError::ImageNotFound,
            ..step_failure(reason::CREATE_CONTAINER_ERROR, &format!("{why:?}"))
        }),
    }
}
