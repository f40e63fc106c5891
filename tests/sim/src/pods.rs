//! Random manifests.

use polylet_model::Manifest;
use polylet_wire::common::v1::PodRef;
use polylet_wire::podconfig::v1::{Pod, PodSource};
use serde_json::{Value, json};

use crate::node::config::{self, NODE};
use crate::rng::Rng;
use crate::world::World;

/// A pod as its source has it.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Where it comes from.
    pub source: PodSource,
    /// The whole manifest.
    pub json: Value,
    /// The same, read.
    pub manifest: Manifest,
}

impl Wish {
    fn of(source: PodSource, json: Value) -> Option<Self> {
        let raw = serde_json::to_vec(&json).ok()?;
        let manifest = Manifest::from_json(&raw).ok()?;
        Some(Wish {
            source,
            json,
            manifest,
        })
    }

    /// The pod's uid.
    pub fn uid(&self) -> &str {
        self.manifest.uid().as_str()
    }

    /// Where its manifest is, if it is a static pod's.
    pub fn path(&self) -> String {
        format!("/manifests/{}.json", self.uid())
    }

    /// As pod-config serves it, of the API server.
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

    /// The same pod with another image in one container, as an API server may change it.
    pub fn with_other_image(&self, rng: &mut Rng) -> Option<Self> {
        let mut json = self.json.clone();
        let containers = json["spec"]["containers"].as_array_mut()?;
        let at = rng.below(containers.len());
        containers.get_mut(at)?["image"] = json!(image(rng));
        Self::of(self.source, json)
    }

    /// The same pod, asked to go.
    pub fn deleting(&self, at: jiff::Timestamp, rng: &mut Rng) -> Option<Self> {
        let mut json = self.json.clone();
        json["metadata"]["deletionTimestamp"] = json!(format!("{at:.0}"));
        json["metadata"]["deletionGracePeriodSeconds"] = json!(rng.between(0, 4));
        Self::of(self.source, json)
    }

    /// Whether it was asked to go.
    pub fn is_deleting(&self) -> bool {
        self.manifest.deletion_timestamp().is_some()
    }
}

/// How many images there are.
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

/// A pod of this name and uid.
pub fn random(
    source: PodSource,
    name: &str,
    uid: &str,
    now: jiff::Timestamp,
    rng: &mut Rng,
) -> Option<Wish> {
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
    if rng.percent(10) {
        spec["activeDeadlineSeconds"] = json!(rng.between(2, 40));
    }
    let file = source == PodSource::File;
    // The node's name comes behind the name of a static pod.
    let name = if file {
        name.strip_suffix(NODE)?.trim_end_matches('-')
    } else {
        name
    };
    let mut json = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {
        "name": name, "namespace": "default", "uid": uid}});
    if !file {
        json["metadata"]["annotations"] = json!({"kubernetes.io/config.source": "api"});
        return Wish::of(source, json);
    }
    let bytes = serde_json::to_vec(&json).ok()?;
    let content = config::accepted(uid, &bytes, &|_| None, now);
    let item = content.pods.first()?;
    Some(Wish {
        source,
        manifest: Manifest::from_json(item.manifest.as_bytes()).ok()?,
        json,
    })
}

/// A static pod's manifest is written.
pub fn write(world: &mut World, wish: &Wish) {
    if wish.source == PodSource::File
        && let Ok(bytes) = serde_json::to_vec(&wish.json)
    {
        world.disk.files.insert(wish.path(), bytes);
    }
}

/// Some manifest loses its end, or all are whole again.
pub fn spoil(world: &mut World) {
    if world.rng.percent(30) {
        return mend(world);
    }
    let paths: Vec<String> = world.disk.files.keys().cloned().collect();
    let path = world.rng.pick(&paths).cloned();
    if let Some(bytes) = path
        .as_ref()
        .and_then(|path| world.disk.files.get_mut(path))
    {
        bytes.truncate(bytes.len() / 2);
        world.say(|| format!("file {path:?} is broken"));
    }
}

/// All manifests are whole.
pub fn mend(world: &mut World) {
    let wishes: Vec<Wish> = world.truth.wishes.values().cloned().collect();
    wishes.iter().for_each(|wish| write(world, wish));
}
