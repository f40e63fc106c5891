//! pleg: the real manager over the simulated runtime.

use polylet_pleg::core::{HealthCheck, PodIdentity, RuntimeEvent, RuntimeEventKind};
use polylet_pleg::fuzzing;
use polylet_pleg::manager::{self, RefreshRequest, RuntimeCall};
use polylet_watch::Store;
use polylet_wire::pleg::v1::{RefreshPodRequest, RefreshPodResponse};
use tokio::sync::{oneshot, watch};

use crate::calls::Work;
use crate::world::{ServiceId, World};

/// A process instance of pleg.
pub struct PlegInstance {
    /// The number of the instance.
    pub incarnation: u32,
    /// The real manager.
    pub manager: manager::Pleg,
}

/// Starts an instance with an empty cache.
pub fn start(world: &mut World, incarnation: u32) {
    let store = Store::new(&format!("pleg-{incarnation}"));
    let (sender, runtime_status) = watch::channel(Default::default());
    let manager = manager::Pleg::new(store.clone(), sender, world.now);
    world.stores.states = Some((incarnation, store));
    world.stores.runtime = Some((incarnation, runtime_status));
    world.pleg = Some(PlegInstance {
        incarnation,
        manager,
    });
    if world.rng.percent(50) {
        events(world, true);
    }
    act(world);
}

/// Publishes changes and makes calls.
pub fn act(world: &mut World) {
    let now = world.now;
    let Some(pleg) = &mut world.pleg else { return };
    let calls = pleg.manager.reconcile(now, |_, _| {});
    let incarnation = pleg.incarnation;
    for call in calls {
        let work = match call {
            RuntimeCall::CheckHealth => Work::CheckHealth,
            RuntimeCall::List { sequence } => Work::List {
                sequence,
                result: None,
            },
            RuntimeCall::Inspect {
                uid,
                listed,
                cached,
            } => Work::Inspect {
                uid: uid.into(),
                listed,
                cached,
            },
        };
        world.call(ServiceId::Pleg, incarnation, work);
    }
}

/// The runtime's event stream starts or ends.
pub fn events(world: &mut World, active: bool) {
    let now = world.now;
    if let Some(pleg) = &mut world.pleg {
        pleg.manager.set_event_stream(active, now);
    }
}

/// The runtime sends an event, which may be lost.
pub fn hint(world: &mut World, uid: &str, id: &str, kind: RuntimeEventKind) {
    let now = world.now;
    let container = world.runtime.containers.get(id);
    let sandbox_id = container.map_or(id, |container| &container.sandbox_id);
    let sandbox = world.runtime.sandbox_status(sandbox_id);
    if let Some(pleg) = &mut world.pleg {
        let hint = RuntimeEvent {
            pod: Some(PodIdentity {
                uid: uid.into(),
                ..PodIdentity::default()
            }),
            id: id.to_owned(),
            kind,
            at: Some(now),
            sandbox,
        };
        pleg.manager.handle_event(hint, now);
    }
    act(world);
}

/// A caller refreshes a pod.
pub fn refresh(
    world: &mut World,
    request: &RefreshPodRequest,
) -> Option<oneshot::Receiver<Result<RefreshPodResponse, String>>> {
    let (answer, answered) = oneshot::channel();
    let pleg = world.pleg.as_mut()?;
    let (pod, changes) = fuzzing::refresh_scope(request.clone());
    pleg.manager.refresh(RefreshRequest {
        pod,
        force: request.force,
        changes,
        cause: Default::default(),
        response: answer,
    });
    act(world);
    Some(answered)
}

/// The runtime's answer to a health check.
pub fn health_check(up: bool) -> Result<HealthCheck, String> {
    let healthy = HealthCheck {
        name: "sim".to_owned(),
        version: "1".to_owned(),
        ..HealthCheck::default()
    };
    if up {
        Ok(healthy)
    } else {
        Err("the runtime is unavailable".to_owned())
    }
}
