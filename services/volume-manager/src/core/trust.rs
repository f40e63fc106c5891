//! Trust anchors of the cluster: ClusterTrustBundles by name, or those of a signer that a selector
//! chooses. Rules and words are upstream's; the order in a file means nothing, and is another one
//! on every node, so that nobody comes to count on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use ring::digest::{SHA256, digest};
use serde::Deserialize;

use super::facts::Facts;
use super::objects::{Bytes, Object, ObjectKey, ObjectKind, ObjectState};
use super::payload::{Blocked, not_found, unheard};
use super::pem;

/// What upstream says of a node whose API server has no trust bundles, or that has no API server.
pub const UNSERVED: &str = "ClusterTrustBundle projection is not supported in static kubelet mode";
/// What it says of a source that names none.
pub const NEITHER: &str =
    "ClusterTrustBundle projection requires either name or signerName to be set";
const NONE_MATCHED: &str =
    "combination of signerName and labelSelector matched zero ClusterTrustBundles";

/// Trust anchors as a source of one file.
#[derive(Debug, Clone, PartialEq)]
pub struct TrustSource {
    /// The bundle, or all of a signer.
    pub key: ObjectKey,
    /// Which of a signer's bundles: none at all without one, all with an empty one.
    pub selector: Option<LabelSelector>,
    /// There may be none: the file is empty then.
    pub optional: bool,
    /// The file.
    pub path: String,
    /// Its mode.
    pub mode: u32,
    /// Who owns it.
    pub uid: Option<u32>,
}

/// A trust bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its certificates, decoded.
    pub anchors: Arc<BTreeSet<Vec<u8>>>,
}

#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    trust_bundle: String,
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    items: Vec<Written>,
}

impl From<Written> for Bundle {
    fn from(written: Written) -> Self {
        let anchors = pem::blocks(written.spec.trust_bundle.as_bytes());
        Self {
            labels: written.metadata.labels,
            anchors: Arc::new(anchors.into_iter().collect()),
        }
    }
}

/// Reads one bundle.
pub(super) fn one(json: &[u8]) -> Result<Bundle, serde_json::Error> {
    serde_json::from_slice::<Written>(json).map(Bundle::from)
}

/// Reads a list of them.
pub(super) fn list(json: &[u8]) -> Result<Vec<Bundle>, serde_json::Error> {
    let list: List = serde_json::from_slice(json)?;
    Ok(list.items.into_iter().map(Bundle::from).collect())
}

/// What the file holds. `salt` makes the order the node's own.
pub(super) fn anchors(
    source: &TrustSource,
    state: &ObjectState,
    salt: &str,
) -> Result<Bytes, Blocked> {
    let bundles = match state {
        ObjectState::Present(object) => chosen(source, object)?,
        ObjectState::Absent => Vec::new(),
        ObjectState::Unknown(why) => return Err(Blocked::Missing(why.clone())),
        ObjectState::Unheard => return Err(Blocked::Waiting(unheard(&source.key))),
        ObjectState::Broken(why) => return Err(Blocked::Failed(why.clone())),
    };
    if bundles.is_empty() && !source.optional {
        return Err(Blocked::Missing(match source.key.kind {
            ObjectKind::TrustBundle => {
                format!(
                    "while getting ClusterTrustBundle: {}",
                    not_found(&source.key)
                )
            }
            _ => NONE_MATCHED.to_owned(),
        }));
    }
    Ok(file(&bundles, salt).into())
}

fn chosen<'a>(source: &TrustSource, object: &'a Object) -> Result<Vec<&'a Bundle>, Blocked> {
    let Facts::Trust(bundles) = &object.facts else {
        return Ok(Vec::new());
    };
    if source.key.kind == ObjectKind::TrustBundle {
        return Ok(bundles.iter().collect());
    }
    let mut chosen = Vec::new();
    for bundle in bundles {
        if selects(source.selector.as_ref(), &bundle.labels).map_err(Blocked::Failed)? {
            chosen.push(bundle);
        }
    }
    Ok(chosen)
}

/// Every anchor once, whichever bundles it is in.
fn file(bundles: &[&Bundle], salt: &str) -> Vec<u8> {
    let anchors: BTreeSet<&Vec<u8>> = bundles.iter().flat_map(|b| b.anchors.iter()).collect();
    let mut anchors: Vec<&[u8]> = anchors.into_iter().map(Vec::as_slice).collect();
    anchors.sort_by_cached_key(|anchor| {
        let salted = [salt.as_bytes(), anchor].concat();
        digest(&SHA256, &salted).as_ref().to_vec()
    });
    pem::certificates(anchors)
}

