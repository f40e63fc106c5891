//! Validation of the pod's spec.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSpec, Toleration};

use super::super::decode::quoted;
use super::{ErrorList, container, labels, names, network, resources, security, volume};

pub(super) fn check(errors: &mut ErrorList, spec: &PodSpec) {
    let volumes = volume::all(errors, spec.volumes.as_deref().unwrap_or_default());
    containers(errors, spec, &volumes);
    scalars(errors, spec);
    labels(errors, "spec.nodeSelector", spec.node_selector.as_ref());
    for (i, toleration) in spec.tolerations.iter().flatten().enumerate() {
        check_toleration(errors, &format!("spec.tolerations[{i}]"), toleration);
    }
    for (i, gate) in spec.readiness_gates.iter().flatten().enumerate() {
        errors.name(
            format!("spec.readinessGates[{i}].conditionType"),
            &gate.condition_type,
            names::qualified,
        );
    }
    if spec
        .scheduling_gates
        .as_ref()
        .is_some_and(|g| !g.is_empty())
    {
        errors.add(
            "spec.schedulingGates",
            "must be empty: the pod is bound to its node",
        );
    }
    network::check(errors, spec);
    security::pod(errors, spec);
    if let Some(own) = &spec.resources {
        resources::pod(errors, own, spec);
    }
}

fn scalars(errors: &mut ErrorList, spec: &PodSpec) {
    errors.one_of(
        "spec.restartPolicy",
        spec.restart_policy.as_ref(),
        &["Always", "OnFailure", "Never"],
    );
    errors.one_of(
        "spec.dnsPolicy",
        spec.dns_policy.as_ref(),
        &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"],
    );
    errors.one_of(
        "spec.preemptionPolicy",
        spec.preemption_policy.as_ref(),
        &["PreemptLowerPriority", "Never"],
    );
    errors.range(
        "spec.terminationGracePeriodSeconds",
        spec.termination_grace_period_seconds,
        0,
        i64::MAX,
    );
    errors.range(
        "spec.activeDeadlineSeconds",
        spec.active_deadline_seconds,
        1,
        i64::from(i32::MAX),
    );
    errors.format(
        "spec.runtimeClassName",
        spec.runtime_class_name.as_ref(),
        names::subdomain,
    );
    errors.format(
        "spec.priorityClassName",
        spec.priority_class_name.as_ref(),
        names::subdomain,
    );
    if let Some(os) = &spec.os {
        errors.one_of("spec.os.name", Some(&os.name), &["linux", "windows"]);
    }
    if spec
        .ephemeral_containers
        .as_ref()
        .is_some_and(|c| !c.is_empty())
    {
        errors.add(
            "spec.ephemeralContainers",
            "must be empty: a pod cannot be created with ephemeral containers",
        );
    }
}

fn containers(errors: &mut ErrorList, spec: &PodSpec, volumes: &volume::DeclaredVolumes<'_>) {
    if spec.containers.is_empty() {
        errors.add("spec.containers", "required: at least one container");
    }
    let scope = container::ContainerScope { spec, volumes };
    let mut first: BTreeMap<&str, String> = BTreeMap::new();
    let inits = spec
        .init_containers
        .iter()
        .flatten()
        .enumerate()
        .map(|(i, c)| (format!("spec.initContainers[{i}]"), c, true));
    let mains = spec
        .containers
        .iter()
        .enumerate()
        .map(|(i, c)| (format!("spec.containers[{i}]"), c, false));
    for (path, container, init) in mains.chain(inits) {
        container::check(errors, &path, container, init, &scope);
        if container.name.is_empty() {
            continue;
        }
        if let Some(first) = first.get(container.name.as_str()) {
            errors.add(
                format!("{path}.name"),
                format!("{} is already the name of {first}", quoted(&container.name)),
            );
        } else {
            first.insert(&container.name, path);
        }
    }
    network::host_ports(errors, spec);
}

fn check_toleration(errors: &mut ErrorList, path: &str, toleration: &Toleration) {
    let text = |t: &Option<String>| t.as_deref().unwrap_or_default().to_owned();
    let (key, operator) = (text(&toleration.key), text(&toleration.operator));
    if !key.is_empty() {
        errors.name(format!("{path}.key"), &key, names::qualified);
    } else if operator != "Exists" {
        errors.add(
            format!("{path}.operator"),
            "must be Exists when the key is empty",
        );
    }
    match operator.as_str() {
        "" | "Equal" => errors.format(
            format!("{path}.value"),
            toleration.value.as_ref(),
            names::label_value,
        ),
        "Exists" if !text(&toleration.value).is_empty() => {
            errors.add(
                format!("{path}.value"),
                "must be empty when the operator is Exists",
            );
        }
        "Exists" | "Lt" | "Gt" => {}
        other => errors.add(
            format!("{path}.operator"),
            format!("{} is not one of Equal, Exists, Lt, Gt", quoted(other)),
        ),
    }
    let effect = text(&toleration.effect);
    if !matches!(
        effect.as_str(),
        "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute"
    ) {
        errors.add(
            format!("{path}.effect"),
            format!(
                "{} is not one of NoSchedule, PreferNoSchedule, NoExecute",
                quoted(&effect)
            ),
        );
    }
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        errors.add(
            format!("{path}.effect"),
            "must be NoExecute when tolerationSeconds is set",
        );
    }
}
