//! Random manifests.

use polylet_model::Manifest;
use polylet_wire::common::v1::PodRef;
use polylet_wire::podconfig::v1::{Pod, PodSource};
use serde_json::{Value, json};

use crate::device_plugin;
use crate::node::config::{self, NODE};
use crate::rng::Rng;
use crate::world::World;

/// A pod of a source.
#[derive(Clone, Debug)]
pub struct SimulatedPod {
    /// The source.
    pub source: PodSource,
    /// The manifest as JSON.
    pub json: Value,
    /// The parsed manifest.
    pub manifest: Manifest,
}

impl SimulatedPod {
    fn new(source: PodSource, json: Value) -> Option<Self> {
        let raw = serde_json::to_vec(&json).ok()?;
        let manifest = Manifest::from_json(&raw).ok()?;
        Some(SimulatedPod {
            source,
            json,
            manifest,
        })
    }

    /// The pod's uid.
    pub fn uid(&self) -> &str {
        self.manifest.uid().as_str()
    }

    /// The path of the manifest of a static pod.
    pub fn path(&self) -> String {
        format!("/manifests/{}.json", self.uid())
    }

    /// The pod as pod-config serves it, for the API source.
    pub fn served(&self) -> Pod {
        Pod {
            r#ref: Some(PodRef {
                uid: self.uid().to_owned(),
                namespace: self.manifest.namespace().to_owned(),
                name: self.manifest.name().to_owned(),
            }),
            source: self.source.into(),
            digest: self.manifest.digest().to_owned(),
            manifest: self.manifest.raw().clone(),
            ..Pod::default()
        }
    }

    /// The pod with another image in one container, as the API allows.
    pub fn with_other_image(&self, rng: &mut Rng) -> Option<Self> {
        let mut json = self.json.clone();
        let containers = json["spec"]["containers"].as_array_mut()?;
        let at = rng.below(containers.len());
        containers.get_mut(at)?["image"] = json!(image(rng));
        Self::new(self.source, json)
    }

    /// The pod with a deletion timestamp.
    pub fn deleting(&self, at: jiff::Timestamp, rng: &mut Rng) -> Option<Self> {
        let mut json = self.json.clone();
        json["metadata"]["deletionTimestamp"] = json!(format!("{at:.0}"));
        json["metadata"]["deletionGracePeriodSeconds"] = json!(rng.between(0, 4));
        Self::new(self.source, json)
    }

    /// Whether the pod has been deleted.
    pub fn is_deleting(&self) -> bool {
        self.manifest.deletion_timestamp().is_some()
    }
}

/// The number of images.
pub const IMAGES: usize = 4;

fn image(rng: &mut Rng) -> String {
    format!("registry.local/img{}:1", rng.below(IMAGES))
}

fn container(name: String, rng: &mut Rng) -> Value {
    let policy = ["Always", "IfNotPresent", "IfNotPresent"][rng.below(3)];
    json!({"name": name, "image": image(rng), "imagePullPolicy": policy})
}

fn probe(rng: &mut Rng) -> Value {
    json!({"exec": {"command": ["true"]}, "periodSeconds": rng.between(1, 3), "timeoutSeconds": 1,
        "successThreshold": 1, "failureThreshold": rng.between(1, 3)})
}

/// Has the pod request devices, in at least one container of any kind.
fn request_devices(spec: &mut Value, rng: &mut Rng) {
    let at = rng.below(spec["containers"].as_array().map_or(0, Vec::len));
    for list in ["initContainers", "containers"] {
        let containers = spec[list].as_array_mut().into_iter().flatten();
        for (n, one) in containers.enumerate() {
            if rng.percent(50) || (list == "containers" && n == at) {
                let count = rng.between(1, 2).to_string();
                for kind in ["limits", "requests"] {
                    one["resources"][kind][device_plugin::RESOURCE] = json!(count);
                }
            }
        }
    }
}