/// Whether a selector of labels chooses; one that cannot be read says why.
fn selects(
    selector: Option<&LabelSelector>,
    labels: &BTreeMap<String, String>,
) -> Result<bool, String> {
    let Some(selector) = selector else {
        return Ok(false);
    };
    let mut equal = selector.match_labels.iter().flatten();
    let mut all = equal.all(|(key, value)| labels.get(key) == Some(value));
    for one in selector.match_expressions.iter().flatten() {
        all &= met(one, labels.get(&one.key))?;
    }
    Ok(all)
}

fn met(wanted: &LabelSelectorRequirement, found: Option<&String>) -> Result<bool, String> {
    let values = wanted.values.as_deref().unwrap_or_default();
    let named = || found.is_some_and(|found| values.contains(found));
    match wanted.operator.as_str() {
        "In" => Ok(named()),
        "NotIn" => Ok(!named()),
        "Exists" => Ok(found.is_some()),
        "DoesNotExist" => Ok(found.is_none()),
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

    fn source(kind: ObjectKind, selector: Option<Value>, optional: bool) -> TrustSource {
        TrustSource {
            key: ObjectKey {
                kind,
                namespace: String::new(),
                name: "b".into(),
                cluster: true,
            },
            selector: selector.map(|it| serde_json::from_value(it).unwrap()),
            optional,
            path: "p".into(),
            mode: 0o644,
            uid: None,
        }
    }

    fn known(kind: ObjectKind, object: &Value) -> ObjectState {
        ObjectState::from_json(kind, object.to_string().as_bytes())
    }

    fn bodies(found: Result<Bytes, Blocked>) -> BTreeSet<String> {
        let text = String::from_utf8(found.unwrap().0.to_vec()).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('-'));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn by_name() {
        let kind = ObjectKind::TrustBundle;
        let of = |optional| source(kind, None, optional);
        let there = known(kind, &bundle(json!({}), &["AQ==", "Ag==", "AQ=="]));
        let found = anchors(&of(false), &there, "n");
        assert_eq!(bodies(found), ["AQ==", "Ag=="].map(str::to_owned).into());
        let missing = "while getting ClusterTrustBundle: \
            clustertrustbundle.certificates.k8s.io \"b\" not found";
        assert_eq!(
            anchors(&of(false), &ObjectState::Absent, "n"),
            Err(Blocked::Missing(missing.into()))
        );
        let empty = anchors(&of(true), &ObjectState::Absent, "n");
        assert_eq!(empty, Ok(Vec::new().into()));
        // Where it is not served, that it is optional does not help.
        let unserved = ObjectState::Unknown(UNSERVED.into());
        assert_eq!(
            anchors(&of(true), &unserved, "n"),
            Err(Blocked::Missing(UNSERVED.into()))
        );
    }

    #[test]
    fn by_signer_and_selector() {
        let kind = ObjectKind::TrustBundles;
        let items = [
            bundle(json!({"a": "1"}), &["AQ=="]),
            bundle(json!({"a": "2"}), &["Ag==", "AQ=="]),
        ];
        let list = known(kind, &json!({"items": items}));
        let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        for (selector, chosen) in [
            (Some(json!({})), vec!["AQ==", "Ag=="]),
            (Some(json!({"matchLabels": {"a": "1"}})), vec!["AQ=="]),
            (Some(expression("In", json!(["2"]))), vec!["AQ==", "Ag=="]),
            (Some(expression("NotIn", json!(["2"]))), vec!["AQ=="]),
            (Some(expression("Exists", json!([]))), vec!["AQ==", "Ag=="]),
            (Some(expression("DoesNotExist", json!([]))), vec![]),
            (Some(json!({"matchLabels": {"b": "1"}})), vec![]),
            (None, vec![]),
        ] {
            let chosen: BTreeSet<String> = chosen.into_iter().map(str::to_owned).collect();
            let optional = anchors(&source(kind, selector.clone(), true), &list, "n");
            assert_eq!(bodies(optional), chosen, "{selector:?}");
            let required = anchors(&source(kind, selector.clone(), false), &list, "n");
            let none = Err(Blocked::Missing(NONE_MATCHED.into()));
            assert_eq!(required == none, chosen.is_empty(), "{selector:?}");
        }
        let odd = source(kind, Some(expression("Like", json!([]))), true);
        assert!(matches!(anchors(&odd, &list, "n"), Err(Blocked::Failed(_))));
    }

    proptest! {
        #[test]
        fn the_file_is_the_same_in_whatever_order_bundles_come(
            bodies in prop::collection::vec("[A-D]{2}==", 1..6),
        ) {
            let kind = ObjectKind::TrustBundles;
            let one = |body: &String| bundle(json!({}), &[body]);
            let forward: Vec<Value> = bodies.iter().map(one).collect();
            let backward: Vec<Value> = bodies.iter().rev().map(one).collect();
            let of = source(kind, Some(json!({})), true);
            let forward = anchors(&of, &known(kind, &json!({"items": forward})), "n");
            let backward = anchors(&of, &known(kind, &json!({"items": backward})), "n");
            prop_assert_eq!(forward, backward);
        }
    }
}
