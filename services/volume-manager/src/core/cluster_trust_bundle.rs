//! ClusterTrustBundle projection: a bundle by name, or those of a signer that a selector selects.
//! Rules and messages are upstream's. The order of anchors differs from node to node on purpose, so
//! that no client depends on it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use ring::digest::{SHA256, digest};

use super::api_objects::{ObjectDetails, TrustBundle};
use super::blocked::Blocked;
use super::bytes::Bytes;
use super::pem;
use super::reference_key::{ObjectKind, ReferenceKey};
use super::references::{ObjectState, ReferencedObject};

/// Upstream's message where the API server does not serve bundles, or there is no API server.
pub const NOT_SERVED: &str =
    "ClusterTrustBundle projection is not supported in static kubelet mode";
/// Upstream's message for a source that names neither.
pub const NO_NAME: &str =
    "ClusterTrustBundle projection requires either name or signerName to be set";
const NONE_MATCHED: &str =
    "combination of signerName and labelSelector matched zero ClusterTrustBundles";

/// Trust anchors as a file.
#[derive(Debug, Clone, PartialEq)]
pub struct TrustBundleSource {
    /// The bundle, or all bundles of a signer.
    pub key: ReferenceKey,
    /// Selects among the bundles of a signer: none without a selector, all with an empty one.
    pub selector: Option<LabelSelector>,
    /// The bundles may be missing: the file is empty then.
    pub optional: bool,
    /// The path of the file.
    pub path: String,
    /// The mode of the file.
    pub mode: u32,
    /// The owner of the file.
    pub uid: Option<u32>,
}

/// The content of the file. `salt` makes the order specific to the node.
pub(super) fn anchors(
    source: &TrustBundleSource,
    state: &ObjectState,
    salt: &str,
) -> Result<Bytes, Blocked> {
    let bundles = match state {
        ObjectState::Present(object) => select_bundles(source, object)?,
        ObjectState::Absent => Vec::new(),
        ObjectState::Unknown(error) => return Err(Blocked::Missing(error.clone())),
        ObjectState::NotSynced => return Err(Blocked::Waiting(source.key.not_synced())),
        ObjectState::Invalid(error) => return Err(Blocked::Failed(error.clone())),
    };
    if bundles.is_empty() && !source.optional {
        return Err(Blocked::Missing(match source.key.kind {
            ObjectKind::TrustBundle => {
                format!(
                    "while getting ClusterTrustBundle: {}",
                    source.key.not_found()
                )
            }
            _ => NONE_MATCHED.to_owned(),
        }));
    }
    Ok(file(&bundles, salt).into())
}

fn select_bundles<'a>(
    source: &TrustBundleSource,
    object: &'a ReferencedObject,
) -> Result<Vec<&'a TrustBundle>, Blocked> {
    let ObjectDetails::TrustBundles(bundles) = &object.details else {
        return Ok(Vec::new());
    };
    if source.key.kind == ObjectKind::TrustBundle {
        return Ok(bundles.iter().collect());
    }
    let mut selected = Vec::new();
    for bundle in bundles {
        if selects(source.selector.as_ref(), &bundle.labels).map_err(Blocked::Failed)? {
            selected.push(bundle);
        }
    }
    Ok(selected)
}

/// Encodes every anchor once, even if it is in several bundles.
fn file(bundles: &[&TrustBundle], salt: &str) -> Vec<u8> {
    let anchors: BTreeSet<&Vec<u8>> = bundles.iter().flat_map(|b| b.anchors.iter()).collect();
    let mut anchors: Vec<&[u8]> = anchors.into_iter().map(Vec::as_slice).collect();
    anchors.sort_by_cached_key(|anchor| {
        let salted = [salt.as_bytes(), anchor].concat();
        digest(&SHA256, &salted).as_ref().to_vec()
    });
    pem::certificates(anchors)
}

/// Whether a label selector matches; an error if it is invalid.
fn selects(
    selector: Option<&LabelSelector>,
    labels: &BTreeMap<String, String>,
) -> Result<bool, String> {
    let Some(selector) = selector else {
        return Ok(false);
    };
    let mut equal = selector.match_labels.iter().flatten();
    let mut all = equal.all(|(key, value)| labels.get(key) == Some(value));
    for requirement in selector.match_expressions.iter().flatten() {
        all &= matches_requirement(requirement, labels.get(&requirement.key))?;
    }
    Ok(all)
}

