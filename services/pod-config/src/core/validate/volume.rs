//! Volumes of a pod.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Volume, VolumeProjection};
use polylet_model::quantity::Amount;

use super::super::decode::quoted;
use super::{Findings, env, names};

/// Volumes by name.
pub(super) type Known<'a> = BTreeMap<&'a str, usize>;

/// Checks all; returns what containers may mount.
pub(super) fn all<'a>(out: &mut Findings, volumes: &'a [Volume]) -> Known<'a> {
    let mut known = Known::new();
    for (i, volume) in volumes.iter().enumerate() {
        let path = format!("spec.volumes[{i}]");
        out.name(format!("{path}.name"), &volume.name, names::label);
        if !volume.name.is_empty() {
            if let Some(first) = known.get(volume.name.as_str()) {
                out.add(
                    format!("{path}.name"),
                    format!(
                        "{} is already the name of spec.volumes[{first}]",
                        quoted(&volume.name)
                    ),
                );
            } else {
                known.insert(&volume.name, i);
            }
        }
        one_source(out, &path, volume);
        source(out, &path, volume);
    }
    known
}

/// Whatever kinds there are: each is a field beside the name.
fn one_source(out: &mut Findings, path: &str, volume: &Volume) {
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
        [] => out.add(
            path,
            "has no source: exactly one was expected, like emptyDir: {}",
        ),
        several => out.add(
            path,
            format!(
                "has more than one source ({}): exactly one was expected",
                several.join(", ")
            ),
        ),
    }
}

fn source(out: &mut Findings, path: &str, volume: &Volume) {
    if let Some(empty) = &volume.empty_dir {
        let medium = empty.medium.as_deref().unwrap_or_default();
        if !matches!(medium, "" | "Memory" | "HugePages") && !medium.starts_with("HugePages-") {
            let message = format!(
                "{} is not one of Memory, HugePages, HugePages-SIZE",
                quoted(medium)
            );
            out.add(format!("{path}.emptyDir.medium"), message);
        }
        if let Some(limit) = &empty.size_limit {
            let path = format!("{path}.emptyDir.sizeLimit");
            match Amount::parse(&limit.0) {
                Err(error) => out.add(path, error.to_string()),
                Ok(amount) if amount < Amount::ZERO => out.add(path, "must not be below zero"),
                Ok(_) => {}
            }
        }
    }
    if let Some(host) = &volume.host_path {
        out.name(
            format!("{path}.hostPath.path"),
            &host.path,
            names::no_upwards,
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
        out.word(format!("{path}.hostPath.type"), host.type_.as_ref(), TYPES);
    }
    if let Some(map) = &volume.config_map {
        let path = format!("{path}.configMap");
        out.name(format!("{path}.name"), &map.name, names::subdomain);
        keyed(out, &path, map.default_mode, map.items.as_deref());
    }
    if let Some(secret) = &volume.secret {
        let path = format!("{path}.secret");
        out.name(
            format!("{path}.secretName"),
            secret.secret_name.as_deref().unwrap_or_default(),
            names::subdomain,
        );
        keyed(out, &path, secret.default_mode, secret.items.as_deref());
    }
    if let Some(downward) = &volume.downward_api {
        let path = format!("{path}.downwardAPI");
        mode(out, &format!("{path}.defaultMode"), downward.default_mode);
        downward_items(out, &path, downward.items.as_deref());
    }
    if let Some(projected) = &volume.projected {
        let path = format!("{path}.projected");
        mode(out, &format!("{path}.defaultMode"), projected.default_mode);
        let mut taken = BTreeSet::new();
        for (i, source) in projected.sources.iter().flatten().enumerate() {
            projection(out, &format!("{path}.sources[{i}]"), source, &mut taken);
        }
    }
    if let Some(image) = &volume.image {
        let path = format!("{path}.image");
        out.required(
            format!("{path}.reference"),
            image.reference.as_deref().unwrap_or_default(),
        );
        out.word(
            format!("{path}.pullPolicy"),
            image.pull_policy.as_ref(),
            &["Always", "IfNotPresent", "Never"],
        );
    }
}

fn projection(
    out: &mut Findings,
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
    out.exactly_one(path, "source", &given);
    let mut paths: Vec<&str> = Vec::new();
    if let Some(secret) = &source.secret {
        let path = format!("{path}.secret");
        out.name(format!("{path}.name"), &secret.name, names::subdomain);
        keyed(out, &path, None, secret.items.as_deref());
        paths.extend(secret.items.iter().flatten().map(|i| i.path.as_str()));
    }
    if let Some(map) = &source.config_map {
        let path = format!("{path}.configMap");
        out.name(format!("{path}.name"), &map.name, names::subdomain);
        keyed(out, &path, None, map.items.as_deref());
        paths.extend(map.items.iter().flatten().map(|i| i.path.as_str()));
    }
    if let Some(downward) = &source.downward_api {
        downward_items(
            out,
            &format!("{path}.downwardAPI"),
            downward.items.as_deref(),
        );
        paths.extend(downward.items.iter().flatten().map(|i| i.path.as_str()));
    }
    for one in paths {
        if !one.is_empty() && !taken.insert(one.to_owned()) {
            out.add(
                path,
                format!(
                    "the path {} is taken by another item or source",
                    quoted(one)
                ),
            );
        }
    }
}

fn keyed(out: &mut Findings, path: &str, default_mode: Option<i32>, items: Option<&[KeyToPath]>) {
    mode(out, &format!("{path}.defaultMode"), default_mode);
    for (i, item) in items.into_iter().flatten().enumerate() {
        let path = format!("{path}.items[{i}]");
        out.required(format!("{path}.key"), &item.key);
        file_path(out, &format!("{path}.path"), &item.path);
        mode(out, &format!("{path}.mode"), item.mode);
    }
}

fn downward_items(out: &mut Findings, path: &str, items: Option<&[DownwardAPIVolumeFile]>) {
    for (i, item) in items.into_iter().flatten().enumerate() {
        let path = format!("{path}.items[{i}]");
        file_path(out, &format!("{path}.path"), &item.path);
        mode(out, &format!("{path}.mode"), item.mode);
        let given = [
            ("fieldRef", item.field_ref.is_some()),
            ("resourceFieldRef", item.resource_field_ref.is_some()),
        ];
        out.exactly_one(&path, "source", &given);
        if let Some(field) = &item.field_ref {
            env::volume_field(
                out,
                &format!("{path}.fieldRef.fieldPath"),
                &field.field_path,
            );
        }
        if let Some(resource) = &item.resource_field_ref {
            env::resource_field(out, &format!("{path}.resourceFieldRef"), resource, true);
        }
    }
}

/// Below the volume, and not among the names that atomic updates use.
fn file_path(out: &mut Findings, field: &str, path: &str) {
    out.name(field, path, names::local_path);
    if path.starts_with("..") && names::local_path(path).is_ok() {
        out.add(field, format!("{} begins with '..'", quoted(path)));
    }
}

fn mode(out: &mut Findings, path: &str, mode: Option<i32>) {
    if let Some(mode) = mode.filter(|m| !(0..=0o777).contains(m)) {
        out.add(
            path,
            format!("{mode} is not between 0 and 0777 (octal; 511 in decimal)"),
        );
    }
}
