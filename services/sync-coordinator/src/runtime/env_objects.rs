//! ConfigMaps and Secrets that environment variables refer to.

use std::collections::BTreeMap;
use std::rc::Rc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use polylet_model::Manifest;
use serde::de::DeserializeOwned;

use super::config_error;
use super::{RuntimeManager, objects};
use crate::core::step::{MissingObject, StepFailure};

/// The most bytes of objects that are kept for the variables of one container.
const MAX_OBJECT_BYTES: usize = 16 << 20;

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

/// Objects that one container refers to, each requested once while all fit into
/// [`MAX_OBJECT_BYTES`].
pub struct ObjectReader<'a> {
    /// The clients.
    pub manager: &'a RuntimeManager,
    /// The pod.
    pub manifest: &'a Manifest,
    read: BTreeMap<(EnvObjectKind, String), Option<Rc<ObjectValues>>>,
    read_bytes: usize,
}

impl<'a> ObjectReader<'a> {
    /// Reads the objects of a pod.
    pub fn new(manager: &'a RuntimeManager, manifest: &'a Manifest) -> Self {
        ObjectReader {
            manager,
            manifest,
            read: BTreeMap::new(),
            read_bytes: 0,
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

    /// All values of an object; `None` if it is optional and missing.
    pub async fn data(
        &mut self,
        kind: EnvObjectKind,
        name: &str,
        optional: bool,
    ) -> Result<Option<Rc<ObjectValues>>, StepFailure> {
        let at = (kind, name.to_owned());
        if !self.read.contains_key(&at) {
            let data = self.fetch(kind, name).await?;
            let bytes = data
                .iter()
                .flatten()
                .map(|(key, value)| key.len() + value.len());
            self.read_bytes += bytes.sum::<usize>();
            if self.read_bytes > MAX_OBJECT_BYTES {
                self.read.clear();
                self.read_bytes = 0;
            }
            self.read.insert(at.clone(), data.map(Rc::new));
        }
        match self.read.get(&at).cloned().flatten() {
            Some(data) => Ok(Some(data)),
            None if optional => Ok(None),
            None => {
                let message = format!("{} \"{name}\" not found", kind.resource());
                Err(self.missing(kind, name, false, message))
            }
        }
    }

    async fn fetch(
        &self,
        kind: EnvObjectKind,
        name: &str,
    ) -> Result<Option<ObjectValues>, StepFailure> {
        let (manager, manifest) = (self.manager, self.manifest);
        let namespace = manifest.namespace();
        let response = objects::get(manager, manifest, kind.api(), namespace, name).await;
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
