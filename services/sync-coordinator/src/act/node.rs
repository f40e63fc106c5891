//! The node as admission sees it, read once.

use std::fs;
use std::path::Path;

use polylet_kit::Ctx;
use polylet_model::node::{self, Numbers};

use super::resources::Machine;
use crate::core::room::{Resizes, Room, Swap};

/// What the node has and is; who holds what of it comes later.
pub fn room(ctx: &Ctx, machine: Machine, allocatable: Numbers) -> Room {
    let kubelet = &ctx.config().kubelet;
    let gate = |name: &str| kubelet.feature_gates.get(name).copied();
    Room {
        node_name: ctx.node_name().to_owned(),
        labels: labels(ctx.node_name()),
        allocatable: Some(allocatable),
        most: Some(node::without_reserved(
            &capacity(ctx, machine),
            &[&kubelet.system_reserved, &kubelet.kube_reserved],
        )),
        ledger: Default::default(),
        no_apparmor: (!has_apparmor()).then(|| "AppArmor is not enabled on the host".to_owned()),
        strict_groups: false,
        no_pod_level_resources: gate("PodLevelResources") == Some(false),
        resizes: Resizes {
            pods: gate("InPlacePodVerticalScaling") != Some(false),
            pod_level: gate("InPlacePodLevelResourcesVerticalScaling") != Some(false),
            inits: gate("InPlacePodVerticalScalingInitContainers") != Some(false),
        },
        limited_swap: (kubelet.memory_swap.swap_behavior == "LimitedSwap"
            && machine.unified_cgroups
            && machine.swap_controller)
            .then_some(Swap {
                memory: machine.memory,
                swap: machine.swap,
            }),
    }
}

/// What pods may ask for together.
pub fn allocatable(ctx: &Ctx, machine: Machine) -> Numbers {
    let kubelet = &ctx.config().kubelet;
    let reserved = [&kubelet.system_reserved, &kubelet.kube_reserved];
    node::allocatable(&capacity(ctx, machine), &reserved, &kubelet.eviction_hard)
}

/// What the node has, whoever may use it.
pub fn capacity(ctx: &Ctx, machine: Machine) -> Numbers {
    let config = ctx.config();
    let (kubelet, root) = (&config.kubelet, &config.polylet.root_directory);
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let mut capacity = Numbers::from([
        ("cpu".to_owned(), number(machine.cpus.saturating_mul(1000))),
        ("memory".to_owned(), number(machine.memory)),
        (
            node::PODS.to_owned(),
            node::most_pods(kubelet.max_pods, kubelet.pods_per_core, machine.cpus),
        ),
    ]);
    if kubelet.local_storage_capacity_isolation
        && let Ok(disk) = rustix::fs::statvfs(existing(root))
    {
        let bytes = disk.f_blocks.saturating_mul(disk.f_frsize);
        capacity.insert(node::EPHEMERAL_STORAGE.to_owned(), number(bytes));
    }
    capacity.extend(huge_pages());
    capacity
}

/// The directory, or the nearest one above it that is there already.
fn existing(path: &Path) -> &Path {
    path.ancestors()
        .find(|place| place.is_dir())
        .unwrap_or(Path::new("/"))
}

/// Memory set aside in huge pages, by page size.
fn huge_pages() -> Vec<(String, i64)> {
    let sizes = fs::read_dir("/sys/kernel/mm/hugepages");
    let one = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let kib: i64 = name
            .strip_prefix("hugepages-")?
            .strip_suffix("kB")?
            .parse()
            .ok()?;
        let pages = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
        let pages: i64 = pages.trim().parse().ok()?;
        let size = polylet_model::quantity::Amount::from_units(kib.saturating_mul(1024));
        let name = format!("hugepages-{}", size.to_binary());
        Some((name, kib.saturating_mul(1024).saturating_mul(pages)))
    };
    sizes
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(one)
        .collect()
}

/// The labels that a node has by itself.
fn labels(name: &str) -> std::collections::BTreeMap<String, String> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", arch),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", arch),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

fn has_apparmor() -> bool {
    fs::read_to_string("/sys/module/apparmor/parameters/enabled")
        .is_ok_and(|word| word.starts_with('Y'))
}
