//! A container's environment: values, fields, resources, ConfigMaps and Secrets.

use std::collections::BTreeMap;

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

use super::{Hands, object, said};
use crate::core::learn::{Lacking, Trouble};
use crate::core::view::SeenVolume;

/// What the environment may speak of beside the manifest.
pub struct Facts<'a> {
    /// The pod's addresses.
    pub pod_ips: &'a [String],
    /// The node's addresses, one of each family.
    pub host_ips: &'a [String],
    /// Where the pod's volumes are.
    pub volumes: &'a [SeenVolume],
}

fn wrong(message: impl Into<String>) -> Trouble {
    said(reason::CREATE_CONTAINER_CONFIG_ERROR, message)
}

/// The whole environment of a container.
pub async fn of(
    hands: &Hands,
    manifest: &Manifest,
    container: &Container,
    facts: &Facts<'_>,
) -> Result<Environment, Trouble> {
    let services = hands.services.variables(manifest).await.map_err(wrong)?;
    let mut env = Environment::beside(services);
    let mut objects = Objects {
        hands,
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
        // An optional reference to nothing sets nothing.
        if let Some(value) = value {
            env.set(var.name.as_str(), value);
        }
    }
    env.add_others();
    Ok(env)
}

async fn from_object(
    objects: &mut Objects<'_>,
    source: &EnvFromSource,
    env: &mut Environment,
) -> Result<(), Trouble> {
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
    for (key, value) in data.into_iter().flatten() {
        let name = format!("{prefix}{key}");
        if is_valid_name(&name) {
            env.set(name, value);
        }
    }
    Ok(())
}

async fn value_from(
    objects: &mut Objects<'_>,
    manifest: &Manifest,
    container: &Container,
    source: &EnvVarSource,
    facts: &Facts<'_>,
) -> Result<Option<String>, Trouble> {
    if let Some(field) = &source.field_ref {
        return self::field(objects.hands, manifest, field, facts).map(Some);
    }
    if let Some(wanted) = &source.resource_field_ref {
        return resource(objects.hands, manifest, container, wanted).map(Some);
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
        return super::env_file::value(facts.volumes, file);
    }
    Err(wrong(
        "the variable's source is of a kind that this node does not know",
    ))
}

/// A field of the pod.
fn field(
    hands: &Hands,
    manifest: &Manifest,
    selector: &ObjectFieldSelector,
    facts: &Facts<'_>,
) -> Result<String, Trouble> {
    let metadata = manifest.metadata();
    let path = selector.field_path.as_str();
    if let Some((map, key)) = subscript(path) {
        let values = match map {
            "metadata.labels" => metadata.labels.as_ref(),
            "metadata.annotations" => metadata.annotations.as_ref(),
            _ => return Err(wrong(format!("unsupported fieldPath: {path}"))),
        };
        return Ok(values.and_then(|v| v.get(key)).cloned().unwrap_or_default());
    }
    let host = || facts.host_ips.first().cloned().unwrap_or_default();
    Ok(match path {
        "metadata.name" => manifest.name().to_owned(),
        "metadata.namespace" => manifest.namespace().to_owned(),
        "metadata.uid" => manifest.uid().to_string(),
        "spec.nodeName" => hands.ctx.node_name().to_owned(),
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
        _ => return Err(wrong(format!("unsupported fieldPath: {path}"))),
    })
}

/// `metadata.labels['key']` as its two parts.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once("['")?;
    Some((map, rest.strip_suffix("']")?))
}

