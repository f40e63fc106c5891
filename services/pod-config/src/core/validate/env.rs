//! Environment of a container.

use k8s_openapi::api::core::v1::{Container, EnvVarSource, ResourceFieldSelector};

use super::super::decode::quoted;
use super::{Findings, names};

const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const VOLUME_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

pub(super) fn check(out: &mut Findings, path: &str, container: &Container) {
    for (i, var) in container.env.iter().flatten().enumerate() {
        let path = format!("{path}.env[{i}]");
        out.name(format!("{path}.name"), &var.name, names::env);
        if let Some(from) = &var.value_from {
            if var.value.as_ref().is_some_and(|v| !v.is_empty()) {
                out.add(
                    format!("{path}.valueFrom"),
                    "cannot be set together with value",
                );
            }
            value_from(out, &format!("{path}.valueFrom"), from);
        }
    }
    for (i, from) in container.env_from.iter().flatten().enumerate() {
        let path = format!("{path}.envFrom[{i}]");
        let (map, secret) = (&from.config_map_ref, &from.secret_ref);
        out.exactly_one(
            &path,
            "source",
            &[
                ("configMapRef", map.is_some()),
                ("secretRef", secret.is_some()),
            ],
        );
        out.form(format!("{path}.prefix"), from.prefix.as_ref(), names::env);
        if let Some(map) = map {
            out.name(
                format!("{path}.configMapRef.name"),
                &map.name,
                names::subdomain,
            );
        }
        if let Some(secret) = secret {
            out.name(
                format!("{path}.secretRef.name"),
                &secret.name,
                names::subdomain,
            );
        }
    }
}

fn value_from(out: &mut Findings, path: &str, from: &EnvVarSource) {
    let given = [
        ("fieldRef", from.field_ref.is_some()),
        ("resourceFieldRef", from.resource_field_ref.is_some()),
        ("configMapKeyRef", from.config_map_key_ref.is_some()),
        ("secretKeyRef", from.secret_key_ref.is_some()),
        ("fileKeyRef", from.file_key_ref.is_some()),
    ];
    out.exactly_one(path, "source", &given);
    if let Some(field) = &from.field_ref {
        field_path(
            out,
            &format!("{path}.fieldRef.fieldPath"),
            &field.field_path,
            FIELDS,
        );
    }
    if let Some(resource) = &from.resource_field_ref {
        resource_field(out, &format!("{path}.resourceFieldRef"), resource, false);
    }
    if let Some(map) = &from.config_map_key_ref {
        out.name(
            format!("{path}.configMapKeyRef.name"),
            &map.name,
            names::subdomain,
        );
        out.name(
            format!("{path}.configMapKeyRef.key"),
            &map.key,
            names::config_key,
        );
    }
    if let Some(secret) = &from.secret_key_ref {
        out.name(
            format!("{path}.secretKeyRef.name"),
            &secret.name,
            names::subdomain,
        );
        out.name(
            format!("{path}.secretKeyRef.key"),
            &secret.key,
            names::config_key,
        );
    }
    if let Some(file) = &from.file_key_ref {
        out.name(format!("{path}.fileKeyRef.key"), &file.key, names::env);
        out.name(
            format!("{path}.fileKeyRef.volumeName"),
            &file.volume_name,
            names::label,
        );
        out.name(
            format!("{path}.fileKeyRef.path"),
            &file.path,
            names::local_path,
        );
    }
}

/// A field of the pod in a downwardAPI volume.
pub(super) fn volume_field(out: &mut Findings, path: &str, field: &str) {
    field_path(out, path, field, VOLUME_FIELDS);
}

fn field_path(out: &mut Findings, path: &str, field: &str, allowed: &[&str]) {
    if field.is_empty() {
        return out.add(path, "required");
    }
    let one = |kind: &str| {
        let inner = field
            .strip_prefix(&format!("metadata.{kind}['"))?
            .strip_suffix("']")?;
        Some(inner)
    };
    match (one("labels"), one("annotations")) {
        (Some(key), _) if names::qualified(key).is_ok() => {}
        (_, Some(key)) if names::qualified(&key.to_lowercase()).is_ok() => {}
        _ if allowed.contains(&field) => {}
        _ => {
            let allowed = allowed.join(", ");
            let message = format!(
                "{} is not one of {allowed}, metadata.labels['KEY'], metadata.annotations['KEY']",
                quoted(field)
            );
            out.add(path, message);
        }
    }
}

/// A resource of a container. Volumes must name the container.
pub(super) fn resource_field(
    out: &mut Findings,
    path: &str,
    field: &ResourceFieldSelector,
    in_volume: bool,
) {
    if in_volume {
        out.required(
            format!("{path}.containerName"),
            field.container_name.as_deref().unwrap_or_default(),
        );
    }
    const RESOURCES: &[&str] = &["cpu", "memory", "ephemeral-storage"];
    let resource = field.resource.as_str();
    let known = resource
        .strip_prefix("limits.")
        .or(resource.strip_prefix("requests."));
    if !known.is_some_and(|r| RESOURCES.contains(&r) || r.starts_with("hugepages-")) {
        let path = format!("{path}.resource");
        let expected = "limits or requests of cpu, memory, ephemeral-storage or hugepages-SIZE, like limits.cpu";
        out.add(
            path,
            if resource.is_empty() {
                "required".to_owned()
            } else {
                format!("{} is not {expected}", quoted(resource))
            },
        );
    }
}
