use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount};
use serde_json::{Map, Value, json};

use super::NodeOptions;
use crate::cgroup::Driver;
use crate::error::{HarnessError, file};
use crate::scratch::Scratch;

/// The node's directories.
#[derive(Debug, Clone)]
pub struct Dirs {
    /// Manifests of static pods.
    pub manifests: PathBuf,
    /// Where manifests are written before they are moved in.
    pub(crate) aside: PathBuf,
    /// Sockets and facts about running containers.
    pub run: PathBuf,
    /// Promises that outlive a reboot.
    pub state: PathBuf,
    /// Pods' volumes and files.
    pub root: PathBuf,
    /// Logs of pods.
    pub logs: PathBuf,
    /// Links to logs.
    pub links: PathBuf,
}

impl Dirs {
    pub(crate) fn create(scratch: &Scratch) -> Result<Self, HarnessError> {
        let run = scratch.sub("run")?;
        in_memory(&run)?;
        Ok(Self {
            manifests: scratch.sub("manifests")?,
            aside: scratch.sub("aside")?,
            run,
            state: scratch.sub("kept")?,
            root: scratch.sub("kubelet")?,
            logs: scratch.sub("pods")?,
            links: scratch.sub("links")?,
        })
    }
}

/// A small disk for containerd's root.
pub(crate) fn image_disk(dir: &Path, mebibytes: u32) -> Result<(), HarnessError> {
    let size = std::ffi::CString::new(format!("size={mebibytes}m")).unwrap_or_default();
    let mounted = mount("tmpfs", dir, "tmpfs", MountFlags::empty(), size.as_c_str());
    file("mount a tmpfs on", dir, mounted.map_err(Into::into))
}

/// As `/run` is on a node.
pub(super) fn in_memory(dir: &Path) -> Result<(), HarnessError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let mounted = mount("tmpfs", dir, "tmpfs", flags, c"mode=0755,size=64m");
    file("mount a tmpfs on", dir, mounted.map_err(Into::into))
}

pub(crate) struct Input<'a> {
    pub(crate) options: &'a NodeOptions,
    pub(crate) dirs: &'a Dirs,
    pub(crate) bin_dir: &'a Path,
    pub(crate) ports: (u16, u16),
    pub(crate) client_ca: PathBuf,
    pub(crate) endpoint: String,
    pub(crate) cgroup: &'a str,
}

/// The first document of the configuration file.
pub(crate) fn kubelet(input: &Input<'_>) -> Value {
    let dirs = input.dirs;
    let base = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodPath": dirs.manifests,
        "containerRuntimeEndpoint": input.endpoint,
        "podLogsDir": dirs.logs,
        "cgroupRoot": input.cgroup,
        "cgroupDriver": Driver::from_env().word(),
        "address": "127.0.0.1",
        "port": input.ports.0,
        "healthzPort": input.ports.1,
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": false },
            "x509": { "clientCAFile": input.client_ca },
        },
        // Small machines, old machines and other people's machines all have to do.
        "failSwapOn": false,
        "failCgroupV1": false,
        // Only shortage of memory: how full this machine's disk is is not for us to judge.
        "evictionHard": { "memory.available": "50Mi" },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    });
    merged(base, &input.options.kubelet)
}

/// The two documents of the configuration file.
pub(crate) fn text(input: &Input<'_>) -> Result<String, HarnessError> {
    let dirs = input.dirs;
    let polylet = json!({
        "apiVersion": "polylet.dev/v1alpha1",
        "kind": "PolyletConfiguration",
        "nodeName": input.options.name,
        "runDirectory": dirs.run,
        "stateDirectory": dirs.state,
        "rootDirectory": dirs.root,
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

/// Fields of `over` replace those of `base`; `null` takes a field out.
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
