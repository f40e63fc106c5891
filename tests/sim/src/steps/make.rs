//! What the runtime makes for the coordinator: sandboxes, images, containers.

use std::collections::BTreeMap;

use polylet_model::constants::{annotation, reason};
use polylet_model::hash;
use polylet_pleg::core::HintKind;
use polylet_sync_coordinator::act::Job;
use polylet_sync_coordinator::core::learn::{Outcome, Trouble};
use polylet_sync_coordinator::core::observed::{Phase, SeenContainer, SeenSandbox};
use polylet_sync_coordinator::core::step::Step;
use polylet_sync_coordinator::core::wanted::{Pull, Wanted};
use polylet_wire::pleg::v1::ContainerPhase;

use super::{failed, flaky, unknown};
use crate::calls::trouble;
use crate::laws;
use crate::runtime::{Refused, SimContainer};
use crate::world::World;

pub(super) fn sandbox(
    world: &mut World,
    life: u32,
    alive: bool,
    job: &Job,
    attempt: u32,
) -> Option<Outcome> {
    let uid = job.pod.uid.clone();
    // A call that takes its time.
    if flaky(world, 65) {
        return None;
    }
    let good = !flaky(world, 10);
    let host_network = job.manifest.as_ref().is_some_and(|m| m.host_network());
    let now = world.now;
    let made = world
        .runtime
        .finish_sandbox(&job.pod, attempt, host_network, good, now);
    world.say(|| {
        format!(
            "runtime: sandbox {attempt} of {uid}: {:?}",
            made.as_ref().map(|s| &s.id)
        )
    });
    let Some(made) = made else {
        if alive {
            settle(world, life, &uid);
        }
        return failed(trouble(reason::CREATE_POD_SANDBOX_ERROR, "network failed"));
    };
    world.tell_pleg(&uid, &made.id, HintKind::Begun);
    if flaky(world, 10) {
        return unknown("deadline exceeded");
    }
    if alive {
        settle(world, life, &uid);
    }
    Some(Outcome::Sandbox(SeenSandbox {
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

/// Only a life that still lives removes its intent.
fn settle(world: &mut World, life: u32, uid: &str) {
    if world.coordinator.as_ref().is_some_and(|c| c.life == life) {
        world.disk.intents.remove(uid);
    }
}

pub(super) fn pull(world: &mut World, job: &Job, container: &str) -> Outcome {
    let Some((_, spec)) = job.manifest.as_ref().and_then(|m| m.container(container)) else {
        return Outcome::Failed(trouble(reason::INVALID_IMAGE_NAME, "no such container"));
    };
    let name = spec.image.clone().unwrap_or_default();
    let always = job
        .manifest
        .as_ref()
        .map(|m| Wanted::of(m, &[]))
        .and_then(|w| w.container(container).map(|c| c.pull == Pull::Always))
        .unwrap_or(false);
    let image_ref = match world.runtime.image(&name) {
        Some(id) if !always => id,
        _ if flaky(world, 20) => {
            return Outcome::Failed(trouble(reason::ERR_IMAGE_PULL, "registry is away"));
        }
        _ => world.runtime.pulled(&name),
    };
    Outcome::Image {
        image: name,
        image_ref,
    }
}

pub(super) fn create(world: &mut World, job: &Job) -> Outcome {
    let Step::CreateContainer {
        container,
        attempt,
        back_off_step,
        sandbox_id,
        image_ref,
    } = &job.step
    else {
        return Outcome::Done;
    };
    let Some((manifest, (_, spec))) = job
        .manifest
        .as_ref()
        .and_then(|m| Some((m, m.container(container)?)))
    else {
        return Outcome::Failed(trouble(
            reason::CREATE_CONTAINER_CONFIG_ERROR,
            "no such container",
        ));
    };
    let hash = hash::container_annotation(spec);
    let annotations = BTreeMap::from([
        (annotation::CONTAINER_HASH.to_owned(), hash.clone()),
        (
            annotation::BACK_OFF_STEP.to_owned(),
            back_off_step.to_string(),
        ),
        (
            annotation::POD_TERMINATION_GRACE_PERIOD.to_owned(),
            manifest.termination_grace().as_secs().to_string(),
        ),
    ]);
    let mounts = spec.volume_mounts.as_ref().is_some_and(|m| !m.is_empty());
    laws::creates(world, job, mounts);
    let made = world.runtime.create(SimContainer {
        id: String::new(),
        pod: job.pod.clone(),
        sandbox_id: sandbox_id.clone(),
        name: container.clone(),
        attempt: *attempt,
        phase: ContainerPhase::Created,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        annotations,
        image_id: image_ref.clone(),
        mounts,
        well: true,
        was_unwell: false,
        created_at: world.now,
        started_at: None,
        finished_at: None,
        kill_at: None,
    });
    match made {
        Ok(id) => {
            world.tell_pleg(&job.pod.uid, &id, HintKind::Begun);
            Outcome::Created(SeenContainer {
                id,
                sandbox_id: sandbox_id.clone(),
                name: container.clone(),
                attempt: *attempt,
                phase: Phase::Created,
                exit_code: 0,
                reason: String::new(),
                aborted: false,
                hash,
                back_off_step: *back_off_step,
                made_with: None,
                grace: None,
                pre_stop: None,
                created_at: Some(world.now),
                started_at: None,
                finished_at: None,
            })
        }
        Err(why) => Outcome::Failed(Trouble {
            reserved: why == Refused::Reserved,
            image_missing: why == Refused::NoImage,
            ..trouble(reason::CREATE_CONTAINER_ERROR, &format!("{why:?}"))
        }),
    }
}
