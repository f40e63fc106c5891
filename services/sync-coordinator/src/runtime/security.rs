//! Security contexts of sandboxes and containers.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, PodSecurityContext, PodSpec, SELinuxOptions, SeccompProfile,
};
use polylet_cri::v1;
use polylet_cri::v1::security_profile::ProfileType;
use polylet_model::{ContainerKind, Manifest};

/// The user that an image's processes run as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageUser {
    /// A UID; 0 as well for an image without a user.
    Uid(i64),
    /// A name, which the image's own passwd file resolves.
    Name(String),
}

/// Paths masked in containers, as by the kubelet.
const MASKED: &[&str] = &[
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// The same with this machine's thermal throttle counters, which leak the load of other tenants.
static MASKED_ON_NODE: LazyLock<Vec<String>> = LazyLock::new(|| masked_paths(Path::new(CPUS)));
const CPUS: &str = "/sys/devices/system/cpu";
const READ_ONLY: &[&str] = &[
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Namespaces of a container; `target` is the container that an ephemeral container debugs.
pub fn namespaces(
    spec: &PodSpec,
    target: Option<String>,
    userns: Option<v1::UserNamespace>,
) -> v1::NamespaceOption {
    use v1::NamespaceMode as Mode;
    let node_if = |shared: Option<bool>| {
        if shared == Some(true) {
            Mode::Node
        } else {
            Mode::Pod
        }
    };
    let pid = if spec.host_pid == Some(true) {
        Mode::Node
    } else if spec.share_process_namespace == Some(true) {
        Mode::Pod
    } else if target.is_some() {
        Mode::Target
    } else {
        Mode::Container
    };
    v1::NamespaceOption {
        network: node_if(spec.host_network).into(),
        ipc: node_if(spec.host_ipc).into(),
        pid: pid.into(),
        target_id: target.filter(|_| pid == Mode::Target).unwrap_or_default(),
        userns_options: userns,
    }
}

/// The security context of a sandbox. It is privileged if any container is: the runtime creates no privileged
/// container, not even an ephemeral one, by the configuration of a sandbox that is not.
pub fn sandbox_context(
    spec: &PodSpec,
    userns: Option<v1::UserNamespace>,
    volume_groups: &[i64],
) -> v1::LinuxSandboxSecurityContext {
    let pod = spec.security_context.clone().unwrap_or_default();
    let init = spec.init_containers.iter().flatten();
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let containers = spec.containers.iter().chain(init);
    let mut contexts = containers
        .map(|c| c.security_context.as_ref())
        .chain(ephemeral.map(|c| c.security_context.as_ref()));
    v1::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(spec, None, userns)),
        selinux_options: pod.se_linux_options.as_ref().map(selinux),
        run_as_user: pod.run_as_user.map(int),
        run_as_group: pod.run_as_group.map(int),
        supplemental_groups: supplemental_groups(&pod, volume_groups),
        supplemental_groups_policy: supplemental_groups_policy(&pod),
        privileged: contexts.any(|context| context.is_some_and(|c| c.privileged == Some(true))),
        seccomp: Some(profile(ProfileType::RuntimeDefault, String::new())),
        ..Default::default()
    }
}

/// Facts for a container's security context beside its manifest.
pub struct SecurityFacts<'a> {
    /// ID of the container that an ephemeral container debugs.
    pub target: Option<String>,
    /// The pod's user namespace.
    pub userns: Option<v1::UserNamespace>,
    /// Supplemental groups of the pod's volumes.
    pub volume_groups: &'a [i64],
    /// The image's user, if the manifest has none.
    pub image_user: Option<ImageUser>,
    /// The root directory, with the `seccomp` directory of profiles.
    pub root: &'a Path,
    /// Whether containers without a profile get the runtime's default.
    pub seccomp_default: bool,
}

