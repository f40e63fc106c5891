//! Validation of containers.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, PodSpec, VolumeMount};

use super::super::decode::quoted;
use super::{ErrorList, env, handler, names, network, resources, security, volume};

/// The pod that containers are validated against.
pub(super) struct ContainerScope<'a> {
    pub(super) spec: &'a PodSpec,
    pub(super) volumes: &'a volume::DeclaredVolumes<'a>,
}

pub(super) fn check(
    errors: &mut ErrorList,
    path: &str,
    container: &Container,
    init: bool,
    scope: &ContainerScope<'_>,
) {
    errors.name(format!("{path}.name"), &container.name, names::label);
    image(errors, path, container);
    errors.one_of(
        format!("{path}.imagePullPolicy"),
        container.image_pull_policy.as_ref(),
        &["Always", "IfNotPresent", "Never"],
    );
    let policy = container.termination_message_policy.as_ref();
    errors.one_of(
        format!("{path}.terminationMessagePolicy"),
        policy,
        &["File", "FallbackToLogsOnError"],
    );
    network::ports(
        errors,
        path,
        container,
        scope.spec.host_network == Some(true),
    );
    env::check(errors, path, container);
    mounts(errors, path, container, scope);
    if container
        .volume_devices
        .as_ref()
        .is_some_and(|d| !d.is_empty())
    {
        errors.add(
            format!("{path}.volumeDevices"),
            "must be empty: block devices need claims, which static pods cannot have",
        );
    }
    lifecycle(errors, path, container, init, scope);
    restart(errors, path, container, scope);
    security::container(errors, path, container, scope.spec);
    if let Some(own) = &container.resources {
        resources::container(errors, &format!("{path}.resources"), own);
    }
}

fn image(errors: &mut ErrorList, path: &str, container: &Container) {
    let image = container.image.as_deref().unwrap_or_default();
    if image.is_empty() {
        errors.add(format!("{path}.image"), "required");
    } else if image.trim() != image {
        errors.add(
            format!("{path}.image"),
            format!("{} has leading or trailing white space", quoted(image)),
        );
    }
}

fn mounts(errors: &mut ErrorList, path: &str, container: &Container, scope: &ContainerScope<'_>) {
    let mut paths = BTreeSet::new();
    for (i, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let path = format!("{path}.volumeMounts[{i}]");
        if mount.name.is_empty() {
            errors.add(format!("{path}.name"), "required");
        } else if !scope.volumes.contains_key(mount.name.as_str()) {
            errors.add(
                format!("{path}.name"),
                format!("{} is not a volume of this pod", quoted(&mount.name)),
            );
        }
        if mount.mount_path.is_empty() {
            errors.add(format!("{path}.mountPath"), "required");
        } else if !paths.insert(mount.mount_path.as_str()) {
            errors.add(
                format!("{path}.mountPath"),
                format!("{} is mounted twice", quoted(&mount.mount_path)),
            );
        }
        mount_options(errors, &path, mount, container);
    }
}

fn mount_options(errors: &mut ErrorList, path: &str, mount: &VolumeMount, container: &Container) {
    errors.format(
        format!("{path}.subPath"),
        mount.sub_path.as_ref(),
        names::local_path,
    );
    errors.format(
        format!("{path}.subPathExpr"),
        mount.sub_path_expr.as_ref(),
        names::local_path,
    );
    let set = |t: &Option<String>| t.as_ref().is_some_and(|t| !t.is_empty());
    if set(&mount.sub_path) && set(&mount.sub_path_expr) {
        errors.add(
            format!("{path}.subPathExpr"),
            "cannot be set together with subPath",
        );
    }
    let propagation = mount.mount_propagation.as_ref();
    errors.one_of(
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
        errors.add(
            format!("{path}.mountPropagation"),
            "Bidirectional is for privileged containers only",
        );
    }
    let recursive = mount.recursive_read_only.as_ref();
    errors.one_of(
        format!("{path}.recursiveReadOnly"),
        recursive,
        &["Disabled", "IfPossible", "Enabled"],
    );
    if recursive.is_some_and(|r| r != "Disabled") {
        if mount.read_only != Some(true) {
            errors.add(format!("{path}.recursiveReadOnly"), "needs readOnly: true");
        }
        if propagation.is_some_and(|p| p != "None") {
            errors.add(
                format!("{path}.recursiveReadOnly"),
                "needs mountPropagation None or unset",
            );
        }
    }
}