fn matches_requirement(
    requirement: &LabelSelectorRequirement,
    value: Option<&String>,
) -> Result<bool, String> {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = || value.is_some_and(|value| values.contains(value));
    match requirement.operator.as_str() {
        "In" => Ok(listed()),
        "NotIn" => Ok(!listed()),
        "Exists" => Ok(value.is_some()),
        "DoesNotExist" => Ok(value.is_none()),
        other => Err(format!(
            "while parsing label selector: {other:?} is not a valid label selector operator"
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn bundle(labels: Value, anchors: &[&str]) -> Value {
        let block = |body: &&str| {
            format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\nnoise\n")
        };
        let text: String = anchors.iter().map(block).collect();
        json!({"metadata": {"name": "b", "labels": labels},
            "spec": {"signerName": "example.com/s", "trustBundle": text}})
    }

    fn source(kind: ObjectKind, selector: Option<Value>, optional: bool) -> TrustBundleSource {
        TrustBundleSource {
            key: ReferenceKey {
                kind,
                namespace: String::new(),
                name: "b".into(),
                cluster: true,
            },
            selector: selector.map(|selector| serde_json::from_value(selector).unwrap()),
            optional,
            path: "p".into(),
            mode: 0o644,
            uid: None,
        }
    }

    fn received(kind: ObjectKind, object: &Value) -> ObjectState {
        ObjectState::from_json(kind, object.to_string().as_bytes())
    }

    fn bodies(content: Result<Bytes, Blocked>) -> BTreeSet<String> {
        let text = String::from_utf8(content.unwrap().0.to_vec()).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('-'));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn selects_by_name() {
        let kind = ObjectKind::TrustBundle;
        let by_name = |optional| source(kind, None, optional);
        let object = received(kind, &bundle(json!({}), &["AQ==", "Ag==", "AQ=="]));
        let found = anchors(&by_name(false), &object, "n");
        assert_eq!(bodies(found), ["AQ==", "Ag=="].map(str::to_owned).into());
        let missing = "while getting ClusterTrustBundle: \
            clustertrustbundle.certificates.k8s.io \"b\" not found";
        assert_eq!(
            anchors(&by_name(false), &ObjectState::Absent, "n"),
            Err(Blocked::Missing(missing.into()))
        );
        let empty = anchors(&by_name(true), &ObjectState::Absent, "n");
        assert_eq!(empty, Ok(Vec::new().into()));
        // Not served is an error even if the source is optional.
        let unserved = ObjectState::Unknown(NOT_SERVED.into());
        assert_eq!(
            anchors(&by_name(true), &unserved, "n"),
            Err(Blocked::Missing(NOT_SERVED.into()))
        );
    }

    #[test]
    fn selects_by_signer_and_labels() {
        let kind = ObjectKind::TrustBundles;
        let items = [
            bundle(json!({"a": "1"}), &["AQ=="]),
            bundle(json!({"a": "2"}), &["Ag==", "AQ=="]),
        ];
        let list = received(kind, &json!({"items": items}));
        let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        for (selector, selected) in [
            (Some(json!({})), vec!["AQ==", "Ag=="]),
            (Some(json!({"matchLabels": {"a": "1"}})), vec!["AQ=="]),
            (Some(expression("In", json!(["2"]))), vec!["AQ==", "Ag=="]),
            (Some(expression("NotIn", json!(["2"]))), vec!["AQ=="]),
            (Some(expression("Exists", json!([]))), vec!["AQ==", "Ag=="]),
            (Some(expression("DoesNotExist", json!([]))), vec![]),
            (Some(json!({"matchLabels": {"b": "1"}})), vec![]),
            (None, vec![]),
        ] {
            let selected: BTreeSet<String> = selected.into_iter().map(str::to_owned).collect();
            let optional = anchors(&source(kind, selector.clone(), true), &list, "n");
            assert_eq!(bodies(optional), selected, "{selector:?}");
            let required = anchors(&source(kind, selector.clone(), false), &list, "n");
            let none = Err(Blocked::Missing(NONE_MATCHED.into()));
            assert_eq!(required == none, selected.is_empty(), "{selector:?}");
        }
        let invalid = source(kind, Some(expression("Like", json!([]))), true);
        assert!(matches!(
            anchors(&invalid, &list, "n"),
            Err(Blocked::Failed(_))
        ));
    }

    proptest! {
        #[test]
        fn content_does_not_depend_on_the_order_of_bundles(
            bodies in prop::collection::vec("[A-D]{2}==", 1..6),
        ) {
            let kind = ObjectKind::TrustBundles;
            let bundle_of = |body: &String| bundle(json!({}), &[body]);
            let forward: Vec<Value> = bodies.iter().map(bundle_of).collect();
            let backward: Vec<Value> = bodies.iter().rev().map(bundle_of).collect();
            let source = source(kind, Some(json!({})), true);
            let forward = anchors(&source, &received(kind, &json!({"items": forward})), "n");
            let backward = anchors(&source, &received(kind, &json!({"items": backward})), "n");
            prop_assert_eq!(forward, backward);
        }
    }
}
