//! Downward API: fields and resources of a pod as files. Formats and messages are upstream's.

use std::collections::BTreeMap;
use std::fmt::Write;

use k8s_openapi::api::core::v1::{Container, DownwardAPIVolumeFile, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use polylet_model::quantity::Amount;
use polylet_model::resources::pod_level_limit;

use super::files::{VolumeFile, mode};
use super::spec::Allocatable;
use super::usage::nanos;

/// The files of a list of items.
pub fn files(
    items: &[DownwardAPIVolumeFile],
    pod: &Pod,
    node: Allocatable,
    default_mode: u32,
) -> Result<Vec<(String, VolumeFile)>, String> {
    let file = |item: &DownwardAPIVolumeFile| {
        let text = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => field_value(pod, &field.field_path)?,
            (None, Some(resource)) => resource_value(pod, resource, node)?,
            (None, None) => return Err(format!("{:?} names no field", item.path)),
        };
        let mode = match item.mode {
            Some(given) => mode(given)?,
            None => default_mode,
        };
        let bytes = sorted_lines(&text).into_bytes().into();
        let file = VolumeFile {
            bytes,
            mode,
            uid: None,
        };
        Ok((item.path.clone(), file))
    };
    items.iter().map(file).collect()
}

/// Sorts the lines of a value, as upstream.
fn sorted_lines(text: &str) -> String {
    let mut lines: Vec<_> = text.split('\n').collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn field_value(pod: &Pod, path: &str) -> Result<String, String> {
    let meta = &pod.metadata;
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => &meta.labels,
            "metadata.annotations" => &meta.annotations,
            _ => return Err(format!("fieldPath {path:?} does not support subscript")),
        };
        return Ok(map
            .as_ref()
            .and_then(|map| map.get(key))
            .cloned()
            .unwrap_or_default());
    }
    let text = match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "metadata.labels" => meta.labels.as_ref().map(format_map),
        "metadata.annotations" => meta.annotations.as_ref().map(format_map),
        _ => return Err(format!("unsupported fieldPath: {path}")),
    };
    Ok(text.unwrap_or_default())
}

fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, key) = path.strip_suffix("']")?.split_once("['")?;
    Some((map, key))
}

/// `key="value"` per line, the value quoted as by Go's `%q`.
fn format_map(map: &BTreeMap<String, String>) -> String {
    let lines: Vec<_> = map
        .iter()
        .map(|(key, value)| format!("{key}={}", quoted(value)))
        .collect();
    lines.join("\n")
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        let code = u32::from(c);
        // Writing into a String cannot fail.
        let _ = match c {
            '\x07' => out.write_str("\\a"),
            '\x08' => out.write_str("\\b"),
            '\x0c' => out.write_str("\\f"),
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            '\x0b' => out.write_str("\\v"),
            '"' | '\\' => write!(out, "\\{c}"),
            _ if printable(c) => out.write_char(c),
            _ if code < 0x80 => write!(out, "\\x{code:02x}"),
            _ if code < 0x1_0000 => write!(out, "\\u{code:04x}"),
            _ => write!(out, "\\U{code:08x}"),
        };
    }
    out.push('"');
    out
}

fn printable(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    // After a letter, Rust escapes only what cannot be printed, and no combining marks.
    !c.is_whitespace() && !c.is_control() && format!("a{c}").escape_debug().count() == 2
}

fn resource_value(
    pod: &Pod,
    field: &ResourceFieldSelector,
    node: Allocatable,
) -> Result<String, String> {
    let name = field.container_name.as_deref().unwrap_or_default();
    let container =
        find_container(pod, name).ok_or_else(|| format!("container {name} not found"))?;
    let unknown = || format!("unsupported container resource: {}", field.resource);
    let (side, resource) = field.resource.split_once('.').ok_or_else(unknown)?;
    let limit = match side {
        "limits" => true,
        "requests" => false,
        _ => return Err(unknown()),
    };
    let resources = container.resources.as_ref();
    let map = resources.and_then(|r| {
        if limit {
            r.limits.as_ref()
        } else {
            r.requests.as_ref()
        }
    });
    let own = match map.and_then(|map| map.get(resource)) {
        Some(quantity) => Some(nanos(quantity).ok_or_else(|| not_a_quantity(quantity))?),
        None => None,
    };
    // A limit of zero means none: the pod's limit counts then, or else the node's allocatable.
    let own = own.filter(|nanos| !(limit && *nanos == 0));
    let pod_limit = pod
        .spec
        .as_ref()
        .filter(|_| limit)
        .and_then(|spec| pod_level_limit(spec, resource))
        .filter(|amount| !amount.is_zero())
        .map(Amount::nanos);
    let own = own.or(pod_limit);
    let allocatable = match resource {
        "cpu" => i128::from(node.cpu_milli) * 1_000_000,
        "memory" => i128::from(node.memory) * NANO,
        "ephemeral-storage" => i128::from(node.ephemeral_storage) * NANO,
        _ if resource.starts_with("hugepages-") => 0,
        _ => return Err(unknown()),
    };
    let value = own.unwrap_or(if limit { allocatable } else { 0 });
    let divisor = match &field.divisor {
        Some(quantity) => nanos(quantity).ok_or_else(|| not_a_quantity(quantity))?,
        None => 0,
    };
    let divisor = if divisor <= 0 { NANO } else { divisor };
    // Upstream counts CPU in thousandths and everything else in whole units.
    let unit = if resource == "cpu" { 1_000_000 } else { NANO };
    let (value, divisor) = (ceil(value, unit), ceil(divisor, unit));
    Ok(ceil(value, divisor).to_string())
}

const NANO: i128 = 1_000_000_000;

fn ceil(value: i128, unit: i128) -> i128 {
    value.div_euclid(unit) + i128::from(value.rem_euclid(unit) != 0)
}

fn find_container<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    let init = spec.init_containers.as_deref().unwrap_or_default();
    spec.containers
        .iter()
        .chain(init)
        .find(|container| container.name == name)
}

fn not_a_quantity(quantity: &Quantity) -> String {
    format!("{:?} is not a quantity", quantity.0)
}
