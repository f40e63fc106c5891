//! Validation of environment variables.

use k8s_openapi::api::core::v1::{Container, EnvVarSource, ResourceFieldSelector};

use super::super::decode::quoted;
use super::{ErrorList, names};

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

pub(super) fn check(errors: &mut ErrorList, path: &str, container: &Container) {
    for (i, var) in container.env.iter().flatten().enumerate() {
        let path = format!("{path}.env[{i}]");
        errors.name(format!("{path}.name"), &var.name, names::env);
        if let Some(from) = &var.value_from {
            if var.value.as_ref().is_some_and(|v| !v.is_empty()) {
                errors.add(
                    format!("{path}.valueFrom"),
                    "cannot be set together with value",
                );
            }
            value_from(errors, &format!("{path}.valueFrom"), from);
        }
    }
    for (i, from) in container.env_from.iter().flatten().enumerate() {
        let path = format!("{path}.envFrom[{i}]");
        let (map, secret) = (&from.config_map_ref, &from.secret_ref);
        errors.exactly_one(
            &path,
            "source",
            &[
                ("configMapRef", map.is_some()),
                ("secretRef", secret.is_some()),
            ],
        );
        errors.format(format!("{path}.prefix"), from.prefix.as_ref(), names::env);
        if let Some(map) = map {
            errors.name(
                format!("{path}.configMapRef.name"),
                &map.name,
                names::subdomain,
            );
        }
        if let Some(secret) = secret {
            errors.name(
                format!("{path}.secretRef.name"),
                &secret.name,
                names::subdomain,
            );
        }
    }
}

fn value_from(errors: &mut ErrorList, path: &str, from: &EnvVarSource) {
    let given = [
        ("fieldRef", from.field_ref.is_some()),
        ("resourceFieldRef", from.resource_field_ref.is_some()),
        ("configMapKeyRef", from.config_map_key_ref.is_some()),
        ("secretKeyRef", from.secret_key_ref.is_some()),
        ("fileKeyRef", from.file_key_ref.is_some()),
    ];
    errors.exactly_one(path, "source", &given);
    if let Some(field) = &from.field_ref {
        field_path(
            errors,
            &format!("{path}.fieldRef.fieldPath"),
            &field.field_path,
            FIELDS,
        );
    }
    if let Some(resource) = &from.resource_field_ref {
        resource_field(errors, &format!("{path}.resourceFieldRef"), resource, false);
    }
    if let Some(map) = &from.config_map_key_ref {
        errors.name(
            format!("{path}.configMapKeyRef.name"),
            &map.name,
            names::subdomain,
        );
        errors.name(
            format!("{path}.configMapKeyRef.key"),
            &map.key,
            names::config_key,
        );
    }
    if let Some(secret) = &from.secret_key_ref {
        errors.name(
            format!("{path}.secretKeyRef.name"),
            &secret.name,
            names::subdomain,
        );
        errors.name(
            format!("{path}.secretKeyRef.key"),
            &secret.key,
            names::config_key,
        );
    }
    if let Some(file) = &from.file_key_ref {
        errors.name(format!("{path}.fileKeyRef.key"), &file.key, names::env);
        errors.name(
            format!("{path}.fileKeyRef.volumeName"),
            &file.volume_name,
            names::label,
        );
        errors.name(
            format!("{path}.fileKeyRef.path"),
            &file.path,
            names::local_path,
        );
    }
}

/// Checks a field of the pod in a downwardAPI volume.
pub(super) fn volume_field(errors: &mut ErrorList, path: &str, field: &str) {
    field_path(errors, path, field, VOLUME_FIELDS);
}

fn field_path(errors: &mut ErrorList, path: &str, field: &str, allowed: &[&str]) {
    if field.is_empty() {
        return errors.add(path, "required");
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
            errors.add(path, message);
        }
    }
}

/// Checks a resource of a container. Volumes must name the container.
pub(super) fn resource_field(
    errors: &mut ErrorList,
    path: &str,
    field: &ResourceFieldSelector,
    in_volume: bool,
) {
    if in_volume {
        errors.required(
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
        errors.add(
            path,
            if resource.is_empty() {
                "required".to_owned()
            } else {
                format!("{} is not {expected}", quoted(resource))
            },
        );
    }
}
