//! Wire to domain and back.

use jiff::Timestamp;
use polylet_model::cgroup::{CgroupName, Driver};
use polylet_model::pod::Manifest;
use polylet_model::{qos, resources};
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::eviction::v1 as wire;
use polylet_wire::pleg::v1::{ContainerPhase, PodState};
use polylet_wire::time;

use crate::core::facts::{Held, Running, Wanted};
use crate::core::limits::Limits;
use crate::core::pressure::{Condition, Pressure};
use crate::core::round::Verdict;

/// What eviction needs of a manifest. Static pods are critical, as upstream, unless the
/// configuration lets them go by priority alone.
pub(crate) fn wanted(manifest: &Manifest, cgroup_root: &str, evict_static: bool) -> Wanted {
    let critical = if evict_static {
        manifest.priority() >= SYSTEM_CRITICAL
    } else {
        manifest.is_critical()
    };
    let requests = resources::pod_requests(manifest.spec());
    let requested = |name: &str| requests.get(name).map_or(0, |amount| amount.bytes());
    let containers = manifest
        .containers()
        .iter()
        .map(|container| {
            let own = |name| resources::request(container, name).map_or(0, |amount| amount.bytes());
            (
                container.name.clone(),
                (own("memory"), own("ephemeral-storage")),
            )
        })
        .collect();
    let cgroup = CgroupName::pod(cgroup_root, qos::class(manifest.spec()), manifest.uid());
    Wanted {
        namespace: manifest.namespace().to_owned(),
        name: manifest.name().to_owned(),
        priority: manifest.priority(),
        critical,
        memory_request: requested("memory"),
        disk_request: requested("ephemeral-storage"),
        termination_grace_seconds: u32::try_from(manifest.termination_grace().as_secs())
            .unwrap_or(u32::MAX),
        cgroups: [Driver::Cgroupfs, Driver::Systemd]
            .map(|driver| cgroup.path(driver))
            .into(),
        containers,
        limits: Limits::of(manifest.spec()),
    }
}

/// Priority from which on a pod is critical.
const SYSTEM_CRITICAL: i32 = 2_000_000_000;

/// What eviction needs of a pod's state.
pub(crate) fn held(state: &PodState) -> Held {
    let reference = state.r#ref.clone().unwrap_or_default();
    Held {
        namespace: reference.namespace,
        name: reference.name,
        running: state
            .containers
            .iter()
            .filter(|container| container.phase() == ContainerPhase::Running)
            .map(|container| Running {
                id: container.id.clone(),
                name: container.name.clone(),
                started_at: time::from_wire_opt(container.started_at.as_ref()),
            })
            .collect(),
        sandbox_ready: state.sandboxes.iter().any(|sandbox| sandbox.ready),
        created_at: state
            .sandboxes
            .first()
            .and_then(|sandbox| time::from_wire_opt(sandbox.created_at.as_ref())),
    }
}

/// The resource of a condition on the wire.
pub(crate) fn resource(condition: Condition) -> wire::Resource {
    match condition {
        Condition::Memory => wire::Resource::Memory,
        Condition::Disk => wire::Resource::Disk,
        Condition::Pids => wire::Resource::Pids,
    }
}

/// A condition as an item of the stream.
pub(crate) fn condition(which: Condition, pressure: Pressure) -> wire::Pressure {
    wire::Pressure {
        fact: Some(wire::pressure::Fact::Condition(wire::Condition {
            resource: resource(which).into(),
            under_pressure: pressure.under,
            reason: which.reason(pressure.under).to_owned(),
            since: Some(time::to_wire(pressure.since)),
            cause: None,
        })),
    }
}

/// An order as an item of the stream.
pub(crate) fn order(verdict: &Verdict, decided_at: Timestamp, cause: Option<Cause>) -> wire::Order {
    wire::Order {
        pod: Some(PodRef {
            uid: verdict.uid.clone(),
            namespace: verdict.namespace.clone(),
            name: verdict.name.clone(),
        }),
        resource: resource(Condition::from(verdict.starved)).into(),
        grace_seconds: verdict.grace_seconds,
        message: verdict.message.clone(),
        decided_at: Some(time::to_wire(decided_at)),
        cause,
        disruption_target: verdict.disruption_target,
    }
}
