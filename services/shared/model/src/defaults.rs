//! The API server's defaults, for static pods.

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, DownwardAPIVolumeFile, EmptyDirVolumeSource, EnvVar, HTTPGetAction,
    Lifecycle, ObjectFieldSelector, Pod, PodSecurityContext, PodSpec, Probe, ResourceRequirements,
    Volume, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;

use crate::constants::DEFAULT_TERMINATION_MESSAGE_PATH;
use crate::image;
use crate::quantity::Amount;

mod pod_level;

/// Sets the defaults that matter to a node. Idempotent.
pub fn apply(pod: &mut Pod) {
    let Some(spec) = pod.spec.as_mut() else {
        return;
    };
    pod_spec(spec);
    for init in spec.init_containers.iter_mut().flatten() {
        container(init);
    }
    for regular in &mut spec.containers {
        container(regular);
    }
    for ephemeral in spec.ephemeral_containers.iter_mut().flatten() {
        // The fields of a container under another type.
        let mut common = crate::pod::as_container(ephemeral);
        container(&mut common);
        ephemeral.image_pull_policy = common.image_pull_policy;
        ephemeral.termination_message_path = common.termination_message_path;
        ephemeral.termination_message_policy = common.termination_message_policy;
        ephemeral.env = common.env;
        ephemeral.ports = common.ports;
        ephemeral.resources = common.resources;
    }
    for volume in spec.volumes.iter_mut().flatten() {
        default_volume(volume);
    }
    let containers = spec
        .containers
        .iter_mut()
        .chain(spec.init_containers.iter_mut().flatten());
    for container in containers {
        requests_from_limits(&mut container.resources);
    }
    pod_level::apply(spec);
    if spec.host_network == Some(true) {
        host_ports(spec);
    }
}

/// The same for a pod in its JSON form: only missing fields are added, so that fields of a later API
/// version stay.
pub fn apply_to_json(pod: &mut Value) -> Result<(), serde_json::Error> {
    let mut parsed: Pod = serde_json::from_value(pod.clone())?;
    apply(&mut parsed);
    add_missing(pod, serde_json::to_value(&parsed)?);
    Ok(())
}

fn add_missing(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                match into.get_mut(&key) {
                    // The API treats null and the empty string as unset.
                    Some(known) if known.is_null() || known.as_str() == Some("") => *known = value,
                    // Quantities may be written as numbers; the API stores them as text.
                    Some(known) if known.is_number() && value.is_string() => *known = value,
                    // Zero means unset where a number has a default.
                    Some(known) if known.as_i64() == Some(0) && value.is_number() => *known = value,
                    Some(known) => add_missing(known, value),
                    None => {
                        into.insert(key, value);
                    }
                }
            }
        }
        (Value::Array(into), Value::Array(from)) => {
            for (known, value) in into.iter_mut().zip(from) {
                add_missing(known, value);
            }
        }
        _ => {}
    }
}

fn default_string(field: &mut Option<String>, default: &str) {
    if field.as_deref().is_none_or(str::is_empty) {
        *field = Some(default.to_owned());
    }
}

fn default_number(field: &mut Option<i32>, default: i32) {
    if field.is_none_or(|value| value == 0) {
        *field = Some(default);
    }
}

fn pod_spec(spec: &mut PodSpec) {
    default_string(&mut spec.dns_policy, "ClusterFirst");
    default_string(&mut spec.restart_policy, "Always");
    default_string(&mut spec.scheduler_name, "default-scheduler");
    spec.security_context
        .get_or_insert_with(PodSecurityContext::default);
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.enable_service_links.get_or_insert(true);
    if let Some(overhead) = spec.overhead.as_mut() {
        overhead.values_mut().for_each(round);
    }
}

fn container(container: &mut Container) {
    let policy = image::default_pull_policy(container.image.as_deref().unwrap_or_default());
    default_string(&mut container.image_pull_policy, policy);
    default_string(
        &mut container.termination_message_path,
        DEFAULT_TERMINATION_MESSAGE_PATH,
    );
    default_string(&mut container.termination_message_policy, "File");
    for port in container.ports.iter_mut().flatten() {
        default_string(&mut port.protocol, "TCP");
    }
    for env in container.env.iter_mut().flatten() {
        env_var(env);
    }
    for one in [
        &mut container.liveness_probe,
        &mut container.readiness_probe,
        &mut container.startup_probe,
    ] {
        one.iter_mut().for_each(probe);
    }
    container.lifecycle.iter_mut().for_each(lifecycle);
    if let Some(resources) = container.resources.as_mut() {
        round_up(resources);
    }
}

