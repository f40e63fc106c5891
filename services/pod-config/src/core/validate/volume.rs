//! Validation of volumes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Volume, VolumeProjection};
use polylet_model::quantity::Amount;

use super::super::decode::quoted;
use super::{ErrorList, env, names};

/// Indexes of the declared volumes by name.
pub(super) type DeclaredVolumes<'a> = BTreeMap<&'a str, usize>;

/// Checks all volumes; returns those that containers can mount.
pub(super) fn all<'a>(errors: &mut ErrorList, volumes: &'a [Volume]) -> DeclaredVolumes<'a> {
    let mut declared = DeclaredVolumes::new();
    for (i, volume) in volumes.iter().enumerate() {
        let path = format!("spec.volumes[{i}]");
        errors.name(format!("{path}.name"), &volume.name, names::label);
        if !volume.name.is_empty() {
            if let Some(first) = declared.get(volume.name.as_str()) {
                errors.add(
                    format!("{path}.name"),
                    format!(
                        "{} is already the name of spec.volumes[{first}]",
                        quoted(&volume.name)
                    ),
                );
            } else {
                declared.insert(&volume.name, i);
            }
        }
        one_source(errors, &path, volume);
        source(errors, &path, volume);
    }
    declared
}

/// Checks that a volume has one source. Every field but the name is a source, also those that this
/// build does not know.
fn one_source(errors: &mut ErrorList, path: &str, volume: &Volume) {
    let fields = serde_json::to_value(volume).unwrap_or_default();
    let sources: Vec<&str> = fields
        .as_object()
        .into_iter()
        .flatten()
        .map(|(k, _)| k.as_str())
        .filter(|k| *k != "name")
        .collect();
    match sources.as_slice() {
        [_] => {}
        [] => errors.add(
            path,
            "has no source: expected exactly one, such as emptyDir: {}",
        ),
        several => errors.add(
            path,
            format!(
                "has more than one source ({}): expected exactly one",
                several.join(", ")
            ),
        ),
    }
}

fn source(errors: &mut ErrorList, path: &str, volume: &Volume) {
    if let Some(empty) = &volume.empty_dir {
        let medium = empty.medium.as_deref().unwrap_or_default();
        if !matches!(medium, "" | "Memory" | "HugePages") && !medium.starts_with("HugePages-") {
            let message = format!(
                "{} is not one of Memory, HugePages, HugePages-SIZE",
                quoted(medium)
            );
            errors.add(format!("{path}.emptyDir.medium"), message);
        }
        if let Some(limit) = &empty.size_limit {
            let path = format!("{path}.emptyDir.sizeLimit");
            match Amount::parse(&limit.0) {
                Err(error) => errors.add(path, error.to_string()),
                Ok(amount) if amount < Amount::ZERO => errors.add(path, "must not be negative"),
                Ok(_) => {}
            }
        }
    }
    if let Some(host) = &volume.host_path {
        errors.name(
            format!("{path}.hostPath.path"),
            &host.path,
            names::without_parent,
        );
        const TYPES: &[&str] = &[
            "",
            "DirectoryOrCreate",
            "Directory",
            "FileOrCreate",
            "File",
            "Socket",
            "CharDevice",
            "BlockDevice",
        ];
        errors.one_of(format!("{path}.hostPath.type"), host.type_.as_ref(), TYPES);
    }
    if let Some(map) = &volume.config_map {
        let path = format!("{path}.configMap");
        errors.name(format!("{path}.name"), &map.name, names::subdomain);
        keyed(errors, &path, map.default_mode, map.items.as_deref());
    }
    if let Some(secret) = &volume.secret {
        let path = format!("{path}.secret");
        errors.name(
            format!("{path}.secretName"),
            secret.secret_name.as_deref().unwrap_or_default(),
            names::subdomain,
        );
        keyed(errors, &path, secret.default_mode, secret.items.as_deref());
    }
    if let Some(downward) = &volume.downward_api {
        let path = format!("{path}.downwardAPI");
        mode(
            errors,
            &format!("{path}.defaultMode"),
            downward.default_mode,
        );
        downward_items(errors, &path, downward.items.as_deref());
    }
    if let Some(projected) = &volume.projected {
        let path = format!("{path}.projected");
        mode(
            errors,
            &format!("{path}.defaultMode"),
            projected.default_mode,
        );
        let mut taken = BTreeSet::new();
        for (i, source) in projected.sources.iter().flatten().enumerate() {
            projection(errors, &format!("{path}.sources[{i}]"), source, &mut taken);
        }
    }
    if let Some(image) = &volume.image {
        let path = format!("{path}.image");
        errors.required(
            format!("{path}.reference"),
            image.reference.as_deref().unwrap_or_default(),
        );
        errors.one_of(
            format!("{path}.pullPolicy"),
            image.pull_policy.as_ref(),
            &["Always", "IfNotPresent", "Never"],
        );
    }
}

