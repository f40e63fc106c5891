use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount};
use serde_json::{Map, Value, json};

use super::NodeOptions;
use crate::cgroup::TestCgroupDriver;
use crate::cleanup;
use crate::error::{HarnessError, file};
use crate::scratch::{DEVICE_PLUGINS, Scratch};

/// The node's directories.
#[derive(Debug, Clone)]
pub struct NodeDirs {
    /// Static pod manifests.
    pub manifests: PathBuf,
    /// Staging directory for atomic writes of manifests.
    pub(crate) staging: PathBuf,
    /// Runtime directory: sockets and container state.
    pub run: PathBuf,
    /// State files that survive a reboot.
    pub state: PathBuf,
    /// Pod volumes and files.
    pub root: PathBuf,
    /// Sockets of device plugins, and the node's for them. The service makes it.
    pub device_plugins: PathBuf,
    /// Pod logs.
    pub logs: PathBuf,
    /// Symbolic links to container logs.
    pub links: PathBuf,
}

impl NodeDirs {
    /// Below the scratch directory but for two of a machine's only node: the links to logs, which clean-up
    /// removes, too, and the directory of device plugins, which is the same under the name that plugins know.
    pub(crate) fn create(scratch: &Scratch, is_standard: bool) -> Result<Self, HarnessError> {
        let run = scratch.sub("run")?;
        in_memory(&run)?;
        let links = match is_standard {
            true => PathBuf::from(cleanup::STANDARD_LINKS),
            false => scratch.sub("links")?,
        };
        let root = scratch.sub("kubelet")?;
        let device_plugins = match is_standard {
            true => PathBuf::from(DEVICE_PLUGINS),
            false => root.join("device-plugins"),
        };
        Ok(Self {
            manifests: scratch.sub("manifests")?,
            staging: scratch.sub("aside")?,
            run,
            state: scratch.sub("kept")?,
            root,
            device_plugins,
            logs: scratch.sub("pods")?,
            links,
        })
    }
}

/// Mounts a directory on itself, unless it is a mount point, so that mounts below it propagate.
///
/// # Errors
/// Fails if it cannot be mounted.
pub fn shared_mount(dir: &Path) -> Result<(), HarnessError> {
    if cleanup::mounts_below(dir).iter().any(|at| at == dir) {
        return Ok(());
    }
    let bound = rustix::mount::mount_bind(dir, dir);
    file("mount on itself", dir, bound.map_err(Into::into))?;
    let shared = rustix::mount::mount_change(dir, rustix::mount::MountPropagationFlags::SHARED);
    file("share the mounts of", dir, shared.map_err(Into::into))
}

/// Mounts a tmpfs as a small disk.
pub(crate) fn small_disk(dir: &Path, mebibytes: u32) -> Result<(), HarnessError> {
    let size = std::ffi::CString::new(format!("size={mebibytes}m")).unwrap_or_default();
    let mounted = mount("tmpfs", dir, "tmpfs", MountFlags::empty(), size.as_c_str());
    file("mount a tmpfs on", dir, mounted.map_err(Into::into))
}

/// Mounts a tmpfs, as on `/run`.
pub(super) fn in_memory(dir: &Path) -> Result<(), HarnessError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let mounted = mount("tmpfs", dir, "tmpfs", flags, c"mode=0755,size=64m");
    file("mount a tmpfs on", dir, mounted.map_err(Into::into))
}

pub(crate) struct Input<'a> {
    pub(crate) options: &'a NodeOptions,
    pub(crate) dirs: &'a NodeDirs,
    pub(crate) bin_dir: &'a Path,
    pub(crate) ports: (u16, u16),
    pub(crate) client_ca: PathBuf,
    pub(crate) endpoint: String,
    pub(crate) cgroup_root: &'a str,
}

/// The configuration file's first document.
pub(crate) fn kubelet(input: &Input<'_>) -> Value {
    let dirs = input.dirs;
    let base = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodPath": dirs.manifests,
        "containerRuntimeEndpoint": input.endpoint,
        "podLogsDir": dirs.logs,
        "cgroupRoot": input.cgroup_root,
        "cgroupDriver": TestCgroupDriver::from_env().word(),
        "address": "127.0.0.1",
        "port": input.ports.0,
        "healthzPort": input.ports.1,
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": false },
            "x509": { "clientCAFile": input.client_ca },
        },
        // Also accepts machines with swap or cgroup v1.
        "failSwapOn": false,
        "failCgroupV1": false,
        // Memory only: this machine's disk usage must not cause evictions.
        "evictionHard": { "memory.available": "50Mi" },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    });
    merged(base, &input.options.kubelet)
}

/// The configuration file with its two documents.
pub(crate) fn text(input: &Input<'_>) -> Result<String, HarnessError> {
    let dirs = input.dirs;
    let polylet = json!({
        "apiVersion": "polylet.dev/v1alpha1",
        "kind": "PolyletConfiguration",
        "nodeName": input.options.name,
        "runDirectory": dirs.run,
        "stateDirectory": dirs.state,
        "rootDirectory": dirs.root,
        "devicePluginDirectory": dirs.device_plugins,
        "containerLogsDirectory": dirs.links,
        "binDirectory": input.bin_dir,
    });
    let documents = [kubelet(input), merged(polylet, &input.options.polylet)];
    let texts: Result<Vec<String>, _> = documents.iter().map(serde_yaml_ng::to_string).collect();
    let texts = texts.map_err(|source| HarnessError::Yaml {
        what: "configuration",
        source,
    })?;
    Ok(texts.join("---\n"))
}

/// Merges `over` into `base`; `null` removes a field.
fn merged(base: Value, over: &Value) -> Value {
    let mut fields = match base {
        Value::Object(fields) => fields,
        other => Map::from_iter([("value".to_owned(), other)]),
    };
    for (name, value) in over.as_object().into_iter().flatten() {
        if value.is_null() {
            fields.remove(name);
        } else {
            fields.insert(name.clone(), value.clone());
        }
    }
    Value::Object(fields)
}
