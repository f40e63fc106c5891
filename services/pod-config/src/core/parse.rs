//! From the bytes of a manifest file or URL response to valid pods and objects, and errors.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use super::adoption::ManifestUids;
use super::canonical::PodText;
use super::decode::{ManifestObject, decode};
use super::identity::{self, ManifestOrigin, StaticPodIdentity};
use super::{LocalObject, StaticPod, StaticPodSource, canonical, field, object, typed, validate};

/// Errors that are listed for one manifest; further ones are counted.
const MAX_ERRORS: usize = 20;

/// The contents of one manifest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// Valid pods, in the order of the manifest.
    pub pods: Vec<StaticPod>,
    /// Valid Secrets, ConfigMaps and RuntimeClasses.
    pub objects: Vec<LocalObject>,
    /// Uids by the fingerprints of their manifests; without those that a manifest sets.
    pub uids: BTreeMap<String, String>,
    /// Those of the uids that are not the generated ones.
    pub adopted: BTreeSet<String>,
    /// Errors and warnings.
    pub errors: Vec<field::Error>,
    /// Whether a part was rejected: an item that is missing now may be in that part, so nothing is
    /// removed.
    pub incomplete: bool,
}

/// Parses all documents. `first_seen` returns when a uid was first seen; others are new at `now`.
pub fn parse(
    bytes: &[u8],
    origin: &ManifestOrigin<'_>,
    first_seen: &dyn Fn(&str) -> Option<Timestamp>,
    now: Timestamp,
) -> Parsed {
    let mut parsed = Parsed::default();
    for document in decode(bytes) {
        let location = document.location;
        let result = match document.body {
            Err(error) => Err(vec![error]),
            Ok(ManifestObject::Pod(value)) => {
                pod(value, origin, first_seen, now).map(|parsed_pod| {
                    let ParsedPod {
                        mut pod,
                        from_manifest,
                        warnings,
                    } = parsed_pod;
                    if let Some(own) = from_manifest {
                        if own.generated != pod.uid {
                            parsed.adopted.insert(pod.uid.clone());
                        }
                        parsed.uids.insert(own.fingerprint, pod.uid.clone());
                    }
                    pod.location.clone_from(&location);
                    parsed.pods.push(pod);
                    let warnings = warnings.into_iter().map(|w| w.at(&location));
                    parsed.errors.extend(warnings);
                })
            }
            Ok(ManifestObject::Local(..)) if origin.source != StaticPodSource::File => {
                Err(vec![field::Error::new(
                    "kind",
                    "Secrets, ConfigMaps and RuntimeClasses are supported in the manifest directory only",
                )])
            }
            Ok(ManifestObject::Local(kind, value)) => object::parse(kind, value).map(|object| {
                parsed.objects.push(LocalObject {
                    location: location.clone(),
                    ..object
                });
            }),
        };
        if let Err(errors) = result {
            parsed.reject(&location, errors);
        }
    }
    let count = parsed.errors.len();
    if count > MAX_ERRORS {
        parsed.errors.truncate(MAX_ERRORS);
        let message = format!("and {} more", count - MAX_ERRORS);
        parsed.errors.push(field::Error::new("", message));
    }
    parsed
}

impl Parsed {
    fn reject(&mut self, location: &str, errors: Vec<field::Error>) {
        self.incomplete = true;
        self.errors
            .extend(errors.into_iter().map(|error| error.at(location)));
    }
}

struct ParsedPod {
    pod: StaticPod,
    from_manifest: Option<ManifestUids>,
    warnings: Vec<field::Error>,
}

fn pod(
    mut value: Value,
    origin: &ManifestOrigin<'_>,
    first_seen: &dyn Fn(&str) -> Option<Timestamp>,
    now: Timestamp,
) -> Result<ParsedPod, Vec<field::Error>> {
    let generated = identity::generate_uid(&value, origin);
    identity::remove_server_fields(&mut value);
    let seen = |uid: &str| first_seen(uid).unwrap_or(now);
    let StaticPodIdentity {
        uid,
        from_manifest,
        first_seen,
    } = identity::assign(&mut value, origin, generated, seen)?;
    if let Some(volumes) = value.pointer_mut("/spec/volumes") {
        typed::parse_octal_modes(volumes);
    }
    let (mut pod, unknown) = typed::pod(&value).map_err(|error| vec![error])?;
    polylet_model::defaults::apply(&mut pod);
    let errors = validate::pod(&pod);
    if !errors.is_empty() {
        return Err(errors);
    }
    let typed = serde_json::to_value(&pod).map_err(|error| {
        let message = format!("cannot be encoded as JSON: {error}");
        vec![field::Error::new("", message)]
    })?;
    canonical::merge_defaults(&mut value, typed);
    if let Value::Object(map) = &mut value {
        map.remove("status");
    }
    let metadata = pod.metadata;
    let text = PodText::new(&value);
    let pod = StaticPod {
        uid,
        namespace: metadata.namespace.unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        digest: text.digest(),
        manifest: text.into_bytes(),
        first_seen,
        // Known where manifests are merged.
        removed_at: None,
        location: String::new(),
    };
    let warnings = unknown
        .into_iter()
        .map(|path| field::Error::new(path, "unknown field; ignored"))
        .collect();
    Ok(ParsedPod {
        pod,
        from_manifest,
        warnings,
    })
}
