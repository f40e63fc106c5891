//! One container.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, PodSpec, VolumeMount};

use super::super::decode::quoted;
use super::{Findings, env, handler, names, network, resources, security, volume};

/// What containers of a pod are checked against.
pub(super) struct Scope<'a> {
    pub(super) spec: &'a PodSpec,
    pub(super) volumes: &'a volume::Known<'a>,
}

pub(super) fn check(
    out: &mut Findings,
    path: &str,
    container: &Container,
    init: bool,
    scope: &Scope<'_>,
) {
    out.name(format!("{path}.name"), &container.name, names::label);
    image(out, path, container);
    out.word(
        format!("{path}.imagePullPolicy"),
        container.image_pull_policy.as_ref(),
        &["Always", "IfNotPresent", "Never"],
    );
    let policy = container.termination_message_policy.as_ref();
    out.word(
        format!("{path}.terminationMessagePolicy"),
        policy,
        &["File", "FallbackToLogsOnError"],
    );
    network::ports(out, path, container, scope.spec.host_network == Some(true));
    env::check(out, path, container);
    mounts(out, path, container, scope);
    if container
        .volume_devices
        .as_ref()
        .is_some_and(|d| !d.is_empty())
    {
        out.add(
            format!("{path}.volumeDevices"),
            "must be empty: block devices come from claims, which static pods cannot have",
        );
    }
    lifecycle(out, path, container, init, scope);
    restart(out, path, container, scope);
    security::container(out, path, container, scope.spec);
    if let Some(own) = &container.resources {
        resources::container(out, &format!("{path}.resources"), own);
    }
}

fn image(out: &mut Findings, path: &str, container: &Container) {
    let image = container.image.as_deref().unwrap_or_default();
    if image.is_empty() {
        out.add(format!("{path}.image"), "required");
    } else if image.trim() != image {
        out.add(
            format!("{path}.image"),
            format!("{} has white space at its ends", quoted(image)),
        );
    }
}

fn mounts(out: &mut Findings, path: &str, container: &Container, scope: &Scope<'_>) {
    let mut paths = BTreeSet::new();
    for (i, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let path = format!("{path}.volumeMounts[{i}]");
        if mount.name.is_empty() {
            out.add(format!("{path}.name"), "required");
        } else if !scope.volumes.contains_key(mount.name.as_str()) {
            out.add(
                format!("{path}.name"),
                format!("{} is not a volume of this pod", quoted(&mount.name)),
            );
        }
        if mount.mount_path.is_empty() {
            out.add(format!("{path}.mountPath"), "required");
        } else if !paths.insert(mount.mount_path.as_str()) {
            out.add(
                format!("{path}.mountPath"),
                format!("{} is mounted twice", quoted(&mount.mount_path)),
            );
        }
        mount_options(out, &path, mount, container);
    }
}

fn mount_options(out: &mut Findings, path: &str, mount: &VolumeMount, container: &Container) {
    out.form(
        format!("{path}.subPath"),
        mount.sub_path.as_ref(),
        names::local_path,
    );
    out.form(
        format!("{path}.subPathExpr"),
        mount.sub_path_expr.as_ref(),
        names::local_path,
    );
    let set = |t: &Option<String>| t.as_ref().is_some_and(|t| !t.is_empty());
    if set(&mount.sub_path) && set(&mount.sub_path_expr) {
        out.add(
            format!("{path}.subPathExpr"),
            "cannot be set together with subPath",
        );
    }
    let propagation = mount.mount_propagation.as_ref();
    out.word(
        format!("{path}.mountPropagation"),
        propagation,
        &["None", "HostToContainer", "Bidirectional"],
    );
    let privileged = container
        .security_context
        .as_ref()
        .and_then(|s| s.privileged)
        == Some(true);
    if propagation.is_some_and(|p| p == "Bidirectional") && !privileged {
        out.add(
            format!("{path}.mountPropagation"),
            "Bidirectional is for privileged containers alone",
        );
    }
    let recursive = mount.recursive_read_only.as_ref();
    out.word(
        format!("{path}.recursiveReadOnly"),
        recursive,
        &["Disabled", "IfPossible", "Enabled"],
    );
    if recursive.is_some_and(|r| r != "Disabled") {
        if mount.read_only != Some(true) {
            out.add(format!("{path}.recursiveReadOnly"), "needs readOnly: true");
        }
        if propagation.is_some_and(|p| p != "None") {
            out.add(
                format!("{path}.recursiveReadOnly"),
                "needs mountPropagation None or nothing",
            );
        }
    }
}

