use std::fs;
use std::io;
use std::path::Path;

use polylet_vm::agent::{ObservedTask, RuntimeObservation};
use serde_json::Value;

/// Bundles of the runtime's tasks.
const BUNDLES: &str = "/run/containerd/io.containerd.runtime.v2.task/k8s.io";

const PODS: &str = "/var/lib/kubelet/pods";

/// Reservations of the network plugin for the network `bridge`.
const ADDRESSES: &str = "/var/lib/cni/networks/bridge";

/// Prints an observation as JSON.
pub(crate) fn print() -> io::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let mount_points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let below = format!("{PODS}/");
    let is_address = |name: &String| name.parse::<std::net::IpAddr>().is_ok();
    let observation = RuntimeObservation {
        tasks: names(BUNDLES)
            .into_iter()
            .filter_map(|id| task(&Path::new(BUNDLES).join(&id), id))
            .collect(),
        pod_directories: names(PODS),
        mounts: mount_points
            .filter(|point| point.starts_with(&below))
            .map(str::to_owned)
            .collect(),
        addresses: names(ADDRESSES).into_iter().filter(is_address).collect(),
    };
    println!("{}", serde_json::to_string(&observation)?);
    Ok(())
}

/// Names in a directory; none if it does not exist.
fn names(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A task from its bundle; `None` for one that is being created or removed.
fn task(bundle: &Path, id: String) -> Option<ObservedTask> {
    let spec = fs::read(bundle.join("config.json")).ok()?;
    let spec: Value = serde_json::from_slice(&spec).ok()?;
    let annotation = |name: &str| {
        let value = &spec["annotations"][format!("io.kubernetes.cri.{name}")];
        value.as_str().unwrap_or_default().to_owned()
    };
    let pid = fs::read_to_string(bundle.join("init.pid")).unwrap_or_default();
    Some(ObservedTask {
        id,
        pod_uid: annotation("sandbox-uid"),
        container: annotation("container-name"),
        is_alive: is_alive(pid.trim()),
    })
}

/// Whether a process exists and is no zombie.
fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    let state = stat.ok().and_then(|stat| {
        let (_, rest) = stat.rsplit_once(')')?;
        rest.trim_start().chars().next()
    });
    !pid.is_empty() && !matches!(state, None | Some('Z' | 'X'))
}