/// The security context of a container.
#[allow(deprecated)]
pub fn container_context(
    manifest: &Manifest,
    kind: ContainerKind,
    container: &Container,
    facts: &SecurityFacts<'_>,
) -> v1::LinuxContainerSecurityContext {
    let spec = manifest.spec();
    let target = facts.target.clone();
    let pod = spec.security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let unmasked = own.proc_mount.as_deref() == Some("Unmasked");
    let unless_unmasked = |paths: Vec<String>| if unmasked { Vec::new() } else { paths };
    let target = target.filter(|_| kind == ContainerKind::Ephemeral);
    let seccomp = own
        .seccomp_profile
        .as_ref()
        .or(pod.seccomp_profile.as_ref());
    let selinux_options = own
        .se_linux_options
        .as_ref()
        .or(pod.se_linux_options.as_ref());
    let (uid, user_name) = match (user(manifest, container), &facts.image_user) {
        (None, Some(ImageUser::Name(name))) => (None, name.clone()),
        (None, Some(ImageUser::Uid(uid))) => (Some(*uid), String::new()),
        (uid, _) => (uid, String::new()),
    };
    let apparmor_profile = polylet_model::apparmor::profile(manifest, container);
    v1::LinuxContainerSecurityContext {
        capabilities: own.capabilities.as_ref().map(|c| v1::Capability {
            add_capabilities: c.add.clone().unwrap_or_default(),
            drop_capabilities: c.drop.clone().unwrap_or_default(),
            ..Default::default()
        }),
        privileged: own.privileged == Some(true),
        namespace_options: Some(namespaces(spec, target, facts.userns.clone())),
        selinux_options: selinux_options.map(selinux),
        run_as_user: uid.map(int),
        run_as_username: user_name,
        run_as_group: own.run_as_group.or(pod.run_as_group).map(int),
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: supplemental_groups(&pod, facts.volume_groups),
        supplemental_groups_policy: supplemental_groups_policy(&pod),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: unless_unmasked(MASKED_ON_NODE.clone()),
        readonly_paths: unless_unmasked(READ_ONLY.iter().map(|p| (*p).to_owned()).collect()),
        seccomp: Some(match seccomp {
            Some(seccomp) => seccomp_profile(seccomp, facts.root),
            None if facts.seccomp_default => profile(ProfileType::RuntimeDefault, String::new()),
            None => profile(ProfileType::Unconfined, String::new()),
        }),
        // Older runtimes only know the string form.
        apparmor_profile: apparmor_profile
            .as_ref()
            .map(polylet_model::apparmor::annotation_value)
            .unwrap_or_default(),
        apparmor: apparmor_profile.as_ref().map(apparmor),
        ..Default::default()
    }
}

/// All masked paths, on a machine with these CPUs in sysfs.
fn masked_paths(cpus: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(cpus).into_iter().flatten();
    let number = |name: &std::ffi::OsStr| name.to_str()?.strip_prefix("cpu")?.parse::<u32>().ok();
    let throttle = |dir: &Path| dir.join("thermal_throttle");
    let mut throttled: Vec<u32> = entries
        .flatten()
        .filter(|entry| throttle(&entry.path()).exists())
        .filter_map(|entry| number(&entry.file_name()))
        .collect();
    throttled.sort_unstable();
    let throttled = throttled.iter().map(|cpu| {
        let dir = throttle(&Path::new(CPUS).join(format!("cpu{cpu}")));
        dir.to_string_lossy().into_owned()
    });
    let everywhere = MASKED.iter().map(|path| (*path).to_owned());
    everywhere.chain(throttled).collect()
}

/// `runAsUser` of a container, or of its pod.
pub fn user(manifest: &Manifest, container: &Container) -> Option<i64> {
    let own = container.security_context.as_ref();
    let pod = manifest.spec().security_context.as_ref();
    own.and_then(|own| own.run_as_user)
        .or_else(|| pod?.run_as_user)
}

/// `runAsNonRoot` of a container, or of its pod.
pub fn requires_non_root(spec: &PodSpec, container: &Container) -> bool {
    let own = container
        .security_context
        .as_ref()
        .and_then(|s| s.run_as_non_root);
    own.or_else(|| spec.security_context.as_ref()?.run_as_non_root) == Some(true)
}