fn lifecycle(out: &mut Findings, path: &str, container: &Container, init: bool, scope: &Scope<'_>) {
    let sidecar = container.restart_policy.as_deref() == Some("Always");
    let grace = scope.spec.termination_grace_period_seconds;
    if let Some(lifecycle) = &container.lifecycle {
        for (name, hook) in [
            ("postStart", &lifecycle.post_start),
            ("preStop", &lifecycle.pre_stop),
        ] {
            if let Some(hook) = hook {
                handler::hook(out, &format!("{path}.lifecycle.{name}"), hook, grace);
            }
        }
        if lifecycle.stop_signal.is_some() && scope.spec.os.is_none() {
            out.add(format!("{path}.lifecycle.stopSignal"), "needs spec.os.name");
        }
    }
    let probes = [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ];
    for (name, probe) in probes {
        if let Some(probe) = probe {
            handler::probe(out, &format!("{path}.{name}"), name, probe);
        }
        if init && !sidecar && probe.is_some() {
            out.add(
                format!("{path}.{name}"),
                "is not for init containers without restartPolicy Always",
            );
        }
    }
    if init && !sidecar && container.lifecycle.is_some() {
        out.add(
            format!("{path}.lifecycle"),
            "is not for init containers without restartPolicy Always",
        );
    }
}

fn restart(out: &mut Findings, path: &str, container: &Container, scope: &Scope<'_>) {
    out.word(
        format!("{path}.restartPolicy"),
        container.restart_policy.as_ref(),
        &["Always", "OnFailure", "Never"],
    );
    let rules = container
        .restart_policy_rules
        .as_deref()
        .unwrap_or_default();
    if !rules.is_empty() && container.restart_policy.is_none() {
        out.add(
            format!("{path}.restartPolicy"),
            "required when there are restartPolicyRules",
        );
    }
    if rules.len() > 20 {
        out.add(
            format!("{path}.restartPolicyRules"),
            "must not be more than 20",
        );
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = format!("{path}.restartPolicyRules[{i}]");
        out.word(
            format!("{path}.action"),
            Some(&rule.action),
            &["Restart", "RestartAllContainers"],
        );
        let Some(exit) = &rule.exit_codes else {
            out.add(format!("{path}.exitCodes"), "required");
            continue;
        };
        out.word(
            format!("{path}.exitCodes.operator"),
            Some(&exit.operator),
            &["In", "NotIn"],
        );
        let values = exit.values.as_deref().unwrap_or_default();
        if values.is_empty() || values.len() > 255 {
            out.add(
                format!("{path}.exitCodes.values"),
                "between 1 and 255 exit codes were expected",
            );
        }
    }
    for (i, rule) in container.resize_policy.iter().flatten().enumerate() {
        let path = format!("{path}.resizePolicy[{i}]");
        out.word(
            format!("{path}.resourceName"),
            Some(&rule.resource_name),
            &["cpu", "memory"],
        );
        out.word(
            format!("{path}.restartPolicy"),
            Some(&rule.restart_policy),
            &["NotRequired", "RestartContainer"],
        );
        if rule.restart_policy == "RestartContainer"
            && scope.spec.restart_policy.as_deref() == Some("Never")
        {
            out.add(
                format!("{path}.restartPolicy"),
                "must be NotRequired when the pod's restartPolicy is Never",
            );
        }
    }
}
