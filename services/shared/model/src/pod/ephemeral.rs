//! Ephemeral containers have every field of a container under another type.

use k8s_openapi::api::core::v1::{Container, EphemeralContainer};

/// An ephemeral container in the form of every other one.
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
