//! ConfigMaps and Secrets that environment variables refer to.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Secret};
use polylet_model::Manifest;
use serde::de::DeserializeOwned;
use tonic::Status;

use super::config_error;
use super::{RuntimeManager, objects};
use crate::core::step::{MissingObject, StepFailure};

/// The most bytes that are kept for the variables of one container. Only values of objects that are referred
/// to again are kept: beyond this most of them would replace each other, as no process can have so many.
const MAX_KEPT_BYTES: usize = 16 << 20;

/// A kind of object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EnvObjectKind {
    /// `v1.ConfigMap`.
    ConfigMap,
    /// `v1.Secret`.
    Secret,
}

impl EnvObjectKind {
    fn api(self) -> &'static str {
        match self {
            EnvObjectKind::ConfigMap => "ConfigMap",
            EnvObjectKind::Secret => "Secret",
        }
    }

    fn resource(self) -> &'static str {
        match self {
            EnvObjectKind::ConfigMap => "configmap",
            EnvObjectKind::Secret => "secret",
        }
    }
}

/// Values as bytes, which those of Secrets are.
pub type ObjectValues = BTreeMap<String, Vec<u8>>;

/// The objects of a pod, as JSON.
pub trait EnvObjectSource {
    /// An object, if it exists.
    fn get(
        &self,
        kind: EnvObjectKind,
        name: &str,
    ) -> impl Future<Output = Result<Option<Bytes>, Status>>;
}

/// The objects of a pod at pod-config.
pub struct PodObjects<'a> {
    /// The clients.
    pub manager: &'a RuntimeManager,
    /// The pod.
    pub manifest: &'a Manifest,
}

impl EnvObjectSource for PodObjects<'_> {
    async fn get(&self, kind: EnvObjectKind, name: &str) -> Result<Option<Bytes>, Status> {
        let (manager, manifest) = (self.manager, self.manifest);
        objects::get(manager, manifest, kind.api(), manifest.namespace(), name).await
    }
}

/// The references of a container to one object.
#[derive(Default)]
struct References {
    /// Those that have not been looked up yet.
    pending: usize,
    /// Whether one is to all values.
    all: bool,
    keys: BTreeSet<String>,
}

impl References {
    fn add(&mut self, key: Option<&str>) {
        self.pending += 1;
        match key {
            Some(key) => drop(self.keys.insert(key.to_owned())),
            None => self.all = true,
        }
    }
}

/// The references of a container to objects.
fn references(container: &Container) -> BTreeMap<(EnvObjectKind, String), References> {
    use EnvObjectKind::{ConfigMap, Secret};
    let mut references = BTreeMap::<_, References>::new();
    let mut add = |kind, name: &str, key: Option<&str>| {
        references
            .entry((kind, name.to_owned()))
            .or_default()
            .add(key);
    };
    for source in container.env_from.iter().flatten() {
        if let Some(from) = &source.config_map_ref {
            add(ConfigMap, &from.name, None);
        }
        if let Some(from) = &source.secret_ref {
            add(Secret, &from.name, None);
        }
    }
    let variables = container.env.iter().flatten();
    for source in variables.filter_map(|variable| variable.value_from.as_ref()) {
        if let Some(from) = &source.config_map_key_ref {
            add(ConfigMap, &from.name, Some(&from.key));
        }
        if let Some(from) = &source.secret_key_ref {
            add(Secret, &from.name, Some(&from.key));
        }
    }
    references
}

/// Reads the objects that one container refers to, each once, though a small manifest can refer to many
/// large ones in turns: of each it keeps the values that the container names, until the last reference.
pub struct ObjectReader<'a, S> {
    source: S,
    manifest: &'a Manifest,
    references: BTreeMap<(EnvObjectKind, String), References>,
    read: BTreeMap<(EnvObjectKind, String), Option<Rc<ObjectValues>>>,
    kept_bytes: usize,
}

impl<'a> ObjectReader<'a, PodObjects<'a>> {
    /// Reads objects for a container of a pod.
    pub fn new(manager: &'a RuntimeManager, manifest: &'a Manifest, container: &Container) -> Self {
        Self::with_source(PodObjects { manager, manifest }, manifest, container)
    }
}

impl<'a, S: EnvObjectSource> ObjectReader<'a, S> {
    fn with_source(source: S, manifest: &'a Manifest, container: &Container) -> Self {
        ObjectReader {
            source,
            manifest,
            references: references(container),
            read: BTreeMap::new(),
            kept_bytes: 0,
        }
    }

