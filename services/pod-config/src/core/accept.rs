//! From the bytes of one origin to what is accepted of them and what is not.

use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

use super::decode::{Object, decode};
use super::identity::{self, Place};
use super::{Finding, ObjectItem, PodItem, Source, canonical, object, typed, validate};

/// Findings told of one origin; the rest is counted.
const MOST_FINDINGS: usize = 20;

/// What one origin holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    /// Accepted pods, in the order of the origin.
    pub pods: Vec<PodItem>,
    /// Accepted Secrets, ConfigMaps and RuntimeClasses.
    pub objects: Vec<ObjectItem>,
    /// What was refused, and warnings.
    pub findings: Vec<Finding>,
    /// Something was refused: what the origin gave before and does not give now may be just that,
    /// so its absence says nothing.
    pub broken: bool,
}

/// Reads all documents. `seen` tells since when an identity is known; others are new at `now`.
pub fn accept(
    bytes: &[u8],
    place: &Place<'_>,
    seen: &dyn Fn(&str) -> Option<Timestamp>,
    now: Timestamp,
) -> Content {
    let mut content = Content::default();
    let documents = decode(bytes);
    for document in documents {
        let at = document.place;
        let refused = match document.body {
            Err(finding) => Err(vec![finding]),
            Ok(Object::Pod(value)) => pod(value, place, seen, now).map(|(mut item, warnings)| {
                item.place.clone_from(&at);
                content.pods.push(item);
                content
                    .findings
                    .extend(warnings.into_iter().map(|w| w.at(&at)));
            }),
            Ok(Object::Secret(_) | Object::ConfigMap(_) | Object::RuntimeClass(_))
                if place.source != Source::File =>
            {
                Err(vec![Finding::new(
                    "kind",
                    "Secrets, ConfigMaps and RuntimeClasses are taken from the manifest directory alone",
                )])
            }
            Ok(Object::Secret(value)) => object::secret(value).map(|item| {
                content.objects.push(ObjectItem {
                    place: at.clone(),
                    ..item
                })
            }),
            Ok(Object::ConfigMap(value)) => object::config_map(value).map(|item| {
                content.objects.push(ObjectItem {
                    place: at.clone(),
                    ..item
                })
            }),
            Ok(Object::RuntimeClass(value)) => object::runtime_class(value).map(|item| {
                content.objects.push(ObjectItem {
                    place: at.clone(),
                    ..item
                })
            }),
        };
        if let Err(findings) = refused {
            content.refuse(&at, findings);
        }
    }
    let told = content.findings.len();
    if told > MOST_FINDINGS {
        content.findings.truncate(MOST_FINDINGS);
        content.findings.push(Finding::new(
            "",
            format!("and {} more", told - MOST_FINDINGS),
        ));
    }
    content
}

impl Content {
    fn refuse(&mut self, at: &str, findings: Vec<Finding>) {
        self.broken = true;
        self.findings.extend(findings.into_iter().map(|f| f.at(at)));
    }
}

fn pod(
    mut value: Value,
    place: &Place<'_>,
    seen: &dyn Fn(&str) -> Option<Timestamp>,
    now: Timestamp,
) -> Result<(PodItem, Vec<Finding>), Vec<Finding>> {
    identity::strip(&mut value);
    let (uid, seen) = identity::give(&mut value, place, |uid| seen(uid).unwrap_or(now))?;
    if let Some(volumes) = value.pointer_mut("/spec/volumes") {
        typed::octal_modes(volumes);
    }
    let (mut pod, unknown) = typed::pod(&value).map_err(|finding| vec![finding])?;
    polylet_model::defaults::apply(&mut pod);
    let findings = validate::pod(&pod);
    if !findings.is_empty() {
        return Err(findings);
    }
    let over = serde_json::to_value(&pod).map_err(|error| {
        vec![Finding::new(
            "",
            format!("cannot be written as JSON: {error}"),
        )]
    })?;
    canonical::overlay(&mut value, over);
    if let Value::Object(map) = &mut value {
        map.remove("status");
    }
    let metadata = pod.metadata;
    let item = PodItem {
        uid,
        namespace: metadata.namespace.unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        manifest: Arc::from(canonical::text(&value)),
        digest: polylet_model::pod::digest(&value),
        seen,
        place: String::new(),
    };
    let warnings = unknown
        .into_iter()
        .map(|field| Finding::new(field, "is not a known field: it has no effect"))
        .collect();
    Ok((item, warnings))
}
