//! What a container needs to use its devices.

use std::collections::{BTreeMap, BTreeSet};

/// A path of the node in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMount {
    /// The path in the container.
    pub container_path: String,
    /// The path on the node.
    pub host_path: String,
    /// Whether the container may only read it.
    pub read_only: bool,
}

/// A device file of the node in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNode {
    /// The path in the container.
    pub container_path: String,
    /// The path on the node.
    pub host_path: String,
    /// Of r (read), w (write), m (mknod).
    pub permissions: String,
}

/// What a container is created with besides what its manifest says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRunOptions {
    /// Environment variables.
    pub envs: BTreeMap<String, String>,
    /// Mounts of the node's paths.
    pub mounts: Vec<HostMount>,
    /// Device files.
    pub devices: Vec<DeviceNode>,
    /// Annotations of the container.
    pub annotations: BTreeMap<String, String>,
    /// Fully qualified names of CDI devices.
    pub cdi_devices: Vec<String>,
}

impl ContainerRunOptions {
    /// Joins the options of several resources. The first of two values for one name or container path
    /// is used, as upstream. Returns with it the names and paths that others set differently.
    pub fn join<'a>(
        all: impl IntoIterator<Item = &'a ContainerRunOptions>,
    ) -> (ContainerRunOptions, Vec<String>) {
        let mut joined = ContainerRunOptions::default();
        let mut conflicts = BTreeSet::new();
        for options in all {
            join_maps(&mut joined.envs, &options.envs, &mut conflicts);
            join_maps(
                &mut joined.annotations,
                &options.annotations,
                &mut conflicts,
            );
            for mount in &options.mounts {
                let path = &mount.container_path;
                match joined.mounts.iter().find(|m| m.container_path == *path) {
                    None => joined.mounts.push(mount.clone()),
                    Some(other) if other.host_path == mount.host_path => {}
                    Some(_) => drop(conflicts.insert(path.clone())),
                }
            }
            for device in &options.devices {
                let path = &device.container_path;
                match joined.devices.iter().find(|d| d.container_path == *path) {
                    None => joined.devices.push(device.clone()),
                    Some(other) if other.host_path == device.host_path => {}
                    Some(_) => drop(conflicts.insert(path.clone())),
                }
            }
            for name in &options.cdi_devices {
                if !joined.cdi_devices.contains(name) {
                    joined.cdi_devices.push(name.clone());
                }
            }
        }
        (joined, conflicts.into_iter().collect())
    }
}

fn join_maps(
    joined: &mut BTreeMap<String, String>,
    more: &BTreeMap<String, String>,
    conflicts: &mut BTreeSet<String>,
) {
    for (name, value) in more {
        let first = joined.entry(name.clone()).or_insert_with(|| value.clone());
        if first != value {
            conflicts.insert(name.clone());
        }
    }
}