    /// The value of a key; `None` if it is optional and missing.
    pub async fn key(
        &mut self,
        kind: EnvObjectKind,
        name: &str,
        key: &str,
        optional: bool,
    ) -> Result<Option<Vec<u8>>, StepFailure> {
        let Some(data) = self.data(kind, name, optional).await? else {
            return Ok(None);
        };
        match data.get(key) {
            Some(value) => Ok(Some(value.clone())),
            None if optional => Ok(None),
            None => {
                let (kind_name, namespace) = (kind.api(), self.manifest.namespace());
                let message = format!("couldn't find key {key} in {kind_name} {namespace}/{name}");
                Err(self.missing(kind, name, true, message))
            }
        }
    }

    /// The values of an object that the container names; `None` if it is optional and missing.
    pub async fn data(
        &mut self,
        kind: EnvObjectKind,
        name: &str,
        optional: bool,
    ) -> Result<Option<Rc<ObjectValues>>, StepFailure> {
        let at = (kind, name.to_owned());
        let kept = self.read.remove(&at);
        let data = match &kept {
            Some(data) => data.clone(),
            None => self
                .fetch(kind, name)
                .await?
                .map(|data| self.named(&at, data)),
        };
        let bytes = data.as_deref().map_or(0, size);
        let references = self.references.entry(at.clone()).or_default();
        references.pending = references.pending.saturating_sub(1);
        match (kept.is_some(), references.pending > 0) {
            (true, false) => self.kept_bytes = self.kept_bytes.saturating_sub(bytes),
            (false, true) => self.kept_bytes = self.kept_bytes.saturating_add(bytes),
            _ => {}
        }
        if self.kept_bytes > MAX_KEPT_BYTES {
            return Err(config_error(
                "the container's variables refer to more than 16 MiB of ConfigMaps and Secrets in turns",
            ));
        }
        if references.pending > 0 {
            self.read.insert(at, data.clone());
        }
        match data {
            Some(data) => Ok(Some(data)),
            None if optional => Ok(None),
            None => {
                let message = format!("{} \"{name}\" not found", kind.resource());
                Err(self.missing(kind, name, false, message))
            }
        }
    }

    /// The values of an object that the container names.
    fn named(&self, at: &(EnvObjectKind, String), mut data: ObjectValues) -> Rc<ObjectValues> {
        if let Some(references) = self.references.get(at).filter(|r| !r.all) {
            data.retain(|key, _| references.keys.contains(key));
        }
        Rc::new(data)
    }

    async fn fetch(
        &self,
        kind: EnvObjectKind,
        name: &str,
    ) -> Result<Option<ObjectValues>, StepFailure> {
        let response = self.source.get(kind, name).await;
        let failed = |error: &str| {
            config_error(format!(
                "failed to get {} \"{name}\": {error}",
                kind.resource()
            ))
        };
        let Some(json) = response.map_err(|status| failed(status.message()))? else {
            return Ok(None);
        };
        match kind {
            EnvObjectKind::ConfigMap => parse::<ConfigMap>(&json).map(config_map_data),
            EnvObjectKind::Secret => parse::<Secret>(&json).map(secret_data),
        }
        .map(Some)
        .map_err(|error| failed(&error.to_string()))
    }

    /// The failure for a missing object or key, which is then watched.
    fn missing(
        &self,
        kind: EnvObjectKind,
        name: &str,
        exists: bool,
        message: String,
    ) -> StepFailure {
        StepFailure {
            missing: Some(Box::new(MissingObject {
                kind: kind.api(),
                namespace: self.manifest.namespace().to_owned(),
                name: name.to_owned(),
                from_api_server: !self.manifest.is_static(),
                exists,
            })),
            ..config_error(message)
        }
    }
}

fn size(values: &ObjectValues) -> usize {
    let sizes = values.iter().map(|(key, value)| key.len() + value.len());
    sizes.sum()
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(json)
}

fn config_map_data(map: ConfigMap) -> ObjectValues {
    let data = map.data.into_iter().flatten();
    data.map(|(key, value)| (key, value.into_bytes())).collect()
}

fn secret_data(secret: Secret) -> ObjectValues {
    let data = secret.data.into_iter().flatten();
    data.map(|(key, value)| (key, value.0)).collect()
}

#[cfg(test)]
mod tests;
