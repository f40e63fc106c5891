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

use super::image::User;

/// Hidden from containers, as upstream hides it.
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
/// The same on this machine: how hot its processors get tells their neighbours' work.
static MASKED_HERE: LazyLock<Vec<String>> = LazyLock::new(|| masked(Path::new(PROCESSORS)));
const PROCESSORS: &str = "/sys/devices/system/cpu";
const READ_ONLY: &[&str] = &[
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Namespaces of the pod; `target` is the container that an ephemeral one looks into.
pub fn namespaces(
    spec: &PodSpec,
    target: Option<String>,
    userns: Option<v1::UserNamespace>,
) -> v1::NamespaceOption {
    use v1::NamespaceMode as Mode;
    let of_node = |shared: Option<bool>| {
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
        network: of_node(spec.host_network).into(),
        ipc: of_node(spec.host_ipc).into(),
        pid: pid.into(),
        target_id: target.filter(|_| pid == Mode::Target).unwrap_or_default(),
        userns_options: userns,
    }
}

/// The sandbox's own context.
pub fn of_sandbox(
    spec: &PodSpec,
    userns: Option<v1::UserNamespace>,
    volume_groups: &[i64],
) -> v1::LinuxSandboxSecurityContext {
    let pod = spec.security_context.clone().unwrap_or_default();
    let privileged = |c: &Container| {
        c.security_context
            .as_ref()
            .is_some_and(|s| s.privileged == Some(true))
    };
    v1::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(spec, None, userns)),
        selinux_options: pod.se_linux_options.as_ref().map(selinux),
        run_as_user: pod.run_as_user.map(int),
        run_as_group: pod.run_as_group.map(int),
        supplemental_groups: groups(&pod, volume_groups),
        supplemental_groups_policy: policy(&pod),
        privileged: spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .any(privileged),
        seccomp: Some(profile(ProfileType::RuntimeDefault, String::new())),
        ..Default::default()
    }
}

/// What a container's context hangs on beside the manifest.
pub struct About<'a> {
    /// The container that an ephemeral one looks into.
    pub target: Option<String>,
    /// The pod's user namespace.
    pub userns: Option<v1::UserNamespace>,
    /// Groups that the pod's volumes name.
    pub volume_groups: &'a [i64],
    /// Whom the image runs as, where the manifest does not say.
    pub image_user: Option<User>,
    /// Where profiles are found.
    pub root: &'a Path,
    /// Containers that name no profile get the runtime's.
    pub seccomp_default: bool,
}

/// A container's context.
#[allow(deprecated)]
pub fn of_container(
    manifest: &Manifest,
    kind: ContainerKind,
    container: &Container,
    about: &About<'_>,
) -> v1::LinuxContainerSecurityContext {
    let spec = manifest.spec();
    let target = about.target.clone();
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
    let (uid, user_name) = match (user(manifest, container), &about.image_user) {
        (None, Some(User::Named(name))) => (None, name.clone()),
        (None, Some(User::Number(uid))) => (Some(*uid), String::new()),
        (said, _) => (said, String::new()),
    };
    let confined = polylet_model::apparmor::of(manifest, container);
    v1::LinuxContainerSecurityContext {
        capabilities: own.capabilities.as_ref().map(|c| v1::Capability {
            add_capabilities: c.add.clone().unwrap_or_default(),
            drop_capabilities: c.drop.clone().unwrap_or_default(),
            ..Default::default()
        }),
        privileged: own.privileged == Some(true),
        namespace_options: Some(namespaces(spec, target, about.userns.clone())),
        selinux_options: selinux_options.map(selinux),
        run_as_user: uid.map(int),
        run_as_username: user_name,
        run_as_group: own.run_as_group.or(pod.run_as_group).map(int),
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: groups(&pod, about.volume_groups),
        supplemental_groups_policy: policy(&pod),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: unless_unmasked(MASKED_HERE.clone()),
        readonly_paths: unless_unmasked(READ_ONLY.iter().map(|p| (*p).to_owned()).collect()),
        seccomp: Some(match seccomp {
            Some(wanted) => seccomp_of(wanted, about.root),
            None if about.seccomp_default => profile(ProfileType::RuntimeDefault, String::new()),
            None => profile(ProfileType::Unconfined, String::new()),
        }),
        // Runtimes that are older know the word alone.
        apparmor_profile: confined
            .as_ref()
            .map(polylet_model::apparmor::in_one_word)
            .unwrap_or_default(),
        apparmor: confined.as_ref().map(apparmor),
        ..Default::default()
    }
}

