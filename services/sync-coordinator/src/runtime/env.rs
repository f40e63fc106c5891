//! Environment of a container: values, fields, resources, ConfigMaps and Secrets.

use k8s_openapi::api::core::v1::{
    Container, EnvFromSource, EnvVarSource, ObjectFieldSelector, ResourceFieldSelector,
};
use polylet_model::constants::reason;
use polylet_model::env::{Environment, EnvironmentTooLarge, is_valid_name};
use polylet_model::node::EPHEMERAL_STORAGE;
use polylet_model::quantity::{self, Amount};
use polylet_model::{Manifest, resources, status};

use super::env_file::EnvFiles;
use super::env_objects::{EnvObjectKind, ObjectReader, PodObjects};
use super::{RuntimeManager, StepContext, config_error, failure};
use crate::core::step::StepFailure;
use crate::core::volume_state::ObservedVolume;

/// Facts that variables refer to beside the manifest.
pub struct EnvFacts<'a> {
    /// The pod's IP addresses, in the order of the runtime.
    pub pod_ips: &'a [String],
    /// The node's IP addresses, one per family.
    pub host_ips: &'a [String],
    /// The state of the pod's volumes.
    pub volumes: &'a [ObservedVolume],
}

/// The variables of a container in this sandbox, after those of its prepared devices.
pub async fn environment(
    manager: &RuntimeManager,
    context: &StepContext,
    manifest: &Manifest,
    spec: &Container,
    sandbox_id: &str,
) -> Result<Environment, StepFailure> {
    let sandbox = context.sandbox(sandbox_id);
    let host_ips = match &*context.host_ips {
        // The node object does not exist yet, or the node is standalone.
        [] => polylet_kit::address::node_address(manager.ctx.config())
            .map(|ip| ip.to_string())
            .into_iter()
            .collect(),
        reported => reported.to_vec(),
    };
    let facts = EnvFacts {
        pod_ips: sandbox.map_or(&[][..], |sandbox| &sandbox.ips[..]),
        host_ips: &host_ips,
        volumes: &context.volumes,
    };
    let mut env = container_env(manager, manifest, spec, &facts).await?;
    if let Some(devices) = &context.prepared_devices {
        env.prepend(&devices.envs)
            .map_err(|error| environment_too_large(spec, &error))?;
    }
    Ok(env)
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
    let mut sources = ValueSources {
        manager,
        manifest,
        objects: ObjectReader::new(manager, manifest, container),
        files: EnvFiles::default(),
        container,
        facts,
    };
    let too_large = |error| environment_too_large(container, &error);
    for source in container.env_from.iter().flatten() {
        from_object(&mut sources, source, &mut env).await?;
    }
    for var in container.env.iter().flatten() {
        let set = match (&var.value, &var.value_from) {
            (Some(value), _) if !value.is_empty() => env.set_expanded(&var.name, value),
            (_, Some(source)) => match sources.value(source).await? {
                Some(value) => env.set(&var.name, &value),
                // A missing optional reference sets no variable.
                None => continue,
            },
            _ => env.set(&var.name, b""),
        };
        set.map_err(too_large)?;
    }
    env.add_fallback().map_err(too_large)?;
    Ok(env)
}

/// Expands the command or the arguments. They are text in the CRI: one with a value that is not fails
/// as in the kubelet, whose call cannot be encoded.
pub fn expand_arguments(
    container: &Container,
    field: &str,
    args: &Option<Vec<String>>,
    env: &mut Environment,
) -> Result<Vec<String>, StepFailure> {
    let expanded = args.iter().flatten().enumerate().map(|(index, arg)| {
        let expanded = env
            .expand_argument(arg, || format!("{field}[{index}]"))
            .map_err(|error| environment_too_large(container, &error))?;
        String::from_utf8(expanded).map_err(|_| {
            let message = "grpc: error while marshaling: string field contains invalid UTF-8";
            failure(reason::CREATE_CONTAINER_ERROR, message)
        })
    });
    expanded.collect()
}

/// The failure of a container whose variables, command and arguments are too large.
fn environment_too_large(container: &Container, error: &EnvironmentTooLarge) -> StepFailure {
    config_error(format!("container {:?}: {error}", container.name))
}

async fn from_object(
    sources: &mut ValueSources<'_>,
    source: &EnvFromSource,
    env: &mut Environment,
) -> Result<(), StepFailure> {
    let (container, objects) = (sources.container, &mut sources.objects);
    let prefix = source.prefix.as_deref().unwrap_or_default();
    let data = if let Some(from) = &source.config_map_ref {
        objects
            .data(
                EnvObjectKind::ConfigMap,
                &from.name,
                from.optional == Some(true),
            )
            .await?
    } else if let Some(from) = &source.secret_ref {
        objects
            .data(
                EnvObjectKind::Secret,
                &from.name,
                from.optional == Some(true),
            )
            .await?
    } else {
        None
    };
    for (key, value) in data.iter().flat_map(|data| data.iter()) {
        let name = format!("{prefix}{key}");
        if is_valid_name(&name) {
            env.set(&name, value)
                .map_err(|error| environment_too_large(container, &error))?;
        }
    }
    Ok(())
}

/// What variables with `valueFrom` refer to.
struct ValueSources<'a> {
    manager: &'a RuntimeManager,
    manifest: &'a Manifest,
    objects: ObjectReader<'a, PodObjects<'a>>,
    files: EnvFiles,
    container: &'a Container,
    facts: &'a EnvFacts<'a>,
}

impl ValueSources<'_> {
    /// `None` when an optional reference is missing.
    async fn value(&mut self, source: &EnvVarSource) -> Result<Option<Vec<u8>>, StepFailure> {
        let (manager, manifest) = (self.manager, self.manifest);
        let text = |text: Result<String, StepFailure>| text.map(|text| Some(text.into_bytes()));
        if let Some(selector) = &source.field_ref {
            return text(field(manager, manifest, selector, self.facts));
        }
        if let Some(selector) = &source.resource_field_ref {
            return text(resource(manager, manifest, self.container, selector));
        }
        if let Some(from) = &source.config_map_key_ref {
            let optional = from.optional == Some(true);
            let key = self
                .objects
                .key(EnvObjectKind::ConfigMap, &from.name, &from.key, optional);
            return key.await;
        }
        if let Some(from) = &source.secret_key_ref {
            let optional = from.optional == Some(true);
            let key = self
                .objects
                .key(EnvObjectKind::Secret, &from.name, &from.key, optional);
            return key.await;
        }
        if let Some(file) = &source.file_key_ref {
            return self.files.value(self.facts.volumes, file);
        }
        Err(config_error(
            "unsupported source of an environment variable",
        ))
    }
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
    let pod_ips = || status::sorted_pod_ips(facts.pod_ips, facts.host_ips);
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
        "status.podIP" => pod_ips().first().cloned().unwrap_or_default(),
        "status.podIPs" => pod_ips().join(","),
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
