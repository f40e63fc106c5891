//! Environment of a container: values, fields, resources, ConfigMaps and Secrets.

use std::collections::BTreeMap;
use std::rc::Rc;

use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvFromSource, EnvVarSource, ObjectFieldSelector, ResourceFieldSelector,
    Secret,
};
use polylet_model::constants::reason;
use polylet_model::env::{Environment, is_valid_name};
use polylet_model::node::EPHEMERAL_STORAGE;
use polylet_model::quantity::{self, Amount};
use polylet_model::{Manifest, resources};
use serde::de::DeserializeOwned;

use super::{RuntimeManager, failure, objects};
use crate::core::step::{MissingObject, StepFailure};
use crate::core::volume_state::ObservedVolume;

/// Facts that variables refer to beside the manifest.
pub struct EnvFacts<'a> {
    /// The pod's IP addresses.
    pub pod_ips: &'a [String],
    /// The node's IP addresses, one per family.
    pub host_ips: &'a [String],
    /// The state of the pod's volumes.
    pub volumes: &'a [ObservedVolume],
}

fn config_error(message: impl Into<String>) -> StepFailure {
    failure(reason::CREATE_CONTAINER_CONFIG_ERROR, message)
}

/// The environment of a container.
pub async fn container_env(
    manager: &RuntimeManager,
    manifest: &Manifest,
    container: &Container,
    facts: &EnvFacts<'_>,
) -> Result<Environment, StepFailure> {
    let services = manager
        .services
        .variables(manifest)
        .await
        .map_err(config_error)?;
    let mut env = Environment::with_fallback(services);
    let mut objects = ObjectReader {
        manager,
        manifest,
        read: BTreeMap::new(),
    };
    for source in container.env_from.iter().flatten() {
        from_object(&mut objects, source, &mut env).await?;
    }
    for var in container.env.iter().flatten() {
        let value = match (&var.value, &var.value_from) {
            (Some(value), _) if !value.is_empty() => Some(env.expand(value)),
            (_, Some(source)) => {
                value_from(&mut objects, manifest, container, source, facts).await?
            }
            _ => Some(String::new()),
        };
        // A missing optional reference sets no variable.
        if let Some(value) = value {
            env.set(var.name.as_str(), value);
        }
    }
    env.add_fallback();
    Ok(env)
}

async fn from_object(
    objects: &mut ObjectReader<'_>,
    source: &EnvFromSource,
    env: &mut Environment,
) -> Result<(), StepFailure> {
    let prefix = source.prefix.as_deref().unwrap_or_default();
    let data = if let Some(from) = &source.config_map_ref {
        objects
            .data(Kind::ConfigMap, &from.name, from.optional == Some(true))
            .await?
    } else if let Some(from) = &source.secret_ref {
        objects
            .data(Kind::Secret, &from.name, from.optional == Some(true))
            .await?
    } else {
        None
    };
    for (key, value) in data.iter().flat_map(|data| data.iter()) {
        let name = format!("{prefix}{key}");
        if is_valid_name(&name) {
            env.set(name, value.as_str());
        }
    }
    Ok(())
}

async fn value_from(
    objects: &mut ObjectReader<'_>,
    manifest: &Manifest,
    container: &Container,
    source: &EnvVarSource,
    facts: &EnvFacts<'_>,
) -> Result<Option<String>, StepFailure> {
    if let Some(field) = &source.field_ref {
        return self::field(objects.manager, manifest, field, facts).map(Some);
    }
    if let Some(selector) = &source.resource_field_ref {
        return resource(objects.manager, manifest, container, selector).map(Some);
    }
    if let Some(from) = &source.config_map_key_ref {
        return objects
            .key(
                Kind::ConfigMap,
                &from.name,
                &from.key,
                from.optional == Some(true),
            )
            .await;
    }
    if let Some(from) = &source.secret_key_ref {
        return objects
            .key(
                Kind::Secret,
                &from.name,
                &from.key,
                from.optional == Some(true),
            )
            .await;
    }
    if let Some(file) = &source.file_key_ref {
        return super::env_file::file_key_value(facts.volumes, file);
    }
    Err(config_error(
        "unsupported source of an environment variable",
    ))
}

