//! Fields of the pod's spec.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSpec, Toleration};

use super::super::decode::quoted;
use super::{Findings, container, labels, names, network, resources, security, volume};

pub(super) fn check(out: &mut Findings, spec: &PodSpec) {
    let volumes = volume::all(out, spec.volumes.as_deref().unwrap_or_default());
    containers(out, spec, &volumes);
    words_and_numbers(out, spec);
    labels(out, "spec.nodeSelector", spec.node_selector.as_ref());
    for (i, toleration) in spec.tolerations.iter().flatten().enumerate() {
        tolerate(out, &format!("spec.tolerations[{i}]"), toleration);
    }
    for (i, gate) in spec.readiness_gates.iter().flatten().enumerate() {
        out.name(
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
        out.add(
            "spec.schedulingGates",
            "must be empty: the pod is on its node already",
        );
    }
    network::check(out, spec);
    security::pod(out, spec);
    if let Some(own) = &spec.resources {
        resources::pod(out, own, spec);
    }
}

fn words_and_numbers(out: &mut Findings, spec: &PodSpec) {
    out.word(
        "spec.restartPolicy",
        spec.restart_policy.as_ref(),
        &["Always", "OnFailure", "Never"],
    );
    out.word(
        "spec.dnsPolicy",
        spec.dns_policy.as_ref(),
        &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"],
    );
    out.word(
        "spec.preemptionPolicy",
        spec.preemption_policy.as_ref(),
        &["PreemptLowerPriority", "Never"],
    );
    out.range(
        "spec.terminationGracePeriodSeconds",
        spec.termination_grace_period_seconds,
        0,
        i64::MAX,
    );
    out.range(
        "spec.activeDeadlineSeconds",
        spec.active_deadline_seconds,
        1,
        i64::from(i32::MAX),
    );
    out.form(
        "spec.runtimeClassName",
        spec.runtime_class_name.as_ref(),
        names::subdomain,
    );
    out.form(
        "spec.priorityClassName",
        spec.priority_class_name.as_ref(),
        names::subdomain,
    );
    if let Some(os) = &spec.os {
        out.word("spec.os.name", Some(&os.name), &["linux", "windows"]);
    }
    if spec
        .ephemeral_containers
        .as_ref()
        .is_some_and(|c| !c.is_empty())
    {
        out.add(
            "spec.ephemeralContainers",
            "must be empty: a pod cannot be created with ephemeral containers",
        );
    }
}

fn containers(out: &mut Findings, spec: &PodSpec, volumes: &volume::Known<'_>) {
    if spec.containers.is_empty() {
        out.add("spec.containers", "required: at least one container");
    }
    let scope = container::Scope { spec, volumes };
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
        container::check(out, &path, container, init, &scope);
        if container.name.is_empty() {
            continue;
        }
        if let Some(first) = first.get(container.name.as_str()) {
            out.add(
                format!("{path}.name"),
                format!("{} is already the name of {first}", quoted(&container.name)),
            );
        } else {
            first.insert(&container.name, path);
        }
    }
    network::host_ports(out, spec);
}

fn tolerate(out: &mut Findings, path: &str, toleration: &Toleration) {
    let text = |t: &Option<String>| t.as_deref().unwrap_or_default().to_owned();
    let (key, operator) = (text(&toleration.key), text(&toleration.operator));
    if !key.is_empty() {
        out.name(format!("{path}.key"), &key, names::qualified);
    } else if operator != "Exists" {
        out.add(
            format!("{path}.operator"),
            "must be Exists when the key is empty",
        );
    }
    match operator.as_str() {
        "" | "Equal" => out.form(
            format!("{path}.value"),
            toleration.value.as_ref(),
            names::label_value,
        ),
        "Exists" if !text(&toleration.value).is_empty() => {
            out.add(
                format!("{path}.value"),
                "must be empty when the operator is Exists",
            );
        }
        "Exists" | "Lt" | "Gt" => {}
        other => out.add(
            format!("{path}.operator"),
            format!("{} is not one of Equal, Exists, Lt, Gt", quoted(other)),
        ),
    }
    let effect = text(&toleration.effect);
    if !matches!(
        effect.as_str(),
        "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute"
    ) {
        out.add(
            format!("{path}.effect"),
            format!(
                "{} is not one of NoSchedule, PreferNoSchedule, NoExecute",
                quoted(&effect)
            ),
        );
    }
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        out.add(
            format!("{path}.effect"),
            "must be NoExecute when tolerationSeconds is set",
        );
    }
}