fn probe(probe: &mut Probe) {
    default_number(&mut probe.timeout_seconds, 1);
    default_number(&mut probe.period_seconds, 10);
    default_number(&mut probe.success_threshold, 1);
    default_number(&mut probe.failure_threshold, 3);
    probe.http_get.iter_mut().for_each(http_get);
    if let Some(grpc) = probe.grpc.as_mut() {
        grpc.service.get_or_insert_default();
    }
}

fn lifecycle(lifecycle: &mut Lifecycle) {
    for hook in [&mut lifecycle.post_start, &mut lifecycle.pre_stop]
        .into_iter()
        .flatten()
    {
        hook.http_get.iter_mut().for_each(http_get);
    }
}

fn http_get(http: &mut HTTPGetAction) {
    default_string(&mut http.path, "/");
    default_string(&mut http.scheme, "HTTP");
}

fn env_var(env: &mut EnvVar) {
    if let Some(from) = env.value_from.as_mut() {
        from.field_ref.iter_mut().for_each(field_ref);
    }
}

fn field_ref(field: &mut ObjectFieldSelector) {
    default_string(&mut field.api_version, "v1");
}

fn default_volume(volume: &mut Volume) {
    const MODE: i32 = 0o644;
    if has_no_source(volume) {
        volume.empty_dir = Some(EmptyDirVolumeSource::default());
    }
    if let Some(config_map) = volume.config_map.as_mut() {
        config_map.default_mode.get_or_insert(MODE);
    }
    if let Some(secret) = volume.secret.as_mut() {
        secret.default_mode.get_or_insert(MODE);
    }
    if let Some(downward) = volume.downward_api.as_mut() {
        downward.default_mode.get_or_insert(MODE);
        downward.items.iter_mut().flatten().for_each(downward_file);
    }
    if let Some(projected) = volume.projected.as_mut() {
        projected.default_mode.get_or_insert(MODE);
        projected.sources.iter_mut().flatten().for_each(projection);
    }
    if let Some(host_path) = volume.host_path.as_mut() {
        host_path.type_.get_or_insert_default();
    }
    if let Some(image) = volume.image.as_mut() {
        let policy = image::default_pull_policy(image.reference.as_deref().unwrap_or_default());
        default_string(&mut image.pull_policy, policy);
    }
    if let Some(iscsi) = volume.iscsi.as_mut() {
        default_string(&mut iscsi.iscsi_interface, "default");
    }
}

fn projection(source: &mut VolumeProjection) {
    if let Some(token) = source.service_account_token.as_mut() {
        token.expiration_seconds.get_or_insert(3600);
    }
    if let Some(downward) = source.downward_api.as_mut() {
        downward.items.iter_mut().flatten().for_each(downward_file);
    }
}

fn downward_file(file: &mut DownwardAPIVolumeFile) {
    file.field_ref.iter_mut().for_each(field_ref);
}

/// A volume with nothing but a name is an emptyDir.
fn has_no_source(volume: &Volume) -> bool {
    *volume
        == Volume {
            name: volume.name.clone(),
            ..Volume::default()
        }
}

fn round_up(resources: &mut ResourceRequirements) {
    for list in [resources.requests.as_mut(), resources.limits.as_mut()]
        .into_iter()
        .flatten()
    {
        list.values_mut().for_each(round);
    }
}

/// The API rounds quantities up to thousandths.
fn round(quantity: &mut Quantity) {
    if let Ok(amount) = Amount::parse(&quantity.0)
        && amount != amount.round_to_millis()
    {
        quantity.0 = amount.round_to_millis().to_decimal();
    }
}

fn requests_from_limits(resources: &mut Option<ResourceRequirements>) {
    let Some(resources) = resources else { return };
    let Some(limits) = resources.limits.clone() else {
        return;
    };
    let requests = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

fn host_ports(spec: &mut PodSpec) {
    let containers = spec
        .containers
        .iter_mut()
        .chain(spec.init_containers.iter_mut().flatten());
    for ContainerPort {
        container_port,
        host_port,
        ..
    } in containers.flat_map(|c| c.ports.iter_mut().flatten())
    {
        default_number(host_port, *container_port);
    }
}

#[cfg(test)]
mod tests;
