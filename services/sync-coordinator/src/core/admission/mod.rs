//! Admission: whether a pod may start on this node. Handlers run once per pod, in upstream's order:
//! node pressure, sysctls, devices, operating system, supplemental groups, predicates with
//! preemption, AppArmor, pod features, features that the node declares.

mod predicates;
mod preemption;

#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};
use polylet_model::constants::{phase, reason};
use polylet_model::extended_resource::is_extended;
use polylet_model::{apparmor, declared_features, resources};

use self::predicates::PredicateFailure;
use crate::core::checkpoint::PodTermination;
use crate::core::devices::DeviceAdmission;
use crate::core::node_resources::NodeObject;
use crate::core::pod_spec::PodSpecView;
use crate::core::step::StepKey;
use crate::core::view::View;

/// The result of admission.
#[derive(Clone, Debug, PartialEq)]
pub enum AdmissionDecision {
    /// The pod may start.
    Admitted,
    /// The pod never starts on this node.
    Rejected(PodTermination),
    /// The pod may start when other pods have released resources.
    WaitForPreemption {
        /// UIDs of pods to preempt that are not terminating yet.
        victims: Vec<String>,
    },
    /// The pod does not fit beside pods of a previous process instance, which may be gone: the decision waits
    /// until sources serve them, or have synced without them.
    WaitForSources,
    /// The decision waits for the allocation of the pod's devices.
    WaitForDevices,
    /// The decision waits for the Node object, or for a newer version of it.
    WaitForNode {
        /// Then the pod is decided on with the present version.
        until: Option<Timestamp>,
    },
}

/// How long the Node object may lag behind the labels that the scheduler used.
const NODE_OBJECT_LAG: SignedDuration = SignedDuration::from_secs(1);

/// Why a pod is rejected.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    /// The reason for `status.reason`.
    pub reason: String,
    /// The message, without upstream's prefix.
    pub message: String,
}