/// A request or limit of a container, in units of a divisor, rounded up.
fn resource(
    hands: &Hands,
    manifest: &Manifest,
    own: &Container,
    selector: &ResourceFieldSelector,
) -> Result<String, Trouble> {
    let container = match selector
        .container_name
        .as_deref()
        .filter(|name| !name.is_empty())
    {
        None => own,
        Some(name) => manifest
            .container(name)
            .map(|(_, c)| c)
            .ok_or_else(|| wrong(format!("container {name} not found")))?,
    };
    let unknown = || {
        wrong(format!(
            "unsupported container resource : {}",
            selector.resource
        ))
    };
    let (list, name) = selector.resource.split_once('.').ok_or_else(unknown)?;
    let known = ["cpu", "memory", EPHEMERAL_STORAGE].contains(&name);
    if !known && !resources::is_huge_pages(name) {
        return Err(unknown());
    }
    // A container without a limit may use what its pod may, or else all that pods may.
    let node = |name: &str| {
        let whole = hands.allocatable.get(name).copied().unwrap_or(0);
        match name {
            "cpu" => Amount::from_millis(whole),
            _ if known => Amount::from_units(whole),
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
        _ => return Err(unknown()),
    };
    let divisor = selector
        .divisor
        .as_ref()
        .and_then(|d| Amount::parse(&d.0).ok());
    let divisor = divisor
        .filter(|d| d.is_positive())
        .map_or(1_000_000_000, quantity::Amount::nanos);
    // Rounded up, as upstream does it.
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

    fn plain(self) -> &'static str {
        match self {
            Kind::ConfigMap => "configmap",
            Kind::Secret => "secret",
        }
    }
}

type Data = BTreeMap<String, String>;

/// Objects that one container refers to, each read once.
struct Objects<'a> {
    hands: &'a Hands,
    manifest: &'a Manifest,
    read: BTreeMap<(Kind, String), Option<Data>>,
}

impl Objects<'_> {
    async fn key(
        &mut self,
        kind: Kind,
        name: &str,
        key: &str,
        optional: bool,
    ) -> Result<Option<String>, Trouble> {
        let Some(data) = self.data(kind, name, optional).await? else {
            return Ok(None);
        };
        match data.get(key) {
            Some(value) => Ok(Some(value.clone())),
            None if optional => Ok(None),
            None => {
                let (kind_name, namespace) = (kind.api(), self.manifest.namespace());
                let message = format!("couldn't find key {key} in {kind_name} {namespace}/{name}");
                Err(self.lacks(kind, name, true, message))
            }
        }
    }

    async fn data(
        &mut self,
        kind: Kind,
        name: &str,
        optional: bool,
    ) -> Result<Option<Data>, Trouble> {
        let at = (kind, name.to_owned());
        if !self.read.contains_key(&at) {
            let data = self.fetch(kind, name).await?;
            self.read.insert(at.clone(), data);
        }
        match self.read.get(&at).cloned().flatten() {
            Some(data) => Ok(Some(data)),
            None if optional => Ok(None),
            None => {
                let message = format!("{} \"{name}\" not found", kind.plain());
                Err(self.lacks(kind, name, false, message))
            }
        }
    }

    async fn fetch(&self, kind: Kind, name: &str) -> Result<Option<Data>, Trouble> {
        let (hands, manifest) = (self.hands, self.manifest);
        let namespace = manifest.namespace();
        let answer = object::get(hands, manifest, kind.api(), namespace, name).await;
        let failed =
            |why: &str| wrong(format!("{} \"{name}\" cannot be read: {why}", kind.plain()));
        let Some(json) = answer.map_err(|status| failed(status.message()))? else {
            return Ok(None);
        };
        match kind {
            Kind::ConfigMap => {
                parse::<ConfigMap>(&json).map(|map| Some(map.data.unwrap_or_default()))
            }
            Kind::Secret => parse::<Secret>(&json).map(|secret| Some(texts(secret))),
        }
        .map_err(|error| failed(&error.to_string()))
    }

    /// What is lacking is waited for.
    fn lacks(&self, kind: Kind, name: &str, there: bool, message: String) -> Trouble {
        Trouble {
            lacking: Some(Box::new(Lacking {
                kind: kind.api(),
                namespace: self.manifest.namespace().to_owned(),
                name: name.to_owned(),
                of_cluster: !self.manifest.is_static(),
                there,
            })),
            ..wrong(message)
        }
    }
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(json)
}

fn texts(secret: Secret) -> Data {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    secret
        .data
        .into_iter()
        .flatten()
        .map(|(key, value)| (key, text(value.0)))
        .collect()
}
