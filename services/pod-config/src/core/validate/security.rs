//! Validation of users, profiles and namespaces.

use k8s_openapi::api::core::v1::{AppArmorProfile, Container, PodSpec, SeccompProfile};

use super::super::decode::quoted;
use super::{ErrorList, names};

/// Largest uid and gid of the Kubernetes API.
const MAX_ID: i64 = i32::MAX as i64;

pub(super) fn pod(errors: &mut ErrorList, spec: &PodSpec) {
    namespaces(errors, spec);
    let Some(context) = &spec.security_context else {
        return;
    };
    let path = "spec.securityContext";
    for (name, id) in [
        ("runAsUser", context.run_as_user),
        ("runAsGroup", context.run_as_group),
        ("fsGroup", context.fs_group),
    ] {
        errors.range(format!("{path}.{name}"), id, 0, MAX_ID);
    }
    for (i, group) in context.supplemental_groups.iter().flatten().enumerate() {
        errors.range(
            format!("{path}.supplementalGroups[{i}]"),
            Some(*group),
            0,
            MAX_ID,
        );
    }
    errors.one_of(
        format!("{path}.fsGroupChangePolicy"),
        context.fs_group_change_policy.as_ref(),
        &["Always", "OnRootMismatch"],
    );
    errors.one_of(
        format!("{path}.supplementalGroupsPolicy"),
        context.supplemental_groups_policy.as_ref(),
        &["Merge", "Strict"],
    );
    errors.one_of(
        format!("{path}.seLinuxChangePolicy"),
        context.se_linux_change_policy.as_ref(),
        &["Recursive", "MountOption"],
    );
    seccomp(errors, path, context.seccomp_profile.as_ref());
    app_armor(errors, path, context.app_armor_profile.as_ref());
    let mut names_set = std::collections::BTreeSet::new();
    for (i, sysctl) in context.sysctls.iter().flatten().enumerate() {
        let path = format!("{path}.sysctls[{i}].name");
        errors.name(path.clone(), &sysctl.name, names::sysctl);
        let name = sysctl.name.replace('/', ".");
        let own_network = name.starts_with("net.") && spec.host_network == Some(true);
        let own_ipc = (name.starts_with("kernel.shm")
            || name.starts_with("kernel.msg")
            || name == "kernel.sem"
            || name.starts_with("fs.mqueue."))
            && spec.host_ipc == Some(true);
        if own_network || own_ipc {
            errors.add(
                path.clone(),
                format!(
                    "{} cannot be set in a namespace of the host",
                    quoted(&sysctl.name)
                ),
            );
        }
        if !names_set.insert(name) {
            errors.add(path, format!("{} is set twice", quoted(&sysctl.name)));
        }
    }
}

fn namespaces(errors: &mut ErrorList, spec: &PodSpec) {
    if spec.share_process_namespace == Some(true) && spec.host_pid == Some(true) {
        errors.add(
            "spec.shareProcessNamespace",
            "cannot be set together with hostPID",
        );
    }
    if spec.host_users == Some(false) {
        for (name, host) in [
            ("hostNetwork", spec.host_network),
            ("hostPID", spec.host_pid),
            ("hostIPC", spec.host_ipc),
        ] {
            if host == Some(true) {
                errors.add(
                    format!("spec.{name}"),
                    "cannot be set when hostUsers is false",
                );
            }
        }
    }
}

pub(super) fn container(errors: &mut ErrorList, path: &str, container: &Container, spec: &PodSpec) {
    let Some(context) = &container.security_context else {
        return;
    };
    let path = format!("{path}.securityContext");
    errors.range(format!("{path}.runAsUser"), context.run_as_user, 0, MAX_ID);
    errors.range(
        format!("{path}.runAsGroup"),
        context.run_as_group,
        0,
        MAX_ID,
    );
    errors.one_of(
        format!("{path}.procMount"),
        context.proc_mount.as_ref(),
        &["Default", "Unmasked"],
    );
    if context.proc_mount.as_deref() == Some("Unmasked") && spec.host_users != Some(false) {
        errors.add(
            format!("{path}.procMount"),
            "Unmasked needs hostUsers: false",
        );
    }
    seccomp(errors, &path, context.seccomp_profile.as_ref());
    app_armor(errors, &path, context.app_armor_profile.as_ref());
    if context.allow_privilege_escalation == Some(false) {
        let escalation = format!("{path}.allowPrivilegeEscalation");
        if context.privileged == Some(true) {
            errors.add(
                escalation.clone(),
                "cannot be false when privileged is true",
            );
        }
        let added = context
            .capabilities
            .iter()
            .flat_map(|c| c.add.iter().flatten());
        if added
            .into_iter()
            .any(|c| matches!(c.as_str(), "CAP_SYS_ADMIN" | "SYS_ADMIN"))
        {
            errors.add(
                escalation,
                "cannot be false when capabilities add SYS_ADMIN",
            );
        }
    }
}

fn seccomp(errors: &mut ErrorList, path: &str, profile: Option<&SeccompProfile>) {
    if let Some(profile) = profile {
        self::profile(
            errors,
            &format!("{path}.seccompProfile"),
            &profile.type_,
            profile.localhost_profile.as_deref(),
            true,
        );
    }
}

fn app_armor(errors: &mut ErrorList, path: &str, profile: Option<&AppArmorProfile>) {
    if let Some(profile) = profile {
        self::profile(
            errors,
            &format!("{path}.appArmorProfile"),
            &profile.type_,
            profile.localhost_profile.as_deref(),
            false,
        );
    }
}

fn profile(errors: &mut ErrorList, path: &str, kind: &str, local: Option<&str>, is_path: bool) {
    match (kind, local) {
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("Localhost", Some(local)) if !local.is_empty() => {
            if is_path && let Err(expected) = names::local_path(local) {
                errors.add(
                    format!("{path}.localhostProfile"),
                    format!("{} is {expected}", quoted(local)),
                );
            }
        }
        ("Localhost", _) => errors.add(
            format!("{path}.localhostProfile"),
            "required when the type is Localhost",
        ),
        ("RuntimeDefault" | "Unconfined", Some(_)) => {
            errors.add(
                format!("{path}.localhostProfile"),
                "must be set only for the type Localhost",
            );
        }
        ("", _) => errors.add(format!("{path}.type"), "required"),
        (other, _) => errors.add(
            format!("{path}.type"),
            format!(
                "{} is not one of RuntimeDefault, Unconfined, Localhost",
                quoted(other)
            ),
        ),
    }
}