impl Rejection {
    fn new(reason: &str, message: impl Into<String>) -> Self {
        Rejection {
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}

/// Decides on a pod. An admitted pod stays admitted.
pub fn admit(view: &View<'_>, spec: &PodSpecView) -> AdmissionDecision {
    // Every other step follows the admission.
    let mut in_flight = view.pod.in_flight.keys();
    if was_admitted(view) || in_flight.any(|key| *key != StepKey::AllocateDevices) {
        return AdmissionDecision::Admitted;
    }
    if !spec.manifest.is_static() && view.node.resources.node_object == NodeObject::NotSynced {
        return AdmissionDecision::WaitForNode { until: None };
    }
    if let Some(rejection) = node_pressure(view, spec).or_else(|| sysctl(spec)) {
        return reject(view, &rejection);
    }
    if spec.requests_devices() && view.pod.devices.is_none() {
        return AdmissionDecision::WaitForDevices;
    }
    if let Some(rejection) = devices(view)
        .or_else(|| operating_system(spec))
        .or_else(|| supplemental_groups(view, spec))
    {
        return reject(view, &rejection);
    }
    let resources = &view.node.resources;
    let mut failures = check_predicates(view, spec);
    let served = match failures.is_empty() {
        true => None,
        false => resources.allocated.served(),
    };
    let allocated = served.as_ref().unwrap_or(&resources.allocated);
    if served.is_some() {
        failures = predicates::check_predicates(view.pod, resources, allocated, spec);
        // A static pod does not wait for the API server, which it may be. Upstream counts served pods alone.
        if failures.is_empty() && !spec.manifest.is_static() {
            return AdmissionDecision::WaitForSources;
        }
    }
    if let Some(until) = wait_for_node_labels(view, spec, &failures) {
        return AdmissionDecision::WaitForNode { until: Some(until) };
    }
    let later_handlers = || {
        app_armor(view, spec)
            .or_else(|| pod_features(view, spec))
            .or_else(|| node_features(view, spec))
    };
    let Some(first) = failures.first() else {
        let rejection = later_handlers();
        return rejection.map_or(AdmissionDecision::Admitted, |r| reject(view, &r));
    };
    if !spec.request.critical {
        return reject(view, &first.rejection());
    }
    // A critical pod is not rejected for lack of resources: it preempts other pods.
    if let Some(other) = failures.iter().find(|failure| failure.shortage().is_none()) {
        return reject(view, &other.rejection());
    }
    let shortages: Vec<_> = failures
        .iter()
        .filter_map(PredicateFailure::shortage)
        .collect();
    match preemption::select_victims(&view.pod.uid, &spec.request, allocated, &shortages) {
        // No pod is preempted for one that a later handler rejects.
        Ok(victims) => match later_handlers() {
            Some(rejection) => reject(view, &rejection),
            None => AdmissionDecision::WaitForPreemption { victims },
        },
        Err(error) => {
            let message = format!(
                "Unexpected error while attempting to recover from admission failure: {error}"
            );
            let rejection = Rejection::new(reason::UNEXPECTED_ADMISSION_ERROR, message);
            reject(view, &rejection)
        }
    }
}

/// How long to wait for a newer Node object when only the node's labels keep the pod out: the
/// scheduler may have used newer ones. Upstream reads the object from the API server instead.
fn wait_for_node_labels(
    view: &View<'_>,
    spec: &PodSpecView,
    failures: &[PredicateFailure],
) -> Option<Timestamp> {
    let affinity_only = !failures.is_empty() && failures.iter().all(PredicateFailure::is_affinity);
    let node_object = &view.node.resources.node_object;
    let present = matches!(node_object, NodeObject::Present { .. });
    if !affinity_only || !present || spec.manifest.is_static() {
        return None;
    }
    let since = view.pod.affinity_unmet_since.unwrap_or(view.now);
    let until = since.checked_add(NODE_OBJECT_LAG).ok()?;
    (since <= view.now && view.now < until).then_some(until)
}

/// Why the node cannot give an admitted pod the resources it asks for now: it keeps what it was
/// admitted with.
pub fn check_resize(view: &View<'_>, spec: &PodSpecView) -> Option<Rejection> {
    node_pressure(view, spec).or_else(|| {
        let failures = check_predicates(view, spec);
        let mut failures = failures.iter();
        let first = failures.find(|failure| counts_for_resize(view, spec, failure));
        first.map(PredicateFailure::rejection)
    })
}

/// The pods to preempt for the resize of a critical pod, which needs nothing but their resources.
pub fn resize_victims(view: &View<'_>, spec: &PodSpecView) -> Vec<String> {
    if !spec.request.critical || node_pressure(view, spec).is_some() {
        return Vec::new();
    }
    let failures = check_predicates(view, spec);
    let failures = failures
        .iter()
        .filter(|failure| counts_for_resize(view, spec, failure));
    let shortages: Option<Vec<_>> = failures.map(PredicateFailure::shortage).collect();
    let allocated = &view.node.resources.allocated;
    let victims = shortages.map(|shortages| {
        preemption::select_victims(&view.pod.uid, &spec.request, allocated, &shortages)
            .unwrap_or_default()
    });
    victims.unwrap_or_default()
}

fn check_predicates(view: &View<'_>, spec: &PodSpecView) -> Vec<PredicateFailure> {
    let resources = &view.node.resources;
    predicates::check_predicates(view.pod, resources, &resources.allocated, spec)
}

/// Whether a predicate counts for the resize of an admitted pod. Placement counts at admission only. How
/// many devices are allocated is not known after a restart of this process; those of the pod it has
/// already.
fn counts_for_resize(view: &View<'_>, spec: &PodSpecView, failure: &PredicateFailure) -> bool {
    let devices_unknown = spec.requests_devices() && view.pod.devices.is_none();
    let shortage = failure.shortage();
    let is_device = devices_unknown && shortage.is_some_and(|(name, _)| is_extended(&name));
    !failure.is_affinity() && !is_device
}

/// The termination of a preempted pod.
pub fn preempted(now: Timestamp) -> PodTermination {
    PodTermination {
        reason: reason::PREEMPTING.to_owned(),
        message: "Preempted in order to admit critical pod".to_owned(),
        phase: phase::FAILED.to_owned(),
        disruption_target: true,
        decided_at: now,
        grace_period: None,
    }
}

/// Whether the pod was admitted before. A rejection that is being stored does not count.
pub fn was_admitted(view: &View<'_>) -> bool {
    let pod = view.pod;
    pod.checkpoint.request.is_some()
        || (pod.checkpoint.acknowledged_at.is_some() && pod.checkpointed)
        || !view.observed().is_empty()
}

fn node_pressure(view: &View<'_>, spec: &PodSpecView) -> Option<Rejection> {
    let pressure = view.node.pressure;
    let memory_applies = spec.best_effort && !spec.tolerates_memory_pressure;
    let rejects = pressure.disk || pressure.pids || (pressure.memory && memory_applies);
    if !rejects || spec.critical {
        return None;
    }
    let conditions: Vec<&str> = [
        (pressure.memory, "MemoryPressure"),
        (pressure.disk, "DiskPressure"),
        (pressure.pids, "PIDPressure"),
    ]
    .into_iter()
    .filter_map(|(present, condition)| present.then_some(condition))
    .collect();
    let message = format!("The node had condition: [{}]. ", conditions.join(" "));
    Some(Rejection::new(reason::EVICTED, message))
}

fn sysctl(spec: &PodSpecView) -> Option<Rejection> {
    let message = spec.forbidden_sysctl.clone()?;
    Some(Rejection::new(reason::SYSCTL_FORBIDDEN, message))
}

fn devices(view: &View<'_>) -> Option<Rejection> {
    let Some(DeviceAdmission::Refused(error)) = &view.pod.devices else {
        return None;
    };
    let message = format!("Allocate failed due to {error}, which is unexpected");
    Some(Rejection::new(reason::UNEXPECTED_ADMISSION_ERROR, message))
}

fn operating_system(spec: &PodSpecView) -> Option<Rejection> {
    const LABEL: &str = "kubernetes.io/os";
    const OWN_OS: &str = "linux";
    // As upstream, the pod's label and not its node selector.
    let labels = spec.manifest.metadata().labels.as_ref();
    if labels
        .and_then(|labels| labels.get(LABEL))
        .is_some_and(|os| os != OWN_OS)
    {
        let message =
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return Some(Rejection::new(reason::POD_OS_SELECTOR, message));
    }
    let os = spec.manifest.spec().os.as_ref()?;
    let message = "Failed to admit pod as the OS field doesn't match node OS";
    (os.name != OWN_OS).then(|| Rejection::new(reason::POD_OS_NOT_SUPPORTED, message))
}

fn supplemental_groups(view: &View<'_>, spec: &PodSpecView) -> Option<Rejection> {
    let context = spec.manifest.spec().security_context.as_ref()?;
    let strict = context.supplemental_groups_policy.as_deref() == Some("Strict");
    let supported = view.node.resources.supports_strict_supplemental_groups;
    (strict && !supported).then(|| {
        let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
        Rejection::new(reason::SUPPLEMENTAL_GROUPS_POLICY, message)
    })
}

fn app_armor(view: &View<'_>, spec: &PodSpecView) -> Option<Rejection> {
    if !apparmor::is_requested(&spec.manifest) {
        return None;
    }
    let unavailable = view.node.resources.apparmor_error.clone();
    let error = unavailable.or_else(|| apparmor::invalid_reason(&spec.manifest))?;
    let message = format!("Cannot enforce AppArmor: {error}");
    Some(Rejection::new(reason::APP_ARMOR, message))
}

/// Whether the pod requires a feature that the node does not have. Claims of resources need dynamic
/// resource allocation, without which containers would start without their devices; upstream's
/// features that a node may lack are refused with the same reason.
fn node_features(view: &View<'_>, spec: &PodSpecView) -> Option<Rejection> {
    let api_spec = spec.manifest.spec();
    let claims = api_spec.resource_claims.iter().flatten();
    let missing = if claims.count() > 0 {
        Some("DynamicResourceAllocation".to_owned())
    } else {
        let declared = view.node.resources.declared_features.as_ref();
        let required = declared_features::required_to_start(api_spec);
        declared.and_then(|declared| declared_features::missing(&required, declared))
    }?;
    let message = format!("Pod requires node features that are not available: {missing}");
    Some(Rejection::new(reason::POD_FEATURE_UNSUPPORTED, message))
}

fn pod_features(view: &View<'_>, spec: &PodSpecView) -> Option<Rejection> {
    let disabled = view.node.resources.pod_level_resources_disabled;
    let rejects = disabled && resources::has_pod_level(spec.manifest.spec());
    rejects.then(|| {
        let message = "PodLevelResources feature gate is disabled";
        Rejection::new(reason::POD_LEVEL_RESOURCES, message)
    })
}

fn reject(view: &View<'_>, rejection: &Rejection) -> AdmissionDecision {
    AdmissionDecision::Rejected(PodTermination::rejected(
        view.now,
        &rejection.reason,
        &rejection.message,
    ))
}