/// The value of a pod field.
fn field(
    manager: &RuntimeManager,
    manifest: &Manifest,
    selector: &ObjectFieldSelector,
    facts: &EnvFacts<'_>,
) -> Result<String, StepFailure> {
    let metadata = manifest.metadata();
    let path = selector.field_path.as_str();
    if let Some((map, key)) = subscript(path) {
        let values = match map {
            "metadata.labels" => metadata.labels.as_ref(),
            "metadata.annotations" => metadata.annotations.as_ref(),
            _ => return Err(config_error(format!("unsupported fieldPath: {path}"))),
        };
        return Ok(values.and_then(|v| v.get(key)).cloned().unwrap_or_default());
    }
    let host = || facts.host_ips.first().cloned().unwrap_or_default();
    Ok(match path {
        "metadata.name" => manifest.name().to_owned(),
        "metadata.namespace" => manifest.namespace().to_owned(),
        "metadata.uid" => manifest.uid().to_string(),
        "spec.nodeName" => manager.ctx.node_name().to_owned(),
        "spec.serviceAccountName" => manifest
            .spec()
            .service_account_name
            .clone()
            .unwrap_or_default(),
        "status.hostIP" => host(),
        "status.hostIPs" => facts.host_ips.join(","),
        "status.podIP" if manifest.host_network() => host(),
        "status.podIPs" if manifest.host_network() => facts.host_ips.join(","),
        "status.podIP" => facts.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => facts.pod_ips.join(","),
        _ => return Err(config_error(format!("unsupported fieldPath: {path}"))),
    })
}

/// Splits `metadata.labels['key']` into map and key.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once("['")?;
    Some((map, rest.strip_suffix("']")?))
}

/// A request or limit of a container, in units of a divisor, rounded up.
fn resource(
    manager: &RuntimeManager,
    manifest: &Manifest,
    own: &Container,
    selector: &ResourceFieldSelector,
) -> Result<String, StepFailure> {
    let container = match selector
        .container_name
        .as_deref()
        .filter(|name| !name.is_empty())
    {
        None => own,
        Some(name) => manifest
            .container(name)
            .map(|(_, c)| c)
            .ok_or_else(|| config_error(format!("container {name} not found")))?,
    };
    let unsupported = || {
        config_error(format!(
            "unsupported container resource : {}",
            selector.resource
        ))
    };
    let (list, name) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let known = ["cpu", "memory", EPHEMERAL_STORAGE].contains(&name);
    if !known && !resources::is_huge_pages(name) {
        return Err(unsupported());
    }
    // Without a limit, the pod's limit or the node's allocatable resources apply.
    let node = |name: &str| {
        let allocatable = manager.allocatable.get(name).copied().unwrap_or(0);
        match name {
            "cpu" => Amount::from_millis(allocatable),
            _ if known => Amount::from_units(allocatable),
            _ => Amount::ZERO,
        }
    };
    let of_pod = || resources::pod_level_limit(manifest.spec(), name).filter(|l| !l.is_zero());
    let amount = match list {
        "limits" => resources::limit(container, name)
            .filter(|limit| !limit.is_zero())
            .or_else(of_pod)
            .unwrap_or_else(|| node(name)),
        "requests" => resources::request(container, name).unwrap_or_default(),
        _ => return Err(unsupported()),
    };
    let divisor = selector
        .divisor
        .as_ref()
        .and_then(|d| Amount::parse(&d.0).ok());
    let divisor = divisor
        .filter(|d| d.is_positive())
        .map_or(1_000_000_000, quantity::Amount::nanos);
    // Rounded up, as by the kubelet.
    Ok(((amount.nanos() + divisor - 1) / divisor).to_string())
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    ConfigMap,
    Secret,
}

impl Kind {
    fn api(self) -> &'static str {
        match self {
            Kind::ConfigMap => "ConfigMap",
            Kind::Secret => "Secret",
        }
    }

    fn resource(self) -> &'static str {
        match self {
            Kind::ConfigMap => "configmap",
            Kind::Secret => "secret",
        }
    }
}

type Data = BTreeMap<String, String>;

/// Objects that one container refers to, each requested once.
struct ObjectReader<'a> {
    manager: &'a RuntimeManager,
    manifest: &'a Manifest,
    read: BTreeMap<(Kind, String), Option<Rc<Data>>>,
}

impl ObjectReader<'_> {
    async fn key(
        &mut self,
        kind: Kind,
        name: &str,
        key: &str,
        optional: bool,
    ) -> Result<Option<String>, StepFailure> {
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

    async fn data(
        &mut self,
        kind: Kind,
        name: &str,
        optional: bool,
    ) -> Result<Option<Rc<Data>>, StepFailure> {
        let at = (kind, name.to_owned());
        if !self.read.contains_key(&at) {
            let data = self.fetch(kind, name).await?;
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

    async fn fetch(&self, kind: Kind, name: &str) -> Result<Option<Data>, StepFailure> {
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
            Kind::ConfigMap => {
                parse::<ConfigMap>(&json).map(|map| Some(map.data.unwrap_or_default()))
            }
            Kind::Secret => parse::<Secret>(&json).map(|secret| Some(decode(secret))),
        }
        .map_err(|error| failed(&error.to_string()))
    }

    /// The failure for a missing object or key, which is then watched.
    fn missing(&self, kind: Kind, name: &str, exists: bool, message: String) -> StepFailure {
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

fn decode(secret: Secret) -> Data {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    secret
        .data
        .into_iter()
        .flatten()
        .map(|(key, value)| (key, text(value.0)))
        .collect()
}