/// All that is hidden, on a machine with these processors.
fn masked(processors: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(processors).into_iter().flatten();
    let number = |name: &std::ffi::OsStr| name.to_str()?.strip_prefix("cpu")?.parse::<u32>().ok();
    let throttle = |dir: &Path| dir.join("thermal_throttle");
    let mut throttled: Vec<u32> = entries
        .flatten()
        .filter(|entry| throttle(&entry.path()).exists())
        .filter_map(|entry| number(&entry.file_name()))
        .collect();
    throttled.sort_unstable();
    let throttled = throttled.iter().map(|cpu| {
        let dir = throttle(&Path::new(PROCESSORS).join(format!("cpu{cpu}")));
        dir.to_string_lossy().into_owned()
    });
    let everywhere = MASKED.iter().map(|path| (*path).to_owned());
    everywhere.chain(throttled).collect()
}

/// The user that the manifest asks for.
pub fn user(manifest: &Manifest, container: &Container) -> Option<i64> {
    let own = container.security_context.as_ref();
    let pod = manifest.spec().security_context.as_ref();
    own.and_then(|own| own.run_as_user)
        .or_else(|| pod?.run_as_user)
}

/// Whether the container must not run as root.
pub fn must_not_be_root(spec: &PodSpec, container: &Container) -> bool {
    let own = container
        .security_context
        .as_ref()
        .and_then(|s| s.run_as_non_root);
    own.or_else(|| spec.security_context.as_ref()?.run_as_non_root) == Some(true)
}

fn int(value: i64) -> v1::Int64Value {
    v1::Int64Value { value }
}

fn groups(pod: &PodSecurityContext, of_volumes: &[i64]) -> Vec<i64> {
    let own = || pod.supplemental_groups.iter().flatten().copied();
    let more: BTreeSet<i64> = of_volumes.iter().copied().collect();
    let more = more
        .into_iter()
        .filter(|group| own().all(|own| own != *group));
    pod.fs_group.into_iter().chain(own()).chain(more).collect()
}

fn policy(pod: &PodSecurityContext) -> i32 {
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

fn seccomp_of(wanted: &SeccompProfile, root: &Path) -> v1::SecurityProfile {
    match wanted.type_.as_str() {
        "RuntimeDefault" => profile(ProfileType::RuntimeDefault, String::new()),
        "Localhost" => {
            let file = root
                .join("seccomp")
                .join(wanted.localhost_profile.as_deref().unwrap_or_default());
            profile(ProfileType::Localhost, file.to_string_lossy().into_owned())
        }
        _ => profile(ProfileType::Unconfined, String::new()),
    }
}

fn apparmor(wanted: &AppArmorProfile) -> v1::SecurityProfile {
    match wanted.type_.as_str() {
        "RuntimeDefault" => profile(ProfileType::RuntimeDefault, String::new()),
        "Localhost" => profile(
            ProfileType::Localhost,
            wanted.localhost_profile.clone().unwrap_or_default(),
        ),
        _ => profile(ProfileType::Unconfined, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heat_of_processors_is_hidden_where_the_machine_tells_it() {
        let dir = tempfile::tempdir().unwrap();
        for made in [
            "cpu10/thermal_throttle",
            "cpu2/thermal_throttle",
            "cpu3",
            "cpufreq",
        ] {
            std::fs::create_dir_all(dir.path().join(made)).unwrap();
        }
        let of = |cpu| format!("/sys/devices/system/cpu/{cpu}/thermal_throttle");
        let masked = masked(dir.path());
        let (everywhere, here) = masked.split_at(MASKED.len());
        assert_eq!(everywhere, MASKED);
        assert_eq!(here, [of("cpu2"), of("cpu10")]);
    }

    #[test]
    fn volumes_bring_groups_that_the_pod_does_not_have() {
        let pod = PodSecurityContext {
            fs_group: Some(1),
            supplemental_groups: Some(vec![7, 2]),
            ..PodSecurityContext::default()
        };
        assert_eq!(groups(&pod, &[9, 7, 9, 8]), [1, 7, 2, 8, 9]);
        assert!(groups(&PodSecurityContext::default(), &[]).is_empty());
    }
}