fn lifecycle(
    errors: &mut ErrorList,
    path: &str,
    container: &Container,
    init: bool,
    scope: &ContainerScope<'_>,
) {
    let sidecar = container.restart_policy.as_deref() == Some("Always");
    let grace = scope.spec.termination_grace_period_seconds;
    if let Some(lifecycle) = &container.lifecycle {
        for (name, hook) in [
            ("postStart", &lifecycle.post_start),
            ("preStop", &lifecycle.pre_stop),
        ] {
            if let Some(hook) = hook {
                handler::hook(errors, &format!("{path}.lifecycle.{name}"), hook, grace);
            }
        }
        if lifecycle.stop_signal.is_some() && scope.spec.os.is_none() {
            errors.add(format!("{path}.lifecycle.stopSignal"), "needs spec.os.name");
        }
    }
    let probes = [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ];
    for (name, probe) in probes {
        if let Some(probe) = probe {
            handler::probe(errors, &format!("{path}.{name}"), name, probe);
        }
        if init && !sidecar && probe.is_some() {
            errors.add(
                format!("{path}.{name}"),
                "must not be set for init containers without restartPolicy Always",
            );
        }
    }
    if init && !sidecar && container.lifecycle.is_some() {
        errors.add(
            format!("{path}.lifecycle"),
            "must not be set for init containers without restartPolicy Always",
        );
    }
}

fn restart(errors: &mut ErrorList, path: &str, container: &Container, scope: &ContainerScope<'_>) {
    errors.one_of(
        format!("{path}.restartPolicy"),
        container.restart_policy.as_ref(),
        &["Always", "OnFailure", "Never"],
    );
    let rules = container
        .restart_policy_rules
        .as_deref()
        .unwrap_or_default();
    if !rules.is_empty() && container.restart_policy.is_none() {
        errors.add(
            format!("{path}.restartPolicy"),
            "required when there are restartPolicyRules",
        );
    }
    if rules.len() > 20 {
        errors.add(
            format!("{path}.restartPolicyRules"),
            "must not be more than 20",
        );
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = format!("{path}.restartPolicyRules[{i}]");
        errors.one_of(
            format!("{path}.action"),
            Some(&rule.action),
            &["Restart", "RestartAllContainers"],
        );
        let Some(exit) = &rule.exit_codes else {
            errors.add(format!("{path}.exitCodes"), "required");
            continue;
        };
        errors.one_of(
            format!("{path}.exitCodes.operator"),
            Some(&exit.operator),
            &["In", "NotIn"],
        );
        let values = exit.values.as_deref().unwrap_or_default();
        if values.is_empty() || values.len() > 255 {
            errors.add(
                format!("{path}.exitCodes.values"),
                "expected between 1 and 255 exit codes",
            );
        }
    }
    for (i, rule) in container.resize_policy.iter().flatten().enumerate() {
        let path = format!("{path}.resizePolicy[{i}]");
        errors.one_of(
            format!("{path}.resourceName"),
            Some(&rule.resource_name),
            &["cpu", "memory"],
        );
        errors.one_of(
            format!("{path}.restartPolicy"),
            Some(&rule.restart_policy),
            &["NotRequired", "RestartContainer"],
        );
        if rule.restart_policy == "RestartContainer"
            && scope.spec.restart_policy.as_deref() == Some("Never")
        {
            errors.add(
                format!("{path}.restartPolicy"),
                "must be NotRequired when the pod's restartPolicy is Never",
            );
        }
    }
}
