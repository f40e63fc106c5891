//! The sources of a volume, those that this build does not know included.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;
use serde_ignored::Path;

/// Fields of volumes that k8s-openapi does not know, by the volume's index: without them a volume
/// of an unknown type would pass for an emptyDir.
pub(super) type UnknownSources = BTreeMap<usize, Vec<String>>;

/// The volume's index and the field's name, of a path `spec.volumes[index].field`.
pub(super) fn unknown_source<'a>(path: &'a Path<'a>) -> Option<(usize, &'a str)> {
    let Path::Map { parent, key: field } = path else {
        return None;
    };
    let Path::Seq { parent, index } = unwrapped(parent) else {
        return None;
    };
    let is_field = |path: &'a Path<'a>, name: &str| match unwrapped(path) {
        Path::Map { parent, key } if key == name => Some(*parent),
        _ => None,
    };
    let spec = is_field(parent, "volumes")?;
    let root = is_field(spec, "spec")?;
    matches!(unwrapped(root), Path::Root).then_some((*index, field))
}

fn unwrapped<'a>(path: &'a Path<'a>) -> &'a Path<'a> {
    match path {
        Path::Some { parent } | Path::NewtypeStruct { parent } => unwrapped(parent),
        other => other,
    }
}

/// The names of all sources of a volume, in order; the API allows one.
pub(super) fn sources(volume: &api::Volume, unknown: Option<&Vec<String>>) -> Vec<String> {
    // Plain data: it can always be encoded.
    let known = serde_json::to_value(volume).unwrap_or_default();
    let known = known.as_object().into_iter().flat_map(|map| map.keys());
    let known = known.filter(|field| *field != "name");
    let mut all: Vec<String> = known
        .chain(unknown.into_iter().flatten())
        .cloned()
        .collect();
    all.sort_unstable();
    all
}
