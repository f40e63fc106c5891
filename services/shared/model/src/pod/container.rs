//! Kinds and restart policies of containers.

use k8s_openapi::api::core::v1::{Container, EphemeralContainer};

/// The restart policy of a pod or container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RestartPolicy {
    /// Restart after any exit.
    Always,
    /// Restart after an exit code other than 0.
    OnFailure,
    /// Never restart.
    Never,
}

impl RestartPolicy {
    /// Parses the policy in the API; `Always` if it is unset or unknown.
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            Some("OnFailure") => Self::OnFailure,
            Some("Never") => Self::Never,
            _ => Self::Always,
        }
    }
}

/// The kind of a container in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContainerKind {
    /// Has to complete before the next container starts.
    Init,
    /// An init container that keeps running along with the regular ones.
    Sidecar,
    /// One of `containers`.
    Regular,
    /// Added to a running pod for debugging.
    Ephemeral,
}

/// Whether an init container is a sidecar, which keeps running along with the regular containers.
pub fn is_sidecar(init_container: &Container) -> bool {
    init_container.restart_policy.as_deref() == Some("Always")
}

pub(super) fn kind_of_init(container: &Container) -> ContainerKind {
    match is_sidecar(container) {
        true => ContainerKind::Sidecar,
        false => ContainerKind::Init,
    }
}

/// Converts an ephemeral container to a container.
pub fn as_container(from: &EphemeralContainer) -> Container {
    let from = from.clone();
    Container {
        args: from.args,
        command: from.command,
        env: from.env,
        env_from: from.env_from,
        image: from.image,
        image_pull_policy: from.image_pull_policy,
        lifecycle: from.lifecycle,
        liveness_probe: from.liveness_probe,
        name: from.name,
        ports: from.ports,
        readiness_probe: from.readiness_probe,
        resize_policy: from.resize_policy,
        resources: from.resources,
        restart_policy: from.restart_policy,
        restart_policy_rules: from.restart_policy_rules,
        security_context: from.security_context,
        startup_probe: from.startup_probe,
        stdin: from.stdin,
        stdin_once: from.stdin_once,
        termination_message_path: from.termination_message_path,
        termination_message_policy: from.termination_message_policy,
        tty: from.tty,
        volume_devices: from.volume_devices,
        volume_mounts: from.volume_mounts,
        working_dir: from.working_dir,
    }
}