fn int(value: i64) -> v1::Int64Value {
    v1::Int64Value { value }
}

fn supplemental_groups(pod: &PodSecurityContext, volume_groups: &[i64]) -> Vec<i64> {
    let own = || pod.supplemental_groups.iter().flatten().copied();
    let more: BTreeSet<i64> = volume_groups.iter().copied().collect();
    let more = more
        .into_iter()
        .filter(|group| own().all(|own| own != *group));
    pod.fs_group.into_iter().chain(own()).chain(more).collect()
}

fn supplemental_groups_policy(pod: &PodSecurityContext) -> i32 {
    match pod.supplemental_groups_policy.as_deref() {
        Some("Strict") => v1::SupplementalGroupsPolicy::Strict,
        _ => v1::SupplementalGroupsPolicy::Merge,
    }
    .into()
}

fn selinux(options: &SELinuxOptions) -> v1::SeLinuxOption {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    v1::SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    }
}

fn profile(profile_type: ProfileType, localhost_ref: String) -> v1::SecurityProfile {
    v1::SecurityProfile {
        profile_type: profile_type.into(),
        localhost_ref,
    }
}

fn seccomp_profile(seccomp: &SeccompProfile, root: &Path) -> v1::SecurityProfile {
    match seccomp.type_.as_str() {
        "RuntimeDefault" => profile(ProfileType::RuntimeDefault, String::new()),
        "Localhost" => {
            let file = root
                .join("seccomp")
                .join(seccomp.localhost_profile.as_deref().unwrap_or_default());
            profile(ProfileType::Localhost, file.to_string_lossy().into_owned())
        }
        _ => profile(ProfileType::Unconfined, String::new()),
    }
}

fn apparmor(apparmor: &AppArmorProfile) -> v1::SecurityProfile {
    match apparmor.type_.as_str() {
        "RuntimeDefault" => profile(ProfileType::RuntimeDefault, String::new()),
        "Localhost" => profile(
            ProfileType::Localhost,
            apparmor.localhost_profile.clone().unwrap_or_default(),
        ),
        _ => profile(ProfileType::Unconfined, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::runtime::test_manifest;

    #[test]
    fn the_sandbox_is_privileged_if_any_container_is() {
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        for privileged in [None, Some(lists[0]), Some(lists[1]), Some(lists[2])] {
            let mut spec = json!({});
            for list in lists {
                let context = json!({"privileged": privileged == Some(list)});
                spec[list] = json!([{"name": list, "securityContext": context}]);
            }
            let context = sandbox_context(test_manifest(spec).spec(), None, &[]);
            assert_eq!(context.privileged, privileged.is_some(), "{privileged:?}");
        }
    }

    #[test]
    fn thermal_throttle_counters_are_masked() {
        let dir = tempfile::tempdir().unwrap();
        for dir_name in [
            "cpu10/thermal_throttle",
            "cpu2/thermal_throttle",
            "cpu3",
            "cpufreq",
        ] {
            std::fs::create_dir_all(dir.path().join(dir_name)).unwrap();
        }
        let path = |cpu| format!("/sys/devices/system/cpu/{cpu}/thermal_throttle");
        let masked = masked_paths(dir.path());
        let (everywhere, on_node) = masked.split_at(MASKED.len());
        assert_eq!(everywhere, MASKED);
        assert_eq!(on_node, [path("cpu2"), path("cpu10")]);
    }

    #[test]
    fn groups_of_volumes_are_added_once() {
        let pod = PodSecurityContext {
            fs_group: Some(1),
            supplemental_groups: Some(vec![7, 2]),
            ..PodSecurityContext::default()
        };
        assert_eq!(supplemental_groups(&pod, &[9, 7, 9, 8]), [1, 7, 2, 8, 9]);
        assert!(supplemental_groups(&PodSecurityContext::default(), &[]).is_empty());
    }
}