/// A random pod with this name and uid.
pub fn random(
    source: PodSource,
    name: &str,
    uid: &str,
    with_devices: bool,
    now: jiff::Timestamp,
    rng: &mut Rng,
) -> Option<SimulatedPod> {
    let mut inits = Vec::new();
    for n in 0..[0, 0, 1, 2, 3][rng.below(5)] {
        let mut one = container(format!("i{n}"), rng);
        if rng.percent(35) {
            one["restartPolicy"] = json!("Always");
            if rng.percent(30) {
                one["startupProbe"] = probe(rng);
            }
        }
        inits.push(one);
    }
    let mut mains = Vec::new();
    for n in 0..=[0, 0, 1, 2][rng.below(4)] {
        let mut one = container(format!("m{n}"), rng);
        for hook in ["postStart", "preStop"] {
            if rng.percent(12) {
                one["lifecycle"][hook] = json!({"exec": {"command": ["true"]}});
            }
        }
        for (kind, percent) in [
            ("readinessProbe", 40),
            ("livenessProbe", 20),
            ("startupProbe", 15),
        ] {
            if rng.percent(percent) {
                one[kind] = probe(rng);
            }
        }
        mains.push(one);
    }
    let policy = ["Always", "Always", "OnFailure", "Never"][rng.below(4)];
    let mut spec = json!({"restartPolicy": policy, "initContainers": inits, "containers": mains,
        "terminationGracePeriodSeconds": rng.between(0, 5), "hostNetwork": rng.percent(10)});
    if rng.percent(50) {
        let mut volumes = vec![json!({"name": "data", "emptyDir": {}})];
        if rng.percent(50) {
            volumes.push(json!({"name": "host", "hostPath": {"path": "/srv"}}));
        }
        spec["volumes"] = json!(volumes);
        for list in ["initContainers", "containers"] {
            for one in spec[list].as_array_mut().into_iter().flatten() {
                one["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
            }
        }
        if volumes.len() > 1 {
            spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"},
                {"name": "host", "mountPath": "/srv"}]);
        }
    }
    if with_devices {
        request_devices(&mut spec, rng);
    }
    if rng.percent(10) {
        spec["activeDeadlineSeconds"] = json!(rng.between(2, 40));
    }
    let file = source == PodSource::File;
    // pod-config appends the node's name to that of a static pod.
    let name = if file {
        name.strip_suffix(NODE)?.trim_end_matches('-')
    } else {
        name
    };
    let mut json = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {
        "name": name, "namespace": "default", "uid": uid}});
    if !file {
        json["metadata"]["annotations"] = json!({"kubernetes.io/config.source": "api"});
        return SimulatedPod::new(source, json);
    }
    let bytes = serde_json::to_vec(&json).ok()?;
    let content = config::accepted(uid, &bytes, &|_| None, now);
    let item = content.pods.first()?;
    Some(SimulatedPod {
        source,
        manifest: Manifest::from_json(&item.manifest).ok()?,
        json,
    })
}

/// Writes the manifest of a static pod.
pub fn write(world: &mut World, desired: &SimulatedPod) {
    if desired.source == PodSource::File
        && let Ok(bytes) = serde_json::to_vec(&desired.json)
    {
        world.disk.files.insert(desired.path(), bytes);
    }
}

/// Truncates a manifest, or repairs all.
pub fn corrupt_manifest(world: &mut World) {
    if world.rng.percent(30) {
        return repair_manifests(world);
    }
    let paths: Vec<String> = world.disk.files.keys().cloned().collect();
    let path = world.rng.pick(&paths).cloned();
    if let Some(bytes) = path
        .as_ref()
        .and_then(|path| world.disk.files.get_mut(path))
    {
        bytes.truncate(bytes.len() / 2);
        world.record(|| format!("file {path:?} is broken"));
    }
}

/// Repairs all manifests.
pub fn repair_manifests(world: &mut World) {
    let desired_pods: Vec<SimulatedPod> = world.sources.desired_pods.values().cloned().collect();
    desired_pods
        .iter()
        .for_each(|desired| write(world, desired));
}