fn projection(
    errors: &mut ErrorList,
    path: &str,
    source: &VolumeProjection,
    taken: &mut BTreeSet<String>,
) {
    let given = [
        ("secret", source.secret.is_some()),
        ("configMap", source.config_map.is_some()),
        ("downwardAPI", source.downward_api.is_some()),
        (
            "serviceAccountToken",
            source.service_account_token.is_some(),
        ),
        ("clusterTrustBundle", source.cluster_trust_bundle.is_some()),
        ("podCertificate", source.pod_certificate.is_some()),
    ];
    errors.exactly_one(path, "source", &given);
    let mut paths: Vec<&str> = Vec::new();
    if let Some(secret) = &source.secret {
        let path = format!("{path}.secret");
        errors.name(format!("{path}.name"), &secret.name, names::subdomain);
        keyed(errors, &path, None, secret.items.as_deref());
        paths.extend(secret.items.iter().flatten().map(|i| i.path.as_str()));
    }
    if let Some(map) = &source.config_map {
        let path = format!("{path}.configMap");
        errors.name(format!("{path}.name"), &map.name, names::subdomain);
        keyed(errors, &path, None, map.items.as_deref());
        paths.extend(map.items.iter().flatten().map(|i| i.path.as_str()));
    }
    if let Some(downward) = &source.downward_api {
        downward_items(
            errors,
            &format!("{path}.downwardAPI"),
            downward.items.as_deref(),
        );
        paths.extend(downward.items.iter().flatten().map(|i| i.path.as_str()));
    }
    for one in paths {
        if !one.is_empty() && !taken.insert(one.to_owned()) {
            errors.add(
                path,
                format!("the path {} is used by another item or source", quoted(one)),
            );
        }
    }
}

fn keyed(
    errors: &mut ErrorList,
    path: &str,
    default_mode: Option<i32>,
    items: Option<&[KeyToPath]>,
) {
    mode(errors, &format!("{path}.defaultMode"), default_mode);
    for (i, item) in items.into_iter().flatten().enumerate() {
        let path = format!("{path}.items[{i}]");
        errors.required(format!("{path}.key"), &item.key);
        file_path(errors, &format!("{path}.path"), &item.path);
        mode(errors, &format!("{path}.mode"), item.mode);
    }
}

fn downward_items(errors: &mut ErrorList, path: &str, items: Option<&[DownwardAPIVolumeFile]>) {
    for (i, item) in items.into_iter().flatten().enumerate() {
        let path = format!("{path}.items[{i}]");
        file_path(errors, &format!("{path}.path"), &item.path);
        mode(errors, &format!("{path}.mode"), item.mode);
        let given = [
            ("fieldRef", item.field_ref.is_some()),
            ("resourceFieldRef", item.resource_field_ref.is_some()),
        ];
        errors.exactly_one(&path, "source", &given);
        if let Some(field) = &item.field_ref {
            env::volume_field(
                errors,
                &format!("{path}.fieldRef.fieldPath"),
                &field.field_path,
            );
        }
        if let Some(resource) = &item.resource_field_ref {
            env::resource_field(errors, &format!("{path}.resourceFieldRef"), resource, true);
        }
    }
}

/// Checks the path of a file: below the volume, and no name that atomic updates use.
fn file_path(errors: &mut ErrorList, field: &str, path: &str) {
    errors.name(field, path, names::local_path);
    if path.starts_with("..") && names::local_path(path).is_ok() {
        errors.add(field, format!("{} starts with '..'", quoted(path)));
    }
}

fn mode(errors: &mut ErrorList, path: &str, mode: Option<i32>) {
    if let Some(mode) = mode.filter(|m| !(0..=0o777).contains(m)) {
        errors.add(
            path,
            format!("{mode} is not between 0 and 0777 (octal; 511 in decimal)"),
        );
    }
}
