//! Users, profiles and namespaces.

use k8s_openapi::api::core::v1::{AppArmorProfile, Container, PodSpec, SeccompProfile};

use super::super::decode::quoted;
use super::{Findings, names};

/// Users and groups that the kernel's API takes.
const MOST_ID: i64 = i32::MAX as i64;

pub(super) fn pod(out: &mut Findings, spec: &PodSpec) {
    namespaces(out, spec);
    let Some(context) = &spec.security_context else {
        return;
    };
    let path = "spec.securityContext";
    for (name, id) in [
        ("runAsUser", context.run_as_user),
        ("runAsGroup", context.run_as_group),
        ("fsGroup", context.fs_group),
    ] {
        out.range(format!("{path}.{name}"), id, 0, MOST_ID);
    }
    for (i, group) in context.supplemental_groups.iter().flatten().enumerate() {
        out.range(
            format!("{path}.supplementalGroups[{i}]"),
            Some(*group),
            0,
            MOST_ID,
        );
    }
    out.word(
        format!("{path}.fsGroupChangePolicy"),
        context.fs_group_change_policy.as_ref(),
        &["Always", "OnRootMismatch"],
    );
    out.word(
        format!("{path}.supplementalGroupsPolicy"),
        context.supplemental_groups_policy.as_ref(),
        &["Merge", "Strict"],
    );
    out.word(
        format!("{path}.seLinuxChangePolicy"),
        context.se_linux_change_policy.as_ref(),
        &["Recursive", "MountOption"],
    );
    seccomp(out, path, context.seccomp_profile.as_ref());
    app_armor(out, path, context.app_armor_profile.as_ref());
    let mut known = std::collections::BTreeSet::new();
    for (i, sysctl) in context.sysctls.iter().flatten().enumerate() {
        let path = format!("{path}.sysctls[{i}].name");
        out.name(path.clone(), &sysctl.name, names::sysctl);
        let name = sysctl.name.replace('/', ".");
        let own_network = name.starts_with("net.") && spec.host_network == Some(true);
        let own_ipc = (name.starts_with("kernel.shm")
            || name.starts_with("kernel.msg")
            || name == "kernel.sem"
            || name.starts_with("fs.mqueue."))
            && spec.host_ipc == Some(true);
        if own_network || own_ipc {
            out.add(
                path.clone(),
                format!(
                    "{} cannot be set in a namespace of the host",
                    quoted(&sysctl.name)
                ),
            );
        }
        if !known.insert(name) {
            out.add(path, format!("{} is set twice", quoted(&sysctl.name)));
        }
    }
}

fn namespaces(out: &mut Findings, spec: &PodSpec) {
    if spec.share_process_namespace == Some(true) && spec.host_pid == Some(true) {
        out.add(
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
                out.add(
                    format!("spec.{name}"),
                    "cannot be set when hostUsers is false",
                );
            }
        }
    }
}

pub(super) fn container(out: &mut Findings, path: &str, container: &Container, spec: &PodSpec) {
    let Some(context) = &container.security_context else {
        return;
    };
    let path = format!("{path}.securityContext");
    out.range(format!("{path}.runAsUser"), context.run_as_user, 0, MOST_ID);
    out.range(
        format!("{path}.runAsGroup"),
        context.run_as_group,
        0,
        MOST_ID,
    );
    out.word(
        format!("{path}.procMount"),
        context.proc_mount.as_ref(),
        &["Default", "Unmasked"],
    );
    if context.proc_mount.as_deref() == Some("Unmasked") && spec.host_users != Some(false) {
        out.add(
            format!("{path}.procMount"),
            "Unmasked needs hostUsers: false",
        );
    }
    seccomp(out, &path, context.seccomp_profile.as_ref());
    app_armor(out, &path, context.app_armor_profile.as_ref());
    if context.allow_privilege_escalation == Some(false) {
        let escalation = format!("{path}.allowPrivilegeEscalation");
        if context.privileged == Some(true) {
            out.add(
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
            out.add(
                escalation,
                "cannot be false when capabilities add SYS_ADMIN",
            );
        }
    }
}

fn seccomp(out: &mut Findings, path: &str, profile: Option<&SeccompProfile>) {
    if let Some(profile) = profile {
        self::profile(
            out,
            &format!("{path}.seccompProfile"),
            &profile.type_,
            profile.localhost_profile.as_deref(),
            true,
        );
    }
}

fn app_armor(out: &mut Findings, path: &str, profile: Option<&AppArmorProfile>) {
    if let Some(profile) = profile {
        self::profile(
            out,
            &format!("{path}.appArmorProfile"),
            &profile.type_,
            profile.localhost_profile.as_deref(),
            false,
        );
    }
}

fn profile(out: &mut Findings, path: &str, kind: &str, local: Option<&str>, is_path: bool) {
    match (kind, local) {
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("Localhost", Some(local)) if !local.is_empty() => {
            if is_path && let Err(expected) = names::local_path(local) {
                out.add(
                    format!("{path}.localhostProfile"),
                    format!("{} is {expected}", quoted(local)),
                );
            }
        }
        ("Localhost", _) => out.add(
            format!("{path}.localhostProfile"),
            "required when the type is Localhost",
        ),
        ("RuntimeDefault" | "Unconfined", Some(_)) => {
            out.add(
                format!("{path}.localhostProfile"),
                "is for the type Localhost alone",
            );
        }
        ("", _) => out.add(format!("{path}.type"), "required"),
        (other, _) => out.add(
            format!("{path}.type"),
            format!(
                "{} is not one of RuntimeDefault, Unconfined, Localhost",
                quoted(other)
            ),
        ),
    }
}
